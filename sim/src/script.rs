//! Scenarios as text: what a shrunk failure is printed as, and what regression tests are kept as.
//!
//! One thing per line; what a line does not say is as in [`Scenario::new`]. Times are in
//! microseconds. `#` begins a comment.
//!
//! ```text
//! seed 17
//! validators 4
//! protocol hotstuff-chained
//! scheme bls-aggregate
//! byzantine 2 SplitVotes LateLeader
//! at 1200000 crash 0 1
//! at 1250000 restart 0 1
//! at 2000000 heal
//! recover
//! ```

use crate::{
    adversary::Attack,
    clock::ClockFault,
    crypto::Cryptography,
    disk::Mishap,
    network::{Latency, MAPS},
    scenario::{Costs, Fault, Scenario},
};
use quorate_consensus::Timing;
use quorate_types::{
    EpochLength,
    genesis::{ApplicationKind, Protocol},
};
use std::{
    fmt::{self, Display, Write as _},
    time::Duration,
};

/// A text that is no scenario: the line's number, from 1, and the problem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct ScriptError {
    /// The line.
    pub line: usize,
    /// The problem.
    pub problem: String,
}

fn micros(duration: Duration) -> u128 {
    duration.as_micros()
}

impl Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        writeln!(f, "validators {}", self.validators)?;
        if self.protocol != Protocol::Simplex {
            writeln!(f, "protocol {}", self.protocol.name())?;
        }
        if self.application != ApplicationKind::Ledger {
            writeln!(f, "application {}", self.application.name())?;
        }
        if let Some(epoch) = self.turns_fit {
            writeln!(f, "turns-fit {}", epoch.blocks())?;
        }
        writeln!(f, "scheme {}", self.scheme.name())?;
        if self.cryptography == Cryptography::Bls {
            writeln!(f, "bls")?;
        }
        writeln!(f, "duration {}", micros(self.duration))?;
        writeln!(f, "epoch-blocks {}", self.epoch_blocks)?;
        writeln!(f, "border-crashes {}", self.border_crashes_percent)?;
        let t = &self.timing;
        let timers = [
            t.leader_timeout,
            t.view_timeout,
            t.max_timeout,
            t.resend_interval,
            t.fetch_timeout,
        ];
        let timers: Vec<String> = timers.iter().map(|t| micros(*t).to_string()).collect();
        writeln!(f, "timers {}", timers.join(" "))?;
        writeln!(f, "block-interval {}", micros(self.block_interval))?;
        if !t.idle_interval.is_zero() {
            writeln!(f, "idle-interval {}", micros(t.idle_interval))?;
        }
        if let Some(blocks) = self.retention {
            writeln!(f, "retention {blocks}")?;
        }
        if self.snapshot_interval > 0 {
            writeln!(f, "snapshots {}", self.snapshot_interval)?;
        }
        writeln!(f, "linger {}", micros(self.linger))?;
        writeln!(f, "penalty-lasts {}", micros(self.penalty_lasts))?;
        match self.links.latency {
            Latency::Between(least, most) => {
                writeln!(f, "latency {} {}", micros(least), micros(most))?;
            }
            Latency::Map(map, jitter) => writeln!(f, "latency {} {jitter}", map.name)?,
        }
        writeln!(f, "loss {}", self.links.loss_percent)?;
        writeln!(f, "doubles {}", self.links.double_percent)?;
        if self.links.disorder {
            writeln!(f, "disorder")?;
        }
        if let Some(bandwidth) = self.links.bandwidth {
            writeln!(f, "bandwidth {bandwidth}")?;
        }
        for (validator, delay) in &self.links.slow {
            writeln!(f, "slow {validator} {}", micros(*delay))?;
        }
        for (validator, bandwidth) in &self.links.narrow {
            writeln!(f, "narrow {validator} {bandwidth}")?;
        }
        writeln!(f, "sync {}", micros(self.sync))?;
        writeln!(f, "transfers {}", self.transfers_per_second)?;
        if self.costs.execute != Costs::default().execute {
            writeln!(f, "execute {}", micros(self.costs.execute))?;
        }
        for (validator, clock) in &self.clocks {
            writeln!(
                f,
                "clock {validator} {} {} {}",
                clock.ahead_ms,
                clock.drift_ppm,
                micros(clock.late)
            )?;
        }
        for (validator, attacks) in &self.byzantine {
            write!(f, "byzantine {validator}")?;
            for attack in attacks {
                match attack {
                    Attack::Glitch(from, until) => write!(f, " Glitch:{from}:{until}")?,
                    other => write!(f, " {other:?}")?,
                }
            }
            writeln!(f)?;
        }
        for (at, fault) in &self.faults {
            writeln!(f, "at {} {}", micros(*at), fault_words(fault))?;
        }
        if self.must_recover {
            writeln!(f, "recover")?;
        }
        if let Some(height) = self.goal {
            writeln!(f, "reach {height}")?;
        }
        Ok(())
    }
}

fn places(places: &[usize]) -> String {
    let words: Vec<String> = places.iter().map(ToString::to_string).collect();
    words.join(" ")
}

