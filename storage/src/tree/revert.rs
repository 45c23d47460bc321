//! The tree as it was before changes that are known to have been made.
//!
//! Keys are only ever added, so a prefix that had enough of them for a branch still has one. What was
//! changed is built again from the entries that there were; everything beside it is taken over.

use super::{
    BUCKET_LIMIT, Changeset, Key, NodeStore, Prefix, Tree, TreeError,
    hash::{Branch, EntryRef, by_nibble},
    path::nibble,
    row::{self, Row},
    rows::RowWriter,
};
use quorate_crypto::Digest;

/// Entries in the order of their keys.
type Entries = Vec<(Key, Vec<u8>)>;

impl<S: NodeStore> Tree<S> {
    /// What leads back to the tree before some keys, ascending, were changed or added. `earlier` returns the entries
    /// that there were under a prefix: all, or more than [`BUCKET_LIMIT`] of them.
    ///
    /// # Errors
    ///
    /// If the store cannot be read or is damaged, or `earlier` fails.
    pub(crate) fn reverted(
        &self,
        changed: &[Key],
        earlier: &mut dyn FnMut(&Prefix) -> Result<Entries, TreeError>,
    ) -> Result<Changeset, TreeError> {
        let keys: Vec<EntryRef<'_>> = changed
            .iter()
            .map(|key| EntryRef { key, value: &[] })
            .collect();
        let mut revert = Revert {
            tree: self,
            earlier,
            rows: RowWriter::with_capacity(2 * keys.len() + 1, 0),
        };
        let root = revert.node(Prefix::ROOT, self.root, &keys)?;
        Ok(Changeset::new(self.root, root, revert.rows))
    }
}

struct Revert<'t, S> {
    tree: &'t Tree<S>,
    earlier: &'t mut dyn FnMut(&Prefix) -> Result<Entries, TreeError>,
    rows: RowWriter,
}

impl<S: NodeStore> Revert<'_, S> {
    /// The earlier hash of the node at a prefix whose hash is `now`.
    fn node(
        &mut self,
        prefix: Prefix,
        now: Digest,
        changed: &[EntryRef<'_>],
    ) -> Result<Digest, TreeError> {
        if changed.is_empty() {
            return Ok(now);
        }
        let entries = (self.earlier)(&prefix)?;
        if entries.is_empty() {
            return Ok(Digest::ZERO);
        }
        if entries.len() <= BUCKET_LIMIT {
            let entries: Vec<_> = entries
                .iter()
                .map(|(key, value)| EntryRef { key, value })
                .collect();
            return Ok(self.rows.build(prefix, &entries));
        }
        let mut branch = Box::new(self.branch(&prefix)?);
        let mut changes = Vec::new();
        for group in by_nibble(prefix.len(), changed) {
            let nibble = nibble(group[0].key, prefix.len());
            let child = self.node(prefix.extended(nibble), branch.child(nibble), group)?;
            changes.push((nibble, child));
        }
        branch.replace(&changes);
        Ok(self.rows.put_branch(prefix, branch))
    }

    fn branch(&self, prefix: &Prefix) -> Result<Branch, TreeError> {
        if let Some(branch) = self.tree.cached(prefix) {
            return Ok(branch.clone());
        }
        match row::decode(prefix, &self.tree.row(prefix)?)? {
            Row::Branch(children) => Ok(Branch::new(children)),
            Row::Bucket(_) => Err(TreeError::Corrupt {
                prefix: *prefix,
                what: "bucket, not a branch",
            }),
        }
    }
}
