//! Proposals: which parent a leader may extend, and what a voter checks.

use crate::{
    chain::Held,
    config::{MAX_PROPOSED_PER_LEADER, PROPOSAL_LOOKAHEAD_VIEWS},
    dropped::{DropReason, Missing},
    engine::Engine,
    fetch::Want,
    io::{BuildRequest, Exhibit, Offence, Step, Target, ValidateRequest},
    rounds::{
        flaw::{Flaw, follows, parent_of},
        round::{Round, Validity},
    },
};
use quorate_crypto::Digest;
use quorate_types::{Block, Certificate, Message, Proposal, ValidatorIndex, View, VoteKind};
use std::sync::Arc;

/// Most blocks held above the tip while final ones below them are missing.
const MAX_HELD_WHILE_BEHIND: usize = 256;

/// What a protocol says about a proposal's parent.
pub(crate) enum Parent {
    /// It may be followed.
    Certified,
    /// Something is missing that would tell, and is being fetched.
    Missing,
    /// It must not be followed.
    Wrong,
}

/// The result of a voter's check of a proposed block's place in the chain.
enum Place {
    /// It follows its parent. The blocks are those below it that are not executed, newest first.
    Follows(Vec<Arc<Block>>),
    /// It is the epoch's last block, which a quorum has notarized already.
    Certified,
    /// Something is missing that would tell, and is being fetched.
    Missing,
    /// It gets no vote.
    Wrong(DropReason),
}

impl Engine {
    /// As the leader of the current view, requests a block on top of the newest notarized one.
    pub(crate) fn try_propose(&mut self, step: &mut Step) {
        let view = self.view();
        let proposes = self.rules().proposes_in(&self.committee, view);
        if !proposes || !self.leads(view) || self.building == Some(view) {
            return;
        }
        let round = self.views.at(view);
        if round.proposal.is_some() || round.own.nullify.is_some() {
            return;
        }
        if let Some(vote) = round.own.notarize {
            // This validator proposed before it crashed. It repeats that proposal.
            self.repeat_proposal(step, view, vote.subject.payload);
            self.pacemaker.has_led(step.now);
            return;
        }
        // R19
        let Some((parent_view, id)) = self.rules().choose_parent(self, step) else {
            return;
        };
        let parent = match self.chain.block_at(&id) {
            Some(parent) => parent,
            None => {
                let leader = self.committee.leader(parent_view);
                return self.lack(step, Missing::Block(id), Want::Block(id), Some(leader));
            }
        };
        // R11
        if let Some(last) = parent.as_ref().filter(|parent| self.ends_epoch(parent)) {
            // Nothing is built on the epoch's last block: it is proposed again until it is final.
            self.send_proposal(step, view, parent_view, last.clone());
            self.pacemaker.has_led(step.now);
            self.notarize(step, view, id);
            return;
        }
        let unexecuted = match self.chain.unexecuted(parent.as_ref()) {
            Ok(blocks) => blocks,
            Err(missing) => {
                return self.lack(step, Missing::Block(missing), Want::Block(missing), None);
            }
        };
        self.building = Some(view);
        step.out.build = Some(BuildRequest {
            epoch: self.epoch(),
            view,
            parent_view,
            unexecuted,
            parent,
        });
    }

