//! Every metric of the links. Labels come from fixed lists, so their number is bounded.

use crate::{
    frame::Malformed,
    lane::{LANES, Lane},
};
use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry};
use std::time::Duration;

/// Why a frame that this node wanted to send went nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsent {
    /// No payload.
    Empty,
    /// Larger than the lane allows.
    Oversize,
    /// Not a validator, or this node itself.
    UnknownPeer,
    /// The peer is blocked.
    Blocked,
    /// No link to the peer at the moment.
    Offline,
    /// Too many frames or bytes wait for the peer in this lane.
    QueueFull,
    /// The peer's quota in this lane is used up.
    Quota,
    /// The network refused the frame: it is stopping.
    Closed,
    /// The link broke while the frame was waiting. Not exact, for the queue and the link end in no
    /// fixed order, and most such frames were counted as sent before.
    LinkLost,
}

/// Why a frame that a peer sent was not handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Nothing behind the header, or less than a header.
    Empty,
    /// Another version of the frame format.
    Version,
    /// The tag of another chain.
    Tag,
    /// Larger than the lane allows.
    Oversize,
    /// The sender is no validator of the configuration.
    UnknownPeer,
    /// The sender is blocked.
    Blocked,
    /// Too much of the sender's waits for the node, or of all senders and most of its.
    QueueFull,
}

/// How an attempt at a handshake ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handshake {
    /// Both sides are authenticated.
    Completed,
    /// We do not want this peer now: connected already, blocked, or no validator.
    Refused,
    /// The peer's clock is too far from ours.
    Clock,
    /// A signature or confirmation is wrong: another namespace, or another key than expected.
    Authentication,
    /// The connection broke or a message was malformed.
    Broken,
    /// It took too long.
    Timeout,
}

const UNSENT: [(Unsent, &str); 9] = [
    (Unsent::Empty, "empty"),
    (Unsent::Oversize, "oversize"),
    (Unsent::UnknownPeer, "unknown_peer"),
    (Unsent::Blocked, "blocked"),
    (Unsent::Offline, "offline"),
    (Unsent::QueueFull, "queue_full"),
    (Unsent::Quota, "quota"),
    (Unsent::Closed, "closed"),
    (Unsent::LinkLost, "link_lost"),
];

const REFUSED: [(Refused, &str); 7] = [
    (Refused::Empty, "empty"),
    (Refused::Version, "version"),
    (Refused::Tag, "tag"),
    (Refused::Oversize, "oversize"),
    (Refused::UnknownPeer, "unknown_peer"),
    (Refused::Blocked, "blocked"),
    (Refused::QueueFull, "queue_full"),
];

const HANDSHAKES: [(Handshake, &str); 6] = [
    (Handshake::Completed, "completed"),
    (Handshake::Refused, "refused"),
    (Handshake::Clock, "clock"),
    (Handshake::Authentication, "authentication"),
    (Handshake::Broken, "broken"),
    (Handshake::Timeout, "timeout"),
];

/// Upper bounds of the buckets for round trips: 50 µs (loopback) to 1.6 s.
const ROUND_TRIP_BUCKETS_SECONDS: [f64; 11] = [
    0.000_05, 0.000_2, 0.000_5, 0.002, 0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 1.6,
];

/// One lane's counters, resolved once: looking a label up costs more than counting.
struct LaneMetrics {
    sent_frames: IntCounter,
    sent_bytes: IntCounter,
    received_frames: IntCounter,
    received_bytes: IntCounter,
    unsent: [IntCounter; UNSENT.len()],
    refused: [IntCounter; REFUSED.len()],
}

/// All counters of one network.
pub(crate) struct Metrics {
    lanes: [LaneMetrics; LANES],
    refused_pings: [IntCounter; REFUSED.len()],
    handshakes: [IntCounter; HANDSHAKES.len()],
    /// Peers that answer pings.
    pub(crate) connected_peers: IntGauge,
    /// Peers in the configuration.
    pub(crate) known_peers: IntGauge,
    /// Peers whose link is blocked.
    pub(crate) blocked_peers: IntGauge,
    /// Authenticated links that have ended.
    pub(crate) links_lost: IntCounter,
    /// Times that a link was not read for a while because its peer had used up its bytes.
    pub(crate) reads_delayed: IntCounter,
    round_trip: Histogram,
}

