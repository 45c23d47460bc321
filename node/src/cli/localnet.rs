//! `quorate localnet`

use super::{
    changing::{Changing, How},
    kept::{Kept, parse_kept},
    output::{Paint, print_fields, print_json, print_lines},
    rpc::block_on,
};
use crate::{
    config::{
        MAX_IDLE_INTERVAL, MIN_RETENTION_BLOCKS, format_duration, load_genesis, parse_duration,
    },
    localnet::{
        Curve, ExplorerProcess, Figures, LOOK_INTERVAL, Network, Pauses, Sample, Settings, Tally,
        check_ports, prepare, setup, show,
    },
};
use anyhow::Context as _;
use clap::Args;
use quorate_api::{
    BlockedJson,
    verdict::{Health, Severity, VerdictJson},
};
use quorate_crypto::bls::SchemeKind;
use quorate_http::client::shown;
use quorate_load::{Load, LoadConfig, LoadCounters, LoadReport, payloads};
use quorate_types::genesis::DEFAULT_LIMITS;
use quorate_types::{
    EpochLength, ValidatorIndex,
    genesis::{ApplicationKind, Protocol},
};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    io::{IsTerminal as _, Write as _},
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// How often processes and heights are looked at.
const TICK: Duration = Duration::from_millis(200);

/// How often the counters of processes that are killed are read.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// Excluded from the figures at the start: links are being established and caches are cold.
const WARM_UP: Duration = Duration::from_secs(2);

/// How long to wait for links between all validators before the load starts.
const LINKS_LIMIT: Duration = Duration::from_secs(5);

/// How often the status line is updated: on a terminal, and otherwise.
const LINE_INTERVAL: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

/// The usual epoch of a chain with a registry, in blocks: two seconds.
const REGISTRY_EPOCH_BLOCKS: u64 = 40;

/// The same where shares are passed on in each epoch.
const SHARING_EPOCH_BLOCKS: u64 = 96;

/// The usual minimum time between its blocks.
const REGISTRY_BLOCK_INTERVAL_MS: u64 = 50;

/// The usual number of its funded accounts.
const REGISTRY_ACCOUNTS: u32 = 200;

/// The usual number of machines that wait for a seat with --exchange: as many as are replaced at once.
const EXCHANGE_SPARES: usize = 2;

/// The usual number of machines beside the first validators in a storm.
const STORM_SPARES: usize = 4;

/// Run a whole network on this machine, with load, and report its figures
///
/// Each validator is a separate process with its own database and links. Their files are created in
/// the directory if they are missing; the next run with the same directory continues the same
/// chain. An explorer shows the chain in a browser, at the printed address. Ctrl-C stops everything
/// cleanly.
#[derive(Args)]
#[command(after_help = "Examples:
  quorate localnet
  quorate localnet --validators 7 --load 1000 --for 1m
  quorate localnet --busy --late 12000
  quorate localnet --followers 1
  quorate localnet --show-registry --dir /tmp/show
  quorate localnet --storm --for 10m --dir /tmp/storm
  quorate localnet --exchange --for 10m --dir /tmp/exchange
  quorate localnet --exchange --validators 4 --spares 1 --scheme bls-threshold --dir /tmp/exchange-of-four
  quorate localnet --dir /tmp/net --for 30s --json > figures.json")]
