//! Chained HotStuff (Yin, Malkhi, Reiter, Golan Gueta and Abraham, 2019) with rotating leaders.
//!
//! In one view all goes well like this: the leader proposes a block on the newest notarized one, with its
//! notarization (H6); the others check it, send notarize to the *next* leader (H3), and are in the next view (H2). That leader makes
//! the notarization of q votes and proposes on it. So a view takes two message delays and n messages each way, where
//! simplex takes n² votes. A vote for a block says more about those below it: with the vote for the third of three blocks of
//! consecutive views its voter casts finalize for the first (H4), to the same leader in the same frame. q of these make it final.
//!
//! What the crate's head says of votes, certificates, the chain, peers, fetching, idling, restart and other validators holds here,
//! too, with its symbols: R1, R2, R6, R7, R10 to R18, R20 to R26, R28, R29, R31. Its R3, R4, R5, R8, R9, R19, R27 and R30 are replaced:
//!
//! **H1. Only upwards.** Notarize and nullify are cast in the current view; the current view never goes back, over restarts
//! neither. The one exception is nullify in the view before (H5), which no rule of safety asks for.
//!
//! **H2. Moving on.** Upon a certificate of view v at or above the current view, enter v + 1. Upon having cast notarize in v, too: what
//! comes next is the turn of the leader of v + 1. And enter w when f + 1 validators have said nullify in w or above, once they have
//! *for a while* (H5): an honest one among them is there. If the view before is nullified after that, the timers begin anew: its leader could not propose earlier.
//!
//! **H3. Notarize.** For the first proposal (B, v) of the current view v, from leader(v), if neither notarize nor nullify was cast
//! in v, once
//! - B's parent is known to be notarized in the parent view u, or is the tip, and u is not below the *lock*: the highest view
//!   for whose block this validator has cast finalize, or the view of the newest finalization that it knows;
//! - view v − 1 is u, or known to be nullified;
//! - the parent is here, its ancestors, the header's form and the application's verdict are as R3 demands.
//!
//! It goes to leader(v + 1). What f + 1 validators have voted for in the current view, and the leader has not sent here, is fetched at once
//! from them, and treated as if it had.
//!   *Why:* these votes come to the next leader. A faulty leader that leaves it out and shows its proposal to some others could
//!   otherwise have the next, honest leader's turn fail each time, and three good ones in a row never come.
//!   *Why v − 1:* so no leader abandons a block that is notarized in the view before while the others go on; and see *Liveness*,
//!   *Honest validators meet in a view*.
//!
//! **H4. Finalize.** With the vote for (B, v): if its parent B′ was notarized in v − 1 and B′'s parent B″ in v − 2,
//! finalize for B″ in v − 2, unless R1 forbids it, or B″ or its notarization is not here. It goes to leader(v + 1),
//! too.
//!   *This is the three-chain of the published protocol:* its replicas decide on B″ when they see a quorum of votes for B. Said
//!   aloud, the same quorum gives one certificate that a light client, a follower or an explorer checks without seeing
//!   the two blocks above, and that stays valid if those are abandoned. It costs no delay, since the votes for B and the finalize votes for
//!   B″ come to the same leader at once.
//!   *No two-chain* (HotStuff-2, Jolteon): with it, finalize for B′ in v − 1 would be said with the vote for B. That is as
//!   safe (x = v + 1 in the proof below). But an honest validator can then be locked on a block whose notarization no quorum
//!   has, and a leader must wait for it; and a faulty leader of v could keep B′ from becoming final, since it can
//!   have v − 1 nullified (H5). Simplex is final sooner still.
//!
//! **H5. Nullify** is the *complaint* of the source's pacemaker, and a nullification its next-view certificate. In the
//! current view, unless nullify or finalize was cast in it, when the leader timer or the view timer fires as in R4, or
//! f + 1 validators have said nullify in it *for a while*. In the view before, if it was entered by a vote and nothing has ended it
//! since, when f + 1 validators have said nullify in *it*, or the leader of the current view has; that leader does after half of
//! the usual time, which doubles as what leaders may take for nothing (R21). A while is what the proposal of the slowest leader but f
//! takes and 5 ms, and no more than half of the usual time. Nullify goes to all. Before it, the leader of the next view
//! gets what its signer knows: its last notarize vote, its newest finalize votes and the newest notarization that it
//! has.
//!   *Why the leader's word is enough:* it may propose only once the view before has ended (H6), and whoever has voted there waits for it. A
//!   faulty leader of the view before can show its proposal to some, or others to each, and keep its own vote back: then nothing ends that view, and
//!   the honest leader's turn fails. Of four leaders one did that, and nothing became final any more, since three good turns in a row
//!   never came. A faulty leader can have the view before nullified in this way; its block is not lost (H6), and three honest leaders
//!   in a row still make the first one's final, since its finalize votes are cast with those for the third.
//!   *Why for a while:* so that these votes are cast. A faulty leader of v + 1 can say nullify in v long before anybody is there. The
//!   honest leader of v, which has voted with its proposal, obeys at once, and the others would join the two before they have
//!   looked at the proposal: with one of four doing so in each round, there were never three votes in a third view, and nothing
//!   became final any more.
//!   *Timers.* Who has entered a view by its vote waits for its leader for the usual time longer, until the view before has ended. And who leads the next
//!   view waits for the current proposal no longer than its leader is known to need after a vote for it has come, and half of the usual
//!   time after f + 1: the others wait for the one that leads next by then. Otherwise a faulty leader shows its block to few of them: they give up the next leader's view before it has given
//!   up theirs, each time. With two of seven doing so, 1 % of the blocks were left.
//!   *Why the votes are carried:* they went to the leader of the view that is being given up, which may be dead. Without them, four
//!   validators of which one is down certify no block before the dead leader's turn, and of seven a block of an honest leader is lost in
//!   each round.
//!   *Why to all:* the source sends complaints to the next leader, who sends the certificate around. That takes one delay
//!   more, and as many views more as faulty leaders follow each other.
//!
//! **H6. Propose.** Upon entering a view v that it leads, once v − 1 is notarized or nullified here, a validator builds
//! on the newest notarized block that it knows. The proposal carries that notarization, the nullification of v − 1
//! unless it is notarized, and the newest finalization, for whose check it waits if the votes are here. If v − 1 was
//! nullified, and the newest view below that was not, or in which it or f + 1 have voted, is not notarized here either, the votes that others carry (H5) may
//! still make its notarization: then it waits for up to half of the least time that leaders are given, doubled for the
//! nullified views directly before v only. Links keep the order, so what a validator carries is there before its
//! nullify vote: it does not wait if all who are linked have said nullify in v − 1, or sent its nullification (but for the leader of that view, whose vote came
//! with its proposal), or too many have voted for different blocks, there is no quorum of votes for one, and no
//! notarization is being checked.
//!   *Why doubled no more:* the others may have seen a block where this one has not, and then give up sooner. With one
//!   of four down, a leader whose own back-off was longer proposed when another had just given up its view: two voted,
//!   one had not, and nobody could go on before a time-out.
//!
//! **H7. The last block of an epoch** is proposed again as in R11; (B, v) and (B, v + 1) are two of the three
//! consecutive ones then. Who makes the finalization that ends the epoch of votes sends it to all: there is no next
//! proposal to carry it.
//!
//! **H8. Said again.** While the view does not move, who is in it repeats the newest certificate, its finalize and
//! notarize votes to the leader of the view and, once it has said nullify, to the next one; nullify to all; the leader
//! its proposal, that of the view before, too, while nothing has ended that.
//!
//! **H9. Lost journals.** The lock is in the journal: it is the votes of H4. So a validator that has lost its journal
//! does not vote again before the epoch after the next one, by R27's answers: with (e, u) the newest certificate in
//! them, from epoch e + 2 on. What was voted for in an epoch binds nobody in a later one, since that begins on a final
//! block. The operator's word (R30) is no help here.
//!   *An old copy of a journal* is noticed by R28 less often than with simplex: votes go to one leader each, so few peers
//!   have seen the newest ones. A journal is never to be restored from a copy.
//!
//! **H10. Time-outs** are those of R20, and double once more with every two rounds of all leaders in which nothing became final.
//!   *Why:* by R20 the f slowest leaders are not waited for, and a block for which a quorum votes ends the back-off. With f
//!   more that are faulty, n − 2f leaders are left, which need not stand three in a row. Debts are forgiven then, too (R21).
//! - *Second chances* (R18) are given when nothing has become final for 4n views, skipped turns counted as one, and
//!   with every fourth repetition in a view that is overdue. A time-out or views without a block are usual around a
//!   faulty leader, and are no sign that a forger has healed.
//!
//! # Safety
//!
//! *Two blocks of one view are never both notarized:* R1, as with simplex.
//!
//! *If B is final in view v, every block that is notarized in a later view w descends from B.* q validators have cast
//! finalize for (B, v). Let w be the lowest view that contradicts the claim, with a block C. q validators voted for C;
//! the two quorums share an honest one, p. It cast finalize for (B, v) with its vote for a block of view x (H4), which
//! descends from B: x = v + 2, or v + 1 with a two-chain.
//! - w < x: the views between v and x are those of the three-chain; each is notarized with the block that p saw there, and
//!   with no other.
//! - w = x: p voted once in x, so C is that block.
//! - w > x: p votes upwards (H1), so it voted in x before it voted in w. Its lock was v or more then, so C's parent view u
//!   is at least v (H3), and below w. If u = v, C's parent is B, the one block that is notarized in v. If u > v, C's parent descends from B
//!   because w is lowest. So C does, too.
//!
//! *Two final blocks are never in conflict:* of the two, the later one is notarized.
//!
//! *Over restarts:* finalize votes are in the journal with the vote they were cast with (R2), up to the tip; the tip's
//! view is a lock as well.
//! *Over borders:* an epoch starts on a final last block, and nothing is built on a last block in its epoch.
//!
//! # Liveness
//!
//! Assumed as with simplex: after some moment all messages come within Δ, retries included, and f are faulty at most.
//!
//! - *Honest validators meet in a view.* Let m be the highest view of an honest one. If any honest one has a
//!   certificate of m − 1, it repeats it, and all are in m or above. If none has, all that are in m came by their vote
//!   in m − 1 (or with f + 1 of which one did), so they hold what ended m − 2 (H3) and repeat it: all are in m − 1 or
//!   m. Each says nullify in its view when its timer fires. If f + 1 of them are in m, the others join them there (H2).
//!   Otherwise f + 1 are in m − 1, and those in m say nullify there as well (H5). Either way q say nullify in one view,
//!   and it ends. This is the source's theorem of view synchronisation.
//! - *A view ends only if an honest validator wants it to:* a certificate takes q signers, joining f + 1. This is its theorem of
//!   synchronisation validity.
//! - *Blocks become final.* Of n validators f are faulty, so somewhere in a round three honest leaders follow each
//!   other (2f + 1 in at most f gaps; without faulty ones all do). In their views, timers being long enough, all honest
//!   validators vote for their blocks, so the third one's votes bring q finalize votes for the first. They come to the
//!   next leader, or if that is faulty, carried (H5), to the one after it.
//! - *An honest leader's block gets their votes.* No honest validator is locked above the newest notarization that the
//!   leader knows: who is locked on v has seen a notarization in v + 1, so q validators have
//!   voted there and f + 1 honest ones hold that of v; the leader gets what q hold (H5, H6).
//! - *No certified block of an honest leader is abandoned for a silent leader.* Its votes are carried around that one
//!   (H5), and the next leader waits for them (H6).

