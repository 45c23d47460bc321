//! A damaged store is noticed or at least never believed, and never panics.

use super::*;

fn damaged(content: &Content, damage: impl Fn(&mut Rows)) -> MemoryStore {
    let mut tree = tree_of(content);
    damage(tree.store_mut().rows_mut());
    tree.store().clone()
}

#[test]
fn damaged_root_or_upper_branch_is_found_when_opening() {
    let content = spread(1_000);
    let opens = |damage: &dyn Fn(&mut Rows)| Tree::open(damaged(&content, damage)).err();
    assert!(opens(&|_| ()).is_none());
    let meta = RowKey::META.as_ref().to_vec();
    let root = Prefix::ROOT.row_key().as_ref().to_vec();
    let branch = Prefix::new(&[5]).unwrap().row_key().as_ref().to_vec();
    let set = |key: &Vec<u8>, at: usize| {
        let key = key.clone();
        move |rows: &mut Rows| rows.get_mut(&key).unwrap()[at] ^= 1
    };
    assert!(matches!(opens(&set(&meta, 0)), Some(TreeError::Format)));
    assert!(matches!(opens(&set(&meta, 1)), Some(TreeError::Format)));
    for damage in [
        set(&meta, 10),
        set(&root, 0),
        set(&root, 40),
        set(&branch, 77),
    ] {
        assert!(matches!(opens(&damage), Some(TreeError::Corrupt { .. })));
    }
    for missing in [&meta, &root, &branch] {
        let found = opens(&|rows| drop(rows.remove(missing)));
        assert!(
            matches!(found, Some(TreeError::Corrupt { .. })),
            "{found:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_damage_panics_or_makes_the_tree_prove_a_lie(
        content in any_content(300),
        row in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        flip in 1_u8..,
        cut in any::<bool>(),
    ) {
        prop_assume!(!content.is_empty());
        let root = tree_of(&content).root();
        let store = damaged(&content, |rows| {
            let index = row.index(rows.len());
            let (_, bytes) = rows.iter_mut().nth(index).unwrap();
            let at = at.index(bytes.len());
            if cut { bytes.truncate(at) } else { bytes[at] ^= flip }
        });
        let Ok(tree) = Tree::open(store) else { return Ok(()) };
        prop_assert_eq!(tree.root(), root);
        for key in content.keys() {
            let _ = tree.get(key);
            if let Ok(proof) = tree.prove(key) {
                prop_assert_eq!(
                    proof.verify(&root, key),
                    Ok(content.get(key).map(Vec::as_slice))
                );
            }
        }
        let _ = tree.prepare(&content.keys().map(|key| (*key, vec![1])).collect());
        if let Ok(Some(subtree)) = tree.subtree(&Prefix::ROOT) {
            prop_assert!(subtree.verify(&root).is_ok());
        }
    }
}

#[test]
fn nothing_is_built_on_a_damaged_branch_below_the_cached_ones() {
    let content = ground(100, 20);
    let deep = Prefix::new(&[0xa, 5, 0xa, 5, 0xa])
        .unwrap()
        .row_key()
        .as_ref()
        .to_vec();
    let store = damaged(&content, |rows| rows.get_mut(&deep).unwrap()[100] ^= 1);
    let tree = Tree::open(store).unwrap();
    let key = *content.keys().next().unwrap();
    let found = tree.prepare(&Content::from([(key, vec![1])])).err();
    assert!(
        matches!(found, Some(TreeError::Corrupt { .. })),
        "{found:?}"
    );
}
