//! Reading `validator.toml` again while the validator runs.
//!
//! Keys and the genesis file are not read again: that takes a passphrase, and neither can change. So what
//! is compared is the file's text, key by key. Two keys are taken at once, all others need a restart.

use super::{Check, ConfigError, P2pConfig, ValidatorConfig, read_file};
use quorate_types::{Committee, ValidatorIndex};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

/// What can change without a restart.
const TAKEN: [&str; 2] = ["p2p.peers", "log.level"];

/// Reads a configuration file again and tells what has changed.
pub struct Reloader {
    path: PathBuf,
    committee: Committee,
    place: ValidatorIndex,
    /// As it was read last.
    table: toml::Table,
    started_with: toml::Table,
}

/// What has changed in a configuration file.
pub struct Changes {
    /// Where the other validators are, if that has changed.
    pub p2p: Option<P2pConfig>,
    /// What is logged, if that has changed.
    pub log_level: Option<String>,
    /// Keys that differ from what the validator runs with and need a restart.
    pub need_restart: Vec<String>,
}

impl Reloader {
    /// For a validator that runs with this configuration.
    pub fn new(config: &ValidatorConfig) -> Self {
        Self {
            path: config.path.clone(),
            committee: config.committee.clone(),
            place: config.place,
            table: config.table.clone(),
            started_with: config.table.clone(),
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file again. What it said before stays the base of comparison if it cannot be used.
    ///
    /// # Errors
    ///
    /// If the file could not be started with, keys and chain apart.
    pub fn reload(&mut self) -> Result<Changes, ConfigError> {
        let (file, table) = read_file(&self.path)?;
        let check = Check { path: &self.path };
        let values = check.values(file, &self.committee, self.place)?;
        let changed = differing(&self.table, &table);
        let mut need_restart = differing(&self.started_with, &table);
        need_restart.retain(|key| !TAKEN.contains(&key.as_str()));
        self.table = table;
        Ok(Changes {
            p2p: changed.contains(TAKEN[0]).then_some(values.p2p),
            log_level: changed.contains(TAKEN[1]).then_some(values.log.level),
            need_restart: need_restart.into_iter().collect(),
        })
    }
}

/// The keys whose values differ, in sections as `section.key`.
fn differing(one: &toml::Table, other: &toml::Table) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    for name in names {
        let empty = toml::Table::new();
        let section = |table: &toml::Table| match table.get(name) {
            Some(toml::Value::Table(section)) => Some(section.clone()),
            None => Some(empty.clone()),
            Some(_) => None,
        };
        match (section(one), section(other)) {
            (Some(one), Some(other)) => {
                let inner = differing(&one, &other);
                keys.extend(inner.into_iter().map(|key| format!("{name}.{key}")));
            }
            _ if one.get(name) != other.get(name) => {
                keys.insert(name.clone());
            }
            _ => {}
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differing_keys_are_named_with_their_sections() {
        let table = |text: &str| text.parse::<toml::Table>().expect("a table");
        let one = table("a = 1\nb = 2\n[s]\nx = 1\n[[s.list]]\nv = 1\n[t]\ny = 1");
        let other = table("a = 1\nb = 3\n[s]\nx = 2\n[[s.list]]\nv = 2\n[u]\nz = 1");
        let differing: Vec<String> = differing(&one, &other).into_iter().collect();
        assert_eq!(differing, ["b", "s.list", "s.x", "t.y", "u.z"]);
        assert!(super::differing(&one, &one).is_empty());
    }
}
