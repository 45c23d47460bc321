//! Builds the interface's JSON types from the index's rows.

use crate::{
    check::Progress,
    index::{Index, IndexError, TransactionPlace},
    shapes::{
        Anchor, BlockCertificate, BlockDetail, BlockName, BlockSummary, BlockTransaction, Bond,
        Finality, FinalizedEvent, Hex, Number, RegistryOperation,
    },
    verify::Guard,
};
use commonware_codec::{Copying, DecodeExt, Encode, FixedSize};
use quorate_types::{
    Certificate, Header, Height, Operation, Outcome, Transaction, VoteKey, execution,
};
use serde::Serialize;

/// Maximum number of headers between a block and the one whose finalization covers it. A range that
/// was indexed at once holds fewer.
const MAX_HEADERS: u64 = 1_024;

pub(crate) fn encoding(value: &impl Encode) -> Hex {
    Hex(value.encode().to_vec())
}

/// A block's summary. Its transactions are not decoded.
pub(crate) fn summary(
    index: &Index,
    guard: &Guard,
    height: Height,
) -> Result<Option<BlockSummary>, IndexError> {
    let bytes = index.block_bytes(height)?;
    match bytes.as_deref().and_then(head) {
        Some(head) => summary_of(index, guard, &head).map(Some),
        None => Ok(None),
    }
}

/// The beginning of a block's encoding.
struct Head {
    header: Header,
    transactions: u32,
    /// Size of the whole encoding.
    bytes: usize,
}

fn head(bytes: &[u8]) -> Option<Head> {
    let (header, rest) = bytes.split_at_checked(Header::SIZE)?;
    Some(Head {
        header: Header::decode(Copying(header)).ok()?,
        transactions: u32::from_be_bytes(*rest.first_chunk()?),
        bytes: bytes.len(),
    })
}

fn summary_of(index: &Index, guard: &Guard, head: &Head) -> Result<BlockSummary, IndexError> {
    let header = &head.header;
    let by = index.finality(header.height)?;
    Ok(BlockSummary {
        height: Number(header.height.0),
        id: header.id().into(),
        parent: header.parent.into(),
        epoch: Number(header.epoch.0),
        view: Number(header.view.0),
        leader: guard.leader(header.epoch, header.view).0,
        timestamp_ms: Number(header.timestamp_ms),
        transactions: head.transactions,
        bytes: Number(head.bytes as u64),
        finalized_by: Number(by.map_or(header.height, |(by, _)| by).0),
    })
}

pub(crate) fn block(
    index: &Index,
    guard: &Guard,
    height: Height,
) -> Result<Option<BlockDetail>, IndexError> {
    let (Some(bytes), Some(finality)) =
        (index.block_bytes(height)?, finality(index, guard, height)?)
    else {
        return Ok(None);
    };
    let Some(head) = head(&bytes) else {
        return Ok(None);
    };
    let header = &head.header;
    Ok(Some(BlockDetail {
        summary: summary_of(index, guard, &head)?,
        parent_view: Number(header.parent_view.0),
        executed_height: Number(header.executed_height.0),
        state_root: header.state_root.into(),
        body_root: header.body_root.into(),
        header: encoding(header),
        block: Hex(bytes),
        finality,
    }))
}

/// The proof that a block is final, with the block's header.
pub(crate) fn certificate(
    index: &Index,
    guard: &Guard,
    height: Height,
) -> Result<Option<BlockCertificate>, IndexError> {
    let (Some(header), Some(finality)) = (header(index, height)?, finality(index, guard, height)?)
    else {
        return Ok(None);
    };
    Ok(Some(BlockCertificate {
        height: Number(height.0),
        id: header.id().into(),
        header: encoding(&header),
        finality,
    }))
}

/// The proof that the block at a height is final.
pub(crate) fn finality(
    index: &Index,
    guard: &Guard,
    height: Height,
) -> Result<Option<Finality>, IndexError> {
    let Some((by, own)) = index.finality(height)? else {
        return Ok(None);
    };
    let mut headers = Vec::new();
    let mut last = height;
    while last < by && (headers.len() as u64) < MAX_HEADERS {
        last = last.next();
        if let Some(header) = header(index, last)? {
            headers.push(header);
        }
    }
    let certificate: Option<Certificate> = match own {
        Some(certificate) => Some(certificate),
        None => index.finality(by)?.and_then(|(_, certificate)| certificate),
    };
    let (Some(certificate), Some(finalizer)) = (certificate, header(index, by)?) else {
        return Ok(None);
    };
    let signers = guard.verifier().signers(&certificate);
    Ok(Some(Finality {
        finalized_by: BlockName {
            height: Number(by.0),
            id: finalizer.id().into(),
        },
        headers: headers.iter().map(encoding).collect(),
        certificate: encoding(&certificate),
        signers: signers.map(|signers| signers.into_iter().map(|signer| signer.0).collect()),
    }))
}

/// The newest block, which always has its own finalization.
pub(crate) fn latest(index: &Index) -> Result<Option<Anchor>, IndexError> {
    let Some(extent) = index.extent() else {
        return Ok(None);
    };
    let certificate = index.finality(extent.tip.height)?;
    Ok(certificate
        .and_then(|(_, certificate)| certificate)
        .map(|certificate| anchor(&extent.tip, &certificate)))
}

