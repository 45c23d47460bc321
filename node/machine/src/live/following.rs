//! The verdict on a follower: a node that executes the chain without a vote.

use super::{
    Room,
    progress::{Growth, USUAL_LAG},
    verdict::{clock_time, executes_late, ms},
};
use crate::roles::OLD_MS;
use quorate_api::verdict::{Health, VerdictJson, Voting, counted, grouped, spoken};
use quorate_types::{Height, Identity};

/// A node that a follower follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    pub identity: Identity,
    pub linked: bool,
    /// Whether it validates in this epoch, if the validators can change.
    pub acts: bool,
    /// The height that it says is final.
    pub claimed: Option<Height>,
    /// It says that it keeps no older block, and the next one that is missing here is older.
    pub oldest: Option<Height>,
}

/// What a node without a vote is here for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// It follows, and that is all.
    #[default]
    Follows,
    /// It is a validator without a seat in this epoch, with a bond or without.
    WithoutSeat { bonded: bool },
    /// It has a seat, and the registry has another vote key for it.
    OtherKey,
    /// It has a seat, and its share of the group key is not here.
    NoShare,
    /// It has a seat, and looks for newer blocks before it votes.
    LooksForNewer,
}

/// The height that so many faulty nodes cannot make up, if more than that have said one. Those without a seat count only
/// where no validator says anything: any number of them may be one operator's.
pub(crate) fn network_height(upstreams: &[Upstream], faults: usize) -> Option<Height> {
    let acts = |one: &Upstream| one.acts && one.claimed.is_some();
    let any_acts = upstreams.iter().any(acts);
    let heard = upstreams.iter().filter(|one| !any_acts || one.acts);
    let mut claims: Vec<Height> = heard.filter_map(|one| one.claimed).collect();
    claims.sort_unstable_by(|a, b| b.cmp(a));
    // With few upstream nodes at most a minority of them is taken for faulty.
    let doubted = faults.min(claims.len().saturating_sub(1) / 2);
    claims.get(doubted).copied()
}

/// Everything that the verdict depends on.
pub(super) struct Facts {
    pub(super) growth: Growth,
    pub(super) height: Height,
    pub(super) network_height: Height,
    pub(super) closing_per_second: Option<f64>,
    pub(super) upstreams: Vec<Upstream>,
    pub(super) unexecuted: u64,
    pub(super) now_ms: u64,
    /// The newest final block's timestamp; zero before the first.
    pub(super) block_ms: u64,
    pub(super) clocks_refused: bool,
    pub(super) low_disk: Option<Room>,
    pub(super) part: Part,
    /// The remedy that was shown when it voted last.
    pub(super) last_remedy: Option<String>,
}

impl Facts {
    fn behind(&self) -> u64 {
        self.network_height.0.saturating_sub(self.height.0)
    }

    fn linked(&self) -> impl Iterator<Item = &Upstream> {
        self.upstreams.iter().filter(|one| one.linked)
    }

    /// The oldest block that a linked node keeps, if none of them keeps the next one.
    fn gone(&self) -> Option<Height> {
        let oldest: Option<Vec<Height>> = self.linked().map(|one| one.oldest).collect();
        oldest?.into_iter().min()
    }

    fn state(&self) -> Health {
        let is_behind = self.behind() > USUAL_LAG;
        let since = self.growth.since_final;
        let linked = self.linked().count();
        if linked == 0 {
            return match since > self.growth.usual {
                true => Health::CutOff,
                false => Health::Starting,
            };
        }
        // With a seat it has given up on its epoch's validators, or has just started, and knows no more than how
        // long no block has come.
        let is_late = match self.part {
            Part::LooksForNewer => since > self.growth.usual,
            _ => since > self.growth.patience(true),
        };
        let is_heard = self.linked().any(|one| one.claimed.is_some());
        match (is_behind, is_late) {
            (true, _) if self.gone().is_some() => Health::BlocksGone,
            (true, true) => Health::Stuck,
            (true, false) => Health::CatchingUp,
            (false, true) => Health::Halted,
            (false, false) if executes_late(self.unexecuted, self.now_ms, self.block_ms) => {
                Health::CatchingUp
            }
            (false, false) if self.growth.final_since_start && self.gets_old_blocks() => {
                Health::CatchingUp
            }
            (false, false)
                if !self.growth.final_since_start
                    && (!is_heard || self.block_ms == 0 || self.gets_old_blocks()) =>
            {
                Health::Starting
            }
            (false, false) => match self.part {
                Part::LooksForNewer if self.growth.final_since_start && self.is_apart() => {
                    Health::NotVoting
                }
                Part::LooksForNewer => Health::Starting,
                Part::OtherKey | Part::NoShare => Health::NotVoting,
                Part::Follows | Part::WithoutSeat { .. } => Health::Healthy,
            },
        }
    }

