//! The HTTP interface. `docs/API.md` describes it for its users.
//!
//! It never slows consensus: reads go to the database on a few blocking threads, signatures are
//! verified on a few others, the replica is not asked at all. Connections, requests under way, bodies,
//! waiting times and everything in a list are bounded; beyond a bound there is an error that says
//! so.

mod answers;
pub(crate) mod error;
mod heard;
pub mod live;
mod page;
mod server;
mod submit;

use crate::{executor::ExecutorHandle, mempool::Mempool, metrics::NodeMetrics};
use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, Path, Query, Request, State},
    http::header,
    middleware::Next,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use error::{RpcError, RpcResult};
use live::LiveStatus;
use quorate_load::api::{
    AccountJson, AccountProofJson, BlockJson, BlocksJson, CertificatesJson, ChainJson,
    EvidenceListJson, PeersJson, StatusJson, SubmitAnswer, SubmitRequest, TransactionResult,
    to_hex,
};
use quorate_p2p::PeerStatus;
use quorate_storage::store::Store;
use quorate_types::{ChainId, Digest, Height, Identity};
use serde::Deserialize;
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::sync::Semaphore;

pub use server::serve;

/// Largest body of a request.
const MAX_BODY_BYTES: usize = 1 << 20;

/// Requests that may read the database at a time.
const MAX_READING: usize = 4;

/// Requests whose transactions may be verified at a time. They have threads apart from those of
/// reads, or who submits too much would keep others from reading.
const MAX_VERIFYING: usize = 2;

/// Transactions that may wait to be verified: about what those threads verify in a tenth of a
/// second. More would only wait longer for the same answer, so they are refused at once.
const MAX_SUBMITTED: usize = 2 * submit::MAX_TRANSACTIONS;

/// Requests that may wait for something to become final.
const MAX_WAITERS: usize = 256;

/// Longest waiting time that a request may ask for.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Most blocks in one answer.
const MAX_BLOCKS: u64 = 100;

/// Most certificates in one answer.
const MAX_CERTIFICATES: usize = 256;

/// A node whose newest block is older than this is not ready.
const MAX_AGE: Duration = Duration::from_secs(10);

/// Everything that the interface reads from.
#[derive(Clone)]
pub struct RpcState {
    inner: Arc<Inner>,
}

struct Inner {
    parts: RpcParts,
    reading: Semaphore,
    verifying: Semaphore,
    submitting: Semaphore,
    waiters: Semaphore,
}

/// The handles behind [`RpcState`].
pub struct RpcParts {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Connections at a time.
    pub max_connections: usize,
    /// How long a request may take, waiting apart.
    pub request_timeout: Duration,
    /// The chain's name.
    pub name: String,
    /// The chain.
    pub chain: ChainId,
    /// The vote scheme's name.
    pub scheme: String,
    /// The database.
    pub store: Store,
    /// Where transactions go.
    pub mempool: Arc<Mempool>,
    /// The executor.
    pub executor: ExecutorHandle,
    /// The replica's progress.
    pub live: Arc<LiveStatus>,
    /// Where each peer is, by the configuration.
    pub addresses: Vec<(Identity, SocketAddr)>,
    /// The links' state.
    pub peers: Box<dyn Fn() -> Vec<PeerStatus> + Send + Sync>,
    /// Where submitted transactions are counted.
    pub node_metrics: Arc<NodeMetrics>,
    /// The text of `/metrics`.
    pub metrics: Box<dyn Fn() -> String + Send + Sync>,
}

impl RpcState {
    /// The interface's state over these handles.
    pub fn new(parts: RpcParts) -> Self {
        Self {
            inner: Arc::new(Inner {
                parts,
                reading: Semaphore::new(MAX_READING),
                verifying: Semaphore::new(MAX_VERIFYING),
                submitting: Semaphore::new(MAX_SUBMITTED),
                waiters: Semaphore::new(MAX_WAITERS),
            }),
        }
    }

    fn parts(&self) -> &RpcParts {
        &self.inner.parts
    }

