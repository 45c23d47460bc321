//! `quorate keys`

use super::{
    output::{print_fields, print_json, print_lines},
    passphrases::{NewKeys, NewSource, Opening, Source, protection_of},
};
use crate::{
    genesis::{register, write_new},
    keys::{self, IDENTITY_FILE, KeyAccess, KeyKind, Protection, VOTE_FILE},
};
use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use quorate_crypto::bls::VoteSecret;
use quorate_types::{Identity, genesis::GenesisValidator, limits::MAX_CHAIN_NAME_BYTES};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Create and show identity keys
///
/// An identity is an ed25519 key pair. Validators authenticate with it when they connect to each
/// other; an account is identified by its public key, and its transactions are signed with it.
#[derive(Subcommand)]
pub(super) enum Keys {
    /// Create a new identity key
    Generate(Generate),
    /// Create a validator's own vote key, and its registration for the genesis file
    Vote(Vote),
    /// Show the public key of a key file
    Show(Show),
    /// Encrypt a key file under a passphrase, in place
    Encrypt(Convert),
    /// Decrypt a key file in place
    Decrypt(Convert),
    /// Set, change or remove the passphrase of key files, in place
    Passphrase(ChangePassphrase),
}

/// Create a new identity key
///
/// Writes identity.key: 32 secret bytes, encrypted under a passphrase in the age format, mode 0600.
/// Anybody who has this file and the passphrase can act as this validator or spend from this
/// account. An existing file is never overwritten.
#[derive(Args)]
#[command(after_help = "Examples:
  quorate keys generate --out validator-0
  quorate keys generate --out alice --json")]
pub(super) struct Generate {
    /// Directory to write identity.key to; created if missing
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    protection: NewKeys,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Encrypt or decrypt a key file in place
///
/// The old file is replaced only after the new one is on disk.
#[derive(Args)]
#[command(after_help = "Examples:
  quorate keys encrypt validator/vote.key
  quorate keys encrypt validator/vote.key --passphrase-file /run/secrets/quorate")]
pub(super) struct Convert {
    /// The key file
    file: PathBuf,
    #[command(flatten)]
    source: Source,
}

/// Set, change or remove the passphrase of key files, in place
///
/// A file that is not encrypted becomes encrypted. An encrypted file gets the new passphrase, or
/// none with --remove. All files are opened before the first is changed, and each old file is
/// replaced only after the new one is on disk. A running validator is not affected: it needs the
/// new passphrase at its next start.
#[derive(Args)]
#[command(after_help = "Examples:
  quorate keys passphrase validator/identity.key validator/vote.key
  quorate keys passphrase validator/vote.key --passphrase-file old --new-passphrase-file new
  quorate keys passphrase --remove validator/vote.key --passphrase-file old")]
pub(super) struct ChangePassphrase {
    /// The key files; all encrypted ones must have the same passphrase
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Store the files unencrypted; only for test networks
    #[arg(long, conflicts_with = "new_passphrase_file")]
    remove: bool,
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    new: NewSource,
}

/// Create a validator's own vote key, for a chain with the scheme bls-aggregate
///
/// Writes vote.key (secret, mode 0600) and registration.json, which contains the identity, the
/// public vote key, and a proof of possession of the secret vote key, bound to the chain's name and
/// the identity. Send the registration to the person who runs `quorate genesis create
/// --registration …`; the vote key never leaves this machine.
#[derive(Args)]
#[command(after_help = "Example:
  quorate keys vote --chain mychain --identity validator/identity.key --out validator")]
pub(super) struct Vote {
    /// The chain's name
    #[arg(long, value_name = "NAME")]
    chain: String,
    /// The validator's identity key file
    #[arg(long, value_name = "FILE")]
    identity: PathBuf,
    /// Directory to write to; created if missing
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    protection: NewKeys,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Show the public key of a key file
///
/// Never prints the secret key.
#[derive(Args)]
#[command(after_help = "Examples:
  quorate keys show validator-0/identity.key
  quorate keys show --vote validator-0/vote.key")]
pub(super) struct Show {
    /// The key file
    file: PathBuf,
    /// The file is a validator's vote.key: show its public key as it appears in the genesis file
    #[arg(long)]
    vote: bool,
    #[command(flatten)]
    opening: Opening,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Keys {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Generate(command) => command.run(),
            Self::Vote(command) => command.run(),
            Self::Show(command) => command.run(),
            Self::Encrypt(command) => command.encrypt(),
            Self::Decrypt(command) => command.decrypt(),
            Self::Passphrase(command) => command.run(),
        }
    }
}

impl Generate {
    fn run(self) -> anyhow::Result<()> {
        let path = self.out.join(IDENTITY_FILE);
        let passphrase = self.protection.choose()?;
        let secret = keys::generate_identity();
        let protection = protection_of(passphrase.as_ref());
        keys::save_secret(&path, &secret.to_bytes(), protection)?;
        let identity = secret.identity();
        if self.json {
            return print_json(&json!({ "identity": identity, "file": path }));
        }
        print_fields(&[
            ("identity", identity.to_string()),
            ("secret key", path.display().to_string()),
        ])
    }
}

impl Vote {
    fn run(self) -> anyhow::Result<()> {
        // The same passphrase opens the identity, if it is encrypted, and protects the vote key.
        let access = self.protection.access();
        let identity = keys::load_identity(&self.identity, &access)?.identity();
        let passphrase = self.protection.choose_as(&access)?;
        let protection = protection_of(passphrase.as_ref());
        let (registration, file) = new_vote_key(&self.chain, identity, &self.out, protection)?;
        let key = self.out.join(VOTE_FILE);
        if self.json {
            return print_json(&json!({
                "registration": registration, "file": file, "secret_key": key
            }));
        }
        print_fields(&[
            ("identity", identity.to_string()),
            ("vote key", registration.vote_key),
            ("registration", file.display().to_string()),
            ("secret key", key.display().to_string()),
        ])
    }
}

/// Creates a vote key and its registration in a directory. Returns the registration and the path of
/// its file.
pub(super) fn new_vote_key(
    chain: &str,
    identity: Identity,
    out: &Path,
    protection: Protection<'_>,
) -> anyhow::Result<(GenesisValidator, PathBuf)> {
    if chain.is_empty() || chain.len() > MAX_CHAIN_NAME_BYTES {
        bail!("--chain must be 1 to {MAX_CHAIN_NAME_BYTES} bytes");
    }
    let file = out.join("registration.json");
    if file.exists() {
        bail!("{} exists and is not written over", file.display());
    }
    let secret = VoteSecret::random(keys::system_rng());
    let key = out.join(VOTE_FILE);
    keys::save_key(&key, KeyKind::Vote, &secret.to_bytes(), protection)?;
    let registration = register(chain, identity, &secret);
    write_new(&file, &serde_json::to_string_pretty(&registration)?)?;
    Ok((registration, file))
}

impl Convert {
    fn encrypt(self) -> anyhow::Result<()> {
        let file = self.file.display();
        if keys::is_encrypted(&self.file)? {
            bail!(
                "{file} is encrypted already; `quorate keys passphrase {file}` changes the passphrase"
            );
        }
        let (kind, secret) = keys::load_key(&self.file, &KeyAccess::plain())?;
        let passphrase = self.source.open().choose()?;
        keys::replace_secret(
            &self.file,
            kind,
            &secret,
            Protection::Encrypted(&passphrase),
        )?;
        print_lines(&[format!("{file} is encrypted")])
    }

