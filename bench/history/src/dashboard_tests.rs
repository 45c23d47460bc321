use super::*;
use crate::samples::{commit, counted, host, invalid, measured, ratio, record, with};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A history with a bit of everything.
fn history() -> Vec<Record> {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut noise = |size: f64| {
        let sum: f64 = (0..12).map(|_| random.random_range(-0.5..0.5)).sum();
        (size * sum).exp()
    };
    let mut records = Vec::new();
    for number in 0..40 {
        let steps = |at: u64| f64::from(u8::from(number >= at));
        let mut one = record(number, "epochs");
        one = with(one, "messages per block", counted(66.0 - 12.0 * steps(25)));
        let mut bytes = counted(41_233.0 + 900.0 * steps(12));
        bytes.unit = "bytes".to_owned();
        one = with(one, "bytes per block", bytes);
        let slower = if number == 31 { 1.4 } else { 1.0 };
        one = with(one, "finality p50", measured(212.0 * slower * noise(0.02)));
        let mut other = record(number, "wan/saturated");
        let middle = (if number == 18 { 1.12 } else { 1.0 }) * noise(0.01);
        other = with(
            other,
            "cost of a block",
            ratio(middle * 0.98, middle * 1.02),
        );
        let mut rate = measured(8_432.0 * noise(0.03));
        rate.unit = "transfers/s".to_owned();
        rate.better = crate::Better::Higher;
        other = with(other, "throughput", rate);
        other.baseline = Some(commit(number.saturating_sub(1)));
        if number == 22 {
            other = invalid(
                other,
                "31.0% of the processor time was stolen, 5.0% may be <b>",
            );
        }
        records.extend([one, other]);
    }
    let mut last = with(record(40, "epochs"), "messages per block", counted(58.0));
    last.commit.dirty = true;
    last.faults.push("validator 2 was killed twice".to_owned());
    records.push(last);
    let mut elsewhere = with(record(40, "epochs"), "messages per block", counted(54.0));
    elsewhere.host = Host::new("Another <processor>", 64, 256 << 30, "6.12");
    records.push(elsewhere);
    records
}

fn page(records: &[Record]) -> String {
    Dashboard {
        title: "Quorate over time",
        records,
        limits: &Limits::default(),
        reproduce: &[
            "make bench".to_owned(),
            "quorate-bench compare A B".to_owned(),
        ],
        remarks: &[],
    }
    .page()
    .expect("drawn")
}

#[test]
fn the_page_shows_every_figure_and_asks_nobody() {
    let text = page(&history());
    // Three and two of one host, one of the other.
    assert_eq!(text.matches("<svg").count(), 6);
    assert!(text.contains("throughput, transfers/s"));
    assert!(
        text.contains(&commit(33).hash[..7]),
        "labels are short hashes"
    );
    // The namespace of SVG is a name, not an address that is asked.
    let rest = text.replace("http://www.w3.org/2000/svg", "");
    for asks in [
        "http",
        "src=",
        "href",
        "url(",
        "@import",
        "<script",
        "<b>",
        "<processor>",
    ] {
        assert!(!rest.contains(asks), "{asks}");
    }
    // For those who want to see it.
    if let Ok(path) = std::env::var("QUORATE_DASHBOARD") {
        std::fs::write(path, text).expect("written");
    }
}

#[test]
fn invalid_records_are_hollow_and_listed_with_their_reason() {
    let text = page(&history());
    assert!(text.contains(
        "<td class=\"words\">31.0% of the processor time was stolen, 5.0% may be &lt;b&gt;</td>"
    ));
    // The invalid record has two figures.
    let is_hollow = |line: &&str| line.contains("<circle") && line.contains("fill=\"none\"");
    assert_eq!(text.lines().filter(is_hollow).count(), 2);
}

#[test]
fn the_newest_records_are_judged_at_the_top() {
    let mut records = history();
    // What only older records have is no news.
    for (record, value) in records.iter_mut().zip([1.0, 1.0, 2.0]) {
        record.figures.insert("gone".to_owned(), counted(value));
    }
    let text = page(&records);
    assert!(text.contains("gone, messages"));
    let top = text.split("<h3>").next().expect("a beginning");
    assert!(
        top.contains("epochs: messages per block") && top.contains("REGRESSION"),
        "{top}"
    );
    assert!(
        !top.contains("throughput") && !top.contains("gone"),
        "{top}"
    );
    let calm: Vec<Record> = history()
        .into_iter()
        .filter(|r| r.commit != commit(40))
        .collect();
    let calm: Vec<Record> = calm.into_iter().filter(|r| !r.commit.dirty).collect();
    let text = page(&calm);
    assert!(text.contains("Nothing is worse or better"));
}

#[test]
fn each_host_has_a_section_and_its_newest_values_a_table() {
    let text = page(&history());
    assert!(text.contains("<h2>2 × Example 9000</h2>") && text.contains(&host().id));
    assert!(text.contains("<h2>64 × Another &lt;processor&gt;</h2>"));
    assert!(text.contains("<td>58 messages</td><td>54</td><td>1.074</td>"));
    assert!(text.contains("make bench\nquorate-bench compare A B"));
    assert!(text.contains("Faults: validator 2 was killed twice."));
}

#[test]
fn an_empty_history_is_a_page_too() {
    assert!(page(&[]).contains("Nothing has been measured yet"));
}
