//! The explorer's index, in RocksDB.
//!
//! | column family | key | value |
//! |---|---|---|
//! | `blocks` | height | the block's encoding |
//! | `finality` | height | height of the block whose finalization makes it final; the finalization, if it is the block's own |
//! | `ids` | block id | height |
//! | `outcomes` | height | one byte per transaction: its outcome |
//! | `transactions` | transaction id, height, index | nothing |
//! | `accounts` | identity, newest first: ¬height, ¬index | the account's role in the transaction |
//! | `views` | epoch, view | height |
//! | `leaders` | epoch, validator | number of views that it led, and of these with a final block |
//! | `signers` | epoch, validator | number of finalizations that it signed; the total is under `u32::MAX` |
//! | `nullified` | epoch, view | reason and nullification, as observed |
//! | `nullified_by` | epoch, validator | number of observed nullifications of its views |
//! | `evidence` | id | the pair of votes |
//! | `filled` | newest first: ¬height | nothing; only for blocks with transactions |
//! | `history` | `m`, `h` or `d`, and the number of that minute, hour or day since 1970 | number of blocks and transactions, and bytes |
//! | `meta` | name | chain id, format, oldest and newest height, number of transactions |
//! | `state`, `checked` | | the accounts after the newest block that was executed here ([`crate::check`]) |
//!
//! Numbers are big-endian. Everything that a range of blocks adds is written as one batch together
//! with the new tip, so a crash leaves the index consistent at some block. Nothing is synced: a
//! power failure loses the newest blocks, which are then fetched again.
//!
//! `signers` and all rows below it depend on what was observed and when; the rest is a function of
//! the chain, and [`Index::digest`] covers that part.

mod digest;
mod error;
mod history;
mod open;
mod read;
mod rows;

pub use error::IndexError;
pub use history::{Period, Sums};
pub use read::{AccountPlace, NullifiedView, TransactionPlace};
pub use rows::Role;

use crate::{
    check::{CHECKED, STATE},
    verify::FinalBlock,
};
use commonware_codec::{Encode, EncodeSize};
use parking_lot::RwLock;
use quorate_storage::database::{Batch, Database, DatabaseError};
use quorate_types::{
    Certificate, Committee, Committees, Digest, Epoch, Evidence, Header, Height, Identity, Outcome,
    ValidatorIndex, View,
};
use rows::{height_key, pair, place_key};
use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

pub(crate) const BLOCKS: &str = "blocks";
pub(crate) const FINALITY: &str = "finality";
pub(crate) const IDS: &str = "ids";
pub(crate) const OUTCOMES: &str = "outcomes";
pub(crate) const TRANSACTIONS: &str = "transactions";
pub(crate) const ACCOUNTS: &str = "accounts";
pub(crate) const VIEWS: &str = "views";
pub(crate) const LEADERS: &str = "leaders";
pub(crate) const SIGNERS: &str = "signers";
pub(crate) const NULLIFIED: &str = "nullified";
pub(crate) const NULLIFIED_BY: &str = "nullified_by";
pub(crate) const EVIDENCE: &str = "evidence";
pub(crate) const META: &str = "meta";
pub(crate) const FILLED: &str = "filled";
pub(crate) const HISTORY: &str = "history";

const COLUMNS: [&str; 17] = [
    BLOCKS,
    FINALITY,
    IDS,
    OUTCOMES,
    TRANSACTIONS,
    ACCOUNTS,
    VIEWS,
    LEADERS,
    SIGNERS,
    NULLIFIED,
    NULLIFIED_BY,
    EVIDENCE,
    META,
    FILLED,
    HISTORY,
    CHECKED,
    STATE,
];

/// Maximum number of evidence items kept for one validator. One is enough to convict it.
const MAX_EVIDENCE_PER_VALIDATOR: usize = 16;

/// The range of blocks in the index: all from the oldest to the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub oldest: Height,
    pub tip: Header,
}

/// How many views a validator has led.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaderCount {
    /// Views that it led, up to the tip.
    pub led: u64,
    /// Those of them with a final block.
    pub blocks: u64,
}

/// The index. Cheap to clone; any thread may read, one task writes.
#[derive(Clone)]
pub struct Index {
    database: Arc<dyn Database>,
    path: Arc<PathBuf>,
    extent: Arc<RwLock<Option<Extent>>>,
}

