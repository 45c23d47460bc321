//! `quorate peers`

use super::{
    output::{print_json, print_lines},
    rpc::{Control, Rpc, block_on},
};
use crate::{clock::now_ms, config::parse_duration};
use clap::{Args, Subcommand};
use quorate_http::client::shown;
use quorate_load::{
    RpcClient,
    api::{OffenderJson, OrderJson, PeerDetailJson, Standing},
};
use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

/// How long `unblock` waits for the link.
const LINK_LIMIT: Duration = Duration::from_secs(15);

/// Show the other validators, and say which are not to be listened to
#[derive(Subcommand)]
pub(super) enum Peers {
    /// List the other validators: link, latency, last vote, and whether and why they are blocked
    List(List),
    /// Listen to a validator no more
    Block(Block),
    /// Believe a validator again that was blocked, by order or for an offence
    Unblock(Unblock),
}

/// List the other validators
///
/// A validator is *blocked* when it was caught with an invalid signature or with two conflicting
/// votes (equivocation): nothing of it is listened to. At most f of the n ≥ 3f + 1 validators are
/// blocked at a time, so that blocking cannot halt the chain; further ones are on *probation*,
/// where each of their votes is verified before it counts.
#[derive(Args)]
#[command(after_help = "Examples:
  quorate peers list --config validator-0/validator.toml     with addresses, and who is blocked and why
  quorate peers list --rpc http://127.0.0.1:26601            what everybody may know")]
pub(super) struct List {
    #[command(flatten)]
    rpc: Rpc,
    /// Ask the running validator with this configuration file over its control socket, whatever --rpc says: it
    /// tells addresses and penalties, too
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON object, with the proofs in full
    #[arg(long)]
    json: bool,
}

/// Listen to a validator no more
#[derive(Args)]
#[command(after_help = "Examples:
  quorate peers block 2 --for 12h --config validator-0/validator.toml
  quorate peers block 3b6a27bc…")]
pub(super) struct Block {
    /// Its place in the committee, or its identity
    peer: String,
    /// How long (30m, 12h); without it, until `quorate peers unblock`
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,
    #[command(flatten)]
    control: Control,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Believe a validator again
///
/// Evidence about what it did before stays stored, but no longer blocks it here. Its link comes back within
/// seconds; this waits for it, 15 s at most, and tells.
#[derive(Args)]
#[command(after_help = "Example:
  quorate peers unblock 2 --config validator-0/validator.toml")]
pub(super) struct Unblock {
    /// Its place in the committee, or its identity
    peer: String,
    #[command(flatten)]
    control: Control,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Peers {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::List(list) => list.run(),
            Self::Block(block) => block.run(),
            Self::Unblock(unblock) => unblock.run(),
        }
    }
}

impl List {
    fn run(self) -> anyhow::Result<()> {
        let client = match self.config {
            Some(config) => Control::of(config).client()?,
            None => self.rpc.client()?,
        };
        let peers = block_on(async { Ok(client.peers().await?) })?;
        if self.json {
            return print_json(&peers);
        }
        let now = now_ms();
        let lines: Vec<String> = peers.peers.iter().map(|peer| describe(peer, now)).collect();
        print_lines(&lines)
    }
}

impl Block {
    fn run(self) -> anyhow::Result<()> {
        let order = OrderJson {
            peer: self.peer,
            seconds: self.duration.map(|duration| duration.as_secs().max(1)),
        };
        give(&self.control, "block", &order, self.json)
    }
}

impl Unblock {
    fn run(self) -> anyhow::Result<()> {
        let order = OrderJson {
            peer: self.peer,
            seconds: None,
        };
        give(&self.control, "unblock", &order, self.json)?;
        if self.json {
            return Ok(());
        }
        let client = self.control.client()?;
        block_on(wait_for_link(&client, &order.peer))
    }
}

