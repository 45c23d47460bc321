//! What the replica publishes for RPC, so that neither waits for the other.

pub mod following;
mod progress;
pub mod recent;
pub mod verdict;

use self::{
    following::{Part, Upstream},
    progress::{Growth, Others, Progress},
    recent::RecentCertificates,
    verdict::{Facts, Gone, Other, keeps_up},
};
use crate::validate::MAX_CLOCK_AHEAD_MS;
use parking_lot::{Mutex, RwLock};
use quorate_api::{
    EvidenceJson, OffenderJson, Standing, SyncJson,
    verdict::{VerdictJson, Voter, Voting, grouped},
};
use quorate_consensus::Moment;
use quorate_lanes::PeerStatus;
use quorate_types::{
    Committees, Epoch, Height, Identity, Status, ValidatorIndex, View, genesis::Protocol,
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// The newest view that has a proposal here, or is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proposed {
    pub(crate) view: View,
    since: Instant,
    /// From the one before to this one.
    pub(crate) lasted: Duration,
}

/// The replica's progress and what peers have told.
pub struct LiveStatus {
    committees: Committees,
    /// This node's place in the committee; `None` for a follower.
    own: Option<ValidatorIndex>,
    protocol: Protocol,
    /// Those that a follower follows.
    upstreams: RwLock<Vec<Upstream>>,
    started: Instant,
    epoch: AtomicU64,
    view: AtomicU64,
    finalized_height: AtomicU64,
    /// Whether the current view's leader may be waiting for transactions.
    awaits_proposal: AtomicBool,
    proposed: watch::Sender<Proposed>,
    behind: AtomicBool,
    /// Its own journal tells that the chain has gone on.
    journal_ahead: AtomicBool,
    journal_bytes: AtomicU64,
    database_bytes: AtomicU64,
    pruned_below: AtomicU64,
    clock_ahead_ms: RwLock<Option<i64>>,
    offenders: RwLock<Vec<OffenderJson>>,
    cut: RwLock<Vec<OffenderJson>>,
    evidence: RwLock<Vec<EvidenceJson>>,
    /// What each peer said last, and when.
    peers: RwLock<BTreeMap<ValidatorIndex, (Status, Moment)>>,
    last_votes: Vec<LastVote>,
    participation: RwLock<Participation>,
    recent: RecentCertificates,
    voting: RwLock<Voting>,
    gone: RwLock<Option<Gone>>,
    executed: RwLock<ExecutedTip>,
    room: RwLock<Option<Room>>,
    progress: Mutex<Progress>,
    /// Whether a final height has been published yet.
    placed: AtomicBool,
    /// What a follower is here for.
    part: RwLock<Part>,
    /// Whether this validator is asking for votes of its key, however briefly.
    asks: AtomicBool,
    /// What is wrong with a registry outside the chain.
    registry_troubles: RwLock<Vec<String>>,
    /// The remedy that was shown at the end of the parts that the node ran before.
    last_remedy: RwLock<Option<String>>,
}

/// The condition of this validator.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Condition {
    pub behind: bool,
    pub journal_bytes: u64,
    pub database_bytes: u64,
    pub pruned_below: Height,
    pub clock_ahead_ms: Option<i64>,
}

/// The space on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes free for the validator.
    pub free_bytes: u64,
    /// Bytes in all.
    pub size_bytes: u64,
}

impl Room {
    /// Free bytes below which the operator is warned, on a large disk.
    const LOW_BYTES: u64 = 2 << 30;

    /// The same as a fraction, on a small disk.
    const LOW_PART: u64 = 10;

    /// Free bytes below which the operator is warned, on this disk.
    pub fn low_bytes(&self) -> u64 {
        Self::LOW_BYTES.min(self.size_bytes / Self::LOW_PART)
    }

    /// What the operator is told when space is running out.
    pub(crate) fn warning(&self) -> String {
        format!(
            "the disk of the data directory fills up: {} of {} MiB are free; on a full one the node stops. \
             Make room, or set `storage.retention_blocks` or `storage.retention_time` (on a chain that only orders, \
             `storage.bundle_bytes`)",
            grouped(self.free_bytes >> 20),
            grouped(self.size_bytes >> 20)
        )
    }

