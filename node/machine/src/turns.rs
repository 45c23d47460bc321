//! Channels from many peers to one thread, with a queue for each peer.

use crate::directory::PeerIndex;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use parking_lot::Mutex;
use quorate_lanes::{FairLimits, FairQueue};
use std::{sync::Arc, time::Duration};

/// Wakes the thread that waits at a [`Bell`].
#[derive(Clone)]
pub(crate) struct Ringer(Sender<()>);

/// Where one thread waits until there may be something for it.
pub(crate) struct Bell(Receiver<()>);

pub(crate) fn bell() -> (Ringer, Bell) {
    // A capacity of one is enough: whoever is woken looks until all queues are empty.
    let (ringer, bell) = bounded(1);
    (Ringer(ringer), Bell(bell))
}

impl Ringer {
    pub(crate) fn ring(&self) {
        // If the bell is full, it has been rung already. Without a receiver the node is ending.
        let _ = self.0.try_send(());
    }
}

impl Bell {
    pub(crate) fn is_rung(&self) -> bool {
        !self.0.is_empty()
    }

    pub(crate) fn silence(&self) {
        // An empty channel is what is wanted.
        let _ = self.0.try_recv();
    }

    /// Waits until it is rung, at most this long. Returns whether any ringer is left.
    pub(crate) fn wait(&self, limit: Option<Duration>) -> bool {
        match limit {
            None => self.0.recv().is_ok(),
            Some(limit) => self.0.recv_timeout(limit) != Err(RecvTimeoutError::Disconnected),
        }
    }
}

/// Adds items to the peers' queues.
pub(crate) struct TurnSender<T> {
    queue: Arc<Mutex<FairQueue<T>>>,
    ringer: Ringer,
}

impl<T> Clone for TurnSender<T> {
    fn clone(&self) -> Self {
        Self {
            queue: self.queue.clone(),
            ringer: self.ringer.clone(),
        }
    }
}

/// Takes items from the peers' queues in turn.
pub(crate) struct TurnReceiver<T> {
    queue: Arc<Mutex<FairQueue<T>>>,
    bell: Bell,
}

pub(crate) fn turns<T>(peers: usize, limits: FairLimits) -> (TurnSender<T>, TurnReceiver<T>) {
    let queue = Arc::new(Mutex::new(FairQueue::new(peers, limits)));
    let (ringer, bell) = bell();
    let sender = TurnSender {
        queue: queue.clone(),
        ringer,
    };
    (sender, TurnReceiver { queue, bell })
}

impl<T> TurnSender<T> {
    /// Adds items of a peer without waiting. Returns how many there was no room for.
    pub(crate) fn send(&self, from: PeerIndex, bytes: usize, item: T) -> usize {
        let lost = self.queue.lock().push(from.as_usize(), bytes, item);
        self.ringer.ring();
        lost.len()
    }
}

impl<T> TurnReceiver<T> {
    /// Waits until there may be an item, at most this long. Returns whether any sender is left.
    pub(crate) fn wait(&self, limit: Option<Duration>) -> bool {
        self.bell.wait(limit)
    }

    /// Takes the next item of the peers that may be served.
    pub(crate) fn take(&self, may: impl Fn(usize) -> bool) -> Option<(PeerIndex, T)> {
        let (peer, item) = self.queue.lock().pop_from(may)?;
        Some((PeerIndex(peer), item))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.lock().is_empty()
    }
}
