//! Key files: one secret each, encrypted under a passphrase.
//!
//! | file | what is in it |
//! |---|---|
//! | `identity.key` | the seed of an ed25519 key: who a validator is, or who owns an account |
//! | `vote.key` | a validator's share of the group key, or its own vote key |
//!
//! A key is a line: its kind, a colon, and 32 bytes as 64 hexadecimal digits
//! (`quorate-identity-key:5fa1…`). Files of earlier versions have the digits alone, and are taken for
//! what they are used as.
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
    fmt,
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

/// What a key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// Who a validator is, or who owns an account.
    Identity,
    /// How a validator votes.
    Vote,
}

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
        "the key file {} is damaged or no key file: it must hold a key as `quorate keys` writes it, \
         and nothing else",
        .path.display()
    )]
    Content {
        /// The file.
        path: PathBuf,
    },
    /// It holds a key of another kind.
    #[error(
        "the key file {} holds {found}, and {wanted} is needed here{}",
        .path.display(), remedy(*.wanted)
    )]
    Kind {
        /// The file.
        path: PathBuf,
        /// What it holds.
        found: KeyKind,
        /// What it should hold.
        wanted: KeyKind,
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

impl KeyKind {
    const ALL: [Self; 2] = [Self::Identity, Self::Vote];

    /// What stands before the digits.
    const fn prefix(self) -> &'static str {
        match self {
            Self::Identity => "quorate-identity-key:",
            Self::Vote => "quorate-vote-key:",
        }
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Identity => "an identity key",
            Self::Vote => "a vote key",
        })
    }
}

fn remedy(wanted: KeyKind) -> &'static str {
    match wanted {
        KeyKind::Identity => "; a validator's and an account's is in its identity.key",
        KeyKind::Vote => "; a validator's is in its vote.key",
    }
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
/// If it cannot be read or opened, others may read it too, or it holds no identity key.
pub fn load_identity(path: &Path, access: &KeyAccess) -> Result<SecretKey, KeyFileError> {
    let secret = load_kind(path, access, KeyKind::Identity)?;
    Ok(SecretKey::from_bytes(&secret))
}

/// Reads a vote key's file.
///
/// # Errors
///
/// As for [`load_identity`]; and if the number is no vote key.
pub fn load_vote_secret(path: &Path, access: &KeyAccess) -> Result<VoteSecret, KeyFileError> {
    let secret = load_kind(path, access, KeyKind::Vote)?;
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

/// Reads a key that must not be of another kind.
fn load_kind(
    path: &Path,
    access: &KeyAccess,
    wanted: KeyKind,
) -> Result<SecretBytes, KeyFileError> {
    match load_key(path, access)? {
        (Some(found), _) if found != wanted => Err(KeyFileError::Kind {
            path: path.into(),
            found,
            wanted,
        }),
        (_, secret) => Ok(secret),
    }
}

/// Reads any key file: the key's kind, unless an earlier version has written it, and its 32 bytes.
///
/// # Errors
///
/// If it cannot be read or opened, others may read it too, or it is no key file.
pub fn load_key(
    path: &Path,
    access: &KeyAccess,
) -> Result<(Option<KeyKind>, SecretBytes), KeyFileError> {
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

fn decode(path: &Path, text: &[u8]) -> Result<(Option<KeyKind>, SecretBytes), KeyFileError> {
    let text = text.trim_ascii();
    let typed = KeyKind::ALL.into_iter().find_map(|kind| {
        let digits = text.strip_prefix(kind.prefix().as_bytes())?;
        Some((kind, digits))
    });
    let (kind, digits) = typed.map_or((None, text), |(kind, digits)| (Some(kind), digits));
    let mut bytes = SecretBytes::default();
    hex::decode_to_slice(digits, &mut *bytes)
        .map_err(|_| KeyFileError::Content { path: path.into() })?;
    Ok((kind, bytes))
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

/// Writes an identity's 32 secret bytes, as [`save_key`] does.
///
/// # Errors
///
/// If the file exists or cannot be written.
pub fn save_secret(
    path: &Path,
    bytes: &[u8; 32],
    protection: Protection<'_>,
) -> Result<(), KeyFileError> {
    save_key(path, KeyKind::Identity, bytes, protection)
}

/// Writes 32 secret bytes to a new file of mode 0600, makes its directory (mode 0700) if needed,
/// and syncs both to disk.
///
/// # Errors
///
/// If the file exists or cannot be written.
pub fn save_key(
    path: &Path,
    kind: KeyKind,
    bytes: &[u8; 32],
    protection: Protection<'_>,
) -> Result<(), KeyFileError> {
    save_file(path, &protect(path, Some(kind), bytes, protection)?)
}

fn save_file(path: &Path, content: &[u8]) -> Result<(), KeyFileError> {
    let directory = directory_of(path);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|source| write_error(directory, source))?;
    write_new(path, content)?;
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
    kind: Option<KeyKind>,
    bytes: &[u8; 32],
    protection: Protection<'_>,
) -> Result<(), KeyFileError> {
    let content = protect(path, kind, bytes, protection)?;
    let new = path.with_extension("key.new");
    write_new(&new, &content)?;
    fs::rename(&new, path).map_err(|source| write_error(path, source))?;
    sync_directory(directory_of(path))
}

fn protect(
    path: &Path,
    kind: Option<KeyKind>,
    bytes: &[u8; 32],
    protection: Protection<'_>,
) -> Result<Zeroizing<Vec<u8>>, KeyFileError> {
    let prefix = kind.map_or("", KeyKind::prefix).as_bytes();
    let mut text = Zeroizing::new(vec![b'\n'; prefix.len() + 65]);
    text[..prefix.len()].copy_from_slice(prefix);
    hex::encode_to_slice(bytes, &mut text[prefix.len()..prefix.len() + 64])
        .expect("32 bytes are 64 digits");
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
mod tests;
