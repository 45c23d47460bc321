//! Client of the validators' HTTP interface. All answers are untrusted until verified.
//!
//! The types here contain only those parts of the validators' answers (`docs/API.md`) that the
//! explorer needs. Unknown fields are ignored, so that newer validators can be read too.
//!
//! The explorer shares no code with the servers of this interface. `/v1/chain` returns ranges that
//! end with a finalization, so one pairing check accepts up to 100 blocks by their hash links.

use commonware_codec::{Copying, DecodeExt};
use parking_lot::Mutex;
use quorate_http::client::{Roots, shown};
use quorate_types::{Digest, Epoch, Height, Identity};
use serde::{Deserialize, de::DeserializeOwned};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Timeout of a request, in addition to the time for which the validator is asked to wait.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How long a validator that did not answer is tried after all others.
const FAILURE_COUNTS: Duration = Duration::from_secs(30);

/// Maximum size of an answer, in bytes: a range of blocks ends after about 4 MiB, and one more
/// block may take 4 MiB in hexadecimal.
const MAX_ANSWER_BYTES: usize = 24 << 20;

/// Maximum number of bytes of a validator's error message that are shown.
const MAX_MESSAGE_BYTES: usize = 300;

/// A validator's HTTP interface. Cheap to clone.
#[derive(Clone)]
pub struct Upstream {
    url: String,
    http: reqwest::Client,
    /// When a request last failed.
    failed: Arc<Mutex<Option<Instant>>>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// It did not answer, or with an error of its own. Retry later or with another validator.
    #[error("{0}")]
    Failed(String),
    /// It no longer keeps the requested data.
    #[error("{0}")]
    Pruned(String),
    /// The validator has no such resource (404).
    #[error("{0}")]
    Unknown(String),
    /// Its answer is malformed or failed verification: the validator is faulty.
    #[error("{0}")]
    Invalid(String),
}

/// A final block, as reported by the validator.
#[derive(Clone, Debug, Deserialize)]
pub struct ChainBlock {
    /// The block's encoding.
    pub block: String,
    /// Its own finalization's encoding.
    pub certificate: Option<String>,
    /// The outcomes of its transactions.
    pub outcomes: Vec<String>,
}

/// `GET /v1/chain`.
#[derive(Clone, Debug, Deserialize)]
pub struct Chain {
    /// The newest height that the validator claims to have executed.
    pub executed_height: Height,
    /// Consecutive blocks.
    pub blocks: Vec<ChainBlock>,
}

/// A certificate that the validator has received or made.
#[derive(Clone, Debug, Deserialize)]
pub struct RecentCertificate {
    /// Its sequence number.
    pub number: u64,
    /// The encoded certificate.
    pub certificate: String,
    /// Why the view was nullified.
    pub reason: Option<String>,
}

/// `GET /v1/certificates`.
#[derive(Clone, Debug, Deserialize)]
pub struct Certificates {
    /// Identifies the validator's process.
    pub session: u64,
    /// The newest sequence number.
    pub newest: u64,
    pub certificates: Vec<RecentCertificate>,
}

/// A validator that this validator blocks.
#[derive(Clone, Debug, Deserialize)]
pub struct Blocked {
    /// Index in the committee.
    pub validator: u32,
    pub reason: String,
}

/// `GET /v1/handovers`.
#[derive(Clone, Debug, Deserialize)]
struct Handovers {
    handovers: Vec<HandoverItem>,
}

#[derive(Clone, Debug, Deserialize)]
struct HandoverItem {
    /// The encoded change of validators.
    handover: String,
}

/// `GET /v1/status`.
#[derive(Clone, Debug, Deserialize)]
pub struct ValidatorStatus {
    /// The lowest height that it keeps.
    pub first_height: Height,
    /// The newest executed height.
    pub executed_height: Height,
    /// The validators that it blocks.
    pub blocked: Vec<Blocked>,
    /// How its chain grows; not reported by earlier versions.
    pub sync: Option<Growth>,
    /// The chain's protocol; not reported by earlier versions.
    pub protocol: Option<String>,
}

/// How the chain grows at a validator.
#[derive(Clone, Debug, Deserialize)]
pub struct Growth {
    /// The validator considers the chain stalled after this many milliseconds without a final
    /// block: five times the longest pause that its settings allow.
    pub stalled_after_ms: u64,
}

/// A peer in `GET /v1/peers`.
#[derive(Clone, Debug, Deserialize)]
pub struct Peer {
    /// Index in the committee.
    pub validator: Option<u32>,
    /// The newest epoch and view in which a vote from it was received.
    pub last_vote: Option<(u64, u64)>,
}

