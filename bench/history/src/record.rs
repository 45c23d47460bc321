//! One run of one scenario: a line of JSON with what was measured, on which commit and host, and
//! how reliably.

use crate::{
    histograms::{HistogramError, Saved},
    host::{Conditions, Host},
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, path::Path, process::Command};

/// The schema version of the lines. A change that breaks readers increments it.
pub const SCHEMA: u32 = 1;

/// The longest name, unit or other short text, in bytes.
pub const MAX_NAME_BYTES: usize = 200;

/// The longest reason or fault, in bytes.
pub const MAX_WORDS_BYTES: usize = 4_000;

/// The most figures, and the most faults, in a record.
pub const MAX_FIGURES: usize = 1_000;

/// The most histograms in a record.
pub const MAX_HISTOGRAMS: usize = 64;

/// How many digits of a hash are displayed.
const SHORT_HASH: usize = 9;

/// One run of one scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// [`SCHEMA`]. It comes first, so that a reader sees it before anything else.
    schema: u32,
    /// The measured commit.
    pub commit: Commit,
    /// The baseline that ran alternately with it, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Commit>,
    /// When the run ended, in seconds since 1970.
    pub unix_seconds: u64,
    pub host: Host,
    /// How much the machine was disturbed during the run.
    pub conditions: Conditions,
    pub scenario: String,
    /// The results, by name.
    pub figures: BTreeMap<String, Figure>,
    /// Full distributions, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub histograms: BTreeMap<String, Saved>,
    /// What went wrong, or was injected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
    /// Whether the figures are reliable.
    pub valid: Validity,
}

/// A version of the source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Commit {
    /// 7 to 64 lower-case hexadecimal digits.
    pub hash: String,
    /// There were uncommitted changes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dirty: bool,
    /// When it was committed, in seconds since 1970. With it, measuring an old commit later puts
    /// the record where the commit belongs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committed: Option<u64>,
}

/// A number with what is needed to judge it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    pub value: f64,
    pub unit: String,
    pub better: Better,
    /// How it was measured.
    pub kind: Kind,
    /// The 95% confidence interval, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
}

/// A confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interval {
    pub lower: f64,
    /// Not below `lower`.
    pub upper: f64,
}

/// Which direction is an improvement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Times, sizes, counts of work.
    Lower,
    /// Throughput.
    Higher,
}

/// How a figure was measured, and so which gate judges it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The same source gives the same number on every machine: [`crate::gates::deterministic`].
    Deterministic,
    /// A ratio to the baseline of the same run: [`crate::gates::wall`].
    Wall,
    /// Measured on one machine, comparable only with that machine's own past:
    /// [`crate::gates::fence`].
    History,
}

/// Whether figures are reliable. In JSON `true` or `{"invalid": "reason"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "ValidityText", into = "ValidityText")]
pub enum Validity {
    Valid,
    /// The figures are unreliable, for this reason.
    Invalid(String),
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum ValidityText {
    Valid(bool),
    Invalid { invalid: String },
}

impl From<Validity> for ValidityText {
    fn from(validity: Validity) -> Self {
        match validity {
            Validity::Valid => Self::Valid(true),
            Validity::Invalid(invalid) => Self::Invalid { invalid },
        }
    }
}

impl TryFrom<ValidityText> for Validity {
    type Error = &'static str;

    fn try_from(text: ValidityText) -> Result<Self, Self::Error> {
        match text {
            ValidityText::Valid(true) => Ok(Self::Valid),
            ValidityText::Valid(false) => Err("what is not valid is written {\"invalid\": reason}"),
            ValidityText::Invalid { invalid } => Ok(Self::Invalid(invalid)),
        }
    }
}

/// Why something is not a valid record.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The schema is unknown to this program.
    #[error("its schema is {found}, this program reads {SCHEMA}: use the version that wrote it")]
    Schema {
        /// The schema that the record declares.
        found: u64,
    },
    /// It is not JSON, or not a record.
    #[error("it is not a record: {0}")]
    Json(#[from] serde_json::Error),
    /// A number, a text or a list exceeds its limits.
    #[error("{what} {problem}")]
    Limit {
        /// The name of the field or entry.
        what: String,
        problem: String,
    },
    /// A histogram cannot be read.
    #[error("the histogram {name:?}: {source}")]
    Histogram {
        name: String,
        source: HistogramError,
    },
}

impl Record {
    /// Creates a valid record without figures.
    pub fn new(
        scenario: &str,
        commit: Commit,
        host: Host,
        conditions: Conditions,
        unix_seconds: u64,
    ) -> Self {
        Self {
            schema: SCHEMA,
            commit,
            baseline: None,
            unix_seconds,
            host,
            conditions,
            scenario: scenario.to_owned(),
            figures: BTreeMap::new(),
            histograms: BTreeMap::new(),
            faults: Vec::new(),
            valid: Validity::Valid,
        }
    }

    /// Marks the record invalid if the machine was disturbed too much and some figure depends on
    /// the machine. A record with only deterministic figures stays valid: steal cannot change them.
    /// A record that is already invalid keeps its reason.
    pub fn settle(&mut self, most_steal: f64) {
        let mut kinds = self.figures.values().map(|figure| figure.kind);
        let depends = !self.histograms.is_empty() || kinds.any(|kind| kind != Kind::Deterministic);
        if depends && self.is_valid() {
            self.valid = self.conditions.validity(most_steal);
        }
    }

    pub fn is_valid(&self) -> bool {
        self.valid == Validity::Valid
    }

    /// Its place in a history: the commit's time if known, then the run's time.
    pub fn order(&self) -> (u64, u64) {
        let committed = self.commit.committed.unwrap_or(self.unix_seconds);
        (committed, self.unix_seconds)
    }

