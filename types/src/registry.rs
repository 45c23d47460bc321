//! The staking registry: bonded accounts, and the operations that change them.
//!
//! Whoever wants to validate locks stake in its own account, together with its vote key and where it
//! can be reached: a [`Bond`]. The bond is part of the account's state, so each entry of the registry
//! has the same proof as a balance. The account's key is the validator's identity.
//!
//! An operation is a transfer to [`REGISTRY`] whose memo holds an [`Operation`]. So it is signed,
//! charged, ordered and stored as any transfer, and the format of transactions does not change. What
//! it needs is checked in the order of [`Operation::apply`]; a refused one pays its fee and changes
//! nothing else.
//!
//! Stake stays part of the supply: it moves from the balance into the bond and back, and what is slashed to
//! [`SLASHED`].
//!
//! On a chain whose registry is outside of it ([`ExternalRules`]), bonds are made by what validators report, and the
//! operations above are refused.
//!
//! # Slashing
//!
//! Who casts two votes that no honest validator casts together ([`Evidence`]) can be accused by anybody. The
//! state then takes a part of what it has at stake, also of what it has unbonded and is still held, and it is
//! not chosen for some epochs. Nothing else is punished: not silence, not a lost turn, and nothing that the
//! protocol's rules allow after a partition heals, since the pairs are those that an honest journal never holds.
//!
//! - *S1*: a validator is punished once for all that it did before its bond's `since`. A second accusation needs a
//!   vote of an epoch in which it could be chosen again: one mistake, such as a second machine with the same key,
//!   makes many pairs within seconds.
//! - *S2*: the vote key is that of the epoch's set, not the bond's, so that a rotated key does not protect.
//! - *S3*: nobody gains by an accusation, or a validator could save its stake by accusing itself.
//! - *S4*: votes older than `unbond_epochs` epochs are not punished: by then the stake may be gone anyway, and a key that
//!   was rotated away long ago, and found by somebody, must not cost its former owner anything.

mod external;
mod next;
pub mod resharing;
mod set;

pub use external::{
    ExternalEntry, ExternalRules, MAX_REPORT_EPOCHS, Report, entry_digest, is_known, is_reserved,
    report_slot,
};
pub use next::{NextSet, next_set, ranked};
pub use resharing::{OpeningKey, Phase, RoundNote, Slot};
pub use set::{Member, RegistryNote, ValidatorSet};

use crate::{
    Account, ChainId, Committees, Epoch, Evidence, Failure,
    codec::{fixed_codec, read_option, read_version, write_option},
    limits::{MAX_BOND_ADDRESS_BYTES, MAX_BOND_NAME_BYTES},
};
use bytes::BufMut;
use commonware_codec::{
    Buf, Copying, DecodeExt, EncodeSize, Error, FixedSize, Read, Write, extensions::ReadExt,
};
use quorate_crypto::{
    Identity,
    bls::{AggregateMember, Complaint, HashedMessage, PartialSignature, Scheme},
};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// The receiver of operations. It is a text, so nobody has its key, and it never holds money.
pub const REGISTRY: Identity = Identity(*b"quorate/registry/operations/0001");

/// Where slashed stake goes. It is a text, so nobody has its key.
pub const SLASHED: Identity = Identity(*b"quorate/registry/slashed/0000001");

/// Version byte of an encoded [`Operation`].
const OPERATION_VERSION: u8 = 1;

/// The registry's rules, in the genesis file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegistryRules {
    /// The least stake of a bond, in the chain's smallest unit: at least a 1,024th of the supply, so
    /// that there are at most 1,024 bonds.
    pub min_stake: u64,
    /// The most validators of an epoch: 4 to 1,024.
    pub max_validators: u32,
    /// For how many epochs stake is held after it was unbonded.
    pub unbond_epochs: u64,
    /// How equivocation is punished; without it, not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slashing: Option<Slashing>,
    /// That the registry is outside the chain; without it, bonds are made by operations of their owners.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalRules>,
    /// That the validators share one vote key, whose shares are passed on at each border: with `bls-threshold`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub resharing: bool,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_false(value: &bool) -> bool {
    !value
}

/// How equivocation is punished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slashing {
    /// How much of what is at stake or held is taken, rounded up: 1 to 100.
    pub percent: u8,
    /// For how many epochs the validator cannot be chosen: at least 1.
    pub jail_epochs: u64,
}

/// A vote key: a compressed point of G2. In JSON and for people: 192 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct VoteKey(pub [u8; 96]);

