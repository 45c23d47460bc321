//! The vocabulary of Quorate: what validators say to each other, what they store, and the one
//! binary form of each.
//!
//! Everything that travels or is stored has a bounded codec: lengths are checked before memory is
//! taken, and bytes from outside never panic. The limits are in [`limits`]. Everything of the
//! consensus is keyed by epoch.

mod block;
mod bundle;
mod certificate;
mod chain;
mod codec;
mod committee;
mod committees;
mod durable;
mod epoch_keys;
mod epochs;
mod evidence;
pub mod execution;
pub mod genesis;
mod handover;
mod head;
mod ids;
mod ledger;
pub mod limits;
mod merkle;
mod message;
mod record;
pub mod registry;
mod snapshot;
mod span;
mod standing;
mod transaction;
mod vote;

pub use block::{Block, BlockError, Header};
pub use bundle::{Bundle, BundleError, BundleRef, NotItsBundle, OrderedBundle, PAYLOADS};
pub use certificate::Certificate;
pub use chain::ChainId;
pub use committee::{Committee, CommitteeError};
pub use committees::{Committees, Roster, Succession, roster};
pub use durable::Durable;
pub use epoch_keys::EpochKeys;
pub use epochs::EpochLength;
pub use evidence::{Conflict, Evidence};
pub use handover::{Handover, HandoverFlaw};
pub use head::{Head, Unread};
pub use ids::{Epoch, Height, ValidatorIndex, View};
pub use ledger::{Account, Failure, Outcome, Receipt, state_key};
pub use merkle::{merkle_path, merkle_root, merkle_verify};
pub use message::{Frame, Message, Proposal, RELAY_NAMESPACE, Relayed, Status};
pub use record::{Record, Silence};
pub use registry::{
    Bond, BondAddress, BondName, ExternalEntry, ExternalRules, Member, OpeningKey, Operation,
    Phase, Possession, REGISTRY, RegistryNote, RegistryRules, RoundNote, SLASHED, Slashing,
    ValidatorSet, VoteKey,
};
pub use snapshot::{
    ChunkAnswer, ChunkRequest, SnapshotFlaw, SnapshotProof, SnapshotRegistry, SnapshotSubject,
};
pub use span::{MAX_SPAN_BITS, Span};
pub use standing::{JournalState, Nonce, Position, Standing};
pub use transaction::{
    Memo, MemoTooLong, TRANSACTION_NAMESPACE, Transaction, TransactionError, Transfer,
};
pub use vote::{Subject, Vote, VoteKind};

pub use quorate_crypto::{Digest, Identity, IdentitySignature};
