//! What the HotStuff protocols share: locks, what is carried to a leader around a dead one, and joining others in a later view.

use crate::{
    engine::Engine,
    io::{Moment, Step, Target},
    rounds::round::Round,
};
use quorate_crypto::Digest;
use quorate_types::{Message, ValidatorIndex, View, Vote};
use std::collections::BTreeMap;

/// Rounds of all leaders without finality after which the blocked validators may be needed.
const ROUNDS_IN_NEED: u64 = 4;

/// Finalize votes that are carried to the next leader.
const CARRIED_FINALIZE: usize = 3;

impl Engine {
    /// The view that must not be passed over by what this validator votes for.
    pub(super) fn lock_view(&self) -> View {
        let tip = self.tip().view;
        let mut above = self.views.range(tip.next()..).rev();
        let locked = above.find(|(_, round)| round.own.finalize.is_some());
        let locked = locked.map_or(tip, |(view, _)| *view);
        // Without its database the tip is an old one, and the journal holds no votes below the newest finalization.
        self.staging
            .target_view()
            .map_or(locked, |final_view| final_view.max(locked))
    }

    /// The newest notarized view and its block.
    pub(super) fn newest_notarized(&self) -> (View, Digest) {
        let tip = self.tip();
        let mut above = self.views.range(tip.view.next()..).rev();
        let newest = above.find_map(|(view, round)| Some((*view, round.notarized()?)));
        newest.unwrap_or((tip.view, tip.id))
    }

    /// The votes that the next leader may lack: the last notarize vote, and the newest finalize votes.
    fn carried_votes(&self) -> Vec<Vote> {
        let above = || self.views.range(self.tip().view.next()..).rev();
        let finalize = above()
            .filter(|(_, round)| round.finalization.is_none())
            .filter_map(|(_, round)| round.own.finalize)
            .take(CARRIED_FINALIZE);
        let mut last = above().filter_map(|(view, round)| Some((view, round, round.own.notarize?)));
        let last = last
            .next()
            .filter(|(_, round, _)| round.notarized().is_none());
        last.into_iter()
            .map(|(_, _, vote)| vote)
            .chain(finalize)
            .collect()
    }

    /// Tells a leader what may make certificates that it lacks (H5, B5).
    pub(super) fn carry(&self, step: &mut Step, leader: ValidatorIndex) {
        if self.own_place() == Some(leader) {
            return;
        }
        for vote in self.carried_votes() {
            self.say_again(step, Target::One(leader), vote);
        }
        let (view, _) = self.newest_notarized();
        let newest = match view > self.tip().view {
            true => self.views.get(view).and_then(Round::block_certificate),
            false => self.tip().certificate.as_ref(),
        };
        let newest = newest.filter(|held| held.subject.epoch == self.epoch());
        if let Some(certificate) = newest.cloned() {
            step.send(Target::One(leader), Message::Certificate(certificate));
        }
    }

    /// The highest view that f + 1 validators are in or above, by their nullify votes, if that is above the current one (H2, B2).
    pub(super) fn joined_ahead(&self) -> Option<View> {
        let mut furthest: BTreeMap<usize, View> = BTreeMap::new();
        for (view, round) in self.views.range(self.view().next()..) {
            furthest.extend(round.nullifying().map(|place| (place, *view)));
        }
        let mut views: Vec<View> = furthest.into_values().collect();
        views.sort_unstable_by(|a, b| b.cmp(a));
        views.get(self.committee.faults()).copied()
    }

    /// Whether nothing has become final for so long that the blocked validators may be needed (H10, B10, P8).
    pub(super) fn lacks_finality(&self) -> bool {
        // A turn that was cut short counts as one step.
        let steps = self.committee.steps(self.tip().view, self.view());
        steps > ROUNDS_IN_NEED * self.committee.size() as u64
    }

    /// Whether f + 1 validators have said nullify in a view.
    pub(super) fn is_given_up(&self, view: View) -> bool {
        let round = self.views.get(view);
        round.is_some_and(|round| round.nullifying().count() > self.committee.faults())
    }

    /// Whether f + 1 that have given up the current view, or are ahead, are followed: this validator has given it up, too, or
    /// they have for a while (H5, B2).
    pub(super) fn follows(&mut self, now: Moment) -> bool {
        let round = self.views.get(self.view());
        round.is_some_and(|round| round.own.nullify.is_some()) || self.pacemaker.heeds(now)
    }
}
