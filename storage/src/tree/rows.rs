//! Rows that are to be written.

use super::{
    BUCKET_LIMIT,
    hash::{Branch, EntryRef, FAN_OUT, bucket_hash, by_nibble},
    path::{Prefix, RowKey, nibble},
    row, upper,
};
use quorate_crypto::Digest;
use std::ops::Range;

/// Rows that are to be written, and the branches among them that are kept in memory.
#[derive(Default)]
pub(super) struct RowWriter {
    /// The range of each row in `bytes`.
    rows: Vec<(RowKey, Range<usize>)>,
    bytes: Vec<u8>,
    branches: Vec<(usize, Box<Branch>)>,
}

impl RowWriter {
    pub(super) fn with_capacity(rows: usize, bytes: usize) -> Self {
        Self {
            rows: Vec::with_capacity(rows),
            bytes: Vec::with_capacity(bytes),
            branches: Vec::new(),
        }
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (&RowKey, &[u8])> {
        self.rows
            .iter()
            .map(|(key, range)| (key, &self.bytes[range.clone()]))
    }

    /// The bytes of all rows with their keys.
    pub(super) fn size_bytes(&self) -> usize {
        let keys = self.rows.iter().map(|(key, _)| key.as_ref().len());
        self.bytes.len() + keys.sum::<usize>()
    }

    /// Brings the rows into the order of their keys, which begin with the level. Most were put in order within each
    /// level, where this saves comparing whole keys.
    pub(super) fn sort(&mut self) {
        self.rows.sort_by_key(|(key, _)| key.as_ref()[0]);
        let is_before = |left: &RowKey, right: &RowKey| left.as_ref() < right.as_ref();
        if !(self.rows).is_sorted_by(|(left, _), (right, _)| is_before(left, right)) {
            (self.rows).sort_unstable_by(|(left, _), (right, _)| left.as_ref().cmp(right.as_ref()));
        }
    }

    /// The branches that are kept in memory, with their slots.
    pub(super) fn into_branches(self) -> Vec<(usize, Box<Branch>)> {
        self.branches
    }

    /// Writes which root the rows belong to.
    pub(super) fn put_root(&mut self, root: &Digest) {
        self.put_row(RowKey::META, |row| row::encode_meta(root, row));
    }

    /// Makes the subtree that holds exactly these entries, at least one.
    pub(super) fn build(&mut self, prefix: Prefix, entries: &[EntryRef<'_>]) -> Digest {
        if entries.len() <= BUCKET_LIMIT {
            self.put_row(prefix.row_key(), |row| row::encode_bucket(entries, row));
            return bucket_hash(prefix.bits(), entries);
        }
        let mut children = [[0; 32]; FAN_OUT];
        for group in by_nibble(prefix.len(), entries) {
            let nibble = nibble(group[0].key, prefix.len());
            children[usize::from(nibble)] = self.build(prefix.extended(nibble), group).0;
        }
        self.put_branch(prefix, Box::new(Branch::new(&children)))
    }

    pub(super) fn put_branch(&mut self, prefix: Prefix, branch: Box<Branch>) -> Digest {
        let hash = branch.hash();
        self.put_row(prefix.row_key(), |row| {
            row::encode_branch(branch.children(), row)
        });
        if let Some(slot) = upper::slot(&prefix) {
            self.branches.push((slot, branch));
        }
        hash
    }

    fn put_row(&mut self, key: RowKey, encode: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        encode(&mut self.bytes);
        self.rows.push((key, start..self.bytes.len()));
    }
}
