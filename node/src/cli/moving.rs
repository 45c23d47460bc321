//! `quorate move`

use super::{imports, output::print_lines, rpc::Control};
use crate::{
    config::{CONFIG_FILE, MAX_CONFIG_BYTES},
    genesis::{GENESIS_FILE, TRUST_FILE},
    keys::{IDENTITY_FILE, VOTE_FILE},
    moved::{self, MOVED_FILE, Moved, Stage},
    node::lock_directory,
    owner::OWNER_FILE,
};
use anyhow::{Context as _, bail, ensure};
use clap::{Args, Subcommand};
use quorate_files::{make_private_folder, read_text};
use quorate_machine::live::verdict::clock_time;
use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs::{self, DirBuilder, File},
    io::{self, BufReader, BufWriter, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Component, Path, PathBuf},
};

/// The top-level folder in the archive.
const ROOT: &str = "quorate-validator";

/// The data directory within that folder.
const DATA_FOLDER: &str = "data";

/// The last file of the archive; without it, the archive is incomplete. It contains the archive's
/// id, used to detect a second import. In archives of earlier versions it is empty.
const LAST_FILE: &str = "complete";

/// Files that are not moved: locks, sockets, markers, runtime state.
const LEFT: [&str; 5] = ["LOCK", "control.sock", MOVED_FILE, "runtime", "lock"];

/// Size limit of the archive's id.
const MAX_ID_BYTES: u64 = 256;

/// Limit on the number of files in an archive.
const MAX_FILES: usize = 1_000_000;

/// Move a stopped validator to another machine, so that only one copy of it can vote
///
/// The vote journal keeps a validator from contradicting its earlier votes, so it must never be
/// copied while the old validator could still run. An export therefore first marks the old folder
/// so that it no longer starts.
#[derive(Subcommand)]
pub(super) enum Move {
    /// Write a stopped validator to an archive, after which it no longer starts here
    Export(Export),
    /// Unpack an archive into a new folder, and remove the archive
    Import(Import),
}

/// Write a stopped validator to an archive, after which it no longer starts here
///
/// The archive contains everything: the keys as they are (NOT encrypted if the files are not),
/// configuration, genesis file, vote journal, evidence and database. Keep it secret. If writing the
/// archive fails, the validator stays usable as before.
#[derive(Args)]
#[command(after_help = "Example:
  quorate move export --config validator-3/validator.toml --out validator-3.tar")]
pub(super) struct Export {
    #[command(flatten)]
    control: Control,
    /// The archive to write; an existing file is not overwritten
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Leave out the database: the validator downloads the chain from its peers, which must still
    /// keep all of it
    #[arg(long)]
    without_database: bool,
}

/// Unpack an archive into a new folder, and remove the archive
///
/// Import an archive only once, on one machine: each copy of it is a copy of the validator. A
/// second import by the same user on the same machine is refused.
#[derive(Args)]
#[command(after_help = "Example:
  quorate move import validator-3.tar --out validator-3")]
pub(super) struct Import {
    /// The archive to import
    archive: PathBuf,
    /// The folder to create; must be missing or empty
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Import an archive although it was imported here before; only if that copy of the validator
    /// has never run
    #[arg(long)]
    again: bool,
}

impl Move {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Export(command) => command.run(),
            Self::Import(command) => command.run(),
        }
    }
}

impl Export {
    fn run(self) -> anyhow::Result<()> {
        let data = self.control.data_dir()?;
        ensure!(
            data.join(OWNER_FILE).is_file() && data.join("journal").is_dir(),
            "{} holds no vote journal: this validator never ran here, or another --config is meant. Nothing \
             ties it to this machine: copy its folder, and remove it here",
            data.display()
        );
        let _lock = lock_directory(&data).context("stop the node first")?;
        let vote_key = self.control.path_at("vote_key")?;
        let marks = moved::marks(&data, &vote_key);
        if let Err(error) = moved::check(&data, &vote_key)
            && !matches!(error, moved::MovedError::Exporting { .. })
        {
            return Err(error.into());
        }
        if self.out.exists() {
            bail!("{} exists and is not written over", self.out.display());
        }
        let archive = std::path::absolute(&self.out).context("--out")?;
        let mark = |stage| {
            let archive = archive.clone();
            let moved = Moved { stage, archive };
            marks.iter().try_for_each(|mark| moved::write(mark, &moved))
        };
        // From here on the validator cannot start. The archive gets its final name last.
        mark(Stage::Exporting)?;
        let part = self.out.with_extension("part");
        let written = self
            .write(&part, &data, &vote_key)
            .and_then(|()| Ok(mark(Stage::Exported)?));
        if let Err(error) = written {
            fs::remove_file(&part).ok();
            // The archive was never complete, so nobody can have imported it.
            marks.iter().try_for_each(|mark| moved::remove(mark))?;
            return Err(error.context("the validator is as it was, nothing was exported"));
        }
        fs::rename(&part, &self.out)
            .and_then(|()| sync_folder(&self.out))
            .with_context(|| {
                let (part, out) = (part.display(), self.out.display());
                format!("{part} is complete; rename it to {out}")
            })?;
        let bytes = fs::metadata(&self.out).map_or(0, |data| data.len());
        print_lines(&[
            format!(
                "{} ({:.1} MiB) holds the validator, which does not run here any more. On its new machine:",
                self.out.display(),
                bytes as f64 / 1_048_576.0
            ),
            format!("  quorate move import {} --out DIR", file_name(&self.out)),
            "If its address changes, the other validators name the new one in `p2p.peers`, and take it over \
             with `quorate reload` or SIGHUP."
                .to_owned(),
        ])
    }

