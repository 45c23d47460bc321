//! `quorate status`

use super::{
    output::{Column, Paint, field_lines, print_json, print_painted, table},
    rpc::{Rpc, block_on, prompt},
};
use clap::Args;
use quorate_api::{
    ClientError, PeerJson, RpcClient, StatusJson, SyncState,
    verdict::{Health, Severity, VerdictJson, Voter, counted, grouped, spoken},
};
use quorate_http::client::shown;
use std::{
    io::{IsTerminal as _, Write as _},
    process::ExitCode,
    time::Duration,
};

/// The exit codes if the validator answers but is not in sync.
const NOT_IN_SYNC: u8 = 3;
const IN_TROUBLE: u8 = 4;

/// How often `--watch` refreshes.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Show a validator's verdict on its own health, its height, view and peers
///
/// The exit code reflects the verdict: 0 if the validator is healthy; 3 if the problem resolves
/// itself (it is starting, catching up, fetching the state, or following without a vote); 4 if the
/// operator has to act (halted, cut off, refused, stuck, key seen elsewhere); 1 if the validator does not
/// answer.
#[derive(Args)]
#[command(after_help = "Examples:
  quorate status
  quorate status --watch
  quorate status --rpc http://10.0.0.1:26601 || echo 'look after validator 1'")]
pub(super) struct Status {
    #[command(flatten)]
    rpc: Rpc,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Refresh every second until Ctrl-C; without a terminal, print a line for each change
    #[arg(long, conflicts_with = "json")]
    watch: bool,
}

impl Status {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let client = self.rpc.client()?;
        if self.watch {
            return block_on(watch(&client));
        }
        let status = match block_on(ask(&client)) {
            Ok(status) => status,
            Err(error) => return unready(error, self.json),
        };
        if self.json {
            print_json(&status)?;
        } else {
            print_painted(&describe(&status, Paint::for_stdout()))?;
        }
        Ok(exit_code(&status))
    }
}

/// A node that opens its database says so, and nothing else.
fn unready(error: anyhow::Error, json: bool) -> anyhow::Result<ExitCode> {
    let Some((code, message)) = opening(&error) else {
        return Err(error);
    };
    if json {
        let error = serde_json::json!({ "code": code, "message": message });
        print_json(&serde_json::json!({ "error": error }))?;
    } else {
        let line = Paint::for_stdout().severity(Severity::Warning, &shown(message));
        print_painted(&[line])?;
    }
    Ok(ExitCode::from(NOT_IN_SYNC))
}

/// The code and the message of a node that opens its database.
fn opening(error: &anyhow::Error) -> Option<(&str, &str)> {
    match error.downcast_ref()? {
        ClientError::Refused { code, message, .. } if code == "opening" => Some((code, message)),
        _ => None,
    }
}

async fn ask(client: &RpcClient) -> anyhow::Result<StatusJson> {
    prompt(client, client.status()).await
}

async fn watch(client: &RpcClient) -> anyhow::Result<ExitCode> {
    let paint = Paint::for_stdout();
    let terminal = std::io::stdout().is_terminal();
    let mut told = String::new();
    let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    loop {
        let (lines, key) = match ask(client).await {
            Ok(status) => {
                let verdict = status.verdict.as_ref();
                let state = verdict.map_or("unknown", |verdict| verdict.state.name());
                let notes = verdict.map_or(0, |verdict| verdict.notes.len());
                (describe(&status, paint), format!("{state} {notes}"))
            }
            Err(error) => {
                let (severity, text, key) = match opening(&error) {
                    Some((code, message)) => (Severity::Warning, message.to_owned(), code),
                    None => (Severity::Bad, format!("{error:#}"), "silent"),
                };
                (
                    vec![paint.severity(severity, &shown(&text))],
                    key.to_owned(),
                )
            }
        };
        if terminal {
            // Move the cursor home, clear the rest of each line after writing it, and clear
            // everything below at the end.
            let mut out = std::io::stdout().lock();
            let _ = write!(out, "\x1b[H");
            for line in &lines {
                let _ = writeln!(out, "{line}\x1b[K");
            }
            let _ = write!(out, "\x1b[J");
            let _ = out.flush();
        } else if key != told {
            let first = lines.into_iter().take_while(|line| !line.is_empty());
            print_painted(&first.collect::<Vec<_>>())?;
        }
        told = key;
        tokio::select! {
            _ = &mut interrupted => return Ok(ExitCode::SUCCESS),
            () = tokio::time::sleep(WATCH_INTERVAL) => {}
        }
    }
}

