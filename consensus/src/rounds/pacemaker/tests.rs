//! The timers of a view, and what leaders owe.

use super::*;
use crate::durations::MIN_PATIENCE;

const QUIET: Timing = Timing {
    leader_timeout: Duration::from_millis(1_000),
    view_timeout: Duration::from_millis(2_000),
    max_timeout: Duration::from_secs(30),
    resend_interval: Duration::from_secs(1_000_000),
    fetch_timeout: Duration::from_millis(500),
    idle_interval: Duration::ZERO,
};

const SECOND: Duration = Duration::from_secs(1);

fn leader_of(view: View, validators: usize) -> ValidatorIndex {
    ValidatorIndex((view.0 % validators as u64) as u32)
}

/// A validator's pacemaker, and the world around it: place 0 of so many.
struct Life {
    pacemaker: Pacemaker,
    validators: usize,
    view: View,
    now: Moment,
}

impl Life {
    fn new(validators: usize) -> Self {
        let mut life = Self {
            pacemaker: Pacemaker::new(QUIET, validators, (validators - 1) / 3),
            validators,
            view: View(0),
            now: Moment(0),
        };
        life.enter(true);
        life
    }

    fn leader(&self) -> ValidatorIndex {
        leader_of(self.view, self.validators)
    }

    fn enter(&mut self, brought: bool) {
        self.view = self.view.next();
        let leader = self.leader();
        let expected = match leader {
            ValidatorIndex(0) => Expected::Own,
            _ => Expected::Proposal,
        };
        let (now, view) = (self.now, self.view);
        self.pacemaker.enter(now, view, leader, brought, expected);
    }

    /// How long the current view's proposal is waited for.
    fn waits(&self) -> Duration {
        let due = self.pacemaker.leader_due.expect("it waits");
        due.since(self.now)
    }

    /// The view brings a block, whose proposal takes so long.
    fn block(&mut self, took: Duration) {
        self.now = self.now.after(took);
        let (now, view, leader) = (self.now, self.view, self.leader());
        if leader != ValidatorIndex(0) {
            self.pacemaker.proposed(now, view, leader);
        }
        self.enter(true);
    }

    /// The proposal comes at once, and the votes for it take so long.
    fn voted_within(&mut self, took: Duration) {
        let (view, leader) = (self.view, self.leader());
        self.pacemaker.proposed(self.now, view, leader);
        self.now = self.now.after(took);
        self.enter(true);
    }

    /// The view brings nothing; its leader is silent but for a vote. Returns the time that it cost.
    fn nothing(&mut self) -> Duration {
        let (waited, leader) = (self.waits(), self.leader());
        self.now = self.now.after(waited);
        self.pacemaker.missed(leader);
        self.pacemaker.heard(leader);
        self.enter(false);
        waited
    }

    /// So many rounds in which `leader` does nothing if `fails` says so of its turn's number, and
    /// all others propose within 10 ms. Returns how many turns of its cost anything, and how much.
    fn rounds(&mut self, count: u64, leader: u32, fails: impl Fn(u64) -> bool) -> (u64, Duration) {
        let (mut turns, mut dear, mut cost) = (0, 0, Duration::ZERO);
        while turns < count {
            if self.leader() == ValidatorIndex(leader) {
                turns += 1;
                if self.waits() == Duration::ZERO || fails(turns) {
                    let waited = self.nothing();
                    dear += u64::from(waited > Duration::ZERO);
                    cost += waited;
                    continue;
                }
            }
            self.block(Duration::from_millis(10));
        }
        (dear, cost)
    }
}

