//! The parts of the state that are missing, and who is asked for them.

use crate::directory::PeerIndex;
use quorate_consensus::Moment;
use quorate_storage::tree::CHUNK_MAX_ENTRIES;
use quorate_types::{Height, Span};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// How full a part should be: parts of equal size differ by chance.
const FILL: f64 = 0.7;

/// Bits by which the first, unknown size of a part is narrowed at a time.
const PROBE_STEP: usize = 4;

/// The most bits that are tried to find out how dense the state is. A peer that says that so narrow a
/// part has too many entries is not asked again until that is known.
const MAX_PROBE: usize = 28;

/// A part is requested from another peer as well after so many times the usual time.
const STEAL_AFTER: u32 = 4;

/// A peer with nothing else to do is asked for a part that others have been asked for if so many of its usual times
/// pass before theirs.
const FASTER: u32 = 2;

/// Most peers that are asked for the same part.
const MAX_HOLDERS: usize = 3;

/// A part that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Item {
    pub(super) span: Span,
    /// The height at which it is right; 0 if nothing is known of it.
    pub(super) since: Height,
}

/// Who is asked for a part, and since when.
#[derive(Default)]
struct Asked {
    holders: Vec<PeerIndex>,
    newest: Moment,
}

/// Whether a peer may be asked for any of a span.
pub type MayAsk = Box<dyn Fn(PeerIndex, &Span) -> bool + Send>;

/// The missing parts.
#[derive(Default)]
pub(super) struct Work {
    may_ask: Option<MayAsk>,
    /// Those that nobody is asked for; the next one last.
    todo: Vec<Item>,
    asked: BTreeMap<Item, Asked>,
    /// The bits of a part that is well filled, once that is known.
    depth: Option<usize>,
    /// The bits that are tried until then.
    probe: usize,
    /// Who said that the narrowest part that is tried has too many entries.
    denied: BTreeSet<PeerIndex>,
    /// Whose changes of a part did not verify.
    doubted: BTreeMap<Item, Vec<PeerIndex>>,
    /// Who says that a narrow part has too many entries.
    narrowed: BTreeMap<Item, BTreeSet<PeerIndex>>,
}

impl Work {
    pub(super) fn new(may_ask: Option<MayAsk>) -> Self {
        Self {
            may_ask,
            ..Self::default()
        }
    }

    fn may_ask(&self, peer: PeerIndex, span: &Span) -> bool {
        let may_ask = self.may_ask.as_ref();
        may_ask.is_none_or(|may_ask| may_ask(peer, span))
    }

    /// Begins with these parts. What is known of the state's density stays.
    pub(super) fn begin(&mut self, open: impl Iterator<Item = (Span, Height)>) {
        self.todo = open.map(|(span, since)| Item { span, since }).collect();
        self.todo.reverse();
        self.asked.clear();
        self.doubted.clear();
        self.narrowed.clear();
    }

    /// About how many parts are missing.
    pub(super) fn left(&self) -> usize {
        let depth = self.depth.unwrap_or(0);
        let parts = |item: &Item| 1_usize << depth.saturating_sub(item.span.bits()).min(40);
        self.todo.iter().map(parts).sum::<usize>() + self.asked.len()
    }

    /// The next part for a peer: one that nobody is asked for, else one that others are late with. A part takes
    /// `usual` with the fastest peer, and `takes` with each.
    pub(super) fn next(
        &mut self,
        peer: PeerIndex,
        now: Moment,
        usual: Duration,
        takes: impl Fn(PeerIndex) -> Duration,
    ) -> Option<Item> {
        let item = self.fresh(peer);
        let item = item.or_else(|| self.late(peer, now, usual, takes))?;
        let asked = self.asked.entry(item).or_default();
        asked.holders.push(peer);
        asked.newest = now;
        Some(item)
    }

    fn fresh(&mut self, peer: PeerIndex) -> Option<Item> {
        let bits = match self.depth {
            Some(depth) => depth,
            // One request of each peer finds out how dense the state is. The first part decides, so
            // a slow peer holds nobody up.
            None if self.holds(peer) || self.denied.contains(&peer) => return None,
            None => self.probe,
        };
        let place = self
            .todo
            .iter()
            .rposition(|item| !self.refuses(item, peer))?;
        let mut item = self.todo.remove(place);
        while item.span.bits() < bits
            && let Some([left, right]) = item.span.halves()
        {
            let (this, other) = match self.may_ask(peer, &left) {
                true => (left, right),
                false => (right, left),
            };
            self.todo.push(Item {
                span: other,
                ..item
            });
            item.span = this;
        }
        Some(item)
    }

    /// Whether a peer is asked for a part.
    fn holds(&self, peer: PeerIndex) -> bool {
        let mut asked = self.asked.values();
        asked.any(|asked| asked.holders.contains(&peer))
    }

