//! Rereading the configuration on `SIGHUP` and `quorate reload`, and applying everything that can
//! change without a restart.
//!
//! A configuration is applied as a whole or not at all. Two keys can be applied; changes of all
//! others are reported by name. Key files and the genesis file are not reread: that would take a
//! passphrase, and nobody is there to enter it.

use crate::config::{LogConfig, P2pConfig, Reloader};
use anyhow::Context as _;
use quorate_api::{MovedPeerJson, ReloadedJson};
use quorate_p2p::Links;
use std::sync::Arc;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::{mpsc, oneshot},
};
use tracing::{error, info, warn};
use tracing_subscriber::EnvFilter;

/// Changes the log level at run time.
pub struct LogLevel {
    set: Box<dyn Fn(EnvFilter) -> anyhow::Result<()> + Send + Sync>,
    /// Whether the command line overrides the configured level.
    pub(crate) fixed: bool,
}

impl LogLevel {
    /// Starts logging to standard error.
    ///
    /// # Errors
    ///
    /// If the level is invalid.
    pub fn start(config: &LogConfig) -> anyhow::Result<Self> {
        let filter = EnvFilter::try_new(&config.level).context("log level")?;
        let log = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr);
        let set: Box<dyn Fn(EnvFilter) -> anyhow::Result<()> + Send + Sync> = match config.format {
            crate::config::LogFormat::Json => {
                let log = log.json().with_filter_reloading();
                let handle = log.reload_handle();
                log.init();
                Box::new(move |filter| Ok(handle.reload(filter)?))
            }
            crate::config::LogFormat::Text => {
                let log = log.with_ansi(false).with_filter_reloading();
                let handle = log.reload_handle();
                log.init();
                Box::new(move |filter| Ok(handle.reload(filter)?))
            }
        };
        Ok(Self { set, fixed: false })
    }

    fn change(&self, level: &str) -> anyhow::Result<()> {
        anyhow::ensure!(
            !self.fixed,
            "--log-level on the command line goes before it"
        );
        (self.set)(EnvFilter::try_new(level).context("log level")?)
    }
}

/// Keeps `SIGHUP` from ending the process, which is its default effect until a handler is
/// installed. Signals that arrive before `hangups` is called again are lost.
///
/// # Errors
///
/// If the system refuses.
pub fn survive_hangups() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .context("cannot start a runtime")?;
    let _in_it = runtime.enter();
    // The handler stays installed after the runtime and its receiver are dropped.
    hangups().map(drop)
}

/// Returns a stream of all `SIGHUP` signals from now on.
pub(crate) fn hangups() -> anyhow::Result<Signal> {
    signal(SignalKind::hangup()).context("cannot watch for SIGHUP")
}

/// Channel for reload requests; each request contains a channel for its result.
pub(crate) type Reloads = mpsc::Sender<oneshot::Sender<Result<ReloadedJson, String>>>;

/// Rereads the file on every signal and request, until dropped.
pub(crate) async fn watch(
    mut signals: Signal,
    mut asked: mpsc::Receiver<oneshot::Sender<Result<ReloadedJson, String>>>,
    mut file: Reloader,
    links: Links,
    log_level: Arc<LogLevel>,
) {
    loop {
        tokio::select! {
            Some(()) = signals.recv() => drop(reload(&mut file, &links, &log_level)),
            Some(reply) = asked.recv() => {
                // The requester may be gone.
                let _ = reply.send(reload(&mut file, &links, &log_level));
            }
            else => return,
        }
    }
}

/// Rereads the file, applies what can be applied, and logs the result. The error is returned for
/// the requester.
fn reload(
    file: &mut Reloader,
    links: &Links,
    log_level: &LogLevel,
) -> Result<ReloadedJson, String> {
    let path = file.path().display().to_string();
    let changes = file.reload().map_err(|error| {
        error!(
            file = path,
            %error,
            "the configuration was to be read again and is refused; the old one stays in use. Mend the file, \
             check it with `quorate config check`, and ask again"
        );
        format!("the configuration is refused, and the old one stays in use: {error}")
    })?;
    let mut done = ReloadedJson {
        need_restart: changes.need_restart,
        ..ReloadedJson::default()
    };
    if let Some(p2p) = &changes.p2p {
        done.peers = move_peers(p2p, links);
        if !are_linked(p2p, links) {
            done.need_restart.push("p2p.peers".to_owned());
        }
    }
    if let Some(level) = changes.log_level {
        match log_level.change(&level) {
            Ok(()) => {
                info!(level, "`log.level` has changed");
                done.log_level = Some(level);
            }
            Err(error) => {
                let note = format!("`log.level` stays as it is: {error:#}");
                warn!(level, "{note}");
                done.notes.push(note);
            }
        }
    }
    if !done.need_restart.is_empty() {
        warn!(
            keys = done.need_restart.join(", "),
            "changed in the configuration; restart the node for these to take effect"
        );
    }
    info!(
        file = path,
        moved_peers = done.peers.len(),
        "the configuration was read again"
    );
    Ok(done)
}

/// Whether the links are to exactly these peers. A follower's configuration may name others.
fn are_linked(p2p: &P2pConfig, links: &Links) -> bool {
    let all = p2p.peers.len() + p2p.followers.len();
    let mut peers = p2p.peers.iter();
    all == links.peers().len() && peers.all(|(identity, _)| links.peer(identity).is_some())
}

/// Updates the links of all peers whose address has changed.
fn move_peers(p2p: &P2pConfig, links: &Links) -> Vec<MovedPeerJson> {
    let (mut moved, mut told) = (Vec::new(), Vec::new());
    for (identity, address) in &p2p.peers {
        let Some((before, _)) = links.address(identity) else {
            continue;
        };
        if before != *address {
            info!(
                peer = identity.short(), %before, now = %address,
                "a peer's address has changed"
            );
            told.push(MovedPeerJson {
                identity: *identity,
                before: before.to_string(),
                now: address.to_string(),
            });
            moved.push((*identity, address.clone()));
        }
    }
    links.set_addresses(&moved);
    told
}
