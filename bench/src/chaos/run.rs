//! What every chaos run is about, wherever it ran: which validators forge from when on, and what the
//! others then do.

use quorate_consensus::VoteChecking;
use serde_json::{Value, json};

/// How the forgers begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Onset {
    /// All when the first third of the run is over.
    AtOnce,
    /// One after the other during the second third: each spoils a check of its own.
    OneByOne,
}

/// What is compared: the node's way of checking votes, and two others.
pub(super) const MODES: [(VoteChecking, &str); 3] = [
    (VoteChecking::Together, "blocked"),
    (VoteChecking::TogetherUnblocked, "unblocked"),
    (VoteChecking::Eager, "eager"),
];

impl Onset {
    pub(super) const ALL: [Self; 2] = [Self::AtOnce, Self::OneByOne];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::AtOnce => "at once",
            Self::OneByOne => "one by one",
        }
    }

    /// When each forger begins, in seconds from the run's beginning.
    pub(super) fn begins(self, forgers: usize, seconds: f64) -> Vec<f64> {
        let third = seconds / 3.0;
        let share = |forger: usize| match self {
            Self::AtOnce => 0.0,
            Self::OneByOne => forger as f64 / forgers as f64,
        };
        (0..forgers).map(|f| third * (1.0 + share(f))).collect()
    }
}

/// The forgers' places, spread over the committee's turns.
pub(crate) fn forgers(validators: usize) -> Vec<usize> {
    (0..(validators - 1) / 3).map(|f| f * 3 + 1).collect()
}

/// One stretch of time. What nothing is known of is not a number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// Its end, in seconds from the run's beginning.
    pub(super) until: f64,
    pub(super) blocks: f64,
    pub(super) block_ms: f64,
    pub(super) finality_ms: f64,
    /// Pairing checks (in virtual time: questions to the pool) for each validator and view.
    pub(super) checks_per_view: f64,
    /// Processor time for each validator and block: of the whole process, or in virtual time of the
    /// checks.
    pub(super) cpu_ms: f64,
}

/// One run.
pub(super) struct Run {
    /// "processes" or "virtual time".
    pub(super) setting: &'static str,
    pub(super) validators: usize,
    pub(super) onset: Onset,
    pub(super) checking: &'static str,
    pub(super) seconds: f64,
    /// The most combined checks that failed at any one honest validator.
    pub(super) disturbed: u64,
    /// Before, during and after the onset.
    pub(super) phases: [Span; 3],
    /// The same in short stretches, for the picture.
    pub(super) curve: Vec<Span>,
}

impl Run {
    pub(super) fn print_head() {
        println!(
            "{:<12} {:>4} {:<11} {:<10} {:>9} | {:>34} | {:>34} | {:>34}",
            "",
            "n",
            "forgers",
            "checking",
            "disturbed",
            "before: block final checks CPU",
            "during: block final checks CPU",
            "after: block final checks CPU"
        );
    }

    pub(super) fn print(&self) {
        let phases = self.phases.iter().map(|phase| {
            format!(
                "{:>9.1} {:>8.1} {:>7.2} {:>7.2}",
                phase.block_ms, phase.finality_ms, phase.checks_per_view, phase.cpu_ms
            )
        });
        println!(
            "{:<12} {:>4} {:<11} {:<10} {:>9} | {}",
            self.setting,
            self.validators,
            self.onset.name(),
            self.checking,
            self.disturbed,
            phases.collect::<Vec<_>>().join(" | ")
        );
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "setting": self.setting,
            "validators": self.validators,
            "forgers": (self.validators - 1) / 3,
            "onset": self.onset.name(),
            "checking": self.checking,
            "seconds": self.seconds,
            "failed_checks_at_most": self.disturbed,
            "phases": self.phases.iter().map(Span::json).collect::<Vec<_>>(),
            "curve": self.curve.iter().map(Span::json).collect::<Vec<_>>(),
        })
    }
}

impl Span {
    fn json(&self) -> Value {
        json!({
            "until_seconds": self.until,
            "blocks": self.blocks,
            "block_ms": self.block_ms,
            "finality_ms": self.finality_ms,
            "checks_per_view": self.checks_per_view,
            "cpu_ms_per_block": self.cpu_ms,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgers_are_f_distinct_validators_that_begin_in_the_second_third() {
        for validators in [4, 7, 10, 22, 100] {
            let places = forgers(validators);
            assert_eq!(places.len(), (validators - 1) / 3);
            assert!(places.windows(2).all(|pair| pair[0] < pair[1]));
            assert!(places.last().is_some_and(|place| *place < validators));
            for onset in Onset::ALL {
                let begins = onset.begins(places.len(), 30.0);
                assert!(begins.iter().all(|at| (10.0..20.0).contains(at)));
            }
        }
    }
}
