//! Who validates in the next epoch.
//!
//! The wanted set is the first `max_validators` of the bonds by stake; of equal stakes the smaller
//! identity is first. One validator has one vote, whatever its stake. The set moves towards the
//! wanted one at each border, so far as these rules allow:
//!
//! - *N1*: fewer than four wanted validators change nothing, since four are needed to tolerate a fault.
//! - *N2*: at most f of the n acting validators leave at one border, the silent and those with the least
//!   stake first.
//!   So a quorum of the acting set stays, and with it all that was final.
//! - *N3*: those who stay and were heard are a quorum of the next set by themselves: they have led a final
//!   block of the epoch. So neither newcomers that are not there, or not yet in step, nor those who came
//!   before and were never there, stop anybody. Of those who leave, the silent go first. If too few were
//!   heard, the set stays as it is; so an epoch should have four blocks or more for each validator.
//!
//! Who stays keeps its order, and who joins follows by rank.

use crate::{
    Bond, Committee, RegistryRules,
    limits::{MAX_VALIDATORS, MIN_REGISTERED_VALIDATORS},
};
use quorate_crypto::Identity;
use std::collections::{BTreeMap, BTreeSet};

/// The set of the next epoch, and what the rules have put off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextSet {
    /// The validators in the committee's order.
    pub members: Vec<Identity>,
    /// Those of them whose stake no longer suffices, but who stay by N1 or N2.
    pub kept: Vec<Identity>,
    /// Those whose stake suffices, but who do not join yet by N1 or N3.
    pub waiting: Vec<Identity>,
}

/// The bonds that may validate, by rank.
pub fn ranked<'a>(
    bonds: &'a BTreeMap<Identity, Bond>,
    rules: &RegistryRules,
) -> Vec<(&'a Identity, &'a Bond)> {
    let mut ranked: Vec<_> = bonds
        .iter()
        .filter(|(_, bond)| bond.stake >= rules.min_stake && bond.stake > 0)
        .collect();
    ranked.sort_by_key(|(identity, bond)| (std::cmp::Reverse(bond.stake), **identity));
    ranked
}

