//! Where those with a bond were in the newest state that this node has had: what finds them again once the database is lost.
//!
//! The genesis file and `[[p2p.peers]]` may name only validators that are gone, and so may all states that it executes on its
//! way back: they are dialled until it has that state again. An address is no more than where to dial: whoever answers there
//! proves its identity.

use parking_lot::Mutex;
use quorate_files::read_bounded;
use quorate_storage::disk::{SystemDisk, write_atomically};
use quorate_types::{ChainId, Height, Identity, Roster};
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
struct KnownFile {
    chain_id: ChainId,
    #[serde(default)]
    height: Height,
    addresses: BTreeMap<Identity, String>,
}

/// Files are written one after the other.
static WRITING: Mutex<()> = Mutex::new(());

/// What the newest state says that this node has had.
#[derive(Default)]
pub(crate) struct Known {
    /// That state's height.
    pub(crate) height: Height,
    pub(crate) roster: Roster,
}

fn path(data_dir: &Path) -> PathBuf {
    data_dir.join(KNOWN_FILE)
}

impl KnownFile {
    fn of(chain_id: ChainId, height: Height, roster: &Roster) -> Self {
        let addresses = (roster.iter())
            .filter(|(_, address)| !address.is_empty())
            .map(|(identity, address)| (*identity, address.as_str().to_owned()));
        Self {
            chain_id,
            height,
            addresses: addresses.collect(),
        }
    }

    /// Writes the file, unless what is there is newer or says the same.
    fn write(&self, path: &Path) {
        let _writing = WRITING.lock();
        let before = read_bounded(path, MAX_KNOWN_BYTES).ok();
        let before = before.and_then(|bytes| serde_json::from_slice::<Self>(&bytes).ok());
        let is_known = |before: &Self| {
            before.chain_id == self.chain_id
                && (before.height > self.height || before.addresses == self.addresses)
        };
        if before.as_ref().is_some_and(is_known) {
            return;
        }
        let text = serde_json::to_vec_pretty(self).unwrap_or_default();
        if let Err(error) = write_atomically(&SystemDisk, path, &text) {
            warn!(%error, "cannot write {}", path.display());
        }
    }
}

/// Writes down where those in the roster of a state are, unless a newer one's is there, on a thread of its own, since parts
/// that are put together at a border do not wait for a disk. Without the file nothing is lost but what this module is for, so
/// a failure is only a warning.
pub(crate) fn note(data_dir: &Path, chain_id: ChainId, height: Height, roster: &Roster) {
    let known = KnownFile::of(chain_id, height, roster);
    let path = path(data_dir);
    let write = move || known.write(&path);
    if let Err(error) = thread::Builder::new().name("addresses".into()).spawn(write) {
        warn!(%error, "cannot write down where the validators are");
    }
}

/// What was written down last, by this node and for this chain.
pub(crate) fn read(data_dir: &Path, chain_id: ChainId) -> Known {
    let path = path(data_dir);
    let bytes = match read_bounded(&path, MAX_KNOWN_BYTES) {
        Ok(bytes) => bytes,
        Err(error) => {
            if !error.is_missing() {
                warn!(%error, "where the validators were is not known");
            }
            return Known::default();
        }
    };
    match serde_json::from_slice::<KnownFile>(&bytes) {
        Ok(known) if known.chain_id == chain_id => {
            let addresses = known.addresses.into_iter();
            let read =
                |(identity, address): (Identity, String)| Some((identity, address.parse().ok()?));
            Known {
                height: known.height,
                roster: addresses.filter_map(read).collect(),
            }
        }
        Ok(_) => Known::default(),
        Err(error) => {
            warn!(%error, "{} is damaged, and is not used", path.display());
            Known::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_crypto::SecretKey;
    use quorate_types::{BondAddress, Digest};
    use std::fs;

    fn noted(folder: &Path, chain: ChainId, height: u64, roster: &Roster) -> Known {
        KnownFile::of(chain, Height(height), roster).write(&path(folder));
        read(folder, chain)
    }

    #[test]
    fn what_was_noted_is_read_for_the_same_chain_and_damage_is_no_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let chain = ChainId(Digest([1; 32]));
        assert!(read(folder.path(), chain).roster.is_empty());
        let identity = |seed| SecretKey::from_bytes(&[seed; 32]).identity();
        let address: BondAddress = "v1.example.org:26600".parse().expect("an address");
        let without = (identity(2), BondAddress::default());
        let roster: Roster = [(identity(1), address.clone()), without.clone()].into();
        let known = noted(folder.path(), chain, 500, &roster);
        let mut with_addresses = roster;
        with_addresses.remove(&without.0);
        assert_eq!(
            (known.height, known.roster),
            (Height(500), with_addresses.clone())
        );
        // Its way back begins with older states.
        let older: Roster = [(identity(3), address)].into();
        let known = noted(folder.path(), chain, 499, &older);
        assert_eq!((known.height, known.roster), (Height(500), with_addresses));
        let known = noted(folder.path(), chain, 501, &older);
        assert_eq!((known.height, known.roster), (Height(501), older));
        assert!(
            read(folder.path(), ChainId(Digest([2; 32])))
                .roster
                .is_empty()
        );
        fs::write(path(folder.path()), "{\"chain_id\": 7").expect("a file");
        assert!(read(folder.path(), chain).roster.is_empty());
    }
}
