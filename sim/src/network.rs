//! The links between validators: delay, loss, doubles, disorder, bandwidth, and cuts of any shape.

use quorate_consensus::Moment;
use quorate_p2p::Lane;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Regions of [`Latency::Regions`], and the median round trips between them in milliseconds
/// (measured between data centres of one provider).
pub const REGIONS: [&str; 10] = [
    "us-west-1",
    "us-east-1",
    "eu-west-1",
    "ap-northeast-1",
    "eu-north-1",
    "ap-south-1",
    "sa-east-1",
    "eu-central-1",
    "ap-northeast-2",
    "ap-southeast-2",
];

/// The median round trips between [`REGIONS`], in milliseconds.
const ROUND_TRIPS_MS: [[u64; 10]; 10] = [
    [3, 64, 130, 108, 173, 232, 175, 153, 134, 139],
    [64, 6, 70, 150, 113, 193, 115, 93, 180, 200],
    [130, 70, 3, 202, 41, 126, 178, 27, 233, 256],
    [109, 150, 202, 3, 247, 134, 258, 228, 36, 107],
    [172, 112, 40, 247, 3, 149, 223, 23, 250, 271],
    [232, 190, 125, 133, 148, 3, 301, 129, 134, 155],
    [175, 115, 179, 259, 223, 302, 3, 205, 290, 312],
    [153, 93, 27, 227, 23, 129, 204, 4, 231, 251],
    [134, 180, 233, 36, 250, 135, 289, 232, 4, 145],
    [139, 200, 256, 106, 272, 155, 312, 252, 146, 4],
];

/// How long messages take, one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Latency {
    /// Between the first and the second, evenly at random.
    Between(Duration, Duration),
    /// Validator i sits in region i mod 10 of [`REGIONS`]; a tenth at random on top.
    Regions,
}

/// How the links are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Links {
    /// How long messages take.
    pub latency: Latency,
    /// How many of 100 are lost.
    pub loss_percent: u32,
    /// How many of 100 come twice.
    pub double_percent: u32,
    /// Whether messages of one link may overtake each other.
    pub disorder: bool,
    /// Bytes that a validator can send in a second; `None` for any number.
    pub bandwidth: Option<u64>,
    /// Validators whose messages take so much longer.
    pub slow: BTreeMap<usize, Duration>,
}

impl Links {
    /// Good links of 1 to 5 ms.
    pub fn good() -> Self {
        Self {
            latency: Latency::Between(Duration::from_millis(1), Duration::from_millis(5)),
            loss_percent: 0,
            double_percent: 0,
            disorder: false,
            bandwidth: None,
            slow: BTreeMap::new(),
        }
    }

    /// The longest that a message takes when nothing queues.
    pub fn bound(&self) -> Duration {
        let base = match self.latency {
            Latency::Between(_, most) => most,
            Latency::Regions => {
                let most = ROUND_TRIPS_MS.iter().flatten().copied().max().unwrap_or(0);
                Duration::from_millis(most) * 11 / 20
            }
        };
        base + self.slow.values().max().copied().unwrap_or_default()
    }
}

/// The links as they are now.
pub(crate) struct Network {
    pub(crate) links: Links,
    /// Who hears whom: only members of one group. Hosts, not validators, so that twins can be
    /// apart.
    pub(crate) groups: Option<Vec<BTreeSet<usize>>>,
    /// Links that carry nothing, from the first to the second.
    pub(crate) cut: BTreeSet<(usize, usize)>,
    /// When the last message of a link and lane arrives.
    last: BTreeMap<(usize, usize, usize), Moment>,
    /// When a validator's line is free again.
    line_free: BTreeMap<usize, Moment>,
    /// How many messages were lost by chance or came twice.
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
}

impl Network {
    pub(crate) fn new(links: Links) -> Self {
        Self {
            links,
            groups: None,
            cut: BTreeSet::new(),
            last: BTreeMap::new(),
            line_free: BTreeMap::new(),
            lost: 0,
            doubled: 0,
        }
    }

    /// All links are whole, and none loses anything.
    pub(crate) fn heal(&mut self) {
        self.groups = None;
        self.cut.clear();
        self.links.loss_percent = 0;
    }

    /// When a frame arrives that is sent now: never, once, or more often.
    pub(crate) fn carry(
        &mut self,
        rng: &mut ChaCha8Rng,
        now: Moment,
        (from, to): (usize, usize),
        lane: Lane,
        bytes: usize,
    ) -> Vec<Moment> {
        let connected = self.groups.as_ref().is_none_or(|groups| {
            let mut groups = groups.iter();
            groups.any(|group| group.contains(&from) && group.contains(&to))
        });
        if !connected || self.cut.contains(&(from, to)) {
            return Vec::new();
        }
        if self.links.loss_percent > 0 && rng.random_range(0..100) < self.links.loss_percent {
            self.lost += 1;
            return Vec::new();
        }
        let mut sent = now;
        if let Some(bandwidth) = self.links.bandwidth {
            let free = self.line_free.entry(from).or_default();
            let takes = bytes as u64 * 1_000_000 / bandwidth.max(1);
            sent = (*free).max(now).after(Duration::from_micros(takes));
            *free = sent;
        }
        let mut arrivals = vec![sent.after(self.delay(rng, from, to))];
        if self.links.double_percent > 0 && rng.random_range(0..100) < self.links.double_percent {
            self.doubled += 1;
            arrivals.push(sent.after(self.delay(rng, from, to) * 2));
        }
        if !self.links.disorder {
            let last = self.last.entry((from, to, lane as usize)).or_default();
            for arrival in &mut arrivals {
                *arrival = (*arrival).max(*last);
                *last = *arrival;
            }
        }
        arrivals
    }

    fn delay(&self, rng: &mut ChaCha8Rng, from: usize, to: usize) -> Duration {
        let base = match self.links.latency {
            Latency::Between(least, most) => {
                let (least, most) = (least.as_micros() as u64, most.as_micros() as u64);
                Duration::from_micros(rng.random_range(least..=most))
            }
            Latency::Regions => {
                let round_trip = ROUND_TRIPS_MS[from % REGIONS.len()][to % REGIONS.len()];
                let one_way = round_trip * 500;
                Duration::from_micros(rng.random_range(one_way..=one_way * 11 / 10))
            }
        };
        let slow = |validator| self.links.slow.get(&validator).copied();
        base + slow(from).unwrap_or_default() + slow(to).unwrap_or_default()
    }
}
