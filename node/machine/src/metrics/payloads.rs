//! The payloads of a chain that only orders, as metrics.

use prometheus::{IntCounter, IntGauge, Registry};

/// What a validator counts of payloads and bundles.
pub struct PayloadMetrics {
    pub(crate) submitted: IntCounter,
    pub(crate) refused: IntCounter,
    pub(crate) ordered: IntCounter,
    pub(crate) ordered_bytes: IntCounter,
    pub(crate) own_bytes: IntGauge,
    pub(crate) stored: IntCounter,
    pub(crate) syncs: IntCounter,
    pub(crate) disk_bytes: IntGauge,
    pub(crate) wanted: IntGauge,
    pub(crate) fetched: IntCounter,
    pub(crate) served: IntCounter,
}

impl PayloadMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let gauge = |name: &str, help: &str| {
            let metric = IntGauge::new(name, help)?;
            registry.register(Box::new(metric.clone()))?;
            Ok::<_, prometheus::Error>(metric)
        };
        let counter = |name: &str, help: &str| {
            let metric = IntCounter::new(name, help)?;
            registry.register(Box::new(metric.clone()))?;
            Ok::<_, prometheus::Error>(metric)
        };
        Ok(Self {
            submitted: counter(
                "quorate_payloads_submitted_total",
                "Payloads that clients have submitted here; on a chain that only orders",
            )?,
            refused: counter(
                "quorate_payloads_refused_total",
                "Payloads that were refused since too many wait for their order",
            )?,
            ordered: counter(
                "quorate_payloads_ordered_total",
                "Payloads in final blocks that were executed",
            )?,
            ordered_bytes: counter(
                "quorate_payloads_ordered_bytes_total",
                "Bytes of bundles in final blocks that were executed",
            )?,
            own_bytes: gauge(
                "quorate_payloads_waiting_bytes",
                "Bytes of payloads submitted here that no block has ordered",
            )?,
            stored: counter(
                "quorate_bundles_stored_total",
                "Bundles that were written to disk",
            )?,
            syncs: counter("quorate_bundles_syncs_total", "Syncs of the log of bundles")?,
            disk_bytes: gauge("quorate_bundles_disk_bytes", "Size of the log of bundles")?,
            wanted: gauge(
                "quorate_bundles_missing",
                "Bundles that a block names and that are not here",
            )?,
            fetched: counter(
                "quorate_bundles_fetched_total",
                "Requests for bundles sent to other validators",
            )?,
            served: counter(
                "quorate_bundles_served_total",
                "Bundles sent to validators that have asked for them",
            )?,
        })
    }
}
