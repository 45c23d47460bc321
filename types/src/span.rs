//! Parts of the space of state keys, for state sync.

use bytes::BufMut;
use commonware_codec::{Buf, EncodeSize, Error, Read, Write, extensions::ReadExt};
use std::fmt;

/// A state key's bytes.
type Key = [u8; 32];

/// The most bits of a [`Span`]. Nobody can grind more keys that agree on so many.
pub const MAX_SPAN_BITS: usize = 240;

/// All keys that begin with the same bits: 0 to [`MAX_SPAN_BITS`].
///
/// On the wire: the number of bits in one byte, then the bits, most significant first, in as many
/// bytes as they need; the unused bits of the last one are zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The first key.
    first: Key,
    bits: u8,
}

impl Span {
    /// The whole key space.
    pub const ALL: Self = Self {
        first: [0; 32],
        bits: 0,
    };

    /// The span of this many bits that contains a key; `None` above [`MAX_SPAN_BITS`].
    pub fn of(key: &Key, bits: usize) -> Option<Self> {
        let count = u8::try_from(bits).ok()?;
        if bits > MAX_SPAN_BITS {
            return None;
        }
        let mut first = [0; 32];
        first[..bits / 8].copy_from_slice(&key[..bits / 8]);
        if !bits.is_multiple_of(8) {
            first[bits / 8] = key[bits / 8] & !(0xff >> (bits % 8));
        }
        Some(Self { first, bits: count })
    }

    /// How many bits its keys share.
    pub fn bits(&self) -> usize {
        usize::from(self.bits)
    }

    /// The first key in it.
    pub fn first(&self) -> &Key {
        &self.first
    }

    /// The first key after it; `None` if it reaches to the end of the key space.
    pub fn after(&self) -> Option<Key> {
        let mut key = self.first;
        for index in (0..self.bits()).rev() {
            let mask = 0x80 >> (index % 8);
            key[index / 8] ^= mask;
            if key[index / 8] & mask != 0 {
                return Some(key);
            }
        }
        None
    }

    /// Its two halves; `None` at [`MAX_SPAN_BITS`].
    pub fn halves(&self) -> Option<[Self; 2]> {
        let left = Self::of(&self.first, self.bits() + 1)?;
        let mut right = left;
        right.first[self.bits() / 8] |= 0x80 >> (self.bits() % 8);
        Some([left, right])
    }

    /// Whether it contains a key.
    pub fn contains(&self, key: &Key) -> bool {
        Self::of(key, self.bits()).is_some_and(|span| span.first == self.first)
    }

    /// Whether it contains every key of the other one.
    pub fn covers(&self, other: &Self) -> bool {
        self.bits <= other.bits && self.contains(&other.first)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("/")?;
        (0..self.bits()).try_for_each(|index| {
            let bit = self.first[index / 8] >> (7 - index % 8) & 1;
            write!(f, "{bit}")
        })
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Span({self})")
    }
}

impl EncodeSize for Span {
    fn encode_size(&self) -> usize {
        1 + self.bits().div_ceil(8)
    }
}

impl Write for Span {
    fn write(&self, buffer: &mut impl BufMut) {
        buffer.put_u8(self.bits);
        buffer.put_slice(&self.first[..self.bits().div_ceil(8)]);
    }
}

impl Read for Span {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        let bits = usize::from(u8::read(buffer)?);
        if bits > MAX_SPAN_BITS {
            return Err(Error::InvalidLength(bits));
        }
        let mut key = [0; 32];
        for byte in &mut key[..bits.div_ceil(8)] {
            *byte = u8::read(buffer)?;
        }
        match Self::of(&key, bits) {
            Some(span) if span.first == key => Ok(span),
            _ => Err(Error::Invalid("Span", "unused bits are not zero")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use commonware_codec::{Copying, DecodeExt, Encode};

    #[test]
    fn halves_make_up_a_span_in_order() {
        let mut key = [0xa5; 32];
        key[3] = 0xff;
        for bits in 0..MAX_SPAN_BITS {
            let span = Span::of(&key, bits).expect("few bits");
            assert!(span.contains(&key) && Span::ALL.covers(&span));
            let [left, right] = span.halves().expect("more bits are left");
            assert_eq!(left.first(), span.first());
            assert_eq!(left.after(), Some(*right.first()));
            assert_eq!(right.after(), span.after());
            assert!(span.covers(&left) && span.covers(&right) && !left.covers(&span));
            assert!(left.contains(&key) != right.contains(&key));
            assert_eq!(Span::decode(span.encode()).expect("valid"), span);
        }
        let longest = Span::of(&key, MAX_SPAN_BITS).expect("the most bits");
        assert!(longest.halves().is_none() && Span::of(&key, MAX_SPAN_BITS + 1).is_none());
        assert_eq!(Span::ALL.after(), None);
        assert_eq!(Span::of(&[0xff; 32], 9).expect("few bits").after(), None);
    }

    #[test]
    fn a_span_has_one_encoding() {
        for bytes in [&[9, 0xff, 0x81][..], &[241, 0], &[16, 1], &[]] {
            assert!(Span::decode(Copying(bytes)).is_err(), "{bytes:?}");
        }
    }
}
