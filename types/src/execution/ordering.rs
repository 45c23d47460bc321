//! A chain that only orders: its transactions name bundles of payloads ([`crate::Bundle`]), and change nothing but
//! their authors' nonces.

use super::{Application, At};
use crate::{Account, Block, BundleRef, Failure, Identity, Outcome, Transfer, genesis::Genesis};
use std::collections::{BTreeMap, BTreeSet};

/// Only the validators of the genesis file order payloads, each its own bundles in the order of their numbers. There are
/// no balances, no fees and no registry.
#[derive(Debug)]
pub struct OrderOnly {
    authors: BTreeSet<Identity>,
}

impl OrderOnly {
    pub fn of(genesis: &Genesis) -> Self {
        let authors = genesis.validators.iter().map(|v| v.identity);
        Self {
            authors: authors.collect(),
        }
    }
}

impl Application for OrderOnly {
    fn touched(&self, block: &Block, _: &At<'_>) -> BTreeSet<Identity> {
        let transfers = block.transactions().iter().map(|t| t.transfer());
        transfers.map(|transfer| transfer.sender).collect()
    }

    fn apply(
        &self,
        transfer: &Transfer,
        _: &At<'_>,
        accounts: &mut BTreeMap<Identity, Account>,
    ) -> Outcome {
        if !self.authors.contains(&transfer.sender) || BundleRef::of(transfer).is_none() {
            return Outcome::Failed(Failure::NoPayloads);
        }
        let author = accounts.entry(transfer.sender).or_default();
        match author.nonce.checked_add(1) {
            Some(next) if author.nonce == transfer.nonce => {
                author.nonce = next;
                Outcome::Applied
            }
            _ => Outcome::Failed(Failure::WrongNonce),
        }
    }

    fn bundle(&self, transfer: &Transfer) -> Option<BundleRef> {
        BundleRef::of(transfer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Bundle, ChainId, Digest, Epoch, EpochLength, Header, Height, Memo, View,
        execution::{Rules, execute, touched},
    };
    use quorate_crypto::{SecretKey, sha256};
    use std::sync::Arc;

    fn key(seed: u8) -> SecretKey {
        SecretKey::from_bytes(&[seed; 32])
    }

    fn chain() -> ChainId {
        ChainId(sha256(&[b"chain"]))
    }

    /// The outcomes of a block, and the accounts that it changed.
    fn outcomes(
        transactions: Vec<crate::Transaction>,
        before: BTreeMap<Identity, Account>,
    ) -> (Vec<Outcome>, BTreeMap<Identity, Account>) {
        let header = Header {
            chain: chain(),
            epoch: Epoch(0),
            view: View(1),
            height: Height(1),
            parent: Digest::ZERO,
            parent_view: View(0),
            timestamp_ms: 1,
            executed_height: Height(0),
            state_root: Digest::ZERO,
            body_root: Digest::ZERO,
        };
        let block = Block::build(header, transactions).expect("small");
        let authors = [key(1), key(2)].map(|key| key.identity());
        let application = OrderOnly {
            authors: authors.into(),
        };
        let rules = Rules::new("chain", EpochLength::DEFAULT, None).with(Arc::new(application));
        let leader = key(1).identity();
        let touched = touched(&block, &leader, &rules);
        let before = touched
            .into_iter()
            .map(|one| (one, before.get(&one).cloned().unwrap_or_default()))
            .collect();
        let execution = execute(&block, &leader, before, &rules);
        (execution.outcomes, execution.accounts)
    }

    #[test]
    fn each_authors_bundles_are_ordered_by_number_and_nothing_else_is() {
        let reference = Bundle::of(["payload"]).expect("small").reference();
        let order = |seed, number| reference.order(&chain(), &key(seed), number);
        let transfer = Transfer {
            memo: Memo::NONE,
            ..order(1, 3).transfer().clone()
        };
        let before = BTreeMap::from([(key(2).identity(), Account::plain(7, 0))]);
        let transactions = vec![
            order(1, 0),
            order(2, 7),
            order(1, 2),
            order(1, 1),
            order(3, 0),
            transfer.sign(&chain(), &key(1)),
        ];
        let (outcomes, accounts) = outcomes(transactions, before);
        let failed = Outcome::Failed;
        assert_eq!(
            outcomes,
            [
                Outcome::Applied,
                Outcome::Applied,
                failed(Failure::WrongNonce),
                Outcome::Applied,
                failed(Failure::NoPayloads),
                failed(Failure::NoPayloads),
            ]
        );
        assert!(outcomes[4..].iter().all(|outcome| !outcome.used_nonce()));
        let expected = [(1, 2), (2, 8)];
        let expected =
            expected.map(|(seed, nonce)| (key(seed).identity(), Account::plain(nonce, 0)));
        assert_eq!(accounts, BTreeMap::from(expected));
    }
}
