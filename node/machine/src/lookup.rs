//! Finding a transaction.

use crate::mempool::{Dropped, Mempool, WaitingFor};
use quorate_storage::store::{Store, StoreError, TransactionPlace};
use quorate_types::{Digest, Outcome};

/// Where a transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// In a final block.
    Final {
        /// Where in the chain.
        place: TransactionPlace,
        /// Its outcome.
        outcome: Outcome,
    },
    /// In the mempool.
    Waiting(WaitingFor),
    /// It was in the mempool and is gone.
    Dropped(Dropped),
}

/// Looks for a transaction, in the chain first and then in the mempool.
///
/// # Errors
///
/// If the database cannot be read.
pub fn find(store: &Store, mempool: &Mempool, id: &Digest) -> Result<Option<Found>, StoreError> {
    if let Some(found) = in_chain(store, id)? {
        return Ok(Some(found));
    }
    if let Some(waits) = mempool.waits_for(id) {
        return Ok(Some(Found::Waiting(waits)));
    }
    // It may have been executed between the two lookups.
    if let Some(found) = in_chain(store, id)? {
        return Ok(Some(found));
    }
    Ok(mempool.dropped(id).map(Found::Dropped))
}

fn in_chain(store: &Store, id: &Digest) -> Result<Option<Found>, StoreError> {
    let Some(place) = store.transaction(id)? else {
        return Ok(None);
    };
    // Without an outcome the block was pruned a moment ago.
    let outcome = store.outcome(place)?;
    Ok(outcome.map(|outcome| Found::Final { place, outcome }))
}
