//! The staking registry, from the state that this explorer computes itself.

use super::{
    App,
    problem::{Answer, Failure, Problems},
    query::{Nothing, Params},
    respond::rendered,
};
use crate::{
    answers,
    check::{NotTold, RegistryState},
    shapes::{
        Hex, Number, RegistryBond, RegistryDetail, RegistryLimits, RegistryMember, RegistrySlashing,
    },
};
use axum::{extract::State, response::Response};
use bytes::Bytes;
use quorate_types::{Height, ValidatorSet};
use std::cmp::Reverse;
use tokio::sync::Mutex;

/// The last answer, by the heights that it tells.
#[derive(Default)]
pub(super) struct RegistryCache {
    held: Mutex<Option<((Height, Height), Bytes)>>,
}

/// The staking registry after the newest block that this explorer has executed: who validates in this epoch and the
/// next one, and everybody with a bond. Nothing in it is a validator's word.
#[utoipa::path(get, path = "/v1/registry", operation_id = "registry", tag = "validators",
    responses((status = 200, body = RegistryDetail), Problems))]
pub(super) async fn registry(
    State(app): State<App>,
    Params(Nothing {}): Params<Nothing>,
) -> Answer<Response> {
    let parts = app.parts();
    if !parts.guard.can_change() {
        return Err(Failure::not_found(
            "no_registry",
            "this chain has no staking registry: its validators are the genesis file's for ever",
        ));
    }
    let (state, checked_to) = parts.checks.registry().map_err(|why| match why {
        NotTold::NotExecuted => Failure::not_found(
            "not_executed",
            "this explorer does not execute blocks: start it with --genesis genesis.json, and with an \
             upstream that keeps all blocks",
        ),
        NotTold::Diverged(height) => Failure::unavailable(
            "diverged",
            &format!(
                "this explorer and the chain's validators disagree from block {height} on; see its log"
            ),
        ),
    })?;
    // Many clients may ask for a large registry, so it is rendered once.
    let mut held = app.inner.registry.held.lock().await;
    let heights = (state.executed, checked_to);
    if let Some((of, body)) = &*held
        && *of == heights
    {
        return Ok(rendered(body.clone()));
    }
    let body = app
        .read(move |_| Ok(serde_json::to_vec(&detail(&state, checked_to))))
        .await?;
    let body = Bytes::from(body.map_err(|error| Failure::internal(&error))?);
    *held = Some((heights, body.clone()));
    Ok(rendered(body))
}

fn detail(state: &RegistryState, checked_to: Height) -> RegistryDetail {
    let mut bonds: Vec<_> = state.bonds.values().collect();
    bonds.sort_by_key(|held| (Reverse(held.bond.stake), held.bond.identity));
    let (rules, length) = (&state.rules, state.length);
    RegistryDetail {
        executed_height: Number(state.executed.0),
        checked_to: Number(checked_to.0),
        epoch: Number(state.epoch.0),
        fixing_height: Number(length.fixing_height(state.epoch).0),
        last_height: Number(length.last_height(state.epoch).0),
        rules: RegistryLimits {
            min_stake: Number(rules.min_stake),
            max_validators: rules.max_validators,
            unbond_epochs: Number(rules.unbond_epochs),
            slashing: rules.slashing.map(|slashing| RegistrySlashing {
                percent: slashing.percent,
                jail_epochs: Number(slashing.jail_epochs),
            }),
        },
        acting: members(&state.acting),
        coming: state.coming.as_deref().map(members),
        bonds: bonds
            .into_iter()
            .map(|held| RegistryBond {
                bond: answers::bond(&held.bond),
                jailed: held.is_jailed(state.epoch),
            })
            .collect(),
    }
}

fn members(set: &ValidatorSet) -> Vec<RegistryMember> {
    let members = set.members().iter();
    members
        .map(|member| RegistryMember {
            identity: member.identity.into(),
            vote_key: Hex(member.vote_key.0.to_vec()),
            address: member.address.to_string(),
            name: member.name.to_string(),
        })
        .collect()
}
