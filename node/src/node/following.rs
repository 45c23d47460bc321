//! Running a follower: a node that verifies, executes and serves the chain without a vote.

use super::{
    Asked, Background, Ended, Handles,
    durable::{KeptStore, begin_journal, warn_of_a_lost_database},
    ending::{Failures, end_parts, explain_full_disk, first_failure, watch_the_end},
    identities,
    links::LateLinks,
    rpc_state,
    serving::Servers,
    start_serving, start_verifying,
    syncing::verify,
    task::Task,
};
use crate::{
    cli::with_causes,
    config::{NodeConfig, ValidatorConfig},
    control::KeptSnapshots,
    owner::{self, Owner},
    priority::{self, Yields},
};
use anyhow::Context as _;
use commonware_runtime::tokio::Context as Runtime;
use prometheus::Registry;
use quorate_machine::{
    clock::Clock,
    follow::Follower,
    follower::{FollowerMachine, FollowerSettings},
    live::following::Part,
    machine::journal_folder,
    roles::{Borders, Crossed},
    sync::{Arrival, Arrivals},
};
use quorate_p2p::Inbound;
use quorate_storage::{
    store::Store,
    tree::{TableRows, Tree},
};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use tokio::sync::{mpsc::unbounded_channel, oneshot};
use tracing::{error, info};

/// Starts all parts, waits, and stops them.
pub(super) async fn follow_until_stopped(
    context: &Runtime,
    config: &NodeConfig,
    (validator, part): (Option<&ValidatorConfig>, Part),
    asked: &Asked,
) -> anyhow::Result<Ended> {
    let registry = Registry::new();
    let metrics = asked.metrics(config, None, &registry)?;
    metrics.introduce_follower(config.p2p.peers.len());
    let (failures, mut failed) = unbounded_channel();
    let failures = Failures(failures);
    let clock = asked.clock.clone();
    let database = config.data_dir.join("db");
    let is_new = Store::is_absent(&database);
    let (store, tree) = open_followers_store(config, &asked.kept)?;
    if is_new && validator.is_some() && journal_folder(&config.data_dir).exists() {
        warn_of_a_lost_database(&database);
    }
    let _ = asked.opened.set(store.clone());
    if store.is_syncing()? {
        return Ok(Ended::FarBehind);
    }
    if let (Some(validator), Part::WithoutSeat { .. }) = (validator, part) {
        begin_journal(validator, &config.committees, store.tip().height)?;
    }
    let late_links = LateLinks::default();
    let around = late_links.surroundings(clock.clone(), metrics.clone(), asked.wrap_wire.clone());
    let machine = FollowerMachine::assemble(
        settings(config, asked),
        (store.clone(), tree),
        around,
        verify(config),
    )?;
    *asked.inherited.lock() = Some(machine.leaves());
    let seen = machine.live.clone();
    seen.set_part(part);
    asked.continue_from_before(&seen);
    info!(
        chain = %config.chain, protocol = config.genesis.protocol.name(), height = %store.tip().height,
        "starting to follow"
    );

    // Everything that can fail is done before the first link.
    let sockets = asked.sockets()?;
    let (control, listeners) = (sockets.control()?, sockets.listeners()?);
    let kept = KeptSnapshots {
        snapshots: machine.snapshots,
        store: store.clone(),
    };
    let executor = machine.executed.clone();
    let handles = Handles {
        store,
        clock: clock.clone(),
        accounts: machine.accounts,
        keeper: machine.to_keeper,
        executor: executor.clone(),
        live: machine.live,
        mempool: machine.mempool,
        verifying: start_verifying(&failures, clock.clone())?,
        metrics,
        external: asked.external.clone(),
        payloads: None,
    };
    let executor_body = machine.executor;
    let executor_thread = failures.thread("executor", move || executor_body.run())?;
    let (frames, inbox) = (machine.frames, machine.inbox);
    let inbound: Arc<Inbound> =
        Arc::new(move |from, lane, bytes| frames.receive(from, lane, bytes));
    let mut mesh = asked.mesh.join(context, config, false, inbound).await?;
    let links = mesh.links.clone();
    late_links.set(&links);
    links.watch(Box::new(move |identity, up| inbox.linked(identity, up)));
    let (server, ingest) = (machine.server, machine.ingest);
    start_serving(&failures, server)?;
    failures.thread("ingest", move || {
        priority::lower_this_thread(Yields::Most);
        ingest.run()
    })?;
    let (keeper, requests) = (machine.keeper, machine.kept);
    failures.thread("keeper", move || keeper.run(requests))?;
    let (follower, arrivals) = (machine.follower, machine.arrivals);
    let ending = Arc::new(AtomicBool::new(false));
    let (to_tell, ends_itself) = oneshot::channel();
    let ends = ending.clone();
    let mut borders = Borders::new(
        config.committees.clone(),
        handles.store.clone(),
        clock.clone(),
        handles.live.clone(),
        part == Part::LooksForNewer,
    );
    let following = failures.thread("follow", move || {
        if let Some(ended) = run(follower, &*clock, &arrivals, &mut borders, &ends)? {
            let _ = to_tell.send(ended);
        }
        Ok(())
    })?;
    let forwarding = Task::spawn(machine.forwarder.run());

    let background = Background::start((config, false), &handles, &links, asked)?;
    let reloads = background.reloads.clone();
    let live = handles.live.clone();
    let registries = [registry, mesh.registry.clone()];
    let state = rpc_state(config, handles, &links, registries, asked);
    let control = Task::spawn(control.serve(state.clone(), live, None, reloads, kept));
    let servers = Servers::start(&state, listeners)?;

    let outcome = tokio::select! {
        () = asked.stopped() => Ok(Ended::Stopped),
        Ok(ended) = ends_itself => Ok(ended),
        error = mesh.ended() => Err(error),
        ended = control => Err(anyhow::anyhow!("the control socket ended: {ended:?}")),
        ended = forwarding => Err(anyhow::anyhow!("forwarding ended: {ended:?}")),
        error = first_failure(&mut failed) => Err(error),
    };
    let outcome = outcome.map_err(explain_full_disk);
    asked.keep_for_later(&outcome, seen, &links);
    match &outcome {
        Ok(Ended::Stopped) => info!("stopping"),
        Ok(Ended::Outdated) => info!("the validators change"),
        // It has been told why.
        Ok(Ended::InStep) => {}
        Ok(_) => info!(
            "no linked node keeps the blocks that are missing, or they are too many: state sync begins"
        ),
        Err(error) => error!("stopping: {}", with_causes(error)),
    }
    drop(background);
    let goes_on = matches!(&outcome, Ok(ended) if ended.goes_on());
    if !goes_on {
        watch_the_end();
    }
    servers.tell_to_stop();
    ending.store(true, Ordering::Relaxed);
    executor.stop();
    let outcome = end_parts(outcome, vec![following, executor_thread], servers).await;
    asked.mesh.keep(mesh);
    outcome
}

