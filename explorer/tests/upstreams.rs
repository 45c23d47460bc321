//! Whatever an upstream does, only final blocks are shown, and the explorer continues with another
//! upstream.

#![allow(clippy::unwrap_used)]

mod common;

use common::{
    TestBlock, TestChain,
    explorer::Running,
    fake::{Fake, Lie},
    subject,
};
use quorate_crypto::bls::{Proof, SchemeKind};
use quorate_types::{Block, Certificate, VoteKind};
use std::sync::{Arc, Mutex, atomic::Ordering};

fn chain(blocks: usize) -> Arc<Mutex<TestChain>> {
    let mut chain = TestChain::new(SchemeKind::BlsThreshold, 4, 1);
    chain.grow(blocks);
    Arc::new(Mutex::new(chain))
}

/// Asserts that everything the explorer shows belongs to this chain.
async fn shows_only(explorer: &Running, chain: &Arc<Mutex<TestChain>>) {
    let tip = explorer.height().await;
    for height in 1..=tip {
        let shown = explorer.client.block(&height.to_string()).await.unwrap();
        let real = chain.lock().unwrap().blocks[height as usize - 1].block.id();
        assert_eq!(shown.summary.id.digest(), Some(real), "height {height}");
    }
}

/// The explorer follows a liar first, notices it, and shows the chain of the honest upstream.
async fn survives(name: &str, lie: Lie) {
    let chain = chain(25);
    let liar = Fake::liar(&chain, lie);
    let honest = Fake::new(&chain);
    let urls = [liar.serve().await, honest.serve().await];
    let folder = tempfile::tempdir().unwrap();
    let trust = chain.lock().unwrap().trust.clone();
    let alone = Running::start(&trust, &folder.path().join("alone"), &urls[..1]).await;
    alone
        .until(&format!("{name} is noticed"), async |e| {
            e.state_of(&urls[0]).await == "lying"
        })
        .await;
    assert_eq!(alone.height().await, 0, "{name}: a lie is shown");
    let status = alone.client.status().await.unwrap();
    assert!(!status.caught_up, "{name}: {status:?}");
    alone.stop().await;
    let both = Running::start(&trust, &folder.path().join("both"), &urls).await;
    both.reach(25).await;
    assert_eq!(both.state_of(&urls[0]).await, "lying", "{name}");
    assert_eq!(both.state_of(&urls[1]).await, "following", "{name}");
    shows_only(&both, &chain).await;
    both.stop().await;
}

/// The same block without its transfers, in a header that commits to that.
fn altered(block: &Block) -> Block {
    let mut header = *block.header();
    header.body_root = quorate_types::Header::body_root_of(&[]);
    Block::new(header, Vec::new()).unwrap()
}

#[tokio::test]
async fn a_changed_block_under_a_real_certificate_is_not_shown() {
    let lie = |range: &mut Vec<TestBlock>| {
        if let Some(last) = range.last_mut() {
            last.block = altered(&last.block);
            last.outcomes.clear();
        }
    };
    survives("a changed block", Box::new(lie)).await;
}

#[tokio::test]
async fn a_changed_block_in_the_middle_of_a_range_is_not_shown() {
    let lie = |range: &mut Vec<TestBlock>| {
        if let Some(block) = range.get_mut(2) {
            block.block = altered(&block.block);
            block.outcomes.clear();
            block.certificate = None;
        }
    };
    survives("a changed block in the middle", Box::new(lie)).await;
}

#[tokio::test]
async fn a_real_certificate_of_another_block_finalises_nothing() {
    let lie = |range: &mut Vec<TestBlock>| {
        let other = range.first().and_then(|block| block.certificate.clone());
        if let Some(last) = range.last_mut() {
            last.certificate = other;
        }
    };
    survives("another block's certificate", Box::new(lie)).await;
}

#[tokio::test]
async fn a_forged_finalization_finalises_nothing() {
    let lie = |range: &mut Vec<TestBlock>| {
        let signature = range.first().and_then(|block| block.certificate.clone());
        if let (Some(last), Some(signature)) = (range.last_mut(), signature) {
            last.certificate = Some(Certificate {
                subject: subject(VoteKind::Finalize, &last.block),
                proof: signature.proof,
            });
        }
    };
    survives("a forged finalization", Box::new(lie)).await;
}

#[tokio::test]
async fn a_forged_finalization_in_the_middle_is_not_kept() {
    let lie = |range: &mut Vec<TestBlock>| {
        if let Some(block) = range.get_mut(1) {
            block.certificate = Some(Certificate {
                subject: subject(VoteKind::Finalize, &block.block),
                proof: Proof::Threshold([0x97; 48]),
            });
        }
    };
    survives("a forged finalization in the middle", Box::new(lie)).await;
}

