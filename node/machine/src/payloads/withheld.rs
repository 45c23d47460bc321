//! Authors whose bundles do not reach all validators. Blocks that name them make those wait that lack them, so leaders
//! propose them rarely.

use quorate_consensus::Moment;
use quorate_types::Identity;
use std::{collections::BTreeMap, time::Duration};

/// After another validator had to ask for an author's bundle, this one proposes bundles of that author only so often for
/// a while: each can cost the others a fetch before they vote.
const PASSED_OVER_FOR: Duration = Duration::from_secs(5);
const WITHHELD_LASTS: Duration = Duration::from_secs(60);

/// What is known of one author.
struct Author {
    /// Who had to ask for its bundles, and until when that counts.
    askers: BTreeMap<usize, Moment>,
    proposed: Moment,
}

#[derive(Default)]
pub(super) struct Withheld {
    authors: BTreeMap<Identity, Author>,
}

impl Withheld {
    /// A peer says that it had to ask for a bundle that no block has ordered.
    pub(super) fn note(&mut self, asker: usize, author: Identity, now: Moment) {
        let known = self.authors.entry(author).or_insert(Author {
            askers: BTreeMap::new(),
            proposed: now,
        });
        known.askers.insert(asker, now.after(WITHHELD_LASTS));
    }

    /// Whether a leader leaves an author's bundles out of the block that it proposes now: more than `faults` peers had to ask
    /// for them, so an honest one had.
    pub(super) fn passes_over(&mut self, author: &Identity, now: Moment, faults: usize) -> bool {
        let Some(known) = self.authors.get_mut(author) else {
            return false;
        };
        known.askers.retain(|_, until| now < *until);
        if known.askers.is_empty() {
            self.authors.remove(author);
            return false;
        }
        if known.askers.len() <= faults {
            return false;
        }
        let passes = now < known.proposed.after(PASSED_OVER_FOR);
        if !passes {
            known.proposed = now;
        }
        passes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_crypto::SecretKey;

    fn author(seed: u8) -> Identity {
        SecretKey::from_bytes(&[seed; 32]).identity()
    }

    #[test]
    fn an_author_that_more_than_f_had_to_ask_for_is_proposed_rarely_and_for_a_while_only() {
        let mut withheld = Withheld::default();
        assert!(!withheld.passes_over(&author(1), Moment(0), 1));
        withheld.note(0, author(1), Moment(0));
        withheld.note(2, author(1), Moment(0));
        let at = |seconds| Moment(0).after(Duration::from_secs(seconds));
        let proposed: Vec<u64> = (0..60)
            .filter(|second| !withheld.passes_over(&author(1), at(*second), 1))
            .collect();
        assert_eq!(proposed, [5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55]);
        assert!(!withheld.passes_over(&author(1), at(60), 1));
        assert!(!withheld.passes_over(&author(1), at(61), 1));
    }

    #[test]
    fn one_peer_has_nobody_passed_over_however_often_it_asks() {
        let mut withheld = Withheld::default();
        for number in 0..4 {
            withheld.note(0, author(number), Moment(0));
            withheld.note(0, author(number), Moment(1));
            assert!(!withheld.passes_over(&author(number), Moment(2), 1));
        }
    }
}
