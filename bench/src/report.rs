//! Reports in a form that later tools read: one JSON object with the format's version, what was
//! measured on which machine and when, and the results.

use crate::paired::Spread;
use anyhow::Context;
use clap::Args;
use serde_json::{Map, Value, json};
use std::{
    fs,
    path::PathBuf,
    time::{SystemTime, UNIX_EPOCH},
};

/// The version of the reports' form; a change that breaks readers bumps it.
const FORMAT: u32 = 1;

/// Where a report goes.
#[derive(Args, Clone)]
pub(crate) struct Output {
    /// Write the results as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Output {
    /// Writes a report of this kind, if it is wanted.
    pub(crate) fn write(&self, kind: &str, results: &Value) -> anyhow::Result<()> {
        let Some(path) = &self.json else {
            return Ok(());
        };
        let report = json!({
            "format": FORMAT,
            "kind": kind,
            "version": env!("CARGO_PKG_VERSION"),
            "unix_seconds": SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
            "machine": machine(),
            "results": results,
        });
        fs::write(path, format!("{report:#}\n"))
            .with_context(|| format!("writing {}", path.display()))
    }
}

/// What the figures were measured on.
pub(crate) fn machine() -> Value {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    json!({
        "processor": model,
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "system": std::env::consts::OS,
        "architecture": std::env::consts::ARCH,
    })
}

/// The same in words.
pub(crate) fn words(machine: &Value) -> String {
    let text = |name: &str| machine[name].as_str().unwrap_or("unknown").to_owned();
    format!(
        "{} × {}, {} {}",
        machine["cores"],
        text("processor"),
        text("system"),
        text("architecture")
    )
}

/// Medians with their quartiles, by name.
pub(crate) fn spreads(items: &[(&'static str, Spread)]) -> Value {
    let items = items.iter().map(|(name, spread)| {
        let value = json!({ "median": spread.median, "low": spread.low, "high": spread.high });
        ((*name).to_owned(), value)
    });
    Value::Object(items.collect::<Map<_, _>>())
}