/// The proof that its author knows a vote key's secret: a compressed point of G1.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Possession(pub [u8; 48]);

/// A short text of an operator: an address or a name. Printable ASCII.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Label<const MAX: usize>(Box<str>);

/// Where a validator can be reached: `host:port`, or empty.
pub type BondAddress = Label<MAX_BOND_ADDRESS_BYTES>;

/// What people call a validator; may be empty.
pub type BondName = Label<MAX_BOND_NAME_BYTES>;

/// What an account has at stake, and the validator that it stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bond {
    /// The account that it belongs to, which is the validator's identity. The state's keys are hashes,
    /// so nothing else in it names an account.
    pub identity: Identity,
    /// What counts, in the chain's smallest unit.
    pub stake: u64,
    /// What was unbonded and is still held.
    pub leaving: u64,
    /// The first epoch in which `leaving` may be withdrawn.
    pub leaves_at: Epoch,
    /// The first epoch in which it can be chosen, for the next one: that after it was made, so that the
    /// others have a link with the validator before it acts; later if it was punished.
    pub since: Epoch,
    /// The key of its votes.
    pub vote_key: VoteKey,
    /// Where it can be reached.
    pub address: BondAddress,
    /// What people call it.
    pub name: BondName,
}

/// What a transfer to [`REGISTRY`] does. Its amount is the stake that is added, and is zero for all
/// others but `Bond` and `AddStake`.
///
/// Encoded as a memo: version 1, a tag, the fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Makes the sender's bond with the transfer's amount as stake. Tag 0.
    Bond {
        vote_key: VoteKey,
        possession: Possession,
        address: BondAddress,
        name: BondName,
    },
    /// Adds the transfer's amount to the stake. Tag 1.
    AddStake,
    /// Takes this much out of the stake; it is held for some epochs. Tag 2.
    Unbond { stake: u64 },
    /// Moves what is no longer held back to the balance. Tag 3.
    Withdraw,
    /// Replaces the vote key. Tag 4.
    RotateKey {
        vote_key: VoteKey,
        possession: Possession,
    },
    /// Replaces the address and the name. Tag 5.
    Describe {
        address: BondAddress,
        name: BondName,
    },
    /// Accuses a validator of two votes that contradict each other. Anybody may. Tag 6.
    Accuse {
        validator: Identity,
        evidence: Box<Evidence>,
    },
    /// Says what an acting validator has read about an identity in the external registry. Tag 7.
    Report {
        validator: Identity,
        entry: Option<Box<ExternalEntry>>,
    },
    /// Says that a validator, or who is to be one, is there in an epoch and wants a share of the next one. Tag 8, see
    /// [`resharing`] for this one and those that follow.
    Announce { epoch: Epoch, key: OpeningKey },
    /// A part of a dealer's dealing. Tag 9.
    Deal { part: u8, bytes: Vec<u8> },
    /// Shows that a dealer has given a player something else than its dealing demands. Both by place. Tag 10.
    Object {
        player: u16,
        dealer: u16,
        complaint: Box<Complaint>,
    },
    /// Proves that a player, by place, has its new share. Tag 11.
    Prove {
        player: u16,
        signature: PartialSignature,
    },
}

/// What operations are checked with.
#[derive(Clone, Debug)]
pub struct RegistryContext<'a> {
    /// The rules; `None` if the chain has no registry.
    pub rules: Option<&'a RegistryRules>,
    /// The chain's name, which proofs of possession are bound to.
    pub chain_name: &'a str,
    pub chain: ChainId,
    /// The epoch of the block.
    pub epoch: Epoch,
    /// The part of the epoch that the block is in.
    pub phase: Phase,
    /// The validators of all epochs up to this one; `None` where nobody can be accused.
    pub committees: Option<&'a Committees>,
}

/// Whether a memo begins as one of the operations that validators, and those who are to be some, send by themselves:
/// reports, and what passes shares on. Nothing else of the memo is looked at.
pub fn is_duty(memo: &[u8]) -> bool {
    matches!(memo, [OPERATION_VERSION, 7..=11, ..])
}

impl Operation {
    /// Reads the operation in a memo.
    ///
    /// # Errors
    ///
    /// If the memo is not exactly one operation.
    pub fn from_memo(memo: &[u8]) -> Result<Self, Error> {
        Self::decode(Copying(memo))
    }

