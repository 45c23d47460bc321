//! When a view has taken too long.

use crate::{config::Timing, io::Moment};
use quorate_types::ValidatorIndex;
use std::{collections::BTreeSet, time::Duration};

/// Doublings of the time-outs after which they stay as they are.
const MAX_DOUBLINGS: u32 = 10;

/// The timers of the current view, as moments, and who has been silent.
pub(crate) struct Pacemaker {
    timing: Timing,
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
    pub(crate) fn new(timing: Timing, now: Moment) -> Self {
        let mut pacemaker = Self {
            timing,
            leader_due: None,
            view_due: None,
            resend_due: None,
            barren: 0,
            silent: BTreeSet::new(),
        };
        pacemaker.enter(now, true, false);
        pacemaker
    }

    /// Starts a view's timers. `brought` tells whether the view before brought a block;
    /// `hopeless`, that its leader will not propose, so that there is nothing to wait for.
    pub(crate) fn enter(&mut self, now: Moment, brought: bool, hopeless: bool) {
        self.barren = if brought {
            0
        } else {
            self.barren.saturating_add(1)
        };
        // Votes may be lost as well as proposals, long before anybody gives the view up.
        self.plan_resend(now);
        self.leader_due = Some(if hopeless {
            now
        } else {
            now.after(self.stretch(self.timing.leader_timeout, self.barren))
        });
        self.view_due = Some(now.after(self.stretch(self.timing.view_timeout, self.barren)));
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
        let mut pacemaker = Pacemaker::new(timing, Moment(0));
        assert_eq!(
            pacemaker.deadline(),
            Some(Moment(0).after(timing.leader_timeout))
        );
        for expected in [2, 4, 8] {
            pacemaker.enter(Moment(0), false, false);
            let due = Moment(0).after(timing.leader_timeout * expected);
            assert_eq!(pacemaker.deadline(), Some(due));
        }
        for _ in 0..100 {
            pacemaker.enter(Moment(0), false, false);
        }
        assert_eq!(
            pacemaker.deadline(),
            Some(Moment(0).after(timing.max_timeout))
        );
        pacemaker.enter(Moment(0), true, false);
        assert_eq!(
            pacemaker.deadline(),
            Some(Moment(0).after(timing.leader_timeout))
        );
    }

    #[test]
    fn a_hopeless_view_is_overdue_at_once() {
        let mut pacemaker = Pacemaker::new(Timing::default(), Moment(0));
        pacemaker.enter(Moment(7), true, true);
        assert_eq!(pacemaker.fire(Moment(7)), Some(Alarm::Leader));
        assert_eq!(pacemaker.fire(Moment(7)), None);
    }
}
