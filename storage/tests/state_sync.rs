//! State sync on databases: what chunks make of a receiver's state, whatever comes between.
#![allow(missing_docs, clippy::unwrap_used)]

use commonware_codec::{Copying, DecodeExt, Encode, EncodeSize};
use quorate_crypto::{Digest, bls::Proof, sha256};
use quorate_storage::{
    store::{
        ChunkError, Commit, Coverage, Covered, Save, Served, StateSnapshot, Store, StoreError,
        Undo, tree_updates,
    },
    tree::{CHUNK_MAX_ENTRIES, Chunk, TableRows, Tree},
};
use quorate_types::{
    Account, Block, Bond, BondName, Certificate, Epoch, EpochLength, Header, Height, Identity,
    Span, Subject, View, VoteKey, VoteKind,
    genesis::{BlockLimits, Fees, Genesis, GenesisAccount, Protocol},
    state_key,
};
use rocksdb::{DB, Options};
use std::{collections::BTreeMap, path::Path, sync::Arc};
use tempfile::TempDir;

/// Enough for several chunks.
const ACCOUNTS: u64 = 60_000;

fn identity(number: u64) -> Identity {
    Identity(sha256(&[&number.to_be_bytes()]).0)
}

fn genesis(accounts: u64) -> Genesis {
    Genesis {
        name: "sync".into(),
        timestamp_ms: 1,
        protocol: Protocol::Simplex,
        application: Default::default(),
        scheme: "bls-threshold".into(),
        fees: Fees::NONE,
        limits: BlockLimits {
            max_transactions: 100,
            max_bytes: 100_000,
        },
        epoch_blocks: EpochLength::DEFAULT,
        group_key: None,
        registry: None,
        validators: Vec::new(),
        accounts: (0..accounts)
            .map(|number| GenesisAccount {
                identity: identity(number),
                balance: 1_000,
            })
            .collect(),
    }
}

/// An account after a block that changes it. Some have bonds, of different lengths.
fn account(number: u64, height: Height) -> Account {
    let mut account = Account::plain(height.0, 1_000 + height.0);
    if number.is_multiple_of(7) {
        account.bond = Some(Box::new(Bond {
            identity: identity(number),
            stake: height.0,
            leaving: number,
            leaves_at: Epoch(1),
            since: Epoch(0),
            vote_key: VoteKey([number as u8; 96]),
            address: format!("host:{number}").parse().unwrap(),
            name: BondName::default(),
        }));
    }
    account
}

/// A validator's database with its tree.
struct Node {
    folder: TempDir,
    genesis: Genesis,
    store: Store,
    tree: Tree<TableRows>,
    /// Whether it stores what blocks replace.
    keeps_undo: bool,
}

