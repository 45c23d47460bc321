//! Hostile clients against a small interface with short timeouts.
#![allow(clippy::unwrap_used)]

use axum::{
    Router,
    body::Body,
    routing::{get, post},
};
use bytes::Bytes;
use futures_util::stream;
use quorate_http::{
    Client, Clients, FREE_BYTES, Limits, Refusal, Resource, Share, Times, pieces::holding,
};
use std::{
    convert::Infallible,
    net::SocketAddr,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
};

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

const HEAD: Duration = Duration::from_millis(700);
const BODY: Duration = Duration::from_secs(1);
const STALL: Duration = Duration::from_millis(700);
const LIFE: Duration = Duration::from_secs(4);

fn limits() -> Limits {
    let plenty = Share {
        all: 1_000,
        each: 1_000,
    };
    Limits {
        connections: Share { all: 8, each: 5 },
        requests: plenty,
        waiting: plenty,
        streams: plenty,
        bytes: Share {
            all: 4 << 20,
            each: 2 << 20,
        },
        work: plenty,
        reading: plenty,
        verifying: plenty,
        times: Times {
            head: HEAD,
            body: BODY,
            stall: STALL,
            life: LIFE,
            last_answer: Some(Duration::from_secs(1)),
            pace: Duration::ZERO,
        },
        trusted_proxies: vec!["127.0.0.9".parse().unwrap()],
    }
}

struct Server {
    address: SocketAddr,
    clients: Clients,
}

fn refuse(refusal: &Refusal) -> axum::response::Response {
    let mut response = axum::response::Response::new(Body::from(refusal.to_string()));
    *response.status_mut() = hyper::StatusCode::TOO_MANY_REQUESTS;
    response
}

/// An endless answer that holds some bytes.
async fn endless(client: Client) -> axum::response::Response {
    let room = match client.take(Resource::Bytes, 100_000) {
        Ok(room) => room,
        Err(refusal) => return refuse(&refusal),
    };
    let pieces = stream::repeat_with(|| Ok::<_, Infallible>(Bytes::from(vec![b'x'; 50_000])));
    axum::response::Response::new(holding(Body::from_stream(pieces), room))
}

async fn start(limits: Limits) -> Server {
    let listener = quorate_http::listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let clients = Clients::new(limits);
    let router = Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/alive", get(|| async { "alive" }))
        .route(
            "/length",
            post(|body: Bytes| async move { body.len().to_string() }),
        )
        .route("/refuse", post(|| async { "refused" }))
        .route("/large", get(|| async { vec![b'x'; 1 << 20] }))
        .route("/endless", get(endless))
        .route("/slow", get(|| tokio::time::sleep(Duration::from_secs(60))))
        .layer(axum::middleware::from_fn(quorate_http::hold_answers));
    let server = clients.clone();
    tokio::spawn(async move {
        let never = std::future::pending();
        quorate_http::serve(listener, server, router, refuse, &["/alive"], never).await;
    });
    Server { address, clients }
}

impl Server {
    /// A connection from 127.0.0.`last` that sends some text, with a small receive buffer.
    async fn say(&self, last: u8, text: &str) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(16 << 10).unwrap();
        let from = SocketAddr::from(([127, 0, 0, last], 0));
        socket.bind(from).unwrap();
        let mut stream = socket.connect(self.address).await.unwrap();
        let _ = stream.write_all(text.as_bytes()).await;
        stream
    }

    async fn ask(&self, last: u8, path: &str) -> String {
        let text = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        let mut stream = self.say(last, &text).await;
        read(&mut stream).await
    }

    async fn until(&self, what: &str, holds: impl Fn(&Clients) -> bool) {
        let start = Instant::now();
        while !holds(&self.clients) {
            assert!(start.elapsed() < PATIENCE, "{what}: never");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

async fn read(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let all = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer));
    let _ = all.await.expect("the connection ends");
    String::from_utf8_lossy(&answer).into_owned()
}

