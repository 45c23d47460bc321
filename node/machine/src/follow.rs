//! Following the chain without a vote: fetching final blocks as they come, verifying them, and handing
//! them to the executor.
//!
//! One of the upstream nodes is asked for the blocks above the newest one here, and answers as soon as
//! there are any (`Message::FollowRequest`). So a block costs one upstream node one copy, and reaches
//! the follower one way after it was executed there. An answer is taken only if its blocks continue
//! the chain and a quorum has finalized the last of them: which upstream node it comes from does not
//! matter.
//!
//! # Hostile and slow upstream nodes
//!
//! - Blocks that do not verify are not executed. Their sender's link is cut, and others are asked.
//! - Upstream nodes say once a second how far they are. If one says that it has blocks that the asked
//!   one has not sent for a second, it is asked as well, and the first answer counts. If no other node is linked, the
//!   same one is asked again. Each further attempt waits twice as long, and on slow links all wait longer, so that these
//!   are not filled with answers to the same request.
//! - Who was asked in vain is asked last, and its word counts less than that of those who deliver. So
//!   a node that exaggerates how far it is delays blocks by a second, once. What is known of the upstream nodes outlives
//!   a border at which the validators change ([`KnownUpstreams`]).
//! - An upstream node that has not said how far it is may not answer, and one that follows itself may wait for this node's
//!   answer. They are asked after the others, and given up 0.25 s after another one says that it has the next block. A
//!   validator that was away for many epochs knows the validators of its last one, and all of them may follow by now. What
//!   those without a seat say of the network's height counts only where no validator is heard.
//! - A request that is not answered while nobody says that it has the next block is sent again after 0.25 s, then 0.5, up to
//!   30: an upstream node that has just left the validators says no longer how far it is, and one that did not know this
//!   node yet has dropped it.
//! - A block in another's place that a quorum has finalized is a fork of the chain: more than f
//!   validators are faulty, or this database is another chain's. The node stops.

#[cfg(test)]
mod tests;

