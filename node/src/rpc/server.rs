//! Listening, and limits on connections: how many, and how slow.

use super::{RpcState, error::RpcError, router};
use anyhow::Context;
use axum::{extract::Request, middleware::Next, response::IntoResponse};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use std::{io, sync::Arc, time::Duration};
use tokio::{net::TcpListener, sync::Semaphore};

/// How long a client may take to send a request's head.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves until `shutdown` resolves; connections then end with their current request.
///
/// # Errors
///
/// If the address cannot be listened on.
pub async fn serve(state: RpcState, shutdown: impl Future<Output = ()>) -> anyhow::Result<()> {
    let listen = state.parts().listen;
    let listener = TcpListener::bind(listen)
        .await
        .with_context(|| format!("cannot listen on {listen} for RPC; change `rpc.listen`"))?;
    let timeout = state.parts().request_timeout + super::MAX_WAIT;
    let room = Arc::new(Semaphore::new(state.parts().max_connections));
    let service = TowerToHyperService::new(router(state).layer(axum::middleware::from_fn(
        move |request: Request, next: Next| async move {
            match tokio::time::timeout(timeout, next.run(request)).await {
                Ok(response) => response,
                Err(_) => RpcError::too_slow().into_response(),
            }
        },
    )));
    tokio::pin!(shutdown);
    loop {
        // A connection that finds no room waits in the kernel's queue.
        let accepted = async {
            let permit = room.clone().acquire_owned().await;
            (listener.accept().await, permit)
        };
        let (connection, permit) = tokio::select! {
            () = &mut shutdown => return Ok(()),
            accepted = accepted => accepted,
        };
        let stream = match connection {
            Ok((stream, _)) => stream,
            // The client has gone, or descriptors are short for the moment.
            Err(error) => {
                pause_after(&error).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let service = service.clone();
        tokio::spawn(async move {
            let served = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service)
                .await;
            if let Err(error) = served {
                tracing::debug!(%error, "an RPC connection ended");
            }
            drop(permit);
        });
    }
}

async fn pause_after(error: &io::Error) {
    tracing::debug!(%error, "cannot accept an RPC connection");
    tokio::time::sleep(Duration::from_millis(50)).await;
}
