//! The rows of the store: buckets, branches, and the one that holds the root.

use super::{
    BUCKET_LIMIT, FORMAT_VERSION, Key, LEAF_LIMIT, MAX_NIBBLES, MAX_VALUE_BYTES, TreeError,
    hash::{EntryRef, FAN_OUT},
    path::Prefix,
};
use quorate_crypto::Digest;

const BUCKET_TAG: u8 = 0x00;
const BRANCH_TAG: u8 = 0x01;

/// A row that was read.
pub(super) enum Row<'a> {
    /// All entries under the prefix, sorted, 1 to [`BUCKET_LIMIT`].
    Bucket(Vec<EntryRef<'a>>),
    /// The hashes of the sixteen children.
    Branch(&'a [[u8; 32]; FAN_OUT]),
}

/// Appends the row of a bucket.
pub(super) fn encode_bucket(entries: &[EntryRef<'_>], row: &mut Vec<u8>) {
    row.push(BUCKET_TAG);
    row.push(u8::try_from(entries.len()).expect("at most BUCKET_LIMIT"));
    for entry in entries {
        row.extend_from_slice(entry.key);
        row.push(u8::try_from(entry.value.len()).expect("at most MAX_VALUE_BYTES"));
        row.extend_from_slice(entry.value);
    }
}

/// Appends the row of a branch.
pub(super) fn encode_branch(children: &[Digest], row: &mut Vec<u8>) {
    row.push(BRANCH_TAG);
    children
        .iter()
        .for_each(|child| row.extend_from_slice(&child.0));
}

/// The children if the row is a branch, `None` if it is a bucket, which is not looked at further.
///
/// # Errors
/// As [`decode`].
pub(super) fn branch_children<'a>(
    prefix: &Prefix,
    row: &'a [u8],
) -> Result<Option<&'a [[u8; 32]; FAN_OUT]>, TreeError> {
    if row.first() == Some(&BUCKET_TAG) {
        return Ok(None);
    }
    match decode(prefix, row)? {
        Row::Branch(children) => Ok(Some(children)),
        Row::Bucket(_) => Ok(None),
    }
}

/// Reads the row of the node at a prefix.
///
/// # Errors
/// [`TreeError::Corrupt`] if the bytes are not what [`encode_bucket`] or [`encode_branch`] made for
/// this prefix.
pub(super) fn decode<'a>(prefix: &Prefix, row: &'a [u8]) -> Result<Row<'a>, TreeError> {
    let corrupt = |what| TreeError::Corrupt {
        prefix: *prefix,
        what,
    };
    match row.split_first() {
        Some((&BUCKET_TAG, rest)) => decode_bucket(prefix, rest)
            .map_err(corrupt)
            .map(Row::Bucket),
        Some((&BRANCH_TAG, _)) if prefix.len() == MAX_NIBBLES => Err(corrupt("too long a path")),
        Some((&BRANCH_TAG, rest)) => {
            let (children, []) = rest.as_chunks::<32>() else {
                return Err(corrupt("length of a branch"));
            };
            let children: &[[u8; 32]; FAN_OUT] = children
                .try_into()
                .map_err(|_| corrupt("length of a branch"))?;
            Ok(Row::Branch(children))
        }
        _ => Err(corrupt("tag of a row")),
    }
}

fn decode_bucket<'a>(prefix: &Prefix, bytes: &'a [u8]) -> Result<Vec<EntryRef<'a>>, &'static str> {
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
    if rest.is_empty() {
        Ok(entries)
    } else {
        Err("length of a bucket")
    }
}

/// Appends the row with the format, the limits and the root.
pub(super) fn encode_meta(root: &Digest, row: &mut Vec<u8>) {
    row.extend([FORMAT_VERSION, BUCKET_LIMIT as u8, LEAF_LIMIT as u8]);
    row.extend_from_slice(&root.0);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(keys: &[Key]) -> Vec<u8> {
        let entries: Vec<_> = keys
            .iter()
            .map(|key| EntryRef {
                key,
                value: b"value",
            })
            .collect();
        let mut row = Vec::new();
        encode_bucket(&entries, &mut row);
        row
    }

    #[test]
    fn only_rows_that_fit_their_prefix_are_read() {
        let keys: Vec<Key> = (0..40)
            .map(|last| [[0x70; 31].as_slice(), &[last]].concat())
            .map(|key| key.try_into().expect("32 bytes"))
            .collect();
        let at = |nibbles: &[u8]| Prefix::new(nibbles).expect("short");
        let reads = |prefix: &Prefix, row: &[u8]| decode(prefix, row).is_ok();

        let good = bucket(&keys[..BUCKET_LIMIT]);
        assert!(reads(&at(&[7]), &good));
        assert!(!reads(&at(&[8]), &good), "keys under another prefix");
        assert!(
            !reads(&at(&[7]), &bucket(&keys[..BUCKET_LIMIT + 1])),
            "too many"
        );
        assert!(!reads(&at(&[7]), &bucket(&[])), "empty buckets have no row");
        assert!(
            !reads(&at(&[7]), &bucket(&[keys[1], keys[0]])),
            "out of order"
        );
        assert!(!reads(&at(&[7]), &bucket(&[keys[1], keys[1]])), "twice");
        assert!(!reads(&at(&[7]), &good[..good.len() - 1]), "cut off");
        assert!(!reads(&at(&[7]), &[&good[..], &[0]].concat()), "too long");
        assert!(
            !reads(&at(&[7]), &[]) && !reads(&at(&[7]), &[2, 0]),
            "no such row"
        );

        let mut branch = Vec::new();
        encode_branch(&[Digest::ZERO; FAN_OUT], &mut branch);
        assert!(reads(&at(&[7]), &branch));
        assert!(
            !reads(&at(&[7; MAX_NIBBLES]), &branch),
            "nothing lies deeper"
        );
        assert!(!reads(&at(&[7]), &branch[..branch.len() - 1]), "cut off");
        assert!(!reads(&at(&[7]), &[&branch[..], &[0]].concat()), "too long");
    }
}
