//! When a chain may rest: what needs a block, and what does not.

use crate::{engine::Engine, io::Moment};
use quorate_crypto::Digest;
use quorate_types::{Block, Height};
use std::sync::Arc;

impl Engine {
    /// Whether nothing of the chain waits for a further block: the block that the current view's leader
    /// would build on names the state after all transactions up to itself. Then whatever is in the
    /// chain can be proven to whoever holds that block's finalization. `root` tells the accounts'
    /// root after the executed block of a height.
    ///
    /// It is a function of the chain, so those who know of the same blocks agree on it.
    pub fn is_complete(&self, root: impl Fn(Height) -> Option<Digest>) -> bool {
        let Some(parent) = self.newest_notarized() else {
            return false;
        };
        // The epoch's last block is proposed again until it is final.
        if self.ends_epoch(&parent) {
            return false;
        }
        let Ok(unexecuted) = self.unexecuted(Some(&parent)) else {
            return false;
        };
        let named = parent.header();
        let mut filled = unexecuted.iter();
        match filled.find(|block| !block.transactions().is_empty()) {
            Some(block) => named.executed_height >= block.height(),
            // Empty blocks change no account.
            None => root(self.executed) == Some(named.state_root),
        }
    }

    /// Until when the current view's leader may wait for something to put into its block, if it may.
    pub fn idles_until(&self, now: Moment) -> Option<Moment> {
        self.pacemaker.idles_until(now)
    }

    /// Whether the current view has no proposal here yet.
    pub fn awaits_proposal(&self) -> bool {
        let round = self.rounds.get(&self.view);
        round.is_none_or(|round| round.proposal.is_none())
    }

    /// The block of the newest notarized view with nothing but nullified views above it, if all this is
    /// here. There is none on the genesis state.
    fn newest_notarized(&self) -> Option<Arc<Block>> {
        let mut view = self.view.previous()?;
        while view > self.tip.view {
            let round = self.rounds.get(&view)?;
            if let Some(id) = round.notarized() {
                return self.block_at(&id)?;
            }
            round.nullification.as_ref()?;
            view = view.previous()?;
        }
        self.tip.block.clone()
    }

    /// Upon notarize votes of f + 1 validators in a view that idles here: an honest one among them has
    /// seen the proposal, so it is late here.
    pub(crate) fn expect_with_others(&mut self, now: Moment) {
        if self.pacemaker.idles_until(now).is_none() {
            return;
        }
        let round = self.rounds.get(&self.view);
        let notarizing = round.map_or(0, |round| round.notarizing());
        if notarizing > self.config.committee.faults() {
            self.pacemaker.expect(now);
        }
    }
}
