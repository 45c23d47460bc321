//! Partitions, resets, closed and hostile sockets.

#![allow(clippy::unwrap_used)]

mod common;

use common::{PATIENCE, Pair, expect, expect_silence, free_address, ms, pattern, until};
use quorate_links::{Emulator, Error, Link, LinkError};
use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    thread,
    time::Instant,
};

fn apart(pair: &Pair) {
    pair.emulator.partition(&[vec![0], vec![1]]).unwrap();
}

#[test]
fn a_partition_stalls_and_healing_delivers_everything_in_order() {
    let pair = Pair::new(Link {
        jitter: ms(2),
        ..Link::with_delay(ms(10))
    });
    let (mut near, mut far) = pair.connect();
    let sent = pattern(3_000_000);
    // Some is under way when the link is cut, some is sent afterwards.
    near.write_all(&sent[..100_000]).unwrap();
    apart(&pair);
    let delivered = pair.emulator.counters(0, 1).bytes;
    let rest = sent[100_000..].to_vec();
    let writer = thread::spawn(move || {
        near.write_all(&rest).unwrap();
        near
    });
    until("the window to fill", || {
        pair.emulator.counters(0, 1).held_bytes > 1_000_000
    });
    far.write_all(b"back").unwrap();
    until("the way back to hold something", || {
        pair.emulator.counters(1, 0).held_bytes == 4
    });
    assert_eq!(pair.emulator.counters(0, 1).bytes, delivered);
    let start = Instant::now();
    pair.emulator.heal().unwrap();
    expect(&mut far, &sent);
    assert!(start.elapsed() >= ms(10));
    let mut near = writer.join().unwrap();
    expect(&mut near, b"back");
    until("nothing to be under way", || {
        pair.emulator.counters(0, 1).held_bytes == 0
    });
    assert_eq!(pair.emulator.counters(0, 1).bytes, 3_000_001);
}

#[test]
fn only_links_between_groups_are_cut() {
    let servers: Vec<_> = (0..3).map(|_| Pair::new(Link::default()).server).collect();
    let targets: Vec<SocketAddr> = servers.iter().map(|s| s.local_addr().unwrap()).collect();
    let link = |_, _| Link::with_delay(ms(1));
    let emulator = Emulator::start(targets.clone(), link, 1).unwrap();
    assert_eq!(emulator.address(2, 2), targets[2]);
    emulator.partition(&[vec![0, 1]]).unwrap();
    let talk = |from: usize, to: usize| {
        let mut near = TcpStream::connect(emulator.address(from, to)).unwrap();
        near.write_all(b"x").unwrap();
        near
    };
    let _first = talk(0, 1);
    let (mut far, _) = servers[1].accept().unwrap();
    expect(&mut far, b"x");
    let _second = talk(0, 2);
    servers[2].set_nonblocking(true).unwrap();
    thread::sleep(ms(50));
    assert_eq!(
        servers[2].accept().unwrap_err().kind(),
        ErrorKind::WouldBlock
    );
    servers[2].set_nonblocking(false).unwrap();
    emulator.heal().unwrap();
    let (mut far, _) = servers[2].accept().unwrap();
    expect(&mut far, b"x");
}

#[test]
fn new_connections_hang_until_the_partition_heals() {
    let pair = Pair::new(Link::with_delay(ms(10)));
    apart(&pair);
    let mut near = pair.dial();
    near.write_all(b"early").unwrap();
    // This one gives up, and nobody hears of it.
    drop(pair.dial());
    until("both to be accepted", || {
        pair.emulator.counters(0, 1).connections == 2
    });
    expect_silence(&near, ms(50));
    let start = Instant::now();
    pair.emulator.heal().unwrap();
    let mut far = pair.accept();
    expect(&mut far, b"early");
    assert!(start.elapsed() >= ms(30), "{:?}", start.elapsed());
    pair.server.set_nonblocking(true).unwrap();
    assert_eq!(
        pair.server.accept().unwrap_err().kind(),
        ErrorKind::WouldBlock
    );
}

