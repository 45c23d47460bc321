//! The genesis file, from which a chain starts, and the small trust file made from it.
//!
//! The trust file lists the committee for both schemes, although the group key alone verifies
//! threshold certificates: evidence is verified against a single validator's key.

use crate::{
    Account, Bond, BondAddress, BondName, Certificate, ChainId, Committee, CommitteeError,
    Committees, Epoch, EpochKeys, EpochLength, ExternalRules, Header, Member, RegistryRules,
    Transfer, ValidatorIndex, ValidatorSet, Vote, VoteKey,
    codec::LIST_COUNT_BYTES,
    limits::{
        MAX_BLOCK_BYTES, MAX_BLOCK_TRANSACTIONS, MAX_BONDS, MAX_CHAIN_NAME_BYTES, MAX_VALIDATORS,
        MIN_REGISTERED_EPOCH_BLOCKS, MIN_REGISTERED_VALIDATORS,
    },
    registry::{
        MAX_REPORT_EPOCHS, is_reserved,
        resharing::{MAX_SHARING_VALIDATORS, MIN_SHARING_EPOCH_BLOCKS},
    },
};
use commonware_codec::FixedSize;
use quorate_crypto::{
    Identity,
    bls::{AggregateMember, Scheme, SchemeKind, ThresholdKeys},
    sha256,
};
use serde::{Deserialize, Serialize};
use serde_path_to_error::Segment;
use std::{
    collections::{BTreeMap, BTreeSet},
    str::FromStr,
};

/// Which protocol the validators run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// Simplex with rotating leaders.
    #[default]
    Simplex,
    /// Chained HotStuff with rotating leaders.
    HotstuffChained,
    /// Basic HotStuff: one block for each leader, decided in three phases.
    HotstuffBasic,
    /// PBFT: a leader stays until it fails.
    Pbft,
}

impl Protocol {
    pub const ALL: [Self; 4] = [
        Self::Simplex,
        Self::HotstuffChained,
        Self::HotstuffBasic,
        Self::Pbft,
    ];

    /// Its name in genesis files and on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Simplex => "simplex",
            Self::HotstuffChained => "hotstuff-chained",
            Self::HotstuffBasic => "hotstuff-basic",
            Self::Pbft => "pbft",
        }
    }

    /// Whether the views of a turn are the phases of one block.
    pub fn has_phases(self) -> bool {
        self == Self::HotstuffBasic
    }

    /// The length of an epoch unless something else is asked for. A validator that has lost its journal is silent to the end of
    /// the next one, but for simplex.
    pub fn usual_epoch(self) -> EpochLength {
        match self {
            Self::Simplex => EpochLength::DEFAULT,
            Self::HotstuffChained | Self::HotstuffBasic | Self::Pbft => EpochLength::SHORT,
        }
    }

    /// How many views a block takes.
    pub fn views_per_block(self) -> u64 {
        match self.has_phases() {
            true => self.longest_turn(),
            false => 1,
        }
    }

    /// How many views in a row one validator leads, at most ([`Turns`]).
    fn longest_turn(self) -> u64 {
        match self {
            Self::Simplex | Self::HotstuffChained => 1,
            Self::HotstuffBasic => 3,
            Self::Pbft => 100,
        }
    }
}

/// What a chain's transactions do ([`crate::execution::Application`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApplicationKind {
    /// Accounts pay each other.
    #[default]
    Ledger,
    /// Payloads, which mean nothing to the chain, are ordered and stored.
    OrderOnly,
}

impl ApplicationKind {
    pub const ALL: [Self; 2] = [Self::Ledger, Self::OrderOnly];

    pub fn name(self) -> &'static str {
        match self {
            Self::Ledger => "ledger",
            Self::OrderOnly => "order-only",
        }
    }
}

impl FromStr for ApplicationKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let mut all = Self::ALL.into_iter();
        all.find(|one| one.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name);
            format!("known applications: {}", known.join(", "))
        })
    }
}

