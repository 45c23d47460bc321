//! Measurements of a running network, from its validators' metrics and processes.

use super::processes::Network;
use parking_lot::Mutex;
use quorate_files::Usage;
use serde::Serialize;
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

const MIB: f64 = 1_048_576.0;

const FINALIZED_HEIGHT: &str = "quorate_consensus_finalized_height";
/// How often validators are asked for their height.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// How long a validator's answer on its height is waited for.
const LOOK_LIMIT: Duration = Duration::from_millis(150);

const BLOCK_INTERVAL: &str = "quorate_consensus_block_interval_seconds";

/// A histogram's cumulative counts by upper bound, in seconds.
type Buckets = Vec<(f64, f64)>;

/// One measurement of one validator.
#[derive(Clone, Debug, Default)]
struct Reading {
    process: u32,
    values: BTreeMap<String, f64>,
    buckets: BTreeMap<String, Buckets>,
    cpu_seconds: f64,
    rss_mib: f64,
    peak_mib: f64,
}

/// One measurement of all validators that respond.
#[derive(Clone, Debug)]
pub struct Sample {
    at: Instant,
    readings: BTreeMap<usize, Reading>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quantiles {
    pub p50: Option<f64>,
    pub p99: Option<f64>,
}

/// Work on certificates, summed over all validators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Verifications {
    /// Certificates assembled or verified.
    pub certificates: u64,
    /// Pairing equations evaluated.
    pub pairing_checks: u64,
    /// Failed batches that were split in half.
    pub bisections: u64,
}

/// Measurements between two samples.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    pub seconds: f64,
    pub blocks: u64,
    /// Time between final blocks, as observed by the validator that was measured longest.
    pub block_time_ms: Quantiles,
    /// Time from a leader's proposal to its finalization at the same leader.
    pub finality_ms: Quantiles,
    /// Of how many validators these figures are, each for as long as it ran and was in step.
    pub validators_measured: usize,
    /// CPU time per view and validator.
    pub cpu_ms_per_view_per_node: Option<f64>,
    /// The peak resident memory of any validator since its start, in MiB.
    pub rss_mb_max: f64,
    pub verifications: Verifications,
}

impl Sample {
    /// Measures all validators that respond.
    pub async fn take(network: &Network) -> Self {
        let mut readings = BTreeMap::new();
        for place in 0..network.size() {
            let text = network.operator(place).metrics().await;
            let process = network.process(place).and_then(|id| Usage::of(id).ok());
            if let (Ok(text), Some(usage)) = (text, process) {
                let mut reading = parse(&text);
                reading.process = network.process(place).unwrap_or_default();
                reading.cpu_seconds = usage.cpu.as_secs_f64();
                reading.rss_mib = usage.resident_bytes as f64 / MIB;
                reading.peak_mib = usage.peak_resident_bytes as f64 / MIB;
                readings.insert(place, reading);
            }
        }
        Self {
            at: Instant::now(),
            readings,
        }
    }

    /// Removes validators from the sample.
    pub fn without(mut self, places: &[usize]) -> Self {
        self.readings.retain(|place, _| !places.contains(place));
        self
    }

    fn max(&self, name: &str) -> f64 {
        let values = self.readings.values().map(|reading| reading.value(name));
        values.fold(0.0, f64::max)
    }

    /// The highest final height.
    pub fn height(&self) -> u64 {
        self.max(FINALIZED_HEIGHT) as u64
    }

    /// The most memory that a process of these ever had, in MiB.
    fn peak_mib(&self) -> f64 {
        let all = self.readings.values().map(|reading| reading.peak_mib);
        all.fold(0.0, f64::max)
    }

    /// Resident memory of the largest validator, in MiB.
    pub fn rss_mib_max(&self) -> f64 {
        let all = self.readings.values().map(|reading| reading.rss_mib);
        all.fold(0.0, f64::max)
    }

    /// Bytes of the largest database.
    pub fn database_bytes_max(&self) -> f64 {
        self.max("quorate_storage_database_bytes")
    }

    /// The newest epoch.
    pub fn epoch(&self) -> u64 {
        self.max("quorate_consensus_epoch") as u64
    }

    /// The highest view.
    pub fn view(&self) -> u64 {
        self.max("quorate_consensus_view") as u64
    }

    /// The fewest connected peers, and how many validators answer.
    pub fn connected(&self) -> (u64, usize) {
        let peers = self
            .readings
            .values()
            .map(|reading| reading.value("quorate_p2p_connected_peers"));
        let fewest = peers.fold(f64::INFINITY, f64::min);
        let fewest = if fewest.is_finite() { fewest as u64 } else { 0 };
        (fewest, self.readings.len())
    }

