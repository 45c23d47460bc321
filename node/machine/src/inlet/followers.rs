//! Frames of followers: requests for what is final, and their clients' transactions.
//!
//! Nothing of a follower reaches the replica. Each has the same rates as a validator
//! ([`crate::inlet`]), and queues of its own.

use super::lane_of_head;
use crate::{
    clock::Clock,
    conduct::{Conduct, Fault},
    directory::{Directory, PeerIndex},
    metrics::NodeMetrics,
    serve::{Request, Requests},
    turns::TurnSender,
};
use bytes::Bytes;
use parking_lot::Mutex;
use quorate_lanes::{Bucket, Lane};
use quorate_types::{Frame, Head, Identity, Message, Transaction, Unread};
use std::{collections::BTreeMap, sync::Arc};

/// What one follower may send: a second, at once.
struct Tokens {
    requests: Bucket,
    transactions: Bucket,
}

impl Tokens {
    fn new() -> Self {
        Self {
            requests: Bucket::new(512, 512),
            transactions: Bucket::new(10_000, 20_000),
        }
    }
}

/// Why a frame is dropped.
enum Refusal {
    Fault(Fault),
    TooMany,
    UnknownKind,
}

/// Receives frames of followers.
pub(crate) struct FollowerInlet {
    pub(crate) peers: Directory,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) conduct: Arc<Conduct>,
    pub(crate) requests: Requests,
    pub(crate) transactions: TurnSender<Vec<Transaction>>,
    pub(crate) metrics: Arc<NodeMetrics>,
    tokens: BTreeMap<PeerIndex, Mutex<Tokens>>,
    /// Whether validators come and leave, so that one of another epoch may be among the followers.
    changes: bool,
}

impl FollowerInlet {
    /// An inlet for the peers in the directory that are no validators.
    pub(crate) fn new(
        peers: Directory,
        clock: Arc<dyn Clock>,
        conduct: Arc<Conduct>,
        (requests, transactions): (Requests, TurnSender<Vec<Transaction>>),
        metrics: Arc<NodeMetrics>,
        changes: bool,
    ) -> Self {
        let numbers = (0..peers.size()).map(PeerIndex);
        let followers = numbers.filter(|peer| peers.validator(*peer).is_none());
        Self {
            tokens: followers
                .map(|peer| (peer, Mutex::new(Tokens::new())))
                .collect(),
            peers,
            clock,
            conduct,
            requests,
            transactions,
            metrics,
            changes,
        }
    }

    /// Receives one frame.
    pub(crate) fn receive(&self, from: Identity, lane: Lane, bytes: Bytes) {
        let peer = self.peers.find(&from);
        let Some((peer, tokens)) = peer.and_then(|peer| Some((peer, self.tokens.get(&peer)?)))
        else {
            return self.metrics.dropped("unknown_peer");
        };
        if !self.conduct.hears_follower(&from) {
            return self.metrics.dropped("cut");
        }
        let size = bytes.len();
        let read = Frame::read_judged(bytes, |head| self.judge(tokens, lane, head));
        match read {
            Ok(messages) => self.pass_on(peer, messages, size),
            Err(Unread::Unwanted(Refusal::TooMany)) => self.metrics.dropped("too_many"),
            Err(Unread::Unwanted(Refusal::UnknownKind)) => self.metrics.dropped("unknown_kind"),
            Err(Unread::Unwanted(Refusal::Fault(fault))) => self.fault(from, fault),
            Err(Unread::Undecodable(_)) => self.fault(from, Fault::Undecodable),
        }
    }

    fn fault(&self, from: Identity, fault: Fault) {
        self.metrics.dropped(fault.name());
        self.conduct.note_follower(from, fault, 1);
    }

    fn judge(&self, tokens: &Mutex<Tokens>, lane: Lane, head: Head) -> Result<(), Refusal> {
        let its_own = lane_of_head(head).ok_or(Refusal::UnknownKind)?;
        if its_own != lane {
            return Err(Refusal::Fault(Fault::WrongLane));
        }
        let now_us = self.clock.now().0;
        let mut tokens = tokens.lock();
        let paid = match head {
            Head::BlockRequest
            | Head::RangeRequest
            | Head::FollowRequest
            | Head::SnapshotRequest
            | Head::ChunkRequest
            | Head::HandoverRequest => tokens.requests.take(now_us, 1),
            Head::Transactions { count } => tokens.transactions.take(now_us, count as u64),
            Head::Proposal { .. }
            | Head::Vote
            | Head::Certificate
            | Head::BlockReply { .. }
            | Head::RangeReply { .. }
            | Head::CertificateRequest
            | Head::Status
            | Head::Evidence
            | Head::Apart
            | Head::Relayed { .. }
            | Head::Pruned { .. }
            | Head::Inquiry
            | Head::Standing
            | Head::SnapshotReply
            | Head::ChunkReply
            | Head::HandoverReply
            | Head::Bundle
            | Head::BundleRequest => {
                return Err(match self.changes {
                    true => Refusal::UnknownKind,
                    false => Refusal::Fault(Fault::Misdirected),
                });
            }
            Head::Unknown { .. } => return Err(Refusal::UnknownKind),
        };
        paid.then_some(()).ok_or(Refusal::TooMany)
    }

    fn pass_on(&self, from: PeerIndex, messages: Vec<Message>, size: usize) {
        for message in messages {
            let request = match message {
                // What a follower needs is final, so it is stored.
                Message::BlockRequest(id) => Request::Stored(id),
                Message::RangeRequest(height) => Request::Range(height),
                Message::FollowRequest(height) => Request::Follow(height),
                Message::SnapshotRequest => Request::Snapshot,
                Message::ChunkRequest(request) => Request::Chunk(request),
                Message::HandoverRequest(after) => Request::Handovers(after),
                Message::Transactions(transactions) => {
                    for _ in 0..self.transactions.send(from, size, transactions) {
                        self.metrics.dropped("transaction_queue_full");
                    }
                    continue;
                }
                _ => continue,
            };
            if !self.requests.ask(from, request) {
                self.metrics.dropped("request_queue_full");
            }
        }
    }
}
