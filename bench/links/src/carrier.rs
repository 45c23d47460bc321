//! The thread that carries: sockets, what is due, and orders.

use crate::{
    connection::{Connection, DIALLER, Next, TARGET, World},
    line::Rate,
    link::Link,
    timer::Timer,
};
use mio::{Events, Poll, Token, net::TcpListener};
use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    io,
    sync::mpsc::{Receiver, SyncSender, TryRecvError},
    time::{Duration, Instant},
};

/// Connections of one ordered pair. Further ones wait unaccepted until one has ended.
pub const MAX_CONNECTIONS: usize = 256;

/// What is asked of the kernel for each socket's buffers; Linux takes twice that. Enough for what
/// loopback can carry, and little beside a window.
pub const KERNEL_BUFFER_BYTES: usize = 256 << 10;

pub(crate) const ORDERS: Token = Token(0);
const TIMER: Token = Token(1);
const FIRST_LISTENER: usize = 2;

/// Events taken at once: few, so that what is due does not wait for many of them.
const EVENTS: usize = 32;

/// What is due so soon is waited for awake: falling asleep and waking up takes longer.
const AWAKE: Duration = Duration::from_micros(10);

/// Waking up takes time, in virtual machines as much as this. What it takes lately is allowed for: the
/// timer is set so much earlier and the rest waited for awake, and bytes that woke the thread are
/// taken to have come so much earlier. More than this is no waking up but a busy machine.
const MAX_WAKING: Duration = Duration::from_micros(120);

/// A measurement of it counts one part in so many.
const WAKING_WEIGHT: u32 = 8;

/// When accepting is tried again after the system has refused it, as when all descriptors are in use.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Stale entries that the heap may hold beside one for each connection, before they are thrown out.
const MAX_STALE: usize = 65_536;

/// What the carrier is told to do. Each is answered when it is done.
pub(crate) enum Order {
    Set {
        from: usize,
        to: usize,
        link: Link,
    },
    SetEgress {
        from: usize,
        bits: Option<u64>,
    },
    /// Which ordered pairs are cut, by their place.
    Cut(Vec<bool>),
    Reset {
        from: usize,
        to: usize,
    },
    CpuTime,
}

/// An order and where its answer goes: a number that depends on the order.
pub(crate) type Envelope = (Order, SyncSender<u64>);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Wake {
    Connection(usize),
    Accept(usize),
}

struct Listener {
    pair: (usize, usize),
    socket: TcpListener,
    open: usize,
}

/// See the head of this file.
pub(crate) struct Carrier {
    poll: Poll,
    timer: Timer,
    orders: Receiver<Envelope>,
    world: World,
    listeners: Vec<Listener>,
    /// By their slot. Slots are used again.
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    heap: BinaryHeap<Reverse<(Instant, Wake)>>,
    /// How long waking up takes, on the average of late.
    waking: Duration,
    /// When the bytes were sent that the event of now tells of.
    sent_at: Option<Instant>,
}

impl Carrier {
    pub(crate) fn new(
        poll: Poll,
        orders: Receiver<Envelope>,
        world: World,
        sockets: Vec<((usize, usize), TcpListener)>,
    ) -> io::Result<Self> {
        let timer = Timer::new(poll.registry(), TIMER)?;
        let mut listeners = Vec::with_capacity(sockets.len());
        for (place, (pair, mut socket)) in sockets.into_iter().enumerate() {
            let token = Token(FIRST_LISTENER + place);
            bound_buffers(&socket)?;
            poll.registry()
                .register(&mut socket, token, mio::Interest::READABLE)?;
            listeners.push(Listener {
                pair,
                socket,
                open: 0,
            });
        }
        Ok(Self {
            poll,
            timer,
            orders,
            world,
            listeners,
            connections: Vec::new(),
            free: Vec::new(),
            heap: BinaryHeap::new(),
            waking: Duration::ZERO,
            sent_at: None,
        })
    }

