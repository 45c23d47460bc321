//! The database of blocks and accounts: what was committed is read back, and nothing else opens.
#![allow(missing_docs, clippy::unwrap_used)]

use commonware_codec::Encode;
use quorate_crypto::{SecretKey, bls::Proof, sha256};
use quorate_storage::{
    store::{Commit, Store, StoreError, TransactionPlace, Undo, tree_updates},
    tree::{TableRows, Tree},
};
use quorate_types::{
    Account, Block, Certificate, Digest, Epoch, EpochLength, Failure, Header, Height, Identity,
    Memo, Outcome, Receipt, Subject, Transaction, Transfer, View, VoteKind,
    genesis::{BlockLimits, Genesis, GenesisAccount, Protocol},
    state_key,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};
use tempfile::TempDir;

fn secret(seed: u8) -> SecretKey {
    SecretKey::from_bytes(&[seed; 32])
}

fn owner(seed: u8) -> Identity {
    secret(seed).identity()
}

fn genesis(name: &str) -> Genesis {
    Genesis {
        name: name.into(),
        timestamp_ms: 1,
        protocol: Protocol::Simplex,
        application: Default::default(),
        scheme: "bls-threshold".into(),
        fees: quorate_types::genesis::Fees::NONE,
        limits: BlockLimits {
            max_transactions: 100,
            max_bytes: 100_000,
        },
        epoch_blocks: EpochLength::DEFAULT,
        group_key: None,
        registry: None,
        validators: Vec::new(),
        accounts: (1..=3)
            .map(|seed| GenesisAccount {
                identity: owner(seed),
                balance: 1_000,
            })
            .collect(),
    }
}

fn transaction(height: u64, seed: u8) -> Transaction {
    let chain = genesis("a").chain_id();
    let transfer = Transfer {
        chain_tag: chain.tag(),
        sender: owner(seed),
        nonce: height,
        to: Identity([9; 32]),
        amount: height,
        fee: 1,
        memo: Memo::NONE,
    };
    transfer.sign(&chain, &secret(seed))
}

/// The block at a height, with two transactions if the height is odd and none if it is even.
fn block(height: u64, parent: Digest) -> Block {
    let count = if height % 2 == 1 { 2 } else { 0 };
    let transactions: Vec<_> = (1..=count).map(|seed| transaction(height, seed)).collect();
    let header = Header {
        chain: genesis("a").chain_id(),
        epoch: Epoch(0),
        view: View(10 + height),
        height: Height(height),
        parent,
        parent_view: View(9 + height),
        timestamp_ms: height,
        executed_height: Height(height - 1),
        state_root: Digest([1; 32]),
        body_root: Header::body_root_of(&transactions),
    };
    Block::new(header, transactions).unwrap()
}

fn finalization(block: &Block) -> Certificate {
    Certificate {
        subject: Subject {
            epoch: Epoch(0),
            view: block.header().view,
            kind: VoteKind::Finalize,
            payload: block.id(),
        },
        proof: Proof::Threshold([8; 48]),
    }
}

fn accounts_after(height: u64) -> BTreeMap<Identity, Account> {
    let value = |balance| Account::plain(height, balance);
    BTreeMap::from([
        (owner(1), value(1_000 - height)),
        (Identity([height as u8; 32]), value(height)),
    ])
}

fn outcomes(block: &Block) -> Vec<Outcome> {
    let mut outcomes = vec![Outcome::Applied; block.transactions().len()];
    if let Some(last) = outcomes.last_mut() {
        *last = Outcome::Failed(Failure::InsufficientBalance);
    }
    outcomes
}

fn commit(
    store: &Store,
    tree: &mut Tree<TableRows>,
    block: Block,
    sync: bool,
) -> Result<(), StoreError> {
    let height = block.height().0;
    let accounts = accounts_after(height);
    let changes = tree.prepare(&tree_updates(&accounts)).unwrap();
    let commit = Commit {
        set: None,
        certificate: height.is_multiple_of(3).then(|| finalization(&block)),
        outcomes: outcomes(&block),
        block: Arc::new(block),
        accounts: &accounts,
        undo: Undo::default(),
        changes: &changes,
        sync,
    };
    store.commit(tree, commit)?;
    tree.commit(changes);
    Ok(())
}

