//! A validator's configuration: `validator.toml`, and the genesis and key files it names.
//!
//! [`ValidatorConfig::load`] is all or nothing: what it returns is in range and fits together
//! (the keys belong to the genesis file, every other validator has an address), so that nothing
//! after the start has to ask again. Each error names the file, the key and what may stand there.

mod duration;
mod file;
mod peers;
mod reload;
mod template;

pub use duration::{format_duration, parse_duration};
pub use reload::{Changes, Reloader};
pub use template::NewConfig;

use crate::executor::Retention;
use crate::keys::{self, KeyAccess, KeyFileError};
use quorate_crypto::{
    Identity, SecretKey,
    bls::{Scheme, VoteSecret},
};
use quorate_files::{ReadError, read_text};
use quorate_p2p::PeerAddress;
use quorate_types::{
    ChainId, Committee, ValidatorIndex,
    genesis::{Genesis, GenesisError},
};
use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// The usual name of the file.
pub const CONFIG_FILE: &str = "validator.toml";

/// Most bytes of a configuration file.
pub const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// Most bytes of a genesis file: about a million accounts.
const MAX_GENESIS_BYTES: u64 = 256 << 20;

/// Everything that a validator is told at its start. It holds secrets, so it has no `Debug`.
pub struct ValidatorConfig {
    /// The file it came from.
    pub path: PathBuf,
    /// The chain's genesis.
    pub genesis: Genesis,
    /// The chain's id.
    pub chain: ChainId,
    /// The genesis committee.
    pub committee: Committee,
    /// The vote scheme with the genesis file's keys, fully checked.
    pub scheme: Scheme,
    /// Who this validator is.
    pub identity: SecretKey,
    /// Its place in the committee.
    pub place: ValidatorIndex,
    /// Its share of the group key.
    pub vote_secret: Arc<VoteSecret>,
    /// The files of these two.
    pub key_files: [PathBuf; 2],
    /// Where it keeps its journal and its database. Need not exist yet.
    pub data_dir: PathBuf,
    /// Links to the other validators.
    pub p2p: P2pConfig,
    /// The HTTP interface.
    pub rpc: RpcConfig,
    /// Where the operator's part of it is served: metrics, and what only the operator should know.
    /// `None`: over the control socket only.
    pub admin: Option<SocketAddr>,
    /// Limits on transactions that wait.
    pub mempool: MempoolConfig,
    /// The protocol's patience.
    pub consensus: ConsensusConfig,
    /// What is kept.
    pub storage: StorageConfig,
    /// What is logged, and how.
    pub log: LogConfig,
    /// The file as it was read, to be compared with when it is read again.
    pub table: toml::Table,
    /// The view that all validators with a journal are in, after the loss of more journals than the
    /// committee can do without; no configuration file can say it.
    pub survivors: Option<quorate_types::Position>,
    /// A fault on purpose, on chaos chains only; no configuration file can ask for it.
    pub misbehaviour: Option<crate::misbehave::Misbehaviour>,
}

/// Links to the other validators.
#[derive(Debug, Clone)]
pub struct P2pConfig {
    /// Where to accept connections.
    pub listen: SocketAddr,
    /// Every other validator of the committee, once, and where to dial it.
    pub peers: Vec<(Identity, PeerAddress)>,
    /// How eagerly to dial and how soon to give up.
    pub timing: quorate_p2p::Timing,
}

/// The HTTP interface. A client is an IPv4 address or an IPv6 /64 network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RpcConfig {
    /// Where to accept connections. It has no authentication.
    pub listen: SocketAddr,
    /// Most connections at once: 1 to 65,536.
    pub max_connections: usize,
    /// Most connections of one client: 1 to `max_connections`.
    pub max_connections_per_client: usize,
    /// Most requests of one client that wait for something to happen: 1 to 256.
    pub max_waiting_per_client: usize,
    /// Most bytes of requests and answers in memory: 32 MiB to 64 GiB; a client may have a quarter.
    pub max_in_flight_bytes: usize,
    /// How long a request may take, apart from what it waits for on purpose: 100 ms to 5 min.
    pub request_timeout: Duration,
    /// Names under which it is asked, beside addresses and `localhost`.
    pub hosts: Vec<String>,
    /// Origins whose pages may read its answers.
    pub cors_origins: Vec<String>,
    /// Reverse proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpAddr>,
}