    /// Whether space is running out.
    pub fn is_low(&self) -> bool {
        self.free_bytes < self.low_bytes()
    }
}

/// The newest executed block.
#[derive(Clone, Copy, Debug, Default)]
struct ExecutedTip {
    height: Height,
    timestamp_ms: u64,
}

/// The newest epoch and view in which a vote of the validator arrived. Written by the replica only.
#[derive(Default)]
struct LastVote {
    epoch: AtomicU64,
    view: AtomicU64,
    /// When a vote of a recent view arrived, in milliseconds since the start; 0 for never.
    at_ms: AtomicU64,
    /// When the validator asked what its journal lacks, in milliseconds since the start; 0 if it has voted since.
    asks_ms: AtomicU64,
}

/// A validator without votes for this long does not vote, at the least. While the chain stands
/// still, votes are repeated about every second.
const VOTE_PATIENCE: Duration = Duration::from_secs(10);

/// The same for a validator without a link, whose votes may be relayed.
const VOTE_PATIENCE_ACROSS: Duration = Duration::from_secs(3);

/// A vote that came so long after the last frame over a link has come through another validator.
const RELAY_SHOWS: Duration = Duration::from_secs(1);

/// A link shows as one once it has answered a ping. What comes over it before comes within this time.
const LINK_SHOWS: Duration = Duration::from_millis(500);

/// A validator that said nothing of itself for so long is away.
const SAYS_SOMETHING: Duration = Duration::from_secs(10);

/// A validator that asks what its journal lacks and has no need to wait votes within this time: the answers take a
/// message's delay, and votes are repeated once a second.
const ASKS_FOR: Duration = Duration::from_millis(1_500);

/// Votes of views that are this much older do not show that their author votes.
const VOTE_VIEWS: u64 = 16;

/// After this many handshakes in a row that a peer has aborted, it counts as refusing this
/// validator.
const REFUSALS: u32 = 3;

/// How long another process must ask for a peer's link in its name before it is reported.
const DOUBLED_FOR: Duration = Duration::from_secs(10);

/// Finalizations that name their signers, as far as they are counted.
const PARTICIPATION_WINDOW: usize = 1_000;

/// The signers of the newest finalizations.
#[derive(Default)]
struct Participation {
    newest: VecDeque<Vec<ValidatorIndex>>,
    counts: BTreeMap<ValidatorIndex, u32>,
}

impl LiveStatus {
    /// A validator's.
    pub fn new(committees: Committees, own: ValidatorIndex) -> Self {
        Self::of(committees, Some(own))
    }

    /// On a chain with this protocol; simplex without it.
    pub fn with_protocol(self, protocol: Protocol) -> Self {
        Self { protocol, ..self }
    }

    /// A follower's.
    pub fn of_follower(committees: Committees) -> Self {
        Self::of(committees, None)
    }

    fn of(committees: Committees, own: Option<ValidatorIndex>) -> Self {
        let last_votes = committees
            .known()
            .places()
            .map(|_| LastVote::default())
            .collect();
        Self {
            committees,
            own,
            protocol: Protocol::Simplex,
            upstreams: RwLock::default(),
            last_votes,
            awaits_proposal: AtomicBool::new(false),
            proposed: watch::Sender::new(Proposed {
                view: View(0),
                since: Instant::now(),
                lasted: Duration::ZERO,
            }),
            behind: AtomicBool::new(false),
            journal_ahead: AtomicBool::new(false),
            journal_bytes: AtomicU64::new(0),
            database_bytes: AtomicU64::new(0),
            pruned_below: AtomicU64::new(1),
            clock_ahead_ms: RwLock::default(),
            participation: RwLock::default(),
            recent: RecentCertificates::new(crate::clock::now_ms()),
            voting: RwLock::default(),
            gone: RwLock::default(),
            executed: RwLock::default(),
            room: RwLock::default(),
            progress: Mutex::new(Progress::new(Instant::now())),
            placed: AtomicBool::new(false),
            part: RwLock::default(),
            asks: AtomicBool::new(false),
            registry_troubles: RwLock::default(),
            last_remedy: RwLock::default(),
            offenders: RwLock::default(),
            cut: RwLock::default(),
            evidence: RwLock::default(),
            started: Instant::now(),
            epoch: AtomicU64::new(0),
            view: AtomicU64::new(0),
            finalized_height: AtomicU64::new(0),
            peers: RwLock::default(),
        }
    }

