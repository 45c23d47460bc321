//! The vote journal: an append-only file of its own.
//!
//! # Layout
//!
//! `journal-NNNNNNNNNN.log` begins with a header (magic 8 bytes, version 4, chain id 32, salt 4, CRC-32
//! of these) and goes on with frames: length of the payload (4 bytes), sequence (8), the highest
//! sequence that was on disk when the frame was written (8; in a rewritten file, when the file got
//! its name), CRC-32 of these and the payload (4), payload ([`Record`]). Sequences count up from 1
//! in each file. Numbers are big-endian.
//!
//! The salt is random, new in each file, and the state that the CRC of a frame begins with. So nobody
//! can spell a frame within a block, for instance in the memo of a transaction: behind a torn write such
//! a frame would look like data that was promised. Files of version 1 have no salt (it is 0); they are
//! read, appended to, and gone with the next rewrite.
//!
//! # What a damaged file means
//!
//! Only [`Journal::release`] and [`Journal::rewrite`] promise anything: what was appended before is
//! on disk. On opening:
//!
//! - *Bytes that are no frame, and after them no frame that knew the missing ones to be on disk*: a
//!   crash tore the last write (whose pages reach the disk in any order). What was lost was never
//!   promised, so no vote in it was ever sent; the tail is cut off, and
//!   [`Recovered::truncated_bytes`] says so.
//! - *Bytes that are no frame, and after them a frame that knew the missing ones to be on disk*: data
//!   that was promised is damaged. The journal does not open: a validator that has forgotten a vote
//!   may contradict it.
//! - What cannot be told apart is damage to the very last write after it was promised, with nothing
//!   after it, from a torn write. Disks that corrupt what they have acknowledged need a mirror.
//!
//! [`Journal::rewrite`] writes a whole new file under another name, syncs it, renames it, syncs the
//! folder, and only then removes the old one. So every `journal-*.log` is complete, and of several
//! the highest number holds.
//!
//! Everything that is kept on opening is synced before anything else: a killed process may have left
//! it in the page cache only. A failed write or sync poisons the journal; it is never retried,
//! because after a failed sync nobody knows what is on disk.
//!
//! # Why not RocksDB
//!
//! The journal needs one sync per step, its own sequence numbers and checksums, and a way to tell a
//! torn tail from a hole. Plain appending with `fdatasync` took 147 µs on the machine of the
//! measurements, writing into preallocated zeros 102 µs; the journal appends.

use crate::disk::{Disk, DiskFile, SystemDisk};
use commonware_codec::{Copying, DecodeExt, Encode};
use quorate_types::{ChainId, Durable, Record, limits::MAX_BLOCK_BYTES};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

const MAGIC: &[u8; 8] = b"QUORJRNL";
const VERSION: u32 = 2;
const HEADER_BYTES: usize = 8 + 4 + 32 + 4 + 4;

/// The version without a salt.
const UNSALTED: u32 = 1;
const UNSALTED_HEADER_BYTES: usize = HEADER_BYTES - 4;

const FRAME_BYTES: usize = 4 + 8 + 8 + 4;

/// The longest payload: a block with its record's tag.
const MAX_PAYLOAD_BYTES: usize = MAX_BLOCK_BYTES + 16;

/// Bytes after which a checkpoint is due.
const REWRITE_BYTES: u64 = 8 << 20;

/// Most bytes of a file: far more than twice the largest checkpoint.
const MAX_FILE_BYTES: u64 = 16 << 30;

const TEMPORARY: &str = "journal.tmp";
const LOCK: &str = "LOCK";

/// Why the journal cannot be used. All of these stop the node.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file system failed.
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another process uses the folder.
    #[error("{path} is in use by another process: two validators must never share a journal")]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// The file is another chain's, of another version, or no journal.
    #[error(
        "{path} is not a journal of this chain ({what}): was a data directory copied? Put this validator's own journal \
         there, or move the folder away: the validator takes it for lost then"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        what: &'static str,
    },
    /// What was promised to be on disk is damaged.
    #[error(
        "{path} is damaged at byte {offset}: votes may be lost. Restore no copy: move this \
         folder away and start again; this validator then asks the others from which view on it may vote"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The offset of the first bytes that are no frame.
        offset: u64,
    },
    /// An earlier write or sync failed.
    #[error("{path}: an earlier write failed, so nothing more is written")]
    Poisoned {
        /// The file.
        path: PathBuf,
    },
}

