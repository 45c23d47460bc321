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
//!    on a quorum's disks. What is missing is fetched from the leader, the author and the others in turn.
//! 5. When the block is executed, the clients that wait are told its height.
//!
//! A validator's bundles that no block has ordered are bounded, at itself (its clients are told that it is busy) and at
//! each of the others (they store no more of its bundles).

mod missing;
mod withheld;

use self::{
    missing::{Missing, Question},
    withheld::Withheld,
};
use crate::{
    accounts::Accounts,
    clock::Clock,
    conduct::{Conduct, Fault},
    directory::PeerIndex,
    mempool::{Mempool, Refusal},
    metrics::NodeMetrics,
    outlet::Wire,
    turns::{Bell, Ringer, bell},
};
use anyhow::Context as _;
use commonware_codec::Encode as _;
use parking_lot::Mutex;
use quorate_consensus::{Moment, Timing};
use quorate_crypto::SecretKey;
use quorate_lanes::{Bucket, FairLimits, FairQueue, Lane, To};
use quorate_storage::{
    bundles::{BundleLog, BundleLogError, BundleReader, Entry},
    store::Store,
};
use quorate_types::{
    Block, Bundle, BundleRef, ChainId, Committee, Digest, Frame, Header, Height, Identity, Message,
    OrderedBundle, TRANSACTION_NAMESPACE, Transaction, ValidatorIndex, limits::MAX_BUNDLE_BYTES,
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::sync::oneshot;
use tracing::warn;

/// A bundle is made when so many bytes are there.
const BUNDLE_BYTES: usize = 256 << 10;

/// Or this long after its first payload.
const BUNDLE_AFTER: Duration = Duration::from_millis(5);

/// If so many of this validator's bundles are not ordered, small ones are made this rarely: numbers are limited.
const MANY_OWN: usize = 128;
const BUNDLE_LATE: Duration = Duration::from_secs(1);

/// What each request counts beside its bytes.
const REQUEST_PRICE: usize = 1_024;

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

/// A bundle that is missing was perhaps sent already: it is asked for after so long. The views' timers are as short as 50 ms:
/// an author that gave one bundle to a leader and another to all others had that leader's turns fail as long as it
/// was 125 ms.
const FETCH_AFTER: Duration = Duration::from_millis(10);

/// How long a bundle is fetched that a proposed block names, after the block was last looked at.
const FETCH_FOR: Duration = Duration::from_secs(1);

/// Final blocks that are looked through at a time for bundles that are missing.
const SCANNED_TOGETHER: u64 = 256;

/// How often it is written down below which height no bundle is missing.
const NOTE_INTERVAL: Duration = Duration::from_secs(2);

/// This validator's bundle that no block has ordered for so long is sent again.
const SEND_AGAIN: Duration = Duration::from_secs(2);

/// Most bytes that are sent again at once.
const SENT_AGAIN_BYTES: usize = 4 << 20;
const SENT_AGAIN_BUNDLES: usize = 100;

/// Bytes of bundles a second that one peer may fetch, and at once.
const SERVED_BYTES: [u64; 2] = [32 << 20, 8 << 20];

/// If more are due, the next ones follow so much later.
const SEND_MORE: Duration = Duration::from_millis(500);

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

/// What this node holds of payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holdings {
    /// What its clients' payloads that no block has ordered count of their limit.
    pub waiting_bytes: usize,
    /// Bundles that blocks name and that are not here.
    pub missing: usize,
    pub log_bytes: u64,
}

/// What tells a client how far its payloads are.
pub struct Submitted {
    pub stored: oneshot::Receiver<StoredPayloads>,
    pub ordered: oneshot::Receiver<OrderedPayloads>,
}

/// So many bytes wait for their order that no more are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "too many payloads wait for their order here ({} MiB at most): try again later",
    OWN_BYTES >> 20
)]
pub struct Busy;

/// A client's payloads.
struct Part {
    payloads: Bundle,
    charged: usize,
    stored: oneshot::Sender<StoredPayloads>,
    ordered: oneshot::Sender<OrderedPayloads>,
}

/// A bundle of this validator's that no block has ordered.
struct Own {
    reference: BundleRef,
    /// What it counts of [`OWN_BYTES`].
    charged: usize,
    waiting: Vec<(StoredPayloads, oneshot::Sender<OrderedPayloads>)>,
    sent: Moment,
}

