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

#[cfg(test)]
mod tests {
    use super::*;

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
