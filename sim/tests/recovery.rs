//! How soon validators go on after a partition has healed, or when f of them have crashed, in
//! units of the longest that a message takes. A failure prints its seed.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{run, seeds};
use quorate_sim::{Fault, Latency, Report, Scenario, timing_for};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::time::Duration;

/// The longest that a message takes.
const BOUND: Duration = Duration::from_millis(100);

fn scenario(seed: u64, validators: usize) -> Scenario {
    let mut scenario = Scenario::new(seed, validators, Duration::from_secs(30));
    scenario.links.latency = Latency::Between(BOUND / 10, BOUND);
    scenario.timing = timing_for(BOUND);
    scenario.transfers_per_second = 0;
    scenario
}

fn bounds(report: &Report) -> f64 {
    report.first_progress.unwrap().as_secs_f64() / BOUND.as_secs_f64()
}

/// A new block is final within five times the bound after a partition has healed, whatever its shape
/// and however long it lasted. Fewer than one in a thousand take longer, and none more than eight
/// times: a view may have been given up by some and not by others just as it healed.
#[test]
fn a_new_block_is_final_within_five_bounds_of_healing() {
    let mut slowest = (0.0, 0);
    let (mut slow, mut runs) = (0, 0);
    for seed in seeds(150) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let validators = [4, 4, 7, 10][seed as usize % 4];
        let mut scenario = scenario(seed, validators);
        let parts = rng.random_range(2..=validators);
        let mut groups = vec![Vec::new(); parts];
        for validator in 0..validators {
            groups[rng.random_range(0..parts)].push(validator);
        }
        let start = Duration::from_millis(rng.random_range(1_000..2_000));
        let lasts = BOUND.mul_f64(rng.random_range(0.5..60.0));
        scenario.faults = vec![
            (start, Fault::Partition(groups)),
            (start + lasts, Fault::Heal),
        ];
        scenario.must_recover = true;
        let took = bounds(&run(scenario));
        if took > 5.0 {
            eprintln!("seed {seed}: {took:.2} bounds");
            slow += 1;
        }
        if took > slowest.0 {
            slowest = (took, seed);
        }
        runs += 1;
    }
    eprintln!(
        "slowest of {runs}: {:.2} bounds, seed {}; {slow} above five",
        slowest.0, slowest.1
    );
    assert!(slow * 1_000 < runs, "{slow} of {runs} took longer");
    assert!(
        slowest.0 <= 8.0,
        "seed {}: {:.2} bounds",
        slowest.1,
        slowest.0
    );
}

/// When f validators crash for good, each of them that leads next costs a leader time-out (two
/// bounds) and a nullification (one), before a block takes its three.
#[test]
fn f_crashed_validators_cost_their_turns_and_no_more() {
    let mut slowest = (f64::MIN, 0);
    for seed in seeds(100) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let validators = [4, 7, 10][seed as usize % 3];
        let faults = (validators - 1) / 3;
        let mut scenario = scenario(seed, validators);
        let first = rng.random_range(0..validators);
        let victims: Vec<usize> = (0..faults).map(|i| (first + i) % validators).collect();
        let at = Duration::from_millis(rng.random_range(1_000..2_000));
        scenario.faults = vec![(at, Fault::Crash(victims))];
        scenario.mark = Some(at);
        let took = bounds(&run(scenario)) - 3.0 * faults as f64;
        if took > slowest.0 {
            slowest = (took, seed);
        }
    }
    eprintln!(
        "slowest: {:.2} bounds beside the turns, seed {}",
        slowest.0, slowest.1
    );
    assert!(
        slowest.0 <= 5.0,
        "seed {}: {:.2} bounds",
        slowest.1,
        slowest.0
    );
}
