//! Evidence: verifying, keeping and passing it on.
//!
//! A pair of conflicting votes is verified once by the validator that notices or receives it. Then
//! it is kept, sent to all, and its signer is blocked. Each status names the set of validators that
//! evidence is held against; a validator that holds some against others sends one pair for each. So
//! all honest validators come to block the same equivocators, even those that were away.
//!
//! *What evidence proves.* Under `bls-aggregate` each validator signs with a key of its own, whose
//! possession is proven at genesis: a pair proves that the holder of this key signed both. Under
//! `bls-threshold` a partial signature could also be made by a quorum of other share holders
//! together, or by the dealer: a pair proves that the signer, or a quorum, or the dealer did it.
//! While at most f validators are faulty the latter two are excluded, which is all that blocking
//! needs. A chain that punishes by evidence should use `bls-aggregate`. Votes carry no identity
//! signature beside: unverified it is worth nothing, because an equivocator would spoil it, and
//! verified it would cost more than the one check it comes with (`types/src/evidence.rs`).

use crate::{
    checks::Pending,
    dropped::DropReason,
    engine::Engine,
    io::{Exhibit, Offence, Step, Target, Work},
};
use quorate_crypto::Digest;
use quorate_types::{Evidence, Message, Subject, ValidatorIndex};
use std::time::Duration;

/// How often a peer is sent evidence that it lacks.
const INFORM_INTERVAL: Duration = Duration::from_secs(5);

impl Engine {
    /// A digest of the set of validators that evidence is held against, for
    /// [`quorate_types::Status`].
    pub fn convicted(&self) -> Digest {
        self.convictions.digest()
    }

    pub fn evidence(&self) -> impl Iterator<Item = &Evidence> {
        self.convictions.all()
    }

    /// Upon evidence from a peer.
    pub(crate) fn on_evidence(
        &mut self,
        step: &mut Step,
        from: ValidatorIndex,
        evidence: Evidence,
    ) {
        let evidence = evidence.canonical();
        let Subject { epoch, .. } = evidence.first.subject;
        let signer = evidence.first.signer;
        // R31: places and keys of another set mean nothing here, and its sender may be honest.
        if !self.config.committees.votes_alike(epoch) {
            return step.drop(from, DropReason::EpochOver(epoch));
        }
        if evidence.conflict().is_none() || self.committee.identity(signer).is_none() {
            // No cryptography is needed to see that this proves nothing.
            step.drop(from, DropReason::NoEvidence);
            let exhibit = Exhibit::Evidence(Box::new(evidence));
            self.offend(step, from, Offence::InvalidEvidence, exhibit);
            return;
        }
        // Votes of later epochs cannot be verified yet. They are sent again when they can.
        if epoch > self.epoch().next() {
            return step.drop(from, DropReason::EpochAhead(epoch));
        }
        if self.convictions.suffices_without(&evidence) {
            return;
        }
        if self.convictions.accuse(signer) {
            let Evidence { first, second } = evidence;
            self.checks.start(
                step,
                Work::VerifyVotes(vec![first, second]),
                Pending::Conflict {
                    evidence,
                    reporter: Some(from),
                },
            );
        }
    }

    /// Upon the result of verifying two votes.
    pub(crate) fn on_conflict_checked(
        &mut self,
        step: &mut Step,
        evidence: Evidence,
        reporter: Option<ValidatorIndex>,
        valid: &[bool],
    ) {
        let signer = evidence.second.signer;
        self.convictions.settle(signer);
        // R17
        if valid == [true, true] {
            if evidence.conflict().is_some() {
                self.convict(step, evidence);
            }
            return;
        }
        if let Some(reporter) = reporter {
            let exhibit = Exhibit::Evidence(Box::new(evidence));
            self.offend(step, reporter, Offence::InvalidEvidence, exhibit);
            return;
        }
        let Subject {
            epoch, view, kind, ..
        } = evidence.first.subject;
        let first_is_bad = valid.first() == Some(&false);
        if first_is_bad
            && epoch == self.epoch()
            && let Some(round) = self.views.get_mut(view)
        {
            let signature = &evidence.first.signature;
            round.tally(kind).refuse(signer.as_usize(), signature);
        }
        let bad = if first_is_bad {
            evidence.first
        } else {
            evidence.second
        };
        let exhibit = Exhibit::Vote(Box::new(bad));
        self.offend(step, signer, Offence::InvalidVote, exhibit);
    }

    /// Keeps verified evidence, sends it to all, and blocks the signer.
    fn convict(&mut self, step: &mut Step, evidence: Evidence) {
        let evidence = evidence.canonical();
        let signer = evidence.first.signer;
        if self.convictions.keep(evidence) {
            step.out.evidence.push(evidence);
            if Some(signer) == self.own_place() {
                self.on_own_conviction(step, evidence.second.subject);
            }
            step.send(Target::All, Message::Evidence(Box::new(evidence)));
        }
        self.punish(step, evidence);
    }

    /// Blocks the signer of verified evidence, unless the operator has pardoned it since. The
    /// pardon holds when another peer reports the same again.
    fn punish(&mut self, step: &mut Step, evidence: Evidence) {
        let signer = evidence.first.signer;
        if Some(signer) != self.own_place() && !self.convictions.is_pardoned(&evidence) {
            let exhibit = Exhibit::Evidence(Box::new(evidence));
            self.offend(step, signer, Offence::Equivocation, exhibit);
        }
    }

    /// Blocks the signers of the evidence that was restored at the start. They usually are blocked
    /// already by restored penalties; but evidence is stored first, and the validator may have
    /// crashed before the penalty was.
    pub(crate) fn enforce_evidence(&mut self, step: &mut Step) {
        let held: Vec<Evidence> = self.evidence().copied().collect();
        for evidence in held {
            self.punish(step, evidence);
        }
    }

    /// Sends a peer whose status names another set one pair against each convicted validator.
    pub(crate) fn inform(&mut self, step: &mut Step, peer: ValidatorIndex, convicted: Digest) {
        if self.convictions.is_empty() || convicted == self.convicted() {
            return;
        }
        if !self.peers.may_inform(peer, step.now, INFORM_INTERVAL) {
            return;
        }
        let pairs: Vec<Evidence> = self.convictions.one_each().collect();
        for pair in pairs {
            let message = Message::Evidence(Box::new(pair));
            step.send(Target::One(peer), message);
        }
    }
}
