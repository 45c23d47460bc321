//! A link that never comes up between two honest validators, with real processes: the two have each other's
//! address wrong. Blocks a second against those of the full mesh, one after the other in the same run.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::Net;
use std::{fs, time::Duration};

const VALIDATORS: usize = 4;

/// How long blocks are counted.
const WINDOW: Duration = Duration::from_secs(4);

/// The least part of the full mesh's blocks. Without frames that others pass on it was a twentieth and
/// less; a busy machine is no clock.
const LEAST: f64 = 0.5;

async fn pace(net: &Net) -> f64 {
    let before = net.height(0).await;
    let start = std::time::Instant::now();
    tokio::time::sleep(WINDOW).await;
    (net.height(0).await - before) as f64 / start.elapsed().as_secs_f64()
}

/// Makes a validator look for another where nobody is, or where it is.
fn misplace(net: &Net, place: usize, other: usize, wrong: bool) {
    let path = net.config(place);
    let text = fs::read_to_string(&path).unwrap();
    let address = net.settings.p2p_address(other).to_string();
    let (nowhere, right) = (
        "address = \"127.0.0.1:9\"".to_owned(),
        format!("address = \"{address}\""),
    );
    let (from, to) = if wrong {
        (&right, &nowhere)
    } else {
        (&nowhere, &right)
    };
    assert!(text.contains(from.as_str()), "{text}");
    fs::write(&path, text.replacen(from.as_str(), to, 1)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_is_missing_for_good_costs_a_part_of_the_blocks_only() {
    let mut net = Net::start_with("holes", VALIDATORS, "bls-threshold", 100_000).await;
    let (mut whole, mut holes) = (0.0, 0.0);
    for wrong in [false, true, true, false] {
        for (place, other) in [(1, 2), (2, 1)] {
            net.network.kill(place).unwrap();
            let text = fs::read_to_string(net.config(place)).unwrap();
            if wrong == text.contains(&net.settings.p2p_address(other).to_string()) {
                misplace(&net, place, other, wrong);
            }
        }
        for place in [1, 2] {
            net.network.spawn(place, &[]).unwrap();
        }
        net.network.wait_until_up().await.unwrap();
        net.until("the links are as they are to be", async |net| {
            let status = net.network.client(1).status().await.unwrap();
            let down = status.peers.iter().filter(|peer| !peer.connected);
            let down: Vec<usize> = down
                .map(|peer| peer.validator.unwrap().as_usize())
                .collect();
            down == if wrong { vec![2] } else { Vec::new() }
        })
        .await;
        net.until("the status tells of it", async |net| {
            let status = net.network.client(1).status().await.unwrap();
            let notes = status.verdict.unwrap().notes.join("; ");
            notes.contains("no link to validator 2") == wrong
        })
        .await;
        // What is not linked three seconds after the start counts as apart.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let blocks = pace(&net).await;
        *if wrong { &mut holes } else { &mut whole } += blocks / 2.0;
    }
    eprintln!(
        "{whole:.1} blocks/s, {holes:.1} without a link ({:.0} %)",
        100.0 * holes / whole
    );
    // Each of them leads and executes all the same.
    let height = net.height(0).await;
    for place in 0..VALIDATORS {
        net.reach(place, height).await;
    }
    assert!(holes >= LEAST * whole, "{holes} of {whole}");
    net.stop_and_check().await;
}
