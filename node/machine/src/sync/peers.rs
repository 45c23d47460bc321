//! The peers that state sync fetches from.

use super::{
    LONE_OFFER_AFTER,
    progress::{EXPLAINED_AFTER, Lack},
    work::Item,
};
use crate::directory::PeerIndex;
use quorate_api::verdict::counted;
use quorate_consensus::Moment;
use quorate_types::{ChunkRequest, Epoch, Height, SnapshotProof, SnapshotSubject, ValidatorSet};
use std::time::Duration;

/// Requests that a peer has at first, and at least if it delivers: while one is answered, the next one waits there. With
/// one alone, whoever else fetches from that peer would be served in between.
const FIRST_WINDOW: usize = 2;

/// Most requests that a peer has at once: 17 MB, which fill 1 Gbit/s over 130 ms.
pub(super) const MAX_WINDOW: usize = 24;

/// A part that takes so many times a peer's shortest time waits behind others of the same peer.
const QUEUED: u32 = 4;

/// How long a part takes before the first one has come, and at least.
const FIRST_PART_TAKES: Duration = Duration::from_secs(1);
const LEAST_PART_TAKES: Duration = Duration::from_millis(50);

/// What counts as the time of a part that a peer does not deliver.
const REFUSAL_COUNTS_AS: Duration = Duration::from_secs(5);

/// One peer.
#[derive(Default)]
pub(super) struct Peer {
    pub(super) linked: bool,
    /// Whether a request for its newest snapshot is unanswered.
    pub(super) asked: bool,
    /// Whether it has said anything about its snapshots.
    pub(super) answered: bool,
    /// Its newest snapshot, verified, and what it was verified by.
    pub(super) offer: Option<SnapshotSubject>,
    pub(super) proof: Option<SnapshotProof>,
    /// The validators of the next epoch, if the offered state names others.
    pub(super) next: Option<ValidatorSet>,
    /// Whether it has said all that it knows of who validates.
    pub(super) told_all: bool,
    /// A snapshot that cannot be judged before it has.
    pub(super) unproven: Option<Box<SnapshotProof>>,
    /// The epoch after which it was asked who validates, as long as that is unanswered.
    pub(super) asked_after: Option<Epoch>,
    /// The snapshot that it said it does not have.
    pub(super) absent: Option<Height>,
    pub(super) outstanding: Vec<(ChunkRequest, Moment)>,
    pub(super) window: usize,
    /// When it last answered a request.
    heard: Option<Moment>,
    /// The bytes of the largest part that has come.
    largest: usize,
    /// The shortest time that a part of about that size took, and the mean.
    least: Option<Duration>,
    mean: Option<Duration>,
    /// Whether it was caught with something invalid.
    pub(super) banned: bool,
}

impl Peer {
    /// The link is lost, and with it the requests. Returns what was requested.
    pub(super) fn unlink(&mut self) -> Vec<Item> {
        self.linked = false;
        self.asked = false;
        (self.asked_after, self.told_all) = (None, false);
        self.forget_requests()
    }

    /// Forgets the requests. Returns what was requested.
    pub(super) fn forget_requests(&mut self) -> Vec<Item> {
        let requests = std::mem::take(&mut self.outstanding);
        requests.iter().map(|(request, _)| item(request)).collect()
    }

    /// Forgets the requests that have waited for too long. Returns what was requested.
    pub(super) fn take_overdue(&mut self, now: Moment, limit: Duration) -> Vec<Item> {
        let is_late = |sent: &Moment| now >= sent.after(limit);
        let (late, rest) = std::mem::take(&mut self.outstanding)
            .into_iter()
            .partition::<Vec<_>, _>(|(_, sent)| is_late(sent));
        self.outstanding = rest;
        if !late.is_empty() {
            self.is_slow(limit);
        }
        late.iter().map(|(request, _)| item(request)).collect()
    }

    /// Whether it has answered nothing for a while, although something is requested.
    pub(super) fn hangs(&self, now: Moment) -> bool {
        let first = self.outstanding.iter().map(|(_, sent)| *sent).min();
        let since = first.max(self.heard);
        first.is_some() && since.is_some_and(|since| now >= since.after(EXPLAINED_AFTER))
    }

    /// It says that a part cannot be had, for a reason that is unlikely.
    pub(super) fn refused(&mut self) {
        self.is_slow(REFUSAL_COUNTS_AS);
    }

    /// The fastest is asked first, and this one is not.
    fn is_slow(&mut self, least: Duration) {
        self.window = 1;
        self.mean = Some(self.mean.map_or(least, |mean| mean.max(least)));
    }

