//! `quorate run`

use super::passphrases::Source;
use crate::{
    config::{LogFormat, ValidatorConfig},
    misbehave::{Misbehaviour, only_chaos},
    node,
    reload::{LogLevel, survive_hangups},
};
use anyhow::Context as _;
use clap::Args;
use quorate_consensus::VoteChecking;
use quorate_crypto::CRYPTOGRAPHY_OFF;
use quorate_types::{Epoch, Position, View};
use std::path::PathBuf;

/// Run a validator
///
/// It reads its configuration, genesis file and keys, goes on from what its data directory holds,
/// and runs until it is told to stop (Ctrl-C or SIGTERM) or going on would be unsafe. It logs to
/// standard error. Upon SIGHUP it reads its configuration again and takes over the peers' addresses and
/// the log level; the log tells what has changed and what needs a restart.
#[derive(Args)]
#[command(after_help = "Example:
  quorate run --config validator-0/validator.toml")]
pub(super) struct Run {
    /// The validator's configuration file
    #[arg(long, value_name = "FILE", default_value = "validator.toml")]
    config: PathBuf,
    /// How to log: text for people, json for programs; overrides the configuration
    #[arg(long, value_name = "FORMAT", value_parser = ["text", "json"])]
    log_format: Option<String>,
    /// What to log: a level (error, warn, info, debug, trace) or directives; overrides the
    /// configuration
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    #[command(flatten)]
    passphrase: Source,
    /// Take key files that are not encrypted: for test networks
    #[arg(long)]
    allow_plain_keys: bool,
    /// After the loss of more vote journals than the committee can do without: the view that all
    /// validators with a journal are in. All validators must have been stopped since the loss
    #[arg(long, value_name = "EPOCH.VIEW", value_parser = position)]
    surviving_view: Option<Position>,
    /// Stop when standard input closes, as if told to; for programs that start validators
    #[arg(long)]
    stop_with_stdin: bool,
    /// A fault on purpose, for chaos tests; only on chains whose name begins with "chaos"
    #[arg(long, value_name = "FAULT", hide = true)]
    misbehave: Option<Misbehaviour>,
    /// How votes are checked, to compare with; only on chains whose name begins with "chaos"
    #[arg(long, value_name = "WAY", hide = true, value_parser = ["unblocked", "eager"])]
    chaos_checking: Option<String>,
}

impl Run {
    pub(super) fn run(self) -> anyhow::Result<()> {
        survive_hangups()?;
        let mut config =
            ValidatorConfig::load(&self.config, &self.passphrase.access(self.allow_plain_keys))?;
        if let Some(format) = &self.log_format {
            config.log.format = match format.as_str() {
                "json" => LogFormat::Json,
                _ => LogFormat::Text,
            };
        }
        let is_level_given = self.log_level.is_some();
        if let Some(level) = self.log_level {
            crate::config::check_log_level(&level)
                .map_err(|reason| anyhow::anyhow!("--log-level {level}: {reason}"))?;
            config.log.level = level;
        }
        config.survivors = self.surviving_view;
        config.misbehaviour = self
            .misbehave
            .map(|fault| fault.check(&config.genesis))
            .transpose()?;
        if let Some(way) = &self.chaos_checking {
            only_chaos(&config.genesis)?;
            config.consensus.checking = match way.as_str() {
                "eager" => VoteChecking::Eager,
                _ => VoteChecking::TogetherUnblocked,
            };
        }
        if CRYPTOGRAPHY_OFF {
            only_chaos(&config.genesis)
                .context("this build of quorate leaves signatures out and protects nobody")?;
        }
        let mut log_level = LogLevel::start(&config.log)?;
        log_level.fixed = is_level_given;
        if CRYPTOGRAPHY_OFF {
            tracing::warn!("this build leaves signatures out: for measuring alone");
        }
        for file in &config.key_files {
            if !crate::keys::is_encrypted(file)? {
                tracing::warn!(file = %file.display(), "this key is NOT encrypted on disk");
            }
        }
        node::run(config, self.stop_with_stdin, log_level)
    }
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