    /// Returns the growth of a metric since an earlier sample, summed over all labels and
    /// validators.
    pub fn growth(&self, earlier: &Self, name: &str) -> f64 {
        let total = |reading: &Reading| -> f64 {
            let labelled = format!("{name}{{");
            let named = reading.values.iter();
            let named = named.filter(|(key, _)| *key == name || key.starts_with(&labelled));
            named.map(|(_, value)| value).sum()
        };
        let both = self.readings.iter();
        both.filter_map(|(place, now)| Some(total(now) - total(earlier.readings.get(place)?)))
            .sum()
    }

    /// Returns the measurements since an earlier sample.
    pub fn since(&self, earlier: &Self) -> Figures {
        let mut tally = Tally::from(earlier.clone());
        tally.add(self.clone());
        tally.figures()
    }
}

/// Blocks below the newest up to which a validator is in step.
const IN_STEP: f64 = 5.0;

/// Measurements over many samples, between which processes may end and start again.
///
/// The counters of a process count from one sample to the next, if it ran all the time and was in step at the first one: the
/// others tell of catching up.
#[derive(Clone, Debug)]
pub struct Tally {
    first: Sample,
    last: Sample,
    peak_mib: f64,
    restarts: u64,
    measured: BTreeMap<usize, Reading>,
}

impl From<Sample> for Tally {
    fn from(first: Sample) -> Self {
        Self {
            peak_mib: first.peak_mib(),
            last: first.clone(),
            first,
            restarts: 0,
            measured: BTreeMap::new(),
        }
    }
}

impl Tally {
    /// Takes a later sample.
    pub fn add(&mut self, now: Sample) {
        let newest = self.last.max(FINALIZED_HEIGHT);
        for (place, reading) in &now.readings {
            let Some(then) = self.last.readings.get(place) else {
                continue;
            };
            if then.process != reading.process {
                self.restarts += 1;
            } else if then.value(FINALIZED_HEIGHT) + IN_STEP >= newest {
                self.measured.entry(*place).or_default().grow(reading, then);
            }
        }
        self.peak_mib = self.peak_mib.max(now.peak_mib());
        let missing = self.last.readings.iter();
        let missing = missing.filter(|(place, _)| !now.readings.contains_key(place));
        let missing: Vec<(usize, Reading)> = missing
            .map(|(place, held)| (*place, held.clone()))
            .collect();
        self.last = now;
        // So that a process which answers again is known to be another one.
        self.last.readings.extend(missing);
    }

    /// How often a validator's process was found to be another one.
    pub fn restarts(&self) -> u64 {
        self.restarts
    }

    /// What was measured.
    pub fn figures(&self) -> Figures {
        let all = || self.measured.values();
        let sum = |name: &str| -> u64 { all().map(|reading| reading.value(name) as u64).sum() };
        let merged = |name: &str| -> Buckets {
            let mut total = Buckets::new();
            for reading in all() {
                add(&mut total, reading.buckets.get(name), 1.0);
            }
            total
        };
        let millis = |buckets: &Buckets| Quantiles {
            p50: quantile(buckets, 0.50).map(|seconds| seconds * 1_000.0),
            p99: quantile(buckets, 0.99).map(|seconds| seconds * 1_000.0),
        };
        // One validator sees each block once: the one that was measured longest.
        let intervals = all().filter_map(|reading| reading.buckets.get(BLOCK_INTERVAL));
        let count = |buckets: &&Buckets| buckets.last().map_or(0, |(_, count)| *count as u64);
        let intervals = intervals
            .rev()
            .max_by_key(count)
            .cloned()
            .unwrap_or_default();
        let views: f64 = all()
            .map(|reading| reading.value("quorate_consensus_views_total"))
            .sum();
        let cpu: f64 = all().map(|reading| reading.cpu_seconds).sum();
        Figures {
            seconds: (self.last.at - self.first.at).as_secs_f64(),
            blocks: self.last.height().saturating_sub(self.first.height()),
            block_time_ms: millis(&intervals),
            finality_ms: millis(&merged("quorate_consensus_finality_seconds")),
            validators_measured: self.measured.len(),
            cpu_ms_per_view_per_node: (views > 0.0).then(|| cpu * 1_000.0 / views),
            rss_mb_max: self.peak_mib,
            verifications: Verifications {
                certificates: sum("quorate_crypto_certificates_total"),
                pairing_checks: sum("quorate_crypto_pairing_checks_total"),
                bisections: sum("quorate_crypto_bisections_total"),
            },
        }
    }
}

impl Reading {
    fn value(&self, name: &str) -> f64 {
        self.values.get(name).copied().unwrap_or(0.0)
    }

