//! Transactions.

use super::{
    App, Parts,
    accounts::{first_answer, parse_place, willing},
    blocks::extent,
    problem::{Answer, Failure, Problems},
    query::{self, Name, Nothing, Params},
    respond::{changing, fresh},
};
use crate::{
    answers,
    index::{Extent, Index, IndexError, TransactionPlace},
    shapes::{
        Hex, Number, Submission, SubmissionResult, SubmissionResults, TransactionDetail,
        TransactionList, TransactionProof,
    },
    upstream::TransactionState,
};
use axum::{
    Json,
    extract::{State, rejection::JsonRejection},
    http::HeaderMap,
    response::Response,
};
use commonware_codec::{Copying, DecodeExt, Encode};
use parking_lot::Mutex;
use quorate_crypto::sha256;
use quorate_http::{Client, client::shown};
use quorate_types::{Digest, Height, Outcome, Transaction, genesis::Fees, merkle_path};
use serde::Deserialize;
use std::{sync::Arc, time::Duration};
use utoipa::IntoParams;

/// Default of `limit`.
const DEFAULT_TRANSACTIONS: usize = 20;

/// Maximum number of transfers per submission.
const MAX_SUBMITTED: usize = 16;

/// Maximum body size of a submission, in bytes: the maximum number of transfers with the longest
/// memo.
pub(super) const MAX_BODY_BYTES: usize = 160 << 10;

/// Maximum number of characters of a validator's text that are passed on.
const MAX_WORD: usize = 64;

/// How long a validator may take to report whether it has a transaction.
const LOOKING: Duration = Duration::from_secs(2);

/// A transaction: pending, finalized, failed or dropped, with its reason.
///
/// The chain commits to outcomes only through the state root. `outcome_checked` tells whether this
/// explorer has executed the block and obtained that state, or only repeats what a validator
/// reports.
#[utoipa::path(get, path = "/v1/transactions/{id}", operation_id = "transaction", tag = "transactions",
    params(("id" = query::HashParameter, Path, description = "The transaction's id")),
    responses((status = 200, body = TransactionDetail), Problems))]
pub(super) async fn one(
    State(app): State<App>,
    client: Client,
    Name(id): Name,
    Params(Nothing {}): Params<Nothing>,
    headers: HeaderMap,
) -> Answer<Response> {
    let id = parse(&id)?;
    if let Some(detail) = app.read(move |parts| find(parts, &id)).await? {
        return changing(&headers, &detail);
    }
    let told = ask_for(&app, &client, id).await?;
    let tip = extent(&app)?.tip.height;
    // The block may have arrived while validators were asked.
    if let Some(detail) = app.read(move |parts| find(parts, &id)).await? {
        return changing(&headers, &detail);
    }
    let told = told.ok_or_else(unknown)?;
    // A block in the index does not hold it, whatever a validator claims; a later block may.
    if told.state == "finalized" && told.height.is_none_or(|height| height <= tip) {
        return Err(unknown());
    }
    fresh(&waiting(&id, told))
}

/// Asks validators about a transaction that is in no block of the index. A report that it is
/// pending or final takes precedence over one that it was dropped, since another validator may
/// still have it.
async fn ask_for(
    app: &App,
    client: &Client,
    id: Digest,
) -> Result<Option<TransactionState>, Failure> {
    let (_room, upstreams) = willing(app, client)?;
    let dropped = Arc::new(Mutex::new(None));
    let alive = first_answer(upstreams, |upstream| {
        let dropped = dropped.clone();
        async move {
            // A failing upstream counts like one that does not know it.
            let asked = tokio::time::timeout(LOOKING, upstream.transaction(&id)).await;
            let told = asked.ok()?.ok()??;
            match told.state.as_str() {
                "pending" | "finalized" => Some(told),
                "dropped" => {
                    *dropped.lock() = Some(told);
                    None
                }
                _ => None,
            }
        }
    });
    let alive = alive.await;
    let dropped = dropped.lock().take();
    Ok(alive.or(dropped))
}

/// A transaction that is in no block of the index, as reported by a validator.
fn waiting(id: &Digest, told: TransactionState) -> TransactionDetail {
    let is_dropped = told.state == "dropped";
    let reason = told.error.filter(|_| is_dropped);
    TransactionDetail {
        state: if is_dropped { "dropped" } else { "pending" }.to_owned(),
        id: (*id).into(),
        reason: reason.map(|error| word(&error.code)),
        waits_for_nonce: told.waits_for_nonce.map(Number),
        expires_in_ms: told.expires_in_ms.map(Number),
        ..TransactionDetail::default()
    }
}

