//! Flags for the encryption of key files, shared by all commands.

use crate::keys::{KeyAccess, Passphrase, PassphraseSource, Protection};
use clap::Args;
use std::path::PathBuf;

/// Where the passphrase of key files comes from
#[derive(Args)]
pub(super) struct Source {
    /// Read the key files' passphrase from the first line of this file (mode 0600); without this
    /// and --passphrase-fd, the terminal is asked
    #[arg(long, value_name = "FILE", env = "QUORATE_PASSPHRASE_FILE")]
    passphrase_file: Option<PathBuf>,
    /// Read the key files' passphrase from the first line of this open file descriptor
    #[arg(long, value_name = "N", conflicts_with = "passphrase_file")]
    passphrase_fd: Option<u32>,
}

/// How key files are opened
#[derive(Args)]
pub(super) struct Opening {
    #[command(flatten)]
    source: Source,
}

/// How new key files are protected
#[derive(Args)]
pub(super) struct NewKeys {
    #[command(flatten)]
    source: Source,
    /// Do not encrypt the new key files; only for test networks
    #[arg(long)]
    plain: bool,
}

/// Where the new passphrase of key files comes from
#[derive(Args)]
pub(super) struct NewSource {
    /// Read the new passphrase from the first line of this file (mode 0600); by default, the
    /// terminal is asked
    #[arg(long, value_name = "FILE")]
    new_passphrase_file: Option<PathBuf>,
}

impl NewSource {
    pub(super) fn open(&self) -> PassphraseSource {
        PassphraseSource::new(self.new_passphrase_file.clone(), None)
    }

    pub(super) const fn is_given(&self) -> bool {
        self.new_passphrase_file.is_some()
    }
}

impl Source {
    pub(super) fn open(&self) -> PassphraseSource {
        PassphraseSource::new(self.passphrase_file.clone(), self.passphrase_fd)
    }

    /// Whether a file or a descriptor is given.
    pub(super) const fn is_given(&self) -> bool {
        self.passphrase_file.is_some() || self.passphrase_fd.is_some()
    }

    /// Returns access to a validator's key files; unencrypted ones are refused unless allowed.
    pub(super) fn access(&self, allow_plain: bool) -> KeyAccess {
        KeyAccess {
            passphrase: self.open(),
            allow_plain,
        }
    }
}

impl Opening {
    /// Returns access to encrypted and unencrypted key files.
    pub(super) fn access(&self) -> KeyAccess {
        self.source.access(true)
    }
}

impl NewKeys {
    /// Whether the new files stay unencrypted.
    pub(super) const fn is_plain(&self) -> bool {
        self.plain
    }

    /// Returns access to existing key files, with the same passphrase.
    pub(super) fn access(&self) -> KeyAccess {
        self.source.access(true)
    }

    /// As [`Self::choose`], but reuses the passphrase that opened other files, if any.
    pub(super) fn choose_as(&self, access: &KeyAccess) -> anyhow::Result<Option<Passphrase>> {
        match access.passphrase.known() {
            Some(known) if !self.plain => Ok(Some(known)),
            _ => self.choose(),
        }
    }

    /// Returns the passphrase for new files. With `--plain`, prints a warning and returns `None`.
    pub(super) fn choose(&self) -> anyhow::Result<Option<Passphrase>> {
        if self.plain {
            eprintln!(
                "warning: the new key files are NOT encrypted; whoever reads them has the keys"
            );
            return Ok(None);
        }
        Ok(Some(self.source.open().choose().map_err(|error| {
            anyhow::anyhow!(
                "{error} (or --plain for a test network; `quorate testnet --passphrases` makes random ones)"
            )
        })?))
    }
}

pub(super) fn protection_of(passphrase: Option<&Passphrase>) -> Protection<'_> {
    passphrase.map_or(Protection::Plain, Protection::Encrypted)
}
