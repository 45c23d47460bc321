//! What a run, or many, has covered.

use crate::scenario::Fault;
use std::{
    collections::BTreeMap,
    fmt::{self, Display},
    ops::AddAssign,
};

/// Counts of what happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Runs.
    pub runs: u64,
    /// Views that some validator entered.
    pub views: u64,
    /// Epochs that some validator entered, but the first.
    pub epochs: u64,
    /// Final blocks.
    pub blocks: u64,
    /// Blocks of honest leaders that a quorum of honest validators has voted for, and that are not in the chain.
    pub abandoned: u64,
    /// Transactions that they applied.
    pub transactions: u64,
    /// Frames that were delivered.
    pub frames: u64,
    /// Messages lost by chance.
    pub lost: u64,
    /// Messages that came twice.
    pub doubled: u64,
    /// Times that a validator started.
    pub starts: u64,
    /// Times that a validator was killed or lost its power.
    pub crashes: u64,
    /// Times that a validator stopped by itself because its disk failed.
    pub halts: u64,
    /// Disk operations.
    pub disk_operations: u64,
    /// Mishaps that struck at a disk operation.
    pub mishaps: u64,
    /// Combined checks that failed and were bisected.
    pub bisections: u64,
    /// Times that a validator fetched the state instead of blocks.
    pub state_syncs: u64,
    /// Most pairs of conflicting votes that one validator held.
    pub evidence: u64,
    /// Faults by their name.
    pub faults: BTreeMap<&'static str, u64>,
    /// Runs with each attack.
    pub attacks: BTreeMap<String, u64>,
}

impl Coverage {
    pub(crate) fn fault(&mut self, fault: &Fault) {
        let name = match fault {
            Fault::Crash(_) => "crash",
            Fault::Restart(_) => "restart",
            Fault::Disk { .. } => "disk mishap",
            Fault::Full(_) => "full disk",
            Fault::Room(_) => "room again",
            Fault::LoseDatabase(_) => "lost database",
            Fault::LoseJournal(_) => "lost journal",
            Fault::CopyJournal(_) => "copied journal",
            Fault::RestoreJournal(_) => "old journal",
            Fault::Forget(_) => "forgotten offenders",
            Fault::Partition(_) => "partition",
            Fault::Cut(..) => "cut",
            Fault::Unlink(..) => "missing link",
            Fault::Link(..) => "link again",
            Fault::Heal => "heal",
            Fault::Join => "join",
        };
        *self.faults.entry(name).or_default() += 1;
    }
}

impl AddAssign<&Coverage> for Coverage {
    fn add_assign(&mut self, other: &Coverage) {
        self.runs += other.runs;
        self.views += other.views;
        self.epochs += other.epochs;
        self.blocks += other.blocks;
        self.abandoned += other.abandoned;
        self.transactions += other.transactions;
        self.frames += other.frames;
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.starts += other.starts;
        self.crashes += other.crashes;
        self.halts += other.halts;
        self.disk_operations += other.disk_operations;
        self.mishaps += other.mishaps;
        self.bisections += other.bisections;
        self.state_syncs += other.state_syncs;
        self.evidence += other.evidence;
        for (name, count) in &other.faults {
            *self.faults.entry(name).or_default() += count;
        }
        for (name, count) in &other.attacks {
            *self.attacks.entry(name.clone()).or_default() += count;
        }
    }
}

impl Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = [
            ("runs", self.runs),
            ("views", self.views),
            ("epochs crossed", self.epochs),
            ("final blocks", self.blocks),
            ("certified, not final", self.abandoned),
            ("transactions applied", self.transactions),
            ("frames delivered", self.frames),
            ("messages lost", self.lost),
            ("messages doubled", self.doubled),
            ("starts", self.starts),
            ("crashes", self.crashes),
            ("halts upon disk errors", self.halts),
            ("disk operations", self.disk_operations),
            ("of them struck", self.mishaps),
            ("checks bisected", self.bisections),
            ("states fetched", self.state_syncs),
            ("equivocations proven", self.evidence),
        ];
        for (name, count) in rows {
            writeln!(f, "{name:>24}  {count}")?;
        }
        for (name, count) in &self.faults {
            writeln!(f, "{:>24}  {count}", format!("fault: {name}"))?;
        }
        for (name, count) in &self.attacks {
            writeln!(f, "{:>24}  {count}", format!("runs: {name}"))?;
        }
        Ok(())
    }
}