impl Node {
    fn new(genesis: &Genesis) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (store, tree) = Store::open(&path(&folder), genesis).unwrap();
        Self {
            folder,
            genesis: genesis.clone(),
            store,
            tree,
            keeps_undo: true,
        }
    }

    /// Stops, and starts again.
    fn restart(self) -> Self {
        let Self {
            folder,
            genesis,
            store,
            tree,
            keeps_undo,
        } = self;
        drop((store, tree));
        let (store, tree) = Store::open(&path(&folder), &genesis).unwrap();
        Self {
            folder,
            genesis,
            store,
            tree,
            keeps_undo,
        }
    }

    /// A block that changes some accounts.
    fn commit(&mut self, changed: impl Iterator<Item = u64>) -> Arc<Block> {
        let tip = self.store.tip();
        self.commit_naming((tip.height, tip.state_root), changed, false)
    }

    /// A block that names a state and changes some accounts.
    fn commit_naming(
        &mut self,
        (executed_height, state_root): (Height, Digest),
        changed: impl Iterator<Item = u64>,
        is_certified: bool,
    ) -> Arc<Block> {
        let tip = self.store.tip();
        let height = tip.height.next();
        let header = Header {
            chain: self.genesis.chain_id(),
            epoch: Epoch(0),
            view: View(height.0),
            height,
            parent: tip.id,
            parent_view: View(height.0 - 1),
            timestamp_ms: height.0,
            executed_height,
            state_root,
            body_root: Header::body_root_of(&[]),
        };
        let block = Arc::new(Block::new(header, Vec::new()).unwrap());
        let accounts: BTreeMap<_, _> = changed
            .map(|number| (identity(number), account(number, height)))
            .collect();
        let changes = self.tree.prepare(&tree_updates(&accounts)).unwrap();
        let before = |identity: &Identity| self.store.account(identity).unwrap();
        let absent: Vec<Identity> = accounts
            .keys()
            .copied()
            .filter(|identity| before(identity).is_none())
            .collect();
        let before = accounts
            .keys()
            .map(|identity| (*identity, before(identity).unwrap_or_default()))
            .collect();
        let certificate = Certificate {
            subject: Subject {
                epoch: Epoch(0),
                view: View(height.0),
                kind: VoteKind::Finalize,
                payload: block.id(),
            },
            proof: Proof::Threshold([8; 48]),
        };
        let commit = Commit {
            set: None,
            block: block.clone(),
            certificate: is_certified.then_some(certificate),
            outcomes: Vec::new(),
            accounts: &accounts,
            undo: match self.keeps_undo {
                true => Undo::of(&before, &absent),
                false => Undo::default(),
            },
            changes: &changes,
            sync: false,
        };
        self.store.commit(&self.tree, commit).unwrap();
        self.tree.commit(changes);
        block
    }

    /// Takes chunks until everything is right at the snapshot's height, at most so many. Returns the bytes
    /// that travelled.
    fn fetch(&self, from: &StateSnapshot, mut most: usize) -> usize {
        let mut bytes = 0;
        let mut saving = None;
        self.store.begin_sync().unwrap();
        let mut coverage = self.store.coverage().unwrap();
        let mut open: Vec<(Span, Height)> = coverage
            .parts()
            .filter(|covered| covered.height != from.height())
            .map(|covered| (covered.span, covered.height))
            .collect();
        while let Some((span, since)) = open.pop() {
            if most == 0 {
                break;
            }
            match from.chunk(&span, since).unwrap() {
                Served::TooMany => open.extend(span.halves().unwrap().map(|half| (half, since))),
                Served::Chunk(chunk) => {
                    let sent = chunk.encode();
                    bytes += sent.len();
                    let chunk = Chunk::decode(sent).unwrap();
                    assert!(chunk.span().covers(&span));
                    let target = (from.height(), &from.root());
                    let covered = chunk.span();
                    if coverage.is_saving(&covered) {
                        self.end_save(&mut coverage, &mut saving);
                    }
                    self.store.take_chunk(chunk, target, &mut coverage).unwrap();
                    most -= 1;
                    // As on a thread of its own: it is written after some more chunks were taken.
                    if most.is_multiple_of(3) {
                        self.end_save(&mut coverage, &mut saving);
                        let then = shown(&coverage);
                        saving = coverage.begin_save().map(|save| (save, then));
                    }
                    // A wider chunk than was asked for may cover what is still open.
                    open.retain(|(span, _)| !covered.covers(span));
                }
            }
        }
        self.end_save(&mut coverage, &mut saving);
        self.store.save_chunks(&mut coverage).unwrap();
        bytes
    }

    /// Writes a save, after which the database has the coverage of when it was begun.
    fn end_save(&self, coverage: &mut Coverage, saving: &mut Option<(Save, Vec<Covered>)>) {
        if let Some((save, then)) = saving.take() {
            self.store.write_save(&save).unwrap();
            coverage.end_save();
            assert_eq!(then, shown(&self.store.coverage().unwrap()));
        }
    }

    /// That everything that can be read is what another one has.
    fn equals(&self, other: &Self) {
        assert_eq!(self.tree.root(), other.tree.root());
        assert_eq!(self.store.tip().height, other.store.tip().height);
        assert_eq!(self.store.tip().id, other.store.tip().id);
        assert_eq!(self.store.bonds().unwrap(), other.store.bonds().unwrap());
        let (mut after, mut seen) = (None, 0);
        loop {
            let own = self.store.accounts_after(after).unwrap();
            assert_eq!(own, other.store.accounts_after(after).unwrap());
            let Some((last, _)) = own.last() else { break };
            after = Some(*last);
            seen += own.len();
        }
        assert!(seen >= self.genesis.accounts.len());
    }
}