#[tokio::test]
async fn a_notarization_finalises_nothing() {
    let notarizer = chain(25);
    let lie = move |range: &mut Vec<TestBlock>| {
        if let Some(last) = range.last_mut() {
            let notarized = subject(VoteKind::Notarize, &last.block);
            last.certificate = Some(notarizer.lock().unwrap().certify(notarized));
        }
    };
    survives("a notarization", Box::new(lie)).await;
}

#[tokio::test]
async fn blocks_without_any_finalization_are_not_shown() {
    let lie = |range: &mut Vec<TestBlock>| {
        for block in range {
            block.certificate = None;
        }
    };
    survives("no finalization", Box::new(lie)).await;
}

#[tokio::test]
async fn another_chain_is_not_shown() {
    let mut other = TestChain::new(SchemeKind::BlsThreshold, 4, 9);
    other.grow(25);
    let foreign = other.blocks.clone();
    let lie = move |range: &mut Vec<TestBlock>| range.clone_from(&foreign);
    survives("another chain", Box::new(lie)).await;
}

#[tokio::test]
async fn a_block_left_out_is_noticed() {
    let lie = |range: &mut Vec<TestBlock>| {
        if range.len() > 3 {
            range.remove(1);
        }
    };
    survives("a block left out", Box::new(lie)).await;
}

#[tokio::test]
async fn garbage_and_endless_answers_stop_nothing() {
    let chain = chain(25);
    let trust = chain.lock().unwrap().trust.clone();
    let deep = "[".repeat(100_000).into_bytes();
    let endless = vec![b' '; 30 << 20];
    let odd = br#"{"executed_height": 18446744073709551615, "blocks": [{"block": "zz"}]}"#;
    for garbage in [Vec::new(), deep, endless, odd.to_vec(), vec![0xff; 100]] {
        let bad = Fake::new(&chain);
        *bad.garbage.lock().unwrap() = Some(garbage);
        let honest = Fake::new(&chain);
        let urls = [bad.serve().await, honest.serve().await];
        let folder = tempfile::tempdir().unwrap();
        let explorer = Running::start(&trust, folder.path(), &urls).await;
        explorer.reach(25).await;
        shows_only(&explorer, &chain).await;
        explorer.stop().await;
    }
}

#[tokio::test]
async fn a_stalled_upstream_is_left_for_one_that_goes_on() {
    let chain = chain(30);
    let stalled = Fake::new(&chain);
    stalled.shows.store(10, Ordering::Relaxed);
    let honest = Fake::new(&chain);
    let urls = [stalled.serve().await, honest.serve().await];
    let folder = tempfile::tempdir().unwrap();
    let trust = chain.lock().unwrap().trust.clone();
    let explorer = Running::start(&trust, folder.path(), &urls).await;
    explorer.reach(30).await;
    // It continues with new blocks.
    chain.lock().unwrap().grow(5);
    explorer.reach(35).await;
    shows_only(&explorer, &chain).await;
    explorer.stop().await;
}

#[tokio::test]
async fn an_upstream_that_is_gone_is_left_for_another_one() {
    let chain = chain(12);
    let gone = "http://127.0.0.1:9".to_owned();
    let urls = [gone.clone(), Fake::new(&chain).serve().await];
    let folder = tempfile::tempdir().unwrap();
    let trust = chain.lock().unwrap().trust.clone();
    let explorer = Running::start(&trust, folder.path(), &urls).await;
    explorer.reach(12).await;
    explorer.stop().await;
}

#[tokio::test]
async fn history_begins_where_the_upstreams_history_begins() {
    let chain = chain(40);
    let young = Fake::new(&chain);
    young.keeps.store(21, Ordering::Relaxed);
    let older = Fake::new(&chain);
    older.keeps.store(11, Ordering::Relaxed);
    let urls = [young.serve().await, older.serve().await];
    let folder = tempfile::tempdir().unwrap();
    let trust = chain.lock().unwrap().trust.clone();
    let explorer = Running::start(&trust, folder.path(), &urls).await;
    explorer.reach(40).await;
    assert_eq!(explorer.json("/v1/status").await["oldest"], "11");
    assert_eq!(explorer.get("/v1/blocks/10").await.status(), 410);
    assert_eq!(explorer.json("/v1/blocks/10").await["code"], "pruned");
    assert_eq!(explorer.get("/v1/blocks/11").await.status(), 200);
    explorer.stop().await;
}

