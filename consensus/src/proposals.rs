//! Proposals: which parent a leader may extend, and what a voter checks.

use crate::{
    config::PROPOSAL_LOOKAHEAD_VIEWS,
    engine::{Engine, Held},
    fetch::Want,
    io::{BuildRequest, Moment, Output, Target, ValidateRequest},
    round::Validity,
};
use quorate_crypto::Digest;
use quorate_crypto::mistakes::{Mistake, made};
use quorate_types::{
    Block, Certificate, Header, Message, Proposal, ValidatorIndex, View,
    limits::MAX_PROPOSAL_NULLIFICATIONS,
};
use std::sync::Arc;

/// Blocks that may be held above the tip while finalised ones below them are missing.
const MAX_HELD_WHILE_BEHIND: usize = 256;

/// What a proposal's parent comes to.
enum Parent {
    /// It may be followed; `None` is the genesis state.
    Known(Option<Arc<Block>>),
    /// Something that would tell is missing, and is being fetched.
    Missing,
    /// It must not be followed.
    Wrong,
}

impl Engine {
    /// As the leader of the current view: asks for a block on top of the newest notarized one.
    pub(crate) fn try_propose(&mut self, now: Moment, out: &mut Output) {
        let view = self.view;
        if !self.leads(view) || self.building == Some(view) {
            return;
        }
        let round = self.rounds.entry(view).or_default();
        if round.proposal.is_some() || round.own.nullify.is_some() {
            return;
        }
        if let Some(vote) = round.own.notarize {
            // This validator proposed before it crashed. It says the same again.
            self.repeat_proposal(view, vote.subject.payload, out);
            return;
        }
        let Some((parent_view, id)) = self.choose_parent(now, out) else {
            return;
        };
        let parent = match self.block_at(&id) {
            Some(parent) => parent,
            None => {
                let leader = self.config.committee.leader(parent_view);
                self.want(now, Want::Block(id), Some(leader), out);
                return;
            }
        };
        if let Some(last) = parent.as_ref().filter(|parent| self.ends_epoch(parent)) {
            // Nothing is built on the epoch's last block: it is proposed again until it is final.
            self.send_proposal(view, parent_view, last.clone(), out);
            self.notarize(view, id, out);
            return;
        }
        self.building = Some(view);
        out.build = Some(BuildRequest {
            epoch: self.epoch(),
            view,
            parent_view,
            unfinalized: self.unfinalized(parent.clone()),
            parent,
        });
    }

    /// The newest notarized view below the current one with nothing but nullified views between,
    /// and its block.
    fn choose_parent(&mut self, now: Moment, out: &mut Output) -> Option<(View, Digest)> {
        let mut view = self.view.previous()?;
        loop {
            if view <= self.tip.view {
                return Some((self.tip.view, self.tip.id));
            }
            let round = self.rounds.get(&view);
            if let Some(id) = round.and_then(|round| round.notarized()) {
                return Some((view, id));
            }
            if round.is_none_or(|round| round.nullification.is_none()) {
                let first = self.tip.view.next().max(View(view.0.saturating_sub(63)));
                self.want(now, Want::Certificates(first, view), None, out);
                return None;
            }
            view = view.previous()?;
        }
    }

    /// The block with this id at or above the tip: `Some(None)` is the genesis state.
    fn block_at(&self, id: &Digest) -> Option<Option<Arc<Block>>> {
        if *id == self.tip.id {
            return Some(self.tip.block.clone());
        }
        self.blocks.get(id).map(|held| Some(held.block.clone()))
    }

    /// The block and its unfinalised ancestors as far as they are here, newest first.
    fn unfinalized(&self, block: Option<Arc<Block>>) -> Vec<Arc<Block>> {
        let mut chain = Vec::new();
        let mut next = block;
        while let Some(block) = next.take_if(|block| block.height() > self.tip.height) {
            next = self
                .blocks
                .get(&block.header().parent)
                .map(|held| held.block.clone());
            chain.push(block);
        }
        chain
    }

    fn repeat_proposal(&mut self, view: View, id: Digest, out: &mut Output) {
        let Some(held) = self.blocks.get(&id) else {
            return;
        };
        let block = held.block.clone();
        let parent_view = if block.header().view == view {
            Some(block.header().parent_view)
        } else {
            let mut below = self.rounds.range(..view).rev();
            below
                .find(|(_, round)| round.notarized() == Some(id))
                .map(|(view, _)| *view)
        };
        if let Some(parent_view) = parent_view {
            self.send_proposal(view, parent_view, block, out);
        }
    }

