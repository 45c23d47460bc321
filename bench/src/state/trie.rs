//! The tree of this node.

use super::{Applied, Subject, open_database};
use anyhow::ensure;
use commonware_codec::{Copying, DecodeExt, Encode};
use quorate_storage::{
    database::{Batch, Database, DatabaseError, RocksDatabase},
    tree::{Key, Loaded, NodeStore, Proof, RowKey, TableRows, Tree},
};
use rocksdb::DB;
use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
    time::Instant,
};

const COLUMN: &str = "state";

/// Counts the bytes of the rows that are read.
struct Counting {
    store: TableRows,
    bytes: Cell<u64>,
}

impl Counting {
    fn count(&self, row: &Option<Vec<u8>>) {
        self.bytes
            .set(self.bytes.get() + row.as_ref().map_or(0, |row| row.len() as u64));
    }
}

impl NodeStore for Counting {
    fn get(&self, key: &RowKey) -> Result<Option<Vec<u8>>, DatabaseError> {
        let row = self.store.get(key)?;
        self.count(&row);
        Ok(row)
    }

    fn get_sorted(&self, keys: &[RowKey]) -> Result<Vec<Option<Vec<u8>>>, DatabaseError> {
        let rows = self.store.get_sorted(keys)?;
        rows.iter().for_each(|row| self.count(row));
        Ok(rows)
    }
}

pub(super) struct Trie {
    database: Arc<DB>,
    rows: RocksDatabase,
    tree: Tree<Counting>,
    loaded: Option<Loaded>,
}

impl Subject for Trie {
    fn open(path: &Path, cache_bytes: usize) -> anyhow::Result<Self> {
        let database = Arc::new(open_database(path, &[COLUMN], cache_bytes)?);
        let rows = RocksDatabase::new(Arc::clone(&database));
        let store = TableRows::new(Arc::new(rows.clone()), COLUMN);
        let tree = Tree::open(Counting {
            store,
            bytes: Cell::new(0),
        })?;
        Ok(Self {
            database,
            rows,
            tree,
            loaded: None,
        })
    }

    fn database(&self) -> &DB {
        &self.database
    }

    fn get(&self, key: &Key) -> anyhow::Result<Option<Vec<u8>>> {
        Ok(self.tree.get(key)?)
    }

    fn read_block(&mut self, keys: &BTreeSet<Key>) -> anyhow::Result<Vec<Option<Vec<u8>>>> {
        let loaded = self.tree.load(keys)?;
        let values = keys
            .iter()
            .map(|key| Ok(self.tree.get_loaded(&loaded, key)?))
            .collect();
        self.loaded = Some(loaded);
        values
    }

    fn apply(&mut self, updates: BTreeMap<Key, Vec<u8>>) -> anyhow::Result<Applied> {
        let start = Instant::now();
        let changes = match self.loaded.take() {
            Some(loaded) => self.tree.prepare_loaded(loaded, &updates)?,
            None => self.tree.prepare(&updates)?,
        };
        let prepare = start.elapsed();
        let start = Instant::now();
        let mut batch = Batch::default();
        self.tree.store().store.stage(&changes, &mut batch);
        self.rows.write(&batch, false)?;
        let write = start.elapsed();
        let rows = changes.rows().len();
        let bytes = changes.size_bytes();
        let start = Instant::now();
        self.tree.commit(changes);
        Ok(Applied {
            prepare,
            write,
            commit: start.elapsed(),
            bytes,
            rows,
        })
    }

    fn prove(&self, key: &Key) -> anyhow::Result<Vec<u8>> {
        Ok(self.tree.prove(key)?.encode().to_vec())
    }

    fn verify(&self, key: &Key, value: Option<&[u8]>, proof: &[u8]) -> anyhow::Result<()> {
        let proof = Proof::decode(Copying(proof))?;
        ensure!(
            proof.verify(&self.tree.root(), key)? == value,
            "the proof proves another value"
        );
        Ok(())
    }

    fn read_bytes(&self) -> u64 {
        self.tree.store().bytes.get()
    }
}
