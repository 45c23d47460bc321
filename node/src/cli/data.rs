//! Checks of a data directory before a validator starts on it.

use crate::{
    config::{NodeConfig, ValidatorConfig},
    marker, moved,
    node::{lock_directory, votes_again},
    space::room_of,
};
use quorate_machine::{live::Room, machine::journal_folder};
use quorate_storage::{journal::Journal, store::Store};
use std::{fs, os::unix::fs::MetadataExt as _, path::Path};

/// Returns the problems that would keep the node from starting.
pub(super) fn problems(node: &NodeConfig, validator: Option<&ValidatorConfig>) -> Vec<String> {
    let mut problems = Vec::new();
    let moved = validator.map(|config| moved::check(&node.data_dir, &config.vote_file));
    problems.extend(moved.and_then(Result::err).map(|error| error.to_string()));
    problems.extend(foreign_files(&node.data_dir));
    if let Some(config) = validator {
        let journal = journal_folder(&node.data_dir);
        let used = marker::is_used(&config.vote_file, node.chain).map(drop);
        problems.extend(used.err().map(|error| error.to_string()));
        let journal = Journal::check_folder(&journal, node.chain);
        problems.extend(journal.err().map(|error| format!("vote journal: {error}")));
    }
    if validator.is_some_and(lacks_journal) && node.committees.known().size() == 1 {
        problems.push(format!(
            "there is no vote journal in {}, although the vote key was used, and this is the only validator: see \
             `docs/OPERATING.md`, *The vote journal*. Restore nothing from a copy",
            journal_folder(&node.data_dir).display()
        ));
    }
    problems
}

/// Whether the vote journal is missing although the validator has voted before.
fn lacks_journal(config: &ValidatorConfig) -> bool {
    let is_absent = Journal::is_absent(&journal_folder(&config.node.data_dir)).unwrap_or(false);
    let was_used = marker::is_used(&config.vote_file, config.node.chain).unwrap_or(true);
    is_absent && (was_used || !Store::is_absent(&config.node.data_dir.join("db")))
}

/// Returns the problems that would not keep the node from starting.
pub(super) fn warnings(node: &NodeConfig, validator: Option<&ValidatorConfig>) -> Vec<String> {
    let mut warnings = Vec::new();
    let data = &node.data_dir;
    if validator.is_some_and(lacks_journal) && node.committees.known().size() > 1 {
        warnings.push(format!(
            "there is no vote journal in {}, although the vote key was used: the validator will follow, and vote \
             {} (`docs/OPERATING.md`, *The vote journal*)",
            journal_folder(data).display(),
            votes_again(node.genesis.protocol)
        ));
    }
    if let Some(room) = room_of(data).filter(Room::is_low) {
        warnings.push(format!(
            "`data_dir`: {} MiB are free on the disk of {}; a node stops on a full one",
            room.free_bytes >> 20,
            data.display()
        ));
    }
    if is_in_use(data) {
        warnings.push(format!(
            "{} is in use: the node runs, or a `quorate db` command",
            data.display()
        ));
    }
    warnings
}

/// Whether a process has a data directory open.
pub(super) fn is_in_use(data: &Path) -> bool {
    data.join("LOCK").is_file() && lock_directory(data).is_err()
}

/// Returns a message about the first file or folder of the data directory that belongs to another
/// user.
fn foreign_files(data: &Path) -> Option<String> {
    let own = fs::metadata("/proc/self").ok()?.uid();
    let folders = [data.to_owned(), data.join("journal"), data.join("db")];
    let inside = folders.iter().flat_map(|folder| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path())
    });
    let (path, owner) = folders.iter().cloned().chain(inside).find_map(|path| {
        let owner = fs::symlink_metadata(&path).ok()?.uid();
        (owner != own).then_some((path, owner))
    })?;
    Some(format!(
        "{} belongs to user {owner}, and this is user {own}: check as the user as which the validator runs, or \
         give it all of the directory (chown -R)",
        path.display()
    ))
}