    /// A short name for people and programs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Bond { .. } => "bond",
            Self::AddStake => "add_stake",
            Self::Unbond { .. } => "unbond",
            Self::Withdraw => "withdraw",
            Self::RotateKey { .. } => "rotate_key",
            Self::Describe { .. } => "describe",
            Self::Accuse { .. } => "accuse",
            Self::Report { .. } => "report",
            Self::Announce { .. } => "announce",
            Self::Deal { .. } => "deal",
            Self::Object { .. } => "object",
            Self::Prove { .. } => "prove",
        }
    }

    fn takes_amount(&self) -> bool {
        matches!(self, Self::Bond { .. } | Self::AddStake)
    }

    /// Whether it changes nothing but its sender's account.
    pub fn is_own(&self) -> bool {
        matches!(
            self,
            Self::Bond { .. }
                | Self::AddStake
                | Self::Unbond { .. }
                | Self::Withdraw
                | Self::RotateKey { .. }
                | Self::Describe { .. }
        )
    }

    /// Applies the operation to its sender's account, which has paid the fee. Those that change others' accounts
    /// are not applied here: see [`RegistryContext::punish`], [`RegistryContext::report`] and [`resharing`].
    ///
    /// # Errors
    ///
    /// Why it is refused. The account is then as it was.
    pub fn apply(
        &self,
        context: &RegistryContext<'_>,
        sender: &Identity,
        amount: u64,
        account: &mut Account,
    ) -> Result<(), Failure> {
        let rules = context.rules.ok_or(Failure::NoRegistry)?;
        if !self.is_own() {
            return Err(Failure::BadOperation);
        }
        if rules.external.is_some() {
            return Err(Failure::WrongRegistry);
        }
        if amount > 0 && !self.takes_amount() {
            return Err(Failure::BadOperation);
        }
        let balance = account.balance.checked_sub(amount);
        let balance = balance.ok_or(Failure::InsufficientBalance)?;
        let mut after = match (self, &account.bond) {
            (Self::Bond { .. }, Some(_)) => return Err(Failure::AlreadyBonded),
            (Self::Bond { .. }, None) => None,
            (_, None) => return Err(Failure::NotBonded),
            (_, Some(bond)) => Some(Bond::clone(bond)),
        };
        let mut returned = 0;
        match (self, &mut after) {
            (
                Self::Bond {
                    vote_key,
                    possession,
                    address,
                    name,
                },
                _,
            ) => {
                if amount < rules.min_stake {
                    return Err(Failure::StakeTooSmall);
                }
                context.verify(sender, vote_key, possession)?;
                after = Some(Bond {
                    identity: *sender,
                    stake: amount,
                    leaving: 0,
                    leaves_at: Epoch(0),
                    since: context.epoch.next(),
                    vote_key: *vote_key,
                    address: address.clone(),
                    name: name.clone(),
                });
            }
            (Self::AddStake, Some(bond)) => {
                // Cannot overflow: the supply fits in 64 bits.
                bond.stake = bond.stake.saturating_add(amount);
                if amount == 0 || bond.stake < rules.min_stake {
                    return Err(Failure::StakeTooSmall);
                }
            }
            (Self::Unbond { stake }, Some(bond)) => {
                let rest = bond.stake.checked_sub(*stake);
                let rest = rest.ok_or(Failure::StakeTooSmall)?;
                if *stake == 0 || (rest > 0 && rest < rules.min_stake) {
                    return Err(Failure::StakeTooSmall);
                }
                bond.stake = rest;
                bond.leaving = bond.leaving.saturating_add(*stake);
                // A newcomer that has held up a change may be held for longer.
                let leaves_at = Epoch(context.epoch.0.saturating_add(rules.unbond_epochs));
                bond.leaves_at = bond.leaves_at.max(leaves_at);
            }
            (Self::Withdraw, Some(bond)) => {
                if bond.leaving == 0 || context.epoch < bond.leaves_at {
                    return Err(Failure::NothingToWithdraw);
                }
                returned = std::mem::take(&mut bond.leaving);
                if bond.stake == 0 {
                    after = None;
                }
            }
            (
                Self::RotateKey {
                    vote_key,
                    possession,
                },
                Some(bond),
            ) => {
                context.verify(sender, vote_key, possession)?;
                bond.vote_key = *vote_key;
            }
            (Self::Describe { address, name }, Some(bond)) => {
                bond.address = address.clone();
                bond.name = name.clone();
            }
            _ => return Err(Failure::NotBonded),
        }
        account.balance = balance.saturating_add(returned);
        account.bond = after.map(Box::new);
        Ok(())
    }
}