/// What a journal held when it was opened.
#[derive(Debug)]
pub struct Recovered {
    /// The records, oldest first.
    pub records: Vec<Record>,
    /// Bytes of a torn tail that were cut off.
    pub truncated_bytes: u64,
    /// Whether there was no journal, and a new one was made.
    pub created: bool,
}

/// The journal of one validator. The folder is locked while it lives.
pub struct Journal {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    path: PathBuf,
    number: u64,
    chain: ChainId,
    salt: u32,
    file: Box<dyn DiskFile>,
    /// Appended, not yet written.
    buffer: Vec<u8>,
    next_sequence: u64,
    /// Every sequence up to this one is on disk.
    durable: u64,
    bytes: u64,
    bytes_at_rewrite: u64,
    rewrite_bytes: u64,
    poisoned: bool,
    _lock: Box<dyn Send>,
}

impl Journal {
    /// Opens the journal in a folder, or makes a new one.
    ///
    /// # Errors
    ///
    /// See [`JournalError`].
    pub fn open(directory: &Path, chain: ChainId) -> Result<(Self, Recovered), JournalError> {
        Self::open_on(Arc::new(SystemDisk), directory, chain)
    }

    /// Whether there is no journal in a folder. A folder that is there and holds none counts as such.
    ///
    /// # Errors
    ///
    /// If the folder cannot be read.
    pub fn is_absent(directory: &Path) -> Result<bool, JournalError> {
        match segments(&SystemDisk, directory) {
            Err(JournalError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(true)
            }
            numbers => Ok(numbers?.is_empty()),
        }
    }

    /// Reads the journal in a folder as [`Self::open`] would, and changes nothing.
    ///
    /// # Errors
    ///
    /// If it is there and cannot be opened.
    pub fn check_folder(directory: &Path, chain: ChainId) -> Result<(), JournalError> {
        if Self::is_absent(directory)? {
            return Ok(());
        }
        match segments(&SystemDisk, directory)?.last() {
            Some(&number) => read_segment(&SystemDisk, directory, number, chain).map(drop),
            None => Ok(()),
        }
    }

    /// As [`Self::open`], on a disk.
    ///
    /// # Errors
    ///
    /// See [`JournalError`].
    pub fn open_on(
        disk: Arc<dyn Disk>,
        directory: &Path,
        chain: ChainId,
    ) -> Result<(Self, Recovered), JournalError> {
        disk.make_folder(directory)
            .map_err(|e| io_error(directory, e))?;
        let lock = lock(&*disk, directory)?;
        // It is there only if a rewrite was cut short.
        let _ = disk.remove(&directory.join(TEMPORARY));
        let numbers = segments(&*disk, directory)?;
        let Some(&number) = numbers.last() else {
            let mut journal = Self::create(disk, directory, chain, lock)?;
            journal.rewrite(&[])?;
            return Ok((
                journal,
                Recovered {
                    records: Vec::new(),
                    truncated_bytes: 0,
                    created: true,
                },
            ));
        };
        let path = segment(directory, number);
        let Segment {
            salt,
            records,
            end,
            next_sequence,
            truncated_bytes,
        } = read_segment(&*disk, directory, number, chain)?;
        let mut file = disk.open(&path).map_err(|e| io_error(&path, e))?;
        file.cut(end)
            .and_then(|()| file.sync())
            .map_err(|e| io_error(&path, e))?;
        for old in &numbers[..numbers.len() - 1] {
            let old = segment(directory, *old);
            disk.remove(&old).map_err(|e| io_error(&old, e))?;
        }
        sync_directory(&*disk, directory)?;
        Ok((
            Self {
                disk,
                directory: directory.to_path_buf(),
                path,
                number,
                chain,
                salt,
                file,
                buffer: Vec::new(),
                next_sequence,
                durable: next_sequence - 1,
                bytes: end,
                bytes_at_rewrite: end.min(REWRITE_BYTES),
                rewrite_bytes: REWRITE_BYTES,
                poisoned: false,
                _lock: lock,
            },
            Recovered {
                records,
                truncated_bytes,
                created: false,
            },
        ))
    }

