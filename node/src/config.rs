//! A validator's configuration: `validator.toml`, and the genesis and key files that it refers to.
//!
//! [`ValidatorConfig::load`] is all or nothing: the values that it returns are in range and
//! consistent (the keys match the genesis file, every other validator has an address), so that
//! nothing needs to be checked again after the start. Each error names the file, the key and the
//! allowed values.

mod duration;
mod error;
mod file;
mod peers;
mod ranges;
mod reload;
mod template;

pub use duration::{format_duration, parse_duration};
pub use error::ConfigError;
pub use reload::{Changes, Reloader};
pub use template::{NewConfig, NodeKind};

use self::ranges::{Check, Role, Values};
use crate::keys::{self, KeyAccess};
use quorate_crypto::{
    Identity, SecretKey,
    bls::{Scheme, VoteSecret},
};
use quorate_files::read_text;
use quorate_machine::{
    executor::Retention, machine::ConsensusConfig, mempool::MempoolLimits, serve::Upload,
};
use quorate_p2p::PeerAddress;
use quorate_types::{ChainId, Committee, Committees, ValidatorIndex, genesis::Genesis};
use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// The default file name.
pub const CONFIG_FILE: &str = "validator.toml";

/// The default name of a follower's file.
pub const FOLLOWER_FILE: &str = "follower.toml";

/// Size limit of a configuration file.
pub const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// Size limit of a genesis file: about a million accounts.
const MAX_GENESIS_BYTES: u64 = 256 << 20;

/// The settings of a validator or follower. Without `Debug`, because they contain secrets.
#[derive(Clone)]
pub struct NodeConfig {
    /// The configuration file.
    pub path: PathBuf,
    pub genesis: Arc<Genesis>,
    pub genesis_file: PathBuf,
    pub chain: ChainId,
    pub committees: Committees,
    /// The vote scheme with the keys of the current epoch, which are the genesis file's unless there is a
    /// registry.
    pub scheme: Scheme,
    pub identity: SecretKey,
    /// The file of the identity key.
    pub identity_file: PathBuf,
    /// The directory of the journal and the database. May not exist yet.
    pub data_dir: PathBuf,
    /// Settings of the links to other nodes.
    pub p2p: P2pConfig,
    /// Settings of the HTTP API.
    pub rpc: RpcConfig,
    /// The listen address for metrics and other operator-only parts of the API. `None`: they are
    /// served on the control socket only.
    pub admin: Option<SocketAddr>,
    /// Limits on pending transactions.
    pub mempool: MempoolLimits,
    /// Timeouts and other settings of the consensus protocol.
    pub consensus: ConsensusConfig,
    pub storage: StorageConfig,
    pub log: LogConfig,
    /// Where the registry outside the chain is read, on a chain that has one.
    pub registry: Option<quorate_registry::SourceConfig>,
    /// The file's content, for comparison when it is reread.
    pub table: toml::Table,
}

/// A validator's settings.
#[derive(Clone)]
pub struct ValidatorConfig {
    pub node: NodeConfig,
    /// This validator's number in the committee. As the file is read, the genesis file's, which may not
    /// name it on a chain with a registry.
    pub place: Option<ValidatorIndex>,
    /// This validator's share of the group key, or its own vote key.
    pub vote_secret: Arc<VoteSecret>,
    /// The file of the vote key.
    pub vote_file: PathBuf,
    /// The operator's `--surviving-view`: the view that all validators with a journal are in, after
    /// the loss of more journals than the committee can do without. Not available in the
    /// configuration file.
    pub survivors: Option<quorate_types::Position>,
}

/// Settings of the links to other nodes.
#[derive(Debug, Clone)]
pub struct P2pConfig {
    /// The listen address.
    pub listen: SocketAddr,
    /// A validator's: every other validator of the committee, exactly once, with its address. A
    /// follower's: the nodes that it follows.
    pub peers: Vec<(Identity, PeerAddress)>,
    /// The nodes that follow this one.
    pub followers: Vec<(Identity, PeerAddress)>,
    /// Timing of connection attempts and timeouts.
    pub timing: quorate_p2p::Timing,
    /// What peers that fetch blocks or a snapshot get, all together.
    pub upload: Upload,
}

