//! `quorate db`

use super::{
    kept::{Kept, parse_kept},
    output::{ProgressLine, print_fields, print_json, print_lines},
    rpc::Control,
};
use crate::{check, config::MIN_RETENTION_BLOCKS, node::lock_directory};
use anyhow::Context as _;
use clap::{Args, Subcommand};
use quorate_storage::store::{Store, StoreError};
use quorate_types::{Height, genesis::Genesis};
use serde_json::json;
use std::{fs::File, path::PathBuf};

/// Check, measure and prune a stopped validator's database
#[derive(Subcommand)]
pub(super) enum Db {
    /// Read and check everything: blocks, finality, indexes, accounts, the vote journal
    Check(Check),
    /// Show the size of each part
    Stats(Stats),
    /// Remove old blocks now and free their disk space
    Prune(Prune),
}

/// Read and check everything: blocks, finality, indexes, accounts, the vote journal
///
/// Every block must follow its parent, match its id, have its transactions and receipts indexed,
/// and be final by a certificate, its own or a descendant's, that verifies with the keys in the
/// genesis file. The state tree is rebuilt from the accounts and must have the stored root. The
/// vote journal must be intact. Each problem is printed on a line; the exit code is 1 if there is
/// any.
#[derive(Args)]
pub(super) struct Check {
    #[command(flatten)]
    control: Control,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Show the size of each part
#[derive(Args)]
pub(super) struct Stats {
    #[command(flatten)]
    control: Control,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Remove old blocks now and free their disk space
///
/// A running validator prunes by itself if `storage.retention_blocks` or `storage.retention_time`
/// is set. Use this command the first time, or after you lowered the value a lot.
#[derive(Args)]
#[command(after_help = "Examples:
  quorate db prune --keep 100000 --config validator-0/validator.toml
  quorate db prune --keep 7d --config validator-0/validator.toml")]
pub(super) struct Prune {
    /// How many of the newest blocks to keep (at least 10000), or for how long (7d, by the blocks'
    /// own timestamps; the newest 10000 are always kept)
    #[arg(long, value_name = "BLOCKS|TIME", value_parser = parse_kept)]
    keep: Kept,
    #[command(flatten)]
    control: Control,
}

/// A stopped validator's database. Holds the lock so that no validator can start on it.
struct Opened {
    _lock: File,
    genesis: Genesis,
    data: PathBuf,
    store: Store,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Works even on a full disk.
    Read,
    Write,
}

fn open(control: &Control, purpose: Use) -> anyhow::Result<Opened> {
    let data = control.data_dir()?;
    anyhow::ensure!(
        data.join("db").is_dir(),
        "{} holds no database: the validator never ran, or another --config is meant",
        data.display()
    );
    let lock = lock_directory(&data).context("stop the node first")?;
    let genesis = control.genesis()?;
    let path = data.join("db");
    let store = match purpose {
        Use::Read => Store::open_to_read(&path, &genesis)?,
        Use::Write => match Store::open(&path, &genesis) {
            Ok((store, _)) => store,
            Err(error) if error.to_string().contains("No space left") => {
                return Err(error).context(
                    "the disk is full, and pruning takes some room itself: remove something else first (64 MiB \
                     will do), or the whole database with `quorate reset`",
                );
            }
            Err(error) => return Err(error.into()),
        },
    };
    Ok(Opened {
        _lock: lock,
        genesis,
        data,
        store,
    })
}

impl Db {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Check(check) => check.run(),
            Self::Stats(stats) => stats.run(),
            Self::Prune(prune) => prune.run(),
        }
    }
}

impl Check {
    fn run(self) -> anyhow::Result<()> {
        let opened = open(&self.control, Use::Read)?;
        let mut line = ProgressLine::new();
        let mut progress = |what: &str, done: u64, all: u64| {
            let percent = (done * 100).checked_div(all).unwrap_or(100);
            line.show(format!("checking {what}: {percent} %"));
        };
        let (store, genesis) = (&opened.store, &opened.genesis);
        let votes = self.control.votes()?;
        let report = check::database(store, &opened.data, genesis, votes, &mut progress)?;
        drop(line);
        if self.json {
            print_json(&report)?;
        } else {
            print_lines(&report.problems)?;
            print_fields(&[
                (
                    "blocks",
                    match report.blocks {
                        0 => format!("none (the state is that after block {})", report.last),
                        blocks => format!("{blocks} ({} to {})", report.first, report.last),
                    },
                ),
                (
                    "finalizations",
                    match report.unproven {
                        0 => report.finalizations.to_string(),
                        count => format!(
                            "{}; the newest {count} blocks have none yet: the node was interrupted, and its next start \
                             goes on from there",
                            report.finalizations
                        ),
                    },
                ),
                ("transactions", report.transactions.to_string()),
                ("accounts", report.accounts.to_string()),
                ("journal records", report.journal_records.to_string()),
                ("problems", report.problems.len().to_string()),
            ])?;
        }
        if let Some(problem) = &report.journal_problem {
            anyhow::ensure!(
                report.problems.is_empty(),
                "{problem}. The database has {} problems beside",
                report.problems.len()
            );
            anyhow::bail!("{problem}. The database is whole: keep it");
        }
        anyhow::ensure!(
            report.problems.is_empty(),
            "{} problems in {}: delete the data directory's `db` (keep the rest!) and let the \
             validator fetch the chain again",
            report.problems.len(),
            opened.data.display()
        );
        Ok(())
    }
}

