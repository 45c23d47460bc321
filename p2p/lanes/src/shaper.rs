//! A hierarchical token bucket for bulk answers, keyed by peer: which peer may be sent its next
//! answer.
//!
//! The root bucket holds what the link may carry. Below it each peer has two: one for its
//! guaranteed rate, and one for its ceiling. As long as the root has tokens, a peer below its
//! guaranteed rate is served; if there is none, a peer below its ceiling borrows what others do not
//! use. Rates are those of [`allocate`] among the peers that are being served now. They are computed
//! again when a peer begins or ends, and each second.
//!
//! # What is learned of a peer
//!
//! - Its ceiling. If more than a megabyte waited for its connection for a whole second, what the connection
//!   took is what it can take: the root is below what this machine's link carries, so nothing else
//!   held it back. If nothing waited although 90 % of the ceiling were sent, it can perhaps take
//!   more: the ceiling grows by 20 % of the link. (In the thesis the kernel shares the link, so an
//!   estimate counts only for a peer that is served alone.)
//! - Its use within the last two minutes, by bytes. The thesis adds up the rates of transfers, by
//!   which a peer that is held back would count as modest.
//! - Whether it is noisy: at least four transfers, and 40 % of what the link carries, within that
//!   time. Then its ceiling is a tenth of the link until it is not any longer.

use crate::{Bucket, Claim, Rate, Sharing, allocate};
use std::{collections::VecDeque, time::Duration};

const SECOND_US: u64 = 1_000_000;

/// How long use is remembered, in seconds.
const WINDOW_S: u64 = 120;

/// A peer that was not served for so long has ended its transfer.
const TRANSFER_ENDS_US: u64 = 2 * SECOND_US;

/// A peer that was not served for so long leaves its guaranteed rate to the others.
const IDLE_US: u64 = SECOND_US / 2;

/// Fewest transfers of a noisy peer within the window.
const NOISY_TRANSFERS: usize = 4;

/// A noisy peer has had this many of 100 bytes that the link can carry within the window.
const NOISY_PERCENT: u64 = 40;

/// The ceiling of a noisy peer: 1/10 of the link.
const NOISY_CEILING: u64 = 10;

/// A connection is the bottleneck if more than this waits for it: more than a single answer, which
/// waits for a moment on any connection.
const BACKLOG_BYTES: u64 = 1 << 20;

/// No ceiling that is learned is lower than 1/100 of the link.
const LEAST_CEILING: u64 = 100;

/// A peer that was sent more than this many of 100 of its ceiling perhaps takes more.
const TAKEN_PERCENT: u64 = 90;

/// Then the ceiling grows by this many of 100 of the link.
const GROWTH_PERCENT: u64 = 20;

/// Least burst of each bucket in bytes: small enough to keep the shares, as the burst of a class in
/// the kernel's `htb` must be.
const BURST_BYTES: u64 = 256 << 10;

/// Times in a second that a bucket may be filled by its rate.
const BURSTS_PER_SECOND: u64 = 100;

/// A peer with requests, or with answers that its connection has not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub peer: usize,
    /// Whether there is anything to send it now.
    pub is_ready: bool,
    /// Bytes that were sent to it, and that its connection has not taken.
    pub unsent: u64,
    /// Whether it needs what it requests.
    pub is_scavenger: bool,
    /// How much it still needs, in millionths of the whole.
    pub left: u32,
}

/// Divides a link among peers 0 to n − 1. Time is an argument, in microseconds since an arbitrary
/// start.
#[derive(Debug)]
pub struct Shaper {
    link: u64,
    sharing: Sharing,
    root: Bucket,
    peers: Vec<Peer>,
    /// Peers that are being served, ascending.
    served: Vec<usize>,
    second_began_us: u64,
}

#[derive(Debug)]
struct Peer {
    ceiling: u64,
    /// What its connection has taken in a second.
    takes: u64,
    rate: Rate,
    guaranteed: Bucket,
    limit: Bucket,
    /// Seconds of borrowing at its guaranteed rate, in millionths.
    borrowed: u128,
    /// Bytes by the second in which they were sent, oldest first.
    use_by_second: VecDeque<(u64, u64)>,
    used: u64,
    /// When its transfers of the window began.
    transfers: VecDeque<u64>,
    served_us: Option<u64>,
    second: Second,
    claim: (bool, u32),
}

/// What is seen of a peer within one second.
#[derive(Clone, Copy, Debug, Default)]
struct Second {
    sent: u64,
    /// What that was charged for.
    priced: u64,
    /// Unsent bytes when the second began.
    unsent_before: u64,
    unsent: u64,
    /// Whether its connection had something to take all the time.
    was_busy: bool,
}

