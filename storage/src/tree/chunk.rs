//! Chunks of state sync. Each verifies alone against the root, in any order.
//!
//! A chunk covers a [`Span`] and holds either all its entries, or those that changed after a height
//! at which the receiver had the span right already: together they must hash to the root. So a chunk
//! that verifies is right whoever sent it, and one that does not costs the work on one chunk.

use super::{
    BUCKET_LIMIT, Key, NodeStore, Tree, TreeError,
    hash::{Branch, EntryRef, FAN_OUT, by_nibble, inner_hash, subtree_hash},
    path::{Prefix, RowKey, nibble},
    proof::{ProofError, fold, read_digests},
    row::Row,
    rows::RowWriter,
    span::SpanNodes as _,
};
use bytes::{BufMut, Bytes, BytesMut};
use commonware_codec::{EncodeSize, Error, Read, Write, extensions::ReadExt};
use quorate_crypto::Digest;
use quorate_types::Span;
use std::cmp::Ordering;

/// The most entries under a span that is served in one chunk: 800 kB of accounts, and on average
/// three quarters of that.
pub const CHUNK_MAX_ENTRIES: usize = 16_384;

/// The version in the first byte.
const CHUNK_VERSION: u8 = 2;

/// Bytes of a value that one byte before it tells about.
const GROUP: usize = 8;

/// Entries of a span, with the siblings that lead from it to the root.
///
/// On the wire: the version (2), the span, its siblings (one to a bit) from the root down, the
/// height since which the entries changed (8 bytes, 0 for all entries), their number (4 bytes), then
/// the entries in ascending order, to the end of the input. An entry is the key without the whole bytes
/// that the span's keys share, the length of the value in one byte, and the value. For each eight bytes
/// of a value, one byte tells which of them are not zero, the first one in its highest bit, and only
/// these follow: nonces and balances are mostly zeros.
#[derive(Clone, PartialEq, Eq)]
pub struct Chunk {
    span: Span,
    siblings: Vec<Digest>,
    since: u64,
    count: u32,
    /// The entries, encoded, in order, each within the span.
    entries: Bytes,
}

/// A node of the tree that a verified chunk reveals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownNode {
    /// Where it is.
    pub prefix: Prefix,
    /// Its hash; zero if there is nothing under it.
    pub hash: Digest,
    /// The entries under it.
    pub entries: u32,
}

/// What a verified chunk reveals of a span.
pub struct Verified {
    /// The topmost nodes in the span, in order. They cover it.
    pub nodes: Vec<KnownNode>,
    rows: RowWriter,
}

impl Verified {
    /// The rows of the nodes and all below; each replaces what is stored under its key.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = (&RowKey, &[u8])> {
        self.rows.iter()
    }
}

