//! Latencies as histograms of high dynamic range: three significant digits from a microsecond to
//! an hour, in 200 kilobytes however many there are.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hdrhistogram::{
    Histogram,
    serialization::{Deserializer, Serializer as _, V2Serializer},
};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Longer latencies count as this: an hour, in microseconds.
const LONGEST_US: u64 = 3_600_000_000;

/// Largest accepted text of a histogram, in bytes.
const MAX_TEXT_BYTES: usize = 4 << 20;

/// Many latencies.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// In microseconds.
    histogram: Histogram<u64>,
}

/// Some figures of [`Latencies`], and all of them in a form that can be merged with others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// How many.
    pub count: u64,
    /// The mean, in milliseconds.
    pub mean_ms: Option<f64>,
    /// The median.
    pub p50_ms: Option<f64>,
    /// What 90 of 100 are at most.
    pub p90_ms: Option<f64>,
    /// What 99 of 100 are at most.
    pub p99_ms: Option<f64>,
    /// What 999 of 1,000 are at most.
    pub p99_9_ms: Option<f64>,
    /// The longest.
    pub max_ms: Option<f64>,
    /// All of them: base64 of a `HdrHistogram` in its format V2, uncompressed, in microseconds.
    pub histogram: String,
}

/// Why a text is no histogram.
#[derive(Debug, thiserror::Error)]
#[error("not a histogram in the format V2, in base64: {reason}")]
pub struct NoHistogram {
    reason: String,
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            // Bounds that are fixed make equal histograms equal texts.
            histogram: Histogram::new_with_bounds(1, LONGEST_US, 3).expect("they are in order"),
        }
    }
}

impl Latencies {
    /// Adds one.
    pub fn record(&mut self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.histogram
            .saturating_record(micros.clamp(1, LONGEST_US));
    }

    /// Adds all of another's.
    pub fn merge(&mut self, other: &Self) {
        self.histogram
            .add(&other.histogram)
            .expect("both have the same bounds");
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.histogram.reset();
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// All of them, in microseconds.
    pub fn histogram(&self) -> &Histogram<u64> {
        &self.histogram
    }

    /// What this part of them is at most, in milliseconds; `None` if there are none.
    pub fn quantile_ms(&self, part: f64) -> Option<f64> {
        let micros = self.histogram.value_at_quantile(part);
        // The bucket's upper end may be above the longest.
        let micros = micros.min(self.histogram.max());
        (self.count() > 0).then(|| micros as f64 / 1_000.0)
    }

    /// The usual figures, and the whole.
    pub fn summary(&self) -> LatencySummary {
        let some = self.count() > 0;
        LatencySummary {
            count: self.count(),
            mean_ms: some.then(|| self.histogram.mean() / 1_000.0),
            p50_ms: self.quantile_ms(0.5),
            p90_ms: self.quantile_ms(0.9),
            p99_ms: self.quantile_ms(0.99),
            p99_9_ms: self.quantile_ms(0.999),
            max_ms: some.then(|| self.histogram.max() as f64 / 1_000.0),
            histogram: self.to_text(),
        }
    }

    /// Base64 of the format V2, uncompressed.
    fn to_text(&self) -> String {
        let mut bytes = Vec::new();
        V2Serializer::new()
            .serialize(&self.histogram, &mut bytes)
            .expect("writing to memory never fails");
        BASE64_STANDARD.encode(bytes)
    }

    /// Reads what [`LatencySummary::histogram`] holds.
    ///
    /// # Errors
    ///
    /// If the text is none.
    pub fn from_text(text: &str) -> Result<Self, NoHistogram> {
        let wrong = |reason: String| NoHistogram { reason };
        if text.len() > MAX_TEXT_BYTES {
            return Err(wrong("it is too long".to_owned()));
        }
        let bytes = BASE64_STANDARD
            .decode(text)
            .map_err(|error| wrong(error.to_string()))?;
        let read: Histogram<u64> = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|error| wrong(error.to_string()))?;
        let mut latencies = Self::default();
        latencies
            .histogram
            .add(&read)
            .map_err(|error| wrong(error.to_string()))?;
        Ok(latencies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(micros: impl Iterator<Item = u64>) -> Latencies {
        let mut latencies = Latencies::default();
        micros.for_each(|micros| latencies.record(Duration::from_micros(micros)));
        latencies
    }

    #[test]
    fn merged_histograms_are_those_of_all_their_values() {
        let mut low = of(1..=5_000);
        low.merge(&of(5_001..=10_000));
        let all = of(1..=10_000);
        assert_eq!(low.summary(), all.summary());
        assert_eq!(low.count(), 10_000);
        let p99 = low.quantile_ms(0.99).expect("there are some");
        assert!((p99 - 9.9).abs() < 0.01, "{p99}");
    }

    #[test]
    fn a_histogram_survives_its_text_and_merges_after_it() {
        let one = of((1..=1_000).map(|i| i * 997));
        let read = Latencies::from_text(&one.summary().histogram).expect("ours");
        assert_eq!(read.summary(), one.summary());
        let mut both = read;
        both.merge(&one);
        assert_eq!(both.count(), 2_000);
        assert_eq!(both.quantile_ms(0.5), one.quantile_ms(0.5));
    }

    #[test]
    fn what_is_no_histogram_is_refused() {
        assert!(Latencies::from_text("HISTEw").is_err());
        assert!(Latencies::from_text("").is_err());
        assert!(Latencies::from_text("not base64!").is_err());
    }

    #[test]
    fn none_has_no_figures_and_an_age_counts_as_an_hour() {
        assert_eq!(Latencies::default().summary().p99_ms, None);
        let long = of([u64::MAX / 2].into_iter());
        let max = long.summary().max_ms.expect("one");
        assert!((3_600_000.0..3_610_000.0).contains(&max), "{max}");
    }
}
