//! Regions of a cloud provider and the round trips between them.
//!
//! A table holds round trips, as they are measured; the one-way delay is half of that. The
//! simulator does the same.

use crate::link::Link;
use quorate_files::read_text;
use serde::Deserialize;
use std::{collections::BTreeMap, io, path::Path, time::Duration};

/// Ten regions on all continents but two, in the simulator's order.
pub const WORLD: [&str; 10] = [
    "us-west-1",
    "us-east-1",
    "eu-west-1",
    "ap-northeast-1",
    "eu-north-1",
    "ap-south-1",
    "sa-east-1",
    "eu-central-1",
    "ap-northeast-2",
    "ap-southeast-2",
];

/// Four regions of one country, in the simulator's order.
pub const UNITED_STATES: [&str; 4] = ["us-east-1", "us-east-2", "us-west-1", "us-west-2"];

/// Medians and 90th percentiles of the round trips between these regions, in milliseconds.
const MEDIANS: &str = include_str!("../data/round-trips-p50.json");
const NINTH_DECILES: &str = include_str!("../data/round-trips-p90.json");

/// The longest round trip that a table may hold, in milliseconds.
const MAX_ROUND_TRIP_MS: f64 = 10_000.0;

/// The largest table file, in bytes.
const MAX_MAP_BYTES: u64 = 4 << 20;

/// The difference between the 90th percentile and the median of the sum of two uniform jitters of
/// width 1: the sum has a triangular density, whose 90th percentile is 2 - sqrt(0.2) and whose
/// median is 1.
const DECILE_OF_TWO_UNIFORMS: f64 = 0.552_786;

/// Why a table cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RegionsError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read { path: String, source: io::Error },
    /// The file does not have the expected format.
    #[error(
        "the table is not of the form {{\"data\": {{\"FROM\": {{\"TO\": MILLISECONDS}}}}}}: {0}"
    )]
    Form(#[from] serde_json::Error),
    /// A round trip is out of range.
    #[error(
        "the round trip from {from} to {to} is {ms} ms; it must be from 0 to {MAX_ROUND_TRIP_MS} ms"
    )]
    RoundTrip {
        from: String,
        to: String,
        /// The table's value.
        ms: f64,
    },
    /// The table does not contain the region.
    #[error("there is no region `{name}`; did you mean `{nearest}`? There are {known}")]
    Unknown {
        /// The requested name.
        name: String,
        /// The most similar name in the table.
        nearest: String,
        /// All names in the table.
        known: String,
    },
    /// The table contains both regions, but not the round trip between them.
    #[error("the table has no round trip from {from} to {to}")]
    Missing { from: String, to: String },
    /// No regions were named.
    #[error("no region was named")]
    None,
}

#[derive(Deserialize)]
struct File {
    data: BTreeMap<String, BTreeMap<String, f64>>,
}

/// An ordered list of regions, and the round trips between any two of them. Endpoint i is in region
/// i modulo their number.
#[derive(Clone, Debug, PartialEq)]
pub struct Regions {
    names: Vec<String>,
    /// Indexed by the first region, then by the second; in microseconds.
    round_trips_us: Vec<Vec<u64>>,
}

impl Regions {
    /// The ten regions of [`WORLD`] with their median round trips.
    pub fn world() -> Self {
        Self::parse(MEDIANS, &WORLD).expect("the table in this crate has these regions")
    }

    /// The four regions of [`UNITED_STATES`] with their median round trips.
    pub fn united_states() -> Self {
        Self::parse(MEDIANS, &UNITED_STATES).expect("the table in this crate has these regions")
    }

    /// The 90th percentiles for regions of this crate's tables, for [`Self::jittered`].
    ///
    /// # Errors
    ///
    /// If a name is in neither [`WORLD`] nor [`UNITED_STATES`].
    pub fn ninth_deciles(names: &[impl AsRef<str>]) -> Result<Self, RegionsError> {
        Self::parse(NINTH_DECILES, names)
    }

