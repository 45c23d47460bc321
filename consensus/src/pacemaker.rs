//! When a view has taken too long.

use crate::{config::Timing, io::Moment};
use quorate_types::{ValidatorIndex, View};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

/// Doublings of the time-outs after which they stay as they are.
const MAX_DOUBLINGS: u32 = 10;

/// Views that were left and whose proposals may still tell how long they took.
const MAX_LEFT: usize = 16;

/// The timers of the current view, as moments, and who has been silent.
///
/// A time-out that is too short for what the network carries ends every view before its block is
/// there, and the longer nothing becomes final, the larger the next block is. So proposals are timed,
/// those too that come after their view was given up, and the time-out is at least twice what the
/// slowest leader but f took in its last view. Leaders that are slow on purpose are f at most: they
/// cannot stretch it.
pub(crate) struct Pacemaker {
    timing: Timing,
    /// Leaders that may be faulty.
    faults: usize,
    /// When the current view and those before it were entered, oldest first.
    entered: VecDeque<(View, Moment)>,
    /// Each leader's last view with a proposal, and how long that took from entering the view.
    took: BTreeMap<ValidatorIndex, (View, Duration)>,
    /// When the proposal must be there.
    leader_due: Option<Moment>,
    /// When the view must have moved.
    view_due: Option<Moment>,
    /// When the nullify is sent again.
    resend_due: Option<Moment>,
    /// Views in a row that brought nothing.
    barren: u32,
    /// Leaders that let their view pass and have not been heard of since.
    silent: BTreeSet<ValidatorIndex>,
}

/// A timer that has fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alarm {
    /// The proposal is overdue.
    Leader,
    /// The view is overdue.
    View,
    /// It is time to repeat what was said.
    Resend,
}

impl Pacemaker {
    pub(crate) fn new(timing: Timing, faults: usize, now: Moment) -> Self {
        let mut pacemaker = Self {
            timing,
            faults,
            entered: VecDeque::new(),
            took: BTreeMap::new(),
            leader_due: None,
            view_due: None,
            resend_due: None,
            barren: 0,
            silent: BTreeSet::new(),
        };
        pacemaker.enter(now, View(1), true, false);
        pacemaker
    }

    /// Starts a view's timers. `brought` tells whether the view before brought a block;
    /// `hopeless`, that its leader will not propose, so that there is nothing to wait for.
    pub(crate) fn enter(&mut self, now: Moment, view: View, brought: bool, hopeless: bool) {
        if self.entered.len() > MAX_LEFT {
            self.entered.pop_front();
        }
        self.entered.push_back((view, now));
        self.barren = if brought {
            0
        } else {
            self.barren.saturating_add(1)
        };
        // Votes may be lost as well as proposals, long before anybody gives the view up.
        self.plan_resend(now);
        let patience = self.patience();
        let voting = self.timing.view_timeout;
        let voting = voting.saturating_sub(self.timing.leader_timeout);
        self.leader_due = Some(if hopeless {
            now
        } else {
            now.after(self.stretch(patience, self.barren))
        });
        self.view_due = Some(now.after(self.stretch(patience + voting, self.barren)));
    }

    /// Notes that the first proposal of a view has come from its leader.
    pub(crate) fn proposed(&mut self, now: Moment, view: View, leader: ValidatorIndex) {
        let last = self.took.get(&leader).map(|(view, _)| *view);
        if last >= Some(view) {
            return;
        }
        let entered = self.entered.iter().rev().find(|(of, _)| *of == view);
        // A view that is still to come was not waited for; of one long left nothing is known.
        let took = match (entered, self.entered.back()) {
            (Some((_, entered)), _) => now.since(*entered),
            (None, Some((current, _))) if view > *current => Duration::ZERO,
            (None, _) => return,
        };
        self.took.insert(leader, (view, took));
    }

    /// How long to wait for a proposal when the view before brought a block.
    fn patience(&self) -> Duration {
        let mut slowest: Vec<Duration> = self.took.values().map(|(_, took)| *took).collect();
        slowest.sort_unstable_by(|a, b| b.cmp(a));
        let honest = slowest.get(self.faults).copied().unwrap_or_default();
        let usual = self.timing.leader_timeout;
        let most = self.timing.max_timeout.max(usual);
        honest.saturating_mul(2).clamp(usual, most)
    }

    /// How many views in a row have brought no block.
    pub(crate) fn barren_views(&self) -> usize {
        self.barren as usize
    }

    /// Notes that a validator is alive.
    pub(crate) fn heard(&mut self, from: ValidatorIndex) {
        self.silent.remove(&from);
    }

    /// Notes that a leader let its view pass.
    pub(crate) fn missed(&mut self, leader: ValidatorIndex) {
        self.silent.insert(leader);
    }

    pub(crate) fn is_silent(&self, validator: ValidatorIndex) -> bool {
        self.silent.contains(&validator)
    }

    /// The next timer that has fired by now, and clears it.
    pub(crate) fn fire(&mut self, now: Moment) -> Option<Alarm> {
        let fired = |due: &mut Option<Moment>| due.take_if(|due| *due <= now).is_some();
        if fired(&mut self.leader_due) {
            Some(Alarm::Leader)
        } else if fired(&mut self.view_due) {
            Some(Alarm::View)
        } else if fired(&mut self.resend_due) {
            Some(Alarm::Resend)
        } else {
            None
        }
    }

