//! State sync from peers of all kinds, in virtual time.

use super::*;
use crate::{
    accounts::Accounts,
    clock::testing::Hand,
    executor::{Executor, ExecutorHandle},
    keeper,
    mempool::{Dropped, Mempool, MempoolLimits},
    metrics::NodeMetrics,
    serve::chunk,
    snapshots::{SnapshotTaker, Snapshots},
};
use commonware_codec::Encode;
use parking_lot::Mutex;
use quorate_consensus::Finalized;
use quorate_crypto::{SecretKey, bls::Proof, sha256};
use quorate_lanes::To;
use quorate_storage::tree::CHUNK_MAX_ENTRIES;
use quorate_types::{
    Account, BondAddress, Committees, Digest, Epoch, EpochLength, Header, IdentitySignature, Memo,
    Subject, TRANSACTION_NAMESPACE, Transaction, Transfer, View, VoteKind,
    genesis::{
        ApplicationKind, BlockLimits, Fees, Genesis, GenesisAccount, GenesisValidator, Protocol,
    },
};
use std::sync::atomic::Ordering::Relaxed;
use tempfile::TempDir;

/// Enough for a dozen parts.
const ACCOUNTS: u64 = 80_000;

/// Blocks between snapshots.
const INTERVAL: u64 = 10;

fn identity(number: u64) -> Identity {
    Identity(sha256(&[&number.to_be_bytes()]).0)
}

/// A payer without money, who can sign.
const WITH_KEY: u64 = 1_000_000_000;

fn key() -> SecretKey {
    SecretKey::from_bytes(&[9; 32])
}

fn genesis(accounts: u64) -> Genesis {
    let validators = (0u8..4).map(|place| GenesisValidator {
        identity: SecretKey::from_bytes(&[place + 1; 32]).identity(),
        vote_key: String::new(),
        proof_of_possession: None,
        stake: 0,
        address: BondAddress::default(),
    });
    Genesis {
        name: "sync".to_owned(),
        timestamp_ms: 1,
        protocol: Protocol::Simplex,
        application: ApplicationKind::Ledger,
        scheme: "bls-threshold".to_owned(),
        limits: BlockLimits {
            max_transactions: 2_000,
            max_bytes: 1_000_000,
        },
        fees: Fees::NONE,
        epoch_blocks: EpochLength::DEFAULT,
        group_key: None,
        registry: None,
        validators: validators.collect(),
        accounts: (0..accounts)
            .map(|number| GenesisAccount {
                identity: identity(number),
                balance: 1_000_000,
            })
            .collect(),
    }
}

/// A validator that has the chain.
pub(crate) struct Source {
    pub(crate) genesis: Genesis,
    pub(crate) store: Store,
    executor: Executor,
    handle: ExecutorHandle,
    snapshots: Arc<Snapshots>,
    header: Header,
    pub(crate) blocks: Vec<Arc<Block>>,
    nonces: std::collections::BTreeMap<u64, u64>,
    _folder: TempDir,
}

pub(crate) fn committees(genesis: &Genesis) -> Committees {
    Committees::fixed(genesis.committee().expect("four"))
}

pub(crate) fn metrics() -> Arc<NodeMetrics> {
    Arc::new(NodeMetrics::register(&prometheus::Registry::new()).expect("empty"))
}

impl Source {
    pub(crate) fn new(accounts: u64) -> Self {
        let genesis = genesis(accounts);
        let folder = tempfile::tempdir().expect("a directory");
        let (store, tree) = Store::open(&folder.path().join("db"), &genesis).expect("a store");
        let snapshots = Arc::new(Snapshots::new(Arc::new(Hand::default())));
        let (executor, handle) = Executor::new(
            Accounts::new(store.clone()),
            (store.clone(), tree),
            SnapshotTaker::new(snapshots.clone(), INTERVAL, false),
            (committees(&genesis), crate::ledger::Rules::of(&genesis)),
            None,
            (Box::new(|_| {}), Box::new(|| None)),
            metrics(),
        )
        .expect("a new database");
        let header = Header {
            chain: genesis.chain_id(),
            epoch: Epoch(0),
            view: View(0),
            height: Height(0),
            parent: Digest::ZERO,
            parent_view: View(0),
            timestamp_ms: 1,
            executed_height: Height(0),
            state_root: handle.root_at(Height(0)).expect("the genesis state"),
            body_root: Header::body_root_of(&[]),
        };
        Self {
            genesis,
            store,
            executor,
            handle,
            snapshots,
            header,
            blocks: Vec::new(),
            nonces: Default::default(),
            _folder: folder,
        }
    }

