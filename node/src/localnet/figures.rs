//! Measurements of a running network, from its validators' metrics and processes.

use super::processes::Network;
use quorate_files::Usage;
use serde::Serialize;
use std::{collections::BTreeMap, time::Instant};

const MIB: f64 = 1_048_576.0;

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
    /// Time between final blocks, as observed by validator 0.
    pub block_time_ms: Quantiles,
    /// Time from a leader's proposal to its finalization at the same leader.
    pub finality_ms: Quantiles,
    /// How many validators ran all the time; the next figures and the two before are theirs.
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
        self.max("quorate_consensus_finalized_height") as u64
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
        // The counters of a process that was started in between tell of its own time only, in which it was catching up.
        let both = || {
            self.readings
                .iter()
                .filter_map(|(place, now)| Some((now, earlier.readings.get(place)?)))
                .filter(|(now, then)| now.process == then.process)
        };
        let sum = |name: &str| -> u64 {
            both()
                .map(|(now, then)| (now.value(name) - then.value(name)).max(0.0) as u64)
                .sum()
        };
        let histogram = |name: &str, first_only: bool| -> Quantiles {
            let mut total: Buckets = Vec::new();
            for (now, then) in both().take(if first_only { 1 } else { usize::MAX }) {
                add_difference(&mut total, now.buckets.get(name), then.buckets.get(name));
            }
            Quantiles {
                p50: quantile(&total, 0.50).map(|seconds| seconds * 1_000.0),
                p99: quantile(&total, 0.99).map(|seconds| seconds * 1_000.0),
            }
        };
        let views: f64 = both()
            .map(|(now, then)| {
                let name = "quorate_consensus_views_total";
                (now.value(name) - then.value(name)).max(0.0)
            })
            .sum();
        let cpu: f64 = both()
            .map(|(now, then)| (now.cpu_seconds - then.cpu_seconds).max(0.0))
            .sum();
        Figures {
            seconds: (self.at - earlier.at).as_secs_f64(),
            blocks: self.height().saturating_sub(earlier.height()),
            block_time_ms: histogram("quorate_consensus_block_interval_seconds", true),
            finality_ms: histogram("quorate_consensus_finality_seconds", false),
            validators_measured: both().count(),
            cpu_ms_per_view_per_node: (views > 0.0).then(|| cpu * 1_000.0 / views),
            // A validator that was killed in between has restarted from zero.
            rss_mb_max: (self.readings.values())
                .chain(earlier.readings.values())
                .map(|reading| reading.peak_mib)
                .fold(0.0, f64::max),
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

fn add_difference(total: &mut Buckets, now: Option<&Buckets>, then: Option<&Buckets>) {
    let (Some(now), Some(then)) = (now, then) else {
        return;
    };
    if total.is_empty() {
        total.extend(now.iter().map(|(bound, _)| (*bound, 0.0)));
    }
    for ((slot, (_, now)), (_, then)) in total.iter_mut().zip(now).zip(then) {
        slot.1 += now - then;
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

    #[test]
    fn the_text_format_is_read() {
        let text = "# HELP a b\na 3\nh_bucket{le=\"0.5\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 1.5\n";
        let reading = parse(text);
        assert_eq!(reading.value("a"), 3.0);
        assert_eq!(reading.buckets["h"], [(0.5, 1.0), (f64::INFINITY, 2.0)]);
    }
}
