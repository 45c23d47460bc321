//! Basic HotStuff (Yin, Malkhi, Reiter, Golan Gueta and Abraham, 2019): one block for each leader, decided in three phases.
//!
//! A leader's *turn* is three views, p, p + 1 and p + 2, one for each phase. The published protocol's messages are these:
//!
//! | published | here |
//! |---|---|
//! | NEW-VIEW with prepareQC | nullify to all; before it, the newest notarization to the next leader (B6) |
//! | PREPARE, its votes | the proposal of a block B in p, notarize for (B, p) |
//! | prepareQC in PRE-COMMIT, its votes | the notarization of (B, p), notarize for (B, p + 1) |
//! | precommitQC in COMMIT, its votes | the notarization of (B, p + 1), finalize for (B, p) |
//! | commitQC in DECIDE | the finalization of (B, p) |
//!
//! Votes go to the leader, and its certificates to all: seven message delays for a block and for its finality, and n messages
//! each way. Since each phase has a view of its own, a commit vote is for p and a complaint in p + 2 is for p + 2: R1 never keeps a
//! validator that has voted to commit in a turn that came to nothing.
//!
//! What the crate's head says of votes, certificates, the chain, peers, fetching, idling, restart and other validators holds here,
//! too: R1, R2, R6, R7, R10 to R18, R20 to R26, R28, R29, R31. Its R3, R4, R5, R8, R9, R19, R27 and R30 are replaced:
//!
//! **B1. Only upwards.** Votes are cast in the current view, which never goes back, over restarts neither: notarize and
//! nullify for that view, finalize for the first view of its turn.
//!
//! **B2. Moving on.** A notarization of view v leads to v + 1, and a nullification of v or a finalization of v to the
//! first view of the next turn, if that is above the current view. And enter w when f + 1 validators have said nullify in w or above, once
//! nullify was cast in the current view or they have said it *for a while* (H5).
//!   *Why a nullification ends the whole turn:* its leader has failed, and the phases that are left have nothing to vote for.
//!   *Why for a while:* what ended the turn is on its way. Who has it says nullify at once if the next leader is down. The others
//!   followed before they had it, and held the turn against its leader: some skipped it from then on and others waited for it, and with
//!   one of seven killed blocks fell from 60 a second to 10 at times.
//!
//! **B3. Prepare.** In the first view p of a turn, for the first proposal (B, p) from its leader, if neither notarize nor nullify was cast
//! in p, notarize, once
//! - B's parent is known to be notarized in the parent view u, or is the tip, and u is not below the *lock*: the highest view
//!   for whose block this validator has cast finalize, or the view of the newest finalization that it knows;
//! - the turn before is known to be over: its block is final, or one of its views nullified;
//! - the parent is here, its ancestors, the header's form and the application's verdict are as R3 demands.
//!
//! **B4. Pre-commit and commit.** In p + 1, once (B, p) is notarized and B is here: notarize for (B, p + 1), unless
//! nullify was cast in p + 1. In p + 2, once (B, p + 1) and (B, p) are notarized and B is here: finalize for (B, p),
//! unless R1 forbids it. Nobody proposes in these views: who holds the certificate votes, whoever sent it.
//!
//! **B5. Certificates.** Whoever makes a notarization or a finalization of votes sends it to all. Votes go to the
//! leader of the current view. The f + 1 validators after the leader of the next turn send it the finalization, too.
//!   *Why:* the leader of this turn may leave it out, and the others would wait for it. With three of ten doing so, and slow by as much
//!   as was free, 5 % of the blocks were left.
//!
//! **B6. Nullify** in the current view, unless it was cast there, when the timer fires as in R4, or f + 1
//! validators have said nullify in it. It goes to all. Before it, the leader of the next turn gets what its signer knows: its last notarize
//! vote, its newest finalize votes and the newest notarization or finalization that it has.
//!
//! **B7. Propose.** In the first view of its turn, once the turn before is over here, a validator builds on the newest
//! notarized block that it knows. The proposal carries the parent's certificate, a nullification of the turn before
//! unless its block is final, and the newest finalization. If the turn before was nullified, and neither anything
//! notarized in it is known here nor have the nullify votes of a quorum, or the nullification from them, come here with all that was
//! carried before them, what others carry (B6) may still be on its way: then it waits for up to half of the least time that leaders
//! are given, doubled for the nullified turns directly before only (H6).
//!
//! **B8. Said again.** While the view does not move, who is in it repeats the certificate that led furthest, its votes
//! of the view to its leader and nullify to all; the leader its proposal; who has said nullify informs the next leader
//! again (B6).
//!
//! **B9. Lost journals** are as in chained HotStuff (H9): silent to the end of the next epoch.
//!
//! **B10. Time-outs** are those of R20. Only finality ends the back-off, and time-outs double once more with every two
//! rounds of all leaders without any. The phases after the first have the time that votes are given, and a leader owes
//! for those that it lets pass (R21). Second chances (R18) are given as in H10.
//!
//! # Safety
//!
//! *Two blocks of one view are never both notarized:* R1.
//!
//! *If B is final in view p, every block that is notarized in a later view w descends from B or is B.* q validators
//! have cast finalize for (B, p). Let w be the lowest view that contradicts the claim, with a block C. q validators
//! voted for C; the two quorums share an honest one, h. It cast finalize for (B, p) in p + 2 (B1), and held the
//! notarizations of (B, p) and (B, p + 1) then (B4).
//! - w = p + 1: at most one block is notarized there, and that is B.
//! - w = p + 2: no honest validator votes notarize in the last view of a turn.
//! - w in a later turn, its first view: h voted there after p + 2 (B1), so its lock was p or more. C's parent view u is
//!   at least p (B3) and below w. If u = p, C's parent is B, the one block that is notarized in p. If u > p, C's parent
//!   is B or descends from it because w is lowest.
//! - w in a later turn, its second view: C was notarized in the view before (B4), which is above p and below w, so C is
//!   B or descends from it.
//!
//! *Two final blocks are never in conflict:* a final block is notarized in its view (B4), so of the two the later one is.
//!
//! *Over restarts and borders:* as in chained HotStuff.
//!
//! # Liveness
//!
//! Assumed as with simplex: after some moment all messages come within Δ, retries included, and f are faulty at most.
//!
//! - *Honest validators meet in a view.* Let m be the highest view of an honest one. Who came to m by a certificate
//!   repeats it (B8), and all follow. Who came by f + 1 nullify votes follows an honest one that was there before. So
//!   all come to m, or beyond; q of them say nullify in it when their timers fire, unless it ends before. Nothing
//!   forbids that: finalize is never cast for the view that its voter is in, except in the first view of a turn, where
//!   nobody casts it.
//! - *A view ends only if an honest validator wants it to:* a certificate takes q signers, joining f + 1.
//! - *An honest leader's block becomes final.* Who is locked on v has seen the notarization of v + 1, so q validators
//!   hold that of v, and at least one of any q nullify voters tells the leader (B6, B7). So no honest validator refuses
//!   what it builds on, and in its turn all vote in all three phases.

