//! Accounts and transfers, the same for every subject.

use quorate_crypto::sha256;
use quorate_storage::tree::Key;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;

/// The key of an account.
pub(super) fn account_key(index: u64) -> Key {
    sha256(&[b"account", &index.to_be_bytes()]).0
}

/// A key without an account.
pub(super) fn absent_key(index: u64) -> Key {
    sha256(&[b"absent", &index.to_be_bytes()]).0
}

/// An account: balance in 16 bytes, then the sequence number in 8.
pub(super) fn account(balance: u128, sequence: u64) -> Vec<u8> {
    [&balance.to_be_bytes()[..], &sequence.to_be_bytes()].concat()
}

/// The state of all accounts before the first block.
pub(super) fn genesis(index: u64) -> Vec<u8> {
    account(1_000_000_000 + u128::from(index), 0)
}

/// Makes blocks of transfers between random accounts.
pub(super) struct Transfers {
    random: ChaCha8Rng,
    accounts: u64,
    sequence: u64,
}

impl Transfers {
    pub(super) fn new(accounts: u64) -> Self {
        Self {
            random: ChaCha8Rng::seed_from_u64(7),
            accounts,
            sequence: 0,
        }
    }

    /// A random account.
    pub(super) fn account(&mut self) -> u64 {
        self.random.random_range(0..self.accounts)
    }

    /// What the accounts hold that a block with so many transfers changes.
    pub(super) fn block(&mut self, transfers: u64) -> BTreeMap<Key, Vec<u8>> {
        (0..2 * transfers)
            .map(|_| {
                self.sequence += 1;
                let balance = self.random.random_range(0..u128::from(u64::MAX));
                (account_key(self.account()), account(balance, self.sequence))
            })
            .collect()
    }
}
