//! Where the rows are kept: a column of a database, or memory.

use super::{path::RowKey, update::Changeset};
use crate::database::{Batch, Database, DatabaseError};
use rocksdb::{BlockBasedOptions, Cache, Options};
use std::{collections::BTreeMap, sync::Arc};

/// Reads rows of the tree.
///
/// Writing is not part of it: a [`Changeset`] goes into the same batch as everything else that one
/// block changes, see [`TableRows::stage`] and [`MemoryStore::apply`].
pub trait NodeStore {
    /// The row under a key.
    ///
    /// # Errors
    /// When the store cannot be read; the node should halt.
    fn get(&self, key: &RowKey) -> Result<Option<Vec<u8>>, DatabaseError>;

    /// The rows under several keys, which are in ascending order; the answers are in that order.
    ///
    /// # Errors
    /// When the store cannot be read; the node should halt.
    fn get_sorted(&self, keys: &[RowKey]) -> Result<Vec<Option<Vec<u8>>>, DatabaseError>;
}

/// Rows in a column of a database; in RocksDB it should be opened with [`column_options`].
#[derive(Clone)]
pub struct TableRows {
    database: Arc<dyn Database>,
    column: &'static str,
}

impl TableRows {
    /// The rows in the column with that name.
    pub fn new(database: Arc<dyn Database>, column: &'static str) -> Self {
        Self { database, column }
    }

    /// Adds the rows of a changeset to a batch; nothing is written yet.
    pub fn stage(&self, changes: &Changeset, batch: &mut Batch) {
        for (key, row) in changes.rows() {
            batch.put(self.column, key, row);
        }
    }
}

impl NodeStore for TableRows {
    fn get(&self, key: &RowKey) -> Result<Option<Vec<u8>>, DatabaseError> {
        self.database.get(self.column, key.as_ref())
    }

    fn get_sorted(&self, keys: &[RowKey]) -> Result<Vec<Option<Vec<u8>>>, DatabaseError> {
        let keys: Vec<&[u8]> = keys.iter().map(RowKey::as_ref).collect();
        self.database.get_sorted(self.column, &keys)
    }
}

/// Rows in memory, for computing the root of a genesis file.
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
    fn get(&self, key: &RowKey) -> Result<Option<Vec<u8>>, DatabaseError> {
        Ok(self.rows.get(key.as_ref()).cloned())
    }

    fn get_sorted(&self, keys: &[RowKey]) -> Result<Vec<Option<Vec<u8>>>, DatabaseError> {
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
