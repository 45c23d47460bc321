//! The two theorems on which liveness rests, whatever the protocol: a view ends only if an honest validator wants it to
//! (synchronisation validity), and a quorum meets in views that honest ones lead, again and again (view synchronisation).

use quorate_types::{Committee, Epoch, Subject, View, VoteKind, genesis::Protocol};
use std::collections::{BTreeMap, BTreeSet};

/// In so many views must a quorum have met after all was healed.
pub(crate) const MEETINGS: usize = 3;

pub(crate) struct Pacemaker {
    protocol: Protocol,
    /// How many views in a row a validator leads.
    turn: u64,
    /// The highest view of each epoch to which votes of honest validators can lead.
    reach: BTreeMap<Epoch, View>,
    /// Where a quorum was at one time, and an honest validator led.
    met: BTreeSet<(Epoch, View)>,
}

impl Pacemaker {
    pub(crate) fn new(committee: &Committee) -> Self {
        Self {
            protocol: committee.turns().protocol,
            turn: committee.turn(),
            reach: BTreeMap::new(),
            met: BTreeSet::new(),
        }
    }

    /// The view that a certificate of such votes would lead to.
    fn leads_to(&self, kind: VoteKind, view: View) -> View {
        let next_turn = View((view.0 - 1) / self.turn * self.turn + 1 + self.turn);
        match (self.protocol, kind) {
            (Protocol::HotstuffBasic, VoteKind::Nullify | VoteKind::Finalize)
            | (Protocol::Pbft, VoteKind::Nullify) => next_turn,
            _ => view.next(),
        }
    }

    /// An honest validator sends a vote. `own` are the votes that it has in its journal.
    pub(crate) fn vote(
        &mut self,
        host: usize,
        subject: Subject,
        own: &BTreeSet<Subject>,
    ) -> Result<(), String> {
        let Subject {
            epoch, view, kind, ..
        } = subject;
        let reach = self.reach.get(&epoch).copied().unwrap_or(View(1));
        // Its own votes may have gone to itself only.
        let since = |view: u64| Subject::nullify(epoch, View(view));
        let recent = own.range(since(view.0.saturating_sub(self.turn + 1))..since(view.0));
        let own_reach = recent
            .filter(|own| own.view < view)
            .map(|own| self.leads_to(own.kind, own.view))
            .max();
        if kind != VoteKind::Finalize && view > reach && own_reach.is_none_or(|own| view > own) {
            return Err(format!(
                "host {host} says {kind} in {epoch:?} {view:?}, and no honest validator has wanted a view \
                 to end that leads beyond {reach:?}"
            ));
        }
        let leads_to = self.leads_to(kind, view);
        self.reach.insert(epoch, reach.max(leads_to));
        Ok(())
    }

    /// A quorum is in this view, and an honest validator leads it.
    pub(crate) fn met(&mut self, epoch: Epoch, view: View) {
        if self.met.len() < MEETINGS {
            self.met.insert((epoch, view));
        }
    }

    /// In how many views they have met, up to [`MEETINGS`].
    pub(crate) fn meetings(&self) -> usize {
        self.met.len()
    }
}
