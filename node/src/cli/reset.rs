//! `quorate reset`

use super::{output::print_lines, rpc::Control};
use crate::{check::folder_bytes, node::lock_directory};
use anyhow::{Context as _, bail, ensure};
use clap::Args;
use quorate_storage::store::Store;
use quorate_types::Height;
use std::{
    fs::{self, File},
    io::{self, IsTerminal as _, Write as _},
    path::Path,
};

/// Remove a stopped validator's database, so that it downloads the chain again
///
/// For a database that is damaged or too large. Keys, vote journal and evidence stay: without its
/// vote journal, a validator could contradict its earlier votes. Transactions that only this
/// validator had accepted are lost.
#[derive(Args)]
#[command(after_help = "Example:
  quorate reset --config validator-3/validator.toml")]
pub(super) struct Reset {
    #[command(flatten)]
    control: Control,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
}

impl Reset {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let data = self.control.data_dir()?;
        let database = data.join("db");
        ensure!(
            database.is_dir(),
            "{} holds no database: there is nothing to remove",
            data.display()
        );
        let lock = lock_directory(&data).context("stop the node first")?;
        let bytes = folder_bytes(&database) as f64 / 1_048_576.0;
        if let Some(first) = self.first_block(&database) {
            eprintln!(
                "note: this validator has forgotten the blocks below {first}. If all others have, too, it fetches the \
                 state of a recent block instead of the chain; for that, one of them must keep a snapshot \
                 (`quorate snapshot list` there)"
            );
        }
        if !self.yes {
            confirm(&format!(
                "Remove {} ({bytes:.1} MiB)? Keys and vote journal stay. Type yes: ",
                database.display()
            ))?;
        }
        // Rename it first: a partly removed database would look damaged.
        let gone = data.join("db.removed");
        let remove_error = || format!("cannot remove {}", database.display());
        if gone.exists() {
            fs::remove_dir_all(&gone).with_context(remove_error)?;
        }
        fs::rename(&database, &gone).with_context(remove_error)?;
        File::open(&data)
            .and_then(|folder| folder.sync_all())
            .with_context(remove_error)?;
        fs::remove_dir_all(&gone).with_context(remove_error)?;
        drop(lock);
        print_lines(&[format!(
            "{} is removed ({bytes:.1} MiB); the node fetches the chain, or the state, at its next start",
            database.display()
        )])
    }

    /// Returns the first block that is still stored, if it is known and not the chain's first
    /// block.
    fn first_block(&self, database: &Path) -> Option<Height> {
        let genesis = self.control.genesis().ok()?;
        let store = Store::open_to_read(database, &genesis).ok()?;
        let first = store.pruned_below().ok()?;
        (first > Height(1)).then_some(first)
    }
}

/// Asks for confirmation at the terminal. Anything but "yes" is an error.
fn confirm(question: &str) -> anyhow::Result<()> {
    ensure!(
        io::stdin().is_terminal(),
        "nobody is there to ask: confirm with --yes"
    );
    eprint!("{question}");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    if answer.trim() != "yes" {
        bail!("nothing was removed");
    }
    Ok(())
}