const ENDLESS: &str = "GET /endless HTTP/1.1\r\nhost: x\r\n\r\n";

#[tokio::test]
async fn who_does_not_read_is_cut_and_gives_back_what_it_holds() {
    let server = start(limits()).await;
    let _silent = server.say(1, ENDLESS).await;
    server
        .until("an answer", |c| c.taken(Resource::Bytes) > 0)
        .await;
    server.until("the end", |c| c.connections() == 0).await;
    assert_eq!(server.clients.taken(Resource::Bytes), 0);
    assert_eq!(server.clients.taken(Resource::Requests), 0);
}

#[tokio::test]
async fn who_reads_a_little_now_and_then_is_cut_too() {
    let server = start(Limits {
        times: Times {
            life: Duration::from_secs(3_600),
            ..limits().times
        },
        ..limits()
    })
    .await;
    let stream = server.say(1, ENDLESS).await;
    server.until("a connection", |c| c.connections() == 1).await;
    let start = Instant::now();
    let mut some = [0; 64];
    while server.clients.connections() > 0 {
        assert!(start.elapsed() < PATIENCE);
        let _ = stream.try_read(&mut some);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn who_reads_all_the_time_is_served_until_its_connection_has_lived_long_enough() {
    let server = start(limits()).await;
    let mut stream = server.say(1, ENDLESS).await;
    let start = Instant::now();
    let mut some = vec![0; 1 << 16];
    while matches!(stream.read(&mut some).await, Ok(1..)) {
        assert!(start.elapsed() < PATIENCE);
    }
    assert!(start.elapsed() >= LIFE);
}

#[tokio::test]
async fn silence_a_head_without_end_and_too_large_heads_end_a_connection() {
    let server = start(limits()).await;
    let many: String = (0..500).map(|i| format!("h{i}: 1\r\n")).collect();
    let long = "y".repeat(100_000);
    let mut connections = Vec::new();
    for text in [
        String::new(),
        "GET / HTTP/1.1\r\nho".to_owned(),
        format!("GET / HTTP/1.1\r\n{many}\r\n"),
        format!("GET / HTTP/1.1\r\nx: {long}\r\n\r\n"),
    ] {
        connections.push(server.say(1, &text).await);
    }
    for mut connection in connections {
        let answer = read(&mut connection).await;
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 4"),
            "{answer}"
        );
    }
    // A client that was answered may send another request, but not stay forever.
    let mut idle = server.say(1, "GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(read(&mut idle).await.ends_with("hello"));
    server.until("the end", |c| c.connections() == 0).await;
}

#[tokio::test]
async fn one_address_gets_its_share_of_connections_and_another_gets_in_at_once() {
    let server = start(limits()).await;
    let mut held = Vec::new();
    for _ in 0..5 {
        held.push(server.say(1, ENDLESS).await);
    }
    server.until("five", |c| c.connections() == 5).await;
    let refused = server.ask(1, "/").await;
    assert!(refused.starts_with("HTTP/1.1 429"), "{refused}");
    assert!(refused.contains("an address has 5 at most"), "{refused}");
    assert!(server.ask(2, "/").await.ends_with("hello"));
    for _ in 0..3 {
        held.push(server.say(3, ENDLESS).await);
    }
    server.until("eight", |c| c.connections() == 8).await;
    // All connections are taken, so the address with the most loses one.
    assert!(server.ask(2, "/").await.ends_with("hello"));
    assert!(server.clients.connections() <= 8);
}

#[tokio::test]
async fn an_address_has_a_budget_of_bytes_and_is_told_when_it_is_used_up() {
    let server = start(limits()).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let large = "GET /large HTTP/1.1\r\nhost: x\r\n\r\n";
        held.push(server.say(1, large).await);
    }
    server
        .until("both", |c| c.taken(Resource::Bytes) == 2 << 20)
        .await;
    let refused = server.ask(1, "/large").await;
    assert!(
        refused.contains("bytes of requests and answers"),
        "{refused}"
    );
    assert_eq!(server.ask(2, "/large").await.matches('x').count(), 1 << 20);
}

#[tokio::test]
async fn requests_on_one_connection_are_answered_one_after_the_other() {
    let server = start(limits()).await;
    let large = "GET /large HTTP/1.1\r\nhost: x\r\n\r\n".repeat(100);
    let _held = server.say(1, &large).await;
    server
        .until("the first", |c| c.taken(Resource::Bytes) > 0)
        .await;
    assert_eq!(server.clients.taken(Resource::Bytes), 1 << 20);
    assert_eq!(server.clients.taken(Resource::Requests), 1);
    server.until("the end", |c| c.connections() == 0).await;
}

#[tokio::test]
async fn requests_that_come_faster_than_their_clients_pace_wait_and_others_do_not() {
    let mut limits = limits();
    limits.times.pace = Duration::from_millis(50);
    limits.times.head = PATIENCE;
    let server = start(limits).await;
    let start = Instant::now();
    let mut flood = Vec::new();
    for path in ["/", "/alive"] {
        let get = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
        let last = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        flood.push(server.say(1, &(get.repeat(14) + &last)).await);
    }
    assert!(server.ask(2, "/").await.ends_with("hello"));
    let others = start.elapsed();
    for stream in &mut flood {
        assert_eq!(read(stream).await.matches("200 OK").count(), 15);
    }
    let paced = Duration::from_millis(30 * 50) - quorate_http::PACE_AHEAD;
    assert!(start.elapsed() >= paced, "{:?}", start.elapsed());
    assert!(others < start.elapsed());
}

#[tokio::test]
async fn a_trusted_proxy_speaks_for_its_clients_and_nobody_else_does() {
    let mut limits = limits();
    limits.requests.each = 1;
    let server = start(limits).await;
    let through = async |proxy: u8, client: &str, path: &str| {
        let text = format!(
            "GET {path} HTTP/1.1\r\nhost: x\r\nx-forwarded-for: {client}\r\nconnection: close\r\n\r\n"
        );
        server.say(proxy, &text).await
    };
    let _slow = through(9, "192.0.2.1", "/slow").await;
    server
        .until("the slow one", |c| c.taken(Resource::Requests) == 1)
        .await;
    let same = read(&mut through(9, "192.0.2.1", "/").await).await;
    assert!(same.starts_with("HTTP/1.1 429"), "{same}");
    let other = read(&mut through(9, "192.0.2.2", "/").await).await;
    assert!(other.ends_with("hello"), "{other}");
    // From other addresses the header means nothing: this is a request of 127.0.0.1.
    let liar = read(&mut through(1, "192.0.2.1", "/").await).await;
    assert!(liar.ends_with("hello"), "{liar}");
}

fn post_of(bytes: usize) -> String {
    format!(
        "POST /length HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {bytes}\r\n\r\n"
    )
}

#[tokio::test]
async fn a_body_takes_what_has_come_of_it_and_not_what_it_is_said_to_have() {
    let server = start(limits()).await;
    let mut held = Vec::new();
    for last in [1, 1, 1, 2, 2, 2] {
        let begun = "y".repeat(FREE_BYTES + 100);
        held.push(server.say(last, &(post_of(1 << 20) + &begun)).await);
    }
    let begun = 6 * 100;
    server
        .until("all six", |c| c.taken(Resource::Bytes) == begun)
        .await;
    let body = "y".repeat(500_000);
    let mut other = server.say(3, &(post_of(body.len()) + &body)).await;
    assert!(read(&mut other).await.ends_with("\r\n\r\n500000"));
    // These clients never send the rest.
    for mut stream in held {
        let answer = read(&mut stream).await;
        assert!(answer.contains("took too long"), "{answer}");
    }
    server.until("the end", |c| c.connections() == 0).await;
    assert_eq!(server.clients.taken(Resource::Bytes), 0);
}

/// A client that sends a complete body before it reads anything, as many libraries do.
#[tokio::test]
async fn who_sends_a_long_body_that_is_refused_unread_can_read_the_answer() {
    let server = start(limits()).await;
    for bytes in [FREE_BYTES + 1, (1 << 20) + 1, 5 << 20] {
        let head = format!("POST /refuse HTTP/1.1\r\nhost: x\r\ncontent-length: {bytes}\r\n\r\n");
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        for piece in "y".repeat(bytes).as_bytes().chunks(1 << 16) {
            stream.write_all(piece).await.unwrap();
        }
        let answer = read(&mut stream).await;
        assert!(answer.ends_with("refused"), "{bytes}: {answer}");
    }
    // Who never stops is cut.
    let mut stream = server
        .say(1, &post_of(1 << 40).replace("/length", "/refuse"))
        .await;
    while stream.write_all(&[b'y'; 1 << 16]).await.is_ok() {}
    server.until("the end", |c| c.connections() == 0).await;
}

#[tokio::test]
async fn a_body_beyond_what_its_client_may_hold_is_refused_as_it_comes() {
    let server = start(limits()).await;
    let address = "127.0.0.1".parse().unwrap();
    let client = server.clients.client(address).unwrap();
    let all_but_little = client.take(Resource::Bytes, (2 << 20) - 1_000).unwrap();
    let body = "y".repeat(FREE_BYTES + 5_000);
    let refused = read(&mut server.say(1, &(post_of(body.len()) + &body)).await).await;
    assert!(
        refused.contains("bytes of requests and answers"),
        "{refused}"
    );
    let small = read(&mut server.say(1, &(post_of(3) + "abc")).await).await;
    assert!(small.ends_with("\r\n\r\n3"), "{small}");
    drop(all_but_little);
    let all = read(&mut server.say(1, &(post_of(body.len()) + &body)).await).await;
    assert!(all.ends_with("\r\n\r\n21384"), "{all}");
}

#[tokio::test]
async fn whether_the_interface_lives_is_answered_whatever_others_hold() {
    let server = start(limits()).await;
    let greedy = server.clients.client("127.0.0.1".parse().unwrap()).unwrap();
    let _all = greedy.take(Resource::Requests, 1_000).unwrap();
    let refused = server.ask(2, "/").await;
    assert!(refused.contains("requests are under way"), "{refused}");
    assert!(server.ask(2, "/alive").await.ends_with("alive"));
    // A body that is not read changes nothing.
    let text = "GET /alive HTTP/1.1\r\nhost: x\r\ncontent-length: 900\r\n\r\n";
    let begun = read(&mut server.say(2, text).await).await;
    assert!(begun.ends_with("alive"), "{begun}");
    assert_eq!(server.clients.taken(Resource::Bytes), 0);
}

#[tokio::test]
async fn what_follows_a_request_with_two_lengths_is_no_request() {
    let server = start(limits()).await;
    let inner = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    for fields in [
        format!(
            "content-length: {}\r\ntransfer-encoding: chunked",
            inner.len() + 5
        ),
        "transfer-encoding: chunked\r\ncontent-length: 5".to_owned(),
    ] {
        let text = format!("POST /length HTTP/1.1\r\nhost: x\r\n{fields}\r\n\r\n0\r\n\r\n{inner}");
        let answer = read(&mut server.say(1, &text).await).await;
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{fields}: {answer}");
        assert!(!answer.contains("hello"), "{fields}: {answer}");
    }
    for fields in [
        "content-length: 3\r\ncontent-length: 5",
        "transfer-encoding: chunked, identity",
        "content-length: +3",
        "transfer-encoding: chunked\r\ntransfer-encoding: gzip",
    ] {
        let text = format!("POST /length HTTP/1.1\r\nhost: x\r\n{fields}\r\n\r\nabc{inner}");
        let answer = read(&mut server.say(1, &text).await).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{fields}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{fields}: {answer}");
    }
}
