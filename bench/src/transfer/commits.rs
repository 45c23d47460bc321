//! How long commits take beside snapshots that are taken and served.

use super::{
    progress::Progress,
    report::{Figures, figures},
    rig::copy,
    state::{account, genesis, identity, make, next_block},
};
use anyhow::Context;
use commonware_codec::EncodeSize as _;
use quorate_node::priority::{Yields, lower_this_thread};
use quorate_storage::{
    store::{Commit, Served, StateSnapshot, Store, Undo, tree_updates},
    tree::CHUNK_MAX_ENTRIES,
};
use quorate_types::{Account, Height, Identity, Span};
use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// Blocks that are committed.
const BLOCKS: u64 = 1_000;

/// Accounts that each changes.
const CHANGED: u64 = 500;

/// Blocks between snapshots.
const INTERVAL: u64 = 10;

/// Bytes a second that are served at most.
const SERVED: u64 = 125_000_000;

/// The times of commits without and with snapshots.
pub(super) fn run(accounts: u64, folder: &Path, progress: &Progress) -> anyhow::Result<Figures> {
    let genesis = genesis(1);
    let made = folder.join("commits");
    if !made.exists() {
        make(&made, &genesis, accounts, progress)?;
    }
    let without = commits(&made, accounts, None, progress)?;
    let taken = commits(&made, accounts, Some(0), progress)?;
    let some = commits(&made, accounts, Some(SERVED / 10), progress)?;
    let full = commits(&made, accounts, Some(SERVED), progress)?;
    Ok(figures([
        ("without snapshots: p50, ms", without.p50),
        ("without snapshots: p99, ms", without.p99),
        ("taken: p50, ms", taken.p50),
        ("taken, served at 100 Mbit/s: p50, ms", some.p50),
        ("taken, served at 1 Gbit/s: p50, ms", full.p50),
        ("B9: p99 more, taken, ms", taken.p99 - without.p99),
        (
            "B9: p99 more, served at 100 Mbit/s, ms",
            some.p99 - without.p99,
        ),
        (
            "B9: p99 more, served at 1 Gbit/s, ms",
            full.p99 - without.p99,
        ),
        ("longest pin, ms", taken.longest_pin.max(full.longest_pin)),
        ("served at 1 Gbit/s, MB/s", full.served_mb_per_s),
    ]))
}

struct Times {
    p50: f64,
    p99: f64,
    longest_pin: f64,
    served_mb_per_s: f64,
}

/// Commits beside snapshots of which so many bytes a second are served; `None` without any.
fn commits(
    made: &Path,
    accounts: u64,
    rate: Option<u64>,
    progress: &Progress,
) -> anyhow::Result<Times> {
    let folder = tempfile::tempdir_in(made.parent().context("a folder")?)?;
    let database = folder.path().join("db");
    copy(made, &database)?;
    let genesis = genesis(1);
    let (store, mut tree) = Store::open(&database, &genesis)?;
    let newest: Arc<Mutex<Option<Arc<StateSnapshot>>>> = Arc::default();
    let ending = Arc::new(AtomicBool::new(false));
    let served = Arc::new(AtomicU64::new(0));
    let server = rate.filter(|rate| *rate > 0).map(|rate| {
        let (newest, ending, served) = (newest.clone(), ending.clone(), served.clone());
        thread::spawn(move || serve(accounts, rate, &newest, &ending, &served))
    });
    let began = Instant::now();
    let mut took = Vec::new();
    let mut longest_pin = Duration::ZERO;
    for number in 0..BLOCKS {
        let changed: BTreeMap<Identity, Account> = (0..CHANGED)
            .map(|place| {
                let one = (number * 7_919 + place * 104_729) % accounts;
                (identity(one), account(one, 1 + number))
            })
            .collect();
        let begin = Instant::now();
        let changes = tree.prepare(&tree_updates(&changed))?;
        let block = Arc::new(next_block(&store, &genesis, tree.root())?);
        store.commit(
            &tree,
            Commit {
                set: None,
                block,
                certificate: None,
                outcomes: Vec::new(),
                accounts: &changed,
                // As large as the values that it replaces.
                undo: Undo::of(&changed, &[]),
                changes: &changes,
                sync: true,
            },
        )?;
        tree.commit(changes);
        if rate.is_some() && number % INTERVAL == 0 {
            let pinning = Instant::now();
            let state = Arc::new(store.pin());
            longest_pin = longest_pin.max(pinning.elapsed());
            *newest.lock().expect("no panic") = Some(state);
        }
        took.push(begin.elapsed().as_secs_f64() * 1e3);
        progress.add(1.0 / BLOCKS as f64);
    }
    let seconds = began.elapsed().as_secs_f64();
    ending.store(true, Relaxed);
    if let Some(server) = server {
        server.join().expect("no panic")?;
    }
    took.sort_by(f64::total_cmp);
    Ok(Times {
        p50: took[took.len() / 2],
        p99: took[took.len() * 99 / 100],
        longest_pin: longest_pin.as_secs_f64() * 1e3,
        served_mb_per_s: served.load(Relaxed) as f64 / 1e6 / seconds,
    })
}

/// Reads and hashes one part after the other, so many bytes a second.
fn serve(
    accounts: u64,
    rate: u64,
    newest: &Mutex<Option<Arc<StateSnapshot>>>,
    ending: &AtomicBool,
    served: &AtomicU64,
) -> anyhow::Result<()> {
    let full = accounts as f64 / (CHUNK_MAX_ENTRIES as f64 * 0.7);
    let bits = full.log2().ceil().max(0.0) as usize;
    // As the node's thread that serves parts.
    lower_this_thread(Yields::Most);
    let began = Instant::now();
    let mut place = 0_u32;
    while !ending.load(Relaxed) {
        let state = newest.lock().expect("no panic").clone();
        let due = Duration::from_secs_f64(served.load(Relaxed) as f64 / rate as f64);
        let Some(state) = state.filter(|_| began.elapsed() >= due) else {
            thread::sleep(Duration::from_millis(1));
            continue;
        };
        let mut key = [0; 32];
        key[..4].copy_from_slice(&place.reverse_bits().to_be_bytes());
        place = (place + 1) % (1 << bits);
        let span = Span::of(&key, bits).context("as many bits as a key has")?;
        if let Served::Chunk(chunk) = state.chunk(&span, Height(0))? {
            served.fetch_add(chunk.encode_size() as u64, Relaxed);
        }
    }
    Ok(())
}
