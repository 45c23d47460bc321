//! The generator against a made-up validator that answers as CometBFT does.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::*;
use crate::process::Process;

/// How the made-up validator behaves.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Its mempool becomes a block every 20 ms.
    Honest,
    /// It takes no transactions.
    Full,
    /// Its blocks hold what nobody sent.
    Forging,
}

const BLOCK: Duration = Duration::from_millis(20);

struct Chain {
    kind: Kind,
    mempool: Vec<String>,
    blocks: Vec<Vec<String>>,
    next: Instant,
}

impl Chain {
    fn answer(&mut self, method: &str, parameters: &Value) -> Value {
        while self.next <= Instant::now() {
            self.next += BLOCK;
            let mut block = std::mem::take(&mut self.mempool);
            if self.kind == Kind::Forging {
                block.push(BASE64_STANDARD.encode(transaction(1_000_000, 161)));
            }
            self.blocks.push(block);
        }
        let height = self.blocks.len();
        let refusal = |data: String| json!({ "error": { "message": "error", "data": data } });
        match method {
            "status" => json!({ "result": { "sync_info": {
                "latest_block_height": height.to_string(), "catching_up": false } } }),
            "broadcast_tx_sync" if self.kind == Kind::Full => refusal("mempool is full".into()),
            "broadcast_tx_sync" => {
                let transaction = parameters["tx"].as_str().expect("it is base64");
                self.mempool.push(transaction.to_owned());
                json!({ "result": { "code": 0, "log": "" } })
            }
            "block" => {
                let asked = parameters["height"].as_str().expect("heights are strings");
                let index = asked.parse::<usize>().expect("it is a number") - 1;
                match self.blocks.get(index) {
                    Some(txs) => json!({ "result": { "block": {
                        "header": { "height": asked }, "data": { "txs": txs } } } }),
                    None => refusal(format!(
                        "height {asked} must be less than or equal to the current blockchain \
                         height {height}"
                    )),
                }
            }
            _ => refusal(format!("no {method}")),
        }
    }
}

/// Answers the requests of one connection.
fn serve(stream: &TcpStream, chain: &Mutex<Chain>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut length = 0;
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let asked: Value = serde_json::from_slice(&body).ok()?;
        let method = asked["method"].as_str()?;
        let answer = lock(chain).answer(method, &asked["params"]).to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n",
            answer.len()
        );
        let mut stream = stream;
        stream.write_all((head + &answer).as_bytes()).ok()?;
    }
}

/// Nodes of one validator: the process is `script`, the RPC is made up. The threads end with the test.
fn nodes(kind: Kind, folder: &std::path::Path, script: &str) -> Nodes {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let chain = Arc::new(Mutex::new(Chain {
        kind,
        mempool: Vec::new(),
        blocks: vec![Vec::new(); 5],
        next: Instant::now() + BLOCK,
    }));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let chain = Arc::clone(&chain);
            thread::spawn(move || serve(&stream, &chain));
        }
    });
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    Nodes {
        processes: vec![Process::start("node", folder, command).expect("it starts")],
        urls: vec![format!("http://{address}")],
    }
}

fn load() -> Load {
    Load {
        validators: 1,
        rate: 200.0,
        transaction_bytes: 161,
        warm_up: Duration::from_millis(200),
        measure: Duration::from_secs(1),
        drain: Duration::from_secs(5),
    }
}

async fn run(kind: Kind, script: &str) -> Result<Figures> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut nodes = nodes(kind, folder.path(), script);
    drive(&mut nodes, &load()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_sent_is_found_in_blocks() {
    let begun = Instant::now();
    let figures = run(Kind::Honest, "sleep 60").await.expect("it runs");
    assert!(
        (180.0..220.0).contains(&figures.offered_per_s),
        "{figures:?}"
    );
    assert!(
        (160.0..240.0).contains(&figures.goodput_per_s),
        "{figures:?}"
    );
    assert_eq!(figures.unfinished_percent, 0.0);
    assert!((15.0..80.0).contains(&figures.block_ms), "{figures:?}");
    assert!(
        (3.0..500.0).contains(&figures.latency_p50_ms),
        "{figures:?}"
    );
    assert!(figures.memory_mib_max > 0.0, "{figures:?}");
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "it need not drain for 5 s"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn if_all_is_refused_the_error_tells_why() {
    let error = run(Kind::Full, "sleep 60").await.expect_err("it is full");
    let error = error.to_string();
    assert!(error.contains("nothing became final"), "{error}");
    assert!(error.contains("mempool is full"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_with_what_nobody_sent_ends_the_run() {
    let error = run(Kind::Forging, "sleep 60").await.expect_err("it forges");
    assert!(error.to_string().contains("transaction 1000000"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_validator_that_dies_ends_the_run_with_its_last_words() {
    let begun = Instant::now();
    let script = "sleep 0.5; echo panic: disk is full; exit 2";
    let error = run(Kind::Honest, script).await.expect_err("it dies");
    let error = error.to_string();
    assert!(error.contains("node ended by itself (status 2)"), "{error}");
    assert!(error.ends_with("panic: disk is full"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(3), "at once");
}
