//! The wrappers around blst, the sums and the weights, each against a slower way.

use super::{lagrange, rng, slow_multiple, small_order_point};
use crate::bls::{
    bisect::Weight,
    curve::{Affine, Jacobian},
    point::{G1, G1Affine, G2Affine, Lines, SecretScalar, pairing_product},
    sum::{Integer, Plan},
    weights::{WeightCache, Weights, integer, with_images},
};
use proptest::prelude::*;

fn point(seed: u8) -> G1Affine {
    G1Affine::hash(&[seed], b"TEST")
}

/// A point of G2 that is no small multiple of the generator.
fn key(seed: u8) -> G2Affine {
    let secret = SecretScalar::from_bytes(&[seed; 32]).expect("below the order");
    secret.public()
}

fn slow_sum<P: Affine>(points: &[P], scalars: &[Integer]) -> Option<P> {
    let mut total = P::Jacobian::identity();
    for (point, scalar) in points.iter().zip(scalars) {
        if let Some(term) = slow_multiple(point, scalar).to_affine() {
            total.add(&term);
        }
    }
    total.to_affine()
}

#[test]
fn endomorphisms_multiply_by_the_square_of_the_parameter() {
    let z: u128 = 0xd201_0000_0001_0000;
    let square = Integer::from_u128(z * z);
    let base = point(1);
    let expected = slow_multiple(&base, &square).to_affine();
    assert!(expected == Some(base.endomorphism()));

    let base = key(1);
    let expected = slow_multiple(&base, &square).to_affine();
    assert!(expected == Some(base.endomorphism()));
}

#[test]
fn pairing_is_bilinear_and_not_degenerate() {
    let (secret, other) = ([3; 32], [5; 32]);
    let secret = SecretScalar::from_bytes(&secret).expect("below the order");
    let other = SecretScalar::from_bytes(&other).expect("below the order");
    let base = point(1);
    let [product, negated] = [secret.multiply(&base), secret.multiply(&base).negate()];
    let key = Lines::new(&secret.public());
    let wrong = Lines::new(&other.public());
    let holds = |left: &G1Affine, lines: &Lines| {
        pairing_product(&[(left, Lines::generator()), (&base, lines)]).is_one()
    };
    assert!(holds(&negated, &key));
    assert!(!holds(&product, &key));
    assert!(!holds(&negated, &wrong));
    assert!(!pairing_product(&[(&base, &key)]).is_one());
    assert!(pairing_product(&[]).is_one());
}

#[test]
fn quotient_of_pairings_is_the_pairing_of_the_difference() {
    let (left, right) = (point(1), point(2));
    let mut sum = G1::identity();
    sum.add(&left);
    sum.add(&right);
    let sum = sum.to_affine().expect("independent points");
    let value = |point: &G1Affine| pairing_product(&[(point, Lines::generator())]);
    let rest = value(&sum).divide(&value(&left));
    assert!(!rest.is_one());
    assert!(rest.divide(&value(&right)).is_one());
}