    /// Takes up what f + 1 validators have voted for in the current view, if its leader has not sent it here.
    pub(crate) fn take_up(&mut self, step: &mut Step) {
        let view = self.view();
        let faults = self.committee.faults();
        let Some(round) = self.views.get(view) else {
            return;
        };
        let has_spoken = round.own.notarize.is_some() || round.own.nullify.is_some();
        if round.proposal.is_some()
            || has_spoken
            || round.notarizing() <= faults
            || self.leads(view)
            || self.own_place().is_none()
            || self.epoch_is_over()
        {
            return;
        }
        // R3, H3
        let Some((id, voter)) = round.voted_for_by(faults + 1) else {
            return;
        };
        // Where votes go to all, they may well come before a large proposal.
        if !self.rules().votes_go_to_leaders() && !self.pacemaker.is_left_out(step.now) {
            return;
        }
        let leader = self.committee.leader(view);
        let Some(held) = self.chain.held(&id) else {
            return self.want_now(step, Want::Block(id), Some(voter));
        };
        let proposal = Box::new(Proposal {
            epoch: self.epoch(),
            view,
            block: held.block.clone(),
            parent_certificate: None,
            certificates: Vec::new(),
        });
        if self.flaw(leader, &proposal).is_some() || self.misplacement(&proposal).is_some() {
            return;
        }
        self.pacemaker.proposed(step.now, view, leader);
        let round = self.views.at(view);
        round.proposal = Some(proposal);
        round.shown_by = Some(voter);
        self.progress(step);
    }

    fn repeat_proposal(&mut self, step: &mut Step, view: View, id: Digest) {
        let Some(held) = self.chain.held(&id) else {
            return;
        };
        let block = held.block.clone();
        let parent_view = if block.header().view == view {
            Some(block.header().parent_view)
        } else {
            let mut below = self.views.range(..view).rev();
            below
                .find(|(_, round)| round.notarized() == Some(id))
                .map(|(view, _)| *view)
        };
        if let Some(parent_view) = parent_view {
            self.send_proposal(step, view, parent_view, block);
        }
    }

    /// Proposes a new block, or the epoch's last one again, which `parent_view` has notarized.
    fn send_proposal(&mut self, step: &mut Step, view: View, parent_view: View, block: Arc<Block>) {
        let parent = if block.header().view == view {
            block.header().parent
        } else {
            block.id()
        };
        let proposal = Box::new(Proposal {
            epoch: self.epoch(),
            view,
            parent_certificate: self.parent_certificate(parent_view, &parent),
            certificates: self.rules().attachments(self, parent_view, view),
            block,
        });
        step.send(Target::All, Message::Proposal(proposal.clone()));
        let round = self.views.at(view);
        round.proposal = Some(proposal);
        round.validity = Validity::Valid;
    }

    fn parent_certificate(&self, view: View, id: &Digest) -> Option<Certificate> {
        let round = self.views.get(view);
        let certificate = round
            .and_then(Round::block_certificate)
            .or(self.tip().certificate.as_ref())?;
        (certificate.subject.payload == *id).then(|| certificate.clone())
    }

    /// Upon the requested block: proposes it, and votes for it.
    ///
    /// The proposal leaves at once, before anything is durable, since it carries no vote. A leader
    /// that crashes here may propose another block in the same view later. That breaks no rule: its
    /// own vote waits for the journal.
    pub(crate) fn on_built(&mut self, step: &mut Step, view: View, block: Arc<Block>) {
        let epoch = block.header().epoch;
        if self.building != Some(view) || view != self.view() || epoch != self.epoch() {
            return;
        }
        self.building = None;
        let round = self.views.at(view);
        if round.own.notarize.is_some() || round.own.nullify.is_some() || round.proposal.is_some() {
            return;
        }
        let id = block.id();
        self.chain.keep(block.clone(), None);
        self.pacemaker.has_led(step.now);
        self.send_proposal(step, view, block.header().parent_view, block);
        self.notarize(step, view, id);
    }

