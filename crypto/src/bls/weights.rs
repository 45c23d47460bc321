//! Lagrange weights: how a quorum's signatures are combined into the group's.
//!
//! Validator i holds f(i + 1) for a polynomial f of degree quorum − 1, and the group's secret is
//! f(0). So the group's signature is Σ λᵢ·sᵢ with λᵢ = Π_{j≠i} xⱼ / (xⱼ − xᵢ), where x = index + 1.
//!
//! As fractions, these weights are small: over a common denominator D they are integers of about
//! 10 bits for 10 validators, 75 for 50 and 165 for 100, whereas modulo r each has 255. So the
//! combination is D⁻¹ · Σ (D·λᵢ)·sᵢ: a cheap sum and one full multiplication. Where the integers
//! grow too long, each λᵢ modulo r is split along the curve's endomorphism instead, into two
//! halves of 128 bits.
//!
//! A part outside the subgroup makes the endomorphism, and so the sum, wrong; such a sum fails
//! verification, as it should.

use super::{
    MAX_VALIDATORS,
    curve::Affine,
    point::{G1, G1Affine},
    sum::{Integer, Plan},
};
use commonware_cryptography::bls12381::primitives::group::Scalar;
use commonware_math::algebra::{Field, Ring};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// The parameter of the curve squared; the endomorphism multiplies by it.
const Z_SQUARED: u128 = 0xd201_0000_0001_0000 * 0xd201_0000_0001_0000;

/// Integers wider than this cost more than the endomorphism's halves. They come with about 140
/// validators; up to there the integers win, final multiplication included: 515 µs against 690
/// for 100 validators, 190 against 380 for 50.
const MAX_INTEGER_BITS: usize = 240;

/// Beyond this many signers the integers hardly ever fit, so they are not even computed.
const MAX_INTEGER_SIGNERS: usize = 100;

/// How many signer sets are remembered. A set of 67 takes about 10 kB.
const CACHED_SETS: usize = 32;

/// The weights of one set of signers, ready to be applied.
pub(super) struct Weights {
    plan: Plan,
    /// Whether the plan is for the points followed by their images under the endomorphism.
    split: bool,
    /// D⁻¹ modulo r, little-endian, unless D is one.
    scale: Option<[u8; 32]>,
}

impl Weights {
    /// The weights of these validators, in ascending order, without duplicates.
    pub(super) fn new(signers: &[u32]) -> Self {
        let abscissas: Vec<u32> = signers.iter().map(|index| index + 1).collect();
        match integers(&abscissas) {
            Some((integers, denominator)) => Self {
                plan: Plan::new(&integers),
                split: false,
                scale: invert(&denominator),
            },
            None => Self {
                plan: Plan::new(&halves(&abscissas)),
                split: true,
                scale: None,
            },
        }
    }

    /// The combination of the signers' points, in the order of the signers.
    pub(super) fn combine(&self, points: &[G1Affine]) -> G1 {
        let sum = if self.split {
            self.plan.sum(&with_images(points))
        } else {
            self.plan.sum(points)
        };
        match &self.scale {
            Some(scale) => sum.multiply(scale),
            None => sum,
        }
    }
}

/// The points, and after them their images under the endomorphism.
pub(super) fn with_images<P: Affine>(points: &[P]) -> Vec<P> {
    let images = points.iter().map(P::endomorphism);
    points.iter().copied().chain(images).collect()
}

/// Weights of recently used signer sets, the latest first.
pub(super) struct WeightCache(Mutex<Vec<(SignerSet, Arc<Weights>)>>);

/// A set of validator indices below [`MAX_VALIDATORS`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct SignerSet([u64; MAX_VALIDATORS as usize / 64]);

impl SignerSet {
    pub(super) fn new() -> Self {
        Self([0; MAX_VALIDATORS as usize / 64])
    }

    /// Adds an index; `false` if it is there already or not below [`MAX_VALIDATORS`].
    pub(super) fn insert(&mut self, index: u32) -> bool {
        let Some(word) = self.0.get_mut(index as usize / 64) else {
            return false;
        };
        let bit = 1 << (index % 64);
        let new = *word & bit == 0;
        *word |= bit;
        new
    }
}

