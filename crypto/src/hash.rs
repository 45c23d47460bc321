//! SHA-256 digests.
//!
//! SHA-256 (FIPS 180-4) rather than a faster hash: browsers, phones and other languages have it
//! built in, and this processor family computes it in hardware.

use commonware_codec::{Error, FixedSize, Read, Write, extensions::ReadExt};
use sha2::Digest as _;
use std::{fmt, str::FromStr};

/// A SHA-256 digest: 32 bytes, shown as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Digest(pub [u8; 32]);

/// Text that is not the expected number of hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected {digits} hexadecimal digits")]
pub struct ParseBytesError {
    /// How many digits were expected.
    pub digits: usize,
}

/// Bytes of a block of SHA-256.
const BLOCK: usize = 64;

/// Blocks of a message that is padded on the stack: nodes of trees, ids, keys.
const SHORT_BLOCKS: usize = 4;

/// What padding takes at least: a bit, and the length in eight bytes.
const LEAST_PADDING: usize = 1 + 8;

/// The state before the first block (FIPS 180-4, section 5.3.3).
const INITIAL: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// The SHA-256 digest of the parts, one after the other, without separators.
///
/// Callers that hash parts of variable length put the lengths among the parts.
#[inline]
pub fn sha256(parts: &[&[u8]]) -> Digest {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    if len + LEAST_PADDING <= SHORT_BLOCKS * BLOCK {
        return sha256_of_short(parts, len);
    }
    let mut hasher = sha2::Sha256::new();
    for part in parts {
        hasher.update(part);
    }
    Digest(hasher.finalize().into())
}

/// Pads the message on the stack: a hasher would copy it into a buffer of its own first.
#[inline]
fn sha256_of_short(parts: &[&[u8]], len: usize) -> Digest {
    let mut message = [[0; BLOCK]; SHORT_BLOCKS];
    let bytes = message.as_flattened_mut();
    let mut end = 0;
    for part in parts {
        bytes[end..end + part.len()].copy_from_slice(part);
        end += part.len();
    }
    bytes[len] = 0x80;
    let blocks = (len + LEAST_PADDING).div_ceil(BLOCK);
    let bits = len as u64 * 8;
    bytes[blocks * BLOCK - 8..blocks * BLOCK].copy_from_slice(&bits.to_be_bytes());
    let mut state = INITIAL;
    sha2::block_api::compress256(&mut state, &message[..blocks]);
    let mut digest = [0; 32];
    for (word, bytes) in state.iter().zip(digest.as_chunks_mut().0) {
        *bytes = word.to_be_bytes();
    }
    Digest(digest)
}

impl Digest {
    /// Thirty-two zero bytes: stands for "nothing" (the parent of the first block, an empty tree).
    pub const ZERO: Self = Self([0; 32]);

    /// The first four bytes in hexadecimal, for people.
    pub fn short(&self) -> String {
        hex::encode(&self.0[..4])
    }
}

impl AsRef<[u8]> for Digest {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({})", self.short())
    }
}

impl FromStr for Digest {
    type Err = ParseBytesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        decode_hex(text).map(Self)
    }
}

impl FixedSize for Digest {
    const SIZE: usize = 32;
}

impl Write for Digest {
    fn write(&self, buffer: &mut impl bytes::BufMut) {
        self.0.write(buffer);
    }
}

impl Read for Digest {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl commonware_codec::Buf, _: &()) -> Result<Self, Error> {
        Ok(Self(<[u8; 32]>::read(buffer)?))
    }
}

/// Serde as hexadecimal text, by way of `Display` and `FromStr`.
macro_rules! serde_as_text {
    ($type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use serde_as_text;

serde_as_text!(Digest);

/// Reads exactly `N` bytes from `2 * N` hexadecimal digits.
pub(crate) fn decode_hex<const N: usize>(text: &str) -> Result<[u8; N], ParseBytesError> {
    let mut bytes = [0; N];
    hex::decode_to_slice(text, &mut bytes).map_err(|_| ParseBytesError { digits: 2 * N })?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use commonware_codec::{Copying, DecodeExt, Encode};

    #[test]
    fn digest_matches_the_standard_vector_and_ignores_where_parts_split() {
        // FIPS 180-4, example B.1.
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(&[b"abc"]).to_string(), expected);
        assert_eq!(sha256(&[b"a", b"", b"bc"]).to_string(), expected);
        assert_eq!(expected.parse(), Ok(sha256(&[b"abc"])));
    }

    #[test]
    fn a_message_of_any_length_has_the_digest_of_the_library() {
        let message: Vec<u8> = (0..400_u32).map(|byte| byte.to_le_bytes()[0]).collect();
        for len in 0..=message.len() {
            let (left, right) = message[..len].split_at(len / 3);
            let expected: [u8; 32] = sha2::Sha256::digest(&message[..len]).into();
            assert_eq!(sha256(&[left, right]).0, expected, "{len} bytes");
        }
    }

    #[test]
    fn digest_text_of_wrong_length_is_refused() {
        assert!("ab".parse::<Digest>().is_err());
        assert!("zz".repeat(32).parse::<Digest>().is_err());
        assert!("00".repeat(33).parse::<Digest>().is_err());
    }

    #[test]
    fn digest_survives_the_codec() {
        let digest = sha256(&[b"x"]);
        assert_eq!(Digest::decode(digest.encode()).expect("32 bytes"), digest);
        assert!(Digest::decode(Copying(&[0; 31])).is_err());
    }
}
