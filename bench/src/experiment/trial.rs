//! One trial: a network of processes, load, a fault in the middle, and everything that is sampled
//! meanwhile.
//!
//! Figures come from the validators' own counters and from the kernel's accounting of their
//! processes, read once a second; nothing is parsed from logs.

use super::{
    network::{self, Wires},
    plan::{Fault, Plan, Point, Signing, Switch, To},
    slow::{Duty, Slow},
};
use crate::{
    engines::syncs,
    ours::{self, OurNetwork, beside, knows_idling},
};
use anyhow::{Context, ensure};
use quorate_links::Emulator;
use quorate_load::{Load, LoadPlan, LoadReport, Pace, Row, Shape, Step};
use quorate_node::{
    config::load_genesis,
    genesis::GENESIS_FILE,
    localnet::{Network, Sample, setup::load_accounts},
};
use quorate_types::EpochLength;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// The number of accounts that send transfers.
const ACCOUNTS: u32 = 1_000;

/// The generator's requests in flight, over all validators.
const REQUESTS: usize = 128;

/// How long a validator may take to start, before faults are timed.
const START_ALLOWANCE: Duration = Duration::from_millis(400);

/// How long the signature of a transfer may take, before load that is signed ahead.
const SIGNING_ALLOWANCE: Duration = Duration::from_micros(40);

/// Timeout until each validator has a link to every other.
const LINKS_LIMIT: Duration = Duration::from_secs(60);

/// A trial's results.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Trial {
    /// The format version.
    pub(crate) format: u32,
    pub(crate) point: Point,
    /// The number of the repetition, from 1.
    pub(crate) repeat: u32,
    /// When it began.
    pub(crate) unix_seconds: u64,
    /// The machine that it ran on.
    pub(crate) machine: Value,
    /// Figures of the whole measured time, by name.
    pub(crate) figures: BTreeMap<String, f64>,
    /// The load generator's report.
    pub(crate) load: LoadReport,
    /// Figures of each second.
    pub(crate) seconds: Vec<Second>,
    /// Faults and repairs, with the time in seconds from the beginning of the measured time.
    pub(crate) events: Vec<(f64, String)>,
    /// How accurate the links were, if there were any.
    pub(crate) links: Option<String>,
}

/// The figures of one second.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Second {
    /// The end of the second, from the beginning of the measured time.
    pub(crate) until: f64,
    /// Blocks that became final.
    pub(crate) blocks: f64,
    /// The median time to finality.
    pub(crate) finality_ms: Option<f64>,
    /// Transfers that became final and were applied.
    pub(crate) goodput: Option<f64>,
    /// The [`QUANTILES`] of their latencies from when they were due.
    pub(crate) latency_ms: Vec<f64>,
    /// CPU time per second, of all validators.
    pub(crate) cpu_seconds: f64,
    /// Memory of the largest validator.
    pub(crate) rss_mib: f64,
    /// The number of validators that answered.
    pub(crate) answering: usize,
}

/// The format version of [`Trial`].
pub(crate) const FORMAT: u32 = 1;

/// The quantiles of each second's latencies.
pub(crate) const QUANTILES: [f64; 6] = [0.25, 0.5, 0.75, 0.9, 0.99, 1.0];

/// Where trials run.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    /// The validators' program; `None` for the one in the same folder as this program.
    pub(crate) binary: Option<&'a Path>,
    /// The validators' first port.
    pub(crate) base_port: u16,
    /// The folder for data directories; `None` for the temporary folder.
    pub(crate) folder: Option<&'a Path>,
}

/// Whether it needs the lab build: validators that misbehave, that check votes in a non-default way, or that do not
/// filter.
fn needs_lab(point: &Point) -> bool {
    point.fault == Fault::InvalidSigners
        || point.checking != "together"
        || point.filtering == Switch::Off
}

