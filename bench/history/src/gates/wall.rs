//! The gate for times: ratios of builds that ran alternately, with a confidence interval.
//!
//! # Why A-B-B-A
//!
//! A machine gets slower and faster over minutes: heat, neighbours, the disk. Four short runs in
//! this order give one ratio √(B₁·B₂) / √(A₁·A₂), in which linear drift cancels, since the times of
//! A and of B have the same mean. Nonlinear drift within the four does not cancel, which is one
//! reason for short runs.
//!
//! # Why this interval
//!
//! The estimate is the median of the ratios' logarithms. Disturbances of the machine spoil whole
//! runs, by any factor. A mean would follow a single outlier. So does a bootstrapped trimmed mean:
//! of twelve quadruples, a given one is drawn three times or more in one of twelve resamples, which
//! is more than is trimmed at either end. It is never half of all draws. What the median loses in
//! precision, a few more quadruples make up for.
//!
//! The interval is the percentile bootstrap over quadruples. For a median it comes close to the
//! interval between two order statistics, which holds for every distribution (Efron and Tibshirani,
//! *An Introduction to the Bootstrap*, 1993), and it is the same for ratios and for their
//! logarithms. BCa does not fit: its acceleration comes from the jackknife, which fails for medians
//! (same book, section 11.6), and there is little to correct, since exchanging A and B flips the
//! sign of the logarithms and changes nothing else. With few samples every percentile interval is
//! too narrow; it is widened around the estimate by Student's factor (Hesterberg, *What Teachers
//! Should Know about the Bootstrap*, 2015, the expanded percentile interval).
//!
//! # When there is a verdict
//!
//! When the whole interval lies beyond a practical floor. Real effects smaller than the floor exist
//! but get no verdict: they cannot be distinguished from a different layout of the same code.

use super::{Judgement, Verdict};
use crate::{
    record::{Better, Figure, Interval, Kind},
    words,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Deserialize;

/// The unit of a [`Kind::Wall`] figure.
pub const RATIO: &str = "× baseline";

/// The confidence level of the interval.
pub const CONFIDENCE: f64 = 0.95;

/// The normal distribution's quantile for [`CONFIDENCE`].
const NORMAL: f64 = 1.959_964;

/// The most quadruples; more would be a mistake in a suite that is meant to be short.
pub const MAX_QUADRUPLES: usize = 10_000;

/// Four runs in chronological order: the baseline, the build, the build, the baseline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quadruple {
    /// The baseline's first figure.
    pub a1: f64,
    /// The build's first figure.
    pub b1: f64,
    /// The build's second figure.
    pub b2: f64,
    /// The baseline's second figure.
    pub a2: f64,
}

/// When a ratio gets a verdict.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WallLimits {
    /// The whole interval must be at least this factor worse; above 1.
    pub floor: f64,
    /// The largest ratio of the interval's upper end to its lower end. A wider interval that clears
    /// the floor still gives a verdict; any other is inconclusive.
    pub widest: f64,
    /// With fewer quadruples the result is inconclusive.
    pub least_quadruples: usize,
    /// The number of bootstrap resamples, 100 to 100,000.
    pub resamples: u32,
    /// The seed of the resampling: the same figures give the same interval.
    pub seed: u64,
}

impl Default for WallLimits {
    fn default() -> Self {
        Self {
            floor: 1.05,
            widest: 1.15,
            least_quadruples: 6,
            resamples: 4_000,
            seed: 1,
        }
    }
}

/// The result of the runs.
#[derive(Clone, Debug, PartialEq)]
pub struct WallOutcome {
    /// The ratio of the build's figure to the baseline's.
    pub ratio: f64,
    /// The confidence interval of the ratio.
    pub interval: Interval,
    /// The number of quadruples.
    pub quadruples: usize,
    /// The verdict.
    pub judgement: Judgement,
}

/// Why there is no outcome.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum WallError {
    /// A figure has no logarithm.
    #[error("quadruple {index} has {value}; figures are numbers above zero")]
    Value {
        /// The quadruple's index, from 0.
        index: usize,
        value: f64,
    },
    /// There are no quadruples, or too many.
    #[error("there are {found} quadruples, and 1 to {MAX_QUADRUPLES} may be")]
    Count {
        /// The number of quadruples.
        found: usize,
    },
    /// A limit is out of range.
    #[error("the limit {name} is {value}, and {range} is allowed")]
    Limit {
        name: &'static str,
        value: f64,
        /// The permitted range.
        range: &'static str,
    },
}

impl Quadruple {
    /// From four figures in chronological order.
    pub fn new([a1, b1, b2, a2]: [f64; 4]) -> Self {
        Self { a1, b1, b2, a2 }
    }

    /// The logarithm of the ratio of the build to the baseline.
    fn log_ratio(&self) -> f64 {
        let (a, b) = (self.a1.ln() + self.a2.ln(), self.b1.ln() + self.b2.ln());
        (b - a) / 2.0
    }
}