    fn create(
        disk: Arc<dyn Disk>,
        directory: &Path,
        chain: ChainId,
        lock: Box<dyn Send>,
    ) -> Result<Self, JournalError> {
        let path = directory.join(TEMPORARY);
        let file = disk.create(&path).map_err(|e| io_error(&path, e))?;
        Ok(Self {
            disk,
            directory: directory.to_path_buf(),
            path,
            number: 0,
            chain,
            salt: 0,
            file,
            buffer: Vec::new(),
            next_sequence: 1,
            durable: 0,
            bytes: 0,
            bytes_at_rewrite: 0,
            rewrite_bytes: REWRITE_BYTES,
            poisoned: false,
            _lock: lock,
        })
    }

    /// Adds a record. It is promised only by the next [`Journal::release`].
    ///
    /// # Errors
    ///
    /// If the journal is poisoned.
    pub fn append(&mut self, record: &Record) -> Result<(), JournalError> {
        self.check()?;
        let numbers = (self.next_sequence, self.durable);
        frame(record, numbers, self.salt, &mut self.buffer);
        self.next_sequence += 1;
        Ok(())
    }

    /// Puts everything that was appended on disk, with one sync, and only then marks the value as
    /// durable. Without anything new to write, nothing is synced.
    ///
    /// # Errors
    ///
    /// If the write or the sync fails; the journal is poisoned then.
    pub fn release<T>(&mut self, value: T) -> Result<Durable<T>, JournalError> {
        self.check()?;
        if !self.buffer.is_empty() {
            let result = self
                .file
                .append(&self.buffer)
                .and_then(|()| self.file.sync());
            self.poison_on_error(result)?;
            self.bytes += self.buffer.len() as u64;
            self.buffer.clear();
            self.durable = self.next_sequence - 1;
        }
        Ok(Durable::after_sync(value))
    }

    /// Replaces everything by these records, which are on disk when this returns. What was
    /// appended and not released is dropped: the records must stand for it too.
    ///
    /// # Errors
    ///
    /// If a write or sync fails; the journal is poisoned then. On disk is either the old content
    /// or the new.
    pub fn rewrite(&mut self, records: &[Record]) -> Result<(), JournalError> {
        self.check()?;
        let salt = rand::random();
        let mut content = header(self.chain, salt);
        // The sequence starts anew, so that a first frame which is missing is known to be number 1.
        // The file gets its name after its sync, so each of its frames knows all of them on disk.
        self.next_sequence = 1;
        let durable = records.len() as u64;
        for record in records {
            frame(record, (self.next_sequence, durable), salt, &mut content);
            self.next_sequence += 1;
        }
        self.salt = salt;
        let result = self.replace(&content);
        if result.is_err() {
            self.poisoned = true;
        }
        result
    }

    fn replace(&mut self, content: &[u8]) -> Result<(), JournalError> {
        let temporary = self.directory.join(TEMPORARY);
        let path = segment(&self.directory, self.number + 1);
        let disk = &*self.disk;
        let mut file = disk
            .create(&temporary)
            .map_err(|e| io_error(&temporary, e))?;
        file.append(content)
            .and_then(|()| file.sync())
            .and_then(|()| disk.rename(&temporary, &path))
            .map_err(|e| io_error(&temporary, e))?;
        sync_directory(disk, &self.directory)?;
        if self.number > 0 {
            disk.remove(&self.path)
                .map_err(|e| io_error(&self.path, e))?;
            sync_directory(disk, &self.directory)?;
        }
        self.number += 1;
        self.path = path;
        self.file = file;
        self.buffer.clear();
        self.durable = self.next_sequence - 1;
        self.bytes = content.len() as u64;
        self.bytes_at_rewrite = self.bytes;
        Ok(())
    }