impl Stats {
    fn run(self) -> anyhow::Result<()> {
        let opened = open(&self.control, Use::Read)?;
        let tip = opened.store.tip();
        let pruned = opened.store.pruned_below()?;
        let sizes = opened.store.sizes();
        let journal = check::folder_bytes(&opened.data.join("journal"));
        let all = check::folder_bytes(&opened.data);
        if self.json {
            let tables: Vec<_> = sizes
                .iter()
                .map(|size| json!({"name": size.name, "rows": size.rows, "bytes": size.bytes}))
                .collect();
            return print_json(&json!({
                "chain_id": opened.genesis.chain_id(),
                "first_height": pruned,
                "height": tip.height,
                "journal_bytes": journal,
                "directory_bytes": all,
                "tables": tables,
            }));
        }
        let mib = |bytes: u64| format!("{:.2} MiB", bytes as f64 / 1_048_576.0);
        print_fields(&[
            ("blocks", format!("{pruned} to {}", tip.height)),
            ("state root", tip.state_root.to_string()),
            ("data directory", mib(all)),
            ("vote journal", mib(journal)),
        ])?;
        let lines: Vec<String> = sizes
            .iter()
            .map(|size| {
                let (rows, bytes) = (size.rows, mib(size.bytes));
                format!("  {:<13} {rows:>12} rows (about) {bytes:>14}", size.name)
            })
            .collect();
        print_lines(&lines)
    }
}

impl Prune {
    fn run(self) -> anyhow::Result<()> {
        let opened = open(&self.control, Use::Write)?;
        if opened.store.is_syncing()? {
            let path = opened.data.join("db");
            return Err(StoreError::Syncing { path }.into());
        }
        let before = check::folder_bytes(&opened.data.join("db"));
        let tip = opened.store.tip();
        let newest_ms = tip
            .block
            .as_ref()
            .map_or(0, |block| block.header().timestamp_ms);
        let (below, before_ms) = forgotten(self.keep, tip.height, newest_ms);
        let mut line = ProgressLine::new();
        let mut reached = opened.store.pruned_below()?;
        loop {
            let before = reached;
            reached = opened.store.prune_older(below, before_ms, 10_000)?;
            if reached >= below || reached == before {
                break;
            }
            line.show(format!("forgetting blocks: {reached} of {below}"));
        }
        line.show("giving the room back".to_owned());
        opened.store.compact();
        drop(line);
        let after = check::folder_bytes(&opened.data.join("db"));
        let mib = |bytes: u64| bytes as f64 / 1_048_576.0;
        print_lines(&[format!(
            "blocks from {} on are kept; the database went from {:.1} to {:.1} MiB",
            opened.store.pruned_below()?,
            mib(before),
            mib(after)
        )])
    }
}

/// Returns the limits of pruning: blocks below the height and older than the timestamp are removed.
fn forgotten(keep: Kept, newest: Height, newest_ms: u64) -> (Height, u64) {
    let (blocks, before_ms) = match keep {
        Kept::Blocks(0) => (u64::MAX, 0),
        Kept::Blocks(blocks) => (blocks, u64::MAX),
        Kept::Time(time) => {
            let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            (MIN_RETENTION_BLOCKS, newest_ms.saturating_sub(time))
        }
    };
    (Height((newest.0 + 1).saturating_sub(blocks)), before_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_forgotten_goes_by_number_or_by_age_and_the_newest_stay() {
        let forgotten = |keep| forgotten(keep, Height(50_000), 1_000_000);
        assert_eq!(forgotten(Kept::Blocks(20_000)), (Height(30_001), u64::MAX));
        assert_eq!(forgotten(Kept::Blocks(90_000)).0, Height(0));
        assert_eq!(forgotten(Kept::Blocks(0)), (Height(0), 0));
        let minute = Kept::Time(Duration::from_secs(60));
        assert_eq!(forgotten(minute), (Height(40_001), 940_000));
        let ever = Kept::Time(Duration::MAX);
        assert_eq!(forgotten(ever).1, 0);
    }
}
