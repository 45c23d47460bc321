//! Building blocks, when this validator leads.

use super::Replica;
use crate::forecast::Outlook;
use crate::validate::MAX_EXECUTION_LAG;
use anyhow::Context;
use commonware_codec::Encode;
use quorate_consensus::BuildRequest;
use quorate_consensus::Input;
use quorate_consensus::Moment;
use quorate_consensus::Outbound;
use quorate_lanes::Lane;
use quorate_lanes::To;
use quorate_types::Block;
use quorate_types::Digest;
use quorate_types::Frame;
use quorate_types::Header;
use quorate_types::Height;
use quorate_types::Message;
use quorate_types::Transaction;
use quorate_types::ValidatorIndex;
use quorate_types::limits::FORWARDED_BYTES;
use quorate_types::limits::MAX_BLOCK_BUNDLE_BYTES;
use std::sync::Arc;
use std::time::Duration;

/// Most transactions sent as a reminder.
const MAX_REMINDED: usize = 100;

/// Own proposals whose time to finality is being measured.
const MAX_TIMED_PROPOSALS: usize = 1_024;

impl Replica {
    pub(super) fn plan_build(&mut self, request: BuildRequest) -> anyhow::Result<()> {
        let interval = u64::try_from(self.config.min_block_interval.as_millis()).unwrap_or(0);
        let earliest = self.parent_time(&request).saturating_add(interval);
        let wait = earliest.saturating_sub(self.wall_ms()).min(interval);
        // What is pending may have changed with the view.
        self.look_for_work()?;
        let due = self.now().after(Duration::from_millis(wait));
        self.build = Some((due, request));
        self.build_if_due()
    }

    /// When a block is to be built: as soon as the current view's leader has nothing left to wait
    /// for.
    pub(super) fn build_due(&self, earliest: Moment) -> Moment {
        let idles_until = self.engine.idles_until(self.now());
        idles_until.map_or(earliest, |until| until.max(earliest))
    }

    pub(super) fn build_if_due(&mut self) -> anyhow::Result<()> {
        let Some((earliest, request)) = &self.build else {
            return Ok(());
        };
        let wanted = (request.epoch, request.view) == (self.engine.epoch(), self.engine.view());
        if wanted && self.build_due(*earliest) > self.now() {
            return Ok(());
        }
        match self.build.take().filter(|_| wanted) {
            Some((_, request)) => self.propose(request),
            None => Ok(()),
        }
    }

    /// Tells the engine whether a block is needed: for waiting transactions, or for executed ones
    /// that cannot be proven yet.
    pub(super) fn look_for_work(&mut self) -> anyhow::Result<()> {
        if self.config.idle_interval.is_zero() {
            return Ok(());
        }
        let executor = &self.around.executor;
        let complete = || self.engine.is_complete(|height| executor.root_at(height));
        let pending = self.around.mempool.runnable() > 0 || !complete();
        let awaits = self.engine.awaits_proposal();
        self.around.live.set_awaits_proposal(awaits);
        if pending == self.pending {
            return Ok(());
        }
        self.pending = pending;
        self.step(Input::Pending(pending))
    }

    /// Sends a leader transactions for its block, in case nobody else has.
    pub(super) fn remind(&self, leader: ValidatorIndex) {
        let Some(identity) = self.config.committees.known().identity(leader) else {
            return;
        };
        let mempool = &self.around.mempool;
        let transactions = mempool.take(MAX_REMINDED, FORWARDED_BYTES, &Outlook::default());
        if !transactions.is_empty() {
            let frame = Frame(vec![Message::Transactions(transactions)]).encode();
            (self.around.wire)(Lane::Transactions, &To::One(identity), frame);
        }
    }

    pub(super) fn propose(&mut self, request: BuildRequest) -> anyhow::Result<()> {
        let view = request.view;
        let block = Arc::new(self.build_block(request)?);
        self.step(Input::Built { view, block })
    }

    pub(super) fn parent_time(&self, request: &BuildRequest) -> u64 {
        let parent = request.parent.as_ref();
        parent.map_or(self.config.genesis_ms, |p| p.header().timestamp_ms)
    }

    pub(super) fn build_block(&self, request: BuildRequest) -> anyhow::Result<Block> {
        let parent = request.parent.as_ref().map(|block| block.header());
        let height = parent.map_or(Height(1), |header| header.height.next());
        let floor = parent.map_or(Height(0), |header| header.executed_height);
        let ours = self.around.executor.executed().borrow().clone();
        let (executed_height, state_root) = match parent {
            Some(header) if ours.height < floor => (header.executed_height, header.state_root),
            _ => (ours.height, ours.state_root),
        };
        let lag = height.0.saturating_sub(executed_height.0);
        let transactions = if lag > MAX_EXECUTION_LAG {
            Vec::new()
        } else {
            self.fill(&request)?
        };
        let header = Header {
            chain: self.config.chain,
            epoch: request.epoch,
            view: request.view,
            height,
            parent: request.parent.as_ref().map_or(Digest::ZERO, |p| p.id()),
            parent_view: request.parent_view,
            timestamp_ms: self.wall_ms().max(self.parent_time(&request) + 1),
            executed_height,
            state_root,
            body_root: Digest::ZERO,
        };
        Block::build(header, transactions).context("the mempool gave too many transactions")
    }

    /// The transactions of a new block; `None` if its ancestors were executed so long ago that
    /// nobody waits for the block any more.
    pub(super) fn fill(&self, request: &BuildRequest) -> anyhow::Result<Vec<Transaction>> {
        let outlook = self.around.forecast.after(&request.unexecuted);
        let Some(outlook) = outlook.context("cannot read an account")? else {
            return Ok(Vec::new());
        };
        let mut taken = self.around.mempool.take(
            self.config.limits.max_transactions,
            self.config.limits.transaction_bytes(),
            &outlook,
        );
        if let Some(payloads) = &self.around.payloads {
            payloads.proposable(&mut taken);
        }
        let mut bytes = 0;
        let mut fits = |transaction: &Transaction| {
            let bundle = self.around.forecast.bundle(transaction.transfer());
            bytes += bundle.map_or(0, |bundle| u64::from(bundle.bytes));
            bytes <= MAX_BLOCK_BUNDLE_BYTES
        };
        let count = taken.iter().take_while(|one| fits(one)).count();
        taken.truncate(count);
        Ok(taken)
    }

    pub(super) fn time_proposals(&mut self, messages: &[Outbound]) {
        let now = self.now();
        for outbound in messages {
            if let Message::Proposal(proposal) = &outbound.message {
                let id = proposal.block.id();
                self.proposed.entry(id).or_insert(now);
                self.timed.push_back(id);
                if self.timed.len() > MAX_TIMED_PROPOSALS
                    && let Some(old) = self.timed.pop_front()
                {
                    self.proposed.remove(&old);
                }
            }
        }
    }
}
