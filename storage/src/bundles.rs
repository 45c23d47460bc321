//! The bundles of a chain that only orders payloads: an append-only log in segments.
//!
//! # Layout
//!
//! `bundles-NNNNNNNNNN.log` begins with a header (magic 8 bytes, version 4, chain id 32, CRC-32 of these) and goes on
//! with records: length of the payload (4 bytes), CRC-32 of the payload (4), payload ([`OrderedBundle`]). Numbers are
//! big-endian. A segment that has reached 64 MiB is synced and followed by another one.
//!
//! Each byte is written once. What is asked for again is read from the file, at a place that is kept in memory. A segment
//! that is followed by another one has its places in `bundles-NNNNNNNNNN.index`: magic 8 bytes, the segment's length 8,
//! for each bundle its digest 32, author 32, number 8, offset 8, the record's payload bytes 4, the bundle's bytes 4 and
//! payloads 4, and a CRC-32 of all this. On opening, a segment without a valid one is read through.
//!
//! # What is promised
//!
//! After [`BundleLog::sync`], what was appended before is on disk, and [`BundleReader::holds`] says so. In the last
//! segment, everything from the first record on that is damaged or cut off is removed on opening: it was never
//! promised, unless the disk has damaged what it had acknowledged. A validator that lacks bundles gets them from the
//! others.
//!
//! Beside the segments, `complete` names a height below which no bundle of a final block is missing: magic 8 bytes,
//! height 8, for each segment of that time its number 8, CRC-32 of these. Without it, or if one of these segments is
//! gone, or the newest one was cut off, all blocks are looked through.
//!
//! A failed write or sync poisons the log, as with the vote journal.

use crate::disk::{Disk, DiskFile};
use commonware_codec::{DecodeExt as _, Encode as _};
use parking_lot::RwLock;
use quorate_types::{
    BundleRef, ChainId, Digest, Height, Identity, OrderedBundle, limits::MAX_BUNDLE_BYTES,
};
use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

const MAGIC: &[u8; 8] = b"QUORBNDL";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 8 + 4 + 32 + 4;
const RECORD_BYTES: usize = 4 + 4;

/// Most bytes of a record's payload: a bundle, the transaction that orders it, and a length.
const MAX_RECORD_BYTES: usize = MAX_BUNDLE_BYTES + 1_024;

/// Most bundles that are kept: each takes about 200 bytes of memory.
const MAX_BUNDLES: usize = 1_000_000;

/// Bytes from which on a segment is followed by another one.
pub const SEGMENT_BYTES: u64 = 64 << 20;

const LOCK: &str = "LOCK";
const INDEX_MAGIC: &[u8; 8] = b"QUORBIDX";
const INDEX_ENTRY_BYTES: usize = 32 + 32 + 8 + 8 + 4 + 4 + 4;

/// Most bytes of a segment's index: bundles of one payload each.
const MAX_INDEX_BYTES: u64 = 64 << 20;

const COMPLETE: &str = "complete";
const COMPLETE_MAGIC: &[u8; 8] = b"QUORCMPL";

/// Why bundles cannot be stored or read.
#[derive(Debug, thiserror::Error)]
pub enum BundleLogError {
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    #[error("{path} is in use by another process")]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    #[error("{path} has no bundles of this chain ({what}): was a data directory copied?")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        what: &'static str,
    },
    /// A record of a segment that was synced as a whole.
    #[error(
        "{path} is damaged at byte {offset}: remove the file; what it held is fetched from the other validators"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The offset of the record.
        offset: u64,
    },
    #[error("{path}: an earlier write failed, so nothing more is written")]
    Poisoned {
        /// The file.
        path: PathBuf,
    },
}

/// Where a record's payload is.
#[derive(Clone, Copy, Debug)]
struct Place {
    segment: u64,
    offset: u64,
    bytes: u32,
    /// Of the bundle: its bytes and payloads.
    holds: (u32, u32),
}

#[derive(Default)]
struct Index {
    places: HashMap<Digest, Place>,
    /// What is in each segment, and its bytes; the oldest first.
    segments: VecDeque<Segment>,
}