impl Metrics {
    /// Creates and registers them all.
    ///
    /// # Errors
    ///
    /// When one is registered already: a registry serves one network.
    pub(crate) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let sent_frames = counters(registry, "frames_sent_total", SENT_FRAMES, &["lane"])?;
        let sent_bytes = counters(registry, "sent_bytes_total", SENT_BYTES, &["lane"])?;
        let received_frames = counters(
            registry,
            "frames_received_total",
            RECEIVED_FRAMES,
            &["lane"],
        )?;
        let received_bytes = counters(registry, "received_bytes_total", RECEIVED_BYTES, &["lane"])?;
        let unsent = counters(
            registry,
            "frames_unsent_total",
            UNSENT_HELP,
            &["lane", "reason"],
        )?;
        let refused = counters(
            registry,
            "frames_refused_total",
            REFUSED_HELP,
            &["lane", "reason"],
        )?;
        let handshakes = counters(registry, "handshakes_total", HANDSHAKES_HELP, &["outcome"])?;
        let lanes = Lane::by_index().map(|lane| LaneMetrics {
            sent_frames: sent_frames.with_label_values(&[lane.name()]),
            sent_bytes: sent_bytes.with_label_values(&[lane.name()]),
            received_frames: received_frames.with_label_values(&[lane.name()]),
            received_bytes: received_bytes.with_label_values(&[lane.name()]),
            unsent: UNSENT.map(|(_, reason)| unsent.with_label_values(&[lane.name(), reason])),
            refused: REFUSED.map(|(_, reason)| refused.with_label_values(&[lane.name(), reason])),
        });
        let round_trip = Histogram::with_opts(
            HistogramOpts::new(
                "quorate_p2p_round_trip_seconds",
                "Round trips measured by pings, of all peers",
            )
            .buckets(ROUND_TRIP_BUCKETS_SECONDS.to_vec()),
        )?;
        registry.register(Box::new(round_trip.clone()))?;
        let links_lost = IntCounter::new(
            "quorate_p2p_links_lost_total",
            "Authenticated links that have ended",
        )?;
        registry.register(Box::new(links_lost.clone()))?;
        let reads_delayed = IntCounter::new(
            "quorate_p2p_reads_delayed_total",
            "Times that a link was not read for a while because its peer had used up its bytes",
        )?;
        registry.register(Box::new(reads_delayed.clone()))?;
        Ok(Self {
            lanes,
            refused_pings: REFUSED.map(|(_, reason)| refused.with_label_values(&["pulse", reason])),
            handshakes: HANDSHAKES.map(|(_, outcome)| handshakes.with_label_values(&[outcome])),
            connected_peers: gauge(registry, "connected_peers", "Peers that answer pings")?,
            known_peers: gauge(registry, "known_peers", "Peers in the configuration")?,
            blocked_peers: gauge(registry, "blocked_peers", "Peers whose link is blocked")?,
            links_lost,
            reads_delayed,
            round_trip,
        })
    }

    /// A frame of `bytes` was handed to a peer's link.
    pub(crate) fn sent(&self, lane: Lane, bytes: usize) {
        let lane = &self.lanes[lane.index()];
        lane.sent_frames.inc();
        lane.sent_bytes.inc_by(bytes as u64);
    }

    /// A frame of `bytes` was handed to the node.
    pub(crate) fn received(&self, lane: Lane, bytes: usize) {
        let lane = &self.lanes[lane.index()];
        lane.received_frames.inc();
        lane.received_bytes.inc_by(bytes as u64);
    }

    /// A frame was not sent, once per peer that it was meant for.
    pub(crate) fn unsent(&self, lane: Lane, reason: Unsent) {
        self.lanes[lane.index()].unsent[reason as usize].inc();
    }

    /// A frame was refused; `None` stands for a ping or pong.
    pub(crate) fn refused(&self, lane: Option<Lane>, reason: Refused) {
        match lane {
            Some(lane) => self.lanes[lane.index()].refused[reason as usize].inc(),
            None => self.refused_pings[reason as usize].inc(),
        }
    }

    /// An attempt at a handshake ended. Gives how often that outcome has been counted.
    pub(crate) fn handshake(&self, outcome: Handshake) -> u64 {
        let counter = &self.handshakes[outcome as usize];
        counter.inc();
        counter.get()
    }

    /// A ping was answered.
    pub(crate) fn round_trip(&self, duration: Duration) {
        self.round_trip.observe(duration.as_secs_f64());
    }
}

impl From<Malformed> for Refused {
    fn from(defect: Malformed) -> Self {
        match defect {
            Malformed::Empty => Self::Empty,
            Malformed::Version => Self::Version,
            Malformed::Tag => Self::Tag,
            Malformed::Oversize => Self::Oversize,
        }
    }
}

const SENT_FRAMES: &str = "Frames handed to a peer's link, once per peer";
const SENT_BYTES: &str = "Payload bytes handed to a peer's link, once per peer";
const RECEIVED_FRAMES: &str = "Frames handed to the node";
const RECEIVED_BYTES: &str = "Payload bytes handed to the node";
const UNSENT_HELP: &str = "Frames that were not sent, once per peer, by reason";
const REFUSED_HELP: &str = "Frames of peers that were dropped unread, by reason";
const HANDSHAKES_HELP: &str = "Attempts at a handshake, dialled or accepted, by outcome";

fn counters(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> Result<IntCounterVec, prometheus::Error> {
    let counters = IntCounterVec::new(Opts::new(format!("quorate_p2p_{name}"), help), labels)?;
    registry.register(Box::new(counters.clone()))?;
    Ok(counters)
}

fn gauge(registry: &Registry, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
    let gauge = IntGauge::new(format!("quorate_p2p_{name}"), help)?;
    registry.register(Box::new(gauge.clone()))?;
    Ok(gauge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_the_counter_at_its_own_place() {
        for (place, (reason, _)) in UNSENT.iter().enumerate() {
            assert_eq!(*reason as usize, place);
        }
        for (place, (reason, _)) in REFUSED.iter().enumerate() {
            assert_eq!(*reason as usize, place);
        }
        for (place, (outcome, _)) in HANDSHAKES.iter().enumerate() {
            assert_eq!(*outcome as usize, place);
        }
    }

    #[test]
    fn registry_serves_one_network_only() {
        let registry = Registry::new();
        assert!(Metrics::register(&registry).is_ok());
        assert!(Metrics::register(&registry).is_err());
    }
}
