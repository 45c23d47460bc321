//! Who is not listened to, and who is only half believed.
//!
//! Blocking must never halt the chain by itself: at most f validators are blocked at a time, and
//! n − f are a quorum. Beyond f, and whenever a view times out short of a quorum (the block may
//! rest on a fault that has healed), those caught with invalid signatures are on probation: their
//! votes are verified one by one before they are buffered, so they can help but not spoil a check.
//! Equivocation is provable and stays blocked.

use crate::io::{Offence, Penalty, Sentence};
use quorate_types::ValidatorIndex;
use std::collections::{BTreeMap, BTreeSet};

/// The penalties in force. Memory: at most one entry for each validator.
#[derive(Default)]
pub(crate) struct Blame {
    blocked: BTreeMap<ValidatorIndex, Offence>,
    probation: BTreeSet<ValidatorIndex>,
    cap: usize,
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

    /// Whether its votes are verified before they are buffered.
    pub(crate) fn is_on_probation(&self, validator: ValidatorIndex) -> bool {
        self.probation.contains(&validator)
    }

    /// Records an offence. Returns the sentence if it changes anything.
    pub(crate) fn offend(
        &mut self,
        validator: ValidatorIndex,
        offence: Offence,
    ) -> Option<Sentence> {
        if let Some(held) = self.blocked.get_mut(&validator) {
            *held = (*held).max(offence);
            return None;
        }
        if self.blocked.len() >= self.cap && offence == Offence::Equivocation {
            // Proven guilt goes before suspicion: the place of someone known to us alone.
            let suspect = self
                .blocked
                .iter()
                .find(|(_, held)| **held != Offence::Equivocation)
                .map(|(suspect, _)| *suspect);
            if let Some(suspect) = suspect {
                self.blocked.remove(&suspect);
                self.probation.insert(suspect);
            }
        }
        let penalty = if self.blocked.len() < self.cap {
            self.probation.remove(&validator);
            self.blocked.insert(validator, offence);
            Penalty::Blocked
        } else if self.probation.insert(validator) {
            Penalty::Probation
        } else {
            return None;
        };
        Some(Sentence {
            validator,
            offence,
            penalty,
        })
    }

    /// A view timed out short of a quorum: those blocked on suspicion go on probation.
    pub(crate) fn relent(&mut self) -> Vec<Sentence> {
        let suspects: Vec<(ValidatorIndex, Offence)> = self
            .blocked
            .iter()
            .filter(|(_, offence)| **offence != Offence::Equivocation)
            .map(|(validator, offence)| (*validator, *offence))
            .collect();
        suspects
            .into_iter()
            .map(|(validator, offence)| {
                self.blocked.remove(&validator);
                self.probation.insert(validator);
                Sentence {
                    validator,
                    offence,
                    penalty: Penalty::Probation,
                }
            })
            .collect()
    }

    /// Who is blocked and for what.
    pub(crate) fn blocked(&self) -> impl Iterator<Item = (ValidatorIndex, Offence)> + '_ {
        self.blocked.iter().map(|(v, o)| (*v, *o))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ValidatorIndex = ValidatorIndex(1);
    const B: ValidatorIndex = ValidatorIndex(2);

    #[test]
    fn never_more_than_the_cap_are_blocked() {
        let mut blame = Blame::new(1);
        let first = blame.offend(A, Offence::InvalidVote).expect("new");
        assert_eq!(first.penalty, Penalty::Blocked);
        let second = blame.offend(B, Offence::InvalidVote).expect("new");
        assert_eq!(second.penalty, Penalty::Probation);
        assert!(blame.is_blocked(A) && !blame.is_blocked(B) && blame.is_on_probation(B));
        assert_eq!(blame.offend(B, Offence::InvalidVote), None);
    }

    #[test]
    fn proven_guilt_takes_the_place_of_suspicion() {
        let mut blame = Blame::new(1);
        blame.offend(A, Offence::InvalidVote);
        let sentence = blame.offend(B, Offence::Equivocation).expect("new");
        assert_eq!(sentence.penalty, Penalty::Blocked);
        assert!(blame.is_blocked(B) && blame.is_on_probation(A));
    }

    #[test]
    fn a_stuck_view_frees_suspects_but_not_equivocators() {
        let mut blame = Blame::new(2);
        blame.offend(A, Offence::InvalidVote);
        blame.offend(B, Offence::Equivocation);
        assert_eq!(blame.relent().len(), 1);
        assert!(!blame.is_blocked(A) && blame.is_on_probation(A) && blame.is_blocked(B));
        assert!(blame.relent().is_empty());
    }
}
