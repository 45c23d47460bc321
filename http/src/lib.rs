//! Serving HTTP to clients that may be hostile. Used by the validator's interface and by the
//! explorer's. [`client`] has helpers for HTTP clients.
//!
//! One client must not degrade service for the others. A *client* is an IPv4 address or an IPv6 /64
//! network, since whoever has one address of such a network has all of them. Each client has a
//! share of every scarce resource ([`Resource`]), below the total. A client that exceeds its share
//! is refused at once, with an error message that says so, and other clients do not wait for that.
//!
//! | scarce resource | limit |
//! |---|---|
//! | connections | a share per client; if all are taken, the client with the most loses one to a client that has fewer, and an idle client loses its oldest to one that has none |
//! | time on a connection | [`Times`]: for a request's head (and being idle), for reading what is sent, in total |
//! | requests in progress, streams, work | a share per client |
//! | processor time of requests that only read memory | a pace per client; faster ones wait ([`Times::pace`]) |
//! | waiting requests | a share per client; if all places are taken, one request is answered early to make room (`waiting`) |
//! | threads that read and verify | turns, which go to the client that has used the least time (`fair`); a share per client of concurrent turns |
//! | bytes of received request bodies, and of answers that the client has not read yet | a share per client; large answers are produced piece by piece ([`pieces`]) |
//! | bytes on a connection | [`MAX_HEAD_BYTES`] to read, [`MAX_FRAME_BYTES`] and as much again to write, [`FREE_BYTES`] of a body and of an answer; [`SEND_BUFFER_BYTES`] in the kernel |
//!
//! Whoever has four addresses has four shares. So of bytes and work, a client gets at most as much
//! as then remains for all others; small bodies and answers do not count against the byte limit;
//! and health checks are answered whatever others hold ([`serve`]).
//!
//! Behind a reverse proxy all clients have the proxy's address. A proxy configured as trusted
//! ([`Limits::trusted_proxies`]) speaks for its clients: its connections have no share, and each of
//! its requests counts for the last address in `X-Forwarded-For` that is not a trusted proxy's.
//!
//! Why small requests need no budget: shares of bytes go to the addresses that come first, and four
//! addresses with half-sent requests once had everybody refused. Now a body counts only for what
//! has arrived of it beyond 16 KiB, and an answer only for what is longer than that. Below that,
//! the number of connections is the bound.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod accept;
mod address;
mod admit;
mod arriving;
pub mod client;
mod clients;
mod fair;
mod front;
mod names;
pub mod pieces;
mod waiting;
mod watched;

pub use accept::{listen, serve};
pub use address::Address;
pub use admit::{Answers, held, hold_answers};
pub use arriving::{announced_length, forget_body};
pub use clients::{Client, Clients, Permit, Refusal, Standing};
pub use front::{Front, front};
pub use waiting::Place;

use std::{net::IpAddr, time::Duration};

/// Maximum size of a request's head. The HTTP library has no smaller buffer.
pub const MAX_HEAD_BYTES: usize = 16 << 10;

/// Maximum number of header fields in a request.
pub const MAX_HEAD_FIELDS: usize = 64;

/// Maximum size of a part of an answer handed to a connection at once.
pub const MAX_FRAME_BYTES: usize = 16 << 10;

/// Bodies and answers up to this size do not count as [`Resource::Bytes`]. There is at most one of
/// each per connection, so the connection limit bounds them. A small request on an open connection
/// is never refused for lack of bytes.
pub const FREE_BYTES: usize = 16 << 10;

/// Kernel send buffer of each connection; the kernel doubles it for its own overhead.
pub const SEND_BUFFER_BYTES: u32 = 256 << 10;

/// The usual [`Times::pace`]: 2,000 requests a second for each client. Beside a busy chain two threads answered 79,000
/// requests a second from memory, so at this pace one client takes a twentieth of one of them.
pub const PACE: Duration = Duration::from_micros(500);

/// How far ahead of its pace a client's requests may be before they wait.
pub const PACE_AHEAD: Duration = Duration::from_millis(100);

/// Connections that the kernel queues until they are accepted, which happens at once.
const BACKLOG: u32 = 1_024;

/// A resource shared by clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Requests in progress, from their head to the last byte of their answer.
    Requests,
    /// Requests that wait for an event (long polling).
    Waiting,
    /// Answers without an end.
    Streams,
    /// Bytes of bodies and answers in memory, except small ones ([`FREE_BYTES`]).
    Bytes,
    /// Queued work; the interface defines the unit.
    Work,
    /// Requests that read concurrently. Others wait for their turn.
    Reading,
    /// Requests whose signatures are verified concurrently. Others wait for their turn.
    Verifying,
}

impl Resource {
    const EACH: [Self; 7] = [
        Self::Requests,
        Self::Waiting,
        Self::Streams,
        Self::Bytes,
        Self::Work,
        Self::Reading,
        Self::Verifying,
    ];

    /// Whether a client can hold it for a while at no cost, so that it may take at most what then
    /// remains free.
    fn leaves_some(self) -> bool {
        matches!(self, Self::Waiting | Self::Bytes | Self::Work)
    }
}

/// The total of a resource, and the maximum for one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// For all clients together.
    pub all: usize,
    /// For each client.
    pub each: usize,
}

/// Time limits of a connection, and the pace of a client's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// From the start of the connection, or the end of the last answer, until the next request's
    /// head is complete. So this is also the idle timeout.
    pub head: Duration,
    /// How long a request's body may take to arrive, counted from the first wait for more of it.
    pub body: Duration,
    /// How long a client may read nothing of an answer. A client that reads less than 16 KiB/s uses
    /// this time up too, more slowly.
    pub stall: Duration,
    /// After this time, a connection ends with its current answer.
    pub life: Duration,
    /// How long that last answer may take; `None` for streams, which have no end.
    pub last_answer: Option<Duration>,
    /// Minimum time between the requests of one client, on average. Requests that come faster for longer than
    /// [`PACE_AHEAD`] wait.
    pub pace: Duration,
}

#[derive(Clone, Debug)]
pub struct Limits {
    pub connections: Share,
    /// Requests in progress.
    pub requests: Share,
    /// Requests that wait for an event.
    pub waiting: Share,
    pub streams: Share,
    /// Bytes of bodies and answers in memory.
    pub bytes: Share,
    pub work: Share,
    /// Requests that read concurrently.
    pub reading: Share,
    /// Requests whose signatures are verified concurrently.
    pub verifying: Share,
    pub times: Times,
    /// Addresses whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<IpAddr>,
}

impl Limits {
    fn share(&self, resource: Resource) -> Share {
        match resource {
            Resource::Requests => self.requests,
            Resource::Waiting => self.waiting,
            Resource::Streams => self.streams,
            Resource::Bytes => self.bytes,
            Resource::Work => self.work,
            Resource::Reading => self.reading,
            Resource::Verifying => self.verifying,
        }
    }
}
