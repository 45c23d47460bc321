//! The thread that answers peers' requests for blocks.
//!
//! Answers are large and requests are not, so they have a price. Each peer has a queue of its own, and
//! they are taken in turn. What a peer is sent is paid from a budget of bytes that refills; while it is
//! used up, or too much of what was sent has not left yet, that peer's requests wait, and nobody
//! else's. Nobody is refused for asking too much: who catches up asks again and again.

use crate::{
    clock::Clock,
    outlet::{InFlight, Outlet},
    turns::{TurnReceiver, TurnSender},
};
use anyhow::Context;
use commonware_codec::EncodeSize;
use quorate_consensus::{Moment, Outbound, Target};
use quorate_p2p::{Bucket, FairLimits, Lane};
use quorate_storage::store::Store;
use quorate_types::{
    Block, Committee, Digest, EpochLength, Height, Message, ValidatorIndex,
    limits::{MAX_RANGE_BLOCKS, RANGE_REPLY_BYTES},
};
use std::{sync::Arc, time::Duration};

/// Requests that may wait. Further ones of a peer are dropped; it asks again, or somebody else.
pub(crate) const REQUESTS: FairLimits = FairLimits {
    peer_items: 64,
    peer_bytes: usize::MAX,
    total_bytes: usize::MAX,
};

/// Bytes a second that one peer is sent, sustained: more than it can execute, 90,000 transfers.
const BYTES_PER_SECOND: u64 = 16 << 20;

/// Bytes that one peer is sent at once, before that: 64 full ranges.
const BURST_BYTES: u64 = 64 << 20;

/// What looking one block up counts for, however small it is.
const BLOCK_PRICE_BYTES: usize = 2 << 10;

/// Answers that wait for a peer to read them. Above it is not served.
const IN_FLIGHT_BYTES: usize = 4 << 20;

/// How often is looked whether a peer has read its answers.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// A peer's request for blocks.
#[derive(Clone, Debug)]
pub enum Request {
    /// A block by its id.
    Stored(Digest),
    /// A block that the replica holds in memory.
    Held(Arc<Block>),
    /// Finalised blocks from this height on.
    Range(Height),
}

impl Request {
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Range(one), Self::Range(other)) => one == other,
            (Self::Range(_), _) | (_, Self::Range(_)) => false,
            (one, other) => one.block_id() == other.block_id(),
        }
    }

    fn block_id(&self) -> Option<Digest> {
        match self {
            Self::Stored(id) => Some(*id),
            Self::Held(block) => Some(block.id()),
            Self::Range(_) => None,
        }
    }
}

/// Where requests are handed in.
#[derive(Clone)]
pub(crate) struct Requests(pub(crate) TurnSender<Request>);

impl Requests {
    /// Hands a request in. Returns whether there was room; one that waits already needs none.
    pub(crate) fn ask(&self, from: ValidatorIndex, request: Request) -> bool {
        if self.0.any(from, |waiting| waiting.is(&request)) {
            return true;
        }
        self.0.send(from, 0, request) == 0
    }
}

/// Answers from the store, and from the replica's memory.
pub struct Server {
    store: Store,
    epoch_length: EpochLength,
    committee: Committee,
    clock: Arc<dyn Clock>,
    outlet: Outlet,
    in_flight: InFlight,
    requests: TurnReceiver<Request>,
    budgets: Vec<Bucket>,
}

impl Server {
    pub(crate) fn new(
        store: Store,
        epoch_length: EpochLength,
        committee: Committee,
        clock: Arc<dyn Clock>,
        (outlet, in_flight): (Outlet, InFlight),
        requests: TurnReceiver<Request>,
    ) -> Self {
        let budget = Bucket::new(BYTES_PER_SECOND, BURST_BYTES);
        Self {
            store,
            epoch_length,
            budgets: vec![budget; committee.size()],
            committee,
            clock,
            outlet,
            in_flight,
            requests,
        }
    }

