//! Followers as real processes: they serve what the validators agree on, and pass on what clients submit.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{BINARY, LOAD_ACCOUNTS, Net, free_base_port};
use quorate_api::{StatusJson, verdict::Health};
use quorate_load::{Load, LoadConfig};
use quorate_storage::store::Store;
use quorate_types::Height;
use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};
use tokio::sync::watch;

async fn status(client: &quorate_api::RpcClient) -> Option<StatusJson> {
    let answer = tokio::time::timeout(Duration::from_secs(2), client.status()).await;
    answer.ok()?.ok()
}

async fn is(net: &Net, follower: usize, state: Health) -> bool {
    let status = status(net.network.follower(follower)).await;
    status.and_then(|status| status.verdict).map(|v| v.state) == Some(state)
}

async fn height(net: &Net, follower: usize) -> u64 {
    let status = status(net.network.follower(follower)).await;
    status.map_or(0, |status| status.executed_height.0)
}

/// Waits until a follower has what a validator has now.
async fn catches_up(net: &Net, follower: usize, validator: usize) {
    let there = net.height(validator).await;
    net.until("the follower has all blocks", async |net| {
        height(net, follower).await >= there
    })
    .await;
}

async fn start(name: &str, followers: usize) -> Net {
    let net = Net::start_changed(name, 4, |settings| settings.followers = followers).await;
    net.until("followers are healthy", async |net| {
        for follower in 0..followers {
            if !is(net, follower, Health::Healthy).await {
                return false;
            }
        }
        true
    })
    .await;
    net
}

fn config(net: &Net, follower: usize) -> String {
    let file = net
        .path()
        .join(format!("follower-{follower}/follower.toml"));
    file.to_str().unwrap().to_owned()
}

fn log(net: &Net, follower: usize) -> String {
    fs::read_to_string(net.path().join(format!("follower-{follower}/node.log"))).unwrap()
}

