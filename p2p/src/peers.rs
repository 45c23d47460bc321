//! The state of each peer's link: whether it is up, whether the peer answers, whether it is
//! blocked.
//!
//! The library reports neither connects nor disconnects. [`Watched`](crate::upgrade::Watched) sees
//! both, because it runs the handshakes; it keeps a [`LinkToken`] in each link's receiving half.
//!
//! The library's block cannot be lifted: when it lasted a minute, a validator stayed away for up to
//! a minute after its operator had lifted the block. It lasts two seconds now. A peer that is
//! blocked for longer is refused in the handshake, which costs as much as the library's own
//! refusal.

use crate::{config::KnownPeer, lane, metrics::Metrics};
use commonware_cryptography::ed25519::PublicKey;
use parking_lot::{Mutex, RwLock};
use quorate_crypto::Identity;
use quorate_lanes::{Bucket, PeerStatus};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// A peer that has sent nothing for this long is not connected. It answers a ping every second, so
/// this is two and a half missed answers.
pub(crate) const SILENCE: Duration = Duration::from_millis(2_500);

/// How long [`Links::block`](crate::Links::block) lasts. A replica that wants a longer block
/// repeats it.
pub(crate) const BLOCK: Duration = Duration::from_secs(60);

/// A process that asks for a second link has given up if it makes no further attempt for this long.
const ASKS_AGAIN: Duration = Duration::from_secs(15);

/// For so long after this node reached itself, others that ask for a second link are taken for lost callers of that
/// address. They give up no sooner than [`ASKS_AGAIN`] after the last call, and this node calls at least as often.
const LEADS_HERE: Duration = ASKS_AGAIN.saturating_mul(3);

/// Number of pings in flight; when exceeded, the oldest is forgotten. Before the first answer four
/// pings are sent per second, so this covers 2 seconds, the longest round trip that can be
/// measured.
const PINGS_IN_FLIGHT: usize = 8;

/// Called with `true` when the first authenticated connection to a peer comes up, and with `false`
/// when the last one ends. Runs on the runtime's tasks and must not block.
pub type LinkWatch = dyn Fn(Identity, bool) + Send + Sync;

/// All peers that there have been since the network was started.
///
/// A peer keeps its place for good, whether it is still a peer or not: frames that wait know their peer by
/// its place alone.
pub(crate) struct PeerTable {
    start: Instant,
    known: RwLock<Known>,
    capacity: usize,
    metrics: Arc<Metrics>,
    watch: RwLock<Option<Box<LinkWatch>>>,
    /// When this node last reached itself at the address of a peer.
    reached_itself: Mutex<Option<Instant>>,
}

#[derive(Default)]
struct Known {
    peers: Vec<Arc<Peer>>,
    places: BTreeMap<Identity, usize>,
}

/// One peer. The atomics are read for each frame; `pulse` changes only a few times a second.
pub(crate) struct Peer {
    pub(crate) identity: Identity,
    is_follower: AtomicBool,
    /// It is no peer any more.
    is_gone: AtomicBool,
    pub(crate) key: PublicKey,
    /// Number of authenticated connections. Briefly two when both sides dial; the library then
    /// keeps one.
    links: AtomicU32,
    /// When the last message arrived, in ms since the table was created.
    heard_ms: AtomicU64,
    /// End of the block, in ms since the table was created; 0 if not blocked.
    blocked_until_ms: AtomicU64,
    oversized: AtomicU64,
    refusals: AtomicU32,
    /// First and last attempt of another process to open a second link while the present one is up.
    asked_again: Mutex<Option<(Instant, Instant)>>,
    /// First handshake since the last link that failed because of clock differences, in ms since
    /// the table was created; 0 if none.
    clock_failed_ms: AtomicU64,
    clock_refused: AtomicBool,
    /// Budget of bytes read from this peer. Kept across reconnections, since a peer could open a
    /// new link each second.
    budget: Mutex<Bucket>,
    pulse: Mutex<Pulse>,
}

