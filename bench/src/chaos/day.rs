//! A day with forgers, in virtual time: what lists of the blocked are worth that do not last.
//!
//! Two of ten validators forge all day; the others restart now and then, as for an upgrade. The node
//! keeps its list over restarts and lets who is on it back after a day. A list in memory ends with the
//! process; the library that the links are made with forgets after four hours.

use super::run::forgers;
use quorate_sim::{Attack, Fault, Scenario, Simulation};
use serde_json::{Value, json};
use std::time::Duration;

const VALIDATORS: usize = 10;
const FORGERS: usize = 2;
const DAY: Duration = Duration::from_secs(24 * 3_600);
const BLOCK_INTERVAL: Duration = Duration::from_secs(30);

/// Between two restarts; the validators take turns.
const RESTARTS: Duration = Duration::from_secs(3_600);

/// How a list of the blocked ends.
#[derive(Clone, Copy)]
enum Memory {
    /// After a day, whatever happens; the node's way.
    Lasting,
    /// After four hours.
    FourHours,
    /// When the process ends.
    UntilRestart,
}

/// A day's outcome.
pub(super) struct Day {
    name: &'static str,
    blocks: usize,
    /// Combined checks that failed, at all honest validators together.
    failed: u64,
    /// The most at any one of them.
    worst: u64,
}

impl Day {
    pub(super) fn json(&self) -> Value {
        json!({
            "list": self.name,
            "blocks": self.blocks,
            "failed_checks": self.failed,
            "failed_checks_at_most": self.worst,
        })
    }

    /// What people read of it.
    pub(super) fn cells(&self) -> [String; 4] {
        [
            self.name.to_owned(),
            self.blocks.to_string(),
            self.failed.to_string(),
            self.worst.to_string(),
        ]
    }
}

/// What the cells are.
pub(super) const HEAD: [&str; 4] = [
    "list of the blocked",
    "blocks",
    "failed checks in all",
    "most at one validator",
];

fn one(memory: Memory, name: &'static str) -> anyhow::Result<Day> {
    let mut scenario = Scenario::new(0, VALIDATORS, DAY);
    scenario.timing = quorate_consensus::Timing {
        leader_timeout: BLOCK_INTERVAL * 2,
        view_timeout: BLOCK_INTERVAL * 3,
        max_timeout: BLOCK_INTERVAL * 10,
        resend_interval: BLOCK_INTERVAL,
        fetch_timeout: Duration::from_secs(1),
        idle_interval: Duration::ZERO,
    };
    scenario.block_interval = BLOCK_INTERVAL;
    scenario.linger = Duration::ZERO;
    scenario.transfers_per_second = 0;
    scenario.penalty_lasts = match memory {
        Memory::FourHours => Duration::from_secs(4 * 3_600),
        Memory::Lasting | Memory::UntilRestart => DAY,
    };
    // One less than can be borne, so that a restart stops nothing.
    let forging = &forgers(VALIDATORS)[..FORGERS];
    for place in forging {
        let attack = Attack::Glitch(0, u64::MAX);
        scenario.byzantine.insert(*place, [attack].into());
    }
    let honest: Vec<usize> = (0..VALIDATORS).filter(|p| !forging.contains(p)).collect();
    let mut at = RESTARTS;
    for place in honest.iter().cycle() {
        if at + RESTARTS > DAY {
            break;
        }
        let stop = match memory {
            Memory::UntilRestart => Fault::Forget(*place),
            Memory::Lasting | Memory::FourHours => Fault::Crash(vec![*place]),
        };
        scenario.faults.push((at, stop));
        let back = at + Duration::from_secs(10);
        scenario.faults.push((back, Fault::Restart(vec![*place])));
        at += RESTARTS;
    }
    let (_, timeline) = Simulation::new(scenario)
        .measure()
        .map_err(|violation| anyhow::anyhow!("{}", violation.0))?;
    let failed = honest.iter().map(|place| {
        let own = timeline.checks.iter().filter(|check| check.host == *place);
        own.map(|check| u64::from(check.failed)).sum::<u64>()
    });
    let failed: Vec<u64> = failed.collect();
    Ok(Day {
        name,
        blocks: timeline.blocks.len(),
        failed: failed.iter().sum(),
        worst: failed.iter().copied().max().unwrap_or(0),
    })
}

/// Runs the three days and prints them.
pub(super) fn run() -> anyhow::Result<Vec<Day>> {
    println!(
        "\na day: {VALIDATORS} validators, {FORGERS} of them forge all the time, a block every {} s, \
         one restart an hour",
        BLOCK_INTERVAL.as_secs()
    );
    print_row(&HEAD.map(str::to_owned));
    let mut days = Vec::new();
    for (memory, name) in [
        (Memory::Lasting, "kept on disk, a day"),
        (Memory::FourHours, "four hours"),
        (Memory::UntilRestart, "until restart"),
    ] {
        let day = one(memory, name)?;
        print_row(&day.cells());
        days.push(day);
    }
    Ok(days)
}

fn print_row(cells: &[String; 4]) {
    let [list, blocks, failed, worst] = cells;
    println!("{list:<24} {blocks:>8} {failed:>22} {worst:>22}");
}
