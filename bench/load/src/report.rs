//! Results of a load.
//!
//! Every offered transfer ends in exactly one of: finalized, failed, refused, lost, repeated,
//! unsent, unfinished.

use crate::latencies::{Latencies, LatencySummary};
use quorate_types::Digest;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};

/// The most transfers that a report names.
pub const MAX_NAMED: usize = 32;

/// Counts for a step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) offered: u64,
    pub(crate) sent: u64,
    pub(crate) late: u64,
    pub(crate) behind: u64,
    pub(crate) latest: Duration,
    pub(crate) submitted: u64,
    pub(crate) finalized: u64,
    pub(crate) failed: BTreeMap<String, u64>,
    pub(crate) refused: BTreeMap<String, u64>,
    pub(crate) resent: u64,
    pub(crate) repeated: u64,
    pub(crate) lost: u64,
    pub(crate) unsent: u64,
    /// Transfers that became final and were applied during the step, whenever they were offered.
    pub(crate) applied_meanwhile: u64,
    pub(crate) from_due: Latencies,
    pub(crate) from_send: Latencies,
    pub(crate) answers: Latencies,
}

/// The most codes of rejections, and outcomes, that are counted separately; further ones are
/// counted as `other`.
const MAX_CODES: usize = 32;

/// Counts a code returned by a validator.
fn count(codes: &mut BTreeMap<String, u64>, code: &str) {
    let known = codes.contains_key(code) || codes.len() < MAX_CODES;
    let code = if known { code } else { "other" };
    *codes.entry(code.to_owned()).or_default() += 1;
}

impl Tally {
    pub(crate) fn refuse(&mut self, code: &str) {
        count(&mut self.refused, code);
    }

    pub(crate) fn fail(&mut self, outcome: &str) {
        count(&mut self.failed, outcome);
    }

    pub(crate) fn failures(&self) -> u64 {
        self.failed.values().sum()
    }

    pub(crate) fn refusals(&self) -> u64 {
        self.refused.values().sum()
    }

    pub(crate) fn unfinished(&self) -> u64 {
        let ended = self.finalized + self.failures() + self.refusals();
        let ended = ended + self.repeated + self.lost + self.unsent;
        self.offered.saturating_sub(ended)
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.offered += other.offered;
        self.sent += other.sent;
        self.late += other.late;
        self.behind += other.behind;
        self.latest = self.latest.max(other.latest);
        self.submitted += other.submitted;
        self.finalized += other.finalized;
        for (mine, theirs) in [
            (&mut self.failed, &other.failed),
            (&mut self.refused, &other.refused),
        ] {
            for (code, count) in theirs {
                *mine.entry(code.clone()).or_default() += count;
            }
        }
        self.resent += other.resent;
        self.repeated += other.repeated;
        self.lost += other.lost;
        self.unsent += other.unsent;
        self.applied_meanwhile += other.applied_meanwhile;
        self.from_due.merge(&other.from_due);
        self.from_send.merge(&other.from_send);
        self.answers.merge(&other.answers);
    }

    pub(crate) fn report(&self, rate: Option<f64>, lasted: Duration, warm_up: bool) -> StepReport {
        let seconds = lasted.as_secs_f64();
        let per_second = |count: u64| count as f64 / seconds.max(0.001);
        StepReport {
            rate,
            warm_up,
            seconds,
            offered: self.offered,
            offered_per_s: per_second(self.offered),
            sent: self.sent,
            submitted: self.submitted,
            finalized: self.finalized,
            goodput_per_s: per_second(self.applied_meanwhile),
            failed: self.failures(),
            failed_by_outcome: self.failed.clone(),
            refused: self.refusals(),
            refused_by_code: self.refused.clone(),
            lost: self.lost,
            repeated: self.repeated,
            unsent: self.unsent,
            unfinished: self.unfinished(),
            resent: self.resent,
            late: self.late,
            behind: self.behind,
            latest_ms: self.latest.as_secs_f64() * 1_000.0,
            latency: self.from_due.summary(),
            latency_from_send: self.from_send.summary(),
            answer: self.answers.summary(),
        }
    }
}

