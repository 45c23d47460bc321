//! PBFT (Castro and Liskov, 1999) over a chain of blocks, with certificates of one BLS signature in place of sets of messages.
//!
//! A leader stays until it fails. Its *turn* is what PBFT calls a view: up to 100 views of this engine (P5), each with
//! one block, which PBFT calls sequence numbers. The published protocol's messages are these:
//!
//! | published | here |
//! |---|---|
//! | PRE-PREPARE of number s | the proposal of a block in view s |
//! | PREPARE; *prepared* | notarize to all; the notarization, which each makes itself |
//! | COMMIT; *committed* | finalize to all; the finalization |
//! | CHECKPOINT of 2f + 1 replicas, *stable* | the finalization of each block |
//! | low and high watermark | the tip; the window of R14 above the current view |
//! | VIEW-CHANGE with what is prepared | nullify of the current view to all; the notarization of the view before is repeated (R22) |
//! | NEW-VIEW with 2f + 1 VIEW-CHANGEs | the first proposal of the next turn: with the nullification and the newest notarization |
//!
//! The published protocol takes a checkpoint every so many requests (100 in its example), and needs it to be stable
//! before it can drop its log. Here the finalization of each block is such a stable checkpoint: it certifies the block
//! and the earlier state that its header names, and the journal need not keep votes and certificates of views up to the
//! tip's (R26). So the tip is the low watermark, and checkpoints take no messages of their own.
//!
//! So a block takes two message delays, and is final after three, with n² messages, as with simplex; what differs is
//! that the same leader goes on. A dead leader costs one time-out until the chain has passed it, not one in each round;
//! a slow one, or one that is far away, makes all blocks slow for as long as its turn lasts.
//!
//! What the crate's head says of votes, certificates, the chain, peers, fetching, idling, restart and other validators
//! holds here, too: R1, R2, R4 to R7, R9 to R18, R20 to R26, R28, R29, R31; debts (R21) are counted by views. Its R3,
//! R8, R19, R27 and R30 are replaced, and rules are added:
//!
//! **P1. Who has complained is out.** After nullify in view v a validator casts neither notarize nor finalize in v or a
//! later view of the same turn, until a finalization of that turn in v or above is there. That a block of the turn is
//! final because a later turn's is, says nothing of that. Nor does it cast one of them in a view that it knows to be
//! covered (P2). Meanwhile it follows the turn, and says nullify again when a timer of a later view fires (R4).
//!   *Why:* a nullification of v ends the turn (P2), so nothing in v or above may become final beside it.
//!   *Why only until then:* if a block is final in a view w ≥ v, q validators have cast finalize there without having
//!   said nullify in v; so v is never nullified.
//!   *Why it follows:* a quorum that goes on without it need not wait for it, and takes it back with the next final
//!   block; one that cannot go on comes to a stop in the same view as it, and all complain there.
//!
//! **P2. Moving on.** A notarization or finalization of view v leads to v + 1, and a nullification of v to the first view of the next
//! turn, if that is above the current view. It *covers* v and all later views of its turn.
//!
//! **P3. Prepare.** Notarize as in R3, but where R3 asks for nullifications: in the first view of a turn, every view
//! between the parent view and v is known to be covered; in the others, the parent view is v − 1.
//!
//! **P4. Lead.** In the first view of its turn a leader builds on the newest notarized block above which every view is
//! covered, and fetches what it lacks for that (R23). The proposal carries the parent's certificate and a nullification
//! for each turn that was cut short. In the others it builds on the block of the view before.
//!
//! **P5. A turn ends** after 100 views also if nobody complains; on a chain with a registry after so few that in half
//! of an epoch each validator has two turns, so that each is heard (N3 of `types/src/registry/next.rs`) and the set can
//! change. A leader chooses what is in its blocks, and a transaction may reach the other validators and not it: the
//! published protocol has a timer for each request, here the turn's end bounds how long one waits. Whoever is out (P1)
//! is in again.
//!
//! **P6. No finality, no turn.** In the 17th view after the newest finalization known, or of the turn if that is later,
//! and in those after it, nullify is said at once.
//!   *Why:* f faulty validators can help to prepare blocks and then not commit them, while the honest ones that would
//!   be needed are out. Views would go by, and no timer fire. Turns of 16 views or fewer end before that (P5), and
//!   whoever is out is in again.
//!
//! **P7. Lost journals.** What was said in a turn binds until its end, so they are as in chained HotStuff (H9): silent
//! to the end of the next epoch.
//!
//! **P8. Time-outs** are those of R20, and double once more with every turn, beyond f in a row, in which nothing became final.
//!   *Why beyond f:* so many turns are lost to leaders that do not lead, which longer time-outs would not help; R21 has
//!   to keep track of them. *Why unbounded:* honest leaders whose blocks come too late are waited for in the end.
//!   *Why:* by R20 a notarized block ends the back-off. A validator whose timer fires too early is out for a turn (P1),
//! so without this nothing need ever become final. Second chances (R18) are given as in H10.
//!
//! # Safety
//!
//! *Two blocks of one view are never both notarized:* R1.
//!
//! *No view is final that is covered.* Let v be covered by a nullification of x ≤ v in the same turn, and a block be
//! final in v. The two quorums share an honest validator. It has cast nullify in x and finalize in v. Nullify came
//! first, since finalize in v is cast upon the notarization of v, and from then on its view was above v ≥ x (R4: in the
//! current view only). Then by P1 it had a final block of this turn in a view of x or above before; take the first such
//! block that any honest validator had, in view w: its q finalize votes and the nullification's q nullify votes share
//! an honest validator, for which the same holds with w in place of v, and no such block was there before. So there is
//! none.
//!
//! *So no block conflicts with a final one.* Let B be final in view v, and C be notarized in the lowest view w > v that
//! does not descend from B. If w is no first view of a turn, C's parent is notarized in w − 1 (P3): it is B, if that is
//! v, or descends from B because w is lowest. If it is, C's parent view u is either v or above, and the same holds; or
//! it is below v, and v is covered (P3).
//!
//! *Over restarts:* nullify votes above the tip are in the journal (R26); those at or below the view of the tip's
//! finalization bind no more, by P1. A stored tip that has none of its own counts as that of the view before its own:
//! its view may be nullified. The views below are not, since q validators said notarize in it that were not out. *Over
//! borders:* as with simplex.
//!
//! # Liveness
//!
//! Assumed as with simplex: after some moment all messages come within Δ, retries included, and f are faulty at most.
//!
//! - *Honest validators meet in a view,* as with simplex: who is behind is sent what leads further.
//! - *A turn that does not go on ends.* If the current view of all honest validators brings no notarization, all say
//!   nullify in it when their timers fire. If each brings one and nothing becomes final, those that know the oldest
//!   finalization are out first (P6), and the others a view or two later, where they come to a stop or say nullify as
//!   well.
//! - *An honest leader's turn goes on* once the timers are longer than it needs: nobody is out at its start, since that
//!   is a view of another turn, and all honest validators vote for what it proposes (P3, P4), notarize and then
//!   finalize.