/// Commits blocks up to the height, and gives all blocks and roots from 1 on.
fn grow(path: &Path, to: u64) -> Vec<(Block, Digest)> {
    let (store, mut tree) = Store::open(path, &genesis("a")).unwrap();
    (store.tip().height.0 + 1..=to)
        .map(|height| {
            let next = block(height, store.tip().id);
            commit(&store, &mut tree, next.clone(), height == to).unwrap();
            (next, tree.root())
        })
        .collect()
}

/// That the database holds exactly these blocks and the state after them.
fn check(store: &Store, tree: &Tree<TableRows>, blocks: &[(Block, Digest)]) {
    let tip = store.tip();
    assert_eq!(tip.height.0, blocks.len() as u64);
    assert_eq!(tip.state_root, tree.root());
    if let Some((last, root)) = blocks.last() {
        assert_eq!(tip.block.as_deref(), Some(last));
        assert_eq!((tip.id, tip.view), (last.id(), last.header().view));
        assert_eq!(tip.state_root, *root);
    }
    for (block, root) in blocks {
        let height = block.height();
        let stored = store.block(height).unwrap().unwrap();
        assert_eq!(*stored.block, *block);
        let certificate = height.0.is_multiple_of(3).then(|| finalization(block));
        assert_eq!(stored.certificate, certificate);
        assert_eq!(store.height_of(&block.id()).unwrap(), Some(height));
        assert_eq!(store.root(height).unwrap(), Some(*root));
        let receipts: Vec<Receipt> = block
            .transactions()
            .iter()
            .zip(outcomes(block))
            .map(|(transaction, outcome)| Receipt {
                transaction: transaction.id(),
                outcome,
            })
            .collect();
        for (index, receipt) in (0..).zip(&receipts) {
            let place = TransactionPlace { height, index };
            assert_eq!(
                store.transaction(&receipt.transaction).unwrap(),
                Some(place)
            );
            assert_eq!(store.outcome(place).unwrap(), Some(receipt.outcome));
        }
        let index = receipts.len() as u32;
        assert!(index == 0 || store.outcome(TransactionPlace { height, index }).is_err());
        assert_eq!(store.receipts(height).unwrap(), Some(receipts));
    }
    let mut accounts: BTreeMap<Identity, Account> = genesis("a")
        .accounts
        .iter()
        .map(|account| {
            let value = Account::plain(0, account.balance);
            (account.identity, value)
        })
        .collect();
    for height in 1..=blocks.len() as u64 {
        accounts.extend(accounts_after(height));
    }
    let rows = tree_updates(&accounts);
    for (identity, account) in &accounts {
        assert_eq!(store.account(identity).unwrap(), Some(account.clone()));
        let key = state_key(identity).0;
        assert_eq!(tree.get(&key).unwrap().as_ref(), rows.get(&key));
    }
    let next = Height(blocks.len() as u64 + 1);
    assert!(store.block(next).unwrap().is_none());
    assert!(store.receipts(next).unwrap().is_none());
    let nowhere = TransactionPlace {
        height: next,
        index: 0,
    };
    assert!(store.outcome(nowhere).unwrap().is_none());
    assert!(store.root(next).unwrap().is_none());
    let absent = sha256(&[b"absent"]);
    assert_eq!(store.height_of(&absent).unwrap(), None);
    assert_eq!(store.transaction(&absent).unwrap(), None);
    assert_eq!(store.account(&Identity(absent.0)).unwrap(), None);
}

#[test]
fn closing_waits_for_every_other_handle() {
    let folder = TempDir::new().unwrap();
    let (store, tree) = Store::open(folder.path(), &genesis("a")).unwrap();
    assert!(
        !store.clone().close(Duration::from_millis(20)),
        "the tree reads it still"
    );
    // A snapshot keeps the database open as well, without a handle to it.
    let snapshot = store.pin();
    drop(tree);
    assert!(
        !store.clone().close(Duration::from_millis(20)),
        "a snapshot is held"
    );
    let (let_go, told) = mpsc::channel::<()>();
    let reader = store.clone();
    let reading = thread::spawn(move || {
        told.recv().unwrap();
        drop((reader, snapshot));
    });
    let_go.send(()).unwrap();
    assert!(store.close(Duration::from_secs(30)));
    // Only who has closed it can open it again in the same process.
    Store::open(folder.path(), &genesis("a")).unwrap();
    reading.join().unwrap();
}