/// The set that follows `acting`, given all bonds, and which of them have led a final block of their epoch
/// so far.
pub fn next_set(
    acting: &Committee,
    bonds: &BTreeMap<Identity, Bond>,
    rules: &RegistryRules,
    heard: &BTreeSet<Identity>,
) -> NextSet {
    let most = (rules.max_validators as usize).min(MAX_VALIDATORS);
    let ranked = ranked(bonds, rules);
    let wanted: Vec<Identity> = ranked.iter().take(most).map(|(id, _)| **id).collect();
    let wanted_set: BTreeSet<Identity> = wanted.iter().copied().collect();
    let members = acting.identities();
    let joining: Vec<Identity> = wanted
        .iter()
        .filter(|identity| acting.place(identity).is_none())
        .copied()
        .collect();
    let mut leaving: Vec<Identity> = members
        .iter()
        .filter(|identity| !wanted_set.contains(identity))
        .copied()
        .collect();
    if wanted.len() < MIN_REGISTERED_VALIDATORS {
        return NextSet {
            members: members.to_vec(),
            kept: leaving,
            waiting: joining,
        };
    }
    // Who is silent leaves first, then the least stake, and of equal stakes the greater identity.
    leaving.sort_by_key(|identity| {
        let stake = bonds.get(identity).map_or(0, |bond| bond.stake);
        let is_heard = heard.contains(identity);
        (is_heard, stake, std::cmp::Reverse(*identity))
    });
    let unheard = |who: &[Identity]| who.iter().filter(|one| !heard.contains(one)).count();
    let silent = unheard(members);
    // How many leave and join: as many as may leave, then as many as may join.
    let choice = (0..=leaving.len().min(acting.faults()))
        .rev()
        .find_map(|leave| {
            let stays = members.len() - leave;
            let heard_stay = stays - (silent - unheard(&leaving[..leave]));
            let fits = |join: &usize| {
                let size = stays + join;
                let quorum = size - (size.max(1) - 1) / 3;
                let has_room = *join == 0 || size <= most;
                has_room && size >= MIN_REGISTERED_VALIDATORS && heard_stay >= quorum
            };
            let join = (0..=joining.len()).rev().find(fits)?;
            Some((leave, join))
        });
    let (leave, join) = choice.unwrap_or((0, 0));
    let kept = leaving.split_off(leave);
    let leaves: BTreeSet<Identity> = leaving.into_iter().collect();
    let stay = members.iter().filter(|identity| !leaves.contains(identity));
    let (now, later) = joining.split_at(join);
    NextSet {
        members: stay.chain(now).copied().collect(),
        kept,
        waiting: later.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BondAddress, BondName, Epoch, VoteKey};

    const RULES: RegistryRules = RegistryRules {
        min_stake: 10,
        max_validators: 7,
        unbond_epochs: 2,
        slashing: None,
        external: None,
        resharing: false,
    };

    fn id(number: u8) -> Identity {
        Identity([number; 32])
    }

    fn bonds(stakes: &[(u8, u64)]) -> BTreeMap<Identity, Bond> {
        let bond = |identity, stake| Bond {
            identity,
            stake,
            leaving: 0,
            leaves_at: Epoch(0),
            since: Epoch(0),
            vote_key: VoteKey([0; 96]),
            address: BondAddress::default(),
            name: BondName::default(),
        };
        let bonds = stakes
            .iter()
            .map(|(who, stake)| (id(*who), bond(id(*who), *stake)));
        bonds.collect()
    }

    fn committee(members: &[u8]) -> Committee {
        let members = members.iter().map(|who| id(*who)).collect();
        Committee::new(Epoch(3), members).expect("distinct")
    }

    fn next(acting: &[u8], stakes: &[(u8, u64)]) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
        let next = next_set(
            &committee(acting),
            &bonds(stakes),
            &RULES,
            &acting.iter().map(|who| id(*who)).collect(),
        );
        let numbers = |ids: Vec<Identity>| ids.iter().map(|id| id.0[0]).collect();
        (
            numbers(next.members),
            numbers(next.kept),
            numbers(next.waiting),
        )
    }

    #[test]
    fn the_greatest_stakes_validate_and_equal_ones_by_identity() {
        let four = [(1, 50), (2, 50), (3, 50), (4, 50)];
        assert_eq!(
            next(&[1, 2, 3, 4], &four),
            (vec![1, 2, 3, 4], vec![], vec![])
        );
        let ranks = bonds(&[(3, 10), (2, 20), (1, 10), (4, 9), (5, 0)]);
        let ranks = ranked(&ranks, &RULES)
            .iter()
            .map(|(id, _)| id.0[0])
            .collect::<Vec<_>>();
        assert_eq!(ranks, [2, 1, 3], "below the least stake nobody is ranked");
    }

    #[test]
    fn a_set_grows_so_that_those_who_stay_are_a_quorum() {
        let seven: Vec<_> = (1..=7).map(|who| (who, 50)).collect();
        let (five, _, waiting) = next(&[1, 2, 3, 4], &seven);
        assert_eq!((five, waiting), (vec![1, 2, 3, 4, 5], vec![6, 7]));
        let (all, kept, waiting) = next(&[1, 2, 3, 4, 5], &seven);
        assert_eq!(
            (all, kept, waiting),
            (vec![1, 2, 3, 4, 5, 6, 7], vec![], vec![])
        );
    }

    #[test]
    fn newcomers_that_were_never_there_stop_nobody() {
        let heard: BTreeSet<Identity> = [1, 2, 3, 4].map(id).into();
        let members = |acting: &[u8], stakes: &[(u8, u64)]| -> Vec<u8> {
            let next = next_set(&committee(acting), &bonds(stakes), &RULES, &heard);
            next.members.iter().map(|one| one.0[0]).collect()
        };
        // 5 came and is silent. With two more, the four would be no quorum of seven.
        let seven: Vec<_> = (1..=7).map(|who| (who, 50)).collect();
        assert_eq!(members(&[1, 2, 3, 4, 5], &seven), [1, 2, 3, 4, 5]);
        // With greater stakes they push out who is there only as long as the others are a quorum.
        let stake = |who| if who < 5 { 50 } else { 90 };
        let greater: Vec<_> = (1..=11).map(|who| (who, stake(who))).collect();
        let first = members(&[1, 2, 3, 4, 5], &greater);
        assert_eq!(first, [1, 2, 3, 5]);
        assert_eq!(members(&first, &greater), first);
        // Who is silent leaves before who is there, whatever it has at stake.
        let without = [(1, 50), (2, 50), (3, 50), (6, 50)];
        assert_eq!(members(&[1, 2, 3, 5], &without), [1, 2, 3, 6]);
        // With too few heard nothing changes.
        assert_eq!(members(&[5, 6, 7, 8], &seven), [5, 6, 7, 8]);
    }

    #[test]
    fn no_more_than_f_leave_at_once() {
        let others: Vec<_> = (5..=8).map(|who| (who, 50)).collect();
        let (set, kept, waiting) = next(&[1, 2, 3, 4], &others);
        // 4 goes first: all have no stake, and its identity is the greatest.
        assert_eq!(set, [1, 2, 3, 5]);
        assert_eq!((kept.len(), waiting), (3, vec![6, 7, 8]));
    }

    #[test]
    fn who_stays_keeps_its_order() {
        let stakes = [(9, 50), (2, 50), (7, 50), (1, 60), (4, 70)];
        let (set, ..) = next(&[9, 2, 7, 5], &stakes);
        assert_eq!(set, [9, 2, 7, 4]);
    }

    #[test]
    fn three_bonds_make_no_set() {
        let (set, kept, waiting) = next(&[1, 2, 3, 4], &[(1, 50), (2, 50), (5, 50)]);
        assert_eq!(
            (set, kept, waiting),
            (vec![1, 2, 3, 4], vec![3, 4], vec![5])
        );
    }

    #[test]
    fn whatever_the_stakes_a_quorum_of_both_sets_stays_and_the_wanted_set_is_reached() {
        use rand::{RngExt as _, SeedableRng as _};
        for seed in 0..2_000 {
            let mut rng = rand::rngs::StdRng::seed_from_u64(seed);
            let rules = RegistryRules {
                max_validators: rng.random_range(4..=12),
                ..RULES
            };
            let mut acting = committee(&(0..rng.random_range(4..=12)).collect::<Vec<u8>>());
            let stakes: Vec<(u8, u64)> =
                (0..20).map(|who| (who, rng.random_range(0..30))).collect();
            let bonds = bonds(&stakes);
            let wanted: BTreeSet<Identity> = ranked(&bonds, &rules)
                .iter()
                .take(rules.max_validators as usize)
                .map(|(id, _)| **id)
                .collect();
            for _ in 0..40 {
                let next = next_set(
                    &acting,
                    &bonds,
                    &rules,
                    &acting.identities().iter().copied().collect(),
                );
                let after = Committee::new(acting.epoch().next(), next.members).expect("distinct");
                let stays = acting.identities().iter();
                let stays = stays.filter(|id| after.place(id).is_some()).count();
                assert!(
                    stays >= acting.quorum() && stays >= after.quorum(),
                    "{seed}"
                );
                assert!(after.size() >= 4, "{seed}");
                acting = after;
            }
            if wanted.len() >= 4 {
                let reached: BTreeSet<_> = acting.identities().iter().copied().collect();
                assert_eq!(reached, wanted, "seed {seed}");
            }
        }
    }
}
