//! One direction of one connection: the bytes in flight, when they arrive, and how many more may be
//! sent.
//!
//! No sockets and no clock: the time is an argument, so that the tests need neither.

use crate::{
    line::{DUPLICATES, Line, Rate},
    link::SEGMENT_BYTES,
    window::Window,
};
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// The most pieces in flight on a connection. Only tiny writes reach the limit; further ones wait
/// in the kernel and are read together.
const MAX_PIECES: usize = 8_192;

/// The most capacity that an emptied queue keeps.
const KEPT_BYTES: usize = 128 << 10;

/// What a stream is sent over.
pub(crate) struct Path<'a> {
    pub(crate) line: &'a mut Line,
    /// The sender's own line.
    pub(crate) egress: &'a mut Rate,
    /// The delay of an acknowledgement.
    pub(crate) back: Duration,
}

impl Path<'_> {
    fn round_trip(&self) -> Duration {
        self.line.link.delay + self.back
    }
}

/// How a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The sender closed its side.
    Finished,
    /// The sender reset the connection.
    Reset,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    bytes: usize,
    due: Instant,
}

/// A lost segment that the sender has not yet learned of.
#[derive(Clone, Copy, Debug)]
struct Hole {
    /// The index of its piece in the queue.
    place: usize,
    followed_by: usize,
}

/// See the module's documentation.
pub(crate) struct Stream {
    /// All bytes held, the oldest first.
    bytes: VecDeque<u8>,
    /// The number of bytes that have arrived and can be written to the receiver.
    ripe: usize,
    /// The other bytes, in pieces.
    pieces: VecDeque<Piece>,
    /// When the last piece arrives: none may arrive before it.
    arrived: Instant,
    hole: Option<Hole>,
    end: Option<(End, Instant)>,
    /// Nothing counts as sent before this time, the end of the handshake.
    opened: Instant,
    window: Window,
}

impl Stream {
    pub(crate) fn new(opened: Instant, now: Instant) -> Self {
        Self {
            bytes: VecDeque::new(),
            ripe: 0,
            pieces: VecDeque::new(),
            arrived: now,
            hole: None,
            end: None,
            opened,
            window: Window::new(now),
        }
    }

    /// How many more bytes may be sent, with at most `limit` in flight.
    pub(crate) fn room(&mut self, now: Instant, limit: usize, slow_start: bool) -> usize {
        if self.pieces.len() >= MAX_PIECES {
            return 0;
        }
        self.window.room(now, self.bytes.len(), limit, slow_start)
    }

    /// Takes bytes that were sent now; at most as many as there is [room](Self::room) for. Returns
    /// how often a loss stalled them.
    pub(crate) fn send(&mut self, now: Instant, bytes: &[u8], path: &mut Path<'_>) -> u64 {
        let trip = path.round_trip();
        self.window.sent(now, self.bytes.len(), trip);
        self.bytes.extend(bytes);
        let mut stalls = 0;
        for piece in bytes.chunks(path.line.piece_bytes(path.egress)) {
            let left = path
                .line
                .send(path.egress, now.max(self.opened), piece.len());
            let mut due = left + path.line.travel();
            self.tell_of_hole(
                left + trip + path.line.link.delay,
                piece.len().div_ceil(SEGMENT_BYTES),
            );
            if let Some(loss) = path.line.lose(trip, piece.len()) {
                stalls += 1;
                due += loss.pause;
                self.window.lost();
                if let (Some(followed_by), None) = (loss.followed_by, self.hole) {
                    self.hole = Some(Hole {
                        place: self.pieces.len(),
                        followed_by,
                    });
                }
            }
            self.pieces.push_back(Piece {
                bytes: piece.len(),
                due,
            });
        }
        stalls
    }

    /// Segments behind a hole make the receiver send duplicate acknowledgements. At the third the
    /// sender retransmits, and the retransmission arrives at `repaired`.
    fn tell_of_hole(&mut self, repaired: Instant, segments: usize) {
        let Some(hole) = &mut self.hole else { return };
        hole.followed_by += segments;
        if hole.followed_by >= DUPLICATES {
            let piece = &mut self.pieces[hole.place];
            piece.due = piece.due.min(repaired);
            self.hole = None;
        }
    }

    /// Ends the stream after everything that was sent. A reset replaces a finish.
    pub(crate) fn finish(&mut self, now: Instant, end: End, path: &mut Path<'_>) {
        let due = now.max(self.opened) + path.line.travel();
        self.end = Some((end, due));
    }

    /// Resends everything that has not arrived, for example after a partition.
    pub(crate) fn send_again(&mut self, now: Instant, path: &mut Path<'_>) {
        let ready = now.max(self.opened);
        self.hole = None;
        for piece in &mut self.pieces {
            piece.due = path.line.send(path.egress, ready, piece.bytes) + path.line.travel();
        }
        if let Some((_, due)) = &mut self.end {
            *due = ready + path.line.travel();
        }
    }

    /// Postpones the end of the handshake.
    pub(crate) fn open_at(&mut self, opened: Instant) {
        self.opened = opened;
    }

    /// Delivers bytes that are due, and calls `late` with each piece's lateness.
    pub(crate) fn arrive(&mut self, now: Instant, mut late: impl FnMut(Duration)) {
        while let Some(piece) = self.pieces.front() {
            let due = piece.due.max(self.arrived);
            if due > now {
                break;
            }
            late(now - due);
            self.arrived = due;
            self.ripe += piece.bytes;
            self.pieces.pop_front();
            self.hole = self.hole.and_then(|hole| {
                let place = hole.place.checked_sub(1)?;
                Some(Hole { place, ..hole })
            });
        }
    }

    /// The bytes that have arrived, in two slices.
    pub(crate) fn ripe(&self) -> (&[u8], &[u8]) {
        let (first, second) = self.bytes.as_slices();
        let in_first = first.len().min(self.ripe);
        (&first[..in_first], &second[..self.ripe - in_first])
    }

    /// Records that bytes have been written to the receiver, whose acknowledgement arrives after
    /// `back`.
    pub(crate) fn received(&mut self, now: Instant, bytes: usize, back: Duration) {
        self.bytes.drain(..bytes);
        self.ripe -= bytes;
        self.window.acknowledge_at(now + back, bytes);
        if self.bytes.is_empty() && self.bytes.capacity() > KEPT_BYTES {
            self.bytes.shrink_to(KEPT_BYTES);
        }
    }

    /// When the next piece arrives, or the end after all pieces.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        match self.pieces.front() {
            Some(piece) => Some(piece.due.max(self.arrived)),
            None if self.bytes.is_empty() => self.end.map(|(_, due)| due.max(self.arrived)),
            None => None,
        }
    }

    /// When the next acknowledgement arrives.
    pub(crate) fn next_acknowledgement(&self) -> Option<Instant> {
        self.window.next_acknowledgement()
    }

    /// Whether the sender has ended it.
    pub(crate) fn is_ending(&self) -> bool {
        self.end.is_some()
    }

    /// The end, if it has arrived and all bytes before it have been written.
    pub(crate) fn take_end(&mut self, now: Instant) -> Option<End> {
        let (end, due) = self.end?;
        (self.bytes.is_empty() && due.max(self.arrived) <= now).then(|| {
            self.end = None;
            end
        })
    }

    /// The number of bytes held.
    pub(crate) fn held(&self) -> usize {
        self.bytes.len()
    }

    /// Discards everything, since the receiver is gone.
    pub(crate) fn discard(&mut self) {
        self.bytes = VecDeque::new();
        self.pieces = VecDeque::new();
        self.ripe = 0;
        self.hole = None;
        self.end = None;
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
