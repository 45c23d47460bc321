//! Clients' transactions that wait for a block: kept, so that a crash loses none that was accepted.

use super::{POOL, Store, StoreError, failed};
use crate::database::Batch;
use commonware_codec::{Copying, DecodeExt, Encode};
use quorate_types::{Digest, Transaction};

impl Store {
    /// Keeps transactions and forgets others, as one batch. With `sync`, they are durable when this
    /// returns.
    ///
    /// # Errors
    ///
    /// If the database fails: halt.
    pub fn keep<'a>(
        &self,
        kept: impl Iterator<Item = &'a Transaction>,
        forgotten: &[Digest],
        sync: bool,
    ) -> Result<(), StoreError> {
        let mut batch = Batch::default();
        for id in forgotten {
            batch.delete(POOL, id.0);
        }
        for transaction in kept {
            batch.put(POOL, transaction.id().0, transaction.encode());
        }
        if batch.is_empty() && !sync {
            return Ok(());
        }
        self.write(&batch, sync)
    }

    /// Kept transactions in the order of their ids, those after `after`, at most so many.
    ///
    /// # Errors
    ///
    /// If the database cannot be read or is damaged.
    pub fn kept_after(
        &self,
        after: Option<Digest>,
        limit: usize,
    ) -> Result<Vec<Transaction>, StoreError> {
        let start: &[u8] = after.as_ref().map_or(&[], |id| &id.0);
        let rows = self.database.rows_from(POOL, start, limit + 1);
        rows.map_err(|source| failed(&self.path, source))?
            .into_iter()
            .filter(|(key, _)| after.is_none_or(|after| key[..] != after.0))
            .take(limit)
            .map(|(key, value)| {
                let transaction = Transaction::decode(Copying(&value))
                    .map_err(|e| self.damaged("a kept transaction", &e))?;
                if key != transaction.id().0 {
                    let id = transaction.id();
                    return Err(self.damaged_by(format!("a kept row holds transaction {id}")));
                }
                Ok(transaction)
            })
            .collect()
    }
}