fn find(parts: &Parts, id: &Digest) -> Result<Option<TransactionDetail>, IndexError> {
    let index = &parts.index;
    let Some(place) = index.transaction(id)? else {
        return Ok(None);
    };
    let Some(transaction) = answers::transaction_at(index, &parts.checks, place)? else {
        return Ok(None);
    };
    let header = answers::header(index, place.height)?;
    let applied = transaction.outcome == Outcome::Applied.name();
    Ok(Some(TransactionDetail {
        state: if applied { "finalized" } else { "failed" }.to_owned(),
        id: transaction.id,
        reason: (!applied).then(|| transaction.outcome.clone()),
        waits_for_nonce: None,
        expires_in_ms: None,
        sender: Some(transaction.sender),
        nonce: Some(transaction.nonce),
        to: Some(transaction.to),
        amount: Some(transaction.amount),
        fee: Some(transaction.fee),
        memo: transaction.memo,
        operation: transaction.operation,
        signature: Some(transaction.signature),
        height: Some(transaction.height),
        index: Some(transaction.index),
        outcome: Some(transaction.outcome),
        outcome_checked: Some(transaction.outcome_checked),
        timestamp_ms: Some(transaction.timestamp_ms),
        header: header.as_ref().map(answers::encoding),
        finality: answers::finality(index, &parts.guard, place.height)?,
    }))
}

/// A proof that a final block holds a transaction.
#[utoipa::path(get, path = "/v1/transactions/{id}/proof", operation_id = "transaction_proof", tag = "transactions",
    params(("id" = query::HashParameter, Path, description = "The transaction's id")),
    responses((status = 200, body = TransactionProof), Problems))]
pub(super) async fn proof(
    State(app): State<App>,
    Name(id): Name,
    Params(Nothing {}): Params<Nothing>,
) -> Answer<Response> {
    let id = parse(&id)?;
    let proof = app.read(move |parts| {
        let Some(place) = parts.index.transaction(&id)? else {
            return Ok(None);
        };
        prove(parts, place)
    });
    fresh(&proof.await?.ok_or_else(unknown)?)
}

fn prove(parts: &Parts, place: TransactionPlace) -> Result<Option<TransactionProof>, IndexError> {
    let finality = answers::finality(&parts.index, &parts.guard, place.height)?;
    let (Some(block), Some(finality)) = (parts.index.block(place.height)?, finality) else {
        return Ok(None);
    };
    let leaves: Vec<Digest> = block
        .transactions()
        .iter()
        .map(|transaction| sha256(&[&transaction.encode()]))
        .collect();
    let at = place.index as usize;
    let (Some(transaction), Some(path)) = (block.transactions().get(at), merkle_path(&leaves, at))
    else {
        return Ok(None);
    };
    Ok(Some(TransactionProof {
        id: transaction.id().into(),
        height: Number(place.height.0),
        index: place.index,
        count: u32::try_from(leaves.len()).unwrap_or(u32::MAX),
        transaction: answers::encoding(transaction),
        siblings: path.into_iter().map(Hex::from).collect(),
        header: answers::encoding(block.header()),
        root_field: "body_root".to_owned(),
        finality,
    }))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// Number of transactions, 1 to 100. Default: 20.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 100)]
    limit: Option<String>,
    /// Only transactions before this position: `HEIGHT.INDEX`.
    #[param(value_type = Option<query::PlaceParameter>)]
    before: Option<String>,
    /// Only transactions of blocks up to this time, in milliseconds since 1970, by the leaders'
    /// clocks.
    #[param(value_type = Option<query::NumberParameter>)]
    until_ms: Option<String>,
}

/// The newest transactions of the chain, newest first, or those before a position or a time.
#[utoipa::path(get, path = "/v1/transactions", operation_id = "transactions", tag = "transactions", params(ListQuery),
    responses((status = 200, body = TransactionList), Problems))]