#[derive(Deserialize)]
struct Peers {
    peers: Vec<Peer>,
}

#[derive(Deserialize)]
struct EvidenceHex {
    hex: String,
}

#[derive(Deserialize)]
struct EvidenceList {
    evidence: Vec<EvidenceHex>,
}

/// The encoded parts of an account proof.
#[derive(Clone, Debug, Deserialize)]
pub struct Proof {
    /// The proof in the state tree.
    pub proof: String,
    /// A final header that contains the state root.
    pub header: String,
    /// The finalization of that header.
    pub certificate: String,
}

#[derive(Deserialize)]
struct Account {
    proof: Option<Proof>,
}

/// A validator's response to a submitted transfer.
#[derive(Clone, Debug, Deserialize)]
pub struct Submitted {
    /// `pending`, `finalized` or `refused`.
    pub state: String,
    /// Why it was refused.
    pub error: Option<SubmitError>,
}

/// Why a validator refuses a transfer.
#[derive(Clone, Debug, Deserialize)]
pub struct SubmitError {
    /// A short error code.
    pub code: String,
}

#[derive(Deserialize)]
struct SubmitAnswer {
    results: Vec<Submitted>,
}

/// A validator's report on a transaction.
#[derive(Clone, Debug, Deserialize)]
pub struct TransactionState {
    /// `pending`, `finalized`, `refused` or `dropped`.
    pub state: String,
    /// If final: the height of its block.
    pub height: Option<Height>,
    /// If pending: the nonce that must come first.
    pub waits_for_nonce: Option<u64>,
    /// If pending behind an earlier nonce: when it is dropped.
    pub expires_in_ms: Option<u64>,
    /// Why it was dropped.
    pub error: Option<SubmitError>,
}

#[derive(Deserialize)]
struct ErrorBody {
    error: ErrorDetail,
}

#[derive(Deserialize)]
struct ErrorDetail {
    message: String,
}

