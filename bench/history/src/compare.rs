//! Compares two versions: each figure of each scenario, and its gate's verdict.

mod side;

pub use side::{LEAST_DIGITS, Side, SideError};

use crate::{
    gates::{self, Judgement, Limits, Verdict, wall},
    histograms::{HistogramError, Merged, Saved},
    record::{Commit, Figure, Kind, Record, Validity},
    series, words,
};
use side::groups;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// One figure of one scenario.
#[derive(Clone, Debug)]
pub struct Row {
    pub scenario: String,
    /// The host on which B was measured, or A where B was not.
    pub host: String,
    /// `None` where the scenario as a whole cannot be compared.
    pub figure: Option<String>,
    pub unit: String,
    /// How it was measured.
    pub kind: Option<Kind>,
    /// Its value in A.
    pub a: Option<f64>,
    /// Its value in B.
    pub b: Option<f64>,
    pub judgement: Judgement,
}

/// All figures of both versions.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The first version's name.
    pub a: String,
    /// The second version's name.
    pub b: String,
    /// By scenario, host and figure.
    pub rows: Vec<Row>,
}

/// Compares B with A. `history` defines what is usual on B's host.
///
/// # Errors
///
/// If a histogram cannot be read, or histograms of one name have different units.
pub fn compare(
    a: &Side<'_>,
    b: &Side<'_>,
    history: &[Record],
    limits: &Limits,
) -> Result<Comparison, HistogramError> {
    let (before, after) = (
        groups(a.records.iter().copied()),
        groups(b.records.iter().copied()),
    );
    let mut rows = Vec::new();
    for ((scenario, host), now) in &after {
        // Deterministic figures are comparable between machines, so another machine's record is
        // better than none.
        let same = before.get(&(*scenario, *host));
        let other = || before.iter().find(|((name, _), _)| name == scenario);
        let Some(then) = same.or_else(|| other().map(|(_, group)| group)) else {
            let judgement = Judgement::new(Verdict::Neutral, format!("new: {} has none", a.name));
            rows.push(Row::whole(scenario, host, judgement));
            continue;
        };
        let pair = Pair {
            then: Measured::of(then)?,
            now: Measured::of(now)?,
            same_host: same.is_some(),
            history,
            limits,
        };
        rows.extend(pair.rows(scenario, host)?);
    }
    for (scenario, host) in before.keys() {
        if !after.keys().any(|(name, _)| name == scenario) {
            let why = format!("gone: {} has none", b.name);
            rows.push(Row::whole(scenario, host, Judgement::cannot_tell(why)));
        }
    }
    rows.sort_by(|one, other| one.key().cmp(&other.key()));
    Ok(Comparison {
        a: a.name.clone(),
        b: b.name.clone(),
        rows,
    })
}

/// The combined records of one side, scenario and host.
struct Measured<'a> {
    /// The newest valid record, or why there is none.
    newest: Result<&'a Record, String>,
    /// Its figures, and percentiles of the merged histograms of all valid records.
    figures: BTreeMap<String, Figure>,
    /// Figures that should be deterministic but are not: the values of two records of the same
    /// source.
    unstable: BTreeMap<String, (f64, f64)>,
}

impl<'a> Measured<'a> {
    fn of(group: &[&'a Record]) -> Result<Self, HistogramError> {
        let valid: Vec<&'a Record> = group.iter().copied().filter(|r| r.is_valid()).collect();
        let Some(newest) = valid.last().copied() else {
            let reason = group.last().map(|record| &record.valid);
            return Ok(Self {
                newest: Err(match reason {
                    Some(Validity::Invalid(reason)) => reason.clone(),
                    _ => "there is no record".to_owned(),
                }),
                figures: BTreeMap::new(),
                unstable: BTreeMap::new(),
            });
        };
        let mut figures = newest.figures.clone();
        let mut parts: BTreeMap<&str, Vec<&Saved>> = BTreeMap::new();
        for (name, saved) in valid.iter().flat_map(|record| &record.histograms) {
            parts.entry(name).or_default().push(saved);
        }
        for (name, parts) in parts {
            // Merged, never averaged.
            let merged = Merged::of(parts)?;
            for (name, figure) in merged.iter().flat_map(|m| series::quantiles(name, m)) {
                figures.entry(name).or_insert(figure);
            }
        }
        let mut unstable = BTreeMap::new();
        for record in valid.iter().filter(|r| r.commit.is_same(&newest.commit)) {
            for (name, figure) in &record.figures {
                let Some(last) = newest.figures.get(name) else {
                    continue;
                };
                if figure.kind == Kind::Deterministic && figure.value != last.value {
                    unstable.insert(name.clone(), (figure.value, last.value));
                }
            }
        }
        Ok(Self {
            newest: Ok(newest),
            figures,
            unstable,
        })
    }
}

struct Pair<'a> {
    then: Measured<'a>,
    now: Measured<'a>,
    same_host: bool,
    history: &'a [Record],
    limits: &'a Limits,
}