    fn write(&self, part: &Path, data: &Path, vote_key: &Path) -> anyhow::Result<()> {
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(part)
            .with_context(|| format!("cannot write {}", part.display()))?;
        let mut tar = tar::Builder::new(BufWriter::with_capacity(1 << 20, file));
        tar.follow_symlinks(false);
        let text = own_paths(&self.control.text()?)?;
        add_bytes(&mut tar, CONFIG_FILE, text.as_bytes())?;
        let genesis = self.control.path_at("genesis")?;
        add_file(&mut tar, GENESIS_FILE, &genesis)?;
        let trust = genesis.with_file_name(TRUST_FILE);
        if trust.is_file() {
            add_file(&mut tar, TRUST_FILE, &trust)?;
        }
        add_file(
            &mut tar,
            IDENTITY_FILE,
            &self.control.path_at("identity_key")?,
        )?;
        add_file(&mut tar, VOTE_FILE, vote_key)?;
        // The marker that the vote key was used.
        for (name, path) in beside(vote_key)? {
            add_file(&mut tar, &name, &path)?;
        }
        let mut files = 0;
        self.add_folder(&mut tar, data, Path::new(DATA_FOLDER), &mut files)?;
        let id = imports::new_id() + "\n";
        add_bytes(&mut tar, LAST_FILE, id.as_bytes())?;
        let mut file = tar.into_inner().context("cannot write the archive")?;
        file.flush().context("cannot write the archive")?;
        file.get_ref()
            .sync_all()
            .context("cannot write the archive")?;
        Ok(())
    }

    fn add_folder(
        &self,
        tar: &mut tar::Builder<BufWriter<File>>,
        folder: &Path,
        name: &Path,
        files: &mut usize,
    ) -> anyhow::Result<()> {
        let read_error = || format!("cannot read {}", folder.display());
        for entry in fs::read_dir(folder).with_context(read_error)? {
            let entry = entry.with_context(read_error)?;
            let (path, file_name) = (entry.path(), entry.file_name());
            let is_database = name == Path::new(DATA_FOLDER) && file_name == "db";
            if LEFT.iter().any(|left| file_name == *left) || (is_database && self.without_database)
            {
                continue;
            }
            let name = name.join(&file_name);
            let kind = entry.file_type().with_context(read_error)?;
            if kind.is_dir() {
                self.add_folder(tar, &path, &name, files)?;
            } else if kind.is_file() {
                *files += 1;
                ensure!(
                    *files <= MAX_FILES,
                    "{} holds too many files",
                    folder.display()
                );
                add_file(tar, &name.to_string_lossy(), &path)?;
            }
        }
        Ok(())
    }
}

/// Returns the files whose names begin with the vote key's file name: its use marker and similar
/// files.
fn beside(vote_key: &Path) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let folder = vote_key
        .parent()
        .filter(|path| !path.as_os_str().is_empty());
    let own = file_name(vote_key);
    let mut found = Vec::new();
    for entry in fs::read_dir(folder.unwrap_or(Path::new(".")))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(suffix) = name.strip_prefix(&own).filter(|rest| rest.starts_with('.')) else {
            continue;
        };
        if ![".moved", ".new", ".lock"].contains(&suffix) && entry.file_type()?.is_file() {
            found.push((format!("{VOTE_FILE}{suffix}"), entry.path()));
        }
    }
    Ok(found)
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or(OsStr::new(""))
        .to_string_lossy()
        .into_owned()
}

fn header(bytes: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes);
    header.set_mode(0o600);
    header
}

