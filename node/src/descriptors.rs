//! The process's limit on open files and connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Estimate of all open files except client connections: database, journal, links, and so on.
const OTHERS: u64 = 2_048;

/// Raises the process's own limit as far as the system allows. Warns if this many client
/// connections would exceed it.
pub(crate) fn raise_for(connections: u64) {
    let wanted = connections.saturating_add(OTHERS);
    let held = getrlimit(Resource::Nofile);
    let allowed = held.maximum.unwrap_or(u64::MAX);
    if held.current.is_some_and(|current| current < wanted) {
        let raised = Rlimit {
            current: Some(allowed.min(wanted.next_power_of_two())),
            ..held
        };
        // If this fails, the check below reports it.
        let _ = setrlimit(Resource::Nofile, raised);
    }
    let now = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if now < wanted {
        tracing::warn!(
            limit = now,
            wanted,
            "the system lets this process open fewer files and connections than it is configured for: \
             raise `LimitNOFILE` (or `ulimit -Hn`), or lower the number of connections"
        );
    }
}
