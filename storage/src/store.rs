//! Finalised blocks and the state they lead to, in RocksDB.
//!
//! | column family | key | value |
//! |---|---|---|
//! | `blocks` | height, 8 bytes big-endian | block, then its own finalization if there is one |
//! | `ids` | block id | height |
//! | `receipts` | height | one byte per transaction: what became of it |
//! | `transactions` | transaction id | height, index in the block (4 bytes) |
//! | `roots` | height | root of the accounts after the block |
//! | `accounts` | identity | account; the newest value, for readers |
//! | `nodes` | see [`crate::tree`] | rows of the authenticated tree |
//! | `meta` | name | chain id, format version, tip |
//!
//! One block is one batch, so what is stored is always the state after some block. The batch is
//! written without a sync if more blocks wait; the last one's sync makes all before it durable. A
//! failed write is returned and never retried: the node stops.

use crate::tree::{self, Changeset, RocksStore, Tree, TreeError, column_options};
use bytes::Bytes;
use commonware_codec::{Copying, DecodeExt, Encode, Error as CodecError, ReadExt};
use quorate_types::{
    Account, Block, Certificate, ChainId, Digest, Height, Identity, Outcome, Receipt, View,
    genesis::Genesis, state_key,
};
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, Options, WriteBatch,
    WriteOptions,
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, RwLock},
};

/// Version of the layout above.
const FORMAT_VERSION: u32 = 1;

const BLOCKS: &str = "blocks";
const IDS: &str = "ids";
const RECEIPTS: &str = "receipts";
const TRANSACTIONS: &str = "transactions";
const ROOTS: &str = "roots";
const ACCOUNTS: &str = "accounts";
const NODES: &str = "nodes";
const META: &str = "meta";

const COLUMNS: [&str; 8] = [
    BLOCKS,
    IDS,
    RECEIPTS,
    TRANSACTIONS,
    ROOTS,
    ACCOUNTS,
    NODES,
    META,
];

/// Bytes of the block cache that all column families share.
const CACHE_BYTES: usize = 24 << 20;

/// Bytes of a memtable; a column family has at most two.
const WRITE_BUFFER_BYTES: usize = 4 << 20;

/// Bytes of write-ahead log after which the oldest memtables are flushed.
const MAX_WAL_BYTES: u64 = 64 << 20;

/// Genesis accounts that are put into the tree at a time.
const GENESIS_BATCH: usize = 10_000;

