//! Folders that only their owner can enter.
//!
//! A data directory that is open to other users is closed with a warning and not refused: earlier
//! versions created it so, and refusing would stop each of those validators at its upgrade. A
//! folder that is not known as a data directory is refused: closing `/tmp`, given by mistake, would
//! break the machine.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

/// The mode of a private folder: everything for its owner.
const PRIVATE_MODE: u32 = 0o700;

/// The bits of everybody but the owner.
const OTHERS: u32 = 0o077;

/// The bit of folders that are shared on purpose, such as `/tmp`.
const SHARED: u32 = 0o1000;

/// How a folder became private.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privacy {
    /// It was private, or was created so.
    AsEver,
    /// It was open to others and is private now.
    Tightened {
        /// The permission bits that it had.
        mode: u32,
    },
}

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// It cannot be created or examined.
    #[error("cannot create {}: {source}", .path.display())]
    Make {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It is open to others, and holds files that this program did not write.
    #[error(
        "{path} has mode {mode:04o}, which lets others in, and holds other files than a data \
         directory does: give a folder of its own, or, if it is one, chmod 700 {path}",
        path = .path.display()
    )]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It is open to others, and this user may not change that.
    #[error(
        "{path} has mode {mode:04o}, which lets others in, and cannot be changed ({source}): its \
         owner has to chmod 700 {path}; or give a folder inside it, which is made private",
        path = .path.display()
    )]
    Fixed {
        /// The folder.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// What the system says.
        source: io::Error,
    },
}

/// Creates a folder of mode 0700, and its missing parents. An existing one is left as it is.
///
/// # Errors
///
/// If it cannot be made.
pub fn make_private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(PRIVATE_MODE)
        .create(path)
}

/// Creates a folder that only its owner can enter, or makes one private that is empty or holds a
/// file named `mark`, by which it is known as this program's own. Any other folder that is open to
/// others is refused and left unchanged: it may be `/tmp`, given by mistake.
///
/// # Errors
///
/// See [`FolderError`].
pub fn own_folder(path: &Path, mark: &str) -> Result<Privacy, FolderError> {
    let make_error = |source| FolderError::Make {
        path: path.into(),
        source,
    };
    make_private_folder(path).map_err(make_error)?;
    let mode = fs::metadata(path).map_err(make_error)?.permissions().mode() & 0o7777;
    if mode & OTHERS == 0 {
        return Ok(Privacy::AsEver);
    }
    let mut entries = fs::read_dir(path).map_err(make_error)?;
    let known = entries.next().is_none() || path.join(mark).is_file();
    if mode & SHARED != 0 || !known {
        return Err(FolderError::Foreign {
            path: path.into(),
            mode,
        });
    }
    fs::set_permissions(path, fs::Permissions::from_mode(PRIVATE_MODE)).map_err(|source| {
        FolderError::Fixed {
            path: path.into(),
            mode,
            source,
        }
    })?;
    Ok(Privacy::Tightened { mode })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("there").permissions().mode() & 0o7777
    }

    fn open_folder(parent: &Path, name: &str) -> PathBuf {
        let path = parent.join(name);
        fs::create_dir(&path).expect("own folder");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("own folder");
        path
    }

    #[test]
    fn a_new_folder_and_those_above_it_are_private() {
        let parent = tempfile::tempdir().expect("a directory");
        let path = parent.path().join("new/deep");
        assert_eq!(own_folder(&path, "LOCK").expect("made"), Privacy::AsEver);
        assert_eq!(mode(&path), 0o700);
        assert_eq!(mode(&parent.path().join("new")), 0o700);
        assert_eq!(own_folder(&path, "LOCK").expect("again"), Privacy::AsEver);
    }

    #[test]
    fn an_open_folder_is_closed_if_it_is_empty_or_known() {
        let parent = tempfile::tempdir().expect("a directory");
        let empty = open_folder(parent.path(), "empty");
        let known = open_folder(parent.path(), "known");
        fs::write(known.join("LOCK"), "").expect("own file");
        for path in [empty, known] {
            let closed = own_folder(&path, "LOCK").expect("closed");
            assert_eq!(closed, Privacy::Tightened { mode: 0o755 });
            assert_eq!(mode(&path), 0o700);
        }
    }

    #[test]
    fn an_open_folder_with_other_files_is_refused_and_left_as_it_is() {
        let parent = tempfile::tempdir().expect("a directory");
        let path = open_folder(parent.path(), "tmp");
        fs::write(path.join("letter.txt"), "dear").expect("own file");
        let refused = own_folder(&path, "LOCK").expect_err("somebody else's");
        let message = refused.to_string();
        assert!(
            message.contains("0755") && message.contains("chmod 700"),
            "{message}"
        );
        assert_eq!(mode(&path), 0o755);
        // Not even if it is known: `/tmp` is shared on purpose.
        fs::write(path.join("LOCK"), "").expect("own file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o1777)).expect("own folder");
        assert!(own_folder(&path, "LOCK").is_err());
        assert_eq!(mode(&path), 0o1777);
    }
}
