//! `quorate init`

use super::{
    keys::new_vote_key,
    output::{print_json, print_lines},
    passphrases::{NewKeys, protection_of},
};
use crate::keys::{self, IDENTITY_FILE};
use anyhow::bail;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Create one validator's keys on its own machine, and its entry for a new chain's genesis file
///
/// Writes identity.key and vote.key (secret, mode 0600, encrypted under one passphrase) and
/// registration.json, which contains no secrets: send it to the person who runs `quorate genesis
/// create --scheme bls-aggregate --registration …`. No key leaves this machine, and there is no
/// dealer. Put the files that you get back (genesis.json, trust.json and validator.toml) into the
/// same directory.
#[derive(Args)]
#[command(after_help = "Example:
  quorate init --chain mychain --out validator")]
pub(super) struct Init {
    /// The chain's name
    #[arg(long, value_name = "NAME")]
    chain: String,
    /// Directory to write to; created if missing
    #[arg(long, value_name = "DIR", default_value = "validator")]
    out: PathBuf,
    #[command(flatten)]
    protection: NewKeys,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Init {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let path = self.out.join(IDENTITY_FILE);
        if path.exists() {
            bail!(
                "{} exists and is not written over; choose another --out, or, to register the same \
                 identity on another chain, use `quorate keys vote`",
                path.display()
            );
        }
        let passphrase = self.protection.choose()?;
        let protection = protection_of(passphrase.as_ref());
        let secret = keys::generate_identity();
        let identity = secret.identity();
        let (registration, file) = new_vote_key(&self.chain, identity, &self.out, protection)?;
        keys::save_secret(&path, &secret.to_bytes(), protection)?;
        if self.json {
            return print_json(&json!({
                "identity": identity, "registration": registration, "file": file,
            }));
        }
        print_lines(&[
            format!("identity      {identity}"),
            format!("registration  {}", file.display()),
            String::new(),
            format!(
                "Send {} to whoever makes the genesis file. Put the genesis.json, trust.json and \
                 validator.toml that come back into {}, and look at what you are part of:",
                file.display(),
                self.out.display()
            ),
            format!("  quorate genesis show {}/genesis.json", self.out.display()),
            format!(
                "  quorate config check {}/validator.toml",
                self.out.display()
            ),
        ])
    }
}