pub(super) struct Localnet {
    /// How many validators; by default 4, or as many as the directory's network has
    #[arg(long, value_name = "N")]
    validators: Option<usize>,
    /// The folder of the network's files. Options that are not given keep their values from an
    /// earlier run in this folder
    #[arg(long, default_value = "localnet")]
    dir: PathBuf,
    /// The consensus protocol: simplex, hotstuff-chained, hotstuff-basic or pbft (default: simplex; which to choose: docs/OPERATING.md, "Which protocol")
    #[arg(long)]
    protocol: Option<Protocol>,
    /// What a new network's chain does: ledger, with accounts and transfers, or order-only, which orders and stores
    /// payloads (docs/PAYLOADS.md); the load is then of payloads of 512 bytes (default: ledger)
    #[arg(long)]
    application: Option<ApplicationKind>,
    /// The vote scheme (default: bls-threshold)
    #[arg(long, value_parser = ["bls-threshold", "bls-aggregate"])]
    scheme: Option<String>,
    /// The length of an epoch in blocks; 10000 by default with simplex, 1000 with the other protocols
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    epoch_blocks: Option<u64>,
    /// The minimum time between blocks (50ms); by default, as fast as possible
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    block_interval: Option<Duration>,
    /// The time between blocks while there are no transactions (default: 1s)
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "busy")]
    idle_interval: Option<Duration>,
    /// Make empty blocks without a pause; the same as --idle-interval 0s
    #[arg(long)]
    busy: bool,
    /// How many final blocks each validator keeps (at least 10000), or for how long (7d); 0 keeps
    /// all (default: 0)
    #[arg(long, value_name = "N|TIME", value_parser = parse_kept)]
    retention: Option<Kept>,
    /// Kill a validator (kill -9) this often, one after the other, and restart it; none before the last one is back
    #[arg(long, value_name = "TIME", value_parser = parse_some_time)]
    kill_every: Option<Duration>,
    /// Keep the last validator away until the chain has grown by this many blocks, then start it, in a new
    /// network with an empty database, otherwise with what it has. If the others keep fewer blocks (--retention, with this option 10000 unless given),
    /// it fetches the state
    #[arg(long, value_name = "BLOCKS", conflicts_with = "kill_every")]
    late: Option<u64>,
    /// How many followers to run: nodes without a vote that serve clients. The explorer then reads from them
    /// (default: 0)
    #[arg(long, value_name = "N")]
    followers: Option<usize>,
    /// Plot memory, disk usage and block time over the run to this SVG file, and write a CSV file
    /// beside it
    #[arg(long, value_name = "FILE")]
    curve: Option<PathBuf>,
    /// How many signed transfers, or payloads, to send per second; 0 for none (default: 50; 300 with --show-registry or --storm)
    #[arg(long, value_name = "TX_PER_S")]
    load: Option<f64>,
    /// How long to run (30s, 5m); by default, until Ctrl-C
    #[arg(long = "for", value_name = "TIME", value_parser = parse_some_time)]
    duration: Option<Duration>,
    /// How many funded accounts send transfers (default: 1000)
    #[arg(long, value_name = "N")]
    accounts: Option<u32>,
    /// The first port. Validator i uses ports P + 2i (peers) and P + 2i + 1 (HTTP); the next port
    /// is the explorer's, the ones after it serve metrics and the live pages, and the ones after those
    /// are the followers' (default: 26600)
    #[arg(long, value_name = "P")]
    base_port: Option<u16>,
    /// The chain's name (default: localnet)
    #[arg(long)]
    name: Option<String>,
    /// Give a new network's chain a staking registry (see docs/REGISTRY.md). The defaults are then bls-aggregate,
    /// epochs of 40 blocks, 50ms between blocks and 200 accounts
    #[arg(long)]
    registry: bool,
    /// Make a new network whose validators change by the commands of `quorate registry` while transfers are sent:
    /// four become seven, then five, and the first four are replaced one by one. Each epoch is a line. It ends by
    /// itself, with a report, and fails if an accepted transfer or a block is lost
    #[arg(long, conflicts_with_all = ["storm", "duration", "kill_every", "late", "followers", "curve", "validators"])]
    show_registry: bool,
    /// Make the validators change at random and kill processes (kill -9), on a chain with a registry; the report is
    /// that of --show-registry
    #[arg(long, group = "spares_are_used", conflicts_with_all = ["kill_every", "late", "followers", "curve"])]
    storm: bool,
    /// On a chain with a registry, replace as many validators as may be faulty (all but a quorum) at one border in every
    /// second epoch; the report is that of --show-registry. Two of seven machines by default, and two wait; with
    /// --validators 4 it is one of four
    #[arg(long, group = "spares_are_used", conflicts_with_all = ["show_registry", "kill_every", "late", "followers", "curve"])]
    exchange: bool,
    /// What the choices of --storm are made from; by default a random number, which is shown
    #[arg(long, value_name = "N", requires = "storm")]
    seed: Option<u64>,
    /// How many machines beside the first validators can become validators in a --storm or --exchange (default: 4 or 2)
    #[arg(long, value_name = "N", requires = "spares_are_used")]
    spares: Option<usize>,
    /// Start no explorer, to measure the validators alone
    #[arg(long)]
    no_explorer: bool,
    /// At the end, print one JSON object with the figures on standard output
    #[arg(long)]
    json: bool,
}

/// The JSON object that `--json` prints.
#[derive(Serialize)]
struct Report {
    validators: usize,
    protocol: &'static str,
    scheme: String,
    /// How often a validator's process was found to be another one.
    restarts: u64,
    /// The longest time without a new block, measured to twice [`LOOK_INTERVAL`].
    longest_pause_ms: f64,
    load: f64,
    #[serde(flatten)]
    figures: Figures,
    tx_latency_ms: Latency,
    /// Those that were due.
    tx_offered: u64,
    tx_submitted: u64,
    tx_finalized: u64,
    tx_failed: u64,
    tx_failed_by_outcome: BTreeMap<String, u64>,
    tx_refused: u64,
    tx_refused_by_code: BTreeMap<String, u64>,
    tx_lost: u64,
    tx_late: u64,
    tx_unsent: u64,
    tx_unfinished: u64,
    tx_repeated: u64,
    tx_per_s: f64,
    blocked: Vec<Blocked>,
}

#[derive(Serialize)]
struct Latency {
    p50: Option<f64>,
    p90: Option<f64>,
    p99: Option<f64>,
    #[serde(rename = "p99.9")]
    p99_9: Option<f64>,
}