/// Formats the whole output, with the verdict first.
fn describe(status: &StatusJson, paint: Paint) -> Vec<String> {
    let mut lines = Vec::new();
    match &status.verdict {
        Some(verdict) => lines.extend(verdict_lines(verdict, paint)),
        None => lines.push(old_sync(status)),
    }
    lines.push(String::new());
    lines.extend(fields(status));
    lines.push(String::new());
    lines.extend(peers(status, paint));
    lines.extend(status.blocked.iter().map(|blocked| {
        let text = format!(
            "blocked: validator {} ({}), {}",
            blocked.validator,
            blocked.identity.short(),
            shown(&blocked.reason)
        );
        paint.severity(Severity::Warning, &text)
    }));
    lines
}

fn verdict_lines(verdict: &VerdictJson, paint: Paint) -> Vec<String> {
    let severity = verdict.state.severity();
    let mut lines = vec![paint.severity(severity, &shown(&verdict.summary))];
    if let Some(remedy) = &verdict.remedy {
        lines.push(format!("  remedy: {}", shown(remedy)));
    }
    for note in &verdict.notes {
        let text = format!("  note: {}", shown(note));
        lines.push(paint.severity(Severity::Warning, &text));
    }
    lines
}

fn fields(status: &StatusJson) -> Vec<String> {
    // State sync knows neither its view nor its vote journal.
    let state = status.verdict.as_ref().map(|verdict| verdict.state);
    let syncs = state == Some(Health::StateSync);
    let connected = status.peers.iter().filter(|peer| peer.connected).count();
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / 1_048_576.0);
    let kept = match status.executed_height.0 {
        0 => "no block yet".to_owned(),
        newest if newest < status.first_height.0 => {
            format!("none (the state is that after block {})", grouped(newest))
        }
        newest => format!("{} to {}", grouped(status.first_height.0), grouped(newest)),
    };
    let waiting = status
        .finalized_height
        .0
        .saturating_sub(status.executed_height.0);
    let height = match waiting {
        0 => grouped(status.finalized_height.0),
        waiting => format!(
            "{} ({} to execute)",
            grouped(status.finalized_height.0),
            counted(waiting, "block")
        ),
    };
    let database = format!("database {} (its log included)", mib(status.database_bytes));
    let disk = match syncs {
        true => database,
        false => format!("{database}, vote journal {}", mib(status.journal_bytes)),
    };
    let mut fields = vec![
        ("chain", format!("{} ({})", status.name, status.chain_id)),
        match status.validator {
            Some(place) => ("validator", format!("{place} of {}", status.validators)),
            None => (
                "follows",
                format!("a chain with {} validators", status.validators),
            ),
        },
        ("protocol", protocol(status)),
        ("view", view(status)),
        ("final height", height),
        ("blocks kept", kept),
        ("state root", status.state_root.to_string()),
        (
            "mempool",
            counted(status.mempool_transactions as u64, "transaction"),
        ),
        (
            "peers",
            format!("{connected} of {} connected", status.peers.len()),
        ),
        ("disk", disk),
        ("clock", clock(status.clock_ahead_ms)),
        (
            "evidence",
            format!(
                "{} of conflicting votes",
                counted(status.evidence as u64, "pair")
            ),
        ),
        ("up", spoken(status.uptime_seconds.saturating_mul(1_000))),
        ("version", status.version.clone()),
    ];
    if let Some(payloads) = &status.payloads {
        let missing = match payloads.missing_bundles {
            0 => String::new(),
            missing => format!(", {} missing", counted(missing, "bundle")),
        };
        let waiting = mib(payloads.waiting_bytes);
        let log = mib(payloads.log_bytes);
        let text = format!("{waiting} wait for their order, log {log}{missing}");
        let mempool = fields.iter().position(|(name, _)| *name == "mempool");
        fields.insert(
            mempool.map_or(fields.len(), |at| at + 1),
            ("payloads", text),
        );
    }
    fields.retain(|(name, _)| !(syncs && *name == "view"));
    field_lines(&fields)
}

fn protocol(status: &StatusJson) -> String {
    match &status.protocol {
        Some(protocol) => format!("{}, {}", shown(protocol), shown(&status.scheme)),
        None => shown(&status.scheme),
    }
}

