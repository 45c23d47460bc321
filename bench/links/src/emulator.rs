//! What a program holds of the emulator: addresses, switches and counters.

use crate::{
    carrier::{Carrier, Envelope, ORDERS, Order},
    connection::World,
    counters::{Cells, Counters, Histogram, Lateness},
    line::{Line, MAX_PIECE_BYTES, Rate},
    link::{Link, LinkError, check_bandwidth},
};
use mio::{Poll, Waker, net::TcpListener};
use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{SyncSender, sync_channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// How many endpoints there can be: each ordered pair takes a port, and there are 65,535.
pub const MAX_ENDPOINTS: usize = 200;

/// Orders that may wait. Each caller waits for its answer, so this many threads may give orders at once
/// before one waits to hand in its own.
const MAX_ORDERS: usize = 16;

/// Descriptors that the program needs for itself, beside those of the links.
const SPARE_DESCRIPTORS: u64 = 512;

/// Why the emulator does not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such endpoint.
    #[error("there is no endpoint {place}: there are {endpoints}, counted from 0")]
    NoEndpoint {
        /// Who was named.
        place: usize,
        /// How many there are.
        endpoints: usize,
    },
    /// Too many endpoints.
    #[error("{0} endpoints are more than {MAX_ENDPOINTS}")]
    TooMany(usize),
    /// There is no such link.
    #[error("the link from {from} to {to}: {source}")]
    Link {
        /// The sender.
        from: usize,
        /// The receiver.
        to: usize,
        /// What is wrong with it.
        source: LinkError,
    },
    /// A port could not be had.
    #[error("cannot listen on {address} for the link from {from} to {to}: {source}")]
    Listen {
        /// The address, with port 0 if the system was to choose.
        address: SocketAddr,
        /// The sender.
        from: usize,
        /// The receiver.
        to: usize,
        /// What the system says.
        source: io::Error,
    },
    /// The ports do not fit.
    #[error("{ports} ports from {base} on end beyond 65535")]
    Ports {
        /// The first.
        base: u16,
        /// How many are needed.
        ports: usize,
    },
    /// This process may not open enough files.
    #[error(
        "{needed} open files are needed, one for each ordered pair, and {allowed} are allowed: raise the \
         hard limit (`ulimit -Hn`)"
    )]
    OpenFiles {
        /// Without the connections.
        needed: u64,
        /// The hard limit.
        allowed: u64,
    },
    /// The system failed.
    #[error("the links' thread: {0}")]
    Io(#[from] io::Error),
    /// The thread has ended, which is a bug.
    #[error("the links' thread has ended")]
    Stopped,
}

