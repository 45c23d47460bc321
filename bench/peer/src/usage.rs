//! What the process has used so far.

use anyhow::{Context as _, Result};
use std::fs;

/// User and system CPU time of this process, all threads, in µs; the kernel counts in hundredths of
/// a second.
pub(crate) fn cpu_us() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // After the name, in parentheses, comes field 3; user and system time are fields 14 and 15.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    ticks * 10_000
}

/// Memory of this process that is in RAM.
pub(crate) fn rss_bytes() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(kib
        .context("no VmRSS in /proc/self/status")?
        .parse::<u64>()?
        * 1024)
}

/// The sum of a counter's series in the runtime's metrics; `None` when it is not there.
pub(crate) fn counter(metrics: &str, name: &str) -> Option<u64> {
    let total = format!("{name}_total");
    let mut sum = None;
    for line in metrics.lines() {
        let Some((series, value)) = line.rsplit_once(' ') else {
            continue;
        };
        let base = series.split('{').next().unwrap_or_default();
        if base == total || base == name {
            *sum.get_or_insert(0) += value.parse::<f64>().ok()? as u64;
        }
    }
    sum
}

/// Peers that are connected: the network has one series for each.
pub(crate) fn connected(metrics: &str) -> usize {
    let series = |line: &&str| line.contains("_directory_connected{");
    metrics.lines().filter(series).count()
}
