//! The database when something goes wrong: a half-made one, a full disk, files that are gone.
#![allow(missing_docs, clippy::unwrap_used)]

use commonware_codec::{Copying, DecodeExt};
use quorate_storage::{
    database::{Batch, Database, DatabaseError, Rows},
    store::{
        ChunkError, Commit, Coverage, Served, StateSnapshot, Store, StoreError, Undo, tree_updates,
    },
    tree::{CHUNK_MAX_ENTRIES, Chunk, MemoryStore, TableRows, Tree},
};
use quorate_types::{
    Account, Block, Digest, Epoch, Header, Height, Identity, Outcome, Transaction, Transfer, View,
    genesis::{BlockLimits, Genesis, GenesisAccount, Protocol},
};
use std::{
    collections::BTreeMap,
    env,
    fs::{self, OpenOptions},
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};
use tempfile::TempDir;

/// Enough accounts that they are written in several batches.
const ACCOUNTS: u64 = 25_000;

fn identity(chain: u8, number: u64) -> Identity {
    let mut bytes = [chain; 32];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    Identity(bytes)
}

/// A chain whose accounts are all its own.
fn genesis(chain: u8, accounts: u64) -> Genesis {
    Genesis {
        name: format!("chain {chain}"),
        timestamp_ms: 1,
        protocol: Protocol::Simplex,
        application: Default::default(),
        scheme: "bls-threshold".into(),
        fees: quorate_types::genesis::Fees::NONE,
        limits: BlockLimits {
            max_transactions: 100,
            max_bytes: 100_000,
        },
        epoch_blocks: quorate_types::EpochLength::DEFAULT,
        group_key: None,
        registry: None,
        validators: Vec::new(),
        accounts: (0..accounts)
            .map(|number| GenesisAccount {
                identity: identity(chain, number),
                balance: number,
            })
            .collect(),
    }
}

/// The root of the genesis accounts, worked out in memory.
fn genesis_root(genesis: &Genesis) -> Digest {
    let accounts: BTreeMap<Identity, Account> = genesis
        .accounts
        .iter()
        .map(|account| {
            let value = Account::plain(0, account.balance);
            (account.identity, value)
        })
        .collect();
    let tree = Tree::open(MemoryStore::default()).unwrap();
    tree.prepare(&tree_updates(&accounts)).unwrap().root()
}

fn empty_block(height: u64, parent: Digest) -> Block {
    let header = Header {
        chain: genesis(1, 3).chain_id(),
        epoch: Epoch(0),
        view: View(height),
        height: Height(height),
        parent,
        parent_view: View(height - 1),
        timestamp_ms: height,
        executed_height: Height(0),
        state_root: Digest::ZERO,
        body_root: Header::body_root_of(&[]),
    };
    Block::new(header, Vec::new()).unwrap()
}

/// Commits an empty block that changes a thousand accounts.
fn commit_next(store: &Store, tree: &mut Tree<TableRows>) -> Result<(), StoreError> {
    let tip = store.tip();
    let block = empty_block(tip.height.0 + 1, tip.id);
    let value = Account::plain(block.height().0, 1);
    let accounts = (0..1_000)
        .map(|i| (identity(7, i), value.clone()))
        .collect();
    let changes = tree.prepare(&tree_updates(&accounts))?;
    let commit = Commit {
        set: None,
        block: Arc::new(block),
        certificate: None,
        outcomes: Vec::new(),
        accounts: &accounts,
        undo: Undo::default(),
        changes: &changes,
        sync: true,
    };
    store.commit(tree, commit)?;
    tree.commit(changes);
    Ok(())
}

fn files(folder: &Path, accept: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| accept(path.file_name().unwrap().to_str().unwrap()))
        .collect();
    files.sort();
    files
}

fn copy(from: &Path) -> TempDir {
    let to = TempDir::new().unwrap();
    for file in files(from, |_| true) {
        fs::copy(&file, to.path().join(file.file_name().unwrap())).unwrap();
    }
    to
}

