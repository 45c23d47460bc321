//! `quorate account`

use super::{
    block::{load_trust, verify_header},
    explored,
    output::{print_fields, print_json},
    rpc::{Rpc, block_on},
    trust::learn,
};
use anyhow::{Context as _, ensure};
use clap::Args;
use commonware_codec::{Copying, DecodeExt};
use quorate_api::{AccountJson, from_hex};
use quorate_storage::tree::Proof;
use quorate_types::{
    Account as State, Certificate, Header, Identity, genesis::Verifier, state_key,
};
use std::path::PathBuf;

/// Show an account's balance and next nonce; with --trust, verify them
#[derive(Args)]
#[command(after_help = "Examples:
  quorate account 5fa1… --trust localnet/trust.json
  quorate account 5fa1… --trust localnet/trust.json --explorer http://127.0.0.1:26608")]
pub(super) struct Account {
    /// The account's identity (64 hexadecimal digits)
    identity: Identity,
    /// The same as --trust alone, which requests a proof
    #[arg(long, requires = "trust", hide = true)]
    proof: bool,
    /// Request a proof, and verify it using only this file, the chain's trust file
    #[arg(long, value_name = "FILE")]
    trust: Option<PathBuf>,
    #[command(flatten)]
    rpc: Rpc,
    /// Ask this explorer instead of a validator
    #[arg(long, value_name = "URL")]
    explorer: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Account {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let answer = match &self.explorer {
            Some(url) => block_on(explored::account(url, &self.rpc.roots()?, &self.identity))?,
            None => {
                let client = self.rpc.client()?;
                block_on(async { Ok(client.account(&self.identity, self.trust.is_some()).await?) })?
            }
        };
        let mut fields = vec![
            ("account", answer.identity.to_string()),
            ("balance", answer.balance.to_string()),
            ("next nonce", answer.nonce.to_string()),
        ];
        if let Some(bond) = &answer.bond {
            fields.push(("stake", bond.stake.to_string()));
            fields.push(("can be chosen", format!("from epoch {}", bond.since)));
        }
        if let Some(trust) = &self.trust {
            ensure!(
                answer.identity == self.identity,
                "the answer is for another account"
            );
            let verifier = load_trust(trust)?;
            let mut verified = verify(&answer, &verifier);
            if verified.is_err() {
                let client = match &self.explorer {
                    Some(url) => self.rpc.client_of(url)?,
                    None => self.rpc.client()?,
                };
                block_on(learn(&client, &verifier))?;
                verified = verify(&answer, &verifier);
            }
            let header = verified?;
            fields.push((
                "verified",
                format!(
                    "in the state after block {}, which final block {} names",
                    header.executed_height, header.height
                ),
            ));
        }
        if self.json {
            print_json(&answer)
        } else {
            print_fields(&fields)
        }
    }
}

/// Verifies the account's balance and nonce using only the chain's public keys.
pub(super) fn verify(answer: &AccountJson, verifier: &Verifier) -> anyhow::Result<Header> {
    let proof = answer.proof.as_ref().context("the answer holds no proof")?;
    let header: Header = from_hex("header", &proof.header)?;
    let certificate: Certificate = from_hex("certificate", &proof.certificate)?;
    verify_header(verifier, &header, &header, &[], &certificate)?;
    let tree_proof: Proof = from_hex("proof", &proof.proof)?;
    let value = tree_proof
        .verify(&header.state_root, &state_key(&answer.identity).0)
        .context("the proof does not hold")?;
    let proven = value.map_or(Ok(State::default()), |bytes| State::decode(Copying(bytes)))?;
    ensure!(
        proven.nonce == answer.nonce && proven.balance == answer.balance,
        "the proof is of another balance or nonce than the answer's"
    );
    ensure!(
        answer.bond.is_none() || answer.bond.as_ref() == proven.bond.as_deref(),
        "the proof is of another bond than the answer's"
    );
    Ok(header)
}
