//! The staking registry.

use quorate_types::{Bond, Epoch, Height, Member, RegistryRules};
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
}