use super::{LostVotes, Rules};
use crate::{
    config::MAX_CERTIFICATES_ASKED,
    dropped::Missing,
    engine::Engine,
    fetch::Want,
    io::Step,
    rounds::{pacemaker::Before, proposals::Parent},
};
use quorate_crypto::Digest;
use quorate_types::{
    Block, Certificate, Committee, Proposal, Subject, View, VoteKind,
    limits::MAX_PROPOSAL_CERTIFICATES,
};
use std::sync::Arc;

/// Views of a turn that may go by without finality.
const MAX_UNDECIDED: u64 = 16;

pub(crate) struct Pbft;

impl Pbft {
    /// The nullification that covers a view: the first of its turn up to it.
    fn cover(engine: &Engine, view: View) -> Option<&Certificate> {
        let mut turn = engine.views.range(engine.committee.turn_of(view)..=view);
        turn.find_map(|(_, round)| round.nullification.as_ref())
    }

    /// The first view between two views that is not covered here.
    fn uncovered(engine: &Engine, parent: View, view: View) -> Option<View> {
        let mut at = parent.next();
        while at < view {
            if Self::cover(engine, at).is_none() {
                return Some(at);
            }
            at = engine.committee.turn_after(at);
        }
        None
    }

    /// Requests what covers a view, or notarizes it.
    fn lack(engine: &mut Engine, step: &mut Step, uncovered: View) {
        let leader = Some(engine.shower(engine.view()));
        let last = View(uncovered.0.saturating_add(MAX_CERTIFICATES_ASKED));
        // The parent's own view may be nullified, too, and cover those after it.
        let first = View(uncovered.0 - 1).max(engine.committee.turn_of(uncovered));
        let want = Want::Certificates(first, last.min(View(engine.view().0 - 1)));
        engine.lack(step, Missing::Nullification(uncovered), want, leader);
    }
}

