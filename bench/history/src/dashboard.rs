//! The history as one page, which needs nothing else: for each host and scenario every figure over
//! its commits, what is usual, and what the gates say.

use crate::{
    gates::{Limits, Verdict, wall},
    host::Host,
    record::{Commit, Figure, Kind, Record, Validity},
    series::{self, Point, Timeline},
    words,
};
use anyhow::Context as _;
use quorate_picture::{Mark, Page, Sample, Trend};

/// Only so many newest records of a scenario are drawn.
const MAX_POINTS: usize = 150;

/// Only so many newest invalid records of a scenario are listed.
const MAX_INVALID: usize = 20;

/// Digits of a hash below a picture.
const LABEL_DIGITS: usize = 7;

/// What is on the page.
#[derive(Clone, Debug)]
pub struct Dashboard<'a> {
    /// The heading.
    pub title: &'a str,
    /// The history.
    pub records: &'a [Record],
    /// What judges it.
    pub limits: &'a Limits,
    /// How to measure it again: commands, a line each.
    pub reproduce: &'a [String],
    /// What else must be said, such as that the history's last line is torn.
    pub remarks: &'a [String],
}

impl Dashboard<'_> {
    /// Draws the page.
    ///
    /// # Errors
    ///
    /// If a histogram cannot be read, or drawing fails.
    pub fn page(&self) -> anyhow::Result<String> {
        let hosts = series::by_host(self.records).context("reading the histograms")?;
        let mut page = Page::new(self.title, &self.about());
        for remark in self.remarks {
            page.words(remark);
        }
        if self.records.is_empty() {
            page.words("Nothing has been measured yet.");
        }
        let mut drawn = Vec::new();
        for (id, scenarios) in &hosts {
            for (scenario, timeline) in scenarios {
                drawn.push((*id, *scenario, timeline, self.columns(timeline)));
            }
        }
        self.draw_summary(&mut page, &drawn);
        let mut last = "";
        for (id, scenario, timeline, columns) in &drawn {
            if *id != last {
                draw_host(&mut page, timeline);
                last = id;
            }
            self.draw_scenario(&mut page, scenario, timeline, columns)?;
        }
        self.draw_method(&mut page);
        Ok(page.finish())
    }

    fn about(&self) -> String {
        let newest = self.records.iter().max_by_key(|record| record.order());
        match newest {
            Some(newest) => format!(
                "{} records, the newest of commit {}, measured on {}. A grey band is where a \
                 figure is neutral, a triangle is worse, a diamond better, and a hollow circle an \
                 invalid record, which counts for nothing. Pointing at a mark tells more. Scales do \
                 not begin at zero, and what is far out stands at the edge.",
                self.records.len(),
                newest.commit,
                words::day(newest.unix_seconds)
            ),
            None => "An empty history.".to_owned(),
        }
    }

    fn columns<'r>(&self, timeline: &Timeline<'r>) -> Vec<Column<'r>> {
        let names = timeline.names().into_iter();
        let columns = names.map(|name| Column {
            name: name.to_owned(),
            points: timeline.points(name, self.limits),
        });
        columns.collect()
    }

    /// What somebody should look at first.
    fn draw_summary(
        &self,
        page: &mut Page,
        drawn: &[(&str, &str, &Timeline<'_>, Vec<Column<'_>>)],
    ) {
        let mut rows = Vec::new();
        for (_, scenario, timeline, columns) in drawn {
            let newest = timeline.entries.last().map(|entry| entry.record);
            for column in columns {
                let Some(point) = column.points.last() else {
                    continue;
                };
                let is_newest = newest.is_some_and(|newest| std::ptr::eq(newest, point.record));
                let verdict = point.judged.judgement.verdict;
                if is_newest && point.record.is_valid() && mark_of(verdict) != Mark::Usual {
                    let mut row = cells(point);
                    row[0] = format!("{scenario}: {}", column.name);
                    row.push(point.record.host.processor.clone());
                    rows.push(row);
                }
            }
        }
        page.heading("What the newest records say");
        match rows.is_empty() {
            true => page.words("Nothing is worse or better than its gate allows."),
            false => {
                let head = [
                    "figure", "newest", "before", "ratio", "verdict", "why", "host",
                ];
                page.table_with_words(&head, &rows, 4);
            }
        }
    }

    fn draw_scenario(
        &self,
        page: &mut Page,
        scenario: &str,
        timeline: &Timeline<'_>,
        columns: &[Column<'_>],
    ) -> anyhow::Result<()> {
        page.subheading(scenario);
        let pictures: anyhow::Result<Vec<String>> = columns.iter().map(Column::draw).collect();
        page.pictures(&pictures?);
        let newest = columns.iter().filter_map(|column| {
            let point = column.points.last()?;
            let mut row = cells(point);
            row[0] = column.name.clone();
            Some(row)
        });
        let head = ["figure", "newest", "before", "ratio", "verdict", "why"];
        page.table_with_words(&head, &newest.collect::<Vec<_>>(), 4);
        let invalid = timeline.entries.iter().rev().filter_map(|entry| {
            let Validity::Invalid(reason) = &entry.record.valid else {
                return None;
            };
            let day = words::day(entry.record.unix_seconds);
            Some(vec![entry.record.commit.to_string(), day, reason.clone()])
        });
        let invalid: Vec<Vec<String>> = invalid.take(MAX_INVALID).collect();
        if !invalid.is_empty() {
            page.table_with_words(&["invalid", "measured", "because"], &invalid, 1);
        }
        if let Some(newest) = timeline.entries.last() {
            draw_faults(page, newest.record);
        }
        Ok(())
    }

    fn draw_method(&self, page: &mut Page) {
        let (floor, fence) = (self.limits.wall.floor, &self.limits.fence);
        page.heading("How it is judged");
        page.words(&format!(
            "Deterministic figures are compared with the record before; {} of change is allowed \
             where nothing else is said. Ratios come from builds that ran in turn with their \
             baseline (A-B-B-A) in one run; a verdict needs an interval of {} confidence wholly more \
             than {} away. Everything else is compared with the last {} valid records of the same \
             host and scenario: usual is what lies within {} interquartile ranges of the quartiles, \
             and what does not is an alert, not a failure. Before stands for the record before, the \
             baseline, or the median of what is usual. Percentiles come from whole distributions, \
             which are merged and never averaged.",
            words::percent(self.limits.tolerances.default),
            words::percent(wall::CONFIDENCE),
            words::percent(floor - 1.0),
            fence.window,
            fence.width
        ));
        if !self.reproduce.is_empty() {
            page.heading("How to measure it again");
            page.code(&self.reproduce.join("\n"));
        }
    }
}

