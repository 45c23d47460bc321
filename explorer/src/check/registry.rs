//! Who validates, as executing the blocks of a chain with a registry tells.

use super::CHECKED;
use crate::index::{Index, IndexError};
use commonware_codec::{Copying, DecodeExt, Encode};
use quorate_storage::{
    database::{Batch, Row},
    execution::{Decision, Executed},
};
use quorate_types::{
    Account, Block, Bond, Committees, Epoch, EpochLength, Height, Identity, Operation, Outcome,
    RegistryRules, Roster, ValidatorSet, execution, genesis::Genesis,
};
use std::{collections::BTreeMap, sync::Arc};

/// In `checked`, followed by the first epoch of a set that is not the genesis file's.
const SET: &[u8] = b"set:";

/// In `checked`, followed by an identity: its bond.
const BOND: &[u8] = b"bond:";

/// Rows per read.
const ROWS_PER_READ: usize = 256;

/// A bond, and whether it was punished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldBond {
    pub(crate) bond: Bond,
    /// Whether `since` says until when it is jailed.
    punished: bool,
}

impl HeldBond {
    /// Whether it cannot be chosen in an epoch because it was punished.
    pub(crate) fn is_jailed(&self, epoch: Epoch) -> bool {
        self.punished && epoch < self.bond.since
    }

    fn row(&self) -> Vec<u8> {
        let mut row = vec![u8::from(self.punished)];
        row.extend_from_slice(&self.bond.encode());
        row
    }

    fn read(row: &[u8]) -> Option<Self> {
        let (punished, bond) = row.split_first()?;
        Some(Self {
            bond: Bond::decode(Copying(bond)).ok()?,
            punished: *punished == 1,
        })
    }
}

/// The registry after a block.
pub(crate) struct RegistryState {
    pub(crate) executed: Height,
    /// The epoch of the next block.
    pub(crate) epoch: Epoch,
    pub(crate) length: EpochLength,
    pub(crate) rules: RegistryRules,
    pub(crate) acting: Arc<ValidatorSet>,
    /// The validators of the next epoch, once they are fixed.
    pub(crate) coming: Option<Arc<ValidatorSet>>,
    pub(crate) bonds: Arc<BTreeMap<Identity, HeldBond>>,
}

/// The registry after the newest executed block.
pub(super) struct Registry {
    rules: RegistryRules,
    length: EpochLength,
    pub(super) committees: Committees,
    bonds: Arc<BTreeMap<Identity, HeldBond>>,
    /// The next epoch whose validators are to be compared with what handovers prove.
    compared: Epoch,
}

/// What a block makes of the registry.
pub(super) struct Change {
    /// The bonds that it has changed; `None` for those that are gone.
    bonds: BTreeMap<Identity, Option<HeldBond>>,
    decided: Option<ValidatorSet>,
}

impl Registry {
    /// The stored registry after the block at a height; `None` if the chain has none.
    pub(super) fn open(
        index: &Index,
        genesis: &Genesis,
        executed: Height,
    ) -> Result<Option<Self>, IndexError> {
        let Some(rules) = genesis.registry else {
            return Ok(None);
        };
        let length = genesis.epoch_blocks;
        let set = ValidatorSet::of_genesis(genesis);
        let mut sets = vec![set.map_err(|_| index.damaged("the genesis file"))?];
        for (_, row) in named(index, SET)? {
            let set = ValidatorSet::decode(Copying(row.as_slice()));
            sets.push(set.map_err(|_| index.damaged("a validator set"))?);
        }
        let mut bonds = BTreeMap::new();
        for (_, row) in named(index, BOND)? {
            let held = HeldBond::read(&row).ok_or_else(|| index.damaged("a bond"))?;
            bonds.insert(held.bond.identity, held);
        }
        let (fixed_to, acting) = (length.fixed_to(executed), length.epoch_of(executed.next()));
        let committees = Committees::changing(sets, fixed_to, acting, Roster::new())
            .map_err(|_| index.damaged("the validators"))?;
        Ok(Some(Self {
            rules,
            length,
            committees: committees.with_turns(genesis.turns()),
            bonds: Arc::new(bonds),
            compared: Epoch(0),
        }))
    }

    /// All bonds.
    pub(super) fn bonds(&self) -> BTreeMap<Identity, Bond> {
        let bonds = self.bonds.iter();
        bonds
            .map(|(identity, held)| (*identity, held.bond.clone()))
            .collect()
    }

