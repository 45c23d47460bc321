//! A client of the explorer's interface. It believes nothing: what it gets can be verified with
//! [`crate::verify::Guard`] or `quorate block --verify`.

use crate::shapes::{
    AccountDetail, BlockDetail, BlockPage, Problem, SearchHit, Stats, Status, TransactionDetail,
    TransactionPage, TransactionProof, ValidatorSet,
};
use quorate_http::client::{Roots, shown};
use quorate_types::{Digest, Identity};
use serde::de::DeserializeOwned;
use std::time::Duration;

/// Longer than an explorer takes for any answer.
const TIMEOUT: Duration = Duration::from_secs(45);

/// Largest answer that is read, in bytes.
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// Most characters of an explorer's own words that are shown.
const MAX_WORDS: usize = 1_000;

/// Why a request brought no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody answered, or not as agreed.
    #[error("{url}: {reason}")]
    Transport {
        /// What was asked for.
        url: String,
        /// What went wrong.
        reason: String,
    },
    /// The explorer answered with an error.
    #[error("{url}: {} ({}, HTTP {})", .problem.detail, .problem.code, .problem.status)]
    Refused {
        /// What was asked for.
        url: String,
        /// The error.
        problem: Box<Problem>,
    },
}

/// A client of one explorer. Cheap to clone.
#[derive(Clone)]
pub struct ExplorerClient {
    base: String,
    http: reqwest::Client,
}

impl ExplorerClient {
    /// A client of the explorer at a URL such as `http://127.0.0.1:26608`.
    ///
    /// # Errors
    ///
    /// If the system gives no HTTP client.
    pub fn new(base: &str) -> Result<Self, ClientError> {
        Self::with_roots(base, &Roots::default())
    }

    /// The same, for one who believes these certificates over `https`.
    ///
    /// # Errors
    ///
    /// If the system gives no HTTP client.
    pub fn with_roots(base: &str, roots: &Roots) -> Result<Self, ClientError> {
        let http = roots
            .client()
            .timeout(TIMEOUT)
            .connect_timeout(Duration::from_secs(3))
            .build()
            .map_err(|error| transport(base, &error))?;
        Ok(Self {
            base: base.trim_end_matches('/').to_owned(),
            http,
        })
    }

    /// How the explorer is doing.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub async fn status(&self) -> Result<Status, ClientError> {
        self.get("/v1/status").await
    }

    /// The newest blocks, at most 100.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub async fn newest_blocks(&self, limit: usize) -> Result<BlockPage, ClientError> {
        self.get(&format!("/v1/blocks?limit={limit}")).await
    }

    /// A block by its height, its id, or `latest`.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub async fn block(&self, which: &str) -> Result<BlockDetail, ClientError> {
        self.get(&format!("/v1/blocks/{which}")).await
    }

    /// The transactions of a block after a place, at most 100.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub async fn transactions(
        &self,
        which: &str,
        after: Option<u32>,
    ) -> Result<TransactionPage, ClientError> {
        let after = after.map_or(String::new(), |after| format!("?after={after}"));
        self.get(&format!("/v1/blocks/{which}/transactions{after}"))
            .await
    }

    /// A transaction.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub async fn transaction(&self, id: &Digest) -> Result<TransactionDetail, ClientError> {
        self.get(&format!("/v1/transactions/{id}")).await
    }

    /// A proof that a final block holds a transaction.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub async fn transaction_proof(&self, id: &Digest) -> Result<TransactionProof, ClientError> {
        self.get(&format!("/v1/transactions/{id}/proof")).await
    }

    /// An account with its proof.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub async fn account(&self, identity: &Identity) -> Result<AccountDetail, ClientError> {
        self.get(&format!("/v1/accounts/{identity}")).await
    }

    /// The validators of the newest epoch.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub async fn validators(&self) -> Result<ValidatorSet, ClientError> {
        self.get("/v1/validators").await
    }

    /// Figures of a window: `1m`, `10m` or `1h`.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub async fn stats(&self, window: &str) -> Result<Stats, ClientError> {
        self.get(&format!("/v1/stats?window={window}")).await
    }

    /// What a number or a hash may stand for.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub async fn search(&self, text: &str) -> Result<Vec<SearchHit>, ClientError> {
        // Anything but digits and letters finds nothing anyway, and would need escaping.
        let text: String = text.chars().filter(char::is_ascii_alphanumeric).collect();
        self.get(&format!("/v1/search?q={text}")).await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let url = format!("{}{path}", self.base);
        let sent = self.http.get(&url).send().await;
        let mut response = sent.map_err(|error| transport(&url, &error))?;
        let mut body = Vec::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| transport(&url, &error))?
        {
            if body.len() + chunk.len() > MAX_ANSWER_BYTES {
                let reason = "the answer is too long".to_owned();
                return Err(ClientError::Transport { url, reason });
            }
            body.extend_from_slice(&chunk);
        }
        if response.status().is_success() {
            return serde_json::from_slice(&body).map_err(|error| ClientError::Transport {
                reason: shown(&format!("not the answer that was expected: {error}")),
                url,
            });
        }
        match serde_json::from_slice::<Problem>(&body) {
            Ok(mut problem) => {
                for words in [&mut problem.detail, &mut problem.code] {
                    *words = shown(&words.chars().take(MAX_WORDS).collect::<String>());
                }
                let problem = Box::new(problem);
                Err(ClientError::Refused { url, problem })
            }
            Err(_) => Err(ClientError::Transport {
                reason: format!("HTTP {}, and no reason", response.status().as_u16()),
                url,
            }),
        }
    }
}

/// With the cause at the bottom, which is what a user needs.
fn transport(url: &str, error: &reqwest::Error) -> ClientError {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    let reason = if error.is_timeout() {
        "no answer in time".to_owned()
    } else if error.is_connect() {
        format!("cannot connect: {cause}")
    } else {
        cause.to_string()
    };
    ClientError::Transport {
        url: url.to_owned(),
        reason,
    }
}