fn shown(coverage: &Coverage) -> Vec<Covered> {
    coverage.parts().cloned().collect()
}

fn path(folder: &TempDir) -> std::path::PathBuf {
    let path: &Path = folder.path();
    path.join("db")
}

/// A sender and its newest block, after `blocks` blocks with some changed and some new accounts each.
fn sender(genesis: &Genesis, blocks: u64) -> (Node, Arc<Block>) {
    let mut node = Node::new(genesis);
    let count = genesis.accounts.len() as u64;
    let mut newest = None;
    for block in 0..blocks {
        let old = (0..50.min(count)).map(|n| (n * 131 + block * 17) % count);
        let new = (0..50).map(|n| count + block * 50 + n);
        newest = Some(node.commit(old.chain(new)));
    }
    (node, newest.unwrap())
}

#[test]
fn a_new_validator_has_the_whole_state_by_chunks_and_executes_on() {
    for accounts in [0, 3, 40, 700, ACCOUNTS] {
        let genesis = genesis(accounts);
        let (mut from, block) = sender(&genesis, if accounts == 0 { 1 } else { 5 });
        let snapshot = from.store.pin();
        let mut to = Node::new(&genesis);
        to.fetch(&snapshot, usize::MAX);
        let root = snapshot.root();
        to.tree = to.store.finish_sync(block, None, root, None).unwrap();
        to.equals(&from);
        let mut to = to.restart();
        for node in [&mut from, &mut to] {
            node.commit(0..100);
        }
        to.equals(&from);
    }
}

#[test]
fn the_state_that_the_newest_header_names_is_served_after_a_restart() {
    for accounts in [1, 3, 30, 400, ACCOUNTS] {
        let genesis = genesis(accounts);
        let mut node = Node::new(&genesis);
        let mut states = vec![(Height(0), node.tree.root())];
        // How many states before its own each block names, and whether it has a finalization.
        let named = [
            (1, true),
            (2, true),
            (1, false),
            (3, true),
            (4, true),
            (1, true),
        ];
        for (block, (behind, is_certified)) in (0_u64..).zip(named) {
            let old = (0..50.min(accounts)).map(|n| (n * 131 + block * 17) % accounts);
            let new = (0..50).map(|n| accounts + block * 40 + n);
            let named = states[states.len().saturating_sub(behind)];
            let tip = node.commit_naming(named, old.chain(new), is_certified);
            states.push((tip.height(), node.tree.root()));
            node = node.restart();
            let (height, root) = named;
            let Some((state, proof)) = node.store.named_state().unwrap() else {
                assert!(
                    !is_certified || height == Height(0),
                    "block {}",
                    tip.height()
                );
                continue;
            };
            assert!(is_certified);
            let subject = proof.check(&genesis.chain_id()).unwrap();
            assert_eq!((subject.height, subject.root), named);
            assert_eq!((state.height(), state.root()), named);

            let named_block = node.store.block(height).unwrap().unwrap().block;
            let mut to = Node::new(&genesis);
            to.fetch(&state, usize::MAX);
            to.tree = to.store.finish_sync(named_block, None, root, None).unwrap();
            let mut to = to.restart();
            let next = node.store.block(height.next()).unwrap().unwrap().block;
            assert_eq!(next.header().parent, to.store.tip().id);
            // Nothing that the later blocks have added is there.
            for number in 0..accounts + 40 * block + 50 {
                let account = to.store.account(&identity(number)).unwrap();
                let nonce = account.map_or(0, |account| account.nonce);
                assert!(nonce <= height.0, "account {number} after block {height}");
            }
            to.commit(0..3);
        }
    }
}

