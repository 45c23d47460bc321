//! Which threads go first when all processors are busy.

/// By how much the priority of a thread is lowered: when it and one of usual priority want the same
/// processor, it gets about a tenth (sched(7), "The nice value").
#[cfg(target_os = "linux")]
const NICER_BY: i32 = 10;

/// The least priority that there is.
#[cfg(target_os = "linux")]
const NICEST: i32 = 19;

/// Lets all other threads go first, those of this process and of others. On Linux only: elsewhere it
/// is the process that has a priority.
pub(crate) fn lower_this_thread() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{getpriority_process, setpriority_process};
        // Without an id it is the calling thread that is meant, whatever POSIX says (setpriority(2),
        // "C library/kernel differences").
        let lowered = getpriority_process(None)
            .and_then(|now| setpriority_process(None, (now + NICER_BY).min(NICEST)));
        if let Err(error) = lowered {
            tracing::warn!(%error, "cannot lower the priority of a thread");
        }
    }
}