struct Segment {
    number: u64,
    bytes: u64,
    entries: Vec<Entry>,
}

/// A stored bundle. The same payloads may be stored as several bundles, of other authors or numbers.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub digest: Digest,
    pub author: Identity,
    /// Its author's number for it.
    pub number: u64,
    place: Place,
}

impl Entry {
    /// What names the bundle.
    pub fn reference(&self) -> BundleRef {
        let (bytes, count) = self.place.holds;
        BundleRef {
            digest: self.digest,
            bytes,
            count,
        }
    }
}

/// The log's end that is written to.
pub struct BundleLog {
    reader: BundleReader,
    chain: ChainId,
    file: Box<dyn DiskFile>,
    number: u64,
    bytes: u64,
    /// Appended since the last sync.
    unsynced: Vec<Entry>,
    keep_bytes: u64,
    segment_bytes: u64,
    poisoned: bool,
    complete_below: Height,
    _lock: Box<dyn Send>,
}

/// What reads bundles. Cheap to clone; any thread may use it.
#[derive(Clone)]
pub struct BundleReader {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    index: Arc<RwLock<Index>>,
}

/// What a log held when it was opened.
#[derive(Debug, Default)]
pub struct FoundBundles {
    /// Bytes of a torn tail that were cut off.
    pub truncated_bytes: u64,
    /// Bundles that are there.
    pub bundles: usize,
}

impl BundleLog {
    /// Opens the log in a folder, or makes a new one. Of older segments as many are kept as have `keep_bytes` together,
    /// and the newest.
    ///
    /// # Errors
    ///
    /// If the file system fails, another process uses the folder, or it is another chain's.
    pub fn open(
        disk: Arc<dyn Disk>,
        folder: &Path,
        chain: ChainId,
        keep_bytes: u64,
    ) -> Result<(Self, FoundBundles), BundleLogError> {
        let failed = |source| io_error(folder, source);
        disk.make_folder(folder).map_err(failed)?;
        let lock_path = folder.join(LOCK);
        let lock = disk
            .lock(&lock_path)
            .map_err(|source| match source.kind() {
                io::ErrorKind::WouldBlock => BundleLogError::InUse {
                    path: folder.to_path_buf(),
                },
                _ => io_error(&lock_path, source),
            })?;
        let reader = BundleReader {
            disk: disk.clone(),
            folder: folder.to_path_buf(),
            index: Arc::default(),
        };
        let mut numbers = segments(&*disk, folder)?;
        let there: BTreeSet<u64> = numbers.iter().copied().collect();
        let last = numbers.pop();
        let mut found = FoundBundles::default();
        for number in numbers {
            if let Some((index, length)) = read_index(&reader, number) {
                reader.add(index, number, length);
                continue;
            }
            let (index, end, length) = scan(&reader, number, chain)?;
            if end < length {
                return Err(BundleLogError::Damaged {
                    path: reader.path(number),
                    offset: end,
                });
            }
            write_index(&reader, number, (&index, end))?;
            reader.add(index, number, end);
        }
        let (file, number, bytes) = match last {
            None => {
                let file = create(&reader, 1, chain)?;
                reader.add(Vec::new(), 1, HEADER_BYTES as u64);
                (file, 1, HEADER_BYTES as u64)
            }
            Some(number) => {
                let (index, end, length) = scan(&reader, number, chain)?;
                let path = reader.path(number);
                let file = match end < HEADER_BYTES as u64 {
                    // Not even its header was synced.
                    true => create(&reader, number, chain)?,
                    false => {
                        let mut file = disk.open(&path).map_err(|e| io_error(&path, e))?;
                        // A killed process may have left what is there in the page cache only.
                        (file.cut(end).and_then(|()| file.sync()))
                            .map_err(|e| io_error(&path, e))?;
                        file
                    }
                };
                found.truncated_bytes = length - end;
                let end = end.max(HEADER_BYTES as u64);
                reader.add(index, number, end);
                (file, number, end)
            }
        };
        disk.sync_folder(folder).map_err(failed)?;
        let log = Self {
            // What was cut off may have been acknowledged, if the disk has damaged it.
            complete_below: match found.truncated_bytes {
                0 => read_complete(&*disk, folder, &there).unwrap_or_default(),
                _ => Height(0),
            },
            reader,
            chain,
            file,
            number,
            bytes,
            unsynced: Vec::new(),
            keep_bytes,
            segment_bytes: SEGMENT_BYTES,
            poisoned: false,
            _lock: lock,
        };
        log.remove_old()?;
        found.bundles = log.reader.index.read().places.len();
        Ok((log, found))
    }

