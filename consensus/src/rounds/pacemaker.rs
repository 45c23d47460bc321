//! The timers of a view.
//!
//! # Why the timeout follows the proposals
//!
//! With a fixed timeout, ten validators around the world under 500 transfers a second that had once
//! stalled took 1.3 s for a block; with this one they take 0.3 s in the same twelve seconds. Each
//! second without a block makes the next block larger, and a large block takes several round trips
//! on a connection that was quiet. A proposal counts as late only after four times the usual time:
//! when it counted as late at once, the same network skipped its farthest leaders, and blocks took
//! 190 ms instead of 178.
//!
//! # Why a chain without transactions rests
//!
//! Four validators took half a core and 0.2 MB/s of disk each to agree on nothing. Now a leader
//! without transactions waits for `idle_interval` (1 s), and proposes at once when one arrives. The
//! interval is a setting of each validator, like the timeouts: nothing breaks where validators
//! differ. Empty blocks still come, because they show clients and operators that the chain is alive
//! and validators which leaders are. The first transaction after a while is forwarded at once, to
//! the waiting leader and to those that follow it.

use crate::{
    config::Timing,
    durations::{Peak, least},
    io::Moment,
    rounds::leaders::{LATE_AFTER, Leaders, Timed, Usual},
};
use quorate_types::{ValidatorIndex, View};
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

/// Doublings after which the timeouts stay the same.
const MAX_DOUBLINGS: u32 = 10;

/// Repetitions, after its timer has fired, with which a view is stuck.
const STUCK_AFTER: u32 = 4;

/// Past views whose proposals may still show how long they took.
const MAX_LEFT: usize = 16;

/// The timers of the current view, and the observations of the leaders ([`Leaders`]).
///
/// A timeout that is too short for the network's load ends every view before its block arrives, and
/// the longer nothing becomes final, the larger the next block is. One that is too long is the cost
/// of a dead leader. So proposals are timed, even those that come after their view was given up,
/// and the timeout is twice what the slowest leader but f took lately. At most f leaders are slow
/// on purpose, so they cannot stretch it. Votes are timed likewise, and get the configured time at
/// most.
///
/// While no block is needed, a leader may wait ([`Timing::idle_interval`]). Its proposal is then
/// waited for from the end of that interval on, or from the moment when a block is needed here.
/// What happens before says nothing about how long proposals take, and costs the leader nothing.
pub(crate) struct Pacemaker {
    timing: Timing,
    /// How many views in a row a validator leads.
    turn_length: u64,
    /// Leaders that may be faulty.
    faults: usize,
    leaders: Leaders,
    /// When waiting for the proposals of the current view and earlier ones began, oldest first.
    entered: VecDeque<(View, Moment)>,
    /// When f + 1 had voted in views whose proposals were not here.
    voted_for: BTreeMap<View, Moment>,
    /// The current view's turn.
    turn: Option<Turn>,
    /// When the leader timer fires.
    leader_due: Option<Moment>,
    /// When the view timer fires.
    view_due: Option<Moment>,
    /// When the leader is reminded of waiting transactions.
    remind_due: Option<Moment>,
    /// When votes are repeated.
    resend_due: Option<Moment>,
    /// Repetitions in the current view since its timer fired.
    overdue: u32,
    /// When the leader stops waiting for what others may send it.
    gather_due: Option<Moment>,
    /// When a leader that has voted in the view before gives that one up.
    doubt_due: Option<Moment>,
    /// Since others have given up the current view, or are ahead.
    left_alone: Lasting,
    /// What the votes for this validator's own proposals took lately.
    own_voting: Option<Peak>,
    /// Since others have voted for a block that its leader has not sent here.
    left_out: Lasting,
    views_without_block: u32,
    /// Doublings beside those for views without a block.
    doublings: u32,
    /// Whether a block is needed as far as this validator knows.
    pending: bool,
}

/// Something that counts only once it has lasted for a while.
#[derive(Default)]
struct Lasting {
    from: Option<Moment>,
    /// When to look again.
    due: Option<Moment>,
}

