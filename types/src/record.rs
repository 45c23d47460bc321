//! Journal records: what a validator must still know after a crash.

use crate::{Block, Certificate, Vote};
use bytes::BufMut;
use commonware_codec::{Buf, EncodeSize, Error, FixedSize, Read, Write, extensions::ReadExt};
use std::sync::Arc;

/// One row of the vote journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A vote of this validator's own. It is durable before it is sent.
    Vote(Vote),
    /// A block, durable before this validator's vote for it is sent.
    Block(Arc<Block>),
    /// A verified certificate.
    Certificate(Certificate),
}

impl EncodeSize for Record {
    fn encode_size(&self) -> usize {
        1 + match self {
            Self::Vote(_) => Vote::SIZE,
            Self::Block(block) => block.encode_size(),
            Self::Certificate(certificate) => certificate.encode_size(),
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
            other => Err(Error::InvalidEnum(other)),
        }
    }
}
