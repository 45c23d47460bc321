//! `quorate-sim`: runs validators through faults in virtual time.

use clap::Parser;
use quorate_crypto::bls::SchemeKind;
use quorate_files::read_text;
use quorate_sim::{
    BorderReport, BorderScenario, Coverage, Mishap, Outcome, ResharingReport, ResharingScenario,
    Scenario, Simulation, run_borders, run_many, run_resharing, script, shrink, svg, swarm,
    swarm_with_sync, sweep, twins, with_payloads, with_protocol,
};
use quorate_types::genesis::{ApplicationKind, Protocol};
use std::{
    io::{IsTerminal, Write},
    ops::Range,
    panic::AssertUnwindSafe,
    path::PathBuf,
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Most bytes of a scenario's file.
const MAX_SCRIPT_BYTES: u64 = 1 << 20;

/// Runs whole validators through crashes, partitions, failing disks, wrong clocks and Byzantine
/// peers, in virtual time, and checks after every step that no rule is broken.
///
/// Each run follows from its seed alone: a seed that fails will fail again.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Arguments {
    /// Run the seeds from the first to before the last, such as 0..10000
    #[arg(long, value_name = "FIRST..END", value_parser = parse_seeds)]
    seeds: Option<Range<u64>>,
    /// Run fresh seeds for this many minutes, or stop the seeds of --seeds after them
    #[arg(long, value_name = "MINUTES")]
    minutes: Option<f64>,
    /// With --seeds, --minutes or --replay: in every run some validator has to fetch the state,
    /// instead of in every fourth
    #[arg(long)]
    sync: bool,
    /// With all but --script and --resharings: the consensus protocol
    #[arg(long, value_name = "NAME", default_value = "simplex")]
    protocol: Protocol,
    /// With --seeds, --minutes or --replay: what the chain's transactions are, ledger or order-only
    #[arg(long, value_name = "NAME", default_value = "ledger")]
    application: ApplicationKind,
    /// Run one seed and print what happens, a line for each event
    #[arg(long, value_name = "SEED")]
    replay: Option<u64>,
    /// Run a scenario from a file and print what happens
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    script: Option<PathBuf>,
    /// With --replay or --script: also draw the last 100 ms, or --window, to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// With --svg: draw from the first to the second millisecond
    #[arg(long, value_name = "FROM..UNTIL", value_parser = parse_seeds)]
    window: Option<Range<u64>>,
    /// With --replay or --script: print a smaller scenario that fails too
    #[arg(long)]
    shrink: bool,
    /// Run so many twins scenarios: each view with its own partition, one validator running twice
    #[arg(long, value_name = "COUNT")]
    twins: Option<u64>,
    /// Crash a validator at every N-th disk operation of 200 blocks, in three ways, and all
    /// validators at every N-th step of some views
    #[arg(long, value_name = "N")]
    crash_sweep: Option<u64>,
    /// Run chains whose validators come and leave, until so many borders between epochs are crossed; with
    /// --seeds only those
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["replay", "script", "twins", "crash_sweep"])]
    borders: Option<u64>,
    /// Pass the shares of a group key on for so many epochs, with faulty dealers and players, crashes and
    /// transactions that come late; with --seeds only those
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["replay", "script", "twins", "crash_sweep", "borders"])]
    resharings: Option<u64>,
    /// How many runs at once [default: the number of cores]
    #[arg(long, value_name = "COUNT")]
    threads: Option<usize>,
    /// Stop after this many seeds have failed
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    failures: usize,
}

