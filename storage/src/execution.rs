//! Executing a final block on the state in a tree: what it does to the accounts and, on a chain with a registry,
//! what the state after it says about the validators. Validators, followers and explorers all do it here.

use crate::{
    store::{StoreError, tree_updates},
    tree::{Changeset, NodeStore, Tree, TreeError},
};
use commonware_codec::{Copying, DecodeExt};
use quorate_types::{
    Account, Block, Bond, CommitteeError, Committees, Epoch, Identity, Phase, REGISTRY,
    RegistryNote, ValidatorSet,
    execution::{self, Execution, Rules},
    registry::resharing,
    state_key,
};
use std::collections::{BTreeMap, BTreeSet};

/// Why a final block cannot be executed. None of these is the block's fault.
#[derive(Debug, thiserror::Error)]
pub enum ExecutionError {
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("an account is damaged: {0}")]
    Account(commonware_codec::Error),
    #[error("the validators of epoch {0} are not known")]
    UnknownValidators(Epoch),
    #[error("the validators of epoch {epoch}: {source}")]
    Validators {
        epoch: Epoch,
        source: CommitteeError,
    },
}

/// What a block makes of the state. Nothing is changed yet.
pub struct Executed {
    pub execution: Execution,
    /// Accounts that the block may touch, and that were not in the state before.
    pub absent: Vec<Identity>,
    /// The validators of the next epoch, if this block decides on them.
    pub decision: Option<Decision>,
    /// The tree's new rows.
    pub changes: Changeset,
}

/// The validators of the next epoch.
pub struct Decision {
    pub set: ValidatorSet,
    /// Whether the block ends its epoch without naming a state that fixes them. Then those of its epoch stay,
    /// whatever was fixed in the middle.
    pub kept: bool,
}

impl Decision {
    /// Whether the set has to be stored: it differs from the last one that is fixed, or replaces it.
    pub fn is_news(&self, committees: &Committees) -> bool {
        self.kept || !committees.repeats(&self.set)
    }
}

