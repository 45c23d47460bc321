//! Runs one experiment and prints its report.

use clap::{Parser, Subcommand};
use quorate_bench::state::{self, StateArgs};

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
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::State(args) => state::run(&args),
    }
}
