//! Certificates that the replica has received or made lately, for clients that follow the chain as
//! it grows.
//!
//! The newest [`MAX_HELD`] are kept, about 200 bytes each, and each has a number. A client that
//! falls behind further misses some: blocks are served by `/v1/chain`, which forgets nothing.

use parking_lot::RwLock;
use quorate_api::{CertificateJson, CertificatesJson, to_hex};
use quorate_types::{Certificate, Epoch, View, VoteKind};
use std::collections::VecDeque;
use tokio::sync::watch;

/// Most certificates that are kept.
const MAX_HELD: usize = 4_096;

/// The newest certificates in order of arrival.
pub struct RecentCertificates {
    session: u64,
    held: RwLock<Held>,
    /// The newest one's number.
    newest: watch::Sender<u64>,
}

#[derive(Default)]
struct Held {
    certificates: VecDeque<(u64, Certificate, Option<&'static str>)>,
    /// The newest view in which this validator has voted for a block.
    notarized: Option<(Epoch, View)>,
}

impl RecentCertificates {
    /// Numbers begin again with each process; `session` tells processes apart.
    pub(super) fn new(session: u64) -> Self {
        Self {
            session,
            held: RwLock::default(),
            newest: watch::Sender::new(0),
        }
    }

    /// Notes that this validator votes for a block of this view.
    pub fn notarized(&self, epoch: Epoch, view: View) {
        let mut held = self.held.write();
        held.notarized = held.notarized.max(Some((epoch, view)));
    }

    /// Notes a verified certificate.
    pub fn certificate(&self, certificate: &Certificate) {
        let mut held = self.held.write();
        let subject = &certificate.subject;
        let reason = (subject.kind == VoteKind::Nullify).then(|| {
            // Later views may have begun when an old nullification arrives; then the reason is
            // unknown.
            match held.notarized {
                Some(last) if last == (subject.epoch, subject.view) => "no_quorum_in_time",
                Some(last) if last > (subject.epoch, subject.view) => "unknown",
                _ => "no_valid_proposal_in_time",
            }
        });
        let number = self.newest.borrow().saturating_add(1);
        held.certificates
            .push_back((number, certificate.clone(), reason));
        if held.certificates.len() > MAX_HELD {
            held.certificates.pop_front();
        }
        drop(held);
        self.newest.send_replace(number);
    }

    /// Waits for the next certificate.
    pub fn newest(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// At most `limit` certificates after a number.
    pub fn after(&self, number: u64, limit: usize) -> CertificatesJson {
        let held = self.held.read();
        let later = held.certificates.partition_point(|(n, ..)| *n <= number);
        let certificates: Vec<CertificateJson> = held
            .certificates
            .range(later..)
            .take(limit)
            .map(|(number, certificate, reason)| CertificateJson {
                number: *number,
                certificate: to_hex(certificate),
                reason: reason.map(str::to_owned),
            })
            .collect();
        CertificatesJson {
            session: self.session,
            newest: *self.newest.borrow(),
            certificates,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_crypto::{Digest, bls::Proof};
    use quorate_types::Subject;

    fn nullification(view: u64) -> Certificate {
        Certificate {
            subject: Subject::nullify(Epoch(0), View(view)),
            proof: Proof::Threshold([0; 48]),
        }
    }

    #[test]
    fn the_newest_are_kept_and_come_in_order() {
        let heard = RecentCertificates::new(9);
        for view in 1..=MAX_HELD as u64 + 5 {
            heard.certificate(&nullification(view));
        }
        let first = heard.after(0, 3);
        let numbers: Vec<u64> = first.certificates.iter().map(|c| c.number).collect();
        assert_eq!(numbers, [6, 7, 8]);
        assert_eq!(first.newest, MAX_HELD as u64 + 5);
        assert!(heard.after(first.newest, 3).certificates.is_empty());
    }

    #[test]
    fn a_nullification_tells_whether_there_was_something_to_vote_for() {
        let heard = RecentCertificates::new(9);
        heard.certificate(&nullification(1));
        heard.notarized(Epoch(0), View(2));
        heard.certificate(&nullification(2));
        heard.certificate(&nullification(1));
        heard.certificate(&Certificate {
            subject: Subject {
                epoch: Epoch(0),
                view: View(3),
                kind: VoteKind::Finalize,
                payload: Digest([1; 32]),
            },
            proof: Proof::Threshold([0; 48]),
        });
        let reasons: Vec<_> = heard.after(0, 9).certificates;
        let reasons: Vec<_> = reasons.iter().map(|c| c.reason.as_deref()).collect();
        let expected = [
            Some("no_valid_proposal_in_time"),
            Some("no_quorum_in_time"),
            Some("unknown"),
            None,
        ];
        assert_eq!(reasons, expected);
    }
}
