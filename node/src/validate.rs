//! The thread that checks what a proposed block contains.

use crate::{clock::Clock, executor::ExecutorHandle, mempool::Mempool, replica::Event};
use commonware_codec::EncodeSize;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use quorate_consensus::{Moment, ValidateRequest};
use quorate_crypto::mistakes::{Mistake, made};
use quorate_crypto::{SignedMessage, verify_batch};
use quorate_types::{Block, ChainId, TRANSACTION_NAMESPACE, Transaction, genesis::BlockLimits};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// How far ahead of this node's clock a block's timestamp may be.
pub(crate) const MAX_CLOCK_AHEAD_MS: u64 = 5_000;

/// Blocks further than this above the executed ancestor that they name must be empty. Execution
/// follows finality, so without finality the lag grows; but no rule may stop blocks altogether,
/// since finality itself needs new blocks.
pub(crate) const MAX_EXECUTION_LAG: u64 = 256;

/// How long a block may wait here for this node to execute the ancestor that it names.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// How often waiting blocks are looked at.
const POLL: Duration = Duration::from_millis(1);

/// Checks blocks against the chain's limits, the mempool's verified transactions and this node's
/// own executed state.
pub struct Validator {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) chain: ChainId,
    pub(crate) limits: BlockLimits,
    pub(crate) mempool: Arc<Mempool>,
    pub(crate) executor: ExecutorHandle,
}

/// A request that waits for this node to execute the ancestor that the block names.
type Waiting = (ValidateRequest, Moment);

impl Validator {
    /// Answers requests until the replica is gone.
    pub(crate) fn run(self, requests: Receiver<ValidateRequest>, replica: Sender<Event>) {
        let mut waiting: Vec<Waiting> = Vec::new();
        loop {
            let request = if waiting.is_empty() {
                requests.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                requests.recv_timeout(POLL)
            };
            match request {
                Ok(request) => waiting.push((request, self.clock.now())),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            for event in self.look(&mut waiting) {
                if replica.send(event).is_err() {
                    return;
                }
            }
        }
    }

    /// Answers those requests that can be, and keeps the others.
    pub fn look(&self, waiting: &mut Vec<Waiting>) -> Vec<Event> {
        let mut events = Vec::new();
        waiting.retain(|(request, since)| {
            let Some(valid) = self.check(&request.block, *since) else {
                return true;
            };
            events.push(Event::Validated {
                view: request.view,
                block: request.block.id(),
                valid,
            });
            false
        });
        events
    }

    /// The verdict, or `None` while this node has not yet executed what the block names.
    fn check(&self, block: &Block, since: Moment) -> Option<bool> {
        let header = block.header();
        match self.executor.root_at(header.executed_height) {
            Some(root) if root != header.state_root && !made(Mistake::StateRootNotChecked) => {
                return Some(false);
            }
            Some(_) => {}
            None if self.clock.now().since(since) > MAX_WAIT => return Some(false),
            None => return None,
        }
        let lag = header.height.0.saturating_sub(header.executed_height.0);
        Some(
            header.timestamp_ms <= self.clock.wall_ms().saturating_add(MAX_CLOCK_AHEAD_MS)
                && block.transactions().len() <= self.limits.max_transactions
                && block.encode_size() <= self.limits.max_bytes
                && (lag <= MAX_EXECUTION_LAG || block.transactions().is_empty())
                && (made(Mistake::SignaturesNotChecked)
                    || self.transactions_hold(block.transactions())),
        )
    }

    /// Distinct, of this chain, and signed by their senders. What the mempool holds with the same
    /// signature was verified when it came; the others are verified in one batch.
    fn transactions_hold(&self, transactions: &[Transaction]) -> bool {
        let mut ids = BTreeSet::new();
        let mut unverified: Vec<(Transaction, Vec<u8>)> = Vec::new();
        for transaction in transactions {
            if !ids.insert(transaction.id()) || transaction.check_chain(&self.chain).is_err() {
                return false;
            }
            if !self.mempool.holds(transaction) {
                let message = transaction.transfer().signed_bytes(&self.chain);
                unverified.push((transaction.clone(), message));
            }
        }
        verify_signatures(&unverified)
    }
}

/// Whether all of these are signed by their senders; the bytes beside each are what is signed.
pub fn verify_signatures(transactions: &[(Transaction, Vec<u8>)]) -> bool {
    let messages: Vec<SignedMessage<'_>> = transactions
        .iter()
        .map(|(transaction, message)| SignedMessage {
            signer: transaction.transfer().sender,
            message,
            signature: *transaction.signature(),
        })
        .collect();
    verify_batch(TRANSACTION_NAMESPACE, &messages, &mut rand::rng())
}
