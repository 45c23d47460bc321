//! The list of `quorate move export` archives that this user has imported on this machine.
//!
//! An import removes its archive, but copies of it can remain (made by `scp`, for instance). A
//! second import would create a second validator with the same keys and an outdated vote journal.

use anyhow::Context as _;
use quorate_files::{make_private_folder, read_text};
use rand::Rng as _;
use serde::{Deserialize, Serialize};
use std::{
    env,
    fs::File,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::PathBuf,
    time::{SystemTime, UNIX_EPOCH},
};

/// Path of the list within the user's state directory.
const LIST: &str = "quorate/imported.jsonl";

/// Size limit of the list: enough for thousands of imports.
const MAX_LIST_BYTES: u64 = 1 << 20;

/// A line of the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Import {
    /// The id in the archive.
    archive: String,
    /// The folder that the archive was unpacked to.
    pub(super) folder: PathBuf,
    /// In milliseconds since 1970.
    pub(super) at_ms: u64,
}

/// Returns a random id for a new archive, in hexadecimal.
pub(super) fn new_id() -> String {
    let mut id = [0; 16];
    rand::rng().fill_bytes(&mut id);
    hex::encode(id)
}

/// Returns the path of the list, according to the XDG base directory specification; `None` if the
/// environment does not define it.
fn list() -> Option<PathBuf> {
    let absolute = |name: &str| {
        let path = PathBuf::from(env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    let state =
        absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join(LIST))
}

/// Returns this user's import of the archive on this machine, if any.
///
/// # Errors
///
/// If the list cannot be read.
pub(super) fn find(archive: &str) -> anyhow::Result<Option<Import>> {
    let Some(path) = list() else {
        return Ok(None);
    };
    let text = match read_text(&path, MAX_LIST_BYTES) {
        Err(error) if error.is_missing() => return Ok(None),
        text => text.context("the list of imported archives")?,
    };
    // The last one if there are several.
    let imports = text
        .lines()
        .rev()
        .filter_map(|line| serde_json::from_str(line).ok());
    let mut imports = imports.filter(|import: &Import| import.archive == archive);
    Ok(imports.next())
}

/// Appends an import to the list and syncs it.
///
/// # Errors
///
/// If the list cannot be written.
pub(super) fn remember(archive: &str, folder: PathBuf) -> anyhow::Result<()> {
    let path = list().context("neither XDG_STATE_HOME nor HOME is set")?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let import = Import {
        archive: archive.into(),
        folder,
        at_ms: now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX)),
    };
    let line = serde_json::to_string(&import)? + "\n";
    let write = || {
        make_private_folder(path.parent().unwrap_or(&path))?;
        let mut file = File::options()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)?;
        file.write_all(line.as_bytes())?;
        file.sync_all()
    };
    write().with_context(|| path.display().to_string())
}
