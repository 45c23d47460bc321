//! Offenders in real processes: found, blocked, proven, remembered, and forgiven by order.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{LAB, Net};
use quorate_api::{EvidenceListJson, OffenderJson, PeersJson, Standing};
use quorate_types::ValidatorIndex;
use std::{fs, path::Path};

/// What validator `place` thinks of validator `other`.
async fn thinks(net: &Net, place: usize, other: u32) -> Option<OffenderJson> {
    let peers = net.network.operator(place).peers().await.ok()?;
    let peer = |p: &&quorate_api::PeerDetailJson| p.peer.validator == Some(ValidatorIndex(other));
    peers.peers.iter().find(peer)?.offender.clone()
}

async fn is_blocked(net: &Net, place: usize, other: u32) -> bool {
    let offender = thinks(net, place, other).await;
    offender.is_some_and(|offender| offender.standing == Standing::Blocked)
}

async fn an_equivocator_is_proven_blocked_and_remembered(scheme: &str) {
    let mut net = Net::start_with("chaos-equivocator", 4, scheme, 50).await;
    net.grow(0, 30).await;
    net.network.kill(3).unwrap();
    net.network
        .spawn_program(Path::new(LAB), 3, &["--misbehave", "equivocate"])
        .unwrap();
    net.until("all three block the equivocator", async |net| {
        is_blocked(net, 0, 3).await && is_blocked(net, 1, 3).await && is_blocked(net, 2, 3).await
    })
    .await;
    net.network.kill(3).unwrap();
    for place in 0..3 {
        let blocked = thinks(&net, place, 3).await.unwrap();
        assert_eq!(blocked.reason, "equivocation");
        assert_eq!(blocked.until_ms, None);
        assert_eq!(blocked.proof.unwrap().kind, "evidence");
        for honest in 0..3 {
            assert!(
                !is_blocked(&net, place, honest).await,
                "{place} blocks {honest}"
            );
        }
        // The proof verifies offline, with the trust file alone.
        let url = net.network.urls()[place].clone();
        let list: EvidenceListJson =
            serde_json::from_str(&net.succeed(&["evidence", "list", "--json", "--rpc", &url]))
                .unwrap();
        let evidence = &list.evidence[0];
        assert_eq!(evidence.validator, ValidatorIndex(3));
        let id = evidence.id.to_string();
        let shown = net.succeed(&["evidence", "show", &id[..12], "--rpc", &url]);
        let file = net.directory.path().join("evidence.json");
        fs::write(&file, &shown).unwrap();
        let trust = net.path().join("trust.json");
        let (file, trust) = (file.to_str().unwrap(), trust.to_str().unwrap());
        let verified = net.succeed(&["evidence", "verify", file, "--trust", trust]);
        assert!(verified.contains("valid"), "{verified}");
        // The same pair under another validator's name proves nothing.
        forge(&shown, Path::new(file));
        let refused = net.fail(&["evidence", "verify", file, "--trust", trust]);
        assert!(refused.contains("does not verify"), "{refused}");
    }

    // All crash. Who comes back still knows, and does not listen.
    for place in 0..3 {
        net.network.kill(place).unwrap();
    }
    for place in 0..4 {
        net.network.spawn(place, &[]).unwrap();
    }
    net.network.wait_until_up().await.unwrap();
    for place in 0..3 {
        net.grow(place, 30).await;
        assert!(is_blocked(&net, place, 3).await);
    }

    // Forgiven by order, at one validator, for good: others telling it of the old evidence does not
    // bring the block back.
    let config = net.config(0);
    let text = net.succeed(&["peers", "unblock", "3", "--config", &config]);
    assert!(text.contains("believed again"), "{text}");
    net.grow(0, 100).await;
    assert!(!is_blocked(&net, 0, 3).await);
    assert!(is_blocked(&net, 1, 3).await);
    let list = net.succeed(&["peers", "list", "--config", &net.config(1)]);
    assert!(list.contains("BLOCKED for equivocation"), "{list}");
    net.network.kill(3).unwrap();
    net.stop_and_check_but(&[3]).await;
}

