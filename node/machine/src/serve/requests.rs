//! Requests that wait for their answers, in two queues for each peer: blocks by their ids, which
//! consensus may be waiting for, and bulk.

use super::Request;
use crate::{
    directory::PeerIndex,
    turns::{Bell, Ringer, bell},
};
use parking_lot::Mutex;
use quorate_lanes::{FairLimits, FairQueue};
use quorate_types::Height;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

/// Most requests that wait in one queue. Further ones of a peer are dropped; it requests again, here
/// or elsewhere.
pub(crate) const LIMITS: FairLimits = FairLimits {
    peer_items: 64,
    peer_bytes: usize::MAX,
    total_bytes: usize::MAX,
};

struct Queues {
    blocks: FairQueue<Request>,
    bulk: FairQueue<Request>,
}

/// Where requests are queued.
#[derive(Clone)]
pub struct Requests {
    queues: Arc<Mutex<Queues>>,
    holds: Arc<AtomicBool>,
    ringer: Ringer,
}

/// Where they are taken from.
pub struct WaitingRequests {
    queues: Arc<Mutex<Queues>>,
    /// Whether a request may be held until there is a new block.
    holds: Arc<AtomicBool>,
    bell: Bell,
}

/// Empty queues for so many peers.
pub fn requests(peers: usize) -> (Requests, WaitingRequests) {
    let queues = Arc::new(Mutex::new(Queues {
        blocks: FairQueue::new(peers, LIMITS),
        bulk: FairQueue::new(peers, LIMITS),
    }));
    let holds = Arc::new(AtomicBool::new(false));
    let (ringer, bell) = bell();
    let sender = Requests {
        queues: queues.clone(),
        holds: holds.clone(),
        ringer,
    };
    let waiting = WaitingRequests {
        queues,
        holds,
        bell,
    };
    (sender, waiting)
}

impl Requests {
    /// Queues a request. Returns whether there was room; a repeated request needs none.
    pub fn ask(&self, from: PeerIndex, request: Request) -> bool {
        let mut queues = self.queues.lock();
        let queue = match request.is_bulk() {
            true => &mut queues.bulk,
            false => &mut queues.blocks,
        };
        if queue
            .of(from.as_usize())
            .any(|waiting| waiting.is(&request))
        {
            return true;
        }
        let lost = queue.push(from.as_usize(), 0, request);
        drop(queues);
        self.ringer.ring();
        lost.is_empty()
    }

    /// Has held requests looked at again, since there is a new block.
    pub(crate) fn wake(&self) {
        if self.holds.load(SeqCst) {
            self.ringer.ring();
        }
    }
}

impl WaitingRequests {
    /// Queues a follower's request again, unless it has sent another one meanwhile.
    pub(crate) fn follow_again(&self, from: PeerIndex, height: Height) {
        let mut queues = self.queues.lock();
        let is_follow = |other: &Request| matches!(other, Request::Follow(_));
        if !queues.bulk.of(from.as_usize()).any(is_follow) {
            queues
                .bulk
                .push(from.as_usize(), 0, Request::Follow(height));
        }
    }

    /// Sets whether a request may be held until there is a new block. It is set before the store is
    /// read: a block that is missed there wakes this side.
    pub(crate) fn set_holds(&self, holds: bool) {
        self.holds.store(holds, SeqCst);
    }

    /// Waits until there may be a request, at most this long. Returns whether any sender is left.
    pub(crate) fn wait(&self, limit: Option<Duration>) -> bool {
        self.bell.wait(limit)
    }

    /// The peers that wait for blocks.
    pub(crate) fn waiting_for_blocks(&self) -> Vec<usize> {
        self.queues.lock().blocks.waiting().collect()
    }

    /// The peers that wait for bulk, with the next request of each.
    pub(crate) fn waiting_for_bulk(&self) -> Vec<(usize, Request)> {
        let queues = self.queues.lock();
        let waiting = queues.bulk.waiting();
        waiting
            .filter_map(|peer| Some((peer, queues.bulk.of(peer).next()?.clone())))
            .collect()
    }

    /// Takes a request for a block, of the peers that may be served.
    pub(crate) fn take_block(&self, may: impl Fn(usize) -> bool) -> Option<(PeerIndex, Request)> {
        let (peer, request) = self.queues.lock().blocks.pop_from(may)?;
        Some((PeerIndex(peer), request))
    }

    /// Takes the next request for bulk of a peer.
    pub(crate) fn take_bulk(&self, peer: usize) -> Option<(PeerIndex, Request)> {
        let (peer, request) = self.queues.lock().bulk.pop_from(|other| other == peer)?;
        Some((PeerIndex(peer), request))
    }
}