#[test]
fn a_state_that_does_not_have_the_named_root_is_not_served_after_a_restart() {
    let mut node = Node::new(&genesis(700));
    let mut named = (Height(0), node.tree.root());
    for keeps_undo in [true, true, false] {
        node.keeps_undo = keeps_undo;
        let tip = node.commit_naming(named, 0..50, true);
        named = (tip.height(), node.tree.root());
        node = node.restart();
    }
    assert!(node.store.named_state().unwrap().is_none());
    node.keeps_undo = true;
    for _ in 0..2 {
        let tip = node.commit_naming(named, 10..60, true);
        named = (tip.height(), node.tree.root());
    }
    assert!(node.restart().store.named_state().unwrap().is_some());
}

#[test]
fn only_what_changed_since_is_fetched_by_who_had_an_older_state() {
    let genesis = genesis(ACCOUNTS);
    let mut to = Node::new(&genesis);
    let mut from = Node::new(&genesis);
    for node in [&mut from, &mut to] {
        node.commit(0..ACCOUNTS / 10);
    }
    // A hundredth of all accounts, spread evenly.
    let block = from.commit((0..ACCOUNTS / 100).map(|n| n * 100));
    let snapshot = from.store.pin();
    let whole = Node::new(&genesis).fetch(&snapshot, usize::MAX);
    let changes = to.fetch(&snapshot, usize::MAX);
    assert!(changes * 100 <= whole * 3, "{changes} of {whole} bytes");
    let before = to.store.tip();
    assert!(to.store.block(before.height).unwrap().is_some());
    to.tree = to
        .store
        .finish_sync(block, None, snapshot.root(), None)
        .unwrap();
    to.equals(&from);
    // No block between the two is known, so the older one is gone, and its rows with it.
    assert_eq!(to.store.pruned_below().unwrap(), snapshot.height().next());
    assert_eq!(to.store.base().unwrap(), Some(snapshot.height()));
    let receipts = to.store.receipts(snapshot.height());
    assert!(receipts.unwrap().is_none());
    assert!(to.store.block(before.height).unwrap().is_none());
    assert_eq!(to.store.height_of(&before.id).unwrap(), None);
    assert_eq!(to.store.root(before.height).unwrap(), None);
}

/// Rows carry the height of their last change, those that came in parts too.
#[test]
fn who_fetched_a_state_serves_what_changed_before_it() {
    let genesis = genesis(1_000);
    for is_new in [true, false] {
        let [mut from, mut middle, mut last] = [(); 3].map(|()| Node::new(&genesis));
        from.commit(0..100);
        last.commit(0..100);
        if !is_new {
            middle.commit(0..100);
        }
        let block = from.commit(50..200);
        let bring = |to: &mut Node, from: &Node| {
            let snapshot = from.store.pin();
            to.fetch(&snapshot, usize::MAX);
            let finished = to
                .store
                .finish_sync(block.clone(), None, snapshot.root(), None);
            to.tree = finished.unwrap();
        };
        bring(&mut middle, &from);
        bring(&mut last, &middle);
        last.equals(&from);
    }
}

#[test]
fn a_damaged_state_is_not_served() {
    let genesis = genesis(1_000);
    let mut node = Node::new(&genesis);
    node.commit(0..10);
    let Node { folder, store, .. } = node;
    drop((store, node.tree));
    let database = DB::open_cf(&Options::default(), path(&folder), COLUMNS).unwrap();
    let accounts = database.cf_handle("accounts").unwrap();
    let key = state_key(&identity(500)).0;
    database.put_cf(accounts, key, [0; 24]).unwrap();
    drop(database);
    let (store, _tree) = Store::open(&path(&folder), &genesis).unwrap();
    let snapshot = store.pin();
    for since in [Height(0), Height(1)] {
        let served = snapshot.chunk(&Span::ALL, since);
        assert!(
            matches!(served, Err(StoreError::Damaged { .. })),
            "{served:?}"
        );
    }
}

