//! This node's engine beside commonware's simplex: the same machine, real processes over TCP on
//! loopback, real disks, rotating leaders, one after the other in one run; with empty blocks, or
//! with transfers here and as many bytes in the peer's blocks.
//!
//! Both produce a threshold certificate for each block, send votes only after they are durable, and
//! store final blocks durably. Only this node also executes blocks, keeps an authenticated state
//! with its root in the headers, checks the roots of others, and serves HTTP. The peer's program
//! (`bench/peer`) is built separately, so that nobody else has to build it; `make bench-engines`
//! does.

use crate::{
    ours::{self, OurNetwork, beside, data_folder},
    report::Output,
};
use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};
use quorate_load::{Load, LoadConfig};
use quorate_node::{
    config::load_genesis,
    genesis::GENESIS_FILE,
    localnet::{Sample, setup::load_accounts},
};
use quorate_types::Transaction;
use serde_json::{Value, json};
use std::{
    env,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// How long links and caches warm up before measuring starts.
const WARM_UP: Duration = Duration::from_secs(3);

/// What to run.
#[derive(Args, Clone)]
pub struct EnginesArgs {
    /// Numbers of validators: one comparison for each.
    #[arg(long, value_delimiter = ',', default_values_t = [4, 10])]
    validators: Vec<usize>,
    /// Seconds that each engine is measured.
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// Number of runs of each engine; the engines alternate.
    #[arg(long, default_value_t = 2)]
    rounds: u32,
    /// Transfers per second: one comparison for each number, 0 for empty blocks. The peer's blocks
    /// then carry as many meaningless bytes, and this program uses CPU time to generate the load.
    #[arg(long, value_delimiter = ',', default_values_t = [0.0])]
    transfers: Vec<f64>,
    /// Run only these engines.
    #[arg(long, value_enum, value_delimiter = ',')]
    engine: Vec<Engine>,
    /// First port to listen on.
    #[arg(long, default_value_t = 26_000)]
    base_port: u16,
    /// Folder for data directories (default: the temporary folder).
    #[arg(long)]
    folder: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// A measured engine.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Engine {
    /// This node with its default settings.
    Quorate,
    /// This node with finalize votes delayed by a millisecond to batch them.
    QuorateLinger,
    /// commonware's simplex.
    Peer,
    /// commonware's simplex whose next leader builds before its parent is certified.
    PeerHandoff,
    /// commonware's simplex with stable leaders and optimistic views, a mode that this node does
    /// not have.
    PeerStable,
}

impl Engine {
    fn name(self) -> &'static str {
        match self {
            Self::Quorate => "quorate",
            Self::QuorateLinger => "quorate, 1 ms linger",
            Self::Peer => "commonware",
            Self::PeerHandoff => "commonware, early hand-over",
            Self::PeerStable => "commonware, stable leader",
        }
    }
}

/// An engine's costs, on average over its validators and rounds. Unknown figures are NaN.
#[derive(Clone, Copy, Default)]
pub(crate) struct Figures {
    pub(crate) block_ms: f64,
    pub(crate) finality_p50_ms: f64,
    pub(crate) finality_p99_ms: f64,
    pub(crate) cpu_ms_per_view: f64,
    pub(crate) memory_mib: f64,
    bytes_per_view: f64,
    messages_per_view: f64,
    syncs_per_view: f64,
    checks_per_view: f64,
    payload_bytes_per_block: f64,
}

type Field = (&'static str, &'static str, fn(&mut Figures) -> &mut f64);