/// Ping state of the present link.
#[derive(Default)]
struct Pulse {
    answered_since: Option<Instant>,
    round_trip_us: Option<u64>,
    in_flight: [Option<(u64, Instant)>; PINGS_IN_FLIGHT],
    next: usize,
    last_ping: Option<Instant>,
    /// The newest round trip. Half of it is taken as the transit time of a clock message from the
    /// peer.
    newest_trip: Option<Duration>,
    /// Clock measurements, newest last: when measured, by how many ms this clock was ahead of the
    /// peer's, and the round trip used.
    clocks: VecDeque<(Instant, i64, Duration)>,
}

/// Handshakes must fail because of clock differences for this many milliseconds before the failure
/// is reported.
const CLOCK_FAILS_FOR: u64 = 3_000;

/// Number of clock measurements kept per peer; the one with the shortest round trip counts.
/// `CLOCK_LASTS` is their maximum age.
const CLOCKS: usize = 8;
const CLOCK_LASTS: Duration = Duration::from_secs(15);

impl PeerTable {
    /// A table with room for `capacity` peers.
    pub(crate) fn new(capacity: usize, metrics: Arc<Metrics>) -> Self {
        Self {
            start: Instant::now(),
            known: RwLock::default(),
            capacity,
            metrics,
            watch: RwLock::default(),
            reached_itself: Mutex::default(),
        }
    }

    /// Makes these the peers. Returns their places, or `None`, and changes nothing, if there is no room for
    /// them.
    pub(crate) fn set(&self, peers: &[KnownPeer], is_fetching: bool) -> Option<Vec<usize>> {
        let mut known = self.known.write();
        let is_new = |peer: &&KnownPeer| !known.places.contains_key(&peer.identity);
        if known.peers.len() + peers.iter().filter(is_new).count() > self.capacity {
            return None;
        }
        let rate = lane::inbound_rate(peers.len(), is_fetching);
        let now_us = self.now_us();
        known.peers.iter().for_each(|peer| {
            peer.is_gone.store(true, Relaxed);
        });
        let mut places = Vec::with_capacity(peers.len());
        for told in peers {
            let place = match known.places.get(&told.identity) {
                Some(place) => *place,
                None => {
                    let place = known.peers.len();
                    known.peers.push(Arc::new(Peer::new(told, rate)));
                    known.places.insert(told.identity, place);
                    place
                }
            };
            places.push(place);
            let peer = &known.peers[place];
            peer.is_follower.store(told.is_follower, Relaxed);
            peer.is_gone.store(false, Relaxed);
            peer.budget.lock().set_rate(now_us, rate, lane::READ_BURST);
        }
        let validators = peers.iter().filter(|peer| !peer.is_follower).count();
        self.metrics.known_peers.set(validators as i64);
        Some(places)
    }

    /// Calls `watch` with the present state of every link, and again whenever a link comes up or
    /// goes down, instead of the function before.
    pub(crate) fn watch(&self, watch: Box<LinkWatch>) {
        let peers = self.known.read().peers.clone();
        // All pulses are locked so that no link can change meanwhile; otherwise the callback could
        // see an older state last.
        let pulses: Vec<_> = peers.iter().map(|peer| peer.pulse.lock()).collect();
        *self.watch.write() = Some(watch);
        peers
            .iter()
            .for_each(|peer| self.tell(peer, peer.is_linked()));
        drop(pulses);
    }

    fn tell(&self, peer: &Peer, up: bool) {
        if let Some(watch) = &*self.watch.read()
            && !peer.is_gone()
        {
            watch(peer.identity, up);
        }
    }

    /// The place of a peer in the table.
    pub(crate) fn find(&self, identity: &Identity) -> Option<usize> {
        let known = self.known.read();
        let place = *known.places.get(identity)?;
        (!known.peers[place].is_gone()).then_some(place)
    }

    /// The peer at a place returned by [`Self::find`] or [`Self::places`].
    pub(crate) fn peer(&self, place: usize) -> Arc<Peer> {
        self.known.read().peers[place].clone()
    }

    /// The places of all peers, in the order in which they became peers.
    pub(crate) fn places(&self) -> Vec<usize> {
        let known = self.known.read();
        let present = |place: &usize| !known.peers[*place].is_gone();
        (0..known.peers.len()).filter(present).collect()
    }

    /// The number of places, taken or not.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Whether at least one authenticated connection exists.
    pub(crate) fn is_linked(&self, place: usize) -> bool {
        self.peer(place).is_linked()
    }

