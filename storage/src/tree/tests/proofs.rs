//! Proofs of single keys: the true ones hold, and nothing else does.

use super::*;
use commonware_codec::{Copying, DecodeExt, Encode};

/// Keys in the tree, near them, and anywhere.
fn probes(content: &Content) -> Vec<Key> {
    let mut probes = vec![[0; 32], [0xff; 32], [0x3c; 32]];
    for (index, key) in content.keys().enumerate() {
        probes.push(*key);
        let mut near = *key;
        near[index % 32] ^= 1 << (index % 8);
        probes.push(near);
    }
    probes
}

fn decode(bytes: &[u8]) -> Result<Proof, commonware_codec::Error> {
    Proof::decode(Copying(bytes))
}

/// Puts a proof together from its parts.
fn craft(siblings: &[Digest], entries: &[(&Key, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![1, siblings.len() as u8];
    siblings
        .iter()
        .for_each(|sibling| bytes.extend_from_slice(&sibling.0));
    bytes.push(entries.len() as u8);
    for (key, value) in entries {
        bytes.extend_from_slice(*key);
        bytes.push(value.len() as u8);
        bytes.extend_from_slice(value);
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_key_has_a_proof_and_it_holds_for_nothing_else(content in any_content(300)) {
        let tree = tree_of(&content);
        let other_root = sha256(&[b"other"]);
        let probes = probes(&content);
        for (index, key) in probes.iter().enumerate() {
            let proof = tree.prove(key).unwrap();
            let decoded = decode(&proof.encode()).unwrap();
            prop_assert_eq!(&decoded, &proof);
            let expected = content.get(key).map(Vec::as_slice);
            prop_assert_eq!(decoded.verify(&tree.root(), key), Ok(expected));
            prop_assert!(decoded.verify(&other_root, key).is_err());
            // For another key it proves nothing, or the truth when both are in one leaf's part.
            let other = &probes[(index * 7 + 1) % probes.len()];
            if let Ok(value) = decoded.verify(&tree.root(), other) {
                prop_assert_eq!(value, content.get(other).map(Vec::as_slice));
                prop_assert_eq!(&tree.prove(other).unwrap(), &decoded);
            }
        }
    }

    #[test]
    fn random_bytes_never_panic_nor_prove(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let tree = tree_of(&spread(50));
        for first in [0, 1, 2] {
            let mut bytes = bytes.clone();
            bytes.insert(0, first);
            if let Ok(proof) = decode(&bytes) {
                prop_assert!(proof.verify(&tree.root(), &[7; 32]).is_err());
            }
        }
    }

    #[test]
    fn damaged_proofs_never_hold(
        content in any_content(200),
        pick in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        flip in 1_u8..,
        cut in any::<prop::sample::Index>(),
    ) {
        let tree = tree_of(&content);
        let probes = probes(&content);
        let key = pick.get(&probes);
        let bytes = tree.prove(key).unwrap().encode().to_vec();
        let mut flipped = bytes.clone();
        flipped[at.index(bytes.len())] ^= flip;
        prop_assert!(decode(&flipped).map(|proof| proof.verify(&tree.root(), key).is_err()).unwrap_or(true));
        prop_assert!(decode(&bytes[..cut.index(bytes.len())]).is_err());
        let mut longer = bytes;
        longer.push(flip);
        prop_assert!(decode(&longer).is_err());
    }
}

#[test]
fn no_byte_of_a_proof_can_be_changed() {
    let content = spread(200);
    let tree = tree_of(&content);
    let absent = sha256(&[b"absent"]).0;
    for key in [content.keys().next().unwrap(), &absent] {
        let bytes = tree.prove(key).unwrap().encode().to_vec();
        for at in 0..bytes.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= flip;
                let holds = decode(&damaged).is_ok_and(|p| p.verify(&tree.root(), key).is_ok());
                assert!(!holds, "byte {at} xor {flip:#x}");
            }
        }
    }
}

#[test]
fn proof_of_a_value_does_not_hold_after_it_changed() {
    let content = spread(100);
    let mut tree = tree_of(&content);
    let key = *content.keys().nth(50).unwrap();
    let old = tree.prove(&key).unwrap();
    change(&mut tree, &Content::from([(key, b"changed".to_vec())]));
    assert_eq!(old.verify(&tree.root(), &key), Err(ProofError::OtherRoot));
    let new = tree.prove(&key).unwrap();
    assert_eq!(new.verify(&tree.root(), &key), Ok(Some(&b"changed"[..])));
}

#[test]
fn malformed_leaves_are_refused_when_they_are_read() {
    let (low, high, far) = ([1; 32], [2; 32], [0x81; 32]);
    let value = &[5_u8; 16][..];
    let sibling = [sha256(&[b"sibling"])];
    assert!(decode(&craft(&[], &[(&low, value), (&high, value)])).is_ok());
    assert!(decode(&craft(&sibling, &[(&low, value), (&high, value)])).is_ok());
    let refused = [
        craft(&[], &[(&high, value), (&low, value)]),
        craft(&[], &[(&low, value), (&low, value)]),
        craft(&[], &[(&low, value), (&high, value), (&far, value)]),
        craft(&sibling, &[(&low, value), (&far, value)]),
        craft(&[], &[(&low, &[0; MAX_VALUE_BYTES + 1])]),
    ];
    for bytes in refused {
        assert!(decode(&bytes).is_err());
    }
    let mut other_version = craft(&[], &[(&low, value)]);
    other_version[0] = 2;
    assert!(decode(&other_version).is_err());
}

#[test]
fn leaf_cut_deeper_or_shallower_than_the_tree_cuts_it_does_not_hold() {
    // Two keys in one leaf, which a liar would like to show as two halves, or as an empty half.
    let (low, high) = ([0x11; 32], [0x91; 32]);
    let value = &[5_u8; 16][..];
    let tree = tree_of(&Content::from([
        (low, value.to_vec()),
        (high, value.to_vec()),
    ]));
    let root = tree.root();
    let entry = |key| [EntryRef { key, value }];
    let halves = [leaf_hash(1, &entry(&low)), leaf_hash(1, &entry(&high))];
    let crafted = [
        (low, craft(&halves[1..], &[(&low, value)])),
        (high, craft(&halves[..1], &[(&high, value)])),
        (low, craft(&[root], &[])),
        (low, craft(&[Digest::ZERO], &[(&low, value)])),
        (high, craft(&[], &[(&low, value)])),
        (high, craft(&[], &[])),
    ];
    for (key, bytes) in crafted {
        let proof = decode(&bytes).unwrap();
        assert_eq!(proof.verify(&root, &key), Err(ProofError::OtherRoot));
    }
    let honest = craft(&[], &[(&low, value), (&high, value)]);
    assert_eq!(
        decode(&honest).unwrap().verify(&root, &low),
        Ok(Some(value))
    );
}

#[test]
fn empty_tree_proves_that_every_key_is_absent() {
    let tree = Tree::open(MemoryStore::default()).unwrap();
    let proof = tree.prove(&[9; 32]).unwrap();
    assert_eq!(proof.encode().as_ref(), [1, 0, 0]);
    assert_eq!(proof.verify(&Digest::ZERO, &[9; 32]), Ok(None));
    assert!(proof.verify(&tree_of(&spread(1)).root(), &[9; 32]).is_err());
}

#[test]
fn deepest_proof_stays_below_the_stated_size() {
    let mut content: Content = ground(3, 0);
    // Keys that agree on 254 bits, with the longest values: nothing can lie deeper.
    for last in 0_u8..4 {
        let mut key = [0xa5; 32];
        key[31] = last;
        content.insert(key, vec![1; MAX_VALUE_BYTES]);
    }
    let tree = tree_of(&content);
    let key = content.keys().find(|key| key[30] == 0xa5).unwrap();
    let proof = tree.prove(key).unwrap();
    let bytes = proof.encode();
    assert_eq!(usize::from(bytes[1]), MAX_DEPTH);
    assert!(bytes.len() <= 8_800, "{} bytes", bytes.len());
    assert!(
        decode(&bytes)
            .unwrap()
            .verify(&tree.root(), key)
            .unwrap()
            .is_some()
    );
}

#[test]
fn proof_of_a_key_elsewhere_is_told_from_one_of_another_root() {
    let content = spread(100);
    let tree = tree_of(&content);
    let (first, last) = (
        content.keys().next().unwrap(),
        content.keys().next_back().unwrap(),
    );
    let proof = tree.prove(first).unwrap();
    assert_eq!(proof.verify(&tree.root(), last), Err(ProofError::OtherKey));
    assert_eq!(
        proof.verify(&Digest::ZERO, first),
        Err(ProofError::OtherRoot)
    );
}
