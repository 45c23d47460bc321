//! Putting one validator together, running it, and stopping it.
//!
//! The node is never half-alive: every thread and task reports its end, and the first end that
//! nobody asked for stops the node with that reason.

use crate::{
    config::ValidatorConfig,
    control::{CONTROL_SOCKET, ControlSocket},
    evidence::EvidenceFolder,
    executor::{ExecutedBlock, Executor, ExecutorHandle},
    ingest,
    inlet::Inlet,
    marker,
    mempool::{Mempool, MempoolLimits},
    metrics::NodeMetrics,
    misbehave::Spoiler,
    offenders::Offenders,
    outlet::Outlet,
    pool,
    replica::{Cut, Event, Neighbours, Replica, ReplicaConfig},
    rpc::{self, RpcParts, RpcState, live::LiveStatus},
    serve,
    validate::{Validator, now_ms},
};
use anyhow::{Context, bail};
use commonware_runtime::{Runner as _, Supervisor as _, tokio::Context as Runtime};
use crossbeam_channel::{Sender, bounded, unbounded};
use prometheus::{Encoder as _, Registry, TextEncoder};
use quorate_consensus::{Config, Engine, Moment, Own, Tip, Worker};
use quorate_p2p::{Inbound, Links};
use quorate_storage::{
    journal::{Journal, Recovered},
    store::Store,
    tree::{RocksStore, Tree},
};
use quorate_types::{Epoch, Height};
use std::{
    fmt::Display,
    fs::{File, TryLockError},
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tracing::{error, info, warn};

/// Requests for stored blocks that may wait. When it is full, further ones are dropped; peers ask
/// again.
const REQUEST_QUEUE: usize = 256;

/// Forwarded batches that may wait for verification. When it is full, further ones are dropped;
/// the validator that forwarded them still has them.
const TRANSACTION_QUEUE: usize = 256;

/// How long the replica and the executor may take to stop.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// How long the replica waits for links before it starts.
const LINK_PATIENCE: Duration = Duration::from_secs(3);

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
pub fn run(config: ValidatorConfig, stop_with_stdin: bool) -> anyhow::Result<()> {
    std::fs::create_dir_all(&config.data_dir)
        .with_context(|| format!("cannot create {}", config.data_dir.display()))?;
    // Before the runtime, which would wait for the other process to end.
    let lock = lock_directory(&config.data_dir)?;
    let runtime = commonware_runtime::tokio::Config::new()
        .with_worker_threads(2)
        .with_tcp_nodelay(Some(true))
        .with_catch_panics(false)
        .with_storage_directory(config.data_dir.join("runtime"));
    commonware_runtime::tokio::Runner::new(runtime).start(|context| async move {
        Box::pin(serve_until_stopped(context, config, stop_with_stdin)).await
    })?;
    drop(lock);
    Ok(())
}

/// Locks the data directory for as long as the file stays open.
pub(crate) fn lock_directory(directory: &Path) -> anyhow::Result<File> {
    let path = directory.join("LOCK");
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => bail!(
            "{} is in use by another process: two validators must never share a data directory",
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
) -> anyhow::Result<()> {
    let start = Instant::now();
    let registry = Registry::new();
    let metrics = Arc::new(NodeMetrics::register(&registry)?);
    metrics.start_seconds.set(now_ms() as f64 / 1_000.0);
    let (failures, mut failed) = unbounded_channel();
    let failures = Failures(failures);

    // What is durable.
    let (store, tree) = Store::open(&config.data_dir.join("db"), &config.genesis)?;
    let (journal, recovered, silent_before) = open_journal(&config, &store)?;
    let stored = store.tip();
    let tip = Tip {
        view: stored.view,
        height: stored.height,
        id: stored.id,
        block: stored.block,
        certificate: stored.certificate,
    };
    let offenders = Offenders::load(&config.data_dir, now_ms())?;
    let evidence = EvidenceFolder::load(&config.data_dir, config.chain)?;
    let records = recovered.records.len();
    let (engine, first) = Engine::recover(
        Config {
            chain: config.chain,
            committee: config.committee.clone(),
            epoch_length: config.genesis.epoch_blocks,
            sentences: offenders.sentences(&config.committee),
            evidence: evidence.pairs(),
            pardons: offenders.pardons(&config.committee),
            silent_before,
            own: Some(Own {
                place: config.place,
                secret: config.vote_secret.clone(),
            }),
            timing: config.consensus.timing,
        },
        tip,
        recovered.records,
        Moment::default().after(start.elapsed()),
    )?;
    info!(
        chain = %config.chain, validator = config.place.0, height = %stored.height,
        view = %engine.view(), records, "starting"
    );

    // The threads. Channels to the replica are unbounded, but what goes in is bounded: frames per
    // peer by the inlet, answers by the questions that the machine has asked.
    let (to_replica, events) = unbounded();
    let (to_pool, jobs) = unbounded();
    let (to_validator, blocks) = unbounded();
    let (to_server, requests) = bounded(REQUEST_QUEUE);
    let (to_ingest, forwarded) = bounded(TRANSACTION_QUEUE);
    let mempool = Arc::new(Mempool::new(MempoolLimits {
        max_transactions: config.mempool.max_transactions,
        max_bytes: config.mempool.max_bytes,
        max_per_sender: config.mempool.max_per_sender,
    }));
    let live = Arc::new(LiveStatus::new(config.committee.clone(), config.place));
    let observer = observer(mempool.clone(), metrics.clone(), to_replica.clone());
    let (executor, executor_thread) = spawn_executor(&config, &store, tree, observer, &failures)?;

    let inlet = Inlet::new(
        config.committee.clone(),
        to_replica.clone(),
        to_server.clone(),
        to_ingest,
        metrics.clone(),
    );
    let inbound: Arc<Inbound> = Arc::new(move |from, lane, bytes| inlet.receive(from, lane, bytes));
    let (links, network) = quorate_p2p::start(
        context.child("p2p"),
        p2p_config(&config),
        inbound,
        &registry,
    )
    .await?;
    let spoiler = config.misbehaviour.map(|kind| Spoiler {
        kind,
        chain: config.chain,
        secret: config.vote_secret.clone(),
    });
    let outlet = Outlet::new(links.clone(), config.committee.clone(), spoiler);

    let worker = Worker::new(config.chain, config.scheme.clone());
    let (pool_metrics, pool_replica) = (metrics.clone(), to_replica.clone());
    failures.thread("crypto", move || {
        pool::run(worker, jobs, pool_replica, pool_metrics);
        Ok(())
    })?;
    let validator = Validator {
        chain: config.chain,
        limits: config.genesis.limits,
        mempool: mempool.clone(),
        executor: executor.clone(),
    };
    let validator_replica = to_replica.clone();
    failures.thread("validate", move || {
        validator.run(blocks, validator_replica);
        Ok(())
    })?;
    let epoch_length = config.genesis.epoch_blocks;
    let serve_store = store.clone();
    let serve_outlet = Outlet::new(links.clone(), config.committee.clone(), None);
    failures.thread("serve", move || {
        serve::run(serve_store, epoch_length, serve_outlet, requests)
    })?;
    let (chain, ingest_store, ingest_pool) = (config.chain, store.clone(), mempool.clone());
    let ingest_metrics = metrics.clone();
    failures.thread("ingest", move || {
        ingest::run(chain, ingest_store, ingest_pool, forwarded, ingest_metrics)
    })?;

    let cut = links.clone();
    let replica = Replica::new(
        ReplicaConfig {
            chain: config.chain,
            committee: config.committee.clone(),
            limits: config.genesis.limits,
            genesis_ms: config.genesis.timestamp_ms,
            finalize_linger: config.consensus.finalize_linger,
            min_block_interval: config.consensus.min_block_interval,
            penalty_lasts: config.consensus.penalty_lasts,
        },
        engine,
        journal,
        Neighbours {
            outlet,
            jobs: to_pool,
            validator: to_validator,
            requests: to_server,
            executor: executor.clone(),
            mempool: mempool.clone(),
            metrics: metrics.clone(),
            live: live.clone(),
            cut: Box::new(move |identity, what| match what {
                Cut::Off => cut.block(identity),
                Cut::Allowed => cut.unblock(identity),
            }),
            offenders,
            evidence,
        },
        start,
    );

    // A proposal that is sent before the links are up is lost, and costs a time-out.
    wait_for_links(&links, config.committee.quorum()).await;
    let replica = failures.thread("replica", move || replica.run(first, events))?;

    // The tasks.
    let forwarding = tokio::spawn(ingest::forward(
        config.committee.clone(),
        config.place,
        mempool.clone(),
        live.clone(),
        links.clone(),
    ));
    let peers = links.clone();
    let state = RpcState::new(RpcParts {
        listen: config.rpc.listen,
        max_connections: config.rpc.max_connections,
        request_timeout: config.rpc.request_timeout,
        name: config.genesis.name.clone(),
        chain: config.chain,
        scheme: config.genesis.scheme.clone(),
        store: store.clone(),
        mempool: mempool.clone(),
        executor: executor.clone(),
        live: live.clone(),
        addresses: config.p2p.peers.clone(),
        peers: Box::new(move || peers.peers()),
        metrics: Box::new(move || metrics_text(&registry)),
    });
    let control = ControlSocket::bind(&config.data_dir)?;
    let control = tokio::spawn(control.serve(state.clone(), live.clone(), to_replica.clone()));
    let (stop_rpc, rpc_stopped) = tokio::sync::oneshot::channel::<()>();
    let rpc_failures = failures.clone();
    let server = tokio::spawn(async move {
        let shutdown = async { drop(rpc_stopped.await) };
        if let Err(error) = rpc::serve(state, shutdown).await {
            rpc_failures.report(error.context("RPC server"));
        }
    });

    let outcome = tokio::select! {
        signal = stop_signal(stop_with_stdin) => signal,
        error = network => Err(anyhow::Error::from(error).context("network")),
        ended = control => Err(anyhow::anyhow!("the control socket ended: {ended:?}")),
        ended = forwarding => Err(anyhow::anyhow!("forwarding ended: {ended:?}")),
        error = first_failure(&mut failed) => Err(error),
    };
    match &outcome {
        Ok(()) => info!("stopping"),
        Err(error) => error!("stopping: {error:#}"),
    }
    watch_the_end();
    // The socket of a stopped validator would only confuse.
    let _ = std::fs::remove_file(config.data_dir.join(CONTROL_SOCKET));
    let _ = stop_rpc.send(());
    let _ = to_replica.send(Event::Stop);
    executor.stop();
    join(vec![replica, executor_thread]).await;
    let _ = tokio::time::timeout(Duration::from_secs(2), server).await;
    outcome
}

/// What follows from an executed block elsewhere in the node.
fn observer(
    mempool: Arc<Mempool>,
    metrics: Arc<NodeMetrics>,
    replica: Sender<Event>,
) -> Box<dyn Fn(&ExecutedBlock) + Send> {
    Box::new(move |executed| {
        mempool.executed(&executed.nonces);
        let (count, bytes) = mempool.size();
        metrics.mempool_transactions.set(count as i64);
        metrics.mempool_bytes.set(bytes as i64);
        metrics
            .transactions
            .inc_by(executed.block.transactions().len() as u64);
        // If the replica is gone, its end has been reported.
        let _ = replica.send(Event::Executed(executed.block.height()));
    })
}

fn spawn_executor(
    config: &ValidatorConfig,
    store: &Store,
    tree: Tree<RocksStore>,
    observer: Box<dyn Fn(&ExecutedBlock) + Send>,
    failures: &Failures,
) -> anyhow::Result<(ExecutorHandle, JoinHandle<()>)> {
    let (executor, handle) = Executor::new(
        store.clone(),
        tree,
        config.committee.clone(),
        config.storage.retention_blocks,
        observer,
    )?;
    let thread = failures.thread("executor", move || executor.run())?;
    Ok((handle, thread))
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

/// Opens the vote journal, and refuses to vote if it should be there and is not. Returns the first
/// epoch in which to vote, too.
fn open_journal(
    config: &ValidatorConfig,
    store: &Store,
) -> anyhow::Result<(Journal, Recovered, Epoch)> {
    let directory = config.data_dir.join("journal");
    let (journal, recovered) = Journal::open(&directory, config.chain)?;
    let told = config.vote_from_epoch;
    // Left as it is, an empty journal would pass for a real one at the next start.
    let forget = || drop(std::fs::remove_dir_all(&directory));
    if recovered.created && store.tip().height > Height(0) && told.is_none() {
        forget();
        bail!(lost_journal(&directory, store.tip().height));
    }
    let [_, vote_key] = &config.key_files;
    let first = marker::check(vote_key, &directory, config.chain, recovered.created, told)
        .inspect_err(|_| {
            if recovered.created {
                forget();
            }
        })?;
    if recovered.truncated_bytes > 0 {
        info!(
            bytes = recovered.truncated_bytes,
            "the journal ended in a record that was never acknowledged; it is cut off"
        );
    }
    if first > Epoch(0) {
        warn!(epoch = %first, "this key's journal was lost once: it votes from this epoch on");
    }
    Ok((journal, recovered, first))
}

fn lost_journal(directory: &Path, height: impl Display) -> String {
    format!(
        "the database is at height {height}, but there is no vote journal in {}: without it this \
         validator could vote twice in a view and break the chain. Restore nothing from a copy. \
         Start once with --vote-from-epoch E, where E is at least two above the highest epoch that \
         any validator shows (`quorate status`), or give the validator a new key",
        directory.display()
    )
}

/// Waits a moment until this validator and its connected peers are a quorum. Not longer: others may
/// be waiting for this one's votes.
async fn wait_for_links(links: &Links, quorum: usize) {
    let patience = Instant::now() + LINK_PATIENCE;
    while links.connected() + 1 < quorum && Instant::now() < patience {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn p2p_config(config: &ValidatorConfig) -> quorate_p2p::Config {
    quorate_p2p::Config {
        identity: config.identity.clone(),
        listen: config.p2p.listen,
        namespace: config.chain.0.0.to_vec(),
        frame_tag: config.chain.tag(),
        peers: config.p2p.peers.clone(),
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

async fn stop_signal(stop_with_stdin: bool) -> anyhow::Result<()> {
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