use super::{LostVotes, Rules};
use crate::{
    config::MAX_CERTIFICATES_ASKED,
    dropped::Missing,
    engine::Engine,
    fetch::Want,
    io::{Step, Target},
    rounds::{
        pacemaker::Before,
        proposals::Parent,
        round::{Round, Validity},
    },
};
use quorate_crypto::Digest;
use quorate_types::{
    Block, Certificate, Committee, Message, Proposal, Subject, ValidatorIndex, View, Vote, VoteKind,
};
use std::sync::Arc;

/// The phase of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Prepare,
    PreCommit,
    Commit,
}

pub(crate) struct Basic;

impl Basic {
    fn phase(committee: &Committee, view: View) -> Phase {
        match view.0 - committee.turn_of(view).0 {
            0 => Phase::Prepare,
            1 => Phase::PreCommit,
            _ => Phase::Commit,
        }
    }

    /// The newest notarized block; where it is notarized twice in a turn, in the first of the two views.
    fn newest(engine: &Engine) -> (View, Digest) {
        let (view, id) = engine.newest_notarized();
        let first = engine.committee.turn_of(view);
        match engine.is_notarized((first, id)) {
            Some(true) => (first, id),
            _ => (view, id),
        }
    }

    /// A nullification in the turn before a view.
    fn nullified_before(engine: &Engine, view: View) -> Option<&Certificate> {
        let last = view.previous()?;
        let turn = engine.views.range(engine.committee.turn_of(last)..=last);
        turn.rev()
            .find_map(|(_, round)| round.nullification.as_ref())
    }

