//! The API while state sync is under way: the status, health and metrics. Everything else is
//! refused, since the database holds the state of no block.

use super::{Audience, answers, error::RpcError};
use axum::{Json, Router, extract::State, http::header, response::IntoResponse, routing::get};
use quorate_api::{
    StatusJson,
    verdict::{Health, VerdictJson, Voter, VoterJson, Voting, counted, grouped, spoken},
};
use quorate_machine::{
    live::LiveStatus,
    sync::{Lack, Progress, Stage},
};
use quorate_p2p::PeerStatus;
use quorate_storage::store::Store;
use quorate_types::{ChainId, genesis::Fees};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

/// The handles behind [`SyncRpc`].
pub(crate) struct Parts {
    /// When the process started.
    pub(crate) started: Instant,
    pub(crate) name: String,
    pub(crate) chain: ChainId,
    pub(crate) scheme: String,
    pub(crate) fees: Fees,
    pub(crate) live: Arc<LiveStatus>,
    pub(crate) store: Store,
    pub(crate) peers: Box<dyn Fn() -> Vec<PeerStatus> + Send + Sync>,
    pub(crate) progress: Arc<Mutex<Progress>>,
    /// Renders the text of `/metrics`, given the verdict.
    pub(crate) metrics: Box<dyn Fn(&VerdictJson) -> String + Send + Sync>,
}

/// The state shared by the request handlers.
#[derive(Clone)]
pub(crate) struct SyncRpc(Arc<Parts>);

impl SyncRpc {
    pub(crate) fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }

    fn progress(&self) -> Progress {
        let progress = self.0.progress.lock();
        progress.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn verdict(&self) -> VerdictJson {
        let committee = self.0.live.committees().known();
        let progress = self.progress();
        let others = (self.0.peers)().into_iter().filter_map(|peer| {
            Some(VoterJson {
                validator: committee.place(&peer.identity)?,
                name: peer.identity.short(),
                state: match peer.connected {
                    true => Voter::Fresh,
                    false => Voter::Unreachable,
                },
            })
        });
        VerdictJson {
            state: Health::StateSync,
            summary: summary(&progress),
            remedy: remedy(&progress),
            notes: Vec::new(),
            block_age_ms: None,
            since_ms: None,
            blocks_behind: 0,
            seconds_left: progress.left().map(|left| left.as_secs()),
            voting: Voting::StateSync,
            voters: 0,
            quorum: committee.quorum(),
            others: others.collect(),
            gone: None,
        }
    }

    fn refusal(&self) -> RpcError {
        RpcError::unavailable("state_sync", &summary(&self.progress()))
    }
}

/// What the operator can do if there is nobody to fetch from.
pub(crate) fn remedy(progress: &Progress) -> Option<String> {
    let text = match progress.lacks? {
        Lack::Links => {
            "state sync needs a link to one other node at least: see whether the others run, whether their addresses \
             are right and reachable from here, and whether they know this node's identity (`quorate status` shows \
             each)"
        }
        Lack::Snapshots => {
            "a peer with `snapshot_interval = 0` has none, nor one of an older version. Link another node, copy its \
             database, or import a snapshot that it exports (OPERATING.md, \"It waits for a snapshot\")"
        }
    };
    Some(text.to_owned())
}

/// Bytes in words.
fn amount(bytes: f64) -> String {
    match bytes >= 1e6 {
        true => format!("{:.1} MB", bytes / 1e6),
        false => format!("{:.1} kB", bytes / 1e3),
    }
}

/// One sentence about the progress.
pub(crate) fn summary(progress: &Progress) -> String {
    let target = progress.target.map_or(0, |height| height.0);
    let share = (progress.share.max(0.0) * 1_000.0).floor() / 10.0;
    match (progress.stage, &progress.waits_for) {
        (Stage::Searching, None) => "state sync: asking for snapshots".to_owned(),
        (Stage::Searching, Some(what)) => format!("state sync: waits for {what}"),
        (Stage::Fetching, Some(what)) => format!(
            "state sync: {share:.1} % of the state after block {} is here; waits for {what}",
            grouped(target)
        ),
        (Stage::Fetching, None) => {
            let left = match progress.left() {
                Some(left) => format!(", {} left", spoken(left.as_millis() as u64)),
                None => String::new(),
            };
            format!(
                "state sync: {share:.1} % of the state after block {}, {} at {}/s from {}{left}",
                grouped(target),
                amount(progress.bytes as f64),
                amount(progress.bytes_per_second()),
                counted(progress.peers as u64, "peer"),
            )
        }
        (Stage::Completing, _) => format!(
            "state sync: the state after block {} is whole; fetching the block",
            grouped(target)
        ),
        (Stage::Done, _) => format!(
            "state sync: done; the validator goes on from block {}",
            grouped(target)
        ),
    }
}

/// Returns all routes for an audience.
pub(crate) fn router(state: SyncRpc, audience: Audience) -> Router {
    let routes = Router::new().route("/v1/status", get(status)).route(
        "/v1/health",
        get(|| async { Json(serde_json::json!({"alive": true})) }),
    );
    let routes = match audience {
        Audience::Public => routes,
        Audience::Operator => routes
            .route("/metrics", get(metrics))
            .route("/v1/metrics", get(metrics)),
    };
    routes.fallback(refuse).with_state(state)
}

async fn refuse(State(state): State<SyncRpc>) -> RpcError {
    state.refusal()
}

async fn metrics(State(state): State<SyncRpc>) -> impl IntoResponse {
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    (kind, (state.0.metrics)(&state.verdict()))
}

async fn status(State(state): State<SyncRpc>) -> Json<StatusJson> {
    let parts = &state.0;
    let live = &parts.live;
    let links = (parts.peers)();
    let tip = parts.store.tip();
    Json(StatusJson {
        name: parts.name.clone(),
        chain_id: parts.chain,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        validator: live.own(),
        validators: live.committees().known().size(),
        epoch: 0,
        view: live.view(),
        finalized_height: tip.height,
        executed_height: tip.height,
        executed_id: tip.id,
        executed_timestamp_ms: 0,
        state_root: tip.state_root,
        fees: parts.fees,
        mempool_transactions: 0,
        peers: links
            .iter()
            .map(|status| answers::peer(live, status))
            .collect(),
        blocked: Vec::new(),
        uptime_seconds: parts.started.elapsed().as_secs(),
        behind: true,
        sync: None,
        verdict: Some(state.verdict()),
        first_height: tip.height,
        database_bytes: parts.store.bytes(),
        journal_bytes: 0,
        clock_ahead_ms: None,
        scheme: parts.scheme.clone(),
        protocol: Some(live.committees().known().turns().protocol.name().to_owned()),
        application: None,
        turn: None,
        evidence: 0,
        payloads: None,
    })
}
