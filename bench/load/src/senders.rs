//! The paying accounts, and their nonces.
//!
//! A chain executes an account's transfers in the order of their nonces, so a missing one holds up
//! all after it, in every mempool. Two rules prevent that:
//!
//! - A nonce that was rejected is reused before any higher one. The transfer of an account and a
//!   nonce is always the same bytes, so sending it again is harmless even if it had arrived, and it
//!   needs no second signature.
//! - An account has one request in flight at a time. So no transfer is sent before its predecessors
//!   were answered, unless it is in the same request.

use quorate_crypto::{Identity, SecretKey};
use quorate_types::{ChainId, Digest, IdentitySignature, Memo, Transaction, Transfer};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// The amount of each transfer.
const AMOUNT: u64 = 1;

/// The fee of each transfer.
const FEE: u64 = 1;

/// What one transfer costs an account.
pub(crate) const COST: u64 = AMOUNT + FEE;

/// The keys. Makes the unique transfer for an account and a nonce.
pub(crate) struct Wallet {
    chain: ChainId,
    accounts: Vec<(SecretKey, Identity)>,
    /// The memo of each transfer.
    memo: Memo,
}

impl Wallet {
    pub(crate) fn new(chain: ChainId, accounts: Vec<SecretKey>, memo: Memo) -> Self {
        let accounts = accounts.into_iter();
        Self {
            chain,
            memo,
            accounts: accounts
                .map(|secret| {
                    let identity = secret.identity();
                    (secret, identity)
                })
                .collect(),
        }
    }

    pub(crate) fn size(&self) -> usize {
        self.accounts.len()
    }

    pub(crate) fn identity(&self, account: u32) -> Identity {
        self.accounts[account as usize].1
    }

    /// A transfer to the next account.
    fn transfer(&self, account: u32, nonce: u64) -> Transfer {
        let next = (account as usize + 1) % self.accounts.len();
        Transfer {
            chain_tag: self.chain.tag(),
            sender: self.identity(account),
            nonce,
            to: self.accounts[next].1,
            amount: AMOUNT,
            fee: FEE + self.memo.as_bytes().len() as u64,
            memo: self.memo.clone(),
        }
    }

    /// The transfer's id, which does not depend on its signature.
    pub(crate) fn id(&self, account: u32, nonce: u64) -> Digest {
        let unsigned = IdentitySignature([0; 64]);
        Transaction::new(self.transfer(account, nonce), unsigned).id()
    }

    pub(crate) fn sign(&self, account: u32, nonce: u64) -> Transaction {
        let secret = &self.accounts[account as usize].0;
        self.transfer(account, nonce).sign(&self.chain, secret)
    }
}

/// A signed transfer as it is sent; `None` before it was first sent.
pub(crate) type Signed = Option<Arc<str>>;

struct Sender {
    next_nonce: u64,
    /// Nonces below `next_nonce` that were rejected or lost, or signed ahead.
    free: BTreeMap<u64, Signed>,
    /// Transfers that no validator has answered yet.
    unanswered: u32,
    /// Transfers that have not completed.
    on_the_way: u32,
    /// The nonce must be queried before anything more is sent.
    doubtful: bool,
    /// Whether it is in `Senders::clear`.
    queued: bool,
}

/// The accounts' nonces.
pub(crate) struct Senders {
    all: Vec<Sender>,
    /// Accounts that wait for no answer, by their home validator. Accounts that became doubtful
    /// meanwhile are among them.
    clear: Vec<VecDeque<u32>>,
}

impl Senders {
    /// Creates `count` accounts, all of them doubtful, assigned to `homes` validators.
    pub(crate) fn new(count: usize, homes: usize) -> Self {
        let sender = |_| Sender {
            next_nonce: 0,
            free: BTreeMap::new(),
            unanswered: 0,
            on_the_way: 0,
            doubtful: true,
            queued: false,
        };
        Self {
            all: (0..count).map(sender).collect(),
            clear: vec![VecDeque::new(); homes],
        }
    }

    /// The validator that an account belongs to.
    pub(crate) fn home(&self, account: u32) -> usize {
        account as usize % self.clear.len()
    }

    /// The minimal number of accounts of a validator.
    pub(crate) fn per_home(&self) -> usize {
        self.all.len() / self.clear.len()
    }

    /// How many accounts of this validator wait for no answer.
    pub(crate) fn clear(&self, home: usize) -> usize {
        self.clear[home].len()
    }

    /// Takes an account of this validator that waits for no answer.
    pub(crate) fn take(&mut self, home: usize) -> Option<u32> {
        while let Some(account) = self.clear[home].pop_front() {
            let sender = &mut self.all[account as usize];
            sender.queued = false;
            if !sender.doubtful && sender.unanswered == 0 {
                return Some(account);
            }
        }
        None
    }

    /// The next nonce of this account, which must not be doubtful, and its transfer if it was sent
    /// before.
    pub(crate) fn take_from(&mut self, account: u32) -> (u64, Signed) {
        let sender = &mut self.all[account as usize];
        sender.unanswered += 1;
        sender.on_the_way += 1;
        sender.free.pop_first().unwrap_or_else(|| {
            sender.next_nonce += 1;
            (sender.next_nonce - 1, None)
        })
    }

