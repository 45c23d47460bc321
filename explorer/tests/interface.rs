//! The interface's answers: clients can verify everything, and no request makes the explorer fail.

#![allow(clippy::unwrap_used)]

mod common;

use common::{TestChain, explorer::Running, fake::Fake, secret};
use commonware_codec::{Copying, DecodeExt};
use quorate_crypto::{bls::SchemeKind, sha256};
use quorate_explorer::shapes::Finality;
use quorate_storage::tree::Proof;
use quorate_types::{
    Account, Block, Certificate, Header, Outcome, genesis::Trust, merkle_verify, state_key,
};
use std::sync::{Arc, Mutex};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

struct Setup {
    explorer: Running,
    chain: Arc<Mutex<TestChain>>,
    fake: Arc<Fake>,
    trust: Trust,
    _folder: tempfile::TempDir,
}

async fn setup(kind: SchemeKind, blocks: usize) -> Setup {
    let mut chain = TestChain::new(kind, 4, 1);
    chain.grow(blocks);
    let trust = chain.trust.clone();
    let chain = Arc::new(Mutex::new(chain));
    let fake = Fake::new(&chain);
    let folder = tempfile::tempdir().unwrap();
    let explorer = Running::start(&trust, folder.path(), &[fake.serve().await]).await;
    explorer.reach(blocks as u64).await;
    Setup {
        explorer,
        chain,
        fake,
        trust,
        _folder: folder,
    }
}

/// Verifies as a client would, with only the trust file.
fn is_final(trust: &Trust, header: &Header, finality: &Finality) -> bool {
    let mut last = *header;
    for text in &finality.headers {
        let next = Header::decode(Copying(&text.0)).unwrap();
        if next.parent != last.id() {
            return false;
        }
        last = next;
    }
    let certificate = Certificate::decode(Copying(&finality.certificate.0)).unwrap();
    trust.verifier().unwrap().is_final(&last, &certificate)
}

#[tokio::test]
async fn every_block_verifies_again_with_the_trust_file_alone() {
    for kind in SchemeKind::ALL {
        let setup = setup(kind, 30).await;
        let mut through_descendants = 0;
        for height in 1..=30_u64 {
            let shown = setup
                .explorer
                .client
                .block(&height.to_string())
                .await
                .unwrap();
            let block = Block::decode(Copying(&shown.block.0)).unwrap();
            assert_eq!(block.height().0, height);
            assert!(is_final(&setup.trust, block.header(), &shown.finality));
            through_descendants += usize::from(!shown.finality.headers.is_empty());
            assert_eq!(
                shown.finality.signers.is_some(),
                kind == SchemeKind::BlsAggregate
            );
            let path = format!("{}/v1/blocks/{}", setup.explorer.url, shown.summary.id);
            let request = reqwest::Client::new().get(path);
            let bytes = request.header("accept", "application/octet-stream");
            let bytes = bytes.send().await.unwrap().bytes().await.unwrap();
            assert_eq!(bytes.as_ref(), shown.block.0.as_slice());
        }
        assert!(through_descendants > 5);
        setup.explorer.stop().await;
    }
}

#[tokio::test]
async fn pages_lead_over_all_blocks_in_both_directions() {
    let setup = setup(SchemeKind::BlsThreshold, 25).await;
    let walk = async |first: &str, link: &str| {
        let mut heights = Vec::new();
        let mut path = Some(first.to_owned());
        while let Some(next) = path {
            let page = setup.explorer.json(&next).await;
            for block in page["data"].as_array().unwrap() {
                heights.push(block["height"].as_str().unwrap().parse::<u64>().unwrap());
            }
            path = page[link].as_str().map(str::to_owned);
        }
        heights
    };
    let newest_first: Vec<u64> = (1..=25).rev().collect();
    assert_eq!(walk("/v1/blocks?limit=7", "next").await, newest_first);
    let oldest_first: Vec<u64> = (1..=25).collect();
    assert_eq!(
        walk("/v1/blocks?limit=7&after=0", "next").await,
        oldest_first
    );
    assert_eq!(
        walk("/v1/blocks?before=9&limit=4", "next").await,
        newest_first[17..]
    );
    assert_eq!(
        walk("/v1/blocks?after=3&before=9&limit=2", "next").await,
        oldest_first[3..8]
    );
    let page = setup.explorer.json("/v1/blocks?before=9&limit=4").await;
    let back = setup.explorer.json(page["prev"].as_str().unwrap()).await;
    assert_eq!(back["data"][0]["height"], "12");
    // Paging back from anywhere returns each block once, in the same order.
    let heights = |page: &serde_json::Value| -> Vec<u64> {
        let blocks = page["data"].as_array().unwrap().iter();
        let height = |block: &serde_json::Value| block["height"].as_str().unwrap().parse().unwrap();
        blocks.map(height).collect()
    };
    for (first, sorted) in [
        ("/v1/blocks?before=5&limit=7", true),
        ("/v1/blocks?after=20&limit=7", false),
    ] {
        let mut seen = Vec::new();
        let mut path = Some(first.to_owned());
        while let Some(at) = path {
            let page = setup.explorer.json(&at).await;
            let mut shown = heights(&page);
            assert!(
                shown.is_sorted_by(|a, b| if sorted { a > b } else { a < b }),
                "{at}: {shown:?}"
            );
            shown.append(&mut seen);
            seen = shown;
            path = page["prev"].as_str().map(str::to_owned);
        }
        let all: Vec<u64> = (1..=25).collect();
        let expected: Vec<u64> = if sorted {
            all.into_iter().rev().collect()
        } else {
            all
        };
        assert_eq!(seen, expected, "from {first}");
    }
    setup.explorer.stop().await;
}