/// One figure over time.
struct Column<'a> {
    name: String,
    points: Vec<Point<'a>>,
}

impl Column<'_> {
    fn draw(&self) -> anyhow::Result<String> {
        let from = self.points.len().saturating_sub(MAX_POINTS);
        let points = &self.points[from..];
        let samples: Vec<Sample> = points.iter().map(sample).collect();
        let unit = points.last().map_or("", |point| &point.figure.unit);
        let title = format!("{}, {unit}", self.name);
        Trend {
            title: &title,
            samples: &samples,
        }
        .draw()
    }
}

fn sample(point: &Point<'_>) -> Sample {
    let (record, judgement) = (point.record, &point.judged.judgement);
    let ends = |interval: &crate::record::Interval| (interval.lower, interval.upper);
    Sample {
        label: label(&record.commit),
        words: format!(
            "{} {}\n{}, {}\n{}: {}",
            words::number(point.figure.value),
            point.figure.unit,
            record.commit,
            words::day(record.unix_seconds),
            judgement.verdict,
            judgement.why
        ),
        value: point.figure.value,
        interval: point.figure.interval.as_ref().map(ends),
        band: point.judged.band.as_ref().map(ends),
        mark: match record.is_valid() {
            true => mark_of(judgement.verdict),
            false => Mark::Hollow,
        },
    }
}

fn label(commit: &Commit) -> String {
    let short = commit.hash.get(..LABEL_DIGITS).unwrap_or(&commit.hash);
    format!("{short}{}", if commit.dirty { "+" } else { "" })
}

fn mark_of(verdict: Verdict) -> Mark {
    match verdict {
        Verdict::Neutral | Verdict::CannotTell => Mark::Usual,
        Verdict::Improvement => Mark::Better,
        Verdict::Alert | Verdict::Regression => Mark::Worse,
    }
}

/// A row of a table: a place for the name, the newest value, the one before, the ratio, the verdict
/// and why.
fn cells(point: &Point<'_>) -> Vec<String> {
    let Figure { value, kind, .. } = point.figure;
    let before = point.judged.reference;
    let judgement = &point.judged.judgement;
    let symbol = match mark_of(judgement.verdict) {
        Mark::Worse => "▲ ",
        Mark::Better => "◆ ",
        Mark::Usual | Mark::Hollow => "",
    };
    let soft = match kind {
        Kind::Deterministic => "deterministic",
        Kind::Wall => "in turn",
        Kind::History => "history",
    };
    let unit = match kind {
        Kind::Wall => "",
        Kind::Deterministic | Kind::History => point.figure.unit.as_str(),
    };
    vec![
        String::new(),
        format!("{} {unit}", words::number(value))
            .trim_end()
            .to_owned(),
        before.map_or("–".to_owned(), words::number),
        before.map_or("–".to_owned(), |before| words::ratio(value, before)),
        format!("{symbol}{} ({soft})", judgement.verdict),
        judgement.why.clone(),
    ]
}

fn draw_host(page: &mut Page, timeline: &Timeline<'_>) {
    let Some(newest) = timeline.entries.last() else {
        return;
    };
    let Host {
        processor,
        cores,
        memory_bytes,
        kernel,
        id,
    } = &newest.record.host;
    page.heading(&format!("{cores} × {processor}"));
    let memory = *memory_bytes as f64 / f64::from(1 << 30);
    page.words(&format!(
        "{memory:.1} GiB of memory, kernel {kernel}, host {id}."
    ));
}

fn draw_faults(page: &mut Page, newest: &Record) {
    let seen = &newest.conditions;
    let share = |share: Option<f64>| match share {
        Some(share) => format!("{:.1}%", 100.0 * share),
        None => "unknown".to_owned(),
    };
    let load = seen
        .load_before
        .map_or("unknown".to_owned(), |load| format!("{load:.2}"));
    let baseline = match &newest.baseline {
        Some(baseline) => format!(" in turn with {baseline}"),
        None => String::new(),
    };
    page.words(&format!(
        "The newest record: {}{baseline}, {:.0} s, steal {}, idle {}, load {load} at the start.",
        newest.commit,
        seen.seconds,
        share(seen.steal),
        share(seen.idle)
    ));
    if !newest.faults.is_empty() {
        page.words(&format!("Faults: {}.", newest.faults.join("; ")));
    }
}

#[cfg(test)]
#[path = "dashboard_tests.rs"]
mod tests;
