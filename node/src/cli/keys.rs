//! `quorate keys`

use super::output::{print_fields, print_json, print_lines};
use crate::keys::{self, IDENTITY_FILE};
use clap::{Args, Subcommand};
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
    /// Show the public half of a key file
    Show(Show),
}

/// Make a new identity key
///
/// Writes identity.key: 32 secret bytes as hexadecimal digits, mode 0600. Whoever has this file is
/// this validator or owns this account. A file that exists is never written over.
#[derive(Args)]
#[command(after_help = "Examples:
  quorate keys generate --out validator-0
  quorate keys generate --out alice --json")]
pub(super) struct Generate {
    /// Directory to write identity.key to; made if missing
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
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
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Keys {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Generate(command) => command.run(),
            Self::Show(command) => command.run(),
        }
    }
}

impl Generate {
    fn run(self) -> anyhow::Result<()> {
        let path = self.out.join(IDENTITY_FILE);
        let secret = keys::generate_identity();
        keys::save_secret(&path, &secret.to_bytes())?;
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

impl Show {
    fn run(self) -> anyhow::Result<()> {
        let (name, value) = if self.vote {
            let key = keys::load_vote_secret(&self.file)?.public_key();
            ("vote_key", hex::encode(key))
        } else {
            let identity = keys::load_identity(&self.file)?.identity();
            ("identity", identity.to_string())
        };
        if self.json {
            return print_json(&json!({ name: value }));
        }
        print_lines(&[value])
    }
}
