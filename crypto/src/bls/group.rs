//! Verifying certificates with nothing but the group key, as a light client does.

use super::{
    HashedMessage, KeyError, Proof,
    point::{G1Affine, G2Affine, Lines, pairing_product},
};

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
        Ok(Self {
            lines: Lines::new(&point),
        })
    }

    /// Whether the proof is the group's over this message. One pairing check.
    pub fn verify(&self, message: &HashedMessage, proof: &Proof) -> bool {
        let Proof::Threshold(bytes) = proof;
        let signature = G1Affine::from_compressed(bytes).filter(G1Affine::in_subgroup);
        signature.is_some_and(|signature| {
            pairing_product(&[
                (&signature, Lines::generator()),
                (&message.0.negate(), &self.lines),
            ])
            .is_one()
        })
    }
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