    /// Reads the database on a blocking thread, a few at a time.
    async fn reading<T: Send + 'static>(
        &self,
        work: impl FnOnce(&RpcParts) -> RpcResult<T> + Send + 'static,
    ) -> RpcResult<T> {
        self.blocking(&self.inner.reading, work).await
    }

    /// Verifies so many transactions on a blocking thread, a few requests at a time.
    async fn submitting<T: Send + 'static>(
        &self,
        transactions: usize,
        work: impl FnOnce(&RpcParts) -> RpcResult<T> + Send + 'static,
    ) -> RpcResult<T> {
        let room = u32::try_from(transactions).unwrap_or(u32::MAX);
        let _room = self.inner.submitting.try_acquire_many(room).map_err(|_| {
            self.parts().node_metrics.submitted("busy", transactions);
            RpcError::busy("too many transactions wait to be verified; try again later")
        })?;
        self.blocking(&self.inner.verifying, work).await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        room: &Semaphore,
        work: impl FnOnce(&RpcParts) -> RpcResult<T> + Send + 'static,
    ) -> RpcResult<T> {
        let permit = room.acquire().await;
        let state = self.clone();
        let result = tokio::task::spawn_blocking(move || work(state.parts())).await;
        drop(permit);
        result.map_err(|error| RpcError::internal(&error))?
    }
}

/// All routes.
pub fn router(state: RpcState) -> Router {
    Router::new()
        .route("/v1/transactions", post(submit))
        .route("/v1/transactions/{id}", get(transaction))
        .route("/v1/status", get(status))
        .route("/v1/peers", get(peers))
        .route("/v1/evidence", get(evidence))
        .route("/v1/accounts/{identity}", get(account))
        .route("/v1/blocks", get(blocks))
        .route("/v1/blocks/{which}", get(block))
        .route("/v1/chain", get(chain))
        .route("/v1/certificates", get(certificates))
        .route(
            "/v1/health",
            get(|| async { Json(serde_json::json!({"alive": true})) }),
        )
        .route("/v1/ready", get(ready))
        .route("/v1/metrics", get(metrics))
        .route("/metrics", get(metrics))
        .route("/", get(page::page))
        .route("/live", get(page::page))
        .fallback(|| async { RpcError::not_found("unknown_path", "there is nothing at this path") })
        .method_not_allowed_fallback(|| async { RpcError::method_not_allowed() })
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(axum::middleware::from_fn(refuse_long_bodies))
        .layer(tower_http::cors::CorsLayer::new().allow_origin(tower_http::cors::Any))
        .with_state(state)
}

/// Refuses a body by its announced length, before any of it has come.
async fn refuse_long_bodies(request: Request, next: Next) -> Response {
    let announced = request.headers().get(header::CONTENT_LENGTH);
    let length = announced
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.parse::<u64>().ok());
    if length.is_some_and(|length| length > MAX_BODY_BYTES as u64) {
        return RpcError::body_too_large().into_response();
    }
    next.run(request).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SubmitQuery {
    wait: Option<String>,
    timeout_ms: Option<u64>,
}