    /// Publishes where the replica is.
    pub fn set_progress(&self, epoch: Epoch, view: View, finalized: Height) {
        self.epoch.store(epoch.0, Ordering::Relaxed);
        self.view.store(view.0, Ordering::Relaxed);
        let before = self.finalized_height.swap(finalized.0, Ordering::Relaxed);
        let placed = self.placed.swap(true, Ordering::Relaxed);
        if !placed || before < finalized.0 {
            let mut progress = self.progress.lock();
            progress.grown(Instant::now(), view, finalized);
        }
    }

    /// Publishes whether the current view's leader may be waiting for transactions.
    pub(crate) fn set_awaits_proposal(&self, awaits: bool) {
        self.awaits_proposal.store(awaits, Ordering::Relaxed);
    }

    /// Publishes the newest view that has a proposal here, or is over. Votes for it have been sent.
    pub(crate) fn set_proposed(&self, view: View, now: Instant) {
        self.proposed.send_if_modified(|newest| {
            let is_new = newest.view != view;
            if is_new {
                let lasted = now.saturating_duration_since(newest.since);
                *newest = Proposed {
                    view,
                    since: now,
                    lasted,
                };
            }
            is_new
        });
    }

    /// What [`Self::set_proposed`] publishes.
    pub(crate) fn proposed(&self) -> watch::Receiver<Proposed> {
        self.proposed.subscribe()
    }

    /// Whether the current view's leader perhaps waits for something to put into its block.
    pub(crate) fn awaits_proposal(&self) -> bool {
        self.awaits_proposal.load(Ordering::Relaxed)
    }

    /// Sets the longest time that a block may take by the configuration (a view, or the pause
    /// before it), and the database's height.
    pub(crate) fn begin_at(&self, height: Height, longest: Duration) {
        self.progress.lock().configure(longest, height);
    }

    /// Continues from the parts that the node ran before, with the remedy that these showed at their end.
    pub fn continue_from(&self, before: &Self, remedy: Option<String>) {
        let height = before.finalized_height();
        let before = before.progress.lock();
        self.progress.lock().continue_from(&before, height);
        *self.last_remedy.write() = remedy;
    }

    /// Publishes what a follower is here for.
    pub fn set_part(&self, part: Part) {
        *self.part.write() = part;
    }

    /// Publishes what is wrong with a registry outside the chain, and with the reports about it.
    pub fn set_registry_troubles(&self, troubles: Vec<String>) {
        *self.registry_troubles.write() = troubles;
    }

    /// Whether this validator is in sync and the chain is growing, given its links to the others.
    pub fn sync(&self, peers: &[PeerStatus]) -> SyncJson {
        let committee = &self.committees.known();
        let height = self.finalized_height();
        let growth = self
            .progress
            .lock()
            .look(Instant::now(), self.view(), height);
        let linked = |place: &ValidatorIndex| {
            let identity = committee.identity(*place);
            let mut linked = peers.iter().filter(|peer| peer.connected);
            Some(*place) == self.own || linked.any(|peer| Some(peer.identity) == identity)
        };
        let missing: Vec<ValidatorIndex> = committee.places().filter(|p| !linked(p)).collect();
        let reachable = committee.size() - missing.len();
        let network_height = self.network_height();
        // A follower needs one link.
        let (quorum, heard) = match self.own {
            Some(_) => (
                reachable >= committee.quorum(),
                self.peers.read().len() + 1 >= committee.quorum(),
            ),
            None => {
                let upstreams = self.upstreams.read();
                let heard = upstreams.iter().any(|one| one.claimed.is_some());
                (upstreams.iter().any(|one| one.linked), heard)
            }
        };
        let others = Others {
            quorum,
            heard,
            blocks_behind: network_height.0.saturating_sub(height.0),
        };
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        SyncJson {
            state: growth.state(others),
            since_final_ms: ms(growth.since_final),
            final_since_start: growth.final_since_start,
            stalled_after_ms: ms(growth.patience(quorum)),
            views_without_block: growth.views_without_block,
            height,
            start_height: growth.start_height,
            network_height,
            blocks_per_second: growth.blocks_per_second,
            reachable,
            validators: committee.size(),
            quorum: committee.quorum(),
            missing,
        }
    }