    /// Has a rewrite be due at another length than 8 MiB.
    pub fn rewrite_after(&mut self, bytes: u64) {
        self.rewrite_bytes = bytes;
    }

    /// Whether the journal is so long that a [`Journal::rewrite`] is due: 8 MiB, or twice what the
    /// last one left if that is more.
    pub fn should_rewrite(&self) -> bool {
        self.bytes > self.rewrite_bytes.max(2 * self.bytes_at_rewrite)
    }

    /// Whether it was rewritten since it began, so that it may have held votes that it does not hold now.
    pub fn is_rewritten(&self) -> bool {
        self.number > 1
    }

    /// Bytes on disk.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn check(&self) -> Result<(), JournalError> {
        if self.poisoned {
            return Err(JournalError::Poisoned {
                path: self.path.clone(),
            });
        }
        Ok(())
    }

    fn poison_on_error(&mut self, result: io::Result<()>) -> Result<(), JournalError> {
        result.map_err(|source| {
            self.poisoned = true;
            io_error(&self.path, source)
        })
    }
}

/// What a file of the journal holds.
struct Segment {
    salt: u32,
    records: Vec<Record>,
    /// Where its whole frames end.
    end: u64,
    next_sequence: u64,
    /// Bytes of a torn tail behind them.
    truncated_bytes: u64,
}

fn read_segment(
    disk: &dyn Disk,
    directory: &Path,
    number: u64,
    chain: ChainId,
) -> Result<Segment, JournalError> {
    let path = segment(directory, number);
    let content = disk
        .read(&path, MAX_FILE_BYTES)
        .map_err(|e| io_error(&path, e))?;
    let (begin, salt) = read_header(&path, &content, chain)?;
    let (records, end, next_sequence) = scan(&path, &content, begin, salt)?;
    Ok(Segment {
        salt,
        records,
        end: end as u64,
        next_sequence,
        truncated_bytes: (content.len() - end) as u64,
    })
}

fn io_error(path: &Path, source: io::Error) -> JournalError {
    JournalError::Io {
        path: path.to_path_buf(),
        source,
    }
}

/// Locks the folder against other processes, for as long as what is returned lives.
fn lock(disk: &dyn Disk, directory: &Path) -> Result<Box<dyn Send>, JournalError> {
    let path = directory.join(LOCK);
    disk.lock(&path).map_err(|source| match source.kind() {
        io::ErrorKind::WouldBlock => JournalError::InUse {
            path: directory.to_path_buf(),
        },
        _ => io_error(&path, source),
    })
}

fn segment(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("journal-{number:010}.log"))
}

/// The numbers of all segments, ascending.
fn segments(disk: &dyn Disk, directory: &Path) -> Result<Vec<u64>, JournalError> {
    let names = disk.names(directory).map_err(|e| io_error(directory, e))?;
    let number = |name: &String| -> Option<u64> {
        let digits = name.strip_prefix("journal-")?.strip_suffix(".log")?;
        digits.parse().ok()
    };
    let mut numbers: Vec<u64> = names.iter().filter_map(number).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

fn sync_directory(disk: &dyn Disk, directory: &Path) -> Result<(), JournalError> {
    disk.sync_folder(directory)
        .map_err(|e| io_error(directory, e))
}

fn header(chain: ChainId, salt: u32) -> Vec<u8> {
    let mut bytes = unsummed_header(VERSION, chain);
    bytes.extend_from_slice(&salt.to_be_bytes());
    with_checksum(bytes)
}

fn unsummed_header(version: u32, chain: ChainId) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&version.to_be_bytes());
    bytes.extend_from_slice(&chain.0.0);
    bytes
}

fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&checksum.to_be_bytes());
    bytes
}

