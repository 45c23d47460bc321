//! `quorate follow`

use super::{
    folders::parse_peer,
    output::{print_json, print_lines},
    passphrases::{NewKeys, Source, protection_of},
    run::apply_log,
};
use crate::{
    config::{FOLLOWER_FILE, NewConfig, NodeConfig, NodeKind, load_genesis},
    genesis::{GENESIS_FILE, TRUST_FILE, write_new},
    keys::{self, IDENTITY_FILE},
    node,
    reload::survive_hangups,
};
use anyhow::{Context as _, bail, ensure};
use clap::{Args, Subcommand};
use quorate_machine::machine::ConsensusConfig;
use quorate_p2p::PeerAddress;
use serde_json::json;
use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

/// The metrics port is the HTTP port plus this offset.
const ADMIN_OFFSET: u16 = 100;

/// Follow a chain without a vote: verify, execute and serve it
///
/// A follower fetches final blocks from the nodes that it follows as soon as they have them,
/// verifies that a quorum has finalized them, and executes them. It serves clients (the HTTP API,
/// the explorer), other followers, and nodes that fetch a snapshot, so that validators need not be
/// reachable for any of them. Transactions that are submitted to it are stored and passed on until
/// they are final. It has an identity of its own and no vote key: stopping it costs the chain
/// nothing.
///
/// `quorate follow init` creates its folder.
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  quorate follow init --genesis genesis.json --peer IDENTITY@validator-0.example.org:26600 \\
      --address follower.example.org:26600
  quorate follow --config follower/follower.toml"
)]
pub(super) struct Follow {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: Run,
}

#[derive(Subcommand)]
enum Command {
    /// Create a follower's folder: key, configuration, genesis file
    Init(Init),
}

#[derive(Args)]
struct Run {
    /// The follower's configuration file
    #[arg(long, value_name = "FILE", default_value = FOLLOWER_FILE)]
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
    /// Accept an unencrypted key file; only for test networks
    #[arg(long)]
    allow_plain_keys: bool,
    /// Stop gracefully when standard input closes; for programs that start followers
    #[arg(long)]
    stop_with_stdin: bool,
}

/// Create a follower's folder: key, configuration, genesis file
///
/// Prints what the operators of the nodes that it follows add to their configuration.
#[derive(Args)]
#[command(after_help = "Example:
  quorate follow init --genesis genesis.json --peer IDENTITY@validator-0.example.org:26600 \\
      --address follower.example.org:26600 --out follower")]
struct Init {
    /// The chain's genesis file; it is copied
    #[arg(long, value_name = "FILE", default_value = GENESIS_FILE)]
    genesis: PathBuf,
    /// A node to follow: its identity (`quorate status --json`, or a validator's place in the genesis
    /// file) and its address for peers
    #[arg(long = "peer", value_name = "IDENTITY@HOST:PORT", required = true, num_args = 1..)]
    peers: Vec<String>,
    /// Where those nodes reach this one: a host name or IP address, and a port. It listens on this
    /// port; HTTP uses the next one, metrics the port 100 above that
    #[arg(long, value_name = "HOST:PORT")]
    address: PeerAddress,
    /// Directory to write to; created if missing
    #[arg(long, value_name = "DIR", default_value = "follower")]
    out: PathBuf,
    #[command(flatten)]
    protection: NewKeys,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Follow {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self.command {
            Some(Command::Init(init)) => init.run(),
            None => self.run.run(),
        }
    }
}

impl Run {
    fn run(self) -> anyhow::Result<()> {
        survive_hangups()?;
        let access = self.passphrase.access(self.allow_plain_keys);
        let mut config = NodeConfig::load_follower(&self.config, &access)?;
        let log_level = apply_log(&mut config.log, self.log_format, self.log_level)?;
        if !keys::is_encrypted(&config.identity_file)? {
            tracing::warn!(file = %config.identity_file.display(), "this key is NOT encrypted on disk");
        }
        node::follow(config, self.stop_with_stdin, log_level)
    }
}

impl Init {
    fn run(self) -> anyhow::Result<()> {
        let genesis = load_genesis(&self.genesis)?;
        let committee = genesis.committee()?;
        let mut peers = Vec::new();
        for text in &self.peers {
            let peer = parse_peer(text, &committee);
            peers.push(peer.with_context(|| format!("--peer {text}"))?);
        }
        let key = self.out.join(IDENTITY_FILE);
        ensure!(
            !key.exists(),
            "{} exists and is not written over; choose another --out",
            key.display()
        );
        let port = self.address.port();
        let [http, admin] = [1, 1 + ADMIN_OFFSET].map(|offset| port.checked_add(offset));
        let (Some(http), Some(admin)) = (http, admin) else {
            bail!(
                "--address {}: no ports are left for HTTP and metrics; use a lower one",
                self.address
            );
        };
        let is_here = self.address.ip().is_some_and(|at| at.ip().is_loopback());
        let any = match is_here {
            true => Ipv4Addr::LOCALHOST,
            false => Ipv4Addr::UNSPECIFIED,
        };
        let passphrase = self.protection.choose()?;
        let secret = keys::generate_identity();
        let own = secret.identity();
        let config = NewConfig {
            kind: NodeKind::Follower,
            followers: &[],
            genesis: Path::new(GENESIS_FILE),
            p2p_listen: SocketAddr::from((any, port)),
            local: is_here,
            rpc_listen: SocketAddr::from((Ipv4Addr::LOCALHOST, http)),
            admin_listen: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, admin))),
            peers: &peers,
            own,
            retention_blocks: None,
            retention_time: None,
            min_block_interval: Duration::ZERO,
            idle_interval: ConsensusConfig::default().timing.idle_interval,
            registry_file: None,
        };
        keys::save_secret(&key, &secret.to_bytes(), protection_of(passphrase.as_ref()))?;
        let file = self.out.join(FOLLOWER_FILE);
        write_new(&file, &config.to_toml())?;
        write_new(&self.out.join(GENESIS_FILE), &genesis.to_json())?;
        write_new(&self.out.join(TRUST_FILE), &genesis.trust().to_json())?;
        if self.json {
            return print_json(&json!({
                "identity": own, "address": self.address.to_string(), "config": file,
            }));
        }
        let plain = match self.protection.is_plain() {
            true => " --allow-plain-keys",
            false => "",
        };
        print_lines(&[
            format!("identity  {own}"),
            format!("folder    {}", self.out.display()),
            String::new(),
            "The nodes that it follows add this to their configuration, and are restarted:"
                .to_owned(),
            String::new(),
            "  [[p2p.followers]]".to_owned(),
            format!("  identity = \"{own}\""),
            format!("  address = \"{}\"", self.address),
            String::new(),
            "Then start it:".to_owned(),
            format!("  quorate follow --config {}{plain}", file.display()),
        ])
    }
}