struct State {
    open: Vec<Part>,
    open_bytes: usize,
    open_since: Moment,
    own: BTreeMap<u64, Own>,
    /// What `open` and `own` count of [`OWN_BYTES`].
    own_bytes: usize,
    /// This validator's bundles whose numbers other bundles have got: after it has lost its log, what it had sent before
    /// is ordered first.
    overtaken: Vec<Own>,
    /// The first of this validator's numbers that is not ordered.
    unordered_from: u64,
    received: FairQueue<OrderedBundle>,
    requests: Vec<VecDeque<Digest>>,
    missing: Missing,
    /// Final blocks below this height were looked through for bundles that are missing.
    scanned_below: Height,
    withheld: Withheld,
    /// Bundles of others that no block has ordered: their bytes, by author and number.
    unordered: BTreeMap<Identity, BTreeMap<u64, u32>>,
}

/// What a client's payloads count of [`OWN_BYTES`], and of the client's own share: small ones take memory, too.
pub fn charge(payloads: &Bundle) -> usize {
    payloads.bytes().len() + REQUEST_PRICE
}

/// A bundle of this validator's that is to be stored.
struct Sealed {
    own: Own,
    bundle: OrderedBundle,
    clients: Vec<(StoredPayloads, oneshot::Sender<StoredPayloads>)>,
}

/// What is done with a bundle that has come.
enum Judged {
    /// It is to be stored.
    New,
    /// It is stored, and not ordered.
    Stored,
    Refused,
}

/// Which of a proposed block's bundles are on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    All,
    /// This one is not, and perhaps others.
    Not(Digest),
    /// One is, and has another length or number of payloads than the block says.
    Contradicted,
}

/// The payloads of this node. Any thread may use it.
pub struct Payloads {
    own: Identity,
    committee: Committee,
    fetch_after: Duration,
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
    pub(crate) store: Store,
    pub(crate) timing: Timing,
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
    /// When there is something to do, if nothing comes before.
    due: Option<Moment>,
    /// When it is written down again below which height no bundle is missing, and what was written last.
    next_note: Moment,
    noted: Height,
    /// Until it is known from where on the log has room for the bundles of final blocks.
    window: Option<Window>,
}

/// Final blocks that are looked through downwards for how much they order.
struct Window {
    height: Height,
    bytes: u64,
}

impl State {
    /// When what is open makes a bundle, however small, if anything is.
    fn seals_at(&self) -> Option<Moment> {
        let waits = match self.own.len() < MANY_OWN {
            true => BUNDLE_AFTER,
            false => BUNDLE_LATE,
        };
        (!self.open.is_empty()).then(|| self.open_since.after(waits))
    }

