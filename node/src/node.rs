//! Putting one validator together, running it, and stopping it.
//!
//! The node is never half-alive: every thread and task reports its end, and the first end that
//! nobody asked for stops the node with that reason.

use crate::{
    cli::with_causes,
    clock::{Clock, SystemClock, now_ms},
    conduct::{Conduct, Fault},
    config::{Reloader, ValidatorConfig},
    control::{CONTROL_SOCKET, Commands, ControlSocket},
    descriptors,
    machine::{Durables, Machine, Settings, Surroundings, begin_after_loss, journal_folder},
    marker::Mark,
    mempool::MempoolLimits,
    metrics::NodeMetrics,
    misbehave::Spoiler,
    moved,
    owner::{self, Owner},
    pool, priority,
    reload::{self, LogLevel},
    replica::{Cut, Event},
    rpc::{
        self, Audience, RpcParts, RpcState,
        verifying::{self, Verifying},
    },
    space, sync_log,
    vitals::Vitals,
};
use anyhow::{Context, bail};
use commonware_runtime::{Runner as _, Supervisor as _, tokio::Context as Runtime};
use crossbeam_channel::Sender;
use prometheus::{Encoder as _, Registry, TextEncoder};
use quorate_consensus::{Own, Worker};
use quorate_files::{Privacy, own_folder};
use quorate_p2p::{Inbound, LinkWatch, Links};
use quorate_storage::{
    disk::SystemDisk,
    journal::{Journal, Recovered},
    store::Store,
};
use quorate_types::{Committee, Epoch, Height, Identity, Nonce, Record};
use rand::Rng as _;
use std::{
    collections::BTreeMap,
    fs::{File, TryLockError},
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{Arc, OnceLock},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tracing::{error, info, warn};

/// How long the replica and the executor may take to stop.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// How long the replica waits for links before it starts.
const LINK_PATIENCE: Duration = Duration::from_secs(3);

/// The file that is locked in a data directory, and that tells one from other folders.
const LOCK_FILE: &str = "LOCK";
/// How often is looked what the links have refused.
const LINK_WATCH: Duration = Duration::from_millis(500);

/// The longest frame between validators.
const MAX_FRAME_BYTES: usize = quorate_types::limits::MAX_FRAME_BYTES;

/// Where threads and tasks report their end.
#[derive(Clone)]
struct Failures(UnboundedSender<anyhow::Error>);

impl Failures {
    /// Reports a failure. If nobody listens any more, the node is stopping already.
    fn report(&self, error: anyhow::Error) {
        let _ = self.0.send(error);
    }

    /// Starts a thread whose error or panic stops the node.
    fn thread(
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

/// Runs a validator until it is told to stop by SIGINT or SIGTERM, or, if asked for, by the end of
/// standard input.
///
/// # Errors
///
/// If it cannot start, or had to stop because going on would have been unsafe or impossible.
pub fn run(
    config: ValidatorConfig,
    stop_with_stdin: bool,
    log_level: LogLevel,
) -> anyhow::Result<()> {
    moved::check(&config.data_dir, &config.key_files[1])
        .with_context(|| config.path.display().to_string())?;
    own_data_directory(&config.data_dir)?;
    // Two listeners have as many.
    let listeners = 1 + u64::from(config.admin.is_some());
    descriptors::raise_for(listeners * config.rpc.max_connections as u64);
    // Before the runtime, which would wait for the other process to end.
    let lock = lock_directory(&config.data_dir)?;
    let [_, vote_key] = &config.key_files;
    let key_lock = lock_vote_key(vote_key)?;
    let runtime = commonware_runtime::tokio::Config::new()
        .with_worker_threads(2)
        .with_tcp_nodelay(Some(true))
        .with_catch_panics(false)
        .with_storage_directory(config.data_dir.join("runtime"));
    let opened: Arc<OnceLock<Store>> = Arc::default();
    let kept = opened.clone();
    let outcome = commonware_runtime::tokio::Runner::new(runtime).start(|context| async move {
        Box::pin(serve_until_stopped(
            context,
            config,
            stop_with_stdin,
            log_level,
            kept,
        ))
        .await
    });
    if let Some(store) = Arc::into_inner(opened).and_then(OnceLock::into_inner)
        && !store.close(STOP_LIMIT)
    {
        error!("the database is still in use at the end; what is synced is safe");
    }
    drop((lock, key_lock));
    outcome
}

/// Makes the data directory so that only this user can enter it, or closes one that others can:
/// who may write there could take the journal away.
fn own_data_directory(directory: &Path) -> anyhow::Result<()> {
    if let Privacy::Tightened { mode } = own_folder(directory, LOCK_FILE).context("`data_dir`")? {
        warn!(
            folder = %directory.display(),
            "the data directory was open to others (mode {mode:04o}) and is closed now (0700)"
        );
    }
    Ok(())
}

/// Locks the data directory for as long as the file stays open.
pub(crate) fn lock_directory(directory: &Path) -> anyhow::Result<File> {
    let path = directory.join(LOCK_FILE);
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => bail!(
            "{} is in use by another process: two processes must never share a data directory",
            directory.display()
        ),
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", path.display()))
        }
    }
}

async fn serve_until_stopped(
    context: Runtime,
    config: ValidatorConfig,
    stop_with_stdin: bool,
    log_level: LogLevel,
    opened: Arc<OnceLock<Store>>,
) -> anyhow::Result<()> {
    let registry = Registry::new();
    let metrics = Arc::new(NodeMetrics::register(&registry)?);
    metrics.start_seconds.set(now_ms() as f64 / 1_000.0);
    metrics.introduce(&config);
    let (failures, mut failed) = unbounded_channel();
    let failures = Failures(failures);

    // What is durable.
    let genesis = Arc::new(config.genesis.clone());
    let own = Owner {
        chain_id: config.chain,
        identity: config.identity.identity(),
    };
    owner::check(&config.data_dir, &own).with_context(|| config.path.display().to_string())?;
    let database = config.data_dir.join("db");
    let is_new = Store::is_absent(&database);
    let (store, tree) = Store::open(&database, &genesis)?;
    let _ = opened.set(store.clone());
    drop(opened);
    let OpenJournal {
        journal,
        recovered,
        silent_before,
        lost,
        fresh,
    } = open_journal(&config, &store)?;
    owner::claim(&config.data_dir, &own, config.place, &recovered.records)
        .with_context(|| config.path.display().to_string())?;
    if is_new && (!recovered.created || lost) {
        warn!(
            folder = %database.display(),
            "the database is a new one, although this validator ran before. The chain is fetched from \
             the others; transactions that this validator had accepted and that no final block holds are \
             lost: their clients must submit them again"
        );
    }
    let records = recovered.records.len();

    // The links come last, since frames may arrive at once; until then they lead nowhere.
    let late_links: Arc<OnceLock<Links>> = Arc::default();
    let (wire_links, cut_links) = (late_links.clone(), late_links.clone());
    let flight_links = late_links.clone();
    let spoiler = config.misbehaviour.map(|kind| Spoiler {
        kind,
        chain: config.chain,
        secret: config.vote_secret.clone(),
    });
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let Machine {
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
        executor: executor_body,
        executed: executor,
        accounts,
        mempool,
        keeper,
        kept,
        to_keeper,
        live,
    } = Machine::assemble(
        Settings {
            genesis: genesis.clone(),
            committee: config.committee.clone(),
            own: Own {
                place: config.place,
                secret: config.vote_secret.clone(),
            },
            identity: config.identity.clone(),
            consensus: config.consensus,
            mempool: MempoolLimits {
                max_transactions: config.mempool.max_transactions,
                max_bytes: config.mempool.max_bytes,
                max_per_sender: config.mempool.max_per_sender,
                stranded_lasts: config.mempool.stranded_lasts,
            },
            retention: config.storage.retention,
            data_dir: config.data_dir.clone(),
        },
        Durables {
            disk: Arc::new(SystemDisk),
            store: store.clone(),
            tree,
            journal,
            records: recovered.records,
            silent_before,
            nonce: Some(fresh_nonce()),
            fresh,
            survivors: config.survivors,
        },
        Surroundings {
            clock: clock.clone(),
            wire: Arc::new(move |lane, to, frame| {
                if let Some(links) = wire_links.get() {
                    links.send(lane, to, frame);
                }
            }),
            in_flight: Arc::new(move |lane, peer| {
                let links = flight_links.get();
                links.map_or(0, |links| links.waiting_bytes(lane, peer))
            }),
            cut: Arc::new(move |identity, what| match (cut_links.get(), what) {
                (Some(links), Cut::Off) => links.block(identity),
                (Some(links), Cut::Allowed) => links.unblock(identity),
                (None, _) => {}
            }),
            metrics: metrics.clone(),
            spoiler,
        },
    )?;
    info!(
        chain = %config.chain, validator = config.place.0, height = %store.tip().height,
        view = %replica.engine().view(), records, "starting"
    );

    // All that can be refused comes before the first link: whoever cannot run must not join.
    let control = ControlSocket::bind(&config.data_dir)?;
    let mut listeners = vec![(
        Audience::Public,
        rpc::listen(Audience::Public, config.rpc.listen)?,
    )];
    match config.admin {
        Some(address) => {
            let listener = rpc::listen(Audience::Operator, address)?;
            listeners.push((Audience::Operator, listener));
        }
        None => info!("no `[admin]` section: metrics are served over the control socket only"),
    }

    // The threads.
    let executor_thread = failures.thread("executor", move || executor_body.run())?;
    let inbound: Arc<Inbound> = Arc::new(move |from, lane, bytes| inlet.receive(from, lane, bytes));
    let (links, network) = quorate_p2p::start(
        context.child("p2p"),
        p2p_config(&config),
        inbound,
        &registry,
    )
    .await?;
    let _ = late_links.set(links.clone());
    let worker = Worker::new(config.chain, config.scheme.clone());
    // Bounded by the machine's own limits on the checks under way.
    let (to_search, searches) = crossbeam_channel::unbounded();
    let searcher = worker.clone();
    let (pool_metrics, pool_replica) = (metrics.clone(), to_replica.clone());
    failures.thread("search", move || {
        pool::search(searcher, searches, pool_replica, pool_metrics);
        Ok(())
    })?;
    let (pool_metrics, pool_replica) = (metrics.clone(), to_replica.clone());
    failures.thread("crypto", move || {
        pool::check(worker, jobs, to_search, pool_replica, pool_metrics);
        Ok(())
    })?;
    let validator_replica = to_replica.clone();
    failures.thread("validate", move || {
        validator.run(proposals, validator_replica)
    })?;
    failures.thread("keeper", move || keeper.run(kept))?;
    failures.thread("serve", move || server.run())?;
    failures.thread("ingest", move || {
        priority::lower_this_thread();
        ingest.run()
    })?;
    let (verifying, worker) = Verifying::new(clock.clone());
    for _ in 0..verifying::THREADS {
        let worker = worker.clone();
        failures.thread("verify", move || {
            worker.run();
            Ok(())
        })?;
    }

    // A proposal that is sent before the links are up is lost, and costs a time-out.
    wait_for_links(&links, config.committee.quorum()).await;
    links.watch(link_watch(config.committee.clone(), to_replica.clone()));
    let replica = failures.thread("replica", move || replica.run(first, events))?;

    // The tasks.
    let forwarding = tokio::spawn(forwarder.run());
    let watching = tokio::spawn(watch_links(
        links.clone(),
        config.committee.clone(),
        conduct,
    ));
    let peers = links.clone();
    let (peers_for_log, peers_for_metrics) = (links.clone(), links.clone());
    let peers_for_told = links.clone();
    let told = sync_log::Told {
        live: live.clone(),
        address: Box::new(move |identity| whereabouts(&peers_for_told, identity)),
        finality: metrics.mean_finality(),
    };
    let peers_for_addresses = links.clone();
    let (reloads, asked) = tokio::sync::mpsc::channel(1);
    let told_to_stop = Arc::new(tokio::sync::Notify::new());
    let commands = Commands {
        reloads,
        stop: told_to_stop.clone(),
    };
    let reloading = tokio::spawn(reload::watch(
        reload::hangups()?,
        asked,
        Reloader::new(&config),
        links.clone(),
        log_level,
    ));
    let clients = rpc::clients(&config.rpc);
    let vitals = Vitals {
        clients: clients.clone(),
        data_dir: config.data_dir.clone(),
        executor: executor.clone(),
        live: live.clone(),
        mempool: mempool.clone(),
        metrics: metrics.clone(),
        peers: Box::new(move || peers_for_metrics.peers()),
    };
    let state = RpcState::new(RpcParts {
        config: config.rpc.clone(),
        clients,
        name: config.genesis.name.clone(),
        chain: config.chain,
        scheme: config.genesis.scheme.clone(),
        store: store.clone(),
        fees: config.genesis.fees,
        clock,
        accounts,
        mempool: mempool.clone(),
        verifying,
        keeper: to_keeper,
        executor: executor.clone(),
        live: live.clone(),
        address: Box::new(move |identity| whereabouts(&peers_for_addresses, identity)),
        peers: Box::new(move || peers.peers()),
        node_metrics: metrics,
        metrics: Box::new(move || {
            vitals.renew();
            metrics_text(&registry)
        }),
    });
    let control =
        tokio::spawn(control.serve(state.clone(), live.clone(), to_replica.clone(), commands));
    let (stop_rpc, rpc_stopped) = tokio::sync::watch::channel(());
    let mut servers = tokio::task::JoinSet::new();
    for (audience, listener) in listeners {
        let state = state.clone();
        let mut stopped = rpc_stopped.clone();
        servers.spawn(async move {
            let shutdown = async { drop(stopped.changed().await) };
            rpc::serve(state, audience, listener, shutdown).await;
        });
    }
    let space = tokio::spawn(space::watch(config.data_dir.clone()));
    let sync_log = tokio::spawn(sync_log::watch(told, move || peers_for_log.peers()));

    let outcome = tokio::select! {
        signal = stop_signal(stop_with_stdin) => signal,
        () = told_to_stop.notified() => Ok(()),
        error = network => Err(anyhow::Error::from(error).context("network")),
        ended = control => Err(anyhow::anyhow!("the control socket ended: {ended:?}")),
        ended = forwarding => Err(anyhow::anyhow!("forwarding ended: {ended:?}")),
        ended = watching => Err(anyhow::anyhow!("watching the links ended: {ended:?}")),
        error = first_failure(&mut failed) => Err(error),
    };
    let outcome = outcome.map_err(explain_full_disk);
    match &outcome {
        Ok(()) => info!("stopping"),
        Err(error) => error!("stopping: {}", with_causes(error)),
    }
    reloading.abort();
    space.abort();
    sync_log.abort();
    watch_the_end();
    // The socket of a stopped validator would only confuse.
    let _ = std::fs::remove_file(config.data_dir.join(CONTROL_SOCKET));
    drop(stop_rpc);
    let _ = to_replica.send(Event::Stop);
    executor.stop();
    join(vec![replica, executor_thread]).await;
    let _ = tokio::time::timeout(Duration::from_secs(2), servers.join_all()).await;
    outcome
}

/// Says what to do when the disk is full.
fn explain_full_disk(error: anyhow::Error) -> anyhow::Error {
    let causes = error.chain();
    let is_full = causes
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::StorageFull);
    match is_full {
        true => error.context(
            "the disk is full: make room and start the validator again, which has lost nothing",
        ),
        false => error,
    }
}

