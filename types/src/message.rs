//! What validators send each other.

use crate::{
    Block, Certificate, ChainId, ChunkAnswer, ChunkRequest, Epoch, Evidence, Handover, Height,
    Nonce, OrderedBundle, SnapshotProof, Standing, Transaction, ValidatorIndex, View, Vote,
    codec::{
        LIST_COUNT_BYTES, fixed_codec, list_size, read_list, read_option, write_list, write_option,
    },
    handover::{read_bytes, write_bytes},
    limits::{
        MAX_FORWARDED_TRANSACTIONS, MAX_FRAME_MESSAGES, MAX_HANDOVERS, MAX_PROPOSAL_CERTIFICATES,
        MAX_RANGE_BLOCKS, MAX_RELAYED_BYTES, MAX_VALIDATORS,
    },
};
use bytes::{BufMut, Bytes};
use commonware_codec::{Buf, EncodeSize, Error, FixedSize, Read, Write, extensions::ReadExt};
use quorate_crypto::{Digest, Identity, IdentitySignature, SecretKey};
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
    /// What else its receivers may lack: nullifications of views between the parent's and this one, as many as fit; with
    /// HotStuff the newest finalization, too.
    pub certificates: Vec<Certificate>,
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

/// A frame that a third validator relays because its author has no link to the receiver.
///
/// It is signed, so its content counts as the author's, as over a link, and no relay can forge it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relayed {
    /// The author.
    pub author: ValidatorIndex,
    /// The receiver.
    pub to: ValidatorIndex,
    /// Increases with each frame of the author, over restarts too, so that no frame is accepted
    /// twice.
    pub number: u64,
    /// An encoded [`Frame`], at most [`MAX_RELAYED_BYTES`].
    pub frame: Bytes,
    /// The author's signature over [`Relayed::signed_bytes`].
    pub signature: IdentitySignature,
}

/// The domain that the authors of relayed frames sign in.
pub const RELAY_NAMESPACE: &[u8] = b"quorate/relay/1";

impl Relayed {
    /// Signs a frame for `to`.
    pub fn sign(
        chain: &ChainId,
        (author, secret): (ValidatorIndex, &SecretKey),
        to: ValidatorIndex,
        number: u64,
        frame: Bytes,
    ) -> Self {
        let signed = Self::signed_bytes(chain, to, number, &frame);
        Self {
            author,
            to,
            number,
            signature: secret.sign(RELAY_NAMESPACE, &signed),
            frame,
        }
    }

    /// The bytes that are signed within [`RELAY_NAMESPACE`]: `chain id ‖ to ‖ number ‖ frame`.
    fn signed_bytes(chain: &ChainId, to: ValidatorIndex, number: u64, frame: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ChainId::SIZE + 12 + frame.len());
        chain.write(&mut bytes);
        to.write(&mut bytes);
        number.write(&mut bytes);
        bytes.extend_from_slice(frame);
        bytes
    }

    /// Whether the author with this identity has signed it.
    pub fn verify(&self, chain: &ChainId, author: &Identity) -> bool {
        let signed = Self::signed_bytes(chain, self.to, self.number, &self.frame);
        author.verify(RELAY_NAMESPACE, &signed, &self.signature)
    }
}

