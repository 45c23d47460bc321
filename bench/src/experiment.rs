//! Experiments: networks of real processes under load for all combinations of some parameters, each
//! described by a file, and the page that shows what came of it.

mod network;
pub(crate) mod plan;
mod report;
mod run;
mod slow;
pub(crate) mod trial;

use anyhow::Context;
use clap::{Args, Subcommand};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// What to do.
#[derive(Args, Clone)]
pub struct ExperimentArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Clone)]
enum Command {
    /// Run the trials of an experiment's file, and draw their report. Trials that are done are kept:
    /// what was interrupted goes on with the same command
    Run {
        /// The experiment (bench/experiments/*.toml)
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// The folder in which each experiment gets a folder for its results
        #[arg(long, value_name = "DIR", default_value = "experiment-results")]
        out: PathBuf,
        /// The first port that the validators listen on
        #[arg(long, default_value_t = 27_000, value_name = "P")]
        base_port: u16,
        /// The folder in which data directories are made (default: the temporary folder)
        #[arg(long, value_name = "DIR")]
        folder: Option<PathBuf>,
    },
    /// Draw results as a page that needs nothing else
    Report {
        /// The folder of an experiment's results
        results: PathBuf,
        /// Where the page goes (default: report.html in that folder)
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// A folder for the page's pictures as files of their own (NAME.svg), for documents
        #[arg(long, value_name = "DIR")]
        pictures: Option<PathBuf>,
    },
}

/// Runs or reports.
///
/// # Errors
///
/// When a file makes no sense, a trial fails or something cannot be written.
pub fn run(args: &ExperimentArgs) -> anyhow::Result<()> {
    match &args.command {
        Command::Run {
            files,
            out,
            base_port,
            folder,
        } => {
            let plans = files
                .iter()
                .map(|file| Ok((file, plan::Plan::read(file)?)))
                .collect::<anyhow::Result<Vec<_>>>()?;
            for (file, plan) in &plans {
                let name = file
                    .file_stem()
                    .context("an experiment's file has a name")?;
                let results = out.join(name);
                run::prepare(file, &results)?;
                eprintln!("{}: {}", file.display(), plan.title);
                run::Runner {
                    plan,
                    results: &results,
                    place: trial::Place {
                        binary: None,
                        base_port: *base_port,
                        folder: folder.as_deref(),
                    },
                }
                .run()?;
                write_report(&results, None, None)?;
            }
            Ok(())
        }
        Command::Report {
            results,
            out,
            pictures,
        } => write_report(results, out.clone(), pictures.as_deref()),
    }
}

fn write_report(
    results: &Path,
    out: Option<PathBuf>,
    pictures: Option<&Path>,
) -> anyhow::Result<()> {
    let report = report::draw(results)?;
    if let Some(folder) = pictures {
        report.write_pictures(folder)?;
    }
    let out = out.unwrap_or_else(|| results.join("report.html"));
    fs::write(&out, report.finish()).with_context(|| format!("writing {}", out.display()))?;
    println!("{}", out.display());
    Ok(())
}
