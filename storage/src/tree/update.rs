//! Applying a block's changes: all rows that they touch are read first, then hashed again from the
//! bottom up.

use super::{
    Key, MAX_VALUE_BYTES, NodeStore, Tree, TreeError,
    hash::{Branch, EntryRef, by_nibble},
    path::{Prefix, RowKey, nibble},
    row::{self, Row},
    rows::RowWriter,
};
use quorate_crypto::Digest;
use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet, HashMap},
};

/// What a changed key makes in rows with a million accounts: only a guess, to reserve memory.
const ROW_BYTES_PER_KEY: usize = 1536;

/// What [`Tree::prepare`] found: the rows to write, the new root, and the new upper branches.
///
/// Write the rows, then give it to [`Tree::commit`]; or drop it, and nothing has changed.
pub struct Changeset {
    before: Digest,
    root: Digest,
    rows: RowWriter,
}

impl Changeset {
    /// These rows, which lead from one root to another.
    pub(super) fn new(before: Digest, root: Digest, mut rows: RowWriter) -> Self {
        rows.put_root(&root);
        rows.sort();
        Self { before, root, rows }
    }

    /// The root before the changes.
    pub fn before(&self) -> Digest {
        self.before
    }

    /// The root after the changes.
    pub fn root(&self) -> Digest {
        self.root
    }

    /// The rows to write, each key once and in ascending order; an existing row is replaced.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = (&RowKey, &[u8])> {
        self.rows.iter()
    }

    /// The bytes of all rows with their keys, to reserve them in a batch.
    pub fn size_bytes(&self) -> usize {
        self.rows.size_bytes()
    }
}

/// The rows on the paths to some keys, read at once by [`Tree::load`].
///
/// About 800 bytes for each key.
pub struct Loaded {
    root: Digest,
    rows: HashMap<Prefix, Vec<u8>>,
}

impl<S: NodeStore> Tree<S> {
    /// Reads what is needed to execute a block that touches these keys: one batch of rows for each
    /// level of the trie, which is faster than key by key, and none is read again by
    /// [`Tree::prepare`].
    ///
    /// # Errors
    /// [`TreeError`] if the store cannot be read or is damaged.
    pub fn load(&self, keys: &BTreeSet<Key>) -> Result<Loaded, TreeError> {
        let mut loaded = Loaded {
            root: self.root,
            rows: HashMap::new(),
        };
        let keys: Vec<EntryRef<'_>> = keys
            .iter()
            .map(|key| EntryRef { key, value: &[] })
            .collect();
        self.load_missing(&keys, &mut loaded.rows)?;
        Ok(loaded)
    }

    /// The value of a key, or `None` if it never had one; as [`Tree::get`], but without reading
    /// from the store if the key is among the loaded ones.
    ///
    /// # Errors
    /// [`TreeError`] if the store cannot be read or is damaged.
    ///
    /// # Panics
    /// If the rows were loaded before the last commit.
    pub fn get_loaded(&self, loaded: &Loaded, key: &Key) -> Result<Option<Vec<u8>>, TreeError> {
        assert!(
            loaded.root == self.root,
            "the loaded rows belong to another root"
        );
        self.find(key, Some(&loaded.rows))
    }

    /// Computes what a block's changes make of the tree, without changing anything.
    ///
    /// Each key gets its new value, whether or not it had one. Changes that change nothing write
    /// nothing but the root's row.
    ///
    /// # Errors
    /// [`TreeError::ValueTooLong`] if a value exceeds [`MAX_VALUE_BYTES`]: a fault of the caller.
    /// Otherwise the store cannot be read or is damaged, and the node should halt.
    pub fn prepare(&self, updates: &BTreeMap<Key, Vec<u8>>) -> Result<Changeset, TreeError> {
        self.prepare_loaded(
            Loaded {
                root: self.root,
                rows: HashMap::new(),
            },
            updates,
        )
    }

    /// As [`Tree::prepare`], but reads from the store only the rows that are not loaded.
    ///
    /// # Errors
    /// As [`Tree::prepare`].
    ///
    /// # Panics
    /// If the rows were loaded before the last commit.
    pub fn prepare_loaded(
        &self,
        mut loaded: Loaded,
        updates: &BTreeMap<Key, Vec<u8>>,
    ) -> Result<Changeset, TreeError> {
        assert!(
            loaded.root == self.root,
            "the loaded rows belong to another root"
        );
        if let Some((key, value)) = updates
            .iter()
            .find(|(_, value)| value.len() > MAX_VALUE_BYTES)
        {
            return Err(TreeError::ValueTooLong {
                key: *key,
                bytes: value.len(),
            });
        }
        let updates: Vec<EntryRef<'_>> = updates
            .iter()
            .map(|(key, value)| EntryRef { key, value })
            .collect();
        self.load_missing(&updates, &mut loaded.rows)?;
        let mut update = Update {
            tree: self,
            loaded: loaded.rows,
            rows: RowWriter::with_capacity(
                2 * updates.len() + 1,
                updates.len() * ROW_BYTES_PER_KEY,
            ),
        };
        let root = update.apply(Prefix::ROOT, self.root, &updates)?;
        Ok(Changeset::new(self.root, root, update.rows))
    }

    /// Adopts a changeset whose rows have been written.
    ///
    /// # Panics
    /// If the changeset was not prepared from the present root: what is in the store no longer fits
    /// together then.
    pub fn commit(&mut self, changes: Changeset) {
        assert!(
            changes.before == self.root,
            "the changeset belongs to another root"
        );
        self.root = changes.root;
        for (slot, branch) in changes.rows.into_branches() {
            self.upper[slot] = Some(branch);
        }
    }

