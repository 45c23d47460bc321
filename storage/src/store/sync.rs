//! State sync: serving the state after a block in chunks, and assembling a state from chunks.
//!
//! A receiver keeps, durably, at which height each part of the key space is right: its **coverage**.
//! A chunk is verified against the root after the target block and written; then what it makes of the
//! coverage. So a crash costs the chunks that were not written yet. A part that is right
//! at an older height is brought to a newer one by its changes alone, whether it was right since this
//! validator executed that block itself or since a chunk for an earlier target came.
//!
//! # Why there is no manifest
//!
//! A receiver stores at which height each part of the key space is right (its coverage). A chunk
//! holds a part's entries, or those that changed after the height at which the receiver has it;
//! together with what is held they must hash to the certified root. So resuming, a moving target
//! and a validator that was away for a while are one case. Chunks are bounded by bits of the key
//! hash, not by nibbles, so that they have 8,192 to 16,384 accounts whatever the state's size. The
//! rows of the account table are under the key hash, with the height of the last change, so that a
//! chunk is one range of them. A snapshot is RocksDB's own, pinned between two commits: nothing is
//! copied and no commit waits; it lasts as long as the process. After a start there is one of the state
//! that the newest header names, made from the newest one and what was replaced since (`undo`). Each
//! served chunk is hashed against the root before it is sent.

use super::{
    ACCOUNTS, BLOCKS, IDS, META, NODES, ROOTS, SYNC, Store, StoreError, StoredTip,
    account_rows::{AccountRow, AccountRows},
    failed, height_key,
    prune::{BASE, PRUNED},
    sets::stage_set,
    unsaved::Unsaved,
};
use crate::{
    database::{Batch, DatabaseError, Rows},
    tree::{
        self, CHUNK_MAX_ENTRIES, Chunk, KnownNode, NodeStore, ProofError, RowKey, SpanNodes as _,
        Tree, assemble,
    },
};
use commonware_codec::{Copying, DecodeExt, Encode};
use quorate_types::{Block, Certificate, Digest, Height, Span, ValidatorSet};
use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, OnceLock},
};

/// The state after one block, unaffected by later blocks.
pub struct StateSnapshot {
    height: Height,
    root: Digest,
    path: Arc<PathBuf>,
    rows: Arc<dyn Rows>,
    /// Opened at the first chunk, since that reads the upper branches.
    tree: OnceLock<Tree<SnapshotRows>>,
}

/// A snapshot's answer for a span.
#[derive(Debug)]
pub enum Served {
    /// A chunk that covers it.
    Chunk(Chunk),
    /// The span holds more than [`CHUNK_MAX_ENTRIES`]: request its halves.
    TooMany,
}

pub(super) struct SnapshotRows(pub(super) Arc<dyn Rows>);

impl NodeStore for SnapshotRows {
    fn get(&self, key: &RowKey) -> Result<Option<Vec<u8>>, DatabaseError> {
        let mut rows = self.0.get_sorted(NODES, &[key.as_ref()])?;
        Ok(rows.pop().flatten())
    }

    fn get_sorted(&self, keys: &[RowKey]) -> Result<Vec<Option<Vec<u8>>>, DatabaseError> {
        let keys: Vec<&[u8]> = keys.iter().map(RowKey::as_ref).collect();
        self.0.get_sorted(NODES, &keys)
    }
}

impl StateSnapshot {
    /// The block of this state.
    pub fn height(&self) -> Height {
        self.height
    }

    /// The root of the state.
    pub fn root(&self) -> Digest {
        self.root
    }

    fn tree(&self) -> Result<&Tree<SnapshotRows>, StoreError> {
        if let Some(tree) = self.tree.get() {
            return Ok(tree);
        }
        let opened = Tree::open(SnapshotRows(self.rows.clone()));
        let opened = opened.map_err(|error| self.tree_error(error))?;
        Ok(self.tree.get_or_init(|| opened))
    }

    /// The proof that an account is, or is not, in the state.
    ///
    /// # Errors
    ///
    /// If the database cannot be read or is damaged.
    pub fn prove(&self, key: &tree::Key) -> Result<tree::Proof, StoreError> {
        let proof = self.tree()?.prove(key);
        proof.map_err(|error| self.tree_error(error))
    }

