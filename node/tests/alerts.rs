//! The alert rules on real processes: what is broken on purpose must fire what is meant for it, name the right
//! machine, and fire nothing else. The rules' times are a twentieth ([`watched`]).
//!
//! Only by `promtool`'s cases (`deploy/prometheus/alerts_test.yml`) are tried `ValidatorStandsStill` and `SyncStuck`,
//! which take a mistake in the validator itself.
#![allow(missing_docs, clippy::unwrap_used)]

#[allow(dead_code)]
mod attacker;
mod common;
mod watched;

use attacker::{Client, Flood, Seat};
use common::{BINARY, LAB, LOAD_ACCOUNTS, Net};
use quorate_api::{SubmitRequest, TransactionResult, TransactionState, to_hex};
use quorate_node::{
    config::ValidatorConfig,
    keys::KeyAccess,
    localnet::{ExplorerProcess, Network},
};
use quorate_storage::store::Store;
use quorate_types::{Height, Memo, Transfer, ValidatorIndex};
use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};
use watched::{
    OF_A_BUSY_MACHINE, OF_ONE_AWAY, PATIENCE, Prometheus, faster,
    proxy::{Proxy, Way},
    skipped,
    trouble::Troubles,
};

/// Longer than any rule's window, a twentieth of an hour left out.
const HEALTHY: Duration = Duration::from_secs(20);

/// A network that is idle but for what a test does, so that a busy machine disturbs it little.
async fn idle_net(name: &str) -> Net {
    let net = Net::start_changed(name, 4, |settings| {
        settings.block_interval_ms = 20;
        settings.idle_interval_ms = 200;
    })
    .await;
    net.network.wait_until_linked(Duration::from_secs(20)).await;
    net
}

fn admin(net: &Net, place: usize) -> SocketAddr {
    net.network.settings().admin_address(place)
}

fn admins(net: &Net) -> Vec<SocketAddr> {
    (0..net.network.size())
        .map(|place| admin(net, place))
        .collect()
}

/// Killed validators are watched each time the tests run, everything else with `QUORATE_NIGHTLY=1`: it
/// takes minutes.
fn nightly() -> bool {
    std::env::var_os("QUORATE_NIGHTLY").is_some()
}

/// An alert about the machine of a validator.
fn at(alert: &str, net: &Net, place: usize) -> String {
    format!("{alert} {}", admin(net, place))
}

fn with<'a>(lists: &[&[&'a str]]) -> Vec<&'a str> {
    [&[&OF_A_BUSY_MACHINE[..]], lists].concat().concat()
}

fn add_to_config(net: &Net, place: usize, section: &str, line: &str) {
    let path = net.config(place);
    let text = fs::read_to_string(&path).unwrap();
    let header = format!("[{section}]\n");
    assert!(text.contains(&header));
    fs::write(path, text.replace(&header, &format!("{header}{line}\n"))).unwrap();
}

#[test]
fn times_become_shorter_and_nothing_else_changes() {
    assert_eq!(faster("        for: 30s"), "        for: 1500ms");
    assert_eq!(faster("rate(a[5m]) > 0.1"), "rate(a[15000ms]) > 0.1");
    assert_eq!(faster("sum_5m_x offset 10m"), "sum_5m_x offset 30000ms");
    assert_eq!(faster("(a[1h], 4 * 3600)"), "(a[180000ms], 4 * 180)");
}

