//! Following upstream nodes of all kinds, in virtual time.

use super::*;
use crate::{
    accounts::Accounts,
    clock::testing::Hand,
    executor::Executor,
    snapshots::{SnapshotTaker, Snapshots},
    sync::tests::{Source as Chain, VALID, committees, finalization, metrics},
};
use commonware_codec::DecodeExt;
use parking_lot::Mutex;
use quorate_crypto::bls::Proof;
use quorate_types::Header;
use std::sync::atomic::Ordering::Relaxed;
use tempfile::TempDir;

/// How an upstream node behaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    Honest,
    /// Answers after so many milliseconds.
    Slow(u64),
    /// Says how far it is, and sends no block.
    Withholding,
    /// Says that it is a thousand blocks ahead, and sends no block.
    Exaggerating,
    /// Sends blocks that it has made up.
    Inventing,
    /// Sends the right blocks with a forged finalization.
    Forging,
    /// Says that it keeps none of the blocks.
    Pruned,
    /// Follows as well: says nothing, and answers nothing.
    Mute,
    /// Follows as well: says nothing, and answers.
    Untold,
}

use Manner::*;

struct World {
    chain: Chain,
    manners: Vec<Manner>,
    clock: Arc<Hand>,
    follower: Follower,
    parts: Box<dyn Fn() -> FollowParts>,
    executor: Executor,
    /// Messages to upstream nodes.
    sent: Arc<Mutex<Vec<(usize, Message)>>>,
    cut: Arc<Mutex<Vec<Identity>>>,
    /// Answers, and when they arrive.
    arriving: Vec<(Moment, usize, Message)>,
    /// Requests that wait for a block.
    held: Vec<Option<Height>>,
    /// Requests that each node was sent.
    requests: Vec<usize>,
    store: Store,
    _folder: TempDir,
}

fn identity(place: usize) -> Identity {
    Identity([place as u8 + 1; 32])
}

impl World {
    fn new(manners: &[Manner]) -> Self {
        let chain = Chain::new(10);
        let folder = tempfile::tempdir().expect("a directory");
        let (store, tree) =
            Store::open(&folder.path().join("db"), &chain.genesis).expect("a store");
        let clock = Arc::new(Hand::default());
        let (executor, executed) = Executor::new(
            Accounts::new(store.clone()),
            (store.clone(), tree),
            SnapshotTaker::new(Arc::new(Snapshots::new(clock.clone())), 0, false),
            (
                committees(&chain.genesis),
                crate::ledger::Rules::of(&chain.genesis),
            ),
            None,
            (Box::new(|_| {}), Box::new(|| None)),
            metrics(),
        )
        .expect("a new database");
        let upstreams = Directory::of((0..manners.len()).map(identity).collect());
        let sent: Arc<Mutex<Vec<(usize, Message)>>> = Arc::default();
        let cut: Arc<Mutex<Vec<Identity>>> = Arc::default();
        let (noted, cuts, genesis) = (sent.clone(), cut.clone(), chain.genesis.clone());
        let (kept, hand) = (store.clone(), clock.clone());
        let known = KnownUpstreams::default();
        let parts = move || {
            let (noted, cuts, receivers) = (noted.clone(), cuts.clone(), upstreams.clone());
            FollowParts {
                chain: genesis.chain_id(),
                epoch_length: genesis.epoch_blocks,
                upstreams: upstreams.clone(),
                committees: committees(&genesis),
                known: known.clone(),
                faults: 1,
                most_missing: None,
                store: kept.clone(),
                clock: hand.clone(),
                wire: Arc::new(move |_, to, bytes| {
                    let To::One(identity) = to else { return };
                    let place = receivers
                        .find(identity)
                        .expect("an upstream node")
                        .as_usize();
                    let frame = Frame::decode(bytes).expect("a frame");
                    noted.lock().extend(frame.0.into_iter().map(|m| (place, m)));
                }),
                cut: Arc::new(move |identity, _| cuts.lock().push(identity)),
                verify: Box::new(|certificate| certificate.proof == VALID),
                executor: executed.clone(),
                live: Arc::new(LiveStatus::of_follower(committees(&genesis))),
                metrics: metrics(),
            }
        };
        let follower = Follower::new(parts());
        let mut world = Self {
            chain,
            manners: manners.to_vec(),
            clock,
            follower,
            parts: Box::new(parts),
            executor,
            sent,
            cut,
            arriving: Vec::new(),
            held: vec![None; manners.len()],
            requests: vec![0; manners.len()],
            store,
            _folder: folder,
        };
        world.link_all();
        world
    }

