//! `quorate load`

use super::{
    localnet::reasons,
    output::{print_fields, print_json, print_lines},
    passphrases::Opening,
    rpc::{Believed, ForChain, block_on, only_orders},
};
use crate::{
    config::{load_genesis, parse_duration},
    genesis::GENESIS_FILE,
    keys,
    localnet::{
        Settings,
        setup::{self, MAX_SETTINGS_BYTES},
    },
};
use anyhow::{Context as _, bail, ensure};
use clap::Args;
use quorate_api::{ANSWER_TIMEOUT, ClientError, RpcClient};
use quorate_crypto::SecretKey;
use quorate_files::read_text;
use quorate_http::client::shown;
use quorate_load::{
    LatencySummary, LoadPlan, LoadReport, MAX_RATE, Pace, Row, Shape, Step, StepReport,
    derive_accounts, fund,
    targets::{NotReady, To, check_money, choose, wait_for_height, wait_until_ready},
};
use quorate_types::{ChainId, Identity};
use serde::Serialize;
use std::{
    fs::{self, File},
    io::{IsTerminal as _, Write as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// The settings file of a local network, in its folder.
const SETTINGS_FILE: &str = "localnet.json";

/// Number of accounts by default.
const DEFAULT_ACCOUNTS: u32 = 1_000;

const MAX_ACCOUNTS: u32 = 100_000;

/// How often a line is printed without a terminal, in seconds.
const PLAIN_EVERY: u64 = 5;

/// How long to wait before a question that was not answered is put again.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// A warning is printed if a larger fraction of the transfers is late.
const LATE_ALOUD: f64 = 0.001;

/// Send transfers at a fixed rate, and report how long they take to become final
///
/// By default the load is an open loop: transfers are due at fixed times, regardless of what
/// happens to earlier ones, and each latency counts from when the transfer was due. So time spent
/// waiting behind a slow validator is included. A closed loop (--clients) slows down with the
/// validators, and its latencies look better than what users would see.
///
/// Without further flags, the command uses the validators and the funded accounts of the `quorate
/// localnet` in the folder ./localnet. For any other chain, give addresses with --rpc and a funded
/// account with --fund-from; it first pays as many new accounts as are needed.
///
/// Ctrl-C stops the load, waits for the transfers in flight and prints the report; a second Ctrl-C
/// does not wait.
#[derive(Args)]
#[command(after_help = "Examples:
  quorate load --rate 500 --for 30s
  quorate load --steps 500,1000,2000,4000 --step-for 20s --json steps.json --csv seconds.csv
  quorate load --clients 50 --for 30s
  quorate load --dir /tmp/net --to nearest:2 --rate 200
  quorate load --rpc http://10.0.0.1:26601,http://10.0.0.2:26601 --trust trust.json \\
               --fund-from rich.key --rate 1000

What the figures mean: docs/LOAD.md")]
pub(super) struct Load {
    /// The folder of a local network, with its validators and funded accounts
    #[arg(long, default_value = "localnet", value_name = "DIR")]
    dir: PathBuf,
    /// The validators' HTTP addresses, comma-separated, instead of those of the folder
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    rpc: Vec<String>,
    #[command(flatten)]
    believed: Believed,
    #[command(flatten)]
    chain: ForChain,
    /// Which validators get the load: all (accounts are assigned round-robin), each (every validator
    /// gets every transfer), one (the first), nearest, or nearest:N (those with the shortest round trips)
    #[arg(long, default_value = "all", value_name = "WHICH")]
    to: To,
    /// Transfers per second
    #[arg(long, default_value_t = 100.0, value_name = "TX_PER_S", conflicts_with_all = ["steps", "clients"])]
    rate: f64,
    /// Several rates in transfers per second, one after the other, such as 500,1000,2000; 0 is a
    /// pause
    #[arg(
        long,
        value_name = "TX_PER_S",
        value_delimiter = ',',
        conflicts_with = "clients"
    )]
    steps: Vec<f64>,
    /// How long each step of --steps lasts
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = parse_duration)]
    step_for: Duration,
    /// Use a closed loop with this many clients; each sends its next transfer when its previous one
    /// is final
    #[arg(long, value_name = "N")]
    clients: Option<usize>,
    /// How long to run (30s, 5m); by default, until Ctrl-C
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration, conflicts_with = "steps")]
    duration: Option<Duration>,
    /// How long to run the first rate before measuring (open loop only)
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    warm_up: Duration,
    /// How many accounts send transfers; by default all of the folder's, or 1000 with --fund-from
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    accounts: Option<u32>,
    /// Derive the sending accounts from this key file, and top them up from the key's own account
    #[arg(long, value_name = "FILE")]
    fund_from: Option<PathBuf>,
    /// How much to pay each account, in the chain's smallest unit; a transfer costs 2
    #[arg(long, value_name = "AMOUNT", default_value_t = 1_000_000)]
    fund: u64,
    #[command(flatten)]
    opening: Opening,
    /// Most requests in flight to one validator; further transfers wait and are late
    #[arg(long, value_name = "N", default_value_t = 32)]
    connections: usize,
    /// Most transfers in one request, if several are due at once; by default 100, or 1 with
    /// --clients
    #[arg(long, value_name = "N")]
    batch: Option<usize>,
    /// Size of each transfer's memo in bytes, in addition to the 161 bytes of the transfer itself;
    /// at most 4096
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(0..=4096))]
    payload: usize,
    /// After this long, a transfer that was accepted but is not final counts as lost
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    lost_after: Duration,
    /// How long to wait at the end for transfers in flight
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    drain: Duration,
    /// How long to wait at the start until all validators answer
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    wait: Duration,
    /// Write the report with its histograms to this file as one JSON object; - for standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write one line per second to this CSV file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

