//! Key files: one secret each, 32 bytes as 64 hexadecimal digits, for their owner's eyes only.
//!
//! | file | what is in it |
//! |---|---|
//! | `identity.key` | the seed of an ed25519 key: who a validator is, or who owns an account |
//! | `vote.key` | a validator's share of the group key, dealt with the genesis file |
//!
//! A file that others may read is refused, because it is too late to protect it quietly. A file
//! that exists is never written over, because nobody has another copy of what is in it.

use quorate_crypto::{
    SecretKey,
    bls::{SecretError, VoteSecret},
};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};
use zeroize::Zeroizing;

/// The usual name of an identity's file.
pub const IDENTITY_FILE: &str = "identity.key";

/// The usual name of a vote key's file.
pub const VOTE_FILE: &str = "vote.key";

/// All permissions that a key file may have: to be read and written by its owner.
const ALLOWED_MODE: u32 = 0o600;

/// Most bytes of a key file that are read: 64 digits and some white space.
const MAX_FILE_BYTES: u64 = 256;

/// Thirty-two secret bytes as they are in a file. Wiped when dropped.
pub type SecretBytes = Zeroizing<[u8; 32]>;

/// Why a key file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file cannot be read.
    #[error("cannot read the key file {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Others than its owner may read or write it, or somebody may execute it.
    #[error(
        "the key file {path} has mode {mode:04o}, which is wider than 0600; \
         if nobody else can have read it: chmod 600 {path}",
        path = .path.display()
    )]
    Permissions {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It does not hold 64 hexadecimal digits.
    #[error(
        "the key file {} is damaged or no key file: it must hold 64 hexadecimal digits and nothing \
         else",
        .path.display()
    )]
    Content {
        /// The file.
        path: PathBuf,
    },
    /// It holds a number that is no share of a group key.
    #[error("the vote key file {} is no vote key: {source}", .path.display())]
    VoteSecret {
        /// The file.
        path: PathBuf,
        /// What is wrong with the number.
        source: SecretError,
    },
    /// There is a file already.
    #[error(
        "the key file {} exists and is not written over; choose another directory, or move the \
         file to a safe place first",
        .path.display()
    )]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The file or its directory cannot be written.
    #[error("cannot write {}: {source}", .path.display())]
    Write {
        /// The file or the directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// A fresh identity from the system's randomness.
pub fn generate_identity() -> SecretKey {
    SecretKey::random(system_rng())
}

/// The system's source of randomness, for keys.
pub fn system_rng() -> impl rand::CryptoRng {
    rand::rand_core::UnwrapErr(rand::rngs::SysRng)
}

/// Reads an identity's file.
///
/// # Errors
///
/// If it cannot be read, others may read it too, or it is no key file.
pub fn load_identity(path: &Path) -> Result<SecretKey, KeyFileError> {
    Ok(SecretKey::from_bytes(&*load_secret(path)?))
}

/// Reads a vote key's file.
///
/// # Errors
///
/// As for [`load_identity`]; and if the number is no share.
pub fn load_vote_secret(path: &Path) -> Result<VoteSecret, KeyFileError> {
    VoteSecret::from_bytes(&*load_secret(path)?).map_err(|source| KeyFileError::VoteSecret {
        path: path.into(),
        source,
    })
}

/// Reads the 32 bytes of any key file.
///
/// # Errors
///
/// As for [`load_identity`].
pub fn load_secret(path: &Path) -> Result<SecretBytes, KeyFileError> {
    let read_error = |source| KeyFileError::Read {
        path: path.into(),
        source,
    };
    let file = File::open(path).map_err(read_error)?;
    // Of the open file, not of the path: what is checked is what is read.
    let metadata = file.metadata().map_err(read_error)?;
    let mode = metadata.permissions().mode() & 0o7777;
    if metadata.is_file() && mode & !ALLOWED_MODE != 0 {
        return Err(KeyFileError::Permissions {
            path: path.into(),
            mode,
        });
    }
    let mut text = Zeroizing::new(Vec::with_capacity(MAX_FILE_BYTES as usize));
    file.take(MAX_FILE_BYTES)
        .read_to_end(&mut text)
        .map_err(read_error)?;
    let mut bytes = SecretBytes::default();
    hex::decode_to_slice(text.trim_ascii(), &mut *bytes)
        .map_err(|_| KeyFileError::Content { path: path.into() })?;
    Ok(bytes)
}

/// Writes 32 secret bytes to a new file of mode 0600, makes its directory (mode 0700) if needed,
/// and syncs both to disk.
///
/// # Errors
///
/// If the file exists or cannot be written.
pub fn save_secret(path: &Path, bytes: &[u8; 32]) -> Result<(), KeyFileError> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let write_error = |path: &Path, source| KeyFileError::Write {
        path: path.into(),
        source,
    };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|source| write_error(directory, source))?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(ALLOWED_MODE)
        .open(path)
        .map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => KeyFileError::Exists { path: path.into() },
            _ => write_error(path, source),
        })?;
    let mut text = Zeroizing::new([0; 65]);
    text[64] = b'\n';
    hex::encode_to_slice(bytes, &mut text[..64]).expect("32 bytes are 64 digits");
    file.write_all(&*text)
        .and_then(|()| file.sync_all())
        .map_err(|source| write_error(path, source))?;
    // A new name is durable once its directory is.
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(|source| write_error(directory, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("own file");
    }

    #[test]
    fn a_key_survives_its_file_which_only_the_owner_can_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("new/deep").join(IDENTITY_FILE);
        let secret = generate_identity();
        save_secret(&path, &secret.to_bytes()).expect("written");
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let read = load_identity(&path).expect("read");
        assert_eq!(read.identity(), secret.identity());
    }

    #[test]
    fn two_generated_identities_differ() {
        assert_ne!(
            generate_identity().identity(),
            generate_identity().identity()
        );
    }

    #[test]
    fn an_existing_file_is_never_written_over() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(IDENTITY_FILE);
        save_secret(&path, &[1; 32]).expect("written");
        let again = save_secret(&path, &[2; 32]);
        assert!(matches!(again, Err(KeyFileError::Exists { .. })));
        assert_eq!(*load_secret(&path).expect("read"), [1; 32]);
    }

    #[test]
    fn a_mode_wider_than_0600_is_refused_with_its_remedy() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(IDENTITY_FILE);
        save_secret(&path, &[1; 32]).expect("written");
        for mode in [0o640, 0o604, 0o660, 0o700] {
            set_mode(&path, mode);
            let message = load_identity(&path).err().expect("refused").to_string();
            let remedy = format!("chmod 600 {}", path.display());
            assert!(message.contains(&remedy), "{message}");
            assert!(message.contains(&format!("{mode:04o}")), "{message}");
        }
        for mode in [0o600, 0o400] {
            set_mode(&path, mode);
            assert!(load_identity(&path).is_ok());
        }
    }

    #[test]
    fn other_content_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(IDENTITY_FILE);
        let digits = "ab".repeat(32);
        let wrong = [
            String::new(),
            digits[1..].to_string(),
            format!("{digits}ab"),
            format!("{digits} {digits}"),
            "zz".repeat(32),
            " ".repeat(1 << 20),
        ];
        for content in wrong {
            fs::write(&path, &content).expect("own file");
            set_mode(&path, 0o600);
            let result = load_secret(&path);
            assert!(matches!(result, Err(KeyFileError::Content { .. })));
        }
        fs::write(&path, format!("  {digits}\r\n")).expect("own file");
        assert_eq!(
            *load_secret(&path).expect("white space is no matter"),
            [0xab; 32]
        );
    }

    #[test]
    fn zero_is_no_vote_key() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(VOTE_FILE);
        save_secret(&path, &[0; 32]).expect("written");
        let result = load_vote_secret(&path);
        assert!(matches!(result, Err(KeyFileError::VoteSecret { .. })));
    }
}
