//! Experiment files: they define the trials.
//!
//! Every parameter has one value or a list of them; the trials are the product of all lists, each
//! repeated. A trial is named by its parameters, so that a later run of the same file finds the
//! completed ones.

use super::slow::Slow;
use anyhow::{Context, bail, ensure};
use quorate_crypto::bls::SchemeKind;
use quorate_files::read_text;
use quorate_node::config::parse_duration;
use quorate_types::genesis::{DEFAULT_LIMITS, Protocol};
use quorate_types::{limits::MAX_MEMO_BYTES, registry::resharing::MIN_SHARING_EPOCH_BLOCKS};
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use std::{fmt, path::Path, time::Duration};

/// The most trials of a file.
const MAX_TRIALS: usize = 2_000;

/// The largest experiment file.
pub(crate) const MAX_FILE_BYTES: u64 = 1 << 20;

/// An experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    /// The report's title.
    pub(crate) title: String,
    /// The question, in a sentence or two.
    pub(crate) about: String,
    /// The source of the question.
    #[serde(default)]
    pub(crate) source: String,
    /// The parameter on the horizontal axis of the report's first charts.
    #[serde(default = "default_across")]
    pub(crate) across: Parameter,
    /// The number of repetitions of each trial.
    #[serde(default = "one")]
    pub(crate) repeats: u32,
    /// The seed of the trials' order and of the links' jitter.
    #[serde(default)]
    pub(crate) seed: u64,
    /// Time under load before measuring starts.
    #[serde(default = "two_seconds", deserialize_with = "duration")]
    pub(crate) warm_up: Duration,
    /// The measured time.
    #[serde(default = "ten_seconds", deserialize_with = "duration")]
    pub(crate) measure: Duration,
    /// The longest wait at the end for transfers in flight.
    #[serde(default = "five_seconds", deserialize_with = "duration")]
    pub(crate) drain: Duration,
    /// Searches the highest rate that still keeps a latency limit, instead of using fixed rates.
    pub(crate) search: Option<Search>,
    pub(crate) parameters: Parameters,
}

/// A search for the highest rate.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Search {
    /// The limit of the 99th percentile of the latency, counted from when a transfer was due.
    #[serde(deserialize_with = "duration")]
    pub(crate) p99_below: Duration,
    /// The first rate tried.
    pub(crate) from: f64,
    /// The highest rate tried.
    pub(crate) to: f64,
    /// The search ends when the ratio of the rates that enclose the answer is at most this.
    #[serde(default = "default_within")]
    pub(crate) within: f64,
}

/// The parameters' values.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Parameters {
    #[serde(deserialize_with = "one_or_many")]
    validators: Vec<usize>,
    #[serde(deserialize_with = "one_or_many")]
    rate: Vec<f64>,
    #[serde(deserialize_with = "one_or_many")]
    batch: Vec<usize>,
    #[serde(deserialize_with = "one_or_many")]
    payload: Vec<usize>,
    #[serde(deserialize_with = "one_or_many")]
    scheme: Vec<String>,
    #[serde(deserialize_with = "one_or_many")]
    checking: Vec<String>,
    #[serde(deserialize_with = "one_or_many")]
    cryptography: Vec<Switch>,
    #[serde(deserialize_with = "one_or_many")]
    filtering: Vec<Switch>,
    #[serde(deserialize_with = "one_or_many")]
    signing: Vec<Signing>,
    #[serde(deserialize_with = "one_or_many")]
    linger: Vec<String>,
    #[serde(deserialize_with = "one_or_many")]
    interval: Vec<String>,
    #[serde(deserialize_with = "one_or_many")]
    links: Vec<String>,
    #[serde(deserialize_with = "one_or_many")]
    jitter: Vec<String>,
    #[serde(deserialize_with = "one_or_many")]
    bandwidth: Vec<f64>,
    #[serde(deserialize_with = "one_or_many")]
    loss: Vec<f64>,
    #[serde(deserialize_with = "one_or_many")]
    slow_start: Vec<bool>,
    #[serde(deserialize_with = "one_or_many")]
    fault: Vec<Fault>,
    #[serde(deserialize_with = "one_or_many")]
    slow: Vec<Slow>,
    #[serde(deserialize_with = "one_or_many")]
    to: Vec<To>,
    #[serde(deserialize_with = "one_or_many")]
    clients: Vec<usize>,
    #[serde(deserialize_with = "one_or_many")]
    registry: Vec<u64>,
    #[serde(deserialize_with = "one_or_many")]
    protocol: Vec<Protocol>,
}