use super::{LostVotes, Rules};
use crate::{
    config::MAX_CERTIFICATES_ASKED,
    dropped::Missing,
    engine::Engine,
    fetch::Want,
    io::{Step, Target},
    rounds::{flaw::parent_of, pacemaker::Before, proposals::Parent, round::Round},
};
use quorate_crypto::Digest;
use quorate_types::{
    Block, Certificate, Height, Message, Proposal, Subject, ValidatorIndex, View, Vote, VoteKind,
};
use std::sync::Arc;

/// How many blocks of consecutive views make the first of them final.
const CHAIN: u64 = 3;

pub(crate) struct Chained;

impl Chained {
    fn is_over(engine: &Engine, view: View) -> bool {
        view <= engine.tip().view || engine.views.exit(view).is_some()
    }

    /// Whether the newest view that was not nullified is not known to be notarized, and may become so by what is on its way.
    fn may_come(engine: &Engine) -> bool {
        let before = View(engine.view().0 - 1);
        let skipped = u64::from(engine.turns_nullified_before(engine.view()));
        let unskipped = View(before.0.saturating_sub(skipped));
        // A leader can have the view before its own nullified although all have voted there.
        let mut skipped = engine.views.range(unskipped..=before).rev();
        let voted = skipped.find(|(_, round)| {
            round.own.notarize.is_some() || round.notarizing() > engine.committee.faults()
        });
        let newest = voted.map_or(unskipped, |(view, _)| *view);
        let mut since = engine.views.range(newest..=before);
        newest > engine.tip().view
            && since.all(|(_, round)| round.notarized().is_none())
            && (engine.checks.is_notarizing(&(newest..=before))
                || Self::votes_may_come(engine, newest, before))
    }

