//! Obtaining the passphrase of key files: from a file, a file descriptor, or the terminal.

use super::terminal;
use age::secrecy::SecretString;
use std::{
    cell::OnceCell,
    fs::File,
    io::{self, IsTerminal as _, Read as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};
use zeroize::Zeroizing;

const MAX_BYTES: u64 = 1_024;

/// A passphrase. Without `Debug`, and zeroized when dropped.
#[derive(Clone)]
pub struct Passphrase(Zeroizing<String>);

/// Why no passphrase could be obtained.
#[derive(Debug, thiserror::Error)]
pub enum PassphraseError {
    /// No source was given, and there is no terminal to ask at.
    #[error(
        "a passphrase is needed and there is no terminal to ask at; use --passphrase-file FILE or \
         --passphrase-fd N"
    )]
    NoSource,
    #[error("the passphrase is empty")]
    Empty,
    /// The passphrase is too long, or not text.
    #[error("the passphrase must be text of at most {MAX_BYTES} bytes")]
    NotText,
    /// The two entries at the terminal differ.
    #[error("the two passphrases are not the same")]
    Differ,
    /// The file is accessible to others.
    #[error(
        "the passphrase file {path} has mode {mode:04o}, which is wider than 0600; if nobody else \
         can have read it: chmod 600 {path}",
        path = .path.display()
    )]
    Permissions { path: PathBuf, mode: u32 },
    /// The source cannot be read.
    #[error("cannot read the passphrase from {from}: {source}")]
    Read {
        /// A description of the source.
        from: String,
        source: io::Error,
    },
}

/// The source of a passphrase. It is read once, when the passphrase is first needed.
pub struct PassphraseSource {
    origin: Origin,
    known: OnceCell<Passphrase>,
}

enum Origin {
    File(PathBuf),
    Descriptor(u32),
    Terminal,
    Nowhere,
}

impl Passphrase {
    /// Creates a passphrase from text.
    ///
    /// # Errors
    ///
    /// If it is empty or too long.
    pub fn new(text: &str) -> Result<Self, PassphraseError> {
        if text.is_empty() {
            return Err(PassphraseError::Empty);
        }
        if text.len() as u64 > MAX_BYTES {
            return Err(PassphraseError::NotText);
        }
        Ok(Self(Zeroizing::new(text.to_owned())))
    }

    /// Generates a random passphrase of 128 bits.
    pub fn random() -> Self {
        let mut bytes = Zeroizing::new([0; 16]);
        rand::Rng::fill_bytes(&mut super::system_rng(), &mut *bytes);
        Self(Zeroizing::new(hex::encode(*bytes)))
    }

    /// Writes the passphrase to a new file of mode 0600, for `--passphrase-file`.
    ///
    /// # Errors
    ///
    /// If the file exists or cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), super::KeyFileError> {
        let line = Zeroizing::new(format!("{}\n", self.0.as_str()));
        super::save_file(path, line.as_bytes())
    }

    pub(super) fn for_age(&self) -> SecretString {
        SecretString::from(self.0.as_str())
    }
}

impl PassphraseSource {
    /// The file or the descriptor if one is given, else the terminal.
    pub fn new(file: Option<PathBuf>, descriptor: Option<u32>) -> Self {
        Self::from(match (file, descriptor) {
            (Some(file), _) => Origin::File(file),
            (None, Some(descriptor)) => Origin::Descriptor(descriptor),
            (None, None) => Origin::Terminal,
        })
    }

    /// A source without a passphrase.
    pub fn none() -> Self {
        Self::from(Origin::Nowhere)
    }

    /// A source with a known passphrase.
    pub fn given(passphrase: Passphrase) -> Self {
        let source = Self::none();
        let _ = source.known.set(passphrase);
        source
    }

    fn from(origin: Origin) -> Self {
        Self {
            origin,
            known: OnceCell::new(),
        }
    }

    /// Returns the passphrase if it was already obtained.
    pub fn known(&self) -> Option<Passphrase> {
        self.known.get().cloned()
    }

