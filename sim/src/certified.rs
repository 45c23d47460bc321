//! Blocks that a quorum of honest validators has voted for, and whose height another block has taken in the end.

use quorate_types::{Block, Digest, Height};
use std::collections::{BTreeMap, BTreeSet};

/// The blocks above the highest final one that honest validators have voted for.
pub(crate) struct Certified {
    quorum: usize,
    /// Height and leader of each block in a journal.
    blocks: BTreeMap<Digest, (Height, usize)>,
    votes: BTreeMap<(Height, Digest), BTreeSet<usize>>,
    agreed: Height,
    abandoned: u64,
}

impl Certified {
    pub(crate) fn new(quorum: usize) -> Self {
        Self {
            quorum,
            blocks: BTreeMap::new(),
            votes: BTreeMap::new(),
            agreed: Height(0),
            abandoned: 0,
        }
    }

    pub(crate) fn journaled(&mut self, block: &Block, leader: usize) {
        if block.height() > self.agreed {
            self.blocks.insert(block.id(), (block.height(), leader));
        }
    }

    /// An honest validator votes notarize.
    pub(crate) fn vote(&mut self, host: usize, id: Digest) {
        if let Some((height, _)) = self.blocks.get(&id) {
            self.votes.entry((*height, id)).or_default().insert(host);
        }
    }

    /// A block is final.
    pub(crate) fn agreed(&mut self, height: Height, id: Digest, byzantine: &BTreeSet<usize>) {
        self.agreed = height;
        let above = self.votes.split_off(&(height.next(), Digest([0; 32])));
        let votes = std::mem::replace(&mut self.votes, above);
        let lost = votes.iter().filter(|((at, other), voters)| {
            let leader = self.blocks.get(other).map(|(_, leader)| leader);
            *at == height
                && *other != id
                && voters.len() >= self.quorum
                && leader.is_some_and(|leader| !byzantine.contains(leader))
        });
        self.abandoned += lost.count() as u64;
        self.blocks.retain(|_, (at, _)| *at > height);
    }

    /// How many such blocks of honest leaders were abandoned.
    pub(crate) fn abandoned(&self) -> u64 {
        self.abandoned
    }
}