impl Index {
    /// The range of blocks that it holds; `None` while it is empty.
    pub fn extent(&self) -> Option<Extent> {
        *self.extent.read()
    }

    /// Adds final blocks as one batch. If they do not follow the tip but lie above it, history
    /// starts anew with them; older rows stay.
    ///
    /// # Errors
    ///
    /// If the write fails. The index then holds all of the blocks or none.
    ///
    /// # Panics
    ///
    /// If the blocks do not follow each other or the tip; the caller has verified that they do.
    pub fn append(
        &self,
        committees: &Committees,
        blocks: &[FinalBlock],
        signers: impl Fn(&Certificate) -> Option<Vec<ValidatorIndex>>,
    ) -> Result<(), IndexError> {
        let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else {
            return Ok(());
        };
        let before = self.extent();
        let follows = before.filter(|extent| first.block.height() <= extent.tip.height.next());
        let mut parent = follows.map(|extent| extent.tip);
        let mut batch = Batch::default();
        let mut counts = Counts::default();
        for item in blocks {
            let header = item.block.header();
            if let Some(parent) = &parent {
                assert_eq!(header.height, parent.height.next(), "blocks come in order");
                assert_eq!(header.parent, parent.id(), "blocks make a chain");
            }
            stage_block(item, &mut batch);
            counts.lead(&committees.of(header.epoch), header);
            if let Some(names) = item.certificate.as_ref().and_then(&signers) {
                counts.sign(header.epoch, &names);
            }
            parent = Some(*header);
        }
        self.stage_counts(&counts, &mut batch)?;
        let mut sums = history::Added::default();
        for item in blocks {
            let count = item.block.transactions().len() as u64;
            let bytes = item.block.encode_size() as u64;
            sums.add(item.block.header(), count, bytes, &mut batch);
        }
        self.stage_history(&sums, &mut batch)?;
        let oldest = follows.map_or(first.block.height(), |extent| extent.oldest);
        batch.put(META, b"oldest", height_key(oldest));
        batch.put(META, b"tip", height_key(last.block.height()));
        self.write(&batch)?;
        *self.extent.write() = Some(Extent {
            oldest,
            tip: *last.block.header(),
        });
        Ok(())
    }

    /// Stores a verified nullification. Returns whether it is the first of its view.
    pub fn add_nullification(
        &self,
        leader: ValidatorIndex,
        certificate: &Certificate,
        reason: &str,
    ) -> Result<bool, IndexError> {
        let subject = &certificate.subject;
        let key = pair(subject.epoch.0, subject.view.0);
        if self.get(NULLIFIED, &key)?.is_some() {
            return Ok(false);
        }
        let mut batch = Batch::default();
        batch.put(NULLIFIED, key, rows::nullified(reason, certificate));
        let place = place_key(subject.epoch, leader);
        let count = self.count(NULLIFIED_BY, &place)?.saturating_add(1);
        batch.put(NULLIFIED_BY, place, count.to_be_bytes());
        self.write(&batch)?;
        Ok(true)
    }

    /// Stores verified evidence, unless there is already enough against that validator.
    pub fn add_evidence(&self, evidence: &Evidence) -> Result<(), IndexError> {
        let signer = evidence.first.signer;
        let held = self.evidence()?;
        let against = held.iter().filter(|item| item.first.signer == signer);
        if against.count() >= MAX_EVIDENCE_PER_VALIDATOR || held.contains(evidence) {
            return Ok(());
        }
        let mut batch = Batch::default();
        batch.put(EVIDENCE, evidence.id(), evidence.encode());
        self.write(&batch)
    }

    fn stage_counts(&self, counts: &Counts, batch: &mut Batch) -> Result<(), IndexError> {
        for ((epoch, place), added) in &counts.leaders {
            let held = self.leader_count(*epoch, *place)?;
            let count = LeaderCount {
                led: held.led.saturating_add(added.led),
                blocks: held.blocks.saturating_add(added.blocks),
            };
            let row = pair(count.led, count.blocks);
            batch.put(LEADERS, place_key(*epoch, *place), row);
        }
        for ((epoch, place), added) in &counts.signers {
            let key = place_key(*epoch, *place);
            let count = self.count(SIGNERS, &key)?.saturating_add(*added);
            batch.put(SIGNERS, key, count.to_be_bytes());
        }
        Ok(())
    }

