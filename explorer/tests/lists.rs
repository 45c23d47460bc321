//! Newest transactions, history, submissions, streams of one account, and indexes in older formats.

#![allow(clippy::unwrap_used)]

mod common;

use common::{TestChain, explorer::Running, fake::Fake, secret};
use commonware_codec::Encode as _;
use quorate_crypto::bls::SchemeKind;
use quorate_explorer::{index::Index, shapes::StreamEvent};
use serde_json::{Value, json};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

struct Setup {
    explorer: Running,
    chain: Arc<Mutex<TestChain>>,
    fake: Arc<Fake>,
    folder: tempfile::TempDir,
    url: String,
}

/// Forty blocks, most of them empty.
async fn setup() -> Setup {
    let mut chain = TestChain::new(SchemeKind::BlsThreshold, 4, 1);
    for height in 1..=40_u64 {
        let count = if height % 8 == 0 { 3 } else { 0 };
        let transfers = (0..count).map(|i| chain.transfer(i + 1, height, 31, height));
        let transfers = transfers.collect();
        chain.extend(transfers, 0, true);
    }
    let chain = Arc::new(Mutex::new(chain));
    let fake = Fake::new(&chain);
    let folder = tempfile::tempdir().unwrap();
    let url = fake.serve().await;
    let trust = chain.lock().unwrap().trust.clone();
    let explorer = Running::start(&trust, folder.path(), std::slice::from_ref(&url)).await;
    explorer.reach(40).await;
    Setup {
        explorer,
        chain,
        fake,
        folder,
        url,
    }
}

fn places(page: &Value) -> Vec<(u64, u64)> {
    let place = |item: &Value| {
        let height = item["height"].as_str().unwrap().parse().unwrap();
        (height, item["index"].as_u64().unwrap())
    };
    page["data"].as_array().unwrap().iter().map(place).collect()
}

#[tokio::test]
async fn the_newest_transactions_are_listed_over_empty_blocks_and_up_to_a_time() {
    let setup = setup().await;
    let mut seen = Vec::new();
    let mut path = Some("/v1/transactions?limit=4".to_owned());
    while let Some(at) = path {
        let page = setup.explorer.json(&at).await;
        seen.extend(places(&page));
        path = page["next"].as_str().map(str::to_owned);
    }
    let all: Vec<(u64, u64)> = (1..=5)
        .rev()
        .flat_map(|block| (0..3).rev().map(move |index| (8 * block, index)))
        .collect();
    assert_eq!(seen, all);
    let time = |height: u64| 1_800_000_000_000 + 100 * height;
    for (until, newest) in [
        (time(40), 40),
        (time(40) - 1, 32),
        (time(17), 16),
        (time(8), 8),
    ] {
        let page = format!("/v1/transactions?until_ms={until}");
        assert_eq!(places(&setup.explorer.json(&page).await)[0], (newest, 2));
    }
    let page = format!("/v1/transactions?until_ms={}", time(7));
    assert!(places(&setup.explorer.json(&page).await).is_empty());
    setup.explorer.stop().await;
}

