//! The Merkle root of a list (RFC 6962, section 2.1, with digests as the leaves' data).

use quorate_crypto::{Digest, sha256};

/// The root over the leaves, or [`Digest::ZERO`] for none. The list is split at the largest power
/// of two below its length, and leaves and inner nodes are hashed with different first bytes, so
/// that no two lists share a root.
pub fn merkle_root(leaves: &[Digest]) -> Digest {
    match leaves {
        [] => Digest::ZERO,
        [leaf] => sha256(&[&[0], &leaf.0]),
        _ => {
            let split = leaves.len().next_power_of_two() / 2;
            let (left, right) = leaves.split_at(split);
            sha256(&[&[1], &merkle_root(left).0, &merkle_root(right).0])
        }
    }
}

/// The siblings on the way from a leaf up to the root (RFC 6962, section 2.1.1), the leaf's own
/// first; `None` if there is no such leaf. At most 13 for a block's transactions.
pub fn merkle_path(leaves: &[Digest], index: usize) -> Option<Vec<Digest>> {
    if index >= leaves.len() {
        return None;
    }
    if leaves.len() == 1 {
        return Some(Vec::new());
    }
    let (left, right) = leaves.split_at(leaves.len().next_power_of_two() / 2);
    let (mut path, sibling) = match index.checked_sub(left.len()) {
        None => (merkle_path(left, index)?, merkle_root(right)),
        Some(index) => (merkle_path(right, index)?, merkle_root(left)),
    };
    path.push(sibling);
    Some(path)
}

/// Whether a leaf is at an index of a list of this length, given its root (RFC 9162, section
/// 2.1.3.2).
pub fn merkle_verify(
    root: &Digest,
    leaf: &Digest,
    index: usize,
    count: usize,
    path: &[Digest],
) -> bool {
    if index >= count {
        return false;
    }
    let (mut place, mut last) = (index, count - 1);
    let mut node = sha256(&[&[0], &leaf.0]);
    for sibling in path {
        if last == 0 {
            return false;
        }
        if place % 2 == 1 || place == last {
            node = sha256(&[&[1], &sibling.0, &node.0]);
            while place.is_multiple_of(2) && place != 0 {
                (place, last) = (place / 2, last / 2);
            }
        } else {
            node = sha256(&[&[1], &node.0, &sibling.0]);
        }
        (place, last) = (place / 2, last / 2);
    }
    last == 0 && node == *root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_leaf_has_a_path_that_holds_for_it_alone() {
        let all: Vec<Digest> = (0_u8..33).map(|i| sha256(&[&[i]])).collect();
        for count in 1..=all.len() {
            let leaves = &all[..count];
            let root = merkle_root(leaves);
            for (index, leaf) in leaves.iter().enumerate() {
                let path = merkle_path(leaves, index).expect("the index is below the count");
                assert!(merkle_verify(&root, leaf, index, count, &path));
                let other = (index + 1) % count;
                assert!(other == index || !merkle_verify(&root, leaf, other, count, &path));
                assert!(!merkle_verify(&root, &root, index, count, &path));
                let longer = [path.as_slice(), &[root]].concat();
                assert!(!merkle_verify(&root, leaf, index, count, &longer));
                if let Some((_, shorter)) = path.split_last() {
                    assert!(!merkle_verify(&root, leaf, index, count, shorter));
                }
            }
            assert_eq!(merkle_path(leaves, count), None);
        }
    }

    #[test]
    fn lists_that_differ_in_length_or_order_differ_in_root() {
        let leaves: Vec<Digest> = (0_u8..9).map(|i| sha256(&[&[i]])).collect();
        let mut roots: Vec<Digest> = (0..=9).map(|n| merkle_root(&leaves[..n])).collect();
        let mut swapped = leaves.clone();
        swapped.swap(3, 4);
        roots.push(merkle_root(&swapped));
        // An inner node offered as a leaf.
        roots.push(merkle_root(&[merkle_root(&leaves[..2])]));
        let count = roots.len();
        roots.sort_unstable();
        roots.dedup();
        assert_eq!(roots.len(), count);
    }
}
