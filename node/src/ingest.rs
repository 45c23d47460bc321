//! Transactions between validators: taking in what others forward, and forwarding what clients
//! submitted here to the coming leaders.

use crate::{
    mempool::Mempool, metrics::NodeMetrics, rpc::live::LiveStatus, validate::verify_signatures,
};
use anyhow::Context;
use commonware_codec::Encode;
use crossbeam_channel::Receiver;
use quorate_p2p::{Lane, Links, To};
use quorate_storage::store::Store;
use quorate_types::{
    ChainId, Committee, Epoch, Frame, Identity, Message, Transaction, ValidatorIndex, View,
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Transactions verified in one batch.
const BATCH: usize = 1_024;

/// How often new transactions are forwarded.
pub(crate) const FORWARD_INTERVAL: Duration = Duration::from_millis(5);

/// Transactions forwarded at a time.
const MAX_FORWARDED: usize = 1_000;

/// Takes forwarded transactions into the mempool until the links are gone. Peers' signatures are
/// not trusted: each transaction is verified here.
///
/// # Errors
///
/// If the database cannot be read.
pub(crate) fn run(
    chain: ChainId,
    store: Store,
    mempool: Arc<Mempool>,
    batches: Receiver<Vec<Transaction>>,
    metrics: Arc<NodeMetrics>,
) -> anyhow::Result<()> {
    while let Ok(mut batch) = batches.recv() {
        while batch.len() < BATCH
            && let Ok(more) = batches.try_recv()
        {
            batch.extend(more);
        }
        let fresh: Vec<(Transaction, Vec<u8>)> = batch
            .into_iter()
            .filter(|transaction| {
                transaction.check_chain(&chain).is_ok() && !mempool.contains(&transaction.id())
            })
            .map(|transaction| (transaction, transaction.transfer().signed_bytes(&chain)))
            .collect();
        let all_hold = verify_signatures(&fresh);
        for item in fresh {
            if !all_hold && !verify_signatures(std::slice::from_ref(&item)) {
                metrics.dropped("invalid_transaction");
                continue;
            }
            let account = store
                .account(&item.0.transfer().sender)
                .context("cannot read an account")?
                .unwrap_or_default();
            // A refusal is the forwarding validator's client's loss; it is counted there too.
            if mempool
                .submit_forwarded(item.0, account.nonce, account.balance)
                .is_err()
            {
                metrics.dropped("refused_transaction");
            }
        }
    }
    Ok(())
}

/// Forwards what clients submitted here, in batches, to the leaders of the coming views. Runs on
/// the runtime until it is dropped.
pub(crate) async fn forward(
    committee: Committee,
    own: ValidatorIndex,
    mempool: Arc<Mempool>,
    live: Arc<LiveStatus>,
    links: Links,
) {
    let mut ticks = tokio::time::interval(FORWARD_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let transactions = mempool.next_to_forward(Instant::now(), MAX_FORWARDED);
        if transactions.is_empty() {
            continue;
        }
        let leaders = coming_leaders(&committee, own, live.epoch(), live.view());
        let frame = Frame(vec![Message::Transactions(transactions)]).encode();
        links.send(Lane::Transactions, &To::Some(leaders), frame);
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