/// Counts what the links refuse against who sent it. Runs until it is dropped.
async fn watch_links(links: Links, committee: Committee, conduct: Arc<Conduct>) {
    let mut counted = BTreeMap::new();
    let mut ticks = tokio::time::interval(LINK_WATCH);
    loop {
        ticks.tick().await;
        for peer in links.peers() {
            let counted = counted.entry(peer.identity).or_insert(0);
            let fresh = peer.oversized - *counted;
            if fresh > 0
                && let Some(place) = committee.place(&peer.identity)
            {
                *counted = peer.oversized;
                conduct.note(place, Fault::Oversized, fresh);
            }
        }
    }
}

/// The text of `/metrics`.
fn metrics_text(registry: &Registry) -> String {
    let mut text = Vec::new();
    if let Err(error) = TextEncoder::new().encode(&registry.gather(), &mut text) {
        error!(%error, "metrics cannot be encoded");
    }
    String::from_utf8(text).unwrap_or_default()
}

/// Waits for threads that were told to stop, for a while.
async fn join(threads: Vec<JoinHandle<()>>) {
    let (done, joined) = tokio::sync::oneshot::channel();
    // Not one of the runtime's own threads: it would wait for that at its end, however long.
    thread::spawn(move || {
        for thread in threads {
            // A panic has been reported by the thread itself.
            let _ = thread.join();
        }
        let _ = done.send(());
    });
    if tokio::time::timeout(STOP_LIMIT, joined).await.is_err() {
        error!("a thread did not stop in time; what is not on disk is lost");
    }
}

