//! Opening the data directory, database and vote journal, with exclusive access for this process.

use super::LOCK_FILE;
use crate::{
    config::ValidatorConfig,
    marker::Mark,
    owner::{self, Owner},
};
use anyhow::{Context, bail};
use quorate_api::verdict::counted;
use quorate_files::{Privacy, own_folder};
use quorate_machine::machine::{KeptJournal, begin_after_loss, bundles_folder, journal_folder};
use quorate_storage::{
    bundles::BundleLog,
    disk::SystemDisk,
    journal::{Journal, Recovered},
    store::{Store, StoreError},
    tree::{TableRows, Tree},
};
use quorate_types::{
    Committees, Epoch, Height, Nonce, Record, ValidatorIndex, VoteKey,
    genesis::{ApplicationKind, Genesis, Protocol},
};
use rand::Rng as _;
use std::{
    fs::{File, TryLockError},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};
use tracing::{info, warn};

/// Creates the data directory accessible only to this user, or removes other users' access to an
/// existing one: anybody who can write there could remove the journal.
pub(super) fn own_data_directory(directory: &Path) -> anyhow::Result<()> {
    if let Privacy::Tightened { mode } = own_folder(directory, LOCK_FILE).context("`data_dir`")? {
        warn!(
            folder = %directory.display(),
            "the data directory was open to others (mode {mode:04o}) and is closed now (0700)"
        );
    }
    Ok(())
}

/// Locks the data directory for as long as the returned file stays open.
pub(crate) fn lock_directory(directory: &Path) -> anyhow::Result<File> {
    let path = directory.join(LOCK_FILE);
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => bail!(
            "{} is in use by another process: two processes must never share a data directory",
            directory.display()
        ),
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", path.display()))
        }
    }
}

/// The vote journal, and facts about votes that it does not contain.
struct OpenJournal {
    pub(super) journal: Journal,
    pub(super) recovered: Recovered,
    /// The first epoch in which the key may vote.
    pub(super) silent_before: Epoch,
    /// Whether votes were lost.
    pub(super) lost: bool,
    /// Whether there is no sign that the key has voted.
    pub(super) fresh: bool,
}

/// When a validator that has lost its journal votes again.
pub(crate) fn votes_again(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Simplex => "once the others have told from which view on it may",
        _ => "after the next epoch",
    }
}

/// Opens the vote journal. If it is missing although the key has voted, the first record of the new
/// journal says so, even if a start is interrupted at any point.
fn open_journal(
    config: &ValidatorConfig,
    store: &Store,
    held: Option<KeptJournal>,
) -> anyhow::Result<OpenJournal> {
    let directory = journal_folder(&config.node.data_dir);
    let vote_key = &config.vote_file;
    let mut mark = Mark::of(vote_key, config.node.chain)?;
    if let Some(held) = held {
        let silent_before = mark.vote_from_epoch();
        return Ok(OpenJournal {
            journal: held.journal,
            recovered: Recovered {
                records: held.records,
                truncated_bytes: 0,
                created: false,
            },
            silent_before,
            lost: false,
            fresh: held.fresh,
        });
    }
    let absent = Journal::is_absent(&directory)?;
    // A key that gets its first seat after the tip cannot have voted before.
    let tip = store.tip().height;
    let key = VoteKey(config.vote_secret.public_key());
    let epoch = config.node.genesis.epoch_blocks.epoch_of(tip);
    let may_have_voted = tip > Height(0) && {
        let own = config.node.identity.identity();
        config.node.committees.had_seat(&own, &key, epoch)
    };
    let was_used = mark.was_used() || may_have_voted;
    let lost = mark.says_lost() || (absent && was_used);
    if lost && config.node.committees.known().size() == 1 {
        bail!(
            "there is no vote journal in {}, and this is the only validator: nobody else knows what it \
             has voted, and without that it could vote twice in a view. Find the journal, or begin a new \
             chain",
            directory.display()
        );
    }
    // Before the journal is created: at the next start, an empty journal would look like a real
    // one.
    let fresh = mark.is_fresh() || (absent && !was_used);
    mark.write(lost, fresh)?;
    let (mut journal, mut recovered) = Journal::open(&directory, config.node.chain)?;
    if lost {
        begin_after_loss(&mut journal, &mut recovered.records).context("vote journal")?;
        let votes_again = votes_again(config.node.genesis.protocol);
        warn!(
            journal = %directory.display(), key = %vote_key.display(),
            "the vote key was used before, and its journal is gone: this validator follows, and votes again {votes_again}"
        );
    }
    // As soon as it contains a vote, the journal itself shows that the key has voted.
    let told = |record: &Record| matches!(record, Record::Vote(_) | Record::Silence(_));
    let fresh = fresh && !recovered.records.iter().any(told) && !journal.is_rewritten();
    mark.write(false, fresh)?;
    if recovered.truncated_bytes > 0 {
        info!(
            bytes = recovered.truncated_bytes,
            "the journal ended in a record that was never acknowledged; it is cut off"
        );
    }
    let first = mark.vote_from_epoch();
    if first > Epoch(0) {
        warn!(epoch = %first, "this key's journal was lost once: it votes from this epoch on");
    }
    Ok(OpenJournal {
        journal,
        recovered,
        silent_before: first,
        lost,
        fresh,
    })
}

