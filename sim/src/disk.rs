//! A validator's disk: files and rows that can be lost, torn, refused, and filled up.
//!
//! What it promises is what a file system under a power cut does, and no more:
//! - content is durable up to the last sync of the file; of what was written since, any prefix may
//!   have arrived, with holes where pages came out of order;
//! - names are durable since the last sync of their folder; of the changes since, any prefix;
//! - batches of rows are durable since the last one that was synced; of those after it, any prefix,
//!   each of them whole or not at all.
//!
//! Every operation that changes something has a number. A [`Mishap`] strikes at one of them.

use crate::clock::SimClock;
use quorate_storage::{
    database::{Batch, Database, DatabaseError, Rows},
    disk::{Disk, DiskFile},
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

/// Bytes that reach a disk together.
const PAGE_BYTES: usize = 512;

/// What goes wrong with an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// The power goes before it.
    CrashBefore,
    /// The power goes when a part of it is done.
    CrashInside,
    /// The power fails after it, before the program gets its result.
    CrashAfter,
    /// It fails, and a part of it is done.
    Fail,
    /// A sync that says it is done and does nothing; other operations are as ever.
    Lie,
}

impl Mishap {
    /// The three ways to crash.
    pub const CRASHES: [Self; 3] = [Self::CrashBefore, Self::CrashInside, Self::CrashAfter];
}

/// A change of names that no sync has made durable.
#[derive(Clone)]
enum NameChange {
    Set(PathBuf, usize),
    Unset(PathBuf),
}

#[derive(Default)]
struct Inode {
    bytes: Vec<u8>,
    /// This many bytes are durable.
    durable: usize,
    /// The durable content, if the file was cut below it since.
    before_cut: Option<Vec<u8>>,
}

/// What has just become durable in a file: its path, the offset, the bytes.
pub(crate) type News = (PathBuf, usize, Vec<u8>);

type Column = BTreeMap<Vec<u8>, Vec<u8>>;
type Undo = Vec<(&'static str, Vec<u8>, Option<Vec<u8>>)>;

/// The disk's insides.
pub(crate) struct Platter {
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    renamed: Vec<NameChange>,
    folders: BTreeSet<PathBuf>,
    locks: BTreeSet<PathBuf>,
    rows: BTreeMap<&'static str, Column>,
    /// How to take back each batch that is not durable, oldest first.
    undo: Vec<Undo>,
    rng: ChaCha8Rng,
    operations: u64,
    mishap: Option<(u64, Mishap)>,
    struck: u64,
    lied: bool,
    crashed: bool,
    full: bool,
    clock: Arc<SimClock>,
    sync_takes: Duration,
    news: Vec<News>,
}

/// A copy of a disk.
pub(crate) struct DiskCopy {
    files: Vec<(PathBuf, Vec<u8>)>,
    rows: BTreeMap<&'static str, Column>,
}

/// A handle on a disk.
#[derive(Clone)]
pub(crate) struct SimDisk(Arc<Mutex<Platter>>);

struct SimFile {
    disk: SimDisk,
    inode: usize,
    path: PathBuf,
}

struct Lock {
    disk: SimDisk,
    path: PathBuf,
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.disk.platter().locks.remove(&self.path);
    }
}

fn failure(what: &str) -> io::Error {
    io::Error::other(format!("simulated: {what}"))
}

/// How much of an operation happens.
enum Extent {
    All,
    Part,
}

impl Platter {
    /// Puts files there, durable.
    fn put(&mut self, files: &[(PathBuf, Vec<u8>)]) {
        for (path, bytes) in files {
            let inode = self.inodes.len();
            self.inodes.push(Inode {
                bytes: bytes.clone(),
                durable: bytes.len(),
                before_cut: None,
            });
            self.names.insert(path.clone(), inode);
            self.durable_names.insert(path.clone(), inode);
        }
    }

