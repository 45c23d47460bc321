//! Accepting transactions from clients.

use super::{
    RpcParts, RpcState,
    error::{RpcError, RpcResult},
    limits::{PRICE_OF_A_REFUSAL, PRICE_OF_A_SEARCH},
};
use axum::{
    Json,
    body::Bytes,
    extract::{FromRequest as _, Request},
    http::{HeaderMap, header},
};
use quorate_api::{
    ErrorDetail, MAX_SUBMITTED, SubmitRequest, TransactionResult, TransactionState,
    transaction_from_hex,
};
use quorate_http::{Client, Permit, Resource, Standing};
use quorate_machine::{
    ingest::hopeless, keeper::Keep, mempool::Refusal, validate::verify_signatures,
};
use quorate_types::{Digest, Transaction, TransactionError};
use tokio::sync::oneshot;

/// Most transactions in one request.
pub(super) const MAX_TRANSACTIONS: usize = MAX_SUBMITTED;

/// Approximate size limit of a result in the response.
pub(super) const MAX_RESULT_BYTES: usize = 512;

/// Bodies up to this size are parsed where they are read. Longer ones are parsed on a blocking
/// thread.
const SHORT_BODY_BYTES: usize = 16 << 10;

/// Batch size for verifying signatures that may include invalid ones, so that the search for them
/// is confined to a small part of a request.
const LOOKED_AT_TOGETHER: usize = 64;

/// After this many invalid signatures in a request, the rest of it is not verified.
const MAX_BAD: usize = 16;

/// Returns the number of transactions in a request.
pub(super) fn count(request: &SubmitRequest) -> RpcResult<usize> {
    let count = request.transactions.len() + request.hex.len();
    if (1..=MAX_TRANSACTIONS).contains(&count) {
        return Ok(count);
    }
    Err(RpcError::bad_request(&format!(
        "1 to {MAX_TRANSACTIONS} transactions in `transactions` and `hex`, not {count}"
    )))
}

/// The results of a request's transactions, and a pending confirmation that the accepted ones are
/// on disk.
pub(super) struct Submitted {
    results: Vec<TransactionResult>,
    kept: Option<oneshot::Receiver<()>>,
}

impl Submitted {
    /// Returns the results as soon as the accepted transactions would survive a crash.
    pub(super) async fn until_kept(self) -> RpcResult<Vec<TransactionResult>> {
        if let Some(kept) = self.kept {
            kept.await.map_err(|_| RpcError::ending())?;
        }
        Ok(self.results)
    }
}

/// Reads and parses a request's body.
pub(super) async fn read(
    state: &RpcState,
    client: &Client,
    request: Request,
) -> RpcResult<SubmitRequest> {
    if !is_json(request.headers()) {
        return Err(RpcError::not_json());
    }
    let body = Bytes::from_request(request, &()).await?;
    let parse = |body: &[u8]| -> RpcResult<SubmitRequest> { Ok(Json::from_bytes(body)?.0) };
    if body.len() <= SHORT_BODY_BYTES {
        return parse(&body);
    }
    match client.standing() {
        Standing::Proven => {
            let parse = move |_: &RpcParts| parse(&body);
            state.blocking(Permit::default(), parse).await
        }
        Standing::Unknown | Standing::Owing => {
            let verifying = &state.parts().verifying;
            verifying.run(client, move || parse(&body)).await
        }
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or("");
    let essence = kind.split(';').next().unwrap_or("").trim();
    let essence = essence.to_ascii_lowercase();
    essence == "application/json"
        || (essence.starts_with("application/") && essence.ends_with("+json"))
}

/// Verifies a client's transactions when it is its turn ([`super::verifying`]), offers them to the
/// mempool, and has the accepted ones stored on disk.
pub(super) async fn submit(
    state: &RpcState,
    client: &Client,
    request: SubmitRequest,
    count: usize,
) -> RpcResult<Submitted> {
    let parts = state.parts();
    let busy = |refusal| {
        parts.node_metrics.submitted("busy", count);
        RpcError::from(refusal)
    };
    let room = client.take(Resource::Work, count).map_err(busy)?;
    let turn = client.own_turn(Resource::Verifying).await;
    // At this point, all earlier requests of this client have been charged.
    parts.verifying.admits(client).map_err(busy)?;
    let submitter = client.clone();
    if client.standing() == Standing::Proven {
        let turn = client.turn_of_all(Resource::Verifying, turn).await;
        let work = move |parts: &RpcParts| {
            let _room = room;
            let checked = check(parts, &submitter, &request)?;
            offer_all(parts, &submitter, checked)
        };
        return state.blocking(turn, work).await;
    }
    // The work keeps the client's reservations, because it continues even if the client
    // disconnects.
    let looking = state.clone();
    let look = move || {
        let checked = check(looking.parts(), &submitter, &request)?;
        Ok((checked, submitter, room, turn))
    };
    let (checked, submitter, room, turn) = parts.verifying.run(client, look).await?;
    let offer = move |parts: &RpcParts| {
        let _room = room;
        offer_all(parts, &submitter, checked)
    };
    state.blocking(turn, offer).await
}

/// A checked transaction of a request.
enum Checked {
    /// The sender's signature is valid.
    Signed(Transaction),
    /// The result is known without an offer to the mempool.
    Done(TransactionResult),
}

/// The result of verifying a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Holds,
    Bad,
    NotLookedAt,
}

