//! Chains whose validators come and leave.

#![allow(missing_docs)]

use quorate_sim::{BorderReport, BorderScenario, run_borders};

fn run(scenario: &BorderScenario) -> BorderReport {
    match run_borders(scenario, |_| {}) {
        Ok(report) => report,
        Err(violation) => panic!("{violation}"),
    }
}

/// Each run has 40 borders. What the runs together must have seen keeps the test from passing by doing nothing.
#[test]
fn validators_come_and_leave_through_faults_and_the_chain_goes_on() {
    let mut all = BorderReport::default();
    for seed in 0..8 {
        all.add(&run(&BorderScenario::of(seed, 40)));
    }
    assert_eq!(all.borders, 8 * 40);
    assert!(all.changes > 40, "{all}");
    assert!(all.largest > 10, "{all}");
    assert!(all.crashes > 10, "{all}");
    assert!(all.transactions > 1_000, "{all}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let scenario = BorderScenario::of(5, 20);
    assert_eq!(run(&scenario), run(&scenario));
}
