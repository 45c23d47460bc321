//! The file system operations that a node needs, so that a simulator can provide its own: one that
//! loses what was not synced, tears writes, and fails.
//!
//! RocksDB brings its own; see [`crate::database`].

use quorate_files::read_bounded;
use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Seek, SeekFrom, Write},
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

/// A file system. Paths are absolute, or relative to a folder of the implementation's choice.
///
/// A change is durable only after a sync: of the file for its content, of its folder for its name.
pub trait Disk: Send + Sync {
    /// Makes a folder, and those above it, if it is not there.
    ///
    /// # Errors
    ///
    /// If the file system fails.
    fn make_folder(&self, path: &Path) -> io::Result<()>;

    /// Locks a file, creating it if necessary, until the returned value is dropped.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] if another process holds it; or if the file system fails.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send>>;

    /// The names of the files in a folder, in no order.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] if there is no such folder; or if the file system fails.
    fn names(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// A file's content.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] if there is no such file, [`io::ErrorKind::FileTooLarge`] if it
    /// is longer than `max_bytes`; or if the file system fails.
    fn read(&self, path: &Path, max_bytes: u64) -> io::Result<Vec<u8>>;

    /// A part of a file.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] if there is no such file, [`io::ErrorKind::UnexpectedEof`] if it is shorter;
    /// or if the file system fails.
    fn read_at(&self, path: &Path, offset: u64, bytes: usize) -> io::Result<Vec<u8>>;

    /// Opens an existing file to append to it.
    ///
    /// # Errors
    ///
    /// If it is not there, or the file system fails.
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Creates an empty file, replacing one of that name.
    ///
    /// # Errors
    ///
    /// If the file system fails.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Renames a file, replacing one of that name.
    ///
    /// # Errors
    ///
    /// If the file system fails.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    ///
    /// If it is not there, or the file system fails.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a folder durable.
    ///
    /// # Errors
    ///
    /// If the file system fails; whether they are is unknown then.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
}

/// An open file to append to.
pub trait DiskFile: Send {
    /// Writes at the end.
    ///
    /// # Errors
    ///
    /// If the file system fails; any part of it may be written then.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Truncates the file to this many bytes.
    ///
    /// # Errors
    ///
    /// If the file system fails.
    fn cut(&mut self, bytes: u64) -> io::Result<()>;

    /// Makes the content durable.
    ///
    /// # Errors
    ///
    /// If the file system fails; what is durable is unknown then, and another sync says nothing.
    fn sync(&mut self) -> io::Result<()>;
}

/// The operating system's file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemDisk;

struct SystemFile(File);

impl Disk for SystemDisk {
    fn make_folder(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send>> {
        let file = File::create(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(file)),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<String>> {
        fs::read_dir(folder)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    }

    fn read(&self, path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
        Ok(read_bounded(path, max_bytes)?)
    }

    fn read_at(&self, path: &Path, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let mut read = vec![0; bytes];
        File::open(path)?.read_exact_at(&mut read, offset)?;
        Ok(read)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut file = OpenOptions::new().read(true).write(true).open(path)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Box::new(SystemFile(file)))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(SystemFile(File::create(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }
}

impl DiskFile for SystemFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)?;
        self.0.seek(SeekFrom::Start(bytes)).map(drop)
    }

    fn sync(&mut self) -> io::Result<()> {
        // On Linux this also makes a new length durable.
        self.0.sync_data()?;
        // What is appended to a file without a name is gone with the process.
        match self.0.metadata()?.nlink() {
            0 => Err(io::Error::new(
                io::ErrorKind::NotFound,
                "it was deleted while it was in use",
            )),
            _ => Ok(()),
        }
    }
}

/// Replaces a file by a new one, so that after a crash one of the two is there whole.
///
/// # Errors
///
/// If the file system fails.
pub fn write_atomically(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = disk.create(&new)?;
    file.append(bytes)?;
    file.sync()?;
    disk.rename(&new, path)?;
    disk.sync_folder(&folder_of(path))
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_path_buf(),
        _ => PathBuf::from("."),
    }
}
