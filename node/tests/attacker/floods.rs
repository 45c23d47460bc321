//! What the client floods with.

use super::{CONTROL, FETCH, NOBODYS, Scene, Seat, TRANSACTIONS, VOTES};
use bytes::{BufMut as _, Bytes, BytesMut};
use commonware_codec::Encode as _;
use quorate_crypto::bls::PartialSignature;
use quorate_types::{
    Block, Digest, Epoch, Frame, Header, Height, IdentitySignature, Memo, Message, Proposal,
    Status, Subject, Transaction, Transfer, View, Vote, VoteKind,
    limits::{MAX_BLOCK_TRANSACTIONS, MAX_FRAME_MESSAGES},
};
use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{SystemTime, UNIX_EPOCH},
};

/// Something to send as much of as the links take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flood {
    /// Bytes that mean nothing, in each lane in turn.
    Noise,
    /// Proposals of full blocks that end too early by a byte: all of it is to be read before that
    /// shows.
    Undecodable,
    /// Full blocks as proposals, in the lane of transactions.
    WrongLane,
    /// Frames that are larger than their lane allows.
    Oversized,
    /// Frames on a channel that is nobody's.
    NoChannel,
    /// Proposals of full blocks for the next views that it leads, at all heights.
    JunkProposals,
    /// Proposals of full blocks for views that others lead.
    NotTheLeader,
    /// Full blocks that nobody has asked for.
    UnaskedBlocks,
    /// Ranges that nobody has asked for.
    UnaskedRanges,
    /// 64 requests in a frame, for a large block and for the newest.
    BlockRequests,
    /// 64 requests in a frame, each for as many blocks as one may ask for.
    RangeRequests,
    /// 64 requests in a frame, each for what closed 64 views.
    CertificateRequests,
    /// A megabyte of transactions with signatures that are none.
    ForgedTransactions,
    /// 64 statuses in a frame.
    Statuses,
    /// 64 votes in a frame, for views that come.
    Votes,
}

impl Flood {
    pub(crate) const ALL: [Self; 15] = [
        Self::Noise,
        Self::Undecodable,
        Self::WrongLane,
        Self::Oversized,
        Self::NoChannel,
        Self::JunkProposals,
        Self::NotTheLeader,
        Self::UnaskedBlocks,
        Self::UnaskedRanges,
        Self::BlockRequests,
        Self::RangeRequests,
        Self::CertificateRequests,
        Self::ForgedTransactions,
        Self::Statuses,
        Self::Votes,
    ];
}

impl Flood {
    /// Whether it is something that no validator sends, for which the client is cut. What is only too
    /// much is not; an unregistered channel ends the link in the library already; and an answer that
    /// nobody asked for is held against nobody in the first minute.
    pub(crate) const fn is_a_fault(self) -> bool {
        matches!(
            self,
            Self::Noise
                | Self::Undecodable
                | Self::WrongLane
                | Self::Oversized
                | Self::NotTheLeader
                | Self::ForgedTransactions
        )
    }
}

/// Bytes before the payload: the version and the chain's tag.
const HEADER_BYTES: usize = 9;

/// Where a proposal's numbers stand in a frame that holds nothing else.
const PROPOSAL_VIEW: usize = HEADER_BYTES + 4 + 1 + 8;
const HEADER_VIEW: usize = PROPOSAL_VIEW + 8 + 1 + 32 + 8;
const HEADER_HEIGHT: usize = HEADER_VIEW + 8;
const HEADER_PARENT_VIEW: usize = HEADER_HEIGHT + 8 + 32;

/// What is prepared before the first shot.
pub(crate) struct Ammunition {
    seat: Seat,
    proposal: Bytes,
    block: Bytes,
    range: Bytes,
    forged: Bytes,
    noise: Vec<u8>,
}

