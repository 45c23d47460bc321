//! The vote schemes behind one interface.

use super::{
    CheckCount, GroupKey, HashedMessage, KeyError, PartialSignature, Proof, SchemeKind, Signers,
    ThresholdKeys,
    aggregate::{Aggregate, AggregateMember, sum_signatures},
    bisect::{self, Suspect, Weight},
    curve::{Affine, Jacobian},
    group,
    point::{G1, G1Affine, G2Affine, Lines, pairing_product},
    weights::{SignerSet, WeightCache, with_images},
};
use crate::CRYPTOGRAPHY_OFF;
use std::{collections::BTreeMap, sync::Arc};

/// Verifies votes and makes certificates for one committee. Cheap to clone; clones share the
/// caches.
#[derive(Clone)]
pub struct Scheme(Arc<Inner>);

/// Votes that may make a certificate.
#[derive(Clone, Copy)]
pub struct Ballot<'a> {
    /// The signed message.
    pub message: &'a HashedMessage,
    /// The signers and their signatures.
    pub parts: &'a [(u32, PartialSignature)],
    /// So many of the parts, the first, were found valid before, each for itself: upon a failure
    /// they are not examined again.
    pub verified: usize,
}

/// Why there is no certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CertifyError {
    /// Some signatures do not verify.
    #[error("invalid signatures from {bad:?}")]
    Invalid {
        /// The signers of all invalid parts, ascending. Every part of another signer is valid,
        /// also one that was not needed for the quorum. Never empty, unless the machine itself
        /// computes wrongly: a quorum of valid parts always combines.
        bad: Vec<u32>,
        /// The pairing checks that this took, the failed one of the combination included.
        checks: CheckCount,
    },
    /// Fewer parts than the quorum.
    #[error("{found} signatures; the quorum is {quorum}")]
    TooFew {
        /// How many parts were given.
        found: usize,
        /// How many are needed.
        quorum: u32,
    },
    /// Two parts from one signer.
    #[error("validator {signer} appears twice")]
    Duplicate {
        /// The validator's index.
        signer: u32,
    },
    /// A part of a signer outside the committee.
    #[error("there is no validator {signer}")]
    UnknownSigner {
        /// The index that is out of range.
        signer: u32,
    },
}

struct Inner {
    validators: u32,
    quorum: u32,
    keys: Keys,
}

enum Keys {
    Threshold(Threshold),
    Aggregate(Aggregate),
}

/// The state of `bls-threshold`.
struct Threshold {
    group: GroupKey,
    share_keys: Vec<G2Affine>,
    weights: WeightCache,
}

/// What parts combine to, before or after it is known to hold.
struct Combined {
    /// In the subgroup.
    signature: G1Affine,
    /// The signers, ascending; empty if the signature is the group's.
    signers: Vec<u32>,
}

impl Scheme {
    /// The threshold scheme with these keys. Takes about 0.15 ms per validator.
    ///
    /// # Errors
    ///
    /// Unless every key is a point of G2, the share keys are distinct, and all of them are of one
    /// dealing with this quorum; see [`KeyError`].
    pub fn threshold(keys: &ThresholdKeys) -> Result<Self, KeyError> {
        let checked = keys.check()?;
        Ok(Self(Arc::new(Inner {
            validators: checked.share_keys.len() as u32,
            quorum: keys.quorum,
            keys: Keys::Threshold(Threshold {
                group: GroupKey::from_point(&checked.group_key),
                share_keys: checked.share_keys,
                weights: WeightCache::new(),
            }),
        })))
    }

    /// The aggregate scheme of a chain of this name, with these members in the committee's order.
    /// Takes about 0.4 ms per member.
    ///
    /// # Errors
    ///
    /// Unless every key is a point of G2, the keys are distinct, and each comes with a proof of
    /// possession that names the chain and the member's identity; see [`KeyError`].
    pub fn aggregate(chain_name: &str, members: &[AggregateMember]) -> Result<Self, KeyError> {
        Ok(Self::of_aggregate(Aggregate::new(chain_name, members)?))
    }

