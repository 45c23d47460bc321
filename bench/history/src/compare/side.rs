//! What is compared: the records of a commit, or the newest of a file.

use crate::record::Record;
use std::collections::{BTreeMap, BTreeSet};

/// Shorter beginnings of a hash are not looked up.
pub const LEAST_DIGITS: usize = 4;

/// One of the two.
#[derive(Clone, Debug)]
pub struct Side<'a> {
    /// What it is called.
    pub name: String,
    /// What was measured of it.
    pub records: Vec<&'a Record>,
}

/// Why there is no such side.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SideError {
    /// The text is too short to mean one commit.
    #[error("{text:?} is too short for a commit: {LEAST_DIGITS} digits are needed")]
    Short {
        /// What was asked for.
        text: String,
    },
    /// Nothing was measured of it.
    #[error("the history has no record of {text:?}; it has {has}")]
    Missing {
        /// What was asked for.
        text: String,
        /// The newest commits that it has.
        has: String,
    },
    /// Several commits begin so.
    #[error("{text:?} may be {hashes}: give more digits")]
    Ambiguous {
        /// What was asked for.
        text: String,
        /// What it may mean.
        hashes: String,
    },
}

impl<'a> Side<'a> {
    /// The records of the commit whose hash begins so. `-dirty` at the end means those of its
    /// changed source, otherwise they are left out.
    ///
    /// # Errors
    ///
    /// If there is none, or not only one.
    pub fn commit(records: &'a [Record], text: &str) -> Result<Self, SideError> {
        let (start, dirty) = match text.strip_suffix("-dirty") {
            Some(start) => (start, true),
            None => (text, false),
        };
        let text = text.to_owned();
        if start.len() < LEAST_DIGITS {
            return Err(SideError::Short { text });
        }
        let found: Vec<&Record> = records
            .iter()
            .filter(|r| r.commit.hash.starts_with(start) && r.commit.dirty == dirty)
            .collect();
        let hashes: BTreeSet<&str> = found.iter().map(|r| r.commit.hash.as_str()).collect();
        match (found.first(), hashes.len()) {
            (Some(first), 1) => Ok(Self {
                name: first.commit.to_string(),
                records: found,
            }),
            (Some(_), _) => Err(SideError::Ambiguous {
                text,
                hashes: Vec::from_iter(hashes).join(" or "),
            }),
            (None, _) => Err(SideError::Missing {
                text,
                has: newest_commits(records),
            }),
        }
    }

    /// The newest commit of each scenario and host in a file.
    pub fn newest(name: &str, records: &'a [Record]) -> Self {
        let mut kept = Vec::new();
        for group in groups(records.iter()).into_values() {
            let newest = group.last().map(|record| &record.commit);
            kept.extend(group.iter().filter(|r| Some(&r.commit) == newest));
        }
        Self {
            name: name.to_owned(),
            records: kept,
        }
    }
}

fn newest_commits(records: &[Record]) -> String {
    let mut sorted: Vec<&Record> = records.iter().collect();
    sorted.sort_by_key(|record| record.order());
    let mut names: Vec<String> = Vec::new();
    for record in sorted.into_iter().rev() {
        let name = record.commit.to_string();
        if !names.contains(&name) {
            names.push(name);
        }
        if names.len() == 5 {
            break;
        }
    }
    match names.is_empty() {
        true => "none at all".to_owned(),
        false => names.join(", "),
    }
}

/// Records by scenario and host, each group in order.
pub(super) fn groups<'a>(
    records: impl Iterator<Item = &'a Record>,
) -> BTreeMap<(&'a str, &'a str), Vec<&'a Record>> {
    let mut groups: BTreeMap<_, Vec<&Record>> = BTreeMap::new();
    for record in records {
        let key = (record.scenario.as_str(), record.host.id.as_str());
        groups.entry(key).or_default().push(record);
    }
    for group in groups.values_mut() {
        group.sort_by_key(|record| record.order());
    }
    groups
}
