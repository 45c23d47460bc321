//! The parts of a validator, made from what they share.

use super::{ConsensusConfig, Inherited, SeenVotes, Settings, Surroundings};
use crate::{
    accounts::Accounts,
    across::Across,
    asked::Asked,
    clock::Clock,
    conduct::Conduct,
    directory::Directory,
    evidence::EvidenceFolder,
    executor::{ExecutedBlock, Executor, ExecutorHandle, Observed, Retention, Slowest},
    forecast::Forecast,
    ingest::{FORWARD_AT_LATEST, Forwarder, Ingest},
    inlet::{FollowerInlet, Inlet, InletParts},
    keeper::{self, Keeper},
    ledger::Rules,
    live::LiveStatus,
    mempool::Mempool,
    metrics::NodeMetrics,
    offenders::Offenders,
    outlet::{InFlight, Outlet, Wire},
    payloads::{PayloadKeeper, PayloadParts, Payloads},
    replica::{Cutter, Event, Neighbours, ReplicaConfig},
    serve::{Requests, Server, Sources, Unanswered, Upload, WaitingRequests, requests},
    snapshots::{SnapshotTaker, Snapshots},
    turns::{TurnReceiver, TurnSender},
    validate::Validator,
};
use crossbeam_channel::Sender;
use quorate_consensus::{Engine, Job, ValidateRequest};
use quorate_crypto::SecretKey;
use quorate_storage::{
    bundles::BundleLog,
    store::Store,
    tree::{TableRows, Tree},
};
use quorate_types::{
    ChainId, Committees, Transaction, ValidatorIndex,
    genesis::{Genesis, Protocol},
};
use std::sync::Arc;

/// What several parts of a validator share.
pub(super) struct Shared {
    genesis: Arc<Genesis>,
    chain: ChainId,
    committees: Committees,
    peers: Directory,
    consensus: ConsensusConfig,
    retention: Option<Retention>,
    snapshot_interval: u64,
    upload: Upload,
    pub(super) snapshots: Arc<Snapshots>,
    clock: Arc<dyn Clock>,
    wire: Wire,
    in_flight: InFlight,
    cut: Cutter,
    metrics: Arc<NodeMetrics>,
    store: Store,
    forecast: Arc<Forecast>,
    asked: Arc<Asked>,
    across: Arc<Across>,
    pub(super) seen: SeenVotes,
    pub(super) unanswered: Unanswered,
    identity: SecretKey,
    /// On a chain that only orders.
    pub(super) payloads: Option<Arc<Payloads>>,
    pub(super) accounts: Accounts,
    pub(super) mempool: Arc<Mempool>,
    pub(super) live: Arc<LiveStatus>,
    pub(super) conduct: Arc<Conduct>,
    pub(super) to_replica: Sender<Event>,
}

/// The queues and handles that only the replica uses.
pub(super) struct ReplicaQueues {
    pub(super) jobs: Sender<Vec<Job>>,
    pub(super) validator: Sender<ValidateRequest>,
    pub(super) requests: Requests,
    pub(super) executor: ExecutorHandle,
}

impl Shared {
    pub(super) fn new(
        settings: Settings,
        around: Surroundings,
        (store, inherited): (Store, Option<Inherited>),
        engine: &Engine,
        to_replica: Sender<Event>,
    ) -> anyhow::Result<Self> {
        let Settings {
            genesis,
            committees,
            ..
        } = settings;
        let chain = genesis.chain_id();
        let own = settings.own.place;
        let clock = around.clock;
        let taken_up = Inherited::taken_up(inherited, &store, &clock);
        let (accounts, snapshots) = (taken_up.accounts, taken_up.snapshots);
        let mempool = keeper::mempool(
            clock.now(),
            (settings.mempool, taken_up.mempool),
            &genesis,
            committees.known().identities(),
            (&store, &accounts),
        )?;
        let peers = Directory::of_validator(committees.known(), &settings.followers);
        let live = live_status(
            &committees,
            own,
            genesis.protocol,
            &settings.consensus,
            &store,
            engine,
        );
        if !settings.consensus.timing.idle_interval.is_zero() {
            let to_replica = to_replica.clone();
            // If the replica's thread has ended, that was reported.
            mempool.watch(Box::new(move || drop(to_replica.send(Event::Pending))));
        }
        let conduct = Conduct::new(
            committees.clone(),
            clock.clone(),
            around.metrics.clone(),
            live.clone(),
            around.cut.clone(),
        );
        let signer = settings.identity.clone();
        let identity = (own, settings.identity);
        let across = Across::new(chain, committees.clone(), identity, &*clock);
        let rules = Rules::of(&genesis).knowing(&committees);
        let mut forecast = Forecast::new(accounts.clone(), committees.clone(), rules);
        if !settings.consensus.filtering {
            forecast = forecast.without_filtering();
        }
        Ok(Self {
            chain,
            consensus: settings.consensus,
            retention: settings.retention,
            snapshot_interval: settings.snapshot_interval,
            upload: settings.upload,
            snapshots,
            wire: around.wire,
            in_flight: around.in_flight,
            seen: taken_up.seen,
            unanswered: taken_up.unanswered,
            identity: signer,
            payloads: None,
            cut: around.cut,
            metrics: around.metrics,
            forecast: Arc::new(forecast),
            asked: Arc::new(Asked::new(committees.known().size())),
            across: Arc::new(across),
            conduct: Arc::new(conduct),
            genesis,
            committees,
            peers,
            clock,
            store,
            accounts,
            mempool,
            live,
            to_replica,
        })
    }