    /// Whether a quorum has voted for one block of the newest view, or may have and somebody may still carry something here. Who
    /// cannot be reached carries nothing; who has said nullify in the view before this one has done so.
    fn votes_may_come(engine: &Engine, newest: View, before: View) -> bool {
        // Who has led the view before has sent its vote here with its proposal.
        let leader = (newest == before).then(|| engine.committee.leader(before));
        let (newest, before) = (engine.views.get(newest), engine.views.get(before));
        let may_carry = |place: ValidatorIndex| {
            engine.own_place() != Some(place)
                && leader != Some(place)
                && !engine.pacemaker.is_out_of_reach(place)
                && !before.is_some_and(|round| round.has_nullified(place))
        };
        let most = newest.map_or(0, Round::most_notarizing);
        let voters = newest.map_or(0, Round::notarizing);
        let quorum = engine.committee.quorum();
        let own = newest.is_some_and(|round| round.own.notarize.is_some());
        let others = engine.committee.size() - 1;
        let unheard = others - (voters - usize::from(own)).min(others);
        most >= quorum || (most + unheard >= quorum && engine.committee.places().any(may_carry))
    }

    /// The parent of a block as this validator has voted for it in a view, and the view that notarized the parent.
    fn voted_parent(engine: &Engine, view: View, block: &Block) -> Option<(View, Digest)> {
        let header = block.header();
        if header.view == view {
            return Some((header.parent_view, header.parent));
        }
        let extends = engine.views.get(view)?.extends?;
        Some((extends, block.id()))
    }

