//! The properties of one direction between two endpoints.

use std::time::Duration;

/// The longest delay, and the most jitter: more than on any path on earth, and far from overflows.
pub const MAX_DELAY: Duration = Duration::from_secs(10);

/// The highest fraction of lost segments. Beyond it TCP carries almost nothing.
pub const MAX_LOSS: f64 = 0.5;

/// The lowest bandwidth: a segment takes less than two seconds.
pub const MIN_BITS_PER_SECOND: u64 = 8_000;

/// The smallest window, which is Linux's initial one.
pub const MIN_WINDOW_BYTES: usize = 64 << 10;

/// The largest window, which is the most that Linux buffers for sending by default (the maximum of
/// `net.ipv4.tcp_wmem`).
pub const MAX_WINDOW_BYTES: usize = 4 << 20;

/// The largest window that can be set: enough for 10 Gbit/s over 200 ms.
pub const MAX_SET_WINDOW_BYTES: usize = 256 << 20;

/// The payload of a TCP packet on an Ethernet path.
pub(crate) const SEGMENT_BYTES: usize = 1_460;

/// The properties of one direction between two endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Link {
    /// The one-way delay.
    pub delay: Duration,
    /// The maximal additional delay, uniformly random for each piece.
    pub jitter: Duration,
    /// The bandwidth shared by all connections in this direction; `None` for unlimited.
    pub bits_per_second: Option<u64>,
    /// The fraction of segments that are lost; each loss pauses its connection. From 0 to
    /// [`MAX_LOSS`].
    pub loss: f64,
    /// Whether connections use slow start, as TCP does.
    pub slow_start: bool,
    /// The bytes that one connection may have in flight, from [`MIN_WINDOW_BYTES`] to
    /// [`MAX_SET_WINDOW_BYTES`]. `None` for what Linux would allow by default; see [`Link::window`].
    pub window_bytes: Option<usize>,
}

/// Why a link is invalid.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum LinkError {
    /// A time is too long.
    #[error("a {what} of {value:?} is more than {MAX_DELAY:?}")]
    Time {
        /// Delay or jitter.
        what: &'static str,
        value: Duration,
    },
    /// The bandwidth is too low.
    #[error("{0} bits per second are fewer than {MIN_BITS_PER_SECOND}")]
    Bandwidth(u64),
    /// The window is out of range.
    #[error("a window of {0} bytes is not between {MIN_WINDOW_BYTES} and {MAX_SET_WINDOW_BYTES}")]
    Window(usize),
    /// The loss is out of range.
    #[error("a loss of {0} is not between 0 and {MAX_LOSS}")]
    Loss(f64),
}

impl Link {
    /// A link that has only a delay.
    pub fn with_delay(delay: Duration) -> Self {
        Self {
            delay,
            ..Self::default()
        }
    }

    /// Checks that all values are in range.
    ///
    /// # Errors
    ///
    /// Names the first that is not.
    pub fn check(&self) -> Result<(), LinkError> {
        for (what, value) in [("delay", self.delay), ("jitter", self.jitter)] {
            if value > MAX_DELAY {
                return Err(LinkError::Time { what, value });
            }
        }
        check_bandwidth(self.bits_per_second)?;
        if let Some(bytes) = self.window_bytes
            && !(MIN_WINDOW_BYTES..=MAX_SET_WINDOW_BYTES).contains(&bytes)
        {
            return Err(LinkError::Window(bytes));
        }
        // Written so that it rejects NaN.
        if !(0.0..=MAX_LOSS).contains(&self.loss) {
            return Err(LinkError::Loss(self.loss));
        }
        Ok(())
    }

    /// The bytes that one connection may have in flight, when acknowledgements return over `back`.
    ///
    /// Twice the product of bandwidth and round trip: once on the path, and as much in the queue
    /// before it, the classic size of a router's buffer. Never less than [`MIN_WINDOW_BYTES`],
    /// never more than [`MAX_WINDOW_BYTES`]. [`Link::window_bytes`] replaces it.
    pub fn window(&self, back: &Self) -> usize {
        if let Some(bytes) = self.window_bytes {
            return bytes;
        }
        let Some(bits) = self.bits_per_second else {
            return MAX_WINDOW_BYTES;
        };
        let trip = self.delay + self.jitter + back.delay + back.jitter;
        let bytes = u128::from(bits) * trip.as_nanos() * 2 / 8 / 1_000_000_000;
        usize::try_from(bytes)
            .unwrap_or(usize::MAX)
            .clamp(MIN_WINDOW_BYTES, MAX_WINDOW_BYTES)
    }

    /// The throughput that one connection can reach, in bits per second: the line's, or a window
    /// per round trip. `None` if neither limits it.
    pub fn reachable_bits_per_second(&self, back: &Self) -> Option<u64> {
        let trip = (self.delay + self.jitter / 2 + back.delay + back.jitter / 2).as_nanos();
        let window = self.window(back) as u128 * 8 * 1_000_000_000;
        let by_window = window
            .checked_div(trip)
            .map(|bits| u64::try_from(bits).unwrap_or(u64::MAX));
        match (by_window, self.bits_per_second) {
            (Some(window), Some(line)) => Some(window.min(line)),
            (window, line) => window.or(line),
        }
    }
}

/// Checks the range of a bandwidth.
pub(crate) fn check_bandwidth(bits_per_second: Option<u64>) -> Result<(), LinkError> {
    match bits_per_second {
        Some(bits) if bits < MIN_BITS_PER_SECOND => Err(LinkError::Bandwidth(bits)),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_window_follows_the_bandwidth_between_its_bounds() {
        let mut link = Link::with_delay(Duration::from_millis(50));
        assert_eq!(link.window(&link), MAX_WINDOW_BYTES);
        link.bits_per_second = Some(100_000_000);
        assert_eq!(link.window(&link), 2_500_000);
        assert_eq!(link.reachable_bits_per_second(&link), Some(100_000_000));
        link.bits_per_second = Some(1_000_000);
        assert_eq!(link.window(&link), MIN_WINDOW_BYTES);
        link.bits_per_second = Some(10_000_000_000);
        assert_eq!(link.window(&link), MAX_WINDOW_BYTES);
        // A window of 4 MiB each 100 ms.
        assert_eq!(link.reachable_bits_per_second(&link), Some(335_544_320));
        link.window_bytes = Some(50_000_000);
        assert_eq!(link.window(&link), 50_000_000);
        assert_eq!(link.reachable_bits_per_second(&link), Some(4_000_000_000));
    }

    #[test]
    fn values_outside_their_ranges_are_named() {
        let late = Link::with_delay(MAX_DELAY + Duration::from_nanos(1));
        assert!(late.check().unwrap_err().to_string().contains("delay"));
        let wide = Link {
            window_bytes: Some(1 << 30),
            ..Link::default()
        };
        assert_eq!(wide.check(), Err(LinkError::Window(1 << 30)));
        for loss in [-0.1, 0.6, f64::NAN, f64::INFINITY] {
            let link = Link {
                loss,
                ..Link::default()
            };
            assert!(matches!(link.check(), Err(LinkError::Loss(_))), "{loss}");
        }
        let narrow = Link {
            bits_per_second: Some(0),
            ..Link::default()
        };
        assert_eq!(narrow.check(), Err(LinkError::Bandwidth(0)));
        assert_eq!(Link::default().check(), Ok(()));
    }
}