    /// Counts an operation and lets what is to happen to it happen. `Err` is what the program gets
    /// before anything is done; the mishap tells what it gets afterwards.
    fn begin(&mut self) -> io::Result<(Extent, Option<Mishap>)> {
        if self.crashed {
            return Err(failure("the power is off"));
        }
        self.operations += 1;
        let mishap = self
            .mishap
            .take_if(|(at, _)| *at == self.operations)
            .map(|(_, mishap)| mishap);
        self.struck += u64::from(mishap.is_some());
        self.lied |= mishap == Some(Mishap::Lie);
        match mishap {
            Some(Mishap::CrashBefore) => {
                self.crashed = true;
                Err(failure("the power went"))
            }
            Some(Mishap::CrashInside | Mishap::Fail) => Ok((Extent::Part, mishap)),
            _ => Ok((Extent::All, mishap)),
        }
    }

    fn end(&mut self, mishap: Option<Mishap>) -> io::Result<()> {
        match mishap {
            Some(Mishap::CrashInside | Mishap::CrashAfter) => {
                self.crashed = true;
                Err(failure("the power went"))
            }
            Some(Mishap::Fail) => Err(failure("input/output error")),
            Some(Mishap::CrashBefore | Mishap::Lie) | None => Ok(()),
        }
    }

    fn append(&mut self, inode: usize, bytes: &[u8]) -> io::Result<()> {
        let (extent, mishap) = self.begin()?;
        let mut length = match extent {
            Extent::All => bytes.len(),
            Extent::Part => self.rng.random_range(0..=bytes.len()),
        };
        if self.full {
            length = length.min(bytes.len() / 2);
        }
        self.inodes[inode].bytes.extend_from_slice(&bytes[..length]);
        if self.full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.end(mishap)
    }

    fn cut(&mut self, inode: usize, length: usize) -> io::Result<()> {
        let (_, mishap) = self.begin()?;
        let file = &mut self.inodes[inode];
        if length < file.durable && file.before_cut.is_none() {
            file.before_cut = Some(file.bytes[..file.durable].to_vec());
        }
        file.bytes.truncate(length);
        file.durable = file.durable.min(length);
        self.end(mishap)
    }

    fn sync(&mut self, inode: usize, path: &Path) -> io::Result<()> {
        let (extent, mishap) = self.begin()?;
        self.clock.work(self.sync_takes);
        if mishap != Some(Mishap::Lie) {
            let file = &mut self.inodes[inode];
            let before = file.durable;
            file.durable = match extent {
                Extent::All => file.bytes.len(),
                Extent::Part => self.rng.random_range(before..=file.bytes.len()),
            };
            file.before_cut = None;
            let news = file.bytes[before..file.durable].to_vec();
            if !news.is_empty() {
                self.news.push((path.to_path_buf(), before, news));
            }
        }
        self.end(mishap)
    }

    fn change_name(&mut self, changes: Vec<NameChange>) -> io::Result<()> {
        let (extent, mishap) = self.begin()?;
        let happens = match extent {
            Extent::All => true,
            Extent::Part => self.rng.random_bool(0.5),
        };
        if happens {
            for change in changes {
                apply(&mut self.names, &change);
                self.renamed.push(change);
            }
        }
        self.end(mishap)
    }

    fn sync_folder(&mut self) -> io::Result<()> {
        let (extent, mishap) = self.begin()?;
        self.clock.work(self.sync_takes);
        if mishap != Some(Mishap::Lie) {
            let count = match extent {
                Extent::All => self.renamed.len(),
                Extent::Part => self.rng.random_range(0..=self.renamed.len()),
            };
            for change in self.renamed.drain(..count) {
                apply(&mut self.durable_names, &change);
            }
        }
        self.end(mishap)
    }

    fn write(&mut self, batch: &Batch, sync: bool) -> io::Result<()> {
        if self.full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let (extent, mishap) = self.begin()?;
        let happens = match extent {
            Extent::All => true,
            Extent::Part => self.rng.random_bool(0.5),
        };
        if happens {
            let mut undo = Undo::new();
            for (column, key, value) in batch.changes() {
                let rows = self.rows.entry(column).or_default();
                let before = match value {
                    Some(value) => rows.insert(key.to_vec(), value.to_vec()),
                    None => rows.remove(key),
                };
                undo.push((column, key.to_vec(), before));
            }
            self.undo.push(undo);
            if sync {
                self.clock.work(self.sync_takes);
                if mishap.is_none_or(|mishap| mishap == Mishap::CrashAfter) {
                    self.undo.clear();
                }
            }
        }
        self.end(mishap)
    }

