//! The commands of the `quorate` binary.
//!
//! Every command prints its result on standard output, as text or with `--json` as one JSON object.
//! Errors go to standard error, with exit code 2 if the command line cannot be parsed, else 1.

mod account;
mod block;
mod ceremony;
mod changing;
mod config;
mod data;
mod db;
mod evidence;
mod explored;
mod explorer;
mod folders;
mod follow;
mod genesis;
mod imports;
mod init;
mod kept;
mod keys;
mod load;
mod localnet;
mod moving;
mod output;
mod passphrases;
mod peers;
mod registry;
mod report;
mod reset;
mod rpc;
mod run;
mod shell;
mod snapshot;
mod status;
mod stop;
mod testnet;
mod trust;
mod tx;

use crate::{config::ValidatorConfig, guard, node::WrapWire};
use clap::{Parser, Subcommand};
use quorate_http::client::shown_lines;
use std::process::ExitCode;

pub use run::Run;

/// A Byzantine-fault-tolerant blockchain node, and the tools around it.
///
/// A chain is run by n validators, of which f may be faulty in any way (n ≥ 3f + 1). Start one on
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
  quorate status                              a validator's health, height and peers
  quorate block latest --verify --trust localnet/trust.json

`quorate help COMMAND` describes a command."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Create and show identity keys (of validators and of accounts)
    #[command(subcommand)]
    Keys(keys::Keys),
    /// Create and show genesis files, which define new chains
    #[command(subcommand)]
    Genesis(genesis::Genesis),
    /// Create one validator's keys on its own machine: for a new chain, or to join one with a registry
    Init(init::Init),
    /// Create a new chain: a folder for each validator's machine, and a funded account
    Testnet(Box<testnet::Testnet>),
    /// Run a validator
    Run(run::Run),
    /// Follow a chain without a vote: verify, execute and serve it
    Follow(Box<follow::Follow>),
    /// Run a whole network on this machine, with load, and report its figures
    Localnet(localnet::Localnet),
    /// Send transfers at a fixed rate, and report how long they take to become final
    Load(load::Load),
    /// Show a validator's verdict on its own health, its height, view and peers
    Status(status::Status),
    /// List a validator's peers; block and unblock them
    #[command(subcommand)]
    Peers(peers::Peers),
    /// Show and verify evidence of equivocation: pairs of votes that no honest validator casts
    #[command(subcommand)]
    Evidence(evidence::Evidence),
    /// Show the staking registry; become a validator, change what it says, and cease to be one
    #[command(subcommand)]
    Registry(registry::Registry),
    /// Show whom a trust file trusts; follow the changes of the validators from there on
    #[command(subcommand)]
    Trust(trust::TrustCommand),
    /// Show an account's balance and next nonce; with --trust, verify them
    Account(account::Account),
    /// Show a block; with --verify, verify its finality offline
    Block(block::Block),
    /// Serve a chain's verified blocks: web page, HTTP API, event streams
    Explorer(Box<explorer::Explorer>),
    /// Check a validator's configuration, and show the defaults
    #[command(subcommand)]
    Config(config::Config),
    /// Check, measure and prune a stopped validator's database
    #[command(subcommand)]
    Db(db::Db),
    /// List the snapshots that a validator keeps; carry one to another machine in a file
    #[command(subcommand)]
    Snapshot(snapshot::Snapshot),
    /// Remove a stopped validator's database, so that it downloads the chain again
    Reset(reset::Reset),
    /// Move a stopped validator to another machine, so that only one copy of it can vote
    #[command(subcommand, name = "move")]
    Moving(moving::Move),
    /// Make a running validator reread its configuration
    Reload(stop::Reload),
    /// Stop a running validator, and wait until its process has ended
    Stop(stop::Stop),
    /// Collect diagnostics for a bug report, without secrets
    Report(report::Report),
    /// Create and submit transactions
    #[command(subcommand)]
    Tx(tx::Tx),
    /// Print a completion script for a shell
    Completions(shell::Completions),
    /// Print the manual page, or write one per command
    Man(shell::Man),
}

