//! Key files: one secret each, 32 bytes as 64 hexadecimal digits, encrypted under a passphrase.
//!
//! | file | what is in it |
//! |---|---|
//! | `identity.key` | the seed of an ed25519 key: who a validator is, or who owns an account |
//! | `vote.key` | a validator's share of the group key, or its own vote key |
//!
//! A file is in the age format (age-encryption.org/v1, scrypt), so that other tools can open it
//! too, or plain, for test networks. A file that others may read is refused, because it is too late
//! to protect it quietly. A file that exists is never written over, because nobody has another copy
//! of what is in it.

mod passphrase;

pub use passphrase::{Passphrase, PassphraseError, PassphraseSource};

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

/// Most bytes of a key file that are read: 64 digits, encrypted, with age's header.
const MAX_FILE_BYTES: u64 = 4 << 10;

/// How an encrypted file begins.
const AGE_HEADER: &[u8] = b"age-encryption.org/v1";

/// scrypt's cost for new files: 2^17 blocks of 1 KiB, about half a second.
const WORK_FACTOR: u8 = 17;

/// The highest cost that is paid to open a file: 1 GiB, some seconds. A file could ask for more.
const MAX_WORK_FACTOR: u8 = 20;

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
    /// It is not encrypted, and it should be.
    #[error(
        "the key file {path} is not encrypted: encrypt it with `quorate keys encrypt {path}`, or, for \
         a test network, allow it with --allow-plain-keys",
        path = .path.display()
    )]
    Plain {
        /// The file.
        path: PathBuf,
    },
    /// No passphrase could be had.
    #[error("the key file {} is encrypted: {source}", .path.display())]
    Passphrase {
        /// The file.
        path: PathBuf,
        /// Why there is none.
        source: PassphraseError,
    },
    /// The passphrase does not open it.
    #[error(
        "the key file {} cannot be opened ({reason}): the passphrase is wrong or the file is damaged",
        .path.display()
    )]
    Decrypt {
        /// The file.
        path: PathBuf,
        /// What the library says.
        reason: String,
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

/// How key files are opened.
pub struct KeyAccess {
    /// Where the passphrase comes from, once one is needed. All files share it.
    pub passphrase: PassphraseSource,
    /// Whether files that are not encrypted are taken.
    pub allow_plain: bool,
}

impl KeyAccess {
    /// Takes plain files only: there is no passphrase.
    pub fn plain() -> Self {
        Self {
            passphrase: PassphraseSource::none(),
            allow_plain: true,
        }
    }
}

/// How a new key file is protected.
#[derive(Clone, Copy)]
pub enum Protection<'a> {
    /// Under a passphrase.
    Encrypted(&'a Passphrase),
    /// By its file mode alone.
    Plain,
}

/// Reads an identity's file.
///
/// # Errors
///
/// If it cannot be read or opened, others may read it too, or it is no key file.
pub fn load_identity(path: &Path, access: &KeyAccess) -> Result<SecretKey, KeyFileError> {
    Ok(SecretKey::from_bytes(&*load_secret(path, access)?))
}

/// Reads a vote key's file.
///
/// # Errors
///
/// As for [`load_identity`]; and if the number is no vote key.
pub fn load_vote_secret(path: &Path, access: &KeyAccess) -> Result<VoteSecret, KeyFileError> {
    let secret = load_secret(path, access)?;
    VoteSecret::from_bytes(&secret).map_err(|source| KeyFileError::VoteSecret {
        path: path.into(),
        source,
    })
}

/// Whether a key file is encrypted.
///
/// # Errors
///
/// If it cannot be read, or others may read it too.
pub fn is_encrypted(path: &Path) -> Result<bool, KeyFileError> {
    Ok(read_file(path)?.starts_with(AGE_HEADER))
}

/// Reads the 32 bytes of any key file.
///
/// # Errors
///
/// As for [`load_identity`].
pub fn load_secret(path: &Path, access: &KeyAccess) -> Result<SecretBytes, KeyFileError> {
    let content = read_file(path)?;
    let text = if content.starts_with(AGE_HEADER) {
        let passphrase = access
            .passphrase
            .get()
            .map_err(|source| KeyFileError::Passphrase {
                path: path.into(),
                source,
            })?;
        let mut identity = age::scrypt::Identity::new(passphrase.for_age());
        identity.set_max_work_factor(MAX_WORK_FACTOR);
        let opened = age::decrypt(&identity, &content);
        Zeroizing::new(opened.map_err(|error| KeyFileError::Decrypt {
            path: path.into(),
            reason: error.to_string(),
        })?)
    } else if access.allow_plain {
        content
    } else {
        // What is no key at all is told as such.
        decode(path, &content)?;
        return Err(KeyFileError::Plain { path: path.into() });
    };
    decode(path, &text)
}

fn decode(path: &Path, text: &[u8]) -> Result<SecretBytes, KeyFileError> {
    let mut bytes = SecretBytes::default();
    hex::decode_to_slice(text.trim_ascii(), &mut *bytes)
        .map_err(|_| KeyFileError::Content { path: path.into() })?;
    Ok(bytes)
}

fn read_file(path: &Path) -> Result<Zeroizing<Vec<u8>>, KeyFileError> {
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
    let mut content = Zeroizing::new(Vec::with_capacity(MAX_FILE_BYTES as usize));
    file.take(MAX_FILE_BYTES)
        .read_to_end(&mut content)
        .map_err(read_error)?;
    Ok(content)
}

/// Writes 32 secret bytes to a new file of mode 0600, makes its directory (mode 0700) if needed,
/// and syncs both to disk.
///
/// # Errors
///
/// If the file exists or cannot be written.
pub fn save_secret(
    path: &Path,
    bytes: &[u8; 32],
    protection: Protection<'_>,
) -> Result<(), KeyFileError> {
    let content = protect(path, bytes, protection)?;
    let directory = directory_of(path);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|source| write_error(directory, source))?;
    write_new(path, &content)?;
    sync_directory(directory)
}

