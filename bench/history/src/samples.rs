//! Records for tests.

use crate::{
    Better, Commit, Conditions, Figure, Host, Interval, Kind, Record, Validity, gates::wall::RATIO,
};

pub(crate) const DAY: u64 = 86_400;
pub(crate) const START: u64 = 1_767_225_600;

/// A commit, told apart by its number and committed on that day.
pub(crate) fn commit(number: u64) -> Commit {
    Commit {
        hash: format!(
            "{:016x}{number:024x}",
            (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ),
        dirty: false,
        committed: Some(START + number * DAY),
    }
}

pub(crate) fn host() -> Host {
    Host::new("Example 9000", 2, 8 << 30, "6.1.0")
}

/// A record of this commit, measured soon after it.
pub(crate) fn record(number: u64, scenario: &str) -> Record {
    let conditions = Conditions {
        seconds: 61.5,
        steal: Some(0.01),
        idle: Some(0.25),
        load_before: Some(0.5),
        load_after: Some(1.9),
    };
    Record::new(
        scenario,
        commit(number),
        host(),
        conditions,
        START + number * DAY + 600,
    )
}

pub(crate) fn with(mut record: Record, name: &str, figure: Figure) -> Record {
    record.figures.insert(name.to_owned(), figure);
    record
}

pub(crate) fn counted(value: f64) -> Figure {
    Figure::new(value, "messages", Better::Lower, Kind::Deterministic)
}

pub(crate) fn measured(value: f64) -> Figure {
    Figure::new(value, "ms", Better::Lower, Kind::History)
}

pub(crate) fn ratio(lower: f64, upper: f64) -> Figure {
    Figure {
        interval: Some(Interval { lower, upper }),
        ..Figure::new((lower * upper).sqrt(), RATIO, Better::Lower, Kind::Wall)
    }
}

pub(crate) fn invalid(mut record: Record, reason: &str) -> Record {
    record.valid = Validity::Invalid(reason.to_owned());
    record
}
