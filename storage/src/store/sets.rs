//! The validator sets of a chain with a registry, and what proves them.

use super::{META, Store, StoreError, StoredTip, failed, sync::StateSnapshot};
use crate::{database::Batch, tree};
use bytes::Bytes;
use commonware_codec::{Copying, DecodeExt as _, Encode};
use quorate_types::{
    Account, Certificate, ChainId, Committees, Digest, Epoch, EpochLength, Handover, HandoverFlaw,
    Header, REGISTRY, RegistryNote, SnapshotFlaw, SnapshotProof, SnapshotRegistry, ValidatorSet,
    limits::MAX_HANDOVERS, state_key,
};

/// In `meta`, followed by the first epoch of a set.
const SET: &[u8] = b"set";

/// In `meta`, followed by the first epoch of the new validators.
const HANDOVER: &[u8] = b"handover";

fn key(name: &[u8], epoch: Epoch) -> Vec<u8> {
    [name, &epoch.0.to_be_bytes()].concat()
}

pub(super) fn stage_set(set: &ValidatorSet, batch: &mut Batch) {
    batch.put(META, key(SET, set.epoch), set.encode());
}

pub(super) fn stage_handover(handover: &Handover, batch: &mut Batch) {
    stage_set(&handover.set, batch);
    batch.put(META, key(HANDOVER, handover.set.epoch), handover.encode());
}

/// What a proof of the account [`REGISTRY`] says about the validators of an epoch.
///
/// # Errors
///
/// If it is no proof of that account in the state with this root.
fn proven_note(proof: &Bytes, root: &Digest) -> Option<RegistryNote> {
    let proof = tree::Proof::decode(Copying(proof)).ok()?;
    let value = proof.verify(root, &state_key(&REGISTRY).0).ok()?;
    // Before any block of a leader is executed, the account is not there.
    let account = value.map_or(Ok(Account::default()), |value| {
        Account::decode(Copying(value))
    });
    Some(account.ok()?.note.map(|note| *note).unwrap_or_default())
}

/// Follows handovers from the newest validators that are known, and adds the sets that they prove. `verify`
/// verifies a finalization with what `committees` knows. Returns those that were news, and the flaw of the
/// first that proves nothing; what is behind it is not looked at.
pub fn adopt_handovers(
    handovers: &[Handover],
    committees: &Committees,
    (chain, length): (&ChainId, EpochLength),
    verify: &dyn Fn(&Certificate) -> bool,
) -> (Vec<Handover>, Option<HandoverFlaw>) {
    let mut adopted = Vec::new();
    for handover in handovers {
        if handover.set.epoch <= committees.newest() {
            continue;
        }
        let note = proven_note(&handover.proof, &handover.header.state_root);
        let checked = note
            .ok_or(HandoverFlaw::OtherSet)
            .and_then(|note| handover.check(chain, length, &note))
            .and_then(|()| match verify(&handover.finalization) {
                true => Ok(()),
                false => Err(HandoverFlaw::Unsigned),
            });
        if let Err(flaw) = checked {
            return (adopted, Some(flaw));
        }
        committees.adopt(handover.set.clone());
        adopted.push(handover.clone());
    }
    (adopted, None)
}

/// What a snapshot's state says about the next validators: the set, if it fixes them and they are not those
/// of the snapshot's own epoch. Everything but the finalization is checked.
///
/// # Errors
///
/// [`SnapshotFlaw`] if the description is no proof, or the set is not the one that the state names.
pub fn next_of_snapshot(
    proof: &SnapshotProof,
    (chain, length): (&ChainId, EpochLength),
    acting: &ValidatorSet,
) -> Result<Option<ValidatorSet>, SnapshotFlaw> {
    let subject = proof.check(chain)?;
    // Otherwise former validators could sign states of any height.
    let in_epoch = |header: &Header| length.epoch_of(header.height) == header.epoch;
    if !proof.headers.iter().all(in_epoch) {
        return Err(SnapshotFlaw::OtherEpoch);
    }
    let registry = proof.registry.as_ref().ok_or(SnapshotFlaw::Registry)?;
    let note = proven_note(&registry.proof, &subject.root).ok_or(SnapshotFlaw::Registry)?;
    let Some(next) = note.next.filter(|_| note.epoch == acting.epoch) else {
        return Ok(None);
    };
    if acting.clone().of_epoch(acting.epoch.next()).digest() == next {
        return Ok(None);
    }
    let set = registry.next.as_ref();
    let set = set.filter(|set| set.epoch == acting.epoch.next() && set.digest() == next);
    set.cloned().map(Some).ok_or(SnapshotFlaw::Registry)
}

impl Store {
    /// The sets that have followed the genesis file's, by their first epochs, ascending.
    ///
    /// # Errors
    ///
    /// If the database cannot be read or is damaged.
    pub fn sets(&self) -> Result<Vec<ValidatorSet>, StoreError> {
        let rows = self.rows_named(SET, Epoch(0), (usize::MAX, usize::MAX))?;
        let decode = |row: &Vec<u8>| {
            let set = ValidatorSet::decode(Copying(row.as_slice()));
            set.map_err(|error| self.damaged("a validator set", &error))
        };
        rows.iter().map(decode).collect()
    }

