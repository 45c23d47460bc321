//! The links between validators: delay, loss, doubles, disorder, bandwidth, and cuts of any shape.

use quorate_consensus::Moment;
use quorate_lanes::Lane;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Places on earth and the median round trips between them, measured between data centres of one
/// provider.
#[derive(Debug, PartialEq, Eq)]
pub struct Map {
    /// What it is called.
    pub name: &'static str,
    /// The places.
    pub regions: &'static [&'static str],
    /// From the first to the second and back, in microseconds.
    pub round_trips_us: &'static [&'static [u64]],
}

/// Ten regions on all continents but two.
pub static WORLD: Map = Map {
    name: "world",
    regions: &[
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
    ],
    round_trips_us: &[
        &[
            2_817, 63_944, 129_934, 108_256, 172_856, 232_000, 174_762, 153_252, 133_536, 139_126,
        ],
        &[
            64_160, 5_506, 69_622, 149_684, 112_794, 192_506, 115_310, 93_160, 179_824, 199_812,
        ],
        &[
            130_108, 69_736, 3_178, 202_282, 40_878, 125_890, 178_206, 27_456, 232_626, 255_742,
        ],
        &[
            108_744, 149_537, 202_468, 2_750, 247_227, 134_328, 258_343, 227_580, 36_343, 106_936,
        ],
        &[
            172_498, 112_202, 39_718, 246_670, 3_332, 148_877, 222_980, 22_980, 250_092, 271_220,
        ],
        &[
            231_589, 189_670, 125_389, 133_254, 148_430, 3_167, 301_022, 128_968, 134_488, 154_675,
        ],
        &[
            175_308, 115_378, 178_588, 258_918, 223_336, 301_760, 3_318, 205_014, 289_659, 312_424,
        ],
        &[
            153_012, 92_650, 26_988, 226_991, 22_938, 129_262, 204_017, 4_042, 230_834, 251_345,
        ],
        &[
            133_928, 179_504, 233_225, 36_369, 250_374, 135_238, 289_366, 231_554, 4_020, 145_232,
        ],
        &[
            139_250, 199_676, 255_590, 105_814, 271_595, 154_862, 312_056, 251_648, 146_134, 4_096,
        ],
    ],
};

/// Four regions of one country.
pub static UNITED_STATES: Map = Map {
    name: "united-states",
    regions: &["us-east-1", "us-east-2", "us-west-1", "us-west-2"],
    round_trips_us: &[
        &[5_506, 15_068, 64_160, 64_419],
        &[16_476, 5_402, 53_220, 51_166],
        &[63_944, 52_468, 2_817, 21_890],
        &[64_031, 50_502, 21_720, 3_170],
    ],
};

/// All maps.
pub static MAPS: [&Map; 2] = [&WORLD, &UNITED_STATES];

impl Map {
    /// How long a message takes from one validator to another: validator i sits in region i modulo
    /// their number.
    pub fn one_way(&self, from: usize, to: usize) -> Duration {
        let regions = self.regions.len();
        Duration::from_micros(self.round_trips_us[from % regions][to % regions] / 2)
    }
}

/// How long messages take, one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Latency {
    /// Between the first and the second, evenly at random.
    Between(Duration, Duration),
    /// As on a map, and up to this many percent more at random.
    Map(&'static Map, u32),
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
    /// Bytes a second of validators with a line of their own, each way.
    pub narrow: BTreeMap<usize, u64>,
}

impl Links {
    /// Whether every message arrives, within the bound, and no link is full or slow.
    pub(crate) fn are_reliable(&self) -> bool {
        self.loss_percent == 0
            && self.double_percent == 0
            && self.bandwidth.is_none()
            && self.slow.is_empty()
            && self.narrow.is_empty()
    }

