//! Keys without their journals: restored from a back-up, lost by more than the chain can do without, and
//! used by two processes at once.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{BINARY, Net, free_base_port};
use quorate_api::{
    StatusJson,
    verdict::{Health, VerdictJson, Voting},
};
use quorate_types::{ValidatorIndex, View};
use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
};

async fn status(net: &Net, place: usize) -> Option<StatusJson> {
    net.network.client(place).status().await.ok()
}

async fn verdict(net: &Net, place: usize) -> Option<VerdictJson> {
    status(net, place).await?.verdict
}

/// Epoch and view of the newest vote of a validator that validator 0 has seen.
async fn last_vote(net: &Net, place: u32) -> (u64, View) {
    let peers = net.network.client(0).peers().await.unwrap().peers;
    let place = ValidatorIndex(place);
    let peer = peers
        .into_iter()
        .find(|peer| peer.peer.validator == Some(place));
    peer.and_then(|peer| peer.last_vote).unwrap_or_default()
}

async fn no_evidence(net: &Net) {
    for place in 0..2 {
        let evidence = net.network.client(place).evidence().await.unwrap();
        assert!(evidence.evidence.is_empty(), "somebody contradicted itself");
    }
}

fn log(net: &Net, place: usize) -> String {
    let path = net.path().join(format!("validator-{place}/node.log"));
    fs::read_to_string(path).unwrap()
}

/// A machine is gone, and its keys come from the back-up, without the mark that they were used. On a chain
/// that has gone on for a while that is a lost journal, too.
// R27, R28
#[tokio::test(flavor = "multi_thread")]
async fn a_key_from_a_back_up_follows_before_it_votes() {
    let mut net = Net::start_with("restored", 4, "bls-threshold", 100_000).await;
    while net.height(0).await < 550 {
        net.grow(0, 50).await;
    }
    net.network.kill(3).unwrap();
    let folder = net.path().join("validator-3");
    fs::remove_dir_all(folder.join("data")).unwrap();
    fs::remove_file(folder.join("vote.key.used")).unwrap();
    // So that nobody remembers its votes.
    for place in 0..3 {
        net.network.kill(place).unwrap();
    }
    for place in 0..3 {
        net.network.spawn(place, &[]).unwrap();
    }
    let height = net.height(0).await;
    net.reach(0, height.max(550) + 10).await;
    let before = last_vote(&net, 3).await;
    net.network.spawn(3, &[]).unwrap();
    net.until("it votes again", async |net| {
        last_vote(net, 3).await > before
    })
    .await;
    let log = log(&net, 3);
    assert!(
        log.contains("may have voted on a machine that is gone"),
        "{log}"
    );
    assert!(
        log.contains("it may vote from this view on"),
        "it asked nobody: {log}"
    );
    no_evidence(&net).await;
    let height = net.height(0).await;
    net.reach(3, height).await;
    net.stop_and_check().await;
}

fn lose_journal(net: &Net, place: usize) {
    let journal = net.path().join(format!("validator-{place}/data/journal"));
    fs::remove_dir_all(journal).unwrap();
}

/// The highest view of the validators with a journal, as `quorate status` shows it.
async fn surviving_view(net: &Net) -> (u64, u64) {
    let mut highest = (0, 0);
    net.until("the survivors tell their views", async |net| {
        let (Some(one), Some(other)) = (status(net, 0).await, status(net, 1).await) else {
            return false;
        };
        let views = [&one, &other].map(|status| (status.epoch, status.view.0));
        highest = views[0].max(views[1]);
        // Right after a start neither has entered its view.
        views.iter().all(|view| view.1 > 0)
            && one.peers.iter().filter(|peer| peer.connected).count() == 1
    })
    .await;
    highest
}

/// Whether a validator says that more journals are lost than the chain can do without, and whether the
/// operator's word was refused.
async fn says_too_many_lost(net: &Net, place: usize, word_refused: bool) -> bool {
    let Some(verdict) = verdict(net, place).await else {
        return false;
    };
    let fits = matches!(
        verdict.voting,
        Voting::Recovering { lost: 2, refused, .. } if refused == word_refused
    );
    let remedy = verdict.remedy.unwrap_or_default();
    fits && verdict.state == Health::Halted && remedy.contains("More than f journals")
}

/// Two of four lose their journals. They say so and stay silent; the documented procedure, with all
/// stopped in between, brings the chain on; a word that is wrong or of an earlier loss is refused.
// R30
#[tokio::test(flavor = "multi_thread")]
async fn two_of_four_lost_journals_take_the_operators_word_and_no_other_one() {
    let mut net = Net::start_with("survivors", 4, "bls-aggregate", 100_000).await;
    let mut told: Option<String> = None;
    for _ in 0..2 {
        net.grow(0, 20).await;
        for place in [2, 3] {
            net.network.kill(place).unwrap();
            lose_journal(&net, place);
        }
        // As an operator would try first. A flag that is left from the last loss does no harm.
        let old = told
            .clone()
            .map(|view| ["--surviving-view".to_owned(), view]);
        let old: Vec<&str> = old.iter().flatten().map(String::as_str).collect();
        for place in [2, 3] {
            net.network.spawn(place, &old).unwrap();
        }
        for place in [2, 3] {
            net.until("it says that too many are lost", async |net| {
                says_too_many_lost(net, place, !old.is_empty()).await
            })
            .await;
        }
        let stands = net.height(0).await;
        for place in 0..4 {
            net.network.kill(place).unwrap();
        }
        net.network.spawn(0, &[]).unwrap();
        net.network.spawn(1, &[]).unwrap();
        let (epoch, view) = surviving_view(&net).await;
        let wrong = format!("{epoch}.{}", view - 1);
        for place in [2, 3] {
            net.network
                .spawn(place, &["--surviving-view", &wrong])
                .unwrap();
        }
        for place in [2, 3] {
            net.until("the wrong view is refused", async |net| {
                says_too_many_lost(net, place, true).await
            })
            .await;
        }
        assert!(log(&net, 2).contains("--surviving-view does not fit"));
        // The blocks that were final before, and perhaps the one that was about to be.
        assert!(net.height(0).await <= stands + 1, "somebody voted");
        let right = format!("{epoch}.{view}");
        for place in [2, 3] {
            net.network.kill(place).unwrap();
            net.network
                .spawn(place, &["--surviving-view", &right])
                .unwrap();
        }
        for place in 0..4 {
            net.reach(place, stands + 20).await;
        }
        told = Some(right);
        no_evidence(&net).await;
    }
    net.stop_and_check().await;
}

