//! `quorate run`

use super::passphrases::Source;
use crate::{
    config::{LogConfig, LogFormat, ValidatorConfig},
    node::{self, WrapWire},
    reload::{LogLevel, survive_hangups},
};
use anyhow::bail;
use clap::Args;
use quorate_types::{Epoch, Position, View, genesis::Protocol};
use std::path::PathBuf;

/// Run a validator
///
/// The validator reads its configuration, genesis file and keys, continues from its data directory,
/// and runs until it is stopped (Ctrl-C or SIGTERM) or continuing would be unsafe. It logs to
/// standard error. On SIGHUP it rereads its configuration and applies the peers' addresses and the
/// log level; the log says what has changed and what needs a restart.
#[derive(Args)]
#[command(after_help = "Example:
  quorate run --config validator-0/validator.toml")]
pub struct Run {
    /// The validator's configuration file
    #[arg(long, value_name = "FILE", default_value = "validator.toml")]
    config: PathBuf,
    /// Log format: text for people, json for programs; overrides the configuration
    #[arg(long, value_name = "FORMAT", value_parser = ["text", "json"])]
    log_format: Option<String>,
    /// What to log: a level (error, warn, info, debug, trace) or tracing directives; overrides the
    /// configuration
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    #[command(flatten)]
    passphrase: Source,
    /// Accept unencrypted key files; only for test networks
    #[arg(long)]
    allow_plain_keys: bool,
    /// For recovery after the loss of more vote journals than the committee can do without: the
    /// view that all validators with a journal are in. All validators must have been stopped since
    /// the loss. Only with simplex
    #[arg(long, value_name = "EPOCH.VIEW", value_parser = position)]
    surviving_view: Option<Position>,
    /// Stop gracefully when standard input closes; for programs that start validators
    #[arg(long)]
    stop_with_stdin: bool,
}

impl Run {
    pub(super) fn run(self) -> anyhow::Result<()> {
        self.run_changed(|_| Ok(None))
    }

    /// Runs a validator whose configuration and transport are altered by `change`.
    pub(super) fn run_changed(
        self,
        change: impl FnOnce(&mut ValidatorConfig) -> anyhow::Result<Option<WrapWire>>,
    ) -> anyhow::Result<()> {
        survive_hangups()?;
        let mut config =
            ValidatorConfig::load(&self.config, &self.passphrase.access(self.allow_plain_keys))?;
        let protocol = config.node.genesis.protocol;
        if self.surviving_view.is_some() && protocol != Protocol::Simplex {
            bail!(
                "--surviving-view: this chain's protocol is {} (the genesis file that {} names), with which nothing replaces \
                 a lost journal. Run \
                 without the flag: `quorate status` says what helps",
                protocol.name(),
                self.config.display(),
            );
        }
        config.survivors = self.surviving_view;
        let wrap_wire = change(&mut config)?;
        let log_level = apply_log(&mut config.node.log, self.log_format, self.log_level)?;
        for file in [&config.node.identity_file, &config.vote_file] {
            if !crate::keys::is_encrypted(file)? {
                tracing::warn!(file = %file.display(), "this key is NOT encrypted on disk");
            }
        }
        node::run(config, self.stop_with_stdin, log_level, wrap_wire)
    }
}

/// Starts logging, with the format and level of the command line if they are given.
pub(super) fn apply_log(
    config: &mut LogConfig,
    format: Option<String>,
    level: Option<String>,
) -> anyhow::Result<LogLevel> {
    if let Some(format) = format {
        config.format = match format.as_str() {
            "json" => LogFormat::Json,
            _ => LogFormat::Text,
        };
    }
    let is_level_given = level.is_some();
    if let Some(level) = level {
        crate::config::check_log_level(&level)
            .map_err(|reason| anyhow::anyhow!("--log-level {level}: {reason}"))?;
        config.level = level;
    }
    let mut log_level = LogLevel::start(config)?;
    log_level.fixed = is_level_given;
    Ok(log_level)
}

fn position(text: &str) -> Result<Position, String> {
    let parts = text.split_once('.');
    let parts = parts.and_then(|(epoch, view)| Some((epoch.parse().ok()?, view.parse().ok()?)));
    let (epoch, view) = parts.ok_or("an epoch and a view are needed, such as 3.1207")?;
    Ok(Position {
        epoch: Epoch(epoch),
        view: View(view),
    })
}
