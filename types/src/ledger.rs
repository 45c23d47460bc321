//! Accounts and receipts: the state that blocks change, and the outcomes of transactions.

use crate::{
    Bond, RegistryNote,
    codec::fixed_codec,
    registry::{Report, Slot},
};
use bytes::BufMut;
use commonware_codec::{Buf, EncodeSize, Error, FixedSize, Read, Write, extensions::ReadExt};
use quorate_crypto::{Digest, Identity, sha256};
use std::fmt;

/// Version byte of an encoded [`Account`] without a bond.
const PLAIN_VERSION: u8 = 1;

/// Version byte of an encoded [`Account`] with a bond.
const BONDED_VERSION: u8 = 2;

/// Version byte of an encoded [`Account`] with a note about validators.
const NOTE_VERSION: u8 = 3;

/// Version byte of an encoded [`Account`] with a validator's report.
const REPORT_VERSION: u8 = 4;

/// Version byte of an encoded [`Account`] with a part of the passing on of shares.
const SLOT_VERSION: u8 = 5;

/// An account's state. One that was never paid is the default: both zero, no bond.
///
/// Encoded in 17 bytes: version 1, nonce 8, balance 8. With a bond the version is 2 and the bond
/// follows: at most 251 bytes in all. The registry's own account has version 3 and a note; those that hold the
/// reports of validators have version 4 and the report, and those of [`crate::registry::resharing`] version 5
/// and the [`Slot`].
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Account {
    /// How many transactions of the account were executed; the next one carries this number.
    pub nonce: u64,
    /// In the chain's smallest unit. The sum over all accounts, with what is bonded, never changes
    /// and fits in 64 bits.
    pub balance: u64,
    /// What it has at stake; see [`crate::registry`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bond: Option<Box<Bond>>,
    /// What the state says about an epoch's validators; in the account [`crate::REGISTRY`] only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<Box<RegistryNote>>,
    /// What a validator says about an external registry; in a [`crate::registry::report_slot`] only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<Report>,
    /// A part of the passing on of shares; in accounts of [`crate::registry::resharing`] only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<Box<Slot>>,
}

/// The key of an account in the authenticated state: SHA-256 of its identity.
pub fn state_key(identity: &Identity) -> Digest {
    sha256(&[&identity.0])
}

impl Account {
    /// Bytes of an encoded account without a bond.
    pub const PLAIN_SIZE: usize = 17;

    /// An account without a bond.
    pub fn plain(nonce: u64, balance: u64) -> Self {
        Self {
            nonce,
            balance,
            ..Self::default()
        }
    }

    /// The registry's own account.
    pub fn of_registry(note: RegistryNote) -> Self {
        Self {
            note: Some(Box::new(note)),
            ..Self::default()
        }
    }
}

impl EncodeSize for Account {
    fn encode_size(&self) -> usize {
        let rest = match (&self.note, &self.bond, &self.report, &self.slot) {
            (Some(note), ..) => note.encode_size(),
            (None, Some(bond), ..) => bond.encode_size(),
            (None, None, Some(_), _) => Report::SIZE,
            (None, None, None, slot) => slot.as_ref().map_or(0, |slot| slot.encode_size()),
        };
        Self::PLAIN_SIZE + rest
    }
}

impl Write for Account {
    fn write(&self, buffer: &mut impl BufMut) {
        let version = match (&self.note, &self.bond, &self.report, &self.slot) {
            (Some(_), ..) => NOTE_VERSION,
            (None, Some(_), ..) => BONDED_VERSION,
            (None, None, Some(_), _) => REPORT_VERSION,
            (None, None, None, Some(_)) => SLOT_VERSION,
            (None, None, None, None) => PLAIN_VERSION,
        };
        version.write(buffer);
        self.nonce.write(buffer);
        self.balance.write(buffer);
        match (&self.note, &self.bond, &self.report, &self.slot) {
            (Some(note), ..) => note.write(buffer),
            (None, Some(bond), ..) => bond.write(buffer),
            (None, None, Some(report), _) => report.write(buffer),
            (None, None, None, Some(slot)) => slot.write(buffer),
            (None, None, None, None) => {}
        }
    }
}

impl Read for Account {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        let version = u8::read(buffer)?;
        let mut account = Self::plain(u64::read(buffer)?, u64::read(buffer)?);
        match version {
            PLAIN_VERSION => {}
            BONDED_VERSION => account.bond = Some(Box::new(Bond::read(buffer)?)),
            NOTE_VERSION => account.note = Some(Box::new(RegistryNote::read(buffer)?)),
            REPORT_VERSION => account.report = Some(Report::read(buffer)?),
            SLOT_VERSION => account.slot = Some(Box::new(Slot::read(buffer)?)),
            _ => return Err(Error::Invalid("account", "unknown version")),
        }
        Ok(account)
    }
}