    /// All bundles of final blocks below this height are here, or nobody keeps them.
    fn complete_below(&self) -> Height {
        let lowest = self.missing.lowest();
        lowest.map_or(self.scanned_below, |lowest| lowest.min(self.scanned_below))
    }
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
        let charged = charge(&payloads);
        let mut state = self.state.lock();
        if state.own_bytes + charged > OWN_BYTES {
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
        state.own_bytes += charged;
        self.metrics.payloads.own_bytes.set(state.own_bytes as i64);
        state.open_bytes += bytes;
        state.open.push(Part {
            payloads,
            charged,
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

    pub fn holdings(&self) -> Holdings {
        let state = self.state.lock();
        Holdings {
            waiting_bytes: state.own_bytes,
            missing: state.missing.len(),
            log_bytes: self.reader.bytes(),
        }
    }

    /// Whether a bundle is on disk here.
    pub fn holds(&self, digest: &Digest) -> bool {
        self.reader.holds(digest)
    }

    /// Whether a proposed block's bundles are on disk. Those that are not are fetched.
    pub(crate) fn judge(&self, block: &Block) -> Held {
        let (mut missing, mut first) = (Vec::new(), None);
        for (_, author, reference) in ordered(block) {
            if self.reader.holds_all_of(&reference) {
                continue;
            }
            if self.reader.holds(&reference.digest) {
                return Held::Contradicted;
            }
            first.get_or_insert(reference.digest);
            missing.push((author, reference.digest));
        }
        let Some(first) = first else {
            return Held::All;
        };
        let now = self.clock.now();
        let Header { epoch, view, .. } = *block.header();
        let leader = self.committee.leader_in(epoch, view);
        let leader = self.committee.identity(leader).unwrap_or(self.own);
        let mut state = self.state.lock();
        for (author, digest) in missing {
            let (due, until) = (now.after(self.fetch_after), now.after(FETCH_FOR));
            state
                .missing
                .of_proposed(leader, author, digest, due, until);
        }
        drop(state);
        self.ringer.ring();
        Held::Not(first)
    }

    /// Leaves those transactions that a leader may propose: each author's up to the first whose bundle is not on its disk,
    /// and none of authors that are passed over.
    pub(crate) fn proposable(&self, transactions: &mut Vec<Transaction>) {
        let authors: BTreeSet<Identity> = (transactions.iter())
            .map(|one| one.transfer().sender)
            .collect();
        let now = self.clock.now();
        let faults = self.committee.faults();
        let mut state = self.state.lock();
        // Every author proposes its own.
        let mut stopped: BTreeSet<Identity> = (authors.into_iter())
            .filter(|author| state.withheld.passes_over(author, now, faults))
            .collect();
        drop(state);
        transactions.retain(|one| {
            let transfer = one.transfer();
            let reference = BundleRef::of(transfer);
            if reference.is_none_or(|reference| !self.reader.holds_all_of(&reference)) {
                stopped.insert(transfer.sender);
            }
            !stopped.contains(&transfer.sender)
        });
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
        let mut told = Vec::new();
        let mut state = self.state.lock();
        let scans = state.scanned_below == block.height() && self.scan(block, &mut state);
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
            if own.reference.digest != reference.digest {
                state.overtaken.push(own);
                continue;
            }
            state.own_bytes -= own.charged;
            let place = u32::try_from(place).unwrap_or(u32::MAX);
            told.extend(own.waiting.into_iter().map(|waiting| (place, waiting)));
        }
        let rings = !scans || !state.overtaken.is_empty() || state.missing.len() > 0;
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
        if rings {
            self.ringer.ring();
        }
    }

    /// Wants what is missing of a final block, the next one above those that were looked through. Returns whether there
    /// was room.
    fn scan(&self, block: &Block, state: &mut State) -> bool {
        let due = self.clock.now().after(self.fetch_after);
        for (_, author, reference) in ordered(block) {
            let is_here = self.reader.holds_all_of(&reference);
            let (missing, digest) = (&mut state.missing, reference.digest);
            if !is_here && !missing.of_final(author, digest, due, block.height()) {
                return false;
            }
        }
        state.scanned_below = block.height().next();
        true
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
        let noted = log.complete_below();
        let next_number = next_ordered(&parts, &parts.identity.identity())?;
        let payloads = Arc::new(Payloads {
            own: parts.identity.identity(),
            committee: parts.committee.clone(),
            fetch_after: FETCH_AFTER.min(parts.timing.leader_timeout / 8),
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
                missing: Missing::default(),
                scanned_below: noted.max(Height(1)),
                withheld: Withheld::default(),
                unordered: BTreeMap::new(),
            }),
            ringer,
            ends: AtomicBool::new(false),
        });
        let [rate, burst] = SERVED_BYTES;
        let mut keeper = Self {
            due: Some(now),
            next_note: now.after(NOTE_INTERVAL),
            noted,
            window: Some(Window {
                height: parts.store.tip().height,
                bytes: 0,
            }),
            next_number,
            served: (0..peers).map(|_| Bucket::new(rate, burst)).collect(),
            parts,
            payloads,
            log,
            bell,
        };
        keeper.take_up()?;
        let payloads = &keeper.parts.metrics.payloads;
        payloads.disk_bytes.set(reader.bytes() as i64);
        Ok(keeper)
    }

    pub fn payloads(&self) -> Arc<Payloads> {
        self.payloads.clone()
    }

