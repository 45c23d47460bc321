//! Transactions that wait for a block.
//!
//! Bounded by count, by bytes, and per sender. What does not fit is refused with a reason. Whatever
//! comes in has been verified by the caller.
//!
//! Each sender's transactions are kept by nonce. Only an unbroken run from the account's next nonce
//! can be proposed; later ones are stranded until the gap closes, which may be never. When there is
//! no room left, the one that was stranded first makes way for one that can be proposed. What can be
//! proposed is never thrown out.

use commonware_codec::EncodeSize;
use parking_lot::Mutex;
use quorate_consensus::Moment;
use quorate_types::{Digest, Identity, Transaction};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap, HashSet, VecDeque, binary_heap::PeekMut},
    time::Duration,
};

/// How far a nonce may be above the account's next one.
pub const MAX_NONCE_GAP: u64 = 1_024;

/// After this long without being executed, a client's transaction is forwarded again.
const FORWARD_AGAIN: Duration = Duration::from_secs(2);

/// Bytes that a transaction counts for, beside its memo: its encoding and what keeping it takes.
pub const TRANSACTION_BYTES: usize = 512;

/// What the mempool may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MempoolLimits {
    /// Transactions in all.
    pub max_transactions: usize,
    /// Bytes in all, [`TRANSACTION_BYTES`] and its memo for each.
    pub max_bytes: usize,
    /// Transactions of one sender.
    pub max_per_sender: usize,
}

/// Why a transaction was not taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is here already.
    #[error("the transaction is already waiting")]
    AlreadyKnown,
    /// Another one of the sender's has this nonce.
    #[error("another transaction of this sender is waiting with nonce {nonce}")]
    NonceTaken {
        /// The nonce.
        nonce: u64,
    },
    /// Its nonce was used.
    #[error("nonce {nonce} was used; the account's next nonce is {expected}")]
    StaleNonce {
        /// The transaction's.
        nonce: u64,
        /// The account's next one.
        expected: u64,
    },
    /// Its nonce is too far ahead.
    #[error(
        "nonce {nonce} is more than {MAX_NONCE_GAP} above the account's next nonce, {expected}"
    )]
    NonceTooFar {
        /// The transaction's.
        nonce: u64,
        /// The account's next one.
        expected: u64,
    },
    /// The sender could not pay the fee now.
    #[error("the account holds {balance}, less than the fee of {fee}")]
    CannotPayFee {
        /// What the account holds.
        balance: u64,
        /// The fee.
        fee: u64,
    },
    /// The sender has too many here.
    #[error("{limit} transactions of this sender are waiting, the most that may")]
    SenderFull {
        /// The limit.
        limit: usize,
    },
    /// No block of this chain could hold it.
    #[error("the transaction has {bytes} bytes, and a block of this chain has room for {limit}")]
    TooLarge {
        /// Its encoding's.
        bytes: usize,
        /// The most that a block holds.
        limit: usize,
    },
    /// There is no room.
    #[error("the mempool is full; try again when blocks have taken some of it")]
    Full,
}

impl Refusal {
    /// A short name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::AlreadyKnown => "already_known",
            Self::NonceTaken { .. } => "nonce_taken",
            Self::StaleNonce { .. } => "stale_nonce",
            Self::NonceTooFar { .. } => "nonce_too_far",
            Self::CannotPayFee { .. } => "cannot_pay_fee",
            Self::SenderFull { .. } => "sender_full",
            Self::TooLarge { .. } => "too_large",
            Self::Full => "mempool_full",
        }
    }
}

struct Waiting {
    transaction: Transaction,
    /// Counts up with each arrival; blocks are filled in this order.
    arrival: u64,
}

struct Sender {
    /// The account's next nonce, as far as known.
    next_nonce: u64,
    /// The first nonce that no unbroken run from the account's next one reaches.
    run_end: u64,
    waiting: BTreeMap<u64, Waiting>,
}

#[derive(Default)]
struct Pool {
    senders: HashMap<Identity, Sender>,
    ids: HashMap<Digest, (Identity, u64)>,
    /// What all of these count for.
    bytes: usize,
    /// Those behind a gap, by arrival.
    stranded: BTreeMap<u64, (Identity, u64)>,
    arrivals: u64,
    /// Clients' transactions that were not forwarded yet.
    fresh: VecDeque<Digest>,
    /// Those that were, and when they are again.
    again: VecDeque<(Moment, Digest)>,
}

