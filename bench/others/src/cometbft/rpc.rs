//! The few JSON-RPC calls of CometBFT that the generator needs, and its transactions.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use reqwest::Client;
use serde::Deserialize;
use serde_json::{Value, json};

/// How long to wait before asking again for a block that is not there yet, in milliseconds.
pub(super) const POLL_MS: u64 = 5;
/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(10);
/// The longest answer. A block has at most 4 MiB as shipped, and base64 adds a third.
const MAX_ANSWER_BYTES: usize = 16 << 20;
/// How much of an odd answer an error shows, in characters.
const SHOWN: usize = 300;
/// Hexadecimal digits of a transaction's number, which is its key.
const NUMBER_DIGITS: usize = 16;
/// What values are made of: anything but `=` and `:`, which divide key and value.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// One validator's RPC.
#[derive(Clone, Debug)]
pub(super) struct Rpc {
    client: Client,
    url: String,
}

/// What became of a transaction that was sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// It is in the validator's mempool.
    Accepted,
    /// It is not, and why.
    Refused(String),
}

impl Rpc {
    pub(super) fn new(client: Client, url: String) -> Self {
        Self { client, url }
    }

    /// A client whose connections stay open.
    pub(super) fn client() -> Result<Client> {
        Client::builder()
            .timeout(LIMIT)
            .tcp_nodelay(true)
            // Proxies of the environment do not lead to the loopback interface.
            .no_proxy()
            .build()
            .context("cannot make an HTTP client")
    }

    /// The height of the last block, once the validator follows the chain.
    pub(super) async fn height(&self) -> Result<u64> {
        height(&self.call("status", json!({})).await?)
    }

    /// Hands over a transaction and waits until the validator has checked it.
    pub(super) async fn send(&self, transaction: &[u8]) -> Result<Sent> {
        let tx = BASE64_STANDARD.encode(transaction);
        sent(&self.call("broadcast_tx_sync", json!({ "tx": tx })).await?)
    }

    /// The numbers of the transactions in the block at `height`, or nothing if there is none yet.
    pub(super) async fn block(&self, height: u64, bytes: usize) -> Result<Option<Vec<u64>>> {
        let height = height.to_string();
        block(
            &self.call("block", json!({ "height": height })).await?,
            &height,
            bytes,
        )
    }

    async fn call(&self, method: &str, parameters: Value) -> Result<String> {
        let asked = || format!("{method} at {}", self.url);
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": parameters });
        let mut answer = self
            .client
            .post(&self.url)
            .json(&body)
            .send()
            .await
            .with_context(asked)?;
        // Errors come with status 500 and are told in the body.
        let mut text = Vec::new();
        while let Some(chunk) = answer.chunk().await.with_context(asked)? {
            ensure!(
                text.len() + chunk.len() <= MAX_ANSWER_BYTES,
                "the answer to {} is longer than {MAX_ANSWER_BYTES} bytes",
                asked()
            );
            text.extend_from_slice(&chunk);
        }
        String::from_utf8(text).with_context(asked)
    }
}

#[derive(Deserialize)]
struct Answer<T> {
    result: Option<T>,
    error: Option<Refusal>,
}

#[derive(Deserialize)]
struct Refusal {
    message: String,
    #[serde(default)]
    data: String,
}

fn answer<'a, T: Deserialize<'a>>(text: &'a str) -> Result<Answer<T>> {
    let shown = || format!("the answer is odd: {}", shown(text));
    serde_json::from_str(text).with_context(shown)
}

