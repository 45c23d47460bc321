//! Ethereum JSON-RPC over HTTP, as far as it is needed here.
//!
//! Not alloy's transport: that one (`alloy-transport-http`) reads an answer whole before anybody can look at its size,
//! and puts its text into errors and logs. Here an answer is read up to [`crate::MAX_SOURCE_BYTES`], only the fields
//! that are needed are kept of it, and nothing that it says is quoted: of its errors the number is.

use crate::source::{SourceError, client, read_body, unreadable};
use alloy_primitives::{Address, B256, hex};
use reqwest::{StatusCode, Url, header};
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_json::json;
use std::time::Duration;

/// Requests are answered one by one, each over its own connection.
const ID: u64 = 1;

/// One endpoint.
#[derive(Clone)]
pub(super) struct Rpc {
    client: reqwest::Client,
    url: Url,
}

#[derive(Serialize)]
struct Request<P> {
    jsonrpc: &'static str,
    id: u64,
    method: &'static str,
    params: P,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de>"))]
struct Answer<T> {
    id: Option<u64>,
    /// `Some(None)` is a result of `null`, which is an answer; one that is missing is none.
    #[serde(default = "nothing", deserialize_with = "present")]
    result: Option<Option<T>>,
    error: Option<Refusal>,
}

fn nothing<T>() -> Option<T> {
    None
}

fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    result: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(result).map(Some)
}

#[derive(Deserialize)]
struct Refusal {
    code: i64,
}

#[derive(Deserialize)]
struct BlockWords {
    number: Quantity,
    hash: Data,
}

/// A block's number and hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) number: u64,
    pub(super) hash: B256,
}

/// A number as JSON-RPC writes it: `0x` and at least one digit.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Quantity(u64);

impl TryFrom<String> for Quantity {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let digits = text.strip_prefix("0x").unwrap_or("");
        let is_plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u64::from_str_radix(digits, 16).ok();
        let number = number.filter(|_| is_plain);
        number.map(Self).ok_or("not a number of 64 bits")
    }
}

/// Bytes in hexadecimal.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Data(Vec<u8>);

impl TryFrom<String> for Data {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let digits = text.strip_prefix("0x").ok_or("no 0x")?;
        let bytes = hex::decode(digits).map_err(|_| "not hexadecimal")?;
        Ok(Self(bytes))
    }
}

impl Rpc {
    /// # Errors
    ///
    /// If the URL is none, or no HTTP client can be made.
    pub(super) fn new(url: &str, timeout: Duration) -> Result<Self, SourceError> {
        let url = Url::parse(url).map_err(|error| unreadable(&error))?;
        let client = client(timeout)?;
        Ok(Self { client, url })
    }

    /// Its scheme, host and port. The rest of such a URL is often the key of somebody's account.
    pub(super) fn shown(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    pub(super) async fn chain_id(&self) -> Result<u64, SourceError> {
        let id: Option<Quantity> = self.ask("eth_chainId", json!([])).await?;
        id.map(|id| id.0).ok_or(SourceError::NotRpc)
    }

    /// The newest final block.
    pub(super) async fn final_block(&self) -> Result<Block, SourceError> {
        self.block("finalized").await
    }

    /// The block with a number.
    pub(super) async fn block_at(&self, number: u64) -> Result<Block, SourceError> {
        let block = self.block(&format!("{number:#x}")).await?;
        if block.number != number {
            return Err(SourceError::NotRpc);
        }
        Ok(block)
    }

    async fn block(&self, which: &str) -> Result<Block, SourceError> {
        let block = self.ask("eth_getBlockByNumber", json!([which, false]));
        let block: Option<BlockWords> = block.await?;
        let block = block.ok_or(SourceError::NoBlock)?;
        Ok(Block {
            number: block.number.0,
            hash: B256::try_from(&block.hash.0[..]).map_err(|_| SourceError::NotRpc)?,
        })
    }

    /// What a contract answers in the state after a block.
    pub(super) async fn call(
        &self,
        contract: &Address,
        data: &[u8],
        block: &B256,
    ) -> Result<Vec<u8>, SourceError> {
        let call = json!({ "to": format!("{contract:#x}"), "data": hex::encode_prefixed(data) });
        // By its hash (EIP-1898), so that the answer is of this block or none.
        let params = json!([call, { "blockHash": format!("{block:#x}") }]);
        let answer: Option<Data> = self.ask("eth_call", params).await?;
        answer.map(|data| data.0).ok_or(SourceError::NotRpc)
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: &'static str,
        params: serde_json::Value,
    ) -> Result<Option<T>, SourceError> {
        let request = Request {
            jsonrpc: "2.0",
            id: ID,
            method,
            params,
        };
        let request = serde_json::to_vec(&request).map_err(|error| unreadable(&error))?;
        let sent = self
            .client
            .post(self.url.clone())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .body(request)
            .send();
        let response = sent
            .await
            .map_err(|error| unreadable(&error.without_url()))?;
        if response.status() != StatusCode::OK {
            return Err(SourceError::Status(response.status().as_u16()));
        }
        let body = read_body(response).await?;
        let answer: Answer<T> = serde_json::from_slice(&body).map_err(|_| SourceError::NotRpc)?;
        match answer {
            Answer {
                error: Some(Refusal { code }),
                ..
            } => Err(SourceError::Refused(code)),
            Answer {
                id: Some(ID),
                result: Some(result),
                ..
            } => Ok(result),
            _ => Err(SourceError::NotRpc),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn answer(text: &str) -> Result<Option<Option<u64>>, String> {
        let answer: Result<Answer<Quantity>, _> = serde_json::from_str(text);
        let answer = answer.map_err(|error| error.to_string())?;
        let number = |result: Option<Quantity>| result.map(|quantity| quantity.0);
        Ok(answer.result.map(number))
    }

    #[test]
    fn quantities_are_hexadecimal_and_of_64_bits() {
        let with = |result: &str| answer(&format!("{{\"id\":1,\"result\":{result}}}"));
        assert_eq!(with("\"0x0\""), Ok(Some(Some(0))));
        assert_eq!(with("\"0xfF\""), Ok(Some(Some(255))));
        assert_eq!(with("\"0xffffffffffffffff\""), Ok(Some(Some(u64::MAX))));
        assert_eq!(with("null"), Ok(Some(None)));
        assert_eq!(answer("{\"id\":1}"), Ok(None));
        for wrong in [
            "\"0x\"",
            "\"12\"",
            "\"0x+1\"",
            "\"0x10000000000000000\"",
            "7",
            "[]",
            "\"\"",
        ] {
            assert!(with(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_path_of_an_endpoint_is_not_shown() {
        let rpc = Rpc::new(
            "https://rpc.example.org:8545/v3/key?k=secret",
            Duration::from_secs(1),
        );
        assert_eq!(rpc.unwrap().shown(), "https://rpc.example.org:8545");
    }
}
