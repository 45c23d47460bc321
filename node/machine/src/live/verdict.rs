//! The verdict on this validator.
//!
//! [`decide`] is a function of what is known here: links, received votes, claims, the chain's
//! growth. Status, readiness, log, live page and metrics all show its result.

use super::{
    Room, VOTE_VIEWS,
    progress::{Growth, USUAL_LAG},
};
use crate::{roles::OLD_MS, validate::MAX_CLOCK_AHEAD_MS};
use quorate_api::verdict::{
    Health, VerdictJson, Voter, VoterJson, Voting, counted, grouped, spoken,
};
use quorate_types::{Height, ValidatorIndex, genesis::Protocol};
use std::time::Duration;

/// Most validators named in a sentence.
const MAX_NAMED: usize = 8;

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

/// What to do if more than f journals are lost.
const MANY_LOST: &str = "OPERATING.md, \"More than f journals are lost at once\"";

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
            false => 0,
        }
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

    /// Whether no block has come since the start, and the newest one was made long ago: the others are as far as this
    /// validator, as after a halt, and whether the chain goes on is not known yet.
    fn waits_for_its_first_block(&self) -> bool {
        let age = self.now_ms.saturating_sub(self.block_ms);
        let old = OLD_MS.max(ms(self.growth.patience(true)));
        !self.growth.final_since_start && self.block_ms > 0 && age > old
    }

    fn block_age(&self) -> Option<u64> {
        match self.growth.final_since_start {
            true if self.is_in_the_past() => Some(self.now_ms.saturating_sub(self.block_ms)),
            true => Some(ms(self.growth.since_final)),
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

    /// Linked peers that say they lack the next missing block.
    fn lacking(&self) -> usize {
        let says = |other: &&Other| {
            let mut gone = self.gone.iter().flat_map(|gone| &gone.lacking);
            other.linked && gone.any(|(who, _)| *who == other.validator)
        };
        self.others.iter().filter(says).count()
    }

    fn state(&self) -> Health {
        let is_behind = self.behind() > USUAL_LAG;
        let since = self.growth.since_final;
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
        } else if !is_behind && since > self.growth.usual && self.too_few_vote() {
            Health::Halted
        } else if since > self.growth.patience(linked) {
            match is_behind {
                true => Health::Stuck,
                false => Health::Halted,
            }
        } else if is_behind || self.executes_late() || self.is_in_the_past() {
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

    fn summary(&self, state: Health) -> String {
        let age = match self.block_age() {
            Some(age) => format!("newest block {} old", spoken(age)),
            None => "no block yet".to_owned(),
        };
        let needs = format!("needs {} of {} validators", self.quorum, self.size());
        match state {
            Health::Healthy | Health::Unknown => format!("healthy: {age}"),
            // State sync runs before this part of the validator does, and has its own summary.
            Health::StateSync => "state sync".to_owned(),
            Health::Starting if self.heard => {
                format!("starting: no new block yet since its start; {age}")
            }
            Health::Starting => format!(
                "starting: not heard yet from enough validators to know where the chain is; {age}"
            ),
            Health::CatchingUp if self.behind() <= USUAL_LAG && self.is_in_the_past() => format!(
                "catching up: at height {}, and not heard yet from enough validators to know how far; {age}",
                grouped(self.height.0)
            ),
            Health::CatchingUp if self.behind() <= USUAL_LAG => {
                let waiting = counted(self.unexecuted, "final block");
                format!("catching up: {waiting} to execute; {age}")
            }
            Health::CatchingUp => {
                let rate = self.growth.blocks_per_second;
                let left = match self.seconds_left() {
                    Some(left) => format!("about {} left", spoken(left * 1_000)),
                    None if rate <= 0.0 => "none has come yet".to_owned(),
                    None if self.closing_per_second.is_none() => {
                        "how long it takes is not known yet".to_owned()
                    }
                    None => "the distance does not shrink".to_owned(),
                };
                format!(
                    "catching up: {}, {rate:.1} blocks/s, {left}; {age}",
                    self.distance()
                )
            }
            Health::NotVoting => format!("in sync, but does not vote: {}; {age}", self.silence()),
            Health::Stuck => format!(
                "stuck: {}, and none has come for {}; {age}",
                self.distance(),
                spoken(ms(self.growth.since_final))
            ),
            Health::BlocksGone => {
                let gone = self.gone.iter();
                let oldest = gone.flat_map(|gone| gone.lacking.iter().map(|(_, oldest)| oldest.0));
                let oldest = oldest.min().unwrap_or_default();
                let wanted = self.gone.as_ref().map_or(self.height.next(), |g| g.wanted);
                format!(
                    "cannot catch up: no peer keeps block {}; the oldest is {} ({} of {} linked \
                     peers say so); {}",
                    grouped(wanted.0),
                    grouped(oldest),
                    self.lacking(),
                    self.linked() - 1,
                    self.distance()
                )
            }
            Health::CutOff => format!(
                "cut off: linked to {} of {} other validators, so the others may go on without this \
                 one; {needs}; {age}; {}",
                self.linked() - 1,
                self.others.len(),
                self.obstacles()
            ),
            Health::Refused => format!(
                "refused by the others: {} accept connections and end the handshake; {needs}; {age}",
                self.named(|other| other.refuses)
            ),
            Health::Halted => {
                let since = self.block_age().map_or("the start".to_owned(), |age| {
                    clock_time(self.now_ms.saturating_sub(age))
                });
                format!("halted since {since}: {needs}; {}; {age}", self.obstacles())
            }
            Health::KeySeenElsewhere => {
                let place = match &self.voting {
                    Voting::KeySeenElsewhere {
                        address: Some(at), ..
                    } => format!(" at {at}"),
                    Voting::KeySeenElsewhere {
                        told_by: Some(told_by),
                        ..
                    } => format!(
                        " (validator {} has shown a vote that this process has not cast)",
                        told_by.0
                    ),
                    _ => String::new(),
                };
                format!("stopped voting: this validator's key is used elsewhere{place}; {age}")
            }
        }
    }

    fn remedy(&self, state: Health) -> Option<String> {
        let remedy = self.remedy_of_state(state)?;
        let unknown = self.named(|other| other.voter == Voter::Unreachable && !other.has_address);
        if unknown.is_empty() || !matches!(state, Health::Halted | Health::CutOff | Health::Refused)
        {
            return Some(remedy);
        }
        Some(format!(
            "add {unknown} to `[[p2p.peers]]` (identity and address) and restart, there and here: neither the \
             registry nor the configuration has an address (REGISTRY.md, \"Becoming a validator\"). Then {remedy}"
        ))
    }

    fn remedy_of_state(&self, state: Health) -> Option<String> {
        let text = match state {
            Health::Healthy
            | Health::Starting
            | Health::CatchingUp
            | Health::StateSync
            | Health::Unknown => return None,
            Health::NotVoting => match self.voting {
                Voting::SilentUntil { .. } | Voting::Recovering { .. } => {
                    "nothing is to be done: it votes again by itself".to_owned()
                }
                Voting::Checking { .. } => {
                    "look at its links (`quorate peers list`): it needs those of a quorum; if they are \
                     refused, look for another process with this validator's keys"
                        .to_owned()
                }
                Voting::Votes => "synchronise this machine's clock (NTP)".to_owned(),
                Voting::StateSync | Voting::Follows | Voting::KeySeenElsewhere { .. } => return None,
            },
            Health::Stuck => {
                "look at the links to those who have the blocks (`quorate peers list`), \
                              and at their `blocks kept` (`quorate status`)"
                    .to_owned()
            }
            Health::BlocksGone => {
                "nothing is to be done: it fetches the state of a recent block from its peers next \
                 (OPERATING.md, \"Away for too long\")"
                    .to_owned()
            }
            Health::CutOff => match self.clocks_refused {
                true => {
                    "handshakes fail since clocks differ by more than 5 s: check this machine's \
                         clock (NTP)"
                        .to_owned()
                }
                false => "check this machine's network, its firewall, and the addresses under \
                          `[[p2p.peers]]`"
                    .to_owned(),
            },
            Health::Refused => match self.clocks_refused {
                true => {
                    "handshakes fail since clocks differ by more than 5 s: check this machine's \
                         clock (NTP)"
                        .to_owned()
                }
                false => "ask their operators whether they block this validator (`quorate peers \
                          list` there tells why), and whether their configuration or the registry \
                          (`quorate registry list`) has the address that it comes from; look for another process with this validator's keys, which has its \
                          links; compare the chain's id with theirs (`quorate genesis show`); check this machine's clock"
                    .to_owned(),
            },
            Health::Halted if self.too_many_lost() && self.protocol != Protocol::Simplex => format!(
                "more vote journals are lost than the chain can do without, and with {} nothing replaces them: find \
                 the journals and bring them back. Without them the chain has ended ({MANY_LOST}){}",
                self.protocol.name(),
                self.those_away()
            ),
            Health::Halted if self.too_many_lost() => {
                let refused = matches!(self.voting, Voting::Recovering { refused: true, .. });
                let word = match refused {
                    true => "`--surviving-view` does not fit what the others say (the log tells why): ",
                    false => "",
                };
                format!(
                    "{word}more vote journals are lost than the chain can do without, and it does not go on \
                     by itself: all operators together follow {MANY_LOST}{}",
                    self.those_away()
                )
            }
            Health::Halted if self.size() - self.asking() < self.quorum => format!(
                "so many validators ask what their journals lack that the others are no quorum: {}. Their own \
                 `quorate status` says whether these are lost; if so, {}{}",
                self.named(Other::waits_for_answers),
                match self.protocol {
                    Protocol::Simplex => format!("all operators together follow {MANY_LOST}"),
                    other => format!(
                        "find the journals and bring them back: with {} nothing replaces them ({MANY_LOST})",
                        other.name()
                    ),
                },
                self.those_away()
            ),
            Health::Halted => match self.others.iter().any(|o| o.voter != Voter::Votes) {
                true => self.whom_to_bring_back(),
                false if self.asks => "look again in some seconds: this validator asks the others which votes \
                                       its key has cast"
                    .to_owned(),
                false => "all vote and no block becomes final: look at the log of the leaders for \
                          refused proposals, and report it"
                    .to_owned(),
            },
            Health::KeySeenElsewhere => {
                "stop every process but one that uses this key (OPERATING.md, \"Keys\")".to_owned()
            }
        };
        Some(text)
    }

    /// Names those that do not run, for a remedy that takes all of them.
    fn those_away(&self) -> String {
        let away = self.named(|other| other.voter == Voter::Unreachable);
        match away.is_empty() {
            true => String::new(),
            false => {
                format!(". That takes an answer of every validator, so start these, too: {away}")
            }
        }
    }

    /// What helps those whose journals are lost or old: `needed` answers of others with whole journals, of which so
    /// many run or have answered.
    fn whom_it_lacks(&self, present: usize, needed: usize) -> String {
        let away = self.named(|other| other.voter == Voter::Unreachable);
        let what = match (needed.saturating_sub(present), away.is_empty()) {
            (0, _) => "so many run, so look again in some seconds".to_owned(),
            (_, true) => "all run: `quorate status` of those that do not vote says why".to_owned(),
            (1, _) => format!("bring back one of them with its journal: {away}"),
            (more, _) => format!("bring back {more} of them with their journals: {away}"),
        };
        format!(
            "{what}. One whose journal is lost as well does not count, nor one that runs for the first time 500 \
             blocks after it got its seat: if too few others are left, {MANY_LOST}"
        )
    }

    /// The fewest validators that end a halt. Those that run may only wait for the others, as this one
    /// does while it asks for votes of its key.
    fn whom_to_bring_back(&self) -> String {
        let fresh = self
            .others
            .iter()
            .filter(|other| other.voter == Voter::Fresh);
        let fresh = fresh.filter(|other| !other.asks).count();
        if let Voting::Recovering {
            answers,
            needed,
            lost,
            ..
        } = self.voting
        {
            return format!(
                "this validator votes again once {needed} others with whole journals have answered it, and \
                 {answers} have: {}",
                self.whom_it_lacks(answers.max(self.linked().saturating_sub(lost)), needed)
            );
        }
        if fresh > 0 && self.voters() + fresh >= self.quorum {
            return format!(
                "look again in some seconds: linked a moment ago, and perhaps about to vote: {}",
                self.named(|other| other.voter == Voter::Fresh && !other.asks)
            );
        }
        if self.asking() > 0 {
            return format!(
                "those that ask what their journals lack ({}) vote again once {} others with whole journals \
                 have answered them: {}",
                self.named(Other::waits_for_answers),
                self.quorum,
                self.whom_it_lacks(self.linked() - self.asking(), self.quorum)
            );
        }
        let so_many = |missing: usize| match missing {
            0 | 1 => "one of them".to_owned(),
            more => format!("{more} of them"),
        };
        let waiting = self.named(Other::runs_without_vote);
        let checks = usize::from(matches!(self.voting, Voting::Checking { .. }));
        let others = self.others.iter();
        let silent = others.filter(|other| other.runs_without_vote()).count();
        let missing = self.quorum.saturating_sub(self.voters() + checks + silent);
        let away = |o: &Other| o.voter != Voter::Votes && !o.runs_without_vote();
        match (missing, waiting.is_empty()) {
            (0, false) => format!(
                "bring back {}: {}; of those that run, their own `quorate status` says why they do not vote",
                so_many(self.quorum.saturating_sub(self.voters() + checks)),
                self.named(|other| other.voter != Voter::Votes)
            ),
            (_, true) => format!("bring back {}: {}", so_many(missing), self.named(away)),
            (_, false) => format!(
                "bring back {}: {}; if that is not enough, `quorate status` of those that run without a \
                 vote says why: {waiting}",
                so_many(missing),
                self.named(away)
            ),
        }
    }

    /// The linked validator that says it has the most blocks, if this one cannot know yet whether that is
    /// so, and how many it has.
    fn ahead_by_its_own_word(&self) -> Option<(&Other, Height)> {
        let linked = self.others.iter().filter(|other| other.linked);
        let claims = linked.filter_map(|other| Some((other, other.claimed?)));
        let (other, height) = claims.max_by_key(|(_, height)| *height)?;
        let lacks = height.0.saturating_sub(self.height.0);
        (lacks > USUAL_LAG && self.behind() <= USUAL_LAG).then_some((other, height))
    }

    /// Facts that do not change the verdict and that the operator should know.
    fn notes(&self, state: Health) -> Vec<String> {
        let mut notes = Vec::new();
        let knows = !matches!(
            state,
            Health::Starting | Health::CutOff | Health::Refused | Health::CatchingUp
        );
        let chain_goes_on = knows && !matches!(state, Health::Halted);
        if chain_goes_on && self.quorum < self.size() {
            let away = self.named(|other| other.voter == Voter::Unreachable);
            let silent = self.named(|o| matches!(o.voter, Voter::Silent | Voter::Behind));
            let late = self.named(|other| other.voter == Voter::ClockBehind);
            if !late.is_empty() {
                notes.push(format!(
                    "takes others' blocks for invalid, since its clock is behind: {late}"
                ));
            }
            if !away.is_empty() {
                notes.push(format!("not reachable: {away}"));
            }
            if !silent.is_empty() {
                notes.push(format!("linked, but without a vote: {silent}"));
            }
            let fresh = self.others.iter().any(|other| other.voter == Voter::Fresh);
            if !fresh && self.voters() <= self.quorum && state != Health::BlocksGone {
                let what = match self.voters() < self.quorum {
                    true => "too few vote for blocks to go on well",
                    false => "one more failure halts the chain",
                };
                notes.push(format!(
                    "{what}: {} of {} validators vote, {} must",
                    self.voters(),
                    self.size(),
                    self.quorum
                ));
            }
        }
        if matches!(state, Health::Halted | Health::CutOff | Health::Starting)
            && let Some((other, height)) = self.ahead_by_its_own_word()
        {
            notes.push(format!(
                "{} says that it has {} more than this one (height {} of {}); this one fetches them, or the \
                 state, once {} linked validators say so",
                self.named(|one| one.validator == other.validator),
                counted(height.0 - self.height.0, "block"),
                grouped(self.height.0),
                grouped(height.0),
                self.faults + 1
            ));
        }
        let blocked = self.named(|other| other.voter == Voter::Blocked);
        if !blocked.is_empty() {
            notes.push(format!(
                "blocked here: {blocked} (`quorate peers list` says why)"
            ));
        }
        let doubled = self.named(|other| other.doubled);
        if !doubled.is_empty() {
            notes.push(format!(
                "a second process runs with the identity of {doubled}, at the same address, and is refused: \
                 tell its operator to stop one of them"
            ));
        }
        if let Some(mean) = self.growth.slow
            && chain_goes_on
        {
            notes.push(format!(
                "blocks are slow: one in {} on average, {} at most is usual",
                spoken(ms(mean)),
                spoken(ms(self.growth.configured))
            ));
        }
        let is_told = state == Health::CatchingUp && self.behind() <= USUAL_LAG;
        if self.unexecuted > USUAL_LAG && !is_told {
            let waiting = counted(self.unexecuted, "final block");
            notes.push(format!("{waiting} to execute"));
        }
        if let Some(room) = self.low_disk {
            notes.push(room.warning());
        }
        let is_off = |ahead: i64| ahead.unsigned_abs() >= CLOCK_TOLD_MS;
        if self.clock_ahead_ms.is_none() {
            let off = |other: &Other| other.clock_ahead_ms.is_some_and(is_off);
            if self.others.iter().any(off) {
                notes.push(format!(
                    "the clocks of this machine and of {} differ by more than {}: one is wrong, and too \
                     few others are linked to know which (NTP)",
                    self.named(off),
                    spoken(CLOCK_TOLD_MS)
                ));
            }
        }
        if let Some(ahead) = self.clock_ahead_ms
            && is_off(ahead)
        {
            let way = if ahead > 0 { "ahead of" } else { "behind" };
            notes.push(format!(
                "this machine's clock is {} {way} the other validators': synchronise it (NTP); from \
                 5 s on new links are refused, and blocks or votes are lost",
                spoken(ahead.unsigned_abs())
            ));
        } else if self.clock_ahead_ms.is_some() {
            for other in &self.others {
                let Some(ahead) = other.clock_ahead_ms.filter(|ahead| is_off(*ahead)) else {
                    continue;
                };
                let way = if ahead < 0 { "ahead of" } else { "behind" };
                notes.push(format!(
                    "the clock of {} is {} {way} the others': tell its operator (NTP); from 5 s on its \
                     blocks or its votes are lost",
                    self.named(|one| one.validator == other.validator),
                    spoken(ahead.unsigned_abs())
                ));
            }
        }
        notes
    }

    fn distance(&self) -> String {
        format!(
            "{} behind (height {} of {})",
            counted(self.behind(), "block"),
            grouped(self.height.0),
            grouped(self.network_height.0)
        )
    }

    fn seconds_left(&self) -> Option<u64> {
        if self.behind() <= USUAL_LAG {
            return None;
        }
        let closing = self.closing_per_second.filter(|closing| *closing > 0.0)?;
        Some((self.behind() as f64 / closing).ceil() as u64)
    }

    fn silence(&self) -> String {
        match &self.voting {
            Voting::Votes => {
                let behind = self.clock_ahead_ms.unwrap_or_default().unsigned_abs();
                format!(
                    "its clock is {} behind the others', so it takes their blocks for invalid",
                    spoken(behind)
                )
            }
            Voting::SilentUntil { epoch, view } => format!(
                "it follows until epoch {epoch}, view {view}, since what its key said before may be \
                 lost"
            ),
            Voting::Recovering {
                answers,
                needed,
                lost,
                ..
            } => format!(
                "its vote journal was lost or old{}, and {answers} of the {needed} answers of other \
                 validators that it needs have come",
                match lost {
                    0 | 1 => String::new(),
                    more => format!(", as those of {} of the others", more - 1),
                }
            ),
            Voting::Checking { answers, needed } => format!(
                "it asks the others for votes of its key that it does not know, and {answers} of the \
                 {needed} answers that it needs have come"
            ),
            Voting::StateSync => "it fetches the state".to_owned(),
            Voting::Follows => "it has no vote".to_owned(),
            Voting::KeySeenElsewhere { .. } => "its key is used elsewhere".to_owned(),
        }
    }

    /// Why the others' votes do not arrive.
    fn obstacles(&self) -> String {
        let mut parts = Vec::new();
        let unreachable = |has_address: bool| {
            self.named(|o| o.voter == Voter::Unreachable && o.has_address == has_address)
        };
        for (named, what) in [
            (unreachable(true), "not reachable"),
            (unreachable(false), "no address is known"),
        ] {
            if !named.is_empty() {
                parts.push(format!("{what}: {named}"));
            }
        }
        for (voter, what) in [
            (Voter::Silent, "linked, but without a vote"),
            (Voter::Behind, "linked, but still catching up"),
            (Voter::Fresh, "linked a moment ago"),
            (Voter::Blocked, "blocked here"),
            (Voter::ClockBehind, "its clock is behind"),
        ] {
            let named = self.named(|other| other.voter == voter);
            if !named.is_empty() {
                parts.push(format!("{what}: {named}"));
            }
        }
        let asking = self.named(Other::waits_for_answers);
        if !asking.is_empty() {
            parts.push(format!("asking what the journal lacks: {asking}"));
        }
        if !self.votes() {
            parts.push(format!("this one does not vote: {}", self.silence()));
        }
        match parts.is_empty() {
            true => format!("{} of them vote", self.voters()),
            false => parts.join("; "),
        }
    }

    fn named(&self, which: impl Fn(&Other) -> bool) -> String {
        let chosen: Vec<&Other> = self.others.iter().filter(|other| which(other)).collect();
        let mut named: Vec<String> = chosen
            .iter()
            .take(MAX_NAMED)
            .map(|other| format!("{} ({})", other.validator.0, other.name))
            .collect();
        if chosen.len() > MAX_NAMED {
            named.push(format!("{} more", chosen.len() - MAX_NAMED));
        }
        match chosen.len() {
            0 => String::new(),
            1 => format!("validator {}", named.join("")),
            _ => format!("validators {}", named.join(", ")),
        }
    }
}

pub(super) fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A time in UTC.
pub fn clock_time(ms: u64) -> String {
    let seconds = i64::try_from(ms / 1_000).unwrap_or(i64::MAX);
    match time::OffsetDateTime::from_unix_timestamp(seconds) {
        Ok(at) => format!(
            "{:04}-{:02}-{:02} {:02}:{:02}:{:02} UTC",
            at.year(),
            u8::from(at.month()),
            at.day(),
            at.hour(),
            at.minute(),
            at.second()
        ),
        Err(_) => format!("{seconds} s after 1970"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::View;

    const SECOND: Duration = Duration::from_secs(1);

    fn other(place: u32) -> Other {
        Other {
            validator: ValidatorIndex(place),
            name: format!("0000000{place}"),
            linked: true,
            has_address: true,
            refuses: false,
            doubled: false,
            voter: Voter::Votes,
            asks: false,
            clock_ahead_ms: Some(0),
            claimed: Some(Height(8_101)),
        }
    }

    fn away(place: u32) -> Other {
        Other {
            linked: false,
            voter: Voter::Unreachable,
            ..other(place)
        }
    }

    fn silent(place: u32) -> Other {
        Other {
            voter: Voter::Silent,
            ..other(place)
        }
    }

    /// Validator 0 of four, all well.
    fn facts() -> Facts {
        Facts {
            growth: Growth {
                since_final: SECOND / 10,
                final_since_start: true,
                start_height: Height(0),
                views_without_block: 0,
                blocks_per_second: 50.0,
                slow: None,
                usual: 2 * SECOND,
                configured: 2 * SECOND,
            },
            quorum: 3,
            faults: 1,
            protocol: Protocol::Simplex,
            height: Height(8_101),
            network_height: Height(8_101),
            heard: true,
            closing_per_second: Some(0.0),
            others: vec![other(1), other(2), other(3)],
            voting: Voting::Votes,
            asks: false,
            gone: None,
            unexecuted: 0,
            now_ms: 1_800_000_000_000,
            block_ms: 1_799_999_999_900,
            clock_ahead_ms: Some(3),
            clocks_refused: false,
            low_disk: None,
        }
    }

    fn stands(facts: Facts, seconds: u32) -> Facts {
        Facts {
            growth: Growth {
                since_final: seconds * SECOND,
                ..facts.growth
            },
            ..facts
        }
    }

    #[test]
    fn all_well_has_no_remedy_and_no_note() {
        let verdict = decide(&facts());
        assert_eq!(verdict.state, Health::Healthy);
        assert_eq!(verdict.summary, "healthy: newest block 0.1 s old");
        assert_eq!((verdict.remedy, verdict.notes), (None, Vec::new()));
        assert_eq!(verdict.voters, 4);
    }

    #[test]
    fn one_failure_before_the_halt_is_told_whether_the_one_is_away_or_silent() {
        for one in [away(3), silent(3)] {
            let verdict = decide(&Facts {
                others: vec![other(1), other(2), one],
                ..facts()
            });
            assert_eq!(verdict.state, Health::Healthy);
            let notes = verdict.notes.join("\n");
            assert!(notes.contains("validator 3 (00000003)"), "{notes}");
            assert!(
                notes.contains("one more failure halts the chain: 3 of 4 validators vote, 3 must"),
                "{notes}"
            );
        }
    }

    #[test]
    fn a_halted_chain_names_since_when_and_whom_it_waits_for() {
        let halted = decide(&stands(
            Facts {
                others: vec![other(1), silent(2), away(3)],
                ..facts()
            },
            11,
        ));
        assert_eq!(halted.state, Health::Halted);
        assert_eq!(
            halted.summary,
            "halted since 2027-01-15 07:59:49 UTC: needs 3 of 4 validators; not reachable: validator 3 \
             (00000003); linked, but without a vote: validator 2 (00000002); newest block 11 s old"
        );
        assert_eq!(
            halted.remedy.as_deref(),
            Some(
                "bring back one of them: validators 2 (00000002), 3 (00000003); of those that run, their own \
                 `quorate status` says why they do not vote"
            )
        );
        assert!(!halted.notes.iter().any(|note| note.contains("one more")));
        // Without a quorum of links it is known why nothing comes.
        let unlinked = Facts {
            others: vec![other(1), away(2), away(3)],
            ..facts()
        };
        assert_eq!(decide(&stands(unlinked.clone(), 3)).state, Health::Halted);
        assert_eq!(decide(&stands(unlinked, 1)).state, Health::Healthy);
        // An idle chain makes its blocks as seldom as it is told to.
        let mut idle = stands(facts(), 40);
        assert_eq!(decide(&idle).state, Health::Halted);
        idle.growth.usual = 60 * SECOND;
        assert_eq!(decide(&idle).state, Health::Healthy);
    }

    #[test]
    fn the_remedy_of_a_halt_names_the_fewest_that_end_it() {
        let remedy = |facts: Facts| {
            let halted = decide(&stands(facts, 11));
            assert_eq!(halted.state, Health::Halted);
            halted.remedy.expect("a remedy")
        };
        // Two of four run, and both ask for votes of their keys until one more comes.
        let asks = Facts {
            others: vec![away(1), away(2), silent(3)],
            voting: Voting::Checking {
                answers: 1,
                needed: 2,
            },
            ..facts()
        };
        assert_eq!(
            remedy(asks.clone()),
            "bring back one of them: validators 1 (00000001), 2 (00000002); if that is not enough, \
             `quorate status` of those that run without a vote says why: validator 3 (00000003)"
        );
        // The other one votes.
        let others = vec![other(3), away(1), away(2)];
        assert_eq!(
            remedy(Facts { others, ..asks }),
            "bring back one of them: validators 1 (00000001), 2 (00000002)"
        );
        // One that waits for an epoch does not count.
        let follows = Facts {
            others: vec![other(3), away(1), away(2)],
            voting: Voting::SilentUntil {
                epoch: 3,
                view: View(1),
            },
            ..facts()
        };
        assert!(remedy(follows).starts_with("bring back 2 of them"));
    }

    #[test]
    fn who_lacks_blocks_by_the_word_of_one_says_so_and_what_it_waits_for() {
        let mut new = stands(
            Facts {
                height: Height(0),
                network_height: Height(0),
                block_ms: 0,
                others: vec![other(1), away(2), away(3)],
                ..facts()
            },
            11,
        );
        new.growth.final_since_start = false;
        new.others[0].claimed = Some(Height(23_756));
        let verdict = decide(&new);
        assert_eq!(verdict.state, Health::Halted);
        let told = "validator 1 (00000001) says that it has 23,756 blocks more than this one (height 0 of \
                    23,756); this one fetches them, or the state, once 2 linked validators say so";
        assert!(
            verdict.notes.iter().any(|note| note == told),
            "{:?}",
            verdict.notes
        );
        new.others[0].claimed = Some(Height(USUAL_LAG));
        assert!(!decide(&new).notes.iter().any(|note| note.contains("says")));
    }

    #[test]
    fn final_blocks_that_wait_for_execution_are_caught_up_with() {
        let executing = |unexecuted, age_ms| {
            let now_ms = facts().now_ms;
            decide(&Facts {
                unexecuted,
                block_ms: now_ms - age_ms,
                ..facts()
            })
        };
        let verdict = executing(406, 2_500);
        assert_eq!(verdict.state, Health::CatchingUp);
        assert_eq!(
            verdict.summary,
            "catching up: 406 final blocks to execute; newest block 0.1 s old"
        );
        assert_eq!((verdict.notes.len(), verdict.seconds_left), (0, None));
        // A busy chain has some blocks in flight, and an idle one has old blocks.
        assert_eq!(executing(30, 1_500).state, Health::Healthy);
        assert_eq!(executing(USUAL_LAG, 60_000).state, Health::Healthy);
    }

    #[test]
    fn who_has_lost_all_others_does_not_say_that_the_chain_stands() {
        let mut alone = stands(
            Facts {
                others: vec![away(1), away(2), away(3)],
                ..facts()
            },
            3,
        );
        let verdict = decide(&alone);
        assert_eq!(verdict.state, Health::CutOff);
        assert!(verdict.summary.contains("the others may go on"));
        alone.clocks_refused = true;
        assert!(decide(&alone).remedy.is_some_and(|r| r.contains("NTP")));
        alone.clocks_refused = false;
        alone.others[0].refuses = true;
        assert_eq!(decide(&alone).state, Health::CutOff, "one may lie");
        alone.others[1].refuses = true;
        let refused = decide(&alone);
        assert_eq!(refused.state, Health::Refused);
        assert!(
            refused
                .summary
                .contains("validators 1 (00000001), 2 (00000002)")
        );
    }

    #[test]
    fn whose_address_is_unknown_is_named_with_what_helps() {
        let mut alone = stands(
            Facts {
                others: vec![away(1), away(2), away(3)],
                ..facts()
            },
            3,
        );
        let verdict = decide(&alone);
        assert_eq!(verdict.state, Health::CutOff, "{}", verdict.summary);
        assert!(verdict.summary.contains("not reachable: validators 1"));
        assert!(!verdict.remedy.is_some_and(|r| r.contains("and restart")));
        alone.others[1].has_address = false;
        let verdict = decide(&alone);
        let summary = &verdict.summary;
        assert!(
            summary.contains("not reachable: validators 1 "),
            "{summary}"
        );
        assert!(
            summary.contains("no address is known: validator 2 "),
            "{summary}"
        );
        let remedy = verdict.remedy.expect("a remedy");
        assert!(
            remedy.starts_with("add validator 2 (00000002) to `[[p2p.peers]]`"),
            "{remedy}"
        );
    }

    #[test]
    fn who_is_far_behind_does_not_count_its_own_votes() {
        let behind = |blocks| {
            decide(&Facts {
                height: Height(1_000),
                network_height: Height(1_000 + blocks),
                ..facts()
            })
        };
        assert_eq!(behind(VOTE_VIEWS).voters, 4);
        assert_eq!(behind(VOTE_VIEWS + 1).voters, 3);
    }

    #[test]
    fn catching_up_tells_how_far_how_fast_and_how_long() {
        let behind = Facts {
            height: Height(1_000),
            network_height: Height(13_000),
            closing_per_second: Some(100.0),
            ..facts()
        };
        let verdict = decide(&behind);
        assert_eq!(verdict.state, Health::CatchingUp);
        assert_eq!(verdict.seconds_left, Some(120));
        assert_eq!(
            verdict.summary,
            "catching up: 12,000 blocks behind (height 1,000 of 13,000), 50.0 blocks/s, about 2 min \
             left; newest block 0.1 s old"
        );
        let slower = Facts {
            closing_per_second: Some(-1.0),
            ..behind.clone()
        };
        assert!(decide(&slower).summary.contains("does not shrink"));
        let new = Facts {
            closing_per_second: None,
            ..behind.clone()
        };
        assert!(decide(&new).summary.contains("not known yet"));
        assert_eq!(decide(&stands(behind, 11)).state, Health::Stuck);
    }

    #[test]
    fn blocks_are_gone_when_all_but_f_linked_peers_say_so_and_none_comes() {
        let mut gone = stands(
            Facts {
                network_height: Height(9_000),
                gone: Some(Gone {
                    wanted: Height(8_102),
                    lacking: vec![
                        (ValidatorIndex(1), Height(8_900)),
                        (ValidatorIndex(2), Height(8_718)),
                    ],
                }),
                ..facts()
            },
            3,
        );
        let verdict = decide(&gone);
        assert_eq!(verdict.state, Health::BlocksGone);
        assert!(
            verdict
                .summary
                .contains("no peer keeps block 8,102; the oldest is 8,718"),
            "{}",
            verdict.summary
        );
        assert_eq!(verdict.gone, Some((Height(8_102), Height(8_718))));
        assert_eq!(decide(&stands(gone.clone(), 1)).state, Health::CatchingUp);
        // Who is not linked any more may have said anything.
        gone.others[0] = away(1);
        assert_eq!(decide(&gone).state, Health::CatchingUp, "f may lie");
    }

    #[test]
    fn in_sync_is_not_enough_for_a_validator_that_does_not_vote() {
        let follows = Facts {
            voting: Voting::SilentUntil {
                epoch: 17,
                view: View(1),
            },
            ..facts()
        };
        let verdict = decide(&follows);
        assert_eq!(verdict.state, Health::NotVoting);
        assert!(verdict.summary.contains("until epoch 17"));
        assert_eq!(verdict.voters, 3);
        let halted = Facts {
            others: vec![other(1), other(2), away(3)],
            ..follows
        };
        let halted = decide(&stands(halted, 30));
        assert_eq!(halted.state, Health::Halted);
        assert!(halted.summary.contains("this one does not vote"));
        let elsewhere = Facts {
            voting: Voting::KeySeenElsewhere {
                address: Some("10.0.0.9".to_owned()),
                told_by: None,
            },
            ..facts()
        };
        let verdict = decide(&elsewhere);
        assert_eq!(verdict.state, Health::KeySeenElsewhere);
        assert!(verdict.summary.contains("at 10.0.0.9"));
    }

    #[test]
    fn more_lost_journals_than_the_chain_can_do_without_do_not_pass_by_themselves() {
        let recovering = |lost, refused| Facts {
            voting: Voting::Recovering {
                answers: 2,
                needed: 3,
                lost,
                refused,
            },
            ..facts()
        };
        let one = decide(&recovering(1, false));
        assert_eq!(one.state, Health::NotVoting);
        assert!(one.remedy.expect("a remedy").contains("by itself"));
        let two = decide(&recovering(2, false));
        assert_eq!(two.state, Health::Halted);
        assert!(
            two.summary.contains("as those of 1 of the others"),
            "{}",
            two.summary
        );
        let remedy = two.remedy.expect("a remedy");
        assert!(remedy.contains("More than f journals"), "{remedy}");
        let refused = decide(&recovering(2, true)).remedy.expect("a remedy");
        assert!(refused.contains("does not fit"), "{refused}");
        let pbft = Facts {
            protocol: Protocol::Pbft,
            ..recovering(2, false)
        };
        let remedy = decide(&pbft).remedy.expect("a remedy");
        assert!(
            remedy.contains("with pbft nothing replaces them") && !remedy.contains("operators"),
            "{remedy}"
        );
    }

    #[test]
    fn who_goes_through_epochs_that_the_others_have_left_is_not_healthy() {
        let past = Facts {
            heard: false,
            now_ms: facts().block_ms + 60_000,
            ..facts()
        };
        let verdict = decide(&past);
        assert_eq!(verdict.state, Health::CatchingUp, "{}", verdict.summary);
        assert!(
            verdict.summary.contains("60 s old") || verdict.summary.contains("1 min"),
            "{}",
            verdict.summary
        );
        assert_eq!(
            decide(&Facts {
                heard: true,
                ..past
            })
            .state,
            Health::Healthy
        );
    }

    #[test]
    fn who_starts_after_a_halt_is_not_healthy_before_the_first_block() {
        let mut starts = Facts {
            now_ms: facts().block_ms + 69_000,
            ..facts()
        };
        starts.growth.final_since_start = false;
        let verdict = decide(&starts);
        assert_eq!(verdict.state, Health::Starting, "{}", verdict.summary);
        let told = "starting: no new block yet since its start; newest block 69 s old";
        assert!(verdict.summary.starts_with(told), "{}", verdict.summary);
        starts.growth.final_since_start = true;
        assert_eq!(decide(&starts).state, Health::Healthy);
        // A chain that pauses for longer.
        starts.growth.final_since_start = false;
        starts.growth.usual = 30 * SECOND;
        assert_eq!(decide(&starts).state, Health::Healthy);
    }

    /// Ten validators of which the last three never ran, and validator 6, whose journal is old.
    fn three_seats_without_machines(own_is_old: bool) -> Facts {
        let asks = Other {
            asks: true,
            ..silent(6)
        };
        let mut others: Vec<Other> = (1..6).map(other).collect();
        others.push(if own_is_old { other(6) } else { asks });
        others.extend((7..10).map(away));
        Facts {
            quorum: 7,
            faults: 3,
            protocol: Protocol::Simplex,
            others,
            voting: match own_is_old {
                true => Voting::Recovering {
                    answers: 6,
                    needed: 7,
                    lost: 1,
                    refused: false,
                },
                false => Voting::Votes,
            },
            ..stands(facts(), 3)
        }
    }

    #[test]
    fn a_journal_that_waits_for_answers_names_who_can_give_them() {
        for own_is_old in [false, true] {
            let verdict = decide(&three_seats_without_machines(own_is_old));
            assert_eq!(verdict.state, Health::Halted, "within seconds");
            let remedy = verdict.remedy.expect("a remedy");
            let told = "bring back one of them with its journal: validators 7 (00000007), 8 (00000008), 9 \
                        (00000009). One whose journal is lost as well does not count";
            assert!(remedy.contains(told), "{remedy}");
            assert!(remedy.contains("7 others with whole journals"), "{remedy}");
        }
        // Before anybody can know.
        let mut early = three_seats_without_machines(false);
        early.growth.since_final = SECOND;
        assert_eq!(decide(&early).state, Health::Healthy);
    }

    #[test]
    fn those_that_start_too_late_to_count_as_whole_lead_to_the_operators_word() {
        let mut voter = three_seats_without_machines(false);
        for late in &mut voter.others[6..8] {
            late.linked = true;
            late.voter = Voter::Fresh;
            late.asks = true;
        }
        // Three ask, and seven are a quorum still.
        let remedy = decide(&voter).remedy.expect("a remedy");
        assert!(remedy.contains("bring back one of them with its journal: validator 9"));
        voter.others[8] = voter.others[7].clone();
        let remedy = decide(&voter).remedy.expect("a remedy");
        assert!(remedy.contains("all operators together follow OPERATING.md, \"More than f"));
        voter.protocol = Protocol::HotstuffChained;
        let remedy = decide(&voter).remedy.expect("a remedy");
        assert!(
            remedy.contains("with hotstuff-chained nothing replaces them")
                && !remedy.contains("operators"),
            "{remedy}"
        );
        voter.protocol = Protocol::Simplex;
        // One that votes has its answers, and would be one of those that ask otherwise.
        voter.asks = true;
        let remedy = decide(&voter).remedy.expect("a remedy");
        assert!(!remedy.contains("all operators together"), "{remedy}");
        let mut old = three_seats_without_machines(true);
        old.voting = Voting::Recovering {
            answers: 6,
            needed: 7,
            lost: 4,
            refused: false,
        };
        let remedy = decide(&old).remedy.expect("a remedy");
        assert!(remedy.contains("all operators together follow OPERATING.md"));
        assert!(remedy.contains("start these, too: validators 7 (00000007), 8"));
    }

    #[test]
    fn a_halt_shows_once_a_block_is_late_and_too_few_vote() {
        let two_of_four = |others: Vec<Other>| Facts { others, ..facts() };
        let state = |facts: &Facts, ms: u64| {
            let mut facts = facts.clone();
            facts.growth.since_final = Duration::from_millis(ms);
            decide(&facts).state
        };
        // Links end at once.
        let away = two_of_four(vec![other(1), away(2), away(3)]);
        assert_eq!(state(&away, 1_400), Health::Healthy);
        assert_eq!(state(&away, 1_600), Health::Halted);
        // Their last votes are a moment old, and no reason to look elsewhere.
        let mut lately = stands(away.clone(), 2);
        for gone in &mut lately.others[1..] {
            gone.voter = Voter::Votes;
        }
        let remedy = decide(&lately).remedy.expect("a remedy");
        assert_eq!(
            remedy,
            "bring back one of them: validators 2 (00000002), 3 (00000003)"
        );
        let silent = two_of_four(vec![other(1), silent(2), silent(3)]);
        assert_eq!(state(&silent, 1_600), Health::Healthy);
        assert_eq!(state(&silent, 2_100), Health::Halted);
        // This one would be the third, and asks for its votes first.
        let mut asks = two_of_four(vec![other(1), other(2), silent.others[2].clone()]);
        assert_eq!(state(&asks, 2_100), Health::Healthy);
        asks.asks = true;
        assert_eq!(state(&asks, 2_100), Health::Halted);
        // Who has just come may be about to vote.
        let mut fresh = silent;
        fresh.others[1].voter = Voter::Fresh;
        let remedy = decide(&stands(fresh, 3)).remedy.expect("a remedy");
        assert!(remedy.starts_with("look again in some seconds"), "{remedy}");
    }

    #[test]
    fn a_wrong_clock_is_told_whatever_else_is_wrong() {
        let wrong = Facts {
            clock_ahead_ms: Some(-3_000),
            ..stands(facts(), 30)
        };
        let notes = decide(&wrong).notes.join("\n");
        assert!(
            notes.contains("this machine's clock is 3.0 s behind"),
            "{notes}"
        );
        // With one other alone it is not known whose it is.
        let mut differ = Facts {
            clock_ahead_ms: None,
            others: vec![away(1), away(2), other(3)],
            ..stands(facts(), 30)
        };
        differ.others[2].clock_ahead_ms = Some(-3_000);
        let notes = decide(&differ).notes.join("\n");
        assert!(
            notes.contains("of this machine and of validator 3 (00000003) differ"),
            "{notes}"
        );
    }

    #[test]
    fn the_one_whose_clock_is_wrong_is_named_by_the_others() {
        let mut one = facts();
        one.others[1].clock_ahead_ms = Some(-30_000);
        assert_eq!(
            decide(&one).notes,
            [
                "the clock of validator 2 (00000002) is 30 s ahead of the others': tell its operator (NTP); \
                 from 5 s on its blocks or its votes are lost"
            ]
        );
        // It says so itself, and not that all others are wrong.
        let mut own = facts();
        own.clock_ahead_ms = Some(-30_000);
        for other in &mut own.others {
            other.clock_ahead_ms = Some(-30_000);
        }
        let verdict = decide(&own);
        assert_eq!(verdict.state, Health::NotVoting);
        assert!(
            verdict
                .summary
                .contains("its clock is 30 s behind the others'"),
            "{}",
            verdict.summary
        );
        assert_eq!(
            verdict.remedy.as_deref(),
            Some("synchronise this machine's clock (NTP)")
        );
        assert_eq!(verdict.voters, 3);
        let named = verdict
            .notes
            .iter()
            .filter(|note| note.contains("the clock of"));
        assert_eq!(named.count(), 0, "{:?}", verdict.notes);
    }

    #[test]
    fn who_takes_blocks_for_invalid_because_of_its_clock_does_not_count() {
        let mut one = facts();
        one.others[1].clock_ahead_ms = Some(30_000);
        one.others[1].voter = Voter::ClockBehind;
        let verdict = decide(&one);
        assert_eq!((verdict.state, verdict.voters), (Health::Healthy, 3));
        let notes = verdict.notes.join("\n");
        assert!(
            notes.contains("one more failure halts the chain"),
            "{notes}"
        );
        assert!(
            notes.contains("the clock of validator 2 (00000002) is 30 s behind"),
            "{notes}"
        );
    }

    #[test]
    fn blocks_that_come_slowly_are_told_although_the_chain_goes_on() {
        let slow = Facts {
            growth: Growth {
                slow: Some(6 * SECOND),
                ..facts().growth
            },
            ..facts()
        };
        let verdict = decide(&slow);
        assert_eq!(verdict.state, Health::Healthy);
        assert_eq!(
            verdict.notes,
            ["blocks are slow: one in 6.0 s on average, 2.0 s at most is usual"]
        );
    }
}
