//! What validators send each other.

use crate::{
    Block, Certificate, Epoch, Evidence, Height, Transaction, View, Vote,
    codec::{fixed_codec, list_size, read_list, read_option, write_list, write_option},
    limits::{
        MAX_FORWARDED_TRANSACTIONS, MAX_FRAME_MESSAGES, MAX_PROPOSAL_NULLIFICATIONS,
        MAX_RANGE_BLOCKS,
    },
};
use bytes::BufMut;
use commonware_codec::{Buf, EncodeSize, Error, FixedSize, Read, Write, extensions::ReadExt};
use quorate_crypto::Digest;
use std::sync::Arc;

/// A leader's block for a view, with what proves to a voter that it may follow its parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The epoch.
    pub epoch: Epoch,
    /// The view that it is proposed in; the header's own view unless the last block of an epoch is
    /// proposed again.
    pub view: View,
    /// The block.
    pub block: Arc<Block>,
    /// The parent's notarization or finalization, unless the parent is the block on which the
    /// epoch starts.
    pub parent_certificate: Option<Certificate>,
    /// Nullifications of views between the parent's and this one, as many as fit.
    pub nullifications: Vec<Certificate>,
}

/// How far a validator is. Sent about once a second, to all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The epoch that it works in.
    pub epoch: Epoch,
    /// The view that it works in.
    pub view: View,
    /// The newest height that it knows to be final and whose block it has.
    pub finalized_height: Height,
    /// The newest height that it has executed and stored.
    pub executed_height: Height,
    /// Names the set of validators that it holds evidence against (the hash of their places,
    /// ascending); [`Digest::ZERO`] for nobody. Who holds evidence against another set sends it.
    pub convicted: Digest,
}

/// One message between validators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A leader's block.
    Proposal(Box<Proposal>),
    /// The sender's own vote.
    Vote(Vote),
    /// A certificate that the sender has verified.
    Certificate(Certificate),
    /// "Send me the block with this id."
    BlockRequest(Digest),
    /// The block that was asked for.
    BlockReply(Arc<Block>),
    /// "Send me finalised blocks from this height on."
    RangeRequest(Height),
    /// Consecutive blocks, and a finalization of the last of them if the sender has one.
    RangeReply {
        /// The blocks, ascending.
        blocks: Vec<Arc<Block>>,
        /// A finalization of the last block.
        finalization: Option<Certificate>,
    },
    /// "Send me what closed these views, from the first to the last, both included."
    CertificateRequest {
        /// The epoch of the views.
        epoch: Epoch,
        /// The first view.
        first: View,
        /// The last view.
        last: View,
    },
    /// Transactions for the coming leaders.
    Transactions(Vec<Transaction>),
    /// How far the sender is.
    Status(Status),
    /// Two conflicting votes of a validator, which the sender has verified.
    Evidence(Box<Evidence>),
}

/// Messages that travel together: at most [`MAX_FRAME_MESSAGES`] of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame(pub Vec<Message>);

impl Message {
    /// A short name for metrics and logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Proposal(_) => "proposal",
            Self::Vote(_) => "vote",
            Self::Certificate(_) => "certificate",
            Self::BlockRequest(_) => "block_request",
            Self::BlockReply(_) => "block_reply",
            Self::RangeRequest(_) => "range_request",
            Self::RangeReply { .. } => "range_reply",
            Self::CertificateRequest { .. } => "certificate_request",
            Self::Transactions(_) => "transactions",
            Self::Status(_) => "status",
            Self::Evidence(_) => "evidence",
        }
    }

    fn code(&self) -> u8 {
        match self {
            Self::Proposal(_) => 1,
            Self::Vote(_) => 2,
            Self::Certificate(_) => 3,
            Self::BlockRequest(_) => 4,
            Self::BlockReply(_) => 5,
            Self::RangeRequest(_) => 6,
            Self::RangeReply { .. } => 7,
            Self::CertificateRequest { .. } => 8,
            Self::Transactions(_) => 9,
            Self::Status(_) => 10,
            Self::Evidence(_) => 11,
        }
    }
}

impl EncodeSize for Proposal {
    fn encode_size(&self) -> usize {
        Epoch::SIZE
            + View::SIZE
            + self.block.encode_size()
            + 1
            + self
                .parent_certificate
                .as_ref()
                .map_or(0, EncodeSize::encode_size)
            + list_size(&self.nullifications)
    }
}

