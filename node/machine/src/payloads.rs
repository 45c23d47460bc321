//! The payloads of a chain that only orders: collecting those of clients in bundles, storing bundles, sending them to
//! the others, and fetching those that are missing.
//!
//! 1. Clients' payloads are collected until there are 256 KiB of them, or for 5 ms. They make a bundle with this
//!    validator's next number, which is the nonce of the transaction that orders it.
//! 2. The bundle is stored and synced. Then its clients are answered, and it is sent to all. It is not sent before:
//!    after a crash the number would be given to other payloads.
//! 3. Whoever gets it verifies it, stores and syncs it, and adds its transaction to the mempool. So a leader proposes
//!    only bundles that it has, and it needs nobody's word for it.
//! 4. A validator votes for a block once it has stored all bundles in it, so a notarized block's bundles are
//!    on a quorum's disks. What is missing is fetched from the author and the others in turn.
//! 5. When the block is executed, the clients that wait are told its height.
//!
//! A validator's bundles that no block has ordered are bounded, at itself (its clients are told that it is busy) and at
//! each of the others (they store no more of its bundles).

use crate::{
    accounts::Accounts,
    clock::Clock,
    conduct::{Conduct, Fault},
    directory::PeerIndex,
    mempool::Mempool,
    metrics::NodeMetrics,
    outlet::Wire,
    turns::{Bell, Ringer, bell},
};
use anyhow::Context as _;
use commonware_codec::Encode as _;
use parking_lot::Mutex;
use quorate_consensus::Moment;
use quorate_crypto::SecretKey;
use quorate_lanes::{Bucket, FairLimits, FairQueue, Lane, To};
use quorate_storage::bundles::{BundleLog, BundleLogError, BundleReader};
use quorate_types::{
    Block, Bundle, BundleRef, ChainId, Committee, Digest, Frame, Height, Identity, Message,
    OrderedBundle, TRANSACTION_NAMESPACE, ValidatorIndex,
};
use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::sync::oneshot;

/// A bundle is made when so many bytes are there.
const BUNDLE_BYTES: usize = 256 << 10;

/// Or this long after its first payload.
const BUNDLE_AFTER: Duration = Duration::from_millis(5);

/// Most bytes of this validator's payloads that no block has ordered.
const OWN_BYTES: usize = 32 << 20;

/// The same of another validator's. It is more, since others hear later of what was ordered.
const OTHERS_BYTES: usize = 2 * OWN_BYTES;

/// How far a bundle's number may be above the next one that is ordered.
const MAX_NUMBER_GAP: u64 = 1_000;

/// Most bundles that wait to be stored. What does not fit is dropped, and fetched when a block orders it.
const RECEIVED: FairLimits = FairLimits {
    peer_items: 512,
    peer_bytes: 32 << 20,
    total_bytes: 96 << 20,
};

/// Most received bundles that share one sync.
const MAX_STORED_TOGETHER: usize = 64;

/// A bundle that is missing was perhaps sent already.
const FETCH_AFTER: Duration = Duration::from_millis(100);

/// How long one peer is given to answer before the next one is asked.
const FETCH_TIMEOUT: Duration = Duration::from_millis(500);

/// How long a bundle is fetched that a proposed block names.
const FETCH_FOR: Duration = Duration::from_secs(20);

/// Most bundles that are being fetched.
const MAX_FETCHED: usize = 64;

/// Most bundles that are known to be missing.
const MAX_WANTED: usize = 4_096;

/// This validator's bundle that no block has ordered for so long is sent again.
const SEND_AGAIN: Duration = Duration::from_secs(2);

/// Most bytes that are sent again at once.
const SENT_AGAIN_BYTES: usize = 4 << 20;

/// Bytes of bundles a second that one peer may fetch, and at once.
const SERVED_BYTES: [u64; 2] = [32 << 20, 8 << 20];

/// Most requests of one peer that wait.
const MAX_REQUESTS: usize = 256;

/// Payloads that are on this validator's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredPayloads {
    pub bundle: Digest,
    /// The place of the first of them in the bundle.
    pub first: u32,
    pub count: u32,
}