#[test]
fn who_leads_waits_for_the_votes_from_its_proposal_on() {
    let mut life = Life::new(4);
    let mut waited = Vec::new();
    while waited.len() < 3 {
        if life.leader() != ValidatorIndex(0) {
            life.voted_within(Duration::from_millis(2));
            continue;
        }
        life.pacemaker.has_led(life.now);
        let due = life.pacemaker.view_due.expect("it waits");
        waited.push(due.since(life.now));
        life.now = life.now.after(Duration::from_millis(40));
        life.enter(true);
    }
    // The first time nothing is known of its own votes.
    let [first, known] = [4 * MIN_PATIENCE, Duration::from_millis(80)];
    assert_eq!(waited, [first, known, known]);
    for _ in 0..100 {
        life.enter(false);
    }
    while life.leader() != ValidatorIndex(0) {
        life.enter(false);
    }
    life.pacemaker.has_led(life.now);
    let due = life.pacemaker.view_due.expect("it waits");
    assert!(due.since(life.now) >= 10 * SECOND);
}

#[test]
fn timeouts_double_while_views_bring_nothing_and_fall_back_when_one_does() {
    let mut life = Life::new(4);
    assert_eq!(life.waits(), SECOND);
    for expected in [2, 4, 8] {
        life.enter(false);
        assert_eq!(life.waits(), SECOND * expected);
    }
    for _ in 0..100 {
        life.enter(false);
    }
    assert_eq!(life.waits(), QUIET.max_timeout);
    life.enter(true);
    assert_eq!(life.waits(), SECOND);
}

#[test]
fn the_view_of_an_absent_leader_is_overdue_at_once() {
    let mut pacemaker = Pacemaker::new(QUIET, 4, 1);
    let leader = ValidatorIndex(2);
    pacemaker.enter(Moment(7), View(2), leader, true, Expected::Nothing);
    assert_eq!(pacemaker.fire(Moment(7)), Some(Alarm::Leader));
    assert_eq!(pacemaker.fire(Moment(7)), None);
    pacemaker.linked(leader, false);
    pacemaker.enter(Moment(8), View(6), leader, true, Expected::Proposal);
    assert_eq!(pacemaker.fire(Moment(8)), Some(Alarm::Leader));
    pacemaker.linked(leader, true);
    pacemaker.enter(Moment(9), View(10), leader, true, Expected::Proposal);
    assert_eq!(pacemaker.fire(Moment(9)), None);
    pacemaker.hurry(Moment(10));
    assert_eq!(pacemaker.fire(Moment(10)), Some(Alarm::Leader));
}

#[test]
fn time_outs_follow_what_proposals_take_in_both_directions() {
    let mut life = Life::new(7);
    let rounds = |life: &mut Life, count: usize, took: Duration| {
        (0..count * 7).for_each(|_| life.block(took));
    };
    // Nothing is concluded from three of six.
    (0..3).for_each(|_| life.block(Duration::from_millis(10)));
    assert_eq!(life.waits(), SECOND);
    rounds(&mut life, 1, Duration::from_millis(10));
    assert_eq!(life.waits(), Duration::from_millis(50));
    rounds(&mut life, 1, Duration::from_millis(40));
    assert_eq!(life.waits(), Duration::from_millis(80));
    rounds(&mut life, 1, Duration::from_millis(900));
    assert_eq!(life.waits(), Duration::from_millis(1_800));
    rounds(&mut life, 40, Duration::from_millis(10));
    assert_eq!(life.waits(), Duration::from_millis(50));
}

#[test]
fn f_leaders_that_are_slow_on_purpose_do_not_stretch_the_timeout_of_others() {
    let mut life = Life::new(7);
    for _ in 0..70 {
        let slow = [1, 2].map(ValidatorIndex).contains(&life.leader());
        life.block(Duration::from_millis(if slow { 20_000 } else { 10 }));
    }
    assert_eq!(
        life.pacemaker.leaders.usual().patience,
        Duration::from_millis(50)
    );
}