/// Writes the same secret in another protection in place of a file. The old file goes only when
/// the new one is on disk.
///
/// # Errors
///
/// If the new file cannot be written; then the old one is as it was.
pub fn replace_secret(
    path: &Path,
    bytes: &[u8; 32],
    protection: Protection<'_>,
) -> Result<(), KeyFileError> {
    let content = protect(path, bytes, protection)?;
    let new = path.with_extension("key.new");
    write_new(&new, &content)?;
    fs::rename(&new, path).map_err(|source| write_error(path, source))?;
    sync_directory(directory_of(path))
}

fn protect(
    path: &Path,
    bytes: &[u8; 32],
    protection: Protection<'_>,
) -> Result<Zeroizing<Vec<u8>>, KeyFileError> {
    let mut text = Zeroizing::new(vec![0; 65]);
    text[64] = b'\n';
    hex::encode_to_slice(bytes, &mut text[..64]).expect("32 bytes are 64 digits");
    match protection {
        Protection::Plain => Ok(text),
        Protection::Encrypted(passphrase) => {
            let mut recipient = age::scrypt::Recipient::new(passphrase.for_age());
            recipient.set_work_factor(WORK_FACTOR);
            let sealed = age::encrypt(&recipient, &text);
            let sealed = sealed.map_err(|error| write_error(path, io::Error::other(error)))?;
            Ok(Zeroizing::new(sealed))
        }
    }
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn write_error(path: &Path, source: io::Error) -> KeyFileError {
    KeyFileError::Write {
        path: path.into(),
        source,
    }
}

fn write_new(path: &Path, content: &[u8]) -> Result<(), KeyFileError> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(ALLOWED_MODE)
        .open(path)
        .map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => KeyFileError::Exists { path: path.into() },
            _ => write_error(path, source),
        })?;
    file.write_all(content)
        .and_then(|()| file.sync_all())
        .map_err(|source| write_error(path, source))
}

