//! How eagerly links are made, and how soon a silent one is given up.

use commonware_runtime::Quota;
use std::{num::NonZeroU32, time::Duration};

/// A preset for the distances between validators.
///
/// The library's own recommendation takes minutes to a full mesh of four: it dials one peer per
/// second, and a failed attempt (two peers that dial each other at the same moment both fail) costs
/// that peer a minute. Both presets dial faster; they differ in what they take for a slow peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// One machine or one rack, up to about 20 validators: full mesh within a second, a restarted
    /// peer is back within one or two.
    Local,
    /// Up to [`MAX_VALIDATORS`](crate::MAX_VALIDATORS) across regions with round trips up to a
    /// second. Of two validators one dials, and the other only if no link has come after four
    /// seconds. With 100 validators, who dials the other 99 has done so within 5 seconds.
    Wide,
}

/// The durations and rates behind a [`Timing`].
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    /// One peer is dialled per this time.
    pub(crate) dial_every: Duration,
    /// A peer is neither dialled nor accepted again before this time has passed since the last
    /// attempt (plus up to half of it at random before it is dialled).
    pub(crate) cooldown: Duration,
    /// Whether the higher identity of two waits until the lower one dials.
    pub(crate) take_turns: bool,
    /// TCP connection only.
    pub(crate) connect_timeout: Duration,
    /// From the connection to an authenticated peer.
    pub(crate) handshake_timeout: Duration,
    /// A link that delivers nothing for this long is closed, though the peer pings every second.
    pub(crate) idle_timeout: Duration,
    /// A link whose peer takes no byte for this long is closed, and what waits for it is freed.
    pub(crate) stall_timeout: Duration,
    /// Handshakes per second that one IP address may start, and at once.
    pub(crate) handshakes_per_ip: Quota,
    /// The same for a /24 or /48 network.
    pub(crate) handshakes_per_subnet: Quota,
}

/// Clocks of two validators may differ by this much, less the handshake's own duration.
pub(crate) const CLOCK_AHEAD: Duration = Duration::from_secs(5);
/// A handshake message may be this old.
pub(crate) const HANDSHAKE_AGE: Duration = Duration::from_secs(10);

const fn quota(per_second: u32, burst: u32) -> Quota {
    match (NonZeroU32::new(per_second), NonZeroU32::new(burst)) {
        (Some(per_second), Some(burst)) => Quota::per_second(per_second).allow_burst(burst),
        _ => panic!("a quota is not zero"),
    }
}

impl Timing {
    pub(crate) const fn pace(self) -> Pace {
        match self {
            // All validators share 127.0.0.1, and each attempt is a new handshake.
            Self::Local => Pace {
                dial_every: Duration::from_millis(20),
                cooldown: Duration::from_millis(200),
                take_turns: false,
                connect_timeout: Duration::from_secs(1),
                handshake_timeout: Duration::from_secs(2),
                idle_timeout: Duration::from_secs(5),
                stall_timeout: Duration::from_secs(5),
                handshakes_per_ip: quota(1_000, 2_000),
                handshakes_per_subnet: quota(1_000, 2_000),
            },
            Self::Wide => Pace {
                dial_every: Duration::from_millis(50),
                cooldown: Duration::from_millis(500),
                take_turns: true,
                connect_timeout: Duration::from_secs(5),
                handshake_timeout: Duration::from_secs(5),
                idle_timeout: Duration::from_secs(15),
                stall_timeout: Duration::from_secs(15),
                handshakes_per_ip: quota(8, 32),
                handshakes_per_subnet: quota(64, 256),
            },
        }
    }
}
