//! Lanes: what each kind of traffic may send, how fast, and what its queues cost in memory.
//!
//! # Memory that is allocated before the first frame
//!
//! The library sizes its mailboxes at the start and touches every slot of them. With `n` validators,
//! `B` the sum of the bursts below ([`TOTAL_BURST`] = 280), `S` =
//! [`TRACKED_PEER_SETS`] = 2, and `M` = [`QUEUE_SLOTS`] = 320:
//!
//! | what | slots | bytes per slot |
//! |---|---|---|
//! | inbound mailboxes, one per lane | `B·n·S` | 224 (a decoded public key is 192 of them) |
//! | the router's mailbox | `B·n·S + M` | 312 |
//! | two send queues per connected peer | `2·M·(n − 1)` | 104 |
//! | actors' mailboxes | about `2·M` | 400 |
//! | read buffers | `n − 1` | 16 KiB |
//!
//! [`preallocated_bytes`] adds this up: 1.8 MB for 4 validators, 4.1 MB for 10, 38.6 MB for 100.
//! (Resident memory per node with a full mesh of idle links, all told, was 2.6, 4.8 and 42.5 MB.)
//! The public key in each slot is what is dear, so the bursts are kept small and the sustained
//! rates generous: a mailbox has to bridge only the time until the lane's task runs.
//!
//! Frames come on top of this while they wait: at most [`Lane::queue_bytes`] per peer and lane.
//! A frame to all peers is one allocation, however many queues it waits in.
//! Inbound, at most 8 MiB of one peer and 48 MiB of all wait for the node, in the urgent lanes and again
//! in the patient ones.

use crate::bucket::Bucket;
use commonware_runtime::Quota;
use std::num::NonZeroU32;

/// A class of traffic with a channel, quota, queue and frame limit of its own.
///
/// On each link, `Votes` and `Control` overtake what waits in the other two, and `Fetch` overtakes
/// `Transactions`. Within a lane frames leave in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Votes, certificates, proposals: urgent, frames up to the configured limit.
    Votes,
    /// Requests and replies of blocks and certificates: frames up to the configured limit.
    Fetch,
    /// Forwarded batches of transactions: frames up to 1 MiB, the smallest queue.
    Transactions,
    /// Small messages about the node itself (status, watermarks): urgent, frames up to 64 KiB.
    Control,
}

/// Number of lanes.
pub(crate) const LANES: usize = 4;

/// The channel of the pings that measure latency. It is no [`Lane`]: no other traffic can use up
/// its quota, so a busy peer does not look dead.
pub(crate) const PULSE_CHANNEL: u64 = LANES as u64;

/// Pings and pongs per second and peer. Both ends ping at most four times a second.
const PULSE_RATE: NonZeroU32 = nonzero(20);
const PULSE_BURST: NonZeroU32 = nonzero(8);

/// How many sets of peers the library keeps links for: this epoch's and the one before or after.
pub(crate) const TRACKED_PEER_SETS: usize = 2;

/// Slots of each connection's two send queues, and of the library's actors' mailboxes. The frame
/// limits of the lanes that share a queue add up to less, so the queue itself, where the library
/// would drop silently, never overflows.
pub(crate) const QUEUE_SLOTS: usize = 320;

/// Largest sum of the bytes that may wait for all peers in one lane, spread evenly over the peers
/// (but see [`MIN_QUEUE_FRAMES`]).
const QUEUE_BYTES_ALL_PEERS: usize = 128 << 20;

/// Each peer's queue has room for at least this many frames of the largest size.
const MIN_QUEUE_FRAMES: usize = 2;

/// Each peer's queue holds at most this many bytes per lane.
const MAX_QUEUE_BYTES: usize = 32 << 20;

/// Bytes a second that are read from all peers together, spread evenly over them, within the two
/// limits that follow.
const READ_ALL_PEERS: u64 = 128 << 20;

/// Bytes a second that one peer may send at least and at most, in all lanes. A leader of four that
/// carry 20,000 transfers a second sends 3 MB/s.
const READ_PEER: [u64; 2] = [4 << 20, 16 << 20];

/// Bytes that one peer may send at once: eight frames of the largest size.
const READ_BURST: u64 = 32 << 20;

const TRANSACTIONS_FRAME_BYTES: usize = 1 << 20;
const CONTROL_FRAME_BYTES: usize = 64 << 10;

const fn nonzero(value: u32) -> NonZeroU32 {
    match NonZeroU32::new(value) {
        Some(value) => value,
        None => panic!("a quota is not zero"),
    }
}

impl Lane {
    /// Every lane, the most urgent first.
    pub const ALL: [Self; LANES] = [Self::Votes, Self::Control, Self::Fetch, Self::Transactions];

