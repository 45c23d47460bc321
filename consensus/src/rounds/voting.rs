//! Casting this validator's own votes: the decisions, and the last gate.

use crate::{
    certificates::lacks,
    engine::Engine,
    io::{Outbound, Step, Target},
    rounds::pacemaker::Alarm,
};
use quorate_crypto::Digest;
use quorate_types::{Certificate, Message, Record, Subject, View, Vote, VoteKind};

impl Engine {
    /// Signs and journals a vote of this validator's own, to be sent after the journal's sync. The
    /// callers check the rules of when a vote may be cast.
    pub(crate) fn cast(&mut self, step: &mut Step, view: View, kind: VoteKind, payload: Digest) {
        let Some(own) = self.config.own.clone() else {
            return;
        };
        // P1
        let is_out = kind != VoteKind::Nullify && self.rules().is_out(self, view);
        if is_out || !self.may_cast(view, kind) {
            return;
        }
        let subject = Subject {
            epoch: self.epoch(),
            view,
            kind,
            payload,
        };
        let (signature, message) = own
            .secret
            .sign_vote(&subject.signed_bytes(&self.config.chain));
        if let Some(message) = message {
            self.checks.remember(subject, message);
        }
        let vote = Vote {
            subject,
            signer: own.place,
            signature,
        };
        let round = self.views.at(view);
        // R1, R2: the last gate.
        if let Some(held) = round.own.contradicted_by(vote) {
            step.halt(format!(
                "refused to vote {:?} after {:?}: the two are evidence against this validator. This is a \
                 defect of the program; it stops before it does harm",
                vote.subject, held.subject
            ));
            return;
        }
        *round.own.place(kind) = Some(vote);
        // R2: it is in `votes`, not in `send`, and leaves after the sync.
        step.out.persist.push(Record::Vote(vote));
        let last = self.chain.held(&payload);
        let border = last.is_some_and(|held| self.ends_epoch(&held.block));
        // After the epoch's last block there is no next notarize vote that its finalize vote could
        // wait for.
        step.out.urgent |= kind != VoteKind::Finalize || border;
        let to = self.rules().receiver(self, &vote);
        self.say(step, to, vote);
        self.admit(step, vote, true);
    }

    /// Sends a vote of this validator's own once the journal is synced.
    fn say(&self, step: &mut Step, to: Target, vote: Vote) {
        let is_own = matches!(to, Target::One(peer) if Some(peer) == self.own_place());
        if !is_own {
            step.out.votes.push(Outbound {
                to,
                message: Message::Vote(vote),
            });
        }
    }

    /// Repeats a vote of this validator's own.
    pub(crate) fn say_again(&self, step: &mut Step, to: Target, vote: Vote) {
        step.out.urgent = true;
        self.say(step, to, vote);
    }

    /// Repeats this validator's own proposal of a view.
    pub(crate) fn repeat_proposal_of(&self, step: &mut Step, view: View) {
        let proposal = self
            .views
            .get(view)
            .and_then(|round| round.proposal.as_ref());
        if let Some(proposal) = proposal.filter(|_| self.leads(view)) {
            step.send(Target::All, Message::Proposal(proposal.clone()));
        }
    }

    /// Casts notarize for a block that is known to be valid, in the current view.
    pub(crate) fn notarize(&mut self, step: &mut Step, view: View, payload: Digest) {
        // R2: what is voted for is held, whatever else its leader has proposed.
        let proposal = self
            .views
            .get(view)
            .and_then(|round| round.proposal.as_ref());
        let proposed = proposal.map(|proposal| proposal.block.clone());
        if let Some(block) = proposed.filter(|block| block.id() == payload) {
            self.chain.keep(block, None);
        }
        if !self.chain.holds(&payload) && self.tip().id != payload {
            return;
        }
        self.journal_block(step, &payload);
        self.cast(step, view, VoteKind::Notarize, payload);
        if self.has_notarized(view) {
            self.rules().on_own_notarize(self, step, view);
        }
    }

    pub(crate) fn has_notarized(&self, view: View) -> bool {
        let round = self.views.get(view);
        round.is_some_and(|round| round.own.notarize.is_some())
    }

    /// Casts finalize if the view's notarized block is here and no earlier vote forbids it:
    /// nullify, or notarize for another block.
    ///
    /// The block is journaled before: once a quorum has said finalize, a quorum holds the block on
    /// disk, and a power cut of all validators loses nothing.
    pub(crate) fn try_finalize(&mut self, step: &mut Step, view: View) {
        // Below a known finalization the vote is of no use. It would not be safe either: a journal
        // that is ahead of the database no longer holds the votes there.
        let target = self.staging.target_view();
        // R5
        if view <= self.tip().view || target >= Some(view) || self.own_place().is_none() {
            return;
        }
        let Some(round) = self.views.get(view) else {
            return;
        };
        let Some(certificate) = &round.notarization else {
            return;
        };
        // P1
        if self.rules().is_out(self, view) {
            return;
        }
        let payload = certificate.subject.payload;
        let own = &round.own;
        let other_block = own
            .notarize
            .is_some_and(|vote| vote.subject.payload != payload);
        // R1, R5
        if own.nullify.is_some()
            || own.finalize.is_some()
            || other_block
            || !self.chain.holds(&payload)
        {
            return;
        }
        self.journal_block(step, &payload);
        self.cast(step, view, VoteKind::Finalize, payload);
    }

