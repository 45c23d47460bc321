//! Reading the data for responses, and waiting for it.

use super::{
    RpcParts, RpcState,
    error::{RpcError, RpcResult},
    large::Large,
};
use commonware_codec::{Copying, DecodeExt, EncodeSize as _};
use quorate_api::{
    BlockJson, BlockSummaryJson, BlockTransactionJson, BlockedJson, ChainBlockJson, ErrorDetail,
    PeerDetailJson, PeerJson, PeersJson, Standing, TransactionJson, TransactionResult,
    TransactionState, TurnJson, to_hex,
};
use quorate_consensus::Moment;
use quorate_http::{Client, Place};
use quorate_machine::{
    executor::AccountProof,
    live::LiveStatus,
    lookup::{self, Found},
    mempool::WaitingFor,
};
use quorate_p2p::PeerStatus;
use quorate_types::{
    Account, Digest, Epoch, Height, Identity, Receipt, View, limits::MAX_RANGE_BLOCKS, state_key,
};
use serde::Serialize;
use std::{collections::VecDeque, time::Duration};

/// The position of a block's long fields in its JSON, as serialized while they are empty.
const EMPTY_BODY: &str = "\"transactions\":[],\"block\":\"\"";

/// Number of a block's transactions that are rendered at a time.
const TRANSACTIONS_AT_A_TIME: usize = 128;

/// The memory that a block takes while it is served, as a multiple of its encoded size: the block
/// itself, its decoded transactions, and its hexadecimal form.
const MEMORY_OF_A_BLOCK: usize = 5;

/// Upper limit of a block summary's size: 75 bytes for each transaction's id, 28 for its outcome.
const MAX_SUMMARY_BYTES: usize = 1 << 20;

/// How long after the requested wait a response may still be given.
const GRACE: Duration = Duration::from_secs(2);

/// How often the mempool is polled for a transaction that may be on its way.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Bytes of a range that are kept in memory from the first pass for the response.
const MAX_KEPT_BYTES: usize = 512 << 10;

/// Most headers between a block and the descendant whose finalization proves it: blocks that were fetched
/// from a peer come in ranges, of which only the last has its own.
const MAX_DESCENDANTS: usize = MAX_RANGE_BLOCKS;

/// A range ends after the block that exceeds this many bytes of encodings.
const MAX_CHAIN_BYTES: usize = 4 << 20;

/// The limits, in blocks and in bytes of encodings, of a range in which no block has its own
/// finalization.
const MAX_UNCERTIFIED_BLOCKS: usize = 1_024;
const MAX_UNCERTIFIED_BYTES: usize = 16 << 20;

/// The turn that the current view belongs to.
pub(super) fn turn(live: &LiveStatus, epoch: Epoch, view: View) -> TurnJson {
    let committee = live.committees().of(epoch);
    TurnJson {
        leader: committee.leader(view),
        first_view: committee.turn_of(view),
        last_view: View(committee.turn_after(view).0.saturating_sub(1)),
    }
}

/// Finds a transaction in a final block or in the mempool, or returns why it left the mempool.
pub(super) fn find_transaction(
    parts: &RpcParts,
    id: &Digest,
) -> RpcResult<Option<TransactionResult>> {
    let found = lookup::find(&parts.store, &parts.mempool, id)?;
    Ok(found.map(|found| match found {
        Found::Final { place, outcome } => TransactionResult {
            state: TransactionState::Finalized,
            height: Some(place.height),
            index: Some(place.index),
            outcome: Some(outcome.name().to_owned()),
            ..TransactionResult::pending(*id)
        },
        Found::Waiting(waits) => pending(*id, parts.clock.now(), Some(waits)),
        Found::Dropped(reason) => TransactionResult {
            state: TransactionState::Dropped,
            error: Some(ErrorDetail {
                code: reason.code().to_owned(),
                message: reason.to_string(),
            }),
            ..TransactionResult::pending(*id)
        },
    }))
}

/// Creates the result of a pending transaction, with what it waits for.
pub(super) fn pending(id: Digest, now: Moment, waits: Option<WaitingFor>) -> TransactionResult {
    let expires = waits.and_then(|waits| waits.expires);
    let left = expires.map(|at| at.since(now).as_millis());
    TransactionResult {
        waits_for_nonce: waits.and_then(|waits| waits.nonce),
        expires_in_ms: left.map(|left| u64::try_from(left).unwrap_or(u64::MAX)),
        ..TransactionResult::pending(id)
    }
}

