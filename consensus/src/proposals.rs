//! Proposals: which parent a leader may extend, and what a voter checks.

use crate::{
    config::{MAX_PROPOSED_PER_LEADER, PROPOSAL_LOOKAHEAD_VIEWS},
    engine::{Engine, Held},
    fetch::Want,
    io::{BuildRequest, Exhibit, Moment, Offence, Output, Target, ValidateRequest},
    judge::{Flaw, follows, notarized_in},
    round::Validity,
};
use quorate_crypto::Digest;
use quorate_crypto::mistakes::{Mistake, made};
use quorate_types::{
    Block, Certificate, Height, Message, Proposal, ValidatorIndex, View,
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
            self.pacemaker.has_led(now);
            return;
        }
        // R19
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
        // R11
        if let Some(last) = parent.as_ref().filter(|parent| self.ends_epoch(parent)) {
            // Nothing is built on the epoch's last block: it is proposed again until it is final.
            self.send_proposal(view, parent_view, last.clone(), out);
            self.pacemaker.has_led(now);
            self.notarize(view, id, out);
            return;
        }
        let unexecuted = match self.unexecuted(parent.as_ref()) {
            Ok(blocks) => blocks,
            Err(missing) => {
                self.want(now, Want::Block(missing), None, out);
                return;
            }
        };
        self.building = Some(view);
        out.build = Some(BuildRequest {
            epoch: self.epoch(),
            view,
            parent_view,
            unexecuted,
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
    pub(crate) fn block_at(&self, id: &Digest) -> Option<Option<Arc<Block>>> {
        if *id == self.tip.id {
            return Some(self.tip.block.clone());
        }
        self.blocks.get(id).map(|held| Some(held.block.clone()))
    }

    /// The block and its ancestors whose effects are not durable outside the journal, newest first; or the
    /// id of the first that is not here. Whoever lacks one cannot tell what the accounts will hold after
    /// it, so it neither builds on the block nor votes for what does.
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
            let held = self.blocks.get(&parent).map(|held| &held.block);
            let delivered = || self.delivered.get(&Height(below)).map(|done| &done.block);
            let parent_block = held
                .or_else(delivered)
                .filter(|block| block.id() == parent)
                .cloned();
            next = Some(parent_block.ok_or(parent)?);
        }
        Ok(chain)
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
        now: Moment,
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
        self.pacemaker.has_led(now);
        self.send_proposal(view, block.header().parent_view, block, out);
        self.notarize(view, id, out);
    }

    /// Upon a proposal from a peer. It is judged before anything of it is kept ([`Flaw`]).
    pub(crate) fn on_proposal(
        &mut self,
        now: Moment,
        from: ValidatorIndex,
        proposal: Box<Proposal>,
        out: &mut Output,
    ) {
        let view = proposal.view;
        // R15
        if let Some(flaw) = self.flaw(from, &proposal) {
            return self.condemn(now, from, &proposal, flaw, out);
        }
        // What it proves is worth knowing even if the proposal itself comes too early or too late:
        // it brings who has fallen behind back to the current view.
        let mut certificates = proposal.nullifications.clone();
        certificates.extend(proposal.parent_certificate.clone());
        self.check_certificates(from, certificates, out);
        let lookahead = if made(Mistake::ProposalsUnbounded) {
            u64::MAX
        } else {
            PROPOSAL_LOOKAHEAD_VIEWS
        };
        let last = self.view.0.saturating_add(lookahead);
        // Who is far behind fetches finalised blocks in order; new ones would only pile up.
        let piled_up = self.is_behind() && self.blocks.len() > MAX_HELD_WHILE_BEHIND;
        if view.0 <= last {
            self.pacemaker.proposed(now, view, from);
            if view.next() >= self.view {
                self.pacemaker.heard(from);
            }
        }
        if view < self.view || view.0 > last || piled_up {
            self.counters.dropped_window += 1;
            return;
        }
        // R15
        if let Some(flaw) = self.misplacement(&proposal) {
            return self.condemn(now, from, &proposal, flaw, out);
        }
        let round = self.rounds.entry(view).or_default();
        if round.proposal.is_some() {
            return;
        }
        let block = proposal.block.clone();
        round.proposal = Some(proposal);
        self.hold_proposed(from, block);
        self.on_new_block(now, out);
    }

    /// Upon a proposal that no honest leader makes. There is no use in waiting for a better one.
    fn condemn(
        &mut self,
        now: Moment,
        from: ValidatorIndex,
        proposal: &Proposal,
        flaw: Flaw,
        out: &mut Output,
    ) {
        self.counters.dropped_invalid += 1;
        let exhibit = Exhibit::Proposal(Box::new(*proposal.block.header()), flaw);
        self.offend(from, Offence::InvalidProposal, exhibit, out);
        if proposal.view == self.view && self.config.committee.leader(self.view) == from {
            self.pacemaker.hurry(now);
        }
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
        // R1, R3
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
                    // R11
                    Parent::Known(_) if again => Validity::Valid,
                    // R11
                    Parent::Known(Some(parent)) if self.ends_epoch(&parent) => Validity::Invalid,
                    Parent::Known(parent)
                        if made(Mistake::HeaderNotChecked)
                            || follows(&block, parent.as_deref()) =>
                    {
                        let unexecuted = match self.unexecuted(parent.as_ref()) {
                            Ok(blocks) => blocks,
                            Err(missing) => {
                                let leader = Some(self.config.committee.leader(view));
                                self.want(now, Want::Block(missing), leader, out);
                                return;
                            }
                        };
                        // R3
                        out.validate.push(ValidateRequest {
                            view,
                            block: block.clone(),
                            unexecuted,
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
        // R3: the parent.
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
        // R3: every view between.
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

    /// Keeps a block above the tip, which this validator has made, or which a quorum stands behind.
    pub(crate) fn hold(&mut self, block: Arc<Block>) {
        self.keep_block(block, None);
    }

    fn keep_block(&mut self, block: Arc<Block>, leader: Option<ValidatorIndex>) {
        if block.height() <= self.tip.height {
            return;
        }
        let new = Held {
            block: block.clone(),
            journaled: false,
            leader,
        };
        let held = self.blocks.entry(block.id()).or_insert(new);
        if leader.is_none() {
            held.leader = None;
        }
    }

    /// Keeps a block on its leader's word alone. Of each leader there are a few at most: the one of the
    /// lowest view makes room, and is fetched should a quorum notarize it after all.
    fn hold_proposed(&mut self, leader: ValidatorIndex, block: Arc<Block>) {
        self.keep_block(block, Some(leader));
        let mut proposed: Vec<(View, Digest)> = self
            .blocks
            .iter()
            .filter(|(id, held)| held.leader == Some(leader) && !self.is_vouched(id, held))
            .map(|(id, held)| (held.block.header().view, *id))
            .collect();
        proposed.sort_unstable();
        let excess = proposed.len().saturating_sub(MAX_PROPOSED_PER_LEADER);
        for (_, id) in proposed.into_iter().take(excess) {
            self.blocks.remove(&id);
        }
    }

    /// Whether more than its leader's word stands for a block: this validator has voted for it, or a
    /// quorum has.
    pub(crate) fn is_vouched(&self, id: &Digest, held: &Held) -> bool {
        let notarized = || {
            let round = self.rounds.get(&held.block.header().view);
            round.and_then(|round| round.notarized())
        };
        held.journaled || held.leader.is_none() || notarized() == Some(*id)
    }

    /// Forgets blocks of a nullified view that nobody but their leader stands for.
    pub(crate) fn forget_nullified(&mut self, view: View) {
        let stale: Vec<Digest> = self
            .blocks
            .iter()
            .filter(|(id, held)| held.block.header().view == view && !self.is_vouched(id, held))
            .map(|(id, _)| *id)
            .collect();
        for id in stale {
            self.blocks.remove(&id);
        }
    }
}
