//! `quorate completions` and `quorate man`

use super::Cli;
use anyhow::Context as _;
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;
use std::{
    io::{self, Write as _},
    path::PathBuf,
};

/// Print a completion script for a shell
#[derive(Args)]
#[command(after_help = "Examples:
  quorate completions bash > /etc/bash_completion.d/quorate
  quorate completions zsh > ~/.zfunc/_quorate")]
pub(super) struct Completions {
    /// The shell to complete for
    shell: Shell,
}

/// Print the manual page, or write one per command
#[derive(Args)]
#[command(after_help = "Examples:
  quorate man | man -l -
  quorate man --dir /usr/local/share/man/man1")]
pub(super) struct Man {
    /// Write quorate.1, quorate-run.1 and so on to this directory instead of printing
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Completions {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "quorate", &mut script);
        io::stdout().write_all(&script).context("standard output")
    }
}

impl Man {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let Some(directory) = self.dir else {
            let mut page = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut page)?;
            return io::stdout().write_all(&page).context("standard output");
        };
        std::fs::create_dir_all(&directory)
            .and_then(|()| clap_mangen::generate_to(Cli::command(), &directory))
            .with_context(|| format!("cannot write to {}", directory.display()))
    }
}
