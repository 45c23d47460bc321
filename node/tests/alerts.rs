//! The alert rules on real validators: a Prometheus with the rules as they are, but for their times, which
//! are a twentieth. What is broken on purpose must fire what is meant for it, and nothing else.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::Net;
use std::{
    collections::BTreeSet,
    fs,
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// The rules' times are so many times shorter.
const FASTER: u64 = 20;

/// How long an alert may take. `NoBlock` has a constant of 20 s in its expression.
const PATIENCE: Duration = Duration::from_secs(90);

struct Prometheus {
    process: Child,
    url: String,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Times of the form 5m in a line, a twentieth of them. Nothing is scraped more often than once a second.
fn faster(line: &str) -> String {
    let mut text = String::new();
    let mut digits = String::new();
    for (at, character) in line.char_indices() {
        let seconds = match character {
            's' => Some(1),
            'm' => Some(60),
            'h' => Some(3_600),
            _ => None,
        };
        let next = line[at + character.len_utf8()..].chars().next();
        let ends = next.is_none_or(|next| !next.is_alphanumeric() && next != '_');
        match (character.is_ascii_digit(), seconds) {
            (true, _) => digits.push(character),
            (false, Some(seconds)) if !digits.is_empty() && ends => {
                let ms = digits.parse::<u64>().unwrap() * seconds * 1_000 / FASTER;
                text.push_str(&format!("{ms}ms"));
                digits.clear();
            }
            (false, _) => {
                text.push_str(&std::mem::take(&mut digits));
                text.push(character);
            }
        }
    }
    text + &digits
}

impl Prometheus {
    /// None if it is not installed.
    fn start(folder: &std::path::Path, net: &Net) -> Option<Self> {
        let rules =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/prometheus/alerts.yml");
        let rules = fs::read_to_string(rules).unwrap();
        let rules: Vec<String> = rules
            .lines()
            .map(|line| match line.trim_start() {
                text if text.starts_with("description") || text.starts_with("summary") => {
                    line.to_owned()
                }
                _ => faster(line),
            })
            .collect();
        fs::write(folder.join("alerts.yml"), rules.join("\n")).unwrap();
        let targets: Vec<String> = (0..net.network.size())
            .map(|place| format!("\"{}\"", net.network.settings().admin_address(place)))
            .collect();
        let config = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\nrule_files: \
             [alerts.yml]\nscrape_configs:\n  - job_name: quorate\n    static_configs:\n      - targets: \
             [{}]\n        labels: {{network: n}}\n",
            targets.join(", ")
        );
        fs::write(folder.join("prometheus.yml"), config).unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let process = Command::new("prometheus")
            .current_dir(folder)
            .arg("--config.file=prometheus.yml")
            .arg("--storage.tsdb.path=data")
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(fs::File::create(folder.join("prometheus.log")).unwrap())
            .spawn();
        match process {
            Ok(process) => Some(Self {
                process,
                url: format!("http://{address}"),
            }),
            Err(_) => {
                eprintln!("prometheus is not installed; alerts are not provoked");
                None
            }
        }
    }

    /// The alerts that fire.
    async fn firing(&self) -> BTreeSet<String> {
        let Ok(answer) = reqwest::get(format!("{}/api/v1/alerts", self.url)).await else {
            return BTreeSet::new();
        };
        let answer: serde_json::Value = answer.json().await.unwrap_or_default();
        let alerts = answer["data"]["alerts"].as_array().cloned();
        let alerts = alerts.unwrap_or_default().into_iter();
        alerts
            .filter(|alert| alert["state"] == "firing")
            .filter_map(|alert| Some(alert["labels"]["alertname"].as_str()?.to_owned()))
            .collect()
    }

    /// Waits until all of these fire. Beside them, only those that follow from the same may.
    async fn fires(&self, wanted: &[&str], beside: &[&str]) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let firing = self.firing().await;
            let known =
                |name: &&String| wanted.contains(&name.as_str()) || beside.contains(&name.as_str());
            let others: Vec<_> = firing.iter().filter(|name| !known(name)).collect();
            assert!(others.is_empty(), "{others:?} fire, too");
            if wanted.iter().all(|name| firing.contains(*name)) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{wanted:?} do not all fire, but {firing:?}"
            );
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    async fn quiet(&self, but: &[&str]) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let firing = self.firing().await;
            if firing.iter().all(|name| but.contains(&name.as_str())) {
                return;
            }
            assert!(Instant::now() < deadline, "{firing:?} still fire");
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }
}

/// What a machine that is busy with other things may say: all times are a twentieth.
const OF_A_BUSY_MACHINE: [&str; 4] = [
    "JournalSyncSlow",
    "ExecutionLags",
    "ViewsGivenUp",
    "FinalitySlow",
];

#[test]
fn times_become_shorter_and_nothing_else_changes() {
    assert_eq!(faster("        for: 30s"), "        for: 1500ms");
    assert_eq!(faster("rate(a[5m]) > 0.1"), "rate(a[15000ms]) > 0.1");
    assert_eq!(faster("sum_5m_x offset 10m"), "sum_5m_x offset 30000ms");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_failure_fires_its_own_alerts() {
    let folder = tempfile::tempdir().unwrap();
    let mut net = Net::start("alerts", 4).await;
    let Some(prometheus) = Prometheus::start(folder.path(), &net) else {
        drop(net.stop_and_keep());
        return;
    };
    net.network.wait_until_linked(Duration::from_secs(20)).await;
    let busy = &OF_A_BUSY_MACHINE[..];
    // Long enough for every rule's time.
    let until = Instant::now() + Duration::from_secs(20);
    while Instant::now() < until {
        prometheus.fires(&[], busy).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }

    net.network.kill(3).unwrap();
    let of_one = [
        "ValidatorDown",
        "OneFailureFromHalt",
        "ValidatorDoesNotVote",
    ];
    let follow = [busy, &["PeerMissing", "MissedLeaderSlots"]].concat();
    prometheus.fires(&of_one, &follow).await;

    net.network.kill(2).unwrap();
    let of_two = ["NoBlock", "PeersBelowQuorum", "ValidatorDown"];
    let follow = [&follow[..], &of_one].concat();
    prometheus.fires(&of_two, &follow).await;

    for place in [2, 3] {
        net.network.spawn(place, &[]).unwrap();
    }
    let of_starts = [busy, &["MissedLeaderSlots"]].concat();
    prometheus.quiet(&of_starts).await;

    for _ in 0..3 {
        net.network.kill(1).unwrap();
        net.network.spawn(1, &[]).unwrap();
        net.network.wait_until_up().await.unwrap();
        // It must be seen between two starts.
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    let follow = [&follow[..], &of_two].concat();
    prometheus.fires(&["RestartLoop"], &follow).await;
    net.stop_and_check();
}
