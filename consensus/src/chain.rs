//! The chain: following parents down to the finalised tip, handing over what became final, and
//! fetching what is missing in between.

use crate::{
    config::{MAX_UNEXECUTED_BLOCKS, TAIL_VIEWS, Tip},
    engine::{Engine, Pending},
    fetch::Want,
    io::{Finalized, Moment, Output, Work},
};
use quorate_crypto::mistakes::{Mistake, made};
use quorate_types::{Block, Certificate, Height, ValidatorIndex, VoteKind};
use std::sync::Arc;

/// Missing blocks up to which they are fetched one by one; beyond, by range.
const FETCH_SINGLY: u64 = 8;

/// Blocks of a range that may wait for their finalization.
const MAX_STAGED_BLOCKS: usize = 1_024;

/// What following parents from a block comes to.
enum Walk {
    /// All blocks above the tip, newest first.
    Complete(Vec<Arc<Block>>),
    /// This one is missing; the lowest known is at the given height, if any is known.
    Missing(quorate_crypto::Digest, Option<Height>),
    /// The chain does not meet the tip.
    Fork(String),
}

impl Engine {
    /// Upon a verified finalization.
    pub(crate) fn on_finalization(
        &mut self,
        now: Moment,
        certificate: Certificate,
        out: &mut Output,
    ) {
        // R10
        if !self.try_commit(&certificate, out)
            && self
                .target
                .as_ref()
                .is_none_or(|target| target.subject.view < certificate.subject.view)
        {
            self.target = Some(certificate);
        }
        self.pursue(now, out);
    }

    /// Tries to complete the chain to the newest known finalization, and asks for what is missing.
    pub(crate) fn pursue(&mut self, now: Moment, out: &mut Output) {
        let Some(target) = self.target.clone() else {
            if self.lags_by_epochs() {
                self.want_next_range(now, out);
            }
            return;
        };
        if target.subject.view <= self.tip.view || self.try_commit(&target, out) {
            self.target = None;
            return;
        }
        let Walk::Missing(id, lowest) = self.walk(&target) else {
            return;
        };
        let gap = lowest.map_or(0, |height| height.0 - self.tip.height.0);
        if gap <= FETCH_SINGLY {
            self.want(now, Want::Block(id), None, out);
            return;
        }
        self.want_next_range(now, out);
    }

    /// Asks for the next finalised blocks: whoever has given the ones before that are set aside, else
    /// one of those who say that they have them.
    fn want_next_range(&mut self, now: Moment, out: &mut Output) {
        let backlog = self.tip.height.0 - self.executed.0;
        if backlog <= MAX_UNEXECUTED_BLOCKS && !self.epoch_is_over() {
            let next = self.next_in_range();
            self.fetcher
                .retain(|want| !matches!(want, Want::Range(from) if *from != next));
            let hint = self.staged_by.last().copied();
            self.want(now, Want::Range(next), hint, out);
        }
    }

    /// What was set aside does not belong to the chain: who gave it is asked last from now on.
    pub(crate) fn unstage_all(&mut self, now: Moment) {
        self.staged.clear();
        for peer in std::mem::take(&mut self.staged_by) {
            self.fetcher.disappointed(now, peer);
        }
        self.fetcher.retain(|want| !matches!(want, Want::Range(_)));
        self.counters.dropped_invalid += 1;
    }

    fn next_in_range(&self) -> Height {
        let newest = self.staged.last().map(|block| block.height());
        newest.unwrap_or(self.tip.height).next()
    }

    fn walk(&self, certificate: &Certificate) -> Walk {
        let mut chain: Vec<Arc<Block>> = Vec::new();
        let mut id = certificate.subject.payload;
        while id != self.tip.id {
            let Some(held) = self.blocks.get(&id) else {
                let lowest = chain.last().map(|block| block.height());
                // R10
                if lowest.is_some_and(|height| height <= self.tip.height.next()) {
                    return Walk::Fork(format!(
                        "{certificate:?} finalises a chain without block {} of height {}, which \
                         is final: more than {} validators are faulty, or this database is \
                         another chain's",
                        self.tip.id,
                        self.tip.height,
                        self.config.committee.faults()
                    ));
                }
                return Walk::Missing(id, lowest);
            };
            id = held.block.header().parent;
            chain.push(held.block.clone());
        }
        Walk::Complete(chain)
    }

