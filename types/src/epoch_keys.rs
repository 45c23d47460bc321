//! The keys of each epoch's validators.

use crate::{Certificate, ChainId, Committees, Epoch, ValidatorIndex, ValidatorSet, Vote};
use quorate_crypto::bls::{HashedMessage, Scheme, SchemeKind};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

/// Schemes that are kept: of the newest sets that were asked for.
const MAX_SCHEMES: usize = 16;

/// By the first epochs of the sets. A set can still be replaced until its epoch begins.
type Schemes = BTreeMap<Epoch, (Arc<ValidatorSet>, Scheme)>;

/// Verifies votes and certificates of all epochs whose validators are known. Cheap to clone.
#[derive(Clone)]
pub struct EpochKeys {
    chain: ChainId,
    committees: Committees,
    fixed: Scheme,
    schemes: Arc<Mutex<Schemes>>,
}

impl EpochKeys {
    /// `fixed` is the scheme of a chain whose validators never change.
    pub fn new(chain: ChainId, committees: Committees, fixed: Scheme) -> Self {
        Self {
            chain,
            committees,
            fixed,
            schemes: Arc::default(),
        }
    }

    pub fn chain(&self) -> &ChainId {
        &self.chain
    }

    pub fn committees(&self) -> &Committees {
        &self.committees
    }

    /// The scheme of an epoch; `None` if its validators are not known here.
    pub fn scheme(&self, epoch: Epoch) -> Option<Scheme> {
        if !self.committees.can_change() {
            return Some(self.fixed.clone());
        }
        let (first, set) = self.committees.acting(epoch)?;
        let held = {
            let schemes = self.schemes.lock().unwrap_or_else(PoisonError::into_inner);
            schemes.get(&first).cloned()
        };
        if let Some((_, scheme)) = held.filter(|(of, _)| Arc::ptr_eq(of, &set)) {
            return Some(scheme);
        }
        let scheme = set.scheme().ok()?;
        let mut schemes = self.schemes.lock().unwrap_or_else(PoisonError::into_inner);
        schemes.insert(first, (set, scheme.clone()));
        while schemes.len() > MAX_SCHEMES {
            schemes.pop_first();
        }
        Some(scheme)
    }

    /// The scheme that certificates of an epoch are verified with. Where validators share a key, it is that key
    /// whoever they are.
    fn certifying(&self, epoch: Epoch) -> Option<Scheme> {
        match self.fixed.kind() {
            SchemeKind::BlsThreshold => Some(self.fixed.clone()),
            SchemeKind::BlsAggregate => self.scheme(epoch),
        }
    }

    /// Whether a quorum of its epoch's validators stands behind a certificate.
    pub fn verify(&self, certificate: &Certificate) -> bool {
        let message = HashedMessage::new(&certificate.subject.signed_bytes(&self.chain));
        self.certifying(certificate.subject.epoch)
            .is_some_and(|scheme| scheme.verify(&message, &certificate.proof))
    }

    /// Whether a quorum stands behind each of these certificates, with one pairing check for all of the same
    /// validators; `true` for none. `seed` must not be predictable for whoever made them.
    pub fn verify_many(&self, certificates: &[&Certificate], seed: [u8; 32]) -> bool {
        let mut by_set: BTreeMap<Option<Epoch>, Vec<&Certificate>> = BTreeMap::new();
        for certificate in certificates {
            // Of one key all at once.
            let acting = match self.fixed.kind() {
                SchemeKind::BlsThreshold => None,
                SchemeKind::BlsAggregate => self.committees.acting(certificate.subject.epoch),
            };
            let first = acting.map(|(first, _)| first);
            by_set.entry(first).or_default().push(certificate);
        }
        by_set.values().all(|certificates| {
            let Some(first) = certificates.first() else {
                return true;
            };
            let Some(scheme) = self.certifying(first.subject.epoch) else {
                return false;
            };
            let hashed = |certificate: &&Certificate| {
                HashedMessage::new(&certificate.subject.signed_bytes(&self.chain))
            };
            let messages: Vec<HashedMessage> = certificates.iter().map(hashed).collect();
            let proofs = certificates.iter().map(|certificate| &certificate.proof);
            let items: Vec<_> = messages.iter().zip(proofs).collect();
            scheme.verify_many(&items, seed)
        })
    }

    /// Whether the vote is its signer's.
    pub fn verify_vote(&self, vote: &Vote) -> bool {
        let message = HashedMessage::new(&vote.subject.signed_bytes(&self.chain));
        self.scheme(vote.subject.epoch)
            .is_some_and(|scheme| scheme.verify_partial(&message, vote.signer.0, &vote.signature))
    }

    /// The signers of a certificate, if the scheme names them.
    pub fn signers(&self, certificate: &Certificate) -> Option<Vec<ValidatorIndex>> {
        let scheme = self.scheme(certificate.subject.epoch)?;
        let signers = scheme.signers(&certificate.proof)?;
        Some(signers.into_iter().map(ValidatorIndex).collect())
    }
}
