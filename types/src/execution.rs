//! What a block does to the accounts: a function of the block and the accounts before it.
//!
//! Nothing here reads a clock, a cache or anything whose order is not fixed, so all validators
//! arrive at the same state. No transaction in a final block can make execution fail; one that
//! cannot be applied gets a failed receipt. Signatures were verified by the voters.
//!
//! In a block's order, for a transfer of `amount` with `fee`:
//! 1. the nonce must be the sender's, or the transfer fails and nothing is charged;
//! 2. the sender must hold the fee (and not be at the last nonce there is), or it fails and nothing
//!    is charged;
//! 3. the nonce is used, and the fee goes to the block's leader;
//! 4. the sender must hold the amount, or it fails; otherwise the amount is moved. A transfer to
//!    [`REGISTRY`] is an operation instead, which changes its sender's bond (see [`crate::registry`]).
//!
//! The sum of all balances and bonds never changes (of the balances alone, if the registry is outside the chain). It fits in 64 bits, so no sum here overflows.
//!
//! Fees go to the block's leader, so the sum of all balances never changes. The header commits to
//! the outcomes of transactions only by the accounts' root: an explorer without the genesis
//! accounts shows outcomes as a validator's statement, balances with a proof.

use crate::{
    Account, Block, Committees, EpochLength, Failure, Header, Identity, Operation, Outcome, Phase,
    REGISTRY, RegistryRules, SLASHED, Transfer,
    genesis::Genesis,
    registry::{RegistryContext, report_slot, resharing},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// What is the same for all blocks of a chain. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Rules {
    chain_name: Arc<str>,
    epoch_length: EpochLength,
    registry: Option<RegistryRules>,
    /// Who validates in which epoch, on a chain with a registry.
    committees: Option<Committees>,
}

impl Rules {
    /// The rules of a chain.
    pub fn of(genesis: &Genesis) -> Self {
        Self::new(&genesis.name, genesis.epoch_blocks, genesis.registry)
    }

    /// The rules of a chain of this name.
    pub fn new(
        chain_name: &str,
        epoch_length: EpochLength,
        registry: Option<RegistryRules>,
    ) -> Self {
        Self {
            chain_name: chain_name.into(),
            epoch_length,
            registry,
            committees: None,
        }
    }

    /// The same rules with who validates in which epoch: whoever executes blocks of a chain with a registry needs
    /// it, since anybody may be accused.
    #[must_use]
    pub fn knowing(self, committees: &Committees) -> Self {
        Self {
            committees: Some(committees.clone()),
            ..self
        }
    }

    /// The registry's rules; `None` if the chain has none.
    pub fn registry(&self) -> Option<&RegistryRules> {
        self.registry.as_ref()
    }

    /// The length of an epoch.
    pub fn epoch_length(&self) -> EpochLength {
        self.epoch_length
    }

    /// The phase of passing on shares that a block ends, on a chain whose validators share a key.
    pub fn closes_phase(&self, header: &Header) -> Option<Phase> {
        let (phase, is_last) = self.epoch_length.phase(header.height);
        let shares = self.registry.is_some_and(|rules| rules.resharing);
        (shares && is_last).then_some(phase)
    }

    /// Whether the state after a block says who has led it: up to the middle of each epoch.
    pub fn notes(&self, header: &Header) -> bool {
        let middle = self.epoch_length.fixing_height(header.epoch);
        self.registry.is_some() && header.height <= middle
    }

    /// Whether the state after a block fixes the validators of the next epoch.
    pub fn fixes_set(&self, header: &Header) -> bool {
        let height = self.epoch_length.fixing_height(header.epoch);
        self.registry.is_some() && header.height == height
    }

    /// Whether a block ends an epoch whose validators may change.
    pub fn ends_epoch(&self, header: &Header) -> bool {
        self.registry.is_some() && self.epoch_length.is_last(header.height)
    }

    /// Whether a block ends an epoch and names no state that fixes the next validators: then they stay.
    pub fn keeps_set(&self, header: &Header) -> bool {
        self.ends_epoch(header) && !self.epoch_length.names_next_set(header)
    }

    fn context(&self, header: &Header) -> RegistryContext<'_> {
        RegistryContext {
            rules: self.registry.as_ref(),
            chain_name: &self.chain_name,
            chain: header.chain,
            epoch: header.epoch,
            phase: self.epoch_length.phase(header.height).0,
            committees: self.committees.as_ref(),
        }
    }
}

/// What a block has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Execution {
    /// The accounts that the block changed, with their new values.
    pub accounts: BTreeMap<Identity, Account>,
    /// What these were before it.
    pub before: BTreeMap<Identity, Account>,
    /// The outcomes of the transactions, in order.
    pub outcomes: Vec<Outcome>,
}

