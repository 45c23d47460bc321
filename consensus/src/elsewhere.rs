//! Detects that the key is used elsewhere: votes of this validator's own that it has not cast.
//!
//! The rules are in the crate's head, *A journal that is lost or old*.

use crate::{
    engine::Engine,
    inquiry::{Purpose, position_of},
    io::{Notice, Step},
};
use quorate_crypto::bls::Proof;
use quorate_types::{
    Certificate, Position, Record, Silence, Subject, ValidatorIndex, Vote, VoteKind,
};

impl Engine {
    /// Whether a vote of this validator's own is unknown here although it would be remembered.
    pub(crate) fn is_unknown(&self, vote: &Vote) -> bool {
        let Subject {
            epoch, view, kind, ..
        } = vote.subject;
        let at = position_of(&vote.subject);
        let settled = self.staging.target_view();
        if Some(vote.signer) != self.own_place()
            || at < self.position_settled()
            || (epoch == self.epoch() && Some(view) <= settled)
        {
            return false;
        }
        match self.memory.silence {
            // It is one of the lost votes.
            Some(Silence::Unknown) => return false,
            Some(Silence::Until(newest) | Silence::NullifyFrom(newest))
                if !self.is_beyond(newest, at) =>
            {
                return false;
            }
            _ => {}
        }
        if epoch > self.epoch() {
            return !self.border.later().iter().any(|record| match record {
                Record::Vote(held) => held.subject == vote.subject,
                _ => false,
            });
        }
        let own = self.views.get(view).map(|round| &round.own);
        let held = own.and_then(|own| match kind {
            VoteKind::Notarize => own.notarize,
            VoteKind::Nullify => own.nullify,
            VoteKind::Finalize => own.finalize,
        });
        held.is_none_or(|held| held.subject != vote.subject)
    }

    /// Votes below this position are settled and may have been forgotten.
    fn position_settled(&self) -> Position {
        let tip = Position {
            epoch: self.epoch(),
            view: self.tip().view.next(),
        };
        let journaled = Position {
            epoch: self.memory.settled.epoch,
            view: self.memory.settled.view.next(),
        };
        tip.max(journaled)
    }

    /// Upon a verified certificate: checks whether it names this validator as a signer of something
    /// that it has not signed.
    pub(crate) fn find_own_signature(&mut self, step: &mut Step, certificate: &Certificate) {
        let (Proof::Aggregate { signers, .. }, Some(own)) = (&certificate.proof, self.own_place())
        else {
            return;
        };
        if self.memory.elsewhere.is_some()
            || self.config.nonce.is_none()
            || !self.border.later().is_empty()
            || self.epoch() < self.config.silent_before
            || !signers.members().contains(&own.0)
        {
            return;
        }
        // The vote as it would be. Its signature is not used.
        let vote = Vote {
            subject: certificate.subject,
            signer: own,
            signature: quorate_crypto::bls::PartialSignature([0; 96]),
        };
        if self.is_unknown(&vote) {
            self.on_unknown_vote(step, vote.subject, None);
        }
    }

    /// Upon new evidence against this validator's own key: it has not cast both votes itself.
    pub(crate) fn on_own_conviction(&mut self, step: &mut Step, vote: Subject) {
        if self.config.nonce.is_some() {
            self.key_is_elsewhere(step, vote, None);
        }
    }

    /// Upon a vote of this key that this validator has not cast. At the start it shows that the
    /// journal is an old copy, which counts as lost from now on. Later it shows that another
    /// process uses the key.
    pub(crate) fn on_unknown_vote(
        &mut self,
        step: &mut Step,
        vote: Subject,
        told_by: Option<ValidatorIndex>,
    ) {
        let purpose = self.memory.inquiry.as_ref().map(|asked| asked.purpose);
        match purpose {
            Some(Purpose::Recover) => {}
            Some(Purpose::Check) => {
                self.keep_silence(step, Silence::Unknown);
                step.out.notices.push(Notice::OldJournal { vote, told_by });
                self.inquire(step, Purpose::Recover);
            }
            Some(Purpose::Confirm) | None => self.key_is_elsewhere(step, vote, told_by),
        }
    }

    fn key_is_elsewhere(
        &mut self,
        step: &mut Step,
        vote: Subject,
        told_by: Option<ValidatorIndex>,
    ) {
        // R29
        if self.memory.elsewhere.is_some() {
            return;
        }
        self.memory.elsewhere = Some((vote, told_by));
        self.memory.inquiry = None;
        // What was cast while the other process voted too may be contradicted already, so this
        // journal counts as lost after the next start.
        self.keep_silence(step, Silence::Unknown);
        step.out
            .notices
            .push(Notice::KeyElsewhere { vote, told_by });
    }
}
