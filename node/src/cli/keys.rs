//! `quorate keys`

use super::{
    output::{print_fields, print_json, print_lines},
    passphrases::{NewKeys, Opening, Source, protection_of},
};
use crate::{
    genesis::{register, write_new},
    keys::{self, IDENTITY_FILE, KeyAccess, Protection, VOTE_FILE},
};
use anyhow::bail;
use clap::{Args, Subcommand};
use quorate_crypto::bls::VoteSecret;
use quorate_types::limits::MAX_CHAIN_NAME_BYTES;
use serde_json::json;
use std::path::PathBuf;

/// Make and show identity keys
///
/// An identity is an ed25519 key pair. Validators prove theirs when they connect to each other;
/// accounts are named by theirs and sign transactions with it.
#[derive(Subcommand)]
pub(super) enum Keys {
    /// Make a new identity key
    Generate(Generate),
    /// Make a validator's own vote key, and what it hands in for the genesis file
    Vote(Vote),
    /// Show the public half of a key file
    Show(Show),
    /// Encrypt a key file under a passphrase, in place
    Encrypt(Convert),
    /// Write a key file without encryption, in place
    Decrypt(Convert),
}

/// Make a new identity key
///
/// Writes identity.key: 32 secret bytes, encrypted under a passphrase in the age format, mode 0600.
/// Whoever has this file and the passphrase is this validator or owns this account. A file that
/// exists is never written over.
#[derive(Args)]
#[command(after_help = "Examples:
  quorate keys generate --out validator-0
  quorate keys generate --out alice --json")]
pub(super) struct Generate {
    /// Directory to write identity.key to; made if missing
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
/// The old file goes only when the new one is on disk.
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

/// Make a validator's own vote key, for a chain with the scheme bls-aggregate
///
/// Writes vote.key (secret, mode 0600) and registration.json: the identity, the vote key's public
/// half, and the proof that its secret is known here, which is bound to the chain's name and the
/// identity. Hand the registration to whoever runs `quorate genesis create --registration …`; the
/// vote key never leaves this machine.
#[derive(Args)]
#[command(after_help = "Example:
  quorate keys vote --chain mychain --identity validator/identity.key --out validator")]
pub(super) struct Vote {
    /// The chain's name
    #[arg(long, value_name = "NAME")]
    chain: String,
    /// The validator's identity key
    #[arg(long, value_name = "FILE")]
    identity: PathBuf,
    /// Directory to write to; made if missing
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    protection: NewKeys,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Show the public half of a key file
///
/// The secret itself is never printed.
#[derive(Args)]
#[command(after_help = "Examples:
  quorate keys show validator-0/identity.key
  quorate keys show --vote validator-0/vote.key")]
pub(super) struct Show {
    /// The key file
    file: PathBuf,
    /// The file is a validator's vote.key: show its public key, as it stands in the genesis file
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
        if self.chain.is_empty() || self.chain.len() > MAX_CHAIN_NAME_BYTES {
            bail!("--chain must be 1 to {MAX_CHAIN_NAME_BYTES} bytes");
        }
        // One passphrase opens the identity, if it is encrypted, and protects the vote key.
        let access = self.protection.access();
        let identity = keys::load_identity(&self.identity, &access)?.identity();
        let passphrase = self.protection.choose_as(&access)?;
        let secret = VoteSecret::random(keys::system_rng());
        let key = self.out.join(VOTE_FILE);
        let file = self.out.join("registration.json");
        if file.exists() {
            bail!("{} exists and is not written over", file.display());
        }
        let protection = protection_of(passphrase.as_ref());
        keys::save_secret(&key, &secret.to_bytes(), protection)?;
        let registration = register(&self.chain, identity, &secret);
        let text = serde_json::to_string_pretty(&registration)?;
        write_new(&file, &text)?;
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

impl Convert {
    fn encrypt(self) -> anyhow::Result<()> {
        let file = self.file.display();
        if keys::is_encrypted(&self.file)? {
            bail!("{file} is encrypted already; decrypt it first to change the passphrase");
        }
        let secret = keys::load_secret(&self.file, &KeyAccess::plain())?;
        let passphrase = self.source.open().choose()?;
        keys::replace_secret(&self.file, &secret, Protection::Encrypted(&passphrase))?;
        print_lines(&[format!("{file} is encrypted")])
    }

    fn decrypt(self) -> anyhow::Result<()> {
        let file = self.file.display();
        if !keys::is_encrypted(&self.file)? {
            bail!("{file} is not encrypted");
        }
        let secret = keys::load_secret(&self.file, &self.source.access(false))?;
        keys::replace_secret(&self.file, &secret, Protection::Plain)?;
        eprintln!("warning: {file} is NOT encrypted any more; whoever reads it has the key");
        Ok(())
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
