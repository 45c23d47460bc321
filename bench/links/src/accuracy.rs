//! How exact the emulator is on this machine, here and now.

use crate::{
    emulator::{Emulator, Error},
    link::Link,
    priority,
};
use std::{
    fmt,
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

/// What a ping says.
const PING: &[u8; 64] = &[7; 64];

/// Pings before the first that counts: the handshake is behind them.
const WARM_UP: usize = 3;

/// At least so much is sent to find the throughput.
const LEAST_BYTES: u64 = 256 << 10;

/// At most so much.
const MOST_BYTES: u64 = 64 << 20;

/// How long finding the throughput takes where the link limits it.
const THROUGHPUT_SECONDS: u64 = 1;

/// Longer than any link can pause.
const PATIENCE: Duration = Duration::from_secs(120);

/// The emulator's own error: measured minus wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Accuracy {
    /// Pings measured.
    pub pings: usize,
    /// What a round trip should take, in microseconds.
    pub round_trip_us: f64,
    /// Round trips took so much longer: half of them at most so, in microseconds.
    pub p50_us: f64,
    /// 99 of 100 at most so.
    pub p99_us: f64,
    /// The worst.
    pub max_us: f64,
    /// Round trips of the same pings without the emulator: half of them at most so.
    pub loopback_p50_us: f64,
    /// Bits per second that one connection reached.
    pub reached_bits_per_second: f64,
    /// What it should reach; `None` if neither line nor window limits it.
    pub wanted_bits_per_second: Option<u64>,
}

impl fmt::Display for Accuracy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "round trips of {:.1} ms took {:+.0} µs (p50), {:+.0} µs (p99), {:+.0} µs (max), where loopback alone takes {:.0} µs; {:.1} Mbit/s",
            self.round_trip_us / 1e3,
            self.p50_us,
            self.p99_us,
            self.max_us,
            self.loopback_p50_us,
            self.reached_bits_per_second / 1e6
        )?;
        match self.wanted_bits_per_second {
            Some(wanted) => write!(f, " of {:.1}", wanted as f64 / 1e6),
            None => Ok(()),
        }
    }
}

/// Measures over a real connection to a server in this process, through an emulator of its own. The
/// way back is like the way there.
///
/// Jitter and loss are left out, since nobody can tell them from errors. Both ends run with the carrier's
/// priority if the system allows, so that what a busy machine does to *them* is not counted. It takes
/// `pings` round trips and about a second, and blocks.
///
/// # Errors
///
/// If the link is impossible, or a socket fails.
pub fn accuracy(link: &Link, pings: usize) -> Result<Accuracy, Error> {
    // In a thread of its own: the caller's keeps its priority.
    let link = *link;
    let measuring = thread::spawn(move || measure(&link, pings));
    measuring
        .join()
        .map_err(|_| io::Error::other("the measurement panicked"))?
}

fn measure(link: &Link, pings: usize) -> Result<Accuracy, Error> {
    priority::raise();
    let link = Link {
        jitter: Duration::ZERO,
        loss: 0.0,
        ..*link
    };
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let target = server.local_addr()?;
    // Each connection begins with what is wanted of it: pings twice, then a transfer.
    let serving = thread::spawn(move || -> io::Result<()> {
        priority::raise();
        for _ in 0..3 {
            serve(&server.accept()?.0)?;
        }
        Ok(())
    });
    let direct = round_trips(target, pings.max(1))?;
    let emulator = Emulator::start(vec![target, target], |_, _| link, 1)?;
    let address = emulator.address(0, 1);
    let emulated = round_trips(address, pings.max(1))?;
    let wanted_bits_per_second = link.reachable_bits_per_second(&link);
    let bytes = wanted_bits_per_second.map_or(MOST_BYTES, |bits| {
        (bits / 8 * THROUGHPUT_SECONDS).clamp(LEAST_BYTES, MOST_BYTES)
    });
    let took = transfer(address, bytes, 2 * link.delay)?;
    serving
        .join()
        .map_err(|_| io::Error::other("the echo server panicked"))??;
    let serialised = link
        .bits_per_second
        .map_or(0.0, |bits| PING.len() as f64 * 8.0 / bits as f64);
    let wanted = 2.0 * (link.delay.as_secs_f64() + serialised) * 1e6;
    let error = |percent| quantile(&emulated, percent) - wanted;
    Ok(Accuracy {
        pings: emulated.len(),
        round_trip_us: wanted,
        p50_us: error(50),
        p99_us: error(99),
        max_us: error(100),
        loopback_p50_us: quantile(&direct, 50),
        reached_bits_per_second: bytes as f64 * 8.0 / took.as_secs_f64(),
        wanted_bits_per_second,
    })
}

/// Answers each ping, or says when the first and the last byte of a transfer have come.
fn serve(mut socket: &TcpStream) -> io::Result<()> {
    prepare(socket)?;
    let mut size = [0; 8];
    socket.read_exact(&mut size)?;
    let mut left = u64::from_le_bytes(size);
    if left == 0 {
        let mut ping = *PING;
        while socket.read_exact(&mut ping).is_ok() {
            socket.write_all(&ping)?;
        }
        return Ok(());
    }
    let mut buffer = vec![0; 256 << 10];
    while left > 0 {
        match socket.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => left = left.saturating_sub(bytes as u64),
        }
    }
    socket.write_all(b"!")
}

/// In microseconds, in order.
fn round_trips(address: SocketAddr, pings: usize) -> io::Result<Vec<f64>> {
    let mut socket = TcpStream::connect(address)?;
    prepare(&socket)?;
    socket.write_all(&0u64.to_le_bytes())?;
    let mut took = Vec::with_capacity(pings);
    for number in 0..WARM_UP + pings {
        let start = Instant::now();
        let mut answer = *PING;
        socket.write_all(PING)?;
        socket.read_exact(&mut answer)?;
        if number >= WARM_UP {
            took.push(start.elapsed().as_secs_f64() * 1e6);
        }
    }
    took.sort_by(f64::total_cmp);
    Ok(took)
}

/// How long the bytes take, without the round trips of handshake and answer.
fn transfer(address: SocketAddr, bytes: u64, round_trip: Duration) -> io::Result<Duration> {
    let mut socket = TcpStream::connect(address)?;
    prepare(&socket)?;
    let buffer = vec![7; 64 << 10];
    let start = Instant::now();
    socket.write_all(&bytes.to_le_bytes())?;
    let mut left = bytes;
    while left > 0 {
        let now = left.min(buffer.len() as u64);
        socket.write_all(&buffer[..now as usize])?;
        left -= now;
    }
    socket.read_exact(&mut [0])?;
    let took = start.elapsed().saturating_sub(2 * round_trip);
    Ok(took.max(Duration::from_micros(1)))
}

fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))
}

/// Of sorted values.
fn quantile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted[rank - 1]
}