    /// What an executed block makes of it.
    pub(super) fn change(&self, block: &Block, executed: &Executed) -> Change {
        let mut bonds = BTreeMap::new();
        for (identity, account) in &executed.execution.accounts {
            let held = self.bonds.get(identity);
            let bond = account.bond.as_deref();
            if bond != held.map(|held| &held.bond) {
                let punished = held.is_some_and(|held| held.punished);
                let changed = bond.cloned().map(|bond| HeldBond { bond, punished });
                bonds.insert(*identity, changed);
            }
        }
        let transfers = block.transactions().iter().map(|one| one.transfer());
        let applied = transfers
            .zip(&executed.execution.outcomes)
            .filter(|(_, outcome)| **outcome == Outcome::Applied);
        for (transfer, _) in applied {
            let (who, punished) = match execution::operation(transfer) {
                Some(Operation::Bond { .. }) => (transfer.sender, false),
                Some(Operation::Accuse { validator, .. }) => (validator, true),
                _ => continue,
            };
            if let Some(Some(held)) = bonds.get_mut(&who) {
                held.punished = punished;
            }
        }
        Change {
            bonds,
            decided: executed.decision.as_ref().map(|one| one.set.clone()),
        }
    }

    /// Adds the rows of a change to a batch.
    pub(super) fn stage(&self, change: &Change, decision: Option<&Decision>, batch: &mut Batch) {
        for (identity, held) in &change.bonds {
            match held {
                Some(held) => batch.put(CHECKED, key(BOND, &identity.0), held.row()),
                None => batch.delete(CHECKED, key(BOND, &identity.0)),
            }
        }
        if let Some(decision) = decision.filter(|one| one.is_news(&self.committees)) {
            let set = &decision.set;
            batch.put(CHECKED, key(SET, &set.epoch.0.to_be_bytes()), set.encode());
        }
    }

    /// Takes a change whose rows are written.
    pub(super) fn take(&mut self, change: Change) {
        if !change.bonds.is_empty() {
            let bonds = Arc::make_mut(&mut self.bonds);
            for (identity, held) in change.bonds {
                match held {
                    Some(held) => bonds.insert(identity, held),
                    None => bonds.remove(&identity),
                };
            }
        }
        if let Some(set) = change.decided {
            self.committees.decide(set);
        }
    }

    /// The registry after the block at a height, which is the newest executed one.
    pub(super) fn state(&self, executed: Height) -> Option<RegistryState> {
        let epoch = self.length.epoch_of(executed.next());
        let set = |epoch| self.committees.acting(epoch).map(|(_, set)| set);
        Some(RegistryState {
            executed,
            epoch,
            length: self.length,
            rules: self.rules,
            acting: set(epoch)?,
            coming: set(epoch.next()),
            bonds: self.bonds.clone(),
        })
    }

    /// The first epoch up to this one whose validators are proven to be others than the executed blocks lead to. Only sets
    /// that begin where a handover, or the trust file of epoch `trusted`, says so are compared: an upstream may leave
    /// changes out.
    pub(super) fn disagrees(
        &mut self,
        proven: &Committees,
        trusted: Epoch,
        until: Epoch,
    ) -> Option<Epoch> {
        let until = until.min(proven.newest());
        while self.compared <= until {
            let epoch = self.compared;
            if let (Some((first, told)), Some((_, own))) =
                (proven.acting(epoch), self.committees.acting(epoch))
                && first == epoch
            {
                // A trust file names no addresses.
                let agrees = match epoch > trusted {
                    true => told.members() == own.members(),
                    false => told.votes_as(&own),
                };
                if !agrees {
                    return Some(epoch);
                }
            }
            self.compared = epoch.next();
        }
        None
    }
}

/// Adds the genesis accounts' bonds to a batch.
pub(super) fn stage_first(accounts: &BTreeMap<Identity, Account>, batch: &mut Batch) {
    for (identity, account) in accounts {
        if let Some(bond) = &account.bond {
            let held = HeldBond {
                bond: Bond::clone(bond),
                punished: false,
            };
            batch.put(CHECKED, key(BOND, &identity.0), held.row());
        }
    }
}

fn key(name: &[u8], rest: &[u8]) -> Vec<u8> {
    [name, rest].concat()
}