#[tokio::test]
async fn an_index_of_the_older_version_is_brought_up_to_date() {
    let setup = setup().await;
    let history = setup.explorer.json("/v1/history?step=minute").await;
    assert_eq!(history["data"][0]["blocks"], "40");
    assert_eq!(history["data"][0]["transactions"], "15");
    let newest = setup.explorer.json("/v1/transactions").await;
    setup.explorer.stop().await;
    let chain = setup.chain.lock().unwrap().trust.chain_id;
    let deadline = std::time::Instant::now() + common::explorer::PATIENCE;
    let index = loop {
        match Index::open(setup.folder.path(), chain) {
            Ok(index) => break index,
            Err(error) => assert!(std::time::Instant::now() < deadline, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let digest = index.digest().unwrap();
    index.as_format_1().unwrap();
    assert_ne!(index.digest().unwrap(), digest);
    drop(index);
    let index = Index::open(setup.folder.path(), chain).unwrap();
    assert_eq!(index.digest().unwrap(), digest);
    drop(index);
    let trust = setup.chain.lock().unwrap().trust.clone();
    let urls = std::slice::from_ref(&setup.url);
    let explorer = Running::start(&trust, setup.folder.path(), urls).await;
    explorer.reach(40).await;
    assert_eq!(explorer.json("/v1/history?step=minute").await, history);
    assert_eq!(explorer.json("/v1/transactions").await, newest);
    assert_eq!(
        explorer
            .client
            .status()
            .await
            .unwrap()
            .totals
            .transactions
            .0,
        15
    );
    explorer.stop().await;
}

#[tokio::test]
async fn signed_transfers_are_handed_over_and_others_are_refused_here() {
    let setup = setup().await;
    let url = format!("{}/v1/transactions", setup.explorer.url);
    let post = async |body: Value| {
        let sent = reqwest::Client::new().post(&url).json(&body).send();
        let answer = sent.await.unwrap();
        (
            answer.status().as_u16(),
            answer.json::<Value>().await.unwrap(),
        )
    };
    let transfer = setup.chain.lock().unwrap().transfer(3, 77, 31, 5);
    let good = hex::encode(transfer.encode());
    let (status, answer) = post(json!({"hex": [good]})).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["results"][0]["state"], "pending");
    assert_eq!(answer["results"][0]["id"], format!("0x{}", transfer.id()));
    assert_eq!(setup.fake.submitted.lock().unwrap().concat(), good);
    let mut forged = transfer.encode().to_vec();
    *forged.last_mut().unwrap() ^= 1;
    let many = vec![good; 17];
    for body in [
        json!({"hex": [hex::encode(forged)]}),
        json!({"hex": ["0x00"]}),
        json!({"hex": ["zz"]}),
        json!({"hex": []}),
        json!({"hex": many}),
        json!({"hex": ["00".repeat(400_000)]}),
        json!({}),
    ] {
        let (status, answer) = post(body).await;
        assert_eq!(status, 400, "{answer}");
        assert_eq!(answer["code"], "bad_request");
    }
    assert_eq!(setup.fake.submitted.lock().unwrap().len(), 1);
    setup.explorer.stop().await;
}

/// A wallet considers an unknown transaction lost. A transaction that a validator has is not
/// unknown.
#[tokio::test]
async fn a_transaction_is_never_unknown_between_a_validators_word_and_its_block() {
    let setup = setup().await;
    let transfer = setup.chain.lock().unwrap().transfer(3, 77, 31, 5);
    let id = transfer.id().to_string();
    let path = format!("/v1/transactions/{id}");
    let ask = async || {
        let sent = reqwest::get(format!("{}{path}", setup.explorer.url)).await;
        let answer = sent.unwrap();
        let status = answer.status().as_u16();
        (status, answer.json::<Value>().await.unwrap())
    };
    let tell = |told: Value| {
        let mut transactions = setup.fake.transactions.lock().unwrap();
        transactions.insert(id.clone(), told);
    };
    assert_eq!(ask().await.0, 404);
    tell(json!({"id": id, "state": "pending", "waits_for_nonce": 76, "expires_in_ms": 9_000}));
    let (status, answer) = ask().await;
    let waits = (&answer["waits_for_nonce"], &answer["expires_in_ms"]);
    assert_eq!((status, waits), (200, (&json!("76"), &json!("9000"))));
    assert_eq!(answer["state"], "pending");
    // Final in a block that this explorer does not have yet.
    let told = |height: u64| json!({"id": id, "state": "finalized", "height": height, "index": 0});
    tell(told(41));
    let (status, answer) = ask().await;
    assert_eq!((status, &answer["state"]), (200, &json!("pending")));
    // A block that this explorer has does not hold it: the validator lies.
    tell(told(40));
    assert_eq!(ask().await.0, 404);
    let error = json!({"code": "replaced", "message": "by another one"});
    tell(json!({"id": id, "state": "dropped", "error": error}));
    let (status, answer) = ask().await;
    assert_eq!((status, &answer["state"]), (200, &json!("dropped")));
    assert_eq!(answer["reason"], "replaced");
    tell(told(41));
    setup.chain.lock().unwrap().extend(vec![transfer], 0, true);
    let deadline = std::time::Instant::now() + common::explorer::PATIENCE;
    loop {
        let (status, answer) = ask().await;
        assert_eq!(status, 200, "{answer}");
        if answer["state"] == "finalized" {
            assert_eq!(answer["height"], "41");
            break;
        }
        assert_eq!(answer["state"], "pending");
        assert!(std::time::Instant::now() < deadline);
    }
    setup.explorer.stop().await;
}

#[tokio::test]
async fn a_stream_of_one_account_brings_its_transactions_from_history_on_and_no_others() {
    let setup = setup().await;
    let account = secret(2).identity();
    let url = format!(
        "{}/v1/stream/sse?account={account}&from_height=10",
        setup.explorer.url
    );
    let mut stream = reqwest::get(url).await.unwrap();
    assert_eq!(stream.status(), 200);
    let mut text = String::new();
    let mut next = async || {
        let read = async {
            loop {
                if let Some((event, rest)) = text.clone().split_once("\n\n") {
                    text = rest.to_owned();
                    if let Some(data) = event.split_once("data: ") {
                        return data.1.to_owned();
                    }
                    continue;
                }
                let chunk = stream.chunk().await.unwrap().unwrap();
                text.push_str(std::str::from_utf8(&chunk).unwrap());
            }
        };
        let data = tokio::time::timeout(common::explorer::PATIENCE, read).await;
        let event: StreamEvent = serde_json::from_str(&data.unwrap()).unwrap();
        match event {
            StreamEvent::Transaction(event) => {
                let transaction = event.transaction.transaction;
                assert_eq!(transaction.sender, account.into());
                (transaction.height.0, transaction.index)
            }
            other => panic!("{other:?}"),
        }
    };
    for height in [16, 24, 32, 40] {
        assert_eq!(next().await, (height, 1));
    }
    {
        let mut chain = setup.chain.lock().unwrap();
        for nonce in 100..103 {
            chain.extend(Vec::new(), 0, true);
            let own = chain.transfer(2, nonce, 31, 5);
            let other = chain.transfer(4, nonce, 31, 5);
            chain.extend(vec![other, own], 0, true);
        }
    }
    for height in [42, 44, 46] {
        assert_eq!(next().await, (height, 1));
    }
    setup.explorer.stop().await;
}

#[tokio::test]
async fn scripts_of_other_origins_may_read_what_they_need() {
    let setup = setup().await;
    let request = reqwest::Client::new().get(format!("{}/v1/blocks/3", setup.explorer.url));
    let answer = request
        .header("origin", "https://scripts.example")
        .send()
        .await;
    let headers = answer.unwrap().headers().clone();
    let exposed = headers["access-control-expose-headers"].to_str().unwrap();
    assert!(
        exposed.contains("etag") && exposed.contains("retry-after"),
        "{exposed}"
    );
    setup.explorer.stop().await;
}

#[tokio::test]
async fn an_address_of_a_block_leads_a_browser_to_its_page() {
    let setup = setup().await;
    let id = "ab".repeat(32);
    let client = reqwest::Client::builder();
    let client = client
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .unwrap();
    for (path, place) in [
        ("/blocks/10", Some("../#/block/10")),
        ("/blocks", Some("./#/blocks")),
        (
            &format!("/transactions/{id}"),
            Some(&*format!("../#/tx/{id}")),
        ),
        ("/views/0.7", Some("../#/view/0.7")),
        ("/blocks/%22onload", None),
        ("/blocks//evil.example", None),
        ("//evil.example", None),
    ] {
        let request = client.get(format!("{}{path}", setup.explorer.url));
        let answer = request.header("accept", "text/html").send().await.unwrap();
        let led = answer
            .headers()
            .get("location")
            .map(|to| to.to_str().unwrap());
        assert_eq!(led, place, "{path}");
    }
    setup.explorer.stop().await;
}
