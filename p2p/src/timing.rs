//! How eagerly links are made, and how soon a silent link is given up.

use commonware_runtime::Quota;
use std::{num::NonZeroU32, time::Duration};

/// A preset for the distances between validators.
///
/// The library's recommended settings take minutes to a full mesh of four: it dials one peer per
/// second, and a failed attempt (two peers that dial each other at the same moment both fail)
/// delays that peer by a minute. Both presets dial faster; they differ in what they consider a slow
/// peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// One machine or one rack, up to about 20 validators: full mesh within a second; a restarted
    /// peer is linked again within one or two.
    Local,
    /// Validators across regions with round trips of up to a second. One of two validators dials,
    /// and the other only if there is no link after four seconds. With 100 validators, dialling the
    /// other 99 takes at most 5 seconds.
    Wide,
}

#[derive(Clone, Copy)]
pub(crate) struct Pace {
    /// One peer is dialled per this interval.
    pub(crate) dial_every: Duration,
    /// Minimum time between attempts to dial or accept the same peer (plus up to half of it at
    /// random before dialling).
    pub(crate) cooldown: Duration,
    /// Whether the validator with the higher identity waits for the lower one to dial.
    pub(crate) take_turns: bool,
    /// For the TCP connection only.
    pub(crate) connect_timeout: Duration,
    /// From the connection to an authenticated peer.
    pub(crate) handshake_timeout: Duration,
    /// A link that receives nothing for this long is closed; the peer pings every second.
    pub(crate) idle_timeout: Duration,
    /// A link whose peer accepts no byte for this long is closed, and its queued frames are freed.
    pub(crate) stall_timeout: Duration,
    /// Rate and burst of handshakes that one IP address may start.
    pub(crate) handshakes_per_ip: Quota,
    /// The same for a /24 or /48 network.
    pub(crate) handshakes_per_subnet: Quota,
}

/// Maximum difference of two validators' clocks, less the duration of the handshake.
pub(crate) const CLOCK_AHEAD: Duration = Duration::from_secs(5);
/// Maximum age of a handshake message.
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