    /// Good links of 1 to 5 ms.
    pub fn good() -> Self {
        Self {
            latency: Latency::Between(Duration::from_millis(1), Duration::from_millis(5)),
            loss_percent: 0,
            double_percent: 0,
            disorder: false,
            bandwidth: None,
            slow: BTreeMap::new(),
            narrow: BTreeMap::new(),
        }
    }

    /// The longest that a message takes when nothing queues.
    pub fn bound(&self) -> Duration {
        let base = match self.latency {
            Latency::Between(_, most) => most,
            Latency::Map(map, jitter) => {
                let trips = map.round_trips_us.iter().flat_map(|row| row.iter());
                let most = trips.copied().max().unwrap_or(0);
                Duration::from_micros(most * u64::from(100 + jitter) / 200)
            }
        };
        base + self.slow.values().max().copied().unwrap_or_default()
    }
}

/// Which way a line carries something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Out,
    In,
}

/// The links as they are now.
pub(crate) struct Network {
    pub(crate) links: Links,
    /// Who hears whom: only members of one group. Hosts, not validators, so that twins can be
    /// apart.
    pub(crate) groups: Option<Vec<BTreeSet<usize>>>,
    /// Links that carry nothing, from the first to the second.
    pub(crate) cut: BTreeSet<(usize, usize)>,
    /// Pairs of validators without a link, the lower place first.
    pub(crate) unlinked: BTreeSet<(usize, usize)>,
    /// When the last message of a link and lane arrives.
    last: BTreeMap<(usize, usize, usize), Moment>,
    /// When a validator's line is free again, out and in.
    line_free: BTreeMap<(usize, Way), Moment>,
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
            unlinked: BTreeSet::new(),
            last: BTreeMap::new(),
            line_free: BTreeMap::new(),
            lost: 0,
            doubled: 0,
        }
    }

    /// All links are whole, and none loses anything.
    pub(crate) fn heal(&mut self) {
        self.join();
        self.links.loss_percent = 0;
    }

    /// All links are whole.
    pub(crate) fn join(&mut self) {
        self.groups = None;
        self.cut.clear();
        self.unlinked.clear();
    }

    /// Whether two validators have a link.
    pub(crate) fn is_linked(&self, one: usize, other: usize) -> bool {
        !self.unlinked.contains(&(one.min(other), one.max(other)))
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
        let narrow = |of: usize| self.links.narrow.get(&of).copied();
        let (narrow_out, narrow_in) = (narrow(from), narrow(to));
        let sent = match narrow_out.or(self.links.bandwidth) {
            Some(bandwidth) => self.through((from, Way::Out), now, bytes, bandwidth),
            None => now,
        };
        let arrives = sent.after(self.delay(rng, from, to));
        let arrives = match narrow_in {
            Some(bandwidth) => self.through((to, Way::In), arrives, bytes, bandwidth),
            None => arrives,
        };
        let mut arrivals = vec![arrives];
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

    /// When a frame is through a line, which carries one after the other.
    fn through(&mut self, line: (usize, Way), at: Moment, bytes: usize, bandwidth: u64) -> Moment {
        let free = self.line_free.entry(line).or_default();
        let takes = bytes as u64 * 1_000_000 / bandwidth.max(1);
        *free = (*free).max(at).after(Duration::from_micros(takes));
        *free
    }

    pub(crate) fn delay(&self, rng: &mut ChaCha8Rng, from: usize, to: usize) -> Duration {
        let base = match self.links.latency {
            Latency::Between(least, most) => {
                let (least, most) = (least.as_micros() as u64, most.as_micros() as u64);
                Duration::from_micros(rng.random_range(least..=most))
            }
            Latency::Map(map, jitter) => {
                let one_way = map.one_way(from, to).as_micros() as u64;
                let most = one_way * u64::from(100 + jitter) / 100;
                Duration::from_micros(rng.random_range(one_way..=most))
            }
        };
        let slow = |validator| self.links.slow.get(&validator).copied();
        base + slow(from).unwrap_or_default() + slow(to).unwrap_or_default()
    }
}
