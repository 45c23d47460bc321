//! Frames on their way to state sync, in one queue per peer.
//!
//! A peer that sends more than was requested loses its own frames: the answers of the others neither
//! wait behind them nor are dropped for them.

use super::peers::MAX_WINDOW;
use crate::directory::{Directory, PeerIndex};
use crate::turns::{Bell, Ringer, bell};
use bytes::Bytes;
use parking_lot::Mutex;
use quorate_lanes::{FairLimits, FairQueue};
use quorate_types::Identity;
use std::{collections::VecDeque, sync::Arc, time::Duration};

/// What an honest peer has under way at most: the parts requested from it, an offer and a block.
const LIMITS: FairLimits = FairLimits {
    peer_items: MAX_WINDOW + 8,
    peer_bytes: 40 << 20,
    total_bytes: 128 << 20,
};

/// What reaches state sync from the network.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival {
    Frame(Identity, Bytes),
    /// A link was made or lost.
    Linked(Identity, bool),
}

struct Queues {
    links: VecDeque<(Identity, bool)>,
    frames: FairQueue<Bytes>,
}

/// Where the network puts what arrives.
#[derive(Clone)]
pub struct SyncInbox {
    peers: Directory,
    queues: Arc<Mutex<Queues>>,
    ringer: Ringer,
}

/// Where state sync takes it from.
pub struct Arrivals {
    peers: Directory,
    queues: Arc<Mutex<Queues>>,
    bell: Bell,
}

/// An empty inbox for these peers.
pub fn inbox(peers: Directory) -> (SyncInbox, Arrivals) {
    let queues = Arc::new(Mutex::new(Queues {
        links: VecDeque::new(),
        frames: FairQueue::new(peers.size(), LIMITS),
    }));
    let (ringer, bell) = bell();
    let inbox = SyncInbox {
        peers: peers.clone(),
        queues: queues.clone(),
        ringer,
    };
    let arrivals = Arrivals {
        peers,
        queues,
        bell,
    };
    (inbox, arrivals)
}

impl SyncInbox {
    /// Queues a frame. It is dropped if its sender has too many waiting.
    pub fn frame(&self, from: Identity, bytes: Bytes) {
        let Some(place) = self.peers.find(&from) else {
            return;
        };
        let size = bytes.len();
        let mut queues = self.queues.lock();
        let lost = queues.frames.push(place.as_usize(), size, bytes);
        drop(queues);
        drop(lost);
        self.ringer.ring();
    }

    /// Queues that a link was made or lost.
    pub fn linked(&self, peer: Identity, up: bool) {
        self.queues.lock().links.push_back((peer, up));
        self.ringer.ring();
    }
}

impl Arrivals {
    /// Takes what is next, links first.
    pub fn take(&self) -> Option<Arrival> {
        let mut queues = self.queues.lock();
        if let Some((peer, up)) = queues.links.pop_front() {
            return Some(Arrival::Linked(peer, up));
        }
        let (peer, bytes) = queues.frames.pop()?;
        drop(queues);
        let from = self.peers.identity(PeerIndex(peer))?;
        Some(Arrival::Frame(from, bytes))
    }

    /// Waits until something may have arrived, at most this long. Returns whether the network is still
    /// there.
    pub fn wait(&self, limit: Duration) -> bool {
        self.bell.wait(Some(limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::chain;

    #[test]
    fn a_peer_that_floods_loses_its_own_frames_only() {
        let directory = tempfile::tempdir().expect("a directory");
        let (genesis, _) = chain(directory.path());
        let committee = genesis.committee().expect("a committee");
        let identities = committee.identities().to_vec();
        let (inbox, arrivals) = inbox(Directory::of_validator(&committee, &[]));
        let flood = Bytes::from(vec![0; 1 << 20]);
        for _ in 0..1_000 {
            inbox.frame(identities[1], flood.clone());
        }
        let answer = Bytes::from_static(b"an answer");
        for _ in 0..MAX_WINDOW {
            inbox.frame(identities[2], answer.clone());
        }
        inbox.linked(identities[3], true);
        assert_eq!(arrivals.take(), Some(Arrival::Linked(identities[3], true)));
        let mut taken = Vec::new();
        while let Some(arrival) = arrivals.take() {
            taken.push(arrival);
        }
        let of = |peer: Identity| {
            let froms = taken.iter().enumerate();
            froms
                .filter(|(_, arrival)| matches!(arrival, Arrival::Frame(from, _) if *from == peer))
                .map(|(at, _)| at)
                .collect::<Vec<_>>()
        };
        let (flooded, answered) = (of(identities[1]), of(identities[2]));
        assert!(flooded.len() <= LIMITS.peer_items, "{}", flooded.len());
        assert_eq!(answered.len(), MAX_WINDOW);
        let last = answered.last().expect("all are there");
        assert!(
            *last < MAX_WINDOW + 4,
            "behind {} frames of the flood",
            last + 1 - MAX_WINDOW
        );
    }
}
