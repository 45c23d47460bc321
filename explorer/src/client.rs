//! A client of the explorer's interface. It verifies nothing itself: verify answers with
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

/// Maximum size of an answer, in bytes.
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// Maximum number of characters of an explorer's error message that are shown.
const MAX_WORDS: usize = 1_000;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// There was no answer, or a malformed one.
    #[error("{url}: {reason}")]
    Transport {
        /// The requested URL.
        url: String,
        reason: String,
    },
    /// The explorer answered with an error.
    #[error("{url}: {} ({}, HTTP {})", .problem.detail, .problem.code, .problem.status)]
    Refused {
        /// The requested URL.
        url: String,
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
    /// If no HTTP client can be created.
    pub fn new(base: &str) -> Result<Self, ClientError> {
        Self::with_roots(base, &Roots::default())
    }

    /// Like [`Self::new`], with these trusted root certificates for `https`.
    ///
    /// # Errors
    ///
    /// If no HTTP client can be created.
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

    /// The explorer's status.
    pub async fn status(&self) -> Result<Status, ClientError> {
        self.get("/v1/status").await
    }

    /// The newest blocks, at most 100.
    pub async fn newest_blocks(&self, limit: usize) -> Result<BlockPage, ClientError> {
        self.get(&format!("/v1/blocks?limit={limit}")).await
    }

    /// A block by its height, its id, or `latest`.
    pub async fn block(&self, which: &str) -> Result<BlockDetail, ClientError> {
        self.get(&format!("/v1/blocks/{which}")).await
    }

    /// The transactions of a block after a given index, at most 100.
    pub async fn transactions(
        &self,
        which: &str,
        after: Option<u32>,
    ) -> Result<TransactionPage, ClientError> {
        let after = after.map_or(String::new(), |after| format!("?after={after}"));
        self.get(&format!("/v1/blocks/{which}/transactions{after}"))
            .await
    }

    /// A transaction by its id.
    pub async fn transaction(&self, id: &Digest) -> Result<TransactionDetail, ClientError> {
        self.get(&format!("/v1/transactions/{id}")).await
    }

    /// A proof that a final block holds a transaction.
    pub async fn transaction_proof(&self, id: &Digest) -> Result<TransactionProof, ClientError> {
        self.get(&format!("/v1/transactions/{id}/proof")).await
    }

    /// An account with its proof.
    pub async fn account(&self, identity: &Identity) -> Result<AccountDetail, ClientError> {
        self.get(&format!("/v1/accounts/{identity}")).await
    }

    /// The validators of the newest epoch.
    pub async fn validators(&self) -> Result<ValidatorSet, ClientError> {
        self.get("/v1/validators").await
    }

    /// Statistics of a window: `1m`, `10m` or `1h`.
    pub async fn stats(&self, window: &str) -> Result<Stats, ClientError> {
        self.get(&format!("/v1/stats?window={window}")).await
    }

    /// Everything that a number or a hash may refer to.
    pub async fn search(&self, text: &str) -> Result<Vec<SearchHit>, ClientError> {
        // Other characters than digits and letters never match, and would need escaping.
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

/// An error with its root cause, which is what a user needs.
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
