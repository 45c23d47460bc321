//! Sums of many multiples of G1 points.
//!
//! Pippenger's bucket method, with every addition done in affine coordinates: an affine addition
//! costs one inversion and three multiplications, and Montgomery's trick buys any number of
//! independent inversions for one inversion and three multiplications each. So an addition costs
//! about 6 field multiplications (165 ns) where Jacobian mixed addition costs 13 (380 ns), as
//! long as there are many independent ones at hand. The buckets of *all* windows are therefore
//! summed together, in rounds of pairs; so are the steps that turn buckets into sums per bit.
//!
//! A [`Plan`] is all that depends on the scalars alone: which point goes into which bucket. It is
//! kept with the Lagrange weights of a signer set.
//!
//! None of this is constant-time; scalars and points are public.

use super::point::{Fp, G1, G1Affine};

/// A signed integer below 2²⁵⁶ in absolute value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Integer {
    /// The absolute value, least significant limb first.
    pub(super) limbs: [u64; 4],
    /// Whether the integer is below zero.
    pub(super) negative: bool,
}

/// Widest window that is considered; a plan has at most 2¹⁰ buckets per window.
const MAX_WINDOW_BITS: usize = 11;

/// How to sum `scalars[i] · points[i]`, for fixed scalars.
pub(super) struct Plan {
    points: usize,
    window_bits: usize,
    windows: usize,
    /// Number of entries in each bucket: window by window, digits 1 to `2^(window_bits - 1)`.
    bucket_lengths: Vec<u32>,
    /// For each bucket in turn its points: the index shifted left by one, plus one if the point
    /// is to be negated.
    entries: Vec<u32>,
}

impl Integer {
    /// A non-negative integer below 2¹²⁸.
    pub(super) fn from_u128(value: u128) -> Self {
        let (low, high) = (value as u64, (value >> 64) as u64);
        Self {
            limbs: [low, high, 0, 0],
            negative: false,
        }
    }

    /// The number of bits of the absolute value.
    pub(super) fn bits(&self) -> usize {
        let top = self.limbs.iter().rposition(|&limb| limb != 0);
        top.map_or(0, |top| {
            64 * top + 64 - self.limbs[top].leading_zeros() as usize
        })
    }

    /// Bits `[from, from + width)` of the absolute value; zero beyond the top.
    fn window(&self, from: usize, width: usize) -> u64 {
        let (limb, shift) = (from / 64, from % 64);
        let low = self.limbs.get(limb).copied().unwrap_or(0) >> shift;
        let high = match self.limbs.get(limb + 1) {
            Some(next) if shift > 0 => next << (64 - shift),
            _ => 0,
        };
        (low | high) & ((1 << width) - 1)
    }
}

impl Plan {
    /// Plans the sum for these scalars.
    pub(super) fn new(scalars: &[Integer]) -> Self {
        let bits: Vec<usize> = scalars.iter().map(Integer::bits).collect();
        let window_bits = (1..=MAX_WINDOW_BITS)
            .min_by_key(|&width| estimated_additions(&bits, width))
            .expect("the range is not empty");
        let top = bits.iter().copied().max().unwrap_or(0);
        // One bit more than the widest scalar, for the carry out of its last digit.
        let windows = (top + 1).div_ceil(window_bits);
        let digits = 1 << (window_bits - 1);

        let mut bucket_lengths = vec![0_u32; windows * digits];
        let mut placed = Vec::with_capacity(scalars.len() * windows);
        for (index, scalar) in scalars.iter().enumerate() {
            let mut carry = 0;
            for window in 0..windows {
                let mut digit = scalar.window(window * window_bits, window_bits) + carry;
                let mut negative = scalar.negative;
                // Digits run from −2^(w−1)+1 to 2^(w−1): half the buckets of unsigned ones.
                carry = u64::from(digit > digits as u64);
                if carry == 1 {
                    digit = (1 << window_bits) - digit;
                    negative = !negative;
                }
                if digit > 0 {
                    let bucket = window * digits + digit as usize - 1;
                    bucket_lengths[bucket] += 1;
                    placed.push((bucket, (index as u32) << 1 | u32::from(negative)));
                }
            }
        }

        let mut next: Vec<u32> = Vec::with_capacity(bucket_lengths.len());
        let mut total = 0;
        for length in &bucket_lengths {
            next.push(total);
            total += length;
        }
        let mut entries = vec![0; placed.len()];
        for (bucket, entry) in placed {
            entries[next[bucket] as usize] = entry;
            next[bucket] += 1;
        }
        Self {
            points: scalars.len(),
            window_bits,
            windows,
            bucket_lengths,
            entries,
        }
    }

