//! Authenticated links between validators, fully connected, in lanes by priority.
//!
//! A thin layer over commonware's `authenticated::lookup` network. What it adds:
//!
//! - [`Lane`]s with quotas, frame limits and queues of their own, and a header that tells chains
//!   and versions apart;
//! - [`Links`], a handle that any thread may use, which never waits, and which counts every frame
//!   that it drops, with the reason. The library's `send` drops silently;
//! - connection state and round trips ([`PeerStatus`]), which the library does not report, and word of
//!   each link that comes up or ends ([`Links::watch`]);
//! - blocks that can be lifted and extended ([`Links::block`]);
//! - fairness between peers: a link is read no faster than its peer may send, and frames wait for the
//!   node in a queue of their sender's own ([`FairQueue`]);
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
//! | has one mailbox for all peers of a lane, which drops what comes when it is full | nothing waits there: frames move on at once, to a queue for each peer |
//! | counts frames in its quotas, not bytes | a budget of bytes for each peer, kept over its reconnections |
//! | allocates mailboxes for burst × peers × sets | [`preallocated_bytes`] |
//! | takes minutes to a full mesh as recommended | [`Timing`] |
//! | refuses whom it is dialling: two that dial each other both fail | one of them waits |
//! | looks host names up when it dials, and accepts connections from IP addresses only | names are looked up here, and again while there is no link |
//! | drops silently when a queue is full or a peer offline | a queue per peer that refuses first, and counts |
//! | writes eight queued frames at once, into 4 MB of kernel buffer | a backlog for patient lanes, and a limit on what is unsent |
//! | blocks for a fixed time that cannot be lifted or extended | a filter and a refusal of its own; the library's block lasts two seconds |
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
//! | a peer's budget of inbound bytes | its link is not read until there is budget again, 1 s at most for a frame |
//! | a peer's queue for the node (frames and bytes) | its newest frame is dropped: `queue_full` |
//! | all peers' queues for the node | whoever has most loses its newest frame |
//! | a lane's inbound mailbox | the library drops the frame; its task only moves frames, so nothing gets there |
//! | the kernel's buffer | the link's task waits, at most [`Timing`]'s limit, then cuts the link |

mod address;
mod bucket;
mod clock;
mod config;
mod fair;
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
mod turns;
mod upgrade;
mod wire;

pub use address::{AddressError, PeerAddress};
pub use bucket::Bucket;
pub use config::{Config, DEFAULT_FRAME_BYTES, Error, MAX_FRAME_BYTES, MAX_VALIDATORS};
pub use fair::{FairLimits, FairQueue};
pub use frame::FrameTag;
pub use lane::{Lane, preallocated_bytes};
pub use links::{Links, To};
pub use peers::{LinkWatch, PeerStatus};
pub use start::{Inbound, Running, start, start_on};
pub use timing::Timing;
pub use turns::{Lookup, system_lookup};