    /// Returns the passphrase of existing files.
    pub fn get(&self) -> Result<Passphrase, PassphraseError> {
        self.obtain(false)
    }

    /// Returns a passphrase for new files; at a terminal, the user must enter it twice.
    pub fn choose(&self) -> Result<Passphrase, PassphraseError> {
        self.obtain(true)
    }

    fn obtain(&self, twice: bool) -> Result<Passphrase, PassphraseError> {
        if let Some(known) = self.known.get() {
            return Ok(known.clone());
        }
        let text = match &self.origin {
            Origin::Nowhere => return Err(PassphraseError::NoSource),
            Origin::Terminal => ask(twice)?,
            Origin::File(path) => read_passphrase_file(path)?,
            Origin::Descriptor(number) => {
                let from = format!("descriptor {number}");
                let file = File::open(format!("/dev/fd/{number}"));
                read(
                    file.map_err(|source| PassphraseError::Read {
                        from: from.clone(),
                        source,
                    })?,
                    &from,
                )?
            }
        };
        let passphrase = Passphrase::new(&text)?;
        let _ = self.known.set(passphrase.clone());
        Ok(passphrase)
    }
}

fn ask(twice: bool) -> Result<Zeroizing<String>, PassphraseError> {
    if !io::stderr().is_terminal() {
        return Err(PassphraseError::NoSource);
    }
    let prompt = |text: &str| {
        terminal::prompt(text).map_err(|source| PassphraseError::Read {
            from: "the terminal".to_owned(),
            source,
        })
    };
    let first = prompt("Passphrase: ")?;
    if twice && *prompt("The same again: ")? != *first {
        return Err(PassphraseError::Differ);
    }
    Ok(first)
}

fn read_passphrase_file(path: &Path) -> Result<Zeroizing<String>, PassphraseError> {
    let read_error = |source| PassphraseError::Read {
        from: path.display().to_string(),
        source,
    };
    let file = File::open(path).map_err(read_error)?;
    let metadata = file.metadata().map_err(read_error)?;
    let mode = metadata.permissions().mode() & 0o7777;
    // Pipes and mounted secrets have their own modes.
    if metadata.is_file() && mode & !0o600 != 0 {
        return Err(PassphraseError::Permissions {
            path: path.into(),
            mode,
        });
    }
    read(file, &path.display().to_string())
}

/// Reads the first line.
fn read(file: File, from: &str) -> Result<Zeroizing<String>, PassphraseError> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_BYTES as usize + 2));
    file.take(MAX_BYTES + 2)
        .read_to_end(&mut bytes)
        .map_err(|source| PassphraseError::Read {
            from: from.to_owned(),
            source,
        })?;
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or(&[]);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let text = std::str::from_utf8(line).map_err(|_| PassphraseError::NotText)?;
    Ok(Zeroizing::new(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_file_gives_its_first_line() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("passphrase");
        for (content, expected) in [
            ("secret", Some("secret")),
            ("secret\n", Some("secret")),
            ("secret\r\nmore\n", Some("secret")),
            (" a b \n", Some(" a b ")),
            ("", None),
            ("\n", None),
        ] {
            fs::write(&path, content).expect("own file");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("own file");
            let source = PassphraseSource::new(Some(path.clone()), None);
            let found = source.get().ok();
            assert_eq!(
                found.as_ref().map(|p| p.0.as_str()),
                expected,
                "{content:?}"
            );
        }
        fs::write(&path, "x".repeat(2_000)).expect("own file");
        let source = PassphraseSource::new(Some(path.clone()), None);
        assert!(matches!(source.get(), Err(PassphraseError::NotText)));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("own file");
        let message = PassphraseSource::new(Some(path), None)
            .get()
            .err()
            .expect("refused")
            .to_string();
        assert!(message.contains("chmod 600"), "{message}");
    }

    #[test]
    fn without_a_source_there_is_an_error_with_the_flags_to_use() {
        let message = PassphraseSource::none()
            .get()
            .err()
            .expect("none")
            .to_string();
        assert!(message.contains("--passphrase-file"), "{message}");
    }
}
