//! Following validators: range by range, each verified before anything of it is kept.
//!
//! One upstream is followed at a time. It is left for another one
//! - at once, if what it says does not verify; it is not asked again for [`LIAR_RESTS`];
//! - if it does not answer, for [`FAILURE_RESTS`];
//! - if it brings nothing new for [`STALL`], or another one, which is probed every
//!   [`PROBE_EVERY`], has at least [`LEAD`] blocks more.
//!
//! While a range is verified and written, the next one is on its way.

use crate::{
    answers,
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
use tokio::task::JoinHandle;
use tracing::{debug, warn};

/// Blocks that are asked for at a time; validators give no more.
const RANGE_BLOCKS: u64 = 100;

/// How long a validator may wait for the next block before it answers that there is none.
const WAIT: Duration = Duration::from_secs(2);

/// How long an upstream may bring nothing new while there are others.
const STALL: Duration = Duration::from_secs(3);

/// How often another upstream is asked whether it has more.
const PROBE_EVERY: Duration = Duration::from_secs(3);

/// So many blocks more make another upstream the better one.
const LEAD: usize = 8;

/// So many blocks beyond those that came make these a backlog, whose pace says nothing.
const BACKLOG_BLOCKS: u64 = 50;

/// A pause when there are new blocks, but none that can be verified yet.
const PAUSE: Duration = Duration::from_millis(20);

/// How long an upstream is left alone that did not answer, and one that lied.
const FAILURE_RESTS: Duration = Duration::from_secs(1);
const LIAR_RESTS: Duration = Duration::from_secs(60);

/// Follows the upstreams and fills the index.
pub(crate) struct Follower {
    guard: Arc<Guard>,
    index: Index,
    hub: Arc<Hub>,
    sources: Vec<Source>,
    current: usize,
    last_progress: Instant,
    next_probe: Instant,
    ahead: Option<Ahead>,
}

struct Source {
    upstream: Upstream,
    state: SourceState,
    claimed: Option<Height>,
    error: Option<String>,
    rests_until: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SourceState {
    Following,
    Standby,
    Failing,
    Lagging,
    Lying,
}

/// A range that was asked for while the one before it is worked on.
struct Ahead {
    source: usize,
    from: Height,
    task: JoinHandle<Result<Chain, UpstreamError>>,
}

/// What a request led to.
enum Step {
    /// So many blocks were taken in.
    Progress(usize),
    /// Nothing new can be verified.
    Nothing,
    /// The upstream gave no usable answer.
    Refused(UpstreamError),
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
    /// A follower of these upstreams, of which there is at least one.
    pub(crate) fn new(
        guard: Arc<Guard>,
        index: Index,
        hub: Arc<Hub>,
        upstreams: Vec<Upstream>,
    ) -> Self {
        let source = |upstream| Source {
            upstream,
            state: SourceState::Standby,
            claimed: None,
            error: None,
            rests_until: None,
        };
        let now = Instant::now();
        Self {
            guard,
            index,
            hub,
            sources: upstreams.into_iter().map(source).collect(),
            current: 0,
            last_progress: now,
            next_probe: now + PROBE_EVERY,
            ahead: None,
        }
    }

    /// Follows for ever.
    ///
    /// # Errors
    ///
    /// If the index fails. Upstreams that fail are no error.
    pub(crate) async fn run(mut self) -> Result<Infallible, IndexError> {
        loop {
            let Some(from) = self.next_height().await else {
                self.show();
                tokio::time::sleep(FAILURE_RESTS).await;
                continue;
            };
            if self.sources[self.current].rests(Instant::now()) {
                self.move_on().await;
                continue;
            }
            let step = self.ask(self.current, from, WAIT).await?;
            self.judge(self.current, &step);
            self.show();
            let idle = matches!(step, Step::Nothing);
            let refused = matches!(step, Step::Refused(_));
            let stalled = self.last_progress.elapsed() >= STALL;
            if refused || stalled {
                if stalled && !refused && self.sources.len() > 1 {
                    self.sources[self.current].state = SourceState::Lagging;
                }
                self.move_on().await;
            } else if Instant::now() >= self.next_probe {
                self.probe().await?;
            }
            if idle {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// The height to ask for. With an empty index, the lowest that any upstream keeps; `None` if
    /// none of them answers.
    async fn next_height(&mut self) -> Option<Height> {
        if let Some(extent) = self.index.extent() {
            return Some(extent.tip.height.next());
        }
        let now = Instant::now();
        let mut lowest = None;
        for place in 0..self.sources.len() {
            if self.sources[place].rests(now) {
                continue;
            }
            match self.sources[place].upstream.status().await {
                Ok(status) => {
                    let first = status.first_height.max(Height(1));
                    if lowest.is_none_or(|(height, _)| first < height) {
                        lowest = Some((first, place));
                    }
                }
                Err(error) => self.judge(place, &Step::Refused(error)),
            }
        }
        let (height, place) = lowest?;
        self.current = place;
        Some(height)
    }

    /// Asks a source for a range, verifies it and takes it in.
    async fn ask(
        &mut self,
        source: usize,
        from: Height,
        wait: Duration,
    ) -> Result<Step, IndexError> {
        let ahead = self.ahead.take();
        let answer = match ahead {
            Some(ahead) if ahead.source == source && ahead.from == from => {
                let failed = |_| UpstreamError::Failed("the request was given up".to_owned());
                ahead.task.await.map_err(failed).and_then(|answer| answer)
            }
            other => {
                if let Some(other) = other {
                    other.task.abort();
                }
                let upstream = &self.sources[source].upstream;
                upstream.chain(from, RANGE_BLOCKS, wait).await
            }
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return Ok(Step::Refused(error)),
        };
        let claimed = answer.executed_height;
        self.sources[source].claimed = Some(claimed);
        let count = answer.blocks.len();
        let next = Height(from.0.saturating_add(count as u64));
        if count > 0 && next <= claimed {
            self.fetch_ahead(source, next);
        }
        let (guard, index) = (self.guard.clone(), self.index.clone());
        let blocks = match blocking(move || take_in(&guard, &index, &answer, from)).await? {
            Ok(blocks) if blocks.is_empty() => {
                if source == self.current {
                    self.hub.set_claimed(claimed, true);
                }
                return Ok(Step::Nothing);
            }
            Ok(blocks) => blocks,
            Err(error) => {
                if let Some(ahead) = self.ahead.take() {
                    ahead.task.abort();
                }
                return Ok(Step::Refused(error));
            }
        };
        self.last_progress = Instant::now();
        let backlog = claimed.0.saturating_sub(next.0) >= BACKLOG_BLOCKS;
        self.hub.set_claimed(claimed, !backlog);
        self.hub.finalized(&blocks, backlog);
        self.publish(&blocks)?;
        Ok(Step::Progress(blocks.len()))
    }

    fn fetch_ahead(&mut self, source: usize, from: Height) {
        let upstream = self.sources[source].upstream.clone();
        let task = tokio::spawn(async move { upstream.chain(from, RANGE_BLOCKS, WAIT).await });
        self.ahead = Some(Ahead { source, from, task });
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

    /// Notes what an upstream's answer says of it.
    fn judge(&mut self, place: usize, step: &Step) {
        let current = place == self.current;
        let source = &mut self.sources[place];
        let url = source.upstream.url();
        match step {
            Step::Progress(_) | Step::Nothing => {
                if current && source.state != SourceState::Following {
                    debug!(url, "following this validator");
                    source.state = SourceState::Following;
                    source.error = None;
                }
            }
            Step::Refused(error) => {
                let lied = matches!(error, UpstreamError::Lied(_));
                let (state, rests) = if lied {
                    (SourceState::Lying, LIAR_RESTS)
                } else {
                    (SourceState::Failing, FAILURE_RESTS)
                };
                if source.state != state {
                    warn!(url, %error, lied, "this validator gives no usable answer");
                }
                source.state = state;
                source.error = Some(error.to_string());
                source.rests_until = Some(Instant::now() + rests);
            }
        }
    }

    /// Goes on to the next upstream that does not rest; waits if all do.
    async fn move_on(&mut self) {
        self.last_progress = Instant::now();
        let count = self.sources.len();
        let now = Instant::now();
        let next = (1..=count)
            .map(|step| (self.current + step) % count)
            .find(|place| !self.sources[*place].rests(now));
        match next {
            Some(place) => self.current = place,
            // All rest: the one that has to rest least.
            None => {
                let first = (0..count).min_by_key(|place| self.sources[*place].rests_until);
                let first = first.expect("there is an upstream");
                let until = self.sources[first].rests_until.unwrap_or(now);
                tokio::time::sleep_until((until.min(now + FAILURE_RESTS)).into()).await;
                if until <= Instant::now() {
                    self.current = first;
                } else {
                    self.show();
                }
            }
        }
    }

    /// Asks another upstream whether it has more, and goes over to it if it does.
    async fn probe(&mut self) -> Result<(), IndexError> {
        self.next_probe = Instant::now() + PROBE_EVERY;
        let count = self.sources.len();
        let now = Instant::now();
        let other = (1..count)
            .map(|step| (self.current + step) % count)
            .filter(|place| !self.sources[*place].rests(now))
            .min_by_key(|place| self.sources[*place].claimed.map_or(0, |height| height.0));
        let (Some(other), Some(extent)) = (other, self.index.extent()) else {
            return Ok(());
        };
        let step = self
            .ask(other, extent.tip.height.next(), Duration::ZERO)
            .await?;
        let better = matches!(step, Step::Progress(blocks) if blocks >= LEAD);
        if better {
            self.sources[self.current].state = SourceState::Lagging;
            self.current = other;
        } else if !matches!(step, Step::Refused(_)) {
            self.sources[other].state = SourceState::Standby;
            self.sources[other].error = None;
        }
        self.judge(other, &step);
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

impl Source {
    fn rests(&self, now: Instant) -> bool {
        self.rests_until.is_some_and(|until| now < until)
    }
}

/// Verifies a range and writes it. The outer error is the index's.
fn take_in(
    guard: &Guard,
    index: &Index,
    answer: &Chain,
    from: Height,
) -> Result<Result<Vec<FinalBlock>, UpstreamError>, IndexError> {
    let parent = index.extent().map(|extent| extent.tip);
    let blocks = match guard.blocks(answer, from, parent.as_ref(), rand::random()) {
        Ok(blocks) => blocks,
        Err(error) => return Ok(Err(error)),
    };
    let verifier = guard.verifier();
    index.append(verifier.committee(), &blocks, |certificate| {
        verifier.signers(certificate)
    })?;
    Ok(Ok(blocks))
}
