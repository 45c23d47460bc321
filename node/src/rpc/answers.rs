//! What the interface reads, and waiting for it.

use super::{
    RpcParts, RpcState,
    error::{RpcError, RpcResult},
    live::LiveStatus,
};
use crate::executor::AccountProof;
use commonware_codec::{Copying, DecodeExt};
use quorate_load::api::{
    BlockJson, BlockSummaryJson, BlockTransactionJson, BlockedJson, ChainBlockJson, ChainJson,
    PeerDetailJson, PeerJson, PeersJson, Standing, TransactionJson, TransactionResult,
    TransactionState, to_hex,
};
use quorate_p2p::PeerStatus;
use quorate_types::{Account, Digest, Height, Identity, Status, state_key};
use std::time::Duration;

/// Headers between a block and the descendant whose finalization stands for it, at most.
const MAX_DESCENDANTS: u64 = 64;

/// Bytes of encodings after which a range takes no further block.
const MAX_CHAIN_BYTES: usize = 4 << 20;

/// Most blocks, and bytes of encodings, of a range in which no block has a finalization of its own
/// for so long.
const MAX_UNCERTIFIED_BLOCKS: usize = 1_024;
const MAX_UNCERTIFIED_BYTES: usize = 16 << 20;

/// A transaction in a final block or in the mempool.
pub(super) fn find_transaction(
    parts: &RpcParts,
    id: &Digest,
) -> RpcResult<Option<TransactionResult>> {
    let mut result = TransactionResult {
        id: *id,
        state: TransactionState::Pending,
        height: None,
        index: None,
        outcome: None,
        error: None,
    };
    if let Some(place) = parts.store.transaction(id)? {
        let receipts = parts.store.receipts(place.height)?.unwrap_or_default();
        result.state = TransactionState::Finalized;
        result.height = Some(place.height);
        result.index = Some(place.index);
        result.outcome = receipts
            .get(place.index as usize)
            .map(|receipt| receipt.outcome.name().to_owned());
        return Ok(Some(result));
    }
    Ok(parts.mempool.contains(id).then_some(result))
}

/// Waits until none of these is pending any more, or the time is up.
pub(super) async fn await_final(
    state: &RpcState,
    mut results: Vec<TransactionResult>,
    timeout: Duration,
) -> RpcResult<Vec<TransactionResult>> {
    let _room = state
        .inner
        .waiters
        .try_acquire()
        .map_err(|_| RpcError::busy("too many requests wait for finality; try again later"))?;
    let deadline = tokio::time::Instant::now() + timeout;
    let mut news = state.parts().executor.executed();
    loop {
        news.mark_unchanged();
        results = state
            .reading(move |parts| {
                results
                    .into_iter()
                    .map(|result| {
                        if result.state != TransactionState::Pending {
                            return Ok(result);
                        }
                        Ok(find_transaction(parts, &result.id)?.unwrap_or(result))
                    })
                    .collect::<RpcResult<Vec<_>>>()
            })
            .await?;
        let done = results
            .iter()
            .all(|result| result.state != TransactionState::Pending);
        if done {
            return Ok(results);
        }
        match tokio::time::timeout_at(deadline, news.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err(RpcError::unavailable("stopping", "the node is stopping")),
            Err(_) => return Ok(results),
        }
    }
}

/// Waits until a height is executed, or the time is up.
pub(super) async fn await_height(
    state: &RpcState,
    height: Height,
    timeout: Duration,
) -> RpcResult<()> {
    let _room = state
        .inner
        .waiters
        .try_acquire()
        .map_err(|_| RpcError::busy("too many requests wait for blocks; try again later"))?;
    let mut news = state.parts().executor.executed();
    let reached = news.wait_for(|executed| executed.height >= height);
    match tokio::time::timeout(timeout, reached).await {
        Ok(Ok(_)) | Err(_) => Ok(()),
        Ok(Err(_)) => Err(RpcError::unavailable("stopping", "the node is stopping")),
    }
}

/// A block by its height, its id, or `latest`.
pub(super) fn block(parts: &RpcParts, which: &str) -> RpcResult<BlockJson> {
    let height = if which == "latest" {
        parts.store.tip().height
    } else if let Ok(height) = which.parse() {
        Height(height)
    } else if let Ok(id) = which.parse::<Digest>() {
        parts
            .store
            .height_of(&id)?
            .ok_or_else(|| RpcError::not_found("unknown_block", "no final block has this id"))?
    } else {
        return Err(RpcError::bad_request(
            "a block is named by its height, its id (64 hexadecimal digits), or `latest`",
        ));
    };
    let pruned = parts.store.pruned_below()?;
    if height < pruned && height.0 > 0 {
        return Err(RpcError::gone(&format!(
            "block {height} is pruned: this validator keeps the blocks from {pruned} on; ask one \
             that keeps more"
        )));
    }
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
    let transactions = stored.block.transactions().iter().zip(&receipts);
    Ok(BlockJson {
        id: stored.block.id(),
        height,
        epoch: header.epoch.0,
        view: header.view,
        leader: parts.live.committee().leader_in(header.epoch, header.view),
        parent: header.parent,
        timestamp_ms: header.timestamp_ms,
        executed_height: header.executed_height,
        state_root: header.state_root,
        transactions: transactions
            .map(|(transaction, receipt)| BlockTransactionJson {
                id: transaction.id(),
                fields: TransactionJson::from_transaction(transaction),
                outcome: receipt.outcome.name().to_owned(),
            })
            .collect(),
        block: to_hex(stored.block.as_ref()),
        descendants,
        certificate,
    })
}

