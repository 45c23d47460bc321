//! The JSON types of a validator's HTTP API, for server and client, and a client (feature
//! `client`). Hashes, identities and signatures are hexadecimal text; encodings are the binary
//! codec in hexadecimal; amounts are in the chain's smallest unit.

mod account;
mod chain;
#[cfg(feature = "client")]
mod client;
mod encoding;
mod error;
mod payloads;
mod peers;
mod registry;
mod snapshots;
mod status;
mod transaction;
pub mod verdict;

pub use account::{AccountJson, AccountProofJson};
pub use chain::{
    BlockJson, BlockSummaryJson, BlockTransactionJson, BlocksJson, CertificateJson,
    CertificatesJson, ChainBlockJson, ChainJson,
};
#[cfg(feature = "client")]
pub use client::{ClientError, RpcClient, TIMEOUT as ANSWER_TIMEOUT};
pub use encoding::{block_of, from_hex, to_hex, transaction_from_hex};
pub use error::{ErrorBody, ErrorDetail};
pub use payloads::{PayloadsAnswer, PayloadsState};
pub use peers::{
    BlockedJson, EvidenceJson, EvidenceListJson, ExhibitJson, MovedPeerJson, OffenderJson,
    OrderAnswer, OrderJson, PeerDetailJson, PeerJson, PeersJson, ReloadedJson, Standing,
};
pub use registry::{
    BarredJson, DifferenceJson, ExternalJson, ExternalSourceJson, HandoverJson, HandoversJson,
    LeftOutJson, RegistryJson, ResharingJson, TooSmallJson,
};
pub use snapshots::{SnapshotJson, SnapshotPartJson, SnapshotProofJson, SnapshotsJson};
pub use status::{PayloadsStatusJson, StatusJson, SyncJson, SyncState, TurnJson};
pub use transaction::{
    MAX_SUBMITTED, SubmitAnswer, SubmitRequest, TransactionJson, TransactionResult,
    TransactionState,
};