    /// Whether the newest block was made long before it came.
    fn gets_old_blocks(&self) -> bool {
        let age = self.now_ms.saturating_sub(self.block_ms);
        self.block_ms > 0 && age > ms(self.growth.since_final).saturating_add(OLD_MS)
    }

    /// Whether it has no link to a validator of the epoch.
    fn is_apart(&self) -> bool {
        !self.linked().any(|one| one.acts)
    }

    /// By the block's timestamp only if that is old: the validators' clocks may differ from this one.
    fn block_age(&self) -> Option<u64> {
        let age = self.now_ms.saturating_sub(self.block_ms);
        match self.growth.final_since_start {
            true if age > OLD_MS && self.block_ms > 0 => Some(age),
            true => Some(ms(self.growth.since_final)),
            false if self.block_ms > 0 => Some(age),
            false => None,
        }
    }

    fn seconds_left(&self) -> Option<u64> {
        if self.behind() <= USUAL_LAG {
            return None;
        }
        let closing = self.closing_per_second.filter(|closing| *closing > 0.0)?;
        Some((self.behind() as f64 / closing).ceil() as u64)
    }

    fn distance(&self) -> String {
        format!(
            "{} behind (height {} of {})",
            counted(self.behind(), "block"),
            grouped(self.height.0),
            grouped(self.network_height.0)
        )
    }

    fn summary(&self, state: Health) -> String {
        let age = match self.block_age() {
            Some(age) => format!("newest block {} old", spoken(age)),
            None => "no block yet".to_owned(),
        };
        let all = self.upstreams.len();
        let links = format!(
            "linked to {} of the {all} nodes that it follows",
            self.linked().count()
        );
        match state {
            Health::Starting if self.part == Part::LooksForNewer => {
                format!("starting: looks for newer blocks before it votes; {links}; {age}")
            }
            Health::Starting => format!("starting: {links}; {age}"),
            Health::NotVoting if self.part == Part::NoShare => format!(
                "follows, and does not vote: its share of the group key for this epoch is not here; {age}"
            ),
            Health::NotVoting if self.part == Part::LooksForNewer => format!(
                "follows, and does not vote: it has a seat, and no link to another validator of this epoch; {links}; {age}"
            ),
            Health::NotVoting => format!(
                "follows, and does not vote: the registry has another vote key for this validator than its \
                 `vote_key` file; {age}"
            ),
            Health::CatchingUp if self.behind() <= USUAL_LAG => {
                let what = match executes_late(self.unexecuted, self.now_ms, self.block_ms) {
                    true => format!("{} to execute", counted(self.unexecuted, "final block")),
                    false => {
                        "gets blocks made long ago, and has not heard yet how many are missing"
                            .to_owned()
                    }
                };
                format!("catching up: {what}; {age}")
            }
            Health::CatchingUp => {
                let rate = self.growth.blocks_per_second;
                let left = match self.seconds_left() {
                    Some(left) => format!("about {} left", spoken(left * 1_000)),
                    None => "how long it takes is not known yet".to_owned(),
                };
                format!(
                    "catching up: {}, {rate:.1} blocks/s, {left}; {age}",
                    self.distance()
                )
            }
            Health::Stuck => format!(
                "stuck: {}, and none has come for {}; {links}; {age}",
                self.distance(),
                spoken(ms(self.growth.since_final))
            ),
            Health::BlocksGone => format!(
                "cannot catch up: no linked node keeps block {}; the oldest is {}; {}",
                grouped(self.height.next().0),
                grouped(self.gone().unwrap_or_default().0),
                self.distance()
            ),
            Health::CutOff => format!("cut off: {links}; {age}"),
            Health::Halted => {
                let since = self.block_age().map_or("the start".to_owned(), |age| {
                    clock_time(self.now_ms.saturating_sub(age))
                });
                if self.part == Part::LooksForNewer {
                    return format!(
                        "halted since {since}: this validator has a seat, and looks for newer blocks for some \
                         seconds, since too few others of its epoch were heard; {links}; {age}"
                    );
                }
                format!(
                    "no block since {since}, and the nodes that it follows have none either: the chain \
                     stands still, or they are cut off from it; {links}; {age}"
                )
            }
            _ => {
                let why = match self.part {
                    Part::WithoutSeat { bonded: true } => {
                        ", until it has a seat (`quorate registry list`)"
                    }
                    Part::WithoutSeat { bonded: false } => ": it has no bond",
                    _ => "",
                };
                format!("healthy: follows the chain without a vote{why}; {age}")
            }
        }
    }

