//! Basic HotStuff and PBFT, whose leaders lead several views in a row: what they must do that is told of several validators. In virtual time; a
//! failure prints its seed.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{run, seconds, seeds};
use quorate_sim::{Attack, Fault, Report, Scenario};
use quorate_types::genesis::Protocol;
use std::time::Duration;

fn scenario(protocol: Protocol, seed: u64, validators: usize) -> Scenario {
    let mut scenario = Scenario::new(seed, validators, seconds(20));
    scenario.protocol = protocol;
    scenario.transfers_per_second = 0;
    scenario.epoch_blocks = 1_000_000;
    scenario
}

fn attacked(protocol: Protocol, seed: u64, attack: Attack) -> Report {
    let mut scenario = scenario(protocol, seed, 4);
    scenario.byzantine.insert(3, [attack].into());
    run(scenario)
}

/// B4, B6: a leader that is down costs its own turn and nothing else.
#[test]
fn with_one_of_four_down_basic_hotstuff_loses_its_turns_only() {
    for seed in seeds(3) {
        for down in 0..4 {
            let mut scenario = scenario(Protocol::HotstuffBasic, seed, 4);
            scenario
                .faults
                .push((Duration::ZERO, Fault::Crash(vec![down])));
            let report = run(scenario);
            let (height, turns) = (report.highest.0, report.view.0 / 3);
            eprintln!("seed {seed}, {down} down: {height} final blocks in {turns} turns");
            assert!(height * 100 >= turns * 70, "seed {seed}: {report:?}");
        }
    }
}

/// B10: a leader that proposes and then keeps its certificates costs a time-out in few of its turns.
#[test]
fn a_leader_that_stalls_between_the_phases_is_not_waited_for() {
    for seed in seeds(3) {
        let honest = run(scenario(Protocol::HotstuffBasic, seed, 4)).highest.0;
        let report = attacked(Protocol::HotstuffBasic, seed, Attack::WithholdCertificates);
        let height = report.highest.0;
        eprintln!("seed {seed}: {height} final blocks, {honest} without the fault");
        assert!(height * 2 >= honest, "seed {seed}: {report:?}");
    }
}

/// P5: a leader that does nothing wrong leads a hundred views, and not one more.
#[test]
fn a_leader_of_pbft_stays_for_a_hundred_blocks() {
    for seed in seeds(2) {
        let mut scenario = scenario(Protocol::Pbft, seed, 4);
        scenario.goal = Some(150);
        let report = run(scenario);
        let (height, view) = (report.highest.0, report.view.0);
        eprintln!("seed {seed}: {height} final blocks in {view} views");
        assert!(
            height >= 150 && view < height + 10,
            "seed {seed}: {report:?}"
        );
    }
}

/// P2: a leader that is down is passed once, and costs nothing any more after that.
#[test]
fn a_leader_of_pbft_that_is_down_is_passed_once() {
    for seed in seeds(3) {
        let honest = run(scenario(Protocol::Pbft, seed, 4)).highest.0;
        let mut scenario = scenario(Protocol::Pbft, seed, 4);
        scenario.faults.push((seconds(1), Fault::Crash(vec![1])));
        let report = run(scenario);
        let height = report.highest.0;
        eprintln!("seed {seed}: {height} final blocks, {honest} without the fault");
        assert!(height * 10 >= honest * 6, "seed {seed}: {report:?}");
        assert!(report.view.0 > 100, "seed {seed}: {report:?}");
    }
}
