//! Which part a node takes in an epoch of a chain with a registry, and when it takes another one.

use crate::{clock::Clock, live::LiveStatus};
use quorate_api::verdict::Voter;
use quorate_consensus::Moment;
use quorate_lanes::PeerStatus;
use quorate_storage::store::{Store, StoredTip};
use quorate_types::{
    Committees, Height, Identity, Succession, ValidatorIndex, ValidatorSet, VoteKey,
};
use std::{sync::Arc, time::Duration};

/// The age of the newest block from which on a node that starts follows first: the others may be epochs
/// ahead, with other validators.
pub const OLD_MS: u64 = 10_000;

/// The age of the newest block up to which a node is in step.
const IN_STEP_MS: u64 = 3_000;

/// A node with a seat that found nothing newer for so long takes part again; and the same if so many other validators of the epoch
/// say that they have nothing newer that they are a quorum with it.
const NOTHING_NEWER: Duration = Duration::from_secs(5);
const NOTHING_NEWER_SAID: Duration = Duration::from_secs(1);

/// How often in a row, once a second, too few validators of the epoch must be heard.
const ALONE_FOR: u32 = 15;

/// The same for f + 1 others that say they work in a later epoch, since at a border they are ahead for a moment; and for a
/// validator that is linked with none of its epoch's, and with another node.
const LEFT_FOR: u32 = 3;

/// A validator's place in an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seat {
    At(ValidatorIndex),
    /// The registry has another vote key for this validator.
    OtherKey,
    None,
}

/// The place of this identity with this vote key.
pub fn seat(set: &ValidatorSet, own: &Identity, key: &VoteKey) -> Seat {
    let mut members = set.members().iter();
    match members.position(|member| member.identity == *own) {
        None => Seat::None,
        Some(place) if set.members()[place].vote_key == *key => Seat::At(ValidatorIndex::at(place)),
        Some(_) => Seat::OtherKey,
    }
}

/// Why a node that follows takes another part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crossed {
    /// It has a seat, all blocks that there are, and a link to another validator of the epoch.
    InStep,
    /// It has a seat, and nobody has sent a newer block for a while.
    NothingNewer,
    /// The validators that it follows are not the next epoch's.
    ValidatorsChange,
}

/// Finds out when a node that follows takes another part.
pub struct Borders {
    committees: Committees,
    store: Store,
    clock: Arc<dyn Clock>,
    live: Arc<LiveStatus>,
    /// Whether it could take part in the epoch, and only looks for newer blocks.
    has_seat: bool,
    newest: (Height, Moment),
}

impl Borders {
    pub fn new(
        committees: Committees,
        store: Store,
        clock: Arc<dyn Clock>,
        live: Arc<LiveStatus>,
        has_seat: bool,
    ) -> Self {
        Self {
            newest: (store.tip().height, clock.now()),
            committees,
            store,
            clock,
            live,
            has_seat,
        }
    }

    /// To be called whenever the follower has run.
    pub fn look(&mut self) -> Option<Crossed> {
        if self.has_seat {
            let (tip, now) = (self.store.tip(), self.clock.now());
            if tip.height > self.newest.0 {
                self.newest = (tip.height, now);
            }
            // Without a link to another validator it would hear of no block any more. While blocks come from elsewhere, the
            // others do without its vote.
            if self.is_in_step(&tip) && self.live.is_linked_with_a_validator() {
                return Some(Crossed::InStep);
            }
            let looks_for = match self.live.quorum_has_nothing_newer(tip.height) {
                true => NOTHING_NEWER_SAID,
                false => NOTHING_NEWER,
            };
            if now.since(self.newest.1) >= looks_for {
                return Some(Crossed::NothingNewer);
            }
        }
        let epoch = self.committees.known().epoch();
        // With a seat in the next epoch it goes on following until it is in step: epochs that others have left
        // must not hold it up.
        let changes = self.committees.succession(epoch) == Succession::Changes;
        changes.then_some(Crossed::ValidatorsChange)
    }

    /// Whether the newest block has just been made.
    fn is_in_step(&self, tip: &StoredTip) -> bool {
        let newest = tip.block.as_ref();
        newest.is_some_and(|block| {
            let made = block.header().timestamp_ms;
            self.clock.wall_ms() < made.saturating_add(IN_STEP_MS)
        })
    }
}

/// Finds out that the others are epochs ahead, with other validators: f + 1 say so, or so few validators of the
/// epoch are heard that no block of it can become final.
pub struct Alone {
    live: Arc<LiveStatus>,
    seconds: u32,
    left: u32,
    newest: Height,
}

