//! Chains on which nothing happens, and what happens on them then. In virtual time, so that figures can be
//! asserted. A failure prints its seed.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{run, seconds, seeds};
use quorate_consensus::Moment;
use quorate_sim::{Attack, Fault, Scenario, Simulation, Timeline, TransferTimes, swarm};
use quorate_types::genesis::Protocol;
use std::time::Duration;

const MILLISECOND: Duration = Duration::from_millis(1);

/// What a view takes on these links when everybody is there: a proposal, two rounds of votes, their
/// checks and syncs.
const VIEW: Duration = Duration::from_millis(25);

/// A chain of so many that idles for a second.
fn idle(seed: u64, validators: usize, transfers_per_second: u32) -> Scenario {
    let mut scenario = Scenario::new(seed, validators, seconds(60));
    scenario.timing.leader_timeout = seconds(1);
    scenario.timing.view_timeout = seconds(2);
    scenario.timing.idle_interval = seconds(1);
    scenario.transfers_per_second = transfers_per_second;
    scenario
}

fn measure(scenario: Scenario) -> Timeline {
    let described = format!("{scenario:?}");
    match Simulation::new(scenario).measure() {
        Ok((_, timeline)) => timeline,
        Err(violation) => panic!("{}\n{described}", violation.0),
    }
}

/// The times between blocks that are final somewhere, the one before the end of the run included.
fn gaps(timeline: &Timeline, end: Duration) -> Vec<Duration> {
    let known = timeline.blocks.iter();
    let first = known.map(|block| *block.known.iter().flatten().min().unwrap());
    let mut times: Vec<Moment> = first.collect();
    times.push(Moment(0).after(end));
    times
        .windows(2)
        .map(|pair| pair[1].since(pair[0]))
        .collect()
}

#[test]
fn an_idle_chain_makes_one_block_in_each_interval() {
    for seed in seeds(6) {
        let validators = [4, 7][seed as usize % 2];
        let gaps = gaps(&measure(idle(seed, validators, 0)), seconds(60));
        let longest = gaps.iter().max().unwrap();
        assert!(*longest <= seconds(1) + VIEW, "seed {seed}: {longest:?}");
        assert!((57..=64).contains(&gaps.len()), "seed {seed}: {gaps:?}");
    }
}

/// With chained HotStuff a chain of four makes as many blocks as make one of the newest final, once in four views.
#[test]
fn an_idle_chain_rests_where_blocks_are_final_with_others_upon_them() {
    for (seed, dead) in [(0, None), (1, Some(2))] {
        let mut scenario = idle(seed, 4, 0);
        scenario.protocol = Protocol::HotstuffChained;
        scenario.costs.execute = Duration::ZERO;
        scenario.faults = dead
            .map(|dead| (seconds(1), Fault::Crash(vec![dead])))
            .into_iter()
            .collect();
        let blocks = measure(scenario).blocks.len();
        let most = if dead.is_some() { 240 } else { 66 };
        assert!(blocks <= most, "dead {dead:?}: {blocks} blocks in a minute");
    }
}

/// A dead validator is known to be, and one that votes and does not lead costs a time-out now and then.
#[test]
fn an_idle_chain_goes_on_at_its_pace_without_a_leader() {
    for seed in seeds(4) {
        let mut dead = idle(seed, 4, 0);
        dead.faults = vec![(seconds(5), Fault::Crash(vec![2]))];
        let longest = gaps(&measure(dead), seconds(60)).into_iter().max().unwrap();
        assert!(longest <= seconds(1) + VIEW * 3, "seed {seed}: {longest:?}");

        let mut lazy = idle(seed, 4, 0);
        lazy.byzantine.insert(2, [Attack::Lazy].into());
        let gaps = gaps(&measure(lazy), seconds(60));
        let longest = *gaps.iter().max().unwrap();
        // The first time-outs are as configured.
        assert!(longest <= seconds(2) + VIEW * 3, "seed {seed}: {longest:?}");
        let long = gaps.iter().filter(|gap| **gap > seconds(1) + VIEW * 3);
        let long = long.count();
        assert!(long <= 3, "seed {seed}: {long} of {}", gaps.len());
    }
}

