//! Flags about the protection of key files, the same for all commands.

use crate::keys::{KeyAccess, Passphrase, PassphraseSource, Protection};
use clap::Args;
use std::path::PathBuf;

/// Where the passphrase of key files comes from
#[derive(Args)]
pub(super) struct Source {
    /// Read the key files' passphrase from this file's first line (mode 0600); without it and
    /// --passphrase-fd, a terminal is asked
    #[arg(long, value_name = "FILE", env = "QUORATE_PASSPHRASE_FILE")]
    passphrase_file: Option<PathBuf>,
    /// Read the key files' passphrase from this open descriptor's first line
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
    /// Do not encrypt the new key files: for test networks
    #[arg(long)]
    plain: bool,
}

/// Where the new passphrase of key files comes from
#[derive(Args)]
pub(super) struct NewSource {
    /// Read the new passphrase from this file's first line (mode 0600); without it, a terminal is asked
    #[arg(long, value_name = "FILE")]
    new_passphrase_file: Option<PathBuf>,
}

impl NewSource {
    /// The source itself.
    pub(super) fn open(&self) -> PassphraseSource {
        PassphraseSource::new(self.new_passphrase_file.clone(), None)
    }

    /// Whether a file is named.
    pub(super) const fn is_given(&self) -> bool {
        self.new_passphrase_file.is_some()
    }
}

impl Source {
    /// The source itself.
    pub(super) fn open(&self) -> PassphraseSource {
        PassphraseSource::new(self.passphrase_file.clone(), self.passphrase_fd)
    }

    /// Whether a file or a descriptor is named.
    pub(super) const fn is_given(&self) -> bool {
        self.passphrase_file.is_some() || self.passphrase_fd.is_some()
    }

    /// Access to key files of a validator, where plain ones are refused unless allowed.
    pub(super) fn access(&self, allow_plain: bool) -> KeyAccess {
        KeyAccess {
            passphrase: self.open(),
            allow_plain,
        }
    }
}

impl Opening {
    /// Access to key files of any kind.
    pub(super) fn access(&self) -> KeyAccess {
        self.source.access(true)
    }
}

impl NewKeys {
    /// Whether the new files are to be plain.
    pub(super) const fn is_plain(&self) -> bool {
        self.plain
    }

    /// Access to key files that exist, with the same passphrase.
    pub(super) fn access(&self) -> KeyAccess {
        self.source.access(true)
    }

    /// As [`Self::choose`], with the passphrase that has opened other files, if any.
    pub(super) fn choose_as(&self, access: &KeyAccess) -> anyhow::Result<Option<Passphrase>> {
        match access.passphrase.known() {
            Some(known) if !self.plain => Ok(Some(known)),
            _ => self.choose(),
        }
    }

    /// The passphrase for new files, unless they are to be plain, which is said aloud.
    pub(super) fn choose(&self) -> anyhow::Result<Option<Passphrase>> {
        if self.plain {
            eprintln!(
                "warning: the new key files are NOT encrypted; whoever reads them has the keys"
            );
            return Ok(None);
        }
        Ok(Some(self.source.open().choose().map_err(|error| {
            anyhow::anyhow!("{error} (or --plain for a test network)")
        })?))
    }
}

/// The protection that a choice comes to.
pub(super) fn protection_of(passphrase: Option<&Passphrase>) -> Protection<'_> {
    passphrase.map_or(Protection::Plain, Protection::Encrypted)
}