#[derive(Serialize)]
struct Blocked {
    validator: ValidatorIndex,
    by: usize,
    reason: String,
}

impl Localnet {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let load = self.rate();
        anyhow::ensure!(
            load.is_finite() && (0.0..=100_000.0).contains(&load),
            "--load must be 0 to 100000"
        );
        let settings = self.settings()?;
        check_ports(&settings)?;
        if setup::saved(&self.dir)?.is_none() {
            eprintln!(
                "making keys, genesis file and folders in {}",
                self.dir.display()
            );
        }
        prepare(&self.dir, &settings)?;
        let how = match (self.show_registry, self.storm, self.exchange) {
            (true, ..) => How::Show,
            (_, true, _) => How::Storm {
                seed: self.seed.unwrap_or_else(rand::random),
                lasts: self.duration,
            },
            (.., true) => How::Exchange {
                lasts: self.duration,
            },
            _ => return block_on(self.drive(settings)),
        };
        let changing = Changing {
            how,
            dir: self.dir,
            load,
            json: self.json,
            explorer: !self.no_explorer,
        };
        block_on(changing.run(&settings))
    }

    /// Transfers per second.
    fn rate(&self) -> f64 {
        let usual = match self.changes() {
            true => 300.0,
            false => 50.0,
        };
        self.load.unwrap_or(usual)
    }

    /// Whether the validators are to change.
    const fn changes(&self) -> bool {
        self.show_registry || self.storm || self.exchange
    }

    /// Returns the settings from the command line. Options that are not given come from the
    /// directory, or else have their defaults.
    fn settings(&self) -> anyhow::Result<Settings> {
        let protocol = self.protocol.unwrap_or(Protocol::Simplex);
        let usual = Settings {
            name: "localnet".to_owned(),
            validators: 4,
            protocol,
            application: ApplicationKind::Ledger,
            scheme: "bls-threshold".to_owned(),
            epoch_blocks: protocol.usual_epoch(),
            retention_blocks: None,
            retention_seconds: None,
            block_interval_ms: 0,
            idle_interval_ms: 1_000,
            block_limits: DEFAULT_LIMITS,
            accounts: 1_000,
            followers: 0,
            registry: false,
            spares: 0,
            seats: setup::MAX_REGISTERED,
            base_port: 26_600,
        };
        let saved = setup::saved(&self.dir)?;
        let is_new = saved.is_none();
        let mut settings = saved.unwrap_or(usual);
        anyhow::ensure!(
            is_new || !self.show_registry,
            "{} holds a network already, and --show-registry begins with a new one: use another --dir, or delete the \
             folder",
            self.dir.display()
        );
        self.choose_registry(&mut settings, is_new)?;
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        if let Some(name) = &self.name {
            settings.name.clone_from(name);
        }
        if let Some(protocol) = self.protocol {
            settings.protocol = protocol;
        }
        if let Some(application) = self.application {
            settings.application = application;
        }
        anyhow::ensure!(
            settings.application == ApplicationKind::Ledger || !(self.registry || self.changes()),
            "a chain with --application order-only has no registry: leave out --registry, --show-registry, --storm and \
             --exchange"
        );
        if let Some(scheme) = &self.scheme {
            settings.scheme.clone_from(scheme);
        }
        if let Some(blocks) = self.epoch_blocks {
            settings.epoch_blocks = EpochLength::new(blocks).context("--epoch-blocks is zero")?;
        }
        if let Some(kept) = self.retention {
            settings.retention_blocks = match kept {
                Kept::Blocks(blocks) => (blocks > 0).then_some(blocks),
                Kept::Time(_) => None,
            };
            settings.retention_seconds = match kept {
                Kept::Blocks(_) => None,
                Kept::Time(time) => Some(time.as_secs()),
            };
        }
        let validators = self.validators.unwrap_or(settings.validators);
        anyhow::ensure!(
            self.late.is_none() || validators >= 4,
            "--late keeps one validator away, and needs at least four"
        );
        if self.late.is_some() && self.retention.is_none() && is_new {
            settings.retention_blocks = Some(MIN_RETENTION_BLOCKS);
        }
        if let Some(interval) = self.block_interval {
            anyhow::ensure!(
                interval <= Duration::from_secs(60),
                "--block-interval must be 1m at most"
            );
            settings.block_interval_ms = ms(interval);
        }
        let busy = self.busy.then_some(Duration::ZERO);
        if let Some(idle) = busy.or(self.idle_interval) {
            anyhow::ensure!(
                idle <= MAX_IDLE_INTERVAL,
                "--idle-interval must be {} at most",
                format_duration(MAX_IDLE_INTERVAL)
            );
            settings.idle_interval_ms = ms(idle);
        }
        settings.validators = validators;
        anyhow::ensure!(
            !self.exchange || (validators >= settings.seats && settings.spares > 0),
            "--exchange needs a validator for each of the {} seats, so that there is none for the machines that wait, and \
             machines that wait: give another --dir, or --spares",
            settings.seats
        );
        settings.accounts = self.accounts.unwrap_or(settings.accounts);
        settings.followers = self.followers.unwrap_or(settings.followers);
        settings.base_port = self.base_port.unwrap_or(settings.base_port);
        Ok(settings)
    }

    /// The settings of a chain with a registry, where options do not name others.
    fn choose_registry(&self, settings: &mut Settings, is_new: bool) -> anyhow::Result<()> {
        let wanted = self.registry || self.changes();
        if wanted && is_new {
            if self.scheme.is_none() {
                SchemeKind::BlsAggregate
                    .name()
                    .clone_into(&mut settings.scheme);
            }
            settings.registry = true;
            let blocks = match settings.scheme == SchemeKind::BlsThreshold.name() {
                true => SHARING_EPOCH_BLOCKS,
                false => REGISTRY_EPOCH_BLOCKS,
            };
            settings.epoch_blocks = EpochLength::new(blocks).expect("not zero");
            settings.block_interval_ms = REGISTRY_BLOCK_INTERVAL_MS;
            settings.idle_interval_ms = 0;
            settings.accounts = REGISTRY_ACCOUNTS;
            settings.spares = match (self.show_registry, self.storm, self.exchange) {
                (true, ..) => show::SPARES,
                (_, true, _) => STORM_SPARES,
                (.., true) => EXCHANGE_SPARES,
                _ => 0,
            };
            if self.exchange {
                settings.validators = self.validators.unwrap_or(setup::MAX_REGISTERED);
                settings.seats = settings.validators;
            }
        }
        anyhow::ensure!(
            !wanted || settings.registry,
            "{} holds a network without a registry: use another --dir, or delete the folder to start anew",
            self.dir.display()
        );
        settings.spares = self.spares.unwrap_or(settings.spares);
        anyhow::ensure!(
            settings.spares == 0 || (self.late.is_none() && self.kill_every.is_none()),
            "{} holds a network of --show-registry, --storm or --exchange, where --late and --kill-every do not work; kill with \
             --storm",
            self.dir.display()
        );
        Ok(())
    }

    async fn drive(self, settings: Settings) -> anyhow::Result<()> {
        let binary = std::env::current_exe().context("cannot find this program's own file")?;
        eprintln!("starting {} validators", settings.validators);
        let mut network = Network::start(&binary, &self.dir, &settings)?;
        network.wait_until_up().await?;
        // A validator that was blocked in an earlier run has no links; the network works without
        // it.
        network.wait_until_linked(LINKS_LIMIT).await;
        let explorer = self.start_explorer(&binary, &settings, &network);
        self.greet(&network, explorer.as_ref());
        let (stop, stopped) = watch::channel(false);
        let (counters, load) = self.start_load(&network, stopped)?;
        let (mut tally, pauses, finalized_before) = self.watch(&mut network, &counters).await?;
        let _ = stop.send(true);
        tally.add(Sample::take(&network).await);
        let finalized = finalized_before..counters.finalized.load(Relaxed);
        drop(explorer);
        let report = match load {
            Some(load) => Some(load.await.context("the load generator failed")??),
            None => None,
        };
        let blocked = blocked(&network).await;
        for place in network.stop() {
            eprintln!("warning: validator {place} did not stop in time and was killed");
        }
        self.report(
            &settings,
            (&tally, &pauses),
            report.as_ref(),
            finalized,
            blocked,
        )
    }

    /// Starts the explorer. If that fails, the network runs without one.
    fn start_explorer(
        &self,
        binary: &Path,
        settings: &Settings,
        network: &Network,
    ) -> Option<ExplorerProcess> {
        if self.no_explorer {
            return None;
        }
        let followers = network.follower_urls();
        let sources = match followers.is_empty() {
            true => network.urls(),
            false => followers,
        };
        ExplorerProcess::start_or_warn(binary, &self.dir, settings, &sources)
    }

    fn greet(&self, network: &Network, explorer: Option<&ExplorerProcess>) {
        let settings = network.settings();
        eprintln!(
            "{} validators run {}, {}, {}",
            settings.validators,
            settings.application.name(),
            settings.protocol.name(),
            settings.scheme
        );
        for (place, url) in network.urls().iter().enumerate() {
            let admin = network.settings().admin_address(place);
            eprintln!("validator {place}: {url}  live page http://{admin}/");
        }
        for (place, url) in network.follower_urls().iter().enumerate() {
            eprintln!("follower {place}:  {url}");
        }
        if let Some(explorer) = explorer {
            eprintln!("explorer:    {}", explorer.url());
        }
        eprintln!("files and logs: {}", self.dir.display());
        let trust = self.dir.join(crate::genesis::TRUST_FILE);
        eprintln!("to sign and to verify: --trust {}", trust.display());
        let payer = setup::payer_key(&self.dir);
        if settings.application == ApplicationKind::OrderOnly {
            eprintln!(
                "to submit two payloads: printf '\\000\\000\\000\\005hello\\000\\000\\000\\005world' | curl -s --data-binary @- \
                 -H 'Content-Type: application/octet-stream' '{}/v1/payloads?wait=finalized'",
                network.urls().first().map_or("URL", String::as_str)
            );
        }
        // Networks made by earlier versions have no payer key.
        if payer.is_file() && settings.application == ApplicationKind::Ledger {
            eprintln!(
                "an account with money: quorate tx transfer --key {} --trust {} --rpc {} --to HEX --amount 100 \
                 --wait",
                payer.display(),
                trust.display(),
                network.urls().first().map_or("URL", String::as_str)
            );
        }
        let faults = network.size().saturating_sub(1) / 3;
        if faults == 0 {
            eprintln!(
                "note: a network of {} is for developing: it tolerates no fault, and stands still as soon as one \
                 validator does",
                network.size()
            );
        }
        match self.duration {
            Some(duration) => eprintln!("running for {} s; Ctrl-C stops", duration.as_secs()),
            None => eprintln!("running until Ctrl-C"),
        }
    }

    #[allow(clippy::type_complexity)]
    fn start_load(
        &self,
        network: &Network,
        stop: watch::Receiver<bool>,
    ) -> anyhow::Result<(
        Arc<LoadCounters>,
        Option<tokio::task::JoinHandle<anyhow::Result<LoadReport>>>,
    )> {
        if self.rate() == 0.0 {
            return Ok((Arc::default(), None));
        }
        let path = self.dir.join(crate::genesis::GENESIS_FILE);
        let urls: Vec<String> = (network.running().into_iter())
            .map(|place| network.client(place).url().to_owned())
            .collect();
        if network.settings().application == ApplicationKind::OrderOnly {
            let counters: Arc<LoadCounters> = Arc::default();
            let (rate, counted) = (self.rate(), counters.clone());
            let load = async move { payloads::run_until(&urls, rate, counted, stop).await };
            return Ok((counters, Some(tokio::spawn(load))));
        }
        let genesis = load_genesis(&path)?;
        let load = Load::new(LoadConfig {
            urls,
            chain: genesis.chain_id(),
            accounts: setup::load_accounts(&self.dir, network.settings().accounts)?,
            rate: self.rate(),
        })?;
        let counters = load.counters();
        let load = async move { Ok(load.run(stop).await) };
        Ok((counters, Some(tokio::spawn(load))))
    }

    /// Shows the status line until it is time to stop. Returns what was measured from the end of the warm-up, and
    /// how many transactions were final at that time.
    async fn watch(
        &self,
        network: &mut Network,
        counters: &LoadCounters,
    ) -> anyhow::Result<(Tally, Pauses, u64)> {
        let start = Instant::now();
        let terminal = std::io::stderr().is_terminal();
        let interval = LINE_INTERVAL[usize::from(!terminal)];
        let mut first: Option<(Tally, u64)> = None;
        let begin = Sample::take(network).await;
        let pauses = Pauses::watch(network);
        let mut last = begin.clone();
        let mut last_final = 0;
        let mut next_line = start + interval;
        let mut next_sample = start + SAMPLE_INTERVAL;
        let mut curve = self.curve.as_deref().map(Curve::new);
        let mut kills = Kills::new(self.kill_every);
        let mut late = Late::new(self.late, network, begin.height())?;
        let mut standstill = Standstill::default();
        let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
        loop {
            let tick = tokio::time::sleep(TICK);
            tokio::select! {
                _ = &mut interrupted => break,
                () = tick => {}
            }
            kills.go_on(network).await?;
            late.go_on(network).await?;
            for (place, status) in network.newly_dead() {
                let alive = |place: &usize| network.process(*place).is_some();
                let left = (0..network.size()).filter(alive).count();
                let needed = network.size() - network.size().saturating_sub(1) / 3;
                eprintln!(
                    "\nvalidator {place} ended ({status}); {left} of {} that were started here are left, and {needed} must \
                     vote:\n{}",
                    network.size(),
                    network.log_tail(place)
                );
            }
            if (0..network.size()).all(|place| network.process(place).is_none()) {
                anyhow::bail!(
                    "all validators that were started here have ended; those that were brought back by hand go on, and \
                     `quorate stop` ends them"
                );
            }
            let elapsed = start.elapsed();
            if first.is_none() && elapsed >= WARM_UP {
                let finalized = counters.finalized.load(Relaxed);
                first = Some((Tally::from(Sample::take(network).await), finalized));
                // Before there was a load the chain may have rested.
                pauses.renew();
            }
            // A process that is killed takes its counters with it.
            if self.kill_every.is_some() && Instant::now() >= next_sample {
                if let Some((tally, _)) = &mut first {
                    tally.add(Sample::take(network).await);
                }
                next_sample = Instant::now() + SAMPLE_INTERVAL;
            }
            if Instant::now() >= next_line {
                let sample = Sample::take(network).await;
                let finalized = counters.finalized.load(Relaxed);
                let blocked = blocked(network).await.len();
                let late = late.describe(network, &sample).await;
                show_line(
                    &sample,
                    &last,
                    finalized - last_final,
                    blocked,
                    &late,
                    terminal,
                );
                standstill.look(network, terminal).await;
                if let Some((tally, _)) = &mut first {
                    tally.add(sample.clone());
                }
                (last, last_final) = (sample, finalized);
                next_line = Instant::now() + interval;
            }
            if let Some(curve) = curve.as_mut().filter(|curve| curve.is_due()) {
                let sample = Sample::take(network).await;
                curve.record(network, &sample)?;
            }
            if self.duration.is_some_and(|duration| elapsed >= duration) {
                break;
            }
        }
        if terminal {
            eprintln!();
        }
        kills.end(network)?;
        if let Some(curve) = &curve {
            curve.write()?;
        }
        Ok(match first {
            Some((tally, finalized)) => (tally, pauses, finalized),
            // The run was too short for a warm-up, so all of it counts.
            None => (Tally::from(begin), pauses, 0),
        })
    }

    fn report(
        &self,
        settings: &Settings,
        (tally, pauses): (&Tally, &Pauses),
        load: Option<&LoadReport>,
        finalized_meanwhile: Range<u64>,
        blocked: Vec<Blocked>,
    ) -> anyhow::Result<()> {
        let figures = tally.figures();
        let load = load.map(|load| &load.total);
        if load.is_some_and(|load| load.offered == 0) {
            eprintln!(
                "warning: no transfer was sent before the run ended: looking up many accounts takes a while. Let it \
                 run for longer (--for), or make fewer accounts (--accounts)"
            );
        }
        let latency = load.map(|load| &load.latency);
        let finalized = load.map_or(0, |load| load.finalized);
        let report = Report {
            validators: settings.validators,
            protocol: settings.protocol.name(),
            scheme: settings.scheme.clone(),
            restarts: tally.restarts(),
            longest_pause_ms: pauses.longest().as_secs_f64() * 1_000.0,
            load: self.rate(),
            tx_latency_ms: Latency {
                p50: latency.and_then(|latency| latency.p50_ms),
                p90: latency.and_then(|latency| latency.p90_ms),
                p99: latency.and_then(|latency| latency.p99_ms),
                p99_9: latency.and_then(|latency| latency.p99_9_ms),
            },
            tx_offered: load.map_or(0, |load| load.offered),
            tx_submitted: load.map_or(0, |load| load.submitted),
            tx_finalized: finalized,
            tx_failed: load.map_or(0, |load| load.failed),
            tx_failed_by_outcome: load
                .map_or_else(BTreeMap::new, |load| load.failed_by_outcome.clone()),
            tx_refused: load.map_or(0, |load| load.refused),
            tx_refused_by_code: load
                .map_or_else(BTreeMap::new, |load| load.refused_by_code.clone()),
            tx_lost: load.map_or(0, |load| load.lost),
            tx_late: load.map_or(0, |load| load.late),
            tx_unsent: load.map_or(0, |load| load.unsent),
            tx_unfinished: load.map_or(0, |load| load.unfinished),
            tx_repeated: load.map_or(0, |load| load.repeated),
            // Count what became final within the measured time; the load ends later.
            tx_per_s: finalized_meanwhile
                .end
                .saturating_sub(finalized_meanwhile.start) as f64
                / figures.seconds.max(0.001),
            figures: figures.clone(),
            blocked,
        };
        if self.json {
            return print_json(&report);
        }
        let ms = |value: Option<f64>| value.map_or("-".to_owned(), |ms| format!("{ms:.1}"));
        let pair = |p50, p99| format!("median {} ms (p99 {} ms)", ms(p50), ms(p99));
        let seconds = figures.seconds.max(0.001);
        let work = &figures.verifications;
        print_fields(&[
            (
                "validators",
                format!(
                    "{} ({}, {}, {})",
                    report.validators,
                    settings.application.name(),
                    report.protocol,
                    report.scheme
                ),
            ),
            ("measured", format!("{seconds:.1} s")),
            (
                "counters of",
                match (figures.validators_measured, report.restarts) {
                    (all, 0) if all == report.validators => "all validators".to_owned(),
                    (some, restarts) => format!(
                        "{some} validators, each while it ran and was in step; {restarts} restarts",
                    ),
                },
            ),
            (
                "blocks",
                format!(
                    "{} ({:.1} per second)",
                    figures.blocks,
                    figures.blocks as f64 / seconds
                ),
            ),
            (
                "block time",
                pair(figures.block_time_ms.p50, figures.block_time_ms.p99),
            ),
            (
                "longest pause",
                match Duration::from_secs_f64(report.longest_pause_ms / 1_000.0) {
                    short if short < LOOK_INTERVAL => format!(
                        "less than {:.1} s without a new block",
                        LOOK_INTERVAL.as_secs_f64()
                    ),
                    longest => format!("{:.1} s without a new block", longest.as_secs_f64()),
                },
            ),
            (
                "finality",
                pair(figures.finality_ms.p50, figures.finality_ms.p99),
            ),
            (
                match settings.application {
                    ApplicationKind::Ledger => "transfers",
                    ApplicationKind::OrderOnly => "payloads",
                },
                format!(
                    "{finalized} of {} applied in the whole run ({:.1} per second while it was measured)",
                    report.tx_offered, report.tx_per_s
                ),
            ),
            (
                match settings.application {
                    ApplicationKind::Ledger => "transfer latency",
                    ApplicationKind::OrderOnly => "payload latency",
                },
                format!(
                    "median {} ms (p90 {}, p99 {}, p99.9 {} ms)",
                    ms(report.tx_latency_ms.p50),
                    ms(report.tx_latency_ms.p90),
                    ms(report.tx_latency_ms.p99),
                    ms(report.tx_latency_ms.p99_9)
                ),
            ),
            (
                "not applied",
                format!(
                    "{} final and failed{}, {} refused{}, {} lost (not final a minute after they were accepted), {} not final yet, {} not sent, {} final already when they were offered again; {} were sent late",
                    report.tx_failed,
                    reasons(&report.tx_failed_by_outcome),
                    report.tx_refused,
                    reasons(&report.tx_refused_by_code),
                    report.tx_lost,
                    report.tx_unfinished,
                    report.tx_unsent,
                    report.tx_repeated,
                    report.tx_late
                ),
            ),
            (
                "cpu per view and node",
                format!("{} ms", ms(figures.cpu_ms_per_view_per_node)),
            ),
            ("largest memory", format!("{:.0} MiB", figures.rss_mb_max)),
            (
                "verifications",
                format!(
                    "{} certificates by {} pairing checks, {} bisections",
                    work.certificates, work.pairing_checks, work.bisections
                ),
            ),
        ])?;
        let lines: Vec<String> = report
            .blocked
            .iter()
            .map(|b| {
                format!(
                    "blocked: validator {} by {} ({})",
                    b.validator, b.by, b.reason
                )
            })
            .collect();
        print_lines(&lines)
    }
}