/// Transfers that wait, since the chain stands still: two of each account that no load uses.
async fn submit(net: &Net, place: usize, count: usize) {
    let chain = net.genesis.chain_id();
    let accounts = net.accounts().split_off(LOAD_ACCOUNTS);
    let twice = accounts
        .iter()
        .flat_map(|account| [(account, 0), (account, 1)]);
    let transfers = twice.take(count).map(|(account, nonce)| {
        let transfer = Transfer {
            chain_tag: chain.tag(),
            sender: account.identity(),
            nonce,
            to: account.identity(),
            amount: 1,
            fee: 1_000,
            memo: Memo::new([]).unwrap(),
        };
        to_hex(&transfer.sign(&chain, account))
    });
    let request = SubmitRequest {
        transactions: Vec::new(),
        hex: transfers.collect(),
    };
    assert_eq!(request.hex.len(), count);
    let deadline = Instant::now() + PATIENCE;
    let answer = loop {
        match net.network.client(place).submit(&request).await {
            Ok(answer) => break answer,
            // It starts at the moment.
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    let pending = |result: &&TransactionResult| result.state == TransactionState::Pending;
    assert_eq!(
        answer.results.iter().filter(pending).count(),
        count,
        "{answer:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn validators_that_are_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut net = idle_net("alerts-killed").await;
    let Some(prometheus) = Prometheus::start(folder.path(), &admins(&net), &[]) else {
        drop(net.stop_and_keep());
        return;
    };
    let load = net.load(20.0);
    prometheus.stays_quiet(HEALTHY, &OF_A_BUSY_MACHINE).await;
    load.stop().await;

    net.network.kill(3).unwrap();
    let down = at("ValidatorDown", &net, 3);
    let peers: Vec<String> = (0..3).map(|place| at("PeerMissing", &net, place)).collect();
    let of_one = [
        &down,
        "OneFailureFromHalt",
        "ValidatorDoesNotVote 3",
        "MissedLeaderSlots 3",
        &peers[0],
        &peers[1],
        &peers[2],
    ];
    prometheus.fires(&of_one, &OF_A_BUSY_MACHINE).await;

    net.network.kill(2).unwrap();
    let lost: Vec<String> = (0..2)
        .map(|place| at("PeersBelowQuorum", &net, place))
        .collect();
    let of_two = ["NoBlock", "ValidatorDown", &lost[0], &lost[1]];
    prometheus.fires(&of_two, &with(&[&OF_ONE_AWAY])).await;

    for place in [0, 1] {
        net.network.kill(place).unwrap();
    }
    let of_all = ["NobodyAnswers", "ValidatorDown"];
    let halted = with(&[&OF_ONE_AWAY, &of_two, &["PeersBelowQuorum"]]);
    prometheus.fires(&of_all, &halted).await;

    // Two of four, one with little room.
    add_to_config(&net, 0, "mempool", "max_transactions = 20");
    for place in [0, 1] {
        net.network.spawn(place, &[]).unwrap();
    }
    submit(&net, 0, 19).await;
    let full = at("MempoolFillsUp", &net, 0);
    let halted = [&halted[..], &["NobodyAnswers"]].concat();
    prometheus.fires(&[&full, "NoBlock"], &halted).await;

    for place in [2, 3] {
        net.network.spawn(place, &[]).unwrap();
    }
    let of_starts = with(&[&["MissedLeaderSlots"]]);
    prometheus.quiet(&of_starts).await;

    for _ in 0..3 {
        net.network.kill(1).unwrap();
        net.network.spawn(1, &[]).unwrap();
        net.network.wait_until_up().await.unwrap();
        // It must be seen between two starts.
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    let restarts = at("RestartLoop", &net, 1);
    let follow = with(&[&OF_ONE_AWAY, &["PeersBelowQuorum"]]);
    prometheus.fires(&[&restarts], &follow).await;
    net.stop_and_check().await;
}

fn seat(net: &Net, place: usize) -> Seat {
    let path = net.config(place);
    let config = ValidatorConfig::load(path.as_ref(), &KeyAccess::plain()).unwrap();
    let peers = config.node.p2p.peers.iter();
    let others =
        peers.map(|(identity, address)| (identity.to_public_key().unwrap(), address.ip().unwrap()));
    Seat {
        chain: config.node.chain,
        committee: config.node.committees.known().clone(),
        place: ValidatorIndex(place as u32),
        listen: config.node.p2p.listen,
        others: others.collect(),
        identity: config.node.identity.clone(),
        funded: net.accounts()[0].identity(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_validator_that_contradicts_itself() {
    if !nightly() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut net = idle_net("chaos-alerts").await;
    let Some(prometheus) = Prometheus::start(folder.path(), &admins(&net), &[]) else {
        drop(net.stop_and_keep());
        return;
    };
    prometheus.stays_quiet(HEALTHY, &OF_A_BUSY_MACHINE).await;

    // It votes for two blocks at a time. The others block it, and it is told that its key has said more than
    // it said itself, as if a second process used it.
    net.network.kill(3).unwrap();
    let equivocate = ["--misbehave", "equivocate"];
    net.network
        .spawn_program(Path::new(LAB), 3, &equivocate)
        .unwrap();
    let proof: Vec<String> = (0..3)
        .map(|place| at("Equivocation", &net, place))
        .collect();
    let blocks: Vec<String> = (0..3)
        .map(|place| at("ValidatorBlocked", &net, place))
        .collect();
    let elsewhere = at("KeySeenElsewhere", &net, 3);
    let wanted = proof.iter().chain(&blocks).chain([&elsewhere]);
    let wanted: Vec<&str> = wanted.map(String::as_str).collect();
    let of_it = [
        at("PeersBelowQuorum", &net, 3),
        at("Equivocation", &net, 3),
        at("PeerMissing", &net, 3),
    ];
    let of_it: Vec<&str> = of_it.iter().map(String::as_str).collect();
    prometheus
        .fires(&wanted, &with(&[&OF_ONE_AWAY, &of_it]))
        .await;
    drop(net.stop_and_keep());
}

/// Forged votes whose sender is not blocked for them, and bytes that mean nothing.
#[tokio::test(flavor = "multi_thread")]
async fn peers_that_send_what_no_validator_sends() {
    if !nightly() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut net = Net::start_changed("chaos-forged", 4, |settings| {
        settings.block_interval_ms = 50;
    })
    .await;
    assert!(net.network.stop().is_empty());
    let path = net.path();
    net.network = Network::start_with(Path::new(LAB), &path, &net.settings, |place| {
        let arguments = match place {
            3 => ["--misbehave", "garbage-votes"],
            _ => ["--checking", "unblocked"],
        };
        arguments.map(str::to_owned).to_vec()
    })
    .unwrap();
    net.network.wait_until_up().await.unwrap();
    let Some(prometheus) = Prometheus::start(folder.path(), &admins(&net), &[]) else {
        drop(net.stop_and_keep());
        return;
    };
    let forged: Vec<String> = (0..3).map(|place| at("ForgedVotes", &net, place)).collect();
    let forged: Vec<&str> = forged.iter().map(String::as_str).collect();
    let follow = with(&[&["ForgedVotes", "MissedLeaderSlots"]]);
    prometheus.fires(&forged, &follow).await;

    // Another program in its place sends what cannot be decoded. It answers no scrape.
    net.network.kill(3).unwrap();
    let client = Client::start(seat(&net, 3));
    let until = Instant::now() + Duration::from_secs(20);
    let away = with(&[&OF_ONE_AWAY, &["ForgedVotes"]]);
    let cut: Vec<String> = (0..3).map(|place| at("PeerCut", &net, place)).collect();
    let cut: Vec<&str> = cut.iter().map(String::as_str).collect();
    // A little at a time: it is not the load that is tried.
    while Instant::now() < until {
        client.flood(Some(Flood::Undecodable));
        tokio::time::sleep(Duration::from_millis(300)).await;
        client.flood(None);
        let firing = prometheus.firing().await;
        if cut.iter().all(|alert| firing.contains(*alert)) {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    prometheus.fires(&cut, &away).await;
    drop(client);

    drop(net.stop_and_keep());
}

fn prune(net: &Net, place: usize, kept: u64) {
    let database = net.path().join(format!("validator-{place}/data/db"));
    let (store, tree) = Store::open(&database, &net.genesis).unwrap();
    drop(tree);
    let below = Height(store.tip().height.0 - kept);
    while store.prune(below, u64::MAX).unwrap() < below {}
    assert!(store.close(Duration::from_secs(10)));
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_on_which_something_is_wrong() {
    if !nightly() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let Some(troubles) = Troubles::make(folder.path()) else {
        return;
    };
    let mut net = idle_net("alerts-machines").await;
    troubles.take_over(&mut net).await;
    let watching = folder.path().join("prometheus");
    let Some(prometheus) = Prometheus::start(&watching, &admins(&net), &[]) else {
        drop(net.stop_and_keep());
        return;
    };
    // What finality usually takes is measured until 30 s ago.
    prometheus
        .stays_quiet(Duration::from_secs(50), &OF_A_BUSY_MACHINE)
        .await;

    for place in 0..4 {
        troubles.begin(place, "slow-journal", 250);
    }
    let slow: Vec<String> = (0..4)
        .map(|place| at("JournalSyncSlow", &net, place))
        .collect();
    let slow: Vec<&str> = slow.iter().map(String::as_str).collect();
    let slow = [&slow[..], &["FinalitySlow"]].concat();
    prometheus
        .fires(&slow, &with(&[&["MissedLeaderSlots"]]))
        .await;
    for place in 0..4 {
        troubles.end(place, "slow-journal");
    }

    troubles.begin(3, "slow-database", 20_000);
    let load = net.load(30.0);
    let lags = at("ExecutionLags", &net, 3);
    prometheus
        .fires(&[&lags], &with(&[&["MissedLeaderSlots"]]))
        .await;
    load.stop().await;
    troubles.end(3, "slow-database");
    let slots = with(&[&["MissedLeaderSlots"]]);
    prometheus.quiet(&slots).await;

    troubles.begin(3, "clock", 3);
    let off = at("ClockSkew", &net, 3);
    prometheus.fires(&[&off], &slots).await;
    // Beyond what links allow, which shows when they are made. If it is behind it knows that itself.
    let beyond = at("ClockBeyondLinks", &net, 3);
    let lost = at("PeersBelowQuorum", &net, 3);
    let alone = with(&[
        &OF_ONE_AWAY,
        &["ClockSkew", "ClockBeyondLinks 3"],
        &[&lost, &beyond],
    ]);
    for (seconds, wanted) in [(-9, beyond.as_str()), (9, "ClockBeyondLinks 3")] {
        net.network.kill(3).unwrap();
        troubles.begin(3, "clock", seconds);
        net.network.spawn(3, &[]).unwrap();
        prometheus.fires(&[wanted], &alone).await;
    }
    net.network.kill(3).unwrap();
    troubles.end(3, "clock");

    // It was away for longer than the others keep blocks.
    for _ in 0..3 {
        net.grow(0, 10).await;
    }
    assert!(net.network.stop().is_empty());
    (0..3).for_each(|place| prune(&net, place, 5));
    for place in 0..4 {
        // Otherwise it would fetch the state.
        let file = net.path().join(format!("validator-{place}/validator.toml"));
        let text = fs::read_to_string(&file).unwrap();
        let without = text.replace("# snapshot_interval = 1000", "snapshot_interval = 0");
        assert_ne!(text, without);
        fs::write(&file, without).unwrap();
        net.network.spawn(place, &[]).unwrap();
    }
    let gone = at("BlocksGone", &net, 3);
    let starts = [
        "NobodyAnswers",
        "NoBlock",
        "PeersBelowQuorum",
        "RestartLoop",
    ];
    prometheus
        .fires(&[&gone], &[&alone[..], &starts].concat())
        .await;
    drop(net.stop_and_keep());
}

/// A file system of the validator's own, as large as a test needs it: a mount in a namespace that only its
/// process sees.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_fills_up() {
    if !nightly() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let may = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c"])
        .arg(format!("mount -t tmpfs none {}", folder.path().display()))
        .output();
    if !may.is_ok_and(|output| output.status.success()) {
        skipped("no file systems can be mounted here (unshare), so no disk fills up");
        return;
    }
    let mut net = idle_net("alerts-disk").await;
    assert!(net.network.stop().is_empty());
    let program = folder.path().join("quorate");
    let own = folder.path().display();
    let data = net.path().join("validator-2/data");
    let data = data.display();
    // What fills it is as large as the file `fill-N` says that the test makes.
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in\n*validator-2/*) exec unshare --user --map-root-user --mount sh -c '\n\
         mount -t tmpfs -o size=512m,mode=700 none {data} || exit 9\n\
         (for n in $(seq 600); do\n[ -e {own}/stop ] && exit\nfor f in {own}/fill-*; do\n\
         [ -e $f ] && head -c $(cat $f) /dev/zero > {data}/$(basename $f) && rm $f\ndone\nsleep 0.5\ndone) &\n\
         exec {BINARY} \"$@\"' sh \"$@\";;\nesac\nexec {BINARY} \"$@\"\n"
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let path = net.path();
    net.network = Network::start(&program, &path, &net.settings).unwrap();
    net.network.wait_until_up().await.unwrap();
    let fill = |name: &str, mib: u64| {
        let unfinished = own.to_string() + "/unfinished";
        fs::write(&unfinished, (mib << 20).to_string()).unwrap();
        fs::rename(unfinished, format!("{own}/fill-{name}")).unwrap();
    };
    let watching = folder.path().join("prometheus");
    let Some(prometheus) = Prometheus::start(&watching, &admins(&net), &[]) else {
        drop(net.stop_and_keep());
        return;
    };
    prometheus.stays_quiet(HEALTHY, &OF_A_BUSY_MACHINE).await;
    fill("first", 280);
    let soon = at("DiskFullSoon", &net, 2);
    let deadline = Instant::now() + PATIENCE;
    let mut more = 0;
    while !prometheus.firing().await.contains(&soon) {
        assert!(Instant::now() < deadline, "{:?}", prometheus.firing().await);
        fill(&more.to_string(), 1);
        more += 1;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    fill("last", 512 - 280 - more - 40);
    let full = at("DiskAlmostFull", &net, 2);
    prometheus.fires(&[&full], &OF_A_BUSY_MACHINE).await;
    fs::write(folder.path().join("stop"), "").unwrap();
    drop(net.stop_and_keep());
}

#[tokio::test(flavor = "multi_thread")]
async fn explorers_that_show_nothing_new() {
    if !nightly() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let net = idle_net("alerts-explorer").await;
    let upstream = Proxy::start(net.network.client(0).url()).await;
    let path = net.path();
    let explorer = || {
        ExplorerProcess::start(
            Path::new(BINARY),
            &path,
            &net.settings,
            std::slice::from_ref(&upstream.url),
        )
    };
    let mut running = explorer().unwrap();
    let at: SocketAddr = running.url().trim_start_matches("http://").parse().unwrap();
    let Some(prometheus) = Prometheus::start(folder.path(), &admins(&net), &[at]) else {
        drop(running);
        drop(net.stop_and_keep());
        return;
    };
    let nobody = Prometheus::start(&folder.path().join("nobody"), &[], &[]).unwrap();
    prometheus.stays_quiet(HEALTHY, &OF_A_BUSY_MACHINE).await;
    nobody.fires(&["NothingWatched"], &[]).await;

    let alert = |name: &str| format!("{name} {at}");
    upstream.set(Way::Shut);
    let load = net.load(50.0);
    prometheus
        .fires(&[&alert("ExplorerStandsStill")], &OF_A_BUSY_MACHINE)
        .await;
    upstream.set(Way::Slow);
    prometheus
        .fires(
            &[&alert("ExplorerBehind")],
            &with(&[&["ExplorerStandsStill"]]),
        )
        .await;
    load.stop().await;
    upstream.set(Way::Open);
    prometheus.quiet(&OF_A_BUSY_MACHINE).await;
    upstream.set(Way::Lying);
    prometheus
        .fires(
            &[&alert("ExplorerLiedTo")],
            &with(&[&["ExplorerStandsStill"]]),
        )
        .await;
    running.kill().unwrap();
    let lied = with(&[&["ExplorerStandsStill", "ExplorerLiedTo"]]);
    prometheus.fires(&[&alert("ExplorerDown")], &lied).await;
    upstream.set(Way::Open);
    running = explorer().unwrap();
    prometheus.quiet(&OF_A_BUSY_MACHINE).await;
    drop(running);
    net.stop_and_check().await;
}
