//! The validators of each epoch, as the database knows them.

use crate::sync::Validators;
use quorate_storage::store::Store;
use quorate_types::{Committees, ValidatorSet, genesis::Genesis, roster};

/// The committees of a chain for a process that takes part in the epoch of the next block.
///
/// # Errors
///
/// If the database cannot be read, or the genesis file has no committee.
pub fn committees(genesis: &Genesis, store: &Store) -> anyhow::Result<Committees> {
    if genesis.registry.is_none() {
        return Ok(Committees::fixed(genesis.committee()?));
    }
    let mut sets = vec![ValidatorSet::of_genesis(genesis)?];
    sets.extend(store.sets()?);
    let tip = store.tip().height;
    let acting = genesis.epoch_blocks.epoch_of(tip.next());
    let fixed_to = genesis.epoch_blocks.fixed_to(tip);
    let roster = roster(&store.bonds()?);
    let committees = Committees::changing(sets, fixed_to, acting, roster)?;
    Ok(committees.with_turns(genesis.turns()))
}

/// What a database knows of who validates, for state sync: its sets, which later ones can follow. `None` on a
/// chain whose validators never change.
///
/// # Errors
///
/// If the database cannot be read, or the genesis file has no committee.
pub fn known_validators(genesis: &Genesis, store: &Store) -> anyhow::Result<Option<Validators>> {
    if genesis.registry.is_none() {
        return Ok(None);
    }
    // The process may have ended between the last block of an epoch and this.
    store.keep_handover(genesis.epoch_blocks)?;
    let committees = Committees::trusting(ValidatorSet::of_genesis(genesis)?)?;
    let begun = genesis.epoch_blocks.epoch_of(store.tip().height.next());
    for set in store.certain_sets(begun)? {
        committees.adopt(set);
    }
    Ok(Some(Validators {
        committees,
        epoch_length: genesis.epoch_blocks,
        begun,
    }))
}