/// Why the database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// RocksDB failed: halt.
    #[error("database {path}: {source}")]
    Rocks {
        /// The database's folder.
        path: PathBuf,
        /// What RocksDB says.
        source: rocksdb::Error,
    },
    /// The database belongs to another chain.
    #[error(
        "database {path} belongs to chain {found}, not to {expected}: use another data directory \
         or the chain's own genesis file"
    )]
    OtherChain {
        /// The database's folder.
        path: PathBuf,
        /// The chain that it belongs to.
        found: ChainId,
        /// The genesis file's.
        expected: ChainId,
    },
    /// Another version of this program wrote the database.
    #[error(
        "database {path} has format {found}, this program has {FORMAT_VERSION}: use the program that wrote it, or start from an empty data directory"
    )]
    OtherFormat {
        /// The database's folder.
        path: PathBuf,
        /// The format's version.
        found: u32,
    },
    /// A row is not what it must be: halt.
    #[error("database {path} is damaged: {what}")]
    Damaged {
        /// The database's folder.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The authenticated tree failed: halt.
    #[error("state tree: {0}")]
    Tree(#[from] TreeError),
    /// The tree's rows could not be written: halt.
    #[error("state tree: {0}")]
    Rows(#[from] tree::StoreError),
}

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

/// Where a transaction stands.
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
    /// What became of each of its transactions, in order.
    pub outcomes: Vec<Outcome>,
    /// The new values of the accounts that it changed.
    pub accounts: &'a BTreeMap<Identity, Account>,
    /// The tree's new rows, prepared from the same accounts.
    pub changes: &'a Changeset,
    /// Whether to return only when this and everything before is on disk.
    pub sync: bool,
}

/// The database. Cheap to clone; any thread may read, one thread commits.
#[derive(Clone)]
pub struct Store {
    database: Arc<DB>,
    path: Arc<PathBuf>,
    tip: Arc<RwLock<StoredTip>>,
}

impl Store {
    /// Opens the chain's database, or creates it with the genesis accounts.
    ///
    /// # Errors
    ///
    /// If the folder cannot be used, holds another chain or format, or is damaged.
    pub fn open(path: &Path, genesis: &Genesis) -> Result<(Self, Tree<RocksStore>), StoreError> {
        let cache = Cache::new_lru_cache(CACHE_BYTES);
        let columns = COLUMNS.map(|name| {
            let options = if name == NODES {
                column_options(&cache)
            } else {
                plain_options(&cache)
            };
            ColumnFamilyDescriptor::new(name, options)
        });
        let database = DB::open_cf_descriptors(&database_options(), path, columns)
            .map_err(|source| rocks(path, source))?;
        let store = Self {
            database: Arc::new(database),
            path: Arc::new(path.to_path_buf()),
            tip: Arc::new(RwLock::new(StoredTip {
                view: View(0),
                height: Height(0),
                id: Digest::ZERO,
                state_root: Digest::ZERO,
                block: None,
                certificate: None,
            })),
        };
        let expected = genesis.chain_id();
        if store.get(META, b"format")?.is_none() {
            store.create(genesis)?;
        }
        store.check_identity(expected)?;
        let tree = Tree::open(RocksStore::new(store.database.clone(), NODES)?)?;
        store.load_tip(tree.root())?;
        Ok((store, tree))
    }

    /// Writes the genesis accounts. The format row comes last and is synced: a crash before it
    /// leaves a database that is created again, over the same rows.
    fn create(&self, genesis: &Genesis) -> Result<(), StoreError> {
        let mut tree = Tree::open(RocksStore::new(self.database.clone(), NODES)?)?;
        for accounts in genesis.accounts.chunks(GENESIS_BATCH) {
            let values: BTreeMap<Identity, Account> = accounts
                .iter()
                .map(|account| {
                    let value = Account {
                        nonce: 0,
                        balance: account.balance,
                    };
                    (account.identity, value)
                })
                .collect();
            let changes = tree.prepare(&tree_updates(&values))?;
            let mut batch = WriteBatch::default();
            tree.store().stage(&changes, &mut batch)?;
            self.stage_accounts(&values, &mut batch);
            self.write(batch, false)?;
            tree.commit(changes);
        }
        let mut batch = WriteBatch::default();
        batch.put_cf(self.column(ROOTS), height_key(Height(0)), tree.root());
        batch.put_cf(self.column(META), b"chain", genesis.chain_id().encode());
        batch.put_cf(self.column(META), b"tip", Height(0).encode());
        batch.put_cf(self.column(META), b"format", FORMAT_VERSION.to_be_bytes());
        self.write(batch, true)
    }

    fn check_identity(&self, expected: ChainId) -> Result<(), StoreError> {
        let format = self.get(META, b"format")?.unwrap_or_default();
        let found = u32::decode(Copying(&format)).map_err(|e| self.damaged("format", &e))?;
        if found != FORMAT_VERSION {
            return Err(StoreError::OtherFormat {
                path: self.path.to_path_buf(),
                found,
            });
        }
        let chain = self.get(META, b"chain")?.unwrap_or_default();
        let found = ChainId::decode(Copying(&chain)).map_err(|e| self.damaged("chain id", &e))?;
        if found != expected {
            return Err(StoreError::OtherChain {
                path: self.path.to_path_buf(),
                found,
                expected,
            });
        }
        Ok(())
    }

    fn load_tip(&self, root: Digest) -> Result<(), StoreError> {
        let bytes = self.get(META, b"tip")?.unwrap_or_default();
        let height = Height::decode(Copying(&bytes)).map_err(|e| self.damaged("tip", &e))?;
        if self.root(height)? != Some(root) {
            return Err(self.damaged_by(format!("the state tree is not that of height {height}")));
        }
        if height > Height(0) {
            let StoredBlock { block, certificate } = self
                .block(height)?
                .ok_or_else(|| self.damaged_by(format!("block {height} is missing")))?;
            *self.tip.write().unwrap_or_else(|e| e.into_inner()) = StoredTip {
                view: block.header().view,
                height,
                id: block.id(),
                state_root: root,
                block: Some(block),
                certificate,
            };
        } else {
            let mut tip = self.tip.write().unwrap_or_else(|e| e.into_inner());
            tip.state_root = root;
        }
        Ok(())
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

    /// What became of a stored block's transactions.
    ///
    /// # Errors
    ///
    /// If the database cannot be read or is damaged.
    pub fn receipts(&self, height: Height) -> Result<Option<Vec<Receipt>>, StoreError> {
        let Some(StoredBlock { block, .. }) = self.block(height)? else {
            return Ok(None);
        };
        let bytes = self.get(RECEIPTS, &height_key(height))?.unwrap_or_default();
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

    /// Where a transaction stands, if a stored block holds it. If several do, the newest: of these,
    /// at most one was applied.
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
        let bytes = self.get(ACCOUNTS, &identity.0)?;
        bytes
            .map(|bytes| {
                Account::decode(Copying(&bytes)).map_err(|e| self.damaged("an account", &e))
            })
            .transpose()
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
    /// If the block is not one above the tip, or the outcomes are not one per transaction.
    pub fn commit(&self, tree: &Tree<RocksStore>, commit: Commit<'_>) -> Result<(), StoreError> {
        let Commit {
            block,
            certificate,
            outcomes,
            accounts,
            changes,
            sync,
        } = commit;
        let height = block.height();
        assert_eq!(height, self.tip().height.next(), "blocks come in order");
        assert_eq!(outcomes.len(), block.transactions().len());
        let mut batch = WriteBatch::default();
        let mut row = block.encode().to_vec();
        if let Some(certificate) = &certificate {
            row.extend_from_slice(&certificate.encode());
        }
        let key = height_key(height);
        batch.put_cf(self.column(BLOCKS), key, row);
        batch.put_cf(self.column(IDS), block.id(), key);
        batch.put_cf(self.column(ROOTS), key, changes.root());
        let codes: Vec<u8> = outcomes.iter().flat_map(|o| o.encode().to_vec()).collect();
        if !codes.is_empty() {
            batch.put_cf(self.column(RECEIPTS), key, codes);
        }
        for (index, transaction) in (0_u32..).zip(block.transactions()) {
            let place = (height, index).encode();
            batch.put_cf(self.column(TRANSACTIONS), transaction.id(), place);
        }
        self.stage_accounts(accounts, &mut batch);
        tree.store().stage(changes, &mut batch)?;
        batch.put_cf(self.column(META), b"tip", key);
        self.write(batch, sync)?;
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

    fn stage_accounts(&self, accounts: &BTreeMap<Identity, Account>, batch: &mut WriteBatch) {
        let column = self.column(ACCOUNTS);
        for (identity, account) in accounts {
            batch.put_cf(column, identity.0, account.encode());
        }
    }

    fn write(&self, batch: WriteBatch, sync: bool) -> Result<(), StoreError> {
        let mut options = WriteOptions::default();
        options.set_sync(sync);
        self.database
            .write_opt(batch, &options)
            .map_err(|source| rocks(&self.path, source))
    }

    fn get(&self, column: &str, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.database
            .get_cf(self.column(column), key)
            .map_err(|source| rocks(&self.path, source))
    }

    fn column(&self, name: &str) -> &ColumnFamily {
        self.database
            .cf_handle(name)
            .expect("every column family was opened with the database")
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

fn rocks(path: &Path, source: rocksdb::Error) -> StoreError {
    StoreError::Rocks {
        path: path.to_path_buf(),
        source,
    }
}

fn database_options() -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_max_background_jobs(2);
    options.set_max_open_files(256);
    options.set_max_total_wal_size(MAX_WAL_BYTES);
    options.set_keep_log_file_num(2);
    options.set_max_log_file_size(1 << 20);
    options.set_wal_recovery_mode(rocksdb::DBRecoveryMode::PointInTime);
    options
}

fn plain_options(cache: &Cache) -> Options {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(cache);
    table.set_bloom_filter(10.0, false);
    table.set_cache_index_and_filter_blocks(true);
    let mut options = Options::default();
    options.set_block_based_table_factory(&table);
    options.set_write_buffer_size(WRITE_BUFFER_BYTES);
    options.set_max_write_buffer_number(2);
    options
}
