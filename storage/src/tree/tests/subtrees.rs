//! Subtrees: what state sync fetches, verifies alone, and puts together in any order.

use super::*;
use commonware_codec::{Copying, DecodeExt, Encode};

/// All subtrees that together cover the key space, none with more entries than allowed.
fn cover(tree: &Tree<MemoryStore>, nibbles: usize) -> Vec<Subtree> {
    let mut open = vec![Prefix::ROOT];
    let mut subtrees: Vec<Subtree> = Vec::new();
    while let Some(prefix) = open.pop() {
        match tree.subtree(&prefix).unwrap() {
            Some(subtree) if prefix.len() >= nibbles => {
                assert!(subtree.prefix().covers(&prefix));
                if !subtrees
                    .iter()
                    .any(|known| known.prefix() == subtree.prefix())
                {
                    subtrees.push(subtree);
                }
            }
            _ => open.extend(prefix.children().unwrap()),
        }
    }
    subtrees
}

fn reread(subtree: &Subtree) -> Subtree {
    let decoded = Subtree::decode(subtree.encode()).unwrap();
    assert_eq!(decoded, *subtree);
    decoded
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn subtrees_in_any_order_rebuild_the_root(
        content in any_content(400),
        nibbles in 0_usize..4,
        order in any::<u64>(),
    ) {
        let tree = tree_of(&content);
        let mut subtrees = cover(&tree, nibbles);
        subtrees.sort_by_key(|subtree| sha256(&[&order.to_be_bytes(), &subtree.prefix().encode()]));
        let mut copy = Tree::open(MemoryStore::default()).unwrap();
        for subtree in &subtrees {
            let subtree = reread(subtree);
            let entries = subtree.verify(&tree.root()).unwrap();
            let updates = entries.iter().map(|e| (e.key, e.value.clone())).collect();
            change(&mut copy, &updates);
        }
        prop_assert_eq!(copy.root(), tree.root());
        let total: usize = subtrees.iter().map(|s| s.verify(&tree.root()).unwrap().len()).sum();
        prop_assert_eq!(total, content.len(), "each entry once");
    }

    #[test]
    fn damaged_subtrees_never_hold(
        content in any_content(150),
        prefix in prop::collection::vec(0_u8..16, 0..4),
        at in any::<prop::sample::Index>(),
        flip in 1_u8..,
        cut in any::<prop::sample::Index>(),
    ) {
        let tree = tree_of(&content);
        let subtree = tree.subtree(&Prefix::new(&prefix).unwrap()).unwrap().unwrap();
        prop_assert!(subtree.verify(&tree.root()).is_ok());
        let bytes = subtree.encode().to_vec();
        let mut flipped = bytes.clone();
        flipped[at.index(bytes.len())] ^= flip;
        if let Ok(damaged) = Subtree::decode(Copying(&flipped[..])) {
            prop_assert!(damaged.verify(&tree.root()).is_err());
        }
        prop_assert!(Subtree::decode(Copying(&bytes[..cut.index(bytes.len())])).is_err());
    }

    #[test]
    fn random_bytes_never_panic_nor_hold(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
        let root = tree_of(&spread(50)).root();
        for head in [&[1, 0][..], &[1, 2], &[1]] {
            let bytes = [head, &bytes].concat();
            if let Ok(subtree) = Subtree::decode(Copying(&bytes[..])) {
                prop_assert!(subtree.verify(&root).is_err());
            }
        }
    }
}

#[test]
fn twenty_thousand_accounts_are_cut_into_subtrees_that_fit() {
    let mut content = spread(20_000);
    content.extend(ground(6_000, 20));
    let tree = tree_of(&content);
    assert!(
        tree.subtree(&Prefix::ROOT).unwrap().is_none(),
        "too many entries for one"
    );
    let subtrees = cover(&tree, 0);
    assert!(
        subtrees.iter().any(|subtree| subtree.prefix().len() > 5),
        "deeper where it is dense"
    );
    let mut copy = Tree::open(MemoryStore::default()).unwrap();
    for subtree in subtrees.iter().rev() {
        let entries = subtree.verify(&tree.root()).unwrap();
        assert!(entries.len() <= SUBTREE_MAX_ENTRIES);
        change(
            &mut copy,
            &entries.iter().map(|e| (e.key, e.value.clone())).collect(),
        );
    }
    assert_eq!(copy.root(), tree.root());
}

