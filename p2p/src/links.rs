//! The handle through which the node sends, asks and blocks.

use crate::{
    address::PeerAddress,
    lane::Lane,
    metrics::Unsent,
    outbound::Outbound,
    peers::{LinkWatch, PeerStatus, PeerTable},
    turns::{Moves, Whereabouts},
};
use bytes::Bytes;
use commonware_cryptography::ed25519::PublicKey;
use commonware_p2p::{Blocker as _, authenticated::lookup::Oracle};
use quorate_crypto::Identity;
use std::{net::SocketAddr, sync::Arc};
use tokio::sync::mpsc::UnboundedSender;

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
/// of the runtime; none waits for anything but locks that are held for microseconds.
#[derive(Clone)]
pub struct Links {
    outbound: Arc<Outbound>,
    oracle: Oracle<PublicKey>,
    to_move: UnboundedSender<Moves>,
    whereabouts: Arc<Whereabouts>,
}

impl Links {
    pub(crate) const fn new(
        outbound: Arc<Outbound>,
        oracle: Oracle<PublicKey>,
        to_move: UnboundedSender<Moves>,
        whereabouts: Arc<Whereabouts>,
    ) -> Self {
        Self {
            outbound,
            oracle,
            to_move,
            whereabouts,
        }
    }

    /// Sends a frame, without waiting and without a promise that it arrives: whoever needs that
    /// asks again. A frame that cannot be queued for a peer (no link, queue or quota full, peer
    /// blocked, frame empty or too large) is dropped for that peer and counted in
    /// `quorate_p2p_frames_unsent_total`. The frame is not copied.
    pub fn send(&self, lane: Lane, to: &To, frame: Bytes) {
        if let Some(reason) = self.outbound.defect(lane, &frame) {
            self.outbound.unsent(lane, reason);
            return;
        }
        match to {
            To::All => {
                for place in 0..self.outbound.table().len() {
                    self.outbound.send(place, lane, &frame);
                }
            }
            To::One(identity) => self.send_to(lane, identity, &frame),
            To::Some(identities) => {
                for identity in identities {
                    self.send_to(lane, identity, &frame);
                }
            }
        }
    }

    fn send_to(&self, lane: Lane, identity: &Identity, frame: &Bytes) {
        match self.outbound.table().find(identity) {
            Some(place) => self.outbound.send(place, lane, frame),
            None => self.outbound.unsent(lane, Unsent::UnknownPeer),
        }
    }

    /// Bytes that wait for a peer in a lane, handed to the library or not. None for an identity that
    /// is no peer.
    pub fn waiting_bytes(&self, lane: Lane, identity: &Identity) -> usize {
        let place = self.outbound.table().find(identity);
        place.map_or(0, |place| self.outbound.waiting_bytes(place, lane))
    }

    /// Each peer's status, sorted by identity.
    pub fn peers(&self) -> Vec<PeerStatus> {
        self.outbound.table().statuses()
    }

    /// One peer's status, or `None` for an identity that is no peer.
    pub fn peer(&self, identity: &Identity) -> Option<PeerStatus> {
        let place = self.outbound.table().find(identity)?;
        Some(self.outbound.table().status(place))
    }

    /// Number of connected peers.
    pub fn connected(&self) -> usize {
        let table = self.outbound.table();
        (0..table.len())
            .filter(|place| table.status(*place).connected)
            .count()
    }

    /// Has `watch` told of every link that comes up or ends from now on, and before, at once, of how
    /// each is now. Only the first call counts.
    pub fn watch(&self, watch: Box<LinkWatch>) {
        self.outbound.table().watch(watch);
    }

    /// Where a peer is reached: as configured, and the IP address, which is not known as long as a name
    /// has not been found. `None` for an identity that is no peer.
    pub fn address(&self, identity: &Identity) -> Option<(PeerAddress, Option<SocketAddr>)> {
        self.whereabouts.lock().get(identity).cloned()
    }

    /// Has peers reached at other addresses from now on, and accepted from these alone. A link to a peer
    /// whose IP address is another one now is cut. Identities that are no peers are ignored.
    pub fn set_addresses(&self, addresses: &[(Identity, PeerAddress)]) {
        let table = self.outbound.table();
        let moves: Moves = addresses
            .iter()
            .filter_map(|(identity, address)| Some((table.find(identity)?, address.clone())))
            .collect();
        // A closed channel means that the network is stopping.
        let _ = self.to_move.send(moves);
    }

    /// Cuts the link to a peer and refuses it for 60 s from now; a repeated call starts these
    /// anew. From this call on, none of the peer's frames is handed over (but one that is being
    /// handed over may still finish) and none is sent to it. An identity that is no peer is ignored.
    ///
    /// This is in memory only: whom to block and for how long is the replica's to remember.
    pub fn block(&self, identity: Identity) {
        let table = self.outbound.table();
        if let Some(place) = table.find(&identity) {
            table.block(place);
            cut(&self.oracle, table, place);
        }
    }

    /// Lifts a block. The link comes back within seconds, when one of the two has dialled.
    pub fn unblock(&self, identity: Identity) {
        if let Some(place) = self.outbound.table().find(&identity) {
            self.outbound.table().unblock(place);
        }
    }
}

/// Has the library cut a peer's link and refuse it for a while. It ignores this for a peer that it
/// already refuses, so it is repeated when that peer is linked again although it is blocked.
pub(crate) fn cut(oracle: &Oracle<PublicKey>, table: &PeerTable, place: usize) {
    // A closed mailbox means that the network is stopping, and every link with it.
    let _ = oracle.clone().block(table.peer(place).key.clone());
}