impl Shaper {
    /// Divides `link` bytes a second among `peers` peers.
    pub fn new(peers: usize, link: u64, sharing: Sharing) -> Self {
        let link = link.max(1);
        let idle = Rate {
            guaranteed: 0,
            ceiling: link,
            rank: 1,
        };
        let peer = |_| Peer {
            ceiling: link,
            takes: link,
            rate: idle,
            guaranteed: bucket(link),
            limit: bucket(link),
            borrowed: 0,
            use_by_second: VecDeque::new(),
            used: 0,
            transfers: VecDeque::new(),
            served_us: None,
            second: Second::default(),
            claim: (false, 0),
        };
        Self {
            link,
            sharing,
            root: bucket(link),
            peers: (0..peers).map(peer).collect(),
            served: Vec::new(),
            second_began_us: 0,
        }
    }

    /// The rate of a peer as of the last computation.
    pub fn rate(&self, peer: usize) -> Rate {
        self.peers[peer].rate
    }

    /// Whether a peer has asked for so much that it is held back.
    pub fn is_noisy(&self, peer: usize) -> bool {
        let peer = &self.peers[peer];
        let link = u128::from(self.link) * u128::from(WINDOW_S);
        peer.transfers.len() >= NOISY_TRANSFERS
            && u128::from(peer.used) * 100 >= link * u128::from(NOISY_PERCENT)
    }

    /// Sets what is known of a connection from before.
    pub fn set_ceiling(&mut self, peer: usize, ceiling: u64) {
        let ceiling = ceiling.clamp(1, self.link);
        let peer = &mut self.peers[peer];
        (peer.ceiling, peer.takes) = (ceiling, ceiling);
    }

