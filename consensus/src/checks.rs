//! The cryptographic checks under way, and what each is for.
//!
//! A certificate whose votes are being checked here waits for that check, and a quorum of votes
//! whose certificate is being verified waits for that. Proposals carry the certificate of a view
//! that most validators are just closing themselves: without this rule a view took 1.8 pairing
//! checks per validator instead of 1.5 (ten validators on two cores). If the votes do not hold, the
//! certificate is verified before the search for the invalid votes ends.

use crate::{
    inquiry::Answer,
    io::{Job, JobId, Step, Work},
};
use quorate_crypto::bls::{HashedMessage, PartialSignature};
use quorate_types::{Certificate, Evidence, Nonce, Subject, ValidatorIndex, View, Vote, VoteKind};
use std::{collections::BTreeMap, ops::RangeInclusive, sync::Arc};

/// The purpose of a check.
pub(crate) enum Pending {
    /// Votes that may make a certificate.
    Certify {
        subject: Subject,
        parts: Vec<(u32, PartialSignature)>,
        /// Whether they are known not to verify together; the invalid ones are being searched.
        failed: bool,
    },
    /// Certificates from a peer.
    Certificates {
        from: ValidatorIndex,
        certificates: Vec<Certificate>,
    },
    /// A vote of a validator on probation.
    Probation { vote: Vote },
    /// Two votes that would be evidence, and the peer that sent them as such, if this validator did
    /// not notice them itself.
    Conflict {
        evidence: Evidence,
        reporter: Option<ValidatorIndex>,
    },
    /// A peer's answer about this key's votes.
    Standing {
        from: ValidatorIndex,
        nonce: Nonce,
        answer: Answer,
        vote: Option<Subject>,
    },
    /// Something of an epoch that is over.
    Stale,
}

/// Each check has an id that is never used again; its verdict is taken once.
#[derive(Default)]
pub(crate) struct Checks {
    pending: BTreeMap<JobId, Pending>,
    last: u64,
    /// Certificates of subjects whose votes are being checked, and the peers that sent them: at most
    /// one for each check.
    spare: BTreeMap<JobId, (ValidatorIndex, Certificate)>,
    /// Subjects mapped to the curve, for the views that are open.
    hashed: BTreeMap<Subject, Arc<HashedMessage>>,
}

impl Checks {
    pub(crate) fn start(&mut self, step: &mut Step, work: Work, pending: Pending) -> JobId {
        self.last += 1;
        let id = JobId(self.last);
        self.pending.insert(id, pending);
        step.out.jobs.push(Job { id, work });
        id
    }

    /// Takes the purpose of a check that has a verdict. `None` if no such check is under way.
    pub(crate) fn finish(&mut self, job: JobId) -> Option<Pending> {
        self.pending.remove(&job)
    }

    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    /// The check of the votes for this subject, if it is under way and has not failed yet.
    pub(crate) fn certifying(&self, subject: &Subject) -> Option<JobId> {
        let mut pending = self.pending.iter();
        pending.find_map(|(job, pending)| match pending {
            Pending::Certify {
                subject: checked,
                failed: false,
                ..
            } if checked == subject => Some(*job),
            _ => None,
        })
    }

    /// Whether votes to finalize above a view are being checked, and are not known to be bad.
    pub(crate) fn is_finalizing(&self, above: View) -> bool {
        self.pending.values().any(|pending| {
            matches!(pending, Pending::Certify { subject, failed: false, .. } if subject.kind == VoteKind::Finalize && subject.view > above)
        })
    }

    /// Whether a notarization of one of these views is being made or verified.
    pub(crate) fn is_notarizing(&self, views: &RangeInclusive<View>) -> bool {
        let is_one =
            |subject: &Subject| subject.kind == VoteKind::Notarize && views.contains(&subject.view);
        self.pending.values().any(|pending| match pending {
            Pending::Certify {
                subject, failed, ..
            } => !failed && is_one(subject),
            Pending::Certificates { certificates, .. } => {
                certificates.iter().any(|held| is_one(&held.subject))
            }
            _ => false,
        })
    }

    /// Whether a certificate of this subject is being verified.
    pub(crate) fn is_verifying(&self, subject: &Subject) -> bool {
        self.pending.values().any(|pending| match pending {
            Pending::Certificates { certificates, .. } => {
                certificates.iter().any(|held| held.subject == *subject)
            }
            _ => false,
        })
    }

    /// How many checks of certificates from this peer are under way.
    pub(crate) fn certificates_of(&self, peer: ValidatorIndex) -> usize {
        let of_peer = |pending: &&Pending| matches!(pending, Pending::Certificates { from, .. } if *from == peer);
        self.pending.values().filter(of_peer).count()
    }

    /// How many votes of this signer on probation are being verified.
    pub(crate) fn probation_votes_of(&self, signer: ValidatorIndex) -> usize {
        let of_signer = |pending: &&Pending| matches!(pending, Pending::Probation { vote } if vote.signer == signer);
        self.pending.values().filter(of_signer).count()
    }

    /// Keeps a certificate of the subject that a check is about, in case the votes do not hold.
    pub(crate) fn set_aside(&mut self, job: JobId, from: ValidatorIndex, certificate: Certificate) {
        self.spare.entry(job).or_insert((from, certificate));
    }

    /// Drops the certificate that was set aside: the votes under check hold.
    pub(crate) fn drop_spare(&mut self, job: JobId) {
        self.spare.remove(&job);
    }

    /// Notes that the votes under check do not hold, and takes the certificate that was set aside.
    pub(crate) fn fail(&mut self, job: JobId) -> Option<(ValidatorIndex, Certificate)> {
        if let Some(Pending::Certify { failed, .. }) = self.pending.get_mut(&job) {
            *failed = true;
        }
        self.spare.remove(&job)
    }

    pub(crate) fn hashed(&self, subject: &Subject) -> Option<Arc<HashedMessage>> {
        self.hashed.get(subject).cloned()
    }

    pub(crate) fn remember(&mut self, subject: Subject, message: Arc<HashedMessage>) {
        self.hashed.insert(subject, message);
    }

    /// Forgets the curve points of views below.
    pub(crate) fn forget_below(&mut self, floor: View) {
        self.hashed.retain(|subject, _| subject.view >= floor);
    }

    /// Leaves an epoch. Two conflicting votes are evidence in any epoch, and answers about this key
    /// count in any; no other check is of use.
    pub(crate) fn leave_epoch(&mut self) {
        self.hashed.clear();
        self.spare.clear();
        for pending in self.pending.values_mut() {
            let of_any_epoch =
                matches!(pending, Pending::Conflict { .. } | Pending::Standing { .. });
            if !of_any_epoch {
                *pending = Pending::Stale;
            }
        }
    }
}
