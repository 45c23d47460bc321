//! The soft gate: what is usual on this host, by an interquartile fence over earlier records.

use super::{Judgement, Verdict};
use crate::{record::Better, words};
use serde::Deserialize;

/// What is usual.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FenceLimits {
    /// How many interquartile ranges beyond a quartile are usual. Tukey's 1.5 cries wolf at small
    /// samples; 2.2 is what holds for them (Hoaglin and Iglewicz, "Fine-tuning some resistant rules
    /// for outlier labeling", 1987).
    pub width: f64,
    /// Fewer earlier records say nothing; a quartile of seven is one of them.
    pub least_samples: usize,
    /// Only so many latest records count: what a machine did long ago is not usual any more.
    pub window: usize,
    /// The fence is at least so far from the median, relative to it. Figures that happened to be
    /// the same eight times would otherwise alert at the first different digit.
    pub least_distance: f64,
}

impl Default for FenceLimits {
    fn default() -> Self {
        Self {
            width: 2.2,
            least_samples: 8,
            window: 40,
            least_distance: 0.01,
        }
    }
}

/// What is usual of one figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fence {
    /// The median.
    pub median: f64,
    /// Less than this is unusual.
    pub lower: f64,
    /// More than this is.
    pub upper: f64,
    /// Over how many records.
    pub samples: usize,
}

/// The fence over earlier values, in the order of time; `None` if they are too few.
pub fn fence(earlier: &[f64], limits: &FenceLimits) -> Option<Fence> {
    let latest = earlier.len().saturating_sub(limits.window.max(1));
    let mut values = earlier[latest..].to_vec();
    if values.len() < limits.least_samples.max(1) {
        return None;
    }
    values.sort_by(f64::total_cmp);
    let at = |share| words::quantile(&values, share);
    let (first, median, third) = (at(0.25), at(0.5), at(0.75));
    let beyond = limits.width * (third - first);
    let least = limits.least_distance * median.abs();
    Some(Fence {
        median,
        lower: (first - beyond).min(median - least),
        upper: (third + beyond).max(median + least),
        samples: values.len(),
    })
}

/// Judges a figure by what is usual. The worst that it says is an alert.
pub fn judge(value: f64, better: Better, fence: Option<&Fence>) -> Judgement {
    let Some(fence) = fence else {
        return Judgement::cannot_tell("too few earlier records of this host");
    };
    let band = format!(
        "usual are {} to {} over {} records",
        words::number(fence.lower),
        words::number(fence.upper),
        fence.samples
    );
    if (fence.lower..=fence.upper).contains(&value) {
        return Judgement::new(Verdict::Neutral, band);
    }
    match (value > fence.upper) == (better == Better::Higher) {
        true => Judgement::new(Verdict::Improvement, format!("better than usual: {band}")),
        false => Judgement::new(Verdict::Alert, format!("worse than usual: {band}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    const USUAL: [f64; 9] = [10.0, 10.2, 9.8, 10.1, 9.9, 10.3, 9.7, 10.0, 10.1];

    fn verdict(value: f64, better: Better, earlier: &[f64]) -> Verdict {
        let fence = fence(earlier, &FenceLimits::default());
        judge(value, better, fence.as_ref()).verdict
    }

    #[test]
    fn what_is_beyond_the_fence_alerts_on_the_bad_side_only() {
        use Verdict::{Alert, Improvement, Neutral};
        // The quartiles are 9.9 and 10.1: the fence stands at 9.46 and 10.54.
        assert_eq!(verdict(10.53, Better::Lower, &USUAL), Neutral);
        assert_eq!(verdict(10.55, Better::Lower, &USUAL), Alert);
        assert_eq!(verdict(9.45, Better::Lower, &USUAL), Improvement);
        assert_eq!(verdict(10.55, Better::Higher, &USUAL), Improvement);
        assert_eq!(verdict(9.45, Better::Higher, &USUAL), Alert);
    }

    #[test]
    fn too_few_records_say_nothing() {
        assert_eq!(
            verdict(99.0, Better::Lower, &USUAL[..7]),
            Verdict::CannotTell
        );
        assert_eq!(verdict(99.0, Better::Lower, &USUAL[..8]), Verdict::Alert);
        assert_eq!(verdict(99.0, Better::Lower, &[]), Verdict::CannotTell);
    }

    #[test]
    fn one_outlier_of_the_past_does_not_open_the_fence() {
        let mut earlier = USUAL;
        earlier[3] = 1_000.0;
        assert_eq!(verdict(11.5, Better::Lower, &earlier), Verdict::Alert);
    }

    #[test]
    fn equal_values_leave_room_for_a_last_digit() {
        assert_eq!(verdict(10.09, Better::Lower, &[10.0; 8]), Verdict::Neutral);
        assert_eq!(verdict(10.11, Better::Lower, &[10.0; 8]), Verdict::Alert);
        assert_eq!(verdict(9.91, Better::Lower, &[10.0; 8]), Verdict::Neutral);
        assert_eq!(verdict(0.0, Better::Lower, &[0.0; 8]), Verdict::Neutral);
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let mut earlier = vec![20.0; 200];
        earlier.extend([10.0; 40]);
        assert_eq!(verdict(12.0, Better::Lower, &earlier), Verdict::Alert);
    }

    #[test]
    fn noise_seldom_alerts_and_a_slowdown_beyond_it_does() {
        let (mut false_alerts, mut found) = (0, 0);
        for seed in 0..200 {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let mut noisy = |middle: f64| {
                let noise: f64 = (0..12).map(|_| random.random_range(-0.5..0.5)).sum();
                middle * (1.0 + 0.03 * noise)
            };
            let earlier: Vec<f64> = (0..20).map(|_| noisy(100.0)).collect();
            let (same, slower) = (noisy(100.0), noisy(125.0));
            false_alerts += u32::from(verdict(same, Better::Lower, &earlier) == Verdict::Alert);
            found += u32::from(verdict(slower, Better::Lower, &earlier) == Verdict::Alert);
        }
        assert!(false_alerts <= 4, "{false_alerts} of 200");
        assert!(found >= 195, "{found} of 200");
    }
}
