//! A client of the HTTP API.

use crate::{
    AccountJson, BlockJson, BlocksJson, ErrorBody, EvidenceListJson, HandoversJson, OrderAnswer,
    OrderJson, PayloadsAnswer, PeersJson, RegistryJson, ReloadedJson, SnapshotPartJson,
    SnapshotProofJson, SnapshotsJson, StatusJson, SubmitAnswer, SubmitRequest, TransactionResult,
};
use quorate_http::client::{Roots, shown};
use quorate_types::{Digest, Epoch, Height, Identity};
use serde::de::DeserializeOwned;
use std::{path::Path, time::Duration};

/// The request timeout. Longer than the longest wait that a request can ask for.
pub const TIMEOUT: Duration = Duration::from_secs(45);

/// Largest response that is read, in bytes.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// How often something is asked for while a node's parts are put together anew, and how long it waits in between.
const MAX_ATTEMPTS: u32 = 4;
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// Text from a server is truncated to this many characters.
const MAX_WORDS: usize = 1_000;

const OCTETS: &str = "application/octet-stream";

/// Why a request failed. Every method of [`RpcClient`] that sends a request can return it.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server cannot be reached; nothing was received.
    #[error("{url}: {reason}")]
    Unreachable { url: String, reason: String },
    /// There was no response, or an invalid one. The request may have been executed.
    #[error("{url}: {reason}")]
    Transport { url: String, reason: String },
    /// The server responded with an error.
    #[error("{url}: {message} ({code}, HTTP {status})")]
    Refused {
        url: String,
        status: u16,
        /// The error code.
        code: String,
        /// The error message.
        message: String,
    },
}

/// A client of one validator. Cheap to clone.
#[derive(Clone)]
pub struct RpcClient {
    base: String,
    /// The control socket's path, which errors name instead of a URL.
    socket: Option<String>,
    http: reqwest::Client,
}

impl RpcClient {
    /// Creates a client of the validator at a URL such as `http://127.0.0.1:26601`.
    ///
    /// # Errors
    ///
    /// As for all constructors: if no HTTP client can be created.
    pub fn new(base: &str) -> Result<Self, ClientError> {
        Self::with_timeout(base, TIMEOUT)
    }

    /// Like [`Self::new`], with another timeout.
    pub fn with_timeout(base: &str, timeout: Duration) -> Result<Self, ClientError> {
        Self::with_roots(base, timeout, &Roots::default())
    }

    /// Like [`Self::with_timeout`], with additional trusted certificates for `https`.
    pub fn with_roots(base: &str, timeout: Duration, roots: &Roots) -> Result<Self, ClientError> {
        if !(base.starts_with("http://") || base.starts_with("https://")) {
            return Err(ClientError::Transport {
                url: words(base),
                reason:
                    "an address begins with http:// or https://, as http://127.0.0.1:26601 does"
                        .to_owned(),
            });
        }
        let http = roots
            .client()
            .timeout(timeout)
            .connect_timeout(Duration::from_secs(3))
            .build()
            .map_err(|error| transport(base, &error))?;
        Ok(Self {
            base: base.trim_end_matches('/').to_owned(),
            socket: None,
            http,
        })
    }

    /// Creates a client of a validator's control socket, which also accepts operator commands.
    pub fn over_socket(path: &Path) -> Result<Self, ClientError> {
        // Servers want the name of a host. Nobody looks it up.
        let base = "http://validator".to_owned();
        let socket = path.display().to_string();
        let http = reqwest::Client::builder()
            .timeout(TIMEOUT)
            .unix_socket(path)
            .build()
            .map_err(|error| transport(&socket, &error))?;
        Ok(Self {
            base,
            socket: Some(socket),
            http,
        })
    }

    /// Returns the peers, with their penalties.
    pub async fn peers(&self) -> Result<PeersJson, ClientError> {
        self.get("/v1/peers").await
    }

    /// Returns all evidence that the validator holds.
    pub async fn evidence(&self) -> Result<EvidenceListJson, ClientError> {
        self.get("/v1/evidence").await
    }

    /// The staking registry.
    ///
    /// # Errors
    ///
    /// If the validator cannot be reached, or the chain has none.
    pub async fn registry(&self) -> Result<RegistryJson, ClientError> {
        self.get("/v1/registry").await
    }

