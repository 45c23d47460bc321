//! Whatever bytes and indices an attacker sends: refused, by name, without a panic.

use super::{Committee, SEED, decoded, rng, shifted, small_order_point};
use crate::bls::{
    CertifyError, HashedMessage, PartialSignature, Proof, VoteSecret, curve::Affine,
    point::G1Affine,
};
use proptest::prelude::*;

/// The field's modulus, big-endian.
const MODULUS: [u8; 48] = [
    0x1a, 0x01, 0x11, 0xea, 0x39, 0x7f, 0xe6, 0x9a, 0x4b, 0x1b, 0xa7, 0xb6, 0x43, 0x4b, 0xac, 0xd7,
    0x64, 0x77, 0x4b, 0x84, 0xf3, 0x85, 0x12, 0xbf, 0x67, 0x30, 0xd2, 0xa0, 0xf6, 0xb0, 0xf6, 0x24,
    0x1e, 0xab, 0xff, 0xfe, 0xb1, 0x53, 0xff, 0xff, 0xb9, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xaa, 0xab,
];

/// Adds the modulus to a big-endian field element; `false` on overflow.
fn add_modulus(bytes: &mut [u8]) -> bool {
    let mut carry = 0;
    for (byte, modulus) in bytes.iter_mut().zip(MODULUS).rev() {
        let sum = u16::from(*byte) + u16::from(modulus) + carry;
        *byte = sum as u8;
        carry = sum >> 8;
    }
    carry == 0
}

/// The bytes in place of validator 1's vote are refused in every way they can be asked about.
fn assert_refused(committee: &Committee, bytes: [u8; 96]) {
    let (message, scheme) = (&committee.message, &committee.scheme);
    let mut parts = committee.votes.clone();
    parts[1].1 = PartialSignature(bytes);
    assert!(!scheme.verify_partial(message, 1, &parts[1].1));
    assert_eq!(scheme.find_invalid(message, &parts, SEED), [1]);
    match scheme.certify(message, &parts, SEED) {
        Err(CertifyError::Invalid { bad, .. }) => assert_eq!(bad, [1]),
        other => panic!("{other:?}"),
    }
    // The others still make a certificate.
    parts.remove(1);
    assert!(scheme.certify(message, &parts, SEED).is_ok());
}

#[test]
fn flag_bits_of_a_vote_are_refused() {
    let committee = Committee::new(4);
    for flags in 1..8_u8 {
        let mut bytes = committee.votes[1].1.0;
        assert_eq!(bytes[0] >> 5, 0);
        bytes[0] |= flags << 5;
        assert_refused(&committee, bytes);
    }
}

#[test]
fn compressed_point_in_place_of_a_vote_is_refused() {
    let committee = Committee::new(4);
    let vote = committee.votes[1].1;
    let mut bytes = [0; 96];
    bytes[..48].copy_from_slice(&decoded(&vote).to_compressed());
    assert_refused(&committee, bytes);
    bytes[48..].copy_from_slice(&vote.0[48..]);
    assert_refused(&committee, bytes);
}

#[test]
fn identity_in_place_of_a_vote_is_refused() {
    let committee = Committee::new(4);
    for first in [0x00, 0x40, 0xc0, 0x60, 0xe0] {
        let mut bytes = [0; 96];
        bytes[0] = first;
        assert_refused(&committee, bytes);
    }
}

#[test]
fn point_that_is_not_on_the_curve_is_refused() {
    let committee = Committee::new(4);
    let mut bytes = committee.votes[1].1.0;
    bytes[95] ^= 1;
    assert_refused(&committee, bytes);
    let mut bytes = committee.votes[1].1.0;
    bytes[47] ^= 1;
    assert_refused(&committee, bytes);
    let mut swapped = committee.votes[1].1.0;
    swapped.rotate_left(48);
    swapped[0] &= 0x1f;
    assert_refused(&committee, swapped);
}

