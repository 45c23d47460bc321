//! One validator without its threads: everything that makes a validator but sockets, clocks,
//! files and threads, which are given to it.
//!
//! [`crate::node`] drives it by threads over the operating system's; the simulator drives it step
//! by step, in virtual time, over a network and disks of its own. What either runs is this.

use crate::{
    accounts::Accounts,
    across::Across,
    asked::Asked,
    clock::Clock,
    conduct::Conduct,
    config::ConsensusConfig,
    evidence::EvidenceFolder,
    executor::{ExecutedBlock, Executor, ExecutorHandle, Retention},
    forecast::Forecast,
    ingest::{FORWARDED, Forwarder, Ingest},
    inlet::{Inlet, InletParts},
    keeper::{self, Keep, Keeper},
    mempool::{Mempool, MempoolLimits},
    metrics::NodeMetrics,
    misbehave::Spoiler,
    offenders::Offenders,
    outlet::{InFlight, Outlet, Wire},
    replica::{Cutter, Event, Neighbours, Replica, ReplicaConfig},
    rpc::live::LiveStatus,
    serve::{REQUESTS, Requests, Server},
    turns::turns,
    validate::Validator,
};
use crossbeam_channel::{Receiver, Sender, unbounded};
use quorate_consensus::{Config, Engine, Job, Output, Own, Tip, ValidateRequest};
use quorate_crypto::SecretKey;
use quorate_storage::{
    disk::Disk,
    journal::{Journal, JournalError},
    store::Store,
    tree::{TableRows, Tree},
};
use quorate_types::{Epoch, Nonce, Position, Record, Silence, genesis::Genesis};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// What a validator is told at its start.
pub struct Settings {
    /// The chain's genesis.
    pub genesis: Arc<Genesis>,
    /// The validators.
    pub committee: quorate_types::Committee,
    /// Its place and its vote key.
    pub own: Own,
    /// Its identity's key.
    pub identity: SecretKey,
    /// The protocol's patience.
    pub consensus: ConsensusConfig,
    /// Limits on transactions that wait.
    pub mempool: MempoolLimits,
    /// Which blocks to keep; `None` for all.
    pub retention: Option<Retention>,
    /// Where it keeps its small files.
    pub data_dir: PathBuf,
}

/// What is durable, opened.
pub struct Durables {
    /// The file system of the small files.
    pub disk: Arc<dyn Disk>,
    /// The blocks.
    pub store: Store,
    /// The accounts.
    pub tree: Tree<TableRows>,
    /// The votes.
    pub journal: Journal,
    /// What the journal held.
    pub records: Vec<Record>,
    /// The first epoch in which to vote.
    pub silent_before: Epoch,
    /// Names this start, at random; without it nobody is asked what the key has said before.
    pub nonce: Option<Nonce>,
    /// Whether nothing on this machine says that the vote key was used before.
    pub fresh: bool,
    /// The view of all validators with a journal, by the operator's word.
    pub survivors: Option<Position>,
}

/// What a validator cannot do itself.
pub struct Surroundings {
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Takes frames to peers.
    pub wire: Wire,
    /// Tells what of them has not left.
    pub in_flight: InFlight,
    /// Cuts links.
    pub cut: Cutter,
    /// Where it counts.
    pub metrics: Arc<NodeMetrics>,
    /// Faults on purpose, on chaos chains.
    pub spoiler: Option<Spoiler>,
}

/// A validator in parts, each for a thread of its own, with the queues between them.
///
/// Queues to the replica are unbounded, but what goes in is bounded: frames per peer by the inlet,
/// answers by the questions that the machine has asked.
pub struct Machine {
    /// Owns the consensus machine and the journal.
    pub replica: Replica,
    /// What the replica is to begin with.
    pub first: Output,
    /// What waits for the replica, and how to add to it.
    pub events: Receiver<Event>,
    /// The other end of `events`.
    pub to_replica: Sender<Event>,
    /// Cryptography that the replica wants done; answered by [`Event::Checked`].
    pub jobs: Receiver<Vec<Job>>,
    /// Checks blocks.
    pub validator: Validator,
    /// Blocks to check.
    pub proposals: Receiver<ValidateRequest>,
    /// Serves blocks.
    pub server: Server,
    /// Takes in forwarded transactions.
    pub ingest: Ingest,
    /// Forwards transactions.
    pub forwarder: Forwarder,
    /// Takes frames from peers.
    pub inlet: Inlet,
    /// What is held against peers for how they behave on their links.
    pub conduct: Arc<Conduct>,
    /// Executes final blocks.
    pub executor: Executor,
    /// The executor from outside.
    pub executed: ExecutorHandle,
    /// Accounts after known blocks.
    pub accounts: Accounts,
    /// Transactions that wait.
    pub mempool: Arc<Mempool>,
    /// Keeps clients' transactions on disk.
    pub keeper: Keeper,
    /// What is to be kept, and how to add to it.
    pub kept: Receiver<Keep>,
    /// The other end of `kept`.
    pub to_keeper: Sender<Keep>,
    /// What is shown to clients.
    pub live: Arc<LiveStatus>,
}

