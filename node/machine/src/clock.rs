//! The machine's clocks, and whether its wall clock agrees with the other validators'.
//!
//! Each proposal carries its leader's clock. The difference to this machine's clock on arrival is
//! the network's delay plus how far this clock is ahead. Only blocks that became final count, since
//! a leader can propose anything, and each leader counts once, since it may lead often. The middle
//! one of these differences cannot be made up by f liars; of two middle ones the smaller counts.
//!
//! A machine without time for its processes looks like one whose clock is ahead, because blocks are
//! old when they are read. So a leader's difference is the smallest one of its newest few blocks,
//! and the lateness of this process is subtracted from a difference that says "ahead". Delay never
//! makes a clock look behind. Two bounds depend on clocks: a block may be at most five seconds
//! ahead of a voter's clock, and links are made only between clocks that are closer than that. So a
//! clock that is seconds off is reported long before the validator drops out.

use quorate_consensus::Moment;
use quorate_types::{Block, Committee, Digest, ValidatorIndex};
use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Where the validator reads the time from.
pub trait Clock: Send + Sync {
    /// A monotonic clock with an arbitrary start.
    fn now(&self) -> Moment;

    /// Milliseconds since 1970 by this machine's wall clock.
    fn wall_ms(&self) -> u64;
}

#[derive(Clone, Copy, Debug)]
pub struct SystemClock(Instant);

impl SystemClock {
    pub fn start() -> Self {
        Self(Instant::now())
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        Moment::default().after(self.0.elapsed())
    }

    fn wall_ms(&self) -> u64 {
        now_ms()
    }
}

/// Milliseconds since 1970 by this machine's wall clock.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let millis = since.unwrap_or(Duration::ZERO).as_millis();
    u64::try_from(millis).unwrap_or(u64::MAX)
}

pub mod testing {
    use super::{Clock, Moment, now_ms};
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    /// A clock that shows the microseconds that it is set to.
    #[derive(Default)]
    pub struct Hand(pub AtomicU64);

    impl Clock for Hand {
        fn now(&self) -> Moment {
            Moment(self.0.load(Relaxed))
        }

        fn wall_ms(&self) -> u64 {
            now_ms()
        }
    }
}

/// Proposals of one leader that may wait for finality.
const WAITING: usize = 8;

/// Newest final blocks of a leader of which the smallest difference counts, and for how long.
const NEWEST: usize = 8;
const NEWEST_FOR: Duration = Duration::from_secs(30);

/// How long the lateness of this process counts.
const LATE_FOR: Duration = Duration::from_secs(60);

/// How many other clocks must be known before this one is judged.
pub(crate) fn voices_needed(committee: &Committee) -> usize {
    let others = committee.size().saturating_sub(1);
    others.saturating_sub(committee.faults()).max(1)
}

/// The same for clocks that peers send over links, while `missing` validators have no link. Each of
/// these is one of the f that may be faulty, so fewer of the others can be wrong. When two clocks
/// differ, neither is known to be wrong, so one other clock is never enough.
pub(crate) fn links_needed(committee: &Committee, missing: usize) -> usize {
    let wrong = committee.faults().saturating_sub(missing);
    (2 * wrong).max(2)
}

/// The middle difference, the smaller of two; `None` if there are too few.
pub(crate) fn middle(mut differences: Vec<i64>, enough: usize) -> Option<i64> {
    if differences.len() < enough || differences.is_empty() {
        return None;
    }
    differences.sort_unstable();
    let middle = [(differences.len() - 1) / 2, differences.len() / 2];
    let middle = middle.map(|place| differences[place]);
    middle.into_iter().min_by_key(|ahead| ahead.unsigned_abs())
}

/// Differences to the other leaders' clocks.
pub(crate) struct ClockWatch {
    /// Leaders needed for a judgement.
    enough: usize,
    /// Each leader's newest proposals, and how far this clock was ahead of them.
    waiting: BTreeMap<ValidatorIndex, VecDeque<(Digest, i64)>>,
    /// Each leader's newest final proposals, and when they became final.
    voices: BTreeMap<ValidatorIndex, VecDeque<(Moment, i64)>>,
    /// How late this process was, in milliseconds, and when. Each value is greater than all after
    /// it.
    late: VecDeque<(Moment, i64)>,
}

impl ClockWatch {
    pub(crate) fn new(enough: usize) -> Self {
        Self {
            enough,
            waiting: BTreeMap::new(),
            voices: BTreeMap::new(),
            late: VecDeque::new(),
        }
    }