#[tokio::test]
async fn transactions_are_found_with_a_proof_and_with_their_reason() {
    let setup = setup(SchemeKind::BlsThreshold, 10).await;
    let failed = {
        let mut chain = setup.chain.lock().unwrap();
        let many: Vec<_> = (1..=5)
            .map(|seed| chain.transfer(seed, 99, 31, 1))
            .collect();
        let failed = many[3].id();
        chain.extend(many, 0, true);
        let last = chain.blocks.last_mut().unwrap();
        last.outcomes[3] = Outcome::Failed(quorate_types::Failure::WrongNonce);
        failed
    };
    setup.explorer.reach(11).await;
    let page = setup
        .explorer
        .client
        .transactions("11", Some(1))
        .await
        .unwrap();
    assert_eq!((page.data.len(), page.total), (3, 5));
    let shown = setup.explorer.client.transaction(&failed).await.unwrap();
    assert_eq!(shown.state, "failed");
    assert_eq!(shown.reason.as_deref(), Some("wrong_nonce"));
    for place in 0..5 {
        let id = setup.chain.lock().unwrap().blocks[10].block.transactions()[place].id();
        let proof = setup.explorer.client.transaction_proof(&id).await.unwrap();
        let header = Header::decode(Copying(&proof.header.0)).unwrap();
        assert!(is_final(&setup.trust, &header, &proof.finality));
        let leaf = sha256(&[&proof.transaction.0]);
        let path: Vec<_> = proof
            .siblings
            .iter()
            .map(|hex| hex.digest().unwrap())
            .collect();
        assert!(merkle_verify(&header.body_root, &leaf, place, 5, &path));
        assert_eq!(sha256(&[&proof.transaction.0[..97]]), id);
    }
    let nowhere = format!("/v1/transactions/{}", "ab".repeat(32));
    assert_eq!(setup.explorer.get(&nowhere).await.status(), 404);
    setup.explorer.stop().await;
}

#[tokio::test]
async fn an_account_comes_with_a_proof_whether_it_is_there_or_not() {
    let setup = setup(SchemeKind::BlsThreshold, 10).await;
    for (seed, there) in [(7_u8, true), (200, false)] {
        let identity = secret(seed).identity();
        let shown = setup.explorer.client.account(&identity).await.unwrap();
        assert_eq!(shown.exists, there);
        let proof = Proof::decode(Copying(&shown.proof.encoded.0)).unwrap();
        let header = Header::decode(Copying(&shown.proof.anchor.header.0)).unwrap();
        let value = proof
            .verify(&header.state_root, &state_key(&identity).0)
            .unwrap();
        let account = value.map(|value| Account::decode(Copying(value)).unwrap());
        assert_eq!(account.is_some(), there);
        assert_eq!(account.unwrap_or_default().balance, shown.balance.0);
        let finality = Finality {
            finalized_by: quorate_explorer::shapes::BlockName {
                height: shown.proof.anchor.height,
                id: shown.proof.anchor.id.clone(),
            },
            headers: Vec::new(),
            certificate: shown.proof.anchor.certificate.clone(),
            signers: None,
        };
        assert!(is_final(&setup.trust, &header, &finality));
    }
    // All senders pay account 31; the newest transfer comes first.
    let receiver = secret(31).identity();
    let first = setup
        .explorer
        .json(&format!("/v1/accounts/{receiver}/transactions?limit=4"))
        .await;
    assert_eq!(first["data"][0]["height"], "10");
    assert_eq!(first["data"][0]["role"], "receiver");
    let second = setup.explorer.json(first["next"].as_str().unwrap()).await;
    assert_eq!(second["data"][0]["height"], "6");
    setup.explorer.stop().await;
}