/// The headers down to the nearest block with a finalization, and that finalization.
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

/// Consecutive blocks in short.
pub(super) fn summaries(
    parts: &RpcParts,
    from: Height,
    limit: u64,
) -> RpcResult<Vec<BlockSummaryJson>> {
    let mut blocks = Vec::new();
    let mut height = from;
    for _ in 0..limit {
        let Some(stored) = parts.store.block(height)? else {
            break;
        };
        let receipts = parts.store.receipts(height)?.unwrap_or_default();
        blocks.push(BlockSummaryJson {
            height,
            id: stored.block.id(),
            timestamp_ms: stored.block.header().timestamp_ms,
            transactions: receipts.iter().map(|receipt| receipt.transaction).collect(),
            outcomes: receipts
                .iter()
                .map(|receipt| receipt.outcome.name().to_owned())
                .collect(),
        });
        height = height.next();
    }
    Ok(blocks)
}

/// Consecutive blocks by their encodings, for whoever follows the chain. The list goes on beyond
/// `limit` until a block with a finalization of its own ends it, so that all of it can be verified;
/// what follows the last such block is left out.
pub(super) fn chain(parts: &RpcParts, from: Height, limit: u64) -> RpcResult<ChainJson> {
    let first_height = parts.store.pruned_below()?;
    let executed_height = parts.store.tip().height;
    if from < first_height && first_height <= executed_height {
        return Err(RpcError::gone(&format!(
            "block {from} is pruned: this validator keeps the blocks from {first_height} on"
        )));
    }
    let mut blocks = Vec::new();
    let (mut height, mut certified, mut bytes) = (from, 0, 0);
    while blocks.len() < MAX_UNCERTIFIED_BLOCKS && bytes < MAX_UNCERTIFIED_BYTES {
        if certified > 0 && (blocks.len() as u64 >= limit || bytes >= MAX_CHAIN_BYTES) {
            break;
        }
        let stored = parts.store.block(height)?;
        let Some((stored, receipts)) = stored.zip(parts.store.receipts(height)?) else {
            break;
        };
        let block = to_hex(stored.block.as_ref());
        bytes += block.len();
        blocks.push(ChainBlockJson {
            block,
            certificate: stored.certificate.as_ref().map(to_hex),
            outcomes: receipts
                .iter()
                .map(|receipt| receipt.outcome.name().to_owned())
                .collect(),
        });
        if stored.certificate.is_some() {
            certified = blocks.len();
        }
        height = height.next();
    }
    blocks.truncate(certified);
    Ok(ChainJson {
        executed_height,
        first_height,
        blocks,
    })
}

/// Whom this validator has blocked.
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

/// A peer's link and what it says of itself.
pub(super) fn peer(live: &LiveStatus, peer: &PeerStatus) -> PeerJson {
    let validator = live.committee().place(&peer.identity);
    let said: Option<Status> = validator.and_then(|place| live.peer(place));
    PeerJson {
        validator,
        identity: peer.identity,
        connected: peer.connected,
        round_trip_us: peer.round_trip_us,
        finalized_height: said.map(|status| status.finalized_height),
    }
}

/// Everything that is known of each peer.
pub(super) fn peers(parts: &RpcParts) -> PeersJson {
    let live = &parts.live;
    let offenders = live.offenders();
    let peers = (parts.peers)().into_iter().map(|status| {
        let peer = peer(live, &status);
        let place = peer.validator;
        PeerDetailJson {
            last_vote: place.and_then(|place| live.last_vote(place)),
            participation_percent: place.and_then(|place| live.participation_percent(place)),
            address: parts
                .addresses
                .iter()
                .find(|(identity, _)| *identity == peer.identity)
                .map(|(_, address)| address.to_string()),
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

/// The account that a proof proves; the default if it proves that there is none.
pub(super) fn proven_account(proven: &AccountProof, identity: &Identity) -> RpcResult<Account> {
    let value = proven
        .proof
        .verify(&proven.state_root, &state_key(identity).0)
        .map_err(|error| RpcError::internal(&error))?;
    value.map_or(Ok(Account::default()), |bytes| {
        Account::decode(Copying(bytes)).map_err(|error| RpcError::internal(&error))
    })
}