    /// Blocks in which these accounts pay a new one each. Every third has a finalization, and headers
    /// name the state of two blocks before, or three.
    pub(crate) fn grow(&mut self, blocks: u64, payers: impl Fn(u64) -> Vec<u64>) {
        for _ in 0..blocks {
            let above = self.header;
            let height = above.height.next();
            let payers = payers(height.0);
            let transactions: Vec<_> = payers.iter().map(|payer| self.transfer(*payer)).collect();
            let lag = 2 + height.0 % 2;
            let executed = Height(height.0.saturating_sub(lag)).max(above.executed_height);
            self.header = Header {
                view: above.view.next(),
                height,
                parent: match above.height {
                    Height(0) => Digest::ZERO,
                    _ => above.id(),
                },
                parent_view: above.view,
                timestamp_ms: above.timestamp_ms + 1,
                executed_height: executed,
                state_root: self.handle.root_at(executed).expect("it is executed"),
                body_root: Header::body_root_of(&transactions),
                ..above
            };
            let block = Arc::new(Block::new(self.header, transactions).expect("within limits"));
            self.blocks.push(block.clone());
            let certificate = height.0.is_multiple_of(3).then(|| finalization(&block));
            self.handle.submit(vec![Finalized { block, certificate }]);
            self.executor.run_waiting().expect("it executes");
        }
    }

    fn transfer(&mut self, payer: u64) -> Transaction {
        let nonce = self.nonces.entry(payer).or_default();
        let transfer = Transfer {
            chain_tag: [1; 8],
            sender: match payer {
                WITH_KEY => key().identity(),
                _ => identity(payer),
            },
            nonce: *nonce,
            to: identity(1_000_000 + payer * 1_000 + *nonce),
            amount: 1,
            fee: 0,
            memo: Memo::default(),
        };
        *nonce += 1;
        Transaction::new(transfer, IdentitySignature([3; 64]))
    }

    fn block(&self, id: &Digest) -> Option<Arc<Block>> {
        self.blocks.iter().find(|block| block.id() == *id).cloned()
    }
}

pub(crate) const VALID: Proof = Proof::Threshold([7; 48]);

pub(crate) fn finalization(block: &Block) -> Certificate {
    Certificate {
        subject: Subject {
            epoch: block.header().epoch,
            view: block.header().view,
            kind: VoteKind::Finalize,
            payload: block.id(),
        },
        proof: VALID,
    }
}

/// How a peer answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    Honest,
    /// Takes this many milliseconds for each answer.
    Slow(u64),
    Silent,
    /// Flips a bit in every part.
    Garbage,
    /// Sends the part of another span.
    WrongPart,
    /// Leaves out the last entry of changes; whole parts are right.
    ForgedChanges,
    /// Says that every part has too many entries.
    TooMany,
    /// Says that it does not have what it offered.
    Absent,
    /// Offers a state that no quorum has certified.
    ForgedSnapshot,
    /// Offers nothing.
    Nothing,
    /// Offers the newest state and sends nothing of it.
    Lure,
    /// Has no newer state than that before the newest.
    Behind,
    /// Offers that state and sends nothing of it.
    LureOfOlder,
    /// Has the newest state only.
    OnlyNewest,
    /// Does not receive the request for a part of this number.
    Loses(usize),
    /// Sends twice as wide a part as was requested.
    Wider,
    /// Sends a part every ten seconds, and says of all others that they have too many entries.
    Trickle,
}

/// Messages that were sent, and to whom.
type Sent = Arc<Mutex<Vec<(usize, Message)>>>;

struct World {
    folder: TempDir,
    genesis: Genesis,
    clock: Arc<Hand>,
    sent: Sent,
    cut: Arc<Mutex<Vec<Identity>>>,
    sync: Option<StateSync>,
    /// Requests, and when their answers arrive.
    arriving: Vec<(Moment, usize, Message)>,
    busy: [Moment; 4],
    /// Bytes of parts that each peer has sent.
    bytes: [usize; 4],
    requests: usize,
    /// Whether parts are written when they are waited for, as late as a disk may.
    saves_late: bool,
    /// When a part has trickled last.
    trickled: Moment,
}

