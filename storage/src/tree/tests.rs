//! Tests of the whole tree over both stores, against a reference that is built from scratch.

#![allow(clippy::unwrap_used)]

mod damage;
mod golden;
mod model;
mod proofs;
mod subtrees;

use super::*;
use crate::database::{Batch, Database, RocksDatabase, Rows as _};
use commonware_codec::{Copying, DecodeExt as _, Encode as _, EncodeSize as _};
use proptest::prelude::*;
use quorate_crypto::sha256;
use quorate_types::Span;
use rocksdb::{Cache, ColumnFamilyDescriptor, DB, Options};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

type Content = BTreeMap<Key, Vec<u8>>;
type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

const COLUMN: &str = "state";

/// A store that a test can write to.
trait Writable: NodeStore {
    fn write(&mut self, changes: &Changeset);
}

impl Writable for MemoryStore {
    fn write(&mut self, changes: &Changeset) {
        self.apply(changes);
    }
}

/// RocksDB with the handle that a test writes through.
struct Rocks {
    database: RocksDatabase,
    store: TableRows,
}

impl Rocks {
    fn open(path: &Path) -> Self {
        let cache = Cache::new_lru_cache(1 << 20);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        let columns = [ColumnFamilyDescriptor::new(COLUMN, column_options(&cache))];
        let database = DB::open_cf_descriptors(&options, path, columns).unwrap();
        let database = RocksDatabase::new(Arc::new(database));
        let store = TableRows::new(Arc::new(database.clone()), COLUMN);
        Self { database, store }
    }

    /// All rows, to compare them with those in memory.
    fn rows(&self) -> Rows {
        let rows = self.database.rows_from(COLUMN, &[], usize::MAX).unwrap();
        rows.into_iter().collect()
    }
}

impl NodeStore for Rocks {
    fn get(&self, key: &RowKey) -> Result<Option<Vec<u8>>, DatabaseError> {
        self.store.get(key)
    }

    fn get_sorted(&self, keys: &[RowKey]) -> Result<Vec<Option<Vec<u8>>>, DatabaseError> {
        self.store.get_sorted(keys)
    }
}

impl Writable for Rocks {
    fn write(&mut self, changes: &Changeset) {
        let mut batch = Batch::default();
        self.store.stage(changes, &mut batch);
        self.database.write(&batch, false).unwrap();
    }
}

/// Prepares, writes and commits.
fn change<S: Writable>(tree: &mut Tree<S>, updates: &Content) {
    let changes = tree.prepare(updates).unwrap();
    tree.store_mut().write(&changes);
    tree.commit(changes);
}

/// A tree in memory with this content.
fn tree_of(content: &Content) -> Tree<MemoryStore> {
    let mut tree = Tree::open(MemoryStore::default()).unwrap();
    change(&mut tree, content);
    tree
}

/// Content with so many keys spread evenly, and values of 0 to 63 bytes.
fn spread(count: u32) -> Content {
    (0..count)
        .map(|index| {
            let seed = sha256(&[b"spread", &index.to_be_bytes()]);
            (
                seed.0,
                seed.0.repeat(2)[..usize::from(seed.0[5] % 64)].to_vec(),
            )
        })
        .collect()
}

/// Content with so many keys that share their first bits, as if someone had ground for them.
fn ground(count: u32, bits: usize) -> Content {
    (0..count)
        .map(|index| {
            let mut key = sha256(&[b"ground", &index.to_be_bytes()]).0;
            let end = usize::min(bits, 256 - 32);
            key[..end / 8].fill(0xa5);
            if !end.is_multiple_of(8) {
                key[end / 8] = (0xa5 & !(0xff >> (end % 8))) | (key[end / 8] & (0xff >> (end % 8)));
            }
            if bits > 224 {
                // Beyond that, the counter itself keeps the keys apart.
                key[28..].copy_from_slice(&index.to_be_bytes());
            }
            (key, index.to_be_bytes().to_vec())
        })
        .collect()
}

