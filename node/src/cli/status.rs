//! `quorate status`

use super::{
    output::{print_fields, print_json, print_lines},
    rpc::{Rpc, block_on},
};
use clap::Args;
use quorate_load::api::StatusJson;

/// Show what a validator says of itself: height, view, peers
#[derive(Args)]
pub(super) struct Status {
    #[command(flatten)]
    rpc: Rpc,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Status {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let client = self.rpc.client()?;
        let status = block_on(async { Ok(client.status().await?) })?;
        if self.json {
            return print_json(&status);
        }
        let connected = status.peers.iter().filter(|peer| peer.connected).count();
        print_fields(&[
            ("chain", format!("{} ({})", status.name, status.chain_id)),
            (
                "validator",
                format!("{} of {}", status.validator, status.validators),
            ),
            ("scheme", status.scheme.clone()),
            ("sync", sync(&status)),
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
            (
                "clock",
                status.clock_ahead_ms.map_or_else(
                    || "not compared yet".to_owned(),
                    |ms| format!("{ms} ms ahead of the leaders', network delay included"),
                ),
            ),
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
                blocked.validator, blocked.identity, blocked.reason
            )
        });
        print_lines(&peers.chain(blocked).collect::<Vec<_>>())
    }
}

/// Whether the validator has what the others have, in words.
fn sync(status: &StatusJson) -> String {
    let heights = status.peers.iter().filter_map(|peer| peer.finalized_height);
    let highest = heights.max().unwrap_or(status.finalized_height);
    let missing = highest.0.saturating_sub(status.finalized_height.0);
    let waiting = status
        .finalized_height
        .0
        .saturating_sub(status.executed_height.0);
    match (status.behind, missing) {
        (false, _) => format!("in step, {waiting} blocks to execute"),
        (true, missing) => format!("catching up, about {missing} blocks behind"),
    }
}