    /// Loses what no sync has made durable, but for what chance keeps.
    fn crash(&mut self) {
        let kept = self.rng.random_range(0..=self.renamed.len());
        for change in self.renamed.drain(..).take(kept) {
            apply(&mut self.durable_names, &change);
        }
        self.names = self.durable_names.clone();
        let live: BTreeSet<usize> = self.names.values().copied().collect();
        for (number, file) in self.inodes.iter_mut().enumerate() {
            if !live.contains(&number) {
                *file = Inode::default();
                continue;
            }
            if let Some(before) = file.before_cut.take()
                && self.rng.random_bool(0.5)
            {
                file.durable = before.len();
                file.bytes = before;
            }
            let kept = self.rng.random_range(file.durable..=file.bytes.len());
            file.bytes.truncate(kept);
            let fresh = kept - file.durable;
            if fresh > PAGE_BYTES && self.rng.random_bool(0.5) {
                let start = file.durable + self.rng.random_range(0..fresh - PAGE_BYTES);
                let end = (start + PAGE_BYTES).min(kept);
                file.bytes[start..end].fill(0);
            }
            file.durable = file.bytes.len();
        }
        let kept = self.rng.random_range(0..=self.undo.len());
        for undo in self.undo.drain(..).skip(kept).rev() {
            for (column, key, before) in undo.into_iter().rev() {
                let rows = self.rows.entry(column).or_default();
                match before {
                    Some(value) => rows.insert(key, value),
                    None => rows.remove(&key),
                };
            }
        }
        self.locks.clear();
        self.crashed = false;
        self.news.clear();
    }
}

fn apply(names: &mut BTreeMap<PathBuf, usize>, change: &NameChange) {
    match change {
        NameChange::Set(path, inode) => {
            names.insert(path.clone(), *inode);
        }
        NameChange::Unset(path) => {
            names.remove(path);
        }
    }
}

impl SimDisk {
    /// An empty disk whose syncs take this long.
    pub(crate) fn new(seed: u64, clock: Arc<SimClock>, sync_takes: Duration) -> Self {
        Self(Arc::new(Mutex::new(Platter {
            inodes: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            renamed: Vec::new(),
            folders: BTreeSet::new(),
            locks: BTreeSet::new(),
            rows: BTreeMap::new(),
            undo: Vec::new(),
            rng: ChaCha8Rng::seed_from_u64(seed),
            operations: 0,
            mishap: None,
            struck: 0,
            lied: false,
            crashed: false,
            full: false,
            clock,
            sync_takes,
            news: Vec::new(),
        })))
    }

