//! Finding the invalid signatures among many over one message.
//!
//! A batch of signatures sᵢ under keys pkᵢ is tested by one pairing equation,
//! e(Σ rᵢ·sᵢ, g₂) = e(H, Σ rᵢ·pkᵢ), with weights rᵢ that the signers cannot foresee. With a plain
//! sum two colluders could send s₁ + d and s₂ − d; with random weights any invalid signature makes
//! the two sides differ, except with probability 2⁻¹²⁸. This needs every sᵢ in the subgroup of
//! prime order: elsewhere an error of order 3 would vanish under every third weight.
//!
//! The quotient D of the two sides is multiplicative: the D of a batch is the product of the Ds of
//! its halves. So halving a batch costs one pairing check, not two, and n signatures never cost
//! more than n checks however many of them are invalid.

use super::{
    CheckCount, HashedMessage,
    curve::{Affine, Jacobian},
    point::{G1Affine, G2Affine, Gt, Lines, pairing_product},
    sum::{Integer, Plan},
    weights::with_images,
};
use crate::mistakes::{Mistake, made};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;

/// A signature that is to be checked.
#[derive(Clone, Copy)]
pub(super) struct Suspect {
    /// Who is said to have signed.
    pub(super) signer: u32,
    /// The signature; in the subgroup.
    pub(super) signature: G1Affine,
    /// The signer's key; in the subgroup.
    pub(super) key: G2Affine,
}

/// A random weight low + high·z². All 2¹²⁸ of them are different modulo r, and multiplying by z²
/// is almost free, so a sum over these weights has half the doublings of one over plain numbers.
#[derive(Clone, Copy)]
pub(super) struct Weight {
    pub(super) low: u64,
    pub(super) high: u64,
}

impl Weight {
    /// The weight of a term that needs no randomness.
    pub(super) const ONE: Self = Self { low: 1, high: 0 };

    /// An endless supply of random weights, determined by `seed`.
    pub(super) fn stream(seed: [u8; 32]) -> impl Iterator<Item = Self> {
        let mut rng = ChaCha20Rng::from_seed(seed);
        std::iter::repeat_with(move || Self {
            low: rng.next_u64(),
            high: rng.next_u64(),
        })
    }

    /// The plan for a weighted sum, to be applied to the points followed by their images.
    pub(super) fn plan(weights: &[Self]) -> Plan {
        let low = weights.iter().map(|weight| weight.low);
        let high = weights.iter().map(|weight| weight.high);
        let scalars: Vec<_> = low
            .chain(high)
            .map(|half| Integer::from_u128(half.into()))
            .collect();
        Plan::new(&scalars)
    }
}

/// The signers of the invalid signatures, in the order of the suspects.
pub(super) fn find(
    message: &HashedMessage,
    suspects: &[Suspect],
    seed: [u8; 32],
    count: &mut CheckCount,
) -> Vec<u32> {
    if suspects.is_empty() {
        return Vec::new();
    }
    let mut search = Search {
        negated_hash: message.0.negate(),
        count,
        invalid: Vec::new(),
    };
    let mut weights: Vec<_> = Weight::stream(seed).take(suspects.len()).collect();
    if made(Mistake::PlainSumBisection) {
        weights.fill(Weight::ONE);
    }
    let discrepancy = search.discrepancy(suspects, &weights);
    search.descend(suspects, &weights, &discrepancy);
    search.invalid
}

struct Search<'a> {
    negated_hash: G1Affine,
    count: &'a mut CheckCount,
    invalid: Vec<u32>,
}

impl Search<'_> {
    /// e(Σ rᵢ·sᵢ, g₂) / e(H, Σ rᵢ·pkᵢ): one if every signature is valid.
    fn discrepancy(&mut self, suspects: &[Suspect], weights: &[Weight]) -> Gt {
        self.count.pairing_checks += 1;
        let plan = Weight::plan(weights);
        let signatures: Vec<_> = suspects.iter().map(|suspect| suspect.signature).collect();
        let signature = plan.sum(&with_images(&signatures)).to_affine();
        let keys: Vec<_> = suspects.iter().map(|suspect| suspect.key).collect();
        let key = plan.sum(&with_images(&keys)).to_affine();

        // A sum is the identity with probability 2⁻¹²⁸, and its pairing is then one.
        let key = key.as_ref().map(Lines::new);
        let left = signature.as_ref().map(|point| (point, Lines::generator()));
        let right = key.as_ref().map(|lines| (&self.negated_hash, lines));
        let pairs: Vec<_> = left.into_iter().chain(right).collect();
        pairing_product(&pairs)
    }

    /// Splits a batch whose discrepancy is known until each invalid signature stands alone.
    fn descend(&mut self, suspects: &[Suspect], weights: &[Weight], discrepancy: &Gt) {
        if discrepancy.is_one() {
            return;
        }
        if let [suspect] = suspects {
            self.invalid.push(suspect.signer);
            return;
        }
        self.count.bisections += 1;
        let middle = suspects.len() / 2;
        let (left, right) = suspects.split_at(middle);
        let (left_weights, right_weights) = weights.split_at(middle);
        let left_discrepancy = self.discrepancy(left, left_weights);
        self.descend(left, left_weights, &left_discrepancy);
        let right_discrepancy = discrepancy.divide(&left_discrepancy);
        self.descend(right, right_weights, &right_discrepancy);
    }
}
