//! An endpoint of JSON-RPC that a test tells how to misbehave.

use crate::{
    CHAIN_ID,
    contract::{Entry, Staking, listed},
};
use alloy_primitives::{U256, hex};
use alloy_sol_types::SolCall as _;
use quorate_crypto::Identity;
use quorate_types::ExternalEntry;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// What an endpoint does with a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Way {
    Honest,
    Stalls,
    /// Answers everything at once, but not this.
    StallsAt(&'static str),
    Status(u16),
    Redirects(String),
    Closes,
    /// The whole body, whatever was asked.
    Says(String),
    /// The result of one method, and honest otherwise.
    Answers(&'static str, Value),
    /// Instead of a page of the list.
    Page(Value),
    /// A body without an end.
    Huge,
}

pub(crate) struct State {
    pub(crate) way: Way,
    pub(crate) chain_id: u64,
    pub(crate) finalized: u64,
    /// Blocks of another chain have other hashes.
    pub(crate) fork: u8,
    /// The list from a block on.
    pub(crate) lists: BTreeMap<u64, Vec<Entry>>,
    /// How often each method was called.
    pub(crate) calls: BTreeMap<String, usize>,
}

pub(crate) struct Endpoint {
    pub(crate) url: String,
    pub(crate) state: Arc<Mutex<State>>,
    /// Bytes of a huge body that it could send.
    pub(crate) sent: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A list of these entries, which came in this order.
pub(crate) fn list(entries: &[(Identity, ExternalEntry)]) -> Vec<Entry> {
    let serials = 1..;
    (entries.iter().zip(serials))
        .map(|((identity, entry), serial)| listed(identity, entry, serial))
        .collect()
}

impl Endpoint {
    /// Honest, with a list since block 0.
    pub(crate) async fn start(entries: Vec<Entry>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v3/SECRET-KEY", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State {
            way: Way::Honest,
            chain_id: CHAIN_ID,
            finalized: 100,
            fork: 0,
            lists: [(0, entries)].into(),
            calls: BTreeMap::new(),
        }));
        let sent = Arc::new(AtomicUsize::new(0));
        let (shared, counter) = (state.clone(), sent.clone());
        let task = tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    return;
                };
                tokio::spawn(serve(stream, shared.clone(), counter.clone()));
            }
        });
        Self {
            url,
            state,
            sent,
            task,
        }
    }

    pub(crate) fn now(&self, way: Way) {
        self.state.lock().unwrap().way = way;
    }

    /// From its next block on it lists this, and that block is final.
    pub(crate) fn next(&self, entries: Vec<Entry>) {
        let mut state = self.state.lock().unwrap();
        state.finalized += 1;
        let block = state.finalized;
        state.lists.insert(block, entries);
    }

    pub(crate) fn lists(&self, entries: Vec<Entry>) {
        self.state.lock().unwrap().lists = [(0, entries)].into();
    }

    pub(crate) fn calls(&self, method: &str) -> usize {
        let state = self.state.lock().unwrap();
        state.calls.get(method).copied().unwrap_or(0)
    }
}

impl State {
    fn hash(&self, block: u64) -> String {
        format!("0x{:02x}{block:062x}", self.fork)
    }

    fn result(&self, method: &str, params: &Value) -> Value {
        match method {
            "eth_chainId" => json!(format!("{:#x}", self.chain_id)),
            "eth_getBlockByNumber" => {
                let block = match params[0].as_str().unwrap() {
                    "finalized" => self.finalized,
                    number => u64::from_str_radix(&number[2..], 16).unwrap(),
                };
                json!({ "number": format!("{block:#x}"), "hash": self.hash(block), "transactions": [] })
            }
            "eth_call" => {
                let hash = params[1]["blockHash"].as_str().unwrap();
                let block = u64::from_str_radix(&hash[4..], 16).unwrap();
                assert_eq!(hash, self.hash(block), "a block that it has not named");
                let (_, entries) = self.lists.range(..=block).next_back().unwrap();
                let data = hex::decode(params[0]["data"].as_str().unwrap()).unwrap();
                let answer = match Staking::entriesCall::abi_decode(&data) {
                    Ok(call) => {
                        let [from, to]: [usize; 2] = [call.from.to(), call.to.to()];
                        Staking::entriesCall::abi_encode_returns(&entries[from..to].to_vec())
                    }
                    Err(_) => Staking::countCall::abi_encode_returns(&U256::from(entries.len())),
                };
                json!(hex::encode_prefixed(answer))
            }
            other => panic!("nobody asks for {other}"),
        }
    }
}

async fn serve(mut stream: TcpStream, state: Arc<Mutex<State>>, sent: Arc<AtomicUsize>) {
    let Some(request) = request(&mut stream).await else {
        return;
    };
    let method = request["method"].as_str().unwrap().to_owned();
    let (way, result) = {
        let mut state = state.lock().unwrap();
        *state.calls.entry(method.clone()).or_default() += 1;
        let is_honest = !matches!(state.way, Way::Says(_) | Way::Huge | Way::Stalls);
        let result = is_honest.then(|| state.result(&method, &request["params"]));
        (state.way.clone(), result)
    };
    let honest = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result });
    let body = match way {
        Way::Stalls => return std::future::pending().await,
        Way::StallsAt(at) if at == method => return std::future::pending().await,
        Way::Closes => return,
        Way::Status(status) => {
            let head = format!("HTTP/1.1 {status} No\r\ncontent-length: 0\r\n\r\n");
            let _ = stream.write_all(head.as_bytes()).await;
            return;
        }
        Way::Redirects(to) => {
            let head = format!("HTTP/1.1 307 Moved\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n");
            let _ = stream.write_all(head.as_bytes()).await;
            return;
        }
        Way::Huge => {
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"0x")
                .await;
            let piece = vec![b'0'; 64 << 10];
            while stream.write_all(&piece).await.is_ok() {
                sent.fetch_add(piece.len(), Ordering::Relaxed);
            }
            return;
        }
        Way::Says(body) => body,
        Way::Answers(at, result) if at == method => {
            json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }).to_string()
        }
        Way::Page(result) if is_page(&request) => {
            json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }).to_string()
        }
        Way::Page(_) | Way::Honest | Way::StallsAt(_) | Way::Answers(..) => honest.to_string(),
    };
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
    let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
}

fn is_page(request: &Value) -> bool {
    let selector = hex::encode_prefixed(Staking::entriesCall::SELECTOR);
    let data = request["params"][0]["data"].as_str();
    data.is_some_and(|data| data.starts_with(&selector))
}

/// The body of a request.
async fn request(stream: &mut TcpStream) -> Option<Value> {
    let mut bytes = Vec::new();
    loop {
        let mut piece = [0; 4_096];
        let read = stream
            .read(&mut piece)
            .await
            .ok()
            .filter(|read| *read > 0)?;
        bytes.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(&bytes);
        if let Some((_, body)) = text.split_once("\r\n\r\n")
            && let Ok(request) = serde_json::from_str(body)
        {
            return Some(request);
        }
    }
}