/// Formats counts by reason, in brackets; empty if there are none.
pub(super) fn reasons(counts: &BTreeMap<String, u64>) -> String {
    let each: Vec<String> = counts
        .iter()
        .map(|(reason, count)| format!("{count} {}", shown(reason)))
        .collect();
    match each.is_empty() {
        true => String::new(),
        false => format!(" ({})", each.join(", ")),
    }
}

/// Prints a message when the chain halts, and when it continues.
#[derive(Default)]
struct Standstill {
    told: bool,
}

impl Standstill {
    /// Decides by the verdicts of all validators that answer within the limit.
    async fn look(&mut self, network: &Network, terminal: bool) {
        let mut halted = None;
        for place in 0..network.size() {
            let asked = tokio::time::timeout(STANDSTILL_PATIENCE, network.client(place).status());
            let Ok(Ok(status)) = asked.await else {
                continue;
            };
            let Some(verdict) = status.verdict else {
                continue;
            };
            match verdict.state {
                Health::Halted => halted = Some((place, verdict)),
                // A validator has new blocks.
                Health::Healthy | Health::NotVoting => {
                    halted = None;
                    break;
                }
                _ => {}
            }
        }
        let text = match (&halted, self.told) {
            (Some((place, verdict)), false) => {
                let remedy = verdict
                    .remedy
                    .as_deref()
                    .map_or_else(String::new, |remedy| format!("; {remedy}"));
                let text = format!(
                    "THE CHAIN STANDS STILL, says validator {place}: {}{remedy}",
                    verdict.summary
                );
                Paint::for_stderr().severity(Severity::Bad, &shown(&text))
            }
            (None, true) => "the chain goes on".to_owned(),
            _ => return,
        };
        self.told = halted.is_some();
        let line = if terminal { "\n" } else { "" };
        eprintln!("{line}{text}");
    }
}