    /// The verdict on this validator, given its links to the others.
    pub fn verdict(&self, peers: &[PeerStatus]) -> VerdictJson {
        let mut verdict = match self.own {
            Some(own) => verdict::decide(&self.facts(own, peers)),
            None => following::decide(&self.following(peers)),
        };
        let troubles = self.registry_troubles.read();
        verdict.notes.extend(troubles.iter().cloned());
        verdict
    }

    fn following(&self, peers: &[PeerStatus]) -> following::Facts {
        let (height, network_height) = (self.finalized_height(), self.network_height());
        let (growth, closing_per_second) = self.growth(height, network_height);
        let executed = *self.executed.read();
        following::Facts {
            growth,
            height,
            network_height,
            closing_per_second,
            upstreams: self.upstreams.read().clone(),
            unexecuted: height.0.saturating_sub(executed.height.0),
            now_ms: crate::clock::now_ms(),
            block_ms: executed.timestamp_ms,
            clocks_refused: peers.iter().any(|peer| peer.clock_refused),
            low_disk: (*self.room.read()).filter(Room::is_low),
            part: *self.part.read(),
            last_remedy: self.last_remedy.read().clone(),
        }
    }

    /// How the chain grows, and the blocks per second by which the distance to the others shrinks.
    fn growth(&self, height: Height, network_height: Height) -> (Growth, Option<f64>) {
        let now = Instant::now();
        let mut progress = self.progress.lock();
        let behind = network_height.0.saturating_sub(height.0);
        let closing = progress.closing(now, behind);
        (progress.look(now, self.view(), height), closing)
    }

    fn facts(&self, own: ValidatorIndex, peers: &[PeerStatus]) -> Facts {
        let committee = &self.committees.known();
        let height = self.finalized_height();
        let network_height = self.network_height();
        let (growth, closing_per_second) = self.growth(height, network_height);
        let gone = self.gone.read().clone();
        // Then it is certain that there are more blocks, and one peer may be the only one that has them.
        let knows = self.journal_ahead.load(Ordering::Relaxed)
            || (gone.is_some() && growth.since_final > growth.usual);
        let network_height = match knows {
            true => self.highest_claim().max(network_height),
            false => network_height,
        };
        let patience = VOTE_PATIENCE.max(3 * growth.usual);
        let own_clock = self.clock_ahead_ms(peers);
        let clock_behind = |ahead_ms: Option<i64>| {
            // With a wrong clock of its own, all others seem wrong.
            let own_is_right = own_clock.is_some_and(|own| own.unsigned_abs() < MAX_CLOCK_AHEAD_MS);
            own_is_right && ahead_ms.is_some_and(|ahead| ahead >= MAX_CLOCK_AHEAD_MS as i64)
        };
        let places = committee.places().filter(|place| *place != own);
        let others = places
            .filter_map(|place| {
                let identity = committee.identity(place)?;
                let link = peers.iter().find(|peer| peer.identity == identity);
                let clock_ahead_ms = link.and_then(|link| link.clock_ahead_ms);
                let voter = match self.voter(place, link, patience, network_height) {
                    Voter::Votes if clock_behind(clock_ahead_ms) => Voter::ClockBehind,
                    voter => voter,
                };
                Some(Other {
                    validator: place,
                    name: identity.short(),
                    linked: link.is_some_and(|link| link.connected),
                    has_address: link.is_some(),
                    refuses: link.is_some_and(|link| !link.connected && link.refusals >= REFUSALS),
                    doubled: link.is_some_and(|link| link.doubled_for >= Some(DOUBLED_FOR)),
                    asks: self.asks_for_long(place),
                    voter,
                    relayed: link.is_some_and(|link| {
                        let since = self.vote_age(place).map(|age| age + RELAY_SHOWS);
                        !link.connected && since.is_some_and(|since| since < link.silent_for)
                    }),
                    clock_ahead_ms,
                    claimed: self.peer(place).map(|status| status.finalized_height),
                })
            })
            .collect();
        let executed = *self.executed.read();
        Facts {
            growth,
            protocol: self.protocol,
            quorum: committee.quorum(),
            faults: committee.faults(),
            height,
            network_height,
            heard: self.peers.read().len() + 1 >= committee.quorum(),
            closing_per_second,
            others,
            voting: self.voting.read().clone(),
            asks: self.asks.load(Ordering::Relaxed),
            gone,
            unexecuted: height.0.saturating_sub(executed.height.0),
            now_ms: crate::clock::now_ms(),
            block_ms: executed.timestamp_ms,
            clock_ahead_ms: own_clock,
            clocks_refused: peers.iter().any(|peer| peer.clock_refused),
            low_disk: (*self.room.read()).filter(Room::is_low),
        }
    }