    pub(crate) fn database(&self) -> Arc<dyn Database> {
        self.database.clone()
    }

    /// Adds the outcomes of a block's transactions to a batch.
    pub(crate) fn stage_outcomes(&self, height: Height, outcomes: &[Outcome], batch: &mut Batch) {
        batch.put(OUTCOMES, height_key(height), outcome_codes(outcomes));
    }

    pub(crate) fn write(&self, batch: &Batch) -> Result<(), IndexError> {
        let written = self.database.write(batch, false);
        written.map_err(|source| self.failed(source))
    }

    fn failed(&self, source: DatabaseError) -> IndexError {
        IndexError::Database {
            path: self.path.to_path_buf(),
            source,
        }
    }

    pub(crate) fn damaged(&self, what: &str) -> IndexError {
        IndexError::Damaged {
            path: self.path.to_path_buf(),
            what: what.to_owned(),
        }
    }
}

/// Stands for all validators in `signers`.
pub(crate) const ALL_VALIDATORS: ValidatorIndex = ValidatorIndex(u32::MAX);

/// Changes to the counters by a batch of blocks.
#[derive(Default)]
struct Counts {
    leaders: BTreeMap<(Epoch, ValidatorIndex), LeaderCount>,
    signers: BTreeMap<(Epoch, ValidatorIndex), u64>,
}

impl Counts {
    /// Counts a block's turn and the turns between it and its parent's, which have no block.
    fn lead(&mut self, committee: &Committee, header: &Header) {
        let own = committee.leader_in(header.epoch, header.view);
        let count = self.leaders.entry((header.epoch, own)).or_default();
        count.led += 1;
        count.blocks += 1;
        if let Some(turn) = committee.turn_cut_short(header.parent_view, header.view) {
            let leader = committee.leader_in(header.epoch, turn);
            self.leaders.entry((header.epoch, leader)).or_default().led += 1;
        }
        let first = committee.turn_after(header.parent_view);
        let skipped = header
            .view
            .0
            .saturating_sub(first.0)
            .div_ceil(committee.turn());
        let size = committee.size() as u64;
        // An outage may skip any number of turns, so the loop does not iterate over whole rounds.
        for turn in 0..size.min(skipped) {
            let view = View(first.0 + turn * committee.turn());
            let leader = committee.leader_in(header.epoch, view);
            let rounds = (skipped - turn).div_ceil(size);
            self.leaders.entry((header.epoch, leader)).or_default().led += rounds;
        }
    }

    fn sign(&mut self, epoch: Epoch, names: &[ValidatorIndex]) {
        for name in names.iter().chain([&ALL_VALIDATORS]) {
            *self.signers.entry((epoch, *name)).or_default() += 1;
        }
    }
}

fn outcome_codes(outcomes: &[Outcome]) -> Vec<u8> {
    let codes = outcomes.iter().map(|outcome| outcome.encode().to_vec());
    codes.flatten().collect()
}

fn stage_block(item: &FinalBlock, batch: &mut Batch) {
    let block = &item.block;
    let header = block.header();
    let key = height_key(header.height);
    batch.put(BLOCKS, key, block.encode());
    let mut finality = height_key(item.finalized_by).to_vec();
    if let Some(certificate) = &item.certificate {
        finality.extend_from_slice(&certificate.encode());
    }
    batch.put(FINALITY, key, finality);
    batch.put(IDS, block.id(), key);
    batch.put(VIEWS, pair(header.epoch.0, header.view.0), key);
    batch.put(OUTCOMES, key, outcome_codes(&item.outcomes));
    for (index, transaction) in (0_u32..).zip(block.transactions()) {
        let id: Digest = transaction.id();
        batch.put(TRANSACTIONS, rows::place(&id.0, header.height, index), []);
        let transfer = transaction.transfer();
        let parts: &[(Identity, Role)] = if transfer.sender == transfer.to {
            &[(transfer.sender, Role::Both)]
        } else {
            &[
                (transfer.sender, Role::Sender),
                (transfer.to, Role::Receiver),
            ]
        };
        for (identity, role) in parts {
            let key = rows::newest_first(identity, header.height, index);
            batch.put(ACCOUNTS, key, [role.code()]);
        }
    }
}