    /// Adds what counters and histograms of a process have grown by.
    fn grow(&mut self, now: &Self, then: &Self) {
        for (name, value) in &now.values {
            let grown = (value - then.value(name)).max(0.0);
            *self.values.entry(name.clone()).or_default() += grown;
        }
        for (name, counts) in &now.buckets {
            let total = self.buckets.entry(name.clone()).or_default();
            add(total, Some(counts), 1.0);
            add(total, then.buckets.get(name), -1.0);
        }
        self.cpu_seconds += (now.cpu_seconds - then.cpu_seconds).max(0.0);
    }
}

/// Parses the subset of the Prometheus text format that our own metrics use.
fn parse(text: &str) -> Reading {
    let mut reading = Reading::default();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, value)) = line.rsplit_once(' ') else {
            continue;
        };
        let Ok(value) = value.parse::<f64>() else {
            continue;
        };
        match name.split_once("_bucket{le=\"") {
            Some((name, bound)) => {
                let bound = bound.trim_end_matches("\"}");
                let bound = bound.parse().unwrap_or(f64::INFINITY);
                let buckets = reading.buckets.entry(name.to_owned()).or_default();
                buckets.push((bound, value));
            }
            None => {
                reading.values.insert(name.to_owned(), value);
            }
        }
    }
    reading
}

/// Adds counts to others, times a factor.
fn add(total: &mut Buckets, counts: Option<&Buckets>, factor: f64) {
    let Some(counts) = counts else { return };
    if total.is_empty() {
        total.extend(counts.iter().map(|(bound, _)| (*bound, 0.0)));
    }
    for ((_, slot), (_, count)) in total.iter_mut().zip(counts) {
        *slot += count * factor;
    }
}

/// Returns a quantile of a histogram, interpolated within its bucket.
fn quantile(buckets: &Buckets, q: f64) -> Option<f64> {
    let count = buckets.last()?.1;
    if count <= 0.0 {
        return None;
    }
    let rank = q * count;
    let (mut below, mut counted) = (0.0, 0.0);
    for (bound, cumulative) in buckets {
        if *cumulative >= rank {
            if !bound.is_finite() {
                return Some(below);
            }
            let inside = cumulative - counted;
            let share = if inside > 0.0 {
                (rank - counted) / inside
            } else {
                1.0
            };
            return Some(below + (bound - below) * share);
        }
        (below, counted) = (*bound, *cumulative);
    }
    Some(below)
}

/// The longest time in which no validator had a new final block, as far as looking at their heights shows: from when a block
/// was first seen to when it was last seen as the newest.
#[derive(Debug)]
pub struct Pauses {
    longest: Arc<Mutex<Longest>>,
    looks: tokio::task::JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Longest {
    newest: Option<(u64, Instant)>,
    longest: Duration,
}

impl Pauses {
    /// Looks from now on, beside everything else.
    pub fn watch(network: &Network) -> Self {
        let clients: Vec<_> = (0..network.size())
            .map(|place| network.client(place).clone())
            .collect();
        let longest = Arc::<Mutex<Longest>>::default();
        let noted = longest.clone();
        let looks = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(LOOK_INTERVAL);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let asked = Instant::now();
                let mut heights = tokio::task::JoinSet::new();
                for client in clients.clone() {
                    heights.spawn(async move {
                        let status = tokio::time::timeout(LOOK_LIMIT, client.status()).await;
                        let height = status.map(|status| Some(status.ok()?.finalized_height.0));
                        height.map(|height| Some((height?, Instant::now())))
                    });
                }
                let looks = heights.join_all().await;
                let late = looks.iter().filter(|look| look.is_err()).count();
                // One that was killed answers at once that nobody is there.
                let heights: Vec<_> = looks.into_iter().flatten().flatten().collect();
                if let Some((newest, answered)) = heights.iter().max() {
                    let most = heights.len() > late;
                    noted.lock().note(*newest, most, asked, *answered);
                }
            }
        });
        Self { longest, looks }
    }

    pub fn longest(&self) -> Duration {
        self.longest.lock().longest
    }

    /// Counts from now on.
    pub fn renew(&self) {
        *self.longest.lock() = Longest::default();
    }
}

impl Drop for Pauses {
    fn drop(&mut self) {
        self.looks.abort();
    }
}