    /// The longest time that a block takes here when nothing is wrong.
    pub fn usual_interval(&self) -> Duration {
        let height = self.finalized_height();
        let progress = self.progress.lock();
        progress.look(Instant::now(), self.view(), height).usual
    }

    fn vote_age(&self, place: ValidatorIndex) -> Option<Duration> {
        let at_ms = self
            .last_votes
            .get(place.as_usize())
            .map_or(0, |last| last.at_ms.load(Ordering::Relaxed));
        (at_ms > 0).then(|| {
            self.started
                .elapsed()
                .saturating_sub(Duration::from_millis(at_ms))
        })
    }

    /// What is known of a validator's votes.
    fn voter(
        &self,
        place: ValidatorIndex,
        link: Option<&PeerStatus>,
        patience: Duration,
        network_height: Height,
    ) -> Voter {
        let linked_for = link.and_then(|link| link.connected_for);
        let settling = patience / 3;
        let vote_age = self.vote_age(place);
        let within = |limit: Duration| vote_age.is_some_and(|age| age <= limit);
        // Votes that came before are of the process before: since it asks, it has cast none.
        let asks = self.asks_for_long(place);
        if link.is_some_and(|link| link.blocked) {
            return Voter::Blocked;
        }
        match linked_for {
            // A vote of before the link is one of the process before.
            Some(since) if !asks && within(patience.min(since + LINK_SHOWS)) => Voter::Votes,
            Some(since) => {
                let claimed = self.peer(place).map(|status| status.finalized_height.0);
                let lacks = |height: u64| !keeps_up(network_height.0.saturating_sub(height));
                match claimed.is_some_and(lacks) {
                    true => Voter::Behind,
                    // Links go on over the border of an epoch; what is known of votes begins with each.
                    false if !asks && (since <= patience || self.started.elapsed() <= settling) => {
                        Voter::Fresh
                    }
                    false => Voter::Silent,
                }
            }
            None if within(VOTE_PATIENCE_ACROSS) => Voter::Votes,
            None => Voter::Unreachable,
        }
    }

    /// By how many milliseconds this clock is ahead of the others', negative if it is behind: by
    /// the clocks that they send over their links, or by their blocks' timestamps if no peer sends
    /// its clock (earlier versions).
    pub fn clock_ahead_ms(&self, peers: &[PeerStatus]) -> Option<i64> {
        let told = peers.iter().filter_map(|peer| peer.clock_ahead_ms);
        let told: Vec<i64> = told.collect();
        if told.is_empty() {
            return *self.clock_ahead_ms.read();
        }
        let linked = peers.iter().filter(|peer| peer.connected).count();
        let missing = self.committees.known().size().saturating_sub(1 + linked);
        crate::clock::middle(
            told,
            crate::clock::links_needed(self.committees.known(), missing),
        )
    }

    /// Publishes whether this validator votes.
    pub(crate) fn set_voting(&self, voting: Voting) {
        *self.voting.write() = voting;
    }

    /// Publishes whether its own journal tells that the chain has gone on.
    pub(crate) fn set_journal_ahead(&self, ahead: bool) {
        self.journal_ahead.store(ahead, Ordering::Relaxed);
    }

    /// Publishes whether this validator is asking for votes of its key. That is shown as `voting` only once it lasts.
    pub(crate) fn set_asks(&self, asks: bool) {
        self.asks.store(asks, Ordering::Relaxed);
    }