    /// What the registry has to do with it that this node is not linked, or does not vote.
    fn registry_remedy(&self, state: Health) -> Option<String> {
        let height = grouped(self.height.0);
        match (self.part, state) {
            (Part::OtherKey, Health::NotVoting) => Some(
                "put the key that the registry names (`quorate registry show` with this identity) in the place \
                 of the `vote_key` file and restart, or announce the one that is there (`quorate registry \
                 rotate-key`)"
                    .to_owned(),
            ),
            (Part::LooksForNewer, Health::NotVoting) => Some(
                "name a validator that has a seat and runs, with its address, under `[[p2p.peers]]` and restart \
                 (`quorate registry list` shows who has one); and see to it that the registry has this machine's address, \
                 at which they must reach it (`quorate registry describe --address`)"
                    .to_owned(),
            ),
            (Part::NoShare, Health::NotVoting) => Some(
                "leave it running: it votes again from the next border on to which shares are passed on to it \
                 (`quorate registry list` shows how far that is). If the file with the newest shares was moved away, \
                 put it back beside the `vote_key` file and restart"
                    .to_owned(),
            ),
            (Part::WithoutSeat { bonded: false }, Health::CutOff) if self.height == Height(0) => Some(
                "if this identity has a bond, leave this running: validators link with it from the border of an epoch on \
                 that follows the bond (`quorate registry list` at any other node shows the bond, its address, at which \
                 they must reach this machine, and how far the border is; `quorate registry describe` changes the \
                 address). If that border is past, check this machine's network, its firewall, and that a validator of \
                 `[[p2p.peers]]` runs. If its database was lost, name an acting validator under `[[p2p.peers]]` and restart: \
                 the list shows them. If it has no bond, bond (`quorate registry bond`) to validate; to follow, have \
                 operators list this node under `[[p2p.followers]]`"
                    .to_owned(),
            ),
            (Part::WithoutSeat { bonded: false }, Health::CutOff) => Some(format!(
                "this identity has no bond in the state after block {height}, and validators link with nobody \
                 else. If it has withdrawn its stake, stop it (`quorate stop`). To validate, bond (`quorate registry \
                 bond`); to follow, have operators list this node under \
                 `[[p2p.followers]]`. If it has a bond by now, check this machine's network, its firewall, and \
                 the addresses under `[[p2p.peers]]`: if its database was lost, at least one of them must be of a \
                 validator that runs (`quorate registry list --rpc` at any other node names all)"
            )),
            (Part::Follows, _) => None,
            (_, Health::CutOff) => Some(
                "check this machine's network, its firewall, and the addresses under `[[p2p.peers]]`. If it was away for long, \
                 or its database was lost, name an acting validator there and restart (`quorate registry list --rpc` at any \
                 other node names all)"
                    .to_owned(),
            ),
            _ => None,
        }
    }

    fn remedy(&self, state: Health) -> Option<String> {
        if !self.clocks_refused
            && let Some(remedy) = self.registry_remedy(state)
        {
            return Some(remedy);
        }
        let text = match state {
            Health::Halted if self.part == Part::LooksForNewer => {
                return Some(match &self.last_remedy {
                    Some(remedy) => remedy.clone(),
                    None => {
                        "nothing yet: it takes part within seconds, and says then who is missing"
                            .to_owned()
                    }
                });
            }
            Health::CutOff if self.clocks_refused => {
                "handshakes fail since clocks differ by more than 5 s: check this machine's clock (NTP)"
            }
            Health::CutOff => {
                "check this machine's network, its firewall, and the addresses under `[[p2p.peers]]`; ask \
                 the operators of those nodes whether they list this one, with its address, under \
                 `[[p2p.followers]]`"
            }
            Health::Stuck => {
                "look at the log, and at the links to those who have the blocks (`quorate peers list`)"
            }
            Health::BlocksGone => {
                "nothing is to be done: it fetches the state of a recent block next (OPERATING.md, \"Away \
                 for too long\")"
            }
            Health::Halted => "ask the validators' operators: `quorate status` there says why",
            _ => return None,
        };
        Some(text.to_owned())
    }

