//! Following parents from a finalised block down to the tip, handing over what became final, and fetching
//! the blocks that are missing in between.

use crate::{
    chain::Walk,
    checks::Pending,
    config::{MAX_UNEXECUTED_BLOCKS, TAIL_VIEWS},
    dropped::DropReason,
    engine::Engine,
    fetch::Want,
    io::{Step, Work},
};
use quorate_types::{Block, Certificate, Height, ValidatorIndex, View};
use std::sync::Arc;

/// Missing blocks up to which they are fetched one by one; beyond, by range.
const FETCH_SINGLY: u64 = 8;

impl Engine {
    /// Upon a verified finalization.
    pub(crate) fn on_finalization(&mut self, step: &mut Step, certificate: Certificate) {
        // R10
        if !self.try_commit(step, &certificate) {
            self.staging.aim_at(certificate);
        }
        self.pursue(step);
    }

    /// Tries to complete the chain to the newest known finalization, and requests what is missing.
    pub(crate) fn pursue(&mut self, step: &mut Step) {
        let Some(target) = self.staging.target().cloned() else {
            if self.lags_by_epochs() {
                self.want_next_range(step);
            }
            return;
        };
        if target.subject.view <= self.tip().view || self.try_commit(step, &target) {
            self.staging.reached();
            return;
        }
        let Walk::Missing(id, lowest) = self.chain.walk(&target) else {
            return;
        };
        let gap = lowest.map_or(0, |height| height.0 - self.tip().height.0);
        if gap <= FETCH_SINGLY {
            self.want(step, Want::Block(id), None);
            return;
        }
        self.want_next_range(step);
    }

    /// Requests the next finalised blocks: from the peer that has given the staged ones, else from one
    /// that claims to have them.
    fn want_next_range(&mut self, step: &mut Step) {
        if self.chain.backlog() <= MAX_UNEXECUTED_BLOCKS && !self.epoch_is_over() {
            let next = self.next_in_range();
            self.fetcher
                .retain(|want| !matches!(want, Want::Range(from) if *from != next));
            self.want(step, Want::Range(next), self.staging.last_giver());
        }
    }

    /// The staged blocks, to which `from` has added last, do not belong to the chain. The peers that gave
    /// them are asked last from now on.
    pub(crate) fn unstage_all(&mut self, step: &mut Step, from: ValidatorIndex) {
        let (_, given_by) = self.staging.take();
        for peer in given_by {
            self.fetcher.demote(step.now, peer);
        }
        self.fetcher.retain(|want| !matches!(want, Want::Range(_)));
        step.drop(from, DropReason::BrokenRange);
    }

    fn next_in_range(&self) -> Height {
        let newest = self.staging.last().map(|block| block.height());
        newest.unwrap_or(self.tip().height).next()
    }

    /// Hands over everything up to the certificate's block, if all of it is here. Returns whether
    /// nothing more is to be done for the certificate.
    fn try_commit(&mut self, step: &mut Step, certificate: &Certificate) -> bool {
        if certificate.subject.view <= self.tip().view {
            return true;
        }
        let chain = match self.chain.walk(certificate) {
            Walk::Complete(chain) => chain,
            Walk::Missing(..) => return false,
            Walk::Fork => {
                step.halt(format!(
                    "{certificate:?} finalises a chain without block {} of height {}, which \
                     is final: more than {} validators are faulty, or this database is \
                     another chain's",
                    self.tip().id,
                    self.tip().height,
                    self.committee.faults()
                ));
                return true;
            }
        };
        for block in chain.into_iter().rev() {
            // R10: the tip grows by one block at a time.
            if block.height() != self.tip().height.next() {
                step.halt(format!(
                    "{certificate:?} finalizes block {} of height {} on height {}: more than {} \
                     validators are faulty",
                    block.id(),
                    block.height(),
                    self.tip().height,
                    self.committee.faults()
                ));
                return true;
            }
            let round = self.views.get(block.header().view);
            let own = round.and_then(|round| round.finalization.as_ref());
            let own = Some(own.unwrap_or(certificate));
            let own = own.filter(|own| own.subject.payload == block.id()).cloned();
            let finalized = self.chain.extend(block, certificate, own);
            step.out.finalized.push(finalized);
        }
        self.prune();
        true
    }

    /// Forgets what the new tip has settled.
    fn prune(&mut self) {
        let tip = self.tip().height;
        self.chain.prune();
        let floor = View(self.tip().view.0.saturating_sub(TAIL_VIEWS));
        self.views.forget_below(floor);
        self.staging.prune(tip);
        let chain = &self.chain;
        self.fetcher.retain(|want| match want {
            Want::Block(id) => !chain.holds(id),
            Want::Range(from) => *from > tip,
            Want::Certificates(..) => true,
        });
    }

    /// Upon a block that was requested from this peer. Any other is dropped.
    pub(crate) fn on_block(&mut self, step: &mut Step, from: ValidatorIndex, block: Arc<Block>) {
        let want = Want::Block(block.id());
        // R23
        if !self.fetcher.is_asked(&want, from) {
            return step.drop(from, DropReason::NotRequested);
        }
        self.fetcher.satisfy(step.now, &want, from);
        self.chain.keep(block, None);
        self.on_new_block(step);
    }