#[tokio::test]
async fn only_evidence_that_convicts_is_shown() {
    let chain = chain(4);
    let fake = Fake::new(&chain);
    let (good, bad) = {
        let chain = chain.lock().unwrap();
        let first = subject(VoteKind::Notarize, &chain.blocks[0].block);
        let second = quorate_types::Subject {
            view: first.view,
            ..subject(VoteKind::Notarize, &chain.blocks[1].block)
        };
        let pair = |signature| quorate_types::Evidence {
            first: chain.vote(2, first),
            second: quorate_types::Vote {
                signature,
                ..chain.vote(2, second)
            },
        };
        let real = chain.vote(2, second).signature;
        let other = chain.vote(1, second).signature;
        let hex =
            |pair: quorate_types::Evidence| hex::encode(commonware_codec::Encode::encode(&pair));
        (hex(pair(real)), hex(pair(other)))
    };
    fake.evidence
        .lock()
        .unwrap()
        .extend([bad, good, "00".to_owned()]);
    let folder = tempfile::tempdir().unwrap();
    let trust = chain.lock().unwrap().trust.clone();
    let explorer = Running::start(&trust, folder.path(), &[fake.serve().await]).await;
    explorer.reach(4).await;
    explorer
        .until("evidence is shown", async |e| {
            let shown = e.json("/v1/validators/2").await;
            !shown["evidence"].as_array().unwrap().is_empty()
        })
        .await;
    let shown = explorer.json("/v1/validators/2").await;
    assert_eq!(shown["evidence"].as_array().unwrap().len(), 1);
    assert_eq!(shown["evidence"][0]["conflict"], "two_notarize");
    explorer.stop().await;
}

#[tokio::test]
async fn a_first_start_succeeds_while_the_upstream_prunes() {
    let chain = chain(300);
    let pruning = Fake::new(&chain);
    pruning.keeps.store(20, Ordering::Relaxed);
    // Whatever oldest block it reports is pruned by the time of the request.
    pruning.prunes.store(7, Ordering::SeqCst);
    let folder = tempfile::tempdir().unwrap();
    let trust = chain.lock().unwrap().trust.clone();
    let explorer = Running::start(&trust, folder.path(), &[pruning.serve().await]).await;
    explorer.reach(300).await;
    let status = explorer.client.status().await.unwrap();
    let oldest = status.oldest.unwrap().0;
    assert!((21..150).contains(&oldest), "history begins at {oldest}");
    explorer.stop().await;
}

#[tokio::test]
async fn an_upstream_that_has_nothing_blocks_no_first_start() {
    let chain = chain(30);
    let empty = Fake::new(&chain);
    empty.shows.store(0, Ordering::Relaxed);
    empty.claims.store(u64::MAX, Ordering::SeqCst);
    let honest = Fake::new(&chain);
    honest.keeps.store(11, Ordering::Relaxed);
    let urls = [empty.serve().await, honest.serve().await];
    let folder = tempfile::tempdir().unwrap();
    let trust = chain.lock().unwrap().trust.clone();
    let explorer = Running::start(&trust, folder.path(), &urls).await;
    explorer.reach(30).await;
    assert_eq!(explorer.json("/v1/status").await["oldest"], "11");
    explorer.stop().await;
}

#[tokio::test]
async fn a_hanging_upstream_delays_neither_the_first_start_nor_new_blocks() {
    let chain = chain(12);
    let hanging = Fake::new(&chain);
    hanging.hangs.store(true, Ordering::SeqCst);
    let honest = Fake::new(&chain);
    let urls = [hanging.serve().await, honest.serve().await];
    let folder = tempfile::tempdir().unwrap();
    let trust = chain.lock().unwrap().trust.clone();
    let explorer = Running::start(&trust, folder.path(), &urls).await;
    explorer.reach(12).await;
    // Blocks arrive while a request to the hanging upstream waits. On a busy machine either may
    // take longer than its timeout, so there are several attempts.
    let mut passed = 0;
    for _ in 0..8 {
        explorer
            .until("a probe hangs", async |_| {
                hanging.hanging.load(Ordering::SeqCst) > 0
            })
            .await;
        let asked = hanging.asked.load(Ordering::SeqCst);
        chain.lock().unwrap().grow(3);
        let newest = chain.lock().unwrap().blocks.len() as u64;
        explorer.reach(newest).await;
        let waits = hanging.hanging.load(Ordering::SeqCst) > 0;
        passed += usize::from(waits && hanging.asked.load(Ordering::SeqCst) == asked);
        if passed == 3 {
            break;
        }
    }
    assert!(passed == 3, "new blocks waited for the upstream that hangs");
    explorer.stop().await;
}

#[tokio::test]
async fn a_followed_upstream_that_begins_to_hang_is_left() {
    let chain = chain(12);
    let fakes = [Fake::new(&chain), Fake::new(&chain)];
    let urls = [fakes[0].serve().await, fakes[1].serve().await];
    let folder = tempfile::tempdir().unwrap();
    let trust = chain.lock().unwrap().trust.clone();
    let explorer = Running::start(&trust, folder.path(), &urls).await;
    explorer.reach(12).await;
    let followed = usize::from(explorer.state_of(&urls[1]).await == "following");
    fakes[followed].hangs.store(true, Ordering::SeqCst);
    for _ in 0..4 {
        chain.lock().unwrap().grow(4);
        let newest = chain.lock().unwrap().blocks.len() as u64;
        explorer.reach(newest).await;
    }
    explorer
        .until("the other one is followed", async |e| {
            e.state_of(&urls[1 - followed]).await == "following"
        })
        .await;
    explorer.stop().await;
}

