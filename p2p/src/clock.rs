//! Two clocks: one that never jumps, for quotas and timers; and the wall clock, for handshakes.
//!
//! The library takes both from one `SystemTime`. If the wall clock were set back by an hour, every
//! quota and every dialling deadline would be frozen for that hour, and the node would drop its own
//! votes. Handshakes carry timestamps that the peer compares with its own clock, so they need the
//! wall clock, including corrections.

use commonware_runtime::Clock;
use governor::clock::{Clock as GovernorClock, ReasonablyRealtime};
use rand::{
    CryptoRng,
    rand_core::{TryCryptoRng, TryRng},
};
use std::{
    convert::Infallible,
    sync::LazyLock,
    time::{Duration, Instant, SystemTime},
};

/// The wall clock's time at the first call, advanced by the monotonic clock.
pub(crate) fn steady_now() -> SystemTime {
    static START: LazyLock<(SystemTime, Instant)> =
        LazyLock::new(|| (SystemTime::now(), Instant::now()));
    START.0 + START.1.elapsed()
}

/// A context whose clock is the wall clock.
pub(crate) struct WallClock<C>(pub(crate) C);

impl<C: Clock> Clock for WallClock<C> {
    fn current(&self) -> SystemTime {
        SystemTime::now()
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send + 'static + use<C> {
        self.0.sleep(duration)
    }

    fn sleep_until(
        &self,
        deadline: SystemTime,
    ) -> impl Future<Output = ()> + Send + 'static + use<C> {
        let left = deadline.duration_since(SystemTime::now());
        self.0.sleep(left.unwrap_or_default())
    }
}

impl<C: Clock> GovernorClock for WallClock<C> {
    type Instant = SystemTime;

    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}

impl<C: Clock> ReasonablyRealtime for WallClock<C> {}

impl<C: CryptoRng> TryRng for WallClock<C> {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        self.0.try_next_u32()
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        self.0.try_next_u64()
    }

    fn try_fill_bytes(&mut self, destination: &mut [u8]) -> Result<(), Infallible> {
        self.0.try_fill_bytes(destination)
    }
}

impl<C: CryptoRng> TryCryptoRng for WallClock<C> {}
