//! Rows by key, in columns, written in batches: what [`crate::store`] needs from a database.
//!
//! The node uses RocksDB; the simulator has one that loses what was not synced.

use rocksdb::{
    ColumnFamily, DB, ErrorKind, IngestExternalFileOptions, Options, ReadOptions, SstFileWriter,
    WriteBatch, WriteOptions,
};
use std::{
    collections::BTreeMap,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

/// A key and its value.
pub type Row = (Vec<u8>, Vec<u8>);

/// Rows that can be read.
pub trait Rows: Send + Sync {
    /// The values of several keys, which are in ascending order; the answers are in that order.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    fn get_sorted(
        &self,
        column: &'static str,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Vec<u8>>>, DatabaseError>;

    /// Visits the rows from a key on and below another, if one is given, in ascending order, until
    /// `visit` returns false. The rows are lent: thousands of them cost no allocation. `visit` must not
    /// use the database.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    fn visit(
        &self,
        column: &'static str,
        from: &[u8],
        below: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), DatabaseError>;

    /// At most this many rows from this key on, in the order of their keys.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    fn rows_from(
        &self,
        column: &'static str,
        key: &[u8],
        limit: usize,
    ) -> Result<Vec<Row>, DatabaseError> {
        let mut rows = Vec::new();
        if limit > 0 {
            self.visit(column, key, None, &mut |key, row| {
                rows.push((key.to_vec(), row.to_vec()));
                rows.len() < limit
            })?;
        }
        Ok(rows)
    }
}

/// A database. Any thread may read and write; batches of different threads are written one after
/// the other.
pub trait Database: Rows {
    /// The value of a key.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    fn get(&self, column: &'static str, key: &[u8]) -> Result<Option<Vec<u8>>, DatabaseError>;

    /// The present rows, unaffected by later writes. Cheap to take; rows that are overwritten or
    /// deleted keep their space on disk as long as it is held.
    fn snapshot(&self) -> Arc<dyn Rows>;

    /// Whether a snapshot is held, which keeps the database open.
    fn is_pinned(&self) -> bool {
        false
    }

    /// Writes all of a batch or nothing. With `sync`, it and every batch before it is durable when
    /// this returns; without, a crash may lose it, but never an earlier batch and not this one.
    ///
    /// # Errors
    ///
    /// If the database fails. Whether the batch is written is unknown then.
    fn write(&self, batch: &Batch, sync: bool) -> Result<(), DatabaseError>;

    /// Writes many rows at once. Each batch sets rows of one column in ascending order, and no two
    /// batches of a column overlap. They are durable when this returns; a crash before may leave some
    /// of them.
    ///
    /// # Errors
    ///
    /// If the database fails. Which rows are written is unknown then.
    fn load(&self, sorted: &[Batch]) -> Result<(), DatabaseError> {
        sorted.iter().try_for_each(|batch| self.write(batch, true))
    }

    /// About how many rows a column has, and bytes of its files.
    fn size(&self, column: &'static str) -> (u64, u64);

    /// Bytes that were written and are in no column's files yet.
    fn log_bytes(&self) -> u64;

    /// Rewrites the files so that deleted rows take no more space.
    fn compact(&self, column: &'static str);
}

/// An error of a database.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DatabaseError {
    /// Whether the files do not hold what was written to them.
    pub damaged: bool,
    pub message: String,
}

impl From<rocksdb::Error> for DatabaseError {
    fn from(error: rocksdb::Error) -> Self {
        Self {
            damaged: error.kind() == ErrorKind::Corruption,
            message: error.to_string(),
        }
    }
}

/// Changes that are written together. Later ones win.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    changes: Vec<Change>,
    bytes: Vec<u8>,
}

#[derive(Clone, Debug)]
struct Change {
    column: &'static str,
    key: Range<usize>,
    /// `None` to delete.
    value: Option<Range<usize>>,
}

impl Batch {
    /// Sets a row.
    pub fn put(&mut self, column: &'static str, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let key = self.keep(key.as_ref());
        let value = Some(self.keep(value.as_ref()));
        self.changes.push(Change { column, key, value });
    }

