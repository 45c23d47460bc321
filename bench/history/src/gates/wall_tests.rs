use super::*;

const QUADRUPLES: usize = 12;
const TRIALS: u64 = 100;

/// A machine that runs both builds: noise of each run, and what changes from run to run.
struct Machine {
    random: ChaCha8Rng,
    /// The standard deviation of a run.
    noise: f64,
    /// By how much each run is slower than the one before.
    drift: f64,
    runs: i32,
}

impl Machine {
    fn new(seed: u64, noise: f64, drift: f64) -> Self {
        Self {
            random: ChaCha8Rng::seed_from_u64(1_000 + seed),
            noise,
            drift,
            runs: 0,
        }
    }

    fn run(&mut self, cost: f64) -> f64 {
        // Twelve uniform numbers have a variance of one together, and nearly a normal shape.
        let mut uniform = || self.random.random_range(-0.5..0.5);
        let normal: f64 = (0..12).map(|_| uniform()).sum();
        let drift = (1.0 + self.drift).powi(self.runs);
        self.runs += 1;
        cost * (self.noise * normal).exp() * drift
    }

    /// The build costs so many times what the baseline does.
    fn quadruples(&mut self, count: usize, times: f64) -> Vec<Quadruple> {
        let one = |_| {
            let costs = [100.0, 100.0 * times, 100.0 * times, 100.0];
            Quadruple::new(costs.map(|cost| self.run(cost)))
        };
        (0..count).map(one).collect()
    }
}

fn outcome(quadruples: &[Quadruple]) -> WallOutcome {
    judge(quadruples, Better::Lower, &WallLimits::default()).expect("figures above zero")
}

/// In how many trials it comes to this verdict.
fn trials(verdict: Verdict, quadruples: impl Fn(u64) -> Vec<Quadruple>) -> usize {
    let verdicts = (0..TRIALS).map(|seed| outcome(&quadruples(seed)).judgement.verdict);
    verdicts.filter(|found| *found == verdict).count()
}

#[test]
fn a_build_against_itself_is_neutral() {
    let neutral = trials(Verdict::Neutral, |seed| {
        Machine::new(seed, 0.03, 0.0).quadruples(QUADRUPLES, 1.0)
    });
    assert!(neutral >= 97, "{neutral} of 100");
}

#[test]
fn a_build_against_itself_is_never_worse_however_noisy_the_machine() {
    for noise in [0.1, 0.3] {
        let said = |verdict| {
            trials(verdict, |seed| {
                Machine::new(seed, noise, 0.0).quadruples(QUADRUPLES, 1.0)
            })
        };
        assert!(said(Verdict::Regression) + said(Verdict::Improvement) <= 3);
        // It is not called neutral either.
        assert!(noise < 0.2 || said(Verdict::CannotTell) >= 95);
    }
}

#[test]
fn a_tenth_slower_is_found_in_noise_of_three_percent() {
    let found = trials(Verdict::Regression, |seed| {
        Machine::new(seed, 0.03, 0.0).quadruples(QUADRUPLES, 1.1)
    });
    assert!(found >= 95, "{found} of 100");
    let faster = trials(Verdict::Improvement, |seed| {
        Machine::new(seed, 0.03, 0.0).quadruples(QUADRUPLES, 1.0 / 1.1)
    });
    assert!(faster >= 95, "{faster} of 100");
}

#[test]
fn a_drift_of_the_machine_stays_neutral() {
    // Each run is 3% slower than the one before: the last is four times slower than the first. In
    // the order A-A-B-B every ratio would be 1.06, in A-B-A-B 1.03.
    let neutral = trials(Verdict::Neutral, |seed| {
        Machine::new(seed, 0.01, 0.03).quadruples(QUADRUPLES, 1.0)
    });
    assert!(neutral >= 97, "{neutral} of 100");
    let exact = outcome(&Machine::new(0, 0.0, 0.05).quadruples(QUADRUPLES, 1.0));
    assert!((exact.ratio - 1.0).abs() < 1e-9, "{exact:?}");
}

#[test]
fn a_drift_does_not_hide_a_slowdown() {
    let found = trials(Verdict::Regression, |seed| {
        Machine::new(seed, 0.02, -0.03).quadruples(QUADRUPLES, 1.1)
    });
    assert!(found >= 95, "{found} of 100");
}

#[test]
fn one_outlier_flips_nothing() {
    for times in [0.02, 50.0] {
        let spoilt = |seed, cost: f64| {
            let mut quadruples = Machine::new(seed, 0.02, 0.0).quadruples(QUADRUPLES, cost);
            quadruples[seed as usize % QUADRUPLES].b2 *= times;
            quadruples
        };
        let neutral = trials(Verdict::Neutral, |seed| spoilt(seed, 1.0));
        assert!(neutral >= 97, "{neutral} of 100");
        let found = trials(Verdict::Regression, |seed| spoilt(seed, 1.1));
        assert!(found >= 95, "{found} of 100");
    }
}