/// Waits until none of these transactions is pending, the timeout is reached, or the place to wait
/// is revoked. Always returns the results, because the transactions were accepted.
pub(super) async fn await_final(
    state: &RpcState,
    client: &Client,
    mut results: Vec<TransactionResult>,
    timeout: Duration,
    place: &Place,
) -> Vec<TransactionResult> {
    let deadline = tokio::time::Instant::now() + timeout;
    let mut news = state.parts().executor.executed();
    loop {
        news.mark_unchanged();
        let looked = results.clone();
        let renewed = state.reading(client, move |parts| {
            looked
                .into_iter()
                .map(|result| {
                    if result.state != TransactionState::Pending {
                        return Ok(result);
                    }
                    let found = find_transaction(parts, &result.id)?;
                    let repeated = result.repeated;
                    Ok(found.map_or(result, |found| TransactionResult { repeated, ..found }))
                })
                .collect::<RpcResult<Vec<_>>>()
        });
        match tokio::time::timeout_at(deadline + GRACE, renewed).await {
            Ok(Ok(renewed)) => results = renewed,
            // Errors other than a timeout have been logged.
            Ok(Err(_)) | Err(_) => return results,
        }
        let done = results
            .iter()
            .all(|result| result.state != TransactionState::Pending);
        if done {
            return results;
        }
        let news = place.until_gone(news.changed());
        match tokio::time::timeout_at(deadline, news).await {
            Ok(Some(Ok(()))) => {}
            // The node is stopping, the place to wait was revoked, or the timeout was reached.
            Ok(Some(Err(_)) | None) | Err(_) => return results,
        }
    }
}