    /// H4: the node that the vote for this proposal makes final, if q cast it.
    fn finalized_by(engine: &Engine, view: View, proposal: &Proposal) -> Option<(View, Digest)> {
        let mut at = parent_of(proposal);
        let mut above = view;
        for step in 2..=CHAIN {
            if at.0.next() != above || at.0 <= engine.tip().view {
                return None;
            }
            if step == CHAIN {
                break;
            }
            let block = engine.chain.held(&at.1)?.block.clone();
            above = at.0;
            at = Self::voted_parent(engine, at.0, &block)?;
        }
        Some(at)
    }

    /// Whether the leader of the current view has said nullify in the view before.
    fn leader_gives_up(engine: &Engine, before: View) -> bool {
        let leader = engine.committee.leader(engine.view());
        let round = engine.views.get(before);
        round.is_some_and(|round| round.has_nullified(leader))
    }

    /// Follows f + 1 that have given up the current view, or are ahead, once all others have had the time to vote as they have.
    fn follow(engine: &mut Engine, step: &mut Step) {
        let (view, ahead) = (engine.view(), engine.joined_ahead());
        if ahead.is_none() && !engine.is_given_up(view) {
            return;
        }
        if !engine.follows(step.now) {
            return;
        }
        // H2
        if let Some(view) = ahead {
            engine.enter(step, view, false);
        }
        // H5
        let view = engine.view();
        if engine.is_given_up(view) && engine.may_cast(view, VoteKind::Nullify) {
            engine.nullify(step);
        }
    }

    /// H5: says nullify in the view before, in which this validator has voted, unless something has ended it.
    fn give_up_before(engine: &mut Engine, step: &mut Step, before: View) {
        let said = |round: &Round| round.own.nullify.is_some() || round.own.finalize.is_some();
        if Self::is_over(engine, before)
            || engine.views.get(before).is_some_and(said)
            || !engine.may_cast(before, VoteKind::Nullify)
        {
            return;
        }
        let leader = engine.committee.leader(engine.view());
        engine.carry(step, leader);
        engine.cast_nullify(step, before);
    }
}

impl Rules for Chained {
    fn is_in_need(&self, engine: &Engine) -> bool {
        // H10
        engine.lacks_finality()
    }

