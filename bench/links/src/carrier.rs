//! The carrier thread: it handles sockets, due deliveries, and orders.

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

/// The most connections of one ordered pair. Further ones are not accepted until one has ended.
pub const MAX_CONNECTIONS: usize = 256;

/// The requested size of each socket's kernel buffers; Linux doubles it. Enough for loopback's
/// throughput, and small beside a window.
pub const KERNEL_BUFFER_BYTES: usize = 256 << 10;

pub(crate) const ORDERS: Token = Token(0);
const TIMER: Token = Token(1);
const FIRST_LISTENER: usize = 2;

/// Events taken at once: few, so that due deliveries do not wait for many of them.
const EVENTS: usize = 32;

/// Deliveries due this soon are waited for by polling: sleeping and waking up takes longer.
const AWAKE: Duration = Duration::from_micros(10);

/// The most wake-up latency that is compensated, as in virtual machines. The recent average is
/// compensated: the timer is set earlier by it and the rest is polled, and bytes that woke the
/// thread count as having arrived earlier by it. A longer latency means a busy machine.
const MAX_WAKING: Duration = Duration::from_micros(120);

/// The weight of a new measurement of the wake-up latency is one over this.
const WAKING_WEIGHT: u32 = 8;

/// The retry interval after the system refused to accept, for example when all descriptors are in
/// use.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// The most stale entries in the heap, in addition to one per connection, before they are removed.
const MAX_STALE: usize = 65_536;

/// Orders to the carrier. Each is answered when it is done.
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
    /// Which ordered pairs are cut, by their index.
    Cut(Vec<bool>),
    Reset {
        from: usize,
        to: usize,
    },
    CpuTime,
}

/// An order and the channel for its answer: a number that depends on the order.
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

/// See the module's documentation.
pub(crate) struct Carrier {
    poll: Poll,
    timer: Timer,
    orders: Receiver<Envelope>,
    world: World,
    listeners: Vec<Listener>,
    /// Indexed by slot. Slots are reused.
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    heap: BinaryHeap<Reverse<(Instant, Wake)>>,
    /// The recent average of the wake-up latency.
    waking: Duration,
    /// When the bytes that caused the current event were sent.
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

    /// Runs until the sender of orders is dropped.
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
                        if self.take_orders().is_err() {
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
                                // An earlier event may have ended it.
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

    /// Measures the wake-up latency by the timer, and backdates other events that woke the thread.
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

    /// Serves everything that is due, and sets the timer for the next deadline.
    fn serve_what_is_due(&mut self) -> io::Result<Option<Duration>> {
        // Deadlines that pass while this runs are served only after pending events.
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
                // Accepting resumes when the next one ends.
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
            // Not immediately: accepting closes connections too, and the two would call each other.
            let now = Instant::now();
            self.heap.push(Reverse((now, Wake::Accept(place))));
        }
    }

    /// Executes all queued orders. Fails if the sender has been dropped.
    fn take_orders(&mut self) -> Result<(), TryRecvError> {
        loop {
            match self.orders.try_recv() {
                Ok((order, answer)) => {
                    let result = self.carry_out(order);
                    // The caller waits for this, or is gone and does not need it.
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

/// Requests small kernel buffers, so that the window limits the sender. Accepted sockets inherit
/// them from the listener.
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
