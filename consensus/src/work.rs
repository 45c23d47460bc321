//! Doing the cryptographic work that the machine asks for. Pure, but slow (about a millisecond):
//! it belongs on a thread of its own.

use crate::io::{Batch, Job, JobId, Verdict, Work};
use quorate_crypto::bls::{
    CertifyError, CheckCount, HashedMessage, PartialSignature, Proof, Scheme,
};
use quorate_types::{Certificate, ChainId, Subject, Vote};
use std::sync::Arc;

/// Does [`Job`]s for one chain and committee.
#[derive(Clone)]
pub struct Worker {
    chain: ChainId,
    scheme: Scheme,
    counts: WorkCounts,
}

/// What the work has cost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkCounts {
    /// Certificates that were made or verified.
    pub certificates: u64,
    /// Pairing equations evaluated.
    pub pairing_checks: u64,
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
    /// A worker for the chain, with the committee's scheme.
    pub fn new(chain: ChainId, scheme: Scheme) -> Self {
        Self {
            chain,
            scheme,
            counts: WorkCounts::default(),
        }
    }

    /// What the work has cost so far.
    pub fn counts(&self) -> WorkCounts {
        self.counts
    }

    /// Does jobs that wait together, and answers each. Combinations for several subjects share
    /// one pairing check: a finalize quorum of one view and a notarize quorum of the next usually
    /// come with the same frames.
    ///
    /// `seed` must not be predictable for any validator.
    pub fn run(&mut self, jobs: Vec<Job>, seed: [u8; 32]) -> Vec<(JobId, Verdict)> {
        let mut verdicts = Vec::with_capacity(jobs.len());
        let mut batches = Vec::new();
        for Job { id, work } in jobs {
            match work {
                Work::Certify(batch) => batches.push((id, batch)),
                Work::VerifyCertificates(certificates) => {
                    let valid = self.verify_certificates(&certificates, seed);
                    verdicts.push((id, Verdict::Verified(valid)));
                }
                Work::VerifyVotes(votes) => {
                    let valid = votes.iter().map(|vote| self.verify_vote(vote)).collect();
                    verdicts.push((id, Verdict::Verified(valid)));
                }
            }
        }
        verdicts.extend(self.certify(batches, seed));
        verdicts
    }

    fn certify(&mut self, batches: Vec<(JobId, Batch)>, seed: [u8; 32]) -> Vec<(JobId, Verdict)> {
        let messages: Vec<Arc<HashedMessage>> = batches
            .iter()
            .map(|(_, batch)| match &batch.message {
                Some(message) => message.clone(),
                None => Arc::new(self.hash(&batch.subject)),
            })
            .collect();
        let items: Vec<(&HashedMessage, &[(u32, PartialSignature)])> = messages
            .iter()
            .zip(&batches)
            .map(|(message, (_, batch))| (message.as_ref(), batch.parts.as_slice()))
            .collect();
        let mut checks = CheckCount::default();
        let results = self.scheme.certify_many(&items, seed, &mut checks);
        self.counts.add(checks);
        batches
            .iter()
            .zip(results)
            .map(|((id, _), result)| {
                let result = match result {
                    Ok(proof) => {
                        self.counts.certificates += 1;
                        Ok(proof)
                    }
                    Err(CertifyError::Invalid { bad, .. }) => Err(bad),
                    // The machine hands over exactly a quorum of distinct members. Were it not so,
                    // saying that nobody is to blame stops it.
                    Err(_) => Err(Vec::new()),
                };
                (*id, Verdict::Certified(result))
            })
            .collect()
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