    /// Parses a table of round trips in milliseconds, `{"data": {"FROM": {"TO": MS}}}`, and selects
    /// the named regions in the given order.
    ///
    /// # Errors
    ///
    /// If the format is wrong, a named region or pair is missing, or a value is out of range.
    pub fn parse(json: &str, names: &[impl AsRef<str>]) -> Result<Self, RegionsError> {
        let table = serde_json::from_str::<File>(json)?.data;
        if names.is_empty() {
            return Err(RegionsError::None);
        }
        for name in names {
            known(&table, name.as_ref())?;
        }
        let row = |from: &str| {
            names
                .iter()
                .map(|to| round_trip(&table, from, to.as_ref()))
                .collect()
        };
        Ok(Self {
            names: names.iter().map(|name| name.as_ref().to_owned()).collect(),
            round_trips_us: names
                .iter()
                .map(|from| row(from.as_ref()))
                .collect::<Result<_, _>>()?,
        })
    }

    /// Like [`Self::parse`], with all regions of the table in the order of their names.
    ///
    /// # Errors
    ///
    /// As for [`Self::parse`].
    pub fn parse_all(json: &str) -> Result<Self, RegionsError> {
        let table = serde_json::from_str::<File>(json)?.data;
        let names: Vec<&String> = table.keys().collect();
        Self::parse(json, &names)
    }

    /// Reads a file as [`Self::parse`] does.
    ///
    /// # Errors
    ///
    /// As for [`Self::parse`], and if the file cannot be read.
    pub fn load(path: &Path, names: &[impl AsRef<str>]) -> Result<Self, RegionsError> {
        let json = read_text(path, MAX_MAP_BYTES).map_err(|error| RegionsError::Read {
            path: path.display().to_string(),
            source: error.into(),
        })?;
        Self::parse(&json, names)
    }

    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The region of endpoint `place`.
    pub fn region(&self, place: usize) -> &str {
        &self.names[place % self.names.len()]
    }

    /// The round trip between endpoints `from` and `to`.
    pub fn round_trip(&self, from: usize, to: usize) -> Duration {
        Duration::from_micros(self.round_trip_us(from, to))
    }

    /// The delay from endpoint `from` to endpoint `to`: half a round trip, in whole microseconds.
    pub fn one_way(&self, from: usize, to: usize) -> Duration {
        Duration::from_micros(self.round_trip_us(from, to) / 2)
    }

    /// The link from endpoint `from` to endpoint `to`, without jitter, as in the simulator.
    pub fn link(&self, from: usize, to: usize) -> Link {
        Link::with_delay(self.one_way(from, to))
    }

    /// Like [`Self::link`] with jitter, so that round trips have this table's median and `slow`'s
    /// 90th percentile.
    ///
    /// The jitter is at most half of the round trip: the delay never becomes zero. What a provider
    /// measures over weeks changes slowly, but here the jitter of each piece is drawn
    /// independently. So this is the upper bound of what jitter does to a protocol.
    ///
    /// # Panics
    ///
    /// If `slow` has fewer regions than this.
    pub fn jittered(&self, slow: &Self, from: usize, to: usize) -> Link {
        let median = self.round_trip_us(from, to);
        let decile = slow.round_trip_us(from, to);
        let width = decile.saturating_sub(median) as f64 / DECILE_OF_TWO_UNIFORMS;
        let jitter = (width as u64).min(median / 2);
        Link {
            // Each way adds half its jitter on average.
            delay: Duration::from_micros((median - jitter) / 2),
            jitter: Duration::from_micros(jitter),
            ..Link::default()
        }
    }

    fn round_trip_us(&self, from: usize, to: usize) -> u64 {
        let regions = self.names.len();
        self.round_trips_us[from % regions][to % regions]
    }
}

type Table = BTreeMap<String, BTreeMap<String, f64>>;

fn known(table: &Table, name: &str) -> Result<(), RegionsError> {
    if table.contains_key(name) {
        return Ok(());
    }
    let nearest = table.keys().min_by_key(|known| edits(known, name));
    Err(RegionsError::Unknown {
        name: name.to_owned(),
        nearest: nearest.cloned().unwrap_or_default(),
        known: table.keys().cloned().collect::<Vec<_>>().join(", "),
    })
}

