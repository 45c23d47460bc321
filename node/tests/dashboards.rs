//! What watches a validator names only what the validator shows: dashboard, alert rules, live page
//! and the list of metrics, against running nodes. With Prometheus installed, its own tools look at
//! the rules, and each panel's query must bring data from a local network.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{BINARY, Net, free_base_port};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead as _, BufReader, Lines},
    net::TcpListener,
    path::PathBuf,
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

/// How long a query may bring nothing after the network has started.
const PATIENCE: Duration = Duration::from_secs(60);

/// What Prometheus has beside the validators' metrics: its own, and the explorer's.
const BUILT_IN: [&str; 7] = [
    "up",
    "ALERTS",
    "quorate_explorer_claimed_height",
    "quorate_explorer_diverged",
    "quorate_explorer_lying_upstreams",
    "quorate_explorer_tip_age_seconds",
    "quorate_explorer_tip_height",
];

/// Labels that Prometheus or the list of targets adds.
const ADDED_LABELS: [&str; 5] = ["network", "instance", "job", "alertstate", "le"];

/// What stands before `by (..)` or its like and is no metric.
const WORDS: [&str; 16] = [
    "and", "or", "unless", "bool", "offset", "sum", "min", "max", "avg", "count", "quantile",
    "topk", "bottomk", "stddev", "Inf", "NaN",
];

const GROUPINGS: [&str; 6] = [
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
];

fn repository(path: &str) -> PathBuf {
    PathBuf::from("..").join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(repository(path)).unwrap()
}

/// The metrics and labels that a PromQL expression names.
#[derive(Debug, Default, PartialEq)]
struct Named {
    metrics: BTreeSet<String>,
    labels: BTreeSet<String>,
}

fn named(expression: &str) -> Named {
    let mut named = Named::default();
    let mut rest = expression.trim_start();
    while let Some(first) = rest.chars().next() {
        if first.is_ascii_alphabetic() || first == '_' {
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "_:".contains(c)));
            let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
            let after = after.trim_start();
            rest = after;
            if GROUPINGS.contains(&word) && after.starts_with('(') {
                let (inside, behind) = after[1..].split_once(')').unwrap();
                let labels = inside.split(',').map(|label| label.trim().to_owned());
                named
                    .labels
                    .extend(labels.filter(|label| !label.is_empty()));
                rest = behind;
            } else if word == "label_values" {
                // Grafana's own: a selector and the label whose values are wanted.
                let (inside, behind) = after[1..].rsplit_once(')').unwrap();
                let (selector, label) = inside.rsplit_once(',').unwrap();
                named.labels.insert(label.trim().to_owned());
                rest = behind;
                let inner = self::named(selector);
                named.metrics.extend(inner.metrics);
                named.labels.extend(inner.labels);
            } else if !after.starts_with('(') && !WORDS.contains(&word) {
                named.metrics.insert(word.to_owned());
            }
        } else if first.is_ascii_digit() {
            rest = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '.');
        } else if first == '{' {
            let (inside, behind) = rest[1..].split_once('}').unwrap();
            for matcher in inside.split(',') {
                let end = matcher.find(['=', '!']).unwrap();
                named.labels.insert(matcher[..end].trim().to_owned());
            }
            rest = behind;
        } else if first == '[' {
            rest = rest.split_once(']').unwrap().1;
        } else {
            rest = &rest[first.len_utf8()..];
        }
        rest = rest.trim_start();
    }
    named
}

/// What a validator's `/metrics` holds.
#[derive(Default)]
struct Scrape {
    /// Kinds by name.
    kinds: BTreeMap<String, String>,
    /// The samples' names; a histogram has three.
    samples: BTreeSet<String>,
    /// Labels by name, without the buckets' `le`.
    labels: BTreeMap<String, BTreeSet<String>>,
}

