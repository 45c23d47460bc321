//! Verified evidence, and which pairs of votes are being verified.

use crate::config::MAX_EVIDENCE_PER_VALIDATOR;
use quorate_crypto::{Digest, sha256};
use quorate_types::{Epoch, Evidence, ValidatorIndex, View};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub(crate) struct Convictions {
    /// Verified, canonical, at most [`MAX_EVIDENCE_PER_VALIDATOR`] for each signer.
    held: BTreeMap<ValidatorIndex, Vec<Evidence>>,
    /// Signers whose conflicting votes are being verified, one pair at a time.
    accused: BTreeSet<ValidatorIndex>,
    /// The epoch and view up to which a validator's equivocations are pardoned.
    pardons: BTreeMap<ValidatorIndex, (Epoch, View)>,
}

impl Convictions {
    pub(crate) fn new(pardons: &[(ValidatorIndex, Epoch, View)]) -> Self {
        let pardons = pardons
            .iter()
            .map(|(validator, epoch, view)| (*validator, (*epoch, *view)));
        Self {
            pardons: pardons.collect(),
            ..Self::default()
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.held.values().map(Vec::len).sum()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Evidence> {
        self.held.values().flatten()
    }

    /// One pair against each convicted validator.
    pub(crate) fn one_each(&self) -> impl Iterator<Item = Evidence> {
        self.held.values().filter_map(|held| held.first()).copied()
    }

    /// Names the set of convicted validators; zero if it is empty.
    pub(crate) fn digest(&self) -> Digest {
        if self.held.is_empty() {
            return Digest::ZERO;
        }
        let places: Vec<u8> = self
            .held
            .keys()
            .flat_map(|place| place.0.to_be_bytes())
            .collect();
        sha256(&[b"quorate/convicted/1", &places])
    }

    /// Whether this evidence would prove nothing more. It must be canonical.
    pub(crate) fn suffices_without(&self, evidence: &Evidence) -> bool {
        let held = self.held.get(&evidence.first.signer);
        held.is_some_and(|held| held.len() >= MAX_EVIDENCE_PER_VALIDATOR || held.contains(evidence))
    }

    /// Keeps verified evidence, which must be canonical. Returns whether it was new.
    pub(crate) fn keep(&mut self, evidence: Evidence) -> bool {
        let new = !self.suffices_without(&evidence);
        if new {
            let signer = evidence.first.signer;
            self.held.entry(signer).or_default().push(evidence);
        }
        new
    }

    /// Notes that two votes of the signer are being verified. Returns whether none were before.
    pub(crate) fn accuse(&mut self, signer: ValidatorIndex) -> bool {
        self.accused.insert(signer)
    }

    /// Notes that the votes of the signer are verified.
    pub(crate) fn settle(&mut self, signer: ValidatorIndex) {
        self.accused.remove(&signer);
    }

    /// Pardons all equivocations of the validator up to this epoch and view.
    pub(crate) fn pardon(&mut self, validator: ValidatorIndex, until: (Epoch, View)) {
        self.pardons.insert(validator, until);
    }

    pub(crate) fn is_pardoned(&self, evidence: &Evidence) -> bool {
        let subject = evidence.first.subject;
        let until = self.pardons.get(&evidence.first.signer);
        until.is_some_and(|until| (subject.epoch, subject.view) <= *until)
    }
}
