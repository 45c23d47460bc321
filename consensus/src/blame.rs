//! Who is not listened to, and who is only half believed.
//!
//! Blocking must never halt the chain by itself: at most f validators are blocked at a time, and
//! n − f are a quorum. Beyond f, and whenever a view times out short of a quorum or more than f
//! views in a row bring no block (the penalty may rest on a fault that has healed), those caught
//! with something invalid are on probation: their votes are verified one by one before they are buffered, so they can help but not spoil a check.
//! Equivocation is provable and stays blocked, and so does whom the operator has blocked, until
//! the order is taken back.

use crate::io::{Exhibit, Moment, Offence, Penalty, Sentence};
use quorate_crypto::mistakes::{Mistake, made};
use quorate_types::ValidatorIndex;
use std::{collections::BTreeMap, time::Duration};

/// How long the first offence on probation is answered with silence.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Doublings of it after which it stays as it is: a minute.
const MAX_PAUSE_DOUBLINGS: u32 = 6;

/// Somebody who is half believed.
#[derive(Clone, Copy)]
struct Suspect {
    offence: Offence,
    /// How often it has offended since, but for what valid votes have made up for.
    relapses: u32,
    /// Until when it is not listened to.
    unheard_until: Option<Moment>,
}

impl Suspect {
    fn new(offence: Offence) -> Self {
        Self {
            offence,
            relapses: 0,
            unheard_until: None,
        }
    }
}

/// The penalties in force. Memory: at most one entry for each validator.
#[derive(Default)]
pub(crate) struct Blame {
    blocked: BTreeMap<ValidatorIndex, Offence>,
    probation: BTreeMap<ValidatorIndex, Suspect>,
    cap: usize,
    now: Moment,
}

impl Blame {
    /// Nobody is blamed. `cap` is f, the most that may be blocked at a time.
    pub(crate) fn new(cap: usize) -> Self {
        Self {
            cap,
            ..Self::default()
        }
    }

    /// Whether nothing of this validator is listened to.
    pub(crate) fn is_blocked(&self, validator: ValidatorIndex) -> bool {
        self.blocked.contains_key(&validator)
    }

    /// Notes what time it is.
    pub(crate) fn at(&mut self, now: Moment) {
        self.now = now;
    }

    /// Whether it is on probation and has offended again lately: its votes, certificates and evidence
    /// are not worth verifying.
    pub(crate) fn is_unheard(&self, validator: ValidatorIndex) -> bool {
        let suspect = self.probation.get(&validator);
        suspect.is_some_and(|suspect| suspect.unheard_until > Some(self.now))
    }

    fn unheard(&self) -> usize {
        let suspects = self.probation.keys();
        suspects
            .filter(|suspect| self.is_unheard(**suspect))
            .count()
    }

    /// Notes that a vote of somebody on probation was valid.
    pub(crate) fn redeem(&mut self, validator: ValidatorIndex) {
        if let Some(suspect) = self.probation.get_mut(&validator) {
            suspect.relapses /= 2;
        }
    }

    /// Records an offence of somebody on probation: it is not listened to for a while, if there is room
    /// for it within the cap.
    pub(crate) fn relapse(
        &mut self,
        validator: ValidatorIndex,
        offence: Offence,
        exhibit: Exhibit,
    ) -> Option<Sentence> {
        if self.is_unheard(validator) || self.blocked.len() + self.unheard() >= self.cap {
            return None;
        }
        let suspect = self.probation.get_mut(&validator)?;
        let doublings = suspect.relapses.min(MAX_PAUSE_DOUBLINGS);
        suspect.relapses = doublings + 1;
        suspect.offence = suspect.offence.max(offence);
        suspect.unheard_until = Some(self.now.after(FIRST_PAUSE * (1 << doublings)));
        Some(sentence(validator, offence, Penalty::Probation, exhibit))
    }

    /// Whether its votes are verified before they are buffered.
    pub(crate) fn is_on_probation(&self, validator: ValidatorIndex) -> bool {
        self.probation.contains_key(&validator)
    }

    /// Puts a sentence of a former life into force again, as far as the cap allows.
    pub(crate) fn restore(&mut self, sentence: &Sentence) {
        let Sentence {
            validator, offence, ..
        } = *sentence;
        match sentence.penalty {
            Penalty::Blocked if self.blocked.len() < self.cap => {
                self.blocked.insert(validator, offence);
            }
            Penalty::Blocked | Penalty::Probation => {
                self.probation.insert(validator, Suspect::new(offence));
            }
            Penalty::Lifted => {}
        }
    }