    /// Notes that a validator asks for votes of its key. It asks again until it has its answers.
    pub(crate) fn asked(&self, from: ValidatorIndex) {
        if let Some(last) = self.last_votes.get(from.as_usize())
            && last.asks_ms.load(Ordering::Relaxed) == 0
        {
            last.asks_ms.store(self.now_ms(), Ordering::Relaxed);
        }
    }

    /// For how long a validator has been asking for votes of its key.
    fn asks_for(&self, place: ValidatorIndex) -> Option<Duration> {
        let last = self.last_votes.get(place.as_usize())?;
        let since = last.asks_ms.load(Ordering::Relaxed);
        let asks = || Duration::from_millis(self.now_ms().saturating_sub(since));
        (since > 0).then(asks)
    }

    /// Whether a validator has been asking for votes of its key for longer than one that may vote does.
    fn asks_for_long(&self, place: ValidatorIndex) -> bool {
        self.asks_for(place) >= Some(ASKS_FOR)
    }

    /// Milliseconds since the start, at least one.
    fn now_ms(&self) -> u64 {
        let elapsed = self.started.elapsed().as_millis();
        u64::try_from(elapsed).unwrap_or(u64::MAX).max(1)
    }

    /// Publishes the peers that say they do not keep the next missing block.
    pub(crate) fn set_pruned_elsewhere(
        &self,
        pruned: Option<(Height, Vec<(ValidatorIndex, Height)>)>,
    ) {
        let gone = pruned.map(|(wanted, lacking)| Gone { wanted, lacking });
        *self.gone.write() = gone;
    }

    /// Publishes the newest executed block.
    pub(crate) fn set_executed(&self, height: Height, timestamp_ms: u64) {
        *self.executed.write() = ExecutedTip {
            height,
            timestamp_ms,
        };
    }

    /// Publishes the space on the data directory's disk.
    pub fn set_room(&self, room: Room) {
        *self.room.write() = Some(room);
    }

    /// Publishes whether final blocks are missing, the sizes on disk, and the clock's difference.
    pub(crate) fn set_condition(&self, condition: Condition) {
        let Condition {
            behind,
            journal_bytes,
            database_bytes,
            pruned_below,
            clock_ahead_ms,
        } = condition;
        self.behind.store(behind, Ordering::Relaxed);
        self.journal_bytes.store(journal_bytes, Ordering::Relaxed);
        self.database_bytes.store(database_bytes, Ordering::Relaxed);
        self.pruned_below.store(pruned_below.0, Ordering::Relaxed);
        *self.clock_ahead_ms.write() = clock_ahead_ms;
    }

    /// The condition published last.
    pub fn condition(&self) -> Condition {
        Condition {
            behind: self.behind.load(Ordering::Relaxed),
            journal_bytes: self.journal_bytes.load(Ordering::Relaxed),
            database_bytes: self.database_bytes.load(Ordering::Relaxed),
            pruned_below: Height(self.pruned_below.load(Ordering::Relaxed)),
            clock_ahead_ms: *self.clock_ahead_ms.read(),
        }
    }

    /// Publishes the penalties and pardons of the replica.
    pub fn set_offenders(&self, offenders: Vec<OffenderJson>) {
        *self.offenders.write() = offenders;
    }

    /// Publishes which links are cut for a while, and which peers are muted.
    pub(crate) fn set_cut(&self, cut: Vec<OffenderJson>) {
        *self.cut.write() = cut;
    }

    /// Publishes the evidence.
    pub fn set_evidence(&self, evidence: Vec<EvidenceJson>) {
        *self.evidence.write() = evidence;
    }

    /// Notes a vote of a validator.
    pub fn voted(&self, from: ValidatorIndex, epoch: Epoch, view: View) {
        let Some(last) = self.last_votes.get(from.as_usize()) else {
            return;
        };
        let held = (
            last.epoch.load(Ordering::Relaxed),
            last.view.load(Ordering::Relaxed),
        );
        let own = (self.epoch(), self.view());
        let is_old = epoch < own.0 || epoch == own.0 && view.0.saturating_add(VOTE_VIEWS) < own.1.0;
        if !is_old {
            last.at_ms.store(self.now_ms(), Ordering::Relaxed);
            last.asks_ms.store(0, Ordering::Relaxed);
        }
        if held < (epoch.0, view.0) {
            last.epoch.store(epoch.0, Ordering::Relaxed);
            last.view.store(view.0, Ordering::Relaxed);
        }
    }

