//! What leaders cost that do not lead, whatever else they do. In virtual time, so that figures can be
//! asserted. A failure prints its seed.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{run, seconds, seeds};
use quorate_consensus::Timing;
use quorate_sim::{Attack, Fault, Latency, Report, Scenario, WORLD};
use quorate_types::{EpochLength, genesis::Protocol};
use std::time::Duration;

/// Four validators for 30 s. A time-out is as long as dozens of views.
fn slow_to_time_out(seed: u64) -> Scenario {
    let mut scenario = Scenario::new(seed, 4, seconds(30));
    scenario.timing.leader_timeout = seconds(1);
    scenario.timing.view_timeout = seconds(2);
    scenario.transfers_per_second = 0;
    scenario
}

/// What four validators make of 30 s if the third has this attack, or with this fault.
fn outcome(seed: u64, attack: Option<Attack>, fault: Option<Fault>) -> Report {
    let mut scenario = slow_to_time_out(seed);
    if let Some(attack) = attack {
        scenario.byzantine.insert(2, [attack].into());
    }
    scenario
        .faults
        .extend(fault.map(|fault| (Duration::ZERO, fault)));
    run(scenario)
}

fn blocks(seed: u64, attack: Option<Attack>, fault: Option<Fault>) -> u64 {
    outcome(seed, attack, fault).highest.0
}

/// Between regions proposals take from a few milliseconds to a quarter of a second. Whoever is far away
/// keeps its turns, though time-outs follow what the nearer ones take.
#[test]
fn distant_leaders_keep_their_turns() {
    for seed in seeds(4) {
        let mut scenario = Scenario::new(seed, 10, seconds(3_600));
        scenario.links.latency = Latency::Map(&WORLD, 0);
        scenario.timing = Timing::default();
        scenario.goal = Some(100);
        let report = run(scenario);
        let (height, view) = (report.highest.0, report.view.0);
        eprintln!("seed {seed}: {height} blocks in {view} views");
        assert!(
            height >= 100 && view <= height + 4,
            "seed {seed}: {report:?}"
        );
    }
}

/// With a leader that is there and does not lead, the others make nearly as many blocks as without it.
#[test]
fn leaders_that_do_not_lead_cost_little_more_than_dead_ones() {
    for seed in seeds(2) {
        let without = blocks(seed, None, Some(Fault::Crash(vec![2])));
        for attack in [
            Attack::Lazy,
            Attack::Moody,
            Attack::WithholdBlocks,
            Attack::BadTransactions,
            Attack::JunkBlocks,
            Attack::WrongParents,
        ] {
            let with = blocks(seed, Some(attack), None);
            eprintln!("seed {seed}, {attack:?}: {with} blocks, {without} without it");
            assert!(
                with * 4 >= without * 3,
                "seed {seed}, {attack:?}: {with} of {without}"
            );
        }
    }
}

/// The same with PBFT on a chain with a registry, where turns are short: with turns of one view every pause would
/// count, and a debt that is forgiven at once is none (P8, R21).
#[test]
fn leaders_of_short_turns_that_do_not_lead_cost_little_more_than_dead_ones() {
    let blocks = |epoch, attack: Option<Attack>| {
        let mut scenario = slow_to_time_out(1);
        scenario.protocol = Protocol::Pbft;
        scenario.turns_fit = EpochLength::new(epoch);
        match attack {
            Some(attack) => drop(scenario.byzantine.insert(2, [attack].into())),
            None => scenario
                .faults
                .push((Duration::ZERO, Fault::Crash(vec![2]))),
        }
        run(scenario).highest.0
    };
    for (epoch, turn) in [(16, 1), (32, 2)] {
        let without = blocks(epoch, None);
        for attack in [Attack::Lazy, Attack::WithholdBlocks, Attack::JunkBlocks] {
            let with = blocks(epoch, Some(attack));
            eprintln!("turns of {turn}, {attack:?}: {with} blocks, {without} without it");
            assert!(
                with * 4 >= without * 3,
                "{turn}, {attack:?}: {with} of {without}"
            );
        }
    }
}

/// A link that is missing between two honest validators costs neither of them its turns. Blocks take
/// longer, since each of the two hears of the other's by way of third ones.
#[test]
fn a_missing_link_between_two_honest_validators_costs_no_turns() {
    for seed in seeds(2) {
        let whole = blocks(seed, None, None);
        for other in [2, 3] {
            let missing = outcome(seed, None, Some(Fault::Unlink(1, other)));
            let (height, view) = (missing.highest.0, missing.view.0);
            eprintln!("seed {seed}: {height} blocks in {view} views, {whole} if all are linked");
            assert!(view <= height + height / 50 + 4, "seed {seed}: {missing:?}");
            assert!(height * 2 >= whole, "seed {seed}: {height} of {whole}");
        }
    }
}

/// The end of a validator's process is no surprise: the next block is final within ten blocks' time,
/// though time-outs would be many times as long.
#[test]
fn a_crash_delays_the_next_block_by_a_few_blocks_time() {
    let mut slowest = (Duration::ZERO, 0);
    for seed in seeds(60) {
        let validators = [4, 7][seed as usize % 2];
        let mut scenario = Scenario::new(seed, validators, seconds(6));
        scenario.timing.leader_timeout = seconds(1);
        scenario.timing.view_timeout = seconds(2);
        let at = Duration::from_millis(3_000 + seed * 7 % 1_999);
        let victim = (seed as usize / 2) % validators;
        scenario.faults = vec![(at, Fault::Crash(vec![victim]))];
        scenario.mark = Some(at);
        let report = run(scenario);
        let took = report.first_progress.unwrap();
        slowest = slowest.max((took, seed));
    }
    // Blocks take about 8 ms.
    eprintln!("slowest: {:?}, seed {}", slowest.0, slowest.1);
    assert!(slowest.0 <= Duration::from_millis(80), "{slowest:?}");
}