use crate::{
    clock::Clock,
    directory::{Directory, PeerIndex},
    executor::ExecutorHandle,
    live::{
        Condition, LiveStatus,
        following::{Upstream, network_height},
    },
    metrics::NodeMetrics,
    outlet::{Wire, send_to},
    replica::{Cut, Cutter},
    sync::VerifyCertificate,
};
use anyhow::{bail, ensure};
use bytes::Bytes;
use commonware_codec::{Encode, EncodeSize};
use parking_lot::Mutex;
use quorate_consensus::{Finalized, Moment};
use quorate_lanes::{Lane, To};
use quorate_storage::store::Store;
use quorate_types::{
    Block, Certificate, ChainId, Committees, Digest, Epoch, EpochLength, Frame, Head, Height,
    Identity, Message, Status, View,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tracing::{debug, warn};

/// How long an upstream node may have blocks that the asked one does not send.
const LAGS_AFTER: Duration = Duration::from_secs(1);

/// The same for an asked node that follows itself, or has never said how far it is. Each time that it is asked again it gets
/// twice as long.
const DOUBTED_LAGS_AFTER: Duration = Duration::from_millis(250);

/// How long a request stays unanswered, while nobody says that it has the block, before it is sent again.
const REPEAT_AFTER: Duration = Duration::from_millis(250);

/// The longest that it stays unanswered.
const REPEAT_AT_LATEST: Duration = Duration::from_secs(30);

/// So often it goes to the same node, where it replaces the one that waits for the next block. After that it goes to the next
/// node, if there is one.
const REPEATS_TO_THE_SAME: u32 = 2;

/// How often a node is asked that lacks the next block.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// How often the time doubles after which another node is asked.
const MAX_DOUBLINGS: u32 = 5;

/// How long a node that sent something invalid is not asked.
const BAN_LASTS: Duration = Duration::from_secs(60);

/// How often those who follow this node are told how far it is.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// How often [`Follower::tick`] is due, and how often while what it has is not executed: who has to finalize the next block may
/// depend on that.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
const EXECUTION_LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// Blocks handed to the executor, and not executed, at which no more are requested.
const MAX_UNEXECUTED: u64 = 1_024;

/// Most blocks, and bytes of them, that wait for a finalization.
const MAX_STAGED_BLOCKS: usize = 4_096;
const MAX_STAGED_BYTES: usize = 64 << 20;

/// How long the state is found to be gone before it is fetched.
const GONE_FOR: Duration = Duration::from_secs(2);

/// What following needs.
pub struct FollowParts {
    pub chain: ChainId,
    pub epoch_length: EpochLength,
    /// The nodes that are followed.
    pub upstreams: Directory,
    pub committees: Committees,
    pub known: KnownUpstreams,
    /// How many validators may be faulty.
    pub faults: usize,
    /// More missing blocks than this are not fetched if the state can be.
    pub most_missing: Option<u64>,
    pub store: Store,
    pub clock: Arc<dyn Clock>,
    pub wire: Wire,
    pub cut: Cutter,
    pub verify: VerifyCertificate,
    pub executor: ExecutorHandle,
    pub live: Arc<LiveStatus>,
    pub metrics: Arc<NodeMetrics>,
}

/// What a process knows of the nodes that it follows. The parts that come next go on with it.
#[derive(Clone, Default)]
pub struct KnownUpstreams(Arc<Mutex<BTreeMap<Identity, Known>>>);

#[derive(Clone, Copy, Default)]
struct Known {
    claimed: Option<Height>,
    banned_until: Option<Moment>,
    failures: u32,
}

/// One of the nodes that are followed.
struct Source {
    /// Whether it validates in this epoch, if the validators can change. Who has left or not come yet
    /// follows as well, and may follow this node.
    acts: bool,
    linked: bool,
    claimed: Option<Height>,
    /// The oldest block that it says it keeps.
    oldest: Option<Height>,
    banned_until: Option<Moment>,
    /// How often it was asked in vain, halved with each answer.
    failures: u32,
    /// The height from which on it was asked, until it answers.
    asked: Option<Height>,
    /// When it was asked so first, and last.
    asked_first: Moment,
    asked_at: Moment,
    /// How often it was asked so in vain.
    in_vain: u32,
}

/// The request that was sent last.
#[derive(Clone, Copy, Debug)]
struct Asked {
    source: PeerIndex,
    at: Moment,
}

/// The newest final block that was handed to the executor.
#[derive(Clone, Copy, Debug)]
struct Tip {
    height: Height,
    id: Digest,
    epoch: Epoch,
    view: View,
}

/// A follower. Driven by frames, links and time.
pub struct Follower {
    parts: FollowParts,
    sources: Vec<Source>,
    tip: Tip,
    /// Blocks above the tip that wait for a finalization.
    staged: Vec<Arc<Block>>,
    staged_bytes: usize,
    /// Who sent them.
    staged_by: Option<PeerIndex>,
    asked: Option<Asked>,
    /// Since when nodes say that they have the next block, and how often one was asked for it in vain.
    lags_since: Option<Moment>,
    in_vain: u32,
    /// How often the request for the next block was sent again.
    repeats: u32,
    /// How long blocks lately took to come that somebody had.
    usual: Duration,
    /// When nodes may be asked that lack the next block.
    next_retry: Moment,
    gone_since: Option<Moment>,
    next_status: Moment,
}

impl Follower {
    /// A follower that continues from the store's newest block.
    pub fn new(parts: FollowParts) -> Self {
        let now = parts.clock.now();
        let tip = parts.store.tip();
        let acts = |place| {
            let identity = parts.upstreams.identity(PeerIndex(place));
            let committees = &parts.committees;
            !committees.can_change()
                || identity.is_some_and(|one| committees.known().place(&one).is_some())
        };
        let known = parts.known.0.lock().clone();
        let source = |place| {
            let identity = parts.upstreams.identity(PeerIndex(place));
            let known = identity.and_then(|one| known.get(&one)).copied();
            let known = known.unwrap_or_default();
            Source {
                acts: acts(place),
                linked: false,
                claimed: None,
                oldest: None,
                banned_until: known.banned_until,
                failures: known.failures,
                asked: None,
                asked_first: now,
                asked_at: now,
                in_vain: 0,
            }
        };
        let follower = Self {
            sources: (0..parts.upstreams.size()).map(source).collect(),
            tip: Tip {
                height: tip.height,
                id: tip.id,
                epoch: parts.epoch_length.epoch_of(tip.height),
                view: tip.view,
            },
            staged: Vec::new(),
            staged_bytes: 0,
            staged_by: None,
            asked: None,
            lags_since: None,
            in_vain: 0,
            repeats: 0,
            usual: Duration::ZERO,
            next_retry: now,
            gone_since: None,
            next_status: now,
            parts,
        };
        follower.publish();
        follower
    }

    /// When [`Self::tick`] is due.
    pub fn due(&self) -> Moment {
        let pause = match self.asked.is_none() && self.executed() < self.tip.height {
            true => EXECUTION_LOOK_INTERVAL,
            false => LOOK_INTERVAL,
        };
        self.parts.clock.now().after(pause)
    }

    /// Whether frames with messages of this kind are read at all. To a validator that only follows, the
    /// others send their status with their votes.
    pub fn wants(head: &Head) -> bool {
        matches!(
            head,
            Head::RangeReply { .. }
                | Head::Pruned { .. }
                | Head::Status
                | Head::Vote
                | Head::Certificate
                | Head::Apart
        )
    }

    /// Whether the state of a recent block has to be fetched: no linked node keeps the next block, or
    /// too many blocks are missing.
    pub fn wants_state(&self) -> bool {
        let now = self.parts.clock.now();
        self.gone_since
            .is_some_and(|since| now >= since.after(GONE_FOR))
    }

    /// Upon a link that was made or lost. The links that there are when it begins come one by one: who is asked first
    /// depends on all, and is decided by [`Self::tick`].
    pub fn linked(&mut self, peer: Identity, up: bool) {
        let Some(source) = self.parts.upstreams.find(&peer) else {
            return;
        };
        let before = self.parts.known.0.lock().get(&peer).copied();
        let held = &mut self.sources[source.as_usize()];
        // The link may be older than these parts.
        held.claimed = before.and_then(|known| known.claimed).filter(|_| up);
        held.linked = up;
        if !up {
            held.oldest = None;
            held.asked = None;
            self.asked = self.asked.filter(|asked| asked.source != source);
        } else if held.claimed.is_some() {
            // One that may not answer was asked while no other was linked.
            let tells = |asked: &Asked| self.sources[asked.source.as_usize()].claimed.is_some();
            self.asked = self.asked.filter(tells);
        }
        self.note_known(source);
        self.publish();
    }

    /// Keeps what is known of a node for the parts that come next.
    fn note_known(&self, source: PeerIndex) {
        let Some(identity) = self.parts.upstreams.identity(source) else {
            return;
        };
        let held = &self.sources[source.as_usize()];
        let known = Known {
            claimed: held.claimed,
            banned_until: held.banned_until,
            failures: held.failures,
        };
        self.parts.known.0.lock().insert(identity, known);
    }

    /// Upon a frame.
    ///
    /// # Errors
    ///
    /// If a quorum has finalized another chain than the one here: halt.
    pub fn receive(&mut self, from: Identity, bytes: Bytes) -> anyhow::Result<()> {
        let Some(source) = self.parts.upstreams.find(&from) else {
            return Ok(());
        };
        let now = self.parts.clock.now();
        if self.sources[source.as_usize()].is_banned(now) {
            return Ok(());
        }
        let judge = |head: Head| Self::wants(&head).then_some(()).ok_or(());
        let Ok(messages) = Frame::read_judged(bytes, judge) else {
            return Ok(());
        };
        for message in messages {
            match message {
                Message::Status(status) => {
                    self.sources[source.as_usize()].claimed = Some(status.executed_height);
                    self.note_known(source);
                }
                Message::RangeReply {
                    blocks,
                    finalization,
                } => self.on_range(source, blocks, finalization)?,
                Message::Pruned { from, oldest } => self.on_pruned(source, from, oldest),
                _ => {}
            }
        }
        self.look();
        Ok(())
    }

    /// Does what is due.
    pub fn tick(&mut self) {
        let now = self.parts.clock.now();
        if now >= self.next_status {
            self.next_status = now.after(STATUS_INTERVAL);
            self.tell();
            self.report();
        }
        self.look();
    }

    fn executed(&self) -> Height {
        self.parts.executor.executed().borrow().height
    }

    fn next(&self) -> Height {
        let staged = self.staged.last().map(|block| block.height());
        staged.unwrap_or(self.tip.height).next()
    }

    /// Asks another node if the asked one lags behind, and any if none is asked.
    fn look(&mut self) {
        let now = self.parts.clock.now();
        if let Some(asked) = self.asked {
            self.note_lag(asked.source, now);
            let in_vain = match self.lags_since {
                Some(since) => self.give_up_if_late(asked, since, now),
                None => self.repeat_if_due(asked, now),
            };
            // Whoever has waited longest since it was asked is next, which may be the same.
            self.asked = self.asked.filter(|_| !in_vain);
        }
        self.note_gone(now);
        self.ask();
        self.publish();
    }

    /// Notes that the asked node has not sent in time what somebody has. Returns whether the next node is to be asked.
    fn give_up_if_late(&mut self, asked: Asked, since: Moment, now: Moment) -> bool {
        let source = &self.sources[asked.source.as_usize()];
        let is_doubted = !source.acts || source.claimed.is_none();
        let patience = match is_doubted {
            true => {
                let first = DOUBTED_LAGS_AFTER.max(2 * self.usual);
                first * 2_u32.pow(source.in_vain.min(MAX_DOUBLINGS))
            }
            false => self.patience(),
        };
        if now < since.max(asked.at).after(patience) {
            return false;
        }
        let source = &mut self.sources[asked.source.as_usize()];
        source.failures = source.failures.saturating_add(1);
        source.in_vain = source.in_vain.saturating_add(1);
        self.in_vain = self.in_vain.saturating_add(u32::from(!is_doubted));
        self.note_known(asked.source);
        debug!(
            upstream = asked.source.as_usize(),
            "blocks that it should have do not come"
        );
        true
    }

    /// Sends a request again that nobody may be able to answer yet. Returns whether the next node is to be asked.
    fn repeat_if_due(&mut self, asked: Asked, now: Moment) -> bool {
        if now < asked.at.after(self.repeat_after()) {
            return false;
        }
        self.repeats = self.repeats.saturating_add(1);
        let to_the_same = self.repeats <= REPEATS_TO_THE_SAME;
        if to_the_same {
            self.request(asked.source, now);
        }
        !to_the_same
    }

    /// How long the next blocks may take once somebody has them.
    fn patience(&self) -> Duration {
        let usual = LAGS_AFTER.max(2 * self.usual);
        usual * 2_u32.pow(self.in_vain.min(MAX_DOUBLINGS))
    }

    fn repeat_after(&self) -> Duration {
        let first = REPEAT_AFTER.max(2 * self.usual);
        REPEAT_AT_LATEST.min(first * 2_u32.pow(self.repeats.min(2 * MAX_DOUBLINGS)))
    }

    fn note_lag(&mut self, asked: PeerIndex, now: Moment) {
        let worst = self.sources[asked.as_usize()].failures;
        self.lags_since = match self.claims_next(worst, now) {
            true => self.lags_since.or(Some(now)),
            false => None,
        };
    }

    /// Whether a node that was asked in vain at most so often says that it has the next block.
    fn claims_next(&self, failures: u32, now: Moment) -> bool {
        let next = self.next();
        self.sources.iter().any(|source| {
            source.linked
                && !source.is_banned(now)
                && source.failures <= failures
                && source.oldest.is_none()
                && source.claimed >= Some(next)
        })
    }

    fn unstage(&mut self) {
        self.staged.clear();
        self.staged_bytes = 0;
        self.staged_by = None;
    }

    fn note_gone(&mut self, now: Moment) {
        let linked = || self.sources.iter().filter(|source| source.linked);
        let nobody_keeps = linked().count() > 0 && linked().all(|source| source.oldest.is_some());
        let missing = self.network_height().0.saturating_sub(self.tip.height.0);
        let is_far = self.parts.most_missing.is_some_and(|most| missing > most);
        self.gone_since = match (nobody_keeps || is_far, self.gone_since) {
            (false, _) => None,
            (true, None) => Some(now),
            (true, since) => since,
        };
    }

    fn network_height(&self) -> Height {
        let claimed = network_height(&self.shown(), self.parts.faults);
        claimed.unwrap_or(self.tip.height).max(self.tip.height)
    }

    /// Asks for the next blocks, unless somebody is asked or the executor is behind.
    fn ask(&mut self) {
        let unexecuted = self.tip.height.0.saturating_sub(self.executed().0);
        if self.asked.is_some() || unexecuted > MAX_UNEXECUTED {
            return;
        }
        let now = self.parts.clock.now();
        let next = self.next();
        if !self.knows_validators(next) {
            return;
        }
        let usable = self.sources.iter().enumerate();
        let usable = usable.filter(|(_, source)| source.linked && !source.is_banned(now));
        let best = usable.min_by_key(|(place, source)| {
            // Nodes that lack the block are asked last: they may have said so wrongly.
            let lacks = source.oldest.map(|_| source.asked_at);
            let asked = (source.asked == Some(next)).then_some(source.asked_at);
            let untold = source.claimed.is_none();
            (lacks, asked, source.failures, untold, !source.acts, *place)
        });
        let Some((place, source)) = best else {
            return;
        };
        if source.oldest.is_some() {
            if now < self.next_retry {
                return;
            }
            self.next_retry = now.after(RETRY_INTERVAL);
        }
        let source = PeerIndex(place);
        // What was staged may be the invention of the one who sent it.
        if self.staged_by.is_some_and(|by| by != source) {
            self.unstage();
        }
        self.request(source, now);
    }

    fn request(&mut self, source: PeerIndex, now: Moment) {
        let from = self.next();
        self.asked = Some(Asked { source, at: now });
        let asked = &mut self.sources[source.as_usize()];
        if asked.asked.replace(from) != Some(from) {
            asked.asked_first = now;
            asked.in_vain = 0;
        }
        asked.asked_at = now;
        if let Some(identity) = self.parts.upstreams.identity(source) {
            send_to(&self.parts.wire, identity, Message::FollowRequest(from));
        }
    }

    /// Whether it is known who has to finalize the block of a height.
    fn knows_validators(&self, height: Height) -> bool {
        let epoch = self.parts.epoch_length.epoch_of(height);
        !self.parts.committees.can_change() || self.parts.committees.set(epoch).is_some()
    }

    fn on_pruned(&mut self, source: PeerIndex, from: Height, oldest: Height) {
        if oldest > from && self.is_answer(source, from) {
            self.sources[source.as_usize()].oldest = Some(oldest);
        }
    }

    /// Whether this answers the node's last request, which is then settled, and is still of use.
    fn is_answer(&mut self, source: PeerIndex, from: Height) -> bool {
        let asked = &mut self.sources[source.as_usize()].asked;
        if *asked != Some(from) {
            return false;
        }
        *asked = None;
        if self.asked.is_some_and(|asked| asked.source == source) {
            self.asked = None;
        }
        from == self.next() && self.staged_by.is_none_or(|by| by == source)
    }

    fn on_range(
        &mut self,
        source: PeerIndex,
        blocks: Vec<Arc<Block>>,
        finalization: Option<Certificate>,
    ) -> anyhow::Result<()> {
        let Some(first) = blocks.first().map(|block| block.height()) else {
            return Ok(());
        };
        if !self.is_answer(source, first) {
            return Ok(());
        }
        if let Err(why) = self.stage(source, blocks) {
            self.unstage();
            self.blame(source, &why);
            return Ok(());
        }
        let now = self.parts.clock.now();
        let asked = self.sources[source.as_usize()].asked_first;
        let took = self
            .lags_since
            .map_or(Duration::ZERO, |since| now.since(since.max(asked)));
        self.usual = took.max(self.usual * 3 / 4);
        self.lags_since = None;
        self.in_vain = 0;
        self.repeats = 0;
        let Some(finalization) = finalization else {
            if self.staged.len() > MAX_STAGED_BLOCKS || self.staged_bytes > MAX_STAGED_BYTES {
                self.unstage();
                self.blame(source, "too many blocks without a finalization");
            }
            return Ok(());
        };
        if !self.finalizes(&finalization) {
            self.unstage();
            self.blame(source, "blocks that no quorum has finalized");
            return Ok(());
        }
        let held = &mut self.sources[source.as_usize()];
        held.failures /= 2;
        held.oldest = None;
        self.note_known(source);
        self.hand_over(finalization)
    }

    /// Adds blocks to those that wait for a finalization.
    fn stage(&mut self, source: PeerIndex, blocks: Vec<Arc<Block>>) -> Result<(), String> {
        self.staged_by = Some(source);
        for block in blocks {
            let header = *block.header();
            let expected = self.next();
            let last = self
                .staged
                .last()
                .map(|last| (last.id(), last.header().epoch));
            if header.chain != self.parts.chain {
                return Err("a block of another chain".to_owned());
            }
            if header.height != expected
                || last.is_some_and(|(id, _)| header.parent != id)
                || last.is_some_and(|(_, epoch)| header.epoch != epoch)
                || header.epoch != self.parts.epoch_length.epoch_of(header.height)
            {
                return Err(format!("a block in the place of block {expected}"));
            }
            self.staged_bytes += block.encode_size();
            self.staged.push(block);
        }
        Ok(())
    }

    /// Whether a quorum has finalized the last staged block.
    fn finalizes(&self, finalization: &Certificate) -> bool {
        let last = self.staged.last();
        last.is_some_and(|last| finalization.finalizes(last.header()))
            && (self.parts.verify)(finalization)
    }

    fn hand_over(&mut self, finalization: Certificate) -> anyhow::Result<()> {
        let blocks = std::mem::take(&mut self.staged);
        self.unstage();
        let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else {
            bail!("nothing is staged");
        };
        ensure!(
            first.header().parent == self.tip.id,
            "a quorum has finalized a chain without block {} of height {}, which is final here: more \
             than {} validators are faulty, or this database is another chain's",
            self.tip.id,
            self.tip.height,
            self.parts.faults
        );
        self.tip = Tip {
            height: last.height(),
            id: last.id(),
            epoch: last.header().epoch,
            view: finalization.subject.view,
        };
        let newest = blocks.len() - 1;
        let finalized = blocks.into_iter().enumerate();
        let finalized = finalized.map(|(place, block)| Finalized {
            block,
            certificate: (place == newest).then(|| finalization.clone()),
        });
        self.parts.executor.submit(finalized.collect());
        let Tip {
            epoch,
            view,
            height,
            ..
        } = self.tip;
        self.parts.live.set_progress(epoch, view, height);
        Ok(())
    }

    fn blame(&mut self, source: PeerIndex, why: &str) {
        let Some(identity) = self.parts.upstreams.identity(source) else {
            return;
        };
        warn!(
            upstream = identity.short(),
            why, "an upstream node is faulty; its link is cut for a while"
        );
        let now = self.parts.clock.now();
        let held = &mut self.sources[source.as_usize()];
        held.banned_until = Some(now.after(BAN_LASTS));
        held.claimed = None;
        self.note_known(source);
        (self.parts.cut)(identity, Cut::Off);
    }

    /// Tells those who follow this node how far it is. Where validators come and leave, all that it follows may, and whoever has
    /// a seat finds out sooner that there is nothing newer.
    fn tell(&self) {
        let status = Status {
            epoch: self.tip.epoch,
            view: self.tip.view,
            finalized_height: self.tip.height,
            executed_height: self.executed(),
            convicted: Digest::ZERO,
        };
        let frame = Frame(vec![Message::Status(status)]).encode();
        (self.parts.wire)(Lane::Votes, &To::Followers, frame.clone());
        if !self.parts.committees.can_change() {
            return;
        }
        let upstreams = self.sources.iter().zip(self.parts.upstreams.identities());
        let linked = upstreams.filter(|(source, _)| source.linked);
        let to = To::Some(linked.map(|(_, identity)| *identity).collect());
        (self.parts.wire)(Lane::Votes, &to, frame);
    }

    /// Publishes what changes slowly.
    fn report(&self) {
        let FollowParts {
            executor,
            live,
            metrics,
            ..
        } = &self.parts;
        let (database_bytes, pruned_below) = executor.disk();
        live.set_condition(Condition {
            behind: self.network_height() > self.tip.height,
            journal_bytes: 0,
            database_bytes,
            pruned_below,
            clock_ahead_ms: None,
        });
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        metrics.executed_height.set(number(self.executed().0));
        metrics.finalized_height.set(number(self.tip.height.0));
        metrics.epoch.set(number(self.tip.epoch.0));
        metrics.view.set(number(self.tip.view.0));
        metrics.database_bytes.set(number(database_bytes));
        metrics.pruned_below.set(number(pruned_below.0));
    }

    fn shown(&self) -> Vec<Upstream> {
        let sources = self.sources.iter().enumerate();
        let shown = sources.filter_map(|(place, source)| {
            Some(Upstream {
                identity: self.parts.upstreams.identity(PeerIndex(place))?,
                linked: source.linked,
                acts: source.acts,
                claimed: source.claimed,
                oldest: source.oldest,
            })
        });
        shown.collect()
    }

    fn publish(&self) {
        self.parts.live.set_upstreams(self.shown());
    }
}

impl Source {
    fn is_banned(&self, now: Moment) -> bool {
        self.banned_until.is_some_and(|until| now < until)
    }
}
