//! The accounts after blocks that are not executed yet.
//!
//! Blocks are proposed on blocks that are not final, and execution follows finality. So the state
//! that a new block will be executed on is the executed one plus the changes of its unexecuted
//! ancestors. Leaders fill blocks by this state, and voters check blocks against it: a transfer
//! that would not even use its nonce, because the nonce is used or the fee cannot be paid, must not
//! be in a block. So no transaction is ever in two blocks, and nobody can fill blocks for free.
//!
//! The result is a function of the chain alone: every voter gets the same one, whatever it has
//! executed.

use crate::{
    accounts::Accounts,
    ledger::{self, Rules},
};
use anyhow::Context;
use parking_lot::Mutex;
use quorate_types::{
    Account, Block, BundleRef, Committees, Digest, Height, Identity, Outcome, Transaction, Transfer,
};
use std::{collections::BTreeMap, sync::Arc};

/// Blocks whose changes are remembered.
const MAX_KNOWN: usize = 512;

/// The accounts that a block changes, with their new values.
type Changes = Arc<BTreeMap<Identity, Account>>;

/// Computes the changes of unexecuted blocks. Any thread may use it.
pub struct Forecast {
    accounts: Accounts,
    committees: Committees,
    rules: Rules,
    /// False only in an experiment.
    filters: bool,
    known: Mutex<BTreeMap<(Height, Digest), Changes>>,
}

/// The changes of a block's unexecuted ancestors.
#[derive(Default)]
pub struct Outlook {
    /// Newest first.
    changes: Vec<Changes>,
}

impl Outlook {
    #[cfg(test)]
    pub(crate) fn of(changes: BTreeMap<Identity, Account>) -> Self {
        Self {
            changes: vec![Arc::new(changes)],
        }
    }

    /// An account after the ancestors, if one of them changes it.
    pub fn changed(&self, identity: &Identity) -> Option<Account> {
        let mut changes = self.changes.iter();
        changes.find_map(|changes| changes.get(identity).cloned())
    }
}

impl Forecast {
    pub fn new(accounts: Accounts, committees: Committees, rules: Rules) -> Self {
        Self {
            accounts,
            committees,
            rules,
            filters: true,
            known: Mutex::default(),
        }
    }

    /// Takes every block for one that follows executed blocks only, and every transaction for one that uses its nonce.
    /// All validators of a chain must do this, or none.
    #[must_use]
    pub(crate) fn without_filtering(mut self) -> Self {
        self.filters = false;
        self
    }

    /// The bytes of all payloads that transactions order.
    pub(crate) fn bundle_bytes(&self, transactions: &[Transaction]) -> u64 {
        let bundles = transactions
            .iter()
            .filter_map(|one| self.bundle(one.transfer()));
        bundles.map(|bundle| u64::from(bundle.bytes)).sum()
    }

    /// The payloads that a transaction orders.
    pub(crate) fn bundle(&self, transfer: &Transfer) -> Option<BundleRef> {
        self.rules.application().bundle(transfer)
    }

    /// The changes of consecutive blocks, given newest first, of which the last follows an executed
    /// one. `None` if that was executed too long ago.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    pub fn after(&self, unexecuted: &[Arc<Block>]) -> anyhow::Result<Option<Outlook>> {
        let mut outlook = Outlook::default();
        if !self.filters {
            return Ok(Some(outlook));
        }
        for block in unexecuted.iter().rev() {
            let key = (block.height(), block.id());
            let known = self.known.lock().get(&key).cloned();
            let changes = match known {
                Some(changes) => changes,
                None => match self.execute(block, &outlook)? {
                    Some((changes, _)) => changes,
                    None => return Ok(None),
                },
            };
            outlook.changes.insert(0, changes);
        }
        Ok(Some(outlook))
    }

    /// Whether every transaction of a block will use its nonce in the state after the block's
    /// ancestors; `unexecuted` are those that are not executed yet. `None` if they were executed
    /// too long ago to tell, so that the block no longer matters.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    pub fn holds(&self, block: &Block, unexecuted: &[Arc<Block>]) -> anyhow::Result<Option<bool>> {
        if block.transactions().is_empty() || !self.filters {
            return Ok(Some(true));
        }
        let base = block.height().0.saturating_sub(unexecuted.len() as u64 + 1);
        self.forget(Height(base));
        let Some(outlook) = self.after(unexecuted)? else {
            return Ok(None);
        };
        let Some((_, outcomes)) = self.execute(block, &outlook)? else {
            return Ok(None);
        };
        Ok(Some(outcomes.iter().all(|outcome| outcome.used_nonce())))
    }

    /// Executes a block on the accounts after its ancestors, and remembers the changes.
    fn execute(
        &self,
        block: &Block,
        before: &Outlook,
    ) -> anyhow::Result<Option<(Changes, Vec<Outcome>)>> {
        let header = block.header();
        let above_executed = before.changes.len() as u64 + 1;
        let Some(executed) = header.height.0.checked_sub(above_executed) else {
            return Ok(None);
        };
        let leader = self
            .committees
            .leader_identity(header.epoch, header.view)
            .context("every view has a leader")?;
        let mut accounts = BTreeMap::new();
        for identity in ledger::touched(block, &leader, &self.rules) {
            let account = match before.changed(&identity) {
                Some(account) => account,
                None => match self.accounts.at(Height(executed), &identity)? {
                    Some(account) => account,
                    None => return Ok(None),
                },
            };
            accounts.insert(identity, account);
        }
        let execution = ledger::execute(block, &leader, accounts, &self.rules);
        let changes: Changes = Arc::new(execution.accounts);
        let mut known = self.known.lock();
        known.insert((header.height, block.id()), changes.clone());
        while known.len() > MAX_KNOWN {
            known.pop_first();
        }
        drop(known);
        Ok(Some((changes, execution.outcomes)))
    }

    /// Forgets blocks up to a height that nobody will ask about again.
    fn forget(&self, executed: Height) {
        let mut known = self.known.lock();
        *known = known.split_off(&(executed.next(), Digest::ZERO));
    }
}