/// The parameters' names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Parameter {
    Validators,
    Rate,
    Batch,
    Payload,
    Scheme,
    Checking,
    Cryptography,
    Filtering,
    Signing,
    Linger,
    Interval,
    Links,
    Jitter,
    Bandwidth,
    Loss,
    SlowStart,
    Fault,
    Slow,
    To,
    Clients,
    Registry,
    Protocol,
}

/// A fault in the middle third of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Fault {
    None,
    /// The last validator is killed, and restarted at the end of the third.
    Kill,
    /// f validators produce invalid signatures from then on, to the end of the trial.
    InvalidSigners,
    /// f validators are partitioned from the others, then reconnected. Needs links.
    Partition,
}

/// Whether validators do something that they always do outside of experiments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Switch {
    #[default]
    On,
    Off,
}

/// When the generator signs its transfers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Signing {
    /// When they are sent.
    #[default]
    Meanwhile,
    /// Before the warm-up.
    Ahead,
}

/// Which validators receive the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum To {
    /// All, in turn.
    All,
    /// All of them get every transfer.
    Each,
    /// The first.
    One,
}

/// One trial's parameters.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Point {
    /// The number of validators.
    pub(crate) validators: usize,
    /// Transfers per second.
    pub(crate) rate: f64,
    /// The most transfers in a block.
    pub(crate) batch: usize,
    /// Bytes of each transfer's memo.
    pub(crate) payload: usize,
    /// The vote scheme.
    pub(crate) scheme: String,
    /// When votes are verified: `together`, `eager` or `unblocked`.
    pub(crate) checking: String,
    /// Whether there are signatures at all; off only in a program that was built for this.
    pub(crate) cryptography: Switch,
    /// Whether a leader leaves out what an unexecuted ancestor of its block holds.
    #[serde(default)]
    pub(crate) filtering: Switch,
    #[serde(default)]
    pub(crate) signing: Signing,
    /// How long a finalize vote waits to be batched with others.
    pub(crate) linger: String,
    /// The minimal time between blocks.
    pub(crate) interval: String,
    /// The links between validators: `none`, a region table's name, or a one-way delay.
    pub(crate) links: String,
    /// The most jitter added to each delay.
    pub(crate) jitter: String,
    /// Megabits per second in each direction between two validators; 0 for unlimited.
    pub(crate) bandwidth: f64,
    /// The fraction of segments that are lost.
    pub(crate) loss: f64,
    /// Whether connections over links use TCP slow start.
    pub(crate) slow_start: bool,
    pub(crate) fault: Fault,
    /// What is slow about the last validator.
    #[serde(default)]
    pub(crate) slow: Slow,
    /// Which validators receive the load.
    pub(crate) to: To,
    /// The number of clients of a closed loop; 0 for an open loop.
    pub(crate) clients: usize,
    /// The blocks of an epoch of a chain with a staking registry; 0 for a chain without one.
    #[serde(default)]
    pub(crate) registry: u64,
    /// The consensus protocol.
    #[serde(default)]
    pub(crate) protocol: Protocol,
}

