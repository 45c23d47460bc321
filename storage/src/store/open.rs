//! Opening the database: creating it, or checking that it is whole and the right one.

use super::{
    ACCOUNTS, COLUMNS, META, NODES, ROOTS, Store, StoreError, StoredBlock, StoredTip,
    error::{FORMAT_BEFORE, FORMAT_VERSION},
    failed, height_key,
    options::{file_options, options},
    stage_accounts, state_key, tree_updates,
};
use crate::{
    database::{Batch, Database, RocksDatabase},
    logs::find_endless,
    tree::{TableRows, Tree},
};
use commonware_codec::{Copying, DecodeExt, Encode};
use quorate_crypto::sha256;
use quorate_types::{Account, ChainId, Digest, Height, Identity, View, genesis::Genesis};
use rocksdb::{DB, Options};
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{Arc, RwLock},
    time::{Duration, Instant},
};

/// Genesis accounts that are written to the tree at a time.
const GENESIS_BATCH: usize = 10_000;

/// How often it is told how much of them there is.
const TELL_EVERY: Duration = Duration::from_secs(2);

/// Rows that are converted together when the format changes.
const UPGRADE_BATCH: usize = 10_000;

/// In `meta` while rows of the previous format may be left.
const UPGRADING: &[u8] = b"upgrading";

/// The file in which RocksDB lists the valid ones.
const HEAD_FILE: &str = "CURRENT";

