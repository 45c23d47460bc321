//! Taking in clients' transactions.

use super::{
    RpcParts,
    error::{RpcError, RpcResult},
};
use crate::{mempool::Refusal, validate::verify_signatures};
use quorate_load::api::{
    ErrorDetail, SubmitRequest, TransactionResult, TransactionState, transaction_from_hex,
};
use quorate_types::Transaction;

/// Most transactions in one request.
const MAX_TRANSACTIONS: usize = 1_000;

/// Verifies all signatures in one batch, or one by one if that fails, and offers each transaction
/// to the mempool. Runs on a blocking thread.
pub(super) fn submit(
    parts: &RpcParts,
    request: &SubmitRequest,
) -> RpcResult<Vec<TransactionResult>> {
    let count = request.transactions.len() + request.hex.len();
    if !(1..=MAX_TRANSACTIONS).contains(&count) {
        return Err(RpcError::bad_request(&format!(
            "1 to {MAX_TRANSACTIONS} transactions in `transactions` and `hex`, not {count}"
        )));
    }
    let mut signed: Vec<(Transaction, Vec<u8>)> = Vec::with_capacity(count);
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
            .map(|transaction| known_or_refused(parts, transaction, Refusal::Full))
            .collect();
    }
    for transaction in transactions {
        let message = transaction.transfer().signed_bytes(&parts.chain);
        signed.push((transaction, message));
    }
    let all_hold = verify_signatures(&signed);
    signed
        .iter()
        .map(|item| {
            let transaction = item.0;
            if let Err(error) = transaction.check_chain(&parts.chain) {
                return Ok(refused(&transaction, "wrong_chain", &error.to_string()));
            }
            if !all_hold && !verify_signatures(std::slice::from_ref(item)) {
                return Ok(refused(
                    &transaction,
                    "bad_signature",
                    "the signature is not the sender's",
                ));
            }
            offer(parts, transaction)
        })
        .collect()
}

fn offer(parts: &RpcParts, transaction: Transaction) -> RpcResult<TransactionResult> {
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
            id: transaction.id(),
            state: TransactionState::Pending,
            height: None,
            index: None,
            outcome: None,
            error: None,
        }),
        Err(refusal) => known_or_refused(parts, &transaction, refusal),
    }
}

/// What is known of a transaction that the mempool has no place for; else its refusal.
fn known_or_refused(
    parts: &RpcParts,
    transaction: &Transaction,
    refusal: Refusal,
) -> RpcResult<TransactionResult> {
    let known = super::answers::find_transaction(parts, &transaction.id())?;
    Ok(known.unwrap_or_else(|| refused(transaction, refusal.code(), &refusal.to_string())))
}

fn refused(transaction: &Transaction, code: &str, message: &str) -> TransactionResult {
    TransactionResult {
        id: transaction.id(),
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
