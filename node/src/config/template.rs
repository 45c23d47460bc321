//! Generates a new `validator.toml` or `follower.toml`, with comments that explain every key.

use super::{
    BUNDLE_BYTES, LogConfig, RpcConfig, SNAPSHOT_INTERVAL, format_duration, peers::BYTES_PER_MBIT,
};
use quorate_crypto::Identity;
use quorate_machine::{machine::ConsensusConfig, mempool::MempoolLimits, serve::Upload};
use quorate_p2p::PeerAddress;
use std::{fmt::Write as _, net::SocketAddr, path::Path, time::Duration};

/// Whom a new configuration file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// A validator of the genesis file.
    Validator,
    /// A validator that joins a chain with a registry.
    Newcomer,
    Follower,
}

/// The values of a new configuration file. All other keys are written as comments with their
/// defaults.
#[derive(Debug, Clone, Copy)]
pub struct NewConfig<'a> {
    /// The path of the genesis file as written to the configuration.
    pub genesis: &'a Path,
    /// The listen address for the other validators.
    pub p2p_listen: SocketAddr,
    /// Whether all validators are on one machine.
    pub local: bool,
    /// The listen address of the HTTP API.
    pub rpc_listen: SocketAddr,
    /// The listen address for metrics and other operator-only parts of the API; `None` if they are
    /// served over the control socket only.
    pub admin_listen: Option<SocketAddr>,
    /// A validator's: all validators and their addresses, perhaps with this one. A newcomer's: some
    /// of them. A follower's: the nodes that it follows.
    pub peers: &'a [(Identity, PeerAddress)],
    /// The nodes that follow this one.
    pub followers: &'a [(Identity, PeerAddress)],
    pub own: Identity,
    pub kind: NodeKind,
    /// How many final blocks to keep; `None` keeps all.
    pub retention_blocks: Option<u64>,
    /// How long to keep blocks.
    pub retention_time: Option<Duration>,
    /// The minimum time between blocks.
    pub min_block_interval: Duration,
    /// The time between blocks while there are no transactions.
    pub idle_interval: Duration,
    /// On a chain whose registry is outside of it: the file that lists the validators.
    pub registry_file: Option<&'a Path>,
}

