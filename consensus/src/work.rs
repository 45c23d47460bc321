//! Doing the engine's cryptographic checks. Pure, but slow (about a millisecond): it belongs on a
//! thread of its own.

use crate::io::{Batch, Job, JobId, Verdict, Work};
use quorate_crypto::bls::{Ballot, CertifyError, CheckCount, HashedMessage, Proof, Scheme};
use quorate_types::{Certificate, ChainId, Subject, Vote};
use std::sync::Arc;

/// Work that takes longer than one check; see [`Worker::search`].
pub struct Search(JobId, Sought);

enum Sought {
    /// The invalid votes of a combination.
    Spoilers(Batch, Arc<HashedMessage>),
    /// Which of these votes verify.
    Votes(Vec<Vote>),
}

fn ballot<'a>(batch: &'a Batch, message: &'a HashedMessage) -> Ballot<'a> {
    Ballot {
        message,
        parts: &batch.parts,
        verified: batch.verified,
    }
}

/// Does [`Job`]s for one chain and committee.
#[derive(Clone)]
pub struct Worker {
    chain: ChainId,
    scheme: Scheme,
    counts: WorkCounts,
}

/// The cost of the checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkCounts {
    /// Certificates that were made or verified.
    pub certificates: u64,
    /// Pairing equations evaluated.
    pub pairing_checks: u64,
    /// Combinations of votes that did not verify.
    pub spoiled: u64,
    /// Batches with an invalid signature that were split in two.
    pub bisections: u64,
}

impl WorkCounts {
    fn add(&mut self, checks: CheckCount) {
        self.pairing_checks += u64::from(checks.pairing_checks);
        self.bisections += u64::from(checks.bisections);
    }
}

impl Worker {
    pub fn new(chain: ChainId, scheme: Scheme) -> Self {
        Self {
            chain,
            scheme,
            counts: WorkCounts::default(),
        }
    }

    /// The cost since the last call.
    pub fn take_counts(&mut self) -> WorkCounts {
        std::mem::take(&mut self.counts)
    }

    /// Does jobs that wait together, and answers each. The last verdict for a job counts.
    ///
    /// `seed` must not be predictable for any validator.
    pub fn run(&mut self, jobs: Vec<Job>, seed: [u8; 32]) -> Vec<(JobId, Verdict)> {
        let (mut verdicts, searches) = self.check(jobs, seed);
        let searches = searches.into_iter();
        verdicts.extend(searches.map(|search| self.search(search, seed)));
        verdicts
    }

    /// Does the fast part of jobs that wait together, about a millisecond for each: the one check
    /// of each combination, and certificates. Combinations for several subjects share one pairing
    /// check: a finalize quorum of one view and a notarize quorum of the next usually come with the
    /// same frames. Slower work is returned for [`Self::search`], on another thread if there is
    /// one, so that no view's check waits for it.
    ///
    /// `seed` must not be predictable for any validator.
    pub fn check(
        &mut self,
        jobs: Vec<Job>,
        seed: [u8; 32],
    ) -> (Vec<(JobId, Verdict)>, Vec<Search>) {
        let mut verdicts = Vec::with_capacity(jobs.len());
        let mut searches = Vec::new();
        let mut batches = Vec::new();
        for Job { id, work } in jobs {
            match work {
                Work::Certify(batch) => {
                    let message = match &batch.message {
                        Some(message) => message.clone(),
                        None => Arc::new(self.hash(&batch.subject)),
                    };
                    batches.push((id, batch, message));
                }
                Work::VerifyCertificates(certificates) => {
                    let valid = self.verify_certificates(&certificates, seed);
                    verdicts.push((id, Verdict::Verified(valid)));
                }
                Work::VerifyVotes(votes) => searches.push(Search(id, Sought::Votes(votes))),
            }
        }
        let mut checks = CheckCount::default();
        let ballots: Vec<Ballot<'_>> = batches.iter().map(|(_, b, m)| ballot(b, m)).collect();
        let results = self.scheme.check_many(&ballots, seed, &mut checks);
        self.counts.add(checks);
        for ((id, batch, message), result) in batches.into_iter().zip(results) {
            match result {
                Ok(Some(proof)) => {
                    self.counts.certificates += 1;
                    verdicts.push((id, Verdict::Certified(Ok(proof))));
                }
                Ok(None) => {
                    self.counts.spoiled += 1;
                    verdicts.push((id, Verdict::Spoiled));
                    searches.push(Search(id, Sought::Spoilers(batch, message)));
                }
                // The engine hands over exactly a quorum of distinct members. If it did not, naming
                // no invalid vote would stop it.
                Err(_) => verdicts.push((id, Verdict::Certified(Err(Vec::new())))),
            }
        }
        (verdicts, searches)
    }

    /// Finds the invalid votes of a combination, or verifies votes one by one.
    ///
    /// `seed` must not be predictable for any validator.
    pub fn search(&mut self, search: Search, seed: [u8; 32]) -> (JobId, Verdict) {
        let Search(id, sought) = search;
        let verdict = match sought {
            Sought::Votes(votes) => {
                Verdict::Verified(votes.iter().map(|vote| self.verify_vote(vote)).collect())
            }
            Sought::Spoilers(batch, message) => {
                let ballot = ballot(&batch, &message);
                let spent = CheckCount::default();
                let CertifyError::Invalid { bad, checks } = self.scheme.blame(&ballot, seed, spent)
                else {
                    return (id, Verdict::Certified(Err(Vec::new())));
                };
                self.counts.add(checks);
                Verdict::Certified(Err(bad))
            }
        };
        (id, verdict)
    }

    fn verify_certificates(&mut self, certificates: &[Certificate], seed: [u8; 32]) -> Vec<bool> {
        let messages: Vec<HashedMessage> = certificates
            .iter()
            .map(|certificate| self.hash(&certificate.subject))
            .collect();
        let items: Vec<(&HashedMessage, &Proof)> = messages
            .iter()
            .zip(certificates)
            .map(|(message, certificate)| (message, &certificate.proof))
            .collect();
        self.counts.pairing_checks += 1;
        self.counts.certificates += items.len() as u64;
        if self.scheme.verify_many(&items, seed) {
            return vec![true; items.len()];
        }
        self.counts.pairing_checks += items.len() as u64;
        items
            .into_iter()
            .map(|(message, proof)| self.scheme.verify(message, proof))
            .collect()
    }

    fn verify_vote(&mut self, vote: &Vote) -> bool {
        self.counts.pairing_checks += 1;
        let message = self.hash(&vote.subject);
        self.scheme
            .verify_partial(&message, vote.signer.0, &vote.signature)
    }

    fn hash(&self, subject: &Subject) -> HashedMessage {
        HashedMessage::new(&subject.signed_bytes(&self.chain))
    }
}