impl Plan {
    /// Reads an experiment file.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let name = path.display();
        let text = read_text(path, MAX_FILE_BYTES)?;
        Self::parse(&text).with_context(|| format!("{name} is no experiment"))
    }

    /// Parses the text of an experiment file.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let plan: Self = toml::from_str(text)?;
        ensure!(
            (1..=50).contains(&plan.repeats),
            "`repeats` must be 1 to 50"
        );
        ensure!(
            plan.measure >= Duration::from_secs(3),
            "`measure` must be 3s at least"
        );
        if let Some(search) = &plan.search {
            ensure!(
                1.0 <= search.from && search.from < search.to && search.to <= 100_000.0,
                "`search.from` and `search.to` must be 1 to 100000, and in this order"
            );
            ensure!(
                (1.01..=2.0).contains(&search.within),
                "`search.within` must be 1.01 to 2"
            );
            let usual = Point::usual();
            ensure!(
                plan.parameters.rate == [usual.rate],
                "`search` looks for the rate itself: leave `rate` out"
            );
            ensure!(
                plan.parameters.clients == [usual.clients],
                "`search` looks for a rate, and `clients` is a closed loop, which has none: leave one of them out"
            );
        }
        let points = plan.points();
        let trials = points.len() * plan.repeats as usize;
        ensure!(
            (1..=MAX_TRIALS).contains(&trials),
            "1 to {MAX_TRIALS} trials, not {trials}"
        );
        points.iter().try_for_each(Point::check)?;
        Ok(plan)
    }

    /// The product of all parameters, in the file's order.
    pub(crate) fn points(&self) -> Vec<Point> {
        let p = &self.parameters;
        let mut points = vec![Point::usual()];
        spread(&mut points, &p.validators, |point| &mut point.validators);
        spread(&mut points, &p.scheme, |point| &mut point.scheme);
        spread(&mut points, &p.checking, |point| &mut point.checking);
        spread(&mut points, &p.cryptography, |point| {
            &mut point.cryptography
        });
        spread(&mut points, &p.filtering, |point| &mut point.filtering);
        spread(&mut points, &p.signing, |point| &mut point.signing);
        spread(&mut points, &p.linger, |point| &mut point.linger);
        spread(&mut points, &p.interval, |point| &mut point.interval);
        spread(&mut points, &p.links, |point| &mut point.links);
        spread(&mut points, &p.jitter, |point| &mut point.jitter);
        spread(&mut points, &p.bandwidth, |point| &mut point.bandwidth);
        spread(&mut points, &p.loss, |point| &mut point.loss);
        spread(&mut points, &p.slow_start, |point| &mut point.slow_start);
        spread(&mut points, &p.fault, |point| &mut point.fault);
        spread(&mut points, &p.slow, |point| &mut point.slow);
        spread(&mut points, &p.to, |point| &mut point.to);
        spread(&mut points, &p.clients, |point| &mut point.clients);
        spread(&mut points, &p.registry, |point| &mut point.registry);
        spread(&mut points, &p.protocol, |point| &mut point.protocol);
        spread(&mut points, &p.batch, |point| &mut point.batch);
        spread(&mut points, &p.payload, |point| &mut point.payload);
        spread(&mut points, &p.rate, |point| &mut point.rate);
        points
    }
}

fn spread<T: Clone>(points: &mut Vec<Point>, values: &[T], place: impl Fn(&mut Point) -> &mut T) {
    *points = points
        .iter()
        .flat_map(|point| {
            values.iter().map(|value| {
                let mut point = point.clone();
                *place(&mut point) = value.clone();
                point
            })
        })
        .collect();
}

impl Default for Parameters {
    fn default() -> Self {
        let usual = Point::usual();
        Self {
            validators: vec![usual.validators],
            rate: vec![usual.rate],
            batch: vec![usual.batch],
            payload: vec![usual.payload],
            scheme: vec![usual.scheme],
            checking: vec![usual.checking],
            cryptography: vec![usual.cryptography],
            filtering: vec![usual.filtering],
            signing: vec![usual.signing],
            linger: vec![usual.linger],
            interval: vec![usual.interval],
            links: vec![usual.links],
            jitter: vec![usual.jitter],
            bandwidth: vec![usual.bandwidth],
            loss: vec![usual.loss],
            slow_start: vec![usual.slow_start],
            fault: vec![usual.fault],
            slow: vec![usual.slow],
            to: vec![usual.to],
            clients: vec![usual.clients],
            registry: vec![usual.registry],
            protocol: vec![usual.protocol],
        }
    }
}

impl Point {
    fn check(&self) -> anyhow::Result<()> {
        ensure!(
            (1..=100).contains(&self.validators),
            "`validators` must be 1 to 100"
        );
        ensure!(
            (0.0..=100_000.0).contains(&self.rate),
            "`rate` must be 0 to 100000"
        );
        ensure!(
            (1..=8_192).contains(&self.batch),
            "`batch` must be 1 to 8192"
        );
        ensure!(
            self.payload <= MAX_MEMO_BYTES,
            "`payload` must be 0 to {MAX_MEMO_BYTES}"
        );
        ensure!(self.clients <= 1_000, "`clients` must be 0 to 1000");
        let scheme = self
            .scheme
            .parse::<SchemeKind>()
            .map_err(|error| anyhow::anyhow!("`scheme` {:?}: {error}", self.scheme))?;
        let shortest = match scheme {
            SchemeKind::BlsThreshold => MIN_SHARING_EPOCH_BLOCKS,
            SchemeKind::BlsAggregate => 20,
        };
        ensure!(
            self.registry == 0 || (self.validators >= 4 && self.registry >= shortest),
            "`registry` must be 0, or the blocks of an epoch: {shortest} at least with `scheme` {}, and 4 validators",
            self.scheme
        );
        ensure!(
            self.clients == 0 || self.rate == Self::usual().rate,
            "`clients` is a closed loop, which has no `rate`: leave one of them out"
        );
        if !["together", "eager", "unblocked"].contains(&self.checking.as_str()) {
            bail!("`checking` must be together, eager or unblocked");
        }
        ensure!(
            self.cryptography == Switch::On
                || (self.checking == "together" && self.fault != Fault::InvalidSigners),
            "with `cryptography` off there is nothing to check"
        );
        parse_duration(&self.linger)
            .map_err(|error| anyhow::anyhow!("`linger` {:?}: {error}", self.linger))?;
        parse_duration(&self.interval)
            .map_err(|error| anyhow::anyhow!("`interval` {:?}: {error}", self.interval))?;
        let network = super::network::Wires::of(self)?;
        ensure!(
            self.fault != Fault::Partition || network.is_some(),
            "a partition needs `links`, such as \"1ms\""
        );
        ensure!(
            !self.slow.needs_links() || network.is_some(),
            "`slow` by its line or its distance needs `links`, such as \"1ms\""
        );
        ensure!(
            self.slow == Slow::None || self.fault == Fault::None,
            "`slow` and `fault` at a time would be told apart by nothing"
        );
        let spare = (self.validators.max(1) - 1) / 3;
        ensure!(
            self.signing == Signing::Meanwhile || self.clients == 0,
            "`signing = \"ahead\"` is for open loops: leave `clients` out"
        );
        ensure!(
            (self.fault == Fault::None && self.slow == Slow::None) || spare > 0,
            "a fault needs 4 validators at least"
        );
        Ok(())
    }

