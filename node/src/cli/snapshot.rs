//! `quorate snapshot`

use super::{
    output::{ProgressLine, print_fields, print_json, print_lines},
    passphrases::Source,
    rpc::{Control, block_on},
};
use crate::{
    config::AnyConfig,
    node::{Imported, Step, import_snapshot},
    snapshot_file::SnapshotWriter,
};
use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use commonware_codec::Encode as _;
use quorate_api::{RpcClient, SnapshotJson, from_hex, to_hex};
use quorate_machine::live::verdict::clock_time;
use quorate_storage::tree::Chunk;
use quorate_types::{Epoch, Handover, Height, SnapshotProof, Span};
use std::{path::PathBuf, time::Instant};

/// List the snapshots that a validator keeps; carry one to another machine in a file
#[derive(Subcommand)]
pub(super) enum Snapshot {
    /// List the snapshots of the state that a running validator keeps for others
    List(List),
    /// Write a running validator's snapshot to a file
    Export(Export),
    /// Give a stopped validator the state of a file, verified with the chain's keys
    Import(Import),
}

/// List the snapshots of the state that a running validator keeps for others
#[derive(Args)]
pub(super) struct List {
    #[command(flatten)]
    control: Control,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Write a running validator's snapshot to a file
///
/// The validator goes on meanwhile. The file holds all accounts, what certifies them, and no secrets.
/// It belongs to its chain and can be verified with the genesis file alone.
#[derive(Args)]
#[command(after_help = "Example:
  quorate snapshot export state.snapshot --config validator-0/validator.toml")]
pub(super) struct Export {
    /// The file to write; it must not exist
    file: PathBuf,
    /// The block after which the state is wanted, as listed; the newest by default
    #[arg(long, value_name = "HEIGHT")]
    height: Option<u64>,
    #[command(flatten)]
    control: Control,
}

/// Give a stopped validator the state of a file, verified with the chain's keys
///
/// For a new validator, or one that was away for long, when the network is slow or no other
/// validator keeps a snapshot. It continues from the snapshot's block and fetches the blocks after
/// it; earlier blocks are not there. A finalization is verified with the keys in the genesis file,
/// and every part of the state against the root that it certifies: whoever made the file need not be
/// trusted, except that it may be old.
#[derive(Args)]
#[command(after_help = "Example:
  quorate snapshot import state.snapshot --config validator-0/validator.toml --passphrase-file passphrase")]
pub(super) struct Import {
    /// The file, as written by `quorate snapshot export`
    file: PathBuf,
    /// The validator's configuration file
    #[arg(long, value_name = "FILE", default_value = "validator.toml")]
    config: PathBuf,
    #[command(flatten)]
    passphrase: Source,
    /// Accept unencrypted key files; only for test networks
    #[arg(long)]
    allow_plain_keys: bool,
}

impl Snapshot {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::List(list) => list.run(),
            Self::Export(export) => export.run(),
            Self::Import(import) => import.run(),
        }
    }
}

impl List {
    fn run(self) -> anyhow::Result<()> {
        let client = self.control.client()?;
        let list = block_on(async { Ok(client.snapshots().await?) })?;
        if self.json {
            return print_json(&list);
        }
        if list.snapshots.is_empty() {
            return print_lines(&[
                "none: one is kept when `storage.snapshot_interval` blocks have come, or soon after the start; with \
                 `snapshot_interval = 0`, none ever",
            ]);
        }
        let line = |snapshot: &SnapshotJson| {
            format!(
                "block {}  {}  state {}",
                snapshot.height,
                clock_time(snapshot.timestamp_ms),
                snapshot.state_root
            )
        };
        print_lines(&list.snapshots.iter().map(line).collect::<Vec<_>>())
    }
}