    /// Has segments end at another length than 64 MiB.
    pub fn end_segments_at(&mut self, bytes: u64) {
        self.segment_bytes = bytes;
    }

    pub fn reader(&self) -> BundleReader {
        self.reader.clone()
    }

    /// Writes a bundle. It is on disk after the next sync. Of several with the same payloads, [`BundleReader::get`]
    /// returns the latest.
    ///
    /// # Errors
    ///
    /// If a write fails; the log is poisoned then.
    pub fn append(&mut self, bundle: &OrderedBundle) -> Result<(), BundleLogError> {
        self.check()?;
        if self.bytes >= self.segment_bytes {
            self.sync()?;
            self.begin_segment()?;
        }
        let payload = bundle.encode();
        let bytes = u32::try_from(payload.len()).expect("bundles are short");
        let mut record = Vec::with_capacity(RECORD_BYTES + payload.len());
        record.extend_from_slice(&bytes.to_be_bytes());
        record.extend_from_slice(&crc32fast::hash(&payload).to_be_bytes());
        record.extend_from_slice(&payload);
        let written = self.file.append(&record);
        self.poison_on_error(written)?;
        let place = Place {
            segment: self.number,
            offset: self.bytes + RECORD_BYTES as u64,
            bytes,
            holds: held(bundle),
        };
        self.bytes += record.len() as u64;
        self.unsynced.push(entry(bundle, place));
        Ok(())
    }

    /// Makes what was appended durable, and removes what is beyond the bytes to keep.
    ///
    /// # Errors
    ///
    /// If it fails; the log is poisoned then.
    pub fn sync(&mut self) -> Result<(), BundleLogError> {
        self.check()?;
        if self.unsynced.is_empty() {
            return Ok(());
        }
        let synced = self.file.sync();
        self.poison_on_error(synced)?;
        let mut index = self.reader.index.write();
        let newest = index.segments.back_mut().expect("there is a segment");
        newest.bytes = self.bytes;
        newest.entries.extend(&self.unsynced);
        let places = self.unsynced.drain(..);
        index
            .places
            .extend(places.map(|entry| (entry.digest, entry.place)));
        drop(index);
        self.remove_old()
    }

    /// How many bytes are kept.
    pub fn keep_bytes(&self) -> u64 {
        self.keep_bytes
    }

    /// No bundle of a final block below this height was missing when it was last written down.
    pub fn complete_below(&self) -> Height {
        self.complete_below
    }

    /// Writes down that no bundle of a final block below this height is missing.
    ///
    /// # Errors
    ///
    /// If the file system fails.
    pub fn note_complete(&mut self, height: Height) -> Result<(), BundleLogError> {
        let numbers: Vec<u64> = {
            let index = self.reader.index.read();
            index.segments.iter().map(|one| one.number).collect()
        };
        let folder = &self.reader.folder;
        let (path, new) = (folder.join(COMPLETE), folder.join("complete.new"));
        let disk = &self.reader.disk;
        let written = disk.create(&new).and_then(|mut file| {
            file.append(&complete(height, &numbers))?;
            file.sync()?;
            disk.rename(&new, &path)?;
            disk.sync_folder(folder)
        });
        written.map_err(|source| io_error(&path, source))?;
        self.complete_below = height;
        Ok(())
    }