async fn submit(
    State(state): State<RpcState>,
    query: Result<Query<SubmitQuery>, axum::extract::rejection::QueryRejection>,
    body: Result<Json<SubmitRequest>, axum::extract::rejection::JsonRejection>,
) -> RpcResult<Json<SubmitAnswer>> {
    let Query(query) = query?;
    let Json(request) = body?;
    let wait = match query.wait.as_deref() {
        None => false,
        Some("finalized") => true,
        Some(_) => return Err(RpcError::bad_request("`wait` must be `finalized`")),
    };
    let count = submit::count(&request)?;
    let mut results = state
        .submitting(count, move |parts| submit::submit(parts, &request))
        .await?;
    if wait {
        let timeout = Duration::from_millis(query.timeout_ms.unwrap_or(10_000)).min(MAX_WAIT);
        results = answers::await_final(&state, results, timeout).await?;
    }
    Ok(Json(SubmitAnswer { results }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WaitQuery {
    wait_ms: Option<u64>,
}

async fn transaction(
    State(state): State<RpcState>,
    Path(id): Path<String>,
    query: Result<Query<WaitQuery>, axum::extract::rejection::QueryRejection>,
) -> RpcResult<Json<TransactionResult>> {
    let Query(query) = query?;
    let id: Digest = id
        .parse()
        .map_err(|_| RpcError::bad_request("a transaction's id is 64 hexadecimal digits"))?;
    let mut result = state
        .reading(move |parts| answers::find_transaction(parts, &id))
        .await?;
    if let (Some(wait_ms), Some(found)) = (query.wait_ms, &result) {
        let timeout = Duration::from_millis(wait_ms).min(MAX_WAIT);
        let waited = answers::await_final(&state, vec![found.clone()], timeout).await?;
        result = waited.into_iter().next();
    }
    let result = result.ok_or_else(|| {
        RpcError::not_found(
            "unknown_transaction",
            "neither a final block nor this validator's mempool holds this transaction",
        )
    })?;
    Ok(Json(result))
}

async fn status(State(state): State<RpcState>) -> Json<StatusJson> {
    let parts = state.parts();
    let live = &parts.live;
    let executed = parts.executor.executed().borrow().clone();
    let committee = live.committee();
    let condition = live.condition();
    let peers = (parts.peers)().into_iter();
    let peers = peers.map(|status| answers::peer(live, &status));
    Json(StatusJson {
        name: parts.name.clone(),
        chain_id: parts.chain,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        validator: live.own(),
        validators: committee.size(),
        epoch: live.epoch().0,
        view: live.view(),
        finalized_height: live.finalized_height().max(executed.height),
        executed_height: executed.height,
        executed_id: executed.id,
        executed_timestamp_ms: executed.timestamp_ms,
        state_root: executed.state_root,
        mempool_transactions: parts.mempool.size().0,
        peers: peers.collect(),
        blocked: answers::blocked(live),
        uptime_seconds: live.started().elapsed().as_secs(),
        behind: condition.behind,
        first_height: condition.pruned_below,
        database_bytes: condition.database_bytes,
        journal_bytes: condition.journal_bytes,
        clock_ahead_ms: condition.clock_ahead_ms,
        scheme: parts.scheme.clone(),
        evidence: live.evidence().len(),
    })
}

async fn peers(State(state): State<RpcState>) -> Json<PeersJson> {
    Json(answers::peers(state.parts()))
}

async fn evidence(State(state): State<RpcState>) -> Json<EvidenceListJson> {
    Json(EvidenceListJson {
        evidence: state.parts().live.evidence(),
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AccountQuery {
    proof: Option<bool>,
}

async fn account(
    State(state): State<RpcState>,
    Path(identity): Path<String>,
    query: Result<Query<AccountQuery>, axum::extract::rejection::QueryRejection>,
) -> RpcResult<Json<AccountJson>> {
    let Query(query) = query?;
    let identity: Identity = identity
        .parse()
        .map_err(|_| RpcError::bad_request("an identity is 64 hexadecimal digits"))?;
    if query.proof != Some(true) {
        let account = state
            .reading(move |parts| Ok(parts.store.account(&identity)?.unwrap_or_default()))
            .await?;
        return Ok(Json(AccountJson {
            identity,
            nonce: account.nonce,
            balance: account.balance,
            proof: None,
        }));
    }
    let answer = state.parts().executor.prove(identity);
    let proven = tokio::time::timeout(MAX_WAIT, answer)
        .await
        .map_err(|_| {
            RpcError::unavailable(
                "no_finality",
                "no block became final that certifies a proof",
            )
        })?
        .map_err(|_| RpcError::unavailable("stopping", "the node is stopping"))?
        .map_err(|refused| RpcError::busy(&refused.to_string()))?;
    let account = answers::proven_account(&proven, &identity)?;
    Ok(Json(AccountJson {
        identity,
        nonce: account.nonce,
        balance: account.balance,
        proof: Some(AccountProofJson {
            executed_height: proven.executed_height,
            state_root: proven.state_root,
            proof: to_hex(&proven.proof),
            header: to_hex(&proven.header),
            certificate: to_hex(&proven.certificate),
        }),
    }))
}

async fn block(
    State(state): State<RpcState>,
    Path(which): Path<String>,
) -> RpcResult<Json<BlockJson>> {
    state
        .reading(move |parts| answers::block(parts, &which))
        .await
        .map(Json)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BlocksQuery {
    from: u64,
    limit: Option<u64>,
    wait_ms: Option<u64>,
}

impl BlocksQuery {
    /// The first block and how many at most, once the first is there or the wait is over.
    async fn range(self, state: &RpcState) -> RpcResult<(Height, u64)> {
        let from = Height(self.from.max(1));
        let limit = self.limit.unwrap_or(MAX_BLOCKS).clamp(1, MAX_BLOCKS);
        if let Some(wait_ms) = self.wait_ms {
            let timeout = Duration::from_millis(wait_ms).min(MAX_WAIT);
            answers::await_height(state, from, timeout).await?;
        }
        Ok((from, limit))
    }
}

async fn blocks(
    State(state): State<RpcState>,
    query: Result<Query<BlocksQuery>, axum::extract::rejection::QueryRejection>,
) -> RpcResult<Json<BlocksJson>> {
    let Query(query) = query?;
    let (from, limit) = query.range(&state).await?;
    let blocks = state
        .reading(move |parts| answers::summaries(parts, from, limit))
        .await?;
    Ok(Json(BlocksJson { blocks }))
}

async fn chain(
    State(state): State<RpcState>,
    query: Result<Query<BlocksQuery>, axum::extract::rejection::QueryRejection>,
) -> RpcResult<Json<ChainJson>> {
    let Query(query) = query?;
    let (from, limit) = query.range(&state).await?;
    state
        .reading(move |parts| answers::chain(parts, from, limit))
        .await
        .map(Json)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CertificatesQuery {
    after: Option<u64>,
    wait_ms: Option<u64>,
}

async fn certificates(
    State(state): State<RpcState>,
    query: Result<Query<CertificatesQuery>, axum::extract::rejection::QueryRejection>,
) -> RpcResult<Json<CertificatesJson>> {
    let Query(query) = query?;
    let heard = state.parts().live.heard();
    // Without a number, only what comes from now on is of interest.
    let after = query.after.unwrap_or(u64::MAX);
    if let Some(wait_ms) = query.wait_ms {
        let _room = state
            .inner
            .waiters
            .try_acquire()
            .map_err(|_| RpcError::busy("too many requests wait; try again later"))?;
        let timeout = Duration::from_millis(wait_ms).min(MAX_WAIT);
        let mut newest = heard.newest();
        let news = newest.wait_for(|newest| *newest > after);
        // That the time is up is an answer, too: an empty list.
        let _ = tokio::time::timeout(timeout, news).await;
    }
    Ok(Json(heard.after(after, MAX_CERTIFICATES)))
}

async fn ready(State(state): State<RpcState>) -> RpcResult<Json<serde_json::Value>> {
    let parts = state.parts();
    let committee = parts.live.committee();
    let connected = (parts.peers)().iter().filter(|p| p.connected).count();
    if connected + 1 < committee.quorum() {
        return Err(RpcError::unavailable(
            "not_connected",
            &format!(
                "connected to {connected} of {} validators; {} are needed",
                committee.size() - 1,
                committee.quorum() - 1
            ),
        ));
    }
    let newest = parts.executor.executed().borrow().clone();
    let age_ms = crate::clock::now_ms().saturating_sub(newest.timestamp_ms);
    if u128::from(age_ms) > MAX_AGE.as_millis() {
        return Err(RpcError::unavailable(
            "not_in_sync",
            &format!(
                "the newest executed block, {}, is {age_ms} ms old",
                newest.height
            ),
        ));
    }
    Ok(Json(
        serde_json::json!({"ready": true, "height": newest.height}),
    ))
}

async fn metrics(State(state): State<RpcState>) -> impl IntoResponse {
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    (kind, (state.parts().metrics)())
}