/// All checked transactions of a request, and whether any signature is invalid.
struct Looked {
    checked: Vec<Checked>,
    any_bad: bool,
}

/// Checks everything about a request's transactions that needs no place in the mempool. Verifying
/// the signature is the most expensive part, so it comes last.
fn check(parts: &RpcParts, client: &Client, request: &SubmitRequest) -> RpcResult<Looked> {
    let named = request
        .transactions
        .iter()
        .map(|fields| Ok(fields.to_transaction(&parts.chain)));
    let encoded = request.hex.iter().map(|text| {
        transaction_from_hex(text).map_err(|error| RpcError::bad_request(&error.to_string()))
    });
    let transactions = named.chain(encoded).collect::<RpcResult<Vec<_>>>()?;
    let full = parts.mempool.is_full();
    let mut looked_at = Vec::with_capacity(transactions.len());
    let mut unverified = Vec::new();
    for transaction in transactions {
        let known = before_the_signature(parts, &transaction, full)?;
        if known.is_none() && !parts.mempool.holds(&transaction) {
            let message = transaction.transfer().signed_bytes(&parts.chain);
            unverified.push((transaction, message));
            looked_at.push(None);
        } else {
            looked_at.push(Some(
                known.map_or(Checked::Signed(transaction), Checked::Done),
            ));
        }
    }
    let proven = client.standing() == Standing::Proven;
    let (verdicts, in_vain) = look_at(&unverified, proven, verify_signatures);
    let any_bad = in_vain > 0;
    if any_bad {
        parts.node_metrics.in_vain.inc_by(in_vain);
        parts.verifying.in_vain(client, in_vain);
        // Searching for invalid signatures is the most expensive part, so the client that sent them
        // is charged for it.
        let searched = u32::try_from(unverified.len()).unwrap_or(u32::MAX);
        client.charge(PRICE_OF_A_SEARCH * searched);
    }
    let mut verified = unverified.into_iter().zip(verdicts);
    let checked = looked_at.into_iter().map(|known| {
        known.unwrap_or_else(|| {
            let ((transaction, _), verdict) = verified.next().expect("as many as are not known");
            judged(transaction, verdict)
        })
    });
    Ok(Looked {
        checked: checked.collect(),
        any_bad,
    })
}

