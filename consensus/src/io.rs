//! What goes into the machine and what comes out.

use crate::judge::Flaw;
use quorate_crypto::{
    Digest,
    bls::{HashedMessage, PartialSignature, Proof},
};
use quorate_types::{
    Block, Certificate, Epoch, Evidence, Header, Height, Message, Position, Record, Subject,
    ValidatorIndex, View, Vote,
};
use std::{sync::Arc, time::Duration};

/// A point in time: microseconds since an arbitrary start that never moves backwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Moment(pub u64);

impl Moment {
    /// The moment this much later.
    pub fn after(self, duration: Duration) -> Self {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(micros))
    }

    /// How long after `earlier` this is; zero if it is before.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// Names one piece of cryptographic work until its result comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobId(pub u64);

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// Messages of one frame from a peer, whose identity the link has proved.
    Frame {
        /// Who sent it.
        from: ValidatorIndex,
        /// The messages, in order.
        messages: Vec<Message>,
    },
    /// A [`Job`] is done.
    Checked {
        /// Which one.
        job: JobId,
        /// What came out.
        verdict: Verdict,
    },
    /// The block that [`Output::build`] asked for.
    Built {
        /// The view it was asked for.
        view: View,
        /// The block; its header names the asked parent.
        block: Arc<Block>,
    },
    /// The answer to [`Output::validate`].
    Validated {
        /// The view it was proposed in.
        view: View,
        /// The block's id.
        block: Digest,
        /// Whether an honest leader could have built it.
        valid: bool,
    },
    /// The operator, or the end of a penalty's time, changes what is thought of a validator.
    Ordered {
        /// Who.
        validator: ValidatorIndex,
        /// What is to become of it.
        order: Order,
    },
    /// The link to a validator has come up or ended, as far as this side knows. Until the first such
    /// word it counts as up.
    Linked {
        /// Who is at the other end.
        peer: ValidatorIndex,
        /// Whether the link is up now.
        up: bool,
    },
    /// Something has come from a validator without a link to it, by way of another: its proposals may
    /// be waited for.
    Reached {
        /// Who has said it.
        peer: ValidatorIndex,
    },
    /// Finalised blocks up to this height, and what they changed, are durable outside the
    /// journal.
    Executed {
        /// The height.
        height: Height,
    },
    /// Whether something is known here that needs a block: a transaction that can go into one, or a
    /// chain that is not complete yet ([`crate::Engine::is_complete`]). It counts as so until the first
    /// such word.
    Pending(bool),
    /// Time has passed. Due at [`crate::Engine::next_deadline`] at the latest.
    Tick,
}

/// What is ordered about a validator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Listen to it no more. If f validators are blocked already, it goes on probation only.
    Block,
    /// Believe it again, whatever it did.
    Pardon,
}

/// To whom a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// All other validators of the committee.
    All,
    /// One of them.
    One(ValidatorIndex),
}

/// A message on its way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outbound {
    /// To whom.
    pub to: Target,
    /// What.
    pub message: Message,
}

/// Votes of one payload that may make a certificate.
#[derive(Clone)]
pub struct Batch {
    /// What is voted for.
    pub subject: Subject,
    /// The subject's signed bytes on the curve, if they were mapped there before.
    pub message: Option<Arc<HashedMessage>>,
    /// Exactly a quorum of distinct signers and their undecoded signatures.
    pub parts: Vec<(u32, PartialSignature)>,
    /// So many of the parts, the first, were verified one by one before (or are this validator's
    /// own): if the check fails, only the others are looked at.
    pub verified: usize,
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let signers: Vec<u32> = self.parts.iter().map(|(signer, _)| *signer).collect();
        write!(f, "{:?} by {signers:?}", self.subject)
    }
}

/// Cryptographic work, to be done off the thread that steps the machine.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its name.
    pub id: JobId,
    /// What to do.
    pub work: Work,
}

/// What a [`Job`] is to find out.
#[derive(Clone, Debug)]
pub enum Work {
    /// Combine and verify once; on failure, name the invalid. Answered by [`Verdict::Certified`].
    Certify(Batch),
    /// Verify certificates that came from a peer. Answered by [`Verdict::Verified`].
    VerifyCertificates(Vec<Certificate>),
    /// Verify votes one by one. Answered by [`Verdict::Verified`].
    VerifyVotes(Vec<Vote>),
}

/// What a [`Job`] found out.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// The batch does not hold; who spoiled it is told by another verdict for the same job. May be
    /// left out.
    Spoiled,
    /// The batch's proof, or the signers whose votes are invalid (never empty).
    Certified(Result<Proof, Vec<u32>>),
    /// For each item, in order, whether it holds.
    Verified(Vec<bool>),
}

/// A request for a block to propose.
#[derive(Clone, Debug)]
pub struct BuildRequest {
    /// The epoch of the view.
    pub epoch: Epoch,
    /// The view to propose it in.
    pub view: View,
    /// The view that notarized the parent.
    pub parent_view: View,
    /// The parent, or `None` for the genesis state.
    pub parent: Option<Arc<Block>>,
    /// Ancestors whose effects are not durable outside the journal yet, whether they are final or not;
    /// newest first, the parent included. What they hold must not be proposed again, and the state that
    /// the new block is executed on is the durable one and theirs.
    pub unexecuted: Vec<Arc<Block>>,
}

