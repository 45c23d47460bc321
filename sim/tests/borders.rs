//! Chains whose validators come and leave.

#![allow(missing_docs)]

use quorate_sim::{BorderReport, BorderScenario, run_borders};
use quorate_types::genesis::Protocol;

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

/// Who is to join or to leave does so whoever leads: what counts as heard is a block that a validator has led (N3).
#[test]
fn validators_come_and_leave_with_each_protocol() {
    for protocol in Protocol::ALL {
        let mut all = BorderReport::default();
        for seed in 0..3 {
            all.add(&run(&BorderScenario {
                protocol,
                ..BorderScenario::of(seed, 40)
            }));
        }
        assert!(all.changes > 10, "{protocol:?}: {all}");
        assert!(all.largest > 3, "{protocol:?}: {all}");
        assert!(all.transactions > 300, "{protocol:?}: {all}");
    }
}

/// A node that goes on from an old copy of its disk comes through epochs whose validators it does not know yet, and
/// does not vote again where it has voted (R28).
#[test]
fn old_copies_do_not_vote_again_although_the_validators_have_changed() {
    let mut all = BorderReport::default();
    for seed in 0..32 {
        all.add(&run(&BorderScenario {
            faulty: 0,
            faults: false,
            old_copies: true,
            ..BorderScenario::of(seed, 40)
        }));
    }
    assert!(all.old_copies > 30, "{all}");
    assert!(all.changes > 60, "{all}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let scenario = BorderScenario::of(5, 20);
    assert_eq!(run(&scenario), run(&scenario));
}