    /// Signs so many of each account's next transfers, for when they are taken.
    pub(crate) fn sign_ahead(&mut self, each: u64, mut sign: impl FnMut(u32, u64) -> Arc<str>) {
        for (account, sender) in self.all.iter_mut().enumerate() {
            for nonce in sender.next_nonce..sender.next_nonce.saturating_add(each) {
                sender.free.insert(nonce, Some(sign(account as u32, nonce)));
            }
            sender.next_nonce = sender.next_nonce.saturating_add(each);
        }
    }

    pub(crate) fn is_doubtful(&self, account: u32) -> bool {
        self.all[account as usize].doubtful
    }

    /// Records that a validator has answered for one transfer, or that it was given up.
    pub(crate) fn answered(&mut self, account: u32) {
        let sender = &mut self.all[account as usize];
        sender.unanswered = sender.unanswered.saturating_sub(1);
        if sender.unanswered == 0 && !sender.doubtful {
            self.queue(account);
        }
    }

    fn queue(&mut self, account: u32) {
        let home = self.home(account);
        let sender = &mut self.all[account as usize];
        if !sender.queued {
            sender.queued = true;
            self.clear[home].push_back(account);
        }
    }

    /// Records that a transfer completed and used its nonce.
    pub(crate) fn ended(&mut self, account: u32) {
        let sender = &mut self.all[account as usize];
        sender.on_the_way = sender.on_the_way.saturating_sub(1);
    }

    /// Records that a transfer completed without using its nonce, which will be reused.
    pub(crate) fn returned(&mut self, account: u32, nonce: u64, signed: Signed) {
        self.ended(account);
        self.all[account as usize].free.insert(nonce, signed);
    }

    /// Sends nothing more from this account until its nonce has been queried.
    pub(crate) fn doubt(&mut self, account: u32) {
        self.all[account as usize].doubtful = true;
    }

    /// Doubtful accounts with nothing in flight, whose nonce can be queried.
    pub(crate) fn to_ask(&self, max: usize) -> Vec<u32> {
        let all = self.all.iter().enumerate();
        all.filter(|(_, sender)| sender.doubtful && sender.on_the_way == 0)
            .map(|(account, _)| account as u32)
            .take(max)
            .collect()
    }

    /// Records an account's next nonce as told by a validator.
    pub(crate) fn learned(&mut self, account: u32, nonce: u64) {
        let sender = &mut self.all[account as usize];
        if !sender.doubtful || sender.on_the_way > 0 {
            return;
        }
        sender.next_nonce = nonce;
        sender.free.clear();
        sender.doubtful = false;
        sender.unanswered = 0;
        self.queue(account);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(count: usize) -> Senders {
        let mut senders = Senders::new(count, 1);
        (0..count as u32).for_each(|account| senders.learned(account, 7));
        senders
    }

    #[test]
    fn a_refused_nonce_is_used_again_before_any_higher_one_without_a_second_signature() {
        let mut senders = ready(1);
        assert_eq!(senders.take(0), Some(0));
        assert_eq!(senders.take_from(0), (7, None));
        assert_eq!(senders.take_from(0), (8, None));
        senders.answered(0);
        senders.returned(0, 7, Some("signed".into()));
        assert_eq!(senders.take_from(0), (7, Some("signed".into())));
        assert_eq!(senders.take_from(0), (9, None));
    }

    #[test]
    fn what_was_signed_ahead_is_taken_in_order_and_then_what_follows() {
        let mut senders = ready(2);
        senders.sign_ahead(2, |account, nonce| format!("{account}/{nonce}").into());
        assert_eq!(senders.take(0), Some(0));
        assert_eq!(senders.take_from(0), (7, Some("0/7".into())));
        assert_eq!(senders.take_from(0), (8, Some("0/8".into())));
        assert_eq!(senders.take_from(0), (9, None));
        assert_eq!(senders.take_from(1), (7, Some("1/7".into())));
    }

    #[test]
    fn an_account_is_not_taken_again_before_all_of_it_is_answered() {
        let mut senders = ready(3);
        for account in 0..3 {
            assert_eq!(senders.take(0), Some(account));
            senders.take_from(account);
            senders.take_from(account);
        }
        assert_eq!(senders.take(0), None);
        senders.answered(1);
        assert_eq!(senders.take(0), None);
        senders.answered(1);
        assert_eq!(senders.take(0), Some(1));
        assert_eq!(senders.take_from(1), (9, None));
    }

    #[test]
    fn accounts_belong_to_a_validator() {
        let mut senders = Senders::new(4, 2);
        (0..4).for_each(|account| senders.learned(account, 0));
        assert_eq!(senders.clear(1), 2);
        assert_eq!([senders.take(1), senders.take(1)], [Some(1), Some(3)]);
        assert_eq!(senders.take(1), None);
        assert_eq!(senders.take(0), Some(0));
    }

    #[test]
    fn a_doubtful_account_is_asked_for_once_nothing_of_it_is_on_its_way() {
        let mut senders = ready(1);
        senders.take(0);
        senders.take_from(0);
        senders.doubt(0);
        senders.answered(0);
        assert_eq!(senders.take(0), None);
        assert!(senders.to_ask(10).is_empty());
        senders.ended(0);
        assert_eq!(senders.to_ask(10), [0]);
        senders.learned(0, 20);
        assert_eq!(senders.take(0), Some(0));
        assert_eq!(senders.take_from(0), (20, None));
    }
}
