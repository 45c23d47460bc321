//! Sums of many multiples of points.
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

use super::curve::{Affine, Field, Jacobian};

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
    pub(super) fn sum<P: Affine>(&self, points: &[P]) -> P::Jacobian {
        assert_eq!(points.len(), self.points, "one point for each scalar");
        let mut arena = Arena::new(points, self.entries.len());
        let mut buckets = Runs {
            picks: self.entries.clone(),
            lengths: self.bucket_lengths.clone(),
        };
        arena.collapse(&mut buckets);

        // Σ d·B[d] over a window, one bit of d at a time: the odd digits contribute their sum at
        // this bit, and B[2j] + B[2j+1] is the bucket of digit j at the next one.
        let mut bit_sums = Runs::default();
        let mut bits = Vec::with_capacity(self.windows * self.window_bits);
        for level in 0..self.window_bits {
            let digits = 1 << (self.window_bits - 1 - level);
            let mut halved = Runs::default();
            let mut picks = buckets.picks.iter();
            for (window, lengths) in buckets.lengths.chunks_exact(digits).enumerate() {
                let (mut odd, mut pair) = (0, 0);
                for (digit, &length) in (1..).zip(lengths) {
                    for &pick in picks.by_ref().take(length as usize) {
                        if digit % 2 == 1 {
                            bit_sums.picks.push(pick);
                            odd += 1;
                        }
                        if digit > 1 {
                            halved.picks.push(pick);
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
            arena.collapse(&mut halved);
            buckets = halved;
        }
        arena.collapse(&mut bit_sums);

        let mut by_bit = vec![None; self.windows * self.window_bits];
        let mut picks = bit_sums.picks.iter();
        for (bit, &length) in bits.into_iter().zip(&bit_sums.lengths) {
            by_bit[bit] = picks.by_ref().take(length as usize).next();
        }
        let mut total = P::Jacobian::identity();
        for pick in by_bit.into_iter().rev().skip_while(Option::is_none) {
            total.double();
            if let Some(&pick) = pick {
                total.add(&arena.points[pick as usize]);
            }
        }
        total
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

/// Every point that a sum has come to so far, the given ones and their opposites first. Points are
/// referred to by position and never moved.
struct Arena<P: Affine> {
    points: Vec<P>,
    denominators: Vec<P::Field>,
    inverses: Vec<P::Field>,
}

/// Runs of positions in the arena, one after the other; the points of each run are to be added.
#[derive(Default)]
struct Runs {
    picks: Vec<u32>,
    lengths: Vec<u32>,
}

impl<P: Affine> Arena<P> {
    /// The given point `i` gets position 2·i, its opposite 2·i + 1, as in [`Plan::entries`].
    fn new(points: &[P], additions: usize) -> Self {
        let mut arena = Vec::with_capacity(2 * points.len() + 2 * additions);
        arena.extend(points.iter().flat_map(|point| [*point, point.negate()]));
        Self {
            points: arena,
            denominators: Vec::with_capacity(additions / 2),
            inverses: Vec::with_capacity(additions / 2 + 1),
        }
    }

    /// Replaces every run by its sum: one point, or none if the sum is the identity. Each round
    /// adds the neighbours of all runs, with one inversion for all.
    fn collapse(&mut self, runs: &mut Runs) {
        while runs.lengths.iter().any(|&length| length > 1) {
            self.invert_slopes(runs);
            let base = self.points.len();
            let filler = self.points[0];
            self.points.resize(base + self.denominators.len(), filler);
            let (known, sums) = self.points.split_at_mut(base);
            let mut sums = (base..).zip(sums.iter_mut().zip(&self.inverses));
            let (mut read, mut write) = (0, 0);
            for length in &mut runs.lengths {
                let (start, end) = (write, read + *length as usize);
                while read + 1 < end {
                    let left = &known[runs.picks[read] as usize];
                    let right = &known[runs.picks[read + 1] as usize];
                    let (pick, (sum, inverse)) = sums.next().expect("one for each pair");
                    if left.add_with_slope(right, inverse, sum) {
                        runs.picks[write] = pick as u32;
                        write += 1;
                    }
                    read += 2;
                }
                if read < end {
                    runs.picks[write] = runs.picks[read];
                    (read, write) = (read + 1, write + 1);
                }
                *length = (write - start) as u32;
            }
            runs.picks.truncate(write);
        }
    }

    /// Leaves in `inverses` the inverse of the slope's denominator for every pair of neighbours in
    /// every run, by Montgomery's trick: one inversion of the product of all.
    fn invert_slopes(&mut self, runs: &Runs) {
        self.denominators.clear();
        let mut rest = &runs.picks[..];
        for &length in &runs.lengths {
            let (run, others) = rest.split_at(length as usize);
            rest = others;
            for pair in run.chunks_exact(2) {
                let [left, right] = [pair[0], pair[1]].map(|pick| &self.points[pick as usize]);
                self.denominators.push(P::Field::ONE);
                let denominator = self.denominators.last_mut().expect("just pushed");
                left.slope_denominator(right, denominator);
            }
        }
        // inverses[k] becomes the product of the denominators before k …
        let pairs = self.denominators.len();
        self.inverses.clear();
        self.inverses.resize(pairs + 1, P::Field::ONE);
        for (index, denominator) in self.denominators.iter().enumerate() {
            let (before, after) = self.inverses.split_at_mut(index + 1);
            after[0].set_product(&before[index], denominator);
        }
        // … and then, times the inverse of the product up to k, the inverse of number k.
        let mut inverse = self.inverses[pairs].invert();
        for (prefix, denominator) in self.inverses.iter_mut().zip(&self.denominators).rev() {
            prefix.multiply(&inverse);
            inverse.multiply(denominator);
        }
    }
}
