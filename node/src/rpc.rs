//! The HTTP API. `docs/API.md` describes it for its users.
//!
//! It never slows down consensus: database reads run on a few blocking threads, signatures are
//! verified on a few others (see [`verifying`] for scheduling), and the replica is never queried.
//! Connections, requests in flight, bodies, responses, waiting times and list lengths are bounded,
//! in total and per client ([`quorate_http`]); beyond a bound, a request gets an error that says
//! so.
//!
//! There are three audiences. The public listener serves what anybody may know. The admin listener
//! adds the metrics, the peers' addresses, the penalties, and the live page with charts. The
//! control socket ([`crate::control`]) adds commands, and has no limits.

mod answers;
pub(crate) mod error;
mod large;
mod limits;
pub(crate) mod opening;
mod page;
mod payloads;
mod registry;
mod server;
mod submit;
pub(crate) mod syncing;
pub(crate) mod verifying;

use crate::{config::RpcConfig, external::External};
use axum::{
    Json, Router,
    extract::{
        DefaultBodyLimit, Path, Query, Request, State,
        rejection::{PathRejection, QueryRejection},
    },
    http::header,
    middleware::Next,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use error::{RpcError, RpcResult};
use quorate_api::verdict::Health;
use quorate_api::{
    AccountJson, AccountProofJson, CertificatesJson, EvidenceListJson, HandoversJson, PeersJson,
    RegistryJson, StatusJson, SubmitAnswer, TransactionResult, TransactionState, to_hex,
};
use quorate_http::{
    Client, Clients, FREE_BYTES, Permit, Resource, announced_length, forget_body, held,
};
use quorate_machine::live::LiveStatus;
use quorate_machine::{
    accounts::{AccountAt, Accounts},
    clock::Clock,
    executor::ExecutorHandle,
    keeper::Keep,
    mempool::Mempool,
    metrics::NodeMetrics,
    payloads::Payloads,
    validate::MAX_EXECUTION_LAG,
};
use quorate_p2p::PeerStatus;
use quorate_storage::store::Store;
use quorate_types::{
    ChainId, Digest, Epoch, Height, Identity,
    genesis::{ApplicationKind, Fees, Genesis},
};
use serde::Deserialize;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use verifying::Verifying;

pub use limits::clients;
pub(crate) use server::serve_router;
pub use server::{listen, serve};

/// Size limit of a request body.
const MAX_BODY_BYTES: usize = 1 << 20;

/// The longest wait that a request can ask for.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Most blocks in one response.
const MAX_BLOCKS: u64 = 100;

/// Most certificates in one response.
const MAX_CERTIFICATES: usize = 256;

/// The state shared by all request handlers.
#[derive(Clone)]
pub struct RpcState {
    parts: Arc<RpcParts>,
}

/// Tells where a peer is.
pub type AddressOf = dyn Fn(&Identity) -> Option<String> + Send + Sync;

/// The handles behind [`RpcState`].
pub struct RpcParts {
    pub config: RpcConfig,
    pub clients: Clients,
    /// When the process started.
    pub started: Instant,
    pub genesis: Arc<Genesis>,
    /// The chain's name.
    pub name: String,
    pub chain: ChainId,
    /// The vote scheme's name.
    pub scheme: String,
    pub store: Store,
    /// The minimum fees of a transfer.
    pub fees: Fees,
    /// The machine's clock.
    pub clock: Arc<dyn Clock>,
    /// Account states after recent blocks.
    pub accounts: Accounts,
    /// Receives submitted transactions.
    pub mempool: Arc<Mempool>,
    /// Verifies the signatures of submitted transactions.
    pub(crate) verifying: Verifying,
    /// Stores accepted transactions on disk.
    pub keeper: crossbeam_channel::Sender<Keep>,
    pub executor: ExecutorHandle,
    /// On a chain that only orders.
    pub payloads: Option<Arc<Payloads>>,
    /// What the node reads of a registry outside the chain.
    pub(crate) external: External,
    /// The replica's progress.
    pub live: Arc<LiveStatus>,
    /// Where each peer is, by the configuration.
    pub address: Box<AddressOf>,
    /// The links' state.
    pub peers: Box<dyn Fn() -> Vec<PeerStatus> + Send + Sync>,
    /// Counts submitted transactions.
    pub node_metrics: Arc<NodeMetrics>,
    /// Renders the text of `/metrics`.
    pub metrics: Box<dyn Fn() -> String + Send + Sync>,
}

impl RpcState {
    pub fn new(parts: RpcParts) -> Self {
        Self {
            parts: Arc::new(parts),
        }
    }

    fn parts(&self) -> &RpcParts {
        &self.parts
    }

    /// Waits for the end of the parts of the node that execute blocks.
    async fn ended(&self) {
        let mut news = self.parts().executor.executed();
        while news.changed().await.is_ok() {}
    }

    /// Reads the database on a blocking thread, with a limited number of concurrent reads.
    async fn reading<T: Send + 'static>(
        &self,
        client: &Client,
        work: impl FnOnce(&RpcParts) -> RpcResult<T> + Send + 'static,
    ) -> RpcResult<T> {
        let turn = client.turn(Resource::Reading).await;
        self.blocking(turn, work).await
    }

    /// Runs work on a blocking thread. Holds the turn until the work is done, even if nobody waits
    /// for its result any more.
    async fn blocking<T: Send + 'static>(
        &self,
        turn: Permit,
        work: impl FnOnce(&RpcParts) -> RpcResult<T> + Send + 'static,
    ) -> RpcResult<T> {
        let state = self.clone();
        let result = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work(state.parts())
        });
        // Cancelled: its threads are gone, as the parts of the node are that it belongs to.
        result.await.map_err(|error| match error.is_cancelled() {
            true => RpcError::ending(),
            false => RpcError::internal(&error),
        })?
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    Public,
    Operator,
}