    fn decrypt(self) -> anyhow::Result<()> {
        let file = self.file.display();
        if !keys::is_encrypted(&self.file)? {
            bail!("{file} is not encrypted");
        }
        let (kind, secret) = keys::load_key(&self.file, &self.source.access(false))?;
        keys::replace_secret(&self.file, kind, &secret, Protection::Plain)?;
        eprintln!("warning: {file} is NOT encrypted any more; whoever reads it has the key");
        Ok(())
    }
}

impl ChangePassphrase {
    fn run(self) -> anyhow::Result<()> {
        let access = self.source.access(true);
        let mut opened = Vec::new();
        for file in &self.files {
            let was = keys::is_encrypted(file)?;
            if self.remove && !was {
                bail!("{} has no passphrase: nothing was changed", file.display());
            }
            if was
                && self.new.is_given()
                && !self.source.is_given()
                && access.passphrase.known().is_none()
            {
                eprintln!("the present passphrase is asked for:");
            }
            opened.push((file, was, keys::load_key(file, &access)?));
        }
        let new = match self.remove {
            true => None,
            false => {
                if !self.new.is_given() {
                    eprintln!("the new passphrase is asked for:");
                }
                let chosen = self.new.open().choose();
                Some(chosen.context("the new passphrase (--new-passphrase-file FILE names one)")?)
            }
        };
        let protection = protection_of(new.as_ref());
        for (file, was, (kind, secret)) in opened {
            keys::replace_secret(file, kind, &secret, protection)?;
            let done = match (was, self.remove) {
                (true, true) => "has no passphrase any more; WHOEVER READS IT HAS THE KEY",
                (true, false) => "has the new passphrase",
                (false, _) => "is encrypted under the passphrase",
            };
            print_lines(&[format!("{} {done}", file.display())])?;
        }
        print_lines(&[
            "copies that were made before stay as they were: readable as the old file was",
        ])
    }
}

impl Show {
    fn run(self) -> anyhow::Result<()> {
        let access = self.opening.access();
        let (name, value) = if self.vote {
            let key = keys::load_vote_secret(&self.file, &access)?.public_key();
            ("vote_key", hex::encode(key))
        } else {
            let identity = keys::load_identity(&self.file, &access)?.identity();
            ("identity", identity.to_string())
        };
        if self.json {
            return print_json(&json!({ name: value }));
        }
        print_lines(&[value])
    }
}
