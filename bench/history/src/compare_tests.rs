use super::*;
use crate::{
    Host,
    samples::{commit, counted, invalid, measured, ratio, record, with},
};
use hdrhistogram::Histogram;

fn compared(records: &[Record], a: u64, b: u64) -> Comparison {
    let side = |number| Side::commit(records, &commit(number).hash[..12]).expect("it is there");
    compare(&side(a), &side(b), records, &Limits::default()).expect("readable")
}

fn row<'c>(comparison: &'c Comparison, figure: &str) -> &'c Row {
    let found = comparison
        .rows
        .iter()
        .find(|r| r.figure.as_deref() == Some(figure));
    found.expect("it has a row")
}

fn verdict(comparison: &Comparison, figure: &str) -> Verdict {
    row(comparison, figure).judgement.verdict
}

#[test]
fn each_kind_is_judged_by_its_gate() {
    let noisy = |n: u64| 100.0 + (n % 4) as f64;
    let mut records: Vec<Record> = (0..10)
        .map(|n| with(record(n, "a"), "latency", measured(noisy(n))))
        .collect();
    records[9] = with(records[9].clone(), "messages", counted(50.0));
    let mut now = with(record(10, "a"), "messages", counted(55.0));
    now = with(now, "latency", measured(140.0));
    now = with(now, "blocks", ratio(0.8, 0.9));
    now.baseline = Some(commit(9));
    records.push(now);
    let comparison = compared(&records, 9, 10);
    assert_eq!(verdict(&comparison, "messages"), Verdict::Regression);
    assert_eq!(verdict(&comparison, "latency"), Verdict::Alert);
    assert_eq!(verdict(&comparison, "blocks"), Verdict::Improvement);
    assert_eq!(
        (comparison.remarkable(), comparison.count(Verdict::Alert)),
        (3, 1)
    );
    assert!(comparison.failed());
}

#[test]
fn a_commit_against_itself_is_neutral() {
    let mut one = with(record(1, "a"), "messages", counted(50.0));
    one = with(one, "blocks", ratio(0.98, 1.03));
    one.baseline = Some(commit(1));
    let comparison = compared(&[one], 1, 1);
    assert_eq!((comparison.remarkable(), comparison.rows.len()), (0, 2));
    assert!(!comparison.failed());
}

#[test]
fn times_of_different_runs_are_not_compared() {
    let old = with(record(1, "a"), "blocks", ratio(0.5, 0.6));
    let mut new = with(record(2, "a"), "blocks", ratio(1.5, 1.6));
    let judged = |new: &Record| {
        let comparison = compared(&[old.clone(), new.clone()], 1, 2);
        assert_eq!(row(&comparison, "blocks").a, None);
        verdict(&comparison, "blocks")
    };
    assert_eq!(judged(&new), Verdict::CannotTell);
    new.baseline = Some(commit(0));
    assert_eq!(judged(&new), Verdict::CannotTell);
    new.baseline = Some(commit(1));
    assert_eq!(judged(&new), Verdict::Regression);
    if let Some(baseline) = &mut new.baseline {
        baseline.dirty = true;
    }
    assert_eq!(judged(&new), Verdict::CannotTell);
}

#[test]
fn histograms_of_all_runs_are_merged() {
    let with_latency = |seconds, values: std::ops::Range<u64>| {
        let mut record = record(1, "a");
        record.unix_seconds += seconds;
        let mut histogram = Histogram::<u64>::new_with_bounds(1, 1_000_000, 3).expect("bounds");
        values.for_each(|value| histogram.record(value).expect("within"));
        let saved = Saved::new("µs", &histogram);
        record.histograms.insert("latency".to_owned(), saved);
        record
    };
    let records = [
        with_latency(0, 1..901),
        with_latency(1, 901..1_001),
        invalid(with_latency(2, 5_000..9_000), "steal"),
    ];
    let comparison = compared(&records, 1, 1);
    assert_eq!(row(&comparison, "latency p50").b, Some(500.0));
    assert_eq!(row(&comparison, "latency p99").b, Some(990.0));
}

#[test]
fn what_is_called_deterministic_and_is_not_fails() {
    let mut again = with(record(1, "a"), "messages", counted(50.0));
    let records = [
        with(record(0, "a"), "messages", counted(50.0)),
        again.clone(),
        {
            again.unix_seconds += 5;
            with(again, "messages", counted(50.1))
        },
    ];
    let comparison = compared(&records, 0, 1);
    assert_eq!(verdict(&comparison, "messages"), Verdict::CannotTell);
    assert!(
        row(&comparison, "messages")
            .judgement
            .why
            .contains("runs of B gave 50 and 50.10")
    );
    assert!(comparison.failed());
}