    pub(crate) fn journal_block(&mut self, step: &mut Step, id: &Digest) {
        if let Some(block) = self.chain.journal(id) {
            step.out.persist.push(Record::Block(block));
        }
    }

    /// Casts nullify in the current view, unless it is cast already. A finalize of the same view
    /// cannot have been cast: it takes a notarization, which ends the view.
    pub(crate) fn nullify(&mut self, step: &mut Step) {
        let view = self.view();
        let round = self.views.at(view);
        // R1, R4
        if round.own.nullify.is_some()
            || round.own.finalize.is_some()
            || !self.may_cast(view, VoteKind::Nullify)
        {
            return;
        }
        self.counters.nullified += 1;
        self.pacemaker.plan_resend(step.now);
        let (next, _) = self.after(&Subject::nullify(self.epoch(), view));
        let next = self.committee.leader(next);
        self.rules().tell(self, step, next);
        self.cast_nullify(step, view);
    }

    pub(crate) fn cast_nullify(&mut self, step: &mut Step, view: View) {
        let payload = Subject::nullify(self.epoch(), view).payload;
        self.cast(step, view, VoteKind::Nullify, payload);
    }

    /// Upon nullify votes in the current view of f + 1 validators that have not voted notarize in
    /// it: an honest one among them has given it up and will not, so that a notarization is
    /// unlikely. Waiting for the own timers would only keep the votes split for longer. Nullify
    /// after notarize is always safe.
    pub(crate) fn join_nullify(&mut self, step: &mut Step) {
        let enough = self.committee.faults() + 1;
        let Some(round) = self.views.get(self.view()) else {
            return;
        };
        if round.own.nullify.is_some() || self.epoch_is_over() {
            return;
        }
        let given_up = round.given_up();
        // R4
        if given_up >= enough {
            self.nullify(step);
        }
    }

    /// Upon time passing.
    pub(crate) fn on_time(&mut self, step: &mut Step) {
        self.on_inquiry_time(step);
        self.rules().join(self, step);
        // H6, B7: what has come may be all that it waited for.
        if self.pacemaker.is_gathering() {
            self.progress(step);
        }
        while let Some(alarm) = self.pacemaker.fire(step.now) {
            match alarm {
                Alarm::Leader => self.on_leader_overdue(step),
                Alarm::View => {
                    self.give_second_chances(step);
                    self.nullify(step);
                }
                Alarm::Gathered => self.progress(step),
                // `join`, above, has looked.
                Alarm::Heed => {}
                Alarm::Remind => step.out.remind = Some(self.committee.leader(self.view())),
                Alarm::Resend => {
                    // R18
                    if self.pacemaker.is_stuck_here() {
                        let released = self.penalties.release_suspects();
                        step.out.sentences.extend(released);
                    }
                    self.repeat(step);
                    self.pacemaker.plan_resend(step.now);
                }
            }
        }
        let lacks = lacks(
            &self.penalties,
            &self.pacemaker,
            &self.peers,
            self.tip().height,
        );
        let requests = self.fetcher.retry(step.now, lacks);
        step.out.send.extend(requests);
    }

    fn on_leader_overdue(&mut self, step: &mut Step) {
        let leader = self.committee.leader(self.view());
        let proposed = self
            .views
            .get(self.view())
            .is_some_and(|round| round.proposal.is_some());
        if proposed {
            return;
        }
        // R21
        if self.own_place() != Some(leader) && self.pacemaker.missed(leader) {
            self.counters.skipped += 1;
        }
        self.nullify(step);
    }

    /// The certificate that leads furthest, of those above the tip.
    pub(crate) fn entry(&self) -> Option<&Certificate> {
        let leads_to = |held: &Certificate| self.after(&held.subject).0;
        let mut all = self.views.certificates();
        let first = all.next()?;
        // A few views down nothing leads further.
        let near = all.take_while(|held| {
            held.subject.view.0.saturating_add(self.committee.turn()) > first.subject.view.0
        });
        let mut best = first;
        for held in near {
            if leads_to(held) > leads_to(best) {
                best = held;
            }
        }
        Some(best)
    }

    /// Repeats this validator's votes in the current view, and the certificate by which it entered:
    /// links drop messages silently, and a peer that lags behind can follow.
    pub(crate) fn repeat(&mut self, step: &mut Step) {
        // R22
        let entry = self.entry();
        // A validator that has not executed what a proposal names cannot vote for it, so the
        // finalization is repeated too.
        let finality = self.tip().certificate.as_ref();
        let finality = finality.filter(|held| Some(*held) != entry);
        for certificate in entry.into_iter().chain(finality) {
            step.send_certificate(Target::All, certificate.clone());
        }
        self.rules().repeat(self, step);
    }
}
