//! How processes of a ceremony get each other's messages: each serves what it has seen, and polls all others.
//!
//! | path | answer |
//! |---|---|
//! | `/v1/ceremony` | the plan's digest, and which messages are here ([`Heads`]), as JSON |
//! | `/v1/ceremony/messages/P/S` | participant P's message of step S, both numbers from 0 up, as bytes |
//! | `/v1/ceremony/fault` | the fault, as bytes |
//!
//! The heads are not signed: whoever forges them can have a process ask in vain, and no more. What a process asks for is
//! bounded before it arrives, and what it says of an answer is in its own words.

use super::{
    board::{Board, Fault, Received},
    message::{Message, Step, max_message_bytes},
    plan::MAX_PARTICIPANTS,
};
use anyhow::Context as _;
use axum::{
    Router,
    extract::{Path, State},
    http::{StatusCode, header},
    middleware::from_fn,
    response::{IntoResponse, Response},
    routing::get,
};
use parking_lot::{Mutex, MutexGuard};
use quorate_crypto::Digest;
use quorate_http::{
    Clients, Front, Limits, Refusal, Share, Times, client::Roots, front, hold_answers,
};
use quorate_p2p::PeerAddress;
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};
use tokio::{net::TcpListener, sync::Notify};

/// How long one answer may take, from connecting to its last byte.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);

/// Pause between two polls of a peer, for each participant of the ceremony: all together ask a process 100 times a
/// second at most.
const PAUSE_EACH: Duration = Duration::from_millis(10);

/// Shortest and longest pause.
const PAUSE: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(3)];

/// Time limit of a request that is served; nothing takes long.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// What one address may have, which can be that of several participants.
const LIMITS: Limits = Limits {
    connections: Share {
        all: 1_024,
        each: 128,
    },
    requests: Share {
        all: 1_024,
        each: 128,
    },
    waiting: NOTHING,
    streams: NOTHING,
    bytes: Share {
        all: 64 << 20,
        each: 16 << 20,
    },
    work: NOTHING,
    reading: NOTHING,
    verifying: NOTHING,
    times: Times {
        head: Duration::from_secs(10),
        body: Duration::from_secs(5),
        stall: Duration::from_secs(10),
        life: Duration::from_secs(600),
        last_answer: Some(Duration::from_secs(10)),
        pace: Duration::from_millis(1),
    },
    trusted_proxies: Vec::new(),
};

const NOTHING: Share = Share { all: 0, each: 0 };

/// What the tasks of a process share.
pub struct Shared {
    own: u32,
    digest: Digest,
    board: Mutex<Board>,
    /// Own messages that others have and this process does not.
    elsewhere: Mutex<[Option<Message>; Step::ALL.len()]>,
    /// By participant; the own one is not used.
    peers: Mutex<Vec<Peer>>,
    /// Something may be possible now that was not.
    changed: Notify,
}

/// What the last poll of a participant's process has brought.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peer {
    /// `None` before the first poll has ended.
    pub last: Option<Result<(), PollError>>,
    /// Whether it shows a fault.
    pub has_failed: bool,
    /// Whether it knows that all are done.
    pub is_over: bool,
}

/// Why a poll has brought less than it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PollError {
    #[error("no connection")]
    NoConnection,
    #[error("no answer in time")]
    Slow,
    #[error("its answer broke off")]
    Broken,
    #[error("it answers with HTTP {0}")]
    Status(u16),
    #[error("its answer is too large")]
    TooLarge,
    #[error("its answer is none of a ceremony's process")]
    Answer,
    #[error("IT HAS ANOTHER PLAN, whose digest is {theirs}; the digest of ours is {ours}")]
    OtherPlan { theirs: Digest, ours: Digest },
    #[error("the process at its address is participant {0}'s")]
    OtherParticipant(u32),
    #[error("it shows a message that is not signed by its participant")]
    Message,
    #[error("it has given up, and what it shows does not prove to us that anybody is faulty")]
    Fault,
}

/// Which messages a process has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Heads {
    pub plan: Digest,
    /// Whose process it is.
    pub participant: u32,
    /// By participant and step: the message's id.
    pub heads: Vec<[Option<Digest>; Step::ALL.len()]>,
    /// Whether there is a fault.
    pub fault: bool,
}

impl Heads {
    /// The most bytes of the answer.
    fn max_bytes(participants: usize) -> usize {
        // A digest has 64 digits, two quotation marks and a comma; some room for spaces.
        512 + participants * (16 + Step::ALL.len() * 72)
    }
}