    /// Reads the rows on the paths to the keys, one batch for each level below the cached ones.
    fn load_missing(
        &self,
        keys: &[EntryRef<'_>],
        rows: &mut HashMap<Prefix, Vec<u8>>,
    ) -> Result<(), TreeError> {
        let mut level = Vec::new();
        if self.root != Digest::ZERO && !keys.is_empty() {
            level.push((Prefix::ROOT, keys));
        }
        while !level.is_empty() {
            let mut next = Vec::new();
            let mut missing = Vec::new();
            for (prefix, group) in level {
                if let Some(branch) = self.cached(&prefix) {
                    descend(
                        &prefix,
                        |n| branch.child(n) != Digest::ZERO,
                        group,
                        &mut next,
                    );
                } else if let Some(bytes) = rows.get(&prefix) {
                    if let Some(children) = row::branch_children(&prefix, bytes)? {
                        descend(
                            &prefix,
                            |n| children[usize::from(n)] != Digest::ZERO.0,
                            group,
                            &mut next,
                        );
                    }
                } else {
                    missing.push((prefix, group));
                }
            }
            let row_keys: Vec<_> = missing.iter().map(|(prefix, _)| prefix.row_key()).collect();
            let answers = self.store.get_sorted(&row_keys)?;
            for ((prefix, group), answer) in missing.into_iter().zip(answers) {
                let bytes = answer.ok_or(TreeError::Corrupt {
                    prefix,
                    what: "missing row",
                })?;
                if let Some(children) = row::branch_children(&prefix, &bytes)? {
                    descend(
                        &prefix,
                        |n| children[usize::from(n)] != Digest::ZERO.0,
                        group,
                        &mut next,
                    );
                }
                rows.insert(prefix, bytes);
            }
            level = next;
        }
        Ok(())
    }
}

/// Adds the children that exist and have keys in the group.
fn descend<'s, 'e>(
    prefix: &Prefix,
    exists: impl Fn(u8) -> bool,
    group: &'s [EntryRef<'e>],
    next: &mut Vec<(Prefix, &'s [EntryRef<'e>])>,
) {
    for part in by_nibble(prefix.len(), group) {
        let nibble = nibble(part[0].key, prefix.len());
        if exists(nibble) {
            next.push((prefix.extended(nibble), part));
        }
    }
}

/// One pass over the tree.
struct Update<'t, S> {
    tree: &'t Tree<S>,
    loaded: HashMap<Prefix, Vec<u8>>,
    rows: RowWriter,
}

impl<S: NodeStore> Update<'_, S> {
    /// The new hash of the node at a prefix whose hash was `old`.
    fn apply(
        &mut self,
        prefix: Prefix,
        old: Digest,
        updates: &[EntryRef<'_>],
    ) -> Result<Digest, TreeError> {
        if updates.is_empty() {
            return Ok(old);
        }
        if old == Digest::ZERO {
            return Ok(self.rows.build(prefix, updates));
        }
        if let Some(branch) = self.tree.cached(&prefix) {
            return self.apply_to_branch(prefix, Box::new(branch.clone()), updates);
        }
        let bytes = self.loaded.remove(&prefix).ok_or(TreeError::Corrupt {
            prefix,
            what: "row that was not loaded",
        })?;
        match row::decode(&prefix, &bytes)? {
            Row::Branch(children) => {
                let branch = Branch::new(children);
                if branch.hash() != old {
                    return Err(TreeError::Corrupt {
                        prefix,
                        what: "hash",
                    });
                }
                self.apply_to_branch(prefix, Box::new(branch), updates)
            }
            Row::Bucket(entries) => Ok(match merge(&entries, updates) {
                Some(merged) => self.rows.build(prefix, &merged),
                None => old,
            }),
        }
    }

    fn apply_to_branch(
        &mut self,
        prefix: Prefix,
        mut branch: Box<Branch>,
        updates: &[EntryRef<'_>],
    ) -> Result<Digest, TreeError> {
        let mut changes = Vec::with_capacity(updates.len().min(16));
        for group in by_nibble(prefix.len(), updates) {
            let nibble = nibble(group[0].key, prefix.len());
            let old = branch.child(nibble);
            let new = self.apply(prefix.extended(nibble), old, group)?;
            if new != old {
                changes.push((nibble, new));
            }
        }
        if changes.is_empty() {
            return Ok(branch.hash());
        }
        branch.replace(&changes);
        Ok(self.rows.put_branch(prefix, branch))
    }
}

/// The union of two sorted lists, the second one winning, or `None` if it equals the first.
fn merge<'a>(old: &[EntryRef<'a>], new: &[EntryRef<'a>]) -> Option<Vec<EntryRef<'a>>> {
    let mut merged = Vec::with_capacity(old.len() + new.len());
    let mut changed = false;
    let mut rest = old;
    for update in new {
        while let Some((first, tail)) = rest.split_first() {
            match first.key.cmp(update.key) {
                Ordering::Less => merged.push(*first),
                Ordering::Equal => changed |= first.value != update.value,
                Ordering::Greater => break,
            }
            rest = tail;
        }
        merged.push(*update);
    }
    merged.extend_from_slice(rest);
    (changed || merged.len() > old.len()).then_some(merged)
}
