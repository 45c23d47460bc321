//! Verified parts of the state on their way into the database.
//!
//! Parts are written some at a time, as files of sorted rows: neighbours share a file, and neither the
//! log nor a memtable has a copy. The coverage is written after them. So after a crash in between, some
//! rows are newer than the coverage says, which does no harm: changes since an older height put every
//! such row right again, and are verified together with it.

use super::{ACCOUNTS, BONDS, Covered, NODES, SYNC, height_key, sync::covered_row};
use crate::{
    database::Batch,
    tree::{self, Chunk, Verified},
};
use commonware_codec::Encode;
use quorate_types::{Account, Height, Span};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// Fewer bytes in order than this go through the log: a file would cost more. What goes through the log
/// is flushed into files that overlap others, which then have to be compacted.
const LEAST_FILE_BYTES: usize = 32 << 10;

/// Parts that were verified since the last save.
#[derive(Default)]
pub(super) struct Unsaved {
    /// By their first keys; none overlaps another.
    parts: BTreeMap<tree::Key, Part>,
    /// What the coverage no longer has, and the first keys of what it has instead.
    removed: Vec<Span>,
    added: BTreeSet<tree::Key>,
    /// Rows that are deleted, and no part has.
    deletions: Batch,
}

struct Part {
    chunk: Chunk,
    height: Height,
    verified: Verified,
}

impl Unsaved {
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Whether any key of a span is in a part.
    pub(super) fn overlaps(&self, span: &Span) -> bool {
        let inside = self.parts.range(*span.first()..).next();
        let before = self.parts.range(..*span.first()).next_back();
        inside.is_some_and(|(first, _)| span.contains(first))
            || before.is_some_and(|(_, part)| part.chunk.span().covers(span))
    }

    pub(super) fn add(&mut self, chunk: Chunk, height: Height, verified: Verified) {
        let part = Part {
            chunk,
            height,
            verified,
        };
        let before = self.parts.insert(*part.chunk.span().first(), part);
        debug_assert!(before.is_none(), "parts do not overlap");
    }

    pub(super) fn delete_account(&mut self, key: &[u8]) {
        self.deletions.delete(ACCOUNTS, key);
    }

    /// Notes what a part makes of the coverage.
    pub(super) fn cover(&mut self, removed: Vec<Span>, added: impl Iterator<Item = tree::Key>) {
        self.removed.extend(removed);
        self.added.extend(added);
    }

    /// Files of sorted rows that do not overlap, and the other rows.
    pub(super) fn files(&self) -> (Vec<Batch>, Batch) {
        let mut files = Vec::new();
        let mut rest = self.deletions.clone();
        let mut run = Vec::new();
        let mut end = None;
        for part in self.parts.values() {
            let span = part.chunk.span();
            if end != Some(*span.first()) {
                put_run(&run, &mut files, &mut rest);
                run.clear();
            }
            end = span.after();
            run.push(part);
        }
        put_run(&run, &mut files, &mut rest);
        (files, rest)
    }

    /// The rows of the coverage that changed. To be written after everything else.
    pub(super) fn coverage_rows(&self, parts: &BTreeMap<tree::Key, Covered>) -> Batch {
        let mut batch = Batch::default();
        for span in &self.removed {
            batch.delete(SYNC, span.encode());
        }
        for part in self.added.iter().filter_map(|first| parts.get(first)) {
            let row = covered_row(part.height, part.nodes());
            batch.put(SYNC, part.span.encode(), row);
        }
        batch
    }
}

/// Puts the rows of neighbouring parts into files, or beside them where there are few.
fn put_run(run: &[&Part], files: &mut Vec<Batch>, rest: &mut Batch) {
    let mut accounts = Batch::default();
    let mut row = Vec::new();
    for part in run {
        for (key, value) in part.chunk.entries() {
            row.clear();
            row.extend_from_slice(value);
            row.extend_from_slice(&height_key(part.height));
            accounts.put(ACCOUNTS, key, &row);
            if value.len() > Account::PLAIN_SIZE {
                rest.put(BONDS, key, []);
            }
        }
    }
    // The rows of the tree are ordered by their levels first.
    let mut levels: BTreeMap<u8, Batch> = BTreeMap::new();
    for part in run {
        for (key, row) in part.verified.rows() {
            let level = key.as_ref()[0];
            levels.entry(level).or_default().put(NODES, key, row);
        }
    }
    for rows in std::iter::once(accounts).chain(levels.into_values()) {
        if rows.size_bytes() >= LEAST_FILE_BYTES {
            files.push(rows);
        } else {
            rest.append(&rows);
        }
    }
}

impl fmt::Debug for Unsaved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unsaved({} parts)", self.parts.len())
    }
}
