//! Opening the database: making it, or checking that it is whole and the right one.

use super::{
    COLUMNS, META, NODES, ROOTS, Store, StoreError, StoredBlock, StoredTip, error::FORMAT_VERSION,
    failed, height_key, options::options, stage_accounts, tree_updates,
};
use crate::{
    database::{Batch, Database, RocksDatabase},
    logs::find_endless,
    tree::{TableRows, Tree},
};
use commonware_codec::{Copying, DecodeExt, Encode};
use quorate_crypto::mistakes::{Mistake, made};
use quorate_types::{Account, ChainId, Digest, Height, Identity, View, genesis::Genesis};
use rocksdb::{DB, Options};
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{Arc, RwLock},
};

/// Genesis accounts that are put into the tree at a time.
const GENESIS_BATCH: usize = 10_000;

/// The file in which RocksDB says which of the others count.
const HEAD_FILE: &str = "CURRENT";

impl Store {
    /// Whether there is no database in a folder yet.
    pub fn is_absent(path: &Path) -> bool {
        !path.join(HEAD_FILE).exists()
    }

    /// Opens the chain's database, or creates it with the genesis accounts.
    ///
    /// # Errors
    ///
    /// If the folder cannot be used, holds another chain or format, or is damaged.
    pub fn open(path: &Path, genesis: &Genesis) -> Result<(Self, Tree<TableRows>), StoreError> {
        check_files(path)?;
        let (options, columns) = options();
        let database = DB::open_cf_descriptors(&options, path, columns)
            .map_err(|source| failed(path, source.into()))?;
        let database = RocksDatabase::new(Arc::new(database));
        Self::open_on(Arc::new(database), path, genesis)
    }

    /// Opens the chain's database to be read alone. Nothing is written, so it works on a full disk; a validator
    /// must not run on it meanwhile, nor afterwards on what this one has read.
    ///
    /// # Errors
    ///
    /// As for [`Self::open`]; and if there is no whole database.
    pub fn open_to_read(path: &Path, genesis: &Genesis) -> Result<Self, StoreError> {
        check_files(path)?;
        let (mut options, columns) = options();
        options.create_if_missing(false);
        let database = DB::open_cf_descriptors_read_only(&options, path, columns, false)
            .map_err(|source| failed(path, source.into()))?;
        let store = Self::on(Arc::new(RocksDatabase::new(Arc::new(database))), path);
        store.check_identity(genesis.chain_id())?;
        let tree = store.open_tree()?;
        store.load_tip(tree.root())?;
        Ok(store)
    }

    /// As [`Self::open`], on an open database. `path` is what errors name.
    ///
    /// # Errors
    ///
    /// As for [`Self::open`].
    pub fn open_on(
        database: Arc<dyn Database>,
        path: &Path,
        genesis: &Genesis,
    ) -> Result<(Self, Tree<TableRows>), StoreError> {
        let store = Self::on(database, path);
        if store.get(META, b"format")?.is_none() {
            store.create(genesis)?;
        }
        store.check_identity(genesis.chain_id())?;
        let tree = store.open_tree()?;
        store.load_tip(tree.root())?;
        if !made(Mistake::DatabaseNotSynced) {
            store.make_durable()?;
        }
        Ok((store, tree))
    }

    fn on(database: Arc<dyn Database>, path: &Path) -> Self {
        Self {
            database,
            path: Arc::new(path.to_path_buf()),
            tip: Arc::new(RwLock::new(StoredTip {
                view: View(0),
                height: Height(0),
                id: Digest::ZERO,
                state_root: Digest::ZERO,
                block: None,
                certificate: None,
            })),
        }
    }

    /// Makes all that was found durable. A killed process may have left it in the system's memory
    /// only, and the journal is about to forget what the database holds.
    fn make_durable(&self) -> Result<(), StoreError> {
        let mut batch = Batch::default();
        batch.put(META, b"tip", self.tip().height.encode());
        self.write(&batch, true)
    }

    fn open_tree(&self) -> Result<Tree<TableRows>, StoreError> {
        let rows = TableRows::new(self.database.clone(), NODES);
        Tree::open(rows).map_err(|error| self.tree_error(error))
    }

    /// Writes the genesis accounts. The format row comes last and is synced: a crash before it
    /// leaves a database that is created again, over the same rows.
    ///
    /// The chain id comes first, so that only the same chain goes on where the crash was: the rows
    /// of two chains would make a state that is neither's.
    fn create(&self, genesis: &Genesis) -> Result<(), StoreError> {
        let chain = genesis.chain_id();
        if self.get(META, b"chain")?.is_some() {
            self.check_chain(chain)?;
        }
        let mut batch = Batch::default();
        batch.put(META, b"chain", chain.encode());
        self.write(&batch, false)?;
        let mut tree = self.open_tree()?;
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
            let changes = tree
                .prepare(&tree_updates(&values))
                .map_err(|error| self.tree_error(error))?;
            let mut batch = Batch::default();
            tree.store().stage(&changes, &mut batch);
            stage_accounts(&values, &mut batch);
            self.write(&batch, false)?;
            tree.commit(changes);
        }
        let mut batch = Batch::default();
        batch.put(ROOTS, height_key(Height(0)), tree.root());
        batch.put(META, b"tip", Height(0).encode());
        batch.put(META, b"format", FORMAT_VERSION.to_be_bytes());
        self.write(&batch, true)
    }

    /// That this program wrote the database, and for this chain.
    fn check_identity(&self, expected: ChainId) -> Result<(), StoreError> {
        let format = self.get(META, b"format")?.unwrap_or_default();
        let found = u32::decode(Copying(&format)).map_err(|e| self.damaged("format", &e))?;
        if found != FORMAT_VERSION {
            return Err(StoreError::OtherFormat {
                path: self.path.to_path_buf(),
                found,
            });
        }
        self.check_chain(expected)
    }

    fn check_chain(&self, expected: ChainId) -> Result<(), StoreError> {
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
}

/// Looks at what RocksDB itself would not: whether a database that is there would be made anew,
/// whether it would be read for ever, and whether a newer program made it.
fn check_files(path: &Path) -> Result<(), StoreError> {
    if path.join(HEAD_FILE).exists() {
        let endless = find_endless(path).map_err(|e| StoreError::Damaged {
            path: path.to_path_buf(),
            what: format!("a log cannot be read: {e}"),
        })?;
        if let Some((name, at)) = endless {
            return Err(StoreError::Damaged {
                path: path.to_path_buf(),
                what: format!("the record at byte {at} of {name} is of no kind that is written"),
            });
        }
        let names = DB::list_cf(&Options::default(), path).map_err(|e| failed(path, e.into()))?;
        let unknown = |name: &String| name != "default" && !COLUMNS.contains(&name.as_str());
        return match names.into_iter().find(unknown) {
            Some(name) => Err(StoreError::UnknownColumn {
                path: path.to_path_buf(),
                name,
            }),
            None => Ok(()),
        };
    }
    // A new database has its head before any of these. Whether the folder is there and can be read
    // is found out when it is opened.
    let rest = fs::read_dir(path)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .find(|name| name.ends_with(".sst") || name.ends_with(".log"));
    match rest {
        Some(file) => Err(StoreError::Damaged {
            path: path.to_path_buf(),
            what: format!("there is {file}, but no {HEAD_FILE}"),
        }),
        None => Ok(()),
    }
}
