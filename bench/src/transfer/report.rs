//! The figures of all rounds, put together and printed.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The figures of one round, by name.
pub(super) type Figures = BTreeMap<String, f64>;

/// With fewer rounds there is no 95th percentile and no worst: the least and the most say it all.
const ENOUGH_ROUNDS: usize = 5;

/// How the names of figures begin of which more is better. Of all others less is better.
const MORE_IS_BETTER: [&str; 4] = ["B2: gap closed", "B11:", "served at", "states fetched"];

pub(super) fn figures<const N: usize>(figures: [(&str, f64); N]) -> Figures {
    figures
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Median, least and most of each figure; of enough rounds also the 95th percentile and the worst.
pub(super) fn summary(rounds: &[Figures]) -> Value {
    let mut all: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (name, value) in rounds.iter().flatten() {
        all.entry(name).or_default().push(*value);
    }
    all.into_iter()
        .map(|(name, values)| (name.to_owned(), figure(name, values)))
        .collect::<Map<_, _>>()
        .into()
}

fn figure(name: &str, mut values: Vec<f64>) -> Value {
    values.sort_by(f64::total_cmp);
    let (least, most) = (values[0], values[values.len() - 1]);
    let mut figure = json!({
        "median": values[values.len() / 2],
        "least": least,
        "most": most,
    });
    if values.len() >= ENOUGH_ROUNDS {
        if MORE_IS_BETTER.iter().any(|start| name.starts_with(start)) {
            values.reverse();
        }
        // The nearest rank: so many of the values are no worse than this one.
        let rank = (values.len() * 95).div_ceil(100);
        figure["p95"] = values[rank - 1].into();
        figure["worst"] = values[values.len() - 1].into();
    }
    figure
}

pub(super) fn print(report: &Value) {
    let rounds = report["rounds"].as_u64().unwrap_or_default();
    println!(
        "state {} MB, links of {} Mbit/s, {rounds} rounds: median (least to most)",
        report["state_mb"], report["link_mbit"]
    );
    if rounds >= ENOUGH_ROUNDS as u64 {
        println!("p95 by the nearest rank: of fewer than 20 rounds it is the worst one");
    } else {
        println!("no p95 and no worst: they take {ENOUGH_ROUNDS} rounds");
    }
    for (case, figures) in report["cases"].as_object().into_iter().flatten() {
        println!("{case}");
        for (name, figure) in figures.as_object().into_iter().flatten() {
            println!("  {name:<48} {}", row(figure));
        }
    }
}

fn row(figure: &Value) -> String {
    let number = |key: &str| figure[key].as_f64();
    let all = number("median").zip(number("least")).zip(number("most"));
    let Some(((median, least), most)) = all else {
        return "not measured".to_owned();
    };
    let mut row = format!("{median:>9.3} ({least:.3} to {most:.3})");
    if let Some((p95, worst)) = number("p95").zip(number("worst")) {
        row += &format!(", p95 {p95:.3}, worst {worst:.3}");
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(name: &str, values: impl IntoIterator<Item = u32>) -> Value {
        let rounds: Vec<Figures> = values
            .into_iter()
            .map(|value| figures([(name, f64::from(value))]))
            .collect();
        summary(&rounds)[name].clone()
    }

    #[test]
    fn few_rounds_have_no_percentile() {
        let figure = rounds("state sync, s", [3, 1, 2, 4]);
        assert_eq!(figure, json!({"median": 3.0, "least": 1.0, "most": 4.0}));
        assert_eq!(row(&figure), "    3.000 (1.000 to 4.000)");
    }

    #[test]
    fn the_worst_is_the_most_or_the_least() {
        let figure = rounds("state sync, s", 1..=5);
        assert_eq!(
            (&figure["p95"], &figure["worst"]),
            (&json!(5.0), &json!(5.0))
        );
        let figure = rounds("B11: MB per s", 1..=40);
        assert_eq!(
            (&figure["p95"], &figure["worst"]),
            (&json!(3.0), &json!(1.0))
        );
    }
}
