//! Key files: one secret each, encrypted under a passphrase.
//!
//! | file | content |
//! |---|---|
//! | `identity.key` | the seed of an ed25519 key that identifies a validator or owns an account |
//! | `vote.key` | a validator's share of the group key, or its own vote key |
//! | `ceremony.key` | the seed of a participant's secrets in one ceremony, until that ends |
//!
//! A key is stored as one line: its kind, a colon, and 32 bytes as 64 hexadecimal digits
//! (`quorate-identity-key:5fa1…`). Files of earlier versions contain only the digits; they are
//! accepted as whatever kind is needed.
//!
//! A file is either in the age format (age-encryption.org/v1, scrypt), so that other tools can open
//! it too, or unencrypted, for test networks. A file that others can read is refused: it may
//! already have been read, so silently fixing its mode would be too late. An existing file is never
//! overwritten, because its key may exist nowhere else.

mod passphrase;
mod terminal;

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

/// The default name of an identity key's file.
pub const IDENTITY_FILE: &str = "identity.key";

/// The name of the file with a ceremony's seed.
pub const SEED_FILE: &str = "ceremony.key";

/// The default name of a vote key's file.
pub const VOTE_FILE: &str = "vote.key";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// The key of a validator's identity or of an account.
    Identity,
    /// The key that signs a validator's votes.
    Vote,
    /// What a participant's secrets of one ceremony are derived from.
    Ceremony,
}

/// The widest mode that a key file may have: readable and writable by its owner.
const ALLOWED_MODE: u32 = 0o600;

/// Size limit of a key file: 64 digits, encrypted, with age's header.
const MAX_FILE_BYTES: u64 = 4 << 10;

/// The first bytes of an encrypted file.
const AGE_HEADER: &[u8] = b"age-encryption.org/v1";

/// scrypt's work factor for new files: 2^17 blocks of 1 KiB, about half a second.
const WORK_FACTOR: u8 = 17;

/// The highest work factor that is accepted when opening a file: 1 GiB of memory, some seconds. A
/// file could demand more.
const MAX_WORK_FACTOR: u8 = 20;

/// A 32-byte secret as stored in a file. Zeroized when dropped.
pub type SecretBytes = Zeroizing<[u8; 32]>;

/// Why a key file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file cannot be read.
    #[error("cannot read the key file {}: {source}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    /// Users other than its owner can read or write the file, or it is executable.
    #[error(
        "the key file {path} has mode {mode:04o}, which is wider than 0600; \
         if nobody else can have read it: chmod 600 {path}",
        path = .path.display()
    )]
    Permissions { path: PathBuf, mode: u32 },
    /// The content is not a key.
    #[error(
        "the key file {} is damaged or no key file: it must hold a key as `quorate keys` writes it, \
         and nothing else",
        .path.display()
    )]
    Content { path: PathBuf },
    /// The file contains a key of another kind.
    #[error(
        "the key file {} holds {found}, and {wanted} is needed here{}",
        .path.display(), remedy(*.wanted)
    )]
    Kind {
        path: PathBuf,
        found: KeyKind,
        wanted: KeyKind,
    },
    /// The file is not encrypted, but should be.
    #[error(
        "the key file {path} is not encrypted: encrypt it with `quorate keys encrypt {path}`, or, for \
         a test network, allow it with --allow-plain-keys",
        path = .path.display()
    )]
    Plain { path: PathBuf },
    /// No passphrase could be obtained.
    #[error("the key file {} is encrypted: {source}", .path.display())]
    Passphrase {
        path: PathBuf,
        source: PassphraseError,
    },
    /// The passphrase does not decrypt the file.
    #[error(
        "the key file {} cannot be opened ({reason}): the passphrase is wrong or the file is damaged",
        .path.display()
    )]
    Decrypt {
        path: PathBuf,
        /// The message of the age library.
        reason: String,
    },
    /// The file contains a number that is not a valid vote key.
    #[error("the vote key file {} is no vote key: {source}", .path.display())]
    VoteSecret { path: PathBuf, source: SecretError },
    /// The file already exists.
    #[error(
        "the key file {} exists and is not written over; choose another directory, or move the \
         file to a safe place first",
        .path.display()
    )]
    Exists { path: PathBuf },
    /// The file or its directory cannot be written.
    #[error("cannot write {}: {source}", .path.display())]
    Write {
        /// The file or the directory.
        path: PathBuf,
        source: io::Error,
    },
}

impl KeyKind {
    const ALL: [Self; 3] = [Self::Identity, Self::Vote, Self::Ceremony];

    /// The text before the digits.
    const fn prefix(self) -> &'static str {
        match self {
            Self::Identity => "quorate-identity-key:",
            Self::Vote => "quorate-vote-key:",
            Self::Ceremony => "quorate-ceremony-seed:",
        }
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Identity => "an identity key",
            Self::Vote => "a vote key",
            Self::Ceremony => "a ceremony's seed",
        })
    }
}

fn remedy(wanted: KeyKind) -> &'static str {
    match wanted {
        KeyKind::Identity => "; a validator's and an account's is in its identity.key",
        KeyKind::Vote => "; a validator's is in its vote.key",
        KeyKind::Ceremony => "; a ceremony keeps it in its ceremony.key",
    }
}