/// How many views in a row one validator leads.
///
/// On a chain with a registry, all of a set's validators must have led a block before the middle of an epoch (N3 of
/// `registry/next.rs`), or no change of the set is taken up. So there PBFT's turns are so short that each validator has
/// two before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    pub protocol: Protocol,
    /// The blocks of an epoch, if the chain has a registry.
    pub epoch_blocks: Option<EpochLength>,
}

impl Turns {
    /// Those of a chain without a registry.
    pub fn of(protocol: Protocol) -> Self {
        Self {
            protocol,
            epoch_blocks: None,
        }
    }

    /// The views of one turn, with so many validators: at least 1.
    pub fn length(self, validators: usize) -> u64 {
        let longest = self.protocol.longest_turn();
        match self.epoch_blocks {
            Some(epoch) if !self.protocol.has_phases() => {
                let each = epoch.blocks() / 4 / validators.max(1) as u64;
                each.clamp(1, longest)
            }
            _ => longest,
        }
    }
}

impl FromStr for Protocol {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let mut all = Self::ALL.into_iter();
        all.find(|one| one.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name);
            format!("known protocols: {}", known.join(", "))
        })
    }
}

/// Everything that the validators of a chain must agree on before its first block.
///
/// The chain's id is the hash of this content, so a validator with another genesis file speaks
/// to nobody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Genesis {
    /// A name for people, 1 to 64 bytes. Two chains may share it.
    pub name: String,
    /// When the file was made, in milliseconds since 1970. Blocks are later.
    pub timestamp_ms: u64,
    /// The consensus protocol.
    pub protocol: Protocol,
    /// What transactions do.
    #[serde(default, skip_serializing_if = "is_default")]
    pub application: ApplicationKind,
    /// The vote scheme's name: `bls-threshold` or `bls-aggregate`.
    pub scheme: String,
    /// Limits on each block.
    pub limits: BlockLimits,
    /// The least that a transfer pays; without it, nothing.
    #[serde(default, skip_serializing_if = "Fees::are_none")]
    pub fees: Fees,
    /// How many blocks an epoch has; at least 1.
    pub epoch_blocks: EpochLength,
    /// The compressed group key in G2, 96 bytes in hexadecimal; with `bls-threshold` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_key: Option<String>,
    /// The rules of the staking registry; without them the chain has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry: Option<RegistryRules>,
    /// The validators in the committee's order.
    pub validators: Vec<GenesisValidator>,
    /// The accounts that exist from the start. Each identity once; the sum fits in 64 bits.
    pub accounts: Vec<GenesisAccount>,
}

/// How much a block may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockLimits {
    /// Most transactions in a block: 1 to 8,192.
    pub max_transactions: usize,
    /// Most bytes of an encoded block: 1,024 to 2,097,152.
    pub max_bytes: usize,
}

/// The least that a transfer pays beside its amount, in the chain's smallest unit. It is what makes
/// filling blocks cost something, whoever does it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fees {
    /// For any transfer.
    pub per_transfer: u64,
    /// For each byte of its memo.
    pub per_memo_byte: u64,
}

impl Fees {
    /// Transfers may be free.
    pub const NONE: Self = Self {
        per_transfer: 0,
        per_memo_byte: 0,
    };

    /// The least that this transfer may pay.
    pub fn minimum(&self, transfer: &Transfer) -> u64 {
        let memo_bytes = transfer.memo.as_bytes().len() as u64;
        let memo = self.per_memo_byte.saturating_mul(memo_bytes);
        self.per_transfer.saturating_add(memo)
    }

    fn are_none(&self) -> bool {
        *self == Self::NONE
    }
}

impl BlockLimits {
    /// The most bytes that a block's transactions may have.
    pub fn transaction_bytes(&self) -> usize {
        self.max_bytes
            .saturating_sub(Header::SIZE + LIST_COUNT_BYTES)
    }
}

/// What a block may hold unless something else is asked for.
pub const DEFAULT_LIMITS: BlockLimits = BlockLimits {
    max_transactions: 4_096,
    max_bytes: 1 << 20,
};

