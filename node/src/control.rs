//! The control socket: operator commands to a running validator, from users who can access its data
//! directory.
//!
//! It serves the HTTP API over a Unix socket of mode 0600 in the data directory, with additional
//! commands: block and unblock validators, reread the configuration, stop. It is not reachable over
//! the network.

mod snapshots;

pub(crate) use snapshots::KeptSnapshots;

use crate::{
    reload::Reloads,
    rpc::{self, Audience, RpcState, error::RpcError},
};
use anyhow::Context;
use axum::{Json, Router, extract::State, routing::post};
use crossbeam_channel::Sender;
use quorate_api::{OrderAnswer, OrderJson, ReloadedJson};
use quorate_consensus::Order;
use quorate_machine::{
    live::LiveStatus,
    replica::{Event, Ordered},
};
use quorate_types::{Identity, ValidatorIndex};
use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, net::UnixListener},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{
    net::UnixListener as AsyncListener,
    sync::{oneshot, watch},
};
use tracing::info;

/// The socket's file name in the data directory.
pub const CONTROL_SOCKET: &str = "control.sock";

/// The longest path of a Unix socket on Linux, in bytes.
const MAX_PATH_BYTES: usize = 107;

/// The longest block that an operator can order, in seconds: ten years.
const MAX_SECONDS: u64 = 10 * 365 * 24 * 3_600;

#[derive(Clone)]
struct Control {
    live: Arc<LiveStatus>,
    /// A follower has none.
    replica: Option<Sender<Event>>,
    reloads: Reloads,
}

/// A bound socket, ready to be served.
pub(crate) struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Told when an operator orders a stop.
    stop: watch::Sender<bool>,
}

