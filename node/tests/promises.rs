//! What clients are told is true: with real processes, through kills of all of them, and beside others
//! who flood the mempool with what they cannot pay for.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{BINARY, LOAD_ACCOUNTS, Net, PATIENCE, payee, promises::*};
use quorate_api::{RpcClient, SubmitRequest, TransactionState, block_of, to_hex};
use quorate_types::{Digest, Identity, Outcome, Transaction};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

#[tokio::test(flavor = "multi_thread")]
async fn every_payment_stands_in_one_block_and_every_validator_says_that_it_was_applied() {
    let mut net = Net::start("one-block", 4).await;
    let load = net.load(400.0);
    net.grow(0, 250).await;
    let report = load.stop().await;
    assert_eq!(report.total.failed, 0);
    let client = net.network.client(0);
    let mut ids: Vec<Digest> = Vec::new();
    for height in 1..=net.height(0).await {
        let block = client.block(&height.to_string()).await.unwrap();
        let block = block_of(&block).unwrap();
        ids.extend(block.transactions().iter().map(Transaction::id));
    }
    let distinct: BTreeSet<&Digest> = ids.iter().collect();
    assert_eq!(ids.len(), distinct.len());
    assert!(ids.len() > 200, "{}", ids.len());
    all_are_applied(&net.network.urls(), &ids, PATIENCE).await;
    let metrics = net.network.operator(0).metrics().await.unwrap();
    let failed: Vec<&str> = metrics
        .lines()
        .filter(|line| line.starts_with("quorate_executor_failed_transactions_total{"))
        .collect();
    assert_eq!(failed.len(), Outcome::ALL.len() - 1);
    assert!(failed.iter().all(|line| line.ends_with(" 0")), "{failed:?}");
    net.stop_and_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_accepted_is_final_although_all_were_killed() {
    let nightly = std::env::var_os("QUORATE_NIGHTLY").is_some();
    let rounds = if nightly { 60 } else { 6 };
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let mut net = Net::start("accepted", 4).await;
    let accounts = net.accounts().split_off(LOAD_ACCOUNTS);
    let urls = net.network.urls();
    let promises = Promises::start(&urls, net.genesis.chain_id(), accounts);
    net.grow(0, 10).await;
    for round in 0..rounds {
        tokio::time::sleep(Duration::from_millis(rng.random_range(50..700))).await;
        let victims: Vec<usize> = match round % 3 {
            0 => (0..4).collect(),
            _ => vec![rng.random_range(0..4)],
        };
        for victim in &victims {
            net.network.kill(*victim).unwrap();
        }
        for victim in &victims {
            net.network.spawn(*victim, &[]).unwrap();
        }
        net.network.wait_until_up().await.unwrap();
    }
    let accepted = promises.stop().await;
    eprintln!("{} transfers were accepted", accepted.len());
    assert!(accepted.len() > 20 * rounds, "{}", accepted.len());
    net.grow(0, 5).await;
    all_are_applied(&urls, &accepted, PATIENCE).await;
    net.until_nothing_waits().await;
    net.stop_and_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_that_waits_for_a_nonce_says_so_and_one_that_pays_more_replaces_it() {
    let net = Net::start("waits", 4).await;
    let chain = net.genesis.chain_id();
    let secret = net.accounts().pop().unwrap();
    let client = net.network.client(0);
    let [first, better, stranded] =
        [(1, 2), (1, 3), (7, 2)].map(|(nonce, fee)| transfer(&chain, &secret, nonce, 5, fee));
    let submit = async |transaction: &Transaction| {
        let hex = vec![to_hex(transaction)];
        let request = SubmitRequest {
            hex,
            ..SubmitRequest::default()
        };
        client.submit(&request).await.unwrap().results.remove(0)
    };
    for transaction in [&first, &stranded] {
        let result = submit(transaction).await;
        assert_eq!(result.state, TransactionState::Pending);
        assert_eq!(result.waits_for_nonce, Some(0));
        assert!(result.expires_in_ms.unwrap() > 0);
    }
    assert_eq!(submit(&better).await.state, TransactionState::Pending);
    let replaced = client
        .transaction(&first.id(), Duration::ZERO)
        .await
        .unwrap();
    assert_eq!(replaced.state, TransactionState::Dropped);
    assert_eq!(replaced.error.unwrap().code, "replaced");
    // The gap closes.
    submit(&transfer(&chain, &secret, 0, 5, 1)).await;
    all_are_applied(&net.network.urls(), &[better.id()], PATIENCE).await;
    let waits = client
        .transaction(&stranded.id(), Duration::ZERO)
        .await
        .unwrap();
    assert_eq!(waits.waits_for_nonce, Some(2));
    net.stop_and_check().await;
}

/// Who pays the same amount several times in a row pays it as often as the command says so.
#[tokio::test(flavor = "multi_thread")]
async fn the_same_payment_several_times_in_a_row_is_paid_as_often() {
    let net = Net::start("again", 4).await;
    let key = net.directory.path().join("payer.key");
    let secret = net.accounts().pop().unwrap();
    let plain = quorate_node::keys::Protection::Plain;
    quorate_node::keys::save_secret(&key, &secret.to_bytes(), plain).unwrap();
    let (key, trust) = (key.to_str().unwrap(), net.path().join("trust.json"));
    let (chain, to) = (net.genesis.chain_id().to_string(), payee());
    let to_text = to.to_string();
    let url = net.network.urls()[1].clone();
    let pay = [
        "tx", "transfer", "--key", key, "--to", &to_text, "--amount", "5", "--rpc", &url,
    ];
    for known in [["--chain-id", &chain], ["--trust", trust.to_str().unwrap()]] {
        for _ in 0..6 {
            net.succeed(&[&pay[..], &known].concat());
        }
    }
    net.until("all are paid", async |net| {
        let account = net.network.client(2).account(&to, false).await;
        account.unwrap().balance == 5 * 12
    })
    .await;
    // The very same one again is no payment.
    let nonce = net
        .network
        .client(1)
        .account(&secret.identity(), false)
        .await;
    let nonce = (nonce.unwrap().nonce - 1).to_string();
    let refused = net.fail(&[&pay[..], &["--chain-id", &chain, "--nonce", &nonce]].concat());
    assert!(refused.contains("nothing new is paid"), "{refused}");
    net.stop_and_check().await;
}

/// A person who waits for a transfer is told at once which nonce it waits for, and the rest when that comes.
#[tokio::test(flavor = "multi_thread")]
async fn who_waits_behind_a_nonce_is_told_so_before_it_comes() {
    let net = Net::start("gap", 1).await;
    let chain = net.genesis.chain_id();
    let secret = net.accounts().pop().unwrap();
    let key = net.directory.path().join("payer.key");
    let plain = quorate_node::keys::Protection::Plain;
    quorate_node::keys::save_secret(&key, &secret.to_bytes(), plain).unwrap();
    let mut waiting = Command::new(BINARY)
        .args([
            "tx", "transfer", "--nonce", "1", "--amount", "5", "--wait", "--key",
        ])
        .arg(&key)
        .args(["--to", &payee().to_string()])
        .args(["--rpc", &net.network.urls()[0]])
        .args(["--chain-id", &chain.to_string()])
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(waiting.stderr.take().unwrap()).lines();
    let told = lines.next().unwrap().unwrap();
    assert!(told.contains("waits for nonce 0"), "{told}");
    assert!(told.contains("kept for 120 s"), "{told}");
    let request = SubmitRequest {
        hex: vec![to_hex(&transfer(&chain, &secret, 0, 5, 1))],
        ..SubmitRequest::default()
    };
    net.network.client(0).submit(&request).await.unwrap();
    let output = waiting.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("applied"), "{text}");
    net.stop_and_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn free_transfers_and_keys_that_belong_to_nobody_are_refused() {
    let mut net = Net::start("refused", 4).await;
    net.grow(0, 2).await;
    let chain = net.genesis.chain_id();
    let secret = net.accounts().pop().unwrap();
    let client = net.network.client(0);
    let code = async |transaction: Transaction| {
        let hex = vec![to_hex(&transaction)];
        let request = SubmitRequest {
            hex,
            ..SubmitRequest::default()
        };
        let result = client.submit(&request).await.unwrap().results.remove(0);
        result.error.map(|error| error.code)
    };
    let free = transfer(&chain, &secret, 0, 5, 0);
    assert_eq!(code(free).await.as_deref(), Some("fee_too_low"));
    let mut to_nobody = transfer(&chain, &secret, 0, 5, 1).transfer().clone();
    to_nobody.to = Identity([0; 32]);
    let to_nobody = to_nobody.sign(&chain, &secret);
    assert_eq!(code(to_nobody).await.as_deref(), Some("small_order_key"));
    net.stop_and_check().await;
}

/// Accounts with next to no money hand in a thousand transfers each; an honest client's go on.
#[tokio::test(flavor = "multi_thread")]
async fn money_that_is_not_there_fills_no_blocks() {
    let mut net = Net::start("spam", 4).await;
    let chain = net.genesis.chain_id();
    let mut accounts = net.accounts();
    let honest = accounts.split_off(LOAD_ACCOUNTS);
    // Each account has sent all that it has to the first honest one, but for three fees.
    let client = net.network.client(0);
    let rich = honest[0].identity();
    for secret in &accounts {
        let balance = client
            .account(&secret.identity(), false)
            .await
            .unwrap()
            .balance;
        let mut all = transfer(&chain, secret, 0, balance - 4, 1)
            .transfer()
            .clone();
        all.to = rich;
        let request = SubmitRequest {
            hex: vec![to_hex(&all.sign(&chain, secret))],
            ..SubmitRequest::default()
        };
        client.submit(&request).await.unwrap();
    }
    net.until("they are poor", async |net| {
        let client = net.network.client(0);
        let last = accounts.last().unwrap().identity();
        client.account(&last, false).await.unwrap().balance == 3
    })
    .await;
    let promises = Promises::start(&net.network.urls(), chain, honest);
    let spam_until = Instant::now() + Duration::from_secs(5);
    let mut taken = 0;
    while Instant::now() < spam_until {
        for (turn, secret) in accounts.iter().enumerate() {
            let transfers = (1..=1_000).map(|nonce| transfer(&chain, secret, nonce, 1, 1));
            let request = SubmitRequest {
                hex: transfers.map(|t| to_hex(&t)).collect(),
                ..SubmitRequest::default()
            };
            let url = &net.network.urls()[turn % 4];
            // Too much at a time is refused as a whole.
            if let Ok(answer) = RpcClient::new(url).unwrap().submit(&request).await {
                let pending =
                    |r: &&quorate_api::TransactionResult| r.state == TransactionState::Pending;
                taken += answer.results.iter().filter(pending).count();
            }
        }
    }
    let accepted = promises.stop().await;
    eprintln!(
        "{taken} of the poor were taken in, {} honest ones",
        accepted.len()
    );
    assert!(accepted.len() > 50, "{}", accepted.len());
    all_are_applied(&net.network.urls(), &accepted, PATIENCE).await;
    // What is in the blocks paid for itself; the database check says so of each.
    net.grow(0, 5).await;
    net.stop_and_check().await;
}
