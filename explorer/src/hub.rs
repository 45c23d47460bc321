//! What the explorer has observed since it started, and the distribution of events to streams.
//!
//! Events go into one ring of [`RING_EVENTS`] that all streams read, each at its own pace. A stream
//! that falls behind by more loses the unread events and is told so; other streams are not
//! affected.
//!
//! All durations are measured with this process's monotonic clock.
//!
//! A stream is a position in this ring, not a queue of its own: 1,000 slow clients cost what one
//! costs.

use crate::{
    shapes::{Number, Quantiles, Stats, UpstreamStatus},
    verify::FinalBlock,
};
use axum::extract::ws::Utf8Bytes;
use bytes::Bytes;
use commonware_codec::EncodeSize;
use parking_lot::{Mutex, RwLock};
use quorate_types::{Digest, Height, Outcome};
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::{broadcast, watch};

/// Capacity of the ring.
pub const RING_EVENTS: usize = 1_024;

/// Number of blocks whose times are kept: an hour at 40 blocks per second.
const MAX_SEEN: usize = 144_000;

/// Maximum number of notarized blocks tracked until their finalization.
const MAX_NOTARIZED: usize = 1_024;

/// After a pause longer than this, the interval to the next block is not counted as a block time.
const MAX_INTERVAL: Duration = Duration::from_secs(60);

/// The newest block is too old after this many times the usual pause between blocks without
/// transactions, but never before [`LEAST_PATIENCE`].
const PATIENCE_INTERVALS: u32 = 10;
const LEAST_PATIENCE: Duration = Duration::from_secs(10);

/// Upper limit of the stall time that a validator may report.
const LONGEST_PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// Number of remembered pauses before empty blocks, that is of an idle chain.
const IDLE_PAUSES: usize = 256;

/// A topic of stream events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    Finalized,
    Notarized,
    Nullified,
    /// Statistics of the last minute, once a second.
    Stats,
}

impl Topic {
    pub const ALL: [Self; 4] = [
        Self::Finalized,
        Self::Notarized,
        Self::Nullified,
        Self::Stats,
    ];

    /// Its name in the interface.
    pub fn name(self) -> &'static str {
        match self {
            Self::Finalized => "finalized",
            Self::Notarized => "notarized",
            Self::Nullified => "nullified",
            Self::Stats => "stats",
        }
    }
}

/// An event as it is sent, rendered once for all streams.
pub struct Event {
    pub topic: Topic,
    /// The height, for a final block.
    pub height: Option<Height>,
    /// The event as a JSON object.
    pub text: Utf8Bytes,
    /// The same as a server-sent event.
    pub sse: Bytes,
}

impl Event {
    /// The event with this JSON object.
    pub fn new(topic: Topic, height: Option<Height>, text: String) -> Self {
        let id = height.map_or(String::new(), |height| format!("id: {height}\n"));
        let sse = format!("event: {}\n{id}data: {text}\n\n", topic.name());
        Self {
            topic,
            height,
            text: Utf8Bytes::from(text),
            sse: Bytes::from(sse),
        }
    }
}

/// When a final block was observed, and its figures.
struct Seen {
    at: Instant,
    transactions: u32,
    failed: u32,
    bytes: u32,
    interval_ms: Option<f64>,
    finality_ms: Option<f64>,
}

#[derive(Default)]
struct Observed {
    seen: VecDeque<Seen>,
    last: Option<Instant>,
    /// Pauses before blocks without transactions, in milliseconds by the leaders' clocks.
    idle_ms: VecDeque<u64>,
    last_timestamp: Option<u64>,
    nullified: VecDeque<Instant>,
    notarized: HashMap<Digest, Instant>,
    order: VecDeque<Digest>,
}

/// The observations and the subscribers.
pub struct Hub {
    started: Instant,
    events: broadcast::Sender<Arc<Event>>,
    tip: watch::Sender<Height>,
    tip_at: Mutex<Option<Instant>>,
    claimed: AtomicU64,
    caught_up: AtomicBool,
    observed: Mutex<Observed>,
    upstreams: RwLock<Vec<UpstreamStatus>>,
    /// The time without a block after which each upstream considers the chain stalled.
    stalled_after: Mutex<BTreeMap<String, Duration>>,
}

