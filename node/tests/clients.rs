//! Clients over HTTP that want to harm a validator, or each other.
#![allow(clippy::unwrap_used)]

mod common;

use common::Net;
use quorate_api::{SubmitAnswer, SubmitRequest, TransactionState, to_hex};
use quorate_crypto::SecretKey;
use quorate_types::{Identity, IdentitySignature, Memo, Transaction, Transfer};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{
    fs,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
};

/// Connections of the attack; a validator has room for 1,024 by default.
const ATTACKERS: usize = 1_100;

/// How long until a connection that harms is gone, with much patience.
const CUT_WITHIN: Duration = Duration::from_secs(120);

/// Addresses from which bad signatures come at the same time.
const FORGERS: u8 = 30;

const ATTACKER: [u8; 4] = [127, 0, 0, 1];
const OTHER: [u8; 4] = [127, 0, 0, 2];

/// A connection from one of this machine's addresses, with a small buffer for answers.
async fn connect(from: [u8; 4], to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(8 << 10)?;
    socket.bind(SocketAddr::from((from, 0)))?;
    socket.connect(to).await
}

fn address(net: &Net) -> SocketAddr {
    net.network.settings().rpc_address(0)
}

fn client(from: [u8; 4]) -> reqwest::Client {
    let builder = reqwest::Client::builder().local_address(IpAddr::from(from));
    builder.timeout(CUT_WITHIN).build().unwrap()
}

fn resident_mib(net: &Net) -> f64 {
    let process = net.network.process(0).unwrap();
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib: f64 = line
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    kib / 1_024.0
}

fn transfer(net: &Net, from: &SecretKey, nonce: u64, memo: usize) -> Transaction {
    let chain = net.genesis.chain_id();
    let transfer = Transfer {
        chain_tag: chain.tag(),
        sender: from.identity(),
        nonce,
        to: Identity([1; 32]),
        amount: 1,
        fee: 10_000,
        memo: Memo::new(vec![b'm'; memo]).unwrap(),
    };
    transfer.sign(&chain, from)
}

/// Transactions as a request's body.
fn request(transactions: &[Transaction]) -> SubmitRequest {
    SubmitRequest {
        hex: transactions.iter().map(to_hex).collect(),
        ..SubmitRequest::default()
    }
}