#[test]
fn exactly_the_most_entries_fit_into_a_subtree() {
    let content = spread(SUBTREE_MAX_ENTRIES as u32);
    let tree = tree_of(&content);
    let subtree = reread(&tree.subtree(&Prefix::ROOT).unwrap().unwrap());
    assert_eq!(
        subtree.verify(&tree.root()).unwrap().len(),
        SUBTREE_MAX_ENTRIES
    );
    let more = spread(SUBTREE_MAX_ENTRIES as u32 + 1);
    assert!(tree_of(&more).subtree(&Prefix::ROOT).unwrap().is_none());
    let entries = more
        .into_iter()
        .map(|(key, value)| Entry { key, value })
        .collect();
    let too_many = Subtree::new(Prefix::ROOT, Vec::new(), entries);
    assert!(Subtree::decode(too_many.encode()).is_err());
}

#[test]
fn subtree_with_an_entry_left_out_added_or_moved_does_not_hold() {
    let content = spread(5_000);
    let tree = tree_of(&content);
    let prefix = Prefix::new(&[7]).unwrap();
    let honest = tree.subtree(&prefix).unwrap().unwrap();
    let entries = honest.verify(&tree.root()).unwrap().to_vec();
    let siblings = path_to(&tree, &prefix);
    let crafted = |prefix, entries: &[Entry]| {
        Subtree::new(prefix, siblings.clone(), entries.to_vec())
            .verify(&tree.root())
            .is_ok()
    };
    assert!(crafted(prefix, &entries));
    assert!(!crafted(prefix, &entries[1..]));
    assert!(!crafted(prefix, &[]));
    assert!(!crafted(Prefix::new(&[6]).unwrap(), &entries));
    let mut more = entries.clone();
    more[0].value.push(0);
    assert!(!crafted(prefix, &more));
    more = entries.clone();
    let mut extra = entries[0].clone();
    extra.key[31] ^= 1;
    more.push(extra);
    more.sort_by_key(|entry| entry.key);
    assert!(!crafted(prefix, &more));
}

/// The siblings of a prefix, read off a proof for a key under it.
fn path_to(tree: &Tree<MemoryStore>, prefix: &Prefix) -> Vec<Digest> {
    let bytes = tree.prove(prefix.padded()).unwrap().encode();
    bytes[2..2 + 128 * prefix.len()]
        .chunks(32)
        .map(|c| Digest(c.try_into().unwrap()))
        .collect()
}

#[test]
fn entries_out_of_order_or_outside_the_prefix_are_refused_when_they_are_read() {
    let content = spread(40);
    let tree = tree_of(&content);
    let entries = |indices: &[usize]| -> Vec<Entry> {
        let at = |&i: &usize| {
            content.iter().nth(i).map(|(k, v)| Entry {
                key: *k,
                value: v.clone(),
            })
        };
        indices.iter().filter_map(at).collect()
    };
    let read = |prefix, entries: Vec<Entry>| {
        let siblings = vec![Digest::ZERO; 4 * Prefix::len(&prefix)];
        Subtree::decode(Subtree::new(prefix, siblings, entries).encode())
    };
    assert!(read(Prefix::ROOT, entries(&[0, 1, 2])).is_ok());
    assert!(read(Prefix::ROOT, entries(&[0, 2, 1])).is_err());
    assert!(read(Prefix::ROOT, entries(&[0, 1, 1])).is_err());
    let last = Prefix::of_key(content.keys().next_back().unwrap(), 1);
    assert!(read(last, entries(&[39])).is_ok());
    assert!(read(last, entries(&[0, 39])).is_err());
    assert!(tree.subtree(&Prefix::ROOT).unwrap().is_some());
}

#[test]
fn bucket_or_nothing_above_the_prefix_is_answered_with_the_shorter_prefix() {
    let content = spread(20);
    let tree = tree_of(&content);
    let asked = Prefix::new(&[1, 2, 3]).unwrap();
    let answer = tree.subtree(&asked).unwrap().unwrap();
    assert_eq!(answer.prefix(), Prefix::ROOT);
    assert!(answer.prefix().covers(&asked));
    assert_eq!(answer.verify(&tree.root()).unwrap().len(), 20);
    // A branch at the root, and nothing under one of its children.
    let tree = tree_of(&ground(50, 8));
    let answer = tree.subtree(&asked).unwrap().unwrap();
    assert_eq!(answer.prefix(), Prefix::new(&[1]).unwrap());
    assert!(reread(&answer).verify(&tree.root()).unwrap().is_empty());
}
