//! The continuous benchmark: a fixed short suite whose results are judged and kept.
//!
//! There are three kinds of figures. *Exact* figures come from virtual time and are the same on
//! every machine; the accepted ones are in `bench/exact.jsonl`, and `gate` compares with them.
//! *Times* mean something only beside those of another build on the same machine within the same
//! minutes, so the baseline's programs and this build's run alternately. The rest is *kept* per
//! machine, to be looked at.

mod exact;
mod kernels;
mod loopback;

use crate::{experiment::trial::Trial, ours::beside};
use anyhow::{Context, bail, ensure};
use clap::Args;
use exact::Exact;
use quorate_history::{
    Better, Commit, Figure, Host, Kind, Record, Validity, Verdict, Watch, callgrind,
    compare::{Side, compare},
    dashboard::Dashboard,
    file,
    gates::{
        Limits,
        deterministic::Tolerances,
        wall::{self, Quadruple},
    },
    histograms::Saved,
    host::MOST_STEAL,
    series,
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

pub use kernels::{KernelArgs, run as kernel};

/// The file of accepted exact figures.
const BLESSED: &str = "bench/exact.jsonl";

/// Stands for an unknown commit.
const UNKNOWN_COMMIT: &str = "0000000";

/// The number of quadruples of kernels and of networks.
const KERNEL_QUADRUPLES: usize = 12;
const NETWORK_QUADRUPLES: usize = 8;

/// How often a kernel is repeated under callgrind.
const COUNTED_TIMES: u32 = 3;

/// Tolerances of exact figures. Allocations are those of the whole process, so the simulator's too,
/// and hash tables with other seeds grow at other times.
fn limits() -> Limits {
    Limits {
        tolerances: Tolerances::of(
            0.005,
            &[
                ("allocations", 0.02),
                ("allocated", 0.03),
                ("instructions", 0.02),
            ],
        ),
        ..Limits::default()
    }
}

#[derive(Args, Clone)]
pub struct GateArgs {
    /// File of accepted exact figures to compare with
    #[arg(long, default_value = BLESSED, value_name = "FILE")]
    against: PathBuf,
    /// Write this build's figures to that file, as the new accepted ones
    #[arg(long)]
    bless: bool,
}

#[derive(Args, Clone)]
pub struct SuiteArgs {
    /// File to append the results to
    #[arg(long, default_value = "bench-history.jsonl", value_name = "FILE")]
    history: PathBuf,
    /// Folder with the baseline's programs, quorate and quorate-bench; without it times are not
    /// judged
    #[arg(long, value_name = "DIR")]
    baseline: Option<PathBuf>,
    /// The baseline's commit
    #[arg(long, value_name = "HASH", requires = "baseline")]
    baseline_commit: Option<String>,
    /// Checkout that was built
    #[arg(long, default_value = ".", value_name = "DIR")]
    checkout: PathBuf,
    /// First port to listen on
    #[arg(long, default_value_t = 27_500, value_name = "P")]
    base_port: u16,
    /// Skip the networks of real processes
    #[arg(long)]
    quick: bool,
}

#[derive(Args, Clone)]
pub struct DashboardArgs {
    /// File of results
    #[arg(long, default_value = "bench-history.jsonl", value_name = "FILE")]
    history: PathBuf,
    /// File to write the page to
    #[arg(long, default_value = "bench-dashboard.html", value_name = "FILE")]
    out: PathBuf,
}

#[derive(Args, Clone)]
pub struct CompareArgs {
    /// First side: a commit in the history, or a file of results
    before: String,
    /// Second side: a commit in the history, or a file of results
    after: String,
    /// File of results
    #[arg(long, default_value = "bench-history.jsonl", value_name = "FILE")]
    history: PathBuf,
}

/// Measures the exact figures and compares them with the accepted ones.
///
/// # Errors
///
/// If a figure is worse than accepted, or something cannot be read, run or written.
pub fn gate(args: &GateArgs) -> anyhow::Result<()> {
    // The figures do not depend on the commit, and a source archive has none.
    let commit = Commit::checked_out(Path::new(".")).unwrap_or(Commit {
        hash: UNKNOWN_COMMIT.to_owned(),
        dirty: true,
        committed: None,
    });
    let records = exact::SCENARIOS
        .iter()
        .map(|exact| exact_record(exact, &commit))
        .collect::<anyhow::Result<Vec<_>>>()?;
    if args.bless {
        let lines = records.iter().map(|record| Ok(record.to_line()? + "\n"));
        let text = lines.collect::<anyhow::Result<String>>()?;
        fs::write(&args.against, text)
            .with_context(|| format!("writing {}", args.against.display()))?;
        println!("{} holds these figures now", args.against.display());
        return Ok(());
    }
    let blessed = read(&args.against)?;
    let (before, after) = (
        Side::newest("blessed", &blessed),
        Side::newest("this build", &records),
    );
    let comparison = compare(&before, &after, &[], &limits())?;
    println!("{comparison}");
    if comparison.failed() {
        bail!(
            "exact figures are worse than those in {}; if that is meant, say why in the commit that \
             changes them with `quorate-bench gate --bless`",
            args.against.display()
        );
    }
    Ok(())
}

/// Runs the suite, judges the results and appends them to the history.
///
/// # Errors
///
/// If something is worse than the baseline, or cannot be run or written.
pub fn suite(args: &SuiteArgs) -> anyhow::Result<()> {
    let commit = Commit::checked_out(&args.checkout)?;
    let baseline = args.baseline_commit.as_ref().map(|hash| Commit {
        hash: hash.clone(),
        dirty: false,
        committed: None,
    });
    let mut records = Vec::new();
    for exact in &exact::SCENARIOS {
        eprintln!("{}", exact.name);
        records.push(exact_record(exact, &commit)?);
    }
    let programs = Programs::find(args.baseline.as_deref())?;
    for name in kernels::NAMES {
        eprintln!("{name}: {KERNEL_QUADRUPLES} quadruples");
        records.push(kernel_record(name, &programs, &commit, baseline.as_ref())?);
    }
    if !args.quick {
        records.push(network_record(
            &programs,
            &commit,
            baseline.as_ref(),
            args.base_port,
        )?);
    }
    let before = match args.history.exists() {
        true => read(&args.history)?,
        false => Vec::new(),
    };
    let mut worse = Vec::new();
    for record in &records {
        if let Some(torn) = file::append(&args.history, record)? {
            eprintln!("note: {torn}");
        }
        worse.extend(judge(record, &before)?);
    }
    println!(
        "\nappended {} records to {}",
        records.len(),
        args.history.display()
    );
    ensure!(
        worse.is_empty(),
        "worse than before:\n  {}",
        worse.join("\n  ")
    );
    println!("nothing is worse");
    Ok(())
}

/// Writes the history as a page.
///
/// # Errors
///
/// If the history cannot be read or the page cannot be written.
pub fn dashboard(args: &DashboardArgs) -> anyhow::Result<()> {
    let contents = file::read(&args.history)?;
    ensure!(
        !contents.records.is_empty(),
        "{} holds no results: `make bench` appends some",
        args.history.display()
    );
    let remarks: Vec<String> = contents.torn.into_iter().collect();
    let page = Dashboard {
        title: "Quorate over time",
        records: &contents.records,
        limits: &limits(),
        reproduce: &["make bench".to_owned(), "make bench-dashboard".to_owned()],
        remarks: &remarks,
    }
    .page()?;
    fs::write(&args.out, page).with_context(|| format!("writing {}", args.out.display()))?;
    println!("{}", args.out.display());
    Ok(())
}

/// Prints the differences between two commits, or two files.
///
/// # Errors
///
/// If one is unknown, or the second is worse.
pub fn compare_sides(args: &CompareArgs) -> anyhow::Result<()> {
    let files: Vec<Option<Vec<Record>>> = [&args.before, &args.after]
        .into_iter()
        .map(|side| match Path::new(side).exists() {
            true => read(Path::new(side)).map(Some),
            false => Ok(None),
        })
        .collect::<anyhow::Result<_>>()?;
    let history = match args.history.exists() {
        true => read(&args.history)?,
        false => Vec::new(),
    };
    let comparison = compare(
        &side(&args.before, files[0].as_deref(), &history)?,
        &side(&args.after, files[1].as_deref(), &history)?,
        &history,
        &limits(),
    )?;
    println!("{comparison}");
    ensure!(!comparison.failed(), "{} is worse", args.after);
    Ok(())
}

fn side<'a>(
    name: &str,
    file: Option<&'a [Record]>,
    history: &'a [Record],
) -> anyhow::Result<Side<'a>> {
    Ok(match file {
        Some(records) => Side::newest(name, records),
        None => Side::commit(history, name)?,
    })
}

