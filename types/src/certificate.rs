//! Certificates: a quorum's votes as one proof.

use crate::{Header, Subject, VoteKind, codec::read_version};
use bytes::BufMut;
use commonware_codec::{Buf, EncodeSize, Error, FixedSize, Read, Write, extensions::ReadExt};
use quorate_crypto::bls::Proof;
use std::fmt;

/// Version byte of an encoded [`Certificate`].
const CERTIFICATE_VERSION: u8 = 1;

/// A quorum's votes on a subject as one proof: a notarization, a nullification or a finalization,
/// by the kind of the votes.
///
/// The type does not say whether the proof was verified. Certificates from outside must be verified
/// first.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    /// What the quorum voted for.
    pub subject: Subject,
    /// The scheme's proof of it.
    pub proof: Proof,
}

impl Certificate {
    /// Whether it is the finalization of this very block. The epoch must be the block's: it decides whose
    /// signatures count, and former validators may not sign for blocks of later ones.
    pub fn finalizes(&self, header: &Header) -> bool {
        let Subject {
            kind,
            epoch,
            payload,
            ..
        } = self.subject;
        (kind, epoch, payload) == (VoteKind::Finalize, header.epoch, header.id())
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "certificate of {:?}", self.subject)
    }
}

impl EncodeSize for Certificate {
    fn encode_size(&self) -> usize {
        1 + Subject::SIZE + self.proof.encode_size()
    }
}

impl Write for Certificate {
    fn write(&self, buffer: &mut impl BufMut) {
        CERTIFICATE_VERSION.write(buffer);
        self.subject.write(buffer);
        self.proof.write(buffer);
    }
}

impl Read for Certificate {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        read_version(buffer, CERTIFICATE_VERSION, "certificate")?;
        Ok(Self {
            subject: Subject::read(buffer)?,
            proof: Proof::read(buffer)?,
        })
    }
}