    fn link_all(&mut self) {
        for place in 0..self.manners.len() {
            self.follower.linked(identity(place), true);
        }
        self.follower.tick();
    }

    /// As where the validators change: the links stay.
    fn assemble_anew(&mut self) {
        self.follower = Follower::new((self.parts)());
        self.held = vec![None; self.manners.len()];
        self.link_all();
    }

    fn now(&self) -> Moment {
        self.clock.now()
    }

    fn height(&self) -> u64 {
        self.store.tip().height.0
    }

    /// Lets 20 ms pass. Upstream nodes say how far they are once a second.
    fn step(&mut self) {
        let now = self.now().after(Duration::from_millis(20));
        self.clock.0.store(now.0, Relaxed);
        if now.0.is_multiple_of(1_000_000) {
            (0..self.manners.len()).for_each(|place| self.claim(place));
        }
        for (place, message) in std::mem::take(&mut *self.sent.lock()) {
            if let Message::FollowRequest(from) = message {
                self.requests[place] += 1;
                self.held[place] = Some(from);
            }
        }
        for place in 0..self.manners.len() {
            let Some(answer) = self.held[place].and_then(|from| self.answer(place, from)) else {
                continue;
            };
            self.held[place] = None;
            let takes = match self.manners[place] {
                Slow(ms) => ms,
                _ => 0,
            };
            let at = now.after(Duration::from_millis(takes));
            self.arriving.push((at, place, answer));
        }
        let (due, later) = std::mem::take(&mut self.arriving)
            .into_iter()
            .partition::<Vec<_>, _>(|(at, ..)| *at <= now);
        self.arriving = later;
        for (_, place, message) in due {
            self.receive(place, message);
        }
        self.follower.tick();
        self.executor.run_waiting().expect("it executes");
    }

    fn receive(&mut self, place: usize, message: Message) {
        let bytes = Frame(vec![message]).encode();
        let taken = self.follower.receive(identity(place), bytes);
        taken.expect("one chain only");
    }

    fn claim(&mut self, place: usize) {
        let ahead = match self.manners[place] {
            Exaggerating => 1_000,
            _ => 0,
        };
        if matches!(self.manners[place], Mute | Untold) {
            return;
        }
        let height = Height(self.chain.blocks.len() as u64 + ahead);
        let status = Status {
            epoch: Epoch(0),
            view: View(0),
            finalized_height: height,
            executed_height: height,
            convicted: Digest::ZERO,
        };
        self.receive(place, Message::Status(status));
    }

    /// What an upstream node answers, once it has such a block.
    fn answer(&self, place: usize, from: Height) -> Option<Message> {
        let manner = self.manners[place];
        if matches!(manner, Withholding | Exaggerating | Mute) {
            return None;
        }
        let first = from.0 as usize - 1;
        let blocks = self.chain.blocks.iter().skip(first).take(5);
        let blocks: Vec<_> = blocks.cloned().collect();
        let last = blocks.last()?.clone();
        let answer = |blocks, finalization| {
            Some(Message::RangeReply {
                blocks,
                finalization: Some(finalization),
            })
        };
        match manner {
            Pruned => Some(Message::Pruned {
                from,
                oldest: from.next(),
            }),
            Forging => {
                let mut forged = finalization(&last);
                forged.proof = Proof::Threshold([9; 48]);
                answer(blocks, forged)
            }
            Inventing => {
                let header = Header {
                    timestamp_ms: 77,
                    ..*last.header()
                };
                let transactions = last.transactions().to_vec();
                let invented = Arc::new(Block::new(header, transactions).expect("within limits"));
                let right = finalization(&last);
                let but_last = blocks.len() - 1;
                let others = blocks.into_iter().take(but_last);
                answer(others.chain([invented]).collect(), right)
            }
            _ => {
                let finalization = finalization(&last);
                answer(blocks, finalization)
            }
        }
    }

