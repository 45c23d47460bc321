//! All metrics of the links. Labels come from fixed lists, so their number is bounded.

use crate::frame::Malformed;
use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry};
use quorate_lanes::{LANES, Lane};
use std::time::Duration;

/// Why a frame was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsent {
    /// No payload.
    Empty,
    /// Larger than the lane allows.
    Oversize,
    /// The recipient is not a validator, or is this node itself.
    UnknownPeer,
    Blocked,
    /// No link to the peer at the moment.
    Offline,
    /// Too many frames or bytes are queued for the peer in this lane.
    QueueFull,
    /// The peer's quota in this lane is exhausted.
    Quota,
    /// The network is shutting down and refused the frame.
    Closed,
    /// The link broke while the frame was queued. The count is inexact, because queue and link end
    /// in no fixed order, and most such frames were already counted as sent.
    LinkLost,
}

/// Why a received frame was not delivered to the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Nothing follows the header, or the header is incomplete.
    Empty,
    /// Another version of the frame format.
    Version,
    /// The tag of another chain.
    Tag,
    /// Larger than the lane allows.
    Oversize,
    /// The sender is not a configured validator.
    UnknownPeer,
    Blocked,
    /// Too much data from the sender is queued for the node; or too much from all senders together,
    /// and the sender has most.
    QueueFull,
}

/// How a handshake attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handshake {
    /// Both sides are authenticated.
    Completed,
    /// This node does not want this peer now: already connected, blocked, or not a validator.
    Refused,
    /// The peer's clock differs too much from ours.
    Clock,
    /// A signature or confirmation is wrong: a different namespace, or a different key than
    /// expected.
    Authentication,
    /// The connection broke or a message was malformed.
    Broken,
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

/// Upper bounds of the round-trip buckets: 50 µs (loopback) to 1.6 s.
const ROUND_TRIP_BUCKETS_SECONDS: [f64; 11] = [
    0.000_05, 0.000_2, 0.000_5, 0.002, 0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 1.6,
];

/// One lane's counters, resolved once, because looking a label up costs more than counting.
struct LaneMetrics {
    sent_frames: IntCounter,
    sent_bytes: IntCounter,
    received_frames: IntCounter,
    received_bytes: IntCounter,
    unsent: [IntCounter; UNSENT.len()],
    refused: [IntCounter; REFUSED.len()],
}

pub(crate) struct Metrics {
    lanes: [LaneMetrics; LANES],
    refused_pings: [IntCounter; REFUSED.len()],
    handshakes: [IntCounter; HANDSHAKES.len()],
    /// Peers that answer pings, followers aside.
    pub(crate) connected_peers: IntGauge,
    pub(crate) connected_followers: IntGauge,
    /// Peers in the configuration.
    pub(crate) known_peers: IntGauge,
    pub(crate) blocked_peers: IntGauge,
    /// Authenticated links that have ended.
    pub(crate) links_lost: IntCounter,
    /// Number of times that a link was paused because its peer's byte budget was exhausted.
    pub(crate) reads_delayed: IntCounter,
    round_trip: Histogram,
}

impl Metrics {
    /// Creates and registers all metrics.
    ///
    /// # Errors
    ///
    /// If a metric is already registered: a registry serves one network.
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
            connected_peers: gauge(
                registry,
                "connected_peers",
                "Peers that answer pings, followers aside",
            )?,
            connected_followers: gauge(
                registry,
                "connected_followers",
                "Followers that answer pings",
            )?,
            known_peers: gauge(registry, "known_peers", "Peers in the configuration")?,
            blocked_peers: gauge(registry, "blocked_peers", "Peers whose link is blocked")?,
            links_lost,
            reads_delayed,
            round_trip,
        })
    }

    /// Counts a frame of `bytes` bytes handed to a peer's link.
    pub(crate) fn sent(&self, lane: Lane, bytes: usize) {
        let lane = &self.lanes[lane.index()];
        lane.sent_frames.inc();
        lane.sent_bytes.inc_by(bytes as u64);
    }

    /// Counts a frame of `bytes` bytes delivered to the node.
    pub(crate) fn received(&self, lane: Lane, bytes: usize) {
        let lane = &self.lanes[lane.index()];
        lane.received_frames.inc();
        lane.received_bytes.inc_by(bytes as u64);
    }

    /// Counts an unsent frame, once per recipient.
    pub(crate) fn unsent(&self, lane: Lane, reason: Unsent) {
        self.lanes[lane.index()].unsent[reason as usize].inc();
    }

    /// Counts a refused frame; `None` stands for a ping or pong.
    pub(crate) fn refused(&self, lane: Option<Lane>, reason: Refused) {
        match lane {
            Some(lane) => self.lanes[lane.index()].refused[reason as usize].inc(),
            None => self.refused_pings[reason as usize].inc(),
        }
    }

    /// Counts a handshake attempt. Returns the new count of that outcome.
    pub(crate) fn handshake(&self, outcome: Handshake) -> u64 {
        let counter = &self.handshakes[outcome as usize];
        counter.inc();
        counter.get()
    }

    /// Records the round trip of an answered ping.
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