    /// Notes the signers of a finalization.
    pub fn signed(&self, signers: Vec<ValidatorIndex>) {
        let mut participation = self.participation.write();
        for signer in &signers {
            *participation.counts.entry(*signer).or_default() += 1;
        }
        participation.newest.push_back(signers);
        if participation.newest.len() > PARTICIPATION_WINDOW
            && let Some(oldest) = participation.newest.pop_front()
        {
            for signer in oldest {
                let count = participation.counts.entry(signer).or_default();
                *count = count.saturating_sub(1);
            }
        }
    }

    /// In how many of 100 of the newest finalizations that name their signers this validator is
    /// one.
    pub fn participation_percent(&self, place: ValidatorIndex) -> Option<f64> {
        let participation = self.participation.read();
        let all = participation.newest.len();
        let signed = participation.counts.get(&place).copied().unwrap_or(0);
        (all > 0).then(|| f64::from(signed) * 100.0 / all as f64)
    }

    /// Notes a peer's status. One entry per validator.
    pub fn peer_status(&self, from: ValidatorIndex, status: &Status, now: Moment) {
        self.peers.write().insert(from, (*status, now));
    }

    /// The height that the slowest of the others has executed that said anything lately.
    pub(crate) fn slowest(&self, now: Moment) -> Option<Height> {
        let peers = self.peers.read();
        let lately = peers
            .values()
            .filter(|(_, at)| now < at.after(SAYS_SOMETHING));
        lately.map(|(status, _)| status.executed_height).min()
    }

    /// The greatest height that f + 1 validators claim to be final; this one may be among them.
    pub fn network_height(&self) -> Height {
        if self.own.is_none() {
            let faults = self.committees.known().faults();
            let claimed = following::network_height(&self.upstreams.read(), faults);
            let own = self.finalized_height();
            return claimed.unwrap_or(own).max(own);
        }
        let mut claims: Vec<Height> = {
            let peers = self.peers.read();
            peers
                .values()
                .map(|(status, _)| status.finalized_height)
                .collect()
        };
        let own = self.finalized_height();
        claims.push(own);
        claims.sort_unstable_by(|a, b| b.cmp(a));
        let claimed = claims.get(self.committees.known().faults()).copied();
        claimed.unwrap_or(own).max(own)
    }

    fn highest_claim(&self) -> Height {
        let peers = self.peers.read();
        let claims = peers.values().map(|(status, _)| status.finalized_height);
        claims.max().unwrap_or_default()
    }

    /// The greatest epoch that f + 1 other validators say they work in, if so many have said one.
    pub(crate) fn network_epoch(&self) -> Option<Epoch> {
        let peers = self.peers.read();
        let mut epochs: Vec<Epoch> = peers.values().map(|(status, _)| status.epoch).collect();
        epochs.sort_unstable_by(|a, b| b.cmp(a));
        epochs.get(self.committees.known().faults()).copied()
    }

    /// Publishes what a follower knows of those that it follows.
    pub(crate) fn set_upstreams(&self, upstreams: Vec<Upstream>) {
        *self.upstreams.write() = upstreams;
    }

    /// The height that a node which this one follows says is final.
    pub fn claimed(&self, peer: &Identity) -> Option<Height> {
        let upstreams = self.upstreams.read();
        upstreams.iter().find(|one| one.identity == *peer)?.claimed
    }

    /// Whether so many linked validators of this epoch say that this height is the newest that they are a quorum with this
    /// one.
    pub(crate) fn quorum_has_nothing_newer(&self, height: Height) -> bool {
        let says_so = |one: &&Upstream| {
            one.linked && one.acts && one.claimed.is_some_and(|claimed| claimed <= height)
        };
        let others = self.upstreams.read().iter().filter(says_so).count();
        others + 1 >= self.committees.known().quorum()
    }

    /// Whether one of the linked nodes that a follower follows validates in this epoch.
    pub(crate) fn is_linked_with_a_validator(&self) -> bool {
        let upstreams = self.upstreams.read();
        upstreams.iter().any(|one| one.linked && one.acts)
    }