impl Write for Proposal {
    fn write(&self, buffer: &mut impl BufMut) {
        self.epoch.write(buffer);
        self.view.write(buffer);
        self.block.write(buffer);
        write_option(self.parent_certificate.as_ref(), buffer);
        write_list(&self.nullifications, buffer);
    }
}

impl Read for Proposal {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        Ok(Self {
            epoch: Epoch::read(buffer)?,
            view: View::read(buffer)?,
            block: Arc::new(Block::read(buffer)?),
            parent_certificate: read_option(buffer)?,
            nullifications: read_list(buffer, MAX_PROPOSAL_NULLIFICATIONS)?,
        })
    }
}

fixed_codec!(Status {
    epoch: Epoch,
    view: View,
    finalized_height: Height,
    executed_height: Height,
    convicted: Digest,
});

impl EncodeSize for Message {
    fn encode_size(&self) -> usize {
        1 + match self {
            Self::Proposal(proposal) => proposal.encode_size(),
            Self::Vote(_) => Vote::SIZE,
            Self::Certificate(certificate) => certificate.encode_size(),
            Self::BlockRequest(_) => Digest::SIZE,
            Self::BlockReply(block) => block.encode_size(),
            Self::RangeRequest(_) => Height::SIZE,
            Self::RangeReply {
                blocks,
                finalization,
            } => list_size(blocks) + 1 + finalization.as_ref().map_or(0, EncodeSize::encode_size),
            Self::CertificateRequest { .. } => Epoch::SIZE + 2 * View::SIZE,
            Self::Transactions(transactions) => list_size(transactions),
            Self::Status(_) => Status::SIZE,
            Self::Evidence(_) => Evidence::SIZE,
        }
    }
}

impl Write for Message {
    fn write(&self, buffer: &mut impl BufMut) {
        self.code().write(buffer);
        match self {
            Self::Proposal(proposal) => proposal.write(buffer),
            Self::Vote(vote) => vote.write(buffer),
            Self::Certificate(certificate) => certificate.write(buffer),
            Self::BlockRequest(id) => id.write(buffer),
            Self::BlockReply(block) => block.write(buffer),
            Self::RangeRequest(height) => height.write(buffer),
            Self::RangeReply {
                blocks,
                finalization,
            } => {
                write_list(blocks, buffer);
                write_option(finalization.as_ref(), buffer);
            }
            Self::CertificateRequest { epoch, first, last } => {
                epoch.write(buffer);
                first.write(buffer);
                last.write(buffer);
            }
            Self::Transactions(transactions) => write_list(transactions, buffer),
            Self::Status(status) => status.write(buffer),
            Self::Evidence(evidence) => evidence.write(buffer),
        }
    }
}

impl Read for Message {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        Ok(match u8::read(buffer)? {
            1 => Self::Proposal(Box::new(Proposal::read(buffer)?)),
            2 => Self::Vote(Vote::read(buffer)?),
            3 => Self::Certificate(Certificate::read(buffer)?),
            4 => Self::BlockRequest(Digest::read(buffer)?),
            5 => Self::BlockReply(Arc::new(Block::read(buffer)?)),
            6 => Self::RangeRequest(Height::read(buffer)?),
            7 => Self::RangeReply {
                blocks: read_list(buffer, MAX_RANGE_BLOCKS)?,
                finalization: read_option(buffer)?,
            },
            8 => Self::CertificateRequest {
                epoch: Epoch::read(buffer)?,
                first: View::read(buffer)?,
                last: View::read(buffer)?,
            },
            9 => Self::Transactions(read_list(buffer, MAX_FORWARDED_TRANSACTIONS)?),
            10 => Self::Status(Status::read(buffer)?),
            11 => Self::Evidence(Box::new(Evidence::read(buffer)?)),
            other => return Err(Error::InvalidEnum(other)),
        })
    }
}

impl EncodeSize for Frame {
    fn encode_size(&self) -> usize {
        list_size(&self.0)
    }
}

impl Write for Frame {
    fn write(&self, buffer: &mut impl BufMut) {
        write_list(&self.0, buffer);
    }
}

impl Read for Frame {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        Ok(Self(read_list(buffer, MAX_FRAME_MESSAGES)?))
    }
}