/// What a transfer pays at least unless something else is asked for.
pub const DEFAULT_FEES: Fees = Fees {
    per_transfer: 1,
    per_memo_byte: 1,
};

/// One validator of the genesis committee.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GenesisValidator {
    /// Its ed25519 identity.
    pub identity: Identity,
    /// The public key of its vote share, or its own vote key: compressed in G2, 96 bytes in
    /// hexadecimal.
    pub vote_key: String,
    /// The proof that it knows the vote key's secret, a compressed point of G1, 48 bytes in
    /// hexadecimal; with `bls-aggregate` only. It is bound to the chain's name and the identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof_of_possession: Option<String>,
    /// What it has at stake from the start, beside its account's balance; on a chain with a registry.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stake: u64,
    /// Where it can be reached, `host:port`, until its bond says otherwise; on a chain with a registry. Without
    /// it, who comes later cannot link with this validator before its operator has put the address into the registry.
    #[serde(default, skip_serializing_if = "BondAddress::is_empty")]
    pub address: BondAddress,
}

impl GenesisValidator {
    /// Its vote key for `bls-aggregate`.
    ///
    /// # Errors
    ///
    /// If that is not hexadecimal of its length.
    pub fn vote_key(&self) -> Result<VoteKey, GenesisError> {
        Ok(VoteKey(parse_hex("validators[].vote_key", &self.vote_key)?))
    }

    /// The validator as a member of a set.
    ///
    /// # Errors
    ///
    /// As for [`Self::vote_key`].
    pub fn member(&self) -> Result<Member, GenesisError> {
        Ok(Member {
            identity: self.identity,
            vote_key: self.vote_key()?,
            address: self.address.clone(),
            name: BondName::default(),
        })
    }
}

fn check_external(rules: &RegistryRules, external: &ExternalRules) -> Result<(), GenesisError> {
    if !(1..=MAX_REPORT_EPOCHS).contains(&external.report_epochs) {
        return Err(value_error(
            "registry.external.report_epochs",
            format!("1 to {MAX_REPORT_EPOCHS}"),
        ));
    }
    if rules.slashing.is_some() {
        return Err(value_error(
            "registry.slashing",
            "left out with `registry.external`: the stake is not on this chain, so nothing can be taken of it",
        ));
    }
    Ok(())
}

fn is_zero(stake: &u64) -> bool {
    *stake == 0
}

/// One account of the genesis state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GenesisAccount {
    /// Its owner.
    pub identity: Identity,
    /// What it holds, in the chain's smallest unit.
    pub balance: u64,
}

/// What a verifier needs to trust: enough to check every finalization of the chain, and evidence
/// against any validator, offline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trust {
    /// The chain's name.
    pub name: String,
    /// The chain's id: the hash of its genesis content.
    pub chain_id: ChainId,
    /// The vote scheme's name.
    pub scheme: String,
    /// The compressed group key in G2, 96 bytes in hexadecimal; with `bls-threshold` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_key: Option<String>,
    /// How many blocks an epoch has, on a chain whose validators can change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch_blocks: Option<EpochLength>,
    /// The first epoch of these validators: 0 for those of the genesis file.
    #[serde(default, skip_serializing_if = "is_first")]
    pub epoch: Epoch,
    /// The protocol, which tells who leads a view. Nothing else depends on it here.
    #[serde(default, skip_serializing_if = "is_default")]
    pub protocol: Protocol,
    /// The validators in the committee's order, with their vote keys.
    pub validators: Vec<GenesisValidator>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Reads JSON, and says in which key it is wrong.
fn read_json<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, GenesisError> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let read = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let key = error.path().to_string();
        let mut segments = error.path().iter();
        let names_one = segments.any(|segment| !matches!(segment, Segment::Unknown));
        match error.into_inner() {
            source if let Some(missing) = missing_key(&source) => GenesisError::Missing {
                key: match names_one {
                    true => format!("{key}.{missing}"),
                    false => missing,
                },
            },
            source if names_one => GenesisError::Shape { key, source },
            source => GenesisError::Json(source),
        }
    })?;
    reader.end()?;
    Ok(read)
}