/// Returns the result of a transaction that can be decided without verifying the signature.
fn before_the_signature(
    parts: &RpcParts,
    transaction: &Transaction,
    full: bool,
) -> RpcResult<Option<TransactionResult>> {
    let id = transaction.id();
    if full {
        return known_or_refused(parts, id, Refusal::Full).map(Some);
    }
    if let Err(error) = transaction.check(&parts.chain, &parts.fees) {
        return Ok(Some(refused(id, error.code(), &error.to_string())));
    }
    let account = parts.accounts.read(&transaction.transfer().sender)?;
    let refused = hopeless(&account.account, transaction.transfer()).or_else(|| {
        let mempool = &parts.mempool;
        // A transaction that is already in the mempool does not replace itself.
        let known = mempool.contains(&id);
        (!known).then(|| mempool.refuses(parts.clock.now(), transaction, account))?
    });
    match refused {
        Some(refusal) => known_or_refused(parts, id, refusal).map(Some),
        None => Ok(None),
    }
}

/// Verifies signatures; if the client is proven, first all as one batch. Also returns the number of
/// wasted verifications: those of invalid signatures, and those that had to be repeated because of
/// them.
fn look_at<T>(items: &[T], proven: bool, hold: impl Fn(&[T]) -> bool) -> (Vec<Verdict>, u64) {
    let mut in_vain = 0;
    if proven {
        if hold(items) {
            return (vec![Verdict::Holds; items.len()], 0);
        }
        in_vain += items.len();
    }
    let mut bad = 0;
    let mut verdicts = Vec::with_capacity(items.len());
    for together in items.chunks(LOOKED_AT_TOGETHER) {
        if bad >= MAX_BAD {
            verdicts.resize(verdicts.len() + together.len(), Verdict::NotLookedAt);
            continue;
        }
        if hold(together) {
            verdicts.resize(verdicts.len() + together.len(), Verdict::Holds);
            continue;
        }
        in_vain += together.len();
        for item in together.chunks(1) {
            let verdict = if bad >= MAX_BAD {
                Verdict::NotLookedAt
            } else if together.len() > 1 && hold(item) {
                in_vain += 1;
                Verdict::Holds
            } else {
                in_vain += 1;
                bad += 1;
                Verdict::Bad
            };
            verdicts.push(verdict);
        }
    }
    (verdicts, in_vain as u64)
}

fn judged(transaction: Transaction, verdict: Verdict) -> Checked {
    let id = transaction.id();
    match verdict {
        Verdict::Holds => Checked::Signed(transaction),
        Verdict::Bad => {
            let error = TransactionError::BadSignature;
            Checked::Done(refused(id, error.code(), &error.to_string()))
        }
        Verdict::NotLookedAt => {
            let message = format!(
                "not looked at, since {MAX_BAD} signatures of this request are bad; send it without them"
            );
            Checked::Done(refused(id, "not_verified", &message))
        }
    }
}

/// Offers a request's transactions to the mempool, counts the results, and has the accepted ones
/// stored on disk. Runs on a blocking thread.
fn offer_all(parts: &RpcParts, client: &Client, request: Looked) -> RpcResult<Submitted> {
    let mut taken = Vec::new();
    let mut in_vain = 0;
    let mut results = Vec::with_capacity(request.checked.len());
    for checked in request.checked {
        let result = match checked {
            Checked::Done(result) => result,
            Checked::Signed(transaction) => {
                let result = offer(parts, transaction, &mut taken)?;
                in_vain += u32::from(result.error.is_some());
                result
            }
        };
        let answer = match (&result.error, result.state) {
            (Some(error), _) => &error.code,
            (None, TransactionState::Finalized) => "finalized",
            (None, _) => "pending",
        };
        parts.node_metrics.submitted(answer, 1);
        results.push(result);
    }
    if in_vain > 0 {
        parts.verifying.in_vain(client, in_vain.into());
        client.charge(PRICE_OF_A_REFUSAL * in_vain);
    }
    if !taken.is_empty() && !request.any_bad {
        client.prove();
    }
    let kept = (!taken.is_empty()).then(|| {
        let (done, kept) = oneshot::channel();
        // If the keeper is gone, so is `done`, and the node is stopping.
        let _ = parts.keeper.send(Keep {
            transactions: taken,
            done,
        });
        kept
    });
    Ok(Submitted { results, kept })
}

