//! The threads that answer peers' requests for blocks and for parts of snapshots.
//!
//! Answers are large and requests are not, so bandwidth is divided here. A block that is requested
//! by its id may be what consensus waits for: such requests have a thread of their own, and each peer has a budget
//! for them. All else is *bulk*: ranges of blocks, and parts of a snapshot. A [`Shaper`] divides the
//! upload rate that the operator sets among the peers that fetch, by need: who votes already, or
//! requests what it has had, gets what the others' connections cannot take. While one peer's share is used up, or too
//! much of what it was sent is still unsent, its requests wait, and nobody else's. Nobody is
//! penalised for requesting too much: a validator that catches up requests again and again.
//!
//! A follower's request for blocks that do not exist yet waits until the next one is executed: one
//! request per follower, the newest.

mod had;
mod requests;

pub use requests::{Requests, Unanswered, WaitingRequests, requests};

use self::{
    had::Had,
    requests::{BlockRequests, BulkRequests},
};
use crate::{
    clock::Clock,
    directory::{Directory, PeerIndex},
    live::LiveStatus,
    metrics::NodeMetrics,
    outlet::{InFlight, Wire, send_to},
    snapshots::Snapshots,
};
use anyhow::Context;
use commonware_codec::{Encode, EncodeSize};
use quorate_consensus::Moment;
use quorate_lanes::{Bucket, Lane, Shaper, Waiting};
use quorate_storage::store::{Served, Store};
use quorate_types::{
    Block, Certificate, ChunkAnswer, ChunkRequest, Digest, Epoch, EpochLength, Height, Message,
    limits::{HANDOVER_REPLY_BYTES, MAX_RANGE_BLOCKS, RANGE_REPLY_BYTES},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

pub use quorate_lanes::Sharing;

/// Sustained bytes per second of blocks by their ids, to one peer: 90,000 transfers, more than it
/// can execute.
const BLOCK_BYTES_PER_SECOND: u64 = 16 << 20;

/// The burst on top of that: 64 full blocks.
const BLOCK_BURST_BYTES: u64 = 64 << 20;

/// The least price of a block, however small.
const BLOCK_PRICE_BYTES: usize = 2 << 10;

/// The least price of a part of a snapshot: all of it is read and hashed, even if only its changes
/// are sent.
const CHUNK_PRICE_BYTES: usize = 256 << 10;

/// Unsent bytes above which a peer is not served.
const IN_FLIGHT_BYTES: usize = 4 << 20;

/// How often it is checked whether a peer has read its answers.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// A peer's request.
#[derive(Clone, Debug)]
pub enum Request {
    /// A block by its id.
    Stored(Digest),
    /// A block that the replica holds in memory.
    Held(Arc<Block>),
    /// Finalised blocks from this height on.
    Range(Height),
    /// The same, as soon as there are any.
    Follow(Height),
    /// The newest snapshot.
    Snapshot,
    /// A part of a snapshot.
    Chunk(ChunkRequest),
    /// The changes of the validators after an epoch.
    Handovers(Epoch),
}

impl Request {
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Range(one), Self::Range(other)) => one == other,
            (Self::Follow(one), Self::Follow(other)) => one == other,
            (Self::Snapshot, Self::Snapshot) => true,
            (Self::Chunk(one), Self::Chunk(other)) => one == other,
            (Self::Handovers(one), Self::Handovers(other)) => one == other,
            (one, other) => one.block_id().is_some() && one.block_id() == other.block_id(),
        }
    }

    fn block_id(&self) -> Option<Digest> {
        match self {
            Self::Stored(id) => Some(*id),
            Self::Held(block) => Some(block.id()),
            Self::Range(_)
            | Self::Follow(_)
            | Self::Snapshot
            | Self::Chunk(_)
            | Self::Handovers(_) => None,
        }
    }

    /// Whether nothing but the requester's own progress waits for the answer, however large.
    fn is_bulk(&self) -> bool {
        matches!(
            self,
            Self::Range(_) | Self::Follow(_) | Self::Chunk(_) | Self::Handovers(_)
        )
    }
}

/// How much a validator sends to the peers that fetch from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upload {
    /// Bytes a second, to all together.
    pub bytes_per_second: u64,
    /// How it is divided.
    pub sharing: Sharing,
}

impl Default for Upload {
    fn default() -> Self {
        Self {
            bytes_per_second: 125_000_000,
            sharing: Sharing::default(),
        }
    }
}

