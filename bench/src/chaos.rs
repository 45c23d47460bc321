//! Validators that send invalid signatures: what it costs the others, with the node's way of checking
//! votes and with two others that are there to be compared with it.
//!
//! - *blocked*: a quorum is checked at once; who spoils the check is found and blocked. The node's way.
//! - *unblocked*: the same, but nobody is ever blocked.
//! - *eager*: each vote is verified when it comes.
//!
//! The first third of a run is quiet. Then f validators begin to sign another message with every
//! vote: all at once, or one after the other in the second third, which is worst for checking at once,
//! since each of them spoils a check of its own. Small committees run as real processes over loopback,
//! larger ones in virtual time, and of a thousand validators one is real and receives what the others
//! are made to send. What a day brings with lists of the blocked that do not last is asked apart.

mod day;
mod page;
mod processes;
mod run;
mod thousand;
mod virtual_time;

use crate::{
    report::{Output, machine},
    wan::measure_costs,
};
use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use quorate_types::genesis::Protocol;
pub(crate) use run::forgers;
use run::{MODES, Onset, Run};
use serde_json::json;
use std::{fs, path::PathBuf};

/// What to run.
#[derive(Args, Clone)]
pub struct ChaosArgs {
    /// Which experiments to run (default: all)
    #[arg(long, value_enum, value_delimiter = ',')]
    part: Vec<Part>,
    /// The consensus protocol of the runs as processes and in virtual time
    #[arg(long, default_value = "simplex", value_name = "NAME")]
    protocol: Protocol,
    /// Committees that run as real processes
    #[arg(long, value_delimiter = ',', default_values_t = [4, 10])]
    processes: Vec<usize>,
    /// Committees that run in virtual time
    #[arg(long, value_delimiter = ',', default_values_t = [22, 100])]
    virtual_time: Vec<usize>,
    /// How long each run of real processes lasts
    #[arg(long, default_value_t = 24)]
    seconds: u64,
    /// How long each run in virtual time lasts
    #[arg(long, default_value_t = 6)]
    virtual_seconds: u64,
    /// The size of the committee of which one validator is real
    #[arg(long, default_value_t = 1_000)]
    thousand: u32,
    /// The first port that real processes listen on
    #[arg(long, default_value_t = 26_000)]
    base_port: u16,
    /// Write a page with curves, which needs nothing else, to this file
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// An experiment.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Real validators over loopback.
    Processes,
    /// Whole validators in virtual time.
    Virtual,
    /// One real receiver of a thousand validators' votes.
    Thousand,
    /// A day, with lists of the blocked that last, that end after four hours, and that end at restart.
    Day,
}

/// Runs the experiments and prints their report.
///
/// # Errors
///
/// When a run breaks a rule, a process does not start, or the report cannot be written.
pub fn run(args: &ChaosArgs) -> anyhow::Result<()> {
    ensure!(
        args.seconds >= 3 && args.virtual_seconds >= 3,
        "--seconds and --virtual-seconds must be 3 at least: a third of a run is quiet"
    );
    let sizes = args.processes.iter().chain(&args.virtual_time);
    ensure!(
        sizes.clone().all(|size| *size >= 4) && args.thousand >= 4,
        "a committee without a faulty member to bear: use at least 4 validators"
    );
    let wanted = |part| args.part.is_empty() || args.part.contains(&part);
    let mut runs = Vec::new();
    if wanted(Part::Processes) || wanted(Part::Virtual) {
        Run::print_head();
    }
    let kinds = MODES.iter().flat_map(|mode| Onset::ALL.map(|o| (*mode, o)));
    if wanted(Part::Processes) {
        for &validators in &args.processes {
            for (mode, onset) in kinds.clone() {
                // One forger begins in one way only.
                if validators < 7 && onset == Onset::OneByOne {
                    continue;
                }
                let (seconds, port) = (args.seconds, args.base_port);
                let network = (validators, args.protocol);
                let done = processes::run(network, seconds, port, mode, onset)?;
                done.print();
                runs.push(done);
            }
        }
    }
    if wanted(Part::Virtual) {
        for &validators in &args.virtual_time {
            let costs = measure_costs(u32::try_from(validators)?)?;
            for (mode, onset) in kinds.clone() {
                let seconds = args.virtual_seconds;
                let network = (validators, args.protocol);
                let done = virtual_time::run(network, seconds, &costs, mode, onset)?;
                done.print();
                runs.push(done);
            }
        }
    }
    if !runs.is_empty() {
        println!(
            "\nblock and final: ms; checks: pairing checks (in virtual time: checks) per view and \
             validator; CPU: ms per block and validator, of the process (in virtual time: of the \
             checks); disturbed: the most checks of a quorum that failed at one validator"
        );
    }
    let thousand = match wanted(Part::Thousand) {
        true => thousand::run(args.thousand)?,
        false => Vec::new(),
    };
    let days = match wanted(Part::Day) {
        true => day::run()?,
        false => Vec::new(),
    };
    if let Some(path) = &args.page {
        let text = page::draw(&runs, &thousand, &days, &machine())?;
        fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
        println!("\ncurves: {}", path.display());
    }
    let results = json!({
        "protocol": args.protocol.name(),
        "runs": runs.iter().map(Run::json).collect::<Vec<_>>(),
        "thousand": thousand.iter().map(thousand::Passed::json).collect::<Vec<_>>(),
        "days": days.iter().map(day::Day::json).collect::<Vec<_>>(),
    });
    args.output.write("chaos", &results)
}
