//! The validators of an epoch, and what a quorum of them is.

use crate::{Epoch, ValidatorIndex, View, genesis::Turns, limits::MAX_VALIDATORS};
use quorate_crypto::Identity;
use std::{collections::BTreeMap, sync::Arc};

/// The validators of one epoch, in a fixed order. A copy shares the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committee {
    epoch: Epoch,
    turns: Turns,
    members: Arc<Members>,
}

#[derive(Debug, PartialEq, Eq)]
struct Members {
    validators: Vec<Identity>,
    places: BTreeMap<Identity, ValidatorIndex>,
}

/// A list of validators that makes no committee.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitteeError {
    /// There must be at least one validator.
    #[error("a committee needs at least one validator")]
    Empty,
    /// More than [`MAX_VALIDATORS`].
    #[error("a committee has at most {MAX_VALIDATORS} validators, not {count}")]
    TooLarge {
        /// Their number.
        count: usize,
    },
    /// An identity is in the list twice.
    #[error("validator {identity} is in the committee twice")]
    Duplicate { identity: Identity },
}

impl Committee {
    /// A committee of these validators, in this order.
    ///
    /// # Errors
    ///
    /// If the list is empty, too long, or names a validator twice.
    pub fn new(epoch: Epoch, validators: Vec<Identity>) -> Result<Self, CommitteeError> {
        if validators.is_empty() {
            return Err(CommitteeError::Empty);
        }
        if validators.len() > MAX_VALIDATORS {
            return Err(CommitteeError::TooLarge {
                count: validators.len(),
            });
        }
        let mut places = BTreeMap::new();
        for (place, identity) in (0_u32..).zip(&validators) {
            if places.insert(*identity, ValidatorIndex(place)).is_some() {
                return Err(CommitteeError::Duplicate {
                    identity: *identity,
                });
            }
        }
        Ok(Self {
            epoch,
            turns: Turns::default(),
            members: Arc::new(Members { validators, places }),
        })
    }

    /// The same validators in another epoch.
    pub fn with_epoch(&self, epoch: Epoch) -> Self {
        Self {
            epoch,
            ..self.clone()
        }
    }

    /// The same validators, who take these turns.
    pub fn with_turns(&self, turns: Turns) -> Self {
        Self {
            turns,
            ..self.clone()
        }
    }

    /// The epoch that this committee serves.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// How many validators there are: n, at least 1.
    pub fn size(&self) -> usize {
        self.members.validators.len()
    }

    /// How many may be faulty: f, the largest number with n ≥ 3f + 1.
    pub fn faults(&self) -> usize {
        (self.size() - 1) / 3
    }

    /// How many make a quorum: n − f. Any two quorums share an honest validator, and the honest
    /// ones alone are a quorum.
    pub fn quorum(&self) -> usize {
        self.size() - self.faults()
    }

    /// The leader of a view: the validators take turns. The epoch shifts the turn.
    pub fn leader(&self, view: View) -> ValidatorIndex {
        self.leader_in(self.epoch, view)
    }

    /// The leader of a view in another epoch with the same validators.
    pub fn leader_in(&self, epoch: Epoch, view: View) -> ValidatorIndex {
        let size = self.size() as u64;
        let turn = (view.0.div_ceil(self.turn()) % size + epoch.0 % size) % size;
        ValidatorIndex(u32::try_from(turn).expect("a turn is below the committee's size"))
    }

    /// How many views in a row each validator leads.
    pub fn turn(&self) -> u64 {
        self.turns.length(self.size())
    }

    /// What decides how long a turn is.
    pub fn turns(&self) -> Turns {
        self.turns
    }

    /// The first view of the turn that a view belongs to; 0 of view 0, which is before all turns.
    pub fn turn_of(&self, view: View) -> View {
        let before = view.0.saturating_sub(1);
        View(view.0.min(before - before % self.turn() + 1))
    }

    /// The first view of the next turn.
    pub fn turn_after(&self, view: View) -> View {
        match view.0 {
            0 => View(1),
            _ => View(self.turn_of(view).0.saturating_add(self.turn())),
        }
    }

    /// The turn of a block's parent, if its leader lost the rest of it: with one block in each view, the turn has
    /// views after the parent's, and the block is of a later turn.
    pub fn turn_cut_short(&self, parent: View, view: View) -> Option<View> {
        let turn = self.turn_of(parent);
        let had_more = !self.turns.protocol.has_phases() && parent.next() < self.turn_after(parent);
        (parent.0 > 0 && had_more && turn < self.turn_of(view)).then_some(turn)
    }

    /// How many steps a later view is ahead of another one, where each step leads to the next view or skips the rest of a turn; 0 of one that
    /// is not later.
    pub fn steps(&self, from: View, to: View) -> u64 {
        let (from_turn, to_turn) = (self.turn_of(from).0, self.turn_of(to).0);
        match from_turn < to_turn {
            true => (to_turn - from_turn).div_ceil(self.turn()) + (to.0 - to_turn),
            false => to.0.saturating_sub(from.0),
        }
    }