/// Settings of the HTTP API. A client is an IPv4 address or an IPv6 /64 network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RpcConfig {
    /// The listen address. The API has no authentication.
    pub listen: SocketAddr,
    /// Most simultaneous connections: 1 to 65,536.
    pub max_connections: usize,
    /// Most simultaneous connections of one client: 1 to `max_connections`.
    pub max_connections_per_client: usize,
    /// Most requests of one client that wait for an event: 1 to 256.
    pub max_waiting_per_client: usize,
    /// Most bytes of requests and responses in memory: 32 MiB to 64 GiB. One client can use a
    /// quarter.
    pub max_in_flight_bytes: usize,
    /// How long a request may take, not counting the wait that it asks for: 100 ms to 5 min.
    pub request_timeout: Duration,
    /// Host names of this validator, in addition to IP addresses and `localhost`.
    pub hosts: Vec<String>,
    /// Origins whose pages may read the responses.
    pub cors_origins: Vec<String>,
    /// Reverse proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<IpAddr>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorageConfig {
    /// Which blocks to keep, at least 10,000; `None` keeps all.
    pub retention: Option<Retention>,
    /// Blocks between snapshots of the state for state sync; 0 for none.
    pub snapshot_interval: u64,
    /// Bytes of payloads to keep, on a chain that only orders.
    pub bundle_bytes: u64,
}

/// The default for [`StorageConfig::bundle_bytes`].
pub const BUNDLE_BYTES: usize = 16 << 30;

/// The default for [`StorageConfig::snapshot_interval`].
pub const SNAPSHOT_INTERVAL: usize = 1_000;

/// The minimum number of blocks that a validator keeps, for peers that have fallen behind and for
/// its own start.
pub const MIN_RETENTION_BLOCKS: u64 = 10_000;

/// The shortest retention time; see [`MAX_RETENTION_TIME`] for the longest.
pub const MIN_RETENTION_TIME: Duration = Duration::from_secs(60);
/// The longest retention time.
pub const MAX_RETENTION_TIME: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);

/// Upper limit of the interval between blocks while there are no transactions.
pub const MAX_IDLE_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// A level, or directives such as `info,quorate_p2p=debug`.
    pub level: String,
    pub format: LogFormat,
}

/// The format of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line, for programs.
    Json,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            level: "info".into(),
            format: LogFormat::Text,
        }
    }
}

impl RpcConfig {
    /// Returns the default limits, with the given listen address.
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            max_connections: 1_024,
            max_connections_per_client: 256,
            max_waiting_per_client: 64,
            max_in_flight_bytes: 64 << 20,
            request_timeout: Duration::from_secs(10),
            hosts: Vec::new(),
            cors_origins: Vec::new(),
            trusted_proxies: Vec::new(),
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

/// The genesis file and the keys that a configuration file refers to, checked.
struct Referred {
    genesis_path: PathBuf,
    genesis: Genesis,
    committee: Committee,
    scheme: Scheme,
    identity_path: PathBuf,
    identity: SecretKey,
}

impl Referred {
    fn read(
        check: &Check<'_>,
        file: &file::File,
        keys_access: &KeyAccess,
    ) -> Result<Self, ConfigError> {
        let directory = check.path.parent().unwrap_or(Path::new(""));
        let genesis_path = directory.join(&file.genesis);
        let genesis = load_genesis(&genesis_path).map_err(|source| ConfigError::NamedGenesis {
            path: check.path.into(),
            source: Box::new(source),
        })?;
        let genesis_error = |source| ConfigError::Genesis {
            path: genesis_path.clone(),
            source,
        };
        let committee = genesis
            .committee()
            .map_err(|error| genesis_error(error.into()))?;
        let scheme = genesis.scheme().map_err(genesis_error)?;
        let identity_path = directory.join(&file.identity_key);
        let identity = keys::load_identity(&identity_path, keys_access)
            .map_err(|source| check.key("identity_key", source))?;
        Ok(Self {
            genesis_path,
            genesis,
            committee,
            scheme,
            identity_path,
            identity,
        })
    }

    /// Only a registry outside the chain is read.
    fn has_such_a_registry(&self, check: &Check<'_>, values: &Values) -> Result<(), ConfigError> {
        let is_external = (self.genesis.registry).is_some_and(|rules| rules.external.is_some());
        if values.registry.is_none() || is_external {
            return Ok(());
        }
        let expected = format!(
            "left out: {} has no `registry.external`, so this chain's validators are not listed elsewhere",
            self.genesis_path.display()
        );
        Err(check.value("registry", "there", expected))
    }

