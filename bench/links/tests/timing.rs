//! Delays, handshakes, order and bandwidth.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Pair, expect, free_address, ms, pattern};
use quorate_links::{Emulator, Link, accuracy};
use std::{
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

/// What the machine may add in the best of several attempts. A busy one may add any time to one of
/// them, so none has an upper bound of its own.
const SLACK: Duration = Duration::from_millis(15);

#[test]
fn round_trips_take_the_sum_of_both_delays() {
    let pair = Pair::with(|from, _| Link::with_delay(if from == 0 { ms(30) } else { ms(5) }));
    let (mut near, mut far) = pair.connect();
    let (mut there, mut back) = (Duration::MAX, Duration::MAX);
    for _ in 0..10 {
        let start = Instant::now();
        near.write_all(b"ping").unwrap();
        expect(&mut far, b"ping");
        let took = start.elapsed();
        assert!(took >= ms(30), "{took:?}");
        there = there.min(took);
        let start = Instant::now();
        far.write_all(b"pong").unwrap();
        expect(&mut near, b"pong");
        let took = start.elapsed();
        assert!(took >= ms(5), "{took:?}");
        back = back.min(took);
    }
    assert!(
        there < ms(30) + SLACK && back < ms(5) + SLACK,
        "{there:?}, {back:?}"
    );
}

#[test]
fn the_first_answer_comes_after_a_handshake_and_a_round_trip() {
    let pair = Pair::with(|from, _| Link::with_delay(if from == 0 { ms(30) } else { ms(20) }));
    let best = (0..5).map(|_| {
        let start = Instant::now();
        let mut near = pair.dial();
        near.write_all(b"?").unwrap();
        let mut far = pair.accept();
        expect(&mut far, b"?");
        // The handshake's 50 ms, then the way there.
        assert!(start.elapsed() >= ms(80), "{:?}", start.elapsed());
        far.write_all(b"!").unwrap();
        expect(&mut near, b"!");
        start.elapsed()
    });
    expect_best(best, ms(100));
}

#[test]
fn who_accepts_and_speaks_first_is_heard_after_two_round_trips() {
    let pair = Pair::with(|from, _| Link::with_delay(if from == 0 { ms(30) } else { ms(20) }));
    // SYN, its answer, the answer to that; then the greeting.
    let best = (0..5).map(|_| {
        let start = Instant::now();
        let mut near = pair.dial();
        pair.accept().write_all(b"hello").unwrap();
        expect(&mut near, b"hello");
        start.elapsed()
    });
    expect_best(best, ms(100));
}

#[test]
fn a_refused_connection_is_reset_after_a_round_trip() {
    let targets = vec![free_address(), free_address()];
    let emulator = Emulator::start(targets, |_, _| Link::with_delay(ms(40)), 1).unwrap();
    let best = (0..5).map(|_| {
        let start = Instant::now();
        let mut near = TcpStream::connect(emulator.address(0, 1)).unwrap();
        let error = near.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        start.elapsed()
    });
    expect_best(best, ms(80));
    assert_eq!(emulator.counters(0, 1).refused, 5);
}

/// None is faster than wanted, and the best is about as wanted.
fn expect_best(times: impl Iterator<Item = Duration>, wanted: Duration) {
    let times: Vec<Duration> = times.collect();
    let best = times.iter().min().copied().unwrap();
    assert!((wanted..wanted + SLACK).contains(&best), "{times:?}");
}

#[test]
fn jitter_keeps_order_and_its_bounds() {
    let pair = Pair::new(Link {
        delay: ms(5),
        jitter: ms(20),
        ..Link::default()
    });
    let (mut near, mut far) = pair.connect();
    let (mut fast, mut slow, mut pings) = (0, 0, 0);
    while fast < 5 || slow < 5 {
        let start = Instant::now();
        near.write_all(&[pings]).unwrap();
        expect(&mut far, &[pings]);
        let took = start.elapsed();
        assert!(took >= ms(5), "{took:?}");
        fast += usize::from(took < ms(15));
        slow += usize::from(took > ms(15));
        pings += 1;
        assert!(pings < 200, "{fast} in the lower half, {slow} in the upper");
    }
    // Many at once: any reordering would show.
    let sent = pattern(50_000);
    let bytes = sent.clone();
    let writer = thread::spawn(move || {
        for message in bytes.chunks(97) {
            near.write_all(message).unwrap();
        }
        near
    });
    expect(&mut far, &sent);
    writer.join().unwrap();
}

#[test]
fn bandwidth_bounds_what_all_connections_of_a_way_carry_together() {
    let pair = Pair::new(Link {
        bits_per_second: Some(16_000_000),
        ..Link::with_delay(ms(5))
    });
    let (mut first, mut far_first) = pair.connect();
    let (mut second, mut far_second) = pair.connect();
    let start = Instant::now();
    let send = |socket: &mut TcpStream| socket.write_all(&vec![1; 400_000]).unwrap();
    let receive = |socket: &mut TcpStream| socket.read_exact(&mut vec![0; 400_000]).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| send(&mut first));
        scope.spawn(|| send(&mut second));
        scope.spawn(|| receive(&mut far_first));
        scope.spawn(|| receive(&mut far_second));
    });
    let took = start.elapsed();
    // 800 kB at 2 MB/s.
    assert!((ms(400)..ms(3_000)).contains(&took), "{took:?}");
}

