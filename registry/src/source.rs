//! Where entries are read: a file, an HTTP server, or a contract ([`crate::evm`]).

use crate::reading::{Flaw, Format, MAX_SOURCE_BYTES, Reading, Terms};
use alloy_primitives::Address;
use quorate_crypto::{Digest, sha256};
use quorate_files::read_text;
use quorate_http::client::{Roots, shown};
use reqwest::{StatusCode, header};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::task::JoinHandle;

/// Most bytes of a server's ETag. A longer one is ignored, and the list is fetched whole each time.
const MAX_ETAG_BYTES: usize = 256;

/// Where the entries are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceConfig {
    /// A file: JSON if its name ends with `.json`, else TOML.
    File {
        path: PathBuf,
        /// How often it is read.
        interval: Duration,
    },
    /// HTTP servers that answer with JSON.
    Http {
        urls: Vec<String>,
        /// How many of them must say the same: more than half.
        agree: usize,
        /// How often they are asked.
        interval: Duration,
        /// How long one answer may take.
        timeout: Duration,
    },
    /// A staking contract on an EVM chain, read through endpoints of its JSON-RPC.
    Evm {
        urls: Vec<String>,
        contract: Address,
        chain_id: u64,
        /// How many endpoints must say the same: more than half.
        agree: usize,
        /// How often they are asked. Two rounds ask about one block, whose state nodes keep for some minutes only.
        interval: Duration,
        /// Half of it is for the newest final blocks, half for the lists; one and a half are what a round may take.
        timeout: Duration,
    },
}

impl SourceConfig {
    /// How often it is read.
    pub fn interval(&self) -> Duration {
        match self {
            Self::File { interval, .. }
            | Self::Http { interval, .. }
            | Self::Evm { interval, .. } => *interval,
        }
    }
}

/// Why a source cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    #[error("{0}")]
    Unreadable(String),
    #[error("it could not be read within {} ms", .0.as_millis())]
    Slow(Duration),
    #[error("it says more than the {MAX_SOURCE_BYTES} bytes that are read")]
    TooLarge,
    #[error("it answers with HTTP {0}, and a list comes with 200")]
    Status(u16),
    #[error("it says that nothing has changed, and it was not asked whether something has")]
    Unasked,
    #[error("it is no regular file")]
    NoFile,
    #[error("its answer is no text")]
    NotText,
    #[error("it serves chain {found}, and `chain_id` is {wanted}")]
    WrongChain { found: u64, wanted: u64 },
    #[error("its answer is no answer to a JSON-RPC request")]
    NotRpc,
    #[error("it refuses a request with JSON-RPC error {0}")]
    Refused(i64),
    #[error("it has no final block, or not the one that is read")]
    NoBlock,
    #[error("it goes back: block {block} is its newest final one, and was {before} before")]
    WentBack { block: u64, before: u64 },
    #[error("it is behind: block {block} is its newest final one, and others are at {others}")]
    Behind { block: u64, others: u64 },
    #[error("it has said something else about block {0} before")]
    Contradiction(u64),
    #[error(
        "what it says of `contract` is no list of a staking contract (deploy/staking): the address is another one, \
         or its block is older than the contract"
    )]
    NoContract,
    #[error("{0}")]
    Flaw(#[from] Flaw),
}

/// How long a file may take to be read and checked: 1,024 proofs of possession take 2 s on a slow machine.
const FILE_TIMEOUT: Duration = Duration::from_secs(10);

type Outcome = Result<Arc<Reading>, SourceError>;

/// What was made of the newest words of a source.
#[derive(Clone)]
struct Judged {
    text: Digest,
    outcome: Result<Arc<Reading>, Flaw>,
}

/// One source.
pub(crate) struct Source {
    pub(crate) name: String,
    place: Place,
    timeout: Duration,
    judged: Option<Judged>,
    /// The newest reading that was good, whose proofs need no second look.
    good: Option<Arc<Reading>>,
    /// A thread that is busy with an earlier reading.
    busy: Option<JoinHandle<Done>>,
}

type Done = (Result<Judged, SourceError>, Option<String>);

enum Place {
    File(PathBuf),
    Http {
        client: Box<reqwest::Client>,
        url: String,
        /// The ETag of the words that were judged.
        etag: Option<String>,
    },
}

impl Source {
    pub(crate) fn file(path: PathBuf) -> Self {
        Self::new(path.display().to_string(), Place::File(path), FILE_TIMEOUT)
    }

    /// # Errors
    ///
    /// If no HTTP client can be made.
    pub(crate) fn http(url: &str, timeout: Duration) -> Result<Self, SourceError> {
        let place = Place::Http {
            client: Box::new(client(timeout)?),
            url: url.to_owned(),
            etag: None,
        };
        Ok(Self::new(shown(url), place, timeout))
    }

    fn new(name: String, place: Place, timeout: Duration) -> Self {
        Self {
            name,
            place,
            timeout,
            judged: None,
            good: None,
            busy: None,
        }
    }