/// Ends the process if it has not ended by itself in time, or at once upon another signal.
fn watch_the_end() {
    thread::spawn(|| {
        thread::sleep(STOP_LIMIT + Duration::from_secs(5));
        eprintln!("error: something did not stop; the process is ended. What is synced is safe");
        std::process::exit(1);
    });
    tokio::spawn(async {
        if stop_signal(false).await.is_ok() {
            eprintln!("error: told twice to stop; the process is ended. What is synced is safe");
            std::process::exit(1);
        }
    });
}

/// The vote journal, and what is known of votes that it does not hold.
struct OpenJournal {
    journal: Journal,
    recovered: Recovered,
    /// The first epoch in which to vote.
    silent_before: Epoch,
    /// Whether votes were lost.
    lost: bool,
    /// Whether nothing says that the key has voted.
    fresh: bool,
}

/// Opens the vote journal. If it should be there and is not, the new one says so before anything else,
/// however the start is cut short.
fn open_journal(config: &ValidatorConfig, store: &Store) -> anyhow::Result<OpenJournal> {
    let directory = journal_folder(&config.data_dir);
    let [_, vote_key] = &config.key_files;
    let mut mark = Mark::of(vote_key, config.chain)?;
    let absent = Journal::is_absent(&directory)?;
    let was_used = mark.was_used() || store.tip().height > Height(0);
    let lost = mark.says_lost() || (absent && was_used);
    if lost && config.committee.size() == 1 {
        bail!(
            "there is no vote journal in {}, and this is the only validator: nobody else knows what it \
             has voted, and without that it could vote twice in a view. Find the journal, or begin a new \
             chain",
            directory.display()
        );
    }
    // Before the journal is made: an empty one would pass for a real one at the next start.
    let fresh = mark.is_fresh() || (absent && !was_used);
    mark.write(lost, fresh)?;
    let (mut journal, mut recovered) = Journal::open(&directory, config.chain)?;
    if lost {
        begin_after_loss(&mut journal, &mut recovered.records).context("vote journal")?;
        warn!(
            journal = %directory.display(), key = %vote_key.display(),
            "the vote key was used before, and its journal is gone: this validator follows, and votes \
             again once the others have told from which view on it may"
        );
    }
    // Once it has voted, the journal tells by itself.
    let told = |record: &Record| matches!(record, Record::Vote(_) | Record::Silence(_));
    let fresh = fresh && !recovered.records.iter().any(told);
    mark.write(false, fresh)?;
    if recovered.truncated_bytes > 0 {
        info!(
            bytes = recovered.truncated_bytes,
            "the journal ended in a record that was never acknowledged; it is cut off"
        );
    }
    let first = mark.vote_from_epoch();
    if first > Epoch(0) {
        warn!(epoch = %first, "this key's journal was lost once: it votes from this epoch on");
    }
    Ok(OpenJournal {
        journal,
        recovered,
        silent_before: first,
        lost,
        fresh,
    })
}