#[tokio::test]
async fn a_claim_that_is_not_delivered_counts_for_nothing() {
    let chain = chain(12);
    let boaster = Fake::new(&chain);
    boaster.claims.store(u64::MAX, Ordering::SeqCst);
    let folder = tempfile::tempdir().unwrap();
    let trust = chain.lock().unwrap().trust.clone();
    let explorer = Running::start(&trust, folder.path(), &[boaster.serve().await]).await;
    explorer.reach(12).await;
    for _ in 0..3 {
        chain.lock().unwrap().grow(1);
        let newest = chain.lock().unwrap().blocks.len() as u64;
        explorer.reach(newest).await;
        let status = explorer.client.status().await.unwrap();
        assert!(status.caught_up, "{status:?}");
        assert_eq!(status.lag.0, 0);
        assert_eq!(explorer.get("/ready").await.status(), 200);
    }
    explorer.stop().await;
}

#[tokio::test]
async fn an_idle_chain_makes_nobody_a_laggard() {
    let chain = chain(12);
    let fakes = [Fake::new(&chain), Fake::new(&chain)];
    let urls = [fakes[0].serve().await, fakes[1].serve().await];
    let folder = tempfile::tempdir().unwrap();
    let trust = chain.lock().unwrap().trust.clone();
    let explorer = Running::start(&trust, folder.path(), &urls).await;
    explorer.reach(12).await;
    let probed = fakes
        .each_ref()
        .map(|fake| fake.asked.load(Ordering::SeqCst));
    // Long enough for probes while nothing is new, and longer than the followed upstream may
    // deliver nothing while others do.
    tokio::time::sleep(std::time::Duration::from_secs(4)).await;
    for (fake, before) in fakes.iter().zip(probed) {
        assert!(fake.asked.load(Ordering::SeqCst) > before, "nobody asks");
    }
    let states = [
        explorer.state_of(&urls[0]).await,
        explorer.state_of(&urls[1]).await,
    ];
    assert!(
        states.contains(&"following".to_owned()) && states.contains(&"standby".to_owned()),
        "{states:?}"
    );
    explorer.stop().await;
}

#[tokio::test]
async fn history_goes_on_after_blocks_that_nobody_keeps() {
    let chain = chain(30);
    let fake = Fake::new(&chain);
    let url = fake.serve().await;
    let folder = tempfile::tempdir().unwrap();
    let trust = chain.lock().unwrap().trust.clone();
    let explorer = Running::start(&trust, folder.path(), std::slice::from_ref(&url)).await;
    explorer.reach(30).await;
    explorer.stop().await;
    // The explorer was down for a long time.
    chain.lock().unwrap().grow(70);
    fake.keeps.store(61, Ordering::Relaxed);
    let explorer = Running::start(&trust, folder.path(), std::slice::from_ref(&url)).await;
    explorer.reach(100).await;
    assert_eq!(explorer.json("/v1/status").await["oldest"], "61");
    for (height, status) in [(12, 200), (31, 410), (60, 410), (61, 200), (100, 200)] {
        let answer = explorer.get(&format!("/v1/blocks/{height}")).await;
        assert_eq!(answer.status(), status, "block {height}");
    }
    explorer.stop().await;
    // The result is the same after a restart.
    let explorer = Running::start(&trust, folder.path(), &[url]).await;
    explorer.reach(100).await;
    assert_eq!(explorer.json("/v1/status").await["oldest"], "61");
    explorer.stop().await;
}

#[tokio::test]
async fn an_account_is_shown_while_the_followed_upstream_hangs() {
    let chain = chain(12);
    let fakes = [Fake::new(&chain), Fake::new(&chain)];
    let urls = [fakes[0].serve().await, fakes[1].serve().await];
    let folder = tempfile::tempdir().unwrap();
    let trust = chain.lock().unwrap().trust.clone();
    let explorer = Running::start(&trust, folder.path(), &urls).await;
    explorer.reach(12).await;
    let followed = usize::from(explorer.state_of(&urls[1]).await == "following");
    let hanging = &fakes[followed];
    hanging.hangs.store(true, Ordering::SeqCst);
    let account = common::secret(1).identity();
    let shown = explorer.client.account(&account).await.unwrap();
    assert!(shown.exists);
    // After a while the hanging upstream is asked last, so that it costs no time at all.
    explorer
        .until("the one that hangs is asked last", async |e| {
            e.state_of(&urls[followed]).await != "following"
        })
        .await;
    explorer.stop().await;
}