    /// Notes a leader's proposal and this machine's wall clock on arrival, in milliseconds since
    /// 1970.
    pub(crate) fn heard(&mut self, leader: ValidatorIndex, block: &Block, now_ms: u64) {
        let difference = i128::from(now_ms) - i128::from(block.header().timestamp_ms);
        let bounded = difference.clamp(i128::from(i64::MIN), i128::from(i64::MAX));
        let waiting = self.waiting.entry(leader).or_default();
        let id = block.id();
        // A repeated proposal shows how long ago it was made.
        if waiting.iter().any(|(held, _)| *held == id) {
            return;
        }
        waiting.push_back((id, i64::try_from(bounded).unwrap_or_default()));
        if waiting.len() > WAITING {
            waiting.pop_front();
        }
    }

    /// Notes that a leader's block became final.
    pub(crate) fn accepted(&mut self, now: Moment, leader: ValidatorIndex, block: Digest) {
        let waiting = self.waiting.get(&leader).into_iter().flatten();
        if let Some((_, ahead)) = waiting.copied().find(|(id, _)| *id == block) {
            let newest = self.voices.entry(leader).or_default();
            newest.retain(|(at, _)| now.since(*at) <= NEWEST_FOR);
            newest.push_back((now, ahead));
            if newest.len() > NEWEST {
                newest.pop_front();
            }
        }
    }

    /// Notes that this process did something later than planned.
    pub(crate) fn was_late(&mut self, now: Moment, by: Duration) {
        let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        self.late
            .retain(|(at, earlier)| now.since(*at) <= LATE_FOR && *earlier > by);
        if by > 0 {
            self.late.push_back((now, by));
        }
    }

