//! Where the rows are kept: a column family of RocksDB, or memory.

use super::{path::RowKey, update::Changeset};
use rocksdb::{BlockBasedOptions, Cache, DB, Options, WriteBatch};
use std::{collections::BTreeMap, sync::Arc};

/// Reads rows of the tree.
///
/// Writing is not part of it: a [`Changeset`] goes into the same batch as everything else that one
/// block changes, see [`RocksStore::stage`] and [`MemoryStore::apply`].
pub trait NodeStore {
    /// The row under a key.
    ///
    /// # Errors
    /// When the store cannot be read; the node should halt.
    fn get(&self, key: &RowKey) -> Result<Option<Vec<u8>>, StoreError>;

    /// The rows under several keys, which are in ascending order; the answers are in that order.
    ///
    /// # Errors
    /// When the store cannot be read; the node should halt.
    fn get_sorted(&self, keys: &[RowKey]) -> Result<Vec<Option<Vec<u8>>>, StoreError>;
}

/// The store could not be read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// RocksDB failed.
    #[error("RocksDB: {0}")]
    Rocks(#[from] rocksdb::Error),
    /// The database was opened without the tree's column family.
    #[error("the database has no column family {0:?}")]
    MissingColumn(String),
}

/// Rows in a column family of RocksDB, which should be opened with [`column_options`].
///
/// Also works on a database that was opened read-only, such as a checkpoint from which state sync
/// serves an older root while the node goes on.
#[derive(Clone)]
pub struct RocksStore {
    database: Arc<DB>,
    column: String,
}

impl RocksStore {
    /// The rows in the column family with that name.
    ///
    /// # Errors
    /// [`StoreError::MissingColumn`] if the database was opened without it.
    pub fn new(database: Arc<DB>, column: &str) -> Result<Self, StoreError> {
        let store = Self {
            database,
            column: column.to_owned(),
        };
        store.handle()?;
        Ok(store)
    }

    /// Adds the rows of a changeset to a batch; nothing is written yet.
    ///
    /// # Errors
    /// [`StoreError::MissingColumn`] if the column family was dropped.
    pub fn stage(&self, changes: &Changeset, batch: &mut WriteBatch) -> Result<(), StoreError> {
        let column = self.handle()?;
        for (key, row) in changes.rows() {
            batch.put_cf(column, key, row);
        }
        Ok(())
    }

    fn handle(&self) -> Result<&rocksdb::ColumnFamily, StoreError> {
        self.database
            .cf_handle(&self.column)
            .ok_or_else(|| StoreError::MissingColumn(self.column.clone()))
    }
}

impl NodeStore for RocksStore {
    fn get(&self, key: &RowKey) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.database.get_cf(self.handle()?, key)?)
    }

    fn get_sorted(&self, keys: &[RowKey]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.database
            .batched_multi_get_cf(self.handle()?, keys, true)
            .into_iter()
            .map(|answer| Ok(answer?.map(|row| row.to_vec())))
            .collect()
    }
}

/// Rows in memory, for the simulator and for computing the root of a genesis file.
#[derive(Clone, Default)]
pub struct MemoryStore {
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl MemoryStore {
    /// Writes the rows of a changeset.
    pub fn apply(&mut self, changes: &Changeset) {
        for (key, row) in changes.rows() {
            self.rows.insert(key.as_ref().to_vec(), row.to_vec());
        }
    }

    /// All rows by their keys, for tests that damage or compare them.
    #[cfg(test)]
    pub(super) fn rows_mut(&mut self) -> &mut BTreeMap<Vec<u8>, Vec<u8>> {
        &mut self.rows
    }
}

impl NodeStore for MemoryStore {
    fn get(&self, key: &RowKey) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.rows.get(key.as_ref()).cloned())
    }

    fn get_sorted(&self, keys: &[RowKey]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        keys.iter().map(|key| self.get(key)).collect()
    }
}

/// The bytes of a memtable of the tree's column family; there are at most two.
const WRITE_BUFFER_BYTES: usize = 8 << 20;

/// The options of the tree's column family; the block cache may be shared with others.
///
/// Rows are read one by one and nearly always exist, a bucket has about 800 bytes, and hashes do
/// not compress.
pub fn column_options(cache: &Cache) -> Options {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(cache);
    table.set_block_size(4 << 10);
    table.set_format_version(6);
    table.set_bloom_filter(10.0, false);
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    let mut options = Options::default();
    options.set_block_based_table_factory(&table);
    options.set_compression_type(rocksdb::DBCompressionType::None);
    // The last level holds nearly every row that is asked for: a filter there would only cost.
    options.set_optimize_filters_for_hits(true);
    options.set_write_buffer_size(WRITE_BUFFER_BYTES);
    options.set_max_write_buffer_number(2);
    options.set_level_compaction_dynamic_level_bytes(true);
    options
}