    /// Opens the payloads of a chain that only orders.
    pub(super) fn open_payloads(&mut self, log: BundleLog) -> anyhow::Result<PayloadKeeper> {
        let parts = PayloadParts {
            chain: self.chain,
            identity: self.identity.clone(),
            committee: self.committees.known().clone(),
            clock: self.clock.clone(),
            accounts: self.accounts.clone(),
            store: self.store.clone(),
            timing: self.consensus.timing,
            mempool: self.mempool.clone(),
            conduct: self.conduct.clone(),
            wire: self.wire.clone(),
            metrics: self.metrics.clone(),
        };
        let keeper = PayloadKeeper::new(parts, log)?;
        self.payloads = Some(keeper.payloads());
        Ok(keeper)
    }

    pub(super) fn executor(
        &self,
        tree: Tree<TableRows>,
        requests: Requests,
    ) -> anyhow::Result<(Executor, ExecutorHandle)> {
        Executor::new(
            self.accounts.clone(),
            (self.store.clone(), tree),
            SnapshotTaker::new(
                self.snapshots.clone(),
                self.snapshot_interval,
                self.committees.can_change(),
            ),
            (
                self.committees.clone(),
                Rules::of(&self.genesis).knowing(&self.committees),
            ),
            self.retention,
            (self.observer(requests), self.slowest()),
            self.metrics.clone(),
        )
    }

    pub(super) fn inlet(
        &self,
        requests: Requests,
        transactions: TurnSender<Vec<Transaction>>,
    ) -> Inlet {
        let queues = (requests.clone(), transactions.clone());
        let followers = FollowerInlet::new(
            self.peers.clone(),
            self.clock.clone(),
            self.conduct.clone(),
            queues,
            self.metrics.clone(),
            self.committees.can_change(),
        );
        Inlet::new(InletParts {
            committees: self.committees.clone(),
            followers,
            clock: self.clock.clone(),
            live: self.live.clone(),
            conduct: self.conduct.clone(),
            asked: self.asked.clone(),
            replica: self.to_replica.clone(),
            requests,
            transactions,
            metrics: self.metrics.clone(),
            across: self.across.clone(),
            payloads: self.payloads.clone(),
            wire: self.wire.clone(),
        })
    }

    pub(super) fn validator(&self, executor: ExecutorHandle) -> Validator {
        Validator {
            clock: self.clock.clone(),
            chain: self.chain,
            limits: self.genesis.limits,
            fees: self.genesis.fees,
            forecast: self.forecast.clone(),
            mempool: self.mempool.clone(),
            executor,
            payloads: self.payloads.clone(),
        }
    }

    pub(super) fn requests(&self) -> (Requests, WaitingRequests) {
        requests(&self.peers, self.unanswered.clone())
    }

    pub(super) fn server(&self, requests: WaitingRequests) -> Server {
        Server::new(
            Sources {
                store: self.store.clone(),
                snapshots: self.snapshots.clone(),
                epoch_length: self.genesis.epoch_blocks,
                peers: self.peers.clone(),
                live: self.live.clone(),
            },
            self.upload,
            self.clock.clone(),
            (self.wire.clone(), self.in_flight.clone()),
            requests,
            self.metrics.clone(),
        )
    }

