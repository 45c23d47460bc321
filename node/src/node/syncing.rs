//! Running state sync, before the validator takes part again.
//!
//! Nothing else runs meanwhile: no engine, no journal, so no vote. Clients get the status and are
//! refused everything else, since the database holds the state of no block.

use super::{
    Asked, Ended, encoded,
    ending::{Failures, end_parts, explain_full_disk, first_failure, watch_the_end},
    links::{LateLinks, peers_of},
    serving::Servers,
    task::Task,
};
use crate::{
    cli::with_causes,
    config::NodeConfig,
    reload,
    rpc::{self, Audience, syncing::SyncRpc},
    saving::SaveBeside,
};
use commonware_runtime::tokio::Context as Runtime;
use prometheus::Registry;
use quorate_api::verdict::{Health, counted};
use quorate_machine::{
    clock::{Clock, SystemClock},
    directory::{Directory, PeerIndex},
    live::LiveStatus,
    metrics::NodeMetrics,
    registry,
    sync::{
        Arrival, Arrivals, Progress, Stage, StateSync, SyncInbox, SyncParts, VerifyCertificate,
        inbox,
    },
};
use quorate_p2p::{Inbound, Lane, Links};
use quorate_types::{Committees, EpochKeys, ValidatorIndex};
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::{mpsc::unbounded_channel, oneshot};
use tracing::{error, info, warn};

/// How often progress is logged.
const LOG_INTERVAL: Duration = Duration::from_secs(5);

/// How often the verdict is looked at that blocks are gone.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// After so long without a target, the validator tries again with the blocks that its peers keep.
const SEARCH_LASTS: Duration = Duration::from_secs(60);

/// Resolves once the verdict is, twice in a row, that no peer keeps the blocks that are missing, or
/// that more are missing than this validator is to keep (`most`). Returns which.
pub(super) async fn state_sync_is_due(
    live: Arc<LiveStatus>,
    links: Links,
    most: Option<u64>,
) -> String {
    let mut ticks = tokio::time::interval(LOOK_INTERVAL);
    let mut seen = 0;
    loop {
        ticks.tick().await;
        let verdict = live.verdict(&links.peers());
        // Not by the word of one peer, unless no other has the blocks.
        let height = live.finalized_height();
        let behind = live.network_height().0.saturating_sub(height.0);
        let is_far = most.is_some_and(|most| behind > most);
        let is_due = match verdict.state {
            Health::BlocksGone => true,
            Health::CatchingUp => is_far,
            _ => false,
        };
        seen = if is_due { seen + 1 } else { 0 };
        if seen < 2 {
            continue;
        }
        return match (verdict.state, most) {
            (Health::CatchingUp, Some(most)) => format!(
                "{} are missing, and this node is to keep {most} (`storage.retention_blocks`)",
                counted(behind, "block")
            ),
            _ => "no peer keeps the blocks that are missing".to_owned(),
        };
    }
}