#[test]
fn a_reset_closes_both_sides_at_once() {
    let pair = Pair::new(Link::with_delay(ms(1)));
    let (mut near, mut far) = pair.connect();
    for (from, to) in [(0, 1), (1, 0)] {
        let slow = Link::with_delay(ms(2_000));
        pair.emulator.set(from, to, slow).unwrap();
    }
    let start = Instant::now();
    // Named from the other end: it is of the pair, whoever dialled.
    assert_eq!(pair.emulator.reset(1, 0).unwrap(), 1);
    for socket in [&mut near, &mut far] {
        let error = socket.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
    // Not a delay later.
    assert!(start.elapsed() < ms(2_000), "{:?}", start.elapsed());
    assert_eq!(pair.emulator.counters(0, 1).resets, 1);
    assert_eq!(pair.emulator.reset(0, 1).unwrap(), 0);
}

#[test]
fn an_end_crosses_the_link_behind_the_last_bytes() {
    let pair = Pair::new(Link::with_delay(ms(20)));
    let (mut near, mut far) = pair.connect();
    let start = Instant::now();
    near.write_all(b"last words").unwrap();
    near.shutdown(Shutdown::Write).unwrap();
    let mut text = Vec::new();
    far.read_to_end(&mut text).unwrap();
    assert_eq!(text, b"last words");
    assert!(start.elapsed() >= ms(20));
    // The other way still works.
    far.write_all(b"farewell").unwrap();
    drop(far);
    text.clear();
    near.read_to_end(&mut text).unwrap();
    assert_eq!(text, b"farewell");
}

#[test]
fn a_short_conversation_that_ends_within_the_handshake_arrives() {
    let pair = Pair::new(Link::with_delay(ms(20)));
    pair.dial().write_all(b"and gone").unwrap();
    let mut text = Vec::new();
    pair.accept().read_to_end(&mut text).unwrap();
    assert_eq!(text, b"and gone");
}

#[test]
fn a_reset_by_an_endpoint_crosses_the_link() {
    let pair = Pair::new(Link::with_delay(ms(20)));
    let (near, mut far) = pair.connect();
    // Bytes that were never read make the kernel reset.
    far.write_all(b"unread").unwrap();
    near.peek(&mut [0; 6]).unwrap();
    let start = Instant::now();
    drop(near);
    let error = far.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert!(start.elapsed() >= ms(20));
}

#[test]
fn writing_to_an_endpoint_that_is_gone_ends_in_a_reset() {
    let pair = Pair::new(Link::with_delay(ms(5)));
    let (mut near, far) = pair.connect();
    drop(far);
    let start = Instant::now();
    while near.write_all(&[0; 1_000]).is_ok() {
        assert!(start.elapsed() < PATIENCE);
        thread::sleep(ms(1));
    }
    until("the connection to be given back", || {
        pair.emulator.counters(0, 1).held_bytes == 0
    });
}

#[test]
fn back_pressure_bounds_what_is_under_way() {
    let link = Link {
        bits_per_second: Some(100_000_000),
        ..Link::with_delay(ms(10))
    };
    let window = link.window(&link);
    assert_eq!(window, 500_000);
    let pair = Pair::new(link);
    let (mut near, mut far) = pair.connect();
    near.set_nonblocking(true).unwrap();
    // The receiver does not read, so this ends. Kernel buffers at both ends hold some as well.
    let mut sent = 0u64;
    let mut most = 0;
    let mut last = Instant::now();
    while last.elapsed() < ms(500) {
        match near.write(&[7; 65_536]) {
            Ok(bytes) => {
                sent += bytes as u64;
                last = Instant::now();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(ms(1)),
            Err(error) => panic!("{error}"),
        }
        most = most.max(pair.emulator.counters(0, 1).held_bytes);
        assert!(sent < 64 << 20, "nothing holds the sender back");
    }
    assert!(most <= window as u64, "{most} of {window}");
    assert!(most >= window as u64 / 2, "{most} of {window}");
    // And nothing of it is lost.
    near.set_nonblocking(false).unwrap();
    near.shutdown(Shutdown::Write).unwrap();
    assert_eq!(std::io::copy(&mut far, &mut std::io::sink()).unwrap(), sent);
}

#[test]
fn many_connections_come_and_go() {
    let pair = Pair::new(Link::with_delay(ms(1)));
    for round in 0..5u64 {
        let mut open: Vec<_> = (0..40).map(|_| (pair.dial(), pair.accept())).collect();
        for (near, far) in &mut open {
            near.write_all(b"x").unwrap();
            expect(far, b"x");
        }
        assert_eq!(pair.emulator.counters(0, 1).connections, (round + 1) * 40);
    }
    until("all to be gone", || pair.emulator.reset(0, 1).unwrap() == 0);
}

#[test]
fn dropping_the_emulator_ends_its_connections_and_ports() {
    let pair = Pair::new(Link::with_delay(ms(10)));
    let (mut near, mut far) = pair.connect();
    let address = pair.emulator.address(0, 1);
    drop(pair.emulator);
    for socket in [&mut near, &mut far] {
        assert!(matches!(socket.read(&mut [0]), Ok(0) | Err(_)));
    }
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn ports_can_be_chosen_and_conflicts_are_named() {
    // A free stretch, so that other tests' ports do not disturb.
    let targets = vec![free_address(), free_address()];
    let link = |_, _| Link::default();
    let start = |base| Emulator::start_at(base, targets.clone(), link, 1);
    let (base, emulator) = (10_000..30_000)
        .step_by(10)
        .find_map(|base| Some((base, start(base).ok()?)))
        .unwrap();
    assert_eq!(emulator.address(0, 1).port(), base + 1);
    assert_eq!(emulator.address(1, 0).port(), base + 2);
    let error = start(base).err().unwrap();
    assert!(
        matches!(error, Error::Listen { from: 0, to: 1, .. }),
        "{error}"
    );
    assert!(matches!(start(65_533), Err(Error::Ports { .. })));
}

#[test]
fn impossible_values_are_refused_by_name() {
    let pair = Pair::new(Link::default());
    let lossy = Link {
        loss: 2.0,
        ..Link::default()
    };
    let error = pair.emulator.set(0, 1, lossy).unwrap_err();
    assert!(error.to_string().contains("from 0 to 1"), "{error}");
    assert!(matches!(
        error,
        Error::Link {
            source: LinkError::Loss(_),
            ..
        }
    ));
    for result in [
        pair.emulator.set(0, 2, Link::default()),
        pair.emulator.partition(&[vec![0, 7]]),
        pair.emulator.set_egress(2, None),
        pair.emulator.reset(3, 0).map(drop),
    ] {
        assert!(matches!(result, Err(Error::NoEndpoint { .. })));
    }
    assert!(pair.emulator.set_egress(0, Some(1)).is_err());
    assert!(Emulator::start(vec![free_address(); 2], |_, _| lossy, 1).is_err());
}
