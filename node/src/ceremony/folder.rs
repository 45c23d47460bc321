//! A participant's files.
//!
//! | file | content |
//! |---|---|
//! | `ceremony.key` | the seed of the participant's secrets; a key file, erased at the end |
//! | `ceremony.json` | the messages so far (a [`Transcript`]); removed when all are done |
//! | `vote.key` | the share |
//! | `genesis.json`, `trust.json`, `transcript.json` | the result |
//!
//! Each is written whole or not at all.

use super::transcript::{MAX_TRANSCRIPT_BYTES, TRANSCRIPT_FILE, Transcript};
use crate::{
    genesis::{GENESIS_FILE, TRUST_FILE},
    keys::{self, KeyAccess, KeyKind, Protection, SEED_FILE, SecretBytes, VOTE_FILE},
};
use anyhow::{Context as _, bail, ensure};
use quorate_crypto::bls::VoteSecret;
use quorate_files::{make_private_folder, read_text};
use quorate_storage::disk::{SystemDisk, write_atomically};
use std::{
    fs::{self, File, TryLockError},
    path::{Path, PathBuf},
};

/// The messages of a ceremony that is not over.
pub const RECORD_FILE: &str = "ceremony.json";

/// Size limit of a genesis file.
const MAX_GENESIS_BYTES: u64 = MAX_TRANSCRIPT_BYTES;

/// A folder that no other process uses for a ceremony.
pub struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Creates the folder if needed, and locks it.
    ///
    /// # Errors
    ///
    /// If another process has it, or the file system fails.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let name = path.display();
        make_private_folder(path).with_context(|| format!("cannot create {name}"))?;
        let lock = File::open(path).with_context(|| format!("cannot open {name}"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                bail!("{name} is in use by another process: one ceremony has one folder")
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {name}"));
            }
        }
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
        })
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.path.join(file)
    }

    /// # Errors
    ///
    /// If there is one that cannot be read.
    pub fn seed(&self, access: &KeyAccess) -> anyhow::Result<Option<SecretBytes>> {
        let path = self.path(SEED_FILE);
        match path.exists() {
            true => Ok(Some(keys::load_seed(&path, access)?)),
            false => Ok(None),
        }
    }

    /// Makes a seed that is on disk when this returns.
    ///
    /// # Errors
    ///
    /// If there is one, or it cannot be written.
    pub fn make_seed(&self, protection: Protection<'_>) -> anyhow::Result<SecretBytes> {
        let mut seed = SecretBytes::default();
        rand::Rng::fill_bytes(&mut keys::system_rng(), &mut *seed);
        keys::install_key(&self.path(SEED_FILE), KeyKind::Ceremony, &seed, protection)?;
        Ok(seed)
    }

    /// # Errors
    ///
    /// If the file system fails.
    pub fn erase_seed(&self) -> anyhow::Result<()> {
        Ok(keys::erase_key(&self.path(SEED_FILE))?)
    }

    /// The messages of a ceremony that is not over.
    ///
    /// # Errors
    ///
    /// If there are some that cannot be read.
    pub fn record(&self) -> anyhow::Result<Option<Transcript>> {
        self.read_transcript(RECORD_FILE)
    }

    /// The transcript of a ceremony that is over.
    ///
    /// # Errors
    ///
    /// If there is one that cannot be read.
    pub fn transcript(&self) -> anyhow::Result<Option<Transcript>> {
        self.read_transcript(TRANSCRIPT_FILE)
    }

    fn read_transcript(&self, file: &str) -> anyhow::Result<Option<Transcript>> {
        let path = self.path(file);
        match read_text(&path, MAX_TRANSCRIPT_BYTES) {
            Err(error) if error.is_missing() => Ok(None),
            text => {
                Ok(Some(Transcript::from_json(&text?).with_context(|| {
                    format!("cannot use {}", path.display())
                })?))
            }
        }
    }

    /// # Errors
    ///
    /// If the file system fails.
    pub fn keep(&self, record: &Transcript) -> anyhow::Result<()> {
        self.write(RECORD_FILE, &record.to_json())
    }

    /// The ceremony is over.
    ///
    /// # Errors
    ///
    /// If the file system fails.
    pub fn close(&self) -> anyhow::Result<()> {
        let path = self.path(RECORD_FILE);
        fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))
    }

    /// Refuses a folder that holds a chain or a vote key.
    ///
    /// # Errors
    ///
    /// If it does.
    pub fn expect_no_chain(&self) -> anyhow::Result<()> {
        for file in [VOTE_FILE, GENESIS_FILE, TRUST_FILE] {
            let path = self.path(file);
            ensure!(
                !path.exists(),
                "{} exists and is not written over; choose another --out",
                path.display()
            );
        }
        Ok(())
    }

    /// Writes the share, unless it is there.
    ///
    /// # Errors
    ///
    /// If another is there, or the file system fails.
    pub fn install_share(
        &self,
        share: &VoteSecret,
        access: &KeyAccess,
        protection: Protection<'_>,
    ) -> anyhow::Result<()> {
        let path = self.path(VOTE_FILE);
        if !path.exists() {
            keys::install_key(&path, KeyKind::Vote, &share.to_bytes(), protection)?;
            return Ok(());
        }
        let held = keys::load_vote_secret(&path, access)?;
        ensure!(
            held.public_key() == share.public_key(),
            "{} holds another key than the share of this ceremony, and is not written over",
            path.display()
        );
        Ok(())
    }

    /// Writes a text that ends with a newline, unless the same is there.
    ///
    /// # Errors
    ///
    /// If another is there, or the file system fails.
    pub fn install(&self, file: &str, text: &str) -> anyhow::Result<()> {
        let path = self.path(file);
        match read_text(&path, MAX_GENESIS_BYTES) {
            Err(error) if error.is_missing() => self.write(file, text),
            held => {
                ensure!(
                    held?.trim_end() == text.trim_end(),
                    "{} exists and is not written over",
                    path.display()
                );
                Ok(())
            }
        }
    }

    fn write(&self, file: &str, text: &str) -> anyhow::Result<()> {
        let path = self.path(file);
        let line = format!("{}\n", text.trim_end());
        write_atomically(&SystemDisk, &path, line.as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))
    }
}