    /// The aggregate scheme with these keys, whose possession was proven before: to whoever wrote
    /// them where they come from. Takes about 0.2 ms per key.
    ///
    /// # Errors
    ///
    /// Unless every key is a point of G2, and the keys are distinct; see [`KeyError`].
    pub fn aggregate_of_proven(keys: &[[u8; 96]]) -> Result<Self, KeyError> {
        Ok(Self::of_aggregate(Aggregate::of_proven(keys)?))
    }

    fn of_aggregate(aggregate: Aggregate) -> Self {
        let validators = aggregate.keys.len() as u32;
        Self(Arc::new(Inner {
            validators,
            quorum: super::keys::quorum(validators),
            keys: Keys::Aggregate(aggregate),
        }))
    }

    /// Which scheme this is.
    pub fn kind(&self) -> SchemeKind {
        match self.0.keys {
            Keys::Threshold(_) => SchemeKind::BlsThreshold,
            Keys::Aggregate(_) => SchemeKind::BlsAggregate,
        }
    }

    /// How many validators there are.
    pub fn validators(&self) -> u32 {
        self.0.validators
    }

    /// How many signatures make a certificate.
    pub fn quorum(&self) -> u32 {
        self.0.quorum
    }

    /// Combines the first `quorum` parts (validator index, signature) and verifies the result,
    /// with a single pairing check.
    ///
    /// A certificate says nothing about its parts: errors of colluding signers can cancel in the
    /// combination, which holds all the same. If the combination fails,
    /// *all* parts are examined as by [`Self::find_invalid`]; `seed` must not be predictable for
    /// the signers and is used for nothing else.
    ///
    /// # Errors
    ///
    /// See [`CertifyError`]. The indices are checked before any cryptography.
    pub fn certify(
        &self,
        message: &HashedMessage,
        parts: &[(u32, PartialSignature)],
        seed: [u8; 32],
    ) -> Result<Proof, CertifyError> {
        let ballot = Ballot {
            message,
            parts,
            verified: 0,
        };
        self.certify_ballot(&ballot, seed)
    }

    /// As [`Self::certify`], which examines only the parts that are not known to be valid.
    ///
    /// # Errors
    ///
    /// See [`CertifyError`].
    pub fn certify_ballot(
        &self,
        ballot: &Ballot<'_>,
        seed: [u8; 32],
    ) -> Result<Proof, CertifyError> {
        let mut checks = CheckCount::default();
        match self.check(ballot, &mut checks)? {
            Some(proof) => Ok(proof),
            None => Err(self.blame(ballot, seed, checks)),
        }
    }

    /// The one check of a ballot: its proof, or `None` if some signature is invalid. Adds to
    /// `checks` what it took.
    fn check(
        &self,
        ballot: &Ballot<'_>,
        checks: &mut CheckCount,
    ) -> Result<Option<Proof>, CertifyError> {
        self.check_signers(ballot.parts)?;
        let Some(combined) = self.0.combine(ballot.parts) else {
            return Ok(None);
        };
        checks.pairing_checks += 1;
        let holds = self.0.holds(&ballot.message.0, &combined);
        Ok(holds.then(|| self.0.proof(&combined)))
    }

    /// Who spoiled a ballot whose check failed, as [`CertifyError::Invalid`]. `spent` is what the
    /// check took; `seed` as for [`Self::certify`].
    pub fn blame(
        &self,
        ballot: &Ballot<'_>,
        seed: [u8; 32],
        mut spent: CheckCount,
    ) -> CertifyError {
        let suspects = ballot.parts.get(ballot.verified..).unwrap_or_default();
        let bad = self.find_invalid_counted(ballot.message, suspects, seed, &mut spent);
        CertifyError::Invalid { bad, checks: spent }
    }

    /// Whether the proof holds for this message. One pairing check.
    pub fn verify(&self, message: &HashedMessage, proof: &Proof) -> bool {
        let combined = self.0.decode(proof);
        combined.is_some_and(|combined| self.0.holds(&message.0, &combined))
    }

