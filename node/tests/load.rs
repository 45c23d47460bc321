//! `quorate load` against real validators. Waits for conditions, never for times.
#![allow(clippy::unwrap_used)]

mod common;

use common::{BINARY, Net};
use quorate_load::Latencies;
use serde_json::Value;
use std::process::Command;

fn load(net: &Net, arguments: &[&str]) -> (bool, Value, String) {
    let path = net.path();
    let output = Command::new(BINARY)
        .args(["load", "--dir", path.to_str().unwrap(), "--json", "-"])
        .args(arguments)
        .output()
        .unwrap();
    let complaint = String::from_utf8(output.stderr).unwrap();
    let report = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.success(), report, complaint)
}

fn number(report: &Value, name: &str) -> u64 {
    report[name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name}: {report}"))
}

/// Each offered transfer came to exactly one end.
fn is_complete(report: &Value) {
    let ends = [
        "finalized",
        "failed",
        "refused",
        "lost",
        "repeated",
        "unsent",
        "unfinished",
    ];
    let ended: u64 = ends.iter().map(|name| number(report, name)).sum();
    assert_eq!(ended, number(report, "offered"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_offers_what_it_says_and_tells_what_became_of_it() {
    let mut net = Net::start("load", 4).await;
    net.grow(0, 3).await;
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("seconds.csv");
    let arguments = [
        "--steps",
        "100,200",
        "--step-for",
        "2s",
        "--warm-up",
        "0ms",
        "--drain",
        "60s",
        "--csv",
        csv.to_str().unwrap(),
    ];
    let (good, report, complaint) = load(&net, &arguments);
    assert!(good, "{complaint}");
    // However busy the machine is: the schedule fixes what is offered.
    assert_eq!(number(&report, "offered"), 600, "{report}");
    assert_eq!(number(&report, "finalized"), 600, "{report} {complaint}");
    is_complete(&report);
    report["steps"]
        .as_array()
        .unwrap()
        .iter()
        .for_each(is_complete);
    assert_eq!(report["validators"].as_array().unwrap().len(), 4);
    let text = report["latency"]["histogram"].as_str().unwrap();
    assert_eq!(Latencies::from_text(text).unwrap().count(), 600);
    let table = std::fs::read_to_string(&csv).unwrap();
    assert!(table.starts_with("second,offered,taken,final,"), "{table}");

    // New accounts, paid by one of the genesis accounts, to one validator, in a closed loop.
    let rich = folder.path().join("rich.key");
    let seed = net.accounts()[0].to_bytes();
    let plain = quorate_node::keys::Protection::Plain;
    quorate_node::keys::save_secret(&rich, &seed, plain).unwrap();
    let arguments = [
        "--fund-from",
        rich.to_str().unwrap(),
        "--accounts",
        "5",
        "--fund",
        "1000",
        "--clients",
        "5",
        "--for",
        "1s",
        "--to",
        "nearest",
        "--drain",
        "60s",
    ];
    let (good, report, complaint) = load(&net, &arguments);
    assert!(good, "{complaint}");
    assert_eq!(number(&report, "funded"), 5);
    assert_eq!(report["validators"].as_array().unwrap().len(), 1);
    assert!(number(&report, "finalized") >= 5, "{report}");
    is_complete(&report);

    // More of them, and load for all validators, of which most have not seen the payments become final.
    let arguments = [
        "--fund-from",
        rich.to_str().unwrap(),
        "--accounts",
        "50",
        "--fund",
        "1000",
        "--clients",
        "8",
        "--for",
        "1s",
        "--drain",
        "60s",
    ];
    let (good, report, complaint) = load(&net, &arguments);
    assert!(good, "{complaint}");
    assert_eq!(number(&report, "funded"), 45, "{report}");
    assert_eq!(report["validators"].as_array().unwrap().len(), 4);

    // Every validator gets every transfer, and each becomes final once.
    let told = async |net: &Net, place: usize| {
        let metrics = net.network.operator(place).metrics().await.unwrap();
        let name = "quorate_rpc_submitted_transactions_total{";
        let lines = metrics.lines().filter(|line| line.starts_with(name));
        let counts = lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap());
        counts.sum::<f64>()
    };
    let mut before = Vec::new();
    for place in 0..4 {
        before.push(told(&net, place).await);
    }
    let arguments = [
        "--rate",
        "100",
        "--for",
        "2s",
        "--warm-up",
        "0ms",
        "--to",
        "each",
        "--drain",
        "60s",
    ];
    let (good, report, complaint) = load(&net, &arguments);
    assert!(good, "{complaint}");
    assert_eq!(number(&report, "finalized"), 200, "{report} {complaint}");
    net.until("all have answered all", async |net| {
        for (place, before) in before.iter().enumerate() {
            if told(net, place).await < before + 200.0 {
                return false;
            }
        }
        true
    })
    .await;

    // Mistakes, each with what helps.
    let (_, _, complaint) = load(&net, &["--accounts", "51", "--for", "1s"]);
    assert!(complaint.contains("fewer --accounts"), "{complaint}");
    let (_, _, complaint) = load(&net, &["--rpc", "http://127.0.0.1:1", "--wait", "1ms"]);
    assert!(
        complaint.contains("is not ready") && complaint.contains("--rpc"),
        "{complaint}"
    );
    let poor = folder.path().join("poor.key");
    quorate_node::keys::save_secret(&poor, &[77; 32], plain).unwrap();
    let (good, _, complaint) = load(&net, &["--fund-from", poor.to_str().unwrap()]);
    assert!(!good && complaint.contains("holds 0") && complaint.contains("smaller --fund"));
    net.stop_and_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_validator_of_another_chain_is_named() {
    let mut net = Net::start("load-here", 1).await;
    let other = Net::start("load-there", 1).await;
    net.grow(0, 1).await;
    let (good, _, complaint) = load(&net, &["--rpc", &other.network.urls()[0]]);
    assert!(!good && complaint.contains("runs chain"), "{complaint}");
}
