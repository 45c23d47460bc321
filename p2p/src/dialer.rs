//! Decides at which address each peer is dialled, and which of two validators dials the other.
//!
//! *Dialer.* The library accepts no connection from a peer that it is currently dialling. Two peers
//! that dial each other at the same time, as all do when a network starts or a partition heals,
//! refuse each other, and across regions "the same time" lasts a few hundred milliseconds. So of
//! two validators the one with the lower identity dials. The other waits; if no link comes up, it
//! dials for a while too, because the first may be unable to reach it.
//!
//! *Names.* A host name is resolved at startup, and again every few seconds while there is no link.
//! The library can resolve names when it dials, but not for inbound connections: it accepts only
//! connections from the IP address of a known peer. So names are resolved here, and the library is
//! given IP addresses. If a name has several addresses, they are tried one after the other. If a
//! name cannot be resolved, the previous address stays.
//!
//! The library cannot be told not to dial a peer. So a peer that must not be dialled is given a
//! host name as its address, and the library is configured not to resolve names. Changing the
//! address of a linked peer would cut the link, so addresses change only for peers that are not
//! linked, and for those whose address the operator has changed.
//!
//! Whoever controls a host name can prevent a link but cannot make one: a link requires the
//! identity's key. Before validators took turns, the full mesh of ten across regions (200 ms) took
//! eleven seconds and more. A peer that can be reached from one side only is dialled after four
//! seconds.

use crate::{address::PeerAddress, config::KnownPeer, peers::PeerTable};
use commonware_cryptography::ed25519::PublicKey;
use commonware_p2p::{Address, AddressableManager as _, Ingress, authenticated::lookup::Oracle};
use commonware_utils::{Hostname, ordered::Map};
use parking_lot::Mutex;
use quorate_crypto::Identity;
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::{MissedTickBehavior, interval},
};

/// How often all peers are checked.
const TICK: Duration = Duration::from_millis(250);

/// How long to wait for the other side to dial, and then how long to dial. Longer than a handshake
/// takes over the slowest path.
const TURN: Duration = Duration::from_secs(4);

/// How often the name of a peer without a link is resolved.
const LOOKUP_EVERY: Duration = Duration::from_secs(5);

/// Maximum number of addresses of a name that are tried.
const MAX_FOUND: usize = 16;

/// A host that does not exist (RFC 2606).
const UNDIALABLE_HOST: &str = "waits.invalid";

/// Resolves a host name. Called on its own thread; may block.
pub type Lookup = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

/// The system's resolver.
pub fn system_lookup() -> Arc<Lookup> {
    Arc::new(|host| {
        let found = (host, 0).to_socket_addrs()?;
        Ok(found.map(|address| address.ip()).collect())
    })
}

/// State for a peer whose turn it is to dial this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Linked,
    /// The peer should dial, until this time.
    Peers(Instant),
    /// Both sides dial, until this time.
    Both(Instant),
}

impl Turn {
    /// Returns the next state and, if it changes, whether to dial.
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

/// Each peer's address, as configured and as resolved.
pub(crate) type AddressTable = Mutex<BTreeMap<Identity, (PeerAddress, Option<SocketAddr>)>>;

/// What changes, by places in the peer table.
pub(crate) enum Change {
    /// These peers are elsewhere.
    Addresses(Vec<(usize, PeerAddress)>),
    /// These are all peers.
    Peers(Vec<(usize, KnownPeer)>),
}

/// The result of resolving a name.
struct Found {
    place: usize,
    host: String,
    result: io::Result<Vec<IpAddr>>,
}

/// What is known about one peer's address.
struct Target {
    identity: Identity,
    key: PublicKey,
    configured: PeerAddress,
    /// The address to dial and to accept from; `None` until its name has been resolved.
    at: Option<SocketAddr>,
    /// Dialling state; `None` if this node always dials.
    turn: Option<Turn>,
    dial: bool,
    /// The address last given to the library.
    told: Address,
    /// Whether the operator has configured another address, for which an existing link is given up.
    moved: bool,
    looking: bool,
    look_at: Instant,
    /// Whether the failure to resolve its name has been logged.
    lost: bool,
    /// It is no peer any more.
    is_gone: bool,
}

impl Target {
    fn new(identity: Identity, key: PublicKey, configured: PeerAddress, waits: bool) -> Self {
        let at = configured.ip();
        let now = Instant::now();
        Self {
            identity,
            key,
            told: library_address(at, configured.port(), !waits),
            configured,
            at,
            turn: waits.then_some(Turn::Peers(now + TURN)),
            dial: !waits,
            moved: false,
            looking: false,
            look_at: now,
            lost: false,
            is_gone: false,
        }
    }