/// A name for this start that nobody can foresee.
fn fresh_nonce() -> Nonce {
    let mut bytes = [0; 16];
    rand::rng().fill_bytes(&mut bytes);
    Nonce(bytes)
}

/// Locks the vote key's file for as long as it stays open, against another process with another data
/// directory. File systems without locks are left alone.
fn lock_vote_key(path: &Path) -> anyhow::Result<File> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => bail!(
            "the vote key {} is in use by another process on this machine: two processes with one vote \
             key contradict each other, whatever their data directories. Stop the other one, or name \
             this validator's own key in `vote_key`",
            path.display()
        ),
        Err(TryLockError::Error(error)) => {
            warn!(file = %path.display(), %error, "the vote key's file cannot be locked");
        }
    }
    Ok(file)
}

/// Waits a moment until this validator and its connected peers are a quorum. Not longer: others may
/// be waiting for this one's votes.
async fn wait_for_links(links: &Links, quorum: usize) {
    let patience = Instant::now() + LINK_PATIENCE;
    while links.connected() + 1 < quorum && Instant::now() < patience {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Where a peer is, as the configuration names it; with a name's IP address.
fn whereabouts(links: &Links, identity: &Identity) -> Option<String> {
    let (address, at) = links.address(identity)?;
    Some(match (address.ip(), at) {
        (Some(_), _) => address.to_string(),
        (None, Some(at)) => format!("{address} ({})", at.ip()),
        (None, None) => format!("{address} (not found)"),
    })
}

/// Tells the replica of links. Each takes a handshake, so the replica's queue is not flooded.
fn link_watch(committee: Committee, replica: Sender<Event>) -> Box<LinkWatch> {
    Box::new(move |identity, up| {
        if let Some(peer) = committee.place(&identity) {
            // If the replica is gone, its end has been reported.
            let _ = replica.send(Event::Linked { peer, up });
        }
    })
}

fn p2p_config(config: &ValidatorConfig) -> quorate_p2p::Config {
    quorate_p2p::Config {
        identity: config.identity.clone(),
        listen: config.p2p.listen,
        namespace: config.chain.0.0.to_vec(),
        frame_tag: config.chain.tag(),
        peers: config.p2p.peers.clone(),
        lookup: quorate_p2p::system_lookup(),
        timing: config.p2p.timing,
        max_frame_bytes: MAX_FRAME_BYTES,
    }
}

async fn first_failure(failed: &mut UnboundedReceiver<anyhow::Error>) -> anyhow::Error {
    match failed.recv().await {
        Some(error) => error,
        // The node itself holds a sender.
        None => anyhow::anyhow!("no thread is left"),
    }
}

/// Waits until the process is told to stop.
pub(crate) async fn stop_signal(stop_with_stdin: bool) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("cannot watch for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot watch for SIGINT")?;
    let (closed, mut input) = unbounded_channel();
    if stop_with_stdin {
        // A thread, because reading standard input cannot be cancelled.
        thread::spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            let _ = closed.send(());
        });
    } else {
        std::mem::forget(closed);
    }
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        _ = input.recv() => {}
    }
    Ok(())
}
