//! Proofs of who validates next, for whoever knows who validates now.
//!
//! On a chain with a registry, the state in the middle of an epoch fixes the next validators, and names
//! them in the account [`crate::REGISTRY`]. The last block of the epoch names a state from there on, so a
//! quorum of the old validators has signed who the new ones are. A [`Handover`] is that block's header and
//! finalization, the account's proof, and the set itself. From a set that is trusted, handovers lead to
//! every later one.

use crate::{
    Certificate, ChainId, EpochLength, Header, RegistryNote, ValidatorSet, codec::read_version,
    limits::MAX_ACCOUNT_PROOF_BYTES,
};
use bytes::{BufMut, Bytes};
use commonware_codec::{Buf, EncodeSize, Error, FixedSize, Read, Write, extensions::ReadExt};

/// Version byte of an encoded [`Handover`].
const HANDOVER_VERSION: u8 = 1;

/// The proof that the validators of one epoch have handed over to others. Nothing is checked by decoding it:
/// see [`Handover::check`].
///
/// Encoded as version 1, the header, the finalization, a `u32` count of bytes and the proof, the set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handover {
    /// The last block of the old validators.
    pub header: Header,
    /// Its finalization.
    pub finalization: Certificate,
    /// The proof of the account [`crate::REGISTRY`] in the state that the header names, encoded.
    pub proof: Bytes,
    /// The new validators.
    pub set: ValidatorSet,
}

/// Why a [`Handover`] proves nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandoverFlaw {
    #[error("its block is of another chain")]
    OtherChain,
    #[error("its block is not the last one of the epoch before the new validators")]
    NotTheLast,
    #[error("its block names a state of before the new validators were fixed")]
    TooEarly,
    #[error("its certificate does not finalize its block")]
    NotFinal,
    #[error("the state names other validators")]
    OtherSet,
    #[error("a vote key is none, or there twice")]
    Keys,
    #[error("no quorum of the validators before has signed it")]
    Unsigned,
}

impl Handover {
    /// Checks everything but the finalization's signature and that `note` is what the proven account holds.
    ///
    /// # Errors
    ///
    /// [`HandoverFlaw`].
    pub fn check(
        &self,
        chain: &ChainId,
        length: EpochLength,
        note: &RegistryNote,
    ) -> Result<(), HandoverFlaw> {
        let header = &self.header;
        if header.chain != *chain {
            return Err(HandoverFlaw::OtherChain);
        }
        let is_last = length.is_last(header.height)
            && length.epoch_of(header.height) == header.epoch
            && self.set.epoch == header.epoch.next();
        if !is_last {
            return Err(HandoverFlaw::NotTheLast);
        }
        if !length.names_next_set(header) {
            return Err(HandoverFlaw::TooEarly);
        }
        if !self.finalization.finalizes(header) {
            return Err(HandoverFlaw::NotFinal);
        }
        if note.epoch != header.epoch || note.next != Some(self.set.digest()) {
            return Err(HandoverFlaw::OtherSet);
        }
        self.set.scheme().map_err(|_| HandoverFlaw::Keys)?;
        Ok(())
    }
}

/// Writes a byte string after its `u32` length.
pub(crate) fn write_bytes(bytes: &[u8], buffer: &mut impl BufMut) {
    let length = u32::try_from(bytes.len()).expect("far below 2^32 bytes");
    length.write(buffer);
    buffer.put_slice(bytes);
}

/// Reads a byte string of at most `most` bytes.
pub(crate) fn read_bytes(buffer: &mut impl Buf, most: usize) -> Result<Bytes, Error> {
    let length = u32::read(buffer)? as usize;
    if length > most {
        return Err(Error::InvalidLength(length));
    }
    if length > buffer.remaining() {
        return Err(Error::EndOfBuffer);
    }
    Ok(buffer.copy_to_bytes(length))
}

impl EncodeSize for Handover {
    fn encode_size(&self) -> usize {
        let certified = Header::SIZE + self.finalization.encode_size();
        1 + certified + u32::SIZE + self.proof.len() + self.set.encode_size()
    }
}

impl Write for Handover {
    fn write(&self, buffer: &mut impl BufMut) {
        HANDOVER_VERSION.write(buffer);
        self.header.write(buffer);
        self.finalization.write(buffer);
        write_bytes(&self.proof, buffer);
        self.set.write(buffer);
    }
}

impl Read for Handover {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        read_version(buffer, HANDOVER_VERSION, "handover")?;
        Ok(Self {
            header: Header::read(buffer)?,
            finalization: Certificate::read(buffer)?,
            proof: read_bytes(buffer, MAX_ACCOUNT_PROOF_BYTES)?,
            set: ValidatorSet::read(buffer)?,
        })
    }
}
