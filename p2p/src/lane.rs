//! Per-lane limits: frame sizes, quotas, and the memory cost of queues.
//!
//! # Memory that is allocated before the first frame
//!
//! The library allocates its mailboxes at startup and touches every slot. With `n` validators, `B`
//! the sum of the bursts below ([`TOTAL_BURST`] = 280), `S` = [`TRACKED_PEER_SETS`] = 1, and `M` =
//! [`QUEUE_SLOTS`] = 320:
//!
//! | what | slots | bytes per slot |
//! |---|---|---|
//! | inbound mailboxes, one per lane | `B·n·S` | 224 (a decoded public key is 192 of them) |
//! | the router's mailbox | `B·n·S + M` | 312 |
//! | two send queues per connected peer | `2·M·(n − 1)` | 104 |
//! | actors' mailboxes | about `2·M` | 400 |
//! | read buffers | `n − 1` | 16 KiB |
//!
//! [`preallocated_bytes`] adds this up: 1.2 MB for 4 validators, 2.6 MB for 10, 23.6 MB for 100.
//! (Measured total resident memory per node with a full mesh of idle links, when two sets of peers were
//! kept: 2.6, 4.8 and 42.5 MB.)
//! The public key in each slot dominates the cost, so the bursts are small and the sustained rates
//! generous: a mailbox only has to bridge the time until the lane's task runs.
//!
//! Queued frames add to this: at most [`LaneLimits::queue_bytes`] per peer and lane. A frame to all
//! peers is one allocation, no matter how many queues it is in. Inbound, at most 8 MiB per peer and
//! 48 MiB in total wait for the node, separately for the urgent lanes and for the others.

use commonware_runtime::Quota;
use quorate_lanes::{LANES, Lane};
use std::num::NonZeroU32;

/// The channel of the pings that measure latency. It is not a [`Lane`], so no other traffic can use
/// up its quota, and a busy peer does not look dead.
pub(crate) const PULSE_CHANNEL: u64 = LANES as u64;

/// Pings and pongs per second and peer. Each side pings at most four times a second.
const PULSE_RATE: NonZeroU32 = nonzero(20);
const PULSE_BURST: NonZeroU32 = nonzero(8);

/// Number of peer sets for which the library keeps links. A set is replaced as a whole, and links to
/// peers that are in both stay.
pub(crate) const TRACKED_PEER_SETS: usize = 1;

/// Slots in each of a connection's two send queues, and in the mailboxes of the library's actors.
/// The frame limits of the lanes that share a queue add up to less, so the queue itself, where the
/// library would drop silently, never overflows.
pub(crate) const QUEUE_SLOTS: usize = 320;

/// Maximum of the bytes queued for all peers together in one lane, divided evenly among the peers
/// (but see [`MIN_QUEUE_FRAMES`]).
const QUEUE_BYTES_ALL_PEERS: usize = 128 << 20;

/// Each peer's queue has room for at least this many frames of maximum size.
const MIN_QUEUE_FRAMES: usize = 2;

/// Each peer's queue holds at most this many bytes per lane.
const MAX_QUEUE_BYTES: usize = 32 << 20;

/// Bytes per second read from all peers together, divided evenly among them, within the limits of
/// [`READ_PEER`].
const READ_ALL_PEERS: u64 = 128 << 20;

/// Minimum and maximum bytes per second that one peer may send over all lanes. For comparison: a
/// leader in a network of four that processes 20,000 transfers a second sends 3 MB/s.
const READ_PEER: [u64; 2] = [4 << 20, 16 << 20];

/// Bytes per second that one peer may send to a node that only fetches: 10 Gbit/s.
const READ_FETCHING: u64 = 1_250_000_000;

/// Bytes that one peer may send in a burst: eight frames of maximum size.
pub(crate) const READ_BURST: u64 = 32 << 20;

const TRANSACTIONS_FRAME_BYTES: usize = 1 << 20;
const CONTROL_FRAME_BYTES: usize = 64 << 10;

const fn nonzero(value: u32) -> NonZeroU32 {
    match NonZeroU32::new(value) {
        Some(value) => value,
        None => panic!("a quota is not zero"),
    }
}

/// Limits of a lane.
pub(crate) trait LaneLimits: Copy {
    /// Maximum payload of one frame in bytes, given the configured limit.
    fn max_frame_bytes(self, configured: usize) -> usize;

    /// Maximum number of frames queued for one peer. The sum over the lanes of one priority (and
    /// the pings) stays below [`QUEUE_SLOTS`].
    fn queue_frames(self) -> usize;

    /// Maximum bytes queued for one peer, so that a peer that stops reading ties up little memory.
    fn queue_bytes(self, peers: usize, configured_frame_bytes: usize) -> usize {
        let share = QUEUE_BYTES_ALL_PEERS / peers.max(1);
        let floor = MIN_QUEUE_FRAMES * self.max_frame_bytes(configured_frame_bytes);
        share.min(MAX_QUEUE_BYTES).max(floor)
    }

    /// The quota that the library enforces on the lane, per peer and direction.
    fn quota(self) -> Quota;
}

