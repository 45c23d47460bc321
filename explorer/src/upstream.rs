//! Asking validators. All that they answer is hostile until it verifies.
//!
//! These are the parts of the validator's answers (`docs/API.md`) that the explorer needs; fields
//! that it does not know are passed over, so that it also reads newer validators.

use commonware_codec::{Copying, DecodeExt};
use parking_lot::Mutex;
use quorate_http::client::{Roots, shown};
use quorate_types::{Digest, Height, Identity};
use serde::{Deserialize, de::DeserializeOwned};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// How long a validator may take to answer, its waiting apart.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How long a validator that did not answer is asked after all others.
const FAILURE_COUNTS: Duration = Duration::from_secs(30);

/// Largest answer that is read, in bytes: a range of blocks ends after about 4 MiB, and one more
/// block may have 4 MiB in hexadecimal.
const MAX_ANSWER_BYTES: usize = 24 << 20;

/// Most bytes of a validator's own words that are shown.
const MAX_MESSAGE_BYTES: usize = 300;

/// A validator's HTTP interface. Cheap to clone.
#[derive(Clone)]
pub struct Upstream {
    url: String,
    http: reqwest::Client,
    /// When it last gave no answer.
    failed: Arc<Mutex<Option<Instant>>>,
}

/// Why a validator gave no usable answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// It did not answer, or with an error of its own: ask again later, or another one.
    #[error("{0}")]
    Failed(String),
    /// It no longer keeps what was asked for.
    #[error("{0}")]
    Pruned(String),
    /// It has nothing of that name.
    #[error("{0}")]
    Unknown(String),
    /// Its answer is none, or does not verify: it is faulty.
    #[error("{0}")]
    Lied(String),
}

/// A final block, as the validator says.
#[derive(Clone, Debug, Deserialize)]
pub struct ChainBlock {
    /// The block's encoding.
    pub block: String,
    /// Its own finalization's encoding.
    pub certificate: Option<String>,
    /// What became of its transactions.
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

/// A certificate that the validator has come to hold.
#[derive(Clone, Debug, Deserialize)]
pub struct HeardCertificate {
    /// Its number.
    pub number: u64,
    /// Its encoding.
    pub certificate: String,
    /// Why a view was nullified.
    pub reason: Option<String>,
}

/// `GET /v1/certificates`.
#[derive(Clone, Debug, Deserialize)]
pub struct Certificates {
    /// Names the validator's process.
    pub session: u64,
    /// The newest number.
    pub newest: u64,
    /// Certificates in their order.
    pub certificates: Vec<HeardCertificate>,
}

/// Somebody whom the validator blocks.
#[derive(Clone, Debug, Deserialize)]
pub struct Blocked {
    /// The place in the committee.
    pub validator: u32,
    /// Why.
    pub reason: String,
}

/// `GET /v1/status`.
#[derive(Clone, Debug, Deserialize)]
pub struct ValidatorStatus {
    /// The lowest height that is kept.
    pub first_height: Height,
    /// The newest executed height.
    pub executed_height: Height,
    /// Whom it blocks.
    pub blocked: Vec<Blocked>,
    /// How its chain grows; earlier versions say nothing of it.
    pub sync: Option<Growth>,
}

/// How the chain grows at a validator.
#[derive(Clone, Debug, Deserialize)]
pub struct Growth {
    /// After so many milliseconds without a final block the validator calls the chain stalled: five
    /// times the longest pause that its settings allow.
    pub stalled_after_ms: u64,
}

/// A peer in `GET /v1/peers`.
#[derive(Clone, Debug, Deserialize)]
pub struct Peer {
    /// Its place in the committee.
    pub validator: Option<u32>,
    /// The newest epoch and view in which a vote of it was heard.
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

/// What proves an account, by encodings.
#[derive(Clone, Debug, Deserialize)]
pub struct Proof {
    /// The tree's proof.
    pub proof: String,
    /// A final header that names the state.
    pub header: String,
    /// That header's finalization.
    pub certificate: String,
}

#[derive(Deserialize)]
struct Account {
    proof: Option<Proof>,
}

/// What a validator made of a submitted transfer.
#[derive(Clone, Debug, Deserialize)]
pub struct Submitted {
    /// `pending`, `finalized` or `refused`.
    pub state: String,
    /// Why it is refused.
    pub error: Option<SubmitError>,
}

/// Why a validator refuses a transfer.
#[derive(Clone, Debug, Deserialize)]
pub struct SubmitError {
    /// A short name.
    pub code: String,
}

#[derive(Deserialize)]
struct SubmitAnswer {
    results: Vec<Submitted>,
}

/// What a validator says of a transaction.
#[derive(Clone, Debug, Deserialize)]
pub struct TransactionState {
    /// `pending`, `finalized`, `refused` or `dropped`.
    pub state: String,
    /// Of a final one, its block.
    pub height: Option<Height>,
    /// Of a pending one, the nonce that must come before it.
    pub waits_for_nonce: Option<u64>,
    /// Of such a one, when it is dropped.
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
    /// If this is no `http` or `https` URL, or the system gives no HTTP client.
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

