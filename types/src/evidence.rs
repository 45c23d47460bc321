//! Evidence: two votes of one validator that no honest validator casts together.
//!
//! Votes carry no identity signature. It would make evidence under `bls-threshold` as strong as
//! under `bls-aggregate`; with threshold keys a partial signature could also come from a quorum of
//! other share holders, or from the dealer. An unverified signature is worthless, because an
//! equivocator would send garbage. Verifying a quorum's costs 1,919 µs at n = 100 one by one (about
//! half in a batch), where the one combined check costs 1,081 µs (threshold) or 641 µs (aggregate),
//! and a vote would grow from 150 to 214 bytes (`cargo run --release -p quorate-crypto --example
//! bls_cost`). A chain that punishes by evidence should use `bls-aggregate`. Blocking assumes at
//! most f faulty validators anyway and needs no more than either scheme gives.

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
    /// The vote that was noticed first.
    pub first: Vote,
    /// The vote that conflicts with it.
    pub second: Vote,
}

/// The kinds of conflict.
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
    /// The pair in its canonical order, so that it has one name whoever noticed it: by kind, then
    /// payload, then signature.
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
