//! What an executed block changes for other parts of a node.

use super::ExecutedBlock;
use crate::{
    clock::Clock, live::LiveStatus, mempool::Mempool, metrics::NodeMetrics, payloads::Payloads,
    serve::Requests,
};
use std::sync::Arc;

/// The parts that are told of each executed block.
pub(crate) struct Observed {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) mempool: Arc<Mempool>,
    pub(crate) live: Arc<LiveStatus>,
    pub(crate) metrics: Arc<NodeMetrics>,
    /// Requests of followers that wait for the next block.
    pub(crate) requests: Requests,
    /// On a chain that only orders.
    pub(crate) payloads: Option<Arc<Payloads>>,
}

impl Observed {
    /// Tells them of a block.
    pub(crate) fn executed(&self, executed: &ExecutedBlock) {
        let transactions = executed.block.transactions().iter();
        let used = transactions.zip(&executed.outcomes);
        let used = used.filter(|(_, outcome)| outcome.used_nonce());
        let used = used.map(|(transaction, _)| transaction.id()).collect();
        let height = executed.block.height();
        let now = self.clock.now();
        self.live
            .set_executed(height, executed.block.header().timestamp_ms);
        self.mempool
            .executed(now, height, &executed.accounts, &used);
        let (count, bytes) = self.mempool.size();
        self.metrics.mempool_transactions.set(count as i64);
        self.metrics.mempool_bytes.set(bytes as i64);
        self.metrics.executed(&executed.outcomes);
        if let Some(payloads) = &self.payloads {
            payloads.executed(&executed.block);
        }
        self.requests.wake();
    }
}
