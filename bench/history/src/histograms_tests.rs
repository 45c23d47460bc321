use super::*;
use hdrhistogram::serialization::V2Serializer;

const HOUR_US: u64 = 3_600_000_000;

fn of(values: impl Iterator<Item = u64>, highest: u64) -> Histogram<u64> {
    let mut histogram = Histogram::new_with_bounds(1, highest, 3).expect("bounds");
    values.for_each(|value| histogram.record(value).expect("within"));
    histogram
}

fn saved(values: impl Iterator<Item = u64>) -> Saved {
    Saved::new("µs", &of(values, HOUR_US))
}

fn merged(parts: &[Saved]) -> Merged {
    Merged::of(parts)
        .expect("readable")
        .expect("there are some")
}

#[test]
fn a_merged_percentile_is_that_of_all_values_and_no_average() {
    // 990 fast ones in one run and 10 slow ones in another: the average of both p99 is 5,005.
    let both = merged(&[saved((0..990).map(|_| 10)), saved((0..10).map(|_| 10_000))]);
    assert_eq!(both.count(), 1_000);
    assert_eq!(both.quantile(0.99), Some(10.0));
    let slow = both.quantile(0.995).expect("some");
    assert!((9_990.0..10_010.0).contains(&slow), "{slow}");
    let all = merged(&[
        saved((1..=5_000).map(|i| i * 3)),
        saved((5_001..=9_000).map(|i| i * 3)),
    ]);
    let at_once = merged(&[saved((1..=9_000).map(|i| i * 3))]);
    assert_eq!(all.saved(), at_once.saved());
}

#[test]
fn the_load_generators_plain_text_is_read_too() {
    let histogram = of((1..=1_000).map(|i| i * 17), HOUR_US);
    let mut bytes = Vec::new();
    V2Serializer::new()
        .serialize(&histogram, &mut bytes)
        .expect("memory");
    let plain = Saved {
        unit: "µs".to_owned(),
        v2: BASE64_STANDARD.encode(&bytes),
    };
    let deflated = Saved::new("µs", &histogram);
    assert!(deflated.v2.len() < plain.v2.len());
    assert_eq!(plain.read().expect("plain"), histogram);
    assert_eq!(deflated.read().expect("deflated"), histogram);
    assert_eq!(merged(&[plain, deflated]).count(), 2_000);
}

#[test]
fn a_histogram_that_reaches_further_makes_the_sum_reach_further() {
    let (short, long) = (
        of([5].into_iter(), 1_000),
        of([900_000].into_iter(), 1_000_000),
    );
    let both = merged(&[Saved::new("µs", &short), Saved::new("µs", &long)]);
    assert_eq!(both.count(), 2);
    let most = both.quantile(1.0).expect("two");
    assert!((899_000.0..901_000.0).contains(&most), "{most}");
}

#[test]
fn other_units_are_not_added_and_none_are_no_sum() {
    let mut other = saved([1].into_iter());
    other.unit = "bytes".to_owned();
    let error = Merged::of(&[saved([1].into_iter()), other]).expect_err("units");
    assert!(matches!(error, HistogramError::Units { .. }), "{error}");
    assert!(Merged::of(&[]).expect("nothing to read").is_none());
    assert_eq!(merged(&[saved(std::iter::empty())]).quantile(0.5), None);
}

#[test]
fn what_is_no_histogram_is_refused() {
    let refused = |v2: String| {
        let unit = "µs".to_owned();
        Saved { unit, v2 }
            .read()
            .expect_err("no histogram")
            .to_string()
    };
    let whole = saved((1..100).map(|i| i * i)).v2;
    assert!(refused(whole[..whole.len() - 8].to_owned()).contains("not a histogram"));
    assert!(refused(String::new()).contains("something else"));
    assert!(refused("not base64!".to_owned()).contains("base64"));
    assert!(refused("A".repeat(MAX_TEXT_BYTES + 4)).contains("larger"));
    assert!(refused(BASE64_STANDARD.encode(DEFLATED)).contains("not a histogram"));
}

/// The library would reserve four gigabytes at the sight of this header.
#[test]
fn a_header_that_promises_too_much_is_refused() {
    let mut bytes = BASE64_STANDARD
        .decode(saved([7].into_iter()).v2)
        .expect("ours");
    bytes = inflated(&bytes).expect("ours");
    for (at, promise, problem) in [(4, u32::MAX, "its length"), (12, 5, "4 digits")] {
        let mut changed = bytes.clone();
        changed[at..at + 4].copy_from_slice(&promise.to_be_bytes());
        let unit = "µs".to_owned();
        let v2 = BASE64_STANDARD.encode(&changed);
        let error = Saved { unit, v2 }.read().expect_err("refused").to_string();
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn deflated_bytes_do_not_unfold_without_end() {
    use flate2::{Compression, write::ZlibEncoder};
    use std::io::Write as _;
    let mut zeros = ZlibEncoder::new(Vec::new(), Compression::best());
    let many = vec![0; 2 * MAX_PLAIN_BYTES];
    zeros.write_all(&many).expect("memory");
    // Whoever unfolds all of it finds the end missing.
    let mut zeros = zeros.finish().expect("memory");
    zeros.truncate(zeros.len() - 12);
    let mut bytes = DEFLATED.to_vec();
    bytes.extend([0; 4]);
    bytes.extend(zeros);
    let bomb = Saved {
        unit: "µs".to_owned(),
        v2: BASE64_STANDARD.encode(bytes),
    };
    assert!(matches!(bomb.read(), Err(HistogramError::Large { .. })));
}
