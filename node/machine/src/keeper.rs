//! Clients' transactions on disk: a client that was told "accepted" is never told otherwise because
//! of a crash.
//!
//! A submitted transaction is answered once it is in the database and synced. After a crash it is
//! in the mempool again and is forwarded again. One sync serves all transactions that have come
//! meanwhile. It syncs the database's log on this thread; votes have a journal of their own and do
//! not wait for it.
//!
//! The rows of transactions that were executed or have left the mempool for another reason are
//! deleted later, without a sync. A crash may bring them back; they are checked again at the start
//! and deleted then.
//!
//! The alternatives were worse. A separate file would have to be rewritten whenever blocks execute
//! transactions in it. Copies at f + 1 other validators would need an answer from each and would
//! not survive a kill of all validators.

use crate::{
    accounts::Accounts,
    mempool::{Mempool, MempoolLimits, Refusal},
    metrics::NodeMetrics,
    validate::verify_signatures,
};
use anyhow::Context;
use crossbeam_channel::{Receiver, RecvTimeoutError};
use quorate_consensus::Moment;
use quorate_storage::store::Store;
use quorate_types::{
    ChainId, Digest, Height, Identity, Transaction,
    genesis::{Fees, Genesis},
};
use std::{iter, sync::Arc, time::Duration};
use tokio::sync::oneshot;
use tracing::{info, warn};

/// How often rows are deleted while nothing is to be stored.
const DELETE_INTERVAL: Duration = Duration::from_secs(1);

/// Most requests that share a sync.
const MAX_REQUESTS: usize = 1_024;

/// Rows read at a time at the start.
const READ_ROWS: usize = 1_000;

/// A request to store transactions that the mempool holds.
pub struct Keep {
    pub transactions: Vec<Transaction>,
    /// Notified once they are durable.
    pub done: oneshot::Sender<()>,
}

pub struct Keeper {
    pub(crate) store: Store,
    pub(crate) mempool: Arc<Mempool>,
    pub(crate) metrics: Arc<NodeMetrics>,
}

impl Keeper {
    /// Stores transactions until all senders of requests are gone.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn run(self, requests: Receiver<Keep>) -> anyhow::Result<()> {
        loop {
            match requests.recv_timeout(DELETE_INTERVAL) {
                Ok(first) => self.keep(iter::once(first).chain(requests.try_iter()))?,
                Err(RecvTimeoutError::Timeout) => self.keep(iter::empty())?,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }

    /// Makes the requested transactions durable, notifies their clients, and deletes the rows of
    /// transactions that have left the mempool.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn keep(&self, requests: impl Iterator<Item = Keep>) -> anyhow::Result<()> {
        let requests: Vec<Keep> = requests.take(MAX_REQUESTS).collect();
        let gone = self.mempool.take_gone();
        if requests.is_empty() && gone.is_empty() {
            return Ok(());
        }
        let kept = || requests.iter().flat_map(|request| &request.transactions);
        let sync = !requests.is_empty();
        let written = self.store.keep(kept(), &gone, sync);
        written.context("cannot keep clients' transactions")?;
        if sync {
            self.metrics.kept_syncs.inc();
        }
        // A transaction executed before its row was written will not be reported as gone again.
        let left: Vec<Digest> = kept()
            .map(Transaction::id)
            .filter(|id| !self.mempool.contains(id))
            .collect();
        let none = iter::empty::<&Transaction>();
        let deleted = self.store.keep(none, &left, false);
        deleted.context("cannot delete clients' transactions")?;
        for request in requests {
            // The client may have gone.
            let _ = request.done.send(());
        }
        Ok(())
    }
}

/// The mempool of a node's next parts, whose validators these are: the one of the parts before them in the same process,
/// or one filled from the disk.
///
/// Before it went on over borders, whoever filled mempools stopped the chain for seconds at each of them.
///
/// # Errors
///
/// If the database fails.
pub(crate) fn mempool(
    now: Moment,
    (limits, before): (MempoolLimits, Option<Arc<Mempool>>),
    genesis: &Genesis,
    validators: &[Identity],
    (store, accounts): (&Store, &Accounts),
) -> anyhow::Result<Arc<Mempool>> {
    let height = store.tip().height;
    if let Some(before) = before.filter(|before| before.is_at(height)) {
        before.serve(validators);
        return Ok(before);
    }
    let room = genesis.limits.transaction_bytes();
    let mempool = Mempool::new(limits, room, genesis.fees);
    mempool.serve(validators);
    let terms = (&genesis.chain_id(), &genesis.fees);
    restore(now, terms, store, accounts, &mempool)?;
    Ok(Arc::new(mempool))
}