#[test]
fn a_half_made_database_is_completed_by_its_own_chain_alone() {
    let (ours, other) = (genesis(1, ACCOUNTS), genesis(2, ACCOUNTS));
    let (our_root, other_root) = (genesis_root(&ours), genesis_root(&other));
    let folder = TempDir::new().unwrap();
    drop(Store::open(folder.path(), &ours).unwrap());
    let log = files(folder.path(), |name| name.ends_with(".log"))
        .pop()
        .unwrap();
    let length = fs::metadata(&log).unwrap().len();
    let mut refused = 0;
    for step in 0..=8 {
        let torn = || {
            let torn = copy(folder.path());
            let file = torn.path().join(log.file_name().unwrap());
            let file = OpenOptions::new().write(true).open(file).unwrap();
            file.set_len(length * step / 8).unwrap();
            torn
        };
        let (mine, foreign) = (torn(), torn());
        let (store, tree) = Store::open(mine.path(), &ours).unwrap();
        assert_eq!((tree.root(), store.tip().state_root), (our_root, our_root));
        match Store::open(foreign.path(), &other) {
            // Nothing of the first chain was there yet.
            Ok((_, tree)) => assert_eq!(tree.root(), other_root, "torn at {step}/8"),
            Err(StoreError::OtherChain { .. }) => refused += 1,
            Err(error) => panic!("torn at {step}/8: {error}"),
        }
    }
    assert!((1..=8).contains(&refused), "{refused}");
}

#[test]
fn a_database_that_lost_its_head_is_not_taken_for_a_new_one() {
    let folder = TempDir::new().unwrap();
    let genesis = genesis(1, 3);
    for _ in 0..2 {
        let (store, mut tree) = Store::open(folder.path(), &genesis).unwrap();
        commit_next(&store, &mut tree).unwrap();
    }
    fs::remove_file(folder.path().join("CURRENT")).unwrap();
    let before = files(folder.path(), |_| true);
    let error = Store::open(folder.path(), &genesis).err().unwrap();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    let message = error.to_string();
    assert!(message.contains("CURRENT"), "{message}");
    assert!(
        message.contains(folder.path().to_str().unwrap()),
        "{message}"
    );
    assert_eq!(files(folder.path(), |_| true), before, "nothing is deleted");
}

