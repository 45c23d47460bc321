//! The staking registry.

use quorate_types::{Bond, Epoch, Height, Identity, Member, RegistryRules};
use serde::{Deserialize, Serialize};

/// `GET /v1/handovers?after=EPOCH`: the changes of the validators after an epoch, the oldest first, as many as
/// fit; none if there are none.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HandoversJson {
    /// The epoch of this node's next block.
    pub epoch: Epoch,
    pub handovers: Vec<HandoverJson>,
}

/// A change of the validators, with what proves it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HandoverJson {
    /// The first epoch of the new validators.
    pub epoch: Epoch,
    /// An encoded [`quorate_types::Handover`], in hexadecimal.
    pub handover: String,
}

/// A registry outside the chain, as this node reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalJson {
    /// Why the newest reading is not good; the last good one is kept.
    pub trouble: Option<String>,
    /// Why this validator cannot report what it has read.
    pub report_trouble: Option<String>,
    /// When the last good reading was confirmed, in milliseconds since 1970.
    pub read_at_ms: Option<u64>,
    /// How many validators it lists whose stake suffices.
    pub entries: Option<usize>,
    /// Those that it lists with less than the least stake, at most 100: they count as if they were not there.
    #[serde(default)]
    pub too_small: Vec<TooSmallJson>,
    pub sources: Vec<ExternalSourceJson>,
    /// Where it and the chain's state differ, at most 100.
    pub differences: Vec<DifferenceJson>,
}

/// A validator that a registry outside the chain lists with too little stake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TooSmallJson {
    pub validator: Identity,
    /// The stake that it is listed with.
    pub stake: u64,
}

/// One source of a registry outside the chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalSourceJson {
    /// Its path or URL.
    pub name: String,
    /// When it was last good, in milliseconds since 1970.
    pub last_good_ms: Option<u64>,
    /// How many validators it listed then.
    pub entries: Option<usize>,
    /// Why it is not good now.
    pub trouble: Option<String>,
}

/// A validator for which a registry outside the chain and the state differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DifferenceJson {
    pub validator: Identity,
    /// `missing` in the state, `surplus` in the state, or `changed`.
    pub kind: String,
    /// How many acting validators report what this node has read.
    pub reporters: usize,
}

/// `GET /v1/registry`: what this node's newest executed state says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RegistryJson {
    /// The block after which the state has these values.
    pub executed_height: Height,
    /// The epoch of the next block.
    pub epoch: Epoch,
    /// The block whose state fixes the validators of the next epoch.
    pub fixing_height: Height,
    /// The last block of the epoch.
    pub last_height: Height,
    pub rules: RegistryRules,
    /// The validators of the epoch, in the committee's order.
    pub acting: Vec<Member>,
    /// The validators of the next epoch, once they are fixed.
    pub coming: Option<Vec<Member>>,
    /// Everything that is bonded, by stake: the greatest first.
    pub bonds: Vec<Bond>,
    /// The registry outside the chain, on a chain that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalJson>,
}
