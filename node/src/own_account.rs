//! Operations that a validator sends by itself, paid from its own account.

use crate::config::NodeConfig;
use anyhow::Context as _;
use commonware_codec::Encode as _;
use quorate_machine::{
    accounts::Accounts,
    clock::Clock,
    mempool::{Mempool, Refusal},
};
use quorate_storage::store::Store;
use quorate_types::{Digest, Height, Memo, Operation, Outcome, REGISTRY, Transfer};
use std::sync::Arc;

/// What operations are sent, and followed, with.
#[derive(Clone)]
pub(crate) struct OwnAccount {
    pub(crate) store: Store,
    pub(crate) accounts: Accounts,
    pub(crate) mempool: Arc<Mempool>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// Why an operation was not sent.
pub(crate) enum NotSent {
    /// The account holds less than this fee.
    CannotPay(u64),
    Refused(Refusal),
}

/// What has become of an operation that was sent.
pub(crate) enum Fate {
    /// It is in the mempool.
    Waits,
    /// It is in neither the mempool nor a final block.
    Dropped,
    /// It is in the block of this height.
    Final(Height, Option<Outcome>),
}

impl OwnAccount {
    /// Puts an operation into the mempool, with the least fee. Returns its transaction's id.
    ///
    /// # Errors
    ///
    /// If the account cannot be read.
    pub(crate) fn send(
        &self,
        config: &NodeConfig,
        operation: &Operation,
    ) -> anyhow::Result<Result<Digest, NotSent>> {
        let own = config.identity.identity();
        let account = self.accounts.read(&own)?;
        let next = self.mempool.next_nonce(&own).unwrap_or(0);
        let mut transfer = Transfer {
            chain_tag: config.chain.tag(),
            sender: own,
            nonce: next.max(account.account.nonce),
            to: REGISTRY,
            amount: 0,
            fee: 0,
            memo: Memo::new(operation.encode()).context("an operation fits in a memo")?,
        };
        transfer.fee = config.genesis.fees.minimum(&transfer);
        if account.account.balance < transfer.fee {
            return Ok(Err(NotSent::CannotPay(transfer.fee)));
        }
        let transaction = transfer.sign(&config.chain, &config.identity);
        let id = transaction.id();
        let submitted = self.mempool.submit(self.clock.now(), transaction, account);
        Ok(submitted.map(|()| id).map_err(NotSent::Refused))
    }

    /// # Errors
    ///
    /// If the database cannot be read.
    pub(crate) fn fate(&self, id: &Digest) -> anyhow::Result<Fate> {
        if self.mempool.contains(id) {
            return Ok(Fate::Waits);
        }
        let Some(place) = self.store.transaction(id)? else {
            return Ok(Fate::Dropped);
        };
        let receipts = self.store.receipts(place.height)?.unwrap_or_default();
        let receipt = receipts.get(place.index as usize);
        Ok(Fate::Final(
            place.height,
            receipt.map(|receipt| receipt.outcome),
        ))
    }
}
