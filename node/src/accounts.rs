//! Accounts as they were after a known block.
//!
//! The database holds the newest values only, and changes while it is read. Whoever must know *which*
//! state a value is of asks here: the executor notes what an account was before each block that changes
//! it, before it writes the block, and a reader who finds that a later block may have come in between
//! takes the noted value instead.

use parking_lot::RwLock;
use quorate_storage::store::{Store, StoreError};
use quorate_types::{Account, Height, Identity};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// Blocks whose effects can be taken back.
const MAX_BLOCKS: usize = 512;

/// Account values that are noted for this, 40 bytes each and what the map takes; the newest block's are
/// always kept.
const MAX_VALUES: usize = 131_072;

/// An account after the block at a height.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountAt {
    /// The height.
    pub height: Height,
    /// The account.
    pub account: Account,
}

/// The accounts. Cheap to clone; any thread may read.
#[derive(Clone)]
pub struct Accounts {
    store: Store,
    before: Arc<RwLock<Before>>,
}

/// What accounts were before the newest blocks.
#[derive(Default)]
struct Before {
    blocks: VecDeque<(Height, BTreeMap<Identity, Account>)>,
    values: usize,
}

impl Accounts {
    /// The accounts of this database.
    pub fn new(store: Store) -> Self {
        Self {
            store,
            before: Arc::default(),
        }
    }

    /// Notes what the accounts that a block changes are before it. To be called before the block is
    /// written, for each block in order.
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

    /// An account as it is now, and the height that this is of.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    pub fn read(&self, identity: &Identity) -> Result<AccountAt, StoreError> {
        loop {
            let height = self.store.tip().height;
            // It is gone only if hundreds of blocks were executed between these two lines.
            if let Some(account) = self.at(height, identity)? {
                return Ok(AccountAt { height, account });
            }
        }
    }

    /// An account after the block at a height that is executed; `None` if that is too long ago.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
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
        let noted = later.find_map(|(_, values)| values.get(identity).copied());
        Ok(Some(noted.unwrap_or(newest)))
    }
}
