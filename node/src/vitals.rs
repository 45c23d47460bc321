//! What is looked up when somebody asks for the metrics, since nothing in the node's own work
//! measures it: the process, its disk, and where the network is.

use crate::{
    executor::ExecutorHandle, localnet::figures::process_figures, mempool::Mempool,
    metrics::NodeMetrics, rpc::live::LiveStatus,
};
use std::{path::PathBuf, sync::Arc};

/// The handles to look at.
pub(crate) struct Vitals {
    pub(crate) data_dir: PathBuf,
    pub(crate) executor: ExecutorHandle,
    pub(crate) live: Arc<LiveStatus>,
    pub(crate) mempool: Arc<Mempool>,
    pub(crate) metrics: Arc<NodeMetrics>,
}

impl Vitals {
    /// Brings the metrics up to date. What the system does not tell keeps its last value.
    pub(crate) fn renew(&self) {
        let metrics = &self.metrics;
        if let Ok((cpu_seconds, resident_mib)) = process_figures(std::process::id()) {
            // Two scrapes at once may both add the same share; the next one waits for the clock.
            let grown = cpu_seconds - metrics.cpu_seconds.get();
            if grown > 0.0 {
                metrics.cpu_seconds.inc_by(grown);
            }
            let bytes = resident_mib * 1_048_576.0;
            metrics.resident_bytes.set(bytes as i64);
        }
        if let Ok(disk) = rustix::fs::statvfs(&self.data_dir) {
            let bytes = |blocks: u64| as_i64(blocks.saturating_mul(disk.f_frsize));
            metrics.disk_free_bytes.set(bytes(disk.f_bavail));
            metrics.disk_bytes.set(bytes(disk.f_blocks));
        }
        let executed = self.executor.executed();
        let timestamp_ms = executed.borrow().timestamp_ms;
        metrics.block_timestamp.set(timestamp_ms as f64 / 1_000.0);
        metrics
            .network_height
            .set(as_i64(self.live.network_height().0));
        let behind = self.live.condition().behind;
        metrics.behind.set(i64::from(behind));
        let (count, bytes) = self.mempool.size();
        metrics.mempool_transactions.set(count as i64);
        metrics.mempool_bytes.set(bytes as i64);
    }
}

fn as_i64(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