/// Payloads in a block that is final, executed and on this validator's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderedPayloads {
    pub stored: StoredPayloads,
    pub height: Height,
    /// The place of the bundle's transaction in the block.
    pub place: u32,
}

/// What tells a client how far its payloads are.
pub struct Submitted {
    pub stored: oneshot::Receiver<StoredPayloads>,
    pub ordered: oneshot::Receiver<OrderedPayloads>,
}

/// So many bytes wait for their order that no more are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{OWN_BYTES} bytes of payloads wait for their order here: try again later")]
pub struct Busy;

/// A client's payloads.
struct Part {
    payloads: Bundle,
    stored: oneshot::Sender<StoredPayloads>,
    ordered: oneshot::Sender<OrderedPayloads>,
}

/// A bundle of this validator's that no block has ordered.
struct Own {
    bundle: OrderedBundle,
    waiting: Vec<(StoredPayloads, oneshot::Sender<OrderedPayloads>)>,
    sent: Moment,
}

/// A bundle that a block names and that is not here.
struct Wanted {
    author: Identity,
    due: Moment,
    /// How many peers were asked.
    asked: usize,
    /// When it is given up, unless a final block names it.
    until: Option<Moment>,
}

struct State {
    open: Vec<Part>,
    open_bytes: usize,
    open_since: Moment,
    own: BTreeMap<u64, Own>,
    /// Bytes of `open` and `own`.
    own_bytes: usize,
    /// This validator's bundles whose numbers other bundles have got: after it has lost its log, what it had sent before
    /// is ordered first.
    overtaken: Vec<Own>,
    /// The first of this validator's numbers that is not ordered.
    unordered_from: u64,
    received: FairQueue<OrderedBundle>,
    requests: Vec<VecDeque<Digest>>,
    wanted: BTreeMap<Digest, Wanted>,
    /// Bundles of others that no block has ordered: their bytes, by author and number.
    unordered: BTreeMap<Identity, BTreeMap<u64, u32>>,
}

/// The payloads of this node. Any thread may use it.
pub struct Payloads {
    own: Identity,
    clock: Arc<dyn Clock>,
    metrics: Arc<NodeMetrics>,
    reader: BundleReader,
    state: Mutex<State>,
    ringer: Ringer,
    ends: AtomicBool,
}

/// What the payloads of a validator need.
pub(crate) struct PayloadParts {
    pub(crate) chain: ChainId,
    pub(crate) identity: SecretKey,
    pub(crate) committee: Committee,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) accounts: Accounts,
    pub(crate) mempool: Arc<Mempool>,
    pub(crate) conduct: Arc<Conduct>,
    pub(crate) wire: Wire,
    pub(crate) metrics: Arc<NodeMetrics>,
}

/// Stores and sends bundles. [`PayloadKeeper::run`] is for a thread of its own.
pub struct PayloadKeeper {
    parts: PayloadParts,
    payloads: Arc<Payloads>,
    log: BundleLog,
    bell: Bell,
    next_number: u64,
    served: Vec<Bucket>,
}

impl Payloads {
    /// Takes a client's payloads.
    ///
    /// # Errors
    ///
    /// If too many wait for their order.
    pub fn submit(&self, payloads: Bundle) -> Result<Submitted, Busy> {
        let (stored, is_stored) = oneshot::channel();
        let (ordered, is_ordered) = oneshot::channel();
        let bytes = payloads.bytes().len();
        let mut state = self.state.lock();
        if state.own_bytes + bytes > OWN_BYTES {
            self.metrics
                .payloads
                .refused
                .inc_by(u64::from(payloads.count()));
            return Err(Busy);
        }
        self.metrics
            .payloads
            .submitted
            .inc_by(u64::from(payloads.count()));
        if state.open.is_empty() {
            state.open_since = self.clock.now();
        }
        state.own_bytes += bytes;
        state.open_bytes += bytes;
        state.open.push(Part {
            payloads,
            stored,
            ordered,
        });
        let rings = state.open.len() == 1 || state.open_bytes >= BUNDLE_BYTES;
        drop(state);
        if rings {
            self.ringer.ring();
        }
        Ok(Submitted {
            stored: is_stored,
            ordered: is_ordered,
        })
    }

