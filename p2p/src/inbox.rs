//! The way into the node: frames wait in a queue of their sender's own, taken in turn.
//!
//! The library has one mailbox for each lane, which all peers share and which drops what it has no
//! room for, whoever sent it. So nothing waits there: a task for each lane moves frames at once from
//! the mailbox into the [`Inbox`], where each peer has room for itself and a turn like everybody
//! else. What is slow, the node's decoding, happens behind it, on one task for the urgent lanes and
//! one for the patient ones: a vote never waits for somebody's blocks, and of the urgent frames each
//! peer's wait for one turn of the others'.
//!
//! How fast frames come in is bounded before, in bytes for each peer, by not reading from its link
//! ([`crate::upgrade`]).

use crate::{
    fair::{FairLimits, FairQueue},
    frame::{self, FrameTag},
    lane::Lane,
    metrics::{Metrics, Refused},
    peers::PeerTable,
    start::Inbound,
};
use bytes::Bytes;
use commonware_cryptography::ed25519::PublicKey;
use commonware_p2p::{Receiver as _, authenticated::lookup::Receiver};
use parking_lot::Mutex;
use quorate_crypto::Identity;
use std::sync::Arc;
use tokio::sync::Notify;

/// What may wait for the node, in the urgent lanes and again in the patient ones. A peer's share holds
/// two frames of the largest size, and all frames that the library hands over in a tenth of a second.
const LIMITS: FairLimits = FairLimits {
    peer_items: 512,
    peer_bytes: 8 << 20,
    total_bytes: 48 << 20,
};

/// Bytes handed over before other tasks may run.
const YIELD_BYTES: usize = 64 << 10;

/// What a small frame counts for towards [`YIELD_BYTES`].
const FRAME_BYTES: usize = 2 << 10;

/// Frames that wait for the node.
pub(crate) struct Inbox {
    table: Arc<PeerTable>,
    metrics: Arc<Metrics>,
    waiting: Mutex<FairQueue<(Lane, Bytes)>>,
    more: Notify,
}

impl Inbox {
    pub(crate) fn new(table: Arc<PeerTable>, metrics: Arc<Metrics>) -> Self {
        Self {
            waiting: Mutex::new(FairQueue::new(table.len(), LIMITS)),
            more: Notify::new(),
            table,
            metrics,
        }
    }

    fn push(&self, place: usize, lane: Lane, frame: Bytes) {
        let lost = self.waiting.lock().push(place, frame.len(), (lane, frame));
        for (_, (lane, _)) in lost {
            self.metrics.refused(Some(lane), Refused::QueueFull);
        }
        self.more.notify_one();
    }

    /// Hands frames over until the network ends.
    pub(crate) async fn hand_over(self: Arc<Self>, inbound: Arc<Inbound>) {
        let mut unyielded_bytes = 0;
        loop {
            let next = self.waiting.lock().pop();
            let Some((place, (lane, frame))) = next else {
                self.more.notified().await;
                continue;
            };
            // It may have been blocked meanwhile.
            if self.table.is_blocked(place) {
                self.metrics.refused(Some(lane), Refused::Blocked);
                continue;
            }
            self.metrics.received(lane, frame.len());
            unyielded_bytes += frame.len() + FRAME_BYTES;
            inbound(self.table.peer(place).identity, lane, frame);
            if unyielded_bytes > YIELD_BYTES {
                unyielded_bytes = 0;
                tokio::task::yield_now().await;
            }
        }
    }
}

/// Moves one lane's frames from the library's mailbox into the inbox.
pub(crate) struct Delivery {
    pub(crate) lane: Lane,
    pub(crate) tag: FrameTag,
    pub(crate) max_frame_bytes: usize,
    pub(crate) inbox: Arc<Inbox>,
}

impl Delivery {
    pub(crate) async fn run(self, mut receiver: Receiver<PublicKey>) {
        while let Ok((key, message)) = receiver.recv().await {
            let sender = Identity::from_public_key(&key);
            match self.check(&sender, message.into()) {
                Ok((place, payload)) => self.inbox.push(place, self.lane, payload),
                Err(reason) => {
                    self.inbox.metrics.refused(Some(self.lane), reason);
                    tracing::debug!(
                        peer = sender.short(),
                        lane = self.lane.name(),
                        ?reason,
                        "frame refused"
                    );
                }
            }
        }
    }

    fn check(&self, sender: &Identity, frame: Bytes) -> Result<(usize, Bytes), Refused> {
        let table = &self.inbox.table;
        let place = table.find(sender).ok_or(Refused::UnknownPeer)?;
        if table.is_blocked(place) {
            return Err(Refused::Blocked);
        }
        let payload = frame::open(frame, &self.tag, self.max_frame_bytes).map_err(Refused::from);
        if payload == Err(Refused::Oversize) {
            table.oversized(place);
        }
        Ok((place, payload?))
    }
}