    /// Its address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether it has lately not answered in time, or not at all.
    pub fn has_failed(&self) -> bool {
        let failed = *self.failed.lock();
        failed.is_some_and(|at| at.elapsed() < FAILURE_COUNTS)
    }

    /// Final blocks from a height on; the validator waits so long for the first.
    ///
    /// # Errors
    ///
    /// See [`UpstreamError`].
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

    /// Certificates after a number; without one, none, but the newest number.
    ///
    /// # Errors
    ///
    /// See [`UpstreamError`].
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

    /// What the validator says of itself.
    ///
    /// # Errors
    ///
    /// See [`UpstreamError`].
    pub async fn status(&self) -> Result<ValidatorStatus, UpstreamError> {
        self.get("/v1/status", Duration::ZERO).await
    }

    /// What it says of the others.
    ///
    /// # Errors
    ///
    /// See [`UpstreamError`].
    pub async fn peers(&self) -> Result<Vec<Peer>, UpstreamError> {
        let answer: Peers = self.get("/v1/peers", Duration::ZERO).await?;
        Ok(answer.peers)
    }

    /// The encodings of all evidence that it holds.
    ///
    /// # Errors
    ///
    /// See [`UpstreamError`].
    pub async fn evidence(&self) -> Result<Vec<String>, UpstreamError> {
        let answer: EvidenceList = self.get("/v1/evidence", Duration::ZERO).await?;
        Ok(answer.evidence.into_iter().map(|item| item.hex).collect())
    }

    /// A proof of an account. The validator answers with one of the next blocks.
    ///
    /// # Errors
    ///
    /// See [`UpstreamError`].
    pub async fn prove(&self, identity: &Identity) -> Result<Proof, UpstreamError> {
        let path = format!("/v1/accounts/{identity}?proof=true");
        let answer: Account = self.get(&path, TIMEOUT).await?;
        answer
            .proof
            .ok_or_else(|| UpstreamError::Lied("an account without the proof".to_owned()))
    }

    /// What it knows of a transaction; nothing if that is nothing.
    ///
    /// # Errors
    ///
    /// See [`UpstreamError`].
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

    /// Hands over signed transfers. The answers are the validator's own word.
    ///
    /// # Errors
    ///
    /// See [`UpstreamError`].
    pub async fn submit(&self, hex: &[String]) -> Result<Vec<Submitted>, UpstreamError> {
        let url = format!("{}/v1/transactions", self.url);
        let request = self.http.post(url).json(&serde_json::json!({"hex": hex}));
        let answer: SubmitAnswer = self.send(request, TIMEOUT).await?;
        if answer.results.len() != hex.len() {
            return Err(UpstreamError::Lied("not one result for each".to_owned()));
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
        // The whole answer must be there in time: a validator may also stall in the middle.
        let answer = tokio::time::timeout(timeout, fetch(request)).await;
        let answer =
            answer.unwrap_or_else(|_| Err(UpstreamError::Failed("no answer in time".to_owned())));
        *self.failed.lock() = answer.is_err().then(Instant::now);
        let (status, body) = answer?;
        if status.is_success() {
            return serde_json::from_slice(&body)
                .map_err(|error| UpstreamError::Lied(format!("not the agreed answer: {error}")));
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
            return Err(UpstreamError::Lied("the answer has no end".to_owned()));
        }
        body.extend_from_slice(&chunk);
    }
    Ok((response.status(), body))
}

/// Reads a value from hexadecimal text of at most so many bytes.
///
/// # Errors
///
/// [`UpstreamError::Lied`] if the text is something else.
pub fn from_hex<T: DecodeExt<()>>(
    what: &str,
    text: &str,
    max_bytes: usize,
) -> Result<T, UpstreamError> {
    if text.len() > 2 * max_bytes {
        return Err(UpstreamError::Lied(format!("{what} is too long")));
    }
    let bytes =
        hex::decode(text).map_err(|_| UpstreamError::Lied(format!("{what} is not hexadecimal")))?;
    T::decode(Copying(&bytes)).map_err(|error| UpstreamError::Lied(format!("{what}: {error}")))
}

/// The cause at the bottom, which is what an operator needs.
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
