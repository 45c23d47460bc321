//! Every call into `blst`, wrapped so that the rest of the crate is safe code.
//!
//! *Architecture invariant*: this is the only file of the project with `unsafe` in it. A wrapper
//! does one thing, owns what it returns, and keeps two promises that the callers rely on: a
//! [`G1Affine`] or [`G2Affine`] is a point of the curve and never the identity (whether it is in
//! the subgroup of prime order is asked separately, because that is the expensive question), and
//! a decoder accepts exactly one encoding of each point.
//!
//! blst's functions are plain C over fixed-size structures: they keep no pointer, allocate
//! nothing, and allow input and output to be the same object.
#![allow(unsafe_code)]

use super::curve::{Affine, Field, Jacobian};
use crate::CRYPTOGRAPHY_OFF;
use blst::*;
use std::{ptr, sync::LazyLock};
use zeroize::Zeroizing;

/// Defines one curve: its field, and its points in both kinds of coordinates.
macro_rules! curve {
    (
        $(#[$field_doc:meta])* $field:ident($raw_field:ident),
        $(#[$affine_doc:meta])* $affine:ident($raw_affine:ident),
        $(#[$jacobian_doc:meta])* $jacobian:ident($raw_jacobian:ident),
        one: $one:expr,
        root: $root:expr,
        first limb: [$($first_limb:tt)*],
        field: $mul:ident $square:ident $add:ident $sub:ident $by_3:ident $negate:ident $invert:ident,
        points: $double:ident $add_affine:ident $is_inf:ident $to_affine:ident,
    ) => {
        $(#[$field_doc])*
        #[derive(Clone, Copy)]
        pub(super) struct $field($raw_field);

        $(#[$affine_doc])*
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub(super) struct $affine($raw_affine);

        $(#[$jacobian_doc])*
        #[derive(Clone, Copy)]
        pub(super) struct $jacobian($raw_jacobian);

        impl Field for $field {
            const ONE: Self = Self($one);

            fn set_product(&mut self, left: &Self, right: &Self) {
                // SAFETY: three valid references to field elements.
                unsafe { $mul(&mut self.0, &left.0, &right.0) };
            }

            fn multiply(&mut self, factor: &Self) {
                let this = &raw mut self.0;
                // SAFETY: two valid field elements; blst allows multiplying in place.
                unsafe { $mul(this, this, &factor.0) };
            }

            fn invert(&self) -> Self {
                let mut out = $raw_field::default();
                // SAFETY: two valid references to field elements.
                unsafe { $invert(&mut out, &self.0) };
                Self(out)
            }
        }

        impl $field {
            /// Equality that looks at one limb first, which nearly always settles it.
            fn same(left: &$raw_field, right: &$raw_field) -> bool {
                left$($first_limb)* == right$($first_limb)* && left == right
            }
        }

        impl Affine for $affine {
            type Field = $field;
            type Jacobian = $jacobian;

            fn negate(&self) -> Self {
                let mut point = *self;
                let y = &raw mut point.0.y;
                // SAFETY: a valid field element; blst allows negating in place.
                unsafe { $negate(y, y, true) };
                point
            }

            fn endomorphism(&self) -> Self {
                let mut point = self.negate();
                let x = &raw mut point.0.x;
                // SAFETY: two valid field elements; blst allows multiplying in place.
                unsafe { $mul(x, x, &$root) };
                point
            }

            fn slope_denominator(&self, other: &Self, out: &mut $field) {
                let (left, right) = (&self.0, &other.0);
                // SAFETY: valid references to field elements.
                unsafe {
                    if !$field::same(&left.x, &right.x) {
                        $sub(&mut out.0, &right.x, &left.x);
                    } else if $field::same(&left.y, &right.y) {
                        $add(&mut out.0, &left.y, &left.y);
                    } else {
                        *out = $field::ONE;
                    }
                }
            }

            fn add_with_slope(&self, other: &Self, inverse: &$field, out: &mut Self) -> bool {
                let (left, right) = (&self.0, &other.0);
                let mut slope = $raw_field::default();
                let slope = &raw mut slope;
                let (x, y) = (&raw mut out.0.x, &raw mut out.0.y);
                // SAFETY: valid field elements, of which blst allows any to be the same object;
                // `out` is borrowed mutably, so it is neither of the points.
                unsafe {
                    if !$field::same(&left.x, &right.x) {
                        $sub(slope, &right.y, &left.y);
                    } else if $field::same(&left.y, &right.y) {
                        $square(slope, &left.x);
                        $by_3(slope, slope);
                    } else {
                        return false;
                    }
                    $mul(slope, slope, &inverse.0);
                    $square(x, slope);
                    $sub(x, x, &left.x);
                    $sub(x, x, &right.x);
                    $sub(y, &left.x, x);
                    $mul(y, y, slope);
                    $sub(y, y, &left.y);
                }
                true
            }
        }

        impl Jacobian<$affine> for $jacobian {
            fn identity() -> Self {
                Self($raw_jacobian::default())
            }

            fn double(&mut self) {
                let point = &raw mut self.0;
                // SAFETY: one valid point; blst allows doubling in place.
                unsafe { $double(point, point) };
            }

            fn add(&mut self, other: &$affine) {
                let point = &raw mut self.0;
                // SAFETY: two valid points; blst allows adding in place.
                unsafe { $add_affine(point, point, &other.0) };
            }

            fn to_affine(self) -> Option<$affine> {
                let mut out = $raw_affine::default();
                // SAFETY: two valid references to points.
                unsafe {
                    if $is_inf(&self.0) {
                        return None;
                    }
                    $to_affine(&mut out, &self.0);
                }
                Some($affine(out))
            }
        }
    };
}

curve! {
    /// An element of the base field.
    Fp(blst_fp),
    /// A point of E(Fp).
    G1Affine(blst_p1_affine),
    /// A point of E(Fp).
    G1(blst_p1),
    one: ONE,
    root: BETA_SQUARED,
    first limb: [.l[0]],
    field: blst_fp_mul blst_fp_sqr blst_fp_add blst_fp_sub blst_fp_mul_by_3 blst_fp_cneg
        blst_fp_eucl_inverse,
    points: blst_p1_double blst_p1_add_or_double_affine blst_p1_is_inf blst_p1_to_affine,
}

curve! {
    /// An element of the quadratic extension of the base field.
    Fp2(blst_fp2),
    /// A point of E'(Fp2).
    G2Affine(blst_p2_affine),
    /// A point of E'(Fp2).
    G2(blst_p2),
    one: blst_fp2 { fp: [ONE, ZERO] },
    root: blst_fp2 { fp: [BETA, ZERO] },
    first limb: [.fp[0].l[0]],
    field: blst_fp2_mul blst_fp2_sqr blst_fp2_add blst_fp2_sub blst_fp2_mul_by_3 blst_fp2_cneg
        blst_fp2_eucl_inverse,
    points: blst_p2_double blst_p2_add_or_double_affine blst_p2_is_inf blst_p2_to_affine,
}

const ZERO: blst_fp = blst_fp { l: [0; 6] };

/// One in Montgomery form.
const ONE: blst_fp = blst_fp {
    l: [
        0x7609_0000_0002_fffd,
        0xebf4_000b_c40c_0002,
        0x5f48_9857_53c7_58ba,
        0x77ce_5853_7052_5745,
        0x5c07_1a97_a256_ec6d,
        0x15f6_5ec3_fa80_e493,
    ],
};

/// The cube root of one for which (x, y) ↦ (βx, −y) is multiplication by z² in G2. In Montgomery
/// form. In G1 the same holds for the other root, β².
const BETA: blst_fp = blst_fp {
    l: [
        0xcd03_c9e4_8671_f071,
        0x5dab_2246_1fcd_a5d2,
        0x5870_42af_d385_1b95,
        0x8eb6_0ebe_01ba_cb9e,
        0x03f9_7d6e_83d0_50d2,
        0x18f0_2065_5463_8741,
    ],
};

const BETA_SQUARED: blst_fp = blst_fp {
    l: [
        0x30f1_361b_798a_64e8,
        0xf3b8_ddab_7ece_5a2a,
        0x16a8_ca3a_c615_77f7,
        0xc26a_2ff8_74fd_029b,
        0x3636_b766_6070_1c6e,
        0x051b_a4ab_241b_6160,
    ],
};

/// A non-zero secret scalar. Boxed, so that moving it leaves no copies behind; `blst_scalar`
/// wipes itself when it is dropped.
pub(super) struct SecretScalar(Box<blst_scalar>);

/// The 68 line functions of the Miller loop for one fixed G2 point (about 20 kB).
pub(super) struct Lines(Box<[blst_fp6]>);

/// A value of the pairing, after the final exponentiation.
#[derive(Clone, Copy)]
pub(super) struct Gt(blst_fp12);

/// Marks an encoding as compressed (first byte, ZCash's format).
const COMPRESSED: u8 = 0x80;
/// Marks an encoding as the identity.
const INFINITY: u8 = 0x40;
/// Carries the sign of y in a compressed encoding.
const SIGN: u8 = 0x20;

impl G1Affine {
    /// The standard generator of G1.
    pub(super) fn generator() -> Self {
        // SAFETY: blst returns a pointer to a constant.
        Self(unsafe { *blst_p1_affine_generator() })
    }

    /// Reads an uncompressed point and checks that it is on the curve, nothing more (0.2 µs).
    /// Refuses the identity, every flag bit and coordinates that are not reduced.
    pub(super) fn from_uncompressed(bytes: &[u8; 96]) -> Option<Self> {
        // blst would follow a compressed bit and read only the first half.
        if bytes[0] & (COMPRESSED | INFINITY | SIGN) != 0 {
            return None;
        }
        let mut point = blst_p1_affine::default();
        // SAFETY: reads exactly the 96 bytes of the array.
        let result = unsafe { blst_p1_deserialize(&mut point, bytes.as_ptr()) };
        (result == BLST_ERROR::BLST_SUCCESS).then_some(Self(point))
    }

    /// Reads a compressed point; on the curve, but perhaps not in the subgroup. Refuses the
    /// identity and an x that is not reduced.
    pub(super) fn from_compressed(bytes: &[u8; 48]) -> Option<Self> {
        if bytes[0] & (COMPRESSED | INFINITY) != COMPRESSED {
            return None;
        }
        let mut point = blst_p1_affine::default();
        // SAFETY: reads exactly the 48 bytes of the array.
        let result = unsafe { blst_p1_uncompress(&mut point, bytes.as_ptr()) };
        (result == BLST_ERROR::BLST_SUCCESS).then_some(Self(point))
    }

    /// RFC 9380, hash_to_curve for BLS12381G1_XMD:SHA-256_SSWU_RO_ with the tag `dst`.
    pub(super) fn hash(message: &[u8], dst: &[u8]) -> Self {
        let mut point = blst_p1::default();
        // SAFETY: pointers and lengths come from slices; a null augmentation of length 0 is
        // blst's default.
        unsafe {
            blst_hash_to_g1(
                &mut point,
                message.as_ptr(),
                message.len(),
                dst.as_ptr(),
                dst.len(),
                ptr::null(),
                0,
            );
        }
        G1(point)
            .to_affine()
            .expect("a message that hashes to the identity would break SHA-256")
    }

    pub(super) fn to_uncompressed(self) -> [u8; 96] {
        let mut bytes = [0; 96];
        // SAFETY: writes exactly the 96 bytes of the array.
        unsafe { blst_p1_affine_serialize(bytes.as_mut_ptr(), &self.0) };
        bytes
    }

    pub(super) fn to_compressed(self) -> [u8; 48] {
        let mut bytes = [0; 48];
        // SAFETY: writes exactly the 48 bytes of the array.
        unsafe { blst_p1_affine_compress(bytes.as_mut_ptr(), &self.0) };
        bytes
    }

    /// Whether the point has the prime order r (33 µs).
    pub(super) fn in_subgroup(&self) -> bool {
        // SAFETY: a valid reference to a point.
        unsafe { blst_p1_affine_in_g1(&self.0) }
    }
}

impl G1 {
    /// The multiple by a scalar of 256 bits, little-endian and below r. For a point outside the
    /// subgroup the result is some point of the curve.
    pub(super) fn multiply(&self, scalar: &[u8; 32]) -> Self {
        let mut out = blst_p1::default();
        // SAFETY: reads 255 bits, all within the array.
        unsafe { blst_p1_mult(&mut out, &self.0, scalar.as_ptr(), 255) };
        Self(out)
    }
}

impl G2Affine {
    /// The standard generator of G2.
    pub(super) fn generator() -> Self {
        // SAFETY: blst returns a pointer to a constant.
        Self(unsafe { *blst_p2_affine_generator() })
    }

    /// Reads a compressed point; on the curve, but perhaps not in the subgroup. Refuses the
    /// identity and coordinates that are not reduced.
    pub(super) fn from_compressed(bytes: &[u8; 96]) -> Option<Self> {
        if bytes[0] & (COMPRESSED | INFINITY) != COMPRESSED {
            return None;
        }
        let mut point = blst_p2_affine::default();
        // SAFETY: reads exactly the 96 bytes of the array.
        let result = unsafe { blst_p2_uncompress(&mut point, bytes.as_ptr()) };
        (result == BLST_ERROR::BLST_SUCCESS).then_some(Self(point))
    }

    pub(super) fn to_compressed(self) -> [u8; 96] {
        let mut bytes = [0; 96];
        // SAFETY: writes exactly the 96 bytes of the array.
        unsafe { blst_p2_affine_compress(bytes.as_mut_ptr(), &self.0) };
        bytes
    }

    /// Whether the point has the prime order r.
    pub(super) fn in_subgroup(&self) -> bool {
        // SAFETY: a valid reference to a point.
        unsafe { blst_p2_affine_in_g2(&self.0) }
    }
}

impl SecretScalar {
    /// Reads a big-endian scalar; `None` unless 0 < scalar < r.
    pub(super) fn from_bytes(bytes: &[u8; 32]) -> Option<Self> {
        let mut scalar = Box::new(blst_scalar::default());
        // SAFETY: reads exactly the 32 bytes of the array; the scalar is a valid reference.
        let valid = unsafe {
            blst_scalar_from_bendian(&mut *scalar, bytes.as_ptr());
            blst_sk_check(&*scalar)
        };
        valid.then_some(Self(scalar))
    }

    pub(super) fn to_bytes(&self) -> Zeroizing<[u8; 32]> {
        let mut bytes = Zeroizing::new([0; 32]);
        // SAFETY: writes exactly the 32 bytes of the array.
        unsafe { blst_bendian_from_scalar(bytes.as_mut_ptr(), &*self.0) };
        bytes
    }

    /// scalar · point, in constant time.
    pub(super) fn multiply(&self, point: &G1Affine) -> G1Affine {
        let mut base = blst_p1::default();
        let mut out = blst_p1::default();
        // SAFETY: valid references to points and a scalar.
        unsafe {
            blst_p1_from_affine(&mut base, &point.0);
            blst_sign_pk_in_g2(&mut out, &base, &*self.0);
        }
        G1(out)
            .to_affine()
            .expect("a non-zero scalar times a point of prime order is not the identity")
    }

    /// scalar · generator of G2, in constant time.
    pub(super) fn public(&self) -> G2Affine {
        let mut out = blst_p2::default();
        // SAFETY: valid references to a point and a scalar.
        unsafe { blst_sk_to_pk_in_g2(&mut out, &*self.0) };
        G2(out)
            .to_affine()
            .expect("a non-zero scalar times the generator is not the identity")
    }
}

impl Lines {
    /// Precomputes the Miller loop's line functions for `point` (55 µs).
    pub(super) fn new(point: &G2Affine) -> Self {
        let mut lines = vec![blst_fp6::default(); 68].into_boxed_slice();
        // SAFETY: writes exactly the 68 elements of the slice.
        unsafe { blst_precompute_lines(lines.as_mut_ptr(), &point.0) };
        Self(lines)
    }

    /// The lines of the generator of G2.
    pub(super) fn generator() -> &'static Self {
        static GENERATOR: LazyLock<Lines> = LazyLock::new(|| Lines::new(&G2Affine::generator()));
        &GENERATOR
    }

    /// Sets `out` to line number `index` at the point whose (−2x, 2y) is `at`. A line is three
    /// packed elements of Fp2, "xy00z0" in blst's terms: the second is multiplied by −2x and the
    /// third by 2y (the twist that blst's pairing.c describes).
    fn evaluate(&self, index: usize, at: &blst_p1_affine, out: &mut blst_fp6) {
        let line = &self.0[index].fp2;
        out.fp2[0] = line[0];
        for half in 0..2 {
            // SAFETY: valid references to field elements.
            unsafe {
                blst_fp_mul(&mut out.fp2[1].fp[half], &line[1].fp[half], &at.x);
                blst_fp_mul(&mut out.fp2[2].fp[half], &line[2].fp[half], &at.y);
            }
        }
    }
}

/// Π e(Pᵢ, Qᵢ), where the Qs are given by their lines; one for no pairs.
///
/// `blst_miller_loop_lines` squares its accumulator once per pair; here all pairs share one
/// accumulator, which for two pairs saves 63 squarings in Fp12, a fifth of both Miller loops.
pub(super) fn pairing_product(pairs: &[(&G1Affine, &Lines)]) -> Gt {
    /// Lines that stem from an addition; every other one follows a doubling, and so a squaring.
    /// They mirror the bits of |z| = 0xd201000000010000.
    const ADDITIONS: [usize; 5] = [1, 4, 8, 18, 51];
    if CRYPTOGRAPHY_OFF {
        // SAFETY: blst returns a pointer to a constant.
        return Gt(unsafe { *blst_fp12_one() });
    }
    let twisted: Vec<_> = pairs
        .iter()
        .map(|(point, lines)| {
            let mut twisted = point.negate().0;
            let (x, y) = (&raw mut twisted.x, &raw mut twisted.y);
            // SAFETY: valid field elements; all of these work in place.
            unsafe {
                blst_fp_cneg(x, x, true);
                blst_fp_cneg(y, y, true);
                blst_fp_add(x, x, x);
                blst_fp_add(y, y, y);
            }
            (twisted, lines)
        })
        .collect();
    // SAFETY: blst returns a pointer to a constant.
    let mut product = unsafe { *blst_fp12_one() };
    let accumulator = &raw mut product;
    let mut line = blst_fp6::default();
    for index in 0..68 {
        if index > 0 && !ADDITIONS.contains(&index) {
            // SAFETY: a valid accumulator; blst allows squaring in place.
            unsafe { blst_fp12_sqr(accumulator, accumulator) };
        }
        for (at, lines) in &twisted {
            lines.evaluate(index, at, &mut line);
            // SAFETY: valid references; blst allows multiplying in place.
            unsafe { blst_fp12_mul_by_xy00z0(accumulator, accumulator, &line) };
        }
    }
    // SAFETY: a valid accumulator; both work in place. z is negative, hence the conjugation.
    unsafe {
        blst_fp12_conjugate(accumulator);
        blst_final_exp(accumulator, accumulator);
    }
    Gt(product)
}

impl Gt {
    pub(super) fn is_one(&self) -> bool {
        // SAFETY: a valid reference.
        unsafe { blst_fp12_is_one(&self.0) }
    }

    pub(super) fn equals(&self, other: &Self) -> bool {
        // SAFETY: valid references.
        unsafe { blst_fp12_is_equal(&self.0, &other.0) }
    }

    /// self · other.
    pub(super) fn multiply(&self, other: &Self) -> Self {
        let mut out = blst_fp12::default();
        // SAFETY: valid references.
        unsafe { blst_fp12_mul(&mut out, &self.0, &other.0) };
        Self(out)
    }

    /// self to this power.
    pub(super) fn power(&self, exponent: usize) -> Self {
        // SAFETY: blst's constant one.
        let mut result = Self(unsafe { *blst_fp12_one() });
        for bit in (0..usize::BITS - exponent.leading_zeros()).rev() {
            result = result.multiply(&result);
            if exponent >> bit & 1 == 1 {
                result = result.multiply(self);
            }
        }
        result
    }

    /// self / other. Values of the pairing have norm one, so a conjugation inverts.
    pub(super) fn divide(&self, other: &Self) -> Self {
        let mut inverse = other.0;
        let mut out = blst_fp12::default();
        // SAFETY: valid references.
        unsafe {
            blst_fp12_conjugate(&mut inverse);
            blst_fp12_mul(&mut out, &self.0, &inverse);
        }
        Self(out)
    }
}