/// All rows of `checked` whose keys begin with a name.
fn named(index: &Index, name: &[u8]) -> Result<Vec<Row>, IndexError> {
    let mut found = Vec::new();
    let mut start = name.to_vec();
    loop {
        let rows = index.rows(CHECKED, &start, ROWS_PER_READ)?;
        let count = rows.len();
        let before = found.len();
        found.extend(
            rows.into_iter()
                .take_while(|(key, _)| key.starts_with(name)),
        );
        match found.last() {
            Some((last, _)) if found.len() - before == count && count == ROWS_PER_READ => {
                // The smallest key above the last one.
                start.clone_from(last);
                start.push(0);
            }
            _ => return Ok(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::{BondAddress, BondName, Member, VoteKey};

    const RULES: RegistryRules = RegistryRules {
        min_stake: 10,
        max_validators: 7,
        unbond_epochs: 2,
        slashing: None,
        external: None,
        resharing: false,
    };

    fn set(epoch: u64, keys: &[u8], address: &str) -> ValidatorSet {
        let members = (0..).zip(keys).map(|(number, key)| Member {
            identity: Identity([number; 32]),
            vote_key: VoteKey([*key; 96]),
            address: address.parse::<BondAddress>().expect("short"),
            name: BondName::default(),
        });
        ValidatorSet::of_members(Epoch(epoch), members.collect())
    }

    fn committees(sets: Vec<ValidatorSet>) -> Committees {
        let first = sets[0].epoch;
        Committees::changing(sets, Epoch(9), first, Roster::new()).expect("committees")
    }

    #[test]
    fn other_validators_than_the_executed_ones_are_noticed() {
        let own = vec![set(0, &[1, 2, 3, 4], ""), set(3, &[1, 2, 3, 5], "b:1")];
        let disagrees = |proven: Vec<ValidatorSet>, until: u64| {
            let trusted = proven[0].epoch;
            let mut registry = Registry {
                rules: RULES,
                length: EpochLength::DEFAULT,
                committees: committees(own.clone()),
                bonds: Arc::default(),
                compared: Epoch(0),
            };
            let found = registry.disagrees(&committees(proven), trusted, Epoch(until));
            found.map(|epoch| epoch.0)
        };
        let other = |later: &[ValidatorSet]| [&[set(0, &[1, 2, 3, 4], "")], later].concat();
        assert_eq!(disagrees(own.clone(), 9), None);
        // Another key, another address, and a change that did not come.
        let wrong = set(3, &[1, 2, 3, 6], "b:1");
        assert_eq!(disagrees(other(std::slice::from_ref(&wrong)), 9), Some(3));
        assert_eq!(
            disagrees(other(&[set(3, &[1, 2, 3, 5], "c:1")]), 9),
            Some(3)
        );
        assert_eq!(
            disagrees(other(&[set(2, &[1, 2, 3, 5], "b:1")]), 9),
            Some(2)
        );
        // Nothing is said of an epoch that is not executed, nor by changes that are left out or not known yet.
        assert_eq!(disagrees(other(&[wrong]), 2), None);
        assert_eq!(disagrees(other(&[]), 9), None);
        assert_eq!(disagrees(other(&[set(5, &[1, 2, 3, 5], "b:1")]), 9), None);
        // A trust file names no addresses, and says nothing of before its epoch.
        assert_eq!(disagrees(vec![set(3, &[1, 2, 3, 5], "")], 9), None);
        assert_eq!(disagrees(vec![set(3, &[1, 2, 3, 6], "")], 9), Some(3));
    }

    #[test]
    fn a_bond_is_read_as_it_was_written() {
        let bond = Bond {
            identity: Identity([1; 32]),
            stake: 100,
            leaving: 3,
            leaves_at: Epoch(8),
            since: Epoch(5),
            vote_key: VoteKey([2; 96]),
            address: "a:1".parse().expect("short"),
            name: BondName::default(),
        };
        for punished in [false, true] {
            let bond = bond.clone();
            let held = HeldBond { bond, punished };
            assert_eq!(HeldBond::read(&held.row()), Some(held.clone()));
            assert_eq!([4, 5].map(|e| held.is_jailed(Epoch(e))), [punished, false]);
        }
        assert_eq!(HeldBond::read(&[]), None);
        assert_eq!(HeldBond::read(&[1, 2]), None);
    }
}