    /// The entries of a span that changed after a height, or all if that is 0, with their proof.
    ///
    /// The span's whole content is hashed: what does not lead to the root never leaves this node.
    ///
    /// # Errors
    ///
    /// If the database cannot be read or is damaged.
    pub fn chunk(&self, span: &Span, since: Height) -> Result<Served, StoreError> {
        let way = self.tree()?.way_to(span);
        let (span, siblings) = way.map_err(|error| self.tree_error(error))?;
        let mut entries = AccountRows::default();
        let after = span.after();
        let below = after.as_ref().map(|key| &key[..]);
        let mut collect = |key: &[u8], row: &[u8]| {
            entries.add(key, row);
            entries.len() <= CHUNK_MAX_ENTRIES
        };
        let read = self.rows.visit(ACCOUNTS, span.first(), below, &mut collect);
        read.map_err(|source| failed(&self.path, source))?;
        if entries.len() > CHUNK_MAX_ENTRIES {
            return Ok(Served::TooMany);
        }
        let all = entries.iter().map(|row| (row.key, row.account));
        let whole = Chunk::new(span, siblings.clone(), 0, all);
        if !whole.is_all_of_its_span(&self.root) {
            let what = format!("the accounts at {span} do not make the state's root");
            return Err(StoreError::Damaged {
                path: self.path.to_path_buf(),
                what,
            });
        }
        if since == Height(0) {
            return Ok(Served::Chunk(whole));
        }
        let changed = entries
            .iter()
            .filter(|row| *row.height > height_key(since)[..]);
        let changed = changed.map(|row| (row.key, row.account));
        Ok(Served::Chunk(Chunk::new(span, siblings, since.0, changed)))
    }

    fn tree_error(&self, error: tree::TreeError) -> StoreError {
        match error {
            tree::TreeError::Store(source) => failed(&self.path, source),
            error => StoreError::Damaged {
                path: self.path.to_path_buf(),
                what: format!("state tree: {error}"),
            },
        }
    }
}

/// A part of the key space, and the height at which it is right; 0 if nothing is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Covered {
    /// The part.
    pub span: Span,
    /// The height whose state is complete.
    pub height: Height,
    /// The topmost nodes in it, if a chunk brought it there.
    nodes: Vec<KnownNode>,
}

/// The height at which each part of the key space is right. Its parts make up the key space.
#[derive(Debug)]
pub struct Coverage {
    /// By their first keys.
    parts: BTreeMap<tree::Key, Covered>,
    unsaved: Unsaved,
    /// What is being written.
    saving: Option<Arc<Unsaved>>,
}

/// Chunks that were taken and are being written ([`Coverage::begin_save`]).
#[derive(Debug)]
pub struct Save {
    unsaved: Arc<Unsaved>,
    /// The rows of the coverage that changed.
    coverage: Batch,
}

impl Covered {
    pub(super) fn nodes(&self) -> &[KnownNode] {
        &self.nodes
    }
}

impl Coverage {
    /// The parts, in the order of the key space.
    pub fn parts(&self) -> impl DoubleEndedIterator<Item = &Covered> {
        self.parts.values()
    }

    /// Whether every key of a span is in parts that are right at a height.
    pub fn is_right_at(&self, span: &Span, height: Height) -> bool {
        self.overlapping(span).all(|part| part.height == height)
    }

    /// How much of the key space is right at a height: 0 to 1. Keys are hashes, so this is about the
    /// same part of the state.
    pub fn share_at(&self, height: Height) -> f64 {
        let parts = self.parts().filter(|part| part.height == height);
        let share =
            |part: &Covered| 0.5_f64.powi(i32::try_from(part.span.bits()).unwrap_or(i32::MAX));
        parts.map(share).sum()
    }

    /// Hands over what is to be written by [`Store::write_save`], on another thread perhaps. Saves are
    /// written in the order in which they were begun. `None` if there is nothing.
    ///
    /// # Panics
    ///
    /// If the save before was not [ended](Self::end_save).
    pub fn begin_save(&mut self) -> Option<Save> {
        assert!(self.saving.is_none(), "one save at a time");
        if self.unsaved.is_empty() {
            return None;
        }
        let unsaved = Arc::new(std::mem::take(&mut self.unsaved));
        self.saving = Some(unsaved.clone());
        let coverage = unsaved.coverage_rows(&self.parts);
        Some(Save { unsaved, coverage })
    }

