//! What a block does to the accounts: a function of the block and the accounts before it.
//!
//! Nothing here reads a clock, a cache or anything whose order is not fixed, so all validators
//! arrive at the same state. No transaction in a final block can make execution fail; one that
//! cannot be applied gets a failed receipt. Signatures were verified by the voters.
//!
//! In a block's order, for a transfer of `amount` with `fee`:
//! 1. the nonce must be the sender's, or the transfer fails and nothing is charged;
//! 2. the sender must hold the fee (and not be at the last nonce there is), or it fails and nothing
//!    is charged;
//! 3. the nonce is used, and the fee goes to the block's leader;
//! 4. the sender must hold the amount, or it fails; otherwise the amount is moved.
//!
//! The sum of all balances never changes. It fits in 64 bits, so no sum here overflows.
//!
//! Fees go to the block's leader, so the sum of all balances never changes. The header commits to
//! the outcomes of transactions only by the accounts' root: an explorer without the genesis
//! accounts shows outcomes as a validator's statement, balances with a proof.

use crate::{Account, Block, Failure, Identity, Outcome, Transfer};
use std::collections::{BTreeMap, BTreeSet};

/// What a block has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Execution {
    /// The accounts that the block changed, with their new values.
    pub accounts: BTreeMap<Identity, Account>,
    /// What these were before it.
    pub before: BTreeMap<Identity, Account>,
    /// The outcomes of the transactions, in order.
    pub outcomes: Vec<Outcome>,
}

/// The accounts that a block may touch.
pub fn touched(block: &Block, leader: &Identity) -> BTreeSet<Identity> {
    let transfers = block.transactions().iter().map(|t| t.transfer());
    let mut identities: BTreeSet<Identity> = transfers.flat_map(|t| [t.sender, t.to]).collect();
    if !identities.is_empty() {
        identities.insert(*leader);
    }
    identities
}

/// Executes a block on the accounts before it; `before` holds all that are [`touched`], those
/// that were never paid with their default. Accounts that end as they began are left out.
pub fn execute(
    block: &Block,
    leader: &Identity,
    mut before: BTreeMap<Identity, Account>,
) -> Execution {
    let mut after = before.clone();
    let outcomes = block
        .transactions()
        .iter()
        .map(|transaction| apply(transaction.transfer(), leader, &mut after))
        .collect();
    after.retain(|identity, account| before.get(identity) != Some(account));
    before.retain(|identity, _| after.contains_key(identity));
    Execution {
        accounts: after,
        before,
        outcomes,
    }
}

fn apply(
    transfer: &Transfer,
    leader: &Identity,
    accounts: &mut BTreeMap<Identity, Account>,
) -> Outcome {
    let sender = accounts.entry(transfer.sender).or_default();
    if sender.nonce != transfer.nonce {
        return Outcome::Failed(Failure::WrongNonce);
    }
    let (Some(balance), Some(nonce)) = (
        sender.balance.checked_sub(transfer.fee),
        sender.nonce.checked_add(1),
    ) else {
        return Outcome::Failed(Failure::CannotPayFee);
    };
    sender.balance = balance;
    sender.nonce = nonce;
    credit(accounts, leader, transfer.fee);
    let sender = accounts.entry(transfer.sender).or_default();
    let Some(balance) = sender.balance.checked_sub(transfer.amount) else {
        return Outcome::Failed(Failure::InsufficientBalance);
    };
    sender.balance = balance;
    credit(accounts, &transfer.to, transfer.amount);
    Outcome::Applied
}

fn credit(accounts: &mut BTreeMap<Identity, Account>, to: &Identity, amount: u64) {
    let account = accounts.entry(*to).or_default();
    account.balance = account
        .balance
        .checked_add(amount)
        .expect("the sum of all balances fits in 64 bits and never changes");
}
