//! Which validators serve in which epoch.

use crate::{
    Bond, BondAddress, Committee, CommitteeError, Epoch, ValidatorIndex, ValidatorSet, View,
    VoteKey, genesis::Turns,
};
use quorate_crypto::Identity;
use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

/// The committee of every epoch. All parts of a process share one value and ask it by epoch.
///
/// On a chain with a registry, the set of an epoch is fixed by the state in the middle of the epoch
/// before ([`Self::decide`]). The parts of a process are assembled for one set of validators
/// ([`Self::known`]), and anew where the set changes.
#[derive(Clone, Debug)]
pub struct Committees {
    known: Committee,
    turns: Turns,
    sets: Option<Arc<RwLock<Sets>>>,
}

#[derive(Debug)]
struct Sets {
    /// The sets by their first epoch: each serves until the next one.
    by_epoch: BTreeMap<Epoch, (Arc<ValidatorSet>, Committee)>,
    /// The last epoch whose set is fixed.
    fixed_to: Epoch,
    /// Who may have a link, and where: all bonds when this process's parts were assembled.
    roster: Roster,
    /// The last epoch that is executed, and whether the parts must be assembled anew after it.
    closed: Option<(Epoch, bool)>,
}

/// The addresses of all that have a bond.
pub type Roster = BTreeMap<Identity, BondAddress>;

/// The roster of these bonds.
pub fn roster(bonds: &BTreeMap<Identity, Bond>) -> Roster {
    let entries = bonds.iter();
    entries
        .map(|(identity, bond)| (*identity, bond.address.clone()))
        .collect()
}

/// What comes after an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Succession {
    /// The same validators with the same keys, and nobody else has a bond.
    Stays,
    /// Others, or other keys or addresses.
    Changes,
    /// This process has not executed the epoch's last block.
    Open,
}

impl Committees {
    /// The same validators in every epoch.
    pub fn fixed(committee: Committee) -> Self {
        Self {
            turns: committee.turns(),
            known: committee,
            sets: None,
        }
    }

    /// The validators of a chain with a registry: all sets by their first epoch, of which the first
    /// begins at the chain's; the last epoch whose set is fixed; the epoch that this process takes part
    /// in; and everybody with a bond.
    ///
    /// # Errors
    ///
    /// If there is no set, or one is no committee.
    pub fn changing(
        sets: Vec<ValidatorSet>,
        fixed_to: Epoch,
        acting: Epoch,
        roster: Roster,
    ) -> Result<Self, CommitteeError> {
        let mut by_epoch = BTreeMap::new();
        for set in sets {
            let committee = set.committee()?;
            by_epoch.insert(set.epoch, (Arc::new(set), committee));
        }
        let sets = Sets {
            by_epoch,
            fixed_to,
            roster,
            closed: None,
        };
        let known = sets.at(acting).ok_or(CommitteeError::Empty)?.1.clone();
        Ok(Self {
            known: known.with_epoch(acting),
            turns: Turns::default(),
            sets: Some(Arc::new(RwLock::new(sets))),
        })
    }

    /// The same, who take these turns.
    #[must_use]
    pub fn with_turns(self, turns: Turns) -> Self {
        Self {
            known: self.known.with_turns(turns),
            turns,
            ..self
        }
    }

    /// The validators of a chain with a registry, for whoever learns of changes by handovers
    /// ([`Self::adopt`]): from the set's epoch on it, and the newest set that is known for all later
    /// epochs.
    ///
    /// # Errors
    ///
    /// If the set is no committee.
    pub fn trusting(set: ValidatorSet) -> Result<Self, CommitteeError> {
        let acting = set.epoch;
        Self::changing(vec![set], Epoch(u64::MAX), acting, Roster::new())
    }

    /// Adds a later set. Has no effect if one as new is known.
    pub fn adopt(&self, set: ValidatorSet) {
        let (Some(sets), Ok(committee)) = (&self.sets, set.committee()) else {
            return;
        };
        let mut sets = write(sets);
        if sets.newest() < Some(set.epoch) {
            sets.by_epoch.insert(set.epoch, (Arc::new(set), committee));
        }
    }

