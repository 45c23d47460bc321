//! Bad input, tried: what goes in, what is said, and with which exit code or status. What concerns
//! keys and configurations is in `operating.rs` and `cli_errors.rs`, other requests in
//! `network.rs`.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{BINARY, Net, PATIENCE};
use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

/// Clients that connect and then send one byte, or nothing.
const SLOW_CLIENTS: usize = 10_000;

/// A validator of a stopped network, run with a changed configuration under a shell's limits until
/// it ends by itself.
fn run_with(net: &Net, limits: &str, change: impl Fn(&str) -> String) -> Output {
    let config = net.config(0);
    let text = fs::read_to_string(&config).unwrap();
    let changed = config.replace("validator.toml", "changed.toml");
    fs::write(&changed, change(&text)).unwrap();
    let script = format!("{limits} exec \"$0\" \"$@\"");
    Command::new("sh")
        .args([
            "-c",
            &script,
            BINARY,
            "run",
            "--allow-plain-keys",
            "--config",
            &changed,
        ])
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn disks_that_are_full_or_read_only_stop_the_validator_with_the_files_name() {
    let mut net = Net::start("disks", 1).await;
    net.grow(0, 20).await;
    net.network.kill(0).unwrap();
    // A folder that nobody can write to, not even the superuser.
    let output = run_with(&net, "", |text| {
        text.replace("data_dir = \"data\"", "data_dir = \"/proc/data\"")
    });
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("/proc/data"), "{message}");
    // A file where the folder should be.
    let file = net.directory.path().join("file");
    fs::write(&file, "").unwrap();
    let output = run_with(&net, "", |text| {
        text.replace("data_dir = \"data\"", &format!("data_dir = {file:?}"))
    });
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains(file.to_str().unwrap()), "{message}");
    // Writes fail at some point, as on a full disk: it stops, and says which file.
    let output = run_with(&net, "trap '' XFSZ; ulimit -f 1024;", str::to_owned);
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        message.contains("validator-0/data/") && message.contains("error:"),
        "{message}"
    );
    // With room again it goes on, and nothing is lost.
    net.network.spawn(0, &[]).unwrap();
    net.network.wait_until_up().await.unwrap();
    net.grow(0, 20).await;
    net.stop_and_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_slow_clients_hold_up_neither_consensus_nor_the_interface_for_long() {
    let mut net = Net::start("slow", 1).await;
    net.grow(0, 5).await;
    let url = net.network.urls()[0].clone();
    let address = url.trim_start_matches("http://").to_owned();
    let limits = fs::read_to_string("/proc/self/limits").unwrap();
    let files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let soft = files.unwrap().split_whitespace().nth(3).unwrap();
    let most = soft
        .parse()
        .unwrap_or(20_000_usize)
        .saturating_sub(200)
        .max(100);
    let mut clients = Vec::new();
    for number in 0..SLOW_CLIENTS {
        // The kernel's queue may be full for a moment; what does not connect is slow enough.
        let Ok(mut stream) =
            TcpStream::connect_timeout(&address.parse().unwrap(), Duration::from_millis(20))
        else {
            continue;
        };
        if number % 2 == 0 {
            let _ = stream.write_all(b"G");
        }
        clients.push(stream);
        if clients.len() >= most {
            // This process may not open more files; the oldest have had their time.
            clients.drain(..most / 10);
        }
    }
    assert!(!clients.is_empty());
    let deadline = Instant::now() + PATIENCE * 2;
    // The interface answers again although they hold on.
    while net.network.client(0).status().await.is_err() {
        assert!(Instant::now() < deadline, "the interface never came back");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    net.grow(0, 50).await;
    // They were cut.
    let mut first = clients.swap_remove(0);
    first.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut rest = Vec::new();
    let ended = first.read_to_end(&mut rest);
    assert!(ended.is_ok() || ended.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset));
    drop(clients);
    net.stop_and_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_of_any_size_and_heads_that_are_none_get_a_status() {
    let mut net = Net::start("bodies", 1).await;
    net.grow(0, 5).await;
    let url = net.network.urls()[0].clone();
    let address = url.trim_start_matches("http://").to_owned();
    let head = |request: &[u8]| {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // The server may answer and close before everything is sent.
        let _ = stream.write_all(request);
        let mut text = Vec::new();
        let mut chunk = [0; 512];
        while !text.windows(4).any(|end| end == b"\r\n\r\n") {
            match stream.read(&mut chunk) {
                Ok(0) | Err(_) => break,
                Ok(length) => text.extend_from_slice(&chunk[..length]),
            }
        }
        String::from_utf8_lossy(&text).into_owned()
    };
    let answer = |request: &[u8]| head(request).lines().next().unwrap_or_default().to_owned();
    let post = |length: usize| {
        let mut request = format!(
            "POST /v1/transactions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n"
        )
        .into_bytes();
        // What is too long is refused by its length, before any of it has come.
        if length <= 1 << 20 {
            request.resize(request.len() + length, b' ');
        }
        request
    };
    let long_path = format!(
        "GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n",
        "a".repeat(500_000)
    );
    let many_headers = format!(
        "GET / HTTP/1.1\r\n{}\r\n",
        (0..500).map(|i| format!("h{i}: x\r\n")).collect::<String>()
    );
    for (request, statuses) in [
        (post(0), &["400"][..]),
        (post(10), &["400"]),
        (post((1 << 20) - 1), &["400"]),
        (post((1 << 20) + 1), &["413"]),
        (post(usize::MAX / 2), &["413"]),
        (b"nonsense\r\n\r\n".to_vec(), &["400"]),
        (vec![0xff; 10_000], &["400"]),
        (long_path.into_bytes(), &["414", "431", "400"]),
        (many_headers.into_bytes(), &["431"]),
        (
            b"POST /v1/peers/block HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n"
                .to_vec(),
            &["404"],
        ),
    ] {
        let line = answer(&request);
        let status = line
            .split_whitespace()
            .nth(1)
            .unwrap_or_default()
            .to_owned();
        let shown = String::from_utf8_lossy(&request[..request.len().min(60)]).into_owned();
        assert!(statuses.contains(&status.as_str()), "{shown:?}: {line:?}");
    }
    // Who left a body unread ends the connection, and says so: the next request would be lost.
    let small = |path: &str, kind: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {kind}\r\ncontent-length: 2\r\n\r\n{{}}"
        )
        .into_bytes()
    };
    let json = "application/json";
    for (request, closes) in [
        (post((1 << 20) + 1), true),
        (small("/v1/nothing", json), true),
        (small("/v1/status", json), true),
        (small("/v1/transactions", "text/plain"), true),
        (small("/v1/transactions?wait=yes", json), true),
        (small("/v1/payloads", json), true),
        (small("/v1/transactions", json), false),
        (
            b"GET /v1/nothing HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec(),
            false,
        ),
    ] {
        let head = head(&request).to_lowercase();
        assert_eq!(head.contains("\r\nconnection: close"), closes, "{head}");
    }
    net.grow(0, 20).await;
    net.stop_and_check().await;
}
