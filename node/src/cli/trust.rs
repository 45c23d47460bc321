//! `quorate trust`

use super::{
    block::load_trust_file,
    output::{print_fields, print_json},
    rpc::{Rpc, block_on},
};
use anyhow::{Context as _, bail, ensure};
use clap::{Args, Subcommand};
use quorate_api::{HandoversJson, RpcClient, from_hex};
use quorate_files::read_text;
use quorate_storage::store::adopt_handovers;
use quorate_types::{
    Epoch, Handover,
    genesis::{Trust, Verifier},
};
use serde_json::json;
use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// Most bytes of a file with handovers.
const MAX_HANDOVERS_BYTES: u64 = 64 << 20;

/// Show whom a trust file trusts; follow the changes of the validators from there on
#[derive(Subcommand)]
#[command(after_help = "Examples:
  quorate trust show trust.json
  quorate trust update trust.json --rpc http://v0.example.org:26601
  curl 'http://v0.example.org:26601/v1/handovers?after=0' > handovers.json
  quorate trust update trust.json --handovers handovers.json")]
pub(super) enum TrustCommand {
    /// Show the validators of a trust file, and their epoch
    Show(Show),
    /// Move a trust file forward to newer validators, each change verified with those before it
    Update(Update),
}

#[derive(Args)]
pub(super) struct Show {
    /// The trust file
    file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(super) struct Update {
    /// The trust file, which is replaced
    file: PathBuf,
    #[command(flatten)]
    rpc: Rpc,
    /// Read the changes from this file, an answer of `/v1/handovers`, instead of asking a node
    #[arg(long, value_name = "FILE")]
    handovers: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl TrustCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Show(show) => show.run(),
            Self::Update(update) => update.run(),
        }
    }
}

impl Show {
    fn run(self) -> anyhow::Result<()> {
        let trust = load_trust_file(&self.file)?;
        trust
            .verifier()
            .with_context(|| self.file.display().to_string())?;
        show(&trust, self.json)
    }
}

fn show(trust: &Trust, json: bool) -> anyhow::Result<()> {
    if json {
        return print_json(trust);
    }
    let mut fields = vec![
        ("chain", trust.name.clone()),
        ("chain id", trust.chain_id.to_string()),
        ("scheme", trust.scheme.clone()),
    ];
    match trust.epoch_blocks {
        Some(blocks) => fields.push((
            "validators",
            format!(
                "{}, from epoch {} on (an epoch has {} blocks)",
                trust.validators.len(),
                trust.epoch,
                blocks.blocks()
            ),
        )),
        None => fields.push((
            "validators",
            format!("{}, for ever", trust.validators.len()),
        )),
    }
    let identities = trust.validators.iter();
    fields.extend(identities.map(|validator| ("", validator.identity.to_string())));
    print_fields(&fields)
}

impl Update {
    fn run(self) -> anyhow::Result<()> {
        let trust = load_trust_file(&self.file)?;
        let file = self.file.display().to_string();
        let verifier = trust.verifier().context(file.clone())?;
        ensure!(
            verifier.epoch_blocks().is_some(),
            "{file}: the validators of this chain never change, so there is nothing to update"
        );
        match &self.handovers {
            Some(path) => {
                let text = read_text(path, MAX_HANDOVERS_BYTES)?;
                let answer: HandoversJson = serde_json::from_str(&text).with_context(|| {
                    format!("{}: not an answer of /v1/handovers", path.display())
                })?;
                take(&answer, &verifier).with_context(|| path.display().to_string())?;
            }
            None => block_on(learn(&self.rpc.client()?, &verifier))?,
        }
        let newest = verifier.committees().newest();
        let set = verifier.committees().set(newest);
        let moved = match set.filter(|_| newest > trust.epoch) {
            Some(set) => trust.with(&set),
            None => trust.clone(),
        };
        if newest > trust.epoch {
            replace(&self.file, &(moved.to_json() + "\n"))
                .with_context(|| format!("cannot write {file}; it is as it was"))?;
        }
        if self.json {
            return print_json(&json!({"from": trust.epoch, "to": moved.epoch, "trust": moved}));
        }
        print_fields(&[
            ("file", file),
            ("validators", moved.validators.len().to_string()),
            (
                "epoch",
                match newest > trust.epoch {
                    true => format!("{} (it was {})", moved.epoch, trust.epoch),
                    false => format!("{}: no later change is known", trust.epoch),
                },
            ),
        ])
    }
}

/// Replaces a file's content, or leaves it as it was. A link stays one, and who may read it.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let path = path.canonicalize()?;
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let beside = PathBuf::from(name);
    let written = File::create(&beside).and_then(|mut file| {
        file.set_permissions(path.metadata()?.permissions())?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    let replaced = written.and_then(|()| fs::rename(&beside, &path));
    if replaced.is_err() {
        let _ = fs::remove_file(&beside);
    }
    replaced
}

/// Follows the changes of the validators that a node knows, each verified with those before it. Does nothing
/// on a chain whose validators never change.
///
/// # Errors
///
/// If the node cannot be reached, or a change does not verify.
pub(super) async fn learn(client: &RpcClient, verifier: &Verifier) -> anyhow::Result<()> {
    if verifier.epoch_blocks().is_none() {
        return Ok(());
    }
    loop {
        let newest = verifier.committees().newest();
        let answer = client.handovers(newest).await?;
        take(&answer, verifier).with_context(|| client.url().to_owned())?;
        if verifier.committees().newest() == newest {
            return Ok(());
        }
    }
}

fn take(answer: &HandoversJson, verifier: &Verifier) -> anyhow::Result<()> {
    let handovers = answer.handovers.iter();
    let handovers =
        handovers.map(|one| from_hex::<Handover>("a change of validators", &one.handover));
    let handovers = handovers.collect::<anyhow::Result<Vec<_>>>()?;
    let committees = verifier.committees();
    let length = verifier.epoch_blocks();
    let length = length.context("the validators of this chain never change")?;
    let newest = committees.newest();
    let verify = |certificate: &_| verifier.verify(certificate);
    let of = (&verifier.chain(), length);
    let (_, flaw) = adopt_handovers(&handovers, committees, of, &verify);
    if let Some(flaw) = flaw {
        bail!(
            "NOT VERIFIED: the change of validators after epoch {} does not hold: {flaw}",
            committees.newest().max(newest)
        );
    }
    Ok(())
}

/// What a failed verification of a block of this epoch may be due to.
pub(super) fn hint(verifier: &Verifier, epoch: Epoch) -> &'static str {
    let first = verifier.committees().newest();
    match verifier.epoch_blocks() {
        Some(_) if verifier.committees().set(epoch).is_none() => {
            "; the trust file begins with later validators than this block's: take one from before"
        }
        Some(_) if epoch > first => {
            "; if the validators have changed since the trust file was made: `quorate trust update`"
        }
        _ => "",
    }
}
