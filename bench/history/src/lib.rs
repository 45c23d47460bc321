//! Benchmark records over time: gates, comparisons, a dashboard.
