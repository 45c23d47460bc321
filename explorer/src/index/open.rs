//! Opening the index: creates it, or checks that it is the right one.

use super::{COLUMNS, Extent, Index, IndexError, META, rows};
use commonware_codec::{Copying, DecodeExt, Encode};
use parking_lot::RwLock;
use quorate_storage::{
    database::{Batch, Database, RocksDatabase},
    logs::find_endless,
};
use quorate_types::{ChainId, Height};
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamilyDescriptor, DB, DBRecoveryMode, Options,
    WriteBufferManager,
};
use std::{path::Path, sync::Arc};
use tracing::info;

/// The version of the stored format.
const FORMAT: u64 = 2;

/// The previous version, without sums and the list of blocks with transactions, which are added on
/// opening.
const WITHOUT_HISTORY: u64 = 1;

/// Size of the block cache, which includes the memtables.
const CACHE_BYTES: usize = 64 << 20;

/// Total size of memtables.
const MEMTABLE_BYTES: usize = 32 << 20;

/// Size of one column family's memtable.
const WRITE_BUFFER_BYTES: usize = 8 << 20;

/// Size of the write-ahead log above which the oldest memtables are flushed.
const MAX_WAL_BYTES: u64 = 64 << 20;

/// Maximum number of open files.
const MAX_OPEN_FILES: i32 = 256;

impl Index {
    /// Opens the chain's index in a folder, or creates it.
    ///
    /// # Errors
    ///
    /// If the folder cannot be used, or holds another chain's index or another format.
    pub fn open(path: &Path, chain: ChainId) -> Result<Self, IndexError> {
        if path.join("CURRENT").exists()
            && let Ok(Some((name, at))) = find_endless(path)
        {
            return Err(IndexError::Damaged {
                path: path.to_path_buf(),
                what: format!("the record at byte {at} of {name}"),
            });
        }
        let (options, columns) = options();
        let database = DB::open_cf_descriptors(&options, path, columns).map_err(|source| {
            IndexError::Database {
                path: path.to_path_buf(),
                source: source.into(),
            }
        })?;
        let database: Arc<dyn Database> = Arc::new(RocksDatabase::new(Arc::new(database)));
        let index = Self {
            database,
            path: Arc::new(path.to_path_buf()),
            extent: Arc::new(RwLock::new(None)),
        };
        if index.get(META, b"format")?.is_none() {
            let mut batch = Batch::default();
            batch.put(META, b"chain", chain.encode());
            batch.put(META, b"format", FORMAT.to_be_bytes());
            index.write(&batch)?;
        }
        if index.count(META, b"format")? == WITHOUT_HISTORY {
            index.check_chain(chain)?;
            info!(path = %path.display(), "bringing an index of an older version up to date");
            index.add_history(FORMAT)?;
        }
        index.check(chain)?;
        index.load_extent()?;
        Ok(index)
    }

    fn check(&self, expected: ChainId) -> Result<(), IndexError> {
        let found = self.count(META, b"format")?;
        if found != FORMAT {
            return Err(IndexError::OtherFormat {
                path: self.path.to_path_buf(),
                found,
                expected: FORMAT,
            });
        }
        self.check_chain(expected)
    }

    fn check_chain(&self, expected: ChainId) -> Result<(), IndexError> {
        let found = self.get(META, b"chain")?.unwrap_or_default();
        let found = ChainId::decode(Copying(&found)).map_err(|_| self.damaged("the chain's id"))?;
        if found != expected {
            return Err(IndexError::OtherChain {
                path: self.path.to_path_buf(),
                found,
                expected,
            });
        }
        Ok(())
    }

    fn load_extent(&self) -> Result<(), IndexError> {
        let bounds = (self.get(META, b"oldest")?, self.get(META, b"tip")?);
        let (Some(oldest), Some(tip)) = bounds else {
            return Ok(());
        };
        let number = |bytes: &[u8]| {
            rows::read_number(bytes).ok_or_else(|| self.damaged("the newest height"))
        };
        let tip = Height(number(&tip)?);
        let block = self
            .block(tip)?
            .ok_or_else(|| self.damaged("the newest block is missing"))?;
        *self.extent.write() = Some(Extent {
            oldest: Height(number(&oldest)?),
            tip: *block.header(),
        });
        Ok(())
    }
}

fn options() -> (Options, Vec<ColumnFamilyDescriptor>) {
    let cache = Cache::new_lru_cache(CACHE_BYTES);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    let memtables = WriteBufferManager::new_write_buffer_manager_with_cache(
        MEMTABLE_BYTES,
        false,
        cache.clone(),
    );
    options.set_write_buffer_manager(&memtables);
    options.set_max_background_jobs(2);
    options.set_max_open_files(MAX_OPEN_FILES);
    options.set_max_total_wal_size(MAX_WAL_BYTES);
    options.set_keep_log_file_num(2);
    options.set_max_log_file_size(1 << 20);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    // Keeps batches over all column families atomic: the log is replayed up to the first
    // corruption.
    options.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
    let columns = COLUMNS.map(|name| ColumnFamilyDescriptor::new(name, column_options(&cache)));
    (options, columns.into())
}

fn column_options(cache: &Cache) -> Options {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(cache);
    table.set_bloom_filter(10.0, false);
    table.set_cache_index_and_filter_blocks(true);
    let mut options = Options::default();
    options.set_block_based_table_factory(&table);
    options.set_write_buffer_size(WRITE_BUFFER_BYTES);
    options.set_max_write_buffer_number(2);
    options
}
