//! Checking outcomes by executing the final blocks from the genesis accounts.
//!
//! A block does not contain the outcomes of its transactions; validators report them. But a final
//! header contains the root of the accounts' state after an earlier block. So whoever has the
//! genesis file, whose hash is the chain id, can execute every block and compare each state root in
//! a header. Outcomes count as checked up to the newest executed block whose state a final header
//! has confirmed. An outcome that a validator reported differently is replaced, counted and logged.
//!
//! On a chain with a registry the state also says who validates. The validators of each epoch are then computed
//! here as a validator computes them, and compared with those that handovers prove.
//!
//! If a root or a set of validators differs, this program and a quorum do not agree on the rules, or the index is
//! damaged: checking stops there, and the log and the status say so. Outcomes of later blocks remain as
//! reported by a validator.

mod registry;

pub(crate) use registry::RegistryState;

use crate::{
    hub::Hub,
    index::{Index, IndexError},
    shapes::{Number, OutcomeChecks},
    task::blocking,
    verify::Guard,
};
use parking_lot::Mutex;
use quorate_storage::{
    database::Batch,
    execution,
    store::tree_updates,
    tree::{TableRows, Tree},
};
use quorate_types::{
    Account, Committees, Header, Height, Identity, execution::Rules, genesis::Genesis,
};
use registry::{Registry, stage_first};
use std::{collections::BTreeMap, convert::Infallible, fmt::Display, sync::Arc, time::Duration};
use tracing::{error, info, warn};

/// Number of blocks executed before other tasks may use the thread.
const BLOCKS_AT_A_TIME: u64 = 64;

/// Number of remembered state roots; headers refer to more recent states.
const ROOTS: u64 = 4_096;

/// How long to wait before looking for new blocks if none is announced.
const PAUSE: Duration = Duration::from_millis(500);

/// Column family for the progress of the execution, and its keys.
pub(crate) const CHECKED: &str = "checked";
const EXECUTED: &[u8] = b"executed";
const CONFIRMED: &[u8] = b"confirmed";
const ACCOUNTS: &[u8] = b"accounts";
const CORRECTED: &[u8] = b"corrected";

/// Column family of the accounts' state.
pub(crate) const STATE: &str = "state";

/// How far outcomes have been checked.
#[derive(Default)]
pub struct Progress {
    known: Mutex<Known>,
    /// After the newest executed block, on a chain with a registry.
    registry: Mutex<Option<Arc<RegistryState>>>,
}

#[derive(Clone, Copy, Default)]
struct Known {
    is_checking: bool,
    diverged: Option<(Height, Divergence)>,
    executed: Height,
    confirmed: Height,
    accounts: u64,
    supply: u64,
    corrected: u64,
}

/// What this program and a quorum do not agree on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Divergence {
    StateRoot,
    Validators,
}

impl Divergence {
    fn name(self) -> &'static str {
        match self {
            Self::StateRoot => "state_root",
            Self::Validators => "validators",
        }
    }
}

/// Why this explorer cannot tell the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotTold {
    /// Blocks are not executed here.
    NotExecuted,
    /// This explorer's state is not the one that final headers name, from this height on.
    Diverged(Height),
}

impl Progress {
    /// The registry after the newest executed block, and the height to which final headers confirm the state.
    pub(crate) fn registry(&self) -> Result<(Arc<RegistryState>, Height), NotTold> {
        let known = *self.known.lock();
        if let Some((height, _)) = known.diverged {
            return Err(NotTold::Diverged(height));
        }
        let state = self.registry.lock().clone();
        let state = state.filter(|_| known.is_checking);
        Ok((state.ok_or(NotTold::NotExecuted)?, known.confirmed))
    }

    /// Whether the outcomes of the block at a height were executed here and confirmed.
    pub fn is_checked(&self, height: Height) -> bool {
        let known = self.known.lock();
        height <= known.confirmed
    }

    /// The form shown in the status.
    pub(crate) fn shown(&self) -> OutcomeChecks {
        let known = *self.known.lock();
        let state = match (known.diverged, known.is_checking) {
            (Some(_), _) => "diverged",
            (None, true) => "executed",
            (None, false) => "told",
        };
        OutcomeChecks {
            state: state.to_owned(),
            checked_to: Number(known.confirmed.0),
            corrected: Number(known.corrected),
            diverged_at: known.diverged.map(|(height, _)| Number(height.0)),
            diverged_by: known.diverged.map(|(_, by)| by.name().to_owned()),
        }
    }

