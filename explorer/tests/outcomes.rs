//! Outcomes are executed from the genesis accounts and confirmed by the state roots in final
//! headers. An outcome that a validator reports differently is replaced.

#![allow(clippy::unwrap_used)]

mod common;

use common::{TestBlock, TestChain, explorer::Running, fake::Fake};
use quorate_crypto::bls::SchemeKind;
use quorate_types::{Failure, Outcome};
use std::sync::{Arc, Mutex};

/// Every third block holds a transfer that its sender cannot pay.
fn chain(blocks: u64) -> Arc<Mutex<TestChain>> {
    let mut chain = TestChain::executed(SchemeKind::BlsThreshold, 4, 1);
    grow(&mut chain, blocks);
    Arc::new(Mutex::new(chain))
}

fn grow(chain: &mut TestChain, blocks: u64) {
    for _ in 0..blocks {
        let done = chain.blocks.len() as u64;
        let sender = (done % 30) as u8 + 1;
        let amount = if done % 3 == 2 { 1_000_000 } else { 5 };
        // The receiver does not exist at first.
        let transfer = chain.transfer(sender, done / 30, 99, amount);
        chain.extend(vec![transfer], 0, true);
    }
}

async fn checked(explorer: &Running, height: u64) {
    explorer
        .until(&format!("outcomes checked to {height}"), async |e| {
            let status = e.client.status().await.unwrap();
            status.outcomes.checked_to.0 >= height
        })
        .await;
}

#[tokio::test]
async fn a_wrong_outcome_is_replaced_by_the_executed_one() {
    let chain = chain(40);
    // Reports every outcome as applied, except one that it reports as failed.
    let lie = |range: &mut Vec<TestBlock>| {
        for block in range {
            let height = block.block.height().0;
            let said = if height == 7 {
                Outcome::Failed(Failure::WrongNonce)
            } else {
                Outcome::Applied
            };
            block.outcomes.fill(said);
        }
    };
    let fake = Fake::liar(&chain, Box::new(lie));
    let folder = tempfile::tempdir().unwrap();
    let explorer = Running::checking(&chain, folder.path(), &fake).await;
    explorer.reach(40).await;
    // The newest header contains the state root before its own block.
    checked(&explorer, 39).await;
    let status = explorer.client.status().await.unwrap();
    assert_eq!(status.outcomes.state, "executed");
    // Blocks 3, 6, … 39, and block 7.
    assert_eq!(status.outcomes.corrected.0, 13 + 1);
    assert_eq!(status.totals.transactions.0, 40);
    assert_eq!(status.totals.accounts.unwrap().0, 39 + 4 + 1);
    assert_eq!(
        status.totals.supply.unwrap().0,
        (1..40).sum::<u64>() * 1_000
    );
    for height in 1..=39_u64 {
        let page = explorer
            .json(&format!("/v1/blocks/{height}/transactions"))
            .await;
        let shown = &page["data"][0];
        let real = chain.lock().unwrap().blocks[height as usize - 1].outcomes[0];
        assert_eq!(shown["outcome"], real.name(), "height {height}");
        assert_eq!(shown["outcome_checked"], true, "height {height}");
        let id = shown["id"].as_str().unwrap();
        let path = format!("/v1/transactions/{id}");
        assert_eq!(explorer.json(&path).await["outcome"], real.name());
        // An answer that contains an outcome may change.
        let answer = explorer.get(&path).await;
        assert_eq!(answer.headers()["cache-control"], "no-cache");
    }
    explorer.stop().await;
}

#[tokio::test]
async fn checking_goes_on_after_a_restart_and_with_an_index_that_was_not_checked() {
    let chain = chain(20);
    let fake = Fake::new(&chain);
    let folder = tempfile::tempdir().unwrap();
    let trust = chain.lock().unwrap().trust.clone();
    let unchecked = Running::start(&trust, folder.path(), &[fake.serve().await]).await;
    unchecked.reach(20).await;
    let status = unchecked.client.status().await.unwrap();
    assert_eq!(status.outcomes.state, "told");
    assert_eq!(status.totals.accounts, None);
    let shown = unchecked.json("/v1/blocks/5/transactions").await;
    assert_eq!(shown["data"][0]["outcome_checked"], false);
    unchecked.stop().await;
    for more in [5, 0, 7] {
        grow(&mut chain.lock().unwrap(), more);
        let height = chain.lock().unwrap().blocks.len() as u64;
        let explorer = Running::checking(&chain, folder.path(), &fake).await;
        explorer.reach(height).await;
        checked(&explorer, height - 1).await;
        let status = explorer.client.status().await.unwrap();
        assert_eq!(status.outcomes.corrected.0, 0);
        explorer.stop().await;
    }
}

#[tokio::test]
async fn another_state_than_the_executed_one_ends_checking_and_is_told() {
    let chain = chain(10);
    {
        let mut chain = chain.lock().unwrap();
        chain.forget_state();
        grow(&mut chain, 5);
    }
    let fake = Fake::new(&chain);
    let folder = tempfile::tempdir().unwrap();
    let explorer = Running::checking(&chain, folder.path(), &fake).await;
    explorer.reach(15).await;
    explorer
        .until("the other state is noticed", async |e| {
            e.client.status().await.unwrap().outcomes.state == "diverged"
        })
        .await;
    let outcomes = explorer.client.status().await.unwrap().outcomes;
    assert_eq!(outcomes.diverged_at.unwrap().0, 11);
    assert_eq!(outcomes.checked_to.0, 9);
    let page = explorer.json("/v1/blocks/12/transactions").await;
    assert_eq!(page["data"][0]["outcome_checked"], false);
    explorer.stop().await;
}