    fn take_up(&mut self) -> anyhow::Result<()> {
        let reader = self.log.reader();
        let mut nonces = BTreeMap::new();
        let long_ago = Moment(0);
        for entry in reader.entries() {
            let Entry { author, number, .. } = entry;
            let next = match nonces.get(&author) {
                Some(next) => *next,
                None => *nonces
                    .entry(author)
                    .or_insert(next_ordered(&self.parts, &author)?),
            };
            if number < next || self.parts.committee.place(&author).is_none() {
                continue;
            }
            // A database that was lost lets everything seem unordered: what is far ahead waits until the chain gets there.
            if number - next < MAX_NUMBER_GAP {
                let Some(bundle) = reader.of(&entry)? else {
                    continue;
                };
                self.wait_for_order(&bundle)?;
            }
            let reference = entry.reference();
            let bytes = reference.bytes;
            let mut state = self.payloads.state.lock();
            if author == self.payloads.own {
                self.next_number = self.next_number.max(number + 1);
                let charged = bytes as usize;
                state.own_bytes += charged;
                let own = Own {
                    reference,
                    charged,
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
        if taken.is_err_and(|why| why != Refusal::AlreadyKnown) {
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
            self.work()?;
            let now = self.parts.clock.now();
            let wait = self.due.map(|due| due.since(now));
            if self.payloads.ends.load(Relaxed) {
                return Ok(());
            }
            self.bell.wait(wait);
        }
    }

    /// When [`Self::work`] has something to do, if it has.
    pub fn due(&self) -> Option<Moment> {
        match self.bell.is_rung() {
            true => Some(self.parts.clock.now()),
            false => self.due,
        }
    }

    /// Does what there is to do.
    ///
    /// # Errors
    ///
    /// If the log or the database fails.
    pub fn work(&mut self) -> anyhow::Result<()> {
        self.bell.silence();
        let stored = self.store()?;
        let scans = self.scan()?;
        let serves = self.serve()?;
        let fetches = self.fetch();
        let sends = self.send_again()?;
        self.note_complete()?;
        let again = (stored || scans).then(|| self.parts.clock.now());
        let seals = self.payloads.state.lock().seals_at();
        let due = [again, serves, fetches, sends, seals];
        self.due = due.into_iter().flatten().min();
        Ok(())
    }

    /// Looks through final blocks for bundles that are missing. Returns whether there are more.
    fn scan(&mut self) -> anyhow::Result<bool> {
        if self.window.is_some() {
            return self.look_back();
        }
        let store = &self.parts.store;
        let tip = store.tip().height;
        for _ in 0..SCANNED_TOGETHER {
            let height = self.payloads.state.lock().scanned_below;
            if height > tip {
                return Ok(false);
            }
            let stored = store.block(height).context("cannot read a block")?;
            let kept = match &stored {
                Some(_) => height,
                None => store.pruned_below().context("cannot read the database")?,
            };
            let mut state = self.payloads.state.lock();
            if state.scanned_below != height {
                continue;
            }
            match stored {
                Some(stored) => {
                    if !self.payloads.scan(&stored.block, &mut state) {
                        return Ok(false);
                    }
                }
                // What is kept no longer is nobody's to fetch.
                None => state.scanned_below = kept.max(height.next()),
            }
        }
        Ok(true)
    }

    /// Finds from where on the log has room for all bundles of final blocks: older ones, fetched again, would push out newer
    /// ones. Returns whether there is more to do.
    fn look_back(&mut self) -> anyhow::Result<bool> {
        let Some(window) = &mut self.window else {
            return Ok(true);
        };
        let room = self.log.keep_bytes() / 4 * 3;
        for _ in 0..SCANNED_TOGETHER {
            let lowest = self.payloads.state.lock().scanned_below;
            let stored = match window.height >= lowest {
                true => self
                    .parts
                    .store
                    .block(window.height)
                    .context("cannot read a block")?,
                false => None,
            };
            let Some(stored) = stored else {
                self.window = None;
                return Ok(true);
            };
            let bytes: u64 = ordered(&stored.block)
                .map(|(_, _, one)| u64::from(one.bytes))
                .sum();
            window.bytes += bytes;
            if window.bytes > room {
                let mut state = self.payloads.state.lock();
                state.scanned_below = state.scanned_below.max(window.height.next());
                drop(state);
                self.window = None;
                return Ok(true);
            }
            window.height = Height(window.height.0.saturating_sub(1));
        }
        Ok(true)
    }

    /// Writes down from which height on blocks are to be looked through after a restart.
    fn note_complete(&mut self) -> anyhow::Result<()> {
        let now = self.parts.clock.now();
        if now < self.next_note {
            return Ok(());
        }
        self.next_note = now.after(NOTE_INTERVAL);
        let complete = self.payloads.state.lock().complete_below();
        if complete > self.noted {
            let noted = self.log.note_complete(complete);
            noted.context("the log of bundles")?;
            self.noted = complete;
        }
        Ok(())
    }

    /// Stores what has come, with one sync. Returns whether there was anything.
    fn store(&mut self) -> anyhow::Result<bool> {
        let own = self.seal()?;
        let received = self.take_received()?;
        if own.is_empty() && received.is_empty() {
            return Ok(false);
        }
        let log = "the log of bundles";
        for bundle in own.iter().map(|sealed| &sealed.bundle).chain(&received) {
            self.log.append(bundle).context(log)?;
        }
        self.log.sync().context(log)?;
        let metrics = &self.parts.metrics.payloads;
        metrics.syncs.inc();
        metrics.stored.inc_by((own.len() + received.len()) as u64);
        metrics.disk_bytes.set(self.log.reader().bytes() as i64);
        for Sealed {
            own,
            bundle,
            clients,
        } in own
        {
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
            for (payloads, client) in clients {
                // A client that is gone needs no answer.
                let _ = client.send(payloads);
            }
        }
        for bundle in received {
            let digest = bundle.reference().digest;
            let mut state = self.payloads.state.lock();
            state.missing.remove(&digest);
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
    fn seal(&mut self) -> anyhow::Result<Vec<Sealed>> {
        let now = self.parts.clock.now();
        let mut state = self.payloads.state.lock();
        let overtaken = mem::take(&mut state.overtaken);
        let is_due =
            state.open_bytes >= BUNDLE_BYTES || state.seals_at().is_some_and(|at| at <= now);
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
            let held = self.payloads.reader.get(&own.reference.digest)?;
            let Some(held) = held else {
                self.payloads.state.lock().own_bytes -= own.charged;
                continue;
            };
            sealed.push(Sealed {
                own: Own { sent: now, ..own },
                bundle: self.number(held.bundle().clone()),
                clients: Vec::new(),
            });
        }
        let mut open = open.into_iter().peekable();
        while open.peek().is_some() {
            let (mut parts, mut bytes) = (Vec::new(), 0);
            let fits = |part: &Part, bytes| {
                let together = bytes + part.payloads.bytes().len();
                bytes == 0 || (bytes < BUNDLE_BYTES && together <= MAX_BUNDLE_BYTES)
            };
            while let Some(part) = open.next_if(|part| fits(part, bytes)) {
                bytes += part.payloads.bytes().len();
                parts.push(part);
            }
            let lists: Vec<Bundle> = parts.iter().map(|part| part.payloads.clone()).collect();
            let bundle = self.number(Bundle::joined(&lists));
            let (mut waiting, mut clients) = (Vec::new(), Vec::new());
            let (mut first, mut charged) = (0, 0);
            for part in parts {
                let count = part.payloads.count();
                let payloads = StoredPayloads {
                    bundle: bundle.reference().digest,
                    first,
                    count,
                };
                first += count;
                charged += part.charged;
                waiting.push((payloads, part.ordered));
                clients.push((payloads, part.stored));
            }
            let own = Own {
                reference: *bundle.reference(),
                charged,
                waiting,
                sent: now,
            };
            sealed.push(Sealed {
                own,
                bundle,
                clients,
            });
        }
        Ok(sealed)
    }

    /// Gives a bundle this validator's next number.
    fn number(&mut self, bundle: Bundle) -> OrderedBundle {
        let number = self
            .next_number
            .max(self.payloads.state.lock().unordered_from);
        self.next_number = number + 1;
        self.ordered_as(number, bundle)
    }

    /// This validator's bundle of this number.
    fn ordered_as(&self, number: u64, bundle: Bundle) -> OrderedBundle {
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
            match self.judge(PeerIndex(from), &bundle)? {
                Judged::New if taken.contains(&bundle) => {}
                Judged::New => taken.push(bundle),
                // The mempool may have given it up meanwhile.
                Judged::Stored => self.wait_for_order(&bundle)?,
                Judged::Refused => {}
            }
        }
        Ok(taken)
    }

    fn judge(&self, from: PeerIndex, bundle: &OrderedBundle) -> anyhow::Result<Judged> {
        let metrics = &self.parts.metrics;
        let transfer = bundle.transaction().transfer();
        let (author, number) = (transfer.sender, transfer.nonce);
        let digest = bundle.reference().digest;
        if self.parts.committee.place(&author).is_none() {
            metrics.dropped("bundle_of_nobody");
            return Ok(Judged::Refused);
        }
        let next = next_ordered(&self.parts, &author)?;
        let mut state = self.payloads.state.lock();
        let is_missing = state.missing.contains(&digest);
        let others = state.unordered.entry(author).or_default();
        let is_stored = others.contains_key(&number) && self.payloads.reader.holds(&digest);
        let fits = (next..next.saturating_add(MAX_NUMBER_GAP)).contains(&number)
            && author != self.payloads.own
            && !others.contains_key(&number)
            && others.values().map(|bytes| *bytes as usize).sum::<usize>() < OTHERS_BYTES;
        if !fits && !is_missing && !is_stored {
            metrics.dropped("bundle_does_not_fit");
            return Ok(Judged::Refused);
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
            return Ok(Judged::Refused);
        }
        if is_stored {
            return Ok(Judged::Stored);
        }
        if fits {
            let mut state = self.payloads.state.lock();
            let others = state.unordered.entry(author).or_default();
            others.insert(number, bundle.reference().bytes);
        }
        Ok(Judged::New)
    }

    /// A peer asks for a bundle: if no block has ordered it, its author has not sent it to all.
    fn note_withheld(&self, asker: usize, bundle: &OrderedBundle) -> anyhow::Result<()> {
        let transfer = bundle.transaction().transfer();
        let is_ordered = transfer.nonce < next_ordered(&self.parts, &transfer.sender)?;
        if transfer.sender != self.payloads.own && !is_ordered {
            let now = self.parts.clock.now();
            let mut state = self.payloads.state.lock();
            state.withheld.note(asker, transfer.sender, now);
        }
        Ok(())
    }

    /// Answers requests for bundles. Returns when to go on.
    fn serve(&mut self) -> anyhow::Result<Option<Moment>> {
        let now = self.parts.clock.now();
        let now_us = now.0;
        let mut later = None;
        for peer in 0..self.served.len() {
            while self.served[peer].empty_for_us(now_us) == 0 {
                let request = self.payloads.state.lock().requests[peer].pop_front();
                let Some(digest) = request else {
                    break;
                };
                let Some(identity) = place_of(&self.parts.committee, PeerIndex(peer))
                    .and_then(|place| self.parts.committee.identity(place))
                else {
                    continue;
                };
                let bundle = match self.payloads.reader.get(&digest) {
                    Ok(Some(bundle)) => bundle,
                    Ok(None) => continue,
                    Err(error) => {
                        warn!(%error, "a bundle that another validator asks for cannot be read");
                        continue;
                    }
                };
                self.note_withheld(peer, &bundle)?;
                self.served[peer].spend(now_us, u64::from(bundle.reference().bytes));
                self.parts.metrics.payloads.served.inc();
                let frame = Frame(vec![Message::Bundle(Box::new(bundle))]).encode();
                (self.parts.wire)(Lane::Fetch, &To::One(identity), frame);
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
        let reader = &self.payloads.reader;
        let timeout = self.parts.timing.fetch_timeout;
        let mut state = self.payloads.state.lock();
        let (questions, next) = state
            .missing
            .questions(now, &peers, timeout, |digest| reader.holds(digest));
        let metrics = &self.parts.metrics.payloads;
        metrics.wanted.set(state.missing.len() as i64);
        drop(state);
        for Question { to, digest } in questions {
            metrics.fetched.inc();
            let frame = Frame(vec![Message::BundleRequest(digest)]).encode();
            (self.parts.wire)(Lane::Fetch, &To::One(to), frame);
        }
        next
    }

    /// Sends this validator's bundles again that no block has ordered for long. Returns when to look again.
    fn send_again(&mut self) -> anyhow::Result<Option<Moment>> {
        let now = self.parts.clock.now();
        let mut state = self.payloads.state.lock();
        let (mut again, mut bytes) = (Vec::new(), 0);
        // The others take no more.
        let numbers = state.unordered_from..state.unordered_from.saturating_add(MAX_NUMBER_GAP);
        let mut due: Vec<_> = state.own.range_mut(numbers.clone()).collect();
        due.retain(|(_, own)| own.sent.after(SEND_AGAIN) <= now);
        // Those first that were sent longest ago, so that each has its turn.
        due.sort_by_key(|(_, own)| own.sent);
        let mut due = due.into_iter();
        for (number, own) in due.by_ref() {
            own.sent = now;
            bytes += own.reference.bytes as usize + REQUEST_PRICE;
            again.push((*number, own.reference));
            if bytes >= SENT_AGAIN_BYTES || again.len() >= SENT_AGAIN_BUNDLES {
                break;
            }
        }
        let next = match due.next() {
            Some(_) => Some(now.after(SEND_MORE)),
            None => (state.own.range(numbers))
                .map(|(_, own)| own.sent.after(SEND_AGAIN))
                .min(),
        };
        drop(state);
        for (number, reference) in again {
            let Some(held) = self.payloads.reader.get(&reference.digest)? else {
                continue;
            };
            let bundle = self.ordered_as(number, held.bundle().clone());
            // The mempool may have given it up meanwhile.
            self.wait_for_order(&bundle)?;
            self.send(bundle);
        }
        Ok(next)
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