impl WeightCache {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Vec::with_capacity(CACHED_SETS)))
    }

    /// The weights of `signers` (ascending), computed if they are not remembered.
    pub(super) fn get(&self, signers: &[u32]) -> Arc<Weights> {
        let mut set = SignerSet::new();
        for &signer in signers {
            set.insert(signer);
        }
        // A panic elsewhere cannot leave the list half-changed, so poisoning means nothing here.
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut cache = lock();
            if let Some(found) = cache.iter().position(|(cached, _)| *cached == set) {
                cache[..=found].rotate_right(1);
                return cache[0].1.clone();
            }
        }
        // Computed without the lock: two threads may do so for one set, and both are right.
        let weights = Arc::new(Weights::new(signers));
        let mut cache = lock();
        cache.truncate(CACHED_SETS - 1);
        cache.insert(0, (set, weights.clone()));
        weights
    }
}

/// D·λᵢ for each abscissa, and the least D that makes them integers; `None` if they are too wide
/// to be of use. Works with exponents of primes, so that nothing is ever divided.
fn integers(abscissas: &[u32]) -> Option<(Vec<Integer>, Integer)> {
    if abscissas.len() > MAX_INTEGER_SIGNERS {
        return None;
    }
    let tables = &*PRIMES;
    let last = *abscissas.last()?;
    let used = tables.primes.partition_point(|&prime| prime <= last);
    let mut product = vec![0_i32; used];
    for &x in abscissas {
        tables.add(&mut product, x, 1);
    }
    // Exponents of |λᵢ|, one row per signer.
    let mut rows = Vec::with_capacity(abscissas.len() * used);
    let mut distances = vec![0_i32; last as usize + 1];
    for &x in abscissas {
        let mut row = product.clone();
        tables.add(&mut row, x, -1);
        for &other in abscissas {
            distances[other.abs_diff(x) as usize] += 1;
        }
        for (distance, count) in (0..).zip(&mut distances) {
            if *count > 0 && distance > 0 {
                tables.add(&mut row, distance, -*count);
            }
            *count = 0;
        }
        rows.extend(row);
    }
    let mut denominator = vec![0; used];
    for row in rows.chunks_exact(used.max(1)) {
        for (least, exponent) in denominator.iter_mut().zip(row) {
            *least = (*least).max(-exponent);
        }
    }
    let mut weights = Vec::with_capacity(abscissas.len());
    let mut row = vec![0; used];
    for position in 0..abscissas.len() {
        let exponents = &rows[position * used..(position + 1) * used];
        for (entry, (exponent, shift)) in row.iter_mut().zip(exponents.iter().zip(&denominator)) {
            *entry = exponent + shift;
        }
        let mut weight = tables.product(&row)?;
        // One factor xⱼ − xᵢ below zero for each smaller abscissa.
        weight.negative = position % 2 == 1;
        weights.push(weight);
    }
    Some((weights, tables.product(&denominator)?))
}

/// The primes up to [`MAX_VALIDATORS`] and how the numbers up to there factor.
struct Primes {
    primes: Vec<u32>,
    /// For each number the positions of its prime factors, with multiplicity.
    factors: Vec<Vec<u8>>,
}

static PRIMES: LazyLock<Primes> = LazyLock::new(|| {
    let mut primes: Vec<u32> = Vec::new();
    let mut factors = vec![Vec::new(); MAX_VALIDATORS as usize + 1];
    for number in 2..=MAX_VALIDATORS {
        let mut rest = number;
        let mut found = Vec::new();
        for (position, prime) in (0..).zip(&primes) {
            while rest.is_multiple_of(*prime) {
                found.push(position);
                rest /= prime;
            }
        }
        if rest > 1 {
            found.push(primes.len() as u8);
            primes.push(rest);
        }
        factors[number as usize] = found;
    }
    Primes { primes, factors }
});

impl Primes {
    /// Adds `times` times the exponents of `number`.
    fn add(&self, exponents: &mut [i32], number: u32, times: i32) {
        for &position in &self.factors[number as usize] {
            exponents[position as usize] += times;
        }
    }

    /// Π primeᵉ, for exponents that are not negative; `None` above [`MAX_INTEGER_BITS`].
    fn product(&self, exponents: &[i32]) -> Option<Integer> {
        let mut product = Integer::from_u128(1);
        let mut chunk: u64 = 1;
        for (prime, &exponent) in self.primes.iter().zip(exponents) {
            for _ in 0..exponent {
                match chunk.checked_mul(u64::from(*prime)) {
                    Some(larger) => chunk = larger,
                    None => {
                        product = multiply(&product, chunk)?;
                        chunk = u64::from(*prime);
                    }
                }
            }
        }
        multiply(&product, chunk).filter(|product| product.bits() <= MAX_INTEGER_BITS)
    }
}