const FIELDS: [Field; 10] = [
    ("block_ms", "block time, ms", |f| &mut f.block_ms),
    ("finality_p50_ms", "finality, ms, median", |f| {
        &mut f.finality_p50_ms
    }),
    ("finality_p99_ms", "finality, ms, p99", |f| {
        &mut f.finality_p99_ms
    }),
    ("cpu_ms_per_view", "CPU per view and node, ms", |f| {
        &mut f.cpu_ms_per_view
    }),
    ("memory_mib", "memory per node, MiB", |f| &mut f.memory_mib),
    ("bytes_per_view", "bytes sent per view and node", |f| {
        &mut f.bytes_per_view
    }),
    (
        "messages_per_view",
        "messages sent per view and node",
        |f| &mut f.messages_per_view,
    ),
    ("syncs_per_view", "syncs per view and node", |f| {
        &mut f.syncs_per_view
    }),
    ("checks_per_view", "pairing checks per view and node", |f| {
        &mut f.checks_per_view
    }),
    (
        "payload_bytes_per_block",
        "transactions in a block, bytes",
        |f| &mut f.payload_bytes_per_block,
    ),
];

impl Figures {
    fn get(mut self, field: &Field) -> f64 {
        *(field.2)(&mut self)
    }

    fn mean(rounds: &[Self]) -> Self {
        let mut mean = Self::default();
        for field in &FIELDS {
            let sum: f64 = rounds.iter().map(|round| round.get(field)).sum();
            *(field.2)(&mut mean) = sum / rounds.len() as f64;
        }
        mean
    }
}

/// The folder in which other programs are kept between runs: `quorate` in the user's cache folder.
pub(crate) fn cache_folder() -> anyhow::Result<PathBuf> {
    let given = |name: &str| env::var_os(name).filter(|path| !path.is_empty());
    let cache = given("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(given("HOME")?).join(".cache")));
    let cache = cache.context("neither XDG_CACHE_HOME nor HOME is set: name the folder")?;
    Ok(cache.join("quorate"))
}

/// Syncs of the journal and of executed batches between two samples, over all validators.
pub(crate) fn syncs(after: &Sample, before: &Sample) -> f64 {
    after.growth(before, "quorate_journal_sync_seconds_count")
        + after.growth(before, "quorate_storage_syncs_total")
}

/// Bytes of a transfer in a block.
const TRANSFER_BYTES: f64 = Transaction::MIN_SIZE as f64;

/// The number of accounts that send transfers.
const ACCOUNTS: u32 = 200;

fn ours(
    args: &EnginesArgs,
    validators: usize,
    transfers: f64,
    linger: bool,
) -> anyhow::Result<Figures> {
    let folder = args.folder.as_deref();
    let ours = OurNetwork::prepare("bench-engines", validators, args.base_port, folder, |it| {
        it.accounts = ACCOUNTS;
    })?;
    if linger {
        for place in 0..validators {
            ours.configure(place, &[("finalize_linger", "1ms")])?;
        }
    }
    let binary = beside("quorate")?;
    let runtime = tokio::runtime::Runtime::new().context("starting a runtime")?;
    runtime.block_on(async {
        let network = ours.start(&binary, |_| Vec::new()).await?;
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let load = match transfers > 0.0 {
            true => {
                let genesis = load_genesis(&ours.folder().join(GENESIS_FILE))?;
                let load = Load::new(LoadConfig {
                    urls: network.urls(),
                    chain: genesis.chain_id(),
                    accounts: load_accounts(ours.folder(), ACCOUNTS)?,
                    rate: transfers,
                })?;
                Some(tokio::spawn(load.run(stopped)))
            }
            false => None,
        };
        tokio::time::sleep(WARM_UP).await;
        let before = Sample::take(&network).await;
        tokio::time::sleep(Duration::from_secs(args.seconds)).await;
        let after = Sample::take(&network).await;
        stop.send_replace(true);
        if let Some(load) = load {
            load.await.context("the load generator failed")?;
        }
        ours::end(network)?;
        let figures = after.since(&before);
        ensure!(figures.blocks > 0, "no block became final");
        let views = after.growth(&before, "quorate_consensus_views_total");
        let per_view = |name: &str| after.growth(&before, name) / views;
        Ok(Figures {
            block_ms: figures.seconds * 1e3 / figures.blocks as f64,
            finality_p50_ms: figures.finality_ms.p50.unwrap_or(f64::NAN),
            finality_p99_ms: figures.finality_ms.p99.unwrap_or(f64::NAN),
            cpu_ms_per_view: figures.cpu_ms_per_view_per_node.unwrap_or(f64::NAN),
            memory_mib: after.rss_mib_max(),
            bytes_per_view: per_view("quorate_p2p_sent_bytes_total"),
            messages_per_view: per_view("quorate_p2p_frames_sent_total"),
            syncs_per_view: syncs(&after, &before) / views,
            checks_per_view: per_view("quorate_crypto_pairing_checks_total"),
            payload_bytes_per_block: TRANSFER_BYTES
                * after.growth(&before, "quorate_executor_transactions_total")
                / (figures.blocks as f64 * validators as f64),
        })
    })
}

/// commonware's simplex, in separate processes.
pub(crate) struct Peer<'a> {
    pub(crate) validators: usize,
    pub(crate) base_port: u16,
    pub(crate) seconds: u64,
    pub(crate) folder: Option<&'a Path>,
    /// Bytes in each block.
    pub(crate) payload_bytes: f64,
}