    pub(super) fn keeper(&self) -> Keeper {
        Keeper {
            store: self.store.clone(),
            mempool: self.mempool.clone(),
            metrics: self.metrics.clone(),
        }
    }

    pub(super) fn ingest(&self, forwarded: TurnReceiver<Vec<Transaction>>) -> Ingest {
        Ingest {
            clock: self.clock.clone(),
            chain: self.chain,
            peers: self.peers.clone(),
            application: self.genesis.application,
            fees: self.genesis.fees,
            accounts: self.accounts.clone(),
            mempool: self.mempool.clone(),
            metrics: self.metrics.clone(),
            conduct: self.conduct.clone(),
            forwarded,
        }
    }

    pub(super) fn forwarder(&self) -> Forwarder {
        Forwarder {
            clock: self.clock.clone(),
            committees: self.committees.clone(),
            mempool: self.mempool.clone(),
            live: self.live.clone(),
            wire: self.wire.clone(),
            at_latest: FORWARD_AT_LATEST,
        }
    }

    pub(super) fn replica_config(&self) -> ReplicaConfig {
        ReplicaConfig {
            chain: self.chain,
            committees: self.committees.clone(),
            limits: self.genesis.limits,
            genesis_ms: self.genesis.timestamp_ms,
            finalize_linger: self.consensus.finalize_linger,
            min_block_interval: self.consensus.min_block_interval,
            idle_interval: self.consensus.timing.idle_interval,
            penalty_lasts: self.consensus.penalty_lasts,
        }
    }

    pub(super) fn neighbours(
        &self,
        queues: ReplicaQueues,
        offenders: Offenders,
        evidence: EvidenceFolder,
    ) -> Neighbours {
        Neighbours {
            wire: self.wire.clone(),
            outlet: Outlet::new(self.wire.clone(), self.committees.clone())
                .noting(self.asked.clone())
                .followed(self.peers.has_followers())
                .across(self.across.clone()),
            jobs: queues.jobs,
            validator: queues.validator,
            requests: queues.requests,
            executor: queues.executor,
            forecast: self.forecast.clone(),
            mempool: self.mempool.clone(),
            payloads: self.payloads.clone(),
            metrics: self.metrics.clone(),
            live: self.live.clone(),
            cut: self.cut.clone(),
            across: self.across.clone(),
            conduct: self.conduct.clone(),
            offenders,
            evidence,
            clock: self.clock.clone(),
        }
    }

    fn slowest(&self) -> Slowest {
        let (live, clock) = (self.live.clone(), self.clock.clone());
        Box::new(move || live.slowest(clock.now()))
    }

    /// The consequences of an executed block for other parts.
    fn observer(&self, requests: Requests) -> Box<dyn Fn(&ExecutedBlock) + Send> {
        let observed = Observed {
            clock: self.clock.clone(),
            mempool: self.mempool.clone(),
            live: self.live.clone(),
            metrics: self.metrics.clone(),
            requests,
            payloads: self.payloads.clone(),
        };
        let (metrics, committees) = (self.metrics.clone(), self.committees.clone());
        let replica = self.to_replica.clone();
        Box::new(move |executed| {
            observed.executed(executed);
            metrics.count_turns(executed.block.header(), &committees);
            // If the replica's thread has ended, that was reported.
            let _ = replica.send(Event::Executed(executed.block.height()));
        })
    }
}

/// Shows the progress as of the start, since clients are served before the replica's first step.
fn live_status(
    committees: &Committees,
    own: ValidatorIndex,
    protocol: Protocol,
    consensus: &ConsensusConfig,
    store: &Store,
    engine: &Engine,
) -> Arc<LiveStatus> {
    let live = LiveStatus::new(committees.clone(), own).with_protocol(protocol);
    let live = Arc::new(live);
    let timing = consensus.timing;
    let pause = consensus.min_block_interval.max(timing.idle_interval);
    let tip = store.tip();
    live.begin_at(tip.height, timing.view_timeout.max(pause));
    live.set_progress(engine.epoch(), engine.view(), engine.tip().height);
    let timestamp_ms = tip.block.map_or(0, |block| block.header().timestamp_ms);
    live.set_executed(tip.height, timestamp_ms);
    live
}
