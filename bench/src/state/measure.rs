//! Loads a subject, and measures it.

use super::{
    Applied, StateArgs, Subject, process,
    workload::{Transfers, absent_key, account_key, genesis},
};
use anyhow::{Context, ensure};
use quorate_storage::tree::Key;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::{Duration, Instant},
};

/// How many accounts are written at once when loading.
const LOAD_ACCOUNTS: u64 = 20_000;

const MEBI: f64 = 1_048_576.0;

/// Writes all accounts.
pub(super) fn load<S: Subject>(args: &StateArgs, folder: &Path) -> anyhow::Result<Value> {
    let start = Instant::now();
    let mut subject = S::open(folder, args.cache << 20)?;
    let mut from = 0;
    while from < args.accounts {
        let to = args.accounts.min(from + LOAD_ACCOUNTS);
        subject.apply(
            (from..to)
                .map(|index| (account_key(index), genesis(index)))
                .collect(),
        )?;
        from = to;
        if from % (LOAD_ACCOUNTS * 10) == 0 || from == args.accounts {
            eprintln!(
                "loaded {from} accounts in {:.1} s",
                start.elapsed().as_secs_f64()
            );
        }
    }
    let mut wait = rocksdb::WaitForCompactOptions::default();
    wait.set_flush(true);
    subject
        .database()
        .wait_for_compact(&wait)
        .context("compacting what was loaded")?;
    Ok(json!({ "load_s": start.elapsed().as_secs_f64() }))
}

/// What the measured blocks cost together.
#[derive(Default)]
struct Sum {
    keys: usize,
    read: Duration,
    thread: Duration,
    read_bytes: u64,
    prepare: Duration,
    write: Duration,
    commit: Duration,
    bytes: usize,
    rows: usize,
    /// µs per key.
    slowest_block: f64,
}

impl Sum {
    fn add(&mut self, keys: usize, read: Duration, applied: &Applied) {
        let total = applied.prepare + applied.write + applied.commit;
        self.keys += keys;
        self.read += read;
        self.prepare += applied.prepare;
        self.write += applied.write;
        self.commit += applied.commit;
        self.bytes += applied.bytes;
        self.rows += applied.rows;
        self.slowest_block = self.slowest_block.max(micros(total) / keys as f64);
    }
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// Opens what was loaded, runs the blocks, and makes proofs.
pub(super) fn measure<S: Subject>(args: &StateArgs, folder: &Path) -> anyhow::Result<Value> {
    let start = Instant::now();
    let mut subject = S::open(folder, args.cache << 20)?;
    let open_ms = start.elapsed().as_secs_f64() * 1e3;
    let (rss_open, _) = process::memory()?;

    let mut transfers = Transfers::new(args.accounts);
    for _ in 0..args.warm_up {
        subject.apply(transfers.block(args.transfers))?;
    }
    let mut sum = Sum::default();
    let written = process::written_bytes()?;
    let cpu = process::cpu()?;
    let mut last = BTreeMap::new();
    for block in 1..=args.blocks {
        let updates = transfers.block(args.transfers);
        last.clone_from(&updates);
        let keys: BTreeSet<Key> = updates.keys().copied().collect();
        let before = subject.read_bytes();
        let thread = process::thread_cpu()?;
        let start = Instant::now();
        let values = subject.read_block(&keys)?;
        let reading = start.elapsed();
        ensure!(values.iter().all(Option::is_some), "an account is missing");
        let applied = subject.apply(updates)?;
        sum.thread += process::thread_cpu()? - thread;
        sum.read_bytes += subject.read_bytes() - before;
        sum.add(keys.len(), reading, &applied);
        if block % 10 == 0 {
            eprintln!("block {block} of {}", args.blocks);
        }
    }
    let cpu = process::cpu()? - cpu;
    let written = process::written_bytes()? - written;
    let (rss, rss_peak) = process::memory()?;

    let proofs = prove_all(&subject, args, &mut transfers, &last)?;
    let per_key = |number: f64| number / sum.keys as f64;
    let mut report = json!({
        "update_us_per_key": per_key(micros(sum.prepare + sum.write + sum.commit)),
        "prepare_us_per_key": per_key(micros(sum.prepare)),
        "write_us_per_key": per_key(micros(sum.write)),
        "commit_us_per_key": per_key(micros(sum.commit)),
        "slowest_block_us_per_key": sum.slowest_block,
        "cpu_us_per_key": per_key(micros(cpu)),
        "read_us_per_key": per_key(micros(sum.read)),
        "thread_us_per_key": per_key(micros(sum.thread)),
        "rows_written_per_key": per_key(sum.rows as f64),
        "bytes_written_per_key": per_key(sum.bytes as f64),
        "bytes_read_per_key": per_key(sum.read_bytes as f64),
        "file_bytes_written_per_key": per_key(written as f64),
        "open_ms": open_ms,
        "rss_open_mib": rss_open as f64 / MEBI,
        "rss_mib": rss as f64 / MEBI,
        "rss_peak_mib": rss_peak as f64 / MEBI,
        "disk_mib": process::folder_bytes(folder)? as f64 / MEBI,
        "changed_keys": sum.keys,
    });
    if let (Value::Object(report), Value::Object(proofs)) = (&mut report, proofs) {
        report.extend(proofs);
    }
    Ok(report)
}

/// Proves random accounts and absent keys, and checks each proof.
fn prove_all<S: Subject>(
    subject: &S,
    args: &StateArgs,
    transfers: &mut Transfers,
    last: &BTreeMap<Key, Vec<u8>>,
) -> anyhow::Result<Value> {
    // The last block's accounts first: their values are known from outside the subject.
    let mut present: Vec<Key> = last
        .keys()
        .copied()
        .take(args.proofs as usize / 2)
        .collect();
    while present.len() < args.proofs as usize {
        present.push(account_key(transfers.account()));
    }
    let (mut proving, mut verifying) = (Duration::ZERO, Duration::ZERO);
    let mut sizes = [Vec::new(), Vec::new()];
    let absent: Vec<Key> = (0..args.proofs).map(absent_key).collect();
    for (keys, sizes) in [present, absent].iter().zip(&mut sizes) {
        for key in keys {
            let start = Instant::now();
            let proof = subject.prove(key)?;
            proving += start.elapsed();
            let value = match last.get(key) {
                Some(value) => Some(value.clone()),
                None => subject.get(key)?,
            };
            let start = Instant::now();
            subject.verify(key, value.as_deref(), &proof)?;
            verifying += start.elapsed();
            sizes.push(proof.len());
        }
    }
    let mean = |sizes: &[usize]| sizes.iter().sum::<usize>() as f64 / sizes.len() as f64;
    Ok(json!({
        "proof_bytes": mean(&sizes[0]),
        "proof_bytes_max": sizes[0].iter().max(),
        "absence_bytes": mean(&sizes[1]),
        "prove_us": micros(proving) / (2 * args.proofs) as f64,
        "verify_us": micros(verifying) / (2 * args.proofs) as f64,
    }))
}
