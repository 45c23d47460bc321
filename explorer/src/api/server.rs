//! Listening, and the limits that apply before routing: clients, host names, and timeouts.

use super::{App, problem::Failure, router};
use crate::Config;
use axum::response::{IntoResponse, Response};
use quorate_http::{Front, Limits, PACE, Refusal, Share, Times, front};
use std::time::Duration;
use tokio::net::TcpListener;

/// Time limit of a request; a stream's request ends when the stream begins.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Time from the end of an answer until the head of the next request has arrived.
const HEAD: Duration = Duration::from_secs(10);

/// How long the body of a submission, the only one that is read, may take to arrive.
const BODY: Duration = Duration::from_secs(5);

/// How long a client may read nothing of an answer or a stream.
const STALL: Duration = Duration::from_secs(30);

/// After this time a connection ends with its current answer. Streams have no end.
const LIFE: Duration = Duration::from_secs(600);

/// Concurrent requests that ask validators.
const ASKING: Share = Share { all: 64, each: 16 };

/// Bytes of answers that clients have not read yet.
const BYTES: Share = Share {
    all: 128 << 20,
    each: 32 << 20,
};

/// Concurrent requests that read the index.
const READING: Share = Share { all: 8, each: 4 };

/// Minimum share of one client, if the total allows it.
const MIN_SHARE: usize = 64;

/// Paths that are answered whatever clients hold: whether this explorer is alive and keeps up.
const ALWAYS: &[&str] = &["/health", "/ready", "/v1/health", "/v1/ready"];

/// Limits for the explorer's clients.
pub(super) fn limits(config: &Config) -> Limits {
    // One client, or all behind one address, may have a quarter; of small totals, everything.
    let quarter = |all: usize| Share {
        all,
        each: (all / 4).max(all.min(MIN_SHARE)),
    };
    let connections = quarter(config.max_connections);
    Limits {
        connections,
        // Only a proxy has more than one request per connection in progress.
        requests: Share {
            all: 2 * connections.all,
            each: connections.each,
        },
        waiting: ASKING,
        streams: quarter(config.max_streams),
        bytes: BYTES,
        work: Share { all: 0, each: 0 },
        reading: READING,
        verifying: Share { all: 0, each: 0 },
        times: Times {
            head: HEAD,
            body: BODY,
            stall: STALL,
            life: LIFE,
            last_answer: None,
            pace: PACE,
        },
        trusted_proxies: config.trusted_proxies.clone(),
    }
}

/// Serves until `shutdown` resolves; open connections are then dropped.
pub(crate) async fn serve(
    app: App,
    config: &Config,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) {
    let clients = app.inner.clients.clone();
    let front_of_it = Front {
        hosts: config.hosts.clone(),
        cors_origins: config.cors_origins.clone(),
        refuse,
    };
    let router = front(router(app), front_of_it, |_| REQUEST_TIMEOUT);
    quorate_http::serve(listener, clients, router, refuse, ALWAYS, shutdown).await;
}

fn refuse(refusal: &Refusal) -> Response {
    Failure::from(*refusal).into_response()
}
