//! `quorate status`

use super::{
    output::{print_fields, print_json, print_lines},
    rpc::{Rpc, block_on},
};
use clap::Args;

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
            ("view", format!("{}.{}", status.epoch, status.view)),
            ("final height", status.finalized_height.to_string()),
            ("executed height", status.executed_height.to_string()),
            ("state root", status.state_root.to_string()),
            ("mempool", status.mempool_transactions.to_string()),
            (
                "peers",
                format!("{connected} of {} connected", status.peers.len()),
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
