//! Consensus while a node fetches the state: the same network, in turns alone, beside a follower that fetches
//! the state again and again, and beside a process that is as busy as that follower and does nothing else.
//!
//! The follower stands for a machine of its own, so its process gets what processor time the others
//! leave (`renice`). It disturbs them all the same, as any process beside them does: that is what the third part
//! is for. What remains is what serving it costs the validators.

use super::{
    progress::Progress,
    report::{Figures, figures},
};
use crate::{
    ours::{OurNetwork, beside, end},
    state::process,
};
use anyhow::{Context, ensure};
use quorate_node::{
    genesis::validator_directory,
    localnet::{Network, Sample, setup::follower_directory},
};
use quorate_storage::store::Store;
use quorate_types::{Height, genesis::Genesis};
use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Accounts in the genesis file: 10 MB of a snapshot.
const ACCOUNTS: u32 = 200_000;

/// What the validators give to those who fetch, in Mbit/s.
const UPLOAD_MBIT: u64 = 100;

/// How long each part is measured.
const PART: Duration = Duration::from_secs(20);

/// How long the follower may take for the state.
const SYNC_LIMIT: Duration = Duration::from_secs(60);

/// One round: all three parts.
pub(super) fn run(base_port: u16, progress: &Progress) -> anyhow::Result<Figures> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    runtime.block_on(measure(base_port, progress))
}

async fn measure(base_port: u16, progress: &Progress) -> anyhow::Result<Figures> {
    let binary = beside("quorate")?;
    let net = OurNetwork::prepare("consensus", 4, base_port, None, |settings| {
        settings.accounts = ACCOUNTS;
        settings.followers = 1;
        settings.block_interval_ms = 50;
    })?;
    for place in 0..4 {
        net.set_number(place, "upload_mbit", UPLOAD_MBIT)?;
    }
    // The blocks from the beginning are gone, so that the follower needs the state.
    let mut network = net.start(&binary, |_| Vec::new()).await?;
    network.kill_follower(0)?;
    while Sample::take(&network).await.height() < 40 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    network.stop();
    let text = fs::read_to_string(net.folder().join("genesis.json"))?;
    let genesis = Genesis::from_json(&text)?;
    for place in 0..4 {
        prune(&validator_directory(net.folder(), place), &genesis)?;
    }
    for place in 0..4 {
        network.spawn(place, &[])?;
    }
    network.wait_until_up().await?;
    while Sample::take(&network).await.height() < 80 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    let first = Sample::take(&network).await;
    wait(progress).await;
    let second = Sample::take(&network).await;
    let began = Instant::now();
    let mut syncs = 0;
    let mut busy = Duration::ZERO;
    while began.elapsed() < PART {
        let fetching = Instant::now();
        busy += fetch(&mut network, &net).await?;
        syncs += 1;
        progress.add(fetching.elapsed().as_secs_f64() / PART.as_secs_f64() / 3.0);
    }
    let third = Sample::take(&network).await;
    let cores = busy.as_secs_f64() / began.elapsed().as_secs_f64();
    let mut burner = burn(cores)?;
    let fourth = Sample::take(&network).await;
    wait(progress).await;
    let fifth = Sample::take(&network).await;
    burner.kill().context("ending a process of the benchmark")?;
    burner.wait()?;
    let (without, with) = (second.since(&first), third.since(&second));
    let burning = fifth.since(&fourth);
    let nullified = |later: &Sample, earlier: &Sample| {
        later.growth(earlier, "quorate_consensus_nullify_votes_total")
    };
    let ms = |value: Option<f64>| value.unwrap_or(f64::NAN);
    let (block, finality) = (burning.block_time_ms.p99, burning.finality_ms.p99);
    let result = figures([
        ("without: block time p50, ms", ms(without.block_time_ms.p50)),
        ("without: block time p99, ms", ms(without.block_time_ms.p99)),
        ("without: finality p50, ms", ms(without.finality_ms.p50)),
        ("without: finality p99, ms", ms(without.finality_ms.p99)),
        ("as busy: block time p99, ms", ms(block)),
        ("as busy: finality p50, ms", ms(burning.finality_ms.p50)),
        ("as busy: finality p99, ms", ms(finality)),
        ("the follower, cores", cores),
        ("beside: block time p50, ms", ms(with.block_time_ms.p50)),
        ("beside: block time p99, ms", ms(with.block_time_ms.p99)),
        ("beside: finality p50, ms", ms(with.finality_ms.p50)),
        ("beside: finality p99, ms", ms(with.finality_ms.p99)),
        (
            "B6: block time p99, beside / as busy",
            ms(with.block_time_ms.p99) / ms(block),
        ),
        (
            "B6: finality p99, beside / as busy",
            ms(with.finality_ms.p99) / ms(finality),
        ),
        ("nullify votes without", nullified(&second, &first)),
        ("nullify votes beside", nullified(&third, &second)),
        ("states fetched", f64::from(syncs)),
    ]);
    end(network)?;
    Ok(result)
}

async fn wait(progress: &Progress) {
    for _ in 0..PART.as_secs() {
        tokio::time::sleep(Duration::from_secs(1)).await;
        progress.add(1.0 / PART.as_secs_f64() / 3.0);
    }
}

/// Starts a process that is so busy, and gets what processor time others leave.
fn burn(cores: f64) -> anyhow::Result<Child> {
    let percent = (cores * 100.0).round().to_string();
    let burner = Command::new(std::env::current_exe()?)
        .args(["transfer", "--role", "burn", "--busy-percent", &percent])
        .stdin(Stdio::piped())
        .spawn()
        .context("starting a process of the benchmark")?;
    yield_to_all(burner.id())?;
    Ok(burner)
}

/// Gives a process the lowest priority, and the threads that it starts from now on.
fn yield_to_all(process: u32) -> anyhow::Result<()> {
    let renice = Command::new("renice")
        .args(["-n", "19", "-p", &process.to_string()])
        .stdout(Stdio::null())
        .status();
    ensure!(
        renice.context("starting `renice`")?.success(),
        "renice failed"
    );
    Ok(())
}

/// Lets the follower fetch the state into an empty database. Returns its processor time.
async fn fetch(network: &mut Network, net: &OurNetwork) -> anyhow::Result<Duration> {
    let data = follower_directory(net.folder(), 0).join("data");
    if data.exists() {
        fs::remove_dir_all(&data)?;
    }
    network.spawn_follower(0)?;
    let process = network.follower_process(0).context("the follower")?;
    yield_to_all(process)?;
    let began = Instant::now();
    loop {
        ensure!(
            began.elapsed() < SYNC_LIMIT,
            "the follower does not get the state"
        );
        if let Ok(status) = network.follower(0).status().await
            && status
                .verdict
                .is_some_and(|verdict| verdict.state.name() == "healthy")
            && status.executed_height > Height(0)
        {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let busy = process::cpu_of(process)?;
    network.kill_follower(0)?;
    Ok(busy)
}

/// Forgets all but the newest blocks of a stopped validator.
fn prune(folder: &Path, genesis: &Genesis) -> anyhow::Result<()> {
    let (store, tree) = Store::open(&folder.join("data/db"), genesis)?;
    drop(tree);
    let below = Height(store.tip().height.0.saturating_sub(5));
    while store.prune(below, u64::MAX)? < below {}
    ensure!(
        store.close(Duration::from_secs(10)),
        "the database is in use"
    );
    Ok(())
}
