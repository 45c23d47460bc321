//! Going from epoch to epoch, with crashes on the way. A failure prints its seed.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{run, seconds, seeds};
use quorate_sim::{Attack, Fault, Scenario};

#[test]
fn epochs_follow_each_other_without_a_pause() {
    for epoch_blocks in [1, 2, 5] {
        let mut scenario = Scenario::new(1, 4, seconds(3));
        scenario.epoch_blocks = epoch_blocks;
        let report = run(scenario);
        assert!(report.epoch.0 * epoch_blocks > 80, "{report:?}");
        let executed = report.highest.0 / epoch_blocks;
        assert!(
            (executed..=executed + 1).contains(&report.epoch.0),
            "{report:?}"
        );
        assert!(report.lowest.0 + 3 >= report.highest.0, "{report:?}");
    }
}

#[test]
fn a_thousand_borders_with_crashes_on_them() {
    let mut borders = 0;
    let mut crashes = 0;
    let mut seed = 0;
    while borders < 1_000 {
        let mut scenario = Scenario::new(seed, 4, seconds(10));
        scenario.epoch_blocks = 1 + seed % 4;
        scenario.border_crashes_percent = 8;
        scenario.links.loss_percent = (seed % 3) as u32;
        let report = run(scenario);
        assert!(report.epoch.0 > 20, "seed {seed}: {report:?}");
        borders += report.epoch.0;
        crashes += report.coverage.crashes;
        seed += 1;
    }
    assert!(crashes > 300, "{crashes} crashes");
    eprintln!("{borders} borders, {crashes} crashes, {seed} seeds");
}

#[test]
fn faults_at_random_do_not_stop_short_epochs() {
    for seed in seeds(6) {
        let mut scenario = Scenario::new(seed, 4, seconds(8)).with_random_faults();
        scenario.epoch_blocks = 1 + seed % 7;
        scenario.links.loss_percent = 3;
        scenario.border_crashes_percent = 3;
        let report = run(scenario);
        assert!(
            report.lowest.0 + 30 > report.highest.0,
            "{seed}: {report:?}"
        );
        assert!(report.recovery.is_some(), "{seed}: {report:?}");
    }
}

#[test]
fn who_was_away_for_many_epochs_catches_up() {
    for epoch_blocks in [1, 3, 40] {
        let mut scenario = Scenario::new(4, 4, seconds(12));
        scenario.epoch_blocks = epoch_blocks;
        scenario.faults = vec![
            (seconds(1), Fault::Crash(vec![2])),
            (seconds(4), Fault::Restart(vec![2])),
        ];
        let report = run(scenario);
        assert!(report.lowest.0 + 5 >= report.highest.0, "{report:?}");
        assert!(report.highest.0 > 250, "{report:?}");
    }
}

#[test]
fn who_was_away_is_needed_at_once_and_catches_up_over_borders() {
    // Another one crashes for good when the first comes back: no quorum without it.
    let mut scenario = Scenario::new(5, 4, seconds(14));
    scenario.epoch_blocks = 5;
    scenario.faults = vec![
        (seconds(1), Fault::Crash(vec![2])),
        (seconds(5), Fault::Crash(vec![1])),
        (seconds(5), Fault::Restart(vec![2])),
        (seconds(12), Fault::Restart(vec![1])),
    ];
    let report = run(scenario);
    assert!(report.lowest.0 + 5 >= report.highest.0, "{report:?}");
    assert!(report.highest.0 > 300, "{report:?}");
}

#[test]
fn an_equivocator_is_known_to_all_across_borders_and_restarts() {
    for seed in seeds(3) {
        let mut scenario = Scenario::new(seed, 4, seconds(10)).with_random_faults();
        scenario.epoch_blocks = 4;
        scenario
            .byzantine
            .insert(3, [Attack::EquivocateVotes].into());
        let report = run(scenario);
        assert_eq!(report.evidence.get(&3), Some(&3), "{seed}: {report:?}");
        assert_eq!(report.blocked.get(&3), Some(&3), "{seed}: {report:?}");
        assert!(report.highest.0 > 30, "{seed}: {report:?}");
    }
}
