//! Numbers as text, and quantiles of sorted numbers.

/// Digits that are shown of numbers that are not whole.
const DIGITS: i32 = 4;

/// Whole numbers are shown whole up to this.
const WHOLE: f64 = 1e15;

/// A number: whole ones whole, others with four significant digits; thousands are set apart.
pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    if value == 0.0 || (value.fract() == 0.0 && value.abs() < WHOLE) {
        return grouped(&format!("{value:.0}"));
    }
    let before = value.abs().log10().floor() as i32 + 1;
    if !(-4..=15).contains(&before) {
        return format!("{value:.3e}");
    }
    let places = usize::try_from(DIGITS - before).unwrap_or(0);
    grouped(&format!("{value:.places$}"))
}

fn grouped(text: &str) -> String {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text),
    };
    let (whole, fraction) = match rest.split_once('.') {
        Some((whole, fraction)) => (whole, format!(".{fraction}")),
        None => (rest, String::new()),
    };
    let digits: Vec<char> = whole.chars().collect();
    let groups: Vec<String> = digits
        .rchunks(3)
        .rev()
        .map(|group| group.iter().collect())
        .collect();
    format!("{sign}{}{fraction}", groups.join(","))
}

/// A part as a percentage.
pub(crate) fn percent(part: f64) -> String {
    // As many digits as there are, and no zeros behind them.
    format!("{}%", (part * 1e6).round() / 1e4)
}

/// How much a figure changed.
pub(crate) fn change(before: f64, now: f64) -> String {
    match before == 0.0 {
        true => format!("{} from zero", number(now)),
        false => {
            let percent = 100.0 * (now - before) / before.abs();
            // A small change must not read like none.
            match percent.abs() < 0.05 {
                true => format!("{percent:+.4}%"),
                false => format!("{percent:+.1}%"),
            }
        }
    }
}

/// A ratio; the dash stands for none.
pub(crate) fn ratio(now: f64, before: f64) -> String {
    let ratio = now / before;
    match ratio.is_finite() {
        true => format!("{ratio:.3}"),
        false => "–".to_owned(),
    }
}

/// The quantile of sorted numbers, interpolated between neighbours (Hyndman and Fan's type 7).
///
/// # Panics
///
/// If there are none.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    let part = place - place.floor();
    sorted[below] + part * (sorted[above] - sorted[below])
}

/// A day in UTC, `2026-01-31`, of seconds since 1970.
pub(crate) fn day(unix_seconds: u64) -> String {
    // Days to a civil date: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms". Years
    // begin in March there, so that the odd day is the last one.
    let days = (unix_seconds / 86_400).min(100_000_000) + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_whole_ones_exact() {
        let shown = [
            (0.0, "0"),
            (12.0, "12"),
            (1_234_567.0, "1,234,567"),
            (-1_234.5, "-1,234"),
            (0.123_456, "0.1235"),
            (99.987_6, "99.99"),
            (1.5, "1.500"),
            (1e-9, "1.000e-9"),
            (f64::NAN, "–"),
        ];
        for (value, text) in shown {
            assert_eq!(number(value), text);
        }
        assert_eq!(percent(0.05), "5%");
        assert_eq!(percent(0.001), "0.1%");
        assert_eq!(change(200.0, 201.0), "+0.5%");
        assert_eq!(change(1e6, 1e6 + 1.0), "+0.0001%");
        assert_eq!(ratio(3.0, 0.0), "–");
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        assert_eq!(day(0), "1970-01-01");
        assert_eq!(day(951_782_400), "2000-02-29");
        assert_eq!(day(1_767_225_599), "2025-12-31");
        assert_eq!(day(1_767_225_600), "2026-01-01");
        // Nobody lives then, and nothing overflows.
        assert!(day(u64::MAX).len() > 10);
    }

    #[test]
    fn quantiles_are_between_neighbours() {
        let sorted = [1.0, 2.0, 3.0, 4.0];
        assert_eq!(quantile(&sorted, 0.0), 1.0);
        assert_eq!(quantile(&sorted, 0.5), 2.5);
        assert_eq!(quantile(&sorted, 1.0), 4.0);
        assert_eq!(quantile(&[7.0], 0.9), 7.0);
    }
}
