//! Other systems under the same load: this node, commonware's simplex, and whatever `quorate-others`
//! has adapters for, one after the other on the same machine, and a table that says what each of
//! them verifies, executes, persists and syncs meanwhile.
//!
//! The load is an open loop of transactions as long as this node's transfers, dealt to all validators.
//! commonware's simplex is a library without transactions: its blocks carry as many bytes as ours
//! did, its latency is its finality, and it has no goodput.

use crate::{
    engines::{self, Peer},
    experiment::{
        plan::{Plan, Point},
        trial,
    },
    ours::data_folder,
    report::Output,
};
use anyhow::{Context, ensure};
use clap::Args;
use quorate_load::StepReport;
use quorate_others::{Description, Figures, Load, SYSTEMS, System, named};
use quorate_types::Transaction;
use serde_json::{Value, json};
use std::{fs, path::PathBuf, time::Duration};

/// Load before figures count, and after.
const WARM_UP: Duration = Duration::from_secs(3);
const DRAIN: Duration = Duration::from_secs(5);

const QUORATE: &str = "quorate";
const COMMONWARE: &str = "commonware";

/// What to run.
#[derive(Args, Clone)]
pub struct OthersArgs {
    /// Run these only: quorate, commonware, cometbft, cometbft-quick.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    system: Vec<String>,
    /// How many validators each has.
    #[arg(long, default_value_t = 4)]
    validators: usize,
    /// Transactions per second: one table for each number.
    #[arg(long, value_delimiter = ',', default_values_t = [200.0, 1_000.0])]
    rate: Vec<f64>,
    /// How long each is measured.
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// The folder in which other systems' programs are installed (default: quorate/others in the
    /// user's cache folder).
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// The first port to listen on.
    #[arg(long, default_value_t = 28_000)]
    base_port: u16,
    /// The folder in which data directories are made (default: the temporary folder).
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

enum Candidate {
    Quorate,
    Commonware,
    Other(&'static dyn System),
}

impl Candidate {
    fn named(name: &str) -> anyhow::Result<Self> {
        match name {
            QUORATE => Ok(Self::Quorate),
            COMMONWARE => Ok(Self::Commonware),
            other => named(other).map(Self::Other).with_context(|| {
                let all = SYSTEMS.map(|system| system.describe().name).join(", ");
                format!("there is no system {other:?}; known: {QUORATE}, {COMMONWARE}, {all}")
            }),
        }
    }

    fn describe(&self) -> Description {
        match self {
            Self::Quorate => OURS,
            Self::Commonware => PEER,
            Self::Other(system) => system.describe(),
        }
    }
}

const OURS: Description = Description {
    name: QUORATE,
    version: env!("CARGO_PKG_VERSION"),
    consensus: "simplex: propose, notarize, finalize; a block is final three message delays after its \
                proposal, the next one begins after two; the leader changes with each view",
    verifies: "a quorum of buffered votes with one BLS12-381 check (threshold signatures); the \
               ed25519 signature of each transaction at each validator, in batches",
    executes: "transfers between accounts; an authenticated state whose root stands in the headers, \
               with proofs",
    persists: "each own vote in a journal, synced before it leaves; blocks, receipts and state in RocksDB, \
               synced",
    syncs: "ranges of blocks with certificates, many verified by one check",
    latency_means: "from when a transfer was due until the generator reads it in a final, executed block",
    settings: "as `quorate localnet` makes them; no least time between blocks",
    caveats: "the load generator's own reading of blocks is served by a validator",
};

const PEER: Description = Description {
    name: COMMONWARE,
    version: "2026.10.0",
    consensus: "simplex, rotating leaders, with marshal, archives and broadcast",
    verifies: "a quorum of votes recovered to a threshold signature and verified once; no transactions",
    executes: "nothing: its blocks carry opaque bytes, as many as ours did in this run",
    persists: "its write-ahead log, synced before votes leave; blocks and certificates in archives",
    syncs: "blocks and certificates from peers; it has no state",
    latency_means: "from a block's proposal to its finality, as seen by its leader; no client is in it",
    settings: "the timing and archives of bench/peer, the same for all comparisons",
    caveats: "a library with a program of ours around it; a block's finality is shorter than what a \
              client would wait, who comes between two blocks",
};

impl OthersArgs {
    fn load(&self, rate: f64) -> Load {
        Load {
            validators: self.validators,
            rate,
            transaction_bytes: Transaction::MIN_SIZE,
            warm_up: WARM_UP,
            measure: Duration::from_secs(self.seconds),
            drain: DRAIN,
        }
    }

