//! Where those with a bond were when the database was last read: what finds them again once the database is lost.
//!
//! The genesis file and `[[p2p.peers]]` may name only validators that are gone. An address is no more than where to dial:
//! whoever answers there proves its identity.

use quorate_files::read_bounded;
use quorate_storage::disk::{SystemDisk, write_atomically};
use quorate_types::{ChainId, Identity, Roster};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    thread,
};
use tracing::warn;

const KNOWN_FILE: &str = "addresses.json";

/// More than 10,000 bonds' worth.
const MAX_KNOWN_BYTES: u64 = 4 << 20;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    chain_id: ChainId,
    addresses: BTreeMap<Identity, String>,
}

fn path(data_dir: &Path) -> PathBuf {
    data_dir.join(KNOWN_FILE)
}

/// Writes down where those in the roster are, on a thread of its own, since parts that are put together at a border do not
/// wait for a disk. Without the file nothing is lost but what this module is for, so a failure is only a warning.
pub(crate) fn note(data_dir: &Path, chain_id: ChainId, roster: &Roster) {
    let addresses = (roster.iter())
        .filter(|(_, address)| !address.is_empty())
        .map(|(identity, address)| (*identity, address.as_str().to_owned()));
    let known = Known {
        chain_id,
        addresses: addresses.collect(),
    };
    let path = path(data_dir);
    let write = move || {
        let text = serde_json::to_vec_pretty(&known).unwrap_or_default();
        if read_bounded(&path, MAX_KNOWN_BYTES).is_ok_and(|before| before == text) {
            return;
        }
        if let Err(error) = write_atomically(&SystemDisk, &path, &text) {
            warn!(%error, "cannot write {}", path.display());
        }
    };
    if let Err(error) = thread::Builder::new().name("addresses".into()).spawn(write) {
        warn!(%error, "cannot write down where the validators are");
    }
}

/// What was written down last, by this node and for this chain.
pub(crate) fn read(data_dir: &Path, chain_id: ChainId) -> Roster {
    let path = path(data_dir);
    let bytes = match read_bounded(&path, MAX_KNOWN_BYTES) {
        Ok(bytes) => bytes,
        Err(error) => {
            if !error.is_missing() {
                warn!(%error, "where the validators were is not known");
            }
            return Roster::new();
        }
    };
    match serde_json::from_slice::<Known>(&bytes) {
        Ok(known) if known.chain_id == chain_id => {
            let addresses = known.addresses.into_iter();
            let read =
                |(identity, address): (Identity, String)| Some((identity, address.parse().ok()?));
            addresses.filter_map(read).collect()
        }
        Ok(_) => Roster::new(),
        Err(error) => {
            warn!(%error, "{} is damaged, and is not used", path.display());
            Roster::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_crypto::SecretKey;
    use quorate_types::{BondAddress, Digest};
    use std::{fs, time::Duration};

    #[test]
    fn what_was_noted_is_read_for_the_same_chain_and_damage_is_no_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let chain = ChainId(Digest([1; 32]));
        assert!(read(folder.path(), chain).is_empty());
        let identity = |seed| SecretKey::from_bytes(&[seed; 32]).identity();
        let address: BondAddress = "v1.example.org:26600".parse().expect("an address");
        let without = (identity(2), BondAddress::default());
        let roster: Roster = [(identity(1), address), without.clone()].into();
        note(folder.path(), chain, &roster);
        while read(folder.path(), chain).is_empty() {
            thread::sleep(Duration::from_millis(1));
        }
        let mut with_addresses = roster;
        with_addresses.remove(&without.0);
        assert_eq!(read(folder.path(), chain), with_addresses);
        assert!(read(folder.path(), ChainId(Digest([2; 32]))).is_empty());
        fs::write(path(folder.path()), "{\"chain_id\": 7").expect("a file");
        assert!(read(folder.path(), chain).is_empty());
    }
}