    /// By how many milliseconds this clock is ahead of the others', including the network's delay;
    /// negative if it is behind. `None` while too few leaders were seen lately: blocks from before
    /// a halt say nothing about a clock that was set since.
    pub(crate) fn ahead_ms(&self, now: Moment) -> Option<i64> {
        let voice = |newest: &VecDeque<(Moment, i64)>| {
            let fresh = newest.iter().filter(|(at, _)| now.since(*at) <= NEWEST_FOR);
            fresh.map(|(_, ahead)| *ahead).min()
        };
        let voices = self.voices.values().filter_map(voice).collect();
        let ahead = middle(voices, self.enough)?;
        let late = self.late.front().map_or(0, |(_, by)| *by);
        Some(match ahead > 0 {
            true => (ahead - late).max(0),
            false => ahead,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::{ChainId, Epoch, Header, Height, View};

    fn block(view: u64, timestamp_ms: u64) -> Block {
        let header = Header {
            chain: ChainId(Digest::ZERO),
            epoch: Epoch(0),
            view: View(view),
            height: Height(view),
            parent: Digest::ZERO,
            parent_view: View(0),
            timestamp_ms,
            executed_height: Height(0),
            state_root: Digest::ZERO,
            body_root: Header::body_root_of(&[]),
        };
        Block::new(header, Vec::new()).expect("an empty block")
    }

    fn second(count: u64) -> Moment {
        Moment::default().after(Duration::from_secs(count))
    }

    /// Blocks of all leaders, one each second, that are so old when they are read.
    fn hear(watch: &mut ClockWatch, from: u64, ages_ms: &[i64]) {
        for (second, age) in (from..).zip(ages_ms) {
            for place in 1..=3 {
                let made_ms = 1_000_000 + 1_000 * second;
                let block = block(10 * second + u64::from(place), made_ms);
                let now_ms = made_ms.checked_add_signed(*age).expect("far from zero");
                watch.heard(leader(place), &block, now_ms);
                let now = Moment::default().after(Duration::from_secs(second));
                watch.accepted(now, leader(place), block.id());
            }
        }
    }

    #[test]
    fn a_starved_machine_does_not_look_like_one_with_a_wrong_clock() {
        // Most blocks wait long until they are read, and one of several does not.
        let mut watch = ClockWatch::new(2);
        hear(
            &mut watch,
            0,
            &[2_900, 4_000, 3_100, 40, 2_500, 6_000, 3_000],
        );
        assert_eq!(watch.ahead_ms(second(6)), Some(40));
        // All are late, and so is whatever this process does.
        let mut watch = ClockWatch::new(2);
        hear(&mut watch, 0, &[3_000; 10]);
        assert_eq!(watch.ahead_ms(second(9)), Some(3_000));
        watch.was_late(second(9), Duration::from_millis(2_600));
        watch.was_late(second(10), Duration::from_millis(10));
        assert_eq!(watch.ahead_ms(second(10)), Some(400));
        // A minute later it counts no more, and neither do the blocks.
        watch.was_late(second(70), Duration::from_millis(10));
        assert_eq!(watch.ahead_ms(second(70)), None, "a chain that halted");
        hear(&mut watch, 70, &[3_000; 10]);
        assert_eq!(watch.ahead_ms(second(79)), Some(2_990));
    }

    #[test]
    fn a_clock_that_is_behind_looks_so_however_late_blocks_are_read() {
        let mut watch = ClockWatch::new(2);
        hear(&mut watch, 0, &[-2_900, -500, -2_950, 100]);
        watch.was_late(Moment::default(), Duration::from_secs(9));
        assert_eq!(watch.ahead_ms(second(3)), Some(-2_950));
        // Set right, it is soon forgotten.
        hear(&mut watch, 4, &[20; 8]);
        watch.was_late(second(120), Duration::ZERO);
        assert_eq!(watch.ahead_ms(second(12)), Some(20));
    }

    fn leader(place: u32) -> ValidatorIndex {
        ValidatorIndex(place)
    }

    #[test]
    fn a_clock_that_is_off_shows_and_one_wrong_leader_does_not() {
        let mut watch = ClockWatch::new(2);
        let mut say = |place: u32, view: u64, timestamp_ms: u64, now_ms: u64| {
            let block = block(view, timestamp_ms);
            watch.heard(leader(place), &block, now_ms);
            watch.accepted(second(view), leader(place), block.id());
            watch.ahead_ms(second(view))
        };
        assert_eq!(say(1, 1, 1_000_000, 1_000_020), None);
        // Of two voices one may lie: the smaller difference counts.
        assert_eq!(say(2, 2, 0, 1_000_030), Some(20));
        assert_eq!(say(3, 3, 1_000_000, 1_000_040), Some(40));
        assert_eq!(say(1, 5, 1_000_000, 997_000), Some(40));
        assert_eq!(say(3, 7, 1_000_000, 997_010), Some(-2_990));
        assert_eq!(say(2, 8, u64::MAX, 0), Some(-3_000));
        assert_eq!(say(2, 9, 0, u64::MAX), Some(-3_000));
    }

    #[test]
    fn what_never_becomes_final_says_nothing_and_a_leader_has_one_voice() {
        let mut watch = ClockWatch::new(2);
        for view in 0..100 {
            watch.heard(leader(1), &block(view, 0), 9_000_000);
        }
        assert_eq!(watch.ahead_ms(second(1)), None);
        assert!(watch.waiting[&leader(1)].len() <= WAITING);
        // Nor does a block that another leader has only repeated.
        watch.accepted(second(1), leader(2), block(99, 0).id());
        assert_eq!(watch.ahead_ms(second(1)), None);
        for view in 100..200 {
            let block = block(view, 0);
            watch.heard(leader(1), &block, 9_000_000);
            watch.accepted(second(view / 10), leader(1), block.id());
        }
        assert_eq!(
            watch.ahead_ms(second(20)),
            None,
            "one leader, however often it leads"
        );
        let late = block(200, 5_000);
        watch.heard(leader(2), &late, 5_010);
        // Said again much later.
        watch.heard(leader(2), &late, 50_000);
        watch.accepted(second(20), leader(2), late.id());
        assert_eq!(watch.ahead_ms(second(20)), Some(10));
    }

    #[test]
    fn of_two_clocks_that_differ_neither_is_called_wrong() {
        let needed = |validators: u8| {
            let identities = (0..validators).map(|i| quorate_types::Identity([i; 32]));
            let committee = Committee::new(Epoch(0), identities.collect());
            voices_needed(&committee.expect("distinct"))
        };
        assert_eq!([1, 4, 7].map(needed), [1, 2, 4]);
        let links = |validators: u8, missing| {
            let identities = (0..validators).map(|i| quorate_types::Identity([i; 32]));
            let committee = Committee::new(Epoch(0), identities.collect());
            links_needed(&committee.expect("distinct"), missing)
        };
        assert_eq!([links(4, 0), links(4, 2), links(2, 0)], [2, 2, 2]);
        assert_eq!([links(7, 0), links(7, 1), links(7, 3)], [4, 2, 2]);
        assert_eq!(middle(vec![-3_000], 2), None, "the others are away");
        assert_eq!(
            middle(vec![0, -3_000], 2),
            Some(0),
            "the other one is wrong"
        );
        assert_eq!(
            middle(vec![3_001, 3_000], 2),
            Some(3_000),
            "this one is wrong"
        );
        assert_eq!(middle(vec![-9_000, 3_000, 3_010], 2), Some(3_000));
        assert_eq!(middle(Vec::new(), 0), None);
    }
}