impl ControlSocket {
    /// Creates the socket in a data directory that this process has locked. Replaces a socket left
    /// behind by a killed process.
    ///
    /// # Errors
    ///
    /// If the path is too long or the socket cannot be created.
    pub(crate) fn bind(directory: &Path, stop: watch::Sender<bool>) -> anyhow::Result<Self> {
        let path = directory.join(CONTROL_SOCKET);
        anyhow::ensure!(
            path.as_os_str().len() <= MAX_PATH_BYTES,
            "the path of the control socket, {}, is longer than the {MAX_PATH_BYTES} bytes that \
             the system allows: choose a shorter `data_dir`, or start the validator in a folder \
             from which it is",
            path.display()
        );
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {}", path.display()));
            }
            _ => {}
        }
        let listener = UnixListener::bind(&path)
            .with_context(|| format!("cannot make the control socket {}", path.display()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))
            .with_context(|| format!("cannot restrict {} to its owner", path.display()))?;
        let prepared = listener.set_nonblocking(true);
        prepared.with_context(|| format!("control socket {}", path.display()))?;
        Ok(Self {
            listener,
            path,
            stop,
        })
    }

    /// Another handle to the socket.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub(crate) fn again(&self) -> anyhow::Result<Self> {
        let listener = self.listener.try_clone();
        Ok(Self {
            listener: listener
                .with_context(|| format!("control socket {}", self.path.display()))?,
            path: self.path.clone(),
            stop: self.stop.clone(),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Serves the commands and everything that the API offers to operators, until dropped.
    ///
    /// # Errors
    ///
    /// If the socket fails.
    pub(crate) async fn serve(
        self,
        state: RpcState,
        live: Arc<LiveStatus>,
        replica: Option<Sender<Event>>,
        reloads: Reloads,
        kept: KeptSnapshots,
    ) -> anyhow::Result<()> {
        let orders = Router::new()
            .route("/v1/peers/block", post(block))
            .route("/v1/peers/unblock", post(unblock))
            .route("/v1/reload", post(reload))
            .with_state(Control {
                live,
                replica,
                reloads,
            });
        let routes = orders.merge(snapshots::router(kept));
        self.serve_router(routes.merge(rpc::router(state, Audience::Operator)))
            .await
    }

    /// Serves these routes, and an order to stop, until dropped.
    ///
    /// # Errors
    ///
    /// If the socket fails.
    pub(crate) async fn serve_router(self, router: Router) -> anyhow::Result<()> {
        let failed = || format!("control socket {}", self.path.display());
        let listener = AsyncListener::from_std(self.listener).with_context(failed)?;
        let stop = Router::new().route("/v1/stop", post(stop));
        let router = router.merge(stop.with_state(self.stop));
        axum::serve(listener, router).await.with_context(failed)
    }
}

type OrderBody = Result<Json<OrderJson>, axum::extract::rejection::JsonRejection>;

async fn block(
    State(control): State<Control>,
    body: OrderBody,
) -> Result<Json<OrderAnswer>, RpcError> {
    let Json(order) = body?;
    if order
        .seconds
        .is_some_and(|s| !(1..=MAX_SECONDS).contains(&s))
    {
        return Err(RpcError::bad_request(&format!(
            "`seconds` must be 1 to {MAX_SECONDS}"
        )));
    }
    control.order(order, Order::Block).await
}

async fn unblock(
    State(control): State<Control>,
    body: OrderBody,
) -> Result<Json<OrderAnswer>, RpcError> {
    let Json(order) = body?;
    if order.seconds.is_some() {
        return Err(RpcError::bad_request(
            "`seconds` is for blocking; lifting a block is for good",
        ));
    }
    control.order(order, Order::Pardon).await
}

async fn reload(State(control): State<Control>) -> Result<Json<ReloadedJson>, RpcError> {
    let (reply, answer) = oneshot::channel();
    let asked = control.reloads.send(reply).await;
    asked.map_err(|_| RpcError::ending())?;
    let done = answer.await.map_err(|_| RpcError::ending())?;
    done.map(Json)
        .map_err(|refusal| RpcError::conflict(&refusal))
}

async fn stop(State(stop): State<watch::Sender<bool>>) -> Json<serde_json::Value> {
    info!("an operator orders a stop, over the control socket");
    let _ = stop.send(true);
    Json(serde_json::json!({ "stopping": true }))
}

impl Control {
    async fn order(&self, order: OrderJson, what: Order) -> Result<Json<OrderAnswer>, RpcError> {
        let Some(replica) = &self.replica else {
            return Err(RpcError::conflict(
                "this node follows the chain without a vote, and blocks no validator",
            ));
        };
        let validator = self.find(&order.peer)?;
        if Some(validator) == self.live.own() {
            return Err(RpcError::bad_request(
                "that is this validator itself; it cannot be blocked",
            ));
        }
        let (reply, answer) = oneshot::channel();
        let event = Event::Ordered(Ordered {
            validator,
            order: what,
            lasts: order.seconds.map(Duration::from_secs),
            reply: Some(reply),
        });
        replica.send(event).map_err(|_| RpcError::ending())?;
        match answer.await.map_err(|_| RpcError::ending())? {
            Ok(offender) => Ok(Json(OrderAnswer { offender })),
            Err(refusal) => Err(RpcError::conflict(&refusal)),
        }
    }

    fn find(&self, peer: &str) -> Result<ValidatorIndex, RpcError> {
        let committee = self.live.committees().known();
        let place = match peer.parse::<u32>() {
            Ok(place) => Some(ValidatorIndex(place)),
            Err(_) => peer
                .parse::<Identity>()
                .ok()
                .and_then(|identity| committee.place(&identity)),
        };
        place
            .filter(|place| committee.identity(*place).is_some())
            .ok_or_else(|| {
                RpcError::not_found(
                    "unknown_peer",
                    &format!(
                        "{peer:?} is no validator of this chain; give a place from 0 to {} or an \
                         identity of 64 hexadecimal digits",
                        committee.size() - 1
                    ),
                )
            })
    }
}
