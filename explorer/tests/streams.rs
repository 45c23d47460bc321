//! Streams: each final block once and in order, from any explorer. Slow readers are told what they
//! missed, and do not affect others.

#![allow(clippy::unwrap_used)]

mod common;

use common::{TestChain, explorer::Running, fake::Fake};
use quorate_crypto::bls::SchemeKind;
use quorate_types::genesis::Trust;
use serde_json::Value;
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const LIMIT: Duration = Duration::from_secs(30);

struct Setup {
    chain: Arc<Mutex<TestChain>>,
    fake: Arc<Fake>,
    upstream: String,
    trust: Trust,
    folder: tempfile::TempDir,
}

async fn setup(blocks: usize) -> Setup {
    let mut chain = TestChain::new(SchemeKind::BlsThreshold, 4, 1);
    chain.grow(blocks);
    let trust = chain.trust.clone();
    let chain = Arc::new(Mutex::new(chain));
    let fake = Fake::new(&chain);
    Setup {
        upstream: fake.serve().await,
        chain,
        fake,
        trust,
        folder: tempfile::tempdir().unwrap(),
    }
}

impl Setup {
    async fn explorer(&self, name: &str) -> Running {
        let folder = self.folder.path().join(name);
        let upstreams = std::slice::from_ref(&self.upstream);
        Running::start(&self.trust, &folder, upstreams).await
    }

    fn grow(&self, blocks: usize) {
        self.chain.lock().unwrap().grow(blocks);
    }
}

/// A client of a stream of server-sent events.
struct Events {
    response: reqwest::Response,
    text: String,
}

