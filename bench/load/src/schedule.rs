//! When each transfer is due.
//!
//! The k-th transfer of a step is due k / rate seconds after the step's beginning. Each due time is
//! computed from the beginning and not from the transfer before, so no rounding adds up, and nothing
//! that happens while sending moves it.

use std::time::Duration;

/// Steps that a load may have.
pub const MAX_STEPS: usize = 50;

/// Highest rate, in transfers per second.
pub const MAX_RATE: f64 = 1_000_000.0;

/// A time of constant load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Transfers per second; 0 for a pause.
    pub rate: f64,
    /// How long; `None` until the load is stopped.
    pub lasts: Option<Duration>,
    /// Whether it is left out of the total.
    pub warm_up: bool,
}

impl Step {
    /// A step that counts.
    pub fn new(rate: f64, lasts: Option<Duration>) -> Self {
        Self {
            rate,
            lasts,
            warm_up: false,
        }
    }
}

/// The due times of all steps, one after the other. Times count from the load's beginning.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    steps: Vec<Step>,
    step: usize,
    step_start: Duration,
    /// Transfers of this step that were handed out.
    handed_out: u64,
}

impl Schedule {
    pub(crate) fn new(steps: Vec<Step>) -> Self {
        Self {
            steps,
            step: 0,
            step_start: Duration::ZERO,
            handed_out: 0,
        }
    }

    /// When the next transfer is due, and in which step; `None` if there is no more.
    pub(crate) fn next(&mut self) -> Option<(Duration, usize)> {
        loop {
            let step = self.steps.get(self.step)?;
            let offset = offset(self.handed_out, step.rate);
            match (offset, step.lasts) {
                (Some(offset), Some(lasts)) if offset < lasts => {
                    return Some((self.step_start + offset, self.step));
                }
                (Some(offset), None) => return Some((self.step_start + offset, self.step)),
                (_, Some(lasts)) => {
                    self.step_start += lasts;
                    self.step += 1;
                    self.handed_out = 0;
                }
                (None, None) => return None,
            }
        }
    }

    /// Goes on to the transfer after the one that [`Self::next`] told of.
    pub(crate) fn advance(&mut self) {
        self.handed_out += 1;
    }

    /// When the last step ends; `None` if it does not.
    pub(crate) fn end(&self) -> Option<Duration> {
        self.steps.iter().map(|step| step.lasts).sum()
    }
}

/// How long after the step's beginning the k-th transfer is due. Exact to the nanosecond for 100 days.
fn offset(k: u64, rate: f64) -> Option<Duration> {
    (rate > 0.0).then(|| Duration::from_nanos((k as f64 * 1e9 / rate) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_transfers_at_an_odd_rate_do_not_drift() {
        let mut schedule = Schedule::new(vec![Step::new(333.0, None)]);
        for _ in 0..1_000_000 {
            schedule.advance();
        }
        let (due, _) = schedule.next().expect("it has no end");
        let exact = 1_000_000.0 / 333.0;
        assert!((due.as_secs_f64() - exact).abs() < 1e-6, "{due:?}");
    }

    #[test]
    fn each_step_offers_its_rate_and_starts_where_the_one_before_ends() {
        let second = Some(Duration::from_secs(1));
        let steps = [10.0, 0.0, 25.0].map(|rate| Step::new(rate, second));
        let mut schedule = Schedule::new(steps.to_vec());
        let mut offered = [0; 3];
        let mut last = Duration::ZERO;
        while let Some((due, step)) = schedule.next() {
            assert!(due >= last && due.as_secs() == step as u64);
            (last, offered[step]) = (due, offered[step] + 1);
            schedule.advance();
        }
        assert_eq!(offered, [10, 0, 25]);
        assert_eq!(schedule.end(), Some(Duration::from_secs(3)));
    }
}