    fn remove_old(&self) -> Result<(), BundleLogError> {
        loop {
            let mut index = self.reader.index.write();
            let bytes: u64 = index.segments.iter().map(|segment| segment.bytes).sum();
            let bundles: usize = index.segments.iter().map(|s| s.entries.len()).sum();
            let fits = bytes <= self.keep_bytes && bundles <= MAX_BUNDLES;
            if fits || index.segments.len() < 2 {
                return Ok(());
            }
            let oldest = index.segments.pop_front().expect("there are two");
            for Entry { digest, .. } in &oldest.entries {
                let place = index.places.get(digest);
                if place.is_some_and(|place| place.segment == oldest.number) {
                    index.places.remove(digest);
                }
            }
            drop(index);
            let path = self.reader.path(oldest.number);
            (self.reader.disk.remove(&path)).map_err(|source| io_error(&path, source))?;
            // It may have none.
            let _ = self
                .reader
                .disk
                .remove(&self.reader.index_path(oldest.number));
        }
    }

    fn begin_segment(&mut self) -> Result<(), BundleLogError> {
        let index = self.reader.index.read();
        let newest = index.segments.back().expect("there is a segment");
        write_index(&self.reader, self.number, (&newest.entries, newest.bytes))?;
        drop(index);
        let created = create(&self.reader, self.number + 1, self.chain);
        self.poisoned = created.is_err();
        self.file = created?;
        self.number += 1;
        self.bytes = HEADER_BYTES as u64;
        self.reader.add(Vec::new(), self.number, self.bytes);
        Ok(())
    }

    fn check(&self) -> Result<(), BundleLogError> {
        match self.poisoned {
            true => Err(BundleLogError::Poisoned {
                path: self.reader.path(self.number),
            }),
            false => Ok(()),
        }
    }

    fn poison_on_error(&mut self, result: io::Result<()>) -> Result<(), BundleLogError> {
        result.map_err(|source| {
            self.poisoned = true;
            io_error(&self.reader.path(self.number), source)
        })
    }
}

impl BundleReader {
    /// Whether a bundle is on disk.
    pub fn holds(&self, digest: &Digest) -> bool {
        self.index.read().places.contains_key(digest)
    }

    /// Whether the bundle that this names is on disk: a reference can lie about the length of a bundle that is there.
    pub fn holds_all_of(&self, reference: &BundleRef) -> bool {
        let index = self.index.read();
        let place = index.places.get(&reference.digest);
        place.is_some_and(|place| place.holds == (reference.bytes, reference.count))
    }

    /// A bundle; `None` if it is not on disk.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is damaged.
    pub fn get(&self, digest: &Digest) -> Result<Option<OrderedBundle>, BundleLogError> {
        let Some(place) = self.index.read().places.get(digest).copied() else {
            return Ok(None);
        };
        self.read(digest, place)
    }

    /// The bundle of an entry; `None` if it was removed meanwhile.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is damaged.
    pub fn of(&self, entry: &Entry) -> Result<Option<OrderedBundle>, BundleLogError> {
        self.read(&entry.digest, entry.place)
    }

    fn read(&self, digest: &Digest, place: Place) -> Result<Option<OrderedBundle>, BundleLogError> {
        let path = self.path(place.segment);
        let bytes = match self.disk.read_at(&path, place.offset, place.bytes as usize) {
            Ok(bytes) => bytes,
            // Removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(io_error(&path, source)),
        };
        let read = OrderedBundle::decode(bytes::Bytes::from(bytes));
        let read = read
            .ok()
            .filter(|bundle| bundle.reference().digest == *digest);
        read.map(Some).ok_or(BundleLogError::Damaged {
            path,
            offset: place.offset,
        })
    }

    /// All bundles that are on disk, the oldest first.
    pub fn entries(&self) -> Vec<Entry> {
        let index = self.index.read();
        let segments = index.segments.iter();
        segments
            .flat_map(|segment| &segment.entries)
            .copied()
            .collect()
    }

    /// Bytes on disk.
    pub fn bytes(&self) -> u64 {
        let index = self.index.read();
        index.segments.iter().map(|segment| segment.bytes).sum()
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("bundles-{number:010}.log"))
    }

    fn index_path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("bundles-{number:010}.index"))
    }

    fn add(&self, entries: Vec<Entry>, number: u64, bytes: u64) {
        let mut index = self.index.write();
        let places = entries.iter().map(|entry| (entry.digest, entry.place));
        index.places.extend(places);
        index.segments.push_back(Segment {
            number,
            bytes,
            entries,
        });
    }
}