#[test]
fn the_interval_holds_what_it_promises() {
    for count in [6, 8, 12, 30] {
        let holds = (0..400).filter(|seed| {
            let quadruples = Machine::new(*seed, 0.05, 0.0).quadruples(count, 1.03);
            let Interval { lower, upper } = outcome(&quadruples).interval;
            (lower..=upper).contains(&1.03)
        });
        let share = holds.count() as f64 / 400.0;
        assert!(
            (0.93..0.995).contains(&share),
            "{share} with {count} quadruples"
        );
    }
}

#[test]
fn the_widening_is_students() {
    // Student's quantiles for 95%: 2.571 for 5 degrees of freedom, 2.201 for 11.
    for (samples, student) in [(6.0_f64, 2.571), (12.0, 2.201)] {
        let expected = student / NORMAL * (samples / (samples - 1.0)).sqrt();
        let widened = widening(samples as usize);
        assert!(
            (widened / expected - 1.0).abs() < 0.01,
            "{widened} {expected}"
        );
    }
}

#[test]
fn a_slowdown_below_the_floor_is_not_worth_a_verdict() {
    let exact = Machine::new(0, 0.001, 0.0).quadruples(QUADRUPLES, 1.04);
    assert_eq!(outcome(&exact).judgement.verdict, Verdict::Neutral);
}

#[test]
fn of_throughput_more_is_better() {
    let quadruples = Machine::new(0, 0.01, 0.0).quadruples(QUADRUPLES, 1.2);
    let limits = WallLimits::default();
    let more = judge(&quadruples, Better::Higher, &limits).expect("above zero");
    assert_eq!(more.judgement.verdict, Verdict::Improvement);
    let less = Machine::new(0, 0.01, 0.0).quadruples(QUADRUPLES, 0.8);
    let less = judge(&less, Better::Higher, &limits).expect("above zero");
    assert_eq!(less.judgement.verdict, Verdict::Regression);
}

#[test]
fn few_quadruples_and_wide_intervals_say_nothing() {
    let few = outcome(&Machine::new(0, 0.001, 0.0).quadruples(5, 2.0));
    assert_eq!(few.judgement.verdict, Verdict::CannotTell);
    let wide = outcome(&Machine::new(0, 0.4, 0.0).quadruples(8, 1.0));
    assert_eq!(wide.judgement.verdict, Verdict::CannotTell);
    // Wide, but nobody can doubt it.
    let doubtless = outcome(&Machine::new(0, 0.2, 0.0).quadruples(8, 4.0));
    assert_eq!(doubtless.judgement.verdict, Verdict::Regression);
}

#[test]
fn the_same_figures_have_the_same_outcome() {
    let quadruples = Machine::new(5, 0.05, 0.0).quadruples(QUADRUPLES, 1.0);
    assert_eq!(outcome(&quadruples), outcome(&quadruples));
    let limits = WallLimits {
        seed: 2,
        ..WallLimits::default()
    };
    let other = judge(&quadruples, Better::Lower, &limits).expect("above zero");
    let change = other.interval.upper / outcome(&quadruples).interval.upper;
    assert!((change - 1.0).abs() < 0.005, "the seed matters: {change}");
}

#[test]
fn an_outcome_becomes_a_figure_that_is_judged_alike() {
    let outcome = outcome(&Machine::new(5, 0.02, 0.0).quadruples(QUADRUPLES, 1.3));
    let figure = outcome.figure(Better::Lower);
    assert_eq!((figure.kind, figure.value), (Kind::Wall, outcome.ratio));
    let interval = figure.interval.expect("it has one");
    let again = judge_interval(interval, figure.better, &WallLimits::default());
    assert_eq!(again, outcome.judgement);
}

#[test]
fn figures_without_a_logarithm_and_senseless_limits_are_refused() {
    let limits = WallLimits::default();
    let good = Quadruple::new([1.0; 4]);
    for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let bad = Quadruple { b2: value, ..good };
        let error = judge(&[good, bad], Better::Lower, &limits).expect_err("no logarithm");
        assert!(
            matches!(error, WallError::Value { index: 1, .. }),
            "{error}"
        );
    }
    let none = judge(&[], Better::Lower, &limits);
    assert_eq!(none, Err(WallError::Count { found: 0 }));
    for floor in [0.95, f64::NAN] {
        let limits = WallLimits {
            floor,
            ..limits.clone()
        };
        let error = judge(&[good], Better::Lower, &limits).expect_err("senseless");
        assert!(error.to_string().contains("floor"), "{error}");
    }
}
