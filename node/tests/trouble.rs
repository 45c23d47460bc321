//! What validators say of themselves in trouble that is made on purpose: away for too long, stopped, with
//! a clock that is wrong.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{BINARY, LAB, Net};
use quorate_api::{
    ClientError, SnapshotsJson, StatusJson,
    verdict::{Health, VerdictJson, Voter},
};
use quorate_node::localnet::Network;
use quorate_storage::store::Store;
use quorate_types::Height;
use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Output},
    time::{Duration, Instant},
};

/// Blocks that everybody keeps after the others were pruned.
const KEPT: u64 = 5;

async fn status(net: &Net, place: usize) -> Option<StatusJson> {
    let asked = net.network.client(place);
    let answer = tokio::time::timeout(Duration::from_secs(2), asked.status()).await;
    answer.ok()?.ok()
}

async fn verdict(net: &Net, place: usize) -> Option<VerdictJson> {
    status(net, place).await?.verdict
}

async fn is(net: &Net, place: usize, state: Health) -> bool {
    verdict(net, place)
        .await
        .is_some_and(|verdict| verdict.state == state)
}

fn log(net: &Net, place: usize) -> String {
    fs::read_to_string(net.path().join(format!("validator-{place}/node.log"))).unwrap()
}

fn database(net: &Net, place: usize) -> std::path::PathBuf {
    net.path().join(format!("validator-{place}/data/db"))
}

/// Stops all validators that run, in order.
fn stop_all(net: &mut Net) {
    assert!(net.network.stop().is_empty());
}

