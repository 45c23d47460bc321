//! The inquiry of a validator that starts, and the answer: the peer's newest certificate, and the
//! newest vote of the asker that it has seen.

use crate::{
    Certificate, Epoch, View, Vote,
    codec::{fixed_codec, read_option, write_option},
};
use bytes::BufMut;
use commonware_codec::{Buf, EncodeSize, Error, FixedSize, Read, Write, extensions::ReadExt};

/// A view of an epoch. Ordered by time: epochs first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The epoch.
    pub epoch: Epoch,
    /// The view within it.
    pub view: View,
}

fixed_codec!(Position {
    epoch: Epoch,
    view: View,
});

/// Names one start of a validator: random, so that no answer to an earlier start counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nonce(pub [u8; 16]);

impl FixedSize for Nonce {
    const SIZE: usize = 16;
}

impl Write for Nonce {
    fn write(&self, buffer: &mut impl BufMut) {
        self.0.write(buffer);
    }
}

impl Read for Nonce {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        Ok(Self(<[u8; 16]>::read(buffer)?))
    }
}

/// The state of a validator's journal, as it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalState {
    /// It is not sure.
    Unsure,
    /// It holds all its votes.
    Whole,
    /// Votes are missing in it.
    Lost,
}

impl FixedSize for JournalState {
    const SIZE: usize = 1;
}

impl Write for JournalState {
    fn write(&self, buffer: &mut impl BufMut) {
        let code = match self {
            Self::Unsure => 0_u8,
            Self::Whole => 1,
            Self::Lost => 2,
        };
        code.write(buffer);
    }
}

impl Read for JournalState {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        match u8::read(buffer)? {
            0 => Ok(Self::Unsure),
            1 => Ok(Self::Whole),
            2 => Ok(Self::Lost),
            other => Err(Error::InvalidEnum(other)),
        }
    }
}

/// The answer to an inquiry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The inquiry that it answers.
    pub nonce: Nonce,
    /// The sender's journal. If it is whole, `newest` bounds the views that the sender has voted in.
    pub journal: JournalState,
    /// The newest certificate that the sender holds: it has voted at most in the view that this lets it
    /// enter. None before the first view of the chain has ended.
    pub newest: Option<Certificate>,
    /// The newest vote of the asker that the sender has seen since its own start.
    pub vote: Option<Vote>,
}

impl EncodeSize for Standing {
    fn encode_size(&self) -> usize {
        Nonce::SIZE
            + 3
            + self.newest.as_ref().map_or(0, EncodeSize::encode_size)
            + self.vote.map_or(0, |_| Vote::SIZE)
    }
}

impl Write for Standing {
    fn write(&self, buffer: &mut impl BufMut) {
        self.nonce.write(buffer);
        self.journal.write(buffer);
        write_option(self.newest.as_ref(), buffer);
        write_option(self.vote.as_ref(), buffer);
    }
}

impl Read for Standing {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        Ok(Self {
            nonce: Nonce::read(buffer)?,
            journal: JournalState::read(buffer)?,
            newest: read_option(buffer)?,
            vote: read_option(buffer)?,
        })
    }
}
