//! Transactions that wait for a block.
//!
//! It is bounded by count, by bytes, and per sender. A transaction that does not fit is refused
//! with a reason. The caller has verified every transaction before.
//!
//! Each sender's transactions are ordered by nonce, beside the account as of a known height. Those
//! that can be proposed are an unbroken *run* from the account's next nonce, as far as the account
//! can pay their fees one after the other. The others are *stranded* until the gap closes or money
//! arrives, which may never happen: they expire after [`MempoolLimits::stranded_lasts`], and when
//! the mempool is full, the one that was stranded first makes room for one that can be proposed.
//! Transactions that can be proposed are never evicted: a client was told that they are accepted,
//! and they will be final.
//!
//! Blocks are filled by price, each sender's transactions in the order of their nonces. The price
//! is the fee in multiples of the least fee for such a transfer; otherwise larger transfers would
//! go first for the least fee. Senders with equal prices take turns, so that a sender of many
//! transactions keeps nobody out. *Duties* go before all that, one of each sender in a block, those of the epoch's
//! validators first: reports, and what passes shares on ([`quorate_types::registry::is_duty`]). They also find room when
//! the mempool is full.
//!
//! A waiting transaction is replaced by one of the same nonce that pays at least a tenth more, and
//! this one can be replaced only after [`REPLACEMENT_INTERVAL`]: while it is stranded, nothing is
//! ever paid for it.
//!
//! Transactions that clients submit here are stored on disk by the [`crate::keeper`]. If one of
//! them leaves without being executed, the reason is remembered for a while ([`Dropped`]), so that
//! its client can be told.

mod pool;
mod refusal;
#[cfg(test)]
mod tests;

pub use refusal::{Dropped, Refusal};

use crate::{accounts::AccountAt, forecast::Outlook};
use commonware_codec::EncodeSize;
use parking_lot::{Mutex, MutexGuard, RwLock};
use pool::{Pool, Waiting, pay};
use quorate_consensus::Moment;
use quorate_types::{
    Account, Digest, Height, Identity, Transaction, genesis::Fees, limits::MAX_BLOCK_OPERATIONS,
};
use std::{
    cmp::{Ordering, Reverse},
    collections::{BTreeMap, BTreeSet, BinaryHeap, binary_heap::PeekMut},
    ops::{Deref, DerefMut},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::sync::Notify;

/// How far a nonce may be above the account's next one.
pub const MAX_NONCE_GAP: u64 = 1_024;

/// A client's transaction that was not executed for this long is forwarded again.
const FORWARD_AGAIN: Duration = Duration::from_secs(2);

/// Bytes that a transaction counts for, besides its memo: its encoding and the bookkeeping.
pub const TRANSACTION_BYTES: usize = 512;

/// A replacement pays at least this part of the fee more, and at least 1.
const REPLACEMENT_PART: u64 = 10;

/// How long a replacement waits at least before it can be replaced.
pub const REPLACEMENT_INTERVAL: Duration = Duration::from_secs(1);

/// Operations of the registry that are no duties have this part of the room.
const OPERATIONS_PART: usize = 8;

/// How many duties find room in a mempool that is full.
const DUTY_ROOM: usize = 512;

/// Bytes that a duty counts for, at most.
const DUTY_BYTES: usize = TRANSACTION_BYTES + 4_096;

/// The mempool's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MempoolLimits {
    /// Transactions in all: 1 to 10,000,000 in a validator's configuration.
    pub max_transactions: usize,
    /// Bytes in all, [`TRANSACTION_BYTES`] and its memo for each: 1,024 to 16 GiB.
    pub max_bytes: usize,
    /// Transactions of one sender: 1 to 1,000,000.
    pub max_per_sender: usize,
    /// How long a transaction may wait for a nonce before it, or for money: 1 s to 168 h.
    pub stranded_lasts: Duration,
}

