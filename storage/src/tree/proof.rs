//! A proof that one key has a value, or has none.

use super::{
    Key, LEAF_LIMIT, MAX_DEPTH, MAX_VALUE_BYTES,
    hash::{EntryRef, inner_hash, leaf_hash},
    path::{bit, share_bits},
};
use commonware_codec::{EncodeSize, Error, Read, Write, extensions::ReadExt};
use quorate_crypto::Digest;

/// The version in the first byte of a proof and of a subtree.
pub(super) const PROOF_VERSION: u8 = 1;

/// A key hash and the bytes under it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The hash of the account's name.
    pub key: Key,
    /// At most [`MAX_VALUE_BYTES`] bytes.
    pub value: Vec<u8>,
}

impl Entry {
    pub(super) fn borrow(&self) -> EntryRef<'_> {
        EntryRef {
            key: &self.key,
            value: &self.value,
        }
    }
}

impl From<&EntryRef<'_>> for Entry {
    fn from(entry: &EntryRef<'_>) -> Self {
        Self {
            key: *entry.key,
            value: entry.value.to_vec(),
        }
    }
}

/// Proves against a root what a key holds, or that it holds nothing.
///
/// There is exactly one proof for each key and root: the siblings on the way from the root down to
/// the leaf in whose part of the key space the key lies, and all entries of that leaf.
///
/// On the wire: the version (1), the number of siblings, the siblings from the root down, the
/// number of entries, then each entry as key, length of the value, value; every number is one byte.
/// About 700 bytes with a million accounts, never more than 8,800.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    siblings: Vec<Digest>,
    entries: Vec<Entry>,
}

/// A proof or a subtree does not hold against the root; who sent it is faulty or talks of another
/// root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// The proof is about another part of the key space.
    #[error("the key is outside the proven part of the key space")]
    OtherKey,
    /// The hashes do not lead to the root.
    #[error("the proof does not lead to the root")]
    OtherRoot,
}

impl Proof {
    pub(super) fn new(siblings: Vec<Digest>, leaf: &[EntryRef<'_>]) -> Self {
        Self {
            siblings,
            entries: leaf.iter().map(Entry::from).collect(),
        }
    }

    /// The hashes beside the path, from the root down.
    pub fn siblings(&self) -> &[Digest] {
        &self.siblings
    }

    /// All entries of the leaf, by ascending keys.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The value of the key under the root, or `None` if it is proven to have none.
    ///
    /// # Errors
    /// [`ProofError`] if the proof proves nothing about this key under this root.
    pub fn verify(&self, root: &Digest, key: &Key) -> Result<Option<&[u8]>, ProofError> {
        let depth = self.siblings.len();
        if self
            .entries
            .iter()
            .any(|entry| !share_bits(&entry.key, key, depth))
        {
            return Err(ProofError::OtherKey);
        }
        let leaf: Vec<_> = self.entries.iter().map(Entry::borrow).collect();
        if fold(leaf_hash(depth, &leaf), &self.siblings, key) != *root {
            return Err(ProofError::OtherRoot);
        }
        Ok(self
            .entries
            .iter()
            .find(|entry| entry.key == *key)
            .map(|entry| entry.value.as_slice()))
    }
}

/// The root above a node, from its hash, the siblings from the root down, and any key below it.
pub(super) fn fold(node: Digest, siblings: &[Digest], key: &Key) -> Digest {
    siblings
        .iter()
        .enumerate()
        .rev()
        .fold(node, |node, (depth, sibling)| {
            if bit(key, depth) {
                inner_hash(sibling, &node)
            } else {
                inner_hash(&node, sibling)
            }
        })
}

impl EncodeSize for Entry {
    fn encode_size(&self) -> usize {
        32 + 1 + self.value.len()
    }
}

impl Write for Entry {
    fn write(&self, buffer: &mut impl bytes::BufMut) {
        buffer.put_slice(&self.key);
        buffer.put_u8(u8::try_from(self.value.len()).expect("at most MAX_VALUE_BYTES"));
        buffer.put_slice(&self.value);
    }
}

impl Read for Entry {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl commonware_codec::Buf, _: &()) -> Result<Self, Error> {
        let key = Key::read(buffer)?;
        let len = usize::from(u8::read(buffer)?);
        if len > MAX_VALUE_BYTES {
            return Err(Error::InvalidLength(len));
        }
        if buffer.remaining() < len {
            return Err(Error::EndOfBuffer);
        }
        let mut value = vec![0; len];
        buffer.copy_to_slice(&mut value);
        Ok(Self { key, value })
    }
}

/// Reads this many entries, whose keys must ascend strictly.
pub(super) fn read_entries(
    buffer: &mut impl commonware_codec::Buf,
    count: usize,
) -> Result<Vec<Entry>, Error> {
    // The count is only a claim: the reservation is bounded by what has arrived.
    let mut entries: Vec<Entry> = Vec::with_capacity(count.min(buffer.remaining() / 33));
    for _ in 0..count {
        let entry = Entry::read(buffer)?;
        if entries.last().is_some_and(|last| last.key >= entry.key) {
            return Err(Error::Invalid("Entry", "keys do not ascend"));
        }
        entries.push(entry);
    }
    Ok(entries)
}

/// Reads the version, and refuses any other than ours.
pub(super) fn read_version(buffer: &mut impl commonware_codec::Buf) -> Result<(), Error> {
    match u8::read(buffer)? {
        PROOF_VERSION => Ok(()),
        other => Err(Error::InvalidEnum(other)),
    }
}

/// Reads this many digests; the caller has bounded the number.
pub(super) fn read_digests(
    buffer: &mut impl commonware_codec::Buf,
    count: usize,
) -> Result<Vec<Digest>, Error> {
    if buffer.remaining() < count * 32 {
        return Err(Error::EndOfBuffer);
    }
    (0..count).map(|_| Digest::read(buffer)).collect()
}

impl EncodeSize for Proof {
    fn encode_size(&self) -> usize {
        let entries: usize = self.entries.iter().map(EncodeSize::encode_size).sum();
        3 + self.siblings.len() * 32 + entries
    }
}

impl Write for Proof {
    fn write(&self, buffer: &mut impl bytes::BufMut) {
        buffer.put_u8(PROOF_VERSION);
        buffer.put_u8(u8::try_from(self.siblings.len()).expect("at most MAX_DEPTH"));
        self.siblings
            .iter()
            .for_each(|sibling| sibling.write(buffer));
        buffer.put_u8(u8::try_from(self.entries.len()).expect("at most LEAF_LIMIT"));
        self.entries.iter().for_each(|entry| entry.write(buffer));
    }
}

impl Read for Proof {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl commonware_codec::Buf, _: &()) -> Result<Self, Error> {
        read_version(buffer)?;
        let depth = usize::from(u8::read(buffer)?);
        if depth > MAX_DEPTH {
            return Err(Error::InvalidLength(depth));
        }
        let siblings = read_digests(buffer, depth)?;
        let count = usize::from(u8::read(buffer)?);
        if count > LEAF_LIMIT {
            return Err(Error::InvalidLength(count));
        }
        let entries = read_entries(buffer, count)?;
        if let [first, .., last] = entries.as_slice()
            && !share_bits(&first.key, &last.key, depth)
        {
            return Err(Error::Invalid("Proof", "keys of a leaf differ above it"));
        }
        Ok(Self { siblings, entries })
    }
}