    /// The number of accounts after the newest executed block, and the sum of all balances and stakes.
    pub(crate) fn totals(&self) -> Option<(u64, u64)> {
        let known = self.known.lock();
        known.is_checking.then_some((known.accounts, known.supply))
    }
}

/// Executes the blocks in the index.
pub(crate) struct Checker {
    guard: Arc<Guard>,
    index: Index,
    progress: Arc<Progress>,
    tree: Tree<TableRows>,
    rules: Rules,
    /// Who validates in which epoch, by the genesis file and the executed blocks alone.
    committees: Committees,
    registry: Option<Registry>,
}

#[derive(PartialEq, Eq)]
enum Step {
    More,
    Wait,
    Never,
}

impl Checker {
    /// Continues from the stored progress, or starts with the genesis accounts.
    pub(crate) fn open(
        guard: Arc<Guard>,
        index: Index,
        genesis: &Genesis,
        progress: Arc<Progress>,
    ) -> Result<Self, IndexError> {
        let rows = TableRows::new(index.database(), STATE);
        let tree = Tree::open(rows).map_err(|error| broken(&index, &error))?;
        let no_genesis = || index.damaged("the genesis file");
        let committee = genesis.committee().map_err(|_| no_genesis())?;
        let mut checker = Self {
            guard,
            index: index.clone(),
            progress,
            tree,
            rules: Rules::of(genesis),
            committees: Committees::fixed(committee),
            registry: None,
        };
        if index.get(CHECKED, EXECUTED)?.is_none() {
            let accounts = genesis.initial_accounts();
            checker.begin(&accounts.map_err(|_| no_genesis())?)?;
        }
        let executed = Height(index.count(CHECKED, EXECUTED)?);
        checker.registry = Registry::open(&index, genesis, executed)?;
        if let Some(registry) = &checker.registry {
            checker.committees = registry.committees.clone();
            checker.rules = checker.rules.knowing(&checker.committees);
        }
        let known = Known {
            is_checking: true,
            diverged: None,
            executed,
            confirmed: Height(checker.index.count(CHECKED, CONFIRMED)?),
            accounts: checker.index.count(CHECKED, ACCOUNTS)?,
            supply: genesis.supply(),
            corrected: checker.index.count(CHECKED, CORRECTED)?,
        };
        *checker.progress.known.lock() = known;
        checker.show_registry(executed);
        Ok(checker)
    }

    fn begin(&mut self, accounts: &BTreeMap<Identity, Account>) -> Result<(), IndexError> {
        let changes = self.tree.prepare(&tree_updates(accounts));
        let changes = changes.map_err(|error| broken(&self.index, &error))?;
        let mut batch = Batch::default();
        self.tree.store().stage(&changes, &mut batch);
        stage_first(accounts, &mut batch);
        batch.put(CHECKED, EXECUTED, 0_u64.to_be_bytes());
        let count = accounts.len() as u64;
        batch.put(CHECKED, ACCOUNTS, count.to_be_bytes());
        batch.put(CHECKED, root_key(Height(0)), changes.root());
        self.index.write(&batch)?;
        self.tree.commit(changes);
        Ok(())
    }

    /// Executes blocks as they arrive, forever.
    ///
    /// # Errors
    ///
    /// If the index fails.
    pub(crate) async fn run(mut self, hub: Arc<Hub>) -> Result<Infallible, IndexError> {
        let mut tip = hub.tip();
        loop {
            let (checker, step) = blocking(move || {
                let step = self.some();
                (self, step)
            })
            .await;
            self = checker;
            match step? {
                Step::More => {}
                Step::Wait => {
                    // The index's tip may change before the hub announces it, hence the timeout.
                    let _ = tokio::time::timeout(PAUSE, tip.changed()).await;
                }
                Step::Never => std::future::pending::<()>().await,
            }
        }
    }

    fn some(&mut self) -> Result<Step, IndexError> {
        for _ in 0..BLOCKS_AT_A_TIME {
            let step = self.one()?;
            if step != Step::More {
                return Ok(step);
            }
        }
        Ok(Step::More)
    }