    /// Whether the turn before a view is known to be over.
    fn is_over_before(engine: &Engine, view: View) -> bool {
        let first = engine.committee.turn_of(View(view.0 - 1));
        let decided = |round: &Round| round.finalization.is_some();
        engine.tip().view >= first
            || engine.views.get(first).is_some_and(decided)
            || Self::nullified_before(engine, view).is_some()
    }

    /// Whether others may hold a notarization of the turn before that is unknown here.
    fn may_come(engine: &Engine, view: View) -> bool {
        let last = View(view.0 - 1);
        let first = engine.committee.turn_of(last);
        let quorum = engine.committee.quorum();
        let told = |round: &Round| {
            let places = engine.committee.places();
            places.filter(|place| round.has_nullified(*place)).count() >= quorum
        };
        let known = |round: &Round| round.notarized().is_some();
        let turn = || engine.views.range(first..=last).map(|(_, round)| round);
        let is_told = turn().any(told) && !engine.checks.is_notarizing(&(first..=last));
        engine.tip().view < first && !is_told && !turn().any(known)
    }

    /// Votes in the second and third view of a turn.
    fn go_on(engine: &mut Engine, step: &mut Step) {
        // B1, B4
        let view = engine.view();
        let phase = Self::phase(&engine.committee, view);
        if phase == Phase::Prepare || engine.own_place().is_none() {
            return;
        }
        let (first, before) = (engine.committee.turn_of(view), View(view.0 - 1));
        let Some(id) = engine.views.notarized(before) else {
            return;
        };
        let Some(block) = engine.chain.held(&id).map(|held| held.block.clone()) else {
            return;
        };
        if phase == Phase::Commit {
            if engine.views.notarized(first).is_none() {
                let leader = Some(engine.committee.leader(view));
                engine.want(step, Want::Certificates(first, first), leader);
            }
            let said = |engine: &Engine| {
                let round = engine.views.get(first);
                round.is_some_and(|round| round.own.finalize.is_some())
            };
            if !said(engine) {
                engine.try_finalize(step, first);
                step.out.urgent |= said(engine);
            }
            return;
        }
        let certificate = engine
            .views
            .get(before)
            .and_then(|round| round.notarization.clone());
        let round = engine.views.at(view);
        if round.proposal.is_some() {
            return;
        }
        round.proposal = Some(Box::new(Proposal {
            epoch: block.header().epoch,
            view,
            parent_certificate: certificate,
            certificates: Vec::new(),
            block,
        }));
        round.validity = Validity::Valid;
        engine.try_notarize(step);
    }
}

impl Rules for Basic {
    fn after(&self, committee: &Committee, kind: VoteKind, view: View) -> (View, Before) {
        // B2
        match kind {
            VoteKind::Notarize if Self::phase(committee, view) != Phase::Commit => {
                (view.next(), Before::Vote)
            }
            VoteKind::Finalize => (committee.turn_after(view), Before::Block),
            VoteKind::Notarize | VoteKind::Nullify => (committee.turn_after(view), Before::Nothing),
        }
    }

    fn proposes_in(&self, committee: &Committee, view: View) -> bool {
        // B4
        Self::phase(committee, view) == Phase::Prepare
    }

    fn is_in_need(&self, engine: &Engine) -> bool {
        // B10
        engine.lacks_finality()
    }

    fn choose_parent(&self, engine: &mut Engine, step: &mut Step) -> Option<(View, Digest)> {
        let view = engine.view();
        // B7
        let nullified = engine.turns_nullified_before(view);
        let waits = !Self::is_over_before(engine, view)
            || (Self::may_come(engine, view) && engine.pacemaker.gathers(step.now, nullified));
        (!waits).then(|| Self::newest(engine))
    }