#[test]
fn a_proposal_counts_though_its_view_was_given_up_and_only_once() {
    let mut life = Life::new(2);
    let patience = |life: &Life| life.pacemaker.leaders.usual().patience;
    let one = ValidatorIndex(1);
    life.now = life.now.after(SECOND);
    life.enter(false);
    let at = |seconds: u32| Moment(0).after(seconds * SECOND);
    life.pacemaker.proposed(at(3), View(1), one);
    assert_eq!(patience(&life), 6 * SECOND);
    // Said again.
    life.pacemaker.proposed(at(9), View(1), one);
    assert_eq!(patience(&life), 6 * SECOND);
    // Of a view to come; a long time is forgotten slowly.
    life.pacemaker.proposed(at(9), View(3), one);
    assert_eq!(patience(&life), 6 * SECOND * 7 / 8);
    // Nobody knows any more when a view long left was entered.
    (4..40).for_each(|_| life.enter(true));
    life.pacemaker.proposed(at(90), View(5), one);
    assert_eq!(patience(&life), 6 * SECOND * 7 / 8);
    assert!(life.pacemaker.entered.len() <= MAX_LEFT + 1);
    // In the next epoch views are counted anew.
    life.pacemaker.renew();
    life.view = View(0);
    life.now = at(100);
    life.enter(true);
    life.pacemaker.proposed(at(107), View(1), one);
    assert_eq!(patience(&life), 14 * SECOND);
}

/// A leader that votes and never proposes, only every k-th turn, or only when it is waited for
/// again, costs one time-out in 16 turns at most, but for the first few.
#[test]
fn no_leader_costs_more_than_one_timeout_in_sixteen_turns() {
    let always: fn(u64) -> bool = |_| true;
    let second: fn(u64) -> bool = |turn| turn % 2 == 0;
    let fourth: fn(u64) -> bool = |turn| turn % 4 != 0;
    for (name, fails) in [("always", always), ("second", second), ("fourth", fourth)] {
        let mut life = Life::new(4);
        life.rounds(20, 2, |_| false);
        let (dear, _) = life.rounds(80, 2, fails);
        assert!((3..=3 + 80 / 16).contains(&dear), "{name}: {dear}");
        let (dear, cost) = life.rounds(1_600, 2, fails);
        assert!((1..=100).contains(&dear), "{name}: {dear}");
        // And what it costs is what time-outs usually are, though it is given more time.
        assert!(cost <= Duration::from_millis(50) * 100, "{name}: {cost:?}");
    }
}

/// R21: the time-outs double behind it, and what the next leader may take for nothing does not.
#[test]
fn behind_a_leader_that_is_down_no_more_time_is_free() {
    let mut life = Life::new(4);
    life.rounds(20, 2, |_| false);
    let free = |life: &Life| life.pacemaker.turn.as_ref().map(|turn| turn.free);
    while life.leader() != ValidatorIndex(1) {
        life.block(Duration::from_millis(10));
    }
    let usual = free(&life);
    let waits = life.waits();
    life.enter(false);
    assert_eq!((free(&life), life.waits()), (usual, waits * 2));
    // Two of four cannot both be faulty.
    life.enter(false);
    assert_eq!(free(&life), usual.map(|usual| usual * 2));
}

/// R21: the back-off is no fault of the leader behind. It owed twice for votes that were lost.
#[test]
fn a_failure_behind_a_leader_that_is_down_costs_one_time_out() {
    let mut life = Life::new(7);
    let (down, next) = (ValidatorIndex(1), ValidatorIndex(2));
    life.pacemaker.heard(next);
    (0..40).for_each(|_| life.voted_within(Duration::from_millis(5)));
    while life.leader() != down {
        life.voted_within(Duration::from_millis(5));
    }
    life.enter(false);
    life.pacemaker.proposed(life.now, life.view, next);
    let due = life.pacemaker.view_due.expect("it waits");
    life.now = due;
    life.enter(false);
    // A second one is within what may be owed.
    life.pacemaker.leaders.cost(next, SECOND, SECOND);
    assert!(life.pacemaker.leaders.is_waited_for(next));
}