/// Where the journal lies in a data directory.
pub fn journal_folder(data_dir: &Path) -> PathBuf {
    data_dir.join("journal")
}

/// Has a new journal say, before anything else, that it is not the first of its key.
///
/// # Errors
///
/// If the journal fails.
pub fn begin_after_loss(
    journal: &mut Journal,
    records: &mut Vec<Record>,
) -> Result<(), JournalError> {
    let told = |record: &Record| matches!(record, Record::Silence(_));
    if records.iter().any(told) {
        return Ok(());
    }
    let record = Record::Silence(Silence::Unknown);
    journal.append(&record)?;
    let _synced = journal.release(())?;
    records.push(record);
    Ok(())
}

impl Machine {
    /// Puts a validator together, from what is durable.
    ///
    /// # Errors
    ///
    /// If what is durable cannot be read or makes no sense.
    pub fn assemble(
        settings: Settings,
        durables: Durables,
        around: Surroundings,
    ) -> anyhow::Result<Self> {
        let Settings {
            genesis,
            committee,
            own,
            identity,
            consensus,
            mempool,
            retention,
            data_dir,
        } = settings;
        let Durables {
            disk,
            store,
            tree,
            journal,
            records,
            silent_before,
            nonce,
            fresh,
            survivors,
        } = durables;
        let Surroundings {
            clock,
            wire,
            in_flight,
            cut,
            metrics,
            spoiler,
        } = around;
        let chain = genesis.chain_id();
        let offenders = Offenders::load(disk.clone(), &data_dir, clock.wall_ms())?;
        let evidence = EvidenceFolder::load(disk, &data_dir, chain)?;
        let place = own.place;
        let config = Config {
            chain,
            committee: committee.clone(),
            epoch_length: genesis.epoch_blocks,
            limits: genesis.limits,
            sentences: offenders.sentences(&committee),
            evidence: evidence.pairs(),
            pardons: offenders.pardons(&committee),
            silent_before,
            nonce,
            fresh,
            survivors,
            own: Some(own),
            timing: consensus.timing,
            checking: consensus.checking,
        };
        let (engine, first) = Engine::recover(config, stored_tip(&store), records, clock.now())?;

        let (to_replica, events) = unbounded();
        let (to_pool, jobs) = unbounded();
        let (to_validator, proposals) = unbounded();
        let (to_server, requests) = turns(committee.size(), REQUESTS);
        let to_server = Requests(to_server);
        let (to_ingest, forwarded) = turns(committee.size(), FORWARDED);
        // Bounded by the mempool, which has taken in whatever is to be kept.
        let (to_keeper, kept) = unbounded();
        let accounts = Accounts::new(store.clone());
        let forecast = Arc::new(Forecast::new(accounts.clone(), committee.clone()));
        let mempool = Arc::new(Mempool::new(
            mempool,
            genesis.limits.transaction_bytes(),
            genesis.fees,
        ));
        let now = clock.now();
        keeper::restore(now, &chain, &genesis.fees, &store, &accounts, &mempool)?;
        let live = Arc::new(LiveStatus::new(committee.clone(), place));
        let timing = consensus.timing;
        let pause = consensus.min_block_interval.max(timing.idle_interval);
        let tip = store.tip();
        live.begin_at(tip.height, timing.view_timeout.max(pause));
        let timestamp_ms = tip.block.map_or(0, |block| block.header().timestamp_ms);
        live.set_executed(tip.height, timestamp_ms);
        if !timing.idle_interval.is_zero() {
            let to_replica = to_replica.clone();
            // If the replica is gone, its end has been reported.
            mempool.watch(Box::new(move || drop(to_replica.send(Event::Pending))));
        }
        let conduct = Arc::new(Conduct::new(
            committee.clone(),
            clock.clone(),
            metrics.clone(),
            live.clone(),
            cut.clone(),
        ));
        let asked = Arc::new(Asked::new(committee.size()));
        let observer = observer(
            clock.clone(),
            mempool.clone(),
            metrics.clone(),
            committee.clone(),
            (to_replica.clone(), live.clone()),
        );
        let (executor, executed) = Executor::new(
            accounts.clone(),
            store.clone(),
            tree,
            committee.clone(),
            retention,
            observer,
            metrics.clone(),
        )?;
        let across = Across::new(chain, committee.clone(), (place, identity), &*clock);
        let across = Arc::new(across);
        let inlet = Inlet::new(InletParts {
            committee: committee.clone(),
            clock: clock.clone(),
            live: live.clone(),
            conduct: conduct.clone(),
            asked: asked.clone(),
            replica: to_replica.clone(),
            requests: to_server.clone(),
            transactions: to_ingest,
            metrics: metrics.clone(),
            across: across.clone(),
            wire: wire.clone(),
        });
        let validator = Validator {
            clock: clock.clone(),
            chain,
            limits: genesis.limits,
            fees: genesis.fees,
            forecast: forecast.clone(),
            mempool: mempool.clone(),
            executor: executed.clone(),
        };
        let server = Server::new(
            store.clone(),
            genesis.epoch_blocks,
            committee.clone(),
            clock.clone(),
            (
                Outlet::new(wire.clone(), committee.clone(), None),
                in_flight,
            ),
            requests,
        );
        let keeper = Keeper {
            store,
            mempool: mempool.clone(),
            metrics: metrics.clone(),
        };
        let ingest = Ingest {
            clock: clock.clone(),
            chain,
            fees: genesis.fees,
            accounts: accounts.clone(),
            mempool: mempool.clone(),
            metrics: metrics.clone(),
            conduct: conduct.clone(),
            forwarded,
        };
        let forwarder = Forwarder {
            clock: clock.clone(),
            committee: committee.clone(),
            own: place,
            mempool: mempool.clone(),
            live: live.clone(),
            wire: wire.clone(),
        };
        let replica = Replica::new(
            ReplicaConfig {
                chain,
                committee: committee.clone(),
                limits: genesis.limits,
                genesis_ms: genesis.timestamp_ms,
                finalize_linger: consensus.finalize_linger,
                min_block_interval: consensus.min_block_interval,
                idle_interval: timing.idle_interval,
                penalty_lasts: consensus.penalty_lasts,
            },
            engine,
            journal,
            Neighbours {
                wire: wire.clone(),
                outlet: Outlet::new(wire, committee, spoiler)
                    .noting(asked)
                    .across(across.clone()),
                jobs: to_pool,
                validator: to_validator,
                requests: to_server,
                executor: executed.clone(),
                forecast,
                mempool: mempool.clone(),
                metrics,
                live: live.clone(),
                cut,
                across,
                conduct: conduct.clone(),
                offenders,
                evidence,
                clock,
            },
        );
        Ok(Self {
            replica,
            first,
            events,
            to_replica,
            jobs,
            validator,
            proposals,
            server,
            ingest,
            forwarder,
            inlet,
            conduct,
            executor,
            executed,
            accounts,
            mempool,
            keeper,
            kept,
            to_keeper,
            live,
        })
    }
}

