//! Keys and values of the index.

use commonware_codec::{Copying, DecodeExt, Encode};
use quorate_types::{Certificate, Epoch, Height, Identity, ValidatorIndex};

/// An account's role in a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Sender,
    Receiver,
    /// It pays itself.
    Both,
}

impl Role {
    const ALL: [Self; 3] = [Self::Sender, Self::Receiver, Self::Both];

    pub(super) fn code(self) -> u8 {
        match self {
            Self::Sender => 1,
            Self::Receiver => 2,
            Self::Both => 3,
        }
    }

    pub(super) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.code() == code)
    }

    /// The role's name in the interface.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sender => "sender",
            Self::Receiver => "receiver",
            Self::Both => "both",
        }
    }
}

pub(super) fn height_key(height: Height) -> [u8; 8] {
    height.0.to_be_bytes()
}

/// Two numbers, concatenated.
pub(super) fn pair(first: u64, second: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&first.to_be_bytes());
    bytes[8..].copy_from_slice(&second.to_be_bytes());
    bytes
}

pub(super) fn read_pair(bytes: &[u8]) -> Option<(u64, u64)> {
    let bytes: &[u8; 16] = bytes.try_into().ok()?;
    let (first, second) = bytes.split_at(8);
    Some((read_number(first)?, read_number(second)?))
}

pub(super) fn read_number(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_be_bytes)
}

pub(super) fn place_key(epoch: Epoch, validator: ValidatorIndex) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&epoch.0.to_be_bytes());
    bytes[8..].copy_from_slice(&validator.0.to_be_bytes());
    bytes
}

/// A transaction's id and one of its positions.
pub(super) fn place(id: &[u8; 32], height: Height, index: u32) -> [u8; 44] {
    let mut bytes = [0; 44];
    bytes[..32].copy_from_slice(id);
    bytes[32..40].copy_from_slice(&height.0.to_be_bytes());
    bytes[40..].copy_from_slice(&index.to_be_bytes());
    bytes
}

/// The key of an account's transaction; ascending keys are the newest transactions first.
pub(super) fn newest_first(identity: &Identity, height: Height, index: u32) -> [u8; 44] {
    place(&identity.0, Height(!height.0), !index)
}

/// The position at the end of a 44-byte key that begins with these 32 bytes.
pub(super) fn read_place(key: &[u8], prefix: &[u8; 32]) -> Option<(u64, u32)> {
    let rest = key.strip_prefix(prefix)?;
    let (height, index) = rest.split_at_checked(8)?;
    let index = index.try_into().ok().map(u32::from_be_bytes)?;
    Some((read_number(height)?, index))
}

pub(super) fn nullified(reason: &str, certificate: &Certificate) -> Vec<u8> {
    let reason = reason.as_bytes();
    let length = u8::try_from(reason.len()).unwrap_or(u8::MAX);
    let mut row = vec![length];
    row.extend_from_slice(&reason[..usize::from(length)]);
    row.extend_from_slice(&certificate.encode());
    row
}

pub(super) fn read_nullified(row: &[u8]) -> Option<(String, Certificate)> {
    let (length, rest) = row.split_first()?;
    let (reason, certificate) = rest.split_at_checked(usize::from(*length))?;
    let reason = String::from_utf8(reason.to_vec()).ok()?;
    Some((reason, Certificate::decode(Copying(certificate)).ok()?))
}
