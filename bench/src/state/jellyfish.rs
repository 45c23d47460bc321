//! The peer: `jmt`, a Jellyfish Merkle tree, with its nodes in one column family and the values in
//! another.
//!
//! Every changed key makes new nodes from its leaf up to the root, under the new version; those they
//! replace are stale. The pruned form deletes them with the same batch and keeps of each value the
//! newest only, so both states can prove the newest version, and no other. The unpruned form keeps
//! all versions, and the index of stale nodes by which they could be pruned later. `jmt` brings no
//! cache of nodes; the only one here is RocksDB's block cache.

use super::{Applied, Subject, open_database};
use anyhow::Context;
use jmt::{
    JellyfishMerkleTree, KeyHash, OwnedValue, RootHash, Version,
    proof::SparseMerkleProof,
    storage::{LeafNode, Node, NodeKey, TreeReader},
};
use quorate_storage::tree::Key;
use rocksdb::{DB, WriteBatch};
use sha2::Sha256;
use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Instant,
};

const NODES: &str = "nodes";
const VALUES: &str = "values";
const STALE: &str = "stale";
const META: &[u8] = b"version";

/// The rows of the tree.
struct Rows<const PRUNED: bool> {
    database: DB,
    bytes: Cell<u64>,
}

/// `jmt` over RocksDB.
pub(super) struct Jellyfish<const PRUNED: bool> {
    rows: Rows<PRUNED>,
    version: Version,
    root: RootHash,
}

/// Without stale nodes.
pub(super) type Pruned = Jellyfish<true>;
/// With all versions.
pub(super) type Unpruned = Jellyfish<false>;

/// The row of a node: by version first, big endian, so that new nodes lie together.
fn node_row(key: &NodeKey) -> anyhow::Result<Vec<u8>> {
    let mut row = borsh::to_vec(key).context("encoding a node's key")?;
    row[..8].reverse();
    Ok(row)
}

impl<const PRUNED: bool> Rows<PRUNED> {
    fn column(&self, name: &str) -> anyhow::Result<&rocksdb::ColumnFamily> {
        self.database
            .cf_handle(name)
            .context("missing column family")
    }

    fn read(&self, column: &str, key: &[u8]) -> anyhow::Result<Option<Vec<u8>>> {
        let row = self.database.get_cf(self.column(column)?, key)?;
        self.bytes
            .set(self.bytes.get() + row.as_ref().map_or(0, |row| row.len() as u64));
        Ok(row)
    }
}

impl<const PRUNED: bool> TreeReader for Rows<PRUNED> {
    fn get_node_option(&self, key: &NodeKey) -> anyhow::Result<Option<Node>> {
        self.read(NODES, &node_row(key)?)?
            .map(|row| borsh::from_slice(&row).context("decoding a node"))
            .transpose()
    }

    fn get_value_option(
        &self,
        max_version: Version,
        key_hash: KeyHash,
    ) -> anyhow::Result<Option<OwnedValue>> {
        if PRUNED {
            return self.read(VALUES, &key_hash.0);
        }
        let mut rows = self.database.raw_iterator_cf(self.column(VALUES)?);
        rows.seek_for_prev([&key_hash.0[..], &max_version.to_be_bytes()].concat());
        rows.status()?;
        Ok(rows
            .item()
            .filter(|(key, _)| key.starts_with(&key_hash.0))
            .map(|(_, value)| value.to_vec()))
    }

    fn get_rightmost_leaf(&self) -> anyhow::Result<Option<(NodeKey, LeafNode)>> {
        anyhow::bail!("only needed for restoring")
    }
}

impl<const PRUNED: bool> Subject for Jellyfish<PRUNED> {
    fn open(path: &Path, cache_bytes: usize) -> anyhow::Result<Self> {
        let database = open_database(path, &[NODES, VALUES, STALE], cache_bytes)?;
        let rows = Rows {
            database,
            bytes: Cell::new(0),
        };
        let version = match rows.read(STALE, META)? {
            Some(row) => Version::from_be_bytes(row.as_slice().try_into().context("version")?),
            None => 0,
        };
        let root = JellyfishMerkleTree::<_, Sha256>::new(&rows)
            .get_root_hash_option(version)?
            .unwrap_or(RootHash([0; 32]));
        Ok(Self {
            rows,
            version,
            root,
        })
    }

    fn database(&self) -> &DB {
        &self.rows.database
    }

    fn get(&self, key: &Key) -> anyhow::Result<Option<Vec<u8>>> {
        self.rows.get_value_option(self.version, KeyHash(*key))
    }

    fn read_block(&mut self, keys: &BTreeSet<Key>) -> anyhow::Result<Vec<Option<Vec<u8>>>> {
        keys.iter().map(|key| self.get(key)).collect()
    }

    fn apply(&mut self, updates: BTreeMap<Key, Vec<u8>>) -> anyhow::Result<Applied> {
        let start = Instant::now();
        let version = self.version + 1;
        let tree = JellyfishMerkleTree::<_, Sha256>::new(&self.rows);
        let values = updates
            .into_iter()
            .map(|(key, value)| (KeyHash(key), Some(value)));
        let (root, update) = tree.put_value_set(values, version)?;
        let prepare = start.elapsed();

        let start = Instant::now();
        let mut batch = WriteBatch::default();
        let nodes = self.rows.column(NODES)?;
        for (key, node) in update.node_batch.nodes() {
            batch.put_cf(nodes, node_row(key)?, borsh::to_vec(node)?);
        }
        let column = self.rows.column(VALUES)?;
        for ((version, key), value) in update.node_batch.values() {
            let value = value.as_deref().unwrap_or_default();
            if PRUNED {
                batch.put_cf(column, key.0, value);
            } else {
                batch.put_cf(column, [&key.0[..], &version.to_be_bytes()].concat(), value);
            }
        }
        let stale = self.rows.column(STALE)?;
        for index in &update.stale_node_index_batch {
            let row = node_row(&index.node_key)?;
            if PRUNED {
                batch.delete_cf(nodes, row);
            } else {
                let since = index.stale_since_version.to_be_bytes();
                batch.put_cf(stale, [&since[..], &row].concat(), []);
            }
        }
        batch.put_cf(stale, META, version.to_be_bytes());
        let (rows, bytes) = (batch.len(), batch.size_in_bytes());
        self.rows.database.write(batch)?;
        let write = start.elapsed();

        let start = Instant::now();
        self.version = version;
        self.root = root;
        Ok(Applied {
            prepare,
            write,
            commit: start.elapsed(),
            bytes,
            rows,
        })
    }

    fn prove(&self, key: &Key) -> anyhow::Result<Vec<u8>> {
        let tree = JellyfishMerkleTree::<_, Sha256>::new(&self.rows);
        let (_, proof) = tree.get_with_proof(KeyHash(*key), self.version)?;
        Ok(borsh::to_vec(&proof)?)
    }

    fn verify(&self, key: &Key, value: Option<&[u8]>, proof: &[u8]) -> anyhow::Result<()> {
        let proof: SparseMerkleProof<Sha256> = borsh::from_slice(proof)?;
        proof.verify(self.root, KeyHash(*key), value)
    }

    fn read_bytes(&self) -> u64 {
        self.rows.bytes.get()
    }
}
