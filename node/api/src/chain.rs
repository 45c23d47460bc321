//! Blocks and certificates.

use crate::TransactionJson;
use quorate_types::{Digest, Height, ValidatorIndex, View};
use serde::{Deserialize, Serialize};

/// A transaction in a block.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BlockTransactionJson {
    pub id: Digest,
    #[serde(flatten)]
    pub fields: TransactionJson,
    pub outcome: String,
}

/// `GET /v1/blocks/{height|id|latest}`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BlockJson {
    pub id: Digest,
    pub height: Height,
    /// The epoch of the proposal.
    pub epoch: u64,
    /// The view of the proposal.
    pub view: View,
    /// The proposer.
    pub leader: ValidatorIndex,
    /// The parent's id.
    pub parent: Digest,
    /// The leader's clock, in milliseconds since 1970.
    pub timestamp_ms: u64,
    /// The height whose state root the block commits to.
    pub executed_height: Height,
    /// The root of that state.
    pub state_root: Digest,
    /// In execution order.
    pub transactions: Vec<BlockTransactionJson>,
    /// The block's encoding.
    pub block: String,
    /// The encoded headers from the next block to the one that `certificate` finalizes; empty if
    /// `certificate` finalizes this block.
    pub descendants: Vec<String>,
    /// The encoded finalization of this block or of the last of `descendants`. Missing for a moment
    /// on the newest blocks if they have no finalization of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
}

/// A block in `GET /v1/blocks?from=`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BlockSummaryJson {
    pub height: Height,
    pub id: Digest,
    /// The leader's clock, in milliseconds since 1970.
    pub timestamp_ms: u64,
    /// The transactions' ids.
    pub transactions: Vec<Digest>,
    /// The transactions' outcomes.
    pub outcomes: Vec<String>,
}

/// `GET /v1/blocks?from=`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BlocksJson {
    /// Consecutive final blocks.
    pub blocks: Vec<BlockSummaryJson>,
}

/// A final block in `GET /v1/chain`, as encodings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChainBlockJson {
    /// The block's encoding.
    pub block: String,
    /// The encoding of the block's own finalization, if it has one; otherwise a later block's
    /// finalization also covers this block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// The transactions' outcomes.
    pub outcomes: Vec<String>,
}

/// `GET /v1/chain`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChainJson {
    /// The newest executed height.
    pub executed_height: Height,
    /// The lowest stored height.
    pub first_height: Height,
    /// Consecutive final blocks.
    pub blocks: Vec<ChainBlockJson>,
}

/// A certificate in `GET /v1/certificates`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CertificateJson {
    /// A sequence number in order of arrival.
    pub number: u64,
    /// Its encoding.
    pub certificate: String,
    /// For a nullification, why the view produced no block, as far as this validator knows:
    /// `no_valid_proposal_in_time`, `no_quorum_in_time` or `unknown`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `GET /v1/certificates`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CertificatesJson {
    /// Identifies the validator's process; numbers restart with each process.
    pub session: u64,
    /// The number of the newest certificate.
    pub newest: u64,
    /// In order of arrival.
    pub certificates: Vec<CertificateJson>,
}
