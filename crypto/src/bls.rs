//! The BLS12-381 vote schemes.
//!
//! Votes are signatures in G1 under keys in G2 ("minimal signature size"). A vote travels
//! *uncompressed* and stays undecoded bytes until a quorum has come; then one combination, one
//! subgroup check of the result and one pairing check make a certificate of all of them:
//!
//! 1. read the parts, checking only that they are on the curve (0.2 µs each, where decompression
//!    and a subgroup check take 45 µs);
//! 2. combine them (threshold: Lagrange interpolation; aggregate: a plain sum);
//! 3. check that the combined point has prime order, then one pairing equation with precomputed
//!    lines for the generator and the group key, or the sum of the signers' keys.
//!
//! Combining first is safe: a point of the subgroup that verifies under a key *is* the one valid
//! signature under it, whatever its parts were. For the same reason it says nothing about the parts.
//! On failure each part gets its subgroup check, and a bisection with random weights names the
//! invalid ones.
//!
//! | file | what is in it |
//! |---|---|
//! | `point` | every call into `blst`; the only `unsafe` code of the project |
//! | `curve` | what the next one needs to know of a curve |
//! | `sum` | sums of many multiples of points |
//! | `weights` | Lagrange weights of a signer set, and their cache |
//! | `keys` | secret shares, the public side of a dealing, the dealer |
//! | `dealing` | sharing a key without a dealer, and passing it on to others |
//! | `aggregate`, `signers` | keys with proofs of possession, their sums, bitmaps of signers |
//! | `bisect` | who is to blame |
//! | `group` | verifying certificates with the group key alone |
//! | `scheme` | the interface that puts these together |
//!
//! *Architecture invariants*: nothing here reads a clock or makes randomness (seeds and
//! generators are arguments); decoding from the wire does no work on the curve; no input, however
//! hostile, makes anything panic.

mod aggregate;
mod bisect;
mod curve;
mod dealing;
mod group;
mod keys;
mod point;
mod scheme;
mod signers;
mod sum;
mod weights;

#[cfg(test)]
mod tests;

pub use aggregate::{AggregateMember, POSSESSION_DST};
pub use dealing::{
    CheckedDealing, Complaint, Dealing, DealingError, OpeningKey, OpeningSecret, Round, Sum,
};
pub use group::GroupKey;
pub use keys::{KeyError, SecretError, ThresholdKeys, VoteSecret, deal};
pub use scheme::{Ballot, CertifyError, Scheme};
pub use signers::Signers;

use crate::CRYPTOGRAPHY_OFF;
use commonware_codec::{EncodeSize, Error, FixedSize, Read, Write, extensions::ReadExt};
use std::{fmt, str::FromStr};

/// The largest committee: the limit of every crate.
pub const MAX_VALIDATORS: u32 = 1024;

/// The domain of a vote's hash to the curve (RFC 9380, section 3.1). Its version changes whenever
/// the meaning of a signature does.
pub const VOTE_DST: &[u8] = b"QUORATE-V1-BLS12381G1_XMD:SHA-256_SSWU_RO_VOTE";

/// A vote scheme, as the genesis file names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SchemeKind {
    /// One group key, shared by a polynomial of degree quorum − 1; certificates of constant size.
    BlsThreshold,
    /// A key for each validator; certificates name their signers.
    BlsAggregate,
}

/// A name that is no vote scheme.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown vote scheme {name:?}; known: {}", known_schemes())]
pub struct UnknownScheme {
    /// The name that was given.
    pub name: String,
}

/// A vote's signature as it travels: a point of G1, uncompressed, 96 bytes that nobody has looked
/// at. Two signatures are equal if their bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PartialSignature(pub [u8; 96]);

/// What proves a certificate. Encoded as a tag byte and what the variant needs.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Proof {
    /// The group's signature: a compressed point of G1. Tag 0, then 48 bytes.
    Threshold([u8; 48]),
    /// The signers and the sum of their signatures, a compressed point of G1. Tag 1, then the
    /// encoding of [`Signers`], then 48 bytes.
    Aggregate {
        /// The signers.
        signers: Signers,
        /// The sum.
        signature: [u8; 48],
    },
}

