//! Each protocol beside simplex in real processes, under load, with both vote schemes: a validator that is killed costs its
//! own turns, and comes back over borders between epochs. Counts and ratios, not times.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::Net;
use quorate_types::{
    EpochLength,
    genesis::{Protocol, Turns},
};

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
    net.stop_and_check();
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
    net.stop_and_check();
}

#[tokio::test(flavor = "multi_thread")]
async fn all_cross_borders_while_validators_are_killed() {
    for protocol in Protocol::ALL.into_iter().skip(1) {
        crosses_borders_while_validators_are_killed(protocol).await;
    }
}