/// The mempool. Every method takes one short lock.
pub struct Mempool {
    limits: MempoolLimits,
    /// The most transaction bytes that a block holds.
    block_bytes: usize,
    pool: Mutex<Pool>,
}

impl Mempool {
    /// An empty mempool, for blocks that hold so many bytes of transactions.
    pub fn new(limits: MempoolLimits, block_bytes: usize) -> Self {
        Self {
            limits,
            block_bytes,
            pool: Mutex::default(),
        }
    }

    /// Takes in a client's verified transaction, to be forwarded to the coming leaders as soon as
    /// anybody asks. `nonce` and `balance` are its sender's account's.
    ///
    /// # Errors
    ///
    /// See [`Refusal`].
    pub fn submit(
        &self,
        transaction: Transaction,
        nonce: u64,
        balance: u64,
    ) -> Result<(), Refusal> {
        let id = transaction.id();
        let mut pool = self.pool.lock();
        self.insert(&mut pool, transaction, nonce, balance)?;
        pool.fresh.push_back(id);
        Ok(())
    }

    /// Takes in a verified transaction that another validator forwarded. It is not forwarded again.
    ///
    /// # Errors
    ///
    /// See [`Refusal`].
    pub fn submit_forwarded(
        &self,
        transaction: Transaction,
        nonce: u64,
        balance: u64,
    ) -> Result<(), Refusal> {
        self.insert(&mut self.pool.lock(), transaction, nonce, balance)
    }

    fn insert(
        &self,
        pool: &mut Pool,
        transaction: Transaction,
        nonce: u64,
        balance: u64,
    ) -> Result<(), Refusal> {
        let (bytes, limit) = (transaction.encode_size(), self.block_bytes);
        if bytes > limit {
            return Err(Refusal::TooLarge { bytes, limit });
        }
        pool.insert(&self.limits, transaction, nonce, balance)
    }

    /// Transactions for a block, in the order of their arrival as far as nonces allow. `exclude`
    /// are those that unfinalised ancestors hold; their nonces count as used. Nothing is removed. What
    /// does not fit any more waits for the next block, and with it the rest of its sender's.
    pub fn take(
        &self,
        max_count: usize,
        max_bytes: usize,
        exclude: &HashSet<Digest>,
    ) -> Vec<Transaction> {
        let limit = max_count.min(max_bytes / Transaction::MIN_SIZE);
        let mut room = max_bytes;
        let pool = self.pool.lock();
        // The senders that have something to propose, the earliest arrival first. A later nonce
        // cannot go before an earlier one, whenever it came, so a sender's key only grows.
        let mut heads: BinaryHeap<Reverse<(u64, Identity, u64)>> = pool
            .senders
            .iter()
            .filter_map(|(identity, sender)| {
                let first = sender.waiting.get(&sender.next_nonce)?;
                Some(Reverse((first.arrival, *identity, sender.next_nonce)))
            })
            .collect();
        let mut taken = Vec::with_capacity(limit.min(pool.ids.len()));
        while taken.len() < limit
            && let Some(mut head) = heads.peek_mut()
        {
            let Reverse((reached, identity, nonce)) = *head;
            let sender = pool.senders.get(&identity);
            let sender = sender.expect("heads are of senders, and the lock is held");
            let mut run = sender.waiting.range(nonce..);
            if let Some((_, this)) = run.next()
                && !exclude.contains(&this.transaction.id())
            {
                let Some(left) = room.checked_sub(this.transaction.encode_size()) else {
                    PeekMut::pop(head);
                    continue;
                };
                room = left;
                taken.push(this.transaction.clone());
            }
            match run.next() {
                Some((next, later)) if *next == nonce + 1 => {
                    *head = Reverse((later.arrival.max(reached), identity, *next));
                }
                _ => {
                    PeekMut::pop(head);
                }
            }
        }
        taken
    }

    /// Forgets what a final block has executed or made stale. `nonces` are the new nonces of the
    /// accounts that it changed.
    pub fn executed(&self, nonces: &BTreeMap<Identity, u64>) {
        let mut pool = self.pool.lock();
        for (identity, nonce) in nonces {
            pool.advance(identity, *nonce);
        }
    }

