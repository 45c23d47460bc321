//! What dividing a link among peers costs: the source's shaper alone, in virtual time.

use crate::state::process;
use quorate_lanes::{Shaper, Sharing, Waiting};

/// Bytes a second: 1 Gbit/s.
const LINK: u64 = 125_000_000;

/// Peers that fetch, of ten.
const PEERS: usize = 10;

/// Bytes of an answer: a part of a state.
const ANSWER: u64 = 320_000;

/// Virtual time.
const SECONDS: u64 = 60;

/// How much of a core the shaper takes at 1 Gbit/s, while ten peers fetch parts all the time.
pub(super) fn cores() -> anyhow::Result<f64> {
    let mut shaper = Shaper::new(PEERS, LINK, Sharing::Need);
    let waiting: Vec<Waiting> = (0..PEERS)
        .map(|peer| Waiting {
            peer,
            is_ready: true,
            unsent: 0,
            is_scavenger: peer % 5 == 0,
            left: 1_000_000,
        })
        .collect();
    let (mut now_us, mut sent) = (0, 0);
    let before = process::thread_cpu()?;
    while now_us < SECONDS * 1_000_000 {
        match shaper.choose(now_us, &waiting) {
            Some(peer) => {
                shaper.spend(peer, now_us, ANSWER, ANSWER);
                sent += ANSWER;
            }
            None => now_us += shaper.wait_us(now_us, &waiting).unwrap_or(1).max(1),
        }
    }
    let took = process::thread_cpu()? - before;
    anyhow::ensure!(
        sent > SECONDS * LINK / 10 * 9,
        "the link was not full: {sent} bytes"
    );
    Ok(took.as_secs_f64() / SECONDS as f64)
}
