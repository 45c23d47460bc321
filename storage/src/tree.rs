//! The authenticated state: a trie over key hashes whose root commits to every account.
//!
//! # Structure
//!
//! The structure is a function of the content alone: whatever the order of the changes, the same
//! accounts have the same root. Keys are 32-byte hashes, values 0 to [`MAX_VALUE_BYTES`] bytes.
//! Nothing is ever deleted (an emptied account stays, with its sequence number), so there is no
//! operation for it.
//!
//! - A prefix of whole nibbles with more than [`BUCKET_LIMIT`] keys under it is a **branch** with
//!   sixteen children, which are hashed as a binary tree of four levels. Who grinds many keys under
//!   one prefix only makes the trie deeper there.
//! - One with fewer, whose parent is a branch or that is the root, is a **bucket**: one row of the
//!   store. Inside it, a part with more than [`LEAF_LIMIT`] keys is cut in two at its next bit. So
//!   a row is big enough for the store and a leaf small enough for a proof: with a million
//!   accounts, a bucket has 15 entries and a leaf 1.6.
//!
//! # Hashes (SHA-256)
//!
//! ```text
//! node with no key under it   32 zero bytes
//! leaf, 1 to LEAF_LIMIT keys  H(0x00 ‖ depth ‖ count ‖ (key ‖ length ‖ value) for each key, ascending)
//! two halves                  H(0x01 ‖ left ‖ right)
//! ```
//!
//! `depth` is the number of bits from the root to the leaf, at most [`MAX_DEPTH`]; `depth`, `count`
//! and `length` have one byte. The halves are told apart by the bit of the key at their depth, the
//! most significant bit of the first byte being the first; zero goes left. The root of the tree is
//! the hash of its topmost node: what it belongs to (chain, height) is in the header that carries
//! it, and a change of this layout comes with a new version of that header.
//!
//! Exactly one [`Proof`] holds for each key and root, whether the key has a value or not, and
//! exactly one [`Subtree`] for each prefix of a branch or bucket. The first byte keeps leaves and
//! halves apart, and no hash is 32 zero bytes.
//!
//! # Rows
//!
//! ```text
//! nibbles in the prefix ‖ packed nibbles   0x00 ‖ count ‖ (key ‖ length ‖ value)…   a bucket
//! nibbles in the prefix ‖ packed nibbles   0x01 ‖ 16 child hashes                   a branch
//! 0xff                                     format ‖ BUCKET_LIMIT ‖ LEAF_LIMIT ‖ root
//! ```
//!
//! Branches of fewer than four nibbles are also in memory (4.6 MB at most), so that with a million
//! accounts a change reads one bucket, and beyond two millions a branch as well. Opening reads these
//! branches and checks that they hash to the root. Other rows are trusted to be what was written
//! (RocksDB checks its blocks), but nothing that leaves the node is: a proof or subtree that does
//! not lead to the root is never handed out.
//!
//! The formats are frozen by `tests/golden/tree.json`.
//!
//! # Why this trie
//!
//! Measured at 1,000,000 accounts, blocks of 500 transfers, RocksDB with a 32 MiB cache and no sync
//! (`quorate-bench state --accounts 1000000 --blocks 50 --transfers 500`, on a machine that did
//! other work as well):
//!
//! | | trie | `jmt`, pruned each block | `jmt`, never pruned |
//! |---|---|---|---|
//! | update, µs per changed key | 8.2 | 106.7 | 37.6 |
//! | rows written per key | 2.1 | 8.7 | 8.7 |
//! | proof, bytes | 734 | 1,385 | 1,385 |
//! | database, MiB | 88 | 272 | 808 |
//!
//! Between runs the trie took 8 to 15 µs, `jmt` 70 to 196 and 38 to 71. `jmt` had no node cache of
//! its own in this comparison. Any subtree verifies by itself, which state sync needs.

mod chunk;
mod hash;
mod path;
mod proof;
mod revert;
mod row;
mod rows;
mod span;
mod store;
mod subtree;
#[cfg(test)]
mod tests;
mod update;
mod upper;

pub use chunk::{Assembled, CHUNK_MAX_ENTRIES, Chunk, KnownNode, Verified, assemble};
pub use path::{Prefix, RowKey};
pub use proof::{Entry, Proof, ProofError};
pub(crate) use span::SpanNodes;
pub use store::{MemoryStore, NodeStore, TableRows, column_options};
pub use subtree::{SUBTREE_MAX_ENTRIES, Subtree};
pub use update::{Changeset, Loaded};

use crate::database::DatabaseError;
use hash::{Branch, EntryRef, bucket_hash, leaf_hash, split, subtree_hash};
use path::{bit, nibble};
use quorate_crypto::Digest;
use row::Row;
use std::{borrow::Cow, collections::HashMap};

/// The hash under which a value is found.
pub type Key = [u8; 32];

/// The longest value in bytes.
pub const MAX_VALUE_BYTES: usize = 255;

/// The most entries in one row of the store.
pub const BUCKET_LIMIT: usize = 32;

