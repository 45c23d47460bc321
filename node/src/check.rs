//! Reading a stopped validator's data through, and finding what is wrong with it.

use anyhow::Context as _;
use quorate_crypto::bls::{HashedMessage, Scheme};
use quorate_storage::{
    journal::Journal,
    store::{Store, tree_updates},
    tree::{MemoryStore, Tree},
};
use quorate_types::{Certificate, ChainId, Digest, Height, Identity, VoteKind, genesis::Genesis};
use serde::Serialize;
use std::{fs, path::Path};

/// Finalizations that are verified together.
const BATCH: usize = 64;

/// Problems that are told; more are counted together.
const MAX_PROBLEMS: usize = 100;

/// What was read, and what is wrong.
#[derive(Debug, Default, Serialize)]
pub struct CheckReport {
    /// Blocks that are there.
    pub blocks: u64,
    /// The first height that must be there.
    pub first: u64,
    /// The newest height.
    pub last: u64,
    /// Finalizations that were verified.
    pub finalizations: u64,
    /// Transactions in the blocks.
    pub transactions: u64,
    /// Accounts.
    pub accounts: u64,
    /// Records in the vote journal.
    pub journal_records: u64,
    /// What is wrong, a sentence each.
    pub problems: Vec<String>,
}

struct Checker<'a> {
    store: &'a Store,
    chain: ChainId,
    scheme: Scheme,
    report: CheckReport,
    pending: Vec<(Height, Certificate)>,
}

/// Tells how far the check of something is: what, how much is done, of how much.
pub type Progress<'a> = &'a mut dyn FnMut(&str, u64, u64);

/// Checks a database and the vote journal beside it. Damage is told in the report.
///
/// # Errors
///
/// If something cannot be read at all.
pub fn database(
    store: &Store,
    data: &Path,
    genesis: &Genesis,
    progress: Progress<'_>,
) -> anyhow::Result<CheckReport> {
    let first = store.pruned_below()?;
    let last = store.tip().height;
    let mut checker = Checker {
        store,
        chain: genesis.chain_id(),
        scheme: genesis.scheme()?,
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
    checker.journal(data);
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
        // Blocks since the last one with a finalization of its own.
        let mut unproven: Option<Height> = None;
        let mut height = first;
        while height <= last {
            progress("blocks", height.0 - first.0, last.0 - first.0 + 1);
            parent = self.block(height, parent, &mut unproven);
            if self.pending.len() >= BATCH {
                self.verify_pending();
            }
            height = height.next();
        }
        self.verify_pending();
        if let Some(from) = unproven {
            self.problem(format!(
                "blocks {from} to {last}: no finalization is stored that makes them final"
            ));
        }
        if let Some(lowest) = self.store.lowest_block()?
            && lowest < first
        {
            self.problem(format!(
                "block {lowest} is there although blocks below {first} are pruned"
            ));
        }
        Ok(())
    }

    /// Checks one block; returns its id.
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
            // A later block may hold the same transaction; the index names the newest.
            match self.store.transaction(&id) {
                Ok(Some(place)) if place.height >= height => {}
                found => self.problem(format!(
                    "transaction {id} of block {height} is indexed as {found:?}"
                )),
            }
        }
        match stored.certificate {
            Some(certificate) => {
                let subject = certificate.subject;
                if subject.kind != VoteKind::Finalize || subject.payload != id {
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
        let messages: Vec<HashedMessage> = pending
            .iter()
            .map(|(_, held)| HashedMessage::new(&held.subject.signed_bytes(&self.chain)))
            .collect();
        let items: Vec<_> = messages
            .iter()
            .zip(&pending)
            .map(|(message, (_, held))| (message, &held.proof))
            .collect();
        if self.scheme.verify_many(&items, rand::random()) {
            return;
        }
        for ((height, held), message) in pending.iter().zip(&messages) {
            if !self.scheme.verify(message, &held.proof) {
                self.problem(format!(
                    "the finalization of block {height} does not verify"
                ));
            }
        }
    }

    /// Index rows that lead nowhere.
    fn indexes(
        &mut self,
        first: Height,
        last: Height,
        progress: Progress<'_>,
    ) -> anyhow::Result<()> {
        progress("indexes", 0, 2);
        let mut after = None;
        loop {
            let rows = self.store.ids_after(after)?;
            let Some((newest, _)) = rows.last() else {
                break;
            };
            after = Some(*newest);
            for (id, height) in rows {
                if height < first || height > last {
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
        let mut after: Option<Identity> = None;
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
            let changes = tree.prepare(&tree_updates(&rows.into_iter().collect()))?;
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
            self.problem(format!("there is no vote journal in {}", folder.display()));
            return;
        }
        match Journal::open(&folder, self.chain) {
            Ok((_, recovered)) => self.report.journal_records = recovered.records.len() as u64,
            Err(error) => self.problem(format!("the vote journal: {error}")),
        }
    }
}

/// Bytes of all files in a folder and its folders. What vanishes meanwhile counts as nothing.
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
