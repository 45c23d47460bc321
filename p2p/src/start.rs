//! Builds the network and supervises its tasks.

use crate::{
    config::{Config, Error, KnownPeer},
    dialer::Dialer,
    frame,
    inbox::{Delivery, Inbox},
    lane::{self, LaneLimits as _, QUEUE_SLOTS, TRACKED_PEER_SETS},
    links::Links,
    metrics::Metrics,
    outbound::Outbound,
    peers::PeerTable,
    pulse::{self, Pulse},
    timing::Pace,
    upgrade::Watched,
    wire::{Patience, Wire},
};
use bytes::Bytes;
use commonware_cryptography::ed25519::PublicKey;
use commonware_p2p::authenticated::lookup::{self, Network, Receiver, Sender};
use commonware_runtime::{Handle, Spawner as _, Supervisor as _, tokio::Context};
use prometheus::Registry;
use quorate_crypto::Identity;
use quorate_lanes::{LANES, Lane};
use std::{
    convert::Infallible,
    future::poll_fn,
    net::SocketAddr,
    num::{NonZeroU32, NonZeroUsize},
    pin::Pin,
    sync::Arc,
    task::{Poll, ready},
    time::Duration,
};
use tokio::{
    net::TcpListener,
    sync::{mpsc::unbounded_channel, oneshot},
};

/// Receives each frame together with the identity that the handshake has authenticated. Called on
/// the runtime's tasks, one for the urgent lanes and one for the others. Must not block: while it
/// runs, frames accumulate in queues that are bounded per peer.
pub type Inbound = dyn Fn(Identity, Lane, Bytes) + Send + Sync;

/// Maximum number of concurrent handshakes.
const CONCURRENT_HANDSHAKES: NonZeroU32 = NonZeroU32::new(512).expect("not zero");

/// Maximum number of queued frames per write. A burst of small frames then costs a third less CPU
/// time than with 1. [`Outbound`] makes sure that a vote does not wait for eight large frames.
const SEND_BATCH: NonZeroUsize = NonZeroUsize::new(8).expect("not zero");

/// Interval of the library's own pings. They only keep a connection open, which this crate's pings
/// already do.
const LIBRARY_PING: Duration = Duration::from_secs(30);

/// How long the library refuses a peer after its link was cut. This cannot be lifted, so it is
/// short; a peer that is blocked for longer is refused in the handshake ([`Watched`]).
const LIBRARY_BLOCK: Duration = Duration::from_secs(2);

const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// A running network. It is a future that resolves only when the network has stopped working.
/// Dropping it leaves the network running until the task that started it ends.
pub struct Running {
    handle: Handle<Error>,
    listening: oneshot::Receiver<Infallible>,
    local_address: SocketAddr,
}

impl Running {
    /// The address on which the node listens.
    pub const fn local_address(&self) -> SocketAddr {
        self.local_address
    }

    /// Closes all links and the listening socket, and waits (at most 5 s) until the socket is
    /// closed.
    pub async fn stop(self) {
        self.handle.abort();
        // Both only end; neither has a value to wait for.
        let _ = self.handle.await;
        let _ = tokio::time::timeout(CLOSE_LIMIT, self.listening).await;
    }
}

impl Future for Running {
    type Output = Error;

