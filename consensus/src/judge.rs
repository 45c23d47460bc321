//! Whether a proposal can be an honest leader's, before anything of it is kept.
//!
//! What is asked here rests on the message itself, on the chain's limits and on what a quorum has
//! certified, never on what this validator alone believes: a proposal with a [`Flaw`] is one that no
//! honest leader makes, whatever it knows. The link proves who has sent it, so the sender is to blame.
//! It is so for this validator alone, since proposals carry no signature.
//!
//! A block that the application refuses, or a parent that is not known to be notarized here, is no flaw
//! in this sense: that can depend on clocks, or on what has come so far. Such a proposal gets no vote, and its
//! leader's turn counts as failed.

use crate::engine::Engine;
use commonware_codec::EncodeSize;
use quorate_crypto::mistakes::{Mistake, made};
use quorate_types::{Block, Certificate, Proposal, ValidatorIndex, View, VoteKind};

/// Why no honest leader makes a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Its sender does not lead its view.
    NotItsTurn,
    /// Its header names another chain or epoch than it does itself.
    Elsewhere,
    /// Its header's view is another one, and it is no notarized last block of the epoch; or its parent
    /// is not from before it.
    WrongView,
    /// Its block exceeds the chain's limits.
    TooLarge,
    /// Its block is as low as a final one, or higher than there were views for since, or beyond the
    /// epoch's end.
    ImpossibleHeight,
    /// A certificate that it carries is not its parent's, or no nullification of a view between.
    StrayCertificate,
    /// Its header does not follow its parent's, which is here.
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
        if self.config.committee.leader(view) != from || view == View(u64::MAX) {
            return Some(Flaw::NotItsTurn);
        }
        if header.chain != self.config.chain || header.epoch != proposal.epoch {
            return Some(Flaw::Elsewhere);
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
        let between = proposal.nullifications.iter().all(|held| {
            let subject = held.subject;
            let above = if again {
                notarized_in(proposal).unwrap_or_default()
            } else {
                header.parent_view
            };
            subject.kind == VoteKind::Nullify
                && subject.epoch == proposal.epoch
                && (above.next()..view).contains(&subject.view)
        });
        (!(parents && between)).then_some(Flaw::StrayCertificate)
    }

    /// What is wrong with the block's place in the chain, as far as it is known here. For proposals of
    /// the current view or a later one.
    ///
    /// They are above the view of the tip, which is final and so never nullified: what is proposed there
    /// descends from the tip, with one block for each view at most.
    pub(crate) fn misplacement(&self, proposal: &Proposal) -> Option<Flaw> {
        if made(Mistake::HeaderNotChecked) {
            return None;
        }
        let header = proposal.block.header();
        let views = header.view.0.saturating_sub(self.tip.view.0);
        let highest = self.tip.height.0.saturating_add(views);
        let highest = highest.min(self.last_height().0);
        if !(self.tip.height.next().0..=highest).contains(&header.height.0) {
            return Some(Flaw::ImpossibleHeight);
        }
        let again = header.view != proposal.view;
        let parent = self.block_at(&header.parent)?;
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
    // The first leaders of an epoch attach what ended the one before.
    let border = header.parent_view == View(0) && subject.epoch.next() == proposal.epoch;
    let within = subject.epoch == proposal.epoch && subject.view == header.parent_view;
    of_the_parent && (border || within)
}

/// The view that, by the proposal's own certificate, has notarized its very block.
pub(crate) fn notarized_in(proposal: &Proposal) -> Option<View> {
    let subject = proposal.parent_certificate.as_ref()?.subject;
    let same = subject.epoch == proposal.epoch && subject.payload == proposal.block.id();
    (same && subject.view < proposal.view).then_some(subject.view)
}

/// Whether a header follows its parent's: the rules that need nothing but the two.
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