impl RegistryRules {
    /// The punishment for votes of an epoch in another one, whatever the votes are.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub fn punishes(&self, bond: &Bond, votes: Epoch, now: Epoch) -> Result<Slashing, Failure> {
        let slashing = self.slashing.ok_or(Failure::BadEvidence)?;
        if votes < bond.since {
            return Err(Failure::AlreadyPunished);
        }
        let is_old = votes.0.saturating_add(self.unbond_epochs) < now.0;
        match is_old || votes > now {
            true => Err(Failure::BadEvidence),
            false => Ok(slashing),
        }
    }
}

impl RegistryContext<'_> {
    /// Punishes an accused validator, if the evidence convicts it. Returns what was taken of its stake, which
    /// belongs to [`SLASHED`].
    ///
    /// # Errors
    ///
    /// Why it is not punished. The account is then as it was.
    pub fn punish(
        &self,
        validator: &Identity,
        evidence: &Evidence,
        account: &mut Account,
    ) -> Result<u64, Failure> {
        let rules = self.rules.ok_or(Failure::NoRegistry)?;
        let bond = account.bond.as_mut().ok_or(Failure::NotBonded)?;
        let slashing = rules.punishes(bond, evidence.first.subject.epoch, self.epoch)?;
        if !self.convicts(validator, evidence) {
            return Err(Failure::BadEvidence);
        }
        let part = |of: u64| {
            let part = (u128::from(of) * u128::from(slashing.percent)).div_ceil(100);
            u64::try_from(part).unwrap_or(of).min(of)
        };
        let taken = (part(bond.stake), part(bond.leaving));
        bond.stake -= taken.0;
        bond.leaving -= taken.1;
        bond.since = Epoch(self.epoch.0.saturating_add(slashing.jail_epochs));
        Ok(taken.0.saturating_add(taken.1))
    }

    /// Whether both votes are this validator's, by the key of their epoch, and contradict each other.
    fn convicts(&self, validator: &Identity, evidence: &Evidence) -> bool {
        let vote = &evidence.first;
        let acting = self
            .committees
            .and_then(|sets| sets.acting(vote.subject.epoch));
        let Some((_, set)) = acting.filter(|_| evidence.conflict().is_some()) else {
            return false;
        };
        let member = set.members().get(vote.signer.as_usize());
        let Some(member) = member.filter(|member| member.identity == *validator) else {
            return false;
        };
        let Ok(key) = Scheme::aggregate_of_proven(&[member.vote_key.0]) else {
            return false;
        };
        [vote, &evidence.second].iter().all(|vote| {
            let message = HashedMessage::new(&vote.subject.signed_bytes(&self.chain));
            key.verify_partial(&message, 0, &vote.signature)
        })
    }

    fn verify(
        &self,
        sender: &Identity,
        key: &VoteKey,
        possession: &Possession,
    ) -> Result<(), Failure> {
        // Where validators share a key, they get their shares from each other.
        if self.rules.is_some_and(|rules| rules.resharing) {
            let is_none = *key == VoteKey::NONE && *possession == Possession::NONE;
            return is_none.then_some(()).ok_or(Failure::BadPossession);
        }
        let member = AggregateMember {
            identity: sender.0,
            key: key.0,
            possession: possession.0,
        };
        match member.is_proven(self.chain_name) {
            true => Ok(()),
            false => Err(Failure::BadPossession),
        }
    }
}

impl Bond {
    /// The stake that counts and what is still held.
    pub fn total(&self) -> u64 {
        self.stake.saturating_add(self.leaving)
    }
}

impl<const MAX: usize> Label<MAX> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A text that is no label.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at most {max} printable ASCII characters without spaces, not {text:?}")]
pub struct LabelError {
    text: String,
    max: usize,
}

impl BondAddress {
    /// Whether it is a host and a port. Whoever dials it parses it again.
    pub fn is_host_and_port(&self) -> bool {
        let parts = self.0.rsplit_once(':');
        parts.is_some_and(|(host, port)| {
            !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
        })
    }
}

impl<const MAX: usize> FromStr for Label<MAX> {
    type Err = LabelError;

    fn from_str(text: &str) -> Result<Self, LabelError> {
        match text.len() <= MAX && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(Self(text.into())),
            false => Err(LabelError {
                text: text.chars().take(2 * MAX).collect(),
                max: MAX,
            }),
        }
    }
}

