//! The mempool's bookkeeping: the waiting transactions, their order, and what is known of their
//! senders' accounts.

use super::{
    Dropped, MAX_NONCE_GAP, MempoolLimits, REPLACEMENT_INTERVAL, REPLACEMENT_PART, Refusal,
    TRANSACTION_BYTES,
};
use crate::accounts::AccountAt;
use quorate_consensus::Moment;
use quorate_types::{Account, Digest, Height, Identity, Transaction, Transfer};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

/// Final blocks whose changes are remembered, for accounts that were read just before them.
const RECENT_BLOCKS: usize = 64;

/// How often it is checked, at most, whether stranded transactions expire.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(1);

/// Most dropped transactions of clients that are remembered.
const MAX_DROPPED: usize = 16_384;

/// A waiting transaction.
pub(super) struct Waiting {
    pub(super) transaction: Transaction,
    /// Increases with each arrival.
    pub(super) arrival: u64,
    /// Whether a client of this validator submitted it.
    of_client: bool,
    /// When it replaced another one, if it did.
    replaced: Option<Moment>,
    /// Since when it cannot go into a block; `None` if it can.
    pub(super) stranded_since: Option<Moment>,
    /// Whether it must be forwarded as soon as it can go into a block.
    pub(super) parked: bool,
}

/// The waiting transactions of one sender.
pub(super) struct Sender {
    /// The account after the block at `as_of`.
    pub(super) account: Account,
    as_of: Height,
    /// The first nonce after the run: it is missing, or cannot be paid for.
    pub(super) run_end: u64,
    /// What the account will hold after the run.
    run_left: u64,
    pub(super) waiting: BTreeMap<u64, Waiting>,
}

#[derive(Default)]
pub(super) struct Pool {
    pub(super) senders: HashMap<Identity, Sender>,
    pub(super) ids: HashMap<Digest, (Identity, u64)>,
    /// The bytes that all transactions count for.
    pub(super) bytes: usize,
    /// How many are operations of the registry.
    pub(super) operations: usize,
    /// Those that are in no run, by arrival.
    pub(super) stranded: BTreeMap<u64, (Identity, u64)>,
    arrivals: u64,
    /// When expiry is checked next.
    next_look: Moment,
    /// Clients' transactions that were not forwarded yet.
    pub(super) fresh: VecDeque<Digest>,
    /// Those that were, and when they are forwarded again.
    pub(super) again: VecDeque<(Moment, Digest)>,
    /// What the newest executed blocks changed, oldest first.
    recent: VecDeque<(Height, Arc<BTreeMap<Identity, Account>>)>,
    /// Why clients' transactions have left without being executed, and in which order they left.
    pub(super) dropped: HashMap<Digest, Dropped>,
    dropped_order: VecDeque<Digest>,
    /// Clients' transactions that have left.
    pub(super) gone: Vec<Digest>,
}

/// The sender's account after a transfer when its turn comes: its nonce is used and its fee paid,
/// and the amount too if there is enough. `None` if the transfer would not even use its nonce.
pub(super) fn pay(account: &Account, transfer: &Transfer) -> Option<Account> {
    if account.nonce != transfer.nonce {
        return None;
    }
    let nonce = account.nonce.checked_add(1)?;
    let left = account.balance.checked_sub(transfer.fee)?;
    let balance = left.checked_sub(transfer.amount).unwrap_or(left);
    Some(Account::plain(nonce, balance))
}

/// The bytes that a transaction counts for.
fn weight(transaction: &Transaction) -> usize {
    TRANSACTION_BYTES + transaction.transfer().memo.as_bytes().len()
}

impl Sender {
    fn new(account: Account, as_of: Height) -> Self {
        Self {
            as_of,
            run_end: account.nonce,
            run_left: account.balance,
            account,
            waiting: BTreeMap::new(),
        }
    }

    /// The account when the turn of a nonce comes, as far as the transactions before it tell.
    fn left_before(&self, nonce: u64) -> u64 {
        if nonce == self.run_end {
            return self.run_left;
        }
        let mut account = self.account.clone();
        for waiting in self.waiting.range(..nonce).map(|(_, waiting)| waiting) {
            let transfer = waiting.transaction.transfer();
            account = pay(&account, transfer).unwrap_or_else(|| {
                let left = account.balance.saturating_sub(transfer.fee);
                Account::plain(account.nonce, left)
            });
        }
        account.balance
    }
}

