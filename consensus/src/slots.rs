//! Vote slots: one per view, kind and signer.
//!
//! A vote lies in its slot as 96 undecoded bytes until a quorum for one payload has come. It is in
//! one of three states. A successful combined check makes *no* vote verified: it proves the sum and
//! says nothing about the parts.

use quorate_crypto::{Digest, bls::PartialSignature};
use quorate_types::Vote;

use crate::io::JobId;

/// The state of a vote in its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not checked yet.
    Pending,
    /// It was verified on its own, or is this validator's.
    Verified,
    /// It does not verify. A verified one may take its place: its signer's fault may have healed.
    Refused,
}

#[derive(Clone, Copy)]
struct Slot {
    payload: Digest,
    signature: PartialSignature,
    state: State,
}

impl Slot {
    /// Whether this vote is known to be invalid now that a verified one comes. A BLS signature is unique, so every other one for
    /// the same payload is invalid.
    fn gives_way(&self, payload: Digest) -> bool {
        match self.state {
            State::Pending => self.payload == payload,
            State::Verified => false,
            State::Refused => true,
        }
    }
}

/// The result of offering a vote to its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It is in the slot now.
    Stored,
    /// The slot holds the same bytes already.
    Same,
    /// The slot holds another vote, which stays. The two may be evidence.
    Different {
        payload: Digest,
        signature: PartialSignature,
    },
}

/// The slots of one view and kind, and the check under way.
///
/// Memory: 136 bytes for each validator once the first vote has come.
#[derive(Default)]
pub(crate) struct Tally {
    slots: Vec<Option<Slot>>,
    checking: Option<JobId>,
}

impl Tally {
    /// Offers a vote of signer `place` to its slot; `size` is the committee's.
    pub(crate) fn admit(&mut self, vote: &Vote, size: usize, verified: bool) -> Admission {
        if self.slots.is_empty() {
            self.slots.resize(size, None);
        }
        let slot = &mut self.slots[vote.signer.as_usize()];
        let (payload, signature) = (vote.subject.payload, vote.signature);
        match slot {
            Some(held) if held.payload == payload && held.signature == signature => Admission::Same,
            Some(held) if !(verified && held.gives_way(payload)) => Admission::Different {
                payload: held.payload,
                signature: held.signature,
            },
            _ => {
                *slot = Some(Slot {
                    payload,
                    signature,
                    state: if verified {
                        State::Verified
                    } else {
                        State::Pending
                    },
                });
                Admission::Stored
            }
        }
    }

    /// The vote in a signer's slot, unless it is known to be invalid.
    pub(crate) fn held(&self, place: usize) -> Option<(Digest, PartialSignature)> {
        let slot = self.slots.get(place)?.as_ref()?;
        (slot.state != State::Refused).then_some((slot.payload, slot.signature))
    }

    /// Whether the vote in a signer's slot is known to be invalid.
    pub(crate) fn is_refused(&self, place: usize) -> bool {
        let slot = self.slots.get(place).and_then(Option::as_ref);
        slot.is_some_and(|slot| slot.state == State::Refused)
    }

    /// A quorum of votes for the payload, verified ones first, and how many of these there are.
    /// `None` if there are too few, or a check is under way.
    pub(crate) fn ready(
        &self,
        payload: &Digest,
        quorum: usize,
    ) -> Option<(Vec<(u32, PartialSignature)>, usize)> {
        if self.checking.is_some() {
            return None;
        }
        let with_state = |state: State| {
            (0_u32..).zip(&self.slots).filter_map(move |(place, slot)| {
                let slot = slot.as_ref()?;
                (slot.state == state && slot.payload == *payload).then_some((place, slot.signature))
            })
        };
        let parts: Vec<_> = with_state(State::Verified)
            .chain(with_state(State::Pending))
            .take(quorum)
            .collect();
        let verified = with_state(State::Verified).count().min(quorum);
        (parts.len() == quorum).then_some((parts, verified))
    }

    /// Notes that a check is under way; no other one starts before it ends.
    pub(crate) fn start(&mut self, job: JobId) {
        self.checking = Some(job);
    }

    /// Ends a successful check. The votes keep their states.
    pub(crate) fn succeed(&mut self, job: JobId) {
        if self.checking == Some(job) {
            self.checking = None;
        }
    }

    /// Ends a failed check: of the votes that took part, those of `bad` are refused, and the others
    /// are verified.
    pub(crate) fn fail(&mut self, job: JobId, parts: &[(u32, PartialSignature)], bad: &[u32]) {
        self.succeed(job);
        for (place, signature) in parts {
            let Some(Some(slot)) = self.slots.get_mut(*place as usize) else {
                continue;
            };
            if slot.signature == *signature {
                slot.state = if bad.contains(place) {
                    State::Refused
                } else {
                    State::Verified
                };
            }
        }
    }

