//! The blocks above what is executed: the finalised tip, what is final but not durable outside the
//! journal yet, and the blocks above the tip.

use crate::{config::Tip, io::Finalized};
use quorate_crypto::Digest;
use quorate_types::{Block, Certificate, Height, ValidatorIndex, View};
use std::{collections::BTreeMap, sync::Arc};

/// A block above the finalised tip.
pub(crate) struct Held {
    pub(crate) block: Arc<Block>,
    /// Whether it is in the journal.
    pub(crate) journaled: bool,
    /// The validator that proposed it, if that was the reason to keep it.
    pub(crate) leader: Option<ValidatorIndex>,
}

/// The result of following parents from a finalised block down to the tip.
pub(crate) enum Walk {
    /// All blocks above the tip, newest first.
    Complete(Vec<Arc<Block>>),
    /// The first block that is missing, and the height of the one above it, if any is known.
    Missing(Digest, Option<Height>),
    /// The chain does not meet the tip.
    Fork,
}

/// The tip grows by one block at a time, and what is executed never passes it.
pub(crate) struct Chain {
    /// The newest finalised block whose whole chain is known.
    tip: Tip,
    /// The block below the tip, once the tip has grown.
    below_tip: Option<Arc<Block>>,
    /// Blocks above the tip, by id.
    held: BTreeMap<Digest, Held>,
    /// Finalised blocks that are not yet durable outside the journal.
    delivered: BTreeMap<Height, Finalized>,
    /// The newest height that is durable outside the journal.
    executed: Height,
}

impl Chain {
    /// `tip` is durable outside the journal.
    pub(crate) fn new(tip: Tip) -> Self {
        Self {
            held: BTreeMap::new(),
            delivered: BTreeMap::new(),
            executed: tip.height,
            tip,
            below_tip: None,
        }
    }

    pub(crate) fn tip(&self) -> &Tip {
        &self.tip
    }

    pub(crate) fn executed(&self) -> Height {
        self.executed
    }

    /// Finalised blocks that are not executed yet.
    pub(crate) fn backlog(&self) -> u64 {
        self.tip.height.0 - self.executed.0
    }

    /// A block above the tip.
    pub(crate) fn held(&self, id: &Digest) -> Option<&Held> {
        self.held.get(id)
    }

    pub(crate) fn holds(&self, id: &Digest) -> bool {
        self.held.contains_key(id)
    }