    /// Answers requests until the links are gone.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    pub(crate) fn run(mut self) -> anyhow::Result<()> {
        loop {
            self.serve_waiting()?;
            let limit = self.due().map(|due| {
                let budget = due.since(self.clock.now());
                budget.clamp(Duration::from_millis(1), LOOK_AGAIN)
            });
            if !self.requests.wait(limit) {
                return Ok(());
            }
        }
    }

    /// When somebody may be served, if anybody asks for anything.
    pub fn due(&self) -> Option<Moment> {
        let now = self.clock.now();
        let waiting = self.requests.waiting().into_iter();
        let due = waiting.map(|peer| {
            let wait = self.budgets[peer].empty_for_us(now.0);
            now.after(Duration::from_micros(wait))
        });
        due.min()
    }

    /// Answers what may be answered now.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    pub fn serve_waiting(&mut self) -> anyhow::Result<()> {
        while let Some((from, request)) = self.next() {
            let answer = answer(&self.store, self.epoch_length, request);
            let message = answer.context("cannot read a stored block")?;
            let price = message.as_ref().map_or(BLOCK_PRICE_BYTES, price);
            let now = self.clock.now();
            self.budgets[from.as_usize()].spend(now.0, price as u64);
            if let Some(message) = message {
                self.outlet.send(vec![Outbound {
                    to: Target::One(from),
                    message,
                }]);
            }
        }
        Ok(())
    }

    fn next(&self) -> Option<(ValidatorIndex, Request)> {
        let now = self.clock.now();
        self.requests.take(|peer| {
            let identity = self.committee.identities()[peer];
            self.budgets[peer].empty_for_us(now.0) == 0
                && (self.in_flight)(Lane::Fetch, &identity) < IN_FLIGHT_BYTES
        })
    }
}

/// What an answer costs, in bytes.
fn price(answer: &Message) -> usize {
    let blocks = match answer {
        Message::RangeReply { blocks, .. } => blocks.len(),
        _ => 1,
    };
    answer.encode_size().max(blocks * BLOCK_PRICE_BYTES)
}

fn answer(
    store: &Store,
    epoch_length: EpochLength,
    request: Request,
) -> anyhow::Result<Option<Message>> {
    match request {
        Request::Held(block) => Ok(Some(Message::BlockReply(block))),
        Request::Stored(id) => {
            let Some(height) = store.height_of(&id)? else {
                return Ok(None);
            };
            let block = store.block(height)?;
            Ok(block.map(|stored| Message::BlockReply(stored.block)))
        }
        Request::Range(from) => match range(store, epoch_length, from)? {
            Some(blocks) => Ok(Some(blocks)),
            None => {
                let oldest = store.pruned_below()?;
                Ok((from < oldest).then_some(Message::Pruned { from, oldest }))
            }
        },
    }
}

