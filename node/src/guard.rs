//! What a process does before it holds keys or writes a data directory.

use anyhow::Context as _;
use rustix::{
    fs::Mode,
    process::{Resource, Rlimit, setrlimit, umask},
};

/// Sees to it that what is in this process's memory stays there: no core file, and no other process
/// of the same user that attaches to it or reads its memory.
///
/// The limit alone is not enough: the kernel ignores it where core dumps go to a program
/// (core(5), "Piping core dumps to a program"). A process that is not dumpable leaves none either
/// way (PR_SET_DUMPABLE(2const)). The files about it under `/proc` then belong to the superuser;
/// those that everybody may read, such as `stat` and `status`, everybody still may. Programs that it
/// starts are dumpable again: each calls this for itself.
///
/// # Errors
///
/// If the system refuses, which it never does to a process that asks for less.
pub(crate) fn protect_memory() -> anyhow::Result<()> {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none).context("cannot turn core files off")?;
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        set_dumpable_behavior(DumpableBehavior::NotDumpable)
            .context("cannot turn core dumps off")?;
    }
    Ok(())
}

/// Files that this process makes from now on are its user's alone, those of its libraries too. To be
/// called before there are threads.
pub(crate) fn keep_files_private() {
    umask(Mode::RWXG | Mode::RWXO);
}
