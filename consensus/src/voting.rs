//! Votes: casting one's own, buffering those of others, and making certificates of them.

use crate::{
    certificates::lacks,
    config::{LOOKAHEAD_VIEWS, TAIL_VIEWS, VoteChecking},
    engine::{Engine, Held, Pending},
    fetch::Want,
    io::{Batch, Exhibit, JobId, Moment, Offence, Outbound, Output, Target, Verdict, Work},
    pacemaker::Alarm,
    slots::Admission,
};
use quorate_crypto::mistakes::{Mistake, made};
use quorate_crypto::{
    Digest,
    bls::{PartialSignature, Proof},
};
use quorate_types::{
    Certificate, Evidence, Message, Record, Subject, ValidatorIndex, View, Vote, VoteKind,
};

/// Votes of one validator on probation that may be under verification at once.
const MAX_PROBATION_CHECKS: usize = 8;

impl Engine {
    /// Upon a vote from a peer.
    pub(crate) fn on_vote(
        &mut self,
        now: Moment,
        from: ValidatorIndex,
        vote: Vote,
        out: &mut Output,
    ) {
        let Subject { view, kind, .. } = vote.subject;
        // The sender must be the signer, or a forger could fill another validator's slot.
        // R14: from the signer's own link only.
        if vote.signer != from && !made(Mistake::SenderNotSigner) {
            self.counters.dropped_invalid += 1;
            return;
        }
        // Who still says nullify in a view that has ended lacks what ended it.
        // R22
        if kind == VoteKind::Nullify && view < self.view {
            self.help(now, from, view, out);
        }
        // R14
        if !self.in_window(view) {
            self.counters.dropped_window += 1;
            return;
        }
        // A vote that comes too late to count shows no more than a status does.
        if view.next() >= self.view {
            self.pacemaker.heard(from);
        }
        self.ask_across(now, vote, out);
        if self.blame.is_on_probation(from) || self.config.checking == VoteChecking::Eager {
            self.verify_alone(vote, out);
        } else {
            self.admit(vote, false, out);
        }
        // R25
        if kind == VoteKind::Notarize && view == self.view {
            self.expect_with_others(now);
        }
    }

    /// Who has no link to a view's leader lacks the leader's votes too, and may never see a quorum. Who
    /// says finalize holds the notarization, so it is asked for it: or this validator, which leads
    /// next perhaps, would stay behind until something is repeated.
    fn ask_across(&mut self, now: Moment, vote: Vote, out: &mut Output) {
        let Subject { view, kind, .. } = vote.subject;
        let leader = self.config.committee.leader(view);
        // R24
        if kind == VoteKind::Finalize && view >= self.view && self.pacemaker.is_out_of_reach(leader)
        {
            self.want(now, Want::Certificates(view, view), Some(vote.signer), out);
        }
    }

    /// The window of views whose votes are taken. It is what bounds the slots' memory, and it is
    /// checked before any cryptography.
    fn in_window(&self, view: View) -> bool {
        made(Mistake::WindowUnbounded)
            || view.0 > 0
                && view.0.saturating_add(TAIL_VIEWS) >= self.view.0
                && view.0 <= self.view.0.saturating_add(LOOKAHEAD_VIEWS)
    }

    fn verify_alone(&mut self, vote: Vote, out: &mut Output) {
        let signer = vote.signer;
        let under_way = self
            .jobs
            .values()
            .filter(
                |pending| matches!(pending, Pending::Probation { vote } if vote.signer == signer),
            )
            .count();
        if under_way < MAX_PROBATION_CHECKS {
            self.start(
                Work::VerifyVotes(vec![vote]),
                Pending::Probation { vote },
                out,
            );
        }
    }

    /// Puts a vote into its slot and sees what follows.
    fn admit(&mut self, vote: Vote, verified: bool, out: &mut Output) {
        let size = self.config.committee.size();
        let Subject { view, kind, .. } = vote.subject;
        let round = self.rounds.entry(view).or_default();
        // R14: the first of a kind in a view stays.
        match round.tally(kind).admit(&vote, size, verified) {
            Admission::Same => {}
            Admission::Different { payload, signature } => {
                let subject = Subject {
                    payload,
                    ..vote.subject
                };
                let first = Vote {
                    subject,
                    signature,
                    ..vote
                };
                self.suspect(first, vote, out);
            }
            Admission::Stored => {
                self.compare_kinds(vote, out);
                self.try_certify(vote.subject, out);
            }
        }
    }

