//! Penalties: blocked validators and validators on probation.
//!
//! Blocking must never halt the chain by itself: at most f validators are blocked at a time, and n
//! − f are a quorum. Further validators that sent something invalid go on probation: their votes
//! are verified one by one before they are buffered, so they can help but not spoil a check.
//! Blocked ones go on probation too whenever a view times out short of a quorum, or more than f
//! views in a row bring no block: the penalty may rest on a fault that has healed. Equivocation is
//! provable and stays blocked, and so does a validator that the operator has blocked, until the
//! order is lifted.

use crate::io::{Exhibit, Moment, Offence, Penalty, Sentence};
use quorate_types::ValidatorIndex;
use std::{collections::BTreeMap, time::Duration};

/// How long the first offence on probation mutes a validator.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Doublings of it after which it stays the same: a minute.
const MAX_PAUSE_DOUBLINGS: u32 = 6;

/// A validator on probation.
#[derive(Clone, Copy)]
struct Suspect {
    offence: Offence,
    /// Offences on probation, reduced by valid votes.
    relapses: u32,
    /// Until when it is muted.
    muted_until: Option<Moment>,
}

impl Suspect {
    fn new(offence: Offence) -> Self {
        Self {
            offence,
            relapses: 0,
            muted_until: None,
        }
    }
}

/// The penalties in force. Memory: at most one entry for each validator.
#[derive(Default)]
pub(crate) struct Penalties {
    blocked: BTreeMap<ValidatorIndex, Offence>,
    probation: BTreeMap<ValidatorIndex, Suspect>,
    cap: usize,
    now: Moment,
}

impl Penalties {
    pub(crate) fn new(cap: usize) -> Self {
        Self {
            cap,
            ..Self::default()
        }
    }

    /// Whether all frames of this validator are ignored.
    pub(crate) fn is_blocked(&self, validator: ValidatorIndex) -> bool {
        self.blocked.contains_key(&validator)
    }

    /// Sets the current time.
    pub(crate) fn at(&mut self, now: Moment) {
        self.now = now;
    }

    /// Whether it is muted because it offended again on probation: its votes, certificates and
    /// evidence are not worth verifying.
    pub(crate) fn is_muted(&self, validator: ValidatorIndex) -> bool {
        let suspect = self.probation.get(&validator);
        suspect.is_some_and(|suspect| suspect.muted_until > Some(self.now))
    }

    fn muted(&self) -> usize {
        let suspects = self.probation.keys();
        suspects.filter(|suspect| self.is_muted(**suspect)).count()
    }

    /// Notes a valid vote of a validator on probation.
    pub(crate) fn redeem(&mut self, validator: ValidatorIndex) {
        if let Some(suspect) = self.probation.get_mut(&validator) {
            suspect.relapses /= 2;
        }
    }

    /// Records an offence of a validator on probation: it is muted for a while, if the cap allows
    /// it.
    pub(crate) fn relapse(
        &mut self,
        validator: ValidatorIndex,
        offence: Offence,
        exhibit: Exhibit,
    ) -> Option<Sentence> {
        if self.is_muted(validator) || self.blocked.len() + self.muted() >= self.cap {
            return None;
        }
        let suspect = self.probation.get_mut(&validator)?;
        let doublings = suspect.relapses.min(MAX_PAUSE_DOUBLINGS);
        suspect.relapses = doublings + 1;
        suspect.offence = suspect.offence.max(offence);
        suspect.muted_until = Some(self.now.after(FIRST_PAUSE * (1 << doublings)));
        Some(sentence(validator, offence, Penalty::Probation, exhibit))
    }

    /// Whether its votes are verified before they are buffered.
    pub(crate) fn is_on_probation(&self, validator: ValidatorIndex) -> bool {
        self.probation.contains_key(&validator)
    }

    /// Restores a penalty of an earlier run, as far as the cap allows.
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