/// A follower's database holds the same blocks and states as a validator's.
fn compare(net: &Net, follower: &Path) {
    let theirs = net.path().join("validator-3/data/db");
    let (theirs, _tree) = Store::open(&theirs, &net.genesis).unwrap();
    let (ours, _tree) = Store::open(follower, &net.genesis).unwrap();
    let common = ours.tip().height.min(theirs.tip().height);
    assert!(common > Height(50));
    let mut at = ours.pruned_below().unwrap().max(Height(1));
    while at <= common {
        let [one, other] = [&ours, &theirs].map(|store| {
            let block = store.block(at).unwrap().unwrap().block.id();
            (block, store.root(at).unwrap().unwrap())
        });
        assert_eq!(one, other, "height {at}");
        at = at.next();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_followers_get_what_they_get_from_validators() {
    let mut net = start("followed", 2).await;
    // All load goes to the followers, and one of them is killed meanwhile.
    let load = Load::new(LoadConfig {
        urls: net.network.follower_urls(),
        chain: net.genesis.chain_id(),
        accounts: net.accounts().drain(..LOAD_ACCOUNTS).collect(),
        rate: 50.0,
    })
    .unwrap();
    let (stop, stopped) = watch::channel(false);
    let load = tokio::spawn(load.run(stopped));
    net.grow(0, 100).await;
    let _ = stop.send(true);
    let report = load.await.unwrap();
    assert!(report.total.finalized > 20, "{report:?}");
    assert_eq!(
        (
            report.total.lost,
            report.total.refused,
            report.total.unfinished
        ),
        (0, 0, 0),
        "{report:?}"
    );

    // Answers are proven by the chain, as those of validators.
    let trust = net.path().join("trust.json");
    let trust = trust.to_str().unwrap();
    let url = net.network.follower(0).url().to_owned();
    let account = net.genesis.accounts[0].identity.to_string();
    let proof = [
        "account", &account, "--proof", "--trust", trust, "--rpc", &url,
    ];
    net.succeed(&proof);
    let block = [
        "block", "latest", "--verify", "--trust", trust, "--rpc", &url,
    ];
    net.succeed(&block);
    let shown = net.succeed(&["status", "--rpc", &url]);
    assert!(
        shown.contains("follows the chain without a vote"),
        "{shown}"
    );
    assert!(
        shown.contains("follows       a chain with 4 validators"),
        "{shown}"
    );

    // One of the two that it follows is enough, and none is told.
    net.network.kill(0).unwrap();
    net.grow(3, 50).await;
    catches_up(&net, 0, 3).await;
    assert!(is(&net, 0, Health::Healthy).await);
    net.network.spawn(0, &[]).unwrap();

    // It goes on where it was.
    net.network.kill_follower(0).unwrap();
    net.grow(3, 50).await;
    net.network.spawn_follower(0).unwrap();
    catches_up(&net, 0, 3).await;

    // It has no vote, so there is nothing to block, and it says so.
    let own = config(&net, 0);
    let refused = net.fail(&["peers", "block", "1", "--config", &own]);
    assert!(refused.contains("without a vote"), "{refused}");
    net.until("its links are listed", async |net| {
        net.succeed(&["peers", "list", "--config", &own])
            .contains("up")
    })
    .await;
    let checked = net.succeed(&["config", "check", &own]);
    assert!(checked.contains("a follower of 2 nodes"), "{checked}");
    let validator = net.path().join("validator-0/validator.toml");
    let refused = net.fail(&["follow", "--config", validator.to_str().unwrap()]);
    assert!(refused.contains("`vote_key`"), "{refused}");
    let refused = net.fail(&["run", "--config", &own, "--allow-plain-keys"]);
    assert!(refused.contains("quorate follow"), "{refused}");
    net.until_nothing_waits().await;
    assert!(net.network.stop().is_empty());
    let checked = net.cli(&["db", "check", "--config", &own]);
    assert!(checked.status.success(), "{checked:?}");
    for follower in 0..2 {
        let database = net.path().join(format!("follower-{follower}/data/db"));
        compare(&net, &database);
    }
    net.stop_and_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_follower_has_accepted_becomes_final_whatever_fails() {
    let mut net = start("accepted", 1).await;
    // Without the two that it follows nothing leaves it, and the chain stands still.
    net.network.kill(0).unwrap();
    net.network.kill(1).unwrap();
    net.until("it says that it is cut off", async |net| {
        is(net, 0, Health::CutOff).await
    })
    .await;
    let payer = net.path().join("account/identity.key");
    let trust = net.path().join("trust.json");
    let url = net.network.follower(0).url().to_owned();
    let payee = common::payee();
    let transfer = [
        "tx",
        "transfer",
        "--key",
        payer.to_str().unwrap(),
        "--trust",
        trust.to_str().unwrap(),
        "--rpc",
        &url,
        "--to",
        &payee.to_string(),
        "--amount",
        "7",
        "--nonce",
        "0",
    ];
    net.succeed(&transfer);
    net.network.kill_follower(0).unwrap();
    net.network.spawn_follower(0).unwrap();
    for place in 0..2 {
        net.network.spawn(place, &[]).unwrap();
    }
    net.until("the payment is final", async |net| {
        let account = net.network.client(3).account(&payee, false).await;
        account.is_ok_and(|account| account.balance == 7)
    })
    .await;
    net.until("the follower knows", async |net| {
        let account = net.network.follower(0).account(&payee, false).await;
        account.is_ok_and(|account| account.balance == 7)
    })
    .await;
    net.until_nothing_waits().await;
    net.stop_and_check().await;
}

/// Forgets all but the newest blocks of a stopped node.
fn prune(net: &Net, folder: &str) {
    let database = net.path().join(folder).join("data/db");
    let (store, tree) = Store::open(&database, &net.genesis).unwrap();
    drop(tree);
    let below = Height(store.tip().height.0 - 5);
    while store.prune(below, u64::MAX).unwrap() < below {}
    assert!(store.close(Duration::from_secs(10)));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_away_for_too_long_fetches_the_state_and_serves_it_to_others() {
    let mut net = start("synced", 1).await;
    net.network.kill_follower(0).unwrap();
    net.grow(0, 60).await;
    assert!(net.network.stop().is_empty());
    (0..4).for_each(|place| prune(&net, &format!("validator-{place}")));
    let next = follow_the_follower(&net);
    for place in 0..4 {
        net.network.spawn(place, &[]).unwrap();
    }
    net.network.spawn_follower(0).unwrap();
    net.until("it is healthy", async |net| {
        let status = status(net.network.follower(0)).await;
        let verdict = status.and_then(|status| status.verdict);
        println!("{:?}", verdict.map(|verdict| verdict.summary));
        height(net, 0).await > 60 && is(net, 0, Health::Healthy).await
    })
    .await;
    let text = log(&net, 0);
    assert!(text.contains("state sync: the state is whole"), "{text}");

    // A new node that knows this follower only.
    let mut child = next.start();
    let client = quorate_api::RpcClient::new(&next.url).unwrap();
    net.until("the new one follows", async |net| {
        let there = net.height(0).await;
        let status = status(&client).await;
        status.is_some_and(|status| {
            status.executed_height.0 + 20 > there
                && status.verdict.is_some_and(|v| v.state == Health::Healthy)
        })
    })
    .await;
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    net.until_nothing_waits().await;
    assert!(net.network.stop().is_empty());
    compare(&net, &net.path().join("follower-0/data/db"));
    compare(&net, &next.folder.join("data/db"));
}

/// A folder made by `quorate follow init`.
struct Next {
    folder: std::path::PathBuf,
    url: String,
}

impl Next {
    fn start(&self) -> Child {
        let log = fs::File::create(self.folder.join("node.log")).unwrap();
        Command::new(BINARY)
            .args([
                "follow",
                "--allow-plain-keys",
                "--stop-with-stdin",
                "--config",
            ])
            .arg(self.folder.join("follower.toml"))
            .stdin(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap()
    }
}

/// Makes a node that follows follower 0, and has follower 0 accept it.
fn follow_the_follower(net: &Net) -> Next {
    let folder = net.path().join("next");
    let key = net.path().join("follower-0/identity.key");
    let shown = net.succeed(&["keys", "show", key.to_str().unwrap(), "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let first = shown["identity"].as_str().unwrap();
    let port = free_base_port(4);
    let genesis = net.path().join("genesis.json");
    let made = net.succeed(&[
        "follow",
        "init",
        "--genesis",
        genesis.to_str().unwrap(),
        "--peer",
        &format!("{first}@{}", net.settings.follower_address(0)),
        "--address",
        &format!("127.0.0.1:{port}"),
        "--out",
        folder.to_str().unwrap(),
        "--plain",
    ]);
    // What it says that the other's operator has to add.
    let lines: Vec<&str> = made.lines().map(str::trim).collect();
    let at = lines
        .iter()
        .position(|line| *line == "[[p2p.followers]]")
        .unwrap();
    let entry = lines[at..at + 3].join("\n");
    let file = config(net, 0);
    let text = fs::read_to_string(&file).unwrap();
    fs::write(
        &file,
        text.replacen("\n[rpc]", &format!("\n{entry}\n\n[rpc]"), 1),
    )
    .unwrap();
    Next {
        folder,
        url: format!("http://127.0.0.1:{}", port + 1),
    }
}
