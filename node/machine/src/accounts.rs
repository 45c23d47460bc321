//! Accounts with the height of the block that they are the state after.
//!
//! The database holds the newest values only, and it changes while it is read. A reader that must
//! know *which* state a value belongs to reads it here: before the executor writes a block, it
//! notes the old value of every account that the block changes. A reader that finds that a later
//! block may have been written meanwhile takes the noted value instead.
//!
//! Without it, two reads of accounts, or a read of an account and one of the mempool, may see two
//! different states. A forwarded transaction that was executed while it was being accepted stayed
//! in the mempool for good.

use parking_lot::RwLock;
use quorate_storage::store::{Store, StoreError};
use quorate_types::{Account, Digest, Height, Identity};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// Newest blocks whose changes can be taken back.
const MAX_BLOCKS: usize = 512;

/// Most noted account values, 40 bytes each plus the map's overhead. Those of the newest block are
/// always kept.
const MAX_VALUES: usize = 131_072;

/// An account in the state after the block of `height`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountAt {
    pub height: Height,
    pub account: Account,
}

/// Reads accounts. Cheap to clone; any thread may read.
#[derive(Clone)]
pub struct Accounts {
    store: Store,
    before: Arc<RwLock<Before>>,
    /// The roots of the states after the newest blocks.
    roots: Roots,
}

pub(crate) type Roots = Arc<RwLock<BTreeMap<Height, Digest>>>;

/// Old values of the accounts that the newest blocks changed.
#[derive(Default)]
struct Before {
    blocks: VecDeque<(Height, BTreeMap<Identity, Account>)>,
    values: usize,
}

impl Accounts {
    pub fn new(store: Store) -> Self {
        Self {
            store,
            before: Arc::default(),
            roots: Roots::default(),
        }
    }

    /// Whether they are read from this open database.
    pub(crate) fn are_of(&self, store: &Store) -> bool {
        self.store.is_same(store)
    }

    /// The roots of the states after the newest blocks, at most `most`. They are read only if the parts before, in the
    /// same process, have not left them.
    pub(crate) fn roots(&self, most: u64) -> Result<Roots, StoreError> {
        let tip = self.store.tip().height;
        let newest = self
            .roots
            .read()
            .last_key_value()
            .map(|(height, _)| *height);
        if newest != Some(tip) {
            let oldest = tip.0.saturating_sub(most - 1);
            let mut read = BTreeMap::new();
            for height in (oldest..=tip.0).map(Height) {
                read.extend(self.store.root(height)?.map(|root| (height, root)));
            }
            *self.roots.write() = read;
        }
        Ok(self.roots.clone())
    }

    /// Notes the old values of the accounts that a block changes. Must be called for each block in
    /// order, before the block is written.
    pub fn will_change(&self, height: Height, values: BTreeMap<Identity, Account>) {
        let mut before = self.before.write();
        before.values += values.len();
        before.blocks.push_back((height, values));
        while before.blocks.len() > 1
            && (before.blocks.len() > MAX_BLOCKS || before.values > MAX_VALUES)
        {
            let oldest = before.blocks.pop_front();
            before.values -= oldest.map_or(0, |(_, values)| values.len());
        }
    }

    /// Returns an account's newest value and the height that it belongs to.
    pub fn read(&self, identity: &Identity) -> Result<AccountAt, StoreError> {
        loop {
            let height = self.store.tip().height;
            // The noted value is gone only if hundreds of blocks were executed between these two
            // lines.
            if let Some(account) = self.at(height, identity)? {
                return Ok(AccountAt { height, account });
            }
        }
    }

    /// Returns an account in the state after an executed block; `None` if that block is too old.
    pub fn at(&self, height: Height, identity: &Identity) -> Result<Option<Account>, StoreError> {
        let newest = self.store.account(identity)?.unwrap_or_default();
        // In this order: a value that was written since is noted here already.
        let before = self.before.read();
        let oldest = before.blocks.front().map(|(height, _)| *height);
        if oldest.is_some_and(|oldest| oldest > height.next()) {
            return Ok(None);
        }
        let later = before.blocks.partition_point(|(of, _)| *of <= height);
        let mut later = before.blocks.range(later..);
        let noted = later.find_map(|(_, values)| values.get(identity).cloned());
        Ok(Some(noted.unwrap_or(newest)))
    }
}
