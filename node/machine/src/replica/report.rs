//! What the replica publishes after each step, and sends its peers once a second.

use super::{Event, Replica, as_i64};
use crate::live::Condition;
use quorate_consensus::{Dropped, Missing};
use quorate_types::{Digest, Status, View};
use tracing::{debug, warn};

use std::time::{Duration, Instant};

/// How often this validator sends its status.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// How long a status may wait for votes to leave with.
const STATUS_WAIT: Duration = Duration::from_millis(400);

/// How often invalid blocks are logged at most. With a wrong clock every block is one.
const INVALID_INTERVAL: Duration = Duration::from_secs(10);

/// A change of leaders within a turn of fewer views is not logged.
const LONG_TURN: u64 = 16;

/// How often a change of leaders is logged at most.
const LEADER_INTERVAL: Duration = Duration::from_secs(10);

impl Replica {
    /// Logs that a leader has proposed an invalid block.
    pub(super) fn tell_invalid(&mut self, view: View, block: &Digest, why: &str) {
        let now = self.now();
        let (told, since) = &mut self.invalid;
        if told.is_some_and(|told| now.since(told) < INVALID_INTERVAL) {
            *since += 1;
            return;
        }
        let not_told = std::mem::take(since);
        *told = Some(now);
        let leader = self.config.committees.leader(self.engine.epoch(), view);
        warn!(
            validator = leader.0, %view, block = %block.short(), not_told,
            "a proposed block is not valid: {why}"
        );
    }

    /// Counts and logs what a step dropped, and what its view waits for.
    pub(super) fn tell_left_out(&self, dropped: &[Dropped], waits: Option<(View, Missing)>) {
        let metrics = &self.around.metrics;
        metrics.left_out(dropped, waits.map(|(_, missing)| missing));
        for Dropped { from, reason } in dropped {
            debug!(
                peer = from.0,
                reason = reason.label(),
                "dropped a message: {reason}"
            );
        }
        if let Some((view, missing)) = waits {
            debug!(%view, missing = missing.label(), "the view waits for {missing}");
        }
    }

    /// Logs that a leader's turn was cut short, and who leads now.
    fn tell_leader(&mut self) {
        let now = (self.engine.epoch(), self.engine.view());
        let (epoch, before) = std::mem::replace(&mut self.reported, now);
        if now == (epoch, before) || now.0 != epoch {
            return;
        }
        let committee = self.config.committees.of(epoch);
        // Where turns are short, leaders change all the time. One that was behind enters some later view, and cannot tell what came in between.
        let is_next = now.1 == committee.turn_after(before) && committee.turn() >= LONG_TURN;
        if is_next && committee.turn_cut_short(before, now.1).is_some() {
            let moment = self.now();
            if self
                .leader_told
                .is_some_and(|told| moment.since(told) < LEADER_INTERVAL)
            {
                return;
            }
            self.leader_told = Some(moment);
            warn!(
                validator = committee.leader(before).0, view = %before,
                "the leader was changed before its turn was over: validator {} leads from view {} on",
                committee.leader(now.1), now.1
            );
        }
    }

    /// Publishes the engine's state, and sends a status from time to time.
    pub(super) fn report(&mut self) -> anyhow::Result<()> {
        self.tell_leader();
        let tip = self.engine.tip();
        let live = &self.around.live;
        let view = self.engine.view();
        live.set_progress(self.engine.epoch(), view, tip.height);
        let proposed = match self.engine.awaits_proposal() {
            true => View(view.0.saturating_sub(1)),
            false => view,
        };
        live.set_proposed(proposed, Instant::now());
        // Also while nothing becomes final: after a start it is the height on disk, and not 0.
        let metrics = &self.around.metrics;
        metrics.finalized_height.set(as_i64(tip.height.0));
        self.around.metrics.stepped(self.engine.counters());
        let now = self.now();
        if self.status_leaves.is_some_and(|due| due <= now) {
            self.status_leaves = None;
            self.around.outlet.send_held();
        }
        if now < self.next_status {
            return Ok(());
        }
        self.clock.was_late(now, now.since(self.next_status));
        self.next_status = now.after(STATUS_INTERVAL);
        self.renew_penalties(now)?;
        self.around
            .metrics
            .journal_bytes
            .set(as_i64(self.journal.bytes()));
        let (bytes, pruned) = self.around.executor.disk();
        let clock_ahead_ms = self.clock.ahead_ms(now);
        self.around.live.set_condition(Condition {
            behind: self.engine.is_behind(),
            journal_bytes: self.journal.bytes(),
            database_bytes: bytes,
            pruned_below: pruned,
            clock_ahead_ms,
        });
        let live = &self.around.live;
        live.set_pruned_elsewhere(self.engine.pruned_elsewhere());
        live.set_journal_ahead(self.engine.journal_is_ahead());
        let voting = self.engine.voting();
        live.set_asks(matches!(voting, quorate_consensus::Voting::Checking { .. }));
        live.set_voting(self.shown.next(voting));
        let tip = self.engine.tip();
        self.around.metrics.database_bytes.set(as_i64(bytes));
        self.around.metrics.pruned_below.set(as_i64(pruned.0));
        let executed = self.around.executor.executed().borrow().height;
        self.around.metrics.executed_height.set(as_i64(executed.0));
        let status = Status {
            epoch: self.engine.epoch(),
            view: self.engine.view(),
            finalized_height: tip.height,
            executed_height: executed,
            convicted: self.engine.convicted(),
        };
        for peer in self.around.across.never_linked(now) {
            self.take(Event::Linked { peer, up: false })?;
        }
        self.around.outlet.hold(status);
        self.status_leaves = Some(now.after(STATUS_WAIT));
        Ok(())
    }
}
