//! Systematic twins (Bano et al., 2020): one validator runs twice with one key, and every view has a
//! partition of its own. All partitions of all views are enumerated, in an order that spreads any
//! number of first scenarios evenly over all of them.

use crate::{
    adversary::Attack,
    runner::Outcome,
    scenario::Scenario,
    world::{Report, Simulation, ViewGroups, Violation},
};
use quorate_types::genesis::Protocol;
use std::{collections::BTreeSet, time::Duration};

/// Validators; one of them runs twice.
pub const VALIDATORS: usize = 4;

/// Views with partitions.
pub const VIEWS: u32 = 7;

/// Ways to cut five hosts into two groups, one of them perhaps empty.
const CUTS: u64 = 16;

/// How many scenarios there are: who is the twin, and each view's partition.
pub const SCENARIOS: u64 = VALIDATORS as u64 * CUTS.pow(VIEWS);

/// Takes a number to another one of [`SCENARIOS`], each once: their number is a power of two and
/// this is odd.
const STRIDE: u64 = 0x9e37_79b1;

/// The scenario of a number below [`SCENARIOS`].
fn decode(number: u64) -> (usize, ViewGroups) {
    let mut rest = number.wrapping_mul(STRIDE) % SCENARIOS;
    let twin = (rest % VALIDATORS as u64) as usize;
    rest /= VALIDATORS as u64;
    let groups = (0..VIEWS)
        .map(|_| {
            let cut = rest % CUTS;
            rest /= CUTS;
            // Host 0 is always in the first group, or each cut would be there twice.
            let first = |host: &usize| *host == 0 || cut >> (host - 1) & 1 == 0;
            let (one, other): (BTreeSet<usize>, BTreeSet<usize>) =
                (0..=VALIDATORS).partition(first);
            vec![one, other]
        })
        .collect();
    (twin, groups)
}

/// Runs one scenario: the views with their partitions, then whole ones until blocks are final.
///
/// # Errors
///
/// If a rule is broken, or the validators do not go on afterwards.
pub fn run(protocol: Protocol, number: u64) -> Result<Report, Violation> {
    let (twin, groups) = decode(number);
    let mut scenario = Scenario::new(number, VALIDATORS, Duration::from_secs(20));
    scenario.byzantine.insert(twin, [Attack::FreeTwins].into());
    scenario.protocol = protocol;
    scenario.transfers_per_second = 0;
    scenario.goal = Some(u64::from(VIEWS) + 3);
    let mut simulation = Simulation::new(scenario);
    simulation.view_groups = Some(groups);
    simulation.run_watched(|_, _, _| {})
}

/// Runs so many scenarios, over so many threads.
pub fn run_many(
    protocol: Protocol,
    count: u64,
    threads: usize,
    watch: impl Fn(&Outcome) + Sync,
) -> Outcome {
    let run = |number| run(protocol, number);
    crate::sweep::for_each(0..count.min(SCENARIOS), threads, run, watch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_another_scenario() {
        let mut seen = BTreeSet::new();
        for number in 0..20_000 {
            let (twin, groups) = decode(number);
            assert_eq!(groups.len(), VIEWS as usize);
            for view in &groups {
                let hosts: usize = view.iter().map(BTreeSet::len).sum();
                assert_eq!(hosts, VALIDATORS + 1);
            }
            assert!(seen.insert((twin, groups)), "{number} is there twice");
        }
    }
}
