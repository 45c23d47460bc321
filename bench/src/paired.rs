//! Timing several operations in turn, so that what disturbs the machine disturbs all of them.

use std::time::{Duration, Instant};

/// How long one operation runs at least before the next one has its turn.
const TURN: Duration = Duration::from_millis(2);

/// An operation to be timed.
pub(crate) struct Subject<'a> {
    name: &'static str,
    run: Box<dyn FnMut() + 'a>,
    times: u32,
    micros: Vec<f64>,
}

/// The times of one operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    /// The quartiles.
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// Operations that are compared.
#[derive(Default)]
pub(crate) struct Comparison<'a>(Vec<Subject<'a>>);

fn spread(mut values: Vec<f64>) -> Spread {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
    Spread {
        median: at(0.5),
        low: at(0.25),
        high: at(0.75),
    }
}

impl<'a> Comparison<'a> {
    /// Adds an operation.
    pub(crate) fn add(&mut self, name: &'static str, run: impl FnMut() + 'a) {
        self.0.push(Subject {
            name,
            run: Box::new(run),
            times: 1,
            micros: Vec::new(),
        });
    }

    /// Runs all operations so many rounds, each once a round (short ones as often as fits into a
    /// turn), after a round that does not count.
    pub(crate) fn run(&mut self, rounds: u32) {
        for subject in &mut self.0 {
            let start = Instant::now();
            (subject.run)();
            let once = start.elapsed().max(Duration::from_nanos(100));
            subject.times = (TURN.as_nanos() / once.as_nanos()).clamp(1, 1_000_000) as u32;
        }
        for _ in 0..rounds {
            for subject in &mut self.0 {
                let start = Instant::now();
                (0..subject.times).for_each(|_| (subject.run)());
                let micros = start.elapsed().as_secs_f64() * 1e6 / f64::from(subject.times);
                subject.micros.push(micros);
            }
        }
    }

    /// Microseconds that the operation of this name took.
    pub(crate) fn micros(&self, name: &str) -> Spread {
        spread(self.named(name).to_vec())
    }

    /// How many times longer one operation takes than another, round by round.
    pub(crate) fn ratio(&self, longer: &str, shorter: &str) -> Spread {
        let pairs = self.named(longer).iter().zip(self.named(shorter));
        spread(pairs.map(|(longer, shorter)| longer / shorter).collect())
    }

    fn named(&self, name: &str) -> &[f64] {
        let found = self.0.iter().find(|subject| subject.name == name);
        &found.expect("an operation that was added").micros
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_longer_is_seen_to() {
        let work = |rounds: u64| (0..rounds).fold(1_u64, |a, b| std::hint::black_box(a ^ b));
        let mut comparison = Comparison::default();
        comparison.add("short", || {
            std::hint::black_box(work(1_000));
        });
        comparison.add("long", || {
            std::hint::black_box(work(100_000));
        });
        comparison.run(9);
        let ratio = comparison.ratio("long", "short");
        assert!(ratio.median > 10.0, "{ratio:?}");
        assert!(ratio.low <= ratio.median && ratio.median <= ratio.high);
    }
}