    /// Hands over everything up to the certificate's block, if all of it is here. Returns whether
    /// the certificate needs no further thought.
    fn try_commit(&mut self, certificate: &Certificate, out: &mut Output) -> bool {
        if certificate.subject.view <= self.tip.view {
            return true;
        }
        let chain = match self.walk(certificate) {
            Walk::Complete(chain) => chain,
            Walk::Missing(..) => return false,
            Walk::Fork(reason) => {
                out.fatal = Some(reason);
                return true;
            }
        };
        for block in chain.into_iter().rev() {
            // R10: the tip grows by one block at a time.
            if block.height() != self.tip.height.next() {
                out.fatal = Some(format!(
                    "{certificate:?} finalizes block {} of height {} on height {}: more than {} \
                     validators are faulty",
                    block.id(),
                    block.height(),
                    self.tip.height,
                    self.config.committee.faults()
                ));
                return true;
            }
            self.blocks.remove(&block.id());
            let own = self
                .rounds
                .get(&block.header().view)
                .and_then(|round| round.finalization.as_ref())
                .unwrap_or(certificate);
            let finalized = Finalized {
                certificate: (own.subject.payload == block.id()).then(|| own.clone()),
                block: block.clone(),
            };
            self.delivered.insert(block.height(), finalized.clone());
            out.finalized.push(finalized);
            self.tip = Tip {
                view: certificate.subject.view,
                height: block.height(),
                id: block.id(),
                block: Some(block),
                certificate: Some(certificate.clone()),
            };
        }
        self.prune();
        true
    }

    /// Forgets what the new tip has settled.
    fn prune(&mut self) {
        let (tip, settled) = (self.tip.height, self.tip.view);
        // What is proposed in a settled view beside its final block never becomes final.
        self.blocks
            .retain(|_, held| held.block.height() > tip && held.block.header().view > settled);
        let floor = self.tip.view.0.saturating_sub(TAIL_VIEWS);
        while let Some(oldest) = self.rounds.first_entry()
            && oldest.key().0 < floor
        {
            oldest.remove();
        }
        self.staged.retain(|block| block.height() > tip);
        let blocks = &self.blocks;
        self.fetcher.retain(|want| match want {
            Want::Block(id) => !blocks.contains_key(id),
            Want::Range(from) => *from > tip,
            Want::Certificates(..) => true,
        });
    }

    /// Upon a block: one that was asked for, from whom it was asked. Any other changes nothing.
    pub(crate) fn on_block(
        &mut self,
        now: Moment,
        from: ValidatorIndex,
        block: Arc<Block>,
        out: &mut Output,
    ) {
        let want = Want::Block(block.id());
        // R23
        if !self.fetcher.is_asked(&want, from) {
            self.counters.dropped_invalid += 1;
            return;
        }
        self.fetcher.satisfy(&want, from);
        self.hold(block);
        self.on_new_block(now, out);
    }

    /// What a newly known block may allow: finalize votes, finality, the current view's vote.
    pub(crate) fn on_new_block(&mut self, now: Moment, out: &mut Output) {
        let blocks = &self.blocks;
        self.fetcher
            .retain(|want| !matches!(want, Want::Block(id) if blocks.contains_key(id)));
        let notarized: Vec<_> = self
            .rounds
            .range(self.tip.view.next()..)
            .rev()
            .take(TAIL_VIEWS as usize)
            .filter(|(_, round)| round.notarization.is_some() && round.own.finalize.is_none())
            .map(|(view, _)| *view)
            .collect();
        for view in notarized {
            self.try_finalize(view, out);
        }
        self.pursue(now, out);
        self.leave_settled_views(now, out);
        self.progress(now, out);
    }

