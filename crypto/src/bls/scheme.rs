//! The vote scheme behind one interface, and the threshold variant.

use super::{
    CheckCount, GroupKey, HashedMessage, KeyError, PartialSignature, Proof, SchemeKind,
    ThresholdKeys,
    bisect::{self, Suspect},
    curve::{Affine, Jacobian},
    point::{G1, G1Affine, G2Affine, Lines, pairing_product},
    weights::{SignerSet, WeightCache},
};
use std::sync::Arc;

/// Verifies votes and makes certificates for one committee. Cheap to clone; clones share the
/// cache of combination weights.
#[derive(Clone)]
pub struct Scheme(Arc<Threshold>);

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
    /// A part from nobody in the committee.
    #[error("there is no validator {signer}")]
    UnknownSigner {
        /// The index that is out of range.
        signer: u32,
    },
}

/// The state of `bls-threshold`.
struct Threshold {
    quorum: u32,
    group: GroupKey,
    share_keys: Vec<G2Affine>,
    weights: WeightCache,
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
        Ok(Self(Arc::new(Threshold {
            quorum: keys.quorum,
            group: GroupKey::from_point(&checked.group_key),
            share_keys: checked.share_keys,
            weights: WeightCache::new(),
        })))
    }

    /// Which scheme this is.
    pub fn kind(&self) -> SchemeKind {
        SchemeKind::BlsThreshold
    }

    /// How many validators there are.
    pub fn validators(&self) -> u32 {
        self.0.share_keys.len() as u32
    }

    /// How many signatures make a certificate.
    pub fn quorum(&self) -> u32 {
        self.0.quorum
    }

    /// Combines the first `quorum` parts (validator index, signature) and verifies the result,
    /// with a single pairing check.
    ///
    /// A certificate says nothing about its parts: errors of colluding signers can cancel in the
    /// combination, which is then the group's signature all the same. If the combination fails,
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
        self.check_signers(parts)?;
        let mut checks = CheckCount::default();
        if let Some(signature) = self.0.combine(message, parts, &mut checks) {
            return Ok(Proof::Threshold(signature.to_compressed()));
        }
        let bad = self.find_invalid_counted(message, parts, seed, &mut checks);
        Err(CertifyError::Invalid { bad, checks })
    }

    /// Whether the proof is the group's over this message. One pairing check.
    pub fn verify(&self, message: &HashedMessage, proof: &Proof) -> bool {
        self.0.group.verify(message, proof)
    }

    /// Whether all of these proofs hold, with one pairing check for all of them; `true` for none.
    /// `seed` must not be predictable for whoever made the proofs.
    pub fn verify_many(&self, items: &[(&HashedMessage, &Proof)], seed: [u8; 32]) -> bool {
        self.0.group.verify_many(items, seed)
    }

    /// As [`Self::certify`] for several messages, with one pairing check for all of them as long
    /// as every batch is good. Otherwise each is certified on its own.
    ///
    /// A finalize quorum of one view and a notarize quorum of the next usually come together; this
    /// saves one of their two pairing checks. `checks` is added to; `seed` as for certify.
    pub fn certify_many(
        &self,
        batches: &[(&HashedMessage, &[(u32, PartialSignature)])],
        seed: [u8; 32],
        checks: &mut CheckCount,
    ) -> Vec<Result<Proof, CertifyError>> {
        if batches.len() > 1
            && let Some(proofs) = self.certify_together(batches, seed, checks)
        {
            return proofs.into_iter().map(Ok).collect();
        }
        batches
            .iter()
            .map(|(message, parts)| {
                let result = self.certify(message, parts, seed);
                match &result {
                    Ok(_) => checks.pairing_checks += 1,
                    Err(CertifyError::Invalid { checks: spent, .. }) => {
                        checks.pairing_checks += spent.pairing_checks;
                        checks.bisections += spent.bisections;
                    }
                    // Refused for its signers, before any cryptography.
                    Err(_) => {}
                }
                result
            })
            .collect()
    }

    /// The proofs of all batches, if all of them are good.
    fn certify_together(
        &self,
        batches: &[(&HashedMessage, &[(u32, PartialSignature)])],
        seed: [u8; 32],
        checks: &mut CheckCount,
    ) -> Option<Vec<Proof>> {
        let mut hashes = Vec::with_capacity(batches.len());
        let mut signatures = Vec::with_capacity(batches.len());
        for (message, parts) in batches {
            self.check_signers(parts).ok()?;
            hashes.push(message.0);
            signatures.push(self.0.interpolate(parts)?);
        }
        checks.pairing_checks += 1;
        self.0
            .group
            .verify_points(&hashes, &signatures, seed)
            .then(|| {
                signatures
                    .into_iter()
                    .map(|signature| Proof::Threshold(signature.to_compressed()))
                    .collect()
            })
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
    /// [`Self::verify_partial`] would say `false`, except with probability 2⁻¹¹⁷. One invalid
    /// part among n costs about log₂ n + 1 pairing checks, and any number of them at most n.
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

    /// Refuses parts that are too few, from nobody, or from one signer twice.
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

impl Threshold {
    /// The group's signature from the first quorum of parts, if they combine to it. The signers
    /// are known to be distinct validators, at least a quorum of them.
    fn combine(
        &self,
        message: &HashedMessage,
        parts: &[(u32, PartialSignature)],
        checks: &mut CheckCount,
    ) -> Option<G1Affine> {
        let signature = self.interpolate(parts)?;
        checks.pairing_checks += 1;
        self.group
            .verify_point(&message.0, &signature)
            .then_some(signature)
    }

    /// The first quorum of parts combined, if that is a point of the subgroup. Whether it is the
    /// group's signature is still open.
    fn interpolate(&self, parts: &[(u32, PartialSignature)]) -> Option<G1Affine> {
        let mut points = Vec::with_capacity(self.quorum as usize);
        for (signer, signature) in &parts[..self.quorum as usize] {
            points.push((*signer, G1Affine::from_uncompressed(&signature.0)?));
        }
        points.sort_unstable_by_key(|(signer, _)| *signer);
        let (signers, points): (Vec<_>, Vec<_>) = points.into_iter().unzip();
        let combined: G1 = self.weights.get(&signers).combine(&points);
        combined.to_affine().filter(G1Affine::in_subgroup)
    }

    /// A part that may be put into a pairing: from a validator, and in the subgroup.
    fn suspect(&self, signer: u32, signature: &PartialSignature) -> Option<Suspect> {
        let key = *self.share_keys.get(signer as usize)?;
        let signature = G1Affine::from_uncompressed(&signature.0).filter(G1Affine::in_subgroup)?;
        Some(Suspect {
            signer,
            signature,
            key,
        })
    }
}