impl Peer<'_> {
    /// Runs it once, with these arguments in addition to the usual ones.
    pub(crate) fn run(&self, more: &[&str]) -> anyhow::Result<Figures> {
        let folder = data_folder(self.folder)?;
        let binary = beside("quorate-bench-peer")?;
        let mut children = Vec::new();
        for index in 0..self.validators {
            let child = Command::new(&binary)
                .args(["--index", &index.to_string()])
                .args(["--validators", &self.validators.to_string()])
                .args(["--base-port", &self.base_port.to_string()])
                .args(["--seconds", &self.seconds.to_string()])
                .args(["--warm-up-ms", &WARM_UP.as_millis().to_string()])
                .args(["--payload-bytes", &format!("{:.0}", self.payload_bytes)])
                .arg("--dir")
                .arg(folder.path().join(index.to_string()))
                .args(more)
                .stdout(Stdio::piped())
                .spawn()
                .with_context(|| format!("starting {}", binary.display()))?;
            children.push(child);
        }
        peer_figures(children, self.payload_bytes)
    }
}

fn peer_figures(children: Vec<Child>, payload: f64) -> anyhow::Result<Figures> {
    let mut reports: Vec<Value> = Vec::new();
    for child in children {
        let output = child.wait_with_output().context("waiting for a peer")?;
        if !output.status.success() {
            bail!("a peer's process failed ({})", output.status);
        }
        reports.push(serde_json::from_slice(&output.stdout).context("reading a peer's report")?);
    }
    let mean = |value: &dyn Fn(&Value) -> Option<f64>| -> f64 {
        let values: Vec<f64> = reports.iter().filter_map(value).collect();
        values.iter().sum::<f64>() / values.len() as f64
    };
    let number = |report: &Value, name: &str| report[name].as_f64();
    let views =
        |report: &Value| Some(number(report, "last_view")? - number(report, "first_view")? + 1.0);
    let per_view =
        |name: &'static str| mean(&|report| Some(number(report, name)? / views(report)?));
    let memory = reports
        .iter()
        .filter_map(|report| number(report, "rss_bytes"));
    Ok(Figures {
        block_ms: mean(&|r| Some(number(r, "elapsed_us")? / 1e3 / number(r, "finalized")?)),
        finality_p50_ms: mean(&|r| Some(number(r, "finality_us_p50")? / 1e3)),
        finality_p99_ms: mean(&|r| Some(number(r, "finality_us_p99")? / 1e3)),
        cpu_ms_per_view: per_view("cpu_us") / 1e3,
        memory_mib: memory.fold(0.0, f64::max) / 1_048_576.0,
        bytes_per_view: per_view("bytes_sent"),
        messages_per_view: per_view("messages_sent"),
        syncs_per_view: per_view("syncs"),
        checks_per_view: f64::NAN,
        payload_bytes_per_block: payload,
    })
}

