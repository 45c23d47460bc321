//! Message heads, which are read before the rest of a message.
//!
//! A block's body costs a hundred times more to read than its header: each transaction is hashed
//! twice. So whoever takes frames from peers judges each message by its head first, and reads the
//! body only of what it wants.

use crate::{
    Epoch, Frame, Header, Height, Message, ValidatorIndex, View, limits::MAX_FRAME_MESSAGES,
};
use bytes::{Buf as _, Bytes};
use commonware_codec::{Error, FixedSize, extensions::ReadExt};
use quorate_crypto::{Digest, sha256};

/// The beginning of an encoded message. Nothing but its length is checked: the rest may not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// A proposal.
    Proposal {
        /// The epoch that it says it is for.
        epoch: Epoch,
        /// The view that it says it is for.
        view: View,
    },
    /// A vote.
    Vote,
    /// A certificate.
    Certificate,
    /// A request for a block.
    BlockRequest,
    /// A block that was perhaps asked for.
    BlockReply {
        /// The id that its header has.
        id: Digest,
    },
    /// A request for a range.
    RangeRequest,
    /// A range that was perhaps asked for.
    RangeReply {
        /// The height that its first header gives; `None` if there is no block.
        first: Option<Height>,
    },
    /// A request for certificates.
    CertificateRequest,
    /// Forwarded transactions.
    Transactions {
        /// How many there are to be.
        count: usize,
    },
    /// A status.
    Status,
    /// Two conflicting votes.
    Evidence,
    /// The validators that the sender has no link to.
    Apart,
    /// A relayed frame.
    Relayed {
        /// Its author.
        author: ValidatorIndex,
        /// Its receiver.
        to: ValidatorIndex,
    },
    /// Word that a range is not kept.
    Pruned {
        /// The height that is to have been asked for.
        from: Height,
    },
    /// A question of a validator that starts.
    Inquiry,
    /// An answer to an inquiry, perhaps.
    Standing,
    /// A request for the newest snapshot.
    SnapshotRequest,
    /// A snapshot's description that was perhaps requested.
    SnapshotReply,
    /// A request for a part of a snapshot.
    ChunkRequest,
    /// A part of a snapshot that was perhaps requested.
    ChunkReply,
    /// A request for blocks that become final.
    FollowRequest,
    /// A request for changes of the validators.
    HandoverRequest,
    /// Changes of the validators that were perhaps requested.
    HandoverReply,
    /// Payloads.
    Bundle,
    /// A request for payloads.
    BundleRequest,
    /// A kind that this version does not know.
    Unknown {
        /// Its code.
        code: u8,
    },
}

/// Why a frame was not read to its end.
#[derive(Debug)]
pub enum Unread<R> {
    /// It is no frame.
    Undecodable(Error),
    /// A message was not wanted, for this reason.
    Unwanted(R),
}

impl Head {
    /// The head of the message that these bytes begin with, or `None` if they are too few for one.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let (code, rest) = bytes.split_first()?;
        Some(match code {
            1 => Self::Proposal {
                epoch: Epoch(number(rest, 0)?),
                view: View(number(rest, Epoch::SIZE)?),
            },
            2 => Self::Vote,
            3 => Self::Certificate,
            4 => Self::BlockRequest,
            5 => Self::BlockReply {
                id: sha256(&[rest.get(..Header::SIZE)?]),
            },
            6 => Self::RangeRequest,
            7 => {
                let (count, blocks) = rest.split_first_chunk()?;
                let first = match u32::from_be_bytes(*count) {
                    0 => None,
                    _ => Some(Height(number(blocks, HEIGHT_OFFSET)?)),
                };
                Self::RangeReply { first }
            }
            8 => Self::CertificateRequest,
            9 => Self::Transactions {
                count: u32::from_be_bytes(*rest.first_chunk()?) as usize,
            },
            10 => Self::Status,
            11 => Self::Evidence,
            12 => Self::Apart,
            13 => Self::Relayed {
                author: ValidatorIndex(u32::from_be_bytes(*rest.first_chunk()?)),
                to: ValidatorIndex(u32::from_be_bytes(
                    *rest.get(ValidatorIndex::SIZE..)?.first_chunk()?,
                )),
            },
            14 => Self::Pruned {
                from: Height(number(rest, 0)?),
            },
            15 => Self::Inquiry,
            16 => Self::Standing,
            17 => Self::SnapshotRequest,
            18 => Self::SnapshotReply,
            19 => Self::ChunkRequest,
            20 => Self::ChunkReply,
            21 => Self::FollowRequest,
            22 => Self::HandoverRequest,
            23 => Self::HandoverReply,
            24 => Self::Bundle,
            25 => Self::BundleRequest,
            code => Self::Unknown { code: *code },
        })
    }
}

/// The offset of a header's height: behind its version, the chain, the epoch and the view.
const HEIGHT_OFFSET: usize = 1 + Digest::SIZE + Epoch::SIZE + View::SIZE;

fn number(bytes: &[u8], offset: usize) -> Option<u64> {
    let bytes = bytes.get(offset..)?.first_chunk()?;
    Some(u64::from_be_bytes(*bytes))
}