/// Writes when it is waited for.
struct SaveLate(Store, Option<Save>);

impl Saver for SaveLate {
    fn begin(&mut self, save: Save) -> anyhow::Result<()> {
        self.1 = Some(save);
        Ok(())
    }

    fn is_busy(&self) -> bool {
        self.1.is_some()
    }

    fn wait(&mut self) -> anyhow::Result<()> {
        match self.1.take() {
            Some(save) => Ok(self.0.write_save(&save)?),
            None => Ok(()),
        }
    }
}

impl World {
    fn new(genesis: &Genesis) -> Self {
        let mut world = Self {
            folder: tempfile::tempdir().expect("a directory"),
            genesis: genesis.clone(),
            clock: Arc::new(Hand::default()),
            sent: Sent::default(),
            cut: Arc::default(),
            sync: None,
            arriving: Vec::new(),
            busy: [Moment(0); 4],
            bytes: [0; 4],
            requests: 0,
            saves_late: false,
            trickled: Moment(0),
        };
        world.start();
        world
    }

    fn open(&self) -> Store {
        let path = self.folder.path().join("db");
        Store::open(&path, &self.genesis).expect("a store").0
    }

    /// Starts, or starts again.
    fn start(&mut self) {
        self.sync = None;
        self.arriving.clear();
        self.sent.lock().clear();
        let places = committees(&self.genesis);
        let (sent, known) = (self.sent.clone(), places.clone());
        let cut = self.cut.clone();
        let store = self.open();
        let sync = StateSync::new(SyncParts {
            chain: self.genesis.chain_id(),
            peers: Directory::of_validator(places.known(), &[]),
            own: Some(PeerIndex(0)),
            faults: places.known().faults(),
            saver: match self.saves_late {
                true => Box::new(SaveLate(store.clone(), None)),
                false => Box::new(SaveInPlace(store.clone())),
            },
            store,
            clock: self.clock.clone(),
            wire: Arc::new(move |_, to, bytes| {
                let To::One(identity) = to else { return };
                let place = known.known().place(identity).expect("a member");
                let frame = Frame::decode(bytes).expect("a frame");
                let messages = frame.0.into_iter().map(|m| (place.as_usize(), m));
                sent.lock().extend(messages);
            }),
            cut: Arc::new(move |identity, _| cut.lock().push(identity)),
            verify: Box::new(|certificate| certificate.proof == VALID),
            validators: None,
            may_ask: None,
        });
        let mut sync = sync.expect("it can be read");
        for identity in &places.known().identities()[1..] {
            sync.linked(*identity, true);
        }
        self.sync = Some(sync);
    }

    fn sync(&mut self) -> &mut StateSync {
        self.sync.as_mut().expect("it runs")
    }

    /// Lets 5 ms pass.
    fn step(&mut self, source: &Source, manners: [Manner; 3]) {
        let now = Moment(self.clock.0.load(Relaxed) + 5_000);
        self.clock.0.store(now.0, Relaxed);
        let sent = std::mem::take(&mut *self.sent.lock());
        for (peer, message) in sent {
            let takes = match manners[peer - 1] {
                Slow(takes) => takes,
                _ => 20,
            };
            self.busy[peer] = self.busy[peer].max(now).after(Duration::from_millis(takes));
            self.arriving.push((self.busy[peer], peer, message));
        }
        let (due, later) = std::mem::take(&mut self.arriving)
            .into_iter()
            .partition::<Vec<_>, _>(|(at, ..)| *at <= now);
        self.arriving = later;
        for (_, peer, message) in due {
            let Some(message) = self.answer(source, manners[peer - 1], message) else {
                continue;
            };
            if let Message::ChunkReply { answer, .. } = &message {
                self.bytes[peer] += commonware_codec::EncodeSize::encode_size(answer);
            }
            let identity = committees(&self.genesis).known().identities()[peer];
            let bytes = Frame(vec![message]).encode();
            self.sync().receive(identity, bytes).expect("no disk fails");
        }
        self.sync().tick().expect("no disk fails");
    }

