//! What the commands believe of servers: nothing that matters, and no certificate that nobody vouches
//! for.
#![allow(clippy::unwrap_used)]

mod common;

use axum::{Json, Router, routing::get};
use common::{Net, payee};
use quorate_api::RpcClient;
use quorate_node::keys::{Protection, save_secret};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::json;
use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Output,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    },
};

/// A key file of an account of the network that has money.
fn key(net: &Net, account: usize) -> String {
    let path = net.directory.path().join(format!("payer-{account}.key"));
    let secret = net.accounts()[account].to_bytes();
    save_secret(&path, &secret, Protection::Plain).unwrap();
    path.to_str().unwrap().to_owned()
}

fn joined<'a>(first: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [first, more].concat()
}

/// The transfer was signed for the right chain, and was applied by a block.
fn is_final(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    let applied = text.contains("final in block") && text.contains("applied");
    assert!(applied, "{output:?}");
}

/// Serves this for as long as the test runs, and returns where.
async fn serve(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

/// A server that claims to be a validator of some chain, and counts what is submitted to it.
async fn impostor(chain: String, submitted: Arc<AtomicUsize>) -> String {
    let status = json!({
        "name": "\u{1b}[2Jevil", "chain_id": chain, "version": "1", "validator": 0, "validators": 1,
        "epoch": 0, "view": 1, "finalized_height": 1, "executed_height": 1,
        "executed_id": "00".repeat(32), "executed_timestamp_ms": 0, "state_root": "00".repeat(32),
        "mempool_transactions": 0, "peers": [], "blocked": [], "uptime_seconds": 1,
        "behind": false, "first_height": 0, "database_bytes": 0, "journal_bytes": 0,
        "clock_ahead_ms": null, "scheme": "bls-threshold\u{7}\nfinal height  99", "evidence": 0,
    });
    let account = |identity: axum::extract::Path<String>| async move {
        Json(json!({"identity": identity.0, "nonce": 41, "balance": 7}))
    };
    let submit = move || async move {
        submitted.fetch_add(1, Ordering::SeqCst);
        let error = json!({"code": "no\u{1b}c", "message": "go \u{9b}31maway\r\nerror: pay me"});
        (
            axum::http::StatusCode::BAD_REQUEST,
            Json(json!({ "error": error })),
        )
    };
    let router = Router::new()
        .route("/v1/status", get(move || async { Json(status) }))
        .route("/v1/accounts/{identity}", get(account))
        .route("/v1/transactions", axum::routing::post(submit));
    serve(router).await
}

/// A server that passes on what a validator answers, but says that a transfer waits, and refuses all others.
async fn go_between(url: &str) -> String {
    let validator = RpcClient::new(url).unwrap();
    let asked = validator.clone();
    let status = move || async move { Json(asked.status().await.unwrap()) };
    let account = move |identity: axum::extract::Path<String>| async move {
        let identity = identity.parse().unwrap();
        let mut account = validator.account(&identity, true).await.unwrap();
        account.free_nonce = Some(account.nonce + 1);
        Json(account)
    };
    let submit = || async {
        let error = json!({"code": "mempool_full", "message": "the mempool is full"});
        (
            axum::http::StatusCode::SERVICE_UNAVAILABLE,
            Json(json!({ "error": error })),
        )
    };
    let router = Router::new()
        .route("/v1/status", get(status))
        .route("/v1/accounts/{identity}", get(account))
        .route("/v1/transactions", axum::routing::post(submit));
    serve(router).await
}

/// It may keep the transfer, and have it executed when the nonce before is used.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_transfer_with_a_nonce_that_is_not_proven_may_still_count_and_that_is_told() {
    let net = Net::start("later", 1).await;
    let (key, to) = (key(&net, 0), payee().to_string());
    let trust = net.path().join("trust.json");
    let liar = go_between(&net.network.urls()[0]).await;
    let transfer = [
        "tx",
        "transfer",
        "--key",
        &key,
        "--to",
        &to,
        "--amount",
        "5",
        "--trust",
        trust.to_str().unwrap(),
        "--rpc",
        &liar,
    ];
    let refused = net.fail(&transfer);
    assert!(refused.contains("the mempool is full"), "{refused}");
    assert!(refused.contains("do it with --nonce 1"), "{refused}");
    // With a proven nonce there is nothing to be said: a second payment has the same.
    let refused = net.fail(&joined(&transfer, &["--nonce", "0"]));
    assert!(!refused.contains("do it with"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_is_signed_only_for_the_chain_that_was_named() {
    let net = Net::start("sign", 1).await;
    let (key, to) = (key(&net, 0), payee().to_string());
    let transfer = [
        "tx", "transfer", "--key", &key, "--to", &to, "--amount", "5",
    ];
    let own = net.genesis.chain_id().to_string();
    let trust = net.path().join("trust.json");
    let trust = ["--trust", trust.to_str().unwrap()];
    let submitted: Arc<AtomicUsize> = Arc::default();
    let foreign = impostor("ab".repeat(32), submitted.clone()).await;

    let unnamed = net.fail(&joined(&transfer, &["--rpc", &net.network.urls()[0]]));
    for help in ["--trust", "--chain-id", "trust.json"] {
        assert!(unnamed.contains(help), "{unnamed}");
    }
    for named in [&trust[..], &["--chain-id", &own]] {
        let refused = net.fail(&joined(&transfer, &[named, &["--rpc", &foreign]].concat()));
        assert!(refused.contains("another chain"), "{refused}");
    }
    // One that claims to be of this chain cannot prove the nonce.
    let liar = impostor(own.clone(), submitted.clone()).await;
    let refused = net.fail(&joined(
        &transfer,
        &[&trust[..], &["--rpc", &liar]].concat(),
    ));
    assert!(refused.contains("no proof"), "{refused}");
    assert_eq!(submitted.load(Ordering::SeqCst), 0, "something was signed");

    // Without a trust file it is told that the nonce is only said; what the liar says is harmless.
    let refused = net.fail(&joined(&transfer, &["--chain-id", &own, "--rpc", &liar]));
    assert!(
        refused.contains("note: the nonce, 41, is what"),
        "{refused}"
    );
    assert!(refused.contains("go \\u{9b}31maway"), "{refused}");
    assert_eq!(refused.lines().count(), 2, "{refused}");
    assert_eq!(submitted.load(Ordering::SeqCst), 1);
    let shown = net.succeed(&["status", "--rpc", &liar]);
    assert!(shown.contains("\\u{1b}[2Jevil"), "{shown}");
    assert!(!shown.chars().any(|c| c.is_control() && c != '\n'));
    assert!(!shown.contains("\nfinal height  99"), "{shown}");
    let shown = net.succeed(&["status", "--json", "--rpc", &liar]);
    assert!(!shown.chars().any(|c| c.is_control() && c != '\n'));

    let real = ["--wait", "--rpc", &net.network.urls()[0]];
    is_final(&net.cli(&joined(&transfer, &[&trust[..], &real].concat())));
    let named = ["--chain-id", &own, "--nonce", "1"];
    is_final(&net.cli(&joined(&transfer, &[&real[..], &named].concat())));
    net.stop_and_check().await;
}

/// A server that speaks TLS and hands on what it hears. Returns its port and its authority's
/// certificate, as a file.
async fn tls_proxy(folder: &Path, to: SocketAddr) -> (u16, PathBuf) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let own = KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let certificate = CertificateParams::new(names).unwrap();
    let certificate = certificate.signed_by(&own, &authority).unwrap();
    let file = folder.join("authority.pem");
    fs::write(&file, authority.pem()).unwrap();
    let secret = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(own.serialize_der()));
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], secret)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut inside = acceptor.accept(stream).await.ok()?;
                let mut outside = TcpStream::connect(to).await.ok()?;
                tokio::io::copy_bidirectional(&mut inside, &mut outside)
                    .await
                    .ok()
            });
        }
    });
    (port, file)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_speaks_tls_to_whom_it_has_reason_to_believe() {
    let mut net = Net::start("tls", 1).await;
    net.grow(0, 3).await;
    let folder = net.directory.path();
    let (port, file) = tls_proxy(folder, net.network.settings().rpc_address(0)).await;
    let ca = ["--ca", file.to_str().unwrap()];
    let trust = net.path().join("trust.json");
    let trust = ["--trust", trust.to_str().unwrap()];
    let key = key(&net, 0);
    let to = payee().to_string();
    let (port_of_explorer, data) = (port_of(), folder.join("explorer"));
    for host in ["localhost", "127.0.0.1"] {
        let url = format!("https://{host}:{port}");
        let rpc = ["--rpc", &url];
        let unknown = net.fail(&[&["status"], &rpc[..]].concat());
        assert!(unknown.contains("certificate"), "{unknown}");
        net.succeed(&[&["status"], &rpc[..], &ca].concat());
        net.succeed(&[&["block", "2", "--verify"], &trust[..], &rpc, &ca].concat());
        let transfer = [
            "tx", "transfer", "--key", &key, "--to", &to, "--amount", "5",
        ];
        let paid = [&transfer[..], &["--wait"], &trust, &rpc, &ca].concat();
        is_final(&net.cli(&paid));
    }
    let url = format!("https://localhost:{port}");
    let dir = net.path();
    let dir = dir.to_str().unwrap();
    let load = [
        "load",
        "--dir",
        dir,
        "--rpc",
        &url,
        "--rate",
        "20",
        "--for",
        "2s",
        "--accounts",
        "5",
    ];
    let loaded = net.cli(&[&load[..], &ca].concat());
    assert!(loaded.status.success(), "{loaded:?}");

    // The explorer reads through it.
    let listen = format!("127.0.0.1:{port_of_explorer}");
    let child = std::process::Command::new(common::BINARY)
        .args(["explorer", "--upstream", &url, "--listen", &listen])
        .args(["--data", data.to_str().unwrap(), "--stop-with-stdin"])
        .args(trust)
        .args(ca)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn();
    let mut child = child.unwrap();
    let explored = format!("http://{listen}");
    net.until("the explorer shows a block", async |net| {
        let asked = ["block", "2", "--explorer", &explored];
        net.cli(&asked).status.success()
    })
    .await;
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());

    let text = folder.join("text.pem");
    fs::write(&text, "no certificate").unwrap();
    let refused = net.fail(&["status", "--rpc", &url, "--ca", text.to_str().unwrap()]);
    assert!(
        refused.contains("text.pem") && refused.contains("PEM"),
        "{refused}"
    );
    net.stop_and_check().await;
}

fn port_of() -> u16 {
    common::free_base_port(1)
}