    /// The first epoch of the newest set that is known; 0 if the validators never change.
    pub fn newest(&self) -> Epoch {
        let sets = self.sets.as_ref();
        sets.and_then(|sets| read(sets).newest())
            .unwrap_or_default()
    }

    /// The set of an epoch that is fixed, and its first epoch; `None` if the validators never change.
    pub fn acting(&self, epoch: Epoch) -> Option<(Epoch, Arc<ValidatorSet>)> {
        let sets = read(self.sets.as_ref()?);
        let first = sets.by_epoch.range(..=epoch).next_back();
        let (first, (set, _)) = first.filter(|_| epoch <= sets.fixed_to)?;
        Some((*first, set.clone()))
    }

    /// Whether the set can change.
    pub fn can_change(&self) -> bool {
        self.sets.is_some()
    }

    /// The committee of an epoch; of one whose set is not fixed yet, the newest that is.
    pub fn of(&self, epoch: Epoch) -> Committee {
        self.with(epoch, |committee| {
            committee.with_epoch(epoch).with_turns(self.turns)
        })
    }

    /// The leader of a view.
    pub fn leader(&self, epoch: Epoch, view: View) -> ValidatorIndex {
        self.of(epoch).leader(view)
    }

    /// The identity of a view's leader.
    pub fn leader_identity(&self, epoch: Epoch, view: View) -> Option<Identity> {
        let committee = self.of(epoch);
        committee.identity(committee.leader(view))
    }

    fn with<T>(&self, epoch: Epoch, look: impl FnOnce(&Committee) -> T) -> T {
        let Some(sets) = &self.sets else {
            return look(&self.known);
        };
        let sets = read(sets);
        match sets.at(epoch) {
            Some((_, committee)) => look(committee),
            None => look(&self.known),
        }
    }

    /// The validators that this process keeps links with, and limits of each are kept for.
    pub fn known(&self) -> &Committee {
        &self.known
    }

    /// The set of an epoch, if it is fixed, and this is a chain with a registry.
    pub fn set(&self, epoch: Epoch) -> Option<ValidatorSet> {
        let (_, set) = self.acting(epoch)?;
        Some(ValidatorSet::clone(&set).of_epoch(epoch))
    }

    /// Fixes the set of the epoch after the last one that is fixed. Has no effect on a set that is
    /// fixed already, or if it is no committee.
    fn fix(&self, set: ValidatorSet) {
        let (Some(sets), Ok(committee)) = (&self.sets, set.committee()) else {
            return;
        };
        let mut sets = write(sets);
        if set.epoch != sets.fixed_to.next() {
            return;
        }
        sets.fixed_to = set.epoch;
        let stays = sets
            .at(set.epoch)
            .is_some_and(|(last, _)| last.members() == set.members());
        if !stays {
            let epoch = set.epoch;
            sets.by_epoch.insert(epoch, (Arc::new(set), committee));
        }
    }

    /// Whether the validators of the last epoch whose set is fixed are those of this set.
    pub fn repeats(&self, set: &ValidatorSet) -> bool {
        let Some(sets) = &self.sets else {
            return false;
        };
        let sets = read(sets);
        (sets.at(sets.fixed_to)).is_some_and(|(last, _)| last.members() == set.members())
    }

    /// Notes that an epoch is executed, and who has a bond after it.
    pub fn close(&self, epoch: Epoch, bonds: &BTreeMap<Identity, Bond>) {
        let Some(sets) = &self.sets else {
            return;
        };
        let mut sets = write(sets);
        let stays = match (sets.at(epoch), sets.at(epoch.next())) {
            (Some((now, _)), Some((next, _))) => next.is_reached_as(now),
            _ => false,
        };
        let renews = !stays || !roster(bonds).keys().eq(sets.roster.keys());
        let renewed = sets.closed.is_some_and(|(_, renews)| renews);
        sets.closed = Some((epoch, renews || renewed));
    }