    fn answer(&mut self, source: &Source, manner: Manner, message: Message) -> Option<Message> {
        let snapshots = &source.snapshots;
        match (message, manner) {
            (_, Manner::Silent)
            | (Message::ChunkRequest(_), Manner::Lure | Manner::LureOfOlder) => None,
            (Message::SnapshotRequest, Manner::Behind | Manner::LureOfOlder) => {
                let height = snapshots.heights().into_iter().rev().nth(1)?;
                let older = snapshots.at(height)?;
                Some(Message::SnapshotReply(Some(Box::new(older.proof.clone()))))
            }
            (Message::SnapshotRequest, Manner::Nothing) => Some(Message::SnapshotReply(None)),
            (Message::SnapshotRequest, _) => {
                let newest = snapshots.newest()?;
                let mut proof = newest.proof.clone();
                if manner == Manner::ForgedSnapshot {
                    proof.finalization.proof = Proof::Threshold([8; 48]);
                }
                Some(Message::SnapshotReply(Some(Box::new(proof))))
            }
            (Message::ChunkRequest(_), Manner::Loses(number)) if self.requests == number => {
                self.requests += 1;
                None
            }
            (Message::ChunkRequest(request), _) => {
                self.requests += 1;
                let mut asked = request;
                if manner == Manner::WrongPart && request.span.bits() > 0 {
                    let mut key = *request.span.first();
                    key[0] ^= 0x80;
                    asked.span = Span::of(&key, request.span.bits()).expect("as many bits");
                }
                if manner == Manner::Wider && request.span.bits() > 0 {
                    let wider = Span::of(request.span.first(), request.span.bits() - 1);
                    asked.span = wider.expect("fewer bits");
                }
                let mut answer = chunk(snapshots, &asked).expect("it can be read");
                match (&mut answer, manner) {
                    (answer, Manner::Absent) => *answer = ChunkAnswer::Absent,
                    (answer, Manner::OnlyNewest)
                        if Some(request.height) != snapshots.heights().last().copied() =>
                    {
                        *answer = ChunkAnswer::Absent;
                    }
                    (answer, Manner::TooMany) => *answer = ChunkAnswer::TooMany,
                    (answer, Manner::Trickle) => {
                        let now = Moment(self.clock.0.load(Relaxed));
                        if now < self.trickled.after(Duration::from_secs(10)) {
                            *answer = ChunkAnswer::TooMany;
                        } else {
                            self.trickled = now;
                        }
                    }
                    (ChunkAnswer::Chunk(bytes), Manner::Garbage) => {
                        let mut changed = bytes.to_vec();
                        let last = changed.len() - 1;
                        changed[last] ^= 1;
                        *bytes = changed.into();
                    }
                    (ChunkAnswer::Chunk(bytes), Manner::ForgedChanges) if asked.since.0 > 0 => {
                        let mut changed = bytes.to_vec();
                        let last = changed.len() - 1;
                        changed[last] ^= 1;
                        *bytes = changed.into();
                    }
                    _ => {}
                }
                Some(Message::ChunkReply { request, answer })
            }
            (Message::BlockRequest(id), _) => source.block(&id).map(Message::BlockReply),
            _ => None,
        }
    }

    /// A link is lost with all that was on its way, and made again.
    fn relink(&mut self, peer: usize) {
        self.sent.lock().retain(|(to, _)| *to != peer);
        self.arriving.retain(|(_, from, _)| *from != peer);
        let identity = committees(&self.genesis).known().identities()[peer];
        for up in [false, true] {
            self.sync().linked(identity, up);
        }
    }

    /// Runs until it is done. Returns the milliseconds that it took.
    fn finish(&mut self, source: &Source, manners: [Manner; 3]) -> u64 {
        let start = self.clock.0.load(Relaxed);
        while !self.sync().is_done() {
            let passed = (self.clock.0.load(Relaxed) - start) / 1_000;
            assert!(passed < 120_000, "{:?}", self.sync().progress());
            self.step(source, manners);
        }
        (self.clock.0.load(Relaxed) - start) / 1_000
    }

    /// That it has what the source's snapshot has, and can go on from there.
    fn check(mut self, source: &Source) {
        let height = self.sync().target.expect("it is done").height;
        self.sync = None;
        let store = self.open();
        let block = source
            .store
            .block(height)
            .expect("readable")
            .expect("kept")
            .block;
        let tip = store.tip();
        assert_eq!((tip.height, tip.id), (height, block.id()));
        assert_eq!(
            Some(tip.state_root),
            source.store.root(height).expect("readable")
        );
        for number in (0..ACCOUNTS).step_by(997) {
            let ours: Option<Account> = store.account(&identity(number)).expect("readable");
            assert!(ours.is_some());
        }
    }
}