    /// Looks for a vote of another kind by the same signer that conflicts with this one.
    fn compare_kinds(&mut self, vote: Vote, out: &mut Output) {
        let place = vote.signer.as_usize();
        for kind in VoteKind::ALL {
            if kind == vote.subject.kind {
                continue;
            }
            let round = self.rounds.entry(vote.subject.view).or_default();
            let Some((payload, signature)) = round.tally(kind).held(place) else {
                continue;
            };
            let subject = Subject {
                kind,
                payload,
                ..vote.subject
            };
            let first = Vote {
                subject,
                signature,
                ..vote
            };
            self.suspect(first, vote, out);
        }
    }

    /// Has two different votes of one signer verified, if together they would be evidence or one
    /// of them must be forged. One such check per signer at a time.
    fn suspect(&mut self, first: Vote, second: Vote, out: &mut Output) {
        let evidence = Evidence { first, second };
        // A BLS signature is unique: of two for the same subject, one is invalid.
        let same_subject = first.subject == second.subject;
        // R17
        if evidence.conflict().is_none() && !same_subject {
            return;
        }
        if Some(second.signer) == self.own_place() || !self.accused.insert(second.signer) {
            return;
        }
        self.start(
            Work::VerifyVotes(vec![first, second]),
            Pending::Conflict {
                evidence,
                reporter: None,
            },
            out,
        );
    }

    /// Starts the one check when a quorum of votes for the subject lies there.
    pub(crate) fn try_certify(&mut self, subject: Subject, out: &mut Output) {
        let quorum = self.config.committee.quorum();
        if subject.view <= self.tip.view {
            return;
        }
        let round = self.rounds.entry(subject.view).or_default();
        if round.certificate(subject.kind).is_some() {
            return;
        }
        let tally = round.tally(subject.kind);
        // R6
        let Some((parts, verified)) = tally.ready(&subject.payload, quorum) else {
            return;
        };
        if self.is_verifying(&subject) {
            return;
        }
        let batch = Batch {
            subject,
            message: self.hashed.get(&subject).cloned(),
            parts: parts.clone(),
            verified,
        };
        let job = self.start(
            Work::Certify(batch),
            Pending::Certify {
                subject,
                parts,
                failed: false,
            },
            out,
        );
        let round = self.rounds.entry(subject.view).or_default();
        round.tally(subject.kind).start(job);
    }

    /// Upon the result of cryptographic work.
    pub(crate) fn on_checked(
        &mut self,
        now: Moment,
        job: JobId,
        verdict: Verdict,
        out: &mut Output,
    ) {
        if let Verdict::Spoiled = verdict {
            return self.on_spoiled(job, out);
        }
        match (self.jobs.remove(&job), verdict) {
            (Some(Pending::Certify { subject, parts, .. }), Verdict::Certified(result)) => {
                if result.is_err() {
                    self.on_spoiled(job, out);
                }
                self.spare.remove(&job);
                self.on_certified(now, job, subject, &parts, result, out);
            }
            (Some(Pending::Certificates { from, certificates }), Verdict::Verified(valid)) => {
                self.on_certificates_checked(now, from, certificates, &valid, out)
            }
            (Some(Pending::Probation { vote }), Verdict::Verified(valid)) => {
                let exhibit = Exhibit::Vote(Box::new(vote));
                if valid == [true] {
                    self.blame.redeem(vote.signer);
                    self.admit(vote, true, out);
                } else if self.blame.is_on_probation(vote.signer) {
                    // Blocked once more it would only be freed again; it is not heard for a while.
                    let (signer, offence) = (vote.signer, Offence::InvalidVote);
                    out.sentences
                        .extend(self.blame.relapse(signer, offence, exhibit));
                } else {
                    self.offend(vote.signer, Offence::InvalidVote, exhibit, out);
                }
            }
            (Some(Pending::Conflict { evidence, reporter }), Verdict::Verified(valid)) => {
                self.on_conflict_checked(evidence, reporter, &valid, out);
            }
            (
                Some(Pending::Standing {
                    from,
                    nonce,
                    answer,
                    vote,
                }),
                Verdict::Verified(valid),
            ) => {
                let valid = valid == [true];
                self.on_standing_checked(now, (from, nonce), (answer, vote), valid, out);
            }
            (Some(Pending::Stale), _) => {}
            // An answer to a question that was never asked: a fault of the program around us.
            _ => out.fatal = Some(format!("no check {} is under way", job.0)),
        }
    }

