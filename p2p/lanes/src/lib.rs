//! The interface between a validator and its links, independent of the transport: prioritized
//! lanes, recipients of a frame, link status, and the rate limits and queues that share capacity
//! fairly among peers.

mod allocation;
mod bucket;
mod fair;
mod lane;
mod peer;
mod shaper;

pub use allocation::{Claim, Rate, Sharing, allocate};
pub use bucket::Bucket;
pub use fair::{FairLimits, FairQueue};
pub use lane::{LANES, Lane};
pub use peer::{PeerStatus, To};
pub use shaper::{Shaper, Waiting};
