//! The limits of the API's resources, in total and per client.

use super::submit;
use crate::config::RpcConfig;
use quorate_http::{Clients, Limits, PACE, Share, Times};
use std::time::Duration;

/// Requests that can read the database at the same time.
const READING: Share = Share { all: 4, each: 2 };

/// Requests of proven clients whose transactions can be verified at the same time; other clients'
/// requests have their own threads ([`super::verifying`]). Database reads use other threads, so
/// that a client that submits too much cannot keep others from reading.
const VERIFYING: Share = Share { all: 2, each: 1 };

/// Transactions that can wait for verification: about as many as those threads verify in a fifth of
/// a second. Further ones would only wait longer for the same answer, so they are refused
/// immediately.
const SUBMITTED: Share = Share {
    all: 4 * submit::MAX_TRANSACTIONS,
    each: 2 * submit::MAX_TRANSACTIONS,
};

/// Requests that can wait for something to become final.
const WAITING: usize = 256;

/// Time limit from the end of a response to the complete head of the next request.
const HEAD: Duration = Duration::from_secs(10);

/// How long a client can leave a response unread.
const STALL: Duration = Duration::from_secs(15);

/// After this time a connection is closed at the end of its current response. Clients simply
/// reconnect.
const LIFE: Duration = Duration::from_secs(600);

/// The price for each signature that must be verified individually because the request contains an
/// invalid one. A client is refused once it owes ten seconds.
pub(super) const PRICE_OF_A_SEARCH: Duration = Duration::from_millis(5);

/// The price for a valid signature whose transaction is refused nevertheless.
pub(super) const PRICE_OF_A_REFUSAL: Duration = Duration::from_millis(1);

/// Creates the (initially empty) set of clients for this configuration.
pub fn clients(config: &RpcConfig) -> Clients {
    Clients::new(limits(config))
}

fn limits(config: &RpcConfig) -> Limits {
    let connections = Share {
        all: config.max_connections,
        each: config.max_connections_per_client,
    };
    Limits {
        connections,
        // Only proxies have more than one request on a connection.
        requests: Share {
            all: 2 * connections.all,
            each: connections.each,
        },
        waiting: Share {
            all: WAITING,
            each: config.max_waiting_per_client,
        },
        streams: Share { all: 0, each: 0 },
        bytes: Share {
            all: config.max_in_flight_bytes,
            each: config.max_in_flight_bytes / 4,
        },
        work: SUBMITTED,
        reading: READING,
        verifying: VERIFYING,
        times: Times {
            head: HEAD,
            body: config.request_timeout,
            stall: STALL,
            life: LIFE,
            last_answer: Some(config.request_timeout + super::MAX_WAIT + LIFE / 10),
            pace: PACE,
        },
        trusted_proxies: config.trusted_proxies.clone(),
    }
}