/// The JSON object that `--json` writes.
#[derive(Serialize)]
struct Output<'a> {
    chain_id: ChainId,
    validators: Vec<Target>,
    accounts: usize,
    funded: usize,
    #[serde(flatten)]
    report: &'a LoadReport,
    warnings: Vec<String>,
}

/// A validator that receives load.
#[derive(Clone, Serialize)]
struct Target {
    url: String,
    round_trip_ms: f64,
}

/// Everything that a load needs to start.
struct Prepared {
    chain: ChainId,
    targets: Vec<Target>,
    accounts: Vec<SecretKey>,
    funded: usize,
}

impl Load {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let shape = self.shape()?;
        let csv = self.csv.as_deref().map(create).transpose()?;
        if let Some(path) = self.json.as_deref().filter(|path| !is_stdout(path)) {
            create(path)?;
        }
        block_on(self.drive(shape, csv))
    }

    fn shape(&self) -> anyhow::Result<Shape> {
        if let Some(clients) = self.clients {
            return Ok(Shape::Closed {
                clients,
                lasts: self.duration,
            });
        }
        let (rates, lasts) = match self.steps[..] {
            [] => (vec![self.rate], self.duration),
            _ => (self.steps.clone(), Some(self.step_for)),
        };
        for rate in &rates {
            ensure!(
                (0.0..=MAX_RATE).contains(rate),
                "{rate} transfers per second: --rate and --steps take 0 to {MAX_RATE}"
            );
        }
        let mut steps: Vec<Step> = rates.iter().map(|rate| Step::new(*rate, lasts)).collect();
        if !self.warm_up.is_zero() {
            let warm_up = Step {
                rate: rates[0],
                lasts: Some(self.warm_up),
                warm_up: true,
            };
            steps.insert(0, warm_up);
        }
        Ok(Shape::Open(steps))
    }

    async fn drive(self, shape: Shape, csv: Option<File>) -> anyhow::Result<()> {
        let prepared = self.prepare().await?;
        let default_batch = if self.clients.is_some() { 1 } else { 100 };
        let (hurry, hurried) = watch::channel(false);
        let (stop, stopped) = watch::channel(false);
        let terminal = std::io::stderr().is_terminal();
        let load = quorate_load::Load::new(LoadPlan {
            urls: prepared.targets.iter().map(|t| t.url.clone()).collect(),
            roots: self.believed.roots()?,
            chain: prepared.chain,
            accounts: prepared.accounts.clone(),
            shape,
            pace: Pace {
                connections: self.connections,
                batch: self.batch.unwrap_or(default_batch),
                payload_bytes: self.payload,
                copies: self.to == To::Each,
                lost_after: self.lost_after,
            },
            drain: self.drain,
            ahead: None,
            used: None,
            hurry: Some(hurried),
            on_row: Some(Box::new(on_row(csv, terminal))),
        })?;
        let mut running = std::pin::pin!(load.run(stopped));
        let mut interrupts = 0;
        let report = loop {
            tokio::select! {
                report = &mut running => break report,
                _ = tokio::signal::ctrl_c() => {
                    interrupts += 1;
                    let _ = if interrupts == 1 { stop.send(true) } else { hurry.send(true) };
                }
            }
        };
        if terminal {
            eprintln!();
        }
        self.report(&prepared, &report)
    }

    /// Waits for the validators, and makes sure that the accounts are funded.
    async fn prepare(&self) -> anyhow::Result<Prepared> {
        let local = self.local_network()?;
        let urls = match (&self.rpc[..], &local) {
            ([], Some(settings)) => (0..settings.validators)
                .map(|place| format!("http://{}", settings.rpc_address(place)))
                .collect(),
            ([], None) => bail!(
                "{} holds no local network: start one with `quorate localnet --dir {0}`, or give \
                 the validators' addresses with --rpc",
                self.dir.display()
            ),
            (urls, _) => urls.to_vec(),
        };
        let (accounts, expected, rich) = self.accounts(local.as_ref())?;
        let roots = self.believed.roots()?;
        let clients = urls
            .iter()
            .map(|url| RpcClient::with_roots(url, ANSWER_TIMEOUT, &roots))
            .collect::<Result<Vec<_>, _>>()?;
        eprintln!("waiting for {} validators", clients.len());
        let chain = wait_until_ready(&clients, expected, self.wait).await?;
        let chain = chain.context("there is no validator")?;
        let status = patiently(self.wait, || clients[0].status()).await?;
        ensure!(
            !only_orders(&status),
            "this chain only orders payloads (PAYLOADS.md): it has no accounts and no transfers, which are what this \
             command sends; `quorate localnet --application order-only --load RATE` sends payloads"
        );
        let chosen = patiently(self.wait, || choose(&clients, self.to)).await?;
        let identities: Vec<Identity> = accounts.iter().map(SecretKey::identity).collect();
        let mut funded = 0;
        if let Some(rich) = rich {
            let progress = |paid, all| eprintln!("funding: {paid} of {all} accounts");
            let client = &chosen[0].0;
            funded = fund(client, &chain, &rich, &identities, self.fund, progress).await?;
        }
        let chosen_clients: Vec<RpcClient> = chosen.iter().map(|(c, _)| c.clone()).collect();
        if funded > 0 {
            // The payments are executed where they were sent; the others may not have come so far.
            let status = patiently(self.wait, || chosen_clients[0].status()).await?;
            let paid = status.executed_height;
            patiently(self.wait, || {
                wait_for_height(&chosen_clients, paid, self.wait)
            })
            .await?;
        }
        patiently(self.wait, || check_money(&chosen_clients, &identities)).await?;
        let targets: Vec<Target> = chosen
            .iter()
            .map(|(client, round_trip)| Target {
                url: client.url().to_owned(),
                round_trip_ms: round_trip.as_secs_f64() * 1_000.0,
            })
            .collect();
        for Target { url, round_trip_ms } in &targets {
            eprintln!("to {url} (round trip {round_trip_ms:.2} ms)");
        }
        Ok(Prepared {
            chain,
            targets,
            accounts,
            funded,
        })
    }

    /// Reads the settings of the local network in the folder, if there is one.
    fn local_network(&self) -> anyhow::Result<Option<Settings>> {
        let path = self.dir.join(SETTINGS_FILE);
        match read_text(&path, MAX_SETTINGS_BYTES) {
            Ok(text) => serde_json::from_str(&text)
                .map(Some)
                .with_context(|| format!("{} is damaged", path.display())),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the accounts' keys, the chain if it is known, and the account that funds the others.
    #[allow(clippy::type_complexity)]
    fn accounts(
        &self,
        local: Option<&Settings>,
    ) -> anyhow::Result<(Vec<SecretKey>, Option<ChainId>, Option<SecretKey>)> {
        if let Some(path) = &self.fund_from {
            let rich = keys::load_identity(path, &self.opening.access())?;
            let count = self.accounts.unwrap_or(DEFAULT_ACCOUNTS).min(MAX_ACCOUNTS);
            let chain = match (self.chain.id()?, local) {
                (Some(chain), _) => chain,
                (None, Some(_)) => load_genesis(&self.dir.join(GENESIS_FILE))?.chain_id(),
                (None, None) => self.chain.required()?,
            };
            return Ok((derive_accounts(&rich, count), Some(chain), Some(rich)));
        }
        let Some(local) = local else {
            bail!(
                "{} holds no local network with funded accounts: give a key file of an account \
                 that has money with --fund-from, or a network's folder with --dir",
                self.dir.display()
            );
        };
        let count = self.accounts.unwrap_or(local.accounts);
        ensure!(
            count <= local.accounts,
            "the network in {} has {} funded accounts, not {count}: use fewer --accounts, or make \
             a network with more",
            self.dir.display(),
            local.accounts
        );
        let genesis = load_genesis(&self.dir.join(GENESIS_FILE))?;
        let accounts = setup::load_accounts(&self.dir, count)?;
        Ok((accounts, Some(genesis.chain_id()), None))
    }

    fn report(&self, prepared: &Prepared, report: &LoadReport) -> anyhow::Result<()> {
        let warnings = warnings(report);
        for warning in &warnings {
            eprintln!("warning: {warning}");
        }
        let output = Output {
            chain_id: prepared.chain,
            validators: prepared.targets.clone(),
            accounts: prepared.accounts.len(),
            funded: prepared.funded,
            report,
            warnings,
        };
        match self.json.as_deref() {
            Some(path) if is_stdout(path) => print_json(&output)?,
            Some(path) => {
                let text = serde_json::to_string_pretty(&output)
                    .context("cannot write the report as JSON")?;
                fs::write(path, text)
                    .with_context(|| format!("cannot write {}", path.display()))?;
                print_report(report)?;
            }
            None => print_report(report)?,
        }
        let total = &report.total;
        ensure!(
            total.finalized > 0 || total.offered == 0,
            "no transfer became final; look at `quorate status`, and at the refusals above"
        );
        Ok(())
    }
}

/// Tries again for so long if a validator does not answer, which may be one that is started again.
async fn patiently<T, E: Into<NotReady>>(
    patience: Duration,
    mut attempt: impl AsyncFnMut() -> Result<T, E>,
) -> Result<T, NotReady> {
    let start = Instant::now();
    loop {
        match attempt().await.map_err(Into::into) {
            Err(NotReady::Client(error)) if is_brief(&error) && start.elapsed() < patience => {
                eprintln!("trying again: {}", shown(&error.to_string()));
                tokio::time::sleep(TRY_AGAIN).await;
            }
            result => return result,
        }
    }
}

/// Whether a validator that is being started again answers like this.
fn is_brief(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable { .. } | ClientError::Transport { .. } => true,
        ClientError::Refused { status, .. } => *status == 503,
    }
}

fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

fn create(path: &Path) -> anyhow::Result<File> {
    File::create(path).with_context(|| format!("cannot write {}", path.display()))
}

/// Returns a callback that prints each second's row and writes it to the CSV file. Reports only the
/// first failure to write.
fn on_row(csv: Option<File>, terminal: bool) -> impl FnMut(&Row) + Send {
    let mut csv = csv;
    let mut headed = false;
    move |row| {
        if let Some(file) = &mut csv {
            let head = if headed { "" } else { Row::CSV_HEAD };
            let end = if headed { "" } else { "\n" };
            headed = true;
            if let Err(error) = writeln!(file, "{head}{end}{}", row.to_csv()) {
                eprintln!("warning: the table is cut off here: {error}");
                csv = None;
            }
        }
        let line = line(row);
        if terminal {
            // Return to the start of the line and clear it.
            eprint!("\r\x1b[2K{line}");
            let _ = std::io::stderr().flush();
        } else if row.second.is_multiple_of(PLAIN_EVERY) {
            eprintln!("{line}");
        }
    }
}

fn line(row: &Row) -> String {
    let mut line = format!(
        "{} s  offered {}/s  final {}/s  refused {}  lost {}  on the way {}  p50 {} ms  p99 {} ms",
        row.second,
        row.offered,
        row.finalized,
        row.refused,
        row.lost,
        row.on_the_way,
        ms(row.p50_ms),
        ms(row.p99_ms),
    );
    for (name, count) in [
        ("late", row.late),
        ("NOT SENT", row.unsent),
        ("failed", row.failed),
    ] {
        if count > 0 {
            line += &format!("  {name} {count}");
        }
    }
    line
}