/// A request to check a proposed block's content. Its place in the chain is already checked.
#[derive(Clone, Debug)]
pub struct ValidateRequest {
    /// The view it is proposed in.
    pub view: View,
    /// The block.
    pub block: Arc<Block>,
    /// Its ancestors whose effects are not durable outside the journal yet, newest first, the parent
    /// included unless it is executed.
    pub unexecuted: Vec<Arc<Block>>,
}

/// A block that can never be undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finalized {
    /// The block.
    pub block: Arc<Block>,
    /// A finalization of this very block, if this validator has one; otherwise one of a
    /// descendant stands for it.
    pub certificate: Option<Certificate>,
}

/// What a validator did that no honest one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Offence {
    /// A vote whose signature does not verify. Known only to whoever checked it.
    InvalidVote,
    /// A proposal that no honest leader makes, whatever it knows.
    InvalidProposal,
    /// A certificate whose proof does not verify; honest validators verify before they pass on.
    InvalidCertificate,
    /// Evidence whose votes do not conflict or verify; honest validators verify before they pass
    /// on.
    InvalidEvidence,
    /// No offence known to the machine: its operator has blocked the validator.
    Operator,
    /// Two votes that conflict; provable to everybody.
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

    /// Whether it stands whatever else happens: it is proven, or the operator wants it so. The
    /// others are known to this validator alone and may rest on a fault that has healed.
    pub fn is_certain(self) -> bool {
        matches!(self, Self::Operator | Self::Equivocation)
    }
}

/// What an offence led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Penalty {
    /// Nothing of the validator is listened to any more.
    Blocked,
    /// Its votes are verified one by one before they are buffered.
    Probation,
    /// It is believed again.
    Lifted,
}

/// What shows an offence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exhibit {
    /// Nothing: the operator's word, or a change of an older penalty.
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

/// A validator's offence and what it led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentence {
    /// Who.
    pub validator: ValidatorIndex,
    /// What it did.
    pub offence: Offence,
    /// What became of it.
    pub penalty: Penalty,
    /// What shows it.
    pub exhibit: Exhibit,
}

/// What an operator should know of this validator's own key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The journal lacks a vote that this key has cast: it is an old copy.
    OldJournal {
        /// The vote.
        vote: Subject,
        /// Who told, if a single peer did.
        told_by: Option<ValidatorIndex>,
    },
    /// Nothing here says that this key was used before, and the chain has gone on for long: it may have
    /// been restored without its journal, which counts as lost.
    RestoredKey {
        /// Who told of the chain.
        told_by: ValidatorIndex,
    },
    /// The others have told how far the lost votes can go.
    Recovered {
        /// The first view in which it votes again.
        from: Position,
    },
    /// Somebody else votes with this key. It does not vote any more.
    KeyElsewhere {
        /// A vote that this machine has not cast.
        vote: Subject,
        /// Who told, if a single peer did.
        told_by: Option<ValidatorIndex>,
    },
    /// The operator's word on the surviving journals does not fit what the others say.
    WordRefused(String),
}

/// Everything that one step wants done, in this order: append `persist` to the journal; start
/// `jobs`, `build` and `validate`; send `send`; sync the journal and then send `votes`.
#[derive(Clone, Debug, Default)]
pub struct Output {
    /// Rows for the journal, in order.
    pub persist: Vec<Record>,
    /// Messages that depend on nothing that is not durable: they may leave at once.
    pub send: Vec<Outbound>,
    /// The validator's own votes: they leave only after `persist`, of this and all earlier steps,
    /// is synced.
    pub votes: Vec<Outbound>,
    /// Whether others wait for `votes`. Finalize votes alone are not urgent: they may wait a
    /// moment for the next notarize vote, to share its sync and its frame.
    pub urgent: bool,
    /// Cryptographic work.
    pub jobs: Vec<Job>,
    /// A block to build.
    pub build: Option<BuildRequest>,
    /// Blocks to check.
    pub validate: Vec<ValidateRequest>,
    /// Newly finalised blocks, ascending and without a gap.
    pub finalized: Vec<Finalized>,
    /// Newly verified evidence.
    pub evidence: Vec<Evidence>,
    /// Whose standing has changed, and why.
    pub sentences: Vec<Sentence>,
    /// The views entered, oldest first.
    pub entered: Vec<View>,
    /// Epochs that have begun, oldest first.
    pub epochs: Vec<Epoch>,
    /// A leader that perhaps does not know of the transactions that are to go into its block.
    pub remind: Option<ValidatorIndex>,
    /// What happens to this validator's key.
    pub notices: Vec<Notice>,
    /// Set when going on would be unsafe: the node must stop and show this to its operator.
    pub fatal: Option<String>,
}