fn read(path: &Path) -> anyhow::Result<Vec<Record>> {
    let contents = file::read(path)?;
    if let Some(torn) = &contents.torn {
        eprintln!("note: {torn}");
    }
    Ok(contents.records)
}

/// The programs that run alternately.
struct Programs {
    /// The node and the benchmark of this build.
    own: [PathBuf; 2],
    /// The node and the benchmark of the baseline.
    baseline: Option<[PathBuf; 2]>,
}

impl Programs {
    fn find(baseline: Option<&Path>) -> anyhow::Result<Self> {
        let own = [
            beside("quorate")?,
            std::env::current_exe().context("finding this program")?,
        ];
        let baseline = match baseline {
            None => None,
            Some(folder) => {
                let both = ["quorate", "quorate-bench"].map(|name| folder.join(name));
                for path in &both {
                    ensure!(
                        path.exists(),
                        "the baseline's {} is not there",
                        path.display()
                    );
                }
                Some(both)
            }
        };
        Ok(Self { own, baseline })
    }

    /// Runs the node (0) or the benchmark (1) alternately: baseline, own, own, baseline. Without a
    /// baseline, only the own program.
    fn in_turn<T>(
        &self,
        which: usize,
        quadruples: usize,
        mut run: impl FnMut(&Path) -> anyhow::Result<T>,
    ) -> anyhow::Result<Vec<[Option<T>; 4]>> {
        let own = &self.own[which];
        let baseline = self.baseline.as_ref().map(|both| &both[which]);
        (0..quadruples)
            .map(|_| {
                let first = baseline.map(|path| run(path)).transpose()?;
                let [second, third] = [run(own)?, run(own)?];
                let last = baseline.map(|path| run(path)).transpose()?;
                Ok([first, Some(second), Some(third), last])
            })
            .collect()
    }
}