impl Events {
    async fn open(explorer: &Running, query: &str, last: Option<u64>) -> Self {
        let url = format!("{}/v1/stream/sse{query}", explorer.url);
        let mut request = reqwest::Client::new().get(url);
        if let Some(last) = last {
            request = request.header("last-event-id", last.to_string());
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        Self {
            response,
            text: String::new(),
        }
    }

    /// The next event's object. Checks that its fields agree with the event's lines.
    async fn next(&mut self) -> Value {
        let event = tokio::time::timeout(LIMIT, self.read()).await;
        event.expect("an event in time")
    }

    async fn read(&mut self) -> Value {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let event = event.to_owned();
                self.text = rest.to_owned();
                let line = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
                let Some(data) = line("data: ") else {
                    continue;
                };
                let object: Value = serde_json::from_str(data).unwrap();
                assert_eq!(object["type"].as_str(), line("event: "));
                assert_eq!(object["height"].as_str(), line("id: "));
                return object;
            }
            let chunk = self.response.chunk().await.unwrap().expect("no end");
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    async fn heights(&mut self, count: usize) -> Vec<u64> {
        let mut heights = Vec::new();
        for _ in 0..count {
            heights.push(height(&self.next().await));
        }
        heights
    }
}

fn height(event: &Value) -> u64 {
    assert_eq!(event["type"], "finalized", "{event}");
    event["height"].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_stream_goes_from_history_into_the_present_without_gap_or_double() {
    let setup = setup(150).await;
    let explorer = setup.explorer("one").await;
    explorer.reach(20).await;
    let mut events = Events::open(&explorer, "?from_height=1", None).await;
    for _ in 0..10 {
        setup.grow(10);
        tokio::task::yield_now().await;
    }
    let expected: Vec<u64> = (1..=250).collect();
    assert_eq!(events.heights(250).await, expected);
    setup.grow(3);
    assert_eq!(events.heights(3).await, [251, 252, 253]);
    explorer.stop().await;
}

#[tokio::test]
async fn a_stream_resumes_on_another_explorer_where_it_broke() {
    let setup = setup(40).await;
    let first = setup.explorer("one").await;
    first.reach(40).await;
    let mut events = Events::open(&first, "?from_height=31", None).await;
    assert_eq!(events.heights(4).await, [31, 32, 33, 34]);
    first.stop().await;
    let second = setup.explorer("two").await;
    second.reach(30).await;
    // A browser reconnects to the same address with the last event id that it has seen.
    let mut events = Events::open(&second, "?from_height=31", Some(34)).await;
    assert_eq!(events.heights(6).await, [35, 36, 37, 38, 39, 40]);
    setup.grow(2);
    assert_eq!(events.heights(2).await, [41, 42]);
    second.stop().await;
}

#[tokio::test]
async fn a_stream_begins_with_the_next_block_and_may_begin_in_the_future() {
    let setup = setup(10).await;
    let explorer = setup.explorer("one").await;
    explorer.reach(10).await;
    let mut now = Events::open(&explorer, "", None).await;
    let mut later = Events::open(&explorer, "?from_height=13", None).await;
    setup.grow(4);
    assert_eq!(now.heights(4).await, [11, 12, 13, 14]);
    assert_eq!(later.heights(2).await, [13, 14]);
    explorer.stop().await;
}

#[tokio::test]
async fn where_history_ends_a_stream_says_so_and_goes_on() {
    let setup = setup(30).await;
    let keeps = &setup.fake.keeps;
    keeps.store(11, std::sync::atomic::Ordering::Relaxed);
    let explorer = setup.explorer("one").await;
    explorer.reach(30).await;
    let mut events = Events::open(&explorer, "?from_height=3", None).await;
    let first = events.next().await;
    assert_eq!(
        (&first["type"], &first["oldest"]),
        (&"pruned".into(), &"11".into())
    );
    assert_eq!(events.heights(2).await, [11, 12]);
    explorer.stop().await;
}

/// A minimal WebSocket client (RFC 6455).
struct Socket(TcpStream);

impl Socket {
    async fn open(explorer: &Running, query: &str) -> Self {
        let address = explorer.url.trim_start_matches("http://");
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!(
            "GET /v1/stream/ws{query} HTTP/1.1\r\nhost: {address}\r\nconnection: upgrade\r\n\
             upgrade: websocket\r\nsec-websocket-version: 13\r\n\
             sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        assert!(head.starts_with(b"HTTP/1.1 101"), "no upgrade");
        Self(stream)
    }

    /// Sends a masked frame; the mask is zero.
    async fn send(&mut self, code: u8, content: &[u8]) -> std::io::Result<()> {
        let mut frame = vec![0x80 | code, 0x80 | 127];
        frame.extend_from_slice(&(content.len() as u64).to_be_bytes());
        frame.extend_from_slice(&[0; 4]);
        frame.extend_from_slice(content);
        self.0.write_all(&frame).await
    }

    /// The next frame's code and content.
    async fn next(&mut self) -> std::io::Result<(u8, Vec<u8>)> {
        let code = self.0.read_u8().await? & 0x0f;
        let length = match self.0.read_u8().await? {
            126 => u64::from(self.0.read_u16().await?),
            127 => self.0.read_u64().await?,
            short => u64::from(short),
        };
        let mut content = vec![0; length as usize];
        self.0.read_exact(&mut content).await?;
        Ok((code, content))
    }
}

#[tokio::test]
async fn a_websocket_brings_the_same_objects_and_reads_nothing() {
    let setup = setup(40).await;
    let explorer = setup.explorer("one").await;
    explorer.reach(40).await;
    let mut events = Events::open(&explorer, "?from_height=1", None).await;
    let mut socket = Socket::open(&explorer, "?from_height=1").await;
    socket
        .send(1, b"{\"subscribe\": \"everything\"}")
        .await
        .unwrap();
    for height in 1..=43 {
        if height == 41 {
            setup.grow(3);
        }
        let frame = tokio::time::timeout(LIMIT, socket.next()).await;
        let (code, content) = frame.expect("a message in time").unwrap();
        assert_eq!(code, 1, "text");
        let object: Value = serde_json::from_slice(&content).unwrap();
        assert_eq!(object, events.next().await, "height {height}");
    }
    // A client that sends too much is disconnected, and others are not.
    let mut loud = Socket::open(&explorer, "").await;
    let _ = loud.send(2, &vec![0; 1 << 20]).await;
    let end = async {
        while let Ok((code, _)) = loud.next().await {
            if code == 8 {
                break;
            }
        }
    };
    tokio::time::timeout(LIMIT, end)
        .await
        .expect("an end in time");
    setup.grow(1);
    assert_eq!(events.heights(1).await, [44]);
    explorer.stop().await;
}

#[tokio::test]
async fn topics_bring_what_they_say() {
    let setup = setup(15).await;
    let explorer = setup.explorer("one").await;
    explorer.reach(15).await;
    let mut events = Events::open(&explorer, "?topics=nullified,notarized", None).await;
    let (nullified, notarized) = {
        let chain = setup.chain.lock().unwrap();
        let block = &chain.blocks[14].block;
        let subject = common::subject(quorate_types::VoteKind::Notarize, block);
        (chain.nullified[0].clone(), chain.certify(subject))
    };
    // The explorer only reports certificates newer than its first request.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut forged = nullified.clone();
    forged.subject.view = quorate_types::View(999);
    setup
        .fake
        .hear(nullified, Some("no_valid_proposal_in_time"));
    let event = events.next().await;
    assert_eq!(event["type"], "nullified");
    assert_eq!(event["view"], "7");
    assert_eq!(event["reason"], "no_valid_proposal_in_time");
    setup.fake.hear(forged, None);
    setup.fake.hear(notarized, None);
    // The forged certificate causes no event.
    let event = events.next().await;
    assert_eq!(event["type"], "notarized");
    let mut stats = Events::open(&explorer, "?topics=stats", None).await;
    assert_eq!(stats.next().await["clock"], "explorer");
    explorer.stop().await;
}

/// Moves the content of complete chunks (RFC 9112, section 7.1) from the bytes to the text.
fn take_chunks(bytes: &mut Vec<u8>, text: &mut String) {
    while let Some(line) = bytes.windows(2).position(|end| end == b"\r\n") {
        let digits = std::str::from_utf8(&bytes[..line]).unwrap();
        let length = usize::from_str_radix(digits, 16).unwrap();
        let start = line + 2;
        let Some(content) = bytes.get(start..start + length + 2) else {
            return;
        };
        text.push_str(std::str::from_utf8(&content[..length]).unwrap());
        bytes.drain(..start + length + 2);
    }
}

#[tokio::test]
async fn who_reads_too_slowly_is_told_what_is_missing_and_stays_connected() {
    let setup = setup(5).await;
    let explorer = setup.explorer("one").await;
    explorer.reach(5).await;
    // A raw connection whose answers are not read while the chain grows.
    let address = explorer.url.trim_start_matches("http://");
    let mut slow = TcpStream::connect(address).await.unwrap();
    let request = format!("GET /v1/stream/sse HTTP/1.1\r\nhost: {address}\r\n\r\n");
    slow.write_all(request.as_bytes()).await.unwrap();
    let mut head = [0; 12];
    slow.read_exact(&mut head).await.unwrap();
    let mut quick = Events::open(&explorer, "", None).await;
    // Far more events than the ring and the socket buffers hold.
    let blocks = 9_000;
    let grower = setup.chain.clone();
    let growing = std::thread::spawn(move || {
        for _ in 0..blocks / 100 {
            let mut chain = grower.lock().unwrap();
            for _ in 0..99 {
                chain.extend(Vec::new(), 0, false);
            }
            chain.extend(Vec::new(), 0, true);
        }
    });
    growing.join().unwrap();
    explorer.reach(5 + blocks).await;
    // A client that reads is not delayed. It may also have been too slow, but then it is told.
    let mut next = 6;
    while next <= blocks {
        let event = quick.next().await;
        if event["type"] == "gap" {
            assert_eq!(event["from"], next.to_string());
            next = event["to"].as_str().unwrap().parse::<u64>().unwrap() + 1;
        } else {
            assert_eq!(height(&event), next);
            next += 1;
        }
    }
    let (mut text, mut rest) = (String::new(), Vec::new());
    let mut buffer = vec![0; 1 << 20];
    let mut in_body = false;
    let last = format!("id: {}\n", 5 + blocks);
    while !text.contains(&last) {
        let read = tokio::time::timeout(LIMIT, slow.read(&mut buffer)).await;
        let read = read.expect("more in time").unwrap();
        assert!(read > 0, "the connection was closed");
        rest.extend_from_slice(&buffer[..read]);
        if !in_body && let Some(end) = rest.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            rest.drain(..end + 4);
            in_body = true;
        }
        if in_body {
            take_chunks(&mut rest, &mut text);
        }
    }
    assert!(text.contains("event: gap"), "nothing was missed");
    // With the gaps filled, there are no missing and no duplicate blocks.
    let mut next = 6;
    for line in text.lines().filter_map(|line| line.strip_prefix("data: ")) {
        let Ok(event) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        if event["type"] == "gap" {
            assert_eq!(event["from"], next.to_string());
            next = event["to"].as_str().unwrap().parse::<u64>().unwrap() + 1;
        } else {
            assert_eq!(height(&event), next);
            next += 1;
        }
    }
    explorer.stop().await;
}

#[tokio::test]
async fn more_streams_than_allowed_are_refused_and_room_is_made_again() {
    let setup = setup(5).await;
    let folder = setup.folder.path().join("one");
    let upstreams = std::slice::from_ref(&setup.upstream);
    let explorer = Running::start_with(&setup.trust, &folder, upstreams, 2).await;
    explorer.reach(5).await;
    let first = Events::open(&explorer, "", None).await;
    let _second = Events::open(&explorer, "", None).await;
    let third = explorer.get("/v1/stream/sse").await;
    assert_eq!(third.status(), 429);
    assert_eq!(third.headers()["retry-after"], "1");
    drop(first);
    explorer
        .until("room is made", async |explorer| {
            // A closed connection is noticed at the next event.
            setup.grow(1);
            explorer.get("/v1/stream/sse").await.status() == 200
        })
        .await;
    explorer.stop().await;
}