    /// Blocks a peer for [`BLOCK`] from now.
    pub(crate) fn block(&self, place: usize) {
        let until = self.now_ms() + BLOCK.as_millis() as u64;
        self.peer(place).blocked_until_ms.store(until, Relaxed);
    }

    /// Lifts a block.
    pub(crate) fn unblock(&self, place: usize) {
        self.peer(place).blocked_until_ms.store(0, Relaxed);
    }

    pub(crate) fn is_blocked(&self, place: usize) -> bool {
        let until = self.peer(place).blocked_until_ms.load(Relaxed);
        until != 0 && until > self.now_ms()
    }

    /// Counts a frame that was larger than its lane allows.
    pub(crate) fn oversized(&self, place: usize) {
        self.peer(place).oversized.fetch_add(1, Relaxed);
    }

    pub(crate) fn status(&self, place: usize) -> PeerStatus {
        let peer = self.peer(place);
        let silent_ms = self.now_ms().saturating_sub(peer.heard_ms.load(Relaxed));
        let heard = u128::from(silent_ms) < SILENCE.as_millis();
        let blocked = self.is_blocked(place);
        let pulse = peer.pulse.lock();
        let connected_for = pulse
            .answered_since
            .filter(|_| heard && !blocked && peer.links.load(Relaxed) > 0)
            .map(|since| since.elapsed());
        PeerStatus {
            identity: peer.identity,
            connected: connected_for.is_some(),
            round_trip_us: pulse.round_trip_us.filter(|_| connected_for.is_some()),
            connected_for,
            silent_for: Duration::from_millis(silent_ms),
            blocked,
            oversized: peer.oversized.load(Relaxed),
            refusals: peer.refusals.load(Relaxed),
            doubled_for: (peer.doubled_for())
                .filter(|_| connected_for.is_some() && !self.leads_here()),
            clock_refused: peer.clock_refused.load(Relaxed),
            clock_ahead_ms: pulse.clock_ahead_ms().filter(|_| connected_for.is_some()),
        }
    }

    /// Records that a peer accepted a connection and then aborted the handshake.
    pub(crate) fn refused_by(&self, place: usize) {
        self.peer(place).refusals.fetch_add(1, Relaxed);
    }

    /// Records that someone asked for another link in the name of a peer that already has one.
    /// Attempts answered while the present link is dying unnoticed do not count: [`PeerStatus`]
    /// checks whether the peer still answers.
    pub(crate) fn asked_again(&self, place: usize) {
        let peer = self.peer(place);
        if !peer.is_linked() {
            return;
        }
        let now = Instant::now();
        let mut asked = peer.asked_again.lock();
        let first = match *asked {
            Some((first, last)) if now.duration_since(last) < ASKS_AGAIN => first,
            _ => now,
        };
        *asked = Some((first, now));
    }

    /// Records that this node has called itself: the address of a peer, or of a name that it is found by, leads
    /// here. All who look for that peer then call here too, in their own names, although their links are up.
    pub(crate) fn reached_itself(&self) {
        let before = self.reached_itself.lock().replace(Instant::now());
        if before.is_none_or(|before| before.elapsed() >= LEADS_HERE) {
            tracing::warn!(
                "the address of another node leads to this one: its operator must correct it (`quorate peers \
                 list` and `quorate registry list` show addresses)"
            );
        }
    }

    /// Whether the address of a peer has led here lately.
    fn leads_here(&self) -> bool {
        (*self.reached_itself.lock()).is_some_and(|last| last.elapsed() < LEADS_HERE)
    }

    /// Records that a handshake with a peer failed because of clock differences.
    pub(crate) fn clock_refused(&self, place: usize) {
        let peer = self.peer(place);
        let now = self.now_ms().max(1);
        let first = peer
            .clock_failed_ms
            .compare_exchange(0, now, Relaxed, Relaxed);
        // A handshake that was in progress while this process was suspended fails with a timestamp
        // as old as the suspension. So one failure does not count; it must persist.
        let lasts = first.is_err_and(|first| now.saturating_sub(first) >= CLOCK_FAILS_FOR);
        if lasts && !peer.clock_refused.swap(true, Relaxed) {
            tracing::warn!(
                peer = peer.identity.short(),
                "handshakes with this peer fail: its clock and this machine's differ by more than 5 s"
            );
        }
    }