    /// Says that the validators of the last epoch whose set is fixed are these after all.
    fn keep(&self, set: ValidatorSet) {
        let (Some(sets), Ok(committee)) = (&self.sets, set.committee()) else {
            return;
        };
        let mut sets = write(sets);
        if set.epoch == sets.fixed_to {
            let epoch = set.epoch;
            sets.by_epoch.insert(epoch, (Arc::new(set), committee));
        }
    }

    /// Takes what the state after a block says of the next epoch: fixes its validators, or says that those that are
    /// fixed are others after all.
    pub fn decide(&self, set: ValidatorSet) {
        match self.is_fixed(set.epoch) {
            true => self.keep(set),
            false => self.fix(set),
        }
    }

    /// What comes after an epoch.
    pub fn succession(&self, epoch: Epoch) -> Succession {
        let Some(sets) = &self.sets else {
            return Succession::Stays;
        };
        let sets = read(sets);
        match sets.closed {
            Some((closed, true)) if closed >= epoch => Succession::Changes,
            Some((closed, false)) if closed >= epoch => Succession::Stays,
            _ => Succession::Open,
        }
    }

    /// Whether a validator's vote key has had a seat in this epoch or before, and so may have voted; where validators
    /// share a key, and have another share in each epoch, whether the validator has. On a chain whose validators
    /// never change, every key has.
    pub fn had_seat(&self, own: &Identity, key: &VoteKey, epoch: Epoch) -> bool {
        let Some(sets) = &self.sets else {
            return true;
        };
        let sets = read(sets);
        let mut until = sets.by_epoch.range(..=epoch).map(|(_, (set, _))| set);
        until.any(|set| match set.group_key() {
            Some(_) => set.place(own).is_some(),
            None => set.members().iter().any(|member| member.vote_key == *key),
        })
    }

    /// The first epoch in which a validator has a seat; 0 on a chain whose validators never change.
    pub fn first_seat(&self, identity: &Identity) -> Epoch {
        let Some(sets) = &self.sets else {
            return Epoch(0);
        };
        let sets = read(sets);
        let mut seats = sets.by_epoch.iter();
        let first = seats.find(|(_, (_, committee))| committee.place(identity).is_some());
        first.map_or(Epoch(0), |(epoch, _)| *epoch)
    }

    /// Whether the set of an epoch is fixed.
    pub fn is_fixed(&self, epoch: Epoch) -> bool {
        let Some(sets) = &self.sets else {
            return true;
        };
        epoch <= read(sets).fixed_to
    }

    /// Whether the validators and keys of an epoch are those of [`Self::known`], so that signatures of
    /// that epoch can be verified with its keys.
    pub fn votes_alike(&self, epoch: Epoch) -> bool {
        let Some(sets) = &self.sets else {
            return true;
        };
        let sets = read(sets);
        match (sets.at(epoch), sets.at(self.known.epoch())) {
            (Some((then, _)), Some((now, _))) => {
                epoch <= sets.fixed_to && (Arc::ptr_eq(then, now) || then.votes_as(now))
            }
            _ => false,
        }
    }
}

/// No panic can leave the sets half-changed, so poisoning means nothing here.
fn read(sets: &RwLock<Sets>) -> RwLockReadGuard<'_, Sets> {
    sets.read().unwrap_or_else(PoisonError::into_inner)
}

fn write(sets: &RwLock<Sets>) -> RwLockWriteGuard<'_, Sets> {
    sets.write().unwrap_or_else(PoisonError::into_inner)
}

impl Sets {
    fn newest(&self) -> Option<Epoch> {
        self.by_epoch.keys().next_back().copied()
    }