fn fault_words(fault: &Fault) -> String {
    match fault {
        Fault::Crash(validators) => format!("crash {}", places(validators)),
        Fault::Restart(validators) => format!("restart {}", places(validators)),
        Fault::Disk {
            validator,
            after,
            mishap,
            away,
        } => format!("disk {validator} {after} {mishap:?} {}", micros(*away)),
        Fault::Full(validator) => format!("full {validator}"),
        Fault::Room(validator) => format!("room {validator}"),
        Fault::LoseDatabase(validator) => format!("lose-database {validator}"),
        Fault::LoseJournal(validator) => format!("lose-journal {validator}"),
        Fault::CopyJournal(validator) => format!("copy-journal {validator}"),
        Fault::RestoreJournal(validator) => format!("restore-journal {validator}"),
        Fault::Forget(validator) => format!("forget {validator}"),
        Fault::Partition(groups) => {
            let mut words = "partition".to_owned();
            for (index, group) in groups.iter().enumerate() {
                let separator = if index == 0 { " " } else { " / " };
                let _ = write!(words, "{separator}{}", places(group));
            }
            words
        }
        Fault::Cut(from, to) => format!("cut {from} {to}"),
        Fault::Unlink(one, other) => format!("unlink {one} {other}"),
        Fault::Link(one, other) => format!("link {one} {other}"),
        Fault::Heal => "heal".to_owned(),
        Fault::Join => "join".to_owned(),
    }
}

/// Reads a scenario.
///
/// # Errors
///
/// If a line says nothing known, or something impossible.
pub fn parse(text: &str) -> Result<Scenario, ScriptError> {
    let mut scenario = Scenario::new(0, 4, Duration::ZERO);
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        take_line(&mut scenario, line).map_err(|problem| ScriptError {
            line: index + 1,
            problem,
        })?;
    }
    Ok(scenario)
}

fn number<T: std::str::FromStr>(words: &[&str], index: usize) -> Result<T, String> {
    let word = words.get(index).ok_or("a number is missing")?;
    word.parse()
        .map_err(|_| format!("{word:?} is no such number"))
}

fn duration(words: &[&str], index: usize) -> Result<Duration, String> {
    number(words, index).map(Duration::from_micros)
}

fn list(words: &[&str]) -> Result<Vec<usize>, String> {
    (0..words.len()).map(|index| number(words, index)).collect()
}

fn take_line(scenario: &mut Scenario, line: &str) -> Result<(), String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let rest = &words[1..];
    match words[0] {
        "seed" => {
            let seed = number(rest, 0)?;
            scenario.scheme = Scenario::new(seed, 4, Duration::ZERO).scheme;
            scenario.seed = seed;
        }
        "validators" => scenario.validators = number(rest, 0)?,
        "protocol" => {
            let name = rest.first().copied().unwrap_or_default();
            scenario.protocol = name.parse()?;
        }
        "application" => {
            let name = rest.first().copied().unwrap_or_default();
            scenario.application = name.parse()?;
        }
        "turns-fit" => scenario.turns_fit = EpochLength::new(number(rest, 0)?),
        "scheme" => {
            let name = rest.first().copied().unwrap_or_default();
            let found = name.parse::<quorate_crypto::bls::SchemeKind>();
            scenario.scheme = found.map_err(|error| error.to_string())?;
        }
        "bls" => scenario.cryptography = Cryptography::Bls,
        "duration" => scenario.duration = duration(rest, 0)?,
        "epoch-blocks" => scenario.epoch_blocks = number(rest, 0)?,
        "border-crashes" => scenario.border_crashes_percent = number(rest, 0)?,
        "timers" => {
            scenario.timing = Timing {
                leader_timeout: duration(rest, 0)?,
                view_timeout: duration(rest, 1)?,
                max_timeout: duration(rest, 2)?,
                resend_interval: duration(rest, 3)?,
                fetch_timeout: duration(rest, 4)?,
                ..scenario.timing
            }
        }
        "block-interval" => scenario.block_interval = duration(rest, 0)?,
        "idle-interval" => scenario.timing.idle_interval = duration(rest, 0)?,
        "retention" => scenario.retention = Some(number(rest, 0)?),
        "snapshots" => scenario.snapshot_interval = number(rest, 0)?,
        "linger" => scenario.linger = duration(rest, 0)?,
        "penalty-lasts" => scenario.penalty_lasts = duration(rest, 0)?,
        "latency" if MAPS.iter().any(|map| rest.first() == Some(&map.name)) => {
            let map = MAPS.into_iter().find(|map| rest[0] == map.name);
            let map = map.expect("just seen");
            scenario.links.latency = Latency::Map(map, number(rest, 1)?);
        }
        "latency" => {
            let (least, most) = (duration(rest, 0)?, duration(rest, 1)?);
            if least > most {
                return Err("the first latency is above the second".to_owned());
            }
            scenario.links.latency = Latency::Between(least, most);
        }
        "loss" => scenario.links.loss_percent = number(rest, 0)?,
        "doubles" => scenario.links.double_percent = number(rest, 0)?,
        "disorder" => scenario.links.disorder = true,
        "bandwidth" => scenario.links.bandwidth = Some(number(rest, 0)?),
        "slow" => {
            let validator = number(rest, 0)?;
            scenario.links.slow.insert(validator, duration(rest, 1)?);
        }
        "narrow" => {
            let validator = number(rest, 0)?;
            scenario.links.narrow.insert(validator, number(rest, 1)?);
        }
        "sync" => scenario.sync = duration(rest, 0)?,
        "transfers" => scenario.transfers_per_second = number(rest, 0)?,
        "execute" => scenario.costs.execute = duration(rest, 0)?,
        "clock" => {
            let clock = ClockFault {
                ahead_ms: number(rest, 1)?,
                drift_ppm: number(rest, 2)?,
                late: duration(rest, 3)?,
            };
            scenario.clocks.insert(number(rest, 0)?, clock);
        }
        "byzantine" => {
            let attacks = rest.iter().skip(1).map(|word| attack(word));
            let attacks = attacks.collect::<Result<_, _>>()?;
            scenario.byzantine.insert(number(rest, 0)?, attacks);
        }
        "at" => {
            let at = duration(rest, 0)?;
            let fault = fault(rest.get(1..).unwrap_or(&[]))?;
            scenario.faults.push((at, fault));
        }
        "recover" => scenario.must_recover = true,
        "reach" => scenario.goal = Some(number(rest, 0)?),
        other => return Err(format!("{other:?} is nothing that a scenario says")),
    }
    Ok(())
}

