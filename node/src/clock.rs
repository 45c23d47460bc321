//! The machine's clocks, and whether the one on the wall goes with the others'.
//!
//! Each proposal carries its leader's clock. The median difference over the newest ones is the
//! network's delay plus how far this clock is ahead of the median leader's: one leader with a wrong
//! clock does not move it. Two bounds depend on clocks: a block may be five seconds ahead of a
//! voter's clock at most, and links are made only between clocks that are closer than that. So
//! a clock that is seconds off is told of, long before the validator drops out.

use quorate_consensus::Moment;
use std::{
    collections::VecDeque,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// What the validator reads the time from.
pub trait Clock: Send + Sync {
    /// Time that never goes backwards, since an arbitrary start.
    fn now(&self) -> Moment;

    /// Milliseconds since 1970, as far as this machine knows.
    fn wall_ms(&self) -> u64;
}

/// The operating system's clocks.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock(Instant);

impl SystemClock {
    /// Starts now.
    pub fn start() -> Self {
        Self(Instant::now())
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        Moment::default().after(self.0.elapsed())
    }

    fn wall_ms(&self) -> u64 {
        now_ms()
    }
}

/// Milliseconds since 1970 by this machine's clock.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let millis = since.unwrap_or(Duration::ZERO).as_millis();
    u64::try_from(millis).unwrap_or(u64::MAX)
}

/// Proposals that are looked at.
const SAMPLES: usize = 64;

/// Fewer say nothing.
const ENOUGH: usize = 16;

/// A difference in milliseconds that the operator is told of. Far above any network's delay.
pub(crate) const TELLING_MS: i64 = 2_000;

/// The newest differences.
#[derive(Default)]
pub(crate) struct ClockWatch {
    newest: VecDeque<i64>,
}

impl ClockWatch {
    /// Notes a proposal's timestamp and this machine's clock when it came, in milliseconds since
    /// 1970.
    pub(crate) fn heard(&mut self, timestamp_ms: u64, now_ms: u64) {
        let difference = i128::from(now_ms) - i128::from(timestamp_ms);
        let bounded = difference.clamp(i128::from(i64::MIN), i128::from(i64::MAX));
        self.newest
            .push_back(i64::try_from(bounded).unwrap_or_default());
        if self.newest.len() > SAMPLES {
            self.newest.pop_front();
        }
    }

    /// By how many milliseconds this clock is ahead of the others', the network's delay included;
    /// below zero if it is behind. `None` while too little was heard.
    pub(crate) fn ahead_ms(&self) -> Option<i64> {
        if self.newest.len() < ENOUGH {
            return None;
        }
        let mut sorted: Vec<i64> = self.newest.iter().copied().collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_off_shows_and_one_wrong_leader_does_not() {
        let mut watch = ClockWatch::default();
        for number in 0..40_u64 {
            let leader_is_wrong = number % 4 == 3;
            let timestamp = if leader_is_wrong { 0 } else { 1_000_000 };
            watch.heard(timestamp, 1_000_020);
            if number < 15 {
                assert_eq!(watch.ahead_ms(), None);
            }
        }
        assert_eq!(watch.ahead_ms(), Some(20));
        for _ in 0..64 {
            watch.heard(1_000_000, 997_000);
        }
        assert_eq!(watch.ahead_ms(), Some(-3_000));
        watch.heard(u64::MAX, 0);
        watch.heard(0, u64::MAX);
    }
}