/// Limits on transactions that wait for a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MempoolConfig {
    /// Most transactions: 1 to 10,000,000.
    pub max_transactions: usize,
    /// Most bytes of them, encoded: 1,024 to 16 GiB.
    pub max_bytes: usize,
    /// Most transactions of one sender: 1 to 1,000,000.
    pub max_per_sender: usize,
    /// How long a transaction may wait for a nonce before it, or for money: 1 s to 168 h.
    pub stranded_lasts: Duration,
}

/// The protocol's patience.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConsensusConfig {
    /// The engine's timers.
    pub timing: quorate_consensus::Timing,
    /// How long finalize votes wait for the next view's notarize, to travel with it: 0 to 100 ms.
    pub finalize_linger: Duration,
    /// The least time between a parent's timestamp and its child's: 0 to 1 min.
    pub min_block_interval: Duration,
    /// How long a validator caught with something invalid stays blocked: 1 min to 8,760 h. Proven
    /// equivocation stays until the operator lifts it.
    pub penalty_lasts: Duration,
    /// How votes are checked; not for the operator to choose.
    pub checking: quorate_consensus::VoteChecking,
}

/// What is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StorageConfig {
    /// Which blocks to keep, 10,000 at least; `None` for all.
    pub retention: Option<Retention>,
}

/// The least that a validator keeps, for peers that have fallen behind and for its own start.
pub const MIN_RETENTION_BLOCKS: u64 = 10_000;

/// The shortest and the longest time for which blocks are kept, where a time is given.
pub const MIN_RETENTION_TIME: Duration = Duration::from_secs(60);
/// See [`MIN_RETENTION_TIME`].
pub const MAX_RETENTION_TIME: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);

/// The longest that a chain may be without a block because nobody needs one.
pub const MAX_IDLE_INTERVAL: Duration = Duration::from_secs(60);

/// What is logged, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// A level, or directives such as `info,quorate_p2p=debug`.
    pub level: String,
    /// The form of a line.
    pub format: LogFormat,
}

/// The form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line, for programs.
    Json,
}

/// Why a validator cannot start with this configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The configuration file cannot be read.
    #[error("the configuration file: {}{}", .0, remedy(.0))]
    Read(ReadError),
    /// It is no TOML of the right shape. The parser's message shows the line.
    #[error("{}: {message}", .path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What the parser says.
        message: String,
    },
    /// A value is out of its range.
    #[error("{}: `{key}` is {found}; it must be {expected}", .path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The key in the file.
        key: &'static str,
        /// The value as it is.
        found: String,
        /// What it may be.
        expected: String,
    },
    /// The list of peers does not fit the committee.
    #[error("{}: `p2p.peers`: {problem}", .path.display())]
    Peers {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// The genesis file cannot be read.
    #[error("the genesis file: {0}")]
    ReadGenesis(ReadError),
    /// The genesis file cannot be used.
    #[error("the genesis file {}: {source}", .path.display())]
    Genesis {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: GenesisError,
    },
    /// The genesis file that the configuration file names cannot be used.
    #[error("{source} (`genesis` in {})", .path.display())]
    NamedGenesis {
        /// The configuration file.
        path: PathBuf,
        /// What is wrong.
        source: Box<ConfigError>,
    },
    /// A key file cannot be used.
    #[error("{source} (`{key}` in {})", .path.display())]
    Key {
        /// The configuration file.
        path: PathBuf,
        /// The key in it that names the key file.
        key: &'static str,
        /// What is wrong.
        source: KeyFileError,
    },
    /// The identity is not in the genesis committee.
    #[error(
        "the identity {identity} of {} (`identity_key`) is not among the {validators} validators \
         of {}; use the identity key that this chain was made for, or the right genesis file",
        .file.display(), .genesis.display()
    )]
    NotAValidator {
        /// The identity's file.
        file: PathBuf,
        /// The genesis file.
        genesis: PathBuf,
        /// The identity.
        identity: Identity,
        /// How many validators there are.
        validators: usize,
    },
    /// The vote key is not the one dealt to this validator.
    #[error(
        "the vote key {} (`vote_key`) is not the one of validator {place} in {}: its public key \
         begins with {found}, there it begins with {expected}; use the vote.key of this validator \
         that belongs to this genesis file",
        .file.display(), .genesis.display()
    )]
    WrongVoteKey {
        /// The vote key's file.
        file: PathBuf,
        /// The genesis file.
        genesis: PathBuf,
        /// The validator's place.
        place: ValidatorIndex,
        /// The first digits of the key's public half.
        found: String,
        /// The first digits of the public key in the genesis file.
        expected: String,
    },
}

