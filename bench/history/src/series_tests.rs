use super::*;
use crate::{
    Verdict,
    samples::{counted, host, invalid, measured, ratio, record, with},
};
use hdrhistogram::Histogram;

fn verdicts(records: &[Record], name: &str) -> Vec<Verdict> {
    let hosts = by_host(records).expect("readable");
    let timeline = &hosts[host().id.as_str()]["a"];
    let points = timeline.points(name, &Limits::default());
    points
        .iter()
        .map(|point| point.judged.judgement.verdict)
        .collect()
}

fn usual(count: u64) -> Vec<Record> {
    let noisy = |n| 100.0 + (n * 7 % 5) as f64;
    (0..count)
        .map(|n| with(record(n, "a"), "x", measured(noisy(n))))
        .collect()
}

#[test]
fn deterministic_figures_are_judged_by_the_record_before() {
    use Verdict::{CannotTell, Improvement, Neutral, Regression};
    let values = [50.0, 50.0, 60.0, 60.0, 40.0];
    let records: Vec<Record> = (0..)
        .zip(values)
        .map(|(n, v)| with(record(n, "a"), "x", counted(v)))
        .collect();
    assert_eq!(
        verdicts(&records, "x"),
        [CannotTell, Neutral, Regression, Neutral, Improvement]
    );
}

#[test]
fn measured_figures_are_judged_by_what_is_usual_on_their_host() {
    let mut records = usual(10);
    records.push(with(record(10, "a"), "x", measured(150.0)));
    assert_eq!(verdicts(&records, "x").last(), Some(&Verdict::Alert));
    assert_eq!(verdicts(&records, "x")[9], Verdict::Neutral);
    // Another host and another scenario have a past of their own.
    let mut elsewhere = records.clone();
    for record in &mut elsewhere[..5] {
        record.host.id = "other".to_owned();
    }
    assert_eq!(verdicts(&elsewhere, "x").last(), Some(&Verdict::CannotTell));
    for record in &mut records[..5] {
        record.scenario = "b".to_owned();
    }
    assert_eq!(verdicts(&records, "x").last(), Some(&Verdict::CannotTell));
}

#[test]
fn what_is_invalid_or_changed_counts_for_nothing() {
    for spoils in [
        |record: Record| invalid(record, "steal"),
        |mut record: Record| {
            record.commit.dirty = true;
            record
        },
    ] {
        let mut records: Vec<Record> = usual(10).into_iter().map(spoils).collect();
        records.push(with(record(10, "a"), "x", measured(150.0)));
        assert_eq!(verdicts(&records, "x").last(), Some(&Verdict::CannotTell));
    }
    let mut records = usual(10);
    records.push(invalid(
        with(record(10, "a"), "x", measured(150.0)),
        "steal",
    ));
    assert_eq!(verdicts(&records, "x").last(), Some(&Verdict::CannotTell));
}

#[test]
fn the_past_is_what_was_committed_before_wherever_it_is_in_the_file() {
    let mut records = vec![with(record(10, "a"), "x", measured(150.0))];
    records.extend(usual(10));
    assert_eq!(verdicts(&records, "x").last(), Some(&Verdict::Alert));
}

#[test]
fn ratios_are_judged_by_their_own_interval() {
    let records = [
        with(record(0, "a"), "x", ratio(1.07, 1.12)),
        with(record(1, "a"), "x", ratio(0.99, 1.02)),
        with(record(2, "a"), "x", ratio(0.8, 0.9)),
    ];
    use Verdict::{Improvement, Neutral, Regression};
    assert_eq!(verdicts(&records, "x"), [Regression, Neutral, Improvement]);
}

#[test]
fn histograms_give_percentiles_and_a_figure_of_that_name_goes_first() {
    let mut record = with(record(0, "a"), "latency p50", measured(1.0));
    let mut histogram = Histogram::<u64>::new_with_bounds(1, 1_000_000, 3).expect("bounds");
    (1..=1_000).for_each(|value| histogram.record(value).expect("within"));
    let saved = crate::histograms::Saved::new("µs", &histogram);
    record.histograms.insert("latency".to_owned(), saved);
    let figures = figures(&record).expect("readable");
    assert_eq!(figures["latency p50"].value, 1.0);
    assert_eq!(
        (
            figures["latency p99"].value,
            figures["latency p99"].unit.as_str()
        ),
        (990.0, "µs")
    );
}
