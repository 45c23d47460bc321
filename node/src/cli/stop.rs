//! `quorate stop` and `quorate reload`

use super::{
    config::unresolved,
    output::{print_json, print_lines},
    rpc::{Control, block_on},
};
use crate::node::lock_directory;
use anyhow::bail;
use clap::Args;
use quorate_api::ClientError;
use quorate_p2p::PeerAddress;
use quorate_types::Identity;
use std::{
    thread,
    time::{Duration, Instant},
};

/// How long to wait for a validator to end. It ends its own process before that.
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// How the client escapes a newline in a server's message.
const LINE_END: &str = "\\u{a}";

/// Stop a running validator, and wait until its process has ended
///
/// Like SIGTERM: pending writes are finished, and nothing is lost. A systemd service that was
/// stopped this way is not restarted by systemd.
#[derive(Args)]
#[command(after_help = "Example:
  quorate stop --config validator-0/validator.toml")]
pub(super) struct Stop {
    #[command(flatten)]
    control: Control,
}

/// Make a running validator reread its configuration
///
/// Applies the other validators' addresses and the log level, and prints which changes need a
/// restart. A file with an error is refused as a whole. SIGHUP has the same effect, with the result
/// in the log.
#[derive(Args)]
#[command(after_help = "Example:
  quorate reload --config validator-0/validator.toml")]
pub(super) struct Reload {
    #[command(flatten)]
    control: Control,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Stop {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let data = self.control.data_dir()?;
        let client = self.control.client()?;
        block_on(async { Ok(client.stop().await?) })?;
        let deadline = Instant::now() + STOP_LIMIT;
        while lock_directory(&data).is_err() {
            if Instant::now() >= deadline {
                bail!(
                    "the node has been told to stop, and has not ended after {} s",
                    STOP_LIMIT.as_secs()
                );
            }
            thread::sleep(Duration::from_millis(50));
        }
        print_lines(&["the node has stopped"])
    }
}

impl Reload {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let client = self.control.client()?;
        let changes = match block_on(async { Ok(client.reload().await) })? {
            // The validator's message about its file has several lines.
            Err(ClientError::Refused { message, .. }) => bail!(message.replace(LINE_END, "\n")),
            answer => answer?,
        };
        if self.json {
            return print_json(&changes);
        }
        let mut lines: Vec<String> = changes
            .peers
            .iter()
            .map(|peer| {
                format!(
                    "validator {}: {} (was {})",
                    peer.identity, peer.now, peer.before
                )
            })
            .collect();
        let moved: Vec<(Identity, PeerAddress)> = changes
            .peers
            .iter()
            .filter_map(|peer| Some((peer.identity, peer.now.parse().ok()?)))
            .collect();
        lines.extend(
            unresolved(&moved)
                .iter()
                .map(|word| format!("warning: {word}")),
        );
        if let Some(level) = &changes.log_level {
            lines.push(format!("log.level: {level}"));
        }
        lines.extend(changes.notes.iter().map(|note| format!("note: {note}")));
        if !changes.need_restart.is_empty() {
            lines.push(format!(
                "needs a restart: {} (`quorate config check` tells whether it would start)",
                changes.need_restart.join(", ")
            ));
        }
        if lines.is_empty() {
            lines.push("nothing has changed".to_owned());
        }
        print_lines(&lines)
    }
}
