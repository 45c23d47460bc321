//! Nodes on 127.0.0.1 with ephemeral ports, and conditions to wait for.

#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use commonware_runtime::{
    Runner as _, Supervisor as _,
    tokio::{Config as RuntimeConfig, Context, Runner},
};
use prometheus::Registry;
use quorate_crypto::{Identity, SecretKey};
use quorate_p2p::{
    Config, DEFAULT_FRAME_BYTES, Error, Inbound, Lane, Links, Running, Timing, To, start, start_on,
    system_lookup,
};
use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};
use tokio::{net::TcpListener, sync::oneshot};

/// Far longer than anything here takes, even on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) type Inbox = Arc<Mutex<Vec<(Identity, Lane, Bytes)>>>;

/// One node, running or stopped.
pub(crate) struct Node {
    pub(crate) config: Config,
    pub(crate) inbox: Inbox,
    pub(crate) registry: Registry,
    pub(crate) links: Links,
    pub(crate) running: Option<Running>,
}

/// Runs a test inside a runtime.
pub(crate) fn run<F: Future<Output = ()>>(test: impl FnOnce(Context) -> F) {
    run_with(RuntimeConfig::new(), test);
}

pub(crate) fn run_with<F: Future<Output = ()>>(
    config: RuntimeConfig,
    test: impl FnOnce(Context) -> F,
) {
    let directory = tempfile::tempdir().unwrap();
    let config = config.with_storage_directory(directory.path());
    Runner::new(config).start(test);
}

pub(crate) fn key(seed: u8) -> SecretKey {
    SecretKey::from_bytes(&[seed; 32])
}

pub(crate) async fn socket() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

pub(crate) fn config(seed: u8, listen: SocketAddr, peers: &[(Identity, SocketAddr)]) -> Config {
    Config {
        identity: key(seed),
        listen,
        namespace: b"test chain".to_vec(),
        frame_tag: *b"testtest",
        peers: peers
            .iter()
            .map(|(identity, address)| (*identity, (*address).into()))
            .collect(),
        followers: Vec::new(),
        room: 0,
        lookup: system_lookup(),
        timing: Timing::Local,
        max_frame_bytes: DEFAULT_FRAME_BYTES,
        is_fetching: false,
    }
}

/// An inbox and the function that fills it.
pub(crate) fn inbox() -> (Inbox, Arc<Inbound>) {
    let inbox = Inbox::default();
    let filled = inbox.clone();
    let inbound = move |sender: Identity, lane: Lane, frame: Bytes| {
        filled.lock().unwrap().push((sender, lane, frame));
    };
    (inbox, Arc::new(inbound))
}

impl Node {
    pub(crate) async fn start_on(context: &Context, listener: TcpListener, config: Config) -> Self {
        let (inbox, inbound) = inbox();
        let registry = Registry::new();
        let context = child(context, &config);
        let (links, running) = start_on(context, listener, config.clone(), inbound, &registry)
            .await
            .unwrap();
        Self {
            config,
            inbox,
            registry,
            links,
            running: Some(running),
        }
    }

    /// Simulates a process that ends and is started again: only the configuration is kept.
    pub(crate) async fn start_again(config: Config, context: &Context) -> Result<Self, Error> {
        let (inbox, inbound) = inbox();
        let registry = Registry::new();
        let child = child(context, &config);
        let (links, running) = start(child, config.clone(), inbound, &registry).await?;
        Ok(Self {
            config,
            inbox,
            registry,
            links,
            running: Some(running),
        })
    }

    pub(crate) async fn stop(&mut self) {
        self.running.take().unwrap().stop().await;
    }

    pub(crate) fn identity(&self) -> Identity {
        self.config.identity.identity()
    }

    /// Whether a frame has arrived from `sender` in `lane`.
    pub(crate) fn has(&self, sender: Identity, lane: Lane, frame: &[u8]) -> bool {
        let inbox = self.inbox.lock().unwrap();
        inbox
            .iter()
            .any(|(from, on, bytes)| *from == sender && *on == lane && bytes == frame)
    }