    /// The blocks above the tip.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (&Digest, &Held)> + Clone {
        self.held.iter()
    }

    pub(crate) fn delivered(&self) -> impl DoubleEndedIterator<Item = &Finalized> {
        self.delivered.values()
    }

    /// A block above the executed height.
    pub(crate) fn block(&self, id: &Digest) -> Option<Arc<Block>> {
        if let Some(held) = self.held.get(id) {
            return Some(held.block.clone());
        }
        let mut delivered = self.delivered().rev().map(|finalized| &finalized.block);
        delivered.find(|block| block.id() == *id).cloned()
    }

    /// A block above the tip, the tip's or the one below it, or one that is not executed yet.
    pub(crate) fn recent(&self, id: &Digest) -> Option<Arc<Block>> {
        let mut newest = self.tip.block.iter().chain(&self.below_tip);
        let newest = newest.find(|block| block.id() == *id);
        newest.cloned().or_else(|| self.block(id))
    }

    /// The block with this id at or above the tip: `Some(None)` is the genesis state.
    pub(crate) fn block_at(&self, id: &Digest) -> Option<Option<Arc<Block>>> {
        if *id == self.tip.id {
            return Some(self.tip.block.clone());
        }
        self.held.get(id).map(|held| Some(held.block.clone()))
    }

    /// Keeps a block above the tip; `leader` if its leader's word is all that speaks for it.
    pub(crate) fn keep(&mut self, block: Arc<Block>, leader: Option<ValidatorIndex>) {
        if block.height() <= self.tip.height {
            return;
        }
        let new = Held {
            block: block.clone(),
            journaled: false,
            leader,
        };
        let held = self.held.entry(block.id()).or_insert(new);
        if leader.is_none() {
            held.leader = None;
        }
    }

    /// Recovery: keeps a block above the tip that the journal holds.
    pub(crate) fn restore(&mut self, block: Arc<Block>) {
        if block.height() > self.tip.height {
            let held = Held {
                block: block.clone(),
                journaled: true,
                leader: None,
            };
            self.held.insert(block.id(), held);
        }
    }

    /// The block, if it is not in the journal yet. From now on it counts as journaled.
    pub(crate) fn journal(&mut self, id: &Digest) -> Option<Arc<Block>> {
        let held = self.held.get_mut(id).filter(|held| !held.journaled)?;
        held.journaled = true;
        Some(held.block.clone())
    }

    pub(crate) fn forget(&mut self, id: &Digest) {
        self.held.remove(id);
    }

    /// The block and its ancestors whose effects are not durable outside the journal, newest first; or
    /// the id of the first that is missing. Without all of them nobody can tell what the accounts will
    /// hold after the block, so this validator neither builds on it nor votes for a block that does.
    pub(crate) fn unexecuted(&self, block: Option<&Arc<Block>>) -> Result<Vec<Arc<Block>>, Digest> {
        let mut chain: Vec<Arc<Block>> = Vec::new();
        let mut next = block.cloned();
        while let Some(block) = next.take_if(|block| block.height() > self.executed) {
            let below = block.height().0 - 1;
            let parent = block.header().parent;
            chain.push(block);
            if below <= self.executed.0 {
                break;
            }
            let held = self.held.get(&parent).map(|held| &held.block);
            let delivered = || self.delivered.get(&Height(below)).map(|done| &done.block);
            let parent_block = held
                .or_else(delivered)
                .filter(|block| block.id() == parent)
                .cloned();
            next = Some(parent_block.ok_or(parent)?);
        }
        Ok(chain)
    }

    /// Follows parents from the block that the certificate finalises down to the tip.
    pub(crate) fn walk(&self, certificate: &Certificate) -> Walk {
        let mut chain: Vec<Arc<Block>> = Vec::new();
        let mut id = certificate.subject.payload;
        while id != self.tip.id {
            let Some(held) = self.held.get(&id) else {
                let lowest = chain.last().map(|block| block.height());
                // R10
                if lowest.is_some_and(|height| height <= self.tip.height.next()) {
                    return Walk::Fork;
                }
                return Walk::Missing(id, lowest);
            };
            id = held.block.header().parent;
            chain.push(held.block.clone());
        }
        Walk::Complete(chain)
    }

    /// Makes the block the tip. `certificate` finalises it or a descendant; `own`, if there is one, is
    /// its own finalization.
    pub(crate) fn extend(
        &mut self,
        block: Arc<Block>,
        certificate: &Certificate,
        own: Option<Certificate>,
    ) -> Finalized {
        assert_eq!(
            block.height(),
            self.tip.height.next(),
            "the tip grows by one block at a time"
        );
        self.held.remove(&block.id());
        let finalized = Finalized {
            certificate: own,
            block: block.clone(),
        };
        self.delivered.insert(block.height(), finalized.clone());
        let tip = Tip {
            view: certificate.subject.view,
            height: block.height(),
            id: block.id(),
            block: Some(block),
            certificate: Some(certificate.clone()),
        };
        self.below_tip = std::mem::replace(&mut self.tip, tip).block;
        finalized
    }

    /// Forgets the blocks that the tip has settled: those as low, and those proposed beside a final
    /// block in a view that is settled, which never become final.
    pub(crate) fn prune(&mut self) {
        let (tip, settled): (Height, View) = (self.tip.height, self.tip.view);
        self.held
            .retain(|_, held| held.block.height() > tip && held.block.header().view > settled);
    }

    /// Notes that finalised blocks up to this height are durable outside the journal.
    pub(crate) fn execute(&mut self, height: Height) {
        self.executed = self.executed.max(height);
        self.delivered = self.delivered.split_off(&self.executed.next());
    }

    /// Starts the next epoch on the tip, in view 0.
    pub(crate) fn start_epoch(&mut self) {
        self.tip.view = View(0);
        self.held.clear();
    }
}
