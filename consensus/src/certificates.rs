//! Certificates: taking them from peers, acting on verified ones, and passing them on.

use crate::{
    blame::Blame,
    config::MAX_CERTIFICATE_CHECKS_PER_PEER,
    engine::{Engine, Pending},
    fetch::Want,
    io::{Exhibit, JobId, Moment, Offence, Output, Target, Work},
    pacemaker::Pacemaker,
};
use quorate_crypto::mistakes::{Mistake, made};
use quorate_types::{
    Certificate, Epoch, Height, Message, Record, Subject, ValidatorIndex, View, VoteKind,
    limits::MAX_CERTIFICATE_REPLIES,
};
use std::collections::BTreeMap;

impl Engine {
    /// Has certificates from a peer verified, those that would tell something new.
    pub(crate) fn check_certificates(
        &mut self,
        from: ValidatorIndex,
        certificates: Vec<Certificate>,
        out: &mut Output,
    ) {
        let mut fresh: Vec<Certificate> = Vec::new();
        for certificate in certificates {
            let known = fresh
                .iter()
                .any(|other| other.subject == certificate.subject);
            if known || !self.would_help(&certificate) {
                continue;
            }
            // The votes for it are being checked at this moment: that tells as much, without
            // another check. If they do not hold, the certificate has its turn.
            // R7
            match self.checking(&certificate.subject) {
                Some(job) => drop(self.spare.entry(job).or_insert((from, certificate))),
                None => fresh.push(certificate),
            }
        }
        let under_way = self
            .jobs
            .values()
            .filter(
                |pending| matches!(pending, Pending::Certificates { from: f, .. } if *f == from),
            )
            .count();
        if fresh.is_empty() || under_way >= MAX_CERTIFICATE_CHECKS_PER_PEER {
            return;
        }
        if made(Mistake::CertificatesUnverified) {
            return fresh
                .into_iter()
                .for_each(|fresh| self.accept(Moment(0), fresh, out));
        }
        self.start(
            Work::VerifyCertificates(fresh.clone()),
            Pending::Certificates {
                from,
                certificates: fresh,
            },
            out,
        );
    }

    /// The check of the votes for this subject, if it is under way and has not failed yet.
    fn checking(&self, subject: &Subject) -> Option<JobId> {
        let jobs = self.jobs.iter();
        let mut same = jobs.filter(|(_, pending)| {
            matches!(pending, Pending::Certify { subject: s, failed: false, .. } if s == subject)
        });
        same.next().map(|(job, _)| *job)
    }

    /// Whether a certificate of this subject is being verified.
    pub(crate) fn is_verifying(&self, subject: &Subject) -> bool {
        let mut jobs = self.jobs.values();
        jobs.any(|pending| match pending {
            Pending::Certificates { certificates, .. } => {
                certificates.iter().any(|held| held.subject == *subject)
            }
            _ => false,
        })
    }

    /// Upon word that the votes under check do not hold: the search for who spoiled it takes longer,
    /// and a certificate need not wait for it.
    pub(crate) fn on_spoiled(&mut self, job: JobId, out: &mut Output) {
        if let Some(Pending::Certify { failed, .. }) = self.jobs.get_mut(&job) {
            *failed = true;
        }
        if let Some((from, certificate)) = self.spare.remove(&job) {
            self.check_certificates(from, vec![certificate], out);
        }
    }

    /// Whether a certificate, if it verifies, tells something new.
    fn would_help(&self, certificate: &Certificate) -> bool {
        let subject = &certificate.subject;
        let stale = subject.epoch != self.config.epoch();
        // R7
        if (stale && !made(Mistake::StaleCertificateAccepted)) || subject.view == View(u64::MAX) {
            return false;
        }
        subject.view > self.tip.view
            && self
                .rounds
                .get(&subject.view)
                .is_none_or(|round| round.certificate(subject.kind).is_none())
    }

    pub(crate) fn on_certificates_checked(
        &mut self,
        now: Moment,
        from: ValidatorIndex,
        certificates: Vec<Certificate>,
        valid: &[bool],
        out: &mut Output,
    ) {
        for (certificate, valid) in certificates.into_iter().zip(valid) {
            if *valid {
                self.unstage(now, &certificate, out);
                self.accept(now, certificate, out);
            } else {
                // Honest validators verify before they pass on, so the sender is to blame.
                if self.closes_staged(&certificate) {
                    self.unstage_all(now);
                }
                let subject = certificate.subject;
                // R16
                let exhibit = Exhibit::Certificate(Box::new(certificate));
                self.offend(from, Offence::InvalidCertificate, exhibit, out);
                // A quorum for it may have waited; but nothing is kept for views that it makes up.
                if subject.epoch == self.epoch() && self.rounds.contains_key(&subject.view) {
                    self.try_certify(subject, out);
                }
            }
        }
    }

