//! Creates the files of a local network.

use crate::{
    config::{CONFIG_FILE, FOLLOWER_FILE, NewConfig, NodeKind, format_duration},
    genesis::{GENESIS_FILE, NewChain, NewChainError, NewRegistry, validator_directory, write_new},
    keys::{self, IDENTITY_FILE, KeyAccess, KeyFileError, KeyKind, Protection, VOTE_FILE},
};
use quorate_crypto::{
    Identity, SecretKey,
    bls::{SchemeKind, VoteSecret},
};
use quorate_files::read_text;
use quorate_load::derive_accounts;
use quorate_machine::machine::ConsensusConfig;
use quorate_p2p::PeerAddress;
use quorate_types::genesis::{DEFAULT_FEES, DEFAULT_LIMITS};
use quorate_types::{
    EpochLength, RegistryRules, Slashing,
    genesis::{ApplicationKind, BlockLimits, Fees, GenesisAccount, Protocol},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

/// The settings file of the network, in its folder.
const SETTINGS_FILE: &str = "localnet.json";

/// The key file from which the load accounts' keys are derived.
const LOAD_SEED_FILE: &str = "load-accounts.key";

/// Size limit of the settings file.
pub(crate) const MAX_SETTINGS_BYTES: u64 = 64 << 10;

/// The initial balance of each load account.
const LOAD_BALANCE: u64 = 1_000_000_000;

/// The same on a chain with a registry, whose stakes are parts of the supply.
const LOAD_BALANCE_WITH_REGISTRY: u64 = 1_000_000;

/// What each validator pays for passing on shares with.
const SHARING_BALANCE: u64 = 1_000_000;

/// The most load accounts of a chain with a registry, so that [`STAKE`] is a sufficient part of the supply.
const MAX_ACCOUNTS_WITH_REGISTRY: u32 = 8_000;

/// What each validator of a chain with a registry has at stake, and the least stake of a bond.
pub const STAKE: u64 = 10_000_000;

/// For how many epochs unbonded stake is held.
const UNBOND_EPOCHS: u64 = 1;

/// The usual most validators of an epoch of a chain with a registry, unless it begins with more.
pub const MAX_REGISTERED: usize = 7;

/// The settings of a local network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    pub name: String,
    /// The number of validators.
    pub validators: usize,
    pub protocol: Protocol,
    /// What the chain does.
    #[serde(default)]
    pub application: ApplicationKind,
    pub scheme: String,
    /// The length of an epoch in blocks.
    pub epoch_blocks: EpochLength,
    /// How many final blocks each validator keeps; `None` keeps all.
    pub retention_blocks: Option<u64>,
    /// How long each validator keeps blocks, in seconds.
    #[serde(default)]
    pub retention_seconds: Option<u64>,
    /// The minimum time between blocks, in milliseconds.
    pub block_interval_ms: u64,
    /// The time between blocks while there are no transactions, in milliseconds.
    #[serde(default = "default_idle_interval_ms")]
    pub idle_interval_ms: u64,
    #[serde(default = "default_limits")]
    pub block_limits: BlockLimits,
    /// The number of funded accounts for load.
    pub accounts: u32,
    /// The number of followers; follower i follows two validators, i and i + 1.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub followers: usize,
    /// Whether the chain has a staking registry.
    #[serde(default, skip_serializing_if = "is_false")]
    pub registry: bool,
    /// The number of machines that can become validators while the chain runs. Their places follow those
    /// of the validators.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub spares: usize,
    /// The most validators of an epoch of a chain with a registry, unless it begins with more.
    #[serde(default = "default_seats", skip_serializing_if = "are_usual_seats")]
    pub seats: usize,
    /// Validator i listens for peers on `base_port + 2 i` and for HTTP on the next port. The
    /// explorer's port follows those of all validators, and then come one metrics port per
    /// validator, two ports per follower, and three per spare.
    pub base_port: u16,
}

