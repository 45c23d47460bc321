//! `quorate config`

use super::{
    block::load_trust_file,
    data,
    output::{print_json, print_lines},
    passphrases::Source,
};
use crate::{
    config::{AnyConfig, NewConfig, NodeConfig, NodeKind, ValidatorConfig},
    genesis::{GENESIS_FILE, TRUST_FILE},
    keys,
    owner::{self, Owner},
};
use anyhow::bail;
use clap::{Args, Subcommand};
use quorate_api::verdict::counted;
use quorate_files::make_private_folder;
use quorate_machine::machine::ConsensusConfig;
use quorate_p2p::{PeerAddress, system_lookup};
use quorate_types::Identity;
use serde_json::json;
use std::{
    fs,
    io::ErrorKind,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

/// Check a validator's configuration, and show the defaults
#[derive(Subcommand)]
pub(super) enum Config {
    /// Check a configuration as `quorate run` would, without starting the validator
    Check(Check),
    /// Print a configuration file with every key and its default
    ShowDefaults(ShowDefaults),
}

/// Check a configuration as `quorate run` would, without starting the validator
///
/// Reads the file and everything that it refers to: the genesis file, the keys, the owner of the
/// data directory, the vote journal, the addresses. Anything that would keep the validator from
/// starting is an error. Anything that it would only warn about is printed as a warning, and so is
/// a list of what was not checked.
#[derive(Args)]
#[command(after_help = "Example:
  quorate config check validator-0/validator.toml --passphrase-file /run/secrets/quorate")]
pub(super) struct Check {
    /// The configuration file
    #[arg(default_value = "validator.toml")]
    file: PathBuf,
    /// The configuration file, as a flag like in other commands
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
    #[command(flatten)]
    passphrase: Source,
    /// Do not warn of unencrypted key files; only for test networks
    #[arg(long)]
    allow_plain_keys: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Print a configuration file with every key and its default
#[derive(Args)]
pub(super) struct ShowDefaults;

impl Config {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Check(check) => check.run(),
            Self::ShowDefaults(show) => show.run(),
        }
    }
}

impl Check {
    fn run(self) -> anyhow::Result<()> {
        let access = self.passphrase.access(true);
        let path = self.config.as_ref().unwrap_or(&self.file);
        let config = AnyConfig::load(path, &access)?;
        let (node, validator) = (config.node(), config.validator());
        let mut problems: Vec<String> = Vec::new();
        let mut warnings: Vec<String> = Vec::new();
        let vote_file = validator.map(|validator| &validator.vote_file);
        for path in [Some(&node.identity_file), vote_file].into_iter().flatten() {
            if !self.allow_plain_keys && !keys::is_encrypted(path)? {
                warnings.push(format!(
                    "{} is not encrypted: `quorate {}` takes it with --allow-plain-keys only",
                    path.display(),
                    if validator.is_some() { "run" } else { "follow" }
                ));
            }
        }
        match is_writable(&node.data_dir) {
            Err(problem) => problems.push(problem),
            Ok(()) => warnings.extend(openness(&node.data_dir)),
        }
        problems.extend(data::problems(node, validator));
        warnings.extend(data::warnings(node, validator));
        warnings.extend(unaddressed(node));
        warnings.extend(trust_of_another_chain(node));
        warnings.extend(unresolved(&node.p2p.peers));
        warnings.extend(unresolved(&node.p2p.followers));
        let own = Owner {
            chain_id: node.chain,
            identity: node.identity.identity(),
        };
        problems.extend(
            owner::check(&node.data_dir, &own)
                .err()
                .map(|e| e.to_string()),
        );
        let listeners = [
            ("p2p.listen", node.p2p.listen),
            ("rpc.listen", node.rpc.listen),
        ];
        let admin = node.admin.map(|listen| ("admin.listen", listen));
        for (key, address) in listeners.into_iter().chain(admin) {
            match TcpListener::bind(address).map_err(|error| (error.kind(), error)) {
                Ok(_) => {}
                Err((ErrorKind::AddrInUse, _)) if data::is_in_use(&node.data_dir) => {
                    warnings.push(format!(
                        "`{key}`: {address} is in use; fine if the validator runs"
                    ));
                }
                Err((ErrorKind::AddrInUse, _)) => problems.push(format!(
                    "`{key}`: another process listens on {address}; stop it, or change `{key}`"
                )),
                Err((ErrorKind::AddrNotAvailable, _)) => problems.push(format!(
                    "`{key}`: {address} is not an address of this machine; 0.0.0.0 stands for all it has"
                )),
                Err((_, error)) => {
                    problems.push(format!("`{key}`: cannot listen on {address} ({error})"));
                }
            }
        }
        if !node.rpc.listen.ip().is_loopback() {
            warnings.push(format!(
                "`rpc.listen` {} can be reached from other machines and has no authentication",
                node.rpc.listen
            ));
        }
        match node.admin {
            None => warnings.push(
                "there is no `[admin]` section: metrics are served over the control socket only"
                    .to_owned(),
            ),
            Some(listen) if !listen.ip().is_loopback() => warnings.push(format!(
                "`admin.listen` {listen} can be reached from other machines: it names the peers' \
                 addresses, and has no authentication"
            )),
            Some(_) => {}
        }
        if self.json {
            print_json(&json!({
                "ok": problems.is_empty(),
                "chain_id": node.chain,
                "protocol": node.genesis.protocol,
                "application": node.genesis.application,
                "scheme": node.genesis.scheme,
                "validator": validator.and_then(|validator| validator.place),
                "problems": problems,
                "warnings": warnings,
                "not_checked": NOT_CHECKED,
            }))?;
        } else {
            let mut lines: Vec<String> = warnings.iter().map(|w| format!("warning: {w}")).collect();
            let size = node.committees.known().size();
            let who = match validator {
                Some(ValidatorConfig {
                    place: Some(place), ..
                }) => {
                    format!("validator {place} of {size}")
                }
                Some(_) => "a validator, if the registry gives it a seat".to_owned(),
                None => format!(
                    "a follower of {}",
                    counted(node.p2p.peers.len() as u64, "node")
                ),
            };
            lines.push(format!(
                "{who} on the chain {} ({}; {}, {}, {})",
                node.genesis.name,
                node.chain,
                node.genesis.protocol.name(),
                node.genesis.application.name(),
                node.genesis.scheme
            ));
            lines.push(format!("not checked: {}", NOT_CHECKED.join("; ")));
            print_lines(&lines)?;
        }
        if !problems.is_empty() {
            bail!("{}: {}", path.display(), problems.join("; "));
        }
        Ok(())
    }
}

