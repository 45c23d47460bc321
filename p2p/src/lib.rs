//! Authenticated links between validators: a full mesh, with prioritized lanes.
//!
//! This crate is a thin layer over commonware's `authenticated::lookup` network. It adds:
//!
//! - [`Lane`]s, each with its own quota, frame limit and queues, and a frame header that identifies
//!   the chain and the format version;
//! - [`Links`], a handle that any thread may use, that never blocks, and that counts every frame it
//!   drops together with the reason. The library's `send` drops silently;
//! - connection state and round-trip times ([`PeerStatus`]), which the library does not report, and
//!   a callback whenever a link comes up or goes down ([`Links::watch`]);
//! - blocking of peers that can be lifted and extended ([`Links::block`]);
//! - fairness between peers: a link is read no faster than its peer may send, and received frames
//!   wait for the node in one queue per sender ([`FairQueue`]);
//! - sockets on which votes overtake bulk traffic, and errors instead of a panic or a half-dead
//!   network ([`start()`], [`Running`]).
//!
//! Delivery is not guaranteed, nor is order between lanes. Within a lane, frames from one peer
//! arrive in order, possibly with gaps.
//!
//! # Library behaviour that users of this crate must know
//!
//! | the library | this crate |
//! |---|---|
//! | throttles a peer that exceeds one channel's inbound quota in *all* its channels | generous rates, small bursts ([`Lane`]) |
//! | has one mailbox per lane for all peers, and drops messages when it is full | nothing waits there: frames move at once to a queue per peer |
//! | counts frames in its quotas, not bytes | a byte budget per peer, which survives reconnections |
//! | allocates mailboxes for burst × peers × sets | [`preallocated_bytes`] |
//! | takes minutes to a full mesh with its recommended settings | [`Timing`] |
//! | refuses a connection from a peer that it is dialling, so two peers that dial each other both fail | one of them waits |
//! | resolves host names when it dials, but accepts connections only from IP addresses | names are resolved here, and again while there is no link |
//! | drops silently when a queue is full or a peer is offline | a queue per peer that refuses first, and counts |
//! | writes up to eight queued frames at once, into 4 MB of kernel buffer | a backlog for the lanes that are not urgent, and a limit on unsent bytes |
//! | blocks for a fixed time that cannot be lifted or extended | a filter and a refusal of its own; the library's block lasts two seconds |
//! | reports no connect, disconnect or latency | it wraps the handshake, and pings |
//! | stops its clock when the wall clock is set back | a clock that does not jump |
//! | panics when the address is in use; stops with only a log line | [`Error`] from [`start()`] and [`Running`] |
//!
//! # What happens when something is full
//!
//! | bounded resource | when full |
//! |---|---|
//! | a peer's send queue (frames and bytes, per lane) | the frame is dropped for that peer: `queue_full` |
//! | a peer's outbound quota | the same: `quota` |
//! | a peer's inbound quota | the library stops reading that peer's link until there is quota again |
//! | a peer's inbound byte budget | its link is not read until there is budget again, at most 1 s per frame |
//! | a peer's queue for the node (frames and bytes) | its newest frame is dropped: `queue_full` |
//! | all peers' queues for the node together | the peer with the most queued bytes loses its newest frame |
//! | a lane's inbound mailbox | the library drops the frame; since the lane's task only moves frames, this should not happen |
//! | the kernel's send buffer | the link's task waits, at most for [`Timing`]'s limit, then closes the link |

mod address;
mod clock;
mod config;
mod dialer;
mod frame;
mod inbox;
mod lane;
mod links;
mod metrics;
mod outbound;
mod peers;
mod pulse;
mod start;
mod timing;
mod upgrade;
mod wire;

pub use address::{AddressError, PeerAddress};
pub use config::{Config, DEFAULT_FRAME_BYTES, Error, MAX_FRAME_BYTES, MAX_VALIDATORS};
pub use dialer::{Lookup, system_lookup};
pub use frame::FrameTag;
pub use lane::preallocated_bytes;
pub use links::Links;
pub use peers::LinkWatch;
pub use quorate_lanes::{Bucket, FairLimits, FairQueue, Lane, PeerStatus, To};
pub use start::{Inbound, Running, start, start_on};
pub use timing::Timing;
