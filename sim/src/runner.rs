//! Many runs, over all cores.

use crate::{
    coverage::Coverage,
    scenario::Scenario,
    world::{Report, Simulation, Violation},
};
use std::{
    any::Any,
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
            Ok(report) => self.add(&report),
            Err(violation) => self.failures.push(Failure { seed, violation }),
        }
    }

    fn add(&mut self, report: &Report) {
        self.coverage += &report.coverage;
        let (first, all) = &mut self.slowest;
        *first = (*first).max(report.first_progress.unwrap_or_default());
        *all = (*all).max(report.recovery.unwrap_or_default());
    }
}