    fn platter(&self) -> MutexGuard<'_, Platter> {
        self.0.lock().unwrap_or_else(|broken| broken.into_inner())
    }

    /// How many operations there were.
    pub(crate) fn operations(&self) -> u64 {
        self.platter().operations
    }

    /// Lets something go wrong with an operation, counted from now; 1 is the next.
    pub(crate) fn plan(&self, after: u64, mishap: Mishap) {
        let mut platter = self.platter();
        platter.mishap = Some((platter.operations + after.max(1), mishap));
    }

    /// Takes back what was planned. Returns whether it was still to come.
    pub(crate) fn cancel(&self) -> bool {
        self.platter().mishap.take().is_some()
    }

    /// How many mishaps there were.
    pub(crate) fn struck(&self) -> u64 {
        self.platter().struck
    }

    /// Whether the power went in the middle of an operation.
    pub(crate) fn has_crashed(&self) -> bool {
        self.platter().crashed
    }

    /// Lets writes fail for want of room, or no more.
    pub(crate) fn set_full(&self, full: bool) {
        self.platter().full = full;
    }

    /// Whether a sync has lied.
    pub(crate) fn has_lied(&self) -> bool {
        self.platter().lied
    }

    /// Whether writes fail for want of room.
    pub(crate) fn is_full(&self) -> bool {
        self.platter().full
    }

    /// All rows are gone for good.
    pub(crate) fn lose_rows(&self) {
        let mut platter = self.platter();
        platter.rows.clear();
        platter.undo.clear();
    }

    /// The files of a folder are those: what was there is gone for good.
    pub(crate) fn replace_files(&self, folder: &Path, files: &[(PathBuf, Vec<u8>)]) {
        let mut platter = self.platter();
        let inside = |path: &PathBuf| path.parent() == Some(folder);
        platter.names.retain(|path, _| !inside(path));
        platter.durable_names.retain(|path, _| !inside(path));
        platter.renamed.retain(|change| match change {
            NameChange::Set(path, _) | NameChange::Unset(path) => !inside(path),
        });
        platter.put(files);
    }

    /// What is durable, of a disk that is not in use.
    pub(crate) fn copy(&self) -> DiskCopy {
        let platter = self.platter();
        let files = platter.durable_names.iter();
        let file = |(path, inode): (&PathBuf, &usize)| {
            let file = &platter.inodes[*inode];
            (path.clone(), file.bytes[..file.durable].to_vec())
        };
        DiskCopy {
            files: files.map(file).collect(),
            rows: platter.rows.clone(),
        }
    }

    /// Puts a copy in the place of all that is there.
    pub(crate) fn restore(&self, copy: &DiskCopy) {
        let mut platter = self.platter();
        platter.names.clear();
        platter.durable_names.clear();
        platter.renamed.clear();
        platter.undo.clear();
        platter.rows = copy.rows.clone();
        platter.put(&copy.files);
    }

    /// The durable content of a folder's files.
    pub(crate) fn files(&self, folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
        let platter = self.platter();
        let files = platter.durable_names.iter();
        let inside = files.filter(|(path, _)| path.parent() == Some(folder));
        inside
            .map(|(path, inode)| {
                let file = &platter.inodes[*inode];
                (path.clone(), file.bytes[..file.durable].to_vec())
            })
            .collect()
    }

    /// The power goes, now.
    pub(crate) fn crash(&self) {
        self.platter().crash();
    }

    /// What has become durable since the last call.
    pub(crate) fn news(&self) -> Vec<News> {
        std::mem::take(&mut self.platter().news)
    }

    /// All that is durable of all files, in the place of their news: what a program that has just
    /// started may rely on.
    pub(crate) fn whole(&self) -> Vec<News> {
        let mut platter = self.platter();
        platter.news.clear();
        let files = platter.names.iter();
        files
            .map(|(path, inode)| {
                let file = &platter.inodes[*inode];
                (path.clone(), 0, file.bytes[..file.durable].to_vec())
            })
            .collect()
    }

    /// Rows that are there already, durable.
    pub(crate) fn preload(&self, rows: BTreeMap<&'static str, Column>) {
        self.platter().rows = rows;
    }

    /// All rows.
    pub(crate) fn rows(&self) -> BTreeMap<&'static str, Column> {
        self.platter().rows.clone()
    }

    /// Bytes of all files and rows.
    #[allow(dead_code)]
    pub(crate) fn bytes(&self) -> usize {
        let platter = self.platter();
        let files = platter
            .names
            .values()
            .map(|i| platter.inodes[*i].bytes.len());
        let rows = platter.rows.values().flatten();
        files.sum::<usize>()
            + rows
                .map(|(key, value)| key.len() + value.len())
                .sum::<usize>()
    }
}