/// Changes the signer in the bytes and in what is said of them, so that only the signatures tell.
fn forge(evidence: &str, file: &Path) {
    let mut json: serde_json::Value = serde_json::from_str(evidence).unwrap();
    let pair: quorate_types::Evidence =
        quorate_api::from_hex("hex", json["hex"].as_str().unwrap()).unwrap();
    let mut forged = pair;
    for vote in [&mut forged.first, &mut forged.second] {
        vote.signer = ValidatorIndex(1);
    }
    json["validator"] = 1.into();
    json["id"] = forged.id().to_string().into();
    json["hex"] = quorate_api::to_hex(&forged).into();
    fs::write(file, json.to_string()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_equivocator_is_proven_blocked_and_remembered_with_shares() {
    an_equivocator_is_proven_blocked_and_remembered("bls-threshold").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_equivocator_is_proven_blocked_and_remembered_with_own_keys() {
    an_equivocator_is_proven_blocked_and_remembered("bls-aggregate").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_blocks_and_unblocks_within_the_cap() {
    let mut net = Net::start("orders", 4).await;
    net.grow(0, 10).await;
    let config = net.config(0);
    let blocked = net.succeed(&["peers", "block", "2", "--for", "1h", "--config", &config]);
    assert!(blocked.contains("BLOCKED by order"), "{blocked}");
    assert!(is_blocked(&net, 0, 2).await);
    // One of four is all that blocking may take.
    let refused = net.fail(&["peers", "block", "1", "--config", &config]);
    assert!(refused.contains("Lift one first"), "{refused}");
    for (who, reason) in [
        ("7", "no validator"),
        ("abc", "no validator"),
        ("0", "itself"),
    ] {
        let refused = net.fail(&["peers", "block", who, "--config", &config]);
        assert!(refused.contains(reason), "{refused}");
    }
    for place in 0..4 {
        net.grow(place, 30).await;
    }
    // It survives a restart, with its end.
    net.network.kill(0).unwrap();
    net.network.spawn(0, &[]).unwrap();
    net.network.wait_until_up().await.unwrap();
    net.until("it remembers the order", async |net| {
        thinks(net, 0, 2).await.is_some()
    })
    .await;
    let held = thinks(&net, 0, 2).await.unwrap();
    assert!(held.ordered && held.until_ms.is_some() && held.standing == Standing::Blocked);
    let peers: PeersJson = serde_json::from_str(&net.succeed(&[
        "peers",
        "unblock",
        &held.identity.to_string(),
        "--config",
        &config,
        "--json",
    ]))
    .map_or(PeersJson { peers: Vec::new() }, |peers| peers);
    assert!(peers.peers.is_empty());
    assert!(!is_blocked(&net, 0, 2).await);
    net.grow(0, 30).await;

    // Orders need a running validator and its own configuration.
    net.network.kill(0).unwrap();
    let refused = net.fail(&["peers", "block", "2", "--config", &config]);
    assert!(refused.contains("control.sock"), "{refused}");
    let refused = net.fail(&["peers", "block", "2", "--config", "/nowhere/validator.toml"]);
    assert!(refused.contains("/nowhere/validator.toml"), "{refused}");
}

/// Seven validators, of whom two may be faulty: one forges, one equivocates, from a moment on. The
/// chain's pace before, during and after is printed.
#[tokio::test(flavor = "multi_thread")]
async fn f_offenders_at_once_are_blocked_and_the_chain_keeps_its_pace() {
    let mut net = Net::start_with("chaos-f", 7, "bls-aggregate", 200).await;
    net.grow(0, 50).await;
    let before = pace(&mut net, 200).await;
    for (place, fault) in [(5, "garbage-votes"), (6, "equivocate")] {
        net.network.kill(place).unwrap();
        net.network
            .spawn_program(Path::new(LAB), place, &["--misbehave", fault])
            .unwrap();
    }
    let during = pace(&mut net, 200).await;
    net.until("all five know the equivocator", async |net| {
        for place in 0..5 {
            if !is_blocked(net, place, 6).await {
                return false;
            }
        }
        true
    })
    .await;
    net.until("the forger is found out by somebody", async |net| {
        for place in 0..5 {
            if thinks(net, place, 5).await.is_some() {
                return true;
            }
        }
        false
    })
    .await;
    let after = pace(&mut net, 200).await;
    eprintln!("blocks per second before {before:.0}, during {during:.0}, after {after:.0}");
    for place in 0..5 {
        for honest in 0..5 {
            assert!(
                thinks(&net, place, honest).await.is_none(),
                "{place} {honest}"
            );
        }
        net.grow(place, 20).await;
    }
    net.network.kill(5).unwrap();
    net.network.kill(6).unwrap();
    net.stop_and_check_but(&[5, 6]).await;
}

async fn pace(net: &mut Net, blocks: u64) -> f64 {
    let start = std::time::Instant::now();
    net.grow(0, blocks).await;
    blocks as f64 / start.elapsed().as_secs_f64()
}