/// Begins the journal of a validator that follows and has had no seat up to the newest block here, if there is none.
/// So its key cannot have voted by what this machine knows, and the journal holds all votes from the first one on.
/// Once blocks of an epoch in which it has a seat are executed, a journal that is not there might have been lost.
///
/// # Errors
///
/// If the mark or the journal cannot be read or written.
pub(super) fn begin_journal(
    config: &ValidatorConfig,
    committees: &Committees,
    tip: Height,
) -> anyhow::Result<()> {
    let directory = journal_folder(&config.node.data_dir);
    let mut mark = Mark::of(&config.vote_file, config.node.chain)?;
    let key = VoteKey(config.vote_secret.public_key());
    let own = config.node.identity.identity();
    let epoch = config.node.genesis.epoch_blocks.epoch_of(tip.next());
    if mark.was_used() || committees.had_seat(&own, &key, epoch) || !Journal::is_absent(&directory)?
    {
        return Ok(());
    }
    // The mark is first, as in `open_journal`.
    mark.write(false, true)?;
    Journal::open(&directory, config.node.chain)?;
    info!(journal = %directory.display(), "nothing here says that the vote key was used before: its journal begins before its first seat");
    Ok(())
}

/// The opened parts of a validator's data on disk.
pub(super) struct OpenDurable {
    pub(super) genesis: Arc<Genesis>,
    pub(super) store: Store,
    pub(super) tree: Tree<TableRows>,
    pub(super) journal: Journal,
    pub(super) records: Vec<Record>,
    pub(super) silent_before: Epoch,
    pub(super) fresh: bool,
    pub(super) bundles: Option<BundleLog>,
}

/// A node's database, which stays open while the node's parts are assembled anew.
#[derive(Default)]
pub(super) struct KeptStore(Mutex<Option<Store>>);

impl KeptStore {
    /// Takes up the database that is open, or opens it.
    pub(super) fn open(
        &self,
        path: &Path,
        genesis: &Genesis,
    ) -> Result<(Store, Tree<TableRows>), StoreError> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        match kept {
            Some(store) => {
                let tree = store.open_tree()?;
                Ok((store, tree))
            }
            None => open_store(path, genesis),
        }
    }

    /// Keeps a database open. Nothing writes blocks to it any more; clients' requests that are in progress may still use
    /// it.
    pub(super) fn keep(&self, store: Store) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(store);
    }
}

