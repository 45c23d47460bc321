//! The executor: the one thread that owns the state.
//!
//! It takes final blocks in order, executes each, and stores the block, the outcomes of its
//! transactions and the new accounts as one batch. All waiting blocks are executed in one go with
//! one sync at the end, so a slow disk costs one sync for many blocks. Nothing is announced about a
//! block before it is durable.
//!
//! Its queue is unbounded, but its input is not: the engine fetches no further blocks while 1,024
//! wait, and new ones come only as fast as the validators agree on them.

mod observed;
mod proofs;
#[cfg(test)]
mod tests;

use crate::{
    accounts::{Accounts, Roots},
    ledger::Rules,
    metrics::NodeMetrics,
    snapshots::SnapshotTaker,
};
use anyhow::{Context, bail};
use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::RwLock;
use quorate_consensus::Finalized;
use quorate_storage::{
    execution::{self, Executed as ExecutedOnTree},
    store::{Commit, Store, Undo},
    tree::{TableRows, Tree},
};
use quorate_types::{
    Account, Block, Bond, Committees, Digest, Epoch, Height, Identity, Outcome, ValidatorSet, View,
};
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{oneshot, watch};

pub(crate) use observed::Observed;
pub use proofs::{AccountProof, ProofRefused};

use proofs::Proofs;

/// Heights whose state roots are kept in memory, for proposers and voters.
const RECENT_ROOTS: u64 = 4_096;

/// Most blocks that share one sync.
const MAX_BLOCKS_PER_SYNC: usize = 64;

/// The newest executed and stored block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executed {
    /// Zero for the genesis state.
    pub height: Height,
    pub id: Digest,
    pub view: View,
    pub state_root: Digest,
    /// The leader's clock when the block was proposed, in milliseconds since 1970; 0 for the
    /// genesis state.
    pub timestamp_ms: u64,
}

/// A block that was executed and is durable.
pub struct ExecutedBlock {
    pub block: Arc<Block>,
    /// The outcome of each transaction.
    pub outcomes: Vec<Outcome>,
    /// The changed accounts with their new values.
    pub accounts: Arc<BTreeMap<Identity, Account>>,
    pub state_root: Digest,
}

/// Returns the height that the slowest of the validators that take part has executed; `None` if no
/// other is known. Validators claim it, so little may depend on it.
pub type Slowest = Box<dyn Fn() -> Option<Height> + Send>;

/// Called for every executed block, in order. It runs on the executor's thread and must be fast.
pub type Observer = Box<dyn Fn(&ExecutedBlock) + Send>;

enum Command {
    Execute(Vec<Finalized>),
    Prove(
        Identity,
        oneshot::Sender<Result<AccountProof, ProofRefused>>,
    ),
    Stop,
}

/// Bytes of the database's files, and the height below which it is pruned.
type Disk = Arc<RwLock<(u64, Height)>>;

/// How often the database is measured.
const MEASURE_INTERVAL: Duration = Duration::from_secs(1);

/// A handle to the executor. Cheap to clone; any thread may use it.
#[derive(Clone)]
pub struct ExecutorHandle {
    commands: Sender<Command>,
    executed: watch::Receiver<Executed>,
    roots: Roots,
    disk: Disk,
}

impl ExecutorHandle {
    /// Hands over final blocks, ascending and without a gap.
    pub fn submit(&self, blocks: Vec<Finalized>) {
        // If the thread has ended, that was reported, and the node is stopping.
        let _ = self.commands.send(Command::Execute(blocks));
    }

    /// The newest executed block, which can be watched.
    pub fn executed(&self) -> watch::Receiver<Executed> {
        self.executed.clone()
    }

    /// The root of the accounts after the block at a height, if it is one of the last 4,096.
    pub fn root_at(&self, height: Height) -> Option<Digest> {
        self.roots.read().get(&height).copied()
    }