    /// Ends the thread once it has stored what has come.
    pub fn stop(&self) {
        self.ends.store(true, Relaxed);
        self.ringer.ring();
    }

    /// A bundle that is on disk here.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub fn get(&self, digest: &Digest) -> Result<Option<OrderedBundle>, BundleLogError> {
        self.reader.get(digest)
    }

    /// Whether all bundles that a block orders are on disk. Those that are not are fetched.
    pub(crate) fn holds_all(&self, block: &Block) -> bool {
        let missing: Vec<_> = ordered(block)
            .map(|(_, author, reference)| (author, reference.digest))
            .filter(|(_, digest)| !self.reader.holds(digest))
            .collect();
        if missing.is_empty() {
            return true;
        }
        self.want(missing, Some(FETCH_FOR));
        false
    }

    fn want(&self, missing: Vec<(Identity, Digest)>, lasts: Option<Duration>) {
        let now = self.clock.now();
        let (due, until) = (now.after(FETCH_AFTER), lasts.map(|lasts| now.after(lasts)));
        let mut state = self.state.lock();
        for (author, digest) in missing {
            if let Some(wanted) = state.wanted.get_mut(&digest) {
                wanted.until = wanted.until.and(until);
            } else if state.wanted.len() < MAX_WANTED {
                let wanted = Wanted {
                    author,
                    due,
                    asked: 0,
                    until,
                };
                state.wanted.insert(digest, wanted);
            }
        }
        self.metrics.payloads.wanted.set(state.wanted.len() as i64);
        drop(state);
        self.ringer.ring();
    }

    /// A peer has sent a bundle. Returns how many bundles there was no room for.
    pub(crate) fn receive(&self, from: PeerIndex, bundle: OrderedBundle) -> usize {
        let bytes = bundle.bundle().bytes().len();
        let mut state = self.state.lock();
        let lost = state.received.push(from.as_usize(), bytes, bundle);
        drop(state);
        self.ringer.ring();
        lost.len()
    }

    /// A peer asks for a bundle. Returns whether there was room for its request.
    pub(crate) fn ask(&self, from: PeerIndex, digest: Digest) -> bool {
        let mut state = self.state.lock();
        let Some(requests) = state.requests.get_mut(from.as_usize()) else {
            return false;
        };
        if requests.len() >= MAX_REQUESTS {
            return false;
        }
        requests.push_back(digest);
        drop(state);
        self.ringer.ring();
        true
    }

    /// A block is executed and durable.
    pub(crate) fn executed(&self, block: &Block) {
        let (mut told, mut missing) = (Vec::new(), Vec::new());
        let mut state = self.state.lock();
        for (place, author, reference) in ordered(block) {
            let number = block.transactions()[place].transfer().nonce;
            self.metrics
                .payloads
                .ordered
                .inc_by(u64::from(reference.count));
            self.metrics
                .payloads
                .ordered_bytes
                .inc_by(u64::from(reference.bytes));
            if !self.reader.holds(&reference.digest) {
                missing.push((author, reference.digest));
            }
            if author != self.own {
                if let Some(others) = state.unordered.get_mut(&author) {
                    *others = others.split_off(&number.saturating_add(1));
                }
                continue;
            }
            state.unordered_from = number.saturating_add(1);
            let Some(own) = state.own.remove(&number) else {
                continue;
            };
            if own.bundle.reference().digest != reference.digest {
                state.overtaken.push(own);
                continue;
            }
            state.own_bytes -= own.bundle.bundle().bytes().len();
            let place = u32::try_from(place).unwrap_or(u32::MAX);
            told.extend(own.waiting.into_iter().map(|waiting| (place, waiting)));
        }
        let rings = !state.overtaken.is_empty();
        self.metrics.payloads.own_bytes.set(state.own_bytes as i64);
        drop(state);
        let height = block.height();
        for (place, (stored, waiting)) in told {
            // A client that is gone needs no answer.
            let _ = waiting.send(OrderedPayloads {
                stored,
                height,
                place,
            });
        }
        if !missing.is_empty() {
            self.want(missing, None);
        }
        if rings {
            self.ringer.ring();
        }
    }
}

