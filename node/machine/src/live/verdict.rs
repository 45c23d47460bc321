//! The verdict on this validator.
//!
//! [`decide`] is a function of what is known here: links, received votes, claims, the chain's
//! growth. Status, readiness, log, live page and metrics all show its result.

use super::{
    Room, VOTE_VIEWS,
    progress::{Growth, USUAL_LAG},
};
use crate::{roles::OLD_MS, validate::MAX_CLOCK_AHEAD_MS};
use quorate_api::verdict::{Health, VerdictJson, Voter, VoterJson, Voting};
use quorate_types::{Height, ValidatorIndex, genesis::Protocol};
use std::time::Duration;

mod told;

pub use told::clock_time;

/// A clock difference above this is reported. It is far above any network's delay.
pub(crate) const CLOCK_TOLD_MS: u64 = 2_000;

/// A node that has more final blocks to execute than are in flight at any time is catching up if the newest
/// executed one is older than this. It is far above the time that a block takes, so that a busy node
/// does not count as catching up.
const EXECUTED_WITHIN_MS: u64 = 2_000;

/// Whether final blocks wait for execution for longer than usual, given their number and the timestamp of the
/// newest executed block.
pub(super) fn executes_late(unexecuted: u64, now_ms: u64, block_ms: u64) -> bool {
    unexecuted > USUAL_LAG && now_ms.saturating_sub(block_ms) > EXECUTED_WITHIN_MS
}

/// What is known of another validator.
#[derive(Clone, Debug)]
pub(super) struct Other {
    pub(super) validator: ValidatorIndex,
    pub(super) name: String,
    pub(super) linked: bool,
    /// Whether this node knows where to reach it.
    pub(super) has_address: bool,
    /// It accepts connections and aborts every handshake.
    pub(super) refuses: bool,
    /// Another process asks for a link in its name while its own link answers.
    pub(super) doubled: bool,
    pub(super) voter: Voter,
    /// There is no link to it, and its votes come through others.
    pub(super) relayed: bool,
    /// It has been asking what its journal lacks for a while, and has not voted since.
    pub(super) asks: bool,
    /// By how much this clock is ahead of the peer's.
    pub(super) clock_ahead_ms: Option<i64>,
    /// The height that it says is final.
    pub(super) claimed: Option<Height>,
}

impl Other {
    /// Whether it is linked, and its votes do not arrive though nothing here keeps them out.
    fn runs_without_vote(&self) -> bool {
        matches!(self.voter, Voter::Fresh | Voter::Silent | Voter::Behind)
    }

    /// Whether it does not vote because it asks what its journal lacks.
    fn waits_for_answers(&self) -> bool {
        self.asks && matches!(self.voter, Voter::Fresh | Voter::Silent)
    }
}

/// With too few links for a quorum, no block for so long is no accident.
const UNLINKED_FOR: Duration = Duration::from_millis(1_500);

/// Missing blocks and the peers that keep them, as far as known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gone {
    /// The next block that is missing here.
    pub(crate) wanted: Height,
    /// Peers that say they lack it, and the oldest block that each keeps.
    pub(crate) lacking: Vec<(ValidatorIndex, Height)>,
}

/// Everything that the verdict depends on.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) growth: Growth,
    pub(super) quorum: usize,
    pub(super) faults: usize,
    pub(super) protocol: Protocol,
    pub(super) height: Height,
    pub(super) network_height: Height,
    /// Whether a quorum, this validator included, has reported its height.
    pub(super) heard: bool,
    /// Blocks per second by which the distance to the others shrinks. `None` before two readings a
    /// second apart.
    pub(super) closing_per_second: Option<f64>,
    pub(super) others: Vec<Other>,
    pub(super) voting: Voting,
    /// Whether it is asking for votes of its key, and casts none meanwhile. `voting` says so only once it lasts.
    pub(super) asks: bool,
    pub(super) gone: Option<Gone>,
    /// Final blocks that wait for execution.
    pub(super) unexecuted: u64,
    pub(super) now_ms: u64,
    /// The newest final block's timestamp; zero before the first.
    pub(super) block_ms: u64,
    pub(super) clock_ahead_ms: Option<i64>,
    /// Whether handshakes failed lately because of clocks.
    pub(super) clocks_refused: bool,
    /// The data directory's disk, if it is filling up.
    pub(super) low_disk: Option<Room>,
}

/// Whether a validator that lacks this many blocks is near enough for its votes to count. The
/// others count its vote by the same rule.
pub(crate) fn keeps_up(blocks_behind: u64) -> bool {
    blocks_behind <= VOTE_VIEWS
}

