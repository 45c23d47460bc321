//! The snapshots of the state that a validator keeps for others.

use quorate_types::{Digest, Height};
use serde::{Deserialize, Serialize};

/// The snapshots that a validator keeps, newest last.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SnapshotsJson {
    pub snapshots: Vec<SnapshotJson>,
}

/// A snapshot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SnapshotJson {
    /// The block after which the state is this.
    pub height: Height,
    pub block_id: Digest,
    pub state_root: Digest,
    /// The time of that block, in milliseconds since 1970.
    pub timestamp_ms: u64,
}

/// What certifies a snapshot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SnapshotProofJson {
    /// A finalization, and the headers from the snapshot's block to the finalized one: encoded, in
    /// hexadecimal.
    pub proof: String,
    /// The snapshot's block, encoded, in hexadecimal.
    pub block: String,
}

/// A part of a snapshot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SnapshotPartJson {
    /// The accounts whose keys are in the requested part of the key space, with their proof,
    /// encoded, in hexadecimal. `None` if there are too many for one answer: request its halves.
    pub part: Option<String>,
}
