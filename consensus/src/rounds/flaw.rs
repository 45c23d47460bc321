//! Checks whether a proposal can be an honest leader's, before anything of it is kept.
//!
//! The checks rest on the message itself, on the chain's limits and on what a quorum has certified,
//! never on what this validator alone believes: no honest leader makes a proposal with a [`Flaw`],
//! whatever it knows. The link proves the sender, so the sender is to blame, but for this validator
//! alone, since proposals carry no signature.
//!
//! A block that the application refuses, or a parent that is not known to be notarized here, is no
//! flaw: that can depend on clocks, or on what has arrived so far. Such a proposal gets no vote,
//! and its leader's turn counts as failed.

use crate::engine::Engine;
use commonware_codec::EncodeSize;
use quorate_crypto::Digest;
use quorate_types::{Block, Certificate, Proposal, ValidatorIndex, View, VoteKind};

/// Why no honest leader makes a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Its sender does not lead its view.
    NotItsTurn,
    /// The header names another chain or epoch than the proposal.
    Elsewhere,
    /// The header's view is not the proposal's, and the block is no notarized last block of the
    /// epoch; or its parent's view is not below its own; or nothing is proposed in such a view.
    WrongView,
    /// Its block exceeds the chain's limits.
    TooLarge,
    /// The block's height exceeds what the views allow, lies beyond the epoch's end or, where every proposal descends from
    /// the tip, is not above the final ones.
    ImpossibleHeight,
    /// A certificate is neither the parent's nor one that the protocol attaches.
    StrayCertificate,
    /// The header does not follow its parent's, which is here.
    NotAfterItsParent,
}

impl Flaw {
    /// In a few words, for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotItsTurn => "its sender does not lead its view",
            Self::Elsewhere => "its block is of another chain or epoch",
            Self::WrongView => "its block is of another view",
            Self::TooLarge => "its block exceeds the chain's limits",
            Self::ImpossibleHeight => "its block has an impossible height",
            Self::StrayCertificate => "it carries certificates of something else",
            Self::NotAfterItsParent => "its block does not follow its parent",
        }
    }
}

impl Engine {
    /// What is wrong with the proposal as such.
    pub(crate) fn flaw(&self, from: ValidatorIndex, proposal: &Proposal) -> Option<Flaw> {
        let header = proposal.block.header();
        let view = proposal.view;
        if self.committee.leader(view) != from || view == View(u64::MAX) {
            return Some(Flaw::NotItsTurn);
        }
        if header.chain != self.config.chain || header.epoch != proposal.epoch {
            return Some(Flaw::Elsewhere);
        }
        if !self.rules().proposes_in(&self.committee, view) {
            return Some(Flaw::WrongView);
        }
        // The epoch's last block may be proposed again in later views, with its notarization.
        let again = header.view < view
            && self.ends_epoch(&proposal.block)
            && notarized_in(proposal).is_some_and(|notarized| header.view <= notarized);
        if header.parent_view >= header.view || !(header.view == view || again) {
            return Some(Flaw::WrongView);
        }
        let limits = &self.config.limits;
        let transactions = proposal.block.transactions().len();
        if transactions > limits.max_transactions || proposal.block.encode_size() > limits.max_bytes
        {
            return Some(Flaw::TooLarge);
        }
        let attached = proposal.parent_certificate.iter();
        let parents = attached.clone().all(|held| is_parents(held, proposal));
        let (parent, _) = parent_of(proposal);
        let others = proposal.certificates.iter().all(|held| {
            let subject = held.subject;
            subject.epoch == proposal.epoch && self.rules().may_attach(&subject, parent, proposal)
        });
        (!(parents && others)).then_some(Flaw::StrayCertificate)
    }

    /// What is wrong with the block's place in the chain, as far as it is known here, for proposals
    /// of the current view or a later one.
    ///
    /// With simplex these views are above the tip's view, which is final and so never nullified: a proposal
    /// there descends from the tip, with at most one block for each view.
    pub(crate) fn misplacement(&self, proposal: &Proposal) -> Option<Flaw> {
        let header = proposal.block.header();
        let views = header.view.0.saturating_sub(self.tip().view.0);
        let highest = self.tip().height.0.saturating_add(views);
        let last = self.last_height().0;
        let (lowest, highest) = match self.rules().proposals_extend_the_tip() {
            true => (self.tip().height.next().0, highest),
            // On any block of the epoch: at most one for each view.
            false => {
                let before = last.saturating_sub(self.config.epoch_length.blocks());
                (0, before.saturating_add(header.view.0))
            }
        };
        let highest = highest.min(last);
        if !(lowest..=highest).contains(&header.height.0) {
            return Some(Flaw::ImpossibleHeight);
        }
        let again = header.view != proposal.view;
        let parent = self.chain.block_at(&header.parent)?;
        let follows = match &parent {
            Some(parent) if self.ends_epoch(parent) => false,
            parent => follows(&proposal.block, parent.as_deref()),
        };
        (!again && !follows).then_some(Flaw::NotAfterItsParent)
    }
}

/// Whether a certificate shows that the proposal's parent may be followed.
fn is_parents(certificate: &Certificate, proposal: &Proposal) -> bool {
    let (subject, header) = (certificate.subject, proposal.block.header());
    if header.view != proposal.view {
        // It is the block's own.
        return subject.kind != VoteKind::Nullify && notarized_in(proposal).is_some();
    }
    let of_the_parent = subject.payload == header.parent && subject.kind != VoteKind::Nullify;
    // The first leaders of an epoch attach the finalization that ended the one before.
    let border = header.parent_view == View(0) && subject.epoch.next() == proposal.epoch;
    let within = subject.epoch == proposal.epoch && subject.view == header.parent_view;
    of_the_parent && (border || within)
}

/// The view that has notarized the proposed block itself, by the attached certificate.
pub(crate) fn notarized_in(proposal: &Proposal) -> Option<View> {
    let subject = proposal.parent_certificate.as_ref()?.subject;
    let same = subject.epoch == proposal.epoch && subject.payload == proposal.block.id();
    (same && subject.view < proposal.view).then_some(subject.view)
}

/// The view and the block that a proposal builds on: of an epoch's last block that is proposed again, its own
/// notarization.
pub(crate) fn parent_of(proposal: &Proposal) -> (View, Digest) {
    let header = proposal.block.header();
    match notarized_in(proposal) {
        Some(notarized) if header.view != proposal.view => (notarized, proposal.block.id()),
        _ => (header.parent_view, header.parent),
    }
}

/// Whether a header follows its parent's, by the rules that need only the two headers.
pub(crate) fn follows(block: &Block, parent: Option<&Block>) -> bool {
    let header = block.header();
    match parent {
        None => header.height.0 == 1 && header.executed_height.0 == 0,
        Some(parent) => {
            let above = parent.header();
            header.height == above.height.next()
                && header.timestamp_ms > above.timestamp_ms
                && header.executed_height >= above.executed_height
                && header.executed_height < header.height
                && (header.executed_height > above.executed_height
                    || header.state_root == above.state_root)
        }
    }
}
