//! Why something that a peer sent is dropped, and what a proposal waits for.

use crate::rounds::flaw::Flaw;
use quorate_crypto::Digest;
use quorate_types::{Epoch, ValidatorIndex, View};

/// A message of a peer, or a part of one, that the engine dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The sender.
    pub from: ValidatorIndex,
    /// Why it was dropped.
    pub reason: DropReason,
}

/// Why a message was dropped. Its text is for people; [`DropReason::label`] is for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DropReason {
    /// The sender is no member of the committee, or is this validator.
    #[error("the sender is not one of the other validators")]
    NotAPeer,
    /// R16.
    #[error("the sender is blocked")]
    Blocked,
    /// R16.
    #[error("the sender is on probation and muted, because it offended again")]
    Muted,
    /// Requests for stored blocks and forwarded transactions are the node's.
    #[error("the engine does not take such messages")]
    NotForEngine,
    /// R12.
    #[error("epoch {0} is over")]
    EpochOver(Epoch),
    /// R12.
    #[error("epoch {0} is too far ahead")]
    EpochAhead(Epoch),
    /// R14, R15.
    #[error("view {0} is over")]
    ViewOver(View),
    /// R12, R14, R15.
    #[error("view {0} is too far ahead")]
    ViewAhead(View),
    /// R12.
    #[error("too many messages of the next epoch wait already")]
    TooManyEarly,
    /// R14.
    #[error("the vote is signed by validator {0}")]
    NotTheSigner(ValidatorIndex),
    /// The limits on checks under way.
    #[error("too many checks of this sender are under way")]
    Busy,
    /// Finalised blocks are fetched in order first.
    #[error("finalised blocks are missing here, and the proposal of view {0} would only pile up")]
    CatchingUp(View),
    /// The leader's first proposal of a view stays.
    #[error("view {0} has a proposal already")]
    SecondProposal(View),
    /// R15.
    #[error("no honest leader proposes so in view {0}: {flaw}", flaw = .1.name())]
    Flawed(View, Flaw),
    /// R3.
    #[error("the proposal of view {0} names a parent other than the block notarized there")]
    WrongParent(View),
    /// R3, R11.
    #[error("the proposal's block of view {0} does not follow its parent")]
    NotAfterItsParent(View),
    /// R3.
    #[error("the application refuses the block of view {0}")]
    Refused(View),
    /// R23.
    #[error("it was not asked for, or not from this sender")]
    NotRequested,
    /// R23.
    #[error("the range of blocks does not continue the chain, or lacks its finalization")]
    BrokenRange,
    /// A request whose first view is above its last, or of another epoch.
    #[error("the request is malformed")]
    BadRequest,
    /// R17.
    #[error("the votes do not conflict, or their signer is no validator")]
    NoEvidence,
}

impl DropReason {
    /// The labels of all reasons, sorted.
    pub const LABELS: [&'static str; 21] = [
        "bad_request",
        "blocked",
        "broken_range",
        "busy",
        "catching_up",
        "epoch_ahead",
        "epoch_over",
        "flawed",
        "muted",
        "no_evidence",
        "not_a_peer",
        "not_after_its_parent",
        "not_for_engine",
        "not_requested",
        "not_the_signer",
        "refused",
        "second_proposal",
        "too_many_early",
        "view_ahead",
        "view_over",
        "wrong_parent",
    ];

    /// A short name for metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::NotAPeer => "not_a_peer",
            Self::Blocked => "blocked",
            Self::Muted => "muted",
            Self::NotForEngine => "not_for_engine",
            Self::EpochOver(_) => "epoch_over",
            Self::EpochAhead(_) => "epoch_ahead",
            Self::ViewOver(_) => "view_over",
            Self::ViewAhead(_) => "view_ahead",
            Self::TooManyEarly => "too_many_early",
            Self::NotTheSigner(_) => "not_the_signer",
            Self::Busy => "busy",
            Self::CatchingUp(_) => "catching_up",
            Self::SecondProposal(_) => "second_proposal",
            Self::Flawed(..) => "flawed",
            Self::WrongParent(_) => "wrong_parent",
            Self::NotAfterItsParent(_) => "not_after_its_parent",
            Self::Refused(_) => "refused",
            Self::NotRequested => "not_requested",
            Self::BrokenRange => "broken_range",
            Self::BadRequest => "bad_request",
            Self::NoEvidence => "no_evidence",
        }
    }
}

/// What this validator needs before it can vote for the proposal of its view, or propose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// The notarization of the parent's view.
    #[error("the certificate of view {0}")]
    Certificate(View),
    /// The nullification of a view between the parent's and the proposal's.
    #[error("the nullification of view {0}")]
    Nullification(View),
    /// The parent, or one of its ancestors that are not executed.
    #[error("block {0}")]
    Block(Digest),
}

impl Missing {
    /// The labels of all kinds, sorted.
    pub const LABELS: [&'static str; 3] = ["block", "certificate", "nullification"];

    /// A short name for metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Certificate(_) => "certificate",
            Self::Nullification(_) => "nullification",
            Self::Block(_) => "block",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_label_is_listed_once_and_in_order() {
        let (epoch, view) = (Epoch(1), View(2));
        let reasons = [
            DropReason::BadRequest,
            DropReason::Blocked,
            DropReason::BrokenRange,
            DropReason::Busy,
            DropReason::CatchingUp(view),
            DropReason::EpochAhead(epoch),
            DropReason::EpochOver(epoch),
            DropReason::Flawed(view, Flaw::TooLarge),
            DropReason::Muted,
            DropReason::NoEvidence,
            DropReason::NotAPeer,
            DropReason::NotAfterItsParent(view),
            DropReason::NotForEngine,
            DropReason::NotRequested,
            DropReason::NotTheSigner(ValidatorIndex(3)),
            DropReason::Refused(view),
            DropReason::SecondProposal(view),
            DropReason::TooManyEarly,
            DropReason::ViewAhead(view),
            DropReason::ViewOver(view),
            DropReason::WrongParent(view),
        ];
        assert_eq!(reasons.map(DropReason::label), DropReason::LABELS);
        assert!(DropReason::LABELS.is_sorted());
        let missing = [
            Missing::Block(Digest::ZERO),
            Missing::Certificate(view),
            Missing::Nullification(view),
        ];
        assert_eq!(missing.map(Missing::label), Missing::LABELS);
        let flawed = DropReason::Flawed(view, Flaw::TooLarge).to_string();
        assert_eq!(
            flawed,
            "no honest leader proposes so in view 2: its block exceeds the chain's limits"
        );
    }
}