impl Lasting {
    /// Whether it has lasted for so long. It begins when this is asked first.
    fn lasts(&mut self, now: Moment, long: Duration) -> bool {
        let from = *self.from.get_or_insert(now.after(long));
        self.due = (from > now).then_some(from);
        from <= now
    }
}

/// The turn of the current view's leader.
struct Turn {
    leader: ValidatorIndex,
    expected: Expected,
    /// The usual timeout for a proposal in this view.
    patience: Duration,
    /// The timeout for this leader's proposal.
    waits: Duration,
    /// The same as far as its proposals are known to need it.
    needs: Duration,
    /// How long after f + 1 votes for it a proposal may come.
    lag: Duration,
    /// When it has voted in the view before, if this validator was in this one by then.
    behind: Option<Moment>,
    /// How long after this validator the others may vote.
    apart: Duration,
    /// How much longer it is waited for, since it may have to end the view before first.
    respite: Duration,
    /// What its proposal may take and cost it nothing.
    free: Duration,
    /// The timeout for the votes after it.
    voting: Duration,
    /// The usual timeout for the votes.
    usual_voting: Duration,
    /// What the votes may take and cost the leader nothing.
    free_voting: Duration,
    entered: Moment,
    /// When waiting for the proposal begins.
    from: Moment,
    /// When it came.
    proposed: Option<Moment>,
    /// Whether the leader may wait for transactions.
    may_idle: bool,
}

/// What is expected of a view's leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// The leader is this validator.
    Own,
    /// No proposal.
    Nothing,
    /// A proposal.
    Proposal,
    /// Votes upon the certificate by which the view was entered.
    Votes,
}

/// What the view before brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// A block that a quorum has notarized.
    Block,
    /// A proposal that this validator has voted for.
    Vote,
    Nothing,
}