    /// Carries until whoever gives the orders is gone.
    pub(crate) fn run(mut self) -> io::Result<()> {
        crate::priority::raise_and_note(&self.world.real_time);
        let mut events = Events::with_capacity(EVENTS);
        loop {
            let wait = self.serve_what_is_due()?;
            let asleep = Instant::now();
            match self.poll.poll(&mut events, wait) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            }
            self.learn_waking(&events, asleep);
            for event in &events {
                match event.token() {
                    ORDERS => {
                        if self.obey().is_err() {
                            return Ok(());
                        }
                    }
                    TIMER => self.timer.expired(),
                    Token(token) => {
                        let place = token - FIRST_LISTENER;
                        match place.checked_sub(self.listeners.len()) {
                            None => self.accept(place),
                            Some(socket) => {
                                let (slot, side) = (socket / 2, socket % 2);
                                // It may have ended by an earlier event.
                                if let Some(Some(connection)) = self.connections.get_mut(slot) {
                                    connection.note(side, event);
                                    self.serve(slot);
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    /// Learns from the timer how long waking up took, and backdates what else woke the thread.
    fn learn_waking(&mut self, events: &Events, asleep: Instant) {
        let awake = Instant::now();
        self.sent_at = None;
        if awake - asleep < MAX_WAKING {
            // It may not have slept at all.
            return;
        }
        let mut woken_by_timer = events.iter().filter(|event| event.token() == TIMER);
        if let (Some(_), Some(set_for)) = (woken_by_timer.next(), self.timer.set_for()) {
            let took = awake.saturating_duration_since(set_for).min(MAX_WAKING);
            self.waking = self.waking - self.waking / WAKING_WEIGHT + took / WAKING_WEIGHT;
        } else {
            self.sent_at = Some(awake - self.waking);
        }
    }

    /// Serves all that is due, and sets the timer for what is next.
    fn serve_what_is_due(&mut self) -> io::Result<Option<Duration>> {
        // Nothing that comes due while this runs is served before events have had their turn.
        let now = Instant::now();
        self.sent_at = None;
        while let Some(Reverse((at, wake))) = self.heap.peek().copied() {
            let stale = match wake {
                Wake::Connection(slot) => {
                    let connection = self.connections.get(slot).and_then(Option::as_ref);
                    connection.is_none_or(|connection| connection.wake_at != Some(at))
                }
                Wake::Accept(_) => false,
            };
            if !stale && at > now {
                let early = at - self.waking.min(at - now);
                if early <= now + AWAKE {
                    return Ok(Some(Duration::ZERO));
                }
                return self.timer.set(Some(early), now);
            }
            self.heap.pop();
            match wake {
                _ if stale => {}
                Wake::Connection(slot) => {
                    if let Some(connection) = &mut self.connections[slot] {
                        connection.wake_at = None;
                    }
                    self.serve(slot);
                }
                Wake::Accept(listener) => self.accept(listener),
            }
        }
        self.timer.set(None, now)
    }

    fn serve(&mut self, slot: usize) {
        let Some(connection) = &mut self.connections[slot] else {
            return;
        };
        let now = Instant::now();
        let sent_at = self.sent_at.unwrap_or(now);
        match connection.serve(now, sent_at, self.poll.registry(), &mut self.world) {
            Next::Close => self.close(slot),
            Next::Wait(None) => {}
            Next::Wait(Some(at)) => {
                if connection.wake_at.is_none_or(|wake| at < wake) {
                    connection.wake_at = Some(at);
                    self.heap.push(Reverse((at, Wake::Connection(slot))));
                    self.tidy();
                }
            }
        }
    }

    /// Keeps the heap in proportion to the connections.
    fn tidy(&mut self) {
        if self.heap.len() <= MAX_STALE + self.connections.len() {
            return;
        }
        let connections = &self.connections;
        self.heap.retain(|Reverse((at, wake))| match wake {
            Wake::Accept(_) => true,
            Wake::Connection(slot) => connections[*slot]
                .as_ref()
                .is_some_and(|connection| connection.wake_at == Some(*at)),
        });
    }

    fn accept(&mut self, place: usize) {
        loop {
            let listener = &mut self.listeners[place];
            if listener.open >= MAX_CONNECTIONS {
                // The next one that ends goes on here.
                return;
            }
            let socket = match listener.socket.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The dialler has gone already.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => {
                    let at = Instant::now() + ACCEPT_AGAIN;
                    self.heap.push(Reverse((at, Wake::Accept(place))));
                    return;
                }
            };
            let slot = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            let token = FIRST_LISTENER + self.listeners.len() + 2 * slot;
            let mut tokens = [Token(0); 2];
            tokens[DIALLER] = Token(token + DIALLER);
            tokens[TARGET] = Token(token + TARGET);
            let pair = self.listeners[place].pair;
            let registry = self.poll.registry();
            let dialled = self.sent_at.unwrap_or_else(Instant::now);
            match Connection::accepted(pair, socket, tokens, dialled, registry, &mut self.world) {
                Ok(connection) => {
                    self.connections[slot] = Some(connection);
                    self.listeners[place].open += 1;
                    self.serve(slot);
                }
                // The socket was broken; it is closed by now.
                Err(_) => self.free.push(slot),
            }
        }
    }

    fn close(&mut self, slot: usize) {
        let Some(connection) = self.connections[slot].take() else {
            return;
        };
        let pair = connection.pair;
        connection.close(self.poll.registry(), &self.world);
        self.free.push(slot);
        let place = self
            .listeners
            .iter()
            .position(|listener| listener.pair == pair)
            .expect("a connection comes from a listener");
        let listener = &mut self.listeners[place];
        listener.open -= 1;
        if listener.open + 1 == MAX_CONNECTIONS {
            // Not at once: accepting closes connections too, and the two would call each other.
            let now = Instant::now();
            self.heap.push(Reverse((now, Wake::Accept(place))));
        }
    }

    /// Takes all orders there are. Fails if nobody is left to give any.
    fn obey(&mut self) -> Result<(), TryRecvError> {
        loop {
            match self.orders.try_recv() {
                Ok((order, answer)) => {
                    let result = self.carry_out(order);
                    // Whoever asked waits for this, or is gone and does not care.
                    let _ = answer.send(result);
                }
                Err(TryRecvError::Empty) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    fn carry_out(&mut self, order: Order) -> u64 {
        match order {
            Order::Set { from, to, link } => {
                let place = self.world.place((from, to));
                self.world.lines[place].set(link);
                0
            }
            Order::SetEgress { from, bits } => {
                self.world.egress[from] = Rate::new(bits, Instant::now());
                0
            }
            Order::Cut(cut) => {
                self.cut(&cut);
                0
            }
            Order::Reset { from, to } => self.reset((from, to)),
            Order::CpuTime => cpu_time_us(),
        }
    }

    fn cut(&mut self, cut: &[bool]) {
        let mut healed = vec![false; cut.len()];
        for (place, line) in self.world.lines.iter_mut().enumerate() {
            healed[place] = line.cut && !cut[place];
            line.cut = cut[place];
        }
        for slot in 0..self.connections.len() {
            if let Some(connection) = &mut self.connections[slot]
                && healed[self.world.place(connection.pair)]
            {
                connection.healed(Instant::now(), &mut self.world);
                self.serve(slot);
            }
        }
    }

    fn reset(&mut self, (from, to): (usize, usize)) -> u64 {
        let mut ended = 0;
        for slot in 0..self.connections.len() {
            if let Some(connection) = &mut self.connections[slot]
                && [(from, to), (to, from)].contains(&connection.pair)
            {
                connection.abort(&self.world);
                self.close(slot);
                ended += 1;
            }
        }
        ended
    }
}

/// Asks for small buffers in the kernel, so that the window is what holds a sender back. A listener
/// hands them on to what it accepts.
pub(crate) fn bound_buffers(socket: &impl std::os::fd::AsFd) -> io::Result<()> {
    use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
    set_socket_recv_buffer_size(socket, KERNEL_BUFFER_BYTES)?;
    Ok(set_socket_send_buffer_size(socket, KERNEL_BUFFER_BYTES)?)
}

fn cpu_time_us() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000
}
