//! The accounts that pay, and their nonces.
//!
//! A chain executes an account's transfers in the order of their nonces, so one that is missing
//! holds up all after it, in every mempool. Two rules keep that from happening:
//!
//! - A nonce that was refused is used again before any higher one. The transfer of an account and
//!   a nonce is always the same bytes, so offering it again is harmless even if it had arrived.
//! - An account that waits for no validator's answer goes before those that do. So with enough
//!   accounts no transfer is sent before its predecessor was taken in.

use quorate_crypto::{Identity, SecretKey};
use quorate_types::{ChainId, Digest, IdentitySignature, Transaction, Transfer};
use std::collections::{BTreeSet, VecDeque};

/// What each transfer moves.
const AMOUNT: u64 = 1;

/// What each transfer pays beside.
const FEE: u64 = 1;

/// What an account loses by one transfer.
pub(crate) const COST: u64 = AMOUNT + FEE;

/// The keys. Makes the one transfer that belongs to an account and a nonce.
pub(crate) struct Wallet {
    chain: ChainId,
    accounts: Vec<(SecretKey, Identity)>,
}

impl Wallet {
    pub(crate) fn new(chain: ChainId, accounts: Vec<SecretKey>) -> Self {
        let accounts = accounts.into_iter();
        Self {
            chain,
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

    /// To the account after it.
    fn transfer(&self, account: u32, nonce: u64) -> Transfer {
        let next = (account as usize + 1) % self.accounts.len();
        Transfer {
            chain_tag: self.chain.tag(),
            sender: self.identity(account),
            nonce,
            to: self.accounts[next].1,
            amount: AMOUNT,
            fee: FEE,
        }
    }

    /// The transfer's id, which its signature is no part of.
    pub(crate) fn id(&self, account: u32, nonce: u64) -> Digest {
        let unsigned = IdentitySignature([0; 64]);
        Transaction::new(self.transfer(account, nonce), unsigned).id()
    }

    pub(crate) fn sign(&self, account: u32, nonce: u64) -> Transaction {
        let secret = &self.accounts[account as usize].0;
        self.transfer(account, nonce).sign(&self.chain, secret)
    }
}

struct Sender {
    next_nonce: u64,
    /// Nonces below `next_nonce` that were refused or lost.
    free: BTreeSet<u64>,
    /// Transfers that no validator has answered yet.
    unanswered: u32,
    /// Transfers that have not come to an end.
    on_the_way: u32,
    /// The nonce must be asked for before anything more is sent.
    doubtful: bool,
    /// Whether it stands in `Senders::clear`.
    queued: bool,
}

/// The accounts' nonces.
pub(crate) struct Senders {
    all: Vec<Sender>,
    /// Accounts that wait for no answer. Some entries may be out of date.
    clear: VecDeque<u32>,
    /// Whose turn it is if all accounts wait for answers.
    turn: usize,
    doubtful: usize,
}

impl Senders {
    /// So many accounts, all of them doubtful.
    pub(crate) fn new(count: usize) -> Self {
        let sender = |_| Sender {
            next_nonce: 0,
            free: BTreeSet::new(),
            unanswered: 0,
            on_the_way: 0,
            doubtful: true,
            queued: false,
        };
        Self {
            all: (0..count).map(sender).collect(),
            clear: VecDeque::new(),
            turn: 0,
            doubtful: count,
        }
    }

    /// An account to send from, and the nonce; `None` if all are doubtful.
    pub(crate) fn take(&mut self) -> Option<(u32, u64)> {
        while let Some(account) = self.clear.pop_front() {
            let sender = &mut self.all[account as usize];
            sender.queued = false;
            if !sender.doubtful && sender.unanswered == 0 {
                return Some((account, self.take_from(account)));
            }
        }
        if self.doubtful == self.all.len() {
            return None;
        }
        loop {
            let account = self.turn as u32;
            self.turn = (self.turn + 1) % self.all.len();
            if !self.all[account as usize].doubtful {
                return Some((account, self.take_from(account)));
            }
        }
    }

    /// The next nonce of this account, which must not be doubtful.
    pub(crate) fn take_from(&mut self, account: u32) -> u64 {
        let sender = &mut self.all[account as usize];
        sender.unanswered += 1;
        sender.on_the_way += 1;
        sender.free.pop_first().unwrap_or_else(|| {
            sender.next_nonce += 1;
            sender.next_nonce - 1
        })
    }

    pub(crate) fn is_doubtful(&self, account: u32) -> bool {
        self.all[account as usize].doubtful
    }

    /// A validator has answered for one transfer, or it will not be sent.
    pub(crate) fn answered(&mut self, account: u32) {
        let sender = &mut self.all[account as usize];
        sender.unanswered = sender.unanswered.saturating_sub(1);
        if sender.unanswered == 0 && !sender.queued && !sender.doubtful {
            sender.queued = true;
            self.clear.push_back(account);
        }
    }

    /// A transfer came to its end and has used its nonce.
    pub(crate) fn ended(&mut self, account: u32) {
        let sender = &mut self.all[account as usize];
        sender.on_the_way = sender.on_the_way.saturating_sub(1);
    }

    /// A transfer came to its end, and its nonce is to be used again.
    pub(crate) fn returned(&mut self, account: u32, nonce: u64) {
        self.ended(account);
        self.all[account as usize].free.insert(nonce);
    }

    /// Nothing more is sent from this account until its nonce was asked for.
    pub(crate) fn doubt(&mut self, account: u32) {
        let sender = &mut self.all[account as usize];
        self.doubtful += usize::from(!sender.doubtful);
        sender.doubtful = true;
    }

    /// Doubtful accounts of which nothing is on its way, so that their nonce can be asked for.
    pub(crate) fn to_ask(&self, max: usize) -> Vec<u32> {
        let all = self.all.iter().enumerate();
        all.filter(|(_, sender)| sender.doubtful && sender.on_the_way == 0)
            .map(|(account, _)| account as u32)
            .take(max)
            .collect()
    }

    /// A validator told an account's next nonce.
    pub(crate) fn learned(&mut self, account: u32, nonce: u64) {
        let sender = &mut self.all[account as usize];
        if !sender.doubtful || sender.on_the_way > 0 {
            return;
        }
        sender.next_nonce = nonce;
        sender.free.clear();
        sender.doubtful = false;
        sender.unanswered = 0;
        self.doubtful -= 1;
        if !sender.queued {
            sender.queued = true;
            self.clear.push_back(account);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(count: usize) -> Senders {
        let mut senders = Senders::new(count);
        (0..count as u32).for_each(|account| senders.learned(account, 7));
        senders
    }

    #[test]
    fn a_refused_nonce_is_used_again_before_any_higher_one() {
        let mut senders = ready(1);
        assert_eq!(senders.take(), Some((0, 7)));
        assert_eq!(senders.take(), Some((0, 8)));
        senders.answered(0);
        senders.returned(0, 7);
        assert_eq!(senders.take(), Some((0, 7)));
        assert_eq!(senders.take(), Some((0, 9)));
    }

    #[test]
    fn accounts_that_wait_for_no_answer_go_first() {
        let mut senders = ready(3);
        let first: Vec<_> = (0..3).map(|_| senders.take()).collect();
        assert_eq!(first, [Some((0, 7)), Some((1, 7)), Some((2, 7))]);
        senders.answered(1);
        assert_eq!(senders.take(), Some((1, 8)));
        // All wait now, and still nothing is held back.
        assert_eq!(senders.take(), Some((0, 8)));
    }

    #[test]
    fn a_doubtful_account_is_asked_for_once_nothing_of_it_is_on_its_way() {
        let mut senders = ready(1);
        senders.take();
        senders.doubt(0);
        assert_eq!(senders.take(), None);
        assert!(senders.to_ask(10).is_empty());
        senders.answered(0);
        senders.ended(0);
        assert_eq!(senders.to_ask(10), [0]);
        senders.learned(0, 20);
        assert_eq!(senders.take(), Some((0, 20)));
    }
}