    /// Removes a row.
    pub fn delete(&mut self, column: &'static str, key: impl AsRef<[u8]>) {
        let key = self.keep(key.as_ref());
        let value = None;
        self.changes.push(Change { column, key, value });
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The bytes of all rows with their keys.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// How many changes there are.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Adds the changes of another batch after its own.
    pub fn append(&mut self, other: &Self) {
        for (column, key, value) in other.changes() {
            match value {
                Some(value) => self.put(column, key, value),
                None => self.delete(column, key),
            }
        }
    }

    /// The changes in their order: column, key, and the value, or `None` to delete.
    pub fn changes(&self) -> impl Iterator<Item = (&'static str, &[u8], Option<&[u8]>)> {
        self.changes.iter().map(|change| {
            let value = change.value.clone().map(|range| &self.bytes[range]);
            (change.column, &self.bytes[change.key.clone()], value)
        })
    }

    fn keep(&mut self, part: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(part);
        start..self.bytes.len()
    }
}

/// The folder for files that are being loaded, in that of the database.
const LOADING: &str = "loading";

/// RocksDB, opened with every column as a column family.
#[derive(Clone)]
pub struct RocksDatabase {
    rocks: Arc<DB>,
    /// The options of a column's files.
    files: fn(&str) -> Options,
}

impl RocksDatabase {
    /// The rows of an open database.
    pub fn new(database: Arc<DB>) -> Self {
        Self {
            rocks: database,
            files: |_| Options::default(),
        }
    }

    /// The same, whose loaded files have these options.
    pub(crate) fn with_files(self, files: fn(&str) -> Options) -> Self {
        Self { files, ..self }
    }

    /// Writes rows into a file of their own. Returns its column.
    fn write_file(&self, path: &Path, rows: &Batch) -> Result<Option<&'static str>, DatabaseError> {
        let Some((column, ..)) = rows.changes().next() else {
            return Ok(None);
        };
        let options = (self.files)(column);
        let mut file = SstFileWriter::create(&options);
        file.open(path)?;
        for (_, key, value) in rows.changes() {
            match value {
                Some(value) => file.put(key, value)?,
                None => file.delete(key)?,
            }
        }
        file.finish()?;
        Ok(Some(column))
    }

    fn load_from(&self, folder: &Path, sorted: &[Batch]) -> Result<(), DatabaseError> {
        let mut columns: BTreeMap<&str, Vec<PathBuf>> = BTreeMap::new();
        for (number, rows) in sorted.iter().enumerate() {
            let path = folder.join(format!("{number}.sst"));
            if let Some(column) = self.write_file(&path, rows)? {
                columns.entry(column).or_default().push(path);
            }
        }
        let mut options = IngestExternalFileOptions::default();
        options.set_move_files(true);
        for (column, files) in columns {
            let column = self.column(column)?;
            self.rocks
                .ingest_external_file_cf_opts(column, &options, files)?;
        }
        Ok(())
    }

    fn column(&self, name: &str) -> Result<&ColumnFamily, DatabaseError> {
        self.rocks.cf_handle(name).ok_or_else(|| DatabaseError {
            damaged: true,
            message: format!("the database has no column family {name:?}"),
        })
    }

    fn read_sorted(
        &self,
        column: &'static str,
        keys: &[&[u8]],
        options: &ReadOptions,
    ) -> Result<Vec<Option<Vec<u8>>>, DatabaseError> {
        let column = self.column(column)?;
        let keys = keys.iter().copied();
        self.rocks
            .batched_multi_get_cf_opt(column, keys, true, options)
            .into_iter()
            .map(|answer| Ok(answer?.map(|row| row.to_vec())))
            .collect()
    }

    fn visit_with(
        &self,
        column: &'static str,
        from: &[u8],
        below: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
        mut options: ReadOptions,
    ) -> Result<(), DatabaseError> {
        if let Some(below) = below {
            options.set_iterate_upper_bound(below);
        }
        let mut rows = self
            .rocks
            .raw_iterator_cf_opt(self.column(column)?, options);
        rows.seek(from);
        while let Some((key, value)) = rows.item()
            && visit(key, value)
        {
            rows.next();
        }
        Ok(rows.status()?)
    }
}

impl Rows for RocksDatabase {
    fn get_sorted(
        &self,
        column: &'static str,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Vec<u8>>>, DatabaseError> {
        self.read_sorted(column, keys, &ReadOptions::default())
    }

