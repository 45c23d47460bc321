//! Accounts and receipts: the state that blocks change, and the outcomes of transactions.

use crate::codec::{fixed_codec, read_version};
use bytes::BufMut;
use commonware_codec::{Buf, Error, FixedSize, Read, Write, extensions::ReadExt};
use quorate_crypto::{Digest, Identity, sha256};
use std::fmt;

/// Version byte of an encoded [`Account`].
const ACCOUNT_VERSION: u8 = 1;

/// An account's state. One that was never paid is the default: both zero.
///
/// Encoded in 17 bytes: version 1, nonce 8, balance 8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Account {
    /// How many transactions of the account were executed; the next one carries this number.
    pub nonce: u64,
    /// In the chain's smallest unit. The sum over all accounts never changes and fits in 64 bits.
    pub balance: u64,
}

/// The key of an account in the authenticated state: SHA-256 of its identity.
pub fn state_key(identity: &Identity) -> Digest {
    sha256(&[&identity.0])
}

impl FixedSize for Account {
    const SIZE: usize = 17;
}

impl Write for Account {
    fn write(&self, buffer: &mut impl BufMut) {
        ACCOUNT_VERSION.write(buffer);
        self.nonce.write(buffer);
        self.balance.write(buffer);
    }
}

impl Read for Account {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        read_version(buffer, ACCOUNT_VERSION, "account")?;
        Ok(Self {
            nonce: u64::read(buffer)?,
            balance: u64::read(buffer)?,
        })
    }
}

/// Why a transaction in a finalised block changed nothing but, maybe, its sender's fee and nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Its nonce was not the account's. Nothing was charged.
    WrongNonce,
    /// The sender could not even pay the fee. Nothing was charged.
    CannotPayFee,
    /// The sender could pay the fee but not the amount. The fee was charged and the nonce used.
    InsufficientBalance,
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
    pub const ALL: [Self; 4] = [
        Self::Applied,
        Self::Failed(Failure::WrongNonce),
        Self::Failed(Failure::CannotPayFee),
        Self::Failed(Failure::InsufficientBalance),
    ];

    /// The outcome of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.name() == name)
    }

    /// Whether the transaction has used its sender's nonce and paid its fee, which it does once at most.
    pub fn used_nonce(&self) -> bool {
        match self {
            Self::Applied | Self::Failed(Failure::InsufficientBalance) => true,
            Self::Failed(Failure::WrongNonce | Failure::CannotPayFee) => false,
        }
    }

    /// A short name for people and programs: `applied`, `wrong_nonce`, `cannot_pay_fee` or
    /// `insufficient_balance`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Failed(Failure::WrongNonce) => "wrong_nonce",
            Self::Failed(Failure::CannotPayFee) => "cannot_pay_fee",
            Self::Failed(Failure::InsufficientBalance) => "insufficient_balance",
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
            Self::Failed(Failure::WrongNonce) => 1,
            Self::Failed(Failure::CannotPayFee) => 2,
            Self::Failed(Failure::InsufficientBalance) => 3,
        };
        code.write(buffer);
    }
}

impl Read for Outcome {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        match u8::read(buffer)? {
            0 => Ok(Self::Applied),
            1 => Ok(Self::Failed(Failure::WrongNonce)),
            2 => Ok(Self::Failed(Failure::CannotPayFee)),
            3 => Ok(Self::Failed(Failure::InsufficientBalance)),
            other => Err(Error::InvalidEnum(other)),
        }
    }
}

fixed_codec!(Receipt {
    transaction: Digest,
    outcome: Outcome,
});