#[test]
fn a_new_database_holds_the_genesis_accounts() {
    let folder = TempDir::new().unwrap();
    for _ in 0..2 {
        let (store, tree) = Store::open(folder.path(), &genesis("a")).unwrap();
        check(&store, &tree, &[]);
        assert!(store.tip().block.is_none());
        assert_eq!(store.root(Height(0)).unwrap(), Some(tree.root()));
        assert_ne!(tree.root(), Digest::ZERO);
    }
}

#[test]
fn blocks_are_read_back_before_and_after_reopening() {
    let folder = TempDir::new().unwrap();
    let mut blocks = grow(folder.path(), 5);
    let (store, tree) = Store::open(folder.path(), &genesis("a")).unwrap();
    check(&store, &tree, &blocks);
    drop((store, tree));
    blocks.extend(grow(folder.path(), 9));
    let (store, tree) = Store::open(folder.path(), &genesis("a")).unwrap();
    check(&store, &tree, &blocks);
}

#[test]
fn a_finalization_is_found_at_its_block_or_above() {
    let folder = TempDir::new().unwrap();
    let blocks = grow(folder.path(), 8);
    let (store, _tree) = Store::open(folder.path(), &genesis("a")).unwrap();
    let find = |height, limit| {
        store
            .finalization_at_or_after(Height(height), limit)
            .unwrap()
    };
    let third = Some((Height(3), finalization(&blocks[2].0)));
    assert_eq!(find(1, 10), third);
    assert_eq!(find(3, 1), third);
    assert_eq!(find(1, 2), None);
    assert_eq!(find(7, 10), None);
}

#[test]
fn the_database_of_another_chain_is_refused_by_name() {
    let folder = TempDir::new().unwrap();
    let blocks = grow(folder.path(), 2);
    let error = Store::open(folder.path(), &genesis("b")).err().unwrap();
    assert!(matches!(error, StoreError::OtherChain { .. }));
    let message = error.to_string();
    for part in [
        folder.path().to_str().unwrap(),
        &genesis("a").chain_id().to_string(),
        &genesis("b").chain_id().to_string(),
    ] {
        assert!(message.contains(part), "{message}");
    }
    let (store, tree) = Store::open(folder.path(), &genesis("a")).unwrap();
    check(&store, &tree, &blocks);
}

#[test]
fn a_database_in_use_is_refused() {
    let folder = TempDir::new().unwrap();
    let _open = Store::open(folder.path(), &genesis("a")).unwrap();
    let second = Store::open(folder.path(), &genesis("a")).err();
    assert!(matches!(second, Some(StoreError::Database { .. })));
}