    fn check_parent(
        &self,
        engine: &mut Engine,
        step: &mut Step,
        view: View,
        parent: (View, Digest),
    ) -> Parent {
        let leader = Some(engine.shower(view));
        let last = View(view.0 - 1);
        // B3: the lock.
        if parent.0 < engine.lock_view() {
            return Parent::Wrong;
        }
        // B3: the parent.
        match engine.is_notarized(parent) {
            Some(true) => {}
            Some(false) => return Parent::Wrong,
            None => {
                let upto = View(parent.0.0.saturating_add(MAX_CERTIFICATES_ASKED)).min(last);
                let want = Want::Certificates(parent.0, upto);
                engine.lack(step, Missing::Certificate(parent.0), want, leader);
                return Parent::Missing;
            }
        }
        // B3: the turn before.
        if !Self::is_over_before(engine, view) {
            let want = Want::Certificates(engine.committee.turn_of(last), last);
            engine.lack(step, Missing::Nullification(last), want, leader);
            return Parent::Missing;
        }
        Parent::Certified
    }

    fn attachments(&self, engine: &Engine, parent: View, view: View) -> Vec<Certificate> {
        let newest = engine.newest_finalization();
        let newest = newest.filter(|held| held.subject.view < parent);
        let nullified = Self::nullified_before(engine, view);
        nullified.into_iter().chain(newest).cloned().collect()
    }

    fn may_attach(&self, subject: &Subject, parent: View, proposal: &Proposal) -> bool {
        match subject.kind {
            VoteKind::Nullify => subject.view < proposal.view,
            VoteKind::Finalize => subject.view < parent,
            VoteKind::Notarize => false,
        }
    }

    fn proposals_extend_the_tip(&self) -> bool {
        // As in chained HotStuff.
        false
    }

    fn on_notarized(&self, _: &mut Engine, _: &mut Step, _: View) {}

    fn tell(&self, engine: &mut Engine, step: &mut Step, leader: ValidatorIndex) {
        // B6
        engine.carry(step, leader);
    }

    fn on_certificate_made(&self, _: &mut Engine, step: &mut Step, certificate: &Certificate) {
        // B5
        if certificate.subject.kind != VoteKind::Nullify {
            step.send(Target::All, Message::Certificate(certificate.clone()));
        }
    }

    fn receiver(&self, engine: &Engine, vote: &Vote) -> Target {
        // B5, B6
        match vote.subject.kind {
            VoteKind::Nullify => Target::All,
            VoteKind::Notarize | VoteKind::Finalize => {
                Target::One(engine.committee.leader(engine.view()))
            }
        }
    }

    fn leaders_make_finality(&self) -> bool {
        true
    }

    fn join(&self, engine: &mut Engine, step: &mut Step) {
        if engine.own_place().is_none() {
            return;
        }
        // B2
        if let Some(view) = engine.joined_ahead()
            && engine.follows(step.now)
        {
            engine.enter(step, view, false);
        }
        Self::go_on(engine, step);
        // B6
        let view = engine.view();
        if engine.is_given_up(view) && engine.may_cast(view, VoteKind::Nullify) {
            engine.nullify(step);
        }
    }

    fn repeat(&self, engine: &mut Engine, step: &mut Step) {
        // B8
        let view = engine.view();
        if self.proposes_in(&engine.committee, view) {
            engine.repeat_proposal_of(step, view);
        }
        let leader = engine.committee.leader(view);
        let own = engine.views.get(view).map(|round| &round.own);
        let (notarize, nullify) = own.map_or((None, None), |own| (own.notarize, own.nullify));
        let first = engine.views.get(engine.committee.turn_of(view));
        let finalize = first.and_then(|round| round.own.finalize);
        for vote in notarize.into_iter().chain(finalize) {
            engine.say_again(step, Target::One(leader), vote);
        }
        if let Some(vote) = nullify {
            let next = engine.committee.turn_after(engine.view());
            self.tell(engine, step, engine.committee.leader(next));
            engine.say_again(step, Target::All, vote);
        }
    }

    fn newest_parent(&self, engine: &Engine) -> Option<Option<Arc<Block>>> {
        engine.chain.block_at(&Self::newest(engine).1)
    }

    fn doublings(&self, engine: &Engine) -> u32 {
        // B10
        let views = engine.view().0.saturating_sub(engine.tip().view.0);
        let idle = (views / engine.committee.turn()).saturating_sub(1);
        u32::try_from(idle / (2 * engine.committee.size() as u64)).unwrap_or(u32::MAX)
    }

    fn lost_votes(&self) -> LostVotes {
        // B9
        LostVotes::NextEpoch
    }
}
