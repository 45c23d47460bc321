//! A registry outside the chain, and the passing on of shares, as metrics.

use prometheus::{Gauge, IntCounter, IntGauge, IntGaugeVec, Opts, Registry};

/// What a validator counts that reads such a registry, or shares a vote key with the others.
pub struct RegistryMetrics {
    trouble: IntGaugeVec,
    /// Validators for which the last reading and the state differ.
    pub differences: IntGauge,
    /// Reports that were made.
    pub reports: IntCounter,
    /// When the last reading was confirmed, in seconds since 1970.
    pub read_seconds: Gauge,
    /// Epochs in a row at whose ends no new shares counted.
    pub not_passed_on: IntGauge,
}

impl RegistryMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let trouble = IntGaugeVec::new(
            Opts::new(
                "quorate_registry_trouble",
                "1 while the external registry cannot be read, or reports of it cannot be made",
            ),
            &["part"],
        )?;
        let metrics = Self {
            trouble,
            differences: IntGauge::new(
                "quorate_registry_differences",
                "Validators for which the last reading of the external registry and the state differ",
            )?,
            reports: IntCounter::new(
                "quorate_registry_reports_total",
                "Reports of the external registry that this validator has made",
            )?,
            read_seconds: Gauge::new(
                "quorate_registry_read_seconds",
                "When the external registry was last read, in seconds since 1970; 0 if it never was",
            )?,
            not_passed_on: IntGauge::new(
                "quorate_registry_epochs_without_new_shares",
                "Epochs in a row for which the shares of the common vote key were not passed on",
            )?,
        };
        registry.register(Box::new(metrics.trouble.clone()))?;
        registry.register(Box::new(metrics.differences.clone()))?;
        registry.register(Box::new(metrics.reports.clone()))?;
        registry.register(Box::new(metrics.read_seconds.clone()))?;
        registry.register(Box::new(metrics.not_passed_on.clone()))?;
        metrics.source_trouble(false);
        metrics.report_trouble(false);
        Ok(metrics)
    }

    /// Whether the source is in trouble.
    pub fn source_trouble(&self, is_there: bool) {
        let gauge = self.trouble.with_label_values(&["source"]);
        gauge.set(i64::from(is_there));
    }

    /// Whether reports cannot be made.
    pub fn report_trouble(&self, is_there: bool) {
        let gauge = self.trouble.with_label_values(&["reports"]);
        gauge.set(i64::from(is_there));
    }
}
