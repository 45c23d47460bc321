//! Compares the authenticated state with its peer: the costs of a block's changes, of a proof, and
//! of opening the database.
//!
//! All subjects see the same accounts and transfers, on RocksDB with the same options and block
//! cache, and write one batch per block to the log without syncing it. Each is loaded by one
//! process and measured by another, so that opening is a real opening and memory is that of the
//! measured phase.

mod jellyfish;
mod measure;
pub(crate) mod process;
mod trie;
mod workload;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use measure::{load, measure};
use quorate_storage::tree::{Key, column_options};
use rocksdb::{Cache, ColumnFamilyDescriptor, DB, Options};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

/// What to run.
#[derive(Args, Clone)]
pub struct StateArgs {
    /// Number of accounts before the first block.
    #[arg(long, default_value_t = 1_000_000)]
    accounts: u64,
    /// Number of blocks measured.
    #[arg(long, default_value_t = 50)]
    blocks: u64,
    /// Number of warm-up blocks before the measured ones.
    #[arg(long, default_value_t = 10)]
    warm_up: u64,
    /// Transfers in a block; each changes two random accounts.
    #[arg(long, default_value_t = 500)]
    transfers: u64,
    /// Number of existing keys to prove, and of keys without an account.
    #[arg(long, default_value_t = 2_000)]
    proofs: u64,
    /// Block cache in megabytes (2^20 bytes).
    #[arg(long, default_value_t = 32)]
    cache: usize,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Run only these subjects.
    #[arg(long, value_enum)]
    subject: Vec<SubjectName>,
    /// Folder for the databases (default: the temporary folder).
    #[arg(long)]
    folder: Option<PathBuf>,
    /// What a process started by this one does.
    #[arg(long, hide = true, value_enum)]
    phase: Option<Phase>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Phase {
    Load,
    Measure,
}

/// The trees that are compared.
#[derive(Clone, Copy, ValueEnum)]
enum SubjectName {
    /// This node's tree.
    Trie,
    /// `jmt` whose stale nodes are deleted with the block that makes them stale.
    JmtPruned,
    /// `jmt` that keeps every version.
    Jmt,
}

impl SubjectName {
    fn text(self) -> &'static str {
        match self {
            Self::Trie => "trie",
            Self::JmtPruned => "jmt-pruned",
            Self::Jmt => "jmt",
        }
    }
}

/// The costs of a block's changes.
struct Applied {
    /// Computing the new root and rows.
    prepare: Duration,
    /// Writing the batch.
    write: Duration,
    /// Updating the in-memory state after the write.
    commit: Duration,
    /// Bytes of the keys and rows in the batch.
    bytes: usize,
    /// Rows in the batch, deletions included.
    rows: usize,
}

/// An authenticated state on RocksDB.
trait Subject: Sized {
    fn open(path: &Path, cache_bytes: usize) -> anyhow::Result<Self>;
    fn database(&self) -> &DB;
    fn get(&self, key: &Key) -> anyhow::Result<Option<Vec<u8>>>;
    /// Reads the values of all keys of a block, in order, before it is executed.
    fn read_block(&mut self, keys: &BTreeSet<Key>) -> anyhow::Result<Vec<Option<Vec<u8>>>>;
    fn apply(&mut self, updates: BTreeMap<Key, Vec<u8>>) -> anyhow::Result<Applied>;
    /// The bytes of a proof of the key's value, or of its absence.
    fn prove(&self, key: &Key) -> anyhow::Result<Vec<u8>>;
    /// Fails unless the bytes prove this value.
    fn verify(&self, key: &Key, value: Option<&[u8]>, proof: &[u8]) -> anyhow::Result<()>;
    /// Bytes read from the store by this process so far: rows, not blocks.
    fn read_bytes(&self) -> u64;
}

/// Opens a database with these column families, all with the node's options.
fn open_database(path: &Path, columns: &[&str], cache_bytes: usize) -> anyhow::Result<DB> {
    let cache = Cache::new_lru_cache(cache_bytes);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_max_total_wal_size(64 << 20);
    let columns = columns
        .iter()
        .map(|column| ColumnFamilyDescriptor::new(*column, column_options(&cache)));
    DB::open_cf_descriptors(&options, path, columns)
        .with_context(|| format!("opening {}", path.display()))
}

/// Runs all subjects and prints the report.
///
/// # Errors
/// If a subject fails, or a proof does not hold.
pub fn run(args: &StateArgs) -> anyhow::Result<()> {
    if let Some(phase) = args.phase {
        return run_phase(args, phase);
    }
    let subjects = if args.subject.is_empty() {
        SubjectName::value_variants().to_vec()
    } else {
        args.subject.clone()
    };
    let mut reports = Vec::new();
    for subject in subjects {
        let folder = match &args.folder {
            Some(folder) => tempfile::tempdir_in(folder),
            None => tempfile::tempdir(),
        }
        .context("making a folder for the database")?;
        let loaded = start(args, subject, "load", folder.path())?;
        let mut report = start(args, subject, "measure", folder.path())?;
        report["load_s"] = loaded["load_s"].clone();
        reports.push((subject.text(), report));
    }
    if args.json {
        let reports: BTreeMap<_, _> = reports.into_iter().collect();
        let report = serde_json::json!({
            "accounts": args.accounts,
            "blocks": args.blocks,
            "transfers": args.transfers,
            "cache_mib": args.cache,
            "subjects": reports,
        });
        println!("{report:#}");
    } else {
        print_table(args, &reports);
    }
    Ok(())
}