fn parse_seeds(text: &str) -> Result<Range<u64>, String> {
    let (first, end) = text
        .split_once("..")
        .ok_or("two numbers with .. between them, such as 0..1000")?;
    let number = |text: &str| {
        text.parse::<u64>()
            .map_err(|error| format!("{text:?}: {error}"))
    };
    let seeds = number(first)?..number(end)?;
    if seeds.is_empty() {
        return Err("the first seed must be below the last".to_owned());
    }
    Ok(seeds)
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let threads = arguments
        .threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |threads| threads.get()));
    // A panic is a violation like any other.
    std::panic::set_hook(Box::new(|_| {}));
    let protocol = arguments.protocol;
    let make = |seed| {
        let scenario = match arguments.sync {
            true => swarm_with_sync(seed),
            false => swarm(seed),
        };
        let scenario = match arguments.application {
            ApplicationKind::Ledger => scenario,
            ApplicationKind::OrderOnly => with_payloads(scenario),
        };
        with_protocol(scenario, protocol)
    };
    if let Some(scenario) = arguments.replay.map(make) {
        return replay(scenario, &arguments);
    }
    if let Some(path) = &arguments.script {
        let read = read_text(path, MAX_SCRIPT_BYTES).map_err(|error| error.to_string());
        let scenario = read.and_then(|text| script::parse(&text).map_err(|e| e.to_string()));
        return match scenario {
            Ok(scenario) => replay(scenario, &arguments),
            Err(problem) => {
                eprintln!("error: {}: {problem}", path.display());
                ExitCode::FAILURE
            }
        };
    }
    let start = Instant::now();
    if let Some(count) = arguments.twins {
        let progress = Progress::new(0..count.max(1), None);
        let outcome = twins::run_many(protocol, count, threads, |outcome| progress.show(outcome));
        progress.end();
        let runs = outcome.coverage.runs;
        let rate = runs as f64 / start.elapsed().as_secs_f64();
        println!(
            "{runs} of {} scenarios (1 twin of {} validators, {} views): {rate:.0} a second, \
             {:.0} for each of {threads} threads, {:.1} million a day",
            twins::SCENARIOS,
            twins::VALIDATORS,
            twins::VIEWS,
            rate / threads as f64,
            rate * 86_400.0 / 1e6
        );
        return summary(&outcome, start.elapsed(), &arguments);
    }
    if let Some(count) = arguments.borders {
        let seeds = arguments.seeds.unwrap_or(0..u64::MAX);
        return borders(protocol, count, seeds, threads);
    }
    if let Some(count) = arguments.resharings {
        let seeds = arguments.seeds.unwrap_or(0..u64::MAX);
        return resharings(count, seeds, threads);
    }
    if let Some(every) = arguments.crash_sweep {
        return crash_sweep(protocol, every.max(1), threads);
    }
    let limit = arguments
        .minutes
        .map(|minutes| Duration::from_secs_f64(minutes * 60.0));
    let fresh = || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let first = now.map_or(0, |now| now.as_secs() << 20);
        first..u64::MAX
    };
    let seeds = arguments.seeds.clone().unwrap_or_else(fresh);
    let progress = Progress::new(seeds.clone(), limit);
    let most = arguments.failures;
    let outcome = run_many(seeds, threads, limit, most, make, |outcome| {
        progress.show(outcome);
    });
    progress.end();
    summary(&outcome, start.elapsed(), &arguments)
}

/// Borders of one run.
const BORDERS_PER_RUN: u64 = 100;

/// Epochs of one run in which shares are passed on.
const RESHARINGS_PER_RUN: u64 = 40;

fn borders(protocol: Protocol, count: u64, seeds: Range<u64>, threads: usize) -> ExitCode {
    let run = |seed| {
        let scenario = BorderScenario {
            protocol,
            ..BorderScenario::of(seed, BORDERS_PER_RUN.min(count))
        };
        run_borders(&scenario, |_| {})
    };
    let add = |total: &mut BorderReport, report: &BorderReport| {
        total.add(report);
        total.borders
    };
    until_so_many(("borders", count), seeds, threads, run, add)
}

fn resharings(count: u64, seeds: Range<u64>, threads: usize) -> ExitCode {
    let run = |seed| {
        let epochs = RESHARINGS_PER_RUN;
        run_resharing(ResharingScenario { seed, epochs }).map_err(|broken| broken.to_string())
    };
    let add = |total: &mut ResharingReport, report: &ResharingReport| {
        total.add(report);
        total.epochs
    };
    until_so_many(("epochs", count), seeds, threads, run, add)
}