#[tokio::test]
async fn views_tell_how_they_ended() {
    let setup = setup(SchemeKind::BlsThreshold, 15).await;
    // Blocks 7 and 14 came a view late: views 7 and 15 have no block.
    let [seen, _] = [0, 1].map(|place| setup.chain.lock().unwrap().nullified[place].clone());
    setup.fake.hear(seen, Some("no_quorum_in_time"));
    setup
        .explorer
        .until("the nullification is heard", async |e| {
            e.json("/v1/views/7").await["state"] == "nullified"
        })
        .await;
    let nullified = setup.explorer.json("/v1/views/7").await;
    assert_eq!(nullified["reason"], "no_quorum_in_time");
    assert_eq!(nullified["source"], "certificate");
    assert_eq!(
        setup.explorer.json("/v1/views/15").await["state"],
        "skipped"
    );
    let shown = setup.explorer.json("/v1/views/8?epoch=0").await;
    assert_eq!(shown["state"], "finalized");
    assert_eq!(shown["block"]["height"], "7");
    assert_eq!(setup.explorer.get("/v1/views/999").await.status(), 404);
    assert_eq!(setup.explorer.get("/v1/views/0").await.status(), 404);
    // 17 views in all; leader of view v is v mod 4: views 7 and 15 were led by 3.
    let set = setup.explorer.json("/v1/validators").await;
    let of = |place: usize, key: &str| set["data"][place][key].as_str().unwrap().to_owned();
    assert_eq!(
        [of(3, "led"), of(3, "blocks"), of(3, "missed")],
        ["4", "2", "2"]
    );
    assert_eq!(of(3, "nullified"), "1");
    assert_eq!([of(0, "led"), of(0, "missed")], ["4", "0"]);
    assert_eq!(set["data"][0]["participation"]["source"], "observed");
    setup.explorer.stop().await;
}

#[tokio::test]
async fn what_is_final_may_be_cached_and_what_is_not_may_not() {
    let setup = setup(SchemeKind::BlsThreshold, 5).await;
    let response = setup.explorer.get("/v1/blocks/3").await;
    let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
    assert!(header("cache-control").contains("immutable"));
    // Unless it is configured, pages of other origins cannot read answers.
    let shared = response.headers().get("access-control-allow-origin");
    assert_eq!(shared, None);
    assert!(header("content-security-policy").contains("default-src 'self'"));
    let client = reqwest::Client::new();
    let again = client
        .get(format!("{}/v1/blocks/3", setup.explorer.url))
        .header("if-none-match", header("etag"))
        .send()
        .await
        .unwrap();
    assert_eq!(again.status(), 304);
    let latest = setup.explorer.get("/v1/blocks/latest").await;
    assert_eq!(latest.headers()["cache-control"], "no-cache");
    let zipped = client
        .get(format!("{}/v1/blocks/3", setup.explorer.url))
        .header("accept-encoding", "gzip")
        .send()
        .await
        .unwrap();
    assert_eq!(zipped.headers()["content-encoding"], "gzip");
    setup.explorer.stop().await;
}

