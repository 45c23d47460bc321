//! Protection of a process that holds keys or writes a data directory.
//!
//! A process that holds keys is made non-dumpable. A limit on core files alone is not enough,
//! because it does not apply where the kernel pipes dumps to a program. `stat` and `status` under
//! `/proc` stay readable, so `quorate localnet` can still measure its validators, even for an
//! ordinary user.

use anyhow::Context as _;
use rustix::{
    fs::Mode,
    process::{Resource, Rlimit, setrlimit, umask},
};

/// Keeps this process's memory private: no core file is written, and no other process of the same
/// user can attach to it or read its memory.
///
/// The limit alone is not enough: the kernel ignores it where core dumps go to a program (core(5),
/// "Piping core dumps to a program"). A non-dumpable process leaves no core dump either way
/// (PR_SET_DUMPABLE(2const)). Its files under `/proc` then belong to root; those that are
/// world-readable, such as `stat` and `status`, stay readable. Child processes are dumpable again
/// after `exec`: each one must call this itself.
///
/// # Errors
///
/// If the system refuses, which it never does when a process lowers its own limits.
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

/// Makes all files that this process creates from now on, including those of libraries, accessible
/// only to its user. Must be called before threads are started.
pub(crate) fn keep_files_private() {
    umask(Mode::RWXG | Mode::RWXO);
}
