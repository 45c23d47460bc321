//! Shares that are passed on from epoch to epoch.

#![allow(missing_docs)]

use quorate_sim::{ResharingReport, ResharingScenario, run_resharing};

fn run(seed: u64, epochs: u64) -> ResharingReport {
    match run_resharing(ResharingScenario { seed, epochs }) {
        Ok(report) => report,
        Err(violation) => panic!("{violation}"),
    }
}

/// What the runs together must have seen keeps the test from passing by doing nothing.
#[test]
fn shares_are_passed_on_through_faults_and_the_key_stays() {
    let mut all = ResharingReport::default();
    for seed in 0..6 {
        all.add(&run(seed, 32));
    }
    assert!(all.passed_on > 40, "{all}");
    assert!(all.changes > 10, "{all}");
    assert!(all.failed > 5, "{all}");
    assert!(all.crashes > 20, "{all}");
    assert!(all.convicted > 3, "{all}");
    assert!(all.refused > 20, "{all}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    assert_eq!(run(5, 14), run(5, 14));
}