    /// Whether all of these proofs hold, with one pairing check for all of them; `true` for none.
    /// `seed` must not be predictable for whoever made the proofs.
    pub fn verify_many(&self, items: &[(&HashedMessage, &Proof)], seed: [u8; 32]) -> bool {
        let mut decoded = Vec::with_capacity(items.len());
        for (message, proof) in items {
            let Some(combined) = self.0.decode(proof) else {
                return false;
            };
            decoded.push((message.0, combined));
        }
        self.0.all_hold(&decoded, seed)
    }

    /// The signers, ascending, if the scheme's proofs name them. Says nothing about whether the
    /// proof verifies.
    pub fn signers(&self, proof: &Proof) -> Option<Vec<u32>> {
        match proof {
            Proof::Threshold(_) => None,
            Proof::Aggregate { signers, .. } => Some(signers.members()),
        }
    }

    /// The checks of several ballots, with one pairing check for all of them as long as every one
    /// is good; otherwise each has its own. `None` stands for a ballot that some signature spoils;
    /// [`Self::blame`] tells whose.
    ///
    /// A finalize quorum of one view and a notarize quorum of the next usually come together; this
    /// saves one of their two pairing checks. `checks` is added to; `seed` as for certify.
    ///
    /// # Errors
    ///
    /// See [`CertifyError`], but for [`CertifyError::Invalid`].
    pub fn check_many(
        &self,
        ballots: &[Ballot<'_>],
        seed: [u8; 32],
        checks: &mut CheckCount,
    ) -> Vec<Result<Option<Proof>, CertifyError>> {
        if ballots.len() > 1
            && let Some(proofs) = self.certify_together(ballots, seed, checks)
        {
            return proofs.into_iter().map(|proof| Ok(Some(proof))).collect();
        }
        let ballots = ballots.iter();
        ballots.map(|ballot| self.check(ballot, checks)).collect()
    }

    /// As [`Self::check_many`], and finds the invalid parts.
    pub fn certify_many(
        &self,
        ballots: &[Ballot<'_>],
        seed: [u8; 32],
        checks: &mut CheckCount,
    ) -> Vec<Result<Proof, CertifyError>> {
        let checked = self.check_many(ballots, seed, checks);
        let mut finish = |ballot, result: Result<Option<Proof>, CertifyError>| {
            if let Some(proof) = result? {
                return Ok(proof);
            }
            let error = self.blame(ballot, seed, CheckCount::default());
            if let CertifyError::Invalid { checks: spent, .. } = &error {
                *checks += *spent;
            }
            Err(error)
        };
        ballots
            .iter()
            .zip(checked)
            .map(|(ballot, result)| finish(ballot, result))
            .collect()
    }

    /// The proofs of all ballots, if all of them are good.
    fn certify_together(
        &self,
        ballots: &[Ballot<'_>],
        seed: [u8; 32],
        checks: &mut CheckCount,
    ) -> Option<Vec<Proof>> {
        let mut combined = Vec::with_capacity(ballots.len());
        for ballot in ballots {
            self.check_signers(ballot.parts).ok()?;
            combined.push((ballot.message.0, self.0.combine(ballot.parts)?));
        }
        checks.pairing_checks += 1;
        let proofs = || {
            let combined = combined.iter();
            combined.map(|(_, signed)| self.0.proof(signed)).collect()
        };
        self.0.all_hold(&combined, seed).then(proofs)
    }

    /// Whether one validator's signature holds; `false` if there is no such validator. One
    /// pairing check.
    pub fn verify_partial(
        &self,
        message: &HashedMessage,
        signer: u32,
        signature: &PartialSignature,
    ) -> bool {
        let Some(suspect) = self.0.suspect(signer, signature) else {
            return false;
        };
        pairing_product(&[
            (&suspect.signature, Lines::generator()),
            (&message.0.negate(), &Lines::new(&suspect.key)),
        ])
        .is_one()
    }

    /// The signers with an invalid part, ascending: exactly those for whom
    /// [`Self::verify_partial`] would say `false`, except with probability 2⁻¹¹⁴. One invalid
    /// part costs two pairing checks, and any number among n at most n + n/3.
    /// `seed` must not be predictable for the signers. Takes as many parts as it is given; the
    /// caller keeps to one per validator.
    pub fn find_invalid(
        &self,
        message: &HashedMessage,
        parts: &[(u32, PartialSignature)],
        seed: [u8; 32],
    ) -> Vec<u32> {
        self.find_invalid_counted(message, parts, seed, &mut CheckCount::default())
    }

    /// As [`Self::find_invalid`], and adds to `checks` what it took.
    pub fn find_invalid_counted(
        &self,
        message: &HashedMessage,
        parts: &[(u32, PartialSignature)],
        seed: [u8; 32],
        checks: &mut CheckCount,
    ) -> Vec<u32> {
        let mut bad = Vec::new();
        let mut suspects = Vec::with_capacity(parts.len());
        for (signer, signature) in parts {
            match self.0.suspect(*signer, signature) {
                Some(suspect) => suspects.push(suspect),
                None => bad.push(*signer),
            }
        }
        bad.extend(bisect::find(message, &suspects, seed, checks));
        bad.sort_unstable();
        bad.dedup();
        bad
    }

    /// Refuses too few parts, parts of signers outside the committee, and two parts of one signer.
    fn check_signers(&self, parts: &[(u32, PartialSignature)]) -> Result<(), CertifyError> {
        let (found, quorum) = (parts.len(), self.quorum());
        if found < quorum as usize {
            return Err(CertifyError::TooFew { found, quorum });
        }
        let mut seen = SignerSet::new();
        for &(signer, _) in parts {
            if signer >= self.validators() {
                return Err(CertifyError::UnknownSigner { signer });
            }
            if !seen.insert(signer) {
                return Err(CertifyError::Duplicate { signer });
            }
        }
        Ok(())
    }
}

impl Inner {
    /// The first quorum of parts combined, if that is a point of the subgroup. Whether it holds is
    /// still open. The signers are known to be distinct validators, at least a quorum of them.
    fn combine(&self, parts: &[(u32, PartialSignature)]) -> Option<Combined> {
        let mut points = Vec::with_capacity(self.quorum as usize);
        for (signer, signature) in &parts[..self.quorum as usize] {
            points.push((*signer, G1Affine::from_uncompressed(&signature.0)?));
        }
        points.sort_unstable_by_key(|(signer, _)| *signer);
        let (signers, points): (Vec<_>, Vec<_>) = points.into_iter().unzip();
        if CRYPTOGRAPHY_OFF {
            let signature = points[0];
            return Some(Combined { signature, signers });
        }
        let (sum, signers) = match &self.keys {
            Keys::Threshold(threshold) => {
                let sum: G1 = threshold.weights.get(&signers).combine(&points);
                (sum.to_affine(), Vec::new())
            }
            Keys::Aggregate(_) => (sum_signatures(&points), signers),
        };
        Some(Combined {
            signature: sum.filter(G1Affine::in_subgroup)?,
            signers,
        })
    }

    /// The signature that a proof claims, if it can be one: a point of the subgroup other than the
    /// identity, of this scheme, and, if it names signers, at least a quorum of this committee.
    fn decode(&self, proof: &Proof) -> Option<Combined> {
        let (bytes, signers) = match (&self.keys, proof) {
            (Keys::Threshold(_), Proof::Threshold(signature)) => (signature, Vec::new()),
            (Keys::Aggregate(_), Proof::Aggregate { signers, signature })
                if signers.validators() == self.validators && signers.count() >= self.quorum =>
            {
                (signature, signers.members())
            }
            _ => return None,
        };
        Some(Combined {
            signature: group::decode_signature(bytes)?,
            signers,
        })
    }

    fn proof(&self, combined: &Combined) -> Proof {
        let signature = combined.signature.to_compressed();
        match self.keys {
            Keys::Threshold(_) => Proof::Threshold(signature),
            Keys::Aggregate(_) => Proof::Aggregate {
                signers: Signers::new(self.validators, &combined.signers)
                    .expect("the signers are validators of this committee"),
                signature,
            },
        }
    }

    /// Whether one combination holds. One pairing check.
    fn holds(&self, hash: &G1Affine, combined: &Combined) -> bool {
        if CRYPTOGRAPHY_OFF {
            return true;
        }
        match &self.keys {
            Keys::Threshold(threshold) => threshold.group.verify_point(hash, &combined.signature),
            Keys::Aggregate(aggregate) => {
                let Some(key) = aggregate.sum_of(&combined.signers) else {
                    return false;
                };
                pairing_product(&[
                    (&combined.signature, Lines::generator()),
                    (&hash.negate(), &key),
                ])
                .is_one()
            }
        }
    }

    /// Whether all of these hold, with one pairing check; `true` for none.
    fn all_hold(&self, items: &[(G1Affine, Combined)], seed: [u8; 32]) -> bool {
        match (&self.keys, items) {
            _ if CRYPTOGRAPHY_OFF => true,
            (_, []) => true,
            (_, [(hash, combined)]) => self.holds(hash, combined),
            (Keys::Threshold(threshold), _) => {
                let hashes: Vec<_> = items.iter().map(|(hash, _)| *hash).collect();
                let signatures: Vec<_> = items.iter().map(|(_, c)| c.signature).collect();
                threshold.group.verify_points(&hashes, &signatures, seed)
            }
            (Keys::Aggregate(aggregate), _) => aggregate_holds(aggregate, items, seed),
        }
    }

    fn key(&self, signer: u32) -> Option<G2Affine> {
        let keys = match &self.keys {
            Keys::Threshold(threshold) => &threshold.share_keys,
            Keys::Aggregate(aggregate) => &aggregate.keys,
        };
        keys.get(signer as usize).copied()
    }

    /// A part that may be put into a pairing: from a validator, and in the subgroup.
    fn suspect(&self, signer: u32, signature: &PartialSignature) -> Option<Suspect> {
        let key = self.key(signer)?;
        let signature = G1Affine::from_uncompressed(&signature.0).filter(G1Affine::in_subgroup)?;
        Some(Suspect {
            signer,
            signature,
            key,
        })
    }
}

/// e(Σ rᵢ·Sᵢ, g₂) = Π over sets of signers e(Σ rᵢ·Hᵢ, sum of their keys), with random weights rᵢ:
/// two certificates by the same signers, which is the rule, cost no more Miller loops than one.
fn aggregate_holds(aggregate: &Aggregate, items: &[(G1Affine, Combined)], seed: [u8; 32]) -> bool {
    // One weight may be fixed: if only its term is wrong the product is wrong for certain,
    // otherwise another one decides.
    let weights: Vec<_> = [Weight::ONE]
        .into_iter()
        .chain(Weight::stream(seed))
        .take(items.len())
        .collect();
    let signatures: Vec<_> = items.iter().map(|(_, c)| c.signature).collect();
    let sum = Weight::plan(&weights)
        .sum(&with_images(&signatures))
        .to_affine();
    let mut sets: BTreeMap<&[u32], (Vec<Weight>, Vec<G1Affine>)> = BTreeMap::new();
    for ((hash, combined), weight) in items.iter().zip(&weights) {
        let (weights, hashes) = sets.entry(&combined.signers).or_default();
        weights.push(*weight);
        hashes.push(*hash);
    }
    let mut sides = Vec::with_capacity(sets.len());
    for (signers, (weights, hashes)) in sets {
        let hash = Weight::plan(&weights)
            .sum(&with_images(&hashes))
            .to_affine();
        let (Some(hash), Some(key)) = (hash, aggregate.sum_of(signers)) else {
            // A weighted sum is the identity with probability 2⁻¹²⁸; the caller then checks one
            // by one. Keys that cancel out sign nothing.
            return false;
        };
        sides.push((hash.negate(), key));
    }
    let Some(sum) = sum else {
        return false;
    };
    let left = [(&sum, Lines::generator())].into_iter();
    let right = sides.iter().map(|(hash, key)| (hash, key.as_ref()));
    pairing_product(&left.chain(right).collect::<Vec<_>>()).is_one()
}