/// Consecutive blocks up to the last that has a finalization of its own within the limits and the
/// epoch: who asks verifies with the keys of the epoch that it is in.
fn range(
    store: &Store,
    epoch_length: EpochLength,
    from: Height,
) -> anyhow::Result<Option<Message>> {
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
    if closed > 0 {
        blocks.truncate(closed);
    }
    Ok((!blocks.is_empty()).then_some(Message::RangeReply {
        blocks,
        finalization,
    }))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{
        clock::testing::Hand,
        localnet::{Settings, prepare},
        turns::turns,
    };
    use parking_lot::Mutex;
    use quorate_p2p::To;
    use quorate_types::{ChainId, Epoch, Header, Memo, Transaction, Transfer, View, genesis};
    use std::{
        collections::BTreeMap,
        path::Path,
        sync::atomic::{AtomicUsize, Ordering::Relaxed},
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

    /// A new chain of four validators and one account, in a folder.
    pub(crate) fn chain(directory: &Path) -> (genesis::Genesis, Store) {
        let settings = Settings {
            name: "serve".to_owned(),
            validators: 4,
            protocol: genesis::Protocol::Simplex,
            scheme: "bls-threshold".to_owned(),
            epoch_blocks: EpochLength::DEFAULT,
            retention_blocks: None,
            retention_seconds: None,
            block_interval_ms: 0,
            idle_interval_ms: 0,
            block_limits: crate::genesis::DEFAULT_LIMITS,
            accounts: 1,
            base_port: 1_024,
        };
        let net = directory.join("net");
        prepare(&net, &settings).expect("a network");
        let text = std::fs::read_to_string(net.join("genesis.json")).expect("a file");
        let genesis = genesis::Genesis::from_json(&text).expect("a genesis");
        let (store, _) = Store::open(&directory.join("db"), &genesis).expect("a store");
        (genesis, store)
    }

    fn scene() -> Scene {
        let directory = tempfile::tempdir().expect("a directory");
        let (genesis, store) = chain(directory.path());
        let committee = genesis.committee().expect("a committee");
        let clock = Arc::new(Hand::default());
        let sent: Arc<Mutex<BTreeMap<usize, (usize, usize)>>> = Arc::default();
        let (noted, places) = (sent.clone(), committee.clone());
        let wire: crate::outlet::Wire = Arc::new(move |_, to, bytes| {
            let To::One(identity) = to else { return };
            let place = places.place(identity).expect("a member").as_usize();
            let mut noted = noted.lock();
            let (answers, sum) = noted.entry(place).or_default();
            *answers += 1;
            *sum += bytes.len();
        });
        let in_flight = Arc::new(AtomicUsize::new(0));
        let waits = in_flight.clone();
        let first = committee.identities()[0];
        let flight: InFlight = Arc::new(move |_, identity| match *identity == first {
            true => waits.load(Relaxed),
            false => 0,
        });
        let (sender, receiver) = turns(committee.size(), REQUESTS);
        let outlet = Outlet::new(wire, committee.clone(), None);
        let server = Server::new(
            store,
            EpochLength::DEFAULT,
            committee,
            clock.clone(),
            (outlet, flight),
            receiver,
        );
        Scene {
            server,
            requests: Requests(sender),
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
        let (greedy, modest) = (ValidatorIndex(1), ValidatorIndex(2));
        for _ in 0..50 {
            for block in &blocks {
                scene.requests.ask(greedy, Request::Held(block.clone()));
            }
            scene.server.serve_waiting().expect("nothing is read");
        }
        let (answers, bytes) = scene.sent.lock()[&1];
        assert!((BURST_BYTES as usize..BURST_BYTES as usize + (2 << 20)).contains(&bytes));
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
        let reader = ValidatorIndex(0);
        scene.in_flight.store(IN_FLIGHT_BYTES, Relaxed);
        scene.requests.ask(reader, Request::Held(block(1)));
        scene.server.serve_waiting().expect("nothing is read");
        assert!(scene.sent.lock().is_empty());
        scene.in_flight.store(IN_FLIGHT_BYTES - 1, Relaxed);
        scene.server.serve_waiting().expect("nothing is read");
        assert_eq!(scene.sent.lock()[&0].0, 1);
    }

    #[test]
    fn the_same_request_waits_once_and_a_queue_has_an_end() {
        let scene = scene();
        let peer = ValidatorIndex(3);
        for _ in 0..1_000 {
            assert!(scene.requests.ask(peer, Request::Range(Height(1))));
            assert!(scene.requests.ask(peer, Request::Stored(Digest([1; 32]))));
        }
        for height in 2..REQUESTS.peer_items as u64 {
            assert!(scene.requests.ask(peer, Request::Range(Height(height))));
        }
        assert!(!scene.requests.ask(peer, Request::Range(Height(1_000))));
        let other = ValidatorIndex(2);
        assert!(scene.requests.ask(other, Request::Range(Height(1_000))));
    }
}