    /// The signers of the votes that are not known to be invalid.
    pub(crate) fn signers(&self) -> impl Iterator<Item = usize> + '_ {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(place, slot)| {
            let slot = slot.as_ref()?;
            (slot.state != State::Refused).then_some(place)
        })
    }

    /// Notes that this vote is invalid.
    pub(crate) fn refuse(&mut self, place: usize, signature: &PartialSignature) {
        if let Some(Some(slot)) = self.slots.get_mut(place)
            && slot.signature == *signature
        {
            slot.state = State::Refused;
        }
    }

    /// How many votes lie here.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.slots.iter().flatten().count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::{Epoch, Subject, ValidatorIndex, View, VoteKind};

    fn vote(place: u32, payload: u8, signature: u8) -> Vote {
        Vote {
            subject: Subject {
                epoch: Epoch(0),
                view: View(1),
                kind: VoteKind::Notarize,
                payload: Digest([payload; 32]),
            },
            signer: ValidatorIndex(place),
            signature: PartialSignature([signature; 96]),
        }
    }

    #[test]
    fn a_split_vote_triggers_nothing() {
        let mut tally = Tally::default();
        for place in 0..4 {
            let payload = if place < 2 { 1 } else { 2 };
            assert_eq!(
                tally.admit(&vote(place, payload, 9), 4, false),
                Admission::Stored
            );
        }
        assert_eq!(tally.len(), 4);
        assert!(tally.ready(&Digest([1; 32]), 3).is_none());
        assert!(tally.ready(&Digest([2; 32]), 3).is_none());
    }

    #[test]
    fn the_first_vote_stays_and_a_different_one_is_reported() {
        let mut tally = Tally::default();
        tally.admit(&vote(1, 1, 1), 4, false);
        assert_eq!(tally.admit(&vote(1, 1, 1), 4, false), Admission::Same);
        // A second signature over the same payload differs in its bytes: that is told too.
        for other in [vote(1, 1, 2), vote(1, 2, 1)] {
            assert!(matches!(
                tally.admit(&other, 4, false),
                Admission::Different { payload, .. } if payload == Digest([1; 32])
            ));
        }
        assert_eq!(
            tally.held(1),
            Some((Digest([1; 32]), PartialSignature([1; 96])))
        );
    }

    /// A validator whose fault has healed is heard in the view in which it forged.
    #[test]
    fn an_invalid_vote_gives_way_and_a_pending_one_to_a_verified_one_for_the_same() {
        let (forged, valid) = (vote(1, 1, 1), vote(1, 1, 2));
        let held = Some((Digest([1; 32]), valid.signature));
        let mut tally = Tally::default();
        tally.admit(&forged, 4, false);
        tally.refuse(1, &forged.signature);
        assert_eq!(tally.held(1), None);
        assert!(tally.is_refused(1));
        assert_eq!(tally.admit(&forged, 4, false), Admission::Same);
        assert_eq!(tally.admit(&valid, 4, true), Admission::Stored);
        assert!(!tally.is_refused(1));
        // What was found out about the one before says nothing about this one.
        tally.refuse(1, &forged.signature);
        assert_eq!(tally.held(1), held);

        let mut tally = Tally::default();
        tally.admit(&forged, 4, false);
        assert!(matches!(
            tally.admit(&vote(1, 2, 3), 4, true),
            Admission::Different { .. }
        ));
        assert_eq!(tally.admit(&valid, 4, true), Admission::Stored);
        assert_eq!(tally.held(1), held);
        assert!(matches!(
            tally.admit(&forged, 4, true),
            Admission::Different { .. }
        ));
    }

    #[test]
    fn a_failed_check_keeps_the_good_and_never_offers_the_bad_again() {
        let payload = Digest([1; 32]);
        let mut tally = Tally::default();
        for place in 0..3 {
            tally.admit(&vote(place, 1, place as u8), 4, false);
        }
        let (parts, verified) = tally.ready(&payload, 3).expect("three votes");
        assert_eq!(verified, 0);
        tally.start(JobId(1));
        tally.admit(&vote(3, 1, 3), 4, false);
        assert!(tally.ready(&payload, 3).is_none(), "a check is under way");
        tally.fail(JobId(1), &parts, &[0]);
        let (again, verified) = tally.ready(&payload, 3).expect("three good votes");
        assert_eq!(verified, 2, "these need no second look");
        let places: Vec<u32> = again.iter().map(|(place, _)| *place).collect();
        assert_eq!(places, [1, 2, 3], "verified votes come first");
        tally.start(JobId(2));
        tally.fail(JobId(2), &again, &[3]);
        assert!(tally.ready(&payload, 3).is_none());
    }
}