#[test]
fn accounts_that_no_state_has_are_gone_after_a_sync() {
    let genesis = genesis(ACCOUNTS);
    let (from, block) = sender(&genesis, 3);
    let snapshot = from.store.pin();
    let to = Node::new(&genesis);
    let Node {
        folder,
        store,
        tree,
        ..
    } = to;
    drop((store, tree));
    let database = DB::open_cf(&Options::default(), path(&folder), COLUMNS).unwrap();
    let accounts = database.cf_handle("accounts").unwrap();
    for key in [[0; 32], sha256(&[b"nobody"]).0, [0xff; 32]] {
        database.put_cf(accounts, key, [0; 24]).unwrap();
    }
    drop(database);
    let (store, tree) = Store::open(&path(&folder), &genesis).unwrap();
    let mut to = Node {
        folder,
        genesis,
        store,
        tree,
        keeps_undo: true,
    };
    to.fetch(&snapshot, usize::MAX);
    to.tree = to
        .store
        .finish_sync(block, None, snapshot.root(), None)
        .unwrap();
    to.equals(&from);
}

#[test]
fn a_save_that_a_crash_prevents_is_fetched_again() {
    let genesis = genesis(ACCOUNTS);
    let (from, block) = sender(&genesis, 3);
    let snapshot = from.store.pin();
    let to = Node::new(&genesis);
    to.fetch(&snapshot, 1);
    let mut coverage = to.store.coverage().unwrap();
    let before = shown(&coverage);
    let open = coverage.parts().find(|part| part.height == Height(0));
    let mut span = open.unwrap().span;
    let chunk = loop {
        match from_chunk(&snapshot, &span) {
            Some(chunk) => break chunk,
            None => span = span.halves().unwrap()[1],
        }
    };
    let target = (snapshot.height(), &snapshot.root());
    to.store.take_chunk(chunk, target, &mut coverage).unwrap();
    assert!(coverage.begin_save().is_some());
    drop(coverage);
    let mut to = to.restart();
    assert_eq!(before, shown(&to.store.coverage().unwrap()));
    to.fetch(&snapshot, usize::MAX);
    to.tree = to
        .store
        .finish_sync(block, None, snapshot.root(), None)
        .unwrap();
    to.equals(&from);
}

fn from_chunk(snapshot: &StateSnapshot, span: &Span) -> Option<Chunk> {
    match snapshot.chunk(span, Height(0)).unwrap() {
        Served::TooMany => None,
        Served::Chunk(chunk) => Some(Chunk::decode(chunk.encode()).unwrap()),
    }
}

/// Twenty targets, each after 1,000 accounts of 240,000 have changed and a twentieth of the parts has come.
#[test]
fn a_target_that_moves_again_and_again_costs_little_more_than_the_state() {
    const MOVES: usize = 20;
    let genesis = genesis(4 * ACCOUNTS);
    let (mut from, mut block) = sender(&genesis, 1);
    let mut to = Node::new(&genesis);
    let parts = {
        let counted = Node::new(&genesis);
        counted.fetch(&from.store.pin(), usize::MAX);
        counted.store.coverage().unwrap().parts().count()
    };
    let mut bytes = 0;
    for target in 0..MOVES as u64 {
        // What is there already is brought up first.
        let most = parts * (target as usize + 1) / MOVES;
        bytes += to.fetch(&from.store.pin(), most);
        let count = genesis.accounts.len() as u64;
        let old = (0..950).map(|n| (n * 131 + target * 17) % count);
        let new = (0..50).map(|n| 2 * count + target * 50 + n);
        block = from.commit(old.chain(new));
    }
    let last = from.store.pin();
    bytes += to.fetch(&last, usize::MAX);
    to.tree = to
        .store
        .finish_sync(block, None, last.root(), None)
        .unwrap();
    to.equals(&from);
    let whole = Node::new(&genesis).fetch(&last, usize::MAX);
    println!("{bytes} of {whole} bytes, {parts} parts");
    assert!(
        bytes as f64 <= 1.10 * whole as f64,
        "{bytes} bytes of a state of {whole}, in {parts} parts"
    );
}

