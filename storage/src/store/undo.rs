//! What the newest blocks have changed, so that the state that a final header names can be served after
//! a start.
//!
//! A header names the state after some earlier block. While a process runs, it pins states until a
//! header names one of them, but a chain that halts and is started again has no new header. Each block
//! is therefore stored with the values that it replaced, until a final block names its state or a later
//! one. From the newest state and these values comes the state that the newest final header names: of
//! accounts by putting the old values in their places, of the tree by building what they change again.

use super::{
    ACCOUNTS, META, NODES, Store, StoreError, failed, height_key,
    sync::{SnapshotRows, StateSnapshot},
};
use crate::{
    database::{Batch, DatabaseError, Rows},
    tree::{self, BUCKET_LIMIT, Prefix, SpanNodes as _, Tree, TreeError},
};
use bytes::BufMut;
use commonware_codec::{Copying, Encode, FixedSize, ReadExt, Write};
use quorate_types::{
    Account, Certificate, Digest, Header, Height, Identity, SnapshotProof, Span,
    limits::MAX_SNAPSHOT_HEADERS, state_key,
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, MutexGuard},
};

/// In `meta`, followed by a block's height.
const UNDO: &[u8] = b"undo";

/// In `meta`: the height after which every block was stored with what it replaced.
const UNDO_SINCE: &[u8] = b"since-undo";

/// What the accounts that a block changes were before it, encoded.
#[derive(Default)]
pub struct Undo(Vec<u8>);

/// By state keys; `None` for an account that there was not.
type Replaced = BTreeMap<tree::Key, Option<Account>>;

impl Undo {
    /// From the accounts before a block, of which some, ascending, are not in the state yet.
    pub fn of(before: &BTreeMap<Identity, Account>, absent: &[Identity]) -> Self {
        let mut row = Vec::with_capacity(before.len() * (Identity::SIZE + 1 + Account::PLAIN_SIZE));
        for (identity, account) in before {
            identity.write(&mut row);
            if absent.binary_search(identity).is_ok() {
                row.put_u8(0);
            } else {
                row.put_u8(1);
                account.write(&mut row);
            }
        }
        Self(row)
    }

    /// Adds what another block, an earlier one, has replaced: what it found is what there was.
    fn read_into(row: &[u8], replaced: &mut Replaced) -> Result<(), commonware_codec::Error> {
        let mut row = Copying(row);
        while bytes::Buf::has_remaining(&row) {
            let identity = Identity::read(&mut row)?;
            let account = Option::<Account>::read(&mut row)?;
            replaced.insert(state_key(&identity).0, account);
        }
        Ok(())
    }
}

impl Store {
    /// Adds the replaced values of a block to its batch, and deletes those that are not needed any longer
    /// once it is stored.
    pub(super) fn stage_undo(
        &self,
        undo: &Undo,
        header: &Header,
        is_certified: bool,
        batch: &mut Batch,
    ) {
        let mut kept = self.kept_undo();
        if !undo.0.is_empty() {
            batch.put(META, undo_key(header.height), &undo.0);
            kept.push_back(header.height);
        }
        while is_certified
            && let Some(height) = kept.front().filter(|kept| **kept <= header.executed_height)
        {
            batch.delete(META, undo_key(*height));
            kept.pop_front();
        }
    }

    /// Learns at a start what is kept, and from which height on: a database of an earlier version has
    /// blocks without it.
    pub(super) fn load_undo(&self) -> Result<(), StoreError> {
        let mut kept = self.kept_undo();
        kept.clear();
        let mut keep = |key: &[u8], _: &[u8]| {
            let height = key.strip_prefix(UNDO);
            if let Some(height) = height.and_then(|height| height.try_into().ok()) {
                kept.push_back(Height(u64::from_be_bytes(height)));
            }
            height.is_some()
        };
        let read = self.database.visit(META, UNDO, None, &mut keep);
        read.map_err(|source| failed(&self.path, source))?;
        if self.get(META, UNDO_SINCE)?.is_none() {
            let mut batch = Batch::default();
            batch.put(META, UNDO_SINCE, height_key(self.tip().height));
            self.write(&batch, false)?;
        }
        Ok(())
    }

    fn kept_undo(&self) -> MutexGuard<'_, VecDeque<Height>> {
        self.kept_undo.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Deletes all replaced values: what follows a height is about to be the state of other blocks.
    pub(super) fn stage_undo_removal(&self, since: Height, batch: &mut Batch) {
        for height in self.kept_undo().drain(..) {
            batch.delete(META, undo_key(height));
        }
        batch.put(META, UNDO_SINCE, height_key(since));
    }

    /// The state that the newest block names, and what certifies it: for the time after a start, when no
    /// state is pinned. `None` if that block has no finalization of its own, or if what the blocks since
    /// have replaced is not known. For the thread that commits.
    ///
    /// # Errors
    ///
    /// If the database cannot be read or is damaged.
    pub fn named_state(&self) -> Result<Option<(StateSnapshot, SnapshotProof)>, StoreError> {
        let tip = self.tip();
        let (Some(block), Some(finalization)) = (&tip.block, &tip.certificate) else {
            return Ok(None);
        };
        let height = block.header().executed_height;
        if tip.height.0 - height.0 >= MAX_SNAPSHOT_HEADERS as u64 {
            return Ok(None);
        }
        let mut headers = Vec::new();
        for height in (height.0..=tip.height.0).map(Height) {
            match self.block(height)? {
                Some(stored) => headers.push(*stored.block.header()),
                None => return Ok(None),
            }
        }
        let proof = SnapshotProof {
            headers,
            finalization: Certificate::clone(finalization),
            registry: None,
        };
        let state = self.state_named_by_tip()?;
        Ok(state.map(|state| (state, proof)))
    }