    /// Proposes a new block, or the epoch's last one again, which `parent_view` has notarized.
    fn send_proposal(
        &mut self,
        view: View,
        parent_view: View,
        block: Arc<Block>,
        out: &mut Output,
    ) {
        let parent = if block.header().view == view {
            block.header().parent
        } else {
            block.id()
        };
        let proposal = Box::new(Proposal {
            epoch: self.config.epoch(),
            view,
            parent_certificate: self.parent_certificate(parent_view, &parent),
            nullifications: self.nullifications(parent_view, view),
            block,
        });
        self.send(Target::All, Message::Proposal(proposal.clone()), out);
        let round = self.rounds.entry(view).or_default();
        round.proposal = Some(proposal);
        round.validity = Validity::Valid;
    }

    fn parent_certificate(&self, view: View, id: &Digest) -> Option<Certificate> {
        let round = self.rounds.get(&view);
        let certificate = round
            .and_then(|round| round.finalization.as_ref().or(round.notarization.as_ref()))
            .or(self.tip.certificate.as_ref())?;
        (certificate.subject.payload == *id).then(|| certificate.clone())
    }

    fn nullifications(&self, parent: View, view: View) -> Vec<Certificate> {
        self.rounds
            .range(parent.next()..view)
            .filter_map(|(_, round)| round.nullification.clone())
            .take(MAX_PROPOSAL_NULLIFICATIONS)
            .collect()
    }

    /// Upon the block that was asked for: propose it, and vote for it.
    ///
    /// The proposal leaves at once, before anything is durable: it carries no vote. A leader that
    /// crashes here may propose another block in the same view later; that breaks no promise, since
    /// this validator's own vote, which would, waits for the journal.
    pub(crate) fn on_built(
        &mut self,
        _now: Moment,
        view: View,
        block: Arc<Block>,
        out: &mut Output,
    ) {
        let epoch = block.header().epoch;
        if self.building != Some(view) || view != self.view || epoch != self.epoch() {
            return;
        }
        self.building = None;
        let round = self.rounds.entry(view).or_default();
        if round.own.notarize.is_some() || round.own.nullify.is_some() || round.proposal.is_some() {
            return;
        }
        let id = block.id();
        self.hold(block.clone());
        self.send_proposal(view, block.header().parent_view, block, out);
        self.notarize(view, id, out);
    }

    /// Upon a proposal from a peer.
    pub(crate) fn on_proposal(
        &mut self,
        now: Moment,
        from: ValidatorIndex,
        proposal: Box<Proposal>,
        out: &mut Output,
    ) {
        let header = *proposal.block.header();
        let view = proposal.view;
        if !self.is_well_formed(from, &proposal, &header) {
            self.counters.dropped_invalid += 1;
            return;
        }
        // What it proves is worth knowing even if the proposal itself comes too early or too late:
        // it brings who has fallen behind back to the current view.
        let mut certificates = proposal.nullifications.clone();
        certificates.extend(proposal.parent_certificate.clone());
        certificates.retain(|certificate| certificate.subject.view < view);
        self.check_certificates(from, certificates, out);
        let lookahead = if made(Mistake::ProposalsUnbounded) {
            u64::MAX
        } else {
            PROPOSAL_LOOKAHEAD_VIEWS
        };
        let last = self.view.0.saturating_add(lookahead);
        // Who is far behind fetches finalised blocks in order; new ones would only pile up.
        let piled_up = self.is_behind() && self.blocks.len() > MAX_HELD_WHILE_BEHIND;
        let first = self
            .rounds
            .get(&view)
            .is_none_or(|round| round.proposal.is_none());
        if first && view.0 <= last {
            self.pacemaker.proposed(now, view, from);
        }
        if view < self.view || view.0 > last || piled_up {
            self.counters.dropped_window += 1;
            return;
        }
        let round = self.rounds.entry(view).or_default();
        if round.proposal.is_some() {
            return;
        }
        let block = proposal.block.clone();
        round.proposal = Some(proposal);
        self.hold(block);
        self.on_new_block(now, out);
    }

    fn is_well_formed(&self, from: ValidatorIndex, proposal: &Proposal, header: &Header) -> bool {
        let ours = self.config.committee.leader(proposal.view) == from
            && header.chain == self.config.chain
            && header.epoch == proposal.epoch
            && header.parent_view < header.view
            && proposal.view < View(u64::MAX);
        // The epoch's last block may be proposed again in later views, with its notarization.
        let again = header.view < proposal.view
            && self.ends_epoch(&proposal.block)
            && notarized_in(proposal).is_some_and(|view| header.view <= view);
        ours && (header.view == proposal.view || again)
    }

