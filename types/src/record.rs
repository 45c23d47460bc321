//! Journal records: what a validator must still know after a crash.

use crate::{Block, Certificate, Position, Vote};
use bytes::BufMut;
use commonware_codec::{Buf, EncodeSize, Error, FixedSize, Read, Write, extensions::ReadExt};
use std::sync::Arc;

/// A record of a journal that does not go back to the first vote of its key. The last one in a
/// journal counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// Votes are missing, and it is not known yet how far they go: the key must not vote.
    Unknown,
    /// Votes are missing. The position is the newest certificate that the others named: the missing
    /// votes are at most two views above it.
    Until(Position),
    /// As `Until`, after the loss of more journals than the committee can do without: nullify votes are
    /// allowed above the position.
    NullifyFrom(Position),
}

impl FixedSize for Silence {
    const SIZE: usize = 1 + Position::SIZE;
}

impl Write for Silence {
    fn write(&self, buffer: &mut impl BufMut) {
        let (code, position) = match self {
            Self::Unknown => (0_u8, Position::default()),
            Self::Until(position) => (1, *position),
            Self::NullifyFrom(position) => (2, *position),
        };
        code.write(buffer);
        position.write(buffer);
    }
}

impl Read for Silence {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        let code = u8::read(buffer)?;
        let position = Position::read(buffer)?;
        match code {
            0 if position == Position::default() => Ok(Self::Unknown),
            1 => Ok(Self::Until(position)),
            2 => Ok(Self::NullifyFrom(position)),
            other => Err(Error::InvalidEnum(other)),
        }
    }
}

/// One row of the vote journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A vote of this validator's own. It is durable before it is sent.
    Vote(Vote),
    /// A block, durable before this validator's vote for it is sent.
    Block(Arc<Block>),
    /// A verified certificate.
    Certificate(Certificate),
    /// Which votes of the key are missing.
    Silence(Silence),
}

impl EncodeSize for Record {
    fn encode_size(&self) -> usize {
        1 + match self {
            Self::Vote(_) => Vote::SIZE,
            Self::Block(block) => block.encode_size(),
            Self::Certificate(certificate) => certificate.encode_size(),
            Self::Silence(_) => Silence::SIZE,
        }
    }
}

impl Write for Record {
    fn write(&self, buffer: &mut impl BufMut) {
        match self {
            Self::Vote(vote) => {
                1_u8.write(buffer);
                vote.write(buffer);
            }
            Self::Block(block) => {
                2_u8.write(buffer);
                block.write(buffer);
            }
            Self::Certificate(certificate) => {
                3_u8.write(buffer);
                certificate.write(buffer);
            }
            Self::Silence(silence) => {
                4_u8.write(buffer);
                silence.write(buffer);
            }
        }
    }
}

impl Read for Record {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        match u8::read(buffer)? {
            1 => Ok(Self::Vote(Vote::read(buffer)?)),
            2 => Ok(Self::Block(Arc::new(Block::read(buffer)?))),
            3 => Ok(Self::Certificate(Certificate::read(buffer)?)),
            4 => Ok(Self::Silence(Silence::read(buffer)?)),
            other => Err(Error::InvalidEnum(other)),
        }
    }
}
