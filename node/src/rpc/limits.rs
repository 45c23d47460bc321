//! How much of everything there is for clients, and how much for each.

use super::submit;
use crate::config::RpcConfig;
use quorate_http::{Clients, Limits, Share, Times};
use std::time::Duration;

/// Requests that may read the database at a time.
const READING: Share = Share { all: 4, each: 2 };

/// Requests of proven clients whose transactions may be verified at a time; the others' have threads of
/// their own ([`super::verifying`]). Reads have other threads, or who submits too much would keep others
/// from reading.
const VERIFYING: Share = Share { all: 2, each: 1 };

/// Transactions that may wait to be verified: about what those threads verify in a fifth of a
/// second. More would only wait longer for the same answer, so they are refused at once.
const SUBMITTED: Share = Share {
    all: 4 * submit::MAX_TRANSACTIONS,
    each: 2 * submit::MAX_TRANSACTIONS,
};

/// Requests that may wait for something to become final.
const WAITING: usize = 256;

/// From the end of an answer until the head of the next request is there.
const HEAD: Duration = Duration::from_secs(10);

/// How long a client may take in nothing of an answer.
const STALL: Duration = Duration::from_secs(15);

/// After this time a connection ends with its current answer. Clients just open another one.
const LIFE: Duration = Duration::from_secs(600);

/// What a client pays for each signature that is looked at alone because one in its request was
/// invalid. It is refused when it owes ten seconds.
pub(super) const PRICE_OF_A_SEARCH: Duration = Duration::from_millis(5);

/// What a client pays for a signature that holds, and whose transaction is refused all the same.
pub(super) const PRICE_OF_A_REFUSAL: Duration = Duration::from_millis(1);

/// The clients of an interface with this configuration; nobody yet.
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
        // More than one on a connection is only a proxy's.
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
        },
        trusted_proxies: config.trusted_proxies.clone(),
    }
}
