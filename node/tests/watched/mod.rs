//! A Prometheus with the alert rules as they are, but for their times, which are a twentieth.
#![allow(dead_code, unreachable_pub, missing_docs, clippy::unwrap_used)]

pub mod proxy;
pub mod trouble;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write as _,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// The rules' times are so many times shorter.
pub const FASTER: u64 = 20;

/// How long an alert may take. `NoBlock` has a constant of 20 s in its expression.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// An alert that nobody expects may be a moment's, on a machine that is busy with other things: a scrape takes
/// longer than a second, and `for: 30s` is 1.5 s here. One that lasts for longer is wrong.
const A_MOMENT: Duration = Duration::from_secs(12);

/// How often is looked.
const LOOK: Duration = Duration::from_millis(300);

/// What a busy machine may say for longer. Its disk is shared with whatever is built beside the tests.
pub const OF_A_BUSY_MACHINE: [&str; 7] = [
    "MissedLeaderSlots",
    "JournalSyncSlow",
    "ExecutionLags",
    "ViewsGivenUp",
    "FinalitySlow",
    "DiskFullSoon",
    "DiskAlmostFull",
];

/// What follows, sooner or later, from one validator of four that is away.
pub const OF_ONE_AWAY: [&str; 5] = [
    "ValidatorDown",
    "OneFailureFromHalt",
    "ValidatorDoesNotVote",
    "PeerMissing",
    "MissedLeaderSlots",
];

/// Tells what is not tested, so that it is seen although the test passes: what `eprintln` says is not.
pub fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "\nSKIPPED: {why}");
}

pub struct Prometheus {
    process: Child,
    url: String,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Times of the form 5m in a line, a twentieth of them, and seconds that are written as `4 * 3600`.
/// Nothing is scraped more often than once a second.
pub fn faster(line: &str) -> String {
    let line = line.replace("* 3600", &format!("* {}", 3_600 / FASTER));
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

fn rules() -> PathBuf {
    std::fs::canonicalize("../deploy/prometheus/alerts.yml").unwrap()
}

fn job(name: &str, targets: &[SocketAddr]) -> String {
    let targets: Vec<String> = targets.iter().map(|at| format!("\"{at}\"")).collect();
    format!(
        "  - job_name: {name}\n    static_configs:\n      - targets: [{}]\n        labels: {{network: n}}\n",
        targets.join(", ")
    )
}

impl Prometheus {
    /// None if it is not installed.
    pub fn start(
        folder: &Path,
        validators: &[SocketAddr],
        explorers: &[SocketAddr],
    ) -> Option<Self> {
        let rules = fs::read_to_string(rules()).unwrap();
        let rules: Vec<String> = rules
            .lines()
            .map(|line| match line.trim_start() {
                text if text.starts_with("description") || text.starts_with("summary") => {
                    line.to_owned()
                }
                _ => faster(line),
            })
            .collect();
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join("alerts.yml"), rules.join("\n")).unwrap();
        let config = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\nrule_files: \
             [alerts.yml]\nscrape_configs:\n{}{}",
            job("quorate", validators),
            job("quorate-explorer", explorers)
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
                skipped(
                    "prometheus is not installed, so no alert is provoked (deploy/install-tools prometheus)",
                );
                None
            }
        }
    }

    /// The alerts that fire, each with the validator, leader or instance that it names.
    pub async fn firing(&self) -> BTreeSet<String> {
        let Ok(answer) = reqwest::get(format!("{}/api/v1/alerts", self.url)).await else {
            return BTreeSet::new();
        };
        let answer: serde_json::Value = answer.json().await.unwrap_or_default();
        let alerts = answer["data"]["alerts"].as_array().cloned();
        let alerts = alerts.unwrap_or_default().into_iter();
        alerts
            .filter(|alert| alert["state"] == "firing")
            .filter_map(|alert| {
                let labels = &alert["labels"];
                let named = ["validator", "leader", "instance"].iter();
                let named = named.filter_map(|label| labels[*label].as_str()).next();
                let text = &alert["annotations"];
                for part in ["summary", "description", "runbook"] {
                    let text = text[part].as_str().unwrap();
                    assert!(
                        !text.contains("no value") && !text.contains("NaN"),
                        "{text}"
                    );
                }
                let name = labels["alertname"].as_str()?;
                Some(
                    format!("{name} {}", named.unwrap_or_default())
                        .trim_end()
                        .to_owned(),
                )
            })
            .collect()
    }

    /// Waits until all of these fire. Each is an alert's name, or its name and whom it names. Beside them,
    /// only those that follow from the same may.
    pub async fn fires(&self, wanted: &[&str], beside: &[&str]) {
        let deadline = Instant::now() + PATIENCE;
        let mut others = Unexpected::default();
        loop {
            let firing = self.firing().await;
            others.look(&firing, &[wanted, beside].concat());
            let missing: Vec<_> = wanted
                .iter()
                .filter(|wanted| !firing.iter().any(|alert| is(alert, wanted)))
                .collect();
            if missing.is_empty() {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{missing:?} do not fire, but {firing:?}"
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until nothing but these fires.
    pub async fn quiet(&self, but: &[&str]) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let firing = self.firing().await;
            if firing.iter().all(|alert| expected(alert, but)) {
                return;
            }
            assert!(Instant::now() < deadline, "{firing:?} still fire");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// For so long, nothing but these fires.
    pub async fn stays_quiet(&self, time: Duration, but: &[&str]) {
        let until = Instant::now() + time;
        let mut others = Unexpected::default();
        while Instant::now() < until || others.any() {
            others.look(&self.firing().await, but);
            tokio::time::sleep(LOOK).await;
        }
    }
}

fn is(alert: &str, wanted: &str) -> bool {
    alert == wanted || alert.split(' ').next() == Some(wanted)
}

fn expected(alert: &str, list: &[&str]) -> bool {
    list.iter().any(|wanted| is(alert, wanted))
}

/// Alerts that nobody expects, and since when they fire.
#[derive(Default)]
struct Unexpected(BTreeMap<String, Instant>);

impl Unexpected {
    fn any(&self) -> bool {
        !self.0.is_empty()
    }

    fn look(&mut self, firing: &BTreeSet<String>, known: &[&str]) {
        let now = Instant::now();
        self.0.retain(|alert, _| firing.contains(alert));
        for alert in firing.iter().filter(|alert| !expected(alert, known)) {
            let since = *self.0.entry(alert.clone()).or_insert(now);
            assert!(now - since < A_MOMENT, "{alert} fires, too: {firing:?}");
        }
    }
}