/// R21: where a leader stays for many views, the first one has nobody to be compared with.
#[test]
fn who_turns_out_to_be_as_quick_as_the_others_owes_nothing_for_the_first_turn() {
    for (others, is_waited_for) in [(450, true), (5, false)] {
        let mut pacemaker = Pacemaker::new(QUIET, 4, 1).with_turns(100);
        let (mut now, first) = (Moment(0), ValidatorIndex(1));
        pacemaker.heard(first);
        for view in (1..120).map(View) {
            let leader = ValidatorIndex(1 + (view.0 / 100) as u32);
            let millis = if leader == first { 450 } else { others };
            pacemaker.enter(now, view, leader, Before::Block, Expected::Proposal);
            now = now.after(Duration::from_millis(millis));
            pacemaker.proposed(now, view, leader);
        }
        pacemaker.leaders.cost(first, SECOND, SECOND);
        assert_eq!(pacemaker.leaders.is_waited_for(first), is_waited_for);
    }
}

/// H5: nor does a leader wait longer for the end of the view before.
#[test]
fn behind_a_leader_that_is_down_the_next_ones_do_not_wait_longer_for_the_view_before() {
    let mut life = Life::new(4);
    life.rounds(20, 2, |_| false);
    while life.leader() != ValidatorIndex(2) {
        life.block(Duration::from_millis(10));
    }
    life.enter(false);
    let (now, view) = (life.now, life.view.next());
    let own = ValidatorIndex(0);
    life.pacemaker
        .enter(now, view, own, Before::Vote, Expected::Own);
    assert_eq!(life.pacemaker.views_without_block(), 1);
    assert_eq!(life.pacemaker.doubt_due, Some(now.after(MIN_PATIENCE / 2)));
}

#[test]
fn a_leader_that_comes_back_is_waited_for_within_32_turns_and_from_then_on() {
    let mut life = Life::new(4);
    life.rounds(20, 2, |_| false);
    let (one, two) = (ValidatorIndex(1), ValidatorIndex(2));
    // One failure is put up with.
    assert_eq!(life.rounds(1, 2, |_| true).0, 1);
    assert!(life.pacemaker.leaders.is_waited_for(two));
    assert_eq!(life.rounds(40, 2, |_| false), (0, Duration::ZERO));
    // After two it is skipped, though it takes part.
    assert_eq!(life.rounds(2, 2, |_| true).0, 2);
    let mut skipped = 0;
    while !life.pacemaker.leaders.is_waited_for(two) {
        life.rounds(1, 2, |_| false);
        skipped += 1;
    }
    assert!((16..=32).contains(&skipped), "{skipped}");
    assert_eq!(life.rounds(50, 2, |_| false), (0, Duration::ZERO));
    assert!(life.pacemaker.leaders.is_waited_for(one));
}

#[test]
fn a_slow_leader_is_given_more_time_now_and_then() {
    let mut life = Life::new(4);
    life.rounds(20, 2, |_| false);
    let (mut blocks, mut failures) = (0, 0);
    for _ in 0..4_000 {
        if life.leader() == ValidatorIndex(2) && life.waits() > Duration::ZERO {
            if life.waits() >= Duration::from_millis(300) {
                blocks += 1;
                life.block(Duration::from_millis(300));
            } else {
                failures += 1;
                life.nothing();
            }
        } else if life.leader() == ValidatorIndex(2) {
            life.nothing();
        } else {
            life.block(Duration::from_millis(10));
        }
    }
    assert!(blocks >= 4 && failures <= 8, "{blocks} {failures}");
}

#[test]
fn who_begins_later_owes_nothing_for_the_time_before() {
    let mut pacemaker = Pacemaker::new(QUIET, 4, 1);
    let leader = ValidatorIndex(2);
    pacemaker.leaders.cost(leader, 16 * SECOND, SECOND);
    pacemaker.missed(leader);
    assert!(!pacemaker.leaders.is_waited_for(leader));
    pacemaker.heard(leader);
    assert!(pacemaker.leaders.is_waited_for(leader));
    // Once.
    pacemaker.leaders.cost(leader, 16 * SECOND, SECOND);
    pacemaker.heard(leader);
    assert!(!pacemaker.leaders.is_waited_for(leader));
}