    /// Whether no transaction whatever would find room now.
    pub fn is_full(&self) -> bool {
        let pool = self.pool.lock();
        pool.stranded.is_empty() && !pool.has_room(&self.limits, TRANSACTION_BYTES)
    }

    /// Whether a transaction with this id is here.
    pub fn contains(&self, id: &Digest) -> bool {
        self.pool.lock().ids.contains_key(id)
    }

    /// Whether exactly this transaction, signature included, is here. It was verified when it came.
    pub fn holds(&self, transaction: &Transaction) -> bool {
        let pool = self.pool.lock();
        pool.find(&transaction.id())
            .is_some_and(|held| held.transaction == *transaction)
    }

    /// Clients' transactions that are due to be forwarded: each once, and again when it has not
    /// been executed for a while. No more are added when there are `max` or `max_bytes` of them.
    pub fn next_to_forward(&self, now: Moment, max: usize, max_bytes: usize) -> Vec<Transaction> {
        let mut pool = self.pool.lock();
        let (mut due, mut bytes) = (Vec::new(), 0);
        while due.len() < max
            && bytes < max_bytes
            && let Some(id) = pool.next_due(now)
        {
            if let Some(held) = pool.find(&id) {
                bytes += held.transaction.encode_size();
                due.push(held.transaction.clone());
                pool.again.push_back((now.after(FORWARD_AGAIN), id));
            }
        }
        due
    }

    /// How many transactions are here, and the bytes that they count for.
    pub fn size(&self) -> (usize, usize) {
        let pool = self.pool.lock();
        (pool.ids.len(), pool.bytes)
    }
}

/// What a transaction counts for.
fn weight(transaction: &Transaction) -> usize {
    TRANSACTION_BYTES + transaction.transfer().memo.as_bytes().len()
}

impl Pool {
    /// The next transaction to forward, which leaves its queue.
    fn next_due(&mut self, now: Moment) -> Option<Digest> {
        if let Some(id) = self.fresh.pop_front() {
            return Some(id);
        }
        self.again
            .pop_front_if(|(due, _)| *due <= now)
            .map(|(_, id)| id)
    }

    fn find(&self, id: &Digest) -> Option<&Waiting> {
        let (sender, nonce) = self.ids.get(id)?;
        self.senders.get(sender)?.waiting.get(nonce)
    }

    fn insert(
        &mut self,
        limits: &MempoolLimits,
        transaction: Transaction,
        expected: u64,
        balance: u64,
    ) -> Result<(), Refusal> {
        let (id, bytes) = (transaction.id(), weight(&transaction));
        let transfer = transaction.transfer();
        let (sender, nonce, fee) = (transfer.sender, transfer.nonce, transfer.fee);
        if self.ids.contains_key(&id) {
            return Err(Refusal::AlreadyKnown);
        }
        // A block may have been executed since the caller looked.
        let known = self.senders.get(&sender).map_or(0, |s| s.next_nonce);
        let expected = expected.max(known);
        if nonce < expected {
            return Err(Refusal::StaleNonce { nonce, expected });
        }
        if nonce - expected > MAX_NONCE_GAP {
            return Err(Refusal::NonceTooFar { nonce, expected });
        }
        if balance < fee {
            return Err(Refusal::CannotPayFee { balance, fee });
        }
        if let Some(held) = self.senders.get(&sender) {
            if held.waiting.contains_key(&nonce) {
                return Err(Refusal::NonceTaken { nonce });
            }
            if held.waiting.len() >= limits.max_per_sender {
                return Err(Refusal::SenderFull {
                    limit: limits.max_per_sender,
                });
            }
        }
        self.advance(&sender, expected);
        let run_end = self.senders.get(&sender).map_or(expected, |s| s.run_end);
        while !self.has_room(limits, bytes) {
            if nonce != run_end || !self.throw_out_stranded() {
                return Err(Refusal::Full);
            }
        }
        self.arrivals += 1;
        let arrival = self.arrivals;
        let entry = self.senders.entry(sender).or_insert_with(|| Sender {
            next_nonce: expected,
            run_end: expected,
            waiting: BTreeMap::new(),
        });
        entry.waiting.insert(
            nonce,
            Waiting {
                transaction,
                arrival,
            },
        );
        self.ids.insert(id, (sender, nonce));
        self.bytes += bytes;
        self.stranded.insert(arrival, (sender, nonce));
        self.extend_run(&sender);
        Ok(())
    }