    /// Requests an account with a proof that verifies offline. The answer comes with one of the
    /// next final blocks that names the proven state.
    pub fn prove(
        &self,
        identity: Identity,
    ) -> oneshot::Receiver<Result<AccountProof, ProofRefused>> {
        let (answer, receiver) = oneshot::channel();
        let _ = self.commands.send(Command::Prove(identity, answer));
        receiver
    }

    /// The approximate size of the database on disk in bytes, and the height below which it is
    /// pruned, both as of the last second in which blocks were executed.
    pub fn disk(&self) -> (u64, Height) {
        *self.disk.read()
    }

    /// Ends the thread once it has executed what was handed over.
    pub fn stop(&self) {
        let _ = self.commands.send(Command::Stop);
    }
}

/// Owns the state and executes blocks.
pub struct Executor {
    store: Store,
    accounts: Accounts,
    tree: Tree<TableRows>,
    committees: Committees,
    rules: Rules,
    /// Sets of validators that blocks have decided on, but perhaps not durably.
    decided: Vec<ValidatorSet>,
    /// Epochs that are executed, but perhaps not durably, and the bonds after them.
    closed: Vec<(Epoch, BTreeMap<Identity, Bond>)>,
    commands: Receiver<Command>,
    news: watch::Sender<Executed>,
    roots: Roots,
    proofs: Proofs,
    taker: SnapshotTaker,
    observer: Observer,
    slowest: Slowest,
    /// Which blocks are kept; `None` for all.
    retention: Option<Retention>,
    pruned: Height,
    /// The newest block's timestamp when old blocks were last pruned.
    pruned_at_ms: u64,
    disk: Disk,
    measured: Instant,
    metrics: Arc<NodeMetrics>,
}

/// Which blocks are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// At least this many of the newest.
    pub blocks: u64,
    /// And those that are at most this much older than the newest one.
    pub time: Option<Duration>,
}

/// Blocks pruned for each executed one, and some more, so that a lowered retention is reached.
const PRUNED_PER_EXECUTED: u64 = 2;

/// Blocks pruned per second: blocks of a busy time grow old while the chain is idle.
const PRUNED_PER_SECOND: u64 = 1_000;

/// Rows per call of the database, since blocks may be full.
const MAX_PRUNE_CALLS: usize = 8;