    fn choose_parent(&self, engine: &mut Engine, step: &mut Step) -> Option<(View, Digest)> {
        let before = engine.view().previous()?;
        let nullified = engine.turns_nullified_before(engine.view());
        // H6
        if !Self::is_over(engine, before)
            || engine.checks.is_finalizing(engine.tip().view)
            || (Self::may_come(engine) && engine.pacemaker.gathers(step.now, nullified))
        {
            return None;
        }
        Some(engine.newest_notarized())
    }

    fn check_parent(
        &self,
        engine: &mut Engine,
        step: &mut Step,
        view: View,
        (parent_view, id): (View, Digest),
    ) -> Parent {
        // H1: only proposals of the current view come here. H3: the lock.
        if parent_view < engine.lock_view() {
            return Parent::Wrong;
        }
        let leader = Some(engine.shower(view));
        let epoch = engine.epoch();
        // What is being verified at this moment need not be asked for.
        let lack = |engine: &mut Engine, step: &mut Step, subject: Subject, missing| {
            if !engine.checks.is_verifying(&subject) && engine.checks.certifying(&subject).is_none()
            {
                let last = View(subject.view.0.saturating_add(MAX_CERTIFICATES_ASKED));
                let want = Want::Certificates(subject.view, last.min(View(view.0 - 1)));
                engine.lack(step, missing, want, leader);
            }
            Parent::Missing
        };
        // H3: the parent.
        match engine.is_notarized((parent_view, id)) {
            Some(true) => {}
            Some(false) => return Parent::Wrong,
            None => {
                let subject = Subject {
                    epoch,
                    view: parent_view,
                    kind: VoteKind::Notarize,
                    payload: id,
                };
                return lack(engine, step, subject, Missing::Certificate(parent_view));
            }
        }
        // H3: the view before.
        let before = View(view.0 - 1);
        let round = engine.views.get(before);
        let nullified = round.is_some_and(|round| round.nullification.is_some());
        if before != parent_view && !nullified {
            let subject = Subject::nullify(epoch, before);
            return lack(engine, step, subject, Missing::Nullification(before));
        }
        Parent::Certified
    }

    fn attachments(&self, engine: &Engine, parent: View, view: View) -> Vec<Certificate> {
        let before = view.previous().filter(|before| *before > parent);
        let nullified = before.and_then(|before| engine.views.get(before)?.nullification.clone());
        let newest = engine.newest_finalization();
        let newest = newest.filter(|held| held.subject.view <= parent);
        nullified.into_iter().chain(newest.cloned()).collect()
    }

    fn may_attach(&self, subject: &Subject, parent: View, proposal: &Proposal) -> bool {
        match subject.kind {
            VoteKind::Nullify => (parent.next()..proposal.view).contains(&subject.view),
            VoteKind::Finalize => subject.view <= parent,
            VoteKind::Notarize => false,
        }
    }

    fn proposals_extend_the_tip(&self) -> bool {
        // Who has missed the newest certificates may build on an older block. It gets no vote.
        false
    }

    fn on_notarized(&self, engine: &mut Engine, _: &mut Step, view: View) {
        // H2: the back-off ends with a block, not with a vote for one.
        if view.next() == engine.view() {
            engine.pacemaker.notarized();
        }
    }

    fn on_nullified(&self, engine: &mut Engine, step: &mut Step, view: View) {
        // H2: who came by a vote has waited for a leader that could not propose before.
        let given_up = |round: &Round| round.own.nullify.is_some();
        if view.next() == engine.view() && !engine.views.get(engine.view()).is_some_and(given_up) {
            engine.pace(step.now, Before::Nothing);
        }
    }

    fn on_own_notarize(&self, engine: &mut Engine, step: &mut Step, view: View) {
        let proposal = engine
            .views
            .get(view)
            .and_then(|round| round.proposal.clone());
        if let Some(proposal) = proposal {
            engine.views.at(view).extends = Some(parent_of(&proposal).0);
            // H4
            if let Some((of, id)) = Self::finalized_by(engine, view, &proposal)
                && engine.views.notarized(of) == Some(id)
            {
                engine.try_finalize(step, of);
            }
        }
        // H2
        if view == engine.view() {
            engine.enter(step, view.next(), Before::Vote);
        }
    }