    /// The changes of the validators after an epoch, as many as fit in an answer.
    ///
    /// # Errors
    ///
    /// If the node cannot be reached.
    pub async fn handovers(&self, after: Epoch) -> Result<HandoversJson, ClientError> {
        self.get(&format!("/v1/handovers?after={after}")).await
    }

    /// All changes of the validators after an epoch, encoded, the oldest first.
    ///
    /// # Errors
    ///
    /// If the node cannot be reached.
    pub async fn all_handovers(&self, mut after: Epoch) -> Result<Vec<String>, ClientError> {
        let mut all = Vec::new();
        loop {
            let page = self.handovers(after).await?.handovers;
            let Some(last) = page.last().filter(|last| last.epoch > after) else {
                return Ok(all);
            };
            after = last.epoch;
            all.extend(page.into_iter().map(|one| one.handover));
        }
    }

    /// Orders a validator to block another one (`block`), or to unblock it (`unblock`). Only over
    /// the control socket.
    pub async fn order(&self, what: &str, order: &OrderJson) -> Result<OrderAnswer, ClientError> {
        let url = format!("{}/v1/peers/{what}", self.base);
        let response = self.http.post(&url).json(order).send().await;
        self.read(&url, response).await
    }

    /// Stops the validator. Only over the control socket.
    pub async fn stop(&self) -> Result<serde_json::Value, ClientError> {
        self.command("stop").await
    }

    /// Makes the validator reread its configuration. Only over the control socket.
    pub async fn reload(&self) -> Result<ReloadedJson, ClientError> {
        self.command("reload").await
    }

    /// Returns the snapshots that the validator keeps. Only over the control socket.
    pub async fn snapshots(&self) -> Result<SnapshotsJson, ClientError> {
        self.get("/v1/snapshots").await
    }

    /// Returns what certifies a snapshot. Only over the control socket.
    pub async fn snapshot(&self, height: Height) -> Result<SnapshotProofJson, ClientError> {
        self.get(&format!("/v1/snapshots/{height}")).await
    }

    /// Returns a part of a snapshot; `span` is encoded, in hexadecimal. Only over the control socket.
    pub async fn snapshot_part(
        &self,
        height: Height,
        span: &str,
    ) -> Result<SnapshotPartJson, ClientError> {
        self.get(&format!("/v1/snapshots/{height}/part?span={span}"))
            .await
    }

    async fn command<T: DeserializeOwned>(&self, what: &str) -> Result<T, ClientError> {
        let url = format!("{}/v1/{what}", self.base);
        let response = self.http.post(&url).send().await;
        self.read(&url, response).await
    }

    /// Returns the URL that the client was created with, or the control socket's path.
    pub fn url(&self) -> &str {
        self.named(&self.base)
    }

    /// Returns the validator's status.
    pub async fn status(&self) -> Result<StatusJson, ClientError> {
        self.get("/v1/status").await
    }

    /// Checks that the validator's process responds.
    ///
    /// # Errors
    ///
    /// If it does not.
    pub async fn alive(&self) -> Result<serde_json::Value, ClientError> {
        self.get("/v1/health").await
    }

    /// Checks that the validator is in sync.
    ///
    /// # Errors
    ///
    /// If it is not, or cannot be reached.
    pub async fn ready(&self) -> Result<serde_json::Value, ClientError> {
        self.get("/v1/ready").await
    }

    /// Returns an account, with a proof if requested.
    pub async fn account(
        &self,
        identity: &Identity,
        proof: bool,
    ) -> Result<AccountJson, ClientError> {
        let query = if proof { "?proof=true" } else { "" };
        self.get(&format!("/v1/accounts/{identity}{query}")).await
    }

    /// Returns a block by its height, its id, or `latest`.
    pub async fn block(&self, which: &str) -> Result<BlockJson, ClientError> {
        self.get(&format!("/v1/blocks/{which}")).await
    }

    /// Returns final blocks from a height on; waits up to `wait` for the first.
    pub async fn blocks(
        &self,
        from: Height,
        limit: u64,
        wait: Duration,
    ) -> Result<BlocksJson, ClientError> {
        let wait_ms = wait.as_millis();
        self.get(&format!(
            "/v1/blocks?from={from}&limit={limit}&wait_ms={wait_ms}"
        ))
        .await
    }

