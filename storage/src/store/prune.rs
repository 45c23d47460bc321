//! Deleting old blocks, so that the database stays as large as its operator allows.
//!
//! A block is deleted with its id, receipts, root and transactions, in one batch with the height up
//! to which blocks are deleted: after a crash it continues there. Accounts and the tree stay, since
//! they are the newest state. Deleted rows take space until RocksDB rewrites their files, which it
//! does early for files with many deletions (`options`).
//!
//! Blocks are pruned as new ones come, twice as many as come. Dropping whole files by range would
//! be cheaper, but would bring rows back whose deletions are in a dropped file.

use super::{
    BLOCKS, COLUMNS, IDS, META, RECEIPTS, ROOTS, Store, StoreError, TRANSACTIONS, TransactionPlace,
    height_key,
};
use crate::database::Batch;
use commonware_codec::{Copying, DecodeExt, Encode};
use quorate_types::{Block, Height};

/// Rows that one call of [`Store::prune`] deletes at most, but for those of one block.
pub const PRUNE_KEYS_PER_CALL: usize = 8_192;

/// In `meta`: the height below which blocks are deleted.
pub(super) const PRUNED: &[u8] = b"pruned";

/// In `meta`: the block that state sync ended with.
pub(super) const BASE: &[u8] = b"base";

/// The size of a part of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSize {
    /// The column family's name.
    pub name: &'static str,
    /// The approximate number of its rows.
    pub rows: u64,
    /// Bytes of its files.
    pub bytes: u64,
}

impl Store {
    /// The height below which blocks are deleted, or stored without the outcomes of their
    /// transactions ([`Self::base`]); 1 if none are.
    ///
    /// # Errors
    ///
    /// If the database cannot be read or is damaged.
    pub fn pruned_below(&self) -> Result<Height, StoreError> {
        Ok(match self.base()? {
            Some(base) => base.next(),
            None => self.deleted_below()?,
        })
    }

    /// The block that state sync ended with, as long as it is the oldest one. It was not executed
    /// here, so nothing is known of the outcomes of its transactions.
    ///
    /// # Errors
    ///
    /// If the database cannot be read or is damaged.
    pub fn base(&self) -> Result<Option<Height>, StoreError> {
        let oldest = self.deleted_below()?;
        Ok(self.height_in(BASE)?.filter(|base| *base == oldest))
    }

    fn deleted_below(&self) -> Result<Height, StoreError> {
        Ok(self.height_in(PRUNED)?.unwrap_or(Height(1)))
    }

    pub(super) fn height_in(&self, name: &[u8]) -> Result<Option<Height>, StoreError> {
        let bytes = self.get(META, name)?;
        let height = |bytes: Vec<u8>| Height::decode(Copying(&bytes));
        let height = bytes.map(height).transpose();
        height.map_err(|e| self.damaged("pruned height", &e))
    }

    /// Deletes the oldest blocks below a height, at most this many and [`PRUNE_KEYS_PER_CALL`]
    /// rows. The newest block always stays. Returns the height below which blocks are deleted now,
    /// so that a caller can continue. For the thread that commits.
    ///
    /// # Errors
    ///
    /// If the database fails: halt.
    pub fn prune(&self, below: Height, blocks: u64) -> Result<Height, StoreError> {
        self.prune_older(below, u64::MAX, blocks)
    }

    /// As [`Self::prune`], and only blocks whose timestamps are before `before_ms`, in milliseconds since
    /// 1970. Timestamps rise with the height.
    ///
    /// # Errors
    ///
    /// If the database fails: halt.
    pub fn prune_older(
        &self,
        below: Height,
        before_ms: u64,
        blocks: u64,
    ) -> Result<Height, StoreError> {
        let first = self.deleted_below()?;
        let below = below.min(self.tip().height);
        let mut batch = Batch::default();
        let mut next = first;
        let mut keys = 0;
        while next < below && next.0 - first.0 < blocks && keys < PRUNE_KEYS_PER_CALL {
            let stored = self.block(next)?.map(|stored| stored.block);
            if let Some(block) = &stored
                && block.header().timestamp_ms >= before_ms
            {
                break;
            }
            keys += self.stage_removal(next, stored.as_deref(), &mut batch)?;
            next = next.next();
        }
        if next == first {
            return Ok(first);
        }
        batch.put(META, PRUNED, next.encode());
        self.write(&batch, false)?;
        Ok(next)
    }

    /// Deletes a block's rows with a batch. Returns how many.
    pub(super) fn stage_removal(
        &self,
        height: Height,
        block: Option<&Block>,
        batch: &mut Batch,
    ) -> Result<usize, StoreError> {
        let mut keys = 4;
        if let Some(block) = block {
            batch.delete(IDS, block.id());
            for (index, transaction) in (0_u32..).zip(block.transactions()) {
                // The same transaction may be in a later block; then the row is not this one's.
                let place = TransactionPlace { height, index };
                let id = transaction.id();
                if self.transaction(&id)? == Some(place) {
                    batch.delete(TRANSACTIONS, id);
                }
                keys += 1;
            }
        }
        for column in [BLOCKS, RECEIPTS, ROOTS] {
            batch.delete(column, height_key(height));
        }
        Ok(keys)
    }

    /// Rewrites the files so that deleted rows take no more space. It takes a while; not for a
    /// running validator.
    pub fn compact(&self) {
        for column in COLUMNS {
            self.database.compact(column);
        }
    }

    /// Bytes of the files of all parts, and of the log.
    pub fn bytes(&self) -> u64 {
        let parts: u64 = self.sizes().iter().map(|size| size.bytes).sum();
        parts + self.database.log_bytes()
    }

    /// The size of each part. The numbers of rows are the database's estimates.
    pub fn sizes(&self) -> Vec<TableSize> {
        COLUMNS
            .into_iter()
            .map(|name| {
                let (rows, bytes) = self.database.size(name);
                TableSize { name, rows, bytes }
            })
            .collect()
    }
}
