//! Positions in the trie: bits and nibbles of a key hash, and prefixes of whole nibbles.

use super::{Key, MAX_NIBBLES};
use commonware_codec::{EncodeSize, Error, Read, Write, extensions::ReadExt};
use std::fmt;

/// Bits of a trie level of whole nibbles.
pub(super) const NIBBLE_BITS: usize = 4;

/// The bit of the key at an index, 0 being the most significant bit of its first byte.
pub(super) fn bit(key: &Key, index: usize) -> bool {
    (key[index / 8] >> (7 - index % 8)) & 1 == 1
}

/// The nibble of the key at an index, 0 being the high half of its first byte.
pub(super) fn nibble(key: &Key, index: usize) -> u8 {
    if index.is_multiple_of(2) {
        key[index / 2] >> 4
    } else {
        key[index / 2] & 0x0f
    }
}

/// Whether two keys agree on their first `bits` bits (at most 256).
pub(super) fn share_bits(left: &Key, right: &Key, bits: usize) -> bool {
    let whole = bits / 8;
    let rest = bits % 8;
    left[..whole] == right[..whole]
        && (rest == 0 || (left[whole] ^ right[whole]) >> (8 - rest) == 0)
}

/// The first nibbles of a key hash: names a subtree of the key space.
///
/// Zero to [`MAX_NIBBLES`] nibbles. Ordered by length first, then by path, which is also the order
/// of the rows in the store.
///
/// On the wire: the number of nibbles in one byte, then the nibbles, two to a byte, the first one
/// in the high half; the unused low half of the last byte is zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    nibbles: u8,
    path: Key,
}

impl Prefix {
    /// The empty prefix: the whole key space.
    pub const ROOT: Self = Self {
        nibbles: 0,
        path: [0; 32],
    };

    /// The prefix made of these nibbles, or `None` if there are more than [`MAX_NIBBLES`] or one of
    /// them is above 15.
    pub fn new(nibbles: &[u8]) -> Option<Self> {
        if nibbles.len() > MAX_NIBBLES || nibbles.iter().any(|&nibble| nibble > 0x0f) {
            return None;
        }
        Some(
            nibbles
                .iter()
                .fold(Self::ROOT, |prefix, &nibble| prefix.extended(nibble)),
        )
    }

    /// The sixteen prefixes that are one nibble longer, in order, or `None` at [`MAX_NIBBLES`].
    pub fn children(&self) -> Option<[Self; 16]> {
        (self.len() < MAX_NIBBLES).then(|| {
            let mut children = [*self; 16];
            for (nibble, child) in (0_u8..).zip(&mut children) {
                *child = self.extended(nibble);
            }
            children
        })
    }

    /// The first `nibbles` nibbles of a key; the caller keeps to [`MAX_NIBBLES`].
    pub(super) fn of_key(key: &Key, nibbles: usize) -> Self {
        let mut path = [0; 32];
        let whole = nibbles / 2;
        path[..whole].copy_from_slice(&key[..whole]);
        if nibbles % 2 == 1 {
            path[whole] = key[whole] & 0xf0;
        }
        Self {
            nibbles: u8::try_from(nibbles).expect("at most MAX_NIBBLES"),
            path,
        }
    }

    /// This prefix and one more nibble; the caller keeps to [`MAX_NIBBLES`].
    pub(super) fn extended(&self, nibble: u8) -> Self {
        let mut longer = *self;
        let shift = if self.nibbles.is_multiple_of(2) { 4 } else { 0 };
        longer.path[self.len() / 2] |= nibble << shift;
        longer.nibbles += 1;
        longer
    }

    /// The number of nibbles.
    pub fn len(&self) -> usize {
        usize::from(self.nibbles)
    }

    /// Whether this is the empty prefix, which every key has.
    pub fn is_empty(&self) -> bool {
        self.nibbles == 0
    }

    /// The nibble at an index below [`Prefix::len`].
    pub(super) fn nibble(&self, index: usize) -> u8 {
        nibble(&self.path, index)
    }

    /// The nibbles, padded with zeros to the length of a key.
    pub(super) fn padded(&self) -> &Key {
        &self.path
    }

    /// The number of bits.
    pub(super) fn bits(&self) -> usize {
        self.len() * NIBBLE_BITS
    }

    /// Whether the key is under this prefix.
    pub fn contains(&self, key: &Key) -> bool {
        share_bits(&self.path, key, self.bits())
    }

