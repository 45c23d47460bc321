//! How peers behave on their links. Frames that no validator sends if it follows the protocol count
//! against the sender, and a peer that sends many of them is cut for a while.
//!
//! This is about load, not about votes, for which `quorate_consensus` has its own penalties. Scores
//! decay, cuts end by themselves, and neither survives the process. No peer is cut for being slow,
//! for requesting too much, or for speaking an unknown version.
//!
//! At most f validators are cut or blocked at any time, so that the others are a quorum. Any
//! further one is *muted*: its requests and forwarded transactions are ignored, its votes and
//! proposals are not.
//!
//! This is the last of five limits on what a peer may cost; each binds only the sender, and the
//! cheap ones come first. (1) Reading: 16 MiB a second and 32 MiB at once per peer, less with many
//! peers; beyond that its connection is not read (`quorate_p2p`). (2) Waiting: a queue per sender,
//! served in turn by bytes. (3) Judging by the message's head, before the body is read or hashed
//! ([`crate::inlet`]). (4) Answering: blocks and ranges cost bytes, 16 MiB a second, 64 MiB at
//! once, 4 MiB unsent ([`crate::serve`]). (5) Cutting the link for a minute, after eight frames
//! that no validator sends, or 16 forgeries.

use crate::{
    clock::Clock,
    live::LiveStatus,
    metrics::NodeMetrics,
    replica::{Cut, Cutter},
};
use parking_lot::Mutex;
use quorate_api::{OffenderJson, Standing as Shown};
use quorate_consensus::Moment;
use quorate_types::{Committees, Identity, ValidatorIndex};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tracing::warn;

/// The score at which a peer is cut.
const LIMIT: u64 = 64;

/// A score falls by one in this time.
const FALLS_EVERY: Duration = Duration::from_secs(1);

/// How long after the start a peer may answer requests of the earlier run.
const FORMER_LIFE: Duration = Duration::from_secs(60);

/// How long a cut or a mute lasts. The library refuses a link for as long.
pub const CUT_LASTS: Duration = Duration::from_secs(60);

/// What a validator never does if it follows the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    Undecodable,
    WrongLane,
    Oversized,
    NotTheLeader,
    /// A frame whose author or receiver it does not concern.
    Misdirected,
    /// A forwarded transaction or relayed frame with an invalid signature.
    Forged,
    /// An answer that was not requested. It does not count in the first minute, since the earlier
    /// run may have sent the request.
    Unasked,
}

impl Fault {
    pub const ALL: [Self; 7] = [
        Self::Undecodable,
        Self::WrongLane,
        Self::Oversized,
        Self::NotTheLeader,
        Self::Misdirected,
        Self::Forged,
        Self::Unasked,
    ];

    /// The name in metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Undecodable => "undecodable",
            Self::WrongLane => "wrong_lane",
            Self::Oversized => "oversized",
            Self::NotTheLeader => "not_the_leader",
            Self::Misdirected => "misdirected",
            Self::Forged => "forged",
            Self::Unasked => "unasked",
        }
    }

    /// The points of one fault. A machine whose memory fails once is not cut.
    const fn weight(self) -> u64 {
        match self {
            Self::Undecodable
            | Self::WrongLane
            | Self::Oversized
            | Self::NotTheLeader
            | Self::Misdirected => 8,
            Self::Forged => 4,
            Self::Unasked => 1,
        }
    }
}

/// Which frames of a peer are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listening {
    Fully,
    Muted,
    Cut,
}

pub struct Conduct {
    committees: Committees,
    clock: Arc<dyn Clock>,
    metrics: Arc<NodeMetrics>,
    live: Arc<LiveStatus>,
    cut: Cutter,
    started: Moment,
    peers: Mutex<Vec<Peer>>,
    followers: Mutex<BTreeMap<Identity, Peer>>,
}

#[derive(Clone, Copy, Default)]
struct Peer {
    score: u64,
    /// When the score last decayed.
    fallen: Moment,
    penalty: Option<Penalty>,
}

#[derive(Clone, Copy)]
struct Penalty {
    until: Moment,
    until_ms: u64,
    since_ms: u64,
    fault: Fault,
    cut: bool,
}

