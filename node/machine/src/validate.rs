//! The thread that checks the content of proposed blocks.

use crate::{
    clock::Clock,
    executor::ExecutorHandle,
    forecast::Forecast,
    mempool::Mempool,
    payloads::{Held, Payloads},
    replica::Event,
};
use anyhow::Context;
use commonware_codec::EncodeSize;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use quorate_consensus::{Moment, ValidateRequest};
use quorate_crypto::{SignedMessage, verify_batch};
use quorate_types::{
    Block, ChainId, Digest, TRANSACTION_NAMESPACE, Transaction,
    genesis::{BlockLimits, Fees},
    limits::MAX_BLOCK_BUNDLE_BYTES,
};
use std::{sync::Arc, time::Duration};

/// How far a block's timestamp may be ahead of this validator's clock.
pub(crate) const MAX_CLOCK_AHEAD_MS: u64 = 5_000;

/// A block further than this above the executed ancestor that it names must be empty. Execution
/// follows finality, so without finality the lag grows; but no rule may stop blocks altogether,
/// since finality itself needs new blocks.
pub const MAX_EXECUTION_LAG: u64 = 256;

/// How long a block may wait here until this validator has executed the ancestor that it names.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// Most blocks that wait for payloads.
const MAX_LACKING: usize = 16;

/// How often all bundles of a block are looked for, as long as one that was missing is not there.
const LACKS_AGAIN: Duration = Duration::from_millis(300);

/// How often waiting blocks are looked at.
const POLL: Duration = Duration::from_millis(1);

/// Checks blocks against the chain's limits, the mempool's verified transactions and this
/// validator's executed state.
pub struct Validator {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) chain: ChainId,
    pub(crate) limits: BlockLimits,
    pub(crate) fees: Fees,
    pub(crate) forecast: Arc<Forecast>,
    pub(crate) mempool: Arc<Mempool>,
    pub(crate) executor: ExecutorHandle,
    /// On a chain that only orders.
    pub(crate) payloads: Option<Arc<Payloads>>,
}

/// A request that waits until this validator has executed the ancestor that the block names, or has the payloads that
/// the block orders.
pub struct Waiting {
    request: ValidateRequest,
    since: Moment,
    /// Whether everything but the payloads was checked.
    holds: bool,
    /// A bundle that is missing, and when all were looked for.
    lacks: Option<(Digest, Moment)>,
}

impl Waiting {
    pub fn new(request: ValidateRequest, since: Moment) -> Self {
        Self {
            request,
            since,
            holds: false,
            lacks: None,
        }
    }
}

enum Verdict {
    /// An honest leader could have built it.
    Valid,
    /// It could not, and the reason.
    Invalid(&'static str),
    /// The ancestor that the block names is not executed here yet.
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
    pub fn run(
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
                Ok(request) => waiting.push(Waiting::new(request, self.clock.now())),
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

    /// Answers the requests that can be answered, and keeps the others.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    pub fn look(&self, waiting: &mut Vec<Waiting>) -> anyhow::Result<Vec<Event>> {
        let mut events = Vec::new();
        for mut one in std::mem::take(waiting) {
            let verdict = match one.holds {
                true => Verdict::Valid,
                false => self.check(&one.request, one.since)?,
            };
            one.holds = matches!(verdict, Verdict::Valid);
            match verdict {
                Verdict::Valid => match self.payloads_of(&mut one) {
                    Held::All => events.push(validated(&one.request, None)),
                    Held::Contradicted => {
                        let why = "a bundle is not as long as its transaction says";
                        events.push(validated(&one.request, Some(why)));
                    }
                    // Its leader need not have lied: who has them may be cut off. Without a vote the view times out.
                    Held::Not(_) if self.clock.now().since(one.since) <= MAX_WAIT => {
                        waiting.push(one);
                    }
                    Held::Not(_) => {}
                },
                Verdict::Wait => waiting.push(one),
                Verdict::Moot => {}
                Verdict::Invalid(why) => events.push(validated(&one.request, Some(why))),
            }
        }
        // Views that are long past go first.
        let mut lacking = waiting.iter().filter(|one| one.holds).count();
        waiting.retain(|one| {
            let goes = one.holds && lacking > MAX_LACKING;
            lacking -= usize::from(goes);
            !goes
        });
        Ok(events)
    }

    fn payloads_of(&self, one: &mut Waiting) -> Held {
        let Some(payloads) = &self.payloads else {
            return Held::All;
        };
        let now = self.clock.now();
        if let Some((digest, since)) = one.lacks
            && now < since.after(LACKS_AGAIN)
            && !payloads.holds(&digest)
        {
            return Held::Not(digest);
        }
        let held = payloads.judge(&one.request.block);
        one.lacks = match held {
            Held::Not(digest) => Some((digest, now)),
            Held::All | Held::Contradicted => None,
        };
        held
    }

    fn check(&self, request: &ValidateRequest, since: Moment) -> anyhow::Result<Verdict> {
        let block = &request.block;
        let header = block.header();
        match self.executor.root_at(header.executed_height) {
            Some(root) if root != header.state_root => {
                return Ok(Verdict::Invalid(
                    "its state root is not that of this validator",
                ));
            }
            Some(_) => {}
            None if self.clock.now().since(since) > MAX_WAIT => {
                return Ok(Verdict::Invalid(
                    "it builds on a state that is not reached here",
                ));
            }
            None => return Ok(Verdict::Wait),
        }
        if let Some(why) = self.misfit(block) {
            return Ok(Verdict::Invalid(why));
        }
        let holds = self.forecast.holds(block, &request.unexecuted);
        match holds.context("cannot read an account")? {
            Some(true) => {}
            Some(false) => {
                let why = "a transaction has a wrong nonce, cannot pay, or stands there twice";
                return Ok(Verdict::Invalid(why));
            }
            None => return Ok(Verdict::Moot),
        }
        Ok(match self.transactions_hold(block.transactions()) {
            true => Verdict::Valid,
            false => Verdict::Invalid("a transaction's chain, fee or signature is wrong"),
        })
    }

    /// Why a block does not fit the clock and the chain's limits.
    fn misfit(&self, block: &Block) -> Option<&'static str> {
        let header = block.header();
        let lag = header.height.0.saturating_sub(header.executed_height.0);
        if header.timestamp_ms > self.clock.wall_ms().saturating_add(MAX_CLOCK_AHEAD_MS) {
            Some(
                "its timestamp is more than 5 s ahead of this machine's clock: one of the two is wrong",
            )
        } else if block.transactions().len() > self.limits.max_transactions {
            Some("it has too many transactions")
        } else if block.encode_size() > self.limits.max_bytes {
            Some("it is too large")
        } else if self.forecast.bundle_bytes(block.transactions()) > MAX_BLOCK_BUNDLE_BYTES {
            Some("it orders too many payloads")
        } else if lag > MAX_EXECUTION_LAG && !block.transactions().is_empty() {
            Some("it has transactions although execution is far behind")
        } else {
            None
        }
    }

    /// Checks that all transactions are of this chain, pay enough, and are signed by their senders.
    /// Those in the mempool with the same signature were verified when they came; the others are
    /// verified in one batch. No two are the same, because each must use its nonce.
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

fn validated(request: &ValidateRequest, invalid: Option<&'static str>) -> Event {
    Event::Validated {
        view: request.view,
        block: request.block.id(),
        invalid,
    }
}

/// Whether all are signed by their senders. Each comes with the bytes that are signed.
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