    /// The validator at this place, if there is one.
    pub fn identity(&self, place: ValidatorIndex) -> Option<Identity> {
        self.members.validators.get(place.as_usize()).copied()
    }

    /// The place of this identity, if it belongs to the committee.
    pub fn place(&self, identity: &Identity) -> Option<ValidatorIndex> {
        self.members.places.get(identity).copied()
    }

    /// All validators in order.
    pub fn identities(&self) -> &[Identity] {
        &self.members.validators
    }

    /// All places in order.
    pub fn places(&self) -> impl Iterator<Item = ValidatorIndex> + use<> {
        (0..u32::try_from(self.members.validators.len()).expect("at most 1,024"))
            .map(ValidatorIndex)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::genesis::Protocol;

    fn committee(size: u8) -> Committee {
        let validators = (0..size).map(|i| Identity([i; 32])).collect();
        Committee::new(Epoch(0), validators).expect("distinct")
    }

    #[test]
    fn two_quorums_always_share_an_honest_validator() {
        for size in 1..=200 {
            let committee = committee(size);
            let (n, f, q) = (committee.size(), committee.faults(), committee.quorum());
            assert!(n > 3 * f);
            assert!(2 * q > n + f, "n = {n}");
            assert!(q <= n - f);
        }
    }

    #[test]
    fn everybody_leads_once_per_round_even_at_the_last_views() {
        let committee = committee(7);
        for start in [0, 1, u64::MAX - 6] {
            let mut leaders: Vec<_> = (start..=start.saturating_add(6))
                .map(|view| committee.leader(View(view)).0)
                .collect();
            leaders.sort_unstable();
            assert_eq!(leaders, [0, 1, 2, 3, 4, 5, 6]);
        }
    }

    #[test]
    fn with_longer_turns_everybody_leads_as_many_views_in_a_row() {
        let committee = committee(4).with_turns(Turns::of(Protocol::HotstuffBasic));
        let leaders = (1..=12).map(|view| committee.leader(View(view)).0);
        let leaders: Vec<_> = leaders.collect();
        assert_eq!(leaders, [1, 1, 1, 2, 2, 2, 3, 3, 3, 0, 0, 0]);
        let firsts = [0, 1, 2, 3, 4, 6, 7].map(|view| committee.turn_of(View(view)).0);
        assert_eq!(firsts, [0, 1, 1, 1, 4, 4, 7]);
        let after = [0, 1, 3, 4].map(|view| committee.turn_after(View(view)).0);
        assert_eq!(after, [1, 4, 4, 7]);
        assert_eq!(committee.turn_after(View(u64::MAX)), View(u64::MAX));
        let fitting = |blocks, validators| {
            let turns = Turns {
                protocol: Protocol::Pbft,
                epoch_blocks: crate::EpochLength::new(blocks),
            };
            turns.length(validators)
        };
        let lengths = [(40, 4), (40, 7), (1, 4), (1_000, 10), (10_000, 4)];
        let lengths = lengths.map(|(blocks, validators)| fitting(blocks, validators));
        assert_eq!(lengths, [2, 1, 1, 25, 100]);
        let cut_short = |protocol, parent, view| {
            let committee = committee.with_turns(Turns::of(protocol));
            committee
                .turn_cut_short(View(parent), View(view))
                .map(|turn| turn.0)
        };
        assert_eq!(cut_short(Protocol::HotstuffBasic, 1, 4), None, "one block");
        assert_eq!(cut_short(Protocol::Simplex, 1, 4), None);
        assert_eq!(cut_short(Protocol::Pbft, 0, 101), None, "before all turns");
        assert_eq!(cut_short(Protocol::Pbft, 100, 101), None);
        assert_eq!(cut_short(Protocol::Pbft, 97, 99), None);
        assert_eq!(cut_short(Protocol::Pbft, 199, 301), Some(101));
        let steps = [
            (0, 1),
            (1, 2),
            (1, 3),
            (1, 4),
            (3, 4),
            (1, 5),
            (2, 9),
            (5, 4),
        ];
        let steps = steps.map(|(from, to)| committee.steps(View(from), View(to)));
        assert_eq!(steps, [1, 1, 2, 1, 1, 2, 4, 0]);
    }

    #[test]
    fn a_list_with_a_double_is_refused() {
        let twice = vec![Identity([1; 32]), Identity([2; 32]), Identity([1; 32])];
        assert!(matches!(
            Committee::new(Epoch(0), twice),
            Err(CommitteeError::Duplicate { .. })
        ));
        assert_eq!(Committee::new(Epoch(0), vec![]), Err(CommitteeError::Empty));
    }
}