impl Frame {
    /// Reads a frame, each message only once `judge` wants it by its head. The first that it does not
    /// want ends the reading, and all of the frame is given up.
    ///
    /// # Errors
    ///
    /// If a message is not wanted, or the bytes are no frame.
    pub fn read_judged<R>(
        mut bytes: Bytes,
        mut judge: impl FnMut(Head) -> Result<(), R>,
    ) -> Result<Vec<Message>, Unread<R>> {
        let count = u32::read(&mut bytes).map_err(Unread::Undecodable)? as usize;
        if count > MAX_FRAME_MESSAGES {
            return Err(Unread::Undecodable(Error::InvalidLength(count)));
        }
        let mut messages = Vec::with_capacity(count);
        for _ in 0..count {
            let head = Head::of(&bytes).ok_or(Unread::Undecodable(Error::EndOfBuffer))?;
            judge(head).map_err(Unread::Unwanted)?;
            messages.push(Message::read(&mut bytes).map_err(Unread::Undecodable)?);
        }
        match bytes.remaining() {
            0 => Ok(messages),
            left => Err(Unread::Undecodable(Error::ExtraData(left))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Block, ChainId, IdentitySignature, Proposal, Relayed, Status};
    use commonware_codec::{DecodeExt as _, Encode as _};
    use std::sync::Arc;

    fn block() -> Arc<Block> {
        let header = Header {
            chain: ChainId(Digest([1; 32])),
            epoch: Epoch(3),
            view: View(8),
            height: Height(77),
            parent: Digest([2; 32]),
            parent_view: View(7),
            timestamp_ms: 5,
            executed_height: Height(70),
            state_root: Digest([4; 32]),
            body_root: Header::body_root_of(&[]),
        };
        Arc::new(Block::new(header, Vec::new()).expect("empty"))
    }

    fn messages() -> Vec<Message> {
        let status = Status {
            epoch: Epoch(3),
            view: View(8),
            finalized_height: Height(76),
            executed_height: Height(75),
            convicted: Digest::ZERO,
        };
        let proposal = Proposal {
            epoch: Epoch(3),
            view: View(9),
            block: block(),
            parent_certificate: None,
            certificates: Vec::new(),
        };
        let relayed = Relayed {
            author: ValidatorIndex(2),
            to: ValidatorIndex(5),
            number: 77,
            frame: Bytes::from_static(b"a frame"),
            signature: IdentitySignature([6; 64]),
        };
        vec![
            Message::Status(status),
            Message::Proposal(Box::new(proposal)),
            Message::BlockReply(block()),
            Message::RangeReply {
                blocks: vec![block()],
                finalization: None,
            },
            Message::RangeReply {
                blocks: Vec::new(),
                finalization: None,
            },
            Message::Transactions(Vec::new()),
            Message::BlockRequest(Digest([9; 32])),
            Message::Apart(vec![ValidatorIndex(3)]),
            Message::Relayed(Box::new(relayed)),
            Message::Pruned {
                from: Height(12),
                oldest: Height(70),
            },
        ]
    }

    #[test]
    fn heads_tell_what_the_messages_say() {
        let mut heads = Vec::new();
        let frame = Frame(messages());
        let read = Frame::read_judged(frame.encode(), |head| {
            heads.push(head);
            Ok::<(), ()>(())
        });
        assert_eq!(read.expect("a frame"), frame.0);
        let expected = [
            Head::Status,
            Head::Proposal {
                epoch: Epoch(3),
                view: View(9),
            },
            Head::BlockReply { id: block().id() },
            Head::RangeReply {
                first: Some(Height(77)),
            },
            Head::RangeReply { first: None },
            Head::Transactions { count: 0 },
            Head::BlockRequest,
            Head::Apart,
            Head::Relayed {
                author: ValidatorIndex(2),
                to: ValidatorIndex(5),
            },
            Head::Pruned { from: Height(12) },
        ];
        assert_eq!(heads, expected);
    }

    #[test]
    fn the_body_of_an_unwanted_message_is_not_read() {
        // A block that does not decode.
        let mut bytes = Frame(vec![Message::BlockReply(block())]).encode().to_vec();
        let last = bytes.len() - 1;
        bytes[last] = 1;
        let unwanted = Frame::read_judged(bytes.clone().into(), |_| Err("unwanted"));
        assert!(matches!(unwanted, Err(Unread::Unwanted("unwanted"))));
        let read = Frame::read_judged(bytes.into(), |_| Ok::<(), ()>(()));
        assert!(matches!(read, Err(Unread::Undecodable(_))));
        let unknown = Bytes::from_static(&[0, 0, 0, 1, 200]);
        let mut heads = Vec::new();
        let read = Frame::read_judged(unknown, |head| {
            heads.push(head);
            Err::<(), ()>(())
        });
        assert!(matches!(read, Err(Unread::Unwanted(()))));
        assert_eq!(heads, [Head::Unknown { code: 200 }]);
    }

    #[test]
    fn judged_reading_takes_what_decoding_takes() {
        let whole = Frame(messages()).encode();
        for length in 0..whole.len() {
            let read = Frame::read_judged(whole.slice(..length), |_| Ok::<(), ()>(()));
            assert!(matches!(read, Err(Unread::Undecodable(_))), "{length}");
        }
        for place in 0..whole.len() {
            let mut changed = whole.to_vec();
            changed[place] ^= 0x81;
            let changed = Bytes::from(changed);
            let read = Frame::read_judged(changed.clone(), |_| Ok::<(), ()>(()));
            assert_eq!(read.ok(), Frame::decode(changed).ok().map(|frame| frame.0));
        }
    }
}
