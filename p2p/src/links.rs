//! The handle with which the node sends frames, queries peers and blocks them.

use crate::{
    address::PeerAddress,
    config::{Error, known_peers},
    dialer::{AddressTable, Change},
    metrics::Unsent,
    outbound::Outbound,
    peers::{LinkWatch, PeerTable},
};
use bytes::Bytes;
use commonware_cryptography::ed25519::PublicKey;
use commonware_p2p::{Blocker as _, authenticated::lookup::Oracle};
use parking_lot::Mutex;
use quorate_crypto::Identity;
use quorate_lanes::{Lane, PeerStatus, To};
use std::{net::SocketAddr, sync::Arc};
use tokio::sync::mpsc::UnboundedSender;

/// The links of this node.
///
/// Cloning costs one reference count. Every method may be called from any thread, inside or outside
/// the runtime. No method blocks, except on locks that are held for microseconds.
#[derive(Clone)]
pub struct Links {
    outbound: Arc<Outbound>,
    oracle: Oracle<PublicKey>,
    own: Identity,
    /// Locked, so that changes arrive in the order in which they are made.
    changes: Arc<Mutex<UnboundedSender<Change>>>,
    known_addresses: Arc<AddressTable>,
}

impl Links {
    pub(crate) fn new(
        outbound: Arc<Outbound>,
        oracle: Oracle<PublicKey>,
        own: Identity,
        changes: UnboundedSender<Change>,
        known_addresses: Arc<AddressTable>,
    ) -> Self {
        Self {
            outbound,
            oracle,
            own,
            changes: Arc::new(Mutex::new(changes)),
            known_addresses,
        }
    }

    /// Sends a frame, without waiting and without guaranteed delivery; callers that need delivery
    /// must retry. A frame that cannot be queued for a peer (no link, queue or quota full, peer
    /// blocked, frame empty or too large) is dropped for that peer and counted in
    /// `quorate_p2p_frames_unsent_total`. The frame is not copied.
    pub fn send(&self, lane: Lane, to: &To, frame: Bytes) {
        if let Some(reason) = self.outbound.defect(lane, &frame) {
            self.outbound.unsent(lane, reason);
            return;
        }
        match to {
            To::All => self.send_to_all(false, lane, &frame),
            To::Followers => self.send_to_all(true, lane, &frame),
            To::One(identity) => self.send_to(lane, identity, &frame),
            To::Some(identities) => {
                for identity in identities {
                    self.send_to(lane, identity, &frame);
                }
            }
        }
    }

    fn send_to_all(&self, followers: bool, lane: Lane, frame: &Bytes) {
        let table = self.outbound.table();
        for place in table.places() {
            if table.peer(place).is_follower() == followers {
                self.outbound.send(place, lane, frame);
            }
        }
    }

    fn send_to(&self, lane: Lane, identity: &Identity, frame: &Bytes) {
        match self.outbound.table().find(identity) {
            Some(place) => self.outbound.send(place, lane, frame),
            None => self.outbound.unsent(lane, Unsent::UnknownPeer),
        }
    }

    /// Bytes queued for a peer in a lane, whether or not they were handed to the library. 0 for an
    /// identity that is not a peer.
    pub fn waiting_bytes(&self, lane: Lane, identity: &Identity) -> usize {
        let place = self.outbound.table().find(identity);
        place.map_or(0, |place| self.outbound.waiting_bytes(place, lane))
    }

    pub fn peers(&self) -> Vec<PeerStatus> {
        self.outbound.table().statuses()
    }

    /// One peer's status, or `None` for an identity that is not a peer.
    pub fn peer(&self, identity: &Identity) -> Option<PeerStatus> {
        let place = self.outbound.table().find(identity)?;
        Some(self.outbound.table().status(place))
    }

    /// The number of connected peers, followers aside.
    pub fn connected(&self) -> usize {
        let table = self.outbound.table();
        let linked = table
            .places()
            .into_iter()
            .filter(|place| !table.peer(*place).is_follower() && table.status(*place).connected);
        linked.count()
    }

    /// Calls `watch` with the present state of every link, and again whenever a link comes up or
    /// goes down, instead of the function before.
    pub fn watch(&self, watch: Box<LinkWatch>) {
        self.outbound.table().watch(watch);
    }

    /// A peer's address as configured, and as resolved; the latter is `None` until a host name has
    /// been resolved. `None` for an identity that is not a peer.
    pub fn address(&self, identity: &Identity) -> Option<(PeerAddress, Option<SocketAddr>)> {
        self.known_addresses.lock().get(identity).cloned()
    }

    /// Changes the addresses at which peers are dialled and from which they are accepted. A link to
    /// a peer whose IP address has changed is cut. Identities that are not peers are ignored.
    pub fn set_addresses(&self, addresses: &[(Identity, PeerAddress)]) {
        let table = self.outbound.table();
        let changes = addresses
            .iter()
            .filter_map(|(identity, address)| Some((table.find(identity)?, address.clone())))
            .collect();
        // A closed channel means that the network is stopping.
        let _ = self.changes.lock().send(Change::Addresses(changes));
    }

    /// Makes these the peers and followers. The links to those that stay are kept, unless their IP address
    /// is another one. Returns whether there is room for them ([`Config::room`](crate::Config::room)); if
    /// not, nothing is changed.
    ///
    /// # Errors
    ///
    /// If the lists are inconsistent or too long.
    pub fn set_peers(
        &self,
        peers: &[(Identity, PeerAddress)],
        followers: &[(Identity, PeerAddress)],
        is_fetching: bool,
    ) -> Result<bool, Error> {
        let known = known_peers(&self.own, peers, followers)?;
        let changes = self.changes.lock();
        let Some(places) = self.outbound.table().set(&known, is_fetching) else {
            return Ok(false);
        };
        // A closed channel means that the network is stopping.
        let _ = changes.send(Change::Peers(places.into_iter().zip(known).collect()));
        Ok(true)
    }

    /// Cuts the link to a peer and refuses it for 60 s from now; calling again restarts the 60 s.
    /// From this call on, none of the peer's frames is delivered (except one whose delivery is in
    /// progress) and none is sent to it. An identity that is not a peer is ignored.
    ///
    /// The block is kept in memory only: the replica must remember whom to block and for how long.
    pub fn block(&self, identity: Identity) {
        let table = self.outbound.table();
        if let Some(place) = table.find(&identity) {
            table.block(place);
            cut(&self.oracle, table, place);
        }
    }

    /// Lifts a block. The link comes back within seconds, when either side dials.
    pub fn unblock(&self, identity: Identity) {
        if let Some(place) = self.outbound.table().find(&identity) {
            self.outbound.table().unblock(place);
        }
    }
}

/// Makes the library cut a peer's link and refuse it for a while. The library ignores this for a
/// peer that it already refuses, so it is repeated if a blocked peer is linked again.
pub(crate) fn cut(oracle: &Oracle<PublicKey>, table: &PeerTable, place: usize) {
    // A closed mailbox means that the network is stopping, and every link with it.
    let _ = oracle.clone().block(table.peer(place).key.clone());
}