    fn ours(&self, rate: f64) -> anyhow::Result<Figures> {
        let plan = Plan::parse(&format!(
            "title = \"others\"\nabout = \"the same load\"\nwarm_up = \"{}s\"\nmeasure = \"{}s\"\n\
             drain = \"{}s\"\n[parameters]\nvalidators = {}\nrate = {rate}\n",
            WARM_UP.as_secs(),
            self.seconds,
            DRAIN.as_secs(),
            self.validators
        ))?;
        let points: Vec<Point> = plan.points();
        let place = trial::Place {
            binary: None,
            base_port: self.base_port,
            folder: self.folder.as_deref(),
        };
        let trial = trial::run(&plan, &points[0], 1, &place)?;
        let figure = |name: &str| trial.figures.get(name).copied().unwrap_or(f64::NAN);
        Ok(Figures {
            offered_per_s: figure("offered"),
            goodput_per_s: figure("goodput"),
            unfinished_percent: unfinished_percent(&trial.load.total),
            block_ms: figure("block_ms"),
            transactions_per_block: figure("transfers_per_block"),
            latency_p50_ms: figure("latency_p50_ms"),
            latency_p99_ms: figure("latency_p99_ms"),
            cpu_ms_per_block_and_node: figure("cpu_ms_per_block_and_node"),
            memory_mib_max: figure("memory_mib"),
        })
    }