    /// The name to resolve now, if any.
    fn next_lookup(&mut self, linked: bool, now: Instant) -> Option<String> {
        let PeerAddress::Name { host, .. } = &self.configured else {
            return None;
        };
        if self.looking || now < self.look_at || (linked && !self.moved) {
            return None;
        }
        self.looking = true;
        Some(host.clone())
    }

    /// Handles the result of resolving its name. `pick` is a random number.
    fn found(&mut self, found: Found, pick: usize, now: Instant) {
        self.looking = false;
        self.look_at = now + LOOKUP_EVERY;
        let port = match &self.configured {
            PeerAddress::Name { host, port } if *host == found.host => *port,
            // The operator has configured another address in the meantime.
            _ => {
                self.look_at = now;
                return;
            }
        };
        let (peer, host) = (self.identity.short(), &found.host);
        let mut ips: Vec<IpAddr> = match &found.result {
            Ok(ips) => ips.iter().map(IpAddr::to_canonical).collect(),
            Err(_) => Vec::new(),
        };
        ips.retain(|ip| !ip.is_unspecified() && !ip.is_multicast());
        ips.sort_unstable();
        ips.dedup();
        ips.truncate(MAX_FOUND);
        if ips.is_empty() {
            if !self.lost {
                let error = found
                    .result
                    .err()
                    .map_or_else(|| "it has no address".to_owned(), |error| error.to_string());
                tracing::warn!(
                    peer,
                    host,
                    error,
                    "the name of a peer is not found; it is looked up again every {} s. Check \
                     `p2p.peers` and this machine's DNS",
                    LOOKUP_EVERY.as_secs()
                );
            }
            self.lost = true;
            return;
        }
        self.lost = false;
        // Try the first address first. If that made no link, pick any: two validators that cycle
        // through each other's addresses in lockstep might never use the right ones at the same
        // time.
        let next = match self.at {
            Some(at) if !self.moved && ips.contains(&at.ip()) => ips[pick % ips.len()],
            _ => ips[0],
        };
        let next = SocketAddr::new(next, port);
        if self.at != Some(next) {
            tracing::info!(peer, host, address = %next, "the name of a peer is resolved");
        }
        self.at = Some(next);
    }

    /// Returns the address to give to the library now, if it has changed.
    fn next_address(&mut self, linked: bool, now: Instant) -> Option<Address> {
        if let Some(turn) = self.turn {
            let (turn, dial) = turn.next(linked, now);
            self.turn = Some(turn);
            self.dial = dial.unwrap_or(self.dial);
        }
        if linked && !self.moved {
            return None;
        }
        if !self.looking && !self.lost {
            self.moved = false;
        }
        let address = library_address(self.at, self.configured.port(), self.dial);
        if address == self.told {
            return None;
        }
        // A link from the IP address that is configured now stays. Its port does not matter, since
        // a dialling peer uses any port.
        if linked && self.told.egress_ip() == address.egress_ip() {
            return None;
        }
        self.told = address.clone();
        Some(address)
    }
}

pub(crate) struct Dialer {
    /// In the order of the peer table.
    targets: Vec<Target>,
    /// Whose identity is below this one's dial it; `None` if all dial.
    below: Option<Identity>,
    /// The number of the library's present set of peers.
    set: u64,
    table: Arc<PeerTable>,
    oracle: Oracle<PublicKey>,
    lookup: Arc<Lookup>,
    known_addresses: Arc<AddressTable>,
    changes: UnboundedReceiver<Change>,
    finds: (UnboundedSender<Found>, UnboundedReceiver<Found>),
}

/// Converts an address to the library's type, to be dialled or not.
fn library_address(at: Option<SocketAddr>, port: u16, dial: bool) -> Address {
    // No connection comes from the unspecified address.
    let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    match at {
        Some(at) if dial => Address::from(at),
        at => Address::Asymmetric {
            ingress: Ingress::Dns {
                host: Hostname::try_from(UNDIALABLE_HOST).expect("it is a host name"),
                port,
            },
            egress: at.unwrap_or(nowhere),
        },
    }
}

impl Dialer {
    /// With `take_turns`, the one of two nodes with the lower identity dials.
    pub(crate) fn new(
        (own, take_turns): (Identity, bool),
        table: Arc<PeerTable>,
        oracle: Oracle<PublicKey>,
        lookup: Arc<Lookup>,
        changes: UnboundedReceiver<Change>,
    ) -> Self {
        Self {
            targets: Vec::new(),
            below: take_turns.then_some(own),
            set: 0,
            table,
            oracle,
            lookup,
            known_addresses: Arc::default(),
            changes,
            finds: unbounded_channel(),
        }
    }