impl Executor {
    /// An executor that continues from the store's tip, and its handle. [`Executor::run`] is for a
    /// thread of its own.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    pub(crate) fn new(
        accounts: Accounts,
        (store, tree): (Store, Tree<TableRows>),
        taker: SnapshotTaker,
        (committees, rules): (Committees, Rules),
        retention: Option<Retention>,
        (observer, slowest): (Observer, Slowest),
        metrics: Arc<NodeMetrics>,
    ) -> anyhow::Result<(Self, ExecutorHandle)> {
        if rules.registry().is_some() {
            store.keep_handover(rules.epoch_length())?;
        }
        taker.starts(&store)?;
        let tip = store.tip();
        let roots = accounts.roots(RECENT_ROOTS)?;
        let pruned = store.pruned_below()?;
        let disk: Disk = Arc::new(RwLock::new((store.bytes(), pruned)));
        let tip_ms = tip
            .block
            .as_ref()
            .map_or(0, |block| block.header().timestamp_ms);
        let (news, executed) = watch::channel(Executed {
            height: tip.height,
            id: tip.id,
            view: tip.view,
            state_root: tip.state_root,
            timestamp_ms: tip_ms,
        });
        let (sender, commands) = unbounded();
        let handle = ExecutorHandle {
            commands: sender,
            executed,
            roots: roots.clone(),
            disk: disk.clone(),
        };
        let executor = Self {
            pruned,
            pruned_at_ms: tip_ms,
            measured: Instant::now(),
            disk,
            retention,
            accounts,
            store,
            tree,
            committees,
            rules,
            decided: Vec::new(),
            closed: Vec::new(),
            commands,
            news,
            roots,
            proofs: Proofs::default(),
            taker,
            observer,
            slowest,
            metrics,
        };
        Ok((executor, handle))
    }

    /// Executes blocks until it is told to stop.
    ///
    /// # Errors
    ///
    /// If the database fails, or if this validator's state differs from the one that a quorum
    /// agreed on.
    pub fn run(mut self) -> anyhow::Result<()> {
        while let Ok(command) = self.commands.recv() {
            if !self.run_commands(command)? {
                break;
            }
        }
        Ok(())
    }

    /// Whether commands wait.
    pub fn has_work(&self) -> bool {
        !self.commands.is_empty()
    }

    /// Executes the waiting commands and returns.
    ///
    /// # Errors
    ///
    /// As for [`Self::run`].
    pub fn run_waiting(&mut self) -> anyhow::Result<()> {
        while let Ok(command) = self.commands.try_recv() {
            self.run_commands(command)?;
        }
        Ok(())
    }

    /// Executes a command together with those that wait behind it. Returns whether to go on.
    fn run_commands(&mut self, first: Command) -> anyhow::Result<bool> {
        let mut blocks = Vec::new();
        let mut next = Some(first);
        while let Some(command) = next {
            match command {
                Command::Execute(more) => blocks.extend(more),
                Command::Prove(identity, answer) => {
                    self.proofs.ask(&self.tree, identity, answer)?;
                }
                Command::Stop => {
                    self.execute(blocks)?;
                    return Ok(false);
                }
            }
            next = if blocks.len() < MAX_BLOCKS_PER_SYNC {
                self.commands.try_recv().ok()
            } else {
                None
            };
        }
        self.execute(blocks)?;
        Ok(true)
    }

    fn execute(&mut self, blocks: Vec<Finalized>) -> anyhow::Result<()> {
        let mut done = Vec::with_capacity(blocks.len());
        let count = blocks.len();
        for (place, finalized) in blocks.into_iter().enumerate() {
            let sync = place + 1 == count || (place + 1) % MAX_BLOCKS_PER_SYNC == 0;
            let height = finalized.block.height();
            if height <= self.store.tip().height {
                continue;
            }
            let executed = self
                .execute_one(finalized, sync)
                .with_context(|| format!("cannot execute block {height}"))?;
            done.push(executed);
            if sync {
                self.metrics.database_syncs.inc();
                self.publish(std::mem::take(&mut done))?;
            }
        }
        self.publish(done)
    }

    fn execute_one(
        &mut self,
        finalized: Finalized,
        sync: bool,
    ) -> anyhow::Result<(ExecutedBlock, Finalized)> {
        let block = finalized.block.clone();
        let header = block.header();
        if let Some(ours) = self.roots.read().get(&header.executed_height)
            && *ours != header.state_root
        {
            bail!(
                "state root mismatch at height {}: ours is {ours}, the final header of block {} \
                 says {}; this validator's state has diverged and must be rebuilt from an empty \
                 data directory",
                header.executed_height,
                header.height,
                header.state_root
            );
        }
        let ExecutedOnTree {
            execution,
            absent,
            decision,
            changes,
        } = execution::execute(&self.tree, &block, &self.committees, &self.rules, || {
            self.store.bonds()
        })?;
        let undo = Undo::of(&execution.before, &absent);
        self.accounts.will_change(block.height(), execution.before);
        let news = decision
            .as_ref()
            .filter(|decision| decision.is_news(&self.committees));
        self.store.commit(
            &self.tree,
            Commit {
                block: block.clone(),
                certificate: finalized.certificate.clone(),
                outcomes: execution.outcomes.clone(),
                accounts: &execution.accounts,
                undo,
                set: news.map(|decision| &decision.set),
                changes: &changes,
                sync,
            },
        )?;
        let state_root = changes.root();
        self.tree.commit(changes);
        self.taker.executed(&self.store, &finalized)?;
        self.remember(block.height(), state_root);
        self.decided.extend(decision.map(|decision| decision.set));
        if self.rules.ends_epoch(header) {
            self.store.keep_handover(self.rules.epoch_length())?;
            self.closed.push((header.epoch, self.store.bonds()?));
        }
        let executed = ExecutedBlock {
            accounts: Arc::new(execution.accounts),
            outcomes: execution.outcomes,
            state_root,
            block,
        };
        Ok((executed, finalized))
    }

    fn remember(&self, height: Height, root: Digest) {
        let mut roots = self.roots.write();
        roots.insert(height, root);
        while roots.len() as u64 > RECENT_ROOTS {
            roots.pop_first();
        }
    }

    /// Announces blocks that are durable, and answers requests for proofs.
    fn publish(&mut self, blocks: Vec<(ExecutedBlock, Finalized)>) -> anyhow::Result<()> {
        let Some((last, _)) = blocks.last() else {
            return Ok(());
        };
        let newest = Executed {
            height: last.block.height(),
            id: last.block.id(),
            view: last.block.header().view,
            state_root: last.state_root,
            timestamp_ms: last.block.header().timestamp_ms,
        };
        for set in self.decided.drain(..) {
            self.committees.decide(set);
        }
        for (epoch, bonds) in self.closed.drain(..) {
            self.committees.close(epoch, &bonds);
        }
        for (executed, finalized) in &blocks {
            self.proofs.settle(finalized);
            (self.observer)(executed);
        }
        let finalized = blocks.iter().map(|(_, finalized)| finalized);
        self.proofs.executed(finalized, newest.state_root);
        self.proofs.prove(&self.tree)?;
        let newest_ms = newest.timestamp_ms;
        self.news.send_replace(newest);
        self.prune(blocks.len() as u64, newest_ms)?;
        if self.measured.elapsed() >= MEASURE_INTERVAL {
            self.measured = Instant::now();
            let snapshots = self.taker.count();
            self.metrics.sync.snapshots.set(snapshots as i64);
            *self.disk.write() = (self.store.bytes(), self.pruned);
        }
        Ok(())
    }

    /// Prunes about as many old blocks as new ones have come and as time has passed, so that
    /// pruning keeps up under any load and never delays execution for long.
    ///
    /// The age of a block follows from the chain's own timestamps. They are those of leaders'
    /// clocks, rise from block to block, and are at most some seconds ahead of a quorum's clocks.
    /// This machine's clock, which may be off by years, makes no block old.
    fn prune(&mut self, executed: u64, newest_ms: u64) -> anyhow::Result<()> {
        let Some(Retention { blocks, time }) = self.retention else {
            return Ok(());
        };
        let keep_from = (self.store.tip().height.0 + 1).saturating_sub(blocks);
        // A receiver continues from the snapshot's block.
        let keep_from = keep_from.min(self.taker.oldest().map_or(u64::MAX, |height| height.0));
        // A validator that is catching up finds what it lacks. What it claims costs at most as many
        // blocks again.
        let lacks = (self.slowest)().map_or(u64::MAX, |height| height.0.saturating_add(1));
        let keep_from = keep_from.min(lacks.max(keep_from.saturating_sub(blocks)));
        let before_ms = time.map_or(u64::MAX, |time| {
            let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            newest_ms.saturating_sub(time)
        });
        let gone_by_ms = newest_ms.saturating_sub(self.pruned_at_ms).min(1_000);
        self.pruned_at_ms = newest_ms;
        let mut left = PRUNED_PER_EXECUTED * executed + 1 + PRUNED_PER_SECOND * gone_by_ms / 1_000;
        for _ in 0..MAX_PRUNE_CALLS {
            if left == 0 || self.pruned.0 >= keep_from {
                break;
            }
            let before = self.pruned;
            self.pruned = self
                .store
                .prune_older(Height(keep_from), before_ms, left)
                .context("cannot prune old blocks")?;
            if self.pruned == before {
                break;
            }
            left = left.saturating_sub(self.pruned.0 - before.0);
        }
        Ok(())
    }
}