fn attack(word: &str) -> Result<Attack, String> {
    if let Some(times) = word.strip_prefix("Glitch:") {
        let times: Vec<&str> = times.split(':').collect();
        return Ok(Attack::Glitch(number(&times, 0)?, number(&times, 1)?));
    }
    let named = |attack: &Attack| format!("{attack:?}") == word;
    let beside = [
        Attack::LyingDisk,
        Attack::LyingStandings,
        Attack::OtherBorder,
        Attack::ShortCertificates,
        Attack::ShunNext,
        Attack::ShunAlways,
        Attack::Dawdle,
        Attack::NullifyBefore,
        Attack::StaleSnapshots,
        Attack::KeepPayloads,
        Attack::DoubleNumbers,
        Attack::OrderNothing,
        Attack::ForgePayloads,
    ];
    let all = Attack::ALL.into_iter().chain(beside);
    let known = all.into_iter().find(named);
    known.ok_or_else(|| format!("{word:?} is no attack"))
}

fn fault(words: &[&str]) -> Result<Fault, String> {
    let name = words.first().copied().ok_or("a fault is missing")?;
    let rest = &words[1..];
    Ok(match name {
        "crash" => Fault::Crash(list(rest)?),
        "restart" => Fault::Restart(list(rest)?),
        "disk" => {
            let word = rest.get(2).copied().unwrap_or_default();
            let mishaps = [Mishap::Fail, Mishap::Lie]
                .into_iter()
                .chain(Mishap::CRASHES);
            let mut named = mishaps.filter(|mishap| format!("{mishap:?}") == word);
            Fault::Disk {
                validator: number(rest, 0)?,
                after: number(rest, 1)?,
                mishap: named
                    .next()
                    .ok_or_else(|| format!("{word:?} is no mishap"))?,
                away: duration(rest, 3)?,
            }
        }
        "full" => Fault::Full(number(rest, 0)?),
        "room" => Fault::Room(number(rest, 0)?),
        "lose-database" => Fault::LoseDatabase(number(rest, 0)?),
        "lose-journal" => Fault::LoseJournal(number(rest, 0)?),
        "copy-journal" => Fault::CopyJournal(number(rest, 0)?),
        "restore-journal" => Fault::RestoreJournal(number(rest, 0)?),
        "forget" => Fault::Forget(number(rest, 0)?),
        "partition" => {
            let groups = rest.split(|word| *word == "/").map(list);
            Fault::Partition(groups.collect::<Result<_, _>>()?)
        }
        "cut" => Fault::Cut(number(rest, 0)?, number(rest, 1)?),
        "unlink" => Fault::Unlink(number(rest, 0)?, number(rest, 1)?),
        "link" => Fault::Link(number(rest, 0)?, number(rest, 1)?),
        "heal" => Fault::Heal,
        "join" => Fault::Join,
        other => return Err(format!("{other:?} is no fault")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::swarm::{swarm, with_payloads};

    #[test]
    fn what_is_written_reads_the_same() {
        for seed in 0..300 {
            for scenario in [swarm(seed), with_payloads(swarm(seed))] {
                assert_eq!(parse(&scenario.to_string()), Ok(scenario), "seed {seed}");
            }
        }
    }

    #[test]
    fn a_line_that_says_nothing_known_is_named() {
        for (text, line) in [
            ("seed 1\nvalidators many", 2),
            ("# a comment\n\nat 5 explode", 3),
            ("byzantine 1 Sing", 1),
            ("latency 5 1", 1),
            ("at", 1),
        ] {
            assert_eq!(parse(text).expect_err(text).line, line, "{text}");
        }
    }
}
