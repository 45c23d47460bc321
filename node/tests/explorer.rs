//! The explorer as a process beside real validators: killed at any time, and asked by the command line.
#![allow(clippy::unwrap_used)]

mod common;

use common::{BINARY, Net, PATIENCE};
use quorate_explorer::client::ExplorerClient;
use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

struct Process {
    child: Child,
    url: String,
    client: ExplorerClient,
}

impl Process {
    /// Starts an explorer of all validators, and waits until it listens.
    fn start(net: &Net, data: &Path) -> Self {
        let mut command = Command::new(BINARY);
        command
            .arg("explorer")
            .arg("--trust")
            .arg(net.path().join("trust.json"))
            .arg("--data")
            .arg(data)
            .args(["--listen", "127.0.0.1:0", "--log-level", "warn"])
            .arg("--stop-with-stdin");
        for url in net.network.urls() {
            command.args(["--upstream", &url]);
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut url = String::new();
        let output = child.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut url).unwrap();
        let url = url.trim().to_owned();
        assert!(url.starts_with("http://"), "the explorer does not listen");
        Self {
            child,
            client: ExplorerClient::new(&url).unwrap(),
            url,
        }
    }

    async fn height(&self) -> u64 {
        let status = self.client.status().await.unwrap();
        status.tip.map_or(0, |tip| tip.height.0)
    }