/// Runs a phase in a separate process and reads its report.
fn start(
    args: &StateArgs,
    subject: SubjectName,
    phase: &str,
    folder: &Path,
) -> anyhow::Result<Value> {
    let program = std::env::current_exe().context("finding this program")?;
    let output = Command::new(program)
        .args([
            "state",
            "--phase",
            phase,
            "--subject",
            subject.text(),
            "--folder",
        ])
        .arg(folder)
        .args(["--accounts", &args.accounts.to_string()])
        .args(["--blocks", &args.blocks.to_string()])
        .args(["--warm-up", &args.warm_up.to_string()])
        .args(["--transfers", &args.transfers.to_string()])
        .args(["--proofs", &args.proofs.to_string()])
        .args(["--cache", &args.cache.to_string()])
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("running {} {phase}", subject.text()))?;
    if !output.status.success() {
        bail!("{} {phase} failed", subject.text());
    }
    serde_json::from_slice(&output.stdout).context("reading the report of a phase")
}

fn run_phase(args: &StateArgs, phase: Phase) -> anyhow::Result<()> {
    let (Some(folder), [subject]) = (&args.folder, args.subject.as_slice()) else {
        bail!("a phase needs a folder and one subject");
    };
    let report = match (phase, subject) {
        (Phase::Load, SubjectName::Trie) => load::<trie::Trie>(args, folder)?,
        (Phase::Load, SubjectName::JmtPruned) => load::<jellyfish::Pruned>(args, folder)?,
        (Phase::Load, SubjectName::Jmt) => load::<jellyfish::Unpruned>(args, folder)?,
        (Phase::Measure, SubjectName::Trie) => measure::<trie::Trie>(args, folder)?,
        (Phase::Measure, SubjectName::JmtPruned) => measure::<jellyfish::Pruned>(args, folder)?,
        (Phase::Measure, SubjectName::Jmt) => measure::<jellyfish::Unpruned>(args, folder)?,
    };
    println!("{report}");
    Ok(())
}

/// The lines of the table: the report's field, its label, decimals.
const LINES: &[(&str, &str, usize)] = &[
    ("read_us_per_key", "read before executing, µs per key", 1),
    ("update_us_per_key", "update, µs per changed key", 1),
    ("prepare_us_per_key", "  prepare", 1),
    ("write_us_per_key", "  write", 1),
    ("commit_us_per_key", "  commit", 1),
    ("slowest_block_us_per_key", "slowest block, µs per key", 1),
    (
        "thread_us_per_key",
        "CPU, reading and updating, µs per key",
        1,
    ),
    (
        "cpu_us_per_key",
        "CPU with background threads, µs per key",
        1,
    ),
    ("rows_written_per_key", "rows written per key", 1),
    ("bytes_written_per_key", "bytes written per key", 0),
    ("bytes_read_per_key", "bytes read per key", 0),
    (
        "file_bytes_written_per_key",
        "bytes to files per key (log, compaction)",
        0,
    ),
    ("proof_bytes", "proof of a value, bytes", 0),
    ("proof_bytes_max", "  the longest", 0),
    ("absence_bytes", "proof of absence, bytes", 0),
    ("prove_us", "make a proof, µs", 1),
    ("verify_us", "verify a proof, µs", 1),
    ("open_ms", "open, ms", 1),
    ("rss_open_mib", "memory after opening, MiB", 0),
    ("rss_mib", "memory at the end, MiB", 0),
    ("rss_peak_mib", "memory at most, MiB", 0),
    ("disk_mib", "database, MiB", 0),
    ("load_s", "loading all accounts, s", 1),
];

fn print_table(args: &StateArgs, reports: &[(&str, Value)]) {
    println!(
        "{} accounts, {} blocks of {} transfers, block cache {} MiB",
        args.accounts, args.blocks, args.transfers, args.cache
    );
    print!("{:42}", "");
    reports.iter().for_each(|(name, _)| print!("{name:>12}"));
    println!();
    for (field, name, decimals) in LINES {
        print!("{name:42}");
        for (_, report) in reports {
            match report[field].as_f64() {
                Some(number) => print!("{number:>12.decimals$}"),
                None => print!("{:>12}", "-"),
            }
        }
        println!();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subject_is_loaded_opened_again_changed_and_proven() {
        for subject in SubjectName::value_variants() {
            let folder = tempfile::tempdir().expect("temporary folder");
            let args = StateArgs {
                accounts: 300,
                blocks: 3,
                warm_up: 1,
                transfers: 20,
                proofs: 50,
                cache: 1,
                json: true,
                subject: vec![*subject],
                folder: Some(folder.path().to_owned()),
                phase: None,
            };
            for phase in [Phase::Load, Phase::Measure] {
                run_phase(&args, phase).unwrap_or_else(|e| panic!("{}: {e:#}", subject.text()));
            }
            let mut more = args;
            more.accounts *= 10;
            run_phase(&more, Phase::Measure).expect_err("an account that was not loaded");
        }
    }
}
