//! Evidence: keeping it, passing it on, and taking it from others.
//!
//! A pair of conflicting votes is verified once by whoever notices or receives it, kept, sent to
//! all, and blocks its signer. Each validator says in its status whom it holds evidence against;
//! who holds some against others sends one pair for each. So all honest validators come to block
//! the same equivocators, also those that were away.
//!
//! *What evidence proves.* Under `bls-aggregate` each validator signs with a key of its own, whose
//! possession is proven at genesis: a pair proves that the holder of this key signed both. Under
//! `bls-threshold` a partial signature could also be made by a quorum of other share holders
//! together, or by the dealer: a pair proves that the signer, or a quorum, or the dealer did it.
//! While at most f validators are faulty the latter two are excluded, which is all that blocking
//! needs. A chain that punishes by evidence should use `bls-aggregate`. Votes carry no identity
//! signature beside: unverified it is worth nothing, because an equivocator would spoil it, and
//! verified it would cost more than the one check it comes with (`ARCHITECTURE.md`).

use crate::{
    config::MAX_EVIDENCE_PER_VALIDATOR,
    engine::{Engine, Pending},
    io::{Exhibit, Moment, Offence, Output, Target, Work},
};
use quorate_crypto::mistakes::{Mistake, made};
use quorate_crypto::{Digest, sha256};
use quorate_types::{Evidence, Message, Subject, ValidatorIndex};
use std::time::Duration;

/// How often a peer is sent what it lacks.
const INFORM_INTERVAL: Duration = Duration::from_secs(5);

impl Engine {
    /// Names the set of validators that evidence is held against, for [`quorate_types::Status`].
    pub fn convicted(&self) -> Digest {
        if self.convictions.is_empty() {
            return Digest::ZERO;
        }
        let places: Vec<u8> = self
            .convictions
            .keys()
            .flat_map(|place| place.0.to_be_bytes())
            .collect();
        sha256(&[b"quorate/convicted/1", &places])
    }

    /// All evidence that is held.
    pub fn evidence(&self) -> impl Iterator<Item = &Evidence> {
        self.convictions.values().flatten()
    }

    /// Upon evidence from a peer.
    pub(crate) fn on_evidence(
        &mut self,
        from: ValidatorIndex,
        evidence: Evidence,
        out: &mut Output,
    ) {
        let evidence = evidence.canonical();
        let Subject { epoch, .. } = evidence.first.subject;
        let signer = evidence.first.signer;
        if evidence.conflict().is_none() || self.config.committee.identity(signer).is_none() {
            // It takes no cryptography to see that this proves nothing.
            self.counters.dropped_invalid += 1;
            let exhibit = Exhibit::Evidence(Box::new(evidence));
            self.offend(from, Offence::InvalidEvidence, exhibit, out);
            return;
        }
        let held = self.convictions.get(&signer);
        let enough = held.is_some_and(|held| {
            held.len() >= MAX_EVIDENCE_PER_VALIDATOR || held.contains(&evidence)
        });
        // Votes of later epochs cannot be judged yet; they are sent again when they can.
        if enough || epoch > self.epoch().next() {
            return;
        }
        if made(Mistake::EvidenceUnverified) {
            return self.convict(evidence, out);
        }
        if self.accused.insert(signer) {
            let Evidence { first, second } = evidence;
            self.start(
                Work::VerifyVotes(vec![first, second]),
                Pending::Conflict {
                    evidence,
                    reporter: Some(from),
                },
                out,
            );
        }
    }