    fn on_certified(
        &mut self,
        now: Moment,
        job: JobId,
        subject: Subject,
        parts: &[(u32, PartialSignature)],
        result: Result<Proof, Vec<u32>>,
        out: &mut Output,
    ) {
        let Some(round) = self.rounds.get_mut(&subject.view) else {
            return;
        };
        match result {
            Ok(proof) => {
                round.tally(subject.kind).succeed(job);
                self.counters.certified += 1;
                self.accept(now, Certificate { subject, proof }, out);
            }
            Err(bad) if bad.is_empty() => {
                out.fatal = Some(format!(
                    "votes for {subject:?} verify one by one but not together"
                ));
            }
            // R6, R16
            Err(bad) => {
                self.counters.bisected += 1;
                round.tally(subject.kind).fail(job, parts, &bad);
                let blamed = |place: &u32| {
                    !made(Mistake::NobodyBlamed)
                        && (bad.contains(place) || made(Mistake::WholeBatchBlamed))
                };
                for (place, signature) in parts.iter().filter(|(place, _)| blamed(place)) {
                    let signer = ValidatorIndex(*place);
                    let vote = Vote {
                        subject,
                        signer,
                        signature: *signature,
                    };
                    let exhibit = Exhibit::Vote(Box::new(vote));
                    self.offend(signer, Offence::InvalidVote, exhibit, out);
                }
                self.try_certify(subject, out);
            }
        }
    }

    pub(crate) fn offend(
        &mut self,
        validator: ValidatorIndex,
        offence: Offence,
        exhibit: Exhibit,
        out: &mut Output,
    ) {
        if offence == Offence::InvalidVote
            && self.config.checking == VoteChecking::TogetherUnblocked
        {
            return;
        }
        let sentences = self.blame.offend(validator, offence, exhibit);
        out.sentences.extend(sentences);
    }

    /// Signs and journals a vote of this validator's own, and hands it out for sending after the
    /// journal's sync. The callers hold the rules of when a vote may be cast.
    fn cast(&mut self, view: View, kind: VoteKind, payload: Digest, out: &mut Output) {
        let Some(own) = self.config.own.clone() else {
            return;
        };
        if !self.may_cast(view, kind) {
            return;
        }
        let subject = Subject {
            epoch: self.config.epoch(),
            view,
            kind,
            payload,
        };
        let (signature, message) = own
            .secret
            .sign_vote(&subject.signed_bytes(&self.config.chain));
        if let Some(message) = message {
            self.hashed.insert(subject, message);
        }
        let vote = Vote {
            subject,
            signer: own.place,
            signature,
        };
        let round = self.rounds.entry(view).or_default();
        // R1, R2: the last gate.
        if let Some(held) = round.own.contradicted_by(vote) {
            out.fatal = Some(format!(
                "refused to vote {:?} after {:?}: the two are evidence against this validator. This is a \
                 defect of the program; it stops before it does harm",
                vote.subject, held.subject
            ));
            return;
        }
        *round.own.place(kind) = Some(vote);
        // R2: it is in `votes`, not in `send`, and leaves after the sync.
        out.persist.push(Record::Vote(vote));
        let last = self.blocks.get(&payload);
        let border = last.is_some_and(|held| self.ends_epoch(&held.block));
        // Nothing follows the epoch's last block that its finalize vote could wait for.
        out.urgent |= kind != VoteKind::Finalize || border;
        out.votes.push(Outbound {
            to: Target::All,
            message: Message::Vote(vote),
        });
        self.admit(vote, true, out);
    }

    /// Casts notarize for a block that is known to be valid, in the current view.
    pub(crate) fn notarize(&mut self, view: View, payload: Digest, out: &mut Output) {
        self.journal_block(&payload, out);
        self.cast(view, VoteKind::Notarize, payload, out);
    }

    /// Casts finalize if the view's notarized block is here and nothing said before forbids it.
    ///
    /// Not after nullify, which excludes finalize; not after notarize for another block. The
    /// block is journaled before: once a quorum has said finalize, a quorum holds the block on
    /// disk, and a power cut of all validators loses nothing.
    pub(crate) fn try_finalize(&mut self, view: View, out: &mut Output) {
        // Below a known finalization the vote is of no use. Nor would it be safe: a journal that is
        // ahead of the database no longer holds what was said there.
        let target = self.target.as_ref().map(|target| target.subject.view);
        // R5
        if view <= self.tip.view || target >= Some(view) || self.own_place().is_none() {
            return;
        }
        let Some(round) = self.rounds.get(&view) else {
            return;
        };
        let Some(certificate) = &round.notarization else {
            return;
        };
        let payload = certificate.subject.payload;
        let own = &round.own;
        let other_block = own
            .notarize
            .is_some_and(|vote| vote.subject.payload != payload);
        // R1, R5
        if (own.nullify.is_some() && !made(Mistake::FinalizeAfterNullify))
            || own.finalize.is_some()
            || (other_block && !made(Mistake::FinalizeOtherThanNotarized))
            || !self.blocks.contains_key(&payload)
        {
            return;
        }
        self.journal_block(&payload, out);
        self.cast(view, VoteKind::Finalize, payload, out);
    }

