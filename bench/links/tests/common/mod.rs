//! Endpoints for the tests: plain blocking sockets.

#![allow(dead_code, clippy::unwrap_used, missing_docs, unreachable_pub)]

use quorate_links::{Emulator, Link};
use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    time::{Duration, Instant},
};

/// How long something may take that must happen.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub const fn ms(value: u64) -> Duration {
    Duration::from_millis(value)
}

/// Two endpoints; 0 dials 1.
pub struct Pair {
    pub emulator: Emulator,
    pub server: TcpListener,
}

impl Pair {
    /// The same link both ways.
    pub fn new(link: Link) -> Self {
        Self::with(|_, _| link)
    }

    pub fn with(links: impl Fn(usize, usize) -> Link) -> Self {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let targets = vec![free_address(), server.local_addr().unwrap()];
        let emulator = Emulator::start(targets, links, 5).unwrap();
        Self { emulator, server }
    }

    pub fn dial(&self) -> TcpStream {
        let socket = TcpStream::connect(self.emulator.address(0, 1)).unwrap();
        patient(&socket);
        socket
    }

    pub fn accept(&self) -> TcpStream {
        let (socket, _) = self.server.accept().unwrap();
        patient(&socket);
        socket
    }

    /// A connection over which a byte has gone there and one back.
    pub fn connect(&self) -> (TcpStream, TcpStream) {
        let mut near = self.dial();
        let mut far = self.accept();
        near.write_all(b"?").unwrap();
        expect(&mut far, b"?");
        far.write_all(b"!").unwrap();
        expect(&mut near, b"!");
        (near, far)
    }
}

/// Where nobody listens.
pub fn free_address() -> std::net::SocketAddr {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.local_addr().unwrap()
}

fn patient(socket: &TcpStream) {
    socket.set_nodelay(true).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_write_timeout(Some(PATIENCE)).unwrap();
}

/// The next bytes are these.
pub fn expect(socket: &mut TcpStream, bytes: &[u8]) {
    let mut read = vec![0; bytes.len()];
    socket.read_exact(&mut read).unwrap();
    assert!(read == bytes, "other bytes than were sent");
}

/// Nothing comes for a while that is longer than the link's delay.
pub fn expect_silence(socket: &TcpStream, duration: Duration) {
    socket.set_read_timeout(Some(duration)).unwrap();
    let kind = socket.peek(&mut [0]).unwrap_err().kind();
    let timeouts = [std::io::ErrorKind::WouldBlock, std::io::ErrorKind::TimedOut];
    assert!(timeouts.contains(&kind), "{kind}");
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
}

/// Waits for a condition.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what} never came about");
        std::thread::sleep(ms(1));
    }
}

/// Bytes that are at no two near places the same.
pub fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|place| (place % 65_521 % 251) as u8)
        .collect()
}
