//! `quorate report`

use super::{
    output::print_lines,
    rpc::{Control, block_on},
    with_causes,
};
use anyhow::Context as _;
use clap::Args;
use quorate_api::RpcClient;
use quorate_files::read_bounded;
use quorate_machine::offenders::{MAX_OFFENDERS_BYTES, OFFENDERS_FILE};
use serde::Serialize;
use serde_json::json;
use std::{
    fmt::Write as _,
    fs::{self, File},
    io::{Read as _, Seek as _, SeekFrom},
    iter,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

/// How many bytes of the log's end go into the archive.
const LOG_BYTES: u64 = 4 << 20;

/// Limit on the number of listed files of the data directory.
const MAX_FILES: usize = 2_000;

/// Collect diagnostics for a bug report, without secrets
///
/// Writes a tar archive: versions and system information, the configuration, the names and sizes of
/// the files in the data directory, the blocked validators and, if the validator runs, its status,
/// peers, evidence and metrics. It contains no key, no passphrase and no transaction; check it
/// before you send it.
#[derive(Args)]
#[command(after_help = "Example:
  quorate report --config validator-0/validator.toml --log validator-0/node.log")]
pub(super) struct Report {
    #[command(flatten)]
    control: Control,
    /// The validator's log file; its last 4 MiB go into the archive
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// The archive to write; an existing file is not overwritten
    #[arg(long, value_name = "FILE", default_value = "quorate-report.tar")]
    out: PathBuf,
}

/// The archive, and a list of what could not be added to it.
struct Archive {
    tar: tar::Builder<File>,
    seconds: u64,
    missing: String,
}

impl Archive {
    fn add(&mut self, name: &str, content: &[u8]) -> anyhow::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(self.seconds);
        let path = format!("quorate-report/{name}");
        self.tar
            .append_data(&mut header, path, content)
            .context("cannot write to the archive")
    }

    fn add_json(&mut self, name: &str, value: &impl Serialize) -> anyhow::Result<()> {
        let text = serde_json::to_vec_pretty(value)?;
        self.add(name, &text)
    }

    /// Adds an item if it is available, and notes the error otherwise.
    fn add_if<T>(
        &mut self,
        name: &str,
        found: anyhow::Result<T>,
        add: impl FnOnce(&mut Self, T) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        match found {
            Ok(found) => add(self, found),
            Err(error) => {
                writeln!(self.missing, "{name}: {}", with_causes(&error))?;
                Ok(())
            }
        }
    }
}

impl Report {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let data = self.control.data_dir()?;
        let file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&self.out)
            .with_context(|| format!("cannot write {}", self.out.display()))?;
        let mut archive = Archive {
            tar: tar::Builder::new(file),
            seconds: now.map_or(0, |now| now.as_secs()),
            missing: String::new(),
        };
        archive.add_json("about.json", &about(archive.seconds))?;
        archive.add_if("validator.toml", self.control.text(), |archive, text| {
            archive.add("validator.toml", text.as_bytes())
        })?;
        archive.add_if("genesis", self.control.genesis(), |archive, genesis| {
            let content = json!({
                "name": genesis.name,
                "chain_id": genesis.chain_id(),
                "scheme": genesis.scheme,
                "epoch_blocks": genesis.epoch_blocks,
                "validators": genesis.validators,
                "accounts": genesis.accounts.len(),
            });
            archive.add_json("genesis.json", &content)
        })?;
        archive.add("files.txt", listing(&data).as_bytes())?;
        let path = data.join(OFFENDERS_FILE);
        let offenders = read_bounded(&path, MAX_OFFENDERS_BYTES).map_err(|error| {
            match error.is_missing() {
                true => anyhow::anyhow!(
                    "missing: there is no {}; the validator writes it when it first blocks somebody",
                    path.display()
                ),
                false => error.into(),
            }
        });
        archive.add_if(OFFENDERS_FILE, offenders, |archive, text| {
            archive.add(OFFENDERS_FILE, &text)
        })?;
        let client = self.control.client();
        archive.add_if("running validator", client, |archive, client| {
            ask(archive, &client)
        })?;
        if let Some(log) = &self.log {
            archive.add_if("log", tail(log), |archive, text| {
                archive.add("node.log", &text)
            })?;
        }
        let missing = std::mem::take(&mut archive.missing);
        archive.add("missing.txt", missing.as_bytes())?;
        archive
            .tar
            .finish()
            .context("cannot write to the archive")?;
        let written = format!("{} is written", self.out.display());
        let not_in_it = missing.lines().map(|line| format!("not in it: {line}"));
        print_lines(&iter::once(written).chain(not_in_it).collect::<Vec<_>>())
    }
}

fn ask(archive: &mut Archive, client: &RpcClient) -> anyhow::Result<()> {
    let (status, peers, evidence, metrics) = block_on(async {
        Ok((
            client.status().await,
            client.peers().await,
            client.evidence().await,
            client.metrics().await,
        ))
    })?;
    archive.add_if("status", status.map_err(Into::into), |archive, value| {
        archive.add_json("status.json", &value)
    })?;
    archive.add_if("peers", peers.map_err(Into::into), |archive, value| {
        archive.add_json("peers.json", &value)
    })?;
    archive.add_if(
        "evidence",
        evidence.map_err(Into::into),
        |archive, value| archive.add_json("evidence.json", &value),
    )?;
    archive.add_if("metrics", metrics.map_err(Into::into), |archive, text| {
        archive.add("metrics.txt", text.as_bytes())
    })
}

/// Describes this program and this machine.
fn about(seconds: u64) -> serde_json::Value {
    let file = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let memory: Vec<String> = file("/proc/meminfo")
        .lines()
        .take(3)
        .map(str::to_owned)
        .collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "unix_seconds": seconds,
        "system": file("/proc/version").trim(),
        "load": file("/proc/loadavg").trim(),
        "memory": memory,
        "processors": std::thread::available_parallelism().map_or(0, usize::from),
    })
}

/// Lists names and sizes of the files in a folder and its subfolders.
fn listing(folder: &Path) -> String {
    let mut text = String::new();
    let mut open = vec![folder.to_path_buf()];
    let mut count = 0;
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let size = match entry.metadata() {
                Ok(data) if data.is_dir() => {
                    open.push(entry.path());
                    continue;
                }
                Ok(data) => data.len(),
                Err(_) => 0,
            };
            count += 1;
            if count > MAX_FILES {
                text.push_str("and more\n");
                return text;
            }
            let line = format!("{size:>12}  {}\n", entry.path().display());
            text.push_str(&line);
        }
    }
    text
}

fn tail(path: &Path) -> anyhow::Result<Vec<u8>> {
    let name = || format!("cannot read {}", path.display());
    let mut file = File::open(path).with_context(name)?;
    let length = file.metadata().with_context(name)?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_BYTES)))
        .with_context(name)?;
    let mut content = Vec::new();
    file.take(LOG_BYTES)
        .read_to_end(&mut content)
        .with_context(name)?;
    Ok(content)
}
