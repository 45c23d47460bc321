//! What the machine is told at its start.

use crate::io::Sentence;
use quorate_crypto::Digest;
use quorate_crypto::bls::{HashedMessage, PartialSignature, VoteSecret};
use quorate_types::{
    Block, Certificate, ChainId, Committee, Epoch, EpochLength, Evidence, Height, Nonce, Position,
    ValidatorIndex, View, genesis::BlockLimits,
};
use std::{sync::Arc, time::Duration};

/// Views above the current one whose votes are buffered.
pub const LOOKAHEAD_VIEWS: u64 = 8;

/// Views above the current one whose proposals are buffered.
pub const PROPOSAL_LOOKAHEAD_VIEWS: u64 = 4;

/// Views below the current one whose votes are still taken, for late finality and for evidence.
pub const TAIL_VIEWS: u64 = 16;

/// Views that may be open (above the last finalised one) before the machine stops. A view in
/// which nothing was finalised costs about 300 bytes, and one goes by only when a quorum is there.
pub const MAX_OPEN_VIEWS: usize = 1 << 20;

/// Checks of certificates from one peer that may be under way at once.
pub const MAX_CERTIFICATE_CHECKS_PER_PEER: usize = 8;

/// Finalised blocks that may wait for execution before no more are fetched.
pub const MAX_UNEXECUTED_BLOCKS: u64 = 1_024;

/// Pairs of conflicting votes kept and passed on for each validator. More would prove no more.
pub const MAX_EVIDENCE_PER_VALIDATOR: usize = 16;

/// Messages of one peer for the next epoch that wait for its start: the votes of all kinds of the
/// views that are buffered, their certificates, and a proposal.
pub const MAX_EARLY_MESSAGES: usize = 6 * LOOKAHEAD_VIEWS as usize;

/// Blocks of one leader that are held on its word alone: nobody else has voted for them as far as is
/// known here. It leads at most two of the views that are buffered, unless it is nearly alone.
pub const MAX_PROPOSED_PER_LEADER: usize = 4;

/// Things that may be fetched at once.
pub const MAX_WANTS: usize = 64;

/// Signs this validator's votes: a BLS secret in the node, something cheaper where a simulation is
/// not about cryptography.
pub trait VoteSigner: Send + Sync {
    /// Signs a vote's bytes ([`quorate_types::Subject::signed_bytes`]). The message as it was mapped
    /// to the curve is handed back, since the check of the quorum needs it too.
    fn sign_vote(&self, message: &[u8]) -> (PartialSignature, Option<Arc<HashedMessage>>);
}

impl VoteSigner for VoteSecret {
    fn sign_vote(&self, message: &[u8]) -> (PartialSignature, Option<Arc<HashedMessage>>) {
        let message = Arc::new(HashedMessage::new(message));
        (self.sign(&message), Some(message))
    }
}

/// The validator's own place and key. Without one the machine follows and never votes.
#[derive(Clone)]
pub struct Own {
    /// Its place in the committee.
    pub place: ValidatorIndex,
    /// Its share of the vote key.
    pub secret: Arc<dyn VoteSigner>,
}

/// How long to wait for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// From entering a view until its proposal must be there, while too few proposals were timed to tell.
    pub leader_timeout: Duration,
    /// From entering a view until it must be notarized, while no votes were timed; what is beyond
    /// `leader_timeout` is the most that votes ever get.
    pub view_timeout: Duration,
    /// What both grow to at most, doubling with each view in a row that brings nothing.
    pub max_timeout: Duration,
    /// Between repetitions of what was said in a view, while it does not move.
    pub resend_interval: Duration,
    /// From a request until the next peer is asked.
    pub fetch_timeout: Duration,
    /// How long a leader may wait for something to put into a block, from entering a view after one that
    /// brought a block; zero for never.
    pub idle_interval: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            leader_timeout: Duration::from_millis(1_000),
            view_timeout: Duration::from_millis(2_000),
            max_timeout: Duration::from_secs(30),
            resend_interval: Duration::from_millis(1_000),
            fetch_timeout: Duration::from_millis(500),
            idle_interval: Duration::ZERO,
        }
    }
}

/// How votes are checked and what becomes of who sends invalid ones. All but the first are there to be
/// compared with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum VoteChecking {
    /// A quorum at once, and who spoils it is blocked.
    #[default]
    Together,
    /// A quorum at once, and nobody is ever blocked for an invalid vote.
    TogetherUnblocked,
    /// Each vote when it comes.
    Eager,
}

/// The machine's settings; they never change while it runs.
#[derive(Clone)]
pub struct Config {
    /// The chain.
    pub chain: ChainId,
    /// The validators. The machine moves the committee from epoch to epoch.
    pub committee: Committee,
    /// How many blocks an epoch has.
    pub epoch_length: EpochLength,
    /// How large its blocks may be.
    pub limits: BlockLimits,
    /// Who this validator is.
    pub own: Option<Own>,
    /// How long to wait for what.
    pub timing: Timing,
    /// How votes are checked.
    pub checking: VoteChecking,
    /// Penalties that were in force when the machine last ran.
    pub sentences: Vec<Sentence>,
    /// Verified evidence from when the machine last ran.
    pub evidence: Vec<Evidence>,
    /// The first epoch in which to vote. Above zero for a key whose journal was lost: what it said
    /// in earlier epochs is not known any more.
    pub silent_before: Epoch,
    /// Names this start of the machine, from a source of randomness. Without it the machine asks nobody
    /// what its key has said before, and a journal that is marked as lost stays silent.
    pub nonce: Option<Nonce>,
    /// Whether nothing on this machine says that the key was used before: it is new, or was restored
    /// without its journal.
    pub fresh: bool,
    /// The view that all validators with a journal are in, by the operator's word: for the loss of more
    /// than f journals, with all processes stopped in between.
    pub survivors: Option<Position>,
    /// Whom the operator has pardoned, and up to which epoch and view.
    pub pardons: Vec<(ValidatorIndex, Epoch, View)>,
}

impl Config {
    /// The epoch.
    pub fn epoch(&self) -> Epoch {
        self.committee.epoch()
    }

    /// All validators but this one.
    pub(crate) fn peers(&self) -> Vec<ValidatorIndex> {
        let own = self.own.as_ref().map(|own| own.place);
        let places = self.committee.places();
        places.filter(|place| Some(*place) != own).collect()
    }
}

/// The newest finalised block that is durable outside the journal, from which the machine starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tip {
    /// The view of its finalization within the epoch; 0 for the block that the epoch starts on
    /// (recovery sees to that itself).
    pub view: View,
    /// Its height; 0 for the genesis state.
    pub height: Height,
    /// Its id; zero for the genesis state.
    pub id: Digest,
    /// The block; `None` for the genesis state.
    pub block: Option<Arc<Block>>,
    /// A finalization of the block, if there is one at hand.
    pub certificate: Option<Certificate>,
}

impl Tip {
    /// The genesis state.
    pub fn genesis() -> Self {
        Self {
            view: View(0),
            height: Height(0),
            id: Digest::ZERO,
            block: None,
            certificate: None,
        }
    }
}