/// The bundles that a block orders: the places of their transactions, their authors, and what names them.
fn ordered(block: &Block) -> impl Iterator<Item = (usize, Identity, BundleRef)> {
    let transfers = block.transactions().iter().map(|t| t.transfer());
    transfers.enumerate().filter_map(|(place, transfer)| {
        BundleRef::of(transfer).map(|reference| (place, transfer.sender, reference))
    })
}

impl PayloadKeeper {
    /// Takes up what the log holds: bundles that no block has ordered wait for their order again.
    ///
    /// # Errors
    ///
    /// If the database or the log cannot be read.
    pub(crate) fn new(parts: PayloadParts, log: BundleLog) -> anyhow::Result<Self> {
        let peers = parts.committee.size();
        let (ringer, bell) = bell();
        let reader = log.reader();
        let now = parts.clock.now();
        let next_number = next_ordered(&parts, &parts.identity.identity())?;
        let payloads = Arc::new(Payloads {
            own: parts.identity.identity(),
            clock: parts.clock.clone(),
            metrics: parts.metrics.clone(),
            reader: reader.clone(),
            state: Mutex::new(State {
                open: Vec::new(),
                open_bytes: 0,
                open_since: now,
                own: BTreeMap::new(),
                own_bytes: 0,
                overtaken: Vec::new(),
                unordered_from: next_number,
                received: FairQueue::new(peers, RECEIVED),
                requests: vec![VecDeque::new(); peers],
                wanted: BTreeMap::new(),
                unordered: BTreeMap::new(),
            }),
            ringer,
            ends: AtomicBool::new(false),
        });
        let [rate, burst] = SERVED_BYTES;
        let mut keeper = Self {
            next_number,
            served: (0..peers).map(|_| Bucket::new(rate, burst)).collect(),
            parts,
            payloads,
            log,
            bell,
        };
        keeper.take_up()?;
        Ok(keeper)
    }

    pub fn payloads(&self) -> Arc<Payloads> {
        self.payloads.clone()
    }

    fn take_up(&mut self) -> anyhow::Result<()> {
        let reader = self.log.reader();
        let mut nonces = BTreeMap::new();
        let long_ago = Moment(0);
        for (digest, author, number) in reader.entries() {
            let next = match nonces.get(&author) {
                Some(next) => *next,
                None => *nonces
                    .entry(author)
                    .or_insert(next_ordered(&self.parts, &author)?),
            };
            if number < next || self.parts.committee.place(&author).is_none() {
                continue;
            }
            let Some(bundle) = reader.get(&digest)? else {
                continue;
            };
            // Of two with the same payloads, the log tells the transaction of the later one.
            if bundle.transaction().transfer().nonce != number {
                continue;
            }
            self.wait_for_order(&bundle)?;
            let bytes = bundle.reference().bytes;
            let mut state = self.payloads.state.lock();
            if author == self.payloads.own {
                self.next_number = self.next_number.max(number + 1);
                state.own_bytes += bytes as usize;
                let own = Own {
                    bundle,
                    waiting: Vec::new(),
                    sent: long_ago,
                };
                state.own.insert(number, own);
            } else {
                let others = state.unordered.entry(author).or_default();
                others.insert(number, bytes);
            }
        }
        Ok(())
    }

    /// Adds a bundle's transaction to the mempool.
    fn wait_for_order(&self, bundle: &OrderedBundle) -> anyhow::Result<()> {
        let transaction = bundle.transaction().clone();
        let account = self.parts.accounts.read(&transaction.transfer().sender);
        let account = account.context("cannot read an account")?;
        let now = self.parts.clock.now();
        let taken = self
            .parts
            .mempool
            .submit_forwarded(now, transaction, account);
        if taken.is_err() {
            self.parts.metrics.dropped("refused_transaction");
        }
        Ok(())
    }