/// A new name is durable once its directory is.
fn sync_directory(directory: &Path) -> Result<(), KeyFileError> {
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
        save_secret(&path, &secret.to_bytes(), Protection::Plain).expect("written");
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let read = load_identity(&path, &KeyAccess::plain()).expect("read");
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
        save_secret(&path, &[1; 32], Protection::Plain).expect("written");
        let again = save_secret(&path, &[2; 32], Protection::Plain);
        assert!(matches!(again, Err(KeyFileError::Exists { .. })));
        assert_eq!(
            *load_secret(&path, &KeyAccess::plain()).expect("read"),
            [1; 32]
        );
    }

    #[test]
    fn a_mode_wider_than_0600_is_refused_with_its_remedy() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(IDENTITY_FILE);
        save_secret(&path, &[1; 32], Protection::Plain).expect("written");
        for mode in [0o640, 0o604, 0o660, 0o700] {
            set_mode(&path, mode);
            let message = load_identity(&path, &KeyAccess::plain())
                .err()
                .expect("refused")
                .to_string();
            let remedy = format!("chmod 600 {}", path.display());
            assert!(message.contains(&remedy), "{message}");
            assert!(message.contains(&format!("{mode:04o}")), "{message}");
        }
        for mode in [0o600, 0o400] {
            set_mode(&path, mode);
            assert!(load_identity(&path, &KeyAccess::plain()).is_ok());
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
            let result = load_secret(&path, &KeyAccess::plain());
            assert!(matches!(result, Err(KeyFileError::Content { .. })));
        }
        fs::write(&path, format!("  {digits}\r\n")).expect("own file");
        assert_eq!(
            *load_secret(&path, &KeyAccess::plain()).expect("white space is no matter"),
            [0xab; 32]
        );
    }

    #[test]
    fn zero_is_no_vote_key() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(VOTE_FILE);
        save_secret(&path, &[0; 32], Protection::Plain).expect("written");
        let result = load_vote_secret(&path, &KeyAccess::plain());
        assert!(matches!(result, Err(KeyFileError::VoteSecret { .. })));
    }

    fn access(passphrase: &str) -> KeyAccess {
        KeyAccess {
            passphrase: PassphraseSource::given(Passphrase::new(passphrase).expect("not empty")),
            allow_plain: false,
        }
    }

    #[test]
    fn an_encrypted_key_opens_with_its_passphrase_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(IDENTITY_FILE);
        let passphrase = Passphrase::new("correct horse").expect("not empty");
        save_secret(&path, &[5; 32], Protection::Encrypted(&passphrase)).expect("written");
        assert!(is_encrypted(&path).expect("there"));
        let content = fs::read(&path).expect("there");
        assert!(!content.windows(8).any(|w| w == b"05050505"));
        let opened = load_secret(&path, &access("correct horse")).expect("opened");
        assert_eq!(*opened, [5; 32]);
        let wrong = load_secret(&path, &access("battery staple"));
        assert!(matches!(wrong, Err(KeyFileError::Decrypt { .. })));
        let none = load_secret(&path, &KeyAccess::plain());
        assert!(matches!(none, Err(KeyFileError::Passphrase { .. })));
        for cut in [30, content.len() - 1] {
            fs::write(&path, &content[..cut]).expect("own file");
            let damaged = load_secret(&path, &access("correct horse"));
            assert!(matches!(damaged, Err(KeyFileError::Decrypt { .. })));
        }
    }

    #[test]
    fn a_plain_key_is_refused_unless_allowed_and_can_be_converted_both_ways() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(VOTE_FILE);
        save_secret(&path, &[7; 32], Protection::Plain).expect("written");
        let refused = load_secret(&path, &access("p")).expect_err("plain");
        let message = refused.to_string();
        assert!(
            message.contains("quorate keys encrypt") && message.contains("--allow-plain-keys"),
            "{message}"
        );
        let passphrase = Passphrase::new("p").expect("not empty");
        replace_secret(&path, &[7; 32], Protection::Encrypted(&passphrase)).expect("replaced");
        assert!(is_encrypted(&path).expect("there"));
        assert_eq!(*load_secret(&path, &access("p")).expect("opened"), [7; 32]);
        replace_secret(&path, &[7; 32], Protection::Plain).expect("replaced");
        assert_eq!(
            *load_secret(&path, &KeyAccess::plain()).expect("read"),
            [7; 32]
        );
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
