//! Transactions.

use super::{
    App, Parts,
    accounts::{first_answer, willing},
    problem::{Answer, Failure, Problems},
    query::{self, Name, Nothing, Params},
    respond::{fixed, fresh},
};
use crate::{
    answers,
    index::{IndexError, TransactionPlace},
    shapes::{Hex, Number, TransactionDetail, TransactionProof},
};
use axum::{extract::State, http::HeaderMap, response::Response};
use commonware_codec::Encode;
use quorate_crypto::sha256;
use quorate_http::Client;
use quorate_types::{Digest, Outcome, merkle_path};
use std::time::Duration;

/// How long a validator may take to tell whether a transaction waits there.
const LOOKING: Duration = Duration::from_secs(2);

/// A transaction: pending, finalized, or failed with its reason.
///
/// The outcome is what validators say: the chain commits to it only by the accounts' state.
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
        // One that failed may be in a later block again, and be applied.
        return if detail.reason.is_none() {
            fixed(&headers, &detail)
        } else {
            fresh(&detail)
        };
    }
    let (_room, upstreams) = willing(&app, &client)?;
    // An upstream that fails is as good as one that does not know it.
    let pending = first_answer(upstreams, move |upstream| async move {
        let asked = tokio::time::timeout(LOOKING, upstream.is_pending(&id)).await;
        asked.is_ok_and(|said| said == Ok(true)).then_some(())
    });
    pending.await.ok_or_else(unknown)?;
    fresh(&TransactionDetail {
        state: "pending".to_owned(),
        id: id.into(),
        ..TransactionDetail::default()
    })
}

fn find(parts: &Parts, id: &Digest) -> Result<Option<TransactionDetail>, IndexError> {
    let index = &parts.index;
    let Some(place) = index.transaction(id)? else {
        return Ok(None);
    };
    let Some(transaction) = answers::transaction_at(index, place)? else {
        return Ok(None);
    };
    let header = answers::header(index, place.height)?;
    let applied = transaction.outcome == Outcome::Applied.name();
    Ok(Some(TransactionDetail {
        state: if applied { "finalized" } else { "failed" }.to_owned(),
        id: transaction.id,
        reason: (!applied).then(|| transaction.outcome.clone()),
        sender: Some(transaction.sender),
        nonce: Some(transaction.nonce),
        to: Some(transaction.to),
        amount: Some(transaction.amount),
        fee: Some(transaction.fee),
        memo: transaction.memo,
        signature: Some(transaction.signature),
        height: Some(transaction.height),
        index: Some(transaction.index),
        outcome: Some(transaction.outcome),
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