#[test]
fn blocks_out_of_order_panic_and_change_nothing() {
    let folder = TempDir::new().unwrap();
    let mut blocks = grow(folder.path(), 2);
    let (store, mut tree) = Store::open(folder.path(), &genesis("a")).unwrap();
    for height in [1, 2, 4] {
        let wrong = block(height, store.tip().id);
        let result = catch_unwind(AssertUnwindSafe(|| commit(&store, &mut tree, wrong, true)));
        assert!(result.is_err(), "height {height}");
    }
    check(&store, &tree, &blocks);
    drop((store, tree));
    blocks.extend(grow(folder.path(), 3));
    let (store, tree) = Store::open(folder.path(), &genesis("a")).unwrap();
    check(&store, &tree, &blocks);
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

fn cut(file: &Path, length: u64) {
    let file = OpenOptions::new().write(true).open(file).unwrap();
    file.set_len(length).unwrap();
}

/// Opens a damaged copy and reads everything; errors are fine, panics and wrong answers are not.
fn open_damaged(folder: &Path, blocks: &[(Block, Digest)]) -> Result<(), StoreError> {
    let (store, _tree) = Store::open(folder, &genesis("a"))?;
    for (block, root) in blocks {
        if let Some(stored) = store.block(block.height())? {
            assert_eq!(*stored.block, *block);
        }
        if let Some(stored) = store.root(block.height())? {
            assert_eq!(stored, *root);
        }
        store.receipts(block.height())?;
    }
    Ok(())
}

#[test]
fn a_log_torn_anywhere_opens_at_a_whole_block() {
    let folder = TempDir::new().unwrap();
    drop(Store::open(folder.path(), &genesis("a")).unwrap());
    // Opened again, the genesis state lies in tables and the blocks alone in the log.
    let blocks = grow(folder.path(), 6);
    let log = files(folder.path(), |name| name.ends_with(".log"))
        .pop()
        .unwrap();
    let length = fs::metadata(&log).unwrap().len();
    let mut heights = Vec::new();
    for step in 0..=30 {
        let torn = copy(folder.path());
        cut(
            &torn.path().join(log.file_name().unwrap()),
            length * step / 30,
        );
        let (store, tree) = Store::open(torn.path(), &genesis("a")).unwrap();
        let height = store.tip().height.0 as usize;
        check(&store, &tree, &blocks[..height]);
        heights.push(height);
        drop((store, tree));
        // And it goes on from there.
        let again = grow(torn.path(), 6);
        assert_eq!(again, blocks[height..]);
    }
    assert!(heights.is_sorted(), "{heights:?}");
    assert_eq!((heights[0], heights[30]), (0, 6));
}

#[test]
fn a_crash_while_the_database_was_made_is_made_good() {
    let folder = TempDir::new().unwrap();
    drop(Store::open(folder.path(), &genesis("a")).unwrap());
    let log = files(folder.path(), |name| name.ends_with(".log"))
        .pop()
        .unwrap();
    let length = fs::metadata(&log).unwrap().len();
    assert!(length > 0);
    for step in 0..10 {
        let torn = copy(folder.path());
        cut(
            &torn.path().join(log.file_name().unwrap()),
            length * step / 10,
        );
        let (store, tree) = Store::open(torn.path(), &genesis("a")).unwrap();
        check(&store, &tree, &[]);
    }
}

/// One bit in a record's type, in the log and in the manifest. RocksDB would read such a record for
/// ever; a random search for damage found it after some thousand cases.
#[test]
fn a_record_that_would_be_read_for_ever_is_refused() {
    let folder = TempDir::new().unwrap();
    drop(Store::open(folder.path(), &genesis("a")).unwrap());
    grow(folder.path(), 6);
    let logs = |name: &str| name.ends_with(".log") || name.starts_with("MANIFEST");
    let mut refused = 0;
    for target in files(folder.path(), logs) {
        let damaged = copy(folder.path());
        let path = damaged.path().join(target.file_name().unwrap());
        let mut content = fs::read(&path).unwrap();
        // The second record: checksum, length and type behind the first one's content.
        let second = 7 + usize::from(u16::from_le_bytes([content[4], content[5]]));
        if second + 7 > content.len().min(32 << 10) {
            continue;
        }
        content[second + 6] ^= 4;
        fs::write(&path, content).unwrap();
        let (sender, opened) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let result = Store::open(damaged.path(), &genesis("a"));
            sender.send(result.map(drop).map_err(|e| e.to_string()))
        });
        let result = opened
            .recv_timeout(std::time::Duration::from_secs(60))
            .expect("opening comes to an end");
        let error = result.expect_err("damage");
        assert!(error.contains("of no kind that is written"), "{error}");
        refused += 1;
    }
    assert!(refused >= 2, "a log and a manifest: {refused}");
}

#[test]
fn damaged_files_give_errors_and_no_panic() {
    let folder = TempDir::new().unwrap();
    let blocks = grow(folder.path(), 6);
    // What the log held is put into tables when the database is opened again.
    drop(Store::open(folder.path(), &genesis("a")).unwrap());
    let important =
        |name: &str| name == "CURRENT" || name.starts_with("MANIFEST") || name.ends_with(".sst");
    let targets = files(folder.path(), important);
    assert!(
        targets
            .iter()
            .any(|path| path.extension().is_some_and(|e| e == "sst"))
    );
    assert!(open_damaged(copy(folder.path()).path(), &blocks).is_ok());
    for target in &targets {
        let name = target.file_name().unwrap();
        let length = fs::metadata(target).unwrap().len();
        for keep in [0, length / 2, length - 1] {
            let damaged = copy(folder.path());
            cut(&damaged.path().join(name), keep);
            let opened = open_damaged(damaged.path(), &blocks);
            // A manifest that only lost its end is like a crash.
            let may_open = name.to_str().unwrap().starts_with("MANIFEST") && keep > 0;
            assert!(opened.is_err() || may_open, "{name:?} cut at {keep}");
        }
        for at in [0, length / 3, length / 2, length - 1] {
            let damaged = copy(folder.path());
            let path = damaged.path().join(name);
            let mut content = fs::read(&path).unwrap();
            content[at as usize] ^= 0x55;
            fs::write(&path, content).unwrap();
            // Damage where nothing was read goes unnoticed; wrong answers do not.
            let _ = open_damaged(damaged.path(), &blocks);
        }
    }
}