    /// Takes a peer's clock reading, in milliseconds since 1970. It follows an answer to a ping.
    pub(crate) fn told_time(&self, place: usize, peer_ms: u64, now_ms: u64) {
        let peer = self.peer(place);
        let mut pulse = peer.pulse.lock();
        let Some(trip) = pulse.newest_trip else {
            return;
        };
        let way = i128::try_from(trip.as_millis() / 2).unwrap_or(0);
        let ahead = i128::from(now_ms) - i128::from(peer_ms) - way;
        let ahead = ahead.clamp(i128::from(i64::MIN), i128::from(i64::MAX));
        let ahead = i64::try_from(ahead).unwrap_or_default();
        pulse.clocks.push_back((Instant::now(), ahead, trip));
        if pulse.clocks.len() > CLOCKS {
            pulse.clocks.pop_front();
        }
    }

    pub(crate) fn statuses(&self) -> Vec<PeerStatus> {
        let mut statuses: Vec<_> = { self.places() }
            .into_iter()
            .map(|place| self.status(place))
            .collect();
        statuses.sort_by_key(|peer| peer.identity);
        statuses
    }

    /// Returns the nonce of the ping to send if one is due: at every call until the peer has
    /// answered on this link, then once per `confirmed`. The answer must repeat the nonce.
    pub(crate) fn ping(&self, place: usize, confirmed: Duration, nonce: u64) -> Option<u64> {
        if !self.is_linked(place) || self.is_blocked(place) {
            return None;
        }
        let peer = self.peer(place);
        let mut pulse = peer.pulse.lock();
        let now = Instant::now();
        let recent = |last: Instant| now.duration_since(last) < confirmed;
        if pulse.answered_since.is_some() && pulse.last_ping.is_some_and(recent) {
            return None;
        }
        let next = pulse.next;
        pulse.in_flight[next] = Some((nonce, now));
        pulse.next = (next + 1) % PINGS_IN_FLIGHT;
        pulse.last_ping = Some(now);
        Some(nonce)
    }

    /// Handles the answer to a ping. An answer with an unknown nonce is ignored, so a peer can
    /// pretend to be farther away than it is, never nearer.
    pub(crate) fn pong(&self, place: usize, nonce: u64) {
        let peer = self.peer(place);
        let mut pulse = peer.pulse.lock();
        let awaited = pulse
            .in_flight
            .iter_mut()
            .find(|ping| ping.is_some_and(|(sent, _)| sent == nonce))
            .and_then(Option::take);
        let Some((_, sent_at)) = awaited else {
            return;
        };
        let round_trip = sent_at.elapsed();
        pulse.newest_trip = Some(round_trip);
        let sample = u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX);
        pulse.round_trip_us = Some(match pulse.round_trip_us {
            None => sample,
            Some(smooth) => smooth - smooth / 8 + sample / 8,
        });
        if pulse.answered_since.is_none() {
            pulse.answered_since = Some(Instant::now());
            let peer = peer.identity.short();
            tracing::debug!(peer, round_trip_us = sample, "peer connected");
        }
        drop(pulse);
        self.metrics.round_trip(round_trip);
    }
}

impl Peer {
    fn new(told: &KnownPeer, rate: u64) -> Self {
        Self {
            identity: told.identity,
            is_follower: AtomicBool::new(told.is_follower),
            is_gone: AtomicBool::new(false),
            key: told.key.clone(),
            links: AtomicU32::new(0),
            heard_ms: AtomicU64::new(0),
            blocked_until_ms: AtomicU64::new(0),
            oversized: AtomicU64::new(0),
            refusals: AtomicU32::new(0),
            asked_again: Mutex::default(),
            clock_failed_ms: AtomicU64::new(0),
            clock_refused: AtomicBool::new(false),
            budget: Mutex::new(Bucket::new(rate, lane::READ_BURST)),
            pulse: Mutex::default(),
        }
    }

    pub(crate) fn is_follower(&self) -> bool {
        self.is_follower.load(Relaxed)
    }

    fn is_gone(&self) -> bool {
        self.is_gone.load(Relaxed)
    }