/// Runs a trial.
pub(crate) fn run(
    plan: &Plan,
    point: &Point,
    repeat: u32,
    place: &Place<'_>,
) -> anyhow::Result<Trial> {
    // Only chains with this name let their validators misbehave.
    let (name, base_port) = ("chaos-experiment", place.base_port);
    let ours = OurNetwork::prepare(name, point.validators, base_port, place.folder, |it| {
        it.scheme = point.scheme.clone();
        it.protocol = point.protocol;
        it.block_limits.max_transactions = point.batch;
        it.accounts = ACCOUNTS;
        if let Some(length) = EpochLength::new(point.registry) {
            it.registry = true;
            it.epoch_blocks = length;
        }
    })?;
    let binary = match (place.binary, point.cryptography) {
        (Some(binary), _) => binary.to_owned(),
        (None, Switch::On) if needs_lab(point) => beside("quorate-lab")?,
        (None, Switch::On) => beside("quorate")?,
        (None, Switch::Off) => beside("quorate-lab-cryptography-off")
            .context("`make cryptography-off` builds the program without signatures")?,
    };
    if place.binary.is_some() && !knows_idling(&binary)? {
        for place in 0..point.validators {
            ours.remove_key(place, "idle_interval")?;
        }
    }
    let wires = Wires::of(point)?;
    let mut keys = vec![
        ("finalize_linger", point.linger.as_str()),
        ("min_block_interval", point.interval.as_str()),
    ];
    if wires.is_some() {
        keys.push(("timing", "wide"));
    }
    for place in 0..point.validators {
        ours.configure(place, &keys)?;
    }
    let (emulator, exactness) = match &wires {
        Some(wires) => {
            let exactness = wires.exactness()?;
            let emulator = wires.start(&ours.settings, plan.seed + u64::from(repeat))?;
            network::redirect(ours.folder(), &ours.settings, &emulator)?;
            (Some(emulator), Some(exactness))
        }
        None => (None, None),
    };
    let bench = Bench {
        plan,
        point,
        binary: &binary,
        ours: &ours,
        emulator: emulator.as_ref(),
    };
    let runtime = tokio::runtime::Runtime::new().context("starting a runtime")?;
    let mut trial = runtime.block_on(bench.drive())?;
    trial.repeat = repeat;
    if let (Some(emulator), Some(exactness)) = (&emulator, exactness) {
        let late = emulator.lateness();
        let used = emulator.cpu_time().context("asking the links")?;
        let words = format!(
            "{}: {exactness} before the trial; in it half of {} pieces were at most {} µs late, 99 of \
             100 at most {} µs, the latest {} µs, and the links used {:.1} s of processor time.",
            point.name(),
            late.pieces,
            late.p50_us,
            late.p99_us,
            late.max_us,
            used.as_secs_f64()
        );
        trial.links = Some(words);
    }
    Ok(trial)
}

struct Bench<'a> {
    plan: &'a Plan,
    point: &'a Point,
    binary: &'a Path,
    ours: &'a OurNetwork,
    emulator: Option<&'a Emulator>,
}