impl Alone {
    /// `None` if the validators cannot change.
    pub fn new(live: Arc<LiveStatus>) -> Option<Self> {
        live.committees().can_change().then(|| Self {
            newest: live.finalized_height(),
            seconds: 0,
            left: 0,
            live,
        })
    }

    /// To be called once a second.
    pub fn look(&mut self, peers: &[PeerStatus]) -> bool {
        let verdict = self.live.verdict(peers);
        let heard = verdict
            .others
            .iter()
            .filter(|one| matches!(one.state, Voter::Votes | Voter::Fresh));
        let newest = self.live.finalized_height();
        let stands = newest == self.newest;
        let is_alone = stands && heard.count() + 1 < verdict.quorum;
        let known = self.live.committees().known();
        let acts = |peer: &&PeerStatus| known.place(&peer.identity).is_some();
        let linked: Vec<&PeerStatus> = peers.iter().filter(|peer| peer.connected).collect();
        let is_cut_off = is_alone && !linked.is_empty() && !linked.iter().any(acts);
        let are_ahead = stands && self.live.network_epoch() > Some(self.live.epoch());
        self.newest = newest;
        self.seconds = if is_alone { self.seconds + 1 } else { 0 };
        self.left = match are_ahead || is_cut_off {
            true => self.left + 1,
            false => 0,
        };
        self.seconds >= ALONE_FOR || self.left >= LEFT_FOR
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::following::Upstream;
    use quorate_types::{Digest, Epoch, Member, Roster, Status, View};

    /// Validator 0 of four that can change, in epoch 7.
    fn live() -> Arc<LiveStatus> {
        let members = (0..4).map(|byte| Member {
            identity: Identity([byte; 32]),
            vote_key: VoteKey([byte; 96]),
            address: Default::default(),
            name: Default::default(),
        });
        let set = ValidatorSet::of_members(Epoch(7), members.collect());
        let committees = Committees::changing(vec![set], Epoch(7), Epoch(7), Roster::new());
        let live = LiveStatus::new(committees.expect("four"), ValidatorIndex(0));
        live.set_progress(Epoch(7), View(5), Height(700));
        Arc::new(live)
    }

    fn says(live: &LiveStatus, place: u32, epoch: u64) {
        let status = Status {
            epoch: Epoch(epoch),
            view: View(1),
            finalized_height: Height(700),
            executed_height: Height(700),
            convicted: Digest::ZERO,
        };
        live.peer_status(ValidatorIndex(place), &status, Moment(0));
    }

    #[test]
    fn nothing_is_newer_once_a_quorum_says_so() {
        let committees = live().committees().clone();
        let follows = LiveStatus::of_follower(committees);
        let said = |claims: &[(u8, bool, u64)]| {
            let upstreams = claims.iter().map(|(byte, linked, claimed)| Upstream {
                identity: Identity([*byte; 32]),
                linked: *linked,
                acts: *byte < 4,
                claimed: Some(Height(*claimed)),
                oldest: None,
            });
            follows.set_upstreams(upstreams.collect());
            follows.quorum_has_nothing_newer(Height(700))
        };
        assert!(said(&[(1, true, 700), (2, true, 650), (3, false, 700)]));
        // One of them may lie.
        assert!(said(&[(1, true, 700), (2, true, 700), (3, true, 800)]));
        assert!(!said(&[(1, true, 700), (2, true, 701), (3, false, 700)]));
        assert!(!said(&[(1, true, 700), (7, true, 700), (8, true, 700)]));
    }

    #[test]
    fn who_hears_that_more_than_f_have_gone_on_to_a_later_epoch_is_outdated_within_seconds() {
        let live = live();
        let mut alone = Alone::new(live.clone()).expect("they can change");
        // One may lie.
        says(&live, 1, 900);
        says(&live, 2, 7);
        assert_eq!((0..LEFT_FOR + 1).filter(|_| alone.look(&[])).count(), 0);
        says(&live, 3, 8);
        assert!(!alone.look(&[]) && !alone.look(&[]));
        // It has only been slower.
        live.set_progress(Epoch(7), View(6), Height(701));
        assert!(!alone.look(&[]) && !alone.look(&[]) && !alone.look(&[]));
        assert!(alone.look(&[]));
        live.set_progress(Epoch(8), View(1), Height(701));
        let mut alone = Alone::new(live).expect("they can change");
        assert_eq!((0..ALONE_FOR - 1).filter(|_| alone.look(&[])).count(), 0);
        assert!(alone.look(&[]), "nobody is heard");
    }
}
