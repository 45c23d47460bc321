//! Distance between nodes. Not every kernel can delay packets (`netem`), so a process beside each node
//! that dials others does it, with the links of this benchmark's experiments (`bench/links`).
//!
//! A node dials whoever has a lower place than its own. Over a distance it dials the delaying process
//! in its own namespace, which dials the true address. Bytes pass the kernel's shaping first and wait
//! for half a round trip then, each way. A connection may have four times bandwidth × round trip in
//! flight, so its window is no limit; it has TCP's slow start.

use super::{
    network::{LinkSpeed, address},
    roles::say,
};
use anyhow::Context;
use quorate_links::{Emulator, Link, MAX_WINDOW_BYTES};
use std::{
    io::Read as _,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

/// The first port of the delaying processes.
const BASE_PORT: u16 = 26_700;

/// A port where nothing listens.
const NO_PORT: u16 = 1;

/// The round trips to each node, in ms. A receiver's own is 0.
#[derive(Clone, Debug, Default)]
pub(super) struct Distances(Vec<u64>);

impl Distances {
    pub(super) fn new(round_trips_ms: Vec<u64>) -> Self {
        Self(round_trips_ms)
    }

    pub(super) fn of(links: &[LinkSpeed]) -> Self {
        Self(links.iter().map(|link| link.round_trip_ms).collect())
    }

    /// Whether anything is delayed.
    pub(super) fn any(&self) -> bool {
        self.0.iter().any(|ms| *ms > 0)
    }

    /// As an argument of a process.
    pub(super) fn text(&self) -> String {
        let texts: Vec<String> = self.0.iter().map(u64::to_string).collect();
        texts.join(",")
    }

    fn round_trip(&self, from: usize, to: usize) -> Duration {
        Duration::from_millis(self.0[from] + self.0[to])
    }

    /// Where a node dials another one.
    pub(super) fn dialled(&self, from: usize, to: usize) -> SocketAddr {
        if !self.any() {
            return address(to);
        }
        if from < to {
            // It waits until it is dialled, from this address.
            return SocketAddr::new(address(to).ip(), NO_PORT);
        }
        let place = from * self.0.len() + to;
        let port = BASE_PORT + u16::try_from(place).expect("few nodes");
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    }
}

/// Delays what the node at `place` exchanges with those that it dials, until standard input ends.
pub(super) fn run(place: usize, distances: &Distances, link_mbit: u64) -> anyhow::Result<()> {
    let nodes = distances.0.len();
    let link = |from: usize, to: usize| {
        let round_trip = distances.round_trip(from, to);
        let in_flight = link_mbit as f64 * 125_000.0 * round_trip.as_secs_f64();
        Link {
            delay: round_trip / 2,
            slow_start: true,
            window_bytes: Some((4.0 * in_flight) as usize).map(|bytes| bytes.max(MAX_WINDOW_BYTES)),
            ..Link::default()
        }
    };
    let targets = (0..nodes).map(address).collect();
    let emulator = Emulator::start_at(BASE_PORT, targets, link, 1)
        .with_context(|| format!("delaying what node {place} sends"))?;
    say("ready")?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    say(&format!("{}", emulator.cpu_time()?.as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_distance_nodes_dial_each_other_directly() {
        let distances = Distances::new(vec![0; 3]);
        assert_eq!(distances.dialled(2, 0), address(0));
        assert_eq!(distances.dialled(0, 2), address(2));
    }

    #[test]
    fn over_a_distance_only_the_later_one_dials_and_the_other_one_knows_its_address() {
        let distances = Distances::new(vec![100, 10, 0]);
        assert_eq!(distances.dialled(2, 1).to_string(), "127.0.0.1:26707");
        assert_eq!(distances.dialled(1, 2).to_string(), "10.77.0.3:1");
        assert_eq!(distances.round_trip(2, 0), Duration::from_millis(100));
        assert_eq!(distances.text(), "100,10,0");
    }
}