fn give(control: &Control, what: &str, order: &OrderJson, json: bool) -> anyhow::Result<()> {
    let client = control.client()?;
    let answer = block_on(async { Ok(client.order(what, order).await?) })?;
    if json {
        return print_json(&answer);
    }
    let line = match answer.offender {
        Some(offender) => format!(
            "validator {} ({}): {}",
            offender.validator,
            offender.identity,
            standing(&offender, now_ms())
        ),
        None => "nothing is held against that validator".to_owned(),
    };
    print_lines(&[line])
}

/// Tells when the link to a peer is back.
async fn wait_for_link(client: &RpcClient, wanted: &str) -> anyhow::Result<()> {
    let start = Instant::now();
    loop {
        let peers = client.peers().await?.peers;
        let found = peers.iter().map(|peer| &peer.peer).find(|peer| {
            let place = peer.validator.map(|place| place.to_string());
            place.as_deref() == Some(wanted) || peer.identity.to_string() == wanted
        });
        let Some(peer) = found else {
            return Ok(());
        };
        if peer.connected {
            let line = format!(
                "its link is up, {:.1} s later",
                start.elapsed().as_secs_f64()
            );
            return print_lines(&[line]);
        }
        if start.elapsed() >= LINK_LIMIT {
            return print_lines(&[format!(
                "its link is not back after {} s, and is tried on and on: it may be down, at another address, \
                 or block this validator itself (`quorate peers list`)",
                LINK_LIMIT.as_secs()
            )]);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn describe(peer: &PeerDetailJson, now_ms: u64) -> String {
    let link = &peer.peer;
    let place = link
        .validator
        .map_or_else(|| "?".to_owned(), |place| place.to_string());
    let mut parts = vec![match (link.connected, link.round_trip_us) {
        (false, _) => "not connected".to_owned(),
        (true, Some(us)) => format!("connected, {:.2} ms", us as f64 / 1_000.0),
        (true, None) => "connected".to_owned(),
    }];
    if let Some((epoch, view)) = peer.last_vote {
        parts.push(format!("last vote in view {epoch}.{view}"));
    }
    if let Some(height) = link.finalized_height {
        parts.push(format!("final height {height}"));
    }
    if let Some(percent) = peer.participation_percent {
        parts.push(format!("signed {percent:.1} % of certificates"));
    }
    let address = shown(peer.address.as_deref().unwrap_or("-"));
    let mut text = format!(
        "validator {place}  {}  {address}\n  {}",
        link.identity,
        parts.join(", ")
    );
    if let Some(offender) = &peer.offender {
        text.push_str(&format!("\n  {}", standing(offender, now_ms)));
        if let Some(proof) = &offender.proof {
            text.push_str(&format!(
                "\n  proof: {} ({})",
                shown(&proof.summary),
                shown(&proof.kind)
            ));
        }
    }
    text
}

/// What is thought of somebody, since when and until when, in a sentence.
fn standing(offender: &OffenderJson, now_ms: u64) -> String {
    let standing = match offender.standing {
        Standing::Blocked => "BLOCKED",
        Standing::Probation => "ON PROBATION",
        Standing::Pardoned => "believed again",
        Standing::Cut => "CUT",
        Standing::Muted => "MUTED (only its votes and proposals are listened to)",
    };
    let reason = shown(&offender.reason);
    let by = match (offender.ordered, reason.as_str()) {
        (true, "operator") => "by order".to_owned(),
        (true, reason) => format!("by order (it was caught: {reason})"),
        (false, reason) => format!("for {reason}"),
    };
    let since = ago(now_ms.saturating_sub(offender.since_ms));
    let until = match (offender.standing, offender.until_ms) {
        (Standing::Pardoned, _) => String::new(),
        (_, Some(until)) => format!(", for another {}", ago(until.saturating_sub(now_ms))),
        (_, None) => ", until `quorate peers unblock`".to_owned(),
    };
    format!("{standing} {by}, since {since}{until}")
}

fn ago(ms: u64) -> String {
    match ms / 1_000 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3_600),
    }
}