    /// What a newly known block may allow: finalize votes, finality, the current view's vote.
    pub(crate) fn on_new_block(&mut self, step: &mut Step) {
        let chain = &self.chain;
        self.fetcher
            .retain(|want| !matches!(want, Want::Block(id) if chain.holds(id)));
        // Votes of views ahead must not hide those that were left.
        let above = self.tip().view.next();
        let notarized: Vec<_> = self
            .views
            .range(above..=self.view().max(above))
            .rev()
            .take(TAIL_VIEWS as usize)
            .filter(|(_, round)| round.notarization.is_some() && round.own.finalize.is_none())
            .map(|(view, _)| *view)
            .collect();
        for view in notarized {
            self.rules().on_notarized(self, step, view);
        }
        self.pursue(step);
        self.leave_settled_views(step);
        self.progress(step);
    }

    /// Upon finalised blocks from a peer. They are staged until a finalization of the last of them is
    /// verified: until then nothing shows that they belong to the chain.
    pub(crate) fn on_range(
        &mut self,
        step: &mut Step,
        from: ValidatorIndex,
        blocks: Vec<Arc<Block>>,
        finalization: Option<Certificate>,
    ) {
        let want = Want::Range(self.next_in_range());
        if !self.fetcher.is_asked(&want, from) {
            return step.drop(from, DropReason::NotRequested);
        }
        self.staging.is_given_by(from);
        let nothing = blocks.is_empty();
        for block in blocks {
            let (parent, height) = match self.staging.last() {
                Some(last) => (last.id(), last.height()),
                None => (self.tip().id, self.tip().height),
            };
            if (block.header().parent, block.height()) != (parent, height.next())
                || block.height() > self.last_height()
                || !self.staging.push(block)
            {
                // Either this block or those before it belong to no chain.
                self.unstage_all(step, from);
                return self.pursue(step);
            }
        }
        if nothing {
            self.unstage_all(step, from);
            return self.pursue(step);
        }
        match finalization {
            Some(certificate) if self.closes_staged(&certificate) => {
                // Whether it was a good answer is told by the check.
                self.fetcher.retain(|other| *other != want);
                self.checks.start(
                    step,
                    Work::VerifyCertificates(vec![certificate.clone()]),
                    Pending::Certificates {
                        from,
                        certificates: vec![certificate],
                    },
                );
            }
            Some(_) => {
                self.unstage_all(step, from);
                self.pursue(step);
            }
            None => {
                self.fetcher.satisfy(step.now, &want, from);
                self.pursue(step);
            }
        }
    }

    /// Upon a peer's answer that it does not keep the blocks that were requested. Nothing proves it, so
    /// that peer is asked again later, after the others.
    pub(crate) fn on_pruned(
        &mut self,
        step: &mut Step,
        from: ValidatorIndex,
        height: Height,
        oldest: Height,
    ) {
        if !self.fetcher.is_asked(&Want::Range(height), from) || oldest <= height {
            return step.drop(from, DropReason::NotRequested);
        }
        let before = self.peers.prunes(from, oldest);
        // Others are asked at once only when it is news: if nobody keeps the blocks, all would be asked
        // without a pause.
        if before.is_none_or(|before| before <= height) {
            self.fetcher.pass_on(step.now, from);
        }
    }

    /// The next block that is missing here, and the peers that say that they do not keep it, with the
    /// oldest block that each keeps. `None` while nothing is missing, or nobody has said so.
    pub fn pruned_elsewhere(&self) -> Option<(Height, Vec<(ValidatorIndex, Height)>)> {
        let wanted = self.tip().height.next();
        let lacking = self.peers.pruning(wanted);
        (self.is_behind() && !lacking.is_empty()).then_some((wanted, lacking))
    }

    pub(crate) fn closes_staged(&self, certificate: &Certificate) -> bool {
        let subject = &certificate.subject;
        subject.epoch == self.epoch()
            && subject.view > self.tip().view
            && self.staging.is_closed_by(certificate)
    }

    /// Adds the staged blocks to the chain if this verified certificate finalises the last of them. The
    /// engine may hold the certificate already, so it is acted upon here.
    pub(crate) fn unstage(&mut self, step: &mut Step, certificate: &Certificate) {
        if self.closes_staged(certificate) {
            let (blocks, given_by) = self.staging.take();
            for block in blocks {
                self.chain.keep(block, None);
            }
            for peer in given_by {
                self.peers.serves(peer);
                self.fetcher.redeem(peer);
            }
            self.try_commit(step, certificate);
            self.pursue(step);
            self.leave_settled_views(step);
        }
    }

    /// Moves on from views that the tip has settled: their certificates are ignored, so nothing else
    /// would end them.
    fn leave_settled_views(&mut self, step: &mut Step) {
        let view = self.after_tip();
        if self.view() < view && !self.epoch_is_over() {
            self.enter(step, view, true);
        }
    }

    /// Upon finalised blocks having become durable outside the journal.
    pub(crate) fn on_executed(&mut self, step: &mut Step, height: Height) {
        self.chain.execute(height);
        self.pursue(step);
        self.leave_settled_views(step);
    }
}
