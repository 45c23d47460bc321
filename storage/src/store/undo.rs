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
use commonware_codec::{Copying, Encode, ReadExt, Write};
use quorate_types::{
    Account, Certificate, Header, Height, Identity, SnapshotProof, Span,
    limits::MAX_SNAPSHOT_HEADERS, state_key,
};
use std::{collections::BTreeMap, sync::Arc};

/// In `meta`, followed by a block's height.
const UNDO: &[u8] = b"undo";

/// What the accounts that a block changes were before it, encoded.
#[derive(Default)]
pub struct Undo(Vec<u8>);

/// By state keys; `None` for an account that there was not.
pub(super) type Replaced = BTreeMap<tree::Key, Option<Account>>;

impl Undo {
    /// From the accounts before a block, of which some, ascending, are not in the state yet.
    pub fn of(before: &BTreeMap<Identity, Account>, absent: &[Identity]) -> Self {
        let mut row = Vec::with_capacity(before.len() * (32 + 1 + 16));
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
        batch.put(META, undo_key(header.height), &undo.0);
        if is_certified {
            let mut kept = self.undo_from.lock().unwrap_or_else(|e| e.into_inner());
            while *kept <= header.executed_height {
                batch.delete(META, undo_key(*kept));
                *kept = kept.next();
            }
        }
    }

    /// The first height whose replaced values are kept.
    pub(super) fn first_undo(&self) -> Result<Height, StoreError> {
        let rows = self.database.rows_from(META, UNDO, 1);
        let rows = rows.map_err(|source| failed(&self.path, source))?;
        let height = rows.first().and_then(|(key, _)| key.strip_prefix(UNDO));
        let height = height.and_then(|height| height.try_into().ok());
        Ok(height.map_or(self.tip().height.next(), |height| {
            Height(u64::from_be_bytes(height))
        }))
    }

    /// Deletes all replaced values: the state is about to be another one.
    pub(super) fn stage_undo_removal(&self, batch: &mut Batch) -> Result<(), StoreError> {
        let mut remove = |key: &[u8], _: &[u8]| {
            let is_one = key.starts_with(UNDO);
            if is_one {
                batch.delete(META, key);
            }
            is_one
        };
        let read = self.database.visit(META, UNDO, None, &mut remove);
        read.map_err(|source| failed(&self.path, source))
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
        let Header {
            executed_height: height,
            state_root: root,
            ..
        } = *block.header();
        let count = tip.height.0 - height.0 + 1;
        if height == Height(0) || count > MAX_SNAPSHOT_HEADERS as u64 {
            return Ok(None);
        }
        let mut headers = Vec::new();
        for height in (height.0..=tip.height.0).map(Height) {
            match self.block(height)? {
                Some(stored) => headers.push(*stored.block.header()),
                None => return Ok(None),
            }
        }
        let mut replaced = Replaced::new();
        for height in (height.next().0..=tip.height.0).rev().map(Height) {
            let Some(row) = self.get(META, &undo_key(height))? else {
                return Ok(None);
            };
            let read = Undo::read_into(&row, &mut replaced);
            read.map_err(|error| self.damaged("replaced values", &error))?;
        }
        let proof = SnapshotProof {
            headers,
            finalization: Certificate::clone(finalization),
        };
        Ok(Some((self.pin_before(height, root, replaced), proof)))
    }
}

fn undo_key(height: Height) -> Vec<u8> {
    [UNDO, &height_key(height)].concat()
}

/// Rows of an earlier state, over those of a later one.
pub(super) struct Undone {
    later: Arc<dyn Rows>,
    /// Whole rows.
    accounts: BTreeMap<tree::Key, Option<Vec<u8>>>,
    nodes: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Undone {
    /// The rows of the state after a block, some of whose accounts were replaced since.
    pub(super) fn open(
        later: Arc<dyn Rows>,
        height: Height,
        replaced: &Replaced,
    ) -> Result<Self, TreeError> {
        // At that height at the latest they were changed: a receiver gets rather too many.
        let row = |account: &Account| (*account, height).encode().to_vec();
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
        Ok(undone)
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
                let value = &row[..row.len().saturating_sub(8)];
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