    fn notes(&self, state: Health) -> Vec<String> {
        let mut notes = Vec::new();
        let away: Vec<String> = self
            .upstreams
            .iter()
            .filter(|one| !one.linked)
            .map(|one| one.identity.short())
            .collect();
        if !away.is_empty() && away.len() < self.upstreams.len() {
            notes.push(format!("not reachable: {}", away.join(", ")));
        }
        if self.part == Part::OtherKey && state != Health::NotVoting {
            notes.push(
                "the registry has another vote key for this validator than its `vote_key` file, so it does not \
                 vote"
                .to_owned(),
            );
        }
        if self.part == Part::NoShare && state != Health::NotVoting {
            notes.push(
                "its share of the group key for this epoch is not here, so it does not vote"
                    .to_owned(),
            );
        }
        let is_told = state == Health::CatchingUp && self.behind() <= USUAL_LAG;
        if self.unexecuted > USUAL_LAG && !is_told {
            let waiting = counted(self.unexecuted, "final block");
            notes.push(format!("{waiting} to execute"));
        }
        if let Some(room) = self.low_disk {
            notes.push(room.warning());
        }
        notes
    }
}

/// The verdict.
pub(super) fn decide(facts: &Facts) -> VerdictJson {
    let state = facts.state();
    let is_bad = matches!(
        state,
        Health::Halted | Health::CutOff | Health::Stuck | Health::BlocksGone
    );
    let began = |age| facts.now_ms.saturating_sub(age);
    VerdictJson {
        state,
        summary: facts.summary(state),
        remedy: facts.remedy(state),
        notes: facts.notes(state),
        block_age_ms: facts.block_age(),
        since_ms: facts.block_age().filter(|_| is_bad).map(began),
        blocks_behind: facts.behind(),
        seconds_left: (state == Health::CatchingUp)
            .then(|| facts.seconds_left())
            .flatten(),
        voting: Voting::Follows,
        voters: 0,
        quorum: 0,
        others: Vec::new(),
        gone: facts.gone().map(|oldest| (facts.height.next(), oldest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const NOW_MS: u64 = 1_800_000_000_000;

    fn facts() -> Facts {
        let upstream = Upstream {
            identity: Identity([7; 32]),
            linked: true,
            acts: true,
            claimed: Some(Height(900)),
            oldest: None,
        };
        Facts {
            growth: Growth {
                since_final: Duration::from_millis(100),
                final_since_start: true,
                start_height: Height(0),
                views_without_block: 0,
                blocks_per_second: 50.0,
                slow: None,
                usual: Duration::from_secs(2),
                configured: Duration::from_secs(2),
            },
            height: Height(900),
            network_height: Height(900),
            closing_per_second: Some(0.0),
            upstreams: vec![upstream],
            unexecuted: 0,
            now_ms: NOW_MS,
            block_ms: NOW_MS - 100,
            clocks_refused: false,
            low_disk: None,
            part: Part::Follows,
            last_remedy: None,
        }
    }

    #[test]
    fn final_blocks_that_wait_for_execution_are_caught_up_with() {
        let executing = |unexecuted, age_ms| {
            let verdict = decide(&Facts {
                unexecuted,
                block_ms: NOW_MS - age_ms,
                ..facts()
            });
            (verdict.state, verdict.summary, verdict.notes.len())
        };
        let summary = "catching up: 68 final blocks to execute; newest block 0.1 s old".to_owned();
        assert_eq!(executing(68, 7_800), (Health::CatchingUp, summary, 0));
        assert_eq!(executing(30, 1_500).0, Health::Healthy);
        assert_eq!(executing(USUAL_LAG, 9_000).0, Health::Healthy);
    }

    #[test]
    fn who_has_no_block_yet_is_not_healthy() {
        let mut empty = Facts {
            block_ms: 0,
            height: Height(0),
            network_height: Height(0),
            ..facts()
        };
        empty.growth.final_since_start = false;
        assert_eq!(decide(&empty).state, Health::Starting);
    }

    #[test]
    fn the_newest_block_is_as_old_as_its_timestamp_says_however_late_it_came() {
        let age = |age_ms| {
            decide(&Facts {
                block_ms: NOW_MS - age_ms,
                ..facts()
            })
            .block_age_ms
        };
        assert_eq!(age(3_000), Some(100), "clocks differ");
        assert_eq!(age(90_000), Some(90_000));
    }

    #[test]
    fn who_gets_old_blocks_is_not_healthy_though_nobody_says_how_many_are_missing() {
        let mut facts = Facts {
            block_ms: NOW_MS - 73_000,
            ..facts()
        };
        let verdict = decide(&facts);
        assert_eq!(verdict.state, Health::CatchingUp);
        assert!(
            verdict.summary.contains("made long ago"),
            "{}",
            verdict.summary
        );
        // After a restart in a halt it cannot know yet.
        facts.growth.final_since_start = false;
        assert_eq!(decide(&facts).state, Health::Starting);
        // Where blocks are rare, the newest one is as old as it came long ago.
        facts.growth.final_since_start = true;
        facts.growth.since_final = Duration::from_secs(72);
        facts.growth.usual = Duration::from_secs(60);
        assert_eq!(decide(&facts).state, Health::Healthy);
    }

    #[test]
    fn with_a_seat_and_no_link_to_a_validator_it_says_so() {
        let mut apart = Facts {
            part: Part::LooksForNewer,
            ..facts()
        };
        assert_eq!(decide(&apart).state, Health::Starting);
        apart.upstreams[0].acts = false;
        let verdict = decide(&apart);
        assert_eq!(verdict.state, Health::NotVoting);
        assert!(verdict.summary.contains("no link to another validator"));
        assert!(
            verdict
                .remedy
                .is_some_and(|remedy| remedy.contains("[[p2p.peers]]"))
        );
    }

    #[test]
    fn nodes_without_a_seat_count_where_no_validator_is_heard() {
        let one = |acts, claimed| Upstream {
            acts,
            claimed: Some(Height(claimed)),
            ..facts().upstreams[0].clone()
        };
        let without = [one(false, 900), one(false, 900), one(false, 900)];
        assert_eq!(network_height(&without, 1), Some(Height(900)));
        let [a, b, c] = without;
        let with = [a, b, c, one(true, 700)];
        assert_eq!(network_height(&with, 1), Some(Height(700)));
    }

    #[test]
    fn a_validator_that_looks_for_newer_blocks_does_not_call_itself_healthy() {
        let mut looks = Facts {
            part: Part::LooksForNewer,
            ..facts()
        };
        assert_eq!(decide(&looks).state, Health::Starting);
        // In a halt: it has given up for some seconds, and finds nothing.
        looks.growth.since_final = Duration::from_secs(3);
        let halted = decide(&looks);
        assert_eq!(halted.state, Health::Halted);
        assert!(halted.summary.contains("has a seat"), "{}", halted.summary);
        assert!(
            halted
                .remedy
                .is_some_and(|remedy| remedy.contains("within seconds"))
        );
        looks.last_remedy = Some("bring back validator 3".to_owned());
        assert_eq!(
            decide(&looks).remedy.as_deref(),
            Some("bring back validator 3")
        );
        // Others are ahead.
        looks.network_height = Height(1_000);
        looks.growth.since_final = Duration::from_secs(1);
        assert_eq!(decide(&looks).state, Health::CatchingUp);
        // Who only follows cannot tell so soon.
        let mut follows = facts();
        follows.growth.since_final = Duration::from_secs(3);
        assert_eq!(decide(&follows).state, Health::Healthy);
    }

    #[test]
    fn without_a_bond_or_with_another_key_the_registry_is_named_and_not_the_network() {
        let mut other = Facts {
            part: Part::OtherKey,
            ..facts()
        };
        let verdict = decide(&other);
        assert_eq!(verdict.state, Health::NotVoting);
        assert!(
            verdict.summary.contains("another vote key"),
            "{}",
            verdict.summary
        );
        let remedy = verdict.remedy.expect("a remedy");
        assert!(remedy.contains("`quorate registry rotate-key`"), "{remedy}");
        // Where validators share a key, there is none to put in its place.
        let lost = decide(&Facts {
            part: Part::NoShare,
            ..facts()
        });
        assert_eq!(lost.state, Health::NotVoting);
        assert!(lost.summary.contains("its share"), "{}", lost.summary);
        let remedy = lost.remedy.expect("a remedy");
        assert!(!remedy.contains("rotate-key"), "{remedy}");
        assert!(remedy.starts_with("leave it running"), "{remedy}");
        // It has a bond: if it is cut off, the network is to blame.
        other.upstreams[0].linked = false;
        other.growth.since_final = Duration::from_secs(3);
        let verdict = decide(&other);
        assert_eq!(verdict.state, Health::CutOff);
        assert!(verdict.remedy.expect("a remedy").starts_with("check this"));
        assert!(verdict.notes[0].contains("another vote key"));

        let gone = |bonded| Facts {
            part: Part::WithoutSeat { bonded },
            ..facts()
        };
        let summary = |facts: Facts| decide(&facts).summary;
        assert!(summary(gone(false)).contains("it has no bond"));
        assert!(summary(gone(true)).contains("until it has a seat"));
        let cut_off = |bonded| {
            let mut facts = gone(bonded);
            facts.upstreams[0].linked = false;
            facts.growth.since_final = Duration::from_secs(3);
            decide(&facts).remedy.expect("a remedy")
        };
        assert!(
            cut_off(false).starts_with("this identity has no bond in the state after block 900")
        );
        assert!(cut_off(true).starts_with("check this machine's network"));
    }
}
