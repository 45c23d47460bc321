//! One connection: the dialler's socket, the true address's socket, and a stream each way.

use crate::{
    counters::{Cells, Histogram},
    line::{Line, MAX_PIECE_BYTES, Rate},
    stream::{End, Path, Stream},
};
use mio::{Interest, Registry, Token, event::Event, net::TcpStream};
use std::{
    io::{self, IoSlice, Read, Write},
    net::{Shutdown, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// The most bytes that one connection reads before others have their turn.
const READ_BUDGET: usize = 256 << 10;

/// The dialler's side, and the stream that starts there.
pub(crate) const DIALLER: usize = 0;

/// The true address's side, and the stream that starts there.
pub(crate) const TARGET: usize = 1;

/// All links and their shared state.
pub(crate) struct World {
    pub(crate) targets: Vec<SocketAddr>,
    /// The line from endpoint `from` to `to` is at index `from * endpoints + to`; so are the
    /// counters.
    pub(crate) lines: Vec<Line>,
    pub(crate) egress: Vec<Rate>,
    pub(crate) counters: Arc<[Cells]>,
    pub(crate) lateness: Arc<Histogram>,
    /// Whether the carrier is a real-time thread.
    pub(crate) real_time: Arc<AtomicBool>,
    /// A reusable read buffer.
    pub(crate) scratch: Vec<u8>,
}

impl World {
    pub(crate) fn place(&self, (from, to): (usize, usize)) -> usize {
        from * self.targets.len() + to
    }

    fn line(&self, way: (usize, usize)) -> &Line {
        &self.lines[self.place(way)]
    }

    fn path(&mut self, (from, to): (usize, usize)) -> Path<'_> {
        let back = self.line((to, from)).link.delay;
        let place = self.place((from, to));
        Path {
            line: &mut self.lines[place],
            egress: &mut self.egress[from],
            back,
        }
    }

    fn cells(&self, way: (usize, usize)) -> &Cells {
        &self.counters[self.place(way)]
    }

    fn is_cut(&self, (from, to): (usize, usize)) -> bool {
        self.line((from, to)).cut || self.line((to, from)).cut
    }
}

/// A socket and its state.
struct Side {
    socket: TcpStream,
    connected: bool,
    readable: bool,
    writable: bool,
    /// The end of the stream follows the bytes that can be read; no further event reports it.
    ending: bool,
}

/// The state of the connection to the true address.
enum Dial {
    /// It is dialled then: the SYN is in flight.
    At(Instant),
    /// A partition holds the SYN.
    Held,
    Done,
}

/// What to do with a connection next.
pub(crate) enum Next {
    /// Nothing before this time, or before a socket event.
    Wait(Option<Instant>),
    /// The connection has ended.
    Close,
}

/// See the module's documentation.
pub(crate) struct Connection {
    /// The dialling endpoint and the dialled one.
    pub(crate) pair: (usize, usize),
    tokens: [Token; 2],
    sides: [Option<Side>; 2],
    streams: [Stream; 2],
    /// Which streams have ended at their receiver.
    ended: [bool; 2],
    dial: Dial,
    /// When it must be served next; heap entries with another time are stale.
    pub(crate) wake_at: Option<Instant>,
}

impl Connection {
    /// Creates a connection for a dialler that was accepted; it dialled at `now`.
    pub(crate) fn accepted(
        pair: (usize, usize),
        mut socket: TcpStream,
        tokens: [Token; 2],
        now: Instant,
        registry: &Registry,
        world: &mut World,
    ) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        let both = Interest::READABLE | Interest::WRITABLE;
        registry.register(&mut socket, tokens[DIALLER], both)?;
        let side = Side {
            socket,
            connected: true,
            readable: true,
            writable: true,
            ending: false,
        };
        world.cells(pair).connections.fetch_add(1, Relaxed);
        let mut connection = Self {
            pair,
            tokens,
            sides: [Some(side), None],
            streams: [Stream::new(now, now), Stream::new(now, now)],
            ended: [false; 2],
            dial: Dial::Held,
            wake_at: None,
        };
        connection.begin_handshake(now, world);
        Ok(connection)
    }

    /// The sender and the receiver of one of the streams.
    fn way(&self, stream: usize) -> (usize, usize) {
        let (from, to) = self.pair;
        if stream == DIALLER {
            (from, to)
        } else {
            (to, from)
        }
    }

    /// Sends the SYN now, unless a partition holds it. The dialler may send a round trip later, the
    /// target when the dialler's ACK has arrived.
    fn begin_handshake(&mut self, now: Instant, world: &mut World) {
        if world.is_cut(self.pair) {
            self.dial = Dial::Held;
            return;
        }
        let forth = {
            let line = world.path(self.way(DIALLER)).line;
            line.lose_handshake() + line.travel()
        };
        let back = {
            let line = world.path(self.way(TARGET)).line;
            line.lose_handshake() + line.travel()
        };
        let again = world.line(self.pair).link.delay;
        self.dial = Dial::At(now + forth);
        self.streams[DIALLER].open_at(now + forth + back);
        self.streams[TARGET].open_at(now + forth + back + again);
    }

    /// Records an event of one of its sockets.
    pub(crate) fn note(&mut self, side: usize, event: &Event) {
        let Some(side) = &mut self.sides[side] else {
            return;
        };
        side.ending |= event.is_read_closed() || event.is_error();
        side.readable |= event.is_readable() || side.ending;
        side.writable |= event.is_writable() || event.is_write_closed() || event.is_error();
    }

    /// Called when the partition across it has ended.
    pub(crate) fn healed(&mut self, now: Instant, world: &mut World) {
        if matches!(self.dial, Dial::Held | Dial::At(_)) {
            self.begin_handshake(now, world);
        }
        for stream in [DIALLER, TARGET] {
            let way = self.way(stream);
            self.streams[stream].send_again(now, &mut world.path(way));
        }
    }

    /// Does everything that can be done now. Bytes that can be read were sent at `sent_at`.
    pub(crate) fn serve(
        &mut self,
        now: Instant,
        sent_at: Instant,
        registry: &Registry,
        world: &mut World,
    ) -> Next {
        self.dial(now, registry, world);
        self.finish_connecting(now, world);
        let mut more = false;
        for stream in [DIALLER, TARGET] {
            if !world.line(self.way(stream)).cut {
                let late = |late| world.lateness.record(late);
                self.streams[stream].arrive(now, late);
                self.write(stream, now, world);
                match self.deliver_end(stream, now) {
                    Some(End::Reset) => {
                        self.abort(world);
                        return Next::Close;
                    }
                    Some(End::Finished) => self.ended[stream] = true,
                    None => {}
                }
            }
            match self.read(stream, sent_at, world) {
                Ok(left) => more |= left,
                // In reality its `connect` would not have returned, so nothing was ever sent.
                Err(GaveUp) => return Next::Close,
            }
        }
        if self.ended == [true; 2] {
            return Next::Close;
        }
        Next::Wait(if more {
            Some(now)
        } else {
            self.next_wake(now, world)
        })
    }

    fn dial(&mut self, now: Instant, registry: &Registry, world: &mut World) {
        let Dial::At(at) = self.dial else { return };
        if at > now {
            return;
        }
        if world.is_cut(self.pair) {
            self.dial = Dial::Held;
            return;
        }
        self.dial = Dial::Done;
        match dial(world.targets[self.pair.1], self.tokens[TARGET], registry) {
            Ok(socket) => {
                self.sides[TARGET] = Some(Side {
                    socket,
                    connected: false,
                    readable: false,
                    writable: false,
                    ending: false,
                });
            }
            Err(_) => self.refused(now, world),
        }
    }

    /// A connecting socket becomes writable when the attempt has completed.
    fn finish_connecting(&mut self, now: Instant, world: &mut World) {
        let Some(side) = &mut self.sides[TARGET] else {
            return;
        };
        if side.connected || !side.writable {
            return;
        }
        let failed = !matches!(side.socket.take_error(), Ok(None));
        match side.socket.peer_addr() {
            Ok(_) if !failed => {
                side.connected = true;
                side.readable = true;
            }
            Err(error) if !failed && error.kind() == io::ErrorKind::NotConnected => {
                side.writable = false;
            }
            _ => {
                self.sides[TARGET] = None;
                self.refused(now, world);
            }
        }
    }

    fn refused(&mut self, now: Instant, world: &mut World) {
        world.cells(self.pair).refused.fetch_add(1, Relaxed);
        // The refusal answers the SYN, so it does not wait for the handshake.
        self.streams[TARGET].open_at(now);
        self.receiver_is_gone(DIALLER, now, world);
    }

    /// The receiver of a stream is gone, and a reset informs the sender.
    fn receiver_is_gone(&mut self, stream: usize, now: Instant, world: &mut World) {
        self.forget_held(stream, world);
        self.streams[stream].discard();
        self.ended[stream] = true;
        let back = 1 - stream;
        let way = self.way(back);
        self.streams[back].finish(now, End::Reset, &mut world.path(way));
        self.ended[back] = false;
    }

    fn write(&mut self, stream: usize, now: Instant, world: &mut World) {
        let way = self.way(stream);
        let back = world.line((way.1, way.0)).link.delay;
        loop {
            let Some(side) = &mut self.sides[1 - stream] else {
                return;
            };
            let (first, second) = self.streams[stream].ripe();
            if first.len() + second.len() == 0 || !side.writable || !side.connected {
                return;
            }
            match side
                .socket
                .write_vectored(&[IoSlice::new(first), IoSlice::new(second)])
            {
                Ok(0) => side.writable = false,
                Ok(bytes) => {
                    self.streams[stream].received(now, bytes, back);
                    let cells = world.cells(way);
                    cells.bytes.fetch_add(bytes as u64, Relaxed);
                    cells.held_bytes.fetch_sub(bytes as u64, Relaxed);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => side.writable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return self.receiver_is_gone(stream, now, world),
            }
        }
    }

    fn deliver_end(&mut self, stream: usize, now: Instant) -> Option<End> {
        let side = self.sides[1 - stream]
            .as_ref()
            .filter(|side| side.connected)?;
        let end = self.streams[stream].take_end(now)?;
        if end == End::Finished {
            // If this fails the socket is gone, and the next read reports it.
            let _ = side.socket.shutdown(Shutdown::Write);
        }
        Some(end)
    }

    /// Reads as much as there is room for. Returns whether more can be read at once.
    fn read(&mut self, stream: usize, now: Instant, world: &mut World) -> Result<bool, GaveUp> {
        let way = self.way(stream);
        let link = world.line(way).link;
        let limit = link.window(&world.line((way.1, way.0)).link);
        let held_back = matches!(self.dial, Dial::Held);
        let mut budget = READ_BUDGET;
        while let Some(side) = &mut self.sides[stream] {
            let ending = self.streams[stream].is_ending() || self.ended[stream];
            if !side.readable || !side.connected || ending {
                return Ok(false);
            }
            let room = self.streams[stream].room(now, limit, link.slow_start);
            if room == 0 {
                return Ok(false);
            }
            if budget == 0 {
                return Ok(true);
            }
            let most = room.min(budget).min(MAX_PIECE_BYTES);
            let end = match side.socket.read(&mut world.scratch[..most]) {
                Ok(0) => End::Finished,
                Ok(bytes) => {
                    // A short read means that the kernel's buffer is empty.
                    side.readable = bytes == most || side.ending;
                    budget -= bytes;
                    self.take(stream, now, bytes, world);
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    side.readable = false;
                    return Ok(false);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => End::Reset,
            };
            if stream == DIALLER && held_back {
                return Err(GaveUp);
            }
            self.streams[stream].finish(now, end, &mut world.path(way));
        }
        Ok(false)
    }

    fn take(&mut self, stream: usize, now: Instant, bytes: usize, world: &mut World) {
        let way = self.way(stream);
        let scratch = std::mem::take(&mut world.scratch);
        let stalls = self.streams[stream].send(now, &scratch[..bytes], &mut world.path(way));
        world.scratch = scratch;
        let cells = world.cells(way);
        cells.held_bytes.fetch_add(bytes as u64, Relaxed);
        cells.stalls.fetch_add(stalls, Relaxed);
    }

    fn next_wake(&mut self, now: Instant, world: &World) -> Option<Instant> {
        let mut next = match self.dial {
            Dial::At(at) => Some(at),
            Dial::Held | Dial::Done => None,
        };
        let mut wake = |at: Option<Instant>| next = earlier(next, at);
        for stream in [DIALLER, TARGET] {
            let receiver = self.sides[1 - stream].as_ref();
            let delivers = receiver.is_some_and(|side| side.connected);
            if delivers && !world.line(self.way(stream)).cut {
                wake(self.streams[stream].next_due());
            }
            let sender = self.sides[stream].as_ref();
            if sender.is_some_and(|side| side.readable) && !self.streams[stream].is_ending() {
                wake(self.streams[stream].next_acknowledgement());
            }
        }
        // An acknowledgement may be due already, if bytes that are still held use up the room.
        next.map(|at| at.max(now))
    }

    /// Resets both sides.
    pub(crate) fn abort(&mut self, world: &World) {
        world.cells(self.pair).resets.fetch_add(1, Relaxed);
        for side in self.sides.iter().flatten() {
            // Without this, closing would end the connection with a FIN.
            let _ = rustix::net::sockopt::set_socket_linger(&side.socket, Some(Duration::ZERO));
        }
    }

    /// Deregisters the sockets. Dropping them closes them.
    pub(crate) fn close(mut self, registry: &Registry, world: &World) {
        for stream in [DIALLER, TARGET] {
            self.forget_held(stream, world);
        }
        for side in self.sides.iter_mut().flatten() {
            let _ = registry.deregister(&mut side.socket);
        }
    }

    fn forget_held(&self, stream: usize, world: &World) {
        let held = self.streams[stream].held() as u64;
        world
            .cells(self.way(stream))
            .held_bytes
            .fetch_sub(held, Relaxed);
    }
}

/// The dialler closed before a partition let its SYN through.
struct GaveUp;

fn dial(address: SocketAddr, token: Token, registry: &Registry) -> io::Result<TcpStream> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    super::carrier::bound_buffers(&socket)?;
    registry.register(&mut socket, token, Interest::READABLE | Interest::WRITABLE)?;
    Ok(socket)
}

fn earlier(first: Option<Instant>, second: Option<Instant>) -> Option<Instant> {
    match (first, second) {
        (Some(first), Some(second)) => Some(first.min(second)),
        (first, second) => first.or(second),
    }
}
