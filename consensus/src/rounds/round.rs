//! What is known of one view.

use crate::slots::Tally;
use quorate_crypto::Digest;
use quorate_types::{Certificate, Evidence, Proposal, ValidatorIndex, View, Vote, VoteKind};
use std::collections::BTreeMap;

/// The state of a proposal's validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Validity {
    /// Not requested yet: something that it depends on may be missing.
    #[default]
    Unknown,
    /// The application is validating.
    Asked,
    /// An honest leader could have built it.
    Valid,
    /// No honest leader builds such a block.
    Invalid,
}

/// This validator's own votes in a view.
#[derive(Default)]
pub(crate) struct OwnVotes {
    pub(crate) notarize: Option<Vote>,
    pub(crate) nullify: Option<Vote>,
    pub(crate) finalize: Option<Vote>,
}

impl OwnVotes {
    pub(crate) fn place(&mut self, kind: VoteKind) -> &mut Option<Vote> {
        match kind {
            VoteKind::Notarize => &mut self.notarize,
            VoteKind::Nullify => &mut self.nullify,
            VoteKind::Finalize => &mut self.finalize,
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = Vote> + '_ {
        let votes = [self.notarize, self.nullify, self.finalize];
        votes.into_iter().flatten()
    }

    /// The vote in the same view that R1 forbids beside this one.
    pub(crate) fn contradicted_by(&self, second: Vote) -> Option<Vote> {
        let mut held = self.all();
        held.find(|first| {
            let first = *first;
            Evidence { first, second }.conflict().is_some()
        })
    }
}

/// One view: its proposal, votes and certificates.
#[derive(Default)]
pub(crate) struct Round {
    /// The first proposal of the leader. Later ones never replace it.
    pub(crate) proposal: Option<Box<Proposal>>,
    /// Who has shown the proposal, if not its leader.
    pub(crate) shown_by: Option<ValidatorIndex>,
    pub(crate) validity: Validity,
    /// The view that notarized the parent of the proposal that this validator has voted for.
    pub(crate) extends: Option<View>,
    pub(crate) own: OwnVotes,
    pub(crate) notarization: Option<Certificate>,
    pub(crate) nullification: Option<Certificate>,
    pub(crate) finalization: Option<Certificate>,
    notarize: Tally,
    nullify: Tally,
    finalize: Tally,
}

impl Round {
    pub(crate) fn tally(&mut self, kind: VoteKind) -> &mut Tally {
        match kind {
            VoteKind::Notarize => &mut self.notarize,
            VoteKind::Nullify => &mut self.nullify,
            VoteKind::Finalize => &mut self.finalize,
        }
    }

    /// How many have said nullify but not notarize.
    pub(crate) fn given_up(&self) -> usize {
        let nullified = self.nullify.signers();
        nullified
            .filter(|place| self.notarize.held(*place).is_none())
            .count()
    }

    /// The block that so many have said notarize for, and one of them.
    pub(crate) fn voted_for_by(&self, many: usize) -> Option<(Digest, ValidatorIndex)> {
        let mut counts: BTreeMap<Digest, usize> = BTreeMap::new();
        for place in self.notarize.signers() {
            let (payload, _) = self.notarize.held(place)?;
            let count = counts.entry(payload).or_default();
            *count += 1;
            if *count == many {
                return Some((payload, ValidatorIndex(u32::try_from(place).ok()?)));
            }
        }
        None
    }

    /// How many have said notarize for the block that most have said it for.
    pub(crate) fn most_notarizing(&self) -> usize {
        let mut counts: BTreeMap<Digest, usize> = BTreeMap::new();
        let payloads = self
            .notarize
            .signers()
            .filter_map(|place| self.notarize.held(place));
        for (payload, _) in payloads {
            *counts.entry(payload).or_default() += 1;
        }
        counts.into_values().max().unwrap_or(0)
    }

    /// Who has said notarize.
    pub(crate) fn voters(&self) -> impl Iterator<Item = usize> + '_ {
        self.notarize.signers()
    }

    /// Who has said nullify.
    pub(crate) fn nullifying(&self) -> impl Iterator<Item = usize> + '_ {
        self.nullify.signers()
    }

    pub(crate) fn has_nullified(&self, place: ValidatorIndex) -> bool {
        self.nullify.held(place.as_usize()).is_some()
    }

    /// How many have said notarize.
    pub(crate) fn notarizing(&self) -> usize {
        self.notarize.signers().count()
    }

    /// The certificate of the view's block: its finalization, or its notarization.
    pub(crate) fn block_certificate(&self) -> Option<&Certificate> {
        self.finalization.as_ref().or(self.notarization.as_ref())
    }

    pub(crate) fn certificate(&self, kind: VoteKind) -> Option<&Certificate> {
        match kind {
            VoteKind::Notarize => self.notarization.as_ref(),
            VoteKind::Nullify => self.nullification.as_ref(),
            VoteKind::Finalize => self.finalization.as_ref(),
        }
    }

    /// Keeps a verified certificate. Returns whether it was new.
    pub(crate) fn keep(&mut self, certificate: &Certificate) -> bool {
        let place = match certificate.subject.kind {
            VoteKind::Notarize => &mut self.notarization,
            VoteKind::Nullify => &mut self.nullification,
            VoteKind::Finalize => &mut self.finalization,
        };
        if place.is_some() {
            return false;
        }
        *place = Some(certificate.clone());
        true
    }

    /// The block that a quorum has notarized (a finalization implies it).
    pub(crate) fn notarized(&self) -> Option<Digest> {
        self.notarization
            .as_ref()
            .or(self.finalization.as_ref())
            .map(|certificate| certificate.subject.payload)
    }

    /// A certificate that ends the view.
    pub(crate) fn exit(&self) -> Option<&Certificate> {
        self.exits().next()
    }

    /// The certificates that end the view.
    pub(crate) fn exits(&self) -> impl Iterator<Item = &Certificate> {
        let all = [&self.finalization, &self.notarization, &self.nullification];
        all.into_iter().flatten()
    }

    /// Drops what only an open view needs: slots and the proposal.
    pub(crate) fn shrink(&mut self) {
        self.notarize = Tally::default();
        self.nullify = Tally::default();
        self.finalize = Tally::default();
        self.proposal = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_crypto::bls::PartialSignature;
    use quorate_types::{Epoch, Subject};

    fn vote(kind: VoteKind, payload: u8) -> Vote {
        Vote {
            subject: Subject {
                epoch: Epoch(0),
                view: View(3),
                kind,
                payload: Digest([payload; 32]),
            },
            signer: ValidatorIndex(0),
            signature: PartialSignature([0; 96]),
        }
    }

    /// R1, for each pair of votes.
    #[test]
    fn of_two_votes_in_a_view_the_second_contradicts_the_first_exactly_if_r1_says_so() {
        use VoteKind::{Finalize, Notarize, Nullify};
        let votes = [
            vote(Notarize, 1),
            vote(Notarize, 2),
            vote(Nullify, 0),
            vote(Finalize, 1),
            vote(Finalize, 2),
        ];
        for first in votes {
            for second in votes {
                let mut own = OwnVotes::default();
                *own.place(first.subject.kind) = Some(first);
                let both = [first.subject.kind, second.subject.kind];
                let nullified = both.contains(&Nullify);
                let expected = if nullified {
                    both.contains(&Finalize)
                } else {
                    first.subject.payload != second.subject.payload
                };
                let found = own.contradicted_by(second).is_some();
                assert_eq!(found, expected, "{first:?} {second:?}");
            }
        }
    }
}
