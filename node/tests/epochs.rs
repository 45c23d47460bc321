//! Epoch borders in real processes.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::Net;

/// Epochs of 20 blocks, at least ten borders, with a kill somewhere around each.
#[tokio::test(flavor = "multi_thread")]
async fn ten_borders_with_kills_around_them() {
    for scheme in ["bls-threshold", "bls-aggregate"] {
        let mut net = Net::start_with("borders", 4, scheme, 20).await;
        let load = net.load(100.0);
        for border in 1..=10_u64 {
            let victim = (border % 4) as usize;
            let witness = (victim + 1) % 4;
            net.reach(witness, border * 20 - 3).await;
            net.network.kill(victim).unwrap();
            net.network.spawn(victim, &[]).unwrap();
            net.reach(victim, border * 20 + 2).await;
        }
        for place in 0..4 {
            net.network.kill(place).unwrap();
        }
        for place in 0..4 {
            net.network.spawn(place, &[]).unwrap();
        }
        for place in 0..4 {
            net.reach(place, 240).await;
            let status = net.network.client(place).status().await.unwrap();
            assert!(status.epoch >= 11, "{status:?}");
        }
        assert!(load.stop().await.total.finalized > 0);
        net.stop_and_check().await;
    }
}