    /// Casts notarize for the current view's proposal once all it rests on is known to hold.
    pub(crate) fn try_notarize(&mut self, now: Moment, out: &mut Output) {
        let view = self.view;
        if self.own_place().is_none() {
            return;
        }
        let Some(round) = self.rounds.get(&view) else {
            return;
        };
        if round.own.notarize.is_some() || round.own.nullify.is_some() {
            return;
        }
        let Some(proposal) = &round.proposal else {
            return;
        };
        let block = proposal.block.clone();
        let again = block.header().view != view;
        let parent = match notarized_in(proposal) {
            Some(notarized) if again => (notarized, block.id()),
            _ => (block.header().parent_view, block.header().parent),
        };
        match round.validity {
            Validity::Valid => self.notarize(view, block.id(), out),
            Validity::Asked | Validity::Invalid => {}
            Validity::Unknown => {
                let validity = match self.parent(now, view, parent, out) {
                    Parent::Missing => return,
                    Parent::Wrong => Validity::Invalid,
                    // A quorum has found this very block valid.
                    Parent::Known(_) if again => Validity::Valid,
                    Parent::Known(Some(parent)) if self.ends_epoch(&parent) => Validity::Invalid,
                    Parent::Known(parent)
                        if made(Mistake::HeaderNotChecked)
                            || follows(&block, parent.as_deref()) =>
                    {
                        out.validate.push(ValidateRequest {
                            view,
                            block: block.clone(),
                            parent,
                        });
                        if made(Mistake::BlockNotValidated) {
                            Validity::Valid
                        } else {
                            Validity::Asked
                        }
                    }
                    Parent::Known(_) => Validity::Invalid,
                };
                let round = self.rounds.entry(view).or_default();
                round.validity = validity;
                match validity {
                    Validity::Valid => self.notarize(view, block.id(), out),
                    Validity::Invalid => self.counters.dropped_invalid += 1,
                    Validity::Unknown | Validity::Asked => {}
                }
            }
        }
    }

    /// A voter's check of the parent: notarized or final, and every view between nullified.
    ///
    /// With it no block can be notarized that leaves out a finalised one: the view of a finalised
    /// block is never nullified, because a quorum said finalize there and does not say nullify.
    fn parent(
        &mut self,
        now: Moment,
        view: View,
        (parent_view, id): (View, Digest),
        out: &mut Output,
    ) -> Parent {
        let leader = Some(self.config.committee.leader(view));
        if parent_view < self.tip.view {
            return Parent::Wrong;
        }
        if parent_view == self.tip.view {
            if id != self.tip.id {
                return Parent::Wrong;
            }
        } else {
            let notarized = self.rounds.get(&parent_view).and_then(|r| r.notarized());
            match notarized {
                Some(notarized) if notarized == id => {}
                _ if made(Mistake::ParentNotChecked) => {}
                Some(_) => return Parent::Wrong,
                None => {
                    let want = Want::Certificates(parent_view, parent_view);
                    self.want(now, want, leader, out);
                    return Parent::Missing;
                }
            }
        }
        let mut between = parent_view.next();
        while between < view {
            let nullified = self
                .rounds
                .get(&between)
                .is_some_and(|round| round.nullification.is_some());
            if !nullified && !made(Mistake::GapsNotChecked) {
                let last = View(view.0 - 1).min(View(between.0.saturating_add(63)));
                self.want(now, Want::Certificates(between, last), leader, out);
                return Parent::Missing;
            }
            between = between.next();
        }
        match self.block_at(&id) {
            Some(parent) => Parent::Known(parent),
            None => {
                self.want(now, Want::Block(id), leader, out);
                Parent::Missing
            }
        }
    }

    /// Upon the application's word on a proposed block.
    pub(crate) fn on_validated(
        &mut self,
        now: Moment,
        view: View,
        block: Digest,
        valid: bool,
        out: &mut Output,
    ) {
        let Some(round) = self.rounds.get_mut(&view) else {
            return;
        };
        let same = round
            .proposal
            .as_ref()
            .is_some_and(|proposal| proposal.block.id() == block);
        if !same || round.validity != Validity::Asked {
            return;
        }
        round.validity = if valid {
            Validity::Valid
        } else {
            Validity::Invalid
        };
        if valid {
            self.try_notarize(now, out);
        } else {
            self.counters.dropped_invalid += 1;
        }
    }

    /// Keeps a block above the tip.
    pub(crate) fn hold(&mut self, block: Arc<Block>) {
        if block.height() > self.tip.height {
            self.blocks.entry(block.id()).or_insert(Held {
                block,
                journaled: false,
            });
        }
    }
}

/// The view that, by the proposal's own certificate, has notarized its very block.
fn notarized_in(proposal: &Proposal) -> Option<View> {
    let subject = proposal.parent_certificate.as_ref()?.subject;
    let same = subject.epoch == proposal.epoch && subject.payload == proposal.block.id();
    (same && subject.view < proposal.view).then_some(subject.view)
}

/// Whether a header follows its parent's: the rules that need nothing but the two.
fn follows(block: &Block, parent: Option<&Block>) -> bool {
    let header = block.header();
    match parent {
        None => header.height.0 == 1 && header.executed_height.0 == 0,
        Some(parent) => {
            let above = parent.header();
            header.height == above.height.next()
                && header.timestamp_ms > above.timestamp_ms
                && header.executed_height >= above.executed_height
                && header.executed_height < header.height
                && (header.executed_height > above.executed_height
                    || header.state_root == above.state_root)
        }
    }
}