/// Returns all routes for an audience.
pub fn router(state: RpcState, audience: Audience) -> Router {
    let routes = Router::new()
        .route("/v1/transactions", post(submit))
        .route("/v1/transactions/{id}", get(transaction))
        .route("/v1/payloads", post(payloads::submit))
        .route("/v1/bundles/{digest}", get(payloads::bundle))
        .route("/v1/bundles/{digest}/{place}", get(payloads::payload))
        .route("/v1/status", get(status))
        .route("/v1/evidence", get(evidence))
        .route("/v1/registry", get(registry))
        .route("/v1/handovers", get(handovers))
        .route("/v1/accounts/{identity}", get(account))
        .route("/v1/blocks", get(blocks))
        .route("/v1/blocks/{which}", get(block))
        .route("/v1/chain", get(chain))
        .route("/v1/certificates", get(certificates))
        .route(
            "/v1/health",
            get(|| async { Json(serde_json::json!({"alive": true})) }),
        )
        .route("/v1/ready", get(ready));
    let routes = match audience {
        Audience::Public => routes
            .route("/v1/peers", get(public_peers))
            .route("/v1/metrics", get(elsewhere))
            .route("/metrics", get(elsewhere))
            .route("/live", get(elsewhere))
            .route("/", get(elsewhere)),
        Audience::Operator => routes
            .route("/v1/peers", get(peers))
            .route("/v1/metrics", get(metrics))
            .route("/metrics", get(metrics))
            .route("/live", get(page::page))
            .route("/", get(page::page)),
    };
    routes
        .fallback(|| async { RpcError::not_found("unknown_path", "there is nothing at this path") })
        .method_not_allowed_fallback(|| async { RpcError::method_not_allowed() })
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(axum::middleware::from_fn(refuse_long_bodies))
        .with_state(state)
}

/// The response to public requests for operator-only routes.
async fn elsewhere() -> RpcError {
    RpcError::not_found(
        "unknown_path",
        "this is served to the validator's operator only: at `admin.listen` of its configuration, \
         and over its control socket",
    )
}