use Manner::*;
use quorate_types::Span;

fn some(height: u64) -> Vec<u64> {
    (0..50)
        .map(|number| (number * 1_009 + height * 17) % ACCOUNTS)
        .collect()
}

fn source() -> Source {
    let mut source = Source::new(ACCOUNTS);
    source.grow(24, some);
    assert!(source.snapshots.newest().is_some());
    source
}

#[test]
fn a_snapshot_is_the_state_that_the_deciding_block_names() {
    let mut source = Source::new(10);
    source.grow(1, |_| Vec::new());
    assert!(source.snapshots.heights().is_empty());
    source.grow(42, |_| Vec::new());
    // Blocks 30 and 40 name the states after 28 and 38.
    assert_eq!(source.snapshots.heights(), [Height(28), Height(38)]);
    for height in source.snapshots.heights() {
        let snapshot = source.snapshots.at(height).expect("it is kept");
        let subject = snapshot
            .proof
            .check(&source.genesis.chain_id())
            .expect("it holds");
        assert_eq!(
            (subject.height, subject.root),
            (height, snapshot.state.root())
        );
        let last = snapshot.proof.headers.last().expect("some");
        assert!(
            last.height.0.is_multiple_of(3),
            "the one with a finalization"
        );
    }
}

#[test]
fn the_whole_state_comes_from_all_peers() {
    let source = source();
    let mut world = World::new(&source.genesis);
    world.finish(&source, [Honest; 3]);
    let bytes = world.bytes;
    let all: usize = bytes.iter().sum();
    let state = ACCOUNTS as usize * (32 + 1 + 16);
    assert!(all < state * 21 / 20, "{all} for {state}");
    assert!(bytes[1..].iter().all(|bytes| *bytes > all / 6), "{bytes:?}");
    assert!(state / CHUNK_MAX_ENTRIES / 49 >= 4, "several parts");
    world.check(&source);
}

#[test]
fn a_faulty_peer_costs_one_part() {
    let source = source();
    for manner in [Garbage, WrongPart, ForgedSnapshot] {
        let mut world = World::new(&source.genesis);
        world.finish(&source, [Honest, manner, Honest]);
        let liar = committees(&source.genesis).known().identities()[2];
        assert_eq!(*world.cut.lock(), [liar]);
        let most = CHUNK_MAX_ENTRIES * 50 * 2;
        assert!(
            world.bytes[2] <= most,
            "{:?}: what it was asked for at once",
            world.bytes
        );
        world.check(&source);
    }
}

#[test]
fn a_faulty_peer_that_comes_back_is_not_asked_again() {
    let mut source = source();
    let mut world = World::new(&source.genesis);
    // The others leave work for it.
    let manners = [Slow(300), Garbage, Slow(300)];
    while world.cut.lock().is_empty() {
        world.step(&source, manners);
    }
    let sent = world.bytes[2];
    world.relink(2);
    // It offers a newer snapshot now.
    source.grow(INTERVAL, some);
    world.finish(&source, manners);
    assert_eq!(world.bytes[2], sent);
    assert_eq!(world.cut.lock().len(), 1);
    world.check(&source);
}

#[test]
fn honest_but_useless_peers_are_not_blamed_and_hinder_nothing() {
    let source = source();
    for manners in [
        [Silent, Silent, Honest],
        [Nothing, Nothing, Honest],
        [Absent, Absent, Honest],
        [TooMany, Honest, Honest],
        [Honest, Honest, TooMany],
    ] {
        let mut world = World::new(&source.genesis);
        world.finish(&source, manners);
        assert!(world.cut.lock().is_empty());
        let requests = world.requests;
        assert!(requests < 150, "{requests} requests");
        world.check(&source);
    }
}

#[test]
fn a_slow_peer_costs_next_to_nothing() {
    let source = source();
    let fast = World::new(&source.genesis).finish(&source, [Honest, Honest, Nothing]);
    let mut world = World::new(&source.genesis);
    let slow = world.finish(&source, [Honest, Honest, Slow(5_000)]);
    assert!(world.cut.lock().is_empty());
    assert!(slow < fast * 2 + 1_000, "{slow} ms, {fast} without it");
}

