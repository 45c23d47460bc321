//! How far state sync is, for people.

use quorate_consensus::Moment;
use quorate_types::Height;
use std::time::Duration;

/// Over how long the rate is measured.
const RATE_WINDOW: Duration = Duration::from_secs(5);

/// After how long without a part or the block the progress says so.
pub(super) const EXPLAINED_AFTER: Duration = Duration::from_secs(3);

/// What state sync is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Asking peers for snapshots.
    Searching,
    /// Fetching the state.
    Fetching,
    /// Fetching the block that the state belongs to.
    Completing,
    Done,
}

impl Stage {
    /// The stage's name, as in the status.
    pub fn name(self) -> &'static str {
        match self {
            Self::Searching => "searching",
            Self::Fetching => "fetching",
            Self::Completing => "completing",
            Self::Done => "done",
        }
    }
}

/// What is missing for state sync to begin or go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// No peer is linked.
    Links,
    /// No linked peer has a snapshot.
    Snapshots,
}

/// How far state sync is.
#[derive(Clone, Debug)]
pub struct Progress {
    pub stage: Stage,
    /// The block whose state is fetched.
    pub target: Option<Height>,
    /// How much of the state is right at the target's height: 0 to 1.
    pub share: f64,
    /// How much was, when the target was chosen.
    begun_at: f64,
    /// Bytes of the parts that have come, duplicates included.
    pub bytes: u64,
    /// Parts that were verified and written.
    pub parts: u64,
    /// Accounts in them.
    pub entries: u64,
    /// Peers that deliver parts of it.
    pub peers: usize,
    /// Peers that were caught with something invalid.
    pub blamed: u64,
    /// Why nothing is being fetched.
    pub waits_for: Option<String>,
    /// What an operator may have to provide.
    pub lacks: Option<Lack>,
    pub started: Moment,
    chosen: Moment,
    now: Moment,
    /// Bytes and time at the start of the window in which the rate is measured.
    window: (u64, Moment),
    rate: f64,
}

impl Progress {
    pub(crate) fn new(now: Moment) -> Self {
        Self {
            stage: Stage::Searching,
            target: None,
            share: 0.0,
            begun_at: 0.0,
            bytes: 0,
            parts: 0,
            entries: 0,
            peers: 0,
            blamed: 0,
            waits_for: None,
            lacks: None,
            started: now,
            chosen: now,
            now,
            window: (0, now),
            rate: 0.0,
        }
    }

    /// Bytes a second, over the last seconds.
    pub fn bytes_per_second(&self) -> f64 {
        let (bytes, since) = self.window;
        let passed = self.now.since(since).as_secs_f64();
        match self.rate {
            // Before the first window is over.
            0.0 if passed > 0.2 => (self.bytes - bytes) as f64 / passed,
            rate => rate,
        }
    }

    /// How long it will still take at this pace.
    pub fn left(&self) -> Option<Duration> {
        let passed = self.now.since(self.chosen).as_secs_f64();
        let gained = self.share - self.begun_at;
        let left = (self.stage == Stage::Fetching && gained > 0.001)
            .then(|| passed * (1.0 - self.share) / gained)?;
        Duration::try_from_secs_f64(left).ok()
    }

    pub(super) fn waiting(&mut self, what: String) {
        self.stage = Stage::Searching;
        self.waits_for = Some(what);
    }

    pub(super) fn fetching(&mut self, now: Moment, target: Height, share: f64, is_whole: bool) {
        self.now = now;
        if self.target != Some(target) {
            self.target = Some(target);
            self.begun_at = share;
            self.chosen = now;
            // Nothing came while there was no target.
            self.window = (self.bytes, now);
        }
        self.share = share;
        self.waits_for = None;
        self.stage = match is_whole {
            true => Stage::Completing,
            false => Stage::Fetching,
        };
        self.measure(now);
    }

    /// Says so if nothing has come for a while: a line about the progress tells something new, or why not.
    pub(super) fn explain(&mut self, silence: Duration) {
        if silence >= EXPLAINED_AFTER && self.waits_for.is_none() {
            let what = match self.stage {
                Stage::Completing => "the block",
                _ => "a part of the state",
            };
            self.waits_for = Some(format!("{what}, for {} s now", silence.as_secs()));
        }
    }

    fn measure(&mut self, now: Moment) {
        let (bytes, since) = self.window;
        let passed = now.since(since);
        if passed >= RATE_WINDOW / 5 {
            let rate = (self.bytes - bytes) as f64 / passed.as_secs_f64();
            self.rate = match self.rate {
                0.0 => rate,
                before => before * 0.7 + rate * 0.3,
            };
            self.window = (self.bytes, now);
        }
    }

    pub(super) fn received(&mut self, now: Moment, bytes: u64) {
        self.bytes += bytes;
        self.measure(now);
    }

    pub(super) fn verified(&mut self, entries: usize) {
        self.parts += 1;
        self.entries += entries as u64;
    }

    pub(super) fn done(&mut self) {
        self.stage = Stage::Done;
        self.share = 1.0;
        self.waits_for = None;
    }
}
