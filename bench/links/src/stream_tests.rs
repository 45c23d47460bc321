#![allow(clippy::unwrap_used)]

use super::*;
use crate::link::Link;

const MS: Duration = Duration::from_millis(1);

struct Fixture {
    line: Line,
    egress: Rate,
    stream: Stream,
    start: Instant,
}

impl Fixture {
    fn new(link: Link) -> Self {
        let start = Instant::now();
        Self {
            line: Line::new(link, 11, start),
            egress: Rate::new(None, start),
            stream: Stream::new(start, start),
            start,
        }
    }

    fn send(&mut self, now: Instant, bytes: &[u8]) -> u64 {
        let mut path = Path {
            line: &mut self.line,
            egress: &mut self.egress,
            back: 10 * MS,
        };
        self.stream.send(now, bytes, &mut path)
    }

    /// Goes from one due time to the next; returns when each byte came.
    fn drain(&mut self) -> Vec<(Instant, u8)> {
        let mut came = Vec::new();
        while let Some(now) = self.stream.next_due() {
            self.stream.arrive(now, |_| {});
            let (first, second) = self.stream.ripe();
            came.extend(first.iter().chain(second).map(|byte| (now, *byte)));
            let bytes = first.len() + second.len();
            self.stream.received(now, bytes, 10 * MS);
            if bytes == 0 {
                break;
            }
        }
        came
    }
}

#[test]
fn jitter_delays_but_never_reorders() {
    let link = Link {
        delay: 10 * MS,
        jitter: 5 * MS,
        ..Link::default()
    };
    let mut fixture = Fixture::new(link);
    for number in 0..200u8 {
        let now = fixture.start + MS * u32::from(number);
        fixture.send(now, &[number]);
    }
    let came = fixture.drain();
    let numbers: Vec<u8> = came.iter().map(|(_, byte)| *byte).collect();
    assert_eq!(numbers, (0..200).collect::<Vec<u8>>());
    let mut spread = Vec::new();
    for (at, number) in &came {
        let took = *at - (fixture.start + MS * u32::from(*number));
        assert!((10 * MS..=15 * MS).contains(&took), "{number}: {took:?}");
        spread.push(took);
    }
    assert!(spread.iter().max() > spread.iter().min());
    assert!(came.is_sorted_by_key(|(at, _)| *at));
}

#[test]
fn a_segment_lost_at_the_tail_waits_for_the_timer_unless_three_follow_in_time() {
    let link = Link {
        delay: 10 * MS,
        loss: 0.5,
        ..Link::default()
    };
    let (mut timers, mut repaired) = (0, 0);
    // Each connection loses one segment and then nothing.
    for follow in [false, true].repeat(50) {
        let mut fixture = Fixture::new(link);
        let start = fixture.start;
        while fixture.send(start, b"x") == 0 {}
        fixture.line.set(Link { loss: 0.0, ..link });
        let known = fixture.stream.hole.is_some();
        if follow {
            for _ in 0..3 {
                fixture.send(start + 2 * MS, b"y");
            }
        }
        let came = fixture.drain();
        let lost = came.iter().rfind(|(_, byte)| *byte == b'x').unwrap().0 - start;
        if follow && known {
            // The third follower's duplicate comes back a round trip after it was sent.
            assert_eq!(lost, 2 * MS + 20 * MS + 10 * MS);
            repaired += 1;
        } else {
            assert!(lost >= 10 * MS + 20 * MS + 200 * MS, "{lost:?}");
            timers += 1;
        }
    }
    assert!(timers >= 50 && repaired > 5, "{timers} {repaired}");
}

#[test]
fn what_was_not_delivered_in_a_partition_is_sent_again_in_order() {
    let mut fixture = Fixture::new(Link {
        delay: 10 * MS,
        jitter: MS,
        bits_per_second: Some(8_000_000),
        ..Link::default()
    });
    let start = fixture.start;
    let sent: Vec<u8> = (0..20_000).map(|place| (place % 251) as u8).collect();
    fixture.send(start, &sent);
    let healed = start + Duration::from_secs(5);
    let mut path = Path {
        line: &mut fixture.line,
        egress: &mut fixture.egress,
        back: 10 * MS,
    };
    fixture.stream.send_again(healed, &mut path);
    let came = fixture.drain();
    assert!(came.iter().map(|(_, byte)| *byte).eq(sent));
    assert!(came[0].0 >= healed + 10 * MS);
    // 20 kB at 1 kB/ms.
    assert!(came[19_999].0 >= healed + 30 * MS);
}

#[test]
fn nothing_counts_as_sent_before_the_handshake_is_over() {
    let mut fixture = Fixture::new(Link::with_delay(10 * MS));
    fixture.stream.open_at(fixture.start + 20 * MS);
    fixture.send(fixture.start, b"early");
    assert_eq!(fixture.stream.next_due(), Some(fixture.start + 30 * MS));
}

#[test]
fn the_end_comes_behind_the_last_byte() {
    let mut fixture = Fixture::new(Link::with_delay(10 * MS));
    let start = fixture.start;
    fixture.send(start, b"last words");
    let mut path = Path {
        line: &mut fixture.line,
        egress: &mut fixture.egress,
        back: 10 * MS,
    };
    fixture.stream.finish(start, End::Finished, &mut path);
    let later = start + Duration::from_secs(1);
    assert_eq!(fixture.stream.take_end(later), None, "bytes are before it");
    assert_eq!(fixture.drain().len(), 10);
    assert_eq!(fixture.stream.take_end(later), Some(End::Finished));
    assert_eq!(fixture.stream.take_end(later), None);
}

#[test]
fn a_receiver_that_does_not_read_stops_the_sender() {
    let mut fixture = Fixture::new(Link::with_delay(MS));
    let start = fixture.start;
    let mut sent = 0;
    for step in 0..1_000u32 {
        let now = start + MS * step;
        let room = fixture.stream.room(now, 100_000, false).min(4_096);
        fixture.send(now, &vec![0; room]);
        sent += room;
        fixture.stream.arrive(now, |_| {});
    }
    assert_eq!(sent, 100_000);
    assert_eq!(fixture.stream.held(), 100_000);
}

#[test]
fn the_number_of_pieces_is_bounded() {
    let mut fixture = Fixture::new(Link::with_delay(MS));
    let start = fixture.start;
    let mut sent = 0;
    while fixture.stream.room(start, 1 << 20, false) > 0 {
        fixture.send(start, b"1");
        sent += 1;
    }
    assert_eq!(sent, MAX_PIECES);
}