    /// The settings, once the values are checked.
    fn with(
        self,
        data_dir: PathBuf,
        values: Values,
        path: &Path,
        table: toml::Table,
    ) -> NodeConfig {
        NodeConfig {
            chain: self.genesis.chain_id(),
            p2p: values.p2p,
            rpc: values.rpc,
            admin: values.admin,
            mempool: values.mempool,
            consensus: values.consensus,
            storage: values.storage,
            log: values.log,
            registry: values.registry,
            data_dir,
            table,
            path: path.into(),
            genesis: Arc::new(self.genesis),
            genesis_file: self.genesis_path,
            committees: Committees::fixed(self.committee),
            scheme: self.scheme,
            identity: self.identity,
            identity_file: self.identity_path,
        }
    }
}

/// The data directory, which must hold neither the configuration nor keys.
fn data_dir(
    check: &Check<'_>,
    file: &file::File,
    key_files: &[&Path],
) -> Result<PathBuf, ConfigError> {
    let directory = check.path.parent().unwrap_or(Path::new(""));
    let data_dir = directory.join(&file.data_dir);
    let mut beside = key_files.iter().copied().chain([check.path]);
    if beside.any(|other| is_folder_of(&data_dir, other)) {
        let found = format!("{:?}", file.data_dir.display().to_string());
        let expected = "a folder of its own, without keys and configuration, for instance \"data\"";
        return Err(check.value("data_dir", found, expected.into()));
    }
    Ok(data_dir)
}

impl ValidatorConfig {
    /// Loads the file and everything that it refers to. Relative paths in it start from its own
    /// directory.
    ///
    /// # Errors
    ///
    /// If a file is missing, malformed or (for keys) accessible to others; if a value is out of
    /// range; if the keys or the peers do not match the genesis file.
    pub fn load(path: &Path, keys_access: &KeyAccess) -> Result<Self, ConfigError> {
        let (file, table) = read_file(path)?;
        let directory = path.parent().unwrap_or(Path::new(""));
        let check = Check { path };
        let Some(vote_key) = &file.vote_key else {
            let expected = "the file of the vote key; a node without one does not vote, and is run by \
                            `quorate follow`";
            return Err(check.value("vote_key", "nothing", expected.into()));
        };
        let referred = Referred::read(&check, &file, keys_access)?;
        let identity = referred.identity.identity();
        let has_registry = referred.genesis.registry.is_some();
        let place = referred.committee.place(&identity);
        if place.is_none() && !has_registry {
            return Err(ConfigError::NotAValidator {
                file: referred.identity_path.clone(),
                genesis: referred.genesis_path.clone(),
                identity,
                validators: referred.committee.size(),
            });
        }
        let vote_path = directory.join(vote_key);
        let vote_secret = keys::load_vote_secret(&vote_path, keys_access)
            .map_err(|source| check.key("vote_key", source))?;
        let found = hex::encode(vote_secret.public_key());
        // With a registry, the state says whose key is which.
        if let (Some(place), false) = (place, has_registry)
            && let expected = &referred.genesis.validators[place.as_usize()].vote_key
            && !expected.eq_ignore_ascii_case(&found)
        {
            return Err(ConfigError::WrongVoteKey {
                file: vote_path,
                genesis: referred.genesis_path,
                place,
                found: first_digits(&found),
                expected: first_digits(expected),
            });
        }
        let data_dir = data_dir(&check, &file, &[&referred.identity_path, &vote_path])?;
        let role = match place {
            Some(place) if !has_registry => Role::Validator(&referred.committee, place),
            _ => Role::Registered(&referred.committee, identity),
        };
        let values = check.values(file, role)?;
        referred.has_such_a_registry(&check, &values)?;
        Ok(Self {
            node: referred.with(data_dir, values, path, table),
            place,
            vote_secret: Arc::new(vote_secret),
            vote_file: vote_path,
            survivors: None,
        })
    }
}

/// The settings of a validator or of a follower: whichever a file is for.
pub enum AnyConfig {
    Validator(Box<ValidatorConfig>),
    Follower(Box<NodeConfig>),
}

impl AnyConfig {
    /// Loads the file of a validator, or of a follower if it names no vote key.
    ///
    /// # Errors
    ///
    /// As for [`ValidatorConfig::load`].
    pub fn load(path: &Path, keys_access: &KeyAccess) -> Result<Self, ConfigError> {
        let (file, _) = read_file(path)?;
        Ok(match file.vote_key {
            Some(_) => Self::Validator(Box::new(ValidatorConfig::load(path, keys_access)?)),
            None => Self::Follower(Box::new(NodeConfig::load_follower(path, keys_access)?)),
        })
    }