impl NewConfig<'_> {
    /// Returns the file's text. The keys are `identity.key` and `vote.key` beside the file, and the
    /// data directory is `data`.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        self.write(&mut text)
            .expect("writing to a string never fails");
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        self.write_files(text)?;
        self.write_links(text)?;
        self.write_rpc(text)?;
        self.write_consensus(text)?;
        self.write_storage(text)?;
        self.write_registry(text)
    }

    fn write_registry(&self, text: &mut String) -> std::fmt::Result {
        let Some(file) = self.registry_file else {
            return Ok(());
        };
        let file = toml_string(&file.display().to_string());
        write!(
            text,
            r##"
[registry]
# The list of validators, TOML or JSON (if its name ends with .json). This validator reports to the chain where
# it differs from the chain's; what a quorum reports takes effect.
file = {file}
# How often it is read, 100ms to 1h.
# interval = "1s"
# Instead of a file, HTTP servers that answer with JSON: 1 to 16 URLs, of which `agree` (more than half) must say
# the same; how often they are asked, and how long an answer may take, 100ms to 1m.
# [registry.http]
# urls = ["https://registry.example.org/validators.json"]
# agree = 1
# interval = "5s"
# timeout = "2s"
# Or a staking contract on an EVM chain (deploy/staking), read at final blocks through 1 to 16 endpoints of its JSON-RPC:
# the contract's address, the chain's number, how many endpoints must say the same (more than half), how often they are
# asked, 100ms to 5m, and how long they may take, 200ms to 1m. Of these URLs only the host is shown to others.
# [registry.evm]
# urls = ["https://ethereum.example.org"]
# contract = "0x0000000000000000000000000000000000000000"
# chain_id = 1
# agree = 1
# interval = "12s"
# timeout = "2s"
"##
        )
    }

    fn write_files(&self, text: &mut String) -> std::fmt::Result {
        let genesis = toml_string(&self.genesis.display().to_string());
        let own = self.own;
        let (what, command) = match self.kind {
            NodeKind::Follower => ("follower", "follow --config follower.toml"),
            NodeKind::Validator | NodeKind::Newcomer => {
                ("validator", "run --config validator.toml")
            }
        };
        write!(
            text,
            r##"# A Quorate {what}. Start it with:  quorate {command}
#
# Paths are relative to this file. Durations are text with a unit (us, ms, s, m, h, d). A line that
# begins with "# key =" shows that key's default.

# The chain: all its nodes have the same genesis file.
genesis = {genesis}
"##
        )?;
        match self.kind {
            NodeKind::Follower => write!(
                text,
                r##"# Who this node is ({own}). Mode 0600.
identity_key = "identity.key"
# The database. It may be deleted: the node then downloads the chain again.
data_dir = "data"

"##
            ),
            NodeKind::Validator | NodeKind::Newcomer => write!(
                text,
                r##"# Who this validator is ({own}), and the key with which it votes. Both of mode 0600.
identity_key = "identity.key"
vote_key = "vote.key"
# The vote journal and the database. Never restore it from a copy: a validator that forgets what
# it voted for may vote twice.
data_dir = "data"

"##
            ),
        }
    }

    fn write_links(&self, text: &mut String) -> std::fmt::Result {
        let listen = self.p2p_listen;
        let distance = if self.local { "local" } else { "wide" };
        let upload_mbit = Upload::default().bytes_per_second / BYTES_PER_MBIT;
        write!(
            text,
            r##"[p2p]
# Where other nodes connect.
listen = "{listen}"
# "local": all on one machine or in one rack. "wide" (the default): anything else.
timing = "{distance}"
# What nodes that fetch blocks or a snapshot from this one get, all together, in megabits per second,
# 8 to 100000. Votes and proposals go first, whatever this is.
# upload_mbit = {upload_mbit}

"##
        )?;
        text.push_str(match self.kind {
            NodeKind::Follower => {
                r##"# The nodes that this one follows, validators or followers, one at least, and where to reach them: an IP
# address or a host name, and a port. Each of them must list this node under [[p2p.followers]].
# Changed addresses are taken over upon SIGHUP.
"##
            }
            NodeKind::Newcomer => {
                r##"# Validators of the chain that this one asks until the registry tells where all are, one at least, and
# where to reach them: an IP address or a host name, and a port. Changed addresses are taken over upon
# SIGHUP; another peer needs a restart.
"##
            }
            NodeKind::Validator => {
                r##"# Every other validator of the genesis file, and where to reach it: an IP address or a host name, and a
# port. Connections are accepted from these IP addresses, and those of these names, only. Changes
# are taken over upon SIGHUP.
"##
            }
        });
        let others = self.peers.iter();
        for (identity, address) in others.filter(|(identity, _)| *identity != self.own) {
            write!(
                text,
                "[[p2p.peers]]\nidentity = \"{identity}\"\naddress = \"{address}\"\n\n"
            )?;
        }
        text.push_str(
            r##"# Nodes without a vote that follow this one (`quorate follow`), at most 64, like this:
#   [[p2p.followers]]
#   identity = "64 hexadecimal digits"
#   address = "follower.example.org:26600"
"##,
        );
        for (identity, address) in self.followers {
            write!(
                text,
                "[[p2p.followers]]\nidentity = \"{identity}\"\naddress = \"{address}\"\n"
            )?;
        }
        text.push('\n');
        Ok(())
    }

    fn write_rpc(&self, text: &mut String) -> std::fmt::Result {
        let Self {
            rpc_listen,
            admin_listen,
            ..
        } = *self;
        let rpc = RpcConfig::new(rpc_listen);
        let mempool = MempoolLimits::default();
        let admin = match admin_listen {
            Some(admin_listen) => format!(
                r##"[admin]
# Metrics, the peers' addresses and penalties, and a page of curves: for the operator, never for the
# public. Without this section they are served over the control socket only.
listen = "{admin_listen}"

"##
            ),
            None => String::new(),
        };
        let [request, stranded] =
            [rpc.request_timeout, mempool.stranded_lasts].map(format_duration);
        write!(
            text,
            r##"[rpc]
# HTTP for clients, under /v1. It has no authentication. A client is an IPv4 address or an IPv6 /64.
listen = "{rpc_listen}"
# Connections at once, 1 to 65536. If all are taken, the client that has most loses one.
# max_connections = {max_connections}
# Connections of one client, 1 to max_connections.
# max_connections_per_client = {max_connections_per_client}
# Requests of one client that wait for something to happen, 1 to 256.
# max_waiting_per_client = {max_waiting_per_client}
# Requests and answers in memory, 33554432 at least; one client may have a quarter of it.
# max_in_flight_bytes = {max_in_flight_bytes}
# How long a request may take, 100ms to 5m.
# request_timeout = "{request}"
# Names under which it is asked, beside addresses and localhost: ["node.example.org"].
# hosts = []
# Origins whose web pages may read its answers: ["https://wallet.example.org"], or ["*"].
# cors_origins = []
# Reverse proxies whose X-Forwarded-For tells who the client is: ["127.0.0.1"].
# trusted_proxies = []

{admin}# Transactions that wait for a block.
[mempool]
# 1 to 10000000.
# max_transactions = {max_transactions}
# Of their encodings; 1024 to 17179869184.
# max_bytes = {max_bytes}
# 1 to 1000000.
# max_per_sender = {max_per_sender}
# A transfer that waits for a nonce before it, or for money, is dropped after this; 1s to 168h.
# stranded_lasts = "{stranded}"

"##,
            max_connections = rpc.max_connections,
            max_connections_per_client = rpc.max_connections_per_client,
            max_waiting_per_client = rpc.max_waiting_per_client,
            max_in_flight_bytes = rpc.max_in_flight_bytes,
            max_transactions = mempool.max_transactions,
            max_bytes = mempool.max_bytes,
            max_per_sender = mempool.max_per_sender,
        )
    }

    fn write_consensus(&self, text: &mut String) -> std::fmt::Result {
        // A key with its default value is written as a comment.
        let mark = |value: Duration, default: Duration| if value == default { "# " } else { "" };
        let default = ConsensusConfig::default();
        let timing = default.timing;
        let interval = format_duration(self.min_block_interval);
        let interval_mark = mark(self.min_block_interval, default.min_block_interval);
        let idle = format_duration(self.idle_interval);
        let idle_mark = mark(self.idle_interval, timing.idle_interval);
        if self.kind == NodeKind::Follower {
            return write!(
                text,
                r##"# What is usual on this chain, as in the validators' configuration: a follower that has had no block
# for five times as long says so.
[consensus]
{interval_mark}min_block_interval = "{interval}"
{idle_mark}idle_interval = "{idle}"

"##
            );
        }
        let spans = [
            timing.leader_timeout,
            timing.view_timeout,
            timing.max_timeout,
            timing.resend_interval,
            timing.fetch_timeout,
            default.finalize_linger,
            default.penalty_lasts,
        ];
        let [leader, view, max, resend, fetch, linger, penalty] = spans.map(format_duration);
        write!(
            text,
            r##"[consensus]
# From entering a view until its proposal must be there, 10ms to 10m, while it is not known how long
# proposals take; from then on twice what they take, be it more or less.
# leader_timeout = "{leader}"
# From entering a view until it must be notarized, likewise; at least leader_timeout.
# view_timeout = "{view}"
# What both grow to at most, doubling with each view in a row that brings nothing; up to 1h.
# max_timeout = "{max}"
# Between repetitions of votes while a view does not move, 10ms to 10m.
# resend_interval = "{resend}"
# From a request to one peer until the next one is asked, 10ms to 10m.
# fetch_timeout = "{fetch}"
# How long a finalize vote waits to travel with the next view's notarize vote, 0ms to 100ms. 1ms
# saves a tenth of the processor's time where validators are less than that apart.
# finalize_linger = "{linger}"
# The least time from one block to the next, 0ms to 1m; 0ms for as fast as it goes.
{interval_mark}min_block_interval = "{interval}"
# The time from one block to the next while there is nothing to put into one, 0ms to 1m; a transaction
# ends it at once. 0ms for no pause. The same for all validators: the turns of a leader that pauses
# longer than others expect are skipped.
{idle_mark}idle_interval = "{idle}"
# How long a validator stays blocked that was caught with an invalid signature, 1m to 8760h. Who
# has provably voted twice stays blocked until `quorate peers unblock`.
# penalty_lasts = "{penalty}"

"##
        )
    }

    fn write_storage(&self, text: &mut String) -> std::fmt::Result {
        let retention = match self.retention_blocks {
            Some(blocks) => format!("retention_blocks = {blocks}"),
            None => "# retention_blocks = 0".to_owned(),
        };
        let retention_time = match self.retention_time {
            Some(time) => format!("retention_time = \"{}\"", format_duration(time)),
            None => "# retention_time = \"0s\"".to_owned(),
        };
        let log = LogConfig::default();
        write!(
            text,
            r##"[storage]
# Final blocks to keep, 10000 at least; older ones are forgotten as new ones come. 0 for all. For a
# validator that is catching up, up to as many again are kept.
{retention}
# For how long to keep them (7d), by the blocks' own timestamps, 1m to 100 years; 10000 are kept in any case,
# or retention_blocks if that is more. 0s if no time counts.
{retention_time}
# A snapshot of the state is kept whenever this many blocks have come, 10 to 1000000, for nodes
# that were away longer than blocks are kept. It copies nothing. The same for all validators, so that
# one can be fetched from all of them at once. 0 for none.
# snapshot_interval = {snapshot_interval}
# Bytes of payloads to keep, 1 GiB (1073741824) at least; the oldest are forgotten beyond that. Only on a chain
# whose genesis file has `application` order-only.
# bundle_bytes = {bundle_bytes}

[log]
# error, warn, info, debug, trace or off, or directives such as "info,quorate_p2p=debug".
# Changes are taken over upon SIGHUP.
# level = "{level}"
# "text" for people, "json" for programs.
# format = "{format}"
"##,
            snapshot_interval = SNAPSHOT_INTERVAL,
            bundle_bytes = BUNDLE_BYTES,
            level = log.level,
            format = log.format,
        )
    }
}

/// Returns a TOML string that parses back to `text`, whatever it contains.
fn toml_string(text: &str) -> String {
    toml::Value::String(text.into()).to_string()
}