    fn visit(
        &self,
        column: &'static str,
        from: &[u8],
        below: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), DatabaseError> {
        self.visit_with(column, from, below, visit, ReadOptions::default())
    }
}

impl Database for RocksDatabase {
    fn get(&self, column: &'static str, key: &[u8]) -> Result<Option<Vec<u8>>, DatabaseError> {
        Ok(self.rocks.get_cf(self.column(column)?, key)?)
    }

    fn snapshot(&self) -> Arc<dyn Rows> {
        Arc::new(RocksSnapshot(Pinned::new(self.clone(), |database| {
            rocksdb::Snapshot::new(&database.rocks)
        })))
    }

    fn is_pinned(&self) -> bool {
        Arc::strong_count(&self.rocks) > 1
    }

    fn write(&self, batch: &Batch, sync: bool) -> Result<(), DatabaseError> {
        let mut rocks = WriteBatch::with_capacity_bytes(batch.bytes.len() * 9 / 8);
        for (column, key, value) in batch.changes() {
            match value {
                Some(value) => rocks.put_cf(self.column(column)?, key, value),
                None => rocks.delete_cf(self.column(column)?, key),
            }
        }
        let mut options = WriteOptions::default();
        options.set_sync(sync);
        Ok(self.rocks.write_opt(rocks, &options)?)
    }

    fn load(&self, sorted: &[Batch]) -> Result<(), DatabaseError> {
        if sorted.is_empty() {
            return Ok(());
        }
        let folder = self.rocks.path().join(LOADING);
        // What a crash has left.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).map_err(|error| DatabaseError {
            damaged: false,
            message: format!("{}: {error}", folder.display()),
        })?;
        let loaded = self.load_from(&folder, sorted);
        let _ = std::fs::remove_dir_all(&folder);
        loaded
    }

    fn size(&self, column: &'static str) -> (u64, u64) {
        use rocksdb::properties::{ESTIMATE_NUM_KEYS, TOTAL_SST_FILES_SIZE};
        let number = |name| {
            let column = self.column(column).ok()?;
            // A property that RocksDB does not report counts as zero.
            self.rocks
                .property_int_value_cf(column, name)
                .ok()
                .flatten()
        };
        (
            number(ESTIMATE_NUM_KEYS).unwrap_or(0),
            number(TOTAL_SST_FILES_SIZE).unwrap_or(0),
        )
    }

    fn log_bytes(&self) -> u64 {
        let Ok(files) = std::fs::read_dir(self.rocks.path()) else {
            return 0;
        };
        let logs = files.flatten().filter(|file| {
            let name = file.file_name();
            std::path::Path::new(&name).extension() == Some("log".as_ref())
        });
        // A log may be removed meanwhile.
        logs.filter_map(|file| Some(file.metadata().ok()?.len()))
            .sum()
    }

    fn compact(&self, column: &'static str) {
        if let Ok(column) = self.column(column) {
            self.rocks
                .compact_range_cf(column, None::<&[u8]>, None::<&[u8]>);
        }
    }
}

self_cell::self_cell!(
    /// A snapshot with its database.
    struct Pinned {
        owner: RocksDatabase,
        #[not_covariant]
        dependent: RocksdbSnapshot,
    }
);

type RocksdbSnapshot<'a> = rocksdb::Snapshot<'a>;

struct RocksSnapshot(Pinned);

impl RocksSnapshot {
    /// Reads with options that select the snapshot's rows.
    fn read<T>(&self, read: impl FnOnce(&RocksDatabase, ReadOptions) -> T) -> T {
        self.0.with_dependent(|database, snapshot| {
            let mut options = ReadOptions::default();
            options.set_snapshot(snapshot);
            read(database, options)
        })
    }
}

impl Rows for RocksSnapshot {
    fn get_sorted(
        &self,
        column: &'static str,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Vec<u8>>>, DatabaseError> {
        self.read(|database, options| database.read_sorted(column, keys, &options))
    }

    fn visit(
        &self,
        column: &'static str,
        from: &[u8],
        below: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), DatabaseError> {
        self.read(|database, options| database.visit_with(column, from, below, visit, options))
    }
}
