//! The validator sets of a chain with a registry.

use super::{META, Store, StoreError, failed};
use crate::database::Batch;
use commonware_codec::{Copying, Decode as _, DecodeExt as _, Encode, RangeCfg};
use quorate_types::{Epoch, Identity, ValidatorSet, limits::MAX_VALIDATORS};
use std::collections::BTreeSet;

/// In `meta`, followed by the first epoch of a set.
const SET: &[u8] = b"set";

fn set_key(epoch: Epoch) -> Vec<u8> {
    [SET, &epoch.0.to_be_bytes()].concat()
}

pub(super) fn stage_set(set: &ValidatorSet, batch: &mut Batch) {
    batch.put(META, set_key(set.epoch), set.encode());
}

/// In `meta`: an epoch, and who has led a final block of it.
const HEARD: &[u8] = b"heard";

/// Who has led a final block of an epoch so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    pub epoch: Epoch,
    pub leaders: BTreeSet<Identity>,
}

impl Heard {
    /// Notes the leader of a block. Returns whether that is news.
    pub fn note(&mut self, epoch: Epoch, leader: Identity) -> bool {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.leaders.clear();
        }
        self.leaders.insert(leader)
    }
}

pub(super) fn stage_heard(heard: &Heard, batch: &mut Batch) {
    let leaders: Vec<Identity> = heard.leaders.iter().copied().collect();
    batch.put(META, HEARD, (heard.epoch, leaders).encode());
}

impl Store {
    /// Who has led a final block of the newest epoch with a block.
    ///
    /// # Errors
    ///
    /// If the database cannot be read or is damaged.
    pub fn heard(&self) -> Result<Heard, StoreError> {
        let Some(row) = self.get(META, HEARD)? else {
            return Ok(Heard::default());
        };
        let config = ((), (RangeCfg::from(0..=MAX_VALIDATORS), ()));
        let read = <(Epoch, Vec<Identity>)>::decode_cfg(Copying(row.as_slice()), &config);
        let (epoch, leaders) = read.map_err(|error| self.damaged("the epoch's leaders", &error))?;
        Ok(Heard {
            epoch,
            leaders: leaders.into_iter().collect(),
        })
    }

    /// The sets that have followed the genesis file's, by their first epochs, ascending.
    ///
    /// # Errors
    ///
    /// If the database cannot be read or is damaged.
    pub fn sets(&self) -> Result<Vec<ValidatorSet>, StoreError> {
        let mut rows: Vec<Vec<u8>> = Vec::new();
        let mut keep = |key: &[u8], row: &[u8]| {
            let is_set = key.starts_with(SET) && key.len() == set_key(Epoch(0)).len();
            if is_set {
                rows.push(row.to_vec());
            }
            is_set
        };
        let read = self
            .database
            .visit(META, &set_key(Epoch(0)), None, &mut keep);
        read.map_err(|source| failed(&self.path, source))?;
        let decode = |row: &Vec<u8>| {
            let set = ValidatorSet::decode(Copying(row.as_slice()));
            set.map_err(|error| self.damaged("a validator set", &error))
        };
        rows.iter().map(decode).collect()
    }
}