    /// Records an offence. Returns what it changes: nothing if the validator is blocked for it
    /// already; two sentences if it takes the place of another who goes on probation.
    pub(crate) fn offend(
        &mut self,
        validator: ValidatorIndex,
        offence: Offence,
        exhibit: Exhibit,
    ) -> Vec<Sentence> {
        let mut sentences = Vec::new();
        if let Some(held) = self.blocked.get_mut(&validator) {
            if *held < offence {
                *held = offence;
                sentences.push(sentence(validator, offence, Penalty::Blocked, exhibit));
            }
            return sentences;
        }
        if self.blocked.len() >= self.cap && offence.is_certain() {
            // Proven guilt goes before suspicion: the place of someone known to us alone.
            let suspect = self.blocked.iter().find(|(_, held)| !held.is_certain());
            if let Some((suspect, held)) = suspect.map(|(v, o)| (*v, *o)) {
                sentences.push(self.release(suspect, held));
            }
        }
        // R16
        if self.blocked.len() < self.cap {
            self.probation.remove(&validator);
            self.blocked.insert(validator, offence);
            self.hear_all();
            sentences.push(sentence(validator, offence, Penalty::Blocked, exhibit));
        } else if made(Mistake::NoCapOnBlocking) {
            self.blocked.insert(validator, offence);
            sentences.push(sentence(validator, offence, Penalty::Blocked, exhibit));
        } else if self.is_on_probation(validator) {
            sentences.extend(self.relapse(validator, offence, exhibit));
        } else {
            self.probation.insert(validator, Suspect::new(offence));
            sentences.push(sentence(validator, offence, Penalty::Probation, exhibit));
        }
        sentences
    }

    /// Listens to all on probation again.
    fn hear_all(&mut self) {
        for suspect in self.probation.values_mut() {
            suspect.unheard_until = None;
        }
    }

    /// A view timed out short of a quorum: those blocked on suspicion go on probation.
    pub(crate) fn relent(&mut self) -> Vec<Sentence> {
        if made(Mistake::NoCapOnBlocking) {
            return Vec::new();
        }
        self.hear_all();
        let suspects: Vec<(ValidatorIndex, Offence)> = self
            .blocked
            .iter()
            .filter(|(_, offence)| !offence.is_certain())
            .map(|(validator, offence)| (*validator, *offence))
            .collect();
        suspects
            .into_iter()
            .map(|(validator, offence)| self.release(validator, offence))
            .collect()
    }

    fn release(&mut self, validator: ValidatorIndex, offence: Offence) -> Sentence {
        self.blocked.remove(&validator);
        self.probation.insert(validator, Suspect::new(offence));
        sentence(validator, offence, Penalty::Probation, Exhibit::None)
    }

    /// Ends whatever penalty the validator has.
    pub(crate) fn lift(&mut self, validator: ValidatorIndex) -> Option<Sentence> {
        let blocked = self.blocked.remove(&validator);
        let suspect = self.probation.remove(&validator);
        let offence = suspect.map(|suspect| suspect.offence).or(blocked)?;
        Some(sentence(validator, offence, Penalty::Lifted, Exhibit::None))
    }

    /// Who is blocked and for what.
    pub(crate) fn blocked(&self) -> impl Iterator<Item = (ValidatorIndex, Offence)> + '_ {
        self.blocked.iter().map(|(v, o)| (*v, *o))
    }

    /// Who is on probation and for what.
    pub(crate) fn probation(&self) -> impl Iterator<Item = (ValidatorIndex, Offence)> + '_ {
        self.probation
            .iter()
            .map(|(v, suspect)| (*v, suspect.offence))
    }
}