    /// Records an offence. Returns the changes: none if the validator is blocked for it already;
    /// two if it takes the place of another, which goes on probation.
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
            // A proven offence takes the place of one that only this validator knows of.
            let suspect = self.blocked.iter().find(|(_, held)| !held.is_certain());
            if let Some((suspect, held)) = suspect.map(|(v, o)| (*v, *o)) {
                sentences.push(self.release(suspect, held));
            }
        }
        // R16
        if self.blocked.len() < self.cap {
            self.probation.remove(&validator);
            self.blocked.insert(validator, offence);
            self.unmute_all();
            sentences.push(sentence(validator, offence, Penalty::Blocked, exhibit));
        } else if self.is_on_probation(validator) {
            sentences.extend(self.relapse(validator, offence, exhibit));
        } else {
            self.probation.insert(validator, Suspect::new(offence));
            sentences.push(sentence(validator, offence, Penalty::Probation, exhibit));
        }
        sentences
    }

    /// Unmutes all validators on probation.
    fn unmute_all(&mut self) {
        for suspect in self.probation.values_mut() {
            suspect.muted_until = None;
        }
    }

    /// Puts validators that are blocked on suspicion on probation, since a view timed out short of
    /// a quorum.
    pub(crate) fn release_suspects(&mut self) -> Vec<Sentence> {
        self.unmute_all();
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

    /// Lifts the validator's penalty.
    pub(crate) fn lift(&mut self, validator: ValidatorIndex) -> Option<Sentence> {
        let blocked = self.blocked.remove(&validator);
        let suspect = self.probation.remove(&validator);
        let offence = suspect.map(|suspect| suspect.offence).or(blocked)?;
        Some(sentence(validator, offence, Penalty::Lifted, Exhibit::None))
    }

    /// The blocked validators and their offences.
    pub(crate) fn blocked(&self) -> impl Iterator<Item = (ValidatorIndex, Offence)> + '_ {
        self.blocked.iter().map(|(v, o)| (*v, *o))
    }

    /// The validators on probation and their offences.
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

    fn offend(
        penalties: &mut Penalties,
        validator: ValidatorIndex,
        offence: Offence,
    ) -> Vec<Penalty> {
        let sentences = penalties.offend(validator, offence, Exhibit::None);
        sentences.iter().map(|sentence| sentence.penalty).collect()
    }

    #[test]
    fn never_more_than_the_cap_are_blocked() {
        let mut penalties = Penalties::new(1);
        assert_eq!(
            offend(&mut penalties, A, Offence::InvalidVote),
            [Penalty::Blocked]
        );
        assert_eq!(
            offend(&mut penalties, B, Offence::InvalidVote),
            [Penalty::Probation]
        );
        assert!(
            penalties.is_blocked(A) && !penalties.is_blocked(B) && penalties.is_on_probation(B)
        );
        assert_eq!(offend(&mut penalties, B, Offence::InvalidVote), []);
    }

    #[test]
    fn proven_guilt_takes_the_place_of_suspicion_and_says_so() {
        let mut penalties = Penalties::new(1);
        offend(&mut penalties, A, Offence::InvalidVote);
        let sentences = penalties.offend(B, Offence::Equivocation, Exhibit::None);
        let told: Vec<_> = sentences.iter().map(|s| (s.validator, s.penalty)).collect();
        assert_eq!(told, [(A, Penalty::Probation), (B, Penalty::Blocked)]);
        assert!(penalties.is_blocked(B) && penalties.is_on_probation(A));
        // The first one's guilt comes out later: there is no room, since nobody may be released.
        assert_eq!(offend(&mut penalties, A, Offence::Equivocation), []);
        assert!(penalties.is_on_probation(A) && penalties.is_blocked(B));
    }

    #[test]
    fn a_stuck_view_frees_suspects_but_neither_equivocators_nor_the_operators_choice() {
        let mut penalties = Penalties::new(3);
        let c = ValidatorIndex(3);
        offend(&mut penalties, A, Offence::InvalidVote);
        offend(&mut penalties, B, Offence::Equivocation);
        offend(&mut penalties, c, Offence::Operator);
        assert_eq!(penalties.release_suspects().len(), 1);
        assert!(!penalties.is_blocked(A) && penalties.is_on_probation(A));
        assert!(penalties.is_blocked(B) && penalties.is_blocked(c));
        assert!(penalties.release_suspects().is_empty());
    }

    #[test]
    fn what_is_lifted_is_forgotten_and_may_be_imposed_again() {
        let mut penalties = Penalties::new(1);
        assert!(penalties.lift(A).is_none());
        offend(&mut penalties, A, Offence::InvalidVote);
        let lifted = penalties.lift(A).expect("was blocked");
        assert_eq!(lifted.penalty, Penalty::Lifted);
        assert!(!penalties.is_blocked(A) && !penalties.is_on_probation(A));
        assert_eq!(
            offend(&mut penalties, A, Offence::InvalidVote),
            [Penalty::Blocked]
        );
    }

    #[test]
    fn who_offends_again_on_probation_is_not_heard_for_longer_each_time() {
        let second = 1_000_000;
        let mut penalties = Penalties::new(1);
        offend(&mut penalties, A, Offence::InvalidVote);
        penalties.release_suspects();
        let relapse = |penalties: &mut Penalties, at: u64| {
            penalties.at(Moment(at));
            let told = penalties.relapse(A, Offence::InvalidVote, Exhibit::None);
            told.map(|told| told.penalty)
        };
        let mut now = 0;
        for pause in [1, 2, 4, 8, 16, 32, 64, 64, 64] {
            assert_eq!(relapse(&mut penalties, now), Some(Penalty::Probation));
            assert_eq!(relapse(&mut penalties, now), None, "not even looked at");
            penalties.at(Moment(now + pause * second - 1));
            assert!(penalties.is_muted(A) && !penalties.is_blocked(A));
            now += pause * second;
            penalties.at(Moment(now));
            assert!(!penalties.is_muted(A));
        }
        // Valid votes make up for it.
        (0..3).for_each(|_| penalties.redeem(A));
        relapse(&mut penalties, now);
        penalties.at(Moment(now + second));
        assert!(!penalties.is_muted(A));
        // A view that times out frees it; so does somebody who takes its place.
        relapse(&mut penalties, now + second);
        assert!(penalties.is_muted(A));
        penalties.release_suspects();
        assert!(!penalties.is_muted(A));
        relapse(&mut penalties, now + second);
        offend(&mut penalties, B, Offence::InvalidVote);
        assert!(penalties.is_blocked(B) && !penalties.is_muted(A));
        assert_eq!(relapse(&mut penalties, now + second), None, "f are blocked");
        assert!(!penalties.is_muted(A));
    }

    #[test]
    fn a_former_lifes_sentences_are_restored_within_the_cap() {
        let mut penalties = Penalties::new(1);
        for validator in [A, B] {
            penalties.restore(&sentence(
                validator,
                Offence::InvalidVote,
                Penalty::Blocked,
                Exhibit::None,
            ));
        }
        assert!(penalties.is_blocked(A) && penalties.is_on_probation(B));
    }
}
