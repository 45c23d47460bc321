//! The chain that is transferred: accounts that blocks without transactions have made.

use super::progress::Progress;
use anyhow::Context;
use quorate_crypto::{SecretKey, bls::Proof, sha256};
use quorate_storage::store::{Commit, StateSnapshot, Store, Undo, tree_updates};
use quorate_types::{
    Account, Block, BondAddress, Certificate, Digest, Epoch, EpochLength, Header, Height, Identity,
    SnapshotProof, Subject, View, VoteKind,
    genesis::{
        ApplicationKind, BlockLimits, Fees, Genesis, GenesisAccount, GenesisValidator, Protocol,
    },
    state_key,
};
use std::{collections::BTreeMap, path::Path, sync::Arc};

/// Accounts that one block makes.
const ACCOUNTS_PER_BLOCK: usize = 200_000;

/// Bytes of an account in a part of a snapshot: its key, nonce and balance.
pub(super) const ACCOUNT_BYTES: u64 = 48;

/// What stands for a quorum's signature; its check costs one pairing, whatever the state's size.
const SIGNED: Proof = Proof::Threshold([7; 48]);

/// The most nodes of a network.
const MAX_NODES: usize = 8;

/// The key of a node. Of two nodes the one with the lower identity dials, so the identity is the lower
/// the higher the place is: receivers, which come last, dial the sources.
pub(super) fn key(place: usize) -> SecretKey {
    let keys = (0..MAX_NODES)
        .map(|number| SecretKey::from_bytes(&sha256(&[b"transfer", &number.to_be_bytes()]).0));
    let mut keys: Vec<SecretKey> = keys.collect();
    keys.sort_by_key(|key| std::cmp::Reverse(key.identity()));
    keys.swap_remove(place)
}

/// The chain of this many nodes. Its only account is of no use.
pub(super) fn genesis(nodes: usize) -> Genesis {
    let validators = (0..nodes).map(|place| GenesisValidator {
        identity: key(place).identity(),
        vote_key: String::new(),
        proof_of_possession: None,
        stake: 0,
        address: BondAddress::default(),
    });
    Genesis {
        name: "transfer".to_owned(),
        timestamp_ms: 1,
        protocol: Protocol::Simplex,
        application: ApplicationKind::Ledger,
        scheme: "bls-threshold".to_owned(),
        limits: BlockLimits {
            max_transactions: 1_000,
            max_bytes: 1_000_000,
        },
        fees: Fees::NONE,
        epoch_blocks: EpochLength::DEFAULT,
        group_key: None,
        registry: None,
        validators: validators.collect(),
        accounts: vec![GenesisAccount {
            identity: Identity(sha256(&[b"first"]).0),
            balance: 1,
        }],
    }
}

/// The accounts' numbers, about in the order of their keys: each block then changes a few subtrees, and not all of them.
fn in_order(accounts: u64) -> Vec<u64> {
    let place = |number: &u64| {
        let key = state_key(&identity(*number)).0;
        key.first_chunk().map(|first| u64::from_be_bytes(*first))
    };
    let mut numbers: Vec<u64> = (0..accounts).collect();
    numbers.sort_by_cached_key(place);
    numbers
}

/// Makes a database with this many accounts.
pub(super) fn make(
    folder: &Path,
    genesis: &Genesis,
    accounts: u64,
    progress: &Progress,
) -> anyhow::Result<()> {
    let (store, mut tree) = Store::open(folder, genesis)?;
    let mut made = 0;
    for numbers in in_order(accounts).chunks(ACCOUNTS_PER_BLOCK) {
        let new: BTreeMap<Identity, Account> = numbers
            .iter()
            .map(|number| (identity(*number), account(*number, 0)))
            .collect();
        let changes = tree.prepare(&tree_updates(&new))?;
        let block = Arc::new(next_block(&store, genesis, tree.root())?);
        store.commit(
            &tree,
            Commit {
                set: None,
                block,
                certificate: None,
                outcomes: Vec::new(),
                accounts: &new,
                undo: Undo::default(),
                changes: &changes,
                sync: false,
            },
        )?;
        tree.commit(changes);
        made += numbers.len();
        progress.prepare("making the state", made as f64 / accounts as f64);
    }
    store.compact();
    Ok(())
}

/// Changes one of so many accounts, in one more block.
pub(super) fn change(
    folder: &Path,
    genesis: &Genesis,
    accounts: u64,
    one_of: u64,
) -> anyhow::Result<()> {
    let (store, mut tree) = Store::open(folder, genesis)?;
    let numbers = (0..accounts).step_by(usize::try_from(one_of)?);
    let changed: BTreeMap<Identity, Account> = numbers
        .map(|number| (identity(number), account(number, 1)))
        .collect();
    let changes = tree.prepare(&tree_updates(&changed))?;
    let block = Arc::new(next_block(&store, genesis, tree.root())?);
    store.commit(
        &tree,
        Commit {
            set: None,
            block,
            certificate: None,
            outcomes: Vec::new(),
            accounts: &changed,
            undo: Undo::default(),
            changes: &changes,
            sync: true,
        },
    )?;
    tree.commit(changes);
    Ok(())
}

/// The identity of an account.
pub(super) fn identity(number: u64) -> Identity {
    Identity(sha256(&[&number.to_be_bytes()]).0)
}

/// An account after so many payments.
pub(super) fn account(number: u64, payments: u64) -> Account {
    Account::plain(number % 100 + payments, 1_000_000 + number - payments)
}

pub(super) fn next_block(store: &Store, genesis: &Genesis, root: Digest) -> anyhow::Result<Block> {
    let tip = store.tip();
    let header = Header {
        chain: genesis.chain_id(),
        epoch: Epoch(0),
        view: tip.view.next(),
        height: tip.height.next(),
        parent: tip.id,
        parent_view: tip.view,
        timestamp_ms: 2,
        executed_height: tip.height,
        state_root: root,
        body_root: Header::body_root_of(&[]),
    };
    Block::new(header, Vec::new()).context("a block without transactions")
}

/// The newest state, and what certifies it.
pub(super) fn snapshot(
    store: &Store,
    genesis: &Genesis,
) -> anyhow::Result<(StateSnapshot, SnapshotProof)> {
    let tip = store.tip();
    let block = tip.block.clone().context("a chain without blocks")?;
    let above = next_block(store, genesis, tip.state_root)?;
    let finalization = Certificate {
        subject: Subject {
            epoch: Epoch(0),
            view: above.header().view,
            kind: VoteKind::Finalize,
            payload: above.id(),
        },
        proof: SIGNED,
    };
    let proof = SnapshotProof {
        headers: vec![*block.header(), *above.header()],
        finalization,
        registry: None,
    };
    Ok((store.pin(), proof))
}

/// Whether a finalization is one of [`snapshot`]'s.
pub(super) fn is_signed(certificate: &Certificate) -> bool {
    certificate.proof == SIGNED && certificate.subject.view > View(0)
}

/// The height of the state with this many accounts.
pub(super) fn height(accounts: u64) -> Height {
    Height(accounts.div_ceil(ACCOUNTS_PER_BLOCK as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_nodes_dial_earlier_ones() {
        for place in 1..MAX_NODES {
            assert!(key(place).identity() < key(place - 1).identity());
        }
    }
}
