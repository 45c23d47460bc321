//! Checks a stopped validator's data, and reports problems.

use anyhow::Context as _;
use commonware_codec::Encode as _;
use quorate_consensus::MAX_UNEXECUTED_BLOCKS;
use quorate_machine::registry;
use quorate_storage::{
    journal::Journal,
    store::Store,
    tree::{MemoryStore, Tree},
};
use quorate_types::{Certificate, ChainId, Digest, EpochKeys, Height, genesis::Genesis};
use serde::Serialize;
use std::{fs, path::Path};

/// Number of finalizations that are verified as one batch.
const BATCH: usize = 64;

/// Most problems that are listed; further ones are only counted.
const MAX_PROBLEMS: usize = 100;

/// The result of a check.
#[derive(Debug, Default, Serialize)]
pub struct CheckReport {
    /// Blocks found.
    pub blocks: u64,
    /// The lowest height that must be stored.
    pub first: u64,
    /// The newest height.
    pub last: u64,
    /// Finalizations verified.
    pub finalizations: u64,
    /// The newest blocks, if none of them has a finalization here: a node that was interrupted while it executed several
    /// (a crash, a full disk) has their last one's in its journal, or fetches it.
    pub unproven: u64,
    /// Transactions in the blocks.
    pub transactions: u64,
    pub accounts: u64,
    /// Records in the vote journal.
    pub journal_records: u64,
    /// Problems of the database, one sentence each.
    pub problems: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub journal_problem: Option<String>,
}

struct Checker<'a> {
    store: &'a Store,
    chain: ChainId,
    /// Of each epoch's validators: its own blocks are verified with them.
    keys: EpochKeys,
    report: CheckReport,
    pending: Vec<(Height, Certificate)>,
}

/// Reports progress: the part being checked, the amount done, and the total.
pub type Progress<'a> = &'a mut dyn FnMut(&str, u64, u64);

/// Checks a database and, of a validator, the vote journal beside it. Damage is reported, not returned
/// as an error.
///
/// # Errors
///
/// If something cannot be read at all.
pub fn database(
    store: &Store,
    data: &Path,
    genesis: &Genesis,
    votes: bool,
    progress: Progress<'_>,
) -> anyhow::Result<CheckReport> {
    let first = store.pruned_below()?;
    let last = store.tip().height;
    let chain = genesis.chain_id();
    let committees =
        registry::committees(genesis, store).context("who validates in which epoch")?;
    let mut checker = Checker {
        store,
        chain,
        keys: EpochKeys::new(chain, committees, genesis.scheme()?),
        report: CheckReport {
            first: first.0,
            last: last.0,
            ..CheckReport::default()
        },
        pending: Vec::new(),
    };
    checker.blocks(first, last, progress)?;
    checker.indexes(first, last, progress)?;
    checker.accounts(progress)?;
    if votes {
        checker.journal(data);
    }
    Ok(checker.report)
}