    /// Returns a transaction; waits up to `wait` until it is final.
    pub async fn transaction(
        &self,
        id: &Digest,
        wait: Duration,
    ) -> Result<TransactionResult, ClientError> {
        let wait_ms = wait.as_millis();
        self.get(&format!("/v1/transactions/{id}?wait_ms={wait_ms}"))
            .await
    }

    /// Submits transactions. A refused transaction is not an error: its result says so.
    pub async fn submit(&self, request: &SubmitRequest) -> Result<SubmitAnswer, ClientError> {
        let url = format!("{}/v1/transactions", self.base);
        let post = || self.http.post(&url).json(request).send();
        let response = post().await;
        if !response.as_ref().is_err_and(was_closed) {
            return self.read(&url, response).await;
        }
        let mut answer: SubmitAnswer = self.read(&url, post().await).await?;
        // Whether it was there before the first attempt is not known; it is the same transaction.
        for result in &mut answer.results {
            result.repeated = false;
        }
        Ok(answer)
    }

    /// Submits payloads, each with its length in four bytes ahead of it, on a chain that only orders; with `wait`, the
    /// answer comes once they are final.
    pub async fn submit_payloads(
        &self,
        payloads: bytes::Bytes,
        wait: bool,
    ) -> Result<PayloadsAnswer, ClientError> {
        let query = if wait {
            "?wait=finalized&timeout_ms=30000"
        } else {
            ""
        };
        let url = format!("{}/v1/payloads{query}", self.base);
        let post = self.http.post(&url).header("content-type", OCTETS);
        let response = post.body(payloads).send().await;
        self.read(&url, response).await
    }

    /// Returns the payloads of a bundle, each with its length in four bytes ahead of it.
    pub async fn bundle(&self, bundle: &Digest) -> Result<Vec<u8>, ClientError> {
        self.octets(&format!("/v1/bundles/{bundle}")).await
    }

    /// Returns the payload at a place in a bundle.
    pub async fn payload(&self, bundle: &Digest, place: u32) -> Result<Vec<u8>, ClientError> {
        self.octets(&format!("/v1/bundles/{bundle}/{place}")).await
    }

    async fn octets(&self, path: &str) -> Result<Vec<u8>, ClientError> {
        let url = format!("{}{path}", self.base);
        let response = self.http.get(&url).send().await;
        let (status, body) = self.answer(&url, response).await?;
        match status.is_success() {
            true => Ok(body),
            false => Err(refused(self.named(&url), status, &body)),
        }
    }

    /// Returns the validator's metrics as text.
    pub async fn metrics(&self) -> Result<String, ClientError> {
        let url = format!("{}/metrics", self.base);
        let response = self.http.get(&url).send().await;
        let named = self.named(&url);
        let response = response.map_err(|error| transport(named, &error))?;
        response
            .text()
            .await
            .map_err(|error| transport(named, &error))
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let url = format!("{}{path}", self.base);
        let mut asked = 0;
        loop {
            let mut response = self.http.get(&url).send().await;
            if response.as_ref().is_err_and(was_closed) {
                response = self.http.get(&url).send().await;
            }
            asked += 1;
            match self.read(&url, response).await {
                Err(ClientError::Refused { code, .. })
                    if code == "stopping" && asked < MAX_ATTEMPTS =>
                {
                    tokio::time::sleep(ASK_AGAIN).await;
                }
                answer => return answer,
            }
        }
    }

    /// What errors name as the place that was asked.
    fn named<'a>(&'a self, url: &'a str) -> &'a str {
        self.socket.as_deref().unwrap_or(url)
    }

    async fn read<T: DeserializeOwned>(
        &self,
        url: &str,
        response: Result<reqwest::Response, reqwest::Error>,
    ) -> Result<T, ClientError> {
        let (status, body) = self.answer(url, response).await?;
        let url = self.named(url);
        match status.is_success() {
            true => serde_json::from_slice(&body).map_err(|error| ClientError::Transport {
                url: url.to_owned(),
                reason: format!("not the answer of a validator ({error})"),
            }),
            false => Err(refused(url, status, &body)),
        }
    }

