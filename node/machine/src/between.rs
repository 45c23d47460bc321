//! Frames between two assemblies of a node's parts.
//!
//! Where the validators change, parts for the old set end and parts for the new set begin, on each node at
//! another moment. Whoever is first proposes and asks while the others still work for the old set, whose parts
//! drop what concerns the new one. So the newest frames of consensus are kept for a second, and the new parts
//! get them once more: to them, what concerns the old set is late and nobody's fault, and votes, inquiries and
//! proposals that come twice are known. Frames that arrive while no parts run wait for the next.
//!
//! Without this, the first leaders of an epoch were waited for in vain at every second border.

use bytes::Bytes;
use quorate_consensus::Moment;
use quorate_lanes::Lane;
use quorate_types::Identity;
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

/// How long a frame that was handed over is kept.
const RECENT: Duration = Duration::from_secs(1);

/// The most frames of one peer. Beyond that, and beyond its share of bytes, its oldest are dropped.
const PEER_FRAMES: usize = 128;

/// The most bytes of all peers, which is shared evenly, and the limits of a share. One frame of each peer may be
/// larger than that.
const TOTAL_BYTES: usize = 32 << 20;
const SHARE_BYTES: [usize; 2] = [256 << 10, 4 << 20];

struct Kept {
    number: u64,
    at: Moment,
    handed_over: bool,
    lane: Lane,
    frame: Bytes,
}

#[derive(Default)]
struct Share {
    frames: VecDeque<Kept>,
    bytes: usize,
}

/// Keeps frames for the next parts.
pub struct Between {
    /// Whether what was handed over is kept, too.
    keeps_recent: bool,
    shares: BTreeMap<Identity, Share>,
    arrived: u64,
    is_open: bool,
}

impl Between {
    /// On a chain whose validators can change, recent frames are handed over twice.
    pub fn new(validators_can_change: bool) -> Self {
        Self {
            keeps_recent: validators_can_change,
            shares: BTreeMap::new(),
            arrived: 0,
            is_open: false,
        }
    }

    /// Notes a frame. Returns whether parts run that it is to be handed to now.
    pub fn receive(&mut self, now: Moment, from: Identity, lane: Lane, frame: &Bytes) -> bool {
        let may_concern_the_next = matches!(lane, Lane::Votes | Lane::Control);
        if self.is_open && !(self.keeps_recent && may_concern_the_next) {
            return true;
        }
        let [least, most] = SHARE_BYTES;
        let peers = self.shares.len().max(1);
        let limit = (TOTAL_BYTES / peers).clamp(least, most);
        let share = self.shares.entry(from).or_default();
        share.bytes += frame.len();
        share.frames.push_back(Kept {
            number: self.arrived,
            at: now,
            handed_over: self.is_open,
            lane,
            frame: frame.clone(),
        });
        self.arrived += 1;
        while let Some(oldest) = share.frames.front() {
            let is_over = share.frames.len() > PEER_FRAMES
                || (share.bytes > limit && share.frames.len() > 1)
                || (oldest.handed_over && now.since(oldest.at) > RECENT);
            if !is_over {
                break;
            }
            share.bytes -= oldest.frame.len();
            share.frames.pop_front();
        }
        self.is_open
    }

    /// No parts run.
    pub fn close(&mut self) {
        self.is_open = false;
    }