impl Shared {
    pub fn new(board: Board, own: u32) -> Self {
        let peers = board.plan().participants.iter().map(|_| Peer::default());
        Self {
            own,
            digest: *board.digest(),
            peers: Mutex::new(peers.collect()),
            board: Mutex::new(board),
            elsewhere: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// This participant's number.
    pub fn own(&self) -> u32 {
        self.own
    }

    /// The plan's digest.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The board, for a moment: never across a wait.
    pub fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock()
    }

    /// A message of this participant that somebody else has and this process does not.
    pub fn elsewhere(&self, step: Step) -> Option<Message> {
        self.elsewhere.lock()[step as usize].clone()
    }

    pub fn peer(&self, participant: u32) -> Peer {
        let peers = self.peers.lock();
        peers.get(participant as usize).copied().unwrap_or_default()
    }

    /// Whether this holds for each of the others.
    pub fn do_all(&self, holds: impl Fn(&Peer) -> bool) -> bool {
        let peers = self.peers.lock();
        let mut others = (0..).zip(&*peers).filter(|(place, _)| *place != self.own);
        others.all(|(_, peer)| holds(peer))
    }

    /// Waits until there is something new.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    fn heads(&self) -> Heads {
        let board = self.board();
        let size = board.plan().size();
        let heads = (0..size).map(|place| Step::ALL.map(|step| board.id(place, step)));
        Heads {
            plan: self.digest,
            participant: self.own,
            heads: heads.collect(),
            fault: board.fault().is_some(),
        }
    }

    /// Takes a message that another process shows.
    ///
    /// # Errors
    ///
    /// If it is not its participant's.
    pub fn take(&self, message: Message) -> Result<(), PollError> {
        let mut board = self.board();
        if let Some(step) = message.step()
            && message.participant == self.own
            && board.message(self.own, step).is_none()
        {
            if !message.is_signed(board.plan(), &self.digest) {
                return Err(PollError::Message);
            }
            self.elsewhere.lock()[step as usize] = Some(message);
            return Ok(());
        }
        match board.receive(message) {
            Received::Unsigned => Err(PollError::Message),
            Received::New | Received::Fault => {
                self.changed.notify_one();
                Ok(())
            }
            Received::Known | Received::Early | Received::Late => Ok(()),
        }
    }
}

/// Serves what is on the board until `shutdown` resolves. `hosts` are names that this process is reached by.
pub async fn serve(
    shared: Arc<Shared>,
    listener: TcpListener,
    hosts: Vec<String>,
    shutdown: impl Future<Output = ()>,
) {
    let router = Router::new()
        .route("/v1/ceremony", get(show_heads))
        .route(
            "/v1/ceremony/messages/{participant}/{step}",
            get(show_message),
        )
        .route("/v1/ceremony/fault", get(show_fault))
        .with_state(shared)
        .layer(from_fn(hold_answers));
    let front_of_it = Front {
        hosts,
        cors_origins: Vec::new(),
        refuse,
    };
    let router = front(router, front_of_it, |_| REQUEST_TIMEOUT);
    quorate_http::serve(
        listener,
        Clients::new(LIMITS),
        router,
        refuse,
        &[],
        shutdown,
    )
    .await;
}

fn refuse(refusal: &Refusal) -> Response {
    let status = match refusal {
        Refusal::Slow => StatusCode::SERVICE_UNAVAILABLE,
        Refusal::NoHost => StatusCode::BAD_REQUEST,
        Refusal::UnknownHost => StatusCode::MISDIRECTED_REQUEST,
        _ => StatusCode::TOO_MANY_REQUESTS,
    };
    (status, format!("{refusal}\n")).into_response()
}

async fn show_heads(State(shared): State<Arc<Shared>>) -> Response {
    axum::Json(shared.heads()).into_response()
}

async fn show_message(
    State(shared): State<Arc<Shared>>,
    Path((participant, step)): Path<(u32, usize)>,
) -> Response {
    let board = shared.board();
    let message = Step::of(step).and_then(|step| board.message(participant, step));
    bytes_or_nothing(message.map(Message::encode))
}

async fn show_fault(State(shared): State<Arc<Shared>>) -> Response {
    let board = shared.board();
    bytes_or_nothing(board.fault().map(|(fault, _)| fault.encode()))
}

fn bytes_or_nothing(bytes: Option<Vec<u8>>) -> Response {
    match bytes {
        Some(bytes) => {
            let kind = [(header::CONTENT_TYPE, "application/octet-stream")];
            (kind, bytes).into_response()
        }
        None => (StatusCode::NOT_FOUND, "it is not here\n").into_response(),
    }
}