/// Links between endpoints; see the head of the crate. They exist until this is dropped: then all
/// connections end.
///
/// Methods that change something return when it is done, which takes microseconds; none needs an
/// async runtime.
pub struct Emulator {
    targets: Vec<SocketAddr>,
    /// By place, as the counters: the port for the pair. The true address where both are the same.
    addresses: Vec<SocketAddr>,
    counters: Arc<[Cells]>,
    lateness: Arc<Histogram>,
    real_time: Arc<AtomicBool>,
    waker: Waker,
    /// Taken only when this is dropped.
    orders: Option<SyncSender<Envelope>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Emulator {
    /// Starts links between the processes at `targets`, on ports that the system chooses. `links` says
    /// what the way from the first to the second is like; `seed` fixes the dice of each link, though
    /// not when the system has bytes to throw them for.
    ///
    /// # Errors
    ///
    /// If a link has impossible values, or the system has too few ports or files.
    pub fn start(
        targets: Vec<SocketAddr>,
        links: impl Fn(usize, usize) -> Link,
        seed: u64,
    ) -> Result<Self, Error> {
        Self::launch(targets, links, seed, None)
    }

    /// The same, on ports that are known before: process `from` dials `to` at
    /// `base_port + from * targets + to` ([`Self::ports`] are needed).
    ///
    /// # Errors
    ///
    /// As for [`Self::start`], and if a port is taken.
    pub fn start_at(
        base_port: u16,
        targets: Vec<SocketAddr>,
        links: impl Fn(usize, usize) -> Link,
        seed: u64,
    ) -> Result<Self, Error> {
        let ports = Self::ports(targets.len());
        if usize::from(base_port) + ports > usize::from(u16::MAX) + 1 {
            return Err(Error::Ports {
                base: base_port,
                ports,
            });
        }
        Self::launch(targets, links, seed, Some(base_port))
    }

    /// How many ports [`Self::start_at`] spans for so many endpoints.
    pub const fn ports(endpoints: usize) -> usize {
        endpoints * endpoints
    }

    fn launch(
        targets: Vec<SocketAddr>,
        links: impl Fn(usize, usize) -> Link,
        seed: u64,
        base_port: Option<u16>,
    ) -> Result<Self, Error> {
        let endpoints = targets.len();
        if endpoints > MAX_ENDPOINTS {
            return Err(Error::TooMany(endpoints));
        }
        allow_open_files(endpoints)?;
        let now = Instant::now();
        let mut lines = Vec::with_capacity(endpoints * endpoints);
        let mut addresses = Vec::with_capacity(endpoints * endpoints);
        let mut listeners = Vec::new();
        for (from, to) in pairs(endpoints) {
            let place = from * endpoints + to;
            let link = if from == to {
                Link::default()
            } else {
                links(from, to)
            };
            link.check()
                .map_err(|source| Error::Link { from, to, source })?;
            lines.push(Line::new(link, line_seed(seed, place), now));
            if from == to {
                addresses.push(targets[from]);
                continue;
            }
            let port = base_port.map_or(0, |base| base + place as u16);
            let (socket, address) = listen(port).map_err(|source| Error::Listen {
                address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
                from,
                to,
                source,
            })?;
            addresses.push(address);
            listeners.push(((from, to), socket));
        }
        let counters: Arc<[Cells]> = lines.iter().map(|_| Cells::default()).collect();
        let lateness = Arc::new(Histogram::new());
        let real_time = Arc::new(AtomicBool::new(false));
        let world = World {
            targets: targets.clone(),
            lines,
            egress: vec![Rate::new(None, now); endpoints],
            counters: Arc::clone(&counters),
            lateness: Arc::clone(&lateness),
            real_time: Arc::clone(&real_time),
            scratch: vec![0; MAX_PIECE_BYTES],
        };
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), ORDERS)?;
        let (orders, inbox) = sync_channel(MAX_ORDERS);
        let carrier = Carrier::new(poll, inbox, world, listeners)?;
        let thread = std::thread::Builder::new()
            .name("links".to_owned())
            .spawn(move || carrier.run())?;
        Ok(Self {
            targets,
            addresses,
            counters,
            lateness,
            real_time,
            waker,
            orders: Some(orders),
            thread: Some(thread),
        })
    }

    /// How many endpoints there are.
    pub fn endpoints(&self) -> usize {
        self.targets.len()
    }

    /// Where process `from` is to dial `to`. Its own address if both are the same.
    ///
    /// # Panics
    ///
    /// If there is no such endpoint.
    pub fn address(&self, from: usize, to: usize) -> SocketAddr {
        self.addresses[self.place(from, to)]
    }

    /// Changes one way. What is under way already arrives as it would have.
    ///
    /// # Errors
    ///
    /// If the values or the endpoints are impossible.
    pub fn set(&self, from: usize, to: usize, link: Link) -> Result<(), Error> {
        self.known([from, to])?;
        link.check()
            .map_err(|source| Error::Link { from, to, source })?;
        self.order(Order::Set { from, to, link }).map(drop)
    }

    /// Gives an endpoint one line for all that it sends, in front of its links' own: what a machine with
    /// one network card has. `None` for a line of any width.
    ///
    /// # Errors
    ///
    /// If the width or the endpoint is impossible.
    pub fn set_egress(&self, from: usize, bits_per_second: Option<u64>) -> Result<(), Error> {
        self.known([from])?;
        check_bandwidth(bits_per_second).map_err(|source| Error::Link {
            from,
            to: from,
            source,
        })?;
        let bits = bits_per_second;
        self.order(Order::SetEgress { from, bits }).map(drop)
    }

    /// Cuts all links but those within a group, in place of an earlier partition. An endpoint in no
    /// group is alone. When this returns, no more bytes cross; connections stay open and wait.
    ///
    /// # Errors
    ///
    /// If there is no such endpoint.
    pub fn partition(&self, groups: &[Vec<usize>]) -> Result<(), Error> {
        self.known(groups.iter().flatten().copied())?;
        let cut = pairs(self.endpoints())
            .map(|(from, to)| {
                let together = |group: &Vec<usize>| group.contains(&from) && group.contains(&to);
                from != to && !groups.iter().any(together)
            })
            .collect();
        self.order(Order::Cut(cut)).map(drop)
    }

    /// Ends the partition. What waited is sent again and arrives a delay later.
    ///
    /// # Errors
    ///
    /// Only if the links' thread has ended.
    pub fn heal(&self) -> Result<(), Error> {
        let whole = vec![false; self.counters.len()];
        self.order(Order::Cut(whole)).map(drop)
    }

    /// Resets every connection between two endpoints, whoever dialled, at both ends at once. Returns
    /// how many there were. New ones are not hindered: for a longer blackout, [partition](Self::partition)
    /// first.
    ///
    /// # Errors
    ///
    /// If there is no such endpoint.
    pub fn reset(&self, from: usize, to: usize) -> Result<u64, Error> {
        self.known([from, to])?;
        self.order(Order::Reset { from, to })
    }

    /// What one way has carried.
    ///
    /// # Panics
    ///
    /// If there is no such endpoint.
    pub fn counters(&self, from: usize, to: usize) -> Counters {
        self.counters[self.place(from, to)].read()
    }

    /// How late the emulator was, over all links, since the start or the last
    /// [`Self::clear_lateness`].
    pub fn lateness(&self) -> Lateness {
        self.lateness.read()
    }

    /// Begins to count lateness anew, as when a measurement begins.
    pub fn clear_lateness(&self) {
        self.lateness.clear();
    }

    /// Whether the system lets the links' thread run before ordinary threads. If not, a busy machine makes it
    /// late by milliseconds.
    ///
    /// # Errors
    ///
    /// Only if the links' thread has ended.
    pub fn is_real_time(&self) -> Result<bool, Error> {
        // Any answer shows that the thread is beyond its start, where it asks for this.
        self.cpu_time()?;
        Ok(self.real_time.load(Relaxed))
    }

    /// The processor time that the links' thread has used, so that a measurement of the processes can
    /// leave it out.
    ///
    /// # Errors
    ///
    /// Only if the links' thread has ended.
    pub fn cpu_time(&self) -> Result<Duration, Error> {
        self.order(Order::CpuTime).map(Duration::from_micros)
    }

    fn place(&self, from: usize, to: usize) -> usize {
        let endpoints = self.endpoints();
        assert!(
            from < endpoints && to < endpoints,
            "no link from {from} to {to} among {endpoints} endpoints"
        );
        from * endpoints + to
    }

    fn known(&self, places: impl IntoIterator<Item = usize>) -> Result<(), Error> {
        let endpoints = self.endpoints();
        match places.into_iter().find(|place| *place >= endpoints) {
            Some(place) => Err(Error::NoEndpoint { place, endpoints }),
            None => Ok(()),
        }
    }

    fn order(&self, order: Order) -> Result<u64, Error> {
        let orders = self.orders.as_ref().ok_or(Error::Stopped)?;
        let (answer, answered) = sync_channel(1);
        orders.send((order, answer)).map_err(|_| Error::Stopped)?;
        self.waker.wake()?;
        answered.recv().map_err(|_| Error::Stopped)
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // The thread ends when it finds that nobody can give orders any more.
        self.orders = None;
        if self.waker.wake().is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

fn pairs(endpoints: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..endpoints).flat_map(move |from| (0..endpoints).map(move |to| (from, to)))
}

fn listen(port: u16) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    let address = socket.local_addr()?;
    Ok((socket, address))
}

/// A seed of its own for each link, so that what happens on one does not move another's dice.
fn line_seed(seed: u64, place: usize) -> u64 {
    // An odd constant near 2^64 divided by the golden ratio spreads neighbours apart.
    seed ^ (place as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Raises this process's soft limit for open files so that the links have a listener and a connection
/// for each ordered pair, as far as the hard limit allows. With fewer, new connections wait.
fn allow_open_files(endpoints: usize) -> Result<(), Error> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let pairs = (endpoints * endpoints) as u64;
    let needed = pairs + SPARE_DESCRIPTORS;
    let limit = getrlimit(Resource::Nofile);
    let allowed = limit.maximum.unwrap_or(u64::MAX);
    if allowed < needed {
        return Err(Error::OpenFiles { needed, allowed });
    }
    let wanted = (3 * pairs + SPARE_DESCRIPTORS).min(allowed);
    if limit.current.is_none_or(|files| files >= wanted) {
        return Ok(());
    }
    let raised = Rlimit {
        current: Some(wanted),
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).map_err(|errno| Error::Io(errno.into()))
}