#[test]
fn it_goes_on_after_a_restart_and_when_the_target_moves() {
    let genesis = genesis(ACCOUNTS);
    let (mut from, _) = sender(&genesis, 3);
    let first = from.store.pin();
    let to = Node::new(&genesis);
    to.fetch(&first, 2);
    let to = to.restart();
    assert!(to.store.is_syncing().unwrap());
    let done = |node: &Node, height| {
        let coverage = node.store.coverage().unwrap();
        coverage
            .parts()
            .filter(|part| part.height == height)
            .count()
    };
    assert_eq!(
        done(&to, first.height()),
        2,
        "two chunks are not fetched again"
    );
    let block = from.commit(0..1_000);
    let second = from.store.pin();
    let bytes = to.fetch(&second, usize::MAX);
    let whole = Node::new(&genesis).fetch(&second, usize::MAX);
    assert!(
        bytes < whole,
        "{bytes} of {whole}: the first two are brought up by their changes"
    );
    let mut to = to;
    to.tree = to
        .store
        .finish_sync(block, None, second.root(), None)
        .unwrap();
    to.equals(&from);
}

#[test]
fn a_snapshot_stays_as_it_was() {
    let genesis = genesis(1_000);
    let (mut from, _) = sender(&genesis, 2);
    let snapshot = from.store.pin();
    let before = match snapshot.chunk(&Span::ALL, Height(0)).unwrap() {
        Served::Chunk(chunk) => chunk,
        Served::TooMany => panic!("1,100 accounts fit"),
    };
    for _ in 0..20 {
        from.commit(0..500);
    }
    let Served::Chunk(after) = snapshot.chunk(&Span::ALL, Height(0)).unwrap() else {
        panic!("1,100 accounts fit");
    };
    assert_eq!(before, after);
    assert!(before.verify(&snapshot.root(), std::iter::empty()).is_ok());
}

/// A sender, a state of it, a receiver that has begun to fetch, and a part for it.
fn sync_with_a_part() -> (Node, StateSnapshot, Node, Chunk) {
    let genesis = genesis(ACCOUNTS);
    let (from, _) = sender(&genesis, 2);
    let snapshot = from.store.pin();
    let to = Node::new(&genesis);
    to.store.begin_sync().unwrap();
    let span = Span::of(&[0x5a; 32], 4).unwrap();
    let Served::Chunk(chunk) = snapshot.chunk(&span, Height(0)).unwrap() else {
        panic!("a sixteenth of {ACCOUNTS} accounts fits");
    };
    (from, snapshot, to, chunk)
}

/// A node's parts are put together anew on a database that stays open, also in the middle of a sync.
#[test]
fn in_the_middle_of_a_sync_an_open_database_has_no_tree() {
    let (_from, snapshot, to, chunk) = sync_with_a_part();
    let mut coverage = to.store.coverage().unwrap();
    let target = (snapshot.height(), &snapshot.root());
    to.store.take_chunk(chunk, target, &mut coverage).unwrap();
    to.store.save_chunks(&mut coverage).unwrap();
    let tree = to
        .store
        .open_tree()
        .expect("its rows are of no single state");
    assert_eq!(tree.root(), Digest::ZERO);
}

#[test]
fn a_chunk_that_lies_changes_nothing() {
    let (_from, snapshot, to, chunk) = sync_with_a_part();
    let span = chunk.span();
    assert!(chunk.len() > 100 && chunk.len() <= CHUNK_MAX_ENTRIES);
    let honest = chunk.encode();
    let coverage = to.store.coverage().unwrap();
    let root = snapshot.root();
    let take = |chunk: &Chunk, root: &Digest| {
        let mut coverage = to.store.coverage().unwrap();
        let taken = to
            .store
            .take_chunk(chunk.clone(), (snapshot.height(), root), &mut coverage);
        to.store.save_chunks(&mut coverage).unwrap();
        taken
    };
    // One bit anywhere: it cannot be read, or it does not verify.
    for at in (0..honest.len()).step_by(honest.len() / 400) {
        for bit in [1, 0x80] {
            let mut bytes = honest.to_vec();
            bytes[at] ^= bit;
            let Ok(lie) = Chunk::decode(Copying(&bytes[..])) else {
                continue;
            };
            let taken = take(&lie, &root);
            assert!(matches!(taken, Err(ChunkError::Proof(_))), "byte {at}");
        }
    }
    assert!(matches!(
        take(&chunk, &Digest([1; 32])),
        Err(ChunkError::Proof(_))
    ));
    // Changes since a height at which the receiver is not: what it has does not fit.
    let Served::Chunk(changes) = snapshot.chunk(&span, Height(1)).unwrap() else {
        panic!("changes of what fits");
    };
    assert!(changes.len() < chunk.len() && changes.encode_size() < chunk.encode_size());
    assert!(matches!(take(&changes, &root), Err(ChunkError::Proof(_))));
    let is_as_before = || shown(&to.store.coverage().unwrap()) == shown(&coverage);
    assert!(is_as_before(), "nothing is written");
    take(&chunk, &root).unwrap();
    assert!(!is_as_before());
}