/// Asks a participant's process again and again. Ends when it is dropped.
pub async fn poll(
    shared: Arc<Shared>,
    participant: u32,
    address: PeerAddress,
) -> anyhow::Result<()> {
    let client = Roots::default().client();
    let client = client
        .timeout(ANSWER_TIMEOUT)
        .connect_timeout(CONNECT_TIMEOUT)
        .build();
    let participants = shared.board().plan().participants.len();
    let asking = Asking {
        client: client.context("cannot make an HTTP client")?,
        base: format!("http://{address}/v1/ceremony"),
        participants,
        shared,
        participant,
    };
    let [shortest, longest] = PAUSE;
    let size = u32::try_from(asking.participants.min(MAX_PARTICIPANTS)).unwrap_or(0);
    let pause = (PAUSE_EACH * size).clamp(shortest, longest);
    loop {
        let outcome = asking.ask().await;
        let is_first = {
            let mut peers = asking.shared.peers.lock();
            let peer = peers.get_mut(participant as usize);
            peer.is_some_and(|peer| peer.last.replace(outcome).is_none())
        };
        if is_first {
            asking.shared.changed.notify_one();
        }
        tokio::time::sleep(pause).await;
    }
}

/// One peer.
struct Asking {
    client: reqwest::Client,
    base: String,
    participants: usize,
    shared: Arc<Shared>,
    participant: u32,
}

impl Asking {
    /// Gets what this process lacks, and what differs from what it has.
    async fn ask(&self) -> Result<(), PollError> {
        let heads = self
            .get(&self.base, Heads::max_bytes(self.participants))
            .await?;
        let heads: Heads = serde_json::from_slice(&heads).map_err(|_| PollError::Answer)?;
        let ours = self.shared.digest;
        if heads.plan != ours {
            let theirs = heads.plan;
            return Err(PollError::OtherPlan { theirs, ours });
        }
        if heads.participant != self.participant {
            return Err(PollError::OtherParticipant(heads.participant));
        }
        if heads.heads.len() != self.participants {
            return Err(PollError::Answer);
        }
        self.mark(&heads);
        for step in Step::ALL {
            for (place, known) in (0..).zip(&heads.heads) {
                let Some(id) = known[step as usize] else {
                    continue;
                };
                let lacks = {
                    let board = self.shared.board();
                    board.has_begun(step) && board.id(place, step) != Some(id)
                };
                if lacks {
                    self.fetch(place, step).await?;
                }
            }
        }
        if heads.fault && self.shared.board().fault().is_none() {
            return self.fetch_fault().await;
        }
        Ok(())
    }

    fn mark(&self, heads: &Heads) {
        let mut peers = self.shared.peers.lock();
        if let Some(peer) = peers.get_mut(self.participant as usize) {
            peer.has_failed = heads.fault;
            let mut done = heads.heads.iter().map(|known| known[Step::Done as usize]);
            peer.is_over = done.all(|id| id.is_some());
        }
    }

    async fn fetch(&self, participant: u32, step: Step) -> Result<(), PollError> {
        let url = format!("{}/messages/{participant}/{}", self.base, step as usize);
        let limit = max_message_bytes(self.participants);
        let bytes = self.get(&url, limit).await?;
        let message = Message::decode(&bytes, self.participants).ok_or(PollError::Message)?;
        if message.participant != participant || message.step() != Some(step) {
            return Err(PollError::Message);
        }
        tokio::task::block_in_place(|| self.shared.take(message))
    }

    async fn fetch_fault(&self) -> Result<(), PollError> {
        let url = format!("{}/fault", self.base);
        let limit = Fault::max_bytes(self.participants);
        let bytes = self.get(&url, limit).await?;
        let fault = Fault::decode(&bytes, self.participants).ok_or(PollError::Fault)?;
        let holds = tokio::task::block_in_place(|| self.shared.board().receive_fault(fault));
        self.shared.changed.notify_one();
        holds.then_some(()).ok_or(PollError::Fault)
    }

    /// An answer's body, if it has `limit` bytes at most.
    async fn get(&self, url: &str, limit: usize) -> Result<Vec<u8>, PollError> {
        let response = self.client.get(url).send().await;
        let mut response = response.map_err(|error| judge(&error))?;
        if response.status() != reqwest::StatusCode::OK {
            return Err(PollError::Status(response.status().as_u16()));
        }
        if response
            .content_length()
            .is_some_and(|length| length > limit as u64)
        {
            return Err(PollError::TooLarge);
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| judge(&error))? {
            if body.len() + chunk.len() > limit {
                return Err(PollError::TooLarge);
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}

fn judge(error: &reqwest::Error) -> PollError {
    if error.is_timeout() {
        PollError::Slow
    } else if error.is_connect() {
        PollError::NoConnection
    } else {
        PollError::Broken
    }
}