    fn one(&mut self) -> Result<Step, IndexError> {
        let known = *self.progress.known.lock();
        let height = known.executed.next();
        let Some(extent) = self.index.extent().filter(|e| e.tip.height >= height) else {
            return Ok(Step::Wait);
        };
        let Some(block) = self.index.block(height)? else {
            warn!(
                %height, history_begins_at = %extent.oldest,
                "outcomes are told by validators, not checked: this block is not in the index"
            );
            self.progress.known.lock().is_checking = false;
            return Ok(Step::Never);
        };
        let header = *block.header();
        let ours = self.index.get(CHECKED, &root_key(header.executed_height))?;
        let is_confirmed = ours.as_deref() == Some(&header.state_root.0);
        let differs = ours.is_some() && !is_confirmed;
        if let Some(by) = self.divergence(&header, differs) {
            self.progress.known.lock().diverged = Some((height, by));
            return Ok(Step::Never);
        }
        let registry = self.registry.as_ref();
        let bonds = || Ok(registry.map(Registry::bonds).unwrap_or_default());
        let done = execution::execute(&self.tree, &block, &self.committees, &self.rules, bonds);
        let done = done.map_err(|error| broken(&self.index, &error))?;
        let outcomes = &done.execution.outcomes;
        let told = self.index.outcomes(height)?;
        let wrong = told.iter().zip(outcomes).filter(|(a, b)| a != b);
        let wrong = wrong.count() as u64;
        let accounts = &done.execution.accounts;
        let added = done.absent.iter().filter(|one| accounts.contains_key(one));
        let added = added.count() as u64;
        let next = Known {
            executed: height,
            confirmed: if is_confirmed {
                known.confirmed.max(header.executed_height)
            } else {
                known.confirmed
            },
            accounts: known.accounts + added,
            corrected: known.corrected + wrong,
            ..known
        };
        let mut batch = Batch::default();
        self.tree.store().stage(&done.changes, &mut batch);
        let change = self.registry.as_ref().map(|registry| {
            let change = registry.change(&block, &done);
            registry.stage(&change, done.decision.as_ref(), &mut batch);
            change
        });
        if wrong > 0 {
            warn!(%height, transactions = wrong, "a validator told wrong outcomes of this block");
            self.index.stage_outcomes(height, outcomes, &mut batch);
        }
        batch.put(CHECKED, EXECUTED, height.0.to_be_bytes());
        batch.put(CHECKED, CONFIRMED, next.confirmed.0.to_be_bytes());
        batch.put(CHECKED, ACCOUNTS, next.accounts.to_be_bytes());
        batch.put(CHECKED, CORRECTED, next.corrected.to_be_bytes());
        batch.put(CHECKED, root_key(height), done.changes.root());
        if let Some(old) = height.0.checked_sub(ROOTS) {
            batch.delete(CHECKED, root_key(Height(old)));
        }
        self.index.write(&batch)?;
        self.tree.commit(done.changes);
        if let Some((registry, change)) = self.registry.as_mut().zip(change) {
            registry.take(change);
        }
        *self.progress.known.lock() = next;
        self.show_registry(height);
        if height.0.is_multiple_of(10_000) {
            info!(%height, "outcomes are checked");
        }
        Ok(Step::More)
    }

    /// What a final header or a handover contradicts of what executing the blocks before it leads to. `differs` says
    /// whether the header names another state root.
    fn divergence(&mut self, header: &Header, differs: bool) -> Option<Divergence> {
        let height = header.height;
        if differs {
            error!(
                %height, executed_height = %header.executed_height, said = %header.state_root,
                "a final header names another state than executing the blocks leads to: outcomes \
                 are not checked from here on"
            );
            return Some(Divergence::StateRoot);
        }
        let registry = self.registry.as_mut()?;
        if !self.rules.epoch_length().is_last(Height(height.0 - 1)) {
            return None;
        }
        let proven = self.guard.verifier().committees();
        let trusted = self.guard.trust().epoch;
        let epoch = registry.disagrees(proven, trusted, header.epoch)?;
        error!(
            %height, %epoch,
            "a handover proves other validators of this epoch than executing the blocks leads to: \
             outcomes are not checked from here on"
        );
        Some(Divergence::Validators)
    }

    fn show_registry(&self, executed: Height) {
        if let Some(registry) = &self.registry {
            *self.progress.registry.lock() = registry.state(executed).map(Arc::new);
        }
    }
}

fn root_key(height: Height) -> Vec<u8> {
    [b"root:".as_slice(), &height.0.to_be_bytes()].concat()
}

fn broken(index: &Index, error: &dyn Display) -> IndexError {
    index.damaged(&format!("the accounts' state: {error}"))
}
