//! Verifying certificates with nothing but the group key, as a light client does.

use super::{
    HashedMessage, KeyError, Proof,
    bisect::Weight,
    curve::{Affine, Jacobian},
    point::{G1Affine, G2Affine, Lines, pairing_product},
    weights::with_images,
};
use crate::CRYPTOGRAPHY_OFF;

/// A group key, ready to verify certificates of the threshold scheme.
pub struct GroupKey {
    lines: Lines,
}

impl GroupKey {
    /// The group key from its compressed form in G2.
    ///
    /// # Errors
    ///
    /// If the bytes are no point of the subgroup, or the identity.
    pub fn new(bytes: &[u8; 96]) -> Result<Self, KeyError> {
        let point = G2Affine::from_compressed(bytes)
            .filter(G2Affine::in_subgroup)
            .ok_or(KeyError::GroupKey)?;
        Ok(Self::from_point(&point))
    }

    /// The group key that is this point; not the identity, and in the subgroup.
    pub(super) fn from_point(point: &G2Affine) -> Self {
        Self {
            lines: Lines::new(point),
        }
    }

    /// Whether the proof is the group's over this message. One pairing check.
    pub fn verify(&self, message: &HashedMessage, proof: &Proof) -> bool {
        decode(proof).is_some_and(|signature| self.verify_point(&message.0, &signature))
    }

    /// Whether all of these proofs hold, with one pairing check for all of them; `true` for none.
    /// `seed` must not be predictable for whoever made the proofs.
    pub fn verify_many(&self, items: &[(&HashedMessage, &Proof)], seed: [u8; 32]) -> bool {
        let signatures: Option<Vec<_>> = items.iter().map(|(_, proof)| decode(proof)).collect();
        let Some(signatures) = signatures else {
            return false;
        };
        let hashes: Vec<_> = items.iter().map(|(message, _)| message.0).collect();
        self.verify_points(&hashes, &signatures, seed)
    }

    /// Whether each signature, all in the subgroup, is the group's over the hash beside it.
    pub(super) fn verify_points(
        &self,
        hashes: &[G1Affine],
        signatures: &[G1Affine],
        seed: [u8; 32],
    ) -> bool {
        match (hashes, signatures) {
            ([], _) => true,
            ([hash], [signature]) => self.verify_point(hash, signature),
            _ => {
                // Σ rᵢ·Sᵢ must be the signature of Σ rᵢ·Hᵢ. One weight may be fixed: if only its
                // term is wrong the sum is wrong for certain, otherwise another one decides.
                let weights: Vec<_> = [Weight::ONE]
                    .into_iter()
                    .chain(Weight::stream(seed))
                    .take(hashes.len())
                    .collect();
                let plan = Weight::plan(&weights);
                let hash = plan.sum(&with_images(hashes)).to_affine();
                let signature = plan.sum(&with_images(signatures)).to_affine();
                match (hash, signature) {
                    (Some(hash), Some(signature)) => self.verify_point(&hash, &signature),
                    // Happens with probability 2⁻¹²⁸; the caller then checks one by one.
                    _ => false,
                }
            }
        }
    }

    /// e(S, g₂) = e(H, group key), for S in the subgroup.
    pub(super) fn verify_point(&self, hash: &G1Affine, signature: &G1Affine) -> bool {
        pairing_product(&[
            (signature, Lines::generator()),
            (&hash.negate(), &self.lines),
        ])
        .is_one()
    }
}

/// The group's signature in a proof, if it is one.
fn decode(proof: &Proof) -> Option<G1Affine> {
    match proof {
        Proof::Threshold(bytes) => decode_signature(bytes),
        Proof::Aggregate { .. } => None,
    }
}

/// A signature, if it is a point of the subgroup other than the identity.
pub(super) fn decode_signature(bytes: &[u8; 48]) -> Option<G1Affine> {
    if CRYPTOGRAPHY_OFF {
        return Some(G1Affine::generator());
    }
    G1Affine::from_compressed(bytes).filter(G1Affine::in_subgroup)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bls::{Scheme, deal};

    #[test]
    fn group_key_alone_verifies_what_the_committee_made() {
        let (keys, secrets) = deal(4, rand::rng());
        let message = HashedMessage::new(b"block");
        let parts: Vec<_> = (0..3)
            .map(|i| (i, secrets[i as usize].sign(&message)))
            .collect();
        let scheme = Scheme::threshold(&keys).expect("fresh keys");
        let proof = scheme
            .certify(&message, &parts, [1; 32])
            .expect("three valid parts");
        let group = GroupKey::new(&keys.group_key).expect("fresh key");
        assert!(group.verify(&message, &proof));
        assert!(!group.verify(&HashedMessage::new(b"other"), &proof));
        assert!(!group.verify(&message, &Proof::Threshold([0xc0; 48])));
        assert!(GroupKey::new(&[0; 96]).is_err());
    }
}
