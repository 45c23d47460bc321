//! The sharp gate: figures that the same source repeats exactly.

use super::{Judgement, Verdict};
use crate::{
    record::{Better, Figure},
    words,
};
use serde::Deserialize;
use std::collections::BTreeMap;

/// How much deterministic figures may change before it is a verdict, relative to what they were.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tolerances {
    /// For figures that are not named below.
    pub default: f64,
    /// By `scenario/figure`, or by `figure` for all scenarios; the former goes first.
    pub figures: BTreeMap<String, f64>,
}

impl Default for Tolerances {
    /// Half a percent. Zero would turn every intended change of a message's size into a verdict,
    /// and what is accepted without a look is not looked at.
    fn default() -> Self {
        Self {
            default: 0.005,
            figures: BTreeMap::new(),
        }
    }
}

impl Tolerances {
    /// From a table in the source.
    pub fn of(default: f64, figures: &[(&str, f64)]) -> Self {
        let figures = figures.iter();
        Self {
            default,
            figures: figures.map(|(name, t)| ((*name).to_owned(), *t)).collect(),
        }
    }

    /// What this figure may change.
    pub fn get(&self, scenario: &str, figure: &str) -> f64 {
        let named = self.figures.get(&format!("{scenario}/{figure}"));
        *named
            .or_else(|| self.figures.get(figure))
            .unwrap_or(&self.default)
    }
}

/// Judges a figure by what it was. The same is neutral; beyond the tolerance it is worse or better.
pub fn judge(before: &Figure, now: &Figure, tolerance: f64) -> Judgement {
    if (&before.unit, before.better) != (&now.unit, now.better) {
        return Judgement::cannot_tell("the figure has another unit or direction than before");
    }
    if before.value == now.value {
        return Judgement::new(Verdict::Neutral, "the same");
    }
    let change = now.value - before.value;
    let allowed = tolerance * before.value.abs();
    let words = format!(
        "{}, {} is allowed",
        words::change(before.value, now.value),
        words::percent(tolerance)
    );
    // Asked this way round, a number that is none is never within.
    if change.abs() <= allowed {
        return Judgement::new(Verdict::Neutral, words);
    }
    match (change > 0.0) == (now.better == Better::Higher) {
        true => Judgement::new(
            Verdict::Improvement,
            format!("{words}: bless the new baseline, or the gain can be lost unseen"),
        ),
        false => Judgement::new(Verdict::Regression, words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Kind;

    fn figure(value: f64, better: Better) -> Figure {
        Figure::new(value, "messages", better, Kind::Deterministic)
    }

    fn verdict(before: f64, now: f64, tolerance: f64, better: Better) -> Verdict {
        judge(&figure(before, better), &figure(now, better), tolerance).verdict
    }

    #[test]
    fn the_same_is_neutral_without_any_tolerance() {
        assert_eq!(verdict(3.7, 3.7, 0.0, Better::Lower), Verdict::Neutral);
        assert_eq!(verdict(0.0, 0.0, 0.0, Better::Higher), Verdict::Neutral);
    }

    #[test]
    fn beyond_the_tolerance_it_is_worse_or_better_by_its_direction() {
        use Verdict::{Improvement, Neutral, Regression};
        assert_eq!(verdict(200.0, 202.0, 0.01, Better::Lower), Neutral);
        assert_eq!(verdict(200.0, 202.1, 0.01, Better::Lower), Regression);
        assert_eq!(verdict(200.0, 197.9, 0.01, Better::Lower), Improvement);
        assert_eq!(verdict(200.0, 202.1, 0.01, Better::Higher), Improvement);
        assert_eq!(verdict(200.0, 197.9, 0.01, Better::Higher), Regression);
        // Of nothing, every part is nothing; negative figures are as large as positive ones.
        assert_eq!(verdict(0.0, 0.001, 0.5, Better::Lower), Regression);
        assert_eq!(verdict(-100.0, -101.0, 0.02, Better::Lower), Neutral);
        assert_eq!(verdict(-100.0, -103.0, 0.02, Better::Lower), Improvement);
    }

    #[test]
    fn an_improvement_asks_for_a_new_baseline() {
        let (before, now) = (figure(9.0, Better::Lower), figure(6.0, Better::Lower));
        let why = judge(&before, &now, 0.01).why;
        assert!(why.contains("bless") && why.contains("-33.3%"), "{why}");
    }

    #[test]
    fn other_units_and_numbers_that_are_none_are_never_fine() {
        let mut other = figure(1.0, Better::Lower);
        other.unit = "bytes".to_owned();
        let judged = judge(&figure(1.0, Better::Lower), &other, 1.0);
        assert_eq!(judged.verdict, Verdict::CannotTell);
        assert_ne!(verdict(1.0, f64::NAN, 1.0, Better::Lower), Verdict::Neutral);
    }

    #[test]
    fn the_nearest_name_gives_the_tolerance() {
        let table = [("bytes", 0.02), ("epochs/bytes", 0.05)];
        let tolerances = Tolerances::of(0.001, &table);
        assert_eq!(tolerances.get("epochs", "bytes"), 0.05);
        assert_eq!(tolerances.get("wan", "bytes"), 0.02);
        assert_eq!(tolerances.get("wan", "syncs"), 0.001);
    }
}