    /// Whether every key under the other prefix is under this one, too.
    pub fn covers(&self, other: &Self) -> bool {
        self.nibbles <= other.nibbles && self.contains(&other.path)
    }

    /// The key of this node's row: the number of nibbles, then the packed nibbles.
    pub(super) fn row_key(&self) -> RowKey {
        let mut bytes = [0; 1 + 32];
        bytes[0] = self.nibbles;
        bytes[1..].copy_from_slice(&self.path);
        RowKey {
            bytes,
            len: self.nibbles.div_ceil(2) + 1,
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("/")?;
        (0..self.len()).try_for_each(|index| write!(f, "{:x}", self.nibble(index)))
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Prefix({self})")
    }
}

impl EncodeSize for Prefix {
    fn encode_size(&self) -> usize {
        1 + self.len().div_ceil(2)
    }
}

impl Write for Prefix {
    fn write(&self, buffer: &mut impl bytes::BufMut) {
        buffer.put_slice(self.row_key().as_ref());
    }
}

impl Read for Prefix {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl commonware_codec::Buf, _: &()) -> Result<Self, Error> {
        let nibbles = u8::read(buffer)?;
        let len = usize::from(nibbles);
        if len > MAX_NIBBLES {
            return Err(Error::InvalidLength(len));
        }
        let mut path = [0; 32];
        for byte in &mut path[..len.div_ceil(2)] {
            *byte = u8::read(buffer)?;
        }
        if len % 2 == 1 && path[len / 2] & 0x0f != 0 {
            return Err(Error::Invalid("Prefix", "unused half byte is not zero"));
        }
        Ok(Self { nibbles, path })
    }
}

/// The key of a row in the store, at most 33 bytes.
#[derive(Clone, Copy)]
pub struct RowKey {
    bytes: [u8; 33],
    len: u8,
}

impl RowKey {
    /// The row that holds format, limits and root. No node has that many nibbles.
    pub(super) const META: Self = Self {
        bytes: [0xff; 33],
        len: 1,
    };
}

impl AsRef<[u8]> for RowKey {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use commonware_codec::{Copying, DecodeExt, Encode};

    #[test]
    fn prefixes_of_a_key_contain_it_and_cover_each_other() {
        let mut key = [0x5a; 32];
        key[31] = 0x17;
        for nibbles in 0..=MAX_NIBBLES {
            let prefix = Prefix::of_key(&key, nibbles);
            assert!(prefix.contains(&key));
            assert!(Prefix::ROOT.covers(&prefix));
            assert_eq!(prefix.covers(&Prefix::ROOT), nibbles == 0);
            if nibbles > 0 {
                let mut other = key;
                other[(nibbles - 1) / 2] ^= if nibbles % 2 == 1 { 0x10 } else { 0x01 };
                assert!(!prefix.contains(&other), "{nibbles} nibbles");
                let shorter = Prefix::of_key(&key, nibbles - 1);
                assert_eq!(shorter.extended(nibble(&key, nibbles - 1)), prefix);
            }
        }
    }

    #[test]
    fn prefix_survives_the_codec_and_has_one_encoding() {
        for nibbles in [&[][..], &[0], &[15, 0, 3], &[7; MAX_NIBBLES]] {
            let prefix = Prefix::new(nibbles).expect("valid");
            assert_eq!(Prefix::decode(prefix.encode()).expect("valid"), prefix);
        }
        assert!(
            Prefix::decode(Copying(&[1, 0x51][..])).is_err(),
            "padding must be zero"
        );
        assert!(
            Prefix::decode(Copying(&[64_u8; 33][..])).is_err(),
            "too long"
        );
        assert!(
            Prefix::decode(Copying(&[3, 0x51][..])).is_err(),
            "too short"
        );
        assert!(Prefix::new(&[16]).is_none());
        assert!(Prefix::new(&[0; MAX_NIBBLES + 1]).is_none());
    }

    #[test]
    fn shared_bits_are_counted_from_the_top() {
        let left = [0; 32];
        let mut right = [0; 32];
        right[3] = 0b0000_1000;
        assert!(share_bits(&left, &right, 28));
        assert!(!share_bits(&left, &right, 29));
        assert!(share_bits(&left, &left, 256));
        assert!(bit(&right, 28) && !bit(&right, 27) && !bit(&right, 29));
    }
}
