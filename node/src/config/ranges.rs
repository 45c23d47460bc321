//! Checks the values of the file: each value's range, and the constraints between values.

use super::duration::format_duration;
use super::{
    BUNDLE_BYTES, LogConfig, MAX_IDLE_INTERVAL, MAX_RETENTION_TIME, MIN_RETENTION_BLOCKS,
    MIN_RETENTION_TIME, P2pConfig, RpcConfig, SNAPSHOT_INTERVAL, StorageConfig, check_log_level,
    error::ConfigError, file,
};
use crate::keys::KeyFileError;
use quorate_crypto::Identity;
use quorate_machine::{executor::Retention, machine::ConsensusConfig, mempool::MempoolLimits};
use quorate_registry::{Address, SourceConfig};
use quorate_types::{Committee, ValidatorIndex};
use std::{
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
    path::Path,
    time::Duration,
};

/// Most URLs under `[registry.http]` or `[registry.evm]`.
const MAX_REGISTRY_URLS: usize = 16;

/// The checked values of the file, except for keys and chain.
pub(super) struct Values {
    pub(super) p2p: P2pConfig,
    pub(super) rpc: RpcConfig,
    pub(super) admin: Option<SocketAddr>,
    pub(super) mempool: MempoolLimits,
    pub(super) consensus: ConsensusConfig,
    pub(super) storage: StorageConfig,
    pub(super) log: LogConfig,
    pub(super) registry: Option<SourceConfig>,
}

pub(super) fn is_of_a_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || "-._".contains(character)
}

/// Whether two sockets cannot listen on both addresses at the same time.
pub(super) fn clash(one: SocketAddr, other: SocketAddr) -> bool {
    // `[::]` also takes the port on IPv4 addresses.
    let covers = |any: SocketAddr, held: SocketAddr| {
        any.ip().is_unspecified() && (any.is_ipv6() || held.is_ipv4())
    };
    let same = one.ip() == other.ip() || covers(one, other) || covers(other, one);
    one.port() == other.port() && one.port() != 0 && same
}

/// Whether the text is an origin as browsers send it: a scheme, a host name and optionally a port.
pub(super) fn is_origin(text: &str) -> bool {
    let name = ["https://", "http://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme));
    name.is_some_and(|name| {
        !name.is_empty() && name.chars().all(|c| is_of_a_name(c) || "[]:".contains(c))
    })
}

/// How many of some sources must say the same: by default, and from how many to how many. More than half, so that no two
/// lists have so many.
fn agreeing(count: usize) -> (usize, RangeInclusive<u64>) {
    let majority = count / 2 + 1;
    (majority, majority as u64..=count as u64)
}

/// A contract's address. If it has letters of both cases, they are its checksum (EIP-55).
fn parse_contract(text: &str) -> Result<Address, &'static str> {
    let digits = text.strip_prefix("0x").filter(|digits| digits.len() == 40);
    let address = digits.and_then(|digits| digits.parse::<Address>().ok());
    let (Some(digits), Some(address)) = (digits, address) else {
        return Err("0x and the 40 hexadecimal digits of the contract's address");
    };
    let has = |is_such: fn(&u8) -> bool| digits.as_bytes().iter().any(is_such);
    let is_mixed = has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase);
    if is_mixed && address.to_checksum(None) != text {
        return Err(
            "an address whose upper and lower case letters are its checksum: a digit is wrong",
        );
    }
    if address.is_zero() {
        return Err("the address of the staking contract, which is not zero");
    }
    Ok(address)
}

