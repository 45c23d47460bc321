//! A channel from many peers to one thread, with a queue for each peer.

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use parking_lot::Mutex;
use quorate_lanes::{FairLimits, FairQueue};
use quorate_types::ValidatorIndex;
use std::{sync::Arc, time::Duration};

/// Adds items to the peers' queues.
pub(crate) struct TurnSender<T> {
    queue: Arc<Mutex<FairQueue<T>>>,
    bell: Sender<()>,
}

impl<T> Clone for TurnSender<T> {
    fn clone(&self) -> Self {
        Self {
            queue: self.queue.clone(),
            bell: self.bell.clone(),
        }
    }
}

/// Takes items from the peers' queues in turn.
pub(crate) struct TurnReceiver<T> {
    queue: Arc<Mutex<FairQueue<T>>>,
    bell: Receiver<()>,
}

pub(crate) fn turns<T>(peers: usize, limits: FairLimits) -> (TurnSender<T>, TurnReceiver<T>) {
    let queue = Arc::new(Mutex::new(FairQueue::new(peers, limits)));
    // A capacity of one is enough: the receiver looks until all queues are empty.
    let (ring, bell) = bounded(1);
    let sender = TurnSender {
        queue: queue.clone(),
        bell: ring,
    };
    (sender, TurnReceiver { queue, bell })
}

impl<T> TurnSender<T> {
    /// Adds items of a peer without waiting. Returns how many there was no room for.
    pub(crate) fn send(&self, from: ValidatorIndex, bytes: usize, item: T) -> usize {
        let lost = self.queue.lock().push(from.as_usize(), bytes, item);
        // If the bell is full, it has been rung already. Without a receiver the node is ending.
        let _ = self.bell.try_send(());
        lost.len()
    }
}

impl<T> TurnReceiver<T> {
    /// Waits until there may be an item, at most this long. Returns whether any sender is left.
    pub(crate) fn wait(&self, limit: Option<Duration>) -> bool {
        match limit {
            None => self.bell.recv().is_ok(),
            Some(limit) => self.bell.recv_timeout(limit) != Err(RecvTimeoutError::Disconnected),
        }
    }

    /// Takes the next item of the peers that may be served.
    pub(crate) fn take(&self, may: impl Fn(usize) -> bool) -> Option<(ValidatorIndex, T)> {
        let (peer, item) = self.queue.lock().pop_from(may)?;
        let peer = u32::try_from(peer).expect("places are 32 bits");
        Some((ValidatorIndex(peer), item))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.lock().is_empty()
    }
}