    /// The sum for these points; any points of the curve, in the subgroup or not, equal or
    /// opposite to each other or not.
    ///
    /// # Panics
    ///
    /// If there are not as many points as the plan has scalars.
    pub(super) fn sum(&self, points: &[G1Affine]) -> G1 {
        assert_eq!(points.len(), self.points, "one point for each scalar");
        let mut runs = Runs {
            points: Vec::with_capacity(self.entries.len()),
            lengths: self.bucket_lengths.clone(),
        };
        for entry in &self.entries {
            let point = points[(entry >> 1) as usize];
            let negative = entry & 1 == 1;
            runs.points
                .push(if negative { point.negate() } else { point });
        }
        let mut scratch = Scratch::default();
        runs.collapse(&mut scratch);

        // Σ d·B[d] over a window, one bit of d at a time: the odd digits contribute their sum at
        // this bit, and B[2j] + B[2j+1] is the bucket of digit j at the next one.
        let mut bit_sums = Runs::default();
        let mut bits = Vec::new();
        let mut digits = 1 << (self.window_bits - 1);
        for level in 0..self.window_bits {
            let mut halved = Runs::default();
            let mut rest = &runs.points[..];
            for window in 0..self.windows {
                let lengths = &runs.lengths[window * digits..(window + 1) * digits];
                let mut odd = 0;
                let mut pair = 0;
                for (digit, &length) in (1..).zip(lengths) {
                    if let Some((point, others)) = rest.split_first().filter(|_| length == 1) {
                        rest = others;
                        if digit % 2 == 1 {
                            bit_sums.points.push(*point);
                            odd += 1;
                        }
                        if digit > 1 {
                            halved.points.push(*point);
                            pair += 1;
                        }
                    }
                    // The pair (2j, 2j+1) is complete; so is a last 2j without its 2j+1.
                    if digit > 1 && (digit % 2 == 1 || digit == digits) {
                        halved.lengths.push(pair);
                        pair = 0;
                    }
                }
                bit_sums.lengths.push(odd);
                bits.push(window * self.window_bits + level);
            }
            digits /= 2;
            halved.collapse(&mut scratch);
            runs = halved;
        }
        bit_sums.collapse(&mut scratch);
        horner(&bit_sums, &bits, self.windows * self.window_bits)
    }
}

/// How many additions a plan with this window takes, roughly: every non-zero digit is one, and
/// turning `d` buckets into sums per bit takes `2·(d − width)`, less the `d` that the first entry
/// of each bucket saves.
fn estimated_additions(bits: &[usize], width: usize) -> usize {
    let top = bits.iter().copied().max().unwrap_or(0);
    let windows = (top + 1).div_ceil(width);
    let digits: usize = bits.iter().map(|&bits| (bits + 1).div_ceil(width)).sum();
    let zeros = digits >> width;
    let fold = (1_usize << (width - 1)).saturating_sub(2 * width);
    digits - zeros + windows * fold
}

