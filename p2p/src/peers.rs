//! What this node knows of each peer's link: whether it is up, answers, and is blocked.
//!
//! The library reports neither connects nor disconnects. [`Watched`](crate::upgrade::Watched) sees
//! both, because it runs the handshakes, and keeps a [`LinkToken`] in each link's receiving half.

use crate::{bucket::Bucket, config::KnownPeer, lane, metrics::Metrics};
use commonware_cryptography::ed25519::PublicKey;
use parking_lot::Mutex;
use quorate_crypto::Identity;
use std::{
    collections::VecDeque,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// A peer from which nothing has come for this long is not connected. It answers a ping every
/// second, so this is two lost answers and a half.
pub(crate) const SILENCE: Duration = Duration::from_millis(2_500);

/// How long [`Links::block`](crate::Links::block) holds. A replica that wants more repeats it.
pub(crate) const BLOCK: Duration = Duration::from_secs(60);

/// Who asks for a link that exists has given up after this long without another attempt.
const ASKS_AGAIN: Duration = Duration::from_secs(15);

/// Pings whose answers are awaited; the oldest is forgotten. Before the first answer there are
/// four a second, which makes this 2 seconds, the longest round trip that can be measured.
const PINGS_IN_FLIGHT: usize = 8;

/// A peer's link as the node sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// Who.
    pub identity: Identity,
    /// Whether a link is up, has answered a ping, and has delivered something in the last 2.5 s.
    pub connected: bool,
    /// Smoothed round trip in µs (each new value counts for an eighth), of this link.
    pub round_trip_us: Option<u64>,
    /// How long the present link has been answering. `None` when not connected.
    pub connected_for: Option<Duration>,
    /// Whether the peer is blocked here.
    pub blocked: bool,
    /// Frames that were larger than their lane allows. No validator sends any.
    pub oversized: u64,
    /// Handshakes in a row that it has ended after it accepted the connection, since the last link.
    pub refusals: u32,
    /// For how long somebody has asked for another link in its name, again and again, while this one
    /// answers: a second process has its identity. `None` if nobody does.
    pub doubled_for: Option<Duration>,
    /// Whether a handshake with it failed since the last link because the clocks are too far apart.
    pub clock_refused: bool,
    /// By how many milliseconds this machine's clock is ahead of the peer's, below zero if it is
    /// behind; to within half a round trip. `None` if the peer has not told its time on this link.
    pub clock_ahead_ms: Option<i64>,
}

/// Is told whenever the first authenticated connection to a peer has come up (`true`) or the last one
/// has ended. It is called on the runtime's tasks and must not block.
pub type LinkWatch = dyn Fn(Identity, bool) + Send + Sync;

/// All peers, sorted by identity; the set is fixed at the start.
pub(crate) struct PeerTable {
    start: Instant,
    peers: Vec<Peer>,
    metrics: Arc<Metrics>,
    watch: OnceLock<Box<LinkWatch>>,
}

/// One peer. The atomics are read for each frame; `pulse` changes a few times a second.
pub(crate) struct Peer {
    pub(crate) identity: Identity,
    pub(crate) key: PublicKey,
    /// Authenticated connections. Two for a moment when both sides dial; the library keeps one.
    links: AtomicU32,
    /// When the last message came, in ms since the table's start.
    heard_ms: AtomicU64,
    /// Blocked until then, in ms since the table's start; 0 is never.
    blocked_until_ms: AtomicU64,
    oversized: AtomicU64,
    refusals: AtomicU32,
    /// When somebody first and last asked for a second link, during the present one.
    asked_again: Mutex<Option<(Instant, Instant)>>,
    /// When the first handshake since the last link failed because of the clocks, in ms since the
    /// table's start; 0 is never.
    clock_failed_ms: AtomicU64,
    clock_refused: AtomicBool,
    /// Bytes that may be read from its links, of which there may be a new one each second.
    budget: Mutex<Bucket>,
    pulse: Mutex<Pulse>,
}

/// The pings of the present link.
#[derive(Default)]
struct Pulse {
    answered_since: Option<Instant>,
    round_trip_us: Option<u64>,
    in_flight: [Option<(u64, Instant)>; PINGS_IN_FLIGHT],
    next: usize,
    last_ping: Option<Instant>,
    /// The newest round trip, of which the half is the way that a peer's time has had.
    newest_trip: Option<Duration>,
    /// By how much this clock was ahead of the peer's in milliseconds, and the round trips that it was
    /// measured with; the newest last.
    clocks: VecDeque<(Instant, i64, Duration)>,
}

/// For so many milliseconds handshakes must fail because of the clocks before that is believed.
const CLOCK_FAILS_FOR: u64 = 3_000;

/// Measurements of a peer's clock of which that with the shortest round trip counts, and for how long.
const CLOCKS: usize = 8;
const CLOCK_LASTS: Duration = Duration::from_secs(15);

