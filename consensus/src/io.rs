//! The engine's inputs and outputs.

use crate::{
    dropped::{DropReason, Dropped, Missing},
    rounds::flaw::Flaw,
};
use quorate_crypto::{
    Digest,
    bls::{HashedMessage, PartialSignature, Proof},
};
use quorate_types::{
    Block, Certificate, Epoch, Evidence, Header, Height, Message, Position, Record, Subject,
    ValidatorIndex, View, Vote, VoteKind,
};
use std::{sync::Arc, time::Duration};

/// A point in time: microseconds since an arbitrary start, monotonic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Moment(pub u64);

impl Moment {
    pub fn after(self, duration: Duration) -> Self {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(micros))
    }

    /// The time since `earlier`; zero if it is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// Identifies a cryptographic check until its verdict comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobId(pub u64);

/// An input of the engine.
#[derive(Clone, Debug)]
pub enum Input {
    /// Messages of one frame from a peer, whose identity the link has proved.
    Frame {
        from: ValidatorIndex,
        messages: Vec<Message>,
    },
    /// A [`Job`] is done.
    Checked { job: JobId, verdict: Verdict },
    /// The block that [`Output::build`] asked for.
    Built {
        view: View,
        /// The block; its header names the requested parent.
        block: Arc<Block>,
    },
    /// The answer to [`Output::validate`].
    Validated {
        view: View,
        block: Digest,
        /// Whether an honest leader could have built it.
        valid: bool,
    },
    /// The operator changes a validator's penalty, or its time is up.
    Ordered {
        validator: ValidatorIndex,
        order: Order,
    },
    /// The link to a validator has come up or gone down, as far as this side knows. It counts as up
    /// until the first such input.
    Linked { peer: ValidatorIndex, up: bool },
    /// A relayed frame has come from a validator without a link: its proposals may be waited for.
    Reached { peer: ValidatorIndex },
    /// Final blocks up to this height, and their changes to the state, are durable outside the
    /// journal.
    Executed { height: Height },
    /// Whether a block is needed as far as this validator knows: for a transaction, or because the
    /// chain is not complete yet ([`crate::Engine::is_complete`]). It counts as needed until the
    /// first such input.
    Pending(bool),
    /// Time has passed. Due at [`crate::Engine::next_deadline`] at the latest.
    Tick,
}

/// An order about a validator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Ignore it. If f validators are blocked already, it goes on probation only.
    Block,
    /// Lift its penalty, whatever it did.
    Pardon,
}

/// The receivers of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// All other validators of the committee.
    All,
    One(ValidatorIndex),
}

/// A message to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outbound {
    pub to: Target,
    pub message: Message,
}

/// Votes of one payload that may make a certificate.
#[derive(Clone)]
pub struct Batch {
    pub subject: Subject,
    /// The subject's signed bytes mapped to the curve, if that was done before.
    pub message: Option<Arc<HashedMessage>>,
    /// Exactly a quorum of distinct signers and their undecoded signatures.
    pub parts: Vec<(u32, PartialSignature)>,
    /// The first so many parts were verified one by one before, or are this validator's own. If the
    /// check fails, only the others are examined.
    pub verified: usize,
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let signers: Vec<u32> = self.parts.iter().map(|(signer, _)| *signer).collect();
        write!(f, "{:?} by {signers:?}", self.subject)
    }
}

/// A cryptographic check, to be done on another thread than the one that steps the engine.
#[derive(Clone, Debug)]
pub struct Job {
    pub id: JobId,
    pub work: Work,
}

/// The work of a [`Job`].
#[derive(Clone, Debug)]
pub enum Work {
    /// Combine and verify once; on failure, name the invalid votes. Answered by
    /// [`Verdict::Certified`].
    Certify(Batch),
    /// Verify certificates that came from a peer. Answered by [`Verdict::Verified`].
    VerifyCertificates(Vec<Certificate>),
    /// Verify votes one by one. Answered by [`Verdict::Verified`].
    VerifyVotes(Vec<Vote>),
}