/// How long to wait for each validator's answer on whether the chain has halted.
const STANDSTILL_PATIENCE: Duration = Duration::from_millis(500);

/// How long a killed validator stays down.
const AWAY: Duration = Duration::from_secs(2);

/// Kills validators in turn, and restarts them.
struct Kills {
    every: Option<Duration>,
    next: Instant,
    victim: usize,
    away: Option<(usize, Instant)>,
    /// It has been started again, and is not known to be back.
    coming: Option<usize>,
}

impl Kills {
    fn new(every: Option<Duration>) -> Self {
        Self {
            every,
            next: Instant::now() + every.unwrap_or_default(),
            victim: 0,
            away: None,
            coming: None,
        }
    }

    async fn go_on(&mut self, network: &mut Network) -> anyhow::Result<()> {
        let Some(every) = self.every else {
            return Ok(());
        };
        let now = Instant::now();
        if self.away.is_some_and(|(_, since)| now >= since + AWAY) {
            self.end(network)?;
        }
        if self.away.is_some() || now < self.next {
            return Ok(());
        }
        if let Some(place) = self.coming
            && !is_back(network, place).await
        {
            return Ok(());
        }
        self.coming = None;
        self.next = now + every;
        network.kill(self.victim)?;
        self.away = Some((self.victim, now));
        self.victim = (self.victim + 1) % network.size();
        Ok(())
    }

