//! What a block does to the accounts: a function of the block and the accounts before it.
//!
//! Nothing here reads a clock, a cache or anything whose order is not fixed, so all validators
//! arrive at the same state. No transaction in a final block can make execution fail; one that
//! cannot be applied gets a failed receipt. Signatures were verified by the voters.
//!
//! What a transaction does is the chain's [`Application`]: the [`Ledger`], or [`OrderOnly`]. Everything else is the
//! same for all of them: consensus, storage, sync, explorers.
//!
//! The header commits to the outcomes of transactions only by the accounts' root: an explorer without the genesis
//! accounts shows outcomes as a validator's statement, balances with a proof.

mod ledger;
mod ordering;

pub use ledger::{Ledger, operation};
pub use ordering::OrderOnly;

use crate::{
    Account, Block, BundleRef, Committees, EpochLength, Header, Identity, Outcome, Phase,
    RegistryRules, Transfer,
    genesis::{ApplicationKind, Genesis},
    registry::RegistryContext,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

/// What the transactions of a chain's blocks do. Every validator must arrive at the same: nothing but the arguments may
/// be looked at.
pub trait Application: fmt::Debug + Send + Sync {
    /// The accounts that a block may touch.
    fn touched(&self, block: &Block, at: &At<'_>) -> BTreeSet<Identity>;

    /// Applies a transaction. `accounts` are those that its block may touch.
    fn apply(
        &self,
        transfer: &Transfer,
        at: &At<'_>,
        accounts: &mut BTreeMap<Identity, Account>,
    ) -> Outcome;

    /// The payloads that a transaction orders. A validator votes for its block once it has them on disk.
    fn bundle(&self, _: &Transfer) -> Option<BundleRef> {
        None
    }
}

/// Where in a chain a transaction is applied.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    pub header: &'a Header,
    /// The leader of the header's view.
    pub leader: &'a Identity,
    pub rules: &'a Rules,
}

/// What is the same for all blocks of a chain. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Rules {
    chain_name: Arc<str>,
    epoch_length: EpochLength,
    registry: Option<RegistryRules>,
    /// Who validates in which epoch, on a chain with a registry.
    committees: Option<Committees>,
    application: Arc<dyn Application>,
}

impl Rules {
    /// The rules of a chain.
    pub fn of(genesis: &Genesis) -> Self {
        let rules = Self::new(&genesis.name, genesis.epoch_blocks, genesis.registry);
        match genesis.application {
            ApplicationKind::Ledger => rules,
            ApplicationKind::OrderOnly => rules.with(Arc::new(OrderOnly::of(genesis))),
        }
    }

    /// The rules of a chain of this name, whose application is the ledger.
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
            application: Arc::new(Ledger),
        }
    }

    /// The same rules with another application.
    #[must_use]
    pub fn with(self, application: Arc<dyn Application>) -> Self {
        Self {
            application,
            ..self
        }
    }

    pub fn application(&self) -> &dyn Application {
        &*self.application
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
    let at = At {
        header: block.header(),
        leader,
        rules,
    };
    rules.application.touched(block, &at)
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
    let at = At {
        header: block.header(),
        leader,
        rules,
    };
    let outcomes = block
        .transactions()
        .iter()
        .map(|transaction| {
            let transfer = transaction.transfer();
            rules.application.apply(transfer, &at, &mut after)
        })
        .collect();
    after.retain(|identity, account| before.get(identity) != Some(account));
    before.retain(|identity, _| after.contains_key(identity));
    Execution {
        accounts: after,
        before,
        outcomes,
    }
}
