//! A Byzantine validator: it has a validator's identity key and speaks to the others through
//! commonware-p2p itself, with quotas that let everything through, so that only what the others do
//! stops it.
#![allow(clippy::unwrap_used)]

mod floods;

pub(crate) use floods::Flood;

use bytes::Bytes;
use commonware_cryptography::{ChaCha20Poly1305, ed25519::PublicKey};
use commonware_p2p::{
    Address, AddressableManager as _, CheckedSender as _, LimitedSender as _, Receiver as _,
    Recipients,
    authenticated::lookup::{self, Network, Receiver, Sender},
};
use commonware_runtime::{
    IoBuf, Quota, Runner as _, Spawner as _, Supervisor as _,
    tokio::{Config as RuntimeConfig, Context, Runner},
};
use commonware_stream::{
    cups::{self, Cups},
    sake::{self, Sake},
};
use commonware_utils::ordered::Map;
use floods::Ammunition;
use quorate_crypto::{Identity, SecretKey};
use quorate_types::{ChainId, Committee, Digest, ValidatorIndex};
use std::{
    net::SocketAddr,
    num::{NonZeroU32, NonZeroUsize},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// What the client sends a second at most, to all peers together: twice what the others read from
/// one peer, and not so much that the client itself is what slows them down.
const BYTES_PER_SECOND: f64 = 100e6;

/// Frames that it may send a second, to all peers together.
const FRAMES_PER_SECOND: f64 = 6_000.0;

/// How often it sends.
const TICK: Duration = Duration::from_millis(2);

/// The lanes' channels, and that of pings; the last is nobody's.
pub(crate) const VOTES: u64 = 0;
pub(crate) const FETCH: u64 = 1;
pub(crate) const TRANSACTIONS: u64 = 2;
pub(crate) const CONTROL: u64 = 3;
const PULSE: u64 = 4;
pub(crate) const NOBODYS: u64 = 9;
const CHANNELS: [u64; 6] = [VOTES, FETCH, TRANSACTIONS, CONTROL, PULSE, NOBODYS];

/// The largest frame that the library lets through, its header included.
const MAX_MESSAGE_BYTES: u32 = 4 * 1024 * 1024 + 9;

/// What the client is told of the chain while it runs.
#[derive(Default)]
pub(crate) struct Scene {
    pub(crate) view: AtomicU64,
    pub(crate) height: AtomicU64,
    /// A large block that everybody has stored, and the newest one.
    pub(crate) blocks: Mutex<[Digest; 2]>,
    /// Payload bytes that were given to the links.
    pub(crate) sent_bytes: AtomicU64,
    flood: Mutex<Option<Flood>>,
    stop: AtomicBool,
}

/// Who the client is.
#[derive(Clone)]
pub(crate) struct Seat {
    pub(crate) chain: ChainId,
    pub(crate) committee: Committee,
    pub(crate) place: ValidatorIndex,
    pub(crate) identity: SecretKey,
    /// An account with money: nobody looks at the signatures of others.
    pub(crate) funded: Identity,
    pub(crate) listen: SocketAddr,
    pub(crate) others: Vec<(PublicKey, SocketAddr)>,
}

/// The running client.
pub(crate) struct Client {
    pub(crate) scene: Arc<Scene>,
    thread: Option<JoinHandle<()>>,
}

impl Client {
    /// Connects to all others, answers their pings, and says nothing else.
    pub(crate) fn start(seat: Seat) -> Self {
        let scene = Arc::new(Scene::default());
        let shared = scene.clone();
        let thread = thread::spawn(move || {
            let directory = tempfile::tempdir().unwrap();
            let config = RuntimeConfig::new()
                .with_worker_threads(1)
                .with_storage_directory(directory.path());
            Runner::new(config).start(|context| run(context, seat, shared));
        });
        Self {
            scene,
            thread: Some(thread),
        }
    }

    /// Begins a flood, or falls silent.
    pub(crate) fn flood(&self, flood: Option<Flood>) {
        *self.scene.flood.lock().unwrap() = flood;
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.scene.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn unlimited() -> Quota {
    Quota::per_second(NonZeroU32::new(1_000_000).unwrap())
        .allow_burst(NonZeroU32::new(256).unwrap())
}

async fn run(context: Context, seat: Seat, scene: Arc<Scene>) {
    let handshake = Cups::<_, ChaCha20Poly1305>::new(
        Sake {
            signer: seat.identity.to_private_key(),
            synchrony_bound: Duration::from_secs(5),
            max_handshake_age: Duration::from_secs(10),
            version: sake::Version::V1,
        },
        cups::Version::V1,
    );
    let mut config = lookup::Config::local(
        handshake,
        seat.chain.0.0.as_ref(),
        seat.listen,
        NonZeroUsize::new(seat.others.len() + 1).unwrap(),
        MAX_MESSAGE_BYTES,
        NonZeroUsize::new(64).unwrap(),
    );
    config.peer_connection_cooldown = Duration::from_millis(200);
    config.dial_frequency = Duration::from_millis(20);
    config.allowed_handshake_rate_per_ip = unlimited();
    config.allowed_handshake_rate_per_subnet = unlimited();
    let (mut network, mut oracle) = Network::new(context.child("network"), config);
    let peers = seat.others.iter();
    let peers = peers.map(|(key, address)| (key.clone(), Address::from(*address)));
    let _ = oracle.track(0, Map::from_iter_dedup(peers));
    let mut senders = Vec::new();
    for channel in CHANNELS {
        let (sender, receiver) = network.register(channel, unlimited());
        let answer = (channel == PULSE).then(|| sender.clone());
        context
            .child("receiver")
            .with_attribute("channel", channel)
            .spawn(move |_| listen(receiver, answer));
        senders.push((channel, sender));
    }
    let network = network.start();
    let ammunition = Ammunition::new(&seat);
    let mut last = Instant::now();
    let (mut bytes, mut frames) = (0.0, 0.0);
    let mut round = 0;
    while !scene.stop.load(Relaxed) {
        tokio::time::sleep(TICK).await;
        let passed = last.elapsed().as_secs_f64();
        last = Instant::now();
        bytes = (bytes + passed * BYTES_PER_SECOND).min(BYTES_PER_SECOND / 10.0);
        frames = (frames + passed * FRAMES_PER_SECOND).min(FRAMES_PER_SECOND / 10.0);
        let Some(flood) = *scene.flood.lock().unwrap() else {
            continue;
        };
        while bytes > 0.0 && frames > 0.0 {
            let (channel, frame) = ammunition.frame(flood, &scene, round);
            round += 1;
            for (key, _) in &seat.others {
                bytes -= frame.len() as f64;
                frames -= 1.0;
                scene.sent_bytes.fetch_add(frame.len() as u64, Relaxed);
                send(&mut senders, channel, key, frame.clone());
            }
        }
    }
    network.abort();
}

fn send(
    senders: &mut [(u64, Sender<PublicKey, Context>)],
    channel: u64,
    key: &PublicKey,
    frame: Bytes,
) {
    let mut senders = senders.iter_mut();
    let (_, sender) = senders.find(|(number, _)| *number == channel).unwrap();
    if let Ok(checked) = sender.check(Recipients::One(key.clone())) {
        // What a full queue refuses is not sent; the next tick brings more.
        let _ = checked.send(IoBuf::from(frame), false);
    }
}

/// Takes whatever comes, and answers pings: otherwise the link would soon be cut.
async fn listen(mut receiver: Receiver<PublicKey>, answer: Option<Sender<PublicKey, Context>>) {
    const HEADER_BYTES: usize = 9;
    let mut answer = answer;
    while let Ok((key, message)) = receiver.recv().await {
        let message: Bytes = message.into();
        let Some(sender) = &mut answer else { continue };
        if message.get(HEADER_BYTES) != Some(&0) {
            continue;
        }
        let mut pong = message.to_vec();
        pong[HEADER_BYTES] = 1;
        if let Ok(checked) = sender.check(Recipients::One(key)) {
            let _ = checked.send(IoBuf::from(Bytes::from(pong)), true);
        }
    }
}
