//! Reading a file whole.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

/// Bytes that are reserved before anything is read: a length is only a claim.
const FIRST_BYTES: u64 = 1 << 20;

/// Why a file cannot be read whole. Each text names the file.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file system failed, or there is no such file.
    #[error("cannot read {}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It is longer than it may be.
    #[error("{} is too large: {}", .path.display(), too_large(*.bytes, *.limit))]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its length; `None` if it tells none, as devices and pipes do.
        bytes: Option<u64>,
        /// Most bytes that are read.
        limit: u64,
    },
    /// It is not UTF-8.
    #[error("{} is no text", .path.display())]
    NotText {
        /// The file.
        path: PathBuf,
    },
}

impl ReadError {
    /// Whether there is no such file.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// The same text without the path, for callers whose own error names it.
impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Io { source, .. } => source,
            ReadError::TooLarge { bytes, limit, .. } => {
                Self::new(io::ErrorKind::FileTooLarge, too_large(bytes, limit))
            }
            ReadError::NotText { .. } => Self::new(io::ErrorKind::InvalidData, "it is no text"),
        }
    }
}

fn too_large(bytes: Option<u64>, limit: u64) -> String {
    match bytes {
        Some(bytes) => format!("it has {bytes} bytes, and at most {limit} are read"),
        None => format!("it has more than the {limit} bytes that are read at most"),
    }
}

/// Reads a file of at most `limit` bytes. A longer one is refused by its length, or while it is
/// read if it has none or grows.
///
/// # Errors
///
/// See [`ReadError`]; never [`ReadError::NotText`].
pub fn read_bounded(path: &Path, limit: u64) -> Result<Vec<u8>, ReadError> {
    let io_error = |source| ReadError::Io {
        path: path.into(),
        source,
    };
    let too_large = |bytes| ReadError::TooLarge {
        path: path.into(),
        bytes,
        limit,
    };
    let file = File::open(path).map_err(io_error)?;
    // Of the open file, not of the path, so that the measured file is the one that is read.
    let told = file.metadata().map_err(io_error)?.len();
    if told > limit {
        return Err(too_large(Some(told)));
    }
    let mut content = Vec::with_capacity(told.min(FIRST_BYTES) as usize + 1);
    file.take(limit.saturating_add(1))
        .read_to_end(&mut content)
        .map_err(io_error)?;
    match content.len() as u64 <= limit {
        true => Ok(content),
        false => Err(too_large(None)),
    }
}

/// Reads a text of at most `limit` bytes.
///
/// # Errors
///
/// See [`ReadError`].
pub fn read_text(path: &Path, limit: u64) -> Result<String, ReadError> {
    let content = read_bounded(path, limit)?;
    String::from_utf8(content).map_err(|_| ReadError::NotText { path: path.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn file(folder: &tempfile::TempDir, content: &[u8]) -> PathBuf {
        let path = folder.path().join("file");
        fs::write(&path, content).expect("own file");
        path
    }

    #[test]
    fn a_file_of_the_limit_is_read_and_one_byte_more_is_not() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = file(&folder, b"twelve bytes");
        assert_eq!(read_bounded(&path, 12).expect("read"), b"twelve bytes");
        assert_eq!(read_text(&path, u64::MAX).expect("read"), "twelve bytes");
        let message = read_bounded(&path, 11).expect_err("too long").to_string();
        let name = path.display().to_string();
        for part in [name.as_str(), "12 bytes", "at most 11"] {
            assert!(message.contains(part), "no {part:?} in {message}");
        }
        let without = io::Error::from(read_bounded(&path, 11).expect_err("too long"));
        assert_eq!(without.kind(), io::ErrorKind::FileTooLarge);
        assert!(!without.to_string().contains(&name), "{without}");
    }

    #[test]
    fn a_sparse_gigabyte_is_refused_by_its_length() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = file(&folder, b"");
        let sparse = File::options().write(true).open(&path).expect("own file");
        sparse.set_len(1 << 30).expect("sparse");
        let refused = read_bounded(&path, 1 << 20).expect_err("too long");
        assert!(
            refused.to_string().contains("1073741824 bytes"),
            "{refused}"
        );
    }

    #[test]
    fn what_never_ends_is_cut_off() {
        let refused = read_bounded(Path::new("/dev/zero"), 1 << 20).expect_err("endless");
        assert!(matches!(refused, ReadError::TooLarge { bytes: None, .. }));
        let message = refused.to_string();
        assert!(
            message.contains("/dev/zero") && message.contains("1048576"),
            "{message}"
        );
    }

    #[test]
    fn missing_files_and_foreign_bytes_are_told_apart() {
        let folder = tempfile::tempdir().expect("a directory");
        let missing = read_text(&folder.path().join("none"), 1).expect_err("none there");
        assert!(missing.is_missing() && missing.to_string().contains("none"));
        let path = file(&folder, &[0xff; 4]);
        let foreign = read_text(&path, 4).expect_err("not UTF-8");
        assert!(matches!(&foreign, ReadError::NotText { .. }) && !foreign.is_missing());
        assert!(read_bounded(folder.path(), 4).is_err(), "a folder");
    }
}
