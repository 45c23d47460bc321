//! Snapshots in files, for validators that cannot fetch one over the network, and for copies.
//!
//! A file is [`MAGIC`], then records of 4 bytes of length (big-endian) and so many bytes: how often the
//! validators have changed since the genesis file's (`u32`) and what proves each change, what
//! certifies the snapshot, its block, parts of the state in the order of the key space, and a record
//! of length zero as the end. Nothing in it is believed: a reader verifies the finalization with the
//! validators' keys, and each part against the root that it certifies.

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use commonware_codec::DecodeExt;
use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, BufWriter, ErrorKind, Read as _, Write as _},
    path::{Path, PathBuf},
};

/// The first bytes of a file.
const MAGIC: &[u8] = b"quorate snapshot 2\n";

/// The longest record: a block, or a part of the state, with room.
const MAX_RECORD_BYTES: usize = quorate_types::limits::MAX_FRAME_BYTES;

/// A file that is being written. It has its name only when it is whole and on disk. What was written
/// is removed when the writer is dropped before that.
pub(crate) struct SnapshotWriter {
    file: BufWriter<File>,
    partial: PathBuf,
    path: PathBuf,
    bytes: u64,
    is_whole: bool,
}

impl SnapshotWriter {
    /// # Errors
    ///
    /// If the file exists, or cannot be created.
    pub(crate) fn create(path: &Path) -> anyhow::Result<Self> {
        ensure!(
            !path.exists(),
            "{} exists: choose another name, or remove it",
            path.display()
        );
        let mut name = path.as_os_str().to_owned();
        name.push(".partial");
        let partial = PathBuf::from(name);
        let file = File::create(&partial)
            .with_context(|| format!("cannot write {}", partial.display()))?;
        let mut writer = Self {
            file: BufWriter::with_capacity(1 << 20, file),
            partial,
            path: path.to_owned(),
            bytes: 0,
            is_whole: false,
        };
        writer.write(MAGIC)?;
        Ok(writer)
    }

    fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.bytes += bytes.len() as u64;
        let written = self.file.write_all(bytes);
        written.with_context(|| format!("cannot write {}", self.partial.display()))
    }

    /// # Errors
    ///
    /// If the file cannot be written.
    pub(crate) fn record(&mut self, record: &[u8]) -> anyhow::Result<()> {
        ensure!(
            (1..=MAX_RECORD_BYTES).contains(&record.len()),
            "a record of {} bytes does not fit",
            record.len()
        );
        let length = u32::try_from(record.len()).expect("a limit below 2^32");
        self.write(&length.to_be_bytes())?;
        self.write(record)
    }

    /// Ends the file and gives it its name. Returns its size.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub(crate) fn finish(mut self) -> anyhow::Result<u64> {
        self.write(&0_u32.to_be_bytes())?;
        let named = self
            .file
            .flush()
            .and_then(|()| self.file.get_ref().sync_all())
            .and_then(|()| fs::rename(&self.partial, &self.path));
        named.with_context(|| format!("cannot write {}", self.path.display()))?;
        self.is_whole = true;
        Ok(self.bytes)
    }
}

impl Drop for SnapshotWriter {
    fn drop(&mut self) {
        if !self.is_whole {
            let _ = fs::remove_file(&self.partial);
        }
    }
}

/// A file that is being read. Its errors do not name the file.
pub(crate) struct SnapshotReader {
    file: BufReader<File>,
    size: u64,
    read: u64,
}