impl<const MAX: usize> fmt::Debug for Label<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl<const MAX: usize> fmt::Display for Label<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de, const MAX: usize> Deserialize<'de> for Label<MAX> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl<const MAX: usize> EncodeSize for Label<MAX> {
    fn encode_size(&self) -> usize {
        1 + self.0.len()
    }
}

impl<const MAX: usize> Write for Label<MAX> {
    fn write(&self, buffer: &mut impl BufMut) {
        buffer.put_u8(u8::try_from(self.0.len()).expect("labels are short"));
        buffer.put_slice(self.0.as_bytes());
    }
}

impl<const MAX: usize> Read for Label<MAX> {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        let length = usize::from(u8::read(buffer)?);
        if length > MAX {
            return Err(Error::InvalidLength(length));
        }
        if buffer.remaining() < length {
            return Err(Error::EndOfBuffer);
        }
        let mut bytes = vec![0; length];
        buffer.copy_to_slice(&mut bytes);
        let invalid = Error::Invalid("label", "not printable ASCII");
        let Ok(text) = String::from_utf8(bytes) else {
            return Err(invalid);
        };
        text.parse().map_err(|_| invalid)
    }
}

macro_rules! point {
    ($type:ident, $bytes:literal) => {
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&hex::encode(self.0))
            }
        }

        impl FromStr for $type {
            type Err = hex::FromHexError;

            fn from_str(text: &str) -> Result<Self, hex::FromHexError> {
                let mut bytes = [0; $bytes];
                hex::decode_to_slice(text, &mut bytes).map(|()| Self(bytes))
            }
        }

        impl Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(|_| {
                    serde::de::Error::custom(concat!(
                        stringify!($bytes),
                        " bytes in hexadecimal are expected"
                    ))
                })
            }
        }

        impl FixedSize for $type {
            const SIZE: usize = $bytes;
        }

        impl Write for $type {
            fn write(&self, buffer: &mut impl BufMut) {
                buffer.put_slice(&self.0);
            }
        }

        impl Read for $type {
            type Cfg = ();

            fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
                Ok(Self(<[u8; $bytes]>::read(buffer)?))
            }
        }
    };
}
point!(VoteKey, 96);
point!(Possession, 48);
point!(OpeningKey, 48);

impl VoteKey {
    /// What a bond has where validators share a key.
    pub const NONE: Self = Self([0; 96]);
}

impl Possession {
    /// What proves [`VoteKey::NONE`].
    pub const NONE: Self = Self([0; 48]);
}

struct BondNumbers {
    identity: Identity,
    stake: u64,
    leaving: u64,
    leaves_at: Epoch,
    since: Epoch,
    vote_key: VoteKey,
}

fixed_codec!(BondNumbers {
    identity: Identity,
    stake: u64,
    leaving: u64,
    leaves_at: Epoch,
    since: Epoch,
    vote_key: VoteKey,
});

impl EncodeSize for Bond {
    fn encode_size(&self) -> usize {
        BondNumbers::SIZE + self.address.encode_size() + self.name.encode_size()
    }
}

impl Write for Bond {
    fn write(&self, buffer: &mut impl BufMut) {
        BondNumbers {
            identity: self.identity,
            stake: self.stake,
            leaving: self.leaving,
            leaves_at: self.leaves_at,
            since: self.since,
            vote_key: self.vote_key,
        }
        .write(buffer);
        self.address.write(buffer);
        self.name.write(buffer);
    }
}

impl Read for Bond {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        let numbers = BondNumbers::read(buffer)?;
        Ok(Self {
            identity: numbers.identity,
            stake: numbers.stake,
            leaving: numbers.leaving,
            leaves_at: numbers.leaves_at,
            since: numbers.since,
            vote_key: numbers.vote_key,
            address: BondAddress::read(buffer)?,
            name: BondName::read(buffer)?,
        })
    }
}

impl EncodeSize for Operation {
    fn encode_size(&self) -> usize {
        2 + match self {
            Self::Bond { address, name, .. } => {
                VoteKey::SIZE + Possession::SIZE + address.encode_size() + name.encode_size()
            }
            Self::AddStake | Self::Withdraw => 0,
            Self::Unbond { .. } => u64::SIZE,
            Self::RotateKey { .. } => VoteKey::SIZE + Possession::SIZE,
            Self::Describe { address, name } => address.encode_size() + name.encode_size(),
            Self::Accuse { .. } => Identity::SIZE + Evidence::SIZE,
            Self::Report { entry, .. } => {
                Identity::SIZE + 1 + entry.as_ref().map_or(0, |entry| entry.encode_size())
            }
            Self::Announce { .. } => Epoch::SIZE + OpeningKey::SIZE,
            Self::Deal { bytes, .. } => 1 + u16::SIZE + bytes.len(),
            Self::Object { .. } => 2 * u16::SIZE + Complaint::SIZE,
            Self::Prove { .. } => u16::SIZE + PartialSignature::SIZE,
        }
    }
}