    fn tell(&self, engine: &mut Engine, step: &mut Step, leader: ValidatorIndex) {
        // H5
        engine.carry(step, leader);
    }

    fn on_certificate_made(&self, engine: &mut Engine, step: &mut Step, certificate: &Certificate) {
        // H7
        let is_final = certificate.subject.kind == VoteKind::Finalize;
        if is_final && engine.epoch_is_over() {
            step.send(Target::All, Message::Certificate(certificate.clone()));
        }
    }

    fn receiver(&self, engine: &Engine, vote: &Vote) -> Target {
        match vote.subject.kind {
            VoteKind::Nullify => Target::All,
            VoteKind::Notarize | VoteKind::Finalize => {
                Target::One(engine.committee.leader(engine.view().next()))
            }
        }
    }

    fn votes_go_to_leaders(&self) -> bool {
        true
    }

    fn join(&self, engine: &mut Engine, step: &mut Step) {
        if engine.own_place().is_none() {
            return;
        }
        // H3
        engine.take_up(step);
        Self::follow(engine, step);
        let faults = engine.committee.faults();
        // The leader of the view may say anything.
        let leader = engine.committee.leader(engine.view()).as_usize();
        if engine.leads(engine.view().next())
            && let Some(round) = engine.views.get(engine.view())
            && round.own.notarize.is_none()
            && round.voters().any(|place| place != leader)
        {
            let surely = round.notarizing() > faults;
            engine.pacemaker.hurry_for_others(step.now, surely);
        }
        let before = engine.view().previous();
        // H5
        if let Some(before) = before
            && (engine.is_given_up(before)
                || Self::leader_gives_up(engine, before)
                || (engine.pacemaker.doubts(step.now)
                    && !engine.checks.is_notarizing(&(before..=before))))
        {
            Self::give_up_before(engine, step, before);
        }
    }

    fn repeat(&self, engine: &mut Engine, step: &mut Step) {
        // H8
        let view = engine.view();
        engine.repeat_proposal_of(step, view);
        let before = view
            .previous()
            .filter(|before| !Self::is_over(engine, *before));
        if let Some(before) = before {
            engine.repeat_proposal_of(step, before);
        }
        let said = [Some(view), before].into_iter().flatten();
        let said = said.filter_map(|of| engine.views.get(of)?.own.nullify);
        let said: Vec<Vote> = said.collect();
        for vote in &said {
            engine.say_again(step, Target::All, *vote);
        }
        let leader = engine.committee.leader(view);
        engine.carry(step, leader);
        if said.iter().any(|vote| vote.subject.view == view) {
            let next = engine.committee.leader(view.next());
            engine.carry(step, next);
        }
    }

    fn newest_parent(&self, engine: &Engine) -> Option<Option<Arc<Block>>> {
        let before = engine.view().previous()?;
        let voted = engine
            .views
            .get(before)
            .filter(|_| !Self::is_over(engine, before));
        let voted = voted.and_then(|round| round.own.notarize);
        let id = voted.map_or_else(|| engine.newest_notarized().1, |vote| vote.subject.payload);
        engine.chain.block_at(&id)
    }

    fn final_below(&self, engine: &Engine, block: &Arc<Block>) -> Option<Arc<Block>> {
        // H4: with the certificate that the block's proposal has carried.
        let below = |block: &Arc<Block>| engine.chain.recent(&block.header().parent);
        let (mut at, mut consecutive) = (block.clone(), 0);
        // The first block names the genesis state.
        while consecutive < CHAIN
            && at.header().epoch == block.header().epoch
            && at.height() > Height(1)
        {
            let parent = below(&at)?;
            let follows = parent.header().view.next() == at.header().view;
            consecutive = match consecutive > 0 && follows {
                true => consecutive + 1,
                false => 1,
            };
            at = parent;
        }
        Some(at)
    }

    fn blocks_above_a_final_one(&self) -> u64 {
        CHAIN
    }

    fn doublings(&self, engine: &Engine) -> u32 {
        // H10
        let views = engine.view().0.saturating_sub(engine.tip().view.0);
        let idle = views.saturating_sub(CHAIN + 1);
        u32::try_from(idle / (2 * engine.committee.size() as u64)).unwrap_or(u32::MAX)
    }

    fn lost_votes(&self) -> LostVotes {
        // H9
        LostVotes::NextEpoch
    }
}
