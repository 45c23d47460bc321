//! Figures that are measured only when the metrics are read, because nothing in the node's own work
//! measures them: the process, its disk, and the network's height.

use crate::space::room_of;
use quorate_files::Usage;
use quorate_http::{Clients, Resource};
use quorate_machine::{
    executor::ExecutorHandle, live::LiveStatus, mempool::Mempool, metrics::NodeMetrics,
};
use quorate_p2p::PeerStatus;
use std::{path::PathBuf, sync::Arc};

/// The handles that are needed to measure.
pub(crate) struct Vitals {
    pub(crate) data_dir: PathBuf,
    pub(crate) executor: ExecutorHandle,
    pub(crate) live: Arc<LiveStatus>,
    pub(crate) mempool: Arc<Mempool>,
    pub(crate) clients: Clients,
    pub(crate) metrics: Arc<NodeMetrics>,
    pub(crate) peers: Box<dyn Fn() -> Vec<PeerStatus> + Send + Sync>,
}

impl Vitals {
    /// Updates the metrics. Values that the system does not report stay unchanged.
    pub(crate) fn renew(&self) {
        let metrics = &self.metrics;
        if let Ok(usage) = Usage::of(std::process::id()) {
            // Two concurrent scrapes may both add the same share; the next one then adds nothing
            // until the actual time has caught up.
            let grown = usage.cpu.as_secs_f64() - metrics.cpu_seconds.get();
            if grown > 0.0 {
                metrics.cpu_seconds.inc_by(grown);
            }
            metrics.resident_bytes.set(as_i64(usage.resident_bytes));
        }
        if let Some(room) = room_of(&self.data_dir) {
            metrics.disk_free_bytes.set(as_i64(room.free_bytes));
            metrics.disk_bytes.set(as_i64(room.size_bytes));
        }
        let executed = self.executor.executed();
        let timestamp_ms = executed.borrow().timestamp_ms;
        metrics.block_timestamp.set(timestamp_ms as f64 / 1_000.0);
        metrics
            .network_height
            .set(as_i64(self.live.network_height().0));
        let links = (self.peers)();
        let live = &self.live;
        metrics.judged(&live.verdict(&links), live.own(), live.usual_interval());
        // An unknown value is NaN, so that nobody mistakes it for zero or for an old value.
        let ahead_ms = self.live.clock_ahead_ms(&links);
        let ahead = ahead_ms.map_or(f64::NAN, |ahead_ms| ahead_ms as f64 / 1_000.0);
        metrics.clock_ahead.set(ahead);
        for link in &links {
            if let Some(place) = live.committees().known().place(&link.identity) {
                metrics.clock_refused(place, link.clock_refused);
            }
        }
        let behind = self.live.condition().behind;
        metrics.behind.set(i64::from(behind));
        let (count, bytes) = self.mempool.size();
        metrics.mempool_transactions.set(count as i64);
        metrics.mempool_bytes.set(bytes as i64);
        metrics
            .rpc_connections
            .set(self.clients.connections() as i64);
        let in_flight = self.clients.taken(Resource::Bytes);
        metrics.rpc_in_flight_bytes.set(in_flight as i64);
        // Of two concurrent scrapes, the greater value wins.
        let refused = self.clients.refused();
        metrics
            .rpc_refused
            .inc_by(refused.saturating_sub(metrics.rpc_refused.get()));
    }
}

fn as_i64(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
