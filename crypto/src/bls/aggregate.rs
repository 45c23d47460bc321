//! `bls-aggregate`: every validator has a key of its own, a certificate names its signers.
//!
//! A certificate is a bitmap and the plain sum of the signers' signatures; it verifies against the
//! sum of their keys. Two things make the plain sum safe:
//!
//! - *Proofs of possession.* Without them somebody could register the key K − Σ other keys, for a
//!   K of which it knows the secret, and sign for all of them alone. So each validator proves at
//!   genesis that it knows its key's secret, with a signature in a domain of its own over the
//!   chain's name, its identity and the key. (The chain's *id* is the hash of a file that holds
//!   the proofs, so a proof cannot name it; a proof can be used again on a chain of the same name,
//!   by the same validator with the same key, which gains nobody anything.)
//! - *One message.* All parts of a certificate sign the same bytes.
//!
//! What a certificate proves: all its signers together signed this message. Colluders may send
//! s₁ + d and s₂ − d; the sum holds, and rightly: without both secrets nobody can make s₁ + s₂, so
//! both took part. It does not prove that each *part* was valid, and no part is marked so.
//!
//! The sum of the keys is kept incrementally: it is made from the sum of all keys or that of a
//! set that was used lately, whichever differs less.

use super::{
    MAX_VALIDATORS,
    bisect::Weight,
    curve::{Affine, Jacobian},
    keys::KeyError,
    point::{G1Affine, G2Affine, Lines, SecretScalar, pairing_product},
    sum::{Integer, Plan},
    weights::with_images,
};
use crate::hash::sha256;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

/// The domain of proofs of possession (RFC 9380, section 3.1), apart from that of votes.
pub const POSSESSION_DST: &[u8] = b"QUORATE-V1-BLS12381G1_XMD:SHA-256_SSWU_RO_POP";

/// Key sums that are remembered.
const CACHED_SUMS: usize = 8;

/// Proofs of possession that are verified together.
const POSSESSION_BATCH: usize = 64;

/// A member of a committee, as it is written in the genesis file. Nothing is checked before
/// [`Scheme::aggregate`](super::Scheme::aggregate).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AggregateMember {
    /// Its ed25519 identity.
    pub identity: [u8; 32],
    /// Its vote key: a compressed point of G2.
    pub key: [u8; 96],
    /// The proof that it knows the key's secret: a compressed point of G1.
    pub possession: [u8; 48],
}

/// The state of `bls-aggregate`.
pub(super) struct Aggregate {
    pub(super) keys: Vec<G2Affine>,
    /// The sum of all keys; `None` if it is the identity.
    total: Option<G2Affine>,
    sums: Mutex<Vec<KeySum>>,
}

/// The sum of a set's keys. `lines` is `None` if it is the identity.
#[derive(Clone)]
struct KeySum {
    members: Arc<[u32]>,
    sum: Option<G2Affine>,
    lines: Option<Arc<Lines>>,
}

/// The bytes that prove possession of a key: `"quorate/possession/1"`, the chain's name after its
/// length (2 bytes), the identity, the key.
fn statement(chain_name: &str, identity: &[u8; 32], key: &[u8; 96]) -> Vec<u8> {
    let mut bytes = b"quorate/possession/1".to_vec();
    let length = u16::try_from(chain_name.len()).unwrap_or(u16::MAX);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(chain_name.as_bytes());
    bytes.extend_from_slice(identity);
    bytes.extend_from_slice(key);
    bytes
}

/// Proves possession of a secret to the chain of this name.
pub(super) fn prove(secret: &SecretScalar, chain_name: &str, identity: &[u8; 32]) -> [u8; 48] {
    let key = secret.public().to_compressed();
    let hash = G1Affine::hash(&statement(chain_name, identity, &key), POSSESSION_DST);
    secret.multiply(&hash).to_compressed()
}

/// A member whose points have been read.
struct Candidate {
    key: G2Affine,
    proof: G1Affine,
    hash: G1Affine,
}

