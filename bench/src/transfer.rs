//! State sync over links of known bandwidth and length, beside what these links allow.
//!
//! Each node is a process in a network namespace of its own, with this node's links, server and
//! receiver; the kernel shapes the links, and a process of ours makes them long. A source serves a
//! state of so many accounts; its chain does not grow meanwhile. All times are from a receiver's first
//! link to its verified, whole state.

mod cases;
mod commits;
mod consensus;
mod distance;
mod network;
mod progress;
mod report;
mod rig;
mod roles;
mod shaper;
mod spread;
mod state;

use self::{progress::Progress, rig::Rig, roles::RoleArgs, state::ACCOUNT_BYTES};
use anyhow::Context;
use clap::{Args, ValueEnum};
use serde_json::json;
use std::{collections::BTreeMap, path::PathBuf};

/// What to run. Needs root, for network namespaces.
#[derive(Args, Clone)]
pub struct TransferArgs {
    /// Accounts in the state; one is 48 bytes of a snapshot.
    #[arg(long, default_value_t = 1_000_000)]
    accounts: u64,
    /// Bandwidth of a link in Mbit/s. The slower one of two has 70 of 100 of it.
    #[arg(long, default_value_t = 200)]
    link: u64,
    /// Run each case so many times. With five and more, the report has the 95th percentile (nearest
    /// rank, so it is the worst one of fewer than 20) and the worst beside median, least and most.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// The round trip from a receiver to the sources, in ms; a near source has a tenth of it.
    /// Default: 100 in the cases far, near and spread, 0 in the others.
    #[arg(long)]
    rtt: Option<u64>,
    /// Run only these cases. The times are those of a round with 2,000,000 accounts and links of 100
    /// Mbit/s; they grow with accounts / link.
    #[arg(long, value_enum)]
    case: Vec<Case>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// The first port of the validators of the case `consensus`.
    #[arg(long, default_value_t = 28_600)]
    base_port: u16,
    /// Folder for the databases (default: the temporary folder).
    #[arg(long)]
    folder: Option<PathBuf>,
    #[command(flatten)]
    role: RoleArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Case {
    /// 20 s: one receiver, one source, beside a plain TCP connection.
    Alone,
    /// 20 s: three sources far away, beside a plain TCP connection to one of them.
    Far,
    /// 95 s: a receiver beside a peer that requests the same again and again, by three ways to share
    /// the source's bandwidth.
    Noisy,
    /// 3 min: two receivers, of which one has a slower link, the second a fifth of its time later; both
    /// orders, by three ways to share.
    Two,
    /// 30 s: three sources, one of which sends garbage, beside two honest ones.
    Garbage,
    /// 90 s: three sources, and the only one that is near and has a fast link withholds everything,
    /// beside the two others alone.
    Near,
    /// 20 s: three sources, one of which has a link of 1 Mbit/s, beside two others alone.
    Slow,
    /// 20 s: the receiver is killed when half of the state is there, and starts again.
    Kill,
    /// 20 s: the receiver has an older state, of which one account of a hundred has changed.
    Delta,
    /// 6 min: three sources, one of them near and fast, and other ways to spread requests over them:
    /// all honest, then with garbage from the near one.
    Spread,
    /// 75 s: commits of blocks beside snapshots that are taken and served; no network, whatever the
    /// link.
    Commits,
    /// 80 s, whatever the accounts and the link: four validators on this machine, beside a follower
    /// that fetches the state again and again, and beside a process that is as busy.
    Consensus,
}

impl Case {
    /// What a round of it consists of, for the progress: a transfer is one step.
    fn steps(self) -> f64 {
        match self {
            Self::Alone | Self::Far | Self::Garbage | Self::Near | Self::Slow | Self::Delta => 2.0,
            Self::Noisy | Self::Commits => 4.0,
            Self::Two => 14.0,
            Self::Kill => 2.5,
            Self::Spread => 10.0,
            Self::Consensus => 1.0,
        }
    }
}

/// Runs the cases and prints the report, or does what a process of it does.
///
/// # Errors
/// If a process fails, or namespaces are not allowed.
pub fn run(args: &TransferArgs) -> anyhow::Result<()> {
    if let Some(role) = args.role.role {
        return roles::run(&args.role, role, args.accounts, args.link);
    }
    let cases = match args.case.is_empty() {
        true => Case::value_variants(),
        false => &args.case,
    };
    let folder = match &args.folder {
        Some(folder) => tempfile::tempdir_in(folder),
        None => tempfile::tempdir(),
    }
    .context("making a folder for the databases")?;
    let progress = Progress::start();
    let mut report = BTreeMap::new();
    for case in cases {
        let name = format!("{case:?}").to_lowercase();
        let rig = match case {
            Case::Commits | Case::Consensus => None,
            _ => Some(Rig::new(args, *case, folder.path(), &progress)?),
        };
        let mut rounds = Vec::new();
        for round in 1..=args.rounds {
            progress.begin(&name, round, args.rounds, case.steps());
            rounds.push(match &rig {
                Some(rig) => rig.run(*case)?,
                None if *case == Case::Commits => {
                    commits::run(args.accounts, folder.path(), &progress)?
                }
                None => consensus::run(args.base_port, &progress)?,
            });
            progress.end();
        }
        report.insert(name, report::summary(&rounds));
    }
    let state_mb = (args.accounts * ACCOUNT_BYTES) as f64 / 1e6;
    let report = json!({
        "state_mb": state_mb,
        "link_mbit": args.link,
        "rounds": args.rounds,
        "cases": report,
    });
    match args.json {
        true => println!("{report:#}"),
        false => report::print(&report),
    }
    Ok(())
}