/// Fetches the state of a recent block. Returns whether the validator shall go on or stop.
pub(super) async fn sync_until_whole(
    context: &Runtime,
    config: &NodeConfig,
    own: Option<ValidatorIndex>,
    asked: &Asked,
) -> anyhow::Result<Ended> {
    let registry = Registry::new();
    let metrics = asked.metrics(config, own, &registry)?;
    let (failures, mut failed) = unbounded_channel();
    let failures = Failures(failures);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let (store, tree) = asked
        .kept
        .open(&config.data_dir.join("db"), &config.genesis)?;
    drop(tree);
    let _ = asked.opened.set(store.clone());
    let validators = registry::known_validators(&config.genesis, &store)?;
    let verify = match &validators {
        None => verify(config),
        Some(known) => verify_with(config, known.committees.clone()),
    };
    let peers = match own {
        Some(_) => Directory::of_validator(config.committees.known(), &[]),
        None => Directory::of(config.p2p.peers.iter().map(|(peer, _)| *peer).collect()),
    };
    let late_links = LateLinks::default();
    let around = late_links.surroundings(clock.clone(), metrics.clone(), asked.wrap_wire.clone());
    let sync = StateSync::new(SyncParts {
        chain: config.chain,
        peers: peers.clone(),
        own: own.map(PeerIndex::from),
        faults: config.committees.known().faults(),
        saver: Box::new(SaveBeside::new(store.clone())),
        store: store.clone(),
        clock: clock.clone(),
        wire: around.wire,
        cut: around.cut,
        verify,
        validators,
        may_ask: None,
    })?;
    let sockets = asked.sockets()?;
    let (control, listeners) = (sockets.control()?, sockets.listeners()?);

    let live = Arc::new(match own {
        Some(own) => LiveStatus::new(config.committees.clone(), own),
        None => LiveStatus::of_follower(config.committees.clone()),
    });
    let progress = Arc::new(Mutex::new(sync.progress().clone()));
    let (inbox, arrivals) = inbox(peers);
    let frames = inbound(inbox.clone());
    let mut mesh = asked.mesh.join(context, config, true, frames).await?;
    let (links, registries) = (mesh.links.clone(), [registry, mesh.registry.clone()]);
    late_links.set(&links);
    links.watch(Box::new(move |identity, up| inbox.linked(identity, up)));
    let (done, whole) = oneshot::channel();
    let ending = Arc::new(AtomicBool::new(false));
    let shown = Shown {
        progress: progress.clone(),
        metrics: metrics.clone(),
        ending: ending.clone(),
    };
    let sync_clock = clock.clone();
    let thread = failures.thread("state-sync", move || {
        if let Some(ended) = run(sync, &*sync_clock, &arrivals, &shown)? {
            let _ = done.send(ended);
        }
        Ok(())
    })?;

    let state = SyncRpc::new(rpc::syncing::Parts {
        started: asked.started,
        name: config.genesis.name.clone(),
        chain: config.chain,
        scheme: config.genesis.scheme.clone(),
        fees: config.genesis.fees,
        live: live.clone(),
        store,
        peers: peers_of(&links),
        progress: progress.clone(),
        metrics: Box::new(move |verdict| {
            metrics.judged(verdict, live.own(), live.usual_interval());
            encoded(&registries)
        }),
    });
    let orders = rpc::syncing::router(state.clone(), Audience::Operator);
    let control = Task::spawn(control.serve_router(orders));
    let servers = Servers::of_routers(&config.rpc, listeners, |audience| {
        rpc::syncing::router(state.clone(), audience)
    })?;
    // A hangup would end the process otherwise. There is nothing to apply it to yet.
    let mut hangups = reload::hangups()?;
    let _hangups = Task::spawn(async move {
        while hangups.recv().await.is_some() {
            warn!("state sync is under way: the configuration is reread after it");
        }
    });

    let outcome = tokio::select! {
        () = asked.stopped() => Ok(Ended::Stopped),
        error = mesh.ended() => Err(error),
        ended = control => Err(anyhow::anyhow!("the control socket ended: {ended:?}")),
        Ok(ended) = whole => Ok(ended),
        error = first_failure(&mut failed) => Err(error),
    };
    let outcome = outcome.map_err(explain_full_disk);
    match &outcome {
        Ok(Ended::Stopped) => {
            info!("stopping");
            watch_the_end();
        }
        Ok(_) => {}
        Err(error) => {
            error!("stopping: {}", with_causes(error));
            watch_the_end();
        }
    }
    servers.tell_to_stop();
    ending.store(true, Ordering::Relaxed);
    let outcome = end_parts(outcome, vec![thread], servers).await;
    asked.mesh.keep(mesh);
    outcome
}

/// Verifies finalizations with the chain's keys.
pub(super) fn verify(config: &NodeConfig) -> VerifyCertificate {
    verify_with(config, config.committees.clone())
}

pub(super) fn verify_with(config: &NodeConfig, committees: Committees) -> VerifyCertificate {
    let keys = EpochKeys::new(config.chain, committees, config.scheme.clone());
    Box::new(move |certificate| keys.verify(certificate))
}

/// Passes on what may be an answer.
fn inbound(inbox: SyncInbox) -> Arc<Inbound> {
    Arc::new(move |from, lane, bytes| {
        if lane == Lane::Fetch {
            inbox.frame(from, bytes);
        }
    })
}

/// Where the thread shows its progress, and whether it has to end.
struct Shown {
    progress: Arc<Mutex<Progress>>,
    metrics: Arc<NodeMetrics>,
    ending: Arc<AtomicBool>,
}

impl Shown {
    fn show(&self, progress: &Progress) {
        self.metrics.sync.show(progress);
        let mut shown = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        *shown = progress.clone();
    }
}

/// Runs state sync until it is done, given up, or told to end (`None`).
fn run(
    mut sync: StateSync,
    clock: &dyn Clock,
    arrivals: &Arrivals,
    shown: &Shown,
) -> anyhow::Result<Option<Ended>> {
    let started = Instant::now();
    let mut logged = Instant::now();
    info!("state sync: fetching the state of a recent block from other nodes");
    while !shown.ending.load(Ordering::Relaxed) {
        match arrivals.take() {
            Some(Arrival::Frame(from, bytes)) => sync.receive(from, bytes)?,
            Some(Arrival::Linked(peer, up)) => sync.linked(peer, up),
            None => {
                if !arrivals.wait(sync.due().since(clock.now())) {
                    return Ok(None);
                }
            }
        }
        sync.tick()?;
        let progress = sync.progress();
        shown.show(progress);
        if sync.is_done() {
            return Ok(Some(Ended::StateIsWhole));
        }
        if logged.elapsed() >= LOG_INTERVAL {
            logged = Instant::now();
            match rpc::syncing::remedy(progress) {
                Some(remedy) => warn!("{}: {remedy}", rpc::syncing::summary(progress)),
                None => info!("{}", rpc::syncing::summary(progress)),
            }
        }
        let searches = progress.stage == Stage::Searching && !sync.has_begun();
        if searches && started.elapsed() >= SEARCH_LASTS {
            info!(
                "state sync: no peer has a snapshot that is of use; trying again to fetch blocks"
            );
            return Ok(Some(Ended::NoSnapshot));
        }
    }
    sync.save()?;
    Ok(None)
}