    /// Whether at least one authenticated connection exists.
    fn is_linked(&self) -> bool {
        self.links.load(Relaxed) > 0
    }

    fn doubled_for(&self) -> Option<Duration> {
        let (first, last) = (*self.asked_again.lock())?;
        (last.elapsed() < ASKS_AGAIN).then(|| last.duration_since(first))
    }
}

impl Pulse {
    /// Lower bound of how far this clock is ahead of the peer's (or behind it). Half the round trip
    /// is subtracted as possible asymmetry of the path, so that no delay looks like a wrong clock.
    fn clock_ahead_ms(&self) -> Option<i64> {
        let newest = self.clocks.iter();
        let newest = newest.filter(|(at, ..)| at.elapsed() < CLOCK_LASTS);
        let (_, ahead, trip) = newest.min_by_key(|(_, _, trip)| *trip)?;
        let doubt = i64::try_from(trip.as_millis() / 2).unwrap_or(i64::MAX);
        Some(match *ahead {
            ahead if ahead > doubt => ahead - doubt,
            ahead if ahead < -doubt => ahead + doubt,
            _ => 0,
        })
    }
}

/// Represents an authenticated connection to a peer. It lives in the connection's receiving half,
/// which the library drops when the link ends.
pub(crate) struct LinkToken {
    table: Arc<PeerTable>,
    peer: Arc<Peer>,
}

impl LinkToken {
    /// Registers a new connection.
    pub(crate) fn new(table: Arc<PeerTable>, place: usize) -> Self {
        let peer = table.peer(place);
        // Done under the lock, so that the watcher is called in the order of the events.
        let pulse = peer.pulse.lock();
        peer.refusals.store(0, Relaxed);
        peer.clock_failed_ms.store(0, Relaxed);
        peer.clock_refused.store(false, Relaxed);
        *peer.asked_again.lock() = None;
        if peer.links.fetch_add(1, Relaxed) == 0 {
            table.tell(&peer, true);
        }
        drop(pulse);
        let token = Self { table, peer };
        token.heard();
        token
    }

    /// Records that authentic data arrived over the connection.
    pub(crate) fn heard(&self) {
        let now = self.table.now_ms();
        self.peer.heard_ms.store(now, Relaxed);
    }

    /// Charges received bytes to the peer's budget. Returns how long to wait before reading more if
    /// the budget is exhausted.
    pub(crate) fn pay(&self, bytes: usize) -> Option<Duration> {
        let now_us = self.table.now_us();
        let mut budget = self.peer.budget.lock();
        budget.spend(now_us, bytes as u64);
        match budget.empty_for_us(now_us) {
            0 => None,
            wait => Some(Duration::from_micros(wait)),
        }
    }
}

