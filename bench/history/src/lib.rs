//! The continuous benchmark's memory and judgement: records over time, gates, comparisons, a page.
//!
//! A run of a scenario ends in a [`Record`], one line of JSON that [`file::append`] adds to a
//! history. What is said about its figures depends on how a figure came about ([`Kind`]), from
//! sharp to soft:
//!
//! - [`gates::deterministic`]: counts and virtual times, which the same source repeats to the last
//!   digit. Any change beyond a tight tolerance is a verdict.
//! - [`gates::wall`]: times, only as ratios against a baseline build that ran in turn with it
//!   (A-B-B-A) on the same machine in the same minutes. A verdict needs a confidence interval that
//!   lies beyond a practical floor as a whole.
//! - [`gates::fence`]: everything else that a machine measured, against earlier records of the same
//!   host. It raises an alert and never fails anything.
//!
//! Distributions are kept whole and are merged by adding ([`histograms`]); percentiles are read
//! from the sum, because an average of percentiles is a percentile of nothing.
//!
//! *Architecture invariant*: nothing here knows the node or the simulator, so that it builds in
//! seconds. Whoever runs scenarios calls this crate, never the other way round. Randomness is
//! seeded and time is an argument: the same history is always judged the same.

pub mod alloc;
pub mod callgrind;
pub mod compare;
pub mod dashboard;
pub mod file;
pub mod gates;
pub mod histograms;
pub mod host;
pub mod record;
#[cfg(test)]
mod samples;
pub mod series;
mod words;

pub use gates::{Judgement, Limits, Verdict};
pub use host::{Conditions, Host, Watch};
pub use record::{Better, Commit, Figure, Interval, Kind, Record, Validity};