#[test]
fn what_is_gone_fails_and_what_is_new_does_not() {
    let records = [
        with(record(0, "a"), "messages", counted(1.0)),
        with(record(1, "a"), "syncs", counted(1.0)),
        record(1, "b"),
    ];
    let comparison = compared(&records, 0, 1);
    assert_eq!(verdict(&comparison, "messages"), Verdict::CannotTell);
    assert_eq!(verdict(&comparison, "syncs"), Verdict::Neutral);
    assert!(comparison.failed());
    let back = compared(&records, 1, 0);
    let whole = back
        .rows
        .iter()
        .find(|row| row.figure.is_none())
        .expect("scenario b");
    assert_eq!(
        (whole.scenario.as_str(), whole.judgement.verdict),
        ("b", Verdict::CannotTell)
    );
    assert!(back.failed());
    let grown = [
        records[0].clone(),
        with(
            with(record(1, "a"), "messages", counted(1.0)),
            "syncs",
            counted(1.0),
        ),
    ];
    assert!(!compared(&grown, 0, 1).failed());
}

#[test]
fn an_invalid_record_is_compared_with_nothing() {
    let good = with(record(0, "a"), "messages", counted(1.0));
    let bad = invalid(
        with(record(1, "a"), "messages", counted(1.0)),
        "half of it was stolen",
    );
    let comparison = compared(&[good, bad], 0, 1);
    assert_eq!(comparison.rows.len(), 1);
    assert!(
        comparison.rows[0]
            .judgement
            .why
            .contains("B is invalid: half of it")
    );
    assert!(comparison.failed());
}

#[test]
fn on_another_host_only_deterministic_figures_are_compared() {
    let figures = |record| {
        with(
            with(record, "messages", counted(5.0)),
            "latency",
            measured(5.0),
        )
    };
    // B's host has a past of its own, which A is no part of.
    let mut records: Vec<Record> = (0..20).map(|n| figures(record(n, "a"))).collect();
    records[10].host = Host::new("Another", 64, 1 << 40, "6.1");
    let comparison = compared(&records, 10, 19);
    assert_eq!(verdict(&comparison, "messages"), Verdict::Neutral);
    assert!(
        row(&comparison, "messages")
            .judgement
            .why
            .contains("another host")
    );
    assert_eq!(verdict(&comparison, "latency"), Verdict::CannotTell);
}

#[test]
fn a_commit_is_found_by_its_beginning_if_that_means_one() {
    let mut changed = record(2, "a");
    changed.commit.dirty = true;
    let mut twin = record(1, "a");
    twin.commit.hash.replace_range(20.., "00000000000000000000");
    let records = [record(1, "a"), record(2, "a"), changed, twin];
    let hash = |number| commit(number).hash;
    let found = Side::commit(&records, &hash(2)[..30]).expect("one");
    assert_eq!(
        (found.records.len(), found.records[0].commit.dirty),
        (1, false)
    );
    let dirty = Side::commit(&records, &format!("{}-dirty", &hash(2)[..30])).expect("one");
    assert!(dirty.records[0].commit.dirty);
    let error = |text: &str| Side::commit(&records, text).expect_err("not one");
    assert!(matches!(error("abc"), SideError::Short { .. }));
    assert!(matches!(error(&hash(1)[..8]), SideError::Ambiguous { .. }));
    let SideError::Missing { has, .. } = error("ffffffff") else {
        panic!("found");
    };
    assert!(has.contains(&commit(2).to_string()), "{has}");
    assert!(matches!(
        Side::commit(&[], "ffffffff"),
        Err(SideError::Missing { .. })
    ));
}

#[test]
fn a_file_stands_for_its_newest_commits() {
    let records = [
        record(1, "a"),
        record(3, "a"),
        record(2, "a"),
        record(2, "b"),
    ];
    let side = Side::newest("new.jsonl", &records);
    let found: Vec<_> = side
        .records
        .iter()
        .map(|r| (r.scenario.as_str(), &r.commit))
        .collect();
    assert_eq!(found, [("a", &commit(3)), ("b", &commit(2))]);
}

#[test]
fn the_table_is_aligned_and_says_why() {
    let long = "messages of all kinds per block";
    let records = [
        with(
            with(record(0, "a"), "x", counted(5.0)),
            long,
            counted(12_345.0),
        ),
        with(
            with(record(1, "a"), "x", counted(5.0)),
            long,
            counted(13_579.0),
        ),
    ];
    let text = compared(&records, 0, 1).to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 5, "{text}");
    let starts = |word: &str, line: &str| line.find(word).expect("it is there");
    assert_eq!(
        starts("verdict", lines[0]),
        starts("REGRESSION", lines[1]),
        "{text}"
    );
    assert_eq!(
        starts("verdict", lines[0]),
        starts("neutral", lines[2]),
        "{text}"
    );
    assert!(
        lines[1].contains("13,579  1.100") && lines[1].contains("+10.0%"),
        "{text}"
    );
    assert!(
        lines[4].starts_with("2 figures: 1 neutral, 0 better, 1 worse"),
        "{text}"
    );
}
