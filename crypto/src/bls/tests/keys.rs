//! Secrets, dealings, and keys that do not belong together.

use super::{Committee, rng, votes};
use crate::bls::{
    HashedMessage, KeyError, MAX_VALIDATORS, PartialSignature, Scheme, SecretError, ThresholdKeys,
    VoteSecret, deal, point::G2Affine,
};
use commonware_codec::EncodeFixed;
use commonware_cryptography::bls12381::primitives::group::Scalar;

/// The order of the group, big-endian.
const ORDER: [u8; 32] = [
    0x73, 0xed, 0xa7, 0x53, 0x29, 0x9d, 0x7d, 0x48, 0x33, 0x39, 0xd8, 0x08, 0x09, 0xa1, 0xd8, 0x05,
    0x53, 0xbd, 0xa4, 0x02, 0xff, 0xfe, 0x5b, 0xfe, 0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x01,
];

fn error(keys: &ThresholdKeys) -> Option<KeyError> {
    Scheme::threshold(keys).err()
}

/// Keys for a polynomial with these coefficients, the constant one first.
fn keys_of(coefficients: &[u64], validators: u32, quorum: u32) -> ThresholdKeys {
    let value = |x: u64| {
        let horner = |sum: Scalar, coefficient: &u64| {
            sum * &Scalar::from_u64(x) + &Scalar::from_u64(*coefficient)
        };
        let zero = Scalar::from_u64(0);
        let value = coefficients.iter().rev().fold(zero, horner);
        let secret = VoteSecret::from_bytes(&value.encode_fixed());
        secret.expect("not zero").public_key()
    };
    ThresholdKeys {
        quorum,
        group_key: value(0),
        share_keys: (1..=u64::from(validators)).map(value).collect(),
    }
}

#[test]
fn secret_survives_its_bytes_and_signs_the_same() {
    let message = HashedMessage::new(b"m");
    for secret in &Committee::new(4).secrets {
        let again = VoteSecret::from_bytes(&secret.to_bytes()).expect("its own bytes");
        assert_eq!(again.public_key(), secret.public_key());
        assert_eq!(again.sign(&message), secret.sign(&message));
    }
}

#[test]
fn secret_out_of_range_is_refused() {
    let mut below = ORDER;
    below[31] -= 1;
    assert!(VoteSecret::from_bytes(&below).is_ok());
    for bytes in [[0; 32], ORDER, [0xff; 32]] {
        assert_eq!(VoteSecret::from_bytes(&bytes).err(), Some(SecretError));
    }
}

#[test]
fn dealing_of_every_size_is_accepted() {
    for validators in (1..=12).chain([33, 100]) {
        let (keys, secrets) = deal(validators, rng(1));
        let faults = (validators - 1) / 3;
        assert_eq!(keys.quorum, validators - faults);
        assert_eq!(secrets.len() as u32, validators);
        assert_eq!(error(&keys), None, "{validators} validators");
    }
}

#[test]
fn dealing_is_determined_by_its_randomness() {
    assert_eq!(deal(7, rng(1)).0, deal(7, rng(1)).0);
    assert_ne!(deal(7, rng(1)).0, deal(7, rng(2)).0);
}

#[test]
#[should_panic(expected = "1 to 1024 validators")]
fn dealing_to_nobody_panics() {
    deal(0, rng(1));
}

#[test]
fn number_of_validators_has_a_limit() {
    let (mut keys, _) = deal(4, rng(1));
    keys.share_keys.clear();
    assert_eq!(error(&keys), Some(KeyError::Validators { found: 0 }));
    let found = MAX_VALIDATORS as usize + 1;
    keys.share_keys = vec![[0; 96]; found];
    assert_eq!(error(&keys), Some(KeyError::Validators { found }));
}

#[test]
fn quorum_must_fit_the_number_of_validators() {
    let (mut keys, _) = deal(4, rng(1));
    for found in [0, 1, 2, 4, u32::MAX] {
        keys.quorum = found;
        let expected = 3;
        assert_eq!(error(&keys), Some(KeyError::Quorum { found, expected }));
    }
}