/// integer · factor, or `None` if that has more than 256 bits.
fn multiply(integer: &Integer, factor: u64) -> Option<Integer> {
    let mut product = *integer;
    let mut carry = 0;
    for limb in &mut product.limbs {
        let wide = u128::from(*limb) * u128::from(factor) + carry;
        *limb = wide as u64;
        carry = wide >> 64;
    }
    (carry == 0).then_some(product)
}

/// 1 / integer modulo r, little-endian; `None` for one.
fn invert(integer: &Integer) -> Option<[u8; 32]> {
    if *integer == Integer::from_u128(1) {
        return None;
    }
    let mut bytes = [0; 32];
    let limbs = limbs(&Scalar::from_limbs(integer.limbs).inv());
    for (chunk, limb) in bytes.chunks_exact_mut(8).zip(limbs) {
        chunk.copy_from_slice(&limb.to_le_bytes());
    }
    Some(bytes)
}

/// Each λᵢ modulo r as low + high·z²: first all the low halves, then all the high ones.
fn halves(abscissas: &[u32]) -> Vec<Integer> {
    let (low, high): (Vec<_>, Vec<_>) = modular(abscissas)
        .iter()
        .map(|weight| split(limbs(weight)))
        .map(|(low, high)| (Integer::from_u128(low), Integer::from_u128(high)))
        .unzip();
    [low, high].concat()
}

/// λᵢ modulo r.
fn modular(abscissas: &[u32]) -> Vec<Scalar> {
    let numerator = product(abscissas.iter().map(|&x| u64::from(x)));
    let denominators = abscissas.iter().zip(0..).map(|(&x, smaller)| {
        let others = abscissas.iter().filter(|&&other| other != x);
        let distances = others.map(|other| u64::from(other.abs_diff(x)));
        let denominator = product(distances.chain([u64::from(x)]));
        // One factor below zero for each smaller abscissa.
        if smaller % 2 == 1 {
            -denominator
        } else {
            denominator
        }
    });
    invert_all(denominators.collect())
        .into_iter()
        .map(|inverse| inverse * &numerator)
        .collect()
}

/// The product of numbers below 2³², several at a time as long as they fit into 64 bits.
fn product(numbers: impl Iterator<Item = u64>) -> Scalar {
    let mut product = Scalar::one();
    let mut chunk: u64 = 1;
    for number in numbers {
        chunk = chunk.checked_mul(number).unwrap_or_else(|| {
            product *= &Scalar::from_u64(chunk);
            number
        });
    }
    product * &Scalar::from_u64(chunk)
}

/// The inverses of non-zero scalars, with one inversion (Montgomery's trick).
fn invert_all(scalars: Vec<Scalar>) -> Vec<Scalar> {
    let mut prefixes = Vec::with_capacity(scalars.len());
    let mut product = Scalar::one();
    for scalar in &scalars {
        prefixes.push(product.clone());
        product *= scalar;
    }
    let mut inverse = product.inv();
    for (scalar, prefix) in scalars.iter().zip(&mut prefixes).rev() {
        *prefix *= &inverse;
        inverse *= scalar;
    }
    prefixes
}

/// The scalar as an integer, least significant limb first.
fn limbs(scalar: &Scalar) -> [u64; 4] {
    use commonware_codec::EncodeFixed;
    let bytes: [u8; 32] = scalar.encode_fixed();
    let mut limbs = [0; 4];
    for (limb, chunk) in limbs.iter_mut().rev().zip(bytes.chunks_exact(8)) {
        *limb = u64::from_be_bytes(chunk.try_into().expect("chunks of eight bytes"));
    }
    limbs
}

/// The scalar as a plain integer.
pub(super) fn integer(scalar: &Scalar) -> Integer {
    Integer {
        limbs: limbs(scalar),
        negative: false,
    }
}

/// Splits a number below r into (remainder, quotient) by z²; both have at most 128 bits, because
/// r = z⁴ − z² + 1. Long division, bit by bit.
fn split(limbs: [u64; 4]) -> (u128, u128) {
    let mut remainder: u128 = u128::from(limbs[3]) << 64 | u128::from(limbs[2]);
    let mut low = u128::from(limbs[1]) << 64 | u128::from(limbs[0]);
    let mut quotient = 0;
    for _ in 0..128 {
        let overflow = remainder >> 127 == 1;
        remainder = remainder << 1 | low >> 127;
        low <<= 1;
        quotient <<= 1;
        if overflow || remainder >= Z_SQUARED {
            remainder = remainder.wrapping_sub(Z_SQUARED);
            quotient |= 1;
        }
    }
    (remainder, quotient)
}
