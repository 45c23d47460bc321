//! An experiment's results as one page.

use super::{
    plan::{Fault, MAX_FILE_BYTES, Parameter, Plan, Point, Search},
    run::{PLAN_FILE, keeps, read_all},
    trial::{QUANTILES, Trial},
};
use crate::report::words;
use anyhow::{Context, ensure};
use quorate_files::read_text;
use quorate_load::Latencies;
use quorate_picture::{Chart, Column, Line, Page, bars, heatmap};
use std::{fs, path::Path};

/// Most lines in a picture, most pictures of single trials.
const MAX_LINES: usize = 6;
const MAX_TIMELINES: usize = 4;

/// Latencies that differ by more than so many times are drawn on a logarithmic axis.
const LARGE_SPREAD: f64 = 30.0;

/// A measured figure: its name in trials, its title, and whether it makes a picture.
const FIGURES: [(&str, &str, bool); 18] = [
    ("goodput", "goodput, transfers/s", false),
    ("latency_p50_ms", "latency, median, ms", false),
    ("latency_p99_ms", "latency, p99, ms", false),
    ("block_ms", "block time, ms", true),
    ("block_p50_ms", "block time, median, ms", false),
    ("block_p99_ms", "block time, p99, ms", false),
    ("finality_p50_ms", "finality, median, ms", true),
    ("finality_p99_ms", "finality, p99, ms", true),
    ("transfers_per_block", "transfers per block", true),
    (
        "cpu_ms_per_block_and_node",
        "CPU per block and validator, ms",
        true,
    ),
    (
        "cpu_ms_per_transfer",
        "CPU per transfer, all validators, ms",
        true,
    ),
    ("memory_mib", "memory of the largest validator, MiB", true),
    ("messages_per_view", "messages per view and validator", true),
    ("bytes_per_view", "bytes per view and validator", true),
    ("bytes_per_message", "bytes per message", true),
    (
        "checks_per_view",
        "pairing checks per view and validator",
        true,
    ),
    ("spoiled_checks", "failed checks per validator", false),
    ("syncs_per_view", "syncs per view and validator", false),
];

/// All repetitions of a point.
struct Group<'a> {
    point: &'a Point,
    trials: Vec<&'a Trial>,
}

impl Group<'_> {
    /// The median over repetitions, with the least and the greatest.
    fn figure(&self, name: &str) -> Option<[f64; 3]> {
        let values = self.trials.iter().filter_map(|t| t.figures.get(name));
        let mut values: Vec<f64> = values.copied().collect();
        values.sort_by(f64::total_cmp);
        let middle = values.get(values.len() / 2)?;
        let median = match values.len() % 2 {
            0 => f64::midpoint(values[values.len() / 2 - 1], *middle),
            _ => *middle,
        };
        Some([median, values[0], values[values.len() - 1]])
    }

    fn median(&self, name: &str) -> f64 {
        self.figure(name).map_or(f64::NAN, |[median, ..]| median)
    }

    /// Latencies of all repetitions together.
    fn latencies(&self) -> anyhow::Result<Latencies> {
        let mut all = Latencies::default();
        for trial in &self.trials {
            all.merge(&Latencies::from_text(&trial.load.total.latency.histogram)?);
        }
        Ok(all)
    }
}

/// A picture, and what a file of it is called.
struct Picture {
    name: String,
    svg: String,
}

/// The report: its page, and the page's pictures by name.
pub(crate) struct Report {
    page: Page,
    pictures: Vec<Picture>,
}

impl Report {
    fn pictures(&mut self, pictures: Vec<Picture>) {
        let drawn: Vec<String> = pictures.iter().map(|p| p.svg.clone()).collect();
        self.page.pictures(&drawn);
        self.pictures.extend(pictures);
    }

