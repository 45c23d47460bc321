//! Votes of other validators: buffering them, and making certificates of them with one check.

use crate::{
    checks::Pending,
    config::{LOOKAHEAD_VIEWS, TAIL_VIEWS, VoteChecking},
    dropped::DropReason,
    engine::Engine,
    fetch::Want,
    io::{Batch, Exhibit, JobId, Offence, Step, Verdict, Work},
    slots::Admission,
};
use quorate_crypto::bls::{PartialSignature, Proof};
use quorate_types::{Certificate, Evidence, Subject, ValidatorIndex, View, Vote, VoteKind};

/// Most votes of one validator on probation under verification.
const MAX_PROBATION_CHECKS: usize = 8;

impl Engine {
    /// Upon a vote from a peer.
    pub(crate) fn on_vote(&mut self, step: &mut Step, from: ValidatorIndex, vote: Vote) {
        let Subject { view, kind, .. } = vote.subject;
        // The sender must be the signer, or a forger could fill another validator's slot.
        // R14: from the signer's own link only.
        if vote.signer != from {
            return step.drop(from, DropReason::NotTheSigner(vote.signer));
        }
        // A validator that still says nullify in an old view lacks what ended it.
        // R22
        if kind == VoteKind::Nullify && view < self.view() {
            self.help(step, from, view);
        }
        // R14
        if let Some(reason) = self.out_of_window(view) {
            return step.drop(from, reason);
        }
        // A vote that is too late to count shows no more than a status does.
        if view.next() >= self.view() {
            self.pacemaker.heard(from);
        }
        self.ask_across(step, vote);
        let place = vote.signer.as_usize();
        let round = self.views.get_mut(view);
        let is_refused = round.is_some_and(|round| round.tally(kind).is_refused(place));
        if is_refused
            || self.penalties.is_on_probation(from)
            || self.config.checking == VoteChecking::Eager
        {
            self.verify_alone(step, vote);
        } else {
            self.admit(step, vote, false);
        }
        // R25
        if kind == VoteKind::Notarize && view == self.view() {
            self.expect_with_others(step.now);
        }
    }

    /// A validator without a link to a view's leader lacks the leader's votes too, and may never
    /// see a quorum. A peer that says finalize holds the notarization, so it is asked for it.
    /// Otherwise this validator, which may lead next, would stay behind until something is
    /// repeated.
    fn ask_across(&mut self, step: &mut Step, vote: Vote) {
        let Subject { view, kind, .. } = vote.subject;
        let leader = self.committee.leader(view);
        // R24
        if kind == VoteKind::Finalize
            && view >= self.view()
            && self.pacemaker.is_out_of_reach(leader)
        {
            self.want(step, Want::Certificates(view, view), Some(vote.signer));
        }
    }

    /// Why votes of this view are dropped, if they are. The window bounds the slots' memory. It is
    /// checked before any cryptography.
    fn out_of_window(&self, view: View) -> Option<DropReason> {
        if view.0 == 0 || view.0.saturating_add(TAIL_VIEWS) < self.view().0 {
            return Some(DropReason::ViewOver(view));
        }
        let ahead = self.committee.steps(self.view(), view);
        (ahead > LOOKAHEAD_VIEWS).then_some(DropReason::ViewAhead(view))
    }

    fn verify_alone(&mut self, step: &mut Step, vote: Vote) {
        if self.checks.probation_votes_of(vote.signer) >= MAX_PROBATION_CHECKS {
            return step.drop(vote.signer, DropReason::Busy);
        }
        let pending = Pending::Probation { vote };
        self.checks
            .start(step, Work::VerifyVotes(vec![vote]), pending);
    }