fn sentence(
    validator: ValidatorIndex,
    offence: Offence,
    penalty: Penalty,
    exhibit: Exhibit,
) -> Sentence {
    Sentence {
        validator,
        offence,
        penalty,
        exhibit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ValidatorIndex = ValidatorIndex(1);
    const B: ValidatorIndex = ValidatorIndex(2);

    fn offend(blame: &mut Blame, validator: ValidatorIndex, offence: Offence) -> Vec<Penalty> {
        let sentences = blame.offend(validator, offence, Exhibit::None);
        sentences.iter().map(|sentence| sentence.penalty).collect()
    }

    #[test]
    fn never_more_than_the_cap_are_blocked() {
        let mut blame = Blame::new(1);
        assert_eq!(
            offend(&mut blame, A, Offence::InvalidVote),
            [Penalty::Blocked]
        );
        assert_eq!(
            offend(&mut blame, B, Offence::InvalidVote),
            [Penalty::Probation]
        );
        assert!(blame.is_blocked(A) && !blame.is_blocked(B) && blame.is_on_probation(B));
        assert_eq!(offend(&mut blame, B, Offence::InvalidVote), []);
    }

    #[test]
    fn proven_guilt_takes_the_place_of_suspicion_and_says_so() {
        let mut blame = Blame::new(1);
        offend(&mut blame, A, Offence::InvalidVote);
        let sentences = blame.offend(B, Offence::Equivocation, Exhibit::None);
        let told: Vec<_> = sentences.iter().map(|s| (s.validator, s.penalty)).collect();
        assert_eq!(told, [(A, Penalty::Probation), (B, Penalty::Blocked)]);
        assert!(blame.is_blocked(B) && blame.is_on_probation(A));
        // The first one's guilt comes out later: there is no room, since nobody may be released.
        assert_eq!(offend(&mut blame, A, Offence::Equivocation), []);
        assert!(blame.is_on_probation(A) && blame.is_blocked(B));
    }

    #[test]
    fn a_stuck_view_frees_suspects_but_neither_equivocators_nor_the_operators_choice() {
        let mut blame = Blame::new(3);
        let c = ValidatorIndex(3);
        offend(&mut blame, A, Offence::InvalidVote);
        offend(&mut blame, B, Offence::Equivocation);
        offend(&mut blame, c, Offence::Operator);
        assert_eq!(blame.relent().len(), 1);
        assert!(!blame.is_blocked(A) && blame.is_on_probation(A));
        assert!(blame.is_blocked(B) && blame.is_blocked(c));
        assert!(blame.relent().is_empty());
    }

    #[test]
    fn what_is_lifted_is_forgotten_and_may_be_imposed_again() {
        let mut blame = Blame::new(1);
        assert!(blame.lift(A).is_none());
        offend(&mut blame, A, Offence::InvalidVote);
        let lifted = blame.lift(A).expect("was blocked");
        assert_eq!(lifted.penalty, Penalty::Lifted);
        assert!(!blame.is_blocked(A) && !blame.is_on_probation(A));
        assert_eq!(
            offend(&mut blame, A, Offence::InvalidVote),
            [Penalty::Blocked]
        );
    }

    #[test]
    fn who_offends_again_on_probation_is_not_heard_for_longer_each_time() {
        let second = 1_000_000;
        let mut blame = Blame::new(1);
        offend(&mut blame, A, Offence::InvalidVote);
        blame.relent();
        let relapse = |blame: &mut Blame, at: u64| {
            blame.at(Moment(at));
            let told = blame.relapse(A, Offence::InvalidVote, Exhibit::None);
            told.map(|told| told.penalty)
        };
        let mut now = 0;
        for pause in [1, 2, 4, 8, 16, 32, 64, 64, 64] {
            assert_eq!(relapse(&mut blame, now), Some(Penalty::Probation));
            assert_eq!(relapse(&mut blame, now), None, "not even looked at");
            blame.at(Moment(now + pause * second - 1));
            assert!(blame.is_unheard(A) && !blame.is_blocked(A));
            now += pause * second;
            blame.at(Moment(now));
            assert!(!blame.is_unheard(A));
        }
        // Valid votes make up for it.
        (0..3).for_each(|_| blame.redeem(A));
        relapse(&mut blame, now);
        blame.at(Moment(now + second));
        assert!(!blame.is_unheard(A));
        // A view that times out frees it; so does somebody who takes its place.
        relapse(&mut blame, now + second);
        assert!(blame.is_unheard(A));
        blame.relent();
        assert!(!blame.is_unheard(A));
        relapse(&mut blame, now + second);
        offend(&mut blame, B, Offence::InvalidVote);
        assert!(blame.is_blocked(B) && !blame.is_unheard(A));
        assert_eq!(relapse(&mut blame, now + second), None, "f are blocked");
        assert!(!blame.is_unheard(A));
    }

    #[test]
    fn a_former_lifes_sentences_are_restored_within_the_cap() {
        let mut blame = Blame::new(1);
        for validator in [A, B] {
            blame.restore(&sentence(
                validator,
                Offence::InvalidVote,
                Penalty::Blocked,
                Exhibit::None,
            ));
        }
        assert!(blame.is_blocked(A) && blame.is_on_probation(B));
    }
}