/// The root by the definition in the module's head, bit by bit, without rows or branches.
fn naive_root(content: &Content) -> Digest {
    fn node(depth: usize, entries: &[(&Key, &Vec<u8>)], mut in_bucket: bool) -> Digest {
        if depth.is_multiple_of(4) && !in_bucket {
            if entries.is_empty() {
                return Digest::ZERO;
            }
            in_bucket = entries.len() <= 32;
        }
        if in_bucket && entries.is_empty() {
            return Digest::ZERO;
        }
        if in_bucket && entries.len() <= 2 {
            let mut bytes = vec![0, depth as u8, entries.len() as u8];
            for (key, value) in entries {
                bytes.extend_from_slice(*key);
                bytes.push(value.len() as u8);
                bytes.extend_from_slice(value);
            }
            return sha256(&[&bytes]);
        }
        let is_right = |entry: &&(&Key, &Vec<u8>)| entry.0[depth / 8] & (0x80 >> (depth % 8)) != 0;
        let left: Vec<_> = entries
            .iter()
            .filter(|entry| !is_right(entry))
            .copied()
            .collect();
        let right: Vec<_> = entries.iter().filter(is_right).copied().collect();
        let left = node(depth + 1, &left, in_bucket);
        let right = node(depth + 1, &right, in_bucket);
        sha256(&[&[1], &left.0, &right.0])
    }
    node(0, &content.iter().collect::<Vec<_>>(), false)
}

/// Keys of which many share long prefixes, so that all depths occur.
fn any_key() -> impl Strategy<Value = Key> {
    let tail = any::<[u8; 32]>();
    (
        tail,
        prop_oneof![3 => Just(0_usize), 3 => Just(1), 2 => Just(3), 1 => Just(20), 1 => Just(31)],
    )
        .prop_map(|(mut key, shared)| {
            key[..shared].fill(0x3c);
            key
        })
}

/// Up to so many entries with keys from [`any_key`].
fn any_content(most: usize) -> impl Strategy<Value = Content> {
    let value = prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 16..=24),
        1 => prop::collection::vec(any::<u8>(), 0..=MAX_VALUE_BYTES),
    ];
    prop::collection::btree_map(any_key(), value, 0..=most)
}

#[test]
fn zeros_of_values_and_what_keys_share_do_not_travel() {
    let span = Span::of(&[0x5a; 32], 12).unwrap();
    let entries: Vec<(Key, Vec<u8>)> = [
        (1, vec![]),
        (2, vec![0]),
        (3, vec![0; 17]),
        (
            4,
            vec![1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0x0f, 0x42, 0x40],
        ),
        (5, vec![0xff; 255]),
    ]
    .map(|(last, value)| {
        let mut key = [0x5a; 32];
        key[31] = last;
        (key, value)
    })
    .into();
    let borrowed = entries.iter().map(|(key, value)| (key, &value[..]));
    let siblings = vec![Digest([3; 32]); 12];
    let chunk = Chunk::new(span, siblings, 7, borrowed.clone());
    let encoded = chunk.encode();
    assert_eq!(encoded.len(), chunk.encode_size());
    let head = 1 + span.encode_size() + 12 * 32 + 8 + 4;
    // All keys begin with 0x5a; twelve bits are one whole byte. Three bytes tell of 17, 32 of 255.
    let values = [0, 1, 3, 3 + 5, 32 + 255].map(|value| 31 + 1 + value);
    assert_eq!(encoded.len(), head + values.iter().sum::<usize>());
    let read = Chunk::decode(encoded.clone()).unwrap();
    assert_eq!(read, chunk);
    assert!(read.entries().eq(borrowed));

    let second_mask = head + values[0] + 31 + 1;
    for (what, mask, more) in [
        ("a zero that is sent", 0b1000_0000, Some(0)),
        ("a byte beyond the value", 0b0100_0000, Some(9)),
        ("a byte that is missing", 0b1000_0000, None),
    ] {
        let mut lie = encoded.to_vec();
        lie[second_mask] = mask;
        if let Some(byte) = more {
            lie.insert(second_mask + 1, byte);
        }
        assert!(Chunk::decode(Copying(&lie[..])).is_err(), "{what}");
    }
    let mut longer = encoded.to_vec();
    longer.push(0);
    assert!(Chunk::decode(Copying(&longer[..])).is_err());
}