/// Results of a step, or of all steps that count.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StepReport {
    /// Transfers per second to be offered; `None` for a closed loop or a sum of steps.
    pub rate: Option<f64>,
    /// Whether the total excludes it.
    pub warm_up: bool,
    /// The duration.
    pub seconds: f64,
    /// Transfers that were due.
    pub offered: u64,
    /// The same, per second.
    pub offered_per_s: f64,
    /// Transfers that were sent.
    pub sent: u64,
    /// Transfers that a validator accepted.
    pub submitted: u64,
    /// Transfers that became final and were applied, at any time.
    pub finalized: u64,
    /// Transfers that became final and were applied during the step, per second.
    pub goodput_per_s: f64,
    /// Transfers that became final and failed.
    pub failed: u64,
    /// The same, by outcome.
    #[serde(default)]
    pub failed_by_outcome: BTreeMap<String, u64>,
    /// Transfers that were rejected.
    pub refused: u64,
    /// The same, by the validators' code.
    pub refused_by_code: BTreeMap<String, u64>,
    /// Transfers that were sent and got no result in time.
    pub lost: u64,
    /// Transfers that were final before they were sent: they had been counted as lost.
    pub repeated: u64,
    /// Transfers that were due and not sent, because the generator's limit of queued or in-flight
    /// transfers was reached.
    pub unsent: u64,
    /// Transfers that were in flight at the end.
    pub unfinished: u64,
    /// Transfers that were resent because no validator answered. They count once.
    pub resent: u64,
    /// Transfers that were sent too late, for whatever reason.
    pub late: u64,
    /// Late transfers that the generator itself picked up too late.
    pub behind: u64,
    /// The longest time from when a transfer was due to when it was sent, in milliseconds.
    pub latest_ms: f64,
    /// From when a transfer was due until the generator learned that it is final and applied.
    pub latency: LatencySummary,
    /// The same from when it was sent, for contrast: it excludes the wait before sending.
    pub latency_from_send: LatencySummary,
    /// From when a transfer was sent to the validator's answer.
    pub answer: LatencySummary,
}

/// Results of a load.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LoadReport {
    /// `open` or `closed`.
    pub mode: String,
    /// The number of clients of a closed loop.
    pub clients: Option<usize>,
    /// Everything but warm-up steps.
    #[serde(flatten)]
    pub total: StepReport,
    /// The steps, if there are several.
    pub steps: Vec<StepReport>,
    /// Accepted transfers that are lost, and accepted ones that were on their way at the end: at most
    /// [`MAX_NAMED`].
    #[serde(skip)]
    pub unsettled: Vec<Digest>,
}

/// One second of a load.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// Counts from 1.
    pub second: u64,
    /// Transfers that were due.
    pub offered: u64,
    /// Transfers that a validator accepted.
    pub taken: u64,
    /// Transfers that became final and were applied.
    pub finalized: u64,
    /// Transfers that became final and failed.
    pub failed: u64,
    /// Transfers that were rejected.
    pub refused: u64,
    /// Transfers that were given up.
    pub lost: u64,
    /// Transfers that were sent late.
    pub late: u64,
    /// Transfers that were due and not sent.
    pub unsent: u64,
    /// Transfers that are queued or in flight at the end of the second.
    pub on_the_way: usize,
    /// The median latency of those that became final, from when they were due.
    pub p50_ms: Option<f64>,
    /// The 99th percentile of the same.
    pub p99_ms: Option<f64>,
    /// All these latencies.
    #[serde(skip)]
    pub latencies: Latencies,
}

impl Row {
    /// The names of the columns.
    pub const CSV_HEAD: &str =
        "second,offered,taken,final,failed,refused,lost,late,unsent,on_the_way,p50_ms,p99_ms";

    /// The row as a line of CSV.
    pub fn to_csv(&self) -> String {
        let ms = |value: Option<f64>| value.map_or(String::new(), |ms| format!("{ms:.3}"));
        format!(
            "{},{},{},{},{},{},{},{},{},{},{},{}",
            self.second,
            self.offered,
            self.taken,
            self.finalized,
            self.failed,
            self.refused,
            self.lost,
            self.late,
            self.unsent,
            self.on_the_way,
            ms(self.p50_ms),
            ms(self.p99_ms)
        )
    }
}