/// Generates an identity from the system's random source.
pub fn generate_identity() -> SecretKey {
    SecretKey::random(system_rng())
}

/// Returns the system's random source, for key generation.
pub fn system_rng() -> impl rand::CryptoRng {
    rand::rand_core::UnwrapErr(rand::rngs::SysRng)
}

/// How to open key files.
pub struct KeyAccess {
    /// The source of the passphrase, shared by all files. Used when the first encrypted file is
    /// opened.
    pub passphrase: PassphraseSource,
    /// Whether unencrypted files are accepted.
    pub allow_plain: bool,
}

impl KeyAccess {
    /// Access to unencrypted files only, without a passphrase.
    pub fn plain() -> Self {
        Self {
            passphrase: PassphraseSource::none(),
            allow_plain: true,
        }
    }
}

#[derive(Clone, Copy)]
pub enum Protection<'a> {
    /// Encrypted under a passphrase.
    Encrypted(&'a Passphrase),
    /// Unencrypted: protected by the file mode alone.
    Plain,
}

/// Reads an identity key.
///
/// # Errors
///
/// If the file cannot be read or decrypted, is accessible to others, or contains no identity key.
pub fn load_identity(path: &Path, access: &KeyAccess) -> Result<SecretKey, KeyFileError> {
    let secret = load_kind(path, access, KeyKind::Identity)?;
    Ok(SecretKey::from_bytes(&secret))
}

/// Reads a vote key.
///
/// # Errors
///
/// As for [`load_identity`], or if the number is not a valid vote key.
pub fn load_vote_secret(path: &Path, access: &KeyAccess) -> Result<VoteSecret, KeyFileError> {
    let secret = load_kind(path, access, KeyKind::Vote)?;
    VoteSecret::from_bytes(&secret).map_err(|source| KeyFileError::VoteSecret {
        path: path.into(),
        source,
    })
}

/// Reads a ceremony's seed.
///
/// # Errors
///
/// As for [`load_identity`].
pub fn load_seed(path: &Path, access: &KeyAccess) -> Result<SecretBytes, KeyFileError> {
    load_kind(path, access, KeyKind::Ceremony)
}

/// Whether a key file is encrypted.
///
/// # Errors
///
/// If the file cannot be read, or is accessible to others.
pub fn is_encrypted(path: &Path) -> Result<bool, KeyFileError> {
    Ok(read_file(path)?.starts_with(AGE_HEADER))
}

/// Reads a key, and refuses one of another kind.
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

/// Reads any key file. Returns the kind of the key (`None` in files of earlier versions) and its 32
/// bytes.
///
/// # Errors
///
/// If the file cannot be read or decrypted, is accessible to others, or is not a key file.
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
        // Text that is not a key at all gets its own error.
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
    // Check the mode of the opened file, not of the path: this is the file that is read.
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

/// Writes the 32 secret bytes of an identity, like [`save_key`].
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

/// Writes 32 secret bytes to a new file of mode 0600. Creates its directory (mode 0700) if needed,
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

/// Like [`save_key`], into a directory that is there; after a crash the file is there whole or not at all.
///
/// # Errors
///
/// If the file exists or cannot be written.
pub fn install_key(
    path: &Path,
    kind: KeyKind,
    bytes: &[u8; 32],
    protection: Protection<'_>,
) -> Result<(), KeyFileError> {
    if path.exists() {
        return Err(KeyFileError::Exists { path: path.into() });
    }
    // Left by a crash within this function; nothing has relied on it.
    match fs::remove_file(path.with_extension("key.new")) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(write_error(path, source)),
        _ => replace_secret(path, Some(kind), bytes, protection),
    }
}

/// Overwrites a key file and removes it, if it is there; after a crash it is there whole or not at all, and erasing
/// again completes it. What the file system or the disk keeps of the old content is out of reach.
///
/// # Errors
///
/// If the file system fails.
pub fn erase_key(path: &Path) -> Result<(), KeyFileError> {
    let doomed = path.with_extension("erased");
    let is_missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    match fs::rename(path, &doomed) {
        Err(source) if !is_missing(&source) => return Err(write_error(path, source)),
        _ => {}
    }
    let erase = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).open(&doomed)?;
        let length = file.metadata()?.len().min(MAX_FILE_BYTES);
        file.write_all(&vec![0; usize::try_from(length).unwrap_or(0)])?;
        file.sync_all()?;
        fs::remove_file(&doomed)
    };
    match erase() {
        Err(source) if !is_missing(&source) => Err(write_error(&doomed, source)),
        _ => sync_directory(directory_of(path)),
    }
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

/// Replaces a key file with the same secret under another protection. The old file is replaced only
/// after the new one is on disk.
///
/// # Errors
///
/// If the new file cannot be written; the old one is then unchanged.
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

/// A new file name is durable only after its directory is synced.
fn sync_directory(directory: &Path) -> Result<(), KeyFileError> {
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(|source| write_error(directory, source))
}

#[cfg(test)]
mod tests;
