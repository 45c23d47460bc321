//! The structure of `validator.toml`, before any value is checked.

use super::duration::{self, parse_duration};
use quorate_crypto::Identity;
use serde::{Deserialize, Deserializer, de};
use std::{fmt, net::SocketAddr, path::PathBuf, time::Duration};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) genesis: PathBuf,
    pub(super) identity_key: PathBuf,
    pub(super) vote_key: Option<PathBuf>,
    pub(super) data_dir: PathBuf,
    pub(super) p2p: P2p,
    pub(super) rpc: Rpc,
    pub(super) admin: Option<Admin>,
    #[serde(default)]
    pub(super) mempool: Mempool,
    #[serde(default)]
    pub(super) consensus: Consensus,
    #[serde(default)]
    pub(super) storage: Storage,
    #[serde(default)]
    pub(super) log: Log,
    pub(super) registry: Option<Registry>,
}

/// `[registry]`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Registry {
    pub(super) file: Option<PathBuf>,
    #[serde(default, deserialize_with = "span")]
    pub(super) interval: Option<Duration>,
    pub(super) http: Option<RegistryHttp>,
    pub(super) evm: Option<RegistryEvm>,
}

/// `[registry.http]`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RegistryHttp {
    pub(super) urls: Vec<String>,
    pub(super) agree: Option<u64>,
    #[serde(default, deserialize_with = "span")]
    pub(super) interval: Option<Duration>,
    #[serde(default, deserialize_with = "span")]
    pub(super) timeout: Option<Duration>,
}

/// `[registry.evm]`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RegistryEvm {
    pub(super) urls: Vec<String>,
    pub(super) contract: String,
    pub(super) chain_id: u64,
    pub(super) agree: Option<u64>,
    #[serde(default, deserialize_with = "span")]
    pub(super) interval: Option<Duration>,
    #[serde(default, deserialize_with = "span")]
    pub(super) timeout: Option<Duration>,
}

/// `[p2p]`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct P2p {
    #[serde(deserialize_with = "address")]
    pub(super) listen: SocketAddr,
    pub(super) timing: Option<Timing>,
    pub(super) upload_mbit: Option<u64>,
    #[serde(default)]
    pub(super) peers: Vec<Peer>,
    #[serde(default)]
    pub(super) followers: Vec<Peer>,
}

/// `p2p.timing`
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Timing {
    Local,
    Wide,
}

/// `[[p2p.peers]]` and `[[p2p.followers]]`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Peer {
    pub(super) identity: Identity,
    /// Deserialized as text, so that an error can name the validator.
    pub(super) address: String,
}

/// `[rpc]`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rpc {
    #[serde(deserialize_with = "address")]
    pub(super) listen: SocketAddr,
    pub(super) max_connections: Option<u64>,
    pub(super) max_connections_per_client: Option<u64>,
    pub(super) max_waiting_per_client: Option<u64>,
    pub(super) max_in_flight_bytes: Option<u64>,
    #[serde(default, deserialize_with = "span")]
    pub(super) request_timeout: Option<Duration>,
    #[serde(default)]
    pub(super) hosts: Vec<String>,
    #[serde(default)]
    pub(super) cors_origins: Vec<String>,
    #[serde(default)]
    pub(super) trusted_proxies: Vec<String>,
}

/// `[admin]`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Admin {
    #[serde(deserialize_with = "address")]
    pub(super) listen: SocketAddr,
}

/// `[mempool]`
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mempool {
    pub(super) max_transactions: Option<u64>,
    pub(super) max_bytes: Option<u64>,
    pub(super) max_per_sender: Option<u64>,
    #[serde(default, deserialize_with = "span")]
    pub(super) stranded_lasts: Option<Duration>,
}

/// `[consensus]`
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Consensus {
    #[serde(deserialize_with = "span")]
    pub(super) leader_timeout: Option<Duration>,
    #[serde(deserialize_with = "span")]
    pub(super) view_timeout: Option<Duration>,
    #[serde(deserialize_with = "span")]
    pub(super) max_timeout: Option<Duration>,
    #[serde(deserialize_with = "span")]
    pub(super) resend_interval: Option<Duration>,
    #[serde(deserialize_with = "span")]
    pub(super) fetch_timeout: Option<Duration>,
    #[serde(deserialize_with = "span")]
    pub(super) finalize_linger: Option<Duration>,
    #[serde(deserialize_with = "span")]
    pub(super) min_block_interval: Option<Duration>,
    #[serde(deserialize_with = "span")]
    pub(super) idle_interval: Option<Duration>,
    #[serde(deserialize_with = "span")]
    pub(super) penalty_lasts: Option<Duration>,
}

/// `[storage]`
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Storage {
    pub(super) retention_blocks: Option<u64>,
    #[serde(default, deserialize_with = "span")]
    pub(super) retention_time: Option<Duration>,
    pub(super) snapshot_interval: Option<u64>,
    pub(super) bundle_bytes: Option<u64>,
}

/// `[log]`
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Log {
    pub(super) level: Option<String>,
    pub(super) format: Option<super::LogFormat>,
}

/// Deserializes a value from a string, so that the TOML error points to its line.
struct Text<T> {
    expected: &'static str,
    parse: fn(&str) -> Option<T>,
}

impl<T> de::Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}

fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    deserializer.deserialize_str(Text {
        expected: "an IP address and a port, for instance \"127.0.0.1:26600\" or \"[::1]:26600\"",
        parse: |text| text.parse().ok(),
    })
}

fn span<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = Text {
        expected: duration::EXPECTED,
        parse: |text| parse_duration(text).ok(),
    };
    deserializer.deserialize_str(text).map(Some)
}
