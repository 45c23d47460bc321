//! Finalised blocks and the state they lead to, in RocksDB.
//!
//! | column family | key | value |
//! |---|---|---|
//! | `blocks` | height, 8 bytes big-endian | block, then its own finalization if there is one |
//! | `ids` | block id | height |
//! | `receipts` | height | one byte per transaction: what became of it |
//! | `transactions` | transaction id | height, index in the block (4 bytes) |
//! | `roots` | height | root of the accounts after the block |
//! | `accounts` | state key | account, then the height that changed it last; the newest value, for readers and for state sync |
//! | `nodes` | see [`crate::tree`] | rows of the authenticated tree |
//! | `pool` | transaction id | a client's transaction that no final block holds yet |
//! | `sync` | span | height at which it is right, and its nodes, while state sync is under way |
//! | `meta` | name | chain id, format version, tip, the height below which blocks are pruned, the block that state sync ended with; `undo` and a height: what the block there has replaced, until a final header names its state |
//!
//! A transaction's place is where its nonce was used, if that is known: no later block in which it stands
//! for nothing replaces it.
//!
//! One block is one batch, so what is stored is always the state after some block. The batch is
//! written without a sync if more blocks wait; the last one's sync makes all before it durable. A
//! failed write is returned and never retried: the node stops.
//!
//! Accounts are stored a second time in a plain column family beside the tree, under their state
//! keys, in the same batch. RPC and mempool read one key and need no view of the tree. This costs
//! about 50 bytes per changed account.
//!
//! A process ends only after its database is closed ([`Store::close`]). A thread that still read
//! from it while RocksDB's globals were destroyed aborted one orderly stop in a hundred ("pthread
//! lock: Invalid argument").

mod account_rows;
mod error;
mod open;
mod options;
mod prune;
mod scan;
mod sets;
mod sync;
mod undo;
mod unsaved;

pub use error::StoreError;
pub use prune::{PRUNE_KEYS_PER_CALL, TableSize};
pub use scan::SCAN_ROWS;
pub use sets::{adopt_handovers, next_of_snapshot};
pub use sync::{ChunkError, Coverage, Covered, Save, Served, StateSnapshot};
pub use undo::Undo;

use crate::{
    database::{Batch, Database, DatabaseError},
    tree::{self, Changeset, TableRows, Tree, TreeError},
};
use bytes::Bytes;
use commonware_codec::{Copying, DecodeExt, Encode, Error as CodecError, ReadExt};
use quorate_types::{
    Account, Block, Bond, Certificate, Digest, Height, Identity, Outcome, Receipt, Transaction,
    ValidatorSet, View, state_key,
};
use std::{
    collections::{BTreeMap, VecDeque},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, RwLock},
    thread,
    time::{Duration, Instant},
};

const BLOCKS: &str = "blocks";
const IDS: &str = "ids";
const RECEIPTS: &str = "receipts";
const TRANSACTIONS: &str = "transactions";
const ROOTS: &str = "roots";
const ACCOUNTS: &str = "accounts";
const NODES: &str = "nodes";
const META: &str = "meta";
const POOL: &str = "pool";
const SYNC: &str = "sync";
/// The state keys of accounts that have, or once had, a bond. The values are empty.
const BONDS: &str = "bonds";

const COLUMNS: [&str; 11] = [
    BLOCKS,
    IDS,
    RECEIPTS,
    TRANSACTIONS,
    ROOTS,
    ACCOUNTS,
    NODES,
    META,
    POOL,
    SYNC,
    BONDS,
];

/// How often [`Store::close`] looks.
const CLOSE_POLL: Duration = Duration::from_millis(2);

/// The newest stored block, and the state after it.
#[derive(Clone, Debug)]
pub struct StoredTip {
    /// The view that the block was proposed in; 0 for the genesis state.
    pub view: View,
    /// Its height; 0 for the genesis state.
    pub height: Height,
    /// Its id; zero for the genesis state.
    pub id: Digest,
    /// The root of the accounts after it.
    pub state_root: Digest,
    /// The block; `None` for the genesis state.
    pub block: Option<Arc<Block>>,
    /// Its own finalization, if there is one.
    pub certificate: Option<Certificate>,
}