/// Formats the current view with its leader.
fn view(status: &StatusJson) -> String {
    let view = format!("{}.{}", status.epoch, status.view);
    let Some(turn) = &status.turn else {
        return view;
    };
    let leader = match status.validator == Some(turn.leader) {
        true => "this validator".to_owned(),
        false => format!("validator {}", turn.leader),
    };
    match turn.first_view == turn.last_view {
        true => format!("{view} ({leader} leads)"),
        false => format!(
            "{view} ({leader} leads views {} to {})",
            turn.first_view, turn.last_view
        ),
    }
}

/// Formats a table of the linked nodes. Those without a number are followers.
fn peers(status: &StatusJson, paint: Paint) -> Vec<String> {
    if status.peers.is_empty() {
        return Vec::new();
    }
    let mut peers: Vec<&PeerJson> = status.peers.iter().collect();
    peers.sort_by_key(|peer| peer.validator);
    let others = status.verdict.iter().flat_map(|verdict| &verdict.others);
    let others: Vec<_> = others.collect();
    let rows = peers.iter().map(|peer| {
        let voter = others
            .iter()
            .find(|other| Some(other.validator) == peer.validator)
            .map(|other| other.state);
        vec![
            peer.validator
                .map_or_else(|| "-".to_owned(), |place| place.to_string()),
            peer.identity.short(),
            match peer.connected {
                true => "up".to_owned(),
                false => paint.severity(Severity::Bad, "none"),
            },
            peer.round_trip_us.map_or_else(
                || "-".to_owned(),
                |us| format!("{:.2} ms", us as f64 / 1_000.0),
            ),
            peer.finalized_height
                .map_or_else(|| "-".to_owned(), |height| grouped(height.0)),
            voter.map_or_else(|| "-".to_owned(), |voter| votes(voter, paint)),
        ]
    });
    let columns = [
        Column::right("validator"),
        Column::left("identity"),
        Column::left("link"),
        Column::right("round trip"),
        Column::right("final height"),
        Column::left("votes"),
    ];
    table(&columns, &rows.collect::<Vec<_>>())
}

fn votes(voter: Voter, paint: Paint) -> String {
    let (severity, text) = match voter {
        Voter::Votes => (Severity::Good, "yes"),
        Voter::Fresh => (Severity::Warning, "not yet"),
        Voter::Behind => (Severity::Bad, "no: catches up"),
        Voter::Silent => (Severity::Bad, "no"),
        Voter::Unreachable => (Severity::Bad, "no: not reachable"),
        Voter::Blocked => (Severity::Bad, "blocked here"),
        Voter::ClockBehind => (Severity::Bad, "no: its clock is behind"),
    };
    match severity {
        Severity::Good => text.to_owned(),
        severity => paint.severity(severity, text),
    }
}

/// Formats the sync state as reported by validators of earlier versions.
fn old_sync(status: &StatusJson) -> String {
    match &status.sync {
        Some(sync) => sync.in_words(),
        None if status.behind => "catching up".to_owned(),
        None => "no verdict: the validator's version is an earlier one".to_owned(),
    }
}

/// Describes how far this validator's clock is off.
fn clock(ahead_ms: Option<i64>) -> String {
    match ahead_ms {
        None => "not compared yet".to_owned(),
        Some(0) => "as the others'".to_owned(),
        Some(ms) if ms < 0 => format!("{} ms behind the others'", ms.unsigned_abs()),
        Some(ms) => format!("{ms} ms ahead of the others'"),
    }
}

fn exit_code(status: &StatusJson) -> ExitCode {
    let code = match (&status.verdict, &status.sync) {
        (Some(verdict), _) => match (verdict.state, verdict.state.severity()) {
            (Health::Unknown, _) => NOT_IN_SYNC,
            // It lasts until its operator does what the remedy says.
            (Health::StateSync, _) if verdict.remedy.is_some() => IN_TROUBLE,
            (_, Severity::Good) => 0,
            (_, Severity::Warning) => NOT_IN_SYNC,
            (_, Severity::Bad) => IN_TROUBLE,
        },
        (None, Some(sync)) => match sync.state {
            SyncState::InSync => 0,
            SyncState::Starting | SyncState::CatchingUp => NOT_IN_SYNC,
            SyncState::Stalled | SyncState::NoQuorum => IN_TROUBLE,
        },
        (None, None) => 0,
    };
    ExitCode::from(code)
}
