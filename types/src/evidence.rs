//! Evidence: two votes of one validator that no honest validator casts together.

use crate::{Vote, VoteKind, codec::fixed_codec};
use commonware_codec::Encode;
use quorate_crypto::{Digest, sha256};
use std::fmt;

/// A pair of conflicting votes by the same signer in the same view.
///
/// It proves guilt once both signatures verify against the signer's share key; see
/// [`Evidence::conflict`] for what must hold beside that.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Evidence {
    /// The vote that came first to whoever noticed.
    pub first: Vote,
    /// The vote that conflicts with it.
    pub second: Vote,
}

/// In which way two votes conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Conflict {
    /// Notarize for two blocks.
    TwoNotarize,
    /// Finalize for two blocks.
    TwoFinalize,
    /// Finalize and nullify, in either order.
    FinalizeAndNullify,
    /// Notarize for one block and finalize for another.
    NotarizeAndFinalize,
}

impl Conflict {
    /// A short name for people and programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::TwoNotarize => "two_notarize",
            Self::TwoFinalize => "two_finalize",
            Self::FinalizeAndNullify => "finalize_and_nullify",
            Self::NotarizeAndFinalize => "notarize_and_finalize",
        }
    }
}

impl Evidence {
    /// The pair in its one order, so that whoever noticed it, in whatever order, names it the
    /// same: by kind, then payload, then signature.
    pub fn canonical(self) -> Self {
        let key = |vote: &Vote| (vote.subject.kind, vote.subject.payload, vote.signature.0);
        if key(&self.second) < key(&self.first) {
            Self {
                first: self.second,
                second: self.first,
            }
        } else {
            self
        }
    }

    /// Names the pair: SHA-256 of `"quorate/evidence/1"` and the canonical pair's bytes.
    pub fn id(&self) -> Digest {
        let bytes = self.canonical().encode();
        sha256(&[b"quorate/evidence/1", &bytes])
    }

    /// How the two votes conflict, or `None` if an honest validator may cast both (notarize and
    /// then nullify is allowed; so is the same vote twice).
    pub fn conflict(&self) -> Option<Conflict> {
        let (a, b) = (&self.first.subject, &self.second.subject);
        if self.first.signer != self.second.signer || a.epoch != b.epoch || a.view != b.view {
            return None;
        }
        let differ = a.payload != b.payload;
        match (a.kind, b.kind) {
            (VoteKind::Notarize, VoteKind::Notarize) if differ => Some(Conflict::TwoNotarize),
            (VoteKind::Finalize, VoteKind::Finalize) if differ => Some(Conflict::TwoFinalize),
            (VoteKind::Finalize, VoteKind::Nullify) | (VoteKind::Nullify, VoteKind::Finalize) => {
                Some(Conflict::FinalizeAndNullify)
            }
            (VoteKind::Notarize, VoteKind::Finalize) | (VoteKind::Finalize, VoteKind::Notarize)
                if differ =>
            {
                Some(Conflict::NotarizeAndFinalize)
            }
            _ => None,
        }
    }
}

impl fmt::Debug for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "evidence [{:?} | {:?}]", self.first, self.second)
    }
}

fixed_codec!(Evidence {
    first: Vote,
    second: Vote,
});
