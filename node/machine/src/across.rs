//! Frames between two validators without a link to each other go around it, over other validators.
//!
//! The protocol expects links between all validators. If the link between two honest validators is
//! missing, neither sees the other's votes and proposals, and each is late wherever the other's
//! vote is needed or the other led the view before. So an author that sends a frame to all signs a
//! copy for each validator that it has no link to ([`Relayed`]) and gives it to two peers that
//! claim to have the link. They forward it unchanged, and the receiver treats it as if it had come
//! over a link.
//!
//! - *Missing links* are announced beside the status, once a second ([`Message::Apart`]). While all
//!   links are up, nothing is announced, signed or relayed.
//! - *The relays change with each frame*, so that a faulty peer that forwards nothing costs some
//!   frames only. A lost frame costs what it costs on a link: votes are repeated.
//! - *A relay cannot forge*: frames are signed and numbered, and no number is accepted twice. A
//!   peer that forwards a frame that its author has not signed is at fault.
//! - *Only frames to all are relayed*, votes to one leader, and inquiries about journals with their answers. Other
//!   requests go to a peer with a link.
//!
//! One missing link between two of four honest validators used to slow the chain 20 to 50 times,
//! because each was a second late wherever the other's votes and proposals were needed. In virtual
//! time, where only messages take time, it costs 12 % now. The worst sets of missing links that
//! leave each validator a quorum cost 26 % (4, 7 and 10 validators). With two pairs of four apart,
//! forwarding cannot bring the cost below 20 %, since every second leader needs a vote that takes
//! two more hops.
//!
//! The alternative was to send certificates to validators that lack them. That needs no signatures,
//! but certificates arrive one hop after the votes and do not carry the block. Forwarded frames
//! must be signed: otherwise anybody could speak for anybody, and the wrong validator would be
//! blamed for a bad vote.

use crate::clock::Clock;
use bytes::Bytes;
use commonware_codec::Encode as _;
use parking_lot::Mutex;
use quorate_consensus::Moment;
use quorate_crypto::SecretKey;
use quorate_types::{
    ChainId, Committees, Frame, Identity, Message, Relayed, ValidatorIndex,
    limits::MAX_RELAYED_BYTES,
};
use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

/// Relays that each frame is given to.
const WAYS: usize = 2;

/// Time after the start during which a missing link does not count as missing.
const PATIENCE: Duration = Duration::from_secs(3);

/// How far a frame's number may be below the author's highest one: relays are not equally fast.
const WINDOW: u64 = 128;

/// The state of the link to a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Link {
    #[default]
    Unknown,
    Up,
    Down,
}

#[derive(Default)]
struct Peer {
    link: Link,
    /// The validators that the peer claims to have a link to. Those without a link to this
    /// validator must be announced again.
    reaches: BTreeSet<ValidatorIndex>,
    taken: Window,
}

/// The numbers of an author's frames that were accepted.
#[derive(Default)]
struct Window {
    highest: u64,
    /// Bit i stands for the number i below the highest one.
    bits: u128,
}

impl Window {
    fn place(&self, number: u64) -> Option<u64> {
        let below = self.highest.checked_sub(number)?;
        (below < WINDOW).then_some(below)
    }

    /// Whether a number has not been accepted before, as far as is known.
    fn is_new(&self, number: u64) -> bool {
        number > self.highest
            || self
                .place(number)
                .is_some_and(|at| self.bits >> at & 1 == 0)
    }

    fn take(&mut self, number: u64) {
        if let Some(ahead) = number.checked_sub(self.highest).filter(|ahead| *ahead > 0) {
            let shift = u32::try_from(ahead).unwrap_or(u32::MAX);
            self.bits = self.bits.checked_shl(shift).unwrap_or(0);
            self.highest = number;
        }
        if let Some(at) = self.place(number) {
            self.bits |= 1 << at;
        }
    }
}

struct State {
    peers: Vec<Peer>,
    /// The number of the last signed frame.
    number: u64,
}

/// Relaying, as the author, on the way, and as the receiver.
pub(crate) struct Across {
    chain: ChainId,
    committees: Committees,
    own: ValidatorIndex,
    secret: SecretKey,
    started: Moment,
    state: Mutex<State>,
    /// Whether any link is down. While none is, nothing is locked.
    any_down: AtomicBool,
}

