//! Rereading `validator.toml` while the validator runs.
//!
//! Keys and the genesis file are not reread: that takes a passphrase, and neither can change. So
//! the file is compared key by key. Two keys are applied at once; all others need a restart.

use super::{Check, ConfigError, NodeConfig, P2pConfig, Role, read_file};
use quorate_types::{Committees, Identity};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

/// The keys that can change without a restart.
const TAKEN: [&str; 2] = ["p2p.peers", "log.level"];

/// Rereads a configuration file and reports what has changed.
pub struct Reloader {
    path: PathBuf,
    committees: Committees,
    identity: Identity,
    /// The content when the file was last read.
    table: toml::Table,
    started_with: toml::Table,
}

/// The changes in a configuration file.
pub struct Changes {
    /// The new peer addresses, if any has changed.
    pub p2p: Option<P2pConfig>,
    /// The new log level, if it has changed.
    pub log_level: Option<String>,
    /// Keys that differ from the running configuration and need a restart.
    pub need_restart: Vec<String>,
}

impl Reloader {
    /// Creates a reloader for a node that runs with this configuration.
    pub fn new(config: &NodeConfig) -> Self {
        Self {
            path: config.path.clone(),
            committees: config.committees.clone(),
            identity: config.identity.identity(),
            table: config.table.clone(),
            started_with: config.table.clone(),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Rereads the file. If it is invalid, later calls still compare with the last valid content.
    ///
    /// # Errors
    ///
    /// If the node could not start with the file, keys and chain aside.
    pub fn reload(&mut self) -> Result<Changes, ConfigError> {
        let (file, table) = read_file(&self.path)?;
        let check = Check { path: &self.path };
        let committee = self.committees.known();
        let role = match committee.place(&self.identity) {
            _ if self.committees.can_change() => Role::Registered(committee, self.identity),
            Some(place) => Role::Validator(committee, place),
            None => Role::Follower(committee, self.identity),
        };
        let values = check.values(file, role)?;
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

/// Returns the keys whose values differ; within sections as `section.key`.
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
