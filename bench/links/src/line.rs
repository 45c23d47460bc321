//! The line that all connections from one endpoint to another share, and its dice.

use crate::link::{Link, SEGMENT_BYTES};
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::time::{Duration, Instant};

/// A piece is no longer than what the line carries in this time, since all its bytes arrive at once.
const PIECE_TIME: Duration = Duration::from_micros(500);

/// The longest piece on a line of any width.
pub(crate) const MAX_PIECE_BYTES: usize = 64 << 10;

/// The least wait before Linux retransmits what nobody asked for, on top of the round trip
/// (`TCP_RTO_MIN`).
const MIN_RETRANSMISSION: Duration = Duration::from_millis(200);

/// The first wait for an answer to a SYN (RFC 6298, 2.1).
const HANDSHAKE_RETRANSMISSION: Duration = Duration::from_secs(1);

/// How often a segment may be lost again. The last wait is then 32 times the first.
const MAX_RETRANSMISSIONS: u32 = 6;

/// Duplicate acknowledgements that tell of a loss (RFC 5681, 3.2).
pub(crate) const DUPLICATES: usize = 3;

/// Something that sends bytes one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    pub(crate) bits_per_second: Option<u64>,
    free_at: Instant,
}

impl Rate {
    pub(crate) fn new(bits_per_second: Option<u64>, now: Instant) -> Self {
        Self {
            bits_per_second,
            free_at: now,
        }
    }

    /// When the last of so many bytes has been sent, the first not before `ready`.
    fn send(&mut self, ready: Instant, bytes: usize) -> Instant {
        let Some(bits) = self.bits_per_second else {
            return ready;
        };
        let nanos = bytes as u128 * 8 * 1_000_000_000 / u128::from(bits.max(1));
        let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.free_at = self.free_at.max(ready) + takes;
        self.free_at
    }
}

/// A lost segment, seen from the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    /// How much later its bytes come.
    pub(crate) pause: Duration,
    /// Segments sent behind it so far, if they can still shorten the pause. `None` if the pause
    /// stays as it is.
    pub(crate) followed_by: Option<usize>,
}

/// One way between two endpoints.
pub(crate) struct Line {
    pub(crate) link: Link,
    /// Whether a partition lies across it.
    pub(crate) cut: bool,
    rate: Rate,
    rng: SmallRng,
}

impl Line {
    pub(crate) fn new(link: Link, seed: u64, now: Instant) -> Self {
        Self {
            link,
            cut: false,
            rate: Rate::new(link.bits_per_second, now),
            rng: SmallRng::seed_from_u64(seed),
        }
    }

    /// Changes what is sent from now on.
    pub(crate) fn set(&mut self, link: Link) {
        self.link = link;
        self.rate.bits_per_second = link.bits_per_second;
    }

    /// When the last of a piece's bytes has left both the sender's own line and this one.
    pub(crate) fn send(&mut self, egress: &mut Rate, ready: Instant, bytes: usize) -> Instant {
        let left = egress.send(ready, bytes);
        self.rate.send(ready, bytes).max(left)
    }

    /// How long bytes are on the way this time.
    pub(crate) fn travel(&mut self) -> Duration {
        if self.link.jitter.is_zero() {
            return self.link.delay;
        }
        self.link.delay + self.rng.random_range(Duration::ZERO..=self.link.jitter)
    }

    /// The longest piece that arrives as one.
    pub(crate) fn piece_bytes(&self, egress: &Rate) -> usize {
        let narrow = match (self.link.bits_per_second, egress.bits_per_second) {
            (Some(own), Some(shared)) => own.min(shared),
            (own, shared) => match own.or(shared) {
                Some(bits) => bits,
                None => return MAX_PIECE_BYTES,
            },
        };
        let bytes = u128::from(narrow) * PIECE_TIME.as_nanos() / 8 / 1_000_000_000;
        usize::try_from(bytes)
            .unwrap_or(usize::MAX)
            .clamp(SEGMENT_BYTES, MAX_PIECE_BYTES)
    }

