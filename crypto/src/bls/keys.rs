//! Validators' secret shares, the public side of a dealing, and the trusted dealer.

use super::{
    HashedMessage, MAX_VALIDATORS, PartialSignature, aggregate,
    curve::Jacobian,
    point::{G2Affine, SecretScalar},
    sum::Plan,
    weights::integer,
};
use crate::CRYPTOGRAPHY_OFF;
use crate::hash::sha256;
use commonware_codec::EncodeFixed;
use commonware_cryptography::bls12381::{
    dkg::feldman_desmedt::deal_anonymous,
    primitives::{group::Scalar, sharing::Mode, variant::MinSig},
};
use commonware_math::algebra::{Additive, Field, Ring};
use commonware_utils::N3f1;
use rand::{CryptoRng, Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use std::{collections::BTreeMap, num::NonZeroU32, sync::OnceLock};
use zeroize::Zeroizing;

/// A validator's vote secret: its share of the group key, or a key of its own. It has no `Debug` and no `Clone`, and its memory
/// is wiped when it is dropped.
pub struct VoteSecret {
    scalar: SecretScalar,
    /// Computed once: it takes as long as signing, and is asked for often.
    public: OnceLock<[u8; 96]>,
}

/// Thirty-two bytes that are no secret share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a secret share must be above zero and below the order of the curve's group")]
pub struct SecretError;

/// The public side of a dealing, as it is written in the genesis file. Nothing is checked before
/// [`Scheme::threshold`](super::Scheme::threshold).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThresholdKeys {
    /// How many signatures make a certificate: n − f for n validators, f = (n − 1) / 3.
    pub quorum: u32,
    /// The group's public key: a compressed point of G2.
    pub group_key: [u8; 96],
    /// Each validator's public key, by validator index: compressed points of G2.
    pub share_keys: Vec<[u8; 96]>,
}

/// Why the public side of a dealing is refused. All of them are mistakes in the genesis file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No validators, or more than [`MAX_VALIDATORS`].
    #[error("{found} validators; there must be 1 to {MAX_VALIDATORS}")]
    Validators {
        /// How many share keys there are.
        found: usize,
    },
    /// The quorum is not n − f.
    #[error("the quorum is {found}; for this number of validators it must be {expected}")]
    Quorum {
        /// The quorum that was given.
        found: u32,
        /// The quorum for this number of validators.
        expected: u32,
    },
    /// The group key is not a compressed point of G2 other than the identity.
    #[error("the group key is not a point of G2")]
    GroupKey,
    /// A share key is not a compressed point of G2 other than the identity.
    #[error("the share key of validator {index} is not a point of G2")]
    ShareKey {
        /// The validator's index.
        index: u32,
    },
    /// Two validators have the same share key.
    #[error("validators {first} and {second} have the same share key")]
    SameShareKey {
        /// The lower index.
        first: u32,
        /// The higher index.
        second: u32,
    },
    /// A vote key of the aggregate scheme is not a compressed point of G2 other than the identity.
    #[error("the vote key of validator {index} is not a point of G2")]
    VoteKey {
        /// The validator's index.
        index: u32,
    },
    /// Two validators have the same vote key.
    #[error("validators {first} and {second} have the same vote key")]
    SameVoteKey {
        /// The lower index.
        first: u32,
        /// The higher index.
        second: u32,
    },
    /// A proof of possession does not hold: it must be made with the vote key's secret, for this
    /// chain's name and this validator's identity.
    #[error(
        "the proof of possession of validator {index} does not hold for this chain's name, its \
         identity and its vote key"
    )]
    Possession {
        /// The validator's index.
        index: u32,
    },
    /// The keys do not belong together: no polynomial of degree quorum − 1 has the group key at 0
    /// and the share keys at 1, 2, ….
    #[error("the share keys and the group key are not of one dealing with this quorum")]
    NotOneDealing,
    /// The keys lie on a polynomial of a lower degree, so fewer than a quorum could sign.
    #[error("fewer validators than the quorum could sign for the group")]
    LowerQuorum,
}

