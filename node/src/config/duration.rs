//! Durations as text: a whole number with a unit, for instance `500ms`.

use std::time::Duration;

/// The expected format, for error messages.
pub(crate) const EXPECTED: &str =
    "a whole number with a unit (us, ms, s, m, h or d), for instance \"500ms\"";

/// The units used for formatting, largest first, in microseconds.
const UNITS: [(&str, u64); 5] = [
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
];

/// A day. Accepted by the parser but never used for formatting: most durations are hours at most.
const DAY: (&str, u64) = ("d", 24 * 3_600_000_000);

/// Parses a duration.
///
/// # Errors
///
/// If the text does not match [`EXPECTED`], or the duration does not fit in 64 bits of
/// microseconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let error = || format!("{text:?} is no duration; expected {EXPECTED}");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = UNITS
        .into_iter()
        .chain([DAY])
        .find(|(name, _)| *name == unit.trim_start())
        .ok_or_else(error)?;
    let number: u64 = number.parse().map_err(|_| error())?;
    let micros = number.checked_mul(factor).ok_or_else(error)?;
    Ok(Duration::from_micros(micros))
}

/// Formats a duration with the largest unit that gives a whole number. Truncates to microseconds.
pub fn format_duration(duration: Duration) -> String {
    let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    let (unit, factor) = UNITS
        .into_iter()
        .find(|(_, factor)| micros >= *factor && micros.is_multiple_of(*factor))
        .unwrap_or(("ms", 1_000));
    format!("{}{unit}", micros / factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_read_and_written() {
        let cases = [
            ("250us", 250),
            ("0ms", 0),
            ("500ms", 500_000),
            ("30s", 30_000_000),
            ("90s", 90_000_000),
            ("2m", 120_000_000),
            ("1h", 3_600_000_000),
        ];
        for (text, micros) in cases {
            let duration = Duration::from_micros(micros);
            assert_eq!(parse_duration(text), Ok(duration), "{text}");
            assert_eq!(format_duration(duration), text);
        }
        assert_eq!(parse_duration("5 s"), Ok(Duration::from_secs(5)));
        assert_eq!(parse_duration("7d"), Ok(Duration::from_secs(7 * 86_400)));
    }

    #[test]
    fn numbers_without_a_unit_and_the_like_are_refused() {
        let refused = [
            "",
            "5",
            "s",
            "-1s",
            "1.5s",
            "1sec",
            "1S",
            " 1s",
            "1e3ms",
            "99999999999999999999s",
            "18446744073709551615h",
        ];
        for text in refused {
            assert!(parse_duration(text).is_err(), "{text:?}");
        }
    }
}
