//! How long things took lately, and how long to wait for them.

use std::time::Duration;

/// The shortest timeout for an answer or a proposal, unless a shorter one is configured: a loaded machine pauses as long.
pub(crate) const MIN_PATIENCE: Duration = Duration::from_millis(50);

/// The fraction of the difference to a newer, shorter time by which a remembered time shrinks.
const DECAY: u32 = 8;

/// The recent maximum of a duration, which shorter ones lower slowly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Peak(Duration);

impl Peak {
    /// The longest lately.
    pub(crate) fn note(&mut self, took: Duration) {
        self.0 = if took >= self.0 {
            took
        } else {
            self.0 - (self.0 - took) / DECAY
        };
    }

    pub(crate) fn longest(self) -> Duration {
        self.0
    }
}

/// The longest but so many; the longest of all, if there are no more than that.
pub(crate) fn longest_but(many: usize, peaks: impl Iterator<Item = Peak>) -> Option<Duration> {
    let mut longest = Vec::with_capacity(peaks.size_hint().1.unwrap_or_default());
    longest.extend(peaks.map(Peak::longest));
    longest.sort_unstable_by(|a, b| b.cmp(a));
    longest.get(many).or(longest.first()).copied()
}

/// The shortest time to wait for something that may take as long as configured.
pub(crate) fn least(configured: Duration) -> Duration {
    MIN_PATIENCE.min(configured)
}