impl SnapshotReader {
    /// # Errors
    ///
    /// If the file cannot be read, or is something else.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let file = File::open(path).context("it cannot be read")?;
        let about = file.metadata().context("it cannot be read")?;
        ensure!(about.is_file(), "it is not a file");
        let mut reader = Self {
            file: BufReader::with_capacity(1 << 20, file),
            size: about.len(),
            read: 0,
        };
        let other = "it is no snapshot of this format; `quorate snapshot export` writes them";
        let mut magic = [0; MAGIC.len()];
        ensure!(reader.size >= MAGIC.len() as u64, other);
        reader.fill(&mut magic)?;
        ensure!(magic == MAGIC, other);
        Ok(reader)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> anyhow::Result<()> {
        self.read += bytes.len() as u64;
        match self.file.read_exact(bytes) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                bail!("it is cut off: copy it again")
            }
            read => read.context("it cannot be read"),
        }
    }

    /// How much of the file has been read: 0 to 1.
    pub(crate) fn share(&self) -> f64 {
        self.read as f64 / self.size.max(1) as f64
    }

    fn record(&mut self) -> anyhow::Result<Option<Bytes>> {
        let mut length = [0; 4];
        self.fill(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if length == 0 {
            let rest = self.file.fill_buf().context("it cannot be read")?;
            ensure!(
                rest.is_empty(),
                "it is damaged: something follows its end; copy it again"
            );
            return Ok(None);
        }
        ensure!(
            length <= MAX_RECORD_BYTES,
            "it is damaged: a record of {length} bytes; copy it again"
        );
        let mut record = vec![0; length];
        self.fill(&mut record)?;
        Ok(Some(record.into()))
    }

    /// Passes over so many records.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub(crate) fn skip(&mut self, records: usize) -> anyhow::Result<()> {
        for _ in 0..records {
            self.record()?;
        }
        Ok(())
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    ///
    /// If the file is cut off, cannot be read, holds something else here, or does not end after its
    /// last record.
    pub(crate) fn next<T: DecodeExt<()>>(&mut self, what: &str) -> anyhow::Result<Option<T>> {
        let Some(record) = self.record()? else {
            return Ok(None);
        };
        match T::decode(record) {
            Ok(decoded) => Ok(Some(decoded)),
            // The decoder's words are for programmers.
            Err(_) => bail!("it is damaged: {what} does not decode; copy it again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use commonware_codec::Encode as _;

    #[test]
    fn what_is_written_is_read_back_and_a_file_cut_off_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.snapshot");
        let mut writer = SnapshotWriter::create(&path).expect("a new file");
        writer.record(&7_u64.encode()).expect("room");
        assert!(!path.exists(), "it has no name before it is whole");
        let size = writer.finish().expect("room");
        assert_eq!(fs::metadata(&path).expect("a file").len(), size);
        assert!(
            SnapshotWriter::create(&path).is_err(),
            "nothing is overwritten"
        );

        let mut reader = SnapshotReader::open(&path).expect("a snapshot");
        assert_eq!(reader.next::<u64>("a number").expect("whole"), Some(7));
        assert_eq!(reader.next::<u64>("a number").expect("whole"), None);
        let whole = fs::read(&path).expect("a file");
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).expect("room");
            let Ok(mut reader) = SnapshotReader::open(&path) else {
                assert!(length < MAGIC.len());
                continue;
            };
            let first = reader.next::<u64>("a number");
            assert!(first.is_err() || reader.next::<u64>("a number").is_err());
        }
        fs::write(&path, [&whole[..], b"x"].concat()).expect("room");
        let mut reader = SnapshotReader::open(&path).expect("a snapshot");
        reader.skip(1).expect("its record is whole");
        let refused = reader.next::<u64>("a number").expect_err("it goes on");
        assert!(refused.to_string().contains("follows its end"), "{refused}");
        let mut long = MAGIC.to_vec();
        long.extend(u32::MAX.to_be_bytes());
        fs::write(&path, long).expect("room");
        let mut reader = SnapshotReader::open(&path).expect("the magic");
        let refused = reader.next::<u64>("a number").expect_err("too long");
        assert!(refused.to_string().contains("damaged"), "{refused}");
    }

    #[test]
    fn what_is_not_finished_is_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.snapshot");
        let mut writer = SnapshotWriter::create(&path).expect("a new file");
        writer.record(b"a part").expect("room");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
        drop(writer);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }

    #[test]
    fn a_folder_is_not_taken_for_a_file_of_another_format() {
        let folder = tempfile::tempdir().expect("a folder");
        let refused = SnapshotReader::open(folder.path()).err().expect("a folder");
        assert_eq!(refused.to_string(), "it is not a file");
    }
}