/// Makes a segment durable under its name.
fn create(
    reader: &BundleReader,
    number: u64,
    chain: ChainId,
) -> Result<Box<dyn DiskFile>, BundleLogError> {
    let path = reader.path(number);
    let disk = &reader.disk;
    let mut file = disk.create(&path).map_err(|e| io_error(&path, e))?;
    (file.append(&header(chain)).and_then(|()| file.sync()))
        .and_then(|()| disk.sync_folder(&reader.folder))
        .map_err(|source| io_error(&path, source))?;
    Ok(file)
}

/// Writes the places of a segment that ends here. A torn one is noticed and made again.
fn write_index(
    reader: &BundleReader,
    number: u64,
    (entries, end): (&[Entry], u64),
) -> Result<(), BundleLogError> {
    let mut bytes = INDEX_MAGIC.to_vec();
    bytes.reserve(entries.len() * INDEX_ENTRY_BYTES);
    bytes.extend_from_slice(&end.to_be_bytes());
    for entry in entries {
        let Place {
            offset,
            bytes: record,
            holds: (length, count),
            ..
        } = entry.place;
        bytes.extend_from_slice(&entry.digest.0);
        bytes.extend_from_slice(&entry.author.0);
        for number in [entry.number, offset] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        for number in [record, length, count] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
    }
    let checksum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&checksum.to_be_bytes());
    let path = reader.index_path(number);
    let written = (reader.disk.create(&path)).and_then(|mut file| file.append(&bytes));
    written.map_err(|source| io_error(&path, source))
}

/// The places in a segment, and its length, if they were written down and it still has it.
fn read_index(reader: &BundleReader, number: u64) -> Option<(Vec<Entry>, u64)> {
    let path = reader.index_path(number);
    let bytes = reader.disk.read(&path, MAX_INDEX_BYTES).ok()?;
    let (content, checksum) = bytes.split_last_chunk::<4>()?;
    if crc32fast::hash(content).to_be_bytes() != *checksum {
        return None;
    }
    let mut rest = content.strip_prefix(INDEX_MAGIC)?;
    let end = u64::from_be_bytes(take(&mut rest)?);
    let mut entries = Vec::with_capacity(rest.len() / INDEX_ENTRY_BYTES);
    while !rest.is_empty() {
        entries.push(Entry {
            digest: Digest(take(&mut rest)?),
            author: Identity(take(&mut rest)?),
            number: u64::from_be_bytes(take(&mut rest)?),
            place: Place {
                segment: number,
                offset: u64::from_be_bytes(take(&mut rest)?),
                bytes: u32::from_be_bytes(take(&mut rest)?),
                holds: (
                    u32::from_be_bytes(take(&mut rest)?),
                    u32::from_be_bytes(take(&mut rest)?),
                ),
            },
        });
    }
    // A file that was cut off is read through, and told.
    let last = end.checked_sub(1)?;
    let path = reader.path(number);
    reader.disk.read_at(&path, last, 1).ok()?;
    let is_longer = reader.disk.read_at(&path, end, 1).is_ok();
    (!is_longer).then_some((entries, end))
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, others) = rest.split_first_chunk()?;
    *rest = others;
    Some(*first)
}

fn complete(height: Height, segments: &[u64]) -> Vec<u8> {
    let mut bytes = COMPLETE_MAGIC.to_vec();
    bytes.extend_from_slice(&height.0.to_be_bytes());
    for number in segments {
        bytes.extend_from_slice(&number.to_be_bytes());
    }
    let checksum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&checksum.to_be_bytes());
    bytes
}