#[test]
fn silence_ends_with_taking_part_and_debts_when_all_fail() {
    let mut pacemaker = Pacemaker::new(QUIET, 4, 1);
    let leader = ValidatorIndex(2);
    pacemaker.missed(leader);
    assert!(!pacemaker.leaders.is_waited_for(leader));
    pacemaker.heard(leader);
    assert!(pacemaker.leaders.is_waited_for(leader));
    (0..3).for_each(|_| pacemaker.leaders.cost(leader, SECOND, SECOND));
    assert!(!pacemaker.leaders.is_waited_for(leader));
    let one = ValidatorIndex(1);
    pacemaker.enter(Moment(0), View(1), one, false, Expected::Proposal);
    assert!(!pacemaker.leaders.is_waited_for(leader));
    pacemaker.enter(Moment(0), View(2), leader, false, Expected::Proposal);
    assert_eq!(pacemaker.fire(Moment(0)), None, "two in a row, and f is 1");
}

#[test]
fn votes_have_twice_what_they_took_and_no_more_than_configured() {
    let mut life = Life::new(4);
    let voting = |life: &Life| {
        let due = life.pacemaker.view_due.expect("it waits");
        due.since(life.now) - life.waits()
    };
    assert_eq!(voting(&life), SECOND);
    for millis in [100, 9_000] {
        (0..4).for_each(|_| life.voted_within(Duration::from_millis(millis)));
        let expected = Duration::from_millis(2 * millis).min(SECOND);
        assert_eq!(voting(&life), expected);
    }
}

/// A leader that votes for its own blocks at the last moment gets four times the usual time for that at most, stretches nobody
/// else's, and is skipped soon.
#[test]
fn a_leader_that_withholds_its_own_vote_stretches_no_time_out() {
    let mut life = Life::new(4);
    let slow = ValidatorIndex(2);
    life.pacemaker.heard(slow);
    (0..12).for_each(|_| life.voted_within(Duration::from_millis(5)));
    let mut waited = Duration::ZERO;
    for _ in 0..64 {
        let due = life.pacemaker.view_due.expect("it waits");
        let took = match life.leader() == slow && life.waits() > Duration::ZERO {
            true => due.since(life.now) - Duration::from_millis(1),
            false => Duration::from_millis(5),
        };
        let leader = life.leader();
        if leader == slow && life.waits() == Duration::ZERO {
            life.nothing();
            continue;
        }
        life.voted_within(took);
        if leader == slow {
            waited += took;
        } else if life.leader() != slow {
            let due = life.pacemaker.view_due.expect("it waits");
            assert_eq!(due.since(life.now) - life.waits(), MIN_PATIENCE);
        }
    }
    assert!(waited < SECOND, "{waited:?}");
}

/// B10: keeping the certificates of the later phases back, each for less than its time-out, was free.
#[test]
fn a_leader_that_is_late_with_the_certificates_of_later_phases_is_skipped() {
    let mut pacemaker = Pacemaker::new(QUIET, 4, 1).with_turns(3);
    let slow = ValidatorIndex(2);
    let (mut now, mut view, mut late_turns) = (Moment(0), View(0), 0);
    for turn in 0..160 {
        let leader = ValidatorIndex(turn % 4);
        let expected = match leader {
            ValidatorIndex(0) => Expected::Own,
            _ => Expected::Proposal,
        };
        view = view.next();
        pacemaker.enter(now, view, leader, Before::Block, expected);
        pacemaker.proposed(now, view, leader);
        let skipped = leader == slow && !pacemaker.leaders.is_waited_for(slow);
        late_turns += u32::from(leader == slow && !skipped && turn >= 40);
        for _ in 0..2 {
            now = now.after(Duration::from_millis(5));
            view = view.next();
            pacemaker.enter(now, view, leader, Before::Vote, Expected::Votes);
            if leader == slow && !skipped && turn >= 40 {
                now = now.after(Duration::from_millis(150));
            }
        }
        now = now.after(Duration::from_millis(5));
    }
    assert!((1..=5).contains(&late_turns), "{late_turns}");
}