impl Write for Operation {
    fn write(&self, buffer: &mut impl BufMut) {
        OPERATION_VERSION.write(buffer);
        match self {
            Self::Bond {
                vote_key,
                possession,
                address,
                name,
            } => {
                0_u8.write(buffer);
                vote_key.write(buffer);
                possession.write(buffer);
                address.write(buffer);
                name.write(buffer);
            }
            Self::AddStake => 1_u8.write(buffer),
            Self::Unbond { stake } => {
                2_u8.write(buffer);
                stake.write(buffer);
            }
            Self::Withdraw => 3_u8.write(buffer),
            Self::RotateKey {
                vote_key,
                possession,
            } => {
                4_u8.write(buffer);
                vote_key.write(buffer);
                possession.write(buffer);
            }
            Self::Describe { address, name } => {
                5_u8.write(buffer);
                address.write(buffer);
                name.write(buffer);
            }
            Self::Accuse {
                validator,
                evidence,
            } => {
                6_u8.write(buffer);
                validator.write(buffer);
                evidence.write(buffer);
            }
            Self::Report { validator, entry } => {
                7_u8.write(buffer);
                validator.write(buffer);
                write_option(entry.as_deref(), buffer);
            }
            Self::Announce { epoch, key } => {
                8_u8.write(buffer);
                epoch.write(buffer);
                key.write(buffer);
            }
            Self::Deal { part, bytes } => {
                9_u8.write(buffer);
                part.write(buffer);
                buffer.put_u16(u16::try_from(bytes.len()).expect("a memo has 4,096 bytes"));
                buffer.put_slice(bytes);
            }
            Self::Object {
                player,
                dealer,
                complaint,
            } => {
                10_u8.write(buffer);
                player.write(buffer);
                dealer.write(buffer);
                complaint.write(buffer);
            }
            Self::Prove { player, signature } => {
                11_u8.write(buffer);
                player.write(buffer);
                signature.write(buffer);
            }
        }
    }
}

impl Read for Operation {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        read_version(buffer, OPERATION_VERSION, "operation")?;
        Ok(match u8::read(buffer)? {
            0 => Self::Bond {
                vote_key: VoteKey::read(buffer)?,
                possession: Possession::read(buffer)?,
                address: BondAddress::read(buffer)?,
                name: BondName::read(buffer)?,
            },
            1 => Self::AddStake,
            2 => Self::Unbond {
                stake: u64::read(buffer)?,
            },
            3 => Self::Withdraw,
            4 => Self::RotateKey {
                vote_key: VoteKey::read(buffer)?,
                possession: Possession::read(buffer)?,
            },
            5 => Self::Describe {
                address: BondAddress::read(buffer)?,
                name: BondName::read(buffer)?,
            },
            6 => Self::Accuse {
                validator: Identity::read(buffer)?,
                evidence: Box::new(Evidence::read(buffer)?),
            },
            7 => Self::Report {
                validator: Identity::read(buffer)?,
                entry: read_option(buffer)?.map(Box::new),
            },
            8 => Self::Announce {
                epoch: Epoch::read(buffer)?,
                key: OpeningKey::read(buffer)?,
            },
            9 => Self::Deal {
                part: u8::read(buffer)?,
                bytes: {
                    let length = usize::from(u16::read(buffer)?);
                    if length > resharing::DEALING_PART_BYTES {
                        return Err(Error::InvalidLength(length));
                    }
                    if buffer.remaining() < length {
                        return Err(Error::EndOfBuffer);
                    }
                    let mut bytes = vec![0; length];
                    buffer.copy_to_slice(&mut bytes);
                    bytes
                },
            },
            10 => Self::Object {
                player: u16::read(buffer)?,
                dealer: u16::read(buffer)?,
                complaint: Box::new(Complaint::read(buffer)?),
            },
            11 => Self::Prove {
                player: u16::read(buffer)?,
                signature: PartialSignature::read(buffer)?,
            },
            other => return Err(Error::InvalidEnum(other)),
        })
    }
}

#[cfg(test)]
mod tests;
