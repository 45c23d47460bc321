//! Serving HTTP to clients that may be hostile. The validator's interface and the explorer's both
//! stand on it. For those who ask there is [`client`].
//!
//! One client must not cost the others anything. A *client* is an IPv4 address or an IPv6 /64
//! network, since whoever has one address of such a network has all of them. Each client has a
//! share of everything that is scarce ([`Resource`]), below what there is in all; whoever is over
//! its share is refused at once, with a sentence that says so, and nobody else waits for that.
//!
//! | scarce | bound by |
//! |---|---|
//! | connections | a share each; if all are taken, the client that has most loses one to a client that has fewer, and an idle client its eldest to one that has none |
//! | time on a connection | [`Times`]: for a request's head (and being idle), for taking in what is sent, in all |
//! | requests under way, streams, work | a share each |
//! | waiting requests | a share each; if all wait, one is answered before its time to make room (`waiting`) |
//! | threads that read and verify | turns, which go to the client that has used least time (`fair`); a share each of turns at a time |
//! | bytes of requests' bodies that have come, and of answers that are not taken in yet | a share each; large answers are made piece by piece ([`pieces`]) |
//! | bytes on a connection | [`MAX_HEAD_BYTES`] to read, [`MAX_FRAME_BYTES`] and as much again to write, [`FREE_BYTES`] of a body and of an answer; [`SEND_BUFFER_BYTES`] in the system |
//!
//! Whoever has four addresses has four shares. So of bytes and work nobody gets more
//! than is left for all others then; small bodies and answers take nothing of the bytes; and who only
//! asks whether the interface lives is answered whatever others hold ([`serve`]).
//!
//! Behind a reverse proxy all clients have the proxy's address. A proxy that is named as trusted
//! ([`Limits::trusted_proxies`]) speaks for its clients: its connections have no share, and each of
//! its requests counts for the last address in `X-Forwarded-For` that is not a trusted proxy's.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod accept;
mod address;
mod admit;
mod arriving;
mod book;
pub mod client;
mod fair;
mod front;
mod names;
pub mod pieces;
mod waiting;
mod watched;

pub use accept::{listen, serve};
pub use address::Address;
pub use admit::{Answers, held, hold_answers};
pub use arriving::forget_body;
pub use book::{Client, Clients, Permit, Refusal, Standing};
pub use front::{Front, front};
pub use waiting::Place;

use std::{net::IpAddr, time::Duration};

/// Most bytes of a request's head. The library keeps no smaller buffer.
pub const MAX_HEAD_BYTES: usize = 16 << 10;

/// Most fields in a request's head.
pub const MAX_HEAD_FIELDS: usize = 64;

/// Largest part of an answer that is handed to a connection at once.
pub const MAX_FRAME_BYTES: usize = 16 << 10;

/// Bodies and answers up to here take nothing of [`Resource::Bytes`]: one of each for a connection, so
/// that the connections bound them. Who has a connection is never refused something small.
pub const FREE_BYTES: usize = 16 << 10;

/// What the system may hold of an answer for each connection; it counts double for its own needs.
pub const SEND_BUFFER_BYTES: u32 = 256 << 10;

/// Connections that the system holds until they are accepted, which happens at once.
const BACKLOG: u32 = 1_024;

/// What clients share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Requests under way, from their head to their answer's last byte.
    Requests,
    /// Requests that wait for something to happen.
    Waiting,
    /// Answers without an end.
    Streams,
    /// Bytes of bodies and answers in memory, but for the small ones ([`FREE_BYTES`]).
    Bytes,
    /// Work that is waiting to be done; what counts as one, the interface says.
    Work,
    /// Requests that read at a time. Others wait for their turn.
    Reading,
    /// Requests whose signatures are verified at a time. Others wait for their turn.
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

    /// Whether it can be held for a while at no cost, so that nobody may have more of it than is left.
    fn leaves_some(self) -> bool {
        matches!(self, Self::Waiting | Self::Bytes | Self::Work)
    }
}

/// How much there is of something, and how much of it one client may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// For all clients together.
    pub all: usize,
    /// For each client.
    pub each: usize,
}

/// How long things on a connection may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// From the connection's start, or the last answer's end, until the next request's head is
    /// complete. So it is also how long a connection may be idle.
    pub head: Duration,
    /// How long a request's body may take to come, from the first wait for more of it.
    pub body: Duration,
    /// How long a client may take in nothing of an answer. Who takes in less than 16 KiB/s spends
    /// it, too, and more slowly.
    pub stall: Duration,
    /// After this time, a connection ends with its current answer.
    pub life: Duration,
    /// How long that current answer may go on; `None` for streams, which have no end.
    pub last_answer: Option<Duration>,
}

/// The limits of an interface.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections.
    pub connections: Share,
    /// Requests under way.
    pub requests: Share,
    /// Requests that wait.
    pub waiting: Share,
    /// Streams.
    pub streams: Share,
    /// Bytes in flight.
    pub bytes: Share,
    /// Work.
    pub work: Share,
    /// Requests that read at a time.
    pub reading: Share,
    /// Requests whose signatures are verified at a time.
    pub verifying: Share,
    /// Time-outs.
    pub times: Times,
    /// Addresses whose `X-Forwarded-For` is believed.
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
