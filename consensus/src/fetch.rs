//! Requests for what is missing.
//!
//! Each request goes to one peer at a time, and to another one when no answer has come in time or a
//! bad one has. A peer that left a request unanswered, or answered it badly, is asked after the
//! others until it answers well. An answer counts only from a peer that was asked.

use crate::{
    config::MAX_WANTS,
    durations::{Peak, least, longest_but},
    io::{Moment, Outbound, Target},
};
use quorate_crypto::Digest;
use quorate_types::{Epoch, Height, Message, ValidatorIndex, View};
use std::{collections::BTreeMap, time::Duration};

/// The weight of a bad answer, in unanswered requests.
const BAD_ANSWER: u32 = 8;

/// The highest weight of a peer's failures, so that a few good answers make up for them.
const MAX_FAILURES: u32 = 64;

/// Something that this validator lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Want {
    Block(Digest),
    /// Final blocks from this height on.
    Range(Height),
    /// The certificates that ended these views.
    Certificates(View, View),
}

struct Request {
    /// The peer that is asked now.
    asked: ValidatorIndex,
    /// All peers that were asked, and when; late answers count too.
    all_asked: BTreeMap<ValidatorIndex, Moment>,
    due: Moment,
    attempts: u32,
    /// How many more peers are asked without waiting for long.
    hurried: usize,
}

/// The requests under way, at most [`MAX_WANTS`], and the peers' failures.
pub(crate) struct Fetcher {
    epoch: Epoch,
    peers: Vec<ValidatorIndex>,
    timeout: Duration,
    /// Peers that may be faulty.
    faults: usize,
    /// How long each peer's answers took lately.
    answers: BTreeMap<ValidatorIndex, Peak>,
    wants: BTreeMap<Want, Request>,
    /// How often each peer has failed lately.
    failures: BTreeMap<ValidatorIndex, u32>,
    /// The peer at which the next turn begins.
    next: usize,
}

impl Fetcher {
    pub(crate) fn new(
        epoch: Epoch,
        peers: Vec<ValidatorIndex>,
        faults: usize,
        timeout: Duration,
    ) -> Self {
        Self {
            epoch,
            peers,
            timeout,
            faults,
            answers: BTreeMap::new(),
            wants: BTreeMap::new(),
            failures: BTreeMap::new(),
            next: 0,
        }
    }

    /// Drops all requests at the start of an epoch. The peers' failures stay.
    pub(crate) fn renew(&mut self, epoch: Epoch) {
        self.epoch = epoch;
        self.wants.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.wants.len()
    }

    /// Requests something, unless it is requested already. `hint` is a peer that should have it;
    /// `lacks` tells which peers cannot answer, or should be asked last. `hurried` are asked for certificates at once, and for
    /// a block one after the other without waiting for long.
    pub(crate) fn want(
        &mut self,
        now: Moment,
        want: Want,
        hint: Option<ValidatorIndex>,
        hurried: usize,
        lacks: impl Fn(ValidatorIndex) -> bool,
    ) -> Vec<Outbound> {
        if self.wants.contains_key(&want) || self.wants.len() >= MAX_WANTS {
            return Vec::new();
        }
        let known = |hint: &ValidatorIndex| self.peers.contains(hint) && !lacks(*hint);
        let hint = hint.filter(|hint| known(hint) && self.failures_of(*hint) == 0);
        let first = hint.or_else(|| self.choose(&BTreeMap::new(), &lacks));
        let Some(mut asked) = first else {
            return Vec::new();
        };
        let mut all_asked = BTreeMap::from([(asked, now)]);
        let at_once = match want {
            Want::Certificates(..) => hurried,
            Want::Block(_) | Want::Range(_) => 1,
        };
        while all_asked.len() < at_once
            && let Some(next) = self.choose(&all_asked, &lacks)
            && !lacks(next)
            && all_asked.insert(next, now).is_none()
        {
            asked = next;
        }
        let hurried = hurried.saturating_sub(all_asked.len());
        let sent = all_asked.keys().map(|peer| self.request(want, *peer));
        let sent = sent.collect();
        let request = Request {
            asked,
            all_asked,
            due: now.after(match hurried {
                0 => self.timeout,
                _ => self.usual(),
            }),
            attempts: 0,
            hurried,
        };
        self.wants.insert(want, request);
        sent
    }

    /// Whether this is requested from this peer.
    pub(crate) fn is_asked(&self, want: &Want, peer: ValidatorIndex) -> bool {
        let request = self.wants.get(want);
        request.is_some_and(|request| request.all_asked.contains_key(&peer))
    }

    /// A peer has given what was requested.
    pub(crate) fn satisfy(&mut self, now: Moment, want: &Want, peer: ValidatorIndex) {
        if let Some(request) = self.wants.remove(want)
            && let Some(asked) = request.all_asked.get(&peer)
        {
            self.answers
                .entry(peer)
                .or_default()
                .note(now.since(*asked));
        }
        self.redeem(peer);
    }