impl Rules for Pbft {
    fn after(&self, committee: &Committee, kind: VoteKind, view: View) -> (View, Before) {
        // P2, P5: the last view of a turn is followed by the next turn's first.
        match kind {
            VoteKind::Nullify => (committee.turn_after(view), Before::Nothing),
            VoteKind::Notarize | VoteKind::Finalize => (view.next(), Before::Block),
        }
    }

    fn is_out(&self, engine: &Engine, view: View) -> bool {
        // P1
        let first = engine.committee.turn_of(view).max(engine.tip().view.next());
        first <= view && {
            let mut turn = engine.views.range(first..=view);
            turn.any(|(_, round)| round.own.nullify.is_some() || round.nullification.is_some())
        }
    }

    fn binds_beyond_views(&self) -> bool {
        // P1
        true
    }

    fn is_in_need(&self, engine: &Engine) -> bool {
        // P8
        engine.lacks_finality()
    }

    fn choose_parent(&self, engine: &mut Engine, step: &mut Step) -> Option<(View, Digest)> {
        let view = engine.view();
        // P1
        if self.is_out(engine, view) {
            return None;
        }
        // P4
        let newest = engine.newest_notarized();
        if let Some(uncovered) = Self::uncovered(engine, newest.0, view) {
            Self::lack(engine, step, uncovered);
            return None;
        }
        Some(newest)
    }

    fn check_parent(
        &self,
        engine: &mut Engine,
        step: &mut Step,
        view: View,
        parent: (View, Digest),
    ) -> Parent {
        let starts_turn = engine.committee.turn_of(view) == view;
        // P3
        if parent.0 < engine.tip().view || (!starts_turn && parent.0.next() != view) {
            return Parent::Wrong;
        }
        match engine.is_notarized(parent) {
            Some(true) => {}
            Some(false) => return Parent::Wrong,
            None => {
                let leader = Some(engine.shower(view));
                let want = Want::Certificates(parent.0, parent.0);
                engine.lack(step, Missing::Certificate(parent.0), want, leader);
                return Parent::Missing;
            }
        }
        if let Some(uncovered) = Self::uncovered(engine, parent.0, view) {
            Self::lack(engine, step, uncovered);
            return Parent::Missing;
        }
        Parent::Certified
    }

    fn attachments(&self, engine: &Engine, parent: View, view: View) -> Vec<Certificate> {
        let mut covers = Vec::new();
        let mut at = parent.next();
        while at < view && covers.len() < MAX_PROPOSAL_CERTIFICATES {
            covers.extend(Self::cover(engine, at).cloned());
            at = engine.committee.turn_after(at);
        }
        covers
    }

    fn may_attach(&self, subject: &Subject, _: View, proposal: &Proposal) -> bool {
        subject.kind == VoteKind::Nullify && subject.view < proposal.view
    }

    fn proposals_extend_the_tip(&self) -> bool {
        true
    }

    fn on_notarized(&self, engine: &mut Engine, step: &mut Step, view: View) {
        engine.try_finalize(step, view);
    }

    fn join(&self, engine: &mut Engine, step: &mut Step) {
        engine.take_up(step);
        engine.join_nullify(step);
        // P6
        let view = engine.view();
        let decided = engine.staging.target_view().max(Some(engine.tip().view));
        let start = View(engine.committee.turn_of(view).0 - 1);
        let undecided = view
            .0
            .saturating_sub(start.max(decided.unwrap_or_default()).0);
        if undecided > MAX_UNDECIDED && !engine.epoch_is_over() {
            engine.nullify(step);
        }
    }

    fn repeat(&self, engine: &mut Engine, step: &mut Step) {
        super::simplex::Simplex.repeat(engine, step);
    }

    fn newest_parent(&self, engine: &Engine) -> Option<Option<Arc<Block>>> {
        let (view, id) = engine.newest_notarized();
        let complete = Self::uncovered(engine, view, engine.view()).is_none();
        complete.then(|| engine.chain.block_at(&id)).flatten()
    }

    fn doublings(&self, engine: &Engine) -> u32 {
        // P8
        let committee = &engine.committee;
        let decided = engine.staging.target_view().unwrap_or_default();
        let decided = decided.max(engine.tip().view);
        // In a view whose leader leads, the block of the view before the last may be the newest final one.
        let expected = View(decided.0.saturating_add(2));
        let since = committee.turn_of(engine.view()).0;
        let since = since.saturating_sub(committee.turn_of(expected).0);
        let lost = (since / committee.turn()).saturating_sub(committee.faults() as u64);
        u32::try_from(lost).unwrap_or(u32::MAX)
    }

    fn lost_votes(&self) -> LostVotes {
        // P7
        LostVotes::NextEpoch
    }
}