fn round_trip(table: &Table, from: &str, to: &str) -> Result<u64, RegionsError> {
    let (from, to) = (from.to_owned(), to.to_owned());
    let Some(ms) = table.get(&from).and_then(|row| row.get(&to)).copied() else {
        return Err(RegionsError::Missing { from, to });
    };
    if !(0.0..=MAX_ROUND_TRIP_MS).contains(&ms) {
        return Err(RegionsError::RoundTrip { from, to, ms });
    }
    Ok((ms * 1e3).round() as u64)
}

/// The Levenshtein distance.
fn edits(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (line, from) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, to) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng, rngs::SmallRng};

    #[test]
    fn the_tables_are_those_of_the_simulator() {
        let source = include_str!("../../../sim/src/network.rs");
        for (map, regions) in [
            ("pub static WORLD", Regions::world()),
            ("pub static UNITED_STATES", Regions::united_states()),
        ] {
            let after = &source[source.find(map).unwrap()..];
            let (head, table) = after.split_once("round_trips_us").unwrap();
            let names: Vec<&str> = head.split('"').skip(3).step_by(2).collect();
            assert_eq!(regions.names(), names);
            let table = &table[..table.find("};").unwrap()];
            let numbers: Vec<u64> = table
                .replace('_', "")
                .split(|c: char| !c.is_ascii_digit())
                .filter_map(|number| number.parse().ok())
                .collect();
            assert_eq!(regions.round_trips_us.concat(), numbers);
        }
    }

    #[test]
    fn one_way_is_half_of_a_round_trip_and_regions_repeat() {
        let world = Regions::world();
        assert_eq!(world.round_trip(0, 1), Duration::from_micros(63_944));
        assert_eq!(world.one_way(0, 11), Duration::from_micros(31_972));
        assert_eq!(world.region(11), "us-east-1");
        assert_eq!(world.link(0, 1).delay, world.one_way(0, 1));
    }

    #[test]
    fn jitter_keeps_the_median_and_gives_the_ninth_decile() {
        let world = Regions::world();
        let slow = Regions::ninth_deciles(&WORLD).unwrap();
        let mut rng = SmallRng::seed_from_u64(3);
        let link = world.jittered(&slow, 0, 1);
        let mut trips: Vec<Duration> = (0..20_000)
            .map(|_| {
                let mut way = || link.delay + rng.random_range(Duration::ZERO..=link.jitter);
                way() + way()
            })
            .collect();
        trips.sort();
        for (place, wanted) in [(10_000, 63_944), (18_000, 74_256)] {
            let off = trips[place].abs_diff(Duration::from_micros(wanted));
            assert!(off < Duration::from_micros(600), "{place}: off by {off:?}");
        }
    }

    #[test]
    fn an_unknown_region_is_told_with_what_there_is() {
        let error = Regions::ninth_deciles(&["us-west-1", "us-est-1"]).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("`us-est-1`"), "{text}");
        assert!(text.contains("did you mean `us-east-1`"), "{text}");
        assert!(text.contains("sa-east-1"), "{text}");
    }

    #[test]
    fn broken_tables_are_refused_with_the_reason() {
        let parse = |json: &str| Regions::parse_all(json).unwrap_err().to_string();
        assert!(parse("{}").contains("`data`"));
        assert!(parse("[1").contains("of the form"));
        assert!(parse(r#"{"data": {}}"#).contains("no region"));
        assert!(parse(r#"{"data": {"a": {"a": -1}}}"#).contains("from a to a is -1"));
        let missing = parse(r#"{"data": {"a": {"a": 1, "b": 1}, "b": {"b": 1}}}"#);
        assert!(missing.contains("from b to a"), "{missing}");
        let none = Path::new("/nowhere/table.json");
        let error = Regions::load(none, &["a"]).unwrap_err().to_string();
        assert!(error.contains("/nowhere/table.json"), "{error}");
    }
}
