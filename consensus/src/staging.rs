//! The finalised blocks that are missing here: the newest finalization known, and the blocks of a range
//! that wait for a finalization.

use quorate_types::{Block, Certificate, Height, ValidatorIndex, View, VoteKind};
use std::sync::Arc;

/// Blocks of a range that may wait for their finalization.
const MAX_STAGED_BLOCKS: usize = 1_024;

#[derive(Default)]
pub(crate) struct Staging {
    /// The newest verified finalization, if blocks below it are missing.
    target: Option<Certificate>,
    /// Consecutive blocks above the tip that wait for their finalization.
    blocks: Vec<Arc<Block>>,
    /// The peers that gave them, the latest last.
    given_by: Vec<ValidatorIndex>,
}

impl Staging {
    pub(crate) fn target(&self) -> Option<&Certificate> {
        self.target.as_ref()
    }

    pub(crate) fn target_view(&self) -> Option<View> {
        self.target.as_ref().map(|target| target.subject.view)
    }

    /// Aims at this finalization, if it is newer than the target.
    pub(crate) fn aim_at(&mut self, certificate: Certificate) {
        if self.target_view() < Some(certificate.subject.view) {
            self.target = Some(certificate);
        }
    }

    pub(crate) fn reached(&mut self) {
        self.target = None;
    }

    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// The newest block.
    pub(crate) fn last(&self) -> Option<&Arc<Block>> {
        self.blocks.last()
    }

    /// The peer that gave blocks last.
    pub(crate) fn last_giver(&self) -> Option<ValidatorIndex> {
        self.given_by.last().copied()
    }

    pub(crate) fn is_given_by(&mut self, peer: ValidatorIndex) {
        if !self.given_by.contains(&peer) {
            self.given_by.push(peer);
        }
    }

    /// Adds the block above the newest one. Returns whether there was room for it.
    pub(crate) fn push(&mut self, block: Arc<Block>) -> bool {
        let room = self.blocks.len() < MAX_STAGED_BLOCKS;
        if room {
            self.blocks.push(block);
        }
        room
    }

    /// Takes all blocks, and the peers that gave them.
    pub(crate) fn take(&mut self) -> (Vec<Arc<Block>>, Vec<ValidatorIndex>) {
        (
            std::mem::take(&mut self.blocks),
            std::mem::take(&mut self.given_by),
        )
    }

    /// Forgets the blocks that the tip has reached.
    pub(crate) fn prune(&mut self, tip: Height) {
        self.blocks.retain(|block| block.height() > tip);
    }

    /// Whether the certificate finalises the newest block.
    pub(crate) fn is_closed_by(&self, certificate: &Certificate) -> bool {
        let subject = &certificate.subject;
        subject.kind == VoteKind::Finalize
            && self
                .last()
                .is_some_and(|block| block.id() == subject.payload)
    }
}