    /// Works until the node ends.
    ///
    /// # Errors
    ///
    /// If the log or the database fails.
    pub fn run(mut self) -> anyhow::Result<()> {
        loop {
            let wait = self.work()?.map(|due| due.since(self.parts.clock.now()));
            if self.payloads.ends.load(Relaxed) {
                return Ok(());
            }
            self.bell.wait(wait);
        }
    }

    /// Does what there is to do. Returns when there is something again, if nothing comes before.
    ///
    /// # Errors
    ///
    /// If the log or the database fails.
    pub fn work(&mut self) -> anyhow::Result<Option<Moment>> {
        let stored = self.store()?;
        let serves = self.serve()?;
        let fetches = self.fetch();
        let sends = self.send_again();
        if stored {
            return Ok(Some(self.parts.clock.now()));
        }
        let due = [serves, fetches, sends, self.seals_at()];
        Ok(due.into_iter().flatten().min())
    }

    fn seals_at(&self) -> Option<Moment> {
        let state = self.payloads.state.lock();
        (!state.open.is_empty()).then(|| state.open_since.after(BUNDLE_AFTER))
    }

    /// Stores what has come, with one sync. Returns whether there was anything.
    fn store(&mut self) -> anyhow::Result<bool> {
        let own = self.seal();
        let received = self.take_received()?;
        if own.is_empty() && received.is_empty() {
            return Ok(false);
        }
        let log = "the log of bundles";
        for bundle in own.iter().map(|(own, _)| &own.bundle).chain(&received) {
            self.log.append(bundle).context(log)?;
        }
        self.log.sync().context(log)?;
        let metrics = &self.parts.metrics.payloads;
        metrics.syncs.inc();
        metrics.stored.inc_by((own.len() + received.len()) as u64);
        metrics.disk_bytes.set(self.log.reader().bytes() as i64);
        for (own, stored) in own {
            let bundle = own.bundle.clone();
            let number = bundle.transaction().transfer().nonce;
            // Before anybody can order it.
            let mut state = self.payloads.state.lock();
            if number < state.unordered_from {
                state.overtaken.push(own);
            } else {
                state.own.insert(number, own);
            }
            drop(state);
            self.wait_for_order(&bundle)?;
            self.send(bundle);
            for (payloads, client) in stored {
                // A client that is gone needs no answer.
                let _ = client.send(payloads);
            }
        }
        for bundle in received {
            let digest = bundle.reference().digest;
            let mut state = self.payloads.state.lock();
            state.wanted.remove(&digest);
            metrics.wanted.set(state.wanted.len() as i64);
            drop(state);
            self.wait_for_order(&bundle)?;
        }
        Ok(true)
    }

    fn send(&self, bundle: OrderedBundle) {
        let frame = Frame(vec![Message::Bundle(Box::new(bundle))]).encode();
        (self.parts.wire)(Lane::Transactions, &To::All, frame);
    }

