//! Certificates: having them verified, and sending them to peers.

use crate::{
    checks::Pending,
    config::MAX_CERTIFICATE_CHECKS_PER_PEER,
    dropped::DropReason,
    engine::Engine,
    fetch::Want,
    io::{Exhibit, JobId, Offence, Step, Target, Work},
    peers::Peers,
    penalties::Penalties,
    rounds::{pacemaker::Pacemaker, round::Round},
};
use quorate_types::{
    Certificate, Epoch, Height, Message, Subject, ValidatorIndex, View, VoteKind,
    limits::MAX_CERTIFICATE_REPLIES,
};
use std::collections::BTreeSet;

impl Engine {
    /// Has a peer's certificates verified, those that would tell something new.
    pub(crate) fn check_certificates(
        &mut self,
        step: &mut Step,
        from: ValidatorIndex,
        certificates: Vec<Certificate>,
    ) {
        let mut fresh: Vec<Certificate> = Vec::new();
        for certificate in certificates {
            let known = fresh
                .iter()
                .any(|other| other.subject == certificate.subject);
            if known || !self.would_help(&certificate) {
                continue;
            }
            // The votes for it are being checked at this moment, which tells as much without
            // another check. If they do not hold, the certificate is verified.
            // R7
            match self.checks.certifying(&certificate.subject) {
                Some(job) => self.checks.set_aside(job, from, certificate),
                None => fresh.push(certificate),
            }
        }
        if fresh.is_empty() {
            return;
        }
        if self.checks.certificates_of(from) >= MAX_CERTIFICATE_CHECKS_PER_PEER {
            return step.drop(from, DropReason::Busy);
        }
        let certificates = fresh.clone();
        let pending = Pending::Certificates { from, certificates };
        self.checks
            .start(step, Work::VerifyCertificates(fresh), pending);
    }

    /// The votes under check do not hold. The search for the invalid ones takes longer, and a
    /// certificate need not wait for it.
    pub(crate) fn on_spoiled(&mut self, step: &mut Step, job: JobId) {
        if let Some((from, certificate)) = self.checks.fail(job) {
            self.check_certificates(step, from, vec![certificate]);
        }
        // What waited for the result need not wait for the search.
        self.progress(step);
    }

    /// Whether a certificate, if it verifies, tells something new.
    fn would_help(&self, certificate: &Certificate) -> bool {
        let subject = &certificate.subject;
        let stale = subject.epoch != self.epoch();
        // R7
        if stale || subject.view == View(u64::MAX) {
            return false;
        }
        subject.view > self.tip().view
            && self
                .views
                .get(subject.view)
                .is_none_or(|round| round.certificate(subject.kind).is_none())
    }

    pub(crate) fn on_certificates_checked(
        &mut self,
        step: &mut Step,
        from: ValidatorIndex,
        certificates: Vec<Certificate>,
        valid: &[bool],
    ) {
        for (certificate, valid) in certificates.into_iter().zip(valid) {
            if *valid {
                self.unstage(step, &certificate);
                self.accept(step, certificate);
            } else {
                // Honest validators verify before they pass on, so the sender is to blame.
                if self.closes_staged(&certificate) {
                    self.unstage_all(step, from);
                }
                let subject = certificate.subject;
                // R16
                let exhibit = Exhibit::Certificate(Box::new(certificate));
                self.offend(step, from, Offence::InvalidCertificate, exhibit);
                // Votes for it may have waited for the result; but nothing is kept for views that
                // the sender makes up.
                if subject.epoch == self.epoch() && self.views.get(subject.view).is_some() {
                    self.try_certify(step, subject);
                }
            }
        }
    }

    /// The newest finalization of this epoch that is known.
    pub(crate) fn newest_finalization(&self) -> Option<&Certificate> {
        let newest = self.staging.target().or(self.tip().certificate.as_ref());
        newest.filter(|held| held.subject.epoch == self.epoch())
    }

    /// Sends a peer that is stuck in an earlier view what ended it.
    pub(crate) fn help(&mut self, step: &mut Step, peer: ValidatorIndex, view: View) {
        // R22
        if !self.may_help(step, peer, view) {
            return;
        }
        let finalization = self.newest_finalization();
        let finalization = finalization.filter(|held| held.subject.view >= view);
        let exit = self.views.exit(view);
        let newest = self.entry();
        let mut certificates: Vec<Certificate> = Vec::new();
        for certificate in [finalization, exit, newest].into_iter().flatten() {
            if !certificates.contains(certificate) {
                certificates.push(certificate.clone());
            }
        }
        for certificate in certificates {
            step.send_certificate(Target::One(peer), certificate);
        }
    }

    /// Sends what ends the current view, if it brings a block, to whoever has given up this turn: perhaps its leader has left them
    /// out, and they may lead the next one.
    pub(crate) fn help_who_gave_up(&mut self, step: &mut Step) {
        // R22
        let view = self.view();
        let turn = || self.views.range(self.committee.turn_of(view)..=view);
        if turn().all(|(_, round)| round.nullifying().next().is_none()) {
            return;
        }
        let round = self.views.get(view);
        let Some(certificate) = round.and_then(Round::block_certificate) else {
            return;
        };
        for place in self.committee.places() {
            let gave_up = turn().any(|(_, round)| round.has_nullified(place));
            if gave_up && self.own_place() != Some(place) {
                step.send(
                    Target::One(place),
                    Message::Certificate(certificate.clone()),
                );
            }
        }
    }

