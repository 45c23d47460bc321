//! The ledger: accounts that pay each other.
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
//! Fees go to the block's leader, so the sum of all balances never changes.

use super::{Application, At};
use crate::{
    Account, Block, Failure, Identity, Operation, Outcome, REGISTRY, SLASHED, Transfer,
    registry::{RegistryContext, report_slot, resharing},
};
use std::collections::{BTreeMap, BTreeSet};

/// Transfers between accounts, and operations on the staking registry.
#[derive(Debug)]
pub struct Ledger;

impl Application for Ledger {
    fn touched(&self, block: &Block, at: &At<'_>) -> BTreeSet<Identity> {
        let transfers = block.transactions().iter().map(|t| t.transfer());
        let mut identities = BTreeSet::new();
        let mut notes = false;
        for transfer in transfers {
            identities.extend([transfer.sender, transfer.to]);
            match operation(transfer) {
                Some(Operation::Accuse { validator, .. }) => {
                    identities.extend([validator, SLASHED])
                }
                Some(Operation::Report { validator, .. }) => {
                    let reporters = at.rules.context(at.header).reporters();
                    let places = reporters.map_or(0, |set| set.members().len());
                    identities.insert(validator);
                    identities.extend((0..places).map(report_slot));
                }
                Some(operation) if !operation.is_own() => {
                    if let Some(acting) = at.rules.context(at.header).dealers() {
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
            identities.insert(*at.leader);
        }
        identities
    }

    fn apply(
        &self,
        transfer: &Transfer,
        at: &At<'_>,
        accounts: &mut BTreeMap<Identity, Account>,
    ) -> Outcome {
        apply(transfer, at.leader, accounts, &at.rules.context(at.header))
    }
}

/// The operation of a transfer to [`REGISTRY`]; `None` if it is no such transfer, or its memo is no operation.
pub fn operation(transfer: &Transfer) -> Option<Operation> {
    let memo = Some(transfer.memo.as_bytes()).filter(|_| transfer.to == REGISTRY)?;
    Operation::from_memo(memo).ok()
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