impl Chunk {
    /// A chunk with these entries, which are in ascending order and within the span.
    pub(crate) fn new<'a>(
        span: Span,
        siblings: Vec<Digest>,
        since: u64,
        entries: impl Iterator<Item = (&'a Key, &'a [u8])>,
    ) -> Self {
        let mut bytes = BytesMut::new();
        let mut count = 0;
        for (key, value) in entries {
            bytes.put_slice(key);
            bytes.put_u8(u8::try_from(value.len()).expect("at most MAX_VALUE_BYTES"));
            bytes.put_slice(value);
            count += 1;
        }
        Self {
            span,
            siblings,
            since,
            count,
            entries: bytes.freeze(),
        }
    }

    /// What it covers. That may be more than was requested, where few entries are stored.
    pub fn span(&self) -> Span {
        self.span
    }

    /// The height after which its entries changed; 0 if these are all entries.
    pub fn since(&self) -> u64 {
        self.since
    }

    /// How many entries it holds.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether it holds no entry.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Its entries, unverified.
    pub fn entries(&self) -> impl Iterator<Item = (&Key, &[u8])> {
        let mut rest: &[u8] = &self.entries;
        std::iter::from_fn(move || {
            let (key, value, after) = split_entry(rest)?;
            rest = after;
            Some((key, value))
        })
    }

    /// Verifies that the span has these entries in the tree with that root, put over those that are
    /// held already (`held`, ascending; empty unless the chunk is about changes).
    ///
    /// # Errors
    ///
    /// [`ProofError::OtherRoot`] if that is not so.
    pub fn verify<'a>(
        &'a self,
        root: &Digest,
        held: impl Iterator<Item = (&'a Key, &'a [u8])>,
    ) -> Result<Verified, ProofError> {
        let mut all: Vec<EntryRef<'a>> = Vec::with_capacity(self.len());
        let mut held = held.peekable();
        for (key, value) in self.entries() {
            while let Some((before, value)) = held.next_if(|(held, _)| *held < key) {
                all.push(EntryRef { key: before, value });
            }
            held.next_if(|(held, _)| held.cmp(&key) == Ordering::Equal);
            all.push(EntryRef { key, value });
        }
        all.extend(held.map(|(key, value)| EntryRef { key, value }));
        let mut rows = RowWriter::with_capacity(all.len() / 8 + 1, all.len() * 64);
        let (hash, nodes) = nodes_of(&self.span, &all, |prefix, entries| {
            rows.build(prefix, entries)
        });
        if fold(hash, &self.siblings, self.span.first()) != *root {
            return Err(ProofError::OtherRoot);
        }
        rows.sort();
        Ok(Verified { nodes, rows })
    }

    /// Whether the span has exactly these entries in the tree with that root. Costs less than
    /// [`Self::verify`], since no rows are made.
    pub(crate) fn is_all_of_its_span(&self, root: &Digest) -> bool {
        let entries = self.entries().map(|(key, value)| EntryRef { key, value });
        let entries: Vec<EntryRef<'_>> = entries.collect();
        let (hash, _) = nodes_of(&self.span, &entries, |prefix, entries| {
            subtree_hash(prefix.len(), entries)
        });
        fold(hash, &self.siblings, self.span.first()) == *root
    }
}