    /// The save that was begun is written.
    pub fn end_save(&mut self) {
        self.saving = None;
    }

    /// Whether a part of a span cannot be taken before the save under way has ended: because some of it
    /// is being written, or must be written first, and there is one save at a time.
    pub fn is_saving(&self, span: &Span) -> bool {
        let saving = self.saving.as_ref();
        saving.is_some_and(|saving| saving.overlaps(span) || self.unsaved.overlaps(span))
    }

    /// The parts that share keys with a span: those in it, or the one that it is in.
    fn overlapping(&self, span: &Span) -> impl Iterator<Item = &Covered> {
        let before = self.parts.range(..=*span.first()).next_back();
        let wider = before.filter(|(_, part)| part.span.covers(span));
        let inside = self.parts.range(*span.first()..);
        let inside = inside.take_while(|(_, part)| span.covers(&part.span));
        let skipped = usize::from(wider.is_some_and(|(_, part)| part.span == *span));
        wider
            .into_iter()
            .chain(inside.skip(skipped))
            .map(|(_, part)| part)
    }

    /// The parts that a span replaces, and those that come in their places: the span itself, and what
    /// of a wider part is beside it.
    fn replaced(&self, new: Covered) -> (Vec<Span>, Vec<Covered>) {
        let mut added = Vec::new();
        let mut removed = Vec::new();
        for part in self.overlapping(&new.span) {
            removed.push(part.span);
            if !new.span.covers(&part.span) {
                added.extend(
                    around(&part.span, &new.span)
                        .into_iter()
                        .map(|span| Covered {
                            span,
                            height: part.height,
                            nodes: Vec::new(),
                        }),
                );
            }
        }
        added.push(new);
        (removed, added)
    }
}

/// Why a chunk is refused.
#[derive(Debug, thiserror::Error)]
pub enum ChunkError {
    /// It does not verify: its sender is faulty, or this database is, if the chunk is about
    /// changes.
    #[error(transparent)]
    Proof(#[from] ProofError),
    /// The database failed: halt.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Store {
    /// The state after the newest block. For the thread that commits; others may read it as long as
    /// they like.
    pub fn pin(&self) -> StateSnapshot {
        let tip = self.tip();
        self.state_of((tip.height, tip.state_root), self.database.snapshot())
    }

    /// The state after a block, in these rows.
    pub(super) fn state_of(
        &self,
        (height, root): (Height, Digest),
        rows: Arc<dyn Rows>,
    ) -> StateSnapshot {
        StateSnapshot {
            height,
            root,
            path: self.path.clone(),
            rows,
            tree: OnceLock::new(),
        }
    }

    /// Starts to bring the state to a later block by chunks, from what is stored, or continues.
    /// Until [`Self::finish_sync`] the state is that of no block, and nothing can be executed. All
    /// blocks but the newest are deleted, since none between them and the target will be stored.
    ///
    /// # Errors
    ///
    /// If the database fails: halt.
    pub fn begin_sync(&self) -> Result<(), StoreError> {
        if self.is_syncing()? {
            return Ok(());
        }
        let tip = self.tip().height;
        while self.prune(tip, u64::MAX)? < tip {}
        let mut batch = Batch::default();
        batch.put(SYNC, Span::ALL.encode(), covered_row(tip, &[]));
        self.write(&batch, true)
    }

    /// Whether the state is being assembled from chunks.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    pub fn is_syncing(&self) -> Result<bool, StoreError> {
        let rows = self.database.rows_from(SYNC, &[], 1);
        Ok(!rows
            .map_err(|source| failed(&self.path, source))?
            .is_empty())
    }

    /// The height at which each part of the key space is right, in the order of the key space.
    ///
    /// # Errors
    ///
    /// If the database cannot be read or is damaged.
    pub fn coverage(&self) -> Result<Coverage, StoreError> {
        let rows = self.database.rows_from(SYNC, &[], usize::MAX);
        let rows = rows.map_err(|source| failed(&self.path, source))?;
        let parts = rows
            .iter()
            .map(|(key, row)| {
                let covered = read_covered(key, row);
                let covered =
                    covered.map_err(|error| self.damaged("a row of state sync", &error))?;
                Ok((*covered.span.first(), covered))
            })
            .collect::<Result<_, StoreError>>()?;
        Ok(Coverage {
            parts,
            unsaved: Unsaved::default(),
            saving: None,
        })
    }