    /// Puts a vote into its slot and acts on it.
    pub(crate) fn admit(&mut self, step: &mut Step, vote: Vote, verified: bool) {
        let size = self.committee.size();
        let Subject { view, kind, .. } = vote.subject;
        let round = self.views.at(view);
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
                self.suspect(step, first, vote);
            }
            Admission::Stored => {
                if kind != VoteKind::Finalize {
                    self.pacemaker.has_voted(step.now, view, vote.signer);
                }
                self.compare_kinds(step, vote);
                self.try_certify(step, vote.subject);
            }
        }
    }

    /// Looks for a vote of another kind by the same signer that conflicts with this one.
    fn compare_kinds(&mut self, step: &mut Step, vote: Vote) {
        let place = vote.signer.as_usize();
        for kind in VoteKind::ALL {
            if kind == vote.subject.kind {
                continue;
            }
            let round = self.views.at(vote.subject.view);
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
            self.suspect(step, first, vote);
        }
    }

    /// Has two different votes of one signer verified, if together they would be evidence or one
    /// of them must be forged. One such check per signer at a time.
    fn suspect(&mut self, step: &mut Step, first: Vote, second: Vote) {
        let evidence = Evidence { first, second };
        // A BLS signature is unique: of two for the same subject, one is invalid.
        let same_subject = first.subject == second.subject;
        // R17
        if evidence.conflict().is_none() && !same_subject {
            return;
        }
        if Some(second.signer) == self.own_place() || !self.convictions.accuse(second.signer) {
            return;
        }
        self.checks.start(
            step,
            Work::VerifyVotes(vec![first, second]),
            Pending::Conflict {
                evidence,
                reporter: None,
            },
        );
    }

    /// Starts the one check when a quorum of votes for the subject lies there.
    pub(crate) fn try_certify(&mut self, step: &mut Step, subject: Subject) {
        let quorum = self.committee.quorum();
        if subject.view <= self.tip().view {
            return;
        }
        let round = self.views.at(subject.view);
        if round.certificate(subject.kind).is_some() {
            return;
        }
        let tally = round.tally(subject.kind);
        // R6
        let Some((parts, verified)) = tally.ready(&subject.payload, quorum) else {
            return;
        };
        if self.checks.is_verifying(&subject) {
            return;
        }
        let batch = Batch {
            subject,
            message: self.checks.hashed(&subject),
            parts: parts.clone(),
            verified,
        };
        let job = self.checks.start(
            step,
            Work::Certify(batch),
            Pending::Certify {
                subject,
                parts,
                failed: false,
            },
        );
        let round = self.views.at(subject.view);
        round.tally(subject.kind).start(job);
    }

    /// Upon the result of cryptographic work.
    pub(crate) fn on_checked(&mut self, step: &mut Step, job: JobId, verdict: Verdict) {
        if let Verdict::Spoiled = verdict {
            return self.on_spoiled(step, job);
        }
        match (self.checks.finish(job), verdict) {
            (Some(Pending::Certify { subject, parts, .. }), Verdict::Certified(result)) => {
                if result.is_err() {
                    self.on_spoiled(step, job);
                }
                self.checks.drop_spare(job);
                self.on_certified(step, job, subject, &parts, result);
            }
            (Some(Pending::Certificates { from, certificates }), Verdict::Verified(valid)) => {
                self.on_certificates_checked(step, from, certificates, &valid)
            }
            (Some(Pending::Probation { vote }), Verdict::Verified(valid)) => {
                let exhibit = Exhibit::Vote(Box::new(vote));
                if valid == [true] {
                    self.penalties.redeem(vote.signer);
                    self.admit(step, vote, true);
                } else if self.penalties.is_on_probation(vote.signer) {
                    // Blocked once more it would only be released again; it is muted for a while
                    // instead.
                    let (signer, offence) = (vote.signer, Offence::InvalidVote);
                    step.out
                        .sentences
                        .extend(self.penalties.relapse(signer, offence, exhibit));
                } else {
                    self.offend(step, vote.signer, Offence::InvalidVote, exhibit);
                }
            }
            (Some(Pending::Conflict { evidence, reporter }), Verdict::Verified(valid)) => {
                self.on_conflict_checked(step, evidence, reporter, &valid);
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
                self.on_standing_checked(step, (from, nonce), (answer, vote), valid);
            }
            (Some(Pending::Stale), _) => {}
            // A verdict for a check that was never started: a defect of the program around the
            // engine.
            _ => step.halt(format!("no check {} is under way", job.0)),
        }
    }

    fn on_certified(
        &mut self,
        step: &mut Step,
        job: JobId,
        subject: Subject,
        parts: &[(u32, PartialSignature)],
        result: Result<Proof, Vec<u32>>,
    ) {
        let Some(round) = self.views.get_mut(subject.view) else {
            return;
        };
        match result {
            Ok(proof) => {
                round.tally(subject.kind).succeed(job);
                self.counters.certified += 1;
                let certificate = Certificate { subject, proof };
                self.accept(step, certificate.clone());
                self.rules().on_certificate_made(self, step, &certificate);
            }
            Err(bad) if bad.is_empty() => {
                step.halt(format!(
                    "votes for {subject:?} verify one by one but not together"
                ));
            }
            // R6, R16
            Err(bad) => {
                self.counters.bisected += 1;
                round.tally(subject.kind).fail(job, parts, &bad);
                for (place, signature) in parts.iter().filter(|(place, _)| bad.contains(place)) {
                    let signer = ValidatorIndex(*place);
                    let vote = Vote {
                        subject,
                        signer,
                        signature: *signature,
                    };
                    let exhibit = Exhibit::Vote(Box::new(vote));
                    self.offend(step, signer, Offence::InvalidVote, exhibit);
                }
                self.try_certify(step, subject);
            }
        }
    }

    pub(crate) fn offend(
        &mut self,
        step: &mut Step,
        validator: ValidatorIndex,
        offence: Offence,
        exhibit: Exhibit,
    ) {
        if offence == Offence::InvalidVote
            && self.config.checking == VoteChecking::TogetherUnblocked
        {
            return;
        }
        let sentences = self.penalties.offend(validator, offence, exhibit);
        step.out.sentences.extend(sentences);
    }
}