    /// Makes a bundle of what clients have submitted, if it is due. Others are this validator's whose number was taken.
    #[allow(clippy::type_complexity)]
    fn seal(&mut self) -> Vec<(Own, Vec<(StoredPayloads, oneshot::Sender<StoredPayloads>)>)> {
        let now = self.parts.clock.now();
        let mut state = self.payloads.state.lock();
        let overtaken = mem::take(&mut state.overtaken);
        let is_due = state.open_bytes >= BUNDLE_BYTES
            || (!state.open.is_empty() && state.open_since.after(BUNDLE_AFTER) <= now);
        let open = match is_due {
            true => {
                state.open_bytes = 0;
                mem::take(&mut state.open)
            }
            false => Vec::new(),
        };
        drop(state);
        let mut sealed = Vec::new();
        for own in overtaken {
            let bundle = self.number(own.bundle.bundle().clone());
            let own = Own {
                bundle,
                sent: now,
                ..own
            };
            sealed.push((own, Vec::new()));
        }
        let mut open = open.into_iter().peekable();
        while open.peek().is_some() {
            let (mut parts, mut bytes) = (Vec::new(), 0);
            while let Some(part) = open.next_if(|_| bytes < BUNDLE_BYTES) {
                bytes += part.payloads.bytes().len();
                parts.push(part);
            }
            let lists: Vec<Bundle> = parts.iter().map(|part| part.payloads.clone()).collect();
            let bundle = self.number(Bundle::joined(&lists));
            let (mut waiting, mut stored, mut first) = (Vec::new(), Vec::new(), 0);
            for part in parts {
                let count = part.payloads.count();
                let payloads = StoredPayloads {
                    bundle: bundle.reference().digest,
                    first,
                    count,
                };
                first += count;
                waiting.push((payloads, part.ordered));
                stored.push((payloads, part.stored));
            }
            let own = Own {
                bundle,
                waiting,
                sent: now,
            };
            sealed.push((own, stored));
        }
        sealed
    }

    /// Gives a bundle this validator's next number.
    fn number(&mut self, bundle: Bundle) -> OrderedBundle {
        let number = self
            .next_number
            .max(self.payloads.state.lock().unordered_from);
        self.next_number = number + 1;
        let reference = bundle.reference();
        let transaction = reference.order(&self.parts.chain, &self.parts.identity, number);
        OrderedBundle::new(transaction, bundle).expect("it is its own reference")
    }

    /// Those of the received bundles that are to be stored.
    fn take_received(&mut self) -> anyhow::Result<Vec<OrderedBundle>> {
        let mut taken: Vec<OrderedBundle> = Vec::new();
        for _ in 0..MAX_STORED_TOGETHER {
            let next = self.payloads.state.lock().received.pop_from(|_| true);
            let Some((from, bundle)) = next else {
                break;
            };
            if self.may_store(PeerIndex(from), &bundle)? {
                taken.push(bundle);
            }
        }
        Ok(taken)
    }

    fn may_store(&self, from: PeerIndex, bundle: &OrderedBundle) -> anyhow::Result<bool> {
        let metrics = &self.parts.metrics;
        let transfer = bundle.transaction().transfer();
        let (author, number) = (transfer.sender, transfer.nonce);
        let digest = bundle.reference().digest;
        if self.parts.committee.place(&author).is_none() {
            metrics.dropped("bundle_of_nobody");
            return Ok(false);
        }
        let next = next_ordered(&self.parts, &author)?;
        let mut state = self.payloads.state.lock();
        let is_wanted = state.wanted.contains_key(&digest);
        let others = state.unordered.entry(author).or_default();
        if others.contains_key(&number) && self.payloads.reader.holds(&digest) {
            return Ok(false);
        }
        let fits = (next..next.saturating_add(MAX_NUMBER_GAP)).contains(&number)
            && author != self.payloads.own
            && !others.contains_key(&number)
            && others.values().map(|bytes| *bytes as usize).sum::<usize>() < OTHERS_BYTES;
        if !fits && !is_wanted {
            metrics.dropped("bundle_does_not_fit");
            return Ok(false);
        }
        drop(state);
        let message = transfer.signed_bytes(&self.parts.chain);
        let signature = bundle.transaction().signature();
        let is_signed = transfer.chain_tag == self.parts.chain.tag()
            && author.verify(TRANSACTION_NAMESPACE, &message, signature);
        if !is_signed {
            metrics.dropped("invalid_transaction");
            if let Some(place) = place_of(&self.parts.committee, from) {
                self.parts.conduct.note(place, Fault::Forged, 1);
            }
            return Ok(false);
        }
        if fits {
            let mut state = self.payloads.state.lock();
            let others = state.unordered.entry(author).or_default();
            others.insert(number, bundle.reference().bytes);
        }
        Ok(true)
    }

