use super::*;
use crate::samples::{commit, counted, measured, record, with};
use hdrhistogram::Histogram;

fn full() -> Record {
    let mut full = with(record(3, "epochs"), "messages per block", counted(42.5));
    full = with(full, "finality", crate::samples::ratio(0.98, 1.02));
    full.baseline = Some(commit(2));
    let mut histogram = Histogram::<u64>::new_with_bounds(1, 1_000_000, 3).expect("bounds");
    histogram.record(77).expect("within");
    let saved = Saved::new("µs", &histogram);
    full.histograms.insert("latency".to_owned(), saved);
    full.faults.push("validator 3 restarted".to_owned());
    full.valid = Validity::Invalid("a reason".to_owned());
    full
}

#[test]
fn a_record_survives_its_line() {
    for record in [full(), record(1, "plain")] {
        let line = record.to_line().expect("within limits");
        assert!(
            !line.contains('\n') && line.starts_with("{\"schema\":1,"),
            "{line}"
        );
        assert_eq!(Record::from_line(&line).expect("ours"), record);
    }
}

#[test]
fn validity_is_true_or_says_why() {
    let line = record(1, "a").to_line().expect("within limits");
    assert!(line.contains("\"valid\":true"), "{line}");
    let line = full().to_line().expect("within limits");
    assert!(
        line.contains("\"valid\":{\"invalid\":\"a reason\"}"),
        "{line}"
    );
    let silent = line.replace("{\"invalid\":\"a reason\"}", "false");
    assert!(Record::from_line(&silent).is_err());
}

#[test]
fn another_schema_is_refused_before_anything_else() {
    let error = Record::from_line("{\"new\":[],\"schema\":2}").expect_err("unknown");
    assert!(matches!(error, RecordError::Schema { found: 2 }), "{error}");
    let words = error.to_string();
    assert!(
        words.contains("schema is 2") && words.contains("reads 1"),
        "{words}"
    );
    for line in ["{}", "[1]", "", "{\"schema\":1}", "{\"schema\":-1}"] {
        let error = Record::from_line(line).expect_err("no record");
        assert!(matches!(error, RecordError::Json(_)), "{line}: {error}");
    }
}

#[test]
fn unknown_fields_are_refused() {
    let line = full().to_line().expect("within limits");
    for (place, more) in [
        ("\"commit\":{", "\"x\":1,"),
        ("\"unix_seconds\"", "\"x\":1,"),
    ] {
        let changed = match place.ends_with('{') {
            true => line.replacen(place, &format!("{place}{more}"), 1),
            false => line.replacen(place, &format!("{more}{place}"), 1),
        };
        assert_ne!(changed, line);
        assert!(Record::from_line(&changed).is_err(), "{changed}");
    }
}

#[test]
fn what_json_cannot_hold_is_not_written() {
    for value in [f64::NAN, f64::INFINITY] {
        let error = with(record(1, "a"), "x", counted(value)).to_line();
        assert!(matches!(error, Err(RecordError::Limit { .. })));
        let mut record = record(1, "a");
        record.conditions.steal = Some(value);
        assert!(record.to_line().is_err());
    }
}

#[test]
fn limits_hold_for_writers_and_readers() {
    let long = "x".repeat(MAX_NAME_BYTES + 1);
    let broken: [fn(&mut Record, &str); 9] = [
        |record, long| record.scenario = long.to_owned(),
        |record, _| record.scenario = String::new(),
        |record, _| record.scenario = "a\nb".to_owned(),
        |record, long| record.host.id = long.to_owned(),
        |record, _| record.commit.hash = "HEAD".to_owned(),
        |record, long| drop(record.figures.insert(long.to_owned(), counted(1.0))),
        |record, _| {
            drop(
                record
                    .figures
                    .insert("x".to_owned(), crate::samples::ratio(2.0, 1.0)),
            )
        },
        |record, _| record.faults = vec![String::new(); MAX_FIGURES + 1],
        |record, long| record.valid = Validity::Invalid(long.repeat(100)),
    ];
    for (index, breaks) in broken.iter().enumerate() {
        let mut record = full();
        breaks(&mut record, &long);
        assert!(record.to_line().is_err(), "{index}");
        let line = serde_json::to_string(&record).expect("JSON");
        assert!(Record::from_line(&line).is_err(), "{index}");
    }
}

#[test]
fn a_broken_histogram_is_named() {
    let mut record = full();
    if let Some(saved) = record.histograms.get_mut("latency") {
        saved.v2.truncate(20);
    }
    let error = record.to_line().expect_err("broken").to_string();
    assert!(error.contains("\"latency\""), "{error}");
}

#[test]
fn steal_spoils_what_depends_on_the_machine_and_nothing_else() {
    let stolen = |mut record: Record| {
        record.conditions.steal = Some(0.3);
        record.settle(0.05);
        record
    };
    assert!(stolen(with(record(1, "a"), "x", counted(1.0))).is_valid());
    assert!(!stolen(with(record(1, "a"), "x", measured(1.0))).is_valid());
    let mut quiet = with(record(1, "a"), "x", measured(1.0));
    quiet.settle(0.05);
    assert!(quiet.is_valid());
    // The first reason is the one to be told.
    let mut spoilt = full();
    spoilt.conditions.steal = Some(0.3);
    spoilt.settle(0.05);
    assert_eq!(spoilt.valid, Validity::Invalid("a reason".to_owned()));
}

#[test]
fn order_is_the_commits_and_then_the_runs() {
    let (old, new) = (record(1, "a"), record(2, "a"));
    let mut late = old.clone();
    late.unix_seconds += 100 * crate::samples::DAY;
    assert!(old.order() < late.order() && late.order() < new.order());
    late.commit.committed = None;
    assert!(late.order() > new.order());
}

#[test]
fn changed_source_is_the_same_as_nothing() {
    let (clean, mut dirty) = (commit(1), commit(1));
    dirty.dirty = true;
    assert!(clean.is_same(&clean) && !clean.is_same(&dirty) && !dirty.is_same(&dirty));
    assert!(dirty.to_string().ends_with("-dirty"));
    assert_eq!(clean.to_string().len(), 9);
}
