//! The explorer's metrics, `quorate_explorer_…`.

use prometheus::{Encoder as _, Gauge, IntCounter, IntGauge, Registry, TextEncoder};

pub struct Metrics {
    registry: Registry,
    /// Answered requests.
    pub requests: IntCounter,
    /// Answers with a status of 4xx.
    pub client_errors: IntCounter,
    /// Answers with a status of 5xx.
    pub server_errors: IntCounter,
    /// Open streams.
    pub streams: IntGauge,
    /// Number of times that a stream lost events because its client was slow.
    pub stream_gaps: IntCounter,
    /// The newest final height in the index.
    pub tip_height: IntGauge,
    /// The newest height that the followed validator claims.
    pub claimed_height: IntGauge,
    /// Seconds since the newest block was indexed.
    pub tip_age_seconds: Gauge,
    /// Number of upstreams whose last answer failed verification.
    pub lying_upstreams: IntGauge,
    /// 1 if executing the blocks leads elsewhere than final headers or handovers say.
    pub diverged: IntGauge,
}

impl Metrics {
    pub fn new() -> Self {
        let registry = Registry::new();
        let counter = |name: &str, help: &str| {
            let metric = IntCounter::new(format!("quorate_explorer_{name}"), help);
            let metric = metric.expect("a valid name");
            let registered = registry.register(Box::new(metric.clone()));
            registered.expect("each name stands here once");
            metric
        };
        let gauge = |name: &str, help: &str| {
            let metric = IntGauge::new(format!("quorate_explorer_{name}"), help);
            let metric = metric.expect("a valid name");
            let registered = registry.register(Box::new(metric.clone()));
            registered.expect("each name stands here once");
            metric
        };
        let tip_age_seconds = Gauge::new(
            "quorate_explorer_tip_age_seconds",
            "Time since the newest block was taken in",
        )
        .expect("a valid name");
        let registered = registry.register(Box::new(tip_age_seconds.clone()));
        registered.expect("each name stands here once");
        Self {
            requests: counter("requests_total", "Requests that were answered"),
            client_errors: counter("client_errors_total", "Answers with a status of 4xx"),
            server_errors: counter("server_errors_total", "Answers with a status of 5xx"),
            streams: gauge("streams", "Open streams"),
            stream_gaps: counter("stream_gaps_total", "Times that a slow client lost events"),
            tip_height: gauge("tip_height", "The newest final height that is shown"),
            claimed_height: gauge(
                "claimed_height",
                "The newest height that the followed validator claims",
            ),
            tip_age_seconds,
            lying_upstreams: gauge(
                "lying_upstreams",
                "Validators that are read from and whose answers did not verify",
            ),
            diverged: gauge(
                "diverged",
                "1 if executing the blocks leads to another state or other validators than the chain's",
            ),
            registry,
        }
    }

    /// The metrics in Prometheus' text format.
    pub fn text(&self) -> String {
        let mut text = Vec::new();
        let families = self.registry.gather();
        let written = TextEncoder::new().encode(&families, &mut text);
        written.expect("writing to memory");
        String::from_utf8(text).expect("names and help are text")
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}