impl Scrape {
    fn parse(text: &str) -> Self {
        let mut scrape = Self::default();
        for line in text.lines() {
            if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').unwrap();
                scrape.kinds.insert(name.to_owned(), kind.to_owned());
            } else if let Some(help) = line.strip_prefix("# HELP ") {
                let (_, help) = help.split_once(' ').unwrap();
                assert!(help.len() > 10, "{line}");
            } else {
                let end = line.find(['{', ' ']).unwrap();
                let name = &line[..end];
                scrape.samples.insert(name.to_owned());
                let inside = line[end..].strip_prefix('{');
                let inside = inside.map_or("", |inside| inside.split_once('}').unwrap().0);
                let labels = inside.split(',').filter_map(|label| label.split_once('='));
                let labels = labels.map(|(label, _)| label.to_owned());
                let of_name = scrape.labels.entry(name.to_owned()).or_default();
                of_name.extend(labels.filter(|label| label != "le"));
            }
        }
        scrape
    }

    /// What an expression names that is not there.
    fn missing(&self, expression: &str) -> Vec<String> {
        let Named { metrics, labels } = named(expression);
        let mut known: BTreeSet<&str> = ADDED_LABELS.into();
        for metric in &metrics {
            known.extend(self.labels.get(metric).into_iter().flatten().map(|l| &**l));
        }
        let metrics = metrics.into_iter();
        let metrics =
            metrics.filter(|name| !self.samples.contains(name) && !BUILT_IN.contains(&&**name));
        let labels = labels.into_iter();
        let labels = labels.filter(|label| !known.contains(&**label));
        metrics.chain(labels).collect()
    }
}

/// The expressions of the dashboard, by panel or variable.
fn dashboard() -> Vec<(String, String)> {
    let text = read("deploy/grafana/dashboards/quorate.json");
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut expressions = Vec::new();
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        let title = panel["title"].as_str().unwrap();
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().unwrap();
            expressions.push((title.to_owned(), expression.to_owned()));
        }
        let queries = expressions.iter().filter(|(of, _)| of == title).count();
        assert!(queries > 0 || panel["type"] == "row", "{title} is empty");
    }
    expressions
}

fn variables() -> Vec<(String, String)> {
    let text = read("deploy/grafana/dashboards/quorate.json");
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    let all = dashboard["templating"]["list"].as_array().unwrap().iter();
    all.filter(|variable| variable["type"] == "query")
        .map(|variable| {
            let name = variable["name"].as_str().unwrap().to_owned();
            let query = variable["query"]["query"].as_str().unwrap();
            (name, query.to_owned())
        })
        .collect()
}

/// The expressions of the alert rules, by alert.
fn alerts() -> Vec<(String, String)> {
    let text = read("deploy/prometheus/alerts.yml");
    let mut alerts: Vec<(String, String)> = Vec::new();
    let mut block_indent = None;
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        let content = line.trim();
        if let Some(name) = content.strip_prefix("- alert: ") {
            alerts.push((name.to_owned(), String::new()));
        } else if let Some(expression) = content.strip_prefix("expr: ") {
            let (_, held) = alerts.last_mut().unwrap();
            match expression {
                "|" => block_indent = Some(indent),
                _ => held.push_str(expression),
            }
        } else if block_indent.is_some_and(|block| indent > block) {
            let (_, held) = alerts.last_mut().unwrap();
            held.push_str(content);
            held.push('\n');
        } else {
            block_indent = None;
        }
    }
    alerts
}

/// A row of `docs/METRICS.md`: name, kind, unit, labels.
fn documented() -> BTreeMap<String, (String, String, BTreeSet<String>)> {
    let text = read("docs/METRICS.md");
    let rows = text.lines().filter(|line| line.starts_with("| `quorate_"));
    let rows = rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, unit, labels, meaning] = cells[..] else {
            panic!("five columns: {row}");
        };
        assert!(meaning.len() > 10, "{row}");
        // Behind each label its values may stand in parentheses.
        let labels = labels.split('`').skip(1).step_by(2).map(str::to_owned);
        let name = name.trim_matches('`').to_owned();
        (name, (kind.to_owned(), unit.to_owned(), labels.collect()))
    });
    let all: Vec<_> = rows.collect();
    let count = all.len();
    let map: BTreeMap<_, _> = all.into_iter().collect();
    assert_eq!(map.len(), count, "a metric is documented twice");
    map
}

