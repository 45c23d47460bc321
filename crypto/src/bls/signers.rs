//! The signers of a certificate, as a bitmap.

use super::MAX_VALIDATORS;
use commonware_codec::{EncodeSize, Error, FixedSize, Read, Write, extensions::ReadExt};
use std::{fmt, sync::Arc};

/// A set of validators of a committee of known size.
///
/// Encoded as the committee's size (2 bytes, big-endian, 1 to 1,024) and a bit for each
/// validator, validator 0 in the lowest bit of the first byte; bits past the committee are zero,
/// so a set has one encoding. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Signers {
    validators: u16,
    bits: Arc<[u8]>,
}

impl Signers {
    /// The longest encoding, in bytes.
    pub const MAX_BYTES: usize = 2 + (MAX_VALIDATORS as usize).div_ceil(8);

    /// The signers of a committee of this size; `None` if the size or an index is out of range.
    pub fn new(validators: u32, members: &[u32]) -> Option<Self> {
        let size = u16::try_from(validators)
            .ok()
            .filter(|_| (1..=MAX_VALIDATORS).contains(&validators))?;
        let mut bits = vec![0_u8; usize::from(size).div_ceil(8)];
        for &member in members {
            if member >= validators {
                return None;
            }
            bits[member as usize / 8] |= 1 << (member % 8);
        }
        Some(Self {
            validators: size,
            bits: bits.into(),
        })
    }

    /// The committee's size.
    pub fn validators(&self) -> u32 {
        self.validators.into()
    }

    /// The members, ascending.
    pub fn members(&self) -> Vec<u32> {
        (0..self.validators())
            .filter(|member| self.bits[*member as usize / 8] >> (member % 8) & 1 == 1)
            .collect()
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.bits.iter().map(|byte| byte.count_ones()).sum()
    }
}

impl fmt::Debug for Signers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {}", self.members(), self.validators)
    }
}

impl EncodeSize for Signers {
    fn encode_size(&self) -> usize {
        u16::SIZE + self.bits.len()
    }
}

impl Write for Signers {
    fn write(&self, buffer: &mut impl bytes::BufMut) {
        self.validators.write(buffer);
        buffer.put_slice(&self.bits);
    }
}

impl Read for Signers {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl commonware_codec::Buf, _: &()) -> Result<Self, Error> {
        let validators = u16::read(buffer)?;
        if !(1..=MAX_VALIDATORS).contains(&validators.into()) {
            return Err(Error::InvalidLength(validators.into()));
        }
        let length = usize::from(validators).div_ceil(8);
        if buffer.remaining() < length {
            return Err(Error::EndOfBuffer);
        }
        let mut bits = vec![0; length];
        buffer.copy_to_slice(&mut bits);
        let used = (validators - 1) % 8 + 1;
        if u16::from(bits[length - 1]) >> used != 0 {
            return Err(Error::Invalid("signers", "a bit past the committee is set"));
        }
        Ok(Self {
            validators,
            bits: bits.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use commonware_codec::{Copying, DecodeExt, Encode};

    #[test]
    fn a_set_survives_its_bytes() {
        for (validators, members) in [
            (1, vec![0]),
            (4, vec![0, 3]),
            (8, vec![7]),
            (9, vec![0, 8]),
            (1_024, vec![0, 511, 1_023]),
            (10, vec![]),
        ] {
            let set = Signers::new(validators, &members).expect("in range");
            assert_eq!(set.members(), members);
            assert_eq!(set.count() as usize, members.len());
            let bytes = set.encode();
            assert!(bytes.len() <= Signers::MAX_BYTES);
            assert_eq!(Signers::decode(Copying(&bytes)).ok(), Some(set));
        }
        assert!(Signers::new(4, &[4]).is_none() && Signers::new(0, &[]).is_none());
        assert!(Signers::new(MAX_VALIDATORS + 1, &[]).is_none());
    }

    #[test]
    fn other_sizes_and_bits_past_the_committee_are_refused() {
        for bytes in [
            &[0, 0][..],
            &[4, 1, 0],
            &[0xff, 0xff, 1, 2, 3],
            &[0, 4],
            &[0, 4, 0x10],
            &[0, 9, 1, 2],
            &[0, 4, 1, 0],
        ] {
            assert!(Signers::decode(Copying(bytes)).is_err(), "{bytes:?}");
        }
    }
}
