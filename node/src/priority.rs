//! Thread priorities, for when all processors are busy.

/// How much a thread yields: what it gets of a processor when it competes with one thread of normal priority (sched(7),
/// "The nice value").
#[derive(Clone, Copy)]
pub enum Yields {
    /// Two fifths.
    Some = 2,
    /// A tenth.
    Most = 10,
}

/// The lowest priority (highest nice value).
#[cfg(target_os = "linux")]
const NICEST: i32 = 19;

/// Lowers the priority of the calling thread below all others, in this process and elsewhere. Only
/// on Linux: on other systems, priorities belong to processes.
pub fn lower_this_thread(yields: Yields) {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{getpriority_process, setpriority_process};
        // Without an id, Linux applies this to the calling thread, contrary to POSIX
        // (setpriority(2), "C library/kernel differences").
        let lowered = getpriority_process(None)
            .and_then(|now| setpriority_process(None, (now + yields as i32).min(NICEST)));
        if let Err(error) = lowered {
            tracing::warn!(%error, "cannot lower the priority of a thread");
        }
    }
}
