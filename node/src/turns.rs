//! A channel of many peers to one thread, in which each peer has a queue of its own.

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use parking_lot::Mutex;
use quorate_p2p::{FairLimits, FairQueue};
use quorate_types::ValidatorIndex;
use std::{sync::Arc, time::Duration};

/// Puts things into the peers' queues.
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

/// Takes things from the peers' queues in turn.
pub(crate) struct TurnReceiver<T> {
    queue: Arc<Mutex<FairQueue<T>>>,
    bell: Receiver<()>,
}

/// A channel with queues of so many peers.
pub(crate) fn turns<T>(peers: usize, limits: FairLimits) -> (TurnSender<T>, TurnReceiver<T>) {
    let queue = Arc::new(Mutex::new(FairQueue::new(peers, limits)));
    // A single ring is enough: whoever hears it looks until nothing is there.
    let (ring, bell) = bounded(1);
    let sender = TurnSender {
        queue: queue.clone(),
        bell: ring,
    };
    (sender, TurnReceiver { queue, bell })
}

impl<T> TurnSender<T> {
    /// Adds something of a peer, without waiting. Returns how much there was no room for.
    pub(crate) fn send(&self, from: ValidatorIndex, bytes: usize, item: T) -> usize {
        let lost = self.queue.lock().push(from.as_usize(), bytes, item);
        // A full bell has been rung already; one without a listener is at the node's end.
        let _ = self.bell.try_send(());
        lost.len()
    }

    /// Whether something of a peer waits of which this holds.
    pub(crate) fn any(&self, from: ValidatorIndex, holds: impl Fn(&T) -> bool) -> bool {
        self.queue.lock().of(from.as_usize()).any(holds)
    }
}

impl<T> TurnReceiver<T> {
    /// Waits until something may be there, so long at most. Returns whether anybody can send still.
    pub(crate) fn wait(&self, limit: Option<Duration>) -> bool {
        match limit {
            None => self.bell.recv().is_ok(),
            Some(limit) => self.bell.recv_timeout(limit) != Err(RecvTimeoutError::Disconnected),
        }
    }

    /// Takes the next thing of those that may be served.
    pub(crate) fn take(&self, may: impl Fn(usize) -> bool) -> Option<(ValidatorIndex, T)> {
        let (peer, item) = self.queue.lock().pop_from(may)?;
        let peer = u32::try_from(peer).expect("places are 32 bits");
        Some((ValidatorIndex(peer), item))
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.lock().is_empty()
    }

    /// The peers of whom something waits.
    pub(crate) fn waiting(&self) -> Vec<usize> {
        self.queue.lock().waiting().collect()
    }
}