    /// Upon the result of verifying two votes.
    pub(crate) fn on_conflict_checked(
        &mut self,
        evidence: Evidence,
        reporter: Option<ValidatorIndex>,
        valid: &[bool],
        out: &mut Output,
    ) {
        let signer = evidence.second.signer;
        self.accused.remove(&signer);
        // R17
        if valid == [true, true] {
            if evidence.conflict().is_some() {
                self.convict(evidence, out);
            }
            return;
        }
        if let Some(reporter) = reporter {
            let exhibit = Exhibit::Evidence(Box::new(evidence));
            self.offend(reporter, Offence::InvalidEvidence, exhibit, out);
            return;
        }
        let Subject {
            epoch, view, kind, ..
        } = evidence.first.subject;
        let first_is_bad = valid.first() == Some(&false);
        if first_is_bad
            && epoch == self.epoch()
            && let Some(round) = self.rounds.get_mut(&view)
        {
            round.tally(kind).refuse(signer.as_usize());
        }
        let bad = if first_is_bad {
            evidence.first
        } else {
            evidence.second
        };
        let exhibit = Exhibit::Vote(Box::new(bad));
        self.offend(signer, Offence::InvalidVote, exhibit, out);
    }

    /// Keeps verified evidence, tells everybody, and blocks the signer.
    fn convict(&mut self, evidence: Evidence, out: &mut Output) {
        let evidence = evidence.canonical();
        let signer = evidence.first.signer;
        let held = self.convictions.entry(signer).or_default();
        if held.len() < MAX_EVIDENCE_PER_VALIDATOR && !held.contains(&evidence) {
            held.push(evidence);
            out.evidence.push(evidence);
            if Some(signer) == self.own_place() {
                self.on_own_conviction(evidence.second.subject, out);
            }
            if !made(Mistake::EvidenceKept) {
                self.send(Target::All, Message::Evidence(Box::new(evidence)), out);
            }
        }
        self.punish(evidence, out);
    }

    /// Blocks the signer of verified evidence, unless the operator has pardoned it since: that does
    /// not come back when another peer tells of it.
    fn punish(&mut self, evidence: Evidence, out: &mut Output) {
        let signer = evidence.first.signer;
        let Subject { epoch, view, .. } = evidence.first.subject;
        let pardoned = self.pardons.get(&signer);
        if Some(signer) != self.own_place() && pardoned.is_none_or(|until| (epoch, view) > *until) {
            let exhibit = Exhibit::Evidence(Box::new(evidence));
            self.offend(signer, Offence::Equivocation, exhibit, out);
        }
    }

    /// Blocks whom the evidence of a former life convicts. It usually is blocked already, by a
    /// restored sentence; but evidence is kept first, and the validator may have crashed before the
    /// sentence was.
    pub(crate) fn enforce_evidence(&mut self, out: &mut Output) {
        if made(Mistake::BlocksForgotten) {
            return;
        }
        let held: Vec<Evidence> = self.evidence().copied().collect();
        for evidence in held {
            self.punish(evidence, out);
        }
    }

    /// Takes back the evidence of a former life.
    pub(crate) fn restore_evidence(&mut self) {
        for evidence in std::mem::take(&mut self.config.evidence) {
            let evidence = evidence.canonical();
            let held = self.convictions.entry(evidence.first.signer).or_default();
            if held.len() < MAX_EVIDENCE_PER_VALIDATOR && !held.contains(&evidence) {
                held.push(evidence);
            }
        }
    }

    /// Sends a peer, whose status names other convicts, a pair for each of ours.
    pub(crate) fn inform(
        &mut self,
        now: Moment,
        peer: ValidatorIndex,
        convicted: Digest,
        out: &mut Output,
    ) {
        if self.convictions.is_empty()
            || convicted == self.convicted()
            || made(Mistake::EvidenceKept)
        {
            return;
        }
        if let Some(at) = self.informed.get(&peer)
            && now.since(*at) < INFORM_INTERVAL
        {
            return;
        }
        self.informed.insert(peer, now);
        let pairs: Vec<Evidence> = self
            .convictions
            .values()
            .filter_map(|held| held.first())
            .copied()
            .collect();
        for pair in pairs {
            let message = Message::Evidence(Box::new(pair));
            self.send(Target::One(peer), message, out);
        }
    }
}