/// Opens a follower's database, and makes sure that it belongs to this node.
pub(super) fn open_followers_store(
    config: &NodeConfig,
    kept: &KeptStore,
) -> anyhow::Result<(Store, Tree<TableRows>)> {
    let own = Owner {
        chain_id: config.chain,
        identity: config.identity.identity(),
    };
    owner::claim(&config.data_dir, &own, None, &[])
        .with_context(|| config.path.display().to_string())?;
    Ok(kept.open(&config.data_dir.join("db"), &config.genesis)?)
}

fn settings(config: &NodeConfig, asked: &Asked) -> FollowerSettings {
    let timing = config.consensus.timing;
    let pause = config
        .consensus
        .min_block_interval
        .max(timing.idle_interval);
    FollowerSettings {
        genesis: config.genesis.clone(),
        committees: config.committees.clone(),
        upstreams: identities(&config.p2p.peers),
        followers: identities(&config.p2p.followers),
        mempool: config.mempool,
        retention: config.storage.retention,
        prefers_state: asked.prefers_state,
        snapshot_interval: config.storage.snapshot_interval,
        upload: config.p2p.upload,
        inherited: asked.inherited(),
        usual_interval: timing.view_timeout.max(pause),
    }
}

/// Follows until told to end (`None`), until the state of a recent block has to be fetched, or until the
/// validators change.
fn run(
    mut follower: Follower,
    clock: &dyn Clock,
    arrivals: &Arrivals,
    borders: &mut Borders,
    ending: &AtomicBool,
) -> anyhow::Result<Option<Ended>> {
    let mut is_due = true;
    while !ending.load(Ordering::Relaxed) {
        match arrivals.take() {
            Some(Arrival::Frame(from, bytes)) => follower.receive(from, bytes)?,
            Some(Arrival::Linked(peer, up)) => {
                follower.linked(peer, up);
                is_due = true;
                continue;
            }
            None if std::mem::take(&mut is_due) => {}
            None => {
                if !arrivals.wait(follower.due().since(clock.now())) {
                    return Ok(None);
                }
            }
        }
        follower.tick();
        if follower.wants_state() {
            return Ok(Some(Ended::FarBehind));
        }
        match borders.look() {
            Some(Crossed::InStep) => {
                info!("in step: takes part with a vote");
                return Ok(Some(Ended::InStep));
            }
            Some(Crossed::NothingNewer) => {
                info!("nobody has a newer block: takes part with what there is");
                return Ok(Some(Ended::InStep));
            }
            Some(Crossed::ValidatorsChange) => return Ok(Some(Ended::Outdated)),
            None => {}
        }
    }
    Ok(None)
}
