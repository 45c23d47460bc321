//! A validator that can be made to misbehave, for chaos tests and comparisons with real processes.
//!
//! It is a program of its own: `quorate` has none of this. Beside that it refuses every chain whose
//! name does not begin with [`misbehave::CHAOS_PREFIX`], and the name is part of what the chain's id
//! is the hash of.
//!
//! It changes frames on their way to the links, how votes are checked, or whether blocks are filtered. Because the
//! chain's name decides, no flag can make a validator of a real chain lie. A test checks that
//! `quorate` contains none of this code. Only this program can be built with `cryptography-off`
//! (`quorate-crypto`), for one experiment; `quorate` does not compile with it.

mod misbehave;

use clap::{Args, Parser};
use misbehave::{Misbehaviour, Spoiler, only_chaos};
use quorate_consensus::VoteChecking;
use quorate_node::{
    cli::{self, Run},
    config::ValidatorConfig,
    node::WrapWire,
};
use std::{process::ExitCode, sync::Arc};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Validators with faults on purpose, on chains for chaos tests.
#[derive(Parser)]
#[command(name = "quorate-lab", version)]
enum Lab {
    /// Run a validator as `quorate run` does, with a fault
    #[command(after_help = "Example:
  quorate-lab run --config validator-0/validator.toml --misbehave garbage-votes")]
    Run(Box<Faulty>),
}

#[derive(Args)]
struct Faulty {
    #[command(flatten)]
    run: Run,
    /// What is wrong with its votes (garbage-votes, equivocate), or with what it answers during state sync
    /// (sync-offer, -stale, -garbage, -swapped, -too-many, -absent, -silent, -block); each with @ and
    /// milliseconds since 1970 if it begins later. Only on a chain whose name begins with "chaos"
    #[arg(long, value_name = "FAULT")]
    misbehave: Option<Misbehaviour>,
    /// How votes are checked: together with blocking, together without it, or one by one
    #[arg(long, value_name = "WAY", default_value = "together", value_parser = ["together", "unblocked", "eager"])]
    checking: String,
    /// Whether blocks leave out what their unexecuted ancestors hold, and are refused otherwise. All validators of the
    /// chain must be given the same
    #[arg(long, value_name = "ON_OFF", default_value = "on", value_parser = ["on", "off"])]
    filtering: String,
}

fn main() -> ExitCode {
    let Lab::Run(faulty) = Lab::parse();
    let Faulty {
        run,
        misbehave,
        checking,
        filtering,
    } = *faulty;
    cli::run_changed(run, |config| {
        only_chaos(&config.node.genesis)?;
        config.node.consensus.checking = match checking.as_str() {
            "eager" => VoteChecking::Eager,
            "unblocked" => VoteChecking::TogetherUnblocked,
            _ => VoteChecking::Together,
        };
        config.node.consensus.filtering = filtering == "on";
        Ok(misbehave.map(|kind| spoil(kind, config)))
    })
}

fn spoil(kind: Misbehaviour, config: &ValidatorConfig) -> WrapWire {
    let spoiler = Spoiler {
        kind,
        chain: config.node.chain,
        secret: config.vote_secret.clone(),
        before: Arc::default(),
    };
    Arc::new(move |wire| spoiler.clone().wrap(wire))
}
