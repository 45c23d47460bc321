//! Payloads, on a chain that only orders.

use quorate_types::{Digest, Height};
use serde::{Deserialize, Serialize};

/// How far submitted payloads are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PayloadsState {
    /// They are on the validator's disk, and will be ordered.
    Stored,
    /// They are in a final block that is executed.
    Finalized,
}

/// The answer to submitted payloads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PayloadsAnswer {
    pub state: PayloadsState,
    /// The bundle that they are in: SHA-256 of its bytes.
    pub bundle: Digest,
    /// The place of the first of them in the bundle.
    pub first: u32,
    /// How many they are.
    pub count: u32,
    /// The block that orders the bundle, once it is final.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub height: Option<Height>,
    /// The place of the bundle's transaction in that block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<u32>,
}
