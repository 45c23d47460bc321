//! A validator's view of its peers, and the operator's commands about them.

use quorate_types::{ChainId, Digest, Height, Identity, ValidatorIndex, View};
use serde::{Deserialize, Serialize};

/// A peer as a validator sees it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeerJson {
    /// The number in the committee.
    pub validator: Option<ValidatorIndex>,
    pub identity: Identity,
    pub connected: bool,
    /// The round-trip time in microseconds.
    pub round_trip_us: Option<u64>,
    /// The finalized height that the peer claims.
    pub finalized_height: Option<Height>,
}

/// A validator's penalty for a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// All its messages are ignored.
    Blocked,
    /// Each of its votes is verified individually before it counts.
    Probation,
    /// It was blocked or on probation, and is trusted again.
    Pardoned,
    /// Its link is refused for a while, because of what it sent.
    Cut,
    /// Only its votes and proposals are processed for a while, because of what it sent.
    Muted,
}

/// A validator that is blocked or on probation; also an entry of `offenders.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OffenderJson {
    pub identity: Identity,
    /// The number in the committee.
    pub validator: ValidatorIndex,
    pub standing: Standing,
    /// The offence: `invalid_vote`, `invalid_proposal`, `invalid_certificate`, `invalid_evidence`,
    /// `equivocation`, or `operator` if it was blocked by order.
    pub reason: String,
    /// Whether the operator ordered this.
    pub ordered: bool,
    /// The start of the penalty, in milliseconds since 1970.
    pub since_ms: u64,
    /// The end of the penalty; if missing, it lasts until the operator lifts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
    /// The pardon covers offences up to this epoch and view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pardoned_until: Option<(u64, View)>,
    /// The proof of the offence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<ExhibitJson>,
}

/// The proof of an offence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExhibitJson {
    /// `vote`, `certificate` or `evidence`.
    pub kind: String,
    /// A description for people.
    pub summary: String,
    /// The encoding.
    pub hex: String,
}

/// An entry of `GET /v1/peers`, for each other validator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeerDetailJson {
    /// The state of the link, and what the peer claims about itself.
    #[serde(flatten)]
    pub peer: PeerJson,
    /// The address in the configuration; for the operator only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The epoch and view of the newest vote received from the peer.
    pub last_vote: Option<(u64, View)>,
    /// The percentage of the newest certificates that the peer signed, among those that name their
    /// signers; only with `bls-aggregate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub participation_percent: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offender: Option<OffenderJson>,
}

/// `GET /v1/peers`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeersJson {
    /// All other validators.
    pub peers: Vec<PeerDetailJson>,
}

/// A verified pair of conflicting votes; also a file in the folder `evidence`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvidenceJson {
    pub id: Digest,
    pub chain_id: ChainId,
    /// `two_notarize`, `two_finalize`, `finalize_and_nullify` or `notarize_and_finalize`.
    pub conflict: String,
    /// The signer of both votes.
    pub validator: ValidatorIndex,
    /// The signer's identity.
    pub identity: Option<Identity>,
    pub epoch: u64,
    pub view: View,
    /// A description for people.
    pub first: String,
    /// A description for people.
    pub second: String,
    /// When this validator verified it, in milliseconds since 1970.
    pub noticed_ms: u64,
    /// The encoding of both votes, which is what gets verified.
    pub hex: String,
}

/// `GET /v1/evidence`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EvidenceListJson {
    pub evidence: Vec<EvidenceJson>,
}

/// `POST /v1/peers/block` and `POST /v1/peers/unblock` on a validator's control socket.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderJson {
    /// The peer's identity, or its number in the committee.
    pub peer: String,
    /// The duration in seconds; if missing, until the operator lifts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
}

/// The answer to [`OrderJson`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OrderAnswer {
    /// The peer's penalty now; `None` if it has none and had none.
    pub offender: Option<OffenderJson>,
}

/// The effect of rereading the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadedJson {
    /// Peers with a changed address.
    pub peers: Vec<MovedPeerJson>,
    /// The new log level, if it has changed.
    pub log_level: Option<String>,
    /// Keys whose values differ from what the validator runs with, and need a restart.
    pub need_restart: Vec<String>,
    /// Why something was not applied.
    pub notes: Vec<String>,
}

/// A peer with a changed address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedPeerJson {
    pub identity: Identity,
    /// The previous address.
    pub before: String,
    /// The new address.
    pub now: String,
}

/// A validator that another one has blocked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockedJson {
    /// The number in the committee.
    pub validator: ValidatorIndex,
    pub identity: Identity,
    /// The offence.
    pub reason: String,
}