impl Store {
    /// Whether a folder has no database yet.
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
        let database = RocksDatabase::new(Arc::new(database)).with_files(file_options);
        Self::open_on(Arc::new(database), path, genesis)
    }

    /// Opens the chain's database for reading only. Nothing is written, so it works on a full disk.
    /// No validator must run on it meanwhile, nor continue from what was read.
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
        if store.get(META, b"format")?.is_none() {
            return Err(StoreError::Unfinished {
                path: store.path.to_path_buf(),
            });
        }
        store.check_identity(genesis.chain_id())?;
        if store.format()? != FORMAT_VERSION || store.get(META, UPGRADING)?.is_some() {
            return Err(StoreError::NotUpgraded {
                path: store.path.to_path_buf(),
            });
        }
        if store.is_syncing()? {
            return Err(StoreError::Syncing {
                path: store.path.to_path_buf(),
            });
        }
        let tree = store.open_tree()?;
        store.load_tip(tree.root())?;
        Ok(store)
    }

    /// As [`Self::open`], on an open database. `path` is for error messages.
    ///
    /// While [state sync](Self::is_syncing) is under way, the tree is empty and the tip that of genesis.
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
        store.upgrade()?;
        let tree = store.open_tree()?;
        if store.is_syncing()? {
            return Ok((store, tree));
        }
        store.load_tip(tree.root())?;
        store.load_undo()?;
        store.make_durable()?;
        Ok((store, tree))
    }

    /// Upgrades a database of the previous format: accounts were under their identities, and
    /// without a height. An interrupted upgrade continues.
    ///
    /// From its first batch on the database has the new format's version, so that a program of the
    /// previous version does not open it.
    fn upgrade(&self) -> Result<(), StoreError> {
        if self.format()? == FORMAT_BEFORE {
            let mut batch = Batch::default();
            batch.put(META, b"format", FORMAT_VERSION.to_be_bytes());
            batch.put(META, UPGRADING, []);
            self.write(&batch, true)?;
        }
        if self.get(META, UPGRADING)?.is_none() {
            return Ok(());
        }
        tracing::info!(
            path = %self.path.display(),
            "the database is brought to this version's format, which may take minutes"
        );
        // The height of the account's last change is unknown.
        let height = self.get(META, b"tip")?.unwrap_or_default();
        let mut from = Vec::new();
        loop {
            let rows = self
                .database
                .rows_from(ACCOUNTS, &from, UPGRADE_BATCH)
                .map_err(|source| failed(&self.path, source))?;
            let mut batch = Batch::default();
            for (key, row) in &rows {
                if row.len() == Account::PLAIN_SIZE {
                    batch.delete(ACCOUNTS, key);
                    batch.put(ACCOUNTS, sha256(&[key]), [row, &height[..]].concat());
                }
            }
            self.write(&batch, false)?;
            let Some((last, _)) = rows.last() else {
                break;
            };
            from = [last, &[0][..]].concat();
        }
        let mut batch = Batch::default();
        batch.delete(META, UPGRADING);
        self.write(&batch, true)
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
            kept_undo: Arc::default(),
        }
    }

    /// Makes everything that was found durable. A killed process may have left it in the page cache
    /// only, and the journal is about to drop what the database holds.
    fn make_durable(&self) -> Result<(), StoreError> {
        let mut batch = Batch::default();
        batch.put(META, b"tip", self.tip().height.encode());
        self.write(&batch, true)
    }

    /// The state's tree, read anew: for the thread that commits from now on. While [state sync](Self::is_syncing) is
    /// under way, it is empty.
    ///
    /// # Errors
    ///
    /// If the database cannot be read or is damaged.
    pub fn open_tree(&self) -> Result<Tree<TableRows>, StoreError> {
        let rows = TableRows::new(self.database.clone(), NODES);
        if self.is_syncing()? {
            // The rows do not belong to a single state.
            return Ok(Tree::unread(rows));
        }
        Tree::open(rows).map_err(|error| self.tree_error(error))
    }

    /// Writes the genesis accounts. The format row comes last and is synced: a crash before it
    /// leaves a database that is created again, over the same rows.
    ///
    /// The chain id comes first, so that only the same chain continues after a crash: the rows of
    /// two chains would make a state that belongs to neither.
    fn create(&self, genesis: &Genesis) -> Result<(), StoreError> {
        let chain = genesis.chain_id();
        if self.get(META, b"chain")?.is_some() {
            self.check_chain(chain)?;
        }
        let mut batch = Batch::default();
        batch.put(META, b"chain", chain.encode());
        self.write(&batch, false)?;
        let mut tree = self.open_tree()?;
        let accounts = genesis.initial_accounts().map_err(StoreError::Genesis)?;
        let mut all: Vec<_> = accounts.into_iter().collect();
        // In the order of the tree each batch changes a few subtrees, and not all of them.
        all.sort_by_cached_key(|(identity, _)| state_key(identity).0);
        let mut told = Instant::now();
        for (number, accounts) in all.chunks(GENESIS_BATCH).enumerate() {
            if told.elapsed() >= TELL_EVERY {
                told = Instant::now();
                let percent = number * GENESIS_BATCH * 100 / all.len();
                tracing::info!("making the state of the genesis file: {percent} %");
            }
            let values: BTreeMap<Identity, Account> = accounts.iter().cloned().collect();
            let changes = tree
                .prepare(&tree_updates(&values))
                .map_err(|error| self.tree_error(error))?;
            let mut batch = Batch::default();
            tree.store().stage(&changes, &mut batch);
            stage_accounts(&values, Height(0), &mut batch);
            self.write(&batch, false)?;
            tree.commit(changes);
        }
        let mut batch = Batch::default();
        batch.put(ROOTS, height_key(Height(0)), tree.root());
        batch.put(META, b"tip", Height(0).encode());
        batch.put(META, b"format", FORMAT_VERSION.to_be_bytes());
        self.write(&batch, true)
    }

    /// Checks that this program wrote the database, and for this chain.
    fn check_identity(&self, expected: ChainId) -> Result<(), StoreError> {
        let found = self.format()?;
        if found != FORMAT_VERSION && found != FORMAT_BEFORE {
            return Err(StoreError::OtherFormat {
                path: self.path.to_path_buf(),
                found,
            });
        }
        self.check_chain(expected)
    }

    fn format(&self) -> Result<u32, StoreError> {
        let format = self.get(META, b"format")?.unwrap_or_default();
        u32::decode(Copying(&format)).map_err(|e| self.damaged("format", &e))
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

/// Checks what RocksDB would not: whether it would create an existing database again, whether it
/// would read it for ever, and whether a newer program wrote it.
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
    // A new database has its head before any of these. Opening it finds out whether the folder
    // exists and can be read.
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