    /// The chain grows by a block each 100 ms. Returns the longest time that the follower was without a
    /// block that was there, in milliseconds.
    fn run(&mut self, blocks: u64) -> u64 {
        let (mut longest, mut without) = (0, 0);
        for step in 0..blocks * 5 {
            if step % 5 == 0 {
                self.chain.grow(1, |height| vec![height % 10]);
            }
            let before = self.height();
            self.step();
            without = match self.height() > before || before == self.chain.blocks.len() as u64 {
                true => 0,
                false => without + 20,
            };
            longest = longest.max(without);
        }
        longest
    }

    fn check(&self) {
        let tip = self.store.tip();
        let theirs = self.chain.store.tip();
        assert_eq!((tip.height, tip.id), (theirs.height, theirs.id));
        assert_eq!(tip.state_root, theirs.state_root);
    }
}

#[test]
fn blocks_come_from_one_node_as_soon_as_it_has_them() {
    let mut world = World::new(&[Honest; 3]);
    let longest = world.run(100);
    world.check();
    assert_eq!(longest, 0);
    assert_eq!(world.requests[1..], [0, 0], "the others are not asked");
}

#[test]
fn what_was_missed_is_fetched_first() {
    let mut world = World::new(&[Honest; 2]);
    world.chain.grow(200, |height| vec![height % 10]);
    world.run(30);
    world.check();
}

#[test]
fn a_node_that_sends_what_no_quorum_has_finalized_is_cut_and_others_are_asked() {
    for faulty in [Inventing, Forging] {
        let mut world = World::new(&[faulty, Honest]);
        world.run(50);
        world.check();
        assert_eq!(*world.cut.lock(), [identity(0)]);
        assert_eq!(world.requests[0], 1);
    }
}

#[test]
fn a_node_that_withholds_blocks_costs_a_second() {
    let mut world = World::new(&[Withholding, Honest]);
    let longest = world.run(100);
    world.check();
    // A status comes each second, and a second after it another node is asked.
    assert!(longest <= 2_200, "{longest} ms without a block");
}

#[test]
fn a_node_that_exaggerates_does_not_hold_blocks_up_for_long() {
    let mut world = World::new(&[Honest, Exaggerating, Honest]);
    let longest = world.run(300);
    world.check();
    assert!(longest <= 2_200, "{longest} ms without a block");
    assert!(world.requests[1] <= 2, "asked {} times", world.requests[1]);
}

#[test]
fn nodes_that_only_follow_delay_blocks_once_and_over_borders_not_again() {
    let mut world = World::new(&[Mute, Mute, Mute, Honest]);
    world.chain.grow(20, |height| vec![height % 10]);
    let longest = world.run(50);
    world.check();
    // A status comes each second, and then each that says nothing is given up after 0.25 s.
    assert!(longest <= 1_400, "{longest} ms without a block");

    let before = world.requests.clone();
    world.assemble_anew();
    world.chain.grow(20, |height| vec![height % 10]);
    let longest = world.run(10);
    world.check();
    assert!(longest <= 100, "{longest} ms without a block");
    // The first one, before the others are linked.
    let asked = |requests: &[usize]| requests[..3].iter().sum::<usize>();
    assert!(asked(&world.requests) <= asked(&before) + 1);
}

#[test]
fn a_request_that_a_node_lost_when_it_left_the_validators_is_sent_again() {
    let mut world = World::new(&[Honest]);
    world.run(20);
    // It puts its parts together anew, and no longer says how far it is.
    world.manners[0] = Untold;
    world.held[0] = None;
    world.sent.lock().clear();
    let longest = world.run(60);
    world.check();
    assert!(longest <= 600, "{longest} ms without a block");

    let before = world.requests[0];
    for _ in 0..60 * 50 {
        world.step();
    }
    let idle = world.requests[0] - before;
    assert!(idle <= 8, "{idle} requests in a minute without a block");
}

