//! Frames from the links: decodes them into messages and hands each to its thread.
//!
//! Everything here runs on the runtime's tasks and never blocks. Before a message's body is read,
//! its head is checked (`quorate_types::Head`): the lane; for a proposal, whether its sender leads
//! the view; for an answer, whether it was requested; and for each kind, whether the peer has
//! exceeded its rate. Frames that no validator sends count against the sender ([`crate::conduct`]).
//!
//! | kind of message | tokens of one peer: a second, at once |
//! |---|---|
//! | votes and certificates | 4,000, 8,192 |
//! | proposals | 256, 64; of views that are not near, 16, 32 |
//! | requests for blocks | 128, 128; the answers have a price in bytes, see [`crate::serve`] |
//! | requests for ranges | 64, 64; the same |
//! | requests of state sync | 512, 512; the same |
//! | requests for certificates, inquiries about journals and their answers | 32, 64 |
//! | statuses | 16, 32 |
//! | pairs of conflicting votes | 32, 256 |
//! | forwarded transactions | 10,000, 20,000 |
//! | bundles of payloads, and requests for them | 1,000, 2,000 |
//! | relayed frames, each with a signature to verify | 2,000, 1,024 |
//!
//! A frame that exceeds a rate is dropped and counts against nobody. Frames that wait for the
//! replica are bounded per peer, in number and in bytes; beyond that a frame is dropped and
//! counted. So a peer that floods loses its own frames and nobody else's.

mod followers;

pub(crate) use followers::FollowerInlet;

