//! A history in order: for each host and scenario, what each figure was and how it is judged.

use crate::{
    gates::{
        self, Judgement, Limits,
        fence::{self, Fence},
        wall,
    },
    histograms::{HistogramError, Merged},
    record::{Better, Figure, Interval, Kind, Record, Validity},
};
use std::collections::BTreeMap;

/// The percentiles of a histogram that are figures: a name, and the part.
pub const QUANTILES: [(&str, f64); 2] = [("p50", 0.5), ("p99", 0.99)];

/// A record with all its figures, those of its histograms included.
#[derive(Debug)]
pub struct Entry<'a> {
    /// The record.
    pub record: &'a Record,
    /// Its figures, by name.
    pub figures: BTreeMap<String, Figure>,
}

/// The entries of one host and scenario, in order.
#[derive(Debug, Default)]
pub struct Timeline<'a> {
    /// From the oldest to the newest.
    pub entries: Vec<Entry<'a>>,
}

/// What a figure is measured by, and what comes out.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// What it is compared with, if there is anything: the value before of a deterministic figure,
    /// 1 for a ratio, else the median of what is usual.
    pub reference: Option<f64>,
    /// Where it is neutral: the tolerance, the floor, or the fence.
    pub band: Option<Interval>,
    /// What is said.
    pub judgement: Judgement,
}

/// One moment of one figure.
#[derive(Debug)]
pub struct Point<'a> {
    /// Of which record.
    pub record: &'a Record,
    /// What it was.
    pub figure: Figure,
    /// How it is judged by what came before.
    pub judged: Judged,
}

/// The figures that a distribution gives. Less is better: distributions are of latencies and other
/// costs.
pub fn quantiles(name: &str, merged: &Merged) -> Vec<(String, Figure)> {
    let figures = QUANTILES.iter().filter_map(|(short, part)| {
        let value = merged.quantile(*part)?;
        let figure = Figure::new(value, merged.unit(), Better::Lower, Kind::History);
        Some((format!("{name} {short}"), figure))
    });
    figures.collect()
}

/// All figures of a record. One that is named like a percentile goes before the histogram's.
///
/// # Errors
///
/// If a histogram cannot be read.
pub fn figures(record: &Record) -> Result<BTreeMap<String, Figure>, HistogramError> {
    let mut figures = record.figures.clone();
    for (name, saved) in &record.histograms {
        let merged = Merged::of([saved])?;
        for (name, figure) in merged.iter().flat_map(|merged| quantiles(name, merged)) {
            figures.entry(name).or_insert(figure);
        }
    }
    Ok(figures)
}

/// Sorts records into hosts, by id, and their scenarios.
///
/// # Errors
///
/// If a histogram cannot be read.
pub fn by_host(
    records: &[Record],
) -> Result<BTreeMap<&str, BTreeMap<&str, Timeline<'_>>>, HistogramError> {
    let mut sorted: Vec<&Record> = records.iter().collect();
    // Stable: what has the same time keeps the order of the file.
    sorted.sort_by_key(|record| record.order());
    let mut hosts: BTreeMap<&str, BTreeMap<&str, Timeline<'_>>> = BTreeMap::new();
    for record in sorted {
        let scenarios = hosts.entry(&record.host.id).or_default();
        let timeline = scenarios.entry(&record.scenario).or_default();
        let figures = figures(record)?;
        timeline.entries.push(Entry { record, figures });
    }
    Ok(hosts)
}

impl<'a> Timeline<'a> {
    /// The names of all figures.
    pub fn names(&self) -> Vec<&str> {
        let mut names: BTreeMap<&str, ()> = BTreeMap::new();
        for entry in &self.entries {
            names.extend(entry.figures.keys().map(|name| (name.as_str(), ())));
        }
        names.into_keys().collect()
    }

    /// One figure from the oldest record to the newest, each judged by those before it.
    pub fn points(&self, name: &str, limits: &Limits) -> Vec<Point<'a>> {
        let mut earlier: Vec<&Figure> = Vec::new();
        let mut points = Vec::new();
        for Entry { record, figures } in &self.entries {
            let Some(figure) = figures.get(name) else {
                continue;
            };
            let judged = judge(&record.scenario, name, figure, &earlier, limits);
            let judged = match &record.valid {
                Validity::Valid => judged,
                Validity::Invalid(reason) => Judged {
                    judgement: Judgement::cannot_tell(format!("invalid: {reason}")),
                    ..judged
                },
            };
            points.push(Point {
                record,
                figure: figure.clone(),
                judged,
            });
            if counts(record) {
                earlier.push(figure);
            }
        }
        points
    }
}

/// Whether a record says what is usual. One of changes that no commit holds does not: nobody can
/// run it again.
pub fn counts(record: &Record) -> bool {
    record.is_valid() && !record.commit.dirty
}

/// Judges a figure by earlier ones of the same host and scenario, in order.
pub fn judge(
    scenario: &str,
    name: &str,
    figure: &Figure,
    earlier: &[&Figure],
    limits: &Limits,
) -> Judged {
    let alike = |other: &&&Figure| {
        (other.kind, other.better, &other.unit) == (figure.kind, figure.better, &figure.unit)
    };
    match figure.kind {
        Kind::Deterministic => {
            let tolerance = limits.tolerances.get(scenario, name);
            let Some(before) = earlier.iter().rfind(alike) else {
                return unknown("the first of its kind");
            };
            let room = tolerance * before.value.abs();
            Judged {
                reference: Some(before.value),
                band: Some(Interval {
                    lower: before.value - room,
                    upper: before.value + room,
                }),
                judgement: gates::deterministic::judge(before, figure, tolerance),
            }
        }
        Kind::Wall => {
            let judgement = match figure.interval {
                Some(interval) => wall::judge_interval(interval, figure.better, &limits.wall),
                None => Judgement::cannot_tell("a ratio without an interval says nothing"),
            };
            Judged {
                reference: Some(1.0),
                band: Some(Interval {
                    lower: 1.0 / limits.wall.floor,
                    upper: limits.wall.floor,
                }),
                judgement,
            }
        }
        Kind::History => {
            let values: Vec<f64> = earlier.iter().filter(alike).map(|f| f.value).collect();
            let usual = fence::fence(&values, &limits.fence);
            Judged {
                reference: usual.map(|fence| fence.median),
                band: usual.map(|Fence { lower, upper, .. }| Interval { lower, upper }),
                judgement: fence::judge(figure.value, figure.better, usual.as_ref()),
            }
        }
    }
}

fn unknown(why: &str) -> Judged {
    Judged {
        reference: None,
        band: None,
        judgement: Judgement::cannot_tell(why),
    }
}

#[cfg(test)]
#[path = "series_tests.rs"]
mod tests;