/// The nodes of a span that holds exactly these entries, and its hash. `subtree` makes the subtree of
/// some entries, at least one, and returns its hash.
fn nodes_of(
    span: &Span,
    entries: &[EntryRef<'_>],
    mut subtree: impl FnMut(Prefix, &[EntryRef<'_>]) -> Digest,
) -> (Digest, Vec<KnownNode>) {
    let prefix = span.prefix();
    let mut node = |prefix: Prefix, entries: &[EntryRef<'_>]| KnownNode {
        prefix,
        hash: match entries {
            [] => Digest::ZERO,
            _ => subtree(prefix, entries),
        },
        entries: entries.len() as u32,
    };
    if span.odd_bits() == 0 {
        let node = node(prefix, entries);
        return (node.hash, vec![node]);
    }
    let mut groups = by_nibble(prefix.len(), entries).peekable();
    let nodes: Vec<KnownNode> = span
        .nodes()
        .map(|child| {
            let group = groups.next_if(|group| child.contains(group[0].key));
            node(child, group.unwrap_or_default())
        })
        .collect();
    let mut level: Vec<Digest> = nodes.iter().map(|node| node.hash).collect();
    while level.len() > 1 {
        level = level
            .chunks(2)
            .map(|pair| inner_hash(&pair[0], &pair[1]))
            .collect();
    }
    (level[0], nodes)
}

/// The branches above nodes that cover the key space; `nodes` are in the order of their first keys.
///
/// Where so few entries are under a branch that it must be one bucket, `bucket` is called for them:
/// a peer may have cut such a part in two, which has the same hash and other rows.
///
/// # Errors
///
/// What `bucket` returns.
pub fn assemble<E>(
    nodes: &[KnownNode],
    bucket: &mut impl FnMut(&Span) -> Result<Vec<(Key, Vec<u8>)>, E>,
) -> Result<(Digest, Assembled), E> {
    let mut rows = RowWriter::default();
    let (root, _) = join(&mut rows, Prefix::ROOT, nodes, bucket)?;
    rows.put_root(&root);
    rows.sort();
    Ok((root, Assembled(rows)))
}

/// The rows of the branches above known nodes.
pub struct Assembled(RowWriter);

impl Assembled {
    /// The rows.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = (&RowKey, &[u8])> {
        self.0.iter()
    }
}

fn join<E>(
    rows: &mut RowWriter,
    prefix: Prefix,
    nodes: &[KnownNode],
    bucket: &mut impl FnMut(&Span) -> Result<Vec<(Key, Vec<u8>)>, E>,
) -> Result<(Digest, u32), E> {
    if let [node] = nodes
        && node.prefix == prefix
    {
        return Ok((node.hash, node.entries));
    }
    let entries: u32 = nodes.iter().map(|node| node.entries).sum();
    if entries as usize <= BUCKET_LIMIT {
        if entries == 0 {
            return Ok((Digest::ZERO, 0));
        }
        let span = Span::under(&prefix).expect("a branch above known nodes is not so deep");
        let held = bucket(&span)?;
        let held: Vec<EntryRef<'_>> = held
            .iter()
            .map(|(key, value)| EntryRef { key, value })
            .collect();
        return Ok((rows.build(prefix, &held), entries));
    }
    let mut children = [[0; 32]; FAN_OUT];
    let step = |node: &KnownNode| node.prefix.nibble(prefix.len());
    for group in nodes.chunk_by(|left, right| step(left) == step(right)) {
        let child = prefix.extended(step(&group[0]));
        children[usize::from(step(&group[0]))] = join(rows, child, group, bucket)?.0.0;
    }
    let hash = rows.put_branch(prefix, Box::new(Branch::new(&children)));
    Ok((hash, entries))
}

impl<S: NodeStore> Tree<S> {
    /// The siblings on the path from the root down to a span, and the span that they belong to: a
    /// wider one if a bucket, or nothing at all, is there.
    ///
    /// # Errors
    /// [`TreeError`] if the store cannot be read or is damaged.
    pub fn way_to(&self, span: &Span) -> Result<(Span, Vec<Digest>), TreeError> {
        let wanted = span.prefix();
        let landing = self.land(span.first(), Some(wanted.len()))?;
        let mut siblings = landing.siblings;
        if landing.prefix == wanted && span.odd_bits() > 0 {
            if let Some(row) = &landing.row
                && let Row::Branch(children) = super::row::decode(&wanted, row)?
            {
                let mut below = Vec::with_capacity(4);
                Branch::new(children).siblings(nibble(span.first(), wanted.len()), &mut below);
                siblings.extend(&below[..span.odd_bits()]);
                return Ok((*span, siblings));
            }
        } else if landing.prefix == wanted {
            return Ok((*span, siblings));
        }
        let wider = Span::under(&landing.prefix);
        Ok((wider.expect("shorter than the one asked for"), siblings))
    }
}

/// Reads an entry as it travels, whose key begins with what the span's keys share. There is one way to write each.
fn read_entry<'a>(
    bytes: &'a [u8],
    key: &mut Key,
    shared: usize,
    to: &mut Vec<u8>,
) -> Result<&'a [u8], Error> {
    let (rest, bytes) = bytes
        .split_at_checked(32 - shared)
        .ok_or(Error::EndOfBuffer)?;
    key[shared..].copy_from_slice(rest);
    to.extend_from_slice(key);
    let (&len, mut bytes) = bytes.split_first().ok_or(Error::EndOfBuffer)?;
    to.push(len);
    let mut left = usize::from(len);
    while left > 0 {
        let some = left.min(GROUP);
        let (&mask, rest) = bytes.split_first().ok_or(Error::EndOfBuffer)?;
        let (kept, rest) =
            (rest.split_at_checked(mask.count_ones() as usize)).ok_or(Error::EndOfBuffer)?;
        let mut group = [0; GROUP];
        let mut places = mask;
        for byte in kept {
            let place = places.leading_zeros() as usize;
            group[place] = *byte;
            places &= !(0x80 >> place);
        }
        let beyond = u8::MAX.checked_shr(some as u32).unwrap_or(0);
        if mask & beyond != 0 || kept.contains(&0) {
            return Err(Error::Invalid("Chunk", "zeros of a value"));
        }
        to.extend_from_slice(&group[..some]);
        bytes = rest;
        left -= some;
    }
    Ok(bytes)
}