/// A stored block.
#[derive(Clone, Debug)]
pub struct StoredBlock {
    /// The block.
    pub block: Arc<Block>,
    /// Its own finalization, if there is one; otherwise a descendant's stands for it.
    pub certificate: Option<Certificate>,
}

/// The place of a transaction in the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionPlace {
    /// The block's height.
    pub height: Height,
    /// The place in the block, from 0.
    pub index: u32,
}

/// Everything that one block changes.
pub struct Commit<'a> {
    /// The block, one above the tip.
    pub block: Arc<Block>,
    /// Its own finalization, if there is one.
    pub certificate: Option<Certificate>,
    /// The outcomes of its transactions, in order.
    pub outcomes: Vec<Outcome>,
    /// The new values of the accounts that it changed.
    pub accounts: &'a BTreeMap<Identity, Account>,
    /// What these accounts were before.
    pub undo: Undo,
    /// The validators of the next epoch, if this block's state fixes them and they are others.
    pub set: Option<&'a ValidatorSet>,
    /// The tree's new rows, prepared from the same accounts.
    pub changes: &'a Changeset,
    /// Whether to return only when this and everything before is on disk.
    pub sync: bool,
}

/// The database. Cheap to clone; any thread may read, one thread commits, and one keeps clients'
/// transactions.
#[derive(Clone)]
pub struct Store {
    database: Arc<dyn Database>,
    path: Arc<PathBuf>,
    tip: Arc<RwLock<StoredTip>>,
    /// The heights whose blocks' replaced values are kept, ascending.
    kept_undo: Arc<Mutex<VecDeque<Height>>>,
}

impl Store {
    /// Waits until no other handle to the database and no snapshot of it is left, and closes it.
    /// Returns whether that came in time.
    ///
    /// A process that ends while another thread reads or closes the database is aborted: RocksDB's
    /// global state is gone before its last user is.
    #[must_use]
    pub fn close(self, limit: Duration) -> bool {
        self.settle(limit)
    }