impl MempoolLimits {
    /// The limits for duties, which find room where others do not.
    fn for_duties(&self) -> Self {
        Self {
            max_transactions: self.max_transactions.saturating_add(DUTY_ROOM),
            max_bytes: self.max_bytes.saturating_add(DUTY_ROOM * DUTY_BYTES),
            ..*self
        }
    }
}

impl Default for MempoolLimits {
    fn default() -> Self {
        Self {
            max_transactions: 100_000,
            max_bytes: 64 << 20,
            max_per_sender: 10_000,
            stranded_lasts: Duration::from_secs(120),
        }
    }
}

/// What a waiting transaction waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingFor {
    /// The nonce that is missing or that the account cannot pay for; `None` if the transaction can
    /// go into the next block.
    pub nonce: Option<u64>,
    /// When it expires, unless it can go into a block before.
    pub expires: Option<Moment>,
}

/// The mempool. Every method takes one short lock.
pub struct Mempool {
    limits: MempoolLimits,
    /// The most transaction bytes that a block holds.
    block_bytes: usize,
    fees: Fees,
    /// The epoch's validators.
    validators: RwLock<BTreeSet<Identity>>,
    pool: Mutex<Pool>,
    /// Transactions that can go into a block.
    runnable: AtomicUsize,
    /// Notifies the forwarder.
    forwardable: Notify,
    /// Called when the first transaction comes that can go into a block.
    watcher: RwLock<Option<Box<dyn Fn() + Send + Sync>>>,
}

struct Changing<'a> {
    mempool: &'a Mempool,
    pool: MutexGuard<'a, Pool>,
}

impl Deref for Changing<'_> {
    type Target = Pool;

    fn deref(&self) -> &Pool {
        &self.pool
    }
}

impl DerefMut for Changing<'_> {
    fn deref_mut(&mut self) -> &mut Pool {
        &mut self.pool
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let runnable = self.pool.ids.len() - self.pool.stranded.len();
        let before = self.mempool.runnable.swap(runnable, Relaxed);
        if !self.pool.fresh.is_empty() {
            self.mempool.forwardable.notify_one();
        }
        if before == 0
            && runnable > 0
            && let Some(watcher) = &*self.mempool.watcher.read()
        {
            watcher();
        }
    }
}

impl Mempool {
    /// An empty mempool, for blocks with this many bytes of transactions, on a chain with these
    /// fees.
    pub fn new(limits: MempoolLimits, block_bytes: usize, fees: Fees) -> Self {
        Self {
            limits,
            block_bytes,
            fees,
            validators: RwLock::default(),
            pool: Mutex::default(),
            runnable: AtomicUsize::new(0),
            forwardable: Notify::new(),
            watcher: RwLock::default(),
        }
    }

    /// Has the duties of these validators go before everything else, from now on.
    pub(crate) fn serve(&self, validators: &[Identity]) {
        *self.validators.write() = validators.iter().copied().collect();
    }

    /// Whether it knows the accounts as they are after this height, so that it can go on from there.
    pub(crate) fn is_at(&self, height: Height) -> bool {
        let seen = self.pool.lock().executed_to();
        seen.is_none_or(|newest| newest == height)
    }

    /// How a transaction ranks, whatever it pays. Those who pay could otherwise keep the validators as they are by
    /// filling blocks or the mempool. Everybody else is ranked alike, so what a rank is worth is bounded by stake: of
    /// each sender one duty in a block.
    fn rank(&self, transaction: &Transaction, sender: &Account) -> Rank {
        let identity = &transaction.transfer().sender;
        match transaction.is_duty() {
            true if self.validators.read().contains(identity) => Rank::Validator,
            true if sender.bond.is_some() => Rank::Bonded,
            _ => Rank::Anybody,
        }
    }

    /// Has `watcher` called whenever the first transaction comes that can go into a block. It must
    /// be fast, and must not use the mempool.
    pub(crate) fn watch(&self, watcher: Box<dyn Fn() + Send + Sync>) {
        // There is one node.
        *self.watcher.write() = Some(watcher);
    }