/// The result of a [`Job`].
#[derive(Clone, Debug)]
pub enum Verdict {
    /// The votes do not verify together. Another verdict for the same job names the invalid ones.
    /// Optional.
    Spoiled,
    /// The batch's proof, or the signers whose votes are invalid (never empty).
    Certified(Result<Proof, Vec<u32>>),
    /// Whether each item verifies, in order.
    Verified(Vec<bool>),
}

/// A request for a block to propose.
#[derive(Clone, Debug)]
pub struct BuildRequest {
    pub epoch: Epoch,
    pub view: View,
    /// The view that notarized the parent.
    pub parent_view: View,
    /// The parent; `None` for the genesis state.
    pub parent: Option<Arc<Block>>,
    /// Ancestors whose effects are not durable outside the journal yet, final or not; newest first,
    /// the parent included. Their transactions must not be proposed again. The new block is
    /// executed on the durable state plus their changes.
    pub unexecuted: Vec<Arc<Block>>,
}

/// A request to check a proposed block's content. Its place in the chain is already checked.
#[derive(Clone, Debug)]
pub struct ValidateRequest {
    pub view: View,
    pub block: Arc<Block>,
    /// Its ancestors whose effects are not durable outside the journal yet, newest first, the
    /// parent included unless it is executed.
    pub unexecuted: Vec<Arc<Block>>,
}

/// A final block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finalized {
    pub block: Arc<Block>,
    /// A finalization of this very block, if there is one; otherwise one of a descendant stands for
    /// it.
    pub certificate: Option<Certificate>,
}

/// Something that a validator did and no honest validator does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Offence {
    /// A vote with an invalid signature. Known only to the validator that checked it.
    InvalidVote,
    /// A proposal that no honest leader makes, whatever it knows.
    InvalidProposal,
    /// A certificate with an invalid proof. Honest validators verify before they pass one on.
    InvalidCertificate,
    /// Evidence whose votes do not conflict or do not verify. Honest validators verify before they
    /// pass it on.
    InvalidEvidence,
    /// No offence known to the engine: the operator has blocked the validator.
    Operator,
    /// Two conflicting votes, which anybody can verify.
    Equivocation,
}

impl Offence {
    /// All of them, the least certain first.
    pub const ALL: [Self; 6] = [
        Self::InvalidVote,
        Self::InvalidProposal,
        Self::InvalidCertificate,
        Self::InvalidEvidence,
        Self::Operator,
        Self::Equivocation,
    ];

    /// A short name for people, programs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::InvalidVote => "invalid_vote",
            Self::InvalidProposal => "invalid_proposal",
            Self::InvalidCertificate => "invalid_certificate",
            Self::InvalidEvidence => "invalid_evidence",
            Self::Operator => "operator",
            Self::Equivocation => "equivocation",
        }
    }

    /// Whether it is proven or the operator's order, and so stands whatever happens. The others are
    /// known to this validator alone and may rest on a fault that has healed.
    pub fn is_certain(self) -> bool {
        matches!(self, Self::Operator | Self::Equivocation)
    }
}

/// The consequence of an offence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Penalty {
    /// All frames of the validator are ignored.
    Blocked,
    /// Its votes are verified one by one before they are buffered.
    Probation,
    /// The penalty was lifted.
    Lifted,
}

/// The proof of an offence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exhibit {
    /// None: the operator's order, or a change of an older penalty.
    None,
    /// The vote with the invalid signature.
    Vote(Box<Vote>),
    /// The header of the proposal, and what is wrong with it.
    Proposal(Box<Header>, Flaw),
    /// The certificate with the invalid proof.
    Certificate(Box<Certificate>),
    /// The conflicting votes; of invalid evidence, what was sent as such.
    Evidence(Box<Evidence>),
}

/// A validator's offence and its penalty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentence {
    pub validator: ValidatorIndex,
    pub offence: Offence,
    pub penalty: Penalty,
    pub exhibit: Exhibit,
}

