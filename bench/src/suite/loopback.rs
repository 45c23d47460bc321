//! A small network of real processes under light load: in turn with the baseline's program.

use crate::experiment::{
    plan::Plan,
    trial::{self, Place, Trial},
};
use anyhow::Context;
use std::path::Path;

/// The trial. Short, since it is run often.
const PLAN: &str = r#"
title = "loopback"
about = "Four validators, light load."
measure = "5s"
warm_up = "2s"
drain = "2s"
[parameters]
rate = 200
"#;

/// Figures whose ratio to the baseline's is judged: name, unit, name in a trial.
pub(super) const RATIOS: [(&str, &str, &str); 2] = [
    ("block time", "ms", "block_ms"),
    (
        "processor time per block",
        "ms",
        "cpu_ms_per_block_and_node",
    ),
];

/// Figures that are kept for the history: name, unit, name in a trial.
pub(super) const KEPT: [(&str, &str, &str); 4] = [
    ("memory", "MiB", "memory_mib"),
    ("syncs per view", "per view and validator", "syncs_per_view"),
    (
        "messages per view",
        "per view and validator",
        "messages_per_view",
    ),
    (
        "checks per view",
        "per view and validator",
        "checks_per_view",
    ),
];

/// Runs it with this program of validators.
pub(super) fn run(binary: &Path, base_port: u16) -> anyhow::Result<Trial> {
    let plan = Plan::parse(PLAN).context("the suite's own trial")?;
    let point = plan.points().remove(0);
    let place = Place {
        binary: Some(binary),
        base_port,
        folder: None,
    };
    trial::run(&plan, &point, 1, &place)
        .with_context(|| format!("a network of {}", binary.display()))
}