#[test]
fn the_names_in_an_expression_are_found() {
    let of = |expression: &str| {
        let named = named(expression);
        let metrics: Vec<_> = named.metrics.into_iter().collect();
        let labels: Vec<_> = named.labels.into_iter().collect();
        (metrics.join(" "), labels.join(" "))
    };
    let both = |metrics: &str, labels: &str| (metrics.to_owned(), labels.to_owned());
    assert_eq!(
        of(r#"histogram_quantile(0.5, sum by (le) (rate(a_bucket{x=~"$b"}[5m]))) > 1e3"#),
        both("a_bucket", "le x")
    );
    assert_eq!(
        of("quantile by (network, leader) (0.5, rate(a[5m]) / on (c) group_left () b) > 0.2"),
        both("a b", "c leader network")
    );
    assert_eq!(of("time() - max(a) and b == 0 unless c"), both("a b c", ""));
    assert_eq!(of(r#"label_values(a{b="c"}, d)"#), both("a", "b d"));
}

#[test]
fn a_metric_or_label_that_is_not_there_is_noticed() {
    let scrape = Scrape::parse("# TYPE a_total counter\na_total{reason=\"b\"} 1\n");
    assert_eq!(
        scrape.missing("sum by (reason) (rate(a_total[1m]))"),
        [""; 0]
    );
    assert_eq!(scrape.missing("rate(a[1m]) + up"), ["a"]);
    assert_eq!(
        scrape.missing("sum by (cause) (a_total) + process_cpu"),
        ["process_cpu", "cause"]
    );
}

/// One network for all that only reads.
#[tokio::test(flavor = "multi_thread")]
async fn what_watches_a_validator_names_what_it_shows() {
    let mut net = Net::start("dashboards", 4).await;
    net.reach(0, 3).await;
    let text = net.network.operator(0).metrics().await.unwrap();
    let scrape = Scrape::parse(&text);
    names_follow_the_conventions(&scrape);

    for (place, expression) in dashboard().into_iter().chain(variables()).chain(alerts()) {
        assert_eq!(scrape.missing(&expression), [""; 0], "{place}");
    }
    assert!(
        alerts().len() > 10 && dashboard().len() > 50,
        "all are read"
    );

    let documented = documented();
    let there: BTreeSet<&String> = scrape.kinds.keys().collect();
    let told: BTreeSet<&String> = documented.keys().collect();
    let undocumented: Vec<_> = there.difference(&told).collect();
    let gone: Vec<_> = told.difference(&there).collect();
    assert!(
        undocumented.is_empty() && gone.is_empty(),
        "docs/METRICS.md lacks {undocumented:?} and has {gone:?} too many"
    );
    for (name, (kind, _, labels)) in &documented {
        assert_eq!(scrape.kinds[name], *kind, "{name}");
        let sample = match kind.as_str() {
            "histogram" => format!("{name}_bucket"),
            _ => name.clone(),
        };
        assert_eq!(scrape.labels[&sample], *labels, "{name}");
    }
    let admin = format!("http://{}", net.network.settings().admin_address(0));
    the_live_page_is_whole(&admin, &scrape).await;
}

/// `quorate_<part>_<what>_<unit>`; the unit in the list is the one that the name says.
fn names_follow_the_conventions(scrape: &Scrape) {
    let documented = documented();
    for (name, kind) in &scrape.kinds {
        assert!(name.starts_with("quorate_"), "{name}");
        let total = name.strip_suffix("_total");
        assert_eq!(kind == "counter", total.is_some(), "{name} is a {kind}");
        let Some((_, unit, _)) = documented.get(name) else {
            continue;
        };
        let last = total.unwrap_or(name).rsplit('_').next().unwrap();
        assert_eq!(last == "seconds", unit == "seconds", "{name}: {unit}");
        assert_eq!(last == "bytes", unit == "bytes", "{name}: {unit}");
        assert!(kind != "histogram" || last == "seconds", "{name}");
    }
}

/// It comes under a policy that lets it ask this node only, and reads metrics that are there.
async fn the_live_page_is_whole(url: &str, scrape: &Scrape) {
    let live = reqwest::get(format!("{url}/live")).await.unwrap();
    let answer = reqwest::get(format!("{url}/")).await.unwrap();
    assert_eq!(answer.status(), 200);
    let policy = answer.headers()["content-security-policy"].to_str();
    let policy = policy.unwrap().to_owned();
    assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"));
    assert!(policy.contains("connect-src 'self'") && !policy.contains("unsafe"));
    let page = answer.text().await.unwrap();
    assert_eq!(live.text().await.unwrap(), page);
    let mut found = 0;
    for word in page.split('"').filter(|word| word.starts_with("quorate_")) {
        let histogram = format!("{word}_bucket");
        assert!(
            scrape.samples.contains(word) || scrape.samples.contains(&histogram),
            "the live page reads {word}"
        );
        found += 1;
    }
    assert!(found > 10, "{found} names");
}

fn installed(program: &str) -> bool {
    let there = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if there.is_err() {
        eprintln!("{program} is not installed; what needs it is not tested");
    }
    there.is_ok()
}

#[test]
fn promtool_accepts_configuration_and_rules_and_each_alert_fires_when_it_should() {
    if !installed("promtool") {
        return;
    }
    for arguments in [
        &["check", "config", "prometheus.yml"][..],
        &["check", "rules", "alerts.yml"],
        &["test", "rules", "alerts_test.yml"],
    ] {
        let output = Command::new("promtool")
            .args(arguments)
            .current_dir(repository("deploy/prometheus"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
    let cases = read("deploy/prometheus/alerts_test.yml");
    for (alert, _) in alerts() {
        let case = format!("alertname: {alert}\n        exp_alerts:");
        assert!(cases.contains(&format!("{case}\n")), "{alert} never fires");
        assert!(
            cases.contains(&format!("{case} []")),
            "{alert} always fires"
        );
    }
}

/// The headings of a page of the documentation, as links name them.
fn anchors(page: &str) -> BTreeSet<String> {
    let text = read(page);
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = words.replace(' ', "-");
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || *c == '-');
        kept.collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn each_alert_has_a_section_that_is_there_and_a_row_in_the_table() {
    let rules = read("deploy/prometheus/alerts.yml");
    let table = read("docs/OPERATING.md");
    for rule in rules.split("- alert: ").skip(1) {
        let name = rule.lines().next().unwrap();
        let runbook = rule.split("runbook: \"").nth(1).unwrap();
        let (page, anchor) = runbook.split('"').next().unwrap().split_once('#').unwrap();
        assert!(anchors(page).contains(anchor), "{name}: {page}#{anchor}");
        let row = table.lines().find(|line| {
            let alerts = line.split('|').nth(1).unwrap_or_default();
            line.starts_with("| `") && alerts.contains(&format!("`{name}`"))
        });
        assert!(row.is_some(), "{name} is not in the table");
    }
}

/// A running `deploy/observe`.
struct Observed {
    script: Child,
    /// Closed, it would fail at its last word.
    says: Lines<BufReader<ChildStdout>>,
    ports: Vec<u16>,
    prometheus: String,
}

impl Observed {
    /// Returns when it says that all is up.
    fn start(folder: &str, validators: usize) -> Self {
        let base_port = free_base_port(validators);
        let own = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = own.local_addr().unwrap().port();
        drop(own);
        let mut script = Command::new(repository("deploy/observe"))
            .env("QUORATE", BINARY)
            .env("OBSERVE_DIR", folder)
            .env("VALIDATORS", validators.to_string())
            .env("BASE_PORT", base_port.to_string())
            .env("PROMETHEUS_PORT", port.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let after = base_port + 2 * validators as u16;
        let metrics = (0..validators as u16).map(|place| after + 1 + place);
        let says = script.stdout.take().unwrap();
        let mut observed = Self {
            script,
            says: BufReader::new(says).lines(),
            ports: metrics.chain([port]).collect(),
            prometheus: format!("http://127.0.0.1:{port}"),
        };
        let mut said: Vec<String> = Vec::new();
        while let Some(line) = observed.says.next() {
            said.push(line.unwrap());
            if said.last().unwrap().contains("until Ctrl-C") {
                let address = &observed.prometheus;
                assert!(said.iter().any(|line| line.contains(address)));
                return observed;
            }
        }
        panic!("deploy/observe has ended: {said:?}");
    }

    async fn ask(&self, path: &str) -> serde_json::Value {
        let answer = reqwest::get(format!("{}{path}", self.prometheus)).await;
        let answer: serde_json::Value = answer.unwrap().json().await.unwrap();
        assert_eq!(answer["status"], "success", "{path}: {answer}");
        answer["data"].clone()
    }

    /// Whether a panel's query brings a number, for any choice of its variables.
    async fn brings_data(&self, expression: &str) -> bool {
        let expression = expression
            .replace("$network", ".*")
            .replace("$instance", ".*")
            .replace("$__rate_interval", "15s");
        assert!(!expression.contains('$'), "{expression}");
        let data = self
            .ask(&format!("/api/v1/query?query={}", percent(&expression)))
            .await;
        let results = data["result"].as_array().unwrap();
        results.iter().any(|result| result["value"][1] != "NaN")
    }

    /// Ctrl-C, and everything is gone.
    fn interrupt(mut self) {
        let id = self.script.id().to_string();
        let sent = Command::new("kill").args(["-INT", &id]).status().unwrap();
        assert!(sent.success());
        assert!(self.script.wait().unwrap().success());
        let last = self.says.by_ref().map(Result::unwrap).last();
        assert!(last.is_some_and(|line| line.starts_with("stopped")));
        for port in &self.ports {
            assert!(
                TcpListener::bind(("127.0.0.1", *port)).is_ok(),
                "{port} is still in use"
            );
        }
    }
}

impl Drop for Observed {
    /// A failed assertion must leave nothing running, either.
    fn drop(&mut self) {
        if let Ok(None) = self.script.try_wait() {
            let id = self.script.id().to_string();
            let _ = Command::new("kill").args(["-TERM", &id]).status();
            let _ = self.script.wait();
        }
    }
}

fn percent(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_panel_shows_data_of_a_network_that_is_observed() {
    if !installed("prometheus") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let observed = Observed::start(folder.path().to_str().unwrap(), 4);
    let deadline = Instant::now() + PATIENCE;
    for (panel, expression) in dashboard() {
        while !observed.brings_data(&expression).await {
            assert!(Instant::now() < deadline, "{panel} is empty: {expression}");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
    let targets = observed.ask("/api/v1/targets").await;
    let targets = targets["activeTargets"].as_array().unwrap();
    assert_eq!(targets.len(), 4 + 1, "the explorer is watched, too");
    for target in targets {
        assert_eq!(target["health"], "up", "{target}");
    }
    let rules = observed.ask("/api/v1/rules").await;
    let groups = rules["groups"].as_array().unwrap().iter();
    let rules: Vec<_> = groups
        .flat_map(|group| group["rules"].as_array().unwrap())
        .collect();
    assert_eq!(rules.len(), alerts().len());
    for rule in rules {
        assert_eq!(rule["health"], "ok", "{rule}");
        assert_ne!(rule["state"], "firing", "{rule}");
    }
    observed.interrupt();
}
