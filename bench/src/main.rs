use clap::{Parser, Subcommand};
use quorate_bench::{
    chaos::{self, ChaosArgs},
    engines::{self, EnginesArgs},
    page::{self, PageArgs},
    state::{self, StateArgs},
    verify::{self, VerifyArgs},
    wan::{self, WanArgs},
};
use std::process::ExitCode;

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
    /// Validators that send invalid signatures: what it costs the others.
    Chaos(ChaosArgs),
    /// Block time and finality over wide-area networks in virtual time, beside the network's limit.
    Wan(WanArgs),
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
        Command::Chaos(args) => chaos::run(&args),
        Command::Wan(args) => wan::run(&args),
        Command::Page(args) => page::run(&args),
    }
}