/// The median time from handing a transfer in until it is executed, and until it is provable.
fn medians(seed: u64, validators: usize, interval: Duration) -> [Duration; 2] {
    let mut scenario = idle(seed, validators, 10);
    scenario.duration = seconds(15);
    scenario.timing.idle_interval = interval;
    let timeline = measure(scenario);
    // Those that were handed in just before the end may not be done.
    let until = Moment(0).after(seconds(14));
    let mut times = [Vec::new(), Vec::new()];
    for transfer in &timeline.transfers {
        if transfer.submitted > until {
            continue;
        }
        let since = |at: Option<Moment>| at.unwrap().since(transfer.submitted);
        times[0].push(since(transfer.executed));
        times[1].push(since(transfer.provable));
    }
    let busy = interval.is_zero();
    let worst = *times[1].iter().max().unwrap();
    assert!(
        times[0].len() > 100 && (busy || worst < VIEW * 8),
        "seed {seed}: {worst:?}"
    );
    times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2]
    })
}

/// Ten transfers a second, anywhere: the chain idles before each.
#[test]
fn a_transfer_wakes_an_idle_chain_and_is_final_and_provable_as_soon_as_on_a_busy_one() {
    for seed in seeds(2) {
        let validators = [4, 7][seed as usize % 2];
        let busy = medians(seed, validators, Duration::ZERO);
        let idle = medians(seed, validators, seconds(1));
        eprintln!("seed {seed}, {validators} validators: busy {busy:?}, idle {idle:?}");
        for (busy, idle) in busy.into_iter().zip(idle) {
            assert!(
                idle <= busy + MILLISECOND,
                "seed {seed}: {idle:?}, {busy:?}"
            );
        }
    }
}

/// Without the blocks that follow, it would be provable some intervals later.
#[test]
fn a_transfer_is_provable_on_an_idle_chain_where_blocks_are_final_with_others_upon_them() {
    for (seed, dead) in seeds(2).flat_map(|seed| [(seed, None), (seed, Some(2))]) {
        let mut scenario = idle(seed, 4, 2);
        scenario.protocol = Protocol::HotstuffChained;
        if let Some(dead) = dead {
            scenario.faults = vec![(seconds(1), Fault::Crash(vec![dead]))];
        }
        let timeline = measure(scenario);
        let (from, until) = (Moment(0).after(seconds(3)), Moment(0).after(seconds(58)));
        let handed_in = timeline.transfers.iter();
        let counted = |one: &&TransferTimes| one.submitted > from && one.submitted < until;
        let handed_in: Vec<_> = handed_in.filter(counted).collect();
        assert!(handed_in.len() > 60, "seed {seed}, dead {dead:?}");
        let took = |at: Option<Moment>, submitted| at.map(|at| at.since(submitted));
        // With a dead leader a block is final once in four views.
        let most = VIEW * if dead.is_some() { 8 } else { 4 };
        for transfer in handed_in {
            let provable = took(transfer.provable, transfer.submitted);
            assert!(
                provable.is_some_and(|time| time < most),
                "seed {seed}, dead {dead:?}: {provable:?}"
            );
        }
    }
}

/// Time-outs that are too short for the network are doubled after some views without a final block. A chain of six that
/// rested for 1.7 s in each of these had none for more than 16 s.
#[test]
fn a_chain_on_which_nothing_becomes_final_does_not_rest() {
    run(Scenario {
        protocol: Protocol::HotstuffChained,
        ..swarm(50_092)
    });
}

/// Who holds a transfer does not wait for a leader that does not propose it.
#[test]
fn a_leader_that_does_not_propose_delays_a_transfer_by_a_time_out_and_not_by_the_interval() {
    for seed in seeds(4) {
        let mut scenario = idle(seed, 4, 2);
        scenario.timing.idle_interval = seconds(20);
        scenario.duration = seconds(120);
        scenario.byzantine.insert(2, [Attack::Lazy].into());
        let timeline = measure(scenario);
        let until = Moment(0).after(seconds(110));
        let times = timeline.transfers.iter();
        let times = times.filter(|transfer| transfer.submitted < until);
        let times = times.filter_map(|t| Some(t.executed?.since(t.submitted)));
        let mut times: Vec<Duration> = times.collect();
        times.sort_unstable();
        let (worst, most) = (times[times.len() - 1], times[times.len() * 95 / 100]);
        eprintln!(
            "seed {seed}: worst {worst:?}, 95 of 100 {most:?}, of {}",
            times.len()
        );
        assert!(worst <= seconds(2), "seed {seed}: {worst:?}");
        assert!(most <= VIEW * 3, "seed {seed}: {most:?}");
    }
}