impl Peer {
    fn fall(&mut self, now: Moment) {
        let steps = now.since(self.fallen).as_micros() / FALLS_EVERY.as_micros();
        let steps = u64::try_from(steps).unwrap_or(u64::MAX);
        self.score = self.score.saturating_sub(steps);
        self.fallen = match self.score {
            0 => now,
            _ => Moment(self.fallen.0 + steps * FALLS_EVERY.as_micros() as u64),
        };
    }

    fn penalty(&self, now: Moment) -> Option<Penalty> {
        self.penalty.filter(|penalty| penalty.until > now)
    }
}

impl Conduct {
    pub(crate) fn new(
        committees: Committees,
        clock: Arc<dyn Clock>,
        metrics: Arc<NodeMetrics>,
        live: Arc<LiveStatus>,
        cut: Cutter,
    ) -> Self {
        let peers = Mutex::new(vec![Peer::default(); committees.known().size()]);
        let started = clock.now();
        Self {
            committees,
            clock,
            metrics,
            live,
            cut,
            started,
            peers,
            followers: Mutex::default(),
        }
    }

    /// Which frames of a peer are accepted at the moment.
    pub fn listening(&self, peer: ValidatorIndex) -> Listening {
        let peers = self.peers.lock();
        let penalty = peers.get(peer.as_usize());
        match penalty.and_then(|peer| peer.penalty(self.clock.now())) {
            None => Listening::Fully,
            Some(penalty) if penalty.cut => Listening::Cut,
            Some(_) => Listening::Muted,
        }
    }

    /// The peers that are cut at the moment.
    pub fn cut(&self) -> Vec<ValidatorIndex> {
        let places = self.committees.known().places();
        let cut = places.filter(|place| self.listening(*place) == Listening::Cut);
        cut.collect()
    }

    /// Whether a follower's frames are accepted at the moment.
    pub(crate) fn hears_follower(&self, follower: &Identity) -> bool {
        let followers = self.followers.lock();
        let held = followers.get(follower);
        held.is_none_or(|held| held.penalty(self.clock.now()).is_none())
    }

    /// Counts a fault of a follower. Cutting followers costs the chain nothing, so any number may be
    /// cut.
    pub(crate) fn note_follower(&self, follower: Identity, fault: Fault, times: u64) {
        let counter = self.metrics.faults.with_label_values(&[fault.name()]);
        counter.inc_by(times);
        let now = self.clock.now();
        let mut followers = self.followers.lock();
        let held = followers.entry(follower).or_default();
        held.fall(now);
        held.score = held.score.saturating_add(fault.weight() * times.min(LIMIT));
        if held.score < LIMIT || held.penalty(now).is_some() {
            return;
        }
        let since_ms = self.clock.wall_ms();
        held.score = 0;
        held.penalty = Some(Penalty {
            until: now.after(CUT_LASTS),
            until_ms: since_ms.saturating_add(CUT_LASTS.as_millis() as u64),
            since_ms,
            fault,
            cut: true,
        });
        drop(followers);
        warn!(
            follower = follower.short(),
            reason = fault.name(),
            seconds = CUT_LASTS.as_secs(),
            "a follower sends what no follower sends; its link is cut for a while"
        );
        (self.cut)(follower, Cut::Off);
    }

    /// Counts a fault of a peer, `times` times.
    pub fn note(&self, peer: ValidatorIndex, fault: Fault, times: u64) {
        let counter = self.metrics.faults.with_label_values(&[fault.name()]);
        counter.inc_by(times);
        let Some(identity) = self.committees.known().identity(peer) else {
            return;
        };
        let now = self.clock.now();
        if fault == Fault::Unasked && now.since(self.started) < FORMER_LIFE {
            return;
        }
        let mut peers = self.peers.lock();
        let held = &mut peers[peer.as_usize()];
        held.fall(now);
        held.score = held.score.saturating_add(fault.weight() * times.min(LIMIT));
        if held.score < LIMIT || held.penalty(now).is_some() {
            return;
        }
        held.score = 0;
        let mut excluded = self.blocked();
        for place in self.committees.known().places() {
            let penalty = peers[place.as_usize()].penalty(now);
            if penalty.is_some_and(|penalty| penalty.cut) {
                excluded.extend(self.committees.known().identity(place));
            }
        }
        let cut = excluded.contains(&identity) || excluded.len() < self.committees.known().faults();
        let since_ms = self.clock.wall_ms();
        peers[peer.as_usize()].penalty = Some(Penalty {
            until: now.after(CUT_LASTS),
            until_ms: since_ms.saturating_add(CUT_LASTS.as_millis() as u64),
            since_ms,
            fault,
            cut,
        });
        self.show(&peers, now);
        drop(peers);
        self.tell(peer, identity, fault, cut);
    }

