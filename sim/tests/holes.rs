//! Links that are missing for good between honest validators, as long as each has one to a quorum: what
//! they cost, in blocks for the same time. In virtual time. A failure prints its seed.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{run, seconds, seeds};
use quorate_sim::{Fault, Scenario};
use std::time::Duration;

fn blocks(seed: u64, validators: usize, missing: &[(usize, usize)]) -> u64 {
    let mut scenario = Scenario::new(seed, validators, seconds(20));
    scenario.timing.leader_timeout = seconds(1);
    scenario.timing.view_timeout = seconds(2);
    scenario.transfers_per_second = 20;
    let missing = missing.iter();
    scenario.faults = missing
        .map(|(one, other)| (Duration::ZERO, Fault::Unlink(*one, *other)))
        .collect();
    run(scenario).highest.0
}

/// Each of so many validators lacks the link to those that are so far from it in a circle.
fn circle(validators: usize, steps: &[usize]) -> Vec<(usize, usize)> {
    let pairs = steps
        .iter()
        .flat_map(|step| (0..validators).map(move |place| (place, (place + step) % validators)));
    let mut pairs: Vec<_> = pairs.map(|(a, b)| (a.min(b), a.max(b))).collect();
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

#[test]
fn missing_links_cost_a_hop_and_no_more_with_shares() {
    links_are_missing(seeds(2).step_by(2));
}

#[test]
fn missing_links_cost_a_hop_and_no_more_with_aggregates() {
    links_are_missing(seeds(2).skip(1).step_by(2));
}

fn links_are_missing(seeds: impl Iterator<Item = u64>) {
    let cases = [
        (4, vec![(1, 2)]),
        (4, vec![(1, 3)]),
        (4, vec![(0, 1), (2, 3)]),
        (7, vec![(1, 2)]),
        (7, circle(7, &[1])),
        (7, circle(7, &[2])),
        (10, circle(10, &[1, 5])),
        (10, circle(10, &[3, 5])),
    ];
    for seed in seeds {
        for (validators, missing) in &cases {
            let whole = blocks(seed, *validators, &[]);
            let holes = blocks(seed, *validators, missing);
            eprintln!(
                "seed {seed}, {validators} validators without {missing:?}: {holes} blocks of {whole}"
            );
            assert!(
                holes * 10 >= whole * 7,
                "seed {seed}, {validators}: {missing:?}"
            );
        }
    }
}