/// Σ 2^bits[i] · sums[i]; every run holds at most one point.
fn horner(sums: &Runs, bits: &[usize], top: usize) -> G1 {
    let mut by_bit: Vec<Option<G1Affine>> = vec![None; top];
    let mut rest = sums.points.iter();
    for (bit, length) in bits.iter().zip(&sums.lengths) {
        if *length == 1 {
            by_bit[*bit] = rest.next().copied();
        }
    }
    let mut total = G1::identity();
    for point in by_bit.iter().rev().skip_while(|point| point.is_none()) {
        total.double();
        if let Some(point) = point {
            total.add(point);
        }
    }
    total
}

/// Runs of points, one after the other, each to be added up.
#[derive(Default)]
struct Runs {
    points: Vec<G1Affine>,
    lengths: Vec<u32>,
}

/// Memory for [`Runs::collapse`], kept from one call to the next.
#[derive(Default)]
struct Scratch {
    denominators: Vec<Fp>,
    prefixes: Vec<Fp>,
}

impl Runs {
    /// Replaces every run by its sum: one point, or none if the sum is the identity. Each round
    /// adds the neighbours of all runs, with one inversion for all.
    fn collapse(&mut self, scratch: &mut Scratch) {
        while self.lengths.iter().any(|&length| length > 1) {
            scratch.invert_slopes(self);
            let mut inverses = scratch.denominators.iter();
            let (mut read, mut write) = (0, 0);
            for length in &mut self.lengths {
                let (start, end) = (write, read + *length as usize);
                while read + 1 < end {
                    let (left, right) = (self.points[read], self.points[read + 1]);
                    let inverse = inverses.next().expect("one denominator for each pair");
                    if let Some(sum) = add(&left, &right, inverse) {
                        self.points[write] = sum;
                        write += 1;
                    }
                    read += 2;
                }
                if read < end {
                    self.points[write] = self.points[read];
                    (read, write) = (read + 1, write + 1);
                }
                *length = (write - start) as u32;
            }
            self.points.truncate(write);
        }
    }
}

impl Scratch {
    /// Leaves in `denominators` the inverse of the slope's denominator for every pair of
    /// neighbours in every run (Montgomery's trick).
    fn invert_slopes(&mut self, runs: &Runs) {
        self.denominators.clear();
        self.prefixes.clear();
        let mut product = Fp::ONE;
        let mut read = 0;
        for &length in &runs.lengths {
            let run = &runs.points[read..read + length as usize];
            for pair in run.chunks_exact(2) {
                let denominator = slope_denominator(&pair[0], &pair[1]);
                self.prefixes.push(product);
                product = product.mul(&denominator);
                self.denominators.push(denominator);
            }
            read += length as usize;
        }
        let mut inverse = product.invert();
        let pairs = self.denominators.iter_mut().zip(&self.prefixes);
        for (denominator, prefix) in pairs.rev() {
            let inverted = inverse.mul(prefix);
            inverse = inverse.mul(denominator);
            *denominator = inverted;
        }
    }
}

/// The denominator of the slope of the chord, or of the tangent for equal points. Never zero: the
/// curve has odd order, so no point has y = 0. For opposite points, whose sum has no slope, one.
fn slope_denominator(left: &G1Affine, right: &G1Affine) -> Fp {
    let chord = right.x().sub(&left.x());
    if !chord.is_zero() {
        chord
    } else if left.y() == right.y() {
        left.y().add(&left.y())
    } else {
        Fp::ONE
    }
}

/// left + right, given the inverse of [`slope_denominator`]; `None` for the identity.
fn add(left: &G1Affine, right: &G1Affine, inverse: &Fp) -> Option<G1Affine> {
    let rise = if left.x() != right.x() {
        right.y().sub(&left.y())
    } else if left.y() == right.y() {
        let square = left.x().square();
        square.add(&square).add(&square)
    } else {
        return None;
    };
    let slope = rise.mul(inverse);
    let x = slope.square().sub(&left.x()).sub(&right.x());
    let y = slope.mul(&left.x().sub(&x)).sub(&left.y());
    Some(G1Affine::from_coordinates(x, y))
}