    /// Makes these all peers. The links to those that stay are kept.
    pub(crate) fn set_peers(&mut self, mut peers: Vec<(usize, KnownPeer)>) {
        peers.sort_by_key(|(place, _)| *place);
        let mut absent: BTreeSet<usize> = (0..self.targets.len()).collect();
        let mut moves = Vec::new();
        for (place, peer) in peers {
            absent.remove(&place);
            let waits = self.below.is_some_and(|own| peer.identity < own);
            let new = || Target::new(peer.identity, peer.key.clone(), peer.address.clone(), waits);
            match self.targets.get_mut(place) {
                Some(target) if target.is_gone => *target = new(),
                Some(target) if target.configured == peer.address => {}
                Some(_) => moves.push((place, peer.address)),
                None => self.targets.push(new()),
            }
        }
        for place in absent {
            self.targets[place].is_gone = true;
        }
        // A closed mailbox is noticed when the network's task ends.
        let _ = self.oracle.track(self.set, self.addresses());
        self.set += 1;
        self.move_to(moves);
        self.note_addresses();
    }

    fn addresses(&self) -> Map<PublicKey, Address> {
        let targets = self.targets.iter().filter(|target| !target.is_gone);
        Map::from_iter_dedup(targets.map(|target| (target.key.clone(), target.told.clone())))
    }

    /// Each peer's address, kept up to date.
    pub(crate) fn known_addresses(&self) -> Arc<AddressTable> {
        self.known_addresses.clone()
    }

    fn note_addresses(&self) {
        let present = self.targets.iter().filter(|target| !target.is_gone);
        *self.known_addresses.lock() = present
            .map(|target| (target.identity, (target.configured.clone(), target.at)))
            .collect();
    }

