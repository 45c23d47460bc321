//! Crashes everywhere: at every disk operation of one validator, and of all at every step.

use crate::{
    disk::Mishap,
    runner::Outcome,
    scenario::{Fault, Scenario},
    world::{Report, Simulation, Violation},
};
use quorate_crypto::bls::SchemeKind;
use quorate_types::genesis::Protocol;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

/// The protocol and the vote scheme.
pub type Chosen = (Protocol, SchemeKind);

/// Blocks that the swept validator must come to.
pub const SWEEP_BLOCKS: u64 = 200;

fn quiet((protocol, scheme): Chosen, blocks: u64) -> Scenario {
    let mut scenario = Scenario::new(1, 4, Duration::from_secs(60));
    scenario.protocol = protocol;
    scenario.scheme = scheme;
    scenario.transfers_per_second = 40;
    scenario.epoch_blocks = 64;
    scenario.goal = Some(blocks);
    scenario
}

/// How many disk operations validator 0 does over [`SWEEP_BLOCKS`] blocks when nothing happens.
///
/// # Panics
///
/// If even that fails.
pub fn disk_operations(chosen: Chosen) -> u64 {
    let mut simulation = Simulation::new(quiet(chosen, SWEEP_BLOCKS));
    simulation
        .run_watched(|_, _, _| {})
        .expect("nothing happens");
    simulation.disk_operations(0)
}

/// Validator 0 loses its power at one disk operation, in one of three ways, and starts again.
///
/// # Errors
///
/// If a rule is broken, or the validators do not all come to [`SWEEP_BLOCKS`].
pub fn crash_at(chosen: Chosen, operation: u64, mishap: Mishap) -> Result<Report, Violation> {
    let mut scenario = quiet(chosen, SWEEP_BLOCKS);
    let fault = Fault::Disk {
        validator: 0,
        after: operation,
        mishap,
        away: Duration::from_millis(30),
    };
    scenario.faults.push((Duration::ZERO, fault));
    Simulation::new(scenario).run()
}

/// A scenario in which a view is nullified: one validator never speaks.
fn with_a_silent_leader(chosen: Chosen) -> Scenario {
    let mut scenario = quiet(chosen, 24);
    scenario
        .byzantine
        .insert(2, [crate::adversary::Attack::Silent].into());
    scenario
}

/// How many events there are from the second block to the eighteenth, about, of a run with a silent
/// leader in it.
pub const STEPS: std::ops::Range<u64> = 40..440;

/// All validators crash at one step of a run whose views are, in part, nullified, and start again.
///
/// # Errors
///
/// If a rule is broken, or they do not go on.
pub fn crash_all_at(chosen: Chosen, step: u64, power: bool) -> Result<Report, Violation> {
    let mut scenario = with_a_silent_leader(chosen);
    // The seed decides which of them lose their power and which are merely killed.
    scenario.seed = if power { step } else { step + 1_000_000 };
    let mut simulation = Simulation::new(scenario);
    simulation.crash_all_at = Some(step);
    simulation.run_watched(|_, _, _| {})
}

/// Does one thing for each number, over so many threads.
pub fn for_each(
    numbers: impl Iterator<Item = u64> + Send,
    threads: usize,
    run: impl Fn(u64) -> Result<Report, Violation> + Sync,
    watch: impl Fn(&Outcome) + Sync,
) -> Outcome {
    let numbers = std::sync::Mutex::new(numbers);
    let outcome = std::sync::Mutex::new(Outcome::default());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let next = numbers.lock().ok().and_then(|mut numbers| numbers.next());
                    let Some(number) = next else { return };
                    let result = catch_unwind(AssertUnwindSafe(|| run(number)))
                        .unwrap_or_else(|_| Err(Violation(format!("{number}: panic"))));
                    let mut all = outcome.lock().unwrap_or_else(|broken| broken.into_inner());
                    all.record(number, result);
                    watch(&all);
                }
            });
        }
    });
    outcome
        .into_inner()
        .unwrap_or_else(|broken| broken.into_inner())
}
