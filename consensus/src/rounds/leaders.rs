//! Which leaders are waited for, and how long their proposals take.
//!
//! All this is this validator's own observation; others may have another one. It decides only
//! whether a view is given up at once or after a timeout, and never what may be voted for: skipping
//! concerns liveness alone.
//!
//! A leader owes 32 turns for each timeout that it costs, whatever it does in between. Before, one
//! lazy leader that voted took the chain from 18 blocks a second to 2.7. A leader without a link is
//! not waited for: the end of a process is seen within a message's delay, a broken line costs one
//! timeout.

use crate::{
    config::Timing,
    durations::{Peak, least, longest_but},
};
use quorate_types::{ValidatorIndex, View};
use std::{collections::BTreeMap, time::Duration};

/// What a turn pays back. Debts are counted finer than turns, or a leader that stays for many views would owe nothing for
/// being a little slow in each.
const TURN: u32 = 1024;

/// Turns that a leader owes for each timeout that it has cost; each turn pays one back. Views of
/// one leader can differ: with a notarization for some and a nullification for others, it can make
/// fewer than twice as many turns stall as any one validator tolerates. So this is twice 16.
const OWED_FOR_A_TIMEOUT: u32 = 32 * TURN;

/// The most that a leader may owe and still be waited for: its third failure in a row is the last
/// one that costs a timeout.
const MAX_DEBT: u32 = 2 * OWED_FOR_A_TIMEOUT;

/// The most timeouts that a leader may be waited for in one turn, and that the turn then counts as.
const MAX_TIMEOUTS_IN_A_TURN: u32 = 16;

/// A proposal that takes more than this many times the usual time counts as a failure although it
/// came. With ten regions around the world the farthest leader's takes twice that time, and giving
/// a view up takes as long as waiting for it.
pub(crate) const LATE_AFTER: u32 = 4;

/// A proposal that takes more than so many times what the slowest leader but f takes, and this beside, costs its leader
/// something, though it came. A turn at just less than [`LATE_AFTER`] was free, and one leader of four took simplex from
/// 132 blocks a second to 18.
const FREE_TIMES: u32 = 6;
/// The fraction of the configured time that a proposal may take for free while too few leaders are known.
const FREE_UNKNOWN: u32 = 6;
const FREE_BESIDE: Duration = Duration::from_millis(20);

/// How long a machine that is not loaded may pause.
const PAUSE: Duration = Duration::from_millis(5);

/// What is known of one leader.
#[derive(Default)]
struct Leader {
    /// It let its view pass, and has not taken part since.
    silent: bool,
    /// There is no link to it.
    apart: bool,
    /// Its frames are relayed.
    reached: bool,
    /// It has taken part since this engine began.
    met: bool,
    /// Turns that it owes for timeouts.
    debt: u32,
    /// Those among them for proposals that came while the usual time was not known.
    unsure: u32,
    /// Its last view with a proposal.
    proposed: Option<View>,
    /// What its proposals took ([`Timed::took`]).
    took: Option<Peak>,
    /// [`Timed::pace`].
    pace: Option<Peak>,
    /// The time from f + 1 votes for its proposal to the proposal.
    lag: Option<Peak>,
    /// The time from there to the notarization.
    voting: Option<Peak>,
    /// How long it was last waited for in vain.
    in_vain: Duration,
}

/// How long a proposal took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timed {
    /// From entering its view on. By this its leader is judged.
    pub(crate) took: Duration,
    /// From its leader's vote in the view before on, if that came later. By this others are judged: a faulty leader can have the
    /// next one begin late.
    pub(crate) pace: Duration,
}

/// What follows from what the proposals of the slowest leader but f took lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usual {
    /// The timeout for a proposal: twice that; as configured, while too few are known.
    pub(crate) patience: Duration,
    /// How long after this validator the others may vote in a view: that and a pause, half of the timeout at most.
    pub(crate) apart: Duration,
    /// How long a proposal may take and cost its leader nothing.
    pub(crate) free: Duration,
}

/// The observations of all leaders. Memory: one entry for each validator.
pub(crate) struct Leaders {
    timing: Timing,
    /// Leaders that may be faulty.
    faults: usize,
    /// How many other leaders' proposals must have been timed before conclusions are drawn.
    enough: usize,
    leaders: BTreeMap<ValidatorIndex, Leader>,
}

impl Leaders {
    pub(crate) fn new(timing: Timing, validators: usize, faults: usize) -> Self {
        Self {
            timing,
            faults,
            enough: validators.saturating_sub(1 + faults).max(1),
            leaders: BTreeMap::new(),
        }
    }