/// A record of this machine, with the conditions that `watch` has observed until now.
fn new_record(scenario: &str, commit: &Commit, watch: Watch) -> Record {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = now.map_or(0, |since| since.as_secs());
    Record::new(
        scenario,
        commit.clone(),
        Host::this(),
        watch.finish(),
        seconds,
    )
}

/// The median, the upper of two middle values.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn exact_record(exact: &Exact, commit: &Commit) -> anyhow::Result<Record> {
    let watch = Watch::start();
    let figures = exact.run().with_context(|| exact.name.to_owned())?;
    let mut record = new_record(exact.name, commit, watch);
    record.figures = figures;
    Ok(record)
}

fn kernel_record(
    name: &str,
    programs: &Programs,
    commit: &Commit,
    baseline: Option<&Commit>,
) -> anyhow::Result<Record> {
    let watch = Watch::start();
    let rounds = programs.in_turn(1, KERNEL_QUADRUPLES, |program| kernel_time(program, name))?;
    let counted = instructions(&programs.own[1], name)?;
    let mut record = new_record(&format!("kernel/{name}"), commit, watch);
    record.baseline = baseline.cloned();
    insert_ratio(&mut record, "time", &rounds)?;
    let own = rounds.iter().flat_map(|t| [t[1], t[2]]).flatten();
    if let Some(median) = median(own) {
        let figure = Figure::new(median, "µs", Better::Lower, Kind::History);
        record.figures.insert("time, median".to_owned(), figure);
    }
    if let Some(counted) = counted {
        let figure = Figure::new(counted, "each", Better::Lower, Kind::Deterministic);
        record.figures.insert("instructions".to_owned(), figure);
    }
    record.settle(MOST_STEAL);
    Ok(record)
}

/// Adds the ratio to the baseline to a record, if there is a baseline.
fn insert_ratio(
    record: &mut Record,
    name: &str,
    rounds: &[[Option<f64>; 4]],
) -> anyhow::Result<()> {
    let quadruples: Option<Vec<Quadruple>> = rounds
        .iter()
        .map(|[a1, b1, b2, a2]| Some(Quadruple::new([(*a1)?, (*b1)?, (*b2)?, (*a2)?])))
        .collect();
    if let Some(quadruples) = quadruples {
        let outcome = wall::judge(&quadruples, Better::Lower, &limits().wall)?;
        let figure = outcome.figure(Better::Lower);
        record.figures.insert(format!("{name} ÷ baseline"), figure);
    }
    Ok(())
}