    /// Whether a peer was asked for this part in vain, or is not to be asked.
    fn refuses(&self, item: &Item, peer: PeerIndex) -> bool {
        let doubted = self.doubted.get(item);
        !self.may_ask(peer, &item.span)
            || doubted.is_some_and(|peers| peers.contains(&peer))
            || self
                .narrowed
                .get(item)
                .is_some_and(|peers| peers.contains(&peer))
    }

    /// A part that others were asked for long ago, or that this peer is likely to deliver well before them.
    fn late(
        &self,
        peer: PeerIndex,
        now: Moment,
        usual: Duration,
        takes: impl Fn(PeerIndex) -> Duration,
    ) -> Option<Item> {
        let limit = usual * STEAL_AFTER;
        let soon = now.after(takes(peer) * FASTER);
        let late = self.asked.iter().filter(|(item, asked)| {
            let others = asked.holders.iter().map(|holder| takes(*holder)).min();
            let expected = asked.newest.after(others.unwrap_or_default());
            (now >= asked.newest.after(limit) || expected > soon)
                && asked.holders.len() < MAX_HOLDERS
                && !asked.holders.contains(&peer)
                && !self.refuses(item, peer)
        });
        let oldest = late.min_by_key(|(_, asked)| asked.newest)?;
        Some(*oldest.0)
    }

    /// Parts that a peer does not deliver. Those that others are asked for too are left to them.
    pub(super) fn put_back(&mut self, peer: PeerIndex, items: Vec<Item>) {
        for item in items {
            let Some(asked) = self.asked.get_mut(&item) else {
                continue;
            };
            asked.holders.retain(|holder| *holder != peer);
            if asked.holders.is_empty() {
                self.asked.remove(&item);
                self.todo.push(item);
            }
        }
    }

    /// A part is right. Returns who has sent changes of it that do not verify.
    pub(super) fn done(&mut self, item: &Item) -> Vec<PeerIndex> {
        self.asked.remove(item);
        self.narrowed.remove(item);
        // A wider part than was requested may make others right, which nobody was asked for yet.
        self.doubted.remove(item).unwrap_or_default()
    }

    /// Changes of a part do not verify. Another peer is asked for them; if its changes do not verify
    /// either, or there is no other, for the whole part.
    pub(super) fn doubt(&mut self, item: Item, from: PeerIndex, others: usize) {
        self.asked.remove(&item);
        let doubted = self.doubted.entry(item).or_default();
        doubted.push(from);
        if doubted.len() >= 2 || others < 2 {
            self.doubted.remove(&item);
            self.todo.push(Item {
                since: Height(0),
                ..item
            });
        } else {
            self.todo.push(item);
        }
    }

    /// A peer says that a part has too many entries for one message. If the state's density makes that
    /// unlikely, so many peers have to say it. Returns whether it is believed.
    pub(super) fn too_many(&mut self, item: Item, from: PeerIndex, enough: usize) -> bool {
        let Some(asked) = self.asked.get_mut(&item) else {
            return true;
        };
        let plausible = match self.depth {
            None => true,
            Some(depth) => item.span.bits() < depth,
        };
        let said = self.narrowed.entry(item).or_default();
        said.insert(from);
        if !plausible && said.len() < enough {
            asked.holders.retain(|holder| *holder != from);
            if asked.holders.is_empty() {
                self.asked.remove(&item);
                self.todo.push(item);
            }
            return false;
        }
        self.asked.remove(&item);
        self.narrowed.remove(&item);
        match (self.depth, item.span.halves()) {
            (None, Some(_)) => {
                if item.span.bits() >= MAX_PROBE {
                    self.denied.insert(from);
                }
                self.probe = (item.span.bits() + PROBE_STEP).min(MAX_PROBE);
                self.todo.push(item);
            }
            (_, Some([left, right])) => {
                self.todo.push(Item {
                    span: right,
                    ..item
                });
                self.todo.push(Item { span: left, ..item });
            }
            (_, None) => self.todo.push(item),
        }
        true
    }