/// One message between nodes.
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
    /// Transactions for the next leaders.
    Transactions(Vec<Transaction>),
    /// How far the sender is.
    Status(Status),
    /// Two conflicting votes of a validator, which the sender has verified.
    Evidence(Box<Evidence>),
    /// The validators that the sender has no link to. It follows a status; without it no link is
    /// missing.
    Apart(Vec<ValidatorIndex>),
    /// A relayed frame of an author without a link to the receiver.
    Relayed(Box<Relayed>),
    /// The answer to a [`Message::RangeRequest`] for blocks that the sender has pruned.
    Pruned {
        /// The height that was asked for.
        from: Height,
        /// The oldest height that the sender keeps.
        oldest: Height,
    },
    /// An inquiry of a validator that starts: the peer's newest certificate, and the newest vote of
    /// the asker that the peer has seen.
    Inquiry(Nonce),
    /// The answer.
    Standing(Box<Standing>),
    /// "Which is the newest snapshot that you serve?"
    SnapshotRequest,
    /// The newest snapshot that the sender serves, if it serves any.
    SnapshotReply(Option<Box<SnapshotProof>>),
    /// A request for a part of a snapshot.
    ChunkRequest(ChunkRequest),
    /// The answer to a [`Message::ChunkRequest`].
    ChunkReply {
        /// The request that it answers.
        request: ChunkRequest,
        /// The part.
        answer: ChunkAnswer,
    },
    /// "Send me finalised blocks from this height on, as soon as there are any." The answer is a
    /// [`Message::RangeReply`] or [`Message::Pruned`].
    FollowRequest(Height),
    /// "Who has validated since this epoch?"
    HandoverRequest(Epoch),
    /// The changes of the validators after an epoch, the oldest first, as many as fit; none if there are
    /// none.
    HandoverReply {
        /// The epoch that was asked for.
        after: Epoch,
        /// The changes.
        handovers: Vec<Handover>,
    },
    /// Payloads, and the transaction that orders them: the author's own, or what was asked for.
    Bundle(Box<OrderedBundle>),
    /// "Send me the bundle with this digest."
    BundleRequest(Digest),
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
            Self::Apart(_) => "apart",
            Self::Relayed(_) => "relayed",
            Self::Pruned { .. } => "pruned",
            Self::Inquiry(_) => "inquiry",
            Self::Standing(_) => "standing",
            Self::SnapshotRequest => "snapshot_request",
            Self::SnapshotReply(_) => "snapshot_reply",
            Self::ChunkRequest(_) => "chunk_request",
            Self::ChunkReply { .. } => "chunk_reply",
            Self::FollowRequest(_) => "follow_request",
            Self::HandoverRequest(_) => "handover_request",
            Self::HandoverReply { .. } => "handover_reply",
            Self::Bundle(_) => "bundle",
            Self::BundleRequest(_) => "bundle_request",
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
            Self::Apart(_) => 12,
            Self::Relayed(_) => 13,
            Self::Pruned { .. } => 14,
            Self::Inquiry(_) => 15,
            Self::Standing(_) => 16,
            Self::SnapshotRequest => 17,
            Self::SnapshotReply(_) => 18,
            Self::ChunkRequest(_) => 19,
            Self::ChunkReply { .. } => 20,
            Self::FollowRequest(_) => 21,
            Self::HandoverRequest(_) => 22,
            Self::HandoverReply { .. } => 23,
            Self::Bundle(_) => 24,
            Self::BundleRequest(_) => 25,
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
            + list_size(&self.certificates)
    }
}

