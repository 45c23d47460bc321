//! Snapshots of the state, which peers are served from during state sync.
//!
//! # Which states
//!
//! Validators must offer the same states, so that a receiver can use all of them at once. A state
//! is certified by a later header that names it, and leaders may skip heights. So the block at each
//! multiple of the interval decides: the state that its header names is kept. That is the same
//! state everywhere, since the header is final.
//!
//! The header is known only after that state has passed. So the executor pins every state of the
//! last [`WINDOW`] blocks before such a block, and drops all but the one that is named. A pin is a
//! RocksDB snapshot: it copies nothing and takes microseconds, so no commit waits for it. If the
//! named state is older than the window, no snapshot is kept this time.
//!
//! Pins end with the process, and not with an epoch. At a start, the state that the newest final header names is made from
//! what the store kept of it ([`Store::named_state`]): a chain that has halted, because validators
//! without a state are missing, could not serve them after a restart otherwise. The first header after a
//! start that names a pinned state makes a snapshot too, so that validators that were started together
//! offer the same one.
//!
//! # How long
//!
//! The two newest are kept, each that was used within the last minute, for half an hour, and each that was
//! offered within the last seconds, since a receiver hears several peers before it chooses. Six are
//! kept at most, and those in use before others: new ones may come faster than a state can be fetched.
//! Overwritten rows stay on disk while a snapshot holds them, and the blocks since the oldest
//! snapshot are kept whatever the retention, since the receiver needs them afterwards.

use crate::clock::Clock;
use parking_lot::Mutex;
use quorate_consensus::{Finalized, Moment};
use quorate_storage::store::{StateSnapshot, Store, StoreError};
use quorate_types::{Header, Height, SnapshotProof, limits::MAX_SNAPSHOT_HEADERS};
use std::{collections::VecDeque, sync::Arc, time::Duration};
use tracing::debug;

/// Blocks before a deciding block whose states are pinned.
const WINDOW: u64 = 64;

/// Snapshots that are kept although nobody uses them.
const KEPT_UNUSED: usize = 2;

/// Most snapshots that are kept.
const MAX_KEPT: usize = 6;

/// How long a snapshot is kept after it was last used.
const USE_LASTS: Duration = Duration::from_secs(60);

/// How long a snapshot is kept after it was last offered.
const OFFER_LASTS: Duration = Duration::from_secs(5);

/// How long a snapshot is kept at most.
const MAX_AGE: Duration = Duration::from_secs(30 * 60);

/// A snapshot that peers can be served from.
pub struct Snapshot {
    /// The state.
    pub state: StateSnapshot,
    /// What certifies it.
    pub proof: SnapshotProof,
    taken: Moment,
    last: Mutex<Last>,
}

/// When a snapshot was last of use to a peer.
#[derive(Clone, Copy, Default)]
struct Last {
    /// When a part of it was requested.
    used: Option<Moment>,
    /// When it was offered.
    offered: Option<Moment>,
}

/// What a snapshot is kept for. Those of the least are dropped first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Need {
    Spare,
    Offered,
    Used,
}

impl Snapshot {
    fn need(&self, now: Moment) -> Need {
        let last = *self.last.lock();
        let within = |moment: Option<Moment>, lasts| moment.is_some_and(|at| now.since(at) < lasts);
        if now.since(self.taken) >= MAX_AGE {
            Need::Spare
        } else if within(last.used, USE_LASTS) {
            Need::Used
        } else if within(last.offered, OFFER_LASTS) {
            Need::Offered
        } else {
            Need::Spare
        }
    }
}

/// The snapshots, newest last.
pub struct Snapshots {
    clock: Arc<dyn Clock>,
    kept: Mutex<VecDeque<Arc<Snapshot>>>,
}

impl Snapshots {
    /// None yet.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            kept: Mutex::default(),
        }
    }

    /// The newest snapshot.
    pub fn newest(&self) -> Option<Arc<Snapshot>> {
        self.kept.lock().back().cloned()
    }

    /// The newest snapshot, which a peer is told of.
    pub fn offer(&self) -> Option<Arc<Snapshot>> {
        let newest = self.newest()?;
        newest.last.lock().offered = Some(self.clock.now());
        Some(newest)
    }

    /// The snapshot of a height, which counts as used.
    pub fn at(&self, height: Height) -> Option<Arc<Snapshot>> {
        let kept = self.kept.lock();
        let snapshot = kept.iter().find(|kept| kept.state.height() == height)?;
        snapshot.last.lock().used = Some(self.clock.now());
        Some(snapshot.clone())
    }

    /// All of them, newest last. That does not count as use.
    pub fn all(&self) -> Vec<Arc<Snapshot>> {
        self.kept.lock().iter().cloned().collect()
    }

    /// The heights of the snapshots, ascending.
    pub fn heights(&self) -> Vec<Height> {
        let kept = self.kept.lock();
        kept.iter()
            .map(|snapshot| snapshot.state.height())
            .collect()
    }

    /// Lets a snapshot look as if it was not used for long.
    #[cfg(test)]
    pub(crate) fn forget_use(&self, height: Height) {
        for snapshot in self.kept.lock().iter() {
            if snapshot.state.height() == height {
                *snapshot.last.lock() = Last::default();
            }
        }
    }

    /// Drops what is not kept any longer. Returns the height of the oldest snapshot.
    fn expire(&self) -> Option<Height> {
        let now = self.clock.now();
        let mut kept = self.kept.lock();
        let older = kept.len().saturating_sub(KEPT_UNUSED);
        let mut place = 0;
        kept.retain(|snapshot| {
            place += 1;
            place > older || snapshot.need(now) > Need::Spare
        });
        kept.front().map(|snapshot| snapshot.state.height())
    }

    /// Keeps a state and what certifies it.
    pub fn keep(&self, state: StateSnapshot, proof: SnapshotProof) {
        let taken = self.clock.now();
        {
            let mut kept = self.kept.lock();
            kept.push_back(Arc::new(Snapshot {
                state,
                proof,
                taken,
                last: Mutex::default(),
            }));
            if kept.len() > MAX_KEPT {
                let older = kept.iter().take(MAX_KEPT).enumerate();
                let least = older.min_by_key(|(_, snapshot)| snapshot.need(taken));
                if let Some((place, _)) = least {
                    kept.remove(place);
                }
            }
        }
        self.expire();
    }
}

