//! What a protocol decides. Everything else is shared by all of them: slots, the one check, certificates, blocks,
//! fetching, epochs, penalties, leaders, timers, the journal and recovery.
//!
//! A protocol counts views, each with one leader and at most one proposal of it, and has three kinds of votes:
//! *notarize* for a block, *nullify* for a view that brings none, and *finalize*. Of all of them hold: one vote of a kind in a
//! view, and never both nullify and finalize (R1); a vote leaves after the journal's sync (R2); a quorum of finalize votes
//! makes the block and its ancestors final (R10). So a finalization means the same to followers, explorers, light
//! clients and state sync, whatever the protocol.
//!
//! To add one, implement [`Rules`] in a module of its own. "Adding a protocol" in `ARCHITECTURE.md` lists all places that
//! know of protocols.

pub(crate) mod basic;
pub(crate) mod hotstuff;
mod locks;
pub(crate) mod pbft;
pub(crate) mod simplex;

use crate::{
    engine::Engine,
    io::{Step, Target},
    rounds::{pacemaker::Before, proposals::Parent},
};
use quorate_crypto::Digest;
use quorate_types::{
    Block, Certificate, Committee, Proposal, Subject, ValidatorIndex, View, Vote, VoteKind,
    genesis::Protocol,
};
use std::sync::Arc;

/// What a protocol decides. Methods are called by the shared parts, and change the engine through them.
pub(crate) trait Rules: Sync {
    /// The view that a certificate lets a validator enter, and what that says of the view before.
    fn after(&self, _committee: &Committee, kind: VoteKind, view: View) -> (View, Before) {
        (view.next(), (kind != VoteKind::Nullify).into())
    }

    /// Whether a view's leader proposes in it. In other views a certificate is all that is voted upon.
    fn proposes_in(&self, _committee: &Committee, _view: View) -> bool {
        true
    }

    /// Whether this validator's complaints forbid it to vote for blocks of a view, beyond what R1 says of that view.
    fn is_out(&self, _engine: &Engine, _view: View) -> bool {
        false
    }

    /// Whether a time-out, or several views without a block, say that the blocked validators may be needed (R18): with simplex always.
    fn is_in_need(&self, _engine: &Engine) -> bool {
        true
    }

    /// Whether a vote in a view binds its voter in later views.
    fn binds_beyond_views(&self) -> bool {
        false
    }

    /// The view and the block to build on, for the leader of the current view; `None` while it has to wait.
    fn choose_parent(&self, engine: &mut Engine, step: &mut Step) -> Option<(View, Digest)>;

    /// Whether a voter may follow a proposal's parent in the current view.
    fn check_parent(
        &self,
        engine: &mut Engine,
        step: &mut Step,
        view: View,
        parent: (View, Digest),
    ) -> Parent;

    /// The certificates that a proposal carries beside its parent's.
    fn attachments(&self, engine: &Engine, parent: View, view: View) -> Vec<Certificate>;

    /// Whether an honest leader attaches such a certificate to a proposal of the same epoch, on a parent of this view.
    fn may_attach(&self, subject: &Subject, parent: View, proposal: &Proposal) -> bool;

    /// Whether every proposal above the tip's view descends from the tip, so that one which does not is an offence.
    fn proposals_extend_the_tip(&self) -> bool;

    /// A view's notarization and its block are here, or one of the two.
    fn on_notarized(&self, engine: &mut Engine, step: &mut Step, view: View);

    /// A view's nullification is here.
    fn on_nullified(&self, _engine: &mut Engine, _step: &mut Step, _view: View) {}

    /// This validator has cast notarize in the current view.
    fn on_own_notarize(&self, _engine: &mut Engine, _step: &mut Step, _view: View) {}

    /// Tells the leader of the next turn what it may wait for, before it hears that this one has failed.
    fn tell(&self, _engine: &mut Engine, _step: &mut Step, _leader: ValidatorIndex) {}

    /// A certificate was made of votes, and not received.
    fn on_certificate_made(
        &self,
        _engine: &mut Engine,
        _step: &mut Step,
        _certificate: &Certificate,
    ) {
    }

    /// To whom a vote goes that was cast in the current view.
    fn receiver(&self, _engine: &Engine, _vote: &Vote) -> Target {
        Target::All
    }

    /// Whether votes for blocks go to a leader only.
    fn votes_go_to_leaders(&self) -> bool {
        false
    }

    /// Whether the leader of a turn makes and sends what the next one waits for.
    fn leaders_make_finality(&self) -> bool {
        false
    }

    /// Gives views up, or enters them, as far as the others' votes demand.
    fn join(&self, engine: &mut Engine, step: &mut Step);

    /// What is said again while the view does not move, beside the certificates.
    fn repeat(&self, engine: &mut Engine, step: &mut Step);

    /// The block that the current view's leader builds on, if all is as far as it is known here.
    fn newest_parent(&self, engine: &Engine) -> Option<Option<Arc<Block>>>;

    /// The newest block that all who know this notarized one know as final, or soon will by votes alone. `None` if that is not
    /// known here.
    fn final_below(&self, _: &Engine, block: &Arc<Block>) -> Option<Arc<Block>> {
        Some(block.clone())
    }

    /// How many blocks must be built on one before all know that it is final. With most protocols votes make it final
    /// without any.
    fn blocks_above_a_final_one(&self) -> u64 {
        0
    }

    /// How often time-outs are doubled because nothing becomes final although there are blocks.
    fn doublings(&self, engine: &Engine) -> u32;

    /// How far votes that a journal has lost can go beyond the newest certificate that enough others hold.
    fn lost_votes(&self) -> LostVotes;
}

/// How far lost votes can go beyond a certificate (R27).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LostVotes {
    /// So many views in its epoch, and in the first ones of the next.
    Views(u64),
    /// To the end of the next epoch. What was voted for in an epoch binds its voter until the epoch ends.
    NextEpoch,
}

/// The rules of a protocol.
pub(crate) fn of(protocol: Protocol) -> &'static dyn Rules {
    match protocol {
        Protocol::Simplex => &simplex::Simplex,
        Protocol::HotstuffChained => &hotstuff::Chained,
        Protocol::HotstuffBasic => &basic::Basic,
        Protocol::Pbft => &pbft::Pbft,
    }
}