impl Longest {
    /// A look that most of the validators that are there did not answer in time shows only that there is a new block: those that
    /// answered may lag.
    fn note(&mut self, newest: u64, most: bool, asked: Instant, answered: Instant) {
        match self.newest {
            Some((known, since)) if newest <= known => {
                if most && newest == known {
                    self.longest = self.longest.max(asked.saturating_duration_since(since));
                }
            }
            _ => self.newest = Some((newest, answered)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_interpolated_within_their_bucket() {
        let buckets = vec![(1.0, 10.0), (2.0, 20.0), (f64::INFINITY, 20.0)];
        assert_eq!(quantile(&buckets, 0.5), Some(1.0));
        assert_eq!(quantile(&buckets, 0.75), Some(1.5));
        assert_eq!(quantile(&vec![(1.0, 0.0)], 0.5), None);
    }

    #[test]
    fn the_largest_memory_is_the_most_that_a_process_ever_had() {
        let sample = |rss_mib, peak_mib| Sample {
            at: Instant::now(),
            readings: BTreeMap::from([(
                0,
                Reading {
                    rss_mib,
                    peak_mib,
                    ..Reading::default()
                },
            )]),
        };
        let before = sample(50.0, 70.0);
        assert_eq!(sample(80.0, 362.0).since(&before).rss_mb_max, 362.0);
        assert_eq!(
            sample(20.0, 30.0).since(&before).rss_mb_max,
            70.0,
            "it was killed"
        );
    }

    /// Validator 0 is killed and catches up; validator 1 is killed later.
    #[test]
    fn figures_are_of_all_processes_while_they_ran_and_were_in_step() {
        let reading = |process: u32, height: f64, blocks: f64, quick: f64| Reading {
            process,
            values: BTreeMap::from([
                (FINALIZED_HEIGHT.to_owned(), height),
                ("quorate_consensus_views_total".to_owned(), blocks),
            ]),
            buckets: BTreeMap::from([(
                BLOCK_INTERVAL.to_owned(),
                vec![(0.01, quick), (0.1, blocks), (f64::INFINITY, blocks)],
            )]),
            cpu_seconds: blocks,
            ..Reading::default()
        };
        let sample = |readings: Vec<(usize, Reading)>| Sample {
            at: Instant::now(),
            readings: readings.into_iter().collect(),
        };
        let mut tally = Tally::from(sample(vec![
            (0, reading(1, 100.0, 100.0, 0.0)),
            (1, reading(2, 100.0, 100.0, 0.0)),
        ]));
        tally.add(sample(vec![(1, reading(2, 120.0, 120.0, 0.0))]));
        // It has executed 100 blocks of the past within a moment, and some more until it is in step.
        tally.add(sample(vec![
            (0, reading(3, 110.0, 110.0, 110.0)),
            (1, reading(2, 140.0, 140.0, 0.0)),
        ]));
        tally.add(sample(vec![(0, reading(3, 160.0, 160.0, 150.0))]));
        tally.add(sample(vec![
            (0, reading(3, 190.0, 190.0, 150.0)),
            (1, reading(4, 190.0, 70.0, 70.0)),
        ]));
        let figures = tally.figures();
        assert_eq!(tally.restarts(), 2);
        assert_eq!(figures.validators_measured, 2);
        assert_eq!(figures.blocks, 90);
        // 30 blocks of validator 0 and 40 of validator 1, each 10 to 100 ms after the one before.
        let median = figures.block_time_ms.p50.expect("blocks");
        assert!((10.0..=100.0).contains(&median), "{median}");
        assert_eq!(figures.cpu_ms_per_view_per_node, Some(1_000.0));
    }

    #[test]
    fn a_pause_is_as_long_as_a_block_was_seen_as_the_newest() {
        let mut pauses = Longest::default();
        let start = Instant::now();
        let mut look = |newest, most, asked, answered| {
            let at = |seconds: u64| start + Duration::from_secs(seconds);
            pauses.note(newest, most, at(asked), at(answered));
            pauses.longest.as_secs()
        };
        assert_eq!(look(7, true, 0, 0), 0);
        assert_eq!(look(8, true, 3, 3), 0);
        assert_eq!(look(8, true, 5, 6), 2);
        // From validators that are behind.
        assert_eq!(look(7, true, 6, 6), 2);
        assert_eq!(look(8, false, 7, 7), 2);
        // The answer took long.
        assert_eq!(look(9, false, 9, 13), 2);
        assert_eq!(look(9, true, 14, 14), 2);
        assert_eq!(look(9, true, 16, 16), 3);
    }

    #[test]
    fn the_text_format_is_read() {
        let text = "# HELP a b\na 3\nh_bucket{le=\"0.5\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 1.5\n";
        let reading = parse(text);
        assert_eq!(reading.value("a"), 3.0);
        assert_eq!(reading.buckets["h"], [(0.5, 1.0), (f64::INFINITY, 2.0)]);
    }
}