#[test]
fn a_chunk_with_too_many_entries_is_refused_before_memory_is_taken() {
    let mut bytes = vec![2, 0];
    bytes.extend([0; 8]);
    bytes.extend(u32::MAX.to_be_bytes());
    assert!(Chunk::decode(Copying(&bytes[..])).is_err());
    let most = CHUNK_MAX_ENTRIES as u32;
    let mut bytes = vec![2, 0];
    bytes.extend([0; 8]);
    bytes.extend(most.to_be_bytes());
    assert!(
        Chunk::decode(Copying(&bytes[..])).is_err(),
        "promised, and not there"
    );
}

const COLUMNS: [&str; 11] = [
    "blocks",
    "ids",
    "receipts",
    "transactions",
    "roots",
    "accounts",
    "nodes",
    "meta",
    "pool",
    "sync",
    "bonds",
];

/// Makes of a database one as the version before wrote it: accounts under their identities, without a
/// height. `but` of them are left as they are, as by an upgrade that was interrupted.
fn downgrade(path: &Path, genesis: &Genesis, but: usize) {
    let database = DB::open_cf(&Options::default(), path, COLUMNS).unwrap();
    let accounts = database.cf_handle("accounts").unwrap();
    let meta = database.cf_handle("meta").unwrap();
    for account in genesis.accounts.iter().skip(but) {
        let key = state_key(&account.identity).0;
        let row = database.get_cf(accounts, key).unwrap().unwrap();
        database.delete_cf(accounts, key).unwrap();
        let old = &row[..row.len() - 8];
        database.put_cf(accounts, account.identity.0, old).unwrap();
    }
    if but == 0 {
        database
            .put_cf(meta, "format", 1_u32.to_be_bytes())
            .unwrap();
    } else {
        database.put_cf(meta, "upgrading", []).unwrap();
    }
}

#[test]
fn a_database_of_the_version_before_is_brought_to_this_one() {
    let genesis = genesis(25_000);
    for but in [0, 12_345] {
        let [mut plain, mut expected] = [(); 2].map(|()| Node::new(&genesis));
        // That version had no bonds.
        let changed = || (0..50).filter(|number: &u64| !number.is_multiple_of(7));
        plain.commit(changed());
        expected.commit(changed());
        let Node {
            folder,
            store,
            tree,
            ..
        } = plain;
        drop((store, tree));
        let path = path(&folder);
        downgrade(&path, &genesis, but);
        assert!(matches!(
            Store::open_to_read(&path, &genesis),
            Err(StoreError::NotUpgraded { .. })
        ));
        let (store, tree) = Store::open(&path, &genesis).unwrap();
        let upgraded = Node {
            folder,
            genesis: genesis.clone(),
            store,
            tree,
            keeps_undo: true,
        };
        upgraded.equals(&expected);
        let account = upgraded.store.account(&identity(8)).unwrap().unwrap();
        assert_eq!((account.nonce, account.balance), (1, 1_001));
        // What it serves from then on is right.
        let snapshot = upgraded.store.pin();
        let span = Span::of(&[0; 32], 3).unwrap();
        assert!(matches!(
            snapshot.chunk(&span, Height(0)).unwrap(),
            Served::Chunk(_)
        ));
        drop(snapshot);
        upgraded.restart().equals(&expected);
    }
}
