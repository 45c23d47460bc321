//! `quorate explorer`

use super::{
    block::load_trust_file,
    output::{print_fields, print_json},
    rpc::{Believed, DEFAULT_RPC, block_on},
};
use crate::{
    config::{LogConfig, LogFormat, check_log_level},
    descriptors,
    node::{lock_directory, stop_signal},
    reload::LogLevel,
};
use anyhow::Context as _;
use clap::{Args, Subcommand};
use quorate_explorer::{Config, Explorer as Service, client::ExplorerClient, index::Index};
use quorate_files::{make_private_folder, read_text};
use quorate_types::genesis::Genesis;
use std::{
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

/// The explorer's default listen address.
pub(super) const DEFAULT_LISTEN: &str = "127.0.0.1:26680";

/// Size limit of a genesis file: enough for some millions of accounts.
const MAX_GENESIS_BYTES: u64 = 1 << 30;

/// How long shutdown waits for work on the index that is already running.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// Serve a chain's verified blocks: web page, HTTP API, event streams
///
/// The explorer follows validators over their HTTP API and trusts none of them: it verifies every
/// block's finality with the trust file before it shows any of it. If a validator sends something
/// invalid or falls behind, the explorer switches to another one, so give several. You can delete
/// its index at any time; it is rebuilt from the blocks that the validators keep.
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:
  quorate localnet                            starts one, too, and prints its address
  quorate explorer --trust localnet/trust.json --upstream http://127.0.0.1:26601 \\
                   --upstream http://127.0.0.1:26603
  quorate explorer status --explorer http://127.0.0.1:26680"
)]
pub(super) struct Explorer {
    #[command(subcommand)]
    command: Option<Command>,
    /// The chain's trust file
    #[arg(long, value_name = "FILE", required = true)]
    trust: Option<PathBuf>,
    /// The chain's genesis file; with it, the explorer executes the blocks and checks the outcomes
    /// of transactions
    #[arg(long, value_name = "FILE")]
    genesis: Option<PathBuf>,
    /// A validator's HTTP address; can be repeated
    #[arg(long = "upstream", value_name = "URL", default_value = DEFAULT_RPC)]
    upstreams: Vec<String>,
    #[command(flatten)]
    believed: Believed,
    /// The address to serve on
    #[arg(long, value_name = "ADDRESS", default_value = DEFAULT_LISTEN)]
    listen: SocketAddr,
    /// The folder of the index
    #[arg(long, value_name = "DIR", default_value = "explorer-data")]
    data: PathBuf,
    /// Most simultaneous connections; one client (an IPv4 address or an IPv6 /64) can hold a
    /// quarter of them
    #[arg(long, value_name = "N", default_value_t = 4_096,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    max_connections: u32,
    /// Most simultaneous streams; one client can hold a quarter of them
    #[arg(long, value_name = "N", default_value_t = 2_048,
          value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    max_streams: u32,
    /// A host name of this explorer, in addition to IP addresses and localhost; can be repeated
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// An origin whose web pages may read the responses (CORS), or "*" for all; can be repeated
    #[arg(long = "cors-origin", value_name = "ORIGIN")]
    cors_origins: Vec<String>,
    /// The IP address of a reverse proxy whose X-Forwarded-For header is trusted; can be repeated
    #[arg(long = "trusted-proxy", value_name = "IP")]
    trusted_proxies: Vec<IpAddr>,
    /// What to log: a level (error, warn, info, debug, trace) or tracing directives
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: String,
    /// Log format: text for people, json for programs
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    log_format: String,
    /// Stop gracefully when standard input closes; for programs that start explorers
    #[arg(long)]
    stop_with_stdin: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Show an explorer's health: newest block, lag, the validators that it reads from
    Status(Status),
    /// Print a hash of a stopped explorer's index, to compare it with another explorer's
    Digest(Digest),
    /// Print the OpenAPI document of the HTTP API
    Openapi,
}

/// Show an explorer's health: newest block, lag, the validators that it reads from
#[derive(Args)]
struct Status {
    /// The explorer's address
    #[arg(long, value_name = "URL", default_value_t = format!("http://{DEFAULT_LISTEN}"))]
    explorer: String,
    #[command(flatten)]
    believed: Believed,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Print a hash of a stopped explorer's index, to compare it with another explorer's
///
/// The hash covers everything that is determined by the chain's blocks. Observations, such as
/// nullifications, can differ between explorers and are left out.
#[derive(Args)]
struct Digest {
    /// The chain's trust file
    #[arg(long, value_name = "FILE")]
    trust: PathBuf,
    /// The folder of the index
    #[arg(long, value_name = "DIR", default_value = "explorer-data")]
    data: PathBuf,
}

impl Explorer {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self.command {
            Some(Command::Status(status)) => block_on(status.run()),
            Some(Command::Digest(digest)) => digest.run(),
            Some(Command::Openapi) => {
                super::output::print_lines(&[quorate_explorer::api::openapi_json()])
            }
            None => self.serve(),
        }
    }

