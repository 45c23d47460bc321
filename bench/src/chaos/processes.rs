//! Real validators over loopback, some of which are told to forge from a moment on.

use super::run::{Onset, Run, Span, forgers};
use crate::ours::{self, OurNetwork, beside};
use anyhow::{Context, ensure};
use quorate_consensus::VoteChecking;
use quorate_node::localnet::{Network, Sample};
use quorate_types::genesis::Protocol;
use std::{
    collections::BTreeSet,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// How long starting a validator may take; the run begins when all have had it.
const START_ALLOWANCE: Duration = Duration::from_millis(400);

/// Between two points of a curve.
const POINT: Duration = Duration::from_millis(500);

/// What happened between two samples, of the honest validators.
fn span(before: &Sample, after: &Sample, start: &Instant) -> Span {
    let figures = after.since(before);
    let views = after.growth(before, "quorate_consensus_views_total");
    let checks = after.growth(before, "quorate_crypto_pairing_checks_total");
    let blocks = figures.blocks as f64;
    let cpu = figures.cpu_ms_per_view_per_node.unwrap_or(f64::NAN) * views;
    Span {
        until: start.elapsed().as_secs_f64(),
        blocks,
        block_ms: figures.seconds * 1e3 / blocks,
        finality_ms: figures.finality_ms.p50.unwrap_or(f64::NAN),
        checks_per_view: checks / views,
        cpu_ms: cpu / (after.connected().1 as f64) / blocks,
    }
}

/// Runs it.
pub(super) fn run(
    (validators, protocol): (usize, Protocol),
    seconds: u64,
    base_port: u16,
    (checking, name): (VoteChecking, &'static str),
    onset: Onset,
) -> anyhow::Result<Run> {
    let ours = OurNetwork::prepare("chaos-bench", validators, base_port, None, |it| {
        it.protocol = protocol;
    })?;
    let binary = beside("quorate-lab")?;
    let places = forgers(validators);
    let begins = onset.begins(places.len(), seconds as f64);
    let allowance = Duration::from_secs(2) + START_ALLOWANCE * validators as u32;
    let begin_ms = (SystemTime::now() + allowance)
        .duration_since(UNIX_EPOCH)
        .context("this machine's clock is before 1970")?
        .as_millis();
    let start = Instant::now() + allowance;
    let arguments = |place: usize| {
        let mut list = Vec::new();
        if checking != VoteChecking::Together {
            list.extend(["--checking".to_owned(), name.to_owned()]);
        }
        if let Some(forger) = places.iter().position(|forger| *forger == place) {
            let from = begin_ms + (begins[forger] * 1e3) as u128;
            list.extend(["--misbehave".to_owned(), format!("garbage-votes@{from}")]);
        }
        list
    };
    let runtime = tokio::runtime::Runtime::new().context("starting a runtime")?;
    runtime.block_on(async {
        let network = ours.start(&binary, arguments).await?;
        ensure!(
            Instant::now() < start,
            "the validators took longer than {allowance:?} to start: this machine is too busy for \
             a comparison"
        );
        tokio::time::sleep(start - Instant::now()).await;
        let take = async || Sample::take(&network).await.without(&places);
        let first = take().await;
        let (mut curve, mut marks) = (Vec::new(), vec![first.clone()]);
        let mut last = first.clone();
        let third = Duration::from_secs(seconds) / 3;
        for phase in 1..=3 {
            while start.elapsed() < third * phase {
                let rest = (third * phase).saturating_sub(start.elapsed());
                tokio::time::sleep(rest.min(POINT)).await;
                let sample = take().await;
                curve.push(span(&last, &sample, &start));
                last = sample;
            }
            marks.push(last.clone());
        }
        let blocked = blocked_by_honest(&network, &places).await?;
        let wronged: Vec<_> = blocked.iter().filter(|b| !places.contains(b)).collect();
        ensure!(
            wronged.is_empty(),
            "honest validators were blocked: {wronged:?}"
        );
        let honest = (0..validators).filter(|place| !places.contains(place));
        let spoiled = honest.map(|place| {
            let others: Vec<usize> = (0..validators).filter(|p| *p != place).collect();
            let (last, first) = (
                last.clone().without(&others),
                first.clone().without(&others),
            );
            last.growth(&first, "quorate_crypto_spoiled_checks_total") as u64
        });
        let disturbed = spoiled.max().unwrap_or(0);
        ours::end(network)?;
        let phase = |at: usize| span(&marks[at], &marks[at + 1], &start);
        Ok(Run {
            setting: "processes",
            validators,
            onset,
            checking: name,
            seconds: seconds as f64,
            disturbed,
            phases: [phase(0), phase(1), phase(2)],
            curve,
        })
    })
}

/// Whom any honest validator has blocked.
async fn blocked_by_honest(
    network: &Network,
    forgers: &[usize],
) -> anyhow::Result<BTreeSet<usize>> {
    let mut blocked = BTreeSet::new();
    for place in (0..network.size()).filter(|place| !forgers.contains(place)) {
        let status = network.client(place).status().await?;
        blocked.extend(status.blocked.iter().map(|b| b.validator.as_usize()));
    }
    Ok(blocked)
}
