//! `quorate evidence`

use super::{
    block::load_trust,
    output::{print_fields, print_json, print_lines},
    rpc::{Rpc, block_on},
    trust::hint,
};
use anyhow::bail;
use clap::{Args, Subcommand};
use quorate_api::EvidenceJson;
use quorate_crypto::bls::SchemeKind;
use quorate_http::client::shown;
use quorate_machine::evidence::{pair_of, read_file};
use serde_json::json;
use std::path::PathBuf;

/// Show and verify evidence of equivocation: pairs of votes that no honest validator casts
#[derive(Subcommand)]
pub(super) enum Evidence {
    /// List the evidence that a validator holds
    List(List),
    /// Show one piece of evidence, or write it to a file
    Show(Show),
    /// Verify an evidence file offline, using only the chain's trust file
    Verify(Verify),
}

/// List the evidence that a validator holds
#[derive(Args)]
pub(super) struct List {
    #[command(flatten)]
    rpc: Rpc,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Show one piece of evidence, or write it to a file
#[derive(Args)]
#[command(after_help = "Example:
  quorate evidence show 5d41402a > evidence.json")]
pub(super) struct Show {
    /// The id of the evidence, or the beginning of it
    id: String,
    #[command(flatten)]
    rpc: Rpc,
}

/// Verify an evidence file offline, using only the chain's trust file
///
/// What valid evidence proves depends on the chain's vote scheme. With bls-aggregate: the holder of
/// the validator's vote key signed both votes. With bls-threshold: both votes were signed by the
/// validator, or by at least a quorum of the others together, or by the dealer of the keys.
#[derive(Args)]
#[command(after_help = "Example:
  quorate evidence verify evidence.json --trust trust.json")]
pub(super) struct Verify {
    /// The evidence file, as printed by `quorate evidence show` or taken from the folder `evidence`
    /// in the validator's data directory
    file: PathBuf,
    /// The chain's trust file
    #[arg(long, value_name = "FILE")]
    trust: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Evidence {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::List(list) => list.run(),
            Self::Show(show) => show.run(),
            Self::Verify(verify) => verify.run(),
        }
    }
}

impl List {
    fn run(self) -> anyhow::Result<()> {
        let client = self.rpc.client()?;
        let list = block_on(async { Ok(client.evidence().await?) })?;
        if self.json {
            return print_json(&list);
        }
        if list.evidence.is_empty() {
            return print_lines(&["no validator has been seen to cast conflicting votes"]);
        }
        let line = |evidence: &EvidenceJson| {
            format!(
                "{}  validator {}  view {}.{}  {}",
                &evidence.id.to_string()[..16],
                evidence.validator,
                evidence.epoch,
                evidence.view,
                shown(&evidence.conflict)
            )
        };
        print_lines(&list.evidence.iter().map(line).collect::<Vec<_>>())
    }
}

impl Show {
    fn run(self) -> anyhow::Result<()> {
        let client = self.rpc.client()?;
        let list = block_on(async { Ok(client.evidence().await?) })?;
        let id = self.id.to_lowercase();
        let mut found = list
            .evidence
            .iter()
            .filter(|evidence| evidence.id.to_string().starts_with(&id));
        match (found.next(), found.next()) {
            (Some(one), None) => print_json(one),
            (None, _) => bail!("the validator holds no evidence whose id begins with {id}"),
            (Some(_), Some(_)) => bail!("several ids begin with {id}; give more of it"),
        }
    }
}

impl Verify {
    fn run(self) -> anyhow::Result<()> {
        let verifier = load_trust(&self.trust)?;
        let evidence = read_file(&self.file)?;
        let file = self.file.display();
        if evidence.chain_id != verifier.chain() {
            bail!(
                "{file} is of the chain {}, the trust file of {}",
                evidence.chain_id,
                verifier.chain()
            );
        }
        let pair = pair_of(&evidence)?;
        let Some(conflict) = pair.conflict() else {
            bail!("{file}: an honest validator may cast both votes, so they prove nothing");
        };
        for (which, vote) in [("first", &pair.first), ("second", &pair.second)] {
            if !verifier.verify_vote(vote) {
                bail!(
                    "{file}: the signature of the {which} vote does not verify{}",
                    hint(&verifier, vote.subject.epoch)
                );
            }
        }
        let committee = verifier.committees().of(pair.first.subject.epoch);
        let identity = committee
            .identity(pair.first.signer)
            .map_or_else(|| "unknown".to_owned(), |identity| identity.to_string());
        let meaning = match verifier.scheme() {
            SchemeKind::BlsThreshold => {
                "the validator signed both votes, or a quorum of the others together, or the dealer"
            }
            SchemeKind::BlsAggregate => "the holder of the validator's vote key signed both votes",
        };
        if self.json {
            return print_json(&json!({
                "valid": true,
                "id": evidence.id,
                "validator": evidence.validator,
                "identity": identity,
                "epoch": evidence.epoch,
                "view": evidence.view,
                "conflict": conflict.name(),
                "proves": meaning,
            }));
        }
        print_fields(&[
            ("evidence", format!("{} is valid", evidence.id)),
            ("validator", format!("{} ({identity})", evidence.validator)),
            ("view", format!("{}.{}", evidence.epoch, evidence.view)),
            ("conflict", conflict.name().to_owned()),
            ("first", evidence.first),
            ("second", evidence.second),
            ("proves", meaning.to_owned()),
        ])
    }
}
