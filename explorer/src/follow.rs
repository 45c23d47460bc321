//! Following validators: range by range, each verified before any of it is stored.
//!
//! One upstream is followed: the next blocks are always on request from it, and while one range is
//! verified and written, the next is already requested. The others are probed in the background, so
//! that one that hangs delays nothing. An upstream's claims count only as far as it delivers:
//!
//! - an upstream whose answer fails verification is abandoned at once, and not asked again for
//!   [`INVALID_BACKOFF`];
//! - one that does not answer is retried after [`FAILURE_BACKOFF`];
//! - the followed one is replaced by another one that delivers [`LEAD`] blocks more; or by any that
//!   delivers, if the followed one has delivered nothing for [`STALL`];
//! - no upstream is abandoned if there is nothing new anywhere: an idle chain is not its
//!   validators' fault.
//!
//! History begins as far back as any upstream delivers verified blocks ([`crate::begin`]). If the
//! next block is pruned everywhere, history starts anew after the gap.

use crate::{
    answers,
    begin::{self, Beginning},
    hub::{Event, Hub, Topic},
    index::{Index, IndexError},
    shapes::{Number, UpstreamStatus},
    task::blocking,
    upstream::{Chain, Upstream, UpstreamError},
    verify::{FinalBlock, Guard},
};
use quorate_types::Height;
use std::{
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

/// Number of blocks per request; validators return no more.
pub(crate) const RANGE_BLOCKS: u64 = 100;

/// An incomplete range smaller than this holds all that can be verified: validators cut a range
/// short only after some MiB.
const SHORT_RANGE_BYTES: usize = 1 << 20;

/// How long a validator may wait for the next block before it answers that there is none.
const WAIT: Duration = Duration::from_secs(2);

/// After the followed upstream has delivered nothing for this long, any other one that delivers is
/// preferred.
const STALL: Duration = Duration::from_secs(3);

/// How often the other upstreams are probed for more blocks; the second value applies while nothing
/// is new.
const PROBE_EVERY: Duration = Duration::from_secs(3);
const PROBE_EVERY_IN_SILENCE: Duration = Duration::from_secs(1);

/// Number of additional blocks that make another upstream preferable.
const LEAD: usize = 8;

/// If the claimed height exceeds a full range by this many blocks, the range is a backlog, whose
/// pace says nothing about the chain.
const BACKLOG_BLOCKS: u64 = 50;

/// Pause after an answer without new blocks.
const PAUSE: Duration = Duration::from_millis(20);

/// How long an upstream is not asked after it did not answer, and after it lied.
const FAILURE_BACKOFF: Duration = Duration::from_secs(1);
const INVALID_BACKOFF: Duration = Duration::from_secs(60);

/// If no upstream delivers the next block for this long and one of them says that it is pruned,
/// history starts anew after it.
const PRUNED_PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Follower {
    guard: Arc<Guard>,
    index: Index,
    hub: Arc<Hub>,
    sources: Vec<Source>,
    current: usize,
    requests: JoinSet<Answered>,
    last_progress: Instant,
}

struct Source {
    upstream: Upstream,
    state: SourceState,
    claimed: Option<Height>,
    error: Option<String>,
    /// Time of the next request.
    next: Instant,
    /// Not asked before this time, because it gave no usable answer.
    rests_until: Option<Instant>,
    /// Whether a request is in flight.
    asked: bool,
    /// When it last delivered blocks that verified.
    delivered: Instant,
    /// It said that the block after this height is pruned.
    pruned_after: Option<Height>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SourceState {
    Following,
    Standby,
    Failing,
    Lagging,
    Lying,
}

impl Source {
    fn rests(&self, now: Instant) -> bool {
        self.rests_until.is_some_and(|until| now < until)
    }
}

/// A source's answer to a request for blocks from a height on.
struct Answered {
    source: usize,
    from: Height,
    result: Result<Chain, UpstreamError>,
}

impl SourceState {
    fn name(self) -> &'static str {
        match self {
            Self::Following => "following",
            Self::Standby => "standby",
            Self::Failing => "failing",
            Self::Lagging => "lagging",
            Self::Lying => "lying",
        }
    }
}

impl Follower {
    /// A follower of these upstreams; there must be at least one.
    pub(crate) fn new(
        guard: Arc<Guard>,
        index: Index,
        hub: Arc<Hub>,
        upstreams: Vec<Upstream>,
    ) -> Self {
        let now = Instant::now();
        let source = |upstream| Source {
            upstream,
            state: SourceState::Standby,
            claimed: None,
            error: None,
            next: now,
            rests_until: None,
            asked: false,
            delivered: now,
            pruned_after: None,
        };
        Self {
            guard,
            index,
            hub,
            sources: upstreams.into_iter().map(source).collect(),
            current: 0,
            requests: JoinSet::new(),
            last_progress: now,
        }
    }

    /// Follows forever.
    ///
    /// # Errors
    ///
    /// If the index fails. Failing upstreams are not an error.
    pub(crate) async fn run(mut self) -> Result<Infallible, IndexError> {
        loop {
            let tip = self.index.extent().map(|extent| extent.tip.height);
            let Some(tip) = tip.filter(|tip| !self.is_pruned_after(*tip)) else {
                self.begin(tip).await?;
                continue;
            };
            self.choose();
            self.request(tip);
            self.show();
            let wake = self.next_wake().into();
            tokio::select! {
                Some(answered) = self.requests.join_next() => match answered {
                    Ok(answered) => self.take(answered).await?,
                    Err(failed) => std::panic::resume_unwind(failed.into_panic()),
                },
                () = tokio::time::sleep_until(wake) => {}
            }
        }
    }

    /// Starts history, or starts it anew after a range that is pruned everywhere.
    async fn begin(&mut self, after: Option<Height>) -> Result<(), IndexError> {
        self.show();
        let now = Instant::now();
        let mut upstreams = Vec::new();
        for (place, source) in self.sources.iter().enumerate() {
            if !source.rests(now) {
                upstreams.push((place, source.upstream.clone()));
            }
        }
        let (found, refused) = begin::begin(&self.guard, upstreams, after).await;
        for (place, error) in refused {
            self.refuse(place, &error);
        }
        let Some(Beginning {
            source,
            blocks,
            claimed,
        }) = found
        else {
            if after.is_none() {
                // A chain without blocks: the explorer is not behind.
                self.hub.set_claimed(Height(0), true);
            }
            self.show();
            tokio::time::sleep(FAILURE_BACKOFF).await;
            return Ok(());
        };
        let first = blocks
            .first()
            .map_or(Height(0), |block| block.block.height());
        match after {
            Some(tip) => warn!(
                missing_from = %tip.next(), missing_to = first.0 - 1,
                "no validator keeps the next blocks any more: history goes on after a hole"
            ),
            None => info!(height = %first, "history begins"),
        }
        self.write(&blocks).await?;
        self.current = source;
        self.delivered(source, claimed, true, &blocks)
    }

    /// If the followed upstream gave no usable answer, switches to one that may be asked.
    fn choose(&mut self) {
        let now = Instant::now();
        if !self.sources[self.current].rests(now) {
            return;
        }
        let others = (0..self.sources.len()).filter(|place| !self.sources[*place].rests(now));
        if let Some(best) = others.max_by_key(|place| self.sources[*place].delivered) {
            self.current = best;
            self.sources[best].next = now;
        }
    }

    /// Sends all requests that are due.
    fn request(&mut self, tip: Height) {
        let now = Instant::now();
        for place in 0..self.sources.len() {
            let source = &self.sources[place];
            if source.asked || source.next > now || source.rests(now) {
                continue;
            }
            let wait = if place == self.current {
                WAIT
            } else {
                self.sources[place].next = now + self.probe_every();
                Duration::ZERO
            };
            self.ask(place, tip.next(), wait);
        }
    }

    fn ask(&mut self, source: usize, from: Height, wait: Duration) {
        self.sources[source].asked = true;
        let upstream = self.sources[source].upstream.clone();
        self.requests.spawn(async move {
            let result = upstream.chain(from, RANGE_BLOCKS, wait).await;
            Answered {
                source,
                from,
                result,
            }
        });
    }

    fn probe_every(&self) -> Duration {
        if self.last_progress.elapsed() < PROBE_EVERY_IN_SILENCE {
            PROBE_EVERY
        } else {
            PROBE_EVERY_IN_SILENCE
        }
    }

    fn next_wake(&self) -> Instant {
        let idle = self.sources.iter().filter(|source| !source.asked);
        let next = idle.map(|source| source.next.max(source.rests_until.unwrap_or(source.next)));
        next.min().unwrap_or_else(|| Instant::now() + PROBE_EVERY)
    }

    /// Processes a source's answer.
    async fn take(&mut self, answered: Answered) -> Result<(), IndexError> {
        let Answered {
            source,
            from,
            result,
        } = answered;
        self.sources[source].asked = false;
        let mut answer = match result {
            Ok(answer) => answer,
            Err(error) => {
                self.refuse(source, &error);
                return Ok(());
            }
        };
        let Some(extent) = self.index.extent() else {
            return Ok(());
        };
        let tip = extent.tip.height;
        let expected = tip.next();
        if from > expected {
            // This was requested on the assumption that the previous range verifies, and it did
            // not.
            return Ok(());
        }
        let claimed = answer.executed_height;
        self.sources[source].claimed = Some(claimed);
        // Another source may have delivered some of them first.
        let known = usize::try_from(expected.0 - from.0).unwrap_or(usize::MAX);
        answer.blocks.drain(..known.min(answer.blocks.len()));
        if answer.blocks.is_empty() {
            self.nothing_new(source, tip);
            return Ok(());
        }
        let count = answer.blocks.len() as u64;
        let bytes: usize = answer
            .blocks
            .iter()
            .map(|block| block.block.len() / 2)
            .sum();
        let is_all = count < RANGE_BLOCKS && bytes < SHORT_RANGE_BYTES;
        if source == self.current {
            self.ask(source, Height(expected.0.saturating_add(count)), WAIT);
        }
        let answer = Arc::new(answer);
        let verify = || {
            let (guard, answer) = (self.guard.clone(), answer.clone());
            blocking(move || {
                let tip = Some(&extent.tip);
                Ok::<_, IndexError>(guard.blocks(&answer, expected, tip, rand::random()))
            })
        };
        let mut verified = verify().await?;
        // The validators may have changed.
        if verified.is_err() && self.guard.learn(&self.sources[source].upstream).await {
            verified = verify().await?;
        }
        if let Ok(blocks) = &verified
            && let Some(last) = blocks.last()
        {
            let epoch = last.block.header().epoch;
            let upstream = &self.sources[source].upstream;
            if let Err(error) = self.guard.keep_up(epoch, upstream).await {
                verified = Err(error);
            }
        }
        match verified {
            Ok(blocks) => {
                self.write(&blocks).await?;
                self.delivered(source, claimed, is_all, &blocks)
            }
            Err(error) => {
                self.refuse(source, &error);
                Ok(())
            }
        }
    }

    async fn write(&self, blocks: &[FinalBlock]) -> Result<(), IndexError> {
        let (guard, index) = (self.guard.clone(), self.index.clone());
        let blocks = blocks.to_vec();
        blocking(move || {
            let verifier = guard.verifier();
            index.append(verifier.committees(), &blocks, |certificate| {
                verifier.signers(certificate)
            })
        })
        .await
    }

    /// A source has delivered blocks that are now in the index. `is_all` tells whether it had no
    /// more.
    fn delivered(
        &mut self,
        place: usize,
        claimed: Height,
        is_all: bool,
        blocks: &[FinalBlock],
    ) -> Result<(), IndexError> {
        let now = Instant::now();
        let last = blocks
            .last()
            .map_or(Height(0), |block| block.block.height());
        let followed = &self.sources[self.current];
        let is_better =
            place != self.current && (blocks.len() >= LEAD || now - followed.delivered >= STALL);
        if is_better {
            let followed = &mut self.sources[self.current];
            if followed.state == SourceState::Following {
                followed.state = SourceState::Lagging;
            }
            self.current = place;
        }
        let source = &mut self.sources[place];
        source.delivered = now;
        source.error = None;
        source.pruned_after = None;
        if is_better {
            source.next = now;
        }
        self.last_progress = now;
        self.stand(place);
        // A claim beyond a full range is plausible; beyond a short range it is not.
        let claimed = if is_all { last } else { claimed.max(last) };
        let backlog = claimed.0 - last.0 >= BACKLOG_BLOCKS;
        self.hub.set_claimed(claimed, !backlog);
        self.hub.finalized(blocks, backlog);
        self.publish(blocks)
    }

    /// A source has nothing beyond the index, which ends at `tip`.
    fn nothing_new(&mut self, place: usize, tip: Height) {
        let source = &mut self.sources[place];
        source.error = None;
        source.pruned_after = None;
        if place == self.current {
            source.next = Instant::now() + PAUSE;
            self.hub.set_claimed(tip, true);
            self.stand(place);
        } else if source
            .claimed
            .is_some_and(|claimed| claimed.0.saturating_add(LEAD as u64) <= tip.0)
        {
            source.state = SourceState::Lagging;
        } else {
            self.stand(place);
        }
    }

    fn stand(&mut self, place: usize) {
        let source = &mut self.sources[place];
        let state = if place == self.current {
            SourceState::Following
        } else {
            SourceState::Standby
        };
        if state == SourceState::Following && source.state != state {
            debug!(url = source.upstream.url(), "following this validator");
        }
        source.state = state;
    }

    /// Records that an upstream gave no usable answer.
    fn refuse(&mut self, place: usize, error: &UpstreamError) {
        let tip = self.index.extent().map(|extent| extent.tip.height);
        let source = &mut self.sources[place];
        let url = source.upstream.url();
        let lied = matches!(error, UpstreamError::Invalid(_));
        let (state, rests) = if lied {
            (SourceState::Lying, INVALID_BACKOFF)
        } else {
            (SourceState::Failing, FAILURE_BACKOFF)
        };
        if source.state != state {
            warn!(url, %error, lied, "this validator gives no usable answer");
        }
        source.pruned_after = tip.filter(|_| matches!(error, UpstreamError::Pruned(_)));
        source.state = state;
        source.error = Some(error.to_string());
        source.rests_until = Some(Instant::now() + rests);
    }

    /// Whether no upstream delivers the block after the tip and one says that it is pruned.
    fn is_pruned_after(&self, tip: Height) -> bool {
        self.last_progress.elapsed() >= PRUNED_PATIENCE
            && self
                .sources
                .iter()
                .any(|source| source.pruned_after == Some(tip))
    }

    fn publish(&self, blocks: &[FinalBlock]) -> Result<(), IndexError> {
        if !self.hub.has_listeners() {
            return Ok(());
        }
        for item in blocks {
            let height = item.block.height();
            if let Some(text) = answers::finalized_event(&self.index, &self.guard, height)? {
                self.hub
                    .publish(Event::new(Topic::Finalized, Some(height), text));
            }
        }
        Ok(())
    }

    fn show(&self) {
        let status = |source: &Source| UpstreamStatus {
            url: source.upstream.url().to_owned(),
            state: source.state.name().to_owned(),
            height: source.claimed.map(|height| Number(height.0)),
            error: source.error.clone(),
        };
        self.hub
            .set_upstreams(self.sources.iter().map(status).collect());
    }
}