#[test]
fn what_others_say_counts_once_it_has_lasted_and_anew_in_each_view() {
    let mut life = Life::new(4);
    life.rounds(20, 2, |_| false);
    // Proposals take 10 ms here.
    let apart = Duration::from_millis(15);
    for _ in 0..2 {
        life.now = life.now.after(SECOND);
        assert!(!life.pacemaker.heeds(life.now));
        assert_eq!(life.pacemaker.left_alone.due, Some(life.now.after(apart)));
        assert!(!life.pacemaker.heeds(life.now.after(apart / 2)));
        assert!(life.pacemaker.heeds(life.now.after(apart)));
        assert!(!life.pacemaker.is_left_out(life.now));
        life.now = life.now.after(apart);
        life.enter(true);
    }
}

/// A chain of four that idles for a second after each block, as validator 0 sees it.
fn idling() -> Life {
    let mut life = Life::new(4);
    life.rounds(20, 2, |_| false);
    life.pacemaker.timing.idle_interval = SECOND;
    life.pacemaker.pending(life.now, false);
    life.block(Duration::ZERO);
    // Nobody knows how long it takes itself.
    if life.leader() == ValidatorIndex(0) {
        life.block(Duration::ZERO);
    }
    life
}

const PATIENCE: Duration = Duration::from_millis(50);

#[test]
fn an_idle_leader_is_waited_for_from_the_end_of_the_interval_or_from_when_something_comes_up() {
    let mut life = idling();
    assert_eq!(life.waits(), SECOND + PATIENCE);
    life.now = life.now.after(SECOND / 4);
    life.pacemaker.pending(life.now, true);
    assert_eq!(life.waits(), PATIENCE);
    // What came up is done with, and the leader has not proposed: it may wait again.
    life.pacemaker.pending(life.now, false);
    assert_eq!(life.waits(), SECOND * 3 / 4 + PATIENCE);
    // It is not as free once it has proposed.
    life.pacemaker.pending(life.now, true);
    let (view, leader) = (life.view, life.leader());
    life.pacemaker.proposed(life.now, view, leader);
    life.pacemaker.pending(life.now, false);
    assert_eq!(life.waits(), PATIENCE);
}

#[test]
fn after_a_view_that_brought_nothing_nobody_idles() {
    let mut life = idling();
    life.nothing();
    assert_eq!(life.waits(), PATIENCE * 2);
    life.block(Duration::ZERO);
    assert_eq!(life.waits(), SECOND + PATIENCE);
}

#[test]
fn idling_owes_nothing_and_tells_nothing_of_how_long_proposals_take() {
    let mut life = idling();
    life.pacemaker.timing.idle_interval = Duration::ZERO;
    (0..8).for_each(|_| life.block(Duration::from_millis(40)));
    life.pacemaker.timing.idle_interval = SECOND;
    let patience = life.pacemaker.leaders.usual().patience;
    assert_eq!(patience, Duration::from_millis(80));
    for round in 0..400 {
        // Before the interval's end, since something came up that is not known here; and at its end.
        let after = if round % 3 == 0 { SECOND / 3 } else { SECOND };
        let took = Duration::from_millis(if round % 3 == 0 { 0 } else { 40 });
        life.block(after + took);
    }
    assert_eq!(life.pacemaker.leaders.usual().patience, patience);
    let all = [1, 2, 3].map(ValidatorIndex);
    assert!(all.iter().all(|v| life.pacemaker.leaders.is_waited_for(*v)));
    // The votes' time begins with the proposal.
    let due = life.pacemaker.view_due.expect("it waits").since(life.now);
    assert!(due <= life.waits() + PATIENCE, "{due:?}");
}

