//! `quorate peers`

use super::{
    output::{Column, Paint, print_json, print_lines, print_painted, table},
    rpc::{Control, Rpc, block_on, prompt},
};
use crate::config::parse_duration;
use clap::{Args, Subcommand};
use quorate_api::{
    OffenderJson, OrderJson, PeerDetailJson, RpcClient, Standing,
    verdict::{Severity, grouped, spoken},
};
use quorate_http::client::shown;
use quorate_machine::clock::now_ms;
use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

/// How long `unblock` waits for the link to come up.
const LINK_LIMIT: Duration = Duration::from_secs(15);

/// List a validator's peers; block and unblock them
#[derive(Subcommand)]
pub(super) enum Peers {
    /// List the other validators: link, latency, last vote, and whether and why they are blocked
    List(List),
    /// Block a validator
    Block(Block),
    /// End a block or probation, whatever its reason
    Unblock(Unblock),
}

/// List the other validators: link, latency, last vote, and whether and why they are blocked
///
/// A validator is *blocked* when it was caught with an invalid signature or two conflicting votes
/// (equivocation): its messages are ignored. At most f of the n ≥ 3f + 1 validators are blocked at
/// a time, so that blocking cannot halt the chain. Further offenders are on *probation*: each of
/// their votes is verified before it counts.
#[derive(Args)]
#[command(after_help = "Examples:
  quorate peers list --config validator-0/validator.toml     with addresses, and who is blocked and why
  quorate peers list --rpc http://127.0.0.1:26601            what everybody may know")]
pub(super) struct List {
    #[command(flatten)]
    rpc: Rpc,
    /// Ask the running validator with this configuration file over its control socket, and ignore
    /// --rpc; this also shows addresses and penalties
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON object, including the complete evidence
    #[arg(long)]
    json: bool,
}

/// Block a validator
#[derive(Args)]
#[command(after_help = "Examples:
  quorate peers block 2 --for 12h --config validator-0/validator.toml
  quorate peers block 3b6a27bc…")]
pub(super) struct Block {
    /// The validator's number in the committee, or its identity
    peer: String,
    /// How long to block (30m, 12h); by default, until `quorate peers unblock`
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,
    #[command(flatten)]
    control: Control,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// End a block or probation, whatever its reason
///
/// Evidence of earlier misbehaviour stays stored, but no longer blocks the validator here. The link
/// comes back within seconds; the command waits up to 15 s for it and prints the result.
#[derive(Args)]
#[command(after_help = "Example:
  quorate peers unblock 2 --config validator-0/validator.toml")]
pub(super) struct Unblock {
    /// The validator's number in the committee, or its identity
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
        let peers = block_on(prompt(&client, client.peers()))?;
        if self.json {
            return print_json(&peers);
        }
        print_painted(&describe(peers.peers, now_ms(), Paint::for_stdout()))
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
    let answer = block_on(prompt(&client, client.order(what, order)))?;
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

/// Waits until the link to a peer is back, and reports it.
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

/// Formats a table of the peers, with their penalties below it.
fn describe(mut peers: Vec<PeerDetailJson>, now_ms: u64, paint: Paint) -> Vec<String> {
    let dash = || "-".to_owned();
    peers.sort_by_key(|peer| peer.peer.validator);
    // Addresses are shown only to the operator; participation is known with only one of the
    // schemes.
    let addresses = peers.iter().any(|peer| peer.address.is_some());
    let signed = peers.iter().any(|p| p.participation_percent.is_some());
    let mut columns = vec![
        Column::right("validator"),
        Column::left("identity"),
        Column::left("link"),
        Column::right("round trip"),
        Column::right("last vote"),
        Column::right("final height"),
    ];
    columns.extend(addresses.then_some(Column::left("address")));
    columns.extend(signed.then_some(Column::right("signed")));
    let rows = peers.iter().map(|peer| {
        let link = &peer.peer;
        let mut row = vec![
            link.validator
                .map_or_else(|| "-".to_owned(), |place| place.to_string()),
            link.identity.short(),
            match link.connected {
                true => "up".to_owned(),
                false => paint.severity(Severity::Bad, "none"),
            },
            link.round_trip_us
                .map_or_else(dash, |us| format!("{:.2} ms", us as f64 / 1_000.0)),
            peer.last_vote
                .map_or_else(dash, |(epoch, view)| format!("{epoch}.{view}")),
            link.finalized_height
                .map_or_else(dash, |height| grouped(height.0)),
        ];
        if addresses {
            row.push(shown(peer.address.as_deref().unwrap_or("-")));
        }
        if signed {
            let percent = peer.participation_percent;
            row.push(percent.map_or_else(dash, |percent| format!("{percent:.1} %")));
        }
        row
    });
    let mut lines = table(&columns, &rows.collect::<Vec<_>>());
    for peer in &peers {
        let Some(offender) = &peer.offender else {
            continue;
        };
        let text = format!(
            "validator {} ({}): {}",
            offender.validator,
            offender.identity,
            standing(offender, now_ms)
        );
        let severity = match offender.standing {
            Standing::Pardoned => Severity::Good,
            _ => Severity::Warning,
        };
        lines.push(paint.severity(severity, &text));
        if let Some(proof) = &offender.proof {
            lines.push(format!(
                "  proof: {} ({})",
                shown(&proof.summary),
                shown(&proof.kind)
            ));
        }
    }
    lines
}

/// Describes a peer's penalty, with its start and end, in a sentence.
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
    let since = spoken(now_ms.saturating_sub(offender.since_ms));
    let until = match (offender.standing, offender.until_ms) {
        (Standing::Pardoned, _) => String::new(),
        (_, Some(until)) => format!(", for another {}", spoken(until.saturating_sub(now_ms))),
        (_, None) => ", until `quorate peers unblock`".to_owned(),
    };
    format!("{standing} {by}, since {since}{until}")
}
