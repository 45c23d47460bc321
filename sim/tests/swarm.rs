//! Random scenarios, and those that once failed.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::nightly;
use quorate_sim::{run_many, run_one, script, swarm};
use std::{fs, path::Path, thread};

#[test]
fn random_scenarios_break_no_rule() {
    let seeds = if nightly() {
        0..10_000
    } else {
        100_000..100_150
    };
    let threads = thread::available_parallelism().map_or(1, |threads| threads.get());
    let outcome = run_many(seeds, threads, None, 3, swarm, |_| {});
    assert!(outcome.failures.is_empty(), "{:#?}", outcome.failures);
    let coverage = outcome.coverage;
    eprintln!("{coverage}");
    // A simulator that stopped making trouble would find none.
    assert!(coverage.views > 50 * coverage.runs);
    for (what, count) in [
        ("crashes", coverage.crashes),
        ("halts", coverage.halts),
        ("bisections", coverage.bisections),
        ("equivocations", coverage.evidence),
        ("lost messages", coverage.lost),
        ("struck operations", coverage.mishaps),
        ("transactions", coverage.transactions),
        ("state syncs", coverage.state_syncs),
    ] {
        assert!(count > coverage.runs / 50, "only {count} {what}");
    }
}

/// Each file is a scenario that broke a rule before a bug was fixed; its head tells the story.
#[test]
fn what_once_failed_fails_no_more() {
    let folder = Path::new("scripts");
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let scenario = script::parse(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        if let Err(violation) = run_one(scenario) {
            panic!("{}: {}", path.display(), violation.0);
        }
        count += 1;
    }
    assert!(count > 0);
}