#[test]
fn a_newer_state_that_one_peer_alone_offers_and_withholds_costs_one_request() {
    let mut source = source();
    source.grow(INTERVAL, some);
    let [.., older, _] = source.snapshots.heights()[..] else {
        panic!("two snapshots");
    };
    let without = World::new(&source.genesis).finish(&source, [Behind, Behind, Nothing]);
    let mut world = World::new(&source.genesis);
    let took = world.finish(&source, [Lure, Behind, Behind]);
    assert_eq!(world.sync().target.map(|target| target.height), Some(older));
    // The first part goes to another peer after four times the second that it is expected to take.
    assert!(took < without + 6_000, "{took} ms, {without} without it");
}

#[test]
fn a_state_of_its_own_that_one_peer_withholds_is_not_what_others_with_newer_ones_have() {
    let mut source = source();
    source.grow(INTERVAL, some);
    let [.., older, newest] = source.snapshots.heights()[..] else {
        panic!("two snapshots");
    };
    let mut world = World::new(&source.genesis);
    // One has a newer state and not the older one, of which the liar sends nothing.
    let took = world.finish(&source, [LureOfOlder, OnlyNewest, OnlyNewest]);
    let target = world.sync().target.map(|target| target.height);
    assert_eq!(target, Some(newest), "not {older}");
    assert!(took < 10_000, "{took} ms");
    let mut world = World::new(&source.genesis);
    let took = world.finish(&source, [LureOfOlder, OnlyNewest, Nothing]);
    let target = world.sync().target.map(|target| target.height);
    assert_eq!(target, Some(newest), "not {older}");
    assert!(took < 30_000, "{took} ms");
}

#[test]
fn a_state_that_its_only_holder_withholds_is_given_up() {
    let mut source = source();
    source.grow(INTERVAL, some);
    let mut world = World::new(&source.genesis);
    let started = world.clock.0.load(Relaxed);
    // Nobody else has a snapshot yet, so it is tried.
    while world.sync().target.is_none() {
        world.step(&source, [Lure, Nothing, Nothing]);
        assert!(world.clock.0.load(Relaxed) - started < 20_000_000);
    }
    world.finish(&source, [Lure, Behind, Behind]);
}

#[test]
fn it_goes_on_after_a_crash_and_when_nobody_has_the_target_any_longer() {
    let mut source = source();
    let mut world = World::new(&source.genesis);
    while world.sync().progress().parts < 6 {
        world.step(&source, [Honest; 3]);
    }
    let share = world.sync().progress().share;
    world.start();
    let before: usize = world.bytes.iter().sum();
    source.grow(200, some);
    world.finish(&source, [Honest; 3]);
    let then = world.bytes.iter().sum::<usize>() - before;
    let state = ACCOUNTS as f64 * 49.0;
    // What is left, and what has changed: 20,000 accounts.
    let most = state * (1.0 - share) + 20_000.0 * 49.0 + 50_000.0;
    assert!(share > 0.3, "{share}");
    assert!((then as f64) < most, "{then} of {state}, {share} was there");
    let target = world.sync().target.expect("it is done").height;
    assert_eq!(
        Some(target),
        source.snapshots.newest().map(|s| s.state.height())
    );
    world.check(&source);
}

#[test]
fn a_transfer_whose_nonce_was_used_in_blocks_that_are_not_here_is_not_called_dropped() {
    let mut source = source();
    source.grow(1, |_| vec![WITH_KEY]);
    source.grow(30, some);
    let mut world = World::new(&source.genesis);
    world.finish(&source, [Honest; 3]);
    world.sync = None;
    let synced = world.open();
    let chain = source.genesis.chain_id();
    let transfer = Transfer {
        chain_tag: chain.tag(),
        sender: key().identity(),
        nonce: 0,
        to: identity(1),
        amount: 1,
        fee: 0,
        memo: Memo::default(),
    };
    let signature = key().sign(TRANSACTION_NAMESPACE, &transfer.signed_bytes(&chain));
    let kept = Transaction::new(transfer, signature);
    for (store, why) in [
        (&source.store, Some(Dropped::NonceUsed)),
        // It may have been this one that used it.
        (&synced, None),
    ] {
        store.keep([&kept].into_iter(), &[], true).expect("a disk");
        let mempool = Mempool::new(MempoolLimits::default(), 10_000, Fees::NONE);
        let accounts = Accounts::new(store.clone());
        let account = accounts.read(&key().identity()).expect("a disk").account;
        assert_eq!(account.nonce, 1);
        let now = Moment(0);
        keeper::restore(now, (&chain, &Fees::NONE), store, &accounts, &mempool).expect("a disk");
        assert_eq!(mempool.dropped(&kept.id()), why);
        assert!(store.kept_after(None, 10).expect("a disk").is_empty());
    }
}