impl From<bool> for Before {
    fn from(block: bool) -> Self {
        match block {
            true => Self::Block,
            false => Self::Nothing,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alarm {
    /// No proposal came in time.
    Leader,
    /// The view took too long.
    View,
    /// The leader may not know the waiting transactions.
    Remind,
    /// Votes are due to be repeated.
    Resend,
    /// The leader has waited long enough for what others may send it.
    Gathered,
    /// What others have said, or not said, has lasted long enough.
    Heed,
}

impl Pacemaker {
    pub(crate) fn new(timing: Timing, validators: usize, faults: usize) -> Self {
        Self {
            timing,
            turn_length: 1,
            faults,
            leaders: Leaders::new(timing, validators, faults),
            entered: VecDeque::new(),
            voted_for: BTreeMap::new(),
            turn: None,
            leader_due: None,
            view_due: None,
            remind_due: None,
            resend_due: None,
            overdue: 0,
            gather_due: None,
            doubt_due: None,
            left_alone: Lasting::default(),
            own_voting: None,
            left_out: Lasting::default(),
            views_without_block: 0,
            doublings: 0,
            pending: true,
        }
    }

    /// For a protocol in which a validator leads so many views in a row.
    pub(crate) fn with_turns(self, turn_length: u64) -> Self {
        Self {
            turn_length,
            ..self
        }
    }

    /// Starts a view's timers. `before` tells what the view before brought; `expected`
    /// is what the rest of the engine expects of the leader.
    pub(crate) fn enter(
        &mut self,
        now: Moment,
        view: View,
        leader: ValidatorIndex,
        before: impl Into<Before>,
        expected: Expected,
    ) {
        let before = before.into();
        self.leave(now, view, before != Before::Nothing);
        // A proposal that was never waited for cannot be late.
        self.entered.pop_back_if(|(_, from)| *from > now);
        if self.entered.len() > MAX_LEFT {
            self.entered.pop_front();
        }
        self.entered.push_back((view, now));
        self.views_without_block = match before {
            Before::Block => 0,
            // A faulty leader can have proposals voted for that never become blocks.
            Before::Vote => self.views_without_block,
            Before::Nothing => self.views_without_block.saturating_add(1),
        };
        // R21: no livelock.
        if self.is_stuck() {
            self.leaders.forgive();
        }
        // Votes may be lost as well as proposals, long before anybody gives the view up.
        self.plan_resend(now);
        self.overdue = 0;
        let expected = match expected {
            // R21
            Expected::Proposal if !self.leaders.is_waited_for(leader) => Expected::Nothing,
            told => told,
        };
        if expected != Expected::Votes {
            self.leaders.begins(leader);
        }
        let early = self.leaders.has_proposed(leader, view);
        let Usual {
            patience,
            apart,
            free,
        } = self.leaders.usual();
        let (waits, needs) = match expected {
            Expected::Votes => (Duration::ZERO, Duration::ZERO),
            _ => self.leaders.patience_with(leader, patience),
        };
        let (voting, usual_voting) = match expected {
            Expected::Own => self.leaders.voting_after(self.own_voting),
            _ => self.leaders.voting(leader),
        };
        // H5
        let respite = match (before, expected) {
            (Before::Vote, Expected::Own | Expected::Proposal) => self.stretch(patience),
            _ => Duration::ZERO,
        };
        let apart = self.stretch(apart);
        let lag = self.stretch(self.leaders.lag().min(patience / 2));
        self.turn = Some(Turn {
            leader,
            expected,
            apart,
            lag,
            behind: None,
            patience: self.stretch(patience),
            waits: self.stretch(waits),
            needs: self.stretch(needs),
            respite,
            free: self.stretch_free(free),
            usual_voting: self.stretch(usual_voting),
            free_voting: self.stretch_free(usual_voting.saturating_mul(LATE_AFTER / 2)),
            voting: self
                .stretch(waits + voting)
                .saturating_sub(self.stretch(waits)),
            entered: now,
            from: now,
            proposed: early.then_some(now),
            // After a view without a block nobody idles: others may have given up this one as well.
            // R25
            may_idle: !self.timing.idle_interval.is_zero()
                && self.views_without_block == 0
                && !early
                && !matches!(expected, Expected::Nothing | Expected::Votes),
        });
        self.leader_due = (expected != Expected::Votes).then_some(now);
        self.gather_due = None;
        let doubts = before == Before::Vote && expected == Expected::Own;
        self.doubt_due = doubts.then(|| now.after(self.stretch_free(patience) / 2));
        self.left_alone = Lasting::default();
        self.left_out = Lasting::default();
        self.wait_from(now);
        if !self.pending {
            self.idle();
        }
    }

    /// Waits for the current view's proposal from then on.
    fn wait_from(&mut self, from: Moment) {
        let Some(turn) = &mut self.turn else {
            return;
        };
        turn.from = from;
        if let Some((_, waited_from)) = self.entered.back_mut() {
            *waited_from = from;
        }
        let due = match turn.expected {
            Expected::Nothing | Expected::Votes => turn.entered,
            Expected::Own | Expected::Proposal => from.after(turn.waits + turn.respite),
        };
        self.leader_due = self.leader_due.map(|_| due);
        self.view_due = Some(from.after(turn.waits + turn.respite + turn.voting));
        let reminds = !self.timing.idle_interval.is_zero()
            && self.pending
            && turn.expected == Expected::Proposal
            && turn.proposed.is_none();
        self.remind_due = reminds.then(|| from.after(turn.waits / 2));
    }

    /// No block is needed: the leader may wait.
    fn idle(&mut self) {
        let idling = self.turn.as_ref().filter(|turn| turn.may_idle);
        if let Some(turn) = idling.filter(|_| self.leader_due.is_some()) {
            self.wait_from(turn.entered.after(self.timing.idle_interval));
        }
    }

    /// Notes whether a block is needed as far as this validator knows.
    pub(crate) fn pending(&mut self, now: Moment, pending: bool) {
        if self.pending == pending {
            return;
        }
        self.pending = pending;
        if pending {
            self.expect(now);
        } else {
            self.idle();
        }
    }

    /// Waits for the current view's proposal from now on at the latest.
    pub(crate) fn expect(&mut self, now: Moment) {
        if self.idles_until(now).is_some() {
            self.wait_from(now);
        }
    }

    /// Until when the current view's leader may wait for transactions, if it may.
    pub(crate) fn idles_until(&self, now: Moment) -> Option<Moment> {
        let from = self.turn.as_ref().map(|turn| turn.from);
        from.filter(|from| *from > now)
    }

    /// Draws conclusions from the view that ends, if it is the one before.
    fn leave(&mut self, now: Moment, next: View, brought: bool) {
        let (Some(turn), Some((view, _))) = (self.turn.take(), self.entered.back()) else {
            return;
        };
        if next <= *view || next.0 - view.0 > self.turn_length {
            return;
        }
        let votes_from = match turn.expected {
            Expected::Votes => brought.then_some(turn.entered),
            _ => turn.proposed,
        };
        let voted = votes_from.map(|from| now.since(from));
        match (voted, turn.expected) {
            (None, _) => {}
            (Some(took), Expected::Own) => self.own_voting.get_or_insert_default().note(took),
            (Some(took), _) => self.leaders.voted(turn.leader, took),
        }
        let late_votes = voted.unwrap_or_default().saturating_sub(turn.free_voting);
        if turn.expected == Expected::Votes {
            if brought {
                self.leaders.delays(turn.leader, late_votes, turn.patience);
            } else {
                let waited = now.since(turn.entered).min(turn.voting);
                self.leaders.cost(turn.leader, waited, turn.patience);
            }
        }
        if turn.expected != Expected::Proposal || turn.from > now {
            return;
        }
        let late_after = turn.patience.saturating_mul(LATE_AFTER);
        let took = turn.proposed.map(|proposed| proposed.since(turn.from));
        let free = turn.free.min(late_after);
        if took.is_some_and(|took| took > late_after) || !brought {
            let waited = now.since(turn.from).min(turn.waits);
            // A leader whose votes take long is given more time for them than others.
            let voting = voted.unwrap_or_default().min(turn.voting);
            let voting = voting.saturating_sub(turn.usual_voting);
            self.leaders
                .cost(turn.leader, waited + voting, turn.patience);
            if turn.proposed.is_none() {
                self.leaders.in_vain(turn.leader, waited);
            }
            return;
        }
        // A leader can have the others wait for its own vote.
        let excess = took.map_or(Duration::ZERO, |took| took.saturating_sub(free));
        self.leaders
            .delays(turn.leader, excess + late_votes, turn.patience);
    }

    /// An epoch begins: views start again at 1.
    pub(crate) fn renew(&mut self) {
        self.entered.clear();
        self.voted_for.clear();
        self.turn = None;
        self.leaders.renew();
    }

    /// Notes the first proposal of a view's leader.
    pub(crate) fn proposed(&mut self, now: Moment, view: View, leader: ValidatorIndex) {
        if self.leaders.has_proposed(leader, view) {
            return;
        }
        let entered = self.entered.iter().rev().find(|(of, _)| *of == view);
        let current = self.entered.back().map(|(current, _)| *current);
        // A view to come was not waited for; of one long past nothing is known.
        let took = match entered {
            Some((_, from)) => (*from <= now).then(|| {
                // R20
                let behind = match current == Some(view) {
                    true => self.turn.as_ref().and_then(|turn| turn.behind),
                    false => None,
                };
                Timed {
                    took: now.since(*from),
                    pace: now.since(behind.unwrap_or(*from).max(*from)),
                }
            }),
            None if current.is_some_and(|current| view > current) => Some(Timed::default()),
            None => return,
        };
        self.leaders.proposed(leader, view, took);
        if current == Some(view) {
            self.expect(now);
            if let Some(turn) = self.turn.as_mut() {
                turn.proposed = Some(now);
                turn.may_idle = false;
            }
            self.remind_due = None;
        }
    }

    /// What a proposal may take and cost its leader nothing.
    pub(crate) fn free(&self) -> Duration {
        self.leaders.usual().free
    }

    /// Notes a validator's first notarize or nullify in a view. A leader whose vote in the view before comes late could not begin
    /// earlier.
    pub(crate) fn has_voted(&mut self, now: Moment, view: View, from: ValidatorIndex) {
        let current = self.entered.back().map(|(current, _)| *current);
        if current == Some(view.next())
            && let Some(turn) = &mut self.turn
            && turn.leader == from
            && turn.proposed.is_none()
        {
            turn.behind = Some(now);
        }
    }

    /// Notes a proposal that its leader has sent.
    pub(crate) fn came(&mut self, now: Moment, view: View, leader: ValidatorIndex) {
        let since = self.voted_for.remove(&view);
        let lag = since.map_or(Duration::ZERO, |since| now.since(since));
        self.leaders.lagged(leader, lag);
    }

    /// Notes that this validator has proposed in the current view: from now on it waits for votes.
    pub(crate) fn has_led(&mut self, now: Moment) {
        self.expect(now);
        if let Some(turn) = self.turn.as_mut() {
            turn.may_idle = false;
            turn.proposed = Some(now);
            // What is left of the longest time-out may be nothing.
            let due = now.after(turn.voting.max(turn.usual_voting));
            self.view_due = self.view_due.map(|view_due| view_due.min(due));
        }
    }

    /// Whether so much has failed that the leaders cannot all be to blame.
    pub(crate) fn is_stuck(&self) -> bool {
        self.views_without_block() > self.faults || self.doublings > 0
    }

    /// Has the time-outs of the views to come doubled this many times more.
    pub(crate) fn set_doublings(&mut self, doublings: u32) {
        self.doublings = doublings;
    }

    /// A view that was left by a vote has brought a block.
    pub(crate) fn notarized(&mut self) {
        self.views_without_block = 0;
    }

    /// How many views in a row have brought no block.
    pub(crate) fn views_without_block(&self) -> usize {
        self.views_without_block as usize
    }

    /// Notes that a validator takes part.
    pub(crate) fn heard(&mut self, from: ValidatorIndex) {
        self.leaders.heard(from);
    }

    /// Notes that a leader let its view pass. Returns whether nothing else was expected.
    pub(crate) fn missed(&mut self, leader: ValidatorIndex) -> bool {
        self.leaders.missed(leader);
        let turn = self.turn.as_ref();
        turn.is_some_and(|turn| turn.expected == Expected::Nothing)
    }

    /// Notes whether there is a link to a validator.
    pub(crate) fn linked(&mut self, validator: ValidatorIndex, up: bool) {
        self.leaders.linked(validator, up);
    }

    /// Notes that a relayed frame has come from a validator.
    pub(crate) fn reached(&mut self, validator: ValidatorIndex) {
        self.leaders.reached(validator);
    }

    /// Whether nothing comes from a validator: neither over a link nor relayed.
    pub(crate) fn is_out_of_reach(&self, validator: ValidatorIndex) -> bool {
        self.leaders.is_out_of_reach(validator)
    }

    /// Whether there is no link to a validator.
    pub(crate) fn is_apart(&self, validator: ValidatorIndex) -> bool {
        self.leaders.is_apart(validator)
    }

    /// Whether the leader of the current view, which is this validator, still waits for what others may send it: for half of
    /// the least time that any of them gives it. How long they do is their own observation, and may be less than its own. All
    /// have doubled it for the views directly before that are `nullified`, and perhaps for no other.
    pub(crate) fn gathers(&mut self, now: Moment, nullified: u32) -> bool {
        let doublings = self.views_without_block.min(nullified);
        let waits = self.double(least(self.timing.leader_timeout), doublings) / 2;
        let until = self.turn.as_ref().map(|turn| turn.entered.after(waits));
        self.gather_due = until.filter(|until| *until > now);
        self.gather_due.is_some()
    }

    /// Stops waiting for the current view's proposal. The time that was waited counts all the same:
    /// a leader that ends its link at the last moment each time has cost as much as one that stays
    /// silent.
    pub(crate) fn hurry(&mut self, now: Moment) {
        self.leader_due = self.leader_due.map(|due| due.min(now));
    }

    /// Others wait, perhaps or surely, for this validator to lead the next view: the current view's proposal is waited for no
    /// longer than its leader is known to need from now on, or half of the usual time.
    pub(crate) fn hurry_for_others(&mut self, now: Moment, surely: bool) {
        if let Some(turn) = &self.turn {
            let due = match surely {
                true => now.after(turn.patience / 2),
                false => now.max(turn.from).after(turn.needs),
            };
            self.leader_due = self.leader_due.map(|earlier| earlier.min(due));
        }
    }

    /// Whether the leader of the current view, which is this validator, waits for what others may send it.
    pub(crate) fn is_gathering(&self) -> bool {
        self.gather_due.is_some()
    }

    /// Whether others that have given up the current view, or are ahead, are followed. From the first question on, they have been
    /// for as long as others may vote later than this validator.
    pub(crate) fn heeds(&mut self, now: Moment) -> bool {
        let apart = self.apart();
        self.left_alone.lasts(now, apart)
    }

    /// Whether this validator leads the current view, which it has entered by its vote in the view before, and nothing has
    /// ended that for a while: it may never end by itself.
    pub(crate) fn doubts(&self, now: Moment) -> bool {
        self.doubt_due.is_some_and(|due| due <= now)
    }

    /// Whether a block that others have voted for in the current view is asked for, since its leader has not sent it for as long.
    pub(crate) fn is_left_out(&mut self, now: Moment) -> bool {
        let lag = self.turn.as_ref().map_or(Duration::ZERO, |turn| turn.lag);
        if let Some((current, _)) = self.entered.back() {
            self.voted_for.entry(*current).or_insert(now);
            if self.voted_for.len() > MAX_LEFT {
                self.voted_for.pop_first();
            }
        }
        self.left_out.lasts(now, lag)
    }

    fn apart(&self) -> Duration {
        self.turn.as_ref().map_or(Duration::ZERO, |turn| turn.apart)
    }

    /// Returns the next timer that has fired, and clears it.
    pub(crate) fn fire(&mut self, now: Moment) -> Option<Alarm> {
        let fired = |due: &mut Option<Moment>| due.take_if(|due| *due <= now).is_some();
        if fired(&mut self.leader_due) {
            Some(Alarm::Leader)
        } else if fired(&mut self.view_due) {
            Some(Alarm::View)
        } else if fired(&mut self.remind_due) {
            Some(Alarm::Remind)
        } else if fired(&mut self.resend_due) {
            Some(Alarm::Resend)
        } else if fired(&mut self.gather_due) {
            Some(Alarm::Gathered)
        } else if fired(&mut self.doubt_due)
            || fired(&mut self.left_alone.due)
            || fired(&mut self.left_out.due)
        {
            Some(Alarm::Heed)
        } else {
            None
        }
    }

    /// Plans the next repetition. The interval is constant: repetitions bring the validators
    /// together again after a partition, and cost only a few small messages.
    pub(crate) fn plan_resend(&mut self, now: Moment) {
        self.resend_due = Some(now.after(self.timing.resend_interval));
    }

    /// Notes a repetition. Returns whether the view does not end though its timer fired long ago: with every fourth one since.
    pub(crate) fn is_stuck_here(&mut self) -> bool {
        if self.view_due.is_some() {
            return false;
        }
        self.overdue = self.overdue.saturating_add(1);
        self.overdue.is_multiple_of(STUCK_AFTER)
    }

    /// The shortest time between two repetitions.
    pub(crate) fn resend_interval(&self) -> Duration {
        self.timing.resend_interval
    }

    /// When the next timer fires.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        [
            self.leader_due,
            self.view_due,
            self.remind_due,
            self.resend_due,
            self.gather_due,
            self.doubt_due,
            self.left_alone.due,
            self.left_out.due,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Doubles a timeout for each view in a row without a block.
    fn stretch(&self, base: Duration) -> Duration {
        // R20
        self.double(
            base,
            self.views_without_block.saturating_add(self.doublings),
        )
    }

    /// Doubles a duration for each view in a row without a block beyond the first f.
    fn stretch_free(&self, base: Duration) -> Duration {
        // R21
        let faults = u32::try_from(self.faults).unwrap_or(u32::MAX);
        let doublings = self.views_without_block.saturating_sub(faults);
        self.double(base, doublings.saturating_add(self.doublings))
    }

    fn double(&self, base: Duration, doublings: u32) -> Duration {
        let stretched = base.saturating_mul(1 << doublings.min(MAX_DOUBLINGS));
        stretched.min(self.timing.max_timeout.max(base))
    }
}

#[cfg(test)]
mod tests;