    /// Verifies a chunk against the root after a block. It is written by the next
    /// [`Self::save_chunks`]; a crash before costs it. Returns how many entries the chunk's span has.
    ///
    /// # Errors
    ///
    /// [`ChunkError::Proof`] if it does not verify; nothing is changed then.
    ///
    /// # Panics
    ///
    /// If [its span is being written](Coverage::is_saving): rows are compared with those in the database.
    pub fn take_chunk(
        &self,
        chunk: Chunk,
        (height, root): (Height, &Digest),
        coverage: &mut Coverage,
    ) -> Result<usize, ChunkError> {
        let span = chunk.span();
        assert!(!coverage.is_saving(&span), "the span is not being written");
        if coverage.unsaved.overlaps(&span) {
            self.save_chunks(coverage)?;
        }
        let rows = match chunk.since() {
            0 => AccountRows::default(),
            _ => self.accounts_in(&span)?,
        };
        // No part that is served has more. A peer may widen a part, up to the whole state.
        if rows.len() > CHUNK_MAX_ENTRIES {
            return Err(ProofError::OtherRoot.into());
        }
        let held = rows.iter().map(|row| (row.key, row.account));
        let verified = chunk.verify(root, held)?;
        if chunk.since() == 0 {
            self.delete_strangers(&chunk, &mut coverage.unsaved)?;
        }
        let entries = verified
            .nodes
            .iter()
            .map(|node| node.entries as usize)
            .sum();
        let (removed, added) = coverage.replaced(Covered {
            span,
            height,
            nodes: verified.nodes.clone(),
        });
        coverage.unsaved.add(chunk, height, verified);
        for part in &removed {
            coverage.parts.remove(part.first());
        }
        let firsts = added.iter().map(|part| *part.span.first());
        coverage.unsaved.cover(removed, firsts);
        let added = added.into_iter().map(|part| (*part.span.first(), part));
        coverage.parts.extend(added);
        Ok(entries)
    }

    /// Writes the chunks that were taken, durably.
    ///
    /// # Errors
    ///
    /// If the database fails: halt.
    pub fn save_chunks(&self, coverage: &mut Coverage) -> Result<(), StoreError> {
        if let Some(save) = coverage.begin_save() {
            self.write_save(&save)?;
            coverage.end_save();
        }
        Ok(())
    }

    /// Writes a save, durably.
    ///
    /// # Errors
    ///
    /// If the database fails: halt.
    pub fn write_save(&self, save: &Save) -> Result<(), StoreError> {
        let (files, mut rest) = save.unsaved.files();
        let loaded = self.database.load(&files);
        loaded.map_err(|source| failed(&self.path, source))?;
        // In one batch: the coverage may not be there before the rows.
        rest.append(&save.coverage);
        self.write(&rest, true)
    }

    /// Ends a sync: every part of the key space is right at the target's height, and saved. The target becomes the
    /// tip and the only stored block, and the tree is opened anew. `next`: the validators of the next epoch, if
    /// the state names others.
    ///
    /// # Errors
    ///
    /// If the database fails or is damaged: halt.
    ///
    /// # Panics
    ///
    /// If a part is not right at that height.
    pub fn finish_sync(
        &self,
        block: Arc<Block>,
        certificate: Option<Certificate>,
        root: Digest,
        next: Option<&ValidatorSet>,
    ) -> Result<Tree<tree::TableRows>, StoreError> {
        let height = block.height();
        let coverage = self.coverage()?;
        assert!(
            coverage.parts().all(|covered| covered.height == height),
            "every part is right at the target's height"
        );
        let nodes: Vec<KnownNode> = coverage
            .parts()
            .flat_map(|covered| covered.nodes.iter().copied())
            .collect();
        let mut bucket = |span: &Span| {
            let rows = self.accounts_in(span)?;
            let entry = |row: AccountRow<'_>| (*row.key, row.account.to_vec());
            Ok::<_, StoreError>(rows.iter().map(entry).collect())
        };
        let (made, upper) = assemble(&nodes, &mut bucket)?;
        if made != root {
            return Err(self.damaged_by(format!("chunks make the root {made}, not {root}")));
        }
        let mut batch = Batch::default();
        for (key, row) in upper.rows() {
            batch.put(NODES, key, row);
        }
        let mut row = block.encode().to_vec();
        if let Some(certificate) = &certificate {
            row.extend_from_slice(&certificate.encode());
        }
        let key = height_key(height);
        let before = self.get(META, b"tip")?.unwrap_or_default();
        let before = Height::decode(Copying(&before)).map_err(|e| self.damaged("tip", &e))?;
        let old = self.block(before)?.map(|stored| stored.block);
        self.stage_removal(before, old.as_deref(), &mut batch)?;
        batch.put(META, PRUNED, height.encode());
        batch.put(META, BASE, height.encode());
        batch.put(BLOCKS, key, row);
        batch.put(IDS, block.id(), key);
        batch.put(ROOTS, key, root);
        batch.put(META, b"tip", key);
        self.stage_undo_removal(height, &mut batch);
        if let Some(next) = next {
            stage_set(next, &mut batch);
        }
        for covered in coverage.parts() {
            batch.delete(SYNC, covered.span.encode());
        }
        self.write(&batch, true)?;
        *self.tip.write().unwrap_or_else(|e| e.into_inner()) = StoredTip {
            view: block.header().view,
            height,
            id: block.id(),
            state_root: root,
            block: Some(block),
            certificate,
        };
        self.open_tree()
    }

