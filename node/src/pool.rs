//! The threads for the replica's cryptography.
//!
//! One thread does the checks. It passes work that takes longer (tens of milliseconds in a large
//! committee, when votes are invalid) to a second thread, so that one view's check never waits for
//! another view's search.
//!
//! All waiting certificates are assembled together. Batches for several subjects under the same
//! group key share one pairing check with random weights. With `finalize_linger`, a finalize quorum
//! of one view and a notarize quorum of the next arrive in the same frames, and about three checks
//! produce four certificates; without it, fewer checks can be shared. Votes that an earlier search
//! found valid are not verified again.

use crossbeam_channel::{Receiver, Sender};
use quorate_consensus::{Job, Search, Worker};
use quorate_machine::{metrics::NodeMetrics, replica::Event};
use rand::Rng;
use std::sync::Arc;

fn seed() -> [u8; 32] {
    let mut seed = [0; 32];
    rand::rng().fill_bytes(&mut seed);
    seed
}

/// Processes jobs until the replica is gone. Processes all waiting jobs together, so that they can
/// share a pairing check.
pub(crate) fn check(
    mut worker: Worker,
    jobs: Receiver<Vec<Job>>,
    searches: Sender<Search>,
    replica: Sender<Event>,
    metrics: Arc<NodeMetrics>,
) {
    while let Ok(mut batch) = jobs.recv() {
        batch.extend(jobs.try_iter().flatten());
        let (verdicts, left) = worker.check(batch, seed());
        metrics.worked(worker.take_counts());
        if !verdicts.is_empty() && replica.send(Event::Checked(verdicts)).is_err() {
            return;
        }
        for search in left {
            if searches.send(search).is_err() {
                return;
            }
        }
    }
}

/// Processes the searches that [`check`] passes on, one at a time.
pub(crate) fn search(
    mut worker: Worker,
    searches: Receiver<Search>,
    replica: Sender<Event>,
    metrics: Arc<NodeMetrics>,
) {
    while let Ok(search) = searches.recv() {
        let verdict = worker.search(search, seed());
        metrics.worked(worker.take_counts());
        if replica.send(Event::Checked(vec![verdict])).is_err() {
            return;
        }
    }
}
