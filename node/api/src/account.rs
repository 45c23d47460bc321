//! Accounts and their proofs.

use quorate_types::{Bond, Digest, Height, Identity};
use serde::{Deserialize, Serialize};

/// `GET /v1/accounts/{identity}`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AccountJson {
    pub identity: Identity,
    /// The block after which the account has these values; nodes of an earlier version do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executed_height: Option<Height>,
    pub nonce: u64,
    pub balance: u64,
    /// The first free nonce, if it differs from `nonce`: transfers of the account are pending in
    /// this validator's mempool, or were executed after the proven state. This value is not proven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_nonce: Option<u64>,
    /// What it has at stake, if anything. Its `since` is the epoch before which it cannot be chosen. Part of what
    /// is proven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bond: Option<Bond>,
    /// The account's proof; with `?proof=true` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<AccountProofJson>,
}

/// The proof of an account, as encodings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AccountProofJson {
    /// The height whose state contains the account.
    pub executed_height: Height,
    /// The root of that state.
    pub state_root: Digest,
    /// The proof in the state tree.
    pub proof: String,
    /// A final header that commits to the height and the root.
    pub header: String,
    /// The finalization of that header.
    pub certificate: String,
}