/// Waits until this validator knows a transaction, the deadline is reached, or the place to wait is
/// revoked.
pub(super) async fn await_known(
    state: &RpcState,
    client: &Client,
    id: Digest,
    deadline: tokio::time::Instant,
    place: &Place,
) -> RpcResult<Option<TransactionResult>> {
    let mut news = state.parts().executor.executed();
    loop {
        news.mark_unchanged();
        let look = move |parts: &RpcParts| find_transaction(parts, &id);
        let found = state.reading(client, look).await?;
        if found.is_some() || tokio::time::Instant::now() >= deadline {
            return Ok(found);
        }
        // The mempool sends no notifications of new transactions, and polling it is cheap.
        let comes = async {
            while !state.parts().mempool.contains(&id) {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        tokio::select! {
            () = comes => {}
            executed = async {
                // Do not query on every block: there may be hundreds per second.
                tokio::time::sleep(LOOK_AGAIN).await;
                news.changed().await
            } => if executed.is_err() {
                return Err(RpcError::ending());
            },
            () = tokio::time::sleep_until(deadline) => {}
            () = place.gone() => return Ok(None),
        }
    }
}

/// Waits until a height is executed, the timeout is reached, or this part of the node ends: at a border, who asked
/// gets what is there, and asks again.
pub(super) async fn await_height(state: &RpcState, height: Height, timeout: Duration) {
    let mut news = state.parts().executor.executed();
    let reached = news.wait_for(|executed| executed.height >= height);
    let _ = tokio::time::timeout(timeout, reached).await;
}

/// Waits until all of this node knows of the blocks that hold these transactions. They are in the database a moment
/// earlier, and a client that is told of them may ask for the status next.
pub(super) async fn await_blocks_of(state: &RpcState, results: &[TransactionResult]) {
    if let Some(height) = results.iter().filter_map(|result| result.height).max() {
        await_height(state, height, GRACE).await;
    }
}

/// Parses a decimal number in a path, without sign and leading zeros.
fn decimal(text: &str) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// The height of the newest block that is kept.
fn newest(parts: &RpcParts) -> RpcResult<Height> {
    let height = parts.store.tip().height;
    if height == Height(0) {
        return Err(RpcError::not_found(
            "unknown_block",
            "no block is final yet",
        ));
    }
    if height < parts.store.pruned_below()? {
        return Err(RpcError::gone(&format!(
            "this node has fetched the state after block {height}, and no block since: ask again"
        )));
    }
    Ok(height)
}

/// Serves a block by its height, its id, or `latest`.
pub(super) fn block(parts: &RpcParts, which: &str) -> RpcResult<Large> {
    let height = if which == "latest" {
        newest(parts)?
    } else if let Some(height) = decimal(which) {
        Height(height)
    } else if let Ok(id) = which.parse::<Digest>() {
        parts
            .store
            .height_of(&id)?
            .ok_or_else(|| unknown(parts, "unknown_block", "no final block has this id"))?
    } else {
        return Err(RpcError::bad_request(
            "a block is named by its height, its id (64 hexadecimal digits), or `latest`",
        ));
    };
    check_kept(parts, height)?;
    let (stored, receipts) = parts
        .store
        .block(height)?
        .zip(parts.store.receipts(height)?)
        .ok_or_else(|| {
            RpcError::not_found(
                "unknown_block",
                &format!(
                    "there is no block {height}; blocks 1 to {} are final",
                    parts.store.tip().height
                ),
            )
        })?;
    let (descendants, certificate) = certificate(parts, height)?;
    let header = stored.block.header();
    let head = BlockJson {
        id: stored.block.id(),
        height,
        epoch: header.epoch.0,
        view: header.view,
        leader: parts.live.committees().leader(header.epoch, header.view),
        parent: header.parent,
        timestamp_ms: header.timestamp_ms,
        executed_height: header.executed_height,
        state_root: header.state_root,
        transactions: Vec::new(),
        block: String::new(),
        descendants,
        certificate,
    };
    let head = serde_json::to_string(&head).map_err(|error| RpcError::internal(&error))?;
    let (head, tail) = head
        .split_once(EMPTY_BODY)
        .map(|(head, tail)| (head.to_owned(), tail.to_owned()))
        .ok_or_else(|| RpcError::internal(&"a block's answer has another order of fields"))?;
    let block = stored.block;
    let held = MEMORY_OF_A_BLOCK * block.encode_size();
    let (listed, mut next) = (block.clone(), 0);
    let transactions = move |_: &RpcParts| {
        let from = next;
        next = listed
            .transactions()
            .len()
            .min(from + TRANSACTIONS_AT_A_TIME);
        let items = listed.transactions().iter().zip(&receipts);
        let items = items.take(next).skip(from).map(|(transaction, receipt)| {
            json_bytes(&BlockTransactionJson {
                id: transaction.id(),
                fields: TransactionJson::from_transaction(transaction),
                outcome: receipt.outcome.name().to_owned(),
            })
        });
        let items = items.collect::<RpcResult<Vec<_>>>()?;
        Ok((!items.is_empty()).then(|| items.join(&b',')))
    };
    let end = move || format!("],\"block\":\"{}\"{tail}", to_hex(block.as_ref()));
    Ok(Large::list(
        held,
        format!("{head}\"transactions\":["),
        transactions,
        end,
    ))
}

/// What is not found may be in a block that is not kept.
pub(super) fn unknown(parts: &RpcParts, code: &'static str, what: &str) -> RpcError {
    match parts.store.pruned_below() {
        Err(error) => error.into(),
        Ok(Height(0 | 1)) => RpcError::not_found(code, what),
        Ok(first) => RpcError::not_found(
            code,
            &format!(
                "{what}; this node keeps the blocks from {first} on: about an older one, ask one that \
                 keeps more"
            ),
        ),
    }
}

/// Refuses what begins with a block that is not kept any longer. Returns the first one that is kept.
fn check_kept(parts: &RpcParts, from: Height) -> RpcResult<Height> {
    let first = parts.store.pruned_below()?;
    if from >= first || from.0 == 0 {
        return Ok(first);
    }
    Err(RpcError::gone(&format!(
        "block {from} is pruned: this node keeps the blocks from {first} on; ask one that keeps more"
    )))
}

/// Returns the headers of the following blocks, up to the nearest one with a finalization, and that
/// finalization.
fn certificate(parts: &RpcParts, height: Height) -> RpcResult<(Vec<String>, Option<String>)> {
    let mut headers = Vec::new();
    let mut next = height;
    for _ in 0..=MAX_DESCENDANTS {
        let Some(stored) = parts.store.block(next)? else {
            break;
        };
        if next > height {
            headers.push(to_hex(stored.block.header()));
        }
        if let Some(certificate) = stored.certificate {
            return Ok((headers, Some(to_hex(&certificate))));
        }
        next = next.next();
    }
    Ok((Vec::new(), None))
}

/// Serves summaries of consecutive blocks.
pub(super) fn summaries(parts: &RpcParts, from: Height, limit: u64) -> RpcResult<Large> {
    check_kept(parts, from)?;
    let mut height = from;
    let mut left = limit;
    let blocks = move |parts: &RpcParts| {
        if left == 0 {
            return Ok(None);
        }
        let Some(stored) = parts.store.block(height)? else {
            return Ok(None);
        };
        let Some(receipts) = parts.store.receipts(height)? else {
            return Ok(None);
        };
        let summary = BlockSummaryJson {
            height,
            id: stored.block.id(),
            timestamp_ms: stored.block.header().timestamp_ms,
            transactions: receipts.iter().map(|receipt| receipt.transaction).collect(),
            outcomes: outcomes(&receipts),
        };
        height = height.next();
        left -= 1;
        json_bytes(&summary).map(Some)
    };
    Ok(Large::list(
        MAX_SUMMARY_BYTES,
        "{\"blocks\":[".to_owned(),
        blocks,
        || "]}".to_owned(),
    ))
}

/// Serves consecutive encoded blocks, for clients that follow the chain. The list continues beyond
/// `limit` up to a block with its own finalization, so that all of it can be verified; blocks after
/// the last such block are left out.
pub(super) fn chain(parts: &RpcParts, from: Height, limit: u64) -> RpcResult<Large> {
    let first_height = check_kept(parts, from)?;
    // The end of the list must be known before the response begins. Blocks read for that are kept
    // up to a size limit; the others are read again.
    let mut kept = VecDeque::new();
    let (mut kept_bytes, mut largest) = (0, 0);
    let (mut height, mut count, mut certified, mut bytes) = (from, 0, 0, 0);
    while count < MAX_UNCERTIFIED_BLOCKS && bytes < MAX_UNCERTIFIED_BYTES {
        if certified > 0 && (count as u64 >= limit || bytes >= MAX_CHAIN_BYTES) {
            break;
        }
        let Some((item, is_certified)) = chain_block(parts, height)? else {
            break;
        };
        bytes += item.len();
        largest = largest.max(item.len());
        count += 1;
        if bytes <= MAX_KEPT_BYTES {
            kept_bytes = bytes;
            kept.push_back(item);
        }
        if is_certified {
            certified = count;
        }
        height = height.next();
    }
    let executed_height = parts.store.tip().height;
    let mut next = from;
    let end = Height(from.0.saturating_add(certified as u64));
    let blocks = move |parts: &RpcParts| {
        if next >= end {
            return Ok(None);
        }
        let height = next;
        next = next.next();
        if let Some(item) = kept.pop_front() {
            return Ok(Some(item));
        }
        let gone = || RpcError::gone(&format!("block {height} is pruned by now"));
        let (item, _) = chain_block(parts, height)?.ok_or_else(gone)?;
        Ok(Some(item))
    };
    let head = format!(
        "{{\"executed_height\":{executed_height},\"first_height\":{first_height},\"blocks\":["
    );
    let held = kept_bytes + 2 * largest;
    Ok(Large::list(held, head, blocks, || "]}".to_owned()))
}

/// Returns a block's entry in the response of [`chain`], and whether it has its own finalization.
fn chain_block(parts: &RpcParts, height: Height) -> RpcResult<Option<(Vec<u8>, bool)>> {
    let stored = parts.store.block(height)?;
    let Some((stored, receipts)) = stored.zip(parts.store.receipts(height)?) else {
        return Ok(None);
    };
    let item = json_bytes(&ChainBlockJson {
        block: to_hex(stored.block.as_ref()),
        certificate: stored.certificate.as_ref().map(to_hex),
        outcomes: outcomes(&receipts),
    })?;
    Ok(Some((item, stored.certificate.is_some())))
}

fn outcomes(receipts: &[Receipt]) -> Vec<String> {
    let names = receipts.iter().map(|receipt| receipt.outcome.name());
    names.map(str::to_owned).collect()
}

fn json_bytes(value: &impl Serialize) -> RpcResult<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| RpcError::internal(&error))
}