/// How many damaged copies are tried in the first tier, and in the long runs.
fn damaged_copies() -> u64 {
    match std::env::var_os("QUORATE_NIGHTLY") {
        Some(_) => 5_000,
        None => 250,
    }
}

/// Damages one file of a database: a bit, some bytes, its end, a hole, or all of it.
fn damage(folder: &Path, rng: &mut ChaCha8Rng) -> String {
    let targets = files(folder, |name| name != "LOCK" && name != "LOG");
    let target = &targets[rng.random_range(0..targets.len())];
    let mut content = fs::read(target).unwrap();
    let length = content.len();
    let kind = rng.random_range(0..5);
    if kind == 4 || length == 0 {
        fs::remove_file(target).unwrap();
        return format!("{target:?} removed");
    }
    let at = rng.random_range(0..length);
    match kind {
        0 => content[at] ^= 1 << rng.random_range(0..8),
        1 => {
            let end = (at + 64).min(length);
            rng.fill(&mut content[at..end]);
        }
        2 => content.truncate(at),
        _ => {
            let end = (at + 512).min(length);
            content[at..end].fill(0);
        }
    }
    fs::write(target, content).unwrap();
    format!("{target:?} damaged at {at} of {length}, kind {kind}")
}

/// Whatever is damaged: the database does not open, or a read fails, or what it says is true, for
/// the height that it says it is at.
#[test]
fn damage_anywhere_is_refused_or_harmless_and_never_served() {
    let logged = TempDir::new().unwrap();
    drop(Store::open(logged.path(), &genesis("a")).unwrap());
    let blocks = grow(logged.path(), 12);
    // Opened again, what the log held is put into tables.
    let tables = copy(logged.path());
    drop(Store::open(tables.path(), &genesis("a")).unwrap());
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let (mut refused, mut failed, mut shorter, mut whole) = (0, 0, 0, 0);
    for case in 0..damaged_copies() {
        let folder = copy(if case % 2 == 0 { &logged } else { &tables }.path());
        let what = damage(folder.path(), &mut rng);
        let Ok((store, tree)) = Store::open(folder.path(), &genesis("a")) else {
            refused += 1;
            continue;
        };
        match read_all(&store, &tree, &blocks) {
            Err(_) => failed += 1,
            Ok(height) if height < blocks.len() => shorter += 1,
            Ok(_) => whole += 1,
        }
        drop(what);
    }
    eprintln!("{refused} refused, {failed} failed reads, {shorter} shorter, {whole} unharmed");
    assert!(refused > 0 && shorter > 0 && whole > 0);
}

/// Reads everything and compares it with the truth; gives the height, or the first read's error.
fn read_all(
    store: &Store,
    tree: &Tree<TableRows>,
    blocks: &[(Block, Digest)],
) -> Result<usize, StoreError> {
    let height = store.tip().height.0 as usize;
    assert!(height <= blocks.len());
    for (block, root) in &blocks[..height] {
        let stored = store.block(block.height())?.expect("a block below the tip");
        assert_eq!(*stored.block, *block);
        assert_eq!(store.root(block.height())?, Some(*root));
        assert_eq!(store.height_of(&block.id())?, Some(block.height()));
        let receipts = store.receipts(block.height())?.expect("with its block");
        assert_eq!(receipts.len(), block.transactions().len());
        for transaction in block.transactions() {
            assert!(store.transaction(&transaction.id())?.is_some());
        }
    }
    if let Some((_, root)) = blocks[..height].last() {
        assert_eq!(tree.root(), *root);
    }
    for change in 1..=height as u64 {
        for identity in accounts_after(change).keys() {
            let newest = (1..=height as u64).rev();
            let mut newest = newest.filter_map(|h| accounts_after(h).get(identity).cloned());
            let expected = newest.next();
            assert_eq!(store.account(identity)?, expected);
            let key = state_key(identity).0;
            let proof = tree.prove(&key).map_err(|error| store.tree_error(error))?;
            let value = proof
                .verify(&tree.root(), &key)
                .expect("a proof of this root");
            let encoded = expected.map(|account| account.encode().to_vec());
            assert_eq!(value, encoded.as_deref());
        }
    }
    Ok(height)
}