impl Default for ConsensusConfig {
    fn default() -> Self {
        Self {
            timing: quorate_consensus::Timing {
                idle_interval: Duration::from_secs(1),
                ..quorate_consensus::Timing::default()
            },
            finalize_linger: Duration::ZERO,
            min_block_interval: Duration::ZERO,
            penalty_lasts: Duration::from_secs(24 * 3_600),
            checking: quorate_consensus::VoteChecking::default(),
        }
    }
}

impl Default for MempoolConfig {
    fn default() -> Self {
        Self {
            max_transactions: 100_000,
            max_bytes: 64 << 20,
            max_per_sender: 10_000,
            stranded_lasts: Duration::from_secs(120),
        }
    }
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
    /// The default limits on the given address.
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

impl ValidatorConfig {
    /// Reads the file and everything it names. Paths in it are relative to its own directory.
    ///
    /// # Errors
    ///
    /// If a file is missing, of the wrong shape or (keys) readable by others; if a value is out of
    /// range; if the keys or the peers are not those of the genesis file.
    pub fn load(path: &Path, keys_access: &KeyAccess) -> Result<Self, ConfigError> {
        let (file, table) = read_file(path)?;
        let directory = path.parent().unwrap_or(Path::new(""));
        let check = Check { path };

        let genesis_path = directory.join(&file.genesis);
        let genesis = load_genesis(&genesis_path).map_err(|source| ConfigError::NamedGenesis {
            path: path.into(),
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
        let place =
            committee
                .place(&identity.identity())
                .ok_or_else(|| ConfigError::NotAValidator {
                    file: identity_path,
                    genesis: genesis_path.clone(),
                    identity: identity.identity(),
                    validators: committee.size(),
                })?;
        let vote_path = directory.join(&file.vote_key);
        let key_files = [directory.join(&file.identity_key), vote_path.clone()];
        let vote_secret = keys::load_vote_secret(&vote_path, keys_access)
            .map_err(|source| check.key("vote_key", source))?;
        let expected = &genesis.validators[place.as_usize()].vote_key;
        let found = hex::encode(vote_secret.public_key());
        if !expected.eq_ignore_ascii_case(&found) {
            return Err(ConfigError::WrongVoteKey {
                file: vote_path,
                genesis: genesis_path,
                place,
                found: first_digits(&found),
                expected: first_digits(expected),
            });
        }

        let data_dir = directory.join(&file.data_dir);
        let beside = key_files.iter().map(PathBuf::as_path).chain([path]);
        if beside
            .into_iter()
            .any(|other| is_folder_of(&data_dir, other))
        {
            let found = format!("{:?}", file.data_dir.display().to_string());
            let expected =
                "a folder of its own, without keys and configuration, for instance \"data\"";
            return Err(check.value("data_dir", found, expected.into()));
        }
        let values = check.values(file, &committee, place)?;
        Ok(Self {
            chain: genesis.chain_id(),
            p2p: values.p2p,
            rpc: values.rpc,
            admin: values.admin,
            mempool: values.mempool,
            consensus: values.consensus,
            storage: values.storage,
            log: values.log,
            data_dir,
            table,
            path: path.into(),
            genesis,
            committee,
            scheme,
            identity,
            place,
            vote_secret: Arc::new(vote_secret),
            key_files,
            survivors: None,
            misbehaviour: None,
        })
    }
}

/// What the file says of everything but keys and the chain, checked.
struct Values {
    p2p: P2pConfig,
    rpc: RpcConfig,
    admin: Option<SocketAddr>,
    mempool: MempoolConfig,
    consensus: ConsensusConfig,
    storage: StorageConfig,
    log: LogConfig,
}

/// Reads a configuration file's text.
///
/// # Errors
///
/// If it cannot be read, or is too large.
pub fn read_config(path: &Path) -> Result<String, ConfigError> {
    read_text(path, MAX_CONFIG_BYTES).map_err(ConfigError::Read)
}

/// What to do about a configuration file that cannot be read.
fn remedy(error: &ReadError) -> String {
    let ReadError::Io { path, source } = error else {
        return String::new();
    };
    match source.kind() {
        io::ErrorKind::NotFound => "; name it with --config FILE".into(),
        io::ErrorKind::IsADirectory => {
            let file = path.join(CONFIG_FILE);
            format!("; name the file in it: --config {}", file.display())
        }
        _ => String::new(),
    }
}

/// Whether a file lies directly in a folder, as their paths say.
fn is_folder_of(folder: &Path, file: &Path) -> bool {
    let paths = (std::path::absolute(folder), std::path::absolute(file));
    // An empty path has no absolute one.
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

/// Reads and checks a genesis file, but for its keys' mathematics.
///
/// # Errors
///
/// If it cannot be read or a value is out of its range.
pub fn load_genesis(path: &Path) -> Result<Genesis, ConfigError> {
    let text = read_text(path, MAX_GENESIS_BYTES).map_err(ConfigError::ReadGenesis)?;
    Genesis::from_json(&text).map_err(|source| ConfigError::Genesis {
        path: path.into(),
        source,
    })
}

fn is_of_a_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || "-._".contains(character)
}

/// Whether no two sockets can listen on both.
fn clash(one: SocketAddr, other: SocketAddr) -> bool {
    // `[::]` takes the port of the IPv4 addresses, too.
    let covers = |any: SocketAddr, held: SocketAddr| {
        any.ip().is_unspecified() && (any.is_ipv6() || held.is_ipv4())
    };
    let same = one.ip() == other.ip() || covers(one, other) || covers(other, one);
    one.port() == other.port() && one.port() != 0 && same
}

/// Whether this is a scheme, a name and perhaps a port, as browsers name origins.
fn is_origin(text: &str) -> bool {
    let name = ["https://", "http://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme));
    name.is_some_and(|name| {
        !name.is_empty() && name.chars().all(|c| is_of_a_name(c) || "[]:".contains(c))
    })
}

fn first_digits(key: &str) -> String {
    key.chars().take(8).collect()
}

/// Checks values against their ranges and names the file in each error.
struct Check<'a> {
    path: &'a Path,
}

impl Check<'_> {
    /// Checks everything but keys and the chain.
    fn values(
        &self,
        file: file::File,
        committee: &Committee,
        own: ValidatorIndex,
    ) -> Result<Values, ConfigError> {
        self.listeners(&file)?;
        Ok(Values {
            p2p: self.p2p(file.p2p, committee, own)?,
            rpc: self.rpc(file.rpc)?,
            admin: file.admin.map(|admin| admin.listen),
            mempool: self.mempool(&file.mempool)?,
            consensus: self.consensus(&file.consensus)?,
            storage: self.storage(&file.storage)?,
            log: self.log(file.log)?,
        })
    }

    fn value(&self, key: &'static str, found: impl ToString, expected: String) -> ConfigError {
        ConfigError::Value {
            path: self.path.into(),
            key,
            found: found.to_string(),
            expected,
        }
    }

    fn key(&self, key: &'static str, source: KeyFileError) -> ConfigError {
        ConfigError::Key {
            path: self.path.into(),
            key,
            source,
        }
    }

    fn number(
        &self,
        key: &'static str,
        value: Option<u64>,
        default: usize,
        range: RangeInclusive<u64>,
    ) -> Result<usize, ConfigError> {
        let Some(value) = value else {
            return Ok(default);
        };
        if !range.contains(&value) {
            let expected = format!("{} to {}", range.start(), range.end());
            return Err(self.value(key, value, expected));
        }
        Ok(usize::try_from(value).expect("ranges end below 2^36, and addresses have 64 bits"))
    }

    fn span(
        &self,
        key: &'static str,
        value: Option<Duration>,
        default: Duration,
        range: RangeInclusive<Duration>,
    ) -> Result<Duration, ConfigError> {
        let value = value.unwrap_or(default);
        if range.contains(&value) {
            return Ok(value);
        }
        let [from, to] = [range.start(), range.end()].map(|end| format_duration(*end));
        let found = format!("{:?}", format_duration(value));
        Err(self.value(key, found, format!("\"{from}\" to \"{to}\"")))
    }

    /// Refuses a span that is shorter than another one, and names both.
    fn at_least(
        &self,
        (key, value): (&'static str, Duration),
        (floor_key, floor): (&str, Duration),
    ) -> Result<(), ConfigError> {
        if value >= floor {
            return Ok(());
        }
        let [value, floor] = [value, floor].map(|span| format!("\"{}\"", format_duration(span)));
        let expected =
            format!("at least {floor}, the value of `{floor_key}`: raise it, or lower that");
        Err(self.value(key, value, expected))
    }

    /// Whether the listeners can all be had on one machine.
    fn listeners(&self, file: &file::File) -> Result<(), ConfigError> {
        let admin = file.admin.as_ref();
        let listeners = [
            Some(("p2p.listen", file.p2p.listen)),
            Some(("rpc.listen", file.rpc.listen)),
            admin.map(|admin| ("admin.listen", admin.listen)),
        ];
        let mut seen: Vec<(&str, SocketAddr)> = Vec::new();
        for (key, address) in listeners.into_iter().flatten() {
            if let Some((other, taken)) = seen.iter().find(|(_, held)| clash(*held, address)) {
                let expected =
                    format!("another address or port than that of `{other}`, which is \"{taken}\"");
                return Err(self.value(key, format!("\"{address}\""), expected));
            }
            seen.push((key, address));
        }
        Ok(())
    }

    fn rpc(&self, file: file::Rpc) -> Result<RpcConfig, ConfigError> {
        let default = RpcConfig::new(file.listen);
        let max_connections = self.number(
            "rpc.max_connections",
            file.max_connections,
            default.max_connections,
            1..=65_536,
        )?;
        let proxy = |text: String| {
            let address: Result<IpAddr, _> = text.parse();
            address.map(|address| address.to_canonical()).map_err(|_| {
                let expected = "IP addresses, for instance [\"127.0.0.1\"]";
                self.value("rpc.trusted_proxies", format!("{text:?}"), expected.into())
            })
        };
        for name in &file.hosts {
            let expected = "names without a port, for instance [\"node.example.org\"]";
            if name.is_empty() || !name.chars().all(is_of_a_name) {
                return Err(self.value("rpc.hosts", format!("{name:?}"), expected.into()));
            }
        }
        for origin in &file.cors_origins {
            let expected = "origins, for instance [\"https://wallet.example.org\"], or [\"*\"]";
            if origin != "*" && !is_origin(origin) {
                return Err(self.value("rpc.cors_origins", format!("{origin:?}"), expected.into()));
            }
        }
        Ok(RpcConfig {
            listen: file.listen,
            max_connections,
            max_connections_per_client: self.number(
                "rpc.max_connections_per_client",
                file.max_connections_per_client,
                default.max_connections_per_client.min(max_connections),
                1..=max_connections as u64,
            )?,
            max_waiting_per_client: self.number(
                "rpc.max_waiting_per_client",
                file.max_waiting_per_client,
                default.max_waiting_per_client,
                1..=256,
            )?,
            max_in_flight_bytes: self.number(
                "rpc.max_in_flight_bytes",
                file.max_in_flight_bytes,
                default.max_in_flight_bytes,
                32 << 20..=64 << 30,
            )?,
            request_timeout: self.span(
                "rpc.request_timeout",
                file.request_timeout,
                default.request_timeout,
                Duration::from_millis(100)..=Duration::from_secs(300),
            )?,
            hosts: file.hosts,
            cors_origins: file.cors_origins,
            trusted_proxies: file
                .trusted_proxies
                .into_iter()
                .map(proxy)
                .collect::<Result<_, _>>()?,
        })
    }

    fn mempool(&self, file: &file::Mempool) -> Result<MempoolConfig, ConfigError> {
        let default = MempoolConfig::default();
        Ok(MempoolConfig {
            max_transactions: self.number(
                "mempool.max_transactions",
                file.max_transactions,
                default.max_transactions,
                1..=10_000_000,
            )?,
            max_bytes: self.number(
                "mempool.max_bytes",
                file.max_bytes,
                default.max_bytes,
                1_024..=16 << 30,
            )?,
            max_per_sender: self.number(
                "mempool.max_per_sender",
                file.max_per_sender,
                default.max_per_sender,
                1..=1_000_000,
            )?,
            stranded_lasts: self.span(
                "mempool.stranded_lasts",
                file.stranded_lasts,
                default.stranded_lasts,
                Duration::from_secs(1)..=Duration::from_secs(7 * 24 * 3_600),
            )?,
        })
    }

    fn consensus(&self, file: &file::Consensus) -> Result<ConsensusConfig, ConfigError> {
        let default = ConsensusConfig::default();
        let timing = default.timing;
        let usual = Duration::from_millis(10)..=Duration::from_secs(600);
        let leader_timeout = self.span(
            "consensus.leader_timeout",
            file.leader_timeout,
            timing.leader_timeout,
            usual.clone(),
        )?;
        let view_timeout = self.span(
            "consensus.view_timeout",
            file.view_timeout,
            timing.view_timeout.max(leader_timeout),
            usual.clone(),
        )?;
        // A view lasts at least as long as one waits for its proposal.
        self.at_least(
            ("consensus.view_timeout", view_timeout),
            ("consensus.leader_timeout", leader_timeout),
        )?;
        let max_timeout = self.span(
            "consensus.max_timeout",
            file.max_timeout,
            timing.max_timeout.max(view_timeout),
            *usual.start()..=Duration::from_secs(3_600),
        )?;
        self.at_least(
            ("consensus.max_timeout", max_timeout),
            ("consensus.view_timeout", view_timeout),
        )?;
        Ok(ConsensusConfig {
            timing: quorate_consensus::Timing {
                leader_timeout,
                view_timeout,
                max_timeout,
                resend_interval: self.span(
                    "consensus.resend_interval",
                    file.resend_interval,
                    timing.resend_interval,
                    usual.clone(),
                )?,
                fetch_timeout: self.span(
                    "consensus.fetch_timeout",
                    file.fetch_timeout,
                    timing.fetch_timeout,
                    usual,
                )?,
                idle_interval: self.span(
                    "consensus.idle_interval",
                    file.idle_interval,
                    timing.idle_interval,
                    Duration::ZERO..=MAX_IDLE_INTERVAL,
                )?,
            },
            finalize_linger: self.span(
                "consensus.finalize_linger",
                file.finalize_linger,
                default.finalize_linger,
                Duration::ZERO..=Duration::from_millis(100),
            )?,
            min_block_interval: self.span(
                "consensus.min_block_interval",
                file.min_block_interval,
                default.min_block_interval,
                Duration::ZERO..=Duration::from_secs(60),
            )?,
            penalty_lasts: self.span(
                "consensus.penalty_lasts",
                file.penalty_lasts,
                default.penalty_lasts,
                Duration::from_secs(60)..=Duration::from_secs(8_760 * 3_600),
            )?,
            checking: default.checking,
        })
    }

    fn storage(&self, file: &file::Storage) -> Result<StorageConfig, ConfigError> {
        let blocks = file.retention_blocks.unwrap_or(0);
        if !(blocks == 0 || blocks >= MIN_RETENTION_BLOCKS) {
            let expected = format!("0, or {MIN_RETENTION_BLOCKS} at least");
            return Err(self.value("storage.retention_blocks", blocks, expected));
        }
        let time = file.retention_time.filter(|time| !time.is_zero());
        if let Some(time) = time {
            let range = MIN_RETENTION_TIME..=MAX_RETENTION_TIME;
            self.span("storage.retention_time", Some(time), time, range)?;
        }
        let retention = (blocks > 0 || time.is_some()).then(|| Retention {
            blocks: blocks.max(MIN_RETENTION_BLOCKS),
            time,
        });
        Ok(StorageConfig { retention })
    }

    fn log(&self, file: file::Log) -> Result<LogConfig, ConfigError> {
        let default = LogConfig::default();
        let level = file.level.unwrap_or(default.level);
        if let Err(expected) = check_log_level(&level) {
            return Err(self.value("log.level", format!("{level:?}"), expected));
        }
        Ok(LogConfig {
            level,
            format: file.format.unwrap_or(default.format),
        })
    }
}

/// Whether the text is a level or directives.
///
/// # Errors
///
/// If not; what may stand there.
pub fn check_log_level(level: &str) -> Result<(), String> {
    let expected = "error, warn, info, debug, trace or off, or directives such as \
                    \"info,quorate_p2p=debug\"";
    // An unknown word alone would be taken for the name of a module, and switch logging off.
    let known = ["error", "warn", "info", "debug", "trace", "off"];
    let word = |part: &str| part.contains('=') || known.contains(&part.trim());
    if level.split(',').all(word) && tracing_subscriber::EnvFilter::try_new(level).is_ok() {
        Ok(())
    } else {
        Err(expected.into())
    }
}