    /// Writes each picture into a folder, as NAME.svg.
    pub(crate) fn write_pictures(&self, folder: &Path) -> anyhow::Result<()> {
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        for picture in &self.pictures {
            let path = folder.join(&picture.name).with_extension("svg");
            fs::write(&path, &picture.svg)
                .with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(())
    }

    /// The page's text.
    pub(crate) fn finish(self) -> String {
        self.page.finish()
    }
}

/// Draws the results in a folder.
pub(crate) fn draw(results: &Path) -> anyhow::Result<Report> {
    let plan = Plan::read(&results.join(PLAN_FILE)).with_context(|| {
        format!(
            "{} holds no experiment's results: make them with `quorate-bench experiment run`",
            results.display()
        )
    })?;
    let trials = read_all(results)?;
    ensure!(
        !trials.is_empty(),
        "{} holds no finished trial",
        results.display()
    );
    let groups = groups(&plan, &trials);
    let mut report = Report {
        page: Page::new(&plan.title, &plan.about),
        pictures: Vec::new(),
    };
    let page = &mut report.page;
    if !plan.source.is_empty() {
        page.words(&format!("After {}.", plan.source));
    }
    let machine = words(&trials[0].machine);
    page.words(&format!(
        "Measured on {machine}: validators, load generator and links share it. {} trials of {} s, {}, \
         in random order.",
        trials.len(),
        plan.measure.as_secs(),
        match plan.repeats {
            1 => "each point once".to_owned(),
            times => format!("each point {times} times (lines are medians)"),
        }
    ));
    if let Some(search) = &plan.search {
        saturation(&mut report, search, &groups)?;
        report.page.words(&format!(
            "The highest rate of those tried at which the 99th percentile of the latency from when a \
             transfer was due stayed below {} ms and nearly everything that was offered became final.",
            search.p99_below.as_millis()
        ));
    }
    let varying = varying(&groups, plan.across);
    // What a fault does is seen over time.
    let faulty = groups.iter().any(|g| g.point.fault != Fault::None);
    if faulty {
        timelines(&mut report, plan.across, &groups, &varying)?;
    }
    figures(&mut report, &plan, &groups, &varying)?;
    distribution(&mut report, &groups, &varying)?;
    if !faulty {
        timelines(&mut report, plan.across, &groups, &varying)?;
    }
    let page = &mut report.page;
    table(page, &plan, &groups, &varying);
    exactness(page, &trials);
    page.heading("How to reproduce");
    page.words(
        "Save the text below as experiment.toml; then quorate-bench experiment run experiment.toml, and \
         quorate-bench experiment report on the folder that it names.",
    );
    let text = read_text(&results.join(PLAN_FILE), MAX_FILE_BYTES)?;
    page.code(&text);
    Ok(report)
}

/// In the order of the plan.
fn groups<'a>(plan: &Plan, trials: &'a [Trial]) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for trial in trials {
        match groups.iter_mut().find(|group| *group.point == trial.point) {
            Some(group) => group.trials.push(trial),
            None => groups.push(Group {
                point: &trial.point,
                trials: vec![trial],
            }),
        }
    }
    let order = plan.points();
    // A search tries rates that the plan does not name.
    let place = |group: &Group<'_>| {
        let rate = group.point.rate;
        let alike = |point: &Point| {
            Point {
                rate,
                ..point.clone()
            } == *group.point
        };
        order.iter().position(alike)
    };
    groups.sort_by(|a, b| {
        let by_rate = a.point.rate.total_cmp(&b.point.rate);
        place(a).cmp(&place(b)).then(by_rate)
    });
    groups
}