    fn has_room(&self, limits: &MempoolLimits, bytes: usize) -> bool {
        self.ids.len() < limits.max_transactions && self.bytes + bytes <= limits.max_bytes
    }

    /// Takes a transaction that has left its sender's list out of the books.
    fn forget(&mut self, gone: &Waiting) {
        self.ids.remove(&gone.transaction.id());
        self.stranded.remove(&gone.arrival);
        self.bytes -= weight(&gone.transaction);
    }

    /// Drops the transaction that was stranded first, if there is one. Its gap has had the longest
    /// time to close.
    fn throw_out_stranded(&mut self) -> bool {
        let Some((_, (identity, nonce))) = self.stranded.pop_first() else {
            return false;
        };
        if let Some(sender) = self.senders.get_mut(&identity) {
            let gone = sender.waiting.remove(&nonce);
            if sender.waiting.is_empty() {
                self.senders.remove(&identity);
            }
            if let Some(gone) = gone {
                self.forget(&gone);
            }
        }
        true
    }

    /// Moves the end of a sender's unbroken run over what has joined it.
    fn extend_run(&mut self, identity: &Identity) {
        let Some(sender) = self.senders.get_mut(identity) else {
            return;
        };
        while let Some(joined) = sender.waiting.get(&sender.run_end) {
            self.stranded.remove(&joined.arrival);
            sender.run_end += 1;
        }
    }

