//! One node: a validator or a follower, assembled from the node's own parts for an epoch.

use super::keys::Keys;
use crate::{
    clock::{ClockFault, SimClock},
    disk::SimDisk,
    host::{Outbox, Sent, lock, wire},
    stock,
};
use anyhow::Context as _;
use bytes::Bytes;
use quorate_consensus::{Moment, Own, Timing, VoteChecking};
use quorate_lanes::{Lane, PeerStatus, To};
use quorate_machine::validate::Waiting;
use quorate_machine::{
    between::Between,
    follower::{FollowerMachine, FollowerSettings},
    machine::{
        ConsensusConfig, Durables, Inherited, KeptJournal, Machine, Predecessor, Settings,
        Surroundings, journal_folder,
    },
    mempool::{Mempool, MempoolLimits},
    metrics::NodeMetrics,
    registry,
    replica::Event,
    roles::{self, Alone, Borders, Crossed, OLD_MS, Seat},
    serve::Upload,
    sync::Arrival,
};
use quorate_storage::{journal::Journal, store::Store};
use quorate_types::{
    Account, ChainId, Committees, Identity, Nonce, Record, Transaction, genesis::Genesis,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

/// The most rounds of a step; what is left waits for the next.
const ROUNDS: usize = 8;

const MEMPOOL: MempoolLimits = MempoolLimits {
    max_transactions: 1_000,
    max_bytes: 1 << 20,
    max_per_sender: 64,
    stranded_lasts: Duration::from_secs(2),
};

/// What all nodes share.
pub(super) struct Shared {
    pub(super) genesis: Arc<Genesis>,
    pub(super) chain: ChainId,
    pub(super) keys: Arc<Keys>,
    pub(super) timing: Timing,
}

enum Parts {
    Validator {
        machine: Box<Machine>,
        alone: Option<Alone>,
        waiting: Vec<Waiting>,
    },
    Follower {
        machine: Box<FollowerMachine>,
        borders: Box<Borders>,
    },
}

struct Running {
    parts: Parts,
    store: Store,
    committees: Committees,
}

pub(super) struct Host {
    number: usize,
    pub(super) disk: SimDisk,
    pub(super) clock: Arc<SimClock>,
    outbox: Arc<Mutex<Outbox>>,
    between: Between,
    running: Option<Running>,
    /// Counts lives, so that what was meant for a former one is dropped.
    pub(super) life: u64,
    /// When it runs next.
    pub(super) planned: Option<Moment>,
    /// The links that its parts were told of.
    told: BTreeMap<usize, bool>,
    /// Whether it has ever cast a vote, over all lives.
    has_voted: bool,
    /// Whether its votes are forged.
    pub(super) forges: bool,
    /// How often its parts were assembled.
    assemblies: u64,
    /// The parts were found to be alone.
    is_alone: bool,
    /// What its parts before said, if they have ended.
    before: Option<Predecessor>,
    /// What they leave behind.
    inherited: Option<Inherited>,
    journal: Option<KeptJournal>,
}

fn data_dir() -> PathBuf {
    PathBuf::from("/node")
}

impl Host {
    pub(super) fn new(number: usize, seed: u64) -> Self {
        let clock = Arc::new(SimClock::new(ClockFault::default()));
        Self {
            number,
            disk: SimDisk::new(seed, clock.clone(), Duration::from_micros(200)),
            clock,
            outbox: Arc::default(),
            between: Between::new(true),
            running: None,
            life: 0,
            planned: None,
            told: BTreeMap::new(),
            has_voted: false,
            forges: false,
            assemblies: 0,
            is_alone: false,
            before: None,
            inherited: None,
            journal: None,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.running.is_some()
    }

    /// What the checkers look at.
    pub(super) fn view(&self) -> Option<(&Store, &Committees)> {
        let running = self.running.as_ref()?;
        Some((&running.store, &running.committees))
    }

    pub(super) fn describe(&self) -> String {
        let Some(running) = &self.running else {
            return format!("{} is down", self.number);
        };
        let tip = running.store.tip().height;
        let committee = running.committees.known();
        let (epoch, size) = (committee.epoch(), committee.size());
        match &running.parts {
            Parts::Validator { machine, .. } => {
                let engine = machine.replica.engine();
                format!(
                    "{} validates at {tip} in {epoch:?} of {size}, view {}, {:?}",
                    self.number,
                    engine.view(),
                    engine.voting()
                )
            }
            Parts::Follower { .. } => {
                let seat = committee.place(&stock::identity_key(self.number).identity());
                let number = self.number;
                format!("{number} follows at {tip} in {epoch:?} of {size}, seat {seat:?}")
            }
        }
    }

    /// The others that validate with it.
    pub(super) fn members(&self, keys: &Keys) -> Vec<usize> {
        let Some(running) = &self.running else {
            return Vec::new();
        };
        let members = running.committees.known().identities().iter();
        let nodes = members.filter_map(|identity| keys.place(identity));
        nodes.filter(|node| *node != self.number).collect()
    }

    /// Starts, or starts again after a crash.
    pub(super) fn start(&mut self, shared: &Shared) -> anyhow::Result<()> {
        self.life += 1;
        self.planned = None;
        self.between = Between::new(true);
        *lock(&self.outbox) = Outbox::default();
        self.assemble(shared, false, true)
    }

    /// Loses everything that is not on disk.
    pub(super) fn crash(&mut self) {
        self.running = None;
        self.before = None;
        self.inherited = None;
        self.journal = None;
        self.planned = None;
        self.life += 1;
        self.disk.crash();
        lock(&self.outbox).sent.clear();
    }

    /// Assembles the parts for the epoch of the next block, with the frames that came meanwhile. With
    /// `follows`, it takes no part with a vote.
    pub(super) fn assemble(
        &mut self,
        shared: &Shared,
        follows: bool,
        starts: bool,
    ) -> anyhow::Result<()> {
        self.assemblies += 1;
        self.is_alone = false;
        self.told.clear();
        let (before, inherited) = (self.before.take(), self.inherited.take());
        let journal = self.journal.take();
        let disk = Arc::new(self.disk.clone());
        let (store, tree) = Store::open_on(disk.clone(), Path::new("/node/db"), &shared.genesis)?;
        let committees = registry::committees(&shared.genesis, &store)?;
        let epoch = committees.known().epoch();
        let set = committees
            .set(epoch)
            .context("the validators are not known")?;
        let newest = store.tip().block;
        let now_ms = quorate_machine::clock::Clock::wall_ms(&*self.clock);
        let age = newest.map(|block| now_ms.saturating_sub(block.header().timestamp_ms));
        let follows = follows || (starts && age.is_some_and(|age| age > OLD_MS));
        let own = shared.keys.identity(self.number);
        let seat = roles::seat(&set, &own, &shared.keys.vote_key(self.number));
        let others: Vec<Identity> = (0..shared.keys.nodes())
            .map(|node| shared.keys.identity(node))
            .filter(|identity| *identity != own)
            .collect();
        let (wire, cut) = wire(&self.outbox, &self.clock, &self.disk);
        let around = Surroundings {
            clock: self.clock.clone(),
            wire,
            in_flight: Arc::new(|_, _| 0),
            cut,
            metrics: Arc::new(NodeMetrics::register(&prometheus::Registry::new())?),
        };
        let parts = match (seat, follows) {
            (Seat::At(place), false) => {
                let members = committees.known();
                let followers = others
                    .into_iter()
                    .filter(|one| members.place(one).is_none());
                let settings = Settings {
                    genesis: shared.genesis.clone(),
                    committees: committees.clone(),
                    own: Own {
                        place,
                        secret: shared.keys.signer(self.number, self.forges),
                    },
                    identity: stock::identity_key(self.number),
                    consensus: ConsensusConfig {
                        timing: shared.timing,
                        finalize_linger: Duration::ZERO,
                        min_block_interval: Duration::ZERO,
                        penalty_lasts: Duration::from_secs(10),
                        checking: VoteChecking::default(),
                        filtering: true,
                    },
                    followers: followers.collect(),
                    mempool: MEMPOOL,
                    retention: None,
                    snapshot_interval: 0,
                    upload: Upload::default(),
                    data_dir: data_dir(),
                };
                let folder = journal_folder(&data_dir());
                let KeptJournal {
                    journal,
                    records,
                    fresh,
                } = match journal {
                    Some(held) => held,
                    None => {
                        let (journal, recovered) =
                            Journal::open_on(disk.clone(), &folder, shared.chain)?;
                        let told = |record: &Record| {
                            matches!(record, Record::Vote(_) | Record::Silence(_))
                        };
                        KeptJournal {
                            fresh: !self.has_voted && !recovered.records.iter().any(told),
                            records: recovered.records,
                            journal,
                        }
                    }
                };
                let mut nonce = [0; 16];
                nonce[..8].copy_from_slice(&self.assemblies.to_be_bytes());
                nonce[8..].copy_from_slice(&(self.number as u64).to_be_bytes());
                let mut machine = Machine::assemble(
                    settings,
                    Durables {
                        disk,
                        store: store.clone(),
                        tree,
                        journal,
                        records,
                        silent_before: Default::default(),
                        nonce: Some(Nonce(nonce)),
                        fresh,
                        predecessor: before,
                        inherited,
                        survivors: None,
                        bundles: None,
                    },
                    around,
                )?;
                let first = std::mem::take(&mut machine.first);
                machine.replica.begin(first)?;
                machine.replica.settle()?;
                Parts::Validator {
                    alone: Alone::new(machine.live.clone()),
                    machine: Box::new(machine),
                    waiting: Vec::new(),
                }
            }
            (seat, _) => {
                let (keys, chain) = (shared.keys.clone(), shared.chain);
                let settings = FollowerSettings {
                    genesis: shared.genesis.clone(),
                    committees: committees.clone(),
                    upstreams: others,
                    followers: Vec::new(),
                    mempool: MEMPOOL,
                    retention: None,
                    prefers_state: false,
                    snapshot_interval: 0,
                    upload: Upload::default(),
                    inherited,
                    usual_interval: shared.timing.view_timeout,
                };
                let machine = FollowerMachine::assemble(
                    settings,
                    (store.clone(), tree),
                    around,
                    Box::new(move |certificate| keys.verify(&chain, certificate)),
                )?;
                let has_seat = matches!(seat, Seat::At(_));
                let clock = self.clock.clone();
                let borders = Borders::new(
                    committees.clone(),
                    store.clone(),
                    clock,
                    machine.live.clone(),
                    has_seat,
                );
                Parts::Follower {
                    machine: Box::new(machine),
                    borders: Box::new(borders),
                }
            }
        };
        self.running = Some(Running {
            parts,
            store,
            committees,
        });
        let now = self.clock.world();
        loop {
            let waiting = self.between.open(now);
            if waiting.is_empty() {
                return Ok(());
            }
            for (from, lane, frame) in waiting {
                self.hand_over(from, lane, frame);
            }
        }
    }

    /// Its parts end, to be assembled anew.
    pub(super) fn leave(&mut self) -> anyhow::Result<()> {
        self.between.close();
        match self.running.take().map(|running| running.parts) {
            Some(Parts::Validator { machine, .. }) => {
                machine.keeper.keep(machine.kept.try_iter())?;
                self.before = Some(machine.replica.left());
                self.inherited = Some(machine.leaves());
                self.journal = Some(machine.replica.stop()?);
                Ok(())
            }
            Some(Parts::Follower { machine, .. }) => {
                machine.keeper.keep(machine.kept.try_iter())?;
                self.before = Some(Predecessor::default());
                self.inherited = Some(machine.leaves());
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// What it has sent since the last call.
    pub(super) fn sent(&mut self) -> Vec<Sent> {
        let mut outbox = lock(&self.outbox);
        let cuts = outbox.cuts.clone();
        let now = self.clock.world();
        let mut sent = std::mem::take(&mut outbox.sent);
        drop(outbox);
        self.has_voted |= sent.iter().any(|frame| frame.lane == Lane::Votes);
        sent.retain(|frame| match &frame.to {
            To::One(identity) => cuts.get(identity).is_none_or(|until| *until <= now),
            _ => true,
        });
        sent
    }

    /// A frame arrives.
    pub(super) fn receive(&mut self, now: Moment, from: Identity, lane: Lane, frame: Bytes) {
        let cut = lock(&self.outbox).cuts.get(&from).copied();
        if self.running.is_none() || cut.is_some_and(|until| until > now) {
            return;
        }
        self.clock.set(now);
        if self.between.receive(now, from, lane, &frame) {
            self.hand_over(from, lane, frame);
        }
    }

    fn hand_over(&self, from: Identity, lane: Lane, frame: Bytes) {
        match self.running.as_ref().map(|running| &running.parts) {
            Some(Parts::Validator { machine, .. }) => machine.inlet.receive(from, lane, frame),
            Some(Parts::Follower { machine, .. }) => machine.frames.receive(from, lane, frame),
            None => {}
        }
    }

    /// Tells its parts which links are up. Returns whether that was news.
    pub(super) fn tell_links(&mut self, shared: &Shared, up: &BTreeSet<usize>) -> bool {
        let Some(running) = &self.running else {
            return false;
        };
        let mut is_news = false;
        for peer in (0..shared.keys.nodes()).filter(|peer| *peer != self.number) {
            let is_up = up.contains(&peer);
            if self.told.insert(peer, is_up) == Some(is_up) {
                continue;
            }
            is_news = true;
            let identity = shared.keys.identity(peer);
            match &running.parts {
                Parts::Validator { machine, .. } => {
                    if let Some(peer) = running.committees.known().place(&identity) {
                        // The replica is here as long as its queue is.
                        let _ = machine.to_replica.send(Event::Linked { peer, up: is_up });
                    }
                }
                Parts::Follower { machine, .. } => machine.inbox.linked(identity, is_up),
            }
        }
        is_news
    }

    pub(super) fn each_second(&mut self, shared: &Shared, now: Moment, linked: &[usize]) {
        self.clock.set(now);
        let Some(running) = &mut self.running else {
            return;
        };
        match &mut running.parts {
            Parts::Validator { machine, alone, .. } => {
                machine.forwarder.forward();
                let peers: Vec<PeerStatus> = linked
                    .iter()
                    .map(|peer| peer_status(shared.keys.identity(*peer)))
                    .collect();
                if let Some(alone) = alone {
                    self.is_alone |= alone.look(&peers);
                }
            }
            Parts::Follower { machine, .. } => {
                machine.forwarder.forward();
            }
        }
    }

    /// Runs all parts. Returns whether they have come to an end, and if so, whether the node follows next
    /// whatever seat it has.
    pub(super) fn step(&mut self, shared: &Shared) -> anyhow::Result<Option<bool>> {
        let Some(running) = &mut self.running else {
            return Ok(None);
        };
        let now = self.clock.world();
        let known = running.committees.known().epoch();
        match &mut running.parts {
            Parts::Validator {
                machine, waiting, ..
            } => {
                for _ in 0..ROUNDS {
                    if machine.events.is_empty() {
                        machine.replica.tick()?;
                    } else {
                        machine.replica.take_all(machine.events.try_iter())?;
                    }
                    machine.replica.settle()?;
                    if machine.replica.ended().is_some() {
                        return Ok(Some(false));
                    }
                    let jobs = machine.jobs.try_iter().flatten();
                    let verdicts: Vec<_> = jobs
                        .map(|job| shared.keys.work(&shared.chain, known, job))
                        .collect();
                    if !verdicts.is_empty() {
                        let _ = machine.to_replica.send(Event::Checked(verdicts));
                    }
                    waiting.extend(
                        machine
                            .proposals
                            .try_iter()
                            .map(|asked| Waiting::new(asked, now)),
                    );
                    for event in machine.validator.look(waiting)? {
                        let _ = machine.to_replica.send(event);
                    }
                    if machine.executor.has_work() {
                        machine.executor.run_waiting()?;
                    }
                    machine.server.serve_waiting()?;
                    if machine.ingest.has_work() {
                        machine.ingest.take_waiting()?;
                    }
                    machine.keeper.keep(machine.kept.try_iter())?;
                    if machine.events.is_empty() {
                        break;
                    }
                }
                Ok(self.is_alone.then_some(true))
            }
            Parts::Follower { machine, borders } => {
                while let Some(arrival) = machine.arrivals.take() {
                    match arrival {
                        Arrival::Frame(from, bytes) => machine.follower.receive(from, bytes)?,
                        Arrival::Linked(peer, up) => machine.follower.linked(peer, up),
                    }
                }
                machine.follower.tick();
                if machine.executor.has_work() {
                    machine.executor.run_waiting()?;
                }
                machine.server.serve_waiting()?;
                if machine.ingest.has_work() {
                    machine.ingest.take_waiting()?;
                }
                machine.keeper.keep(machine.kept.try_iter())?;
                Ok(borders.look().map(|crossed| match crossed {
                    Crossed::InStep | Crossed::NothingNewer => false,
                    // As in the node: it follows until it is in step.
                    Crossed::ValidatorsChange => true,
                }))
            }
        }
    }

    /// When it has something to do, if nothing arrives.
    pub(super) fn due(&self) -> Option<Moment> {
        let running = self.running.as_ref()?;
        let now = self.clock.world();
        match &running.parts {
            Parts::Validator {
                machine, waiting, ..
            } => {
                let busy = !machine.events.is_empty()
                    || !waiting.is_empty()
                    || machine.executor.has_work();
                let served = machine.server.due();
                let due = machine.replica.wake_at();
                let due = served.map_or(due, |served| due.min(served));
                Some(if busy {
                    now.after(Duration::from_micros(500))
                } else {
                    self.clock.world_at(due)
                })
            }
            Parts::Follower { machine, .. } => Some(self.clock.world_at(machine.follower.due())),
        }
    }

    fn mempool(&self) -> Option<&Arc<Mempool>> {
        Some(match &self.running.as_ref()?.parts {
            Parts::Validator { machine, .. } => &machine.mempool,
            Parts::Follower { machine, .. } => &machine.mempool,
        })
    }

    /// The nonce of an account's next transaction.
    pub(super) fn nonce(&self, identity: &Identity) -> Option<u64> {
        let store = &self.running.as_ref()?.store;
        Some(store.account(identity).ok()??.nonce)
    }

    /// A client hands in a transaction. Returns whether it is taken.
    pub(super) fn submit(&self, now: Moment, transaction: Transaction) -> bool {
        let Some(running) = &self.running else {
            return false;
        };
        let accounts = match &running.parts {
            Parts::Validator { machine, .. } => &machine.accounts,
            Parts::Follower { machine, .. } => &machine.accounts,
        };
        let read = accounts.read(&transaction.transfer().sender);
        let mempool = self.mempool();
        read.is_ok_and(|read| {
            mempool.is_some_and(|mempool| mempool.submit(now, transaction, read).is_ok())
        })
    }

    /// The accounts of all nodes.
    pub(super) fn accounts(&self, shared: &Shared) -> Option<Vec<Account>> {
        let store = &self.running.as_ref()?.store;
        let all = 0..shared.keys.nodes();
        all.map(|node| {
            let account = store.account(&shared.keys.identity(node)).ok()?;
            Some(account.unwrap_or_default())
        })
        .collect()
    }
}

fn peer_status(identity: Identity) -> PeerStatus {
    PeerStatus {
        identity,
        connected: true,
        round_trip_us: Some(2_000),
        connected_for: Some(Duration::from_secs(10)),
        silent_for: Duration::ZERO,
        blocked: false,
        oversized: 0,
        refusals: 0,
        doubled_for: None,
        clock_refused: false,
        clock_ahead_ms: None,
    }
}
