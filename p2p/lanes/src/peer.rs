//! Peers, as seen by users of the links.

use quorate_crypto::Identity;
use std::time::Duration;

/// The recipients of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum To {
    /// Every other validator.
    All,
    /// Every follower.
    Followers,
    /// One validator.
    One(Identity),
    /// These validators; a repeated identity receives the frame twice.
    Some(Vec<Identity>),
}

/// A peer's link as the node sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    pub identity: Identity,
    /// Whether a link is up, has answered a ping, and has delivered something in the last 2.5 s.
    pub connected: bool,
    /// Smoothed round trip of this link in µs (each new value has a weight of 1/8).
    pub round_trip_us: Option<u64>,
    /// How long the present link has been answering. `None` if not connected.
    pub connected_for: Option<Duration>,
    /// How long nothing has come over a link; since this node's start, if nothing ever has.
    pub silent_for: Duration,
    /// Whether this node blocks the peer.
    pub blocked: bool,
    /// Number of received frames larger than their lane allows. An honest validator sends none.
    pub oversized: u64,
    /// Number of consecutive handshakes that the peer aborted after accepting the connection, since
    /// the last link.
    pub refusals: u32,
    /// How long another process has repeatedly asked for a link with the same identity while this
    /// link answers, which means that a second process uses the identity. `None` otherwise.
    pub doubled_for: Option<Duration>,
    /// Whether handshakes with it have failed since the last link because the clocks differ too
    /// much.
    pub clock_refused: bool,
    /// By how many milliseconds this machine's clock is ahead of the peer's, negative if behind; to
    /// within half a round trip. `None` if the peer has not sent its time on this link.
    pub clock_ahead_ms: Option<i64>,
}