    fn journal_block(&mut self, id: &Digest, out: &mut Output) {
        if let Some(Held {
            block, journaled, ..
        }) = self.blocks.get_mut(id)
            && !*journaled
        {
            *journaled = true;
            if made(Mistake::VoteWithoutItsBlock) {
                return;
            }
            out.persist.push(Record::Block(block.clone()));
        }
    }

    /// Casts nullify in the current view, unless it is cast already. A finalize of the same view
    /// cannot have been cast: it takes a notarization, which ends the view.
    fn nullify(&mut self, now: Moment, out: &mut Output) {
        let view = self.view;
        let round = self.rounds.entry(view).or_default();
        // R1, R4
        if round.own.nullify.is_some() || round.own.finalize.is_some() {
            return;
        }
        if made(Mistake::NullifyAfterFinalize) && view.0 > 1 {
            let before = View(view.0 - 1);
            self.cast(before, VoteKind::Nullify, Digest::ZERO, out);
        }
        self.counters.nullified += 1;
        self.pacemaker.plan_resend(now);
        let payload = Subject::nullify(self.config.epoch(), view).payload;
        self.cast(view, VoteKind::Nullify, payload, out);
    }

    /// Upon nullify votes of f + 1 validators in the current view that have not voted notarize in
    /// it: an honest one among them has given it up and will not, so that a notarization is
    /// unlikely to come about. Waiting for one's own timers would only leave the votes split for
    /// longer. Saying nullify after notarize is always safe.
    fn join_nullify(&mut self, now: Moment, out: &mut Output) {
        let enough = self.config.committee.faults() + 1;
        let Some(round) = self.rounds.get(&self.view) else {
            return;
        };
        if round.own.nullify.is_some() || self.epoch_is_over() {
            return;
        }
        let given_up = round.given_up();
        // R4
        if given_up >= enough {
            self.nullify(now, out);
        }
    }

    /// Upon time passing.
    pub(crate) fn on_time(&mut self, now: Moment, out: &mut Output) {
        self.on_inquiry_time(now, out);
        self.join_nullify(now, out);
        while let Some(alarm) = self.pacemaker.fire(now) {
            match alarm {
                Alarm::Leader => self.on_leader_overdue(now, out),
                Alarm::View => {
                    // R18
                    let sentences = self.blame.relent();
                    out.sentences.extend(sentences);
                    self.nullify(now, out);
                }
                Alarm::Remind => out.remind = Some(self.config.committee.leader(self.view)),
                Alarm::Resend => {
                    self.repeat(out);
                    self.pacemaker.plan_resend(now);
                }
            }
        }
        let lacks = lacks(
            &self.blame,
            &self.pacemaker,
            (&self.claims, &self.oldest),
            self.tip.height,
        );
        let requests = self.fetcher.retry(now, lacks);
        out.send.extend(requests);
    }

    fn on_leader_overdue(&mut self, now: Moment, out: &mut Output) {
        let leader = self.config.committee.leader(self.view);
        let proposed = self
            .rounds
            .get(&self.view)
            .is_some_and(|round| round.proposal.is_some());
        if proposed {
            return;
        }
        // R21
        if self.own_place() != Some(leader) && self.pacemaker.missed(leader) {
            self.counters.skipped += 1;
        }
        self.nullify(now, out);
    }

    /// Says again what was said in the current view, and what let this validator enter it: the
    /// links drop silently, and who lags behind can follow by it.
    pub(crate) fn repeat(&mut self, out: &mut Output) {
        if made(Mistake::NothingRepeated) {
            return;
        }
        // R22
        let previous = View(self.view.0 - 1);
        let entry = self.rounds.get(&previous).and_then(|round| round.exit());
        // Who has not executed what a proposal names cannot vote for it, so finality is told too.
        let finality = self.tip.certificate.as_ref();
        let finality = finality.filter(|held| Some(*held) != entry);
        for certificate in entry.into_iter().chain(finality) {
            self.send(Target::All, Message::Certificate(certificate.clone()), out);
        }
        if let Some(round) = self.rounds.get(&self.view) {
            if let Some(proposal) = &round.proposal
                && self.leads(self.view)
            {
                self.send(Target::All, Message::Proposal(proposal.clone()), out);
            }
            let own = &round.own;
            let votes = [&own.notarize, &own.nullify, &own.finalize];
            for vote in votes.into_iter().flatten() {
                out.urgent = true;
                out.votes.push(Outbound {
                    to: Target::All,
                    message: Message::Vote(*vote),
                });
            }
        }
    }
}
