//! `quorate localnet --show-registry`: four validators become seven, then five, and the first four are replaced, under
//! load, without a lost block or transfer.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{BINARY, free_base_port};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    process::{Command, Output},
    sync::{Mutex, PoisonError},
};

/// Each network has nine machines: beside three others, some of them would not be in step in time.
static ALONE: Mutex<()> = Mutex::new(());

fn localnet(directory: &std::path::Path, arguments: &[&str]) -> Output {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let port = free_base_port(9).to_string();
    Command::new(BINARY)
        .args(["localnet", "--json", "--base-port", &port, "--dir"])
        .arg(directory)
        .args(arguments)
        .output()
        .unwrap()
}

fn report(output: &Output) -> Value {
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Nothing is lost, and no machine has other blocks than another.
fn is_whole(report: &Value) {
    for name in [
        "missing_heights",
        "contradictions",
        "tx_lost",
        "tx_unfinished",
        "tx_failed",
    ] {
        assert_eq!(report[name], 0, "{name}: {report}");
    }
    assert_eq!(report["tx_submitted"], report["tx_applied"], "{report}");
    assert!(report["tx_applied"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(report["complete"], true, "{report}");
    // Each epoch goes on where the one before has ended.
    let rows = report["rows"].as_array().unwrap();
    for pair in rows.windows(2) {
        let last = pair[0]["last_height"].as_u64().unwrap();
        assert_eq!(pair[1]["first_height"], last + 1, "{report}");
    }
}

/// The report of a show in which nothing was lost.
fn show(network: &std::path::Path, protocol: &str) -> Value {
    let arguments = [
        "--show-registry",
        "--protocol",
        protocol,
        "--block-interval",
        "25ms",
        "--load",
        "100",
    ];
    let report = report(&localnet(network, &arguments));
    is_whole(&report);
    report
}

fn sets(report: &Value) -> Vec<BTreeSet<u64>> {
    let rows = report["rows"].as_array().unwrap().iter();
    let sets = rows.map(|row| {
        let validators = row["validators"].as_array().unwrap().iter();
        validators.map(|place| place.as_u64().unwrap()).collect()
    });
    sets.collect()
}

#[test]
fn a_set_grows_shrinks_and_is_replaced_under_load() {
    let folder = tempfile::tempdir().unwrap();
    let network = folder.path().join("net");
    let report = show(&network, "simplex");
    // Each block is verified with the keys of its own epoch.
    for place in [0, 4] {
        let config = network.join(format!("validator-{place}/validator.toml"));
        let checked = Command::new(BINARY)
            .args(["db", "check", "--config"])
            .arg(config)
            .output()
            .unwrap();
        assert!(checked.status.success(), "{checked:?}");
    }
    // An explorer has executed all of it, and agrees.
    let explorer = &report["explorer"];
    assert_eq!(explorer["state"], "executed", "{report}");
    let checked: u64 = explorer["checked_to"].as_str().unwrap().parse().unwrap();
    assert!(
        checked + 100 > report["last_height"].as_u64().unwrap(),
        "{report}"
    );
    let sets = sets(&report);
    assert_eq!(sets[0], (0..4).collect(), "{report}");
    let stages = [
        (0..7).collect(),
        (0..5).collect(),
        [1, 2, 3, 4, 7].into(),
        [2, 3, 4, 7, 8].into(),
        [3, 4, 5, 7, 8].into(),
        [4, 5, 6, 7, 8].into(),
    ];
    let mut rest = sets.iter();
    for stage in stages {
        assert!(rest.any(|set| *set == stage), "{stage:?}: {report}");
    }
}

/// A leader that stays for several blocks keeps nobody from being heard, so the set changes as with the others.
#[test]
fn a_set_grows_shrinks_and_is_replaced_with_pbft() {
    let folder = tempfile::tempdir().unwrap();
    let report = show(&folder.path().join("net"), "pbft");
    assert_eq!(report["explorer"]["state"], "executed", "{report}");
    let sets = sets(&report);
    for stage in [(0..7).collect(), (0..5).collect(), [4, 5, 6, 7, 8].into()] {
        assert!(sets.contains(&stage), "{stage:?}: {report}");
    }
}

#[test]
fn a_storm_of_changes_and_kills_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--storm", "--for", "20s", "--load", "100", "--seed", "7"];
    let report = report(&localnet(&folder.path().join("net"), &arguments));
    is_whole(&report);
    assert_eq!(report["seed"], 7, "{report}");
    assert!(report["operations"].as_u64().unwrap() > 0, "{report}");
}

#[test]
fn all_but_a_quorum_are_replaced_at_once_again_and_again() {
    for scheme in ["bls-aggregate", "bls-threshold"] {
        let folder = tempfile::tempdir().unwrap();
        let arguments = [
            "--exchange",
            "--scheme",
            scheme,
            "--for",
            "20s",
            "--load",
            "100",
        ];
        let report = report(&localnet(&folder.path().join("net"), &arguments));
        is_whole(&report);
        assert_ne!(report["set_changes"], 0, "{report}");
        let sizes: BTreeSet<usize> = sets(&report).iter().map(BTreeSet::len).collect();
        match scheme {
            "bls-aggregate" => {
                assert_ne!(report["replaced_all_but_a_quorum"], 0, "{report}");
                assert_eq!(sizes, [7].into(), "{report}");
            }
            // On a busy machine one of two may announce itself too late for an epoch.
            _ => assert!(sizes.iter().all(|size| (5..=7).contains(size)), "{report}"),
        }
    }
}
