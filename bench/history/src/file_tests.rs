use super::*;
use crate::{
    Better, Figure, Kind,
    samples::{counted, record, with},
};
use proptest::prelude::*;
use std::fs;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

fn some(number: u64) -> Record {
    with(record(number, "epochs"), "messages", counted(number as f64))
}

#[test]
fn what_is_added_is_read_in_its_order() {
    let folder = folder();
    let path = folder.path().join("history.jsonl");
    let records: Vec<Record> = (0..5).map(some).collect();
    for record in &records {
        assert_eq!(append(&path, record).expect("added"), None);
    }
    let contents = read(&path).expect("read");
    assert_eq!((contents.records, contents.torn), (records, None));
}

#[test]
fn a_torn_last_line_is_reported_and_then_cut_off() {
    let whole = some(1).to_line().expect("a line").len();
    for kept in [1, 5, 11, whole / 2, whole - 1] {
        let folder = folder();
        let path = folder.path().join("history.jsonl");
        append(&path, &some(0)).expect("added");
        let first = fs::metadata(&path).expect("there").len() as usize;
        append(&path, &some(1)).expect("added");
        let text = fs::read(&path).expect("there");
        fs::write(&path, &text[..first + kept]).expect("torn");

        let contents = read(&path).expect("read");
        assert_eq!(contents.records, [some(0)]);
        let torn = contents.torn.expect("reported");
        assert!(torn.contains(":2: the last line is torn"), "{torn}");

        let said = append(&path, &some(2)).expect("added").expect("reported");
        assert!(said.contains(&format!("{kept} bytes")), "{said}");
        let contents = read(&path).expect("read");
        assert_eq!(
            (contents.records, contents.torn),
            (vec![some(0), some(2)], None)
        );
    }
}

#[test]
fn a_whole_last_line_without_its_end_is_kept() {
    let folder = folder();
    let path = folder.path().join("history.jsonl");
    append(&path, &some(0)).expect("added");
    let text = fs::read_to_string(&path).expect("there");
    fs::write(&path, text.trim_end()).expect("written");
    assert_eq!(read(&path).expect("read").records, [some(0)]);
    assert_eq!(append(&path, &some(1)).expect("added"), None);
    assert_eq!(read(&path).expect("read").records, [some(0), some(1)]);
}

#[test]
fn a_line_that_is_broken_is_an_error_with_file_line_and_remedy() {
    let folder = folder();
    let path = folder.path().join("history.jsonl");
    append(&path, &some(0)).expect("added");
    let good = fs::read_to_string(&path).expect("there");
    let cases: [(&str, &str); 4] = [
        ("<<<<<<< ours\n", "not a record"),
        ("{\"schema\":9}\n", "schema is 9"),
        ("{\"schema\":9}", "schema is 9"),
        ("{\"schema\":1,\"torn\":\n", "not a record"),
    ];
    for (bad, problem) in cases {
        fs::write(&path, format!("{good}\n{bad}")).expect("written");
        let error = read(&path).expect_err("broken").to_string();
        assert!(error.contains("history.jsonl:3: "), "{error}");
        assert!(
            error.contains(problem) && error.contains("Repair the line"),
            "{error}"
        );
    }
}

#[test]
fn what_is_no_history_is_neither_read_nor_cut() {
    let folder = folder();
    let path = folder.path().join("notes.txt");
    for text in [&b"one\ntwo"[..], b"\xff\xfe\n", b"\xff"] {
        fs::write(&path, text).expect("written");
        assert!(read(&path).is_err());
        if text.last() != Some(&b'\n') {
            let error = append(&path, &some(0)).expect_err("no history").to_string();
            assert!(error.contains("notes.txt:"), "{error}");
            assert_eq!(fs::read(&path).expect("there"), text);
        }
    }
}

#[test]
fn a_line_without_end_is_not_read_into_memory() {
    let folder = folder();
    let path = folder.path().join("history.jsonl");
    // Holes take no room on the disk.
    let file = File::create(&path).expect("made");
    file.set_len(MAX_FILE_BYTES - 1).expect("a hole");
    let error = read(&path).expect_err("too long").to_string();
    assert!(error.contains(":1: the line is longer than"), "{error}");
    file.set_len(MAX_FILE_BYTES + 1).expect("a hole");
    assert!(matches!(read(&path), Err(FileError::Large { .. })));
    assert!(matches!(
        append(&path, &some(0)),
        Err(FileError::Large { .. })
    ));
}