impl Pool {
    /// Marks a transaction with this very signature as a client's of this validator. Returns
    /// whether it is here.
    pub(super) fn adopt(&mut self, transaction: &Transaction) -> bool {
        let Some((sender, nonce)) = self.ids.get(&transaction.id()) else {
            return false;
        };
        let sender = self.senders.get_mut(sender);
        let held = sender.and_then(|sender| sender.waiting.get_mut(nonce));
        if let Some(held) = held {
            held.of_client = true;
        }
        true
    }

    pub(super) fn insert(
        &mut self,
        limits: &MempoolLimits,
        now: Moment,
        transaction: Transaction,
        read: AccountAt,
        of_client: bool,
    ) -> Result<(), Refusal> {
        let id = transaction.id();
        if self.ids.contains_key(&id) {
            return Err(Refusal::AlreadyKnown);
        }
        let transfer = transaction.transfer();
        let (identity, nonce) = (transfer.sender, transfer.nonce);
        let newest = self.newest(&identity, read)?;
        self.learn(now, &identity, newest.clone());
        let expected = newest.account.nonce;
        if nonce < expected {
            return Err(Refusal::StaleNonce { nonce, expected });
        }
        if nonce - expected > MAX_NONCE_GAP {
            return Err(Refusal::NonceTooFar { nonce, expected });
        }
        let fresh = || Sender::new(newest.account.clone(), newest.height);
        let new;
        let sender = match self.senders.get(&identity) {
            Some(sender) => sender,
            None => {
                new = fresh();
                &new
            }
        };
        self.has_place(limits, now, &transaction, sender)?;
        let replaces = sender.waiting.contains_key(&nonce);
        if replaces {
            self.remove(&identity, nonce, Some(Dropped::Replaced { by: id }));
        }
        while !replaces && !self.has_room(limits, weight(&transaction)) {
            if !self.throw_out_stranded(now) {
                return Err(Refusal::Full);
            }
        }
        self.arrivals += 1;
        let arrival = self.arrivals;
        self.ids.insert(id, (identity, nonce));
        self.bytes += weight(&transaction);
        self.operations += usize::from(transaction.is_operation());
        self.stranded.insert(arrival, (identity, nonce));
        let sender = self.senders.entry(identity).or_insert_with(fresh);
        sender.waiting.insert(
            nonce,
            Waiting {
                transaction,
                arrival,
                of_client,
                replaced: replaces.then_some(now),
                stranded_since: Some(now),
                parked: false,
            },
        );
        if nonce < sender.run_end {
            self.recount(now, &identity);
        } else {
            self.extend_run(&identity);
        }
        Ok(())
    }

    /// Whether a transaction has a place beside its sender's others, or instead of one of them.
    fn has_place(
        &self,
        limits: &MempoolLimits,
        now: Moment,
        transaction: &Transaction,
        sender: &Sender,
    ) -> Result<(), Refusal> {
        let transfer = transaction.transfer();
        let (nonce, fee) = (transfer.nonce, transfer.fee);
        let left = sender.left_before(nonce);
        if left < fee {
            return Err(Refusal::CannotPayFee { left, fee });
        }
        let Some(held) = sender.waiting.get(&nonce) else {
            let limit = limits.max_per_sender;
            if sender.waiting.len() >= limit {
                return Err(Refusal::SenderFull { limit });
            }
            // A transaction that can go into a block takes the room of one that cannot.
            let makes_room = nonce == sender.run_end && !self.stranded.is_empty();
            let room = makes_room || self.has_room(limits, weight(transaction));
            return room.then_some(()).ok_or(Refusal::Full);
        };
        let held_fee = held.transaction.transfer().fee;
        let minimum = held_fee.saturating_add((held_fee / REPLACEMENT_PART).max(1));
        if fee < minimum {
            return Err(Refusal::NonceTaken { nonce, minimum });
        }
        if held
            .replaced
            .is_some_and(|at| now < at.after(REPLACEMENT_INTERVAL))
        {
            return Err(Refusal::ReplacedLately { nonce });
        }
        if self.bytes - weight(&held.transaction) + weight(transaction) > limits.max_bytes {
            return Err(Refusal::Full);
        }
        Ok(())
    }

    /// Why a transaction would be refused. The sender's account may be older or newer here than the
    /// one that was read; then there is no answer.
    pub(super) fn refuses(
        &self,
        limits: &MempoolLimits,
        now: Moment,
        transaction: &Transaction,
        read: AccountAt,
    ) -> Option<Refusal> {
        let identity = transaction.transfer().sender;
        let checked = match self.senders.get(&identity) {
            Some(sender) if sender.account != read.account => return None,
            Some(sender) => self.has_place(limits, now, transaction, sender),
            None => {
                let sender = Sender::new(read.account, read.height);
                self.has_place(limits, now, transaction, &sender)
            }
        };
        checked.err()
    }

