//! When a chain may rest: what needs a block, and what does not.

use crate::{engine::Engine, io::Moment};
use quorate_crypto::Digest;
use quorate_types::{Block, Height};

impl Engine {
    /// Whether nothing in the chain waits for a further block: the block that the current view's
    /// leader would build on names the state after all transactions up to itself. Then everything
    /// in the chain can be proven to anybody with that block's finalization. Where a block is final only with others
    /// upon it, it is the newest one that is final for all who know the leader's parent. `root` returns the accounts' root after an executed height.
    ///
    /// It is a function of the chain, so validators that know the same blocks agree on it.
    pub fn is_complete(&self, root: impl Fn(Height) -> Option<Digest>) -> bool {
        let Some(Some(parent)) = self.rules().newest_parent(self) else {
            return false;
        };
        // The epoch's last block is proposed again until it is final.
        if self.ends_epoch(&parent) {
            return false;
        }
        let Ok(unexecuted) = self.chain.unexecuted(Some(&parent)) else {
            return false;
        };
        let above = self.rules().blocks_above_a_final_one();
        if above > 0 && self.is_final_late(&parent, above) {
            return false;
        }
        let Some(named) = self.rules().final_below(self, &parent) else {
            return false;
        };
        let named = named.header();
        let mut filled = unexecuted.iter();
        match filled.find(|block| !block.transactions().is_empty()) {
            Some(block) => named.executed_height >= block.height(),
            // Empty blocks change no account.
            None => root(self.chain.executed()) == Some(named.state_root),
        }
    }

    /// Whether more blocks than usual wait below this one to become final with others upon them. Where they follow each
    /// other too late for that, time-outs are doubled after some views, and with a rest in each of these nothing would be
    /// final for long.
    fn is_final_late(&self, parent: &Block, above: u64) -> bool {
        let waiting = parent.height().0.saturating_sub(self.tip().height.0);
        waiting > above + 1 + self.committee.faults() as u64
    }

    /// Until when the current view's leader may wait for transactions, if it may.
    pub fn idles_until(&self, now: Moment) -> Option<Moment> {
        self.pacemaker.idles_until(now)
    }

    /// Whether the current view has no proposal here yet.
    pub fn awaits_proposal(&self) -> bool {
        let round = self.views.get(self.view());
        round.is_none_or(|round| round.proposal.is_none())
    }

    /// Upon notarize votes of f + 1 validators in a view that idles here: an honest one among them
    /// has seen the proposal, so it is late here.
    pub(crate) fn expect_with_others(&mut self, now: Moment) {
        if self.pacemaker.idles_until(now).is_none() {
            return;
        }
        let round = self.views.get(self.view());
        let notarizing = round.map_or(0, |round| round.notarizing());
        if notarizing > self.committee.faults() {
            self.pacemaker.expect(now);
        }
    }
}
