//! The shaper in virtual time, with connections that take so many bytes a second.
//!
//! Link and ceilings are those of the thesis: 1 Gbit/s, one connection of 1 Gbit/s and one of 700
//! Mbit/s, transfers of 2 GB.

use super::*;

const LINK: u64 = 125_000_000;
const SLOW: u64 = 87_500_000;
const STATE: u64 = 2_000_000_000;
const CHUNK: u64 = 1 << 20;
const STEP_US: u64 = 1_000;
const MAX_UNSENT: u64 = 4 << 20;

/// A peer that fetches the state, once or again and again.
struct Fetcher {
    takes: u64,
    begins_us: u64,
    /// How long after the end of a transfer, or after its beginning, the next one begins.
    again: Option<Again>,
    sent: u64,
    unsent: u64,
    passes: usize,
    began_us: u64,
    /// How long each transfer took.
    took: Vec<f64>,
}

enum Again {
    AtOnce,
    Each(u64),
}

fn fetcher(takes: u64, begins_s: u64, again: Option<Again>) -> Fetcher {
    Fetcher {
        takes,
        begins_us: begins_s * SECOND_US,
        again,
        sent: 0,
        unsent: 0,
        passes: 0,
        began_us: begins_s * SECOND_US,
        took: Vec::new(),
    }
}

impl Fetcher {
    fn is_fetching(&self, now_us: u64) -> bool {
        now_us >= self.begins_us && (self.sent < STATE || self.unsent > 0)
    }

    fn take(&mut self, now_us: u64) {
        self.unsent = self.unsent.saturating_sub(self.takes * STEP_US / SECOND_US);
        if self.unsent > 0 || self.sent < STATE {
            return;
        }
        let took = now_us.saturating_sub(self.began_us) as f64 / 1e6;
        let next_us = match self.again {
            Some(Again::AtOnce) => now_us,
            Some(Again::Each(interval)) => (self.began_us + interval).max(now_us),
            None if self.took.is_empty() => u64::MAX,
            None => return,
        };
        self.took.push(took);
        self.passes += 1;
        self.began_us = next_us;
        self.begins_us = next_us;
        if next_us != u64::MAX {
            self.sent = 0;
        }
    }
}

/// Runs until so many seconds have passed.
fn run(sharing: Sharing, fetchers: &mut [Fetcher], seconds: u64) -> Shaper {
    let mut shaper = Shaper::new(fetchers.len(), LINK, sharing);
    for (peer, fetcher) in fetchers.iter().enumerate() {
        shaper.set_ceiling(peer, fetcher.takes);
    }
    let mut now_us = 0;
    while now_us < seconds * SECOND_US {
        now_us += STEP_US;
        for fetcher in fetchers.iter_mut() {
            fetcher.take(now_us);
        }
        loop {
            let waiting: Vec<Waiting> = fetchers
                .iter()
                .enumerate()
                .filter(|(_, fetcher)| fetcher.is_fetching(now_us))
                .map(|(peer, fetcher)| Waiting {
                    peer,
                    is_ready: fetcher.sent < STATE && fetcher.unsent < MAX_UNSENT,
                    unsent: fetcher.unsent,
                    // What it has had once already, of the same snapshot.
                    is_scavenger: fetcher.passes > 0
                        && matches!(fetcher.again, Some(Again::AtOnce)),
                    left: u32::try_from((STATE - fetcher.sent) / 2_000).expect("millionths"),
                })
                .collect();
            let Some(peer) = shaper.choose(now_us, &waiting) else {
                break;
            };
            let bytes = CHUNK.min(STATE - fetchers[peer].sent);
            fetchers[peer].sent += bytes;
            fetchers[peer].unsent += bytes;
            shaper.spend(peer, now_us, bytes, bytes);
        }
    }
    shaper
}

/// How long the slow one took, and when both were done, if one begins five seconds later.
fn two(sharing: Sharing, slow_first: bool) -> (f64, f64) {
    let (fast_s, slow_s) = if slow_first { (5, 0) } else { (0, 5) };
    let mut both = [fetcher(LINK, fast_s, None), fetcher(SLOW, slow_s, None)];
    run(sharing, &mut both, 60);
    let slow = both[1].took[0];
    let end = (fast_s as f64 + both[0].took[0]).max(slow_s as f64 + slow);
    (slow, end)
}

/// The mean time of a transfer each 40 seconds beside a peer that fetches without end.
fn beside_noise(sharing: Sharing) -> f64 {
    let mut both = [
        fetcher(LINK, 20, Some(Again::Each(40 * SECOND_US))),
        fetcher(SLOW, 0, Some(Again::AtOnce)),
    ];
    run(sharing, &mut both, 300);
    let took = &both[0].took;
    took.iter().sum::<f64>() / took.len() as f64
}

