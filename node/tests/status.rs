//! What a validator says of itself when something is wrong with it or with the network, and what it
//! says at its start of what it has lost.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{Net, promises::transfer};
use quorate_api::{SubmitRequest, SyncState, to_hex};
use std::{fs, net::TcpListener, time::Duration};

/// The exit code of `quorate status` and what it prints.
fn status(net: &Net, place: usize) -> (Option<i32>, String) {
    let url = net.network.client(place).url().to_owned();
    let output = net.cli(&["status", "--rpc", &url]);
    (
        output.status.code(),
        String::from_utf8(output.stdout).unwrap(),
    )
}

fn log(net: &Net, place: usize) -> String {
    fs::read_to_string(net.path().join(format!("validator-{place}/node.log"))).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn status_tells_a_lost_quorum_and_that_it_is_back() {
    let mut net = Net::start("stalled", 4).await;
    net.until("it is in sync", async |net| {
        let (code, text) = status(net, 0);
        code == Some(0) && text.starts_with("healthy: newest block")
    })
    .await;
    assert!(net.network.client(0).ready().await.is_ok());
    net.until("all links are told", async |net| {
        log(net, 0).matches("link is up").count() == 3
    })
    .await;
    for place in [2, 3] {
        net.network.kill(place).unwrap();
    }
    net.until(
        "it says that the chain is halted, and whom it waits for",
        async |net| {
            let (code, text) = status(net, 0);
            code == Some(4)
                && text.starts_with("halted since 20")
                && text.contains("needs 3 of 4 validators; not reachable: validators 2 (")
                && text.contains("remedy: bring back one of them, or the links to them if they run: validators 2 (")
                && !text.contains("one more failure")
        },
    )
    .await;
    let refused = net.network.client(0).ready().await.unwrap_err().to_string();
    assert!(refused.contains("halted since"), "{refused}");
    net.until("the log says so", async |net| {
        let told = log(net, 0);
        told.contains("link is missing validator=2") && told.contains("halted since 20")
    })
    .await;
    net.network.spawn(2, &[]).unwrap();
    net.until("it is healthy again, with nothing to spare", async |net| {
        let (code, text) = status(net, 0);
        code == Some(0)
            && text.contains("note: not reachable: validator 3 (")
            && text
                .contains("note: one more failure halts the chain: 3 of 4 validators vote, 3 must")
    })
    .await;
    assert!(net.network.client(0).ready().await.is_ok());
    net.until("the log tells of the link", async |net| {
        log(net, 0).contains("link is up validator=2")
    })
    .await;

    // The other one has lost its database.
    fs::remove_dir_all(net.path().join("validator-3/data/db")).unwrap();
    assert!(!log(&net, 3).contains("the database is a new one"));
    net.network.spawn(3, &[]).unwrap();
    net.until("it catches up", async |net| {
        let executed = net.network.client(3).status().await;
        let executed = executed.map(|status| status.executed_height.0);
        status(net, 3).0 == Some(0) && executed.is_ok_and(|height| height > 0)
    })
    .await;
    assert!(log(&net, 3).contains("the database is a new one"));
    let told = net.network.client(3).status().await.unwrap().sync.unwrap();
    assert_eq!((told.state, told.start_height.0), (SyncState::InSync, 0));
    net.stop_and_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_refused_by_the_others_is_told_so_and_whom_to_ask() {
    let mut net = Net::start("refused", 4).await;
    net.until("it is in sync", async |net| status(net, 3).0 == Some(0))
        .await;
    for place in 0..3 {
        net.succeed(&["peers", "block", "3", "--config", &net.config(place)]);
    }
    net.until("it says that the others refuse it", async |net| {
        let (code, text) = status(net, 3);
        code == Some(4)
            && text.starts_with("refused by the others: validators 0 (")
            && text.contains("remedy: compare the chain's id with theirs")
            && text.contains("ask their operators whether they block this validator")
    })
    .await;
    net.until("the log says so", async |net| {
        log(net, 3).contains("refused by the others: validators 0 (")
    })
    .await;
    let refused = net.network.client(3).ready().await.unwrap_err().to_string();
    assert!(refused.contains("refused by the others"), "{refused}");
    // The chain goes on without it, and says of whom it does.
    net.grow(0, 3).await;
    let (code, text) = status(&net, 0);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("note: blocked here: validator 3 ("), "{text}");
    for place in 0..3 {
        net.succeed(&["peers", "unblock", "3", "--config", &net.config(place)]);
    }
    net.until("it is healthy again", async |net| {
        status(net, 3).0 == Some(0)
    })
    .await;
    net.stop_and_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mempool_that_was_made_smaller_tells_what_it_drops() {
    let mut net = Net::start("smaller", 4).await;
    net.grow(0, 2).await;
    let chain = net.genesis.chain_id();
    // They wait for nonces that never come.
    let mut accounts = net.accounts();
    let senders = accounts.split_off(accounts.len() - 3);
    let transfers = senders
        .iter()
        .flat_map(|secret| (1..=3).map(|nonce| transfer(&chain, secret, nonce, 1, 1)));
    let request = SubmitRequest {
        hex: transfers.map(|transfer| to_hex(&transfer)).collect(),
        ..SubmitRequest::default()
    };
    let answer = net.network.client(0).submit(&request).await.unwrap();
    assert!(answer.results.iter().all(|result| result.error.is_none()));
    let config = net.config(0);
    let usual = fs::read_to_string(&config).unwrap();
    for (usual_line, line, told) in [
        (
            "# max_per_sender = 10000",
            "max_per_sender = 2",
            "transactions=3",
        ),
        (
            "# max_transactions = 100000",
            "max_transactions = 2",
            "transactions=4",
        ),
    ] {
        assert!(usual.contains(usual_line));
        net.network.kill(0).unwrap();
        fs::write(&config, usual.replace(usual_line, line)).unwrap();
        let before = log(&net, 0).len();
        net.network.spawn(0, &[]).unwrap();
        net.network.wait_until_up().await.unwrap();
        let key = format!("mempool.{}", line.split(' ').next().unwrap());
        let log = log(&net, 0);
        let warning = log[before..].lines().find(|line| line.contains(&key));
        let warning = warning.unwrap_or_else(|| panic!("{key} is not in {}", &log[before..]));
        assert!(
            warning.contains(told) && warning.contains("WARN"),
            "{warning}"
        );
    }
    net.stop_and_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_listen_joins_nothing() {
    let mut net = Net::start("unheard", 4).await;
    net.grow(0, 2).await;
    net.network.wait_until_linked(Duration::from_secs(20)).await;
    net.network.kill(2).unwrap();
    let completed = async |net: &Net| {
        let metrics = net.network.operator(0).metrics().await.unwrap();
        let line = "quorate_p2p_handshakes_total{outcome=\"completed\"}";
        let found = metrics.lines().find(|l| l.starts_with(line)).unwrap();
        found.to_owned()
    };
    let before = completed(&net).await;
    for address in [
        net.network.settings().rpc_address(2),
        net.network.settings().admin_address(2),
    ] {
        let _taken = TcpListener::bind(address).unwrap();
        let config = net.config(2);
        let refused = net.fail(&["run", "--allow-plain-keys", "--config", &config]);
        assert!(
            refused.contains(&address.to_string()) && refused.contains("listen`"),
            "{refused}"
        );
    }
    assert_eq!(completed(&net).await, before);
    net.stop_and_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_directory_of_another_validator_is_refused() {
    let mut net = Net::start("owners", 4).await;
    net.grow(0, 5).await;
    assert!(net.network.stop().is_empty());
    let config = net.config(1);
    let text = fs::read_to_string(&config).unwrap();
    let other = net.path().join("validator-0/data");
    let changed = text.replace("data_dir = \"data\"", &format!("data_dir = {other:?}"));
    assert_ne!(text, changed);
    fs::write(&config, changed).unwrap();
    for command in [
        &["config", "check", &config][..],
        &["run", "--allow-plain-keys", "--config", &config],
    ] {
        let refused = net.fail(command);
        assert!(
            refused.contains("validator.toml")
                && refused.contains("`data_dir`")
                && refused.contains("belongs to another validator"),
            "{refused}"
        );
    }
    // As earlier versions left it: the journal's votes tell.
    fs::remove_file(other.join("owner.json")).unwrap();
    let refused = net.fail(&["run", "--allow-plain-keys", "--config", &config]);
    assert!(refused.contains("votes of validator 0"), "{refused}");
}