/// `payload` is the mean number of bytes in a block of this node.
fn run_one(
    args: &EnginesArgs,
    engine: Engine,
    validators: usize,
    transfers: f64,
    payload: f64,
) -> anyhow::Result<Figures> {
    let peer = Peer {
        validators,
        base_port: args.base_port,
        seconds: args.seconds,
        folder: args.folder.as_deref(),
        payload_bytes: payload,
    };
    match engine {
        Engine::Quorate => ours(args, validators, transfers, false),
        Engine::QuorateLinger => ours(args, validators, transfers, true),
        Engine::Peer => peer.run(&[]),
        Engine::PeerHandoff => peer.run(&["--handoff", "vote"]),
        Engine::PeerStable => peer.run(&["--leaders", "stable"]),
    }
}

fn print_table(engines: &[Engine], figures: &[Figures]) {
    print!("{:34}", "");
    engines
        .iter()
        .for_each(|engine| print!(" {:>28}", engine.name()));
    println!();
    for field in &FIELDS {
        print!("{:34}", field.1);
        for one in figures {
            let value = one.get(field);
            match value.is_nan() {
                true => print!(" {:>28}", "-"),
                false => print!(" {value:>28.2}"),
            }
        }
        println!();
    }
}

/// Runs the comparison and prints its report.
///
/// # Errors
///
/// If an engine does not run, or the report cannot be written.
pub fn run(args: &EnginesArgs) -> anyhow::Result<()> {
    let engines = match args.engine.is_empty() {
        true => Engine::value_variants().to_vec(),
        false => args.engine.clone(),
    };
    let mut results = Vec::new();
    let sizes = args.validators.iter();
    let comparisons = sizes.flat_map(|size| args.transfers.iter().map(|rate| (*size, *rate)));
    for (validators, transfers) in comparisons {
        let mut payload = 0.0;
        let mut rounds: Vec<Vec<Figures>> = vec![Vec::new(); engines.len()];
        for round in 1..=args.rounds {
            for (engine, figures) in engines.iter().zip(&mut rounds) {
                eprintln!("{validators} validators, round {round}: {}", engine.name());
                let measured = run_one(args, *engine, validators, transfers, payload)?;
                if *engine == Engine::Quorate {
                    payload = measured.payload_bytes_per_block;
                }
                figures.push(measured);
            }
        }
        let means: Vec<Figures> = rounds.iter().map(|rounds| Figures::mean(rounds)).collect();
        println!(
            "{validators} validators, {transfers} transfers/s, {} × {} s",
            args.rounds, args.seconds
        );
        print_table(&engines, &means);
        let place = |engine| engines.iter().position(|other| *other == engine);
        if let (Some(ours), Some(peer)) = (place(Engine::Quorate), place(Engine::Peer)) {
            let ratio = |field: &Field| means[peer].get(field) / means[ours].get(field);
            let words = FIELDS.iter().filter(|field| ratio(field).is_finite());
            let words: Vec<String> = words
                .map(|field| format!("{} {:.2}", field.0, ratio(field)))
                .collect();
            println!("commonware ÷ quorate: {}\n", words.join(", "));
        }
        let described = engines.iter().zip(&means).map(|(engine, figures)| {
            let fields = FIELDS.iter().map(|field| {
                let value = figures.get(field);
                (
                    field.0.to_owned(),
                    value.is_finite().then_some(value).into(),
                )
            });
            (engine.name().to_owned(), Value::Object(fields.collect()))
        });
        results.push(json!({
            "validators": validators,
            "transfers_per_second": transfers,
            "engines": Value::Object(described.collect()),
        }));
    }
    args.output.write(
        "engines",
        &json!({ "rounds": args.rounds, "seconds": args.seconds, "comparisons": results }),
    )
}