impl Write for Proposal {
    fn write(&self, buffer: &mut impl BufMut) {
        self.epoch.write(buffer);
        self.view.write(buffer);
        self.block.write(buffer);
        write_option(self.parent_certificate.as_ref(), buffer);
        write_list(&self.certificates, buffer);
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
            certificates: read_list(buffer, MAX_PROPOSAL_CERTIFICATES)?,
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

impl EncodeSize for Relayed {
    fn encode_size(&self) -> usize {
        2 * ValidatorIndex::SIZE
            + u64::SIZE
            + IdentitySignature::SIZE
            + LIST_COUNT_BYTES
            + self.frame.len()
    }
}

impl Write for Relayed {
    fn write(&self, buffer: &mut impl BufMut) {
        self.author.write(buffer);
        self.to.write(buffer);
        self.number.write(buffer);
        self.signature.write(buffer);
        write_bytes(&self.frame, buffer);
    }
}

impl Read for Relayed {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        let author = ValidatorIndex::read(buffer)?;
        let to = ValidatorIndex::read(buffer)?;
        let number = u64::read(buffer)?;
        let signature = IdentitySignature::read(buffer)?;
        let frame = read_bytes(buffer, MAX_RELAYED_BYTES)?;
        Ok(Self {
            author,
            to,
            number,
            frame,
            signature,
        })
    }
}

impl EncodeSize for Message {
    fn encode_size(&self) -> usize {
        1 + match self {
            Self::Proposal(proposal) => proposal.encode_size(),
            Self::Vote(_) => Vote::SIZE,
            Self::Certificate(certificate) => certificate.encode_size(),
            Self::BlockRequest(_) => Digest::SIZE,
            Self::BlockReply(block) => block.encode_size(),
            Self::RangeRequest(_) | Self::FollowRequest(_) => Height::SIZE,
            Self::RangeReply {
                blocks,
                finalization,
            } => list_size(blocks) + 1 + finalization.as_ref().map_or(0, EncodeSize::encode_size),
            Self::CertificateRequest { .. } => Epoch::SIZE + 2 * View::SIZE,
            Self::Transactions(transactions) => list_size(transactions),
            Self::Status(_) => Status::SIZE,
            Self::Evidence(_) => Evidence::SIZE,
            Self::Apart(peers) => list_size(peers),
            Self::Relayed(relayed) => relayed.encode_size(),
            Self::Pruned { .. } => 2 * Height::SIZE,
            Self::Inquiry(_) => Nonce::SIZE,
            Self::Standing(standing) => standing.encode_size(),
            Self::SnapshotRequest => 0,
            Self::SnapshotReply(proof) => 1 + proof.as_ref().map_or(0, |proof| proof.encode_size()),
            Self::ChunkRequest(request) => request.encode_size(),
            Self::ChunkReply { request, answer } => request.encode_size() + answer.encode_size(),
            Self::HandoverRequest(_) => Epoch::SIZE,
            Self::HandoverReply { handovers, .. } => Epoch::SIZE + list_size(handovers),
            Self::Bundle(bundle) => bundle.encode_size(),
            Self::BundleRequest(_) => Digest::SIZE,
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
            Self::RangeRequest(height) | Self::FollowRequest(height) => height.write(buffer),
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
            Self::Apart(peers) => write_list(peers, buffer),
            Self::Relayed(relayed) => relayed.write(buffer),
            Self::Pruned { from, oldest } => {
                from.write(buffer);
                oldest.write(buffer);
            }
            Self::Inquiry(nonce) => nonce.write(buffer),
            Self::Standing(standing) => standing.write(buffer),
            Self::SnapshotRequest => {}
            Self::SnapshotReply(proof) => write_option(proof.as_deref(), buffer),
            Self::ChunkRequest(request) => request.write(buffer),
            Self::ChunkReply { request, answer } => {
                request.write(buffer);
                answer.write(buffer);
            }
            Self::HandoverRequest(after) => after.write(buffer),
            Self::HandoverReply { after, handovers } => {
                after.write(buffer);
                write_list(handovers, buffer);
            }
            Self::Bundle(bundle) => bundle.write(buffer),
            Self::BundleRequest(digest) => digest.write(buffer),
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
            12 => Self::Apart(read_list(buffer, MAX_VALIDATORS)?),
            13 => Self::Relayed(Box::new(Relayed::read(buffer)?)),
            14 => Self::Pruned {
                from: Height::read(buffer)?,
                oldest: Height::read(buffer)?,
            },
            15 => Self::Inquiry(Nonce::read(buffer)?),
            16 => Self::Standing(Box::new(Standing::read(buffer)?)),
            17 => Self::SnapshotRequest,
            18 => Self::SnapshotReply(read_option(buffer)?.map(Box::new)),
            19 => Self::ChunkRequest(ChunkRequest::read(buffer)?),
            20 => Self::ChunkReply {
                request: ChunkRequest::read(buffer)?,
                answer: ChunkAnswer::read(buffer)?,
            },
            21 => Self::FollowRequest(Height::read(buffer)?),
            22 => Self::HandoverRequest(Epoch::read(buffer)?),
            23 => Self::HandoverReply {
                after: Epoch::read(buffer)?,
                handovers: read_list(buffer, MAX_HANDOVERS)?,
            },
            24 => Self::Bundle(Box::new(OrderedBundle::read(buffer)?)),
            25 => Self::BundleRequest(Digest::read(buffer)?),
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