/// The key that is missing, if that is the error. `serde` says so in words only.
fn missing_key(error: &serde_json::Error) -> Option<String> {
    let text = error.to_string();
    let (key, _) = text.strip_prefix("missing field `")?.split_once('`')?;
    Some(key.to_owned())
}

fn is_first(epoch: &Epoch) -> bool {
    *epoch == Epoch(0)
}

/// A genesis or trust file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GenesisError {
    /// The text is not JSON of the right shape.
    #[error("not a valid file: {0}")]
    Json(#[from] serde_json::Error),
    /// What a key holds is not of the right shape.
    #[error("`{key}`: {source}")]
    Shape {
        /// The key's path in the file.
        key: String,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// A key is not there.
    #[error(
        "the key `{key}` is missing. This file is the same for all who use the chain: copy it from another of them"
    )]
    Missing {
        /// The key's path in the file.
        key: String,
    },
    /// A value is out of its range.
    #[error("`{key}` must be {expected}")]
    Value {
        /// The key in the file.
        key: &'static str,
        /// What it may be.
        expected: String,
    },
    /// The validators make no committee.
    #[error("`validators`: {0}")]
    Committee(#[from] CommitteeError),
    /// The vote keys are not valid for the scheme.
    #[error("the vote keys in `validators`, or `group_key`: {0}")]
    Keys(String),
}

fn value_error(key: &'static str, expected: impl Into<String>) -> GenesisError {
    GenesisError::Value {
        key,
        expected: expected.into(),
    }
}

fn shared_key(text: Option<&str>) -> Result<Option<VoteKey>, GenesisError> {
    text.map(|text| parse_hex("group_key", text).map(VoteKey))
        .transpose()
}

fn parse_hex<const N: usize>(key: &'static str, text: &str) -> Result<[u8; N], GenesisError> {
    let mut bytes = [0; N];
    hex::decode_to_slice(text, &mut bytes)
        .map_err(|_| value_error(key, format!("{} hexadecimal digits", 2 * N)))?;
    Ok(bytes)
}

/// The scheme of this name with these keys, fully checked.
fn open_scheme(
    name: &str,
    chain_name: &str,
    group_key: Option<&str>,
    validators: &[GenesisValidator],
) -> Result<Scheme, GenesisError> {
    let kind =
        SchemeKind::from_str(name).map_err(|error| value_error("scheme", error.to_string()))?;
    let vote_key = |v: &GenesisValidator| parse_hex("validators[].vote_key", &v.vote_key);
    let proven = validators
        .iter()
        .filter(|validator| validator.proof_of_possession.is_some());
    let scheme = match (kind, group_key, proven.count()) {
        (SchemeKind::BlsThreshold, Some(group_key), 0) => {
            let identities = validators.iter().map(|v| v.identity).collect();
            let committee = Committee::new(Epoch(0), identities)?;
            Scheme::threshold(&ThresholdKeys {
                quorum: u32::try_from(committee.quorum()).expect("at most 1,024"),
                group_key: parse_hex("group_key", group_key)?,
                share_keys: validators.iter().map(vote_key).collect::<Result<_, _>>()?,
            })
        }
        (SchemeKind::BlsThreshold, None, _) => {
            return Err(value_error("group_key", "there with bls-threshold"));
        }
        (SchemeKind::BlsThreshold, ..) => {
            return Err(value_error(
                "validators[].proof_of_possession",
                "left out with bls-threshold",
            ));
        }
        (SchemeKind::BlsAggregate, Some(_), _) => {
            return Err(value_error("group_key", "left out with bls-aggregate"));
        }
        (SchemeKind::BlsAggregate, None, _) => {
            let member = |validator: &GenesisValidator| {
                let proof = validator.proof_of_possession.as_deref().unwrap_or("");
                Ok(AggregateMember {
                    identity: validator.identity.0,
                    key: vote_key(validator)?,
                    possession: parse_hex("validators[].proof_of_possession", proof)?,
                })
            };
            let members: Vec<AggregateMember> = validators
                .iter()
                .map(member)
                .collect::<Result<_, GenesisError>>()?;
            Scheme::aggregate(chain_name, &members)
        }
    };
    scheme.map_err(|error| GenesisError::Keys(error.to_string()))
}