impl Pair<'_> {
    fn rows(&self, scenario: &str, host: &str) -> Result<Vec<Row>, HistogramError> {
        let (then, now) = match (&self.then.newest, &self.now.newest) {
            (Ok(then), Ok(now)) => (then, now),
            (Err(reason), _) => {
                let judgement = Judgement::cannot_tell(format!("A is invalid: {reason}"));
                return Ok(vec![Row::whole(scenario, host, judgement)]);
            }
            (_, Err(reason)) => {
                let judgement = Judgement::cannot_tell(format!("B is invalid: {reason}"));
                return Ok(vec![Row::whole(scenario, host, judgement)]);
            }
        };
        let names: BTreeSet<&String> = self
            .then
            .figures
            .keys()
            .chain(self.now.figures.keys())
            .collect();
        let earlier = self.earlier(now)?;
        let mut rows = Vec::new();
        for name in names {
            let (a, b) = (self.then.figures.get(name), self.now.figures.get(name));
            let judgement = match (a, b) {
                (Some(a), Some(b)) => match self.unstable(name) {
                    Some(judgement) => judgement,
                    None if a.kind != b.kind => {
                        Judgement::cannot_tell("the figure is of another kind than before")
                    }
                    None => self.judge(scenario, name, (a, b), (&then.commit, now), &earlier),
                },
                (Some(_), None) => Judgement::cannot_tell("gone: B does not have it"),
                // A ratio needs nothing of A's record but its commit.
                (None, Some(b)) if b.kind == Kind::Wall => wall_judged(b, &then.commit, now, self),
                _ => Judgement::new(Verdict::Neutral, "new: A does not have it"),
            };
            let known = b.or(a);
            // A's own ratio is to another baseline, so B's cannot be divided by it.
            let is_wall = known.is_some_and(|figure| figure.kind == Kind::Wall);
            let value = |figure: Option<&Figure>| figure.map(|figure| figure.value);
            rows.push(Row {
                scenario: scenario.to_owned(),
                host: host.to_owned(),
                figure: Some(name.clone()),
                unit: known.map(|figure| figure.unit.clone()).unwrap_or_default(),
                kind: known.map(|figure| figure.kind),
                a: value(a).filter(|_| !is_wall),
                b: value(b),
                judgement,
            });
        }
        Ok(rows)
    }

    /// The figures of this host's and scenario's records from before B, in order.
    fn earlier(&self, now: &Record) -> Result<Vec<BTreeMap<String, Figure>>, HistogramError> {
        let mut earlier: Vec<&Record> = self
            .history
            .iter()
            .filter(|r| r.host.id == now.host.id && r.scenario == now.scenario)
            .filter(|r| series::counts(r) && r.commit.hash != now.commit.hash)
            .filter(|r| r.order() < now.order())
            .collect();
        earlier.sort_by_key(|record| record.order());
        earlier.into_iter().map(series::figures).collect()
    }

    fn unstable(&self, name: &str) -> Option<Judgement> {
        for (side, measured) in [("A", &self.then), ("B", &self.now)] {
            if let Some((one, other)) = measured.unstable.get(name) {
                return Some(Judgement::cannot_tell(format!(
                    "not deterministic: runs of {side} gave {} and {}",
                    words::number(*one),
                    words::number(*other)
                )));
            }
        }
        None
    }

    fn judge(
        &self,
        scenario: &str,
        name: &str,
        (a, b): (&Figure, &Figure),
        (then, now): (&Commit, &Record),
        earlier: &[BTreeMap<String, Figure>],
    ) -> Judgement {
        match b.kind {
            Kind::Deterministic => {
                let tolerance = self.limits.tolerances.get(scenario, name);
                let mut judgement = gates::deterministic::judge(a, b, tolerance);
                if !self.same_host {
                    judgement.why += " (of another host)";
                }
                judgement
            }
            Kind::Wall => wall_judged(b, then, now, self),
            Kind::History if !self.same_host => {
                Judgement::cannot_tell("A was measured on another host only")
            }
            Kind::History => {
                let earlier: Vec<&Figure> = earlier.iter().filter_map(|f| f.get(name)).collect();
                series::judge(scenario, name, b, &earlier, self.limits).judgement
            }
        }
    }
}