    /// The value of a parameter as text.
    pub(crate) fn word(&self, parameter: Parameter) -> String {
        match parameter {
            Parameter::Validators => self.validators.to_string(),
            Parameter::Rate => self.rate.to_string(),
            Parameter::Batch => self.batch.to_string(),
            Parameter::Payload => self.payload.to_string(),
            Parameter::Scheme => self.scheme.clone(),
            Parameter::Checking => self.checking.clone(),
            Parameter::Cryptography => name_of(&self.cryptography),
            Parameter::Filtering => name_of(&self.filtering),
            Parameter::Signing => name_of(&self.signing),
            Parameter::Linger => self.linger.clone(),
            Parameter::Interval => self.interval.clone(),
            Parameter::Links => self.links.clone(),
            Parameter::Jitter => self.jitter.clone(),
            Parameter::Bandwidth => self.bandwidth.to_string(),
            Parameter::Loss => self.loss.to_string(),
            Parameter::SlowStart => self.slow_start.to_string(),
            Parameter::Fault => name_of(&self.fault),
            Parameter::Slow => name_of(&self.slow),
            Parameter::To => name_of(&self.to),
            Parameter::Clients => self.clients.to_string(),
            Parameter::Registry => self.registry.to_string(),
            Parameter::Protocol => self.protocol.name().to_owned(),
        }
    }

    /// The value of a parameter as a number, if it is one.
    pub(crate) fn number(&self, parameter: Parameter) -> Option<f64> {
        let word = self.word(parameter);
        word.parse().ok().or_else(|| {
            let duration = parse_duration(&word).ok()?;
            Some(duration.as_secs_f64() * 1e3)
        })
    }

    /// The trial's name: all parameters that differ from the defaults.
    pub(crate) fn name(&self) -> String {
        let usual = Self::usual();
        let differing = Parameter::ALL.iter().filter(|parameter| {
            matches!(parameter, Parameter::Validators | Parameter::Rate)
                || self.word(**parameter) != usual.word(**parameter)
        });
        let words = differing.map(|p| format!("{p}={}", self.word(*p)));
        words.collect::<Vec<_>>().join(",").replace(['/', ' '], "_")
    }

    fn usual() -> Self {
        Self {
            validators: 4,
            rate: 0.0,
            batch: DEFAULT_LIMITS.max_transactions,
            payload: 0,
            scheme: "bls-threshold".to_owned(),
            checking: "together".to_owned(),
            cryptography: Switch::On,
            filtering: Switch::On,
            signing: Signing::Meanwhile,
            linger: "0ms".to_owned(),
            interval: "0ms".to_owned(),
            links: "none".to_owned(),
            jitter: "0ms".to_owned(),
            bandwidth: 0.0,
            loss: 0.0,
            slow_start: true,
            fault: Fault::None,
            slow: Slow::None,
            to: To::All,
            clients: 0,
            registry: 0,
            protocol: Protocol::default(),
        }
    }
}

