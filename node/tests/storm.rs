//! Storms of `kill -9` over real processes under load: random victims at random moments, now and
//! then all of them at once, and others that are paused. Afterwards nothing that was final is lost, all
//! hold the same chain and state, no journal holds two votes that contradict each other, and every
//! transfer that a client was told is accepted is final and applied.
//!
//! A few kills in the first tier, 200 and more with `QUORATE_NIGHTLY=1`.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{LOAD_ACCOUNTS, Net, PATIENCE, promises::*};
use quorate_storage::journal::Journal;
use quorate_types::{Epoch, Record, View, VoteKind};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::{
    collections::BTreeMap,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

const VALIDATORS: usize = 7;

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_kills_and_pauses_loses_nothing_that_was_final_or_accepted() {
    let nightly = std::env::var_os("QUORATE_NIGHTLY").is_some();
    let kills = if nightly { 200 } else { 16 };
    let seed = 7;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut net = Net::start_with("storm", VALIDATORS, "bls-threshold", 50).await;
    let accounts = net.accounts().split_off(LOAD_ACCOUNTS);
    let urls = net.network.urls();
    let promises = Promises::start(&urls, net.genesis.chain_id(), accounts);
    net.grow(0, 20).await;
    let mut known = BTreeMap::new();
    let (mut killed, mut paused, mut rounds) = (0, 0, 0);
    let start = Instant::now();
    while killed < kills {
        rounds += 1;
        let all = rng.random_range(0..4) == 0;
        let victims: Vec<usize> = if all {
            (0..VALIDATORS).collect()
        } else {
            vec![rng.random_range(0..VALIDATORS)]
        };
        // What anybody was told is final must be there afterwards.
        let witness = rng.random_range(0..VALIDATORS);
        let height = net.height(witness).await;
        if height > 0 {
            let block = net.network.client(witness).block(&height.to_string()).await;
            if let Ok(block) = block {
                known.insert(height, block.id);
            }
        }
        tokio::time::sleep(Duration::from_micros(rng.random_range(0..400_000))).await;
        if !all && rng.random_range(0..3) == 0 {
            let process = net.network.process(victims[0]).unwrap();
            signal("-STOP", process);
            tokio::time::sleep(Duration::from_micros(rng.random_range(0..3_000_000))).await;
            signal("-CONT", process);
            paused += 1;
            continue;
        }
        for victim in &victims {
            net.network.kill(*victim).unwrap();
            killed += 1;
        }
        tokio::time::sleep(Duration::from_micros(rng.random_range(0..300_000))).await;
        for victim in &victims {
            net.network.spawn(*victim, &[]).unwrap();
        }
        net.network.wait_until_up().await.unwrap();
        // Now and then before anybody has made progress, now and then after.
        if rng.random_range(0..3) > 0 {
            let highest = known.keys().max().copied().unwrap_or(0);
            net.reach(victims[0], highest + 2).await;
        }
    }
    let highest = known.keys().max().copied().unwrap_or(0);
    for place in 0..VALIDATORS {
        net.reach(place, highest + 5).await;
        for (height, id) in &known {
            let block = net.network.client(place).block(&height.to_string()).await;
            assert_eq!(
                block.unwrap().id,
                *id,
                "block {height} at validator {place}"
            );
        }
    }
    let accepted = promises.stop().await;
    let took = start.elapsed().as_secs();
    net.until_nothing_waits().await;
    all_are_applied(&urls, &accepted, PATIENCE).await;
    eprintln!(
        "{killed} kills and {paused} pauses in {rounds} rounds and {took} s, {highest} blocks, {} \
         transfers were accepted",
        accepted.len()
    );
    assert!(accepted.len() > kills, "{}", accepted.len());
    let (path, genesis) = (net.path(), net.genesis.clone());
    let directory = net.stop_and_keep();
    common::check_databases(&path, &genesis, 0..VALIDATORS);
    for place in 0..VALIDATORS {
        let data = path.join(format!("validator-{place}/data"));
        check_votes(&quorate_machine::machine::journal_folder(&data), &genesis);
    }
    drop(directory);
}

fn signal(name: &str, process: u32) {
    let status = Command::new("kill")
        .args([name, &process.to_string()])
        .status();
    assert!(status.unwrap().success());
}

/// No two votes of the journal contradict each other, by a rule of this test's own.
fn check_votes(folder: &Path, genesis: &quorate_types::genesis::Genesis) {
    let (_journal, recovered) = Journal::open(folder, genesis.chain_id()).unwrap();
    let mut said: BTreeMap<(Epoch, View), Vec<(VoteKind, quorate_types::Digest)>> = BTreeMap::new();
    let mut votes = 0;
    for record in recovered.records {
        if let Record::Vote(vote) = record {
            let subject = vote.subject;
            let list = said.entry((subject.epoch, subject.view)).or_default();
            for (kind, payload) in list.iter() {
                let same = *kind == subject.kind;
                let excluded = matches!(
                    (kind, subject.kind),
                    (VoteKind::Finalize, VoteKind::Nullify)
                        | (VoteKind::Nullify, VoteKind::Finalize)
                );
                assert!(!excluded, "{subject:?} after {kind}");
                assert!(!same || *payload == subject.payload, "two of {subject:?}");
            }
            list.push((subject.kind, subject.payload));
            votes += 1;
        }
    }
    assert!(votes > 0, "{} holds no vote", folder.display());
}
