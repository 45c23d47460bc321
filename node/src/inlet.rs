//! What comes from the links: bytes become messages, and each goes to the thread that it is for.
//!
//! Everything here runs on the runtime's tasks and never blocks. What waits for the replica is
//! bounded per peer, in frames and in bytes; beyond that the frame is dropped and counted, so one
//! peer that floods loses its own frames and nobody else's.

use crate::{metrics::NodeMetrics, replica::Event};
use bytes::Bytes;
use commonware_codec::DecodeExt;
use crossbeam_channel::{Sender, TrySendError};
use quorate_p2p::Lane;
use quorate_types::{
    Committee, Digest, Frame, Height, Identity, Message, Transaction, ValidatorIndex,
};
use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicUsize, Ordering},
};

/// Frames of one peer that may wait for the replica.
const MAX_QUEUED_FRAMES: u32 = 2_048;

/// Bytes of one peer's frames that may wait for the replica.
const MAX_QUEUED_BYTES: usize = 8 * 1024 * 1024;

/// A peer's request for stored blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A block by its id.
    Block(Digest),
    /// Finalised blocks from this height on.
    Range(Height),
}

/// What waits for the replica, for one peer. Dropped with the event, which frees the room.
pub struct Queued {
    account: Arc<Account>,
    bytes: usize,
}

#[derive(Default)]
struct Account {
    frames: AtomicU32,
    bytes: AtomicUsize,
}

impl Queued {
    fn new(account: &Arc<Account>, bytes: usize) -> Option<Self> {
        let frames = account.frames.fetch_add(1, Ordering::Relaxed);
        let before = account.bytes.fetch_add(bytes, Ordering::Relaxed);
        let queued = Self {
            account: account.clone(),
            bytes,
        };
        // Dropping it gives back what was just taken.
        (frames < MAX_QUEUED_FRAMES && before < MAX_QUEUED_BYTES).then_some(queued)
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.account.frames.fetch_sub(1, Ordering::Relaxed);
        self.account.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The receiving end of the links.
pub struct Inlet {
    committee: Committee,
    replica: Sender<Event>,
    requests: Sender<(ValidatorIndex, Request)>,
    transactions: Sender<Vec<Transaction>>,
    accounts: Vec<Arc<Account>>,
    metrics: Arc<NodeMetrics>,
}

impl Inlet {
    pub(crate) fn new(
        committee: Committee,
        replica: Sender<Event>,
        requests: Sender<(ValidatorIndex, Request)>,
        transactions: Sender<Vec<Transaction>>,
        metrics: Arc<NodeMetrics>,
    ) -> Self {
        let accounts = committee.places().map(|_| Arc::default()).collect();
        Self {
            committee,
            replica,
            requests,
            transactions,
            accounts,
            metrics,
        }
    }

    /// Takes one frame.
    pub fn receive(&self, from: Identity, lane: Lane, bytes: Bytes) {
        let Some(place) = self.committee.place(&from) else {
            return self.metrics.dropped("unknown_peer");
        };
        let size = bytes.len();
        let Ok(Frame(messages)) = Frame::decode(bytes) else {
            return self.metrics.dropped("undecodable");
        };
        // A peer could otherwise pass transactions off as votes and jump the queue.
        if messages.iter().any(|message| lane_of(message) != lane) {
            return self.metrics.dropped("wrong_lane");
        }
        let mut protocol = Vec::with_capacity(messages.len());
        for message in messages {
            match message {
                // The newest blocks lie in the replica's memory only; it passes on what is older.
                Message::BlockRequest(id) => self.replica(place, size, |queued| Event::Wanted {
                    from: place,
                    id,
                    queued,
                }),
                Message::RangeRequest(height) => self.request(place, Request::Range(height)),
                Message::Transactions(transactions) => self.forwarded(transactions),
                other => protocol.push(other),
            }
        }
        if protocol.is_empty() {
            return;
        }
        self.replica(place, size, |queued| Event::Frame {
            from: place,
            messages: protocol,
            queued,
        });
    }

    fn replica(&self, from: ValidatorIndex, bytes: usize, event: impl FnOnce(Queued) -> Event) {
        match Queued::new(&self.accounts[from.as_usize()], bytes) {
            // The channel ends only with the node.
            Some(queued) => drop(self.replica.send(event(queued))),
            None => self.metrics.dropped("replica_queue_full"),
        }
    }

    fn request(&self, from: ValidatorIndex, request: Request) {
        if let Err(TrySendError::Full(_)) = self.requests.try_send((from, request)) {
            self.metrics.dropped("request_queue_full");
        }
    }

    fn forwarded(&self, transactions: Vec<Transaction>) {
        if let Err(TrySendError::Full(_)) = self.transactions.try_send(transactions) {
            self.metrics.dropped("transaction_queue_full");
        }
    }
}

/// The lane that a kind of message travels in.
pub(crate) fn lane_of(message: &Message) -> Lane {
    match message {
        // A status travels with votes.
        Message::Proposal(_) | Message::Vote(_) | Message::Certificate(_) | Message::Status(_) => {
            Lane::Votes
        }
        Message::BlockRequest(_)
        | Message::BlockReply(_)
        | Message::RangeRequest(_)
        | Message::RangeReply { .. }
        | Message::CertificateRequest { .. } => Lane::Fetch,
        Message::Transactions(_) => Lane::Transactions,
        Message::Evidence(_) => Lane::Control,
    }
}