    fn at(&self, epoch: Epoch) -> Option<&(Arc<ValidatorSet>, Committee)> {
        self.by_epoch
            .range(..=epoch)
            .next_back()
            .map(|(_, set)| set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BondName, Member};

    fn set(epoch: u64, numbers: &[u8]) -> ValidatorSet {
        let members = numbers.iter().map(|number| Member {
            identity: Identity([*number; 32]),
            vote_key: VoteKey([*number; 96]),
            address: BondAddress::default(),
            name: BondName::default(),
        });
        ValidatorSet::of_members(Epoch(epoch), members.collect())
    }

    #[test]
    fn each_epoch_has_its_own_committee() {
        let sets = vec![set(0, &[1, 2, 3, 4]), set(5, &[2, 3, 4, 9])];
        let committees = Committees::changing(sets, Epoch(5), Epoch(4), Roster::new());
        let committees = committees.expect("committees");
        assert_eq!(committees.known().epoch(), Epoch(4));
        assert_eq!(committees.known().identities()[0], Identity([1; 32]));
        assert_eq!(committees.of(Epoch(5)).identities()[0], Identity([2; 32]));
        assert_eq!(
            committees.leader_identity(Epoch(5), View(3)),
            Some(Identity([2; 32]))
        );
        assert!(committees.votes_alike(Epoch(0)) && !committees.votes_alike(Epoch(5)));
        assert!(committees.is_fixed(Epoch(5)) && !committees.is_fixed(Epoch(6)));
        assert!(committees.had_seat(&Identity([77; 32]), &VoteKey([1; 96]), Epoch(0)));
        assert!(!committees.had_seat(&Identity([77; 32]), &VoteKey([9; 96]), Epoch(4)));
        assert!(committees.had_seat(&Identity([77; 32]), &VoteKey([9; 96]), Epoch(5)));
    }

    #[test]
    fn who_learns_by_handovers_believes_the_newest_set() {
        let committees = Committees::trusting(set(3, &[1, 2, 3, 4])).expect("a committee");
        assert_eq!(committees.set(Epoch(2)), None);
        assert_eq!(committees.newest(), Epoch(3));
        let members = |epoch| committees.of(Epoch(epoch)).identities()[0];
        assert_eq!(members(900), Identity([1; 32]));
        committees.adopt(set(7, &[5, 2, 3, 4]));
        // Nothing that is known changes.
        committees.adopt(set(7, &[6, 2, 3, 4]));
        committees.adopt(set(5, &[6, 2, 3, 4]));
        assert_eq!(committees.newest(), Epoch(7));
        assert_eq!(
            [6, 7, 900].map(members),
            [1, 5, 5].map(|n| Identity([n; 32]))
        );
    }

    #[test]
    fn what_follows_is_known_once_the_epoch_is_executed() {
        let start = || {
            let sets = vec![set(0, &[1, 2, 3, 4])];
            Committees::changing(sets, Epoch(0), Epoch(0), Roster::new()).expect("a committee")
        };
        let stays = start();
        stays.fix(set(1, &[1, 2, 3, 4]));
        assert_eq!(stays.succession(Epoch(0)), Succession::Open);
        stays.close(Epoch(0), &BTreeMap::new());
        assert_eq!(stays.succession(Epoch(0)), Succession::Stays);
        assert_eq!(stays.succession(Epoch(1)), Succession::Open);

        let changes = start();
        changes.fix(set(1, &[2, 3, 4, 5]));
        // Only the next epoch's can be fixed, and once.
        changes.fix(set(1, &[1, 2, 3, 4]));
        changes.fix(set(3, &[1, 2, 3, 4]));
        assert!(!changes.is_fixed(Epoch(2)));
        changes.close(Epoch(0), &BTreeMap::new());
        assert_eq!(changes.succession(Epoch(0)), Succession::Changes);
        // A process that has missed one change has to be assembled anew, whatever follows.
        changes.fix(set(2, &[2, 3, 4, 5]));
        changes.close(Epoch(1), &BTreeMap::new());
        assert_eq!(changes.succession(Epoch(1)), Succession::Changes);
    }
}