impl Export {
    fn run(self) -> anyhow::Result<()> {
        let client = self.control.client()?;
        let list = block_on(async { Ok(client.snapshots().await?) })?;
        let height = match self.height {
            Some(height) => Height(height),
            None => match list.snapshots.last() {
                Some(newest) => newest.height,
                None => bail!("the validator keeps no snapshot yet; see `quorate snapshot list`"),
            },
        };
        let started = Instant::now();
        let mut writer = SnapshotWriter::create(&self.file)?;
        let accounts = block_on(async {
            tokio::select! {
                exported = export(&client, height, &mut writer) => exported,
                _ = tokio::signal::ctrl_c() => bail!("interrupted: nothing was exported"),
            }
        })?;
        let bytes = writer.finish()?;
        print_fields(&[
            ("file", self.file.display().to_string()),
            ("block", height.to_string()),
            ("accounts", accounts.to_string()),
            ("size", format!("{:.1} MB", bytes as f64 / 1e6)),
            ("took", format!("{:.1} s", started.elapsed().as_secs_f64())),
        ])
    }
}

/// Copies a snapshot part by part, in the order of the key space. Returns how many accounts it has.
async fn export(
    client: &RpcClient,
    height: Height,
    writer: &mut SnapshotWriter,
) -> anyhow::Result<u64> {
    let handovers = client.all_handovers(Epoch(0)).await?;
    let count = u32::try_from(handovers.len()).context("too many changes of the validators")?;
    writer.record(&count.to_be_bytes())?;
    for handover in &handovers {
        let handover: Handover = from_hex("a change of the validators", handover)?;
        writer.record(&handover.encode())?;
    }
    let answer = client.snapshot(height).await?;
    // Decoded, so that nothing else comes into the file.
    let proof: SnapshotProof = from_hex("what certifies the snapshot", &answer.proof)?;
    writer.record(&hex::decode(to_hex(&proof)).context("our own encoding")?)?;
    writer
        .record(&hex::decode(&answer.block).context("the snapshot's block is not hexadecimal")?)?;
    let mut line = ProgressLine::new();
    let mut accounts = 0;
    let mut open = vec![Span::ALL];
    let mut written: Option<Span> = None;
    while let Some(span) = open.pop() {
        // A part may be wider than was requested, if it has no neighbours.
        if written.is_some_and(|last| last.covers(&span)) {
            continue;
        }
        let part = client.snapshot_part(height, &to_hex(&span)).await?.part;
        let Some(part) = part else {
            let Some([left, right]) = span.halves() else {
                bail!("the validator says that the narrowest part has too many accounts");
            };
            open.extend([right, left]);
            continue;
        };
        let chunk: Chunk = from_hex("a part of the snapshot", &part)?;
        accounts += chunk.len() as u64;
        writer.record(&hex::decode(&part).context("a part is not hexadecimal")?)?;
        written = Some(chunk.span());
        line.show(format!("exporting: {:.0} %", 100.0 * share_before(&span)));
    }
    Ok(accounts)
}

/// How much of the key space is before the end of a span: 0 to 1.
fn share_before(span: &Span) -> f64 {
    span.after().map_or(1.0, |key| {
        f64::from(u16::from_be_bytes([key[0], key[1]])) / 65_536.0
    })
}

impl Import {
    fn run(self) -> anyhow::Result<()> {
        let access = self.passphrase.access(self.allow_plain_keys);
        let config = AnyConfig::load(&self.config, &access)?;
        let started = Instant::now();
        let mut line = ProgressLine::new();
        let imported = import_snapshot(&config, &self.file, |step| {
            line.show(match step {
                Step::Checks(share) => format!("verifying the file: {:.0} %", 100.0 * share),
                Step::Opens => {
                    "opening the database; a new one first gets the state of the genesis file"
                        .to_owned()
                }
                Step::Takes(share) => format!("importing: {:.0} %", 100.0 * share),
            });
        })?;
        drop(line);
        let Imported {
            height,
            parts,
            accounts,
        } = imported;
        print_fields(&[
            ("block", height.to_string()),
            ("accounts", accounts.to_string()),
            ("parts", format!("{parts}, all verified")),
            ("took", format!("{:.1} s", started.elapsed().as_secs_f64())),
        ])?;
        print_lines(&["start the node: it fetches the blocks after this one"])
    }
}
