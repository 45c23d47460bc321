//! Tests of the vote schemes, by subject, and what they share.

mod aggregate;
mod agreement;
mod bisection;
mod dealing;
mod hostile;
mod keys;
mod primitives;
mod wire;

use super::{
    HashedMessage, PartialSignature, Scheme, ThresholdKeys, VoteSecret,
    curve::{Affine, Jacobian},
    deal,
    point::{G1, G1Affine},
    sum::{Integer, Plan},
    weights::integer,
};
use commonware_cryptography::bls12381::primitives::group::Scalar;
use commonware_math::algebra::{Field, Ring};
use rand::SeedableRng;
use rand_chacha::ChaCha20Rng;

/// Whatever the signers could not foresee.
const SEED: [u8; 32] = [42; 32];

fn rng(seed: u8) -> ChaCha20Rng {
    ChaCha20Rng::from_seed([seed; 32])
}

/// A committee with its scheme, and everyone's vote for one message.
struct Committee {
    keys: ThresholdKeys,
    secrets: Vec<VoteSecret>,
    scheme: Scheme,
    message: HashedMessage,
    votes: Vec<(u32, PartialSignature)>,
}

impl Committee {
    fn new(validators: u32) -> Self {
        let (keys, secrets) = deal(validators, rng(validators as u8));
        let scheme = Scheme::threshold(&keys).expect("a fresh dealing is valid");
        let message = HashedMessage::new(b"message");
        let votes = votes(&secrets, &message);
        Self {
            keys,
            secrets,
            scheme,
            message,
            votes,
        }
    }
}

fn votes(secrets: &[VoteSecret], message: &HashedMessage) -> Vec<(u32, PartialSignature)> {
    let sign = |(index, secret): (u32, &VoteSecret)| (index, secret.sign(message));
    (0..).zip(secrets).map(sign).collect()
}

/// The vote with another point added to it.
fn shifted(vote: &PartialSignature, by: &G1Affine) -> PartialSignature {
    let mut sum = G1::identity();
    sum.add(&decoded(vote));
    sum.add(by);
    PartialSignature(sum.to_affine().expect("not opposite").to_uncompressed())
}

fn decoded(vote: &PartialSignature) -> G1Affine {
    G1Affine::from_uncompressed(&vote.0).expect("a point of the curve")
}

/// scalar · point, for any point of the curve.
fn times(point: &G1Affine, scalar: &Scalar) -> G1Affine {
    let product = Plan::new(&[integer(scalar)]).sum(&[*point]).to_affine();
    product.expect("not the identity")
}

/// λᵢ modulo r, straight from the definition.
fn lagrange(signers: &[u32]) -> Vec<Scalar> {
    let x = |index: &u32| Scalar::from_u64(u64::from(*index) + 1);
    let weight = |index: &u32| {
        let others = signers.iter().filter(|other| *other != index);
        others.fold(Scalar::one(), |product, other| {
            product * &x(other) * &(x(other) - &x(index)).inv()
        })
    };
    signers.iter().map(weight).collect()
}

/// scalar · point by doubling and adding.
fn slow_multiple<P: Affine>(point: &P, scalar: &Integer) -> P::Jacobian {
    let point = if scalar.negative {
        point.negate()
    } else {
        *point
    };
    let mut total = P::Jacobian::identity();
    for bit in (0..256).rev() {
        total.double();
        if scalar.limbs[bit / 64] >> (bit % 64) & 1 == 1 {
            total.add(&point);
        }
    }
    total
}

/// A point of order 11, which an attacker can send: the group of the curve has r·3·11²·10177²·
/// 859267²·52437899² elements, and all factors but one are multiplied away.
fn small_order_point() -> G1Affine {
    let order = Integer {
        limbs: [
            0xffff_ffff_0000_0001,
            0x53bd_a402_fffe_5bfe,
            0x3339_d808_09a1_d805,
            0x73ed_a753_299d_7d48,
        ],
        negative: false,
    };
    let squares = [10_177_u128, 859_267, 52_437_899].map(|prime| prime * prime);
    let factors = squares.into_iter().chain([3]).map(Integer::from_u128);
    let factors: Vec<_> = factors.chain([order]).collect();
    let eleven = Integer::from_u128(11);
    let small = (0..=255)
        .filter_map(|x| {
            let mut bytes = [0; 48];
            (bytes[0], bytes[47]) = (0x80, x);
            G1Affine::from_compressed(&bytes)
        })
        .find_map(|any| {
            let multiply = |point: G1Affine, factor| slow_multiple(&point, factor).to_affine();
            factors.iter().try_fold(any, multiply)
        })
        .expect("nearly all points have a component of order 11 or 121");
    let small = slow_multiple(&small, &eleven).to_affine().unwrap_or(small);
    assert!(slow_multiple(&small, &eleven).to_affine().is_none());
    small
}
