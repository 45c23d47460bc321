//! Checking outcomes by executing the final blocks from the genesis accounts.
//!
//! A block does not contain the outcomes of its transactions; validators report them. But a final
//! header contains the root of the accounts' state after an earlier block. So whoever has the
//! genesis file, whose hash is the chain id, can execute every block and compare each state root in
//! a header. Outcomes count as checked up to the newest executed block whose state a final header
//! has confirmed. An outcome that a validator reported differently is replaced, counted and logged.
//!
//! If a root differs, this program and a quorum do not agree on the rules, or the index is damaged:
//! checking stops there, and the log and the status say so. Outcomes of later blocks remain as
//! reported by a validator.

use crate::{
    hub::Hub,
    index::{Index, IndexError},
    shapes::{Number, OutcomeChecks},
    task::blocking,
    verify::Guard,
};
use commonware_codec::{Copying, DecodeExt, Encode};
use parking_lot::Mutex;
use quorate_storage::{
    database::Batch,
    tree::{TableRows, Tree, TreeError},
};
use quorate_types::{
    Account, Height, Identity,
    execution::{self, Rules},
    genesis::Genesis,
    state_key,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::Arc,
    time::Duration,
};
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
}

#[derive(Clone, Copy, Default)]
struct Known {
    is_checking: bool,
    diverged: Option<Height>,
    executed: Height,
    confirmed: Height,
    accounts: u64,
    supply: u64,
    corrected: u64,
}

impl Progress {
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
            diverged_at: known.diverged.map(|height| Number(height.0)),
        }
    }

    /// The number of accounts after the newest executed block, and the sum of all balances.
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
        let mut checker = Self {
            guard,
            index,
            progress,
            tree,
            rules: Rules::of(genesis),
        };
        if checker.index.get(CHECKED, EXECUTED)?.is_none() {
            let accounts = genesis.initial_accounts();
            checker.begin(&accounts.map_err(|_| checker.index.damaged("the genesis file"))?)?;
        }
        let known = Known {
            is_checking: true,
            diverged: None,
            executed: Height(checker.index.count(CHECKED, EXECUTED)?),
            confirmed: Height(checker.index.count(CHECKED, CONFIRMED)?),
            accounts: checker.index.count(CHECKED, ACCOUNTS)?,
            supply: genesis.supply(),
            corrected: checker.index.count(CHECKED, CORRECTED)?,
        };
        *checker.progress.known.lock() = known;
        Ok(checker)
    }

    fn begin(&mut self, accounts: &BTreeMap<Identity, Account>) -> Result<(), IndexError> {
        let updates: BTreeMap<_, _> = accounts
            .iter()
            .map(|(identity, account)| (state_key(identity).0, account.encode().to_vec()))
            .collect();
        let changes = self.tree.prepare(&updates);
        let changes = changes.map_err(|error| broken(&self.index, &error))?;
        let mut batch = Batch::default();
        self.tree.store().stage(&changes, &mut batch);
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
        if ours.is_some() && !is_confirmed {
            error!(
                %height, executed_height = %header.executed_height, said = %header.state_root,
                "a final header names another state than executing the blocks leads to: outcomes \
                 are not checked from here on"
            );
            self.progress.known.lock().diverged = Some(height);
            return Ok(Step::Never);
        }
        let committees = self.guard.verifier().committees();
        let identity = committees.leader_identity(header.epoch, header.view);
        let leader = identity.ok_or_else(|| self.index.damaged("a view without a leader"))?;
        let mut before = BTreeMap::new();
        let touched = execution::touched(&block, &leader, &self.rules);
        let keys: BTreeSet<_> = touched.iter().map(|one| state_key(one).0).collect();
        let mut added = BTreeSet::new();
        let tree = |error: TreeError| broken(&self.index, &error);
        let loaded = self.tree.load(&keys).map_err(tree)?;
        for one in touched {
            let value = self.tree.get_loaded(&loaded, &state_key(&one).0);
            let account = match value.map_err(tree)? {
                Some(bytes) => Account::decode(Copying(&bytes))
                    .map_err(|_| self.index.damaged("an account"))?,
                None => {
                    added.insert(one);
                    Account::default()
                }
            };
            before.insert(one, account);
        }
        let done = execution::execute(&block, &leader, before, &self.rules);
        let updates = done.accounts.iter();
        let updates = updates.map(|(one, account)| (state_key(one).0, account.encode().to_vec()));
        let changes = self.tree.prepare_loaded(loaded, &updates.collect());
        let changes = changes.map_err(tree)?;

        let told = self.index.outcomes(height)?;
        let wrong = told.iter().zip(&done.outcomes).filter(|(a, b)| a != b);
        let wrong = wrong.count() as u64;
        added.retain(|one| done.accounts.contains_key(one));
        let next = Known {
            executed: height,
            confirmed: if is_confirmed {
                known.confirmed.max(header.executed_height)
            } else {
                known.confirmed
            },
            accounts: known.accounts + added.len() as u64,
            corrected: known.corrected + wrong,
            ..known
        };
        let mut batch = Batch::default();
        self.tree.store().stage(&changes, &mut batch);
        if wrong > 0 {
            warn!(%height, transactions = wrong, "a validator told wrong outcomes of this block");
            self.index
                .stage_outcomes(height, &done.outcomes, &mut batch);
        }
        batch.put(CHECKED, EXECUTED, height.0.to_be_bytes());
        batch.put(CHECKED, CONFIRMED, next.confirmed.0.to_be_bytes());
        batch.put(CHECKED, ACCOUNTS, next.accounts.to_be_bytes());
        batch.put(CHECKED, CORRECTED, next.corrected.to_be_bytes());
        batch.put(CHECKED, root_key(height), changes.root());
        if let Some(old) = height.0.checked_sub(ROOTS) {
            batch.delete(CHECKED, root_key(Height(old)));
        }
        self.index.write(&batch)?;
        self.tree.commit(changes);
        *self.progress.known.lock() = next;
        if height.0.is_multiple_of(10_000) {
            info!(%height, "outcomes are checked");
        }
        Ok(Step::More)
    }
}

fn root_key(height: Height) -> Vec<u8> {
    [b"root:".as_slice(), &height.0.to_be_bytes()].concat()
}

fn broken(index: &Index, error: &TreeError) -> IndexError {
    index.damaged(&format!("the accounts' state: {error}"))
}