/// Why the files cannot be created or used.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The folder contains a network with other settings.
    #[error(
        "{path} holds a network made with other settings ({difference}): use these, another --dir, \
         or delete the folder to start anew"
    )]
    OtherSettings { path: PathBuf, difference: String },
    /// The folder is not empty, but contains no complete network.
    #[error("{path} is not empty and holds no {SETTINGS_FILE}: use another --dir")]
    NotANetwork { path: PathBuf },
    /// A value is out of range.
    #[error("{0}")]
    Value(String),
    /// The chain could not be created.
    #[error(transparent)]
    Chain(#[from] NewChainError),
    /// A key file could not be written or read.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// A file or folder cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        source: io::Error,
    },
}

/// The default for networks whose settings file does not contain this setting.
fn default_idle_interval_ms() -> u64 {
    let idle = ConsensusConfig::default().timing.idle_interval;
    u64::try_from(idle.as_millis()).unwrap_or(u64::MAX)
}

fn default_limits() -> BlockLimits {
    DEFAULT_LIMITS
}

fn default_seats() -> usize {
    MAX_REGISTERED
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn are_usual_seats(seats: &usize) -> bool {
    *seats == MAX_REGISTERED
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_false(flag: &bool) -> bool {
    !flag
}

impl Settings {
    /// The number of validators and spares.
    pub fn machines(&self) -> usize {
        self.validators + self.spares
    }

    /// Returns the peer address of a validator or spare.
    pub fn p2p_address(&self, place: usize) -> SocketAddr {
        match self.first_port_of_spare(place) {
            Some(offset) => self.address(offset),
            None => self.address(2 * place),
        }
    }

    /// Returns the HTTP address of a validator or spare.
    pub fn rpc_address(&self, place: usize) -> SocketAddr {
        match self.first_port_of_spare(place) {
            Some(offset) => self.address(offset + 1),
            None => self.address(2 * place + 1),
        }
    }

    /// Returns the metrics address of a validator or spare.
    pub fn admin_address(&self, place: usize) -> SocketAddr {
        match self.first_port_of_spare(place) {
            Some(offset) => self.address(offset + 2),
            None => self.address(2 * self.validators + 1 + place),
        }
    }

    /// The explorer's address.
    pub fn explorer_address(&self) -> SocketAddr {
        self.address(2 * self.validators)
    }

    fn first_port_of_spare(&self, place: usize) -> Option<usize> {
        let spare = place.checked_sub(self.validators)?;
        Some(3 * self.validators + 2 * self.followers + 1 + 3 * spare)
    }

    /// Returns the peer address of a follower.
    pub fn follower_address(&self, place: usize) -> SocketAddr {
        self.address(3 * self.validators + 1 + 2 * place)
    }

    /// Returns the HTTP address of a follower.
    pub fn follower_rpc_address(&self, place: usize) -> SocketAddr {
        self.address(3 * self.validators + 2 + 2 * place)
    }

    /// Returns the validators that a follower follows.
    fn followed_by(&self, place: usize) -> BTreeSet<usize> {
        let next = |offset| (place + offset) % self.validators;
        [0, 1].map(next).into()
    }

    fn address(&self, offset: usize) -> SocketAddr {
        let port = usize::from(self.base_port) + offset;
        let port = u16::try_from(port).expect("checked before the network is made");
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    }

    pub(super) fn check(&self) -> Result<(), SetupError> {
        if !(1..=100).contains(&self.validators) {
            return Err(SetupError::Value(
                "--validators must be 1 to 100".to_owned(),
            ));
        }
        if self.followers > 16 {
            return Err(SetupError::Value("--followers must be 0 to 16".to_owned()));
        }
        if self.spares > 16 {
            return Err(SetupError::Value("--spares must be 0 to 16".to_owned()));
        }
        let ports = 3 * self.validators + 2 * self.followers + 3 * self.spares;
        if usize::from(self.base_port) + ports > usize::from(u16::MAX) {
            return Err(SetupError::Value(format!(
                "--base-port {} leaves no room for {} validators' ports; use a lower one",
                self.base_port, self.validators
            )));
        }
        if !(1..=1_000_000).contains(&self.accounts) {
            return Err(SetupError::Value(
                "--accounts must be 1 to 1000000".to_owned(),
            ));
        }
        self.check_registry()
    }

    fn check_registry(&self) -> Result<(), SetupError> {
        let problem = if !self.registry {
            None
        } else if self.validators < 4 {
            Some("--registry needs at least four validators: give --validators 4".to_owned())
        } else if self.accounts > MAX_ACCOUNTS_WITH_REGISTRY {
            Some(format!(
                "--registry: --accounts must be 1 to {MAX_ACCOUNTS_WITH_REGISTRY}"
            ))
        } else {
            None
        };
        match problem {
            Some(problem) => Err(SetupError::Value(problem)),
            None => Ok(()),
        }
    }

    fn new_registry(&self) -> Option<NewRegistry> {
        let most = self.validators.max(self.seats);
        let rules = RegistryRules {
            min_stake: STAKE,
            max_validators: u32::try_from(most).expect("checked to be 100 at most"),
            unbond_epochs: UNBOND_EPOCHS,
            slashing: Some(Slashing {
                percent: 5,
                jail_epochs: 10,
            }),
            external: None,
            resharing: self.scheme == SchemeKind::BlsThreshold.name(),
        };
        let places = 0..self.validators;
        self.registry.then(|| NewRegistry {
            rules,
            stake: STAKE,
            addresses: places.map(|place| self.p2p_address(place).into()).collect(),
        })
    }

    fn retention(&self) -> String {
        match self.retention_seconds {
            Some(seconds) => format_duration(Duration::from_secs(seconds)),
            None => self.retention_blocks.unwrap_or(0).to_string(),
        }
    }

    fn difference(&self, other: &Self) -> String {
        let pairs = [
            (
                "--validators",
                self.validators.to_string(),
                other.validators.to_string(),
            ),
            ("--scheme", self.scheme.clone(), other.scheme.clone()),
            (
                "--protocol",
                self.protocol.name().to_owned(),
                other.protocol.name().to_owned(),
            ),
            (
                "--epoch-blocks",
                self.epoch_blocks.blocks().to_string(),
                other.epoch_blocks.blocks().to_string(),
            ),
            ("--retention", self.retention(), other.retention()),
            (
                "--block-interval",
                format!("{}ms", self.block_interval_ms),
                format!("{}ms", other.block_interval_ms),
            ),
            (
                "--idle-interval",
                format!("{}ms", self.idle_interval_ms),
                format!("{}ms", other.idle_interval_ms),
            ),
            (
                "block limits",
                format!("{:?}", self.block_limits),
                format!("{:?}", other.block_limits),
            ),
            (
                "--application",
                self.application.name().to_owned(),
                other.application.name().to_owned(),
            ),
            ("--name", self.name.clone(), other.name.clone()),
            (
                "--accounts",
                self.accounts.to_string(),
                other.accounts.to_string(),
            ),
            (
                "--followers",
                self.followers.to_string(),
                other.followers.to_string(),
            ),
            (
                "--registry",
                self.registry.to_string(),
                other.registry.to_string(),
            ),
            (
                "--spares",
                self.spares.to_string(),
                other.spares.to_string(),
            ),
            (
                "--base-port",
                self.base_port.to_string(),
                other.base_port.to_string(),
            ),
        ];
        let differing: Vec<String> = pairs
            .into_iter()
            .filter(|(_, there, asked)| there != asked)
            .map(|(flag, there, asked)| format!("{flag} {there} there, {asked} asked for"))
            .collect();
        differing.join(", ")
    }
}

/// Returns the settings of the network in a folder, if there is one.
///
/// # Errors
///
/// If the settings file cannot be read.
pub fn saved(directory: &Path) -> Result<Option<Settings>, SetupError> {
    let path = directory.join(SETTINGS_FILE);
    match read_text(&path, MAX_SETTINGS_BYTES) {
        Ok(text) => serde_json::from_str(&text)
            .map(Some)
            .map_err(|error| io_error(&path, io::Error::other(error))),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(io_error(&path, error.into())),
    }
}

/// Creates the network's files in a folder, or checks that existing ones have the same settings.
/// The settings file is written last, so a folder that contains it is complete.
pub fn prepare(directory: &Path, settings: &Settings) -> Result<(), SetupError> {
    settings.check()?;
    if let Some(there) = saved(directory)? {
        if there == *settings {
            return Ok(());
        }
        return Err(SetupError::OtherSettings {
            path: directory.to_path_buf(),
            difference: there.difference(settings),
        });
    }
    let empty = fs::read_dir(directory).map_or(true, |mut entries| entries.next().is_none());
    if !empty {
        return Err(SetupError::NotANetwork {
            path: directory.to_path_buf(),
        });
    }
    make(directory, settings)
}

fn make(directory: &Path, settings: &Settings) -> Result<(), SetupError> {
    let scheme =
        SchemeKind::from_str(&settings.scheme).map_err(|e| SetupError::Value(e.to_string()))?;
    let seed = keys::generate_identity();
    let plain = Protection::Plain;
    keys::save_secret(&directory.join(LOAD_SEED_FILE), &seed.to_bytes(), plain)?;
    let accounts = derive_accounts(&seed, settings.accounts);
    let payer = keys::generate_identity();
    keys::save_secret(&payer_key(directory), &payer.to_bytes(), plain)?;
    let identities: Vec<SecretKey> = (0..settings.validators)
        .map(|_| keys::generate_identity())
        .collect();
    let load_balance = match settings.registry {
        true => LOAD_BALANCE_WITH_REGISTRY,
        false => LOAD_BALANCE,
    };
    let has_accounts = settings.application == ApplicationKind::Ledger;
    let account = |secret: &SecretKey, balance| GenesisAccount {
        identity: secret.identity(),
        balance,
    };
    let shares = settings.registry && scheme == SchemeKind::BlsThreshold;
    let paying = identities.iter().filter(|_| shares);
    let chain = NewChain {
        registry: settings.new_registry(),
        name: settings.name.clone(),
        protocol: settings.protocol,
        application: settings.application,
        scheme,
        limits: settings.block_limits,
        fees: match settings.application {
            ApplicationKind::Ledger => DEFAULT_FEES,
            ApplicationKind::OrderOnly => Fees::NONE,
        },
        epoch_blocks: settings.epoch_blocks,
        validators: identities.iter().map(SecretKey::identity).collect(),
        registrations: Vec::new(),
        accounts: accounts
            .iter()
            .filter(|_| has_accounts)
            .map(|secret| account(secret, load_balance))
            .chain(has_accounts.then(|| account(&payer, LOAD_BALANCE)))
            .chain(paying.map(|secret| account(secret, SHARING_BALANCE)))
            .collect(),
    };
    let dealt = chain.deal()?;
    let peers: Vec<(Identity, PeerAddress)> = identities
        .iter()
        .enumerate()
        .map(|(place, secret)| (secret.identity(), settings.p2p_address(place).into()))
        .collect();
    let followers: Vec<SecretKey> = (0..settings.followers)
        .map(|_| keys::generate_identity())
        .collect();
    for (place, secret) in identities.iter().enumerate() {
        let of_this = followers.iter().enumerate();
        let of_this =
            of_this.filter(|(follower, _)| settings.followed_by(*follower).contains(&place));
        let of_this: Vec<(Identity, PeerAddress)> = of_this
            .map(|(follower, secret)| {
                (
                    secret.identity(),
                    settings.follower_address(follower).into(),
                )
            })
            .collect();
        let own = validator_directory(directory, place);
        keys::save_secret(&own.join(IDENTITY_FILE), &secret.to_bytes(), plain)?;
        let config = NewConfig {
            kind: NodeKind::Validator,
            followers: &of_this,
            genesis: &Path::new("..").join(GENESIS_FILE),
            p2p_listen: settings.p2p_address(place),
            local: true,
            rpc_listen: settings.rpc_address(place),
            admin_listen: Some(settings.admin_address(place)),
            peers: &peers,
            own: secret.identity(),
            retention_blocks: settings.retention_blocks,
            retention_time: settings.retention_seconds.map(Duration::from_secs),
            min_block_interval: Duration::from_millis(settings.block_interval_ms),
            idle_interval: Duration::from_millis(settings.idle_interval_ms),
            registry_file: None,
        };
        write_new(&own.join(CONFIG_FILE), &config.to_toml())?;
    }
    for (place, secret) in followers.iter().enumerate() {
        let own = follower_directory(directory, place);
        keys::save_secret(&own.join(IDENTITY_FILE), &secret.to_bytes(), plain)?;
        let followed = settings.followed_by(place);
        let followed: Vec<_> = followed
            .into_iter()
            .map(|place| peers[place].clone())
            .collect();
        let config = NewConfig {
            kind: NodeKind::Follower,
            followers: &[],
            genesis: &Path::new("..").join(GENESIS_FILE),
            p2p_listen: settings.follower_address(place),
            local: true,
            rpc_listen: settings.follower_rpc_address(place),
            admin_listen: None,
            peers: &followed,
            own: secret.identity(),
            retention_blocks: settings.retention_blocks,
            retention_time: settings.retention_seconds.map(Duration::from_secs),
            min_block_interval: Duration::from_millis(settings.block_interval_ms),
            idle_interval: Duration::from_millis(settings.idle_interval_ms),
            registry_file: None,
        };
        write_new(&own.join(FOLLOWER_FILE), &config.to_toml())?;
    }
    for place in settings.validators..settings.machines() {
        make_spare(directory, settings, place, &peers)?;
    }
    dealt.write(directory, plain)?;
    let text = serde_json::to_string_pretty(settings).expect("settings have only text keys");
    Ok(write_new(&directory.join(SETTINGS_FILE), &text)?)
}

/// Creates the keys and the configuration of a machine that is no validator yet.
fn make_spare(
    directory: &Path,
    settings: &Settings,
    place: usize,
    peers: &[(Identity, PeerAddress)],
) -> Result<(), SetupError> {
    let own = validator_directory(directory, place);
    let secret = keys::generate_identity();
    let vote = VoteSecret::random(keys::system_rng());
    let plain = Protection::Plain;
    keys::save_secret(&own.join(IDENTITY_FILE), &secret.to_bytes(), plain)?;
    keys::save_key(&own.join(VOTE_FILE), KeyKind::Vote, &vote.to_bytes(), plain)?;
    let config = NewConfig {
        kind: NodeKind::Newcomer,
        followers: &[],
        genesis: &Path::new("..").join(GENESIS_FILE),
        p2p_listen: settings.p2p_address(place),
        local: true,
        rpc_listen: settings.rpc_address(place),
        admin_listen: Some(settings.admin_address(place)),
        peers,
        own: secret.identity(),
        retention_blocks: settings.retention_blocks,
        retention_time: settings.retention_seconds.map(Duration::from_secs),
        min_block_interval: Duration::from_millis(settings.block_interval_ms),
        idle_interval: Duration::from_millis(settings.idle_interval_ms),
        registry_file: None,
    };
    Ok(write_new(&own.join(CONFIG_FILE), &config.to_toml())?)
}

/// Returns the identity of a validator or spare.
///
/// # Errors
///
/// If its key file cannot be read.
pub fn identity_of(directory: &Path, place: usize) -> Result<Identity, SetupError> {
    let key = validator_directory(directory, place).join(IDENTITY_FILE);
    Ok(keys::load_identity(&key, &KeyAccess::plain())?.identity())
}

/// Returns a follower's folder.
pub fn follower_directory(directory: &Path, place: usize) -> PathBuf {
    directory.join(format!("follower-{place}"))
}

/// Returns the key file of a funded account that the load does not use, for manual experiments.
pub fn payer_key(directory: &Path) -> PathBuf {
    directory.join("account").join(IDENTITY_FILE)
}

/// Returns the keys of the network's load accounts.
///
/// # Errors
///
/// If the seed file cannot be read.
pub fn load_accounts(directory: &Path, count: u32) -> Result<Vec<SecretKey>, SetupError> {
    let seed = keys::load_identity(&directory.join(LOAD_SEED_FILE), &KeyAccess::plain())?;
    Ok(derive_accounts(&seed, count))
}

fn io_error(path: &Path, source: io::Error) -> SetupError {
    SetupError::Io {
        path: path.to_path_buf(),
        source,
    }
}