/// A message hashed to the curve: a point of G1. Hashing takes 45 µs, so one value serves for
/// signing and for every verification of one message.
#[derive(Clone)]
pub struct HashedMessage(point::G1Affine);

/// What verifying has cost, for metrics and for budgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CheckCount {
    /// How many pairing equations were evaluated.
    pub pairing_checks: u32,
    /// How many batches with an invalid signature were split in two.
    pub bisections: u32,
}

impl std::ops::AddAssign for CheckCount {
    fn add_assign(&mut self, other: Self) {
        self.pairing_checks += other.pairing_checks;
        self.bisections += other.bisections;
    }
}

impl SchemeKind {
    /// Every scheme.
    pub const ALL: [Self; 2] = [Self::BlsThreshold, Self::BlsAggregate];

    /// The scheme's name in the genesis file.
    pub fn name(&self) -> &'static str {
        match self {
            Self::BlsThreshold => "bls-threshold",
            Self::BlsAggregate => "bls-aggregate",
        }
    }
}

impl fmt::Display for SchemeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for SchemeKind {
    type Err = UnknownScheme;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|kind| kind.name() == name);
        known.ok_or_else(|| UnknownScheme { name: name.into() })
    }
}

fn known_schemes() -> String {
    SchemeKind::ALL.map(|kind| kind.name()).join(", ")
}

impl HashedMessage {
    /// Hashes a message to the curve in the domain [`VOTE_DST`].
    pub fn new(message: &[u8]) -> Self {
        if CRYPTOGRAPHY_OFF {
            return Self(point::G1Affine::generator());
        }
        Self(point::G1Affine::hash(message, VOTE_DST))
    }
}

impl PartialSignature {
    /// The same point as a certificate holds it, compressed; `None` if the bytes are no point.
    pub fn to_compressed(&self) -> Option<[u8; 48]> {
        point::G1Affine::from_uncompressed(&self.0).map(|point| point.to_compressed())
    }
}

impl fmt::Debug for PartialSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PartialSignature({}…)", hex::encode(&self.0[..4]))
    }
}

impl FixedSize for PartialSignature {
    const SIZE: usize = 96;
}

impl Write for PartialSignature {
    fn write(&self, buffer: &mut impl bytes::BufMut) {
        self.0.write(buffer);
    }
}

impl Read for PartialSignature {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl commonware_codec::Buf, _: &()) -> Result<Self, Error> {
        Ok(Self(<[u8; 96]>::read(buffer)?))
    }
}

impl Proof {
    /// The longest encoding, in bytes.
    pub const MAX_BYTES: usize = 1 + Signers::MAX_BYTES + 48;

    const THRESHOLD_TAG: u8 = 0;
    const AGGREGATE_TAG: u8 = 1;
}

impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Threshold(signature) => {
                write!(f, "Threshold({}…)", hex::encode(&signature[..4]))
            }
            Self::Aggregate { signers, signature } => {
                write!(
                    f,
                    "Aggregate({}…, {signers:?})",
                    hex::encode(&signature[..4])
                )
            }
        }
    }
}

impl EncodeSize for Proof {
    fn encode_size(&self) -> usize {
        match self {
            Self::Threshold(signature) => 1 + signature.len(),
            Self::Aggregate { signers, signature } => 1 + signers.encode_size() + signature.len(),
        }
    }
}

impl Write for Proof {
    fn write(&self, buffer: &mut impl bytes::BufMut) {
        match self {
            Self::Threshold(signature) => {
                Self::THRESHOLD_TAG.write(buffer);
                signature.write(buffer);
            }
            Self::Aggregate { signers, signature } => {
                Self::AGGREGATE_TAG.write(buffer);
                signers.write(buffer);
                signature.write(buffer);
            }
        }
    }
}

impl Read for Proof {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl commonware_codec::Buf, _: &()) -> Result<Self, Error> {
        match u8::read(buffer)? {
            Self::THRESHOLD_TAG => Ok(Self::Threshold(<[u8; 48]>::read(buffer)?)),
            Self::AGGREGATE_TAG => Ok(Self::Aggregate {
                signers: Signers::read(buffer)?,
                signature: <[u8; 48]>::read(buffer)?,
            }),
            tag => Err(Error::InvalidEnum(tag)),
        }
    }
}