    /// How many transactions can go into a block, including those in blocks that are not executed
    /// yet.
    pub fn runnable(&self) -> usize {
        self.runnable.load(Relaxed)
    }

    /// Waits until there are new transactions to forward.
    pub(crate) async fn forwardable(&self) {
        self.forwardable.notified().await;
    }

    fn change(&self) -> Changing<'_> {
        Changing {
            mempool: self,
            pool: self.pool.lock(),
        }
    }

    /// Adds a client's verified transaction, to be forwarded to the next leaders, and to be stored
    /// on disk by the caller. `sender` is its sender's account. A transaction that is here already
    /// as another validator's becomes a client's, which is no error.
    pub fn submit(
        &self,
        now: Moment,
        transaction: Transaction,
        sender: AccountAt,
    ) -> Result<(), Refusal> {
        let id = transaction.id();
        let mut pool = self.change();
        if pool.adopt(&transaction) {
            return Ok(());
        }
        let rank = self.rank(&transaction, &sender.account);
        self.insert(now, &mut pool, transaction, sender, true)?;
        match rank {
            Rank::Anybody => pool.fresh.push_back(id),
            Rank::Bonded | Rank::Validator => pool.fresh.push_front(id),
        }
        Ok(())
    }

    /// Adds a client's verified transaction that was stored on disk. Of several with one nonce, the
    /// one accepted last stays, in whatever order they come.
    pub(crate) fn restore(
        &self,
        now: Moment,
        transaction: Transaction,
        sender: AccountAt,
    ) -> Result<(), Refusal> {
        let id = transaction.id();
        self.submit(now, transaction, sender)?;
        self.pool.lock().may_be_replaced(&id);
        Ok(())
    }

    /// Adds a verified transaction that another validator forwarded. It is not forwarded again.
    pub fn submit_forwarded(
        &self,
        now: Moment,
        transaction: Transaction,
        sender: AccountAt,
    ) -> Result<(), Refusal> {
        self.insert(now, &mut self.change(), transaction, sender, false)
    }

    fn insert(
        &self,
        now: Moment,
        pool: &mut Pool,
        transaction: Transaction,
        sender: AccountAt,
        of_client: bool,
    ) -> Result<(), Refusal> {
        let (bytes, limit) = (transaction.encode_size(), self.block_bytes);
        if bytes > limit {
            return Err(Refusal::TooLarge { bytes, limit });
        }
        let limits = self.limits_for(pool, &transaction, &sender.account)?;
        pool.insert(&limits, now, transaction, sender, of_client)
    }

    /// The limits that hold for a transaction; an error if it is one operation of the registry too many. A block takes
    /// few of them, so they could fill the mempool for hours, for a fee that is paid block by block.
    fn limits_for(
        &self,
        pool: &Pool,
        transaction: &Transaction,
        sender: &Account,
    ) -> Result<MempoolLimits, Refusal> {
        if self.rank(transaction, sender) > Rank::Anybody {
            return Ok(self.limits.for_duties());
        }
        let most = self.limits.max_transactions.div_ceil(OPERATIONS_PART);
        let is_further = transaction.is_operation() && pool.operations >= most;
        match is_further && !pool.has_rival(transaction.transfer()) {
            true => Err(Refusal::Full),
            false => Ok(self.limits),
        }
    }

    /// Chooses transactions for a block: by price, then by arrival with each sender in turn, as far
    /// as nonces allow; the first duty of each validator goes before all others. `outlook` has the accounts changed by the block's unexecuted ancestors.
    /// Nothing is removed. A transaction that does not fit waits for the next block, and so do its
    /// sender's later ones.
    pub fn take(&self, max_count: usize, max_bytes: usize, outlook: &Outlook) -> Vec<Transaction> {
        let limit = max_count.min(max_bytes / Transaction::MIN_SIZE);
        let mut room = max_bytes;
        let mut operations = 0;
        let pool = self.pool.lock();
        let mut heads: BinaryHeap<Head> = pool
            .senders
            .iter()
            .filter_map(|(identity, sender)| {
                let account = outlook.changed(identity);
                let account = account.unwrap_or_else(|| sender.account.clone());
                let first = sender.waiting.get(&account.nonce)?;
                let rank = self.rank(&first.transaction, &sender.account);
                Some(self.head(first, rank, (0, first.arrival), *identity, account))
            })
            .collect();
        let mut taken = Vec::with_capacity(limit.min(pool.ids.len()));
        while taken.len() < limit
            && let Some(mut head) = heads.peek_mut()
        {
            let sender = pool.senders.get(&head.sender);
            let sender = sender.expect("heads are of senders, and the lock is held");
            let this = sender.waiting.get(&head.account.nonce);
            let this = this.expect("a head is a nonce that waits");
            let after = pay(&head.account, this.transaction.transfer());
            let left = room.checked_sub(this.transaction.encode_size());
            let is_operation = this.transaction.is_operation();
            let fits = !is_operation || operations < MAX_BLOCK_OPERATIONS;
            let (Some(after), Some(left), true) = (after, left, fits) else {
                PeekMut::pop(head);
                continue;
            };
            room = left;
            operations += usize::from(is_operation);
            taken.push(this.transaction.clone());
            match sender.waiting.get(&after.nonce) {
                Some(next) => {
                    // A later nonce cannot go before an earlier one, whenever it came.
                    let reached = next.arrival.max(head.arrival.0);
                    let place = (head.taken.0 + 1, reached);
                    *head = self.head(next, Rank::Anybody, place, head.sender, after);
                }
                None => drop(PeekMut::pop(head)),
            }
        }
        taken
    }

    /// A sender's transaction, with the number of its sender's transactions before it and its
    /// arrival.
    fn head(
        &self,
        first: &Waiting,
        rank: Rank,
        (taken, arrival): (u32, u64),
        sender: Identity,
        account: Account,
    ) -> Head {
        let transfer = first.transaction.transfer();
        let least = match self.fees.minimum(transfer) {
            // Transfers may be free on this chain; then their price is the room that they take.
            0 => first.transaction.encode_size() as u64,
            least => least,
        };
        Head {
            rank,
            price: (u128::from(transfer.fee) << 20) / u128::from(least),
            taken: Reverse(taken),
            arrival: Reverse(arrival),
            sender,
            account,
        }
    }

    /// Why a transaction would be refused, as far as this can be told without verifying its
    /// signature.
    pub fn refuses(
        &self,
        now: Moment,
        transaction: &Transaction,
        sender: AccountAt,
    ) -> Option<Refusal> {
        let pool = self.pool.lock();
        match self.limits_for(&pool, transaction, &sender.account) {
            Ok(limits) => pool.refuses(&limits, now, transaction, sender),
            Err(refusal) => Some(refusal),
        }
    }

    /// The first nonce of an account that no waiting transaction of its run has; `None` if none
    /// waits.
    pub fn next_nonce(&self, identity: &Identity) -> Option<u64> {
        let pool = self.pool.lock();
        pool.senders.get(identity).map(|sender| sender.run_end)
    }

    /// Forgets what a final block has executed or made impossible. `accounts` are those that it
    /// changed, `executed` its transactions that used their nonce.
    pub fn executed(
        &self,
        now: Moment,
        height: Height,
        accounts: &Arc<BTreeMap<Identity, Account>>,
        executed: &BTreeSet<Digest>,
    ) {
        let mut pool = self.change();
        pool.executed(now, height, accounts, executed);
    }

    /// Drops what has been stranded for too long.
    pub fn expire(&self, now: Moment) {
        self.change().expire(now, self.limits.stranded_lasts);
    }

    /// Whether no transaction at all would find room now.
    pub fn is_full(&self) -> bool {
        let pool = self.pool.lock();
        pool.stranded.is_empty() && !pool.has_room(&self.limits, TRANSACTION_BYTES)
    }

    /// Whether a transaction with this id is here.
    pub fn contains(&self, id: &Digest) -> bool {
        self.pool.lock().ids.contains_key(id)
    }

    /// What a transaction waits for, if it is here.
    pub fn waits_for(&self, id: &Digest) -> Option<WaitingFor> {
        let pool = self.pool.lock();
        let (identity, nonce) = pool.ids.get(id)?;
        let sender = pool.senders.get(identity)?;
        let waiting = sender.waiting.get(nonce)?;
        let since = waiting.stranded_since;
        Some(WaitingFor {
            nonce: since.map(|_| sender.run_end),
            expires: since.map(|since| since.after(self.limits.stranded_lasts)),
        })
    }

    /// Why a client's transaction has left, if that was recently.
    pub fn dropped(&self, id: &Digest) -> Option<Dropped> {
        self.pool.lock().dropped.get(id).copied()
    }

    /// Remembers why a client's transaction from disk is not added again.
    pub(crate) fn not_restored(&self, id: Digest, refusal: Refusal) {
        let why = match refusal {
            Refusal::CannotPayFee { left, fee } => Dropped::CannotPayFee { balance: left, fee },
            Refusal::StaleNonce { .. }
            | Refusal::NonceTaken { .. }
            | Refusal::ReplacedLately { .. } => Dropped::NonceUsed,
            Refusal::NonceTooFar { expected, .. } => Dropped::MadeWay { missing: expected },
            Refusal::AlreadyKnown => return,
            Refusal::SenderFull { .. }
            | Refusal::TooLarge { .. }
            | Refusal::Full
            | Refusal::Outdated => Dropped::NoRoom,
        };
        self.pool.lock().remember(id, why);
    }

    /// Whether exactly this transaction, signature included, is here. It was verified when it came.
    pub fn holds(&self, transaction: &Transaction) -> bool {
        let pool = self.pool.lock();
        pool.find(&transaction.id())
            .is_some_and(|held| held.transaction == *transaction)
    }

    /// Clients' transactions that are due to be forwarded: each once it can go into a block, and
    /// again when it has not been executed for a while. At most `max` of them, and `max_bytes`.
    pub fn next_to_forward(&self, now: Moment, max: usize, max_bytes: usize) -> Vec<Transaction> {
        let mut pool = self.pool.lock();
        let (mut due, mut bytes) = (Vec::new(), 0);
        while due.len() < max
            && bytes < max_bytes
            && let Some(id) = pool.next_due(now)
        {
            if pool.park(&id) {
                continue;
            }
            if let Some(held) = pool.find(&id) {
                bytes += held.transaction.encode_size();
                due.push(held.transaction.clone());
                pool.again.push_back((now.after(FORWARD_AGAIN), id));
            }
        }
        due
    }

    /// Clients' transactions that have left since the last call: they need not be stored any
    /// longer.
    pub fn take_gone(&self) -> Vec<Digest> {
        std::mem::take(&mut self.pool.lock().gone)
    }

    /// The number of transactions, and the bytes that they count for.
    pub fn size(&self) -> (usize, usize) {
        let pool = self.pool.lock();
        (pool.ids.len(), pool.bytes)
    }
}

/// Whose transaction goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Anybody,
    /// A duty of somebody with a bond.
    Bonded,
    /// A duty of a validator.
    Validator,
}

/// A sender's next transaction for a block. The greatest one goes first.
struct Head {
    rank: Rank,
    /// The fee in multiples of the least one, in 2^-20.
    price: u128,
    /// The number of its sender's transactions before it.
    taken: Reverse<u32>,
    arrival: Reverse<u64>,
    sender: Identity,
    /// The account before the transaction.
    account: Account,
}

impl Head {
    fn key(&self) -> (Rank, u128, Reverse<u32>, Reverse<u64>, Identity) {
        (self.rank, self.price, self.taken, self.arrival, self.sender)
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Head {}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}