    /// The changes of the validators after an epoch, the oldest first, until they have so many
    /// bytes.
    ///
    /// # Errors
    ///
    /// If the database cannot be read or is damaged.
    pub fn handovers(&self, after: Epoch, most_bytes: usize) -> Result<Vec<Handover>, StoreError> {
        let most = (MAX_HANDOVERS, most_bytes);
        let rows = self.rows_named(HANDOVER, after.next(), most)?;
        let decode = |row: &Vec<u8>| {
            let handover = Handover::decode(Copying(row.as_slice()));
            handover.map_err(|error| self.damaged("a handover", &error))
        };
        rows.iter().map(decode).collect()
    }

    /// The rows of a name from an epoch on, until they are so many or have so many bytes.
    fn rows_named(
        &self,
        name: &[u8],
        from: Epoch,
        (most, most_bytes): (usize, usize),
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let mut rows: Vec<Vec<u8>> = Vec::new();
        let mut bytes = 0;
        let mut keep = |row_key: &[u8], row: &[u8]| {
            let is_named = row_key.starts_with(name) && row_key.len() == name.len() + 8;
            if is_named {
                bytes += row.len();
                rows.push(row.to_vec());
            }
            is_named && rows.len() < most && bytes < most_bytes
        };
        let read = (self.database).visit(META, &key(name, from), None, &mut keep);
        read.map_err(|source| failed(&self.path, source))?;
        Ok(rows)
    }

    /// Stores the handover to the validators of the next epoch, if the newest block is the last of its epoch
    /// and they are others. For the thread that commits, after that block; a process that ends between the
    /// two does it at its next start. Has no effect if it is stored already.
    ///
    /// # Errors
    ///
    /// If the database fails or is damaged: halt.
    pub fn keep_handover(&self, length: EpochLength) -> Result<(), StoreError> {
        let StoredTip {
            block: Some(block),
            certificate: Some(finalization),
            ..
        } = self.tip()
        else {
            return Ok(());
        };
        let header = *block.header();
        let next = header.epoch.next();
        if !length.is_last(header.height) || !length.names_next_set(&header) {
            return Ok(());
        }
        let Some(row) = self.get(META, &key(SET, next))? else {
            return Ok(());
        };
        if self.is_handed_over(next)? {
            return Ok(());
        }
        let Some(state) = self.state_named_by_tip()? else {
            return Ok(());
        };
        let set = ValidatorSet::decode(Copying(row.as_slice()));
        let handover = Handover {
            header,
            finalization,
            proof: state.prove(&state_key(&REGISTRY).0)?.encode(),
            set: set.map_err(|error| self.damaged("a validator set", &error))?,
        };
        let mut batch = Batch::default();
        stage_handover(&handover, &mut batch);
        self.write(&batch, false)
    }

    /// Forgets the sets of epochs after this one that no handover proves: this node's own state fixed them, and is
    /// given up for a later one, of a chain on which the validators may have stayed. For a database in state sync
    /// only: execution needs them.
    ///
    /// # Errors
    ///
    /// If the database fails or is damaged: halt.
    pub fn forget_coming_sets(&self, acting: Epoch) -> Result<(), StoreError> {
        let mut batch = Batch::default();
        for set in self.sets()? {
            if set.epoch > acting && !self.is_handed_over(set.epoch)? {
                batch.delete(META, key(SET, set.epoch));
            }
        }
        self.write(&batch, true)
    }

    /// The sets that this database knows for certain, by their first epochs, ascending: those up to an epoch that
    /// has begun here, and those that handovers prove. What the state has fixed for the next one is not handed over
    /// before its last block is final.
    ///
    /// # Errors
    ///
    /// If the database cannot be read or is damaged.
    pub fn certain_sets(&self, acting: Epoch) -> Result<Vec<ValidatorSet>, StoreError> {
        let mut certain = Vec::new();
        for set in self.sets()? {
            if set.epoch <= acting || self.is_handed_over(set.epoch)? {
                certain.push(set);
            }
        }
        Ok(certain)
    }

    /// Whether a handover proves the set of an epoch.
    fn is_handed_over(&self, epoch: Epoch) -> Result<bool, StoreError> {
        Ok(self.get(META, &key(HANDOVER, epoch))?.is_some())
    }

    /// Stores handovers that were verified, during state sync.
    ///
    /// # Errors
    ///
    /// If the database fails: halt.
    pub fn take_handovers(&self, handovers: &[Handover]) -> Result<(), StoreError> {
        let mut batch = Batch::default();
        for handover in handovers {
            stage_handover(handover, &mut batch);
        }
        self.write(&batch, true)
    }

    /// What a state says about the validators, for its snapshot's description. `None` if the set that it names
    /// is not stored.
    ///
    /// # Errors
    ///
    /// If the database cannot be read or is damaged.
    pub fn registry_of(
        &self,
        state: &StateSnapshot,
    ) -> Result<Option<SnapshotRegistry>, StoreError> {
        let proof = state.prove(&state_key(&REGISTRY).0)?.encode();
        let note = proven_note(&proof, &state.root()).unwrap_or_default();
        let Some(digest) = note.next else {
            return Ok(Some(SnapshotRegistry { proof, next: None }));
        };
        let sets = self.sets()?;
        if let Some(set) = sets.iter().find(|set| set.digest() == digest) {
            let next = Some(set.clone());
            return Ok(Some(SnapshotRegistry { proof, next }));
        }
        // Those of the epoch stay, and are stored at their first one, or in the genesis file.
        let later = sets.iter().any(|set| set.epoch == note.epoch.next());
        Ok((!later).then_some(SnapshotRegistry { proof, next: None }))
    }
}