    /// Answers requests for bundles. Returns when to go on.
    fn serve(&mut self) -> anyhow::Result<Option<Moment>> {
        let now = self.parts.clock.now();
        let now_us = now.0;
        let mut later = None;
        for peer in 0..self.served.len() {
            while self.served[peer].empty_for_us(now_us) == 0
                && let Some(digest) = self.payloads.state.lock().requests[peer].pop_front()
            {
                let Some(identity) = place_of(&self.parts.committee, PeerIndex(peer))
                    .and_then(|place| self.parts.committee.identity(place))
                else {
                    continue;
                };
                let Some(bundle) = self.payloads.reader.get(&digest)? else {
                    continue;
                };
                self.served[peer].spend(now_us, u64::from(bundle.reference().bytes));
                self.parts.metrics.payloads.served.inc();
                let frame = Frame(vec![Message::Bundle(Box::new(bundle))]).encode();
                (self.parts.wire)(Lane::Transactions, &To::One(identity), frame);
            }
            if !self.payloads.state.lock().requests[peer].is_empty() {
                let empty_for =
                    Duration::from_micros(self.served[peer].empty_for_us(now_us).max(1));
                later = later.into_iter().chain([now.after(empty_for)]).min();
            }
        }
        Ok(later)
    }

    /// Asks for bundles that are missing. Returns when to look again.
    fn fetch(&mut self) -> Option<Moment> {
        let now = self.parts.clock.now();
        let committee = &self.parts.committee;
        let own = self.payloads.own;
        let peers: Vec<Identity> = (committee.identities().iter().copied())
            .filter(|one| *one != own)
            .collect();
        let mut questions = Vec::new();
        let mut state = self.payloads.state.lock();
        let reader = &self.payloads.reader;
        state.wanted.retain(|digest, wanted| {
            let is_over = wanted.until.is_some_and(|until| until <= now);
            !is_over && !reader.holds(digest)
        });
        for (digest, wanted) in state.wanted.iter_mut().take(MAX_FETCHED) {
            if wanted.due > now || peers.is_empty() {
                continue;
            }
            // The author first, then all others in turn.
            let first = peers.iter().position(|one| *one == wanted.author);
            let peer = peers[(first.unwrap_or(0) + wanted.asked) % peers.len()];
            wanted.asked += 1;
            wanted.due = now.after(FETCH_TIMEOUT);
            questions.push((peer, *digest));
        }
        self.parts
            .metrics
            .payloads
            .wanted
            .set(state.wanted.len() as i64);
        let next = state
            .wanted
            .values()
            .take(MAX_FETCHED)
            .map(|one| one.due)
            .min();
        drop(state);
        for (peer, digest) in questions {
            self.parts.metrics.payloads.fetched.inc();
            let frame = Frame(vec![Message::BundleRequest(digest)]).encode();
            (self.parts.wire)(Lane::Fetch, &To::One(peer), frame);
        }
        next
    }

    /// Sends this validator's bundles again that no block has ordered for long. Returns when to look again.
    fn send_again(&mut self) -> Option<Moment> {
        let now = self.parts.clock.now();
        let mut state = self.payloads.state.lock();
        let (mut again, mut bytes) = (Vec::new(), 0);
        for own in state.own.values_mut() {
            if own.sent.after(SEND_AGAIN) > now || bytes >= SENT_AGAIN_BYTES {
                break;
            }
            own.sent = now;
            bytes += own.bundle.reference().bytes as usize;
            again.push(own.bundle.clone());
        }
        let next = state
            .own
            .values()
            .map(|own| own.sent.after(SEND_AGAIN))
            .min();
        drop(state);
        again.into_iter().for_each(|bundle| self.send(bundle));
        next
    }
}

/// The number of a validator's next bundle that a block may order.
fn next_ordered(parts: &PayloadParts, author: &Identity) -> anyhow::Result<u64> {
    let account = parts
        .accounts
        .read(author)
        .context("cannot read an account")?;
    Ok(account.account.nonce)
}

fn place_of(committee: &Committee, peer: PeerIndex) -> Option<ValidatorIndex> {
    let place = u32::try_from(peer.as_usize()).ok()?;
    (peer.as_usize() < committee.size()).then_some(ValidatorIndex(place))
}