    /// Deletes the accounts that are stored in a whole part's span and that the part lacks. No state of
    /// the chain has them, but a damaged database may: it is repaired by whole parts.
    fn delete_strangers(&self, chunk: &Chunk, unsaved: &mut Unsaved) -> Result<(), StoreError> {
        let mut entries = chunk.entries().map(|(key, _)| key).peekable();
        let mut compare = |key: &[u8], _: &[u8]| {
            while entries.next_if(|entry| entry[..] < *key).is_some() {}
            if entries.peek().is_none_or(|entry| entry[..] != *key) {
                unsaved.delete_account(key);
            }
            true
        };
        self.visit_accounts(&chunk.span(), &mut compare)
    }

    /// The accounts' rows in a span: if they are more than a part may have, only one more than that.
    fn accounts_in(&self, span: &Span) -> Result<AccountRows, StoreError> {
        let mut held = AccountRows::default();
        let mut keep = |key: &[u8], row: &[u8]| {
            held.add(key, row);
            held.len() <= CHUNK_MAX_ENTRIES
        };
        self.visit_accounts(span, &mut keep)?;
        Ok(held)
    }

    fn visit_accounts(
        &self,
        span: &Span,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let after = span.after();
        let below = after.as_ref().map(|key| &key[..]);
        let read = self.database.visit(ACCOUNTS, span.first(), below, visit);
        read.map_err(|source| failed(&self.path, source))
    }
}

/// The parts of a span outside a narrower one.
fn around(whole: &Span, part: &Span) -> Vec<Span> {
    let mut rest = Vec::new();
    let mut span = *whole;
    while span != *part {
        let [left, right] = span.halves().expect("a narrower span lies in it");
        let (inside, beside) = if left.covers(part) {
            (left, right)
        } else {
            (right, left)
        };
        rest.push(beside);
        span = inside;
    }
    rest
}

pub(super) fn covered_row(height: Height, nodes: &[KnownNode]) -> Vec<u8> {
    let mut row = height.encode().to_vec();
    for node in nodes {
        row.extend_from_slice(&node.hash.0);
        row.extend_from_slice(&node.entries.to_be_bytes());
    }
    row
}

fn read_covered(key: &[u8], row: &[u8]) -> Result<Covered, commonware_codec::Error> {
    let span = Span::decode(Copying(key))?;
    let (height, nodes) = row
        .split_first_chunk::<8>()
        .ok_or(commonware_codec::Error::EndOfBuffer)?;
    let nodes: Vec<(Digest, u32)> = nodes
        .as_chunks::<36>()
        .0
        .iter()
        .map(|node| {
            let (hash, entries) = node.split_at(32);
            let mut digest = Digest::ZERO;
            digest.0.copy_from_slice(hash);
            let entries = entries.try_into().map_or(0, u32::from_be_bytes);
            (digest, entries)
        })
        .collect();
    let nodes = span
        .nodes()
        .zip(nodes)
        .map(|(prefix, (hash, entries))| KnownNode {
            prefix,
            hash,
            entries,
        });
    Ok(Covered {
        span,
        height: Height(u64::from_be_bytes(*height)),
        nodes: nodes.collect(),
    })
}