impl AggregateMember {
    /// Reads the points; `Err` names what is wrong with member `index`.
    fn read(&self, index: u32, chain_name: &str) -> Result<Candidate, KeyError> {
        let key = G2Affine::from_compressed(&self.key)
            .filter(G2Affine::in_subgroup)
            .ok_or(KeyError::VoteKey { index })?;
        let proof = G1Affine::from_compressed(&self.possession)
            .filter(G1Affine::in_subgroup)
            .ok_or(KeyError::Possession { index })?;
        let statement = statement(chain_name, &self.identity, &self.key);
        Ok(Candidate {
            key,
            proof,
            hash: G1Affine::hash(&statement, POSSESSION_DST),
        })
    }

    /// Whether the key is one and its possession is proven to the chain of this name.
    pub fn is_proven(&self, chain_name: &str) -> bool {
        self.read(0, chain_name)
            .is_ok_and(|candidate| candidate.holds())
    }
}

impl Candidate {
    fn holds(&self) -> bool {
        pairing_product(&[
            (&self.proof, Lines::generator()),
            (&self.hash.negate(), &Lines::new(&self.key)),
        ])
        .is_one()
    }
}

/// Whether all these proofs hold: e(Σ rᵢ·πᵢ, g₂) = Π e(rᵢ·Hᵢ, pkᵢ) with random weights.
fn all_hold(candidates: &[Candidate], seed: [u8; 32]) -> bool {
    let weights: Vec<_> = Weight::stream(seed).take(candidates.len()).collect();
    let proofs: Vec<_> = candidates.iter().map(|c| c.proof).collect();
    let sum = Weight::plan(&weights)
        .sum(&with_images(&proofs))
        .to_affine();
    let mut sides: Vec<(G1Affine, Lines)> = Vec::with_capacity(candidates.len());
    for (candidate, weight) in candidates.iter().zip(&weights) {
        let hash = Weight::plan(&[*weight])
            .sum(&with_images(&[candidate.hash]))
            .to_affine();
        let Some(hash) = hash else {
            // Happens with probability 2⁻¹²⁸; the caller then checks one by one.
            return false;
        };
        sides.push((hash.negate(), Lines::new(&candidate.key)));
    }
    let Some(sum) = sum else {
        return false;
    };
    let left = [(&sum, Lines::generator())].into_iter();
    let right = sides.iter().map(|(hash, lines)| (hash, lines));
    pairing_product(&left.chain(right).collect::<Vec<_>>()).is_one()
}

/// There must be keys, not too many, and each once.
fn check_list<'a>(keys: impl ExactSizeIterator<Item = &'a [u8; 96]>) -> Result<(), KeyError> {
    let found = keys.len();
    u32::try_from(found)
        .ok()
        .filter(|count| (1..=MAX_VALIDATORS).contains(count))
        .ok_or(KeyError::Validators { found })?;
    let mut seen = BTreeMap::new();
    for (second, key) in (0..).zip(keys) {
        if let Some(first) = seen.insert(key, second) {
            return Err(KeyError::SameVoteKey { first, second });
        }
    }
    Ok(())
}

impl Aggregate {
    /// Checks everything: see [`KeyError`]. About 0.4 ms for each member.
    pub(super) fn new(chain_name: &str, members: &[AggregateMember]) -> Result<Self, KeyError> {
        check_list(members.iter().map(|member| &member.key))?;
        // The weights come from the members themselves: whoever made them cannot choose them.
        let mut hashed: Vec<&[u8]> = vec![b"QUORATE-V1-POSSESSION", chain_name.as_bytes()];
        for member in members {
            hashed.extend([&member.identity[..], &member.key, &member.possession]);
        }
        let seed = sha256(&hashed).0;
        let mut keys = Vec::with_capacity(members.len());
        let mut index = 0;
        for batch in members.chunks(POSSESSION_BATCH) {
            let first = index;
            let mut candidates = Vec::with_capacity(batch.len());
            for member in batch {
                candidates.push(member.read(index, chain_name)?);
                index += 1;
            }
            if !all_hold(&candidates, seed) {
                let bad = candidates.iter().position(|c| !c.holds());
                let index = first + bad.unwrap_or(0) as u32;
                if bad.is_some() {
                    return Err(KeyError::Possession { index });
                }
            }
            keys.extend(candidates.iter().map(|candidate| candidate.key));
        }
        Ok(Self::of(keys))
    }

