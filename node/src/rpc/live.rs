//! What the replica shows of itself to RPC, without either waiting for the other.

use parking_lot::RwLock;
use quorate_types::{Committee, Epoch, Height, Status, ValidatorIndex, View};
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

/// The replica's progress and what it has heard of others.
pub struct LiveStatus {
    committee: Committee,
    own: ValidatorIndex,
    started: Instant,
    epoch: AtomicU64,
    view: AtomicU64,
    finalized_height: AtomicU64,
    blocked: RwLock<Vec<(ValidatorIndex, &'static str)>>,
    peers: RwLock<BTreeMap<ValidatorIndex, Status>>,
}

impl LiveStatus {
    /// Nothing has happened yet.
    pub fn new(committee: Committee, own: ValidatorIndex) -> Self {
        Self {
            committee,
            own,
            started: Instant::now(),
            epoch: AtomicU64::new(0),
            view: AtomicU64::new(0),
            finalized_height: AtomicU64::new(0),
            blocked: RwLock::default(),
            peers: RwLock::default(),
        }
    }

    /// Shows where the replica is.
    pub fn set_progress(&self, epoch: Epoch, view: View, finalized: Height) {
        self.epoch.store(epoch.0, Ordering::Relaxed);
        self.view.store(view.0, Ordering::Relaxed);
        self.finalized_height.store(finalized.0, Ordering::Relaxed);
    }

    /// Shows whom the replica has blocked, and why.
    pub fn set_blocked(&self, blocked: Vec<(ValidatorIndex, &'static str)>) {
        *self.blocked.write() = blocked;
    }

    /// Notes how far a peer says that it is. One entry per validator.
    pub fn peer_status(&self, from: ValidatorIndex, status: &Status) {
        self.peers.write().insert(from, *status);
    }

    /// The committee.
    pub fn committee(&self) -> &Committee {
        &self.committee
    }

    /// This validator's place.
    pub fn own(&self) -> ValidatorIndex {
        self.own
    }

    /// When the node started.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// The epoch.
    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Relaxed))
    }

    /// The current view.
    pub fn view(&self) -> View {
        View(self.view.load(Ordering::Relaxed))
    }

    /// The newest final height whose whole chain is here.
    pub fn finalized_height(&self) -> Height {
        Height(self.finalized_height.load(Ordering::Relaxed))
    }

    /// Whom the replica has blocked, and why.
    pub fn blocked(&self) -> Vec<(ValidatorIndex, &'static str)> {
        self.blocked.read().clone()
    }

    /// How far a peer says that it is.
    pub fn peer(&self, place: ValidatorIndex) -> Option<Status> {
        self.peers.read().get(&place).copied()
    }
}