pub(super) async fn list(
    State(app): State<App>,
    Params(query): Params<ListQuery>,
) -> Answer<Response> {
    let limit = query::limit(query.limit.as_ref(), DEFAULT_TRANSACTIONS)?;
    let mut before = query.before.as_deref().map(parse_place).transpose()?;
    let until = query::optional("until_ms", query.until_ms.as_ref())?;
    let extent = extent(&app)?;
    let list = app.read(move |parts| {
        if let Some(until) = until {
            let first = first_after(&parts.index, &extent, until)?;
            let bound = TransactionPlace {
                height: first,
                index: 0,
            };
            before = Some(before.map_or(bound, |place| place.min(bound)));
        }
        let places = parts.index.newest_transactions(before, limit)?;
        let last = places.last().filter(|_| places.len() == limit).copied();
        let mut data = Vec::with_capacity(places.len());
        for place in places {
            data.extend(answers::transaction_at(&parts.index, &parts.checks, place)?);
        }
        Ok::<_, IndexError>(TransactionList {
            data,
            next: last.map(|TransactionPlace { height, index }| {
                format!("/v1/transactions?limit={limit}&before={height}.{index}")
            }),
        })
    });
    fresh(&list.await?)
}

/// The first height whose block is newer than a time, or the height after the tip. Block times
/// never decrease.
fn first_after(index: &Index, extent: &Extent, until_ms: u64) -> Result<Height, IndexError> {
    let (mut low, mut high) = (extent.oldest.0, extent.tip.height.0 + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        let header = answers::header(index, Height(middle))?;
        if header.is_some_and(|header| header.timestamp_ms <= until_ms) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(Height(low))
}

/// Submits signed transfers to a validator. The results are unverified claims of that validator.
///
/// If one of them does not decode or is not signed for this chain, none is forwarded. A state of `finalized` says
/// nothing of the outcome.
#[utoipa::path(post, path = "/v1/transactions", operation_id = "submit", tag = "transactions",
    request_body = Submission,
    responses((status = 200, body = SubmissionResults), Problems))]
pub(super) async fn submit(
    State(app): State<App>,
    client: Client,
    Params(Nothing {}): Params<Nothing>,
    body: Result<Json<Submission>, JsonRejection>,
) -> Answer<Response> {
    let Json(Submission { hex }) =
        body.map_err(|rejection| Failure::bad_request(&rejection.body_text()))?;
    if !(1..=MAX_SUBMITTED).contains(&hex.len()) {
        return Err(Failure::bad_request(
            "`hex` must name 1 to 16 signed transfers",
        ));
    }
    let chain = app.parts().guard.trust().chain_id;
    let mut ids = Vec::with_capacity(hex.len());
    for (place, item) in hex.iter().enumerate() {
        let bad = |what: &str, error: &dyn std::fmt::Display| {
            Failure::bad_request(&format!(
                "`hex` {place} {what}: {error}; none of the {} was forwarded",
                hex.len()
            ))
        };
        let transaction = Transaction::decode(Copying(&item.0))
            .map_err(|error| bad("is no signed transfer", &error))?;
        transaction
            .verify(&chain, &Fees::NONE)
            .map_err(|error| bad("is refused", &error))?;
        ids.push(transaction.id());
    }
    let (_room, upstreams) = willing(&app, &client)?;
    let texts: Arc<Vec<String>> = Arc::new(hex.iter().map(|item| hex::encode(&item.0)).collect());
    let answered = first_answer(upstreams, move |upstream| {
        let texts = texts.clone();
        async move {
            let results = upstream.submit(&texts).await.ok()?;
            Some((results, upstream.url().to_owned()))
        }
    });
    let (results, by) = answered.await.ok_or_else(|| {
        Failure::unavailable(
            "not_submitted",
            "no validator has taken the transfers; try again, it is paid once at most",
        )
    })?;
    let results = ids
        .into_iter()
        .zip(results)
        .map(|(id, result)| SubmissionResult {
            id: id.into(),
            state: word(&result.state),
            error: result.error.map(|error| word(&error.code)),
        });
    fresh(&SubmissionResults {
        results: results.collect(),
        by,
    })
}

/// A validator's text, shortened and escaped for display.
fn word(text: &str) -> String {
    shown(&text.chars().take(MAX_WORD).collect::<String>())
}

fn parse(id: &str) -> Answer<Digest> {
    query::digest(id)
        .ok_or_else(|| Failure::bad_request("a transaction's id is 64 hexadecimal digits"))
}

fn unknown() -> Failure {
    Failure::not_found(
        "unknown_transaction",
        "no final block holds this transaction, and no validator that was asked has it waiting",
    )
}