/// Fills blocks with so many transfers with the longest memos.
async fn fill(net: &Net, transfers: u64) {
    let accounts = net.accounts();
    for (account, nonces) in accounts.iter().zip((0..transfers).step_by(100)) {
        let count = (transfers - nonces).min(100);
        let batch: Vec<_> = (0..count)
            .map(|nonce| transfer(net, account, nonce, 4_096))
            .collect();
        let answer = net
            .network
            .client(0)
            .submit(&request(&batch))
            .await
            .unwrap();
        for result in answer.results {
            assert!(result.error.is_none(), "{:?}", result.error);
        }
    }
    let last = &accounts[(transfers.div_ceil(100) - 1) as usize].identity();
    net.until("all are final", async |net| {
        let account = net.network.client(0).account(last, false).await;
        account.is_ok_and(|account| account.nonce > 0)
            && (net.network.client(0).status().await).is_ok_and(|s| s.mempool_transactions == 0)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_read_costs_little_keeps_nobody_out_and_is_cut() {
    let held = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: held.maximum,
        ..held
    };
    setrlimit(Resource::Nofile, raised).unwrap();
    let net = Net::start("readers", 1).await;
    fill(&net, 1_000).await;
    let (to, url) = (address(&net), net.network.urls()[0].clone());
    let paths = ["/v1/chain?from=1", "/v1/blocks?from=1", "/v1/blocks/5"];
    // What the database keeps in memory of these is no cost of the attack.
    let mut largest = 0;
    for path in paths {
        let answer = client(OTHER)
            .get(format!("{url}{path}"))
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        largest = largest.max(answer.bytes().await.unwrap().len());
    }
    // Far more than a connection holds. How many blocks the transfers are spread over is chance.
    assert!(largest > 500_000, "{largest} bytes are no large answer");
    let before = resident_mib(&net);
    let mut connections = Vec::new();
    for number in 0..ATTACKERS {
        let Ok(mut stream) = connect(ATTACKER, to).await else {
            continue;
        };
        let path = paths[number % paths.len()];
        let ask = format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").repeat(8);
        let _ = stream.write_all(ask.as_bytes()).await;
        connections.push(stream);
    }
    let mut most = before;
    let mut best = Duration::MAX;
    for _ in 0..40 {
        let start = Instant::now();
        let mut stream = connect(OTHER, to).await.unwrap();
        let ask = "GET /v1/health HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n";
        stream.write_all(ask.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        best = best.min(start.elapsed());
        most = most.max(resident_mib(&net));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("{before:.0} MiB before, at most {most:.0} MiB, health in {best:?}");
    assert!(best < Duration::from_millis(100), "{best:?}");
    assert!(most < before + 128.0, "{most:.0} MiB after {before:.0} MiB");
    // They never go by themselves.
    let start = Instant::now();
    let metric = |text: &str| {
        let line = text
            .lines()
            .find(|l| l.starts_with("quorate_rpc_connections "));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
    };
    loop {
        let text = net.network.operator(0).metrics().await.unwrap();
        let open = metric(&text).unwrap();
        if open <= 3 {
            break;
        }
        assert!(start.elapsed() < CUT_WITHIN, "{open} connections stay");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    net.until("the memory is given back", async |net| {
        resident_mib(net) < before + 40.0
    })
    .await;
    println!("{:.0} MiB when they are gone", resident_mib(&net));
    drop(connections);
    net.stop_and_check().await;
}

/// On the threads of the links, 250 connections of one client that asked for what is in memory without a pause halted a
/// chain that needed this validator.
#[tokio::test(flavor = "multi_thread")]
async fn requests_are_served_by_threads_that_yield_to_consensus() {
    let net = Net::start("yielding", 4).await;
    let mut stream = connect(OTHER, address(&net)).await.unwrap();
    let many = "GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(16);
    stream.write_all(many.as_bytes()).await.unwrap();
    let mut answer = [0; 15];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");

    let process = net.network.process(0).unwrap();
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let mut nice = Vec::new();
    for task in tasks {
        let task = task.unwrap().path();
        let Ok(stat) = fs::read_to_string(task.join("stat")) else {
            continue;
        };
        // The name is in parentheses, and the nice value is the 17th field after it (proc(5)).
        let (head, fields) = stat.rsplit_once(')').unwrap();
        let name = head.split_once('(').unwrap().1.to_owned();
        let fields: Vec<&str> = fields.split_whitespace().collect();
        nice.push((name, fields[16].parse::<i32>().unwrap()));
    }
    let of = |wanted: &str| -> Vec<i32> {
        let named = nice.iter().filter(|(name, _)| name == wanted);
        named.map(|(_, nice)| *nice).collect()
    };
    let usual = of("replica")[0];
    let serving = of("http");
    assert!(serving.len() >= 2, "{nice:?}");
    assert!(serving.iter().all(|nice| *nice > usual.min(18)), "{nice:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_public_listener_tells_nothing_that_an_attacker_could_use() {
    let mut net = Net::start("audiences", 2).await;
    net.grow(0, 3).await;
    let admin = format!("http://{}", net.network.settings().admin_address(0));
    let public = net.network.urls()[0].clone();
    let get = async |url: String| {
        let answer = client(OTHER).get(&url).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    for path in ["/metrics", "/v1/metrics", "/live", "/"] {
        let (status, text) = get(format!("{public}{path}")).await;
        assert_eq!(status, 404, "{path}");
        assert!(text.contains("admin.listen"), "{text}");
        assert_eq!(get(format!("{admin}{path}")).await.0, 200, "{path}");
    }
    let peer = net.network.settings().p2p_address(1).to_string();
    let (_, told) = get(format!("{admin}/v1/peers")).await;
    assert!(told.contains(&peer), "{told}");
    for path in ["/v1/peers", "/v1/status", "/v1/evidence", "/v1/ready"] {
        let (status, text) = get(format!("{public}{path}")).await;
        assert_eq!(status, 200, "{path}: {text}");
        let folder = net.path().display().to_string();
        for secret in [&peer, &folder] {
            assert!(!text.contains(secret.as_str()), "{path} tells {secret}");
        }
        assert!(!text.contains("offender"), "{path}: {text}");
    }
    for path in ["/v1/health", "/v1/ready", "/v1/status"] {
        assert_eq!(get(format!("{admin}{path}")).await.0, 200, "{path}");
    }
    net.stop_and_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_name_is_refused_and_foreign_pages_read_nothing() {
    let net = Net::start("names", 1).await;
    let admin = format!("http://{}", net.network.settings().admin_address(0));
    for url in [net.network.urls()[0].clone(), admin] {
        let ask = |host: &'static str| {
            let request = client(OTHER).get(format!("{url}/v1/health"));
            let request = request.header("host", host);
            request.header("origin", "https://evil.example").send()
        };
        let foreign = ask("rebound.evil.example:26601").await.unwrap();
        assert_eq!(foreign.status(), 421);
        assert!(foreign.text().await.unwrap().contains("rpc.hosts"));
        for host in ["localhost:1", "127.0.0.1", "[::1]:5"] {
            let known = ask(host).await.unwrap();
            assert_eq!(known.status(), 200, "{host}");
            let shared = known.headers().get("access-control-allow-origin");
            assert_eq!(shared, None, "{host}");
        }
    }
    net.stop_and_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_signatures_of_one_client_are_its_own_trouble() {
    let net = Net::start("forgers", 1).await;
    let url = format!("{}/v1/transactions", net.network.urls()[0]);
    let accounts = net.accounts();
    let forger = SecretKey::from_bytes(&[9; 32]);
    let forged: Vec<_> = (0..900)
        .map(|nonce| {
            let honest = transfer(&net, &accounts[0], nonce, 0);
            honest
                .transfer()
                .clone()
                .sign(&net.genesis.chain_id(), &forger)
        })
        .collect();
    let body = request(&forged);
    let bad = client(ATTACKER);
    let start = Instant::now();
    let (mut refused, mut looked_through) = (0, 0_u32);
    for nonce in 0.. {
        let (forging, submitting) = tokio::join!(
            bad.post(&url).json(&body).send(),
            client(OTHER)
                .post(&url)
                .json(&request(&[transfer(&net, &accounts[1], nonce, 0)]))
                .send()
        );
        match forging.unwrap().status().as_u16() {
            429 => refused += 1,
            status => {
                assert_eq!(status, 200);
                looked_through += 1;
            }
        }
        let answer: SubmitAnswer = submitting.unwrap().json().await.unwrap();
        assert!(answer.results[0].error.is_none(), "{answer:?}");
        if refused == 5 {
            break;
        }
        assert!(nonce < 200, "never refused");
    }
    // Each costs 4.5 s, and 10 s may be owed.
    let allowed = (start.elapsed().as_secs_f64() + 10.0) / 4.5 + 1.0;
    assert!(f64::from(looked_through) <= allowed, "{looked_through}");
    net.stop_and_check().await;
}

/// Sends a text over a connection of its own, and reads until the connection ends.
async fn say(from: [u8; 4], to: SocketAddr, text: &[u8]) -> String {
    let mut stream = connect(from, to).await.unwrap();
    stream.write_all(text).await.unwrap();
    let mut answer = Vec::new();
    let all = tokio::time::timeout(CUT_WITHIN, stream.read_to_end(&mut answer));
    let _ = all.await.expect("the connection ends");
    String::from_utf8(answer).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn half_sent_requests_keep_nobody_out() {
    let net = Net::start("half", 1).await;
    let (to, url) = (address(&net), net.network.urls()[0].clone());
    let mut half_sent = Vec::new();
    // As many as there are MiB for all, from addresses that may have a quarter each.
    for number in 0..96_u8 {
        let mut stream = connect([127, 0, 1, number % 8], to).await.unwrap();
        let head = "POST /v1/transactions?wait=finalized HTTP/1.1\r\nhost: 127.0.0.1\r\n\
                    content-type: application/json\r\ncontent-length: 1048576\r\n\r\n{\"hex\": [\"";
        stream.write_all(head.as_bytes()).await.unwrap();
        half_sent.push(stream);
    }
    net.until("all have begun", async |net| {
        metric(net, "quorate_rpc_connections").await >= 96.0
    })
    .await;
    let accounts = net.accounts();
    for path in ["/v1/health", "/v1/ready", "/v1/status"] {
        let answer = client(OTHER).get(format!("{url}{path}")).send().await;
        assert_eq!(answer.unwrap().status(), 200, "{path}");
    }
    let waiting = format!("{url}/v1/transactions?wait=finalized&timeout_ms=20000");
    let body = request(&[transfer(&net, &accounts[0], 0, 4_000)]);
    let answer = client(OTHER)
        .post(waiting)
        .json(&body)
        .send()
        .await
        .unwrap();
    let answer: SubmitAnswer = answer.json().await.unwrap();
    assert_eq!(answer.results[0].state, TransactionState::Finalized);
    assert!(metric(&net, "quorate_rpc_in_flight_bytes").await < 64_000.0);
    // They are told within the time for a request, not that for one that waits.
    let start = Instant::now();
    for mut stream in half_sent {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    }
    assert!(
        start.elapsed() < Duration::from_secs(25),
        "{:?}",
        start.elapsed()
    );
    net.stop_and_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_proper_request_gets_an_error_like_all_others() {
    let mut net = Net::start("strict", 2).await;
    net.grow(0, 2).await;
    let to = address(&net);
    let code = |answer: &str, status: &str, code: &str| {
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{answer}"
        );
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let body: serde_json::Value = serde_json::from_str(body).expect(body);
        assert_eq!(body["error"]["code"], code, "{body}");
        assert!(
            body["error"]["message"].as_str().unwrap().len() > 10,
            "{body}"
        );
    };
    let get = async |path: &str, fields: &str| {
        let text = format!("GET {path} HTTP/1.1\r\n{fields}connection: close\r\n\r\n");
        say(OTHER, to, text.as_bytes()).await
    };
    let host = "host: 127.0.0.1\r\n";
    code(&get("/v1/status", "").await, "400", "bad_request");
    let foreign = format!("{host}host: evil.example\r\n");
    code(&get("/v1/status", &foreign).await, "400", "bad_request");
    code(
        &get("/v1/status", &host.repeat(2)).await,
        "400",
        "bad_request",
    );
    let target = "http://evil.example/v1/status";
    code(&get(target, host).await, "421", "unknown_host");
    for path in ["blocks", "accounts", "transactions"] {
        let path = format!("/v1/{path}/%ff%fe");
        code(&get(&path, host).await, "400", "bad_request");
    }
    let post = "POST /v1/transactions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
    for (rest, status, expected) in [
        ("content-length: 2\r\n\r\n{}", "415", "not_json"),
        (
            "content-type: text/plain\r\ncontent-length: 2\r\n\r\n{}",
            "415",
            "not_json",
        ),
        (
            "content-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
            "400",
            "bad_request",
        ),
        (
            "content-type: application/json\r\ncontent-length: 2\r\n\r\n{:",
            "400",
            "bad_json",
        ),
        (
            "content-type: application/json\r\ncontent-length: 7\r\n\r\n{\"a\":1}",
            "422",
            "bad_json",
        ),
        (
            "content-type: application/json\r\ncontent-length: 9000000\r\n\r\n",
            "413",
            "body_too_large",
        ),
    ] {
        code(
            &say(OTHER, to, format!("{post}{rest}").as_bytes()).await,
            status,
            expected,
        );
    }
    let pieces = format!("20000\r\n{}\r\n", "x".repeat(0x20000)).repeat(9);
    let endless = format!(
        "{post}content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n{pieces}0\r\n\r\n"
    );
    code(
        &say(OTHER, to, endless.as_bytes()).await,
        "413",
        "body_too_large",
    );
    let (_, peers) = get("/v1/peers", host)
        .await
        .split_once("\r\n\r\n")
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .unwrap();
    let peers: serde_json::Value = serde_json::from_str(&peers).unwrap();
    assert_eq!(peers["peers"][0]["validator"], 1);
    assert_eq!(peers["peers"][0].get("address"), None, "{peers}");
    net.stop_and_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_for_a_transaction_before_it_comes_may_wait_for_it() {
    let net = Net::start("early", 1).await;
    let url = net.network.urls()[0].clone();
    let coming = transfer(&net, &net.accounts()[0], 0, 0);
    let ask = |id: String, wait_ms: u64| {
        let url = format!("{url}/v1/transactions/{id}?wait_ms={wait_ms}");
        async move { client(OTHER).get(url).send().await.unwrap() }
    };
    let start = Instant::now();
    let never = ask("07".repeat(32), 700).await;
    assert!(
        start.elapsed() >= Duration::from_millis(700),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(never.status(), 404);
    assert!(never.text().await.unwrap().contains("unknown_transaction"));
    let early = tokio::spawn(ask(coming.id().to_string(), 20_000));
    net.until("it waits", async |net| {
        metric(net, "quorate_rpc_connections").await >= 1.0
    })
    .await;
    net.network
        .client(0)
        .submit(&request(&[coming]))
        .await
        .unwrap();
    let found = early.await.unwrap();
    assert_eq!(found.status(), 200);
    let text = found.text().await.unwrap();
    assert!(text.contains("\"finalized\""), "{text}");
    // Twice in one request, whose answer waits until both are final.
    let twice = transfer(&net, &net.accounts()[1], 0, 0);
    let answer = client(OTHER)
        .post(format!(
            "{url}/v1/transactions?wait=finalized&timeout_ms=20000"
        ))
        .json(&request(&[twice.clone(), twice]))
        .send()
        .await
        .unwrap();
    let answer: serde_json::Value = answer.json().await.unwrap();
    let results = answer["results"].as_array().unwrap();
    let told = |place: usize| {
        (
            results[place]["state"].as_str(),
            &results[place]["repeated"],
        )
    };
    assert_eq!(
        told(0),
        (Some("finalized"), &serde_json::Value::Null),
        "{answer}"
    );
    assert_eq!(told(1), (Some("finalized"), &true.into()), "{answer}");
    net.stop_and_check().await;
}

/// Waiting requests that a validator has room for.
const WAITING: usize = 256;

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_from_hundreds_of_addresses_keeps_nobody_from_waiting() {
    let net = Net::start("waiters", 1).await;
    let (to, url) = (address(&net), net.network.urls()[0].clone());
    let waiting = format!("{url}/v1/transactions?wait=finalized&timeout_ms=20000");
    let mut held = Vec::new();
    for number in 0..WAITING + 20 {
        let from = [127, 0, 2 + (number / 200) as u8, 1 + (number % 200) as u8];
        let mut stream = connect(from, to).await.unwrap();
        let id = "07".repeat(32);
        let head = format!(
            "GET /v1/transactions/{id}?wait_ms=30000 HTTP/1.1\r\nhost: 127.0.0.1\r\n\
             connection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        held.push(stream);
    }
    net.until("all wait", async |net| {
        metric(net, "quorate_rpc_connections").await >= WAITING as f64
    })
    .await;
    let accounts = net.accounts();
    for nonce in 0..5 {
        let body = request(&[transfer(&net, &accounts[0], nonce, 0)]);
        let answer = client(OTHER).post(&waiting).json(&body).send().await;
        let answer = answer.unwrap();
        assert_eq!(answer.status(), 200);
        let answer: SubmitAnswer = answer.json().await.unwrap();
        assert_eq!(answer.results[0].state, TransactionState::Finalized);
    }
    // The eldest was told what is known, long before its time was up.
    let start = Instant::now();
    let mut answer = String::new();
    held[0].read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("unknown_transaction"), "{answer}");
    assert!(start.elapsed() < Duration::from_secs(15));
    net.stop_and_check().await;
}

/// How long each half of a measurement lasts.
const MEASURED: Duration = Duration::from_secs(8);

/// How a network of four does while somebody submits one transfer after the other to validator 0.
#[derive(Debug)]
#[allow(dead_code, reason = "it is shown whole")]
struct Pace {
    blocks_per_second: f64,
    p50: Duration,
    p99: Duration,
    /// Processor time of validator 0, in cores.
    cores: f64,
    submitted: usize,
    refused: usize,
}

async fn metric(net: &Net, name: &str) -> f64 {
    let text = net.network.operator(0).metrics().await.unwrap();
    let line = text
        .lines()
        .find(|line| line.split(' ').next() == Some(name));
    line.unwrap().rsplit(' ').next().unwrap().parse().unwrap()
}

async fn pace(net: &Net, from: [u8; 4], account: &SecretKey, nonce: &mut u64) -> Pace {
    let client = client(from);
    let url = format!("{}/v1/transactions", net.network.urls()[0]);
    let (start, height) = (Instant::now(), net.height(0).await);
    let cpu = metric(net, "quorate_process_cpu_seconds_total").await;
    let (mut times, mut refused) = (Vec::new(), 0);
    while start.elapsed() < MEASURED {
        let body = request(&[transfer(net, account, *nonce, 0)]);
        let sent = Instant::now();
        let answer = client.post(&url).json(&body).send().await.unwrap();
        if answer.status() == 429 {
            refused += 1;
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        }
        assert_eq!(answer.status(), 200, "{}", answer.text().await.unwrap());
        let answer: SubmitAnswer = answer.json().await.unwrap();
        times.push(sent.elapsed());
        assert!(answer.results[0].error.is_none(), "{answer:?}");
        *nonce += 1;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let seconds = start.elapsed().as_secs_f64();
    times.sort();
    Pace {
        blocks_per_second: (net.height(0).await - height) as f64 / seconds,
        p50: times[times.len() / 2],
        p99: times[times.len() * 99 / 100],
        cores: (metric(net, "quorate_process_cpu_seconds_total").await - cpu) / seconds,
        submitted: times.len(),
        refused,
    }
}

async fn in_vain(net: &Net) -> f64 {
    metric(net, "quorate_rpc_in_vain_signatures_total").await
}

/// Sends the same request from an address again and again, and counts answers by their status.
async fn repeat(from: [u8; 4], to: SocketAddr, text: Arc<Vec<u8>>, answers: Arc<Answers>) {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let Ok(mut stream) = connect(from, to).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        while stream.write_all(&text).await.is_ok() {
            let Ok(1..) = stream.read(&mut buffer).await else {
                break;
            };
            let counter = match &buffer[9..12] {
                b"200" => &answers.looked_at,
                b"429" => &answers.refused,
                _ => &answers.other,
            };
            counter.fetch_add(1, Ordering::Relaxed);
            // The rest of the answer, which no longer comes in one piece if it is long.
            let rest = Duration::from_millis(5);
            while let Ok(Ok(1..)) = tokio::time::timeout(rest, stream.read(&mut buffer)).await {}
        }
    }
}

#[derive(Debug, Default)]
struct Answers {
    looked_at: AtomicU64,
    refused: AtomicU64,
    other: AtomicU64,
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_signatures_from_many_addresses_slow_neither_blocks_nor_others() {
    let mut net = Net::start_with("forgers", 4, "bls-threshold", 100_000).await;
    net.grow(0, 5).await;
    let accounts = net.accounts();
    let forged: Vec<_> = (0..1_000)
        .map(|nonce| {
            let honest = transfer(&net, &accounts[0], nonce, 0);
            let signature = std::array::from_fn(|i| (nonce as usize * 31 + i * 7) as u8);
            Transaction::new(honest.transfer().clone(), IdentitySignature(signature))
        })
        .collect();
    let body = serde_json::to_string(&request(&forged)).unwrap();
    let text = format!(
        "POST /v1/transactions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let text = Arc::new(text.into_bytes());
    let mut nonce = 0;
    let quiet = pace(&net, OTHER, &accounts[1], &mut nonce).await;
    let answers = Arc::new(Answers::default());
    let mut flood = tokio::task::JoinSet::new();
    for last in 1..=FORGERS {
        let from = [127, 0, 1, last];
        flood.spawn(repeat(from, address(&net), text.clone(), answers.clone()));
    }
    let (vain, start) = (in_vain(&net).await, Instant::now());
    let flooded = pace(&net, OTHER, &accounts[1], &mut nonce).await;
    let (vain, seconds) = (in_vain(&net).await - vain, start.elapsed().as_secs_f64());
    println!("quiet {quiet:?}\nflooded {flooded:?}\n{answers:?}, {vain} signatures in vain");
    assert_eq!((quiet.refused, flooded.refused), (0, 0));
    assert!(answers.refused.load(Ordering::Relaxed) > 0);
    // Two budgets of 500 a second for each processor, and 2,000 at once; and who is at it finishes.
    let processors = std::thread::available_parallelism().unwrap().get() as f64;
    let allowed = 2.0 * (2_000.0 + 500.0 * processors * seconds) + 4_000.0;
    assert!(vain > 0.0 && vain <= allowed, "{vain} of {allowed}");
    // With much patience: the machine is shared with the flood itself, and with other tests.
    assert!(flooded.blocks_per_second > quiet.blocks_per_second / 4.0);
    flood.abort_all();
    net.stop_and_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_refusal_comes_after_acceptance() {
    let net = Net::start("waiters", 1).await;
    let url = net.network.urls()[0].clone();
    let waiting = format!("{url}/v1/transactions?wait=finalized&timeout_ms=20000");
    let accounts = net.accounts();
    // Waits for a block that is far away.
    let mut waiters = tokio::task::JoinSet::new();
    let far = format!("{url}/v1/blocks?from=1000000000&wait_ms=30000");
    let patient = client(ATTACKER);
    for _ in 0..80 {
        let (patient, far) = (patient.clone(), far.clone());
        waiters.spawn(async move { patient.get(far).send().await.unwrap().status() });
    }
    // Those beyond the share are answered at once; the others still wait.
    for _ in 0..16 {
        assert_eq!(waiters.join_next().await.unwrap().unwrap(), 429);
    }
    let own = request(&[transfer(&net, &accounts[0], 0, 0)]);
    let refused = patient.post(&waiting).json(&own).send().await.unwrap();
    assert_eq!(refused.status(), 429);
    let identity = accounts[0].identity();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let account = net.network.operator(0).account(&identity, false).await;
    assert_eq!(account.unwrap().nonce, 0, "refused, and yet taken in");
    let answer = client(OTHER)
        .post(&waiting)
        .json(&own)
        .send()
        .await
        .unwrap();
    let answer: SubmitAnswer = answer.json().await.unwrap();
    assert_eq!(answer.results[0].state, TransactionState::Finalized);
    waiters.abort_all();
    net.stop_and_check().await;
}