/// What an answer is made from.
#[derive(Clone)]
pub struct Sources {
    pub store: Store,
    pub snapshots: Arc<Snapshots>,
    pub epoch_length: EpochLength,
    pub peers: Directory,
    /// Who votes.
    pub live: Arc<LiveStatus>,
}

/// Answers from the store, and from the replica's memory.
pub struct Server {
    pub blocks: Blocks,
    pub bulk: Bulk,
}

/// Answers requests that consensus may be waiting for.
pub struct Blocks {
    answers: Answers,
    requests: BlockRequests,
    budgets: Vec<Bucket>,
}

/// Answers all other requests. Making a part of a snapshot takes some milliseconds, so on a busy machine this goes on a
/// thread that yields to those of consensus.
pub struct Bulk {
    answers: Answers,
    requests: BulkRequests,
    shaper: Shaper,
    had: Vec<Had>,
    /// Followers that wait for the next final block, each with the height from which on.
    held: BTreeMap<PeerIndex, Height>,
    /// The newest block when `held` was last looked through.
    tip: Height,
    metrics: Arc<NodeMetrics>,
}

/// How answers are made and sent.
#[derive(Clone)]
struct Answers {
    sources: Sources,
    clock: Arc<dyn Clock>,
    wire: Wire,
    in_flight: InFlight,
}

impl Server {
    /// A server that divides its upload rate as `upload` says.
    pub fn new(
        sources: Sources,
        upload: Upload,
        clock: Arc<dyn Clock>,
        (wire, in_flight): (Wire, InFlight),
        requests: WaitingRequests,
        metrics: Arc<NodeMetrics>,
    ) -> Self {
        let size = sources.peers.size();
        let budget = Bucket::new(BLOCK_BYTES_PER_SECOND, BLOCK_BURST_BYTES);
        let answers = Answers {
            sources,
            clock,
            wire,
            in_flight,
        };
        Self {
            blocks: Blocks {
                answers: answers.clone(),
                requests: requests.blocks,
                budgets: vec![budget; size],
            },
            bulk: Bulk {
                answers,
                requests: requests.bulk,
                shaper: Shaper::new(size, upload.bytes_per_second, upload.sharing),
                had: (0..size).map(|_| Had::default()).collect(),
                held: BTreeMap::new(),
                tip: Height(0),
                metrics,
            },
        }
    }

    /// Sets what is known of a peer's connection from before, in bytes a second.
    pub fn set_ceiling(&mut self, peer: usize, ceiling: u64) {
        self.bulk.shaper.set_ceiling(peer, ceiling);
    }

    /// What the next parts have to answer.
    pub(crate) fn unanswered(&self) -> Unanswered {
        self.bulk.requests.unanswered()
    }

    /// When the next peer may be served, if any peer requests anything.
    pub fn due(&self) -> Option<Moment> {
        self.blocks.due().into_iter().chain(self.bulk.due()).min()
    }

    /// Answers the requests that may be answered now, on one thread.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    pub fn serve_waiting(&mut self) -> anyhow::Result<()> {
        self.bulk.take_up_held();
        loop {
            self.blocks.serve_waiting()?;
            if !self.bulk.serve_next()? {
                return Ok(());
            }
        }
    }
}

/// How long a thread waits for requests.
fn until(due: Option<Moment>, now: Moment) -> Option<Duration> {
    due.map(|due| due.since(now).clamp(Duration::from_millis(1), LOOK_AGAIN))
}

impl Blocks {
    /// Answers requests until the links are gone.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    pub fn run(mut self) -> anyhow::Result<()> {
        loop {
            self.serve_waiting()?;
            let limit = until(self.due(), self.answers.clock.now());
            if !self.requests.wait(limit) {
                return Ok(());
            }
        }
    }

    fn due(&self) -> Option<Moment> {
        let now = self.answers.clock.now();
        let waiting = self.requests.waiting().into_iter();
        let wait = waiting.map(|peer| self.budgets[peer].empty_for_us(now.0));
        Some(now.after(Duration::from_micros(wait.min()?)))
    }

    fn serve_waiting(&mut self) -> anyhow::Result<()> {
        loop {
            let now = self.answers.clock.now();
            let next = self.requests.take(|peer| {
                self.budgets[peer].empty_for_us(now.0) == 0 && self.answers.takes_more(peer)
            });
            let Some((from, request)) = next else {
                return Ok(());
            };
            let answer = self.answers.make(request)?;
            let price = answer.as_ref().map_or(BLOCK_PRICE_BYTES, price) as u64;
            self.budgets[from.as_usize()].spend(now.0, price);
            self.answers.send(from, answer);
        }
    }
}

