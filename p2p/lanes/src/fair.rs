//! Fair queueing: one queue per peer, served in turns.
//!
//! The algorithm is deficit round robin (Shreedhar and Varghese, 1995): at each turn a peer gains a
//! credit of [`QUANTUM_BYTES`], and is served as long as the credit lasts. So peers share by bytes,
//! whatever their frame sizes, and a peer that sends little waits for at most one turn of each
//! other peer.

use std::collections::VecDeque;

/// Bytes of credit that a peer gains per turn.
const QUANTUM_BYTES: usize = 64 << 10;

/// Overhead charged per item, so that many small items bring no advantage.
const ITEM_BYTES: usize = 256;

#[derive(Clone, Copy, Debug)]
pub struct FairLimits {
    /// Items of one peer.
    pub peer_items: usize,
    /// Bytes of one peer. A single item may be larger.
    pub peer_bytes: usize,
    /// Bytes of all peers. Above this, the peer with the most queued bytes loses its newest item.
    pub total_bytes: usize,
}

/// Queues of peers 0 to n − 1, for one consumer that takes from them in turn.
#[derive(Debug)]
pub struct FairQueue<T> {
    limits: FairLimits,
    queues: Vec<Queue<T>>,
    /// Peers whose queues are not empty, next first.
    turns: VecDeque<usize>,
    bytes: usize,
}

#[derive(Debug)]
struct Queue<T> {
    items: VecDeque<(usize, T)>,
    bytes: usize,
    /// Remaining credit from its turns.
    credit: usize,
}