    /// Sends what lets the leader of the next turn begin to that leader: others may have it by votes, or from a leader, that have
    /// left that one out. Who has not said as much itself does so, and so do the f + 1 validators after that leader, where no
    /// votes for it go to all.
    pub(crate) fn pass_on_to_leader(&mut self, step: &mut Step, certificate: &Certificate) {
        // R9, B5
        let Subject { view, kind, .. } = certificate.subject;
        let (next, _) = self.after(&certificate.subject);
        let leader = self.committee.leader(next);
        let Some(own) = self.own_place().filter(|own| *own != leader) else {
            return;
        };
        let is_turns_last = self.committee.turn_of(next) == next;
        if next < self.view() || !is_turns_last {
            return;
        }
        let said = &self.views.at(view).own;
        let (owes_word, is_needed) = match kind {
            VoteKind::Notarize => (said.notarize.is_none(), false),
            VoteKind::Nullify => (said.nullify.is_none(), true),
            VoteKind::Finalize => (false, true),
        };
        if owes_word && kind == VoteKind::Nullify {
            self.rules().tell(self, step, leader);
        }
        let size = self.committee.size();
        let after_leader = (own.as_usize() + size - leader.as_usize()) % size;
        if owes_word || (is_needed && after_leader <= self.committee.faults() + 1) {
            step.send_certificate(Target::One(leader), certificate.clone());
        }
    }

    /// Whether a peer may be sent what ended this view, and notes that it is.
    pub(crate) fn may_help(&mut self, step: &Step, peer: ValidatorIndex, view: View) -> bool {
        let interval = self.pacemaker.resend_interval() / 2;
        self.peers.may_help(peer, view, step.now, interval)
    }

    /// Upon a request for the certificates that ended some views.
    pub(crate) fn on_certificate_request(
        &mut self,
        step: &mut Step,
        from: ValidatorIndex,
        epoch: Epoch,
        first: View,
        last: View,
    ) {
        if epoch.next() == self.epoch() {
            return self.help_across(step, from);
        }
        if epoch != self.epoch() || first > last {
            return step.drop(from, DropReason::BadRequest);
        }
        let mut certificates: Vec<Certificate> = Vec::new();
        if first <= self.tip().view {
            certificates.extend(self.tip().certificate.clone());
        }
        for (_, round) in self.views.range(first..=last) {
            let notarized = round.block_certificate();
            for certificate in [notarized, round.nullification.as_ref()]
                .into_iter()
                .flatten()
            {
                if !certificates.contains(certificate) {
                    certificates.push(certificate.clone());
                }
            }
            if certificates.len() >= MAX_CERTIFICATE_REPLIES {
                break;
            }
        }
        for certificate in certificates {
            step.send_certificate(Target::One(from), certificate);
        }
    }

    pub(crate) fn want(&mut self, step: &mut Step, want: Want, hint: Option<ValidatorIndex>) {
        self.request(step, want, hint, 0);
    }

    /// Requests what the current view waits for, from f + 1 peers.
    pub(crate) fn want_now(&mut self, step: &mut Step, want: Want, hint: Option<ValidatorIndex>) {
        self.request(step, want, hint, self.committee.faults() + 1);
    }

    fn request(
        &mut self,
        step: &mut Step,
        want: Want,
        hint: Option<ValidatorIndex>,
        hurried: usize,
    ) {
        let lacks = lacks(
            &self.penalties,
            &self.pacemaker,
            &self.peers,
            self.chain.tip().height,
        );
        // Who has voted for the current view's proposal has what it depends on.
        let voters: Option<BTreeSet<ValidatorIndex>> = match self.views.get(self.view()) {
            Some(round) if hurried > 0 => {
                let own = self.own_place();
                let voters = round.voters().filter_map(|place| u32::try_from(place).ok());
                let voters = voters.map(ValidatorIndex);
                Some(
                    voters
                        .filter(|voter| own != Some(*voter) && !lacks(&want, *voter))
                        .collect(),
                )
            }
            _ => None,
        };
        let voters = voters.filter(|voters| voters.len() > self.committee.faults());
        let sent = self.fetcher.want(step.now, want, hint, hurried, |peer| {
            lacks(&want, peer)
                || voters
                    .as_ref()
                    .is_some_and(|voters| !voters.contains(&peer))
        });
        step.out.send.extend(sent);
    }
}

/// Whether something should not be requested from a peer: it is blocked or has no link to here; or,
/// for a range of final blocks, it does not claim to have any above the tip, or says that it keeps
/// later ones only.
pub(crate) fn lacks<'a>(
    penalties: &'a Penalties,
    pacemaker: &'a Pacemaker,
    peers: &'a Peers,
    tip: Height,
) -> impl Fn(&Want, ValidatorIndex) -> bool + 'a {
    move |want, peer| {
        penalties.is_blocked(peer)
            || pacemaker.is_apart(peer)
            || matches!(want, Want::Range(from) if peers.lacks_blocks(peer, *from, tip))
    }
}
