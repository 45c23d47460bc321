//! The executor: the one thread that owns the state.
//!
//! It takes finalised blocks in order, executes each, and stores the block, what became of its
//! transactions and the new accounts as one batch. All blocks that wait are done in one go with
//! one sync at the end, so a slow disk costs one sync for many blocks; nobody is told of a block
//! before it is durable.
//!
//! The queue to it is unbounded, but what goes in is not: the machine fetches no further blocks
//! while 1,024 wait, and new ones come only as fast as the validators agree on them.

mod proofs;
#[cfg(test)]
mod tests;

use crate::{accounts::Accounts, ledger, metrics::NodeMetrics};
use anyhow::{Context, bail};
use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::RwLock;
use quorate_consensus::Finalized;
use quorate_crypto::mistakes::{Mistake, made};
use quorate_storage::{
    store::{Commit, Store, tree_updates},
    tree::{TableRows, Tree},
};
use quorate_types::{
    Account, Block, Committee, Digest, Height, Identity, Outcome, View, state_key,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{oneshot, watch};

pub use proofs::{AccountProof, ProofRefused};

use commonware_codec::DecodeExt;
use proofs::Proofs;

/// Heights whose state roots are kept at hand, for proposers and voters.
const RECENT_ROOTS: u64 = 4_096;

/// Blocks that share one sync at most.
const MAX_BLOCKS_PER_SYNC: usize = 64;

/// The newest executed and stored block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executed {
    /// Its height; 0 for the genesis state.
    pub height: Height,
    /// Its id.
    pub id: Digest,
    /// The view that it was proposed in.
    pub view: View,
    /// The root of the accounts after it.
    pub state_root: Digest,
    /// The leader's clock when it was proposed, in milliseconds since 1970; 0 for the genesis
    /// state.
    pub timestamp_ms: u64,
}

/// A block that has just been executed and is durable.
pub struct ExecutedBlock {
    /// The block.
    pub block: Arc<Block>,
    /// What became of each transaction.
    pub outcomes: Vec<Outcome>,
    /// The accounts that it changed, with their new values.
    pub accounts: Arc<BTreeMap<Identity, Account>>,
    /// The root of the accounts after it.
    pub state_root: Digest,
}

/// What is told of every executed block, in order. It runs on the executor's thread and must be
/// quick.
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

type Roots = Arc<RwLock<BTreeMap<Height, Digest>>>;

/// The executor from outside. Cheap to clone; any thread may use it.
#[derive(Clone)]
pub struct ExecutorHandle {
    commands: Sender<Command>,
    executed: watch::Receiver<Executed>,
    roots: Roots,
    disk: Disk,
}

impl ExecutorHandle {
    /// Hands over finalised blocks, ascending and without a gap.
    pub fn submit(&self, blocks: Vec<Finalized>) {
        // If the thread is gone, its end has been reported, and the node is stopping.
        let _ = self.commands.send(Command::Execute(blocks));
    }

    /// The newest executed block, and word of each newer one.
    pub fn executed(&self) -> watch::Receiver<Executed> {
        self.executed.clone()
    }

    /// The root of the accounts after the block at a height, if it is one of the last 4,096.
    pub fn root_at(&self, height: Height) -> Option<Digest> {
        self.roots.read().get(&height).copied()
    }

    /// Asks for an account with a proof that verifies offline. The answer comes with one of the
    /// next finalised blocks, which names the proven state.
    pub fn prove(
        &self,
        identity: Identity,
    ) -> oneshot::Receiver<Result<AccountProof, ProofRefused>> {
        let (answer, receiver) = oneshot::channel();
        let _ = self.commands.send(Command::Prove(identity, answer));
        receiver
    }

    /// About how many bytes the database has on disk, and the height below which it is pruned, as
    /// of the last second in which blocks were executed.
    pub fn disk(&self) -> (u64, Height) {
        *self.disk.read()
    }

    /// Ends the thread once it has done what was handed over.
    pub fn stop(&self) {
        let _ = self.commands.send(Command::Stop);
    }
}

/// The executor's own side.
pub struct Executor {
    store: Store,
    accounts: Accounts,
    tree: Tree<TableRows>,
    committee: Committee,
    commands: Receiver<Command>,
    news: watch::Sender<Executed>,
    roots: Roots,
    proofs: Proofs,
    observer: Observer,
    /// What is kept; `None` for all.
    retention: Option<Retention>,
    pruned: Height,
    /// The timestamp of the newest block when old ones were last forgotten.
    pruned_at_ms: u64,
    disk: Disk,
    measured: Instant,
    metrics: Arc<NodeMetrics>,
}

/// Which blocks are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// So many of the newest in any case.
    pub blocks: u64,
    /// And those that are no older than the newest one by more than this.
    pub time: Option<Duration>,
}

/// Pruned blocks for each executed one, so that a retention that was lowered is reached, and a few
/// beside.
const PRUNED_PER_EXECUTED: u64 = 2;

/// And for each second that goes by: blocks of a busy time grow old while the chain is idle.
const PRUNED_PER_SECOND: u64 = 1_000;

/// Calls of the database in one go, each for so many rows: blocks may be full.
const MAX_PRUNE_CALLS: usize = 8;