#[test]
fn coordinates_that_are_not_reduced_are_refused() {
    let mut committee = Committee::new(4);
    let mut bytes = committee.votes[1].1.0;
    assert!(add_modulus(&mut bytes[48..]));
    assert_refused(&committee, bytes);

    // An x so small that x plus the modulus leaves the flag bits alone.
    for nonce in 0_u32.. {
        let message = HashedMessage::new(&nonce.to_be_bytes());
        let mut bytes = committee.secrets[1].sign(&message).0;
        assert!(add_modulus(&mut bytes[..48]));
        if bytes[0] >> 5 == 0 {
            committee.votes = super::votes(&committee.secrets, &message);
            committee.message = message;
            assert_refused(&committee, bytes);
            return;
        }
    }
}

#[test]
fn opposite_of_a_vote_is_refused() {
    let committee = Committee::new(4);
    let opposite = decoded(&committee.votes[1].1).negate();
    assert_refused(&committee, opposite.to_uncompressed());
}

#[test]
fn points_outside_the_subgroup_are_refused() {
    let committee = Committee::new(4);
    let small = small_order_point();
    assert!(!small.in_subgroup());
    // By itself it is invalid, and so is a valid vote with it added: the pairing would not see it.
    assert_refused(&committee, small.to_uncompressed());
    assert_refused(&committee, shifted(&committee.votes[1].1, &small).0);
    // (0, 2) has order 3.
    let mut order_three = [0; 96];
    order_three[95] = 2;
    assert_refused(&committee, order_three);
}

#[test]
fn vote_of_another_validator_or_message_is_refused() {
    let committee = Committee::new(4);
    assert_refused(&committee, committee.votes[0].1.0);
    let other = HashedMessage::new(b"another message");
    assert_refused(&committee, committee.secrets[1].sign(&other).0);
    let stranger = VoteSecret::from_bytes(&[1; 32]).expect("below the order");
    assert_refused(&committee, stranger.sign(&committee.message).0);
}

#[test]
fn signer_lists_are_checked_before_any_signature() {
    let committee = Committee::new(4);
    let (message, scheme) = (&committee.message, &committee.scheme);
    let junk = PartialSignature([0xff; 96]);
    let certify = |signers: &[u32]| {
        let parts: Vec<_> = signers.iter().map(|&signer| (signer, junk)).collect();
        scheme.certify(message, &parts, SEED)
    };
    let too_few = |found| Err(CertifyError::TooFew { found, quorum: 3 });
    assert_eq!(certify(&[]), too_few(0));
    assert_eq!(certify(&[0, 1]), too_few(2));
    assert_eq!(
        certify(&[0, 1, 1]),
        Err(CertifyError::Duplicate { signer: 1 })
    );
    assert_eq!(
        certify(&[0, 1, 2, 3, 0]),
        Err(CertifyError::Duplicate { signer: 0 })
    );
    for signer in [4, 1023, 1024, 1 << 20, u32::MAX] {
        let unknown = Err(CertifyError::UnknownSigner { signer });
        assert_eq!(certify(&[0, 1, signer]), unknown);
        assert_eq!(certify(&[0, 1, 2, signer]), unknown);
        assert!(!scheme.verify_partial(message, signer, &committee.votes[0].1));
    }
    let many: Vec<u32> = (0..100_000).map(|index| index % 4).collect();
    assert_eq!(certify(&many), Err(CertifyError::Duplicate { signer: 0 }));
}

