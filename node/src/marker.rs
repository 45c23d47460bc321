//! The mark beside a vote key that has been used.
//!
//! A key that has voted must never vote without its journal: it could contradict itself. The data
//! directory may be wiped, on purpose or by mistake, so what says that the key was used lies beside
//! the key. A used key without a journal does not vote until its operator says from which epoch on,
//! which must be one that it cannot have voted in.

use quorate_files::read_text;
use quorate_storage::disk::{SystemDisk, write_atomically};
use quorate_types::{ChainId, Epoch};
use serde::{Deserialize, Serialize};
use std::{
    io,
    path::{Path, PathBuf},
};

/// Most bytes of the mark's file.
const MAX_MARK_BYTES: u64 = 64 << 10;

/// What the mark says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mark {
    /// The chain that the key has voted on.
    chain_id: ChainId,
    /// The first epoch in which it may vote.
    vote_from_epoch: Epoch,
}

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MarkError {
    /// The file system failed.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The mark's file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The mark is damaged.
    #[error("{} is damaged ({problem}); it says whether the vote key was used", .path.display())]
    Damaged {
        /// The mark's file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The key was used, and its journal is gone.
    #[error(
        "the vote key was used before ({}), but there is no vote journal in {}: without it this \
         validator could vote twice in a view and break the chain. If the journal is lost, start \
         once with --vote-from-epoch E, where E is at least two above the highest epoch that any \
         validator shows (`quorate status`): until then this one follows without voting. Or make a \
         new key. Never restore a journal from a copy",
        .mark.display(), .journal.display()
    )]
    LostJournal {
        /// The mark's file.
        mark: PathBuf,
        /// Where the journal should be.
        journal: PathBuf,
    },
}

/// Checks and leaves the mark. `created` tells that the journal is a new one; `from` is what the
/// operator says. Returns the first epoch in which to vote.
pub(crate) fn check(
    vote_key: &Path,
    journal: &Path,
    chain: ChainId,
    created: bool,
    from: Option<Epoch>,
) -> Result<Epoch, MarkError> {
    let path = mark_path(vote_key);
    let held = read(&path)?.filter(|mark| mark.chain_id == chain);
    let first = match (&held, from) {
        (Some(_), None) if created => {
            return Err(MarkError::LostJournal {
                mark: path,
                journal: journal.to_path_buf(),
            });
        }
        // Whatever was said before still holds: silence is only ever prolonged.
        (held, from) => held
            .as_ref()
            .map_or(Epoch(0), |mark| mark.vote_from_epoch)
            .max(from.unwrap_or_default()),
    };
    let mark = Mark {
        chain_id: chain,
        vote_from_epoch: first,
    };
    if held.as_ref() != Some(&mark) {
        let written = serde_json::to_vec_pretty(&mark)
            .map_err(io::Error::other)
            .and_then(|text| write_atomically(&SystemDisk, &path, &text));
        written.map_err(|source| MarkError::Io { path, source })?;
    }
    Ok(first)
}

/// Whether a vote key bears the mark that it was used on a chain.
pub(crate) fn is_used(vote_key: &Path, chain: ChainId) -> Result<bool, MarkError> {
    let mark = read(&mark_path(vote_key))?;
    Ok(mark.is_some_and(|mark| mark.chain_id == chain))
}

fn mark_path(vote_key: &Path) -> PathBuf {
    let mut name = vote_key.file_name().unwrap_or_default().to_owned();
    name.push(".used");
    vote_key.with_file_name(name)
}

fn read(path: &Path) -> Result<Option<Mark>, MarkError> {
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
    fn a_used_key_needs_its_journal_or_the_operators_word() {
        let folder = tempfile::tempdir().expect("a directory");
        let key = folder.path().join("vote.key");
        let check = |chain, created, from| check(&key, folder.path(), chain, created, from);
        assert_eq!(check(CHAIN, true, None).expect("first start"), Epoch(0));
        assert_eq!(check(CHAIN, false, None).expect("as ever"), Epoch(0));
        let lost = check(CHAIN, true, None).expect_err("the journal is gone");
        assert!(lost.to_string().contains("--vote-from-epoch"), "{lost}");
        assert_eq!(check(CHAIN, true, Some(Epoch(7))).expect("told"), Epoch(7));
        assert_eq!(check(CHAIN, false, None).expect("remembered"), Epoch(7));
        let sooner = check(CHAIN, false, Some(Epoch(3))).expect("no effect");
        assert_eq!(sooner, Epoch(7), "silence is never shortened");
        // Another chain's votes contradict nothing here.
        let other = ChainId(Digest([2; 32]));
        assert_eq!(check(other, true, None).expect("another chain"), Epoch(0));
        fs::write(mark_path(&key), "{").expect("own file");
        assert!(matches!(
            check(CHAIN, false, None),
            Err(MarkError::Damaged { .. })
        ));
    }
}