    /// Checks everything but possession.
    pub(super) fn of_proven(keys: &[[u8; 96]]) -> Result<Self, KeyError> {
        check_list(keys.iter())?;
        let keys = (0..).zip(keys).map(|(index, key)| {
            G2Affine::from_compressed(key)
                .filter(G2Affine::in_subgroup)
                .ok_or(KeyError::VoteKey { index })
        });
        Ok(Self::of(keys.collect::<Result<_, _>>()?))
    }

    fn of(keys: Vec<G2Affine>) -> Self {
        let all: Vec<_> = keys.iter().map(|key| (*key, false)).collect();
        Self {
            total: signed_sum(&all),
            keys,
            sums: Mutex::new(Vec::with_capacity(CACHED_SUMS)),
        }
    }

    /// The Miller loop's lines of the sum of these members' keys (ascending, distinct, in range);
    /// `None` if the sum is the identity.
    pub(super) fn sum_of(&self, members: &[u32]) -> Option<Arc<Lines>> {
        // A panic elsewhere cannot leave the list half-changed, so poisoning means nothing here.
        let lock = || self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let cached: Vec<KeySum> = {
            let mut cache = lock();
            if let Some(found) = cache.iter().position(|held| *held.members == *members) {
                cache[..=found].rotate_right(1);
                return cache[0].lines.clone();
            }
            cache.clone()
        };
        // Computed without the lock: two threads may do so for one set, and both are right.
        let sum = self.compute(members, &cached);
        let made = KeySum {
            members: members.into(),
            sum,
            lines: sum.map(|sum| Arc::new(Lines::new(&sum))),
        };
        let lines = made.lines.clone();
        let mut cache = lock();
        cache.truncate(CACHED_SUMS - 1);
        cache.insert(0, made);
        lines
    }

    /// Starts from whichever known sum differs least: nothing, all keys, or a cached set.
    fn compute(&self, members: &[u32], cached: &[KeySum]) -> Option<G2Affine> {
        let all: Vec<u32> = (0..self.keys.len() as u32).collect();
        let starts = [(&[][..], None), (&all[..], self.total)];
        let known = cached.iter().map(|held| (&held.members[..], held.sum));
        let (start, sum) = starts
            .into_iter()
            .chain(known)
            .min_by_key(|(start, _)| difference(start, members).count())
            .expect("two starts are always there");
        let terms: Vec<_> = sum
            .map(|sum| (sum, false))
            .into_iter()
            .chain(
                difference(start, members)
                    .map(|(member, leaves)| (self.keys[member as usize], leaves)),
            )
            .collect();
        signed_sum(&terms)
    }
}

/// What turns one ascending list into another: each member that only one of them has, and whether
/// it is to be taken away.
fn difference<'a>(from: &'a [u32], to: &'a [u32]) -> impl Iterator<Item = (u32, bool)> + 'a {
    let leaves = from.iter().filter(|m| to.binary_search(m).is_err());
    let joins = to.iter().filter(|m| from.binary_search(m).is_err());
    leaves.map(|m| (*m, true)).chain(joins.map(|m| (*m, false)))
}

/// The sum of points, some of them negated; `None` for the identity.
fn signed_sum(terms: &[(G2Affine, bool)]) -> Option<G2Affine> {
    if let [(point, negate)] = terms {
        return Some(if *negate { point.negate() } else { *point });
    }
    let scalars: Vec<Integer> = terms
        .iter()
        .map(|(_, negative)| Integer {
            negative: *negative,
            ..Integer::from_u128(1)
        })
        .collect();
    let points: Vec<G2Affine> = terms.iter().map(|(point, _)| *point).collect();
    Plan::new(&scalars).sum(&points).to_affine()
}

/// The plain sum of signatures; `None` for the identity.
pub(super) fn sum_signatures(points: &[G1Affine]) -> Option<G1Affine> {
    let scalars = vec![Integer::from_u128(1); points.len()];
    Plan::new(&scalars).sum(points).to_affine()
}