    /// Restarts the killed validator, if any.
    fn end(&mut self, network: &mut Network) -> anyhow::Result<()> {
        match self.away.take() {
            Some((place, _)) => {
                self.coming = Some(place);
                network.spawn(place, &[])
            }
            None => Ok(()),
        }
    }
}

/// Whether a validator is in sync and has links to all others that were started here and run.
async fn is_back(network: &Network, place: usize) -> bool {
    let Ok(status) = network.client(place).status().await else {
        return false;
    };
    let others = (0..network.size()).filter(|other| *other != place);
    let running = others.filter(|other| network.process(*other).is_some());
    let links = status.peers.iter();
    let links = links.filter(|peer| peer.connected && peer.validator.is_some());
    let in_sync = status.verdict.is_some_and(|it| it.state == Health::Healthy);
    in_sync && links.count() >= running.count()
}

/// A validator that is kept away at first.
struct Late {
    place: usize,
    /// The height at which it starts; `None` once it has, or if there is no such validator.
    starts_at: Option<u64>,
    /// Whether its progress is shown.
    shown: bool,
}

impl Late {
    /// Stops the last validator and removes its database.
    fn new(blocks: Option<u64>, network: &mut Network, height: u64) -> anyhow::Result<Self> {
        let place = network.size() - 1;
        if blocks.is_some() {
            network.kill(place)?;
            let database = network.data_directory(place).join("db");
            std::fs::remove_dir_all(&database)
                .with_context(|| format!("cannot remove {}", database.display()))?;
        }
        Ok(Self {
            place,
            starts_at: blocks.map(|blocks| height.saturating_add(blocks)),
            shown: blocks.is_some(),
        })
    }

