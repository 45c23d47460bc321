//! Networks of real processes: killed, restarted, lied to.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{BINARY, LAB, Net, PATIENCE};
use quorate_api::block_of;
use quorate_crypto::SecretKey;
use quorate_types::{Height, Identity};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_validator_is_not_missed_and_catches_up_and_votes_again() {
    killed_and_back("bls-threshold").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_with_certificates_that_name_their_signers() {
    killed_and_back("bls-aggregate").await;
}

/// Epochs of 100 blocks, so that several begin while validators are away.
async fn killed_and_back(scheme: &str) {
    let mut net = Net::start_with("kill-one", 4, scheme, 100).await;
    let load = net.load(200.0);
    net.grow(0, 50).await;
    for round in 0..3 {
        let victim = 1 + round;
        net.network.kill(victim).unwrap();
        net.grow(0, 100).await;
        net.network.spawn(victim, &[]).unwrap();
        let height = net.height(0).await;
        net.reach(victim, height + 20).await;
        // With another one gone, the chain goes on only if the restarted one votes.
        let other = 1 + (round + 1) % 3;
        net.network.kill(other).unwrap();
        net.grow(0, 50).await;
        net.network.spawn(other, &[]).unwrap();
        let height = net.height(0).await;
        net.reach(other, height).await;
    }
    let report = load.stop().await;
    assert!(report.total.finalized > 0);
    net.stop_and_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_validators_killed_at_once_go_on_from_where_they_stood() {
    let mut net = Net::start("kill-all", 4).await;
    let load = net.load(200.0);
    for _ in 0..3 {
        net.grow(0, 60).await;
        let mut known = BTreeMap::new();
        for place in 0..4 {
            let height = net.height(place).await;
            let client = net.network.client(place);
            let block = client.block(&height.to_string()).await.unwrap();
            known.insert(height, block.id);
        }
        for place in 0..4 {
            net.network.kill(place).unwrap();
        }
        for place in 0..4 {
            net.network.spawn(place, &[]).unwrap();
        }
        net.network.wait_until_up().await.unwrap();
        let highest = *known.keys().max().unwrap();
        for place in 0..4 {
            net.reach(place, highest + 20).await;
            for (height, id) in &known {
                let client = net.network.client(place);
                let block = client.block(&height.to_string()).await.unwrap();
                assert_eq!(block.id, *id, "a final block was lost");
            }
        }
    }
    let report = load.stop().await;
    assert!(report.total.finalized > 0);
    net.stop_and_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_validator_that_signs_garbage_is_found_and_blocked_and_the_chain_goes_on() {
    let mut net = Net::start("chaos-garbage", 4).await;
    net.grow(0, 20).await;
    net.network.kill(3).unwrap();
    net.network
        .spawn_program(Path::new(LAB), 3, &["--misbehave", "garbage-votes"])
        .unwrap();
    let deadline = Instant::now() + PATIENCE;
    let mut blocked_by = BTreeSet::new();
    // Who never checks a quorum with the forger's vote in it cannot know; the others must. Beside honest
    // votes of its former life, forged ones are noticed without a bisection.
    while blocked_by.is_empty() {
        assert!(Instant::now() < deadline, "nobody noticed");
        for place in 0..3 {
            let status = net.network.client(place).status().await.unwrap();
            for blocked in status.blocked {
                assert_eq!(blocked.validator.0, 3, "an honest validator was blocked");
                assert_eq!(blocked.reason, "invalid_vote");
                blocked_by.insert(place);
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for place in 0..3 {
        net.grow(place, 50).await;
    }
    net.stop_and_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn misbehaviour_is_in_a_program_of_its_own_that_refuses_real_chains() {
    let contains = |program: &str, text: &str| {
        let bytes = fs::read(program).unwrap();
        bytes
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    };
    for fault in ["unknown misbehaviour", "garbage-votes"] {
        assert!(!contains(BINARY, fault), "quorate contains {fault:?}");
        assert!(contains(LAB, fault), "quorate-lab lacks {fault:?}");
    }

    let mut net = Net::start("real", 1).await;
    net.grow(0, 5).await;
    net.network.kill(0).unwrap();
    let config = net.config(0);
    let arguments = ["run", "--allow-plain-keys", "--config", &config];
    let output = Command::new(LAB)
        .args(arguments)
        .args(["--misbehave", "garbage-votes"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("chaos"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_pays_and_verifies_everything_with_the_trust_file_alone() {
    let mut net = Net::start("user", 4).await;
    net.grow(0, 5).await;
    let url = net.network.urls()[1].clone();
    let key = net.directory.path().join("payer.key");
    let payer = &net.accounts()[0];
    let plain = quorate_node::keys::Protection::Plain;
    quorate_node::keys::save_secret(&key, &payer.to_bytes(), plain).unwrap();
    let to = SecretKey::from_bytes(&[7; 32]).identity().to_string();
    let trust = net.path().join("trust.json");
    let (key, trust) = (key.to_str().unwrap(), trust.to_str().unwrap());
    for memo in ["", "invoice 17"] {
        let paid = net.cli(&[
            "tx", "transfer", "--key", key, "--to", &to, "--amount", "21", "--memo", memo,
            "--wait", "--rpc", &url, "--trust", trust,
        ]);
        let text = String::from_utf8_lossy(&paid.stdout).into_owned();
        assert!(
            paid.status.success() && text.contains("applied"),
            "{paid:?}"
        );
        // The memo stands in the block.
        let id = text
            .split_whitespace()
            .find(|word| word.len() == 64)
            .unwrap();
        let client = net.network.client(1);
        let id = id.parse().unwrap();
        let found = client.transaction(&id, PATIENCE).await.unwrap();
        let height = found.height.unwrap().to_string();
        let block = client.block(&height).await.unwrap();
        let stands = block
            .transactions
            .iter()
            .find(|t| t.id == found.id)
            .unwrap();
        assert_eq!(stands.fields.memo.as_bytes(), memo.as_bytes());
        let mut signed = block_of(&block).unwrap().transactions().to_vec();
        signed.retain(|transaction| transaction.id() == found.id);
        assert_eq!(signed[0].transfer().memo, stands.fields.memo);
    }
    let account = net.cli(&["account", &to, "--trust", trust, "--rpc", &url]);
    let text = String::from_utf8_lossy(&account.stdout).into_owned();
    assert!(account.status.success(), "{account:?}");
    assert!(text.contains("42") && text.contains("verified"), "{text}");

    let block = net.cli(&["block", "3", "--verify", "--trust", trust, "--rpc", &url]);
    assert!(block.status.success(), "{block:?}");
    // Another chain's trust file must not verify this chain.
    let foreign = Net::start("foreign", 1).await;
    let foreign_trust = foreign.path().join("trust.json");
    let foreign_trust = foreign_trust.to_str().unwrap();
    for arguments in [
        ["block", "3", "--trust", foreign_trust, "--rpc", &url],
        ["account", &to, "--trust", foreign_trust, "--rpc", &url],
    ] {
        let refused = net.cli(&arguments);
        assert!(!refused.status.success(), "{refused:?}");
    }

    let chain = net.genesis.chain_id().to_string();
    let mut too_much = vec!["tx", "transfer", "--key", key, "--to", &to, "--wait"];
    too_much.extend(["--rpc", &url, "--chain-id", &chain]);
    too_much.extend(["--amount", "18446744073709551615"]);
    // It costs nothing to be told before, and a fee to be told by the chain.
    let refused = |arguments: &[&str]| {
        let output = net.cli(arguments);
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let payer = payer.identity().to_string();
    let before = net.succeed(&["account", &payer, "--rpc", &url]);
    let told = refused(&too_much);
    assert!(told.contains("nothing was signed"), "{told}");
    assert_eq!(before, net.succeed(&["account", &payer, "--rpc", &url]));
    let next = before.split("next nonce").nth(1).unwrap().trim().to_owned();
    too_much.extend(["--nonce", &next]);
    let told = refused(&too_much);
    assert!(told.contains("insufficient_balance"), "{told}");
    // No point of the curve, no encoding that a wallet makes, and a point of small order.
    let nobody = [format!("02{:062}", 0), "f".repeat(64), "0".repeat(64)];
    let reasons = ["no public key", "no public key", "small order"];
    for (to, why) in nobody.iter().zip(reasons) {
        let mut arguments = vec!["tx", "transfer", "--key", key, "--amount", "1"];
        arguments.extend(["--rpc", &url, "--chain-id", &chain, "--to", to]);
        let told = refused(&arguments);
        assert!(told.contains(why), "{told}");
    }
    net.stop_and_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_validator_without_its_journal_refuses_to_vote() {
    let mut net = Net::start("journal", 1).await;
    net.grow(0, 5).await;
    net.network.kill(0).unwrap();
    std::fs::remove_dir_all(net.path().join("validator-0/data/journal")).unwrap();
    let config = net.path().join("validator-0/validator.toml");
    for _ in 0..2 {
        let output = net.cli(&[
            "run",
            "--allow-plain-keys",
            "--config",
            config.to_str().unwrap(),
        ]);
        assert!(!output.status.success());
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(message.contains("vote journal"), "{message}");
    }
}

/// Newest epoch and view in which validator 3 has voted, as validator 0 sees it.
async fn last_vote(net: &Net) -> (u64, quorate_types::View) {
    let peers = net.network.client(0).peers().await.unwrap().peers;
    let place = quorate_types::ValidatorIndex(3);
    let peer = peers
        .into_iter()
        .find(|peer| peer.peer.validator == Some(place));
    peer.and_then(|peer| peer.last_vote).unwrap_or_default()
}

/// The journal is gone, alone or with the whole data directory. The key lies elsewhere with its mark. By
/// what the others say the validator votes again by itself, and never contradicts what it has said.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_lost_its_journal_votes_again_by_itself() {
    // Without a border between epochs, behind which it is silent for two views more.
    let mut net = Net::start_with("lost", 4, "bls-aggregate", 100_000).await;
    for lost in ["data/journal", "data"] {
        net.grow(0, 30).await;
        net.network.kill(3).unwrap();
        std::fs::remove_dir_all(net.path().join("validator-3").join(lost)).unwrap();
        let before = last_vote(&net).await;
        net.network.spawn(3, &[]).unwrap();
        net.until("it votes again", async |net| last_vote(net).await > before)
            .await;
        let log = std::fs::read_to_string(net.path().join("validator-3/node.log")).unwrap();
        assert!(log.contains("its journal is gone"), "{log}");
        // With another one gone, the chain goes on only by its votes.
        net.network.kill(1).unwrap();
        net.grow(0, 30).await;
        net.network.spawn(1, &[]).unwrap();
        let height = net.height(0).await;
        net.reach(1, height).await;
    }
    let evidence = net.network.client(0).evidence().await.unwrap();
    assert!(evidence.evidence.is_empty(), "it contradicted itself");
    net.stop_and_check().await;
}

/// With its journal gone, and one of the others too, a validator of four waits for that one.
#[tokio::test(flavor = "multi_thread")]
async fn without_enough_answers_a_lost_journal_stays_silent() {
    let mut net = Net::start("few", 4).await;
    net.grow(0, 20).await;
    net.network.kill(2).unwrap();
    net.network.kill(3).unwrap();
    std::fs::remove_dir_all(net.path().join("validator-3/data/journal")).unwrap();
    let before = last_vote(&net).await;
    net.network.spawn(3, &[]).unwrap();
    net.until("two answers of three", async |net| {
        let Ok(status) = net.network.client(3).status().await else {
            return false;
        };
        let Some(verdict) = status.verdict else {
            return false;
        };
        let voting = serde_json::to_value(&verdict.voting).unwrap();
        voting["state"] == "recovering" && voting["answers"] == 2 && voting["needed"] == 3
    })
    .await;
    assert_eq!(last_vote(&net).await, before, "it voted");
    net.network.spawn(2, &[]).unwrap();
    net.until("it votes again", async |net| last_vote(net).await > before)
        .await;
    net.stop_and_check().await;
}

/// The whole data directory is put back from a copy. The others have seen newer votes.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_copy_of_a_data_directory_is_noticed_before_it_votes() {
    let mut net = Net::start_with("old-copy", 4, "bls-threshold", 100).await;
    net.grow(0, 20).await;
    net.network.kill(3).unwrap();
    let (data, copy) = (
        net.path().join("validator-3/data"),
        net.path().join("validator-3/copy"),
    );
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .args([&data, &copy])
        .status()
        .unwrap();
    assert!(copied.success());
    let before = last_vote(&net).await;
    net.network.spawn(3, &[]).unwrap();
    net.until("it votes again", async |net| last_vote(net).await > before)
        .await;
    net.grow(0, 20).await;
    // With two others gone the chain stands still, and it has voted in a view that is not settled. A vote
    // below the newest final block would be no reason to doubt the journal.
    net.network.kill(1).unwrap();
    net.network.kill(2).unwrap();
    net.until("it has voted in the view that does not end", async |net| {
        let status = net.network.client(0).status().await.unwrap();
        last_vote(net).await == (status.epoch, status.view)
    })
    .await;
    net.network.kill(3).unwrap();
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&copy, &data).unwrap();
    let before = last_vote(&net).await;
    net.network.spawn(1, &[]).unwrap();
    net.network.spawn(3, &[]).unwrap();
    net.until("the old copy is noticed", async |net| {
        let log = std::fs::read_to_string(net.path().join("validator-3/node.log")).unwrap();
        log.contains("the journal is an old copy")
    })
    .await;
    assert_eq!(last_vote(&net).await, before, "it voted");
    net.network.spawn(2, &[]).unwrap();
    net.until("it votes again", async |net| last_vote(net).await > before)
        .await;
    let evidence = net.network.client(0).evidence().await.unwrap();
    assert!(evidence.evidence.is_empty(), "it contradicted itself");
    net.stop_and_check().await;
}

/// Two processes with one vote key and two data directories.
#[tokio::test(flavor = "multi_thread")]
async fn two_processes_never_share_a_vote_key() {
    let mut net = Net::start("one-key", 1).await;
    net.grow(0, 5).await;
    let config = std::fs::read_to_string(net.config(0)).unwrap();
    let second = net.path().join("validator-0/second.toml");
    let other = config.replace("data_dir = \"data\"", "data_dir = \"second\"");
    assert_ne!(config, other);
    std::fs::write(&second, other).unwrap();
    let message = net.fail(&[
        "run",
        "--allow-plain-keys",
        "--config",
        second.to_str().unwrap(),
    ]);
    assert!(message.contains("in use by another process"), "{message}");
    assert!(message.contains("vote.key"), "{message}");
    net.stop_and_check().await;
}

/// The database alone is gone. The validator fetches the chain again, over many epochs, and votes
/// again where its journal ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_database_is_fetched_again_and_the_journal_still_counts() {
    let mut net = Net::start_with("fetch", 4, "bls-threshold", 50).await;
    let load = net.load(100.0);
    net.reach(0, 400).await;
    net.network.kill(3).unwrap();
    std::fs::remove_dir_all(net.path().join("validator-3/data/db")).unwrap();
    net.network.spawn(3, &[]).unwrap();
    let height = net.height(0).await;
    net.reach(3, height + 20).await;
    // With another one gone, the chain goes on only by its votes.
    net.network.kill(1).unwrap();
    net.grow(0, 100).await;
    net.network.spawn(1, &[]).unwrap();
    let height = net.height(0).await;
    net.reach(1, height).await;
    assert!(load.stop().await.total.finalized > 0);
    net.stop_and_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_never_share_a_data_directory() {
    let mut net = Net::start("twice", 1).await;
    net.grow(0, 5).await;
    let config = net.path().join("validator-0/validator.toml");
    let output = net.cli(&[
        "run",
        "--allow-plain-keys",
        "--config",
        config.to_str().unwrap(),
    ]);
    assert!(!output.status.success());
    let block = net.network.client(0).block("1").await.unwrap();
    assert_eq!(block_of(&block).unwrap().height(), Height(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_get_a_clear_error_and_consensus_goes_on() {
    let mut net = Net::start("rpc", 1).await;
    net.grow(0, 5).await;
    let url = net.network.urls()[0].clone();
    let http = reqwest::Client::new();
    let digest = "ab".repeat(32);
    for (path, status, code) in [
        ("/v1/nothing".to_owned(), 404, "unknown_path"),
        ("/v1/blocks/99999999".to_owned(), 404, "unknown_block"),
        (format!("/v1/blocks/{digest}"), 404, "unknown_block"),
        ("/v1/blocks/-1".to_owned(), 400, "bad_request"),
        ("/v1/blocks?from=x".to_owned(), 400, "bad_query"),
        ("/v1/blocks?from=1&surprise=2".to_owned(), 400, "bad_query"),
        ("/v1/accounts/xyz".to_owned(), 400, "bad_request"),
        (
            format!("/v1/transactions/{digest}"),
            404,
            "unknown_transaction",
        ),
        ("/v1/transactions".to_owned(), 405, "method_not_allowed"),
    ] {
        let answer = http.get(format!("{url}{path}")).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{path}");
        let body: serde_json::Value = answer.json().await.unwrap();
        assert_eq!(body["error"]["code"], code, "{path}: {body}");
        assert!(body["error"]["message"].is_string(), "{path}");
    }
    let submit = format!("{url}/v1/transactions");
    for (body, status, code) in [
        ("nonsense".to_owned(), 400, "bad_json"),
        ("{\"transactions\":7}".to_owned(), 422, "bad_json"),
        ("{\"hex\":[]}".to_owned(), 400, "bad_request"),
        ("{\"hex\":[\"00\"]}".to_owned(), 400, "bad_request"),
        (
            format!("{{\"hex\":[\"{}\"]}}", "0".repeat(2 << 20)),
            413,
            "body_too_large",
        ),
    ] {
        let request = http
            .post(&submit)
            .header("content-type", "application/json");
        let answer = request.body(body.clone()).send().await.unwrap();
        let short = &body[..body.len().min(40)];
        assert_eq!(answer.status().as_u16(), status, "{short}");
        let body: serde_json::Value = answer.json().await.unwrap();
        assert_eq!(body["error"]["code"], code, "{short}: {body}");
    }
    // A transaction for another chain, one with a forged signature, and one that nobody can pay.
    let chain = net.genesis.chain_id();
    let (rich, poor) = (&net.accounts()[0], SecretKey::from_bytes(&[3; 32]));
    let transfer = |secret: &SecretKey| quorate_types::Transfer {
        chain_tag: chain.tag(),
        sender: secret.identity(),
        nonce: 0,
        to: Identity([1; 32]),
        amount: 1,
        fee: 1,
        memo: quorate_types::Memo::NONE,
    };
    let mut foreign = transfer(rich);
    foreign.chain_tag = [9; 8];
    for (transaction, code) in [
        (foreign.sign(&chain, rich), "wrong_chain"),
        (transfer(rich).sign(&chain, &poor), "bad_signature"),
        (transfer(&poor).sign(&chain, &poor), "cannot_pay_fee"),
    ] {
        let request = quorate_api::SubmitRequest {
            hex: vec![quorate_api::to_hex(&transaction)],
            ..Default::default()
        };
        let answer = net.network.client(0).submit(&request).await.unwrap();
        let error = answer.results[0].error.as_ref().unwrap();
        assert_eq!(error.code, code, "{}", error.message);
    }
    // Clients that open connections and send nothing are cut, and hold up nobody.
    let address = url.trim_start_matches("http://");
    let idle: Vec<_> = (0..200)
        .map(|_| std::net::TcpStream::connect(address).unwrap())
        .collect();
    net.grow(0, 50).await;
    let healthy = http.get(format!("{url}/v1/health")).send().await.unwrap();
    assert!(healthy.status().is_success());
    let ready = http.get(format!("{url}/v1/ready")).send().await.unwrap();
    assert!(ready.status().is_success());
    drop(idle);
    net.stop_and_check().await;
}