use crate::{
    across::{Across, Taken},
    asked::{Asked, Question},
    clock::Clock,
    conduct::{Conduct, Fault, Listening},
    live::LiveStatus,
    metrics::NodeMetrics,
    outlet::Wire,
    payloads::Payloads,
    replica::Event,
    serve::{Request, Requests},
    turns::TurnSender,
};
use bytes::Bytes;
use crossbeam_channel::Sender;
use parking_lot::Mutex;
use quorate_consensus::{Moment, PROPOSAL_LOOKAHEAD_VIEWS, TAIL_VIEWS};
use quorate_lanes::{Bucket, Lane, To};
use quorate_types::{
    Committee, Committees, Epoch, Frame, Head, Identity, Message, Relayed, Succession, Transaction,
    Unread, ValidatorIndex, View,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Most frames of one peer that wait for the replica.
const MAX_QUEUED_FRAMES: u32 = 2_048;

/// Most bytes of all peers' frames that wait for the replica, spread evenly over the peers within
/// the next two limits.
const QUEUED_BYTES: usize = 64 << 20;

/// Least and most bytes of one peer's frames that may wait for the replica. A single frame is
/// always accepted.
const PEER_QUEUED_BYTES: [usize; 2] = [1 << 20, 8 << 20];

/// The bytes that a request counts for while it waits for the replica.
const REQUEST_BYTES: usize = 128;

/// How long after the validators have changed frames may be about the ones before.
const BORDER_GRACE: Duration = Duration::from_secs(10);

/// One peer's share of the queue to the replica. It is dropped with the event, which frees the
/// room.
pub struct Queued {
    account: Arc<Account>,
    bytes: usize,
}

struct Account {
    frames: AtomicU32,
    bytes: AtomicUsize,
    max_bytes: usize,
}

impl Queued {
    fn new(account: &Arc<Account>, bytes: usize) -> Option<Self> {
        let frames = account.frames.fetch_add(1, Ordering::Relaxed);
        let before = account.bytes.fetch_add(bytes, Ordering::Relaxed);
        let queued = Self {
            account: account.clone(),
            bytes,
        };
        // Dropping it returns what was just taken.
        (frames < MAX_QUEUED_FRAMES && before < account.max_bytes).then_some(queued)
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.account.frames.fetch_sub(1, Ordering::Relaxed);
        self.account.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The token buckets of one peer, one for each kind of message.
struct Tokens {
    votes: Bucket,
    proposals: Bucket,
    far_proposals: Bucket,
    block_requests: Bucket,
    range_requests: Bucket,
    chunk_requests: Bucket,
    certificate_requests: Bucket,
    statuses: Bucket,
    bundles: Bucket,
    evidence: Bucket,
    transactions: Bucket,
    relayed: Bucket,
}

impl Tokens {
    fn new(committee: &Committee) -> Self {
        // One that leads many views in a row sends all proposals.
        let leading = committee.turn().min(committee.size() as u64);
        Self {
            votes: Bucket::new(4_000, 8_192),
            proposals: Bucket::new(256 * leading, 64 * leading),
            far_proposals: Bucket::new(16, 32),
            block_requests: Bucket::new(128, 128),
            range_requests: Bucket::new(64, 64),
            chunk_requests: Bucket::new(512, 512),
            certificate_requests: Bucket::new(32, 64),
            statuses: Bucket::new(16, 32),
            bundles: Bucket::new(1_000, 2_000),
            evidence: Bucket::new(32, 256),
            transactions: Bucket::new(10_000, 20_000),
            relayed: Bucket::new(2_000, 1_024),
        }
    }
}

/// Why a frame is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// It holds something that no validator sends.
    Fault(Fault),
    /// It exceeds a rate of the peer.
    TooMany,
    /// It answers a request of this validator's state sync, which has ended.
    TooLate,
    /// It holds a kind of message that this version does not know.
    UnknownKind,
}

pub(crate) struct InletParts {
    pub(crate) committees: Committees,
    pub(crate) followers: FollowerInlet,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) live: Arc<LiveStatus>,
    pub(crate) conduct: Arc<Conduct>,
    pub(crate) asked: Arc<Asked>,
    pub(crate) replica: Sender<Event>,
    pub(crate) requests: Requests,
    pub(crate) transactions: TurnSender<Vec<Transaction>>,
    pub(crate) metrics: Arc<NodeMetrics>,
    pub(crate) across: Arc<Across>,
    /// On a chain that only orders.
    pub(crate) payloads: Option<Arc<Payloads>>,
    /// For frames that go around missing links.
    pub(crate) wire: Wire,
}

/// Receives all frames from the links.
pub struct Inlet {
    parts: InletParts,
    since: Moment,
    accounts: Vec<Arc<Account>>,
    tokens: Vec<Mutex<Tokens>>,
}

impl Inlet {
    pub(crate) fn new(parts: InletParts) -> Self {
        let [least, most] = PEER_QUEUED_BYTES;
        let max_bytes = (QUEUED_BYTES / parts.committees.known().size()).clamp(least, most);
        let account = || Account {
            frames: AtomicU32::new(0),
            bytes: AtomicUsize::new(0),
            max_bytes,
        };
        let places = || parts.committees.known().places();
        Self {
            accounts: places().map(|_| Arc::new(account())).collect(),
            tokens: places()
                .map(|_| Mutex::new(Tokens::new(parts.committees.known())))
                .collect(),
            since: parts.clock.now(),
            parts,
        }
    }

    /// Receives one frame.
    pub fn receive(&self, from: Identity, lane: Lane, bytes: Bytes) {
        let Some(place) = self.parts.committees.known().place(&from) else {
            return self.parts.followers.receive(from, lane, bytes);
        };
        match self.parts.conduct.listening(place) {
            Listening::Fully => {}
            Listening::Cut => return self.parts.metrics.dropped("cut"),
            Listening::Muted if matches!(lane, Lane::Fetch | Lane::Transactions) => {
                return self.parts.metrics.dropped("muted");
            }
            Listening::Muted => {}
        }
        let size = bytes.len();
        let read = Frame::read_judged(bytes, |head| self.judge(place, lane, head));
        match read {
            Ok(messages) => self.pass_on(place, messages, size, false),
            Err(Unread::Unwanted(refusal)) => self.refuse(place, refusal),
            Err(Unread::Undecodable(_)) => self.refuse(place, Refusal::Fault(Fault::Undecodable)),
        }
    }

    /// Whether frames of a validator are read at all: nobody listens to one that has sent too much that no validator sends.
    pub fn listens_to(&self, validator: ValidatorIndex) -> bool {
        self.parts.conduct.listening(validator) != Listening::Cut
    }

    fn refuse(&self, from: ValidatorIndex, refusal: Refusal) {
        match refusal {
            Refusal::TooMany => self.parts.metrics.dropped("too_many"),
            Refusal::TooLate => self.parts.metrics.dropped("too_late"),
            Refusal::UnknownKind => self.parts.metrics.dropped("unknown_kind"),
            Refusal::Fault(fault) => {
                self.parts.metrics.dropped(fault.name());
                self.parts.conduct.note(from, fault, 1);
            }
        }
    }

    /// A fault, unless the validators have just changed: then it may be about the places of other ones,
    /// or answer a question of this node's parts for the epoch before.
    fn or_late(&self, fault: Fault) -> Refusal {
        let committees = &self.parts.committees;
        let is_border = committees.can_change()
            && (self.parts.clock.now().since(self.since) < BORDER_GRACE
                || committees.succession(committees.known().epoch()) != Succession::Open);
        match is_border {
            true => Refusal::TooLate,
            false => Refusal::Fault(fault),
        }
    }

    /// Receives a relayed frame.
    fn relayed(&self, from: ValidatorIndex, relayed: Relayed) {
        let author = relayed.author;
        if self.parts.conduct.listening(author) == Listening::Cut {
            return self.parts.metrics.dropped("cut");
        }
        let frame = match self.parts.across.take(from, relayed) {
            Taken::Arrived(frame) => frame,
            Taken::Passed(to, bytes) => {
                return (self.parts.wire)(Lane::Votes, &To::One(to), bytes);
            }
            Taken::Known => return self.parts.metrics.dropped("relayed_before"),
            Taken::Forged => return self.refuse(from, self.or_late(Fault::Forged)),
        };
        let size = frame.len();
        // The author has signed it, so what is wrong with it is the author's fault.
        let read = Frame::read_judged(frame, |head| match head {
            Head::Relayed { .. } => Err(Refusal::Fault(Fault::WrongLane)),
            Head::Inquiry | Head::Standing => self.judge(author, Lane::Control, head),
            _ => self.judge(author, Lane::Votes, head),
        });
        match read {
            Ok(messages) => self.pass_on(author, messages, size, true),
            Err(Unread::Unwanted(refusal)) => self.refuse(author, refusal),
            Err(Unread::Undecodable(_)) => self.refuse(author, Refusal::Fault(Fault::Undecodable)),
        }
    }

    /// Checks a message by its head.
    fn judge(&self, from: ValidatorIndex, lane: Lane, head: Head) -> Result<(), Refusal> {
        // Otherwise a peer could declare transactions as votes and jump the queue.
        let its_own = lane_of_head(head).ok_or(Refusal::UnknownKind)?;
        // A bundle comes by itself, or as an answer.
        let answers_with_it = matches!(head, Head::Bundle) && lane == Lane::Fetch;
        if its_own != lane && !answers_with_it {
            return Err(Refusal::Fault(Fault::WrongLane));
        }
        let answers = match head {
            Head::BlockReply { id } => Some(Question::Block(id)),
            Head::RangeReply { first: Some(first) } => Some(Question::Range(first)),
            Head::Pruned { from } => Some(Question::Range(from)),
            Head::RangeReply { first: None } => return Err(Refusal::Fault(Fault::Unasked)),
            // State sync runs before this validator takes part, with an inlet of its own. Late answers
            // to it are no fault.
            Head::SnapshotReply | Head::ChunkReply => return Err(Refusal::TooLate),
            _ => None,
        };
        if let Some(question) = answers {
            let asked = self.parts.asked.answered(from, question);
            return asked.then_some(()).ok_or(self.or_late(Fault::Unasked));
        }
        if let Head::Relayed { author, to } = head
            && !self.parts.across.may_give(from, author, to)
        {
            return Err(self.or_late(Fault::Misdirected));
        }
        let near = match head {
            Head::Proposal { epoch, view } => {
                // In another set, the same place is somebody else's.
                if !self.parts.committees.votes_alike(epoch) {
                    return Err(Refusal::TooLate);
                }
                if self.parts.committees.leader(epoch, view) != from {
                    return Err(Refusal::Fault(Fault::NotTheLeader));
                }
                self.is_near(epoch, view)
            }
            _ => true,
        };
        let now_us = self.parts.clock.now().0;
        let mut tokens = self.tokens[from.as_usize()].lock();
        let paid = match head {
            Head::Proposal { .. } => {
                tokens.proposals.take(now_us, 1) && (near || tokens.far_proposals.take(now_us, 1))
            }
            Head::Vote | Head::Certificate => tokens.votes.take(now_us, 1),
            Head::BlockRequest => tokens.block_requests.take(now_us, 1),
            Head::RangeRequest => tokens.range_requests.take(now_us, 1),
            Head::SnapshotRequest | Head::ChunkRequest | Head::HandoverRequest => {
                tokens.chunk_requests.take(now_us, 1)
            }
            // Validators follow each other only where the set of validators changes.
            Head::FollowRequest if self.parts.committees.can_change() => {
                tokens.range_requests.take(now_us, 1)
            }
            Head::FollowRequest => return Err(Refusal::UnknownKind),
            Head::Bundle | Head::BundleRequest if self.parts.payloads.is_none() => {
                return Err(Refusal::UnknownKind);
            }
            Head::Bundle | Head::BundleRequest => tokens.bundles.take(now_us, 1),
            Head::CertificateRequest | Head::Inquiry | Head::Standing => {
                tokens.certificate_requests.take(now_us, 1)
            }
            Head::Status | Head::Apart => tokens.statuses.take(now_us, 1),
            Head::Relayed { .. } => tokens.relayed.take(now_us, 1),
            Head::Evidence => tokens.evidence.take(now_us, 1),
            Head::Transactions { count } => tokens.transactions.take(now_us, count as u64),
            Head::BlockReply { .. }
            | Head::RangeReply { .. }
            | Head::Pruned { .. }
            | Head::SnapshotReply
            | Head::ChunkReply
            | Head::HandoverReply
            | Head::Unknown { .. } => true,
        };
        paid.then_some(()).ok_or(Refusal::TooMany)
    }

    /// Whether a proposal may be of use itself, not only for the certificates that it carries.
    fn is_near(&self, epoch: Epoch, view: View) -> bool {
        let current = self.parts.live.epoch();
        // In the first views of an epoch, before the replica gets there.
        if epoch == current.next() {
            return view.0 <= PROPOSAL_LOOKAHEAD_VIEWS;
        }
        let now = self.parts.live.view().0;
        epoch == current
            && view.0.saturating_add(TAIL_VIEWS) >= now
            && self.parts.committees.of(epoch).steps(View(now), view) <= PROPOSAL_LOOKAHEAD_VIEWS
    }

    fn pass_on(&self, from: ValidatorIndex, messages: Vec<Message>, size: usize, across: bool) {
        // Into the same memory: a frame comes for each vote.
        let left = messages.into_iter().filter_map(|message| {
            match message {
                // The newest blocks are in the replica's memory only.
                Message::BlockRequest(id) => {
                    self.replica(from, REQUEST_BYTES, |queued| Event::Wanted {
                        from,
                        id,
                        queued,
                    });
                }
                Message::RangeRequest(height) => self.ask(from, Request::Range(height)),
                Message::FollowRequest(height) => self.ask(from, Request::Follow(height)),
                Message::SnapshotRequest => self.ask(from, Request::Snapshot),
                Message::ChunkRequest(request) => self.ask(from, Request::Chunk(request)),
                Message::HandoverRequest(after) => self.ask(from, Request::Handovers(after)),
                Message::Bundle(bundle) => {
                    if let Some(payloads) = &self.parts.payloads {
                        for _ in 0..payloads.receive(from.into(), *bundle) {
                            self.parts.metrics.dropped("bundle_queue_full");
                        }
                    }
                }
                Message::BundleRequest(digest) => {
                    let payloads = self.parts.payloads.as_ref();
                    if payloads.is_some_and(|payloads| !payloads.ask(from.into(), digest)) {
                        self.parts.metrics.dropped("request_queue_full");
                    }
                }
                Message::Transactions(transactions) => {
                    for _ in 0..self
                        .parts
                        .transactions
                        .send(from.into(), size, transactions)
                    {
                        self.parts.metrics.dropped("transaction_queue_full");
                    }
                }
                Message::Relayed(relayed) => self.relayed(from, *relayed),
                other => return Some(other),
            }
            None
        });
        let protocol: Vec<Message> = left.collect();
        if protocol.is_empty() {
            return;
        }
        self.replica(from, size, |queued| Event::Frame {
            from,
            messages: protocol,
            across,
            queued,
        });
    }

    fn ask(&self, from: ValidatorIndex, request: Request) {
        if !self.parts.requests.ask(from.into(), request) {
            self.parts.metrics.dropped("request_queue_full");
        }
    }

    fn replica(&self, from: ValidatorIndex, bytes: usize, event: impl FnOnce(Queued) -> Event) {
        match Queued::new(&self.accounts[from.as_usize()], bytes) {
            // The channel closes only when the node ends.
            Some(queued) => drop(self.parts.replica.send(event(queued))),
            None => self.parts.metrics.dropped("replica_queue_full"),
        }
    }
}

/// The lane of a kind of message.
pub(crate) fn lane_of(message: &Message) -> Lane {
    match message {
        // A status travels with votes.
        Message::Proposal(_)
        | Message::Vote(_)
        | Message::Certificate(_)
        | Message::Status(_)
        | Message::Apart(_)
        | Message::Relayed(_) => Lane::Votes,
        Message::BlockRequest(_)
        | Message::BlockReply(_)
        | Message::RangeRequest(_)
        | Message::RangeReply { .. }
        | Message::Pruned { .. }
        | Message::CertificateRequest { .. }
        | Message::SnapshotRequest
        | Message::SnapshotReply(_)
        | Message::ChunkRequest(_)
        | Message::ChunkReply { .. }
        | Message::FollowRequest(_)
        | Message::HandoverRequest(_)
        | Message::HandoverReply { .. }
        | Message::BundleRequest(_) => Lane::Fetch,
        Message::Transactions(_) | Message::Bundle(_) => Lane::Transactions,
        Message::Evidence(_) | Message::Inquiry(_) | Message::Standing(_) => Lane::Control,
    }
}

/// The same by a message's head; `None` for an unknown kind.
pub(crate) fn lane_of_head(head: Head) -> Option<Lane> {
    Some(match head {
        Head::Proposal { .. }
        | Head::Vote
        | Head::Certificate
        | Head::Status
        | Head::Apart
        | Head::Relayed { .. } => Lane::Votes,
        Head::BlockRequest
        | Head::BlockReply { .. }
        | Head::RangeRequest
        | Head::RangeReply { .. }
        | Head::Pruned { .. }
        | Head::CertificateRequest
        | Head::SnapshotRequest
        | Head::SnapshotReply
        | Head::ChunkRequest
        | Head::ChunkReply
        | Head::FollowRequest
        | Head::HandoverRequest
        | Head::HandoverReply
        | Head::BundleRequest => Lane::Fetch,
        Head::Transactions { .. } | Head::Bundle => Lane::Transactions,
        Head::Evidence | Head::Inquiry | Head::Standing => Lane::Control,
        Head::Unknown { .. } => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::testing::Hand,
        directory::Directory,
        ingest::FORWARDED,
        serve::{Unanswered, WaitingRequests, requests},
        turns::{TurnReceiver, turns},
    };
    use commonware_codec::Encode as _;
    use crossbeam_channel::Receiver;
    use quorate_crypto::SecretKey;
    use quorate_types::{
        Block, ChainId, Digest, Header, Height, Proposal, Status, limits::MAX_FRAME_MESSAGES,
    };

    const PEER: ValidatorIndex = ValidatorIndex(1);

    /// A node that follows the validator.
    const FOLLOWER: Identity = Identity([9; 32]);

    struct Scene {
        inlet: Inlet,
        asked: Arc<Asked>,
        events: Receiver<Event>,
        requests: WaitingRequests,
        forwarded: TurnReceiver<Vec<Transaction>>,
        clock: Arc<Hand>,
        metrics: Arc<NodeMetrics>,
    }

    fn scene() -> Scene {
        let identities = (0..4).map(|i| Identity([i; 32])).collect();
        let committees = Committees::fixed(
            quorate_types::Committee::new(Epoch(0), identities).expect("distinct"),
        );
        let registry = prometheus::Registry::new();
        let metrics = Arc::new(NodeMetrics::register(&registry).expect("empty"));
        let clock = Arc::new(Hand::default());
        let live = Arc::new(LiveStatus::new(committees.clone(), ValidatorIndex(0)));
        let asked = Arc::new(Asked::new(committees.known().size()));
        let (replica, events) = crossbeam_channel::unbounded();
        let peers = Directory::of_validator(committees.known(), &[FOLLOWER]);
        let (to_server, waiting) = requests(&peers, Unanswered::default());
        let (transactions, forwarded) = turns(committees.known().size() + 1, FORWARDED);
        let conduct = Arc::new(Conduct::new(
            committees.clone(),
            clock.clone(),
            metrics.clone(),
            live.clone(),
            Arc::new(|_, _| {}),
        ));
        let key = SecretKey::from_bytes(&[0; 32]);
        let own = (ValidatorIndex(0), key);
        let across = Across::new(ChainId(Digest::ZERO), committees.clone(), own, &*clock);
        let followers = FollowerInlet::new(
            peers,
            clock.clone(),
            conduct.clone(),
            (to_server.clone(), transactions.clone()),
            metrics.clone(),
            false,
        );
        let inlet = Inlet::new(InletParts {
            committees,
            followers,
            clock: clock.clone(),
            live,
            conduct,
            asked: asked.clone(),
            replica,
            requests: to_server,
            transactions,
            metrics: metrics.clone(),
            payloads: None,
            across: Arc::new(across),
            wire: Arc::new(|_, _, _| {}),
        });
        Scene {
            inlet,
            asked,
            events,
            requests: waiting,
            forwarded,
            clock,
            metrics,
        }
    }

    impl Scene {
        fn receive(&self, lane: Lane, messages: Vec<Message>) {
            let bytes = Frame(messages).encode();
            self.inlet.receive(Identity([1; 32]), lane, bytes);
        }

        fn dropped(&self, reason: &str) -> u64 {
            self.metrics.dropped_so_far(reason)
        }
    }

    fn block(view: u64) -> Arc<Block> {
        let header = Header {
            chain: ChainId(Digest([1; 32])),
            epoch: Epoch(0),
            view: View(view),
            height: Height(77),
            parent: Digest([2; 32]),
            parent_view: View(view - 1),
            timestamp_ms: 5,
            executed_height: Height(70),
            state_root: Digest([4; 32]),
            body_root: Header::body_root_of(&[]),
        };
        Arc::new(Block::new(header, Vec::new()).expect("empty"))
    }

    fn proposal(view: u64) -> Message {
        Message::Proposal(Box::new(Proposal {
            epoch: Epoch(0),
            view: View(view),
            block: block(view),
            parent_certificate: None,
            certificates: Vec::new(),
        }))
    }

    #[test]
    fn an_answer_is_taken_once_and_only_from_whom_it_was_asked() {
        let scene = scene();
        let reply = || vec![Message::BlockReply(block(5))];
        scene.receive(Lane::Fetch, reply());
        assert_eq!(scene.dropped("unasked"), 1);
        let request = Message::BlockRequest(block(5).id());
        scene.asked.note(ValidatorIndex(2), &request);
        scene.receive(Lane::Fetch, reply());
        assert_eq!(scene.dropped("unasked"), 2);
        scene.asked.note(PEER, &request);
        scene.receive(Lane::Fetch, reply());
        assert!(matches!(scene.events.try_recv(), Ok(Event::Frame { .. })));
        scene.receive(Lane::Fetch, reply());
        assert_eq!(scene.dropped("unasked"), 3);
        assert!(scene.events.is_empty());
    }

    #[test]
    fn only_the_leader_proposes_and_few_proposals_are_far() {
        let scene = scene();
        scene.receive(Lane::Votes, vec![proposal(2)]);
        assert_eq!(scene.dropped("not_the_leader"), 1);
        scene.receive(Lane::Votes, vec![proposal(1)]);
        assert_eq!(scene.events.len(), 1);
        for far in 10..60 {
            scene.receive(Lane::Votes, vec![proposal(4 * far + 1)]);
        }
        assert_eq!(scene.events.len(), 1 + 32);
        assert_eq!(scene.dropped("too_many"), 18);
        scene.receive(Lane::Votes, vec![proposal(1)]);
        assert_eq!(scene.events.len(), 2 + 32, "near ones still pass");
    }

    #[test]
    fn what_is_too_much_is_dropped_until_there_are_tokens_again_and_is_no_fault() {
        let scene = scene();
        let status = Status {
            epoch: Epoch(0),
            view: View(3),
            finalized_height: Height(2),
            executed_height: Height(1),
            convicted: Digest::ZERO,
        };
        let many = || vec![Message::Status(status); MAX_FRAME_MESSAGES];
        for _ in 0..1_000 {
            scene.receive(Lane::Votes, many());
        }
        assert!(scene.events.is_empty());
        assert_eq!(scene.dropped("too_many"), 1_000);
        scene.receive(Lane::Votes, vec![Message::Status(status)]);
        assert!(scene.events.is_empty());
        scene.clock.0.store(1_000_000, Ordering::Relaxed);
        scene.receive(Lane::Votes, vec![Message::Status(status)]);
        assert_eq!(scene.events.len(), 1);
        assert_eq!(scene.inlet.parts.conduct.listening(PEER), Listening::Fully);
    }

    #[test]
    fn a_range_is_asked_for_once_at_a_time_and_requests_are_bounded() {
        let scene = scene();
        for _ in 0..10 {
            scene.receive(Lane::Fetch, vec![Message::RangeRequest(Height(7))]);
        }
        assert_eq!(
            scene
                .requests
                .bulk
                .take(PEER.as_usize())
                .map(|(from, _)| from),
            Some(PEER.into())
        );
        assert!(scene.requests.bulk.waiting().is_empty());
        let many = |from: u64| (from..from + 50).map(Height).map(Message::RangeRequest);
        scene.receive(Lane::Fetch, many(0).collect());
        scene.receive(Lane::Fetch, many(50).collect());
        assert_eq!(scene.dropped("too_many"), 1);
    }

    #[test]
    fn nothing_of_a_follower_reaches_the_replica() {
        let scene = scene();
        let from = |lane, messages: Vec<Message>| {
            let bytes = Frame(messages).encode();
            scene.inlet.receive(FOLLOWER, lane, bytes);
        };
        from(Lane::Fetch, vec![Message::FollowRequest(Height(7))]);
        from(Lane::Fetch, vec![Message::BlockRequest(Digest::ZERO)]);
        assert_eq!(scene.requests.bulk.waiting().len(), 1);
        assert_eq!(scene.requests.blocks.waiting(), [4]);
        from(Lane::Transactions, vec![Message::Transactions(Vec::new())]);
        assert!(!scene.forwarded.is_empty());
        for _ in 0..4 {
            from(Lane::Votes, vec![proposal(1)]);
        }
        from(
            Lane::Control,
            vec![Message::Inquiry(quorate_types::Nonce([0; 16]))],
        );
        assert_eq!(scene.dropped("misdirected"), 5);
        assert!(scene.events.is_empty());
        let conduct = &scene.inlet.parts.conduct;
        assert!(conduct.hears_follower(&FOLLOWER));
        for _ in 0..3 {
            from(Lane::Fetch, vec![proposal(1)]);
        }
        assert!(!conduct.hears_follower(&FOLLOWER), "eight faults");
        assert_eq!(conduct.listening(PEER), Listening::Fully);
        from(Lane::Fetch, vec![Message::RangeRequest(Height(7))]);
        assert_eq!(scene.dropped("cut"), 1);
        scene.clock.0.store(61_000_000, Ordering::Relaxed);
        assert!(conduct.hears_follower(&FOLLOWER));
    }

    #[test]
    fn validators_do_not_follow_each_other() {
        let scene = scene();
        scene.receive(Lane::Fetch, vec![Message::FollowRequest(Height(7))]);
        assert_eq!(scene.dropped("unknown_kind"), 1);
        assert!(scene.requests.bulk.waiting().is_empty());
    }

    #[test]
    fn nonsense_is_a_fault_and_an_unknown_kind_is_none() {
        let scene = scene();
        let unknown = Bytes::from_static(&[0, 0, 0, 1, 200, 1, 2, 3]);
        for _ in 0..1_000 {
            scene
                .inlet
                .receive(Identity([1; 32]), Lane::Votes, unknown.clone());
        }
        assert_eq!(scene.dropped("unknown_kind"), 1_000);
        assert_eq!(scene.inlet.parts.conduct.listening(PEER), Listening::Fully);
        for lane in [Lane::Fetch, Lane::Transactions, Lane::Control] {
            scene.receive(lane, vec![proposal(1)]);
        }
        assert_eq!(scene.dropped("wrong_lane"), 3);
        for _ in 0..10 {
            scene
                .inlet
                .receive(Identity([1; 32]), Lane::Votes, Bytes::from_static(b"junk"));
        }
        assert_eq!(scene.dropped("undecodable"), 5, "then it is cut");
        assert_eq!(scene.dropped("cut"), 5);
        assert!(scene.events.is_empty());
    }
}