#[test]
fn alone_a_peer_gets_what_the_link_and_its_connection_carry() {
    for sharing in [Sharing::Static, Sharing::Uniform, Sharing::Need] {
        for (takes, expected) in [(LINK, 16.0), (SLOW, 22.85)] {
            let mut one = [fetcher(takes, 0, None)];
            run(sharing, &mut one, 30);
            let took = one[0].took[0];
            assert!(
                (expected..expected * 1.01).contains(&took),
                "{sharing:?} {took}"
            );
        }
    }
}

/// Both orders: the slow one as fast as if it were alone, and the link full to the end.
#[test]
fn of_two_that_recover_none_costs_the_other_more_than_it_must() {
    for slow_first in [false, true] {
        let (slow, end) = two(Sharing::Need, slow_first);
        assert!(slow < 22.86 * 1.045, "{slow}");
        assert!(end < 32.0 * 1.05, "{end}");
        // What the sharing of the thesis makes of it.
        let (uniform, _) = two(Sharing::Uniform, slow_first);
        let (fixed, _) = two(Sharing::Static, slow_first);
        assert!(
            slow < uniform && uniform < fixed,
            "{slow} {uniform} {fixed}"
        );
    }
}

#[test]
fn a_noisy_neighbour_costs_next_to_nothing() {
    let best = 16.0;
    let fixed = beside_noise(Sharing::Static);
    let closed = |took: f64| (fixed - took) / (fixed - best);
    let need = closed(beside_noise(Sharing::Need));
    let uniform = closed(beside_noise(Sharing::Uniform));
    assert!(need > 0.9, "{need}");
    assert!(need > uniform, "{need} {uniform}");
}

#[test]
fn a_noisy_peer_is_held_to_a_tenth_until_it_has_been_quiet() {
    let mut shaper = Shaper::new(1, LINK, Sharing::Uniform);
    let waits = Waiting {
        peer: 0,
        is_ready: true,
        unsent: 0,
        is_scavenger: false,
        left: 1_000_000,
    };
    let mut now_us = SECOND_US;
    for _ in 0..4 {
        shaper.spend(0, now_us, LINK * 13, LINK * 13);
        now_us += 15 * SECOND_US;
    }
    shaper.choose(now_us, &[waits]);
    assert!(shaper.is_noisy(0));
    assert_eq!(shaper.rate(0).ceiling, LINK / 10);
    now_us += WINDOW_S * SECOND_US;
    shaper.choose(now_us, &[waits]);
    assert!(!shaper.is_noisy(0));
    assert_eq!(shaper.rate(0).ceiling, LINK);
}

#[test]
fn few_transfers_are_not_noise_however_large() {
    let mut shaper = Shaper::new(1, LINK, Sharing::Uniform);
    for second in 1..=60 {
        shaper.spend(0, second * SECOND_US, LINK, LINK);
    }
    assert!(!shaper.is_noisy(0), "one long transfer");
    for _ in 0..3 {
        shaper.begins_again(0, 60 * SECOND_US);
    }
    assert!(shaper.is_noisy(0));
}

#[test]
fn a_ceiling_follows_its_connection_down_and_up() {
    let mut shaper = Shaper::new(2, LINK, Sharing::Need);
    let mut unsent = 0_u64;
    let mut now_us = 0;
    let mut run = |shaper: &mut Shaper, takes: u64, seconds: u64| {
        let end_us = now_us + seconds * SECOND_US;
        while now_us < end_us {
            now_us += STEP_US;
            unsent = unsent.saturating_sub(takes * STEP_US / SECOND_US);
            loop {
                let waits = Waiting {
                    peer: 1,
                    is_ready: unsent < MAX_UNSENT,
                    unsent,
                    is_scavenger: false,
                    left: 1_000_000,
                };
                if shaper.choose(now_us, &[waits]).is_none() {
                    break;
                }
                shaper.spend(1, now_us, CHUNK, CHUNK);
                unsent += CHUNK;
            }
        }
    };
    run(&mut shaper, LINK / 10, 5);
    let slow = shaper.rate(1).ceiling;
    assert!((LINK / 11..LINK / 3).contains(&slow), "{slow}");
    run(&mut shaper, LINK, 10);
    assert_eq!(shaper.rate(1).ceiling, LINK);
    // A connection that stands still is not held back for long afterwards.
    run(&mut shaper, 2_000, 3);
    assert_eq!(shaper.rate(1).ceiling, LINK / LEAST_CEILING);
    run(&mut shaper, LINK, 15);
    assert_eq!(shaper.rate(1).ceiling, LINK);
}