#[test]
fn a_faulty_peer_that_alone_has_the_target_left_cannot_draw_it_out() {
    let mut source = source();
    let mut world = World::new(&source.genesis);
    let manners = [Trickle, OnlyNewest, OnlyNewest];
    while world.sync().target.is_none() || world.bytes.iter().sum::<usize>() < 1_000_000 {
        world.step(&source, manners);
    }
    let first = world.sync().target.expect("there is one").height;
    source.grow(2 * INTERVAL, some);
    assert!(source.snapshots.heights().contains(&first));
    let took = world.finish(&source, manners);
    assert!(took < 20_000, "{took} ms");
    assert!(world.sync().target.expect("it is done").height > first);
    world.check(&source);
}

#[test]
fn a_snapshot_that_is_of_use_outlasts_newer_ones_that_are_not() {
    let mut source = source();
    let snapshots = source.snapshots.clone();
    let used = snapshots.newest().expect("there is one").state.height();
    assert!(snapshots.at(used).is_some());
    source.grow(INTERVAL, some);
    let offered = snapshots.offer().expect("there is one").state.height();
    assert!(offered > used);
    for _ in 0..12 {
        source.grow(INTERVAL, some);
        let heights = snapshots.heights();
        assert!(heights.contains(&used), "{heights:?}");
        assert!(heights.contains(&offered), "{heights:?}");
        assert!(heights.len() <= 4, "{heights:?}");
    }
    // More are in use than are kept: the newest is kept in any case.
    for _ in 0..12 {
        source.grow(INTERVAL, some);
        let newest = snapshots.newest().expect("there is one").state.height();
        assert!(snapshots.at(newest).is_some());
        assert!(snapshots.heights().len() <= 6, "{:?}", snapshots.heights());
    }
    assert!(!snapshots.heights().contains(&offered));
    for height in snapshots.heights() {
        snapshots.forget_use(height);
    }
    source.grow(INTERVAL, some);
    assert_eq!(snapshots.heights().len(), 2);
}

#[test]
fn the_target_moves_while_it_syncs() {
    let mut source = source();
    let mut world = World::new(&source.genesis);
    let mut targets = std::collections::BTreeSet::new();
    // The chain is so fast that each snapshot is gone after a few answers.
    for _ in 0..200 {
        world.step(&source, [Slow(40); 3]);
        targets.extend(world.sync().progress().target);
        if world.sync().is_done() {
            break;
        }
        for height in source.snapshots.heights() {
            source.snapshots.forget_use(height);
        }
        source.grow(1, some);
    }
    world.finish(&source, [Honest; 3]);
    assert!(targets.len() > 2, "{targets:?}");
    let all: usize = world.bytes.iter().sum();
    let state = ACCOUNTS as usize * (32 + 1 + 16);
    assert!(all < state * 5 / 4, "{all} of {state}");
    world.check(&source);
}

#[test]
fn forged_changes_are_found_out_by_another_peers() {
    let mut source = source();
    let mut world = World::new(&source.genesis);
    world.finish(&source, [Honest; 3]);
    let done = world.sync().target.expect("it is done").height;
    source.grow(100, some);
    // It was away since.
    world.start();
    let before: usize = world.bytes.iter().sum();
    world.finish(&source, [Honest, ForgedChanges, Honest]);
    let liar = committees(&source.genesis).known().identities()[2];
    assert_eq!(*world.cut.lock(), [liar]);
    assert!(world.sync().target.expect("it is done").height > done);
    let changes: usize = world.bytes.iter().sum::<usize>() - before;
    let state = ACCOUNTS as usize * (32 + 1 + 16);
    assert!(
        changes < state / 5,
        "{changes} of {state}: only what has changed"
    );
    world.check(&source);
}