impl Across {
    /// Until then links may still come up.
    pub(crate) fn new(
        chain: ChainId,
        committees: Committees,
        (own, secret): (ValidatorIndex, SecretKey),
        clock: &dyn Clock,
    ) -> Self {
        let peers = committees
            .known()
            .places()
            .map(|_| Peer::default())
            .collect();
        Self {
            chain,
            committees,
            own,
            secret,
            started: clock.now(),
            state: Mutex::new(State {
                peers,
                // Above all numbers of earlier runs: nobody signs a million frames in a second.
                number: clock.wall_ms().saturating_mul(1_000),
            }),
            any_down: AtomicBool::new(false),
        }
    }

    /// Notes whether there is a link to a peer.
    pub(crate) fn linked(&self, peer: ValidatorIndex, up: bool) {
        let mut state = self.state.lock();
        let Some(known) = state.peers.get_mut(peer.as_usize()) else {
            return;
        };
        known.link = if up { Link::Up } else { Link::Down };
        if !up {
            // If its process has ended, the others will notice as well.
            for other in &mut state.peers {
                other.reaches.remove(&peer);
            }
        }
        self.note_whether_any_is_down(&state);
    }

    fn note_whether_any_is_down(&self, state: &State) {
        let down = state.peers.iter().any(|peer| peer.link == Link::Down);
        self.any_down.store(down, Ordering::Relaxed);
    }

    /// Notes which links a peer says are missing, if its frame holds a status.
    pub(crate) fn heard(&self, from: ValidatorIndex, messages: &[Message]) {
        let mut state = self.state.lock();
        let Some(known) = state.peers.get_mut(from.as_usize()) else {
            return;
        };
        if known.link == Link::Unknown {
            known.link = Link::Up;
        }
        for message in messages {
            match message {
                Message::Status(_) => known.reaches = self.committees.known().places().collect(),
                Message::Apart(apart) => apart.iter().for_each(|peer| {
                    known.reaches.remove(peer);
                }),
                _ => {}
            }
        }
    }

    /// Peers that have never been linked since the start. They count as missing from now on.
    pub(crate) fn never_linked(&self, now: Moment) -> Vec<ValidatorIndex> {
        if now < self.started.after(PATIENCE) {
            return Vec::new();
        }
        let state = self.state.lock();
        let others = self
            .committees
            .known()
            .places()
            .filter(|place| *place != self.own);
        others
            .filter(|place| state.peers[place.as_usize()].link == Link::Unknown)
            .collect()
    }

    /// The announcement of missing links that goes beside a status, if any link is missing.
    pub(crate) fn apart(&self) -> Option<Message> {
        if !self.any_down.load(Ordering::Relaxed) {
            return None;
        }
        let state = self.state.lock();
        let places = self.committees.known().places();
        let apart = places.filter(|place| state.peers[place.as_usize()].link == Link::Down);
        Some(Message::Apart(apart.collect()))
    }

    /// The relayed copies by which a frame reaches the validators without a link, or one of them:
    /// for each copy, the relay and the frame.
    pub(crate) fn ways(
        &self,
        frame: &Bytes,
        only: Option<ValidatorIndex>,
    ) -> Vec<(Identity, Bytes)> {
        let mut sent = Vec::new();
        if !self.any_down.load(Ordering::Relaxed) || frame.len() > MAX_RELAYED_BYTES {
            return sent;
        }
        let mut state = self.state.lock();
        for to in self.committees.known().places() {
            let wanted = only.is_none_or(|only| only == to);
            if !wanted || state.peers[to.as_usize()].link != Link::Down {
                continue;
            }
            let peers = (0..).map(ValidatorIndex).zip(&state.peers);
            let ways = peers.filter(|(_, p)| p.link == Link::Up && p.reaches.contains(&to));
            let ways: Vec<ValidatorIndex> = ways.map(|(way, _)| way).collect();
            if ways.is_empty() {
                continue;
            }
            state.number += 1;
            let number = state.number;
            let author = (self.own, &self.secret);
            let relayed = Relayed::sign(&self.chain, author, to, number, frame.clone());
            let bytes = envelope(relayed);
            let first = (number % ways.len() as u64) as usize;
            for way in ways.iter().cycle().skip(first).take(WAYS.min(ways.len())) {
                let identity = self.committees.known().identity(*way);
                sent.extend(identity.map(|identity| (identity, bytes.clone())));
            }
        }
        sent
    }

