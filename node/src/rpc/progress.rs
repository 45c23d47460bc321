//! How the final chain grows here, and what that says of this validator.
//!
//! A validator that hears of nothing new cannot tell from its own height whether all is well. It can
//! tell from the time since its newest final block, from what its peers claim, and from its links.

use quorate_consensus::Timing;
use quorate_load::api::SyncState;
use quorate_types::{Height, View};
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// It is stalled after so many times the longest that a block usually takes.
const PATIENCE: u32 = 5;

/// So many blocks are on their way in any second: a validator that has all but these is in sync.
pub(crate) const USUAL_LAG: u64 = 8;

/// Heights that are kept to measure the growth, at most one a second.
const SAMPLES: usize = 10;
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// The weight of a new interval in the usual one, as a divisor.
const SMOOTHING: u32 = 16;

/// How the final chain has grown.
pub(crate) struct Progress {
    started: Instant,
    /// The longest that a block may take by the configuration: a view without one, or the pause
    /// before the next.
    configured: Duration,
    start_height: Height,
    newest: Option<Instant>,
    /// Where the newest final block was learned.
    view: View,
    /// The mean time between final blocks.
    usual: Duration,
    samples: VecDeque<(Instant, Height)>,
    /// How many blocks the others had and this one had not.
    distances: VecDeque<(Instant, u64)>,
}

/// What the final chain's growth looks like at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Growth {
    pub(crate) since_final: Duration,
    pub(crate) final_since_start: bool,
    pub(crate) start_height: Height,
    pub(crate) views_without_block: u64,
    pub(crate) blocks_per_second: f64,
    /// The longest that a block takes when nothing is wrong.
    pub(crate) usual: Duration,
}

/// What this validator knows of the others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Others {
    /// Whether it and those whom it is linked to are a quorum.
    pub(crate) quorum: bool,
    /// Whether as many have told where they are.
    pub(crate) heard: bool,
    /// Final blocks that they have and it has not.
    pub(crate) blocks_behind: u64,
}

impl Growth {
    /// How long without a final block is too long.
    pub(crate) fn patience(&self, quorum: bool) -> Duration {
        match quorum {
            true => PATIENCE * self.usual,
            // It is known why nothing comes.
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
    /// Nothing has happened yet.
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
        }
    }

    /// By how many blocks a second the distance to the others shrinks, over the last ten seconds.
    pub(crate) fn closing(&mut self, now: Instant, behind: u64) -> f64 {
        let due = |(at, _): &(Instant, u64)| now.saturating_duration_since(*at) >= SAMPLE_INTERVAL;
        // A few blocks are on their way at any time, and say nothing.
        if behind <= USUAL_LAG {
            self.distances.clear();
        }
        if self.distances.back().is_none_or(due) {
            self.distances.push_back((now, behind));
            if self.distances.len() > SAMPLES {
                self.distances.pop_front();
            }
        }
        self.distances.front().map_or(0.0, |(at, before)| {
            let seconds = now.saturating_duration_since(*at).as_secs_f64();
            match seconds >= SAMPLE_INTERVAL.as_secs_f64() {
                true => (*before as f64 - behind as f64) / seconds,
                false => 0.0,
            }
        })
    }

    /// Sets the longest that a block may take by the configuration, and the height of the database.
    pub(crate) fn configure(&mut self, longest: Duration, start_height: Height) {
        self.configured = longest;
        self.start_height = start_height;
    }

    /// Notes the newest final height when it has grown, and at the start.
    pub(crate) fn grown(&mut self, now: Instant, view: View, height: Height) {
        self.view = view;
        // What the journal holds beyond the database is not new.
        if self.samples.is_empty() {
            self.samples.push_back((now, height));
            return;
        }
        if let Some(last) = self.newest.replace(now) {
            let interval = now.saturating_duration_since(last);
            // What was a stall must not pass for usual.
            if interval <= PATIENCE * self.usual.max(self.configured) {
                self.usual = self.usual - self.usual / SMOOTHING + interval / SMOOTHING;
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

    /// How it looks now, in this view at this height.
    pub(crate) fn look(&self, now: Instant, view: View, height: Height) -> Growth {
        let since = |at: Instant| now.saturating_duration_since(at);
        let blocks_per_second = self.samples.front().map_or(0.0, |(at, first)| {
            let seconds = since(*at).as_secs_f64();
            height.0.saturating_sub(first.0) as f64 / seconds.max(1.0)
        });
        Growth {
            since_final: since(self.newest.unwrap_or(self.started)),
            final_since_start: self.newest.is_some(),
            start_height: self.start_height,
            views_without_block: view.0.saturating_sub(self.view.0),
            blocks_per_second,
            usual: self.usual.max(self.configured),
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
}