fn stored_tip(store: &Store) -> Tip {
    let stored = store.tip();
    Tip {
        view: stored.view,
        height: stored.height,
        id: stored.id,
        block: stored.block,
        certificate: stored.certificate,
    }
}

/// What follows from an executed block elsewhere in the node.
fn observer(
    clock: Arc<dyn Clock>,
    mempool: Arc<Mempool>,
    metrics: Arc<NodeMetrics>,
    committee: quorate_types::Committee,
    (replica, live): (Sender<Event>, Arc<LiveStatus>),
) -> Box<dyn Fn(&ExecutedBlock) + Send> {
    Box::new(move |executed| {
        let transactions = executed.block.transactions().iter();
        let used = transactions.zip(&executed.outcomes);
        let used = used.filter(|(_, outcome)| outcome.used_nonce());
        let used = used.map(|(transaction, _)| transaction.id()).collect();
        let height = executed.block.height();
        live.set_executed(height, executed.block.header().timestamp_ms);
        mempool.executed(clock.now(), height, &executed.accounts, &used);
        let (count, bytes) = mempool.size();
        metrics.mempool_transactions.set(count as i64);
        metrics.mempool_bytes.set(bytes as i64);
        metrics.executed(&executed.outcomes);
        metrics.count_missed_slots(executed.block.header(), &committee);
        // If the replica is gone, its end has been reported.
        let _ = replica.send(Event::Executed(executed.block.height()));
    })
}