/// The most entries that are hashed, and proven, together.
pub const LEAF_LIMIT: usize = 2;

/// The most bits from the root to a leaf.
///
/// A leaf has a parent with at least three keys under it, which cannot agree on more than 254 bits.
pub const MAX_DEPTH: usize = 255;

/// The most nibbles in a prefix.
///
/// A branch has more than 32 keys, which cannot agree on more than 250 bits, so 62 nibbles.
pub const MAX_NIBBLES: usize = 63;

/// The version of the rows.
const FORMAT_VERSION: u8 = 1;

/// The tree could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// The store cannot be read: halt.
    #[error(transparent)]
    Store(#[from] DatabaseError),
    /// A row is not what it must be: halt, and restore the state from peers.
    #[error("state damaged at {prefix}: {what}")]
    Corrupt {
        /// The node's prefix.
        prefix: Prefix,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The rows were written by another version: halt.
    #[error("state written with another format or other limits")]
    Format,
    /// A value exceeds [`MAX_VALUE_BYTES`]: a fault of the caller.
    #[error("value of {bytes} bytes, at most {MAX_VALUE_BYTES} are allowed")]
    ValueTooLong {
        /// Its key.
        key: Key,
        /// Its length.
        bytes: usize,
    },
}

/// The tree over the rows in a store, which it alone changes.
///
/// Owned by the thread that executes blocks. For each block: [`Tree::load`] the accounts it touches,
/// execute it on [`Tree::get_loaded`], [`Tree::prepare_loaded`], write the rows in one batch with
/// everything else, [`Tree::commit`]. A failed write leaves the tree as it was.
pub struct Tree<S> {
    store: S,
    root: Digest,
    upper: upper::Upper,
}

/// Where a key's way down ends.
struct Landing {
    prefix: Prefix,
    siblings: Vec<Digest>,
    /// The row there; `None` if there is nothing under the prefix.
    row: Option<Vec<u8>>,
}

impl<S: NodeStore> Tree<S> {
    /// Opens the tree; an empty store is an empty tree.
    ///
    /// Reads at most 4,369 rows and checks that they hash to the root that was written last.
    ///
    /// # Errors
    /// [`TreeError`] if the store cannot be read, is damaged, or was written by another version.
    pub fn open(store: S) -> Result<Self, TreeError> {
        let root = match store.get(&RowKey::META)? {
            Some(row) => row::decode_meta(&row)?,
            None if store.get(&Prefix::ROOT.row_key())?.is_none() => Digest::ZERO,
            None => {
                return Err(TreeError::Corrupt {
                    prefix: Prefix::ROOT,
                    what: "no root row",
                });
            }
        };
        let upper = upper::load(&store, root)?;
        Ok(Self { store, root, upper })
    }

    /// An empty tree over rows that are not looked at, because they do not belong together yet.
    pub(crate) fn unread(store: S) -> Self {
        let upper = upper::empty();
        Self {
            store,
            root: Digest::ZERO,
            upper,
        }
    }

    /// The root; [`Digest::ZERO`] for an empty tree.
    pub fn root(&self) -> Digest {
        self.root
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The store, to write a changeset that is then committed.
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    /// The value of a key, or `None` if it never had one.
    ///
    /// # Errors
    /// [`TreeError`] if the store cannot be read or is damaged.
    pub fn get(&self, key: &Key) -> Result<Option<Vec<u8>>, TreeError> {
        self.find(key, None)
    }

    /// The proof of what a key holds, or that it holds nothing.
    ///
    /// # Errors
    /// [`TreeError`] if the store cannot be read or is damaged.
    pub fn prove(&self, key: &Key) -> Result<Proof, TreeError> {
        let Landing {
            prefix,
            mut siblings,
            row,
        } = self.land(key, None)?;
        let entries = row
            .as_ref()
            .map_or(Ok(Vec::new()), |row| bucket(&prefix, row))?;
        let mut part = entries.as_slice();
        let mut depth = prefix.bits();
        while part.len() > LEAF_LIMIT {
            let (left, right) = part.split_at(split(depth, part));
            let (own, other) = if bit(key, depth) {
                (right, left)
            } else {
                (left, right)
            };
            part = own;
            depth += 1;
            siblings.push(bucket_hash(depth, other));
        }
        let corrupt = TreeError::Corrupt {
            prefix,
            what: "hash",
        };
        // Costs as much as the proof itself, but a damaged row must not make a liar of this node.
        if proof::fold(leaf_hash(depth, part), &siblings, key) != self.root {
            return Err(corrupt);
        }
        Ok(Proof::new(siblings, part))
    }

    /// All entries under a prefix with the path to the root, or `None` if there are more than
    /// [`SUBTREE_MAX_ENTRIES`]: then ask for the prefix's [children](Prefix::children).
    ///
    /// The subtree's prefix is shorter than the one asked for if a bucket, or nothing at all,
    /// covers it.
    ///
    /// # Errors
    /// [`TreeError`] if the store cannot be read or is damaged.
    pub fn subtree(&self, prefix: &Prefix) -> Result<Option<Subtree>, TreeError> {
        let Landing {
            prefix,
            siblings,
            row,
        } = self.land(prefix.padded(), Some(prefix.len()))?;
        let mut entries = Vec::new();
        if let Some(row) = row
            && !self.collect(&prefix, &row, &mut entries)?
        {
            return Ok(None);
        }
        let sorted: Vec<EntryRef<'_>> = entries.iter().map(Entry::borrow).collect();
        let node = subtree_hash(prefix.len(), &sorted);
        if proof::fold(node, &siblings, prefix.padded()) != self.root {
            return Err(TreeError::Corrupt {
                prefix,
                what: "hash",
            });
        }
        Ok(Some(Subtree::new(prefix, siblings, entries)))
    }

    /// The branch at a prefix, if it is one of those in memory.
    fn cached(&self, prefix: &Prefix) -> Option<&Branch> {
        upper::slot(prefix).and_then(|slot| self.upper[slot].as_deref())
    }

    /// The value of a key; rows that are loaded are not read again.
    fn find(
        &self,
        key: &Key,
        loaded: Option<&HashMap<Prefix, Vec<u8>>>,
    ) -> Result<Option<Vec<u8>>, TreeError> {
        let mut prefix = Prefix::ROOT;
        let mut hash = self.root;
        while hash != Digest::ZERO {
            let step = nibble(key, prefix.len());
            if let Some(branch) = self.cached(&prefix) {
                hash = branch.child(step);
            } else {
                let row = match loaded.and_then(|rows| rows.get(&prefix)) {
                    Some(row) => Cow::Borrowed(row),
                    None => Cow::Owned(self.row(&prefix)?),
                };
                match row::decode(&prefix, &row)? {
                    Row::Branch(children) => hash = Digest(children[usize::from(step)]),
                    Row::Bucket(entries) => {
                        let found = entries.binary_search_by(|entry| entry.key.cmp(key));
                        return Ok(found.ok().map(|index| entries[index].value.to_vec()));
                    }
                }
            }
            prefix = prefix.extended(step);
        }
        Ok(None)
    }

    /// Goes down towards a key, collecting siblings, to a bucket, to nothing, or to so many nibbles.
    fn land(&self, key: &Key, nibbles: Option<usize>) -> Result<Landing, TreeError> {
        let mut prefix = Prefix::ROOT;
        let mut siblings = Vec::new();
        let mut hash = self.root;
        while hash != Digest::ZERO {
            let last = nibbles == Some(prefix.len());
            let step = nibble(key, prefix.len());
            if let (Some(branch), false) = (self.cached(&prefix), last) {
                hash = branch.child(step);
                branch.siblings(step, &mut siblings);
            } else {
                let row = self.row(&prefix)?;
                let children = match row::decode(&prefix, &row)? {
                    Row::Branch(children) if !last => children,
                    _ => {
                        return Ok(Landing {
                            prefix,
                            siblings,
                            row: Some(row),
                        });
                    }
                };
                hash = Digest(children[usize::from(step)]);
                Branch::new(children).siblings(step, &mut siblings);
            }
            prefix = prefix.extended(step);
        }
        Ok(Landing {
            prefix,
            siblings,
            row: None,
        })
    }

    fn row(&self, prefix: &Prefix) -> Result<Vec<u8>, TreeError> {
        let row = self.store.get(&prefix.row_key())?;
        row.ok_or(TreeError::Corrupt {
            prefix: *prefix,
            what: "missing row",
        })
    }

    /// Appends the entries below a row in order; false if they become too many.
    fn collect(
        &self,
        prefix: &Prefix,
        row: &[u8],
        entries: &mut Vec<Entry>,
    ) -> Result<bool, TreeError> {
        let children = match row::decode(prefix, row)? {
            Row::Bucket(bucket) => {
                entries.extend(bucket.iter().map(Entry::from));
                return Ok(entries.len() <= SUBTREE_MAX_ENTRIES);
            }
            Row::Branch(children) => children,
        };
        let below: Vec<Prefix> = (0..16_u8)
            .zip(children)
            .filter(|(_, hash)| **hash != Digest::ZERO.0)
            .map(|(nibble, _)| prefix.extended(nibble))
            .collect();
        let keys: Vec<RowKey> = below.iter().map(Prefix::row_key).collect();
        for (prefix, row) in below.iter().zip(self.store.get_sorted(&keys)?) {
            let row = row.ok_or(TreeError::Corrupt {
                prefix: *prefix,
                what: "missing row",
            })?;
            if !self.collect(prefix, &row, entries)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The entries of a row that must be a bucket.
fn bucket<'a>(prefix: &Prefix, row: &'a [u8]) -> Result<Vec<EntryRef<'a>>, TreeError> {
    match row::decode(prefix, row)? {
        Row::Bucket(entries) => Ok(entries),
        Row::Branch(_) => Err(TreeError::Corrupt {
            prefix: *prefix,
            what: "branch, not a bucket",
        }),
    }
}
