//! Blocking and evidence: offenders are found, honest validators are never blamed, and blocking
//! never halts the chain. A failure prints its seed.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{run, seconds, seeds};
use quorate_sim::{Attack, Fault, Latency, Scenario};
use std::time::Duration;

#[test]
fn evidence_reaches_who_was_away_when_it_was_gathered() {
    let mut scenario = Scenario::new(1, 4, seconds(12));
    scenario
        .byzantine
        .insert(3, [Attack::EquivocateVotes].into());
    scenario.faults = vec![
        (seconds(0), Fault::Crash(vec![0])),
        (seconds(4), Fault::Crash(vec![3])),
        (seconds(5), Fault::Restart(vec![0])),
    ];
    let report = run(scenario);
    assert_eq!(report.evidence.get(&3), Some(&3), "{report:?}");
    assert_eq!(report.blocked.get(&3), Some(&3), "{report:?}");
}

#[test]
fn blocks_survive_crashes_of_all() {
    for seed in seeds(3) {
        let mut scenario = Scenario::new(seed, 7, seconds(8));
        scenario.byzantine.insert(2, [Attack::GarbageVotes].into());
        scenario
            .byzantine
            .insert(5, [Attack::EquivocateVotes].into());
        let all: Vec<usize> = (0..7).collect();
        scenario.faults = vec![
            (seconds(4), Fault::Crash(all.clone())),
            (seconds(5), Fault::Restart(all)),
        ];
        let report = run(scenario);
        // The equivocator is blocked by all; the forger by whom its votes reached in a check.
        assert_eq!(report.blocked.get(&5), Some(&5), "{seed}: {report:?}");
        assert!(report.sentenced.contains(&2), "{seed}: {report:?}");
        assert!(report.highest.0 > 150, "{seed}: {report:?}");
    }
}

/// One after the other breaks for a while and heals: more than f have been blocked in all. The last
/// fault leaves just a quorum of validators running, all of which have been caught before.
#[test]
fn more_than_f_that_healed_do_not_halt_the_chain() {
    for seed in seeds(3) {
        let mut scenario = Scenario::new(seed, 4, seconds(20));
        scenario.links.latency =
            Latency::Between(Duration::from_millis(10), Duration::from_millis(20));
        for validator in 0..3_u64 {
            let from_ms = 1_000 + 3_000 * validator;
            let glitch = Attack::Glitch(from_ms, from_ms + 1_500);
            scenario
                .byzantine
                .insert(validator as usize, [glitch].into());
        }
        scenario.faults = vec![(seconds(12), Fault::Crash(vec![3]))];
        let before = run(Scenario {
            duration: seconds(12),
            ..scenario.clone()
        });
        assert!(before.sentenced.len() >= 2, "{seed}: {before:?}");
        let report = run(scenario);
        assert!(
            report.highest.0 > before.highest.0 + 50,
            "{seed}: {before:?} {report:?}"
        );
    }
}

/// Three of four forge at the same time, more than any protocol survives; when they have healed the
/// chain goes on, whomever they have blamed.
#[test]
fn a_fault_of_most_validators_ends_when_it_heals() {
    for seed in seeds(3) {
        let mut scenario = Scenario::new(seed, 4, seconds(12));
        for validator in 0..3 {
            let glitch = Attack::Glitch(2_000, 5_000);
            scenario.byzantine.insert(validator, [glitch].into());
        }
        let during = run(Scenario {
            duration: seconds(5),
            ..scenario.clone()
        });
        let report = run(scenario);
        assert!(
            report.highest.0 > during.highest.0 + 150,
            "{seed}: {during:?} {report:?}"
        );
        assert!(report.sentenced.len() >= 2, "{seed}: {report:?}");
    }
}
