//! Reports as a page: what `verify`, `engines` and `wan` wrote as JSON, as pictures and tables.

use anyhow::{Context, bail};
use clap::Args;
use quorate_files::read_text;
use quorate_picture::{Chart, Line, Page, bars};
use serde_json::Value;
use std::{collections::BTreeMap, fs, path::PathBuf};

/// Reports are small; a larger file is something else.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// What to draw.
#[derive(Args, Clone)]
pub struct PageArgs {
    /// Reports that verify, engines or wan have written with --json
    #[arg(required = true, value_name = "REPORT")]
    reports: Vec<PathBuf>,
    /// Where the page goes
    #[arg(long, value_name = "FILE", default_value = "bench.html")]
    out: PathBuf,
}

/// Writes the page.
///
/// # Errors
///
/// When a report cannot be read or is none of these, or the page cannot be written.
pub fn run(args: &PageArgs) -> anyhow::Result<()> {
    let mut page = Page::new(
        "Side by side",
        "Quorate beside commonware's simplex and beside the network's limit. Each part was measured in \
         one run on one machine; ratios carry over to other machines, times do not.",
    );
    for path in &args.reports {
        let name = path.display();
        let text = read_text(path, MAX_BYTES)?;
        let report: Value =
            serde_json::from_str(&text).with_context(|| format!("{name} is not JSON"))?;
        let results = &report["results"];
        let drawn = match report["kind"].as_str() {
            Some("verify") => verify(&mut page, results),
            Some("engines") => engines(&mut page, results),
            Some("wan") => wan(&mut page, results),
            other => bail!(
                "{name} is a report of kind {}; verify, engines and wan can be drawn",
                other.unwrap_or("unknown")
            ),
        };
        drawn.with_context(|| format!("drawing {name}"))?;
        page.words(&format!(
            "Measured on {}.",
            crate::report::words(&report["machine"])
        ));
    }
    fs::write(&args.out, page.finish())
        .with_context(|| format!("writing {}", args.out.display()))?;
    println!("{}", args.out.display());
    Ok(())
}

fn rows<'a>(value: &'a Value, name: &str) -> anyhow::Result<&'a Vec<Value>> {
    value[name]
        .as_array()
        .with_context(|| format!("the report has no {name}"))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

fn shown(value: f64) -> String {
    match value.is_finite() {
        true => format!("{value:.2}"),
        false => "–".to_owned(),
    }
}

fn verify(page: &mut Page, results: &Value) -> anyhow::Result<()> {
    page.heading("From votes to a certificate");
    let all = rows(results, "rows")?;
    let mut lines: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for row in all.iter().filter(|row| number(&row["bad"]) == 0.0) {
        let Some(subjects) = row["micros"].as_object() else {
            continue;
        };
        // Verifying each vote grows so much faster that nothing else could be seen beside it.
        for (name, spread) in subjects.iter().filter(|(name, _)| *name != "eager") {
            let point = (number(&row["validators"]), number(&spread["median"]));
            lines.entry(name).or_default().push(point);
        }
    }
    let lines: Vec<Line> = lines
        .into_iter()
        .map(|(name, points)| Line {
            name: name.replace('_', " "),
            points,
        })
        .collect();
    let chart = Chart {
        title: "no invalid signature, µs",
        across: "validators",
        lines: &lines,
        marks: &[],
        logarithmic: false,
    };
    page.pictures(&[chart.draw()?]);
    let rows = all.iter().map(|row| {
        let ratios = row["ratios"].as_object().into_iter().flatten();
        let ratios = ratios.map(|(name, spread)| {
            format!(
                "{} {}",
                name.replace('_', " "),
                shown(number(&spread["median"]))
            )
        });
        vec![
            row["validators"].to_string(),
            row["bad"].to_string(),
            row["pairing_checks"].to_string(),
            ratios.collect::<Vec<_>>().join(", "),
        ]
    });
    page.table(
        &["validators", "invalid", "pairing checks", "ratios"],
        &rows.collect::<Vec<_>>(),
    );
    Ok(())
}

fn engines(page: &mut Page, results: &Value) -> anyhow::Result<()> {
    for comparison in rows(results, "comparisons")? {
        page.heading(&format!(
            "{} validators over loopback, real processes, {} transfers per second",
            comparison["validators"], comparison["transfers_per_second"]
        ));
        let engines = comparison["engines"]
            .as_object()
            .context("the report has no engines")?;
        let fields = engines.values().next().and_then(Value::as_object);
        let fields = fields.context("an engine without figures")?;
        let pictures = fields.keys().map(|field| {
            let items = engines
                .iter()
                .map(|(name, figures)| (name.clone(), number(&figures[field.as_str()])));
            bars(&field.replace('_', " "), &items.collect::<Vec<_>>())
        });
        page.pictures(&pictures.collect::<anyhow::Result<Vec<_>>>()?);
    }
    Ok(())
}

fn wan(page: &mut Page, results: &Value) -> anyhow::Result<()> {
    for row in rows(results, "rows")? {
        let map = row["map"].as_str().unwrap_or("a map");
        page.heading(&format!("Virtual time over {map}"));
        let engines = row.as_object().into_iter().flatten();
        let engines: Vec<_> = engines
            .filter(|(_, figures)| figures["block_ms"].is_object())
            .collect();
        let pictures = [
            ("block time, ms", "block_ms"),
            ("finality, ms", "finality_ms"),
        ];
        let pictures = pictures.map(|(title, field)| {
            let items = engines
                .iter()
                .map(|(name, figures)| ((*name).clone(), number(&figures[field]["mean"])));
            bars(title, &items.collect::<Vec<_>>())
        });
        page.pictures(&pictures.into_iter().collect::<anyhow::Result<Vec<_>>>()?);
    }
    Ok(())
}