/// Whoever votes and never proposes costs as little on an idle chain as on a busy one.
#[test]
fn a_lazy_leader_of_an_idle_chain_is_skipped() {
    let mut life = idling();
    let (mut costs, mut turns) = (0, 0);
    while turns < 1_600 {
        if life.leader() != ValidatorIndex(2) {
            life.block(SECOND);
            continue;
        }
        turns += 1;
        costs += u64::from(life.nothing() > Duration::ZERO);
    }
    assert!((3..=100).contains(&costs), "{costs}");
}

/// Others have given the view up, for what they know and this validator does not.
#[test]
fn a_leader_that_was_not_waited_for_here_owes_nothing_here() {
    let mut life = idling();
    for _ in 0..8 {
        while life.leader() != ValidatorIndex(2) {
            life.block(SECOND);
        }
        life.enter(false);
        life.block(Duration::ZERO);
    }
    assert!(life.pacemaker.leaders.is_waited_for(ValidatorIndex(2)));
}

/// H6: others may have seen a block in one of the two views.
#[test]
fn a_leader_waits_for_votes_by_the_back_off_that_all_have() {
    let mut life = Life::new(4);
    life.enter(false);
    life.enter(false);
    assert_eq!(life.pacemaker.views_without_block(), 2);
    for (nullified, doublings) in [(0, 0), (1, 1), (2, 2), (3, 2)] {
        assert!(life.pacemaker.gathers(life.now, nullified));
        let waits = MIN_PATIENCE / 2 * (1 << doublings);
        assert_eq!(life.pacemaker.gather_due, Some(life.now.after(waits)));
    }
}

/// R20: a faulty leader keeps its block from the next one, which begins late by that.
#[test]
fn who_began_late_is_timed_from_its_vote() {
    let mut life = Life::new(4);
    let victim = ValidatorIndex(2);
    let late = Duration::from_millis(300);
    for _ in 0..40 {
        let leader = life.leader();
        if leader == victim {
            life.now = life.now.after(late);
            let before = life.view.previous().expect("there is one");
            life.pacemaker.has_voted(life.now, before, leader);
        }
        life.block(match leader {
            ValidatorIndex(1) => late,
            _ => Duration::from_millis(2),
        });
    }
    let usual = life.pacemaker.leaders.usual();
    assert_eq!(usual.patience, MIN_PATIENCE);
    // A vote in a view long past tells nothing.
    let turn = |life: &Life| life.pacemaker.turn.as_ref().and_then(|turn| turn.behind);
    life.enter(true);
    let (now, leader) = (life.now, life.leader());
    life.pacemaker.has_voted(now, View(1), leader);
    assert_eq!(turn(&life), None);
}

/// R24: how long what others have voted for may still be on its way is learned from what came so.
#[test]
fn a_block_that_others_have_voted_for_is_waited_for_as_long_as_such_blocks_take() {
    let mut life = Life::new(4);
    let waits = |life: &Life| life.pacemaker.turn.as_ref().map(|turn| turn.lag);
    assert_eq!(waits(&life), Some(MIN_PATIENCE));
    let lag = Duration::from_millis(8);
    for _ in 0..20 {
        let (view, leader) = (life.view, life.leader());
        assert!(!life.pacemaker.is_left_out(life.now));
        life.now = life.now.after(lag);
        life.pacemaker.came(life.now, view, leader);
        life.block(Duration::from_millis(40));
    }
    assert_eq!(waits(&life), Some(lag * 2 + Duration::from_millis(5)));
}

/// R21: a hundred proposals that are each a little later than is free.
#[test]
fn small_delays_add_up() {
    let mut leaders = Leaders::new(QUIET, 4, 1);
    let slow = ValidatorIndex(1);
    let excess = QUIET.leader_timeout / 40;
    for _ in 0..79 {
        leaders.delays(slow, excess, QUIET.leader_timeout);
        assert!(leaders.is_waited_for(slow));
    }
    leaders.delays(slow, excess, QUIET.leader_timeout);
    leaders.delays(slow, excess, QUIET.leader_timeout);
    assert!(!leaders.is_waited_for(slow));
}
