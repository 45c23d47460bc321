//! How the final chain grows here, and what that says about this validator.
//!
//! A validator that receives nothing new cannot tell from its own height whether all is well. It
//! can tell from the time since its newest final block, from its peers' claims, and from its links.
//!
//! So "in sync" rests on what the validator sees, not on the absence of news: the time since its
//! newest final block, the height that f + 1 validators claim, and its links. Status, readiness and
//! the operator's page use this one judgement.

use quorate_api::SyncState;
use quorate_consensus::Timing;
use quorate_types::{Height, View};
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// The chain is stalled after this many times the longest usual time for a block.
const PATIENCE: u32 = 5;

/// A validator that lacks at most this many blocks is in sync: they are in flight at any time.
pub(crate) const USUAL_LAG: u64 = 8;

/// Heights kept to measure the growth, at most one per second.
const SAMPLES: usize = 10;
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// The divisor of a new interval's weight in the usual interval.
const SMOOTHING: u32 = 16;

/// Blocks are slow if they take this many times the longest allowed time...
const SLOW: u32 = 2;

/// ...for so long.
const SLOW_FOR: Duration = Duration::from_secs(15);

/// How long a distance is watched before it is said to grow.
const GROWS_FOR: Duration = Duration::from_secs(5);

/// How the final chain has grown.
pub(crate) struct Progress {
    started: Instant,
    /// The longest time that a block may take by the configuration: a view without one, or the
    /// pause before the next.
    configured: Duration,
    start_height: Height,
    newest: Option<Instant>,
    /// When the newest final block became known.
    view: View,
    /// The mean time between final blocks.
    usual: Duration,
    samples: VecDeque<(Instant, Height)>,
    /// Blocks that the others had and this validator lacked, over time.
    distances: VecDeque<(Instant, u64)>,
    /// Blocks up to this height were final before.
    known: Height,
}

/// The final chain's growth at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Growth {
    pub(crate) since_final: Duration,
    pub(crate) final_since_start: bool,
    pub(crate) start_height: Height,
    pub(crate) views_without_block: u64,
    pub(crate) blocks_per_second: f64,
    /// The mean time between recent blocks, if they come much more slowly than they should.
    pub(crate) slow: Option<Duration>,
    /// The longest that a block takes when nothing is wrong.
    pub(crate) usual: Duration,
    /// The same by the configuration alone.
    pub(crate) configured: Duration,
}

/// What this validator knows of the others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Others {
    /// Whether it and the peers that it has links to are a quorum.
    pub(crate) quorum: bool,
    /// Whether a quorum, itself included, has reported its height.
    pub(crate) heard: bool,
    /// Final blocks that the others have and it lacks.
    pub(crate) blocks_behind: u64,
}

impl Growth {
    /// The time without a final block that is too long.
    pub(crate) fn patience(&self, quorum: bool) -> Duration {
        match quorum {
            true => PATIENCE * self.usual,
            // The reason for the missing blocks is known.
            false => self.usual,
        }
    }

    pub(crate) fn state(&self, others: Others) -> SyncState {
        if self.since_final > self.patience(others.quorum) {
            SyncState::Stalled
        } else if others.blocks_behind > USUAL_LAG {
            SyncState::CatchingUp
        } else if !self.final_since_start && !others.heard {
            SyncState::Starting
        } else if !others.quorum {
            SyncState::NoQuorum
        } else {
            SyncState::InSync
        }
    }
}

