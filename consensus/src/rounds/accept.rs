//! Acting on verified certificates.

use crate::{engine::Engine, fetch::Want, io::Step};
use quorate_types::{Certificate, Record, VoteKind};

impl Engine {
    /// Upon a verified certificate, made here or received.
    ///
    /// - notarization: fetch the block if it is missing; what the protocol makes of it;
    ///   enter the next view
    /// - nullification: enter the next view
    /// - finalization: the block and all its ancestors are final; enter the next view
    pub(crate) fn accept(&mut self, step: &mut Step, certificate: Certificate) {
        let subject = certificate.subject;
        if subject.view <= self.tip().view {
            return;
        }
        // R7
        if let Some(reason) = self.contradiction(&certificate) {
            step.halt(reason);
            return;
        }
        let round = self.views.at(subject.view);
        if !round.keep(&certificate) {
            return;
        }
        self.find_own_signature(step, &certificate);
        // R9: it is journaled, and sent to nobody.
        step.out
            .persist
            .push(Record::Certificate(certificate.clone()));
        match subject.kind {
            VoteKind::Notarize => {
                if self.chain.block_at(&subject.payload).is_none() {
                    let voted = self
                        .views
                        .at(subject.view)
                        .voted_for_by(self.committee.faults() + 1);
                    let voter = voted
                        .filter(|(id, _)| *id == subject.payload)
                        .map(|(_, voter)| voter);
                    let from = voter.unwrap_or_else(|| self.committee.leader(subject.view));
                    self.want_now(step, Want::Block(subject.payload), Some(from));
                }
                if !self.rules().votes_go_to_leaders() && !self.rules().leaders_make_finality() {
                    self.pass_on_to_leader(step, &certificate);
                }
                self.rules().on_notarized(self, step, subject.view);
            }
            VoteKind::Nullify => {
                self.forget_nullified(subject.view);
                self.pass_on_to_leader(step, &certificate);
                self.rules().on_nullified(self, step, subject.view);
            }
            VoteKind::Finalize => {
                if self.rules().leaders_make_finality() {
                    self.pass_on_to_leader(step, &certificate);
                }
                self.on_finalization(step, certificate);
            }
        }
        // R8
        let (next, before) = self.after(&subject);
        if next > self.view() {
            self.enter(step, next, before);
        } else {
            self.progress(step);
        }
    }

    /// Two verified certificates that cannot both exist while at most f validators are faulty. The
    /// validator stops: anything it did next could make matters worse.
    fn contradiction(&self, certificate: &Certificate) -> Option<String> {
        let subject = certificate.subject;
        let round = self.views.get(subject.view)?;
        let held = VoteKind::ALL
            .into_iter()
            .filter_map(|kind| round.certificate(kind))
            .find(|held| match (held.subject.kind, subject.kind) {
                (VoteKind::Nullify, VoteKind::Finalize)
                | (VoteKind::Finalize, VoteKind::Nullify) => true,
                (VoteKind::Nullify, _) | (_, VoteKind::Nullify) => false,
                _ => held.subject.payload != subject.payload,
            })?;
        Some(format!(
            "two certificates contradict each other: {held:?} and {certificate:?}; more than {} \
             validators are faulty, or the vote keys are",
            self.committee.faults()
        ))
    }
}