/// Refuses a body that is too long according to its Content-Length, before reading any of it.
async fn refuse_long_bodies(request: Request, next: Next) -> Response {
    let length = announced_length(request.headers());
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
    client: Client,
    query: Result<Query<SubmitQuery>, QueryRejection>,
    request: Request,
) -> RpcResult<Response> {
    let Query(query) = query?;
    let wait = match query.wait.as_deref() {
        None => false,
        Some("finalized") => true,
        Some(_) => return Err(RpcError::bad_request("`wait` must be `finalized`")),
    };
    if state.parts().genesis.application == ApplicationKind::OrderOnly {
        return Err(RpcError::orders_only());
    }
    if let Err(refusal) = state.parts().verifying.admits(&client) {
        // Reading the body would cost more than everything else.
        forget_body(&client, request.into_body()).await;
        return Err(refusal.into());
    }
    let request = submit::read(&state, &client, request).await?;
    let count = submit::count(&request)?;
    // Reserve the resources before accepting any transaction: a client that is refused for lack of
    // resources must be sure that none was accepted.
    let waiting = wait.then(|| client.wait()).transpose()?;
    let answer_bytes = (count * submit::MAX_RESULT_BYTES).saturating_sub(FREE_BYTES);
    let room = client.take(Resource::Bytes, answer_bytes)?;
    let submitted = submit::submit(&state, &client, request, count).await?;
    let mut results = submitted.until_kept().await?;
    if let Some(place) = waiting {
        let timeout = Duration::from_millis(query.timeout_ms.unwrap_or(10_000)).min(MAX_WAIT);
        results = answers::await_final(&state, &client, results, timeout, &place).await;
    }
    answers::await_blocks_of(&state, &results).await;
    let answer = Json(SubmitAnswer { results }).into_response();
    Ok(held(answer, room))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WaitQuery {
    wait_ms: Option<u64>,
}

async fn transaction(
    State(state): State<RpcState>,
    client: Client,
    id: Result<Path<String>, PathRejection>,
    query: Result<Query<WaitQuery>, QueryRejection>,
) -> RpcResult<Json<TransactionResult>> {
    let (Path(id), Query(query)) = (id?, query?);
    let id: Digest = id
        .parse()
        .map_err(|_| RpcError::bad_request("a transaction's id is 64 hexadecimal digits"))?;
    let mut result = state
        .reading(&client, move |parts| answers::find_transaction(parts, &id))
        .await?;
    let is_final = |found: &TransactionResult| found.state != TransactionState::Pending;
    if let Some(wait_ms) = query.wait_ms
        && !result.as_ref().is_some_and(is_final)
    {
        let place = client.wait()?;
        let timeout = Duration::from_millis(wait_ms).min(MAX_WAIT);
        let deadline = tokio::time::Instant::now() + timeout;
        if result.is_none() {
            // The transaction may be on its way from another validator.
            result = answers::await_known(&state, &client, id, deadline, &place).await?;
        }
        if let Some(found) = result {
            let left = deadline.saturating_duration_since(tokio::time::Instant::now());
            let waited = answers::await_final(&state, &client, vec![found], left, &place).await;
            result = waited.into_iter().next();
        }
    }
    let Some(result) = result else {
        let what = "neither a final block nor this node's mempool holds this transaction";
        let unknown = |parts: &RpcParts| Err(answers::unknown(parts, "unknown_transaction", what));
        return state.reading(&client, unknown).await;
    };
    answers::await_blocks_of(&state, std::slice::from_ref(&result)).await;
    Ok(Json(result))
}

async fn status(State(state): State<RpcState>) -> Json<StatusJson> {
    let parts = state.parts();
    let live = &parts.live;
    let executed = parts.executor.executed().borrow().clone();
    let (epoch, view) = (live.epoch(), live.view());
    let committee = live.committees().known();
    let condition = live.condition();
    let links = (parts.peers)();
    let sync = live.sync(&links);
    let verdict = live.verdict(&links);
    let peers = links.iter().map(|status| answers::peer(live, status));
    Json(StatusJson {
        name: parts.name.clone(),
        chain_id: parts.chain,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        validator: live.own(),
        validators: committee.size(),
        epoch: epoch.0,
        view,
        finalized_height: live.finalized_height().max(executed.height),
        executed_height: executed.height,
        executed_id: executed.id,
        executed_timestamp_ms: executed.timestamp_ms,
        state_root: executed.state_root,
        fees: parts.fees,
        mempool_transactions: parts.mempool.size().0,
        peers: peers.collect(),
        blocked: answers::blocked(live),
        uptime_seconds: parts.started.elapsed().as_secs(),
        behind: condition.behind,
        sync: Some(sync),
        verdict: Some(verdict),
        // What the condition holds is up to a second old.
        first_height: (parts.store.pruned_below()).unwrap_or(condition.pruned_below),
        database_bytes: condition.database_bytes,
        journal_bytes: condition.journal_bytes,
        clock_ahead_ms: live.clock_ahead_ms(&links),
        scheme: parts.scheme.clone(),
        protocol: Some(committee.turns().protocol.name().to_owned()),
        application: Some(parts.genesis.application.name().to_owned()),
        turn: Some(answers::turn(live, epoch, view)),
        evidence: live.evidence().len(),
        payloads: parts.payloads.as_deref().map(payloads::status),
    })
}

async fn peers(State(state): State<RpcState>) -> Json<PeersJson> {
    Json(answers::peers(state.parts()))
}

async fn public_peers(State(state): State<RpcState>) -> Json<PeersJson> {
    let mut answer = answers::peers(state.parts());
    for peer in &mut answer.peers {
        // Not public: addresses help attackers, and penalties concern only the operator.
        peer.address = None;
        peer.offender = None;
    }
    Json(answer)
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
    client: Client,
    identity: Result<Path<String>, PathRejection>,
    query: Result<Query<AccountQuery>, QueryRejection>,
) -> RpcResult<Json<AccountJson>> {
    let (Path(identity), Query(query)) = (identity?, query?);
    let identity: Identity = identity
        .parse()
        .map_err(|_| RpcError::bad_request("an identity is 64 hexadecimal digits"))?;
    if query.proof != Some(true) {
        let (AccountAt { height, account }, free_nonce) = state
            .reading(&client, move |parts| newest_account(parts, &identity))
            .await?;
        return Ok(Json(AccountJson {
            identity,
            executed_height: Some(height),
            nonce: account.nonce,
            balance: account.balance,
            free_nonce: (free_nonce > account.nonce).then_some(free_nonce),
            bond: account.bond.map(|bond| *bond),
            proof: None,
        }));
    }
    let place = client.wait()?;
    let answer = state.parts().executor.prove(identity);
    let proven = tokio::time::timeout(MAX_WAIT, place.until_gone(answer))
        .await
        .map_err(|_| {
            RpcError::unavailable(
                "no_finality",
                "no block became final that certifies a proof",
            )
        })?
        .ok_or_else(|| RpcError::busy("others need the place to wait in; try again later"))?
        .map_err(|_| RpcError::ending())?
        .map_err(|refused| RpcError::busy(&refused.to_string()))?;
    let account = answers::proven_account(&proven, &identity)?;
    // The proof is about a certified state; transfers may have been executed since.
    let (_, free_nonce) = state
        .reading(&client, move |parts| newest_account(parts, &identity))
        .await?;
    Ok(Json(AccountJson {
        identity,
        executed_height: Some(proven.executed_height),
        nonce: account.nonce,
        balance: account.balance,
        free_nonce: (free_nonce > account.nonce).then_some(free_nonce),
        bond: account.bond.map(|bond| *bond),
        proof: Some(AccountProofJson {
            executed_height: proven.executed_height,
            state_root: proven.state_root,
            proof: to_hex(&proven.proof),
            header: to_hex(&proven.header),
            certificate: to_hex(&proven.certificate),
        }),
    }))
}

/// Returns the current account, and the first nonce that its next transfer can have.
fn newest_account(parts: &RpcParts, identity: &Identity) -> RpcResult<(AccountAt, u64)> {
    // The order matters: a transaction that leaves the mempool as executed is already in the
    // database.
    let waiting = parts.mempool.next_nonce(identity).unwrap_or(0);
    let newest = parts.accounts.read(identity)?;
    let free = waiting.max(newest.account.nonce);
    Ok((newest, free))
}

async fn block(
    State(state): State<RpcState>,
    client: Client,
    which: Result<Path<String>, PathRejection>,
) -> RpcResult<Response> {
    let Path(which) = which?;
    large::answer(&state, &client, move |parts| answers::block(parts, &which)).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BlocksQuery {
    from: u64,
    limit: Option<u64>,
    wait_ms: Option<u64>,
}

impl BlocksQuery {
    /// Returns the first height and the number of blocks to serve. Waits until the first block
    /// exists or the wait is over.
    async fn range(self, state: &RpcState, client: &Client) -> RpcResult<(Height, u64)> {
        let from = Height(self.from.max(1));
        let limit = self.limit.unwrap_or(MAX_BLOCKS).min(MAX_BLOCKS);
        if limit == 0 {
            return Err(RpcError::bad_request("`limit` must be at least 1"));
        }
        if let Some(wait_ms) = self.wait_ms {
            let place = client.wait()?;
            let timeout = Duration::from_millis(wait_ms).min(MAX_WAIT);
            let reached = answers::await_height(state, from, timeout);
            let _ = place.until_gone(reached).await;
        }
        Ok((from, limit))
    }
}

async fn registry(State(state): State<RpcState>, client: Client) -> RpcResult<Json<RegistryJson>> {
    let read = state.reading(&client, |parts| registry::registry(parts, &parts.genesis));
    read.await.map(Json)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HandoversQuery {
    after: u64,
}

async fn handovers(
    State(state): State<RpcState>,
    client: Client,
    query: Result<Query<HandoversQuery>, QueryRejection>,
) -> RpcResult<Json<HandoversJson>> {
    let Query(HandoversQuery { after }) = query?;
    let read = state.reading(&client, move |parts| {
        registry::handovers(parts, &parts.genesis, Epoch(after))
    });
    read.await.map(Json)
}

async fn blocks(
    State(state): State<RpcState>,
    client: Client,
    query: Result<Query<BlocksQuery>, QueryRejection>,
) -> RpcResult<Response> {
    let Query(query) = query?;
    let (from, limit) = query.range(&state, &client).await?;
    large::answer(&state, &client, move |parts| {
        answers::summaries(parts, from, limit)
    })
    .await
}

async fn chain(
    State(state): State<RpcState>,
    client: Client,
    query: Result<Query<BlocksQuery>, QueryRejection>,
) -> RpcResult<Response> {
    let Query(query) = query?;
    let (from, limit) = query.range(&state, &client).await?;
    large::answer(&state, &client, move |parts| {
        answers::chain(parts, from, limit)
    })
    .await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CertificatesQuery {
    after: Option<u64>,
    wait_ms: Option<u64>,
}

async fn certificates(
    State(state): State<RpcState>,
    client: Client,
    query: Result<Query<CertificatesQuery>, QueryRejection>,
) -> RpcResult<Json<CertificatesJson>> {
    let Query(query) = query?;
    let heard = state.parts().live.recent();
    // Without a number, return only certificates that arrive from now on.
    let after = query.after.unwrap_or(u64::MAX);
    if let Some(wait_ms) = query.wait_ms {
        let place = client.wait()?;
        let timeout = Duration::from_millis(wait_ms).min(MAX_WAIT);
        let mut newest = heard.newest();
        let news = async {
            tokio::select! {
                _ = newest.wait_for(|newest| *newest > after) => {}
                () = state.ended() => {}
            }
        };
        // After a timeout, the response is an empty list.
        let _ = tokio::time::timeout(timeout, place.until_gone(news)).await;
    }
    Ok(Json(heard.after(after, MAX_CERTIFICATES)))
}

async fn ready(State(state): State<RpcState>) -> RpcResult<Json<serde_json::Value>> {
    let parts = state.parts();
    let links = (parts.peers)();
    let verdict = parts.live.verdict(&links);
    let executed = parts.executor.executed().borrow().height;
    let refuse = |code, message: &str| Err(RpcError::unavailable(code, message));
    match verdict.state {
        // A validator that does not vote serves its clients just as well.
        Health::Healthy | Health::NotVoting | Health::KeySeenElsewhere | Health::Unknown => {}
        Health::Starting | Health::CatchingUp | Health::BlocksGone | Health::StateSync => {
            return refuse("not_in_sync", &verdict.summary);
        }
        Health::CutOff | Health::Refused => return refuse("not_connected", &verdict.summary),
        Health::Stuck | Health::Halted => return refuse("stalled", &verdict.summary),
    }
    let height = parts.live.finalized_height();
    let waiting = height.0.saturating_sub(executed.0);
    if waiting > MAX_EXECUTION_LAG {
        let message = format!("{waiting} final blocks are not executed yet");
        return refuse("not_in_sync", &message);
    }
    Ok(Json(serde_json::json!({"ready": true, "height": executed})))
}

async fn metrics(State(state): State<RpcState>) -> impl IntoResponse {
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    (kind, (state.parts().metrics)())
}
