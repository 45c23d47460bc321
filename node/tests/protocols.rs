//! Each protocol beside simplex in real processes, under load, with both vote schemes: a validator that is killed costs its
//! own turns, and comes back over borders between epochs. Counts and ratios, not times.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{LAB, Net};
use quorate_node::localnet::Network;
use quorate_storage::store::Store;
use quorate_types::{
    EpochLength, Height,
    genesis::{Protocol, Turns},
};

use std::{collections::BTreeMap, path::Path};

/// Final blocks while one of four is away.
const BLOCKS: u64 = 240;

async fn position(net: &Net) -> (u64, u64) {
    let status = net.network.client(0).status().await.unwrap();
    (status.view.0, status.finalized_height.0)
}

async fn goes_on_without_one(protocol: Protocol, scheme: &str) {
    let mut net = Net::start_changed("protocols", 4, |settings| {
        settings.protocol = protocol;
        settings.scheme = scheme.to_owned();
        settings.epoch_blocks = EpochLength::new(1_000_000).unwrap();
    })
    .await;
    let load = net.load(100.0);
    net.grow(0, 50).await;
    net.network.kill(2).unwrap();
    net.grow(0, 20).await;
    let (first_view, first_height) = position(&net).await;
    net.grow(0, BLOCKS).await;
    let (last_view, last_height) = position(&net).await;
    let (views, blocks) = (last_view - first_view, last_height - first_height);
    eprintln!(
        "{protocol:?}, {scheme}: {blocks} final blocks in {views} views with one of four away"
    );
    // A leader that stays leads no turn while it is away, and views jump where it would.
    let turns = match protocol {
        Protocol::Pbft => 0,
        _ => views / Turns::of(protocol).length(4),
    };
    assert!(blocks * 2 >= turns, "{}", net.describe().await);
    net.network.spawn(2, &[]).unwrap();
    let height = net.height(0).await;
    net.reach(2, height + 30).await;
    let report = load.stop().await;
    net.until_nothing_waits().await;
    assert_eq!(
        (report.total.failed, report.total.lost),
        (0, 0),
        "{report:?}"
    );
    net.stop_and_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn chained_hotstuff_goes_on_without_one_of_four() {
    for scheme in ["bls-threshold", "bls-aggregate"] {
        goes_on_without_one(Protocol::HotstuffChained, scheme).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn basic_hotstuff_goes_on_without_one_of_four() {
    for scheme in ["bls-threshold", "bls-aggregate"] {
        goes_on_without_one(Protocol::HotstuffBasic, scheme).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pbft_goes_on_without_one_of_four() {
    for scheme in ["bls-threshold", "bls-aggregate"] {
        goes_on_without_one(Protocol::Pbft, scheme).await;
    }
}

/// Borders between epochs come every 40 blocks, and each of the validators is killed once.
async fn crosses_borders_while_validators_are_killed(protocol: Protocol) {
    let mut net = Net::start_changed("borders", 4, |settings| {
        settings.protocol = protocol;
        settings.epoch_blocks = EpochLength::new(40).unwrap();
    })
    .await;
    let load = net.load(50.0);
    for victim in 0..4 {
        let other = (victim + 1) % 4;
        net.grow(other, 60).await;
        net.network.kill(victim).unwrap();
        net.grow(other, 60).await;
        net.network.spawn(victim, &[]).unwrap();
        let height = net.height(other).await;
        net.reach(victim, height + 10).await;
    }
    load.stop().await;
    net.until_nothing_waits().await;
    net.stop_and_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_cross_borders_while_validators_are_killed() {
    for protocol in Protocol::ALL.into_iter().skip(1) {
        crosses_borders_while_validators_are_killed(protocol).await;
    }
}

/// Blocks of chained HotStuff are final three blocks later: leaders that do not look at what their block's ancestors hold
/// propose it again.
#[tokio::test(flavor = "multi_thread")]
async fn without_filtering_transfers_stand_in_several_blocks_and_are_paid_once() {
    let mut net = Net::start_changed("chaos-filtering", 4, |settings| {
        settings.protocol = Protocol::HotstuffChained;
    })
    .await;
    assert!(net.network.stop().is_empty());
    let path = net.path();
    net.network = Network::start_with(Path::new(LAB), &path, &net.settings, |_| {
        vec!["--filtering".to_owned(), "off".to_owned()]
    })
    .unwrap();
    net.network.wait_until_up().await.unwrap();
    let load = net.load(200.0);
    net.grow(0, 200).await;
    let report = load.stop().await;
    net.until_nothing_waits().await;
    let paid = report.total.finalized;
    assert!(paid > 0 && report.total.lost == 0, "{report:?}");
    let (genesis, folder) = (net.genesis.clone(), net.stop_and_keep());
    let mut roots: BTreeMap<Height, _> = BTreeMap::new();
    for place in 0..4 {
        let database = folder.path().join(format!("net/validator-{place}/data/db"));
        let (store, _tree) = Store::open(&database, &genesis).unwrap();
        let mut held: BTreeMap<_, (u64, u64)> = BTreeMap::new();
        let mut height = Height(1);
        while height <= store.tip().height {
            let root = store.root(height).unwrap().unwrap();
            assert_eq!(*roots.entry(height).or_insert(root), root, "{height}");
            for receipt in store.receipts(height).unwrap().unwrap() {
                let (times, used) = held.entry(receipt.transaction).or_default();
                *times += 1;
                *used += u64::from(receipt.outcome.used_nonce());
            }
            height = height.next();
        }
        let used: u64 = held.values().map(|(_, used)| used).sum();
        assert!(used >= paid, "{used} {paid}");
        assert!(held.values().all(|(_, used)| *used == 1));
        assert!(held.values().any(|(times, _)| *times > 1));
    }
}