    /// The state that the newest block names. `None` if what the blocks since have replaced is not known. For
    /// the thread that commits.
    pub(super) fn state_named_by_tip(&self) -> Result<Option<StateSnapshot>, StoreError> {
        let tip = self.tip();
        let Some(block) = &tip.block else {
            return Ok(None);
        };
        let Header {
            executed_height: height,
            state_root: root,
            ..
        } = *block.header();
        let since = self.height_in(UNDO_SINCE)?;
        if height == Height(0) || since.is_none_or(|since| height < since) {
            return Ok(None);
        }
        let mut replaced = Replaced::new();
        for height in (height.next().0..=tip.height.0).rev().map(Height) {
            // A block that has changed nothing has none.
            let row = self.get(META, &undo_key(height))?.unwrap_or_default();
            let read = Undo::read_into(&row, &mut replaced);
            read.map_err(|error| self.damaged("replaced values", &error))?;
        }
        let newest = self.database.snapshot();
        let undone = Undone::open(newest, height, &replaced);
        let (undone, made) = undone.map_err(|error| self.tree_error(error))?;
        // If not, a program that does not store what blocks replace has written some of them.
        Ok((made == root).then(|| self.state_of((height, root), Arc::new(undone))))
    }
}

fn undo_key(height: Height) -> [u8; UNDO.len() + 8] {
    let mut key = [0; UNDO.len() + 8];
    let (name, number) = key.split_at_mut(UNDO.len());
    name.copy_from_slice(UNDO);
    number.copy_from_slice(&height_key(height));
    key
}

/// Rows of an earlier state, over those of a later one.
struct Undone {
    later: Arc<dyn Rows>,
    /// Whole rows.
    accounts: BTreeMap<tree::Key, Option<Vec<u8>>>,
    nodes: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Undone {
    /// The rows of the state after a block, some of whose accounts were replaced since; and its root.
    fn open(
        later: Arc<dyn Rows>,
        height: Height,
        replaced: &Replaced,
    ) -> Result<(Self, Digest), TreeError> {
        // At that height at the latest they were changed: a receiver gets rather too many.
        let row = |account: &Account| (account.clone(), height).encode().to_vec();
        let mut undone = Self {
            later: later.clone(),
            accounts: replaced
                .iter()
                .map(|(key, account)| (*key, account.as_ref().map(row)))
                .collect(),
            nodes: BTreeMap::new(),
        };
        let keys: Vec<tree::Key> = replaced.keys().copied().collect();
        let tree = Tree::open(SnapshotRows(later))?;
        let changes = tree.reverted(&keys, &mut |prefix| undone.entries(prefix))?;
        let nodes = changes.rows();
        undone.nodes = nodes
            .map(|(key, row)| (key.as_ref().to_vec(), row.to_vec()))
            .collect();
        Ok((undone, changes.root()))
    }

    /// The entries under a prefix, or more than a bucket may have.
    fn entries(&self, prefix: &Prefix) -> Result<Vec<(tree::Key, Vec<u8>)>, TreeError> {
        let span = Span::under(prefix).ok_or(TreeError::Corrupt {
            prefix: *prefix,
            what: "deeper than any node",
        })?;
        let mut entries = Vec::new();
        let mut collect = |key: &[u8], row: &[u8]| {
            if let Ok(key) = key.try_into() {
                let value = &row[..row.len().saturating_sub(Height::SIZE)];
                entries.push((key, value.to_vec()));
            }
            entries.len() <= BUCKET_LIMIT
        };
        let after = span.after();
        let below = after.as_ref().map(|key| &key[..]);
        self.visit(ACCOUNTS, span.first(), below, &mut collect)?;
        Ok(entries)
    }
}

impl Rows for Undone {
    fn get_sorted(
        &self,
        column: &'static str,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Vec<u8>>>, DatabaseError> {
        let mut values = self.later.get_sorted(column, keys)?;
        for (key, value) in keys.iter().zip(&mut values) {
            match column {
                NODES => {
                    if let Some(row) = self.nodes.get(*key) {
                        *value = Some(row.clone());
                    }
                }
                ACCOUNTS => {
                    if let Some(row) = self.accounts.get(*key) {
                        value.clone_from(row);
                    }
                }
                _ => {}
            }
        }
        Ok(values)
    }

    fn visit(
        &self,
        column: &'static str,
        from: &[u8],
        below: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), DatabaseError> {
        // Accounts are never deleted, so each that was replaced is among the later ones.
        self.later.visit(column, from, below, &mut |key, row| {
            let undone = (column == ACCOUNTS).then(|| self.accounts.get(key));
            match undone.flatten() {
                Some(Some(row)) => visit(key, row),
                Some(None) => true,
                None => visit(key, row),
            }
        })
    }
}
