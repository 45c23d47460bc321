//! The validators of each epoch, as the database knows them, and their keys.

use parking_lot::Mutex;
use quorate_crypto::bls::{HashedMessage, Scheme};
use quorate_storage::store::Store;
use quorate_types::{
    Certificate, ChainId, Committees, Epoch, EpochLength, Height, ValidatorSet, genesis::Genesis,
    roster,
};
use std::{collections::BTreeMap, sync::Arc};

/// Schemes that are kept: of the newest epochs that were asked for.
const MAX_SCHEMES: usize = 16;

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
    let fixed_to = fixed_to(genesis.epoch_blocks, tip);
    let roster = roster(&store.bonds()?);
    Ok(Committees::changing(sets, fixed_to, acting, roster)?)
}

/// The last epoch whose validators the state after this height fixes.
fn fixed_to(length: EpochLength, tip: Height) -> Epoch {
    let epoch = length.epoch_of(tip.next());
    if tip >= length.fixing_height(epoch) {
        epoch.next()
    } else {
        epoch
    }
}

/// Verifies certificates of all epochs whose validators are known. Cheap to clone.
#[derive(Clone)]
pub struct EpochKeys {
    chain: ChainId,
    committees: Committees,
    genesis: Scheme,
    schemes: Arc<Mutex<BTreeMap<Epoch, Scheme>>>,
}

impl EpochKeys {
    /// `genesis` is the scheme of the genesis file.
    pub fn new(chain: ChainId, committees: Committees, genesis: Scheme) -> Self {
        Self {
            chain,
            committees,
            genesis,
            schemes: Arc::default(),
        }
    }

    /// The scheme of an epoch; `None` if its validators are not known here.
    pub fn scheme(&self, epoch: Epoch) -> Option<Scheme> {
        if !self.committees.can_change() {
            return Some(self.genesis.clone());
        }
        if let Some(scheme) = self.schemes.lock().get(&epoch) {
            return Some(scheme.clone());
        }
        let scheme = self.committees.set(epoch)?.scheme().ok()?;
        let mut schemes = self.schemes.lock();
        schemes.insert(epoch, scheme.clone());
        while schemes.len() > MAX_SCHEMES {
            schemes.pop_first();
        }
        Some(scheme)
    }

    /// Whether a quorum of its epoch's validators stands behind a certificate.
    pub fn verify(&self, certificate: &Certificate) -> bool {
        let message = HashedMessage::new(&certificate.subject.signed_bytes(&self.chain));
        self.scheme(certificate.subject.epoch)
            .is_some_and(|scheme| scheme.verify(&message, &certificate.proof))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_an_epoch_fixes_the_next_one() {
        let length = EpochLength::new(16).expect("not zero");
        let fixed = |height| fixed_to(length, Height(height)).0;
        assert_eq!([0, 7].map(fixed), [0, 0]);
        assert_eq!([8, 15, 16, 23].map(fixed), [1, 1, 1, 1]);
        assert_eq!([24, 32, 39, 40].map(fixed), [2, 2, 2, 3]);
    }
}
