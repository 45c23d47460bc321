//! A key that is used elsewhere: votes of this validator's own that it has not cast.
//!
//! The rules are in the crate's head, *A journal that is lost or old*.

use crate::{
    engine::Engine,
    inquiry::{Purpose, is_beyond, position_of},
    io::{Moment, Notice, Output},
};
use quorate_crypto::bls::Proof;
use quorate_types::{
    Certificate, Position, Record, Silence, Subject, ValidatorIndex, Vote, VoteKind,
};

impl Engine {
    /// Whether this machine knows nothing of a vote of its own that it would remember.
    pub(crate) fn is_unknown(&self, vote: &Vote) -> bool {
        let Subject {
            epoch, view, kind, ..
        } = vote.subject;
        let at = position_of(&vote.subject);
        let settled = self.target.as_ref().map(|held| held.subject.view);
        if Some(vote.signer) != self.own_place()
            || at < self.position_settled()
            || (epoch == self.epoch() && Some(view) <= settled)
        {
            return false;
        }
        match self.memory.silence {
            // It would be a lost one.
            Some(Silence::Unknown) => return false,
            Some(Silence::Until(newest) | Silence::NullifyFrom(newest))
                if !is_beyond(newest, at) =>
            {
                return false;
            }
            _ => {}
        }
        if epoch > self.epoch() {
            return !self.future.iter().any(|record| match record {
                Record::Vote(held) => held.subject == vote.subject,
                _ => false,
            });
        }
        let own = self.rounds.get(&view).map(|round| &round.own);
        let held = own.and_then(|own| match kind {
            VoteKind::Notarize => own.notarize,
            VoteKind::Nullify => own.nullify,
            VoteKind::Finalize => own.finalize,
        });
        held.is_none_or(|held| held.subject != vote.subject)
    }

    /// Votes below are settled: this machine may have forgotten them.
    fn position_settled(&self) -> Position {
        let tip = Position {
            epoch: self.epoch(),
            view: self.tip.view.next(),
        };
        let journaled = Position {
            epoch: self.memory.settled.epoch,
            view: self.memory.settled.view.next(),
        };
        tip.max(journaled)
    }

    /// Upon a verified certificate: whether this validator has signed it without knowing.
    pub(crate) fn find_own_signature(
        &mut self,
        now: Moment,
        certificate: &Certificate,
        out: &mut Output,
    ) {
        let (Proof::Aggregate { signers, .. }, Some(own)) = (&certificate.proof, self.own_place())
        else {
            return;
        };
        if self.memory.elsewhere.is_some()
            || self.config.nonce.is_none()
            || !self.future.is_empty()
            || self.epoch() < self.config.silent_before
            || !signers.members().contains(&own.0)
        {
            return;
        }
        // As it would be; who looks at a certificate's signers needs no signature of one.
        let vote = Vote {
            subject: certificate.subject,
            signer: own,
            signature: quorate_crypto::bls::PartialSignature([0; 96]),
        };
        if self.is_unknown(&vote) {
            self.on_unknown_vote(now, vote.subject, None, out);
        }
    }

    /// Upon new evidence against this validator's own key: it has not cast both votes itself.
    pub(crate) fn on_own_conviction(&mut self, vote: Subject, out: &mut Output) {
        if self.config.nonce.is_some() {
            self.key_is_elsewhere(vote, None, out);
        }
    }

    /// Upon a vote of this key that the machine has not cast. At the start it shows that the journal is
    /// an old copy: it counts as lost from now on. Later it shows that somebody else votes.
    pub(crate) fn on_unknown_vote(
        &mut self,
        now: Moment,
        vote: Subject,
        told_by: Option<ValidatorIndex>,
        out: &mut Output,
    ) {
        let purpose = self.memory.inquiry.as_ref().map(|asked| asked.purpose);
        match purpose {
            Some(Purpose::Recover) => {}
            Some(Purpose::Check) => {
                self.keep_silence(Silence::Unknown, out);
                out.notices.push(Notice::OldJournal { vote, told_by });
                self.inquire(now, Purpose::Recover, out);
            }
            Some(Purpose::Confirm) | None => self.key_is_elsewhere(vote, told_by, out),
        }
    }

    fn key_is_elsewhere(
        &mut self,
        vote: Subject,
        told_by: Option<ValidatorIndex>,
        out: &mut Output,
    ) {
        // R29
        if self.memory.elsewhere.is_some() {
            return;
        }
        self.memory.elsewhere = Some((vote, told_by));
        self.memory.inquiry = None;
        // What was said while the other one voted too may be contradicted already: after the next start
        // this journal counts as lost.
        self.keep_silence(Silence::Unknown, out);
        out.notices.push(Notice::KeyElsewhere { vote, told_by });
    }
}