    /// Upon a proposal from a peer. It is judged before anything of it is kept ([`Flaw`]).
    pub(crate) fn on_proposal(
        &mut self,
        step: &mut Step,
        from: ValidatorIndex,
        proposal: Box<Proposal>,
    ) {
        let view = proposal.view;
        // R15
        if let Some(flaw) = self.flaw(from, &proposal) {
            return self.condemn(step, from, &proposal, flaw);
        }
        // Its certificates are of use even if the proposal itself comes too early or too late: they
        // bring a validator that has fallen behind back to the current view.
        let attached = proposal.certificates.iter().cloned();
        let (finality, mut needed): (Vec<_>, Vec<_>) =
            attached.partition(|held| held.subject.kind == VoteKind::Finalize);
        needed.extend(proposal.parent_certificate.clone());
        self.check_certificates(step, from, needed);
        // The vote does not wait for what is only told along.
        self.check_certificates(step, from, finality);
        // A validator that is far behind fetches final blocks in order; new ones would only pile
        // up.
        let piled_up = self.is_behind() && self.chain.blocks().count() > MAX_HELD_WHILE_BEHIND;
        let is_near = self.committee.steps(self.view(), view) <= PROPOSAL_LOOKAHEAD_VIEWS;
        if is_near {
            self.pacemaker.came(step.now, view, from);
            self.pacemaker.proposed(step.now, view, from);
            if view.next() >= self.view() {
                self.pacemaker.heard(from);
            }
        }
        let dropped = if view < self.view() {
            Some(DropReason::ViewOver(view))
        } else if !is_near {
            Some(DropReason::ViewAhead(view))
        } else {
            piled_up.then_some(DropReason::CatchingUp(view))
        };
        if let Some(reason) = dropped {
            return step.drop(from, reason);
        }
        // R15
        if let Some(flaw) = self.misplacement(&proposal) {
            return self.condemn(step, from, &proposal, flaw);
        }
        let round = self.views.at(view);
        if round.proposal.is_some() {
            return step.drop(from, DropReason::SecondProposal(view));
        }
        let block = proposal.block.clone();
        round.proposal = Some(proposal);
        self.hold_proposed(from, block);
        self.on_new_block(step);
    }

    /// Upon a proposal that no honest leader makes. There is no use in waiting for another one.
    fn condemn(&mut self, step: &mut Step, from: ValidatorIndex, proposal: &Proposal, flaw: Flaw) {
        step.drop(from, DropReason::Flawed(proposal.view, flaw));
        let exhibit = Exhibit::Proposal(Box::new(*proposal.block.header()), flaw);
        self.offend(step, from, Offence::InvalidProposal, exhibit);
        if proposal.view == self.view() && self.committee.leader(self.view()) == from {
            self.pacemaker.hurry(step.now);
        }
    }

    /// Casts notarize for the current view's proposal once everything that it depends on holds.
    pub(crate) fn try_notarize(&mut self, step: &mut Step) {
        let view = self.view();
        if self.own_place().is_none() || self.rules().is_out(self, view) {
            return;
        }
        let Some(round) = self.views.get(view) else {
            return;
        };
        // R1, R3
        if round.own.notarize.is_some() || round.own.nullify.is_some() {
            return;
        }
        let Some(proposal) = &round.proposal else {
            return;
        };
        let block = proposal.block.clone();
        let parent = parent_of(proposal);
        match round.validity {
            Validity::Valid => return self.notarize(step, view, block.id()),
            Validity::Asked | Validity::Invalid => return,
            Validity::Unknown => {}
        }
        match self.place(step, view, &block, parent) {
            Place::Missing => {}
            Place::Wrong(reason) => {
                self.views.at(view).validity = Validity::Invalid;
                step.drop(self.committee.leader(view), reason);
            }
            Place::Certified => {
                self.views.at(view).validity = Validity::Valid;
                self.notarize(step, view, block.id());
            }
            Place::Follows(unexecuted) => {
                self.views.at(view).validity = Validity::Asked;
                // R3
                step.out.validate.push(ValidateRequest {
                    view,
                    block,
                    unexecuted,
                });
            }
        }
    }

    /// Whether a block is the one that a view has notarized, or the tip that its finalization has settled; `None` if that is
    /// not known here.
    pub(crate) fn is_notarized(&self, (view, id): (View, Digest)) -> Option<bool> {
        let notarized = match view == self.tip().view {
            true => self.tip().id,
            false => self.views.notarized(view)?,
        };
        Some(notarized == id)
    }

