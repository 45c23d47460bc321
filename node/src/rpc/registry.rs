//! `GET /v1/registry` and `GET /v1/handovers`

use super::{RpcParts, error::RpcError};
use quorate_api::{HandoverJson, HandoversJson, RegistryJson, to_hex};
use quorate_machine::registry::committees;
use quorate_types::{Epoch, Height, genesis::Genesis};
use std::cmp::Reverse;

/// Bytes of handovers from which on an answer takes no more of them.
const ANSWER_BYTES: usize = 64 << 10;

type Answer = Result<RegistryJson, RpcError>;

/// What the newest state says, read again if a block was executed meanwhile.
pub(super) fn registry(parts: &RpcParts, genesis: &Genesis) -> Answer {
    loop {
        let before = parts.store.tip().height;
        let answer = read(parts, genesis, before)?;
        if parts.store.tip().height == before {
            return Ok(answer);
        }
    }
}

fn read(parts: &RpcParts, genesis: &Genesis, height: Height) -> Answer {
    let Some(rules) = genesis.registry else {
        return Err(RpcError::not_found(
            "no_registry",
            "this chain has no staking registry: its validators are the genesis file's for ever",
        ));
    };
    let length = genesis.epoch_blocks;
    let epoch = length.epoch_of(height.next());
    let bonds = parts.store.bonds();
    let bonds = bonds.map_err(|error| RpcError::internal(&error))?;
    let mut bonds: Vec<_> = bonds.into_values().collect();
    bonds.sort_by_key(|bond| (Reverse(bond.stake), bond.identity));
    // Blocks that are executed together are announced together. Until then the database alone knows their sets, and
    // a node that catches up executes many.
    let committees = match parts.live.committees() {
        known if known.is_fixed(length.fixed_to(height)) => known.clone(),
        _ => committees(genesis, &parts.store)
            .map_err(|error| RpcError::internal(&format!("{error:#}")))?,
    };
    let members = |epoch| committees.set(epoch).map(|set| set.members().to_vec());
    Ok(RegistryJson {
        executed_height: height,
        epoch,
        fixing_height: length.fixing_height(epoch),
        last_height: length.last_height(epoch),
        rules,
        acting: members(epoch).unwrap_or_default(),
        coming: members(epoch.next()),
        bonds,
        external: rules.external.map(|_| parts.external.shown()),
    })
}

/// The changes of the validators after an epoch.
pub(super) fn handovers(
    parts: &RpcParts,
    genesis: &Genesis,
    after: Epoch,
) -> Result<HandoversJson, RpcError> {
    let handovers = parts.store.handovers(after, ANSWER_BYTES);
    let handovers = handovers.map_err(|error| RpcError::internal(&error))?;
    Ok(HandoversJson {
        epoch: genesis
            .epoch_blocks
            .epoch_of(parts.store.tip().height.next()),
        handovers: handovers
            .iter()
            .map(|handover| HandoverJson {
                epoch: handover.set.epoch,
                handover: to_hex(handover),
            })
            .collect(),
    })
}
