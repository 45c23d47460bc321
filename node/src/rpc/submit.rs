//! Taking in clients' transactions.

use super::{
    RpcParts,
    error::{RpcError, RpcResult},
};
use crate::{mempool::Refusal, validate::verify_signatures};
use quorate_load::api::{
    ErrorDetail, SubmitRequest, TransactionResult, TransactionState, transaction_from_hex,
};
use quorate_types::{Digest, Transaction};

/// Most transactions in one request.
pub(super) const MAX_TRANSACTIONS: usize = 1_000;

/// How many transactions a request has.
pub(super) fn count(request: &SubmitRequest) -> RpcResult<usize> {
    let count = request.transactions.len() + request.hex.len();
    if (1..=MAX_TRANSACTIONS).contains(&count) {
        return Ok(count);
    }
    Err(RpcError::bad_request(&format!(
        "1 to {MAX_TRANSACTIONS} transactions in `transactions` and `hex`, not {count}"
    )))
}

/// Verifies all signatures in one batch, or one by one if that fails, offers each transaction to
/// the mempool, and counts what came of it. Runs on a blocking thread.
pub(super) fn submit(
    parts: &RpcParts,
    request: &SubmitRequest,
) -> RpcResult<Vec<TransactionResult>> {
    let results = results(parts, request)?;
    for result in &results {
        let answer = match (&result.error, result.state) {
            (Some(error), _) => &error.code,
            (None, TransactionState::Finalized) => "finalized",
            (None, _) => "pending",
        };
        parts.node_metrics.submitted(answer, 1);
    }
    Ok(results)
}

fn results(parts: &RpcParts, request: &SubmitRequest) -> RpcResult<Vec<TransactionResult>> {
    let named = request
        .transactions
        .iter()
        .map(|fields| Ok(fields.to_transaction(&parts.chain)));
    let encoded = request.hex.iter().map(|text| {
        transaction_from_hex(text).map_err(|error| RpcError::bad_request(&error.to_string()))
    });
    let transactions = named.chain(encoded).collect::<RpcResult<Vec<_>>>()?;
    // A signature is the dearest part of a refusal, so it is not looked at when there is no room.
    if parts.mempool.is_full() {
        return transactions
            .iter()
            .map(|transaction| known_or_refused(parts, transaction.id(), Refusal::Full))
            .collect();
    }
    let signed: Vec<(Transaction, Vec<u8>)> = transactions
        .into_iter()
        .map(|transaction| {
            let message = transaction.transfer().signed_bytes(&parts.chain);
            (transaction, message)
        })
        .collect();
    let all_hold = verify_signatures(&signed);
    signed
        .into_iter()
        .map(|item| {
            let id = item.0.id();
            if let Err(error) = item.0.check_chain(&parts.chain) {
                return Ok(refused(id, "wrong_chain", &error.to_string()));
            }
            if !all_hold && !verify_signatures(std::slice::from_ref(&item)) {
                let message = "the signature is not the sender's";
                return Ok(refused(id, "bad_signature", message));
            }
            offer(parts, item.0)
        })
        .collect()
}

fn offer(parts: &RpcParts, transaction: Transaction) -> RpcResult<TransactionResult> {
    let id = transaction.id();
    let account = parts
        .store
        .account(&transaction.transfer().sender)?
        .unwrap_or_default();
    let taken = parts
        .mempool
        .submit(transaction, account.nonce, account.balance);
    match taken {
        // Asking again for what is on its way is no mistake.
        Ok(()) | Err(Refusal::AlreadyKnown) => Ok(TransactionResult {
            id,
            state: TransactionState::Pending,
            height: None,
            index: None,
            outcome: None,
            error: None,
        }),
        Err(refusal) => known_or_refused(parts, id, refusal),
    }
}

/// What is known of a transaction that the mempool has no place for; else its refusal.
fn known_or_refused(
    parts: &RpcParts,
    id: Digest,
    refusal: Refusal,
) -> RpcResult<TransactionResult> {
    let known = super::answers::find_transaction(parts, &id)?;
    Ok(known.unwrap_or_else(|| refused(id, refusal.code(), &refusal.to_string())))
}

fn refused(id: Digest, code: &str, message: &str) -> TransactionResult {
    TransactionResult {
        id,
        state: TransactionState::Refused,
        height: None,
        index: None,
        outcome: None,
        error: Some(ErrorDetail {
            code: code.to_owned(),
            message: message.to_owned(),
        }),
    }
}
