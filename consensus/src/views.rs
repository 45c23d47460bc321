//! The views of an epoch: the one that this validator is in, and what is known of each.

use crate::{config::TAIL_VIEWS, rounds::round::Round};
use quorate_crypto::Digest;
use quorate_types::{Certificate, View};
use std::{collections::BTreeMap, collections::btree_map::Range, ops::RangeBounds};

/// The current view, which only grows within an epoch, and a [`Round`] for each view of which
/// anything is known. Slots and proposals are kept for [`TAIL_VIEWS`] views below the current one,
/// certificates and own votes until the tip is as far above.
pub(crate) struct Views {
    current: View,
    rounds: BTreeMap<View, Round>,
    /// The oldest view whose slots are still kept.
    open_from: View,
}

impl Views {
    /// Nothing is known above the tip's view.
    pub(crate) fn above(tip: View, current: View) -> Self {
        Self {
            current,
            rounds: BTreeMap::new(),
            open_from: tip,
        }
    }

    /// Starts the next epoch in its view 1.
    pub(crate) fn restart(&mut self) {
        *self = Self::above(View(0), View(1));
    }

    pub(crate) fn current(&self) -> View {
        self.current
    }

    pub(crate) fn get(&self, view: View) -> Option<&Round> {
        self.rounds.get(&view)
    }

    pub(crate) fn get_mut(&mut self, view: View) -> Option<&mut Round> {
        self.rounds.get_mut(&view)
    }

    /// The view's round, which is created if nothing was known of it.
    pub(crate) fn at(&mut self, view: View) -> &mut Round {
        self.rounds.entry(view).or_default()
    }

    pub(crate) fn range(&self, views: impl RangeBounds<View>) -> Range<'_, View, Round> {
        self.rounds.range(views)
    }

    /// Views of which anything is known.
    pub(crate) fn len(&self) -> usize {
        self.rounds.len()
    }

    /// The block that a quorum has notarized in a view.
    pub(crate) fn notarized(&self, view: View) -> Option<Digest> {
        self.get(view)?.notarized()
    }

    /// The certificate by which a validator may leave a view.
    pub(crate) fn exit(&self, view: View) -> Option<&Certificate> {
        self.get(view)?.exit()
    }

    /// The certificate of the highest view.
    pub(crate) fn highest_exit(&self) -> Option<&Certificate> {
        self.certificates().next()
    }

    /// The certificates that end views, the newest views' first; of each view, a finalization before a notarization before a
    /// nullification.
    pub(crate) fn certificates(&self) -> impl Iterator<Item = &Certificate> {
        self.rounds.values().rev().flat_map(Round::exits)
    }

    /// Recovery: the journal shows that this validator was in the view.
    pub(crate) fn resume_at(&mut self, view: View) {
        self.current = self.current.max(view);
    }

    /// Moves to a view. Slots of views that are too far below are dropped, and so are proposals of
    /// all views before: a proposal is voted for in its own view only. That of the view before stays while nothing has
    /// ended that view, to be repeated.
    pub(crate) fn enter(&mut self, view: View) {
        assert!(
            view >= self.current,
            "view {view} was entered after view {}",
            self.current
        );
        self.current = view;
        let closed = View(view.0.saturating_sub(TAIL_VIEWS)).max(self.open_from);
        for (_, round) in self.rounds.range_mut(self.open_from..closed) {
            round.shrink();
        }
        self.open_from = closed;
        for (of, round) in self.rounds.range_mut(closed..view) {
            if of.next() < view || round.exit().is_some() {
                round.proposal = None;
            }
        }
    }

    /// Forgets the views below.
    pub(crate) fn forget_below(&mut self, floor: View) {
        while let Some(oldest) = self.rounds.first_entry()
            && *oldest.key() < floor
        {
            oldest.remove();
        }
    }
}