    /// Whether a proposal may be expected from a leader at all.
    pub(crate) fn is_waited_for(&self, leader: ValidatorIndex) -> bool {
        let known = self.leaders.get(&leader);
        known.is_none_or(|known| {
            !known.silent && (!known.apart || known.reached) && known.debt <= MAX_DEBT
        })
    }

    /// Whether there is no link to a validator.
    pub(crate) fn is_apart(&self, validator: ValidatorIndex) -> bool {
        self.leaders
            .get(&validator)
            .is_some_and(|known| known.apart)
    }

    /// Whether nothing comes from a validator: neither over a link nor relayed.
    pub(crate) fn is_out_of_reach(&self, validator: ValidatorIndex) -> bool {
        let known = self.leaders.get(&validator);
        known.is_some_and(|known| known.apart && !known.reached)
    }

    /// Notes whether there is a link to a validator.
    pub(crate) fn linked(&mut self, validator: ValidatorIndex, up: bool) {
        let known = self.leaders.entry(validator).or_default();
        known.apart = !up;
        known.reached = false;
    }

    /// Notes that a relayed frame has come from a validator.
    pub(crate) fn reached(&mut self, validator: ValidatorIndex) {
        self.leaders.entry(validator).or_default().reached = true;
    }

    /// Notes that a validator takes part. The first time, it owes nothing: it may have begun later than this one.
    pub(crate) fn heard(&mut self, validator: ValidatorIndex) {
        let known = self.leaders.entry(validator).or_default();
        known.silent = false;
        if !std::mem::replace(&mut known.met, true) {
            known.debt = 0;
        }
    }

    /// Notes that a leader let its view pass.
    pub(crate) fn missed(&mut self, leader: ValidatorIndex) {
        let known = self.leaders.entry(leader).or_default();
        known.silent = true;
        known.reached = false;
    }

    /// Notes that a leader's turn begins.
    pub(crate) fn begins(&mut self, leader: ValidatorIndex) {
        let known = self.leaders.entry(leader).or_default();
        known.debt = known.debt.saturating_sub(TURN);
    }

    /// Notes that a leader was waited for this long, which was too long or in vain; `patience` is
    /// the usual time.
    pub(crate) fn cost(&mut self, leader: ValidatorIndex, waited: Duration, patience: Duration) {
        let patience = patience.as_micros().max(1);
        let timeouts = waited.as_micros().div_ceil(patience);
        let timeouts = u32::try_from(timeouts).unwrap_or(u32::MAX);
        let owed = timeouts.clamp(1, MAX_TIMEOUTS_IN_A_TURN) * OWED_FOR_A_TIMEOUT;
        let known = self.leaders.entry(leader).or_default();
        known.debt = known.debt.saturating_add(owed);
    }

    /// Notes that nothing came from a leader for this long: the next time it gets twice that.
    pub(crate) fn in_vain(&mut self, leader: ValidatorIndex, waited: Duration) {
        self.leaders.entry(leader).or_default().in_vain = waited;
    }

    /// Notes that a leader's proposal came so much later than is free.
    pub(crate) fn delays(&mut self, leader: ValidatorIndex, excess: Duration, patience: Duration) {
        let owed = excess.as_micros() * u128::from(OWED_FOR_A_TIMEOUT);
        let owed = owed / patience.as_micros().max(1);
        let owed = u32::try_from(owed).unwrap_or(u32::MAX);
        let owed = owed.min(OWED_FOR_A_TIMEOUT);
        if owed == 0 {
            return;
        }
        let unsure = self.slowest_but_f(|known| known.pace).is_none();
        let known = self.leaders.entry(leader).or_default();
        known.debt = known.debt.saturating_add(owed);
        if unsure {
            known.unsure = known.unsure.saturating_add(owed);
        }
    }

    /// Notes how long after f + 1 votes for it a leader's proposal came.
    pub(crate) fn lagged(&mut self, leader: ValidatorIndex, lag: Duration) {
        let known = self.leaders.entry(leader).or_default();
        known.lag.get_or_insert_default().note(lag);
    }

    /// How long a proposal may come after f + 1 votes for it.
    pub(crate) fn lag(&self) -> Duration {
        let lag = self.slowest_but_f(|known| known.lag);
        lag.map_or(least(self.timing.leader_timeout), |lag| {
            lag.saturating_mul(2).saturating_add(PAUSE)
        })
    }

    /// Notes how long the votes for a leader's proposal took.
    pub(crate) fn voted(&mut self, leader: ValidatorIndex, took: Duration) {
        let known = self.leaders.entry(leader).or_default();
        known.voting.get_or_insert_default().note(took);
    }

    /// Forgives all leaders: so many in a row cannot all be faulty.
    pub(crate) fn forgive(&mut self) {
        self.leaders.values_mut().for_each(|known| known.debt = 0);
    }

