//! The verdict in words: its sentence, what to do, and what else to know.

use super::{CLOCK_TOLD_MS, Facts, Other, ms};
use crate::live::progress::USUAL_LAG;
use quorate_api::verdict::{Health, Voter, Voting, counted, grouped, spoken};
use quorate_types::{Height, genesis::Protocol};

/// Most validators named in a sentence.
const MAX_NAMED: usize = 8;

/// Beside whom to bring back: nothing tells a process that has ended from a network that is cut.
const OR_LINKS: &str = ", or the links to them if they run";

/// What to do if more than f journals are lost.
const MANY_LOST: &str = "OPERATING.md, \"More than f journals are lost at once\"";

impl Facts {
    pub(super) fn summary(&self, state: Health) -> String {
        let age = match self.block_age() {
            Some(age) => format!("newest block {} old", spoken(age)),
            None => "no block yet".to_owned(),
        };
        let needs = format!("needs {} of {} validators", self.quorum, self.size());
        match state {
            Health::Healthy | Health::Unknown => format!("healthy: {age}"),
            // State sync runs before this part of the validator does, and has its own summary.
            Health::StateSync => "state sync".to_owned(),
            Health::Starting if self.heard && self.block_ms == 0 => format!("starting: {age}"),
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
            Health::CatchingUp
                if self.behind() <= USUAL_LAG && self.fetched_block_age().is_some() =>
            {
                format!(
                    "catching up: at height {}, and the blocks that come are old; {age}",
                    grouped(self.height.0)
                )
            }
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

    pub(super) fn remedy(&self, state: Health) -> Option<String> {
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
                Voting::SilentUntil { .. } | Voting::Recovering { .. } if self.is_bound() => {
                    format!(
                        "nothing is to be done: it votes again by itself. Until then no more than {} in all may lose \
                         their journals: with {} the chain ends otherwise (OPERATING.md, \"Which protocol\")",
                        self.faults,
                        self.protocol.name()
                    )
                }
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
                false => "compare the chain's id with theirs (`quorate genesis show`); ask their operators whether \
                          they block this validator (`quorate peers list` there tells why), and whether their configuration or the registry \
                          (`quorate registry list`) has the address that it comes from; look for another process with this validator's keys, which has its \
                          links; check this machine's clock. Where a proxy or a port forward stands before them, it may be they that are down"
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
                match self.is_bound() {
                    true => format!("this one, {}", self.named(Other::waits_for_answers)),
                    false => self.named(Other::waits_for_answers),
                },
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
        let votes_after_answers = self.protocol == Protocol::Simplex;
        if let Voting::Recovering {
            answers,
            needed,
            lost,
            ..
        } = self.voting
            && votes_after_answers
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
        if self.asking() > 0 && votes_after_answers {
            return format!(
                "those that ask what their journals lack ({}) vote again once {} others with whole journals \
                 have answered them: {}",
                self.named(Other::waits_for_answers),
                self.quorum,
                self.whom_it_lacks(self.linked() - self.asking(), self.quorum)
            );
        }
        let to_bring = self.others.iter().filter(|o| o.voter != Voter::Votes);
        let to_bring = to_bring.count();
        let so_many = |missing: usize| match missing.min(to_bring) {
            0 | 1 => "one of them".to_owned(),
            more => format!("{more} of them"),
        };
        let bound = match votes_after_answers {
            true => String::new(),
            false => self.those_that_wait_for_an_epoch(),
        };
        let soon =
            |o: &Other| o.runs_without_vote() && (votes_after_answers || !o.waits_for_answers());
        let waiting = self.named(soon);
        let checks = usize::from(matches!(self.voting, Voting::Checking { .. }));
        let silent = self.others.iter().filter(|other| soon(other)).count();
        let missing = self.quorum.saturating_sub(self.voters() + checks + silent);
        let away = self.named(|o: &Other| o.voter != Voter::Votes && !o.runs_without_vote());
        match (missing, waiting.is_empty()) {
            (0, false) => format!(
                "bring back {}: {}; of those that run, their own `quorate status` says why they do not vote{bound}",
                so_many(self.quorum.saturating_sub(self.voters() + checks)),
                self.named(|other| other.voter != Voter::Votes)
            ),
            (_, true) if away.is_empty() => {
                format!("all run: `quorate status` of those that do not vote says why{bound}")
            }
            (_, true) => format!("bring back {}{OR_LINKS}: {away}{bound}", so_many(missing)),
            (_, false) => format!(
                "bring back {}{OR_LINKS}: {away}; if that is not enough, `quorate status` of those that run without a \
                 vote says why: {waiting}{bound}",
                so_many(missing),
            ),
        }
    }

    /// Those whose journals may be lost, on a chain where that binds them until an epoch ends.
    fn those_that_wait_for_an_epoch(&self) -> String {
        let asking = self.named(Other::waits_for_answers);
        let who = match (self.is_bound(), asking.is_empty()) {
            (false, true) => return String::new(),
            (true, true) => "this one".to_owned(),
            (true, false) => format!("this one and {asking}"),
            (false, false) => format!("{asking}, if it is"),
        };
        format!(
            ". With {} a validator whose journal is lost or old votes again only when the next epoch ends, \
             so the others have to get there without it: {who}",
            self.protocol.name()
        )
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
    pub(super) fn notes(&self, state: Health) -> Vec<String> {
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
            let relayed = |other: &Other| other.relayed && other.voter == Voter::Votes;
            if self.others.iter().any(relayed) {
                notes.push(format!(
                    "no link to {}, whose votes came through others in the last seconds: look at the addresses and the firewalls \
                     on both sides (`quorate peers list`)",
                    self.named(relayed)
                ));
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
                 tell its operator to stop one of them, and to keep the one with the whole journal"
            ));
        }
        // On an idle chain blocks come as far apart as is usual, and now and then a little farther.
        let patience = self.growth.usual * 3 / 2;
        if state == Health::Healthy && self.growth.since_final > patience {
            notes.push(format!(
                "no block for {}, though enough validators vote: leaders that do not answer are passed over, each after \
                 a time-out",
                spoken(ms(self.growth.since_final))
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