#[test]
fn changes_that_do_not_fit_its_own_state_blame_nobody_and_whole_parts_come() {
    let before = source();
    let mut world = World::new(&before.genesis);
    world.finish(&before, [Honest; 3]);
    // What it has is not the chain's state of that height, as if its database were damaged.
    let mut source = Source::new(ACCOUNTS);
    source.grow(100, |height| some(height + 5));
    world.start();
    world.finish(&source, [Honest; 3]);
    assert!(world.cut.lock().is_empty());
    world.check(&source);
}

#[test]
fn wider_parts_than_were_requested_stop_nothing() {
    let mut source = source();
    let mut world = World::new(&source.genesis);
    world.finish(&source, [Honest; 3]);
    source.grow(24, some);
    world.saves_late = true;
    world.start();
    // The changes of two parts fit into one.
    world.finish(&source, [Honest, Wider, Honest]);
    assert!(world.cut.lock().is_empty());
    world.check(&source);
}

#[test]
fn a_request_that_is_lost_is_made_again() {
    let source = source();
    let mut world = World::new(&source.genesis);
    let took = world.finish(&source, [Loses(3), Nothing, Nothing]);
    assert!(world.cut.lock().is_empty());
    // What one peer alone offers is fetched after ten seconds, and a request lasts for thirty.
    assert!(took < 50_000, "{took} ms");
    world.check(&source);
}

#[test]
fn what_a_lost_link_took_with_it_is_requested_again() {
    let source = source();
    let mut world = World::new(&source.genesis);
    let manners = [Honest, Nothing, Nothing];
    while world.sync().progress().parts < 3 {
        world.step(&source, manners);
    }
    assert!(world.sync().peers.outstanding() > 0);
    world.relink(1);
    let took = world.finish(&source, manners);
    assert!(took < 5_000, "{took} ms");
    world.check(&source);
}

#[test]
fn a_late_part_of_a_target_that_was_given_up_blames_nobody() {
    let mut source = Source::new(1_000);
    source.grow(24 + INTERVAL, |height| vec![height]);
    let mut world = World::new(&source.genesis);
    while world.sync().target.is_none() {
        world.step(&source, [Lure, Nothing, Nothing]);
    }
    let first = world.sync().target.expect("it was just there").height;
    while world.sync().target.map(|target| target.height) == Some(first) {
        world.step(&source, [Lure, LureOfOlder, LureOfOlder]);
    }
    // The part comes after all.
    let request = ChunkRequest {
        height: first,
        span: Span::ALL,
        since: Height(0),
    };
    let answer = chunk(&source.snapshots, &request).expect("it can be read");
    assert!(matches!(answer, ChunkAnswer::Chunk(_)));
    let late = Message::ChunkReply { request, answer };
    let identity = committees(&source.genesis).known().identities()[1];
    let received = world.sync().receive(identity, Frame(vec![late]).encode());
    received.expect("no disk fails");
    assert!(world.cut.lock().is_empty());
    world.finish(&source, [Lure, Behind, Behind]);
    assert!(world.cut.lock().is_empty());
}

#[test]
fn it_says_what_it_waits_for() {
    let mut source = Source::new(10);
    let mut world = World::new(&source.genesis);
    let waits = |world: &mut World, source: &Source, manners| {
        (0..500).for_each(|_| world.step(source, manners));
        assert!(
            !world.sync().has_begun(),
            "nothing is changed before there is a target"
        );
        world
            .sync()
            .progress()
            .waits_for
            .clone()
            .unwrap_or_default()
    };
    let text = waits(&mut world, &source, [Silent; 3]);
    assert!(text.contains("3 of 3 linked peers to say"), "{text}");
    let text = waits(&mut world, &source, [Nothing; 3]);
    assert!(
        text.contains("none of the 3 linked peers has one"),
        "{text}"
    );
    for place in 1..4 {
        let identity = committees(&source.genesis).known().identities()[place];
        world.sync().linked(identity, false);
    }
    let text = waits(&mut world, &source, [Nothing; 3]);
    assert!(text.contains("none of 3 is linked"), "{text}");
    source.grow(30, |_| Vec::new());
    world.start();
    world.finish(&source, [Honest; 3]);
}