    /// Upon an answer: how long it took; `None` if it was not requested.
    pub(super) fn answered(&mut self, request: &ChunkRequest, now: Moment) -> Option<Duration> {
        let place = self
            .outstanding
            .iter()
            .position(|(asked, _)| asked == request)?;
        let (_, sent) = self.outstanding.swap_remove(place);
        self.heard = Some(now);
        Some(now.since(sent))
    }

    /// Upon a verified part of so many bytes. The window grows as long as requests do not wait for each
    /// other, and shrinks if they wait for long. Small parts are no measure: the first one is often
    /// small, and all others would seem to wait.
    pub(super) fn delivered(&mut self, took: Duration, bytes: usize) {
        if bytes > 2 * self.largest {
            self.least = None;
        }
        self.largest = self.largest.max(bytes);
        if 2 * bytes < self.largest {
            return;
        }
        let least = self.least.map_or(took, |least| least.min(took));
        self.least = Some(least);
        self.mean = Some(self.mean.map_or(took, |mean| (mean * 7 + took) / 8));
        if took > least * QUEUED {
            self.window = (self.window / 2).max(FIRST_WINDOW.min(self.window));
        } else if took <= least * 2 {
            self.window = (self.window + 1).min(MAX_WINDOW);
        }
    }
}

fn item(request: &ChunkRequest) -> Item {
    Item {
        span: request.span,
        since: request.since,
    }
}

/// All peers, by their places in the committee.
pub(super) struct Peers {
    all: Vec<Peer>,
    own: Option<usize>,
    next: usize,
}

impl Peers {
    pub(super) fn new(size: usize, own: Option<PeerIndex>) -> Self {
        let peer = || Peer {
            window: FIRST_WINDOW,
            ..Peer::default()
        };
        Self {
            all: (0..size).map(|_| peer()).collect(),
            own: own.map(PeerIndex::as_usize),
            next: 0,
        }
    }

    pub(super) fn at(&mut self, place: PeerIndex) -> &mut Peer {
        &mut self.all[place.as_usize()]
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        self.all.iter_mut()
    }

    fn usable(&self) -> impl Iterator<Item = (usize, &Peer)> {
        let all = self.all.iter().enumerate();
        all.filter(|(place, peer)| Some(*place) != self.own && peer.linked && !peer.banned)
    }

    /// Number of requests under way.
    pub(super) fn outstanding(&self) -> usize {
        self.all.iter().map(|peer| peer.outstanding.len()).sum()
    }

    /// The peers that were caught with something invalid.
    pub(super) fn banned(&self) -> Vec<PeerIndex> {
        let all = self.all.iter().enumerate();
        let banned = all.filter(|(_, peer)| peer.banned);
        banned.map(|(place, _)| PeerIndex(place)).collect()
    }

    /// Whether a peer offers a snapshot that cannot be verified yet.
    pub(super) fn any_unproven(&self) -> bool {
        self.all.iter().any(|peer| peer.unproven.is_some())
    }

    /// The validators after an offered state, if it names others.
    pub(super) fn next_of(&self, offer: &SnapshotSubject) -> Option<ValidatorSet> {
        let mut offering = self.all.iter();
        let peer = offering.find(|peer| peer.offer.as_ref() == Some(offer))?;
        peer.next.clone()
    }

    /// The peers with a link that were not caught with anything.
    pub(super) fn linked(&self) -> Vec<PeerIndex> {
        self.usable().map(|(place, _)| PeerIndex(place)).collect()
    }

    /// Whether all others are linked and have answered.
    pub(super) fn all_answered(&self) -> bool {
        let mut others = self.all.iter().enumerate();
        others.all(|(place, peer)| Some(place) == self.own || peer.banned || peer.answered)
    }

    /// The newest verified snapshot from a height on that so many peers may have: they offer it or a
    /// newer one, and did not say that they lack it.
    pub(super) fn newest_offer(&self, peers: usize, least: Height) -> Option<SnapshotSubject> {
        let usable = self.usable().map(|(_, peer)| peer);
        let offers = usable.filter_map(|peer| peer.offer.filter(|o| peer.may_have(o.height)));
        let mut offers: Vec<_> = offers.filter(|offer| offer.height >= least).collect();
        offers.sort_by_key(|offer| std::cmp::Reverse(offer.height));
        offers.get(peers.max(1) - 1).copied()
    }