impl Drop for LinkToken {
    fn drop(&mut self) {
        let peer = &self.peer;
        // Done under the lock, so that no ping of a new link is recorded and lost in between.
        let mut pulse = peer.pulse.lock();
        if peer.links.fetch_sub(1, Relaxed) == 1 {
            if pulse.answered_since.is_some() {
                tracing::debug!(peer = peer.identity.short(), "peer disconnected");
            }
            *pulse = Pulse::default();
            self.table.tell(peer, false);
        }
        drop(pulse);
        self.table.metrics.links_lost.inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_crypto::SecretKey;
    use std::net::SocketAddr;

    fn table(peers: u8) -> Arc<PeerTable> {
        let registry = prometheus::Registry::new();
        let metrics = Arc::new(Metrics::register(&registry).expect("empty registry"));
        let mut known: Vec<_> = (1..=peers)
            .map(|seed| {
                let identity = SecretKey::from_bytes(&[seed; 32]).identity();
                KnownPeer {
                    is_follower: false,
                    identity,
                    key: identity.to_public_key().expect("a key"),
                    address: SocketAddr::from(([127, 0, 0, 1], 1)).into(),
                }
            })
            .collect();
        known.sort_by_key(|peer| peer.identity);
        let table = PeerTable::new(known.len() + 1, metrics);
        table.set(&known, false).expect("there is room");
        Arc::new(table)
    }

    #[test]
    fn peer_is_connected_only_while_its_link_answers() {
        let table = table(2);
        assert!(!table.status(0).connected);
        let token = LinkToken::new(table.clone(), 0);
        assert!(!table.status(0).connected, "no pong yet");
        assert_eq!(table.ping(0, SILENCE, 7), Some(7));
        table.pong(0, 8);
        assert!(!table.status(0).connected, "a pong that nobody asked for");
        table.pong(0, 7);
        let status = table.status(0);
        assert!(status.connected && status.round_trip_us.is_some());
        assert!(!table.status(1).connected);
        assert_eq!(table.ping(0, SILENCE, 9), None, "not due");
        drop(token);
        assert!(!table.status(0).connected);
        assert_eq!(table.ping(0, SILENCE, 10), None, "no link");
    }

    #[test]
    fn second_link_keeps_the_peer_connected_when_the_first_ends() {
        let table = table(1);
        let first = LinkToken::new(table.clone(), 0);
        let second = LinkToken::new(table.clone(), 0);
        table.ping(0, SILENCE, 1);
        table.pong(0, 1);
        drop(first);
        assert!(table.status(0).connected);
        drop(second);
        assert!(!table.status(0).connected);
    }

    #[test]
    fn who_watches_is_told_of_first_and_last_links_only() {
        let table = table(2);
        let early = LinkToken::new(table.clone(), 1);
        let told = Arc::new(Mutex::new(Vec::new()));
        let (sink, peers) = (told.clone(), table.clone());
        table.watch(Box::new(move |identity, up| {
            sink.lock().push((peers.find(&identity), up));
        }));
        let first = LinkToken::new(table.clone(), 0);
        let second = LinkToken::new(table.clone(), 0);
        drop((first, second, early));
        let expected = [(0, false), (1, true), (0, true), (0, false), (1, false)];
        let expected = expected.map(|(place, up)| (Some(place), up));
        assert_eq!(*told.lock(), expected);
    }

    #[test]
    fn a_clock_that_is_off_shows_and_a_slow_way_does_not() {
        let table = table(1);
        let _token = LinkToken::new(table.clone(), 0);
        let answered = |number: u64| {
            table.ping(0, Duration::ZERO, number);
            table.pong(0, number);
        };
        table.told_time(0, 1_000, 5_000);
        answered(1);
        assert_eq!(table.status(0).clock_ahead_ms, None, "before an answer");
        table.told_time(0, 1_000_000, 1_003_000);
        assert_eq!(table.status(0).clock_ahead_ms, Some(3_000));
        // A measurement with a longer round trip does not replace one with a shorter round trip.
        table.peer(0).pulse.lock().newest_trip = Some(Duration::from_secs(4));
        table.told_time(0, 1_000_000, 1_007_000);
        assert_eq!(table.status(0).clock_ahead_ms, Some(3_000));
        table.peer(0).pulse.lock().clocks.clear();
        table.told_time(0, 1_000_000, 1_003_000);
        assert_eq!(table.status(0).clock_ahead_ms, Some(0), "4 s on the way");
        table.peer(0).pulse.lock().clocks.clear();
        table.told_time(0, u64::MAX, 0);
        assert!(table.status(0).clock_ahead_ms.is_some_and(|ms| ms < 0));
    }

    #[test]
    fn who_asks_for_a_second_link_is_told_of_while_the_first_one_answers() {
        let table = table(1);
        table.asked_again(0);
        let token = LinkToken::new(table.clone(), 0);
        table.asked_again(0);
        assert_eq!(table.status(0).doubled_for, None, "the link may be dead");
        table.ping(0, SILENCE, 1);
        table.pong(0, 1);
        assert!(table.status(0).doubled_for.is_some());
        drop(token);
        let _next = LinkToken::new(table.clone(), 0);
        table.ping(0, SILENCE, 2);
        table.pong(0, 2);
        assert_eq!(table.status(0).doubled_for, None, "a new link");
        table.asked_again(0);
        assert!(table.status(0).doubled_for.is_some());
        table.reached_itself();
        assert_eq!(
            table.status(0).doubled_for,
            None,
            "it looks for another peer, whose address leads here"
        );
    }

    #[test]
    fn block_ends_when_it_is_lifted() {
        let table = table(1);
        table.block(0);
        assert!(table.status(0).blocked);
        table.unblock(0);
        assert!(!table.status(0).blocked);
    }
}
