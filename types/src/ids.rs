//! Numbers with a meaning.

use crate::codec::number;
use bytes::BufMut;
use commonware_codec::{Buf, Error, FixedSize, Read, Write, extensions::ReadExt};
use std::fmt;

number! {
    /// A period with one committee. Views start again at 1 in each epoch.
    Epoch
}

number! {
    /// One attempt, by one leader, to extend the chain. The first view of an epoch is 1; view 0
    /// stands for the block on which the epoch starts.
    View
}

number! {
    /// A block's distance from the genesis state, which has height 0.
    Height
}

/// A validator's place in its epoch's committee, from 0.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct ValidatorIndex(pub u32);

impl ValidatorIndex {
    /// The place at an index of a slice of validators.
    ///
    /// # Panics
    ///
    /// If the index needs more than 32 bits, as no committee's does.
    pub fn at(index: usize) -> Self {
        Self(u32::try_from(index).expect("places are 32 bits"))
    }

    /// The place as an index into a slice.
    pub fn as_usize(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for ValidatorIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for ValidatorIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

impl FixedSize for ValidatorIndex {
    const SIZE: usize = 4;
}

impl Write for ValidatorIndex {
    fn write(&self, buffer: &mut impl BufMut) {
        self.0.write(buffer);
    }
}

impl Read for ValidatorIndex {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        Ok(Self(u32::read(buffer)?))
    }
}
