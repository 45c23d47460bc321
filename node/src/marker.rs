//! The marker file beside a vote key that has been used.
//!
//! A vote key that has voted must never vote without its journal: it could contradict its earlier
//! votes. The data directory may be wiped, on purpose or by mistake, so the marker is stored beside
//! the key. If the key was used and there is no journal, a new journal starts with a record that it
//! is not the key's first one (`quorate_types::Silence`), and the engine asks the other validators
//! how far the lost votes can reach.
//!
//! In earlier versions, operators named the epoch from which a key without its journal could vote
//! again. That took hours, nothing checked it, and two lost journals out of four ended the chain.
//! Now the answers of n − f other validators decide (`quorate_consensus`, rules R26 to R30).

use quorate_files::read_text;
use quorate_storage::disk::{SystemDisk, write_atomically};
use quorate_types::{ChainId, Epoch};
use serde::{Deserialize, Serialize};
use std::{
    io,
    path::{Path, PathBuf},
};

/// Size limit of the marker file.
const MAX_MARK_BYTES: u64 = 64 << 10;

/// The content of a marker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    /// The chain on which the key has voted.
    chain_id: ChainId,
    /// The first epoch in which the key may vote, as named by an operator of an earlier version
    /// after a loss.
    #[serde(default)]
    vote_from_epoch: Epoch,
    /// Whether a journal was lost and the new journal may not record that yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    lost: bool,
    /// Whether, at the first start with this marker, there was no sign that the key had voted
    /// before. The machine relies on it as long as the journal contains no vote.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    fresh: bool,
}

/// Why a marker cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MarkError {
    /// The file system failed.
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    /// The marker is damaged.
    #[error(
        "{} is damaged ({problem}); it says whether the vote key was used. If the vote journal is whole, move this file away \
         and start again: it is made anew. Otherwise see `docs/OPERATING.md`, *The vote journal*, first",
        .path.display()
    )]
    Damaged { path: PathBuf, problem: String },
}

/// The marker of a vote key.
#[derive(Debug)]
pub(crate) struct Mark {
    path: PathBuf,
    held: Option<Content>,
    chain: ChainId,
}

impl Mark {
    /// Reads the marker of a vote key. Ignores a marker for another chain.
    pub(crate) fn of(vote_key: &Path, chain: ChainId) -> Result<Self, MarkError> {
        let path = mark_path(vote_key);
        let held = read(&path)?.filter(|mark| mark.chain_id == chain);
        Ok(Self { path, held, chain })
    }

    /// Whether the key was used on this chain.
    pub(crate) fn was_used(&self) -> bool {
        self.held.is_some()
    }

    /// Whether a journal was lost and the new journal may not record that yet.
    pub(crate) fn says_lost(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.lost)
    }

    /// Whether the key was new here, or restored without its marker.
    pub(crate) fn is_fresh(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.fresh)
    }

    /// Returns the first epoch in which the key may vote.
    pub(crate) fn vote_from_epoch(&self) -> Epoch {
        let held = self.held.as_ref();
        held.map(|held| held.vote_from_epoch).unwrap_or_default()
    }

    /// Durably records that the key is used, whether a journal was lost, and whether the key was
    /// new here.
    pub(crate) fn write(&mut self, lost: bool, fresh: bool) -> Result<(), MarkError> {
        let content = Content {
            chain_id: self.chain,
            vote_from_epoch: self.vote_from_epoch(),
            lost,
            fresh,
        };
        if self.held.as_ref() == Some(&content) {
            return Ok(());
        }
        serde_json::to_vec_pretty(&content)
            .map_err(io::Error::other)
            .and_then(|text| write_atomically(&SystemDisk, &self.path, &text))
            .map_err(|source| MarkError::Io {
                path: self.path.clone(),
                source,
            })?;
        self.held = Some(content);
        Ok(())
    }
}

/// Whether a vote key's marker says that it was used on this chain.
pub(crate) fn is_used(vote_key: &Path, chain: ChainId) -> Result<bool, MarkError> {
    let mark = read(&mark_path(vote_key))?;
    Ok(mark.is_some_and(|mark| mark.chain_id == chain))
}

fn mark_path(vote_key: &Path) -> PathBuf {
    let mut name = vote_key.file_name().unwrap_or_default().to_owned();
    name.push(".used");
    vote_key.with_file_name(name)
}

fn read(path: &Path) -> Result<Option<Content>, MarkError> {
    let text = match read_text(path, MAX_MARK_BYTES) {
        Err(error) if error.is_missing() => return Ok(None),
        text => text.map_err(|error| MarkError::Io {
            path: path.to_path_buf(),
            source: error.into(),
        })?,
    };
    let mark = serde_json::from_str(&text).map_err(|error| MarkError::Damaged {
        path: path.to_path_buf(),
        problem: error.to_string(),
    })?;
    Ok(Some(mark))
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::Digest;
    use std::fs;

    const CHAIN: ChainId = ChainId(Digest([1; 32]));

    #[test]
    fn a_used_key_is_known_by_its_mark_and_a_loss_is_remembered() {
        let folder = tempfile::tempdir().expect("a directory");
        let key = folder.path().join("vote.key");
        let mark = || Mark::of(&key, CHAIN).expect("readable");
        assert!(!mark().was_used() && !mark().says_lost());
        mark().write(false, false).expect("written");
        assert!(mark().was_used() && !mark().says_lost());
        mark().write(true, false).expect("written");
        assert!(mark().was_used() && mark().says_lost());
        // Votes on another chain cannot contradict votes on this one.
        let other = ChainId(Digest([2; 32]));
        assert!(!Mark::of(&key, other).expect("readable").was_used());
        // The epoch named by an operator of an earlier version is preserved by every write.
        let old = serde_json::json!({ "chain_id": CHAIN, "vote_from_epoch": 7 });
        fs::write(mark_path(&key), old.to_string()).expect("own file");
        mark().write(true, false).expect("written");
        assert_eq!(mark().vote_from_epoch(), Epoch(7));
        fs::write(mark_path(&key), "{").expect("own file");
        assert!(matches!(
            Mark::of(&key, CHAIN),
            Err(MarkError::Damaged { .. })
        ));
    }
}