/// Why a transaction in a finalised block changed nothing but, maybe, its sender's fee and nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Its nonce was not the account's. Nothing was charged.
    WrongNonce,
    /// The sender could not even pay the fee. Nothing was charged.
    CannotPayFee,
    /// The sender could pay the fee but not the amount. The fee was charged and the nonce used, as
    /// for all that follow.
    InsufficientBalance,
    /// An operation on a chain without a registry.
    NoRegistry,
    /// The memo is no operation, or the operation takes no amount.
    BadOperation,
    /// The account has a bond already.
    AlreadyBonded,
    /// The account has no bond.
    NotBonded,
    /// The stake, or what would be left of it, is below the least; or nothing is added or taken.
    StakeTooSmall,
    /// The proof of possession is not one of this vote key for this chain and account.
    BadPossession,
    /// Nothing was unbonded, or it is still held.
    NothingToWithdraw,
    /// The votes do not convict the accused validator, or nothing is punished on this chain.
    BadEvidence,
    /// The accused validator was punished since, or had no bond yet.
    AlreadyPunished,
    /// The operation is of the other kind of registry: this chain's is outside of it, or is not.
    WrongRegistry,
    /// A report, or a dealing, of somebody who is no validator of the epoch.
    NotActing,
    /// Not at this time of the epoch, or not again, or nothing is dealt in this epoch.
    WrongPhase,
    /// The dealing is not one of the sender's share for this epoch's players.
    BadDealing,
    /// The complaint does not show that the dealer has given the sender something wrong.
    BadComplaint,
    /// The signature is not one of the sender's new share.
    BadShare,
    /// On a chain that only orders: it orders no payloads of a validator's. The nonce was not used.
    NoPayloads,
}

impl Failure {
    /// Every failure with its code on the wire and its name.
    const TABLE: [(Self, u8, &'static str); 19] = [
        (Self::WrongNonce, 1, "wrong_nonce"),
        (Self::CannotPayFee, 2, "cannot_pay_fee"),
        (Self::InsufficientBalance, 3, "insufficient_balance"),
        (Self::NoRegistry, 4, "no_registry"),
        (Self::BadOperation, 5, "bad_operation"),
        (Self::AlreadyBonded, 6, "already_bonded"),
        (Self::NotBonded, 7, "not_bonded"),
        (Self::StakeTooSmall, 8, "stake_too_small"),
        (Self::BadPossession, 9, "bad_possession"),
        (Self::NothingToWithdraw, 10, "nothing_to_withdraw"),
        (Self::BadEvidence, 11, "bad_evidence"),
        (Self::AlreadyPunished, 12, "already_punished"),
        (Self::WrongRegistry, 13, "wrong_registry"),
        (Self::NotActing, 14, "not_acting"),
        (Self::WrongPhase, 15, "wrong_phase"),
        (Self::BadDealing, 16, "bad_dealing"),
        (Self::BadComplaint, 17, "bad_complaint"),
        (Self::BadShare, 18, "bad_share"),
        (Self::NoPayloads, 19, "no_payloads"),
    ];

    fn row(self) -> &'static (Self, u8, &'static str) {
        let mut rows = Self::TABLE.iter();
        rows.find(|row| row.0 == self)
            .expect("all are in the table")
    }
}

/// The outcome of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The amount was moved and the fee paid.
    Applied,
    /// It failed for this reason.
    Failed(Failure),
}

/// The record of one executed transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The transaction's id.
    pub transaction: Digest,
    /// Its outcome.
    pub outcome: Outcome,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 20] = {
        let mut all = [Self::Applied; 20];
        let mut place = 0;
        while place < Failure::TABLE.len() {
            all[place + 1] = Self::Failed(Failure::TABLE[place].0);
            place += 1;
        }
        all
    };

    /// The outcome of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.name() == name)
    }

    /// Whether the transaction has used its sender's nonce and paid its fee, which it does once at most.
    pub fn used_nonce(&self) -> bool {
        !matches!(
            self,
            Self::Failed(Failure::WrongNonce | Failure::CannotPayFee | Failure::NoPayloads)
        )
    }

    /// A short name for people and programs: `applied`, or the failure's, such as `wrong_nonce`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Failed(failure) => failure.row().2,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FixedSize for Outcome {
    const SIZE: usize = 1;
}

impl Write for Outcome {
    fn write(&self, buffer: &mut impl BufMut) {
        let code: u8 = match self {
            Self::Applied => 0,
            Self::Failed(failure) => failure.row().1,
        };
        code.write(buffer);
    }
}

impl Read for Outcome {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        let code = u8::read(buffer)?;
        if code == 0 {
            return Ok(Self::Applied);
        }
        let mut rows = Failure::TABLE.iter();
        let row = rows.find(|row| row.1 == code);
        row.map(|row| Self::Failed(row.0))
            .ok_or(Error::InvalidEnum(code))
    }
}

fixed_codec!(Receipt {
    transaction: Digest,
    outcome: Outcome,
});
