//! A validator's clocks: virtual time, with skew and drift of its own.

use quorate_consensus::Moment;
use quorate_machine::clock::Clock;
use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// What the world's clock shows at its start, in milliseconds since 1970.
pub(crate) const START_MS: u64 = 1_700_000_000_000;

/// How far drift takes a wall clock: it is set right from time to time, as by NTP. Without a bound, two clocks of a
/// long run differ by more than a block's timestamp may be ahead, and whose is ahead is one more faulty leader.
const MAX_WALL_DRIFT_MS: i64 = 400;

/// How a validator's clocks go wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockFault {
    /// By how much the clock on the wall is ahead, in milliseconds.
    pub ahead_ms: i64,
    /// By how many millionths both clocks run fast.
    pub drift_ppm: i64,
    /// How late timers fire at most.
    pub late: Duration,
}

/// The clocks. The world sets the time before a part of the validator runs; what the part does
/// takes time, which passes for it alone.
pub(crate) struct SimClock {
    fault: ClockFault,
    world: AtomicU64,
    worked: AtomicU64,
}

impl SimClock {
    pub(crate) fn new(fault: ClockFault) -> Self {
        Self {
            fault,
            world: AtomicU64::new(0),
            worked: AtomicU64::new(0),
        }
    }

    /// A part begins to run.
    pub(crate) fn set(&self, world: Moment) {
        self.world.store(world.0, Relaxed);
        self.worked.store(0, Relaxed);
    }

    /// The part works for this long.
    pub(crate) fn work(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.worked.fetch_add(micros, Relaxed);
    }

    /// The world's time, what the part has worked included.
    pub(crate) fn world(&self) -> Moment {
        Moment(self.world.load(Relaxed) + self.worked.load(Relaxed))
    }

    /// How far ahead the validator's time is of the world's, at a time of the world.
    fn gained(&self, world: u64) -> i64 {
        let gained = i128::from(world) * i128::from(self.fault.drift_ppm) / 1_000_000;
        i64::try_from(gained).unwrap_or(0)
    }

    /// When in the world it is this late for the validator.
    pub(crate) fn world_at(&self, own: Moment) -> Moment {
        let scale = 1_000_000 + i128::from(self.fault.drift_ppm);
        let world = (i128::from(own.0) * 1_000_000).div_euclid(scale.max(1));
        // One more, so that it is not before.
        Moment(u64::try_from(world).unwrap_or(u64::MAX).saturating_add(1))
    }
}

impl Clock for SimClock {
    fn now(&self) -> Moment {
        let world = self.world().0;
        Moment(world.saturating_add_signed(self.gained(world)))
    }

    fn wall_ms(&self) -> u64 {
        let world = self.world().0;
        let drift = (self.gained(world) / 1_000).clamp(-MAX_WALL_DRIFT_MS, MAX_WALL_DRIFT_MS);
        let ahead = self.fault.ahead_ms + drift;
        (START_MS + world / 1_000).saturating_add_signed(ahead)
    }
}