    /// Plans the next repetition. Always as soon: when a partition heals, it is what brings the
    /// validators together again, and it costs a few small messages.
    pub(crate) fn plan_resend(&mut self, now: Moment) {
        self.resend_due = Some(now.after(self.timing.resend_interval));
    }

    /// The shortest time between two repetitions.
    pub(crate) fn resend_interval(&self) -> Duration {
        self.timing.resend_interval
    }

    /// When the next timer fires.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        [self.leader_due, self.view_due, self.resend_due]
            .into_iter()
            .flatten()
            .min()
    }

    fn stretch(&self, base: Duration, doublings: u32) -> Duration {
        let stretched = base.saturating_mul(1 << doublings.min(MAX_DOUBLINGS));
        stretched.min(self.timing.max_timeout.max(base))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_double_while_views_bring_nothing_and_fall_back_when_one_does() {
        let timing = Timing {
            resend_interval: Duration::from_secs(1_000),
            ..Timing::default()
        };
        let mut pacemaker = Pacemaker::new(timing, 1, Moment(0));
        assert_eq!(
            pacemaker.deadline(),
            Some(Moment(0).after(timing.leader_timeout))
        );
        for expected in [2, 4, 8] {
            pacemaker.enter(Moment(0), View(2), false, false);
            let due = Moment(0).after(timing.leader_timeout * expected);
            assert_eq!(pacemaker.deadline(), Some(due));
        }
        for _ in 0..100 {
            pacemaker.enter(Moment(0), View(2), false, false);
        }
        assert_eq!(
            pacemaker.deadline(),
            Some(Moment(0).after(timing.max_timeout))
        );
        pacemaker.enter(Moment(0), View(2), true, false);
        assert_eq!(
            pacemaker.deadline(),
            Some(Moment(0).after(timing.leader_timeout))
        );
    }

    #[test]
    fn a_hopeless_view_is_overdue_at_once() {
        let mut pacemaker = Pacemaker::new(Timing::default(), 1, Moment(0));
        pacemaker.enter(Moment(7), View(2), true, true);
        assert_eq!(pacemaker.fire(Moment(7)), Some(Alarm::Leader));
        assert_eq!(pacemaker.fire(Moment(7)), None);
    }

    /// A pacemaker of seven validators, two of which may be faulty, that goes through views in which
    /// proposals take so long; and the time-out afterwards.
    fn timeout_after(took: &[(u32, Duration)]) -> Duration {
        let timing = Timing {
            resend_interval: Duration::from_secs(1_000),
            ..Timing::default()
        };
        let mut now = Moment(0);
        let mut pacemaker = Pacemaker::new(timing, 2, now);
        for (view, (leader, took)) in (1..).map(View).zip(took) {
            now = now.after(*took);
            pacemaker.proposed(now, view, ValidatorIndex(*leader));
            pacemaker.enter(now, view.next(), true, false);
        }
        pacemaker.deadline().expect("it waits").since(now)
    }

    #[test]
    fn proposals_that_take_long_are_waited_for_but_f_leaders_cannot_stretch_the_timeout() {
        let [slow, slower] = [900, 20_000].map(Duration::from_millis);
        let usual = Timing::default().leader_timeout;
        let mut leaders = vec![(0, slower), (1, slower), (2, Duration::ZERO)];
        assert_eq!(timeout_after(&leaders), usual);
        leaders.push((3, slow));
        assert_eq!(timeout_after(&leaders), 2 * slow);
        // However often the faulty ones lead, each counts once.
        leaders.extend([(0, slower), (1, slower), (3, Duration::ZERO)]);
        assert_eq!(timeout_after(&leaders), usual);
        leaders.extend([(3, slower)]);
        assert_eq!(timeout_after(&leaders), Timing::default().max_timeout);
    }

    #[test]
    fn a_proposal_counts_though_its_view_was_given_up_and_only_once() {
        let second = Duration::from_secs(1);
        let mut pacemaker = Pacemaker::new(Timing::default(), 0, Moment(0));
        let usual = pacemaker.patience();
        pacemaker.enter(Moment(0).after(second), View(2), false, false);
        pacemaker.proposed(Moment(0).after(3 * second), View(1), ValidatorIndex(0));
        assert_eq!(pacemaker.patience(), 6 * second);
        // Said again, and of a view to come.
        pacemaker.proposed(Moment(0).after(9 * second), View(1), ValidatorIndex(0));
        assert_eq!(pacemaker.patience(), 6 * second);
        pacemaker.proposed(Moment(0).after(9 * second), View(3), ValidatorIndex(0));
        assert_eq!(pacemaker.patience(), usual);
        // Nobody knows any more when a view long left was entered.
        for view in 4..40 {
            pacemaker.enter(Moment(0).after(9 * second), View(view), true, false);
        }
        pacemaker.proposed(Moment(0).after(90 * second), View(4), ValidatorIndex(1));
        assert_eq!(pacemaker.patience(), usual);
        assert!(pacemaker.entered.len() <= MAX_LEFT + 1);
    }
}