impl Bulk {
    /// Answers requests until the links are gone.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    pub fn run(mut self) -> anyhow::Result<()> {
        loop {
            self.take_up_held();
            while self.serve_next()? {}
            let limit = until(self.due(), self.answers.clock.now());
            if !self.requests.wait(limit) {
                return Ok(());
            }
        }
    }

    fn due(&self) -> Option<Moment> {
        let now = self.answers.clock.now();
        let waiting = self.waiting();
        let wait = match self.shaper.wait_us(now.0, &waiting) {
            None if !waiting.is_empty() => Some(micros(LOOK_AGAIN)),
            wait => wait,
        };
        Some(now.after(Duration::from_micros(wait?)))
    }

    /// Answers one request, if one may be answered now.
    fn serve_next(&mut self) -> anyhow::Result<bool> {
        let now = self.answers.clock.now();
        let waiting = self.waiting();
        let next = self.shaper.choose(now.0, &waiting);
        let Some((from, request)) = next.and_then(|peer| self.requests.take(peer)) else {
            return Ok(false);
        };
        self.serve(from, request)?;
        Ok(true)
    }

    /// Requests of followers count as new once there is a block that they do not have.
    fn take_up_held(&mut self) {
        let tip = self.answers.sources.store.tip().height;
        if std::mem::replace(&mut self.tip, tip) < tip {
            self.requests.set_holds(false);
            for (peer, from) in std::mem::take(&mut self.held) {
                self.requests.follow_again(peer, from);
            }
        }
    }

    fn serve(&mut self, from: PeerIndex, request: Request) -> anyhow::Result<()> {
        let began = self.answers.clock.now();
        let followed = match request {
            Request::Follow(height) => {
                self.requests.set_holds(true);
                Some(height)
            }
            _ => None,
        };
        let answer = self.answers.make(request)?;
        match (followed, &answer) {
            (Some(height), None) => drop(self.held.insert(from, height)),
            (Some(height), Some(_)) => self.requests.answered(from, height),
            (None, _) => {}
        }
        let now = self.answers.clock.now();
        let bytes = answer.as_ref().map_or(0, EncodeSize::encode_size);
        let price = answer.as_ref().map_or(BLOCK_PRICE_BYTES, price) as u64;
        // Whoever takes up this thread pays for what the others could have been sent meanwhile.
        let busy = self.shaper.bytes_within(now.since(began));
        let place = from.as_usize();
        self.shaper
            .spend(place, now.0, bytes as u64, price.max(busy));
        let had = &mut self.had[place];
        match &answer {
            Some(Message::ChunkReply {
                request,
                answer: ChunkAnswer::Chunk(_),
            }) => {
                self.metrics.sync.served.inc_by(bytes as u64);
                if had.part(request) {
                    self.shaper.begins_again(place, now.0);
                }
            }
            Some(Message::RangeReply { blocks, .. }) => {
                if let Some(last) = blocks.last() {
                    had.range(last.height().next());
                }
            }
            _ => {}
        }
        self.answers.send(from, answer);
        Ok(())
    }

    fn waiting(&self) -> Vec<Waiting> {
        let sources = &self.answers.sources;
        let waiting = self.requests.waiting().into_iter();
        waiting
            .map(|(peer, next)| {
                let unsent = self.answers.unsent(peer);
                let place = sources.peers.validator(PeerIndex(peer));
                let votes = place.is_some_and(|place| sources.live.votes_now(place));
                let votes = votes && matches!(next, Request::Chunk(_));
                Waiting {
                    peer,
                    is_ready: unsent < IN_FLIGHT_BYTES,
                    unsent: unsent as u64,
                    is_scavenger: votes || self.had[peer].has(&next),
                    left: self.had[peer].left(),
                }
            })
            .collect()
    }
}

impl Answers {
    fn send(&self, to: PeerIndex, answer: Option<Message>) {
        if let (Some(identity), Some(message)) = (self.sources.peers.identity(to), answer) {
            send_to(&self.wire, identity, message);
        }
    }

    /// Bytes that a peer was sent, and that its connection has not taken.
    fn unsent(&self, peer: usize) -> usize {
        let identity = self.sources.peers.identities()[peer];
        (self.in_flight)(Lane::Fetch, &identity)
    }

