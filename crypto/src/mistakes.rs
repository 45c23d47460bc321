//! Mistakes that can be switched on, one at a time, to see whether the simulator notices them.
//!
//! Without the feature `mistakes`, which nothing but the simulator's own check switches on,
//! [`made`] is a constant `false` and the compiler removes what depends on it. The node's binary
//! does not build with the feature.

/// Whether mistakes can be switched on in this build.
pub const COMPILED_IN: bool = cfg!(feature = "mistakes");

macro_rules! mistakes {
    ($($name:ident: $text:literal,)*) => {
        /// A mistake of safety or recovery.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Mistake {
            $(#[doc = $text] $name,)*
        }

        impl Mistake {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// What is done wrong.
            pub fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

mistakes! {
    VoteBeforeSync: "votes leave without the journal's sync",
    VoteWithoutItsBlock: "a vote is journaled without the block it is for",
    FinalizeWithoutNotarization: "certificates are not journaled",
    FailedSyncIgnored: "a failed sync of the journal is taken for a good one",
    FailedSyncRetried: "a failed write or sync of the journal is tried again",
    NotarizeForgotten: "a restarted validator forgets its notarize votes",
    NullifyForgotten: "a restarted validator forgets its nullify votes",
    FinalizeForgotten: "a restarted validator forgets certificates and finalize votes",
    JournalNotReplayed: "a restarted validator does not read its journal",
    TailNotSynced: "what is found in the journal at the start is not synced",
    DatabaseNotSynced: "what is found in the database at the start is not synced",
    ChecksumIgnored: "the journal's checksums are not looked at",
    RewriteWithoutSync: "a rewritten journal is named before its content is durable",
    RewriteWithoutFolderSync: "the old journal is removed before the new one's name is durable",
    CheckpointWithoutVotes: "a rewritten journal leaves out the validator's own votes",
    CheckpointWithoutBlocks: "a rewritten journal leaves out blocks that are not executed",
    BlockToldBeforeSync: "an executed block is told of before it is durable",
    LaterEpochForgotten: "votes are cast in an epoch that the journal has left behind",
    SenderNotSigner: "votes are taken from senders that are not their signers",
    DuplicatesCounted: "one vote counts twice",
    QuorumTooSmall: "the quorum is one too small",
    SlotOverwritten: "a second vote replaces the first in its slot",
    WindowUnbounded: "votes of any view are kept",
    ProposalsUnbounded: "proposals of any view are kept",
    EarlyUnbounded: "messages of the next epoch are kept without limit",
    FinalizeAfterNullify: "finalize is cast after nullify in the same view",
    NullifyAfterFinalize: "nullify is cast in a view that has ended, whatever was said in it",
    FinalizeOtherThanNotarized: "finalize is cast for another block than notarize in the same view",
    ParentNotChecked: "a proposal's parent need not be notarized",
    GapsNotChecked: "views between a proposal and its parent need not be nullified",
    BlockNotValidated: "what the application says of a block is not waited for",
    StateRootNotChecked: "a block may name any state",
    SignaturesNotChecked: "a block's transactions need not be signed",
    HeaderNotChecked: "a block need not follow its parent",
    CertificatesUnverified: "certificates are taken without verification",
    StaleCertificateAccepted: "a certificate of another epoch is taken for this one's",
    StaleAnswerAccepted: "an answer about a former epoch's votes counts in this one",
    StaleVoteAccepted: "votes of other epochs are taken for this one's",
    RangeUnverified: "fetched blocks are final without their finalization's verification",
    EvidenceUnverified: "evidence is believed without verification",
    EvidenceKept: "evidence is not passed on",
    WholeBatchBlamed: "all signers of a failed batch are blamed",
    NobodyBlamed: "nobody is blamed for invalid votes",
    PlainSumBisection: "the bisection adds up without random weights",
    BlocksForgotten: "a restart forgets who is blocked",
    NoCapOnBlocking: "any number of validators may be blocked",
    NothingRepeated: "what was said in a stuck view is never repeated",
    RequestsNotRepeated: "a request without an answer is not repeated",
    BorderIgnored: "the last block of an epoch is built upon within it",
    RepetitionsNotChecked: "a block may hold what was executed before, or cannot be paid for",
    AncestorsNotExcluded: "a leader proposes what unexecuted ancestors hold",
    AcceptedBeforeKept: "clients are told before their transactions are on disk",
    AnswersTooFew: "a validator without its journal believes one answer less",
    SilenceTooShort: "a validator without its journal votes as soon as those that it asked",
    StaleStandings: "a validator without its journal takes answers to an earlier start",
    LeaderFeeLost: "the fee goes to the sender again",
}

#[cfg(feature = "mistakes")]
mod switch {
    use super::Mistake;
    use std::cell::Cell;

    thread_local! {
        static MADE: Cell<Option<Mistake>> = const { Cell::new(None) };
    }

    /// Whether this mistake is to be made, by this thread.
    pub fn made(mistake: Mistake) -> bool {
        MADE.get() == Some(mistake)
    }

    /// Switches a mistake on for this thread, or all off.
    pub fn make(mistake: Option<Mistake>) {
        MADE.set(mistake);
    }
}

#[cfg(not(feature = "mistakes"))]
mod switch {
    use super::Mistake;

    /// Whether this mistake is to be made: never, in this build.
    #[inline(always)]
    pub const fn made(_: Mistake) -> bool {
        false
    }

    /// Does nothing in this build.
    pub const fn make(_: Option<Mistake>) {}
}

pub use switch::{made, make};