    /// Twice what the answers of the slowest peer but f took lately; of the slowest while no more have answered.
    fn usual(&self) -> Duration {
        let slowest = longest_but(self.faults, self.answers.values().copied()).unwrap_or_default();
        slowest
            .saturating_mul(2)
            .clamp(least(self.timeout), self.timeout)
    }

    /// A peer has given something good.
    pub(crate) fn redeem(&mut self, peer: ValidatorIndex) {
        if let Some(failures) = self.failures.get_mut(&peer) {
            *failures /= 2;
        }
    }

    /// A peer has given something wrong: others are asked now, and it is asked last.
    pub(crate) fn demote(&mut self, now: Moment, peer: ValidatorIndex) {
        self.failed(peer, BAD_ANSWER);
        self.pass_on(now, peer);
    }

    /// A peer's answer is overdue.
    pub(crate) fn pass_on(&mut self, now: Moment, peer: ValidatorIndex) {
        let asked = self.wants.values_mut().filter(|r| r.asked == peer);
        asked.for_each(|request| request.due = now);
    }

    /// Drops the requests that `keep` rejects.
    pub(crate) fn retain(&mut self, keep: impl Fn(&Want) -> bool) {
        self.wants.retain(|want, _| keep(want));
    }

    /// Asks other peers for whatever is overdue.
    pub(crate) fn retry(
        &mut self,
        now: Moment,
        lacks: impl Fn(&Want, ValidatorIndex) -> bool,
    ) -> Vec<Outbound> {
        let overdue = self.wants.iter().filter(|(_, request)| request.due <= now);
        let overdue: Vec<Want> = overdue.map(|(want, _)| *want).collect();
        let mut again = Vec::new();
        let usual = self.usual();
        for want in overdue {
            let Some(request) = self.wants.get_mut(&want) else {
                continue;
            };
            let hurried = request.hurried;
            request.hurried = hurried.saturating_sub(1);
            request.due = match hurried {
                0 => {
                    request.attempts = request.attempts.saturating_add(1);
                    now.after(self.timeout * (1 << request.attempts.min(3)))
                }
                _ => now.after(usual),
            };
            let (before, asked) = (request.asked, request.all_asked.clone());
            self.failed(before, 1);
            // When all peers have been asked, the round begins again.
            let lacks = |peer: ValidatorIndex| lacks(&want, peer);
            let next = self.choose(&asked, &lacks);
            if let (Some(next), Some(request)) = (next, self.wants.get_mut(&want)) {
                request.asked = next;
                request.all_asked.insert(next, now);
                again.push(self.request(want, next));
            }
        }
        again
    }