    /// So many of the linked nodes that a follower follows, and at least two: validators of the epoch before others.
    pub(crate) fn upstreams(&self, count: usize) -> Vec<Identity> {
        let upstreams = self.upstreams.read();
        let linked = upstreams.iter().filter(|one| one.linked);
        let mut linked: Vec<Identity> = linked.map(|one| one.identity).collect();
        // Where validators come and leave, some of the others follow this node in turn, and pass nothing on.
        linked.sort_by_key(|one| self.committees.known().place(one).is_none());
        linked.truncate(count.max(2));
        linked
    }

    /// The newest certificates.
    pub fn recent(&self) -> &RecentCertificates {
        &self.recent
    }

    pub fn committees(&self) -> &Committees {
        &self.committees
    }

    /// This node's place in the committee; `None` for a follower.
    pub fn own(&self) -> Option<ValidatorIndex> {
        self.own
    }

    pub fn started(&self) -> Instant {
        self.started
    }

    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Relaxed))
    }

    pub fn view(&self) -> View {
        View(self.view.load(Ordering::Relaxed))
    }

    /// The newest final height whose whole chain is here.
    pub fn finalized_height(&self) -> Height {
        Height(self.finalized_height.load(Ordering::Relaxed))
    }

    /// The replica's penalties and pardons, and which other peers are cut or muted: one entry per
    /// validator.
    pub fn offenders(&self) -> Vec<OffenderJson> {
        let mut offenders = self.offenders.read().clone();
        let now_ms = crate::clock::now_ms();
        for entry in self.cut.read().iter() {
            let lasts = entry.until_ms.is_none_or(|until| until > now_ms);
            let held = offenders
                .iter()
                .any(|held| held.identity == entry.identity && held.standing != Standing::Pardoned);
            if lasts && !held {
                offenders.retain(|held| held.identity != entry.identity);
                offenders.push(entry.clone());
            }
        }
        offenders
    }

    pub fn evidence(&self) -> Vec<EvidenceJson> {
        self.evidence.read().clone()
    }

    /// The newest epoch and view in which a vote of the validator arrived.
    pub fn last_vote(&self, place: ValidatorIndex) -> Option<(u64, View)> {
        let last = self.last_votes.get(place.as_usize())?;
        let view = last.view.load(Ordering::Relaxed);
        (view > 0).then(|| (last.epoch.load(Ordering::Relaxed), View(view)))
    }

    /// Whether the validator takes part: its newest vote is hardly older than the present view.
    pub fn votes_now(&self, place: ValidatorIndex) -> bool {
        let own = (self.epoch().0, self.view().0);
        let last = self.last_vote(place);
        last.is_some_and(|(epoch, view)| {
            epoch == own.0 && view.0.saturating_add(VOTE_VIEWS) >= own.1
        })
    }

    /// A peer's newest status.
    pub fn peer(&self, place: ValidatorIndex) -> Option<Status> {
        let peers = self.peers.read();
        peers.get(&place).map(|(status, _)| *status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::Committee;

    #[test]
    fn votes_are_not_missed_right_after_a_border_over_which_links_go_on() {
        let validators: Vec<_> = (0..4).map(|byte| Identity([byte; 32])).collect();
        let committee = Committee::new(Epoch(7), validators.clone()).expect("four");
        let mut live = LiveStatus::new(Committees::fixed(committee), ValidatorIndex(0));
        let peers: Vec<_> = validators[1..]
            .iter()
            .map(|identity| PeerStatus {
                identity: *identity,
                connected: true,
                round_trip_us: Some(100),
                connected_for: Some(Duration::from_secs(3_600)),
                silent_for: Duration::ZERO,
                blocked: false,
                oversized: 0,
                refusals: 0,
                doubled_for: None,
                clock_refused: false,
                clock_ahead_ms: Some(0),
            })
            .collect();
        let states = |live: &LiveStatus| -> Vec<Voter> {
            let others = live.verdict(&peers).others;
            others.iter().map(|other| other.state).collect()
        };
        assert_eq!(states(&live), [Voter::Fresh; 3]);
        live.started = Instant::now()
            .checked_sub(VOTE_PATIENCE)
            .expect("the machine runs for longer");
        assert_eq!(states(&live), [Voter::Silent; 3]);
    }
}
