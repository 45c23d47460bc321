//! A network of this node's validators, as processes on this machine, for one measurement.

use anyhow::{Context, ensure};
use quorate_files::read_text;
use quorate_node::{
    config::{CONFIG_FILE, MAX_CONFIG_BYTES},
    genesis::validator_directory,
    localnet::{Network, Sample, Settings, prepare},
};
use quorate_types::{
    EpochLength,
    genesis::{ApplicationKind, DEFAULT_LIMITS, Protocol},
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Timeout for a network's first final block.
const START_LIMIT: Duration = Duration::from_secs(60);

/// The files of a network, in a folder that is deleted with this value.
pub(crate) struct OurNetwork {
    folder: TempDir,
    pub(crate) settings: Settings,
}

impl OurNetwork {
    /// Writes the files of a network in `within` or the temporary folder. Blocks follow each other without
    /// a pause and nothing is pruned, unless `change` says otherwise.
    pub(crate) fn prepare(
        name: &str,
        validators: usize,
        base_port: u16,
        within: Option<&Path>,
        change: impl FnOnce(&mut Settings),
    ) -> anyhow::Result<Self> {
        let mut settings = Settings {
            name: name.to_owned(),
            validators,
            protocol: Protocol::Simplex,
            application: ApplicationKind::Ledger,
            scheme: "bls-threshold".to_owned(),
            epoch_blocks: EpochLength::DEFAULT,
            retention_blocks: None,
            retention_seconds: None,
            block_interval_ms: 0,
            idle_interval_ms: 0,
            followers: 0,
            registry: false,
            spares: 0,
            seats: validators,
            block_limits: DEFAULT_LIMITS,
            accounts: 1,
            base_port,
        };
        change(&mut settings);
        let folder = data_folder(within)?;
        prepare(folder.path(), &settings)?;
        Ok(Self { folder, settings })
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn config_file(&self, place: usize) -> PathBuf {
        validator_directory(self.folder(), place).join(CONFIG_FILE)
    }

    /// Sets keys of a validator's configuration file, whether they are present or commented out.
    pub(crate) fn configure(&self, place: usize, keys: &[(&str, &str)]) -> anyhow::Result<()> {
        let path = self.config_file(place);
        let mut text = read_text(&path, MAX_CONFIG_BYTES)?;
        for (key, value) in keys {
            let mut found = false;
            let lines = text.lines().map(|line| {
                let here = line
                    .trim_start_matches("# ")
                    .strip_prefix(key)
                    .is_some_and(|rest| rest.starts_with(" = "));
                found |= here;
                match here {
                    true => format!("{key} = \"{value}\"\n"),
                    false => format!("{line}\n"),
                }
            });
            text = lines.collect();
            ensure!(found, "{} has no place for {key}", path.display());
        }
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    }

    /// Sets a number in a validator's configuration file.
    pub(crate) fn set_number(&self, place: usize, key: &str, value: u64) -> anyhow::Result<()> {
        self.configure(place, &[(key, "0")])?;
        let path = self.config_file(place);
        let text = read_text(&path, MAX_CONFIG_BYTES)?;
        let text = text.replace(&format!("{key} = \"0\""), &format!("{key} = {value}"));
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    }

    /// Removes a key from a validator's configuration.
    pub(crate) fn remove_key(&self, place: usize, key: &str) -> anyhow::Result<()> {
        let path = self.config_file(place);
        let text = read_text(&path, MAX_CONFIG_BYTES)?;
        let begins = format!("{key} = ");
        let kept = text.lines().filter(|line| !line.starts_with(&begins));
        let kept: String = kept.map(|line| format!("{line}\n")).collect();
        fs::write(&path, kept).with_context(|| format!("writing {}", path.display()))
    }

    /// Starts all validators, with these arguments beside the usual ones, and waits for the first final
    /// block.
    pub(crate) async fn start(
        &self,
        binary: &Path,
        arguments: impl Fn(usize) -> Vec<String>,
    ) -> anyhow::Result<Network> {
        let mut network = Network::start_with(binary, self.folder(), &self.settings, arguments)?;
        network.wait_until_up().await?;
        let start = Instant::now();
        while Sample::take(&network).await.height() == 0 {
            ensure!(start.elapsed() < START_LIMIT, "no block became final");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(network)
    }
}

/// Stops a network. It is an error if a validator has ended by itself.
pub(crate) fn end(mut network: Network) -> anyhow::Result<()> {
    let died: Vec<usize> = network
        .newly_dead()
        .iter()
        .map(|(place, _)| *place)
        .collect();
    ensure!(died.is_empty(), "validators {died:?} ended by themselves");
    network.stop();
    Ok(())
}

/// The path of a program in the same folder as this one.
pub(crate) fn beside(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("finding this program")?;
    let path = own.with_file_name(name);
    ensure!(
        path.exists(),
        "{} is not there: `make build` builds it, and the peer with `make bench-engines`",
        path.display()
    );
    Ok(path)
}

/// Creates a folder for data directories, in `within` or the temporary folder. Dropping the value
/// deletes it.
pub(crate) fn data_folder(within: Option<&Path>) -> anyhow::Result<tempfile::TempDir> {
    match within {
        Some(folder) => tempfile::tempdir_in(folder),
        None => tempfile::tempdir(),
    }
    .context("making a folder for the data directories")
}

/// Whether a program's validators can idle. Those of an older baseline cannot, and reject a
/// configuration with the setting.
pub(crate) fn knows_idling(binary: &Path) -> anyhow::Result<bool> {
    let help = Command::new(binary).args(["localnet", "--help"]).output();
    let help = help.with_context(|| format!("starting {}", binary.display()))?;
    Ok(String::from_utf8_lossy(&help.stdout).contains("--idle-interval"))
}
