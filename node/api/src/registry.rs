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
    /// The block of the contract's chain at which it was confirmed, if it is a contract.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<u64>,
    /// How many validators it lists whose stake suffices.
    pub entries: Option<usize>,
    /// Those that it lists with less than the least stake, at most 100: they count as if they were not there.
    #[serde(default)]
    pub too_small: Vec<TooSmallJson>,
    pub sources: Vec<ExternalSourceJson>,
    /// Entries of a contract that do not count, at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOutJson>,
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
    /// Its path or URL; of an endpoint of JSON-RPC only scheme, host and port.
    pub name: String,
    /// The newest final block of an endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<u64>,
    /// When it was last good, in milliseconds since 1970.
    pub last_good_ms: Option<u64>,
    /// How many validators it listed then.
    pub entries: Option<usize>,
    /// Why it is not good now.
    pub trouble: Option<String>,
}

/// An entry of a contract that does not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOutJson {
    pub validator: Identity,
    pub why: String,
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

/// How far passing on the shares of the common vote key is, on a chain whose validators share one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResharingJson {
    /// `announce`, `deal`, `object`, `prove` or `over`.
    pub phase: String,
    /// Who has announced itself for a share of the next epoch.
    pub announced: Vec<Identity>,
    /// Who is to get a share; empty until they are chosen, or if none can be.
    pub players: Vec<Identity>,
    /// The acting validators that have dealt.
    pub dealt: Vec<Identity>,
    /// Those of them that have given somebody something wrong.
    pub convicted: Vec<Identity>,
    /// The players that have proven their new shares.
    pub proven: Vec<Identity>,
    /// For how many epochs in a row the validators have kept their shares.
    pub kept_epochs: u64,
    /// Who cannot announce itself for some epochs, since it has done so and proven nothing.
    #[serde(default)]
    pub barred: Vec<BarredJson>,
}

/// A validator, or who is to be one, that cannot announce itself for a share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BarredJson {
    pub identity: Identity,
    /// The first epoch in which it can.
    pub until: Epoch,
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
    /// How far passing on shares is; absent where validators have vote keys of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resharing: Option<ResharingJson>,
}