    async fn reach(&self, height: u64) {
        let deadline = Instant::now() + PATIENCE;
        while self.height().await < height {
            let status = self.client.status().await;
            assert!(Instant::now() < deadline, "{height}: never; {status:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// At once, as `kill -9` does.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// By closing its standard input.
    fn stop(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

fn text(path: PathBuf) -> String {
    path.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_killed_explorer_ends_up_with_the_index_of_a_fresh_one() {
    let mut net = Net::start_with("killed", 4, "bls-threshold", 60).await;
    let load = net.load(100.0);
    let (killed, fresh) = (
        net.directory.path().join("killed"),
        net.directory.path().join("fresh"),
    );
    // Blocks that each life may take in: some end in the first batches, some in the present.
    let mut reached = 0;
    for blocks in [1, 0, 37, 3, 90, 12, 0, 55] {
        let explorer = Process::start(&net, &killed);
        let height = explorer.height().await;
        assert!(height >= reached, "{height} after {reached}");
        explorer.reach(height + blocks).await;
        reached = height + blocks;
        explorer.kill();
    }
    load.stop().await;
    // Two of four are no quorum: the chain stands still.
    net.network.kill(2).unwrap();
    net.network.kill(3).unwrap();
    let old = Process::start(&net, &killed);
    let new = Process::start(&net, &fresh);
    let upstream = net.network.urls().remove(0);
    net.until("both explorers have all", async |_| {
        let (a, b) = (old.height().await, new.height().await);
        let rest = format!("{upstream}/v1/chain?from={}&limit=1", a + 1);
        let rest: serde_json::Value =
            serde_json::from_str(&reqwest::get(rest).await.unwrap().text().await.unwrap()).unwrap();
        a == b && rest["blocks"].as_array().unwrap().is_empty()
    })
    .await;
    let tip = old.height().await;
    assert!(tip > reached);
    old.stop();
    new.stop();
    let digest = |data: PathBuf| {
        let trust = text(net.path().join("trust.json"));
        net.succeed(&[
            "explorer",
            "digest",
            "--trust",
            &trust,
            "--data",
            &text(data),
        ])
    };
    let (old, new) = (digest(killed), digest(fresh));
    assert_eq!(old, new);
    assert!(old.contains(&format!("newest block  {tip}")), "{old}");
}

#[tokio::test]
async fn what_an_explorer_says_verifies_offline_and_a_changed_answer_does_not() {
    let mut net = Net::start_with("offline", 4, "bls-aggregate", 40).await;
    net.reach(0, 20).await;
    let explorer = Process::start(&net, &net.directory.path().join("index"));
    explorer.reach(20).await;
    let trust = text(net.path().join("trust.json"));
    let file = net.directory.path().join("block.json");
    for height in ["1", "13", "20"] {
        let verify = ["--verify", "--trust", &trust];
        let asked = [&["block", height, "--explorer", &explorer.url], &verify[..]].concat();
        assert!(net.succeed(&asked).contains("a quorum finalised"));
        let url = format!("{}/v1/blocks/{height}", explorer.url);
        let answer = reqwest::get(url).await.unwrap().text().await.unwrap();
        std::fs::write(&file, &answer).unwrap();
        let path = text(file.clone());
        let read = [&["block", height, "--file", &path], &verify[..]].concat();
        assert!(net.succeed(&read).contains("a quorum finalised"));
        // The leader's clock, in the block's encoding.
        let at = answer.find("\"block\":\"0x").unwrap() + "\"block\":\"0x".len() + 2 * 104;
        let other = if &answer[at..=at] == "0" { "1" } else { "0" };
        std::fs::write(
            &file,
            format!("{}{other}{}", &answer[..at], &answer[at + 1..]),
        )
        .unwrap();
        net.fail(&read);
        // A field beside the encoding.
        let other = answer.replacen("\"leader\":", "\"leader\":1", 1);
        assert_ne!(other, answer);
        std::fs::write(&file, other).unwrap();
        assert!(
            net.fail(&read)
                .contains("`leader` is not that of its block")
        );
    }
    let account = net.accounts()[0].identity().to_string();
    let proof = [
        "account",
        &account,
        "--proof",
        "--trust",
        &trust,
        "--explorer",
        &explorer.url,
    ];
    assert!(net.succeed(&proof).contains("verified"));
    let nobody = "ab".repeat(32);
    let proof = [
        "account",
        &nobody,
        "--proof",
        "--trust",
        &trust,
        "--explorer",
        &explorer.url,
    ];
    assert!(net.succeed(&proof).contains("verified"));
    let status = net.succeed(&["explorer", "status", "--explorer", &explorer.url]);
    assert!(status.contains("following"), "{status}");
    // A range that is fetched while the explorer catches up has one certificate, not one per block.
    net.until("ten certificates counted", async |_| {
        let set = explorer.client.validators().await.unwrap();
        let seen: Vec<_> = set.data.iter().map(|v| &v.participation).collect();
        assert!(seen.iter().all(|seen| seen.source == "certificate"));
        let of = seen[0].of.unwrap().0;
        let signed: u64 = seen.iter().map(|seen| seen.signed.unwrap().0).sum();
        assert!(
            signed >= 3 * of,
            "{signed} signatures under {of} certificates"
        );
        of > 10
    })
    .await;
    explorer.stop();
}

#[tokio::test]
async fn mistakes_are_named_with_their_remedy() {
    let mut net = Net::start("mistakes", 1).await;
    net.reach(0, 2).await;
    let trust = text(net.path().join("trust.json"));
    let data = text(net.directory.path().join("index"));
    let said = net.fail(&["explorer", "--trust", "nowhere.json", "--data", &data]);
    assert!(said.contains("nowhere.json"), "{said}");
    let said = net.fail(&[
        "explorer",
        "--trust",
        &trust,
        "--data",
        &data,
        "--upstream",
        "ftp://x",
    ]);
    assert!(said.contains("ftp://x"), "{said}");
    let said = net.fail(&[
        "explorer",
        "digest",
        "--trust",
        &trust,
        "--data",
        "nothing-here",
    ]);
    assert!(said.contains("--data"), "{said}");
    let running = Process::start(&net, Path::new(&data));
    let listen = running.url.trim_start_matches("http://").to_owned();
    let said = net.fail(&["explorer", "--trust", &trust, "--data", &data]);
    assert!(said.contains("in use by another process"), "{said}");
    let other = text(net.directory.path().join("other"));
    let said = net.fail(&[
        "explorer", "--trust", &trust, "--data", &other, "--listen", &listen,
    ]);
    assert!(said.contains("--listen"), "{said}");
    running.stop();
    // Another chain's trust file on this index.
    let foreign = Net::start("foreign", 1).await;
    let other_trust = text(foreign.path().join("trust.json"));
    let said = net.fail(&["explorer", "--trust", &other_trust, "--data", &data]);
    assert!(
        said.contains("--data") && said.contains("another folder"),
        "{said}"
    );
}