/// Appends up to eight bytes of a value as they travel.
fn write_group(group: &[u8], to: &mut Vec<u8>) {
    let mut kept = [0; 1 + GROUP];
    let mut end = 1;
    for byte in group {
        kept[end] = *byte;
        end += usize::from(*byte != 0);
    }
    kept[0] = nonzero(group);
    to.extend_from_slice(&kept[..end]);
}

/// The first of some encoded entries, and the rest.
fn split_entry(bytes: &[u8]) -> Option<(&Key, &[u8], &[u8])> {
    let (key, rest) = bytes.split_first_chunk()?;
    let (len, rest) = rest.split_first()?;
    let (value, rest) = rest.split_at_checked(usize::from(*len))?;
    Some((key, value, rest))
}

impl std::fmt::Debug for Chunk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Chunk({}, {} entries", self.span, self.count)?;
        if self.since > 0 {
            write!(f, " changed since {}", self.since)?;
        }
        f.write_str(")")
    }
}

/// How many bytes at the start all keys of a span share.
fn shared_bytes(span: &Span) -> usize {
    span.bits() / 8
}

/// Which of up to eight bytes are not zero, the first one in the highest bit.
fn nonzero(group: &[u8]) -> u8 {
    let bits = group.iter().zip((0..GROUP).rev());
    bits.fold(0, |mask, (byte, bit)| mask | u8::from(*byte != 0) << bit)
}

impl EncodeSize for Chunk {
    fn encode_size(&self) -> usize {
        let key = 32 - shared_bytes(&self.span);
        let entry = |(_, value): (&Key, &[u8])| {
            let kept = value.iter().filter(|byte| **byte != 0).count();
            key + 1 + value.len().div_ceil(GROUP) + kept
        };
        let entries: usize = self.entries().map(entry).sum();
        1 + self.span.encode_size() + self.siblings.len() * 32 + 8 + 4 + entries
    }
}

impl Write for Chunk {
    fn write(&self, buffer: &mut impl BufMut) {
        buffer.put_u8(CHUNK_VERSION);
        self.span.write(buffer);
        self.siblings
            .iter()
            .for_each(|sibling| sibling.write(buffer));
        buffer.put_u64(self.since);
        buffer.put_u32(self.count);
        let shared = shared_bytes(&self.span);
        let mut encoded = Vec::with_capacity(self.entries.len());
        for (key, value) in self.entries() {
            encoded.extend_from_slice(&key[shared..]);
            encoded.push(u8::try_from(value.len()).expect("at most MAX_VALUE_BYTES"));
            for group in value.chunks(GROUP) {
                write_group(group, &mut encoded);
            }
        }
        buffer.put_slice(&encoded);
    }
}

impl Read for Chunk {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl commonware_codec::Buf, _: &()) -> Result<Self, Error> {
        if u8::read(buffer)? != CHUNK_VERSION {
            return Err(Error::Invalid("Chunk", "version"));
        }
        let span = Span::read(buffer)?;
        let siblings = read_digests(buffer, span.bits())?;
        let since = u64::read(buffer)?;
        let count = u32::read(buffer)?;
        if count as usize > CHUNK_MAX_ENTRIES {
            return Err(Error::InvalidLength(count as usize));
        }
        let shared = shared_bytes(&span);
        let encoded = buffer.copy_to_bytes(buffer.remaining());
        // Memory is reserved as bytes come, not as they are announced.
        if encoded.len() < count as usize * (32 - shared + 1) {
            return Err(Error::EndOfBuffer);
        }
        let mut entries = Vec::with_capacity(encoded.len() * 3 / 2);
        let mut rest = &encoded[..];
        let mut key: Key = *span.first();
        for place in 0..count {
            let before = key;
            rest = read_entry(rest, &mut key, shared, &mut entries)?;
            // They ascend, so if the first and the last one are within, all are.
            let is_end = place == 0 || place + 1 == count;
            if (place > 0 && before >= key) || (is_end && !span.contains(&key)) {
                return Err(Error::Invalid("Chunk", "order of keys"));
            }
        }
        if !rest.is_empty() {
            return Err(Error::ExtraData(rest.len()));
        }
        Ok(Self {
            span,
            siblings,
            since,
            count,
            entries: entries.into(),
        })
    }
}