#[test]
fn key_that_is_no_point_of_the_group_is_refused() {
    let (keys, _) = deal(4, rng(1));
    let mut identity = [0; 96];
    identity[0] = 0xc0;
    let mut uncompressed = keys.group_key;
    uncompressed[0] &= 0x7f;
    // On the curve, but outside the subgroup: nearly every x that has a y.
    let outside = (0..=255)
        .map(|x| {
            let mut bytes = [0; 96];
            (bytes[0], bytes[95]) = (0x80, x);
            bytes
        })
        .find(|bytes| G2Affine::from_compressed(bytes).is_some_and(|point| !point.in_subgroup()))
        .expect("half of all x have a y");
    for bad in [[0; 96], [0xff; 96], identity, uncompressed, outside] {
        let mut wrong = keys.clone();
        wrong.group_key = bad;
        assert_eq!(error(&wrong), Some(KeyError::GroupKey));
        let mut wrong = keys.clone();
        wrong.share_keys[2] = bad;
        assert_eq!(error(&wrong), Some(KeyError::ShareKey { index: 2 }));
    }
}

#[test]
fn equal_share_keys_are_refused() {
    let (mut keys, _) = deal(7, rng(1));
    keys.share_keys[5] = keys.share_keys[1];
    let (first, second) = (1, 5);
    assert_eq!(error(&keys), Some(KeyError::SameShareKey { first, second }));
}

#[test]
fn keys_of_different_dealings_are_refused() {
    for validators in [1, 2, 3, 4, 7, 10] {
        let (keys, _) = deal(validators, rng(1));
        let (other, _) = deal(validators, rng(2));
        let mut wrong = keys.clone();
        wrong.group_key = other.group_key;
        assert_eq!(error(&wrong), Some(KeyError::NotOneDealing));
        for index in 0..validators as usize {
            let mut wrong = keys.clone();
            wrong.share_keys[index] = other.share_keys[index];
            assert_eq!(error(&wrong), Some(KeyError::NotOneDealing), "key {index}");
        }
    }
}

#[test]
fn share_keys_in_another_order_are_refused() {
    let (mut keys, _) = deal(7, rng(1));
    keys.share_keys.swap(0, 6);
    assert_eq!(error(&keys), Some(KeyError::NotOneDealing));
}

#[test]
fn polynomial_must_have_exactly_the_degree_of_the_quorum() {
    assert_eq!(error(&keys_of(&[5, 7, 11], 4, 3)), None);
    let lower = keys_of(&[5, 7], 4, 3);
    assert_eq!(error(&lower), Some(KeyError::LowerQuorum));
    let higher = keys_of(&[5, 7, 11, 13], 4, 3);
    assert_eq!(error(&higher), Some(KeyError::NotOneDealing));
    // Seven validators, quorum five.
    assert_eq!(error(&keys_of(&[1, 2, 3, 4, 5], 7, 5)), None);
    let lower = keys_of(&[1, 2, 3, 4], 7, 5);
    assert_eq!(error(&lower), Some(KeyError::LowerQuorum));
    let higher = keys_of(&[1, 2, 3, 4, 5, 6], 7, 5);
    assert_eq!(error(&higher), Some(KeyError::NotOneDealing));
}

#[test]
fn certificate_holds_only_under_its_own_group_key() {
    let committee = Committee::new(4);
    let (other, other_secrets) = deal(4, rng(200));
    let other = Scheme::threshold(&other).expect("a fresh dealing");
    let (message, scheme) = (&committee.message, &committee.scheme);
    let proof = scheme.certify(message, &committee.votes, super::SEED);
    let proof = proof.expect("all valid");
    assert!(scheme.verify(message, &proof));
    assert!(!other.verify(message, &proof));
    let foreign: Vec<(u32, PartialSignature)> = votes(&other_secrets, message);
    assert_eq!(
        scheme.find_invalid(message, &foreign, super::SEED),
        [0, 1, 2, 3]
    );
}

#[test]
fn largest_committee_works() {
    let committee = Committee::new(MAX_VALIDATORS);
    let proof = committee
        .scheme
        .certify(&committee.message, &committee.votes[300..], super::SEED);
    let proof = proof.expect("all valid");
    assert!(committee.scheme.verify(&committee.message, &proof));
}
