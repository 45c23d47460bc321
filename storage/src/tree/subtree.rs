//! A part of the tree that verifies alone: what state sync fetches.

use super::{
    hash::{EntryRef, subtree_hash},
    path::{NIBBLE_BITS, Prefix},
    proof::{Entry, PROOF_VERSION, ProofError, fold, read_digests, read_entries, read_version},
};
use commonware_codec::{EncodeSize, Error, Read, Write, extensions::ReadExt};
use quorate_crypto::Digest;

/// The most entries in one subtree: 230 kB at 24 bytes a value, never more than 400 kB.
pub const SUBTREE_MAX_ENTRIES: usize = 4096;

/// All entries under a prefix, with the siblings that lead from it to the root.
///
/// Whoever lacks the state asks for prefixes, in any order and from any peers, verifies each
/// subtree alone, and puts its entries into its own tree with `prepare`; the order does not matter.
/// When the verified prefixes cover the key space, its root is the one they were verified against.
///
/// On the wire: the version (1), the prefix, its siblings (four to a nibble) from the root down,
/// the number of entries in two bytes (big endian), then the entries as in a
/// [`Proof`](super::Proof).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subtree {
    prefix: Prefix,
    siblings: Vec<Digest>,
    entries: Vec<Entry>,
}

impl Subtree {
    pub(super) fn new(prefix: Prefix, siblings: Vec<Digest>, entries: Vec<Entry>) -> Self {
        Self {
            prefix,
            siblings,
            entries,
        }
    }

    /// Which part of the key space this is about.
    ///
    /// A server answers with a shorter prefix than was asked for when one bucket covers it: check
    /// with [`Prefix::covers`] that the answer belongs to the request.
    pub fn prefix(&self) -> Prefix {
        self.prefix
    }

    /// The entries, in ascending order: all there are under the prefix in the tree with this root.
    ///
    /// There is no other way to them, so that nothing unverified is used.
    ///
    /// # Errors
    /// [`ProofError::OtherRoot`] if that is not so.
    pub fn verify(&self, root: &Digest) -> Result<&[Entry], ProofError> {
        let entries: Vec<EntryRef<'_>> = self.entries.iter().map(Entry::borrow).collect();
        let node = subtree_hash(self.prefix.len(), &entries);
        if fold(node, &self.siblings, self.prefix.padded()) != *root {
            return Err(ProofError::OtherRoot);
        }
        Ok(&self.entries)
    }
}

impl EncodeSize for Subtree {
    fn encode_size(&self) -> usize {
        let entries: usize = self.entries.iter().map(EncodeSize::encode_size).sum();
        1 + self.prefix.encode_size() + self.siblings.len() * 32 + 2 + entries
    }
}

impl Write for Subtree {
    fn write(&self, buffer: &mut impl bytes::BufMut) {
        buffer.put_u8(PROOF_VERSION);
        self.prefix.write(buffer);
        self.siblings
            .iter()
            .for_each(|sibling| sibling.write(buffer));
        buffer.put_u16(u16::try_from(self.entries.len()).expect("at most SUBTREE_MAX_ENTRIES"));
        self.entries.iter().for_each(|entry| entry.write(buffer));
    }
}

impl Read for Subtree {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl commonware_codec::Buf, _: &()) -> Result<Self, Error> {
        read_version(buffer)?;
        let prefix = Prefix::read(buffer)?;
        let siblings = read_digests(buffer, prefix.len() * NIBBLE_BITS)?;
        let count = usize::from(u16::read(buffer)?);
        if count > SUBTREE_MAX_ENTRIES {
            return Err(Error::InvalidLength(count));
        }
        let entries = read_entries(buffer, count)?;
        // They ascend, so the ones in between have the prefix if the outer ones have it.
        if let (Some(first), Some(last)) = (entries.first(), entries.last())
            && !(prefix.contains(&first.key) && prefix.contains(&last.key))
        {
            return Err(Error::Invalid("Subtree", "key outside the prefix"));
        }
        Ok(Self {
            prefix,
            siblings,
            entries,
        })
    }
}