impl Ammunition {
    pub(crate) fn new(seat: &Seat) -> Self {
        let tag = seat.chain.tag();
        let transactions = forged(seat, MAX_BLOCK_TRANSACTIONS);
        let block = Arc::new(block(seat, transactions));
        let proposal = Message::Proposal(Box::new(Proposal {
            epoch: Epoch(0),
            view: View(1),
            block: block.clone(),
            parent_certificate: None,
            certificates: Vec::new(),
        }));
        let range = Message::RangeReply {
            blocks: vec![block.clone(), block.clone()],
            finalization: None,
        };
        let mut random = 1_u64;
        let noise = (0..1 << 20).map(|_| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 56) as u8
        });
        Self {
            seat: seat.clone(),
            proposal: frame(tag, vec![proposal]),
            block: frame(tag, vec![Message::BlockReply(block)]),
            range: frame(tag, vec![range]),
            forged: frame(tag, vec![Message::Transactions(forged(seat, 2_000))]),
            noise: noise.collect(),
        }
    }

    /// The next frame and its channel.
    pub(crate) fn frame(&self, flood: Flood, scene: &Scene, round: u64) -> (u64, Bytes) {
        let view = scene.view.load(Relaxed);
        let height = scene.height.load(Relaxed);
        match flood {
            Flood::Noise => {
                let bytes = if round % 4 == CONTROL {
                    60_000
                } else {
                    1 << 20
                };
                (round % 4, self.framed(&self.noise[..bytes]))
            }
            Flood::Undecodable => {
                let whole = self.proposal(self.own_view(view, round), height + 1);
                (VOTES, whole.slice(..whole.len() - 1))
            }
            Flood::WrongLane => {
                let whole = self.proposal(self.own_view(view, round), height + 1);
                (FETCH, whole)
            }
            Flood::Oversized => {
                let lane = if round.is_multiple_of(2) {
                    CONTROL
                } else {
                    TRANSACTIONS
                };
                (lane, self.proposal.clone())
            }
            Flood::NoChannel => (NOBODYS, self.framed(&self.noise[..1_000])),
            Flood::JunkProposals => {
                let height = if round.is_multiple_of(2) {
                    height + 1
                } else {
                    1_000_000_000
                };
                (VOTES, self.proposal(self.own_view(view, round), height))
            }
            Flood::NotTheLeader => {
                let view = self.own_view(view, round) + 1;
                (VOTES, self.proposal(view, height + 1))
            }
            Flood::UnaskedBlocks => (FETCH, self.block.clone()),
            Flood::UnaskedRanges => (FETCH, self.range.clone()),
            Flood::BlockRequests => {
                let blocks = *scene.blocks.lock().unwrap();
                let ask = |i| Message::BlockRequest(blocks[i % 2]);
                (FETCH, self.many(ask))
            }
            Flood::RangeRequests => {
                let ask = |i: usize| Message::RangeRequest(Height(1 + i as u64));
                (FETCH, self.many(ask))
            }
            Flood::CertificateRequests => {
                let ask = |_| Message::CertificateRequest {
                    epoch: Epoch(0),
                    first: View(view.saturating_sub(64)),
                    last: View(view.saturating_sub(1)),
                };
                (FETCH, self.many(ask))
            }
            Flood::ForgedTransactions => (TRANSACTIONS, self.forged.clone()),
            Flood::Statuses => {
                let say = |i: usize| {
                    Message::Status(Status {
                        epoch: Epoch(0),
                        view: View(view + i as u64),
                        finalized_height: Height(height),
                        executed_height: Height(height),
                        convicted: Digest::ZERO,
                    })
                };
                (VOTES, self.many(say))
            }
            Flood::Votes => {
                let say = |i: usize| {
                    Message::Vote(Vote {
                        subject: Subject {
                            epoch: Epoch(0),
                            view: View(view + 9 + i as u64),
                            kind: VoteKind::Notarize,
                            // No notarization names the zero digest.
                            payload: Digest([i as u8 + 1; 32]),
                        },
                        signer: self.seat.place,
                        signature: PartialSignature([7; 96]),
                    })
                };
                (VOTES, self.many(say))
            }
        }
    }

    /// A view above the current one that the client leads.
    fn own_view(&self, view: u64, round: u64) -> u64 {
        let size = self.seat.committee.size() as u64;
        let own = u64::from(self.seat.place.0);
        let next = (view + 1..).find(|view| view % size == own).unwrap();
        next + size * (round / 4 % 8)
    }

    fn proposal(&self, view: u64, height: u64) -> Bytes {
        let mut bytes = BytesMut::from(&self.proposal[..]);
        let numbers = [
            (PROPOSAL_VIEW, view),
            (HEADER_VIEW, view),
            (HEADER_HEIGHT, height),
            (HEADER_PARENT_VIEW, view - 1),
        ];
        for (offset, number) in numbers {
            bytes[offset..offset + 8].copy_from_slice(&number.to_be_bytes());
        }
        bytes.freeze()
    }

    fn many(&self, say: impl Fn(usize) -> Message) -> Bytes {
        frame(
            self.seat.chain.tag(),
            (0..MAX_FRAME_MESSAGES).map(say).collect(),
        )
    }

    fn framed(&self, payload: &[u8]) -> Bytes {
        framed(self.seat.chain.tag(), payload)
    }
}

fn framed(tag: [u8; 8], payload: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(HEADER_BYTES + payload.len());
    bytes.put_u8(1);
    bytes.put_slice(&tag);
    bytes.put_slice(payload);
    bytes.freeze()
}

fn frame(tag: [u8; 8], messages: Vec<Message>) -> Bytes {
    framed(tag, &Frame(messages).encode())
}

fn forged(seat: &Seat, count: usize) -> Vec<Transaction> {
    let sender = seat.funded;
    let forge = |nonce| {
        let transfer = Transfer {
            chain_tag: seat.chain.tag(),
            sender,
            nonce,
            to: sender,
            amount: 1,
            fee: 1,
            memo: Memo::NONE,
        };
        Transaction::new(transfer, IdentitySignature([3; 64]))
    };
    (0..count as u64).map(forge).collect()
}

fn block(seat: &Seat, transactions: Vec<Transaction>) -> Block {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let header = Header {
        chain: seat.chain,
        epoch: Epoch(0),
        view: View(1),
        height: Height(1),
        parent: Digest([5; 32]),
        parent_view: View(0),
        timestamp_ms: now.as_millis() as u64,
        executed_height: Height(0),
        state_root: Digest([6; 32]),
        body_root: Header::body_root_of(&transactions),
    };
    Block::new(header, transactions).unwrap()
}