#[test]
fn sum_survives_equal_opposite_and_small_order_points() {
    let small = small_order_point();
    let scalar = |value: i128| Integer {
        negative: value < 0,
        ..Integer::from_u128(value.unsigned_abs())
    };
    let base = point(1);
    let points = [base, base, base.negate(), small, small, point(2)];
    let base = key(1);
    let keys = [base, base, base.negate(), base.endomorphism(), base, key(2)];
    for scalars in [
        [1, 1, 1, 1, 1, 1],
        [1, 1, 2, 0, 0, 0],
        [1, -1, 0, 0, 0, 0],
        [7, 7, 14, 11, 0, 0],
        [7, 7, 14, 2, 9, 5],
        [0, 0, 0, 5, 6, 0],
        [i128::MAX, i128::MAX, -i128::MAX, 17, -4, i128::MIN],
    ] {
        let scalars = scalars.map(scalar);
        let plan = Plan::new(&scalars);
        assert!(plan.sum(&points).to_affine() == slow_sum(&points, &scalars));
        assert!(plan.sum(&keys).to_affine() == slow_sum(&keys, &scalars));
    }
    assert!(Plan::new(&[]).sum::<G1Affine>(&[]).to_affine().is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn sum_equals_doubling_and_adding(
        scalars in prop::collection::vec((any::<[u64; 4]>(), 0_u32..=255, any::<bool>()), 1..40),
    ) {
        let scalars: Vec<_> = scalars
            .into_iter()
            .map(|(mut limbs, drop, negative)| {
                // All lengths from 1 to 256 bits.
                for _ in 0..drop {
                    for index in 0..4 {
                        let next = limbs.get(index + 1).copied().unwrap_or(0);
                        limbs[index] = limbs[index] >> 1 | next << 63;
                    }
                }
                Integer { limbs, negative }
            })
            .collect();
        let points: Vec<_> = (0..scalars.len()).map(|index| point(index as u8)).collect();
        let plan = Plan::new(&scalars);
        prop_assert!(plan.sum(&points).to_affine() == slow_sum(&points, &scalars));
        let keys: Vec<_> = (0..scalars.len()).map(|index| key(1 + index as u8)).collect();
        prop_assert!(plan.sum(&keys).to_affine() == slow_sum(&keys, &scalars));
    }
}

#[test]
fn combination_applies_lagrange_weights_in_every_representation() {
    use rand::seq::SliceRandom;
    let mut rng = rng(1);
    // Up to about 140 validators the weights are integers, beyond they are split.
    for validators in [1_u32, 2, 4, 7, 10, 50, 100, 120, 150, 200, 1024] {
        let quorum = (validators - (validators - 1) / 3) as usize;
        let mut signers: Vec<u32> = (0..validators).collect();
        signers.shuffle(&mut rng);
        signers.truncate(quorum);
        signers.sort_unstable();
        let points: Vec<_> = signers.iter().map(|&index| point(index as u8)).collect();
        let integers: Vec<_> = lagrange(&signers).iter().map(integer).collect();
        let expected = Plan::new(&integers).sum(&points).to_affine();
        let combined = Weights::new(&signers).combine(&points).to_affine();
        assert!(combined == expected, "{validators} validators");
    }
}

#[test]
fn random_weights_are_the_same_number_in_both_groups() {
    let weights: Vec<_> = Weight::stream([9; 32]).take(3).collect();
    let plan = Weight::plan(&weights);
    let secrets = [1, 2, 3].map(|seed| SecretScalar::from_bytes(&[seed; 32]));
    let secrets = secrets.map(|secret| secret.expect("below the order"));
    let base = point(1);
    let signatures = secrets.each_ref().map(|secret| secret.multiply(&base));
    let keys = secrets.each_ref().map(SecretScalar::public);
    let signature = plan.sum(&with_images(&signatures)).to_affine();
    let key = plan.sum(&with_images(&keys)).to_affine();
    let (signature, key) = signature.zip(key).expect("not the identity");
    let (negated, lines) = (base.negate(), Lines::new(&key));
    let pairs = [(&signature, Lines::generator()), (&negated, &lines)];
    assert!(pairing_product(&pairs).is_one());
}

#[test]
fn weights_of_a_signer_set_are_remembered_until_many_others_came() {
    let cache = WeightCache::new();
    let first = cache.get(&[0, 1, 2]);
    assert!(std::sync::Arc::ptr_eq(&first, &cache.get(&[0, 1, 2])));
    assert!(!std::sync::Arc::ptr_eq(&first, &cache.get(&[0, 1, 3])));
    for other in 3..40 {
        cache.get(&[0, 1, other]);
        // Used in between, so it stays although more sets come than the cache holds.
        assert!(std::sync::Arc::ptr_eq(&first, &cache.get(&[0, 1, 2])));
    }
    for other in 3..40 {
        cache.get(&[0, 2, other]);
    }
    assert!(!std::sync::Arc::ptr_eq(&first, &cache.get(&[0, 1, 2])));
}

#[test]
fn hash_to_curve_matches_the_standard_vector() {
    // RFC 9380, appendix J.9.1.
    let dst = b"QUUX-V01-CS02-with-BLS12381G1_XMD:SHA-256_SSWU_RO_";
    let expected = concat!(
        "052926add2207b76ca4fa57a8734416c8dc95e24501772c814278700eed6d1e4",
        "e8cf62d9c09db0fac349612b759e79a1",
        "08ba738453bfed09cb546dbb0783dbb3a5f1f566ed67bb6be0e8c67e2e81a4cc",
        "68ee29813bb7994998f3eae0c9c6a265",
    );
    let point = G1Affine::hash(b"", dst);
    assert_eq!(hex::encode(point.to_uncompressed()), expected);
}

#[test]
fn identity_is_never_decoded() {
    let (mut g1, mut g2, mut uncompressed) = ([0; 48], [0; 96], [0; 96]);
    (g1[0], g2[0], uncompressed[0]) = (0xc0, 0xc0, 0x40);
    assert!(G1Affine::from_compressed(&g1).is_none());
    assert!(G2Affine::from_compressed(&g2).is_none());
    assert!(G1Affine::from_uncompressed(&uncompressed).is_none());
}

#[test]
fn every_half_of_every_random_weight_is_different() {
    let weights: Vec<_> = Weight::stream([9; 32]).take(100).collect();
    let halves = weights.iter().flat_map(|weight| [weight.low, weight.high]);
    let distinct: std::collections::BTreeSet<u64> = halves.collect();
    assert_eq!(distinct.len(), 200);
    let same: Vec<_> = Weight::stream([9; 32]).take(100).collect();
    let other = Weight::stream([8; 32]).next().expect("endless");
    assert!(same.iter().zip(&weights).all(|(a, b)| a.low == b.low));
    assert!(!distinct.contains(&other.low) && !distinct.contains(&other.high));
}