/// A validator's vote journal, which stays open while the validator's parts are assembled anew for another epoch.
#[derive(Clone, Default)]
pub(super) struct HeldJournal(Arc<Mutex<Option<KeptJournal>>>);

impl HeldJournal {
    pub(super) fn keep(&self, journal: KeptJournal) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(journal);
    }

    pub(super) fn take(&self) -> Option<KeptJournal> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Opens a database. A new one gets the state of the genesis file, which takes some time if that has many
/// accounts.
fn open_store(path: &Path, genesis: &Genesis) -> Result<(Store, Tree<TableRows>), StoreError> {
    if Store::is_absent(path) {
        let accounts = counted(genesis.accounts.len() as u64, "account");
        info!("new database: making the state of the genesis file ({accounts})");
    }
    Store::open(path, genesis)
}

/// Opens the database and the vote journal, and makes sure that they belong to this validator.
pub(super) fn open_durable(
    config: &ValidatorConfig,
    place: Option<ValidatorIndex>,
    (kept, journal): (&KeptStore, &HeldJournal),
) -> anyhow::Result<OpenDurable> {
    let own = Owner {
        chain_id: config.node.chain,
        identity: config.node.identity.identity(),
    };
    owner::check(&config.node.data_dir, &own)
        .with_context(|| config.node.path.display().to_string())?;
    let genesis = config.node.genesis.clone();
    let database = config.node.data_dir.join("db");
    let is_new = Store::is_absent(&database);
    let (store, tree) = kept.open(&database, &genesis)?;
    let OpenJournal {
        journal,
        recovered,
        silent_before,
        lost,
        fresh,
    } = open_journal(config, &store, journal.take())?;
    owner::claim(&config.node.data_dir, &own, place, &recovered.records)
        .with_context(|| config.node.path.display().to_string())?;
    if is_new && (!recovered.created || lost) {
        warn_of_a_lost_database(&database);
    }
    Ok(OpenDurable {
        genesis,
        store,
        tree,
        journal,
        records: recovered.records,
        silent_before,
        fresh,
        bundles: open_bundles(config)?,
    })
}

pub(super) fn warn_of_a_lost_database(folder: &Path) {
    warn!(
        folder = %folder.display(),
        "the database is a new one, although this validator ran before. The chain is fetched from \
         the others; transactions that this validator had accepted and that no final block holds are \
         lost: their clients must submit them again"
    );
}

/// Opens the payloads of a chain that only orders.
fn open_bundles(config: &ValidatorConfig) -> anyhow::Result<Option<BundleLog>> {
    let node = &config.node;
    if node.genesis.application != ApplicationKind::OrderOnly {
        return Ok(None);
    }
    let folder = bundles_folder(&node.data_dir);
    let disk = Arc::new(SystemDisk);
    let (log, found) = BundleLog::open(disk, &folder, node.chain, node.storage.bundle_bytes)?;
    if found.truncated_bytes > 0 {
        info!(
            bytes = found.truncated_bytes,
            "the log of bundles ended in one that was never acknowledged; it is cut off"
        );
    }
    info!(bundles = found.bundles, "payloads are there");
    Ok(Some(log))
}

/// Returns an unpredictable nonce that identifies this start.
pub(super) fn fresh_nonce() -> Nonce {
    let mut bytes = [0; 16];
    rand::rng().fill_bytes(&mut bytes);
    Nonce(bytes)
}

/// Locks the vote key's file for as long as the returned file stays open, against a second process
/// with another data directory. On file systems without locks, continues without one.
pub(super) fn lock_vote_key(path: &Path) -> anyhow::Result<File> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => bail!(
            "the vote key {} is in use by another process on this machine: two processes with one vote \
             key contradict each other, whatever their data directories. Stop the other one, or name \
             this validator's own key in `vote_key`",
            path.display()
        ),
        Err(TryLockError::Error(error)) => {
            warn!(file = %path.display(), %error, "the vote key's file cannot be locked");
        }
    }
    Ok(file)
}