/// Properties that only a running validator can check.
const NOT_CHECKED: [&str; 4] = [
    "whether the peers can be reached, and this validator by them (`quorate peers list`, when it runs)",
    "what is in the database and the journal (`quorate db check`)",
    "whether these keys are in use on another machine",
    "the clock",
];

/// Returns a warning if the first validators of a chain with a registry have no address here.
fn unaddressed(node: &NodeConfig) -> Option<String> {
    node.genesis.registry?;
    let own = node.identity.identity();
    let named = |identity: &Identity| node.p2p.peers.iter().any(|(peer, _)| peer == identity);
    let validators = node.genesis.validators.iter();
    let lacking: Vec<String> = validators
        .filter(|one| one.address.as_str().is_empty())
        .filter(|one| one.identity == own || !named(&one.identity))
        .map(|one| match one.identity == own {
            true => "this validator".to_owned(),
            false => one.identity.short(),
        })
        .collect();
    (!lacking.is_empty()).then(|| {
        format!(
            "the genesis file has no address of {}, nor has `p2p.peers` here: there are no links where neither end knows \
             the other's address. Unless the registry names one by now (`quorate registry list`), have each put its own \
             there (`quorate registry describe`), and add the others to `p2p.peers`",
            lacking.join(", ")
        )
    })
}

/// Returns a warning if the trust file beside the genesis file is another chain's. The node does not read it, but the
/// two come together.
fn trust_of_another_chain(node: &NodeConfig) -> Option<String> {
    let path = node.genesis_file.with_file_name(TRUST_FILE);
    if !path.is_file() {
        return None;
    }
    let trust = match load_trust_file(&path) {
        Ok(trust) => trust,
        Err(error) => return Some(format!("{error:#}")),
    };
    (trust.chain_id != node.chain).then(|| {
        format!(
            "{} is of the chain {}, and {} makes the chain {}: was one of them replaced or changed? Each value of a genesis \
             file, like `protocol`, makes another chain. Compare with the other validators (`quorate genesis show`)",
            path.display(),
            trust.chain_id,
            node.genesis_file.display(),
            node.chain
        )
    })
}

/// Returns a warning for each peer host name that does not resolve.
pub(super) fn unresolved(peers: &[(Identity, PeerAddress)]) -> Vec<String> {
    let lookup = system_lookup();
    let names = peers.iter().filter_map(|(_, address)| match address {
        PeerAddress::Name { host, .. } => Some((address, host)),
        PeerAddress::Ip(_) => None,
    });
    let lost = names.filter_map(|(address, host)| {
        let problem = match lookup(host) {
            Ok(found) if !found.is_empty() => return None,
            Ok(_) => "it has no address".to_owned(),
            Err(error) => error.to_string(),
        };
        Some(format!(
            "`p2p.peers`: the name of {address} is not found now ({problem}); the validator runs, and looks \
             again"
        ))
    });
    lost.collect()
}

/// Checks that the data directory can be created or written to.
fn is_writable(directory: &Path) -> Result<(), String> {
    let probe = directory.join(".writable");
    let written = make_private_folder(directory).and_then(|()| fs::write(&probe, b""));
    let _ = fs::remove_file(&probe);
    written.map_err(|error| {
        format!(
            "`data_dir`: cannot write to {} ({error}); make it, or change its owner",
            directory.display()
        )
    })
}

/// Returns a warning if other users can enter the data directory.
fn openness(directory: &Path) -> Option<String> {
    let mode = fs::metadata(directory).ok()?.permissions().mode() & 0o7777;
    (mode & 0o077 != 0).then(|| {
        let directory = directory.display();
        format!(
            "`data_dir`: {directory} has mode {mode:04o}, which lets others in; if it is for this \
             validator alone: chmod 700 {directory}"
        )
    })
}

impl ShowDefaults {
    fn run(self) -> anyhow::Result<()> {
        let peer = (
            Identity([0; 32]),
            SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 26_600)).into(),
        );
        let text = NewConfig {
            kind: NodeKind::Validator,
            followers: &[],
            genesis: Path::new(GENESIS_FILE),
            p2p_listen: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 26_600)),
            local: false,
            rpc_listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 26_601)),
            admin_listen: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 26_701))),
            peers: &[peer],
            own: Identity([0xff; 32]),
            retention_blocks: None,
            retention_time: None,
            min_block_interval: Duration::ZERO,
            idle_interval: ConsensusConfig::default().timing.idle_interval,
            registry_file: None,
        }
        .to_toml();
        print_lines(&[text.trim_end()])
    }
}
