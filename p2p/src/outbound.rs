//! Outbound frames: one bounded queue per peer and lane, with priorities.
//!
//! The library has two priorities, accepts any amount of the lower one, writes several queued
//! frames at once, and cannot take a frame back. So a vote would wait behind all the blocks that a
//! peer has requested. Here, frames of the lanes that are not urgent wait in a *backlog*. They are
//! handed to the library only while it holds fewer than [`WINDOW_BYTES`] of them for that peer, or
//! none: then a vote waits for at most that much, or for one large frame. In the backlog, `Fetch`
//! goes before `Transactions`.
//!
//! A frame's place in the queue becomes free when the library has encrypted it into the connection,
//! which it signals by dropping the frame. The drop also advances the backlog, so no task or timer
//! is needed.

use crate::{
    lane::LaneLimits as _,
    metrics::{Metrics, Unsent},
    peers::PeerTable,
    wire::Wire,
};
use bytes::Bytes;
use commonware_cryptography::ed25519::PublicKey;
use commonware_p2p::{
    CheckedSender as _, LimitedSender as _, Recipients, authenticated::lookup::Sender,
};
use commonware_runtime::{IoBuf, IoBufs};
use parking_lot::Mutex;
use quorate_lanes::{LANES, Lane};
use std::{
    collections::VecDeque,
    mem,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// Maximum bytes of the non-urgent lanes that the library may hold for one peer, unless it holds a
/// single frame.
const WINDOW_BYTES: usize = 64 << 10;

/// The state shared by all outbound frames.
pub(crate) struct Outbound {
    table: Arc<PeerTable>,
    metrics: Arc<Metrics>,
    /// Indexed by [`Lane::index`].
    senders: [Sender<PublicKey, Wire>; LANES],
    header: IoBuf,
    max_frame_bytes: usize,
    /// Indexed by the peer's place in the table.
    queues: Vec<PeerQueues>,
}

struct PeerQueues {
    /// Indexed by [`Lane::index`].
    rooms: [Room; LANES],
    backlog: Mutex<Backlog>,
}

/// How much of one lane is queued for one peer, in the backlog and in the library.
struct Room {
    frames: AtomicUsize,
    bytes: AtomicUsize,
    max_frames: usize,
    max_bytes: usize,
}

/// Frames of the non-urgent lanes that have not yet been handed to the library.
#[derive(Default)]
struct Backlog {
    fetch: VecDeque<Waiting>,
    transactions: VecDeque<Waiting>,
    /// Bytes of these lanes that the library holds.
    window_bytes: usize,
    /// Whether a thread is advancing the backlog. One is enough, and it may reenter here when the
    /// library refuses a frame.
    moving: bool,
}

/// A frame that occupies room in a peer's queue until it is dropped.
struct Waiting {
    outbound: Arc<Outbound>,
    place: usize,
    lane: Lane,
    frame: Bytes,
    /// Whether it counts towards [`Backlog::window_bytes`].
    windowed: bool,
}

impl Outbound {
    pub(crate) fn new(
        table: Arc<PeerTable>,
        metrics: Arc<Metrics>,
        senders: [Sender<PublicKey, Wire>; LANES],
        header: IoBuf,
        max_frame_bytes: usize,
    ) -> Self {
        let peers = table.capacity();
        let queues = (0..peers)
            .map(|_| PeerQueues {
                rooms: Lane::by_index().map(|lane| Room::new(lane, peers, max_frame_bytes)),
                backlog: Mutex::default(),
            })
            .collect();
        Self {
            table,
            metrics,
            senders,
            header,
            max_frame_bytes,
            queues,
        }
    }

    pub(crate) fn table(&self) -> &PeerTable {
        &self.table
    }

    /// Bytes queued for a peer in a lane.
    pub(crate) fn waiting_bytes(&self, place: usize, lane: Lane) -> usize {
        self.queues[place].rooms[lane.index()].bytes.load(Relaxed)
    }

    /// Counts a frame that has no recipient.
    pub(crate) fn unsent(&self, lane: Lane, reason: Unsent) {
        self.metrics.unsent(lane, reason);
    }

    /// Checks a frame for defects that do not depend on the recipient.
    pub(crate) fn defect(&self, lane: Lane, frame: &Bytes) -> Option<Unsent> {
        if frame.is_empty() {
            Some(Unsent::Empty)
        } else if frame.len() > lane.max_frame_bytes(self.max_frame_bytes) {
            Some(Unsent::Oversize)
        } else {
            None
        }
    }

    /// Queues a valid frame for a peer, or counts why it cannot.
    ///
    /// Each peer gets its own message, although the library could fan out: only this way is the
    /// state of each peer's queue known, and a full queue a counted drop. It takes the caller 0.8
    /// µs per peer (and about 5 µs for waking the runtime), and no more CPU time in total.
    pub(crate) fn send(self: &Arc<Self>, place: usize, lane: Lane, frame: &Bytes) {
        let room = &self.queues[place].rooms[lane.index()];
        let refused = if self.table.is_blocked(place) {
            Some(Unsent::Blocked)
        } else if !self.table.is_linked(place) {
            Some(Unsent::Offline)
        } else if !room.reserve(frame.len()) {
            Some(Unsent::QueueFull)
        } else {
            None
        };
        if let Some(reason) = refused {
            self.metrics.unsent(lane, reason);
            return;
        }
        let waiting = Waiting {
            outbound: self.clone(),
            place,
            lane,
            frame: frame.clone(),
            windowed: false,
        };
        if lane.is_urgent() {
            self.hand_over(waiting);
        } else {
            self.queues[place].backlog.lock().push(waiting);
            self.advance(place);
        }
    }

    /// Hands a frame to the library. If the library refuses it, the frame is dropped and counted.
    fn hand_over(&self, waiting: Waiting) {
        let (lane, bytes) = (waiting.lane, waiting.frame.len());
        if !self.table.is_linked(waiting.place) {
            // The link broke while the frame was in the backlog; dropping the frame counts it.
            return;
        }
        // The library's sender is shared state behind `&mut`; a clone costs three reference counts.
        let mut sender = self.senders[lane.index()].clone();
        let recipient = Recipients::One(self.table.peer(waiting.place).key.clone());
        let Ok(checked) = sender.check(recipient) else {
            self.metrics.unsent(lane, Unsent::Quota);
            return;
        };
        let frame = IoBuf::from(Bytes::from_owner(waiting));
        let message = IoBufs::from([self.header.clone(), frame]);
        if checked.send(message, lane.is_urgent()).accepted() {
            self.metrics.sent(lane, bytes);
        } else {
            self.metrics.unsent(lane, Unsent::Closed);
        }
    }

    /// Hands over as many frames as the window has room for.
    fn advance(&self, place: usize) {
        let backlog = &self.queues[place].backlog;
        if mem::replace(&mut backlog.lock().moving, true) {
            return;
        }
        loop {
            // Finding nothing and giving up the `moving` flag happen under one lock: room made
            // before that is seen by the call above, and room made afterwards finds no thread
            // moving.
            let next = {
                let mut backlog = backlog.lock();
                let next = backlog.next();
                backlog.moving = next.is_some();
                next
            };
            match next {
                Some(waiting) => self.hand_over(waiting),
                None => return,
            }
        }
    }
}

impl Room {
    fn new(lane: Lane, peers: usize, max_frame_bytes: usize) -> Self {
        Self {
            frames: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            max_frames: lane.queue_frames(),
            max_bytes: lane.queue_bytes(peers, max_frame_bytes),
        }
    }

    fn reserve(&self, bytes: usize) -> bool {
        let frames = self.frames.fetch_add(1, Relaxed);
        let waiting = self.bytes.fetch_add(bytes, Relaxed);
        let fits = frames < self.max_frames && waiting.saturating_add(bytes) <= self.max_bytes;
        if !fits {
            self.release(bytes);
        }
        fits
    }

    fn release(&self, bytes: usize) {
        self.frames.fetch_sub(1, Relaxed);
        self.bytes.fetch_sub(bytes, Relaxed);
    }
}

impl Backlog {
    fn push(&mut self, waiting: Waiting) {
        match waiting.lane {
            Lane::Fetch => self.fetch.push_back(waiting),
            _ => self.transactions.push_back(waiting),
        }
    }

    /// The next frame, if the window has room for it.
    fn next(&mut self) -> Option<Waiting> {
        let queue = if self.fetch.is_empty() {
            &mut self.transactions
        } else {
            &mut self.fetch
        };
        let bytes = queue.front()?.frame.len();
        if self.window_bytes > 0 && self.window_bytes + bytes > WINDOW_BYTES {
            return None;
        }
        self.window_bytes += bytes;
        let mut waiting = queue.pop_front()?;
        waiting.windowed = true;
        Some(waiting)
    }
}

impl AsRef<[u8]> for Waiting {
    fn as_ref(&self) -> &[u8] {
        &self.frame
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let bytes = self.frame.len();
        let queues = &self.outbound.queues[self.place];
        queues.rooms[self.lane.index()].release(bytes);
        if !self.outbound.table.is_linked(self.place) {
            self.outbound.metrics.unsent(self.lane, Unsent::LinkLost);
        }
        if self.windowed {
            queues.backlog.lock().window_bytes -= bytes;
            self.outbound.advance(self.place);
        }
    }
}
