//! The control socket: orders to a running validator, from whoever may read its data directory.
//!
//! It is the HTTP interface over a Unix socket of mode 0600 in the data directory, with orders
//! beside: whom to block and whom to believe again, to read the configuration again, to stop. The network cannot
//! reach it.

use crate::{
    reload::Reloads,
    replica::{Event, Ordered},
    rpc::{self, Audience, RpcState, error::RpcError, live::LiveStatus},
};
use anyhow::Context;
use axum::{Json, Router, extract::State, routing::post};
use crossbeam_channel::Sender;
use quorate_consensus::Order;
use quorate_load::api::{OrderAnswer, OrderJson, ReloadedJson};
use quorate_types::{Identity, ValidatorIndex};
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{
    net::UnixListener,
    sync::{Notify, oneshot},
};

/// The socket's name in the data directory.
pub const CONTROL_SOCKET: &str = "control.sock";

/// The longest path of a Unix socket on Linux, in bytes.
const MAX_PATH_BYTES: usize = 107;

/// The longest block by order, in seconds: ten years.
const MAX_SECONDS: u64 = 10 * 365 * 24 * 3_600;

#[derive(Clone)]
struct Control {
    live: Arc<LiveStatus>,
    replica: Sender<Event>,
    commands: Commands,
}

/// What concerns the process as a whole.
#[derive(Clone)]
pub(crate) struct Commands {
    /// Has the configuration read again.
    pub(crate) reloads: Reloads,
    /// Has the validator stop.
    pub(crate) stop: Arc<Notify>,
}

/// The socket, ready to be served.
pub(crate) struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl ControlSocket {
    /// Makes the socket in a data directory that this process has locked. One that a killed process
    /// left is replaced.
    ///
    /// # Errors
    ///
    /// If the path is too long or the socket cannot be made.
    pub(crate) fn bind(directory: &Path) -> anyhow::Result<Self> {
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
        Ok(Self { listener, path })
    }

    /// Serves orders, and everything that the interface serves to operators, until it is dropped.
    ///
    /// # Errors
    ///
    /// If the socket fails.
    pub(crate) async fn serve(
        self,
        state: RpcState,
        live: Arc<LiveStatus>,
        replica: Sender<Event>,
        commands: Commands,
    ) -> anyhow::Result<()> {
        let orders = Router::new()
            .route("/v1/peers/block", post(block))
            .route("/v1/peers/unblock", post(unblock))
            .route("/v1/reload", post(reload))
            .route("/v1/stop", post(stop))
            .with_state(Control {
                live,
                replica,
                commands,
            });
        let router = orders.merge(rpc::router(state, Audience::Operator));
        axum::serve(self.listener, router)
            .await
            .with_context(|| format!("control socket {}", self.path.display()))
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
    let stopping = || RpcError::unavailable("stopping", "the node is stopping");
    let (reply, answer) = oneshot::channel();
    let asked = control.commands.reloads.send(reply).await;
    asked.map_err(|_| stopping())?;
    let done = answer.await.map_err(|_| stopping())?;
    done.map(Json)
        .map_err(|refusal| RpcError::conflict(&refusal))
}

async fn stop(State(control): State<Control>) -> Json<serde_json::Value> {
    control.commands.stop.notify_one();
    Json(serde_json::json!({ "stopping": true }))
}

impl Control {
    async fn order(&self, order: OrderJson, what: Order) -> Result<Json<OrderAnswer>, RpcError> {
        let validator = self.find(&order.peer)?;
        if validator == self.live.own() {
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
        let stopping = || RpcError::unavailable("stopping", "the node is stopping");
        self.replica.send(event).map_err(|_| stopping())?;
        match answer.await.map_err(|_| stopping())? {
            Ok(offender) => Ok(Json(OrderAnswer { offender })),
            Err(refusal) => Err(RpcError::conflict(&refusal)),
        }
    }

    fn find(&self, peer: &str) -> Result<ValidatorIndex, RpcError> {
        let committee = self.live.committee();
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
