//! Runs one experiment and prints its report.

use clap::{Parser, Subcommand};
use quorate_bench::{
    chaos::{self, ChaosArgs},
    engines::{self, EnginesArgs},
    experiment::{self, ExperimentArgs},
    orders::{self, OrdersArgs},
    others::{self, OthersArgs},
    page::{self, PageArgs},
    signatures::{self, SignaturesArgs},
    state::{self, StateArgs},
    suite::{self, CompareArgs, DashboardArgs, GateArgs, KernelArgs, SuiteArgs},
    transfer::{self, TransferArgs},
    verify::{self, VerifyArgs},
    wan::{self, WanArgs},
};
use quorate_history::alloc;
use std::process::ExitCode;

/// Counts, for the suite. Whatever is timed in this program pays a few nanoseconds for it.
#[global_allocator]
static ALLOCATOR: &alloc::Counting = &alloc::COUNTING;

/// Experiments with Quorate, its peers side by side.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The authenticated state against a Jellyfish Merkle tree, both on RocksDB.
    State(StateArgs),
    /// From votes to a certificate: one check, beside eager verification and commonware's calls.
    Verify(VerifyArgs),
    /// This node beside commonware's simplex, in real processes over loopback.
    Engines(EnginesArgs),
    /// Other systems under the same load on the same machine, and what each of them does for it.
    Others(OthersArgs),
    /// How many payloads a second a chain that only orders takes, and in what time they are final.
    Orders(OrdersArgs),
    /// What the signatures of transfers alone allow: the limit for goodput over loopback.
    Signatures(SignaturesArgs),
    /// Validators that send invalid signatures: what it costs the others.
    Chaos(ChaosArgs),
    /// Block time and finality over wide-area networks in virtual time, beside the network's limit.
    Wan(WanArgs),
    /// Networks under load for all combinations of some parameters, from a file; and their reports.
    Experiment(ExperimentArgs),
    /// State sync over shaped links beside its limits: alone, beside noise, with faulty sources.
    Transfer(TransferArgs),
    /// The continuous benchmark: measure, judge by a baseline and by history, append to the history.
    Suite(SuiteArgs),
    /// Compare the figures that are the same on every machine with the blessed ones.
    Gate(GateArgs),
    /// Draw the history as a page that needs nothing else.
    Dashboard(DashboardArgs),
    /// Say what differs between two commits of the history, or two files.
    Compare(CompareArgs),
    /// One small piece of work, for the suite.
    #[command(hide = true)]
    Kernel(KernelArgs),
    /// Draws reports of verify, engines and wan as one page that needs nothing else.
    Page(PageArgs),
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::State(args) => state::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Engines(args) => engines::run(&args),
        Command::Orders(args) => orders::run(&args),
        Command::Others(args) => others::run(&args),
        Command::Signatures(args) => signatures::run(&args),
        Command::Chaos(args) => chaos::run(&args),
        Command::Wan(args) => wan::run(&args),
        Command::Experiment(args) => experiment::run(&args),
        Command::Transfer(args) => transfer::run(&args),
        Command::Suite(args) => suite::suite(&args),
        Command::Gate(args) => suite::gate(&args),
        Command::Dashboard(args) => suite::dashboard(&args),
        Command::Compare(args) => suite::compare_sides(&args),
        Command::Kernel(args) => suite::kernel(&args),
        Command::Page(args) => page::run(&args),
    }
}
