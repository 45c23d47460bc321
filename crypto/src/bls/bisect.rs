//! Finding the invalid signatures among many over one message.
//!
//! A batch of signatures sᵢ under keys pkᵢ is tested by one pairing equation,
//! e(Σ rᵢ·sᵢ, g₂) = e(H, Σ rᵢ·pkᵢ), with weights rᵢ that the signers cannot foresee. With a plain
//! sum two colluders could send s₁ + d and s₂ − d; with random weights any invalid signature makes
//! the two sides differ, except with probability 2⁻¹²⁸. This needs every sᵢ in the subgroup of
//! prime order: elsewhere an error of order 3 would vanish under every third weight.
//!
//! The quotient D of the two sides is multiplicative: the D of a batch is the product of the Ds of
//! its halves. So halving a batch costs one pairing check, not two, and n signatures cost n checks
//! however many of them are invalid.
//!
//! A single invalid signature is found without halving (Law and Matt, 2007): let E be the same
//! quotient with each weight times its signature's number i. If one signature alone is invalid,
//! E = Dⁱ. The reverse holds too: with dₖ for the discrete logarithm of signature k's own quotient,
//! E = Dⁱ means Σ (k − i)·rₖ·dₖ = 0, and that takes dₖ = 0 for all k but i, except with probability
//! 2⁻¹²⁸ for each i. E is multiplicative as well. Whoever sends an invalid signature is blocked for
//! it, so one at a time is what there mostly is. Where more are found, E is asked for only where about
//! one is to be expected; in vain at most once for each third signature.
//!
//! So a single invalid signature is found with two pairing checks, whatever the committee's size.
//! Of 67 parts, 16 invalid ones take 36 checks instead of 50, and one takes 4 in all instead of 9,
//! the certificate included.

use super::{
    CheckCount, HashedMessage,
    curve::{Affine, Jacobian},
    point::{G1Affine, G2Affine, Gt, Lines, pairing_product},
    sum::{Integer, Plan},
    weights::with_images,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use std::ops::Range;

/// A signature that is to be checked.
#[derive(Clone, Copy)]
pub(super) struct Suspect {
    /// The signer's index.
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
    let weights: Vec<_> = Weight::stream(seed).take(suspects.len()).collect();
    let (low, high) = weights
        .iter()
        .map(|w| (u128::from(w.low), u128::from(w.high)))
        .unzip();
    let mut search = Search {
        negated_hash: message.0.negate(),
        suspects,
        weights: [low, high],
        count,
        invalid: Vec::new(),
    };
    let all = 0..suspects.len();
    let plain = search.quotient(all.clone(), false);
    if !plain.is_one() {
        search.descend(all, &plain, None);
    }
    search.invalid
}

struct Search<'a> {
    negated_hash: G1Affine,
    suspects: &'a [Suspect],
    /// The low and the high halves of the weights.
    weights: [Vec<u128>; 2],
    count: &'a mut CheckCount,
    invalid: Vec<u32>,
}

impl Search<'_> {
    /// e(Σ rᵢ·sᵢ, g₂) / e(H, Σ rᵢ·pkᵢ): one if every signature is valid. `numbered` multiplies
    /// each weight by its signature's place.
    fn quotient(&mut self, range: Range<usize>, numbered: bool) -> Gt {
        self.count.pairing_checks += 1;
        let scalars: Vec<Integer> = self
            .weights
            .iter()
            .flat_map(|halves| range.clone().map(|place| (place, halves[place])))
            .map(|(place, half)| match numbered {
                true => Integer::from_u128(half * place as u128),
                false => Integer::from_u128(half),
            })
            .collect();
        let plan = Plan::new(&scalars);
        let suspects = &self.suspects[range];
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

    /// Names the invalid signatures of a batch that has some, whose D is known, and perhaps its E.
    /// Returns its E, which is known for sure when they are.
    fn descend(&mut self, range: Range<usize>, plain: &Gt, numbered: Option<Gt>) -> Gt {
        if range.len() == 1 {
            self.invalid.push(self.suspects[range.start].signer);
            return plain.power(range.start);
        }
        let numbered = match numbered {
            None if range.len() > 2 && self.few_in(&range) => {
                Some(self.quotient(range.clone(), true))
            }
            known => known,
        };
        if let Some(numbered) = numbered
            && let Some(place) = single(range.clone(), plain, &numbered)
        {
            self.invalid.push(self.suspects[place].signer);
            return numbered;
        }
        self.count.bisections += 1;
        let middle = range.start + range.len() / 2;
        let (left, right) = (range.start..middle, middle..range.end);
        let left_plain = self.quotient(left.clone(), false);
        let left_numbered = match left_plain.is_one() {
            true => left_plain,
            false => self.descend(left, &left_plain, None),
        };
        let right_plain = plain.divide(&left_plain);
        let right_numbered = match right_plain.is_one() {
            true => right_plain,
            false => {
                let known = numbered.map(|both| both.divide(&left_numbered));
                self.descend(right, &right_plain, known)
            }
        };
        left_numbered.multiply(&right_numbered)
    }

    /// Whether it is worth a check to look for a single invalid signature in a batch that has some:
    /// always at first; then, if there would be about one as far as the search has come, which goes
    /// from left to right.
    fn few_in(&self, range: &Range<usize>) -> bool {
        let (all, seen) = (self.suspects.len(), range.start);
        if range.len() == all {
            return true;
        }
        // Two more than were seen, in a few more places: the first search says that there are two.
        let invalid = self.invalid.len() + 2;
        let places = seen + if seen == 0 { all } else { 4 };
        range.len() * invalid * 5 <= places * 6
    }
}

/// The place of the one invalid signature of a batch, if there is only one.
fn single(range: Range<usize>, plain: &Gt, numbered: &Gt) -> Option<usize> {
    let mut power = plain.power(range.start);
    for place in range {
        if power.equals(numbered) {
            return Some(place);
        }
        power = power.multiply(plain);
    }
    None
}