/// Returns the validators that this one has blocked.
pub(super) fn blocked(live: &LiveStatus) -> Vec<BlockedJson> {
    let offenders = live.offenders().into_iter();
    offenders
        .filter(|offender| offender.standing == Standing::Blocked)
        .map(|offender| BlockedJson {
            validator: offender.validator,
            identity: offender.identity,
            reason: offender.reason,
        })
        .collect()
}

/// Returns the state of a peer's link and what the peer claims about itself.
pub(super) fn peer(live: &LiveStatus, peer: &PeerStatus) -> PeerJson {
    let validator = live.committees().known().place(&peer.identity);
    let said = match live.own() {
        Some(_) => validator
            .and_then(|place| live.peer(place))
            .map(|status| status.finalized_height),
        None => live.claimed(&peer.identity),
    };
    PeerJson {
        validator,
        identity: peer.identity,
        connected: peer.connected,
        round_trip_us: peer.round_trip_us,
        finalized_height: said,
    }
}

/// Returns the full details of all peers.
pub(super) fn peers(parts: &RpcParts) -> PeersJson {
    let live = &parts.live;
    let offenders = live.offenders();
    let peers = (parts.peers)().into_iter().map(|status| {
        let peer = peer(live, &status);
        let place = peer.validator;
        PeerDetailJson {
            last_vote: place.and_then(|place| live.last_vote(place)),
            participation_percent: place.and_then(|place| live.participation_percent(place)),
            address: (parts.address)(&peer.identity),
            offender: offenders
                .iter()
                .find(|offender| offender.identity == peer.identity)
                .cloned(),
            peer,
        }
    });
    PeersJson {
        peers: peers.collect(),
    }
}

/// Returns the account that a proof proves; the default account if it proves absence.
pub(super) fn proven_account(proven: &AccountProof, identity: &Identity) -> RpcResult<Account> {
    let value = proven
        .proof
        .verify(&proven.state_root, &state_key(identity).0)
        .map_err(|error| RpcError::internal(&error))?;
    value.map_or(Ok(Account::default()), |bytes| {
        Account::decode(Copying(bytes)).map_err(|error| RpcError::internal(&error))
    })
}
