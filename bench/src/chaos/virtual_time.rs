//! Whole validators in virtual time, whose checks take what they take on this machine.

use super::run::{Onset, Run, Span, forgers};
use crate::wan::{block_times, finality_times, millis};
use quorate_consensus::{Moment, VoteChecking};
use quorate_crypto::bls::SchemeKind;
use quorate_sim::{Attack, Costs, Scenario, Simulation, Timeline};
use quorate_types::genesis::Protocol;
use std::time::Duration;

/// Points of a curve.
const POINTS: u32 = 48;

/// Runs it.
pub(super) fn run(
    (validators, protocol): (usize, Protocol),
    seconds: u64,
    (costs, sync): &(Costs, Duration),
    (checking, name): (VoteChecking, &'static str),
    onset: Onset,
) -> anyhow::Result<Run> {
    let total = Duration::from_secs(seconds);
    let mut scenario = Scenario::new(0, validators, total);
    scenario.protocol = protocol;
    scenario.scheme = SchemeKind::BlsThreshold;
    scenario.costs = costs.clone();
    scenario.sync = *sync;
    scenario.checking = checking;
    scenario.linger = Duration::ZERO;
    scenario.transfers_per_second = 0;
    let places = forgers(validators);
    let begins = onset.begins(places.len(), seconds as f64);
    for (place, begin) in places.iter().zip(&begins) {
        let attack = Attack::Glitch((begin * 1e3) as u64, u64::MAX);
        scenario.byzantine.insert(*place, [attack].into());
    }
    let run = Simulation::new(scenario).measure();
    let (_, timeline) = run.map_err(|violation| anyhow::anyhow!("{}", violation.0))?;
    let honest = (0..validators).filter(|host| !places.contains(host));
    let disturbed = honest.map(|host| {
        let own = timeline.checks.iter().filter(|check| check.host == host);
        own.map(|check| u64::from(check.failed)).sum::<u64>()
    });
    let spans = |count: u32| {
        let length = total / count;
        (0..count).map(move |part| {
            let from = Moment(0).after(length * part);
            (from, from.after(length))
        })
    };
    let span = |(from, until)| span(&timeline, validators, from, until);
    let phases: Vec<Span> = spans(3).map(span).collect();
    Ok(Run {
        setting: "virtual time",
        validators,
        onset,
        checking: name,
        seconds: seconds as f64,
        disturbed: disturbed.max().unwrap_or(0),
        phases: [phases[0], phases[1], phases[2]],
        curve: spans(POINTS).map(span).collect(),
    })
}

fn span(timeline: &Timeline, validators: usize, from: Moment, until: Moment) -> Span {
    let within = |at: Moment| from <= at && at < until;
    let blocks = timeline.blocks.iter().filter(|b| within(b.proposed));
    let blocks: Vec<_> = blocks.collect();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let checks: Vec<_> = timeline.checks.iter().filter(|c| within(c.at)).collect();
    let checking: f64 = checks.iter().map(|check| millis(check.takes)).sum();
    let views = timeline
        .entered
        .iter()
        .filter(|(_, at)| within(*at))
        .count();
    let each = validators as f64;
    Span {
        until: millis(until.since(Moment(0))) / 1e3,
        blocks: blocks.len() as f64,
        block_ms: mean(&block_times(&blocks)),
        finality_ms: mean(&finality_times(&blocks)),
        checks_per_view: checks.len() as f64 / each / views as f64,
        cpu_ms: checking / each / blocks.len() as f64,
    }
}
