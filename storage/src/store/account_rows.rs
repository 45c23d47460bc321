//! Account rows that were read together: a few large buffers instead of one for each row.

use crate::tree;
use commonware_codec::FixedSize as _;
use quorate_types::Height;

/// Rows of accounts: each an encoded account, then the height of its last change.
#[derive(Default)]
pub(super) struct AccountRows {
    keys: Vec<tree::Key>,
    /// The end of each row in `bytes`.
    ends: Vec<usize>,
    bytes: Vec<u8>,
}

/// An account's row, in parts.
pub(super) struct AccountRow<'a> {
    pub(super) key: &'a tree::Key,
    /// The encoded account.
    pub(super) account: &'a [u8],
    /// The height of its last change, as [`super::height_key`].
    pub(super) height: &'a [u8],
}

impl AccountRows {
    /// Adds a row. One whose key or length no account's row has is left out: what is missing shows
    /// in the root.
    pub(super) fn add(&mut self, key: &[u8], row: &[u8]) {
        if let (Ok(key), true) = (key.try_into(), row.len() > Height::SIZE) {
            self.keys.push(key);
            self.bytes.extend_from_slice(row);
            self.ends.push(self.bytes.len());
        }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = AccountRow<'_>> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let ranges = starts.zip(&self.ends);
        self.keys.iter().zip(ranges).map(|(key, (start, end))| {
            let row = &self.bytes[start..*end];
            let (account, height) = row.split_at(row.len() - Height::SIZE);
            AccountRow {
                key,
                account,
                height,
            }
        })
    }
}