#[test]
fn hostile_proofs_are_refused() {
    let committee = Committee::new(4);
    let (message, scheme) = (&committee.message, &committee.scheme);
    let proof = scheme
        .certify(message, &committee.votes, SEED)
        .expect("valid");
    let Proof::Threshold(valid) = proof else {
        panic!("a threshold proof");
    };
    assert!(scheme.verify(message, &proof));
    assert!(!scheme.verify(&HashedMessage::new(b"another message"), &proof));

    let signature = G1Affine::from_compressed(&valid).expect("a point");
    let uncompressed = PartialSignature(signature.to_uncompressed());
    let outside = shifted(&uncompressed, &small_order_point());
    let mut identity = [0; 48];
    identity[0] = 0xc0;
    let mut first_half = [0; 48];
    first_half.copy_from_slice(&uncompressed.0[..48]);
    let mut hostile = vec![
        [0; 48],
        [0xff; 48],
        identity,
        first_half,
        signature.negate().to_compressed(),
        decoded(&outside).to_compressed(),
        small_order_point().to_compressed(),
        decoded(&committee.votes[0].1).to_compressed(),
    ];
    for bit in 0..8 {
        let mut bytes = valid;
        bytes[0] ^= 1 << bit;
        hostile.push(bytes);
    }
    let mut not_reduced = valid;
    not_reduced[0] &= 0x1f;
    if add_modulus(&mut not_reduced) && not_reduced[0] >> 5 == 0 {
        not_reduced[0] |= valid[0] & 0xe0;
        hostile.push(not_reduced);
    }
    for bytes in hostile {
        let bad = Proof::Threshold(bytes);
        assert!(!scheme.verify(message, &bad), "{bytes:02x?}");
        assert!(!scheme.verify_many(&[(message, &bad)], SEED));
        assert!(!scheme.verify_many(&[(message, &proof), (message, &bad)], SEED));
        assert!(!scheme.verify_many(&[(message, &bad), (message, &proof)], SEED));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn changed_vote_never_verifies(position in 0..96_usize, change in 1..=255_u8) {
        let committee = Committee::new(4);
        let mut vote = committee.votes[2].1;
        vote.0[position] ^= change;
        prop_assert!(!committee.scheme.verify_partial(&committee.message, 2, &vote));
    }

    #[test]
    fn changed_proof_never_verifies(position in 0..48_usize, change in 1..=255_u8) {
        let committee = Committee::new(4);
        let message = &committee.message;
        let proof = committee.scheme.certify(message, &committee.votes, SEED);
        let Proof::Threshold(mut bytes) = proof.expect("valid") else {
 panic!("a threshold proof");
};
        bytes[position] ^= change;
        prop_assert!(!committee.scheme.verify(message, &Proof::Threshold(bytes)));
    }

    #[test]
    fn points_of_the_curve_in_place_of_all_votes_are_all_named(seed in any::<u8>()) {
        // Random x with a y: on the curve, and outside the subgroup nearly always.
        use rand::Rng;
        let committee = Committee::new(7);
        let mut rng = rng(seed);
        let parts: Vec<_> = (0..7)
            .map(|index| loop {
                let mut bytes = [0; 48];
                rng.fill_bytes(&mut bytes);
                bytes[0] = 0x80 | bytes[0] & 0x0f;
                if let Some(point) = G1Affine::from_compressed(&bytes) {
                    return (index, PartialSignature(point.to_uncompressed()));
                }
            })
            .collect();
        match committee.scheme.certify(&committee.message, &parts, SEED) {
            Err(CertifyError::Invalid { bad, checks }) => {
                prop_assert_eq!(bad, [0, 1, 2, 3, 4, 5, 6]);
                // The subgroup checks settle it.
                prop_assert_eq!(checks.pairing_checks, 0);
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        votes in prop::collection::vec((any::<u32>(), prop::array::uniform32(any::<u8>())), 0..12),
        proof in prop::array::uniform32(any::<u8>()),
    ) {
        let committee = Committee::new(4);
        let (message, scheme) = (&committee.message, &committee.scheme);
        let parts: Vec<_> = votes
            .iter()
            .map(|(signer, bytes)| {
                let mut vote = [0; 96];
                for chunk in vote.chunks_exact_mut(32) {
                    chunk.copy_from_slice(bytes);
                }
                (signer % 6, PartialSignature(vote))
            })
            .collect();
        prop_assert!(scheme.certify(message, &parts, SEED).is_err());
        let mut named: Vec<_> = parts.iter().map(|(signer, _)| *signer).collect();
        named.sort_unstable();
        named.dedup();
        prop_assert_eq!(scheme.find_invalid(message, &parts, SEED), named);
        let mut bytes = [0; 48];
        bytes[..32].copy_from_slice(&proof);
        prop_assert!(!scheme.verify(message, &Proof::Threshold(bytes)));
    }
}