    /// Upon a verified certificate, made here or received.
    ///
    /// - notarization: fetch the block if it is missing; cast finalize if nothing forbids it;
    ///   enter the next view
    /// - nullification: enter the next view
    /// - finalization: the block and all its ancestors are final; enter the next view
    pub(crate) fn accept(&mut self, now: Moment, certificate: Certificate, out: &mut Output) {
        let subject = certificate.subject;
        if subject.view <= self.tip.view {
            return;
        }
        // R7
        if let Some(reason) = self.contradiction(&certificate) {
            out.fatal = Some(reason);
            return;
        }
        let round = self.rounds.entry(subject.view).or_default();
        if !round.keep(&certificate) {
            return;
        }
        self.find_own_signature(now, &certificate, out);
        // R9: it is journaled, and sent to nobody.
        if !made(Mistake::FinalizeWithoutNotarization) {
            out.persist.push(Record::Certificate(certificate.clone()));
        }
        match subject.kind {
            VoteKind::Notarize => {
                if !self.blocks.contains_key(&subject.payload) {
                    let leader = self.config.committee.leader(subject.view);
                    self.want(now, Want::Block(subject.payload), Some(leader), out);
                }
                self.try_finalize(subject.view, out);
            }
            VoteKind::Nullify => self.forget_nullified(subject.view),
            VoteKind::Finalize => self.on_finalization(now, certificate, out),
        }
        // R8
        if subject.view >= self.view {
            let brought = subject.kind != VoteKind::Nullify;
            self.enter(now, subject.view.next(), brought, out);
        } else {
            self.progress(now, out);
        }
    }

    /// Two verified certificates that cannot both be while at most f validators are faulty. The
    /// machine stops: whatever it did next could make matters worse.
    fn contradiction(&self, certificate: &Certificate) -> Option<String> {
        let subject = certificate.subject;
        let round = self.rounds.get(&subject.view)?;
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
            self.config.committee.faults()
        ))
    }

    /// Sends a peer that is stuck in an earlier view what ended it.
    pub(crate) fn help(&mut self, now: Moment, peer: ValidatorIndex, view: View, out: &mut Output) {
        // R22
        if !self.may_help(now, peer, view) {
            return;
        }
        let epoch = self.epoch();
        let finalization = self
            .target
            .as_ref()
            .or(self.tip.certificate.as_ref())
            .filter(|held| held.subject.epoch == epoch && held.subject.view >= view);
        let exit = self.rounds.get(&view).and_then(|round| round.exit());
        let entry = View(self.view.0 - 1);
        let newest = self.rounds.get(&entry).and_then(|round| round.exit());
        let mut certificates: Vec<Certificate> = Vec::new();
        for certificate in [finalization, exit, newest].into_iter().flatten() {
            if !certificates.contains(certificate) {
                certificates.push(certificate.clone());
            }
        }
        for certificate in certificates {
            self.send(Target::One(peer), Message::Certificate(certificate), out);
        }
    }

    /// Whether a peer may be sent what ended this view, and notes that it is. At most once per
    /// view or half a resend interval, so that nobody can make this validator shout.
    pub(crate) fn may_help(&mut self, now: Moment, peer: ValidatorIndex, view: View) -> bool {
        let interval = self.pacemaker.resend_interval() / 2;
        if let Some((helped, at)) = self.helped.get(&peer)
            && *helped == view
            && now.since(*at) < interval
        {
            return false;
        }
        self.helped.insert(peer, (view, now));
        true
    }

    /// Upon a request for what closed some views.
    pub(crate) fn on_certificate_request(
        &mut self,
        now: Moment,
        from: ValidatorIndex,
        epoch: Epoch,
        first: View,
        last: View,
        out: &mut Output,
    ) {
        if epoch.next() == self.epoch() {
            return self.help_across(now, from, out);
        }
        if epoch != self.config.epoch() || first > last {
            self.counters.dropped_invalid += 1;
            return;
        }
        let mut certificates: Vec<Certificate> = Vec::new();
        if first <= self.tip.view {
            certificates.extend(self.tip.certificate.clone());
        }
        for (_, round) in self.rounds.range(first..=last) {
            let notarized = round.finalization.as_ref().or(round.notarization.as_ref());
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
            self.send(Target::One(from), Message::Certificate(certificate), out);
        }
    }

    pub(crate) fn want(
        &mut self,
        now: Moment,
        want: Want,
        hint: Option<ValidatorIndex>,
        out: &mut Output,
    ) {
        let lacks = lacks(
            &self.blame,
            &self.pacemaker,
            (&self.claims, &self.oldest),
            self.tip.height,
        );
        let sent = self
            .fetcher
            .want(now, want, hint, |peer| lacks(&want, peer));
        out.send.extend(sent);
    }
}

/// Of whom a thing should not be asked: who is not listened to or has no link to here; and for finalised
/// blocks, who does not say that it has any above ours, or says that it keeps later ones only.
pub(crate) fn lacks<'a>(
    blame: &'a Blame,
    pacemaker: &'a Pacemaker,
    (claims, oldest): (
        &'a BTreeMap<ValidatorIndex, Height>,
        &'a BTreeMap<ValidatorIndex, Height>,
    ),
    tip: Height,
) -> impl Fn(&Want, ValidatorIndex) -> bool + 'a {
    move |want, peer| {
        let behind = || claims.get(&peer).is_none_or(|claimed| *claimed <= tip);
        blame.is_blocked(peer)
            || pacemaker.is_apart(peer)
            || matches!(want, Want::Range(from)
                if behind() || oldest.get(&peer).is_some_and(|oldest| oldest > from))
    }
}
