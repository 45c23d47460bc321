//! The engine's settings.

use crate::io::Sentence;
use quorate_crypto::Digest;
use quorate_crypto::bls::{HashedMessage, PartialSignature, VoteSecret};
use quorate_types::{
    Block, Certificate, ChainId, Committees, Epoch, EpochLength, Evidence, Height, Nonce, Position,
    ValidatorIndex, View, Vote,
    genesis::{BlockLimits, Protocol},
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

/// Most final blocks that may wait for execution before fetching pauses.
pub const MAX_UNEXECUTED_BLOCKS: u64 = 1_024;

/// Pairs of conflicting votes kept and passed on for each validator. More would prove nothing more.
pub const MAX_EVIDENCE_PER_VALIDATOR: usize = 16;

/// Messages of one peer for the next epoch that wait for its start: the votes of all kinds of the
/// views that are buffered, their certificates, and a proposal.
pub const MAX_EARLY_MESSAGES: usize = 6 * LOOKAHEAD_VIEWS as usize;

/// Blocks of one leader that are held on its word alone: no other vote for them is known here. A
/// leader whose turns are one view leads at most two of the views that are buffered, unless the committee is tiny; of one
/// that stays, the nearest are kept.
pub const MAX_PROPOSED_PER_LEADER: usize = 4;

/// Most requests under way.
pub const MAX_WANTS: usize = 64;

/// Signs this validator's votes: a BLS secret in the node, something cheaper in simulations that
/// are not about cryptography.
pub trait VoteSigner: Send + Sync {
    /// Signs a vote's bytes ([`quorate_types::Subject::signed_bytes`]). Also returns the message
    /// mapped to the curve, if it was mapped, since the check of the quorum needs it too.
    fn sign_vote(&self, message: &[u8]) -> (PartialSignature, Option<Arc<HashedMessage>>);
}

impl VoteSigner for VoteSecret {
    fn sign_vote(&self, message: &[u8]) -> (PartialSignature, Option<Arc<HashedMessage>>) {
        let message = Arc::new(HashedMessage::new(message));
        (self.sign(&message), Some(message))
    }
}

/// Views of which the certificates are asked for at once, beyond the first.
pub(crate) const MAX_CERTIFICATES_ASKED: u64 = 63;

/// The validator's own place and key. Without them the engine follows and never votes.
#[derive(Clone)]
pub struct Own {
    pub place: ValidatorIndex,
    pub secret: Arc<dyn VoteSigner>,
}

/// Timeouts and intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// From entering a view to its proposal, while too few proposals were timed.
    pub leader_timeout: Duration,
    /// From entering a view to its notarization, while no votes were timed. The part beyond
    /// `leader_timeout` is the most that votes ever get.
    pub view_timeout: Duration,
    /// The maximum of both, which double with each view in a row without a block.
    pub max_timeout: Duration,
    /// Between repetitions of what was sent in a view, while the view does not move.
    pub resend_interval: Duration,
    /// From a request until the next peer is asked.
    pub fetch_timeout: Duration,
    /// How long a leader may wait for transactions, from entering a view after one that brought a
    /// block; zero for not at all.
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

/// How votes are checked, and whether signers of invalid votes are blocked. All but the first exist
/// for comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum VoteChecking {
    /// A quorum at once; signers of invalid votes are blocked.
    #[default]
    Together,
    /// A quorum at once; nobody is blocked for an invalid vote.
    TogetherUnblocked,
    /// Each vote when it arrives.
    Eager,
}

/// The engine's settings, which never change while it runs.
#[derive(Clone)]
pub struct Config {
    pub chain: ChainId,
    pub protocol: Protocol,
    /// The validators of every epoch.
    pub committees: Committees,
    pub epoch_length: EpochLength,
    pub limits: BlockLimits,
    pub own: Option<Own>,
    pub timing: Timing,
    pub checking: VoteChecking,
    /// Penalties in force when the engine last ran.
    pub sentences: Vec<Sentence>,
    /// Verified evidence from when the engine last ran.
    pub evidence: Vec<Evidence>,
    /// The first epoch in which to vote. Above zero for a key whose journal was lost, since its
    /// votes in earlier epochs are unknown.
    pub silent_before: Epoch,
    /// Random, new at each start. Without it the engine sends no inquiry, and a journal that is
    /// marked as lost stays silent.
    pub nonce: Option<Nonce>,
    /// Whether nothing on this machine says that the key was used before: it is new, or was
    /// restored without its journal.
    pub fresh: bool,
    /// Whether this engine goes on from another one of the same process, which voted until its epoch was over, with the
    /// journal that the other one has written.
    pub goes_on: bool,
    /// The newest vote of each other validator that earlier engines of the same process have seen.
    pub seen: Vec<Vote>,
    /// The view of all validators with a journal, as the operator states it: for the loss of more
    /// than f journals, with all processes stopped in between.
    pub survivors: Option<Position>,
    /// The validators that the operator has pardoned, and up to which epoch and view.
    pub pardons: Vec<(ValidatorIndex, Epoch, View)>,
}

impl Config {
    pub(crate) fn peers(&self) -> Vec<ValidatorIndex> {
        let own = self.own.as_ref().map(|own| own.place);
        let places = self.committees.known().places();
        places.filter(|place| Some(*place) != own).collect()
    }
}

/// The newest final block that is durable outside the journal, from which the engine starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tip {
    /// The view of its finalization within the epoch; 0 for the block that the epoch starts on
    /// (recovery sees to it).
    pub view: View,
    /// Zero for the genesis state.
    pub height: Height,
    /// Zero for the genesis state.
    pub id: Digest,
    /// `None` for the genesis state.
    pub block: Option<Arc<Block>>,
    /// A finalization of the block, if there is one at hand.
    pub certificate: Option<Certificate>,
}

impl Tip {
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