impl Checker<'_> {
    fn problem(&mut self, text: String) {
        let problems = &mut self.report.problems;
        if problems.len() < MAX_PROBLEMS {
            problems.push(text);
        } else if problems.len() == MAX_PROBLEMS {
            problems.push("there are more".to_owned());
        }
    }

    fn blocks(
        &mut self,
        first: Height,
        last: Height,
        progress: Progress<'_>,
    ) -> anyhow::Result<()> {
        let mut parent: Option<Digest> = (first == Height(1)).then_some(Digest::ZERO);
        // The first block since the last one with its own finalization.
        let mut unproven: Option<Height> = None;
        let mut height = first;
        while height <= last {
            progress("blocks", height.0 - first.0, last.0 + 1 - first.0);
            parent = self.block(height, parent, &mut unproven);
            if self.pending.len() >= BATCH {
                self.verify_pending();
            }
            height = height.next();
        }
        self.verify_pending();
        if let Some(from) = unproven {
            let count = last.0 + 1 - from.0;
            if count <= MAX_UNEXECUTED_BLOCKS {
                self.report.unproven = count;
            } else {
                self.problem(format!(
                    "blocks {from} to {last}: no finalization is stored that makes them final"
                ));
            }
        }
        if let Some(lowest) = self.store.lowest_block()?
            && lowest < first
            && self.store.base()? != Some(lowest)
        {
            self.problem(format!(
                "block {lowest} is there although blocks below {first} are pruned"
            ));
        }
        Ok(())
    }

    /// Checks a block and returns its id.
    fn block(
        &mut self,
        height: Height,
        parent: Option<Digest>,
        unproven: &mut Option<Height>,
    ) -> Option<Digest> {
        let stored = match self.store.block(height) {
            Ok(Some(stored)) => stored,
            Ok(None) => {
                self.problem(format!("block {height} is missing"));
                return None;
            }
            Err(error) => {
                self.problem(format!("block {height}: {error}"));
                return None;
            }
        };
        self.report.blocks += 1;
        let block = &stored.block;
        let id = block.id();
        if block.header().chain != self.chain {
            self.problem(format!("block {height} is of another chain"));
        }
        if parent.is_some_and(|parent| parent != block.header().parent) {
            self.problem(format!(
                "block {height} does not follow the block before it"
            ));
        }
        match self.store.height_of(&id) {
            Ok(Some(found)) if found == height => {}
            found => self.problem(format!("the id of block {height} leads to {found:?}")),
        }
        match self.store.root(height) {
            Ok(Some(_)) => {}
            found => self.problem(format!("the state root after block {height}: {found:?}")),
        }
        if let Err(error) = self.store.receipts(height) {
            self.problem(format!("the receipts of block {height}: {error}"));
        }
        for transaction in block.transactions() {
            self.report.transactions += 1;
            let id = transaction.id();
            // A later block may contain the same transaction; the index refers to the newest.
            match self.store.transaction(&id) {
                Ok(Some(place)) if place.height >= height => {}
                found => self.problem(format!(
                    "transaction {id} of block {height} is indexed as {found:?}"
                )),
            }
        }
        match stored.certificate {
            Some(certificate) => {
                if !certificate.finalizes(stored.block.header()) {
                    self.problem(format!(
                        "block {height} is stored with {certificate:?}, which is not its own"
                    ));
                }
                self.pending.push((height, certificate));
                *unproven = None;
            }
            None => {
                unproven.get_or_insert(height);
            }
        }
        Some(id)
    }

    fn verify_pending(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        self.report.finalizations += pending.len() as u64;
        let held: Vec<&Certificate> = pending.iter().map(|(_, held)| held).collect();
        if self.keys.verify_many(&held, rand::random()) {
            return;
        }
        for (height, held) in &pending {
            if !self.keys.verify(held) {
                self.problem(format!(
                    "the finalization of block {height} does not verify"
                ));
            }
        }
    }

    /// Finds index rows that refer to blocks that are not stored.
    fn indexes(
        &mut self,
        first: Height,
        last: Height,
        progress: Progress<'_>,
    ) -> anyhow::Result<()> {
        progress("indexes", 0, 2);
        let base = self.store.base()?;
        let mut after = None;
        loop {
            let rows = self.store.ids_after(after)?;
            let Some((newest, _)) = rows.last() else {
                break;
            };
            after = Some(*newest);
            for (id, height) in rows {
                if (height < first || height > last) && base != Some(height) {
                    self.problem(format!(
                        "the id {id} leads to block {height}, which is not kept"
                    ));
                }
            }
        }
        progress("indexes", 1, 2);
        let mut after = None;
        loop {
            let rows = self.store.transactions_after(after)?;
            let Some((newest, _)) = rows.last() else {
                break;
            };
            after = Some(*newest);
            for (id, place) in rows {
                if place.height < first || place.height > last {
                    self.problem(format!(
                        "transaction {id} is indexed in block {}, which is not kept",
                        place.height
                    ));
                }
            }
        }
        Ok(())
    }

    /// Rebuilds the state tree from the accounts.
    fn accounts(&mut self, progress: Progress<'_>) -> anyhow::Result<()> {
        let all = self
            .store
            .sizes()
            .iter()
            .find(|size| size.name == "accounts")
            .map_or(0, |size| size.rows);
        let mut tree = Tree::open(MemoryStore::default()).context("a tree in memory")?;
        let mut after = None;
        loop {
            let rows = self.store.accounts_after(after)?;
            let Some((newest, _)) = rows.last() else {
                break;
            };
            after = Some(*newest);
            self.report.accounts += rows.len() as u64;
            progress(
                "accounts",
                self.report.accounts,
                all.max(self.report.accounts),
            );
            let rows = rows.into_iter();
            let values = rows.map(|(key, account)| (key, account.encode().to_vec()));
            let changes = tree.prepare(&values.collect())?;
            tree.store_mut().apply(&changes);
            tree.commit(changes);
        }
        let (rebuilt, stored) = (tree.root(), self.store.tip().state_root);
        if rebuilt != stored {
            self.problem(format!(
                "the accounts make the state root {rebuilt}, stored is {stored}"
            ));
        }
        Ok(())
    }

    fn journal(&mut self, data: &Path) {
        let folder = data.join("journal");
        if !folder.is_dir() {
            self.report.journal_problem =
                Some(format!("there is no vote journal in {}", folder.display()));
            return;
        }
        match Journal::open(&folder, self.chain) {
            Ok((_, recovered)) => self.report.journal_records = recovered.records.len() as u64,
            Err(error) => self.report.journal_problem = Some(format!("the vote journal: {error}")),
        }
    }
}

/// Sums the sizes of all files in a folder and its subfolders. Files that vanish meanwhile are
/// ignored.
pub fn folder_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(data) if data.is_dir() => folder_bytes(&entry.path()),
            Ok(data) => data.len(),
            Err(_) => 0,
        })
        .sum()
}
