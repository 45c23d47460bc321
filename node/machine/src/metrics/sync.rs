//! State sync as metrics.

use crate::sync::Progress;
use prometheus::{Gauge, IntCounter, IntGauge, Registry};
use std::sync::{Mutex, PoisonError};

/// What a receiver and a sender of snapshots count.
pub struct SyncMetrics {
    share: Gauge,
    target: IntGauge,
    bytes: IntCounter,
    parts: IntCounter,
    peers: IntGauge,
    blamed: IntCounter,
    /// The bytes, parts and faulty peers of this sync that are counted.
    counted: Mutex<[u64; 3]>,
    pub(crate) snapshots: IntGauge,
    pub(crate) served: IntCounter,
}

impl SyncMetrics {
    /// Registers all metrics. `counter` makes one that goes on from what was counted before.
    pub(super) fn register(
        registry: &Registry,
        counter: &impl Fn(&str, &str) -> Result<IntCounter, prometheus::Error>,
    ) -> Result<Self, prometheus::Error> {
        let gauge = |name: &str, help: &str| {
            let metric = IntGauge::new(name, help)?;
            registry.register(Box::new(metric.clone()))?;
            Ok::<_, prometheus::Error>(metric)
        };
        let share = Gauge::new(
            "quorate_sync_state_ratio",
            "How much of the target's state is here, from 0 to 1, while state sync is under way",
        )?;
        registry.register(Box::new(share.clone()))?;
        Ok(Self {
            share,
            target: gauge(
                "quorate_sync_target_height",
                "The block whose state is being fetched; 0 while there is none",
            )?,
            bytes: counter(
                "quorate_sync_received_bytes_total",
                "Bytes of parts of the state that peers have sent",
            )?,
            parts: counter(
                "quorate_sync_verified_parts_total",
                "Parts of the state that were verified and written",
            )?,
            peers: gauge(
                "quorate_sync_serving_peers",
                "Peers that deliver parts of the state that is being fetched",
            )?,
            blamed: counter(
                "quorate_sync_faulty_peers_total",
                "Peers that sent something invalid during state sync",
            )?,
            counted: Mutex::default(),
            snapshots: gauge(
                "quorate_sync_snapshots",
                "Snapshots of the state that are kept for peers",
            )?,
            served: counter(
                "quorate_sync_served_bytes_total",
                "Bytes of parts of the state that were sent to peers",
            )?,
        })
    }

    /// Publishes the progress.
    pub fn show(&self, progress: &Progress) {
        self.share.set(progress.share);
        let target = progress.target.map_or(0, |height| height.0);
        self.target.set(i64::try_from(target).unwrap_or(i64::MAX));
        self.peers
            .set(i64::try_from(progress.peers).unwrap_or(i64::MAX));
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let now = [progress.bytes, progress.parts, progress.blamed];
        let counters = [&self.bytes, &self.parts, &self.blamed];
        for ((counter, now), before) in counters.into_iter().zip(now).zip(*counted) {
            counter.inc_by(now.saturating_sub(before));
        }
        *counted = now;
    }
}