    /// When [`Fetcher::retry`] is due next.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        self.wants.values().map(|request| request.due).min()
    }

    fn failures_of(&self, peer: ValidatorIndex) -> u32 {
        self.failures.get(&peer).copied().unwrap_or(0)
    }

    fn failed(&mut self, peer: ValidatorIndex, weight: u32) {
        let failures = self.failures.entry(peer).or_default();
        *failures = failures.saturating_add(weight).min(MAX_FAILURES);
    }

    /// The best peer to ask, in turn among equals: one that has the thing, was not asked for it,
    /// and has failed least.
    fn choose(
        &mut self,
        asked: &BTreeMap<ValidatorIndex, Moment>,
        lacks: &impl Fn(ValidatorIndex) -> bool,
    ) -> Option<ValidatorIndex> {
        let count = self.peers.len();
        let in_turn = (0..count).map(|step| self.peers[(self.next + step) % count]);
        let best = in_turn.min_by_key(|peer| {
            (
                lacks(*peer),
                asked.contains_key(peer),
                self.failures_of(*peer),
            )
        })?;
        let place = self.peers.iter().position(|peer| *peer == best)?;
        self.next = place + 1;
        Some(best)
    }

    fn request(&self, want: Want, peer: ValidatorIndex) -> Outbound {
        let message = match want {
            Want::Block(id) => Message::BlockRequest(id),
            Want::Range(from) => Message::RangeRequest(from),
            Want::Certificates(first, last) => Message::CertificateRequest {
                epoch: self.epoch,
                first,
                last,
            },
        };
        Outbound {
            to: Target::One(peer),
            message,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durations::MIN_PATIENCE;

    const TIMEOUT: Duration = Duration::from_millis(500);

    fn fetcher() -> Fetcher {
        let peers = (1..=3).map(ValidatorIndex).collect();
        Fetcher::new(Epoch(0), peers, 1, TIMEOUT)
    }

    fn asked(outbound: Vec<Outbound>) -> u32 {
        match outbound[..] {
            [
                Outbound {
                    to: Target::One(peer),
                    ..
                },
            ] => peer.0,
            _ => panic!("one is asked"),
        }
    }

    fn range(fetcher: &mut Fetcher, height: u64) -> u32 {
        let want = Want::Range(Height(height));
        asked(fetcher.want(Moment(0), want, None, 0, |_| false))
    }

    #[test]
    fn requests_go_to_all_in_turn_and_never_to_who_lacks_it() {
        let mut fetcher = fetcher();
        let turns = [1, 2, 3, 4].map(|height| range(&mut fetcher, height));
        assert_eq!(turns, [1, 2, 3, 1]);
        let lacks = |peer| peer == ValidatorIndex(2);
        for height in 5..9 {
            let want = Want::Range(Height(height));
            assert_ne!(asked(fetcher.want(Moment(0), want, None, 0, lacks)), 2);
        }
    }

    #[test]
    fn who_answers_badly_or_not_at_all_is_asked_last_until_it_answers_well() {
        let mut fetcher = fetcher();
        let want = Want::Range(Height(1));
        assert_eq!(range(&mut fetcher, 1), 1);
        fetcher.demote(Moment(0), ValidatorIndex(1));
        let again = fetcher.retry(Moment(0), |_, _| false);
        assert_eq!(again.len(), 1, "others are asked at once");
        assert_eq!(asked(again), 2);
        assert!(fetcher.is_asked(&want, ValidatorIndex(2)));
        assert!(!fetcher.is_asked(&want, ValidatorIndex(3)));
        fetcher.satisfy(Moment(0), &want, ValidatorIndex(2));
        let turns = [2, 3, 4, 5].map(|height| range(&mut fetcher, height));
        assert!(!turns.contains(&1), "{turns:?}");
        // Nor is it asked for what it should have before all others.
        let block = Want::Block(Digest::ZERO);
        let hint = Some(ValidatorIndex(1));
        assert_ne!(asked(fetcher.want(Moment(0), block, hint, 0, |_| false)), 1);
        (0..4).for_each(|_| fetcher.satisfy(Moment(0), &block, ValidatorIndex(1)));
        assert_eq!(asked(fetcher.want(Moment(0), block, hint, 0, |_| false)), 1);
    }

    #[test]
    fn an_overdue_request_goes_to_everybody_once_before_anybody_is_asked_again() {
        let mut fetcher = fetcher();
        let mut turns = vec![range(&mut fetcher, 1)];
        for _ in 0..3 {
            let due = fetcher.deadline().expect("it waits");
            assert!(fetcher.retry(Moment(due.0 - 1), |_, _| false).is_empty());
            turns.extend(
                fetcher
                    .retry(due, |_, _| false)
                    .into_iter()
                    .map(|o| asked(vec![o])),
            );
        }
        assert_eq!(turns[..3], [1, 2, 3]);
        assert_eq!(turns.len(), 4);
    }

    #[test]
    fn what_is_needed_now_is_asked_of_more_than_may_be_faulty() {
        let mut fetcher = fetcher();
        let hint = Some(ValidatorIndex(3));
        let certificates = Want::Certificates(View(1), View(1));
        let sent = fetcher.want(Moment(0), certificates, hint, 2, |_| false);
        let asked_at_once = sent.iter().map(|outbound| outbound.to);
        let expected = [1, 3].map(|place| Target::One(ValidatorIndex(place)));
        assert_eq!(asked_at_once.collect::<Vec<_>>(), expected);
        assert_eq!(fetcher.deadline(), Some(Moment(0).after(TIMEOUT)));
        fetcher.satisfy(Moment(0), &certificates, ValidatorIndex(1));

        let block = Want::Block(Digest::ZERO);
        assert_eq!(asked(fetcher.want(Moment(0), block, hint, 2, |_| false)), 3);
        let soon = Moment(0).after(MIN_PATIENCE);
        assert_eq!(fetcher.deadline(), Some(soon));
        assert_ne!(asked(fetcher.retry(soon, |_, _| false)), 3);
        assert_eq!(fetcher.deadline(), Some(soon.after(MIN_PATIENCE)));
        fetcher.satisfy(soon, &block, ValidatorIndex(1));
    }

    #[test]
    fn the_slowest_peers_answers_do_not_count() {
        let mut fetcher = fetcher();
        let block = Want::Block(Digest::ZERO);
        for (place, took) in [(1, 60), (2, 400), (3, 80)] {
            let hint = Some(ValidatorIndex(place));
            assert_eq!(
                asked(fetcher.want(Moment(0), block, hint, 0, |_| false)),
                place
            );
            let now = Moment(0).after(Duration::from_millis(took));
            fetcher.satisfy(now, &block, ValidatorIndex(place));
        }
        assert_eq!(fetcher.usual(), Duration::from_millis(160));
    }
}