fn ms(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |ms| format!("{ms:.1}"))
}

/// Returns warnings about limits on how far the figures can be trusted.
fn warnings(report: &LoadReport) -> Vec<String> {
    let total = &report.total;
    let part = |count: u64| count as f64 / total.offered.max(1) as f64;
    let mut warnings = Vec::new();
    if total.unsent > 0 {
        warnings.push(format!(
            "{} of {} transfers that were due were NOT SENT: more than the generator keeps were \
             waiting for answers; the load that was really offered is lower ({:.0} per second \
             were sent). More --connections or a larger --batch may help",
            total.unsent,
            total.offered,
            total.sent as f64 / total.seconds.max(0.001),
        ));
    }
    if part(total.behind) > LATE_ALOUD {
        warnings.push(format!(
            "the generator did not keep its own schedule: it noticed {} of {} transfers more than \
             10 ms late; this machine is too busy, or too slow for this rate",
            total.behind, total.offered
        ));
    }
    if part(total.late) > LATE_ALOUD {
        warnings.push(format!(
            "{} of {} transfers were sent more than 10 ms after they were due, the latest {:.0} ms; \
             latencies count from when they were due and include this",
            total.late, total.sent, total.latest_ms
        ));
    }
    if total.unfinished > 0 {
        warnings.push(format!(
            "{} transfers were still on their way at the end and are in no latency; a longer \
             --drain waits for them",
            total.unfinished
        ));
    }
    warnings
}