    /// The lane's name, as in the metrics' label `lane`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Votes => "votes",
            Self::Fetch => "fetch",
            Self::Transactions => "transactions",
            Self::Control => "control",
        }
    }

    /// Every lane, in the order of [`Self::index`].
    pub(crate) const fn by_index() -> [Self; LANES] {
        [Self::Votes, Self::Fetch, Self::Transactions, Self::Control]
    }

    /// The lane's place in a table of all lanes, and its channel on the wire.
    pub(crate) const fn index(self) -> usize {
        match self {
            Self::Votes => 0,
            Self::Fetch => 1,
            Self::Transactions => 2,
            Self::Control => 3,
        }
    }

    /// Whether the lane's frames overtake the others in a connection's queue.
    pub(crate) const fn is_urgent(self) -> bool {
        matches!(self, Self::Votes | Self::Control)
    }

    /// Largest payload of one frame in bytes, given the limit of the configuration.
    pub(crate) fn max_frame_bytes(self, configured: usize) -> usize {
        match self {
            Self::Votes | Self::Fetch => configured,
            Self::Transactions => configured.min(TRANSACTIONS_FRAME_BYTES),
            Self::Control => configured.min(CONTROL_FRAME_BYTES),
        }
    }

    /// Frames per second that one peer may send, sustained.
    ///
    /// The library delays a peer that sends more *in the read loop of all its lanes*, so an honest
    /// peer must never reach this: a view takes about five votes and certificates from each peer,
    /// and 200 views a second are the design's ceiling.
    const fn frames_per_second(self) -> NonZeroU32 {
        match self {
            Self::Votes => nonzero(4_000),
            Self::Fetch | Self::Transactions => nonzero(1_000),
            Self::Control => nonzero(50),
        }
    }

    /// Frames that one peer may send at once. This is what costs memory.
    const fn burst(self) -> NonZeroU32 {
        match self {
            Self::Votes => nonzero(128),
            Self::Fetch | Self::Transactions => nonzero(64),
            Self::Control => nonzero(16),
        }
    }

    /// Frames that may wait for one peer. The sums over the lanes of one priority (and the pings)
    /// stay below [`QUEUE_SLOTS`].
    pub(crate) const fn queue_frames(self) -> usize {
        match self {
            Self::Votes => 256,
            Self::Fetch | Self::Transactions => 128,
            Self::Control => 32,
        }
    }

    /// Bytes that may wait for one peer, so that a peer that stops reading pins little memory.
    pub(crate) fn queue_bytes(self, peers: usize, configured_frame_bytes: usize) -> usize {
        let share = QUEUE_BYTES_ALL_PEERS / peers.max(1);
        let floor = MIN_QUEUE_FRAMES * self.max_frame_bytes(configured_frame_bytes);
        share.min(MAX_QUEUE_BYTES).max(floor)
    }

    /// The quota that the library enforces on the lane, for each peer and direction.
    pub(crate) const fn quota(self) -> Quota {
        Quota::per_second(self.frames_per_second()).allow_burst(self.burst())
    }
}

/// What one of so many peers may send, in bytes.
pub(crate) fn inbound_budget(peers: usize) -> Bucket {
    let share = READ_ALL_PEERS / (peers.max(1) as u64);
    Bucket::new(share.clamp(READ_PEER[0], READ_PEER[1]), READ_BURST)
}

/// The quota of the pings.
pub(crate) const fn pulse_quota() -> Quota {
    Quota::per_second(PULSE_RATE).allow_burst(PULSE_BURST)
}

/// Sum of the bursts of all channels.
const TOTAL_BURST: usize = {
    let mut sum = PULSE_BURST.get() as usize;
    let mut lane = 0;
    while lane < LANES {
        sum += Lane::ALL[lane].burst().get() as usize;
        lane += 1;
    }
    sum
};

// The urgent lanes and at most one second's pings and pongs share one queue of a connection, the
// others share the other.
const _: () = assert!(
    Lane::Votes.queue_frames() + Lane::Control.queue_frames() + PULSE_RATE.get() as usize
        <= QUEUE_SLOTS
);
const _: () =
    assert!(Lane::Fetch.queue_frames() + Lane::Transactions.queue_frames() <= QUEUE_SLOTS);

/// Estimate of the bytes that a network of `validators` (this node among them) allocates before
/// the first frame, when all are connected. The module's documentation has the table.
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
    fn index_of_each_lane_is_its_own() {
        for (index, lane) in Lane::by_index().into_iter().enumerate() {
            assert_eq!(lane.index(), index);
        }
        let mut by_index = Lane::ALL;
        by_index.sort_by_key(|lane| lane.index());
        assert_eq!(by_index, Lane::by_index());
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