    /// Makes room for the validators that the replica blocks: the peers cut first are muted
    /// instead, until at most f are cut or blocked.
    pub(crate) fn make_room(&self) {
        let now = self.clock.now();
        let blocked = self.blocked();
        let mut peers = self.peers.lock();
        let mut only_cut: Vec<(Moment, usize, Identity)> = Vec::new();
        for (place, identity) in self.committees.known().identities().iter().enumerate() {
            if let Some(penalty) = peers[place].penalty(now)
                && penalty.cut
                && !blocked.contains(identity)
            {
                only_cut.push((penalty.until, place, *identity));
            }
        }
        only_cut.sort_unstable();
        let excess =
            (blocked.len() + only_cut.len()).saturating_sub(self.committees.known().faults());
        for (_, place, identity) in only_cut.into_iter().take(excess) {
            if let Some(penalty) = &mut peers[place].penalty {
                penalty.cut = false;
            }
            (self.cut)(identity, Cut::Allowed);
        }
        if excess > 0 {
            self.show(&peers, now);
        }
    }

    fn tell(&self, peer: ValidatorIndex, identity: Identity, fault: Fault, cut: bool) {
        let counter = self.metrics.cuts.with_label_values(&[fault.name()]);
        counter.inc();
        let (validator, reason) = (peer.0, fault.name());
        let seconds = CUT_LASTS.as_secs();
        if cut {
            warn!(
                validator, %identity, reason, seconds,
                "a peer sends what no validator sends; its link is cut for a while"
            );
            (self.cut)(identity, Cut::Off);
        } else {
            warn!(
                validator, %identity, reason, seconds,
                "a peer sends what no validator sends; as many as may be are cut already, so that \
                 only its votes and proposals are listened to for a while"
            );
        }
    }

    /// The validators that the replica blocks.
    fn blocked(&self) -> BTreeSet<Identity> {
        let offenders = self.live.offenders().into_iter();
        offenders
            .filter(|offender| offender.standing == Shown::Blocked)
            .map(|offender| offender.identity)
            .collect()
    }