fn kernel_time(program: &Path, name: &str) -> anyhow::Result<f64> {
    let output = Command::new(program)
        .args(["kernel", name])
        .output()
        .with_context(|| format!("running {}", program.display()))?;
    ensure!(
        output.status.success(),
        "{} kernel {name}: {}",
        program.display(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim()
        .parse()
        .with_context(|| format!("{} kernel {name} said {text:?}", program.display()))
}

/// Instructions per repetition of a kernel, preparation excluded; `None` without valgrind.
fn instructions(program: &Path, name: &str) -> anyhow::Result<Option<f64>> {
    let count = |times: u32| {
        let mut command = Command::new(program);
        command.args(["kernel", name, "--times", &times.to_string()]);
        callgrind::instructions(&command)
    };
    match (count(0), count(COUNTED_TIMES)) {
        (Ok(idle), Ok(busy)) => Ok(Some(
            busy.saturating_sub(idle) as f64 / f64::from(COUNTED_TIMES),
        )),
        (Err(error), _) | (_, Err(error)) => {
            eprintln!("note: no instructions are counted: {error}");
            Ok(None)
        }
    }
}

fn network_record(
    programs: &Programs,
    commit: &Commit,
    baseline: Option<&Commit>,
    base_port: u16,
) -> anyhow::Result<Record> {
    let watch = Watch::start();
    let mut run = 0;
    let rounds = programs.in_turn(0, NETWORK_QUADRUPLES, |program| {
        run += 1;
        eprintln!("a network of four, run {run}");
        loopback::run(program, base_port)
    })?;
    let mut record = new_record("network/4", commit, watch);
    record.baseline = baseline.cloned();
    let figure = |trial: &Trial, name: &str| trial.figures.get(name).copied();
    for (title, _, name) in loopback::RATIOS {
        let values: Vec<[Option<f64>; 4]> = rounds
            .iter()
            .map(|quadruple| {
                [0, 1, 2, 3].map(|place| quadruple[place].as_ref().and_then(|t| figure(t, name)))
            })
            .collect();
        insert_ratio(&mut record, title, &values)?;
    }
    let own: Vec<&Trial> = rounds
        .iter()
        .flat_map(|quadruple| [&quadruple[1], &quadruple[2]])
        .flatten()
        .collect();
    for (title, unit, name) in loopback::RATIOS.into_iter().chain(loopback::KEPT) {
        let Some(median) = median(own.iter().filter_map(|t| figure(t, name))) else {
            continue;
        };
        let figure = Figure::new(median, unit, Better::Lower, Kind::History);
        record.figures.insert(title.to_owned(), figure);
    }
    let mut all = quorate_load::Latencies::default();
    for trial in &own {
        all.merge(&quorate_load::Latencies::from_text(
            &trial.load.total.latency.histogram,
        )?);
    }
    record
        .histograms
        .insert("latency".to_owned(), Saved::new("µs", all.histogram()));
    let lost: u64 = own
        .iter()
        .map(|t| t.load.total.lost + t.load.total.failed)
        .sum();
    if lost > 0 {
        record.valid = Validity::Invalid(format!("{lost} transfers were lost or failed"));
    }
    record.settle(MOST_STEAL);
    Ok(record)
}

/// Prints a record, and returns what is worse than before.
fn judge(record: &Record, history: &[Record]) -> anyhow::Result<Vec<String>> {
    println!("\n{}", record.scenario);
    if let Validity::Invalid(reason) = &record.valid {
        println!("  not valid: {reason}");
    }
    let mut earlier: Vec<&Record> = history
        .iter()
        .filter(|r| (&r.host.id, &r.scenario) == (&record.host.id, &record.scenario))
        .filter(|r| series::counts(r))
        .collect();
    earlier.sort_by_key(|r| r.order());
    let figures_before: Vec<_> = earlier
        .into_iter()
        .map(series::figures)
        .collect::<Result<_, _>>()?;
    let mut worse = Vec::new();
    for (name, figure) in series::figures(record)? {
        let before: Vec<&Figure> = figures_before.iter().filter_map(|f| f.get(&name)).collect();
        let judged = series::judge(&record.scenario, &name, &figure, &before, &limits());
        let judgement = judged.judgement;
        println!(
            "  {name:<30} {:>14.3} {:<28} {}: {}",
            figure.value, figure.unit, judgement.verdict, judgement.why
        );
        if judgement.verdict == Verdict::Regression && record.is_valid() {
            worse.push(format!("{}, {name}: {}", record.scenario, judgement.why));
        }
    }
    Ok(worse)
}