impl Upstream {
    /// The validator at a URL such as `http://127.0.0.1:26601`.
    ///
    /// # Errors
    ///
    /// If the URL is not `http` or `https`, or no HTTP client can be created.
    pub fn new(url: &str, roots: &Roots) -> Result<Self, UpstreamError> {
        let url = url.trim_end_matches('/').to_owned();
        let parsed = reqwest::Url::parse(&url);
        if !parsed.is_ok_and(|parsed| ["http", "https"].contains(&parsed.scheme())) {
            return Err(UpstreamError::Failed(
                "not an address such as http://127.0.0.1:26601".to_owned(),
            ));
        }
        let http = roots
            .client()
            .connect_timeout(Duration::from_secs(2))
            .build()
            .map_err(|error| UpstreamError::Failed(innermost(&error)))?;
        Ok(Self {
            url,
            http,
            failed: Arc::default(),
        })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether a recent request failed or timed out.
    pub fn has_failed(&self) -> bool {
        let failed = *self.failed.lock();
        failed.is_some_and(|at| at.elapsed() < FAILURE_COUNTS)
    }

    /// Final blocks from a height on. The validator waits up to the given time for the first one.
    pub async fn chain(
        &self,
        from: Height,
        limit: u64,
        wait: Duration,
    ) -> Result<Chain, UpstreamError> {
        let wait_ms = wait.as_millis();
        let path = format!("/v1/chain?from={from}&limit={limit}&wait_ms={wait_ms}");
        self.get(&path, wait).await
    }

    /// Certificates after a sequence number. Without a number, returns none, only the newest
    /// number.
    pub async fn certificates(
        &self,
        after: Option<u64>,
        wait: Duration,
    ) -> Result<Certificates, UpstreamError> {
        let Some(after) = after else {
            return self.get("/v1/certificates", Duration::ZERO).await;
        };
        let wait_ms = wait.as_millis();
        let path = format!("/v1/certificates?after={after}&wait_ms={wait_ms}");
        self.get(&path, wait).await
    }

    /// The validator's status.
    pub async fn status(&self) -> Result<ValidatorStatus, UpstreamError> {
        self.get("/v1/status", Duration::ZERO).await
    }

    /// Its view of the other validators.
    pub async fn peers(&self) -> Result<Vec<Peer>, UpstreamError> {
        let answer: Peers = self.get("/v1/peers", Duration::ZERO).await?;
        Ok(answer.peers)
    }

    /// The encodings of all evidence that it holds.
    pub async fn evidence(&self) -> Result<Vec<String>, UpstreamError> {
        let answer: EvidenceList = self.get("/v1/evidence", Duration::ZERO).await?;
        Ok(answer.evidence.into_iter().map(|item| item.hex).collect())
    }

    /// The encodings of the changes of the validators after an epoch, as many as fit.
    pub async fn handovers(&self, after: Epoch) -> Result<Vec<String>, UpstreamError> {
        let path = format!("/v1/handovers?after={after}");
        let answer: Handovers = self.get(&path, Duration::ZERO).await?;
        Ok(answer
            .handovers
            .into_iter()
            .map(|item| item.handover)
            .collect())
    }

    /// A proof of an account. The validator answers when one of the next blocks is final.
    pub async fn prove(&self, identity: &Identity) -> Result<Proof, UpstreamError> {
        let path = format!("/v1/accounts/{identity}?proof=true");
        let answer: Account = self.get(&path, TIMEOUT).await?;
        answer
            .proof
            .ok_or_else(|| UpstreamError::Invalid("an account without the proof".to_owned()))
    }

    /// Its report on a transaction; `None` if it does not know it.
    pub async fn transaction(
        &self,
        id: &Digest,
    ) -> Result<Option<TransactionState>, UpstreamError> {
        let path = format!("/v1/transactions/{id}");
        match self.get(&path, Duration::ZERO).await {
            Ok(answer) => Ok(Some(answer)),
            Err(UpstreamError::Unknown(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Submits signed transfers. The results are the validator's unverified claims.
    pub async fn submit(&self, hex: &[String]) -> Result<Vec<Submitted>, UpstreamError> {
        let url = format!("{}/v1/transactions", self.url);
        let request = self.http.post(url).json(&serde_json::json!({"hex": hex}));
        let answer: SubmitAnswer = self.send(request, TIMEOUT).await?;
        if answer.results.len() != hex.len() {
            return Err(UpstreamError::Invalid("not one result for each".to_owned()));
        }
        Ok(answer.results)
    }

    async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        wait: Duration,
    ) -> Result<T, UpstreamError> {
        let request = self.http.get(format!("{}{path}", self.url));
        self.send(request, TIMEOUT + wait).await
    }

    async fn send<T: DeserializeOwned>(
        &self,
        request: reqwest::RequestBuilder,
        timeout: Duration,
    ) -> Result<T, UpstreamError> {
        // The timeout covers the whole answer, since a validator may also stall in the middle.
        let answer = tokio::time::timeout(timeout, fetch(request)).await;
        let answer =
            answer.unwrap_or_else(|_| Err(UpstreamError::Failed("no answer in time".to_owned())));
        *self.failed.lock() = answer.is_err().then(Instant::now);
        let (status, body) = answer?;
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(|error| {
                UpstreamError::Invalid(format!("not the agreed answer: {error}"))
            });
        }
        let message = match serde_json::from_slice::<ErrorBody>(&body) {
            Ok(body) => {
                let message = body.error.message.chars().take(MAX_MESSAGE_BYTES);
                shown(&message.collect::<String>())
            }
            Err(_) => format!("HTTP {}", status.as_u16()),
        };
        Err(match status.as_u16() {
            404 => UpstreamError::Unknown(message),
            410 => UpstreamError::Pruned(message),
            _ => UpstreamError::Failed(message),
        })
    }
}

async fn fetch(
    request: reqwest::RequestBuilder,
) -> Result<(reqwest::StatusCode, Vec<u8>), UpstreamError> {
    let failed = |error: reqwest::Error| UpstreamError::Failed(innermost(&error));
    let mut response = request.send().await.map_err(failed)?;
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if body.len() + chunk.len() > MAX_ANSWER_BYTES {
            return Err(UpstreamError::Invalid("the answer has no end".to_owned()));
        }
        body.extend_from_slice(&chunk);
    }
    Ok((response.status(), body))
}

/// Decodes a value from hexadecimal text of at most the given size in bytes.
///
/// # Errors
///
/// [`UpstreamError::Invalid`] if the text is malformed.
pub fn from_hex<T: DecodeExt<()>>(
    what: &str,
    text: &str,
    max_bytes: usize,
) -> Result<T, UpstreamError> {
    if text.len() > 2 * max_bytes {
        return Err(UpstreamError::Invalid(format!("{what} is too long")));
    }
    let bytes = hex::decode(text)
        .map_err(|_| UpstreamError::Invalid(format!("{what} is not hexadecimal")))?;
    T::decode(Copying(&bytes)).map_err(|error| UpstreamError::Invalid(format!("{what}: {error}")))
}

/// The root cause, which is what an operator needs.
fn innermost(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    if error.is_connect() {
        format!("cannot connect: {cause}")
    } else {
        cause.to_string()
    }
}