impl Command {
    /// Whether the command reads or creates secret keys.
    fn holds_keys(&self) -> bool {
        match self {
            Self::Keys(_)
            | Self::Genesis(_)
            | Self::Init(_)
            | Self::Testnet(_)
            | Self::Moving(_)
            | Self::Run(_)
            | Self::Follow(_)
            | Self::Snapshot(_)
            | Self::Localnet(_)
            | Self::Load(_)
            | Self::Config(_)
            | Self::Registry(_)
            | Self::Tx(_) => true,
            Self::Status(_)
            | Self::Peers(_)
            | Self::Evidence(_)
            | Self::Trust(_)
            | Self::Account(_)
            | Self::Block(_)
            | Self::Explorer(_)
            | Self::Db(_)
            | Self::Reset(_)
            | Self::Reload(_)
            | Self::Stop(_)
            | Self::Report(_)
            | Self::Completions(_)
            | Self::Man(_) => false,
        }
    }

    /// Whether the command writes files that other users must not read: a data directory, a report.
    fn writes_private_files(&self) -> bool {
        matches!(
            self,
            Self::Run(_)
                | Self::Follow(_)
                | Self::Snapshot(_)
                | Self::Db(_)
                | Self::Reset(_)
                | Self::Moving(_)
                | Self::Report(_)
        )
    }

    fn run(self) -> anyhow::Result<ExitCode> {
        let done = match self {
            Self::Status(command) => return command.run(),
            Self::Keys(command) => command.run(),
            Self::Genesis(command) => command.run(),
            Self::Init(command) => command.run(),
            Self::Testnet(command) => command.run(),
            Self::Run(command) => command.run(),
            Self::Follow(command) => command.run(),
            Self::Localnet(command) => command.run(),
            Self::Load(command) => command.run(),
            Self::Registry(command) => command.run(),
            Self::Peers(command) => command.run(),
            Self::Evidence(command) => command.run(),
            Self::Trust(command) => command.run(),
            Self::Account(command) => command.run(),
            Self::Block(command) => command.run(),
            Self::Explorer(command) => command.run(),
            Self::Config(command) => command.run(),
            Self::Db(command) => command.run(),
            Self::Snapshot(command) => command.run(),
            Self::Reset(command) => command.run(),
            Self::Moving(command) => command.run(),
            Self::Reload(command) => command.run(),
            Self::Stop(command) => command.run(),
            Self::Report(command) => command.run(),
            Self::Tx(command) => command.run(),
            Self::Completions(command) => command.run(),
            Self::Man(command) => command.run(),
        };
        done.map(|()| ExitCode::SUCCESS)
    }
}

/// Runs the binary with the arguments of the process.
pub fn main() -> ExitCode {
    let command = Cli::parse().command;
    if command.writes_private_files() {
        guard::keep_files_private();
    }
    let guarded = match command.holds_keys() {
        true => guard::protect_memory(),
        false => Ok(()),
    };
    end(guarded.and_then(|()| command.run()))
}

/// Runs a validator like `quorate run`, with its configuration and transport altered by `change`.
/// For programs that make validators misbehave.
pub fn run_changed(
    run: Run,
    change: impl FnOnce(&mut ValidatorConfig) -> anyhow::Result<Option<WrapWire>>,
) -> ExitCode {
    guard::keep_files_private();
    let guarded = guard::protect_memory();
    let result = guarded.and_then(|()| run.run_changed(change));
    end(result.map(|()| ExitCode::SUCCESS))
}

fn end(result: anyhow::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {}", shown_lines(&with_causes(&error)));
            if let Some(remedy) = rpc::remedy(&error) {
                eprintln!("{remedy}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Formats an error and its causes as one line, outermost first. Leaves out causes that the text
/// already contains.
pub(crate) fn with_causes(error: &anyhow::Error) -> String {
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