    /// What the next parts get first, in the order of arrival. They run once there is nothing.
    pub fn open(&mut self, now: Moment) -> Vec<(Identity, Lane, Bytes)> {
        let mut found = Vec::new();
        for (from, share) in std::mem::take(&mut self.shares) {
            let recent = |kept: &Kept| !kept.handed_over || now.since(kept.at) <= RECENT;
            let kept = share.frames.into_iter().filter(recent);
            found.extend(kept.map(|kept| (kept.number, (from, kept.lane, kept.frame))));
        }
        found.sort_by_key(|(number, _)| *number);
        self.is_open = found.is_empty();
        found.into_iter().map(|(_, frame)| frame).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Identity = Identity([1; 32]);
    const OTHER: Identity = Identity([2; 32]);

    fn at(ms: u64) -> Moment {
        Moment(ms * 1_000)
    }

    fn texts(frames: &[(Identity, Lane, Bytes)]) -> Vec<&[u8]> {
        frames.iter().map(|(_, _, frame)| &frame[..]).collect()
    }

    #[test]
    fn the_next_parts_get_what_is_recent_and_what_waited_in_order() {
        let mut between = Between::new(true);
        assert!(between.open(at(0)).is_empty());
        let mut receive = |ms, from, lane, text: &'static str| {
            let frame = Bytes::from_static(text.as_bytes());
            between.receive(at(ms), from, lane, &frame)
        };
        assert!(receive(0, ONE, Lane::Votes, "old"));
        assert!(receive(5_000, ONE, Lane::Votes, "proposal"));
        assert!(receive(5_001, OTHER, Lane::Control, "inquiry"));
        assert!(receive(
            5_002,
            OTHER,
            Lane::Fetch,
            "answer to the old parts"
        ));
        assert!(receive(5_003, OTHER, Lane::Transactions, "transfers"));
        between.close();
        let mut receive = |ms, from, lane, text: &'static str| {
            let frame = Bytes::from_static(text.as_bytes());
            between.receive(at(ms), from, lane, &frame)
        };
        assert!(!receive(5_500, ONE, Lane::Fetch, "request"));
        assert!(!receive(5_501, OTHER, Lane::Votes, "vote"));
        let first = between.open(at(5_900));
        let expected: [&[u8]; 4] = [b"proposal", b"inquiry", b"request", b"vote"];
        assert_eq!(texts(&first), expected);
        // What comes while these are handed over is not overtaken.
        let late = Bytes::from_static(b"late");
        assert!(!between.receive(at(5_901), ONE, Lane::Votes, &late));
        assert_eq!(texts(&between.open(at(5_902))), [b"late"]);
        assert!(between.open(at(5_903)).is_empty());
        assert!(between.receive(at(5_904), ONE, Lane::Votes, &late));
        between.close();
        assert!(between.open(at(8_000)).is_empty(), "too old");
    }

    #[test]
    fn nothing_that_was_handed_over_is_kept_where_the_validators_stay() {
        let mut between = Between::new(false);
        assert!(between.open(at(0)).is_empty());
        let frame = Bytes::from_static(b"vote");
        assert!(between.receive(at(0), ONE, Lane::Votes, &frame));
        between.close();
        assert!(!between.receive(at(1), ONE, Lane::Votes, &frame));
        assert_eq!(between.open(at(2)).len(), 1);
    }

    #[test]
    fn what_waited_is_handed_over_however_long_it_took() {
        let mut between = Between::new(true);
        let frame = Bytes::from_static(b"vote");
        between.receive(at(0), ONE, Lane::Votes, &frame);
        assert_eq!(between.open(at(60_000)).len(), 1);
    }

    #[test]
    fn a_peer_that_floods_loses_its_own_oldest_frames_only() {
        let mut between = Between::new(true);
        let vote = Bytes::from_static(b"vote");
        between.receive(at(0), OTHER, Lane::Votes, &vote);
        let large = Bytes::from(vec![0; SHARE_BYTES[1] / 2]);
        for _ in 0..100 {
            between.receive(at(1), ONE, Lane::Fetch, &large);
            between.receive(at(1), ONE, Lane::Votes, &vote);
        }
        let held = &between.shares[&ONE];
        assert!(held.bytes <= SHARE_BYTES[1] && held.frames.len() <= PEER_FRAMES);
        let huge = Bytes::from(vec![0; SHARE_BYTES[1] + 1]);
        between.receive(at(1), ONE, Lane::Fetch, &huge);
        for _ in 0..1_000 {
            between.receive(at(2), ONE, Lane::Votes, &vote);
        }
        assert_eq!(between.shares[&ONE].frames.len(), PEER_FRAMES);
        assert_eq!(between.shares[&ONE].bytes, PEER_FRAMES * vote.len());
        let found = between.open(at(3));
        assert_eq!(found[0], (OTHER, Lane::Votes, vote));
    }
}