impl Progress {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            started: now,
            configured: Timing::default().view_timeout,
            start_height: Height(0),
            newest: None,
            view: View(0),
            usual: Duration::ZERO,
            samples: VecDeque::new(),
            distances: VecDeque::new(),
            known: Height(0),
        }
    }

    /// Continues from the parts that the node ran before in this epoch or the last one, at whose end this height
    /// was final: a chain that stood still does so still.
    pub(crate) fn continue_from(&mut self, before: &Self, height: Height) {
        self.started = before.started;
        self.newest = before.newest;
        self.usual = before.usual;
        self.known = height;
    }

    /// Blocks per second by which the distance to the others shrinks, over the last ten seconds, or
    /// the last one or two if it grew before that; `None` while unknown.
    pub(crate) fn closing(&mut self, now: Instant, behind: u64) -> Option<f64> {
        let due = |(at, _): &(Instant, u64)| now.saturating_duration_since(*at) >= SAMPLE_INTERVAL;
        // A few blocks are in flight at any time.
        if behind <= USUAL_LAG {
            self.distances.clear();
        }
        if self.distances.back().is_none_or(due) {
            self.distances.push_back((now, behind));
            if self.distances.len() > SAMPLES {
                self.distances.pop_front();
            }
        }
        let mut since = self.distances.iter().filter_map(|(at, before)| {
            let seconds = now.saturating_duration_since(*at).as_secs_f64();
            (seconds >= SAMPLE_INTERVAL.as_secs_f64())
                .then(|| (*before as f64 - behind as f64) / seconds)
        });
        let whole = since.next()?;
        // After a start the peers report one after the other, so the distance seems to grow first.
        let latest = since.next_back().unwrap_or(whole);
        let pace = if whole > 0.0 { whole } else { latest };
        let first = self.distances.front().map(|(at, _)| *at);
        let is_new = first.is_some_and(|at| now.saturating_duration_since(at) < GROWS_FOR);
        (pace > 0.0 || !is_new).then_some(pace)
    }

    /// Sets the longest time that a block may take by the configuration, and the database's height.
    pub(crate) fn configure(&mut self, longest: Duration, start_height: Height) {
        self.configured = longest;
        self.start_height = start_height;
    }

    /// Notes a newest final height that has grown, and the one at the start.
    pub(crate) fn grown(&mut self, now: Instant, view: View, height: Height) {
        self.view = view;
        // Blocks that the journal holds beyond the database are not new.
        if self.samples.is_empty() {
            self.samples.push_back((now, height));
            return;
        }
        if height <= self.known {
            return;
        }
        if let Some(last) = self.newest.replace(now) {
            let interval = now.saturating_duration_since(last);
            // A stall must not count as the usual interval, nor in the mean of what comes after it.
            if interval <= PATIENCE * self.usual.max(self.configured) {
                self.usual = self.usual - self.usual / SMOOTHING + interval / SMOOTHING;
            } else {
                self.samples.clear();
            }
        }
        let due =
            |(at, _): &(Instant, Height)| now.saturating_duration_since(*at) >= SAMPLE_INTERVAL;
        if self.samples.back().is_none_or(due) {
            self.samples.push_back((now, height));
            if self.samples.len() > SAMPLES {
                self.samples.pop_front();
            }
        }
    }

    /// The growth now, in this view at this height.
    pub(crate) fn look(&self, now: Instant, view: View, height: Height) -> Growth {
        let since = |at: Instant| now.saturating_duration_since(at);
        let grown = |first: Height| height.0.saturating_sub(first.0) as f64;
        let blocks_per_second = self.samples.front().map_or(0.0, |(at, first)| {
            grown(*first) / since(*at).as_secs_f64().max(1.0)
        });
        // If blocks are more frequent than that, no sample is so old.
        let lately = self
            .samples
            .iter()
            .rev()
            .find(|(at, _)| since(*at) >= SLOW_FOR);
        let interval = lately.and_then(|(at, first)| {
            Duration::try_from_secs_f64(since(*at).as_secs_f64() / grown(*first)).ok()
        });
        Growth {
            since_final: since(self.newest.unwrap_or(self.started)),
            final_since_start: self.newest.is_some(),
            start_height: self.start_height,
            views_without_block: view.0.saturating_sub(self.view.0),
            blocks_per_second,
            slow: interval.filter(|mean| *mean >= SLOW * self.configured),
            usual: self.usual.max(self.configured),
            configured: self.configured,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    const ALL_WELL: Others = Others {
        quorum: true,
        heard: true,
        blocks_behind: 0,
    };

    #[test]
    fn a_validator_is_stalled_after_five_view_timeouts_or_at_once_without_a_quorum() {
        let start = Instant::now();
        let mut progress = Progress::new(start);
        progress.configure(2 * SECOND, Height(0));
        progress.grown(start, View(1), Height(0));
        let look = |after: u32| progress.look(start + after * SECOND, View(7), Height(0));
        assert_eq!(look(1).state(ALL_WELL), SyncState::InSync);
        assert_eq!(look(10).state(ALL_WELL), SyncState::InSync);
        assert_eq!(look(11).state(ALL_WELL), SyncState::Stalled);
        assert_eq!(look(11).views_without_block, 6);
        let alone = Others {
            quorum: false,
            ..ALL_WELL
        };
        assert_eq!(look(2).state(alone), SyncState::NoQuorum);
        assert_eq!(look(3).state(alone), SyncState::Stalled);
        let unheard = Others {
            heard: false,
            ..ALL_WELL
        };
        assert_eq!(look(1).state(unheard), SyncState::Starting);
    }

    #[test]
    fn what_others_have_is_missing_here_and_how_fast_it_comes_is_told() {
        let start = Instant::now();
        let mut progress = Progress::new(start);
        progress.grown(start, View(1), Height(0));
        for second in 1..=20 {
            let at = start + second * SECOND;
            progress.grown(at, View(1), Height(u64::from(second) * 50));
        }
        let growth = progress.look(start + 20 * SECOND, View(1), Height(1_000));
        assert!(
            (49.0..51.0).contains(&growth.blocks_per_second),
            "{growth:?}"
        );
        assert_eq!(growth.start_height, Height(0));
        let behind = |blocks_behind| Others {
            blocks_behind,
            ..ALL_WELL
        };
        assert_eq!(growth.state(behind(USUAL_LAG)), SyncState::InSync);
        assert_eq!(growth.state(behind(USUAL_LAG + 1)), SyncState::CatchingUp);
        // It does not come any more.
        let later = progress.look(start + 40 * SECOND, View(1), Height(1_000));
        assert_eq!(later.state(behind(500)), SyncState::Stalled);
    }

    #[test]
    fn a_slow_chain_is_given_its_time_and_a_stall_does_not_pass_for_usual() {
        let start = Instant::now();
        let mut progress = Progress::new(start);
        progress.configure(2 * SECOND, Height(0));
        let mut now = start;
        for height in 0..200 {
            now += 8 * SECOND;
            progress.grown(now, View(height), Height(height));
        }
        let usual = progress.look(now, View(0), Height(199)).usual;
        assert!((7 * SECOND..=8 * SECOND).contains(&usual), "{usual:?}");
        now += 3_600 * SECOND;
        progress.grown(now, View(200), Height(200));
        assert_eq!(progress.look(now, View(0), Height(200)).usual, usual);
        let patient = progress.look(now + 30 * SECOND, View(0), Height(200));
        assert_eq!(patient.state(ALL_WELL), SyncState::InSync);
    }

    #[test]
    fn blocks_are_slow_while_they_take_twice_as_long_as_one_may() {
        let start = Instant::now();
        let mut progress = Progress::new(start);
        progress.configure(2 * SECOND, Height(0));
        let (mut now, mut height) = (start, 0);
        let mut blocks = |progress: &mut Progress, count: u64, interval: Duration| {
            for _ in 0..count {
                now += interval;
                height += 1;
                progress.grown(now, View(height), Height(height));
            }
            progress.look(now, View(height), Height(height)).slow
        };
        assert_eq!(blocks(&mut progress, 2_000, SECOND / 100), None);
        assert_eq!(
            blocks(&mut progress, 2, 6 * SECOND),
            None,
            "not for long yet"
        );
        assert_eq!(blocks(&mut progress, 3, 6 * SECOND), Some(6 * SECOND));
        assert_eq!(blocks(&mut progress, 2_000, SECOND / 100), None, "over");
        assert_eq!(blocks(&mut progress, 1, 60 * SECOND), None);
        assert_eq!(blocks(&mut progress, 16, SECOND), None, "a halt is over");
    }

    #[test]
    fn a_stall_goes_on_where_a_node_takes_another_part() {
        let start = Instant::now();
        let mut before = Progress::new(start);
        before.grown(start, View(1), Height(7));
        before.grown(start + SECOND, View(2), Height(8));
        let again = start + 20 * SECOND;
        let mut after = Progress::new(again);
        after.grown(again, View(1), Height(7));
        after.continue_from(&before, Height(8));
        // A block that was final before is no news.
        after.grown(again, View(1), Height(8));
        let growth = after.look(again, View(1), Height(8));
        assert_eq!(growth.since_final, 19 * SECOND);
        assert!(growth.final_since_start);
        assert_eq!(growth.state(ALL_WELL), SyncState::Stalled);
        after.grown(again + SECOND, View(1), Height(9));
        let growth = after.look(again + SECOND, View(1), Height(9));
        assert_eq!(growth.state(ALL_WELL), SyncState::InSync);
    }

    #[test]
    fn a_distance_that_seemed_to_grow_at_first_shrinks_once_it_does() {
        let start = Instant::now();
        let mut progress = Progress::new(start);
        // Of the others one is heard after the other.
        assert_eq!(progress.closing(start, 20_000), None);
        let mut closing = |seconds: u32, behind| progress.closing(start + seconds * SECOND, behind);
        assert_eq!(closing(1, 99_000), None);
        assert!(closing(2, 80_000).expect("known") > 15_000.0);
        assert!(closing(3, 61_000).expect("known") > 15_000.0);
        assert!(closing(4, 10_000).expect("known") > 1_000.0);
        assert!(closing(20, 30_000).expect("known") < 0.0);
    }
}
