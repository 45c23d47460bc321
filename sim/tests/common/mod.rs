//! What the simulator's test programs share.
#![allow(dead_code, unreachable_pub)]

use quorate_sim::{Report, Scenario, Simulation};
use std::time::Duration;

pub fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub fn run(scenario: Scenario) -> Report {
    let described = format!("{scenario:?}");
    match Simulation::new(scenario).run() {
        Ok(report) => report,
        Err(violation) => panic!("{}\n{described}", violation.0),
    }
}

/// Seeds of the first tier, and how many more there are in the long runs.
pub fn seeds(count: u64) -> std::ops::Range<u64> {
    0..if nightly() { count * 50 } else { count }
}

/// Whether the long runs are wanted.
pub fn nightly() -> bool {
    std::env::var_os("QUORATE_NIGHTLY").is_some()
}