/// A header with the certificate that finalizes it.
pub(crate) fn anchor(header: &Header, certificate: &Certificate) -> Anchor {
    Anchor {
        height: Number(header.height.0),
        id: header.id().into(),
        header: encoding(header),
        certificate: encoding(certificate),
    }
}

/// The header at a height, read from the beginning of its block.
pub(crate) fn header(index: &Index, height: Height) -> Result<Option<Header>, IndexError> {
    let bytes = index.block_bytes(height)?;
    Ok(bytes.as_deref().and_then(head).map(|head| head.header))
}

/// A transaction with its position.
pub(crate) fn transaction(
    transaction: &Transaction,
    header: &Header,
    index: u32,
    outcome: Outcome,
    checks: &Progress,
) -> BlockTransaction {
    let transfer = transaction.transfer();
    BlockTransaction {
        id: transaction.id().into(),
        sender: transfer.sender.into(),
        nonce: Number(transfer.nonce),
        to: transfer.to.into(),
        amount: Number(transfer.amount),
        fee: Number(transfer.fee),
        memo: (!transfer.memo.is_empty()).then(|| Hex(transfer.memo.as_bytes().to_vec())),
        operation: execution::operation(transfer).map(operation),
        signature: Hex(transaction.signature().encode().to_vec()),
        height: Number(header.height.0),
        index,
        outcome: outcome.name().to_owned(),
        outcome_checked: checks.is_checked(header.height),
        timestamp_ms: Number(header.timestamp_ms),
    }
}

fn operation(operation: Operation) -> RegistryOperation {
    let kind = operation.name().to_owned();
    let named = RegistryOperation {
        kind,
        ..RegistryOperation::default()
    };
    let key = |key: VoteKey| Some(Hex(key.0.to_vec()));
    match operation {
        Operation::Bond {
            vote_key,
            address,
            name,
            ..
        } => RegistryOperation {
            vote_key: key(vote_key),
            address: Some(address.to_string()),
            name: Some(name.to_string()),
            ..named
        },
        Operation::RotateKey { vote_key, .. } => RegistryOperation {
            vote_key: key(vote_key),
            ..named
        },
        Operation::Describe { address, name } => RegistryOperation {
            address: Some(address.to_string()),
            name: Some(name.to_string()),
            ..named
        },
        Operation::Unbond { stake } => RegistryOperation {
            stake: Some(Number(stake)),
            ..named
        },
        Operation::Accuse {
            validator,
            evidence,
        } => RegistryOperation {
            validator: Some(validator.into()),
            evidence: Some(encoding(&*evidence)),
            ..named
        },
        Operation::Report { validator, entry } => {
            let entry = entry.as_deref();
            RegistryOperation {
                validator: Some(validator.into()),
                stake: entry.map(|entry| Number(entry.stake)),
                vote_key: entry.and_then(|entry| key(entry.vote_key)),
                address: entry.map(|entry| entry.address.to_string()),
                name: entry.map(|entry| entry.name.to_string()),
                ..named
            }
        }
        Operation::AddStake
        | Operation::Withdraw
        | Operation::Announce { .. }
        | Operation::Deal { .. }
        | Operation::Object { .. }
        | Operation::Prove { .. } => named,
    }
}

/// A bond.
pub(crate) fn bond(bond: &quorate_types::Bond) -> Bond {
    Bond {
        identity: bond.identity.into(),
        stake: Number(bond.stake),
        leaving: Number(bond.leaving),
        leaves_at: Number(bond.leaves_at.0),
        since: Number(bond.since.0),
        vote_key: Hex(bond.vote_key.0.to_vec()),
        address: bond.address.to_string(),
        name: bond.name.to_string(),
    }
}

/// The transaction at a position.
pub(crate) fn transaction_at(
    index: &Index,
    checks: &Progress,
    place: TransactionPlace,
) -> Result<Option<BlockTransaction>, IndexError> {
    let Some(block) = index.block(place.height)? else {
        return Ok(None);
    };
    let outcomes = index.outcomes(place.height)?;
    let found = block.transactions().get(place.index as usize);
    let outcome = outcomes.get(place.index as usize);
    Ok(found
        .zip(outcome)
        .map(|(found, outcome)| transaction(found, block.header(), place.index, *outcome, checks)))
}

/// The stream event for the final block at a height.
pub(crate) fn finalized_event(
    index: &Index,
    guard: &Guard,
    height: Height,
) -> Result<Option<String>, IndexError> {
    let parts = (
        summary(index, guard, height)?,
        header(index, height)?,
        finality(index, guard, height)?,
    );
    let (Some(block), Some(header), Some(finality)) = parts else {
        return Ok(None);
    };
    Ok(Some(json(&FinalizedEvent {
        kind: "finalized".to_owned(),
        height: Number(height.0),
        block,
        header: encoding(&header),
        finality,
    })))
}

pub(crate) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("shapes have only text keys")
}
