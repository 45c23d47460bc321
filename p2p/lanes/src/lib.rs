//! The interface between a validator and its links, independent of the transport: prioritized
//! lanes, recipients of a frame, link status, and the rate limits and queues that share capacity
//! fairly among peers.

mod bucket;
mod fair;
mod lane;
mod peer;

pub use bucket::Bucket;
pub use fair::{FairLimits, FairQueue};
pub use lane::{LANES, Lane};
pub use peer::{PeerStatus, To};