impl LaneLimits for Lane {
    fn max_frame_bytes(self, configured: usize) -> usize {
        match self {
            Self::Votes | Self::Fetch => configured,
            Self::Transactions => configured.min(TRANSACTIONS_FRAME_BYTES),
            Self::Control => configured.min(CONTROL_FRAME_BYTES),
        }
    }

    fn queue_frames(self) -> usize {
        queue_frames(self)
    }

    fn quota(self) -> Quota {
        Quota::per_second(frames_per_second(self)).allow_burst(burst(self))
    }
}

/// Sustained number of frames per second that one peer may send.
///
/// The library throttles a peer that sends more *in the read loop of all its lanes*, so an honest
/// peer must never reach this limit: a view takes about five votes and certificates from each peer,
/// and the design's upper limit is 200 views a second.
const fn frames_per_second(lane: Lane) -> NonZeroU32 {
    match lane {
        Lane::Votes => nonzero(4_000),
        Lane::Fetch | Lane::Transactions => nonzero(1_000),
        Lane::Control => nonzero(50),
    }
}

/// Number of frames that one peer may send in a burst. This determines the memory cost.
const fn burst(lane: Lane) -> NonZeroU32 {
    match lane {
        Lane::Votes => nonzero(128),
        Lane::Fetch | Lane::Transactions => nonzero(64),
        Lane::Control => nonzero(16),
    }
}

const fn queue_frames(lane: Lane) -> usize {
    match lane {
        Lane::Votes => 256,
        Lane::Fetch | Lane::Transactions => 128,
        Lane::Control => 32,
    }
}

/// How many bytes a second are read from one of `peers` peers, with bursts of [`READ_BURST`].
pub(crate) fn inbound_rate(peers: usize, is_fetching: bool) -> u64 {
    let share = READ_ALL_PEERS / (peers.max(1) as u64);
    match is_fetching {
        true => READ_FETCHING,
        false => share.clamp(READ_PEER[0], READ_PEER[1]),
    }
}

pub(crate) const fn pulse_quota() -> Quota {
    Quota::per_second(PULSE_RATE).allow_burst(PULSE_BURST)
}

/// Sum of the bursts of all channels.
const TOTAL_BURST: usize = {
    let mut sum = PULSE_BURST.get() as usize;
    let mut lane = 0;
    while lane < LANES {
        sum += burst(Lane::ALL[lane]).get() as usize;
        lane += 1;
    }
    sum
};

// The urgent lanes and at most one second's pings and pongs share one of a connection's queues; the
// other lanes share the other queue.
const _: () = assert!(
    queue_frames(Lane::Votes) + queue_frames(Lane::Control) + PULSE_RATE.get() as usize
        <= QUEUE_SLOTS
);
const _: () = assert!(queue_frames(Lane::Fetch) + queue_frames(Lane::Transactions) <= QUEUE_SLOTS);

/// Estimates the bytes that a network of `validators` (including this node) allocates before the
/// first frame, with all peers connected. See the table in the module documentation.
pub fn preallocated_bytes(validators: usize) -> usize {
    const INBOUND_SLOT: usize = 224;
    const ROUTER_SLOT: usize = 312;
    const SEND_SLOT: usize = 104;
    const ACTOR_SLOT: usize = 400;
    let burst_slots = TOTAL_BURST * validators * TRACKED_PEER_SETS;
    let peers = validators.saturating_sub(1);
    burst_slots * (INBOUND_SLOT + ROUTER_SLOT)
        + QUEUE_SLOTS * ROUTER_SLOT
        + 2 * QUEUE_SLOTS * peers * SEND_SLOT
        + 2 * QUEUE_SLOTS * ACTOR_SLOT
        + peers * crate::wire::READ_BUFFER_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use commonware_cryptography::ed25519::PublicKey;
    use commonware_p2p::Recipients;
    use commonware_runtime::{IoBuf, IoBufs};

    #[test]
    fn preallocated_memory_stays_within_its_budget() {
        for (validators, budget) in [(4, 10_000_000), (10, 10_000_000), (100, 60_000_000)] {
            let bytes = preallocated_bytes(validators);
            assert!(bytes < budget, "{bytes} for {validators}");
        }
    }

    #[test]
    fn slots_are_no_larger_than_the_estimate_assumes() {
        // A mailbox slot adds an 8-byte stamp to the message.
        let inbound = size_of::<(PublicKey, IoBuf)>() + 8;
        let send = size_of::<(u64, IoBufs)>() + 8;
        let router = size_of::<(Recipients<PublicKey>, u64, IoBufs, bool)>() + 16;
        assert!(inbound <= 224, "{inbound}");
        assert!(send <= 104, "{send}");
        assert!(router <= 312, "{router}");
    }

    #[test]
    fn every_queue_takes_a_frame_of_the_largest_size() {
        for lane in Lane::ALL {
            for peers in [1, 9, 99, 499] {
                let largest = lane.max_frame_bytes(4 << 20);
                assert!(lane.queue_bytes(peers, 4 << 20) >= largest);
            }
        }
    }
}
