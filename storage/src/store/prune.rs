//! Forgetting old blocks, so that the database stays as large as its operator allows.
//!
//! A block goes with its id, receipts, root and transactions, in one batch with the height up to
//! which that is done: after a crash it goes on from there. Accounts and the tree stay, since they
//! are the newest state whatever block they came from. Deleted rows take room until RocksDB
//! rewrites their files, which it does early for files with many deletions (`options`).

use super::{
    BLOCKS, COLUMNS, IDS, META, RECEIPTS, ROOTS, Store, StoreError, TRANSACTIONS, TransactionPlace,
    height_key,
};
use crate::database::Batch;
use commonware_codec::{Copying, DecodeExt, Encode};
use quorate_types::Height;

/// Rows that one call of [`Store::prune`] deletes at most, but for those of one block.
pub const PRUNE_KEYS_PER_CALL: usize = 8_192;

const PRUNED: &[u8] = b"pruned";

/// How large a part of the database is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSize {
    /// The column family's name.
    pub name: &'static str,
    /// About how many rows it has.
    pub rows: u64,
    /// Bytes of its files.
    pub bytes: u64,
}

impl Store {
    /// The height below which blocks are forgotten; 1 if none are.
    ///
    /// # Errors
    ///
    /// If the database cannot be read or is damaged.
    pub fn pruned_below(&self) -> Result<Height, StoreError> {
        let Some(bytes) = self.get(META, PRUNED)? else {
            return Ok(Height(1));
        };
        Height::decode(Copying(&bytes)).map_err(|e| self.damaged("pruned height", &e))
    }

    /// Forgets blocks below a height, at most so many and [`PRUNE_KEYS_PER_CALL`] rows, the oldest
    /// first. The newest block always stays. Returns the height below which blocks are forgotten
    /// now: whoever wants more calls again. For the thread that commits.
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
        let first = self.pruned_below()?;
        let below = below.min(self.tip().height);
        let mut batch = Batch::default();
        let mut next = first;
        let mut keys = 0;
        while next < below && next.0 - first.0 < blocks && keys < PRUNE_KEYS_PER_CALL {
            let key = height_key(next);
            if let Some(stored) = self.block(next)? {
                if stored.block.header().timestamp_ms >= before_ms {
                    break;
                }
                batch.delete(IDS, stored.block.id());
                for (index, transaction) in (0_u32..).zip(stored.block.transactions()) {
                    // The same transaction may stand in a later block; that row is not this one's.
                    let place = TransactionPlace {
                        height: next,
                        index,
                    };
                    let id = transaction.id();
                    if self.transaction(&id)? == Some(place) {
                        batch.delete(TRANSACTIONS, id);
                    }
                    keys += 1;
                }
            }
            for column in [BLOCKS, RECEIPTS, ROOTS] {
                batch.delete(column, key);
            }
            keys += 4;
            next = next.next();
        }
        if next == first {
            return Ok(first);
        }
        batch.put(META, PRUNED, next.encode());
        self.write(&batch, false)?;
        Ok(next)
    }

    /// Rewrites the files so that deleted rows take no room any more. It takes a while; not for a
    /// running validator.
    pub fn compact(&self) {
        for column in COLUMNS {
            self.database.compact(column);
        }
    }

    /// Bytes of the files: of all parts, and of the log of what is in none of them yet.
    pub fn bytes(&self) -> u64 {
        let parts: u64 = self.sizes().iter().map(|size| size.bytes).sum();
        parts + self.database.log_bytes()
    }

    /// How large each part is. The rows are the database's estimate.
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