/// A state that a deciding block has named, until a finalization is known.
struct Chosen {
    state: StateSnapshot,
    headers: Vec<Header>,
}

/// Takes snapshots. Owned by the executor.
pub(crate) struct SnapshotTaker {
    snapshots: Arc<Snapshots>,
    /// Blocks between deciding blocks; 0 for no snapshots.
    interval: u64,
    has_registry: bool,
    /// The newest blocks, with their states if they are pinned.
    recent: VecDeque<(Header, Option<StateSnapshot>)>,
    chosen: Option<Chosen>,
    /// Whether no snapshot was taken since the start.
    first: bool,
}

impl SnapshotTaker {
    pub(crate) fn new(snapshots: Arc<Snapshots>, interval: u64, has_registry: bool) -> Self {
        Self {
            snapshots,
            interval,
            has_registry,
            recent: VecDeque::new(),
            chosen: None,
            first: true,
        }
    }

    /// Upon a start: keeps the state that the newest final header names, unless there are snapshots from before.
    pub(crate) fn starts(&self, store: &Store) -> Result<(), StoreError> {
        if self.interval > 0
            && self.snapshots.newest().is_none()
            && let Some((state, proof)) = store.named_state()?
        {
            debug!(height = %state.height(), "a snapshot for state sync, from before the start");
            self.keep(store, state, proof)?;
        }
        Ok(())
    }

    /// Keeps a state and what certifies it. On a chain with a registry it is of no use without what it says
    /// about the validators.
    fn keep(
        &self,
        store: &Store,
        state: StateSnapshot,
        mut proof: SnapshotProof,
    ) -> Result<(), StoreError> {
        if self.has_registry {
            let Some(registry) = store.registry_of(&state)? else {
                return Ok(());
            };
            proof.registry = Some(registry);
        }
        self.snapshots.keep(state, proof);
        Ok(())
    }

    /// Upon a block that was executed and stored.
    pub(crate) fn executed(
        &mut self,
        store: &Store,
        finalized: &Finalized,
    ) -> Result<(), StoreError> {
        if self.interval == 0 {
            return Ok(());
        }
        let header = *finalized.block.header();
        let height = header.height.0;
        let decides = height.is_multiple_of(self.interval);
        if (decides || self.first) && self.chosen.is_none() {
            self.choose(&header, decides);
        }
        let to_next = self.interval - height % self.interval;
        let pinned = (to_next <= WINDOW || self.first).then(|| store.pin());
        self.recent.push_back((header, pinned));
        while self.recent.len() as u64 > WINDOW {
            self.recent.pop_front();
        }
        let Some(chosen) = &mut self.chosen else {
            return Ok(());
        };
        chosen.headers.push(header);
        if let Some(finalization) = &finalized.certificate {
            let Chosen { state, headers } = self.chosen.take().expect("it was just there");
            debug!(height = %state.height(), "a snapshot for state sync");
            self.first = false;
            let proof = SnapshotProof {
                headers,
                finalization: finalization.clone(),
                registry: None,
            };
            self.keep(store, state, proof)?;
        } else if chosen.headers.len() >= MAX_SNAPSHOT_HEADERS {
            self.chosen = None;
        }
        Ok(())
    }

    /// Chooses the state that a header names, if it is pinned. The other pins are dropped.
    fn choose(&mut self, header: &Header, decides: bool) {
        let named = |(recent, state): &(Header, Option<StateSnapshot>)| {
            recent.height == header.executed_height && state.is_some()
        };
        let newest = self.snapshots.newest();
        let is_new = newest.is_none_or(|kept| kept.state.height() < header.executed_height);
        let place = self.recent.iter().position(named).filter(|_| is_new);
        if let Some(place) = place {
            let headers = self.recent.iter().skip(place).map(|(header, _)| *header);
            let headers = headers.collect();
            let state = self.recent[place].1.take().expect("it is pinned");
            self.chosen = Some(Chosen { state, headers });
        }
        if decides || place.is_some() {
            self.recent.iter_mut().for_each(|(_, pin)| *pin = None);
        }
    }

    /// How many snapshots are kept.
    pub(crate) fn count(&self) -> usize {
        self.snapshots.expire();
        self.snapshots.kept.lock().len()
    }

    /// The height below which no snapshot's receiver needs a block; `None` without snapshots.
    pub(crate) fn oldest(&self) -> Option<Height> {
        self.snapshots.expire()
    }
}
