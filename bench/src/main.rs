//! Runs one experiment and prints its report.

use clap::{Parser, Subcommand};
use quorate_bench::{
    state::{self, StateArgs},
    verify::{self, VerifyArgs},
    wan::{self, WanArgs},
};

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
    /// Block time and finality over wide-area networks in virtual time, beside the network's limit.
    Wan(WanArgs),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::State(args) => state::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Wan(args) => wan::run(&args),
    }
}
