//! Payloads, on a chain that only orders: taking those of clients, and giving out what is stored.

use super::{
    MAX_WAIT, RpcState,
    error::{RpcError, RpcResult},
};
use axum::{
    Json,
    body::Bytes,
    extract::{
        FromRequest as _, Path, Query, Request, State,
        rejection::{PathRejection, QueryRejection},
    },
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};
use quorate_api::{PayloadsAnswer, PayloadsState, PayloadsStatusJson};
use quorate_http::{Client, Resource, held};
use quorate_machine::payloads::{OrderedPayloads, Payloads, StoredPayloads, charge};
use quorate_types::{Bundle, Digest, OrderedBundle};
use serde::Deserialize;
use std::{sync::Arc, time::Duration};
use tokio::sync::oneshot;

const OCTETS: &str = "application/octet-stream";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PayloadsQuery {
    wait: Option<String>,
    timeout_ms: Option<u64>,
}

pub(super) fn status(payloads: &Payloads) -> PayloadsStatusJson {
    let held = payloads.holdings();
    PayloadsStatusJson {
        waiting_bytes: held.waiting_bytes as u64,
        missing_bundles: held.missing as u64,
        log_bytes: held.log_bytes,
    }
}

fn payloads(state: &RpcState) -> RpcResult<Arc<Payloads>> {
    let payloads = state.parts().payloads.clone();
    payloads.ok_or_else(|| {
        RpcError::not_found(
            "no_payloads",
            "this node takes and keeps no payloads: the validators of a chain whose genesis file has `application` \
             order-only do",
        )
    })
}

pub(super) async fn submit(
    State(state): State<RpcState>,
    client: Client,
    query: Result<Query<PayloadsQuery>, QueryRejection>,
    request: Request,
) -> RpcResult<Json<PayloadsAnswer>> {
    let Query(query) = query?;
    let wait = match query.wait.as_deref() {
        None => false,
        Some("finalized") => true,
        Some(_) => return Err(RpcError::bad_request("`wait` must be `finalized`")),
    };
    let payloads = payloads(&state)?;
    if !is_octets(request.headers()) {
        return Err(RpcError::not_octets());
    }
    let waiting = wait.then(|| client.wait()).transpose()?;
    let body = Bytes::from_request(request, &()).await?;
    let bundle = Bundle::read(body).map_err(|error| RpcError::bad_request(&error.to_string()))?;
    // So that one client's payloads leave room for others'.
    let room = client.take(Resource::Bytes, charge(&bundle))?;
    let submitted = payloads
        .submit(bundle)
        .map_err(|busy| RpcError::busy(&busy.to_string()))?;
    let (told, is_ordered) = oneshot::channel();
    let ordered = submitted.ordered;
    tokio::spawn(async move {
        let answer = ordered.await;
        drop(room);
        // A client that is gone needs no answer.
        let _ = told.send(answer);
    });
    let stored = tokio::select! {
        stored = submitted.stored => stored.map_err(|_| RpcError::ending())?,
        () = state.ended() => return Err(RpcError::ending()),
    };
    let Some(place) = waiting else {
        return Ok(Json(answer(stored, None)));
    };
    let timeout = Duration::from_millis(query.timeout_ms.unwrap_or(10_000)).min(MAX_WAIT);
    let ordered = async {
        tokio::select! {
            biased;
            ordered = is_ordered => ordered.ok().and_then(Result::ok),
            () = state.ended() => None,
        }
    };
    // In any other case it is stored all the same.
    let ordered = tokio::time::timeout(timeout, place.until_gone(ordered)).await;
    let ordered = ordered.ok().flatten().flatten();
    Ok(Json(answer(stored, ordered)))
}

fn answer(stored: StoredPayloads, ordered: Option<OrderedPayloads>) -> PayloadsAnswer {
    // A bundle whose number was taken is stored again under another one, and its name stays.
    PayloadsAnswer {
        state: match ordered {
            Some(_) => PayloadsState::Finalized,
            None => PayloadsState::Stored,
        },
        bundle: stored.bundle,
        first: stored.first,
        count: stored.count,
        height: ordered.map(|ordered| ordered.height),
        place: ordered.map(|ordered| ordered.place),
    }
}

fn is_octets(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    kind.and_then(|kind| kind.to_str().ok())
        .is_some_and(|kind| kind.eq_ignore_ascii_case(OCTETS))
}

async fn stored(
    state: &RpcState,
    client: &Client,
    digest: &str,
) -> RpcResult<(OrderedBundle, quorate_http::Permit)> {
    let digest: Digest = digest
        .parse()
        .map_err(|_| RpcError::bad_request("a bundle's name is 64 hexadecimal digits"))?;
    let payloads = payloads(state)?;
    let room = client.take(Resource::Bytes, quorate_types::limits::MAX_BUNDLE_BYTES)?;
    let read = move |_: &super::RpcParts| payloads.get(&digest).map_err(|e| RpcError::internal(&e));
    let found = state.reading(client, read).await?;
    let bundle = found.ok_or_else(|| {
        RpcError::not_found(
            "unknown_bundle",
            "this validator has no such bundle, or none any more: `storage.bundle_bytes` says how much it keeps",
        )
    })?;
    Ok((bundle, room))
}

pub(super) async fn bundle(
    State(state): State<RpcState>,
    client: Client,
    digest: Result<Path<String>, PathRejection>,
) -> RpcResult<Response> {
    let Path(digest) = digest?;
    let (bundle, room) = stored(&state, &client, &digest).await?;
    let octets = (
        [(header::CONTENT_TYPE, OCTETS)],
        bundle.bundle().bytes().clone(),
    );
    Ok(held(octets.into_response(), room))
}

pub(super) async fn payload(
    State(state): State<RpcState>,
    client: Client,
    path: Result<Path<(String, u32)>, PathRejection>,
) -> RpcResult<Response> {
    let Path((digest, place)) = path?;
    let (bundle, room) = stored(&state, &client, &digest).await?;
    let payload = bundle.bundle().payloads().nth(place as usize);
    let payload = payload.ok_or_else(|| {
        let count = bundle.bundle().count();
        RpcError::not_found(
            "unknown_payload",
            &format!("the bundle has {count} payloads, the first is 0"),
        )
    })?;
    let octets = ([(header::CONTENT_TYPE, OCTETS)], payload);
    Ok(held(octets.into_response(), room))
}
