//! `quorate status`

use super::{
    output::{print_fields, print_json, print_lines},
    rpc::{Rpc, block_on},
};
use anyhow::Context as _;
use clap::Args;
use quorate_http::client::shown;
use quorate_load::api::{StatusJson, SyncState};
use std::{process::ExitCode, time::Duration};

/// How long the validator may take to answer. Whoever hangs longer is not well.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the process ends with when the validator answers and is not in sync.
const NOT_IN_SYNC: u8 = 3;
const STALLED: u8 = 4;

/// Show what a validator says of itself: height, view, peers
///
/// The exit code tells how it is: 0 if it is in sync and linked to a quorum, 3 if it starts or catches
/// up, 4 if no final blocks come or it is not linked to a quorum, 1 if it does not answer.
#[derive(Args)]
#[command(after_help = "Examples:
  quorate status
  quorate status --rpc http://10.0.0.1:26601 || echo 'look after validator 1'")]
pub(super) struct Status {
    #[command(flatten)]
    rpc: Rpc,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Status {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let client = self.rpc.client()?;
        let status = block_on(async {
            let answer = tokio::time::timeout(PATIENCE, client.status()).await;
            let late = || format!("{} does not answer within {PATIENCE:?}", client.url());
            Ok(answer.with_context(late)??)
        })?;
        if self.json {
            print_json(&status)?;
        } else {
            print(&status)?;
        }
        Ok(exit_code(&status))
    }
}

fn print(status: &StatusJson) -> anyhow::Result<()> {
    let connected = status.peers.iter().filter(|peer| peer.connected).count();
    print_fields(&[
        ("chain", format!("{} ({})", status.name, status.chain_id)),
        (
            "validator",
            format!("{} of {}", status.validator, status.validators),
        ),
        ("scheme", status.scheme.clone()),
        ("sync", sync(status)),
        ("view", format!("{}.{}", status.epoch, status.view)),
        ("final height", status.finalized_height.to_string()),
        (
            "blocks kept",
            format!("{} to {}", status.first_height, status.executed_height),
        ),
        ("state root", status.state_root.to_string()),
        ("mempool", status.mempool_transactions.to_string()),
        (
            "peers",
            format!("{connected} of {} connected", status.peers.len()),
        ),
        (
            "disk",
            format!(
                "database {:.1} MiB, vote journal {:.1} MiB",
                status.database_bytes as f64 / 1_048_576.0,
                status.journal_bytes as f64 / 1_048_576.0
            ),
        ),
        ("clock", clock(status.clock_ahead_ms)),
        (
            "evidence",
            format!("{} pairs of conflicting votes", status.evidence),
        ),
        ("up", format!("{} s", status.uptime_seconds)),
        ("version", status.version.clone()),
    ])?;
    let peers = status.peers.iter().map(|peer| {
        let place = peer
            .validator
            .map_or_else(|| "?".to_owned(), |place| place.to_string());
        let link = match (peer.connected, peer.round_trip_us) {
            (false, _) => "not connected".to_owned(),
            (true, Some(us)) => format!("connected, {:.2} ms", us as f64 / 1_000.0),
            (true, None) => "connected".to_owned(),
        };
        let height = peer
            .finalized_height
            .map_or_else(String::new, |height| format!(", final height {height}"));
        format!("  validator {place} ({}): {link}{height}", peer.identity)
    });
    let blocked = status.blocked.iter().map(|blocked| {
        format!(
            "  blocked: validator {} ({}), {}",
            blocked.validator,
            blocked.identity,
            shown(&blocked.reason)
        )
    });
    print_lines(&peers.chain(blocked).collect::<Vec<_>>())
}

/// Whether the validator has what the others have and the chain goes on, in words.
fn sync(status: &StatusJson) -> String {
    let Some(sync) = &status.sync else {
        return match status.behind {
            true => "catching up".to_owned(),
            false => "not told: the validator's version is an earlier one".to_owned(),
        };
    };
    let executed = status.executed_height.0;
    match status.finalized_height.0.saturating_sub(executed) {
        0 => sync.in_words(),
        waiting => format!("{}; {waiting} blocks to execute", sync.in_words()),
    }
}

/// How this clock goes, in words.
fn clock(ahead_ms: Option<i64>) -> String {
    match ahead_ms {
        None => "not compared yet".to_owned(),
        Some(ms) if ms < 0 => format!("{} ms behind the leaders'", ms.unsigned_abs()),
        Some(ms) => format!("{ms} ms ahead of the leaders', network delay included"),
    }
}

fn exit_code(status: &StatusJson) -> ExitCode {
    let Some(sync) = &status.sync else {
        return ExitCode::SUCCESS;
    };
    match sync.state {
        SyncState::InSync => ExitCode::SUCCESS,
        SyncState::Starting | SyncState::CatchingUp => ExitCode::from(NOT_IN_SYNC),
        SyncState::Stalled | SyncState::NoQuorum => ExitCode::from(STALLED),
    }
}
