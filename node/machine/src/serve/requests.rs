//! Requests that wait for their answers, in two queues for each peer: blocks by their ids, which
//! consensus may be waiting for, and bulk.

use super::Request;
use crate::{
    directory::{Directory, PeerIndex},
    turns::{Bell, Ringer, bell},
};
use parking_lot::Mutex;
use quorate_lanes::{FairLimits, FairQueue};
use quorate_types::{Height, Identity};
use std::{
    collections::BTreeMap,
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

/// Followers' requests that are not answered yet. The parts that come next answer them: where the validators change, all
/// followers would have to find out that their requests are lost.
#[derive(Clone, Default)]
pub struct Unanswered(Arc<Mutex<BTreeMap<Identity, Height>>>);

struct Queues {
    blocks: FairQueue<Request>,
    bulk: FairQueue<Request>,
    peers: Directory,
    unanswered: Unanswered,
}

/// Where requests are queued.
#[derive(Clone)]
pub struct Requests {
    queues: Arc<Mutex<Queues>>,
    holds: Arc<AtomicBool>,
    blocks: Ringer,
    bulk: Ringer,
}

/// Where they are taken from.
pub struct WaitingRequests {
    pub(crate) blocks: BlockRequests,
    pub(crate) bulk: BulkRequests,
}

/// Where requests for blocks are taken from.
pub(crate) struct BlockRequests {
    queues: Arc<Mutex<Queues>>,
    bell: Bell,
}

/// Where requests for bulk are taken from.
pub(crate) struct BulkRequests {
    queues: Arc<Mutex<Queues>>,
    /// Whether a request may be held until there is a new block.
    holds: Arc<AtomicBool>,
    bell: Bell,
}

/// Queues for these peers. What the parts before have not answered waits in them.
pub fn requests(peers: &Directory, unanswered: Unanswered) -> (Requests, WaitingRequests) {
    let mut bulk = FairQueue::new(peers.size(), LIMITS);
    unanswered.0.lock().retain(|identity, height| {
        let peer = peers.find(identity);
        if let Some(peer) = peer {
            bulk.push(peer.as_usize(), 0, Request::Follow(*height));
        }
        peer.is_some()
    });
    let queues = Arc::new(Mutex::new(Queues {
        blocks: FairQueue::new(peers.size(), LIMITS),
        bulk,
        peers: peers.clone(),
        unanswered,
    }));
    let holds = Arc::new(AtomicBool::new(false));
    let (to_blocks, for_blocks) = bell();
    let (to_bulk, for_bulk) = bell();
    let sender = Requests {
        queues: queues.clone(),
        holds: holds.clone(),
        blocks: to_blocks,
        bulk: to_bulk,
    };
    let waiting = WaitingRequests {
        blocks: BlockRequests {
            queues: queues.clone(),
            bell: for_blocks,
        },
        bulk: BulkRequests {
            queues,
            holds,
            bell: for_bulk,
        },
    };
    (sender, waiting)
}

impl Requests {
    /// Queues a request. Returns whether there was room; a repeated request needs none.
    pub fn ask(&self, from: PeerIndex, request: Request) -> bool {
        let mut queues = self.queues.lock();
        if let (Request::Follow(height), Some(identity)) = (&request, queues.peers.identity(from)) {
            queues.unanswered.0.lock().insert(identity, *height);
        }
        let (queue, ringer) = match request.is_bulk() {
            true => (&mut queues.bulk, &self.bulk),
            false => (&mut queues.blocks, &self.blocks),
        };
        if queue
            .of(from.as_usize())
            .any(|waiting| waiting.is(&request))
        {
            return true;
        }
        let lost = queue.push(from.as_usize(), 0, request);
        drop(queues);
        ringer.ring();
        lost.is_empty()
    }

    /// Has held requests looked at again, since there is a new block.
    pub(crate) fn wake(&self) {
        if self.holds.load(SeqCst) {
            self.bulk.ring();
        }
    }
}

impl BlockRequests {
    /// Waits until there may be a request, at most this long. Returns whether any sender is left.
    pub(crate) fn wait(&self, limit: Option<Duration>) -> bool {
        self.bell.wait(limit)
    }

    /// The peers that wait.
    pub(crate) fn waiting(&self) -> Vec<usize> {
        self.queues.lock().blocks.waiting().collect()
    }

    /// Takes a request of the peers that may be served.
    pub(crate) fn take(&self, may: impl Fn(usize) -> bool) -> Option<(PeerIndex, Request)> {
        let (peer, request) = self.queues.lock().blocks.pop_from(may)?;
        Some((PeerIndex(peer), request))
    }
}

impl BulkRequests {
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

    /// Notes that a follower's request is answered.
    pub(crate) fn answered(&self, peer: PeerIndex, from: Height) {
        let queues = self.queues.lock();
        let Some(identity) = queues.peers.identity(peer) else {
            return;
        };
        let mut unanswered = queues.unanswered.0.lock();
        if unanswered.get(&identity) == Some(&from) {
            unanswered.remove(&identity);
        }
    }

    /// What the next parts have to answer.
    pub(crate) fn unanswered(&self) -> Unanswered {
        self.queues.lock().unanswered.clone()
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

    /// The peers that wait, with the next request of each.
    pub(crate) fn waiting(&self) -> Vec<(usize, Request)> {
        let queues = self.queues.lock();
        let waiting = queues.bulk.waiting();
        waiting
            .filter_map(|peer| Some((peer, queues.bulk.of(peer).next()?.clone())))
            .collect()
    }

    /// Takes the next request of a peer.
    pub(crate) fn take(&self, peer: usize) -> Option<(PeerIndex, Request)> {
        let (peer, request) = self.queues.lock().bulk.pop_from(|other| other == peer)?;
        Some((PeerIndex(peer), request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(byte: u8) -> Identity {
        Identity([byte; 32])
    }

    #[test]
    fn the_next_parts_answer_what_is_not_answered() {
        let before = Directory::of([1, 2, 3].map(identity).to_vec());
        let (requests, waiting) = requests(&before, Unanswered::default());
        let ask = |peer, height| requests.ask(PeerIndex(peer), Request::Follow(Height(height)));
        assert!(ask(0, 5) && ask(0, 8) && ask(1, 6) && ask(2, 7));
        // The first is an answer to the request before the last.
        waiting.bulk.answered(PeerIndex(0), Height(5));
        waiting.bulk.answered(PeerIndex(1), Height(6));
        // Who is no longer among the peers is forgotten.
        let after = Directory::of([4, 2, 1].map(identity).to_vec());
        let (_, waiting) = super::requests(&after, waiting.bulk.unanswered());
        let found = waiting.bulk.waiting();
        assert!(
            matches!(found[..], [(2, Request::Follow(Height(8)))]),
            "{found:?}"
        );
        assert_eq!(waiting.bulk.unanswered().0.lock().len(), 1);
    }
}