/// Only with simplex does a word of the operators replace journals. Elsewhere it is refused at once.
// R30
#[test]
fn the_operators_word_is_refused_at_the_start_where_it_cannot_help() {
    let folder = tempfile::tempdir().unwrap();
    let net = folder.path().join("net");
    let run = |arguments: &[&str], path: &Path| {
        let output = Command::new(BINARY).args(arguments).arg(path).output();
        output.unwrap()
    };
    let made = ["testnet", "--plain", "--protocol", "pbft", "--out"];
    assert!(run(&made, &net).status.success());
    let file = net.join("validator-0/validator.toml");
    let word = [
        "run",
        "--allow-plain-keys",
        "--surviving-view",
        "0.7",
        "--config",
    ];
    let refused = run(&word, &file);
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success(), "{told}");
    assert!(
        told.contains("this chain's protocol is pbft") && told.contains("quorate status"),
        "{told}"
    );
}

/// A second process, stopped with the test.
struct Twin(Child);

impl Drop for Twin {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A copy of validator 3's folder with ports of its own, as on another machine behind the same address.
fn copy_folder(net: &Net) {
    let [own, twin] = ["validator-3", "twin"].map(|name| net.path().join(name));
    let copied = Command::new("cp").arg("-r").args([&own, &twin]).status();
    assert!(copied.unwrap().success());
    let file = twin.join("validator.toml");
    let mut port = free_base_port(2);
    let text = fs::read_to_string(&file).unwrap();
    let lines = text.lines().map(|line| {
        if !line.starts_with("listen = ") {
            return line.to_owned();
        }
        port += 1;
        format!("listen = \"127.0.0.1:{port}\"")
    });
    fs::write(&file, lines.collect::<Vec<_>>().join("\n")).unwrap();
}

fn start_twin(folder: &Path) -> Twin {
    let log = fs::File::create(folder.join("twin.log")).unwrap();
    let child = Command::new(BINARY)
        .args(["run", "--allow-plain-keys", "--config"])
        .arg(folder.join("validator.toml"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn();
    Twin(child.unwrap())
}

/// Whether the others all have a link to validator 3, or to its twin.
async fn linked_to_all(net: &Net) -> bool {
    for place in 0..3 {
        let linked = status(net, place).await.is_some_and(|status| {
            let mut peers = status.peers.iter();
            peers.any(|peer| peer.validator == Some(ValidatorIndex(3)) && peer.connected)
        });
        if !linked {
            return false;
        }
    }
    true
}

/// Two processes with one identity, on the same address. Who comes second is refused and says that there may
/// be another one; it takes over when the first is gone, from a view on in which that one cannot have voted;
/// and the other way round.
// R29
#[tokio::test(flavor = "multi_thread")]
async fn of_two_processes_with_one_identity_one_votes_at_a_time() {
    let mut net = Net::start_with("twins", 4, "bls-aggregate", 100_000).await;
    net.grow(0, 20).await;
    net.network.kill(3).unwrap();
    copy_folder(&net);
    net.network.spawn(3, &[]).unwrap();
    let before = last_vote(&net, 3).await;
    net.until("it votes again", async |net| {
        last_vote(net, 3).await > before
    })
    .await;
    net.until("it is linked to all", linked_to_all).await;
    let folder = net.path().join("twin");
    let twin = start_twin(&folder);
    let told = || fs::read_to_string(folder.join("twin.log")).unwrap();
    net.until("the twin is refused", async |_| {
        told().contains("refused by the others")
            && told().contains("another process with this validator's keys")
    })
    .await;
    net.until("the others tell of it", async |net| {
        verdict(net, 0).await.is_some_and(|verdict| {
            let notes = verdict.notes.join("; ");
            notes.contains("a second process runs with the identity of validator 3")
        })
    })
    .await;
    net.network.kill(3).unwrap();
    let before = last_vote(&net, 3).await;
    net.until("the twin votes", async |net| {
        last_vote(net, 3).await > before
    })
    .await;
    // Now the first one is the second.
    net.until("the twin is linked to all", linked_to_all).await;
    net.network.spawn(3, &[]).unwrap();
    net.until("it is refused", async |net| {
        verdict(net, 3)
            .await
            .is_some_and(|verdict| verdict.state == Health::Refused)
    })
    .await;
    drop(twin);
    let before = last_vote(&net, 3).await;
    net.until("it votes again", async |net| {
        last_vote(net, 3).await > before
    })
    .await;
    no_evidence(&net).await;
    net.stop_and_check().await;
}