#[test]
fn a_request_that_the_only_node_lost_is_sent_again_although_it_says_that_it_has_the_block() {
    let mut world = World::new(&[Honest]);
    world.run(20);
    world.chain.grow(1, |height| vec![height % 10]);
    world.held[0] = None;
    world.sent.lock().clear();
    let longest = world.run(60);
    world.check();
    // A status comes each second, and after a second it is asked again.
    assert!(longest <= 2_200, "{longest} ms without a block");
}

#[test]
fn a_slow_node_alone_is_waited_for() {
    let mut world = World::new(&[Slow(8_000)]);
    world.chain.grow(20, |height| vec![height % 10]);
    for _ in 0..60 * 50 {
        world.step();
    }
    world.check();
    assert!(world.requests[0] <= 12, "{} requests", world.requests[0]);
}

#[test]
fn late_answers_of_slow_nodes_count() {
    let mut world = World::new(&[Slow(4_000), Slow(5_000)]);
    world.chain.grow(10, |height| vec![height % 10]);
    for _ in 0..30 * 50 {
        world.step();
    }
    world.check();
}

#[test]
fn the_state_is_wanted_only_once_no_linked_node_keeps_the_blocks() {
    let mut world = World::new(&[Pruned, Pruned]);
    world.run(10);
    assert!(!world.follower.wants_state(), "not yet");
    world.run(40);
    assert!(world.follower.wants_state());
    world.manners[1] = Honest;
    world.run(150);
    assert!(!world.follower.wants_state());
    world.check();
}

#[test]
fn a_lost_link_passes_the_request_on() {
    let mut world = World::new(&[Honest; 2]);
    world.run(10);
    world.manners[0] = Withholding;
    world.follower.linked(identity(0), false);
    world.follower.tick();
    let longest = world.run(20);
    world.check();
    assert_eq!(longest, 0);
}

#[test]
fn a_request_that_was_lost_with_its_link_is_sent_again() {
    for second in [Honest, Pruned] {
        let mut world = World::new(&[Honest, second]);
        world.chain.grow(20, |height| vec![height % 10]);
        world.sent.lock().clear();
        let longest = world.run(50);
        world.check();
        assert!(longest <= 4_000, "{longest} ms");
    }
}

#[test]
fn another_chain_with_a_quorum_behind_it_stops_the_follower() {
    let mut world = World::new(&[Honest]);
    world.run(5);
    world.step();
    let header = Header {
        height: Height(6),
        parent: Digest([9; 32]),
        view: View(99),
        body_root: Header::body_root_of(&[]),
        ..*world.chain.blocks[4].header()
    };
    let block = Arc::new(Block::new(header, Vec::new()).expect("within limits"));
    let message = Message::RangeReply {
        finalization: Some(finalization(&block)),
        blocks: vec![block],
    };
    let bytes = Frame(vec![message]).encode();
    let refused = world.follower.receive(identity(0), bytes);
    let why = refused.expect_err("a fork").to_string();
    assert!(why.contains("more than 1 validators are faulty"), "{why}");
}

#[test]
fn few_claims_are_doubted_less() {
    let upstream = |claimed| Upstream {
        acts: false,
        identity: identity(0),
        linked: true,
        claimed: Some(Height(claimed)),
        oldest: None,
    };
    let of = |claims: &[u64], faults| {
        let all: Vec<_> = claims.iter().map(|claim| upstream(*claim)).collect();
        network_height(&all, faults).map(|height| height.0)
    };
    assert_eq!(of(&[], 1), None);
    assert_eq!(of(&[7], 1), Some(7));
    assert_eq!(of(&[7, 900], 1), Some(900));
    assert_eq!(of(&[7, 900, 8], 1), Some(8));
    assert_eq!(of(&[7, 900, 8, 800, 9], 1), Some(800));
}
