//! The thread that checks what a proposed block contains.

use crate::{
    clock::Clock, executor::ExecutorHandle, forecast::Forecast, mempool::Mempool, replica::Event,
};
use anyhow::Context;
use commonware_codec::EncodeSize;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use quorate_consensus::{Moment, ValidateRequest};
use quorate_crypto::mistakes::{Mistake, made};
use quorate_crypto::{SignedMessage, verify_batch};
use quorate_types::{
    ChainId, TRANSACTION_NAMESPACE, Transaction,
    genesis::{BlockLimits, Fees},
};
use std::{sync::Arc, time::Duration};

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
    pub(crate) fees: Fees,
    pub(crate) forecast: Arc<Forecast>,
    pub(crate) mempool: Arc<Mempool>,
    pub(crate) executor: ExecutorHandle,
}

/// A request that waits for this node to execute the ancestor that the block names.
pub type Waiting = (ValidateRequest, Moment);

enum Verdict {
    /// Whether an honest leader could have built it.
    Valid(bool),
    /// This node has not yet executed what the block names.
    Wait,
    /// Blocks far above it are executed: nobody votes for it any more.
    Moot,
}

impl Validator {
    /// Answers requests until the replica is gone.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    pub(crate) fn run(
        self,
        requests: Receiver<ValidateRequest>,
        replica: Sender<Event>,
    ) -> anyhow::Result<()> {
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
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            for event in self.look(&mut waiting)? {
                if replica.send(event).is_err() {
                    return Ok(());
                }
            }
        }
    }

    /// Answers those requests that can be, and keeps the others.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    pub fn look(&self, waiting: &mut Vec<Waiting>) -> anyhow::Result<Vec<Event>> {
        let mut events = Vec::new();
        for (request, since) in std::mem::take(waiting) {
            match self.check(&request, since)? {
                Verdict::Wait => waiting.push((request, since)),
                Verdict::Moot => {}
                Verdict::Valid(valid) => events.push(Event::Validated {
                    view: request.view,
                    block: request.block.id(),
                    valid,
                }),
            }
        }
        Ok(events)
    }

    fn check(&self, request: &ValidateRequest, since: Moment) -> anyhow::Result<Verdict> {
        let block = &request.block;
        let header = block.header();
        match self.executor.root_at(header.executed_height) {
            Some(root) if root != header.state_root && !made(Mistake::StateRootNotChecked) => {
                return Ok(Verdict::Valid(false));
            }
            Some(_) => {}
            None if self.clock.now().since(since) > MAX_WAIT => return Ok(Verdict::Valid(false)),
            None => return Ok(Verdict::Wait),
        }
        let lag = header.height.0.saturating_sub(header.executed_height.0);
        let fits = header.timestamp_ms <= self.clock.wall_ms().saturating_add(MAX_CLOCK_AHEAD_MS)
            && block.transactions().len() <= self.limits.max_transactions
            && block.encode_size() <= self.limits.max_bytes
            && (lag <= MAX_EXECUTION_LAG || block.transactions().is_empty());
        if !fits {
            return Ok(Verdict::Valid(false));
        }
        if !made(Mistake::RepetitionsNotChecked) {
            let holds = self.forecast.holds(block, &request.unexecuted);
            match holds.context("cannot read an account")? {
                Some(true) => {}
                Some(false) => return Ok(Verdict::Valid(false)),
                None => return Ok(Verdict::Moot),
            }
        }
        let signed =
            made(Mistake::SignaturesNotChecked) || self.transactions_hold(block.transactions());
        Ok(Verdict::Valid(signed))
    }

    /// Of this chain, paid for, and signed by their senders. What the mempool holds with the same
    /// signature was verified when it came; the others are verified in one batch. That no two are the
    /// same follows from each using its nonce.
    fn transactions_hold(&self, transactions: &[Transaction]) -> bool {
        let mut unverified: Vec<(Transaction, Vec<u8>)> = Vec::new();
        for transaction in transactions {
            if self.mempool.holds(transaction) {
                continue;
            }
            if transaction.check(&self.chain, &self.fees).is_err() {
                return false;
            }
            let message = transaction.transfer().signed_bytes(&self.chain);
            unverified.push((transaction.clone(), message));
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
