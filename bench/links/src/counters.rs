//! What has crossed each link, and how late the emulator was.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// What one way has carried since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes delivered, of all connections, whoever dialled.
    pub bytes: u64,
    /// Connections that the sender opened this way.
    pub connections: u64,
    /// Of those, how many the receiver's true address refused.
    pub refused: u64,
    /// Of those, how many were ended by a reset: by an endpoint or by
    /// [`Emulator::reset`](crate::Emulator::reset).
    pub resets: u64,
    /// How often a lost segment stalled a connection.
    pub stalls: u64,
    /// Bytes that are under way or wait for the receiver now.
    pub held_bytes: u64,
}

/// How long after it was due each piece was written, in microseconds: the emulator's own error in a
/// run. What a receiver was too busy to take is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// Pieces.
    pub pieces: u64,
    /// Half were not later.
    pub p50_us: u64,
    /// 99 of 100 were not later.
    pub p99_us: u64,
    /// The latest.
    pub max_us: u64,
}

#[derive(Default)]
pub(crate) struct Cells {
    pub(crate) bytes: AtomicU64,
    pub(crate) connections: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) resets: AtomicU64,
    pub(crate) stalls: AtomicU64,
    pub(crate) held_bytes: AtomicU64,
}

impl Cells {
    pub(crate) fn read(&self) -> Counters {
        Counters {
            bytes: self.bytes.load(Relaxed),
            connections: self.connections.load(Relaxed),
            refused: self.refused.load(Relaxed),
            resets: self.resets.load(Relaxed),
            stalls: self.stalls.load(Relaxed),
            held_bytes: self.held_bytes.load(Relaxed),
        }
    }
}

/// Eight buckets for each power of two: a value is known to an eighth of itself.
const STEPS_LOG2: u32 = 3;
const BUCKETS: usize = 64 << STEPS_LOG2;

/// Counts microseconds.
pub(crate) struct Histogram {
    buckets: Vec<AtomicU64>,
    max: AtomicU64,
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Self {
            buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            max: AtomicU64::new(0),
        }
    }

    pub(crate) fn record(&self, late: Duration) {
        let us = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
        self.buckets[bucket(us)].fetch_add(1, Relaxed);
        self.max.fetch_max(us, Relaxed);
    }

    pub(crate) fn clear(&self) {
        for cell in self.buckets.iter().chain([&self.max]) {
            cell.store(0, Relaxed);
        }
    }

    pub(crate) fn read(&self) -> Lateness {
        let counts: Vec<u64> = self.buckets.iter().map(|cell| cell.load(Relaxed)).collect();
        let max_us = self.max.load(Relaxed);
        let pieces: u64 = counts.iter().sum();
        let quantile = |percent: u64| {
            let rank = (pieces * percent).div_ceil(100);
            let mut seen = 0;
            let place = counts.iter().position(|count| {
                seen += count;
                seen >= rank
            });
            place.map_or(0, |place| highest(place).min(max_us))
        };
        Lateness {
            pieces,
            p50_us: quantile(50),
            p99_us: quantile(99),
            max_us,
        }
    }
}

fn bucket(value: u64) -> usize {
    let steps = 1u64 << STEPS_LOG2;
    if value < steps {
        return value as usize;
    }
    let shift = value.ilog2() - STEPS_LOG2;
    // The leading one is in the exponent already.
    (u64::from(shift + 1) * steps + (value >> shift) - steps) as usize
}

/// The highest value in a bucket.
fn highest(place: usize) -> u64 {
    let steps = 1usize << STEPS_LOG2;
    if place < steps {
        return place as u64;
    }
    let shift = place / steps - 1;
    let first = ((steps + place % steps) as u64) << shift;
    first + ((1u64 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_every_value_within_an_eighth() {
        for value in (0..5_000).chain([1 << 40, u64::MAX - 1, u64::MAX]) {
            let top = highest(bucket(value));
            assert!(
                top >= value && top - value <= value / 8,
                "{value} counts as {top}"
            );
        }
    }

    #[test]
    fn quantiles_are_of_what_was_recorded() {
        let histogram = Histogram::new();
        assert_eq!(histogram.read(), Lateness::default());
        for us in 1..=1_000 {
            histogram.record(Duration::from_micros(us));
        }
        let read = histogram.read();
        assert_eq!((read.pieces, read.max_us), (1_000, 1_000));
        assert!((500..=563).contains(&read.p50_us), "{read:?}");
        assert!((990..=1_000).contains(&read.p99_us), "{read:?}");
    }
}