/// [`ThresholdKeys`] as points that have passed every check.
pub(super) struct CheckedKeys {
    pub(super) group_key: G2Affine,
    pub(super) share_keys: Vec<G2Affine>,
}

impl VoteSecret {
    /// Reads a share from its 32 bytes, big-endian.
    ///
    /// # Errors
    ///
    /// If the number is zero or not below the order of the group.
    pub fn from_bytes(bytes: &[u8; 32]) -> Result<Self, SecretError> {
        let scalar = SecretScalar::from_bytes(bytes).ok_or(SecretError)?;
        Ok(Self {
            scalar,
            public: OnceLock::new(),
        })
    }

    /// The share's 32 bytes, big-endian, for writing them to a file.
    pub fn to_bytes(&self) -> Zeroizing<[u8; 32]> {
        self.scalar.to_bytes()
    }

    /// Signs a message, in constant time.
    pub fn sign(&self, message: &HashedMessage) -> PartialSignature {
        if CRYPTOGRAPHY_OFF {
            return PartialSignature(message.0.to_uncompressed());
        }
        PartialSignature(self.scalar.multiply(&message.0).to_uncompressed())
    }

    /// A fresh secret for the aggregate scheme, which its owner makes alone.
    pub fn random(mut rng: impl CryptoRng) -> Self {
        loop {
            let mut bytes = Zeroizing::new([0; 32]);
            rng.fill_bytes(&mut *bytes);
            // Less than half of all 256-bit numbers are below the order of the group.
            if let Ok(secret) = Self::from_bytes(&bytes) {
                return secret;
            }
        }
    }

    /// Proves to a chain of this name that the validator of this identity knows the secret of
    /// [`Self::public_key`]: a compressed point of G1.
    pub fn prove_possession(&self, chain_name: &str, identity: &[u8; 32]) -> [u8; 48] {
        aggregate::prove(&self.scalar, chain_name, identity)
    }

    /// The public key: a compressed point of G2.
    pub fn public_key(&self) -> [u8; 96] {
        *self
            .public
            .get_or_init(|| self.scalar.public().to_compressed())
    }
}

/// The quorum for this many validators: n − f with f = (n − 1) / 3.
pub(super) fn quorum(validators: u32) -> u32 {
    validators - validators.saturating_sub(1) / 3
}

/// Deals a fresh group key to validators 0, 1, … by a trusted dealer, who must be forgotten
/// afterwards. Validator i gets the polynomial's value at i + 1.
///
/// # Panics
///
/// Unless there are 1 to [`MAX_VALIDATORS`] validators.
pub fn deal(validators: u32, rng: impl CryptoRng) -> (ThresholdKeys, Vec<VoteSecret>) {
    assert!(
        (1..=MAX_VALIDATORS).contains(&validators),
        "1 to {MAX_VALIDATORS} validators"
    );
    let count = NonZeroU32::new(validators).expect("just asserted");
    let (sharing, shares) = deal_anonymous::<MinSig, N3f1>(rng, Mode::NonZeroCounter, count);
    let secrets: Vec<_> = shares
        .iter()
        .map(|share| {
            let bytes: Zeroizing<[u8; 32]> = Zeroizing::new(share.private.encode_fixed());
            VoteSecret::from_bytes(&bytes).expect("a random share is zero with probability 2^-255")
        })
        .collect();
    let keys = ThresholdKeys {
        quorum: quorum(validators),
        group_key: sharing.public().encode_fixed(),
        share_keys: secrets.iter().map(VoteSecret::public_key).collect(),
    };
    (keys, secrets)
}