    /// What the link carries within this time.
    pub fn bytes_within(&self, time: Duration) -> u64 {
        let bytes = u128::from(self.link) * time.as_micros() / u128::from(SECOND_US);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Which of the waiting peers is to be served now.
    pub fn choose(&mut self, now_us: u64, waiting: &[Waiting]) -> Option<usize> {
        self.look(now_us, waiting);
        if self.root.empty_for_us(now_us) > 0 {
            return None;
        }
        let ready = waiting.iter().filter(|waiting| waiting.is_ready);
        let open = ready.map(|waiting| waiting.peer);
        let open = open.filter(|peer| self.peers[*peer].limit.empty_for_us(now_us) == 0);
        let open: Vec<usize> = open.collect();
        let below = open.iter().copied().filter(|peer| {
            let peer = &self.peers[*peer];
            peer.rate.guaranteed > 0 && peer.guaranteed.empty_for_us(now_us) == 0
        });
        below
            .min_by_key(|peer| self.peers[*peer].rate.rank)
            .or_else(|| {
                open.into_iter().min_by_key(|peer| {
                    let peer = &self.peers[*peer];
                    match self.sharing {
                        Sharing::Priority | Sharing::Need => (peer.rate.rank, peer.borrowed),
                        _ => (0, peer.borrowed),
                    }
                })
            })
    }

    /// How long until one of the waiting peers may be served, if time is all that it takes.
    pub fn wait_us(&self, now_us: u64, waiting: &[Waiting]) -> Option<u64> {
        let root = self.root.empty_for_us(now_us);
        let ready = waiting.iter().filter(|waiting| waiting.is_ready);
        let limits = ready.map(|waiting| self.peers[waiting.peer].limit.empty_for_us(now_us));
        limits.min().map(|limit| limit.max(root))
    }

    /// Notes what was sent to a peer. The price is at least its bytes: an answer may cost more than
    /// it is long.
    pub fn spend(&mut self, peer: usize, now_us: u64, bytes: u64, price: u64) {
        self.root.spend(now_us, price);
        let second = now_us / SECOND_US;
        let peer = &mut self.peers[peer];
        peer.limit.spend(now_us, price);
        if peer.rate.guaranteed > 0 && peer.guaranteed.empty_for_us(now_us) == 0 {
            peer.guaranteed.spend(now_us, price);
        } else {
            let rate = u128::from(peer.rate.guaranteed.max(1));
            peer.borrowed += u128::from(price) * u128::from(SECOND_US) / rate;
        }
        peer.used += bytes;
        match peer.use_by_second.back_mut() {
            Some((last, sum)) if *last == second => *sum += bytes,
            _ => peer.use_by_second.push_back((second, bytes)),
        }
        let begins = peer
            .served_us
            .is_none_or(|last| now_us.saturating_sub(last) >= TRANSFER_ENDS_US);
        if begins {
            peer.transfer_begins(now_us);
        }
        peer.served_us = Some(now_us);
        peer.second.sent += bytes;
        peer.second.priced += price;
    }

    /// Notes that a peer begins again with what it has had: that is another transfer.
    pub fn begins_again(&mut self, peer: usize, now_us: u64) {
        self.peers[peer].transfer_begins(now_us);
    }

    /// Takes in who waits, and computes the rates again if it is time.
    fn look(&mut self, now_us: u64, waiting: &[Waiting]) {
        for peer in &mut self.peers {
            peer.second.unsent = 0;
        }
        for waits in waiting {
            let peer = &mut self.peers[waits.peer];
            peer.second.unsent = waits.unsent;
            peer.claim = (waits.is_scavenger, waits.left);
        }
        for peer in &mut self.peers {
            peer.second.was_busy &= peer.second.unsent > BACKLOG_BYTES;
        }
        let is_served = |place: usize, peer: &Peer| {
            waiting.iter().any(|waits| waits.peer == place)
                || peer
                    .served_us
                    .is_some_and(|last| now_us.saturating_sub(last) < IDLE_US)
        };
        let served: Vec<usize> = self
            .peers
            .iter()
            .enumerate()
            .filter(|(place, peer)| is_served(*place, peer))
            .map(|(place, _)| place)
            .collect();
        let passed_us = now_us.saturating_sub(self.second_began_us);
        let second_is_over = passed_us >= SECOND_US;
        if second_is_over {
            self.estimate(&served, passed_us);
            self.forget(now_us);
            self.second_began_us = now_us;
        }
        if second_is_over || served != self.served {
            self.served = served;
            self.compute(now_us);
        }
    }

    /// Learns the ceilings from the second that is over.
    fn estimate(&mut self, served: &[usize], passed_us: u64) {
        let per_second = |bytes: u64| {
            let bytes = u128::from(bytes) * u128::from(SECOND_US) / u128::from(passed_us.max(1));
            u64::try_from(bytes).unwrap_or(u64::MAX)
        };
        let link = self.link;
        let learns = self.sharing != Sharing::Static && passed_us < 2 * SECOND_US;
        for place in served {
            let peer = &mut self.peers[*place];
            let second = peer.second;
            let taken = (second.sent + second.unsent_before).saturating_sub(second.unsent);
            let taken = per_second(taken).min(link);
            let priced = per_second(second.priced);
            if !learns || taken == 0 {
                continue;
            }
            if second.was_busy {
                // A connection that stood still for a moment must not be held back for minutes.
                let taken = taken.max(link / LEAST_CEILING);
                (peer.ceiling, peer.takes) = (taken, taken);
            } else if priced > peer.ceiling / 100 * TAKEN_PERCENT {
                peer.takes = peer.takes.max(taken);
                peer.ceiling = (peer.ceiling + link / 100 * GROWTH_PERCENT).min(link);
            }
        }
        for peer in &mut self.peers {
            peer.second = Second {
                unsent_before: peer.second.unsent,
                was_busy: peer.second.unsent > BACKLOG_BYTES,
                ..Second::default()
            };
        }
    }

    fn forget(&mut self, now_us: u64) {
        let since = (now_us / SECOND_US).saturating_sub(WINDOW_S);
        for peer in &mut self.peers {
            while let Some((second, bytes)) = peer.use_by_second.front().copied()
                && second < since
            {
                peer.used -= bytes;
                peer.use_by_second.pop_front();
            }
            let old = |begun: &u64| begun / SECOND_US < since;
            while peer.transfers.front().is_some_and(old) {
                peer.transfers.pop_front();
            }
        }
    }

    fn compute(&mut self, now_us: u64) {
        let claims: Vec<Claim> = self
            .served
            .iter()
            .map(|place| {
                let peer = &self.peers[*place];
                let noisy = self.is_noisy(*place) && self.sharing != Sharing::Static;
                let (is_scavenger, left) = peer.claim;
                Claim {
                    ceiling: match noisy {
                        true => peer.ceiling.min(self.link / NOISY_CEILING),
                        false => peer.ceiling,
                    },
                    takes: peer.takes,
                    used: peer.used,
                    is_scavenger,
                    left,
                }
            })
            .collect();
        let rates = allocate(self.link, self.sharing, &claims);
        let least = self.served.iter().map(|place| self.peers[*place].borrowed);
        let least = least.min().unwrap_or(0);
        for (place, rate) in self.served.iter().zip(rates) {
            let peer = &mut self.peers[*place];
            peer.rate = rate;
            // Who joins does not borrow for all the time that it was away.
            peer.borrowed = peer.borrowed.saturating_sub(least);
            peer.guaranteed
                .set_rate(now_us, rate.guaranteed, burst(rate.guaranteed));
            peer.limit
                .set_rate(now_us, rate.ceiling, burst(rate.ceiling));
        }
    }
}

impl Peer {
    /// More than make it noisy are not remembered.
    fn transfer_begins(&mut self, now_us: u64) {
        self.transfers.push_back(now_us);
        if self.transfers.len() > NOISY_TRANSFERS {
            self.transfers.pop_front();
        }
    }
}

fn bucket(rate: u64) -> Bucket {
    Bucket::new(rate, burst(rate))
}

fn burst(rate: u64) -> u64 {
    (rate / BURSTS_PER_SECOND).max(BURST_BYTES)
}

#[cfg(test)]
mod tests;