fn result<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T> {
    let answer = answer(text)?;
    answer
        .result
        .with_context(|| format!("there is no result: {}", shown(text)))
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

fn height(text: &str) -> Result<u64> {
    #[derive(Deserialize)]
    struct Status {
        sync_info: Sync,
    }
    #[derive(Deserialize)]
    struct Sync {
        latest_block_height: String,
        catching_up: bool,
    }
    let status: Status = result(text)?;
    ensure!(
        !status.sync_info.catching_up,
        "the validator is catching up"
    );
    number(&status.sync_info.latest_block_height)
}

fn number(text: &str) -> Result<u64> {
    text.parse()
        .with_context(|| format!("{:?} is no height", shown(text)))
}

fn sent(text: &str) -> Result<Sent> {
    #[derive(Deserialize)]
    struct Checked {
        code: u32,
        #[serde(default)]
        log: String,
    }
    let answer: Answer<Checked> = answer(text)?;
    Ok(match (answer.result, answer.error) {
        (Some(Checked { code: 0, .. }), None) => Sent::Accepted,
        (Some(Checked { code, log }), None) => Sent::Refused(shown(&format!("code {code} {log}"))),
        (_, Some(Refusal { message, data })) => Sent::Refused(shown(&format!("{message} {data}"))),
        (None, None) => bail!("there is no result: {}", shown(text)),
    })
}

fn block(text: &str, height: &str, bytes: usize) -> Result<Option<Vec<u64>>> {
    #[derive(Deserialize)]
    struct Found {
        block: Block,
    }
    #[derive(Deserialize)]
    struct Block {
        header: Header,
        data: Data,
    }
    #[derive(Deserialize)]
    struct Header {
        height: String,
    }
    #[derive(Deserialize)]
    struct Data {
        txs: Option<Vec<String>>,
    }
    let answer: Answer<Found> = answer(text)?;
    if let Some(Refusal { message, data }) = answer.error {
        ensure!(
            data.contains("must be less than or equal to the current blockchain height"),
            "no block at {height}: {}",
            shown(&format!("{message} {data}"))
        );
        return Ok(None);
    }
    let found = answer
        .result
        .with_context(|| format!("there is no result: {}", shown(text)))?;
    let told = &found.block.header.height;
    ensure!(
        told == height,
        "asked for block {height}, got {}",
        shown(told)
    );
    let transactions = found.block.data.txs.unwrap_or_default();
    let numbers = transactions.iter().map(|text| {
        let transaction = BASE64_STANDARD
            .decode(text)
            .with_context(|| format!("{:?} is no base64", shown(text)))?;
        transaction_number(&transaction, bytes)
    });
    numbers.collect::<Result<_>>().map(Some)
}

/// Transaction `number`: its number as the key, and a value that does not compress well.
pub(super) fn transaction(number: u64, bytes: usize) -> Vec<u8> {
    let mut transaction = format!("{number:0NUMBER_DIGITS$x}=").into_bytes();
    let mut random = StdRng::seed_from_u64(number);
    transaction.resize_with(bytes, || {
        ALPHABET[usize::from(random.next_u32() as u8 % 64)]
    });
    transaction
}

fn transaction_number(transaction: &[u8], bytes: usize) -> Result<u64> {
    let odd = || {
        let shown = shown(&String::from_utf8_lossy(transaction));
        format!("a block holds {shown:?}, which was never sent")
    };
    let length = transaction.len();
    ensure!(
        length == bytes && transaction.get(NUMBER_DIGITS) == Some(&b'='),
        odd()
    );
    let digits = std::str::from_utf8(&transaction[..NUMBER_DIGITS]).with_context(odd)?;
    u64::from_str_radix(digits, 16).with_context(odd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_are_unique_and_as_long_as_asked() {
        for bytes in [24, 161] {
            let (a, b) = (transaction(7, bytes), transaction(8, bytes));
            assert_eq!((a.len(), b.len()), (bytes, bytes));
            assert_ne!(a[17..], b[17..], "values differ as well");
            assert_eq!(transaction_number(&a, bytes).expect("it is one"), 7);
        }
        let text = String::from_utf8(transaction(u64::MAX, 161)).expect("it is text");
        assert_eq!(text.matches(['=', ':']).count(), 1, "{text}");
        assert!(text.starts_with("ffffffffffffffff="), "{text}");
    }

    #[test]
    fn transactions_of_others_are_an_error() {
        let good = transaction(1, 161);
        assert!(transaction_number(&good[..160], 161).is_err());
        for (at, byte) in [(0, b'x'), (3, 0xff), (16, b':')] {
            let mut odd = good.clone();
            odd[at] = byte;
            let error = transaction_number(&odd, 161).expect_err("it was changed");
            assert!(format!("{error:#}").contains("never sent"), "{error:#}");
        }
    }

    #[test]
    fn a_block_tells_the_numbers_of_its_transactions() {
        let txs: Vec<String> = [3, 9]
            .map(|number| BASE64_STANDARD.encode(transaction(number, 40)))
            .to_vec();
        let answer = |txs: Value| {
            json!({ "jsonrpc": "2.0", "id": 1, "result": { "block_id": {}, "block": {
                "header": { "height": "12", "chain_id": "a" }, "data": { "txs": txs } } } })
            .to_string()
        };
        let numbers = block(&answer(json!(txs)), "12", 40).expect("it is a block");
        assert_eq!(numbers, Some(vec![3, 9]));
        for none in [json!([]), json!(null)] {
            assert_eq!(
                block(&answer(none), "12", 40).expect("it is empty"),
                Some(vec![])
            );
        }
        assert!(
            block(&answer(json!(txs)), "13", 40).is_err(),
            "another height"
        );
        assert!(block(&answer(json!(["%"])), "12", 40).is_err(), "no base64");
    }

    #[test]
    fn a_block_that_is_not_there_yet_is_no_error_but_a_pruned_one_is() {
        let refusal = |data: &str| {
            json!({ "jsonrpc": "2.0", "id": 1, "error": {
                "code": -32603, "message": "Internal error", "data": data } })
            .to_string()
        };
        let later =
            refusal("height 12 must be less than or equal to the current blockchain height 11");
        assert_eq!(block(&later, "12", 40).expect("it comes"), None);
        let error = block(&refusal("height 12 is not available"), "12", 40).expect_err("pruned");
        assert!(error.to_string().contains("not available"), "{error}");
    }

    #[test]
    fn a_refused_transaction_tells_why() {
        let text = r#"{"jsonrpc":"2.0","id":1,"result":{"code":0,"log":"","hash":"AB"}}"#;
        assert_eq!(sent(text).expect("it is an answer"), Sent::Accepted);
        let text = r#"{"jsonrpc":"2.0","id":1,"result":{"code":2,"log":"no key"}}"#;
        let refused = Sent::Refused("code 2 no key".to_owned());
        assert_eq!(sent(text).expect("it is an answer"), refused);
        let text = r#"{"id":1,"error":{"code":-1,"message":"Internal","data":"mempool is full"}}"#;
        let refused = Sent::Refused("Internal mempool is full".to_owned());
        assert_eq!(sent(text).expect("it is an answer"), refused);
    }

    #[test]
    fn a_validator_that_catches_up_is_not_ready() {
        let status = |height: &str, behind: bool| {
            json!({ "result": { "sync_info": {
                "latest_block_height": height, "catching_up": behind } } })
            .to_string()
        };
        assert_eq!(height(&status("5", false)).expect("it follows"), 5);
        assert!(height(&status("5", true)).is_err());
        assert!(height(&status("-5", false)).is_err());
    }

    #[test]
    fn odd_answers_are_errors_that_show_them() {
        let long = "x".repeat(10_000);
        for text in ["", "{}", "[]", "<html>", r#"{"result":{}}"#, &long] {
            assert!(height(text).is_err(), "{text}");
            assert!(sent(text).is_err(), "{text}");
            let error = format!("{:#}", block(text, "1", 40).expect_err("it is odd"));
            assert!(error.contains(&shown(text)), "{error}");
            assert!(error.len() < 1_000, "{error}");
        }
    }
}