fn add_bytes(
    tar: &mut tar::Builder<BufWriter<File>>,
    name: &str,
    bytes: &[u8],
) -> anyhow::Result<()> {
    tar.append_data(
        &mut header(bytes.len() as u64),
        Path::new(ROOT).join(name),
        bytes,
    )
    .context("cannot write the archive")
}

fn add_file(
    tar: &mut tar::Builder<BufWriter<File>>,
    name: &str,
    path: &Path,
) -> anyhow::Result<()> {
    let read_error = || format!("cannot read {}", path.display());
    let file = File::open(path).with_context(read_error)?;
    let bytes = file.metadata().with_context(read_error)?.len();
    tar.append_data(
        &mut header(bytes),
        Path::new(ROOT).join(name),
        BufReader::new(file),
    )
    .with_context(|| format!("cannot write {} to the archive", path.display()))
}

fn sync_folder(file: &Path) -> io::Result<()> {
    let folder = file.parent().filter(|path| !path.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Returns the configuration with its four paths changed to those in the archive.
fn own_paths(text: &str) -> anyhow::Result<String> {
    let paths = [
        ("genesis", GENESIS_FILE),
        ("identity_key", IDENTITY_FILE),
        ("vote_key", VOTE_FILE),
        ("data_dir", DATA_FOLDER),
    ];
    let mut in_section = false;
    let lines: Vec<String> = text
        .lines()
        .map(|line| {
            in_section |= line.trim_start().starts_with('[');
            let key = line.split('=').next().unwrap_or("").trim();
            match paths.iter().find(|(name, _)| *name == key) {
                Some((name, path)) if !in_section => format!("{name} = \"{path}\""),
                _ => line.to_owned(),
            }
        })
        .collect();
    let text = lines.join("\n") + "\n";
    let table: toml::Table = text.parse().context("the configuration file")?;
    for (key, path) in paths {
        ensure!(
            table.get(key).and_then(|value| value.as_str()) == Some(path),
            "the configuration file: write `{key} = \"…\"` in a line of its own, before the first section"
        );
    }
    Ok(text)
}

impl Import {
    fn run(self) -> anyhow::Result<()> {
        let out = &self.out;
        let is_empty = fs::read_dir(out).map_or(true, |mut entries| entries.next().is_none());
        ensure!(
            is_empty,
            "{} is not empty; choose another --out",
            out.display()
        );
        let was_there = out.exists();
        let file = File::open(&self.archive)
            .with_context(|| format!("cannot read {}", self.archive.display()))?;
        let filled = self.fill(file);
        if filled.is_err() {
            // The archive still exists. Files that cannot be removed are harmless: the folder is
            // marked, so no validator starts from it.
            let removed = match was_there {
                true => {
                    fs::read_dir(out).and_then(|entries| entries.flatten().try_for_each(remove))
                }
                false => fs::remove_dir_all(out),
            };
            if let Err(error) = removed {
                eprintln!(
                    "warning: remove {} before you try again ({error})",
                    out.display()
                );
            }
        }
        filled?;
        if let Err(error) = fs::remove_file(&self.archive) {
            eprintln!(
                "warning: {} cannot be removed ({error}): remove it, and never import it again",
                self.archive.display()
            );
        }
        print_lines(&[
            format!(
                "{} holds the validator, and the archive is gone. Remove copies of it, on the old machine, too. \
                 Look at its addresses, then start it:",
                out.display()
            ),
            format!("  quorate config check {}/{CONFIG_FILE}", out.display()),
            format!("  quorate run --config {}/{CONFIG_FILE}", out.display()),
        ])
    }

    /// Creates the new folder. It is marked until it is complete, so that no validator starts from
    /// it.
    fn fill(&self, file: File) -> anyhow::Result<()> {
        let out = &self.out;
        let data = out.join(DATA_FOLDER);
        let make_error = || format!("cannot make {}", data.display());
        make_private_folder(out).with_context(make_error)?;
        make_private_folder(&data).with_context(make_error)?;
        let marks = moved::marks(&data, &out.join(VOTE_FILE));
        let moved = Moved {
            stage: Stage::Importing,
            archive: std::path::absolute(&self.archive).context("the archive")?,
        };
        // Mark the folder before the first file is unpacked.
        moved::write(&marks[0], &moved)?;
        let names = unpack(file, out)
            .with_context(|| format!("{} cannot be imported", self.archive.display()))?;
        for name in [
            CONFIG_FILE,
            GENESIS_FILE,
            IDENTITY_FILE,
            VOTE_FILE,
            LAST_FILE,
        ] {
            ensure!(
                names.contains(Path::new(name)),
                "{} is no complete archive of `quorate move export`: {name} is missing",
                self.archive.display()
            );
        }
        let id = read_text(&out.join(LAST_FILE), MAX_ID_BYTES)?;
        self.is_first(id.trim())?;
        fs::remove_file(out.join(LAST_FILE)).ok();
        let text = read_text(&out.join(CONFIG_FILE), MAX_CONFIG_BYTES)?;
        own_paths(&text)?;
        sync_folder(&out.join(CONFIG_FILE))?;
        // Remove the mark before the archive is removed: a crash in between must not leave a folder
        // that cannot start and no archive.
        moved::remove(&marks[0])?;
        Ok(())
    }

    /// Refuses an archive that was imported before; otherwise records the import.
    fn is_first(&self, id: &str) -> anyhow::Result<()> {
        if id.is_empty() {
            return Ok(());
        }
        if let Some(before) = imports::find(id)?
            && !self.again
        {
            bail!(
                "{} was imported before, at {}, to {}. Two copies of a validator contradict each other: run that \
                 one, or move it (`quorate move export`), and remove this archive. If it has never run there: \
                 --again",
                self.archive.display(),
                clock_time(before.at_ms),
                before.folder.display()
            );
        }
        let folder = std::path::absolute(&self.out).context("--out")?;
        if let Err(error) = imports::remember(id, folder) {
            eprintln!("warning: a second import of this archive will not be noticed: {error:#}");
        }
        Ok(())
    }
}

fn remove(entry: fs::DirEntry) -> io::Result<()> {
    match entry.file_type()?.is_dir() {
        true => fs::remove_dir_all(entry.path()),
        false => fs::remove_file(entry.path()),
    }
}

/// Unpacks the archive into a new folder. Refuses names that lead outside of it, links and devices.
fn unpack(file: File, out: &Path) -> anyhow::Result<BTreeSet<PathBuf>> {
    let mut archive = tar::Archive::new(BufReader::with_capacity(1 << 20, file));
    let mut names = BTreeSet::new();
    for entry in archive.entries().context("no tar archive")? {
        let mut entry = entry.context("no tar archive, or a damaged one")?;
        let path = entry.path().context("a name in it")?.into_owned();
        let name = path
            .strip_prefix(ROOT)
            .ok()
            .filter(|name| {
                name.components()
                    .all(|part| matches!(part, Component::Normal(_)))
            })
            .filter(|_| entry.header().entry_type().is_file())
            .with_context(|| format!("it holds {}, which no validator has", path.display()))?
            .to_owned();
        ensure!(names.len() < MAX_FILES, "it holds too many files");
        let target = out.join(&name);
        let write_error = || format!("cannot write {}", target.display());
        if let Some(folder) = target.parent() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)
                .with_context(write_error)?;
        }
        let mut file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&target)
            .with_context(write_error)?;
        io::copy(&mut entry, &mut file).with_context(write_error)?;
        file.sync_all().with_context(write_error)?;
        sync_folder(&target).with_context(write_error)?;
        names.insert(name);
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_gets_the_archives_paths_and_keeps_the_rest() {
        let text = "# head\ngenesis = \"../g.json\"\nidentity_key=\"/etc/i\"\n  vote_key = 'v'\n\
                    data_dir = \"/srv/data\" # there\n[p2p]\nlisten = \"x\"\n[log]\nlevel = \"info\"\n";
        let own = own_paths(text).expect("rewritten");
        assert_eq!(
            own,
            "# head\ngenesis = \"genesis.json\"\nidentity_key = \"identity.key\"\nvote_key = \"vote.key\"\n\
             data_dir = \"data\"\n[p2p]\nlisten = \"x\"\n[log]\nlevel = \"info\"\n"
        );
        assert!(own_paths("genesis = \"g\"\n").is_err(), "three are missing");
    }

    #[test]
    fn an_archive_that_leads_elsewhere_is_refused() {
        for (name, kind) in [
            ("quorate-validator/../../evil", tar::EntryType::Regular),
            ("/etc/evil", tar::EntryType::Regular),
            ("elsewhere/evil", tar::EntryType::Regular),
            ("quorate-validator/link", tar::EntryType::Symlink),
        ] {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("evil.tar");
            let mut tar = tar::Builder::new(File::create(&path).expect("own file"));
            let mut header = header(0);
            header.set_entry_type(kind);
            let bytes = &mut header.as_gnu_mut().expect("gnu").name;
            bytes[..name.len()].copy_from_slice(name.as_bytes());
            header.set_cksum();
            tar.append(&header, io::empty()).expect("written");
            tar.into_inner().expect("written");
            let out = folder.path().join("out");
            let refused = unpack(File::open(&path).expect("there"), &out);
            let refused = refused.expect_err(name).to_string();
            assert!(refused.contains("which no validator has"), "{refused}");
            assert!(!out.exists());
        }
    }
}