fn print_report(report: &LoadReport) -> anyhow::Result<()> {
    let total = &report.total;
    let offered = match report.clients {
        Some(clients) => format!(
            "{} by {clients} clients, a closed loop ({:.1} per second)",
            total.offered, total.offered_per_s
        ),
        None => format!("{} ({:.1} per second)", total.offered, total.offered_per_s),
    };
    let codes: Vec<String> = total
        .refused_by_code
        .iter()
        .map(|(code, count)| format!("{count} {code}"))
        .collect();
    let refused = match codes.is_empty() {
        true => "0".to_owned(),
        false => format!("{} ({})", total.refused, codes.join(", ")),
    };
    let mut fields = vec![
        ("measured", format!("{:.1} s", total.seconds)),
        ("offered", offered),
        (
            "goodput",
            format!(
                "{:.1} per second final and applied ({} in all)",
                total.goodput_per_s, total.finalized
            ),
        ),
        ("latency", latencies(&total.latency)),
        ("validators' answers", latencies(&total.answer)),
        ("refused", refused),
    ];
    let others = [
        ("failed", total.failed),
        ("lost", total.lost),
        ("not sent", total.unsent),
        ("unfinished", total.unfinished),
        ("repeated", total.repeated),
        ("sent again", total.resent),
        ("sent late", total.late),
    ];
    fields.extend(
        others
            .into_iter()
            .filter(|(name, count)| *count > 0 || matches!(*name, "failed" | "lost" | "not sent"))
            .map(|(name, count)| match name {
                "failed" => (
                    name,
                    format!("{count}{}", reasons(&total.failed_by_outcome)),
                ),
                _ => (name, count.to_string()),
            }),
    );
    print_fields(&fields)?;
    let counted: Vec<&StepReport> = report.steps.iter().filter(|s| !s.warm_up).collect();
    if counted.len() > 1 {
        print_steps(&counted)?;
    }
    Ok(())
}

fn latencies(latency: &LatencySummary) -> String {
    format!(
        "mean {}  p50 {}  p90 {}  p99 {}  p99.9 {}  max {} ms",
        ms(latency.mean_ms),
        ms(latency.p50_ms),
        ms(latency.p90_ms),
        ms(latency.p99_ms),
        ms(latency.p99_9_ms),
        ms(latency.max_ms)
    )
}

fn print_steps(steps: &[&StepReport]) -> anyhow::Result<()> {
    let mut lines = vec![
        String::new(),
        format!(
            "{:>9} {:>9} {:>9} {:>9} {:>7} {:>8} {:>9} {:>9} {:>9}",
            "rate", "goodput", "final", "refused", "lost", "not sent", "p50 ms", "p99 ms", "max ms"
        ),
    ];
    for step in steps {
        lines.push(format!(
            "{:>9} {:>9.1} {:>9} {:>9} {:>7} {:>8} {:>9} {:>9} {:>9}",
            step.rate.unwrap_or_default(),
            step.goodput_per_s,
            step.finalized,
            step.refused,
            step.lost,
            step.unsent,
            ms(step.latency.p50_ms),
            ms(step.latency.p99_ms),
            ms(step.latency.max_ms)
        ));
    }
    print_lines(&lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers that fail so many times first, and how often they were asked for.
    async fn answered(error: ClientError, failing: u32) -> (bool, u32) {
        let mut asked = 0;
        let error = std::cell::Cell::new(Some(error));
        let answer = patiently(Duration::from_secs(60), async || {
            asked += 1;
            match error.take().filter(|_| asked <= failing) {
                Some(error) => Err(error),
                None => Ok(()),
            }
        });
        let is_answered = answer.await.is_ok();
        (is_answered, asked)
    }

    #[tokio::test]
    async fn a_validator_that_is_started_again_is_asked_again() {
        let url = || "http://127.0.0.1:1".to_owned();
        let lost = ClientError::Transport {
            url: url(),
            reason: "connection closed".to_owned(),
        };
        assert_eq!(answered(lost, 1).await, (true, 2));
        let refused = ClientError::Refused {
            url: url(),
            status: 400,
            code: "bad_request".to_owned(),
            message: String::new(),
        };
        assert_eq!(answered(refused, 1).await, (false, 1));
    }
}