    /// The newest known state of an account that was read.
    fn newest(&self, identity: &Identity, read: AccountAt) -> Result<AccountAt, Refusal> {
        if let Some(sender) = self.senders.get(identity)
            && sender.as_of >= read.height
        {
            return Ok(AccountAt {
                height: sender.as_of,
                account: sender.account.clone(),
            });
        }
        let oldest = self.recent.front().map(|(height, _)| *height);
        if oldest.is_some_and(|oldest| oldest > read.height.next()) {
            return Err(Refusal::Outdated);
        }
        // A block may have been executed since the caller read it.
        let later = self.recent.iter().rev();
        let mut later = later.take_while(|(height, _)| *height > read.height);
        let changed = later.find_map(|(height, accounts)| {
            let account = accounts.get(identity)?.clone();
            let height = *height;
            Some(AccountAt { height, account })
        });
        Ok(changed.unwrap_or(read))
    }

    /// Whether a transaction with the same sender and nonce waits.
    pub(super) fn has_rival(&self, transfer: &Transfer) -> bool {
        let sender = self.senders.get(&transfer.sender);
        sender.is_some_and(|sender| sender.waiting.contains_key(&transfer.nonce))
    }

    /// The newest executed block that it knows of, if one was executed since it began.
    pub(super) fn executed_to(&self) -> Option<Height> {
        self.recent.back().map(|(height, _)| *height)
    }

    pub(super) fn executed(
        &mut self,
        now: Moment,
        height: Height,
        accounts: &Arc<BTreeMap<Identity, Account>>,
        executed: &BTreeSet<Digest>,
    ) {
        self.recent.push_back((height, accounts.clone()));
        if self.recent.len() > RECENT_BLOCKS {
            self.recent.pop_front();
        }
        for id in executed {
            if let Some((identity, nonce)) = self.ids.get(id).copied() {
                self.remove(&identity, nonce, None);
            }
        }
        for (identity, account) in accounts.iter() {
            let account = account.clone();
            self.learn(now, identity, AccountAt { height, account });
        }
    }

    /// Updates a sender's account, and drops the transactions that it has made impossible.
    fn learn(&mut self, now: Moment, identity: &Identity, newest: AccountAt) {
        let Some(sender) = self.senders.get_mut(identity) else {
            return;
        };
        if newest.height <= sender.as_of {
            return;
        }
        sender.as_of = newest.height;
        if sender.account == newest.account {
            return;
        }
        sender.account = newest.account;
        let Account { nonce, balance, .. } = sender.account;
        let used: Vec<u64> = sender.waiting.range(..nonce).map(|(n, _)| *n).collect();
        let head = sender.waiting.get(&nonce);
        let fee = head.map(|head| head.transaction.transfer().fee);
        for used in used {
            self.remove(identity, used, Some(Dropped::NonceUsed));
        }
        if let Some(fee) = fee.filter(|fee| *fee > balance) {
            // Its turn has come, and it cannot pay. Money that arrives later may pay for it when it
            // is submitted again.
            let reason = Dropped::CannotPayFee { balance, fee };
            self.remove(identity, nonce, Some(reason));
        }
        self.recount(now, identity);
        self.forget_if_empty(identity);
    }

    pub(super) fn has_room(&self, limits: &MempoolLimits, bytes: usize) -> bool {
        self.ids.len() < limits.max_transactions && self.bytes + bytes <= limits.max_bytes
    }

    /// Removes a transaction from everything but its sender's run. The sender stays, even without
    /// transactions.
    fn remove(&mut self, identity: &Identity, nonce: u64, why: Option<Dropped>) {
        let sender = self.senders.get_mut(identity);
        let Some(gone) = sender.and_then(|sender| sender.waiting.remove(&nonce)) else {
            return;
        };
        let id = gone.transaction.id();
        self.ids.remove(&id);
        self.stranded.remove(&gone.arrival);
        self.bytes -= weight(&gone.transaction);
        self.operations -= usize::from(gone.transaction.is_operation());
        if !gone.of_client {
            return;
        }
        self.gone.push(id);
        if let Some(why) = why {
            self.remember(id, why);
        }
    }

    /// Remembers why a client's transaction has left.
    pub(super) fn remember(&mut self, id: Digest, why: Dropped) {
        if self.dropped.insert(id, why).is_some() {
            return;
        }
        self.dropped_order.push_back(id);
        if self.dropped_order.len() > MAX_DROPPED
            && let Some(oldest) = self.dropped_order.pop_front()
        {
            self.dropped.remove(&oldest);
        }
    }

