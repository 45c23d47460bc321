//! Inbound frames: they wait in one queue per sender, served in turn.
//!
//! The library has one mailbox per lane, shared by all peers, which drops messages when it is full,
//! whoever sent them. So nothing waits there: a task per lane moves frames at once from the mailbox
//! to the [`Inbox`], where each peer has its own room and turns. The slow part, decoding by the
//! node, comes after it, on one task for the urgent lanes and one for the others: a vote never
//! waits for blocks, and a peer's urgent frames wait for at most one turn of each other peer.
//!
//! The inbound rate is limited earlier, in bytes per peer, by not reading from its link
//! ([`crate::upgrade`]).
//!
//! Why not one channel for each sender and lane: the library sizes every channel's mailbox for all
//! peers, so n channels take n² slots (3 GB for 100 validators, against 39 MB), and it lets any
//! peer send on any channel. Splitting large bodies into chunks would turn a quota of frames into
//! one of bytes, but needs a frame format of its own and still shares the mailbox.

use crate::{
    frame::{self, FrameTag},
    metrics::{Metrics, Refused},
    peers::PeerTable,
    start::Inbound,
};
use bytes::Bytes;
use commonware_cryptography::ed25519::PublicKey;
use commonware_p2p::{Receiver as _, authenticated::lookup::Receiver};
use parking_lot::Mutex;
use quorate_crypto::Identity;
use quorate_lanes::{FairLimits, FairQueue, Lane};
use std::sync::Arc;
use tokio::sync::Notify;

/// Limits on frames waiting for the node, separately for the urgent lanes and the others. A peer's
/// share holds two frames of maximum size, and all frames that the library delivers in a tenth of a
/// second.
const LIMITS: FairLimits = FairLimits {
    peer_items: 512,
    peer_bytes: 8 << 20,
    total_bytes: 48 << 20,
};

/// Bytes delivered before yielding to other tasks.
const YIELD_BYTES: usize = 64 << 10;

/// Minimum that a frame counts towards [`YIELD_BYTES`].
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
            waiting: Mutex::new(FairQueue::new(table.capacity(), LIMITS)),
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

    /// Delivers frames until the network ends.
    pub(crate) async fn hand_over(self: Arc<Self>, inbound: Arc<Inbound>) {
        let mut unyielded_bytes = 0;
        loop {
            let next = self.waiting.lock().pop();
            let Some((place, (lane, frame))) = next else {
                self.more.notified().await;
                continue;
            };
            // The peer may have been blocked in the meantime.
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

/// Moves one lane's frames from the library's mailbox to the inbox.
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