    async fn answer(
        &self,
        url: &str,
        response: Result<reqwest::Response, reqwest::Error>,
    ) -> Result<(reqwest::StatusCode, Vec<u8>), ClientError> {
        let url = self.named(url);
        let mut response = response.map_err(|error| transport(url, &error))?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| transport(url, &error))?
        {
            if body.len() + chunk.len() > MAX_ANSWER_BYTES {
                return Err(transport(url, &"the answer is too long"));
            }
            body.extend_from_slice(&chunk);
        }
        Ok((status, body))
    }
}

fn refused(url: &str, status: reqwest::StatusCode, body: &[u8]) -> ClientError {
    let (code, message) = match serde_json::from_slice::<ErrorBody>(body) {
        Ok(body) => (words(&body.error.code), words(&body.error.message)),
        Err(_) => (
            "unknown".to_owned(),
            "a validator does not answer like this; is the address right?".to_owned(),
        ),
    };
    ClientError::Refused {
        url: url.to_owned(),
        status: status.as_u16(),
        code,
        message,
    }
}

/// Returns a server's text, truncated and safe to display.
fn words(text: &str) -> String {
    let text: String = text.chars().take(MAX_WORDS).collect();
    shown(&text)
}

/// Whether the server has closed the connection instead of answering, as one does that is taken over by
/// another part of its process just then. Such a request can be sent once more.
fn was_closed(error: &reqwest::Error) -> bool {
    error.is_request() && !error.is_connect() && !error.is_timeout()
}

/// Includes all causes: the innermost one (connection refused, timed out) is what the user needs.
fn transport(url: &str, error: &(impl std::fmt::Display + ?Sized + CauseOf)) -> ClientError {
    let (url, reason) = (url.to_owned(), words(&error.with_causes()));
    match error.nobody_is_there() {
        true => ClientError::Unreachable { url, reason },
        false => ClientError::Transport { url, reason },
    }
}

trait CauseOf {
    fn with_causes(&self) -> String;

    fn nobody_is_there(&self) -> bool {
        false
    }
}

impl CauseOf for reqwest::Error {
    fn nobody_is_there(&self) -> bool {
        self.is_connect()
    }

    fn with_causes(&self) -> String {
        let mut cause: &dyn std::error::Error = self;
        while let Some(next) = cause.source() {
            cause = next;
        }
        if self.is_timeout() {
            "no answer in time".to_owned()
        } else if self.is_connect() {
            format!("cannot connect: {cause}")
        } else {
            cause.to_string()
        }
    }
}

impl CauseOf for serde_json::Error {
    fn with_causes(&self) -> String {
        format!("not the answer that was expected: {self}")
    }
}

impl CauseOf for &str {
    fn with_causes(&self) -> String {
        (*self).to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read as _, Write as _},
        net::TcpListener,
        sync::{
            Arc,
            atomic::{AtomicU32, Ordering},
        },
    };

    /// A server that says so often that its parts end, and then answers.
    fn server(endings: u32) -> (RpcClient, Arc<AtomicU32>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let asked = Arc::new(AtomicU32::new(0));
        let counted = asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let mut head = [0; 4_096];
                let _ = stream.read(&mut head);
                let (status, body) = match counted.fetch_add(1, Ordering::SeqCst) < endings {
                    true => (
                        503,
                        r#"{"error":{"code":"stopping","message":"ask again"}}"#,
                    ),
                    false => (200, r#"{"ready":true}"#),
                };
                let length = body.len();
                let _ = write!(
                    stream,
                    "HTTP/1.1 {status} x\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
                );
            }
        });
        (RpcClient::new(&url).expect("a client"), asked)
    }

    #[tokio::test]
    async fn a_node_whose_parts_are_put_together_anew_is_asked_again_some_times() {
        let (client, asked) = server(2);
        client.ready().await.expect("the third answer");
        assert_eq!(asked.load(Ordering::SeqCst), 3);
        let (client, asked) = server(u32::MAX);
        let refused = client.ready().await.expect_err("it stops");
        assert!(refused.to_string().contains("stopping"), "{refused}");
        assert_eq!(asked.load(Ordering::SeqCst), MAX_ATTEMPTS);
    }
}
