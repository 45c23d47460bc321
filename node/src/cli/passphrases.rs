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

impl Source {
    /// The source itself.
    pub(super) fn open(&self) -> PassphraseSource {
        PassphraseSource::new(self.passphrase_file.clone(), self.passphrase_fd)
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