/// The verdict.
pub(super) fn decide(facts: &Facts) -> VerdictJson {
    let state = facts.state();
    let facts = &match state {
        Health::Halted => facts.without_former_votes(),
        _ => facts.clone(),
    };
    let behind = facts.behind();
    let since_ms = match state {
        Health::Halted | Health::CutOff | Health::Refused | Health::Stuck | Health::BlocksGone => {
            facts
                .block_age()
                .map(|age| facts.now_ms.saturating_sub(age))
        }
        _ => None,
    };
    VerdictJson {
        state,
        summary: facts.summary(state),
        remedy: facts.remedy(state),
        notes: facts.notes(state),
        block_age_ms: facts.block_age(),
        since_ms,
        blocks_behind: behind,
        seconds_left: (state == Health::CatchingUp)
            .then(|| facts.seconds_left())
            .flatten(),
        voting: facts.voting.clone(),
        voters: facts.voters(),
        quorum: facts.quorum,
        others: facts
            .others
            .iter()
            .map(|other| VoterJson {
                validator: other.validator,
                name: other.name.clone(),
                state: other.voter,
            })
            .collect(),
        gone: facts.gone.as_ref().and_then(|gone| {
            let oldest = gone.lacking.iter().map(|(_, oldest)| *oldest).min()?;
            Some((gone.wanted, oldest))
        }),
    }
}

impl Facts {
    fn size(&self) -> usize {
        self.others.len() + 1
    }

    fn behind(&self) -> u64 {
        self.network_height.0.saturating_sub(self.height.0)
    }

    fn linked(&self) -> usize {
        1 + self.others.iter().filter(|other| other.linked).count()
    }

    fn votes(&self) -> bool {
        self.voting == Voting::Votes
    }

    /// Whether this clock is so far behind that the others' blocks seem to come from the future.
    fn clock_behind(&self) -> bool {
        let limit = -(MAX_CLOCK_AHEAD_MS as i64);
        self.clock_ahead_ms.is_some_and(|ahead| ahead <= limit)
    }

    /// In a halt for want of links, votes of those without one are from before: others would pass on newer ones, and
    /// the chain would go on.
    fn without_former_votes(&self) -> Self {
        let mut now = self.clone();
        if self.linked() < self.quorum {
            let former = |other: &&mut Other| !other.linked && other.voter == Voter::Votes;
            let former = now.others.iter_mut().filter(former);
            former.for_each(|other| other.voter = Voter::Unreachable);
        }
        now
    }

    /// Whether votes of so few validators arrive, this one's included, that no block can become final.
    fn too_few_vote(&self) -> bool {
        self.voters() - usize::from(self.asks && self.counts_itself()) < self.quorum
    }

    /// The time without a final block after which it is told that too few validators are linked. On a chain that
    /// makes blocks more often than that, the links that are missing are the reason.
    fn grace(&self) -> Duration {
        match self.growth.final_since_start {
            true => self.growth.usual.min(UNLINKED_FOR),
            false => self.growth.usual,
        }
    }

    /// How many others ask what their journals lack, while this validator votes: by its own journal, it would be one
    /// of those that answer.
    fn asking(&self) -> usize {
        let asking = self.others.iter().filter(|other| other.waits_for_answers());
        match self.votes() && !self.asks {
            true => asking.count(),
            // It is one of them, for as long.
            false if self.is_bound() => 1 + asking.count(),
            false => 0,
        }
    }

    /// Whether its own journal is lost or old, on a chain where that binds until an epoch ends.
    fn is_bound(&self) -> bool {
        let waits = matches!(
            self.voting,
            Voting::Recovering { .. } | Voting::SilentUntil { .. }
        );
        waits && self.protocol != Protocol::Simplex
    }

    /// Whether so many journals are lost that no quorum is left that votes.
    fn too_many_lost(&self) -> bool {
        let lost = match self.voting {
            Voting::Recovering { lost, .. } => lost,
            _ => 0,
        };
        self.size().saturating_sub(lost) < self.quorum
    }

    fn executes_late(&self) -> bool {
        executes_late(self.unexecuted, self.now_ms, self.block_ms)
    }

    /// Validators whose votes arrive.
    fn voters(&self) -> usize {
        let others = self.others.iter().filter(|o| o.voter == Voter::Votes);
        others.count() + usize::from(self.counts_itself())
    }

    /// Whether its own vote counts.
    fn counts_itself(&self) -> bool {
        self.votes() && keeps_up(self.behind()) && !self.clock_behind()
    }

    /// Whether the newest block was made long ago and the others have not told yet where the chain is: as in an epoch
    /// that they have left, whose validators it hears nothing of.
    fn is_in_the_past(&self) -> bool {
        let age = self.now_ms.saturating_sub(self.block_ms);
        !self.heard && self.growth.final_since_start && self.block_ms > 0 && age > OLD_MS
    }

