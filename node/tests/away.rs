//! A validator that comes back after the set has changed, in real processes.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::chain::{Chain, STAKE};
use std::fs;

/// Validators 0 to 3, with something to pay fees from; as many seats.
async fn four_seats() -> Chain {
    let chain = Chain::start_as(false, 4, "20ms", &["--max-validators", "4"]);
    chain.wait_for_set(0, &[0, 1, 2, 3]).await;
    for place in 0..4 {
        chain.pay(1, chain.identity(place), 100_000);
    }
    chain
}

fn outbid(chain: &Chain, by: usize, places: &[usize], stake: u64) {
    for place in places {
        chain.operate(by, *place, &["add-stake", "--stake", &stake.to_string()]);
    }
}

/// A validator is off while others take all the other seats of its epoch and its configured peers lose theirs or
/// are off too. Those that it knows of that epoch run on, and only follow. It finds the acting ones among
/// those that had a bond when it was here last.
#[tokio::test(flavor = "multi_thread")]
async fn who_was_away_comes_back_although_all_that_validated_with_it_only_follow() {
    let mut chain = four_seats().await;
    for place in 4..8 {
        chain.join(1, place);
    }
    outbid(&chain, 1, &[0, 1, 2], 2_000);
    outbid(&chain, 1, &[4], 1_000);
    chain.wait_for_set(1, &[0, 1, 2, 4]).await;
    chain.kill(4);
    // One of four may leave at a border, and who is silent is the first.
    outbid(&chain, 1, &[5], 10_000);
    chain.wait_for_set(5, &[0, 1, 2, 5]).await;
    outbid(&chain, 5, &[3, 6, 7], 10_000);
    chain.wait_for_set(5, &[3, 5, 6, 7]).await;
    chain.kill(3);

    chain.run(4);
    let height = chain.status(5).await.unwrap().finalized_height;
    chain
        .wait_for("the absent one to follow", async || {
            let status = chain.status(4).await;
            status.is_some_and(|status| status.executed_height > height)
        })
        .await;
    assert_eq!(chain.ids(4, height).await, chain.ids(5, height).await);

    // With a seat again it votes.
    chain.run(3);
    outbid(&chain, 5, &[4, 5, 6], 20_000);
    chain
        .wait_for("a seat of the absent one", async || {
            let registry = chain.registry(5).await;
            let own = chain.identity(4);
            registry.is_some_and(|one| one.acting.iter().any(|member| member.identity == own))
        })
        .await;
    chain
        .wait_for("four votes", async || {
            let verdict = chain.status(4).await.and_then(|status| status.verdict);
            verdict.is_some_and(|verdict| verdict.voters == 4)
        })
        .await;
}

/// The first validators have withdrawn their stake and are off. In the states that a validator without a database
/// executes first, only they have a bond.
#[tokio::test(flavor = "multi_thread")]
async fn who_has_lost_its_database_comes_back_although_all_that_had_a_bond_at_first_are_off() {
    let mut chain = four_seats().await;
    outbid(&chain, 1, &[0, 1, 2], 2_000);
    chain.join(1, 4);
    outbid(&chain, 1, &[4], 1_000);
    chain.wait_for_set(1, &[0, 1, 2, 4]).await;
    for place in 5..8 {
        chain.join(1, place);
    }
    outbid(&chain, 1, &[4, 5, 6, 7], 10_000);
    chain.wait_for_set(5, &[4, 5, 6, 7]).await;
    for place in 0..4 {
        let all = STAKE + if place < 3 { 2_000 } else { 0 };
        chain.operate(5, place, &["unbond", "--stake", &all.to_string(), "--wait"]);
    }
    for place in 0..4 {
        chain.kill(place);
    }
    chain.kill(4);
    fs::remove_dir_all(chain.validator(4).join("data/db")).unwrap();
    chain.run(4);
    chain
        .wait_for("four votes", async || {
            let verdict = chain.status(4).await.and_then(|status| status.verdict);
            verdict.is_some_and(|verdict| verdict.voters == 4)
        })
        .await;
    let height = chain.status(5).await.unwrap().finalized_height;
    assert_eq!(chain.ids(4, height).await, chain.ids(5, height).await);
    let log = fs::read_to_string(chain.validator(4).join("node.log")).unwrap();
    assert!(log.contains("the database is a new one"));
}