    /// `transactions_per_block` are ours.
    fn peer(&self, transactions_per_block: f64) -> anyhow::Result<Figures> {
        let peer = Peer {
            validators: self.validators,
            base_port: self.base_port,
            seconds: self.seconds,
            folder: self.folder.as_deref(),
            payload_bytes: transactions_per_block * Transaction::MIN_SIZE as f64,
        };
        let figures = peer.run(&[])?;
        Ok(Figures {
            offered_per_s: f64::NAN,
            goodput_per_s: f64::NAN,
            unfinished_percent: f64::NAN,
            block_ms: figures.block_ms,
            transactions_per_block: f64::NAN,
            latency_p50_ms: figures.finality_p50_ms,
            latency_p99_ms: figures.finality_p99_ms,
            cpu_ms_per_block_and_node: figures.cpu_ms_per_view,
            memory_mib_max: figures.memory_mib,
        })
    }
}

/// Of the transfers that were offered, the part that did not become final.
fn unfinished_percent(total: &StepReport) -> f64 {
    let missing = total.offered.saturating_sub(total.finalized) as f64;
    100.0 * missing / total.offered as f64
}

/// Runs all systems and prints the tables.
///
/// # Errors
///
/// When a system cannot be installed or run, or the report cannot be written.
pub fn run(args: &OthersArgs) -> anyhow::Result<()> {
    let all = || {
        let others = SYSTEMS.iter().map(|system| system.describe().name);
        [QUORATE, COMMONWARE].into_iter().chain(others)
    };
    let names: Vec<String> = match args.system.is_empty() {
        true => all().map(str::to_owned).collect(),
        false => args.system.clone(),
    };
    let candidates = names
        .iter()
        .map(|name| Candidate::named(name))
        .collect::<anyhow::Result<Vec<_>>>()?;
    ensure!(!args.rate.is_empty(), "give at least one --rate");
    args.rate
        .iter()
        .try_for_each(|rate| args.load(*rate).check())?;
    let programs = match &args.programs {
        Some(programs) => programs.clone(),
        None => engines::cache_folder()?.join("others"),
    };
    // What can go wrong at once is to go wrong before anything is measured.
    for candidate in &candidates {
        if let Candidate::Other(system) = candidate {
            eprintln!("installing {}", system.describe().name);
            system.install(&programs)?;
        }
    }
    let folder = data_folder(args.folder.as_deref())?;
    let mut results = Vec::new();
    for (round, rate) in args.rate.iter().enumerate() {
        let mut measured = Vec::new();
        let mut per_block = 0.0;
        for (place, candidate) in candidates.iter().enumerate() {
            let name = candidate.describe().name;
            eprintln!(
                "{} validators, {rate} transactions/s: {name}",
                args.validators
            );
            let figures = match candidate {
                Candidate::Quorate => args.ours(*rate)?,
                Candidate::Commonware => args.peer(per_block)?,
                Candidate::Other(system) => {
                    let folder = folder.path().join(format!("{round}-{place}"));
                    fs::create_dir_all(&folder)
                        .with_context(|| format!("creating {}", folder.display()))?;
                    system
                        .run(&programs, &folder, args.base_port, &args.load(*rate))
                        .with_context(|| format!("running {name}"))?
                }
            };
            if matches!(candidate, Candidate::Quorate) {
                per_block = figures.transactions_per_block;
            }
            measured.push((name, figures));
        }
        println!(
            "{} validators, {rate} transactions/s of {} bytes, {} s",
            args.validators,
            Transaction::MIN_SIZE,
            args.seconds
        );
        print_table(&measured);
        results.push(json!({
            "transactions_per_second": rate,
            "systems": measured
                .iter()
                .map(|(name, figures)| Ok(((*name).to_owned(), serde_json::to_value(figures)?)))
                .collect::<anyhow::Result<serde_json::Map<String, Value>>>()?,
        }));
    }
    let descriptions: Vec<Description> = candidates.iter().map(Candidate::describe).collect();
    descriptions.iter().for_each(print_description);
    args.output.write(
        "others",
        &json!({
            "validators": args.validators,
            "transaction_bytes": Transaction::MIN_SIZE,
            "seconds": args.seconds,
            "comparisons": results,
            "systems": descriptions,
        }),
    )
}

fn print_table(measured: &[(&str, Figures)]) {
    type Column = (&'static str, fn(&Figures) -> f64);
    let columns: [Column; 9] = [
        ("offered/s", |f| f.offered_per_s),
        ("goodput/s", |f| f.goodput_per_s),
        ("unfinished %", |f| f.unfinished_percent),
        ("block ms", |f| f.block_ms),
        ("per block", |f| f.transactions_per_block),
        ("p50 ms", |f| f.latency_p50_ms),
        ("p99 ms", |f| f.latency_p99_ms),
        ("CPU ms*", |f| f.cpu_ms_per_block_and_node),
        ("MiB", |f| f.memory_mib_max),
    ];
    print!("{:16}", "");
    columns.iter().for_each(|(title, _)| print!(" {title:>12}"));
    println!();
    for (name, figures) in measured {
        print!("{name:16}");
        for (_, figure) in &columns {
            let value = figure(figures);
            match value.is_finite() {
                true => print!(" {value:>12.1}"),
                false => print!(" {:>12}", "-"),
            }
        }
        println!();
    }
    println!("* per block and validator\n");
}

fn print_description(system: &Description) {
    println!("{} {}", system.name, system.version);
    for (title, text) in [
        ("consensus", system.consensus),
        ("verifies", system.verifies),
        ("executes", system.executes),
        ("persists", system.persists),
        ("syncs", system.syncs),
        ("latency", system.latency_means),
        ("settings", system.settings),
        ("mind", system.caveats),
    ] {
        println!("  {title:10} {text}");
    }
    println!();
}