/// Times are compared only within a run; B's record names the baseline it alternated with.
fn wall_judged(figure: &Figure, then: &Commit, now: &Record, pair: &Pair<'_>) -> Judgement {
    match (&now.baseline, figure.interval) {
        (Some(baseline), Some(interval)) if baseline.is_same(then) => {
            wall::judge_interval(interval, figure.better, &pair.limits.wall)
        }
        (Some(baseline), Some(_)) => Judgement::cannot_tell(format!(
            "B ran in turn with {baseline}, not with A: run it against A"
        )),
        _ => Judgement::cannot_tell("B did not run in turn with a baseline"),
    }
}

impl Row {
    fn whole(scenario: &str, host: &str, judgement: Judgement) -> Self {
        Self {
            scenario: scenario.to_owned(),
            host: host.to_owned(),
            figure: None,
            unit: String::new(),
            kind: None,
            a: None,
            b: None,
            judgement,
        }
    }

    fn key(&self) -> (&str, &str, Option<&str>) {
        (&self.scenario, &self.host, self.figure.as_deref())
    }
}

impl Comparison {
    /// The number of figures with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        let verdicts = self.rows.iter().map(|row| row.judgement.verdict);
        verdicts.filter(|found| *found == verdict).count()
    }

    /// The number of figures with a verdict other than neutral.
    pub fn remarkable(&self) -> usize {
        self.rows.len() - self.count(Verdict::Neutral)
    }

    /// Whether B must not pass: something is worse, or a deterministic figure or a whole scenario
    /// that A has cannot be compared. Alerts don't fail the comparison.
    pub fn failed(&self) -> bool {
        self.rows.iter().any(|row| match row.judgement.verdict {
            Verdict::Regression => true,
            Verdict::CannotTell => matches!(row.kind, None | Some(Kind::Deterministic)),
            Verdict::Neutral | Verdict::Improvement | Verdict::Alert => false,
        })
    }
}

impl fmt::Display for Comparison {
    /// A table in aligned columns, and a line with the totals.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: BTreeSet<&str> = self.rows.iter().map(|row| row.host.as_str()).collect();
        let head = [
            "scenario", "figure", &self.a, &self.b, "ratio", "verdict", "why",
        ];
        let mut table = vec![head.map(str::to_owned)];
        for row in &self.rows {
            let scenario = match hosts.len() > 1 {
                true => format!("{} @{}", row.scenario, row.host),
                false => row.scenario.clone(),
            };
            let figure = match &row.figure {
                Some(figure) => format!("{figure}, {}", row.unit),
                None => "–".to_owned(),
            };
            let number = |value: Option<f64>| value.map_or("–".to_owned(), words::number);
            let ratio = match (row.kind, row.a, row.b) {
                (Some(Kind::Wall), _, Some(b)) => words::ratio(b, 1.0),
                (_, Some(a), Some(b)) => words::ratio(b, a),
                _ => "–".to_owned(),
            };
            let Judgement { verdict, why } = &row.judgement;
            let (a, b) = (number(row.a), number(row.b));
            table.push([
                scenario,
                figure,
                a,
                b,
                ratio,
                verdict.to_string(),
                why.clone(),
            ]);
        }
        let width = |column: usize| table.iter().map(|row| row[column].chars().count()).max();
        let widths: Vec<usize> = (0..head.len()).map(|c| width(c).unwrap_or(0)).collect();
        for row in &table {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                line += &match column {
                    2..=4 => format!("{cell:>width$}  "),
                    _ => format!("{cell:<width$}  "),
                };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        writeln!(
            f,
            "\n{} figures: {} neutral, {} better, {} worse, {} alerts, {} that nobody can tell",
            self.rows.len(),
            self.count(Verdict::Neutral),
            self.count(Verdict::Improvement),
            self.count(Verdict::Regression),
            self.count(Verdict::Alert),
            self.count(Verdict::CannotTell)
        )
    }
}

#[cfg(test)]
#[path = "compare_tests.rs"]
mod tests;
