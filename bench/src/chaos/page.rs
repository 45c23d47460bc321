//! The chaos report as a page.

use super::{
    day::{self, Day},
    run::{Run, Span},
    thousand::Passed,
};
use crate::report::words;
use quorate_picture::{Chart, Line, Page};
use serde_json::Value;
use std::collections::BTreeMap;

type Panel = (&'static str, fn(&Span) -> f64);

const PANELS: [Panel; 4] = [
    ("block time, ms", |span| span.block_ms),
    ("finality, ms", |span| span.finality_ms),
    ("checks per view and validator", |span| span.checks_per_view),
    ("CPU per block and validator, ms", |span| span.cpu_ms),
];

/// Draws it.
pub(super) fn draw(
    runs: &[Run],
    thousand: &[Passed],
    days: &[Day],
    machine: &Value,
) -> anyhow::Result<String> {
    let mut page = Page::new(
        "Invalid signers",
        "Up to a third of the validators begin to sign another message with every vote, after a quiet \
         third of the run: all at once, or one after the other during the second third (grey lines: \
         where it begins and ends). blocked: a quorum of votes is checked at once, and who spoils the \
         check is found and blocked, the node's way. unblocked: the same without blocking. eager: each \
         vote is verified when it comes.",
    );
    page.words(&format!("Measured on {}.", words(machine)));
    let mut groups: BTreeMap<(&str, usize, &str), Vec<&Run>> = BTreeMap::new();
    for run in runs {
        let key = (run.setting, run.validators, run.onset.name());
        groups.entry(key).or_default().push(run);
    }
    for ((setting, validators, onset), runs) in groups {
        let forgers = (validators - 1) / 3;
        page.heading(&format!(
            "{validators} validators, {forgers} forge, {onset} ({setting})"
        ));
        let third = runs[0].seconds / 3.0;
        let panels = PANELS.iter().map(|(title, value)| {
            let lines: Vec<Line> = runs
                .iter()
                .map(|run| Line {
                    name: run.checking.to_owned(),
                    points: run.curve.iter().map(|s| (s.until, value(s))).collect(),
                })
                .collect();
            Chart {
                title,
                across: "seconds",
                lines: &lines,
                marks: &[third, third * 2.0],
                logarithmic: false,
            }
            .draw()
        });
        page.pictures(&panels.collect::<anyhow::Result<Vec<_>>>()?);
        let rows = runs.iter().map(|run| {
            let mut row = vec![run.checking.to_owned(), run.disturbed.to_string()];
            for (_, value) in &PANELS {
                let phases = run.phases.iter().map(|p| format!("{:.1}", value(p)));
                row.push(phases.collect::<Vec<_>>().join(" → "));
            }
            row
        });
        let mut head = vec!["", "failed checks at most"];
        head.extend(PANELS.iter().map(|(title, _)| *title));
        page.table(&head, &rows.collect::<Vec<_>>());
    }
    if !thousand.is_empty() {
        page.heading("One real receiver in a large committee");
        let mut lines: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for passed in thousand {
            let (curve, x, y) = passed.point();
            lines.entry(curve).or_default().push((x, y));
        }
        let lines: Vec<Line> = lines
            .into_iter()
            .map(|(name, points)| Line { name, points })
            .collect();
        let chart = Chart {
            title: "time of checks, ms a view",
            across: "view",
            lines: &lines,
            marks: &[],
            logarithmic: false,
        };
        page.pictures(&[chart.draw()?]);
    }
    if !days.is_empty() {
        page.heading("A day, with forgers all the time and a restart an hour");
        let rows: Vec<Vec<String>> = days.iter().map(|day| day.cells().to_vec()).collect();
        page.table(&day::HEAD, &rows);
    }
    Ok(page.finish())
}
