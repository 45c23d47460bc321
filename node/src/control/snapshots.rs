//! Snapshots over the control socket, for `quorate snapshot`.

use crate::rpc::error::RpcError;
use axum::{
    Json, Router,
    extract::{Path, Query, State},
    routing::get,
};
use commonware_codec::Encode as _;
use quorate_api::{
    SnapshotJson, SnapshotPartJson, SnapshotProofJson, SnapshotsJson, from_hex, to_hex,
};
use quorate_machine::snapshots::{Snapshot, Snapshots};
use quorate_storage::store::{Served, Store, StoreError};
use quorate_types::{Height, Span};
use serde::Deserialize;
use std::{fmt::Display, sync::Arc};

/// Where snapshots and their blocks are.
#[derive(Clone)]
pub(crate) struct KeptSnapshots {
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) store: Store,
}

pub(super) fn router(kept: KeptSnapshots) -> Router {
    Router::new()
        .route("/v1/snapshots", get(list))
        .route("/v1/snapshots/{height}", get(proof))
        .route("/v1/snapshots/{height}/part", get(part))
        .with_state(kept)
}

#[derive(Deserialize)]
struct Part {
    /// The part of the key space, encoded, in hexadecimal.
    span: String,
}

impl KeptSnapshots {
    fn at(&self, height: u64) -> Result<Arc<Snapshot>, RpcError> {
        self.snapshots.at(Height(height)).ok_or_else(|| {
            let what =
                format!("there is no snapshot of block {height}; see `quorate snapshot list`");
            RpcError::not_found("unknown_snapshot", &what)
        })
    }
}

async fn list(State(kept): State<KeptSnapshots>) -> Json<SnapshotsJson> {
    let snapshots = kept.snapshots.all().into_iter();
    let snapshots = snapshots.filter_map(|snapshot| {
        let header = snapshot.proof.headers.first()?;
        Some(SnapshotJson {
            height: header.height,
            block_id: header.id(),
            state_root: snapshot.state.root(),
            timestamp_ms: header.timestamp_ms,
        })
    });
    Json(SnapshotsJson {
        snapshots: snapshots.collect(),
    })
}

async fn proof(
    State(kept): State<KeptSnapshots>,
    Path(height): Path<u64>,
) -> Result<Json<SnapshotProofJson>, RpcError> {
    let snapshot = kept.at(height)?;
    let block = blocking(move || kept.store.block(Height(height))).await?;
    let block = block.ok_or_else(|| RpcError::gone("the snapshot's block is pruned"))?;
    Ok(Json(SnapshotProofJson {
        proof: to_hex(&snapshot.proof),
        block: to_hex(&*block.block),
    }))
}

async fn part(
    State(kept): State<KeptSnapshots>,
    Path(height): Path<u64>,
    Query(part): Query<Part>,
) -> Result<Json<SnapshotPartJson>, RpcError> {
    let span: Span =
        from_hex("span", &part.span).map_err(|error| RpcError::bad_request(&error.to_string()))?;
    let snapshot = kept.at(height)?;
    let part = match blocking(move || snapshot.state.chunk(&span, Height(0))).await? {
        Served::Chunk(chunk) => Some(hex::encode(chunk.encode())),
        Served::TooMany => None,
    };
    Ok(Json(SnapshotPartJson { part }))
}

/// Runs what reads the database on a thread that may block.
async fn blocking<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, RpcError> {
    let failed = |error: &dyn Display| {
        RpcError::unavailable("storage", &format!("the database cannot be read: {error}"))
    };
    let read = tokio::task::spawn_blocking(read).await;
    let read = read.map_err(|error| failed(&error))?;
    read.map_err(|error| failed(&error))
}