impl Hub {
    /// A hub without observations; the index's tip is at this height.
    pub fn new(tip: Height) -> Self {
        Self {
            started: Instant::now(),
            events: broadcast::Sender::new(RING_EVENTS),
            tip: watch::Sender::new(tip),
            tip_at: Mutex::default(),
            claimed: AtomicU64::new(0),
            caught_up: AtomicBool::new(false),
            observed: Mutex::default(),
            stalled_after: Mutex::default(),
            upstreams: RwLock::default(),
        }
    }

    /// When the process started.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Subscribes to all events published from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Event>> {
        self.events.subscribe()
    }

    /// Watches the newest final height.
    pub fn tip(&self) -> watch::Receiver<Height> {
        self.tip.subscribe()
    }

    /// How long the newest block has been known.
    pub fn tip_age(&self) -> Option<Duration> {
        self.tip_at.lock().map(|at| at.elapsed())
    }

    /// Whether there are subscribers; otherwise an event need not be rendered.
    pub fn has_listeners(&self) -> bool {
        self.events.receiver_count() > 0
    }

    /// Sends an event to all streams.
    pub fn publish(&self, event: Event) {
        // Having no subscribers is not an error.
        let _ = self.events.send(Arc::new(event));
    }

    /// Records the height that the followed validator claims.
    pub fn set_claimed(&self, height: Height, caught_up: bool) {
        self.claimed.store(height.0, Ordering::Relaxed);
        self.caught_up.store(caught_up, Ordering::Relaxed);
    }

    /// The height that the followed validator claims, and whether the index holds all of it that
    /// can be verified.
    pub fn claimed(&self) -> (Height, bool) {
        (
            Height(self.claimed.load(Ordering::Relaxed)),
            self.caught_up.load(Ordering::Relaxed),
        )
    }

    pub fn set_upstreams(&self, upstreams: Vec<UpstreamStatus>) {
        *self.upstreams.write() = upstreams;
    }

    pub fn upstreams(&self) -> Vec<UpstreamStatus> {
        self.upstreams.read().clone()
    }

    /// The address of the validator that is followed.
    pub fn followed(&self) -> Option<String> {
        let upstreams = self.upstreams.read();
        let followed = upstreams.iter().find(|up| up.state == "following");
        followed.map(|up| up.url.clone())
    }

    /// Records a notarization.
    pub fn notarized(&self, id: Digest) {
        let mut observed = self.observed.lock();
        if observed.notarized.contains_key(&id) {
            return;
        }
        observed.notarized.insert(id, Instant::now());
        observed.order.push_back(id);
        if observed.order.len() > MAX_NOTARIZED
            && let Some(old) = observed.order.pop_front()
        {
            observed.notarized.remove(&old);
        }
    }

    /// Records a nullification.
    pub fn nullified(&self) {
        let mut observed = self.observed.lock();
        observed.nullified.push_back(Instant::now());
        if observed.nullified.len() > MAX_SEEN {
            observed.nullified.pop_front();
        }
    }

    /// Records indexed blocks. Blocks of a backlog say nothing about the chain's pace.
    pub fn finalized(&self, blocks: &[FinalBlock], backlog: bool) {
        let Some(newest) = blocks.last() else {
            return;
        };
        let now = Instant::now();
        let mut observed = self.observed.lock();
        for item in blocks {
            let timestamp = item.block.header().timestamp_ms;
            let before = observed.last_timestamp.replace(timestamp);
            if let Some(before) = before.filter(|_| item.block.transactions().is_empty()) {
                observed.idle_ms.push_back(timestamp.saturating_sub(before));
            }
        }
        while observed.idle_ms.len() > IDLE_PAUSES {
            observed.idle_ms.pop_front();
        }
        let since = observed.last.replace(now).map(|last| now - last);
        if backlog {
            observed.last = None;
        } else {
            // Blocks that arrive together share the time since the previous ones.
            let interval_ms = since
                .filter(|since| *since < MAX_INTERVAL)
                .map(|since| millis(since) / blocks.len() as f64);
            for item in blocks {
                let notarized = observed.notarized.remove(&item.block.id());
                let bytes = item.block.encode_size();
                let outcomes = item.outcomes.iter();
                let failed = outcomes
                    .filter(|outcome| **outcome != Outcome::Applied)
                    .count();
                observed.seen.push_back(Seen {
                    at: now,
                    transactions: u32::try_from(item.outcomes.len()).unwrap_or(u32::MAX),
                    failed: u32::try_from(failed).unwrap_or(u32::MAX),
                    bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
                    interval_ms,
                    finality_ms: notarized.map(|at| millis(now - at)),
                });
            }
            while observed.seen.len() > MAX_SEEN {
                observed.seen.pop_front();
            }
        }
        drop(observed);
        *self.tip_at.lock() = Some(now);
        self.tip.send_replace(newest.block.height());
    }

    /// Records the time without a block after which an upstream considers the chain stalled.
    pub fn note_stalled_after(&self, url: &str, after: Duration) {
        let after = after.min(LONGEST_PATIENCE);
        self.stalled_after.lock().insert(url.to_owned(), after);
    }

    /// The stall time reported by the upstreams: the median (of two, the shorter one), so that
    /// fewer than half of them cannot hide that the chain has stalled.
    fn told_patience(&self) -> Option<Duration> {
        let mut told: Vec<Duration> = self.stalled_after.lock().values().copied().collect();
        told.sort_unstable();
        told.get(told.len().saturating_sub(1) / 2).copied()
    }

    /// How old the newest block may be, as reported by the upstreams, which know how long an idle
    /// chain pauses. If none reports it, ten times the observed pause between blocks of the idle
    /// chain.
    pub fn patience(&self) -> Duration {
        if let Some(told) = self.told_patience() {
            return told.max(LEAST_PATIENCE);
        }
        let observed = self.observed.lock();
        let mut pauses: Vec<u64> = observed.idle_ms.iter().copied().collect();
        drop(observed);
        pauses.sort_unstable();
        let usual = pauses.get(pauses.len() * 9 / 10).copied().unwrap_or(0);
        let usual = Duration::from_millis(usual).min(MAX_INTERVAL);
        (PATIENCE_INTERVALS * usual).max(LEAST_PATIENCE)
    }

    /// Statistics of a window.
    pub fn stats(&self, name: &str, window: Duration) -> Stats {
        let observed = self.observed.lock();
        let now = Instant::now();
        let within = |at: Instant| now - at <= window;
        let start = observed.seen.partition_point(|seen| !within(seen.at));
        let seen = || observed.seen.range(start..);
        let seconds = window.min(self.started.elapsed()).as_secs_f64();
        let blocks = observed.seen.len() - start;
        let transactions: u64 = seen().map(|seen| u64::from(seen.transactions)).sum();
        let nullified = observed.nullified.partition_point(|at| !within(*at));
        Stats {
            window: name.to_owned(),
            seconds,
            blocks: Number(blocks as u64),
            transactions: Number(transactions),
            failed_transactions: Number(seen().map(|seen| u64::from(seen.failed)).sum()),
            blocks_per_second: blocks as f64 / seconds.max(0.001),
            transactions_per_second: transactions as f64 / seconds.max(0.001),
            block_time_ms: quantiles(seen().filter_map(|seen| seen.interval_ms)),
            finality_ms: quantiles(seen().filter_map(|seen| seen.finality_ms)),
            block_bytes: quantiles(seen().map(|seen| f64::from(seen.bytes))),
            nullified: Number((observed.nullified.len() - nullified) as u64),
            clock: "explorer".to_owned(),
        }
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

fn quantiles(values: impl Iterator<Item = f64>) -> Option<Quantiles> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    Some(Quantiles {
        p50: values[last / 2],
        p99: values[last * 99 / 100],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_may_pause_for_as_long_as_most_upstreams_say() {
        let hub = Hub::new(Height(0));
        assert_eq!(hub.patience(), LEAST_PATIENCE);
        let seconds = Duration::from_secs;
        hub.note_stalled_after("a", seconds(300));
        assert_eq!(hub.patience(), seconds(300));
        // One of two, or of three, upstreams cannot hide a stall by reporting an endless pause.
        hub.note_stalled_after("b", Duration::from_millis(u64::MAX));
        assert_eq!(hub.patience(), seconds(300));
        hub.note_stalled_after("c", seconds(1));
        assert_eq!(hub.patience(), seconds(300));
        hub.note_stalled_after("a", seconds(2));
        hub.note_stalled_after("b", seconds(3));
        assert_eq!(hub.patience(), LEAST_PATIENCE);
    }

    #[test]
    fn quantiles_are_values_that_were_there() {
        assert!(quantiles([].into_iter()).is_none());
        let one = quantiles([4.0].into_iter()).expect("one value");
        assert_eq!((one.p50, one.p99), (4.0, 4.0));
        let many = quantiles((1..=100).rev().map(f64::from)).expect("values");
        assert_eq!((many.p50, many.p99), (50.0, 99.0));
    }
}