/// Forgets all but the newest blocks of a stopped validator.
fn prune(net: &Net, place: usize) -> u64 {
    let (store, tree) = Store::open(&database(net, place), &net.genesis).unwrap();
    drop(tree);
    let below = Height(store.tip().height.0 - KEPT);
    while store.prune(below, u64::MAX).unwrap() < below {}
    assert!(store.close(Duration::from_secs(10)));
    below.0
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Changes a line of a stopped validator's configuration.
fn configure(net: &Net, place: usize, from: &str, to: &str) {
    let file = net.path().join(format!("validator-{place}/validator.toml"));
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(&file, text.replace(from, to)).unwrap();
}

/// A network whose last validator was away for longer than the others keep blocks. All are stopped.
async fn away_for_too_long(name: &str) -> Net {
    away_for_too_long_from(Net::start(name, 4).await).await
}

async fn away_for_too_long_from(mut net: Net) -> Net {
    net.grow(3, 5).await;
    net.network.kill(3).unwrap();
    net.grow(0, 60).await;
    stop_all(&mut net);
    for place in 0..3 {
        prune(&net, place);
    }
    net
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_away_for_longer_than_peers_keep_blocks_fetches_the_state() {
    let mut net = away_for_too_long("away").await;
    for place in 0..4 {
        net.network.spawn(place, &[]).unwrap();
    }
    net.until("it goes on, and all vote", async |net| {
        let seen = verdict(net, 0).await;
        is(net, 3, Health::Healthy).await
            && seen.is_some_and(|seen| seen.voters == 4 && seen.notes.is_empty())
    })
    .await;
    let text = log(&net, 3);
    let made = "making the state of the genesis file";
    assert!(text.contains(made), "{text}");
    assert!(text.contains("no peer keeps the blocks"), "{text}");
    assert!(text.contains("state sync: the state is whole"), "{text}");
    let told = status(&net, 3).await.unwrap();
    assert!(told.first_height.0 > 60, "{:?}", told.first_height);
    // What it answers is what the others answer, and what was not executed here is not answered.
    net.grow(3, 3).await;
    for account in &net.genesis.accounts {
        let [ours, theirs] = [3, 0].map(|place| net.network.client(place));
        let ours = ours.account(&account.identity, false).await.unwrap();
        let theirs = theirs.account(&account.identity, false).await.unwrap();
        assert_eq!((ours.nonce, ours.balance), (theirs.nonce, theirs.balance));
    }
    let before = told.first_height.0 - 1;
    let url = net.network.client(3).url().to_owned();
    let block = net.cli(&["block", &before.to_string(), "--rpc", &url]);
    let said = String::from_utf8(block.stderr).unwrap();
    assert!(said.contains("pruned"), "{said}");
    stop_all(&mut net);
    let config = net.path().join("validator-3/validator.toml");
    let checked = net.cli(&["db", "check", "--config", config.to_str().unwrap()]);
    assert!(checked.status.success(), "{checked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_of_which_some_is_here_is_completed_after_the_process_was_killed() {
    let net = Net::start_changed("killed-sync", 4, |settings| settings.accounts = 80_000).await;
    let mut net = away_for_too_long_from(net).await;
    // Of a state that it has it would fetch the changes only.
    fs::remove_dir_all(database(&net, 3)).unwrap();
    for place in 0..4 {
        configure(&net, place, "# upload_mbit = 1000", "upload_mbit = 8");
        net.network.spawn(place, &[]).unwrap();
    }
    net.until("it opens its database", async |net| {
        let refused = net.network.client(3).status().await.err();
        matches!(refused, Some(ClientError::Refused { code, .. }) if code == "opening")
    })
    .await;
    net.succeed(&["stop", "--config", &net.config(3)]);
    net.network.kill(3).unwrap();
    fs::remove_dir_all(database(&net, 3)).unwrap();
    net.network.spawn(3, &[]).unwrap();
    // Once it listens, it answers, whatever it does first.
    let mut refusals = BTreeSet::new();
    net.until("it tells how it is", async |net| {
        match net.network.client(3).status().await {
            Ok(_) => true,
            Err(ClientError::Refused { code, .. }) => {
                refusals.insert(code);
                false
            }
            Err(error) => {
                assert!(refusals.is_empty(), "{error}");
                false
            }
        }
    })
    .await;
    assert_eq!(refusals, BTreeSet::from(["opening".to_owned()]));
    for percent in [10.0, 40.0] {
        net.until("some of the state is here", async |net| {
            let said = verdict(net, 3).await.map(|said| said.summary);
            let said = said.unwrap_or_default();
            let share = said.strip_prefix("state sync: ");
            let share = share.and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok());
            share.is_some_and(|share| share >= percent)
        })
        .await;
        net.network.kill(3).unwrap();
        net.network.spawn(3, &[]).unwrap();
    }
    net.until("it goes on, and votes", async |net| {
        is(net, 3, Health::Healthy).await
            && verdict(net, 0).await.is_some_and(|seen| seen.voters == 4)
    })
    .await;
    let text = log(&net, 3);
    let continued = text.matches("state sync: continues").count();
    assert_eq!(continued, 2, "{text}");
    stop_all(&mut net);
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_peer_answers_the_state_is_the_chains() {
    let mut net = away_for_too_long("chaos-sync").await;
    for place in [0, 1] {
        net.network.spawn(place, &[]).unwrap();
    }
    let lies = [
        "sync-offer",
        "sync-stale",
        "sync-garbage",
        "sync-swapped",
        "sync-too-many",
        "sync-absent",
        "sync-silent",
        "sync-block",
    ];
    for lie in lies {
        let arguments = ["--misbehave", lie];
        let lab = Path::new(LAB);
        net.network.spawn_program(lab, 2, &arguments).unwrap();
        net.network.spawn(3, &[]).unwrap();
        let began = net.height(0).await;
        net.until(lie, async |net| {
            let seen = verdict(net, 0).await;
            let told = status(net, 3).await;
            is(net, 3, Health::Healthy).await
                && told.is_some_and(|told| told.executed_height.0 > began)
                && seen.is_some_and(|seen| seen.voters == 4)
        })
        .await;
        net.network.kill(2).unwrap();
        net.network.kill(3).unwrap();
        fs::remove_dir_all(database(&net, 3)).unwrap();
    }
    let text = log(&net, 3);
    let whole = text.matches("state sync: the state is whole").count();
    assert_eq!(whole, lies.len(), "{text}");
    // Nobody but the liar is blamed.
    let liar = net.genesis.validators[2].identity.short();
    let blamed = text
        .lines()
        .filter(|line| line.contains("a peer is faulty"));
    let others: Vec<&str> = blamed.filter(|line| !line.contains(&liar)).collect();
    assert!(others.is_empty(), "{others:?}");
    stop_all(&mut net);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_snapshots_it_says_so_and_the_remedy_works() {
    let mut net = away_for_too_long("none").await;
    for place in 0..4 {
        let (from, to) = ("# snapshot_interval = 1000", "snapshot_interval = 0");
        configure(&net, place, from, to);
        net.network.spawn(place, &[]).unwrap();
    }
    net.until("it says what it waits for", async |net| {
        let said = verdict(net, 3).await;
        is(net, 3, Health::StateSync).await
            && said.is_some_and(|said| {
                let remedy = said.remedy.unwrap_or_default();
                said.summary.contains("none of the 3 linked peers has one")
                    && remedy.contains("copy its database")
            })
    })
    .await;
    let url = net.network.client(3).url().to_owned();
    let output = net.cli(&["status", "--rpc", &url]);
    // Until its operator does what the remedy says.
    assert_eq!(output.status.code(), Some(4));
    // What it does not know is not shown.
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains("database "), "{shown}");
    assert!(!shown.contains("vote journal"), "{shown}");
    assert!(
        !shown.lines().any(|line| line.starts_with("view")),
        "{shown}"
    );
    let refused = net.network.client(3).ready().await.unwrap_err().to_string();
    assert!(refused.contains("a snapshot"), "{refused}");
    let identity = net.genesis.accounts[0].identity;
    let refused = net.network.client(3).account(&identity, false).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("state sync"), "{refused}");
    let metrics = net.network.operator(3).metrics().await.unwrap();
    assert!(metrics.contains("quorate_node_verdict{state=\"state_sync\"} 1"));
    for place in 0..3 {
        assert!(is(&net, place, Health::Healthy).await, "{place}");
    }

    // The remedy that OPERATING.md names.
    stop_all(&mut net);
    fs::remove_dir_all(database(&net, 3)).unwrap();
    copy_folder(&database(&net, 0), &database(&net, 3));
    for place in 0..4 {
        net.network.spawn(place, &[]).unwrap();
    }
    net.until("it goes on, and all vote", async |net| {
        let seen = verdict(net, 0).await;
        is(net, 3, Health::Healthy).await
            && seen.is_some_and(|seen| seen.voters == 4 && seen.notes.is_empty())
    })
    .await;
    stop_all(&mut net);
}

/// One of four lacks the state, another one is away: no block can come that names a state which the two
/// others have.
#[tokio::test(flavor = "multi_thread")]
async fn a_halted_chain_that_was_restarted_serves_the_state_that_it_lacks() {
    let mut net = away_for_too_long("halted").await;
    for place in [0, 1, 3] {
        net.network.spawn(place, &[]).unwrap();
    }
    net.until("it goes on, and three vote", async |net| {
        let seen = verdict(net, 0).await;
        is(net, 3, Health::Healthy).await && seen.is_some_and(|seen| seen.voters == 3)
    })
    .await;
    let text = log(&net, 3);
    assert!(text.contains("state sync: the state is whole"), "{text}");
    // What is asked about a block from before is answered as what it is.
    let client = net.network.client(3);
    let first = status(&net, 3).await.unwrap().first_height;
    assert!(first.0 > 10, "{first}");
    for what in ["/v1/blocks?from=5", "/v1/chain?from=5", "/v1/blocks/5"] {
        let answer = reqwest::get(format!("{}{what}", client.url())).await;
        assert_eq!(answer.unwrap().status().as_u16(), 410, "{what}");
    }
    for what in ["blocks", "transactions"] {
        let unknown = format!("{}/v1/{what}/{}", client.url(), "ab".repeat(32));
        let answer = reqwest::get(unknown).await.unwrap();
        assert_eq!(answer.status().as_u16(), 404);
        let text = answer.text().await.unwrap();
        assert!(text.contains(&format!("from {first} on")), "{text}");
    }
    stop_all(&mut net);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_carried_in_a_file_and_nothing_in_it_is_believed() {
    let mut net = away_for_too_long("file").await;
    for place in 0..3 {
        net.network.spawn(place, &[]).unwrap();
    }
    let config = |net: &Net, place: usize| {
        let file = net.path().join(format!("validator-{place}/validator.toml"));
        file.to_str().unwrap().to_owned()
    };
    let listed = |net: &Net| {
        let text = net.cli(&["snapshot", "list", "--json", "--config", &config(net, 0)]);
        let list: SnapshotsJson = serde_json::from_slice(&text.stdout).ok()?;
        list.snapshots.last().cloned()
    };
    net.until("a snapshot is kept", async |net| listed(net).is_some())
        .await;
    let newest = listed(&net).unwrap();
    let file = net.path().join("state.snapshot");
    let file = file.to_str().unwrap().to_owned();
    // A newer one may be there by now.
    let height = newest.height.to_string();
    let export = [
        "snapshot",
        "export",
        &file,
        "--height",
        &height,
        "--config",
        &config(&net, 0),
    ];
    let said = net.succeed(&export);
    assert!(said.contains("accounts"), "{said}");
    assert!(
        net.fail(&export).contains("exists"),
        "nothing is overwritten"
    );
    let again = net.fail(&[
        "snapshot",
        "export",
        "other",
        "--height",
        "1",
        "--config",
        &config(&net, 0),
    ]);
    assert!(again.contains("there is no snapshot of block 1"), "{again}");
    assert!(
        again.contains("control.sock") && !again.contains("http"),
        "{again}"
    );

    let own = config(&net, 3);
    let import = [
        "snapshot",
        "import",
        &file,
        "--allow-plain-keys",
        "--config",
        &own,
    ];
    let whole = fs::read(&file).unwrap();
    let before = status_of_stopped(&net, 3);
    for (damaged, word) in damaged(&whole) {
        fs::write(&file, damaged).unwrap();
        let refused = net.fail(&import);
        assert!(refused.contains(word), "{word}: {refused}");
    }
    assert!(status_of_stopped(&net, 3) >= before);
    fs::write(&file, &whole).unwrap();
    let said = net.succeed(&import);
    assert!(said.contains(&format!("{}", newest.height)), "{said}");
    assert!(net.fail(&import).contains("already"), "it is there");
    net.network.spawn(3, &[]).unwrap();
    net.until("it goes on, and all vote", async |net| {
        let seen = verdict(net, 0).await;
        is(net, 3, Health::Healthy).await && seen.is_some_and(|seen| seen.voters == 4)
    })
    .await;
    assert!(!log(&net, 3).contains("state sync: the target"));
    assert!(net.fail(&import).contains("stop the node first"));
    let told = status(&net, 3).await.unwrap();
    assert_eq!(told.first_height, newest.height.next());
    stop_all(&mut net);
    let checked = net.cli(&["db", "check", "--config", &own]);
    assert!(checked.status.success(), "{checked:?}");
}

/// The newest block of a stopped validator whose state is that of a block; else the highest number.
fn status_of_stopped(net: &Net, place: usize) -> u64 {
    match Store::open_to_read(&database(net, place), &net.genesis) {
        Ok(store) => store.tip().height.0,
        Err(_) => u64::MAX,
    }
}

/// A snapshot damaged in several places, and a word of what is said of each.
fn damaged(whole: &[u8]) -> Vec<(Vec<u8>, &'static str)> {
    let with = |place: usize| {
        let mut bytes = whole.to_vec();
        bytes[place] ^= 1;
        bytes
    };
    let length = |at: usize| u32::from_be_bytes(whole[at..at + 4].try_into().unwrap()) as usize;
    // Behind the number of changes of the validators, which is 0 here.
    let begins = 19 + 4 + length(19);
    let proof = begins + 4;
    let proof_ends = proof + length(begins);
    let block_ends = proof_ends + 4 + length(proof_ends);
    let first_part = block_ends + 4;
    vec![
        (b"something else".to_vec(), "no snapshot of this format"),
        (whole[..proof + 10].to_vec(), "cut off"),
        (with(begins - 1), "is refused"),
        (with(proof + 10), "and this node is of chain"),
        // A header's bytes: another id, so no chain of headers.
        (with(proof + 40), "is refused"),
        (with(proof_ends - 1), "is refused"),
        (with(first_part + length(block_ends) - 1), "is refused"),
        (
            [&whole[..block_ends], &0_u32.to_be_bytes()[..]].concat(),
            "parts of the state are missing",
        ),
        (whole[..whole.len() - 4].to_vec(), "cut off"),
        ([whole, b"junk\n"].concat(), "something follows its end"),
    ]
}

fn signal(net: &Net, place: usize, name: &str) {
    let id = net.network.process(place).unwrap().to_string();
    let sent = Command::new("kill").args([name, &id]).status().unwrap();
    assert!(sent.success());
}

fn failed(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_process_is_missed_by_the_others_and_no_command_hangs_on_it() {
    let mut net = Net::start("paused", 4).await;
    net.network.wait_until_linked(Duration::from_secs(20)).await;
    net.grow(0, 5).await;
    signal(&net, 2, "-STOP");
    net.until("the others miss it, and say what that means", async |net| {
        let Some(seen) = verdict(net, 0).await else {
            return false;
        };
        let missed = seen.others.iter().find(|other| other.validator.0 == 2);
        seen.state == Health::Healthy
            && missed.is_some_and(|other| other.state == Voter::Unreachable)
            && seen
                .notes
                .iter()
                .any(|note| note.contains("one more failure"))
    })
    .await;
    let url = net.network.client(2).url().to_owned();
    for command in [&["status"][..], &["peers", "list"]] {
        let began = Instant::now();
        let output = net.cli(&[command, &["--rpc", &url]].concat());
        assert!(began.elapsed() < Duration::from_secs(15), "{command:?}");
        let complaint = failed(&output);
        assert!(
            complaint.contains("does not answer within 5 s") && complaint.contains("stopped"),
            "{complaint}"
        );
    }
    let config = net.config(2);
    let complaint = failed(&net.cli(&["peers", "list", "--config", &config]));
    assert!(
        complaint.contains("does not answer within 5 s"),
        "{complaint}"
    );
    signal(&net, 2, "-CONT");
    net.until("all vote again", async |net| {
        let seen = verdict(net, 0).await;
        is(net, 2, Health::Healthy).await
            && seen.is_some_and(|seen| seen.voters == 4 && seen.notes.is_empty())
    })
    .await;
    // It was the process that stood still, and no clock.
    for place in 0..4 {
        let log = log(&net, place);
        assert!(!log.contains("clock"), "validator {place}: {log}");
    }
    net.stop_and_check().await;
}

/// A library that sets the wall clock of a process forward, made with the machine's C compiler; none if
/// there is no compiler.
fn clock_shim(folder: &Path) -> Option<String> {
    let source = folder.join("clock.c");
    let code = "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <time.h>\n\
        typedef int (*real_t)(clockid_t, struct timespec *);\n\
        int clock_gettime(clockid_t id, struct timespec *at) {\n\
          static real_t real;\n\
          if (!real) real = (real_t)dlsym(RTLD_NEXT, \"clock_gettime\");\n\
          int done = real(id, at);\n\
          if (id == CLOCK_REALTIME && !done) at->tv_sec += 3;\n\
          return done;\n}\n";
    fs::write(&source, code).unwrap();
    let library = folder.join("clock.so").to_str().unwrap().to_owned();
    let source = source.to_str().unwrap();
    let arguments = ["-shared", "-fPIC", "-o", &library, source, "-ldl"];
    let made = Command::new("cc").args(arguments).status();
    match made {
        Ok(status) if status.success() => Some(library),
        _ => {
            eprintln!("no C compiler; clocks that are wrong are not tested");
            None
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_wrong_is_told_by_its_own_machine_alone() {
    let folder = tempfile::tempdir().unwrap();
    let Some(library) = clock_shim(folder.path()) else {
        return;
    };
    let mut net = Net::start("clocks", 4).await;
    stop_all(&mut net);
    let program = folder.path().join("quorate");
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *validator-3/*) export LD_PRELOAD={library};; esac\nexec {BINARY} \"$@\"\n"
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let path = net.path();
    net.network = Network::start(&program, &path, &net.settings).unwrap();
    net.network.wait_until_up().await.unwrap();
    let told = async |net: &Net, place: usize, words: &str| {
        let notes = verdict(net, place).await.map(|verdict| verdict.notes);
        notes.is_some_and(|notes| notes.iter().any(|note| note.contains(words)))
    };
    net.until("the one that is wrong says so", async |net| {
        told(net, 3, "this machine's clock is").await
    })
    .await;
    let ahead = status(&net, 3).await.unwrap().clock_ahead_ms.unwrap();
    assert!((2_000..=3_100).contains(&ahead), "{ahead}");
    net.until("and its log", async |net| {
        log(net, 3).contains("this machine's clock is")
    })
    .await;
    net.until("the others know that they are right", async |net| {
        let mut known = true;
        for place in 0..3 {
            let status = status(net, place).await;
            let ahead = status.and_then(|status| status.clock_ahead_ms);
            known &= ahead.is_some_and(|ahead| ahead.abs() < 1_000);
        }
        known
    })
    .await;

    // The chain halts. Of the two that are left neither can know whose clock is wrong.
    for place in [1, 2] {
        net.network.kill(place).unwrap();
    }
    net.until("both say that they differ", async |net| {
        is(net, 0, Health::Halted).await
            && told(net, 0, "of this machine and of validator 3").await
            && told(net, 3, "of this machine and of validator 0").await
    })
    .await;
    // With another one it is known again which is wrong.
    net.network.spawn(1, &[]).unwrap();
    net.until("the wrong one says so again", async |net| {
        told(net, 3, "this machine's clock is").await
    })
    .await;
    for place in 0..3 {
        let log = log(&net, place);
        assert!(!log.contains("this machine's clock is"), "{place}: {log}");
    }
    stop_all(&mut net);
}