impl PeerTable {
    /// `peers` are sorted by identity.
    pub(crate) fn new(peers: Vec<KnownPeer>, metrics: Arc<Metrics>) -> Self {
        metrics.known_peers.set(peers.len() as i64);
        let budget = lane::inbound_budget(peers.len());
        let peers = peers
            .into_iter()
            .map(|known| Peer {
                identity: known.identity,
                key: known.key,
                links: AtomicU32::new(0),
                heard_ms: AtomicU64::new(0),
                blocked_until_ms: AtomicU64::new(0),
                oversized: AtomicU64::new(0),
                refusals: AtomicU32::new(0),
                asked_again: Mutex::default(),
                clock_failed_ms: AtomicU64::new(0),
                clock_refused: AtomicBool::new(false),
                budget: Mutex::new(budget),
                pulse: Mutex::default(),
            })
            .collect();
        Self {
            start: Instant::now(),
            peers,
            metrics,
            watch: OnceLock::new(),
        }
    }

    /// From now on tells of every link that comes up or ends, of those as they are first. Only the
    /// first call counts.
    pub(crate) fn watch(&self, watch: Box<LinkWatch>) {
        // While no link can change, so that nobody is told of the older state last.
        let pulses: Vec<_> = self.peers.iter().map(|peer| peer.pulse.lock()).collect();
        if self.watch.set(watch).is_ok() {
            (0..self.len()).for_each(|place| self.tell(place, self.is_linked(place)));
        }
        drop(pulses);
    }

    fn tell(&self, place: usize, up: bool) {
        if let Some(watch) = self.watch.get() {
            watch(self.peers[place].identity, up);
        }
    }

    /// The place of a peer in the table.
    pub(crate) fn find(&self, identity: &Identity) -> Option<usize> {
        self.peers
            .binary_search_by(|peer| peer.identity.cmp(identity))
            .ok()
    }

    /// The peer at a place that [`Self::find`] gave or that is below [`Self::len`].
    pub(crate) fn peer(&self, place: usize) -> &Peer {
        &self.peers[place]
    }

    /// Number of peers.
    pub(crate) fn len(&self) -> usize {
        self.peers.len()
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether at least one authenticated connection exists.
    pub(crate) fn is_linked(&self, place: usize) -> bool {
        self.peers[place].links.load(Relaxed) > 0
    }

    /// Blocks a peer for [`BLOCK`] from now.
    pub(crate) fn block(&self, place: usize) {
        let until = self.now_ms() + BLOCK.as_millis() as u64;
        self.peers[place].blocked_until_ms.store(until, Relaxed);
    }

    /// Lifts a block.
    pub(crate) fn unblock(&self, place: usize) {
        self.peers[place].blocked_until_ms.store(0, Relaxed);
    }

    /// Whether a peer is blocked now.
    pub(crate) fn is_blocked(&self, place: usize) -> bool {
        let until = self.peers[place].blocked_until_ms.load(Relaxed);
        until != 0 && until > self.now_ms()
    }

    /// Notes a frame that was larger than its lane allows.
    pub(crate) fn oversized(&self, place: usize) {
        self.peers[place].oversized.fetch_add(1, Relaxed);
    }

    /// One peer's status.
    pub(crate) fn status(&self, place: usize) -> PeerStatus {
        let peer = &self.peers[place];
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
            blocked,
            oversized: peer.oversized.load(Relaxed),
            refusals: peer.refusals.load(Relaxed),
            doubled_for: peer.doubled_for().filter(|_| connected_for.is_some()),
            clock_refused: peer.clock_refused.load(Relaxed),
            clock_ahead_ms: pulse.clock_ahead_ms().filter(|_| connected_for.is_some()),
        }
    }

    /// A peer has accepted a connection and ended the handshake.
    pub(crate) fn refused_by(&self, place: usize) {
        self.peers[place].refusals.fetch_add(1, Relaxed);
    }

    /// Somebody asks for a link in the name of a peer that has one. What is answered while the link dies
    /// unnoticed does not count: [`PeerStatus`] looks at whether it answers.
    pub(crate) fn asked_again(&self, place: usize) {
        if !self.is_linked(place) {
            return;
        }
        let now = Instant::now();
        let mut asked = self.peers[place].asked_again.lock();
        let first = match *asked {
            Some((first, last)) if now.duration_since(last) < ASKS_AGAIN => first,
            _ => now,
        };
        *asked = Some((first, now));
    }

    /// A handshake with a peer failed because of the clocks.
    pub(crate) fn clock_refused(&self, place: usize) {
        let peer = &self.peers[place];
        let now = self.now_ms().max(1);
        let first = peer
            .clock_failed_ms
            .compare_exchange(0, now, Relaxed, Relaxed);
        // One that was under way while this process stood still is as old as that lasted.
        let lasts = first.is_err_and(|first| now.saturating_sub(first) >= CLOCK_FAILS_FOR);
        if lasts && !peer.clock_refused.swap(true, Relaxed) {
            tracing::warn!(
                peer = peer.identity.short(),
                "handshakes with this peer fail: its clock and this machine's differ by more than 5 s"
            );
        }
    }

