//! Real runs of the real programs. They need Go and, for the first time, the network and some minutes:
//! `cargo test -p quorate-others --test runs -- --ignored --test-threads 1`.

use std::path::PathBuf;
use std::time::Duration;

use quorate_others::{Figures, Load, System, named};

/// Where programs are installed; `QUORATE_OTHERS` names a folder that is kept.
fn cache(folder: &tempfile::TempDir) -> PathBuf {
    match std::env::var_os("QUORATE_OTHERS") {
        Some(cache) => PathBuf::from(cache),
        None => folder.path().join("cache"),
    }
}

fn run(name: &str, base_port: u16) -> Figures {
    let system: &dyn System = named(name).expect("the system is known");
    let folder = tempfile::tempdir().expect("a folder");
    let cache = cache(&folder);
    system.install(&cache).expect("it is installed");
    let load = Load {
        validators: 4,
        rate: 100.0,
        transaction_bytes: 161,
        warm_up: Duration::from_secs(2),
        measure: Duration::from_secs(5),
        drain: Duration::from_secs(5),
    };
    let figures = system
        .run(&cache, &folder.path().join("run"), base_port, &load)
        .expect("it runs");
    let offered = figures.offered_per_s;
    assert!((90.0..110.0).contains(&offered), "{figures:?}");
    assert!(
        (80.0..120.0).contains(&figures.goodput_per_s),
        "{figures:?}"
    );
    assert!(figures.unfinished_percent <= 1.0, "{figures:?}");
    assert!((1.0..2_000.0).contains(&figures.block_ms), "{figures:?}");
    assert!(
        figures.latency_p50_ms <= figures.latency_p99_ms,
        "{figures:?}"
    );
    assert!(
        (1.0..5_000.0).contains(&figures.latency_p50_ms),
        "{figures:?}"
    );
    let cpu = figures.cpu_ms_per_block_and_node;
    assert!((0.1..2_000.0).contains(&cpu), "{figures:?}");
    assert!(
        (10.0..4_000.0).contains(&figures.memory_mib_max),
        "{figures:?}"
    );
    let a_block = figures.goodput_per_s * figures.block_ms / 1e3;
    let told = figures.transactions_per_block;
    assert!((told / a_block - 1.0).abs() < 0.05, "{figures:?}");
    figures
}

#[test]
#[ignore = "installs and runs CometBFT"]
fn cometbft_carries_the_load() {
    run("cometbft", 31_200);
}

#[test]
#[ignore = "installs and runs CometBFT"]
fn cometbft_is_quicker_when_its_threads_hardly_sleep() {
    let (shipped, quick) = (run("cometbft", 31_300), run("cometbft-quick", 31_400));
    assert!(quick.block_ms < shipped.block_ms, "{quick:?} {shipped:?}");
}