/// Puts stored transactions back into the mempool, and deletes those that no longer belong there. They are for a
/// chain with these fees.
///
/// # Errors
///
/// If the database fails.
pub(crate) fn restore(
    now: Moment,
    (chain, fees): (&ChainId, &Fees),
    store: &Store,
    accounts: &Accounts,
    mempool: &Mempool,
) -> anyhow::Result<()> {
    let lacks_blocks = store.pruned_below()? > Height(1);
    let mut after = None;
    let mut restored = 0_usize;
    let mut short = Shortage::default();
    loop {
        let rows = store.kept_after(after, READ_ROWS)?;
        let Some(last) = rows.last() else { break };
        after = Some(last.id());
        let mut useless = Vec::new();
        for transaction in rows {
            let id = transaction.id();
            // The rows have checksums, but a data directory may be assembled from several.
            let message = transaction.transfer().signed_bytes(chain);
            let item = (transaction, message);
            let holds =
                item.0.check(chain, fees).is_ok() && verify_signatures(std::slice::from_ref(&item));
            let account = accounts.read(&item.0.transfer().sender)?;
            if !holds {
                useless.push(id);
                continue;
            }
            match mempool.restore(now, item.0, account) {
                Ok(()) => restored += 1,
                Err(refusal) => {
                    short.count(&refusal);
                    // It may have used its nonce itself, in a block that is not kept here, perhaps
                    // because the state was fetched.
                    let is_unclear = matches!(refusal, Refusal::StaleNonce { .. }) && lacks_blocks;
                    if !is_unclear {
                        mempool.not_restored(id, refusal);
                    }
                    useless.push(id);
                }
            }
        }
        store.keep(iter::empty::<&Transaction>(), &useless, false)?;
    }
    if restored > 0 {
        info!(
            transactions = restored,
            "clients' transactions that were kept wait again"
        );
    }
    // An earlier one may have been evicted by a later one.
    if short.room > 0 || mempool.is_full() {
        short.room += restored.saturating_sub(mempool.size().0);
    }
    short.tell();
    Ok(())
}

/// Stored transactions that were dropped although the chain does not speak against them.
#[derive(Default)]
struct Shortage {
    /// Because the mempool was full.
    room: usize,
    /// Because their sender has too many.
    share: usize,
}

impl Shortage {
    fn count(&mut self, refusal: &Refusal) {
        match refusal {
            Refusal::Full => self.room += 1,
            Refusal::SenderFull { .. } => self.share += 1,
            // Used, replaced, unpaid or known: the chain or the sender has decided.
            Refusal::AlreadyKnown
            | Refusal::NonceTaken { .. }
            | Refusal::ReplacedLately { .. }
            | Refusal::StaleNonce { .. }
            | Refusal::CannotPayFee { .. }
            | Refusal::NonceTooFar { .. }
            | Refusal::TooLarge { .. }
            | Refusal::Outdated => {}
        }
    }

    fn tell(&self) {
        if self.room > 0 {
            warn!(
                transactions = self.room,
                "transactions that clients were told are accepted are dropped: the mempool has less room \
                 than before. They must be submitted again; raise `mempool.max_transactions` or \
                 `mempool.max_bytes`"
            );
        }
        if self.share > 0 {
            warn!(
                transactions = self.share,
                "transactions that clients were told are accepted are dropped: their senders may have \
                 fewer than before. They must be submitted again; raise `mempool.max_per_sender`"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::chain;
    use quorate_types::Account;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn the_next_parts_go_on_with_the_mempool_if_it_knows_the_newest_accounts() {
        let directory = tempfile::tempdir().expect("a directory");
        let (genesis, store) = chain(directory.path());
        let accounts = Accounts::new(store.clone());
        let next = |before| {
            let limits = (MempoolLimits::default(), before);
            let next = mempool(Moment(0), limits, &genesis, &[], (&store, &accounts));
            next.expect("the database is there")
        };
        let first = next(None);
        let second = next(Some(first.clone()));
        assert!(Arc::ptr_eq(&first, &second));
        let none: Arc<BTreeMap<Identity, Account>> = Arc::default();
        second.executed(Moment(0), Height(1), &none, &BTreeSet::new());
        let third = next(Some(second.clone()));
        assert!(
            !Arc::ptr_eq(&second, &third),
            "the database is at another height"
        );
    }
}