    fn takes_more(&self, peer: usize) -> bool {
        self.unsent(peer) < IN_FLIGHT_BYTES
    }

    fn make(&self, request: Request) -> anyhow::Result<Option<Message>> {
        self.read(request).context("cannot answer a peer")
    }

    fn read(&self, request: Request) -> anyhow::Result<Option<Message>> {
        let Sources {
            store, snapshots, ..
        } = &self.sources;
        match request {
            Request::Held(block) => Ok(Some(Message::BlockReply(block))),
            Request::Stored(id) => {
                let Some(height) = store.height_of(&id)? else {
                    return Ok(None);
                };
                let block = store.block(height)?;
                Ok(block.map(|stored| Message::BlockReply(stored.block)))
            }
            Request::Range(from) => match range(store, self.sources.epoch_length, from)? {
                Some(blocks) => Ok(Some(blocks.into_message())),
                None => pruned(store, from),
            },
            Request::Follow(from) => match range(store, self.sources.epoch_length, from)? {
                Some(blocks) if blocks.is_of_use => Ok(Some(blocks.into_message())),
                Some(_) => Ok(None),
                None => pruned(store, from),
            },
            Request::Snapshot => {
                let newest = snapshots.offer();
                let proof = newest.map(|snapshot| Box::new(snapshot.proof.clone()));
                Ok(Some(Message::SnapshotReply(proof)))
            }
            Request::Chunk(request) => {
                let answer = chunk(snapshots, &request)?;
                Ok(Some(Message::ChunkReply { request, answer }))
            }
            Request::Handovers(after) => {
                let handovers = store.handovers(after, HANDOVER_REPLY_BYTES)?;
                Ok(Some(Message::HandoverReply { after, handovers }))
            }
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The price of an answer in bytes.
fn price(answer: &Message) -> usize {
    let blocks = match answer {
        Message::RangeReply { blocks, .. } => blocks.len(),
        Message::ChunkReply {
            answer: ChunkAnswer::Absent,
            ..
        } => 1,
        Message::ChunkReply { .. } => return answer.encode_size().max(CHUNK_PRICE_BYTES),
        _ => 1,
    };
    answer.encode_size().max(blocks * BLOCK_PRICE_BYTES)
}

pub(crate) fn chunk(snapshots: &Snapshots, request: &ChunkRequest) -> anyhow::Result<ChunkAnswer> {
    let Some(snapshot) = snapshots.at(request.height) else {
        return Ok(ChunkAnswer::Absent);
    };
    let served = snapshot.state.chunk(&request.span, request.since)?;
    Ok(match served {
        Served::Chunk(chunk) => ChunkAnswer::Chunk(chunk.encode()),
        Served::TooMany => ChunkAnswer::TooMany,
    })
}

/// Word that a block is not kept any longer.
fn pruned(store: &Store, from: Height) -> anyhow::Result<Option<Message>> {
    let oldest = store.pruned_below()?;
    Ok((from < oldest).then_some(Message::Pruned { from, oldest }))
}

/// Consecutive blocks.
struct Range {
    blocks: Vec<Arc<Block>>,
    /// The last one's finalization.
    finalization: Option<Certificate>,
    /// Whether they end in a finalization, or there is no room for one.
    is_of_use: bool,
}

impl Range {
    fn into_message(self) -> Message {
        Message::RangeReply {
            blocks: self.blocks,
            finalization: self.finalization,
        }
    }
}

/// Consecutive blocks up to the last one with a finalization of its own, within the limits and the
/// epoch: the receiver verifies with the keys of the epoch that it is in.
fn range(store: &Store, epoch_length: EpochLength, from: Height) -> anyhow::Result<Option<Range>> {
    let mut blocks = Vec::new();
    let mut finalization = None;
    let mut closed = 0;
    let mut bytes = 0;
    let mut height = from;
    while blocks.len() < MAX_RANGE_BLOCKS && bytes < RANGE_REPLY_BYTES {
        let Some(stored) = store.block(height)? else {
            break;
        };
        bytes += stored.block.encode_size();
        blocks.push(stored.block);
        if stored.certificate.is_some() {
            finalization = stored.certificate;
            closed = blocks.len();
        }
        if epoch_length.is_last(height) {
            break;
        }
        height = height.next();
    }
    let is_full = blocks.len() >= MAX_RANGE_BLOCKS || bytes >= RANGE_REPLY_BYTES;
    if closed > 0 {
        blocks.truncate(closed);
    }
    Ok((!blocks.is_empty()).then_some(Range {
        blocks,
        is_of_use: finalization.is_some() || is_full,
        finalization,
    }))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{clock::testing::Hand, serve::requests::LIMITS, testing::chain};
    use parking_lot::Mutex;
    use quorate_lanes::To;
    use quorate_types::{ChainId, Committees, Epoch, Header, Memo, Transaction, Transfer, View};
    use std::{
        collections::BTreeMap,
        sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    };

    struct Scene {
        server: Server,
        requests: Requests,
        clock: Arc<Hand>,
        in_flight: Arc<AtomicUsize>,
        /// Answers to each, and their bytes.
        sent: Arc<Mutex<BTreeMap<usize, (usize, usize)>>>,
        _directory: tempfile::TempDir,
    }

    fn scene() -> Scene {
        let clock = Arc::new(Hand::default());
        scene_with(clock.clone(), clock)
    }

    /// `seen` is the clock that the server reads, `clock` the one that sets it.
    fn scene_with(clock: Arc<Hand>, seen: Arc<dyn Clock>) -> Scene {
        let directory = tempfile::tempdir().expect("a directory");
        let (genesis, store) = chain(directory.path());
        let committees = Committees::fixed(genesis.committee().expect("a committee"));
        let sent: Arc<Mutex<BTreeMap<usize, (usize, usize)>>> = Arc::default();
        let (noted, places) = (sent.clone(), committees.clone());
        let wire: crate::outlet::Wire = Arc::new(move |_, to, bytes| {
            let To::One(identity) = to else { return };
            let place = places.known().place(identity).expect("a member").as_usize();
            let mut noted = noted.lock();
            let (answers, sum) = noted.entry(place).or_default();
            *answers += 1;
            *sum += bytes.len();
        });
        let in_flight = Arc::new(AtomicUsize::new(0));
        let waits = in_flight.clone();
        let first = committees.known().identities()[0];
        let flight: InFlight = Arc::new(move |_, identity| match *identity == first {
            true => waits.load(Relaxed),
            false => 0,
        });
        let (requests, receiver) = requests(
            &Directory::of_validator(committees.known(), &[]),
            Unanswered::default(),
        );
        let metrics = NodeMetrics::register(&prometheus::Registry::new()).expect("empty");
        let metrics = Arc::new(metrics);
        let server = Server::new(
            Sources {
                store,
                snapshots: Arc::new(Snapshots::new(seen.clone())),
                epoch_length: EpochLength::DEFAULT,
                live: Arc::new(LiveStatus::new(
                    committees.clone(),
                    quorate_types::ValidatorIndex(0),
                )),
                peers: Directory::of_validator(committees.known(), &[]),
            },
            Upload::default(),
            seen,
            (wire, flight),
            receiver,
            metrics,
        );
        Scene {
            server,
            requests,
            clock,
            in_flight,
            sent,
            _directory: directory,
        }
    }

    /// A block of a megabyte.
    fn block(view: u64) -> Arc<Block> {
        let transaction = |nonce| {
            let transfer = Transfer {
                chain_tag: [1; 8],
                sender: quorate_types::Identity([1; 32]),
                nonce,
                to: quorate_types::Identity([2; 32]),
                amount: 1,
                fee: 1,
                memo: Memo::new([7; 4_096]).expect("as long as it may be"),
            };
            Transaction::new(transfer, quorate_types::IdentitySignature([3; 64]))
        };
        let transactions: Vec<_> = (0..240).map(transaction).collect();
        let header = Header {
            chain: ChainId(Digest([1; 32])),
            epoch: Epoch(0),
            view: View(view),
            height: Height(view),
            parent: Digest([2; 32]),
            parent_view: View(view - 1),
            timestamp_ms: 5,
            executed_height: Height(0),
            state_root: Digest([4; 32]),
            body_root: Header::body_root_of(&transactions),
        };
        Arc::new(Block::new(header, transactions).expect("within limits"))
    }

    #[test]
    fn who_asks_for_much_waits_for_its_budget_and_others_do_not() {
        let mut scene = scene();
        let blocks: Vec<_> = (1..=4).map(block).collect();
        let (greedy, modest) = (PeerIndex(1), PeerIndex(2));
        for _ in 0..50 {
            for block in &blocks {
                scene.requests.ask(greedy, Request::Held(block.clone()));
            }
            scene.server.serve_waiting().expect("nothing is read");
        }
        let (answers, bytes) = scene.sent.lock()[&1];
        assert!(
            (BLOCK_BURST_BYTES as usize..BLOCK_BURST_BYTES as usize + (2 << 20)).contains(&bytes)
        );
        assert!(answers < 80, "{answers}");
        scene.requests.ask(modest, Request::Held(blocks[0].clone()));
        scene.server.serve_waiting().expect("nothing is read");
        assert_eq!(scene.sent.lock()[&2].0, 1);
        let due = scene.server.due().expect("the greedy one waits");
        assert!(due > scene.clock.now());
        scene.clock.0.store(due.0, Relaxed);
        scene.server.serve_waiting().expect("nothing is read");
        assert_eq!(scene.sent.lock()[&1].0, answers + 1);
    }

    #[test]
    fn who_does_not_read_its_answers_gets_no_more() {
        let mut scene = scene();
        let reader = PeerIndex(0);
        scene.in_flight.store(IN_FLIGHT_BYTES, Relaxed);
        scene.requests.ask(reader, Request::Held(block(1)));
        scene.server.serve_waiting().expect("nothing is read");
        assert!(scene.sent.lock().is_empty());
        scene.in_flight.store(IN_FLIGHT_BYTES - 1, Relaxed);
        scene.server.serve_waiting().expect("nothing is read");
        assert_eq!(scene.sent.lock()[&0].0, 1);
    }

    /// A clock that is read once before the time passes that a read takes.
    struct WhileReading {
        clock: Arc<Hand>,
        takes_us: AtomicU64,
    }

    impl Clock for WhileReading {
        fn now(&self) -> Moment {
            let now = self.clock.now();
            let passes = self.takes_us.swap(0, Relaxed);
            self.clock.0.fetch_add(passes, Relaxed);
            now
        }

        fn wall_ms(&self) -> u64 {
            self.clock.wall_ms()
        }
    }

    #[test]
    fn who_makes_the_server_read_for_long_waits_as_if_it_had_been_sent_bytes() {
        let waits_after = |takes_us| {
            let clock = Arc::new(Hand::default());
            let seen = Arc::new(WhileReading {
                clock: clock.clone(),
                takes_us: AtomicU64::new(0),
            });
            let mut scene = scene_with(clock.clone(), seen.clone());
            let request = Request::Range(Height(1_000));
            seen.takes_us.store(takes_us, Relaxed);
            let served = scene.server.bulk.serve(PeerIndex(1), request.clone());
            served.expect("nothing is read");
            scene.requests.ask(PeerIndex(1), request);
            scene.server.due().expect("it waits") > clock.now()
        };
        assert!(!waits_after(0));
        assert!(waits_after(1_000_000));
    }

    #[test]
    fn a_request_of_a_follower_is_unanswered_until_there_is_a_block() {
        let mut chain = crate::sync::tests::Source::new(10);
        let mut scene = scene();
        scene.server.bulk.answers.sources.store = chain.store.clone();
        let follower = PeerIndex(1);
        let unanswered = |server: &Server| {
            let peers = server.bulk.answers.sources.peers.clone();
            let (_, next) = requests(&peers, server.unanswered());
            next.bulk.waiting().len()
        };
        scene.requests.ask(follower, Request::Follow(Height(1)));
        scene.server.serve_waiting().expect("it reads");
        assert_eq!(unanswered(&scene.server), 1);
        chain.grow(3, |_| vec![1]);
        scene.clock.0.store(1_000_000, Relaxed);
        scene.server.serve_waiting().expect("it reads");
        assert_eq!(scene.sent.lock()[&1].0, 1);
        assert_eq!(unanswered(&scene.server), 0);
    }

    #[test]
    fn the_same_request_waits_once_and_a_queue_has_an_end() {
        let scene = scene();
        let peer = PeerIndex(3);
        for _ in 0..1_000 {
            assert!(scene.requests.ask(peer, Request::Range(Height(1))));
            assert!(scene.requests.ask(peer, Request::Stored(Digest([1; 32]))));
        }
        for height in 2..=LIMITS.peer_items as u64 {
            assert!(scene.requests.ask(peer, Request::Range(Height(height))));
        }
        assert!(!scene.requests.ask(peer, Request::Range(Height(1_000))));
        let other = PeerIndex(2);
        assert!(scene.requests.ask(other, Request::Range(Height(1_000))));
    }
}