#[test]
fn egress_is_shared_by_all_links_of_a_sender() {
    let servers: Vec<TcpListener> = (0..3)
        .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap())
        .collect();
    let targets = servers.iter().map(|s| s.local_addr().unwrap()).collect();
    let link = |_, _| Link::with_delay(ms(1));
    let emulator = Emulator::start(targets, link, 1).unwrap();
    emulator.set_egress(0, Some(16_000_000)).unwrap();
    let start = Instant::now();
    thread::scope(|scope| {
        for to in [1, 2] {
            let (emulator, server) = (&emulator, &servers[to]);
            scope.spawn(move || {
                let mut socket = TcpStream::connect(emulator.address(0, to)).unwrap();
                socket.write_all(&vec![1; 400_000]).unwrap();
                socket.read_exact(&mut [0]).unwrap();
            });
            scope.spawn(move || {
                let mut socket = server.accept().unwrap().0;
                socket.read_exact(&mut vec![0; 400_000]).unwrap();
                socket.write_all(b"!").unwrap();
            });
        }
    });
    let took = start.elapsed();
    assert!((ms(400)..ms(3_000)).contains(&took), "{took:?}");
}

#[test]
fn slow_start_takes_more_round_trips_for_a_large_message() {
    let took = |slow_start| {
        let pair = Pair::new(Link {
            slow_start,
            ..Link::with_delay(ms(20))
        });
        let (mut near, mut far) = pair.connect();
        let start = Instant::now();
        let writer = thread::spawn(move || {
            near.write_all(&pattern(200_000)).unwrap();
            near
        });
        expect(&mut far, &pattern(200_000));
        writer.join().unwrap();
        start.elapsed()
    };
    // 137 segments go as 10, 20, 40 and 67: three round trips before the last flight leaves.
    expect_best((0..5).map(|_| took(false)), ms(20));
    expect_best((0..5).map(|_| took(true)), ms(140));
}

#[test]
fn a_lost_segment_stalls_its_connection() {
    let pair = Pair::new(Link::with_delay(ms(10)));
    let (mut near, mut far) = pair.connect();
    let lossy = Link {
        loss: 0.5,
        ..Link::with_delay(ms(10))
    };
    pair.emulator.set(0, 1, lossy).unwrap();
    let mut slowest = Duration::ZERO;
    while pair.emulator.counters(0, 1).stalls == 0 {
        let start = Instant::now();
        near.write_all(b"x").unwrap();
        expect(&mut far, b"x");
        slowest = slowest.max(start.elapsed());
    }
    // The delay, the round trip and 200 ms.
    assert!(slowest >= ms(230), "{slowest:?}");
}

#[test]
fn a_changed_link_holds_for_what_is_sent_afterwards() {
    let pair = Pair::new(Link::with_delay(ms(40)));
    let (mut near, mut far) = pair.connect();
    pair.emulator.set(0, 1, Link::with_delay(ms(2))).unwrap();
    let best = (0..5).map(|_| {
        let start = Instant::now();
        near.write_all(b"x").unwrap();
        expect(&mut far, b"x");
        start.elapsed()
    });
    expect_best(best, ms(2));
}

#[test]
fn accuracy_tells_of_round_trips_and_throughput() {
    let link = Link {
        bits_per_second: Some(20_000_000),
        ..Link::with_delay(ms(5))
    };
    let found = accuracy(&link, 30).unwrap();
    assert_eq!(found.pings, 30);
    assert!((found.round_trip_us - 10_051.2).abs() < 0.1, "{found}");
    assert!(
        found.p50_us >= 0.0 && found.p50_us <= found.p99_us,
        "{found}"
    );
    assert!(found.p99_us <= found.max_us, "{found}");
    let reached = found.reached_bits_per_second / 20e6;
    assert!((0.3..1.05).contains(&reached), "{found}");
    assert_eq!(found.wanted_bits_per_second, Some(20_000_000));
}