    /// Notes an account's next nonce and drops what is below it.
    fn advance(&mut self, identity: &Identity, next: u64) {
        let Some(sender) = self.senders.get_mut(identity) else {
            return;
        };
        sender.next_nonce = sender.next_nonce.max(next);
        sender.run_end = sender.run_end.max(next);
        let stays = sender.waiting.split_off(&sender.next_nonce);
        let gone = std::mem::replace(&mut sender.waiting, stays);
        if sender.waiting.is_empty() {
            self.senders.remove(identity);
        }
        gone.values().for_each(|gone| self.forget(gone));
        self.extend_run(identity);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_crypto::{SecretKey, sha256};
    use quorate_types::{ChainId, Memo, Transfer};

    const LIMITS: MempoolLimits = MempoolLimits {
        max_transactions: 6,
        max_bytes: 1 << 20,
        max_per_sender: 4,
    };

    /// What a block holds in these tests.
    const BLOCK_BYTES: usize = 10_000;

    fn transfer(seed: u8, nonce: u64) -> Transaction {
        with_memo(seed, nonce, 0)
    }

    fn with_memo(seed: u8, nonce: u64, memo_bytes: usize) -> Transaction {
        let chain = ChainId(sha256(&[b"test"]));
        let secret = SecretKey::from_bytes(&[seed; 32]);
        let transfer = Transfer {
            chain_tag: chain.tag(),
            sender: secret.identity(),
            nonce,
            to: Identity([9; 32]),
            amount: 1,
            fee: 1,
            memo: Memo::new(vec![7; memo_bytes]).expect("not too long"),
        };
        transfer.sign(&chain, &secret)
    }

    fn nonces(transactions: &[Transaction]) -> Vec<u64> {
        transactions.iter().map(|t| t.transfer().nonce).collect()
    }

    #[test]
    fn only_an_unbroken_run_of_nonces_is_proposed() {
        let mempool = Mempool::new(LIMITS, BLOCK_BYTES);
        for nonce in [7, 5, 9] {
            mempool.submit(transfer(1, nonce), 5, 10).expect("room");
        }
        let none = HashSet::new();
        assert_eq!(nonces(&mempool.take(10, 10_000, &none)), [5]);
        mempool.submit(transfer(1, 6), 5, 10).expect("room");
        assert_eq!(nonces(&mempool.take(10, 10_000, &none)), [5, 6, 7]);
        assert_eq!(nonces(&mempool.take(2, 10_000, &none)), [5, 6]);
        assert_eq!(nonces(&mempool.take(10, 2 * 161, &none)), [5, 6]);
    }

    #[test]
    fn a_block_has_room_for_bytes_and_what_does_not_fit_waits_with_its_successors() {
        let mempool = Mempool::new(LIMITS, BLOCK_BYTES);
        let large = with_memo(1, 0, 1_000);
        let all = [
            large.clone(),
            transfer(1, 1),
            transfer(2, 0),
            transfer(2, 1),
        ];
        for transaction in all {
            mempool.submit(transaction, 0, 10).expect("room");
        }
        let taken = mempool.take(10, 1_000, &HashSet::new());
        assert_eq!(taken, [transfer(2, 0), transfer(2, 1)]);
        // It came first, so an empty block begins with it.
        let taken = mempool.take(10, 163 + 1_000, &HashSet::new());
        assert_eq!(taken, [large]);
    }

    #[test]
    fn what_no_block_can_hold_is_refused_and_memos_count() {
        let limits = MempoolLimits {
            max_bytes: 3 * TRANSACTION_BYTES + 2_000,
            ..LIMITS
        };
        let mempool = Mempool::new(limits, 3_000);
        assert_eq!(
            mempool.submit(with_memo(1, 0, 3_000), 0, 10),
            Err(Refusal::TooLarge {
                bytes: 3_163,
                limit: 3_000
            })
        );
        mempool.submit(with_memo(1, 0, 2_000), 0, 10).expect("room");
        mempool.submit(transfer(2, 0), 0, 10).expect("room");
        mempool.submit(transfer(3, 5), 0, 10).expect("room");
        assert_eq!(mempool.size(), (3, limits.max_bytes));
        // The stranded one makes way, which is not enough for a memo.
        let refused = mempool.submit(with_memo(4, 0, 1), 0, 10);
        assert_eq!(refused, Err(Refusal::Full));
        mempool.submit(transfer(4, 0), 0, 10).expect("room");
        let sender = mempool.take(1, 10_000, &HashSet::new())[0]
            .transfer()
            .sender;
        mempool.executed(&BTreeMap::from([(sender, 1)]));
        assert_eq!(mempool.size(), (2, 2 * TRANSACTION_BYTES));
    }

    #[test]
    fn what_an_ancestor_holds_is_left_out_and_its_nonce_counts_as_used() {
        let mempool = Mempool::new(LIMITS, BLOCK_BYTES);
        for nonce in 0..3 {
            mempool.submit(transfer(1, nonce), 0, 10).expect("room");
        }
        let exclude = HashSet::from([transfer(1, 0).id(), transfer(1, 1).id()]);
        assert_eq!(nonces(&mempool.take(10, 10_000, &exclude)), [2]);
    }

    #[test]
    fn blocks_are_filled_by_arrival_and_no_nonce_goes_before_an_earlier_one() {
        let mempool = Mempool::new(LIMITS, BLOCK_BYTES);
        let came = [(1, 1), (2, 0), (1, 0), (3, 0), (2, 1)];
        for (seed, nonce) in came {
            mempool.submit(transfer(seed, nonce), 0, 10).expect("room");
        }
        let taken = mempool.take(10, 10_000, &HashSet::new());
        let expected = [(2, 0), (1, 0), (1, 1), (3, 0), (2, 1)];
        assert_eq!(taken, expected.map(|(seed, nonce)| transfer(seed, nonce)));
    }

    #[test]
    fn when_full_the_first_stranded_makes_way_for_what_can_be_proposed_and_for_nothing_else() {
        let mempool = Mempool::new(LIMITS, BLOCK_BYTES);
        for (seed, nonce) in [(1, 5), (1, 6), (2, 1), (3, 0), (3, 1), (3, 2)] {
            mempool.submit(transfer(seed, nonce), 0, 10).expect("room");
        }
        assert!(!mempool.is_full(), "three are stranded");
        let stranded = mempool.submit(transfer(4, 1), 0, 10);
        assert_eq!(stranded, Err(Refusal::Full));
        mempool.submit(transfer(4, 0), 0, 10).expect("way");
        assert!(!mempool.contains(&transfer(1, 5).id()), "came first");
        // The gap before this one closes: what was stranded can be proposed now and stays.
        mempool.submit(transfer(2, 0), 0, 10).expect("way");
        assert!(!mempool.contains(&transfer(1, 6).id()));
        assert!(mempool.is_full());
        let runs = mempool.submit(transfer(4, 1), 0, 10);
        assert_eq!(runs, Err(Refusal::Full));
        assert_eq!(mempool.take(10, 10_000, &HashSet::new()).len(), 6);
        assert_eq!(mempool.size().0, 6);
    }

    #[test]
    fn a_gap_that_a_block_closes_strands_nothing_any_more() {
        let mempool = Mempool::new(LIMITS, BLOCK_BYTES);
        for nonce in [2, 3, 5] {
            mempool.submit(transfer(1, nonce), 0, 10).expect("room");
        }
        let identity = transfer(1, 0).transfer().sender;
        mempool.executed(&BTreeMap::from([(identity, 2)]));
        let none = HashSet::new();
        assert_eq!(nonces(&mempool.take(10, 10_000, &none)), [2, 3]);
        for nonce in 0..3 {
            mempool.submit(transfer(2, nonce), 0, 10).expect("room");
        }
        mempool.submit(transfer(3, 0), 0, 10).expect("way");
        assert!(!mempool.contains(&transfer(1, 5).id()));
        assert!(mempool.is_full());
    }

    #[test]
    fn executed_and_stale_transactions_leave_and_make_room() {
        let mempool = Mempool::new(LIMITS, BLOCK_BYTES);
        for nonce in 0..4 {
            mempool.submit(transfer(1, nonce), 0, 10).expect("room");
        }
        let identity = transfer(1, 0).transfer().sender;
        mempool.executed(&BTreeMap::from([(identity, 3)]));
        assert_eq!(mempool.size().0, 1);
        assert!(!mempool.contains(&transfer(1, 2).id()));
        // The caller looked at the account before the block was executed.
        assert_eq!(
            mempool.submit(transfer(1, 2), 0, 10),
            Err(Refusal::StaleNonce {
                nonce: 2,
                expected: 3
            })
        );
    }

    #[test]
    fn each_limit_refuses_with_its_reason() {
        let mempool = Mempool::new(LIMITS, BLOCK_BYTES);
        for nonce in 0..4 {
            mempool.submit(transfer(1, nonce), 0, 10).expect("room");
        }
        let full = mempool.submit(transfer(1, 4), 0, 10);
        assert_eq!(full, Err(Refusal::SenderFull { limit: 4 }));
        let again = mempool.submit(transfer(1, 0), 0, 10);
        assert_eq!(again, Err(Refusal::AlreadyKnown));
        let far = mempool.submit(transfer(2, MAX_NONCE_GAP + 1), 0, 10);
        assert!(matches!(far, Err(Refusal::NonceTooFar { .. })));
        let poor = mempool.submit(transfer(2, 0), 0, 0);
        assert!(matches!(poor, Err(Refusal::CannotPayFee { .. })));
        for nonce in 0..2 {
            mempool.submit(transfer(2, nonce), 0, 10).expect("room");
        }
        assert_eq!(mempool.submit(transfer(3, 0), 0, 10), Err(Refusal::Full));
    }

    #[test]
    fn a_clients_transaction_is_forwarded_once_and_again_only_later() {
        let mempool = Mempool::new(LIMITS, BLOCK_BYTES);
        mempool.submit(transfer(1, 0), 0, 10).expect("room");
        mempool
            .submit_forwarded(transfer(2, 0), 0, 10)
            .expect("room");
        let now = Moment(5);
        let due = mempool.next_to_forward(now, 10, 1_000);
        assert_eq!(due.len(), 1, "what was forwarded here goes no further");
        assert!(mempool.next_to_forward(now, 10, 1_000).is_empty());
        let later = now.after(FORWARD_AGAIN);
        assert_eq!(mempool.next_to_forward(later, 10, 1_000), due);
    }

    #[test]
    fn what_is_forwarded_at_a_time_is_bounded_by_bytes() {
        let mempool = Mempool::new(LIMITS, BLOCK_BYTES);
        for nonce in 0..3 {
            let large = with_memo(1, nonce, 4_000);
            mempool.submit(large, 0, 10).expect("room");
        }
        let now = Moment(5);
        let batches = [(); 3].map(|()| mempool.next_to_forward(now, 10, 5_000).len());
        assert_eq!(batches, [2, 1, 0]);
    }

    #[test]
    fn another_signature_under_the_same_id_is_not_held() {
        let mempool = Mempool::new(LIMITS, BLOCK_BYTES);
        let transaction = transfer(1, 0);
        mempool.submit(transaction.clone(), 0, 10).expect("room");
        let forged = Transaction::new(
            transaction.transfer().clone(),
            quorate_types::IdentitySignature([1; 64]),
        );
        assert_eq!(forged.id(), transaction.id());
        assert!(mempool.holds(&transaction) && !mempool.holds(&forged));
    }
}
