//! Many runs, over all cores.

use crate::{
    coverage::Coverage,
    scenario::Scenario,
    world::{Report, Simulation, StateSyncTimes, Violation},
};
use std::{
    any::Any,
    fmt::{self, Display},
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// A seed whose run broke a rule.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// What was broken.
    pub violation: Violation,
}

/// The result of many runs.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What was covered.
    pub coverage: Coverage,
    /// The seeds that failed, ascending.
    pub failures: Vec<Failure>,
    /// The longest times from healing to progress and to full recovery.
    pub slowest: (Duration, Duration),
    /// What was seen of state syncs.
    pub state_syncs: StateSyncs,
}

/// The state syncs of honest validators in many runs.
#[derive(Clone, Debug, Default)]
pub struct StateSyncs {
    /// Runs with at least one that came to its end.
    pub runs: u64,
    /// Those that came to their end.
    pub whole: u64,
    /// Those that crashes ended, or the end of the run.
    pub interrupted: u64,
    /// The longest time without anything new in the progress, its seed, and the stage.
    pub silence: (Duration, u64, &'static str),
    /// How long choosing the first target took, with seeds.
    pub to_target: Vec<(Duration, u64)>,
    /// The most times that a peer was asked for snapshots before that.
    pub rounds: u32,
    /// From the last part to the next vote, with seeds, unless the validator crashed in between.
    pub to_vote: Vec<(Duration, u64)>,
}

impl StateSyncs {
    fn add(&mut self, seed: u64, syncs: &[StateSyncTimes]) {
        self.runs += u64::from(syncs.iter().any(|times| times.whole.is_some()));
        for times in syncs {
            match times.whole {
                Some(_) => self.whole += 1,
                None => self.interrupted += 1,
            }
            if times.silence > self.silence.0 {
                self.silence = (times.silence, seed, times.silent);
            }
            self.rounds = self.rounds.max(times.rounds);
            let chosen = times.chosen.map(|chosen| chosen.since(times.began));
            self.to_target.extend(chosen.map(|took| (took, seed)));
            let vote = times.to_vote().filter(|_| !times.disturbed);
            self.to_vote.extend(vote.map(|took| (took, seed)));
        }
    }
}

impl Display for StateSyncs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (silence, seed, stage) = self.silence;
        writeln!(
            f,
            "state syncs: {} whole in {} runs, {} interrupted; longest without news {} ms \
             ({stage}, seed {seed})",
            self.whole,
            self.runs,
            self.interrupted,
            silence.as_millis()
        )?;
        let spread = |times: &[(Duration, u64)]| {
            let mut times = times.to_vec();
            times.sort_unstable();
            let at = |percent: usize| times.get(times.len().saturating_sub(1) * percent / 100);
            let ms = |percent| at(percent).map_or(0, |(took, _)| took.as_millis());
            let seed = at(100).map_or(0, |(_, seed)| *seed);
            let [p50, p99, most] = [50, 99, 100].map(ms);
            format!(
                "p50 {p50} ms, p99 {p99} ms, most {most} ms (seed {seed}) of {}",
                times.len()
            )
        };
        writeln!(
            f,
            "  target chosen after {}; {} rounds of questions at most",
            spread(&self.to_target),
            self.rounds
        )?;
        write!(f, "  last part to next vote {}", spread(&self.to_vote))
    }
}

/// Runs one scenario; a panic anywhere in it is a violation too.
///
/// # Errors
///
/// The first rule that was broken.
pub fn run_one(scenario: Scenario) -> Result<Report, Violation> {
    let seed = scenario.seed;
    catch_unwind(AssertUnwindSafe(|| Simulation::new(scenario).run()))
        .unwrap_or_else(|panic| Err(Violation(format!("seed {seed}: panic: {}", words(&*panic)))))
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|t| (*t).to_owned()));
    text.unwrap_or_else(|| "no message".to_owned())
}

/// Runs the scenarios of these seeds over so many threads, until all are done, the time is up, or
/// `most_failures` have been found. `watch` is told of each run that is over, how many are.
pub fn run_many(
    seeds: Range<u64>,
    threads: usize,
    limit: Option<Duration>,
    most_failures: usize,
    make: impl Fn(u64) -> Scenario + Sync,
    watch: impl Fn(&Outcome) + Sync,
) -> Outcome {
    let next = AtomicU64::new(seeds.start);
    let stop = AtomicBool::new(false);
    let outcome = Mutex::new(Outcome::default());
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !stop.load(Relaxed) && limit.is_none_or(|limit| start.elapsed() < limit) {
                    let seed = next.fetch_add(1, Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let scenario = make(seed);
                    let attacks: Vec<String> = scenario
                        .byzantine
                        .values()
                        .flatten()
                        .map(|attack| attack.name())
                        .collect();
                    let result = run_one(scenario);
                    let mut all = outcome.lock().unwrap_or_else(|broken| broken.into_inner());
                    for attack in attacks {
                        *all.coverage.attacks.entry(attack).or_default() += 1;
                    }
                    all.record(seed, result);
                    if all.failures.len() >= most_failures {
                        stop.store(true, Relaxed);
                    }
                    watch(&all);
                }
            });
        }
    });
    let mut outcome = outcome.into_inner().unwrap_or_else(|b| b.into_inner());
    outcome.failures.sort_by_key(|failure| failure.seed);
    outcome
}

impl Outcome {
    /// Adds the result of a run.
    pub(crate) fn record(&mut self, seed: u64, result: Result<Report, Violation>) {
        self.coverage.runs += 1;
        match result {
            Ok(report) => self.add(seed, &report),
            Err(violation) => self.failures.push(Failure { seed, violation }),
        }
    }

    fn add(&mut self, seed: u64, report: &Report) {
        self.state_syncs.add(seed, &report.state_syncs);
        self.coverage += &report.coverage;
        let (first, all) = &mut self.slowest;
        *first = (*first).max(report.first_progress.unwrap_or_default());
        *all = (*all).max(report.recovery.unwrap_or_default());
    }
}
