//! The marker of a validator that has moved to another machine, or is about to.
//!
//! Two copies of a validator must never vote. So a folder is marked *before* an archive that could
//! run elsewhere is complete, and a new folder stays marked until it is complete. There is a marker
//! in the data directory, which contains the journal, and one beside the vote key, which could be
//! used with another data directory.
//!
//! What this cannot prevent: an archive that is copied and imported twice.

use quorate_files::read_text;
use quorate_storage::disk::{SystemDisk, write_atomically};
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

/// The marker's file name in the data directory.
pub(crate) const MOVED_FILE: &str = "moved.json";

/// The suffix of the marker beside the vote key.
const KEY_SUFFIX: &str = ".moved";

/// Size limit of a marker.
const MAX_MARK_BYTES: u64 = 64 << 10;

/// The progress of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Stage {
    /// The archive is being written; it cannot be imported yet.
    Exporting,
    /// The archive is complete.
    Exported,
    /// The new folder is being filled.
    Importing,
}

/// The content of a marker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Moved {
    pub(crate) stage: Stage,
    pub(crate) archive: PathBuf,
}

/// Why a validator cannot run from this folder.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MovedError {
    #[error(
        "this validator has moved: {} says that it was exported to {}. Two copies of a validator would \
         contradict each other, so it does not run here any more. If it is to come back, export it \
         where it runs now; import this archive only if that was never done anywhere",
        .mark.display(), .archive.display()
    )]
    Exported { mark: PathBuf, archive: PathBuf },
    /// The export was interrupted.
    #[error(
        "the export of this validator to {} was cut short ({}): run `quorate move export` again. If it is to \
         stay, import the archive then, in this place or another",
        .archive.display(), .mark.display()
    )]
    Exporting { mark: PathBuf, archive: PathBuf },
    /// The import was interrupted.
    #[error(
        "the import of this validator was cut short ({}): remove this folder and import {} again",
        .mark.display(), .archive.display()
    )]
    Importing { mark: PathBuf, archive: PathBuf },
    /// The marker cannot be read or written.
    #[error("{}: {problem}; it says whether this validator has moved to another machine", .mark.display())]
    Mark { mark: PathBuf, problem: String },
}

/// Returns the paths of a validator's markers.
pub(crate) fn marks(data_dir: &Path, vote_key: &Path) -> [PathBuf; 2] {
    let mut name = vote_key.file_name().unwrap_or_default().to_owned();
    name.push(KEY_SUFFIX);
    [data_dir.join(MOVED_FILE), vote_key.with_file_name(name)]
}

/// Refuses to run a validator that is marked.
pub(crate) fn check(data_dir: &Path, vote_key: &Path) -> Result<(), MovedError> {
    for mark in marks(data_dir, vote_key) {
        if let Some(Moved { stage, archive }) = read(&mark)? {
            return Err(match stage {
                Stage::Exported => MovedError::Exported { mark, archive },
                Stage::Exporting => MovedError::Exporting { mark, archive },
                Stage::Importing => MovedError::Importing { mark, archive },
            });
        }
    }
    Ok(())
}

/// Reads a marker, if there is one.
pub(crate) fn read(mark: &Path) -> Result<Option<Moved>, MovedError> {
    let failed = |problem: String| MovedError::Mark {
        mark: mark.to_owned(),
        problem,
    };
    match read_text(mark, MAX_MARK_BYTES) {
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(failed(error.to_string())),
        Ok(text) => serde_json::from_str(&text)
            .map(Some)
            .map_err(|error| failed(format!("it is damaged ({error})"))),
    }
}

/// Writes a marker durably.
pub(crate) fn write(mark: &Path, moved: &Moved) -> Result<(), MovedError> {
    serde_json::to_vec_pretty(moved)
        .map_err(io::Error::other)
        .and_then(|text| write_atomically(&SystemDisk, mark, &text))
        .map_err(|error| failed_to(mark, &error))
}

/// Removes a marker durably, if it exists.
pub(crate) fn remove(mark: &Path) -> Result<(), MovedError> {
    let folder = mark
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    match fs::remove_file(mark) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed
            .and_then(|()| File::open(folder.unwrap_or(Path::new(".")))?.sync_all())
            .map_err(|error| failed_to(mark, &error)),
    }
}

fn failed_to(mark: &Path, error: &io::Error) -> MovedError {
    MovedError::Mark {
        mark: mark.to_owned(),
        problem: format!("cannot be changed ({error})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marked_validator_is_refused_whichever_of_its_marks_is_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let (data, key) = (folder.path().join("data"), folder.path().join("vote.key"));
        fs::create_dir(&data).expect("own folder");
        check(&data, &key).expect("no mark");
        for mark in marks(&data, &key) {
            for stage in [Stage::Exporting, Stage::Exported, Stage::Importing] {
                let moved = Moved {
                    stage,
                    archive: "away.tar".into(),
                };
                write(&mark, &moved).expect("written");
                let refused = check(&data, &key).expect_err("marked").to_string();
                assert!(refused.contains("away.tar"), "{refused}");
                assert!(refused.contains(&mark.display().to_string()), "{refused}");
            }
            fs::write(&mark, "{").expect("own file");
            assert!(check(&data, &key).is_err(), "a damaged mark is one");
            remove(&mark).expect("removed");
            remove(&mark).expect("nothing to remove");
            check(&data, &key).expect("no mark any more");
        }
    }
}