    fn forget_if_empty(&mut self, identity: &Identity) {
        if self
            .senders
            .get(identity)
            .is_some_and(|s| s.waiting.is_empty())
        {
            self.senders.remove(identity);
        }
    }

    /// Drops the transaction that was stranded first, if there is one: its gap has had the longest
    /// time to close.
    fn throw_out_stranded(&mut self, now: Moment) -> bool {
        let first = self.stranded.first_key_value().map(|(_, place)| *place);
        let Some((identity, nonce)) = first else {
            return false;
        };
        let missing = self.senders.get(&identity).map_or(nonce, |s| s.run_end);
        self.remove(&identity, nonce, Some(Dropped::MadeWay { missing }));
        self.recount(now, &identity);
        self.forget_if_empty(&identity);
        true
    }

    /// Drops what has been stranded for too long. It looks at all of them under the lock, so it is
    /// called only now and then.
    pub(super) fn expire(&mut self, now: Moment, lasts: Duration) {
        if self.next_look > now {
            return;
        }
        self.next_look = now.after(EXPIRY_INTERVAL.min(lasts / 4));
        let over = |(identity, nonce): &(Identity, u64)| {
            let sender = self.senders.get(identity)?;
            let since = sender.waiting.get(nonce)?.stranded_since?;
            (since.after(lasts) <= now).then_some((*identity, *nonce, sender.run_end))
        };
        let expired: Vec<_> = self.stranded.values().filter_map(over).collect();
        for (identity, nonce, missing) in expired {
            self.remove(&identity, nonce, Some(Dropped::Expired { missing }));
            self.forget_if_empty(&identity);
        }
    }

    /// Moves the end of a sender's run over the transactions that have joined it.
    fn extend_run(&mut self, identity: &Identity) {
        let Some(sender) = self.senders.get_mut(identity) else {
            return;
        };
        while let Some(joined) = sender.waiting.get_mut(&sender.run_end) {
            let account = Account::plain(sender.run_end, sender.run_left);
            let Some(after) = pay(&account, joined.transaction.transfer()) else {
                return;
            };
            joined.stranded_since = None;
            self.stranded.remove(&joined.arrival);
            if std::mem::take(&mut joined.parked) {
                self.fresh.push_back(joined.transaction.id());
            }
            sender.run_end = after.nonce;
            sender.run_left = after.balance;
        }
    }

    /// Computes a sender's run again, since its account or its transactions have changed.
    fn recount(&mut self, now: Moment, identity: &Identity) {
        let Some(sender) = self.senders.get_mut(identity) else {
            return;
        };
        sender.run_end = sender.account.nonce;
        sender.run_left = sender.account.balance;
        self.extend_run(identity);
        let Some(sender) = self.senders.get_mut(identity) else {
            return;
        };
        for (nonce, waiting) in sender.waiting.range_mut(sender.run_end..) {
            if waiting.stranded_since.is_none() {
                waiting.stranded_since = Some(now);
                self.stranded.insert(waiting.arrival, (*identity, *nonce));
            }
        }
    }

    /// Takes the next transaction to forward from its queue.
    pub(super) fn next_due(&mut self, now: Moment) -> Option<Digest> {
        if let Some(id) = self.fresh.pop_front() {
            return Some(id);
        }
        self.again
            .pop_front_if(|(due, _)| *due <= now)
            .map(|(_, id)| id)
    }

    /// Sets a transaction that cannot go into a block aside until it can. Returns whether it is
    /// one: forwarding it would only fill other mempools.
    pub(super) fn park(&mut self, id: &Digest) -> bool {
        let Some((sender, nonce)) = self.ids.get(id) else {
            return false;
        };
        let sender = self.senders.get_mut(sender);
        let Some(waiting) = sender.and_then(|sender| sender.waiting.get_mut(nonce)) else {
            return false;
        };
        waiting.parked = waiting.stranded_since.is_some();
        waiting.parked
    }

    /// A transaction may be replaced whenever it came.
    pub(super) fn may_be_replaced(&mut self, id: &Digest) {
        let Some((sender, nonce)) = self.ids.get(id) else {
            return;
        };
        let sender = self.senders.get_mut(sender);
        if let Some(waiting) = sender.and_then(|sender| sender.waiting.get_mut(nonce)) {
            waiting.replaced = None;
        }
    }

    pub(super) fn find(&self, id: &Digest) -> Option<&Waiting> {
        let (sender, nonce) = self.ids.get(id)?;
        self.senders.get(sender)?.waiting.get(nonce)
    }
}
