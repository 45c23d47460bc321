//! The machine through faults. A failure prints its seed.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{run, seconds, seeds};
use quorate_sim::{Attack, Fault, Scenario};
use std::time::Duration;

#[test]
fn a_quiet_network_finalises_in_every_view() {
    for validators in [1, 4, 7] {
        let report = run(Scenario::new(1, validators, seconds(3)));
        assert!(report.lowest.0 > 100, "{report:?}");
        assert!(report.view.0 <= report.highest.0 + 6, "{report:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let scenario = || {
        let mut scenario = Scenario::new(7, 4, seconds(3)).with_random_faults();
        scenario.links.loss_percent = 5;
        scenario
    };
    assert_eq!(run(scenario()), run(scenario()));
    let other = Scenario {
        seed: 8,
        ..scenario()
    };
    assert_ne!(run(other).trace, run(scenario()).trace);
}

#[test]
fn the_chain_grows_on_lossy_links() {
    for seed in seeds(3) {
        let mut scenario = Scenario::new(seed, 4, seconds(10));
        scenario.links.loss_percent = 10;
        let report = run(scenario);
        assert!(report.highest.0 > 30, "{report:?}");
    }
}

#[test]
fn without_a_quorum_nothing_is_final_and_healing_brings_it_back() {
    let mut scenario = Scenario::new(3, 4, seconds(8));
    let halves = Fault::Partition(vec![vec![0, 1], vec![2, 3]]);
    scenario.faults = vec![(seconds(1), halves.clone())];
    let split = run(scenario.clone());
    scenario.duration = seconds(1);
    let before = run(scenario.clone());
    assert!(
        split.highest.0 <= before.highest.0 + 3,
        "{split:?} {before:?}"
    );
    scenario.duration = seconds(8);
    scenario.faults.push((seconds(4), Fault::Join));
    let healed = run(scenario);
    assert!(healed.lowest.0 > split.highest.0 + 50, "{healed:?}");
}

#[test]
fn who_was_cut_off_for_hundreds_of_blocks_catches_up() {
    let mut scenario = Scenario::new(4, 4, seconds(14));
    scenario.faults = vec![
        (seconds(1), Fault::Partition(vec![vec![0, 1, 2]])),
        (seconds(10), Fault::Join),
    ];
    let report = run(scenario);
    assert!(report.highest.0 > 300, "{report:?}");
    assert!(report.highest.0 - report.lowest.0 < 20, "{report:?}");
}

#[test]
fn crashes_and_partitions_at_random_break_nothing_and_heal() {
    for seed in seeds(12) {
        let validators = [4, 4, 7][seed as usize % 3];
        let mut scenario = Scenario::new(seed, validators, seconds(12)).with_random_faults();
        scenario.links.loss_percent = (seed % 4) as u32 * 3;
        // The world itself demands progress after healing.
        let report = run(scenario);
        assert!(report.recovery.is_some(), "seed {seed}: {report:?}");
    }
}

#[test]
fn all_crash_at_once_at_any_moment_and_go_on() {
    for step in seeds(15) {
        let at = Duration::from_micros(300_000 + step * 1_700);
        let mut scenario = Scenario::new(step, 4, seconds(4));
        scenario.faults = vec![
            (at, Fault::Crash(vec![0, 1, 2, 3])),
            (at + seconds(1), Fault::Restart(vec![0, 1, 2, 3])),
        ];
        let report = run(scenario);
        assert!(report.lowest.0 > 60, "step {step}: {report:?}");
    }
}

#[test]
fn all_crash_after_they_voted_nullify_and_go_on() {
    // Validator 1 is cut off; its view times out, all say nullify, and all crash before or after.
    for step in seeds(8) {
        let mut scenario = Scenario::new(step, 4, seconds(6));
        let crash = Duration::from_millis(1_000 + 95 + step * 3);
        scenario.faults = vec![
            (
                seconds(1),
                Fault::Partition(vec![vec![0], vec![1], vec![2], vec![3]]),
            ),
            (crash, Fault::Crash(vec![0, 1, 2, 3])),
            (crash, Fault::Join),
            (seconds(2), Fault::Restart(vec![0, 1, 2, 3])),
        ];
        let report = run(scenario);
        assert!(report.lowest.0 > 100, "step {step}: {report:?}");
    }
}

#[test]
fn a_dead_validator_costs_one_time_out_and_is_skipped_from_then_on() {
    let mut scenario = Scenario::new(5, 4, seconds(5));
    scenario.faults = vec![(seconds(1), Fault::Crash(vec![2]))];
    let report = run(scenario);
    // Every fourth view is its; waiting for each would leave a few dozen blocks.
    assert!(report.highest.0 > 250, "{report:?}");
}

#[test]
fn a_garbage_signer_is_found_and_the_chain_goes_on() {
    for seed in seeds(3) {
        let mut scenario = Scenario::new(seed, 4, seconds(4));
        scenario.byzantine.insert(2, [Attack::GarbageVotes].into());
        let report = run(scenario);
        assert!(report.sentenced.contains(&2), "{report:?}");
        assert!(report.lowest.0 > 100, "{report:?}");
    }
}

#[test]
fn f_garbage_signers_of_seven_are_found_and_the_chain_goes_on() {
    let mut scenario = Scenario::new(6, 7, seconds(4));
    scenario.byzantine.insert(1, [Attack::GarbageVotes].into());
    scenario.byzantine.insert(5, [Attack::GarbageVotes].into());
    let report = run(scenario);
    assert_eq!(report.sentenced.len(), 2, "{report:?}");
    assert!(report.lowest.0 > 50, "{report:?}");
}

#[test]
fn twins_equivocate_and_break_nothing() {
    let mut found = 0;
    for seed in seeds(6) {
        let mut scenario = Scenario::new(seed, 4, seconds(6));
        scenario.byzantine.insert(1, [Attack::Twins].into());
        scenario.links.loss_percent = 3;
        let report = run(scenario);
        assert!(report.lowest.0 > 20, "seed {seed}: {report:?}");
        found += usize::from(report.evidence.contains_key(&1) && report.sentenced.contains(&1));
    }
    assert!(found > 0, "nobody ever saw both twins' votes");
}

#[test]
fn twins_with_partitions_and_crashes_break_nothing() {
    for seed in seeds(8) {
        let mut scenario = Scenario::new(seed, 4, seconds(8)).with_random_faults();
        scenario
            .byzantine
            .insert((seed % 4) as usize, [Attack::Twins].into());
        run(scenario);
    }
}

#[test]
fn a_silent_validator_is_no_hindrance() {
    let mut scenario = Scenario::new(9, 4, seconds(4));
    scenario.byzantine.insert(0, [Attack::Silent].into());
    let report = run(scenario);
    assert!(report.lowest.0 > 150, "{report:?}");
}