/// What was written down last, if it can be read and all segments of that time are there.
fn read_complete(disk: &dyn Disk, folder: &Path, there: &BTreeSet<u64>) -> Option<Height> {
    let bytes = disk.read(&folder.join(COMPLETE), MAX_INDEX_BYTES).ok()?;
    let (content, checksum) = bytes.split_last_chunk::<4>()?;
    if crc32fast::hash(content).to_be_bytes() != *checksum {
        return None;
    }
    let mut rest = content.strip_prefix(COMPLETE_MAGIC)?;
    let height = Height(u64::from_be_bytes(take(&mut rest)?));
    while !rest.is_empty() {
        let number = u64::from_be_bytes(take(&mut rest)?);
        if !there.contains(&number) {
            return None;
        }
    }
    Some(height)
}

type Scanned = (Vec<Entry>, u64, u64);

/// The records of a segment, where they end, and how long it is.
fn scan(reader: &BundleReader, number: u64, chain: ChainId) -> Result<Scanned, BundleLogError> {
    let path = reader.path(number);
    let failed = |source| io_error(&path, source);
    // A segment goes beyond its length by one record at most.
    let most = SEGMENT_BYTES + (RECORD_BYTES + MAX_RECORD_BYTES) as u64;
    let content = bytes::Bytes::from(reader.disk.read(&path, most).map_err(failed)?);
    let length = content.len() as u64;
    let header = header(chain);
    // A segment is only written to once its header was synced.
    let (head, checksum) = content.split_at(content.len().min(HEADER_BYTES - 4));
    let is_torn = content.len() == HEADER_BYTES && crc32fast::hash(head).to_be_bytes() != *checksum;
    if content.len() < HEADER_BYTES || is_torn {
        return Ok((Vec::new(), 0, length));
    }
    if content[..header.len()] != header {
        let what = match content.starts_with(MAGIC) {
            true => "its chain or version is another, or its header is damaged",
            false => "it does not begin like one",
        };
        return Err(BundleLogError::Foreign { path, what });
    }
    let mut entries = Vec::new();
    let mut at = header.len();
    while let Some((bundle, bytes)) = parse(&content, at) {
        let offset = (at + RECORD_BYTES) as u64;
        let place = Place {
            segment: number,
            offset,
            bytes: u32::try_from(bytes).expect("checked"),
            holds: held(&bundle),
        };
        entries.push(entry(&bundle, place));
        at += RECORD_BYTES + bytes;
    }
    Ok((entries, at as u64, length))
}

/// The record at a place, if a whole one is there.
fn parse(content: &bytes::Bytes, at: usize) -> Option<(OrderedBundle, usize)> {
    let number = |from: usize| -> Option<u32> {
        Some(u32::from_be_bytes(*content.get(from..)?.first_chunk()?))
    };
    let (length, checksum) = (number(at)? as usize, number(at + 4)?);
    let begin = at + RECORD_BYTES;
    let payload = content.get(begin..begin.checked_add(length)?)?;
    if length > MAX_RECORD_BYTES || crc32fast::hash(payload) != checksum {
        return None;
    }
    let bundle = OrderedBundle::decode(content.slice(begin..begin + length)).ok()?;
    Some((bundle, length))
}

fn held(bundle: &OrderedBundle) -> (u32, u32) {
    let BundleRef { bytes, count, .. } = *bundle.reference();
    (bytes, count)
}

fn entry(bundle: &OrderedBundle, place: Place) -> Entry {
    let transfer = bundle.transaction().transfer();
    Entry {
        digest: bundle.reference().digest,
        author: transfer.sender,
        number: transfer.nonce,
        place,
    }
}

fn header(chain: ChainId) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_be_bytes());
    bytes.extend_from_slice(&chain.0.0);
    let checksum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&checksum.to_be_bytes());
    bytes
}

/// The numbers of all segments, ascending.
fn segments(disk: &dyn Disk, folder: &Path) -> Result<Vec<u64>, BundleLogError> {
    let names = disk.names(folder).map_err(|e| io_error(folder, e))?;
    let number = |name: &String| -> Option<u64> {
        let digits = name.strip_prefix("bundles-")?.strip_suffix(".log")?;
        digits.parse().ok()
    };
    let mut numbers: Vec<u64> = names.iter().filter_map(number).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

fn io_error(path: &Path, source: io::Error) -> BundleLogError {
    BundleLogError::Io {
        path: path.to_path_buf(),
        source,
    }
}