    /// The newest verified snapshot from a height on that so many peers offer.
    pub(super) fn agreed_offer(&self, peers: usize, least: Height) -> Option<SnapshotSubject> {
        let usable = || self.usable().map(|(_, peer)| peer);
        let offers = usable().filter_map(|peer| peer.offer.filter(|o| peer.may_have(o.height)));
        let agreed = offers.filter(|offer| {
            let same = usable().filter(|peer| peer.offer == Some(*offer));
            offer.height >= least && same.count() >= peers
        });
        agreed.max_by_key(|offer| offer.height)
    }

    /// Whether any peer offers another snapshot than this one, from a height on.
    pub(super) fn offer_beside(&self, height: Height, least: Height) -> bool {
        self.usable().any(|(_, peer)| {
            let offer = peer.offer.filter(|offer| offer.height != height);
            offer.is_some_and(|offer| offer.height >= least && peer.may_have(offer.height))
        })
    }

    /// Nobody has delivered anything of this snapshot for long: nobody is asked for it again.
    pub(super) fn give_up(&mut self, height: Height) {
        for peer in &mut self.all {
            peer.absent = Some(height);
        }
    }

    /// Whether a peer may have this snapshot.
    pub(super) fn have(&self, height: Height) -> bool {
        self.usable().any(|(_, peer)| peer.may_have(height))
    }

    /// The peers that may have this snapshot, the fastest first.
    pub(super) fn serving(&self, height: Height) -> Vec<PeerIndex> {
        let mut serving: Vec<_> = self
            .usable()
            .filter(|(_, peer)| peer.may_have(height))
            .map(|(place, peer)| (peer.mean, place))
            .collect();
        serving.sort_unstable();
        serving
            .into_iter()
            .map(|(_, place)| PeerIndex(place))
            .collect()
    }

    /// How long a part takes with the fastest peer.
    pub(super) fn usual_time(&self) -> Duration {
        let fastest = self.usable().filter_map(|(_, peer)| peer.mean).min();
        fastest.unwrap_or(FIRST_PART_TAKES).max(LEAST_PART_TAKES)
    }

    /// How long a part takes with a peer.
    pub(super) fn takes(&self, peer: PeerIndex) -> Duration {
        let mean = self.all[peer.as_usize()].mean;
        mean.unwrap_or(FIRST_PART_TAKES).max(LEAST_PART_TAKES)
    }

    /// One linked peer after the other.
    pub(super) fn next_in_turn(&mut self) -> Option<PeerIndex> {
        let linked = self.linked();
        let place = linked.get(self.next % linked.len().max(1))?;
        self.next += 1;
        Some(*place)
    }

    /// What is missing, as far as all linked peers have said.
    pub(super) fn lack(&self) -> Option<Lack> {
        let mut usable = self.usable().map(|(_, peer)| peer).peekable();
        if usable.peek().is_none() {
            return Some(Lack::Links);
        }
        let none_has_any = usable.all(|peer| peer.answered && peer.offer.is_none());
        none_has_any.then_some(Lack::Snapshots)
    }

    /// Whether there are so many peers at all, linked or not.
    pub(super) fn can_agree(&self, enough: usize) -> bool {
        self.all.len() - usize::from(self.own.is_some()) >= enough
    }

    /// What is waited for while there is no target of at least this height.
    pub(super) fn waiting_text(&self, least: Height) -> String {
        let linked = self.usable().count();
        let others = self.all.len() - usize::from(self.own.is_some());
        let answered = self.usable().filter(|(_, peer)| peer.answered).count();
        let offering = self.usable().filter(|(_, peer)| peer.offer.is_some());
        let newest = self.newest_offer(1, Height(0));
        match newest {
            _ if linked == 0 => format!("a link to a peer: none of {others} is linked"),
            None if answered < linked && linked == 1 => {
                "the only linked peer to say which snapshots it has".to_owned()
            }
            None if answered < linked => {
                format!(
                    "{} of {linked} linked peers to say which snapshots they have",
                    linked - answered
                )
            }
            None if linked == 1 => "a snapshot: the only linked peer has none".to_owned(),
            None => format!("a snapshot: none of the {linked} linked peers has one"),
            Some(newest) if newest.height >= least && answered < linked => {
                "the answers of the other peers".to_owned()
            }
            Some(newest) if newest.height >= least => format!(
                "a second peer with a snapshot of block {} or a later one: what a single one offers may be \
                 a lure, and is taken {} s after it came",
                newest.height,
                LONE_OFFER_AFTER.as_secs()
            ),
            Some(newest) => format!(
                "a snapshot of block {least} or a later one: the newest of {} is that of block {}",
                counted(offering.count() as u64, "peer"),
                newest.height
            ),
        }
    }
}