#[test]
fn a_record_out_of_its_limits_leaves_the_file_alone() {
    let folder = folder();
    let path = folder.path().join("history.jsonl");
    append(&path, &some(0)).expect("added");
    let error = append(&path, &with(some(1), "x", counted(f64::NAN))).expect_err("not a number");
    assert!(error.to_string().contains("x is NaN"), "{error}");
    assert_eq!(read(&path).expect("read").records.len(), 1);
}

#[test]
fn a_missing_file_is_an_error_that_names_it() {
    let error = read(Path::new("/nowhere/history.jsonl"))
        .expect_err("missing")
        .to_string();
    assert!(error.contains("opening /nowhere/history.jsonl"), "{error}");
}

#[test]
fn writers_at_once_do_not_mix_their_lines() {
    let folder = folder();
    let path = folder.path().join("history.jsonl");
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let path = &path;
            scope.spawn(move || {
                for number in 0..10 {
                    append(path, &some(writer * 100 + number)).expect("added");
                }
            });
        }
    });
    let records = read(&path).expect("read").records;
    assert_eq!(records.len(), 40);
    for writer in 0..4 {
        let own = records.iter().map(|r| r.figures["messages"].value as u64);
        let own: Vec<u64> = own.filter(|value| value / 100 == writer).collect();
        assert_eq!(own, (writer * 100..writer * 100 + 10).collect::<Vec<_>>());
    }
}

#[test]
fn nobody_reads_or_writes_while_another_writes() {
    let folder = folder();
    let path = folder.path().join("history.jsonl");
    append(&path, &some(0)).expect("added");
    let before = fs::read(&path).expect("there");
    let other = File::open(&path).expect("there");
    other.lock().expect("nobody else has it");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| append(&path, &some(1)).expect("added"));
        let reader = scope.spawn(|| read(&path).expect("read"));
        std::thread::sleep(std::time::Duration::from_millis(100));
        let waited = !writer.is_finished() && !reader.is_finished();
        let meanwhile = fs::read(&path).expect("there");
        other.unlock().expect("it is ours");
        assert!(waited && meanwhile == before);
    });
    assert_eq!(read(&path).expect("read").records.len(), 2);
}

fn figures() -> impl Strategy<Value = Record> {
    let value = any::<f64>().prop_filter("finite", |value| value.is_finite());
    let kind = prop_oneof![
        Just(Kind::Deterministic),
        Just(Kind::Wall),
        Just(Kind::History)
    ];
    let better = prop_oneof![Just(Better::Lower), Just(Better::Higher)];
    let figure = (value, "[^\\p{C}]{1,20}", better, kind)
        .prop_map(|(value, unit, better, kind)| Figure::new(value, &unit, better, kind));
    let figures = prop::collection::btree_map("[^\\p{C}]{1,20}", figure, 0..8);
    (figures, any::<u64>(), ".{0,40}").prop_map(|(figures, unix_seconds, fault)| {
        let mut record = record(1, "any");
        record.figures = figures;
        record.unix_seconds = unix_seconds;
        record.faults.push(fault);
        record
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_records_survive_the_file(records in prop::collection::vec(figures(), 0..6)) {
        let folder = folder();
        let path = folder.path().join("history.jsonl");
        for record in &records {
            append(&path, record).expect("added");
        }
        if !records.is_empty() {
            prop_assert_eq!(read(&path).expect("read").records, records);
        }
    }

    #[test]
    fn any_cut_loses_the_last_record_at_most(cut in 0_usize..2_000) {
        let folder = folder();
        let path = folder.path().join("history.jsonl");
        for number in 0..3 {
            append(&path, &some(number)).expect("added");
        }
        let text = fs::read(&path).expect("there");
        let kept = &text[..text.len() - cut.min(text.len())];
        fs::write(&path, kept).expect("cut");
        let ends = kept.iter().filter(|byte| **byte == b'\n').count();
        append(&path, &some(7)).expect("added");
        let records = read(&path).expect("read").records;
        prop_assert!(records.len() == ends + 1 || records.len() == ends + 2);
        prop_assert_eq!(records.last(), Some(&some(7)));
        prop_assert_eq!(&records[..ends], &(0..ends as u64).map(some).collect::<Vec<_>>());
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let folder = folder();
        let path = folder.path().join("history.jsonl");
        fs::write(&path, bytes).expect("written");
        let _ = read(&path);
    }
}