    /// Whether no block has come since the start, and the newest one, if there is any, was made long ago: the others are
    /// as far as this validator, as after a halt, and whether the chain goes on is not known yet.
    fn waits_for_its_first_block(&self) -> bool {
        let age = self.now_ms.saturating_sub(self.block_ms);
        let old = OLD_MS.max(ms(self.growth.patience(true)));
        !self.growth.final_since_start && (self.block_ms == 0 || age > old)
    }

    /// How old the newest block is by its timestamp, if this clock is right.
    fn age_by_timestamp(&self) -> Option<Duration> {
        let ahead = self.clock_ahead_ms?;
        let age = self.now_ms.saturating_sub(self.block_ms);
        (self.block_ms > 0 && ahead.unsigned_abs() < CLOCK_TOLD_MS)
            .then(|| Duration::from_millis(age.saturating_sub(ahead.unsigned_abs())))
    }

    /// Whether no chain that idles makes a block final so late. Chained HotStuff does after three further blocks.
    fn is_older_than_idling(&self, age: Duration) -> bool {
        age > 4 * self.growth.usual + Duration::from_millis(CLOCK_TOLD_MS)
    }

    /// Whether the newest block came lately and is an old one, and how old: it was fetched.
    pub(super) fn fetched_block_age(&self) -> Option<Duration> {
        let age = self.age_by_timestamp()?;
        let slack = Duration::from_millis(CLOCK_TOLD_MS);
        let is_old = age > self.growth.since_final + slack && age > self.growth.usual;
        // The timestamp is that of the newest executed one, which is older where a chain idles.
        let is_executed = self.unexecuted == 0;
        (self.growth.final_since_start && is_executed && is_old).then_some(age)
    }

    fn block_age(&self) -> Option<u64> {
        match self.growth.final_since_start {
            true if self.is_in_the_past() => Some(self.now_ms.saturating_sub(self.block_ms)),
            true => Some(ms(
                (self.fetched_block_age()).unwrap_or(self.growth.since_final)
            )),
            false if self.block_ms > 0 => Some(self.now_ms.saturating_sub(self.block_ms)),
            false => None,
        }
    }

    /// Missing blocks are looked for at all linked peers. Up to f of them may lie or not answer, so
    /// at least one honest peer must lack the blocks.
    fn nobody_keeps(&self) -> bool {
        let linked = self.linked() - 1;
        let enough = linked.saturating_sub(self.faults).max(self.faults + 1);
        let waits = self.growth.since_final > self.growth.usual;
        self.lacking() >= enough && waits
    }

    /// Linked peers that say they lack the next missing block, or that they are no further.
    fn lacking(&self) -> usize {
        let Some(gone) = &self.gone else {
            return 0;
        };
        let says = |other: &&Other| {
            let is_no_further = other.claimed.is_some_and(|claimed| claimed < gone.wanted);
            let has_said = gone.lacking.iter().any(|(who, _)| *who == other.validator);
            other.linked && (is_no_further || has_said)
        };
        self.others.iter().filter(says).count()
    }

    fn state(&self) -> Health {
        let is_behind = self.behind() > USUAL_LAG;
        let since = self.growth.since_final;
        let fetched = self.fetched_block_age();
        // Where all know how far the chain is, a block that was fetched lately does not end a halt.
        let stands_for = fetched.filter(|_| self.heard).unwrap_or(since);
        let linked = self.linked() >= self.quorum;
        if let Voting::KeySeenElsewhere { .. } = self.voting {
            Health::KeySeenElsewhere
        } else if is_behind && self.nobody_keeps() {
            Health::BlocksGone
        } else if self.too_many_lost() {
            Health::Halted
        } else if !linked && since > self.grace() {
            let others = self.size() - self.linked();
            let refusing = self.others.iter().filter(|other| other.refuses).count();
            if refusing > self.faults {
                Health::Refused
            } else if others >= self.quorum || is_behind {
                Health::CutOff
            } else {
                Health::Halted
            }
        } else if !is_behind && stands_for > self.growth.usual && self.too_few_vote() {
            Health::Halted
        } else if since > self.growth.patience(linked) {
            match is_behind {
                true => Health::Stuck,
                false => Health::Halted,
            }
        } else if is_behind
            || self.executes_late()
            || self.is_in_the_past()
            || (fetched.is_some_and(|age| self.is_older_than_idling(age))
                && since <= self.growth.usual)
        {
            Health::CatchingUp
        } else if !self.growth.final_since_start && !self.heard || self.waits_for_its_first_block()
        {
            Health::Starting
        } else if !self.votes() || self.clock_behind() {
            Health::NotVoting
        } else {
            Health::Healthy
        }
    }

    fn seconds_left(&self) -> Option<u64> {
        if self.behind() <= USUAL_LAG {
            return None;
        }
        let closing = self.closing_per_second.filter(|closing| *closing > 0.0)?;
        Some((self.behind() as f64 / closing).ceil() as u64)
    }
}

pub(super) fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