impl Peer {
    fn may_have(&self, height: Height) -> bool {
        self.offer.is_some_and(|offer| offer.height >= height) && self.absent != Some(height)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::{Digest, Span};

    #[test]
    fn who_leaves_requests_unanswered_is_asked_last() {
        let offer = SnapshotSubject {
            height: Height(9),
            id: Digest::ZERO,
            root: Digest::ZERO,
        };
        let request = ChunkRequest {
            height: offer.height,
            span: Span::ALL,
            since: Height(0),
        };
        let mut peers = Peers::new(10, Some(PeerIndex(0)));
        for peer in peers.iter_mut() {
            peer.linked = true;
            peer.offer = Some(offer);
        }
        let limit = Duration::from_secs(30);
        let silent: Vec<_> = (1..4).map(PeerIndex).collect();
        for place in &silent {
            let peer = peers.at(*place);
            peer.outstanding.push((request, Moment(0)));
            assert_eq!(peer.take_overdue(Moment(0).after(limit), limit).len(), 1);
            assert_eq!(peer.window, 1);
        }
        for place in 4..10 {
            peers
                .at(PeerIndex(place))
                .delivered(Duration::from_secs(20), 1_000);
        }
        assert_eq!(peers.serving(offer.height)[6..], silent);
    }

    #[test]
    fn who_answers_nothing_for_a_while_hangs() {
        let request = ChunkRequest {
            height: Height(9),
            span: Span::ALL,
            since: Height(0),
        };
        let sent = Moment(0);
        let mut peer = Peer::default();
        assert!(
            !peer.hangs(sent.after(EXPLAINED_AFTER)),
            "nothing is requested"
        );
        peer.outstanding = vec![(request, sent); 2];
        assert!(!peer.hangs(sent));
        assert!(peer.hangs(sent.after(EXPLAINED_AFTER)));
        let answered = sent.after(EXPLAINED_AFTER);
        assert!(peer.answered(&request, answered).is_some());
        assert!(!peer.hangs(answered), "one of two has come");
        assert!(peer.hangs(answered.after(EXPLAINED_AFTER)));
    }

    #[test]
    fn what_is_waited_for_fits_the_number_of_peers() {
        let mut peers = Peers::new(1, None);
        let said = |peers: &Peers| peers.waiting_text(Height(0));
        assert_eq!(said(&peers), "a link to a peer: none of 1 is linked");
        assert_eq!(peers.lack(), Some(Lack::Links));
        peers.at(PeerIndex(0)).linked = true;
        let asked = "the only linked peer to say which snapshots it has";
        assert_eq!((said(&peers).as_str(), peers.lack()), (asked, None));
        peers.at(PeerIndex(0)).answered = true;
        let none = "a snapshot: the only linked peer has none";
        let lack = Some(Lack::Snapshots);
        assert_eq!((said(&peers).as_str(), peers.lack()), (none, lack));
        peers.at(PeerIndex(0)).offer = Some(SnapshotSubject {
            height: Height(9),
            id: Digest::ZERO,
            root: Digest::ZERO,
        });
        assert!(said(&peers).contains("of block 9 or a later one: what a single one offers"));
        let resumed = peers.waiting_text(Height(9));
        assert_eq!(resumed, said(&peers), "it may be the target again");
        let later = peers.waiting_text(Height(10));
        assert!(
            later.starts_with("a snapshot of block 10 or a later one"),
            "{later}"
        );
        assert!(peers.can_agree(1) && !peers.can_agree(2));
        assert_eq!(peers.lack(), None);
    }

    #[test]
    fn a_first_part_that_is_small_does_not_keep_the_window_small() {
        let ms = Duration::from_millis;
        let mut peer = Peer {
            window: FIRST_WINDOW,
            ..Peer::default()
        };
        peer.delivered(ms(2), 10_000);
        for _ in 0..10 {
            peer.delivered(ms(20), 800_000);
        }
        assert_eq!(peer.window, FIRST_WINDOW + 1 + 10);
        // Small ones in between say nothing; parts that wait for long do.
        peer.delivered(ms(2), 10_000);
        assert_eq!(peer.window, FIRST_WINDOW + 1 + 10);
        peer.delivered(ms(100), 800_000);
        assert_eq!(peer.window, (FIRST_WINDOW + 1 + 10) / 2);
    }
}