    /// Whether both are handles to one open database.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.database, &other.database)
    }

    /// Waits until this is the only handle to the database, and no snapshot of it is left. Returns whether that
    /// came in time.
    #[must_use]
    pub fn settle(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while Arc::strong_count(&self.database) > 1 || self.database.is_pinned() {
            if Instant::now() > deadline {
                return false;
            }
            thread::sleep(CLOSE_POLL);
        }
        true
    }

    /// The newest stored block.
    pub fn tip(&self) -> StoredTip {
        self.tip.read().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// The block at a height, if it is stored.
    ///
    /// # Errors
    ///
    /// If the database cannot be read or is damaged.
    pub fn block(&self, height: Height) -> Result<Option<StoredBlock>, StoreError> {
        let Some(bytes) = self.get(BLOCKS, &height_key(height))? else {
            return Ok(None);
        };
        let mut buffer = Bytes::from(bytes);
        let block = Block::read(&mut buffer).map_err(|e| self.damaged("a block", &e))?;
        let certificate = if buffer.is_empty() {
            None
        } else {
            let certificate = Certificate::read(&mut buffer);
            Some(certificate.map_err(|e| self.damaged("a certificate", &e))?)
        };
        if block.height() != height || !buffer.is_empty() {
            return Err(self.damaged_by(format!("the row of block {height} holds {block:?}")));
        }
        Ok(Some(StoredBlock {
            block: Arc::new(block),
            certificate,
        }))
    }

    /// The height of the block with this id, if it is stored.
    ///
    /// # Errors
    ///
    /// If the database cannot be read or is damaged.
    pub fn height_of(&self, id: &Digest) -> Result<Option<Height>, StoreError> {
        let bytes = self.get(IDS, &id.0)?;
        bytes
            .map(|bytes| Height::decode(Copying(&bytes)).map_err(|e| self.damaged("a height", &e)))
            .transpose()
    }

    /// The outcomes of a stored block's transactions; `None` for a block that is not stored, and for
    /// the one that state sync ended with.
    ///
    /// # Errors
    ///
    /// If the database cannot be read or is damaged.
    pub fn receipts(&self, height: Height) -> Result<Option<Vec<Receipt>>, StoreError> {
        let Some(StoredBlock { block, .. }) = self.block(height)? else {
            return Ok(None);
        };
        let Some(bytes) = self.get(RECEIPTS, &height_key(height))? else {
            return match self.base()? == Some(height) {
                true => Ok(None),
                false if block.transactions().is_empty() => Ok(Some(Vec::new())),
                false => Err(self.damaged_by(format!("block {height} has no receipts"))),
            };
        };
        if bytes.len() != block.transactions().len() {
            return Err(self.damaged_by(format!("the receipts of block {height} are incomplete")));
        }
        let receipts = block.transactions().iter().zip(&bytes);
        receipts
            .map(|(transaction, code)| {
                let outcome = Outcome::decode(Copying(&[*code]));
                Ok(Receipt {
                    transaction: transaction.id(),
                    outcome: outcome.map_err(|e| self.damaged("a receipt", &e))?,
                })
            })
            .collect::<Result<_, _>>()
            .map(Some)
    }

    /// What became of the transaction at a place; `None` if its block is not stored. Only the block's
    /// outcomes are read, one byte each.
    ///
    /// # Errors
    ///
    /// If the database cannot be read or is damaged.
    pub fn outcome(&self, place: TransactionPlace) -> Result<Option<Outcome>, StoreError> {
        let TransactionPlace { height, index } = place;
        let Some(codes) = self.get(RECEIPTS, &height_key(height))? else {
            return Ok(None);
        };
        let Some(code) = codes.get(index as usize) else {
            return Err(self.damaged_by(format!("block {height} has no outcome {index}")));
        };
        let outcome = Outcome::decode(Copying(std::slice::from_ref(code)));
        outcome.map(Some).map_err(|e| self.damaged("a receipt", &e))
    }

    /// Where a transaction stands, if a stored block holds it. If several do, the one in which it used its
    /// nonce; blocks in which it did not are no place as long as there is that one.
    ///
    /// # Errors
    ///
    /// If the database cannot be read or is damaged.
    pub fn transaction(&self, id: &Digest) -> Result<Option<TransactionPlace>, StoreError> {
        let bytes = self.get(TRANSACTIONS, &id.0)?;
        bytes
            .map(|bytes| {
                let (height, index) = <(Height, u32)>::decode(Copying(&bytes))
                    .map_err(|e| self.damaged("a transaction's place", &e))?;
                Ok(TransactionPlace { height, index })
            })
            .transpose()
    }

    /// The newest value of an account, or `None` if it was never paid.
    ///
    /// # Errors
    ///
    /// If the database cannot be read or is damaged.
    pub fn account(&self, identity: &Identity) -> Result<Option<Account>, StoreError> {
        let bytes = self.get(ACCOUNTS, &state_key(identity).0)?;
        let row = bytes.map(|bytes| self.account_row(&bytes)).transpose()?;
        Ok(row.map(|(account, _)| account))
    }

    /// All bonds, in the order of their identities.
    ///
    /// # Errors
    ///
    /// If the database cannot be read or is damaged.
    pub fn bonds(&self) -> Result<BTreeMap<Identity, Bond>, StoreError> {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let mut keep = |key: &[u8], _: &[u8]| {
            keys.push(key.to_vec());
            true
        };
        let read = self.database.visit(BONDS, &[], None, &mut keep);
        read.map_err(|source| failed(&self.path, source))?;
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let rows = self.database.get_sorted(ACCOUNTS, &keys);
        let mut bonds = BTreeMap::new();
        for row in rows
            .map_err(|source| failed(&self.path, source))?
            .into_iter()
            .flatten()
        {
            if let Some(bond) = self.account_row(&row)?.0.bond {
                bonds.insert(bond.identity, *bond);
            }
        }
        Ok(bonds)
    }

    /// The root of the accounts after the block at a height.
    ///
    /// # Errors
    ///
    /// If the database cannot be read or is damaged.
    pub fn root(&self, height: Height) -> Result<Option<Digest>, StoreError> {
        let bytes = self.get(ROOTS, &height_key(height))?;
        bytes
            .map(|bytes| Digest::decode(Copying(&bytes)).map_err(|e| self.damaged("a root", &e)))
            .transpose()
    }

    /// The first block from this height on that has a finalization of its own, which also makes
    /// the blocks before it final. Looks at `limit` blocks.
    ///
    /// # Errors
    ///
    /// If the database cannot be read or is damaged.
    pub fn finalization_at_or_after(
        &self,
        height: Height,
        limit: u64,
    ) -> Result<Option<(Height, Certificate)>, StoreError> {
        let mut next = height;
        for _ in 0..limit {
            let Some(stored) = self.block(next)? else {
                return Ok(None);
            };
            if let Some(certificate) = stored.certificate {
                return Ok(Some((next, certificate)));
            }
            next = next.next();
        }
        Ok(None)
    }

    /// Stores one block and what it changes, as one batch.
    ///
    /// # Errors
    ///
    /// If the write fails. What is on disk is then the state before or after the block; the node
    /// must stop, and reads which it is when it starts again.
    ///
    /// # Panics
    ///
    /// If the block does not follow the tip, the outcomes are not one per transaction, or the
    /// changes were not prepared on the state after the tip.
    pub fn commit(&self, tree: &Tree<TableRows>, commit: Commit<'_>) -> Result<(), StoreError> {
        let Commit {
            block,
            certificate,
            outcomes,
            accounts,
            undo,
            set,
            changes,
            sync,
        } = commit;
        let height = block.height();
        let tip = self.tip();
        assert_eq!(height, tip.height.next(), "blocks come in order");
        assert_eq!(block.header().parent, tip.id, "blocks make a chain");
        assert_eq!(outcomes.len(), block.transactions().len());
        assert_eq!(changes.before(), tip.state_root, "states make a chain");
        let mut batch = Batch::default();
        let mut row = block.encode().to_vec();
        if let Some(certificate) = &certificate {
            row.extend_from_slice(&certificate.encode());
        }
        let key = height_key(height);
        batch.put(BLOCKS, key, row);
        batch.put(IDS, block.id(), key);
        batch.put(ROOTS, key, changes.root());
        let codes: Vec<u8> = outcomes.iter().flat_map(|o| o.encode().to_vec()).collect();
        if !codes.is_empty() {
            batch.put(RECEIPTS, key, codes);
        }
        let outcomes = (0_u32..).zip(&outcomes);
        for ((index, outcome), transaction) in outcomes.zip(block.transactions()) {
            let id = transaction.id();
            // Where it was charged, and perhaps applied, is what its sender wants to know.
            if outcome.used_nonce() || self.transaction(&id)?.is_none() {
                batch.put(TRANSACTIONS, id, (height, index).encode());
            }
        }
        stage_accounts(accounts, height, &mut batch);
        self.stage_undo(&undo, block.header(), certificate.is_some(), &mut batch);
        if let Some(set) = set {
            sets::stage_set(set, &mut batch);
        }
        tree.store().stage(changes, &mut batch);
        batch.put(META, b"tip", key);
        self.write(&batch, sync)?;
        *self.tip.write().unwrap_or_else(|e| e.into_inner()) = StoredTip {
            view: block.header().view,
            height,
            id: block.id(),
            state_root: changes.root(),
            block: Some(block),
            certificate,
        };
        Ok(())
    }

    /// Stores transactions and deletes others, as one batch. With `sync`, they are durable when
    /// this returns.
    ///
    /// # Errors
    ///
    /// If the database fails: halt.
    pub fn keep<'a>(
        &self,
        kept: impl Iterator<Item = &'a Transaction>,
        forgotten: &[Digest],
        sync: bool,
    ) -> Result<(), StoreError> {
        let mut batch = Batch::default();
        for id in forgotten {
            batch.delete(POOL, id.0);
        }
        for transaction in kept {
            batch.put(POOL, transaction.id().0, transaction.encode());
        }
        if batch.is_empty() && !sync {
            return Ok(());
        }
        self.write(&batch, sync)
    }

    /// At most this many stored transactions after `after`, in the order of their ids.
    ///
    /// # Errors
    ///
    /// If the database cannot be read or is damaged.
    pub fn kept_after(
        &self,
        after: Option<Digest>,
        limit: usize,
    ) -> Result<Vec<Transaction>, StoreError> {
        let start: &[u8] = after.as_ref().map_or(&[], |id| &id.0);
        let rows = self.database.rows_from(POOL, start, limit + 1);
        rows.map_err(|source| failed(&self.path, source))?
            .into_iter()
            .filter(|(key, _)| after.is_none_or(|after| key[..] != after.0))
            .take(limit)
            .map(|(key, value)| {
                let transaction = Transaction::decode(Copying(&value))
                    .map_err(|e| self.damaged("a kept transaction", &e))?;
                if key != transaction.id().0 {
                    let id = transaction.id();
                    return Err(self.damaged_by(format!("a kept row holds transaction {id}")));
                }
                Ok(transaction)
            })
            .collect()
    }

    /// An account and the height that changed it last.
    fn account_row(&self, row: &[u8]) -> Result<(Account, Height), StoreError> {
        <(Account, Height)>::decode(Copying(row)).map_err(|e| self.damaged("an account", &e))
    }

    fn write(&self, batch: &Batch, sync: bool) -> Result<(), StoreError> {
        self.database
            .write(batch, sync)
            .map_err(|source| failed(&self.path, source))
    }

    fn get(&self, column: &'static str, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.database
            .get(column, key)
            .map_err(|source| failed(&self.path, source))
    }

    /// What a failure to read the tree means for the database that it lies in.
    pub fn tree_error(&self, error: TreeError) -> StoreError {
        match error {
            TreeError::Store(source) => failed(&self.path, source),
            TreeError::Corrupt { .. } => self.damaged_by(format!("state tree: {error}")),
            other => StoreError::Tree(other),
        }
    }

    fn damaged(&self, what: &str, error: &CodecError) -> StoreError {
        self.damaged_by(format!("{what}: {error}"))
    }

    fn damaged_by(&self, what: String) -> StoreError {
        StoreError::Damaged {
            path: self.path.to_path_buf(),
            what,
        }
    }
}

/// The accounts as rows of the tree.
pub fn tree_updates(accounts: &BTreeMap<Identity, Account>) -> BTreeMap<tree::Key, Vec<u8>> {
    accounts
        .iter()
        .map(|(identity, account)| (state_key(identity).0, account.encode().to_vec()))
        .collect()
}

fn height_key(height: Height) -> [u8; 8] {
    height.0.to_be_bytes()
}

fn stage_accounts(accounts: &BTreeMap<Identity, Account>, height: Height, batch: &mut Batch) {
    for (identity, account) in accounts {
        let key = state_key(identity).0;
        batch.put(ACCOUNTS, key, (account.clone(), height).encode());
        if account.bond.is_some() {
            batch.put(BONDS, key, []);
        }
    }
}

fn failed(path: &Path, source: DatabaseError) -> StoreError {
    let path = path.to_path_buf();
    if source.damaged {
        let what = source.message;
        return StoreError::Damaged { path, what };
    }
    StoreError::Database { path, source }
}
