//! The thread that does the replica's cryptography.

use crate::{metrics::NodeMetrics, replica::Event};
use crossbeam_channel::{Receiver, Sender};
use quorate_consensus::{Job, Worker};
use rand::Rng;
use std::sync::Arc;

/// Does jobs until the replica is gone. All that wait are done together, so that they can share a
/// pairing check.
pub(crate) fn run(
    mut worker: Worker,
    jobs: Receiver<Job>,
    replica: Sender<Event>,
    metrics: Arc<NodeMetrics>,
) {
    while let Ok(first) = jobs.recv() {
        let mut batch = vec![first];
        batch.extend(jobs.try_iter());
        let mut seed = [0; 32];
        rand::rng().fill_bytes(&mut seed);
        let verdicts = worker.run(batch, seed);
        metrics.worked(worker.counts());
        if replica.send(Event::Checked(verdicts)).is_err() {
            return;
        }
    }
}