impl Disk for SimDisk {
    fn make_folder(&self, path: &Path) -> io::Result<()> {
        self.platter().folders.insert(path.to_path_buf());
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send>> {
        if !self.platter().locks.insert(path.to_path_buf()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(Lock {
            disk: self.clone(),
            path: path.to_path_buf(),
        }))
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<String>> {
        let platter = self.platter();
        if !platter.folders.contains(folder) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let inside = platter.names.keys().filter(|p| p.parent() == Some(folder));
        let names = inside.filter_map(|path| path.file_name());
        Ok(names.map(|n| n.to_string_lossy().into_owned()).collect())
    }

    fn read(&self, path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
        let platter = self.platter();
        let inode = *platter.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        let bytes = &platter.inodes[inode].bytes;
        if bytes.len() as u64 > max_bytes {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(bytes.clone())
    }

    fn read_at(&self, path: &Path, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let platter = self.platter();
        let inode = *platter.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        let from = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let content = platter.inodes[inode].bytes.get(from..);
        let read = content.and_then(|content| content.get(..bytes));
        Ok(read.ok_or(io::ErrorKind::UnexpectedEof)?.to_vec())
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let inode = *self
            .platter()
            .names
            .get(path)
            .ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(SimFile {
            disk: self.clone(),
            inode,
            path: path.to_path_buf(),
        }))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut platter = self.platter();
        let inode = platter.inodes.len();
        platter.inodes.push(Inode::default());
        platter.change_name(vec![NameChange::Set(path.to_path_buf(), inode)])?;
        Ok(Box::new(SimFile {
            disk: self.clone(),
            inode,
            path: path.to_path_buf(),
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut platter = self.platter();
        let inode = *platter.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        platter.change_name(vec![
            NameChange::Set(to.to_path_buf(), inode),
            NameChange::Unset(from.to_path_buf()),
        ])
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut platter = self.platter();
        if !platter.names.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        platter.change_name(vec![NameChange::Unset(path.to_path_buf())])
    }

    fn sync_folder(&self, _: &Path) -> io::Result<()> {
        self.platter().sync_folder()
    }
}

impl DiskFile for SimFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.disk.platter().append(self.inode, bytes)
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        let length = usize::try_from(bytes).expect("a short file");
        self.disk.platter().cut(self.inode, length)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.platter().sync(self.inode, &self.path)
    }
}

fn visit_rows(
    columns: &BTreeMap<&'static str, Column>,
    column: &'static str,
    from: &[u8],
    below: Option<&[u8]>,
    visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
) {
    let rows = columns.get(column).into_iter();
    let mut rows = rows.flat_map(|rows| rows.range(from.to_vec()..));
    while let Some((key, value)) = rows.next()
        && below.is_none_or(|below| &key[..] < below)
        && visit(key, value)
    {}
}

/// The rows of the database as they were.
struct Frozen(BTreeMap<&'static str, Column>);

impl Rows for Frozen {
    fn get_sorted(
        &self,
        column: &'static str,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Vec<u8>>>, DatabaseError> {
        let rows = self.0.get(column);
        let row = |key: &&[u8]| rows.and_then(|rows| rows.get(*key)).cloned();
        Ok(keys.iter().map(row).collect())
    }

    fn visit(
        &self,
        column: &'static str,
        from: &[u8],
        below: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), DatabaseError> {
        visit_rows(&self.0, column, from, below, visit);
        Ok(())
    }
}

impl Rows for SimDisk {
    fn get_sorted(
        &self,
        column: &'static str,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Vec<u8>>>, DatabaseError> {
        keys.iter().map(|key| self.get(column, key)).collect()
    }

    fn visit(
        &self,
        column: &'static str,
        from: &[u8],
        below: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), DatabaseError> {
        visit_rows(&self.platter().rows, column, from, below, visit);
        Ok(())
    }
}

impl Database for SimDisk {
    fn get(&self, column: &'static str, key: &[u8]) -> Result<Option<Vec<u8>>, DatabaseError> {
        let platter = self.platter();
        Ok(platter
            .rows
            .get(column)
            .and_then(|rows| rows.get(key).cloned()))
    }

    fn snapshot(&self) -> Arc<dyn Rows> {
        Arc::new(Frozen(self.platter().rows.clone()))
    }

    fn write(&self, batch: &Batch, sync: bool) -> Result<(), DatabaseError> {
        let written = self.platter().write(batch, sync);
        written.map_err(|error| DatabaseError {
            damaged: false,
            message: error.to_string(),
        })
    }

    fn size(&self, column: &'static str) -> (u64, u64) {
        let platter = self.platter();
        let rows = platter.rows.get(column).map_or(0, |rows| rows.len() as u64);
        (rows, 0)
    }

    fn log_bytes(&self) -> u64 {
        0
    }

    fn compact(&self, _: &'static str) {}
}
