//! Authenticated links between validators, fully connected, in lanes by priority.
//!
//! A thin layer over commonware's `authenticated::lookup` network. What it adds:
//!
//! - [`Lane`]s with quotas, frame limits and queues of their own, and a header that tells chains
//!   and versions apart;
//! - [`Links`], a handle that any thread may use, which never waits, and which counts every frame
//!   that it drops, with the reason. The library's `send` drops silently;
//! - connection state and round trips ([`PeerStatus`]), which the library does not report;
//! - blocks that can be lifted and extended ([`Links::block`]);
//! - sockets on which votes overtake bulk, and errors instead of a panic or half a network
//!   ([`start()`], [`Running`]).
//!
//! Delivery is not guaranteed, nor is order between lanes. Within a lane, frames from one peer
//! arrive in order, with gaps.
//!
//! # What the library does that its users must know
//!
//! | the library | here |
//! |---|---|
//! | delays a peer over its inbound quota in *all* its channels | generous rates, small bursts ([`Lane`]) |
//! | allocates mailboxes for burst × peers × sets | [`preallocated_bytes`] |
//! | takes minutes to a full mesh as recommended | [`Timing`] |
//! | refuses whom it is dialling: two that dial each other both fail | one of them waits |
//! | drops silently when a queue is full or a peer offline | a queue per peer that refuses first, and counts |
//! | writes eight queued frames at once, into 4 MB of kernel buffer | a backlog for patient lanes, and a limit on what is unsent |
//! | blocks for a fixed time that cannot be lifted or extended | a filter of its own, and a renewed block |
//! | reports no connect, disconnect or latency | it runs the handshake, and pings |
//! | stops its clock when the wall clock is set back | a clock that does not jump |
//! | panics when the address is in use; ends with only a log line | [`Error`] from [`start()`] and [`Running`] |
//!
//! # What happens when something is full
//!
//! | bounded thing | when full |
//! |---|---|
//! | a peer's queue (frames and bytes, per lane) | the frame is dropped for that peer: `queue_full` |
//! | a peer's outbound quota | the same: `quota` |
//! | a peer's inbound quota | the library stops reading that peer's link until there is quota again |
//! | a lane's inbound mailbox | the library drops the frame; only a blocking [`Inbound`] gets there |
//! | the kernel's buffer | the link's task waits, at most [`Timing`]'s limit, then cuts the link |

mod clock;
mod config;
mod frame;
mod lane;
mod links;
mod metrics;
mod outbound;
mod peers;
mod pulse;
mod start;
mod timing;
mod turns;
mod upgrade;
mod wire;

pub use config::{Config, DEFAULT_FRAME_BYTES, Error, MAX_FRAME_BYTES, MAX_VALIDATORS};
pub use frame::FrameTag;
pub use lane::{Lane, preallocated_bytes};
pub use links::{Links, To};
pub use peers::PeerStatus;
pub use start::{Inbound, Running, start, start_on};
pub use timing::Timing;