impl Genesis {
    /// Reads and checks a genesis file's text.
    ///
    /// # Errors
    ///
    /// If the text has another shape, or a value is out of its range. The keys' mathematics are
    /// checked by [`Genesis::scheme`].
    pub fn from_json(text: &str) -> Result<Self, GenesisError> {
        let genesis: Self = read_json(text)?;
        genesis.check()?;
        Ok(genesis)
    }

    /// The file's text.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a genesis has only text keys")
    }

    fn check(&self) -> Result<(), GenesisError> {
        if self.name.is_empty() || self.name.len() > MAX_CHAIN_NAME_BYTES {
            return Err(value_error(
                "name",
                format!("1 to {MAX_CHAIN_NAME_BYTES} bytes"),
            ));
        }
        if !(1..=MAX_BLOCK_TRANSACTIONS).contains(&self.limits.max_transactions) {
            return Err(value_error(
                "limits.max_transactions",
                format!("1 to {MAX_BLOCK_TRANSACTIONS}"),
            ));
        }
        if !(1_024..=MAX_BLOCK_BYTES).contains(&self.limits.max_bytes) {
            return Err(value_error(
                "limits.max_bytes",
                format!("1024 to {MAX_BLOCK_BYTES}"),
            ));
        }
        let mut total = 0_u64;
        let mut seen = BTreeSet::new();
        for account in &self.accounts {
            if !seen.insert(account.identity) {
                return Err(value_error(
                    "accounts",
                    format!("without doubles; {} is there twice", account.identity),
                ));
            }
            if account.identity.is_small_order() {
                return Err(value_error(
                    "accounts",
                    format!(
                        "of keys that belong to somebody; {} is of small order, so that anybody could \
                         spend what it holds",
                        account.identity
                    ),
                ));
            }
            total = total
                .checked_add(account.balance)
                .ok_or_else(|| value_error("accounts", "of balances whose sum is below 2^64"))?;
        }
        let small = |v: &&GenesisValidator| v.identity.is_small_order();
        if let Some(validator) = self.validators.iter().find(small) {
            return Err(value_error(
                "validators[].identity",
                format!(
                    "a key with a secret; {} is of small order",
                    validator.identity
                ),
            ));
        }
        self.committee()?;
        self.check_application()?;
        self.check_registry(total)
    }

    fn check_application(&self) -> Result<(), GenesisError> {
        if self.application == ApplicationKind::Ledger {
            return Ok(());
        }
        let useless = [
            ("registry", self.registry.is_some()),
            ("fees", self.fees != Fees::NONE),
            ("accounts", !self.accounts.is_empty()),
        ];
        match useless.into_iter().find(|(_, is_there)| *is_there) {
            Some((key, _)) => Err(value_error(
                key,
                "left out with `application` order-only: there is no money on such a chain",
            )),
            None => Ok(()),
        }
    }

    fn check_registry(&self, balances: u64) -> Result<(), GenesisError> {
        let identities = self.validators.iter().map(|v| v.identity);
        if (self.accounts.iter().map(|a| a.identity).chain(identities)).any(|id| is_reserved(&id)) {
            return Err(value_error("accounts", "of keys; the registry's are none"));
        }
        let stakes = || self.validators.iter().map(|v| v.stake);
        let addresses = || self.validators.iter().map(|v| &v.address);
        if let Some(address) = addresses().find(|a| !a.is_empty() && !a.is_host_and_port()) {
            return Err(value_error(
                "validators[].address",
                format!("host:port; {address:?} is not"),
            ));
        }
        if self.registry.is_none() && addresses().any(|address| !address.is_empty()) {
            return Err(value_error(
                "validators[].address",
                "left out without `registry`: each validator's configuration has its peers' addresses",
            ));
        }
        let Some(rules) = &self.registry else {
            return match stakes().any(|stake| stake > 0) {
                true => Err(value_error(
                    "validators[].stake",
                    "left out without `registry`",
                )),
                false => Ok(()),
            };
        };
        let shares_key = self.scheme == SchemeKind::BlsThreshold.to_string();
        if rules.resharing != shares_key {
            return Err(value_error(
                "registry.resharing",
                "true with bls-threshold, and left out with bls-aggregate",
            ));
        }
        if rules.resharing && rules.external.is_some() {
            return Err(value_error(
                "registry.external",
                "left out with bls-threshold, whose validators get their vote keys from each other",
            ));
        }
        let (limit, shortest) = match rules.resharing {
            true => (MAX_SHARING_VALIDATORS, MIN_SHARING_EPOCH_BLOCKS),
            false => (MAX_VALIDATORS, MIN_REGISTERED_EPOCH_BLOCKS),
        };
        let most = rules.max_validators as usize;
        let fits = (MIN_REGISTERED_VALIDATORS..=limit).contains(&most);
        if !fits || most < self.validators.len() {
            return Err(value_error(
                "registry.max_validators",
                format!(
                    "{MIN_REGISTERED_VALIDATORS} to {limit} with {}, and at least as many as there are \
                     validators",
                    self.scheme
                ),
            ));
        }
        if self.validators.len() < MIN_REGISTERED_VALIDATORS {
            return Err(value_error(
                "validators",
                format!("at least {MIN_REGISTERED_VALIDATORS} with `registry`"),
            ));
        }
        if self.epoch_blocks.blocks() < shortest {
            return Err(value_error(
                "epoch_blocks",
                format!("at least {shortest} with `registry` and {}", self.scheme),
            ));
        }
        if rules.unbond_epochs == 0 {
            return Err(value_error("registry.unbond_epochs", "at least 1"));
        }
        if let Some(slashing) = rules.slashing
            && (!(1..=100).contains(&slashing.percent) || slashing.jail_epochs == 0)
        {
            return Err(value_error(
                "registry.slashing",
                "a percentage of 1 to 100, and at least 1 epoch in jail",
            ));
        }
        let least = match &rules.external {
            Some(external) => {
                check_external(rules, external)?;
                1
            }
            None => {
                let supply = stakes().try_fold(balances, u64::checked_add);
                let supply = supply.ok_or_else(|| {
                    value_error("validators[].stake", "such that the supply is below 2^64")
                })?;
                supply.div_ceil(MAX_BONDS).max(1)
            }
        };
        if rules.min_stake < least {
            return Err(value_error(
                "registry.min_stake",
                match rules.external {
                    Some(_) => "at least 1".to_owned(),
                    None => {
                        let others = MAX_BONDS.saturating_sub(self.validators.len() as u64);
                        let each = balances.div_ceil(others.max(1)).max(1);
                        let part =
                            format!("a {MAX_BONDS}th of the supply, which includes the stakes");
                        match stakes().any(|stake| stake < each) {
                            true => format!(
                                "at least {each}, with as much at stake for each validator: {part}"
                            ),
                            false => format!("at least {least}, {part}"),
                        }
                    }
                },
            ));
        }
        if stakes().any(|stake| stake < rules.min_stake) {
            return Err(value_error(
                "validators[].stake",
                format!("at least `registry.min_stake`, {}", rules.min_stake),
            ));
        }
        Ok(())
    }

    /// The key that the validators share, if they do.
    ///
    /// # Errors
    ///
    /// If it is not hexadecimal of its length.
    pub fn shared_key(&self) -> Result<Option<VoteKey>, GenesisError> {
        shared_key(self.group_key.as_deref())
    }

    /// The sum of all balances, and of what is bonded unless the registry is outside the chain. It never changes.
    pub fn supply(&self) -> u64 {
        let is_external = self.registry.is_some_and(|rules| rules.external.is_some());
        let staking = self.validators.iter().filter(|_| !is_external);
        let balances = self.accounts.iter().map(|account| account.balance);
        (balances.chain(staking.map(|validator| validator.stake))).fold(0, u64::saturating_add)
    }

    /// The accounts that exist from the start, in the order of their identities.
    ///
    /// # Errors
    ///
    /// If a bonded validator's vote key is not hexadecimal of its length.
    pub fn initial_accounts(&self) -> Result<BTreeMap<Identity, Account>, GenesisError> {
        let accounts = self.accounts.iter();
        let mut all: BTreeMap<Identity, Account> = accounts
            .map(|account| (account.identity, Account::plain(0, account.balance)))
            .collect();
        for validator in self.validators.iter().filter(|v| v.stake > 0) {
            let bond = Bond {
                identity: validator.identity,
                stake: validator.stake,
                leaving: 0,
                leaves_at: Epoch(0),
                since: Epoch(0),
                vote_key: match self.registry.is_some_and(|rules| rules.resharing) {
                    true => VoteKey::NONE,
                    false => validator.vote_key()?,
                },
                address: validator.address.clone(),
                name: BondName::default(),
            };
            all.entry(validator.identity).or_default().bond = Some(Box::new(bond));
        }
        Ok(all)
    }

    /// The chain's id: SHA-256 of `"quorate/genesis/2"` and the content as compact JSON with the
    /// fields in their declared order.
    pub fn chain_id(&self) -> ChainId {
        let content = serde_json::to_vec(self).expect("a genesis has only text keys");
        ChainId(sha256(&[b"quorate/genesis/2", &content]))
    }

    /// The committee of epoch 0, with the protocol's turns.
    ///
    /// # Errors
    ///
    /// If the validators make no committee.
    pub fn committee(&self) -> Result<Committee, CommitteeError> {
        let identities = self.validators.iter().map(|v| v.identity).collect();
        let committee = Committee::new(Epoch(0), identities)?;
        Ok(committee.with_turns(self.turns()))
    }

    /// How many views in a row each validator leads.
    pub fn turns(&self) -> Turns {
        Turns {
            protocol: self.protocol,
            epoch_blocks: self.registry.map(|_| self.epoch_blocks),
        }
    }

    /// The vote scheme with its keys, fully checked.
    ///
    /// # Errors
    ///
    /// If the scheme is unknown, or the keys are not one dealing for these validators, or not each
    /// proven to be its validator's.
    pub fn scheme(&self) -> Result<Scheme, GenesisError> {
        let group_key = self.group_key.as_deref();
        open_scheme(&self.scheme, &self.name, group_key, &self.validators)
    }

    /// The trust file for this chain. It has no addresses.
    pub fn trust(&self) -> Trust {
        let mut validators = self.validators.clone();
        for validator in &mut validators {
            validator.address = BondAddress::default();
        }
        Trust {
            name: self.name.clone(),
            chain_id: self.chain_id(),
            scheme: self.scheme.clone(),
            group_key: self.group_key.clone(),
            epoch_blocks: self.registry.map(|_| self.epoch_blocks),
            epoch: Epoch(0),
            protocol: self.protocol,
            validators,
        }
    }
}