    /// Starts it when the chain is old enough.
    async fn go_on(&mut self, network: &mut Network) -> anyhow::Result<()> {
        let Some(starts_at) = self.starts_at else {
            return Ok(());
        };
        let status = network.client(0).status().await;
        if status.is_ok_and(|status| status.finalized_height.0 >= starts_at) {
            self.starts_at = None;
            eprintln!("\nvalidator {} starts, with an empty database", self.place);
            network.spawn(self.place, &[])?;
        }
        Ok(())
    }

    /// What it is doing, for the status line; empty when it is healthy.
    async fn describe(&mut self, network: &Network, sample: &Sample) -> String {
        if !self.shown {
            return String::new();
        }
        let what = match self.starts_at {
            Some(starts_at) => {
                let left = starts_at.saturating_sub(sample.height());
                format!("starts in {left} blocks")
            }
            None => match network.client(self.place).status().await {
                Ok(status) => {
                    let verdict = status.verdict;
                    let is_well = |verdict: &VerdictJson| verdict.state == Health::Healthy;
                    self.shown = !verdict.as_ref().is_some_and(is_well);
                    verdict.map_or_else(String::new, |verdict| verdict.summary)
                }
                Err(_) if network.process(self.place).is_none() => "ended".to_owned(),
                Err(_) => "starting".to_owned(),
            },
        };
        format!("  validator {}: {}", self.place, shown(&what))
    }
}