    fn show(&self, peers: &[Peer], now: Moment) {
        let shown = self.committees.known().places().filter_map(|place| {
            let penalty = peers[place.as_usize()].penalty(now)?;
            Some(OffenderJson {
                identity: self.committees.known().identity(place)?,
                validator: place,
                standing: if penalty.cut {
                    Shown::Cut
                } else {
                    Shown::Muted
                },
                reason: penalty.fault.name().to_owned(),
                ordered: false,
                since_ms: penalty.since_ms,
                until_ms: Some(penalty.until_ms),
                pardoned_until: None,
                proof: None,
            })
        });
        self.live.set_cut(shown.collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::testing::Hand;
    use quorate_types::Epoch;
    use std::sync::atomic::Ordering::Relaxed;

    struct Scene {
        conduct: Conduct,
        clock: Arc<Hand>,
        live: Arc<LiveStatus>,
        cuts: Arc<Mutex<Vec<Identity>>>,
    }

    fn scene(validators: u8) -> Scene {
        let identities = (0..validators).map(|i| Identity([i; 32])).collect();
        let committees = Committees::fixed(
            quorate_types::Committee::new(Epoch(0), identities).expect("distinct"),
        );
        let registry = prometheus::Registry::new();
        let metrics = Arc::new(NodeMetrics::register(&registry).expect("empty"));
        let clock = Arc::new(Hand::default());
        let live = Arc::new(LiveStatus::new(committees.clone(), ValidatorIndex(0)));
        let cuts: Arc<Mutex<Vec<Identity>>> = Arc::default();
        let noted = cuts.clone();
        let cut: Cutter = Arc::new(move |identity, _| noted.lock().push(identity));
        let conduct = Conduct::new(committees, clock.clone(), metrics, live.clone(), cut);
        Scene {
            conduct,
            clock,
            live,
            cuts,
        }
    }

    #[test]
    fn who_sends_much_that_nobody_sends_is_cut_and_comes_back_by_itself() {
        let scene = scene(4);
        let peer = ValidatorIndex(1);
        for _ in 0..LIMIT / 8 - 1 {
            scene.conduct.note(peer, Fault::Undecodable, 1);
        }
        assert_eq!(scene.conduct.listening(peer), Listening::Fully);
        scene.conduct.note(peer, Fault::WrongLane, 1);
        assert_eq!(scene.conduct.listening(peer), Listening::Cut);
        assert_eq!(*scene.cuts.lock(), [Identity([1; 32])]);
        let shown = scene.live.offenders();
        assert_eq!(shown[0].standing, Shown::Cut);
        assert_eq!(shown[0].reason, "wrong_lane");
        scene.conduct.note(peer, Fault::WrongLane, 100);
        assert_eq!(scene.cuts.lock().len(), 1, "told once");
        scene.clock.0.store(60_000_000, Relaxed);
        assert_eq!(scene.conduct.listening(peer), Listening::Fully);
    }

    #[test]
    fn answers_that_a_former_life_asked_for_are_no_fault() {
        let scene = scene(4);
        let peer = ValidatorIndex(1);
        scene.conduct.note(peer, Fault::Unasked, LIMIT);
        assert_eq!(scene.conduct.listening(peer), Listening::Fully);
        scene.clock.0.store(60_000_000, Relaxed);
        scene.conduct.note(peer, Fault::Unasked, LIMIT);
        assert_eq!(scene.conduct.listening(peer), Listening::Cut);
    }

    #[test]
    fn a_fault_now_and_then_is_forgotten() {
        let scene = scene(4);
        for minute in 0..1_000 {
            scene.clock.0.store(minute * 10_000_000, Relaxed);
            scene.conduct.note(ValidatorIndex(2), Fault::Undecodable, 1);
        }
        assert!(scene.cuts.lock().is_empty());
    }

    #[test]
    fn no_more_than_f_are_cut_or_blocked_and_the_next_one_is_muted() {
        let scene = scene(7);
        let offender = |place: u8, standing| OffenderJson {
            identity: Identity([place; 32]),
            validator: ValidatorIndex(u32::from(place)),
            standing,
            reason: "invalid_vote".to_owned(),
            ordered: false,
            since_ms: 0,
            until_ms: None,
            pardoned_until: None,
            proof: None,
        };
        scene.live.set_offenders(vec![
            offender(6, Shown::Blocked),
            offender(5, Shown::Probation),
        ]);
        for place in [1, 2] {
            scene
                .conduct
                .note(ValidatorIndex(place), Fault::Forged, LIMIT);
        }
        let listening = |place| scene.conduct.listening(ValidatorIndex(place));
        assert_eq!(listening(1), Listening::Cut);
        assert_eq!(listening(2), Listening::Muted);
        assert_eq!(scene.conduct.cut(), [ValidatorIndex(1)]);
        // The replica blocks one more.
        scene.live.set_offenders(vec![
            offender(6, Shown::Blocked),
            offender(5, Shown::Blocked),
        ]);
        scene.conduct.make_room();
        assert_eq!(listening(1), Listening::Muted);
        assert_eq!(scene.cuts.lock().last(), Some(&Identity([1; 32])));
        // Who is blocked anyway takes nobody's room.
        scene
            .conduct
            .note(ValidatorIndex(6), Fault::Oversized, LIMIT);
        assert_eq!(listening(6), Listening::Cut);
        let shown = scene.live.offenders();
        assert_eq!(shown.len(), 4, "one entry for each: {shown:?}");
    }
}
