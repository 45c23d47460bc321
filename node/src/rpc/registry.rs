//! `GET /v1/registry` and `GET /v1/handovers`

use super::{RpcParts, error::RpcError};
use quorate_api::{BarredJson, HandoverJson, HandoversJson, RegistryJson, ResharingJson, to_hex};
use quorate_machine::registry::committees;
use quorate_types::{
    Epoch, Height, Identity, REGISTRY,
    genesis::Genesis,
    registry::{
        Slot,
        resharing::{Places, announcement_slot, barred_until, player_slot, round_in},
    },
};
use std::{cmp::Reverse, collections::BTreeSet};

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
        resharing: match rules.resharing {
            true => Some(resharing(parts, genesis, height)?),
            false => None,
        },
    })
}

/// How far passing on shares is in the state after a block.
fn resharing(
    parts: &RpcParts,
    genesis: &Genesis,
    height: Height,
) -> Result<ResharingJson, RpcError> {
    let length = genesis.epoch_blocks;
    let epoch = length.epoch_of(height.next());
    let store = &parts.store;
    let account = |identity: &Identity| {
        let account = store.account(identity);
        account.map_err(|error| RpcError::internal(&error))
    };
    let committees = parts.live.committees();
    let acting = committees.set(epoch);
    let acting = acting.as_ref().map_or(&[][..], |set| set.members());
    let bonds = store.bonds();
    let bonds = bonds.map_err(|error| RpcError::internal(&error))?;
    let candidates = acting.iter().map(|member| &member.identity);
    let candidates: BTreeSet<&Identity> = candidates.chain(bonds.keys()).collect();
    let (mut announced, mut barred) = (Vec::new(), Vec::new());
    for identity in candidates {
        let slot = account(&announcement_slot(identity))?;
        if let Some(until) = barred_until(slot.as_ref(), identity, epoch) {
            let identity = *identity;
            barred.push(BarredJson { identity, until });
        }
        let slot = slot.and_then(|account| account.slot);
        let is_of = |slot: &Slot| matches!(slot, Slot::Announced { epoch: of, .. } if *of == epoch);
        if slot.as_deref().is_some_and(is_of) {
            announced.push(*identity);
        }
    }
    let (mut players, mut places) = (Vec::new(), RoundPlaces::default());
    if let Some(round) = round_in(account(&REGISTRY)?, epoch) {
        for place in 0..round.players {
            let slot = account(&player_slot(place))?.and_then(|account| account.slot);
            if let Some(Slot::Player { identity, .. }) = slot.as_deref() {
                players.push(*identity);
            }
        }
        places = (round.dealt, round.convicted, round.proven);
    }
    let member = |place: u16| Some(acting.get(usize::from(place))?.identity);
    let last_fixed = [epoch.next(), epoch];
    let serving = last_fixed
        .into_iter()
        .find_map(|of| Some((of, committees.acting(of)?.0)));
    let kept = serving.map_or(0, |(of, first)| of.0.saturating_sub(first.0));
    Ok(ResharingJson {
        phase: length.phase(height.next()).0.name().to_owned(),
        announced,
        dealt: places.0.iter().filter_map(member).collect(),
        convicted: places.1.iter().filter_map(member).collect(),
        proven: (places.2.iter())
            .filter_map(|place| players.get(usize::from(place)).copied())
            .collect(),
        players,
        kept_epochs: kept,
        barred,
    })
}

/// Dealers that have dealt and that were convicted, and players that have proven their shares.
type RoundPlaces = (Places, Places, Places);

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
