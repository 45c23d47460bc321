//! Which chain a message belongs to.
//!
//! The chain id is the hash of the genesis content. It goes into everything that is signed, so
//! nothing signed for one chain is valid on another.

use bytes::BufMut;
use commonware_codec::{Buf, Error, FixedSize, Read, Write, extensions::ReadExt};
use quorate_crypto::{Digest, ParseBytesError};
use std::{fmt, str::FromStr};

/// The identity of a chain: the SHA-256 digest of its genesis file's content.
///
/// It goes into everything that is signed, so that two chains which share a name or a key can
/// never replay each other's messages.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct ChainId(pub Digest);

impl ChainId {
    /// The first eight bytes: enough to tell chains apart in a frame or a transaction, where the
    /// signature covers the whole id.
    pub fn tag(&self) -> [u8; 8] {
        let mut tag = [0; 8];
        tag.copy_from_slice(&self.0.0[..8]);
        tag
    }
}

impl fmt::Display for ChainId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for ChainId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChainId({})", self.0.short())
    }
}

impl FromStr for ChainId {
    type Err = ParseBytesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

impl FixedSize for ChainId {
    const SIZE: usize = 32;
}

impl Write for ChainId {
    fn write(&self, buffer: &mut impl BufMut) {
        self.0.write(buffer);
    }
}

impl Read for ChainId {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        Ok(Self(Digest::read(buffer)?))
    }
}