    /// Whether a segment of a piece is lost, when round trips take so long.
    pub(crate) fn lose(&mut self, round_trip: Duration, bytes: usize) -> Option<Loss> {
        if self.link.loss <= 0.0 {
            return None;
        }
        let segments = bytes.div_ceil(SEGMENT_BYTES);
        let lost = (0..segments).find(|_| self.rng.random_bool(self.link.loss))?;
        let behind = segments - lost - 1;
        let again = self.waits(round_trip + MIN_RETRANSMISSION);
        if !again.is_zero() {
            let first = round_trip + MIN_RETRANSMISSION;
            return Some(Loss {
                pause: first + again * 2,
                followed_by: None,
            });
        }
        Some(if behind >= DUPLICATES {
            Loss {
                pause: round_trip,
                followed_by: None,
            }
        } else {
            Loss {
                pause: round_trip + MIN_RETRANSMISSION,
                followed_by: Some(behind),
            }
        })
    }

    /// How much longer a connection takes to open because a SYN, or its answer, was lost.
    pub(crate) fn lose_handshake(&mut self) -> Duration {
        if self.link.loss <= 0.0 {
            return Duration::ZERO;
        }
        self.waits(HANDSHAKE_RETRANSMISSION)
    }

    /// The sum of timers until a transmission comes through, each twice the one before.
    fn waits(&mut self, first: Duration) -> Duration {
        let mut sum = Duration::ZERO;
        let mut timer = first;
        for _ in 0..MAX_RETRANSMISSIONS {
            if !self.rng.random_bool(self.link.loss) {
                break;
            }
            sum += timer;
            timer *= 2;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIP: Duration = Duration::from_millis(80);

    fn line(link: Link) -> (Line, Rate, Instant) {
        let now = Instant::now();
        (Line::new(link, 7, now), Rate::new(None, now), now)
    }

    #[test]
    fn bytes_leave_one_after_the_other_and_an_idle_line_saves_nothing_up() {
        let (mut line, mut egress, now) = line(Link {
            bits_per_second: Some(8_000_000),
            ..Link::default()
        });
        let ms = Duration::from_millis;
        assert_eq!(line.send(&mut egress, now, 1_000), now + ms(1));
        assert_eq!(line.send(&mut egress, now, 2_000), now + ms(3));
        assert_eq!(line.send(&mut egress, now + ms(9), 1_000), now + ms(10));
    }

    #[test]
    fn lines_of_one_sender_share_its_egress() {
        let (mut first, _, now) = line(Link::default());
        let (mut second, _, _) = line(Link::default());
        let mut egress = Rate::new(Some(8_000_000), now);
        let ms = Duration::from_millis;
        assert_eq!(first.send(&mut egress, now, 1_000), now + ms(1));
        assert_eq!(second.send(&mut egress, now, 1_000), now + ms(2));
    }

    #[test]
    fn a_loss_with_three_segments_behind_it_costs_a_round_trip_and_else_a_timer() {
        let (mut line, _, _) = line(Link {
            loss: 0.01,
            ..Link::default()
        });
        let (mut fast, mut late, mut pieces) = (0, 0, 0);
        while fast < 20 || late < 20 {
            pieces += 1;
            match line.lose(TRIP, 10 * SEGMENT_BYTES) {
                None => {}
                Some(loss) if loss.pause == TRIP => {
                    assert_eq!(loss.followed_by, None);
                    fast += 1;
                }
                Some(loss) => {
                    assert!(loss.pause >= TRIP + MIN_RETRANSMISSION, "{loss:?}");
                    late += 1;
                }
            }
            assert!(pieces < 100_000, "{fast} {late}");
        }
        // One piece in ten loses a segment, and in seven of ten cases three follow.
        let share = f64::from(fast + late) / f64::from(pieces);
        assert!((0.05..0.2).contains(&share), "{share}");
        assert!(fast > late, "{fast} {late}");
    }

    #[test]
    fn a_perfect_line_loses_nothing() {
        let (mut line, _, _) = line(Link::default());
        assert!((0..1_000).all(|_| line.lose(TRIP, 1 << 20).is_none()));
        assert_eq!(line.lose_handshake(), Duration::ZERO);
    }
}
