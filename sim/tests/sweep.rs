//! Crashes at every step, systematic twins, and the determinism of it all. A failure prints what to
//! run again.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::nightly;
use quorate_crypto::bls::SchemeKind;
use quorate_sim::{Mishap, Outcome, run_one, swarm, sweep, twins};
use quorate_types::genesis::Protocol;
use std::thread;

/// Every how many points are tried in the first tier.
const EVERY: usize = 9;

fn threads() -> usize {
    thread::available_parallelism().map_or(1, |threads| threads.get())
}

/// Every protocol with every vote scheme.
fn chosen() -> impl Iterator<Item = sweep::Chosen> {
    let protocols = Protocol::ALL.into_iter();
    protocols.flat_map(|protocol| SchemeKind::ALL.map(|scheme| (protocol, scheme)))
}

fn expect_none(outcome: &Outcome) {
    let first = outcome.failures.first();
    assert!(first.is_none(), "{first:?}");
}

#[test]
fn a_crash_at_any_disk_operation_breaks_nothing() {
    let every = if nightly() { 1 } else { EVERY };
    for (protocol, scheme) in chosen() {
        let operations = sweep::disk_operations((protocol, scheme));
        assert!(operations > 400, "{operations}");
        for mishap in Mishap::CRASHES {
            let points = (1..=operations).step_by(every);
            let tried = points.clone().count() as u64;
            let run = |operation| sweep::crash_at((protocol, scheme), operation, mishap);
            let outcome = sweep::for_each(points, threads(), run, |_| {});
            expect_none(&outcome);
            // The last operations may not come again when the run ends a little earlier.
            assert!(
                outcome.coverage.crashes + 5 >= tried,
                "{:?}",
                outcome.coverage
            );
        }
    }
}

#[test]
fn all_crash_at_any_step_of_a_view_and_go_on() {
    for (protocol, scheme) in chosen() {
        let numbers = sweep::STEPS.flat_map(|step| [2 * step, 2 * step + 1]);
        let run = |number: u64| {
            sweep::crash_all_at((protocol, scheme), number / 2, number.is_multiple_of(2))
        };
        let outcome = sweep::for_each(numbers, threads(), run, |_| {});
        expect_none(&outcome);
        assert!(outcome.coverage.crashes >= 4 * outcome.coverage.runs);
    }
}

#[test]
fn twins_under_any_partitions_of_seven_views_break_nothing() {
    let count = if nightly() { 200_000 } else { 3_000 };
    for protocol in Protocol::ALL {
        let outcome = twins::run_many(protocol, count, threads(), |_| {});
        expect_none(&outcome);
        // Votes that go to one leader are compared by nobody else; and with a leader that stays, seven views see few leaders.
        let proven = match protocol {
            Protocol::Simplex | Protocol::HotstuffChained => count / 2,
            Protocol::Pbft => count / 4,
            Protocol::HotstuffBasic => count / 10,
        };
        assert!(
            outcome.coverage.evidence > proven,
            "{protocol:?}: {:?}",
            outcome.coverage
        );
    }
}

/// The same seed gives the same trace to the byte, whatever else this process does.
#[test]
fn a_hundred_seeds_give_the_same_traces_twice() {
    let traces = || -> Vec<_> {
        let seeds = 5_000..5_100;
        seeds
            .map(|seed| run_one(swarm(seed)).map(|report| report.trace))
            .collect()
    };
    let other = thread::spawn(traces);
    let first = traces();
    assert_eq!(first, other.join().unwrap());
    let distinct: std::collections::BTreeSet<_> = first.into_iter().map(|t| t.unwrap()).collect();
    assert_eq!(distinct.len(), 100);
}
