//! The upper branches, which are kept in memory.

use super::{
    NodeStore, TreeError,
    hash::Branch,
    path::Prefix,
    row::{self, Row},
};
use quorate_crypto::Digest;

/// How many levels of branches, from the root down, are kept in memory.
const LEVELS: usize = 4;

/// Where each level's slots begin, and their number: 1 + 16 + 256 + 4096.
const FIRST_SLOT: [usize; LEVELS + 1] = [0, 1, 17, 273, 4369];

/// One slot for each prefix of fewer than [`LEVELS`] nibbles; full, all of it has 4.6 MB.
pub(super) type Upper = Box<[Option<Box<Branch>>]>;

/// The slot of a prefix, or `None` if it is too long to be kept in memory.
pub(super) fn slot(prefix: &Prefix) -> Option<usize> {
    let first = *FIRST_SLOT[..LEVELS].get(prefix.len())?;
    let [high, low, ..] = *prefix.padded();
    Some(first + (usize::from(u16::from_be_bytes([high, low])) >> (16 - prefix.bits())))
}

/// No branches.
pub(super) fn empty() -> Upper {
    (0..FIRST_SLOT[LEVELS]).map(|_| None).collect()
}

/// Reads the upper branches of the tree with that root, and checks each against its parent.
///
/// # Errors
/// [`TreeError::Corrupt`] if a row is missing, malformed, or does not have the hash that its parent
/// states.
pub(super) fn load(store: &impl NodeStore, root: Digest) -> Result<Upper, TreeError> {
    let mut upper = empty();
    let mut level = vec![(Prefix::ROOT, root)];
    for _ in 0..LEVELS {
        level.retain(|(_, hash)| *hash != Digest::ZERO);
        let keys: Vec<_> = level.iter().map(|(prefix, _)| prefix.row_key()).collect();
        let mut next = Vec::new();
        for ((prefix, hash), answer) in level.into_iter().zip(store.get_sorted(&keys)?) {
            let corrupt = |what| TreeError::Corrupt { prefix, what };
            let bytes = answer.ok_or(corrupt("missing row"))?;
            let found = match row::decode(&prefix, &bytes)? {
                Row::Bucket(entries) => super::hash::bucket_hash(prefix.bits(), &entries),
                Row::Branch(children) => {
                    let branch = Branch::new(children);
                    let found = branch.hash();
                    next.extend((0..16).map(|n| (prefix.extended(n), branch.child(n))));
                    let slot = slot(&prefix).expect("fewer than LEVELS nibbles");
                    upper[slot] = Some(Box::new(branch));
                    found
                }
            };
            if found != hash {
                return Err(corrupt("hash"));
            }
        }
        level = next;
    }
    Ok(upper)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_short_prefix_has_its_own_slot() {
        let mut level = vec![Prefix::ROOT];
        let mut expected = 0..;
        for _ in 0..LEVELS {
            for prefix in &level {
                assert_eq!(slot(prefix), expected.next());
            }
            level = level
                .iter()
                .flat_map(|prefix| prefix.children().expect("short"))
                .collect();
        }
        assert_eq!(expected.next(), Some(FIRST_SLOT[LEVELS]));
        assert_eq!(slot(&level[0]), None);
    }
}
