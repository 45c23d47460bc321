//! The handle through which the node sends, asks and blocks.

use crate::{
    lane::{LANES, Lane},
    metrics::{Metrics, Unsent},
    peers::{PeerStatus, PeerTable},
    wire::Wire,
};
use bytes::Bytes;
use commonware_cryptography::ed25519::PublicKey;
use commonware_p2p::{
    Blocker as _, CheckedSender as _, LimitedSender as _, Recipients,
    authenticated::lookup::{Oracle, Sender},
};
use commonware_runtime::{IoBuf, IoBufs};
use quorate_crypto::Identity;
use std::sync::Arc;

/// Whom a frame is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum To {
    /// Every other validator.
    All,
    /// One validator.
    One(Identity),
    /// These validators; a repeated identity gets the frame twice.
    Some(Vec<Identity>),
}

/// The links of this node.
///
/// A clone costs one reference count. Every method may be called from any thread, inside or outside
/// of the runtime; none waits for anything but a lock that is held for less than a microsecond.
#[derive(Clone)]
pub struct Links {
    shared: Arc<Shared>,
}

struct Shared {
    table: Arc<PeerTable>,
    metrics: Arc<Metrics>,
    /// By [`Lane::index`].
    senders: [Sender<PublicKey, Wire>; LANES],
    oracle: Oracle<PublicKey>,
    header: IoBuf,
    max_frame_bytes: usize,
}

impl Links {
    pub(crate) fn new(
        table: Arc<PeerTable>,
        metrics: Arc<Metrics>,
        senders: [Sender<PublicKey, Wire>; LANES],
        oracle: Oracle<PublicKey>,
        header: IoBuf,
        max_frame_bytes: usize,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                table,
                metrics,
                senders,
                oracle,
                header,
                max_frame_bytes,
            }),
        }
    }

    /// Sends a frame, without waiting and without a promise that it arrives: whoever needs that
    /// asks again. A frame that cannot be queued for a peer (no link, queue or quota full, peer
    /// blocked, frame empty or too large) is dropped for that peer and counted in
    /// `quorate_p2p_frames_unsent_total`. The frame is not copied.
    pub fn send(&self, lane: Lane, to: &To, frame: Bytes) {
        let shared = &*self.shared;
        let defect = if frame.is_empty() {
            Some(Unsent::Empty)
        } else if frame.len() > lane.max_frame_bytes(shared.max_frame_bytes) {
            Some(Unsent::Oversize)
        } else {
            None
        };
        if let Some(reason) = defect {
            shared.metrics.unsent(lane, reason);
            return;
        }
        // The library's sender is shared state behind `&mut`; a clone is three reference counts.
        let mut sender = shared.senders[lane.index()].clone();
        match to {
            To::All => {
                for place in 0..shared.table.len() {
                    shared.send_to(&mut sender, lane, place, &frame);
                }
            }
            To::One(identity) => shared.send_to_identity(&mut sender, lane, identity, &frame),
            To::Some(identities) => {
                for identity in identities {
                    shared.send_to_identity(&mut sender, lane, identity, &frame);
                }
            }
        }
    }

    /// Each peer's status, sorted by identity.
    pub fn peers(&self) -> Vec<PeerStatus> {
        self.shared.table.statuses()
    }

    /// One peer's status, or `None` for an identity that is no peer.
    pub fn peer(&self, identity: &Identity) -> Option<PeerStatus> {
        let place = self.shared.table.find(identity)?;
        Some(self.shared.table.status(place))
    }

    /// Number of connected peers.
    pub fn connected(&self) -> usize {
        let table = &self.shared.table;
        (0..table.len())
            .filter(|place| table.status(*place).connected)
            .count()
    }

    /// Cuts the link to a peer and refuses it for 60 s from now; a repeated call starts these
    /// anew. From this call on, none of the peer's frames is handed over (but one that is being
    /// handed over may still finish) and none is sent to it. An identity that is no peer is ignored.
    ///
    /// This is in memory only: whom to block and for how long is the replica's to remember.
    pub fn block(&self, identity: Identity) {
        let shared = &*self.shared;
        let Some(place) = shared.table.find(&identity) else {
            return;
        };
        shared.table.block(place);
        cut(&shared.oracle, &shared.table, place);
    }

    /// Lifts a block here. The library cannot lift its own, so the link itself comes back up to
    /// 60 s after the last [`Self::block`].
    pub fn unblock(&self, identity: Identity) {
        if let Some(place) = self.shared.table.find(&identity) {
            self.shared.table.unblock(place);
        }
    }
}

/// Has the library cut a peer's link and refuse it for a while. It ignores this for a peer that it
/// already refuses, so it is repeated when that peer is linked again although it is blocked.
pub(crate) fn cut(oracle: &Oracle<PublicKey>, table: &PeerTable, place: usize) {
    // A closed mailbox means that the network is stopping, and every link with it.
    let _ = oracle.clone().block(table.peer(place).key.clone());
}

impl Shared {
    fn send_to_identity(
        &self,
        sender: &mut Sender<PublicKey, Wire>,
        lane: Lane,
        identity: &Identity,
        frame: &Bytes,
    ) {
        match self.table.find(identity) {
            Some(place) => self.send_to(sender, lane, place, frame),
            None => self.metrics.unsent(lane, Unsent::UnknownPeer),
        }
    }

    fn send_to(
        &self,
        sender: &mut Sender<PublicKey, Wire>,
        lane: Lane,
        place: usize,
        frame: &Bytes,
    ) {
        match self.try_send_to(sender, lane, place, frame) {
            Ok(()) => self.metrics.sent(lane, frame.len()),
            Err(reason) => self.metrics.unsent(lane, reason),
        }
    }

    fn try_send_to(
        &self,
        sender: &mut Sender<PublicKey, Wire>,
        lane: Lane,
        place: usize,
        frame: &Bytes,
    ) -> Result<(), Unsent> {
        if self.table.is_blocked(place) {
            return Err(Unsent::Blocked);
        }
        if !self.table.is_linked(place) {
            return Err(Unsent::Offline);
        }
        // One message per peer, although the library could fan out itself: only so is the queue of
        // each peer known, and a full one a counted drop. It costs less than 1 µs per peer.
        let recipient = Recipients::One(self.table.peer(place).key.clone());
        let checked = sender.check(recipient).map_err(|_| Unsent::Quota)?;
        let queued = self
            .table
            .queue(place, lane, frame.clone())
            .ok_or(Unsent::QueueFull)?;
        let message = IoBufs::from([self.header.clone(), IoBuf::from(queued)]);
        if checked.send(message, lane.is_urgent()).accepted() {
            Ok(())
        } else {
            Err(Unsent::Closed)
        }
    }
}