impl Bench<'_> {
    /// The validators that a fault affects.
    fn victims(&self) -> Vec<usize> {
        let (all, spare) = (self.point.validators, (self.point.validators - 1) / 3);
        match self.point.fault {
            Fault::None if self.point.slow == Slow::None => Vec::new(),
            Fault::None | Fault::Kill => vec![all - 1],
            Fault::InvalidSigners | Fault::Partition => (all - spare..all).collect(),
        }
    }

    async fn drive(&self) -> anyhow::Result<Trial> {
        let victims = self.victims();
        // Forgers are told at their start when to begin.
        let allowance = START_ALLOWANCE * self.point.validators as u32
            + self.plan.warm_up
            + Duration::from_secs(4);
        let start = Instant::now() + allowance;
        let fault_at = SystemTime::now() + allowance + self.plan.measure / 3;
        let fault_ms = fault_at.duration_since(UNIX_EPOCH)?.as_millis();
        let forge = self.point.fault == Fault::InvalidSigners;
        let mut network = self
            .ours
            .start(self.binary, |place| {
                let mut list = self.arguments();
                if forge && victims.contains(&place) {
                    list.extend([
                        "--misbehave".to_owned(),
                        format!("garbage-votes@{fault_ms}"),
                    ]);
                }
                list
            })
            .await?;
        ensure!(
            network.wait_until_linked(LINKS_LIMIT).await,
            "not every validator has links to all others after {} s",
            LINKS_LIMIT.as_secs()
        );
        let last = self.point.validators - 1;
        let duty = match self.point.slow {
            Slow::Processor => {
                let process = network.process(last).context("it runs")?;
                Some(Duty::start(process)?)
            }
            _ => None,
        };
        if self.point.slow == Slow::Dead {
            network.kill(last)?;
        }
        let rows: Arc<Mutex<Vec<Row>>> = Arc::default();
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let ahead = self.signs_ahead();
        let start = match forge {
            true => start,
            false => Instant::now() + self.plan.warm_up + ahead.unwrap_or_default(),
        };
        let load_starts = start
            .checked_sub(self.plan.warm_up)
            .context("the warm-up is too long")?;
        ensure!(
            !forge || Instant::now() < load_starts,
            "the validators took too long to start: this machine is too busy"
        );
        let mut plan = self.load(&network, rows.clone())?;
        match ahead {
            Some(_) => plan.ahead = Some(load_starts),
            None => tokio::time::sleep_until(load_starts.into()).await,
        }
        let load = tokio::spawn(Load::new(plan)?.run(stopped));
        tokio::time::sleep_until(start.into()).await;
        let sampled = self.sample(&mut network, start, &victims).await?;
        drop((stop, duty));
        let report = load.await.context("the load generator failed")?;
        ours::end(network)?;
        let mut seconds = sampled.seconds;
        let rows = rows.lock().expect("nobody panics with it");
        // The generator's seconds began with the warm-up.
        let skip = self.plan.warm_up.as_secs_f64().round() as usize;
        for (second, row) in seconds.iter_mut().zip(rows.iter().skip(skip)) {
            second.goodput = Some(row.finalized as f64);
            let quantiles = QUANTILES
                .iter()
                .filter_map(|q| row.latencies.quantile_ms(*q));
            second.latency_ms = quantiles.collect();
        }
        let mut figures = sampled.figures;
        let total = &report.total;
        figures.insert("offered".to_owned(), total.offered_per_s);
        figures.insert("goodput".to_owned(), total.goodput_per_s);
        for (name, value) in [
            ("latency_p50_ms", total.latency.p50_ms),
            ("latency_p99_ms", total.latency.p99_ms),
            ("latency_mean_ms", total.latency.mean_ms),
        ] {
            figures.insert(name.to_owned(), value.unwrap_or(f64::NAN));
        }
        figures.retain(|_, value| value.is_finite());
        Ok(Trial {
            format: FORMAT,
            point: self.point.clone(),
            repeat: 0,
            unix_seconds: SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs(),
            machine: crate::report::machine(),
            figures,
            load: report,
            seconds,
            events: sampled.events,
            links: None,
        })
    }

    /// How long signing all transfers before the load may take, if they are.
    fn signs_ahead(&self) -> Option<Duration> {
        let lasts = self.plan.warm_up + self.plan.measure;
        let all = self.point.rate * lasts.as_secs_f64();
        (self.point.signing == Signing::Ahead).then(|| SIGNING_ALLOWANCE.mul_f64(all))
    }

    /// What the lab's validators are told to do in another way than usually.
    fn arguments(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        if self.point.checking != "together" {
            arguments.extend(["--checking", &self.point.checking]);
        }
        if self.point.filtering == Switch::Off {
            arguments.extend(["--filtering", "off"]);
        }
        arguments.into_iter().map(str::to_owned).collect()
    }

    fn load(&self, network: &Network, rows: Arc<Mutex<Vec<Row>>>) -> anyhow::Result<LoadPlan> {
        let genesis = load_genesis(&self.ours.folder().join(GENESIS_FILE))?;
        let mut urls = network.urls();
        if self.point.to == To::One {
            urls.truncate(1);
        }
        let shape = match self.point.clients {
            0 => Shape::Open(vec![
                Step {
                    rate: self.point.rate,
                    lasts: Some(self.plan.warm_up),
                    warm_up: true,
                },
                Step::new(self.point.rate, Some(self.plan.measure)),
            ]),
            clients => Shape::Closed {
                clients,
                lasts: Some(self.plan.warm_up + self.plan.measure),
            },
        };
        Ok(LoadPlan {
            roots: quorate_http::client::Roots::default(),
            pace: Pace {
                connections: (REQUESTS / urls.len()).max(2),
                batch: if self.point.clients > 0 { 1 } else { 100 },
                payload_bytes: self.point.payload,
                copies: self.point.to == To::Each,
                ..Pace::default()
            },
            urls,
            chain: genesis.chain_id(),
            accounts: load_accounts(self.ours.folder(), ACCOUNTS)?,
            shape,
            drain: self.plan.drain,
            ahead: None,
            used: None,
            hurry: None,
            on_row: Some(Box::new(move |row| {
                rows.lock()
                    .expect("nobody panics with it")
                    .push(row.clone());
            })),
        })
    }

    /// Samples the measured time, and injects the fault.
    async fn sample(
        &self,
        network: &mut Network,
        start: Instant,
        victims: &[usize],
    ) -> anyhow::Result<Sampled> {
        let mut sampled = Sampled::default();
        let third = self.plan.measure / 3;
        let mut steps = match self.point.fault {
            Fault::None => Vec::new(),
            Fault::InvalidSigners => vec![third],
            Fault::Kill | Fault::Partition => vec![third, third * 2],
        }
        .into_iter()
        .enumerate()
        .peekable();
        // The figures are always those of the validators without faults.
        let take = async |network: &Network| Sample::take(network).await.without(victims);
        let first = take(network).await;
        let mut last = first.clone();
        for second in 1..=self.plan.measure.as_secs().max(1) {
            let end = start + Duration::from_secs(second);
            while let Some((place, at)) = steps.next_if(|(_, at)| start + *at < end) {
                tokio::time::sleep_until((start + at).into()).await;
                let what = self.apply_fault(network, victims, place == 0)?;
                sampled.events.push((at.as_secs_f64(), what));
            }
            tokio::time::sleep_until(end.into()).await;
            let now = take(network).await;
            let figures = now.since(&last);
            let views = now.growth(&last, "quorate_consensus_views_total");
            sampled.seconds.push(Second {
                until: start.elapsed().as_secs_f64(),
                blocks: figures.blocks as f64,
                finality_ms: figures.finality_ms.p50,
                cpu_seconds: figures.cpu_ms_per_view_per_node.unwrap_or(0.0) * views / 1e3,
                rss_mib: now.rss_mib_max(),
                answering: now.connected().1,
                ..Second::default()
            });
            last = now;
        }
        sampled.figures = self.figures(&first, &last);
        Ok(sampled)
    }

    fn apply_fault(
        &self,
        network: &mut Network,
        victims: &[usize],
        begin: bool,
    ) -> anyhow::Result<String> {
        let names = victims
            .iter()
            .map(usize::to_string)
            .collect::<Vec<_>>()
            .join(", ");
        Ok(match (self.point.fault, begin) {
            (Fault::Kill, true) => {
                network.kill(victims[0])?;
                format!("validator {names} is killed")
            }
            (Fault::Kill, false) => {
                let arguments = self.arguments();
                let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                network.spawn(victims[0], &arguments)?;
                format!("validator {names} is started again")
            }
            (Fault::Partition, true) => {
                let emulator = self.emulator.context("a partition needs links")?;
                let rest = (0..self.point.validators).filter(|place| !victims.contains(place));
                emulator.partition(&[victims.to_vec(), rest.collect()])?;
                format!("validators {names} are cut off")
            }
            (Fault::Partition, false) => {
                self.emulator.context("a partition needs links")?.heal()?;
                format!("validators {names} are back")
            }
            _ => format!("validators {names} begin to forge"),
        })
    }

    fn figures(&self, first: &Sample, last: &Sample) -> BTreeMap<String, f64> {
        let figures = last.since(first);
        let growth = |name: &str| last.growth(first, name);
        let (views, blocks) = (
            growth("quorate_consensus_views_total"),
            figures.blocks as f64,
        );
        let nodes = last.connected().1 as f64;
        let cpu = figures.cpu_ms_per_view_per_node.unwrap_or(f64::NAN) * views;
        let transactions = growth("quorate_executor_transactions_total") / nodes;
        let all = [
            ("block_ms", figures.seconds * 1e3 / blocks),
            (
                "block_p50_ms",
                figures.block_time_ms.p50.unwrap_or(f64::NAN),
            ),
            (
                "block_p99_ms",
                figures.block_time_ms.p99.unwrap_or(f64::NAN),
            ),
            (
                "finality_p50_ms",
                figures.finality_ms.p50.unwrap_or(f64::NAN),
            ),
            (
                "finality_p99_ms",
                figures.finality_ms.p99.unwrap_or(f64::NAN),
            ),
            ("cpu_ms_per_block_and_node", cpu / nodes / blocks),
            ("cpu_ms_per_transfer", cpu / transactions),
            ("transfers_per_block", transactions / blocks),
            ("memory_mib", figures.rss_mb_max),
            (
                "messages_per_view",
                growth("quorate_p2p_frames_sent_total") / views,
            ),
            (
                "bytes_per_view",
                growth("quorate_p2p_sent_bytes_total") / views,
            ),
            (
                "bytes_per_message",
                growth("quorate_p2p_sent_bytes_total") / growth("quorate_p2p_frames_sent_total"),
            ),
            (
                "checks_per_view",
                growth("quorate_crypto_pairing_checks_total") / views,
            ),
            (
                "spoiled_checks",
                growth("quorate_crypto_spoiled_checks_total") / nodes,
            ),
            ("syncs_per_view", syncs(last, first) / views),
        ];
        all.into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }
}

#[derive(Default)]
struct Sampled {
    figures: BTreeMap<String, f64>,
    seconds: Vec<Second>,
    events: Vec<(f64, String)>,
}

/// Writes a trial atomically.
pub(crate) fn write(trial: &Trial, path: &Path) -> anyhow::Result<()> {
    let text = serde_json::to_string(trial).context("a trial as JSON")?;
    let unfinished = path.with_extension("part");
    fs::write(&unfinished, text).with_context(|| format!("writing {}", unfinished.display()))?;
    fs::rename(&unfinished, path).with_context(|| format!("writing {}", path.display()))
}