/// Where the frames begin, and the file's salt.
fn read_header(path: &Path, content: &[u8], chain: ChainId) -> Result<(usize, u32), JournalError> {
    let foreign = |what| JournalError::Foreign {
        path: path.to_path_buf(),
        what,
    };
    let damaged = JournalError::Damaged {
        path: path.to_path_buf(),
        offset: 0,
    };
    let number = |from: usize| -> Option<u32> {
        Some(u32::from_be_bytes(
            content.get(from..from + 4)?.try_into().ok()?,
        ))
    };
    let (Some(version), Some(found)) = (number(8), content.get(..UNSALTED_HEADER_BYTES)) else {
        return Err(damaged);
    };
    if found[..8] != *MAGIC {
        return Err(foreign("it does not begin like one"));
    }
    if version != VERSION && version != UNSALTED {
        return Err(foreign("another version wrote it"));
    }
    if found[12..44] != chain.0.0 {
        return Err(foreign("its chain is another"));
    }
    let salt = number(44).unwrap_or_default();
    let (expected, salt) = match version {
        UNSALTED => (with_checksum(unsummed_header(UNSALTED, chain)), 0),
        _ => (header(chain, salt), salt),
    };
    match content.starts_with(&expected) {
        true => Ok((expected.len(), salt)),
        false => Err(damaged),
    }
}

fn frame(record: &Record, (sequence, durable): (u64, u64), salt: u32, buffer: &mut Vec<u8>) {
    let payload = record.encode();
    let length = u32::try_from(payload.len()).expect("a record is at most a block");
    let begin = buffer.len();
    buffer.extend_from_slice(&length.to_be_bytes());
    buffer.extend_from_slice(&sequence.to_be_bytes());
    buffer.extend_from_slice(&durable.to_be_bytes());
    let checksum = checksum(salt, &buffer[begin..], &payload);
    buffer.extend_from_slice(&checksum.to_be_bytes());
    buffer.extend_from_slice(&payload);
}

fn checksum(salt: u32, head: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(salt);
    hasher.update(head);
    hasher.update(payload);
    hasher.finalize()
}

/// A frame whose checksum holds.
struct Frame<'a> {
    sequence: u64,
    durable: u64,
    payload: &'a [u8],
}

/// The frame at the start of `bytes`, if there is one.
fn parse(bytes: &[u8], salt: u32) -> Option<Frame<'_>> {
    let number = |from: usize| -> Option<u64> {
        Some(u64::from_be_bytes(
            bytes.get(from..from + 8)?.try_into().ok()?,
        ))
    };
    let length = u32::from_be_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    if length > MAX_PAYLOAD_BYTES {
        return None;
    }
    let (sequence, durable) = (number(4)?, number(12)?);
    let held = u32::from_be_bytes(bytes.get(20..24)?.try_into().ok()?);
    let payload = bytes.get(FRAME_BYTES..FRAME_BYTES + length)?;
    (checksum(salt, &bytes[..20], payload) == held).then_some(Frame {
        sequence,
        durable,
        payload,
    })
}

/// The records, where they end, and the sequence after the last.
fn scan(
    path: &Path,
    content: &[u8],
    begin: usize,
    salt: u32,
) -> Result<(Vec<Record>, usize, u64), JournalError> {
    let damaged = |offset: usize| JournalError::Damaged {
        path: path.to_path_buf(),
        offset: offset as u64,
    };
    let mut records = Vec::new();
    let mut offset = begin;
    let mut next: Option<u64> = None;
    while let Some(frame) = parse(&content[offset..], salt) {
        if next.is_some_and(|next| next != frame.sequence) {
            return Err(damaged(offset));
        }
        let record = Record::decode(Copying(frame.payload)).map_err(|_| damaged(offset))?;
        records.push(record);
        next = Some(frame.sequence.saturating_add(1));
        offset += FRAME_BYTES + frame.payload.len();
    }
    let missing = next.unwrap_or(1);
    let was_promised = (offset + 1..content.len())
        .filter_map(|at| parse(&content[at..], salt))
        .filter(|frame| frame.sequence > missing && frame.durable >= missing)
        .any(|frame| Record::decode(Copying(frame.payload)).is_ok());
    if was_promised {
        return Err(damaged(offset));
    }
    Ok((records, offset, missing))
}