    /// A voter's check of a proposed block's place in the chain, on this parent.
    fn place(
        &mut self,
        step: &mut Step,
        view: View,
        block: &Arc<Block>,
        parent: (View, Digest),
    ) -> Place {
        let again = block.header().view != view;
        match self.rules().check_parent(self, step, view, parent) {
            Parent::Missing => return Place::Missing,
            Parent::Wrong => return Place::Wrong(DropReason::WrongParent(view)),
            Parent::Certified => {}
        }
        let (_, id) = parent;
        let Some(parent) = self.chain.block_at(&id) else {
            let from = Some(self.shower(view));
            self.lack(step, Missing::Block(id), Want::Block(id), from);
            return Place::Missing;
        };
        // R11
        if again {
            // A quorum has found this very block valid.
            return Place::Certified;
        }
        // R11
        let ended = parent
            .as_ref()
            .is_some_and(|parent| self.ends_epoch(parent));
        if ended || !follows(block, parent.as_deref()) {
            return Place::Wrong(DropReason::NotAfterItsParent(view));
        }
        match self.chain.unexecuted(parent.as_ref()) {
            Ok(blocks) => Place::Follows(blocks),
            Err(id) => {
                let from = Some(self.shower(view));
                self.lack(step, Missing::Block(id), Want::Block(id), from);
                Place::Missing
            }
        }
    }

    /// Who has shown a view's proposal here, and so has what it depends on.
    pub(crate) fn shower(&self, view: View) -> ValidatorIndex {
        let shown_by = self.views.get(view).and_then(|round| round.shown_by);
        shown_by.unwrap_or_else(|| self.committee.leader(view))
    }

    /// Requests what the current view's proposal cannot be made, or voted for, without.
    pub(crate) fn lack(
        &mut self,
        step: &mut Step,
        missing: Missing,
        want: Want,
        hint: Option<ValidatorIndex>,
    ) {
        let lacking = Some((self.view(), missing));
        if self.missing != lacking {
            self.missing = lacking;
            step.out.missing = lacking;
        }
        self.want_now(step, want, hint);
    }

    /// Upon the application's verdict on a proposed block.
    pub(crate) fn on_validated(&mut self, step: &mut Step, view: View, block: Digest, valid: bool) {
        let Some(round) = self.views.get_mut(view) else {
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
            self.try_notarize(step);
        } else {
            let leader = self.committee.leader(view);
            step.drop(leader, DropReason::Refused(view));
        }
    }

    /// Keeps a block on its leader's word alone. Only a few of each leader are kept: the oldest of past views make
    /// room, then those furthest ahead. They are fetched if a quorum notarizes them after all.
    fn hold_proposed(&mut self, leader: ValidatorIndex, block: Arc<Block>) {
        self.chain.keep(block, Some(leader));
        let mut proposed: Vec<(View, Digest)> = self
            .chain
            .blocks()
            .filter(|(id, held)| held.leader == Some(leader) && !self.is_vouched(id, held))
            .map(|(id, held)| (held.block.header().view, *id))
            .collect();
        let current = self.view();
        proposed.sort_unstable_by_key(|(view, id)| match *view < current {
            true => (false, view.0, *id),
            false => (true, u64::MAX - view.0, *id),
        });
        let excess = proposed.len().saturating_sub(MAX_PROPOSED_PER_LEADER);
        for (_, id) in proposed.into_iter().take(excess) {
            self.chain.forget(&id);
        }
    }

    /// Whether more than its leader's word supports a block: this validator has voted for it, or a
    /// quorum has.
    pub(crate) fn is_vouched(&self, id: &Digest, held: &Held) -> bool {
        let notarized = || self.views.notarized(held.block.header().view);
        held.journaled || held.leader.is_none() || notarized() == Some(*id)
    }

    /// Forgets blocks of a nullified view that only their leader supports.
    pub(crate) fn forget_nullified(&mut self, view: View) {
        let stale: Vec<Digest> = self
            .chain
            .blocks()
            .filter(|(id, held)| held.block.header().view == view && !self.is_vouched(id, held))
            .map(|(id, _)| *id)
            .collect();
        for id in stale {
            self.chain.forget(&id);
        }
    }
}
