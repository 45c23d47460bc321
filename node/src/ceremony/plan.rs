//! What all participants of a ceremony agree on beforehand.

use crate::genesis::bond_address;
use quorate_crypto::{
    Digest, Identity,
    bls::{SchemeKind, ThresholdKeys},
    sha256,
};
use quorate_p2p::PeerAddress;
use quorate_types::{
    EpochLength, RegistryRules,
    genesis::{
        ApplicationKind, BlockLimits, DEFAULT_FEES, DEFAULT_LIMITS, Fees, Genesis, GenesisAccount,
        GenesisError, GenesisValidator, Protocol,
    },
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Most participants of a ceremony. A chain can have more validators; but each participant gets a dealing of
/// 25 KiB from each of 256 others, and one silent participant stops all.
pub const MAX_PARTICIPANTS: usize = 256;

/// The default name of a plan file.
pub const PLAN_FILE: &str = "plan.toml";

/// Size limit of a plan file.
pub const MAX_PLAN_BYTES: u64 = 4 << 20;

/// The new chain, and who makes its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The chain's name, 1 to 64 bytes.
    pub name: String,
    /// The genesis file's time, in milliseconds since 1970.
    pub timestamp_ms: u64,
    #[serde(default)]
    pub protocol: Protocol,
    #[serde(default = "default_epoch")]
    pub epoch_blocks: EpochLength,
    #[serde(default = "default_limits")]
    pub limits: BlockLimits,
    #[serde(default = "default_fees")]
    pub fees: Fees,
    /// The rules of the staking registry; without them the chain has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry: Option<RegistryRules>,
    /// The validators, in the committee's order.
    pub participants: Vec<Participant>,
    /// The accounts that exist from the start.
    #[serde(default)]
    pub accounts: Vec<GenesisAccount>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Participant {
    pub identity: Identity,
    /// Where the others reach it, `host:port`: its process of the ceremony, and later its validator.
    pub address: String,
    /// What it has at stake from the start; on a chain with a registry.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stake: u64,
}

/// Why there can be no ceremony by a plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error("it is no plan: {0}")]
    Toml(#[from] toml::de::Error),
    #[error("`participants`: {found}; there must be 1 to {MAX_PARTICIPANTS}")]
    Participants { found: usize },
    #[error("`participants`: {identity} is not an ed25519 public key")]
    NotAKey { identity: Identity },
    #[error("`participants`: the address of {identity}: {problem}")]
    Address { identity: Identity, problem: String },
    #[error("`participants`: the address {address} is there twice")]
    SameAddress { address: PeerAddress },
    #[error("{0}")]
    Genesis(#[from] GenesisError),
}

fn default_epoch() -> EpochLength {
    EpochLength::DEFAULT
}

fn default_limits() -> BlockLimits {
    DEFAULT_LIMITS
}

fn default_fees() -> Fees {
    DEFAULT_FEES
}

fn is_zero(stake: &u64) -> bool {
    *stake == 0
}

impl Plan {
    /// Reads and checks a plan file's text.
    ///
    /// # Errors
    ///
    /// If it has another shape, or no genesis that a reader accepts could come out of it.
    pub fn from_toml(text: &str) -> Result<Self, PlanError> {
        let plan: Self = toml::from_str(text)?;
        plan.check()?;
        Ok(plan)
    }

    /// The file's text.
    ///
    /// # Errors
    ///
    /// If a number is 2^63 or more, which TOML cannot hold.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string_pretty(self)
    }

    /// # Errors
    ///
    /// See [`Self::from_toml`].
    pub fn check(&self) -> Result<(), PlanError> {
        let found = self.participants.len();
        if !(1..=MAX_PARTICIPANTS).contains(&found) {
            return Err(PlanError::Participants { found });
        }
        let mut seen = BTreeSet::new();
        for participant in &self.participants {
            let identity = participant.identity;
            if identity.to_public_key().is_none() {
                return Err(PlanError::NotAKey { identity });
            }
            let address = participant.address()?;
            if !seen.insert(address.to_string()) {
                return Err(PlanError::SameAddress { address });
            }
        }
        // Everything that a reader checks but for the keys, which nobody has yet.
        let none = vec![String::new(); found];
        Genesis::from_json(&self.assemble(String::new(), none).to_json())?;
        Ok(())
    }

    /// The participants that could not pay for passing their shares on, where that is done.
    pub fn without_money(&self) -> Vec<&Participant> {
        let reshares = self.registry.is_some_and(|rules| rules.resharing);
        let pays = |one: &Participant| {
            let mut accounts = self.accounts.iter();
            accounts.any(|account| account.identity == one.identity && account.balance > 0)
        };
        let all = self.participants.iter().filter(|_| reshares);
        all.filter(|one| !pays(one)).collect()
    }

    /// What the messages of a ceremony by this plan are bound to.
    pub fn digest(&self) -> Digest {
        let content = serde_json::to_vec(self).expect("a plan has only text keys");
        sha256(&[b"quorate/ceremony-plan/1", &content])
    }

    /// How many participants there are; a checked plan has at most [`MAX_PARTICIPANTS`].
    pub fn size(&self) -> u32 {
        u32::try_from(self.participants.len()).unwrap_or(u32::MAX)
    }

    /// The participant with this identity.
    pub fn place_of(&self, identity: &Identity) -> Option<u32> {
        let all = (0..).zip(&self.participants);
        let mut own = all.filter(|(_, participant)| participant.identity == *identity);
        own.next().map(|(place, _)| place)
    }

    /// The genesis with these keys, checked as a reader does.
    ///
    /// # Errors
    ///
    /// If a reader would refuse it.
    pub fn genesis(&self, keys: &ThresholdKeys) -> Result<Genesis, GenesisError> {
        let share_keys = keys.share_keys.iter().map(hex::encode).collect();
        let genesis = self.assemble(hex::encode(keys.group_key), share_keys);
        let genesis = Genesis::from_json(&genesis.to_json())?;
        genesis.scheme()?;
        Ok(genesis)
    }

    fn assemble(&self, group_key: String, vote_keys: Vec<String>) -> Genesis {
        let validators = self.participants.iter().zip(vote_keys);
        let validators = validators.map(|(participant, vote_key)| GenesisValidator {
            identity: participant.identity,
            vote_key,
            proof_of_possession: None,
            stake: participant.stake,
            address: { self.registry.as_ref() }
                .and_then(|_| participant.address().ok())
                .map(|address| bond_address(&address))
                .unwrap_or_default(),
        });
        Genesis {
            name: self.name.clone(),
            timestamp_ms: self.timestamp_ms,
            protocol: self.protocol,
            application: ApplicationKind::Ledger,
            scheme: SchemeKind::BlsThreshold.name().to_owned(),
            limits: self.limits,
            fees: self.fees,
            epoch_blocks: self.epoch_blocks,
            group_key: Some(group_key),
            registry: self.registry,
            validators: validators.collect(),
            accounts: self.accounts.clone(),
        }
    }

    /// A participant for people: its number, the beginning of its identity, its address.
    pub fn name_of(&self, place: u32) -> String {
        match self.participants.get(place as usize) {
            Some(one) => {
                let address = one
                    .address()
                    .map_or_else(|_| String::new(), |a| a.to_string());
                format!("participant {place} ({}, {address})", one.identity.short())
            }
            None => format!("participant {place}"),
        }
    }
}

impl Participant {
    /// Its address, parsed.
    ///
    /// # Errors
    ///
    /// If it is none.
    pub fn address(&self) -> Result<PeerAddress, PlanError> {
        self.address.parse().map_err(|error| PlanError::Address {
            identity: self.identity,
            problem: format!("{error}"),
        })
    }
}