    /// Views start again at 1.
    pub(crate) fn renew(&mut self) {
        let leaders = self.leaders.values_mut();
        leaders.for_each(|known| known.proposed = None);
    }

    /// Whether a leader's first proposal in this view, or a later one, has been timed.
    pub(crate) fn has_proposed(&self, leader: ValidatorIndex, view: View) -> bool {
        let known = self.leaders.get(&leader);
        known.is_some_and(|known| known.proposed >= Some(view))
    }

    /// Notes how long a leader's proposal took, unless it came before it was waited for, which says
    /// nothing about its time.
    pub(crate) fn proposed(&mut self, leader: ValidatorIndex, view: View, timed: Option<Timed>) {
        let known = self.leaders.entry(leader).or_default();
        known.proposed = Some(view);
        known.in_vain = Duration::ZERO;
        if let Some(Timed { took, pace }) = timed {
            known.took.get_or_insert_default().note(took);
            known.pace.get_or_insert_default().note(pace);
            self.settle();
        }
    }

    /// Once the usual time is known, a leader that keeps to it owes nothing for what came before: on a slow network an honest
    /// one could owe whole epochs of turns.
    fn settle(&mut self) {
        let is_none_unsure = self.leaders.values().all(|known| known.unsure == 0);
        if is_none_unsure || self.slowest_but_f(|known| known.pace).is_none() {
            return;
        }
        let Usual { free, .. } = self.usual();
        for known in self.leaders.values_mut() {
            let unsure = std::mem::take(&mut known.unsure);
            // R21
            if known.took.is_some_and(|took| took.longest() <= free) {
                known.debt = known.debt.saturating_sub(unsure);
            }
        }
    }

    /// What follows from the time that proposals take.
    pub(crate) fn usual(&self) -> Usual {
        let configured = self.timing.leader_timeout;
        let most = self.timing.max_timeout.max(configured);
        match self.slowest_but_f(|known| known.pace) {
            None => Usual {
                patience: configured,
                apart: configured / 2,
                free: (configured / FREE_UNKNOWN).max(least(configured / LATE_AFTER)),
            },
            Some(slowest) => {
                let patience = slowest.saturating_mul(2).clamp(least(configured), most);
                Usual {
                    patience,
                    apart: slowest.saturating_add(PAUSE).min(patience / 2),
                    free: slowest
                        .saturating_mul(FREE_TIMES)
                        .saturating_add(FREE_BESIDE),
                }
            }
        }
    }

    /// The timeout from this leader's proposal to its notarization, and the usual one: twice what it took with the slowest
    /// leader but f lately, and as configured at most. A leader with which it takes longer is given twice its own time, as
    /// far as that is not late.
    pub(crate) fn voting(&self, leader: ValidatorIndex) -> (Duration, Duration) {
        self.voting_after(self.leaders.get(&leader).and_then(|known| known.voting))
    }

    /// The same for a leader with which it took so long lately.
    pub(crate) fn voting_after(&self, lately: Option<Peak>) -> (Duration, Duration) {
        let timing = &self.timing;
        let most = timing.view_timeout.saturating_sub(timing.leader_timeout);
        let usual = self.slowest_but_f(|known| known.voting);
        let usual = usual.map_or(most, |slowest| {
            slowest.saturating_mul(2).clamp(least(most), most)
        });
        let own = lately.map_or(most, |own| own.longest().saturating_mul(2));
        let own = own.clamp(usual, usual.saturating_mul(LATE_AFTER).min(most));
        (own, usual)
    }

    /// What the slowest leader but f takes; `None` while too few are known.
    fn slowest_but_f(&self, of: impl Fn(&Leader) -> Option<Peak>) -> Option<Duration> {
        let times = || self.leaders.values().filter_map(&of);
        if times().count() < self.enough {
            return None;
        }
        // R20
        Some(longest_but(self.faults, times()).unwrap_or_default())
    }

    /// The timeout for this leader's proposal: the usual one ([`Usual`]), or twice its own
    /// time, if that is no more than configured; and the longest that its proposals are known to need.
    pub(crate) fn patience_with(
        &self,
        leader: ValidatorIndex,
        usual: Duration,
    ) -> (Duration, Duration) {
        let most = usual.saturating_mul(MAX_TIMEOUTS_IN_A_TURN);
        let most = most.min(self.timing.leader_timeout);
        let known = self.leaders.get(&leader);
        let twice = |time: Duration| time.saturating_mul(2).min(most);
        let took = known.and_then(|known| known.took).map(Peak::longest);
        let in_vain = known.map_or(Duration::ZERO, |known| known.in_vain);
        let needs = usual.max(twice(took.unwrap_or_default()));
        (
            usual.max(took.map_or(most, |took| twice(took.max(in_vain)))),
            needs,
        )
    }
}
