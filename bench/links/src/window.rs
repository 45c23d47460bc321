//! How many bytes a connection may have under way: a limit, and what TCP has found out about the path.

use crate::link::SEGMENT_BYTES;
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// What a connection may send before it knows anything of the path (RFC 6928).
const INITIAL_BYTES: usize = 10 * SEGMENT_BYTES;

/// The least after losses.
const LEAST_BYTES: usize = 2 * SEGMENT_BYTES;

/// Acknowledgements that come within this time are kept as one, so that the queue is short.
const TOGETHER: Duration = Duration::from_micros(100);

/// The least time after which Linux trusts what it found out no more, beside a round trip.
const IDLE: Duration = Duration::from_millis(200);

/// Bytes that were sent and not acknowledged, and how many may be.
pub(crate) struct Window {
    /// Acknowledgements on their way back.
    coming: VecDeque<(Instant, usize)>,
    /// Their sum.
    unacknowledged: usize,
    /// What the path is thought to carry.
    congestion: usize,
    /// Above it the window grows by a segment each round trip, below it twofold.
    threshold: usize,
    last_sent: Instant,
}

impl Window {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            coming: VecDeque::new(),
            unacknowledged: 0,
            congestion: INITIAL_BYTES,
            threshold: usize::MAX,
            last_sent: now,
        }
    }

    /// How many more bytes may be sent while so many are `held` on their way.
    pub(crate) fn room(
        &mut self,
        now: Instant,
        held: usize,
        limit: usize,
        slow_start: bool,
    ) -> usize {
        while let Some(&(at, bytes)) = self.coming.front() {
            if at > now {
                break;
            }
            self.grow(bytes, held, limit);
            self.coming.pop_front();
            self.unacknowledged -= bytes;
        }
        let limit = if slow_start {
            limit.min(self.congestion)
        } else {
            limit
        };
        limit.saturating_sub(held + self.unacknowledged)
    }

    /// RFC 5681, 3.1. A window that was not half used has told nothing about the path.
    fn grow(&mut self, acknowledged: usize, held: usize, limit: usize) {
        if self.congestion >= 2 * (held + self.unacknowledged) || self.congestion >= limit {
            return;
        }
        self.congestion += if self.congestion < self.threshold {
            acknowledged
        } else {
            (SEGMENT_BYTES * acknowledged).div_ceil(self.congestion)
        };
    }

    /// Bytes are sent now. After each idle time the window is halved, down to the initial one
    /// (RFC 2861, as Linux does it).
    pub(crate) fn sent(&mut self, now: Instant, held: usize, round_trip: Duration) {
        let mut idle = now.saturating_duration_since(self.last_sent);
        self.last_sent = now;
        if held + self.unacknowledged > 0 {
            return;
        }
        while idle > round_trip + IDLE && self.congestion > INITIAL_BYTES {
            idle -= round_trip + IDLE;
            self.congestion = (self.congestion / 2).max(INITIAL_BYTES);
        }
    }

    /// A segment was lost (RFC 9438, 4.6).
    pub(crate) fn lost(&mut self) {
        self.threshold = (self.congestion / 10 * 7).max(LEAST_BYTES);
        self.congestion = self.threshold;
    }

    /// So many bytes have arrived; the sender hears of it at `at`.
    pub(crate) fn acknowledge_at(&mut self, at: Instant, bytes: usize) {
        self.unacknowledged += bytes;
        match self.coming.back_mut() {
            Some((last, sum)) if at <= *last + TOGETHER => *sum += bytes,
            _ => self.coming.push_back((at, bytes)),
        }
    }

    pub(crate) fn next_acknowledgement(&self) -> Option<Instant> {
        self.coming.front().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIP: Duration = Duration::from_millis(100);

    /// Sends all there is room for in each of some round trips, and returns how much that was.
    fn rounds(window: &mut Window, count: u32, start: Instant) -> Vec<usize> {
        (0..count)
            .map(|round| {
                let now = start + TRIP * round;
                let room = window.room(now, 0, 4 << 20, true);
                window.sent(now, 0, TRIP);
                window.acknowledge_at(now + TRIP, room);
                room / SEGMENT_BYTES
            })
            .collect()
    }

    #[test]
    fn slow_start_doubles_each_round_trip_up_to_the_limit() {
        let start = Instant::now();
        let mut window = Window::new(start);
        assert_eq!(rounds(&mut window, 5, start), [10, 20, 40, 80, 160]);
        let later = rounds(&mut window, 8, start + TRIP * 5);
        assert_eq!(later.last(), Some(&((4 << 20) / SEGMENT_BYTES)));
    }

    #[test]
    fn an_idle_connection_starts_slowly_again_and_a_loss_slows_it() {
        let start = Instant::now();
        let mut window = Window::new(start);
        rounds(&mut window, 5, start);
        let idle = start + TRIP * 50;
        assert!(window.room(idle, 0, 4 << 20, true) > 160 * SEGMENT_BYTES);
        window.sent(idle, 0, TRIP);
        assert_eq!(
            window.room(idle, 0, 4 << 20, true),
            INITIAL_BYTES,
            "after the idle time"
        );
        rounds(&mut window, 4, idle);
        let before = window.congestion;
        window.lost();
        assert_eq!(window.congestion, before / 10 * 7);
        let grown = rounds(&mut window, 2, idle + TRIP * 4);
        assert!(grown[1] <= grown[0] + 1, "{grown:?}");
    }

    #[test]
    fn without_slow_start_the_limit_is_all() {
        let now = Instant::now();
        let mut window = Window::new(now);
        assert_eq!(window.room(now, 0, 1_000_000, false), 1_000_000);
        window.acknowledge_at(now + TRIP, 600_000);
        assert_eq!(window.room(now, 300_000, 1_000_000, false), 100_000);
        assert_eq!(window.room(now, 400_000, 1_000_000, false), 0);
        assert_eq!(window.room(now + TRIP, 400_000, 1_000_000, false), 600_000);
    }
}