/// The accounts that a block may touch.
pub fn touched(block: &Block, leader: &Identity, rules: &Rules) -> BTreeSet<Identity> {
    let transfers = block.transactions().iter().map(|t| t.transfer());
    let mut identities = BTreeSet::new();
    let mut notes = false;
    for transfer in transfers {
        identities.extend([transfer.sender, transfer.to]);
        match operation(transfer) {
            Some(Operation::Accuse { validator, .. }) => identities.extend([validator, SLASHED]),
            Some(Operation::Report { validator, .. }) => {
                let reporters = rules.context(block.header()).reporters();
                let places = reporters.map_or(0, |set| set.members().len());
                identities.insert(validator);
                identities.extend((0..places).map(report_slot));
            }
            Some(operation) if !operation.is_own() => {
                if let Some(acting) = rules.context(block.header()).dealers() {
                    notes = true;
                    let slots = resharing::touched(&operation, &transfer.sender, &acting);
                    identities.extend(slots);
                }
            }
            _ => {}
        }
    }
    identities.remove(&REGISTRY);
    if notes {
        identities.insert(REGISTRY);
    }
    if !identities.is_empty() {
        identities.insert(*leader);
    }
    identities
}

/// The operation of a transfer to [`REGISTRY`]; `None` if it is no such transfer, or its memo is no operation.
pub fn operation(transfer: &Transfer) -> Option<Operation> {
    let memo = Some(transfer.memo.as_bytes()).filter(|_| transfer.to == REGISTRY)?;
    Operation::from_memo(memo).ok()
}

/// Executes a block on the accounts before it; `before` holds all that are [`touched`], those
/// that were never paid with their default. Accounts that end as they began are left out.
pub fn execute(
    block: &Block,
    leader: &Identity,
    mut before: BTreeMap<Identity, Account>,
    rules: &Rules,
) -> Execution {
    let mut after = before.clone();
    let context = rules.context(block.header());
    let outcomes = block
        .transactions()
        .iter()
        .map(|transaction| apply(transaction.transfer(), leader, &mut after, &context))
        .collect();
    after.retain(|identity, account| before.get(identity) != Some(account));
    before.retain(|identity, _| after.contains_key(identity));
    Execution {
        accounts: after,
        before,
        outcomes,
    }
}

fn apply(
    transfer: &Transfer,
    leader: &Identity,
    accounts: &mut BTreeMap<Identity, Account>,
    context: &RegistryContext<'_>,
) -> Outcome {
    let sender = accounts.entry(transfer.sender).or_default();
    if sender.nonce != transfer.nonce {
        return Outcome::Failed(Failure::WrongNonce);
    }
    let (Some(balance), Some(nonce)) = (
        sender.balance.checked_sub(transfer.fee),
        sender.nonce.checked_add(1),
    ) else {
        return Outcome::Failed(Failure::CannotPayFee);
    };
    sender.balance = balance;
    sender.nonce = nonce;
    credit(accounts, leader, transfer.fee);
    let sender = accounts.entry(transfer.sender).or_default();
    if transfer.to == REGISTRY {
        let Some(operation) = operation(transfer) else {
            return Outcome::Failed(Failure::BadOperation);
        };
        if let Operation::Report { validator, entry } = &operation {
            if transfer.amount > 0 {
                return Outcome::Failed(Failure::BadOperation);
            }
            let reported = (validator, entry.as_deref());
            let applied = context.report(&transfer.sender, reported, accounts);
            return applied.map_or_else(Outcome::Failed, |()| Outcome::Applied);
        }
        if let Operation::Accuse {
            validator,
            evidence,
        } = &operation
        {
            if transfer.amount > 0 {
                return Outcome::Failed(Failure::BadOperation);
            }
            // Those that are touched are here; the registry's own account is not.
            let Some(accused) = accounts.get_mut(validator) else {
                return Outcome::Failed(Failure::NotBonded);
            };
            return match context.punish(validator, evidence, accused) {
                Ok(taken) => {
                    credit(accounts, &SLASHED, taken);
                    Outcome::Applied
                }
                Err(failure) => Outcome::Failed(failure),
            };
        }
        if !operation.is_own() {
            if transfer.amount > 0 {
                return Outcome::Failed(Failure::BadOperation);
            }
            let sender = &transfer.sender;
            let applied = match &operation {
                Operation::Announce { epoch, key } => {
                    context.announce(sender, (*epoch, key), accounts)
                }
                Operation::Deal { part, bytes } => context.deal(sender, *part, bytes, accounts),
                Operation::Object {
                    player,
                    dealer,
                    complaint,
                } => context.object(sender, (*player, *dealer), complaint, accounts),
                Operation::Prove { player, signature } => {
                    context.prove(sender, *player, signature, accounts)
                }
                _ => Err(Failure::BadOperation),
            };
            return applied.map_or_else(Outcome::Failed, |()| Outcome::Applied);
        }
        let applied = operation.apply(context, &transfer.sender, transfer.amount, sender);
        return applied.map_or_else(Outcome::Failed, |()| Outcome::Applied);
    }
    let Some(balance) = sender.balance.checked_sub(transfer.amount) else {
        return Outcome::Failed(Failure::InsufficientBalance);
    };
    sender.balance = balance;
    credit(accounts, &transfer.to, transfer.amount);
    Outcome::Applied
}

fn credit(accounts: &mut BTreeMap<Identity, Account>, to: &Identity, amount: u64) {
    let account = accounts.entry(*to).or_default();
    account.balance = account
        .balance
        .checked_add(amount)
        .expect("the sum of all balances fits in 64 bits and never changes");
}