    /// Reads it once.
    pub(crate) async fn read(&mut self, terms: &Terms) -> Outcome {
        // A disk that hangs keeps one thread, not one for each interval.
        let mut busy = match self.busy.take() {
            Some(busy) => busy,
            None => match self.begin(terms).await? {
                Some(busy) => busy,
                None => return self.outcome(),
            },
        };
        let Ok(done) = tokio::time::timeout(self.timeout, &mut busy).await else {
            self.busy = Some(busy);
            return Err(SourceError::Slow(self.timeout));
        };
        let (judged, tag) = done.map_err(|error| unreadable(&error))?;
        let judged = judged?;
        if let Ok(reading) = &judged.outcome {
            self.good = Some(reading.clone());
        }
        self.judged = Some(judged);
        if let Place::Http { etag, .. } = &mut self.place {
            *etag = tag;
        }
        self.outcome()
    }

    fn outcome(&self) -> Outcome {
        match &self.judged {
            Some(judged) => Ok(judged.outcome.clone()?),
            None => Err(SourceError::Unasked),
        }
    }

    /// Gets the words and has them judged on another thread; `None` if they are those of before.
    async fn begin(&mut self, terms: &Terms) -> Result<Option<JoinHandle<Done>>, SourceError> {
        let (terms, known, judged) = (terms.clone(), self.good.clone(), self.judged.clone());
        match &self.place {
            Place::File(path) => {
                let path = path.clone();
                let is_json = path.extension().is_some_and(|end| end == "json");
                let format = if is_json { Format::Json } else { Format::Toml };
                Ok(Some(tokio::task::spawn_blocking(move || {
                    let judged = read_regular(&path)
                        .map(|text| judge(&text, format, &terms, known.as_deref(), judged));
                    (judged, None)
                })))
            }
            Place::Http { client, url, etag } => {
                let asked = etag.as_deref().filter(|_| judged.is_some());
                let Some((body, tag)) = fetch(client, url, asked).await? else {
                    return Ok(None);
                };
                Ok(Some(tokio::task::spawn_blocking(move || {
                    let judged = String::from_utf8(body)
                        .map(|text| judge(&text, Format::Json, &terms, known.as_deref(), judged))
                        .map_err(|_| SourceError::NotText);
                    (judged, tag)
                })))
            }
        }
    }
}

/// Reads a file, if it is one: opening a pipe that nobody writes to would take for ever.
fn read_regular(path: &Path) -> Result<String, SourceError> {
    let unreadable = |error: &dyn std::fmt::Display| SourceError::Unreadable(error.to_string());
    let kind = std::fs::metadata(path);
    let kind =
        kind.map_err(|error| unreadable(&format!("cannot read {}: {error}", path.display())))?;
    if !kind.is_file() {
        return Err(SourceError::NoFile);
    }
    read_text(path, MAX_SOURCE_BYTES).map_err(|error| unreadable(&error))
}

/// Parses and checks words, unless they are those of before.
fn judge(
    text: &str,
    format: Format,
    terms: &Terms,
    known: Option<&Reading>,
    before: Option<Judged>,
) -> Judged {
    let digest = sha256(&[text.as_bytes()]);
    if let Some(before) = before.filter(|before| before.text == digest) {
        return before;
    }
    Judged {
        text: digest,
        outcome: Reading::parse(text, format, terms, known).map(Arc::new),
    }
}

/// A server's answer and its ETag; `None` if it says that the one that was asked with still holds.
async fn fetch(
    client: &reqwest::Client,
    url: &str,
    etag: Option<&str>,
) -> Result<Option<(Vec<u8>, Option<String>)>, SourceError> {
    let mut request = client.get(url).header(header::ACCEPT, "application/json");
    if let Some(etag) = etag {
        request = request.header(header::IF_NONE_MATCH, etag);
    }
    let response = request.send().await.map_err(|error| unreadable(&error))?;
    match (response.status(), etag) {
        (StatusCode::OK, _) => {}
        (StatusCode::NOT_MODIFIED, Some(_)) => return Ok(None),
        (StatusCode::NOT_MODIFIED, None) => return Err(SourceError::Unasked),
        (other, _) => return Err(SourceError::Status(other.as_u16())),
    }
    let tag = response.headers().get(header::ETAG);
    let tag = tag.and_then(|tag| tag.to_str().ok()).map(str::to_owned);
    let tag = tag.filter(|tag| tag.len() <= MAX_ETAG_BYTES);
    Ok(Some((read_body(response).await?, tag)))
}

/// A client for one source.
pub(crate) fn client(timeout: Duration) -> Result<reqwest::Client, SourceError> {
    // No connection is kept: the runtime that it belongs to may be gone by the next reading.
    let client = Roots::default().client().pool_max_idle_per_host(0);
    let client = client.timeout(timeout).connect_timeout(timeout).build();
    client.map_err(|error| unreadable(&error))
}

/// The body of an answer, if it is not larger than it may be.
pub(crate) async fn read_body(mut response: reqwest::Response) -> Result<Vec<u8>, SourceError> {
    let unread = |error: reqwest::Error| unreadable(&error.without_url());
    let mut body: Vec<u8> = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(unread)? {
        if (body.len() + chunk.len()) as u64 > MAX_SOURCE_BYTES {
            return Err(SourceError::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// An error with its causes, since the first one alone often says nothing.
pub(crate) fn unreadable(error: &dyn std::error::Error) -> SourceError {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words = format!("{words}: {error}");
        cause = error.source();
    }
    SourceError::Unreadable(shown(&words))
}
