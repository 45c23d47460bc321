//! The tree against the naive reference.

use super::*;

/// Every `step`-th entry from `offset` on.
fn part(content: &Content, step: usize, offset: usize) -> Content {
    content
        .iter()
        .skip(offset)
        .step_by(step)
        .map(|(key, value)| (*key, value.clone()))
        .collect()
}

fn check<S: NodeStore>(tree: &Tree<S>, content: &Content) {
    assert_eq!(tree.root(), naive_root(content));
    for (key, value) in content {
        assert_eq!(tree.get(key).unwrap().as_ref(), Some(value));
        let mut absent = *key;
        absent[31] ^= 1;
        assert_eq!(tree.get(&absent).unwrap().as_ref(), content.get(&absent));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn root_and_rows_depend_on_the_content_alone(
        batches in prop::collection::vec(any_content(120), 1..6),
    ) {
        let mut tree = Tree::open(MemoryStore::default()).unwrap();
        let mut model = Content::new();
        for batch in &batches {
            model.extend(batch.clone());
            change(&mut tree, batch);
            check(&tree, &model);
        }
        // The final values at once, and in another order: the same rows to the byte.
        let mut at_once = tree_of(&model);
        let mut shuffled = Tree::open(MemoryStore::default()).unwrap();
        for offset in [2, 0, 1] {
            change(&mut shuffled, &part(&model, 3, offset));
        }
        prop_assert_eq!(at_once.store_mut().rows_mut(), shuffled.store_mut().rows_mut());
        prop_assert_eq!(at_once.store_mut().rows_mut(), tree.store_mut().rows_mut());
        let reopened = Tree::open(tree.store().clone()).unwrap();
        check(&reopened, &model);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn rocksdb_holds_the_same_rows_as_memory_and_opens_again(
        batches in prop::collection::vec(any_content(200), 1..5),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut memory = Tree::open(MemoryStore::default()).unwrap();
        let mut model = Content::new();
        for batch in &batches {
            let mut tree = Tree::open(Rocks::open(folder.path())).unwrap();
            model.extend(batch.clone());
            change(&mut tree, batch);
            change(&mut memory, batch);
            check(&tree, &model);
            prop_assert_eq!(&tree.store().rows(), memory.store_mut().rows_mut());
        }
        check(&Tree::open(Rocks::open(folder.path())).unwrap(), &model);
    }
}

#[test]
fn ten_thousand_accounts_have_the_naive_root_on_both_stores() {
    let content = spread(10_000);
    let folder = tempfile::tempdir().unwrap();
    let mut rocks = Tree::open(Rocks::open(folder.path())).unwrap();
    for offset in 0..4 {
        change(&mut rocks, &part(&content, 4, offset));
    }
    check(&rocks, &content);
    check(&tree_of(&content), &content);
}

#[test]
fn empty_tree_has_the_zero_root_and_no_rows_but_its_own() {
    let mut tree = Tree::open(MemoryStore::default()).unwrap();
    assert_eq!(tree.root(), Digest::ZERO);
    assert_eq!(tree.get(&[0; 32]).unwrap(), None);
    change(&mut tree, &Content::new());
    assert_eq!(tree.root(), Digest::ZERO);
    assert_eq!(tree.store_mut().rows_mut().len(), 1);
    assert_eq!(
        Tree::open(tree.store().clone()).unwrap().root(),
        Digest::ZERO
    );
}

#[test]
fn changes_that_are_not_committed_leave_everything_as_it_was() {
    let content = spread(3_000);
    let mut tree = tree_of(&content);
    let root = tree.root();
    let rows = tree.store_mut().rows_mut().clone();
    let changed: Content = content
        .keys()
        .take(500)
        .map(|key| (*key, vec![7; 20]))
        .collect();
    let dropped = tree.prepare(&changed).unwrap();
    assert_ne!(dropped.root(), root);
    drop(dropped);
    assert_eq!(tree.root(), root);
    assert_eq!(*tree.store_mut().rows_mut(), rows);
    check(&tree, &content);
    // What is prepared next starts from the old state, not from the dropped one.
    let other: Content = content
        .keys()
        .skip(400)
        .take(300)
        .map(|key| (*key, vec![9]))
        .collect();
    change(&mut tree, &other);
    let mut model = content;
    model.extend(other);
    check(&tree, &model);
}

#[test]
fn crash_before_the_write_and_after_it_opens_at_the_old_and_the_new_root() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = {
        let mut tree = Tree::open(Rocks::open(folder.path())).unwrap();
        change(&mut tree, &spread(500));
        let changes = tree.prepare(&ground(100, 16)).unwrap();
        (tree.root(), changes.root())
    };
    {
        let mut tree = Tree::open(Rocks::open(folder.path())).unwrap();
        assert_eq!(tree.root(), old);
        let changes = tree.prepare(&ground(100, 16)).unwrap();
        tree.store_mut().write(&changes);
    }
    assert_eq!(Tree::open(Rocks::open(folder.path())).unwrap().root(), new);
}

#[test]
fn values_that_stay_the_same_write_only_the_root() {
    let content = spread(2_000);
    let tree = tree_of(&content);
    let changes = tree.prepare(&part(&content, 7, 0)).unwrap();
    assert_eq!(changes.root(), tree.root());
    assert_eq!(changes.rows().len(), 1);
}

#[test]
#[should_panic(expected = "another root")]
fn changes_prepared_from_an_older_root_are_not_committed() {
    let mut tree = tree_of(&spread(100));
    let stale = tree.prepare(&spread(101)).unwrap();
    change(&mut tree, &spread(102));
    tree.commit(stale);
}

#[test]
fn empty_value_is_not_absence_and_longer_than_allowed_is_refused() {
    let tree = tree_of(&Content::from([([1; 32], vec![])]));
    assert_eq!(tree.get(&[1; 32]).unwrap(), Some(vec![]));
    assert_eq!(tree.get(&[2; 32]).unwrap(), None);
    let longest = Content::from([([1; 32], vec![0; MAX_VALUE_BYTES])]);
    assert!(tree.prepare(&longest).is_ok());
    let too_long = Content::from([([1; 32], vec![0; MAX_VALUE_BYTES + 1])]);
    assert!(matches!(
        tree.prepare(&too_long),
        Err(TreeError::ValueTooLong { bytes, .. }) if bytes == MAX_VALUE_BYTES + 1
    ));
}

#[test]
fn keys_ground_under_one_prefix_only_deepen_the_trie_there() {
    for (count, bits, most_rows) in [(10_000, 16, 9), (10_000, 40, 15), (64, 250, 65)] {
        let mut content = ground(count, bits);
        content.extend(spread(1_000));
        let mut tree = tree_of(&content);
        check(&tree, &content);
        let key = *ground(1, bits).keys().next().unwrap();
        let update = Content::from([(key, vec![0xee; 24])]);
        let changes = tree.prepare(&update).unwrap();
        assert!(
            changes.rows().len() <= most_rows,
            "{} rows at {bits}",
            changes.rows().len()
        );
        tree.store_mut().apply(&changes);
        tree.commit(changes);
        content.extend(update);
        check(&tree, &content);
        let proof = tree.prove(&key).unwrap();
        assert_eq!(proof.verify(&tree.root(), &key), Ok(Some(&[0xee; 24][..])));
    }
}

/// Counts how often the store is asked.
struct Counting(MemoryStore, std::cell::Cell<usize>);

impl NodeStore for Counting {
    fn get(&self, key: &RowKey) -> Result<Option<Vec<u8>>, DatabaseError> {
        self.get_sorted(&[*key]).map(|mut rows| rows.remove(0))
    }

    fn get_sorted(&self, keys: &[RowKey]) -> Result<Vec<Option<Vec<u8>>>, DatabaseError> {
        self.1.set(self.1.get() + keys.len());
        assert!(
            keys.is_sorted_by_key(|key| key.as_ref()),
            "RocksDB is told that they are sorted"
        );
        self.0.get_sorted(keys)
    }
}

#[test]
fn loaded_rows_are_not_read_again_and_change_no_result() {
    let mut content = spread(3_000);
    content.extend(ground(500, 24));
    let memory = tree_of(&content);
    let tree = Tree::open(Counting(memory.store().clone(), Default::default())).unwrap();
    let mut keys: BTreeSet<Key> = content.keys().step_by(3).copied().collect();
    keys.extend((0_u32..200).map(|index| sha256(&[b"absent", &index.to_be_bytes()]).0));
    let loaded = tree.load(&keys).unwrap();
    let reads = tree.store().1.get();
    for key in &keys {
        assert_eq!(
            tree.get_loaded(&loaded, key).unwrap().as_ref(),
            content.get(key)
        );
    }
    assert_eq!(tree.store().1.get(), reads);
    // A key that was not loaded is read from the store.
    let other = content.keys().nth(1).unwrap();
    assert_eq!(
        tree.get_loaded(&loaded, other).unwrap().as_ref(),
        content.get(other)
    );

    let mut updates: Content = keys.iter().map(|key| (*key, vec![3; 20])).collect();
    let expected = tree.prepare(&updates).unwrap();
    let reads = tree.store().1.get();
    let changes = tree.prepare_loaded(loaded, &updates).unwrap();
    assert_eq!(tree.store().1.get(), reads);
    assert_eq!(changes.root(), expected.root());
    assert!(
        changes
            .rows()
            .map(|(k, r)| (k.as_ref(), r))
            .eq(expected.rows().map(|(k, r)| (k.as_ref(), r)))
    );

    // Neither is what has to be read besides.
    let half: BTreeSet<Key> = keys.iter().step_by(2).copied().collect();
    updates.insert(*other, vec![4; 20]);
    let changes = tree
        .prepare_loaded(tree.load(&half).unwrap(), &updates)
        .unwrap();
    content.extend(updates);
    assert_eq!(changes.root(), naive_root(&content));
}

#[test]
#[should_panic(expected = "another root")]
fn rows_loaded_before_the_last_commit_are_not_used() {
    let mut tree = tree_of(&spread(100));
    let loaded = tree.load(&BTreeSet::from([[1; 32]])).unwrap();
    change(&mut tree, &spread(102));
    let _ = tree.prepare_loaded(loaded, &spread(103));
}

#[test]
#[should_panic(expected = "another root")]
fn values_loaded_before_the_last_commit_are_not_used() {
    let mut tree = tree_of(&spread(100));
    let loaded = tree.load(&BTreeSet::from([[1; 32]])).unwrap();
    change(&mut tree, &spread(102));
    let _ = tree.get_loaded(&loaded, &[1; 32]);
}