    /// A verified part has so many entries: keys are hashes, so others are as dense.
    pub(super) fn learn(&mut self, span: &Span, entries: usize) {
        if self.depth.is_none() {
            let bits = i32::try_from(span.bits()).unwrap_or(i32::MAX);
            let all = entries.max(1) as f64 * 2_f64.powi(bits);
            let parts = all / (CHUNK_MAX_ENTRIES as f64 * FILL);
            self.depth = Some(parts.log2().ceil().clamp(0.0, 40.0) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Duration = Duration::from_millis(100);
    const START: Moment = Moment(0);

    fn work() -> Work {
        let mut work = Work::default();
        work.begin([(Span::ALL, Height(0))].into_iter());
        work
    }

    fn next(work: &mut Work, peer: usize, now: Moment) -> Option<Item> {
        work.next(PeerIndex(peer), now, USUAL, |_| USUAL)
    }

    #[test]
    fn the_density_is_found_out_by_one_request_at_a_time() {
        let mut work = work();
        let first = next(&mut work, 1, START).expect("everything is missing");
        assert_eq!(first.span, Span::ALL);
        assert_eq!(next(&mut work, 2, START), None);
        work.too_many(first, PeerIndex(1), 3);
        let second = next(&mut work, 2, START).expect("a part");
        assert_eq!(second.span.bits(), PROBE_STEP);
        work.too_many(second, PeerIndex(2), 3);
        let third = next(&mut work, 1, START).expect("a part");
        assert_eq!(third.span.bits(), 2 * PROBE_STEP);
        // 256 parts of 1,000 entries: 23 full ones, so 32.
        work.learn(&third.span, 1_000);
        work.done(&third);
        let parts: Vec<_> = std::iter::from_fn(|| next(&mut work, 1, START)).collect();
        assert!(
            parts.iter().skip(3).all(|item| item.span.bits() == 5),
            "{parts:?}"
        );
        // What is beside the probes is narrower; together they are everything.
        let share: f64 = parts
            .iter()
            .map(|i| 0.5_f64.powi(i.span.bits() as i32))
            .sum();
        assert!((share - 255.0 / 256.0).abs() < 1e-9, "{share}");
    }

    #[test]
    fn a_late_part_goes_to_another_peer_as_well() {
        let mut work = work();
        let item = next(&mut work, 1, START).expect("everything");
        work.learn(&Span::ALL, 10);
        let early = START.after(USUAL * STEAL_AFTER - Duration::from_millis(1));
        assert_eq!(next(&mut work, 2, early), None);
        let late = START.after(USUAL * STEAL_AFTER);
        assert_eq!(next(&mut work, 1, late), None, "it has it already");
        assert_eq!(next(&mut work, 2, late), Some(item));
        // One of the two fails: the other one is left.
        work.put_back(PeerIndex(1), vec![item]);
        assert_eq!(next(&mut work, 3, late), None);
        work.put_back(PeerIndex(2), vec![item]);
        assert_eq!(next(&mut work, 3, late), Some(item));
    }

    #[test]
    fn what_a_slow_peer_was_asked_for_goes_to_a_fast_one_with_nothing_else_to_do() {
        let slow = PeerIndex(1);
        let takes = |peer| if peer == slow { USUAL * 30 } else { USUAL };
        let mut work = work();
        let item = work.next(slow, START, USUAL, takes).expect("everything");
        work.learn(&Span::ALL, 10);
        let fast = |work: &mut Work, peer| work.next(PeerIndex(peer), START, USUAL, takes);
        assert_eq!(fast(&mut work, 2), Some(item));
        assert_eq!(fast(&mut work, 3), None, "the fast one delivers it as soon");
        // What a fast one has is not the slow one's to take.
        work.put_back(slow, vec![item]);
        assert_eq!(work.next(slow, START, USUAL, takes), None);
    }

    #[test]
    fn too_many_is_believed_from_more_than_can_lie_once_the_density_is_known() {
        let mut work = work();
        while let Some(item) = next(&mut work, 1, START) {
            work.too_many(item, PeerIndex(1), 3);
        }
        let narrow = next(&mut work, 2, START).expect("another one is asked");
        assert_eq!(narrow.span.bits(), MAX_PROBE);
        work.learn(&Span::ALL, 10);
        let item = next(&mut work, 1, START).expect("what is beside it");
        for peer in [1, 2] {
            assert!(!work.too_many(item, PeerIndex(peer), 3));
            assert_ne!(
                next(&mut work, peer, START),
                Some(item),
                "it is not asked again"
            );
            assert_eq!(next(&mut work, peer + 1, START), Some(item));
        }
        assert!(work.too_many(item, PeerIndex(3), 3));
        let half = next(&mut work, 4, START).expect("a half");
        assert_eq!(half.span.bits(), item.span.bits() + 1);
    }

    #[test]
    fn too_many_is_believed_from_the_only_peer_that_serves() {
        let mut work = work();
        let first = next(&mut work, 1, START).expect("everything");
        work.learn(&Span::ALL, 10);
        work.too_many(first, PeerIndex(1), 1);
        let half = next(&mut work, 1, START).expect("a half");
        assert_eq!(half.span.bits(), 1);
    }

    #[test]
    fn changes_that_do_not_verify_are_asked_for_elsewhere_before_the_whole_part() {
        let mut work = Work::default();
        work.begin([(Span::ALL, Height(7))].into_iter());
        work.learn(&Span::ALL, 10);
        let item = next(&mut work, 1, START).expect("everything");
        work.doubt(item, PeerIndex(1), 3);
        assert_eq!(next(&mut work, 1, START), None);
        assert_eq!(next(&mut work, 2, START), Some(item));
        assert_eq!(work.done(&item), [PeerIndex(1)], "who is to blame");
        work.begin([(Span::ALL, Height(7))].into_iter());
        for peer in [1, 2] {
            let item = next(&mut work, peer, START).expect("everything");
            work.doubt(item, PeerIndex(peer), 3);
        }
        let whole = next(&mut work, 1, START).expect("the whole part");
        assert_eq!(whole.since, Height(0));
        assert!(work.done(&whole).is_empty(), "nobody is to blame");
    }
}