impl Trust {
    /// Reads a trust file's text.
    ///
    /// # Errors
    ///
    /// If the text has another shape.
    pub fn from_json(text: &str) -> Result<Self, GenesisError> {
        read_json(text)
    }

    /// The file's text.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a trust file has only text keys")
    }

    /// The vote scheme with its keys, fully checked.
    ///
    /// # Errors
    ///
    /// If the scheme is unknown or the keys are none, or do not belong together.
    pub fn scheme(&self) -> Result<Scheme, GenesisError> {
        if self.epoch > Epoch(0) {
            // The chain has checked that each knows its key's secret, and whoever made this file has
            // verified the chain.
            let scheme = self.set()?.scheme();
            return scheme.map_err(|error| GenesisError::Keys(error.to_string()));
        }
        let group_key = self.group_key.as_deref();
        open_scheme(&self.scheme, &self.name, group_key, &self.validators)
    }

    fn set(&self) -> Result<ValidatorSet, GenesisError> {
        let members = self.validators.iter().map(GenesisValidator::member);
        let members = members.collect::<Result<_, GenesisError>>()?;
        let group_key = shared_key(self.group_key.as_deref())?;
        Ok(ValidatorSet::of_members(self.epoch, members).sharing(group_key))
    }

    /// The trust file of the same chain with later validators.
    pub fn with(&self, set: &ValidatorSet) -> Self {
        let validators = set.members().iter().map(|member| GenesisValidator {
            identity: member.identity,
            vote_key: member.vote_key.to_string(),
            proof_of_possession: None,
            stake: 0,
            address: BondAddress::default(),
        });
        Self {
            epoch: set.epoch,
            validators: validators.collect(),
            ..self.clone()
        }
    }

    /// A verifier of this chain's certificates and votes.
    ///
    /// # Errors
    ///
    /// If the scheme is unknown or the keys are none, or do not belong together.
    pub fn verifier(&self) -> Result<Verifier, GenesisError> {
        let scheme = self.scheme()?;
        let identities = self.validators.iter().map(|v| v.identity).collect();
        let committees = match self.epoch_blocks {
            Some(_) => Committees::trusting(self.set()?)?,
            None => Committees::fixed(Committee::new(Epoch(0), identities)?),
        };
        let committees = committees.with_turns(Turns {
            protocol: self.protocol,
            epoch_blocks: self.epoch_blocks,
        });
        Ok(Verifier {
            kind: scheme.kind(),
            keys: EpochKeys::new(self.chain_id, committees, scheme),
            epoch_blocks: self.epoch_blocks,
        })
    }
}