/// A block with these transactions, and what became of them, on whatever the store holds.
fn commit_transactions(
    store: &Store,
    tree: &mut Tree<TableRows>,
    transactions: &[Transaction],
    outcomes: &[Outcome],
) {
    let tip = store.tip();
    let height = tip.height.0 + 1;
    let plain = block(2 * height, tip.id);
    let header = Header {
        height: Height(height),
        body_root: Header::body_root_of(transactions),
        ..*plain.header()
    };
    let accounts = accounts_after(height);
    let changes = tree.prepare(&tree_updates(&accounts)).unwrap();
    let commit = Commit {
        set: None,
        block: Arc::new(Block::new(header, transactions.to_vec()).unwrap()),
        certificate: None,
        outcomes: outcomes.to_vec(),
        accounts: &accounts,
        undo: Undo::default(),
        changes: &changes,
        sync: false,
    };
    store.commit(tree, commit).unwrap();
    tree.commit(changes);
}

#[test]
fn a_transactions_place_is_where_it_used_its_nonce() {
    let folder = TempDir::new().unwrap();
    let (store, mut tree) = Store::open(folder.path(), &genesis("a")).unwrap();
    let [early, applied, late] = [1, 2, 3].map(|seed| transaction(1, seed));
    let wrong = Outcome::Failed(Failure::WrongNonce);
    let charged = Outcome::Failed(Failure::InsufficientBalance);
    let all = [early.clone(), applied.clone()];
    commit_transactions(&store, &mut tree, &all, &[wrong, Outcome::Applied]);
    let place = |id: Digest| {
        store
            .transaction(&id)
            .unwrap()
            .map(|p| (p.height.0, p.index))
    };
    assert_eq!(place(early.id()), Some((1, 0)));
    // What stands in a second block for nothing keeps its place; what is charged there takes it.
    let all = [late.clone(), applied.clone(), early.clone()];
    commit_transactions(&store, &mut tree, &all, &[charged, wrong, charged]);
    assert_eq!(place(applied.id()), Some((1, 1)));
    assert_eq!(place(early.id()), Some((2, 2)));
    assert_eq!(place(late.id()), Some((2, 0)));
    commit_transactions(&store, &mut tree, std::slice::from_ref(&late), &[wrong]);
    assert_eq!(place(late.id()), Some((2, 0)));
    // Forgetting a block forgets the places in it alone.
    store.prune(Height(2), 10).unwrap();
    assert_eq!(place(applied.id()), None);
    assert_eq!(place(early.id()), Some((2, 2)));
}

#[test]
fn kept_transactions_are_there_after_reopening_until_they_are_forgotten() {
    let folder = TempDir::new().unwrap();
    let all: Vec<Transaction> = (0..7).map(|height| transaction(height, 1)).collect();
    {
        let (store, _tree) = Store::open(folder.path(), &genesis("a")).unwrap();
        store.keep(all.iter(), &[], true).unwrap();
        let gone = [all[2].id(), all[5].id()];
        store.keep(std::iter::empty(), &gone, false).unwrap();
    }
    let (store, _tree) = Store::open(folder.path(), &genesis("a")).unwrap();
    let mut ids: Vec<Digest> = [0, 1, 3, 4, 6].map(|place: usize| all[place].id()).into();
    ids.sort_unstable();
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let rows = store.kept_after(after, 2).unwrap();
        let Some(last) = rows.last() else { break };
        after = Some(last.id());
        found.extend(rows.iter().map(Transaction::id));
    }
    assert_eq!(found, ids);
}
