//! A chain that only orders payloads, in real processes.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{BINARY, free_base_port};
use quorate_api::{ClientError, PayloadsAnswer, PayloadsState, RpcClient};
use quorate_types::Bundle;
use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::PathBuf,
    process::{Child, Command},
    time::{Duration, Instant},
};

const VALIDATORS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(60);

struct Orders {
    folder: tempfile::TempDir,
    base: u16,
    processes: BTreeMap<usize, Child>,
}

impl Drop for Orders {
    fn drop(&mut self) {
        for process in self.processes.values_mut() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Orders {
    fn start(protocol: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let base = free_base_port(VALIDATORS);
        let mut command = Command::new(BINARY);
        command.args(["testnet", "--plain", "--application", "order-only"]);
        command.args(["--protocol", protocol, "--base-port", &base.to_string()]);
        command.arg("--out").arg(folder.path().join("net"));
        let made = command.output().unwrap();
        assert!(made.status.success(), "{made:?}");
        let mut orders = Self {
            folder,
            base,
            processes: BTreeMap::new(),
        };
        (0..VALIDATORS).for_each(|place| orders.run(place));
        orders
    }

    fn path(&self, place: usize) -> PathBuf {
        let net = self.folder.path().join("net");
        net.join(format!("validator-{place}"))
    }

    fn run(&mut self, place: usize) {
        let folder = self.path(place);
        let log = File::options()
            .append(true)
            .create(true)
            .open(folder.join("node.log"))
            .unwrap();
        let child = Command::new(BINARY)
            .args(["run", "--allow-plain-keys", "--config"])
            .arg(folder.join("validator.toml"))
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        self.processes.insert(place, child.unwrap());
    }

    fn kill(&mut self, place: usize) {
        let mut process = self.processes.remove(&place).unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    fn client(&self, place: usize) -> RpcClient {
        let port = usize::from(self.base) + 2 * place + 1;
        RpcClient::new(&format!("http://127.0.0.1:{port}")).unwrap()
    }

    fn logs(&self) -> String {
        let log = |place| fs::read_to_string(self.path(place).join("node.log")).unwrap_or_default();
        let tails = (0..VALIDATORS).map(|place| {
            let log = log(place);
            let lines: Vec<&str> = log.lines().rev().take(8).collect();
            let lines: Vec<&str> = lines.into_iter().rev().collect();
            format!("\nvalidator {place}:\n{}", lines.join("\n"))
        });
        tails.collect()
    }

    async fn wait_for(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let started = Instant::now();
        while !holds().await {
            assert!(started.elapsed() < PATIENCE, "{what}: {}", self.logs());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn wait_until_up(&self) {
        for place in 0..VALIDATORS {
            self.wait_for("a start", async || self.client(place).ready().await.is_ok())
                .await;
        }
    }

    async fn submit(
        &self,
        place: usize,
        payloads: &[String],
        wait: bool,
    ) -> Result<PayloadsAnswer, ClientError> {
        let bytes = Bundle::of(payloads).unwrap().bytes().clone();
        self.client(place).submit_payloads(bytes, wait).await
    }

    /// Whether a validator has these payloads where an answer says they are.
    async fn has(&self, place: usize, answer: &PayloadsAnswer, payloads: &[String]) -> bool {
        let client = self.client(place);
        for (number, payload) in (answer.first..).zip(payloads) {
            match client.payload(&answer.bundle, number).await {
                Ok(found) => assert_eq!(found, payload.as_bytes()),
                Err(_) => return false,
            }
        }
        true
    }

    /// The bundles of the blocks up to a height, in their order, as a validator shows them.
    async fn order(&self, place: usize, height: u64) -> Vec<String> {
        let client = self.client(place);
        let mut order = Vec::new();
        for height in 1..=height {
            let block = client.block(&height.to_string()).await.unwrap();
            let text = serde_json::to_value(&block).unwrap();
            let transactions = text["transactions"].as_array().unwrap().clone();
            // The memo: a version, the digest, two numbers.
            let memo = |one: &serde_json::Value| one["memo"].as_str().unwrap()[2..66].to_owned();
            order.extend(transactions.iter().map(memo));
        }
        order
    }
}

fn payloads(from: usize, count: usize) -> Vec<String> {
    (from..from + count)
        .map(|number| format!("payload {number}"))
        .collect()
}

async fn all_validators_order_and_store_the_same(protocol: &str) {
    let orders = Orders::start(protocol);
    orders.wait_until_up().await;
    let mut answers = Vec::new();
    for round in 0..8 {
        let sent = payloads(round * 10, 10);
        let answer = orders.submit(round % VALIDATORS, &sent, true).await;
        let answer = answer.unwrap_or_else(|error| panic!("{error}: {}", orders.logs()));
        assert_eq!((answer.state, answer.count), (PayloadsState::Finalized, 10));
        answers.push((sent, answer));
    }
    let last = answers.iter().filter_map(|(_, answer)| answer.height).max();
    let last = last.unwrap();
    for place in 0..VALIDATORS {
        orders
            .wait_for("the newest block", async || {
                let status = orders.client(place).status().await;
                status.is_ok_and(|status| status.executed_height >= last)
            })
            .await;
    }
    let order = orders.order(0, last.0).await;
    for place in 1..VALIDATORS {
        assert_eq!(orders.order(place, last.0).await, order);
    }
    let first = |digest: &str| order.iter().position(|one| one == digest);
    let places: Vec<_> = answers
        .iter()
        .map(|(_, answer)| first(&answer.bundle.to_string()).unwrap())
        .collect();
    assert!(
        places.is_sorted(),
        "each was final before the next was sent"
    );
    for (sent, answer) in &answers {
        for place in 0..VALIDATORS {
            orders
                .wait_for("the payloads", async || {
                    orders.has(place, answer, sent).await
                })
                .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_validators_order_and_store_the_same_with_simplex() {
    all_validators_order_and_store_the_same("simplex").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_validators_order_and_store_the_same_with_pbft() {
    all_validators_order_and_store_the_same("pbft").await;
}

/// What a validator has stored is ordered although it is killed, and who was away gets what it missed.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_stored_is_ordered_and_reaches_all_over_kills() {
    let mut orders = Orders::start("simplex");
    orders.wait_until_up().await;
    let mut stored = Vec::new();
    for round in 0..6 {
        let victim = round % VALIDATORS;
        // It is stored at the victim and perhaps nowhere else.
        let sent = payloads(1_000 * round, 50);
        let answer = orders.submit(victim, &sent, false).await.unwrap();
        orders.kill(victim);
        stored.push((sent, answer));
        // The others go on without it.
        let other = (victim + 1) % VALIDATORS;
        let meanwhile = payloads(1_000 * round + 500, 50);
        let answer = orders.submit(other, &meanwhile, true).await;
        let answer = answer.unwrap_or_else(|error| panic!("{error}: {}", orders.logs()));
        assert_eq!(answer.state, PayloadsState::Finalized);
        stored.push((meanwhile, answer));
        orders.run(victim);
        orders
            .wait_for("its return", async || {
                orders.client(victim).ready().await.is_ok()
            })
            .await;
    }
    for (sent, answer) in &stored {
        for place in 0..VALIDATORS {
            orders
                .wait_for("all payloads", async || {
                    orders.has(place, answer, sent).await
                })
                .await;
        }
    }
    let mut left: Vec<String> = stored.iter().map(|(_, a)| a.bundle.to_string()).collect();
    orders
        .wait_for("the order of all", async || {
            let Ok(status) = orders.client(0).status().await else {
                return false;
            };
            let order = orders.order(0, status.executed_height.0).await;
            left.retain(|digest| !order.contains(digest));
            left.is_empty()
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_list_of_payloads_and_what_moves_money_is_refused() {
    let orders = Orders::start("simplex");
    orders.wait_until_up().await;
    let url = format!("http://127.0.0.1:{}", orders.base + 1);
    let post = |path: &str, kind: &str, body: Vec<u8>| {
        let request = reqwest::Client::new().post(format!("{url}{path}"));
        request.header("content-type", kind).body(body).send()
    };
    let octets = "application/octet-stream";
    let cases = [
        (
            "/v1/payloads",
            "application/json",
            b"{}".to_vec(),
            415,
            "not_octets",
        ),
        ("/v1/payloads", octets, Vec::new(), 400, "bad_request"),
        (
            "/v1/payloads",
            octets,
            vec![0, 0, 0, 9, 1],
            400,
            "bad_request",
        ),
        ("/v1/payloads", octets, vec![255; 100], 400, "bad_request"),
        (
            "/v1/payloads",
            octets,
            vec![0; (1 << 20) + 1],
            413,
            "body_too_large",
        ),
        (
            "/v1/payloads?wait=soon",
            octets,
            vec![0, 0, 0, 1, 1],
            400,
            "bad_request",
        ),
        (
            "/v1/transactions",
            "application/json",
            b"{}".to_vec(),
            409,
            "orders_only",
        ),
    ];
    for (path, kind, body, status, code) in cases {
        let answer = post(path, kind, body).await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{path} {kind}");
        let answer: serde_json::Value = answer.json().await.unwrap();
        assert_eq!(answer["error"]["code"], code, "{path} {kind}");
    }
    let client = orders.client(0);
    let unknown = client.bundle(&quorate_crypto::sha256(&[b"none"])).await;
    assert!(matches!(
        unknown,
        Err(ClientError::Refused { status: 404, .. })
    ));
    let answer = orders.submit(0, &payloads(0, 3), true).await.unwrap();
    let status = client.status().await.unwrap();
    assert_eq!(status.application.as_deref(), Some("order-only"));
    let payloads = status.payloads.expect("a validator of such a chain");
    assert_eq!((payloads.waiting_bytes, payloads.missing_bundles), (0, 0));
    assert!(payloads.log_bytes > 0);
    let key = orders.path(0).join("identity.key");
    let load = Command::new(BINARY)
        .args(["load", "--for", "1s", "--rpc", client.url(), "--chain-id"])
        .arg(status.chain_id.to_string())
        .arg("--fund-from")
        .arg(key)
        .output()
        .unwrap();
    let complaint = String::from_utf8(load.stderr).unwrap();
    assert!(!load.status.success(), "{complaint}");
    assert!(
        complaint.contains("this chain only orders payloads"),
        "{complaint}"
    );
    let beyond = client.payload(&answer.bundle, answer.first + 1_000).await;
    assert!(matches!(
        beyond,
        Err(ClientError::Refused { status: 404, .. })
    ));
}

/// With two of four validators gone nothing is stored at a quorum any more.
#[tokio::test(flavor = "multi_thread")]
async fn who_waits_is_answered_when_the_node_stops() {
    let mut orders = Orders::start("simplex");
    orders.wait_until_up().await;
    orders.kill(2);
    orders.kill(3);
    let waiting = {
        let client = orders.client(0);
        let bytes = Bundle::of(["waits"]).unwrap().bytes().clone();
        tokio::spawn(async move { client.submit_payloads(bytes, true).await })
    };
    orders
        .wait_for("a payload that waits", async || {
            let status = orders.client(0).status().await;
            status.is_ok_and(|status| status.payloads.is_some_and(|held| held.waiting_bytes > 0))
        })
        .await;
    let mut process = orders.processes.remove(&0).unwrap();
    let stop = Command::new("kill").arg(process.id().to_string()).status();
    assert!(stop.unwrap().success());
    let answer = waiting.await.unwrap();
    process.wait().unwrap();
    let is_told = match &answer {
        Ok(answer) => answer.state == PayloadsState::Stored,
        Err(ClientError::Refused { status, code, .. }) => {
            (*status, code.as_str()) == (503, "stopping")
        }
        Err(_) => false,
    };
    assert!(is_told, "{answer:?}");
}
