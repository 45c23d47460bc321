//! Validators that send invalid signatures, in virtual time: what it costs the others, with the node's
//! way of checking votes and with two others that are there to be compared with it.
//!
//! - *blocked*: a quorum is checked at once; who spoils the check is found and blocked. The node's way.
//! - *unblocked*: the same, but nobody is ever blocked.
//! - *eager*: each vote is verified when it comes.
//!
//! The first third of the run is quiet. Then f validators begin to sign another message with every
//! vote: all at once, or one after the other in the second third, which is worst for checking at once,
//! since each of them spoils a check of its own.

use crate::{
    report::Output,
    wan::{block_times, finality_times, measure_costs, millis},
};
use anyhow::ensure;
use clap::{Args, ValueEnum};
use quorate_consensus::{Moment, VoteChecking};
use quorate_crypto::bls::SchemeKind;
use quorate_sim::{Attack, Costs, Scenario, Simulation, Timeline};
use serde_json::{Value, json};
use std::time::Duration;

/// What to run.
#[derive(Args, Clone)]
pub struct ChaosArgs {
    /// How many validators: one part of the table for each number.
    #[arg(long, value_delimiter = ',', default_values_t = [4, 10, 22])]
    validators: Vec<u32>,
    /// How long each run lasts, in seconds of virtual time.
    #[arg(long, default_value_t = 6)]
    seconds: u64,
    #[command(flatten)]
    output: Output,
}

/// How the forgers begin.
#[derive(Clone, Copy, ValueEnum)]
enum Onset {
    AtOnce,
    OneByOne,
}

const MODES: [(VoteChecking, &str); 3] = [
    (VoteChecking::Together, "blocked"),
    (VoteChecking::TogetherUnblocked, "unblocked"),
    (VoteChecking::Eager, "eager"),
];

/// What happened in a third of a run.
struct Phase {
    blocks: usize,
    block_ms: f64,
    slowest_ms: f64,
    finality_ms: f64,
    /// Processor time of the checks, for each validator and block.
    checks_ms_per_block: f64,
}

fn run_one(
    args: &ChaosArgs,
    validators: u32,
    (costs, sync): &(Costs, Duration),
    checking: VoteChecking,
    onset: Onset,
) -> anyhow::Result<Timeline> {
    let total = Duration::from_secs(args.seconds);
    let mut scenario = Scenario::new(0, validators as usize, total);
    scenario.scheme = SchemeKind::BlsThreshold;
    scenario.costs = costs.clone();
    scenario.sync = *sync;
    scenario.checking = checking;
    scenario.transfers_per_second = 0;
    let faults = (validators as u64 - 1) / 3;
    let third = args.seconds * 1_000 / 3;
    for forger in 0..faults {
        let from = match onset {
            Onset::AtOnce => third,
            Onset::OneByOne => third + third * forger / faults,
        };
        // Spread over the committee's turns.
        let place = (forger * 3 + 1) as usize;
        let attack = Attack::Glitch(from, u64::MAX);
        scenario.byzantine.insert(place, [attack].into());
    }
    let run = Simulation::new(scenario).measure();
    let (_, timeline) = run.map_err(|violation| anyhow::anyhow!("{}", violation.0))?;
    Ok(timeline)
}

fn phase(timeline: &Timeline, validators: u32, from: Moment, until: Moment) -> Phase {
    let within = |at: Moment| from <= at && at < until;
    let blocks = timeline
        .blocks
        .iter()
        .filter(|block| within(block.proposed));
    let blocks: Vec<_> = blocks.collect();
    let (gaps, known) = (block_times(&blocks), finality_times(&blocks));
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let checks = timeline.checks.iter().filter(|check| within(check.at));
    let checking: f64 = checks.map(|check| millis(check.takes)).sum();
    Phase {
        blocks: blocks.len(),
        block_ms: mean(&gaps),
        slowest_ms: gaps.iter().copied().fold(0.0, f64::max),
        finality_ms: mean(&known),
        checks_ms_per_block: checking / f64::from(validators) / blocks.len() as f64,
    }
}

/// Runs the experiment and prints its report.
///
/// # Errors
///
/// When a run breaks a rule, or the report cannot be written.
pub fn run(args: &ChaosArgs) -> anyhow::Result<()> {
    ensure!(
        args.seconds >= 3,
        "--seconds must be 3 at least: a third is quiet"
    );
    let mut rows = Vec::new();
    println!(
        "{:>4} {:<11} {:<10} {:>9} | {:>27} | {:>27} | {:>27}",
        "n",
        "forgers",
        "checking",
        "disturbed",
        "before: block final CPU",
        "during: block final CPU",
        "after: block final CPU"
    );
    for &validators in &args.validators {
        let costs = measure_costs(validators)?;
        for onset in [Onset::AtOnce, Onset::OneByOne] {
            for (checking, name) in MODES {
                let timeline = run_one(args, validators, &costs, checking, onset)?;
                let most = (0..validators as usize)
                    .map(|host| {
                        let own = timeline.checks.iter().filter(|check| check.host == host);
                        own.map(|check| check.failed).sum::<u32>()
                    })
                    .max();
                let third = Duration::from_millis(args.seconds * 1_000 / 3);
                let phases: Vec<Phase> = (0..3)
                    .map(|part| {
                        let from = Moment(0).after(third * part);
                        phase(&timeline, validators, from, from.after(third))
                    })
                    .collect();
                let words = phases.iter().map(|phase| {
                    format!(
                        "{:>8.1} {:>8.1} {:>9.2}",
                        phase.block_ms, phase.finality_ms, phase.checks_ms_per_block
                    )
                });
                let words: Vec<String> = words.collect();
                let onset_name = match onset {
                    Onset::AtOnce => "at once",
                    Onset::OneByOne => "one by one",
                };
                println!(
                    "{validators:>4} {onset_name:<11} {name:<10} {:>9} | {}",
                    most.unwrap_or(0),
                    words.join(" | ")
                );
                rows.push(json!({
                    "validators": validators,
                    "forgers": (validators - 1) / 3,
                    "onset": onset_name,
                    "checking": name,
                    "failed_checks_at_most": most,
                    "phases": phases.iter().map(described).collect::<Vec<_>>(),
                }));
            }
        }
    }
    println!(
        "\nblock and final: ms, mean; CPU: ms of checks for each validator and block; disturbed: the \
         most checks that failed at one validator"
    );
    args.output
        .write("chaos", &json!({ "seconds": args.seconds, "rows": rows }))
}

fn described(phase: &Phase) -> Value {
    json!({
        "blocks": phase.blocks,
        "block_ms": phase.block_ms,
        "slowest_block_ms": phase.slowest_ms,
        "finality_ms": phase.finality_ms,
        "check_cpu_ms_per_block": phase.checks_ms_per_block,
    })
}
