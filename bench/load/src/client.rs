//! A client of the HTTP interface.

use crate::api::{
    AccountJson, BlockJson, BlocksJson, ErrorBody, EvidenceListJson, OrderAnswer, OrderJson,
    PeersJson, ReloadedJson, StatusJson, SubmitAnswer, SubmitRequest, TransactionResult,
};
use quorate_http::client::{Roots, shown};
use quorate_types::{Digest, Height, Identity};
use serde::de::DeserializeOwned;
use std::{path::Path, time::Duration};

/// Longer than the longest wait that a request may ask for.
pub const TIMEOUT: Duration = Duration::from_secs(45);

/// Largest answer that is read, in bytes.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// Most characters of a server's own words that are shown.
const MAX_WORDS: usize = 1_000;

/// Why a request brought no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody is there; nothing has arrived.
    #[error("{url}: {reason}")]
    Unreachable {
        /// What was asked for.
        url: String,
        /// What went wrong.
        reason: String,
    },
    /// No answer, or not as agreed. What was asked for may have been done.
    #[error("{url}: {reason}")]
    Transport {
        /// What was asked for.
        url: String,
        /// What went wrong.
        reason: String,
    },
    /// The node answered with an error.
    #[error("{url}: {message} ({code}, HTTP {status})")]
    Refused {
        /// What was asked for.
        url: String,
        /// The HTTP status.
        status: u16,
        /// The error's code.
        code: String,
        /// The error's sentence.
        message: String,
    },
}

/// A client of one validator. Cheap to clone.
#[derive(Clone)]
pub struct RpcClient {
    base: String,
    http: reqwest::Client,
}

impl RpcClient {
    /// A client of the validator at a URL such as `http://127.0.0.1:26601`.
    ///
    /// # Errors
    ///
    /// If the system gives no HTTP client.
    pub fn new(base: &str) -> Result<Self, ClientError> {
        Self::with_timeout(base, TIMEOUT)
    }

    /// The same, for one who waits less long for answers.
    ///
    /// # Errors
    ///
    /// If the system gives no HTTP client.
    pub fn with_timeout(base: &str, timeout: Duration) -> Result<Self, ClientError> {
        Self::with_roots(base, timeout, &Roots::default())
    }

    /// The same, for one who believes these certificates over `https`.
    ///
    /// # Errors
    ///
    /// If the system gives no HTTP client.
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
            http,
        })
    }

    /// A client over a validator's control socket, which takes orders beside.
    ///
    /// # Errors
    ///
    /// If the system gives no HTTP client.
    pub fn over_socket(path: &Path) -> Result<Self, ClientError> {
        let base = "http://validator".to_owned();
        let http = reqwest::Client::builder()
            .timeout(TIMEOUT)
            .unix_socket(path)
            .build()
            .map_err(|error| transport(&base, &error))?;
        Ok(Self { base, http })
    }

    /// The other validators, and what is thought of each.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub async fn peers(&self) -> Result<PeersJson, ClientError> {
        self.get("/v1/peers").await
    }

    /// All evidence that the validator holds.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub async fn evidence(&self) -> Result<EvidenceListJson, ClientError> {
        self.get("/v1/evidence").await
    }

    /// Orders a validator to block another one (`block`), or to believe it again (`unblock`). Only
    /// over its control socket.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub async fn order(&self, what: &str, order: &OrderJson) -> Result<OrderAnswer, ClientError> {
        let url = format!("{}/v1/peers/{what}", self.base);
        let response = self.http.post(&url).json(order).send().await;
        Self::read(&url, response).await
    }

    /// Has the validator stop. Over its control socket only.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub async fn stop(&self) -> Result<serde_json::Value, ClientError> {
        self.command("stop").await
    }

    /// Has the validator read its configuration again. Over its control socket only.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub async fn reload(&self) -> Result<ReloadedJson, ClientError> {
        self.command("reload").await
    }

    async fn command<T: DeserializeOwned>(&self, what: &str) -> Result<T, ClientError> {
        let url = format!("{}/v1/{what}", self.base);
        let response = self.http.post(&url).send().await;
        Self::read(&url, response).await
    }

    /// The URL that it was made with.
    pub fn url(&self) -> &str {
        &self.base
    }

    /// How the validator is doing.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub async fn status(&self) -> Result<StatusJson, ClientError> {
        self.get("/v1/status").await
    }

    /// Whether the validator's process answers.
    ///
    /// # Errors
    ///
    /// If it does not.
    pub async fn alive(&self) -> Result<serde_json::Value, ClientError> {
        self.get("/v1/health").await
    }

    /// Whether the validator is in sync.
    ///
    /// # Errors
    ///
    /// If it is not, or cannot be reached.
    pub async fn ready(&self) -> Result<serde_json::Value, ClientError> {
        self.get("/v1/ready").await
    }

    /// An account, with a proof if asked for.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub async fn account(
        &self,
        identity: &Identity,
        proof: bool,
    ) -> Result<AccountJson, ClientError> {
        let query = if proof { "?proof=true" } else { "" };
        self.get(&format!("/v1/accounts/{identity}{query}")).await
    }

    /// A block by its height, its id, or `latest`.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub async fn block(&self, which: &str) -> Result<BlockJson, ClientError> {
        self.get(&format!("/v1/blocks/{which}")).await
    }

    /// Final blocks from a height on; waits up to `wait` for the first.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
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

    /// A transaction; waits up to `wait` until it is final.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub async fn transaction(
        &self,
        id: &Digest,
        wait: Duration,
    ) -> Result<TransactionResult, ClientError> {
        let wait_ms = wait.as_millis();
        self.get(&format!("/v1/transactions/{id}?wait_ms={wait_ms}"))
            .await
    }

    /// Submits transactions.
    ///
    /// # Errors
    ///
    /// See [`ClientError`]; a refused transaction is told in the answer.
    pub async fn submit(&self, request: &SubmitRequest) -> Result<SubmitAnswer, ClientError> {
        let url = format!("{}/v1/transactions", self.base);
        let response = self.http.post(&url).json(request).send().await;
        Self::read(&url, response).await
    }

    /// The text of the validator's metrics.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub async fn metrics(&self) -> Result<String, ClientError> {
        let url = format!("{}/metrics", self.base);
        let response = self.http.get(&url).send().await;
        let response = response.map_err(|error| transport(&url, &error))?;
        response
            .text()
            .await
            .map_err(|error| transport(&url, &error))
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let url = format!("{}{path}", self.base);
        let response = self.http.get(&url).send().await;
        Self::read(&url, response).await
    }

    async fn read<T: DeserializeOwned>(
        url: &str,
        response: Result<reqwest::Response, reqwest::Error>,
    ) -> Result<T, ClientError> {
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
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(|error| ClientError::Transport {
                url: url.to_owned(),
                reason: format!("not the answer of a validator ({error})"),
            });
        }
        let (code, message) = match serde_json::from_slice::<ErrorBody>(&body) {
            Ok(body) => (words(&body.error.code), words(&body.error.message)),
            Err(_) => ("unknown".to_owned(), "no reason given".to_owned()),
        };
        Err(ClientError::Refused {
            url: url.to_owned(),
            status: status.as_u16(),
            code,
            message,
        })
    }
}

/// What a server says, as it can be shown.
fn words(text: &str) -> String {
    let text: String = text.chars().take(MAX_WORDS).collect();
    shown(&text)
}

/// With all causes: what went wrong at the bottom (refused, timed out) is what a user needs.
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