/// Executes a block on the state in a tree, which is that after its parent. `bonds` are all bonds in that state; they
/// are asked for only where the block fixes the next validators.
///
/// # Errors
///
/// If the tree or the bonds cannot be read, or the validators of the block's epoch are not known.
pub fn execute<S: NodeStore>(
    tree: &Tree<S>,
    block: &Block,
    committees: &Committees,
    rules: &Rules,
    bonds: impl FnOnce() -> Result<BTreeMap<Identity, Bond>, StoreError>,
) -> Result<Executed, ExecutionError> {
    let header = block.header();
    let leader = committees
        .leader_identity(header.epoch, header.view)
        .ok_or(ExecutionError::UnknownValidators(header.epoch))?;
    let acting = || {
        let acting = committees.set(header.epoch);
        acting.ok_or(ExecutionError::UnknownValidators(header.epoch))
    };
    let mut touched = execution::touched(block, &leader, rules);
    let notes = rules.notes(header);
    if notes {
        touched.insert(REGISTRY);
    }
    // What ends a phase of passing on shares is decided by accounts that the block may not touch.
    let closes = rules.closes_phase(header);
    let closes = closes.filter(|phase| notes && *phase != Phase::Deal);
    let mut bonds = Some(bonds);
    let mut known_bonds = BTreeMap::new();
    let mut closing = BTreeSet::new();
    if let Some(phase) = closes {
        known_bonds = bonds
            .take()
            .map_or_else(|| Ok(BTreeMap::new()), |bonds| bonds())?;
        let note = tree.get(&state_key(&REGISTRY).0)?;
        let note = decode(note.as_deref())?.note.unwrap_or_default();
        closing = resharing::needed_to_close(&acting()?, &note, phase, &known_bonds);
        touched.extend(&closing);
    }
    let keys: BTreeSet<_> = touched.iter().map(|id| state_key(id).0).collect();
    let loaded = tree.load(&keys)?;
    let mut before = BTreeMap::new();
    let mut absent = Vec::new();
    for identity in touched {
        let value = tree.get_loaded(&loaded, &state_key(&identity).0)?;
        if value.is_none() {
            absent.push(identity);
        }
        before.insert(identity, decode(value.as_deref())?);
    }
    let registry = before.get(&REGISTRY).cloned().unwrap_or_default();
    let unclosed: Vec<_> = closing
        .iter()
        .filter_map(|identity| Some((*identity, before.get(identity)?.clone())))
        .collect();
    let mut execution = execution::execute(block, &leader, before, rules);
    let mut decision = None;
    if notes {
        let noted = execution.accounts.get(&REGISTRY).unwrap_or(&registry);
        let mut note = noted.note.as_deref().cloned().unwrap_or_default();
        let place = committees.leader(header.epoch, header.view);
        note.hear(header.epoch, place);
        if let (Some(phase), Some(registry_rules)) = (closes, rules.registry()) {
            update_bonds(&mut known_bonds, &execution.accounts);
            let mut accounts: BTreeMap<_, _> = unclosed.iter().cloned().collect();
            for (identity, account) in &mut accounts {
                if let Some(changed) = execution.accounts.get(identity) {
                    account.clone_from(changed);
                }
            }
            let set = resharing::close(
                phase,
                &header.chain,
                &acting()?,
                &mut note,
                &known_bonds,
                registry_rules,
                &mut accounts,
            );
            for (identity, old) in unclosed {
                if let Some(account) = accounts.remove(&identity)
                    && account != *execution.accounts.get(&identity).unwrap_or(&old)
                {
                    execution.before.entry(identity).or_insert(old);
                    execution.accounts.insert(identity, account);
                }
            }
            if let Some(set) = set {
                note.next = Some(set.digest());
                decision = Some(Decision { set, kept: false });
            }
        } else if let (true, Some(bonds)) = (rules.fixes_set(header), bonds) {
            let bonds = bonds()?;
            let set = following(&acting()?, &note, bonds, &execution.accounts, rules)?;
            note.next = Some(set.digest());
            decision = Some(Decision { set, kept: false });
        }
        // Whoever pays it loses the money.
        let noted = Account {
            note: Some(Box::new(note)),
            ..execution
                .accounts
                .get(&REGISTRY)
                .unwrap_or(&registry)
                .clone()
        };
        if noted != registry {
            execution.before.insert(REGISTRY, registry);
            execution.accounts.insert(REGISTRY, noted);
        }
    }
    // An epoch whose last block names no state that fixes the next validators keeps its own. No rule may
    // forbid such a block: execution follows finality, and that may need it.
    if rules.keeps_set(header) {
        let set = acting()?.of_epoch(header.epoch.next());
        decision = Some(Decision { set, kept: true });
    }
    let changes = tree.prepare_loaded(loaded, &tree_updates(&execution.accounts))?;
    Ok(Executed {
        execution,
        absent,
        decision,
        changes,
    })
}

/// The validators of the epoch after this one, given what the state says about this one, the bonds before the
/// block and the accounts that it has changed.
fn following(
    acting: &ValidatorSet,
    note: &RegistryNote,
    mut bonds: BTreeMap<Identity, Bond>,
    changed: &BTreeMap<Identity, Account>,
    rules: &Rules,
) -> Result<ValidatorSet, ExecutionError> {
    let epoch = acting.epoch;
    let no_committee = |source| ExecutionError::Validators { epoch, source };
    let rules = rules
        .registry()
        .ok_or(ExecutionError::UnknownValidators(epoch.next()))?;
    let heard = note.heard(&acting.committee().map_err(no_committee)?);
    update_bonds(&mut bonds, changed);
    let following = acting.following(&bonds, rules, &heard);
    Ok(following.map_err(no_committee)?.0)
}

/// Brings bonds up to date with the accounts that a block has changed.
pub fn update_bonds(bonds: &mut BTreeMap<Identity, Bond>, changed: &BTreeMap<Identity, Account>) {
    for (identity, account) in changed {
        match &account.bond {
            Some(bond) => bonds.insert(*identity, Bond::clone(bond)),
            None => bonds.remove(identity),
        };
    }
}

fn decode(bytes: Option<&[u8]>) -> Result<Account, ExecutionError> {
    bytes.map_or(Ok(Account::default()), |bytes| {
        Account::decode(Copying(bytes)).map_err(ExecutionError::Account)
    })
}
