//! The threads that do the replica's cryptography.
//!
//! One does the checks. What takes longer (tens of milliseconds in a large committee, when votes
//! are invalid) it leaves to another one, so that no view's check waits for the search of another.

use crate::{metrics::NodeMetrics, replica::Event};
use crossbeam_channel::{Receiver, Sender};
use quorate_consensus::{Job, Search, Worker};
use rand::Rng;
use std::sync::Arc;

fn seed() -> [u8; 32] {
    let mut seed = [0; 32];
    rand::rng().fill_bytes(&mut seed);
    seed
}

/// Does jobs until the replica is gone. All that wait are done together, so that they can share a
/// pairing check.
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

/// Does what [`check`] leaves, one after the other.
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