    /// Decides what to do with a relayed frame from a peer.
    pub(crate) fn take(&self, from: ValidatorIndex, relayed: Relayed) -> Taken {
        let Relayed {
            author, to, number, ..
        } = relayed;
        let Some(identity) = self.committees.known().identity(author) else {
            return Taken::Forged;
        };
        if to == self.own
            && !self.state.lock().peers[author.as_usize()]
                .taken
                .is_new(number)
        {
            return Taken::Known;
        }
        // Checked on the way too: the receiver counts a bad signature against the relay.
        if !relayed.verify(&self.chain, &identity) {
            return Taken::Forged;
        }
        if to == self.own {
            self.state.lock().peers[author.as_usize()]
                .taken
                .take(number);
            return Taken::Arrived(relayed.frame);
        }
        debug_assert_eq!(
            author, from,
            "the inlet lets only authors have it passed on"
        );
        match self.committees.known().identity(to) {
            Some(to) => Taken::Passed(to, envelope(relayed)),
            None => Taken::Forged,
        }
    }

    /// Whether a peer may give this validator a frame of this author for this receiver: the author
    /// itself, to have it relayed, or a relay, if this validator is the receiver.
    pub(crate) fn may_give(
        &self,
        from: ValidatorIndex,
        author: ValidatorIndex,
        to: ValidatorIndex,
    ) -> bool {
        let known = |place: ValidatorIndex| self.committees.known().identity(place).is_some();
        known(author)
            && known(to)
            && author != self.own
            && author != to
            && (author == from) != (to == self.own)
    }
}

/// What to do with a relayed frame.
pub(crate) enum Taken {
    /// It is for this validator.
    Arrived(Bytes),
    /// It is to be forwarded.
    Passed(Identity, Bytes),
    /// It was accepted before, or a much later one was.
    Known,
    /// Its author has not signed it.
    Forged,
}

