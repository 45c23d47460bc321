//! Listening, and what stands before the routes.

use super::{Audience, MAX_WAIT, RpcState, error::RpcError, limits, router};
use anyhow::Context;
use axum::{
    extract::Request,
    middleware::from_fn,
    response::{IntoResponse, Response},
};
use quorate_http::{Front, Refusal, front, hold_answers};
use std::net::SocketAddr;
use tokio::net::TcpListener;

/// What is answered however much clients take: whether this validator lives and keeps up.
const ALWAYS: &[&str] = &["/v1/health", "/v1/ready"];

/// Listens for an audience at an address. Connections wait until they are served.
///
/// # Errors
///
/// If the system refuses.
pub fn listen(audience: Audience, address: SocketAddr) -> anyhow::Result<TcpListener> {
    let key = match audience {
        Audience::Public => "rpc.listen",
        Audience::Operator => "admin.listen",
    };
    quorate_http::listen(address)
        .with_context(|| format!("cannot listen on {address} for HTTP; change `{key}`"))
}

/// Serves an audience until `shutdown` resolves.
pub async fn serve(
    state: RpcState,
    audience: Audience,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) {
    // Who crowds the public listener takes nothing from the operator's.
    let clients = match audience {
        Audience::Public => state.parts().clients.clone(),
        Audience::Operator => limits::clients(&state.parts().config),
    };
    let config = state.parts().config.clone();
    let timeout = config.request_timeout;
    // One that waits on purpose may take so much longer.
    let limit = move |request: &Request| match request.uri().query() {
        Some(query) if query.contains("wait") || query.contains("proof") => timeout + MAX_WAIT,
        _ => timeout,
    };
    let router = router(state, audience).layer(from_fn(hold_answers));
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
