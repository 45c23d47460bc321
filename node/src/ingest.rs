//! Transactions between validators: taking in what others forward, and forwarding what clients
//! submitted here to the coming leaders.

use crate::{
    clock::Clock, mempool::Mempool, metrics::NodeMetrics, outlet::Wire, rpc::live::LiveStatus,
    validate::verify_signatures,
};
use anyhow::Context;
use commonware_codec::Encode;
use crossbeam_channel::Receiver;
use quorate_p2p::{Lane, To};
use quorate_storage::store::Store;
use quorate_types::{
    Account, ChainId, Committee, Epoch, Frame, Identity, Message, Transaction, ValidatorIndex,
    View, limits::FORWARDED_BYTES,
};
use std::{sync::Arc, time::Duration};

/// Transactions verified in one batch.
const BATCH: usize = 1_024;

/// How often new transactions are forwarded.
pub(crate) const FORWARD_INTERVAL: Duration = Duration::from_millis(5);

/// Transactions forwarded at a time.
const MAX_FORWARDED: usize = 1_000;

/// Takes forwarded transactions into the mempool. Peers' signatures are not trusted: each
/// transaction is verified here.
pub struct Ingest {
    pub(crate) chain: ChainId,
    pub(crate) store: Store,
    pub(crate) mempool: Arc<Mempool>,
    pub(crate) metrics: Arc<NodeMetrics>,
}

impl Ingest {
    /// Takes batches until the links are gone.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    pub(crate) fn run(self, batches: Receiver<Vec<Transaction>>) -> anyhow::Result<()> {
        while let Ok(mut batch) = batches.recv() {
            while batch.len() < BATCH
                && let Ok(more) = batches.try_recv()
            {
                batch.extend(more);
            }
            self.take(batch)?;
        }
        Ok(())
    }

    /// Takes one batch.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    pub fn take(&self, batch: Vec<Transaction>) -> anyhow::Result<()> {
        let fresh: Vec<(Transaction, Vec<u8>)> = batch
            .into_iter()
            .filter(|transaction| {
                transaction.check_chain(&self.chain).is_ok()
                    && !self.mempool.contains(&transaction.id())
            })
            .map(|transaction| {
                let message = transaction.transfer().signed_bytes(&self.chain);
                (transaction, message)
            })
            .collect();
        let all_hold = verify_signatures(&fresh);
        for item in fresh {
            if !all_hold && !verify_signatures(std::slice::from_ref(&item)) {
                self.metrics.dropped("invalid_transaction");
                continue;
            }
            let account = self
                .store
                .account(&item.0.transfer().sender)
                .context("cannot read an account")?
                .unwrap_or_default();
            // A refusal is the forwarding validator's client's loss; it is counted there too.
            let Account { nonce, balance } = account;
            if self
                .mempool
                .submit_forwarded(item.0, nonce, balance)
                .is_err()
            {
                self.metrics.dropped("refused_transaction");
            }
        }
        Ok(())
    }
}

/// Forwards what clients submitted here to the leaders of the coming views.
pub struct Forwarder {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) committee: Committee,
    pub(crate) own: ValidatorIndex,
    pub(crate) mempool: Arc<Mempool>,
    pub(crate) live: Arc<LiveStatus>,
    pub(crate) wire: Wire,
}

impl Forwarder {
    /// Forwards in batches. Runs on the runtime until it is dropped.
    pub(crate) async fn run(self) {
        let mut ticks = tokio::time::interval(FORWARD_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.forward();
        }
    }

    /// Forwards what is due now.
    pub fn forward(&self) {
        let now = self.clock.now();
        let transactions = self
            .mempool
            .next_to_forward(now, MAX_FORWARDED, FORWARDED_BYTES);
        if transactions.is_empty() {
            return;
        }
        let (epoch, view) = (self.live.epoch(), self.live.view());
        let leaders = coming_leaders(&self.committee, self.own, epoch, view);
        let frame = Frame(vec![Message::Transactions(transactions)]).encode();
        (self.wire)(Lane::Transactions, &To::Some(leaders), frame);
    }
}

/// The leaders of the next views, without this validator: f + 1 of them, so that one is honest,
/// and at least two, since the first may have built its block already.
fn coming_leaders(
    committee: &Committee,
    own: ValidatorIndex,
    epoch: Epoch,
    view: View,
) -> Vec<Identity> {
    let count = (committee.faults() + 1).max(2);
    let mut leaders = Vec::with_capacity(count);
    let mut next = view.next();
    for _ in 0..committee.size() {
        let leader = committee.leader_in(epoch, next);
        if leader != own
            && let Some(identity) = committee.identity(leader)
        {
            leaders.push(identity);
        }
        if leaders.len() == count {
            break;
        }
        next = next.next();
    }
    leaders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_go_to_the_next_leaders_but_never_to_oneself() {
        let validators = (0..7).map(|i| Identity([i; 32])).collect();
        let committee = Committee::new(Epoch(0), validators).expect("distinct");
        let own = ValidatorIndex(4);
        let leaders = coming_leaders(&committee, own, Epoch(0), View(2));
        assert_eq!(leaders, [3, 5, 6].map(|i| Identity([i; 32])));
        let alone = Committee::new(Epoch(0), vec![Identity([4; 32])]).expect("one");
        assert!(coming_leaders(&alone, ValidatorIndex(0), Epoch(0), View(2)).is_empty());
    }
}