impl<T> FairQueue<T> {
    /// Empty queues for `peers` peers.
    pub fn new(peers: usize, limits: FairLimits) -> Self {
        let queue = |_| Queue {
            items: VecDeque::new(),
            bytes: 0,
            credit: 0,
        };
        Self {
            limits,
            queues: (0..peers).map(queue).collect(),
            turns: VecDeque::new(),
            bytes: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Number of queued bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The queued items of one peer.
    pub fn of(&self, peer: usize) -> impl Iterator<Item = &T> {
        self.queues[peer].items.iter().map(|(_, item)| item)
    }

    /// The peers with queued items.
    pub fn waiting(&self) -> impl Iterator<Item = usize> {
        self.turns.iter().copied()
    }

    /// Adds an item of a peer. Returns the dropped items if there is no room: this one, or items of
    /// the peer with the most queued bytes.
    pub fn push(&mut self, peer: usize, bytes: usize, item: T) -> Vec<(usize, T)> {
        let queue = &mut self.queues[peer];
        let full = queue.items.len() >= self.limits.peer_items
            || (!queue.items.is_empty() && queue.bytes + bytes > self.limits.peer_bytes);
        if full {
            return vec![(peer, item)];
        }
        if queue.items.is_empty() {
            self.turns.push_back(peer);
        }
        queue.items.push_back((bytes, item));
        queue.bytes += bytes;
        self.bytes += bytes;
        let mut lost = Vec::new();
        while self.bytes > self.limits.total_bytes {
            let Some(most) = self.waiting().max_by_key(|peer| self.queues[*peer].bytes) else {
                break;
            };
            lost.extend(self.drop_newest(most));
        }
        lost
    }

    fn drop_newest(&mut self, peer: usize) -> Option<(usize, T)> {
        let queue = &mut self.queues[peer];
        let (bytes, item) = queue.items.pop_back()?;
        queue.bytes -= bytes;
        self.bytes -= bytes;
        if queue.items.is_empty() {
            queue.credit = 0;
            self.turns.retain(|other| *other != peer);
        }
        Some((peer, item))
    }

    pub fn pop(&mut self) -> Option<(usize, T)> {
        self.pop_from(|_| true)
    }

    /// Takes the next item of a peer for which `may` is true.
    pub fn pop_from(&mut self, may: impl Fn(usize) -> bool) -> Option<(usize, T)> {
        if !self.turns.iter().any(|peer| may(*peer)) {
            return None;
        }
        loop {
            let peer = *self.turns.front()?;
            let queue = &mut self.queues[peer];
            let price = queue.items.front()?.0 + ITEM_BYTES;
            if !may(peer) {
                self.turns.rotate_left(1);
                continue;
            }
            if queue.credit < price {
                queue.credit += QUANTUM_BYTES;
                self.turns.rotate_left(1);
                continue;
            }
            queue.credit -= price;
            let (bytes, item) = queue.items.pop_front()?;
            queue.bytes -= bytes;
            self.bytes -= bytes;
            if queue.items.is_empty() {
                queue.credit = 0;
                self.turns.pop_front();
            }
            return Some((peer, item));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: FairLimits = FairLimits {
        peer_items: 100,
        peer_bytes: 10 << 20,
        total_bytes: 15 << 20,
    };

    #[test]
    fn who_floods_waits_behind_itself_alone() {
        let mut queue = FairQueue::new(3, LIMITS);
        for number in 0..100 {
            queue.push(0, 100_000, number);
        }
        assert!(queue.push(1, 150, 1_000).is_empty());
        assert!(queue.push(2, 150, 2_000).is_empty());
        let first: Vec<usize> = (0..4).filter_map(|_| queue.pop()).map(|(p, _)| p).collect();
        assert!(first.contains(&1) && first.contains(&2), "{first:?}");
    }

    #[test]
    fn peers_share_by_bytes_and_each_keeps_its_order() {
        let mut queue = FairQueue::new(2, LIMITS);
        for number in 0..100 {
            queue.push(0, 100_000, number);
            queue.push(1, 1_000, number);
        }
        let (mut bytes, mut next) = ([0_usize; 2], [0; 2]);
        while bytes[1] < 100_000 {
            let (peer, number) = queue.pop().expect("more");
            assert_eq!(number, next[peer], "peer {peer}");
            next[peer] += 1;
            bytes[peer] += if peer == 0 { 100_000 } else { 1_000 };
        }
        assert!(bytes[0] <= 3 * bytes[1], "{bytes:?}");
    }

    #[test]
    fn one_is_refused_for_its_own_and_loses_when_all_together_are_too_many() {
        let mut queue = FairQueue::new(3, LIMITS);
        for number in 0..10 {
            assert!(queue.push(0, 1 << 20, number).is_empty());
        }
        assert_eq!(queue.push(0, 1, 10), [(0, 10)], "its own limit");
        for number in 0..6 {
            let lost = queue.push(1, 1 << 20, number);
            if number < 5 {
                assert!(lost.is_empty());
            } else {
                assert_eq!(lost, [(0, 9)], "who has most loses its newest");
            }
        }
        assert!(queue.push(2, 10, 7).iter().all(|(peer, _)| *peer == 0));
        assert!(queue.bytes() <= LIMITS.total_bytes);
        let mut queue = FairQueue::new(1, LIMITS);
        assert!(
            queue.push(0, 12 << 20, 1).is_empty(),
            "a single large one passes"
        );
        assert_eq!(queue.pop(), Some((0, 1)));
        assert!(queue.is_empty() && queue.bytes() == 0);
        for number in 0..LIMITS.peer_items {
            assert!(queue.push(0, 0, number).is_empty());
        }
        assert_eq!(queue.push(0, 0, 100).len(), 1, "items are counted too");
    }

    #[test]
    fn who_may_not_be_served_is_passed_over() {
        let mut queue = FairQueue::new(2, LIMITS);
        queue.push(0, 10, 'a');
        queue.push(1, 10, 'b');
        assert_eq!(queue.pop_from(|peer| peer == 1), Some((1, 'b')));
        assert_eq!(queue.pop_from(|peer| peer == 1), None);
        assert_eq!(queue.pop(), Some((0, 'a')));
        assert_eq!(queue.pop(), None);
    }
}
