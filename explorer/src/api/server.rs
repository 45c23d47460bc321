//! Listening, and limits on connections: how many, how slow, how long their heads.

use super::{App, problem::Failure, router};
use axum::{extract::Request, middleware::Next, response::IntoResponse};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use std::{io, sync::Arc, time::Duration};
use tokio::{net::TcpListener, sync::Semaphore};

/// How long a client may take to send a request's head, and how long a connection may be idle.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Most bytes of a request's head; hyper keeps no smaller buffer.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// Most fields in a request's head.
const MAX_HEAD_FIELDS: usize = 64;

/// How long a request may take; a stream's request ends when the stream begins.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves until `shutdown` resolves; open connections are dropped then.
///
/// # Errors
///
/// None so far: a connection that fails concerns only its client.
pub async fn serve(
    app: App,
    listener: TcpListener,
    max_connections: usize,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let room = Arc::new(Semaphore::new(max_connections));
    let service = TowerToHyperService::new(router(app).layer(axum::middleware::from_fn(
        |request: Request, next: Next| async move {
            match tokio::time::timeout(REQUEST_TIMEOUT, next.run(request)).await {
                Ok(response) => response,
                Err(_) => Failure::too_slow().into_response(),
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
                tracing::debug!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let service = service.clone();
        tokio::spawn(async move {
            let served = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .max_buf_size(MAX_HEAD_BYTES)
                .max_headers(MAX_HEAD_FIELDS)
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades()
                .await;
            if let Err(error) = served {
                tracing::debug!(%error, "a connection ended");
            }
            drop(permit);
        });
    }
}
