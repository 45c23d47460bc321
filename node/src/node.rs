//! Assembling, running and stopping a validator.
//!
//! The node never keeps running with a part missing: every thread and task reports its end, and the
//! first unexpected end stops the node with that reason.

mod durable;
mod ending;
mod following;
mod importing;
mod links;
mod mesh;
mod roles;
mod schemes;
mod serving;
mod sockets;
mod syncing;
mod task;

pub(crate) use durable::{lock_directory, votes_again};
pub(crate) use importing::{Imported, Step, import_snapshot};

use self::{
    durable::{
        HeldJournal, KeptStore, OpenDurable, fresh_nonce, lock_vote_key, open_durable,
        own_data_directory,
    },
    ending::{Failures, end_parts, explain_full_disk, first_failure, watch_the_end},
    following::follow_until_stopped,
    links::{LateLinks, address_lookup, link_watch, peers_of, wait_for_links, watch_links},
    mesh::KeptLinks,
    roles::{Role, assign, is_outdated},
    schemes::Schemes,
    serving::Servers,
    sockets::{Opening, Sockets},
    syncing::{state_sync_is_due, sync_until_whole},
    task::Task,
};
use crate::{
    accusing,
    cli::with_causes,
    config::{NodeConfig, Reloader, ValidatorConfig},
    control::KeptSnapshots,
    descriptors,
    external::{External, ExternalParts},
    moved,
    own_account::OwnAccount,
    pool,
    priority::{self, Yields},
    reload::{self, LogLevel, Reloads},
    resharing::{Resharing, ResharingParts},
    rpc::{
        self, RpcParts, RpcState,
        error::RpcError,
        verifying::{self, Verifying},
    },
    space,
    sync_log::{self, Logged},
    vitals::Vitals,
};
use anyhow::Context;
use commonware_runtime::{Runner as _, tokio::Context as Runtime};
use crossbeam_channel::{Receiver, Sender};
use parking_lot::Mutex;
use prometheus::{Encoder as _, Registry, TextEncoder};
use quorate_consensus::{Job, Own, ValidateRequest, Worker};
use quorate_http::Clients;
use quorate_machine::{
    accounts::Accounts,
    clock::{Clock, SystemClock, now_ms},
    executor::ExecutorHandle,
    ingest::Ingest,
    keeper::{Keep, Keeper},
    live::LiveStatus,
    machine::{Durables, Inherited, Machine, Predecessor, Settings, Surroundings},
    mempool::Mempool,
    metrics::{Lasting, NodeMetrics},
    outlet::Wire,
    payloads::{PayloadKeeper, Payloads},
    replica::Event,
    serve::Server,
    validate::Validator,
};
use quorate_p2p::{Inbound, Links, PeerAddress};
use quorate_storage::{disk::SystemDisk, store::Store};
use quorate_types::{Identity, ValidatorIndex};
use std::{
    fs::File,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use tokio::sync::{
    mpsc::{self, unbounded_channel},
    oneshot, watch,
};
use tracing::{debug, error, info};

/// How long the replica and the executor can take to stop.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// How long the replica waits for links before it starts.
const LINK_PATIENCE: Duration = Duration::from_secs(3);

/// The lock file of a data directory; it also identifies a folder as a data directory.
const LOCK_FILE: &str = "LOCK";
/// How often the links' counters of refused frames are read.
const LINK_WATCH: Duration = Duration::from_millis(500);

/// The size limit of a frame between validators.
const MAX_FRAME_BYTES: usize = quorate_types::limits::MAX_FRAME_BYTES;

/// Wraps the function that sends a validator's frames to its peers.
pub type WrapWire = Arc<dyn Fn(Wire) -> Wire + Send + Sync>;

/// Runs a validator until SIGINT or SIGTERM or, if requested, the end of standard input.
///
/// # Errors
///
/// If the validator cannot start, or had to stop because continuing would be unsafe or impossible.
pub fn run(
    config: ValidatorConfig,
    stop_with_stdin: bool,
    log_level: LogLevel,
    wrap_wire: Option<WrapWire>,
) -> anyhow::Result<()> {
    moved::check(&config.node.data_dir, &config.vote_file)
        .with_context(|| config.node.path.display().to_string())?;
    let lock = own_and_lock(&config.node)?;
    let key_lock = lock_vote_key(&config.vote_file)?;
    check_port(&config.node)?;
    let asked = Asked {
        resharing: Resharing::of(&config)?,
        ..Asked::new(stop_with_stdin, log_level, wrap_wire)
    };
    let outcome = run_until_stopped(Node::Validator(&config), asked);
    drop((lock, key_lock));
    outcome
}

/// Runs a follower, as [`run`] runs a validator.
///
/// # Errors
///
/// As there.
pub fn follow(
    config: NodeConfig,
    stop_with_stdin: bool,
    log_level: LogLevel,
) -> anyhow::Result<()> {
    let lock = own_and_lock(&config)?;
    check_port(&config)?;
    let asked = Asked::new(stop_with_stdin, log_level, None);
    let outcome = run_until_stopped(Node::Follower(&config), asked);
    drop(lock);
    outcome
}

/// Takes possession of the data directory.
fn own_and_lock(config: &NodeConfig) -> anyhow::Result<File> {
    own_data_directory(&config.data_dir)?;
    // The admin listener has the same connection limit as the public one.
    let listeners = 1 + u64::from(config.admin.is_some());
    descriptors::raise_for(listeners * config.rpc.max_connections as u64);
    // Lock before the runtime starts: it would wait for the other process to end.
    lock_directory(&config.data_dir)
}

/// Making the state of a large genesis file takes minutes, and the links start after it: an operator should
/// not wait so long to learn that their port is taken.
fn check_port(config: &NodeConfig) -> anyhow::Result<()> {
    let listen = config.p2p.listen;
    std::net::TcpListener::bind(listen)
        .map(drop)
        .map_err(|source| quorate_p2p::Error::of_listening(listen, source).into())
}

/// What runs.
#[derive(Clone, Copy)]
enum Node<'a> {
    Validator(&'a ValidatorConfig),
    Follower(&'a NodeConfig),
}

impl Node<'_> {
    fn config(&self) -> &NodeConfig {
        match self {
            Self::Validator(config) => &config.node,
            Self::Follower(config) => config,
        }
    }
}

/// Runs a node in a runtime of its own.
fn run_until_stopped(node: Node<'_>, asked: Asked) -> anyhow::Result<()> {
    let runtime = commonware_runtime::tokio::Config::new()
        .with_worker_threads(2)
        .with_tcp_nodelay(Some(true))
        .with_catch_panics(false)
        .with_storage_directory(node.config().data_dir.join("runtime"));
    let outcome = commonware_runtime::tokio::Runner::new(runtime)
        .start(|context| Box::pin(run_parts(context, node, asked)));
    outcome.map_err(explain_full_disk)
}

/// Takes part or follows, or runs state sync, by turns.
async fn run_parts(context: Runtime, node: Node<'_>, mut asked: Asked) -> anyhow::Result<()> {
    asked.answer(node.config(), RpcError::opening)?;
    let mut syncs = false;
    let (mut follows, mut starts) = (false, true);
    loop {
        let kept = (&asked.kept, &asked.resharing, &asked.schemes);
        let role = assign(node, kept, follows, starts)?;
        if syncs || !matches!(role, Role::Validator(..)) {
            // Who votes next reads it, with what was written to it in between.
            drop(asked.journal.take());
        }
        let ended = run_once(&context, (node, &role), &asked, syncs).await;
        (follows, starts) = (false, false);
        asked.predecessor = None;
        if matches!(&ended, Ok(ended) if ended.goes_on() && !ended.crosses()) {
            asked.answer(node.config(), RpcError::ending)?;
        }
        let settling = Instant::now();
        let opened = std::mem::take(&mut asked.opened);
        if let Some(store) = Arc::into_inner(opened).and_then(OnceLock::into_inner) {
            let crosses = matches!(&ended, Ok(ended) if ended.crosses());
            if !crosses {
                *asked.inherited.lock() = None;
            }
            if crosses {
                asked.kept.keep(store);
            } else if !store.settle(STOP_LIMIT) {
                error!("the database is still in use at the end; what is synced is safe");
            } else if matches!(&ended, Ok(ended) if ended.goes_on()) {
                asked.kept.keep(store);
            }
        }
        debug!(elapsed = ?settling.elapsed(), "the database is free for the next parts");
        syncs = match ended {
            Ok(Ended::FarBehind) => true,
            Ok(Ended::StateIsWhole) => false,
            Ok(Ended::NoSnapshot) => {
                asked.prefers_state = false;
                false
            }
            Ok(Ended::ValidatorsChange(left)) => {
                asked.predecessor = Some(left);
                false
            }
            Ok(Ended::InStep) => {
                asked.predecessor = Some(Predecessor::default());
                false
            }
            Ok(Ended::Outdated) => {
                asked.predecessor = Some(Predecessor::default());
                follows = true;
                false
            }
            Ok(Ended::Stopped) => return Ok(()),
            Err(error) => return Err(error),
        };
    }
}

/// Takes part, or runs state sync, until that ends.
async fn run_once(
    context: &Runtime,
    (node, role): (Node<'_>, &Role),
    asked: &Asked,
    syncs: bool,
) -> anyhow::Result<Ended> {
    match (syncs, role) {
        (true, _) => {
            let (config, place) = (role.config(), role.place());
            Box::pin(sync_until_whole(context, config, place, asked)).await
        }
        (false, Role::Validator(config, place)) => {
            Box::pin(serve_until_stopped(context, config, *place, asked)).await
        }
        (false, Role::Follower(config, part)) => {
            let validator = match node {
                Node::Validator(config) => Some(config),
                Node::Follower(_) => None,
            };
            Box::pin(follow_until_stopped(
                context,
                config,
                (validator, *part),
                asked,
            ))
            .await
        }
    }
}

/// Why a part of the run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// By an order of the operator.
    Stopped,
    /// No peer keeps the blocks that are missing, or they are too many, or state sync was
    /// interrupted.
    FarBehind,
    /// State sync is done.
    StateIsWhole,
    /// No peer has a snapshot, and nothing was changed.
    NoSnapshot,
    /// The epoch is over, and the next one has other validators.
    ValidatorsChange(Predecessor),
    /// A node with a seat that only followed has all blocks that there are.
    InStep,
    /// The validators of this node's epoch are gone: others may be epochs ahead.
    Outdated,
}

impl Ended {
    /// Whether other parts take over.
    fn goes_on(self) -> bool {
        self != Self::Stopped
    }

    /// Whether they take over with the same database as it is, and clients' requests need not end before.
    fn crosses(self) -> bool {
        matches!(
            self,
            Self::ValidatorsChange(_) | Self::InStep | Self::Outdated
        )
    }
}

/// The options of this run.
struct Asked {
    /// Whether the process was told to end. Parts come and go, and a signal between them counts.
    stopped: watch::Receiver<bool>,
    stop: watch::Sender<bool>,
    log_level: Arc<LogLevel>,
    wrap_wire: Option<WrapWire>,
    /// Whether the state is fetched rather than more blocks than this validator is to keep.
    prefers_state: bool,
    /// Receives the database, so that the caller can close it.
    opened: Arc<OnceLock<Store>>,
    /// The database between two parts of a run.
    kept: KeptStore,
    /// The vote journal between two parts of a run.
    journal: HeldJournal,
    /// The links between two parts of a run.
    mesh: KeptLinks,
    /// Opened first, and kept.
    sockets: OnceLock<Sockets>,
    /// Until the first parts take over.
    opening: Mutex<Option<Opening>>,
    /// What is read of a registry outside the chain.
    external: External,
    /// The validator's shares of a group key that is passed on.
    resharing: Resharing,
    /// The vote schemes of the validators that act and come.
    schemes: Schemes,
    /// What the parts that ended last say, unless a state was fetched since.
    predecessor: Option<Predecessor>,
    /// What the parts that ran last leave behind.
    inherited: Mutex<Option<Inherited>>,
    clock: Arc<dyn Clock>,
    /// What the parts that ran before have seen of the chain's growth.
    before: Mutex<Option<Before>>,
    logged: Logged,
    /// What was counted and timed.
    counted: Lasting,
    clients: OnceLock<Clients>,
    started: Instant,
    start_seconds: OnceLock<f64>,
}

/// What the parts of a node that ended last have seen.
struct Before {
    live: Arc<LiveStatus>,
    /// The remedy that they showed.
    remedy: Option<String>,
}

impl Asked {
    fn new(stop_with_stdin: bool, log_level: LogLevel, wrap_wire: Option<WrapWire>) -> Self {
        let (stop, stopped) = watch::channel(false);
        watch_signals(stop_with_stdin, stop.clone());
        Self {
            stopped,
            stop,
            log_level: Arc::new(log_level),
            wrap_wire,
            prefers_state: true,
            opened: Arc::default(),
            kept: KeptStore::default(),
            journal: HeldJournal::default(),
            mesh: KeptLinks::default(),
            sockets: OnceLock::new(),
            opening: Mutex::default(),
            external: External::default(),
            resharing: Resharing::default(),
            schemes: Schemes::default(),
            predecessor: None,
            inherited: Mutex::default(),
            clock: Arc::new(SystemClock::start()),
            before: Mutex::default(),
            logged: Logged::new(),
            counted: Lasting::default(),
            clients: OnceLock::new(),
            started: Instant::now(),
            start_seconds: OnceLock::new(),
        }
    }

    /// What the parts that ran last leave behind, if these go on from there.
    fn inherited(&self) -> Option<Inherited> {
        let left = self.inherited.lock().take();
        left.filter(|_| self.predecessor.is_some())
    }

    /// Has what begins continue from what ended, so that a halt is not forgotten at a border.
    fn continue_from_before(&self, live: &LiveStatus) {
        if let Some(before) = self.before.lock().take() {
            live.continue_from(&before.live, before.remedy);
        }
    }

    /// Keeps what was seen for the parts that come next. State sync, which jumps over blocks, begins anew.
    fn keep_for_later(&self, ended: &anyhow::Result<Ended>, live: Arc<LiveStatus>, links: &Links) {
        if matches!(ended, Ok(ended) if ended.crosses()) {
            let remedy = live.verdict(&links.peers()).remedy;
            *self.before.lock() = Some(Before { live, remedy });
        }
    }

    /// Resolves once the process was told to end.
    async fn stopped(&self) {
        let _ = self.stopped.clone().wait_for(|stopped| *stopped).await;
    }

    /// Answers with a refusal until the next parts take over.
    fn answer(&self, config: &NodeConfig, refusal: fn() -> RpcError) -> anyhow::Result<()> {
        if self.sockets.get().is_none() {
            let _ = self.sockets.set(Sockets::open(config, self.stop.clone())?);
        }
        let sockets = self.sockets.get().context("the sockets are not open")?;
        let mut opening = self.opening.lock();
        // It still answers if parts ended before they took over.
        if opening.is_none() {
            *opening = Some(sockets.answer(config, refusal, self.stopped.clone())?);
        }
        Ok(())
    }

    /// The sockets, for parts that answer there from now on.
    fn sockets(&self) -> anyhow::Result<&Sockets> {
        if let Some(opening) = self.opening.lock().take() {
            opening.end();
        }
        self.sockets.get().context("the sockets are not open")
    }

    /// When the process started, in seconds since 1970.
    fn start_seconds(&self) -> f64 {
        *self
            .start_seconds
            .get_or_init(|| now_ms() as f64 / 1_000.0 - self.started.elapsed().as_secs_f64())
    }

    /// The metrics of a part, which go on from those of the parts before.
    fn metrics(
        &self,
        config: &NodeConfig,
        place: Option<ValidatorIndex>,
        registry: &Registry,
    ) -> anyhow::Result<Arc<NodeMetrics>> {
        let committee = config.committees.known();
        let metrics = NodeMetrics::going_on(registry, &self.counted, committee)?;
        metrics.introduce(&config.genesis, committee, place, &config.mempool);
        metrics.start_seconds.set(self.start_seconds());
        Ok(Arc::new(metrics))
    }

    /// What clients use, and may use, in all parts together.
    fn clients(&self, config: &NodeConfig) -> Clients {
        let clients = self.clients.get_or_init(|| rpc::clients(&config.rpc));
        clients.clone()
    }
}

/// Starts all parts in the required order, waits, and stops them in the required order. The
/// function is long because the order is its purpose.
async fn serve_until_stopped(
    context: &Runtime,
    config: &ValidatorConfig,
    place: ValidatorIndex,
    asked: &Asked,
) -> anyhow::Result<Ended> {
    let registry = Registry::new();
    let metrics = asked.metrics(&config.node, Some(place), &registry)?;
    let (failures, mut failed) = unbounded_channel();
    let failures = Failures(failures);
    let clock = asked.clock.clone();

    let durable = open_durable(config, Some(place), (&asked.kept, &asked.journal))?;
    let store = durable.store.clone();
    let _ = asked.opened.set(store.clone());
    if store.is_syncing()? {
        return Ok(Ended::FarBehind);
    }
    // The links start last, because frames can arrive as soon as they exist; until then, sending
    // does nothing.
    let late_links = LateLinks::default();
    let surroundings =
        late_links.surroundings(clock.clone(), metrics.clone(), asked.wrap_wire.clone());
    let machine = assemble(config, place, (durable, asked), surroundings)?;
    *asked.inherited.lock() = Some(machine.leaves());
    let seen = machine.live.clone();
    asked.continue_from_before(&seen);

    // Everything that can fail is done before the first link: a validator that cannot run must not
    // join the network.
    let sockets = asked.sockets()?;
    let (control, listeners) = (sockets.control()?, sockets.listeners()?);

    let (to_replica, executor) = (machine.to_replica.clone(), machine.executed.clone());
    let payload_keeper = machine.payloads;
    let payloads = payload_keeper.as_ref().map(PayloadKeeper::payloads);
    let kept = KeptSnapshots {
        snapshots: machine.snapshots,
        store: store.clone(),
    };
    let handles = Handles {
        store,
        clock: clock.clone(),
        accounts: machine.accounts,
        keeper: machine.to_keeper,
        executor: executor.clone(),
        live: machine.live,
        mempool: machine.mempool,
        verifying: start_verifying(&failures, clock)?,
        metrics: metrics.clone(),
        external: asked.external.clone(),
        payloads: payloads.clone(),
    };
    let (inlet, executor_body) = (machine.inlet, machine.executor);
    let executor_thread = failures.thread("executor", move || executor_body.run())?;
    let inbound: Arc<Inbound> = Arc::new(move |from, lane, bytes| inlet.receive(from, lane, bytes));
    let mut mesh = asked
        .mesh
        .join(context, &config.node, false, inbound)
        .await?;
    let links = mesh.links.clone();
    late_links.set(&links);
    let payload_thread = match payload_keeper {
        Some(keeper) => Some(failures.thread("payloads", move || keeper.run())?),
        None => None,
    };
    start_crypto(&failures, config, machine.jobs, &to_replica, &metrics)?;
    let (validator, proposals) = (machine.validator, machine.proposals);
    start_workers(
        &failures,
        (validator, proposals, to_replica.clone()),
        (machine.keeper, machine.kept),
        machine.server,
        machine.ingest,
    )?;

    let (replica, first, events) = (machine.replica, machine.first, machine.events);
    let (to_tell, validators_change) = oneshot::channel();
    let kept_journal = asked.journal.clone();
    let quorum = config.node.committees.known().quorum();
    let watch = link_watch(config.node.committees.clone(), to_replica.clone());
    let (voting_links, ends) = (links.clone(), Arc::new(AtomicBool::new(false)));
    let ended = ends.clone();
    let replica = failures.thread("replica", move || {
        // A proposal sent before the links are up would be lost and cost a timeout. Clients are served meanwhile.
        wait_for_links(&voting_links, quorum, &ended);
        voting_links.watch(watch);
        if let Some((left, journal)) = replica.run(first, events)? {
            kept_journal.keep(journal);
            let _ = to_tell.send(left);
        }
        Ok(())
    })?;
    let forwarding = Task::spawn(machine.forwarder.run());
    let committees = config.node.committees.clone();
    let watching = Task::spawn(watch_links(links.clone(), committees, machine.conduct));

    let background = Background::start((&config.node, true), &handles, &links, asked)?;
    let live = handles.live.clone();
    let most = config
        .node
        .storage
        .retention
        .map(|retention| retention.blocks);
    let most = most.filter(|_| asked.prefers_state);
    let far_behind = state_sync_is_due(live.clone(), links.clone(), most);
    let outdated = is_outdated(live.clone(), links.clone());
    let registries = [registry, mesh.registry.clone()];
    let state = rpc_state(&config.node, handles, &links, registries, asked);
    let control = Task::spawn(control.serve(
        state.clone(),
        live,
        Some(to_replica.clone()),
        background.reloads.clone(),
        kept,
    ));
    let servers = Servers::start(&state, listeners)?;

    let outcome = tokio::select! {
        () = asked.stopped() => Ok(Ended::Stopped),
        why = far_behind => {
            info!("{why}: state sync begins");
            Ok(Ended::FarBehind)
        }
        Ok(left) = validators_change => Ok(Ended::ValidatorsChange(left)),
        () = outdated => Ok(Ended::Outdated),
        error = mesh.ended() => Err(error),
        ended = control => Err(anyhow::anyhow!("the control socket ended: {ended:?}")),
        ended = forwarding => Err(anyhow::anyhow!("forwarding ended: {ended:?}")),
        ended = watching => Err(anyhow::anyhow!("watching the links ended: {ended:?}")),
        error = first_failure(&mut failed) => Err(error),
    };
    let outcome = outcome.map_err(explain_full_disk);
    asked.keep_for_later(&outcome, seen, &links);
    match &outcome {
        Ok(Ended::Stopped) => info!("stopping"),
        // It has been told why.
        Ok(Ended::ValidatorsChange(_) | Ended::InStep | Ended::FarBehind) => {}
        Ok(Ended::Outdated) => info!(
            "too few validators of this epoch are heard: looking for newer blocks, without voting"
        ),
        Ok(Ended::StateIsWhole | Ended::NoSnapshot) => {}
        Err(error) => error!("stopping: {}", with_causes(error)),
    }
    let ending = Instant::now();
    drop(background);
    let goes_on = matches!(&outcome, Ok(ended) if ended.goes_on());
    if !goes_on {
        watch_the_end();
    }
    servers.tell_to_stop();
    ends.store(true, Ordering::Relaxed);
    let _ = to_replica.send(Event::Stop);
    executor.stop();
    if let Some(payloads) = &payloads {
        payloads.stop();
    }
    let threads = [replica, executor_thread].into_iter().chain(payload_thread);
    let outcome = end_parts(outcome, threads.collect(), servers).await;
    asked.mesh.keep(mesh);
    debug!(elapsed = ?ending.elapsed(), "the parts have ended");
    outcome
}

/// Handles to the machine's parts, used to answer clients and operators.
struct Handles {
    store: Store,
    clock: Arc<dyn Clock>,
    accounts: Accounts,
    keeper: Sender<Keep>,
    executor: ExecutorHandle,
    live: Arc<LiveStatus>,
    mempool: Arc<Mempool>,
    verifying: Verifying,
    metrics: Arc<NodeMetrics>,
    external: External,
    payloads: Option<Arc<Payloads>>,
}

impl Handles {
    fn account(&self) -> OwnAccount {
        OwnAccount {
            store: self.store.clone(),
            accounts: self.accounts.clone(),
            mempool: self.mempool.clone(),
            clock: self.clock.clone(),
        }
    }
}

fn rpc_state(
    config: &NodeConfig,
    handles: Handles,
    links: &Links,
    registries: [Registry; 2],
    asked: &Asked,
) -> RpcState {
    let clients = asked.clients(config);
    let vitals = Vitals {
        clients: clients.clone(),
        data_dir: config.data_dir.clone(),
        executor: handles.executor.clone(),
        live: handles.live.clone(),
        mempool: handles.mempool.clone(),
        metrics: handles.metrics.clone(),
        peers: peers_of(links),
    };
    RpcState::new(RpcParts {
        config: config.rpc.clone(),
        clients,
        started: asked.started,
        genesis: config.genesis.clone(),
        name: config.genesis.name.clone(),
        chain: config.chain,
        scheme: config.genesis.scheme.clone(),
        store: handles.store,
        fees: config.genesis.fees,
        clock: handles.clock,
        accounts: handles.accounts,
        mempool: handles.mempool,
        verifying: handles.verifying,
        keeper: handles.keeper,
        executor: handles.executor,
        payloads: handles.payloads,
        external: handles.external,
        live: handles.live,
        address: address_lookup(links),
        peers: peers_of(links),
        node_metrics: handles.metrics,
        metrics: metrics_text(registries, vitals),
    })
}

/// Tasks that only observe: the end of one does not stop the node.
struct Background {
    _tasks: [Task<()>; 7],
    reloads: Reloads,
}

impl Background {
    fn start(
        (config, votes): (&NodeConfig, bool),
        handles: &Handles,
        links: &Links,
        options: &Asked,
    ) -> anyhow::Result<Self> {
        let (reloads, asked) = mpsc::channel(1);
        let reloading = reload::watch(
            reload::hangups()?,
            asked,
            Reloader::new(config),
            links.clone(),
            options.log_level.clone(),
        );
        let space = space::watch(config.data_dir.clone(), handles.live.clone());
        let told = sync_log::Told {
            live: handles.live.clone(),
            logged: options.logged.clone(),
            address: address_lookup(links),
            finality: handles.metrics.mean_finality(),
        };
        let sync_log = sync_log::watch(told, peers_of(links));
        let account = handles.account();
        let parts = ExternalParts {
            account: account.clone(),
            live: handles.live.clone(),
            metrics: handles.metrics.clone(),
            votes,
        };
        let external = handles.external.clone().run(config.clone(), parts);
        let parts = ResharingParts {
            account,
            live: handles.live.clone(),
            metrics: handles.metrics.clone(),
        };
        let resharing = options.resharing.clone().run(config.clone(), parts);
        let live = handles.live.clone();
        let accusing = accusing::run(config.clone(), handles.account(), live);
        let preparing = options.schemes.clone().prepare(handles.live.clone());
        Ok(Self {
            _tasks: [
                Task::spawn(reloading),
                Task::spawn(space),
                Task::spawn(sync_log),
                Task::spawn(external),
                Task::spawn(resharing),
                Task::spawn(accusing),
                Task::spawn(preparing),
            ],
            reloads,
        })
    }
}

fn assemble(
    config: &ValidatorConfig,
    place: ValidatorIndex,
    (durable, asked): (OpenDurable, &Asked),
    surroundings: Surroundings,
) -> anyhow::Result<Machine> {
    let height = durable.store.tip().height;
    let records = durable.records.len();
    let machine = Machine::assemble(
        Settings {
            genesis: durable.genesis,
            committees: config.node.committees.clone(),
            own: Own {
                place,
                secret: config.vote_secret.clone(),
            },
            identity: config.node.identity.clone(),
            consensus: config.node.consensus,
            mempool: config.node.mempool,
            retention: config.node.storage.retention,
            snapshot_interval: config.node.storage.snapshot_interval,
            upload: config.node.p2p.upload,
            followers: identities(&config.node.p2p.followers),
            data_dir: config.node.data_dir.clone(),
        },
        Durables {
            disk: Arc::new(SystemDisk),
            store: durable.store,
            tree: durable.tree,
            journal: durable.journal,
            records: durable.records,
            silent_before: durable.silent_before,
            nonce: Some(fresh_nonce()),
            fresh: durable.fresh,
            predecessor: asked.predecessor,
            inherited: asked.inherited(),
            survivors: config.survivors,
            bundles: durable.bundles,
        },
        surroundings,
    )?;
    info!(
        chain = %config.node.chain, protocol = config.node.genesis.protocol.name(), validator = place.0, %height,
        view = %machine.replica.engine().view(), records, "starting"
    );
    Ok(machine)
}

/// The identities of peers.
fn identities(peers: &[(Identity, PeerAddress)]) -> Vec<Identity> {
    peers.iter().map(|(identity, _)| *identity).collect()
}

/// Starts the threads that verify votes and assemble and verify certificates.
fn start_crypto(
    failures: &Failures,
    config: &ValidatorConfig,
    jobs: Receiver<Vec<Job>>,
    replica: &Sender<Event>,
    metrics: &Arc<NodeMetrics>,
) -> anyhow::Result<()> {
    let worker = Worker::new(config.node.chain, config.node.scheme.clone());
    // Unbounded: the engine itself limits the number of checks in progress.
    let (to_search, searches) = crossbeam_channel::unbounded();
    let searcher = worker.clone();
    let (to_replica, counted) = (replica.clone(), metrics.clone());
    failures.thread("search", move || {
        pool::search(searcher, searches, to_replica, counted);
        Ok(())
    })?;
    let (to_replica, counted) = (replica.clone(), metrics.clone());
    failures.thread("crypto", move || {
        pool::check(worker, jobs, to_search, to_replica, counted);
        Ok(())
    })?;
    Ok(())
}

/// Starts the remaining threads of the validator.
fn start_workers(
    failures: &Failures,
    (validator, proposals, replica): (Validator, Receiver<ValidateRequest>, Sender<Event>),
    (keeper, kept): (Keeper, Receiver<Keep>),
    server: Server,
    ingest: Ingest,
) -> anyhow::Result<()> {
    failures.thread("validate", move || validator.run(proposals, replica))?;
    failures.thread("keeper", move || keeper.run(kept))?;
    start_serving(failures, server)?;
    failures.thread("ingest", move || {
        priority::lower_this_thread(Yields::Some);
        ingest.run()
    })?;
    Ok(())
}

/// Starts the threads that answer peers' requests.
fn start_serving(failures: &Failures, server: Server) -> anyhow::Result<()> {
    let Server { blocks, bulk } = server;
    failures.thread("serve-blocks", move || blocks.run())?;
    failures.thread("serve-bulk", move || {
        priority::lower_this_thread(Yields::Most);
        bulk.run()
    })?;
    Ok(())
}

/// Starts the threads that verify clients' signatures.
fn start_verifying(failures: &Failures, clock: Arc<dyn Clock>) -> anyhow::Result<Verifying> {
    let (verifying, worker) = Verifying::new(clock);
    for _ in 0..verifying::THREADS {
        let worker = worker.clone();
        failures.thread("verify", move || {
            worker.run();
            Ok(())
        })?;
    }
    Ok(verifying)
}

/// Returns a function that renders the text of `/metrics`.
fn metrics_text(
    registries: [Registry; 2],
    vitals: Vitals,
) -> Box<dyn Fn() -> String + Send + Sync> {
    Box::new(move || {
        vitals.renew();
        encoded(&registries)
    })
}

fn encoded(registries: &[Registry]) -> String {
    let families: Vec<_> = registries.iter().flat_map(Registry::gather).collect();
    let mut text = Vec::new();
    if let Err(error) = TextEncoder::new().encode(&families, &mut text) {
        error!(%error, "metrics cannot be encoded");
    }
    String::from_utf8(text).unwrap_or_default()
}

/// Watches for a signal to stop on a thread of its own.
fn watch_signals(stop_with_stdin: bool, tell: watch::Sender<bool>) {
    let unwatched = tell.clone();
    let waits = move || {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let waited = { runtime }
            .enable_all()
            .build()
            .map_err(anyhow::Error::from)
            .and_then(|runtime| runtime.block_on(stop_signal(stop_with_stdin)));
        if let Err(error) = waited {
            error!("stopping: {}", with_causes(&error));
        }
        let _ = tell.send(true);
    };
    if let Err(error) = thread::Builder::new()
        .name("signals".to_owned())
        .spawn(waits)
    {
        error!(%error, "signals cannot be watched");
        let _ = unwatched.send(true);
    }
}

/// Waits for a signal to stop, or the end of standard input if requested.
pub(crate) async fn stop_signal(stop_with_stdin: bool) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("cannot watch for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot watch for SIGINT")?;
    let (closed, mut input) = unbounded_channel();
    if stop_with_stdin {
        // Use a separate thread, because reading standard input cannot be cancelled.
        thread::spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            let _ = closed.send(());
        });
    } else {
        std::mem::forget(closed);
    }
    tokio::select! {
        _ = terminate.recv() => info!("SIGTERM was received"),
        _ = interrupt.recv() => info!("SIGINT was received"),
        _ = input.recv() => info!("standard input was closed"),
    }
    Ok(())
}
