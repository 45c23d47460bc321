//! The commands of the `quorate` binary.
//!
//! Every command prints its result on standard output, as text or with `--json` as one JSON
//! object, and what went wrong on standard error, with a non-zero exit code: 2 if the command line
//! itself cannot be understood, else 1.

mod account;
mod block;
mod config;
mod db;
mod evidence;
mod explored;
mod explorer;
mod genesis;
mod keys;
mod load;
mod localnet;
mod output;
mod passphrases;
mod peers;
mod report;
mod rpc;
mod run;
mod shell;
mod status;
mod tx;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// A Byzantine-fault-tolerant blockchain node, and the tools around it.
///
/// A chain is run by n validators, of whom f may be faulty in any way (n ≥ 3f + 1). Start one on
/// this machine with `quorate localnet`, or make keys, a genesis file and a configuration for each
/// validator, and start them with `quorate run`.
#[derive(Parser)]
#[command(
    name = "quorate",
    version,
    propagate_version = true,
    max_term_width = 100,
    after_help = "Examples:
  quorate localnet                            four validators on this machine, with some load
  quorate status                              what a validator says of itself
  quorate block latest --verify --trust localnet/trust.json

`quorate help COMMAND` tells more about a command."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make and show identity keys (of validators and of accounts)
    #[command(subcommand)]
    Keys(keys::Keys),
    /// Make and show genesis files, from which chains start
    #[command(subcommand)]
    Genesis(genesis::Genesis),
    /// Run a validator
    Run(run::Run),
    /// Run a whole network on this machine, with load, and report its figures
    Localnet(localnet::Localnet),
    /// Drive transfers at validators at a fixed rate, and report how long they take to be final
    Load(load::Load),
    /// Show what a validator says of itself: height, view, peers
    Status(status::Status),
    /// Show the other validators, and say which are not to be listened to
    #[command(subcommand)]
    Peers(peers::Peers),
    /// Show and verify evidence: pairs of votes that no honest validator casts together
    #[command(subcommand)]
    Evidence(evidence::Evidence),
    /// Show an account: balance and next nonce, on request with a verified proof
    Account(account::Account),
    /// Show a block, on request with its finality verified offline
    Block(block::Block),
    /// Show a chain to people and programs: a web page, an HTTP interface, streams
    Explorer(Box<explorer::Explorer>),
    /// Check a validator's configuration, and show the defaults
    #[command(subcommand)]
    Config(config::Config),
    /// Check, measure and shorten the database of a validator that is stopped
    #[command(subcommand)]
    Db(db::Db),
    /// Collect what helps to find out what is wrong, without secrets
    Report(report::Report),
    /// Make transactions and submit them
    #[command(subcommand)]
    Tx(tx::Tx),
    /// Print a completion script for a shell
    Completions(shell::Completions),
    /// Print the manual page, or write one for each command
    Man(shell::Man),
}

/// Runs the binary with the process's own arguments.
pub fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Keys(command) => command.run(),
        Command::Genesis(command) => command.run(),
        Command::Run(command) => command.run(),
        Command::Localnet(command) => command.run(),
        Command::Load(command) => command.run(),
        Command::Status(command) => command.run(),
        Command::Peers(command) => command.run(),
        Command::Evidence(command) => command.run(),
        Command::Account(command) => command.run(),
        Command::Block(command) => command.run(),
        Command::Explorer(command) => command.run(),
        Command::Config(command) => command.run(),
        Command::Db(command) => command.run(),
        Command::Report(command) => command.run(),
        Command::Tx(command) => command.run(),
        Command::Completions(command) => command.run(),
        Command::Man(command) => command.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", with_causes(&error));
            ExitCode::FAILURE
        }
    }
}

/// An error and its causes in one line, the outermost first; a cause that the text before tells
/// already is left out.
fn with_causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_and_every_flag_has_help() {
        let mut open = vec![Cli::command()];
        while let Some(command) = open.pop() {
            let name = command.get_name().to_string();
            assert!(command.get_about().is_some(), "{name} has no help");
            for argument in command.get_arguments() {
                let id = argument.get_id();
                assert!(argument.get_help().is_some(), "{name} {id} has no help");
            }
            open.extend(command.get_subcommands().cloned());
        }
    }
}