#[test]
fn damage_is_named_as_such_with_the_folder_and_a_remedy() {
    let folder = TempDir::new().unwrap();
    let genesis = genesis(1, 3);
    for _ in 0..3 {
        let (store, mut tree) = Store::open(folder.path(), &genesis).unwrap();
        commit_next(&store, &mut tree).unwrap();
    }
    let damaged = copy(folder.path());
    for table in files(damaged.path(), |name| name.ends_with(".sst")) {
        fs::write(table, b"no table").unwrap();
    }
    let error = Store::open(damaged.path(), &genesis).err().unwrap();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    let message = error.to_string();
    for part in [damaged.path().to_str().unwrap(), "remove", "journal"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_database_with_parts_that_are_unknown_is_another_formats() {
    let folder = TempDir::new().unwrap();
    let genesis = genesis(1, 3);
    drop(Store::open(folder.path(), &genesis).unwrap());
    let columns = rocksdb::DB::list_cf(&rocksdb::Options::default(), folder.path()).unwrap();
    let mut database =
        rocksdb::DB::open_cf(&rocksdb::Options::default(), folder.path(), columns).unwrap();
    database
        .create_cf("tomorrow", &rocksdb::Options::default())
        .unwrap();
    drop(database);
    let error = Store::open(folder.path(), &genesis).err().unwrap();
    assert!(
        matches!(&error, StoreError::UnknownColumn { name, .. } if name == "tomorrow"),
        "{error}"
    );
}

/// Runs in a process that may not write files above a size; see the test below.
#[test]
fn child_that_fills_its_disk() {
    let Some(folder) = env::var_os("QUORATE_TEST_FULL_DISK") else {
        return;
    };
    let (store, mut tree) = Store::open(Path::new(&folder), &genesis(1, 3)).unwrap();
    for _ in 0..1_000 {
        let before = (store.tip().height, tree.root());
        if let Err(error) = commit_next(&store, &mut tree) {
            // What was not written is not shown, and the tree is as before.
            assert_eq!((store.tip().height, tree.root()), before);
            println!("stopped at {}: {error}", store.tip().height);
            return;
        }
    }
    panic!("no write has failed");
}

#[test]
fn a_full_disk_is_an_error_and_everything_before_is_kept() {
    let folder = TempDir::new().unwrap();
    // A file may have 4,096 blocks of 512 or 1,024 bytes; further writes fail, as on a full disk.
    let script = "trap '' XFSZ; ulimit -f 4096; exec \"$0\" \"$@\"";
    let output = Command::new("sh")
        .args(["-c", script])
        .arg(env::current_exe().unwrap())
        .args(["--exact", "child_that_fills_its_disk", "--nocapture"])
        .env("QUORATE_TEST_FULL_DISK", folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let (_, rest) = text.split_once("stopped at ").expect("a write failed");
    let (height, error) = rest.split_once(": ").unwrap();
    let height = Height(height.parse().unwrap());
    assert!(height > Height(0));
    assert!(error.contains(folder.path().to_str().unwrap()), "{error}");
    let (store, mut tree) = Store::open(folder.path(), &genesis(1, 3)).unwrap();
    assert_eq!(store.tip().height, height);
    for height in 1..=height.0 {
        assert!(store.block(Height(height)).unwrap().is_some());
    }
    commit_next(&store, &mut tree).unwrap();
}

/// A block with transfers that change nothing but themselves, so that rows pile up.
fn commit_full(store: &Store, tree: &mut Tree<TableRows>, transfers: u64) {
    let tip = store.tip();
    let chain = genesis(1, 3).chain_id();
    let secret = quorate_crypto::SecretKey::from_bytes(&[5; 32]);
    let transactions: Vec<Transaction> = (0..transfers)
        .map(|number| {
            let transfer = Transfer {
                chain_tag: chain.tag(),
                sender: secret.identity(),
                nonce: tip.height.0 * transfers + number,
                to: identity(9, number),
                amount: 1,
                fee: 1,
                memo: quorate_types::Memo::NONE,
            };
            // Nobody looks at the signature here.
            Transaction::new(transfer, quorate_types::IdentitySignature([7; 64]))
        })
        .collect();
    let header = Header {
        body_root: Header::body_root_of(&transactions),
        ..*empty_block(tip.height.0 + 1, tip.id).header()
    };
    let outcomes = vec![Outcome::Applied; transactions.len()];
    let accounts = BTreeMap::new();
    let changes = tree.prepare(&tree_updates(&accounts)).unwrap();
    let commit = Commit {
        set: None,
        block: Arc::new(Block::new(header, transactions).unwrap()),
        certificate: None,
        outcomes,
        accounts: &accounts,
        undo: Undo::default(),
        changes: &changes,
        sync: false,
    };
    store.commit(tree, commit).unwrap();
    tree.commit(changes);
}

/// The size of the tables. One that the database deletes meanwhile does not count.
fn folder_bytes(folder: &Path) -> u64 {
    let files = files(folder, |name| name.ends_with(".sst"));
    let sizes = files.iter().map(|file| match fs::metadata(file) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
        Err(error) => panic!("{}: {error}", file.display()),
    });
    sizes.sum()
}

#[test]
fn what_is_pruned_is_gone_and_the_rest_is_there_over_restarts() {
    let folder = TempDir::new().unwrap();
    let (store, mut tree) = Store::open(folder.path(), &genesis(1, 3)).unwrap();
    for _ in 0..50 {
        commit_full(&store, &mut tree, 10);
    }
    let row = |store: &Store, height: u64| {
        let block = store
            .block(Height(height))
            .unwrap()
            .map(|stored| stored.block)?;
        let id = block.transactions()[3].id();
        assert_eq!(store.height_of(&block.id()).unwrap(), Some(Height(height)));
        assert_eq!(store.transaction(&id).unwrap().unwrap().height.0, height);
        assert_eq!(store.receipts(Height(height)).unwrap().unwrap().len(), 10);
        Some((block.id(), id))
    };
    let (block, transaction) = row(&store, 7).unwrap();
    assert_eq!(store.pruned_below().unwrap(), Height(1));
    // A few at a time, as a running node does it.
    assert_eq!(store.prune(Height(31), 5).unwrap(), Height(6));
    assert_eq!(store.prune(Height(31), 5).unwrap(), Height(11));
    drop((store, tree));
    let (store, mut tree) = Store::open(folder.path(), &genesis(1, 3)).unwrap();
    assert_eq!(store.pruned_below().unwrap(), Height(11));
    while store.prune(Height(31), 7).unwrap() < Height(31) {}
    assert!((1..31).all(|height| row(&store, height).is_none()));
    assert!((31..=50).all(|height| row(&store, height).is_some()));
    assert_eq!(store.height_of(&block).unwrap(), None);
    assert_eq!(store.transaction(&transaction).unwrap(), None);
    assert_eq!(store.root(Height(30)).unwrap(), None);
    // The newest block stays whatever is asked for.
    while store.prune(Height(1_000), 100).unwrap() < Height(50) {}
    assert_eq!(store.prune(Height(1_000), 100).unwrap(), Height(50));
    commit_full(&store, &mut tree, 10);
    drop((store, tree));
    let (store, _) = Store::open(folder.path(), &genesis(1, 3)).unwrap();
    assert_eq!(store.tip().height, Height(51));
}

#[test]
fn pruning_keeps_the_files_as_small_as_what_is_kept() {
    let folder = TempDir::new().unwrap();
    let (store, mut tree) = Store::open(folder.path(), &genesis(1, 3)).unwrap();
    let run = |tree: &mut Tree<TableRows>, keep: u64| {
        let mut largest = 0;
        for number in 0..1_500 {
            commit_full(&store, tree, 200);
            let below = Height(store.tip().height.0.saturating_sub(keep));
            if keep < u64::MAX {
                store.prune(below, 2).unwrap();
            }
            if number > 500 && number % 50 == 0 {
                largest = folder_bytes(folder.path()).max(largest);
            }
        }
        largest
    };
    // 1,500 blocks of 32 KB: 48 MB of blocks alone. Kept are 200: about 10 MB with their indexes.
    let bounded = run(&mut tree, 200);
    assert!(bounded < 30_000_000, "{bounded} bytes");
    let all = run(&mut tree, u64::MAX);
    assert!(
        all > bounded + 30_000_000,
        "{all} bytes without pruning, {bounded} with"
    );
}

/// A database in memory that counts the writes which a power cut would take, and fails on request.
#[derive(Default)]
struct Memory {
    rows: Mutex<Moment>,
    unsynced: AtomicUsize,
    /// How many rows were visited.
    visited: AtomicUsize,
    /// After so many more writes all fail.
    writes_left: Mutex<Option<usize>>,
}

type Columns = BTreeMap<&'static str, BTreeMap<Vec<u8>, Vec<u8>>>;

#[derive(Clone, Default)]
struct Moment(Columns);

impl Rows for Moment {
    fn get_sorted(
        &self,
        column: &'static str,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Vec<u8>>>, DatabaseError> {
        let rows = self.0.get(column);
        let get = |key: &&[u8]| rows.and_then(|rows| rows.get(*key).cloned());
        Ok(keys.iter().map(get).collect())
    }

    fn visit(
        &self,
        column: &'static str,
        from: &[u8],
        below: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), DatabaseError> {
        let rows = self.0.get(column).into_iter();
        let mut rows = rows.flat_map(|rows| rows.range(from.to_vec()..));
        while let Some((key, value)) = rows.next()
            && below.is_none_or(|below| &key[..] < below)
            && visit(key, value)
        {}
        Ok(())
    }
}

impl Rows for Memory {
    fn get_sorted(
        &self,
        column: &'static str,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Vec<u8>>>, DatabaseError> {
        self.rows.lock().unwrap().get_sorted(column, keys)
    }

    fn visit(
        &self,
        column: &'static str,
        from: &[u8],
        below: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), DatabaseError> {
        let rows = self.rows.lock().unwrap();
        rows.visit(column, from, below, &mut |key, row| {
            self.visited.fetch_add(1, Relaxed);
            visit(key, row)
        })
    }
}

impl Database for Memory {
    fn get(&self, column: &'static str, key: &[u8]) -> Result<Option<Vec<u8>>, DatabaseError> {
        Ok(self.get_sorted(column, &[key])?.remove(0))
    }

    fn snapshot(&self) -> Arc<dyn Rows> {
        Arc::new(self.rows.lock().unwrap().clone())
    }

    fn write(&self, batch: &Batch, sync: bool) -> Result<(), DatabaseError> {
        if let Some(left) = &mut *self.writes_left.lock().unwrap() {
            let Some(less) = left.checked_sub(1) else {
                let message = "a crash".to_owned();
                return Err(DatabaseError {
                    damaged: false,
                    message,
                });
            };
            *left = less;
        }
        let mut rows = self.rows.lock().unwrap();
        for (column, key, value) in batch.changes() {
            let rows = rows.0.entry(column).or_default();
            match value {
                Some(value) => drop(rows.insert(key.to_vec(), value.to_vec())),
                None => drop(rows.remove(key)),
            }
        }
        match sync {
            true => self.unsynced.store(0, Relaxed),
            false => drop(self.unsynced.fetch_add(1, Relaxed)),
        }
        Ok(())
    }

    fn size(&self, _: &'static str) -> (u64, u64) {
        (0, 0)
    }

    fn log_bytes(&self) -> u64 {
        0
    }

    fn compact(&self, _: &'static str) {}
}

/// A killed process leaves writes in the page cache. Whoever finds them must sync them before anything
/// relies on them: a power cut would still take them.
#[test]
fn what_a_start_finds_is_synced_before_it_is_used() {
    let genesis = genesis(1, 10);
    let memory = Arc::new(Memory::default());
    let open = || Store::open_on(memory.clone(), Path::new("memory"), &genesis).unwrap();
    drop(open());
    let mut left = Batch::default();
    left.put("kept", b"a transaction", b"that was accepted");
    memory.write(&left, false).unwrap();
    assert_eq!(memory.unsynced.load(Relaxed), 1);
    drop(open());
    assert_eq!(memory.unsynced.load(Relaxed), 0);
}

/// Takes the parts that are not right at the snapshot's height.
fn take_missing(store: &Store, from: &StateSnapshot, coverage: &mut Coverage) {
    let parts = coverage.parts();
    let parts = parts.filter(|part| part.height != from.height());
    let mut open: Vec<_> = parts.map(|part| (part.span, part.height)).collect();
    let target = (from.height(), &from.root());
    while let Some((span, since)) = open.pop() {
        match from.chunk(&span, since).unwrap() {
            Served::TooMany => open.extend(span.halves().unwrap().map(|half| (half, since))),
            Served::Chunk(chunk) => {
                store.take_chunk(chunk, target, coverage).unwrap();
            }
        }
    }
}

fn all_accounts(store: &Store) -> Vec<([u8; 32], Account)> {
    let mut all = Vec::new();
    loop {
        let last = all.last().map(|(key, _)| *key);
        let more = store.accounts_after(last).unwrap();
        if more.is_empty() {
            return all;
        }
        all.extend(more);
    }
}

/// The coverage may not say that a part is right before its rows are there.
#[test]
fn a_crash_at_any_write_of_a_save_leaves_no_part_without_its_rows() {
    let genesis = genesis(1, ACCOUNTS);
    let open = |memory: &Arc<Memory>| {
        let opened = Store::open_on(memory.clone(), Path::new("memory"), &genesis);
        opened.unwrap()
    };
    let (from, mut tree) = open(&Arc::default());
    commit_next(&from, &mut tree).unwrap();
    let snapshot = from.pin();
    let block = from.tip().block.unwrap();
    let new = Arc::new(Memory::default());
    open(&new);
    let new = new.rows.lock().unwrap().clone();
    for writes in 0.. {
        let memory = Arc::new(Memory {
            rows: Mutex::new(new.clone()),
            ..Memory::default()
        });
        let (store, _) = open(&memory);
        store.begin_sync().unwrap();
        let mut coverage = store.coverage().unwrap();
        take_missing(&store, &snapshot, &mut coverage);
        *memory.writes_left.lock().unwrap() = Some(writes);
        let saved = store.save_chunks(&mut coverage);
        *memory.writes_left.lock().unwrap() = None;
        let (store, _) = open(&memory);
        let mut coverage = store.coverage().unwrap();
        take_missing(&store, &snapshot, &mut coverage);
        store.save_chunks(&mut coverage).unwrap();
        let finished = store.finish_sync(block.clone(), None, snapshot.root(), None);
        finished.unwrap();
        let is_whole = all_accounts(&store) == all_accounts(&from);
        assert!(is_whole, "a crash after {writes} writes");
        if saved.is_ok() {
            assert!(writes > 2, "files, and the coverage: {writes}");
            return;
        }
    }
}

/// A peer may widen the part whose changes were requested, up to the whole state, with no effort.
#[test]
fn changes_of_a_wide_part_do_not_make_it_read_the_whole_state() {
    let memory = Arc::new(Memory::default());
    let genesis = genesis(1, ACCOUNTS);
    let (store, _) = Store::open_on(memory.clone(), Path::new("memory"), &genesis).unwrap();
    store.begin_sync().unwrap();
    let mut coverage = store.coverage().unwrap();
    // All keys, changed since block 1, none of them.
    let lie = [2, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    let lie = Chunk::decode(Copying(&lie[..])).unwrap();
    memory.visited.store(0, Relaxed);
    let target = (Height(9), &Digest([1; 32]));
    let taken = store.take_chunk(lie, target, &mut coverage);
    assert!(matches!(taken, Err(ChunkError::Proof(_))), "{taken:?}");
    let visited = memory.visited.load(Relaxed);
    assert!(visited <= CHUNK_MAX_ENTRIES + 1, "{visited} rows");
}
