//! The rows of the store: buckets, branches, and the one that holds the root.

use super::{
    BUCKET_LIMIT, FORMAT_VERSION, Key, LEAF_LIMIT, MAX_NIBBLES, MAX_VALUE_BYTES, TreeError,
    hash::{EntryRef, FAN_OUT},
    path::Prefix,
};
use quorate_crypto::Digest;

const BUCKET_TAG: u8 = 0x00;
const BRANCH_TAG: u8 = 0x01;
const META_BYTES: usize = 3 + 32;

/// A row that was read.
pub(super) enum Row<'a> {
    /// All entries under the prefix, sorted, 1 to [`BUCKET_LIMIT`].
    Bucket(Vec<EntryRef<'a>>),
    /// The hashes of the sixteen children.
    Branch([Digest; FAN_OUT]),
}

/// The row of a bucket.
pub(super) fn encode_bucket(entries: &[EntryRef<'_>]) -> Vec<u8> {
    let bytes = entries.iter().map(|entry| 32 + 1 + entry.value.len()).sum::<usize>();
    let mut row = Vec::with_capacity(2 + bytes);
    row.push(BUCKET_TAG);
    row.push(u8::try_from(entries.len()).expect("at most BUCKET_LIMIT"));
    for entry in entries {
        row.extend_from_slice(entry.key);
        row.push(u8::try_from(entry.value.len()).expect("at most MAX_VALUE_BYTES"));
        row.extend_from_slice(entry.value);
    }
    row
}

/// The row of a branch.
pub(super) fn encode_branch(children: &[Digest]) -> Vec<u8> {
    let mut row = Vec::with_capacity(1 + FAN_OUT * 32);
    row.push(BRANCH_TAG);
    children.iter().for_each(|child| row.extend_from_slice(&child.0));
    row
}

/// Reads the row of the node at a prefix.
///
/// # Errors
/// [`TreeError::Corrupt`] if the bytes are not what [`encode_bucket`] or [`encode_branch`] made for
/// this prefix.
pub(super) fn decode<'a>(prefix: &Prefix, row: &'a [u8]) -> Result<Row<'a>, TreeError> {
    let corrupt = |what| TreeError::Corrupt { prefix: *prefix, what };
    match row.split_first() {
        Some((&BUCKET_TAG, rest)) => decode_bucket(prefix, rest).map_err(corrupt).map(Row::Bucket),
        Some((&BRANCH_TAG, _)) if prefix.len() == MAX_NIBBLES => Err(corrupt("too long a path")),
        Some((&BRANCH_TAG, rest)) => {
            let (children, []) = rest.as_chunks::<32>() else {
                return Err(corrupt("length of a branch"));
            };
            let children: &[[u8; 32]; FAN_OUT] =
                children.try_into().map_err(|_| corrupt("length of a branch"))?;
            Ok(Row::Branch(children.map(Digest)))
        }
        _ => Err(corrupt("tag of a row")),
    }
}

fn decode_bucket<'a>(
    prefix: &Prefix,
    bytes: &'a [u8],
) -> Result<Vec<EntryRef<'a>>, &'static str> {
    let (&count, mut rest) = bytes.split_first().ok_or("length of a bucket")?;
    let count = usize::from(count);
    if count == 0 || count > BUCKET_LIMIT {
        return Err("number of entries");
    }
    let mut entries: Vec<EntryRef<'a>> = Vec::with_capacity(count);
    for _ in 0..count {
        let (key, tail): (&Key, _) = rest.split_first_chunk().ok_or("length of a bucket")?;
        let (&len, tail) = tail.split_first().ok_or("length of a bucket")?;
        let len = usize::from(len);
        if len > MAX_VALUE_BYTES {
            return Err("length of a value");
        }
        let (value, tail) = tail.split_at_checked(len).ok_or("length of a bucket")?;
        if entries.last().is_some_and(|last| last.key >= key) || !prefix.contains(key) {
            return Err("order of entries");
        }
        entries.push(EntryRef { key, value });
        rest = tail;
    }
    if rest.is_empty() { Ok(entries) } else { Err("length of a bucket") }
}

/// The row with the format, the limits and the root.
pub(super) fn encode_meta(root: &Digest) -> Vec<u8> {
    let mut row = Vec::with_capacity(META_BYTES);
    row.extend([FORMAT_VERSION, BUCKET_LIMIT as u8, LEAF_LIMIT as u8]);
    row.extend_from_slice(&root.0);
    row
}

/// Reads the root.
///
/// # Errors
/// [`TreeError::Format`] if the row was written with another format or other limits.
pub(super) fn decode_meta(row: &[u8]) -> Result<Digest, TreeError> {
    match row.split_last_chunk::<32>() {
        Some((head, root)) if *head == [FORMAT_VERSION, BUCKET_LIMIT as u8, LEAF_LIMIT as u8] => {
            Ok(Digest(*root))
        }
        _ => Err(TreeError::Format),
    }
}