impl Executor {
    /// An executor that goes on from the store's tip, and its handle. [`Executor::run`] is for a
    /// thread of its own.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    pub fn new(
        accounts: Accounts,
        store: Store,
        tree: Tree<TableRows>,
        committee: Committee,
        retention: Option<Retention>,
        observer: Observer,
        metrics: Arc<NodeMetrics>,
    ) -> anyhow::Result<(Self, ExecutorHandle)> {
        let tip = store.tip();
        let mut roots = BTreeMap::new();
        let oldest = tip.height.0.saturating_sub(RECENT_ROOTS - 1);
        for height in (oldest..=tip.height.0).map(Height) {
            roots.extend(store.root(height)?.map(|root| (height, root)));
        }
        let roots: Roots = Arc::new(RwLock::new(roots));
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
            committee,
            commands,
            news,
            roots,
            proofs: Proofs::default(),
            observer,
            metrics,
        };
        Ok((executor, handle))
    }

    /// Executes what is handed over until it is told to stop.
    ///
    /// # Errors
    ///
    /// If the database fails, or this validator's state is not the one that a quorum has agreed
    /// on.
    pub fn run(mut self) -> anyhow::Result<()> {
        while let Ok(command) = self.commands.recv() {
            if !self.obey(command)? {
                break;
            }
        }
        Ok(())
    }

    /// Whether something has been handed over.
    pub fn has_work(&self) -> bool {
        !self.commands.is_empty()
    }

    /// Does what has been handed over, without waiting for more.
    ///
    /// # Errors
    ///
    /// As for [`Self::run`].
    pub fn run_waiting(&mut self) -> anyhow::Result<()> {
        while let Ok(command) = self.commands.try_recv() {
            self.obey(command)?;
        }
        Ok(())
    }

    /// Obeys a command together with those that wait behind it. Returns whether to go on.
    fn obey(&mut self, first: Command) -> anyhow::Result<bool> {
        let mut blocks = Vec::new();
        let mut next = Some(first);
        while let Some(command) = next {
            match command {
                Command::Execute(more) => blocks.extend(more),
                Command::Prove(identity, answer) => {
                    self.proofs.ask(identity, answer);
                    self.proofs.answer_at_once(&self.tree)?;
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
            let sync = (place + 1 == count || (place + 1) % MAX_BLOCKS_PER_SYNC == 0)
                && !made(Mistake::BlockToldBeforeSync);
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
        let leader = self
            .committee
            .identity(self.committee.leader_in(header.epoch, header.view))
            .context("every view has a leader")?;
        let touched = ledger::touched(&block, &leader);
        let keys: BTreeSet<_> = touched.iter().map(|id| state_key(id).0).collect();
        let loaded = self.tree.load(&keys)?;
        let mut before = BTreeMap::new();
        for identity in touched {
            let value = self.tree.get_loaded(&loaded, &state_key(&identity).0)?;
            before.insert(identity, decode_account(value.as_deref())?);
        }
        let execution = ledger::execute(&block, &leader, before);
        self.accounts.will_change(block.height(), execution.before);
        let changes = self
            .tree
            .prepare_loaded(loaded, &tree_updates(&execution.accounts))?;
        self.store.commit(
            &self.tree,
            Commit {
                block: block.clone(),
                certificate: finalized.certificate.clone(),
                outcomes: execution.outcomes.clone(),
                accounts: &execution.accounts,
                changes: &changes,
                sync,
            },
        )?;
        let state_root = changes.root();
        self.tree.commit(changes);
        self.remember(block.height(), state_root);
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

    /// Tells of blocks that are durable, and answers requests for proofs.
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
        for (executed, finalized) in &blocks {
            self.proofs.settle(finalized);
            (self.observer)(executed);
        }
        let finalized = blocks.iter().map(|(_, finalized)| finalized);
        self.proofs.executed(finalized, newest.state_root);
        self.proofs.prove(&self.tree, newest.height)?;
        let newest_ms = newest.timestamp_ms;
        self.news.send_replace(newest);
        self.prune(blocks.len() as u64, newest_ms)?;
        if self.measured.elapsed() >= MEASURE_INTERVAL {
            self.measured = Instant::now();
            *self.disk.write() = (self.store.bytes(), self.pruned);
        }
        Ok(())
    }

    /// Forgets old blocks, about as many as new ones have come and as time has gone by, so that pruning
    /// keeps up whatever the load is, and never holds up execution for long.
    ///
    /// How old a block is, the chain's own timestamps tell: they are those of leaders' clocks, rise from block
    /// to block, and are no more than some seconds ahead of a quorum's. This machine's clock, which may be
    /// off by years, makes nothing old.
    fn prune(&mut self, executed: u64, newest_ms: u64) -> anyhow::Result<()> {
        let Some(Retention { blocks, time }) = self.retention else {
            return Ok(());
        };
        let keep_from = (self.store.tip().height.0 + 1).saturating_sub(blocks);
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

fn decode_account(bytes: Option<&[u8]>) -> anyhow::Result<Account> {
    bytes.map_or(Ok(Account::default()), |bytes| {
        Account::decode(commonware_codec::Copying(bytes)).context("an account is damaged")
    })
}