/// Whose configuration it is.
#[derive(Clone, Copy)]
pub(super) enum Role<'a> {
    /// A member of this committee, with its place.
    Validator(&'a Committee, ValidatorIndex),
    /// A validator of a chain whose registry says who is one, with its identity.
    Registered(&'a Committee, Identity),
    /// A node without a vote, with its identity.
    Follower(&'a Committee, Identity),
}

/// Checks values against their ranges. Every error names the file.
pub(super) struct Check<'a> {
    pub(super) path: &'a Path,
}

impl Check<'_> {
    /// Checks everything except keys and chain.
    pub(super) fn values(&self, file: file::File, role: Role<'_>) -> Result<Values, ConfigError> {
        self.listeners(&file)?;
        Ok(Values {
            p2p: self.p2p(file.p2p, role)?,
            rpc: self.rpc(file.rpc)?,
            admin: file.admin.map(|admin| admin.listen),
            mempool: self.mempool(&file.mempool)?,
            consensus: self.consensus(&file.consensus)?,
            storage: self.storage(&file.storage)?,
            log: self.log(file.log)?,
            registry: file.registry.map(|one| self.registry(one)).transpose()?,
        })
    }

    /// Where a registry outside the chain is read.
    fn registry(&self, registry: file::Registry) -> Result<SourceConfig, ConfigError> {
        let of_its_own = registry.http.is_some() || registry.evm.is_some();
        if of_its_own && registry.interval.is_some() {
            let expected =
                "left out beside [registry.http] and [registry.evm], which have their own";
            return Err(self.value("registry.interval", "there", expected.into()));
        }
        match (registry.file, registry.http, registry.evm) {
            (Some(path), None, None) => {
                let directory = self.path.parent().unwrap_or(Path::new(""));
                let interval = registry.interval;
                Ok(SourceConfig::File {
                    path: directory.join(path),
                    interval: self.span_ms(
                        "registry.interval",
                        interval,
                        1_000,
                        100..=3_600_000,
                    )?,
                })
            }
            (None, Some(http), None) => self.registry_http(http),
            (None, None, Some(evm)) => self.registry_evm(evm),
            (None, None, None) => {
                let expected = "a path, for instance \"registry.toml\", unless there is [registry.http] or \
                                [registry.evm]";
                Err(self.value("registry.file", "nothing", expected.into()))
            }
            (Some(_), ..) => {
                let expected =
                    "left out beside [registry.http] and [registry.evm]: one of them is read";
                Err(self.value("registry.file", "there", expected.into()))
            }
            (None, Some(_), Some(_)) => {
                let expected = "left out beside [registry.http]: one of both is read";
                Err(self.value("registry.evm", "there", expected.into()))
            }
        }
    }

    fn registry_http(&self, http: file::RegistryHttp) -> Result<SourceConfig, ConfigError> {
        self.registry_urls("registry.http.urls", &http.urls)?;
        let (majority, range) = agreeing(http.urls.len());
        Ok(SourceConfig::Http {
            agree: self.number("registry.http.agree", http.agree, majority, range)?,
            interval: self.span_ms(
                "registry.http.interval",
                http.interval,
                5_000,
                100..=3_600_000,
            )?,
            timeout: self.span_ms("registry.http.timeout", http.timeout, 2_000, 100..=60_000)?,
            urls: http.urls,
        })
    }

    fn registry_evm(&self, evm: file::RegistryEvm) -> Result<SourceConfig, ConfigError> {
        self.registry_urls("registry.evm.urls", &evm.urls)?;
        let contract = parse_contract(&evm.contract).map_err(|expected| {
            let found = format!("{:?}", evm.contract);
            self.value("registry.evm.contract", found, expected.into())
        })?;
        if evm.chain_id == 0 {
            let expected = "the number of the chain that the contract is on, for instance 1";
            return Err(self.value("registry.evm.chain_id", 0, expected.into()));
        }
        let (majority, range) = agreeing(evm.urls.len());
        Ok(SourceConfig::Evm {
            contract,
            chain_id: evm.chain_id,
            agree: self.number("registry.evm.agree", evm.agree, majority, range)?,
            interval: self.span_ms(
                "registry.evm.interval",
                evm.interval,
                12_000,
                // A list is read twice at one block, and nodes keep the states of some minutes only.
                100..=300_000,
            )?,
            timeout: self.span_ms("registry.evm.timeout", evm.timeout, 2_000, 200..=60_000)?,
            urls: evm.urls,
        })
    }

    fn registry_urls(&self, key: &'static str, urls: &[String]) -> Result<(), ConfigError> {
        let count = urls.len();
        if !(1..=MAX_REGISTRY_URLS).contains(&count) {
            let expected = format!("a list of 1 to {MAX_REGISTRY_URLS}");
            return Err(self.value(key, format!("a list of {count}"), expected));
        }
        for (place, url) in urls.iter().enumerate() {
            let rest = (url.strip_prefix("https://")).or_else(|| url.strip_prefix("http://"));
            // The interface shows the URLs, so they must hold no password.
            let is_fine = rest.is_some_and(|rest| !rest.is_empty() && !rest.contains('@'));
            if !is_fine || urls[..place].contains(url) {
                let expected =
                    "different URLs that begin with http:// or https:// and hold no password";
                return Err(self.value(key, format!("{url:?}"), expected.into()));
            }
        }
        Ok(())
    }

    /// A duration, with its default and range in milliseconds.
    fn span_ms(
        &self,
        key: &'static str,
        value: Option<Duration>,
        default: u64,
        range: RangeInclusive<u64>,
    ) -> Result<Duration, ConfigError> {
        let [default, from, to] =
            [default, *range.start(), *range.end()].map(Duration::from_millis);
        self.span(key, value, default, from..=to)
    }

    pub(super) fn value(
        &self,
        key: &'static str,
        found: impl ToString,
        expected: String,
    ) -> ConfigError {
        ConfigError::Value {
            path: self.path.into(),
            key,
            found: found.to_string(),
            expected,
        }
    }

    pub(super) fn key(&self, key: &'static str, source: KeyFileError) -> ConfigError {
        ConfigError::Key {
            path: self.path.into(),
            key,
            source,
        }
    }

    pub(super) fn number(
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

    /// Refuses a duration that is shorter than another one, and names both.
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

    /// Checks that all listen addresses can be used on one machine.
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

    fn mempool(&self, file: &file::Mempool) -> Result<MempoolLimits, ConfigError> {
        let default = MempoolLimits::default();
        Ok(MempoolLimits {
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
        // A view must last at least as long as the wait for its proposal.
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
            filtering: default.filtering,
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
        let snapshot_interval = match file.snapshot_interval {
            Some(0) => 0,
            other => self.number(
                "storage.snapshot_interval",
                other,
                SNAPSHOT_INTERVAL,
                10..=1_000_000,
            )? as u64,
        };
        Ok(StorageConfig {
            retention,
            snapshot_interval,
            bundle_bytes: self.number(
                "storage.bundle_bytes",
                file.bundle_bytes,
                BUNDLE_BYTES,
                1 << 30..=1 << 50,
            )? as u64,
        })
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
