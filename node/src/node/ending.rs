//! Stopping the node: the first thread or task that fails stops it.

use super::{Ended, STOP_LIMIT, serving::Servers};
use anyhow::{Context, ensure};
use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tracing::error;

/// Channel on which threads and tasks report failures.
#[derive(Clone)]
pub(super) struct Failures(pub(super) UnboundedSender<anyhow::Error>);

impl Failures {
    /// Reports a failure. If nobody receives it, the node is already stopping.
    pub(super) fn report(&self, error: anyhow::Error) {
        let _ = self.0.send(error);
    }

    /// Starts a thread whose error or panic stops the node.
    pub(super) fn thread(
        &self,
        name: &'static str,
        body: impl FnOnce() -> anyhow::Result<()> + Send + 'static,
    ) -> anyhow::Result<JoinHandle<()>> {
        let failures = self.clone();
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || match catch_unwind(AssertUnwindSafe(body)) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => failures.report(error.context(format!("{name} thread"))),
                Err(_) => failures.report(anyhow::anyhow!("the {name} thread panicked")),
            })
            .with_context(|| format!("cannot start the {name} thread"))
    }
}

/// Advice about a full disk.
#[derive(Debug, thiserror::Error)]
#[error("the disk is full: make room and start the node again, which has lost nothing")]
struct DiskFull;

/// The database's error text for a full disk.
const NO_SPACE: &str = "No space left on device";

/// Adds advice to an error caused by a full disk.
pub(super) fn explain_full_disk(error: anyhow::Error) -> anyhow::Error {
    if is_full_disk(&error) && !error.is::<DiskFull>() {
        return error.context(DiskFull);
    }
    error
}

/// Whether an error comes from a full disk.
pub(super) fn is_full_disk(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let by_kind = cause.downcast_ref::<io::Error>();
        by_kind.is_some_and(|cause| cause.kind() == io::ErrorKind::StorageFull)
            || cause.to_string().contains(NO_SPACE)
    })
}

/// Waits for the stopping threads, for at most [`STOP_LIMIT`].
async fn join(threads: Vec<JoinHandle<()>>) -> bool {
    let (done, joined) = tokio::sync::oneshot::channel();
    // Not on one of the runtime's own threads: the runtime would wait for it when it shuts down,
    // for however long.
    thread::spawn(move || {
        for thread in threads {
            // The thread itself has reported its panic.
            let _ = thread.join();
        }
        let _ = done.send(());
    });
    let in_time = tokio::time::timeout(STOP_LIMIT, joined).await.is_ok();
    if !in_time {
        error!("a thread did not stop in time; what is not on disk is lost");
    }
    in_time
}

/// Exits the process if it has not ended in time, or immediately on another signal.
pub(super) fn watch_the_end() {
    thread::spawn(|| {
        thread::sleep(STOP_LIMIT + Duration::from_secs(5));
        eprintln!("error: something did not stop; the process is ended. What is synced is safe");
        std::process::exit(1);
    });
    tokio::spawn(async {
        if super::stop_signal(false).await.is_ok() {
            eprintln!("error: told twice to stop; the process is ended. What is synced is safe");
            std::process::exit(1);
        }
    });
}

pub(super) async fn first_failure(failed: &mut UnboundedReceiver<anyhow::Error>) -> anyhow::Error {
    match failed.recv().await {
        Some(error) => error,
        // Unreachable: the node itself holds a sender.
        None => anyhow::anyhow!("no thread is left"),
    }
}

/// Ends the threads that write, and what serves clients.
///
/// Where other parts take over with the same database, clients' requests in progress go on beside them for a while:
/// until these parts are gone nothing can be voted for, and the requests are answered by threads that yield to all others.
pub(super) async fn end_parts(
    outcome: anyhow::Result<Ended>,
    threads: Vec<JoinHandle<()>>,
    servers: Servers,
) -> anyhow::Result<Ended> {
    let joined = join(threads).await;
    let (goes_on, crosses) = match &outcome {
        Ok(ended) => (ended.goes_on(), ended.crosses()),
        Err(_) => (false, false),
    };
    if !crosses {
        servers.end(goes_on).await;
        return outcome;
    }
    ensure!(
        joined,
        "no other parts can take over from a thread that does not stop"
    );
    drop(tokio::spawn(servers.end_beside()));
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_with_its_remedy() {
        let by_kind = anyhow::Error::from(io::Error::from(io::ErrorKind::StorageFull));
        let by_text = anyhow::anyhow!("IO error: No space left on device").context("the database");
        for error in [by_kind, by_text] {
            let explained = explain_full_disk(error);
            assert!(
                explained
                    .to_string()
                    .starts_with("the disk is full: make room")
            );
            let causes = explained.chain().count();
            assert_eq!(explain_full_disk(explained).chain().count(), causes, "once");
        }
        let other = explain_full_disk(anyhow::anyhow!("something else"));
        assert_eq!(other.to_string(), "something else");
    }
}