fn offer(
    parts: &RpcParts,
    transaction: Transaction,
    taken: &mut Vec<Transaction>,
) -> RpcResult<TransactionResult> {
    let id = transaction.id();
    let account = parts.accounts.read(&transaction.transfer().sender)?;
    let now = parts.clock.now();
    let repeated = parts.mempool.contains(&id);
    match parts.mempool.submit(now, transaction.clone(), account) {
        Ok(()) => {
            taken.push(transaction);
            let waits = parts.mempool.waits_for(&id);
            Ok(TransactionResult {
                repeated,
                ..super::answers::pending(id, now, waits)
            })
        }
        Err(refusal) => known_or_refused(parts, id, refusal),
    }
}

/// Returns the state of a transaction that the mempool refuses, or else the refusal.
fn known_or_refused(
    parts: &RpcParts,
    id: Digest,
    refusal: Refusal,
) -> RpcResult<TransactionResult> {
    let known = super::answers::find_transaction(parts, &id)?;
    let known = known.filter(|known| known.state != TransactionState::Dropped);
    let known = known.map(|known| TransactionResult {
        repeated: true,
        ..known
    });
    Ok(known.unwrap_or_else(|| refused(id, refusal.code(), &refusal.to_string())))
}

fn refused(id: Digest, code: &str, message: &str) -> TransactionResult {
    TransactionResult {
        id,
        state: TransactionState::Refused,
        error: Some(ErrorDetail {
            code: code.to_owned(),
            message: message.to_owned(),
        }),
        ..TransactionResult::pending(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Verifies `count` signatures, of which those at the places `bad` are invalid. Returns the
    /// verdicts, the wasted verifications, and the number of verifications.
    fn look(count: usize, bad: &[usize], proven: bool) -> (Vec<Verdict>, u64, usize) {
        let items: Vec<bool> = (0..count).map(|place| !bad.contains(&place)).collect();
        let looks = Cell::new(0);
        let hold = |items: &[bool]| {
            looks.set(looks.get() + items.len());
            items.iter().all(|holds| *holds)
        };
        let (verdicts, in_vain) = look_at(&items, proven, hold);
        assert_eq!(verdicts.len(), count);
        (verdicts, in_vain, looks.get())
    }

    #[test]
    fn good_signatures_are_looked_at_once() {
        for proven in [true, false] {
            let (verdicts, in_vain, looks) = look(1_000, &[], proven);
            assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Holds));
            assert_eq!((in_vain, looks), (0, 1_000));
        }
        assert_eq!(look(0, &[], true), (Vec::new(), 0, 0));
    }

    #[test]
    fn a_bad_signature_is_found_and_the_others_are_not_held_against_their_sender() {
        for proven in [true, false] {
            let (verdicts, in_vain, looks) = look(1_000, &[3, 700], proven);
            for (place, verdict) in verdicts.into_iter().enumerate() {
                let expected =
                    [Verdict::Holds, Verdict::Bad][usize::from(place == 3 || place == 700)];
                assert_eq!(verdict, expected, "{place}");
            }
            let again = 2 * 2 * LOOKED_AT_TOGETHER;
            assert_eq!(in_vain as usize, again + 1_000 * usize::from(proven));
            assert_eq!(looks, 1_000 + again / 2 + 1_000 * usize::from(proven));
        }
        assert_eq!(look(1, &[0], false), (vec![Verdict::Bad], 2, 1));
    }

    #[test]
    fn after_many_bad_signatures_nothing_more_is_looked_at() {
        let all: Vec<_> = (0..1_000).collect();
        let (verdicts, _, looks) = look(1_000, &all, false);
        let (first, rest) = verdicts.split_at(MAX_BAD);
        assert!(first.iter().all(|verdict| *verdict == Verdict::Bad));
        assert!(rest.iter().all(|verdict| *verdict == Verdict::NotLookedAt));
        assert_eq!(looks, LOOKED_AT_TOGETHER + MAX_BAD);
    }
}