#[tokio::test]
async fn a_number_is_found_as_block_view_and_validator() {
    let setup = setup(SchemeKind::BlsThreshold, 12).await;
    let kinds = async |text: &str| -> Vec<String> {
        let hits = setup.explorer.json(&format!("/v1/search?q={text}")).await;
        let hits = hits.as_array().unwrap().clone();
        hits.iter()
            .map(|hit| hit["kind"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(kinds("3").await, ["block", "view", "validator"]);
    assert_eq!(kinds("11").await, ["block", "view"]);
    let block = setup.chain.lock().unwrap().blocks[4].block.clone();
    assert_eq!(kinds(&block.id().to_string()).await, ["block"]);
    let transaction = block.transactions()[0].id();
    assert_eq!(kinds(&format!("0x{transaction}")).await, ["transaction"]);
    let validator = setup.trust.validators[2].identity;
    assert_eq!(kinds(&validator.to_string()).await, ["validator"]);
    assert_eq!(kinds("gibberish").await, Vec::<String>::new());
    setup.explorer.stop().await;
}

#[tokio::test]
async fn hostile_requests_get_a_clean_refusal() {
    let setup = setup(SchemeKind::BlsThreshold, 5).await;
    let long = "9".repeat(600);
    let refused = [
        ("/v1/blocks?limit=0", 400),
        ("/v1/blocks?limit=101", 400),
        ("/v1/blocks?limit=-1", 400),
        ("/v1/blocks?befor=1", 400),
        ("/v1/blocks?before=99999999999999999999999", 400),
        ("/v1/blocks/0", 404),
        ("/v1/blocks/9223372036854775808", 404),
        ("/v1/blocks/18446744073709551615", 400),
        ("/v1/blocks/-1", 400),
        ("/v1/blocks/%00", 400),
        ("/v1/blocks/%ff%fe", 400),
        ("/v1/blocks/..%2f..%2fetc%2fpasswd", 400),
        ("/v1/accounts/zz", 400),
        ("/v1/views/x", 400),
        ("/v1/views/1?epoch=9999", 404),
        ("/v1/validators/4", 404),
        ("/v1/validators/4294967296", 404),
        ("/v1/stats?window=1y", 400),
        ("/v1/stream/sse?topics=all", 400),
        ("/v1/stream/sse?from_height=18446744073709551615", 400),
        ("/v1/stream/ws", 400),
        ("/v1/nothing", 404),
        ("/../../etc/passwd", 404),
    ];
    for (path, status) in refused {
        let response = setup.explorer.get(path).await;
        assert_eq!(response.status(), status, "{path}");
        let kind = response.headers()["content-type"].to_str().unwrap();
        assert_eq!(kind, "application/problem+json", "{path}");
        let problem: serde_json::Value = response.json().await.unwrap();
        assert_eq!(problem["status"], status, "{path}");
    }
    let long = setup.explorer.get(&format!("/v1/search?q={long}")).await;
    assert_eq!(long.status(), 400);
    let post = reqwest::Client::new().post(format!("{}/v1/blocks", setup.explorer.url));
    assert_eq!(post.send().await.unwrap().status(), 405);
    assert_eq!(
        setup
            .explorer
            .get("/v1/blocks?before=99999999999999999999")
            .await
            .status(),
        400
    );
    setup.explorer.stop().await;
}

#[tokio::test]
async fn raw_garbage_and_huge_heads_end_only_their_own_connection() {
    let setup = setup(SchemeKind::BlsThreshold, 5).await;
    let address = setup.explorer.url.trim_start_matches("http://").to_owned();
    let say = async |bytes: &[u8]| {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        let _ = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    };
    let refused = |answer: &str| answer.starts_with("HTTP/1.1 4") || answer.is_empty();
    assert!(refused(&say(b"\x16\x03\x01\x02\x00\x01").await));
    assert!(refused(&say(&[b'A'; 100_000]).await));
    let head = format!(
        "GET /v1/status HTTP/1.1\r\nx: {}\r\n\r\n",
        "y".repeat(200_000)
    );
    assert!(refused(&say(head.as_bytes()).await));
    let many: String = (0..500).map(|i| format!("h{i}: 1\r\n")).collect();
    assert!(refused(
        &say(format!("GET / HTTP/1.1\r\n{many}\r\n").as_bytes()).await
    ));
    assert_eq!(setup.explorer.get("/v1/status").await.status(), 200);
    setup.explorer.stop().await;
}

#[test]
fn the_document_names_each_operation_once_and_refers_to_nothing_missing() {
    let text = quorate_explorer::api::openapi_json();
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let operations = paths
        .values()
        .flat_map(|path| path.as_object().unwrap().values());
    let mut names: Vec<&str> = operations
        .filter_map(|operation| operation["operationId"].as_str())
        .collect();
    let count = names.len();
    assert!(count > paths.len());
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    for reference in text.split("\"#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        let shape = &document["components"]["schemas"][name];
        assert!(shape.is_object(), "{name} is missing");
    }
}

#[tokio::test]
async fn a_page_a_description_and_metrics_are_there() {
    let setup = setup(SchemeKind::BlsThreshold, 5).await;
    for (path, kind) in [
        ("/", "text/html"),
        ("/docs", "text/html"),
        ("/v1/openapi.json", "application/json"),
        ("/metrics", "text/plain"),
        ("/v1/health", "application/json"),
        ("/v1/trust", "application/json"),
    ] {
        let response = setup.explorer.get(path).await;
        assert_eq!(response.status(), 200, "{path}");
        let got = response.headers()["content-type"]
            .to_str()
            .unwrap()
            .to_owned();
        assert!(got.starts_with(kind), "{path}: {got}");
    }
    let latest = setup.explorer.json("/v1/light/bootstrap").await;
    assert_eq!(latest["latest"]["height"], "5");
    let shown: Trust = serde_json::from_value(setup.explorer.json("/v1/trust").await).unwrap();
    assert_eq!(shown, setup.trust);
    setup.explorer.stop().await;
}