/// Verifies what one chain's validators have signed. On a chain whose validators can change, it knows those of
/// the trust file, and later ones by handovers.
pub struct Verifier {
    keys: EpochKeys,
    kind: SchemeKind,
    epoch_blocks: Option<EpochLength>,
}

impl Verifier {
    /// Whether a quorum of its epoch's validators stands behind the certificate.
    pub fn verify(&self, certificate: &Certificate) -> bool {
        self.keys.verify(certificate)
    }

    /// Whether a header is final by this certificate: of this chain, in the epoch of its height, and signed by a
    /// quorum of that epoch's validators.
    pub fn is_final(&self, header: &Header, certificate: &Certificate) -> bool {
        self.is_of_chain(header) && certificate.finalizes(header) && self.verify(certificate)
    }

    /// Whether a header is of this chain, and of the epoch of its height: otherwise former validators could sign
    /// blocks of any height.
    pub fn is_of_chain(&self, header: &Header) -> bool {
        let epoch = |length: EpochLength| length.epoch_of(header.height);
        header.chain == self.chain()
            && (self.epoch_blocks).is_none_or(|length| epoch(length) == header.epoch)
    }

    /// Whether a quorum stands behind each of these certificates, with one pairing check for all of the same
    /// validators; `true` for none. `seed` must not be predictable for whoever made them.
    pub fn verify_many(&self, certificates: &[&Certificate], seed: [u8; 32]) -> bool {
        self.keys.verify_many(certificates, seed)
    }

    /// The signers of a certificate, if the scheme names them.
    pub fn signers(&self, certificate: &Certificate) -> Option<Vec<ValidatorIndex>> {
        self.keys.signers(certificate)
    }

    /// Whether the vote is its signer's.
    pub fn verify_vote(&self, vote: &Vote) -> bool {
        self.keys.verify_vote(vote)
    }

    /// The validators of each epoch, as far as they are known.
    pub fn committees(&self) -> &Committees {
        self.keys.committees()
    }

    /// The newest validators that are known.
    pub fn newest(&self) -> Committee {
        let committees = self.committees();
        committees.of(committees.newest())
    }

    /// How many blocks an epoch has, if the validators can change.
    pub fn epoch_blocks(&self) -> Option<EpochLength> {
        self.epoch_blocks
    }

    /// The vote scheme.
    pub fn scheme(&self) -> SchemeKind {
        self.kind
    }

    /// The chain whose certificates it verifies.
    pub fn chain(&self) -> ChainId {
        *self.keys.chain()
    }
}
