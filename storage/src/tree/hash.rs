//! The hashes of leaves, inner nodes, buckets and branches. The layout is in the parent's head.

use super::{
    BUCKET_LIMIT, Key, LEAF_LIMIT,
    path::{bit, nibble},
};
use quorate_crypto::{Digest, sha256};

const LEAF_TAG: u8 = 0x00;
const INNER_TAG: u8 = 0x01;

/// How many children a branch has.
pub(super) const FAN_OUT: usize = 16;

/// A key with its value, both borrowed.
#[derive(Clone, Copy)]
pub(super) struct EntryRef<'a> {
    pub(super) key: &'a Key,
    pub(super) value: &'a [u8],
}

/// The hash of a node with two halves.
pub(super) fn inner_hash(left: &Digest, right: &Digest) -> Digest {
    sha256(&[&[INNER_TAG], &left.0, &right.0])
}

/// The hash of a leaf whose path has `depth` bits: [`Digest::ZERO`] if it has no entry.
///
/// The entries are sorted, at most [`LEAF_LIMIT`], and their values at most 255 bytes.
pub(super) fn leaf_hash(depth: usize, entries: &[EntryRef<'_>]) -> Digest {
    if entries.is_empty() {
        return Digest::ZERO;
    }
    let head = [
        LEAF_TAG,
        u8::try_from(depth).expect("more than LEAF_LIMIT keys part before bit 256"),
        u8::try_from(entries.len()).expect("at most LEAF_LIMIT"),
    ];
    let mut lengths = [[0; 1]; LEAF_LIMIT];
    for (length, entry) in lengths.iter_mut().zip(entries) {
        *length = [u8::try_from(entry.value.len()).expect("at most MAX_VALUE_BYTES")];
    }
    let mut parts: [&[u8]; 1 + 3 * LEAF_LIMIT] = [&[]; 1 + 3 * LEAF_LIMIT];
    parts[0] = &head;
    for ((parts, length), entry) in parts[1..].chunks_mut(3).zip(&lengths).zip(entries) {
        parts.copy_from_slice(&[entry.key, length, entry.value]);
    }
    sha256(&parts)
}

/// Where the entries, sorted and equal up to bit `depth`, go over from a zero to a one there.
pub(super) fn split(depth: usize, entries: &[EntryRef<'_>]) -> usize {
    entries.partition_point(|entry| !bit(entry.key, depth))
}

/// The hash of a bucket, or of a part of one, whose path has `depth` bits.
pub(super) fn bucket_hash(depth: usize, entries: &[EntryRef<'_>]) -> Digest {
    if entries.len() <= LEAF_LIMIT {
        return leaf_hash(depth, entries);
    }
    let (left, right) = entries.split_at(split(depth, entries));
    inner_hash(
        &bucket_hash(depth + 1, left),
        &bucket_hash(depth + 1, right),
    )
}

/// The hash of the subtree whose prefix has that many nibbles and that holds exactly these entries.
pub(super) fn subtree_hash(nibbles: usize, entries: &[EntryRef<'_>]) -> Digest {
    if entries.len() <= BUCKET_LIMIT {
        return bucket_hash(nibbles * 4, entries);
    }
    let mut children = [[0; 32]; FAN_OUT];
    for group in by_nibble(nibbles, entries) {
        children[usize::from(nibble(group[0].key, nibbles))] = subtree_hash(nibbles + 1, group).0;
    }
    Branch::new(&children).hash()
}

/// The runs of sorted entries that have the same nibble at an index.
pub(super) fn by_nibble<'s, 'e>(
    index: usize,
    entries: &'s [EntryRef<'e>],
) -> impl Iterator<Item = &'s [EntryRef<'e>]> {
    entries.chunk_by(move |left, right| nibble(left.key, index) == nibble(right.key, index))
}

/// A node with sixteen children and the binary tree over them, 1 KiB.
#[derive(Clone)]
pub(super) struct Branch {
    /// Node `i` has the children `2i` and `2i + 1`; 1 is the top, 16 to 31 are the branch's
    /// children, 0 is unused.
    nodes: [Digest; 2 * FAN_OUT],
}

impl Branch {
    /// The branch over these children.
    pub(super) fn new(children: &[[u8; 32]; FAN_OUT]) -> Self {
        let mut branch = Self {
            nodes: [Digest::ZERO; 2 * FAN_OUT],
        };
        branch.nodes[FAN_OUT..].copy_from_slice(&children.map(Digest));
        branch.rehash(u32::MAX);
        branch
    }

    /// The hash of the branch.
    pub(super) fn hash(&self) -> Digest {
        self.nodes[1]
    }

    /// The child at a nibble.
    pub(super) fn child(&self, nibble: u8) -> Digest {
        self.nodes[FAN_OUT + usize::from(nibble)]
    }

    /// All children in order.
    pub(super) fn children(&self) -> &[Digest] {
        &self.nodes[FAN_OUT..]
    }

    /// Replaces children and hashes everything above them again.
    pub(super) fn replace(&mut self, changes: &[(u8, Digest)]) {
        let mut dirty = 0_u32;
        for &(nibble, digest) in changes {
            let index = FAN_OUT + usize::from(nibble);
            self.nodes[index] = digest;
            dirty |= 1 << (index / 2);
        }
        self.rehash(dirty);
    }

    /// Hashes the nodes whose bit is set, and those above them.
    fn rehash(&mut self, mut dirty: u32) {
        for index in (1..FAN_OUT).rev() {
            if dirty & (1 << index) != 0 {
                self.nodes[index] = inner_hash(&self.nodes[2 * index], &self.nodes[2 * index + 1]);
                dirty |= 1 << (index / 2);
            }
        }
    }

    /// Appends the four siblings on the way down to a child, the topmost first.
    pub(super) fn siblings(&self, nibble: u8, out: &mut Vec<Digest>) {
        let child = FAN_OUT + usize::from(nibble);
        out.extend([3, 2, 1, 0].map(|up| self.nodes[(child >> up) ^ 1]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacing_children_equals_building_anew_and_siblings_fold_to_the_hash() {
        let mut children = [[0; 32]; FAN_OUT];
        let mut branch = Branch::new(&children);
        for round in 0_u8..34 {
            let changes: Vec<_> = (0..=round % 3)
                .map(|step| ((round * 7 + step * 5) % 16, sha256(&[&[round, step]])))
                .collect();
            for &(nibble, digest) in &changes {
                children[usize::from(nibble)] = digest.0;
            }
            branch.replace(&changes);
            assert_eq!(branch.hash(), Branch::new(&children).hash());
            for nibble in 0..16 {
                let mut siblings = Vec::new();
                branch.siblings(nibble, &mut siblings);
                let mut hash = branch.child(nibble);
                for (level, sibling) in siblings.iter().rev().enumerate() {
                    hash = if (nibble >> level) & 1 == 1 {
                        inner_hash(sibling, &hash)
                    } else {
                        inner_hash(&hash, sibling)
                    };
                }
                assert_eq!(hash, branch.hash());
            }
        }
    }
}