    pub fn node(&self) -> &NodeConfig {
        match self {
            Self::Validator(config) => &config.node,
            Self::Follower(config) => config,
        }
    }

    /// The validator's settings; `None` for a follower.
    pub fn validator(&self) -> Option<&ValidatorConfig> {
        match self {
            Self::Validator(config) => Some(config),
            Self::Follower(_) => None,
        }
    }
}

impl NodeConfig {
    /// Loads a follower's file and everything that it refers to, like [`ValidatorConfig::load`].
    ///
    /// # Errors
    ///
    /// As there, and if the file names a vote key or the identity is a validator's.
    pub fn load_follower(path: &Path, keys_access: &KeyAccess) -> Result<Self, ConfigError> {
        let (file, table) = read_file(path)?;
        let check = Check { path };
        if let Some(vote_key) = &file.vote_key {
            let found = format!("{:?}", vote_key.display().to_string());
            let expected = "nothing: a follower has no vote. If this is a validator's configuration, \
                            start it with `quorate run`";
            return Err(check.value("vote_key", found, expected.into()));
        }
        let referred = Referred::read(&check, &file, keys_access)?;
        let identity = referred.identity.identity();
        if let Some(place) = referred.committee.place(&identity) {
            let found = format!("{:?}", file.identity_key.display().to_string());
            let expected = format!(
                "a key of its own (`quorate keys generate`): this is the identity of validator {place}"
            );
            return Err(check.value("identity_key", found, expected));
        }
        let data_dir = data_dir(&check, &file, &[&referred.identity_path])?;
        let values = check.values(file, Role::Follower(&referred.committee, identity))?;
        referred.has_such_a_registry(&check, &values)?;
        Ok(referred.with(data_dir, values, path, table))
    }
}

/// Reads the text of a configuration file.
///
/// # Errors
///
/// If it cannot be read, or is too large.
pub fn read_config(path: &Path) -> Result<String, ConfigError> {
    read_text(path, MAX_CONFIG_BYTES).map_err(ConfigError::Read)
}

/// Whether a file is directly in a folder, judging by the paths alone.
fn is_folder_of(folder: &Path, file: &Path) -> bool {
    let paths = (std::path::absolute(folder), std::path::absolute(file));
    // An empty path cannot be made absolute.
    let (Ok(folder), Ok(file)) = paths else {
        return folder.as_os_str().is_empty();
    };
    file.parent()
        .is_some_and(|parent| parent.components().eq(folder.components()))
}

/// Reads the configuration file alone.
fn read_file(path: &Path) -> Result<(file::File, toml::Table), ConfigError> {
    let text = read_config(path)?;
    let syntax = |error: toml::de::Error| ConfigError::Syntax {
        path: path.into(),
        message: error.to_string().trim_end().into(),
    };
    let file = toml::from_str(&text).map_err(syntax)?;
    Ok((file, toml::from_str(&text).map_err(syntax)?))
}

/// Reads and checks a genesis file, except for the validity of its public keys as curve points.
///
/// # Errors
///
/// If it cannot be read, or a value is out of range.
pub fn load_genesis(path: &Path) -> Result<Genesis, ConfigError> {
    let text = read_text(path, MAX_GENESIS_BYTES).map_err(ConfigError::ReadGenesis)?;
    Genesis::from_json(&text).map_err(|source| ConfigError::Genesis {
        path: path.into(),
        source,
    })
}

fn first_digits(key: &str) -> String {
    key.chars().take(8).collect()
}

/// Checks that the text is a log level or a list of directives.
///
/// # Errors
///
/// A description of the allowed values, if it is neither.
pub fn check_log_level(level: &str) -> Result<(), String> {
    let expected = "error, warn, info, debug, trace or off, or directives such as \
                    \"info,quorate_p2p=debug\"";
    // A single unknown word would be parsed as a module name and so turn logging off.
    let known = ["error", "warn", "info", "debug", "trace", "off"];
    let word = |part: &str| part.contains('=') || known.contains(&part.trim());
    if level.split(',').all(word) && tracing_subscriber::EnvFilter::try_new(level).is_ok() {
        Ok(())
    } else {
        Err(expected.into())
    }
}
