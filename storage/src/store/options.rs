//! How RocksDB is set up: durable, and small.
//!
//! Everything that grows is bounded: memtables and cached blocks share one budget, whatever the
//! number of column families, and the log, open files and info logs have limits of their own.

use super::{COLUMNS, NODES};
use crate::tree::column_options;
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamilyDescriptor, DBRecoveryMode, Options, WriteBufferManager,
};

/// Bytes of cached blocks, indexes, filters and memtables together. Memtables come first.
const CACHE_BYTES: usize = 32 << 20;

/// Bytes of all memtables; the oldest is flushed when they are nearly there. A flush frees memory
/// only when it is done, so for a moment there may be more. At 16,000 transfers a second 6, 8 and 12 MiB
/// made no difference beyond the noise.
const MEMTABLE_BYTES: usize = 7 << 20;

/// Bytes of one column family's memtable, of which there are at most two.
const WRITE_BUFFER_BYTES: usize = 4 << 20;

/// Bytes of write-ahead log after which the oldest memtables are flushed.
const MAX_WAL_BYTES: u64 = 64 << 20;

/// Files that are open at a time; each costs a few kilobytes of memory beside the descriptor.
const MAX_OPEN_FILES: i32 = 256;

/// A file in which this many of so many rows in a row, or this part of all, are deletions is
/// rewritten.
const DELETION_WINDOW: usize = 4_096;
const DELETION_TRIGGER: usize = 2_048;
const DELETION_RATIO: f64 = 0.4;

/// Threads for flushes and compactions.
const BACKGROUND_JOBS: i32 = 2;

/// The options of the database and of each column family, which share one cache.
pub(super) fn options() -> (Options, Vec<ColumnFamilyDescriptor>) {
    let cache = Cache::new_lru_cache(CACHE_BYTES);
    let columns = COLUMNS.map(|name| {
        let mut options = table_options(name, &cache);
        options.set_write_buffer_size(WRITE_BUFFER_BYTES);
        options.set_max_write_buffer_number(2);
        // Pruning deletes as much as is written: files full of deletions are rewritten early.
        options.add_compact_on_deletion_collector_factory(
            DELETION_WINDOW,
            DELETION_TRIGGER,
            DELETION_RATIO,
        );
        ColumnFamilyDescriptor::new(name, options)
    });
    (database_options(&cache), columns.into())
}

/// The options of files that are loaded into a column family.
pub(super) fn file_options(column: &str) -> Options {
    table_options(column, &Cache::new_lru_cache(0))
}

fn table_options(column: &str, cache: &Cache) -> Options {
    if column == NODES {
        column_options(cache)
    } else {
        plain_options(cache)
    }
}

fn database_options(cache: &Cache) -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    // Writers are never stalled for memory: execution would wait for a disk that is only busy.
    let memtables = WriteBufferManager::new_write_buffer_manager_with_cache(
        MEMTABLE_BYTES,
        false,
        cache.clone(),
    );
    options.set_write_buffer_manager(&memtables);
    options.set_max_background_jobs(BACKGROUND_JOBS);
    options.set_max_open_files(MAX_OPEN_FILES);
    options.set_max_total_wal_size(MAX_WAL_BYTES);
    options.set_keep_log_file_num(2);
    options.set_max_log_file_size(1 << 20);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    // What was written without a sync may be torn anywhere in its middle by a power cut, so the
    // log is read up to the first damage: that is the state after some block. Should the damage
    // be in what was synced, the blocks after it are fetched from peers again.
    options.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
    options
}

fn plain_options(cache: &Cache) -> Options {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(cache);
    table.set_bloom_filter(10.0, false);
    table.set_cache_index_and_filter_blocks(true);
    let mut options = Options::default();
    options.set_block_based_table_factory(&table);
    options
}
