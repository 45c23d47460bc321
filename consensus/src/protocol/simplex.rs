//! Simplex: the specification is the crate's head.

use super::{LostVotes, Rules};
use crate::{
    config::MAX_CERTIFICATES_ASKED,
    dropped::Missing,
    engine::Engine,
    fetch::Want,
    io::{Step, Target},
    rounds::proposals::Parent,
};
use quorate_crypto::Digest;
use quorate_types::{
    Block, Certificate, Proposal, Subject, View, Vote, VoteKind, limits::MAX_PROPOSAL_CERTIFICATES,
};
use std::sync::Arc;

pub(crate) struct Simplex;

impl Rules for Simplex {
    /// The newest notarized view below the current one with nothing but nullified views between,
    /// and its block.
    fn choose_parent(&self, engine: &mut Engine, step: &mut Step) -> Option<(View, Digest)> {
        let mut view = engine.view().previous()?;
        loop {
            if view <= engine.tip().view {
                return Some((engine.tip().view, engine.tip().id));
            }
            let round = engine.views.get(view);
            if let Some(id) = round.and_then(|round| round.notarized()) {
                return Some((view, id));
            }
            if round.is_none_or(|round| round.nullification.is_none()) {
                let first = View(view.0.saturating_sub(MAX_CERTIFICATES_ASKED));
                let first = engine.tip().view.next().max(first);
                let want = Want::Certificates(first, view);
                engine.lack(step, Missing::Certificate(view), want, None);
                return None;
            }
            view = view.previous()?;
        }
    }

    /// Notarized or final, and every view between nullified.
    ///
    /// So no block can be notarized that leaves out a final one: the view of a final block is never
    /// nullified, because a quorum said finalize there and does not say nullify.
    fn check_parent(
        &self,
        engine: &mut Engine,
        step: &mut Step,
        view: View,
        parent: (View, Digest),
    ) -> Parent {
        let (parent_view, _) = parent;
        let leader = Some(engine.shower(view));
        // R3: the parent.
        if parent_view < engine.tip().view {
            return Parent::Wrong;
        }
        match engine.is_notarized(parent) {
            Some(true) => {}
            Some(false) => return Parent::Wrong,
            None => {
                let want = Want::Certificates(parent_view, parent_view);
                engine.lack(step, Missing::Certificate(parent_view), want, leader);
                return Parent::Missing;
            }
        }
        // R3: every view between.
        let mut between = parent_view.next();
        while between < view {
            let nullified = engine
                .views
                .get(between)
                .is_some_and(|round| round.nullification.is_some());
            if !nullified {
                let last = View(between.0.saturating_add(MAX_CERTIFICATES_ASKED));
                let want = Want::Certificates(between, last.min(View(view.0 - 1)));
                engine.lack(step, Missing::Nullification(between), want, leader);
                return Parent::Missing;
            }
            between = between.next();
        }
        Parent::Certified
    }

    fn attachments(&self, engine: &Engine, parent: View, view: View) -> Vec<Certificate> {
        engine
            .views
            .range(parent.next()..view)
            .filter_map(|(_, round)| round.nullification.clone())
            .take(MAX_PROPOSAL_CERTIFICATES)
            .collect()
    }

    fn may_attach(&self, subject: &Subject, parent: View, proposal: &Proposal) -> bool {
        subject.kind == VoteKind::Nullify && (parent.next()..proposal.view).contains(&subject.view)
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
    }

    fn repeat(&self, engine: &mut Engine, step: &mut Step) {
        let view = engine.view();
        engine.repeat_proposal_of(step, view);
        let own = engine.views.get(view).map(|round| round.own.all());
        let own: Vec<Vote> = own.into_iter().flatten().collect();
        for vote in own {
            engine.say_again(step, Target::All, vote);
        }
    }

    fn newest_parent(&self, engine: &Engine) -> Option<Option<Arc<Block>>> {
        let mut view = engine.view().previous()?;
        while view > engine.tip().view {
            let round = engine.views.get(view)?;
            if let Some(id) = round.notarized() {
                return engine.chain.block_at(&id);
            }
            round.nullification.as_ref()?;
            view = view.previous()?;
        }
        Some(engine.tip().block.clone())
    }

    fn doublings(&self, _: &Engine) -> u32 {
        0
    }

    fn lost_votes(&self) -> LostVotes {
        LostVotes::Views(2)
    }
}
