//! Figures that the same source gives on every machine: whole validators in virtual time, where
//! computing takes fixed times, and what they asked of network, disk, cryptography and memory.

use crate::{
    chaos::forgers,
    wan::{block_times, finality_times},
};
use anyhow::ensure;
use quorate_consensus::{Moment, Timing};
use quorate_crypto::bls::SchemeKind;
use quorate_history::{
    alloc,
    record::{Better, Figure, Kind},
};
use quorate_sim::{Attack, Costs, Latency, Scenario, Simulation, WORLD};
use std::{collections::BTreeMap, time::Duration};

/// Blocks before those that are measured.
const WARM_UP_BLOCKS: usize = 5;

/// Blocks that are measured.
const BLOCKS: usize = 60;

/// A scenario.
pub(super) struct Exact {
    /// Its name in records.
    pub(super) name: &'static str,
    validators: usize,
    scheme: SchemeKind,
    transfers_per_second: u32,
    forge: bool,
}

/// All of them.
pub(super) const SCENARIOS: [Exact; 4] = [
    Exact {
        name: "virtual/threshold",
        validators: 10,
        scheme: SchemeKind::BlsThreshold,
        transfers_per_second: 0,
        forge: false,
    },
    Exact {
        name: "virtual/aggregate",
        validators: 10,
        scheme: SchemeKind::BlsAggregate,
        transfers_per_second: 0,
        forge: false,
    },
    Exact {
        name: "virtual/transfers",
        validators: 4,
        scheme: SchemeKind::BlsThreshold,
        transfers_per_second: 200,
        forge: false,
    },
    Exact {
        name: "virtual/forgers",
        validators: 10,
        scheme: SchemeKind::BlsThreshold,
        transfers_per_second: 0,
        forge: true,
    },
];

/// What computing takes in these scenarios; about what it takes on a machine of 2022.
fn costs() -> Costs {
    Costs {
        sign: Duration::from_micros(300),
        checks: Duration::ZERO,
        certify: Duration::from_micros(1_100),
        certify_beside: Duration::from_micros(1_100),
        search: Duration::from_micros(2_000),
        certificate: Duration::from_micros(950),
        certificate_beside: Duration::from_micros(950),
        vote: Duration::from_micros(1_000),
        block: Duration::ZERO,
        execute: Duration::ZERO,
    }
}

impl Exact {
    /// Runs it.
    pub(super) fn run(&self) -> anyhow::Result<BTreeMap<String, Figure>> {
        // Who is blocked reaches no goal, so such a run ends by the clock.
        let lasts = Duration::from_secs(if self.forge { 60 } else { 3_600 });
        let mut scenario = Scenario::new(0, self.validators, lasts);
        scenario.scheme = self.scheme;
        scenario.links.latency = Latency::Map(&WORLD, 0);
        // Those of the scenario are for links a hundred times shorter.
        scenario.timing = Timing::default();
        scenario.costs = costs();
        scenario.sync = Duration::from_micros(500);
        scenario.linger = Duration::ZERO;
        scenario.transfers_per_second = self.transfers_per_second;
        scenario.goal = (!self.forge).then_some((WARM_UP_BLOCKS + BLOCKS + 10) as u64);
        let forgers = if self.forge {
            forgers(self.validators)
        } else {
            Vec::new()
        };
        for place in &forgers {
            let attack = Attack::Glitch(3_000, u64::MAX);
            scenario.byzantine.insert(*place, [attack].into());
        }
        let (run, spent) = alloc::count(|| Simulation::new(scenario).measure());
        let (report, timeline) = run.map_err(|violation| anyhow::anyhow!("{}", violation.0))?;
        let blocks: Vec<_> = timeline
            .blocks
            .iter()
            .skip(WARM_UP_BLOCKS)
            .take(BLOCKS)
            .collect();
        ensure!(blocks.len() == BLOCKS, "{} blocks were final", blocks.len());
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let each = self.validators as f64;
        let views = timeline.entered.len() as f64;
        let all = timeline.blocks.len() as f64;
        let per_view = |total: u64| total as f64 / each / views;
        let per_block = |total: u64| total as f64 / each / all;
        let failed: u64 = timeline.checks.iter().map(|c| u64::from(c.failed)).sum();
        let last = timeline.entered.iter().map(|(_, at)| *at).max();
        let figures = [
            ("block time", mean(&block_times(&blocks)), "ms"),
            ("finality", mean(&finality_times(&blocks)), "ms"),
            (
                "whole run",
                last.map_or(0.0, |at| crate::wan::millis(at.since(Moment(0)))),
                "ms",
            ),
            (
                "messages",
                per_view(timeline.sent.iter().map(|(frames, _)| frames).sum()),
                "per view and validator",
            ),
            (
                "bytes",
                per_view(timeline.sent.iter().map(|(_, bytes)| bytes).sum()),
                "per view and validator",
            ),
            (
                "checks",
                per_view(timeline.checks.len() as u64),
                "per view and validator",
            ),
            (
                "failed checks",
                per_block(failed),
                "per block and validator",
            ),
            (
                "disk operations",
                per_block(report.coverage.disk_operations),
                "per block and validator",
            ),
            (
                "allocations",
                per_block(spent.allocations),
                "per block and validator",
            ),
            (
                "allocated",
                per_block(spent.bytes),
                "bytes per block and validator",
            ),
        ];
        let figures = figures.into_iter().map(|(name, value, unit)| {
            let figure = Figure::new(value, unit, Better::Lower, Kind::Deterministic);
            (name.to_owned(), figure)
        });
        Ok(figures.collect())
    }
}