    fn poll(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<Error> {
        let ended = ready!(Pin::new(&mut self.handle).poll(cx));
        // Without a result, the supervising task itself panicked or was aborted with its parent.
        Poll::Ready(ended.unwrap_or(Error::TaskEnded { task: "links" }))
    }
}

/// Listens, dials all peers, and keeps the links up until the returned [`Running`] is stopped, the
/// calling task ends, or the runtime shuts down.
///
/// `context` must be a separate child context for each network in a process. `registry` receives
/// the metrics `quorate_p2p_*` and serves one network.
///
/// # Errors
///
/// If the address is in use or cannot be bound, the configuration is inconsistent or exceeds a
/// limit, or the metrics are already registered. Later failures resolve [`Running`].
///
/// # Panics
///
/// A panic in `inbound` ends the process, or only the network if the runtime catches panics.
pub async fn start(
    context: Context,
    config: Config,
    inbound: Arc<Inbound>,
    registry: &Registry,
) -> Result<(Links, Running), Error> {
    let listen = config.listen;
    let listener = TcpListener::bind(listen)
        .await
        .map_err(|source| Error::of_listening(listen, source))?;
    start_on(context, listener, config, inbound, registry).await
}

/// Like [`start`], on a socket that is already listening; `config.listen` is ignored.
///
/// # Errors
///
/// Those of [`start`], except for the address.
pub async fn start_on(
    context: Context,
    listener: TcpListener,
    config: Config,
    inbound: Arc<Inbound>,
    registry: &Registry,
) -> Result<(Links, Running), Error> {
    let peers = config.known_peers()?;
    let local_address = listener.local_addr().map_err(|source| Error::Listen {
        listen: config.listen,
        source,
    })?;
    let metrics = Arc::new(Metrics::register(registry)?);
    let pace = config.timing.pace();
    let patience = Patience {
        connect: pace.connect_timeout,
        idle: pace.idle_timeout,
        stall: pace.stall_timeout,
    };
    let (wire, listening) = Wire::new(context, listener, patience);
    // The network's tasks are children of the supervising task, and end with it.
    let (made, links) = oneshot::channel();
    let handle = wire.spawn(move |wire| async move {
        let (parts, links) = build(&wire, &config, peers, local_address, pace, metrics);
        if made.send(links).is_err() {
            return Error::Stopped;
        }
        watch(wire, parts, config, inbound).await
    });
    let links = links.await.map_err(|_| Error::Stopped)?;
    let running = Running {
        handle,
        listening,
        local_address,
    };
    Ok((links, running))
}

struct Parts {
    network: Network<Wire, Watched>,
    receivers: Vec<(Lane, Receiver<PublicKey>)>,
    pulse: Pulse,
    pulse_receiver: Receiver<PublicKey>,
    dialer: Dialer,
}

fn build(
    wire: &Wire,
    config: &Config,
    peers: Vec<KnownPeer>,
    listen: SocketAddr,
    pace: Pace,
    metrics: Arc<Metrics>,
) -> (Parts, Links) {
    let capacity = peers.len().saturating_add(config.room);
    let validators = NonZeroUsize::MIN.saturating_add(capacity);
    let own = config.identity.identity();
    let table = Arc::new(PeerTable::new(capacity, metrics.clone()));
    let signer = config.identity.to_private_key();
    let handshake = Watched::new(signer, table.clone(), metrics.clone());
    let network_config = network_config(config, handshake, listen, validators, pace);
    let (mut network, oracle) = Network::new(wire.child("network"), network_config);
    let (to_dialer, changes) = unbounded_channel();
    let mut dialer = Dialer::new(
        (own, pace.take_turns),
        table.clone(),
        oracle.clone(),
        config.lookup.clone(),
        changes,
    );
    if let Some(places) = table.set(&peers, config.is_fetching) {
        dialer.set_peers(places.into_iter().zip(peers).collect());
    }

    let mut receivers = Vec::with_capacity(LANES);
    let senders: [Sender<PublicKey, Wire>; LANES] = Lane::by_index().map(|lane| {
        let (sender, receiver) = network.register(lane.index() as u64, lane.quota());
        receivers.push((lane, receiver));
        sender
    });
    let (pulse_sender, pulse_receiver) = network.register(pulse::CHANNEL, lane::pulse_quota());
    let header = frame::header(config.frame_tag);
    let pulse = Pulse {
        table: table.clone(),
        metrics: metrics.clone(),
        sender: pulse_sender,
        oracle: oracle.clone(),
        header: header.clone(),
        tag: config.frame_tag,
    };
    let outbound = Outbound::new(table, metrics, senders, header, config.max_frame_bytes);
    let links = Links::new(
        Arc::new(outbound),
        oracle,
        own,
        to_dialer,
        dialer.known_addresses(),
    );
    let parts = Parts {
        network,
        receivers,
        pulse,
        pulse_receiver,
        dialer,
    };
    (parts, links)
}

fn network_config(
    config: &Config,
    handshake: Watched,
    listen: SocketAddr,
    validators: NonZeroUsize,
    pace: Pace,
) -> lookup::Config<Watched> {
    lookup::Config {
        handshake,
        namespace: config.namespace.clone(),
        listen,
        // Validators of a test network, or of one company, may use private addresses.
        allow_private_ips: true,
        allow_dns: false,
        // Connections from unknown addresses are rejected before a handshake costs anything.
        bypass_ip_check: false,
        max_message_size: config.max_message_bytes(),
        max_peers_per_set: validators,
        mailbox_size: NonZeroUsize::new(QUEUE_SLOTS).expect("not zero"),
        send_batch_size: SEND_BATCH,
        handshake_timeout: pace.handshake_timeout,
        dial_timeout: pace.connect_timeout + pace.handshake_timeout,
        peer_connection_cooldown: pace.cooldown,
        max_concurrent_handshakes: CONCURRENT_HANDSHAKES,
        allowed_handshake_rate_per_ip: pace.handshakes_per_ip,
        allowed_handshake_rate_per_subnet: pace.handshakes_per_subnet,
        ping_frequency: LIBRARY_PING,
        dial_frequency: pace.dial_every,
        tracked_peer_sets: NonZeroUsize::new(TRACKED_PEER_SETS).expect("not zero"),
        block_duration: LIBRARY_BLOCK,
    }
}

/// Starts all tasks and waits for the first one that ends.
async fn watch(wire: Wire, parts: Parts, config: Config, inbound: Arc<Inbound>) -> Error {
    let mut stopped = wire.stopped();
    let mut tasks: Vec<(&'static str, Handle<()>)> = Vec::with_capacity(LANES + 6);
    let (table, metrics) = (&parts.pulse.table, &parts.pulse.metrics);
    let inboxes = ["patient", "urgent"].map(|name| {
        let inbox = Arc::new(Inbox::new(table.clone(), metrics.clone()));
        let handing = inbox.clone().hand_over(inbound.clone());
        let task = wire.child("inbox").with_attribute("lanes", name);
        tasks.push((name, task.spawn(move |_| handing)));
        inbox
    });
    for (lane, receiver) in parts.receivers {
        let delivery = Delivery {
            lane,
            tag: config.frame_tag,
            max_frame_bytes: lane.max_frame_bytes(config.max_frame_bytes),
            inbox: inboxes[usize::from(lane.is_urgent())].clone(),
        };
        let task = wire
            .child("lane")
            .with_attribute("lane", lane.name())
            .spawn(move |_| delivery.run(receiver));
        tasks.push((lane.name(), task));
    }
    let (ping, answer) = (parts.pulse.clone(), parts.pulse);
    let receiver = parts.pulse_receiver;
    let answering = wire.child("pong").spawn(move |_| answer.answer(receiver));
    tasks.push(("pong", answering));
    tasks.push(("ping", wire.child("ping").spawn(move |_| ping.ping())));
    let dialer = parts.dialer;
    tasks.push(("dialer", wire.child("dialer").spawn(move |_| dialer.run())));
    tasks.push(("network", parts.network.start()));

    // The network is polled first: when it ends, the other tasks end too, and it is the cause.
    let task = poll_fn(|cx| {
        if Pin::new(&mut stopped).poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        for (task, handle) in tasks.iter_mut().rev() {
            if Pin::new(handle).poll(cx).is_ready() {
                return Poll::Ready(Some(*task));
            }
        }
        Poll::Pending
    })
    .await;
    match task {
        Some(task) => {
            tracing::error!(task, "the network has ended");
            Error::TaskEnded { task }
        }
        None => Error::Stopped,
    }
}