    /// The sum of a counter's values whose labels include all of `labels`.
    pub(crate) fn count(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let families = self.registry.gather();
        let family = families.iter().find(|family| family.name() == name);
        let metrics = family.map(|family| family.get_metric()).unwrap_or_default();
        let matching = metrics.iter().filter(|metric| {
            labels.iter().all(|(name, value)| {
                let found = metric.get_label().iter().find(|pair| pair.name() == *name);
                found.is_some_and(|pair| pair.value() == *value)
            })
        });
        matching
            .map(|metric| metric.get_counter().get_value() as u64)
            .sum()
    }

    pub(crate) fn unsent(&self, lane: Lane, reason: &str) -> u64 {
        let labels = [("lane", lane.name()), ("reason", reason)];
        self.count("quorate_p2p_frames_unsent_total", &labels)
    }

    pub(crate) fn refused(&self, lane: Lane, reason: &str) -> u64 {
        let labels = [("lane", lane.name()), ("reason", reason)];
        self.count("quorate_p2p_frames_refused_total", &labels)
    }
}

fn child(context: &Context, config: &Config) -> Context {
    let node = config.identity.identity().short();
    context.child("node").with_attribute("node", node)
}

/// Validators 1 to `count`, fully linked.
pub(crate) async fn mesh(context: &Context, count: u8) -> Vec<Node> {
    let mut sockets = Vec::new();
    let mut peers = Vec::new();
    for seed in 1..=count {
        let (listener, address) = socket().await;
        sockets.push((seed, listener, address));
        peers.push((key(seed).identity(), address));
    }
    let mut nodes = Vec::new();
    for (seed, listener, address) in sockets {
        nodes.push(Node::start_on(context, listener, config(seed, address, &peers)).await);
    }
    let others = usize::from(count) - 1;
    until("a full mesh", || {
        nodes.iter().all(|node| node.links.connected() == others)
    })
    .await;
    nodes
}

/// Waits until a condition holds, and returns the elapsed time.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    start.elapsed()
}

/// A peer in its own single-threaded runtime, which the first frame on the control lane stops until
/// [`Self::release`]: its connections stay open, but it does not answer.
pub(crate) struct StoppablePeer {
    pub(crate) inbox: Inbox,
    stopped: Arc<AtomicBool>,
    release: mpsc::Sender<()>,
    finish: oneshot::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl StoppablePeer {
    pub(crate) fn start(listener: TcpListener, config: Config) -> Self {
        let (release, released) = mpsc::channel::<()>();
        let (finish, finished) = oneshot::channel::<()>();
        let (inbox, fill) = inbox();
        let stopped = Arc::new(AtomicBool::new(false));
        let stopping = stopped.clone();
        let listener = listener.into_std().unwrap();
        let thread = std::thread::spawn(move || {
            let one_thread = RuntimeConfig::new().with_worker_threads(1);
            run_with(one_thread, |context| async move {
                let released = Mutex::new(released);
                let inbound = move |sender, lane, frame| {
                    if lane == Lane::Control {
                        stopping.store(true, Ordering::Relaxed);
                        // Also resolves when the other end is gone.
                        let _ = released.lock().unwrap().recv();
                    }
                    fill(sender, lane, frame);
                };
                let listener = TcpListener::from_std(listener).unwrap();
                let registry = Registry::new();
                let context = context.child("stoppable");
                let started = start_on(context, listener, config, Arc::new(inbound), &registry);
                let _running = started.await.unwrap();
                let _ = finished.await;
            });
        });
        Self {
            inbox,
            stopped,
            release,
            finish,
            thread,
        }
    }

    /// Stops the peer with a frame from `node`.
    pub(crate) async fn stop(&self, node: &Node) {
        node.links.send(Lane::Control, &To::All, "stop".into());
        until("a stopped peer", || self.stopped.load(Ordering::Relaxed)).await;
    }

    pub(crate) fn release(&self) {
        self.release.send(()).unwrap();
    }

    pub(crate) fn finish(self) {
        self.finish.send(()).unwrap();
        self.thread.join().unwrap();
    }
}