impl ThresholdKeys {
    /// Decodes and checks everything, see [`KeyError`].
    pub(super) fn check(&self) -> Result<CheckedKeys, KeyError> {
        let found = self.share_keys.len();
        let validators = u32::try_from(found)
            .ok()
            .filter(|count| (1..=MAX_VALIDATORS).contains(count))
            .ok_or(KeyError::Validators { found })?;
        let expected = quorum(validators);
        if self.quorum != expected {
            let found = self.quorum;
            return Err(KeyError::Quorum { found, expected });
        }
        let mut seen = BTreeMap::new();
        for (second, key) in (0..).zip(&self.share_keys) {
            if let Some(first) = seen.insert(key, second) {
                return Err(KeyError::SameShareKey { first, second });
            }
        }
        let decode = |bytes| G2Affine::from_compressed(bytes).filter(G2Affine::in_subgroup);
        let group_key = decode(&self.group_key).ok_or(KeyError::GroupKey)?;
        let share_keys = (0..)
            .zip(&self.share_keys)
            .map(|(index, key)| decode(key).ok_or(KeyError::ShareKey { index }))
            .collect::<Result<Vec<_>, _>>()?;
        let keys = CheckedKeys {
            group_key,
            share_keys,
        };
        self.check_degree(&keys)?;
        Ok(keys)
    }

    /// Whether the keys are the values at 0 to n of a polynomial f whose degree is exactly
    /// quorum − 1.
    ///
    /// With vᵢ = 1 / Π_{j≠i} (i − j), Σ vᵢ·h(i) is the coefficient of xⁿ in the polynomial of
    /// degree n through the h(i). For h = f·xᵏ it vanishes up to k = n − quorum exactly if f has
    /// degree quorum − 1 at most, and for k one higher it is the leading coefficient of f. The
    /// vanishing sums are checked all at once, by a random combination g of these xᵏ (the dual
    /// code, as in the SCRAPE protocol of Cascudo and David, ACNS 2017).
    fn check_degree(&self, keys: &CheckedKeys) -> Result<(), KeyError> {
        let points: Vec<G2Affine> = [keys.group_key]
            .into_iter()
            .chain(keys.share_keys.iter().copied())
            .collect();
        let validators = self.share_keys.len() as u64;
        let degree = validators - u64::from(self.quorum);

        // The randomness comes from the keys themselves: whoever made them cannot choose it.
        let mut hashed: Vec<&[u8]> = vec![b"QUORATE-V1-DEALING", &self.group_key];
        hashed.extend(self.share_keys.iter().map(<[u8; 96]>::as_slice));
        let mut rng = ChaCha20Rng::from_seed(sha256(&hashed).0);
        let random: Vec<Scalar> = (0..=degree)
            .map(|_| Scalar::from_limbs([rng.next_u64(), rng.next_u64(), 0, 0]))
            .collect();

        let coefficients = top_coefficients(validators);
        let weighted = |weight: &dyn Fn(&Scalar) -> Scalar| {
            let scalar = |(at, coefficient): (u64, &Scalar)| {
                integer(&(weight(&Scalar::from_u64(at)) * coefficient))
            };
            let scalars: Vec<_> = (0..).zip(&coefficients).map(scalar).collect();
            Plan::new(&scalars).sum(&points).to_affine()
        };
        let combination = weighted(&|at| {
            let horner = |sum: Scalar, coefficient| sum * at + coefficient;
            random.iter().fold(Scalar::zero(), horner)
        });
        if combination.is_some() {
            return Err(KeyError::NotOneDealing);
        }
        let leading = weighted(&|at| (0..=degree).fold(Scalar::one(), |power, _| power * at));
        match leading {
            Some(_) => Ok(()),
            None => Err(KeyError::LowerQuorum),
        }
    }
}

/// vᵢ = 1 / Π_{j≠i} (i − j) = (−1)ⁿ⁻ⁱ / (i! · (n − i)!) for i and j from 0 to n.
fn top_coefficients(n: u64) -> Vec<Scalar> {
    let factorial = (1..=n).fold(Scalar::one(), |product, i| product * &Scalar::from_u64(i));
    // 1/n!, 1/(n−1)!, …, 1/0!
    let mut inverses = vec![factorial.inv()];
    for i in (1..=n).rev() {
        let last = inverses.last().expect("starts with one element");
        inverses.push(last.clone() * &Scalar::from_u64(i));
    }
    let signed = |(i, (left, right)): (u64, (&Scalar, &Scalar))| {
        let product = left.clone() * right;
        if (n - i).is_multiple_of(2) {
            product
        } else {
            -product
        }
    };
    (0..)
        .zip(inverses.iter().rev().zip(&inverses))
        .map(signed)
        .collect()
}