/// Something that the operator must know about this validator's own key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The journal lacks a vote that this key has cast: it is an old copy.
    OldJournal {
        vote: Subject,
        /// The peer that told, if it was a single one.
        told_by: Option<ValidatorIndex>,
    },
    /// Nothing here says that this key was used before, and the chain is old: the key may have been
    /// restored without its journal, which counts as lost.
    RestoredKey {
        /// The peer that told.
        told_by: ValidatorIndex,
    },
    /// The others have told how far the lost votes can go.
    Recovered {
        /// The first view in which it votes again.
        from: Position,
    },
    /// Another process votes with this key. This validator stops voting.
    KeyElsewhere {
        /// A vote that this validator has not cast.
        vote: Subject,
        /// The peer that told, if it was a single one.
        told_by: Option<ValidatorIndex>,
    },
    /// What the operator said about the surviving journals contradicts the others' answers.
    WordRefused(String),
}

/// Everything that one step wants done, in this order: append `persist` to the journal; start
/// `jobs`, `build` and `validate`; send `send`; sync the journal and then send `votes`.
#[derive(Clone, Debug, Default)]
pub struct Output {
    /// Records for the journal, in order.
    pub persist: Vec<Record>,
    /// Messages that depend on nothing that must be durable: they may be sent at once.
    pub send: Vec<Outbound>,
    /// This validator's votes, and what follows them: they may be sent only after `persist` of this and all earlier steps
    /// is synced.
    pub votes: Vec<Outbound>,
    /// Whether others wait for `votes`. Finalize votes alone are not urgent: they may wait a moment
    /// for the next notarize vote, to share its sync and its frame.
    pub urgent: bool,
    pub jobs: Vec<Job>,
    /// A block to build.
    pub build: Option<BuildRequest>,
    /// Blocks to check.
    pub validate: Vec<ValidateRequest>,
    /// Newly final blocks, ascending and without a gap.
    pub finalized: Vec<Finalized>,
    /// Newly verified evidence.
    pub evidence: Vec<Evidence>,
    /// Changed penalties and their reasons.
    pub sentences: Vec<Sentence>,
    /// The views entered, oldest first.
    pub entered: Vec<View>,
    /// Epochs that have begun, oldest first.
    pub epochs: Vec<Epoch>,
    /// The epoch that is over and executed, if the next one has other validators: this engine has
    /// nothing more to do.
    pub ended: Option<Epoch>,
    /// A leader that may not know the transactions for its block.
    pub remind: Option<ValidatorIndex>,
    /// What happened to this validator's key.
    pub notices: Vec<Notice>,
    /// What was dropped, and why.
    pub dropped: Vec<Dropped>,
    /// Set when the current view begins to wait for something: the proposal cannot be voted for, or
    /// made, without it.
    pub missing: Option<(View, Missing)>,
    /// Set when going on would be unsafe: the node must stop and show this to its operator.
    pub fatal: Option<String>,
}

/// A step of the engine under way: the time, and what it has led to so far.
pub(crate) struct Step {
    pub(crate) now: Moment,
    pub(crate) out: Output,
}

impl Step {
    pub(crate) fn new(now: Moment) -> Self {
        Self {
            now,
            out: Output::default(),
        }
    }

    pub(crate) fn send(&mut self, to: Target, message: Message) {
        self.out.send.push(Outbound { to, message });
    }

    /// Sends a certificate. A nullification follows what this validator has said: it tells its receiver that no more is on its way
    /// (H6, B7).
    pub(crate) fn send_certificate(&mut self, to: Target, certificate: Certificate) {
        let is_nullification = certificate.subject.kind == VoteKind::Nullify;
        let message = Message::Certificate(certificate);
        if is_nullification {
            self.out.urgent = true;
            self.out.votes.push(Outbound { to, message });
        } else {
            self.send(to, message);
        }
    }

    pub(crate) fn drop(&mut self, from: ValidatorIndex, reason: DropReason) {
        self.out.dropped.push(Dropped { from, reason });
    }

    /// Going on would be unsafe: the node stops and shows the reason to its operator.
    pub(crate) fn halt(&mut self, reason: String) {
        self.out.fatal = Some(reason);
    }
}