    /// Runs forever.
    pub(crate) async fn run(mut self) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                Some(change) = self.changes.recv() => match change {
                    Change::Addresses(moves) => self.move_to(moves),
                    Change::Peers(peers) => self.set_peers(peers),
                },
                Some(found) = self.finds.1.recv() => {
                    if let Some(target) = self.targets.get_mut(found.place) {
                        target.found(found, rand::random_range(0..MAX_FOUND), Instant::now());
                    }
                }
            }
            self.look();
        }
    }

    fn move_to(&mut self, moves: Vec<(usize, PeerAddress)>) {
        for (place, address) in moves {
            let Some(target) = self.targets.get_mut(place) else {
                continue;
            };
            if let Some(at) = address.ip() {
                target.at = Some(at);
            }
            target.configured = address;
            target.moved = true;
            target.lost = false;
            target.look_at = Instant::now();
        }
    }

    /// Checks all peers: starts name lookups and updates the library's addresses.
    fn look(&mut self) {
        let now = Instant::now();
        let mut changed = Vec::new();
        let targets = self.targets.iter_mut().enumerate();
        for (place, target) in targets.filter(|(_, target)| !target.is_gone) {
            let linked = self.table.is_linked(place);
            if let Some(host) = target.next_lookup(linked, now) {
                let (lookup, finds) = (self.lookup.clone(), self.finds.0.clone());
                // A detached thread: a lookup may take half a minute, and shutdown must not wait
                // for it. There is at most one per peer.
                let looking = thread::Builder::new()
                    .name("lookup".to_owned())
                    .spawn(move || {
                        let result = lookup(&host);
                        // A closed channel means that the network has ended.
                        let _ = finds.send(Found {
                            place,
                            host,
                            result,
                        });
                    });
                if looking.is_err() {
                    target.looking = false;
                    target.look_at = now + LOOKUP_EVERY;
                }
            }
            if let Some(address) = target.next_address(linked, now) {
                changed.push((target.key.clone(), address));
            }
        }
        self.note_addresses();
        if !changed.is_empty() {
            // A closed mailbox is noticed when the network's task ends.
            let _ = self.oracle.overwrite(Map::from_iter_dedup(changed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_crypto::SecretKey;

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

    fn target(address: &str) -> Target {
        let identity = SecretKey::from_bytes(&[1; 32]).identity();
        let key = identity.to_public_key().expect("a key");
        Target::new(identity, key, address.parse().expect("an address"), false)
    }

    fn answer(host: &str, ips: &[[u8; 4]]) -> Found {
        Found {
            place: 0,
            host: host.to_owned(),
            result: Ok(ips.iter().map(|ip| IpAddr::from(*ip)).collect()),
        }
    }

    #[test]
    fn a_name_is_looked_up_while_there_is_no_link_and_its_last_address_stays() {
        let mut target = target("peer.test:7");
        let now = Instant::now();
        let first = target.next_lookup(false, now);
        assert_eq!(first.as_deref(), Some("peer.test"));
        assert_eq!(target.next_lookup(false, now), None, "one at a time");
        assert_eq!(target.next_address(false, now), None, "not found yet");
        target.found(answer("peer.test", &[[10, 0, 0, 1]]), 0, now);
        let told = target.next_address(false, now).expect("an address");
        assert_eq!(told.egress().to_string(), "10.0.0.1:7");
        assert_eq!(target.next_address(false, now), None, "told already");
        assert_eq!(target.next_lookup(false, now), None, "not so soon");
        let later = now + LOOKUP_EVERY;
        assert_eq!(target.next_lookup(true, later), None, "it is linked");
        assert!(target.next_lookup(false, later).is_some());
        let lost = Found {
            result: Err(io::Error::other("no answer")),
            ..answer("peer.test", &[])
        };
        target.found(lost, 0, later);
        assert_eq!(target.next_address(false, later), None, "the address stays");
        let later = later + LOOKUP_EVERY;
        assert!(target.next_lookup(false, later).is_some());
        target.found(answer("peer.test", &[[10, 0, 0, 2]]), 0, later);
        let told = target.next_address(false, later).expect("a new address");
        assert_eq!(told.egress().to_string(), "10.0.0.2:7");
    }

    #[test]
    fn all_addresses_of_a_name_are_tried() {
        let mut target = target("peer.test:7");
        let now = Instant::now();
        let both = [[10, 0, 0, 9], [10, 0, 0, 1]];
        target.found(answer("peer.test", &both), 1, now);
        assert_eq!(target.at.expect("found").to_string(), "10.0.0.1:7");
        target.found(answer("peer.test", &both), 1, now);
        assert_eq!(target.at.expect("found").to_string(), "10.0.0.9:7");
    }

    #[test]
    fn a_link_is_given_up_for_another_address_by_order_alone() {
        let now = Instant::now();
        let mut target = target("10.0.0.1:7");
        target.at = Some("10.0.0.2:7".parse().expect("an address"));
        assert_eq!(target.next_address(true, now), None);
        target.moved = true;
        assert!(target.next_address(true, now).is_some());
        target.moved = true;
        assert_eq!(target.next_address(true, now), None, "it is there already");
        target.at = Some("10.0.0.2:8".parse().expect("an address"));
        target.moved = true;
        assert_eq!(
            target.next_address(true, now),
            None,
            "only the port differs"
        );
        assert!(target.next_address(false, now).is_some(), "without a link");
    }
}
