//! Which of two validators dials the other.
//!
//! The library accepts nobody whom it is dialling at the moment. Two that dial each other at the same
//! time, as all do when a network starts or a partition heals, refuse each other, and across regions
//! "the same time" lasts a few hundred milliseconds. So of two validators the one with the lower
//! identity dials. The other waits, and dials for a while too when no link has come: it may be that
//! the first cannot reach it.
//!
//! The library has no switch for this. A peer that is not to be dialled is given a host name as its
//! address, and names are never looked up here. To change the address of a peer that is linked would
//! cut the link, so only those are changed that are not.

use crate::peers::PeerTable;
use commonware_cryptography::ed25519::PublicKey;
use commonware_p2p::{Address, AddressableManager as _, Ingress, authenticated::lookup::Oracle};
use commonware_utils::{Hostname, ordered::Map};
use quorate_crypto::Identity;
use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::time::{MissedTickBehavior, interval};

/// How often peers are looked at.
const TICK: Duration = Duration::from_millis(250);

/// How long one waits for a link that the other should make, and how long one dials then. Longer
/// than a handshake takes over the slowest path.
const TURN: Duration = Duration::from_secs(4);

/// A host that does not exist (RFC 2606).
const NOWHERE: &str = "waits.invalid";

/// What this node does about a peer that should dial it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// There is a link.
    Linked,
    /// It is the peer's turn, until then.
    Peers(Instant),
    /// It is the turn of both, until then.
    Both(Instant),
}

impl Turn {
    /// What comes next, and if that changes it, whether to dial.
    fn next(self, linked: bool, now: Instant) -> (Self, Option<bool>) {
        match self {
            _ if linked => (Self::Linked, None),
            Self::Linked => (Self::Peers(now + TURN), Some(false)),
            Self::Peers(until) if now >= until => (Self::Both(now + TURN), Some(true)),
            Self::Both(until) if now >= until => (Self::Peers(now + TURN), Some(false)),
            Self::Peers(_) | Self::Both(_) => (self, None),
        }
    }
}

/// A peer with a lower identity.
struct Lower {
    place: usize,
    key: PublicKey,
    address: SocketAddr,
    turn: Turn,
}

/// All peers that should dial this node.
pub(crate) struct Turns {
    lower: Vec<Lower>,
    table: Arc<PeerTable>,
    oracle: Oracle<PublicKey>,
}

/// A peer's address, to be dialled or not.
pub(crate) fn address(address: SocketAddr, dial: bool) -> Address {
    if dial {
        return Address::from(address);
    }
    let host = Hostname::try_from(NOWHERE).expect("it is a host name");
    Address::Asymmetric {
        ingress: Ingress::Dns {
            host,
            port: address.port(),
        },
        egress: address,
    }
}

impl Turns {
    /// `peers` are those of the table.
    pub(crate) fn new(
        own: &Identity,
        peers: &[(Identity, PublicKey, SocketAddr)],
        table: Arc<PeerTable>,
        oracle: Oracle<PublicKey>,
    ) -> Self {
        let turn = Turn::Peers(Instant::now() + TURN);
        let lower = peers.iter().filter(|(identity, ..)| identity < own);
        let lower = lower.filter_map(|(identity, key, address)| {
            Some(Lower {
                place: table.find(identity)?,
                key: key.clone(),
                address: *address,
                turn,
            })
        });
        Self {
            lower: lower.collect(),
            table,
            oracle,
        }
    }

    /// Takes turns forever.
    pub(crate) async fn run(mut self) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let (now, table) = (Instant::now(), &self.table);
            let changed = self.lower.iter_mut().filter_map(|peer| {
                let (turn, dial) = peer.turn.next(table.is_linked(peer.place), now);
                peer.turn = turn;
                Some((peer.key.clone(), address(peer.address, dial?)))
            });
            let changed: Vec<_> = changed.collect();
            if !changed.is_empty() {
                // A closed mailbox shows as the end of the network's task.
                let _ = self.oracle.overwrite(Map::from_iter_dedup(changed));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_change_while_there_is_no_link_and_a_linked_peers_address_stays() {
        let start = Instant::now();
        let later = |turns: u32| start + TURN * turns;
        let waiting = Turn::Peers(later(1));
        assert_eq!(waiting.next(false, start), (waiting, None));
        let (both, dial) = waiting.next(false, later(1));
        assert_eq!((both, dial), (Turn::Both(later(2)), Some(true)));
        assert_eq!(both.next(true, later(3)), (Turn::Linked, None));
        assert_eq!(
            both.next(false, later(2)),
            (Turn::Peers(later(3)), Some(false))
        );
        assert_eq!(Turn::Linked.next(true, later(9)), (Turn::Linked, None));
        assert_eq!(
            Turn::Linked.next(false, later(4)),
            (Turn::Peers(later(5)), Some(false))
        );
    }
}