/// Runs seeds until so many of something were seen; `add` returns how many there are.
fn until_so_many<R: Default + Send + std::fmt::Display>(
    (what, count): (&str, u64),
    seeds: Range<u64>,
    threads: usize,
    run: impl Fn(u64) -> Result<R, String> + Sync + std::panic::RefUnwindSafe,
    add: impl Fn(&mut R, &R) -> u64 + Sync,
) -> ExitCode {
    let start = Instant::now();
    let next = AtomicU64::new(seeds.start);
    let total = Mutex::new((R::default(), 0_u64, 0_u64, Vec::new()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            {
                let total = total.lock().unwrap_or_else(PoisonError::into_inner);
                if seed >= seeds.end || total.1 >= count || !total.3.is_empty() {
                    return;
                }
            }
            let result = std::panic::catch_unwind(|| run(seed));
            let result = result.unwrap_or_else(|_| Err(format!("seed {seed}: panic")));
            let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
            let (sum, seen, runs, violations) = &mut *total;
            *runs += 1;
            match result {
                Ok(report) => *seen = add(sum, &report),
                Err(violation) => violations.push(violation),
            }
            eprintln!(
                "{seen} of {count} {what}, {runs} runs, {} violations",
                violations.len()
            );
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let (report, _, runs, violations) = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{report}");
    println!("{runs} runs in {:.1} s", start.elapsed().as_secs_f64());
    for violation in &violations {
        eprintln!("VIOLATION: {violation}");
    }
    if violations.is_empty() {
        println!("no violation");
        return ExitCode::SUCCESS;
    }
    ExitCode::FAILURE
}

fn crash_sweep(protocol: Protocol, every: u64, threads: usize) -> ExitCode {
    let mut success = true;
    for scheme in SchemeKind::ALL {
        let start = Instant::now();
        let operations = sweep::disk_operations((protocol, scheme));
        let points = (1..=operations).step_by(usize::try_from(every).unwrap_or(usize::MAX));
        let ways = Mishap::CRASHES.len() as u64;
        let total = points.clone().count() as u64 * ways;
        let progress = Progress::new(0..total, None);
        let numbers = points.flat_map(|operation| (0..ways).map(move |way| operation * ways + way));
        let outcome = sweep::for_each(
            numbers,
            threads,
            |number| {
                let mishap = Mishap::CRASHES[(number % ways) as usize];
                sweep::crash_at((protocol, scheme), number / ways, mishap)
            },
            |outcome| progress.show(outcome),
        );
        progress.end();
        println!(
            "{}: {operations} disk operations in {} blocks, {} crashes at them, {} failed, {:.0} s",
            scheme.name(),
            sweep::SWEEP_BLOCKS,
            outcome.coverage.mishaps,
            outcome.failures.len(),
            start.elapsed().as_secs_f64()
        );
        success &= told(&outcome);
        let start = Instant::now();
        let steps = sweep::STEPS.step_by(usize::try_from(every).unwrap_or(usize::MAX));
        let numbers = steps.flat_map(|step| [2 * step, 2 * step + 1]);
        let run = |number: u64| {
            sweep::crash_all_at((protocol, scheme), number / 2, number.is_multiple_of(2))
        };
        let outcome = sweep::for_each(numbers, threads, run, |_| {});
        println!(
            "{}: all crash at {} steps of a run with nullified views, {} failed, {:.0} s",
            scheme.name(),
            outcome.coverage.runs,
            outcome.failures.len(),
            start.elapsed().as_secs_f64()
        );
        success &= told(&outcome);
    }
    if success {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Tells of failures; whether there were none.
fn told(outcome: &Outcome) -> bool {
    for failure in outcome.failures.iter().take(5) {
        eprintln!("VIOLATION: {}: {}", failure.seed, failure.violation.0);
    }
    outcome.failures.is_empty()
}

fn summary(outcome: &Outcome, took: Duration, arguments: &Arguments) -> ExitCode {
    let Coverage { runs, views, .. } = outcome.coverage;
    println!("{}", outcome.coverage);
    println!(
        "{runs} runs, {views} views in {:.1} s; slowest after healing: {} ms to a new final block, \
         {} ms until all had three",
        took.as_secs_f64(),
        outcome.slowest.0.as_millis(),
        outcome.slowest.1.as_millis()
    );
    if outcome.state_syncs.whole > 0 {
        println!("{}", outcome.state_syncs);
    }
    if outcome.failures.is_empty() {
        println!("no violation");
        return ExitCode::SUCCESS;
    }
    for failure in &outcome.failures {
        eprintln!("VIOLATION: {}", failure.violation.0);
        let protocol = arguments.protocol.name();
        eprintln!(
            "  see it: quorate-sim --protocol {protocol} --replay {}{}",
            failure.seed,
            if arguments.sync { " --sync" } else { "" }
        );
    }
    ExitCode::FAILURE
}

fn replay(scenario: Scenario, arguments: &Arguments) -> ExitCode {
    if arguments.shrink {
        let limit = Duration::from_secs_f64(arguments.minutes.unwrap_or(5.0) * 60.0);
        let shrunk = shrink(scenario, limit, |best| {
            eprintln!("still fails with {} faults", best.faults.len());
        });
        return match shrunk {
            Some((smaller, violation)) => {
                print!("# {violation}\n{smaller}");
                ExitCode::SUCCESS
            }
            None => {
                eprintln!("error: this scenario does not fail");
                ExitCode::FAILURE
            }
        };
    }
    let (seed, validators) = (scenario.seed, scenario.validators);
    let mut simulation = Simulation::watched(scenario, true);
    let watched = AssertUnwindSafe(|| simulation.run_watched(|_, _, _| {}));
    let result = std::panic::catch_unwind(watched);
    let lines = simulation.lines();
    let mut out = std::io::stdout().lock();
    for line in &lines {
        let at = line.at_us as f64 / 1_000.0;
        let written = writeln!(out, "{at:>10.3} ms  {:>2}  {}", line.host, line.text);
        if written.is_err() {
            break;
        }
    }
    drop(out);
    if let Some(path) = &arguments.svg {
        let end = lines.last().map_or(0, |line| line.at_us);
        let window = arguments.window.clone();
        let (from, until) = match window {
            Some(window) => (window.start * 1_000, window.end * 1_000),
            None => (end.saturating_sub(100_000), end),
        };
        let hosts = lines.iter().map(|line| line.host + 1).max();
        let hosts = hosts.unwrap_or(validators);
        let picture = svg::draw(&lines, hosts, from, until, &format!("seed {seed}"));
        if let Err(error) = std::fs::write(path, picture) {
            eprintln!("error: {}: {error}", path.display());
            return ExitCode::FAILURE;
        }
    }
    match result {
        Ok(Ok(report)) => {
            println!("no violation; trace {}", report.trace);
            ExitCode::SUCCESS
        }
        Ok(Err(violation)) => {
            eprintln!("VIOLATION: {}", violation.0);
            ExitCode::FAILURE
        }
        Err(_) => {
            eprintln!("VIOLATION: seed {seed}: panic");
            ExitCode::FAILURE
        }
    }
}

/// A line that tells how far it is: rewritten in place on a terminal, else every ten seconds.
struct Progress {
    seeds: Range<u64>,
    limit: Option<Duration>,
    start: Instant,
    shown: Mutex<Option<Instant>>,
}

impl Progress {
    fn new(seeds: Range<u64>, limit: Option<Duration>) -> Self {
        Self {
            seeds,
            limit,
            start: Instant::now(),
            shown: Mutex::new(None),
        }
    }

    fn show(&self, outcome: &Outcome) {
        let terminal = std::io::stderr().is_terminal();
        let every = Duration::from_millis(if terminal { 200 } else { 10_000 });
        let mut shown = self
            .shown
            .lock()
            .unwrap_or_else(|broken| broken.into_inner());
        if shown.is_some_and(|shown| shown.elapsed() < every) {
            return;
        }
        *shown = Some(Instant::now());
        let runs = outcome.coverage.runs;
        let part = match self.limit {
            Some(limit) => self.start.elapsed().as_secs_f64() / limit.as_secs_f64(),
            None => runs as f64 / (self.seeds.end - self.seeds.start) as f64,
        };
        let filled = (part.clamp(0.0, 1.0) * 30.0) as usize;
        let line = format!(
            "[{}{}] {runs} runs, {} views, {} crashes, {} failures",
            "#".repeat(filled),
            ".".repeat(30 - filled),
            outcome.coverage.views,
            outcome.coverage.crashes,
            outcome.failures.len()
        );
        if terminal {
            eprint!("\r{line}");
        } else {
            eprintln!("{line}");
        }
    }

    fn end(&self) {
        if std::io::stderr().is_terminal() {
            eprintln!();
        }
    }
}
