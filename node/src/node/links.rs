//! Setting up and monitoring the links to the other validators.

use super::{LINK_PATIENCE, LINK_WATCH, MAX_FRAME_BYTES, WrapWire};
use crate::{config::NodeConfig, rpc::AddressOf};
use crossbeam_channel::Sender;
use quorate_machine::{
    clock::Clock,
    conduct::{Conduct, Fault},
    machine::Surroundings,
    metrics::NodeMetrics,
    outlet::Wire,
    replica::{Cut, Event},
};
use quorate_p2p::{LinkWatch, Links, PeerStatus};
use quorate_types::{Committees, Identity};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// The links, available once they are started.
#[derive(Clone, Default)]
pub(super) struct LateLinks(Arc<OnceLock<Links>>);

impl LateLinks {
    pub(super) fn set(&self, links: &Links) {
        let _ = self.0.set(links.clone());
    }

    /// Returns the machine's interfaces to clock and network. Until the links are started, sending
    /// and cutting do nothing.
    pub(super) fn surroundings(
        &self,
        clock: Arc<dyn Clock>,
        metrics: Arc<NodeMetrics>,
        wrap_wire: Option<WrapWire>,
    ) -> Surroundings {
        let (wire_links, flight_links, cut_links) = (self.clone(), self.clone(), self.clone());
        let wire: Wire = Arc::new(move |lane, to, frame| {
            if let Some(links) = wire_links.0.get() {
                links.send(lane, to, frame);
            }
        });
        Surroundings {
            clock,
            wire: match wrap_wire {
                Some(wrap) => wrap(wire),
                None => wire,
            },
            in_flight: Arc::new(move |lane, peer| {
                let links = flight_links.0.get();
                links.map_or(0, |links| links.waiting_bytes(lane, peer))
            }),
            cut: Arc::new(move |identity, what| match (cut_links.0.get(), what) {
                (Some(links), Cut::Off) => links.block(identity),
                (Some(links), Cut::Allowed) => links.unblock(identity),
                (None, _) => {}
            }),
            metrics,
        }
    }
}

/// Returns a function for the present state of each peer's link.
pub(super) fn peers_of(links: &Links) -> Box<dyn Fn() -> Vec<PeerStatus> + Send + Sync> {
    let links = links.clone();
    Box::new(move || links.peers())
}

/// Where each peer is ([`address_of`]).
pub(super) fn address_lookup(links: &Links) -> Box<AddressOf> {
    let links = links.clone();
    Box::new(move |identity| address_of(&links, identity))
}

/// Counts oversized frames that the links refuse as faults of their senders. Runs until dropped.
pub(super) async fn watch_links(links: Links, committees: Committees, conduct: Arc<Conduct>) {
    let mut counted = BTreeMap::new();
    let mut ticks = tokio::time::interval(LINK_WATCH);
    loop {
        ticks.tick().await;
        for peer in links.peers() {
            let counted = counted.entry(peer.identity).or_insert(0);
            let fresh = peer.oversized - *counted;
            if fresh > 0
                && let Some(place) = committees.known().place(&peer.identity)
            {
                *counted = peer.oversized;
                conduct.note(place, Fault::Oversized, fresh);
            }
        }
    }
}

/// Blocks until this validator and its connected peers form a quorum, or it ends, for at most [`LINK_PATIENCE`]:
/// other validators may already be waiting for this one's votes.
pub(super) fn wait_for_links(links: &Links, quorum: usize, ends: &AtomicBool) {
    let patience = Instant::now() + LINK_PATIENCE;
    let waits = || links.connected() + 1 < quorum && Instant::now() < patience;
    while waits() && !ends.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(10));
    }
}

/// Where a peer is, as the configuration names it; with a name's IP address.
pub(super) fn address_of(links: &Links, identity: &Identity) -> Option<String> {
    let (address, at) = links.address(identity)?;
    Some(match (address.ip(), at) {
        (Some(_), _) => address.to_string(),
        (None, Some(at)) => format!("{address} ({})", at.ip()),
        (None, None) => format!("{address} (not found)"),
    })
}

/// Returns a callback that tells the replica about links that come up or go down. Each event takes
/// a handshake, so the replica's queue cannot be flooded.
pub(super) fn link_watch(committees: Committees, replica: Sender<Event>) -> Box<LinkWatch> {
    Box::new(move |identity, up| {
        if let Some(peer) = committees.known().place(&identity) {
            // If the replica is gone, its end has already been reported.
            let _ = replica.send(Event::Linked { peer, up });
        }
    })
}

pub(super) fn p2p_config(config: &NodeConfig) -> quorate_p2p::Config {
    quorate_p2p::Config {
        identity: config.identity.clone(),
        listen: config.p2p.listen,
        namespace: config.chain.0.0.to_vec(),
        frame_tag: config.chain.tag(),
        peers: config.p2p.peers.clone(),
        followers: config.p2p.followers.clone(),
        room: 0,
        lookup: quorate_p2p::system_lookup(),
        timing: config.p2p.timing,
        max_frame_bytes: MAX_FRAME_BYTES,
        is_fetching: false,
    }
}
