//! What the emulator costs and how exact it is on this machine:
//! `cargo run --release -p quorate-links --example cost`.
//!
//! Pings on one connection over some links; then small messages over many connections at a fixed
//! rate; then bulk.

use quorate_links::{Emulator, Link, Regions, accuracy};
use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    let ms = Duration::from_millis;
    let mut links = vec![
        Link::default(),
        Link::with_delay(ms(1)),
        Link::with_delay(ms(5)),
        Link::with_delay(ms(25)),
        Regions::world().link(0, 1),
    ];
    for bits in [10_000_000, 100_000_000, 1_000_000_000] {
        links.push(Link {
            bits_per_second: Some(bits),
            ..Link::with_delay(ms(10))
        });
    }
    for link in links {
        println!("{:?}: {}", link.delay, accuracy(&link, 200)?);
    }
    for endpoints in [10, 25] {
        messages(endpoints, 64, 5_000)?;
        messages(endpoints, 64, 20_000)?;
    }
    bulk(64 << 10)
}

/// A server that swallows everything, for each endpoint.
fn sink() -> std::io::Result<SocketAddr> {
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = server.local_addr()?;
    thread::spawn(move || {
        for socket in server.incoming().flatten() {
            thread::Builder::new()
                .stack_size(64 << 10)
                .spawn(move || {
                    let mut buffer = [0; 16 << 10];
                    while (&socket).read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
                })
                .expect("a thread can be had");
        }
    });
    Ok(address)
}

/// Small messages, one connection for each ordered pair, at so many per second in all.
fn messages(endpoints: usize, bytes: usize, per_second: u32) -> Outcome {
    let targets = (0..endpoints).map(|_| sink()).collect::<Result<_, _>>()?;
    let world = Regions::world();
    let emulator = Emulator::start(targets, |from, to| world.link(from, to), 1)?;
    if !emulator.is_real_time()? {
        println!("without real-time priority:");
    }
    let mut sockets = Vec::new();
    for from in 0..endpoints {
        for to in (0..endpoints).filter(|to| *to != from) {
            let mut socket = TcpStream::connect(emulator.address(from, to))?;
            socket.set_nodelay(true)?;
            socket.write_all(b"hello")?;
            sockets.push(socket);
        }
    }
    thread::sleep(Duration::from_secs(1));
    emulator.clear_lateness();
    let (start, before) = (Instant::now(), emulator.cpu_time()?);
    let count = per_second * 3;
    let message = vec![7; bytes];
    for number in 0..count {
        let due = start + Duration::from_secs(1) / per_second * number;
        if let Some(wait) = due.checked_duration_since(Instant::now()) {
            thread::sleep(wait);
        }
        let place = number as usize % sockets.len();
        sockets[place].write_all(&message)?;
    }
    let took = start.elapsed();
    thread::sleep(Duration::from_millis(400));
    let used = emulator.cpu_time()? - before;
    let late = emulator.lateness();
    println!(
        "{} connections, {:.0} messages/s of {bytes} bytes: {:.1} ms CPU per 1,000 messages, {:.0}% of a core; \
         late by {} µs (p50), {} µs (p99), {} µs (max)",
        sockets.len(),
        f64::from(count) / took.as_secs_f64(),
        used.as_secs_f64() * 1e6 / f64::from(count),
        used.as_secs_f64() / took.as_secs_f64() * 100.0,
        late.p50_us,
        late.p99_us,
        late.max_us
    );
    Ok(())
}

/// As much as goes through one connection.
fn bulk(chunk: usize) -> Outcome {
    let targets = vec![sink()?, sink()?];
    let emulator = Emulator::start(
        targets,
        |_, _| Link::with_delay(Duration::from_millis(5)),
        1,
    )?;
    let mut socket = TcpStream::connect(emulator.address(0, 1))?;
    let megabytes = 256;
    let (start, before) = (Instant::now(), emulator.cpu_time()?);
    for _ in 0..(megabytes << 20) / chunk {
        socket.write_all(&vec![7; chunk])?;
    }
    while emulator.counters(0, 1).bytes < megabytes as u64 * (1 << 20) {
        thread::sleep(Duration::from_millis(1));
    }
    let used = emulator.cpu_time()? - before;
    println!(
        "bulk: {:.0} Mbit/s, {:.2} ms CPU per MiB",
        (megabytes << 23) as f64 / start.elapsed().as_secs_f64() / 1e6,
        used.as_secs_f64() * 1e3 / megabytes as f64
    );
    Ok(())
}