    /// Upon finalised blocks from a peer. They are set aside until a finalization of the last of
    /// them is verified; until then nothing says that they belong to the chain.
    pub(crate) fn on_range(
        &mut self,
        now: Moment,
        from: ValidatorIndex,
        blocks: Vec<Arc<Block>>,
        finalization: Option<Certificate>,
        out: &mut Output,
    ) {
        let want = Want::Range(self.next_in_range());
        if !self.fetcher.is_asked(&want, from) {
            self.counters.dropped_invalid += 1;
            return;
        }
        if !self.staged_by.contains(&from) {
            self.staged_by.push(from);
        }
        let nothing = blocks.is_empty();
        for block in blocks {
            let parent = match self.staged.last() {
                Some(last) => (last.id(), last.height()),
                None => (self.tip.id, self.tip.height),
            };
            if (block.header().parent, block.height()) != (parent.0, parent.1.next())
                || block.height() > self.last_height()
                || self.staged.len() >= MAX_STAGED_BLOCKS
            {
                // Either it or those before are of no chain.
                self.unstage_all(now);
                return self.pursue(now, out);
            }
            self.staged.push(block);
        }
        if nothing {
            self.unstage_all(now);
            return self.pursue(now, out);
        }
        match finalization {
            Some(certificate)
                if made(Mistake::RangeUnverified) && self.closes_staged(&certificate) =>
            {
                self.unstage(now, &certificate, out);
            }
            Some(certificate) if self.closes_staged(&certificate) => {
                // Whether it was a good answer is told by the check.
                self.fetcher.retain(|other| *other != want);
                self.start(
                    Work::VerifyCertificates(vec![certificate.clone()]),
                    Pending::Certificates {
                        from,
                        certificates: vec![certificate],
                    },
                    out,
                );
            }
            Some(_) => {
                self.unstage_all(now);
                self.pursue(now, out);
            }
            None => {
                self.fetcher.satisfy(&want, from);
                self.pursue(now, out);
            }
        }
    }

    /// Upon word that a peer does not keep blocks that it was asked for. It is its claim alone: others
    /// are asked, it too again, but after them.
    pub(crate) fn on_pruned(
        &mut self,
        now: Moment,
        from: ValidatorIndex,
        height: Height,
        oldest: Height,
    ) {
        if !self.fetcher.is_asked(&Want::Range(height), from) || oldest <= height {
            self.counters.dropped_invalid += 1;
            return;
        }
        let before = self.oldest.insert(from, oldest);
        // At once when it is news only: if nobody keeps it, all would be asked without a pause.
        if before.is_none_or(|before| before <= height) {
            self.fetcher.pass_on(now, from);
        }
    }

    /// The next block that is missing here, and which peers say that they do not keep it, with the oldest
    /// that each of them keeps. None while nothing is missing, or nobody has said so.
    pub fn pruned_elsewhere(&self) -> Option<(Height, Vec<(ValidatorIndex, Height)>)> {
        let wanted = self.tip.height.next();
        let lacking = self.oldest.iter().filter(|(_, oldest)| **oldest > wanted);
        let lacking: Vec<_> = lacking.map(|(peer, oldest)| (*peer, *oldest)).collect();
        (self.is_behind() && !lacking.is_empty()).then_some((wanted, lacking))
    }

    pub(crate) fn closes_staged(&self, certificate: &Certificate) -> bool {
        let subject = &certificate.subject;
        subject.kind == VoteKind::Finalize
            && subject.epoch == self.config.epoch()
            && subject.view > self.tip.view
            && self
                .staged
                .last()
                .is_some_and(|block| block.id() == subject.payload)
    }

    /// Lets staged blocks join the chain if this verified certificate closes them. The machine may
    /// hold the certificate already, so it is acted upon here.
    pub(crate) fn unstage(&mut self, now: Moment, certificate: &Certificate, out: &mut Output) {
        if self.closes_staged(certificate) {
            for block in std::mem::take(&mut self.staged) {
                self.hold(block);
            }
            for peer in std::mem::take(&mut self.staged_by) {
                self.oldest.remove(&peer);
                self.fetcher.redeem(peer);
            }
            self.try_commit(certificate, out);
            self.pursue(now, out);
            self.leave_settled_views(now, out);
        }
    }

    /// Moves on from views that the tip has settled: no certificate of theirs is listened to any
    /// more, so nothing else would.
    fn leave_settled_views(&mut self, now: Moment, out: &mut Output) {
        if self.view <= self.tip.view && !self.epoch_is_over() {
            self.enter(now, self.tip.view.next(), true, out);
        }
    }

    /// Upon word that finalised blocks are durable outside the journal.
    pub(crate) fn on_executed(&mut self, now: Moment, height: Height, out: &mut Output) {
        self.executed = self.executed.max(height);
        self.delivered = self.delivered.split_off(&self.executed.next());
        self.pursue(now, out);
        self.leave_settled_views(now, out);
    }
}
