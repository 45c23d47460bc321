//! Votes: what a validator says about a view.

use crate::{
    ChainId, Epoch, ValidatorIndex, View,
    codec::{fixed_codec, read_version},
};
use bytes::BufMut;
use commonware_codec::{Buf, Error, FixedSize, Read, Write, extensions::ReadExt};
use quorate_crypto::{Digest, bls::PartialSignature};
use std::fmt;

/// Version byte of an encoded [`Vote`].
const VOTE_VERSION: u8 = 1;

/// Keeps a vote's signed bytes apart from everything else that is ever signed.
const VOTE_DOMAIN: &[u8] = b"quorate/vote/1";

/// The kinds of votes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VoteKind {
    /// "This block is a valid proposal of this view."
    Notarize,
    /// "This view brought nothing; let us go on." The payload is [`Digest::ZERO`].
    Nullify,
    /// "I have seen this block's notarization, and I have not said nullify in this view."
    Finalize,
}

/// The content of a vote or certificate; the same subject is the same signed bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject {
    /// The epoch whose committee votes.
    pub epoch: Epoch,
    /// The view within the epoch.
    pub view: View,
    /// What is said.
    pub kind: VoteKind,
    /// The block's id, or [`Digest::ZERO`] for a nullify.
    pub payload: Digest,
}

/// One validator's signed vote. The signature is 96 bytes that nobody has decoded yet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Vote {
    /// The vote's content.
    pub subject: Subject,
    /// The signer.
    pub signer: ValidatorIndex,
    /// The signature over [`Subject::signed_bytes`], uncompressed and unverified.
    pub signature: PartialSignature,
}

impl VoteKind {
    /// All kinds, in the order of a view's life.
    pub const ALL: [Self; 3] = [Self::Notarize, Self::Nullify, Self::Finalize];

    fn code(self) -> u8 {
        match self {
            Self::Notarize => 1,
            Self::Nullify => 2,
            Self::Finalize => 3,
        }
    }

    /// The vote's name: `notarize`, `nullify` or `finalize`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Notarize => "notarize",
            Self::Nullify => "nullify",
            Self::Finalize => "finalize",
        }
    }

    /// The name of the certificate that a quorum of these votes makes.
    pub fn certificate_name(self) -> &'static str {
        match self {
            Self::Notarize => "notarization",
            Self::Nullify => "nullification",
            Self::Finalize => "finalization",
        }
    }
}

impl fmt::Display for VoteKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for VoteKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FixedSize for VoteKind {
    const SIZE: usize = 1;
}

impl Write for VoteKind {
    fn write(&self, buffer: &mut impl BufMut) {
        self.code().write(buffer);
    }
}

impl Read for VoteKind {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        match u8::read(buffer)? {
            1 => Ok(Self::Notarize),
            2 => Ok(Self::Nullify),
            3 => Ok(Self::Finalize),
            other => Err(Error::InvalidEnum(other)),
        }
    }
}

impl Subject {
    /// The subject of a nullify vote for a view.
    pub fn nullify(epoch: Epoch, view: View) -> Self {
        Self {
            epoch,
            view,
            kind: VoteKind::Nullify,
            payload: Digest::ZERO,
        }
    }

    /// The bytes that are signed: `"quorate/vote/1" ‖ chain id ‖ epoch ‖ view ‖ kind ‖ payload`.
    /// Every part has a fixed length, so no two subjects share their bytes.
    pub fn signed_bytes(&self, chain: &ChainId) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(VOTE_DOMAIN.len() + 32 + Self::SIZE);
        bytes.extend_from_slice(VOTE_DOMAIN);
        chain.write(&mut bytes);
        self.write(&mut bytes);
        bytes
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            epoch,
            view,
            kind,
            payload,
        } = self;
        match kind {
            VoteKind::Nullify => write!(f, "{kind}({epoch}.{view})"),
            _ => write!(f, "{kind}({epoch}.{view}, {})", payload.short()),
        }
    }
}

fixed_codec!(SubjectFields {
    epoch: Epoch,
    view: View,
    kind: VoteKind,
    payload: Digest,
});

/// The fields as they are read, before the rule on the payload is checked.
struct SubjectFields {
    epoch: Epoch,
    view: View,
    kind: VoteKind,
    payload: Digest,
}

impl FixedSize for Subject {
    const SIZE: usize = SubjectFields::SIZE;
}

impl Write for Subject {
    fn write(&self, buffer: &mut impl BufMut) {
        let Self {
            epoch,
            view,
            kind,
            payload,
        } = *self;
        SubjectFields {
            epoch,
            view,
            kind,
            payload,
        }
        .write(buffer);
    }
}

impl Read for Subject {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        let SubjectFields {
            epoch,
            view,
            kind,
            payload,
        } = SubjectFields::read(buffer)?;
        // One form only: a nullify names no block, and the other kinds name one.
        if (kind == VoteKind::Nullify) != (payload == Digest::ZERO) {
            return Err(Error::Invalid("subject", "payload does not fit the kind"));
        }
        Ok(Self {
            epoch,
            view,
            kind,
            payload,
        })
    }
}

impl fmt::Debug for Vote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} by {:?}", self.subject, self.signer)
    }
}

impl FixedSize for Vote {
    const SIZE: usize = 1 + Subject::SIZE + ValidatorIndex::SIZE + PartialSignature::SIZE;
}

impl Write for Vote {
    fn write(&self, buffer: &mut impl BufMut) {
        VOTE_VERSION.write(buffer);
        self.subject.write(buffer);
        self.signer.write(buffer);
        self.signature.write(buffer);
    }
}

impl Read for Vote {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        read_version(buffer, VOTE_VERSION, "vote")?;
        Ok(Self {
            subject: Subject::read(buffer)?,
            signer: ValidatorIndex::read(buffer)?,
            signature: PartialSignature::read(buffer)?,
        })
    }
}