fn parse_some_time(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("it takes some time".to_owned()),
        time => Ok(time),
    }
}

fn show_line(
    sample: &Sample,
    last: &Sample,
    finalized: u64,
    blocked: usize,
    late: &str,
    terminal: bool,
) {
    let figures = sample.since(last);
    let ms = |value: Option<f64>| value.map_or("-".to_owned(), |ms| format!("{ms:.1} ms"));
    let (peers, answering) = sample.connected();
    let line = format!(
        "height {}  view {}.{}  block time {}  finality {}  {:.0} tx/s  {answering} validators, \
         {peers}+ peers  {blocked} blocked{late}",
        sample.height(),
        sample.epoch(),
        sample.view(),
        ms(figures.block_time_ms.p50),
        ms(figures.finality_ms.p50),
        finalized as f64 / figures.seconds.max(0.001),
    );
    if terminal {
        // Return to the start of the line and clear it.
        eprint!("\r\x1b[2K{line}");
        let _ = std::io::stderr().flush();
    } else {
        eprintln!("{line}");
    }
}

async fn blocked(network: &Network) -> Vec<Blocked> {
    let mut all = Vec::new();
    for by in 0..network.size() {
        let status = network.client(by).status().await;
        let list: Vec<BlockedJson> = status.map_or(Vec::new(), |status| status.blocked);
        all.extend(list.into_iter().map(|blocked| Blocked {
            validator: blocked.validator,
            by,
            reason: blocked.reason,
        }));
    }
    all
}
