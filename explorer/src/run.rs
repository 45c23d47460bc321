//! Starting and running the explorer.

use crate::{
    api::{self, App, Parts},
    check::Checker,
    follow::Follower,
    hub::Hub,
    index::{Index, IndexError},
    metrics::Metrics,
    observe::{Observer, Opinions, tell_stats},
    task::blocking,
    upstream::{Upstream, UpstreamError},
    verify::Guard,
};
use quorate_http::client::Roots;
use quorate_types::{
    ChainId, Height,
    genesis::{Genesis, GenesisError, Trust},
};
use std::{
    convert::Infallible,
    io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
};
use tokio::{net::TcpListener, task::JoinSet};
use tracing::info;

/// Configuration of the explorer.
#[derive(Clone, Debug)]
pub struct Config {
    pub trust: Trust,
    /// The genesis file, if outcomes are to be checked.
    pub genesis: Option<Genesis>,
    /// The validators' HTTP addresses; at least one.
    pub upstreams: Vec<String>,
    /// Trusted root certificates for validators at `https` addresses.
    pub roots: Roots,
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The folder of the index.
    pub data: PathBuf,
    /// Maximum number of concurrent connections.
    pub max_connections: usize,
    /// Maximum number of concurrent streams.
    pub max_streams: usize,
    /// Host names that it answers to, besides IP addresses and `localhost`.
    pub hosts: Vec<String>,
    /// Origins whose pages may read its answers; `*` for all.
    pub cors_origins: Vec<String>,
    /// Reverse proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<IpAddr>,
}

/// Why the explorer cannot start or has ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The trust file's keys are invalid.
    #[error("the trust file: {0}")]
    Trust(#[from] GenesisError),
    /// The genesis file belongs to another chain.
    #[error(
        "--genesis: this is the genesis file of chain {found}, and the trust file is of chain \
         {expected}"
    )]
    OtherGenesis {
        /// The chain id of the genesis file.
        found: ChainId,
        /// The chain id of the trust file.
        expected: ChainId,
    },
    /// The trust file names another protocol than the genesis file.
    #[error(
        "--trust: the trust file says that the chain's protocol is {trusted}, and the genesis file {found}: it was \
         changed by hand. Take the one that was made with the chain"
    )]
    OtherProtocol {
        /// The genesis file's.
        found: &'static str,
        /// The trust file's.
        trusted: &'static str,
    },
    /// No upstream was given.
    #[error("no validator to read from: give at least one with --upstream URL")]
    NoUpstream,
    /// An upstream's address is invalid.
    #[error("--upstream {url}: {source}")]
    Upstream { url: String, source: UpstreamError },
    /// The index cannot be opened or used.
    #[error(transparent)]
    Index(#[from] IndexError),
    #[error("cannot listen on {listen}: {source}; choose another address with --listen")]
    Listen {
        listen: SocketAddr,
        source: io::Error,
    },
    /// A part of the explorer ended unexpectedly.
    #[error("a part of the explorer has failed: {0}")]
    Part(#[from] tokio::task::JoinError),
    /// The system does not report the listening address.
    #[error("the listener has failed: {0}")]
    Serve(#[from] io::Error),
}

pub struct Explorer {
    config: Config,
    listener: TcpListener,
    guard: Arc<Guard>,
    index: Index,
    upstreams: Vec<Upstream>,
}

impl Explorer {
    /// Opens the index and starts listening.
    pub async fn open(config: Config) -> Result<Self, RunError> {
        let guard = Arc::new(Guard::new(config.trust.clone())?);
        if config.upstreams.is_empty() {
            return Err(RunError::NoUpstream);
        }
        if let Some(genesis) = &config.genesis
            && genesis.chain_id() != config.trust.chain_id
        {
            return Err(RunError::OtherGenesis {
                found: genesis.chain_id(),
                expected: config.trust.chain_id,
            });
        }
        if let Some(genesis) = &config.genesis
            && genesis.protocol != config.trust.protocol
        {
            return Err(RunError::OtherProtocol {
                found: genesis.protocol.name(),
                trusted: config.trust.protocol.name(),
            });
        }
        let upstreams = config
            .upstreams
            .iter()
            .map(|url| {
                Upstream::new(url, &config.roots).map_err(|source| RunError::Upstream {
                    url: url.clone(),
                    source,
                })
            })
            .collect::<Result<_, _>>()?;
        let index = Index::open(&config.data, config.trust.chain_id)?;
        let listen = config.listen;
        let listener =
            quorate_http::listen(listen).map_err(|source| RunError::Listen { listen, source })?;
        Ok(Self {
            config,
            listener,
            guard,
            index,
            upstreams,
        })
    }

    /// The address that it listens on.
    ///
    /// # Errors
    ///
    /// If the system does not report it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Follows the chain and serves clients until `shutdown` resolves.
    ///
    /// # Errors
    ///
    /// If the index fails.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
        let tip = self
            .index
            .extent()
            .map_or(Height(0), |extent| extent.tip.height);
        info!(height = %tip, address = %self.address()?, "the explorer serves");
        let hub = Arc::new(Hub::new(tip));
        let opinions = Arc::new(Opinions::default());
        let parts = Parts {
            guard: self.guard.clone(),
            index: self.index.clone(),
            hub: hub.clone(),
            opinions: opinions.clone(),
            upstreams: self.upstreams.clone(),
            checks: Arc::default(),
            metrics: Arc::new(Metrics::new()),
        };
        let checks = parts.checks.clone();
        let app = App::new(parts, &self.config);
        // Each part runs forever; the first that ends stops the explorer.
        let mut parts: JoinSet<Result<Infallible, IndexError>> = JoinSet::new();
        let observer = Arc::new(Observer::new(
            self.guard.clone(),
            self.index.clone(),
            hub.clone(),
            opinions,
        ));
        for upstream in &self.upstreams {
            parts.spawn(observer.clone().poll(upstream.clone()));
        }
        parts.spawn(observer.follow_certificates(self.upstreams.clone()));
        let telling = hub.clone();
        parts.spawn(async move { Ok(tell_stats(telling).await) });
        if let Some(genesis) = self.config.genesis.clone() {
            let (guard, index) = (self.guard.clone(), self.index.clone());
            let checker = blocking(move || Checker::open(guard, index, &genesis, checks)).await?;
            parts.spawn(checker.run(hub.clone()));
        }
        let follower = Follower::new(self.guard, self.index, hub, self.upstreams);
        parts.spawn(follower.run());
        let serving = api::serve(app, &self.config, self.listener, shutdown);
        tokio::select! {
            () = serving => Ok(()),
            ended = parts.join_next() => match ended {
                Some(ended) => match ended? {
                    Ok(never) => match never {},
                    Err(error) => Err(error.into()),
                },
                None => Ok(()),
            },
        }
    }
}