    /// A peer tells its time, in milliseconds since 1970, right behind an answer to a ping.
    pub(crate) fn told_time(&self, place: usize, peer_ms: u64, now_ms: u64) {
        let mut pulse = self.peers[place].pulse.lock();
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

    /// All peers' status, sorted by identity.
    pub(crate) fn statuses(&self) -> Vec<PeerStatus> {
        (0..self.len()).map(|place| self.status(place)).collect()
    }

    /// Whether a peer is due for a ping: each `confirmed` once it has answered on this link, and at
    /// every call before. Gives the number that the answer must repeat.
    pub(crate) fn ping(&self, place: usize, confirmed: Duration, nonce: u64) -> Option<u64> {
        if !self.is_linked(place) || self.is_blocked(place) {
            return None;
        }
        let mut pulse = self.peers[place].pulse.lock();
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

    /// Takes an answer. One that repeats no awaited number is ignored, so a peer can pretend to be
    /// farther than it is, never nearer.
    pub(crate) fn pong(&self, place: usize, nonce: u64) {
        let mut pulse = self.peers[place].pulse.lock();
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
            let peer = self.peers[place].identity.short();
            tracing::debug!(peer, round_trip_us = sample, "peer connected");
        }
        drop(pulse);
        self.metrics.round_trip(round_trip);
    }
}

impl Peer {
    fn doubled_for(&self) -> Option<Duration> {
        let (first, last) = (*self.asked_again.lock())?;
        (last.elapsed() < ASKS_AGAIN).then(|| last.duration_since(first))
    }
}

impl Pulse {
    /// By how much this clock is ahead of the peer's, at least: what the way may have taken beside
    /// its half of the round trip is taken off, so that no delay looks like a wrong clock.
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

/// Proof that an authenticated connection to a peer exists. It lives in the connection's receiving
/// half, which the library drops when the link ends.
pub(crate) struct LinkToken {
    table: Arc<PeerTable>,
    place: usize,
}

impl LinkToken {
    /// A new connection.
    pub(crate) fn new(table: Arc<PeerTable>, place: usize) -> Self {
        // Under the lock, so that whoever watches is told in the order in which it happens.
        let pulse = table.peers[place].pulse.lock();
        table.peers[place].refusals.store(0, Relaxed);
        table.peers[place].clock_failed_ms.store(0, Relaxed);
        table.peers[place].clock_refused.store(false, Relaxed);
        *table.peers[place].asked_again.lock() = None;
        if table.peers[place].links.fetch_add(1, Relaxed) == 0 {
            table.tell(place, true);
        }
        drop(pulse);
        let token = Self { table, place };
        token.heard();
        token
    }

    /// Something authentic came over the connection.
    pub(crate) fn heard(&self) {
        self.table.peers[self.place]
            .heard_ms
            .store(self.table.now_ms(), Relaxed);
    }

    /// Counts bytes that have come. Gives how long to wait before more is read, if the peer has used
    /// up what it may send.
    pub(crate) fn pay(&self, bytes: usize) -> Option<Duration> {
        let now_us = u64::try_from(self.table.start.elapsed().as_micros()).unwrap_or(u64::MAX);
        let mut budget = self.table.peers[self.place].budget.lock();
        budget.spend(now_us, bytes as u64);
        match budget.empty_for_us(now_us) {
            0 => None,
            wait => Some(Duration::from_micros(wait)),
        }
    }
}

impl Drop for LinkToken {
    fn drop(&mut self) {
        let peer = &self.table.peers[self.place];
        // Under the lock, so that no ping of a new link is recorded and forgotten in between.
        let mut pulse = peer.pulse.lock();
        if peer.links.fetch_sub(1, Relaxed) == 1 {
            if pulse.answered_since.is_some() {
                tracing::debug!(peer = peer.identity.short(), "peer disconnected");
            }
            *pulse = Pulse::default();
            self.table.tell(self.place, false);
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
                    identity,
                    key: identity.to_public_key().expect("a key"),
                    address: SocketAddr::from(([127, 0, 0, 1], 1)).into(),
                }
            })
            .collect();
        known.sort_by_key(|peer| peer.identity);
        Arc::new(PeerTable::new(known, metrics))
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
        // What came by a slower way counts for less.
        table.peers[0].pulse.lock().newest_trip = Some(Duration::from_secs(4));
        table.told_time(0, 1_000_000, 1_007_000);
        assert_eq!(table.status(0).clock_ahead_ms, Some(3_000));
        table.peers[0].pulse.lock().clocks.clear();
        table.told_time(0, 1_000_000, 1_003_000);
        assert_eq!(table.status(0).clock_ahead_ms, Some(0), "4 s on the way");
        table.peers[0].pulse.lock().clocks.clear();
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