fn envelope(relayed: Relayed) -> Bytes {
    Frame(vec![Message::Relayed(Box::new(relayed))]).encode()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::testing::Hand;
    use commonware_codec::DecodeExt as _;
    use quorate_types::{Digest, Epoch, Height, Status, View};

    const CHAIN: ChainId = ChainId(Digest([9; 32]));

    fn key(place: u32) -> SecretKey {
        SecretKey::from_bytes(&[place as u8 + 1; 32])
    }

    fn across(own: u32) -> Across {
        let identities = (0..4).map(|place| key(place).identity()).collect();
        let committees = Committees::fixed(
            quorate_types::Committee::new(Epoch(0), identities).expect("distinct"),
        );
        Across::new(
            CHAIN,
            committees,
            (ValidatorIndex(own), key(own)),
            &Hand::default(),
        )
    }

    fn status() -> Message {
        Message::Status(Status {
            epoch: Epoch(0),
            view: View(3),
            finalized_height: Height(2),
            executed_height: Height(1),
            convicted: Digest::ZERO,
        })
    }

    fn apart(places: &[u32]) -> Message {
        Message::Apart(places.iter().copied().map(ValidatorIndex).collect())
    }

    fn frame() -> Bytes {
        Frame(vec![status()]).encode()
    }

    /// Validator 0, without a link to 1; 2 and 3 have just told how they are.
    fn without_a_link() -> Across {
        let across = across(0);
        across.linked(ValidatorIndex(1), false);
        for peer in [2, 3].map(ValidatorIndex) {
            across.heard(peer, &[status()]);
        }
        across
    }

    fn relayed(bytes: &Bytes) -> Relayed {
        let frame = Frame::decode(bytes.clone()).expect("a frame");
        match frame.0.into_iter().next() {
            Some(Message::Relayed(relayed)) => *relayed,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn nothing_goes_another_way_while_all_are_linked() {
        let across = across(0);
        for peer in [1, 2, 3].map(ValidatorIndex) {
            across.heard(peer, &[status()]);
        }
        assert!(across.ways(&frame(), None).is_empty());
        assert_eq!(across.apart(), None);
        assert!(
            across
                .never_linked(Moment::default().after(PATIENCE))
                .is_empty()
        );
    }

    #[test]
    fn what_was_never_linked_counts_as_apart_after_a_while() {
        let across = across(0);
        across.heard(ValidatorIndex(2), &[status()]);
        across.linked(ValidatorIndex(3), true);
        assert!(across.never_linked(Moment::default()).is_empty());
        let late = Moment::default().after(PATIENCE);
        assert_eq!(across.never_linked(late), [ValidatorIndex(1)]);
    }

    #[test]
    fn those_pass_it_on_who_say_that_they_have_the_link() {
        let across = without_a_link();
        assert_eq!(across.apart(), Some(apart(&[1])));
        let ways = across.ways(&frame(), None);
        let mut identities: Vec<Identity> = ways.iter().map(|(way, _)| *way).collect();
        identities.sort();
        let mut expected = [2, 3].map(|place| key(place).identity());
        expected.sort();
        assert_eq!(identities, expected);
        // One of them lacks it too.
        across.heard(ValidatorIndex(2), &[status(), apart(&[1])]);
        let ways = across.ways(&frame(), None);
        assert_eq!(ways.len(), 1);
        assert_eq!(ways[0].0, key(3).identity());
        // The process at the other end is gone, as far as is known.
        across.linked(ValidatorIndex(1), false);
        assert!(across.ways(&frame(), None).is_empty());
        across.linked(ValidatorIndex(1), true);
        across.heard(ValidatorIndex(2), &[status()]);
        assert!(across.ways(&frame(), None).is_empty());
        assert_eq!(across.apart(), None);
    }

    #[test]
    fn a_frame_goes_its_way_and_is_taken_once() {
        let author = without_a_link();
        let (way, other_end) = (across(2), across(1));
        let sent = relayed(&author.ways(&frame(), None)[0].1);
        let (from, by) = (ValidatorIndex(0), ValidatorIndex(2));
        assert!(way.may_give(from, sent.author, sent.to));
        let Taken::Passed(to, bytes) = way.take(from, sent.clone()) else {
            panic!("it goes on");
        };
        assert_eq!(to, key(1).identity());
        let passed = relayed(&bytes);
        assert!(other_end.may_give(by, passed.author, passed.to));
        let taken = other_end.take(by, passed.clone());
        assert!(matches!(taken, Taken::Arrived(bytes) if bytes == frame()));
        assert!(matches!(other_end.take(by, passed), Taken::Known));
    }

    #[test]
    fn nobody_on_the_way_can_change_a_word() {
        let author = without_a_link();
        let sent = relayed(&author.ways(&frame(), None)[0].1);
        let forged: [fn(&mut Relayed); 4] = [
            |relayed| relayed.number += 1,
            |relayed| relayed.author = ValidatorIndex(3),
            |relayed| relayed.frame = Bytes::from_static(b"something else"),
            |relayed| relayed.to = ValidatorIndex(3),
        ];
        for change in forged {
            let mut changed = sent.clone();
            change(&mut changed);
            let receiver = across(changed.to.0);
            let taken = receiver.take(ValidatorIndex(2), changed);
            assert!(matches!(taken, Taken::Forged));
        }
        assert!(matches!(
            across(2).take(ValidatorIndex(0), sent),
            Taken::Passed(..)
        ));
    }

    #[test]
    fn only_authors_have_something_passed_on_and_only_to_others() {
        let way = across(2);
        let may = |from, author, to| {
            way.may_give(
                ValidatorIndex(from),
                ValidatorIndex(author),
                ValidatorIndex(to),
            )
        };
        assert!(may(0, 0, 1));
        assert!(may(1, 0, 2), "it is for this validator");
        for (from, author, to) in [
            (0, 0, 0),
            (0, 1, 3),
            (0, 2, 1),
            (0, 0, 2),
            (0, 9, 2),
            (0, 0, 9),
        ] {
            assert!(!may(from, author, to), "{from} {author} {to}");
        }
    }

    #[test]
    fn numbers_are_taken_once_within_the_window_and_not_below_it() {
        let mut window = Window::default();
        for number in [5, 3, 4, 200, 100] {
            assert!(window.is_new(number));
            window.take(number);
            assert!(!window.is_new(number), "{number}");
        }
        assert!(window.is_new(199) && window.is_new(73));
        assert!(!window.is_new(72) && !window.is_new(0));
        window.take(u64::MAX);
        assert!(!window.is_new(200) && !window.is_new(u64::MAX));
    }
}
