//! The emulator's API: addresses, changes to links, and counters.

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

/// The most endpoints: each ordered pair takes a port, and there are 65,535.
pub const MAX_ENDPOINTS: usize = 200;

/// Capacity of the order queue. Each caller waits for its answer, so this many threads can give
/// orders at once before one blocks on handing in its own.
const MAX_ORDERS: usize = 16;

/// File descriptors reserved for the program itself, beside those of the links.
const SPARE_DESCRIPTORS: u64 = 512;

/// Why the emulator rejects a call.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no endpoint {place}: there are {endpoints}, counted from 0")]
    NoEndpoint {
        place: usize,
        /// The number of endpoints.
        endpoints: usize,
    },
    #[error("{0} endpoints are more than {MAX_ENDPOINTS}")]
    TooMany(usize),
    /// The link's parameters are invalid.
    #[error("the link from {from} to {to}: {source}")]
    Link {
        from: usize,
        to: usize,
        source: LinkError,
    },
    /// A port could not be opened.
    #[error("cannot listen on {address} for the link from {from} to {to}: {source}")]
    Listen {
        /// The address, with port 0 if the system was to choose.
        address: SocketAddr,
        from: usize,
        to: usize,
        source: io::Error,
    },
    /// The ports don't fit into the range of port numbers.
    #[error("{ports} ports from {base} on end beyond 65535")]
    Ports {
        /// The first port.
        base: u16,
        /// How many are needed.
        ports: usize,
    },
    /// The process's limit for open files is too low.
    #[error(
        "{needed} open files are needed, one for each ordered pair, and {allowed} are allowed: raise the \
         hard limit (`ulimit -Hn`)"
    )]
    OpenFiles {
        /// Listeners only, without the connections.
        needed: u64,
        /// The hard limit.
        allowed: u64,
    },
    #[error("the links' thread: {0}")]
    Io(#[from] io::Error),
    /// The emulator's thread has ended, which is a bug.
    #[error("the links' thread has ended")]
    Stopped,
}

/// Links between endpoints; see the crate's documentation. Dropping it ends the links and all their
/// connections.
///
/// Methods that change something return when the change is in effect, which takes microseconds;
/// none needs an async runtime.
pub struct Emulator {
    targets: Vec<SocketAddr>,
    /// Indexed as the counters are: the address of the pair's port. On the diagonal, the endpoint's
    /// true address.
    addresses: Vec<SocketAddr>,
    counters: Arc<[Cells]>,
    lateness: Arc<Histogram>,
    real_time: Arc<AtomicBool>,
    waker: Waker,
    /// `None` only while this is being dropped.
    orders: Option<SyncSender<Envelope>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Emulator {
    /// Starts links between the processes at `targets`, on ports that the system chooses. `links`
    /// returns the properties of the way from the first endpoint to the second. `seed` fixes the
    /// sequence of random numbers of each link, but not at which bytes they are drawn: that depends
    /// on how the system delivers them.
    ///
    /// # Errors
    ///
    /// If a link's parameters are invalid, or the system has too few ports or file descriptors.
    pub fn start(
        targets: Vec<SocketAddr>,
        links: impl Fn(usize, usize) -> Link,
        seed: u64,
    ) -> Result<Self, Error> {
        Self::launch(targets, links, seed, None)
    }

    /// Like [`Self::start`], on predictable ports: process `from` dials `to` at `base_port + from *
    /// targets + to` ([`Self::ports`] ports are needed).
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

    /// The number of ports that [`Self::start_at`] spans.
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

    /// The number of endpoints.
    pub fn endpoints(&self) -> usize {
        self.targets.len()
    }

    /// The address at which process `from` must dial `to`; its own address if both are the same.
    ///
    /// # Panics
    ///
    /// If there is no such endpoint.
    pub fn address(&self, from: usize, to: usize) -> SocketAddr {
        self.addresses[self.place(from, to)]
    }

    /// Changes one direction of a link. Bytes already in flight arrive as scheduled.
    ///
    /// # Errors
    ///
    /// If the link's parameters or an endpoint are invalid.
    pub fn set(&self, from: usize, to: usize, link: Link) -> Result<(), Error> {
        self.known([from, to])?;
        link.check()
            .map_err(|source| Error::Link { from, to, source })?;
        self.order(Order::Set { from, to, link }).map(drop)
    }

    /// Gives an endpoint one line shared by everything that it sends, in front of its links' own
    /// lines, like a machine with one network card. `None` removes the limit.
    ///
    /// # Errors
    ///
    /// If the bandwidth or the endpoint is invalid.
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

    /// Cuts all links except those within a group, replacing an earlier partition. An endpoint in
    /// no group is alone. When this returns, no more bytes cross; connections stay open and wait.
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

    /// Ends the partition. Bytes that waited are sent again and arrive a delay later.
    ///
    /// # Errors
    ///
    /// Only if the links' thread has ended.
    pub fn heal(&self) -> Result<(), Error> {
        let whole = vec![false; self.counters.len()];
        self.order(Order::Cut(whole)).map(drop)
    }

    /// Resets every connection between two endpoints, whichever of them dialled, at both ends at
    /// once. Returns how many there were. New connections are not prevented: for a longer outage,
    /// [partition](Self::partition) first.
    ///
    /// # Errors
    ///
    /// If there is no such endpoint.
    pub fn reset(&self, from: usize, to: usize) -> Result<u64, Error> {
        self.known([from, to])?;
        self.order(Order::Reset { from, to })
    }

    /// What one direction of a link has carried.
    ///
    /// # Panics
    ///
    /// If there is no such endpoint.
    pub fn counters(&self, from: usize, to: usize) -> Counters {
        self.counters[self.place(from, to)].read()
    }

    /// How late the emulator delivered, over all links, since the start or the last
    /// [`Self::clear_lateness`].
    pub fn lateness(&self) -> Lateness {
        self.lateness.read()
    }

    /// Resets the lateness statistics, for example when a measurement begins.
    pub fn clear_lateness(&self) {
        self.lateness.clear();
    }

    /// Whether the links' thread runs with real-time priority. If not, a busy machine makes it late
    /// by milliseconds.
    ///
    /// # Errors
    ///
    /// Only if the links' thread has ended.
    pub fn is_real_time(&self) -> Result<bool, Error> {
        // Any answer shows that the thread has passed its start, where it requests real-time
        // priority.
        self.cpu_time()?;
        Ok(self.real_time.load(Relaxed))
    }

    /// The CPU time of the links' thread, so that a measurement of the processes can exclude it.
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
        // The thread ends when it finds the order channel disconnected.
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

/// A separate seed for each link, so that traffic on one does not change another's random numbers.
fn line_seed(seed: u64, place: usize) -> u64 {
    // An odd constant near 2^64 divided by the golden ratio spreads neighbouring places apart.
    seed ^ (place as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Raises this process's soft limit for open files, as far as the hard limit allows, so that there
/// are a listener and a connection for each ordered pair. With fewer, new connections wait.
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