    /// Parses a line.
    ///
    /// # Errors
    ///
    /// If the line has another schema, is not a record, or exceeds a limit.
    pub fn from_line(line: &str) -> Result<Self, RecordError> {
        #[derive(Deserialize)]
        struct Version {
            schema: u64,
        }
        // The schema is read separately and first: later schemas may differ in everything else.
        let version: Version = serde_json::from_str(line)?;
        if version.schema != u64::from(SCHEMA) {
            return Err(RecordError::Schema {
                found: version.schema,
            });
        }
        let record: Self = serde_json::from_str(line)?;
        record.check()?;
        Ok(record)
    }

    /// Serializes it as a line, without the newline.
    ///
    /// # Errors
    ///
    /// If it exceeds a limit.
    pub fn to_line(&self) -> Result<String, RecordError> {
        self.check()?;
        Ok(serde_json::to_string(self)?)
    }

    fn check(&self) -> Result<(), RecordError> {
        self.commit.check()?;
        self.baseline.iter().try_for_each(Commit::check)?;
        name("the scenario", &self.scenario)?;
        let host = &self.host;
        for text in [&host.processor, &host.kernel, &host.id] {
            name("the host", text)?;
        }
        let seen = &self.conditions;
        let shares = [seen.steal, seen.idle, seen.load_before, seen.load_after];
        for number in shares.into_iter().flatten().chain([seen.seconds]) {
            finite("a condition", number)?;
        }
        at_most("figures", self.figures.len(), MAX_FIGURES)?;
        for (key, figure) in &self.figures {
            name("a figure's name", key)?;
            figure.check(key)?;
        }
        at_most("histograms", self.histograms.len(), MAX_HISTOGRAMS)?;
        for (key, saved) in &self.histograms {
            name("a histogram's name", key)?;
            name("a histogram's unit", &saved.unit)?;
            let wrong = |source| RecordError::Histogram {
                name: key.clone(),
                source,
            };
            saved.read().map_err(wrong)?;
        }
        at_most("faults", self.faults.len(), MAX_FIGURES)?;
        let reason = match &self.valid {
            Validity::Valid => None,
            Validity::Invalid(reason) => Some(reason),
        };
        for words in self.faults.iter().chain(reason) {
            at_most("bytes of a reason", words.len(), MAX_WORDS_BYTES)?;
        }
        Ok(())
    }
}

impl Figure {
    /// Creates a figure without an interval.
    pub fn new(value: f64, unit: &str, better: Better, kind: Kind) -> Self {
        Self {
            value,
            unit: unit.to_owned(),
            better,
            kind,
            interval: None,
        }
    }

    fn check(&self, key: &str) -> Result<(), RecordError> {
        name("a figure's unit", &self.unit)?;
        finite(key, self.value)?;
        if let Some(Interval { lower, upper }) = self.interval {
            finite(key, lower)?;
            finite(key, upper)?;
            if lower > upper {
                return Err(limit(
                    key,
                    format!("has an interval from {lower} to {upper}"),
                ));
            }
        }
        Ok(())
    }
}

impl Commit {
    /// The commit checked out at this path.
    ///
    /// # Errors
    ///
    /// If git is missing or the path is in no repository.
    pub fn checked_out(path: &Path) -> anyhow::Result<Self> {
        let git = |arguments: &[&str]| -> anyhow::Result<String> {
            let output = Command::new("git")
                .arg("-C")
                .arg(path)
                .args(arguments)
                .output()
                .map_err(|error| anyhow::anyhow!("running git: {error}; is it installed?"))?;
            if !output.status.success() {
                let words = String::from_utf8_lossy(&output.stderr);
                anyhow::bail!("git {arguments:?} in {}: {}", path.display(), words.trim());
            }
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        Ok(Self {
            hash: git(&["rev-parse", "HEAD"])?,
            dirty: !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty(),
            committed: git(&["show", "-s", "--format=%ct", "HEAD"])?.parse().ok(),
        })
    }

    /// Whether both are the same source. A dirty commit equals nothing, not even itself.
    pub fn is_same(&self, other: &Self) -> bool {
        self.hash == other.hash && !self.dirty && !other.dirty
    }

    fn check(&self) -> Result<(), RecordError> {
        let digits = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        match (7..=64).contains(&self.hash.len()) && self.hash.chars().all(digits) {
            true => Ok(()),
            false => Err(limit(
                "the commit",
                "is not of 7 to 64 hexadecimal digits in lower case".to_owned(),
            )),
        }
    }
}

impl fmt::Display for Commit {
    /// The abbreviated hash, with `-dirty` appended if there were uncommitted changes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = self.hash.get(..SHORT_HASH).unwrap_or(&self.hash);
        write!(f, "{short}{}", if self.dirty { "-dirty" } else { "" })
    }
}

fn limit(what: &str, problem: String) -> RecordError {
    RecordError::Limit {
        what: what.to_owned(),
        problem,
    }
}

fn name(what: &str, text: &str) -> Result<(), RecordError> {
    if text.is_empty() || text.len() > MAX_NAME_BYTES || text.chars().any(char::is_control) {
        let problem = format!("is not of 1 to {MAX_NAME_BYTES} bytes without control characters");
        return Err(limit(what, problem));
    }
    Ok(())
}

fn finite(what: &str, number: f64) -> Result<(), RecordError> {
    // JSON cannot represent other numbers; they would be read back as null.
    match number.is_finite() {
        true => Ok(()),
        false => Err(limit(what, format!("is {number}"))),
    }
}

fn at_most(what: &str, count: usize, most: usize) -> Result<(), RecordError> {
    match count <= most {
        true => Ok(()),
        false => Err(limit(what, format!("are {count}, and {most} may be"))),
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