impl Parameter {
    /// All parameters, in the order in which names list them.
    pub(crate) const ALL: [Self; 22] = [
        Self::Validators,
        Self::Scheme,
        Self::Checking,
        Self::Cryptography,
        Self::Filtering,
        Self::Signing,
        Self::Linger,
        Self::Interval,
        Self::Links,
        Self::Jitter,
        Self::Bandwidth,
        Self::Loss,
        Self::SlowStart,
        Self::Fault,
        Self::Slow,
        Self::To,
        Self::Clients,
        Self::Registry,
        Self::Protocol,
        Self::Batch,
        Self::Payload,
        Self::Rate,
    ];
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&name_of(self))
    }
}

fn name_of(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).expect("a name is a text");
    value.as_str().unwrap_or_default().to_owned()
}

fn one_or_many<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let values = match toml::Value::deserialize(deserializer)? {
        toml::Value::Array(values) => values,
        value => vec![value],
    };
    if values.is_empty() {
        return Err(serde::de::Error::custom("a list must not be empty"));
    }
    let values = values.into_iter().map(|value| {
        let shown = value.to_string();
        T::deserialize(value)
            .map_err(|error| serde::de::Error::custom(format!("{shown}: {}", error.message())))
    });
    values.collect()
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_duration(&text).map_err(serde::de::Error::custom)
}

fn default_across() -> Parameter {
    Parameter::Rate
}

fn one() -> u32 {
    1
}

fn two_seconds() -> Duration {
    Duration::from_secs(2)
}

fn five_seconds() -> Duration {
    Duration::from_secs(5)
}

fn ten_seconds() -> Duration {
    Duration::from_secs(10)
}

fn default_within() -> f64 {
    1.1
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "title = \"t\"\nabout = \"a\"\n[parameters]\nrate = [100, 200]\n\
        scheme = [\"bls-threshold\", \"bls-aggregate\"]\nvalidators = 7\n";

    #[test]
    fn trials_are_the_product_of_the_parameters_and_named_by_them() {
        let plan = Plan::parse(SMALL).expect("a plan");
        let names: Vec<String> = plan.points().iter().map(Point::name).collect();
        assert_eq!(
            names,
            [
                "validators=7,rate=100",
                "validators=7,rate=200",
                "validators=7,scheme=bls-aggregate,rate=100",
                "validators=7,scheme=bls-aggregate,rate=200",
            ]
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_key() {
        let wrong = [
            ("rate = []", "empty"),
            ("rate = -1.0", "`rate`"),
            ("payload = 5000", "`payload`"),
            ("speed = 3", "speed"),
            ("validators = 0", "`validators`"),
            ("links = \"mars\"", "mars"),
            ("loss = 0.01", "need `links`"),
            ("links = \"5ms\"\nloss = 0.9", "0.9"),
            ("links = \"5ms\"\nbandwidth = 0.001", "`bandwidth`"),
            ("links = \"5ms\"\njitter = \"much\"", "`jitter`"),
            ("fault = \"partition\"", "`links`"),
            ("slow = \"line\"", "`links`"),
            ("slow = \"dead\"\nfault = \"kill\"", "told apart"),
            ("slow = \"dead\"\nvalidators = 3", "4 validators"),
            ("fault = \"kill\"\nvalidators = 3", "4 validators"),
            ("linger = \"soon\"", "`linger`"),
            ("registry = 63", "64 at least"),
            ("scheme = \"bls-aggregate\"\nregistry = 19", "20 at least"),
            ("clients = 3\nsigning = \"ahead\"", "open loops"),
            (
                "rate = 100\n[search]\np99_below = \"1s\"\nfrom = 1\nto = 2",
                "leave `rate` out",
            ),
            (
                "clients = 3\n[search]\np99_below = \"1s\"\nfrom = 1\nto = 2",
                "closed loop",
            ),
            (
                "cryptography = \"off\"\nchecking = \"eager\"",
                "nothing to check",
            ),
        ];
        for (line, word) in wrong {
            let text = format!("title = \"t\"\nabout = \"a\"\n[parameters]\n{line}\n");
            let error = Plan::parse(&text).expect_err(line);
            assert!(format!("{error:#}").contains(word), "{line}: {error:#}");
        }
    }

    #[test]
    fn the_shipped_experiments_are_whole() {
        let folder = Path::new("experiments");
        let files: Vec<_> = std::fs::read_dir(folder).expect("there").collect();
        assert!(files.len() >= 8);
        for file in files {
            let path = file.expect("readable").path();
            if path.extension().is_some_and(|end| end == "toml") {
                Plan::read(&path).unwrap_or_else(|error| panic!("{error:#}"));
            }
        }
    }
}
