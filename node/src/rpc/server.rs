//! The listeners, and the checks before routing.

use super::{Audience, MAX_WAIT, RpcState, error::RpcError, limits, router};
use crate::config::RpcConfig;
use axum::{
    Router,
    extract::Request,
    middleware::from_fn,
    response::{IntoResponse, Response},
};
use quorate_http::{Clients, Front, Refusal, front, hold_answers};
use std::{io::ErrorKind, net::SocketAddr};
use tokio::net::TcpListener;

/// Routes that respond under any load: liveness and readiness.
const ALWAYS: &[&str] = &["/v1/health", "/v1/ready"];

/// Binds the listener of an audience. Connections are queued until it is served.
///
/// # Errors
///
/// If the system refuses.
pub fn listen(audience: Audience, address: SocketAddr) -> anyhow::Result<TcpListener> {
    let key = match audience {
        Audience::Public => "rpc.listen",
        Audience::Operator => "admin.listen",
    };
    quorate_http::listen(address).map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => anyhow::anyhow!(
            "cannot listen on {address}: the address is already in use; change `{key}`"
        ),
        ErrorKind::AddrNotAvailable => anyhow::anyhow!(
            "cannot listen on {address}: it is not an address of this machine; change `{key}`"
        ),
        _ => anyhow::anyhow!("cannot listen on {address}: {error}; change `{key}`"),
    })
}

/// Serves an audience until `shutdown` resolves.
pub async fn serve(
    state: RpcState,
    audience: Audience,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) {
    // The admin listener has its own limits, so that clients of the public listener cannot exhaust
    // them.
    let clients = match audience {
        Audience::Public => state.parts().clients.clone(),
        Audience::Operator => limits::clients(&state.parts().config),
    };
    let config = state.parts().config.clone();
    serve_router(router(state, audience), config, clients, listener, shutdown).await;
}

/// Serves a router until `shutdown` resolves.
pub(crate) async fn serve_router(
    router: Router,
    config: RpcConfig,
    clients: Clients,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) {
    let timeout = config.request_timeout;
    // A request that asks to wait can take that much longer.
    let limit = move |request: &Request| match request.uri().query() {
        Some(query) if query.contains("wait") || query.contains("proof") => timeout + MAX_WAIT,
        _ => timeout,
    };
    let router = router.layer(from_fn(hold_answers));
    let front_of_it = Front {
        hosts: config.hosts,
        cors_origins: config.cors_origins,
        refuse,
    };
    let router = front(router, front_of_it, limit);
    quorate_http::serve(listener, clients, router, refuse, ALWAYS, shutdown).await;
}

fn refuse(refusal: &Refusal) -> Response {
    RpcError::from(*refusal).into_response()
}