/// The parameters, but for `across`, that have more than one value.
fn varying(groups: &[Group<'_>], across: Parameter) -> Vec<Parameter> {
    let others = Parameter::ALL.into_iter().filter(|p| *p != across);
    others
        .filter(|parameter| {
            let first = groups[0].point.word(*parameter);
            groups.iter().any(|g| g.point.word(*parameter) != first)
        })
        .collect()
}

/// What tells a point's curve from the others.
fn curve(point: &Point, varying: &[Parameter]) -> String {
    let words: Vec<String> = varying
        .iter()
        .map(|parameter| match parameter {
            Parameter::Scheme | Parameter::Checking | Parameter::Fault => point.word(*parameter),
            _ => format!("{parameter} {}", point.word(*parameter)),
        })
        .collect();
    words.join(", ")
}

fn curves<'a, 'b>(
    groups: &'b [Group<'a>],
    varying: &[Parameter],
) -> Vec<(String, Vec<&'b Group<'a>>)> {
    let mut curves: Vec<(String, Vec<&Group<'_>>)> = Vec::new();
    for group in groups {
        let name = curve(group.point, varying);
        match curves.iter_mut().find(|(other, _)| *other == name) {
            Some((_, groups)) => groups.push(group),
            None => curves.push((name, vec![group])),
        }
    }
    curves
}

fn figures(
    report: &mut Report,
    plan: &Plan,
    groups: &[Group<'_>],
    varying: &[Parameter],
) -> anyhow::Result<()> {
    let curves = curves(groups, varying);
    let numeric = groups.iter().all(|g| g.point.number(plan.across).is_some());
    let several = curves.iter().any(|(_, groups)| groups.len() > 1);
    if !(numeric && several) {
        return ablation(report, plan, groups, varying);
    }
    let along = |g: &Group<'_>| g.point.number(plan.across).unwrap_or(f64::NAN);
    let chart = |title: &str, across: &str, x: &dyn Fn(&Group<'_>) -> f64, y: &str| {
        let values = || groups.iter().map(|g| g.median(y)).filter(|y| *y > 0.0);
        let spread = values().fold(0.0, f64::max) / values().fold(f64::INFINITY, f64::min);
        let lines = curves.iter().map(|(name, groups)| {
            // In the order of the loads: beyond what is carried, goodput may fall while latency grows.
            let mut groups = groups.clone();
            groups.sort_by(|a, b| along(a).total_cmp(&along(b)));
            Line {
                name: name.clone(),
                points: groups.iter().map(|g| (x(g), g.median(y))).collect(),
            }
        });
        let svg = Chart {
            title,
            across,
            lines: &lines.collect::<Vec<_>>(),
            marks: &[],
            logarithmic: y.starts_with("latency") && spread > LARGE_SPREAD,
        }
        .draw()?;
        let name = y.to_owned();
        anyhow::Ok(Picture { name, svg })
    };
    let across = plan.across.to_string();
    // Load grows along these; along others goodput says nothing.
    let loads = matches!(plan.across, Parameter::Rate | Parameter::Clients);
    let goodput = |g: &Group<'_>| match loads {
        true => g.median("goodput"),
        false => along(g),
    };
    let below = if loads {
        "goodput, transfers/s"
    } else {
        &across
    };
    let mut pictures = vec![chart("goodput, transfers/s", &across, &along, "goodput")?];
    for (name, title) in [
        ("latency_p50_ms", "latency, median, ms"),
        ("latency_p99_ms", "latency, p99, ms"),
    ] {
        pictures.push(chart(title, below, &goodput, name)?);
    }
    report.page.heading("Goodput and latency");
    report.pictures(pictures);
    report.page.heading("Blocks and what they cost");
    let known = |name: &str| groups.iter().any(|g| g.figure(name).is_some());
    let pictures = FIGURES
        .iter()
        .filter(|(name, _, drawn)| *drawn && known(name))
        .map(|(name, title, _)| chart(title, &across, &along, name));
    report.pictures(pictures.collect::<anyhow::Result<Vec<_>>>()?);
    Ok(())
}

/// Bars for points that lie on no axis.
fn ablation(
    report: &mut Report,
    plan: &Plan,
    groups: &[Group<'_>],
    varying: &[Parameter],
) -> anyhow::Result<()> {
    report.page.heading("Side by side");
    let mut all = varying.to_vec();
    all.insert(0, plan.across);
    let pictures = FIGURES.iter().filter_map(|(name, title, _)| {
        let items: Vec<(String, f64)> = groups
            .iter()
            .map(|g| (curve(g.point, &all), g.median(name)))
            .collect();
        items.iter().any(|(_, value)| value.is_finite()).then(|| {
            let svg = bars(title, &items)?;
            let name = (*name).to_owned();
            Ok(Picture { name, svg })
        })
    });
    report.pictures(pictures.collect::<anyhow::Result<Vec<_>>>()?);
    Ok(())
}

/// The highest rate per curve.
fn saturation(report: &mut Report, search: &Search, groups: &[Group<'_>]) -> anyhow::Result<()> {
    let varying = varying(groups, Parameter::Rate);
    let (mut highest, mut rows) = (Vec::new(), Vec::new());
    for (name, groups) in curves(groups, &varying) {
        let kept = groups
            .iter()
            .filter(|g| g.trials.iter().all(|trial| keeps(search, trial)));
        let best = kept.max_by(|a, b| a.point.rate.total_cmp(&b.point.rate));
        let cell = |name: &str| {
            best.and_then(|g| g.figure(name))
                .map_or("–".to_owned(), |[median, ..]| format!("{median:.1}"))
        };
        let name = if name.is_empty() {
            "all".to_owned()
        } else {
            name
        };
        let rate = best.map(|g| g.point.rate);
        let cells = [
            "goodput",
            "latency_p50_ms",
            "latency_p99_ms",
            "block_ms",
            "memory_mib",
        ];
        let words = rate.map_or("none".to_owned(), |rate| rate.to_string());
        let mut row = vec![name.clone(), words];
        row.extend(cells.map(cell));
        rows.push(row);
        highest.push((name, rate.unwrap_or(f64::NAN)));
    }
    report.page.heading("The highest rate that keeps the bound");
    report.pictures(vec![Picture {
        name: "highest_rate".to_owned(),
        svg: bars("transfers/s", &highest)?,
    }]);
    report.page.table(
        &[
            "",
            "rate, transfers/s",
            "goodput",
            "latency p50, ms",
            "p99, ms",
            "block, ms",
            "memory, MiB",
        ],
        &rows,
    );
    Ok(())
}

/// Latencies by how many are below, of the heaviest load of each curve that was carried.
fn distribution(
    report: &mut Report,
    groups: &[Group<'_>],
    varying: &[Parameter],
) -> anyhow::Result<()> {
    let carried = |g: &&&Group<'_>| g.median("goodput") >= 0.97 * g.median("offered");
    let mut lines = Vec::new();
    for (name, groups) in curves(groups, varying).into_iter().take(MAX_LINES) {
        let heaviest = groups
            .iter()
            .filter(carried)
            .max_by(|a, b| a.point.rate.total_cmp(&b.point.rate));
        let Some(group) = heaviest.or(groups.first()) else {
            continue;
        };
        let latencies = group.latencies()?;
        let points = (0..=199).filter_map(|i| {
            let part = f64::from(i) / 200.0;
            Some((latencies.quantile_ms(part)?, part * 100.0))
        });
        lines.push(Line {
            name: format!("{name} {}/s", group.point.rate).trim().to_owned(),
            points: points.collect(),
        });
    }
    if lines.iter().all(|line| line.points.is_empty()) {
        return Ok(());
    }
    report.page.heading("Latencies");
    report.page.words(
        "From when a transfer was due to when it was learned that it is final: the part of all transfers, \
         in percent, that took at most so long. For each curve the highest rate that was carried.",
    );
    let chart = Chart {
        title: "percent of transfers",
        across: "ms",
        lines: &lines,
        marks: &[],
        logarithmic: false,
    };
    report.pictures(vec![Picture {
        name: "latencies".to_owned(),
        svg: chart.draw()?,
    }]);
    Ok(())
}

/// Second by second, of points with a fault, or else of the last few.
fn timelines(
    report: &mut Report,
    across: Parameter,
    groups: &[Group<'_>],
    varying: &[Parameter],
) -> anyhow::Result<()> {
    let faulty: Vec<&Group<'_>> = groups
        .iter()
        .filter(|g| g.point.fault != Fault::None)
        .collect();
    let shown: Vec<&Group<'_>> = match faulty.is_empty() {
        false => faulty,
        true => groups.iter().rev().collect(),
    };
    for (place, group) in shown.into_iter().take(MAX_TIMELINES).enumerate() {
        let trial = group.trials[0];
        let mut all = varying.to_vec();
        all.push(across);
        let page = &mut report.page;
        page.heading(&format!("Over time: {}", curve(group.point, &all)));
        let marks: Vec<f64> = trial.events.iter().map(|(at, _)| *at).collect();
        for (at, what) in &trial.events {
            page.words(&format!("At {at:.1} s: {what}."));
        }
        let named = |name: &str, svg: String| Picture {
            name: format!("time-{}-{name}", place + 1),
            svg,
        };
        let line = |name: &str, title: &str, value: &dyn Fn(&super::trial::Second) -> f64| {
            let points = trial.seconds.iter().map(|s| (s.until, value(s)));
            let svg = Chart {
                title,
                across: "seconds",
                lines: &[Line {
                    name: String::new(),
                    points: points.collect(),
                }],
                marks: &marks,
                logarithmic: false,
            }
            .draw()?;
            anyhow::Ok(named(name, svg))
        };
        let columns: Vec<Column> = trial
            .seconds
            .iter()
            .map(|second| Column {
                at: second.until,
                quantiles: QUANTILES
                    .into_iter()
                    .zip(second.latency_ms.iter().copied())
                    .collect(),
            })
            .collect();
        let mut pictures = vec![
            line("blocks", "blocks per second", &|s| s.blocks)?,
            line("goodput", "goodput, transfers/s", &|s| {
                s.goodput.unwrap_or(f64::NAN)
            })?,
            line("finality", "finality, median, ms", &|s| {
                s.finality_ms.unwrap_or(f64::NAN)
            })?,
            line("processor", "processor time of the validators, s/s", &|s| {
                s.cpu_seconds
            })?,
            line("memory", "memory of the largest validator, MiB", &|s| {
                s.rss_mib
            })?,
        ];
        if columns.iter().any(|column| !column.quantiles.is_empty()) {
            let svg = heatmap("latency, ms", "seconds", &columns, &marks)?;
            pictures.push(named("latency", svg));
        }
        report.pictures(pictures);
    }
    Ok(())
}

fn table(page: &mut Page, plan: &Plan, groups: &[Group<'_>], varying: &[Parameter]) {
    page.heading("Everything");
    page.words("Medians; in brackets the least and the greatest of the repetitions.");
    let mut names = varying.to_vec();
    names.push(plan.across);
    let known: Vec<&(&str, &str, bool)> = FIGURES
        .iter()
        .filter(|(name, ..)| groups.iter().any(|g| g.figure(name).is_some()))
        .collect();
    let mut head = vec!["".to_owned()];
    head.extend(known.iter().map(|(_, title, _)| (*title).to_owned()));
    head.extend(["refused", "lost", "not sent"].map(str::to_owned));
    let rows = groups.iter().map(|group| {
        let mut row = vec![curve(group.point, &names)];
        row.extend(known.iter().map(|(name, ..)| match group.figure(name) {
            None => "–".to_owned(),
            Some([median, least, most]) if group.trials.len() > 1 => {
                format!("{median:.1} ({least:.1}–{most:.1})")
            }
            Some([median, ..]) => format!("{median:.1}"),
        }));
        let sum = |of: &dyn Fn(&Trial) -> u64| {
            let all = group.trials.iter().map(|trial| of(trial));
            all.sum::<u64>().to_string()
        };
        row.push(sum(&|t| t.load.total.refused));
        row.push(sum(&|t| t.load.total.lost));
        row.push(sum(&|t| t.load.total.unsent));
        row
    });
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    page.table(&head, &rows.collect::<Vec<_>>());
}

fn exactness(page: &mut Page, trials: &[Trial]) {
    let lines: std::collections::BTreeSet<String> = trials
        .iter()
        .filter_map(|trial| trial.links.clone())
        .collect();
    if lines.is_empty() {
        return;
    }
    page.heading("How exact the links were");
    for line in lines {
        page.words(&line);
    }
}