impl WallLimits {
    fn check(&self) -> Result<(), WallError> {
        let within =
            |name, value: f64, from: f64, to: f64, range| match (from..=to).contains(&value) {
                true => Ok(()),
                false => Err(WallError::Limit { name, value, range }),
            };
        within("floor", self.floor, 1.0, 10.0, "1 to 10")?;
        within("widest", self.widest, 1.0, 100.0, "1 to 100")?;
        let resamples = f64::from(self.resamples);
        within("resamples", resamples, 100.0, 1e5, "100 to 100,000")
    }
}

impl WallOutcome {
    /// Converts the outcome to a record's figure. `better` is the measured figure's direction.
    pub fn figure(&self, better: Better) -> Figure {
        Figure {
            interval: Some(self.interval),
            ..Figure::new(self.ratio, RATIO, better, Kind::Wall)
        }
    }
}

/// Judges a figure measured in runs that alternate with the baseline.
///
/// # Errors
///
/// If there are no quadruples, a figure is not above zero, or a limit is out of range.
pub fn judge(
    quadruples: &[Quadruple],
    better: Better,
    limits: &WallLimits,
) -> Result<WallOutcome, WallError> {
    limits.check()?;
    let found = quadruples.len();
    if found == 0 || found > MAX_QUADRUPLES {
        return Err(WallError::Count { found });
    }
    for (index, quadruple) in quadruples.iter().enumerate() {
        let Quadruple { a1, b1, b2, a2 } = *quadruple;
        let mut values = [a1, b1, b2, a2].into_iter();
        if let Some(value) = values.find(|value| !(*value > 0.0 && value.is_finite())) {
            return Err(WallError::Value { index, value });
        }
    }
    let logs: Vec<f64> = quadruples.iter().map(Quadruple::log_ratio).collect();
    let (estimate, lower, upper) = bootstrap(&logs, limits);
    let interval = Interval {
        lower: lower.exp(),
        upper: upper.exp(),
    };
    let judgement = match found < limits.least_quadruples {
        true => Judgement::cannot_tell(format!(
            "{found} quadruples are too few; {} are needed",
            limits.least_quadruples
        )),
        false => judge_interval(interval, better, limits),
    };
    Ok(WallOutcome {
        ratio: estimate.exp(),
        interval,
        quadruples: found,
        judgement,
    })
}

/// Judges a ratio by its confidence interval.
pub fn judge_interval(interval: Interval, better: Better, limits: &WallLimits) -> Judgement {
    let Interval { lower, upper } = interval;
    // The least and the greatest factor by which it is worse.
    let (least, most) = match better {
        Better::Lower => (lower, upper),
        Better::Higher => (1.0 / upper, 1.0 / lower),
    };
    let lies = format!("the ratio lies in {lower:.3}–{upper:.3}");
    let floor = words::percent(limits.floor - 1.0);
    if least > limits.floor {
        Judgement::new(
            Verdict::Regression,
            format!("{lies}, wholly more than {floor} worse"),
        )
    } else if most < 1.0 / limits.floor {
        Judgement::new(
            Verdict::Improvement,
            format!("{lies}, wholly more than {floor} better"),
        )
    } else if most / least <= limits.widest {
        Judgement::new(
            Verdict::Neutral,
            format!("{lies}, not wholly beyond {floor}"),
        )
    } else {
        // NaN ends up here too.
        Judgement::cannot_tell(format!(
            "{lies}, which is wider than {}: more or longer runs are needed",
            words::percent(limits.widest - 1.0)
        ))
    }
}

/// The median and the interval of logarithms.
fn bootstrap(logs: &[f64], limits: &WallLimits) -> (f64, f64, f64) {
    let mut random = ChaCha8Rng::seed_from_u64(limits.seed);
    let mut drawn = vec![0.0; logs.len()];
    let mut medians: Vec<f64> = (0..limits.resamples)
        .map(|_| {
            drawn.fill_with(|| logs[random.random_range(0..logs.len())]);
            median(&mut drawn)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    let estimate = median(&mut logs.to_vec());
    let outside = (1.0 - CONFIDENCE) / 2.0;
    let wider = widening(logs.len());
    let at = |share| estimate + wider * (words::quantile(&medians, share) - estimate);
    (estimate, at(outside), at(1.0 - outside))
}

/// How much wider than a normal interval one of so few samples must be: Student's quantile divided
/// by the normal one, and a correction because the variance of a resample is too small.
fn widening(samples: usize) -> f64 {
    let freedom = (samples as f64 - 1.0).max(1.0);
    // Cornish and Fisher's expansion (Abramowitz and Stegun, 26.7.5).
    let z = NORMAL;
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let student = z + first / freedom + second / freedom.powi(2);
    student / z * ((freedom + 1.0) / freedom).sqrt()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    words::quantile(values, 0.5)
}

#[cfg(test)]
#[path = "wall_tests.rs"]
mod tests;