    fn serve(self) -> anyhow::Result<()> {
        check_log_level(&self.log_level)
            .map_err(|reason| anyhow::anyhow!("--log-level {}: {reason}", self.log_level))?;
        LogLevel::start(&LogConfig {
            format: match self.log_format.as_str() {
                "json" => LogFormat::Json,
                _ => LogFormat::Text,
            },
            level: self.log_level,
        })?;
        let trust = self.trust.context("--trust FILE is missing")?;
        let trust = load_trust_file(&trust)?;
        make_private_folder(&self.data)
            .with_context(|| format!("cannot create {}", self.data.display()))?;
        let lock = lock_directory(&self.data)?;
        let genesis = self.genesis.as_deref().map(load_genesis_file).transpose()?;
        let config = Config {
            trust,
            genesis,
            upstreams: self.upstreams,
            listen: self.listen,
            data: self.data.join("index"),
            max_connections: self.max_connections as usize,
            max_streams: self.max_streams as usize,
            roots: self.believed.roots()?,
            hosts: self.hosts,
            cors_origins: self.cors_origins,
            trusted_proxies: self.trusted_proxies,
        };
        descriptors::raise_for(u64::from(self.max_connections) + u64::from(self.max_streams));
        let stop_with_stdin = self.stop_with_stdin;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        runtime.block_on(async {
            let service = Service::open(config).await?;
            println!("http://{}", service.address()?);
            let stopped = async {
                if let Err(error) = stop_signal(stop_with_stdin).await {
                    tracing::error!("stopping: {error:#}");
                }
            };
            service.run(stopped).await?;
            anyhow::Ok(())
        })?;
        // Close the index before the process exits: RocksDB's threads abort the process if they
        // still run while its global state is destroyed.
        runtime.shutdown_timeout(CLOSE_LIMIT);
        drop(lock);
        Ok(())
    }
}

fn load_genesis_file(path: &Path) -> anyhow::Result<Genesis> {
    let text = read_text(path, MAX_GENESIS_BYTES)?;
    Genesis::from_json(&text).with_context(|| format!("--genesis {}", path.display()))
}

impl Status {
    async fn run(self) -> anyhow::Result<()> {
        let status = ExplorerClient::with_roots(&self.explorer, &self.believed.roots()?)?
            .status()
            .await?;
        if self.json {
            return print_json(&status);
        }
        let tip = match &status.tip {
            Some(tip) => format!("{} (view {}.{})", tip.height, tip.epoch, tip.view),
            None => "none yet".to_owned(),
        };
        let age = status.tip.as_ref().map(|tip| format!("{} ms", tip.age_ms));
        let mut fields = vec![
            ("chain", status.chain.name.clone()),
            ("newest block", tip),
            ("age", age.unwrap_or_else(|| "-".to_owned())),
            (
                "oldest block",
                status
                    .oldest
                    .map_or("-".to_owned(), |oldest| oldest.to_string()),
            ),
            (
                "behind by",
                match status.upstreams.iter().any(|one| one.state == "following") {
                    true => format!("{} blocks", status.lag),
                    false => "unknown: no validator can be followed".to_owned(),
                },
            ),
            ("streams", status.streams.to_string()),
        ];
        let outcomes = &status.outcomes;
        fields.push((
            "outcomes",
            match outcomes.state.as_str() {
                "executed" => format!("checked up to block {}", outcomes.checked_to),
                "diverged" => format!(
                    "NOT checked beyond block {}: {}",
                    outcomes.checked_to,
                    match outcomes.diverged_by.as_deref() {
                        Some("validators") => "handovers prove other validators",
                        _ => "a final header names another state",
                    }
                ),
                _ => "told by validators; give --genesis FILE to check them".to_owned(),
            },
        ));
        for upstream in &status.upstreams {
            let error = upstream.error.as_ref();
            let error = error.map_or(String::new(), |error| format!(": {error}"));
            fields.push((
                "reads from",
                format!("{} {}{error}", upstream.url, upstream.state),
            ));
        }
        print_fields(&fields)
    }
}

impl Digest {
    fn run(self) -> anyhow::Result<()> {
        let trust = load_trust_file(&self.trust)?;
        anyhow::ensure!(
            self.data.join("index").is_dir(),
            "{} holds no index; name the folder with --data",
            self.data.display()
        );
        let _lock = lock_directory(&self.data)?;
        let index = Index::open(&self.data.join("index"), trust.chain_id)?;
        let bound = |height: Option<u64>| height.map_or("-".to_owned(), |h| h.to_string());
        let extent = index.extent();
        print_fields(&[
            ("digest", index.digest()?.to_string()),
            ("oldest block", bound(extent.map(|extent| extent.oldest.0))),
            (
                "newest block",
                bound(extent.map(|extent| extent.tip.height.0)),
            ),
        ])
    }
}
