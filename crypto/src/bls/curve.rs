//! What sums of points need to know of a curve; G1 and G2 both provide it.
//!
//! Where a function writes through a reference instead of returning a value, that is for speed:
//! copying a result right after it has been stored word by word stalls the processor for longer
//! than a field addition takes.

/// An element of the field over which a curve is defined, in Montgomery form.
pub(super) trait Field: Copy {
    const ONE: Self;

    /// Sets this to left · right.
    fn set_product(&mut self, left: &Self, right: &Self);

    /// Sets this to this · factor.
    fn multiply(&mut self, factor: &Self);

    /// 1 / this, or zero for zero.
    fn invert(&self) -> Self;
}

/// A point of a curve in affine coordinates, not the identity, not necessarily of prime order.
pub(super) trait Affine: Copy {
    type Field: Field;
    type Jacobian: Jacobian<Self>;

    fn negate(&self) -> Self;

    /// z² times the point if it is in the subgroup, for one multiplication; some other point of
    /// the curve otherwise. z is the curve's parameter.
    fn endomorphism(&self) -> Self;

    /// Sets `out` to the denominator of the slope through both points: x₂ − x₁ for a chord, 2·y for
    /// the tangent in equal points. For opposite points, which have no slope, it is one. Never
    /// zero: y = 0 only in points of order two, and neither curve has them.
    fn slope_denominator(&self, other: &Self, out: &mut Self::Field);

    /// Sets `out` to the sum of both points, given the inverse of [`Self::slope_denominator`];
    /// `false` if the sum is the identity. λ = Δy/Δx or 3x²/2y, x₃ = λ² − x₁ − x₂,
    /// y₃ = λ·(x₁ − x₃) − y₁.
    fn add_with_slope(&self, other: &Self, inverse: &Self::Field, out: &mut Self) -> bool;
}

/// A point of a curve in Jacobian coordinates; may be the identity.
pub(super) trait Jacobian<A>: Copy {
    fn identity() -> Self;

    fn double(&mut self);

    fn add(&mut self, point: &A);

    /// The point in affine coordinates, or `None` for the identity.
    fn to_affine(self) -> Option<A>;
}
